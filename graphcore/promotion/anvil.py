"""The promotion of anvil, a compiler of R programs (github.com/r-xla/anvil): known and ambiguous dtypes.

Source: its vignette "Type Promotion Rules", and its code where the prose contradicts it. The dtype of a literal is only
a default: it is ambiguous, printed `int32?`, and gives way to a known dtype. Results of ambiguous values alone are
ambiguous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from graphcore.errors import DTypeError
from graphcore.operators import REDUCTIONS, Trait, data_of, having
from graphcore.promotion.rules import (
    Key,
    NoPromotion,
    Operand,
    Resolution,
    SymbolLike,
    check_literal,
)
from graphcore.promotion.system import SHORT, PromotionSystem, dtypes_of, read_table
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, tensor_type

COLUMNS = ("b1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64")

# Both dtypes known, or both ambiguous.
_KNOWN = """
b1  : b1  i8  i16 i32 i64 u8  u16 u32 u64 f32 f64
i8  : i8  i8  i16 i32 i64 i16 i32 i64 i64 f32 f64
i16 : i16 i16 i16 i32 i64 i16 i32 i64 i64 f32 f64
i32 : i32 i32 i32 i32 i64 i32 i32 i64 i64 f32 f64
i64 : i64 i64 i64 i64 i64 i64 i64 i64 i64 f32 f64
u8  : u8  i16 i16 i32 i64 u8  u16 u32 u64 f32 f64
u16 : u16 i32 i32 i32 i64 u16 u16 u32 u64 f32 f64
u32 : u32 i64 i64 i64 i64 u32 u32 u32 u64 f32 f64
u64 : u64 i64 i64 i64 i64 u64 u64 u64 u64 f32 f64
f32 : f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f64 : f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64
"""

# Rows are ambiguous, columns are known.
_AMBIGUOUS = """
b1  : b1  i8  i16 i32 i64 u8  u16 u32 u64 f32 f64
i8  : i8  i8  i16 i32 i64 u8  u16 u32 u64 f32 f64
i16 : i16 i8  i16 i32 i64 u8  u16 u32 u64 f32 f64
i32 : i32 i8  i16 i32 i64 u8  u16 u32 u64 f32 f64
i64 : i64 i8  i16 i32 i64 u8  u16 u32 u64 f32 f64
u8  : u8  i8  i16 i32 i64 u8  u16 u32 u64 f32 f64
u16 : u16 i8  i16 i32 i64 u8  u16 u32 u64 f32 f64
u32 : u32 i8  i16 i32 i64 u8  u16 u32 u64 f32 f64
u64 : u64 i8  i16 i32 i64 u8  u16 u32 u64 f32 f64
f32 : f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f64 : f64 f64 f64 f64 f64 f64 f64 f64 f64 f32 f64
"""

KNOWN = dtypes_of(read_table(_KNOWN, COLUMNS))
AMBIGUOUS = dtypes_of(read_table(_AMBIGUOUS, COLUMNS))


class CommonDType(NamedTuple):
    """The common dtype of two others; `ambiguous` if it is only a default."""

    dtype: DType
    ambiguous: bool


def common_dtype(lhs: object, rhs: object, lhs_ambiguous: bool = False, rhs_ambiguous: bool = False) -> CommonDType:
    """Return the common dtype of two dtypes in anvil, and whether it is ambiguous.

    Args:
        lhs: A dtype, anything that `DType.of` takes, or anvil's own spelling. A question mark, "i32?", means ambiguous.
        rhs: Likewise.
        lhs_ambiguous: True if the dtype is only a default.
        rhs_ambiguous: Likewise.

    Raises:
        PromotionError: anvil does not have a dtype.
        DTypeError: An argument is not a dtype.

    Source: anvil's `common_dtype`.
    """
    (left, left_guessed), (right, right_guessed) = _ANVIL.read(lhs), _ANVIL.read(rhs)
    try:
        return _common(left, right, lhs_ambiguous or left_guessed, rhs_ambiguous or right_guessed)
    except NoPromotion as refusal:
        raise refusal.error(f"common_dtype: {refusal.reason}", help=refusal.help) from None


def _common(lhs: DType, rhs: DType, lhs_ambiguous: bool, rhs_ambiguous: bool) -> CommonDType:
    for dtype in (lhs, rhs):
        if dtype not in Anvil.dtypes:
            raise NoPromotion(
                f"anvil has no {dtype}",
                help="cast it to a dtype that it has: " + ", ".join(str(SHORT[name]) for name in COLUMNS),
            )
    if lhs_ambiguous == rhs_ambiguous:
        return CommonDType(KNOWN[lhs, rhs], lhs_ambiguous)
    guessed, fixed = (lhs, rhs) if lhs_ambiguous else (rhs, lhs)
    met = AMBIGUOUS[guessed, fixed]
    return CommonDType(met, met is guessed and met is not fixed)


class Anvil(PromotionSystem):
    """anvil's two tables, and the propagation of ambiguity."""

    name = "anvil"
    dtypes = frozenset(SHORT[name] for name in COLUMNS)
    defaults = MappingProxyType({float: DType.float32, int: DType.int32})
    index_dtype = DType.int32
    spellings: Mapping[str, DType] = MappingProxyType({"i1": DType.bool, "pred": DType.bool})
    knows_ambiguous = True
    guesses_literals = True

    def common(self, lhs: DType, rhs: DType) -> DType:
        return _common(lhs, rhs, False, False).dtype

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        if key.op in _CLAMPS and len(operands) == 2:
            # A bound is cast to the dtype of the data; the two do not promote.
            dtype, ambiguous = self._dtype_of(operands[0])
            bound = operands[1].literal
            if isinstance(bound, int):
                check_literal(bound, dtype)
            return Resolution((dtype, dtype), dtype, ambiguous)
        dtype, ambiguous = self._join(key, operands)
        same = (dtype,) * len(operands)
        if key.rule == "shift":
            # Both sides promote, as in any other op of two operands.
            super().resolve(key, [Operand(dtype)] * len(operands))
            return Resolution(same, dtype, ambiguous)
        if key.rule == "divide":
            return Resolution(same, dtype, ambiguous)
        if key.rule == "sum":
            if dtype not in self.dtypes:
                raise NoPromotion(f"{key.op} has no meaning for {dtype}", help="use numbers or bools", error=DTypeError)
            return Resolution(same, dtype, ambiguous)
        if key.rule in ("float", "mean", "test") and not dtype.is_float:
            # Where R gives a double, the result is a float of the default width, and ambiguous.
            dtype, ambiguous = DType.float32, True
            same = (dtype,) * len(operands)
        plain = super().resolve(key, [Operand(dtype)] * len(operands))
        return Resolution(plain.operands, plain.result, ambiguous and key.rule != "test")

    def _join(self, key: Key, operands: Sequence[Operand]) -> CommonDType:
        met = self._dtype_of(operands[0])
        for operand in operands[1:]:
            read = self._dtype_of(operand)
            met = _common(met.dtype, read.dtype, met.ambiguous, read.ambiguous)
        if met.dtype not in self.dtypes:
            _common(met.dtype, met.dtype, False, False)
        if key.rule != "logical":
            for operand in operands:
                if operand.literal is not None:
                    check_literal(operand.literal, met.dtype)
        return met

    def _dtype_of(self, operand: Operand) -> CommonDType:
        if operand.literal is None:
            assert operand.dtype is not None
            return CommonDType(operand.dtype, operand.ambiguous)
        dtype = self.default_dtype([operand.literal])
        return CommonDType(dtype, dtype is not DType.bool)

    @staticmethod
    def result_type(operator: str, inputs: Sequence[SymbolLike | None], type_: Type, position: int = 0) -> Type:
        """Return the type of a node's result, ambiguous if all the values that it depends on are."""
        if operator in _OF_LISTS and isinstance(type_, TensorType):
            return tensor_type(type_.dtype, type_.shape, _is_ambiguous_list(inputs[0]))
        for symbol in inputs:
            if symbol is not None and symbol.ambiguous:
                break
        else:
            return type_
        if not isinstance(type_, TensorType) or type_.ambiguous or operator in _NEVER_AMBIGUOUS:
            return type_
        if position and operator in _LATER_RESULTS_FIXED:
            return type_
        if operator in _LIKE_FIRST_OPERAND:
            first = inputs[0]
            same = first is not None and first.ambiguous and first.dtype is type_.dtype
            return tensor_type(type_.dtype, type_.shape, same)
        # The other operands of a join are conditions and positions.
        sources = data_of(operator, inputs) if operator in having(Trait.JOINS) else inputs
        values = [s for s in sources if s is not None and not _is_op_parameter(s)]
        return tensor_type(type_.dtype, type_.shape, all(s.ambiguous for s in values))


