"""ONNX's schemas: the operands that an operator accepts, and its results."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from graphcore.build import operands
from graphcore.errors import DTypeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.onnx.proto.limits import invalid
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, Shape, TensorType, Type, tensor_type

_ELEMENTS = {
    DType.float32: "float",
    DType.float64: "double",
    DType.float8_e4m3fn: "float8e4m3fn",
    DType.float8_e5m2: "float8e5m2",
    DType.float8_e4m3fnuz: "float8e4m3fnuz",
    DType.float8_e5m2fnuz: "float8e5m2fnuz",
    DType.float8_e8m0: "float8e8m0",
    DType.float4_e2m1: "float4e2m1",
    DType.float6_e2m3fn: "float6e2m3",
    DType.float6_e3m2fn: "float6e3m2",
}
"""The dtypes that have another name in schemas."""

BY_ELEMENT = {name: dtype for dtype, name in _ELEMENTS.items()}


@dataclass(frozen=True, slots=True)
class Parameter:
    """An operand or result: its name, its type or type variable, and the allowed types."""

    name: str
    type: str
    allowed: frozenset[str]
    is_optional: bool
    is_variadic: bool
    is_homogeneous: bool


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """An operator's schema, read once: it equals only itself."""

    name: str
    version: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int

    def input(self, position: int) -> Parameter | None:
        """Return the parameter of the operand at a position."""
        if position < len(self.inputs):
            return self.inputs[position]
        return self.inputs[-1] if self.inputs and self.inputs[-1].is_variadic else None

    def output(self, position: int) -> Parameter | None:
        if position < len(self.outputs):
            return self.outputs[position]
        return self.outputs[-1] if self.outputs and self.outputs[-1].is_variadic else None


@functools.lru_cache(8192)  # bounded: models can name any operator
def schema_of(op_type: str, domain: str, version: int) -> onnx.defs.OpSchema | None:
    """Return the schema in force at a version of a domain; None if there is none."""
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
    """Return the names of the attributes that a node must have."""
    return _required(schema.name, schema.domain, schema.since_version)


_operators: dict[tuple[str, str, int], Operator] = {}


def operator(schema: onnx.defs.OpSchema) -> Operator:
    """Return the cached operator of a schema."""
    key = (schema.name, schema.domain, schema.since_version)
    op = _operators.get(key)
    if op is None:
        op = _operators[key] = operator_of(schema, lambda p: (p.type_str, p.option.name, p.is_homogeneous))
    return op


def operator_of(schema: Any, formal: Callable[[Any], tuple[str, str, bool]]) -> Operator:
    """Return the operator of a schema of onnx or of onnxruntime, whose parameters have different attributes.

    formal: returns the type of a parameter, its option ("Single", "Optional", "Variadic"), and is_homogeneous.
    """
    allowed = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}

    def parameter(formal_parameter: Any) -> Parameter:
        type_, option, is_homogeneous = formal(formal_parameter)
        types = allowed.get(type_, frozenset({type_}))
        return Parameter(
            formal_parameter.name, type_, types, option == "Optional", option == "Variadic", is_homogeneous
        )

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


MICROSOFT = "com.microsoft"


@functools.cache
def recorded() -> Mapping[str, Any]:
    """Return the schemas of onnxruntime's operators that are called by schema, by name: tools/contrib_schemas.py."""
    rows: dict[str, Any] = json.loads(Path(__file__).with_name("microsoft.json").read_text(encoding="utf-8"))
    return rows


@functools.cache
def recorded_operator(domain: str, op_type: str) -> Operator | None:
    """Return an operator of `recorded`; None for others."""
    row = recorded().get(op_type) if domain == MICROSOFT else None
    if row is None:
        return None

    def parameter(text: str) -> Parameter:
        label, _, type_ = text.partition(": ")
        allowed = frozenset(t if "(" in t else f"tensor({t})" for t in row["types"].get(type_, type_).split())
        name = type_ if type_ in row["types"] else f"tensor({type_})"
        kinds = label.endswith("?"), label.startswith("*"), not label.startswith("**")
        return Parameter(label.strip("*?"), name, allowed, *kinds)

    inputs, outputs = (tuple(map(parameter, row[key])) for key in ("inputs", "outputs"))
    counts = []
    for formals in (inputs, outputs):
        least = max((i for i, p in enumerate(formals, 1) if not p.is_optional), default=0)
        counts += [least, (1 << 31) - 1 if formals[-1].is_variadic else len(formals)]
    return Operator(op_type, 1, inputs, outputs, *counts)


_MAX_APPROVED = 10_000
_approved: set[tuple[object, ...]] = set()
"""Operators with dtypes of operands that passed the check: a model repeats the same combinations."""


