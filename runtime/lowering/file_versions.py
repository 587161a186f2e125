"""The versions that a file is written for: an opset, a file format, a release of onnxruntime, or most of them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import onnx

from graphcore.errors import ExportError, GraphError
from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph, TargetName
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Rewrite, with_names
from graphcore.ir.transform.walk import operators
from graphcore.onnx.notes import IR_VERSION, ONNX_DOMAINS, OPSET
from graphcore.onnx.schemas.catalogue import types
from graphcore.onnx.schemas.runtime_operators import installed
from graphcore.onnx.schemas.schemas import Operator, Parameter, element, operator, schema_of
from graphcore.onnx.versions.downgrade import row
from graphcore.onnx.versions.older import ReadNode
from graphcore.onnx.versions.table import (
    IR_OF_OPSET,
    OLDEST,
    OLDEST_IR,
    OLDEST_OPSET,
    changes,
    constants_of,
    ir_of,
    is_recent,
    parts,
    since,
    takes_types,
    versions,
)
from graphcore.runtime.lowering.decompositions.bits import BitsViewed
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.legality import BY_RESULT, CONTROL, PRIMARY, Legality, legality
from graphcore.runtime.lowering.targets.releases import Runtime, default, table_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, OptionalType, SequenceType, TensorType, Type

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
        check(parts(made, there), found)
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


# A lowered graph at an older opset: the last pass before a file is written.
#
# Every node is of the newest opset until then, whatever release the graph was lowered for. `downgrade` has what brings
# a node back across each version that changed its operator.


@dataclass(frozen=True, slots=True)
class _Result:
    """A node in an error: its result, and the user's line that made it."""

    node: Node

    def _describe(self) -> tuple[str, str, str]:
        result, line = self.node.outputs[0], self.node.line
        return result.name, str(result.type), "" if line is None else f"{line}   {line.excerpt}".rstrip()


def oldest_version(node: Node) -> int:
    """Return the oldest version of a node's domain at which the node can be written."""
    oldest = OLDEST.get(node.domain, 1)
    for newer, older in changes(node.op_type, node.domain):
        if newer.version <= oldest:
            break
        if older is None or not takes_types(older, node):
            return newer.version
        step = row(node.op_type, node.domain, newer.version)
        if step is not None and not step.fits(_view(node)):
            return newer.version
    return oldest


def oldest_versions(graph: Graph, there: set[tuple[str, str]], rules: Legality) -> dict[str, int]:
    """Return for each of ONNX's domains the oldest version at which all of a lowered graph can be written.

    there: its operators. rules: what it was lowered by. They have kernels at that opset wherever they have them at the
    newest.
    """
    found = {domain: OLDEST[domain] for domain in OLDEST if not domain or any(domain == d for _, d in there)}
    recent = {(op, domain) for op, domain in there if is_recent(op, domain)}
    whole = parts(graph, there) if recent else []
    nodes = [n for part in whole for n in part.nodes if (n.op_type, n.domain) in recent]
    for node in nodes:
        found[node.domain] = max(found[node.domain], oldest_version(node))
    for definition in definitions(graph) if any(domain not in OLDEST for _, domain in there) else ():
        found[""] = max(found[""], *(since("Constant", type_) for type_ in constants_of(definition.body)), 0)
    kinds = {(n.op_type, dtype) for n in nodes if not n.domain and (dtype := _dtype_that_decides(n)) is not None}
    while found[""] < rules.runtime.opset and not _has_kernels(rules, kinds, found[""]):
        found[""] += 1
    return found


def _has_kernels(rules: Legality, kinds: set[tuple[str, DType]], opset: int) -> bool:
    """Return whether there are kernels at an opset where there are at the one that was lowered for."""
    if not rules.decomposes:
        return True
    older = legality(rules.target.name, replace(rules.runtime, opset=opset))
    lost = [k for k in kinds if k[0] not in CONTROL and k[0] != "Cast" and rules.allows(*k) and not older.allows(*k)]
    return not lost and (rules.host is None or _has_kernels(rules.host, kinds, opset))


def _dtype_that_decides(node: Node) -> DType | None:
    """The dtype that a node's kernel is chosen by."""
    position = PRIMARY.get(node.op_type, 0)
    chosen: Symbol | None = None if node.op_type in BY_RESULT else next(iter(node.inputs[position:]), None)
    type_ = (node.outputs[0] if chosen is None else chosen).type
    return type_.dtype if isinstance(type_, TensorType) else None


def _view(node: Node) -> ReadNode:
    """A node as `downgrade` looks at it."""
    types = tuple([s.type for s in node.outputs])
    graph = node.outputs[0].graph
    return ReadNode(
        graph, node.op_type, list(node.inputs), dict(node.attributes), types, 0, _reads_nothing, node.domain
    )


def _reads_nothing(*_: object) -> None:
    raise AssertionError("what is written has no function bodies")


def at_versions(graph: Graph, there: set[tuple[str, str]], wanted: Mapping[str, int]) -> Graph:
    """Return a lowered graph with every node as it is written at versions of ONNX's domains.

    there: its operators. A graph whose nodes are all written so already is returned as it is. Raises `GraphError` for a
    node that has no form there.
    """
    if not any(_changes(*operator, wanted) for operator in there):
        return graph
    made: dict[Definition, Definition] = {}
    for definition in definitions(graph):
        made[definition] = replace(definition, body=Rewrite(definition.body, _Writing(wanted, made)).run())
    return Rewrite(graph, _Writing(wanted, made)).run()


def _changes(op_type: str, domain: str, wanted: Mapping[str, int]) -> bool:
    """Return whether an operator changed after the version that is wanted."""
    return any(version.version > wanted.get(domain, 1) for version in versions(op_type, domain))


