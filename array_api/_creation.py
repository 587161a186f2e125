"""Creation functions of the standard."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any, TypeAlias, overload

import numpy as np

from graphcore import ops
from graphcore.array_api._data_types import DEFAULT_COMPLEX, DEFAULT_FLOAT, DEFAULT_INTEGER, astype, check_dtype
from graphcore.array_api._eager import PROMOTION, Array, Tensor, compute, function, public
from graphcore.array_api._manipulation import broadcast_arrays
from graphcore.arrays.casting import cast_array, third_party_array
from graphcore.arrays.eager_array import EagerArray, check_device
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.literals import array_of, checked_cast, scalar_array
from graphcore.ir.symbol import Symbol
from graphcore.promotion.rules import NoPromotion, check_literal
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import DimLike

Number: TypeAlias = builtins.bool | int | float | complex

# From values


@overload
def asarray(
    obj: Symbol, /, *, dtype: DType | None = None, device: str | None = None, copy: builtins.bool | None = None
) -> Symbol: ...
@overload
def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: str | None = None, copy: builtins.bool | None = None
) -> Array: ...
def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: str | None = None, copy: builtins.bool | None = None
) -> Tensor:
    """Convert values to an Array.

    Args:
        obj: An Array, a NumPy array, an object with the buffer protocol or DLPack, a Python scalar, or nested lists of
            scalars; a Symbol is returned, cast to `dtype`.
        dtype: By default that of the values; for Python numbers bool, int64, float32 or complex64.
        copy: True to copy, False to raise if a copy is needed, None to copy if needed. Floats out of range of a float
            dtype become infinite.

    Raises:
        DTypeError: For values or dtypes that Arrays do not support and for integers out of range of `dtype`.
        ShapeError: If copy=False and a copy is needed.
    """
    check_device("asarray", device)
    target = check_dtype("asarray", dtype)
    if isinstance(obj, Symbol):
        return obj if target is None else astype(obj, target)
    if isinstance(obj, (Array, np.ndarray, np.generic)):
        return _of_array(np.asarray(obj), target, copy)
    tensor = third_party_array(obj)
    if tensor is not None:
        return _of_array(tensor, target, copy)
    is_buffer = isinstance(obj, (bytes, bytearray, memoryview)) or type(obj).__module__ == "array"
    if is_buffer:
        return _of_array(np.asarray(obj if type(obj).__module__ == "array" else memoryview(obj)), target, copy)
    if copy is False:
        raise _CopyRefused("asarray: Python values need a copy, but copy=False", help="omit copy")
    return Array(_of_python(obj, target))


class _CopyRefused(ShapeError):
    """A copy is needed, but copy=False."""


def _of_array(array: np.ndarray[Any, Any], target: DType | None, copy: builtins.bool | None) -> Array:
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    source = check_dtype("asarray", native.dtype)
    if target is not None and target is not source:
        if copy is False:
            raise _CopyRefused(
                f"asarray: a cast from {source} to {target} needs a copy, but copy=False", help="omit copy"
            )
        return astype(Array(native), target)  # type: ignore[no-any-return]
    if copy is False and native is not array:
        raise _CopyRefused("asarray: a change of byte order needs a copy, but copy=False", help="omit copy")
    return Array(native.copy() if copy else native)


def _of_python(obj: Any, target: DType | None) -> np.ndarray[Any, Any]:
    if isinstance(obj, (list, tuple)):
        obj = _without_arrays(obj)
    array, source = array_of(obj)
    if source not in (DType.bool, DType.int64, DType.uint64, DType.float64, DType.complex128):
        check_dtype("asarray", source)
    if target is None:
        if source is DType.float64:
            target = DEFAULT_FLOAT
        elif source is DType.complex128:
            target = DEFAULT_COMPLEX
        elif source is DType.uint64:
            raise DTypeError(f"asarray: {obj!r:.60} is out of range for int64", help="give a dtype: dtype=uint64")
        else:
            target = source
    if target.is_float or target.is_complex or array.size == 0:  # NumPy converts an empty list to floats
        return cast_array(array, source, target)
    return array if target is source else checked_cast(array, source, target, "asarray")


def _without_arrays(values: Any) -> Any:
    """Convert Arrays in nested lists to NumPy arrays."""
    if isinstance(values, (list, tuple)):
        return [_without_arrays(value) for value in values]
    return values._data if isinstance(values, Array) else values


def from_dlpack(x: Any, /, *, device: str | None = None, copy: builtins.bool | None = None) -> Array:
    """Convert an array of another library to an Array that shares its memory if possible.

    Raises:
        DTypeError: For a dtype that Arrays do not support.
        GraphError: For a device other than "cpu".
    """
    check_device("from_dlpack", device)
    array = np.from_dlpack(x, copy=copy)
    check_dtype("from_dlpack", array.dtype)
    return Array(array)


# Arrays of one value. With symbolic dims in the shape, these return Symbols of the current graph.


def _shape_of(op: str, shape: DimLike | Sequence[DimLike]) -> tuple[int, ...]:
    dims = (shape,) if not isinstance(shape, (tuple, list)) else tuple(shape)
    try:
        sizes = tuple(int(dim.__index__()) for dim in dims)
    except (AttributeError, TypeError):
        raise ShapeError(f"{op}: shape must be an int or a tuple of ints, got {shape!r}", help="give (2, 3)") from None
    if any(size < 0 for size in sizes):
        raise ShapeError(f"{op}: the shape {shape!r} has a negative size", help="sizes must be 0 or more")
    return sizes


def _is_symbolic(shape: Any) -> builtins.bool:
    """Return True if a shape or number has a Symbol or a symbolic Dim, so that the result is a Symbol."""
    dims = shape if isinstance(shape, (tuple, list)) else (shape,)
    return any(isinstance(dim, (str, Symbol)) or (isinstance(dim, Dim) and not dim.is_static) for dim in dims)


def _full(
    op: str,
    shape: DimLike | Sequence[DimLike],
    value: Number,
    dtype: DType,
    device: str | None,
) -> Tensor:
    check_device(op, device)
    if _is_symbolic(shape):
        return ops.full(shape, value, dtype=dtype)
    part = real_of(dtype)
    is_rounded = type(value) is int and part.is_float and abs(value) <= part.max
    try:
        if not is_rounded:
            check_literal(value, dtype)
    except NoPromotion as refusal:
        overflows = isinstance(value, (float, complex)) and (dtype.is_float or dtype.is_complex)
        reason = f"{value!r} overflows {dtype}" if overflows else refusal.reason
        raise DTypeError(f"{op}: {reason}", help=refusal.help) from None
    return Array(np.full(_shape_of(op, shape), scalar_array(value, dtype)))


def empty(shape: DimLike | Sequence[DimLike], *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Return an Array of unspecified values, which are zeros. See `zeros`."""
    return _full("empty", shape, 0, check_dtype("empty", dtype) or DEFAULT_FLOAT, device)