_ANVIL = Anvil()


def _is_op_parameter(symbol: SymbolLike) -> bool:
    """Return True for constants that ops insert, such as axes and shapes. Literals of users are ambiguous or bool."""
    return (
        symbol.is_constant
        and symbol.producer.origin is None
        and not symbol.ambiguous
        and symbol.dtype is not DType.bool
    )


def _is_ambiguous_list(symbol: SymbolLike | None) -> bool:
    """Return True if all tensors of a list or optional are ambiguous, which its type does not say."""
    rest = [symbol]
    while rest:
        symbol = rest.pop()
        if symbol is None:
            return False
        if isinstance(symbol.type, TensorType):
            if not symbol.ambiguous:
                return False
            continue
        operator = getattr(symbol.producer, "op_type", "")
        if operator not in _LISTS:
            return False
        rest += data_of(operator, symbol.producer.inputs)
    return True


_CLAMPS = frozenset({"clip", "hardtanh"})

# Operators whose results are never ambiguous. An explicit cast states its dtype; an implicit one is created with the
# common flag of the operands.
_NEVER_AMBIGUOUS = having(Trait.BODIES, Trait.POSITIONS, Trait.TESTS) - having(Trait.SELECTS) | {
    "BitCast",
    "Cast",
    "Range",
}

# Operators whose results but the first are positions.
_LATER_RESULTS_FIXED = having(Trait.POSITIONS) & having(Trait.SELECTS)

# Operators that move or reduce the first operand; the other operands are axes, positions, limits and shapes.
_LIKE_FIRST_OPERAND = having(Trait.MOVES, Trait.FILLS) | REDUCTIONS | {
    "ArrayFeatureExtractor", "Clip", "CumProd", "CumSum", "Resize", "TopK",
}  # fmt: skip

# Operators that take tensors out of a list or optional, and those that put their data into one.
_OF_LISTS = frozenset({"ConcatFromSequence", "OptionalGetElement", "SequenceAt"})
_LISTS = frozenset("Identity Optional SequenceConstruct SequenceErase SequenceInsert SplitToSequence".split())
