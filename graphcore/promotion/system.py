"""The interface of promotion systems: the one question they answer, and the rules that most of them share.

The question: given an op's promotion key and the operand dtypes, with what is known of literals, what are the
operands cast to and what is the result? Whoever inserts casts (`graphcore.build.operands`) asks it and obeys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from graphcore.errors import DTypeError, GraphcoreError, PromotionError
from graphcore.types.complex_dtypes import complex_of
from graphcore.types.dtypes import DType
from graphcore.types.long_integers import text_of
from graphcore.types.tensor_types import Type

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


class PromotionSystem:
    """A published set of rules for mixing dtypes.

    A subclass gives `name`, `dtypes` and `common`, and overrides `resolve` or one of the rules where its publication
    differs. The rules here are those of docs/numbers.md and of NumPy.
    """

    name: str
    """The name in errors."""
    dtypes: frozenset[DType]
    """The dtypes that the system has rows for; others only meet themselves."""
    options: Mapping[str, Any] = MappingProxyType({})
    """The options of `promotion.system(name, **options)` that are not the defaults."""
    is_closed: bool = False
    """Asked for the dtype in which two dtypes meet, it refuses those that it has no row for, also with themselves."""
    reads_operands: bool = False
    """Answers depend on the rank or length of operands, which it is told then."""
    remembered: bool = True
    """Operands of equal types and equal literals always give equal answers."""
    index_dtype: DType = DType.int64
    """The dtype of positions and counts: argmax, count_nonzero."""
    knows_ambiguous: bool = False
    """Operands may have a dtype that is only a default."""
    guesses_literals: bool = False
    """The dtype of numbers written in Python is only a default."""
    counter_dtype: DType | None = None
    """The dtype of the numbers of iterations that bodies of loops are given; None: `index_dtype`."""
    converts_stores: bool = False
    """A value that is stored is cast to the dtype of what it is stored to, whatever that holds."""
    spellings: Mapping[str, DType] = MappingProxyType({})
    """The names of dtypes that mean something else, or nothing, to `DType.of`, as the publication has them."""
    aliases: Mapping[DType, DType] = MappingProxyType({})
    """Dtypes that are another one under a second name, and that one."""
    bounds_promote: bool = False
    """The bounds of `clip` take part in promotion; elsewhere they become what they bound, or are refused."""
    result_type: Callable[[str, Sequence[Any], Type], Type] | None = None
    """Looks at each node as it is made: (operator, operand Symbols or None, type of a result) -> that type as the
    system has it. May raise."""

    @property
    def has_complex(self) -> bool:
        """Return whether complex numbers are among its dtypes."""
        return DType.complex64 in self.dtypes

    @property
    def note(self) -> str:
        """The note in models: its name, and its options as JSON."""
        return f"{self.name} {json.dumps(dict(self.options), sort_keys=True)}" if self.options else self.name

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in sorted(self.options.items()))
        return f"{self.name}({options})" if options else self.name

    def default_dtype(self, literals: Iterable[Scalar]) -> DType:
        """The dtype of Python scalars that meet no Symbol."""
        return default_dtype(literals)

    def dtype_of(self, x: object) -> DType:
        """`DType.of`, which knows the publication's spellings too. Raises `DTypeError`."""
        named = self.spellings.get(x) if isinstance(x, str) else None
        dtype = DType.of(x) if named is None else named
        return self.aliases.get(dtype, dtype)

    def read(self, x: object) -> tuple[DType, bool]:
        """`dtype_of`, and whether a name says by a question mark that the dtype is only a default: "int32?"."""
        if isinstance(x, str) and x.endswith("?"):
            try:
                return self.dtype_of(x[:-1]), True
            except DTypeError as error:
                raise DTypeError(f"no dtype is called {x!r}", help=error.help) from None
        return self.dtype_of(x), False

    def makes_vector(self, op: str) -> bool:
        """Return whether an op makes a vector of one element of scalars."""
        return False

    def common(self, lhs: DType, rhs: DType) -> DType:
        """The dtype in which two different dtypes meet. Raises `NoPromotion`."""
        raise NotImplementedError

    def flattens(self, op: str) -> frozenset[str]:
        """The ops whose nested expressions are promoted as one with `op`; empty for most systems."""
        return frozenset()

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        """The one question. Raises `NoPromotion`."""
        if key.rule == "shift":
            return self._shift(key, operands)
        joined = self.join(key, operands)
        if self.is_closed and key.op == "implicit_cast" and joined not in self.dtypes:
            raise NoPromotion(
                f"{joined} isn't supported by promotion in {self.name}",
                help=f"it has {', '.join(sorted(d.name for d in self.dtypes))}; in ops {joined} goes with itself",
            )
        return _RULES[key.rule](key, joined, len(operands))

    def join(self, key: Key, operands: Sequence[Operand]) -> DType:
        """The common dtype of all operands, folded from the left; literals take it when they fit."""
        known = [o.dtype for o in operands if o.literal is None and o.dtype is not None]
        if not known:
            return self.default_dtype([o.literal for o in operands if o.literal is not None])
        joined = known[0]
        if joined.is_complex and joined not in self.dtypes:
            raise no_complex(self.name, joined)
        for dtype in known[1:]:
            joined = self.meet(joined, dtype)
        if key.rule != "logical":
            if any(type(o.literal) is complex for o in operands):
                if not self.has_complex:
                    raise no_complex(self.name)
                joined = complex_of(joined) if joined.is_float else joined
            for operand in operands:
                if operand.literal is not None:
                    check_literal(operand.literal, joined)
        return joined

    def meet(self, lhs: DType, rhs: DType) -> DType:
        """`common`, with equal dtypes and dtypes unknown to the system seen to."""
        if lhs is rhs:
            return lhs
        for dtype in (lhs, rhs):
            if dtype not in self.dtypes:
                if dtype.is_complex:
                    raise no_complex(self.name, dtype)
                other = rhs if dtype is lhs else lhs
                fix = f"cast one of them: .cast(DType.{other.name}) or .cast(DType.{dtype.name})"
                if DType.string in (lhs, rhs):
                    number = rhs if lhs is DType.string else lhs
                    fix = f"ops.string_parse(x, DType.{number.name}) reads text, and ops.string_of(x) writes it"
                raise NoPromotion(
                    f"{lhs} and {rhs} have no common dtype in {self.name}: {dtype} only goes with itself", help=fix
                )
        return self.common(lhs, rhs)

    def _shift(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        lhs, rhs = operands
        left = lhs.dtype or (rhs.dtype if rhs.dtype is not None else self.default_dtype([lhs.literal or 0]))
        if lhs.literal is not None:
            check_literal(lhs.literal, left)
        right = rhs.dtype or left
        for side in (left, right):
            if not side.is_integer:
                raise NoPromotion(
                    f"{side} cannot be shifted: only integers have bits to shift",
                    help="cast it to an integer first: .cast(DType.int32)",
                    error=DTypeError,
                )
        if rhs.literal is not None and (not isinstance(rhs.literal, int) or isinstance(rhs.literal, bool)):
            raise NoPromotion(f"{rhs.literal!r} is no count of bits", help="shift by an int", error=DTypeError)
        return Resolution((left, None), left)


def default_dtype(literals: Iterable[Scalar]) -> DType:
    """The dtype of Python scalars that meet no Symbol: bool, int64, float32 as ONNX exporters have it, or complex64."""
    kinds = {type(value) for value in literals}
    if complex in kinds:
        return DType.complex64
    if float in kinds:
        return DType.float32
    return DType.int64 if int in kinds else DType.bool


def no_complex(system: str, dtype: DType | None = None) -> NoPromotion:
    """Return the refusal of complex numbers by a system that has none, which names those that have."""
    return NoPromotion(
        f"{system} has no {dtype or 'complex numbers'}",
        help='build the graph with promotion="array_api", or with promotion.system("max", complex=True), '
        "which joins complex numbers to the lattice",
    )


def check_literal(value: Scalar, dtype: DType) -> None:
    """Raise an error for a Python scalar that `dtype` cannot hold: ints exactly, floats rounded but not overflowed."""
    if holds(value, dtype):
        return
    if isinstance(value, complex):
        fix = "cast the Symbol to a complex dtype first: .cast(DType.complex64)"
        if dtype.is_complex:
            fix = "cast the Symbol to the wider complex dtype: .cast(DType.complex128)"
        raise NoPromotion(f"{value!r} cannot be held in {dtype}", help=fix, error=DTypeError)
    if dtype.is_complex:
        raise NoPromotion(
            f"{value!r} cannot be held in {dtype}",
            help="cast the Symbol to the wider complex dtype, .cast(DType.complex128), or write a float",
            error=DTypeError,
        )
    if isinstance(value, float) and not dtype.is_float:
        fix = (
            f"cast the Symbol first: .cast(DType.float32), or write {int(value)!r}"
            if math.isfinite(value)
            else ("cast the Symbol to a float first: .cast(DType.float32)")
        )
    elif dtype.is_float:
        if abs(value) > dtype.max:
            wider = "float32" if abs(value) <= DType.float32.max and dtype.bits < 32 else "float64"
            fix = f"cast the Symbol to a wider float: .cast(DType.{wider})"
            if dtype is DType.float64:
                fix = f"float64 holds {dtype.min} to {dtype.max}"
        else:
            fix = f"write {float(value)!r} if rounding is meant, or cast the Symbol to a wider float"
    else:
        fix = f"{dtype} holds {text_of(dtype.min)} to {text_of(dtype.max)}; cast the Symbol to a wider dtype first"
    raise NoPromotion(f"{text_of(value)} cannot be held in {dtype}", help=fix, error=DTypeError)


def holds(value: Scalar, dtype: DType) -> bool:
    """Return whether a Python scalar may become a value of `dtype`: ints exactly, floats rounded but not overflowed."""
    if dtype.is_complex:
        parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
        return all(holds(part, dtype.storage) for part in parts)
    if isinstance(value, complex):
        return False
    if dtype.is_float:
        if isinstance(value, float):
            # What overflows is what rounds past the greatest finite value: half a step beyond it.
            return not math.isfinite(value) or abs(value) <= dtype.max or math.isfinite(_rounded(value, dtype))
        try:
            return float(value) == value and _rounded(float(value), dtype) == value
        except OverflowError:
            return False
    if dtype.kind.value == "string" or isinstance(value, float):
        return False
    return dtype.min <= value <= dtype.max


def _rounded(value: float, dtype: DType) -> float:
    import numpy as np  # takes longer to import than all systems, and dtypes meet without it

    if dtype is DType.tensor_float32:
        bits = int(np.float32(value).view(np.uint32))
        return float(np.uint32((bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000).view(np.float32))
    with np.errstate(over="ignore"):
        return float(np.array(value, np.float64).astype(dtype.numpy))


def smallest_float(dtype: DType) -> DType:
    """Return the dtype of a real function of `dtype`: a float stays; otherwise the width decides.

    8 bits give float16, 16 float32, and all else float64; complex numbers stay too. See docs/numbers.md.
    """
    if dtype.is_float or dtype.is_complex:
        return dtype
    return DType.float16 if dtype.bits <= 8 else DType.float32 if dtype.bits <= 16 else DType.float64


def _same(dtype: DType, count: int) -> Resolution:
    return Resolution((dtype,) * count, dtype)


def _numbers_only(key: Key, dtype: DType) -> None:
    if dtype is DType.string:
        fix = "ops.string_concat puts strings together" if key.op == "add" else "use numbers or bools"
        raise NoPromotion(f"{key.op} has no meaning for string", help=fix, error=DTypeError)


def _arithmetic(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(dtype, count)


def _subtract(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    if dtype is DType.bool:
        raise NoPromotion(
            f"{key.op} has no meaning for bool",
            help="use ^ for the difference of bools and ~ for the opposite, or cast to int8: .cast(DType.int8)",
            error=DTypeError,
        )
    return _same(dtype, count)


def _divide(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(dtype if dtype.is_float or dtype.is_complex else DType.float64, count)


def _compare(key: Key, dtype: DType, count: int) -> Resolution:
    if key.op not in ("equal", "not_equal"):
        _numbers_only(key, dtype)
    return Resolution((dtype,) * count, DType.bool)


def _bitwise(key: Key, dtype: DType, count: int) -> Resolution:
    if not dtype.is_integer and dtype is not DType.bool:
        raise NoPromotion(
            f"{key.op} works on the bits of integers and bools; the operands meet in {dtype}",
            help="cast to an integer of the width you mean: .cast(DType.int32)",
            error=DTypeError,
        )
    return _same(dtype, count)


def _logical(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(DType.bool, count)


def _float(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(smallest_float(dtype), count)


def _test(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return Resolution((smallest_float(dtype),) * count, DType.bool)


def _number(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(dtype, count)


def _keep(key: Key, dtype: DType, count: int) -> Resolution:
    return _same(dtype, count)


def _sum(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    # As in NumPy the sum of bools counts them; bool + bool is *or*.
    return _same(DType.int64 if dtype is DType.bool else dtype, count)


def _mean(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(dtype if dtype.is_float or dtype.is_complex else DType.float64, count)


_RULES = {
    "join": _keep,
    "arithmetic": _arithmetic,
    "subtract": _subtract,
    "divide": _divide,
    "compare": _compare,
    "bitwise": _bitwise,
    "logical": _logical,
    "float": _float,
    "test": _test,
    "number": _number,
    "keep": _keep,
    "sum": _sum,
    "mean": _mean,
}


class LatticeSystem(PromotionSystem):
    """A system in which two dtypes meet in the least dtype above both.

    name: how errors call it. edges: for each dtype the dtypes directly above it; together they must be a join
    semilattice (every pair has one least upper bound), which is checked here and raises `GraphcoreError`.
    """

    def __init__(self, name: str, edges: Mapping[DType, Sequence[DType]]) -> None:
        self.name = name
        self.edges = edges
        self.dtypes = frozenset(self.edges) | {above for row in self.edges.values() for above in row}
        above = {dtype: self._closure(dtype) for dtype in self.dtypes}
        self._joins: dict[tuple[DType, DType], DType] = {}
        for lhs in self.dtypes:
            for rhs in self.dtypes:
                bounds = above[lhs] & above[rhs]
                least = [b for b in bounds if bounds <= above[b]]
                if len(least) == 1:
                    self._joins[lhs, rhs] = least[0]
                elif bounds:
                    raise DTypeError(
                        f"{self.name}: {lhs} and {rhs} have no least dtype above both",
                        help="add an edge between " + " and ".join(sorted(b.name for b in bounds)),
                    )

    def _closure(self, dtype: DType) -> frozenset[DType]:
        reached, waiting = {dtype}, [dtype]
        while waiting:
            for above in self.edges.get(waiting.pop(), ()):
                if above not in reached:
                    reached.add(above)
                    waiting.append(above)
        return frozenset(reached)

    def common(self, lhs: DType, rhs: DType) -> DType:
        joined = self._joins.get((lhs, rhs))
        if joined is None:
            raise NoPromotion(
                f"{lhs} and {rhs} have no common dtype in {self.name}",
                help=f"cast one of them: .cast(DType.{rhs.name}) or .cast(DType.{lhs.name})",
            )
        return joined


class TableSystem(PromotionSystem):
    """A system whose pairs are looked up in a table, in the order written: `table[lhs, rhs]`."""

    def __init__(self, name: str, table: Mapping[tuple[DType, DType], DType]) -> None:
        self.name = name
        self.table = table
        self.dtypes = frozenset(dtype for pair in self.table for dtype in pair)

    def common(self, lhs: DType, rhs: DType) -> DType:
        met = self.table.get((lhs, rhs))
        if met is None:
            raise NoPromotion(
                f"{lhs} and {rhs} have no common dtype in {self.name}: its table has no row for {lhs} with {rhs}",
                help=f"cast one of them: .cast(DType.{rhs.name}) or .cast(DType.{lhs.name})",
            )
        return met
