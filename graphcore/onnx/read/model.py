"""The state of one read of a model: its parts, what it notes of itself, and how many nodes were read."""

from __future__ import annotations

import graphlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import pairwise

import onnx

from graphcore.arrays.external_data import Folder
from graphcore.arrays.resource_limits import USUAL, Limits, Watch, exceeded
from graphcore.errors import GraphcoreError, ModelError
from graphcore.onnx import notes
from graphcore.onnx.proto.limits import check_text
from graphcore.onnx.proto.tensors import with_attributes
from graphcore.onnx.proto.type_protos import read_type
from graphcore.onnx.proto.value_protos import Large
from graphcore.onnx.read.checks import check_node
from graphcore.onnx.read.statements import Statement, used, versions_of
from graphcore.onnx.schemas.runtime_operators import RuntimeOperators, installed
from graphcore.promotion import PromotionSystem, system
from graphcore.support.source_lines import Imported, Loaded, user_line
from graphcore.types.dtypes import DType, is_carried
from graphcore.types.tensor_types import Type

_STEP = 64
"""Nodes after which the time is looked at."""


class Model:
    """One model while it is read.

    proto: without its large tensors.
    large: their contents.
    folder: where external data may lie.
    implicit_casts: whether operands are promoted.
    notes: what the model and its values note of themselves.
    semantic: by name, the dtypes of values that are stored as others.
    origin: of the nodes where they keep the numbers of the kernels that the model was written for.
    runtime: gives what is asked for operators of other domains.
    limits, watch: what the model may take, and the time that it has.
    custom_ops: the declared ones whose Python functions may be called; None for all.
    sees_elements: whether each tensor is checked against a limit of elements.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        large: Large,
        folder: Folder,
        implicit_casts: bool,
        runtime: Callable[[], RuntimeOperators | None] = installed,
        limits: Limits = USUAL,
        watch: Watch | None = None,
        custom_ops: Set[str] | None = None,
    ) -> None:
        self.limits = limits
        self.watch = watch or Watch(limits)
        self.custom_ops = custom_ops
        self.sees_elements = limits.elements < USUAL.elements
        self.proto = proto
        self.large = large
        self.folder = folder
        self.implicit_casts = implicit_casts
        self.runtime = runtime
        self.versions = versions_of(proto.opset_import)
        self.functions = Functions(proto.functions)
        self.notes = _notes(proto)
        self.semantic = _semantic(self.notes)
        is_foreign = notes.PROMOTION not in self.notes or self.notes.get(notes.TARGET, "onnx") != "onnx"
        line = user_line() or ("", 0)
        self.origin = Imported(*line) if is_foreign else None
        self.loaded = None if is_foreign else Loaded(*line)
        self._count = 0
        self._types: dict[bytes, Type] = {}

    def type_of(self, proto: onnx.TypeProto) -> Type:
        """Return the type that a proto says. Most values are of a type that another one has too."""
        key = proto.SerializeToString()
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = read_type(proto)
        return found

    def count(self) -> None:
        """Count a node that is read: bodies are read again until their types settle, and nested ones more often.

        Raises `ResourceLimitError` for too many.
        """
        self._count += 1
        if self._count > 2 * self.limits.nodes:
            raise exceeded("nodes", self.limits.nodes, f"more than {2 * self.limits.nodes} nodes are to be read")
        if not self._count % _STEP:
            self.watch.look()

    def dtype(self, name: str, stored: DType) -> DType:
        """Return the dtype that the model notes for a value, if that is stored as `stored`; else `stored`."""
        noted = self.semantic.get(name)
        if noted is None or is_carried(noted):  # a file holds its digits or parts, along one more axis
            return stored
        return noted if noted.storage is stored else stored

    def promotion(self) -> PromotionSystem:
        """Return the system that the model notes; "max" where the note, which is untrusted, names none."""
        name, _, options = self.notes.get(notes.PROMOTION, "max").partition(" ")
        try:
            return system(name, **json.loads(options or "{}"))
        except (ValueError, TypeError, RecursionError, GraphcoreError):
            return system("max")


def _notes(proto: onnx.ModelProto) -> dict[str, str]:
    """Return what a model and its values note of themselves. Raises `ModelError` for notes that are no text."""
    graph = proto.graph
    values = {v.name: v.metadata_props for v in (*graph.input, *graph.output, *graph.initializer) if v.metadata_props}
    check_text((text for p in proto.metadata_props for text in (p.key, p.value)), "the model's metadata")
    said = {name: {p.key: p.value for p in properties} for name, properties in values.items()}
    return notes.with_value_notes(notes.read({p.key: p.value for p in proto.metadata_props}), said)


def _semantic(noted: Mapping[str, str]) -> dict[str, DType]:
    """Return the dtypes that notes have beyond what ONNX stores; none where the note, which is untrusted, is wrong."""
    try:
        dtypes = json.loads(noted.get(notes.DTYPES, "{}"))
        return {name: DType.of(dtype) for name, dtype in dtypes.items() if isinstance(dtype, str)}
    except (ValueError, AttributeError, RecursionError, GraphcoreError):
        return {}


# Functions that a model defines itself: found, counted before they are expanded, and instantiated.

_SHOWN = 20
"""Members of a ring that errors name."""
_LONGEST = 40
"""Characters of their names."""

_Key = tuple[str, str, str]


class Functions:
    """The functions of one model, by domain, name and overload."""

    def __init__(self, protos: Sequence[onnx.FunctionProto]) -> None:
        self._by_key: dict[_Key, onnx.FunctionProto] = {(_domain(p.domain), p.name, p.overload): p for p in protos}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def get(self, domain: str, op_type: str, overload: str) -> onnx.FunctionProto | None:
        return self._by_key.get((domain, op_type, overload))

    def check(self, nodes: Sequence[onnx.NodeProto], count: int, limits: Limits = USUAL) -> None:
        """Raise `ModelError` for functions that call themselves, `ResourceLimitError` for too many nodes in all.

        nodes: of the graph. count: of them and those in their bodies.
        """
        sizes: dict[_Key, int] = {}
        depths: dict[_Key, int] = {}
        try:
            calls = {key: {k for k in self._keys(p.node) if k in self._by_key} for key, p in self._by_key.items()}
            for key in graphlib.TopologicalSorter(calls).static_order():
                sizes[key] = min(limits.nodes + 1, sum(sizes.get(k, 1) for k in self._keys(self._by_key[key].node)))
                depths[key] = 1 + max((depths[k] for k in calls[key]), default=0)
        except graphlib.CycleError as error:
            names = " -> ".join(key[1] for key in error.args[1][:_SHOWN])
            raise ModelError(f"load: functions call themselves: {names}", help="ONNX has no recursion") from None
        deepest = max(depths.values(), default=0)
        limits.check("depth", deepest, f"the model's functions call each other {deepest} deep")
        if sizes:
            count = sum(sizes.get(key, 1) for key in self._keys(nodes))
        limits.check("nodes", count, "the model has more nodes once its functions are expanded")

    def check_calls(self, nodes: Sequence[onnx.NodeProto], versions: Mapping[str, int]) -> None:
        """Raise `ModelError` where a call gives an attribute that the nodes of its function cannot have: inference of
        the whole model puts it there. nodes: of the graph, after `check`.
        """
        if not self:
            return
        seen: set[tuple[object, ...]] = set()
        waiting = [(node, versions) for node in self._calls(nodes)]
        while waiting:
            call, outer = waiting.pop()
            key = _domain(call.domain), call.op_type, call.overload
            known = *key, *(a.SerializeToString() for a in call.attribute)
            function = self._by_key[key]
            if known in seen:
                continue
            seen.add(known)
            own = {**outer, **{_domain(o.domain): o.version for o in function.opset_import}}
            made = self.instance(function, call)
            if function.attribute or function.attribute_proto:
                for node in made:
                    check_node(node, own, f"{node.op_type} {node.name or next(iter(node.output), '')!r}")
            waiting += [(node, own) for node in self._calls(made)]

    def _calls(self, nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        """Yield the calls of functions among nodes and those of their bodies."""
        for node in nodes:
            if (_domain(node.domain), node.op_type, node.overload) in self._by_key:
                yield node
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from self._calls(attribute.g.node)

    def _keys(self, nodes: Sequence[onnx.NodeProto]) -> Iterator[_Key]:
        for node in nodes:
            yield _domain(node.domain), node.op_type, node.overload
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from self._keys(attribute.g.node)

    def instance(self, function: onnx.FunctionProto, call: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The nodes of a function with the attributes of a call in place of references to them."""
        given = {a.name: a for a in function.attribute_proto} | {a.name: a for a in call.attribute}
        return [with_attributes(node, given) for node in function.node]


