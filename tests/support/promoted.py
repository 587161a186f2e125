"""Four promotion systems stated once more, by the rules that their publications give in words, and expressions of them.

A program is a list of steps on a pool of values. `built` makes the Symbols of it, `Value`s are what NumPy makes of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graphcore import DType, Symbol, ops
from graphcore.errors import DTypeError, PromotionError
from tests.promotion.test_promotion import TABLES
from tests.support import reference

Array = np.ndarray[Any, Any]
D = DType
Literal = bool | int | float

FLOAT8 = (D.float8_e4m3fn, D.float8_e5m2)
SIGNED = (D.int8, D.int16, D.int32, D.int64)
UNSIGNED = (D.uint8, D.uint16, D.uint32, D.uint64)
DTYPES: dict[str, tuple[DType, ...]] = {
    "max": tuple(dict.fromkeys(lhs for lhs, _ in TABLES["max"])),
    "kernel_float": (D.bool, *SIGNED, *UNSIGNED, *FLOAT8, D.float16, D.bfloat16, D.float32, D.float64),
    "anvil": (D.bool, *SIGNED, *UNSIGNED, D.float32, D.float64),
    "array_api": (D.bool, *SIGNED, *UNSIGNED, D.float32, D.float64),
}


class Refused(Exception):
    """A rule does not allow it. error: what the library raises."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__(error.__name__)
        self.error = error


@dataclass(frozen=True)
class Value:
    """The expected Symbol. unsure: elements made of a zero whose sign is not guaranteed."""

    array: Array
    dtype: DType
    ambiguous: bool = False
    unsure: Array = field(default_factory=lambda: np.zeros((), bool))

    def cast(self, dtype: DType) -> Array:
        return reference.cast(self.array, self.dtype, dtype)


Operand = Value | Literal


# What two dtypes meet in


def meet_max(lhs: DType, rhs: DType) -> DType:
    return TABLES["max"][lhs, rhs]


def meet_kernel_float(lhs: DType, rhs: DType) -> DType:
    """bool gives way; a float beats integers; the wider float or integer; float16 with bfloat16 is float32."""
    if lhs is rhs or rhs is D.bool:
        return lhs
    if lhs is D.bool:
        return rhs
    if lhs.is_float != rhs.is_float:
        return lhs if lhs.is_float else rhs
    if lhs.bits == rhs.bits and lhs.bits == 16 and lhs.is_float:
        return D.float32
    if lhs.bits == rhs.bits == 8 and lhs.is_float:
        raise Refused(PromotionError)
    if lhs.is_integer and lhs.is_signed != rhs.is_signed:
        raise Refused(PromotionError)
    return lhs if lhs.bits > rhs.bits else rhs


def meet_anvil(lhs: DType, rhs: DType) -> DType:
    """As in kernel_float, but of two signs it is the signed one if wider, else twice the unsigned, to 64 bits."""
    if not (lhs.is_integer and rhs.is_integer) or lhs.is_signed == rhs.is_signed:
        return meet_kernel_float(lhs, rhs)
    signed, unsigned = (lhs, rhs) if lhs.is_signed else (rhs, lhs)
    return signed if signed.bits > unsigned.bits else D.int(min(64, 2 * unsigned.bits))


def meet_array_api(lhs: DType, rhs: DType) -> DType:
    """Within a kind the wider; signed with unsigned the signed one that holds both; all else is undefined."""
    if lhs is rhs:
        return lhs
    if D.bool in (lhs, rhs) or lhs.is_float != rhs.is_float:
        raise Refused(PromotionError)
    if lhs.is_float or lhs.is_signed == rhs.is_signed:
        return lhs if lhs.bits > rhs.bits else rhs
    signed, unsigned = (lhs, rhs) if lhs.is_signed else (rhs, lhs)
    if unsigned.bits == 64:
        raise Refused(PromotionError)
    return signed if signed.bits > unsigned.bits else D.int(2 * unsigned.bits)


