"""Operators of constants, computed now: those whose result NumPy gives bit for bit.

Floats narrower than float32 are computed in it and rounded once, as every provider has to. What the result would be
that has a NaN in it is left to the runtime, for which NaN it is, is the processor's choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphcore.dtypes import DType, Kind
from graphcore.numerics import Array, cast_array
from graphcore.passes.sweep import Inputs, Rule, Sweep
from graphcore.symbol import Node, Symbol
from graphcore.types import TensorType

Operands: TypeAlias = "Sequence[Array | None]"
Fold: TypeAlias = "Callable[[Node, list[Any], TensorType], Array | None]"

_DIRECT = frozenset({DType.float32, DType.float64})
_FLOATS = frozenset(
    {*_DIRECT, DType.float16, DType.bfloat16, DType.float8_e4m3fn, DType.float8_e5m2, DType.tensor_float32}
)


def folded(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """The operator's result as a constant, None where it is not known now, not for certain, or too large."""
    type_ = node.outputs[0].type
    if not isinstance(type_, TensorType) or not type_.shape.is_static:
        return None
    if type_.dtype.bits > 64 or _bytes(type_) > sweep.selection.limit:
        return None
    if node.op_type == "Shape":
        return _shape(sweep, node, inputs, type_)
    arrays: list[Array | None] = []
    for symbol in inputs:
        array = sweep.known(symbol)
        if symbol is not None and (array is None or symbol.dtype.bits > 64):
            return None
        arrays.append(array)
    try:
        with np.errstate(all="ignore"):
            made = _FOLDS[node.op_type](node, arrays, type_)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # `Graph.op` takes operands and attributes that ONNX refuses, which is not told here
    if made is None or made.shape != tuple(type_.shape.static_dims):
        return None
    return sweep.constant(node, np.require(made, requirements="C"), type_)


def _bytes(type_: TensorType) -> int:
    return math.prod(type_.shape.static_dims) * type_.dtype.numpy.itemsize


def _shape(sweep: Sweep, node: Node, inputs: Inputs, type_: TensorType) -> Symbol | None:
    """The shape of an operand all of whose dims are known, whatever its value."""
    (operand,) = inputs
    if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_static:
        return None
    dims = operand.shape.static_dims[node.attributes.get("start", 0) : node.attributes.get("end")]
    return sweep.constant(node, np.array(dims, np.int64), type_)


# Arithmetic


def _wide(array: Array, dtype: DType) -> Array:
    """An exact copy in a dtype that NumPy itself computes in."""
    if dtype.is_float:
        return array if dtype in _DIRECT else array.astype(np.float32)
    return array.astype(np.uint64 if dtype.kind is Kind.unsigned else np.int64)


def _narrow(array: Array, dtype: DType) -> Array | None:
    """A result in the dtype it is to have: rounded, or wrapped."""
    if dtype.is_float and np.isnan(array).any():
        return None
    return cast_array(array, DType.of(array.dtype), dtype)