def check_operands(
    graph: Graph, op: Operator, inputs: Sequence[Symbol | None], implicit_casts: bool, place: object
) -> list[Symbol | None]:
    """Return the operands if the operator accepts them. Raises `ModelError`.

    implicit_casts: promote operands of one type variable to one dtype by the graph's promotion system.
    """
    key = (op, *[t.dtype for s in inputs if s is not None and type(t := s.type) is TensorType])
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
        group = [s for i in positions if (s := checked[i]) is not None]
        if len(group) > 1 and implicit_casts and _mixes(group):
            roles = {_role(op, i): checked[i] for i in positions}
            promoted, _ = operands.promote(str(place), "join", roles)
            for position, symbol in zip(positions, promoted, strict=True):
                checked[position] = symbol
    for positions in groups.values():
        _check(op, positions, checked, place)
    if len(key) == len(inputs) + 1 and not implicit_casts and len(_approved) < _MAX_APPROVED:
        _approved.add(key)
    return checked


def check_arity(op: Operator, is_present: Sequence[bool], place: object) -> None:
    """Raise `ModelError` for too few or too many operands, and for a required one that is left out.

    is_present: for each operand that the node lists, False if its name is empty.
    """
    if not op.min_inputs <= len(is_present) <= op.max_inputs:
        raise invalid(f"{place} has {len(is_present)} operands, but needs {count_text(op.min_inputs, op.max_inputs)}")
    for position, is_given in enumerate(is_present):
        parameter = op.input(position)
        if is_given or parameter is None or parameter.is_optional:
            continue
        if not parameter.is_variadic or any(is_present[position:]):  # kernels read one left out before others
            raise invalid(f"{place} lacks the required operand {parameter.name!r}")


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
        if isinstance(symbol.type, OpaqueType) and not symbol.type.name.startswith("tensor("):
            continue
        if parameter.allowed and element(symbol.type) not in parameter.allowed:
            by_role = {_role(op, i): s for i in range(len(symbols)) if (s := symbols[i]) is not None}
            raise invalid(
                f"{place}: {parameter.name} is {type_name(symbol.type)}, which {op.name} of opset {op.version} "
                "does not take",
                operands=by_role,
                help="cast it in the model, or write it with a newer opset",
            )
        if first is not None and element(first.type) != element(symbol.type):
            raise invalid(
                f"{place} mixes {type_name(first.type)} and {type_name(symbol.type)}",
                operands={_role(op, i): s for i in positions if (s := symbols[i]) is not None},
                help="Graph.load(..., implicit_casts=True) inserts casts by the promotion system",
            )
        if first is None:
            first = symbol


def type_name(type_: Type) -> str:
    """Return the dtype of a tensor type, or another type, as text for errors."""
    return str(type_.dtype) if isinstance(type_, TensorType) else str(type_)


def _role(op: Operator, position: int) -> str:
    parameter = op.input(position)
    if parameter is None:
        return f"input {position}"
    return f"{parameter.name}[{position}]" if parameter.is_variadic else parameter.name


def count_text(least: int, most: int) -> str:
    """Return the text of the numbers of operands or results that an operator can have."""
    if most > 1 << 30:
        return f"at least {least}"
    return str(least) if least == most else f"{least} to {most}"


def element(type_: Type) -> str:
    """Return the type as schemas write it: `tensor(float)`, `seq(tensor(int64))`."""
    if isinstance(type_, TensorType):
        stored = type_.dtype.storage
        return f"tensor({_ELEMENTS.get(stored, stored.name)})"
    if isinstance(type_, SequenceType):
        return f"seq({element(type_.element)})"
    if isinstance(type_, OptionalType):
        return f"optional({element(type_.element)})"
    return type_.name


def by_schema(op: Operator, position: int, bound: Mapping[str, Type]) -> Type:
    """Return a result type by the schema alone: that of operands of the same type variable, or the only allowed one."""
    parameter = op.output(position)
    if parameter is None:
        return OpaqueType()
    same = bound.get(parameter.type)
    if isinstance(same, TensorType):
        return tensor_type(same.dtype, Shape.unknown())
    if same is not None:
        return same
    if len(parameter.allowed) == 1:
        return _of_element(next(iter(parameter.allowed)))
    return OpaqueType()


def _of_element(text: str) -> Type:
    for prefix, make in (("seq(", SequenceType), ("optional(", OptionalType)):
        if text.startswith(prefix):
            return make(_of_element(text[len(prefix) : -1]))
    name = text.removeprefix("tensor(").removesuffix(")")
    try:
        return tensor_type(BY_ELEMENT.get(name) or DType.of(name), Shape.unknown())
    except DTypeError:
        return OpaqueType()