def default_dtype(system: str, literal: Literal) -> DType:
    if isinstance(literal, bool):
        return D.bool
    if isinstance(literal, int):
        return D.int32
    return D.float64 if system == "kernel_float" else D.float32


def joined(system: str, value: Sequence[Operand]) -> tuple[DType, bool]:
    """Return the common dtype of operands, folded from the left, and whether it is only a default."""
    return {"max": _joined_max, "kernel_float": _joined_kernel_float, "anvil": _joined_anvil}.get(
        system, _joined_array_api
    )(value)


def _joined_max(values: Sequence[Operand]) -> tuple[DType, bool]:
    dtypes = [v.dtype for v in values if isinstance(v, Value)]
    met = dtypes[0]
    for dtype in dtypes[1:]:
        met = meet_max(met, dtype)
    for value in values:
        if not isinstance(value, Value):
            fits_bool = met is not D.bool or value in (0, 1)
            fits_sign = not met.is_unsigned or value >= 0
            if (isinstance(value, float) and not met.is_float) or not fits_bool or not fits_sign:
                raise Refused(DTypeError)
    return met, False


def _joined_kernel_float(values: Sequence[Operand]) -> tuple[DType, bool]:
    met: DType | None = None
    is_constant = True
    for value in values:
        dtype = value.dtype if isinstance(value, Value) else default_dtype("kernel_float", value)
        constant = isinstance(value, Value) and value.ambiguous
        if met is None or (is_constant and not constant):
            met = dtype
        elif is_constant or not constant:
            met = meet_kernel_float(met, dtype)
        is_constant = is_constant and constant
    assert met is not None
    return met, is_constant


def _joined_anvil(values: Sequence[Operand]) -> tuple[DType, bool]:
    pairs = [
        (v.dtype, v.ambiguous) if isinstance(v, Value) else (default_dtype("anvil", v), not isinstance(v, bool))
        for v in values
    ]
    met, ambiguous = pairs[0]
    for dtype, other in pairs[1:]:
        if ambiguous == other:
            met = meet_anvil(met, dtype)
            continue
        guess, expected = (met, dtype) if ambiguous else (dtype, met)
        # A guess gives way, but for one of a float to what is none, and of anything to a bool.
        stays = (guess.is_float and not expected.is_float) or (expected is D.bool and guess is not D.bool)
        met, ambiguous = (guess, True) if stays else (expected, False)
    for value in values:
        if not isinstance(value, Value) and met.is_unsigned and value < 0:
            raise Refused(DTypeError)
    return met, ambiguous


def _joined_array_api(values: Sequence[Operand]) -> tuple[DType, bool]:
    dtypes = [v.dtype for v in values if isinstance(v, Value)]
    met = dtypes[0]
    for dtype in dtypes[1:]:
        met = meet_array_api(met, dtype)
    for value in values:
        if isinstance(value, Value):
            continue
        kinds = {bool: met is D.bool, int: met.is_float or met.is_integer, float: met.is_float}
        if not kinds[type(value)] or (met.is_unsigned and value < 0):
            raise Refused(PromotionError)
    return met, False


# What ops make of their operands


def outcome(system: str, op: str, value: Sequence[Operand]) -> Value | Refused:
    """`compute`, or why not."""
    try:
        return compute(system, op, value)
    except Refused as refusal:
        return refusal


def compute(system: str, op: str, value: Sequence[Operand]) -> Value:
    """An op of `OPS` on operands of a system. Raises `Refused`."""
    result = _compute(system, op, value)
    if system == "kernel_float" and op in ("max", "min", "abs", "sqrt", "where") and not result.array.ndim:
        return replace(result, array=result.array.reshape(1))  # functions make vectors of their arguments
    return result


