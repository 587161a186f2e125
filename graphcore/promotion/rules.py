"""The building blocks of promotion rules: keys, operands, resolutions, and checks of literals and orders."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from graphcore.errors import DTypeError, GraphcoreError, PromotionError
from graphcore.support.escaping import text_of
from graphcore.types.dtypes import MAX_BITS, TRANSPORT, DType


def smallest_float(dtype: DType) -> DType:
    """Return the dtype of a float function of `dtype`: floats and complex dtypes stay, others depend on the width.

    8 bits give float16, 16 bits float32, all others float64. See docs/numbers.md.
    """
    if dtype.is_float or dtype.is_complex:
        return dtype
    return DType.float16 if dtype.bits <= 8 else DType.float32 if dtype.bits <= 16 else DType.float64


def _check_dtype(key: Key, dtype: DType) -> None:
    """Raise `NoPromotion` for a common dtype that the rule of an op excludes."""
    if dtype is DType.string and key.rule not in _ANY_DTYPE and key.op not in ("equal", "not_equal"):
        fix = "ops.string_concat puts strings together" if key.op == "add" else "use numbers or bools"
        raise NoPromotion(f"{key.op} has no meaning for string", help=fix, error=DTypeError)
    if dtype is DType.bool and key.rule == "subtract":
        raise NoPromotion(
            f"{key.op} has no meaning for bool",
            help="use ^ for the difference of bools and ~ for the opposite, or cast to int8: .cast(DType.int8)",
            error=DTypeError,
        )
    if key.rule == "bitwise" and not dtype.is_integer and dtype is not DType.bool:
        raise NoPromotion(
            f"{key.op} works on the bits of integers and bools; the operands meet in {dtype}",
            help=to_integers(dtype, "cast to an integer of the width you mean: .cast(DType.int32)"),
            error=DTypeError,
        )


def to_integers(dtype: DType, help: str) -> str:
    """Return the help for a cast to integers: by parts for complex numbers, else `help`."""
    return "take a part, and cast it to an integer: ops.real(z).cast(DType.int32)" if dtype.is_complex else help


def _inexact(dtype: DType) -> DType:
    return dtype if dtype.is_float or dtype.is_complex else DType.float64


_ANY_DTYPE = frozenset({"join", "keep", "bitwise"})
_TO_BOOL = frozenset({"compare", "logical", "test"})
_CASTS: dict[Rule, Callable[[DType], DType]] = {
    "divide": _inexact,
    "mean": _inexact,
    "logical": lambda dtype: DType.bool,
    "float": smallest_float,
    "test": smallest_float,
    # As in NumPy, the sum of bools counts them; bool + bool is *or*.
    "sum": lambda dtype: DType.int64 if dtype is DType.bool else dtype,
}
"""The dtypes that rules cast operands to, where that is not their common dtype."""


def resolved(key: Key, dtype: DType, count: int) -> Resolution:
    """Return the resolution of `count` operands of a common dtype, by the rule of the op. Raises `NoPromotion`."""
    _check_dtype(key, dtype)
    cast = _CASTS[key.rule](dtype) if key.rule in _CASTS else dtype
    return Resolution((cast,) * count, DType.bool if key.rule in _TO_BOOL else cast)


# The arguments and the result of `PromotionSystem.resolve`, and its exception.

Real: TypeAlias = bool | int | float
Scalar: TypeAlias = Real | complex

Rule: TypeAlias = Literal[
    "join",  # operands of any dtype are cast to a common one, which is the result: concat, where, stack
    "arithmetic",  # numbers and bools are cast to a common dtype, which is the result: + * // % ** min max matmul
    "subtract",  # like arithmetic, without bools: - and unary -
    "divide",  # true division: integers are cast to a float
    "compare",  # operands are cast to a common dtype, the result is bool
    "bitwise",  # integers and bools are cast to a common dtype
    "shift",  # the result is the left operand's dtype, the right one is an integer
    "logical",  # operands are read as truth values, the result is bool
    "float",  # functions with float results: exp, sqrt, softmax, layer_norm
    "test",  # tests of floats: is_nan, is_inf; the result is bool
    "number",  # functions that keep the dtype of any number: abs, sign, floor
    "keep",  # anything that moves values without reading them: reshape, gather
    "sum",  # sums and products over axes
    "mean",  # averages over axes
]


class Key(NamedTuple):
    """The properties of an op that promotion systems use.

    Attributes:
        elementwise: Each element of the result depends on one element of each operand, at the same position.
    """

    op: str
    rule: Rule
    elementwise: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """The properties of one operand.

    Attributes:
        dtype: None for a Python literal, whose dtype the system chooses.
        literal: The Python value of a literal. ambiguous: the dtype is only a default that a known dtype overrides.
        rank: Of its shape, None if unknown; for systems with rules for shapes.
        length: Of its shape, None if unknown; for systems with rules for shapes.
        terms: If the operand is an expression of ops in `PromotionSystem.flattens`, the operands of that expression in
            written order.
    """

    dtype: DType | None
    literal: Scalar | None = None
    ambiguous: bool = False
    rank: int | None = None
    length: int | None = None
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """One operand of a flattened expression; `negated` if it is subtracted."""

    operand: Operand
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Resolution:
    """The result of promotion: a dtype for each operand (None: no cast), and the dtype of the result.

    Attributes:
        ambiguous: The result's dtype is only a default.
        expression: The operands are the terms of the whole flattened expression, to combine as a balanced tree in which
            subtracted terms are negated first.
        computed: The dtype that an element-wise op computes on the cast operands, if its result is then cast to
            `result`.
    """

    operands: tuple[DType | None, ...]
    result: DType
    ambiguous: bool = False
    expression: bool = False
    computed: DType | None = None


class NoPromotion(Exception):
    """Raised by a promotion system that refuses operands; callers add the operands' names.

    Args:
        undefined: The publication leaves the case open, rather than forbidding it.
    """

    def __init__(
        self,
        reason: str,
        *,
        help: str = "",
        undefined: bool = False,
        error: type[GraphcoreError] = PromotionError,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.help = help
        self.undefined = undefined
        self.error = error


class SymbolLike(Protocol):
    """The part of a Symbol that promotion systems use."""

    @property
    def type(self) -> Any: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def ambiguous(self) -> bool: ...
    @property
    def is_constant(self) -> bool:
        """True for a constant or a weight, whose producer has the array."""

    @property
    def producer(self) -> Any: ...


# The dtypes that can represent a Python number.


def no_complex(system: str, dtype: DType | None = None) -> NoPromotion:
    """Return the error of a system without complex numbers, which names the systems that have them."""
    return NoPromotion(
        f"{system} has no {dtype or 'complex numbers'}",
        help='build the graph with promotion="array_api", "numpy", "jax" or "torch", or with '
        'promotion.system("max", complex=True), which joins complex numbers to the lattice',
    )


def check_literal(value: Scalar, dtype: DType) -> None:
    """Raise `NoPromotion` for a Python scalar that `holds` refuses."""
    if holds(value, dtype):
        return
    if isinstance(value, complex):
        fix = "cast the Symbol to a complex dtype first: .cast(DType.complex64)"
        if dtype.is_complex:
            fix = "cast the Symbol to the wider complex dtype: .cast(DType.complex128)"
    elif dtype.is_complex:
        fix = "cast the Symbol to the wider complex dtype, .cast(DType.complex128), or write a float"
    elif isinstance(value, float) and not dtype.is_float:
        fix = "cast the Symbol to a float first: .cast(DType.float32)"
        if math.isfinite(value):
            fix = f"cast the Symbol first: .cast(DType.float32), or write {int(value)!r}"
    elif dtype.is_float:
        if isinstance(value, float) and not math.isfinite(value):
            fix = f"{dtype} has neither infinities nor NaN: cast the Symbol to a wider float, .cast(DType.float32)"
        elif abs(value) > dtype.max:
            wider = "float32" if abs(value) <= DType.float32.max and dtype.bits < 32 else "float64"
            fix = f"cast the Symbol to a wider float: .cast(DType.{wider})"
            if dtype is DType.float64 or abs(value) > DType.float64.max:
                fix = f"float64 holds {DType.float64.min} to {DType.float64.max}, the widest range of all dtypes"
        else:
            fix = f"write {float(value)!r} if rounding is meant, or cast the Symbol to a wider float"
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        fix = f"integers have {MAX_BITS} bits at most"
    else:
        fix = f"{dtype} holds {text_of(dtype.min)} to {text_of(dtype.max)}; cast the Symbol to a wider dtype first"
    raise NoPromotion(f"{text_of(value)} cannot be held in {dtype}", help=fix, error=DTypeError)


def holds(value: Scalar, dtype: DType) -> bool:
    """Return True if `dtype` can represent a Python scalar: ints exactly, floats rounded but without overflow."""
    if dtype.is_complex:
        parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
        return all(holds(part, dtype.storage) for part in parts)
    if isinstance(value, complex):
        return False
    if dtype.is_float:
        if isinstance(value, float) and dtype in TRANSPORT:  # which have neither infinities nor NaN
            return abs(value) <= dtype.max
        if isinstance(value, float):
            # Values overflow only from half a step beyond the greatest finite value.
            return not math.isfinite(value) or abs(value) <= dtype.max or math.isfinite(rounded(value, dtype))
        try:
            return float(value) == value and rounded(float(value), dtype) == value
        except OverflowError:
            return False
    if dtype.kind.value == "string" or isinstance(value, float):
        return False
    return dtype.min <= value <= dtype.max


def rounded(value: float, dtype: DType) -> float:
    """Return the value of a float dtype that is nearest to a Python float."""
    import numpy as np  # imported late: it takes longer than all systems, and most promotion does not need it

    if dtype is DType.tensor_float32:
        bits = int(np.float32(value).view(np.uint32))
        return float(np.uint32((bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000).view(np.float32))
    with np.errstate(over="ignore"):
        return float(np.array(value, np.float64).astype(dtype.numpy))


# The ops that need an order of numbers, which complex numbers do not have.

ORDERED = frozenset(
    {
        "arg_max", "argmax", "argmin", "argsort", "bottom_k", "ceil", "clip", "floor", "floor_div", "fmod", "greater",
        "greater_equal", "less", "less_equal", "max", "max_pool", "max_pool1d", "max_pool2d", "max_pool3d", "maximum",
        "median", "min", "minimum", "mod", "modf", "quantile", "relu", "rint", "scatter_max", "scatter_min",
        "scatter_nd_max", "scatter_nd_min", "sort", "top_k", "trunc",
    }
)  # fmt: skip
"""Ops that compare numbers, or round to integers."""

IN_PARTS = "compute on the parts: ops.real(z), ops.imag(z), ops.abs(z)"


def check_order(key: Key, dtype: DType) -> None:
    """Raise `NoPromotion` for an op that needs an order of complex numbers."""
    if dtype.is_complex and key.op in ORDERED:
        raise NoPromotion("complex numbers have no order", help=IN_PARTS, error=DTypeError)
