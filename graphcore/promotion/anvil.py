"""The promotion of anvil, a compiler of R programs (github.com/r-xla/anvil): known and ambiguous dtypes.

Source: its vignette "Type Promotion Rules", and its code where the prose contradicts it. A dtype that was only guessed,
because a value was written as a literal, is ambiguous, printed `int32?`; it gives way to a known one. Ambiguity
travels: what is made of ambiguous values alone is ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from graphcore.errors import DTypeError
from graphcore.operators import REDUCTIONS, Trait, data_of, having
from graphcore.promotion.rules import Key, NoPromotion, Operand, Resolution, Scalar, Value, check_literal, no_complex
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
    """The dtype in which two others meet, and whether that is only a default."""

    dtype: DType
    ambiguous: bool


def common_dtype(lhs: object, rhs: object, lhs_ambiguous: bool = False, rhs_ambiguous: bool = False) -> CommonDType:
    """The dtype in which two dtypes meet in anvil, and whether it is ambiguous.

    lhs, rhs: DTypes, anything `DType.of` takes, or anvil's own spelling; one with a question mark, "i32?", is
    ambiguous. lhs_ambiguous, rhs_ambiguous: whether the dtype is only a default. Raises `PromotionError` for dtypes
    that anvil has not, `DTypeError` for what is no dtype. anvil's `common_dtype`.
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
    guessed, known = (lhs, rhs) if lhs_ambiguous else (rhs, lhs)
    met = AMBIGUOUS[guessed, known]
    return CommonDType(met, met is guessed and met is not known)


class Anvil(PromotionSystem):
    """anvil's two tables, and how ambiguity travels."""

    name = "anvil"
    dtypes = frozenset(SHORT[name] for name in COLUMNS)
    index_dtype = DType.int32
    spellings: Mapping[str, DType] = MappingProxyType({"i1": DType.bool, "pred": DType.bool})
    knows_ambiguous = True
    guesses_literals = True

    def default_dtype(self, literals: Iterable[Scalar]) -> DType:
        """The dtype that literals are guessed to have: float32, int32 or bool."""
        kinds = {type(value) for value in literals}
        if complex in kinds:
            raise no_complex(self.name)
        return DType.float32 if float in kinds else DType.int32 if int in kinds else DType.bool

    def common(self, lhs: DType, rhs: DType) -> DType:
        return _common(lhs, rhs, False, False).dtype

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        if key.op in _CLAMPS and len(operands) == 2:
            # A bound becomes what it bounds; the two do not promote.
            dtype, ambiguous = self._read(operands[0])
            bound = operands[1].literal
            if isinstance(bound, int):
                check_literal(bound, dtype)
            return Resolution((dtype, dtype), dtype, ambiguous)
        dtype, ambiguous = self._fold(key, operands)
        same = (dtype,) * len(operands)
        if key.rule == "shift":
            # Both sides promote, as of any other op of two operands.
            super().resolve(key, [Operand(dtype)] * len(operands))
            return Resolution(same, dtype, ambiguous)
        if key.rule == "divide":
            return Resolution(same, dtype, ambiguous)
        if key.rule == "sum":
            _check_number(key, dtype)
            return Resolution(same, dtype, ambiguous)
        if key.rule in ("float", "mean", "test") and not dtype.is_float:
            # What R would make a double of is a float of the default width, and as much of a guess.
            dtype, ambiguous = DType.float32, True
            same = (dtype,) * len(operands)
        plain = super().resolve(key, [Operand(dtype)] * len(operands))
        return Resolution(plain.operands, plain.result, ambiguous and key.rule != "test")

    def _fold(self, key: Key, operands: Sequence[Operand]) -> CommonDType:
        met = self._read(operands[0])
        for operand in operands[1:]:
            read = self._read(operand)
            met = _common(met.dtype, read.dtype, met.ambiguous, read.ambiguous)
        if met.dtype not in self.dtypes:
            _common(met.dtype, met.dtype, False, False)
        if key.rule != "logical":
            for operand in operands:
                if operand.literal is not None:
                    check_literal(operand.literal, met.dtype)
        return met

    def _read(self, operand: Operand) -> CommonDType:
        if operand.literal is None:
            assert operand.dtype is not None
            return CommonDType(operand.dtype, operand.ambiguous)
        dtype = self.default_dtype([operand.literal])
        return CommonDType(dtype, dtype is not DType.bool)

    @staticmethod
    def result_type(operator: str, inputs: Sequence[Value | None], type_: Type, position: int = 0) -> Type:
        """The type of a node's result, ambiguous if all the values that it is made of are."""
        if operator in _OF_LISTS and isinstance(type_, TensorType):
            return tensor_type(type_.dtype, type_.shape, _is_guessed(inputs[0]))
        for symbol in inputs:
            if symbol is not None and symbol.ambiguous:
                break
        else:
            return type_
        if not isinstance(type_, TensorType) or type_.ambiguous or operator in _NEVER:
            return type_
        if position and operator in _THEN_PLACES:
            return type_
        if operator in _OF_FIRST:
            first = inputs[0]
            same = first is not None and first.ambiguous and first.dtype is type_.dtype
            return tensor_type(type_.dtype, type_.shape, same)
        # Of a join the operands beside its data are conditions and positions.
        made_of = data_of(operator, inputs) if operator in having(Trait.JOINS) else inputs
        values = [s for s in made_of if s is not None and not _is_made_by_ops(s)]
        return tensor_type(type_.dtype, type_.shape, all(s.ambiguous for s in values))


_ANVIL = Anvil()


def _check_number(key: Key, dtype: DType) -> None:
    if dtype not in Anvil.dtypes:
        raise NoPromotion(f"{key.op} has no meaning for {dtype}", help="use numbers or bools", error=DTypeError)


def _is_made_by_ops(symbol: Value) -> bool:
    """Return whether it is axes, a shape or the like. Of what users write, only bools are known."""
    return (
        symbol.is_constant
        and symbol.producer.origin is None
        and not symbol.ambiguous
        and symbol.dtype is not DType.bool
    )


def _is_guessed(symbol: Value | None) -> bool:
    """Return whether all tensors of a list, or in an optional, are ambiguous. Its type does not say so."""
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

# Operators whose results are known whatever they are made of. An explicit cast says what it makes; an implicit one is
# made with the flag that the operands have in common.
_NEVER = having(Trait.BODIES, Trait.POSITIONS, Trait.TESTS) - having(Trait.SELECTS) | {"BitCast", "Cast", "Range"}

# Operators of which each result but the first is places.
_THEN_PLACES = having(Trait.POSITIONS) & having(Trait.SELECTS)

# Operators that move or fold the values of the first operand; the others are axes, positions, limits and shapes.
_OF_FIRST = having(Trait.MOVES, Trait.FILLS) | REDUCTIONS | {
    "ArrayFeatureExtractor", "Clip", "CumProd", "CumSum", "Resize", "TopK",
}  # fmt: skip

# Operators that take tensors out of a list or an optional, and those that put their data into one.
_OF_LISTS = frozenset({"ConcatFromSequence", "OptionalGetElement", "SequenceAt"})
_LISTS = frozenset("Identity Optional SequenceConstruct SequenceErase SequenceInsert SplitToSequence".split())
