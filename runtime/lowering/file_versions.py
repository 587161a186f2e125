"""The versions that a file is written for: an opset, a file format, a release of onnxruntime, or most of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph, TargetName
from graphcore.ir.transform.walk import operators
from graphcore.onnx.opset import IR_VERSION, ONNX_DOMAINS, OPSET
from graphcore.onnx.schemas import written_nodes
from graphcore.onnx.versions.history import IR_OF_OPSET, OLDEST_IR, OLDEST_OPSET, ir_of, parts
from graphcore.runtime.lowering.decompositions.older.bitcast import BitsViewed
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.lowering.targets.releases import Runtime, default, table_of
from graphcore.runtime.lowering.to_opset import at_versions, oldest_versions

DEPLOYED = 22
"""The opset up to which a file that no opset or release is named for is written with older operators."""

RECENT = frozenset({"Attention", "BitCast", "RMSNormalization", "RotaryEmbedding", "Swish"})
"""Operators that are newer, and a few older ones: so that they alone do not ask for a runtime newer than most which are
in use. BitCast is, where it spares arithmetic; a graph that looks at the bits of floats, as sorting does, has it."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of a file. runtime: its graph is lowered for that. opset: None for the oldest that will do.

    ir: of the file format, where None the one that goes with the opset. newest_ir: what the runtime takes. deployed:
    what the graph is lowered for first, which counts where it then can be written at opset `DEPLOYED`.
    """

    runtime: Runtime
    opset: int | None
    ir: int | None
    newest_ir: int = IR_VERSION
    deployed: Runtime | None = None


def versions_asked(
    target: TargetName, opset: int | None = None, ir_version: int | None = None, runtime: str | None = None
) -> Versions:
    """Return what is written for what was asked. Raises `GraphError` for what no table knows."""
    if opset is not None and not _is_within(opset, OLDEST_OPSET, OPSET):
        raise GraphError(
            f"export: opset {opset!r} is none that files are written at",
            help=f"those are {OLDEST_OPSET} to {OPSET}; without opset= it is the oldest that has all operators",
        )
    if ir_version is not None and not _is_within(ir_version, OLDEST_IR, IR_VERSION):
        raise GraphError(
            f"export: version {ir_version!r} of the file format is none that files are written in",
            help=f"those are {OLDEST_IR} to {IR_VERSION}; without ir_version= it is the one that goes with the opset",
        )
    lowered_for = replace(default(target) if runtime is None else _named(runtime), in_file=True)
    if opset is not None and opset > lowered_for.opset:
        raise GraphError(
            f"export: onnxruntime {lowered_for.version} takes opset {lowered_for.opset} at most, not {opset}",
            help=f"give opset={lowered_for.opset} or less, or a newer runtime",
        )
    if ir_version is not None and ir_version > lowered_for.ir:
        raise GraphError(
            f"export: onnxruntime {lowered_for.version} takes version {lowered_for.ir} of the file format at most, not"
            f" {ir_version}",
            help=f"give ir_version={lowered_for.ir} or less, or a newer runtime",
        )
    if opset is not None:
        return Versions(replace(lowered_for, opset=opset, is_fixed=True), opset, ir_version, lowered_for.ir)
    if runtime is not None:
        return Versions(lowered_for, lowered_for.opset, ir_version, lowered_for.ir)
    is_any = not lowered_for.version and bool(TARGETS[target].table)
    deployed = replace(lowered_for, avoided=RECENT) if is_any else None
    return Versions(lowered_for, None, ir_version, lowered_for.ir, deployed)


def _is_within(version: object, first: int, last: int) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and first <= version <= last


def _named(text: object) -> Runtime:
    """The release of onnxruntime that is named. Raises `GraphError` for one that no table knows."""
    table = table_of("cpu")
    is_version = isinstance(text, str) and re.fullmatch(r"\d{1,4}(\.\d{1,4}){1,2}", text) is not None
    found = table.named(text) if is_version and isinstance(text, str) else None
    if found is None:
        known = ", ".join(release.version for release in table.releases)
        raise GraphError(
            f"export: no table knows the release {text!r} of onnxruntime",
            help=f"those that were measured: {known}; one between or after them is taken too",
        )
    return found


def written(
    source: Graph, lower: Callable[[Runtime], Graph], target: TargetName, asked: Versions
) -> tuple[Graph, dict[str, int], int]:
    """Return a graph as it is written: of which versions of ONNX's domains, and of the file format.

    lower: gives the source lowered for a release. Raises `GraphError` for a node without a form there, and for
    dtypes that an older file format does not have; `ExportError` for a node of dtypes that its operator does not have.
    """
    graph, there, found = _lowered(lower, target, asked)
    found.update({domain: max(version, found.get(domain, 0)) for domain, version in graph.opsets.items() if domain})
    made = at_versions(graph, there, found)
    needed, dtype = ir_of(parts(made, there))
    ir = asked.ir or min(max(needed, IR_OF_OPSET[found[""]]), asked.newest_ir)
    if needed > ir:
        raise GraphError(
            f"export: {dtype} needs version {needed} of the file format, and the file is of version {ir}",
            help=f"give ir_version={needed} or newer, or cast what is of dtype {dtype}",
        )
    # Nodes that were typed as they were built, and written as they are, need no second look, which takes time.
    if made is not source or source.site.has_untyped or any(domain not in ONNX_DOMAINS for _, domain in there):
        written_nodes.check(parts(made, there), found)
    return made, found, ir


def _lowered(
    lower: Callable[[Runtime], Graph], target: TargetName, asked: Versions
) -> tuple[Graph, set[tuple[str, str]], dict[str, int]]:
    """The lowered graph, its operators, and the versions of ONNX's domains that it can be written at."""
    if asked.deployed is not None:
        try:
            graph = lower(asked.deployed)
        except BitsViewed:
            pass
        else:
            there = operators(graph)
            found = oldest_versions(graph, there, legality(target, asked.deployed))
            if found[""] <= DEPLOYED:
                return graph, there, found
    graph = lower(asked.runtime)
    there = operators(graph)
    found = oldest_versions(graph, there, legality(target, asked.runtime))
    if asked.opset is not None:
        found[""] = graph.opsets.get("", asked.opset)
    return graph, there, found
