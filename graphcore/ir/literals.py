"""Values that users give for constants and weights, as arrays of the dtypes they are to have."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.arrays import big_integers, casting
from graphcore.arrays.casting import Array
from graphcore.arrays.eager_array import EagerArray
from graphcore.errors import DTypeError
from graphcore.promotion.rules import NoPromotion, Real, Scalar, check_literal, no_complex
from graphcore.promotion.system import PromotionSystem
from graphcore.support.escaping import text_of
from graphcore.types.dtypes import MOST_BITS, DType, real_of


def array_dtype(array: Array | np.generic, op: str, role: str) -> DType:
    """The dtype of what a user gives as an array. Raises `DTypeError` where there is none of its kind, and for a masked
    array, whose masks a tensor would lose."""
    if casting.is_masked(array):
        raise DTypeError(
            f"{op}: {role} is a masked array, and a tensor knows no masks",
            help="fill what is masked: array.filled(0)",
        )
    try:
        return DType.of(array.dtype)
    except DTypeError as error:
        raise DTypeError(f"{op}: {role} is an array of {array.dtype}", help=error.help) from None


def scalar_array(value: Scalar, dtype: DType) -> Array:
    """A Python number that `dtype` holds, as an array of no axes."""
    if isinstance(value, complex):
        return np.array(value, dtype.numpy)
    if big_integers.is_wide(dtype):
        return big_integers.array_of(int(value))
    plain = np.array(value, np.float64 if isinstance(value, float) else _integer_dtype(value))
    return casting.cast_array(plain, DType.of(plain.dtype), dtype)


def _integer_dtype(value: Real) -> type[np.generic]:
    if isinstance(value, bool):
        return np.bool_
    if -(1 << 63) <= value < 1 << 63:
        return np.int64
    return np.uint64 if 0 <= value < 1 << 64 else np.float64  # held exactly, or it would have been refused


def array_of(value: Any, dtype: object = None) -> tuple[Array, DType]:
    """A constant's value as an array, and the dtype it has by itself. dtype: what it is going to be, if that is known.

    Python integers beyond 64 bits are of no dtype by themselves: they must be going to be of a wide one.
    """
    is_wide = dtype is not None and big_integers.is_wide(DType.of(dtype))
    if is_wide and (array := big_integers.integers(value)) is not None:
        if any(item.bit_length() > MOST_BITS for item in array.ravel()):
            raise _no_tensor(value)
        return array, big_integers.least_dtype(array)
    if isinstance(value, EagerArray):
        array, own = value._data, value.dtype
    elif isinstance(value, (np.ndarray, np.generic)):
        own = array_dtype(value, "constant", "value")
        array = casting.native(np.asarray(value))
    else:
        try:
            array = _uint64_of(value, np.asarray(value))
            own = DType.of(array.dtype)
        except (ValueError, DTypeError, OverflowError):
            raise _no_tensor(value) from None
    if own is DType.string:
        array = array.astype(object)
        if not all(isinstance(item, str) and _is_text(item) for item in array.ravel()):
            raise _no_tensor(value)
    return array, own


def require_text(array: Array, what: str) -> None:
    """Raise `DTypeError` for an array of objects of which one is no text, or half of a character."""
    for item in array.flat:
        if isinstance(item, str) and not _is_text(item):
            raise DTypeError(f"{what}: {item!r:.40} is half of a character", help="give text that UTF-8 encodes")
        if not isinstance(item, (str, bytes)):
            raise DTypeError(
                f"{what}: an array of objects is one of strings, and this has a {type(item).__name__} in it",
                operands={"element": f"{item!r:.60}"},
                help="give an array of str alone, or one of numbers: np.asarray(values, np.float32)",
            )


def _uint64_of(value: Any, array: Array) -> Array:
    """Return the array of Python numbers, which NumPy makes float64 of integers from 2^63 on beside smaller ones."""
    if array.dtype != np.float64 or not array.size or array.max() < 1 << 63:
        return array
    whole = big_integers.integers(np.array(value, object))
    is_uint64 = whole is not None and bool(whole.min() >= 0) and bool(whole.max() < 1 << 64)
    return np.asarray(whole, np.uint64) if is_uint64 else array


def _is_text(item: str) -> bool:
    """Return whether a text has a UTF-8 encoding, which half of a surrogate pair has not."""
    try:
        item.encode()
    except UnicodeEncodeError:
        return False
    return True


def python_dtype(array: Array, own: DType, system: PromotionSystem) -> DType:
    """The dtype of a constant that was written as Python numbers, of which NumPy made an array of dtype `own`."""
    if own is DType.complex128:
        return literal_dtype(system, 0j, "constant")
    if own is not DType.int64 and own is not DType.float64:
        return own
    return system.default_dtype(
        [array.min().item(), array.max().item()] if array.size else [array.dtype.type(0).item()]
    )


def literal_dtype(system: PromotionSystem, value: Scalar, op: str) -> DType:
    """Return the dtype of a Python number that meets no Symbol. Raises `PromotionError` where the system has none."""
    try:
        if isinstance(value, complex) and not system.has_complex:
            raise no_complex(system.name)
        return system.default_dtype([value])
    except NoPromotion as refusal:
        raise refusal.error(f"{op}: {refusal.reason}", operands={"value": repr(value)}, help=refusal.help) from None


def _no_tensor(value: object) -> DTypeError:
    if (bits := _most_bits(value)) > MOST_BITS:
        return DTypeError(
            f"constant: {text_of(value):.80} is of no dtype: integers have {MOST_BITS} bits at most",
            help="split it into shorter integers",
        )
    if bits > 64:
        return DTypeError(
            f"constant: {text_of(value):.80} is of no dtype by itself: it has more than 64 bits",
            help=f"say which one is meant: dtype=DType.int({bits + 1})",
        )
    return DTypeError(
        f"constant: {text_of(value):.80} is no tensor", help="give an array, a number, or nested lists of equal lengths"
    )


def _most_bits(value: object) -> int:
    """Return the length of an int, or of the longest one in a list; 0 for what is neither."""
    if isinstance(value, (list, tuple)):
        return max((item.bit_length() for item in value if isinstance(item, int)), default=0)
    return value.bit_length() if isinstance(value, int) else 0


def holds_numpy(value: Any) -> bool:
    """Return whether it is a NumPy value, an eager array or nested lists of them, which keep their own dtype."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (np.ndarray, np.generic, EagerArray))


