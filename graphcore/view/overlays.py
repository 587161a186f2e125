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
from graphcore.support.escaping import size_text
from graphcore.surgery.diff import Diff
from graphcore.surgery.diff import diff as differences
from graphcore.view.graph_data import GraphData, Json
from graphcore.view.text import seconds_text, short_name, short_text

Kind = Literal["time", "memory", "placement", "quantization", "difference", "dtype"]

_FUSED = re.compile(r"(.+?)(?:_nchwc|_token_\d+|/\w*Fusion\w*.*|_fused\w*)$", re.DOTALL)
"""Names that onnxruntime derives from the name of a node when it fuses the node."""

_QUANTIZED = re.compile(r"\.(?:u?int\d+|q\d\w*|scale|zero_point|blocks?)(?:\..*)?$", re.DOTALL)
"""Suffixes that quantisation adds to the names of weights."""

_RESULT = re.compile(r"(?:_output_0|:0)$")
"""Suffixes that PyTorch and tf2onnx add to the name of a node to name its first result."""

_MAX_LISTED = 5


def _overlay(name: str, kind: Kind, of: int, note: str, unit: str = "") -> Json:
    return {"name": name, "kind": kind, "of": of, "unit": unit, "note": note}


def profile_overlays(source: GraphData, profile: Profile, target: int) -> list[Json]:
    """Return time and memory of the nodes of the graph that ran, and of the original nodes that they replace.

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
    missing_seconds = sum(kernel.seconds for kernel in missing)
    note = f"{seconds_text(profile.seconds)} a run, over {profile.runs} runs."
    if missing:
        note += f" {len(missing)} kernels, {missing_seconds / total:.1%} of the time, match no node: onnxruntime's own."
    overlays = []
    for of, own_seconds, own_memory in (
        (-1, _sum_by_original(seconds, lowered), _sum_by_original(memory, lowered)),
        (target, seconds, memory),
    ):
        time = [[i, s, f"{seconds_text(s)} {s / total:.1%}"] for i, s in own_seconds.items()]
        overlays.append({**_overlay("time", "time", of, note, "s"), "numbers": time})
        if any(own_memory.values()):
            bytes_ = [[i, b, size_text(int(b))] for i, b in own_memory.items()]
            words = "Bytes of results and constants of each kernel, in one call."
            overlays.append({**_overlay("memory", "memory", of, words, "bytes"), "numbers": bytes_})
    return overlays


def _by_name(data: GraphData) -> dict[str, int]:
    """Return the index of each node by the name of its result, which is also its name in files, if that is unique.

    Third-party files that run unchanged have their own node names, from which exporters derived the result names.
    """
    by_name: dict[str, int] = {}
    others: dict[str, int] = {}
    for index, node in enumerate(data.source_nodes):
        if node.outputs:
            name = node.outputs[0].name
            by_name[name] = -1 if name in by_name else index
            other = _RESULT.sub("", name)
            others[other] = -1 if other in others else index
    return {name: index for name, index in {**others, **by_name}.items() if index >= 0}


def _node_of(kernel: Kernel, by_name: Mapping[str, int], data: GraphData) -> int | None:
    """Return the node that a kernel runs, alone or fused with others, None if no name matches."""
    index = by_name.get(kernel.name)
    if index is not None:
        operator = data.source_nodes[index].op_type
        return index if operator in kernel.operator or kernel.operator in operator else None
    fused = _FUSED.fullmatch(kernel.name)
    return None if fused is None else by_name.get(fused[1])


def _sum_by_original(values: Mapping[int, float], lowered: LoweredData) -> dict[int, float]:
    """Return for each original node the sum over the nodes that replace it."""
    sums = {}
    for index, nodes in enumerate(lowered.replacements):
        own = [values[i] for i in nodes if i in values]
        if own:
            sums[index] = sum(own)
    return sums


def placement_overlays(source: GraphData, placement: Placement, target: int) -> list[Json]:
    """Return the provider that runs each node. target: as in `profile_overlays`."""
    lowered: LoweredData = source.lowered[target]
    by_name = _by_name(lowered.data)
    words: dict[int, tuple[str, str]] = {}
    for placed in placement.operators:
        kernel = Kernel(placed.name, placed.operator, placed.provider, 0.0, 1.0)
        index = _node_of(kernel, by_name, lowered.data)
        if index is not None:
            words[index] = placed.provider, placed.reason
    originals = {}
    for index, nodes in enumerate(lowered.replacements):
        own = [words[i] for i in nodes if i in words]
        if own:
            providers = " and ".join(dict.fromkeys(provider for provider, _ in own))
            originals[index] = providers, "; ".join(dict.fromkeys(reason for _, reason in own if reason))
    note = f"The provider that runs each operator. {len(placement.left)} do not run on the first provider."
    return [
        {
            **_overlay("placement", "placement", of, note),
            "words": [[i, name, f"{name}: {why}" if why else name] for i, (name, why) in entries.items()],
        }
        for of, entries in ((-1, originals), (target, words))
    ]


def quantization_overlays(source: GraphData, report: Report) -> list[Json]:
    """Return the scheme and the error of each quantised layer.

    Layers are matched by the names of results, in the graph before and after; if calls were inlined, by weights.
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
    error = "The norm of the quantisation error of a weight, relative to the norm of the weight."
    return [
        {**_overlay("quantization", "quantization", -1, note), "words": words},
        {**_overlay("quantization error", "quantization", -1, error), "numbers": numbers},
    ]


