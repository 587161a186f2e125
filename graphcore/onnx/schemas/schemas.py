"""ONNX's schemas: which operands an operator takes, and what its results are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from graphcore.build import operands
from graphcore.errors import DTypeError, ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, OptionalType, SequenceType, Shape, TensorType, Type, tensor_type

_ELEMENTS = {
    DType.float32: "float",
    DType.float64: "double",
    DType.float8_e4m3fn: "float8e4m3fn",
    DType.float8_e5m2: "float8e5m2",
    DType.float8_e4m3fnuz: "float8e4m3fnuz",
    DType.float8_e5m2fnuz: "float8e5m2fnuz",
    DType.float8_e8m0: "float8e8m0",
    DType.float4_e2m1: "float4e2m1",
}
"""The dtypes that have another name in schemas."""

_BY_ELEMENT = {name: dtype for dtype, name in _ELEMENTS.items()}

_SHOWN = 100
"""Characters of a name that errors show."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An operand or result: its name, its type or type variable, and which types that may be."""

    name: str
    type: str
    allowed: frozenset[str]
    is_optional: bool
    is_variadic: bool
    is_homogeneous: bool


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as its schema has it, read once."""

    name: str
    version: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    fewest: int
    most: int
    fewest_results: int
    most_results: int

    def input(self, position: int) -> Parameter | None:
        """The parameter that the operand at a position is for."""
        if position < len(self.inputs):
            return self.inputs[position]
        return self.inputs[-1] if self.inputs and self.inputs[-1].is_variadic else None

    def output(self, position: int) -> Parameter | None:
        if position < len(self.outputs):
            return self.outputs[position]
        return self.outputs[-1] if self.outputs and self.outputs[-1].is_variadic else None


@functools.lru_cache(8192)  # operators that models name may be anything
def schema_of(op_type: str, domain: str, version: int) -> onnx.defs.OpSchema | None:
    """The schema in force at a version of a domain, None where there is none."""
    if not 0 < version < 1 << 31:
        return None
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


@functools.cache
def _required(op_type: str, domain: str, version: int) -> tuple[str, ...]:
    schema = onnx.defs.get_schema(op_type, version, domain)
    return tuple(a.name for a in schema.attributes.values() if a.required)


def required_attributes(schema: onnx.defs.OpSchema) -> tuple[str, ...]:
    """The names of the attributes that a node must have."""
    return _required(schema.name, schema.domain, schema.since_version)


_operators: dict[tuple[str, str, int], Operator] = {}


def operator(schema: onnx.defs.OpSchema) -> Operator:
    """Return what the schema says."""
    key = (schema.name, schema.domain, schema.since_version)
    found = _operators.get(key)
    if found is None:
        found = _operators[key] = operator_of(schema, lambda p: (p.type_str, p.option.name, p.is_homogeneous))
    return found


def operator_of(schema: Any, formal: Callable[[Any], tuple[str, str, bool]]) -> Operator:
    """Return what a schema says, of onnx or of onnxruntime, whose parameters call things otherwise.

    formal: gives the type, the option ("Single", "Optional", "Variadic") and whether all are of one type.
    """
    allowed = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}

    def parameter(given: Any) -> Parameter:
        type_, option, is_homogeneous = formal(given)
        own = allowed.get(type_, frozenset({type_}))
        return Parameter(given.name, type_, own, option == "Optional", option == "Variadic", is_homogeneous)

    return Operator(
        schema.name,
        schema.since_version,
        tuple(map(parameter, schema.inputs)),
        tuple(map(parameter, schema.outputs)),
        schema.min_input,
        schema.max_input,
        schema.min_output,
        schema.max_output,
    )


_MOST_APPROVED = 10_000
_approved: set[tuple[object, ...]] = set()
"""Operators, by their identity, and dtypes of operands that were found to go together: most nodes are like others."""


def checked_operands(
    graph: Graph, op: Operator, inputs: Sequence[Symbol | None], implicit_casts: bool, place: object
) -> list[Symbol | None]:
    """The operands, if the operator takes them. Raises `ModelError`.

    implicit_casts: those that should be of one dtype and are not are cast to what the graph's promotion system says.
    """
    types = [None if s is None else s.type for s in inputs]
    key = (id(op), *(t.dtype for t in types if type(t) is TensorType))
    if len(key) == len(inputs) + 1 and key in _approved:
        return list(inputs)
    check_arity(op, [s is not None for s in inputs], place)
    checked = list(inputs)
    groups: dict[str, list[int]] = {}
    for position, symbol in enumerate(checked):
        parameter = op.input(position)
        if symbol is not None and parameter is not None and (parameter.is_homogeneous or not parameter.is_variadic):
            groups.setdefault(parameter.type, []).append(position)
    for positions in groups.values():
        found = [s for i in positions if (s := checked[i]) is not None]
        if len(found) > 1 and implicit_casts and _mixes(found):
            roles = {_role(op, i): checked[i] for i in positions}
            made, _ = operands.promote(str(place), "join", roles)
            for position, symbol in zip(positions, made, strict=True):
                checked[position] = symbol
    for positions in groups.values():
        _check(op, positions, checked, place)
    if len(key) == len(inputs) + 1 and not implicit_casts and len(_approved) < _MOST_APPROVED:
        _approved.add(key)
    return checked


def check_arity(op: Operator, given: Sequence[bool], place: object) -> None:
    """Raise `ModelError` for too few or too many operands, and for one left out that is needed.

    given: for each operand that a node lists whether it is there.
    """
    if not op.fewest <= len(given) <= op.most:
        raise ModelError(
            f"load: {place} has {len(given)} operands, and {count_of(op)} are taken", help="write the model again"
        )
    for position, is_there in enumerate(given):
        parameter = op.input(position)
        if is_there or parameter is None or parameter.is_optional:
            continue
        if not parameter.is_variadic or any(given[position:]):  # kernels read one that is left out before others
            raise ModelError(f"load: {place} lacks the operand {parameter.name!r}", help="write the model again")


def _mixes(symbols: Sequence[Symbol]) -> bool:
    types = [s.type for s in symbols]
    return all(isinstance(t, TensorType) for t in types) and len({t.dtype for t in types}) > 1


def _check(op: Operator, positions: Sequence[int], symbols: Sequence[Symbol | None], place: object) -> None:
    first: Symbol | None = None
    for position in positions:
        symbol = symbols[position]
        parameter = op.input(position)
        if symbol is None or parameter is None:
            continue
        if isinstance(symbol.type, ForeignType) and not symbol.type.name.startswith("tensor("):
            continue
        if parameter.allowed and element(symbol.type) not in parameter.allowed:
            shown = {_role(op, i): s for i in range(len(symbols)) if (s := symbols[i]) is not None}
            raise ModelError(
                f"load: {place}: {parameter.name} is {_shown(symbol.type)}, which {op.name} of opset {op.version} "
                "does not take",
                operands=shown,
                help="cast it in the model, or write it with a newer opset",
            )
        if first is not None and element(first.type) != element(symbol.type):
            raise ModelError(
                f"load: {place} mixes {_shown(first.type)} and {_shown(symbol.type)}",
                operands={_role(op, i): s for i in positions if (s := symbols[i]) is not None},
                help="Graph.load(..., implicit_casts=True) inserts the casts that promotion says",
            )
        if first is None:
            first = symbol


def _shown(type_: Type) -> str:
    return str(type_.dtype) if isinstance(type_, TensorType) else str(type_)


def _role(op: Operator, position: int) -> str:
    parameter = op.input(position)
    if parameter is None:
        return f"input {position}"
    return f"{parameter.name}[{position}]" if parameter.is_variadic else parameter.name


def count_of(op: Operator) -> str:
    """Return how many operands an operator takes, in words."""
    if op.most > 1 << 30:
        return f"at least {op.fewest}"
    return str(op.fewest) if op.fewest == op.most else f"{op.fewest} to {op.most}"


def element(type_: Type) -> str:
    """The type as schemas write it: `tensor(float)`, `seq(tensor(int64))`."""
    if isinstance(type_, TensorType):
        stored = type_.dtype.storage
        return f"tensor({_ELEMENTS.get(stored, stored.name)})"
    if isinstance(type_, SequenceType):
        return f"seq({element(type_.element)})"
    if isinstance(type_, OptionalType):
        return f"optional({element(type_.element)})"
    return type_.name


def by_schema(op: Operator, position: int, bound: Mapping[str, Type]) -> Type:
    """Return what the schema alone tells: the dtype of operands of the same type variable, or the only one there is."""
    parameter = op.output(position)
    if parameter is None:
        return ForeignType()
    same = bound.get(parameter.type)
    if isinstance(same, TensorType):
        return tensor_type(same.dtype, Shape.unknown())
    if same is not None:
        return same
    if len(parameter.allowed) == 1:
        return _of_element(next(iter(parameter.allowed)))
    return ForeignType()


def _of_element(text: str) -> Type:
    for prefix, made in (("seq(", SequenceType), ("optional(", OptionalType)):
        if text.startswith(prefix):
            return made(_of_element(text[len(prefix) : -1]))
    name = text.removeprefix("tensor(").removesuffix(")")
    try:
        return tensor_type(_BY_ELEMENT.get(name) or DType.of(name), Shape.unknown())
    except DTypeError:
        return ForeignType()
