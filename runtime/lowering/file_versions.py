"""The versions of a file: its opset, file format and onnxruntime release, or a form that most releases read."""

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
from graphcore.onnx.notes import IR_VERSION, NEWEST_OPSET, ONNX_DOMAINS, OPSET
from graphcore.onnx.schemas.catalogue import types
from graphcore.onnx.schemas.runtime_operators import installed
from graphcore.onnx.schemas.schemas import MICROSOFT, Operator, Parameter, element, operator, recorded, schema_of
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
from graphcore.runtime.lowering.targets.legality import CONTROL, Legality, kernel_dtype, legality, without_kernel
from graphcore.runtime.lowering.targets.releases import ReleaseRange, Runtime, default, on_no_wasm, table_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, TensorType, Type

DEPLOYED = 22
"""Files without a requested opset or release are written with older operators if they fit this opset."""

RECENT = frozenset({"Attention", "BitCast", "RMSNormalization", "RotaryEmbedding", "Swish"})
"""Newer operators, and a few older ones: such a file avoids them, so that they alone do not need a newer runtime than
most in use. BitCast is avoided where it only saves arithmetic; graphs that read the bits of floats, as sorting does,
keep it."""


WEB = "web-"
"""The beginning of the names of releases of onnxruntime-web."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of a file. runtime: the release that its graph is lowered for. opset: None for the oldest possible.

    ir: the file format; None for the one that belongs to the opset. newest_ir: the newest that the runtime reads.
    deployed: the release to try first: its graph is used if it fits opset `DEPLOYED`.
    """

    runtime: Runtime
    opset: int | None
    ir: int | None
    newest_ir: int = IR_VERSION
    deployed: Runtime | None = None


def choose_versions(
    target: TargetName, opset: int | None = None, ir_version: int | None = None, runtime: str | None = None
) -> Versions:
    """Return the versions for export options. Raises `GraphError` for versions that no table has."""
    for option, value, first, last, otherwise in (
        ("opset", opset, OLDEST_OPSET, NEWEST_OPSET, "oldest that has all operators of the graph"),
        ("ir_version", ir_version, OLDEST_IR, IR_OF_OPSET[NEWEST_OPSET], "one that belongs to the opset"),
    ):
        if value is not None and not _is_within(value, first, last):
            raise GraphError(
                f"export: {option} must be {first} to {last}, got {value!r}", help=f"omit {option}= for the {otherwise}"
            )
    lowered_for = replace(default(target) if runtime is None else _named(runtime, target), in_file=True)
    is_web = TARGETS[target].is_web
    reader = f"onnxruntime{'-web' if is_web else ''} {lowered_for.version}"
    newest_opset, newest_ir = NEWEST_OPSET, IR_OF_OPSET[NEWEST_OPSET]
    if lowered_for.version:
        release = table_of("cpu").nearest(lowered_for.version)
        newest_opset, newest_ir = release.opset, release.ir
    elif TARGETS[target].table:
        reader, newest_opset, newest_ir = "some supported release of onnxruntime", lowered_for.opset, lowered_for.ir
    for option, value, newest, what in (
        ("opset", opset, newest_opset, f"opset {newest_opset}"),
        ("ir_version", ir_version, newest_ir, f"version {newest_ir} of the file format"),
    ):
        if value is not None and value > newest:
            raise GraphError(
                f"export: {reader} takes {what} at most, not {value}",
                help=f"pass {option}={newest} or less, or a newer runtime",
            )
    if opset is not None:
        has_kernels = bool(lowered_for.version or TARGETS[target].table)
        lowered_at = min(opset, OPSET) if has_kernels else opset
        return Versions(replace(lowered_for, opset=lowered_at, is_fixed=True), opset, ir_version, newest_ir)
    if runtime is not None and not is_web:
        return Versions(lowered_for, lowered_for.opset, ir_version, lowered_for.ir)
    is_any = not lowered_for.version and bool(TARGETS[target].table)
    # WebGPU has kernels of few versions of operators after opset 21.
    deployed = replace(lowered_for, avoided=RECENT) if is_any or is_web else None
    return Versions(lowered_for, None, ir_version, lowered_for.ir, deployed)


def _is_within(version: object, first: int, last: int) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and first <= version <= last


def web_target(target: TargetName, runtime: object) -> TargetName:
    """Return the target that a release of onnxruntime-web, such as "web-1.30", means by "cpu": its wasm."""
    return "wasm" if target == "cpu" and isinstance(runtime, str) and runtime.startswith(WEB) else target


