"""Cases: what one measurement feeds an operator: operands, attributes and how to read them for a dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx

from graphcore.arrays.casting import Array, cast_array
from graphcore.onnx.proto.value_protos import raw
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
    made = onnx.TensorProto(name=name, data_type=dtype.onnx, dims=array.shape)
    if dtype is DType.string:
        made.string_data.extend(text.encode() for text in array.reshape(-1))
    else:
        made.raw_data = bytes(raw(array, dtype))
    return made


Body: TypeAlias = Callable[[DType], onnx.GraphProto]