class _Writing(Policy[Rewrite]):
    """Graphs written at versions of domains."""

    def __init__(self, wanted: Mapping[str, int], made: Mapping[Definition, Definition]) -> None:
        self.wanted = wanted
        self.made = made

    def finish(self, rewrite: Rewrite) -> Graph:
        rewrite.new.build.promotion(rewrite.old.promotion)
        made = rewrite.finish()
        return with_names(made) if made.scope.outer is None else made

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> tuple[Symbol, ...]:
        types = tuple([s.type for s in node.outputs])
        attributes = rewrite.attributes(node)
        definition = definition_of(node)
        if definition is not None:
            attributes = {**attributes, "definition": self.made[definition]}
        wanted = self.wanted.get(node.domain, 1)
        read = ReadNode(
            rewrite.new, node.op_type, [*inputs], {**attributes}, types, wanted, _reads_nothing, node.domain
        )
        for newer, older in changes(node.op_type, node.domain):
            if newer.version <= wanted:
                break
            step = row(node.op_type, node.domain, newer.version)
            if older is None or not takes_types(older, node) or (step is not None and not step.fits(read)):
                raise refusal(node, wanted)
            made = step.change(read) if step is not None else None
            if made is not None:
                return made
        return rewrite.new.build.emit_many(node.op_type, tuple(read.inputs), types, read.attributes, node.domain)


def refusal(node: Node, opset: int) -> GraphError:
    """Return the error that names a node without a form at an opset, its line, and the oldest opset at which it has."""
    oldest = oldest_version(node)
    return GraphError(
        f"export: {node.op_type} has no form at opset {opset}: opset {oldest} is the lowest at which it can be written",
        operands={"result": _Result(node)},
        help=f"export with opset={oldest} or newer, for a runtime that takes it",
    )


# The last check of what is written: every node's operands and results are of dtypes that its operator has.


def check(parts: Iterable[Graph], versions: Mapping[str, int]) -> None:
    """Raise `ExportError` for a node with an operand or a result of a dtype that its operator does not have.

    parts: lowered graphs. versions: of the domains that the file is written in. ONNX's schemas say what its operators
    take, the installed runtime's what others do; operators that neither knows are not checked.
    """
    for part in parts:
        # One node of each kind: operands and results of the same types, which are interned.
        kinds = {
            (n.op_type, n.domain, len(n.inputs), *[s if s is None else s.type for s in (*n.inputs, *n.outputs)]): n
            for n in part.nodes
        }
        for node in kinds.values():
            _check(node, versions)


def _check(node: Node, versions: Mapping[str, int]) -> None:
    if definition_of(node) is not None:
        return
    known = _operator(node, versions)
    if known is None:
        return
    bound: dict[str, tuple[str, str, Type]] = {}
    given = [(known.input(i), s) for i, s in enumerate(node.inputs)]
    for parameter, symbol in [*given, *((known.output(i), s) for i, s in enumerate(node.outputs))]:
        if symbol is None or parameter is None or not _is_told(symbol.type):
            continue
        found = element(symbol.type)
        if parameter.allowed and found not in parameter.allowed and not _is_newer(node, parameter, found):
            taken = textwrap.shorten(types(parameter.allowed), 200)
            raise _refused(node, known, f"{parameter.name} is {_shown(symbol.type)}, and it has {taken}")
        if parameter.is_variadic and not parameter.is_homogeneous:
            continue
        first = bound.setdefault(parameter.type, (found, parameter.name, symbol.type))
        if first[0] != found and _is_variable(parameter):
            mixed = f"{first[1]} is {_shown(first[2])} and {parameter.name} {_shown(symbol.type)}"
            raise _refused(node, known, f"{mixed}, which are of one dtype")


def _operator(node: Node, versions: Mapping[str, int]) -> Operator | None:
    version = versions.get(node.domain, 1)
    if node.domain in ONNX_DOMAINS:
        schema = schema_of(node.op_type, node.domain, version)
        return None if schema is None else operator(schema)
    runtime = installed()
    return None if runtime is None else runtime.operator(node.domain, node.op_type, version)


def _is_newer(node: Node, parameter: Parameter, found: str) -> bool:
    """Return whether a newer version of one of ONNX's operators has a dtype, as Optional has float8 from opset 28 on.

    Lowering writes it at the newest opset that files have: that one may be older.
    """
    if node.domain not in ONNX_DOMAINS:
        return False
    newest = operator(onnx.defs.get_schema(node.op_type, domain=node.domain))
    return any(p.name == parameter.name and found in p.allowed for p in (*newest.inputs, *newest.outputs))


def _is_told(type_: Type) -> bool:
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    return not isinstance(type_, ForeignType)


def _is_variable(parameter: Parameter) -> bool:
    return parameter.allowed != frozenset({parameter.type})


def _shown(type_: Type) -> str:
    return str(type_.dtype) if isinstance(type_, TensorType) else str(type_)


def _refused(node: Node, known: Operator, why: str) -> ExportError:
    shown: dict[str, object] = {}
    for i, symbol in enumerate(node.inputs):
        parameter = known.input(i)
        if symbol is not None:
            shown[f"input {i}" if parameter is None else parameter.name] = symbol
    for i, symbol in enumerate(node.outputs):
        parameter = known.output(i)
        shown[f"output {i}" if parameter is None else parameter.name] = symbol
    label = f"{node.domain}::{known.name}" if node.domain else known.name
    at = f", made at {node.line}" if node.line is not None else ""
    return ExportError(
        f"export: {label} {node.outputs[0].name!r}{at}: {why}",
        operands=shown,
        help="cast the operand before the node, or give the node the out_types that the operator has",
    )
