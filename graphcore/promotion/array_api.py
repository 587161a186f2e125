"""The type promotion of the Python array API standard, as of 2025.12 and as first proposed (the seed), and none.

Sources: the page "Type Promotion Rules" of the array API standard, whose edition 2025.12 has the tables of 2021.12 to
2024.12; and the proposal of August 2020 that it is based on. Cases that they leave open are errors here. The proposal
says of TensorFlow that it requires explicit casts: `Explicit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType

from graphcore.errors import PromotionError
from graphcore.promotion.rules import (
    Key,
    NoPromotion,
    Operand,
    Resolution,
    Scalar,
    check_literal,
    check_order,
    holds,
    no_complex,
)
from graphcore.promotion.system import SHORT, PromotionSystem
from graphcore.support.escaping import text_of
from graphcore.types.dtypes import DType, complex_of, real_of

D = DType

# The publications' codes; the digits are bytes.
_NAMES = "i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64 c64 c128".split()
_CODES = {f"{name[0]}{int(name[1:]) // 8}": SHORT[name] for name in _NAMES}

_SIGNED = """
      i1 i2 i4 i8
  i1: i1 i2 i4 i8
  i2: i2 i2 i4 i8
  i4: i4 i4 i4 i8
  i8: i8 i8 i8 i8
"""
_UNSIGNED = """
      u1 u2 u4 u8
  u1: u1 u2 u4 u8
  u2: u2 u2 u4 u8
  u4: u4 u4 u4 u8
  u8: u8 u8 u8 u8
"""

# The standard's tables, in its order.
_STANDARD = (
    _SIGNED,
    _UNSIGNED,
    """
      u1 u2 u4
  i1: i2 i4 i8
  i2: i2 i4 i8
  i4: i4 i4 i8
  i8: i8 i8 i8
""",
    """
      f4 f8 c8 c16
  f4: f4 f8 c8 c16
  f8: f8 f8 c16 c16
  c8: c8 c16 c8 c16
 c16: c16 c16 c16 c16
""",
)

# The seed's tables, in its order. It has no row i8 of mixed integers.
_SEED = (
    """
      f2 f4 f8
  f2: f2 f4 f8
  f4: f4 f4 f8
  f8: f8 f8 f8
""",
    _UNSIGNED,
    _SIGNED,
    """
      u1 u2 u4
  i1: i2 i4 i8
  i2: i2 i4 i8
  i4: i4 i4 i8
""",
)


def _read(tables: Sequence[str]) -> dict[tuple[DType, DType], DType]:
    """Return all cells in both orders: promotion is commutative, and mixed integers are printed in one order only."""
    cells = {}
    for table in tables:
        head, *rows = table.strip("\n").split("\n")
        for line in rows:
            left, row = line.split(":")
            for right, cell in zip(head.split(), row.split(), strict=True):
                lhs, rhs = _CODES[left.strip()], _CODES[right]
                cells[lhs, rhs] = cells[rhs, lhs] = _CODES[cell]
    return cells


# Not in any table: float16 with complex dtypes is as float32.
_HALF = """
      c8 c16
  f2: c8 c16