def _compute(system: str, op: str, values: Sequence[Operand]) -> Value:
    if op in ("where", "cast", "sum"):
        return {"where": _where, "cast": _cast, "sum": _sum}[op](system, values)
    dtype, ambiguous = joined(system, values)
    _check(system, op, dtype)
    cast = [v.cast(dtype) if isinstance(v, Value) else _of_literal(system, v, dtype, ambiguous) for v in values]
    arrays = list(np.broadcast_arrays(*cast))
    unsure = np.zeros((), bool)
    for value in values:
        if isinstance(value, Value):
            unsure = unsure | value.unsure
    result = Value(arrays[0], dtype, ambiguous)
    if op in COMPARISONS:
        array = reference.compare(op, *arrays)
        to = dtype if system == "kernel_float" and not _is_of_scalars(values) else D.bool
        return Value(reference.cast(array, D.bool, to), to, ambiguous, unsure)
    if op in BITWISE:
        if dtype.is_float:
            array = BITWISE[op](*(reference.cast(a, dtype, D.bool) for a in arrays))
            return replace(result, array=reference.cast(array, D.bool, dtype))
        return replace(result, array=BITWISE[op](*arrays))
    if op == "/":
        return _quotient(system, result, values, arrays, unsure)
    if op == "sqrt":
        if not dtype.is_float:
            real = _real(dtype) if system == "max" else D.float32
            result = Value(reference.cast(arrays[0], dtype, real), real, system == "anvil")
        return replace(result, array=reference._float(np.sqrt, result.dtype, result.array), unsure=unsure)
    if op in ("max", "min") and dtype.is_float:
        wide = [reference.exact(a) for a in arrays]
        unsure = unsure | ((wide[0] == 0) & (wide[1] == 0) & (np.signbit(wide[0]) != np.signbit(wide[1])))
    array = _arithmetic(op, arrays, dtype)
    return replace(result, array=array, unsure=unsure)


def _is_of_scalars(values: Sequence[Operand]) -> bool:
    """Return True for scalars that C++ compares itself: not vectors, and not constants alone."""
    is_scalar = all(not isinstance(v, Value) or not v.array.ndim for v in values)
    return is_scalar and not all(isinstance(v, Value) and v.ambiguous for v in values)


def _of_literal(system: str, literal: Literal, dtype: DType, ambiguous: bool) -> Array:
    own = D.float64 if isinstance(literal, float) else D.bool if isinstance(literal, bool) else D.int64
    return reference.cast(np.array(literal, own.numpy), own, dtype)


def _check(system: str, op: str, dtype: DType) -> None:
    wrong = PromotionError if system == "array_api" else DTypeError
    is_bool = dtype is D.bool
    if op in ("-", "neg") and is_bool and system != "kernel_float":
        raise Refused(wrong)
    if op == "neg" and system == "kernel_float" and dtype in FLOAT8:
        raise Refused(wrong)
    if op == "~" and dtype.is_float:
        raise Refused(wrong)
    if op in BITWISE and dtype.is_float and system != "kernel_float":
        raise Refused(wrong)
    if system == "kernel_float" and op in ("abs", "sqrt") and not dtype.is_float:
        raise Refused(wrong)
    if system == "array_api" and op in ("/", "sqrt") and not dtype.is_float:
        raise Refused(wrong)
    if system == "array_api" and is_bool and op in ("+", "*", "max", "min", "abs", "<", ">="):
        raise Refused(wrong)


def _real(dtype: DType) -> DType:
    return D.float16 if dtype.bits <= 8 else D.float32 if dtype.bits <= 16 else D.float64


def _quotient(system: str, result: Value, values: Sequence[Operand], arrays: Sequence[Array], unsure: Array) -> Value:
    dtype = result.dtype
    if system == "max" and not dtype.is_float:
        x, y = (v.cast(D.float64) if isinstance(v, Value) else np.array(v, np.float64) for v in values)
        with np.errstate(all="ignore"):
            return Value(np.asarray(np.divide(x, y)), D.float64)
    if dtype.is_float:
        return replace(result, array=reference._float(np.divide, dtype, *arrays), unsure=unsure)
    if dtype is D.bool:
        return replace(result, array=arrays[0] & arrays[1])
    x, y = arrays
    quotients = [_truncated(int(a), int(b)) for a, b in zip(x.ravel(), y.ravel(), strict=True)]
    return replace(result, array=reference.wrapped(quotients, dtype).reshape(x.shape))


