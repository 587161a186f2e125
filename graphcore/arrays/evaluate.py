"""Operators of constants, computed now: those whose result NumPy gives bit for bit.

Floats narrower than float32 are computed in it and rounded once, as every provider has to. What the result would be
that has a NaN in it is left to the runtime, for which NaN it is, is the processor's choice. What depends on how a
kernel approximates (exp, sums of floats in some order) is left to it as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array, cast_array
from graphcore.operators import Trait, having
from graphcore.types.dtypes import DType, Kind
from graphcore.types.tensor_types import Shape, TensorType

Attributes: TypeAlias = "Mapping[str, Any]"
Dtypes: TypeAlias = "list[DType | None]"
Fold: TypeAlias = "Callable[[list[Any], Dtypes, Attributes, TensorType], Array | None]"

_DIRECT = frozenset({DType.float32, DType.float64})
_FLOATS = frozenset(
    {*_DIRECT, DType.float16, DType.bfloat16, DType.float8_e4m3fn, DType.float8_e5m2, DType.tensor_float32}
)


def folded(
    op_type: str,
    arrays: list[Array | None],
    dtypes: Dtypes,
    attributes: Attributes,
    type_: TensorType,
    limit: int,
    *,
    any_nan: bool = False,
) -> Array | None:
    """Compute an operator of `FOLDED` for these arrays; return None where the result is not certain.

    arrays, dtypes: of the operands, None for one that is left out. limit: the bytes of the largest result. any_nan:
    any NaN will do where the result has one; otherwise that is not certain.
    """
    if type_.shape.is_static and math.prod(type_.shape.static_dims) * type_.dtype.numpy.itemsize > limit:
        return None
    try:
        with np.errstate(all="ignore"):
            made = _FOLDS[op_type](arrays, dtypes, attributes, type_)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # `Graph.op` takes operands and attributes that ONNX refuses, which is not told here
    if made is None or made.nbytes > limit or (type_.shape.is_static and made.shape != tuple(type_.shape.static_dims)):
        return None
    computes = op_type not in _MOVES and type_.dtype.is_float and not any_nan
    if computes and (made != made).any():
        return None
    return np.require(made, requirements="C")


def folded_shape(shape: Shape, attributes: Attributes) -> Array:
    """Return the result of Shape for a tensor with known dims, whatever its value."""
    return np.array(shape.static_dims[attributes.get("start", 0) : attributes.get("end")], np.int64)


# Arithmetic


def _wide(array: Array, dtype: DType) -> Array:
    """An exact copy in a dtype that NumPy itself computes in."""
    if dtype.is_float:
        return array if dtype in _DIRECT else array.astype(np.float32)
    return array.astype(np.uint64 if dtype.kind is Kind.unsigned else np.int64)


def _narrow(array: Array, dtype: DType) -> Array:
    """A result in the dtype it is to have: rounded, or wrapped."""
    return cast_array(array, DType.of(array.dtype), dtype)


def _numbers(function: Callable[..., Any], *, floats: bool = True, integers: bool = True) -> Fold:
    """An operator on numbers of one dtype, which the result has too."""

    def apply(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
        dtype = type_.dtype
        if len(arrays) != getattr(function, "nin", len(arrays)):  # one more is where a ufunc writes to
            return None
        if not (floats and dtype in _FLOATS) and not (integers and dtype.is_integer):
            return None
        if any(own is not dtype for own in dtypes):
            return None
        made = function(*[_wide(array, dtype) for array in arrays])
        return None if made is None else _narrow(np.asarray(made), dtype)

    return apply


def _quotient(x: Array, y: Array) -> Array | None:
    if x.dtype.kind == "f":
        return np.asarray(x / y)
    if not _divides(x, y):
        return None
    quotient = x // y
    cut = (quotient < 0) & (quotient * y != x)  # NumPy rounds down, ONNX towards zero
    return np.asarray(quotient + cut.astype(x.dtype))


def _divides(x: Array, y: Array) -> bool:
    """Return whether ONNX defines all of the integer quotients: not those by 0, nor that of the least number by -1."""
    return bool((y != 0).all() and not (x.dtype.kind == "i" and (y == -1).any()))


def _remainder(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    fmod = bool(attributes.get("fmod", 0))

    def remainder(x: Array, y: Array) -> Array | None:
        if x.dtype.kind == "f":
            return np.asarray(np.fmod(x, y))  # which is exact
        return np.asarray(np.fmod(x, y) if fmod else np.mod(x, y)) if _divides(x, y) else None

    return _numbers(remainder, floats=fmod)(arrays, dtypes, attributes, type_)


def _largest(function: Callable[..., Any]) -> Fold:
    def extreme(*arrays: Array) -> Array:
        made = arrays[0]
        for other in arrays[1:]:
            made = function(made, other)
        return made

    return _numbers(extreme, floats=False)  # which of 0.0 and -0.0 it is, is the kernel's choice


def _shift(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    bits = type_.dtype.bits

    def shifted(x: Array, count: Array) -> Array:
        small = np.minimum(count, np.uint64(bits - 1))
        made = x << small if attributes["direction"] in ("LEFT", b"LEFT") else x >> small
        return np.where(count < np.uint64(bits), made, np.uint64(0))

    return _numbers(shifted, floats=False)(arrays, dtypes, attributes, type_) if type_.dtype.is_unsigned else None


# Comparisons and bools


def _compared(function: Callable[..., Any]) -> Fold:
    def apply(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
        dtype = dtypes[0]
        if len(arrays) != 2 or dtype is None or any(own is not dtype for own in dtypes):
            return None
        if dtype is DType.bool:
            return np.asarray(function(*arrays))
        if dtype not in _FLOATS and not dtype.is_integer:
            return None
        return np.asarray(function(*[_wide(array, dtype) for array in arrays]))

    return apply


def _is_nan(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    (x,) = arrays
    return np.isnan(x) if dtypes[0] in _DIRECT else None


def _logical(function: np.ufunc) -> Fold:
    def apply(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
        is_right = len(arrays) == function.nin and all(a.dtype == np.bool_ for a in arrays)
        return np.asarray(function(*arrays)) if is_right else None

    return apply


# Moves and casts, for every dtype


def _cast(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    source = dtypes[0]
    if attributes.keys() != {"to"} or source is None:
        return None
    for dtype in (source, type_.dtype):
        if not (dtype in _FLOATS or dtype.is_integer or dtype is DType.bool):
            return None
    return cast_array(arrays[0], source, type_.dtype)


def _chosen(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    return np.where(*arrays).astype(arrays[1].dtype, copy=False) if arrays[1].dtype == arrays[2].dtype else None


def _reshaped(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    if not type_.shape.is_static:
        return None
    shape = tuple(type_.shape.static_dims)
    return np.reshape(arrays[0], shape) if math.prod(shape) == arrays[0].size else None


def _expanded(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    shape = np.broadcast_shapes(arrays[0].shape, tuple(int(d) for d in arrays[1]))
    return np.broadcast_to(arrays[0], shape)


def _transposed(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    return np.asarray(np.transpose(arrays[0], attributes.get("perm")))


def _joined(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    return np.concatenate(arrays, axis=attributes["axis"])


def _gathered(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, places = arrays
    axis = attributes.get("axis", 0)
    length = x.shape[axis]
    if places.size and (places.min() < -length or places.max() >= length):
        return None
    return np.asarray(np.take(x, places, axis=axis))


def _sliced(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, starts, ends, axes, steps = (*arrays, None, None)[:5]
    at = [slice(None)] * x.ndim
    for i in range(len(starts)):
        axis, start, end = i if axes is None else int(axes[i]), int(starts[i]), int(ends[i])
        step = 1 if steps is None else int(steps[i])
        if step < 0 and (start < -x.shape[axis] or end == _FURTHEST):
            return None  # which NumPy, ONNX and the runtime read in three ways
        at[axis] = slice(start, end, step)
    return np.asarray(x[tuple(at)])


_FURTHEST = (1 << 63) - 1


def _viewed(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    (x,) = arrays
    same = dtypes[0] is not None and dtypes[0].bits == type_.dtype.bits == 8 * x.dtype.itemsize
    return x.view(type_.dtype.numpy) if same else None


_FOLDS: dict[str, Fold] = {
    "Add": _numbers(np.add),
    "Sub": _numbers(np.subtract),
    "Mul": _numbers(np.multiply),
    "Div": _numbers(_quotient),
    "FloorDiv": _numbers(np.floor_divide, floats=False),
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
    "IsNaN": _is_nan,
    "Where": _chosen,
    "Cast": _cast,
    "BitCast": _viewed,
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

_MOVES = having(Trait.MOVES, Trait.JOINS) | {"BitCast"}
"""Operators that give elements as they are."""

FOLDED = frozenset(_FOLDS)
"""The operators that `folded` knows."""
