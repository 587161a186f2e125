"""Overlays of the page: a number or a word for each node, from profiles, placements, quantisation and differences."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

from graphcore.errors import GraphError
from graphcore.ir.definitions import definition_of, definitions
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.ir.symbol import Node
from graphcore.ir.transform.walk import mark_of, marked_through, parts, walk
from graphcore.runtime.inspection.placement import Placement
from graphcore.runtime.inspection.profiling import Kernel, Profile
from graphcore.runtime.lowering import TARGETS, lower
from graphcore.runtime.lowering.passes import Pass
from graphcore.runtime.lowering.report import detour
from graphcore.runtime.lowering.targets.legality import Legality, legality
from graphcore.runtime.lowering.targets.releases import default
from graphcore.runtime.ort.release import runtime as installed
from graphcore.runtime.quantizer.report import Report
from graphcore.surgery.diff import Diff
from graphcore.surgery.diff import diff as differences
from graphcore.view.graph_data import GraphData, Json
from graphcore.view.text import seconds_text, short_name, short_text, size_text

Kind = Literal["time", "memory", "placement", "quantization", "difference", "dtype"]

_FUSED = re.compile(r"(.+?)(?:_nchwc|_token_\d+|/\w*Fusion\w*.*|_fused\w*)$", re.DOTALL)
"""Names that onnxruntime makes of a node's for what it fuses the node with."""

_QUANTIZED = re.compile(r"\.(?:u?int\d+|q\d\w*|scale|zero_point|blocks?)(?:\..*)?$", re.DOTALL)
"""Endings that quantising adds to the names of weights."""

_RESULT = re.compile(r"(?:_output_0|:0)$")
"""Endings that PyTorch and tf2onnx add to the name of a node for that of its first result."""

_SHOWN = 5


def _overlay(name: str, kind: Kind, of: int, note: str, unit: str = "") -> Json:
    return {"name": name, "kind": kind, "of": of, "unit": unit, "note": note}


def profile_overlays(source: GraphData, profile: Profile, target: int) -> list[Json]:
    """Return time and memory of the nodes of the graph that ran, and of those that they stand for.

    target: the index of the lowered graph that ran.
    """
    lowered: LoweredData = source.lowered[target]
    by_name = _by_name(lowered.data)
    seconds: dict[int, float] = {}
    memory: dict[int, int] = {}
    missing: list[Kernel] = []
    for kernel in profile.kernels:
        index = _node_of(kernel, by_name, lowered.data)
        if index is None:
            missing.append(kernel)
        else:
            seconds[index] = seconds.get(index, 0.0) + kernel.seconds
            memory[index] = memory.get(index, 0) + kernel.result_bytes + kernel.weight_bytes
    total = sum(kernel.seconds for kernel in profile.kernels) or 1.0
    left = sum(kernel.seconds for kernel in missing)
    note = f"{seconds_text(profile.seconds)} a run, over {profile.runs} runs."
    if missing:
        note += f" {len(missing)} kernels, {left / total:.1%} of the time, have the name of no node: onnxruntime's own."
    made = []
    for of, own_seconds, own_memory in (
        (-1, _of_originals(seconds, lowered), _of_originals(memory, lowered)),
        (target, seconds, memory),
    ):
        time = [[i, s, f"{seconds_text(s)} {s / total:.1%}"] for i, s in own_seconds.items()]
        made.append({**_overlay("time", "time", of, note, "s"), "numbers": time})
        if any(own_memory.values()):
            bytes_ = [[i, b, size_text(int(b))] for i, b in own_memory.items()]
            words = "Bytes of results and of constants of each kernel, in one call."
            made.append({**_overlay("memory", "memory", of, words, "bytes"), "numbers": bytes_})
    return made


def _by_name(data: GraphData) -> dict[str, int]:
    """Return the index of each node by the name of its result, which files give it too, where only one has that.

    A file of others that runs as it is has its own names of nodes: those from which exporters made the results' names.
    """
    found: dict[str, int] = {}
    others: dict[str, int] = {}
    for index, node in enumerate(data.source_nodes):
        if node.outputs:
            name = node.outputs[0].name
            found[name] = -1 if name in found else index
            other = _RESULT.sub("", name)
            others[other] = -1 if other in others else index
    return {name: index for name, index in {**others, **found}.items() if index >= 0}


def _node_of(kernel: Kernel, by_name: Mapping[str, int], data: GraphData) -> int | None:
    """Return the node that a kernel runs, alone or fused with others; None where none is called as the kernel is."""
    index = by_name.get(kernel.name)
    if index is not None:
        operator = data.source_nodes[index].op_type
        return index if operator in kernel.operator or kernel.operator in operator else None
    fused = _FUSED.fullmatch(kernel.name)
    return None if fused is None else by_name.get(fused[1])


