"""The types of what the nodes of a model give: by rules, as ONNX infers, as they are declared, and as it tells."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import onnx

from graphcore.custom_ops.custom_op import lookup
from graphcore.errors import GraphcoreError, ModelError
from graphcore.ir.state.closed import Attributes
from graphcore.ir.symbol import Captured, Node, Symbol
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.onnx.proto.limits import check_size
from graphcore.onnx.read.model import Model
from graphcore.onnx.read.statements import Statement
from graphcore.onnx.schemas.node_inference import inferred
from graphcore.onnx.schemas.other_domains import typed
from graphcore.operators import BY_TYPES
from graphcore.types.tensor_types import ForeignType, TensorType, Type

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
