"""The promotion of PyTorch: categories, then tensors with axes before tensors without before Python scalars.

Sources: PyTorch's page "Tensor Attributes", section "torch.dtype", and the functions of release 2.13. An operand of a
higher category (bool, integer, float, complex) decides; within a category, tensors without axes and Python scalars
give way.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.promotion.packages.numpy import check_order, check_power, check_scalars, no_meaning
from graphcore.promotion.rules import Key, NoPromotion, Operand, Resolution, rounded
from graphcore.promotion.system import PromotionSystem, dtypes_of, read_table
from graphcore.types.dtypes import DType, complex_of

D = DType

COLUMNS = ("b1", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "c64", "c128")

# torch.promote_types.
_TABLE = """
b1   : b1   u8   i8   i16  i32  i64  f16  bf16 f32  f64  c64  c128
u8   : u8   u8   i16  i16  i32  i64  f16  bf16 f32  f64  c64  c128
i8   : i8   i16  i8   i16  i32  i64  f16  bf16 f32  f64  c64  c128
i16  : i16  i16  i16  i16  i32  i64  f16  bf16 f32  f64  c64  c128
i32  : i32  i32  i32  i32  i32  i64  f16  bf16 f32  f64  c64  c128
i64  : i64  i64  i64  i64  i64  i64  f16  bf16 f32  f64  c64  c128
f16  : f16  f16  f16  f16  f16  f16  f16  f32  f32  f64  c64  c128
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64  c64  c128
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  c64  c128
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64  c64  c128 c64  c128
c128 : c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
"""

TABLE = dtypes_of(read_table(_TABLE, COLUMNS))

LIMITED = (D.uint16, D.uint32, D.uint64)
"""They combine with floats, not with other integers; with complex numbers only if one of the two gives way."""
FLOAT8 = (D.float8_e4m3fn, D.float8_e5m2)
"""They combine with themselves, and with operands that give way to them."""

# Functions that do not promote: their operands must have the same dtype.
_OF_ONE_DTYPE = frozenset({"matmul", "linear", "einsum", "vecdot"})
# Functions that do not support bools.
_NOT_OF_BOOLS = frozenset(
    {
        "abs", "argmax", "argmin", "ceil", "clip", "floor", "floor_div", "mod", "negate", "positive", "pow", "round",
        "sub", "trunc", *_OF_ONE_DTYPE,
    }
)  # fmt: skip
# Functions of floats only; others cast integers to the default dtype.
_SPREADS = frozenset({"stdev", "var"})
_OF_FLOATS = frozenset({"logsoftmax", "mean", "softmax", "vecdot", *_SPREADS})


class Torch(PromotionSystem):
    """PyTorch's table, categories, and the result dtypes of its functions; the default dtype is float32."""

    name = "torch"
    dtypes = frozenset({*(lhs for lhs, _ in TABLE), *LIMITED, *FLOAT8})
    reads_operands = True
    bounds_promote = True

    def common(self, lhs: DType, rhs: DType) -> DType:
        met = TABLE.get((lhs, rhs))
        if met is not None:
            return met
        if lhs in FLOAT8 or rhs in FLOAT8:
            raise NoPromotion(
                f"Promotion for Float8 Types is not supported in PyTorch: {lhs} and {rhs}",
                help="cast one of them: .cast(DType.float16)",
            )
        if lhs.is_float or rhs.is_float:
            return lhs if lhs.is_float else rhs
        raise NoPromotion(
            f"Promotion for uint16, uint32, uint64 types is not supported in PyTorch: {lhs} and {rhs}",
            help=f"cast one of them: .cast(DType.{rhs.name}) or .cast(DType.{lhs.name})",
        )

    def join(self, key: Key, operands: Sequence[Operand]) -> DType:
        joined = self._by_category(operands)
        if key.rule != "logical":
            check_scalars(operands, joined)
        return joined

    def _by_category(self, operands: Sequence[Operand]) -> DType:
        """Return the dtype of tensors with axes, unless those without, or Python scalars, have a higher category."""
        with_axes = self._fold([o.dtype for o in operands if o.dtype is not None and o.rank != 0])
        without = self._fold([o.dtype for o in operands if o.dtype is not None and o.rank == 0])
        scalars = self._fold([self.default_dtype([o.literal]) for o in operands if o.literal is not None])
        joined = self._combine(with_axes, self._combine(without, scalars))
        assert joined is not None
        return joined

    def _fold(self, dtypes: Sequence[DType]) -> DType | None:
        met: DType | None = None
        for dtype in dtypes:
            met = dtype if met is None else self.meet(met, dtype)
        return met

    def _combine(self, first: DType | None, second: DType | None) -> DType | None:
        """Return the first, unless the second is of a higher category. A float that becomes complex keeps its width."""
        if first is None or second is None:
            return second if first is None else first
        if D.string not in (first, second) and _category(first) >= _category(second):
            return first
        if second.is_complex and first in self.dtypes:
            return _complex_of(first) if first.is_float else second
        return self.meet(first, second)

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        if key.op in _OF_ONE_DTYPE and len({o.dtype for o in operands}) > 1:
            raise NoPromotion(
                f"expected the operands of {key.op} to have the same dtype: PyTorch does not promote them",
                help="cast one of them: .cast(DType.float32)",
            )
        if key.op == "sub" and any(o.dtype is D.bool or type(o.literal) is bool for o in operands):
            raise no_meaning(key, D.bool, "PyTorch", "use ^ or logical_not, or cast to int8: .cast(DType.int8)")
        if key.op in ("equal", "not_equal") and _is_as_in_complex32(operands):
            return Resolution((D.complex64,) * 2, D.bool)
        joined = self.join(key, operands)
        check_order(key, joined, "PyTorch")
        check_power(key, operands, joined, "Integers to negative integer powers are not allowed in PyTorch")
        is_power_of_bools = key.op == "pow" and type(operands[-1].literal) is bool
        if joined is D.bool and (key.op in _NOT_OF_BOOLS or key.rule == "shift") and not is_power_of_bools:
            raise no_meaning(key, joined, "PyTorch", "cast it to int8 first: .cast(DType.int8)")
        if joined.is_complex and key.op == "sign":
            raise no_meaning(key, joined, "PyTorch", "divide by the magnitude: z / ops.abs(z)")
        is_whole = joined in self.dtypes and not joined.is_float and not joined.is_complex
        if (key.op in _OF_FLOATS and is_whole) or (key.op in _SPREADS and joined in FLOAT8):
            raise no_meaning(key, joined, "PyTorch", "cast it to a float first: .cast(DType.float32)")
        if is_whole and key.rule in ("divide", "float"):
            joined = D.float32
        elif is_whole and (key.rule == "sum" or (key.op == "square" and joined is D.bool)):
            joined = D.int64
        plain = super().resolve(key, [Operand(joined)] * len(operands))
        return Resolution((joined,) * 2, plain.result) if key.rule == "shift" else plain


