"""Casts of NumPy arrays with the library's semantics (docs/numbers.md), and normalisation of arrays."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays import big_integers
from graphcore.errors import DTypeError
from graphcore.types.dtypes import DType, Kind, real_of_complex

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def native(array: Array) -> Array:
    """Return the array in native byte order, C-contiguous, with bools as 0 and 1; itself if it is already.

    NumPy accepts any byte as a bool, but kernels compute with the bytes.
    """
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        array = array.view(np.uint8).astype(np.bool_)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def third_party_array(value: object) -> Array | None:
    """Return a tensor of another library as an array, without a copy where NumPy can view it; None for other values.

    Raises `DTypeError` if it is not in the CPU's memory, or NumPy cannot convert it.
    """
    kind = type(value)
    if isinstance(value, np.ndarray) or not hasattr(kind, "__dlpack__"):
        return None
    refusals: list[str] = []
    for convert in (_through_dlpack, np.asarray):
        try:
            return convert(value)
        except Exception as error:  # each library has its own reasons: another device, a dtype
            refusals.append(f"{type(error).__name__}: {error}".partition("\n")[0])
    raise DTypeError(
        f"a {kind.__name__} cannot be converted to an array: {refusals[-1]}",
        help="make it dense, in the CPU's memory: tensor.cpu(), tensor.to_dense(), tensor.dequantize(). "
        "A tensor of the device meta has no values",
    )


def _through_dlpack(value: Any) -> Array:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return np.from_dlpack(value)
    tensor, dtype = value.detach(), DType.of(value.dtype).numpy
    if dtype.isbuiltin == 1:
        return np.from_dlpack(tensor)
    bits = tensor.view({1: torch.uint8, 2: torch.int16}[dtype.itemsize])  # NumPy's DLPack has no such floats
    return np.from_dlpack(bits).view(dtype)


def is_masked(value: object) -> bool:
    """Return True for masked arrays of NumPy, without importing numpy.ma for other values, which is slow."""
    return type(value) is not np.ndarray and isinstance(value, np.ndarray) and isinstance(value, np.ma.MaskedArray)


def cast_array(array: Array, source: DType, target: DType) -> Array:
    """Cast an array of dtype `source` to dtype `target`.

    Float to integer truncates and saturates, and NaN becomes 0; integer to integer wraps; to bool is `!= 0`; to float,
    and to the parts of a complex number, rounds once, to nearest even. Raises `DTypeError` for casts from or to
    strings, and of complex numbers to real dtypes.
    """
    if source is target:
        return array
    if DType.string in (source, target):
        raise DTypeError(f"cast: {source} values cannot be cast to {target}", help="convert strings before the graph")
    if source.is_complex or target.is_complex:
        return _cast_complex(array, source, target)
    if max(source.bits, target.bits) > 64:
        return _cast_wide(array, source, target)
    with np.errstate(over="ignore", invalid="ignore"):  # signalling NaNs and overflow are not errors
        if target.kind is Kind.bool:
            return np.not_equal(_plain(array, source), 0)
        if target.is_integer:
            whole = _float_to_integer(array, source, target) if source.is_float else _wrapped(array, target)
            return whole.astype(target.numpy)
        if target is DType.tensor_float32:
            exact = source.is_float and source.bits <= 32
            wide = _plain(array, source)
            return round_tf32(wide.astype(np.float32) if exact else _odd_float32(wide))
        return _round(array, source, target)


def _cast_complex(array: Array, source: DType, target: DType) -> Array:
    """Cast from or to complex numbers: each part separately; to bool by `!= 0`."""
    if not source.is_complex:
        return cast_array(array, source, target.storage).astype(target.numpy)
    if target.kind is Kind.bool:
        return np.not_equal(array, 0)
    if not target.is_complex:
        raise real_of_complex(source, target)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(target.numpy)


def paired(array: Array) -> Array:
    """Return complex numbers as pairs of floats along a new last axis: a view of a contiguous array."""
    array = native(array)
    real = np.float32 if array.dtype == np.complex64 else np.float64
    return array.reshape(*array.shape, 1).view(real)


def unpaired(array: Array) -> Array:
    """Return pairs of floats along the last axis as complex numbers: a view of a contiguous array."""
    array = native(array)
    whole = np.complex64 if array.dtype == np.float32 else np.complex128
    return array.view(whole).reshape(array.shape[:-1])


def _cast_wide(array: Array, source: DType, target: DType) -> Array:
    """Cast from or to an integer of more than 64 bits."""
    if source.is_float:
        return big_integers.of_floats(cast_array(array, source, DType.float64), target)
    if not target.is_float:
        return big_integers.cast_integers(array, target)
    values, shifts = big_integers.scaled(array)
    near = cast_array(values, DType.int64, target)
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(near.astype(np.float64), shifts)).astype(target.numpy)


def round_tf32(array: Array) -> Array:
    """Return float32 values rounded to 10 mantissa bits, ties to even; NaN and infinities are unchanged."""
    bits = np.asarray(array, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(array), rounded.view(np.float32), array).astype(np.float32)


def _plain(array: Array, dtype: DType) -> Array:
    """Widen narrow dtypes exactly to a dtype that NumPy computes in."""
    if dtype.is_float and dtype.bits < 32:
        return array.astype(np.float32)
    return array.astype(np.int8) if dtype.bits == 4 else array


def _wrapped(array: Array, target: DType) -> Array:
    """Return integers modulo 2^bits, in the array dtype of the target's storage."""
    wide = array.astype(np.int64 if array.dtype != np.uint64 else np.uint64)
    if target.bits >= 64:
        return wide.astype(target.numpy)
    low = wide.astype(np.uint64) & np.uint64((1 << target.bits) - 1)
    if target.kind is Kind.signed:
        sign = np.uint64(1 << (target.bits - 1))
        with np.errstate(over="ignore"):
            return ((low ^ sign) - sign).astype(np.int64)
    return low


