"""The bodies of If, Loop, Scan and SequenceMap: read with the types that their node gives them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import onnx

from graphcore.custom_ops.custom_op import lookup
from graphcore.errors import GraphcoreError, ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import Attributes
from graphcore.ir.symbol import Captured, Node, Symbol
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.onnx.proto.limits import check_size, check_trips
from graphcore.onnx.proto.type_protos import join_types
from graphcore.onnx.read.model import Model
from graphcore.onnx.read.statements import Body, Statement
from graphcore.onnx.schemas.node_inference import inferred
from graphcore.onnx.schemas.other_domains import typed
from graphcore.operators import BY_TYPES
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import (
    ForeignType,
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    Type,
    _shape,
    tensor_type,
)

ReadBody: TypeAlias = Callable[[str, Body, Sequence[Type]], Graph]
"""(name, what the file has, types of its inputs) -> the body."""

_COUNTER = tensor_type(DType.int64, _shape([]))
_CONDITION = tensor_type(DType.bool, _shape([]))


def read(
    read_body: ReadBody,
    op_type: str,
    protos: Mapping[str, Body],
    inputs: Sequence[Symbol | None],
    attributes: Mapping[str, Any],
    outputs: int | None,
    opset: int,
    place: object,
) -> tuple[list[Type] | None, dict[str, Graph]]:
    """Return the types of a node's results, where its bodies tell them, and its bodies. Raises `ModelError`.

    outputs: how many results there are; None is as many as the bodies give. opset: the version of ONNX's own domain.
    """
    if op_type == "If" and {"then_branch", "else_branch"} <= protos.keys():
        made = {name: read_body(name, proto, []) for name, proto in protos.items()}
        branches = [[s.type for s in graph.outputs] for graph in made.values()]
        if len({len(types) for types in branches}) != 1 or outputs not in (None, len(branches[0])):
            raise ModelError(
                f"load: {place}: its branches give other numbers of results", help="export the model again"
            )
        return [_agreed(pair, place) for pair in zip(*branches, strict=True)], made
    if op_type == "Loop" and "body" in protos:
        return _loop(read_body, protos["body"], inputs, outputs, place)
    if op_type == "Scan" and "body" in protos and opset >= 9:
        return _scan(read_body, protos["body"], inputs, attributes, outputs, place)
    if op_type == "SequenceMap" and "body" in protos:
        given = [_element(s.type) if s is not None else ForeignType() for s in inputs]
        body = read_body("body", protos["body"], given)
        return [SequenceType(s.type) for s in body.outputs], {"body": body}
    return None, {name: read_body(name, read, [ForeignType()] * len(read.proto.input)) for name, read in protos.items()}


def _agreed(types: Sequence[Type], place: object) -> Type:
    made = join_types(_meant(types))
    if isinstance(made, ForeignType) and not any(isinstance(t, ForeignType) for t in types):
        raise ModelError(
            f"load: {place}: its branches give {' and '.join(map(str, types))}", help="cast one of them in the model"
        )
    return made


def _meant(types: Sequence[Type]) -> Sequence[Type]:
    """The types, those that ONNX stores alike of the one dtype that is not what it is stored as: index, not uint64."""
    dtypes = {t.dtype for t in types if isinstance(t, TensorType)}
    meant = [d for d in dtypes if d.storage is not d]
    if len(meant) != 1 or dtypes != {meant[0], meant[0].storage}:
        return types
    return [tensor_type(meant[0], t.shape) if isinstance(t, TensorType) else t for t in types]


def _loop(
    read_body: ReadBody, proto: Body, inputs: Sequence[Symbol | None], outputs: int | None, place: object
) -> tuple[list[Type], dict[str, Graph]]:
    carried: list[Type] = [s.type if s is not None else ForeignType() for s in inputs[2:]]
    body, given = _settled(read_body, proto, [_COUNTER, _CONDITION], carried, 1, place)
    goes_on = body.outputs[0].type
    if isinstance(goes_on, TensorType) and goes_on.dtype is not DType.bool:
        raise ModelError(f"load: {place}: its body gives {goes_on} as the condition", help="give a bool first")
    length = check_trips(inputs[0], inputs[1], body, place)
    scanned = [_stacked(s.type, 0, length) for s in body.outputs[1 + len(carried) :]]
    if outputs is not None and outputs > len(given) + len(scanned):
        raise ModelError(f"load: {place} has more results than its body", help="export the model again")
    results = [_filled(a, b.type) for a, b in zip(given, body.outputs[1:], strict=False)]
    return [*results, *scanned][:outputs], {"body": body}


def _filled(carried: Type, result: Type) -> Type:
    """Return what a Loop gives of what it carries: no optional where each turn fills it, as ONNX has it."""
    if isinstance(carried, OptionalType) and not isinstance(result, (OptionalType, ForeignType)):
        return carried.element
    return carried


def _scan(
    read_body: ReadBody,
    proto: Body,
    inputs: Sequence[Symbol | None],
    attributes: Mapping[str, Any],
    outputs: int | None,
    place: object,
) -> tuple[list[Type], dict[str, Graph]]:
    count = attributes.get("num_scan_inputs")
    if not isinstance(count, int) or not 1 <= count <= len(inputs):
        raise ModelError(f"load: {place} scans {count} of {len(inputs)} inputs", help="export the model again")
    states = len(inputs) - count
    axes = attributes.get("scan_input_axes") or [0] * count
    carried: list[Type] = [s.type if s is not None else ForeignType() for s in inputs[:states]]
    scanned = [_slice(s, axis, place) for s, axis in zip(inputs[states:], axes, strict=False)]
    body, given = _settled(read_body, proto, [], carried, 0, place, after=scanned)
    ends = attributes.get("scan_output_axes") or [0] * len(body.outputs[states:])
    length = next(
        (d for s, axis in zip(inputs[states:], axes, strict=False) if (d := _length(s, axis)) is not None),
        Dim.dynamic(),
    )
    stacked = [_stacked(s.type, axis, length) for s, axis in zip(body.outputs[states:], ends, strict=False)]
    if outputs is not None and outputs > len(given) + len(stacked):
        raise ModelError(f"load: {place} has more results than its body", help="export the model again")
    return [*given, *stacked][:outputs], {"body": body}


def _settled(
    read_body: ReadBody,
    proto: Body,
    front: list[Type],
    carried: list[Type],
    skip: int,
    place: object,
    after: Sequence[Type] = (),
) -> tuple[Graph, list[Type]]:
    """The body, read with types of what it carries that hold for every turn, and those types."""
    while True:
        body = read_body("body", proto, [*front, *carried, *after])
        if len(body.outputs) < skip:
            raise ModelError(f"load: {place}: its body gives no condition", help="export the model again")
        results = [s.type for s in body.outputs[skip : skip + len(carried)]]
        if len(results) != len(carried):
            raise ModelError(f"load: {place}: its body gives too few results", help="export the model again")
        general = [_generalised(a, b, place) for a, b in zip(carried, results, strict=True)]
        if all(a == b for a, b in zip(carried, general, strict=True)):
            return body, general
        carried = general


def _generalised(before: Type, after: Type, place: object) -> Type:
    if isinstance(before, ForeignType) and not before.onnx:
        return after
    return before if isinstance(after, ForeignType) else _agreed((before, after), place)


def _slice(symbol: Symbol | None, axis: int, place: object) -> Type:
    if symbol is None or not isinstance(symbol.type, TensorType):
        return ForeignType()
    shape = symbol.type.shape
    if not shape.is_ranked:
        return tensor_type(symbol.type.dtype, Shape.unknown())
    if not -shape.rank <= axis < shape.rank:
        raise ModelError(
            f"load: {place}: there is no axis {axis} to scan",
            operands={"scanned": symbol},
            help="name an axis that there is",
        )
    dims = list(shape)
    del dims[axis]
    return tensor_type(symbol.type.dtype, _shape(dims))


def _length(symbol: Symbol | None, axis: int) -> Dim | None:
    """Return the length of what is scanned, where it is known."""
    if symbol is None or not isinstance(symbol.type, TensorType) or not symbol.type.shape.is_ranked:
        return None
    found = symbol.type.shape[axis]
    return None if found.is_dynamic else found


def _stacked(type_: Type, axis: int, length: Dim) -> Type:
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    dims = list(type_.shape)
    dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, length)
    return tensor_type(type_.dtype, _shape(dims))


def _element(type_: Type) -> Type:
    return type_.element if isinstance(type_, SequenceType) else type_


# The types of what the nodes of a model give: by rules, as ONNX infers, as they are declared, and as it tells.

_MAX_REMEMBERED = 4096
_remembered: dict[Hashable, list[Type]] = {}
"""The types of results by the signature of a node and the types of its operands."""


class ResultTypes:
    """The types of what the nodes of one reader give. told: what the model says of its values, by name."""

    def __init__(self, model: Model, versions: Mapping[str, int], told: Mapping[str, onnx.TypeProto]) -> None:
        self._model = model
        self._versions = versions
        self._told = told
        self._sizes = ShapeValues()
        self._read: dict[str, Type] = {}

    def _type(self, name: str) -> Type | None:
        """Return the type that the model tells of a value; None where it tells none."""
        found = self._read.get(name)
        if found is None and name in self._told:
            found = self._read[name] = self._model.type_of(self._told[name])
        return found

    def of(
        self,
        proto: onnx.NodeProto,
        schema: onnx.defs.OpSchema | None,
        inputs: Sequence[Symbol | None],
        attributes: Mapping[str, Any],
        place: object,
    ) -> list[Type]:
        """The types of results, with what the model tells of them where nothing else does. Raises `ModelError` where
        operands do not fit."""
        told = [self._type(name) for name in proto.output]
        if schema is None:
            if told and all(t is not None and not isinstance(t, ForeignType) and _is_ranked(t) for t in told):
                return told  # type: ignore[return-value]
            said = [ForeignType() if t is None else t for t in told]
            return typed(proto, inputs, self._versions, self._model.runtime, said)
        try:
            return inferred(proto, schema, inputs, self._versions, told, place, attributes, self._sizes)
        except ModelError as error:
            raise _for_want_of(inputs, error, place) or error from None

    def remembered(
        self, statement: Statement, schema: onnx.defs.OpSchema, inputs: Sequence[Symbol | None], attributes: Attributes
    ) -> list[Type]:
        """The types of a node; those that follow from types are found once.

        Raises `ModelError` where operands do not fit, `ResourceLimitError` for a tensor that is too large.
        """
        key: Hashable = None
        if not schema.domain and statement.op_type in BY_TYPES:
            told = [self._type(name) for name in statement.outputs]
            key = statement.key, *told, *[None if s is None else s.type for s in inputs]
            found = _remembered.get(key)
            if found is not None:
                return found
        types = self.of(statement.proto, schema, inputs, attributes, statement)
        for type_ in types:
            check_size(type_, statement)
        if key is not None:
            if len(_remembered) >= _MAX_REMEMBERED:
                _remembered.clear()
            _remembered[key] = types
        return types


def declared(
    domain: str, proto: onnx.NodeProto, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], place: object
) -> list[Type] | None:
    """The types of a node's results as `gc.custom_op` declares them; None where it does not. Raises `ModelError`."""
    op = lookup(domain, proto.op_type)
    if op is None:
        return None
    try:
        types = op.read(inputs, attributes, len(proto.output), f"{proto.op_type}_{next(iter(proto.output), '')}_")
    except GraphcoreError as error:
        types = None  # the runtime's own operator in a form that is not declared
        if op.kernel is None:
            raise ModelError(
                f"load: {place}: {error.summary}",
                operands={f"input {i}": s for i, s in enumerate(inputs) if s is not None},
                help=error.help or f"declare {op.label} as the model has it",
            ) from error
    if types is None and op.unsafe is not None and (why := op.unsafe(inputs)):
        raise ModelError(f"load: {place}: {why}", help="write the model in the form that ops.microsoft has")
    return types