def _by_weight(data: GraphData) -> dict[str, int]:
    """Return the index of the first node that reads each weight, or its quantised form: `name.int8`."""
    by_weight: dict[str, int] = {}
    for index, node in enumerate(data.source_nodes):
        for symbol in node.inputs:
            name = None if symbol is None else symbol.given_name
            if name is not None:
                by_weight.setdefault(name, index)
                by_weight.setdefault(_QUANTIZED.sub("", name), index)
    return by_weight


def difference_overlay(source: GraphData, other: Graph) -> Json:
    """Return the differences to another graph: nodes that only this one has, changed nodes, types and weights."""
    diff: Diff = differences(source.graph, other)
    by_name = _by_name(source)
    words: dict[int, tuple[str, list[str]]] = {}

    def note(index: int | None, category: str, text: str) -> None:
        if index is not None:
            words.setdefault(index, (category, []))[1].append(text)

    for change in diff.nodes:
        if change.kind != "+" and not change.place:
            category = "only here" if change.kind == "-" else "changed"
            note(by_name.get(change.name), category, "; ".join(change.details) or category)
    first_results = [(i, n.outputs[0]) for i, n in enumerate(source.source_nodes) if n.outputs]
    makers = {symbol.name: i for i, symbol in first_results if symbol.graph is source.graph}
    readers = _readers(source)
    for type_ in diff.types:
        if not type_.place:
            note(makers.get(type_.name), "another type", f"{type_.name}: {type_.before}, there {type_.after}")
    for weight in diff.weights:
        if weight.kind != "+" and not weight.place:
            for index in readers.get(weight.name, ()):
                note(index, "other weights", str(weight))
    there = [short_name(change.name) for change in diff.nodes if change.kind == "+"]
    text = f"Against {short_name(other.name)}: {len(words)} nodes differ, {len(there)} are only there"
    if there:
        text += f" ({_listed(there)})"
    if diff.dims:
        text += f"; dims: {_listed([short_name(f'{dim.name} -> {dim.other}') for dim in diff.dims])}"
    return {
        **_overlay("difference", "difference", -1, f"{text}."),
        "words": [[i, category, short_text("; ".join(texts))] for i, (category, texts) in words.items()],
    }


def _listed(names: list[str]) -> str:
    return ", ".join([*names[:_MAX_LISTED], *(["..."] if len(names) > _MAX_LISTED else [])])


def _readers(data: GraphData) -> dict[str, list[int]]:
    """Return the indices of the nodes that read each named value."""
    readers: dict[str, list[int]] = {}
    for index, node in enumerate(data.source_nodes):
        for name in {s.given_name for s in node.inputs if s is not None and s.given_name is not None}:
            readers.setdefault(name, []).append(index)
    return readers


# Lowered graphs as data of the page: which of their nodes replace which original node, and why.


