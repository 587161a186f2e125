"""A lowered graph at an older opset: the last pass before a file is written.

Every node is of the newest opset until then, whatever release the graph was lowered for. `downgrade` has what brings a
node back across each version that changed its operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphcore.errors import GraphError
from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Rewrite, with_names
from graphcore.onnx.versions.downgrade import row
from graphcore.onnx.versions.history import (
    OLDEST,
    changes,
    constants_of,
    is_recent,
    parts,
    since,
    takes_types,
    versions,
)
from graphcore.onnx.versions.node import Read
from graphcore.runtime.lowering.targets.legality import BY_RESULT, CONTROL, PRIMARY, Legality, legality
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


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


def _view(node: Node) -> Read:
    """A node as `downgrade` looks at it."""
    types = tuple([s.type for s in node.outputs])
    graph = node.outputs[0].graph
    return Read(graph, node.op_type, list(node.inputs), dict(node.attributes), types, 0, _reads_nothing, node.domain)


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
        body = _Writing(definition.body, None, wanted, made).run()
        made[definition] = replace(definition, body=body)
    return _Writing(graph, None, wanted, made).run()


def _changes(op_type: str, domain: str, wanted: Mapping[str, int]) -> bool:
    """Return whether an operator changed after the version that is wanted."""
    return any(version.version > wanted.get(domain, 1) for version in versions(op_type, domain))


class _Writing:
    """One graph or body, written at versions of domains."""

    def __init__(
        self, graph: Graph, outer: Rewrite | None, wanted: Mapping[str, int], made: Mapping[Definition, Definition]
    ) -> None:
        self.rewrite = Rewrite(graph, outer=outer)
        self.wanted = wanted
        self.made = made
        self._is_whole = outer is None

    def run(self) -> Graph:
        for node, inputs in self.rewrite.nodes():
            self.rewrite.replace(node, self._node(node, inputs))
        self.rewrite.new.build.promotion(self.rewrite.old.promotion)
        made = self.rewrite.finish()
        return with_names(made) if self._is_whole else made

    def _body(self, body: Graph) -> Graph:
        return _Writing(body, self.rewrite, self.wanted, self.made).run()

    def _node(self, node: Node, inputs: tuple[Symbol | None, ...]) -> tuple[Symbol, ...]:
        types = tuple([s.type for s in node.outputs])
        attributes = self.rewrite.attributes(node, self._body)
        definition = definition_of(node)
        if definition is not None:
            attributes = {**attributes, "definition": self.made[definition]}
        wanted = self.wanted.get(node.domain, 1)
        read = Read(
            self.rewrite.new, node.op_type, [*inputs], {**attributes}, types, wanted, _reads_nothing, node.domain
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
        return self.rewrite.new.build.emit_many(node.op_type, tuple(read.inputs), types, read.attributes, node.domain)


def refusal(node: Node, opset: int) -> GraphError:
    """Return the error that names a node without a form at an opset, its line, and the oldest opset at which it has."""
    oldest = oldest_version(node)
    return GraphError(
        f"export: {node.op_type} has no form at opset {opset}: opset {oldest} is the lowest at which it can be written",
        operands={"result": _Result(node)},
        help=f"export with opset={oldest} or newer, for a runtime that takes it",
    )
