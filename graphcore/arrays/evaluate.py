"""Constant folding with NumPy, for operators whose results are the same bit for bit.

Floats narrower than float32 are computed in float32 and rounded once, as providers must do. Results with a NaN are left
to the runtime, since NaN payloads depend on the processor. Results that depend on the approximation of a kernel (exp,
the order of sums of floats) are left to it as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
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
    more: Mapping[str, Fold] = MappingProxyType({}),
) -> Array | None:
    """Compute an operator of `FOLDED` on arrays; return None if the result is not certain.

    arrays, dtypes: those of the operands, None for omitted operands. limit: the maximum size of the result in bytes.
    any_nan: accept results with any NaN payload. more: operators besides those of `FOLDED`.
    """
    if type_.shape.is_static and math.prod(type_.shape.static_dims) * type_.dtype.numpy.itemsize > limit:
        return None
    try:
        with np.errstate(all="ignore"):
            result = (more.get(op_type) or _FOLDS[op_type])(arrays, dtypes, attributes, type_)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # `Graph.op` accepts invalid operands and attributes; the error is reported later
    if (
        result is None
        or result.nbytes > limit
        or (type_.shape.is_static and result.shape != tuple(type_.shape.static_dims))
    ):
        return None
    computes = op_type not in _MOVING and type_.dtype.is_float and not any_nan
    if computes and (result != result).any():
        return None
    return np.require(result, requirements="C")


def folded_shape(shape: Shape, attributes: Attributes) -> Array:
    """Return the result of Shape for a tensor with static dims."""
    return np.array(shape.static_dims[attributes.get("start", 0) : attributes.get("end")], np.int64)


# Arithmetic


def _wide(array: Array, dtype: DType) -> Array:
    """Convert exactly to a dtype that NumPy computes in."""
    if dtype.is_float:
        return array if dtype in _DIRECT else array.astype(np.float32)
    return array.astype(np.uint64 if dtype.kind is Kind.unsigned else np.int64)


def _numbers(function: Callable[..., Any], *, floats: bool = True, integers: bool = True) -> Fold:
    """Return the fold of an operator on numbers of one dtype, which is also the dtype of the result."""

    def apply(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
        dtype = type_.dtype
        if len(arrays) != getattr(function, "nin", len(arrays)):  # an additional argument of a ufunc is its output
            return None
        if not (floats and dtype in _FLOATS) and not (integers and dtype.is_integer):
            return None
        if any(operand_dtype is not dtype for operand_dtype in dtypes):
            return None
        result = function(*[_wide(array, dtype) for array in arrays])
        if result is None:
            return None
        array = np.asarray(result)
        return cast_array(array, DType.of(array.dtype), dtype)  # rounds, or wraps

    return apply


def _quotient(x: Array, y: Array) -> Array | None:
    if x.dtype.kind == "f":
        return np.asarray(x / y)
    if not _divides(x, y):
        return None
    quotient = x // y
    truncated = (quotient < 0) & (quotient * y != x)  # NumPy rounds down, ONNX towards zero
    return np.asarray(quotient + truncated.astype(x.dtype))


def _divides(x: Array, y: Array) -> bool:
    """Return True if ONNX defines all integer quotients: no division by 0, nor of the minimum by -1."""
    return bool((y != 0).all() and not (x.dtype.kind == "i" and (y == -1).any()))


def _remainder(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    fmod = bool(attributes.get("fmod", 0))

    def remainder(x: Array, y: Array) -> Array | None:
        if x.dtype.kind == "f":
            return np.asarray(np.fmod(x, y))  # exact
        return np.asarray(np.fmod(x, y) if fmod else np.mod(x, y)) if _divides(x, y) else None

    return _numbers(remainder, floats=fmod)(arrays, dtypes, attributes, type_)


def _extreme(function: Callable[..., Any]) -> Fold:
    def extreme(*arrays: Array) -> Array:
        result = arrays[0]
        for other in arrays[1:]:
            result = function(result, other)
        return result

    return _numbers(extreme, floats=False)  # the sign of a zero depends on the kernel


def _shift(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    bits = type_.dtype.bits

    def shifted(x: Array, count: Array) -> Array:
        small = np.minimum(count, np.uint64(bits - 1))
        result = x << small if attributes["direction"] in ("LEFT", b"LEFT") else x >> small
        return np.where(count < np.uint64(bits), result, np.uint64(0))

    return _numbers(shifted, floats=False)(arrays, dtypes, attributes, type_) if type_.dtype.is_unsigned else None


# Comparisons and bools


def _compared(function: Callable[..., Any]) -> Fold:
    def apply(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
        dtype = dtypes[0]
        if len(arrays) != 2 or dtype is None or any(operand_dtype is not dtype for operand_dtype in dtypes):
            return None
        if dtype is DType.bool:
            return np.asarray(function(*arrays))
        if dtype not in _FLOATS and not dtype.is_integer:
            return None
        return np.asarray(function(*[_wide(array, dtype) for array in arrays]))

    return apply


def _logical(function: np.ufunc) -> Fold:
    def apply(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
        is_valid = len(arrays) == function.nin and all(a.dtype == np.bool_ for a in arrays)
        return np.asarray(function(*arrays)) if is_valid else None

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


def _reshaped(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    if not type_.shape.is_static:
        return None
    shape = tuple(type_.shape.static_dims)
    return np.reshape(arrays[0], shape) if math.prod(shape) == arrays[0].size else None


def _gathered(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, indices = arrays
    axis = attributes.get("axis", 0)
    length = x.shape[axis]
    if indices.size and (indices.min() < -length or indices.max() >= length):
        return None
    return np.asarray(np.take(x, indices, axis=axis))


def _sliced(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, starts, ends, axes, steps = (*arrays, None, None)[:5]
    at = [slice(None)] * x.ndim
    for i in range(len(starts)):
        axis, start, end = i if axes is None else int(axes[i]), int(starts[i]), int(ends[i])
        step = 1 if steps is None else int(steps[i])
        if step < 0 and (start < -x.shape[axis] or end == _MAX_END):
            return None  # NumPy, ONNX and the runtime disagree
        at[axis] = slice(start, end, step)
    return np.asarray(x[tuple(at)])


_MAX_END = (1 << 63) - 1


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
    "Max": _extreme(np.maximum),
    "Min": _extreme(np.minimum),
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
    "IsNaN": lambda arrays, dtypes, attributes, type_: np.isnan(arrays[0]) if dtypes[0] in _DIRECT else None,
    "Where": lambda arrays, dtypes, attributes, type_: (
        np.asarray(np.where(*arrays)).astype(arrays[1].dtype, copy=False)
        if arrays[1].dtype == arrays[2].dtype
        else None
    ),
    "Cast": _cast,
    "BitCast": _viewed,
    **dict.fromkeys("Identity Reshape Flatten Squeeze Unsqueeze".split(), _reshaped),
    "Expand": lambda arrays, dtypes, attributes, type_: np.broadcast_to(
        arrays[0], np.broadcast_shapes(arrays[0].shape, tuple(map(int, arrays[1])))
    ),
    "Transpose": lambda arrays, dtypes, attributes, type_: np.asarray(np.transpose(arrays[0], attributes.get("perm"))),
    "Concat": lambda arrays, dtypes, attributes, type_: np.concatenate(arrays, axis=attributes["axis"]),
    "Gather": _gathered,
    "Slice": _sliced,
}

_MOVING = having(Trait.MOVES, Trait.JOINS) | {"BitCast"}
"""Operators that do not change elements."""

FOLDED = frozenset(_FOLDS)
"""The operators that `folded` computes."""
