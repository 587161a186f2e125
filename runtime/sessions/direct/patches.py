"""Patches: the nodes of a third-party file that need lowering, lowered alone and put into the bytes of the file.

Each of them becomes a graph of one node, which is read and lowered as any other. Where that is not possible, or has no
form beside the other nodes of the file, the load is left to the Graph of the whole file.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias

import onnx

from graphcore.errors import GraphError, ModelError
from graphcore.ir.graph import Graph, Optimize, Precision
from graphcore.ir.transform.walk import operators
from graphcore.onnx.proto.messages import nested
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.onnx.proto.opened import Opened, domain_of, versions_of
from graphcore.onnx.read.reader import read
from graphcore.onnx.schemas.schemas import MICROSOFT
from graphcore.onnx.versions.older import MOVED
from graphcore.onnx.versions.table import next_change, versions
from graphcore.runtime.lowering.file_versions import at_versions, oldest_versions
from graphcore.runtime.lowering.pipeline import lower
from graphcore.runtime.lowering.targets.legality import CONTROL, Legality
from graphcore.runtime.ort.optimisers import unsafe
from graphcore.runtime.sessions.direct.operators import NEW_KERNELS, ROWS
from graphcore.runtime.sessions.direct.parts import Path, Scope, Shapes, names_read, part_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_MIN_PATCHES, _NODES_OF_PATCH = 4, 50
"""To lower a node alone takes as long as this many nodes of a whole file, and a file of few nodes as long as this many
patches."""

_MAX_BYTES, _MAX_REMEMBERED = 1 << 16, 256
"""Nodes of at most this many bytes with their constants are patched, and so many are remembered by the process."""

Lowering: TypeAlias = "tuple[Precision | None, Optimize]"
"""The options of lowering besides the target."""

_QUANTISED = frozenset({"DequantizeLinear", "QuantizeLinear"})
"""Operators that optimisers join with many others."""

_DOMAINS = frozenset({"", MICROSOFT})


@dataclass(frozen=True, slots=True, eq=False)
class _Patch:
    """A lowered node. dtypes: of its results. opset: the oldest at which its nodes give the same numbers. disabled:
    optimisers that would change the results."""

    lowered: Graph
    present: set[tuple[str, str]]
    dtypes: Sequence[DType]
    opset: int
    disabled: frozenset[str]


@dataclass(frozen=True, slots=True)
class Splice:
    """The nodes that replace others of a file, by their place. versions: of the domains of the new file."""

    nodes: Mapping[Path, Sequence[onnx.NodeProto]]
    versions: Mapping[str, int]

    def content(self, file: memoryview) -> bytes:
        """Return the bytes of the file with its nodes replaced."""
        model = onnx.ModelProto.FromString(file)
        del model.opset_import[:]
        model.opset_import.extend(map(onnx.helper.make_opsetid, self.versions, self.versions.values()))
        # Inner bodies come first, while the nodes around them have their places.
        for outer in sorted({path[:-1] for path in self.nodes}, key=len, reverse=True):
            graph = model.graph
            for number, place in zip(outer[::2], outer[1::2], strict=True):
                graph = graph.node[number].attribute[place].g
            nodes = [self.nodes.get((*outer, number), (node,)) for number, node in enumerate(graph.node)]
            del graph.node[:]
            graph.node.extend(itertools.chain.from_iterable(nodes))
        return bytes(model.SerializeToString())


class Patches:
    """The patches of a model. present: their operators, and domains. outer: those outside of bodies. disabled:
    optimisers that would change their results."""

    def __init__(self, file: onnx.ModelProto, content: memoryview, lowering: Lowering, rules: Legality) -> None:
        """content: of the file. rules: those that its Graph would be lowered by."""
        self._content = content
        self._lowering = lowering
        self._rules = rules
        self._patches: dict[Path, tuple[_Patch, Mapping[str, str]]] = {}
        self._different: set[_Patch] = set()
        self._file = file
        self._versions = versions_of(file.opset_import)
        self._most = _MIN_PATCHES + len(file.graph.node) // _NODES_OF_PATCH
        self.present: set[tuple[str, str]] = set()
        self.outer: set[str] = set()
        self.disabled: set[str] = set()

    def add(self, path: Path, node: onnx.NodeProto, scope: Scope, shapes: Shapes) -> Sequence[DType] | None:
        """Lower a node. shapes: of values by name. Returns the dtypes of its results; None if that is not possible."""
        if domain_of(node.domain) not in _DOMAINS:
            return None
        try:
            model, names = self._model(onnx.NodeProto.FromString(node.SerializeToString()), scope, shapes)
            content = model.SerializeToString()
            if len(content) > _MAX_BYTES:
                return None
            patch = _lowered(content, self._rules, self._lowering)
        except Exception:  # the Graph of the whole file reports the error
            return None
        self._different.add(patch)
        if len(self._different) > self._most:
            return None
        self._patches = {own: other for own, other in self._patches.items() if own[: len(path)] != path}
        self._patches[path] = patch, names
        self.present |= patch.present
        self.outer.update(node.op_type for node in patch.lowered.nodes)
        self.disabled |= patch.disabled
        return patch.dtypes

    def _model(self, node: onnx.NodeProto, scope: Scope, shapes: Shapes) -> tuple[onnx.ModelProto, Mapping[str, str]]:
        """Return the model of a node, whose operands are constants and inputs; and the file's names of its values.

        Equal nodes have equal models: names are those of the places, except of what bodies read.
        """
        operands = [name for name in dict.fromkeys(names_read(node)) if name in scope[0]]
        results = [name for name in node.output if name]
        has_bodies = any(attribute.HasField("g") for attribute in node.attribute)
        names = {name: name if has_bodies else f"x{i}" for i, name in enumerate((*operands, *results))}
        model = part_of(operands, scope, shapes, self._versions, self._file.ir_version)
        for value in (*model.graph.initializer, *model.graph.input):
            value.name = names[value.name]
        model.graph.output.extend(onnx.ValueInfoProto(name=names[name]) for name in results)
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        node.name = ""
        model.graph.node.append(node)
        constants = {tensor.name for tensor in model.graph.initializer}
        return model, {own: name for name, own in names.items() if own not in constants}

    def finish(
        self, op_types: Set[str], scopes: Mapping[Path, Scope], shapes: Callable[[Path], Shapes]
    ) -> Splice | None:
        """Return the splice of the patches; None if they have no place in the file.

        The file gets the oldest opset that all patches can have. Nodes that change on the way to it are patched too.
        op_types: of the file. scopes: what nodes can read, by the place of their graph. shapes: returns those of the
        values that a node can read, by name.
        """
        file = self._versions
        opset = file[""]
        while opset < (oldest := max(patch.opset for patch, _ in self._patches.values())):
            opset = oldest
            changes = ((op_type, next_change("", op_type, file[""])) for op_type in op_types)
            changed = {op_type for op_type, change in changes if change is not None and change[0] <= opset}
            for path, node in _nodes(self._file.graph) if changed else ():
                is_patched = any(path[: length + 1] in self._patches for length in range(0, len(path), 2))
                if is_patched or node.op_type not in changed or domain_of(node.domain):
                    continue
                is_moved = node.op_type in MOVED and path[:-1] in scopes  # other changes are of more than the form
                if not is_moved or self.add(path, node, scopes[path[:-1]], shapes(path)) is None:
                    return None
        versions = {**dict.fromkeys((domain for _, domain in self.present), 1), **file, "": opset}
        content, prefix = bytes(self._content), "patch"
        while prefix.encode() in content:
            prefix += "_"
        try:
            encoded = {patch: _encoded(patch, opset) for patch in self._different}
        except GraphError:  # a node has no form at this opset
            return None
        nodes = {
            path: _renamed(encoded[patch], names, f"{prefix}{number}/")
            for number, (path, (patch, names)) in enumerate(self._patches.items())
        }
        return Splice(nodes, versions)


@functools.lru_cache(_MAX_REMEMBERED)
def _lowered(content: bytes, rules: Legality, lowering: Lowering) -> _Patch:
    """Lower the model of a node. Raises `GraphcoreError` if that fails, or the result has no place in a file."""
    graph = read(Opened(content, None))
    precision, optimize = lowering
    lowered = lower(graph, "cpu", precision, runtime=rules.runtime, optimize=optimize)
    present = operators(lowered)
    dtypes = [type_.dtype for type_ in graph.output_types.values() if isinstance(type_, TensorType)]
    is_plain = {domain for _, domain in present} <= _DOMAINS and _QUANTISED.isdisjoint(n.op_type for n in lowered.nodes)
    if not is_plain or lowered.buffers or len(dtypes) < len(graph.outputs) or DType.float16 in dtypes:
        raise ModelError("load: the lowered node has no place in the file", help="load the file as a Graph")
    opset = oldest_versions(lowered, present, rules)[""]
    opset = max(opset, *(_oldest_kernel(op_type) for op_type, domain in present if not domain), 0)
    return _Patch(lowered, present, dtypes, opset, frozenset(unsafe(lowered, present)))


@functools.lru_cache(_MAX_REMEMBERED)
def _encoded(patch: _Patch, opset: int) -> Sequence[onnx.NodeProto]:
    """Return the nodes of a patch, and those of its constants."""
    versions = {"": opset}
    lowered = at_versions(patch.lowered, patch.present, versions)
    graph = onnx.ModelProto.FromString(join(encode(lowered, versions=versions))).graph
    constants = [onnx.helper.make_node("Constant", [], [t.name], value=t) for t in graph.initializer]
    return [*constants, *graph.node]


def _renamed(nodes: Sequence[onnx.NodeProto], names: Mapping[str, str], prefix: str) -> Sequence[onnx.NodeProto]:
    """Return the nodes of a patch in the file. names: of the file's values. prefix: of the names of other ones."""
    graph = onnx.GraphProto(node=nodes)

    def renamed(name: str) -> str:
        return names.get(name, f"{prefix}{name}") if name else ""

    for part in nested(graph):
        for node in part.node:
            node.input[:] = [renamed(name) for name in node.input]
            node.output[:] = [renamed(name) for name in node.output]
            node.name = prefix + node.name
        for value in (*part.input, *part.output, *part.initializer):
            value.name = renamed(value.name)
        del part.value_info[:]
    return [*graph.node]


def _oldest_kernel(op_type: str) -> int:
    """Return the oldest opset at which the kernel of an operator gives the bits of the newest one."""
    if op_type in ROWS or op_type in CONTROL:
        return NEW_KERNELS.get(op_type, 0)
    return versions(op_type)[0].version


def _nodes(graph: onnx.GraphProto, outer: Path = ()) -> Iterator[tuple[Path, onnx.NodeProto]]:
    """Yield nodes with their places, each before those of its bodies."""
    for number, node in enumerate(graph.node):
        yield (*outer, number), node
        for place, attribute in enumerate(node.attribute):
            if attribute.HasField("g"):
                yield from _nodes(attribute.g, (*outer, number, place))
