"""The interface of promotion systems: the one question they answer, the rules that most share, their registry.

The question: given an op's promotion key and the operand dtypes, with what is known of literals, what are the
operands cast to and what is the result? Whoever inserts casts (`graphcore.build.operands`) asks it and obeys.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

from graphcore.errors import DTypeError, PromotionError
from graphcore.promotion.rules import (
    RULES,
    Key,
    NoPromotion,
    Operand,
    Resolution,
    Scalar,
    check_literal,
    check_order,
    default_dtype,
    no_complex,
    to_integers,
)
from graphcore.support.escaping import suggestion
from graphcore.types.dtypes import DType, complex_of
from graphcore.types.dtypes import DType as D
from graphcore.types.tensor_types import Type


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
    result_type: Callable[[str, Sequence[Any], Type, int], Type] | None = None
    """Looks at each node as it is made: (operator, operand Symbols or None, type of a result, which of the results
    it is) -> that type as the system has it. May raise."""

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

    def __repr__(self) -> str:
        return f"<PromotionSystem {self}>"

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
        check_order(key, joined)
        if self.is_closed and key.op == "implicit_cast" and joined not in self.dtypes:
            raise NoPromotion(
                f"{joined} isn't supported by promotion in {self.name}",
                help=f"it has {', '.join(sorted(d.name for d in self.dtypes))}; in ops {joined} goes with itself",
            )
        return RULES[key.rule](key, joined, len(operands))

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
                joined = complex_of(joined) if joined.is_float and joined in self.dtypes else joined
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
                    help=to_integers(side, "cast it to an integer first: .cast(DType.int32)"),
                    error=DTypeError,
                )
        if rhs.literal is not None and (not isinstance(rhs.literal, int) or isinstance(rhs.literal, bool)):
            raise NoPromotion(f"{rhs.literal!r} is no count of bits", help="shift by an int", error=DTypeError)
        return Resolution((left, None), left)


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


# The notation of promotion tables in this folder: rows of short names, to compare with the publications.

SHORT: dict[str, D] = {
    "b1": D.bool,
    "i8": D.int8,
    "i16": D.int16,
    "i32": D.int32,
    "i64": D.int64,
    "u8": D.uint8,
    "u16": D.uint16,
    "u32": D.uint32,
    "u64": D.uint64,
    "idx": D.index,
    "adr": D.address,
    "f16": D.float16,
    "bf16": D.bfloat16,
    "f32": D.float32,
    "tf32": D.tensor_float32,
    "f64": D.float64,
    "c64": D.complex64,
    "c128": D.complex128,
}
"""The short names; the digits are bits."""


def read_table(table: str, columns: Sequence[str]) -> dict[tuple[str, str], str]:
    """The cells of a table whose lines are `row : cell cell ...`, one cell for each of `columns`."""
    cells = {}
    for line in table.strip().splitlines():
        row, _, written = line.partition(":")
        for column, cell in zip(columns, written.split(), strict=True):
            cells[row.strip(), column] = cell
    return cells


def dtypes_of(cells: dict[tuple[str, str], str]) -> dict[tuple[D, D], D]:
    """The same by dtype, for a table of short names alone."""
    return {(SHORT[row], SHORT[column]): SHORT[cell] for (row, column), cell in cells.items()}


# The promotion systems by name: those of the publications, and those of array packages.

_SYSTEMS: dict[str, str] = {
    "max": "max.system",
    "max_published": "max.published",
    "kernel_float": "kernel_float.KernelFloat",
    "anvil": "anvil.Anvil",
    "array_api": "array_api.ArrayApi",
    "allo_hls": "allo.AlloHls",
    "allo_cpp": "allo.AlloCpp",
    "numpy": "packages.numpy.NumPy",
    "jax": "packages.jax.Jax",
    "torch": "packages.torch.Torch",
}
"""What makes each system, in modules of this folder, which are imported when the system is first asked for."""

NAMES: tuple[str, ...] = tuple(_SYSTEMS)
"""The published systems."""


def system(name: str | PromotionSystem, **options: Any) -> PromotionSystem:
    """Return the promotion system of that name; a `PromotionSystem` is returned as it is.

    options: `complex=False | True` of "max", which joins complex64 and complex128 to its lattice;
    `profile="2025.12" | "seed"` of "array_api"; `revision="seed" | "latest"` of "allo_hls" and "allo_cpp";
    `fast_math=False | True` of "allo_hls". The same name and options give the same object. Raises `PromotionError` for
    unknown names and options.
    """
    if isinstance(name, PromotionSystem) and not options:
        return name
    if not isinstance(name, str) or name not in _SYSTEMS:
        raise PromotionError(
            f"no promotion system is called {name!r}",
            help=f"{suggestion(name, _SYSTEMS)}use one of {', '.join(_SYSTEMS)}, or a PromotionSystem of your own",
        )
    try:
        return _made(name, tuple(sorted(options.items())))
    except PromotionError:
        raise
    except TypeError:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise PromotionError(f"{name} has no such option: {given}", help=_system_help(name)) from None


def restored(name: str, options: dict[str, Any]) -> PromotionSystem:
    """Return the system that was pickled."""
    return system(name, **options)


@functools.cache
def _made(name: str, options: tuple[tuple[str, Any], ...]) -> PromotionSystem:
    return _maker(name)(**dict(options))


def _maker(name: str) -> Callable[..., PromotionSystem]:
    module, _, label = _SYSTEMS[name].rpartition(".")
    maker: Callable[..., PromotionSystem] = getattr(import_module(f"{__package__}.{module}"), label)
    return maker


def _system_help(name: str) -> str:
    known = ", ".join(inspect.signature(_maker(name)).parameters)
    return f"its options: {known}" if known else "it has none"


def _reduced(self: PromotionSystem) -> tuple[Any, ...]:
    """Pickle a published system by its name, so that there is one of it."""
    if self.name in NAMES and system(self.name, **self.options) is self:
        return restored, (self.name, dict(self.options))
    return copyreg.__newobj__, (type(self),), self.__dict__  # type: ignore[attr-defined]


setattr(PromotionSystem, "__reduce__", _reduced)  # noqa: B010 - here, where the names of systems are known


def implicit_cast_type(lhs: Any, rhs: Any, system: str | PromotionSystem = "max") -> DType:
    """Return the dtype in which values of two dtypes meet under a promotion system.

    lhs, rhs: DTypes, anything `DType.of` takes, or the publication's own spelling. Raises `PromotionError` naming both
    dtypes and the system where they do not meet, or where one is not of the lattice or table; `DTypeError` for an
    unknown dtype.
    """
    rules = _find(system)
    left, right = rules.dtype_of(lhs), rules.dtype_of(rhs)
    try:
        return rules.resolve(Key("implicit_cast", "join"), [Operand(left), Operand(right)]).result
    except NoPromotion as refusal:
        raise refusal.error(f"implicit_cast_type: {refusal.reason}", help=refusal.help) from None


_find = system