def zeros(shape: DimLike | Sequence[DimLike], *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Return an Array of zeros.

    Args:
        shape: Ints.
        dtype: By default float32.

    Raises:
        ShapeError: For an invalid shape.
    """
    return _full("zeros", shape, 0, check_dtype("zeros", dtype) or DEFAULT_FLOAT, device)


def ones(shape: DimLike | Sequence[DimLike], *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Return an Array of ones.

    Args:
        shape: Ints.
        dtype: By default float32.

    Raises:
        ShapeError: For an invalid shape.
    """
    return _full("ones", shape, 1, check_dtype("ones", dtype) or DEFAULT_FLOAT, device)


def full(
    shape: DimLike | Sequence[DimLike],
    fill_value: Number,
    *,
    dtype: DType | None = None,
    device: str | None = None,
) -> Tensor:
    """Return an Array filled with one value.

    Args:
        shape: Ints.
        fill_value: A Python scalar.
        dtype: By default bool, int64, float32 or complex64, by the type of the scalar.

    Raises:
        DTypeError: If the value is out of range.
        ShapeError: For an invalid shape.
    """
    value = _scalar_of("full", fill_value)
    return _full("full", shape, value, check_dtype("full", dtype) or _DEFAULTS[type(value)], device)


def _scalar_of(op: str, value: Any) -> Number:
    if isinstance(value, (Array, np.generic)) and not value.ndim:
        value = np.asarray(value).item()
    if type(value) not in (bool, int, float, complex):
        raise DTypeError(f"{op}: {value!r} is not a number", help="give a bool, an int, a float or a complex number")
    return value  # type: ignore[no-any-return]


_DEFAULTS = {bool: DType.bool, int: DEFAULT_INTEGER, float: DEFAULT_FLOAT, complex: DEFAULT_COMPLEX}


@function
def _like(x: Tensor, value: Number, dtype: DType | None) -> Tensor:
    symbol = x
    filled = ops.constant(value, dtype or symbol.dtype) if type(value) is not bool else None
    if filled is None:
        filled = ops.cast(ops.constant(value), dtype or symbol.dtype)
    return ops.broadcast_to(filled, ops.shape_of(symbol), symbol.shape)


def _like_of(op: str, x: Tensor, value: Number, dtype: DType | None, device: str | None) -> Tensor:
    """Return a filled Symbol, Array or Tensor with the shape of one of the same kind."""
    check_device(op, device)
    if isinstance(x, Symbol):
        with x.graph:
            return _like(x, value, None if dtype is None else PROMOTION.dtype_of(dtype))
    if isinstance(x, EagerArray) and not isinstance(x, Array):
        return _like(x, value, None if dtype is None else PROMOTION.dtype_of(dtype))
    return _full(op, x.shape, value, check_dtype(op, dtype) or x.dtype, device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Return unspecified values, which are zeros, with the shape of x and by default its dtype."""
    return _like_of("empty_like", x, 0, dtype, device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Return zeros with the shape of x and by default its dtype."""
    return _like_of("zeros_like", x, 0, dtype, device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Return ones with the shape of x and by default its dtype."""
    return _like_of("ones_like", x, 1, dtype, device)


def full_like(
    x: Tensor,
    /,
    fill_value: Number,
    *,
    dtype: DType | None = None,
    device: str | None = None,
) -> Tensor:
    """Return one value with the shape of x and by default its dtype.

    Raises:
        DTypeError: If it is out of range.
    """
    return _like_of("full_like", x, _scalar_of("full_like", fill_value), dtype, device)


# Ranges and diagonals


def arange(
    start: int | float | Dim,
    /,
    stop: int | float | Dim | None = None,
    step: int | float | Dim = 1,
    *,
    dtype: DType | None = None,
    device: str | None = None,
) -> Tensor:
    """Return the numbers from `start` to `stop`, exclusive, in steps of `step`.

    A single argument is `stop`, from 0.

    Args:
        dtype: By default int64 for ints and float32 otherwise.

    Raises:
        ShapeError: For a step of 0.
        DTypeError: If the bounds are out of range. With symbolic Dims it returns a Symbol of the current graph.
    """
    check_device("arange", device)
    if _is_symbolic((start, stop, step)):
        return ops.range(start, stop, step, dtype=dtype)
    if stop is None:
        start, stop = 0, start
    first, last, stride = (int(v) if isinstance(v, Dim) else v for v in (start, stop, step))
    if stride == 0:
        raise ShapeError("arange: step is 0", help="give a step above or below 0")
    is_integer = all(type(value) is int for value in (first, last, stride))
    target = check_dtype("arange", dtype) or (DEFAULT_INTEGER if is_integer else DEFAULT_FLOAT)
    if is_integer:
        count = builtins.max(0, -((int(first) - int(last)) // int(stride)))
    else:
        count = builtins.max(0, math.ceil((last - first) / stride))
    if count == 0:
        return Array(np.zeros(0, target.numpy))
    if not is_integer:
        return compute(_steps, count, float(first), float(stride), target)
    for value in (first, first + (count - 1) * stride):
        if target.is_integer and not target.min <= value <= target.max:
            raise DTypeError(f"arange: {value} is out of range for {target}", help="choose a wider dtype")
    return compute(_whole_steps, count, first, stride, target)


def _whole_steps(count: int, start: int, step: int, dtype: DType) -> Symbol:
    # In 64 bits, sums and products wrap to the right result even if intermediate values overflow.
    wide = DType.uint64 if dtype is DType.uint64 else DType.int64
    result = ops.cast(ops.range(count), wide) * _wrap(step, wide) + _wrap(start, wide)
    return ops.cast(result, dtype)


def _wrap(value: int, dtype: DType) -> np.ndarray[Any, Any]:
    return np.asarray(np.uint64(value % (1 << 64))).view(dtype.numpy)


def _steps(count: int, start: float, step: float, dtype: DType) -> Symbol:
    positions = ops.cast(ops.range(count), DType.float64)
    return ops.cast(positions * np.asarray(step) + np.asarray(start), dtype)


def linspace(
    start: int | float | complex,
    stop: int | float | complex,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    endpoint: builtins.bool = True,
) -> Array:
    """Return `num` evenly spaced numbers from `start` to `stop`, inclusive if `endpoint`.

    Args:
        dtype: By default float32, or complex64 if a bound is complex.

    Raises:
        ShapeError: For a negative `num`.
        DTypeError: For bounds that are not numbers, and for complex bounds with a real dtype.
    """
    check_device("linspace", device)
    (count,) = _shape_of("linspace", num)
    ends = [_scalar_of("linspace", value) for value in (start, stop)]
    is_complex = any(isinstance(value, complex) for value in ends)
    target = check_dtype("linspace", dtype) or (DEFAULT_COMPLEX if is_complex else DEFAULT_FLOAT)
    if is_complex and not target.is_complex:
        raise DTypeError(f"linspace: complex numbers from {start!r} to {stop!r} cannot be {target}", help="omit dtype")
    if count == 0:
        return Array(np.zeros(0, target.numpy))
    first, last = ends if is_complex else [float(value) for value in ends]  # type: ignore[arg-type]
    return compute(ops.linspace, first, last, count, builtins.bool(endpoint), target)  # type: ignore[no-any-return]


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: str | None = None,
) -> Array:
    """Return a matrix of zeros with ones on diagonal `k`, 0 for the main one.

    Args:
        dtype: By default float32.
    """
    check_device("eye", device)
    rows, columns = _shape_of("eye", (n_rows, n_rows if n_cols is None else n_cols))
    diagonal = builtins.max(-rows, builtins.min(int(k), columns))
    return compute(_eye, rows, columns, diagonal, check_dtype("eye", dtype) or DEFAULT_FLOAT)  # type: ignore[no-any-return]


def _eye(rows: int, columns: int, k: int, dtype: DType) -> Symbol:
    diagonal = ops.unsqueeze(ops.range(rows), 1) + k
    return ops.cast(ops.equal(diagonal, ops.range(columns)), dtype)


# From arrays


@function
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the lower triangle of matrices, with 0 above diagonal k.

    Args:
        x: [..., m, n] of any dtype.
    """
    return ops.tril(x, _diagonal(k))


@function
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the upper triangle of matrices, with 0 below diagonal k.

    Args:
        x: [..., m, n] of any dtype.
    """
    return ops.triu(x, _diagonal(k))


def _diagonal(k: int) -> int:
    """Clamp the number of a diagonal to a range that int64 can represent, beyond all matrices."""
    return builtins.max(-(1 << 62), builtins.min(int(k), 1 << 62))


@function
def _grid(arrays: list[Tensor], indexing: str) -> Tensor:
    count = len(arrays)
    axes = list(range(count))
    if indexing == "xy" and count > 1:
        axes[:2] = 1, 0
    columns = [
        ops.unsqueeze(x, tuple(other for other in range(count) if other != axis)) if count > 1 else x
        for x, axis in zip(arrays, axes, strict=True)
    ]
    return broadcast_arrays(*columns)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Return the coordinate arrays of a grid, one for each vector, which varies along its own axis.

    Args:
        arrays: Vectors of one dtype.
        indexing: "ij" for axes in the order of the arrays, "xy" with the first two swapped.

    Returns:
        A tuple, as in version 2025.12; earlier versions have a list.

    Raises:
        ShapeError: For arrays that are not vectors and for another indexing.
    """
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"meshgrid: unknown indexing {indexing!r}", help='use "xy" or "ij"')
    if not arrays:
        return ()
    for x in arrays:
        if x.ndim != 1:
            raise ShapeError(
                f"meshgrid: arrays must be vectors, got rank {x.ndim}", operands={"x": x}, help="flatten it"
            )
    return tuple(_grid(list(arrays), indexing))


__all__ = public(globals())
