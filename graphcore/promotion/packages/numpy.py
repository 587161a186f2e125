"""The promotion of NumPy 2: kinds and widths of arrays, and Python scalars that are weak (NEP 50).

Sources: NumPy's page "Data type promotion in NumPy" and the loops of its universal functions, in release 2.4. Shapes
and values never matter, except that an integer dtype must hold a Python int, unless it is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from graphcore.errors import DTypeError
from graphcore.promotion.rules import (
    IN_PARTS,
    ORDERED,
    Key,
    NoPromotion,
    Operand,
    Resolution,
    check_literal,
    smallest_float,
)
from graphcore.promotion.system import PromotionSystem, dtypes_of, read_table
from graphcore.support.escaping import text_of
from graphcore.types.dtypes import MAX_BITS, DType, real_of

D = DType

COLUMNS = ("b1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "c64", "c128")

# numpy.promote_types.
_TABLE = """
b1  : b1   i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
i8  : i8   i8   i16  i32  i64  i16  i32  i64  f64  f16  f32  f64  c64  c128
i16 : i16  i16  i16  i32  i64  i16  i32  i64  f64  f32  f32  f64  c64  c128
i32 : i32  i32  i32  i32  i64  i32  i32  i64  f64  f64  f64  f64  c128 c128
i64 : i64  i64  i64  i64  i64  i64  i64  i64  f64  f64  f64  f64  c128 c128
u8  : u8   i16  i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
u16 : u16  i32  i32  i32  i64  u16  u16  u32  u64  f32  f32  f64  c64  c128
u32 : u32  i64  i64  i64  i64  u32  u32  u32  u64  f64  f64  f64  c128 c128
u64 : u64  f64  f64  f64  f64  u64  u64  u64  u64  f64  f64  f64  c128 c128
f16 : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  c64  c128
f32 : f32  f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f64  c64  c128
f64 : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64 : c64  c64  c64  c128 c128 c64  c64  c128 c128 c64  c64  c128 c64  c128
c128: c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
"""

TABLE = dtypes_of(read_table(_TABLE, COLUMNS))

# Functions that compare complex numbers by their real, then their imaginary parts.
_SORTS = frozenset(
    {
        "argmax", "argmin", "argsort", "clip", "greater", "greater_equal", "less", "less_equal", "max", "maximum",
        "median", "min", "minimum", "sort",
    }
)  # fmt: skip
# Functions without a loop for bools, whose first loop is that of int8.
_IN_INT8 = frozenset({"conj", "floor_div", "mod", "pow", "square"})
# Functions without a loop that accepts bools.
_NOT_OF_BOOLS = frozenset({"positive", "sign"})


class NumPy(PromotionSystem):
    """NumPy's table, weak scalars, and the result dtypes of its functions."""

    name = "numpy"
    dtypes = frozenset(lhs for lhs, _ in TABLE)
    defaults = MappingProxyType({complex: D.complex128, float: D.float64, int: D.int64})
    bounds_promote = True

    def common(self, lhs: DType, rhs: DType) -> DType:
        return TABLE[lhs, rhs]

    def join(self, key: Key, operands: Sequence[Operand]) -> DType:
        joined = self._join_weak(operands)
        if key.rule != "logical":
            check_scalars(operands, _computation_dtype(key, joined))
        return joined

    def _join_weak(self, operands: Sequence[Operand]) -> DType:
        """Return the arrays' common dtype; a Python scalar of a higher kind makes it the default dtype of that kind."""
        dtypes = [o.dtype for o in operands if o.literal is None and o.dtype is not None]
        literals = [o.literal for o in operands if o.literal is not None]
        if not dtypes:
            return self.default_dtype(literals)
        joined = dtypes[0]
        for dtype in dtypes[1:]:
            joined = self.meet(joined, dtype)
        kinds = {type(value) for value in literals}
        if complex in kinds:
            return D.complex128 if joined.is_integer or joined is D.bool else self.meet(joined, D.complex64)
        if float in kinds and (joined.is_integer or joined is D.bool):
            return D.float64
        return D.int64 if int in kinds and joined is D.bool else joined

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        if key.rule == "float":
            return self._float(key, operands)
        if key.rule == "compare" and (exact := self._exact_integer(key, operands)) is not None:
            return Resolution((exact,) * len(operands), D.bool)
        joined = self.join(key, operands)
        check_order(key, joined, "NumPy", _SORTS)
        check_power(key, operands, joined, "Integers to negative integer powers are not allowed in NumPy")
        if joined is D.bool:
            if key.op in _NOT_OF_BOOLS:
                raise no_meaning(key, joined, "NumPy", "cast it to int8 first: .cast(DType.int8)")
            if key.op in _IN_INT8 or key.rule == "shift":
                joined = D.int8
            if key.op == "round":
                joined = D.float16
        if key.rule == "sum" and (joined.is_integer or joined is D.bool) and joined in self.dtypes:
            joined = D.uint64 if joined.is_unsigned else D.int64
        plain = super().resolve(key, [Operand(joined)] * len(operands))
        return Resolution((joined,) * 2, plain.result) if key.rule == "shift" else plain

    def _float(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        """Return the first float loop that accepts every operand, each with its own smallest float."""
        joined = self.join(key, operands)
        check_order(key, joined, "NumPy")
        if joined is D.bool and key.op == "angle":
            joined = D.float64
            operands = [Operand(joined)]
        floats = [smallest_float(joined if o.dtype is None else o.dtype) for o in operands]
        met = floats[0]
        for dtype in floats[1:]:
            met = self.meet(met, dtype)
        return super().resolve(key, [Operand(met)] * len(operands))

    def _exact_integer(self, key: Key, operands: Sequence[Operand]) -> DType | None:
        """Return the integer dtype that compares integers exactly, None if the common dtype does."""
        dtypes = [o.dtype for o in operands if o.literal is None and o.dtype is not None]
        literals = [o.literal for o in operands if isinstance(o.literal, (int, float))]
        if not dtypes or not all(d in self.dtypes and (d.is_integer or d is D.bool) for d in dtypes):
            return None
        joined = self._join_weak(operands)
        if {float, complex} & {type(o.literal) for o in operands} or joined is D.bool:
            return None
        if joined.is_integer and all(joined.min <= value <= joined.max for value in literals):
            return joined
        for value in literals:
            if int(value).bit_length() >= MAX_BITS:
                raise NoPromotion(
                    f"{text_of(value)} does not fit any dtype: integers have {MAX_BITS} bits at most",
                    help="compare with a smaller number",
                    error=DTypeError,
                )
        widths = [d.bits + (not d.is_signed) for d in dtypes] + [int(v).bit_length() + 1 for v in literals]
        return D.int64 if max(widths) <= 64 else D.int(max(widths))


def _computation_dtype(key: Key, dtype: DType) -> DType:
    """Return the dtype that a Python number is converted to: a float for functions with float results."""
    if key.rule == "divide" and (dtype.is_integer or dtype is D.bool):
        return D.float64
    return smallest_float(dtype) if key.rule == "float" else dtype


def reason(lhs: DType, rhs: DType) -> str:
    """Return the rule for the common dtype of two dtypes."""
    if lhs is rhs:
        return "the same dtype"
    if D.bool in (lhs, rhs):
        return "bool with anything: the other"
    if lhs.is_complex and rhs.is_complex:
        return "complex numbers: the wider"
    if lhs.is_complex or rhs.is_complex:
        return "a number with a complex one: the narrowest complex dtype whose parts hold both, complex128 at most"
    if lhs.is_float and rhs.is_float:
        return "floats: the wider"
    if lhs.is_float or rhs.is_float:
        return "an integer with a float: the narrowest float that holds both, float64 at most"
    if lhs.is_signed is rhs.is_signed:
        return "the same sign: the wider"
    if D.uint64 in (lhs, rhs):
        return "signed with uint64: no integer holds both, hence float64"
    return "signed with unsigned: the narrowest signed integer that holds both"


# The rules for Python scalars that the three packages share.


def check_scalars(operands: Sequence[Operand], dtype: DType) -> None:
    """Raise `NoPromotion` for a Python scalar among the operands that `dtype` cannot hold; floats round ints."""
    part = real_of(dtype)
    for value in [o.literal for o in operands if o.literal is not None]:
        if type(value) is not int or not part.is_float:
            check_literal(value, dtype)
            continue
        try:
            check_literal(float(value), dtype)
        except (NoPromotion, OverflowError):
            raise NoPromotion(
                f"{text_of(value)} cannot be held in {dtype}",
                help=f"{dtype} holds {part.min} to {part.max}; cast the Symbol to a wider dtype first",
                error=DTypeError,
            ) from None


def check_power(key: Key, operands: Sequence[Operand], met: DType, words: str) -> None:
    """Raise `NoPromotion` for an integer to the power of a negative Python int, with the package's message."""
    power = operands[-1].literal
    if key.op == "pow" and met.is_integer and type(power) is int and power < 0:
        raise NoPromotion(words, help="cast the base to a float first: .cast(DType.float64)", error=DTypeError)


def check_order(key: Key, dtype: DType, package: str, sorts: frozenset[str] = frozenset()) -> None:
    """Raise `NoPromotion` for an op that needs an order of complex numbers.

    sorts: the ops for which the package orders them by their real, then their imaginary parts.
    """
    if not dtype.is_complex or key.op not in ORDERED:
        return
    if key.op in sorts:
        raise NoPromotion(
            f"{package} compares the real parts of {dtype} first, then the imaginary ones; here complex numbers have "
            "no order",
            help=IN_PARTS,
            error=DTypeError,
        )
    raise no_meaning(key, dtype, package, IN_PARTS)


def no_meaning(key: Key, dtype: DType, package: str, help: str) -> NoPromotion:
    """Return the error for an op that a package does not support for a dtype."""
    return NoPromotion(f"{key.op} has no meaning for {dtype} in {package}", help=help, error=DTypeError)