def _named(text: object, target: TargetName) -> Runtime:
    """Return the release of onnxruntime or onnxruntime-web of that name. Raises `GraphError` if no table has it."""
    is_web = isinstance(text, str) and text.startswith(WEB)
    if is_web or TARGETS[target].is_web:
        return _named_web(text, target)
    table = table_of("cpu")
    runtime = table.named(text) if _is_version(text) and isinstance(text, str) else None
    if runtime is None:
        measured = ", ".join(release.version for release in table.releases)
        raise GraphError(
            f"export: unknown release {text!r} of onnxruntime",
            help=f"measured releases: {measured}; any release between or after them is accepted too",
        )
    return runtime


def _named_web(text: object, target: TargetName) -> Runtime:
    """Return the measured release of onnxruntime-web of a name such as "web-1.30". Raises `GraphError`."""
    if TARGETS[target].table and not TARGETS[target].is_web:
        raise GraphError(f"export: onnxruntime-web has no target {target!r}", help='pass target="wasm" or "webgpu"')
    table = table_of(target if TARGETS[target].is_web else "wasm")
    version = text.removeprefix(WEB) if isinstance(text, str) and text.startswith(WEB) else ""
    runtime = table.named(version) if _is_version(version) else None
    if runtime is None or not table.measures(runtime.version):
        measured = ", ".join(f'"{WEB}{release.version}"' for release in table.releases)
        raise GraphError(f"export: unknown release {text!r} of onnxruntime-web", help=f"measured releases: {measured}")
    return replace(runtime, saturates=on_no_wasm)


