"""Converts the values of constants and weights to arrays of their dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.arrays import big_integers, casting
from graphcore.arrays.casting import Array
from graphcore.arrays.eager_array import EagerArray
from graphcore.errors import DTypeError, ShapeError
from graphcore.promotion.rules import NoPromotion, Real, Scalar, check_literal, no_complex
from graphcore.promotion.system import PromotionSystem
from graphcore.support.escaping import text_of
from graphcore.types.dtypes import MAX_BITS, TRANSPORT, DType, real_of
from graphcore.types.tensor_types import TensorType


def array_dtype(array: Array | np.generic, op: str, role: str) -> DType:
    """Return the DType of a NumPy array. Raises `DTypeError` if there is none, and for masked arrays."""
    if casting.is_masked(array):
        raise DTypeError(
            f"{op}: {role} is a masked array, and tensors have no masks",
            help="replace the masked elements: array.filled(0)",
        )
    try:
        return DType.of(array.dtype)
    except DTypeError as error:
        raise DTypeError(f"{op}: {role} is an array of unsupported dtype {array.dtype}", help=error.help) from None


def scalar_array(value: Scalar, dtype: DType) -> Array:
    """Return a Python number that `dtype` can represent as an array of rank 0."""
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
    return np.uint64 if 0 <= value < 1 << 64 else np.float64  # exact, or the caller would have rejected it


def array_of(value: Any, dtype: object = None) -> tuple[Array, DType]:
    """Return the value of a constant as an array, and its own dtype. dtype: the dtype of the constant, if known.

    Python integers beyond 64 bits have no dtype of their own: `dtype` must be a wide integer then.
    """
    is_wide = dtype is not None and big_integers.is_wide(DType.of(dtype))
    if is_wide and (array := big_integers.integers(value)) is not None:
        if any(item.bit_length() > MAX_BITS for item in array.ravel()):
            raise _not_a_tensor(value)
        return array, big_integers.least_dtype(array)
    if isinstance(value, EagerArray):
        array, own = value._data, value.dtype
    elif isinstance(value, (np.ndarray, np.generic)):
        own = array_dtype(value, "constant", "value")
        array = casting.native(np.asarray(value))
    else:
        tensor = casting.third_party_array(value)
        try:
            array = _uint64_of(value, _of_list(value)) if tensor is None else casting.native(tensor)
            own = DType.of(array.dtype)
        except (ValueError, TypeError, DTypeError, OverflowError):
            raise _not_a_tensor(value) from None
    if own is DType.string:
        array = array.astype(object)
        if not all(isinstance(item, str) and is_text(item) for item in array.ravel()):
            raise _not_a_tensor(value)
    return array, own


def _of_list(value: Any) -> Array:
    """Return a number, or nested lists, as an array; tensors of other libraries may be among them."""
    try:
        return np.asarray(value)
    except TypeError:  # of tensors with dtypes that NumPy lacks
        if not isinstance(value, (list, tuple)):
            raise
        return np.asarray([array_of(item)[0] for item in value])


def default_array(type_: TensorType, name: str, value: Any) -> Array:
    """Return the default of an input as an array of its type. Raises `DTypeError`, `ShapeError`."""
    array, dtype = array_of(value, type_.dtype)
    if dtype is not type_.dtype:
        array = checked_cast(array, dtype, type_.dtype, "Graph")
    if not type_.shape.allows(array.shape):
        raise ShapeError(
            f"Graph: the default of input {name!r} has shape {list(array.shape)}, which does not fit its type",
            operands={name: str(type_)},
            help="give an array of that shape, or name the dims whose sizes change",
        )
    return array


def stored_default(array: Array, type_: TensorType) -> Array:
    """Return the default of an input as an array of the type that a lowered input has."""
    if array.dtype.kind == "c" and not type_.dtype.is_complex:
        return casting.paired(array)
    if type_.dtype is DType.string:
        return array
    if array.dtype == object:
        return big_integers.to_digits(array, DType.int(32 * int(type_.shape[-1])))
    return casting.cast_array(array, DType.of(array.dtype), type_.dtype.storage)


def require_text(array: Array, what: str) -> None:
    """Raise `DTypeError` for an array of objects with an element that is not text, or has no UTF-8 encoding."""
    for item in array.flat:
        if isinstance(item, str) and not is_text(item):
            raise DTypeError(f"{what}: {item!r:.40} has an unpaired surrogate", help="pass text that UTF-8 encodes")
        if not isinstance(item, (str, bytes)):
            raise DTypeError(
                f"{what}: an array of objects must contain only strings, got an element of type {type(item).__name__}",
                operands={"element": f"{item!r:.60}"},
                help="pass an array of str, or an array of numbers: np.asarray(values, np.float32)",
            )


def _uint64_of(value: Any, array: Array) -> Array:
    """Return the array of Python numbers, as uint64 where NumPy would round large integers to float64."""
    if array.dtype != np.float64 or not array.size or array.max() < 1 << 63:
        return array
    integers = big_integers.integers(np.array(value, object))
    is_uint64 = integers is not None and bool(integers.min() >= 0) and bool(integers.max() < 1 << 64)
    return np.asarray(integers, np.uint64) if is_uint64 else array


def is_text(item: str) -> bool:
    """Return True if a text has a UTF-8 encoding, which an unpaired surrogate has not."""
    try:
        item.encode()
    except UnicodeEncodeError:
        return False
    return True


def python_dtype(array: Array, own: DType, system: PromotionSystem) -> DType:
    """Return the dtype of a constant of Python numbers, which NumPy converts to an array of dtype `own`."""
    if own is DType.complex128:
        return literal_dtype(system, 0j, "constant")
    if own is not DType.int64 and own is not DType.float64:
        return own
    return system.default_dtype(
        [array.min().item(), array.max().item()] if array.size else [array.dtype.type(0).item()]
    )


def literal_dtype(system: PromotionSystem, value: Scalar, op: str) -> DType:
    """Return the dtype of a Python number without another operand. Raises `PromotionError` if the system has none."""
    try:
        if isinstance(value, complex) and not system.has_complex:
            raise no_complex(system.name)
        return system.default_dtype([value])
    except NoPromotion as refusal:
        raise refusal.error(f"{op}: {refusal.reason}", operands={"value": repr(value)}, help=refusal.help) from None


def _not_a_tensor(value: object) -> DTypeError:
    if (bits := _max_bits(value)) > MAX_BITS:
        return DTypeError(
            f"constant: {text_of(value):.80} fits no dtype: integers have {MAX_BITS} bits at most",
            help="split it into shorter integers",
        )
    if bits > 64:
        return DTypeError(
            f"constant: {text_of(value):.80} has more than 64 bits, and no default dtype",
            help=f"state the dtype: dtype=DType.int({bits + 1})",
        )
    return DTypeError(
        f"constant: {text_of(value):.80} cannot be converted to a tensor",
        help="pass an array, a number, or nested lists of equal lengths",
    )


def _max_bits(value: object) -> int:
    """Return the bit length of an int, or the largest one in a list; 0 for other values."""
    if isinstance(value, (list, tuple)):
        return max((item.bit_length() for item in value if isinstance(item, int)), default=0)
    return value.bit_length() if isinstance(value, int) else 0


def holds_numpy(value: Any) -> bool:
    """Return True for NumPy values, eager arrays, and nested lists of them, which keep their own dtype."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, np.generic) or hasattr(type(value), "__dlpack__")