def _float_to_integer(array: Array, source: DType, target: DType) -> Array:
    values = np.trunc(array.astype(np.float64))
    least, greatest = int(target.min), int(target.max)
    inside = (values >= least) & (values < float(greatest + 1))
    wide_dtype = np.uint64 if greatest >= 1 << 63 else np.int64
    whole = np.where(inside, values, 0.0).astype(wide_dtype)
    whole = np.where(values >= float(greatest + 1), np.array(greatest, wide_dtype), whole)
    return np.where(values < least, np.array(least, np.int64).astype(wide_dtype), whole)


def _round(array: Array, source: DType, target: DType) -> Array:
    """Cast to a float dtype of NumPy or ml_dtypes, rounding once."""
    if target.bits >= 32 or (source.is_float and source.bits <= 32):
        return _plain(array, source).astype(target.numpy)
    # ml_dtypes converts by way of float32, which would round twice: round to odd first.
    return _odd_float32(_plain(array, source)).astype(target.numpy)


def _odd_float32(array: Array) -> Array:
    """Round to odd in float32: rounding the result to a dtype of at most 22 bits gives the correct value."""
    if array.dtype == np.float64:
        near = array.astype(np.float32)
        exact = near.astype(np.float64) == array
        above = np.abs(near.astype(np.float64)) > np.abs(array)
    else:
        whole = array.astype(object)
        near = array.astype(np.float32)
        near_integers = big_integers.each(int, near.astype(np.float64))
        exact = np.asarray(near_integers == whole, bool)
        above = np.asarray(abs(near_integers) > abs(whole), bool)
    bits = near.view(np.uint32)
    odd = np.where(exact | np.isnan(near), bits, (bits - above.astype(np.uint32)) | np.uint32(1))
    return odd.astype(np.uint32).view(np.float32)