def _of_originals(values: Mapping[int, float], lowered: LoweredData) -> dict[int, float]:
    """Return for each original node the sum over those that stand for it."""
    sums = {}
    for index, made in enumerate(lowered.made):
        own = [values[i] for i in made if i in values]
        if own:
            sums[index] = sum(own)
    return sums


def placement_overlays(source: GraphData, placement: Placement, target: int) -> list[Json]:
    """Return the provider that runs each node. target: as for a profile."""
    lowered: LoweredData = source.lowered[target]
    by_name = _by_name(lowered.data)
    words: dict[int, tuple[str, str]] = {}
    for placed in placement.operators:
        kernel = Kernel(placed.name, placed.operator, placed.provider, 0.0, 1.0)
        index = _node_of(kernel, by_name, lowered.data)
        if index is not None:
            words[index] = placed.provider, placed.reason
    originals = {}
    for index, made in enumerate(lowered.made):
        own = [words[i] for i in made if i in words]
        if own:
            providers = " and ".join(dict.fromkeys(provider for provider, _ in own))
            originals[index] = providers, "; ".join(dict.fromkeys(reason for _, reason in own if reason))
    note = f"The provider that runs each operator, {len(placement.left)} left to another than the first."
    return [
        {
            **_overlay("placement", "placement", of, note),
            "words": [[i, name, f"{name}: {why}" if why else name] for i, (name, why) in found.items()],
        }
        for of, found in ((-1, originals), (target, words))
    ]


def quantization_overlays(source: GraphData, report: Report) -> list[Json]:
    """Return what each layer was quantised to, and what that changed in its weight.

    Found by the names of results, in the graph before and after; else, where calls were inlined, by weights.
    """
    by_name, by_weight = _by_name(source), _by_weight(source)
    words: list[list[Any]] = []
    numbers: list[list[Any]] = []
    missing = 0
    for row in report:
        index = by_name.get(row.name, by_weight.get(row.weight))
        if index is None:
            missing += 1
            continue
        sizes = f"{size_text(row.before)} to {size_text(row.after)}"
        scheme = row.scheme if row.block_size is None else f"{row.scheme} by {row.block_size}"
        text = f"{scheme}, {sizes}, error {row.error:.2%}" if row.scheme else f"left: {row.reason}"
        words.append([index, scheme or "left", short_text(text)])
        if row.scheme:
            numbers.append([index, row.error, f"{row.error:.2%}"])
    note = f"{len(report.quantized)} of {len(report)} layers quantised to {report.scheme}."
    note += f" {missing} of them have another name in this graph." if missing else ""
    error = "The length of what quantising changes in a weight over the length of the weight."
    return [
        {**_overlay("quantization", "quantization", -1, note), "words": words},
        {**_overlay("quantization error", "quantization", -1, error), "numbers": numbers},
    ]


def _by_weight(data: GraphData) -> dict[str, int]:
    """Return the index of the first node that reads each weight, or what quantising made of it: `name.int8`."""
    found: dict[str, int] = {}
    for index, node in enumerate(data.source_nodes):
        for symbol in node.inputs:
            name = None if symbol is None else symbol.given_name
            if name is not None:
                found.setdefault(name, index)
                found.setdefault(_QUANTIZED.sub("", name), index)
    return found


def difference_overlay(source: GraphData, other: Graph) -> Json:
    """Return where a graph differs from another one: nodes that it has alone or otherwise, other types and weights."""
    found: Diff = differences(source.graph, other)
    by_name = _by_name(source)
    words: dict[int, tuple[str, list[str]]] = {}

    def note(index: int | None, category: str, text: str) -> None:
        if index is not None:
            words.setdefault(index, (category, []))[1].append(text)

    for change in found.nodes:
        if change.kind != "+" and not change.place:
            category = "only here" if change.kind == "-" else "changed"
            note(by_name.get(change.name), category, "; ".join(change.details) or category)
    makers, readers = _makers(source), _readers(source)
    for type_ in found.types:
        if not type_.place:
            note(makers.get(type_.name), "another type", f"{type_.name}: {type_.before}, there {type_.after}")
    for weight in found.weights:
        if weight.kind != "+" and not weight.place:
            for index in readers.get(weight.name, ()):
                note(index, "other weights", str(weight))
    there = [short_name(change.name) for change in found.nodes if change.kind == "+"]
    text = f"Against {short_name(other.name)}: {len(words)} nodes differ, {len(there)} are only there"
    if there:
        text += f" ({', '.join([*there[:_SHOWN], *(['...'] if len(there) > _SHOWN else [])])})"
    return {
        **_overlay("difference", "difference", -1, f"{text}."),
        "words": [[i, category, short_text("; ".join(texts))] for i, (category, texts) in words.items()],
    }


def _makers(data: GraphData) -> dict[str, int]:
    return {s.name: i for i, n in enumerate(data.source_nodes) if n.outputs and (s := n.outputs[0]).graph is data.graph}