def ordered(statements: Sequence[Statement], is_known: Callable[[str], bool]) -> Sequence[Statement]:
    """The nodes in an order they can run in: the one they have, unless one uses what a later one makes."""
    made: set[str] = set()
    for statement in statements:
        for name in used(statement):
            if name and name not in made and not is_known(name):
                return _sorted(statements, is_known)
        made.update(statement.outputs)
    return statements


def _sorted(statements: Sequence[Statement], is_known: Callable[[str], bool]) -> Sequence[Statement]:
    made: set[str] = set()
    late = False
    makers = {name: i for i, statement in enumerate(statements) for name in statement.outputs if name}
    for statement in statements:
        if any(name in makers and name not in made and not is_known(name) for name in used(statement)):
            late = True
            break
        made.update(statement.outputs)
    if not late:
        return statements
    sorter = graphlib.TopologicalSorter(
        {i: [makers[n] for n in used(statement) if n in makers] for i, statement in enumerate(statements)}
    )
    try:
        return [statements[i] for i in sorter.static_order()]
    except graphlib.CycleError as error:
        ring = error.args[1][:_SHOWN]  # each of which the next one needs
        shown = [_value_between(statements[i], statements[j]) for i, j in pairwise(ring)]
        operators = " -> ".join(statements[i].op_type[:_LONGEST] for i in ring)
        raise ModelError(
            f"load: nodes need each other: {operators}, by the values {', '.join(shown)}", help="a graph has no rings"
        ) from None


def _value_between(maker: Statement, user: Statement) -> str:
    """Return the name of a value that one node makes and another one uses."""
    wanted = set(used(user))
    return next((repr(name[:_LONGEST]) for name in maker.outputs if name in wanted), "")


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
