"""The dtypes of widths that ONNX lacks, and the types that store them."""

from __future__ import annotations

from graphcore.arrays.big_integers import count_of
from graphcore.arrays.big_integers import is_wide as wide_dtype
from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, _shape, tensor_type


def is_wide(symbol: Symbol | None) -> bool:
    """Return whether a Symbol is an integer of more bits than any that ONNX has."""
    return symbol is not None and isinstance(symbol.type, TensorType) and wide_dtype(symbol.type.dtype)


def is_odd(dtype: DType) -> bool:
    """Return whether a dtype is an integer of at most 64 bits that ONNX lacks."""
    return dtype.is_integer and dtype.storage is not dtype and dtype.bits <= 64 and dtype.storage.bits > dtype.bits


def concerns(type_: Type) -> bool:
    """Return whether a type is, or is a list or optional of, integers of a width that ONNX lacks."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return concerns(type_.element)
    return isinstance(type_, TensorType) and (is_odd(type_.dtype) or wide_dtype(type_.dtype))


def stored_type(type_: Type) -> Type:
    """The type that carries it outside of the graph: wide integers as uint32 digits along a last axis."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(stored_type(type_.element))
    if not isinstance(type_, TensorType) or not concerns(type_):
        return type_
    if wide_dtype(type_.dtype):
        digits = _shape([*type_.shape, Dim(count_of(type_.dtype.bits))]) if type_.shape.is_ranked else type_.shape
        return tensor_type(DType.uint32, digits)
    return tensor_type(type_.dtype.storage, type_.shape)


__all__ = ["concerns", "is_odd", "is_wide", "stored_type", "wide_dtype"]