def _numbers(function: Callable[..., Any], *, floats: bool = True, integers: bool = True) -> Fold:
    """An operator on numbers of one dtype, which the result has too."""

    def apply(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
        dtype = type_.dtype
        if len(arrays) != getattr(function, "nin", len(arrays)):  # one more is where a ufunc writes to
            return None
        if not (floats and dtype in _FLOATS) and not (integers and dtype.is_integer):
            return None
        if any(_dtype(symbol) is not dtype for symbol in node.inputs):
            return None
        made = function(*[_wide(array, dtype) for array in arrays])
        return None if made is None else _narrow(np.asarray(made), dtype)

    return apply


def _dtype(symbol: Symbol | None) -> DType | None:
    return symbol.type.dtype if symbol is not None and isinstance(symbol.type, TensorType) else None


def _quotient(x: Array, y: Array) -> Array | None:
    if x.dtype.kind == "f":
        return np.asarray(x / y)
    if not _divides(x, y):
        return None
    quotient = x // y
    cut = (quotient < 0) & (quotient * y != x)  # NumPy rounds down, ONNX towards zero
    return np.asarray(quotient + cut.astype(x.dtype))


def _divides(x: Array, y: Array) -> bool:
    """Whether ONNX says what all quotients of integers are: of the least number and -1 it does not."""
    return bool((y != 0).all() and not (x.dtype.kind == "i" and (y == -1).any()))


def _remainder(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
    fmod = bool(node.attributes.get("fmod", 0))

    def remainder(x: Array, y: Array) -> Array | None:
        return np.asarray(np.fmod(x, y) if fmod else np.mod(x, y)) if _divides(x, y) else None

    return _numbers(remainder, floats=False)(node, arrays, type_)


def _largest(function: Callable[..., Any]) -> Fold:
    def extreme(*arrays: Array) -> Array:
        made = arrays[0]
        for other in arrays[1:]:
            made = function(made, other)
        return made

    return _numbers(extreme, floats=False)  # which of 0.0 and -0.0 it is, is the kernel's choice


def _shift(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
    bits = type_.dtype.bits

    def shifted(x: Array, count: Array) -> Array:
        small = np.minimum(count, np.uint64(bits - 1))
        made = x << small if node.attributes["direction"] in ("LEFT", b"LEFT") else x >> small
        return np.where(count < np.uint64(bits), made, np.uint64(0))

    return _numbers(shifted, floats=False)(node, arrays, type_) if type_.dtype.is_unsigned else None


# Comparisons and bools


def _compared(function: Callable[..., Any]) -> Fold:
    def apply(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
        dtype = _dtype(node.inputs[0])
        if len(arrays) != 2 or dtype is None or any(_dtype(symbol) is not dtype for symbol in node.inputs):
            return None
        if dtype is DType.bool:
            return np.asarray(function(*arrays))
        if dtype not in _FLOATS and not dtype.is_integer:
            return None
        return np.asarray(function(*[_wide(array, dtype) for array in arrays]))

    return apply


def _logical(function: np.ufunc) -> Fold:
    def apply(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
        is_right = len(arrays) == function.nin and all(a.dtype == np.bool_ for a in arrays)
        return np.asarray(function(*arrays)) if is_right else None

    return apply


# Moves and casts, for every dtype


def _cast(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
    source = _dtype(node.inputs[0])
    if node.attributes.keys() != {"to"} or source is None:
        return None
    for dtype in (source, type_.dtype):
        if not (dtype in _FLOATS or dtype.is_integer or dtype is DType.bool):
            return None
    made = cast_array(arrays[0], source, type_.dtype)
    is_nan = type_.dtype.is_float and np.isnan(made.astype(np.float32)).any()
    return None if is_nan else made


def _chosen(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
    return np.where(*arrays).astype(arrays[1].dtype, copy=False) if arrays[1].dtype == arrays[2].dtype else None


def _reshaped(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
    shape = tuple(type_.shape.static_dims)
    return np.reshape(arrays[0], shape) if math.prod(shape) == arrays[0].size else None


def _expanded(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
    return np.broadcast_to(arrays[0], type_.shape.static_dims)


def _transposed(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
    return np.transpose(arrays[0], node.attributes.get("perm"))


def _joined(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
    return np.concatenate(arrays, axis=node.attributes["axis"])


def _gathered(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
    x, places = arrays
    axis = node.attributes.get("axis", 0)
    length = x.shape[axis]
    if places.size and (places.min() < -length or places.max() >= length):
        return None
    return np.asarray(np.take(x, places, axis=axis))


def _sliced(node: Node, arrays: list[Any], type_: TensorType) -> Array | None:
    x, starts, ends, axes, steps = (*arrays, None, None)[:5]
    at = [slice(None)] * x.ndim
    for i in range(len(starts)):
        step = 1 if steps is None else int(steps[i])
        if step < 1:
            return None  # an end of -1 is before the first element in NumPy's words, the last in ONNX's
        at[i if axes is None else int(axes[i])] = slice(int(starts[i]), int(ends[i]), step)
    return np.asarray(x[tuple(at)])


_FOLDS: dict[str, Fold] = {
    "Add": _numbers(np.add),
    "Sub": _numbers(np.subtract),
    "Mul": _numbers(np.multiply),
    "Div": _numbers(_quotient),
    "Sqrt": _numbers(np.sqrt, integers=False),
    "Neg": _numbers(np.negative),
    "Abs": _numbers(np.abs),
    "Floor": _numbers(np.floor, integers=False),
    "Ceil": _numbers(np.ceil, integers=False),
    "Mod": _remainder,
    "Max": _largest(np.maximum),
    "Min": _largest(np.minimum),
    "BitwiseAnd": _numbers(np.bitwise_and, floats=False),
    "BitwiseOr": _numbers(np.bitwise_or, floats=False),
    "BitwiseXor": _numbers(np.bitwise_xor, floats=False),
    "BitwiseNot": _numbers(np.invert, floats=False),
    "BitShift": _shift,
    "And": _logical(np.logical_and),
    "Or": _logical(np.logical_or),
    "Xor": _logical(np.logical_xor),
    "Not": _logical(np.logical_not),
    "Equal": _compared(np.equal),
    "Less": _compared(np.less),
    "Greater": _compared(np.greater),
    "LessOrEqual": _compared(np.less_equal),
    "GreaterOrEqual": _compared(np.greater_equal),
    "Where": _chosen,
    "Cast": _cast,
    "Identity": _reshaped,
    "Reshape": _reshaped,
    "Flatten": _reshaped,
    "Squeeze": _reshaped,
    "Unsqueeze": _reshaped,
    "Expand": _expanded,
    "Transpose": _transposed,
    "Concat": _joined,
    "Gather": _gathered,
    "Slice": _sliced,
}

FOLDS: dict[str, tuple[Rule, ...]] = dict.fromkeys([*_FOLDS, "Shape"], (folded,))
