"""The state while a model is read: its parts, notes, functions, and the number of nodes read so far."""

from __future__ import annotations

import graphlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import pairwise

import onnx

from graphcore.arrays.resource_limits import USUAL, Limits, exceeded
from graphcore.errors import GraphcoreError
from graphcore.onnx import notes
from graphcore.onnx.proto.limits import check_text, invalid
from graphcore.onnx.proto.opened import Opened, default_names, domain_of, versions_of
from graphcore.onnx.proto.tensors import all_nodes, with_attributes
from graphcore.onnx.proto.type_protos import read_type
from graphcore.onnx.read.checks import check_node, place_of
from graphcore.onnx.read.statements import Statement, used_names
from graphcore.onnx.schemas.runtime_operators import RuntimeOperators, installed
from graphcore.promotion import PromotionSystem, system
from graphcore.support.source_lines import Imported, Loaded, user_line
from graphcore.types.dtypes import TRANSPORT, DType, has_storage_axis
from graphcore.types.tensor_types import Type

_STEP = 64
"""The time limit is checked after this many nodes."""


class ModelContext:
    """A model while it is read.

    proto: without its large tensors.
    large: contents of the large tensors.
    folder: the folder of external data.
    implicit_casts: True to promote operands.
    notes: of the model and its values.
    semantic: the dtypes, by name, of values that are stored in another dtype.
    line: the origin of its nodes; origin: None if they do not keep the numbers of the kernels that it was written for.
    runtime: returns the operators of the runtime, for operators of other domains.
    limits, watch: limits of resources and time.
    custom_ops: labels of custom ops whose Python functions may be called; None for all.
    checks_elements: True if the size of each tensor is limited.
    defaults: names of initializers that are the defaults of inputs; see `default_names`.
    keeps_fields: True if nodes keep the fields of the file that do not say what they compute.
    """

    def __init__(
        self,
        opened: Opened,
        implicit_casts: bool = False,
        runtime: Callable[[], RuntimeOperators | None] = installed,
        custom_ops: Set[str] | None = None,
        defaults: bool | Iterable[str] = False,
        keeps_fields: bool = False,
    ) -> None:
        self.proto = proto = opened.proto
        self.large, self.folder, self.limits, self.watch = opened.large, opened.folder, opened.limits, opened.watch
        self.keeps_fields = keeps_fields
        self.has_devices = bool(proto.configuration)
        self.custom_ops = custom_ops
        self.checks_elements = self.limits.elements < USUAL.elements
        self.implicit_casts = implicit_casts
        self.runtime = runtime
        self.versions = versions_of(proto.opset_import)
        self.functions = Functions(proto.functions)
        self.notes = _notes(proto)
        self.semantic = _semantic(self.notes)
        is_imported = notes.PROMOTION not in self.notes or self.notes.get(notes.TARGET, "onnx") != "onnx"
        line = user_line() or ("", 0)
        self.line = Imported(*line) if is_imported else Loaded(*line)
        self.origin = self.line if isinstance(self.line, Imported) else None
        self.defaults = default_names(proto, defaults)
        self._count = 0
        self._types: dict[bytes, Type] = {}

    def type_of(self, proto: onnx.TypeProto) -> Type:
        """Return the type of a proto, cached, since values share few types."""
        key = proto.SerializeToString()
        type_ = self._types.get(key)
        if type_ is None:
            type_ = self._types[key] = read_type(proto)
        return type_

    def count(self) -> None:
        """Count a node that is read. Bodies count each time, since they are read again until their types are stable.

        Raises `ResourceLimitError` for too many.
        """
        self._count += 1
        if self._count > 2 * self.limits.nodes:
            raise exceeded("nodes", self.limits.nodes, f"more than {2 * self.limits.nodes} nodes are to be read")
        if not self._count % _STEP:
            self.watch.look()

    def dtype(self, name: str, stored: DType) -> DType:
        """Return the noted dtype of a value, if `stored` is its storage dtype; else `stored`."""
        noted = self.semantic.get(name)
        if noted is None or has_storage_axis(noted):  # stored as digits or parts, along another axis
            return stored
        return noted if stored in (noted.storage, TRANSPORT.get(noted)) else stored

    def promotion(self) -> PromotionSystem:
        """Return the promotion system of the model's note; "max" if the note, which is untrusted, is invalid."""
        name, _, options = self.notes.get(notes.PROMOTION, "max").partition(" ")
        try:
            return system(name, **json.loads(options or "{}"))
        except (ValueError, TypeError, RecursionError, GraphcoreError):
            return system("max")


def _notes(proto: onnx.ModelProto) -> dict[str, str]:
    """Return the notes of a model and its values. Raises `ModelError` for notes that are not valid UTF-8."""
    graph = proto.graph
    values = {v.name: v.metadata_props for v in (*graph.input, *graph.output, *graph.initializer) if v.metadata_props}
    metadata = [p for properties in (proto.metadata_props, *values.values()) for p in properties]
    check_text((text for p in metadata for text in (p.key, p.value)), "the model's metadata")
    properties_by_name = {name: {p.key: p.value for p in properties} for name, properties in values.items()}
    return notes.with_value_notes(notes.read({p.key: p.value for p in proto.metadata_props}), properties_by_name)


def _semantic(noted: Mapping[str, str]) -> dict[str, DType]:
    """Return the noted dtypes that ONNX does not store; none if the note, which is untrusted, is invalid."""
    try:
        dtypes = json.loads(noted.get(notes.DTYPES, "{}"))
        return {name: DType.of(dtype) for name, dtype in dtypes.items() if isinstance(dtype, str)}
    except (ValueError, AttributeError, RecursionError, GraphcoreError):
        return {}