def _complex_of(dtype: DType) -> DType:
    """Return the complex dtype of a float's width, complex64 for bfloat16. Raises `NoPromotion`."""
    if dtype in FLOAT8:
        raise NoPromotion(f"{dtype} has no complex dtype in PyTorch", help="cast one of them: .cast(DType.float32)")
    if dtype is D.float16:
        raise NoPromotion(
            "float16 tensors become complex32 in PyTorch when a complex number gives way to them, and graphcore has no "
            "complex dtype with parts of float16",
            help="cast the tensor to a wider float first: .cast(DType.float32)",
        )
    return complex_of(dtype)


def _is_as_in_complex32(operands: Sequence[Operand]) -> bool:
    """Return True for a float16 tensor and a Python complex number that compares alike with and without rounding."""
    values = [o.literal for o in operands if isinstance(o.literal, complex)]
    if len(values) != 1 or D.float16 not in [o.dtype for o in operands]:
        return False
    (value,) = values
    is_real_kept = value.real != value.real or rounded(value.real, D.float16) == value.real
    return rounded(value.imag, D.float16) != 0 or (value.imag == 0 and is_real_kept)


def _category(dtype: DType) -> int:
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_float else 0 if dtype is D.bool else 1


_HIGHER = "categories bool < integer < float < complex: the higher"


def reason(lhs: DType, rhs: DType) -> str:
    """Return the rule for the common dtype of two tensors with axes."""
    if lhs is rhs:
        return "the same dtype"
    if {lhs, rhs} == {D.float64, D.complex64}:
        return f"{_HIGHER}, with parts that hold float64"
    if _category(lhs) != _category(rhs):
        return _HIGHER
    if lhs.is_complex:
        return "complex numbers: the wider"
    if lhs.is_float:
        return "floats: the wider" if lhs.bits != rhs.bits else "floats of one width: one that holds both"
    if lhs.is_signed is rhs.is_signed:
        return "the same sign: the wider"
    return "signed with uint8: the narrowest signed integer that holds both"