def _truncated(x: int, y: int) -> int:
    if y == 0:
        return 0
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _arithmetic(op: str, arrays: Sequence[Array], dtype: DType) -> Array:
    x = arrays[0]
    if dtype is D.bool and op in ("-", "neg"):  # as C++: through int, and back to bool
        return x ^ arrays[1] if op == "-" else x
    if op in ("+", "-", "*", "max", "min"):
        return reference.arithmetic(op, x, arrays[1], dtype).reshape(x.shape).astype(x.dtype)
    if op == "~":
        return np.asarray(~x)
    if dtype is D.bool:  # abs
        return x
    if dtype.is_float:
        return reference._float(np.negative if op == "neg" else np.abs, dtype, x)
    return reference.wrapped([-int(v) if op == "neg" else abs(int(v)) for v in x.ravel()], dtype).reshape(x.shape)


def _where(system: str, values: Sequence[Operand]) -> Value:
    chooser, *choices = values
    assert isinstance(chooser, Value)
    dtype, ambiguous = joined(system, choices)
    arrays = [v.cast(dtype) if isinstance(v, Value) else _of_literal(system, v, dtype, ambiguous) for v in choices]
    unsure = np.zeros((), bool)
    for value in values:
        if isinstance(value, Value):
            unsure = unsure | value.unsure
    return Value(np.where(chooser.cast(D.bool), *arrays), dtype, ambiguous, unsure)


def _cast(system: str, argument: Sequence[Any]) -> Value:
    value, dtype = argument
    return value if value.dtype is dtype else Value(value.cast(dtype), dtype, False, value.unsure)


def _sum(system: str, value: Sequence[Any]) -> Value:
    """The sum along the only axis, which stays; of integers and bools."""
    (x,) = value
    if x.dtype is D.bool and system == "array_api":
        raise Refused(PromotionError)
    ambiguous = x.ambiguous and system == "anvil"
    if x.dtype is D.bool:
        if system == "max":
            return Value(x.array.sum(axis=0, keepdims=True, dtype=np.int64), D.int64)
        return Value(x.array.any(axis=0, keepdims=True), D.bool, ambiguous)
    total = [sum(int(v) for v in x.array.ravel())]
    return Value(reference.wrapped(total, x.dtype), x.dtype, ambiguous)


COMPARISONS = ("<", ">=", "==", "!=")
BITWISE: dict[str, Callable[..., Any]] = {"&": operator.and_, "|": operator.or_, "^": operator.xor}

OPS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "max": ops.maximum,
    "min": ops.minimum, "<": operator.lt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, **BITWISE,
    "neg": operator.neg, "~": operator.invert, "abs": abs, "sqrt": ops.sqrt, "where": ops.where, "cast": ops.cast,
    "sum": lambda x: ops.sum(x, axis=0, keepdims=True),
}  # fmt: skip
"""The function that builds each op."""

UNARY = ("neg", "~", "abs", "sqrt")
BINARY = ("+", "-", "*", "/", "max", "min", *COMPARISONS, *BITWISE)


def assert_value(what: str, symbol: Symbol, got: Array, want: Value) -> None:
    """The bits of what was computed, any NaN being equal to any other."""
    assert got.dtype == want.array.dtype, f"{what}: {got.dtype}, not {want.array.dtype}"
    shape = np.broadcast_shapes(got.shape, want.array.shape)
    a, b = (np.broadcast_to(reference.exact(v), shape) for v in (got, want.array))
    zero = (b == 0) & (np.signbit(a) != np.signbit(b)) & want.dtype.is_float
    same = ((a == b) & ~zero) | (np.isnan(a) & np.isnan(b)) | want.unsure
    assert same.all(), f"{what}: {a[~same][0]}, not {b[~same][0]}"