# The functions of a model: looked up, counted before they are expanded, and instantiated.

_MAX_NODES_IN_ERRORS = 20
"""Nodes of a cycle that are shown in errors."""
_MAX_NAME_LENGTH = 40
"""Characters of their names that are shown."""

_Key = tuple[str, str, str]


def _key(node: onnx.NodeProto) -> _Key:
    return domain_of(node.domain), node.op_type, node.overload


class Functions:
    """The functions of one model, by domain, name and overload."""

    def __init__(self, protos: Sequence[onnx.FunctionProto]) -> None:
        self._by_key: dict[_Key, onnx.FunctionProto] = {(domain_of(p.domain), p.name, p.overload): p for p in protos}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def get(self, domain: str, op_type: str, overload: str) -> onnx.FunctionProto | None:
        return self._by_key.get((domain, op_type, overload))

    def check(self, nodes: Sequence[onnx.NodeProto], count: int, limits: Limits = USUAL) -> None:
        """Raise `ModelError` for recursive functions, `ResourceLimitError` for too many nodes in total.

        nodes: of the graph. count: their number, with those in bodies.
        """
        sizes: dict[_Key, int] = {}
        depths: dict[_Key, int] = {}
        try:
            calls = {key: {k for k in self._keys(p.node) if k in self._by_key} for key, p in self._by_key.items()}
            for key in graphlib.TopologicalSorter(calls).static_order():
                sizes[key] = min(limits.nodes + 1, sum(sizes.get(k, 1) for k in self._keys(self._by_key[key].node)))
                depths[key] = 1 + max((depths[k] for k in calls[key]), default=0)
        except graphlib.CycleError as error:
            names = " -> ".join(key[1] for key in error.args[1][:_MAX_NODES_IN_ERRORS])
            raise invalid(f"functions call themselves: {names}", help="ONNX has no recursion") from None
        max_depth = max(depths.values(), default=0)
        limits.check("depth", max_depth, f"the model's functions call each other {max_depth} deep")
        if sizes:
            count = sum(sizes.get(key, 1) for key in self._keys(nodes))
        limits.check("nodes", count, "the model has more nodes once its functions are expanded")

    def check_calls(self, nodes: Sequence[onnx.NodeProto], versions: Mapping[str, int]) -> None:
        """Raise `ModelError` for a call with an attribute that nodes of its function cannot have: ONNX's inference
        substitutes it there. nodes: of the graph, after `check`.
        """
        if not self:
            return
        seen: set[tuple[object, ...]] = set()
        waiting = [(node, versions) for node in self._calls(nodes)]
        while waiting:
            call, outer = waiting.pop()
            key = _key(call)
            signature = *key, *(a.SerializeToString() for a in call.attribute)
            function = self._by_key[key]
            if signature in seen:
                continue
            seen.add(signature)
            function_versions = {**outer, **{domain_of(o.domain): o.version for o in function.opset_import}}
            instance = self.instance(function, call)
            if function.attribute or function.attribute_proto:
                for node in instance:
                    check_node(node, function_versions, place_of(node))
            waiting += [(node, function_versions) for node in self._calls(instance)]

    def _calls(self, nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        """Yield the calls of functions among nodes and in their bodies."""
        return (node for node in all_nodes(nodes) if _key(node) in self._by_key)

    @staticmethod
    def _keys(nodes: Sequence[onnx.NodeProto]) -> Iterator[_Key]:
        return map(_key, all_nodes(nodes))

    def instance(self, function: onnx.FunctionProto, call: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return the nodes of a function, with the attributes of a call substituted."""
        attributes = {a.name: a for a in function.attribute_proto} | {a.name: a for a in call.attribute}
        return [with_attributes(node, attributes) for node in function.node]


def sort_nodes(statements: Sequence[Statement], is_known: Callable[[str], bool]) -> Sequence[Statement]:
    """Return the nodes in topological order: the given order, if it is one."""
    defined: set[str] = set()
    makers: dict[str, int] = {}
    for statement in statements:
        for name in used_names(statement):
            if name and name not in defined and not is_known(name):
                makers = makers or {name: i for i, each in enumerate(statements) for name in each.outputs if name}
                if name in makers:
                    return _sort_topologically(statements, makers)
        defined.update(statement.outputs)
    return statements


def _sort_topologically(statements: Sequence[Statement], makers: Mapping[str, int]) -> Sequence[Statement]:
    sorter = graphlib.TopologicalSorter(
        {i: [makers[n] for n in used_names(statement) if n in makers] for i, statement in enumerate(statements)}
    )
    try:
        return [statements[i] for i in sorter.static_order()]
    except graphlib.CycleError as error:
        cycle = error.args[1][:_MAX_NODES_IN_ERRORS]  # each node uses the one before it
        values = [_value_between(statements[i], statements[j]) for i, j in pairwise(cycle)]
        operators = " -> ".join(statements[i].op_type[:_MAX_NAME_LENGTH] for i in cycle)
        raise invalid(
            f"nodes depend on each other: {operators}, by the values {', '.join(values)}",
            help="a graph must not have cycles",
        ) from None


def _value_between(maker: Statement, user: Statement) -> str:
    """Return the name of a result of one node that another node uses."""
    needed = set(used_names(user))
    return next((repr(name[:_MAX_NAME_LENGTH]) for name in maker.outputs if name in needed), "")
