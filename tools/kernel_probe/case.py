"""Cases: what one measurement feeds an operator, and the model of one node that it becomes for a dtype."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from graphcore.arrays.casting import Array, cast_array
from graphcore.errors import DTypeError
from graphcore.onnx.proto.value_protos import raw
from graphcore.runtime.lowering.targets.legality import BY_RESULT, PRIMARY
from graphcore.runtime.ort import release
from graphcore.types.dtypes import DType

SWEPT = "the dtype that is swept"
"""Stands for the dtype that is swept, in operands and in attributes (there as the number that ONNX gives it)."""

DTYPES: tuple[DType, ...] = tuple(
    map(
        DType.of,
        "bool int4 uint4 int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
        "float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 string".split(),
    )
)
"""The dtypes that are swept: those that ONNX stores tensors of graphcore's dtypes in, and strings."""

Values: TypeAlias = tuple[float, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor: its values repeat until the shape is full. Whether it is an initializer or is fed."""

    shape: tuple[int, ...]
    values: Values = (1, 2, 1, 3)
    dtype: DType | str = SWEPT
    constant: bool = False

    def of(self, swept: DType) -> DType:
        return DType.of(swept if self.dtype == SWEPT else self.dtype)

    def array(self, swept: DType) -> Array:
        return filled(self.shape, self.values, self.of(swept))


@dataclass(frozen=True, slots=True)
class Listed:
    """A sequence of tensors."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Maybe:
    """An optional that has a tensor."""

    item: Operand


Attribute: TypeAlias = Any
"""A value, `SWEPT`, an Operand (a tensor) or a function that makes a subgraph for a dtype."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One node. `only`: the dtypes that it is for, where not all that the schema gives the parameter that decides."""

    inputs: tuple[Operand | Listed | Maybe | None, ...] = ()
    attributes: dict[str, Attribute] = field(default_factory=dict)
    outputs: int = 1
    only: frozenset[DType] | None = None
    captured: tuple[Operand, ...] = ()
    """The outer values that subgraphs read: c0, c1, ..."""


def filled(shape: tuple[int, ...], values: Values, dtype: DType) -> Array:
    """Return an array of a dtype with the values repeated; numbers beyond the dtype wrap or saturate."""
    count = int(np.prod(shape, dtype=np.int64))
    if dtype is DType.string:
        letters = [v if isinstance(v, str) else chr(ord("a") + int(v) % 26) for v in values]
        return np.resize(np.array(letters, object), count).reshape(shape)
    return cast_array(np.resize(np.array(values, np.float64), count), DType.float64, dtype).reshape(shape)


def tensor(name: str, array: Array, dtype: DType) -> onnx.TensorProto:
    """Return a TensorProto of any stored dtype."""
    result = onnx.TensorProto(name=name, data_type=dtype.onnx, dims=array.shape)
    if dtype is DType.string:
        result.string_data.extend(text.encode() for text in array.reshape(-1))
    else:
        result.raw_data = bytes(raw(array, dtype))
    return result


Body: TypeAlias = Callable[[DType], onnx.GraphProto]


SWEPT_PARAMETER = {
    "BlackmanWindow": "T2", "HammingWindow": "T2", "HannWindow": "T2", "If": "V", "Loop": "V", "MelWeightMatrix": "T3",
}  # fmt: skip
"""The type parameter that is swept, where not the one of the operand that decides."""


@dataclass(frozen=True, slots=True)
class Question:
    """A model of one node of the operator, beside those that make its sequences and optionals, and its feeds."""

    model: onnx.ModelProto
    feeds: Mapping[str, tuple[Array, DType]]


def operators() -> list[str]:
    """Return the operators of the default domain that are not deprecated at the opset that sessions are given."""
    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    results = [(name, _schema(name)) for name in sorted(names)]
    return [name for name, schema in results if schema is not None and not schema.deprecated]


def swept_dtypes(op_type: str) -> list[DType]:
    """Return the dtypes among `DTYPES` that the schema allows for the operand that decides on the kernel."""
    schema = _schema(op_type)
    assert schema is not None
    if op_type in SWEPT_PARAMETER:
        named = SWEPT_PARAMETER[op_type]
        types = next(set(c.allowed_type_strs) for c in schema.type_constraints if c.type_param_str == named)
    elif op_type in BY_RESULT or not schema.inputs:
        types = schema.outputs[0].types
    else:
        types = schema.inputs[min(PRIMARY.get(op_type, 0), len(schema.inputs) - 1)].types
    names = {_dtype(match[1]) for text in types if (match := re.search(r"tensor\((\w+)\)", text))}
    return [dtype for dtype in DTYPES if dtype in names]


def question(op_type: str, case: Case, dtype: DType, *, constant: bool = False) -> Question:
    """Return the model of a case in a dtype. constant: all operands but the first are initializers, and there
    is a node beside it, for a provider that takes graphs and seldom a node alone."""
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    feeds: dict[str, tuple[Array, DType]] = {}

    def add_operand(operand: Operand, name: str) -> str:
        array = operand.array(dtype)
        if operand.constant or (constant and name != "x0"):
            constants.append(tensor(name, array, operand.of(dtype)))
        else:
            feeds[name] = array, operand.of(dtype)
        return name

    names = []
    for i, operand in enumerate(case.inputs):
        name = f"x{i}"
        match operand:
            case None:
                name = ""
            case Operand():
                add_operand(operand, name)
            case Listed(items):
                parts = [add_operand(item, f"{name}_{k}") for k, item in enumerate(items)]
                nodes.append(helper.make_node("SequenceConstruct", parts, [name]))
            case Maybe(item):
                nodes.append(helper.make_node("Optional", [add_operand(item, f"{name}_item")], [name]))
        names.append(name)
    for i, operand in enumerate(case.captured):
        add_operand(operand, f"c{i}")
    outputs = [f"y{i}" for i in range(case.outputs)]
    attributes = {name: _attribute(value, dtype) for name, value in case.attributes.items()}
    nodes.append(helper.make_node(op_type, names, outputs, **attributes))
    if constant:
        feeds["beside"] = np.ones(1, np.float32), DType.float32
        nodes.append(helper.make_node("Exp", ["beside"], ["beside_exp"]))
        outputs.append("beside_exp")
    fed = [helper.make_tensor_value_info(name, d.onnx, list(a.shape)) for name, (a, d) in feeds.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, op_type, fed, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _newest_opset())], ir_version=_newest_ir())
    return Question(model, feeds)


def _attribute(value: Attribute, dtype: DType) -> Any:
    if isinstance(value, str) and value == SWEPT:
        return dtype.onnx
    if isinstance(value, Operand):
        return tensor("value", value.array(dtype), value.of(dtype))
    return value(dtype) if callable(value) else value


def _schema(op_type: str) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, _newest_opset())
    except onnx.defs.SchemaError:  # the operator is newer
        return None


_newest_opset, _newest_ir = functools.cache(release.newest_opset), functools.cache(release.newest_ir)


def _dtype(name: str) -> DType | None:
    """Return the dtype that a schema calls `name`; None for those that graphcore has not."""
    try:
        return DType.of(onnx.TensorProto.DataType.Value(name.upper()))
    except (DTypeError, ValueError):
        return None