"""

PROFILES: dict[str, dict[tuple[DType, DType], DType]] = {
    "2025.12": _read(_STANDARD),
    "seed": _read(_SEED),
    "2025.12 with float16": _read((*_SEED, *_STANDARD, _HALF)),
}
"""The tables by profile. The standard's and the seed's agree where both have a cell; the seed alone has float16."""

# Ops that take any kind of operands in the standard, although their rule would restrict it.
_ANY_KIND = frozenset({"equal", "not_equal", "tril", "triu", "band_part"})
_OPERAND_KINDS = {
    **dict.fromkeys(("arithmetic", "subtract", "compare", "number", "test", "sum"), "numbers"),
    **dict.fromkeys(("divide", "float", "mean"), "floats and complex"),
    "bitwise": "integers and bools",
    "logical": "bools",
    "shift": "integers",
}
_TO_BOOL = frozenset({"compare", "logical", "test"})


class ArrayApi(PromotionSystem):
    """The array API standard. profile: its edition "2025.12", "seed", or "2025.12 with float16", which has the cells of
    both. Raises `PromotionError` for any other profile.

    A Python scalar takes the array's dtype: bool combines with bool, int with integers in range, floats and complex
    dtypes, float with floats and complex dtypes; complex makes a float array complex. The seed does not define scalars,
    so its profile uses the standard's rules; it has no complex dtypes.
    """

    spellings = MappingProxyType(_CODES)

    def __init__(self, profile: str = "2025.12") -> None:
        if profile not in PROFILES:
            raise PromotionError(
                f"array_api: there is no profile {profile!r}", help=f"use one of {', '.join(map(repr, PROFILES))}"
            )
        self.name = "array_api"
        self.profile = profile
        if profile != "2025.12":
            self.options = {"profile": profile}
        self.table = PROFILES[profile]
        self.dtypes = frozenset({D.bool, *(lhs for lhs, _ in self.table)})

    def meet(self, lhs: DType, rhs: DType) -> DType:
        return lhs if lhs is rhs else self.common(lhs, rhs)

    def common(self, lhs: DType, rhs: DType) -> DType:
        met = self.table.get((lhs, rhs))
        if met is None:
            raise self._refuse(f"{lhs} with {rhs}", _suggest_common_cast(lhs, rhs))
        return met

    def _refuse(self, what: str, help: str) -> NoPromotion:
        return NoPromotion(f"{what} is undefined by the array API standard", help=help, undefined=True)

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        joined = self.join(key, operands)
        check_order(key, joined)
        wanted = _OPERAND_KINDS.get(key.rule)
        if wanted is not None and key.op not in _ANY_KIND and not _is_one_of(joined, wanted):
            raise self._refuse(f"{key.op} of {joined}", _suggest_cast(joined, wanted))
        if key.rule == "test" and joined.is_integer:
            return Resolution((D.float64,) * len(operands), D.bool)
        return Resolution((joined,) * len(operands), D.bool if key.rule in _TO_BOOL else joined)

    def join(self, key: Key, operands: Sequence[Operand]) -> DType:
        dtypes = [o.dtype for o in operands if o.literal is None and o.dtype is not None]
        literals = [o.literal for o in operands if o.literal is not None]
        if not dtypes:
            return self.default_dtype(literals)
        joined = dtypes[0]
        for dtype in dtypes[1:]:
            joined = self.meet(joined, dtype)
        if joined.is_complex and not self.has_complex:
            raise no_complex(str(self), joined)
        is_known = joined.is_float and joined in self.dtypes and self.has_complex and not isinstance(self, Explicit)
        if is_known and any(type(literal) is complex for literal in literals):
            joined = complex_of(joined)
        for literal in literals:
            self._check_scalar(literal, joined)
        return joined

    def _check_scalar(self, value: Scalar, dtype: DType) -> None:
        """Raise `NoPromotion` for a Python scalar that does not combine with an array of `dtype`."""
        kind = type(value)
        part = real_of(dtype)
        if kind is bool:
            goes = dtype is D.bool
        elif kind is int:
            goes = part.is_float or (dtype.is_integer and dtype.min <= value <= dtype.max)  # type: ignore[operator]
        elif kind is float:
            goes = dtype.is_float or dtype.is_complex
        else:
            goes = dtype.is_complex
        if goes and kind is not int:
            check_literal(value, dtype)
        if goes and not (kind is int and not dtype.is_integer and abs(value) > part.max):
            return
        if kind is int and dtype.is_number:
            raise self._refuse(
                f"the int {text_of(value)} with {dtype}",
                f"{dtype} holds {text_of(part.min)} to {text_of(part.max)}; cast the array to a wider dtype first",
            )
        takes = "complex128" if kind is complex else "float64" if kind is float else "int64" if kind is int else "bool"
        raise self._refuse(
            f"the {kind.__name__} {text_of(value)} with {dtype}",
            f"cast the array, .cast(DType.{takes}), or make the scalar an array of the intended dtype",
        )


class Explicit(ArrayApi):
    """No promotion: operands of one dtype, and Python scalars of its kind, which take it if it holds them.

    Source: TensorFlow 2.21, whose tensors of two dtypes do not combine, and whose `convert_to_tensor` takes an int for
    any number, a float for floats and complex numbers, and a complex number for complex ones.
    """

    spellings = MappingProxyType({})
    bounds_promote = True

    def __init__(self) -> None:
        self.name = "explicit"
        self.table = {}
        self.dtypes = frozenset({*_CODES.values(), D.bool, D.bfloat16})

    def default_dtype(self, literals: Iterable[Scalar]) -> DType:
        """Return the dtype of Python scalars without an array: complex128, float32, int32 (int64 if needed) or bool."""
        values = list(literals)
        kinds = {type(value) for value in values}
        if complex in kinds or float in kinds or int not in kinds:
            return D.complex128 if complex in kinds else D.float32 if float in kinds else D.bool
        return D.int32 if all(holds(value, D.int32) for value in values) else D.int64

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        if key.rule == "divide" and (joined := self.join(key, operands)).is_integer:
            quotient = D.float32 if joined.bits <= 16 else D.float64
            return Resolution((quotient,) * len(operands), quotient)
        return super().resolve(key, operands)

    def _refuse(self, what: str, help: str) -> NoPromotion:
        return NoPromotion(f"{what} needs an explicit cast", help=help)


def _suggest_common_cast(lhs: DType, rhs: DType) -> str:
    """Return the help that suggests a cast to a common dtype."""
    if D.bool in (lhs, rhs):
        other = rhs if lhs is D.bool else lhs
        return f"cast the bool: .cast(DType.{other.name})"
    if lhs.is_integer != rhs.is_integer:
        target = rhs if lhs.is_integer else lhs
        return f"cast the integer: .cast(DType.{target.name})"
    if lhs.is_integer and rhs.is_integer:
        return (
            f"cast one of them, .cast(DType.{lhs.name}) or .cast(DType.{rhs.name}), or both to float64 if rounding is "
            "acceptable: .cast(DType.float64)"
        )
    if lhs.is_complex != rhs.is_complex:
        return f"cast the real one: .cast(DType.{(lhs if lhs.is_complex else rhs).name})"
    return f"cast one of them: .cast(DType.{lhs.name}) or .cast(DType.{rhs.name})"


_SUGGESTED_CAST = {
    "numbers": "int64",
    "floats and complex": "float64",
    "integers": "int64",
    "integers and bools": "int64",
    "bools": "bool",
}


def _suggest_cast(dtype: DType, wanted: str) -> str:
    if dtype.is_complex:
        return f"it takes {wanted}: compute on the parts, ops.real(z), ops.imag(z) and ops.abs(z)"
    return f"it takes {wanted}: cast to one, such as .cast(DType.{_SUGGESTED_CAST[wanted]})"


def _is_one_of(dtype: DType, wanted: str) -> bool:
    if wanted == "numbers":
        return dtype.is_number
    if wanted == "floats and complex":
        return dtype.is_float or dtype.is_complex
    if wanted == "integers":
        return dtype.is_integer
    return dtype is D.bool or (wanted == "integers and bools" and dtype.is_integer)