def _is_version(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(r"\d{1,4}(\.\d{1,4}){1,2}", text) is not None


def written(
    source: Graph, lower: Callable[[Runtime], Graph], target: TargetName, requested: Versions
) -> tuple[Graph, dict[str, int], int]:
    """Return a graph in the form of the file, with the versions of ONNX's domains and of the file format.

    lower: lowers the source for a release. Raises `GraphError` for a node that has no form in these versions and for
    dtypes that the file format does not have; `ExportError` for a node of dtypes that its operator does not have.
    """
    graph, present, opsets = _lowered(lower, target, requested)
    version = requested.runtime.version
    for op_type in sorted(name for name, domain in present if domain == MICROSOFT and version):
        releases = str(recorded().get(op_type, {}).get("releases", "-")).removeprefix("1.24.4")  # none older was asked
        if not any(ReleaseRange.parse(text).includes(version) for text in releases.split()):
            raise GraphError(
                f"export: onnxruntime {version} has no CPU kernel of {MICROSOFT}::{op_type}",
                help=f"leave out runtime=, or name a release of {releases}",
            )
    opsets.update({domain: max(version, opsets.get(domain, 0)) for domain, version in graph.opsets.items() if domain})
    result = at_versions(graph, present, opsets)
    needed, dtype = ir_of(parts(result, present))
    ir = requested.ir or min(max(needed, IR_OF_OPSET[opsets[""]]), requested.newest_ir)
    if needed > ir:
        raise GraphError(
            f"export: {dtype} needs version {needed} of the file format, and the file is of version {ir}",
            help=f"pass ir_version={needed} or newer, or cast the values of dtype {dtype}",
        )
    # Nodes that were type-checked when built and are written unchanged are not checked again, which saves time.
    if result is not source or source.site.has_untyped or any(domain not in ONNX_DOMAINS for _, domain in present):
        check(parts(result, present), opsets)
    if target == "webgpu":
        _check_kernels(result, present, legality(target, replace(requested.runtime, opset=opsets[""])))
    return result, opsets, ir


def _lowered(
    lower: Callable[[Runtime], Graph], target: TargetName, requested: Versions
) -> tuple[Graph, set[tuple[str, str]], dict[str, int]]:
    """Return the lowered graph, its operators, and the versions of ONNX's domains that it can be written at."""
    if requested.deployed is not None:
        try:
            graph = lower(requested.deployed)
        except BitsViewed:
            pass
        else:
            present = operators(graph)
            opsets = oldest_versions(graph, present, legality(target, requested.deployed))
            if opsets[""] <= DEPLOYED:
                return graph, present, opsets
    graph = lower(requested.runtime)
    present = operators(graph)
    opsets = oldest_versions(graph, present, legality(target, requested.runtime))
    if requested.opset is not None:
        opsets[""] = graph.opsets.get("", requested.opset)
    return graph, present, opsets


# A lowered graph at an older opset: the last pass before a file is written.
#
# Until then every node is of the newest opset, whatever release the graph is lowered for. `downgrade` has the changes
# that bring a node back across each version of its operator.


@dataclass(frozen=True, slots=True)
class _Result:
    """A node in an error message: its result, and the user's line that created it."""

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


def oldest_versions(graph: Graph, present: set[tuple[str, str]], rules: Legality) -> dict[str, int]:
    """Return for each of ONNX's domains the oldest version at which all of a lowered graph can be written.

    present: its operators. rules: those it was lowered by; the operators must have the same kernels at that opset.
    """
    result = {domain: OLDEST[domain] for domain in OLDEST if not domain or any(domain == d for _, d in present)}
    recent = {(op, domain) for op, domain in present if is_recent(op, domain)}
    searched = parts(graph, present) if recent else []
    nodes = [n for part in searched for n in part.nodes if (n.op_type, n.domain) in recent]
    for node in nodes:
        result[node.domain] = max(result[node.domain], oldest_version(node))
    for definition in definitions(graph) if any(domain not in OLDEST for _, domain in present) else ():
        result[""] = max(result[""], *(since("Constant", type_) for type_ in constants_of(definition.body)), 0)
    dtypes = [(n.op_type, kernel_dtype(n.op_type, n.inputs, [n.outputs[0].type])) for n in nodes if not n.domain]
    kinds = {(op_type, dtype) for op_type, dtype in dtypes if dtype is not None}
    while result[""] < rules.runtime.opset and not _has_kernels(rules, kinds, result[""]):
        result[""] += 1
    return result


def _has_kernels(rules: Legality, kinds: set[tuple[str, DType]], opset: int) -> bool:
    """Return True if an opset has all the kernels that the opset of the rules has."""
    if not rules.decomposes:
        return True
    older = legality(rules.target.name, replace(rules.runtime, opset=opset))
    lost = [k for k in kinds if k[0] not in CONTROL and k[0] != "Cast" and rules.allows(*k) and not older.allows(*k)]
    return not lost and (rules.host is None or _has_kernels(rules.host, kinds, opset))


def _view(node: Node) -> ReadNode:
    """Return a node in the form that `downgrade` reads."""
    types = tuple([s.type for s in node.outputs])
    graph = node.outputs[0].graph
    return ReadNode(
        graph, node.op_type, list(node.inputs), dict(node.attributes), types, 0, _reads_nothing, node.domain
    )


def _reads_nothing(*_: object) -> None:
    raise AssertionError("what is written has no function bodies")


def at_versions(graph: Graph, present: set[tuple[str, str]], opsets: Mapping[str, int]) -> Graph:
    """Return a lowered graph with every node in its form at the given versions of ONNX's domains.

    present: its operators. Returns the same graph if all nodes have that form. Raises `GraphError` for a node that has
    no form there.
    """
    if not any(v.version > opsets.get(domain, 1) for name, domain in present for v in versions(name, domain)):
        return graph
    definitions_there: dict[Definition, Definition] = {}
    for definition in definitions(graph):
        definitions_there[definition] = replace(
            definition, body=Rewrite(definition.body, _WriteVersions(opsets, definitions_there)).run()
        )
    return Rewrite(graph, _WriteVersions(opsets, definitions_there)).run()


class _WriteVersions(Policy[Rewrite]):
    """Writes graphs at versions of domains."""

    def __init__(self, opsets: Mapping[str, int], definitions: Mapping[Definition, Definition]) -> None:
        self.wanted = opsets
        self.definitions = definitions

    def finish(self, rewrite: Rewrite) -> Graph:
        rewrite.new.build.promotion(rewrite.old.promotion)
        result = rewrite.finish()
        return with_names(result) if result.scope.outer is None else result

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> tuple[Symbol, ...]:
        types = tuple([s.type for s in node.outputs])
        attributes = rewrite.attributes(node)
        definition = definition_of(node)
        if definition is not None:
            attributes = {**attributes, "definition": self.definitions[definition]}
        opset = self.wanted.get(node.domain, 1)
        read = ReadNode(rewrite.new, node.op_type, [*inputs], {**attributes}, types, opset, _reads_nothing, node.domain)
        for newer, older in changes(node.op_type, node.domain):
            if newer.version <= opset:
                break
            step = row(node.op_type, node.domain, newer.version)
            if older is None or not takes_types(older, node) or (step is not None and not step.fits(read)):
                raise refusal(node, opset)
            if step is not None:
                step.change(read)
        return rewrite.new.build.emit_many(node.op_type, tuple(read.inputs), types, read.attributes, node.domain)


def refusal(node: Node, opset: int) -> GraphError:
    """Return the error for a node without a form at an opset; it names its line and the oldest opset that has one."""
    oldest = oldest_version(node)
    return GraphError(
        f"export: {node.op_type} has no form at opset {opset}: opset {oldest} is the lowest at which it can be written",
        operands={"result": _Result(node)},
        help=f"export with opset={oldest} or newer, for a runtime that supports it",
    )


# The last check before a file is written: operands and results have dtypes that the operators have.


def check(parts: Iterable[Graph], versions: Mapping[str, int]) -> None:
    """Raise `ExportError` for a node with an operand or a result of a dtype that its operator does not have.

    parts: lowered graphs. versions: those of the domains in the file. ONNX's schemas declare its operators, the
    installed runtime those of other domains; operators that neither has are not checked.
    """
    for part in parts:
        # One node of each kind: operands and results of the same types, which are interned.
        kinds = {
            (n.op_type, n.domain, len(n.inputs), *[s if s is None else s.type for s in (*n.inputs, *n.outputs)]): n
            for n in part.nodes
        }
        for node in kinds.values():
            _check(node, versions)


def _check_kernels(graph: Graph, present: set[tuple[str, str]], rules: Legality) -> None:
    """Raise `GraphError` for a node that neither the device nor its host has a kernel of, or only a wrong one."""
    for part in parts(graph, present):
        for node in part.nodes:
            dtype = without_kernel(node, rules)
            if dtype is None and not _has_wrong_channels(node):
                continue
            where = "in its build with WebGPU"
            raise GraphError(
                f"export: onnxruntime-web computes Conv of this number of channels wrong {where}"
                if dtype is None
                else f"export: onnxruntime-web has no kernel of {node.op_type} for {dtype} {where}",
                operands={"result": _Result(node)},
                help='export for target="wasm", which computes it',
            )


def _has_wrong_channels(node: Node) -> bool:
    """Return True for a Conv of 6, 9, 15, ... channels a group, whose sums on WebGPU were wrong in 1.30.0."""
    weights = node.inputs[1] if node.op_type == "Conv" and not node.domain else None
    if weights is None:
        return False
    sizes = tuple(weights.shape.static_dims)
    is_product = node.attributes.get("group", 1) == 1 and all(size == 1 for size in sizes[2:])
    if len(sizes) < 3 or len(sizes) != weights.rank or is_product:
        return False
    channels = sizes[1]
    return channels > 3 and channels % 3 == 0 and channels % 4 != 0


def _check(node: Node, versions: Mapping[str, int]) -> None:
    if definition_of(node) is not None:
        return
    declared = _operator(node, versions)
    if declared is None:
        return
    bound: dict[str, tuple[str, str, Type]] = {}
    operands = [(declared.input(i), s) for i, s in enumerate(node.inputs)]
    for parameter, symbol in [*operands, *((declared.output(i), s) for i, s in enumerate(node.outputs))]:
        if symbol is None or parameter is None or not _is_typed(symbol.type):
            continue
        dtype = element(symbol.type)
        if parameter.allowed and dtype not in parameter.allowed and not _is_newer(node, parameter, dtype):
            allowed = textwrap.shorten(types(parameter.allowed), 200)
            raise _refused(node, declared, f"{parameter.name} is {_type_name(symbol.type)}, expected one of {allowed}")
        if parameter.is_variadic and not parameter.is_homogeneous:
            continue
        first = bound.setdefault(parameter.type, (dtype, parameter.name, symbol.type))
        if first[0] != dtype and parameter.allowed != {parameter.type}:  # a type variable
            mixed = f"{first[1]} is {_type_name(first[2])} and {parameter.name} {_type_name(symbol.type)}"
            raise _refused(node, declared, f"{mixed}, which must have one dtype")


def _operator(node: Node, versions: Mapping[str, int]) -> Operator | None:
    version = versions.get(node.domain, 1)
    if node.domain in ONNX_DOMAINS:
        schema = schema_of(node.op_type, node.domain, version)
        return None if schema is None else operator(schema)
    runtime = installed()
    return None if runtime is None else runtime.operator(node.domain, node.op_type, version)


def _is_newer(node: Node, parameter: Parameter, dtype: str) -> bool:
    """Return True if a newer version of one of ONNX's operators has a dtype, as Optional has float8 from opset 28 on.

    Lowering writes it at the newest opset for files, which may be older.
    """
    if node.domain not in ONNX_DOMAINS:
        return False
    newest = operator(onnx.defs.get_schema(node.op_type, domain=node.domain))
    return any(p.name == parameter.name and dtype in p.allowed for p in (*newest.inputs, *newest.outputs))


def _is_typed(type_: Type) -> bool:
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    return not isinstance(type_, OpaqueType)


def _type_name(type_: Type) -> str:
    return str(type_.dtype) if isinstance(type_, TensorType) else str(type_)


def _refused(node: Node, declared: Operator, why: str) -> ExportError:
    operands: dict[str, object] = {}
    for i, symbol in enumerate(node.inputs):
        parameter = declared.input(i)
        if symbol is not None:
            operands[f"input {i}" if parameter is None else parameter.name] = symbol
    for i, symbol in enumerate(node.outputs):
        parameter = declared.output(i)
        operands[f"output {i}" if parameter is None else parameter.name] = symbol
    label = f"{node.domain}::{declared.name}" if node.domain else declared.name
    at = f", made at {node.line}" if node.line is not None else ""
    return ExportError(
        f"export: {label} {node.outputs[0].name!r}{at}: {why}",
        operands=operands,
        help="cast the operand before the node, or pass out_types that the operator has",
    )