def is_open(type_: Type) -> bool:
    """Return whether dims of a tensor are not known."""
    return isinstance(type_, TensorType) and not (type_.shape.is_ranked and not any(d.is_dynamic for d in type_.shape))


def _is_ranked(type_: Type) -> bool:
    return not isinstance(type_, TensorType) or type_.shape.is_ranked


def _for_want_of(inputs: Sequence[Symbol | None], error: ModelError, place: object) -> ModelError | None:
    """Return what says which operator has to be declared, where that is why a node cannot be typed."""
    for symbol in inputs:
        maker = None if symbol is None else _undeclared(symbol)
        if maker is not None:
            name = f"{maker.domain}::{maker.op_type}"
            return ModelError(
                f"load: {place}: an operand's type is not known: neither the model nor a declaration nor "
                f"the runtime tells what {name} gives",
                operands={"operand": symbol},
                help=f"declare it: @gc.custom_op({name!r}); write the type into the model's value_info; or load it "
                "with the library that has it: gc.InferenceSession(custom_op_libraries=[path]).load(...)",
            )
    return None


def _undeclared(symbol: Symbol) -> Node | None:
    """Return the undeclared node for whose sake the type of a value is not known; None where there is no such node."""
    seen: set[int] = set()
    waiting = [symbol]
    while waiting:
        found = waiting.pop()
        while isinstance(found.producer, Captured):
            found = found.producer.symbol
        maker = found.producer
        if found.type != ForeignType() or not isinstance(maker, Node) or id(maker) in seen:
            continue
        seen.add(id(maker))
        if maker.domain and lookup(maker.domain, maker.op_type) is None:
            return maker
        waiting += [s for s in maker.inputs if s is not None]
    return None