def checked_cast(array: Array, source: DType, target: DType, op: str) -> Array:
    """Return the array cast to `target`. Raises `DTypeError` for elements that it cannot represent."""
    if (
        source is DType.string
        and big_integers.is_wide(target)
        and (integers := big_integers.integers(array)) is not None
    ):
        array, source = integers, big_integers.least_dtype(integers)
    if source is DType.string or target is DType.string:
        raise DTypeError(f"{op}: {source} values cannot be cast to {target}", help="leave out dtype")
    cast = casting.cast_array(array, source, target)
    if target.is_complex:
        checked_cast(
            array if source.is_complex is False else casting.paired(array), real_of(source), target.storage, op
        )
        return cast
    for value in _elements_to_check(array, source, cast, target):
        try:
            check_literal(value, target)
        except NoPromotion as refusal:
            raise DTypeError(f"{op}: {refusal.reason}", help=refusal.help) from None
    return cast


def _elements_to_check(array: Array, source: DType, cast: Array, target: DType) -> list[Scalar]:
    """Return elements to check: one of them is out of range of `target` if any element of the array is."""
    if not array.size:
        return []
    plain = array.astype(np.int8) if source.bits == 4 else array
    if not target.is_float:
        if source.is_float:
            return [float(array.flat[0])]
        convert = bool if source is DType.bool else int
        return [convert(plain.min()), convert(plain.max())]
    wide = cast.astype(np.float64)
    if source.is_float:
        exact = array.astype(np.float64)
        wrong = ~(np.abs(exact) <= target.max) if target in TRANSPORT else np.isfinite(exact) & ~np.isfinite(wide)
    else:
        # A value rounded up to the first number beyond the dtype would saturate when cast back.
        back = casting.cast_array(cast, target, source)
        wrong = (back != array) | (wide >= float(int(source.max) + 1))
    return [float(v) if source.is_float else int(v) for v in plain[wrong][:1]]