def _readers(data: GraphData) -> dict[str, list[int]]:
    """Return the indices of the nodes that read each value with a name."""
    found: dict[str, list[int]] = {}
    for index, node in enumerate(data.source_nodes):
        for name in {s.given_name for s in node.inputs if s is not None and s.given_name is not None}:
            found.setdefault(name, []).append(index)
    return found


# Graphs after lowering, as data of the page: which of their nodes stand for which, and why.


@dataclass(frozen=True, slots=True)
class LoweredData:
    """A lowered graph. made: for each node of the graph before, the indices of those that stand for it."""

    data: GraphData
    json: Json
    made: list[list[int]]


def lowered_data(source: GraphData, target: TargetName, precision: Precision | None, optimize: Optimize) -> LoweredData:
    """Return what a graph becomes for a target, and note in its nodes what stands for them.

    It is what a session of the installed onnxruntime lowers to; for target "onnx", what a file has. Raises `GraphError`
    for a target that there is not, and for a graph that cannot be lowered.
    """
    if target not in TARGETS:
        raise GraphError(f"view: no target is called {target!r}", help=f"use one of {', '.join(TARGETS)}")
    number = source.index_of_node
    left_out = len(source.nodes)  # of nodes that the page does not show
    marked = marked_through(source.graph, lambda node: number.get(id(node), left_out))
    runtime = default(target) if target == "onnx" else installed()
    passes: list[Pass] = []
    made = lower(marked, target, precision, runtime=runtime, optimize=optimize, trace=passes)
    plain = made if optimize == "off" else lower(marked, target, precision, runtime=runtime)
    data = GraphData(made, like=source)
    found = LoweredData(
        data,
        {
            "target": target,
            "runtime": runtime.version or "every release",
            "graph": data.as_json(),
            "passes": [{"name": step.name, "reason": step.why} for step in passes],
        },
        [[] for _ in source.nodes],
    )
    by_mark: list[list[Node]] = [[] for _ in source.nodes]
    for index, node in enumerate(data.source_nodes):
        mark = mark_of(node)
        if mark is not None and mark != left_out:
            found.made[mark].append(index)
            by_mark[mark].append(node)
    is_called = {id(node) for definition in definitions(source.graph) for node in walk(definition.body)}
    _add_calls(source, found, is_called)
    needed: list[list[Node]] = [[] for _ in source.nodes]
    for node in (node for part in parts(plain) for node in part.nodes):
        mark = mark_of(node)
        if mark is not None and mark != left_out:
            needed[mark].append(node)
    _note(source, found, is_called, by_mark, needed, legality(target, runtime))
    return found


def _add_calls(source: GraphData, found: LoweredData, is_called: Set[int]) -> None:
    """Add to each call what stands for the nodes of its function there: they are in the layer of the call.

    is_called: the identities of nodes of functions.
    """
    calls: dict[str, int] = {}
    for index, node in enumerate(source.source_nodes):
        if node.layer and id(node) not in is_called and definition_of(node) is not None:
            calls[node.layer] = -1 if node.layer in calls else index
    if not calls:
        return
    for index, node in enumerate(found.data.source_nodes):
        mark = mark_of(node)
        if mark is None or mark >= len(source.nodes) or id(source.source_nodes[mark]) not in is_called:
            continue
        for layer in itertools.accumulate(part + "/" for part in node.layer.split("/")[:-1]):
            if (call := calls.get(layer, -1)) >= 0:
                found.made[call].append(index)


def _note(
    source: GraphData,
    found: LoweredData,
    is_called: Set[int],
    by_mark: list[list[Node]],
    needed: list[list[Node]],
    rules: Legality,
) -> None:
    """Note in each node what stands for it, and in each cast of the lowered graph why it stands there."""
    for index, node in enumerate(source.source_nodes):
        if definition_of(node) is not None:
            reason = "its body stands in its place"
        elif id(node) in is_called:
            # A function is called any number of times, and each call has nodes of its own.
            reasons = {detour(node, [one], [one], rules) for one in by_mark[index]}
            reason = reasons.pop() if len(reasons) == 1 else detour(node, by_mark[index], needed[index], rules)
        else:
            reason = detour(node, by_mark[index], needed[index], rules)
        entry = {"target": len(source.lowered), "nodes": found.made[index], "reason": reason}
        source.nodes[index].setdefault("lowered", []).append(entry)
        for made in found.made[index] if definition_of(node) is None else ():
            _explain_cast(source.nodes[index], found.data.nodes[made], reason)
    source.lowered.append(found)


def _explain_cast(original: Json, made: Json, reason: str) -> None:
    cast = made.get("cast")
    if cast is None:
        return
    before = original.get("cast")
    if before is not None and before["result"] == cast["result"]:
        made["cast"] = before
    else:
        words = f"lowering: {reason}" if reason else f"lowering: for {original['op']}"
        made["cast"] = {**cast, "implicit": True, "system": "lowering", "pair": None, "words": words}