def held_as(array: Array, own: DType, wanted: DType, op: str) -> Array:
    """The array as `wanted`, refusing elements that it cannot hold."""
    if own is DType.string and big_integers.is_wide(wanted) and (found := big_integers.integers(array)) is not None:
        array, own = found, big_integers.least_dtype(found)
    if own is DType.string or wanted is DType.string:
        raise DTypeError(f"{op}: {own} values do not become {wanted}", help="leave out dtype")
    cast = casting.cast_array(array, own, wanted)
    if wanted.is_complex:
        held_as(array if own.is_complex is False else _parts(array), real_of(own), wanted.storage, op)
        return cast
    for value in _doubtful(array, own, cast, wanted):
        try:
            check_literal(value, wanted)
        except NoPromotion as refusal:
            raise DTypeError(f"{op}: {refusal.reason}", help=refusal.help) from None
    return cast


def _parts(array: Array) -> Array:
    """Return the real and imaginary parts of complex numbers along a last axis."""
    return np.stack([array.real, array.imag], axis=-1)


def _doubtful(array: Array, own: DType, cast: Array, wanted: DType) -> list[Scalar]:
    """The elements among which one is that `wanted` cannot hold, if there is any."""
    if not array.size:
        return []
    plain = array.astype(np.int8) if own.bits == 4 else array
    if not wanted.is_float:
        if own.is_float:
            return [float(array.flat[0])]
        convert = bool if own is DType.bool else int
        return [convert(plain.min()), convert(plain.max())]
    wide = cast.astype(np.float64)
    if own.is_float:
        wrong = np.isfinite(array.astype(np.float64)) & ~np.isfinite(wide)
    else:
        # What rounded up to the first number beyond the dtype would saturate on the way back.
        back = casting.cast_array(cast, wanted, own)
        wrong = (back != array) | (wide >= float(int(own.max) + 1))
    return [float(v) if own.is_float else int(v) for v in plain[wrong][:1]]
