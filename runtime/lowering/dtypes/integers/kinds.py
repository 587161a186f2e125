"""The dtypes of widths that ONNX lacks, and the types that store them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcore.arrays.big_integers import count_of
from graphcore.arrays.big_integers import is_wide as wide_dtype
from graphcore.ir.symbol import Node, Symbol
from graphcore.operators import Trait, having
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


# Operands and results of If, Loop and Scan: wide integers go into bodies and out of them as digits.

WHOLE_BODIES = having(Trait.BODIES) - {"SequenceMap"}  # which `ops.onnx` alone builds
"""Operators whose results are those of bodies, which take and give them within their widths, wide ones as digits."""


def is_count(node: Node, position: int) -> bool:
    """Return whether an operand of If, Loop or Scan is a condition or a number of iterations."""
    return position < {"If": 1, "Loop": 2}.get(node.op_type, 0)


def with_axes_of_digits(node: Node, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of a Scan whose wide operands have one more axis, the last: axes are counted before it."""
    made = dict(attributes)
    scanned = node.inputs[len(node.inputs) - int(made["num_scan_inputs"]) :]
    stacked = node.outputs[len(node.inputs) - int(made["num_scan_inputs"]) :]
    for key, symbols in (("scan_input_axes", scanned), ("scan_output_axes", stacked)):
        if key in made:
            made[key] = [axis - (axis < 0 and is_wide(s)) for axis, s in zip(made[key], symbols, strict=True)]
    return made