@dataclass(frozen=True, slots=True)
class LoweredData:
    """A lowered graph. replacements: for each original node, the indices of the nodes that replace it."""

    data: GraphData
    json: Json
    replacements: list[list[int]]


def lowered_data(source: GraphData, target: TargetName, precision: Precision | None, optimize: Optimize) -> LoweredData:
    """Return the lowered graph for a target, and record its nodes in the data of the original ones.

    It is lowered as for a session of the installed onnxruntime; for target "onnx", as for a file. Raises `GraphError`
    for an unknown target, and for a graph that cannot be lowered.
    """
    if target not in TARGETS:
        raise GraphError(f"view: no target is called {target!r}", help=f"use one of {', '.join(TARGETS)}")
    number = source.index_of_node
    left_out = len(source.nodes)  # the mark of nodes that the page does not show
    marked = marked_through(source.graph, lambda node: number.get(id(node), left_out))
    runtime = default(target) if target == "onnx" else installed()
    passes: list[Pass] = []
    lowered_graph = lower(marked, target, precision, runtime=runtime, optimize=optimize, trace=passes)
    plain = lowered_graph if optimize == "off" else lower(marked, target, precision, runtime=runtime)
    data = GraphData(lowered_graph, like=source)
    lowered = LoweredData(
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
            lowered.replacements[mark].append(index)
            by_mark[mark].append(node)
    is_called = {id(node) for definition in definitions(source.graph) for node in walk(definition.body)}
    _add_calls(source, lowered, is_called)
    needed: list[list[Node]] = [[] for _ in source.nodes]
    for node in (node for part in parts(plain) for node in part.nodes):
        mark = mark_of(node)
        if mark is not None and mark != left_out:
            needed[mark].append(node)
    _add_reasons(source, lowered, is_called, by_mark, needed, legality(target, runtime))
    return lowered


def _add_calls(source: GraphData, lowered: LoweredData, is_called: Set[int]) -> None:
    """Add to each call the nodes that replace its function's nodes there: they are in the layer of the call.

    is_called: the identities of nodes of functions.
    """
    calls: dict[str, int] = {}
    for index, node in enumerate(source.source_nodes):
        if node.layer and id(node) not in is_called and definition_of(node) is not None:
            calls[node.layer] = -1 if node.layer in calls else index
    if not calls:
        return
    for index, node in enumerate(lowered.data.source_nodes):
        mark = mark_of(node)
        if mark is None or mark >= len(source.nodes) or id(source.source_nodes[mark]) not in is_called:
            continue
        for layer in itertools.accumulate(part + "/" for part in node.layer.split("/")[:-1]):
            if (call := calls.get(layer, -1)) >= 0:
                lowered.replacements[call].append(index)


def _add_reasons(
    source: GraphData,
    lowered: LoweredData,
    is_called: Set[int],
    by_mark: list[list[Node]],
    needed: list[list[Node]],
    rules: Legality,
) -> None:
    """Record in each node its replacements with the reason, and in each cast of the lowered graph why it exists."""
    for index, node in enumerate(source.source_nodes):
        if definition_of(node) is not None:
            reason = "replaced by its body"
        elif id(node) in is_called:
            # A function may be called several times, and each call has its own nodes.
            reasons = {detour(node, [one], [one], rules) for one in by_mark[index]}
            reason = reasons.pop() if len(reasons) == 1 else detour(node, by_mark[index], needed[index], rules)
        else:
            reason = detour(node, by_mark[index], needed[index], rules)
        entry = {"target": len(source.lowered), "nodes": lowered.replacements[index], "reason": reason}
        source.nodes[index].setdefault("lowered", []).append(entry)
        for new_index in lowered.replacements[index] if definition_of(node) is None else ():
            _explain_cast(source.nodes[index], lowered.data.nodes[new_index], reason)
    source.lowered.append(lowered)


def _explain_cast(original: Json, lowered_node: Json, reason: str) -> None:
    cast = lowered_node.get("cast")
    if cast is None:
        return
    before = original.get("cast")
    if before is not None and before["result"] == cast["result"]:
        lowered_node["cast"] = before
    else:
        words = f"lowering: {reason}" if reason else f"lowering: for {original['op']}"
        lowered_node["cast"] = {**cast, "implicit": True, "system": "lowering", "pair": None, "words": words}
