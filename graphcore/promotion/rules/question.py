"""The question that promotion systems are asked, its answer, and their refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from graphcore.errors import GraphcoreError, PromotionError
from graphcore.types.dtypes import DType

Real: TypeAlias = bool | int | float
Scalar: TypeAlias = Real | complex

Rule: TypeAlias = Literal[
    "join",  # operands of any dtype meet in a common one, which is the result: concat, where, stack
    "arithmetic",  # numbers and bools meet in a common dtype, which is the result: + * // % ** min max matmul
    "subtract",  # like arithmetic, without bools: - and unary -
    "divide",  # true division: integers divide in a float
    "compare",  # operands meet in a common dtype, the result is bool
    "bitwise",  # integers and bools meet in a common dtype
    "shift",  # the result is the left operand's dtype, the right one is an integer
    "logical",  # operands are read as truth values, the result is bool
    "float",  # functions into the reals: exp, sqrt, softmax, layer_norm
    "test",  # questions about floats: is_nan, is_inf; the result is bool
    "number",  # functions that keep the dtype of any number: abs, sign, floor
    "keep",  # anything that moves values without reading them: reshape, gather
    "sum",  # sums and products over axes
    "mean",  # averages over axes
]


class Key(NamedTuple):
    """The properties of an op that promotion systems read.

    elementwise: each element of the result comes of one of each operand, at the same place.
    """

    op: str
    rule: Rule
    elementwise: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """The properties of one operand.

    dtype: its dtype, None for a Python literal whose dtype the system chooses. literal: the Python value, if it is one.
    ambiguous: its dtype is only a default that a known one overrides. rank, length: of its shape, where a system has
    rules for shapes (None: unknown). terms: where the operand is itself an unfinished expression of the ops that
    `PromotionSystem.flattens` names, the operands of that expression in written order.
    """

    dtype: DType | None
    literal: Scalar | None = None
    ambiguous: bool = False
    rank: int | None = None
    length: int | None = None
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """One operand of a flattened expression; `negated` where it is subtracted."""

    operand: Operand
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Resolution:
    """The answer: a dtype for each operand (None: leave it as it is), and the result's.

    ambiguous: the result's dtype is only a default. expression: the operands are the terms of the whole flattened
    expression, to be combined as a balanced tree in which subtracted terms are negated first. computed: what an
    element-wise op gives on operands so cast, where that is then cast to `result`.
    """

    operands: tuple[DType | None, ...]
    result: DType
    ambiguous: bool = False
    expression: bool = False
    computed: DType | None = None


class NoPromotion(Exception):
    """A system's refusal, before the operands' names are known to it.

    undefined: the publication leaves the case open, rather than forbidding it.
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


class Value(Protocol):
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
