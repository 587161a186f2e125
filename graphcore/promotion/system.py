"""The interface of promotion systems, the rules that most of them share, and their registry.

A system resolves an op's promotion key and its operands to the dtypes that the operands are cast to, and the dtype of
the result. `graphcore.build.operands` inserts the casts.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar

from graphcore.errors import DTypeError, PromotionError
from graphcore.promotion.rules import (
    Key,
    NoPromotion,
    Operand,
    Resolution,
    Scalar,
    check_literal,
    check_order,
    no_complex,
    resolved,
    to_integers,
)
from graphcore.support.escaping import suggestion
from graphcore.types.dtypes import DType, complex_of
from graphcore.types.dtypes import DType as D
from graphcore.types.tensor_types import Type

T = TypeVar("T")


class PromotionSystem:
    """A published set of promotion rules.

    A subclass defines `name`, `dtypes` and `common`, and overrides `resolve` or single rules where its publication
    differs. The rules of this class are those of docs/numbers.md and of NumPy.
    """

    name: str
    """The name in errors."""
    dtypes: frozenset[DType]
    """The dtypes that the system has rules for; any other dtype combines only with itself."""
    options: Mapping[str, Any] = MappingProxyType({})
    """The options of `promotion.system(name, **options)` that differ from the defaults."""
    defaults: Mapping[type, DType] = MappingProxyType({complex: D.complex64, float: D.float32, int: D.int64})
    """The dtypes of Python scalars without a Symbol, by default as in ONNX exporters; the first kind decides."""
    is_closed: bool = False
    """`implicit_cast_type` refuses dtypes that are not in `dtypes`, even with themselves."""
    reads_operands: bool = False
    """Results depend on the rank or length of operands, which are then passed to `resolve`."""
    remembered: bool = True
    """Results may be cached: operands of equal types and equal literals give equal results."""
    index_dtype: DType = DType.int64
    """The dtype of positions and counts: argmax, count_nonzero."""
    knows_ambiguous: bool = False
    """Operands may have a dtype that is only a default."""
    guesses_literals: bool = False
    """The dtype of Python numbers is only a default."""
    counter_dtype: DType | None = None
    """The dtype of the iteration number in bodies of loops; None means `index_dtype`."""
    converts_stores: bool = False
    """A stored value is cast to the dtype of its buffer, even if that loses information."""
    spellings: Mapping[str, DType] = MappingProxyType({})
    """The publication's names of dtypes that `DType.of` does not know, or reads differently."""
    aliases: Mapping[DType, DType] = MappingProxyType({})
    """Dtypes that are a second name of another dtype, and that dtype."""
    bounds_promote: bool = False
    """The bounds of `clip` take part in promotion; otherwise they are cast to the dtype of the data, or refused."""
    result_type: Callable[[str, Sequence[Any], Type, int], Type] | None = None
    """Called for each result of a new node: (operator, operand Symbols or None, type of the result, its position) ->
    the type in this system. May raise."""

    @property
    def has_complex(self) -> bool:
        """True if the system has complex dtypes."""
        return DType.complex64 in self.dtypes

    @property
    def note(self) -> str:
        """The text stored in models: its name, and its options as JSON."""
        return f"{self.name} {json.dumps(dict(self.options), sort_keys=True)}" if self.options else self.name

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in sorted(self.options.items()))
        return f"{self.name}({options})" if options else self.name

    def __repr__(self) -> str:
        return f"<PromotionSystem {self}>"

    def default_dtype(self, literals: Iterable[Scalar]) -> DType:
        """Return the dtype of Python scalars without a Symbol beside them."""
        kinds = {type(value) for value in literals}
        if complex in kinds and complex not in self.defaults:
            raise no_complex(self.name)
        dtype = next((dtype for kind, dtype in self.defaults.items() if kind in kinds), DType.bool)
        return self.aliases.get(dtype, dtype)

    def dtype_of(self, x: object) -> DType:
        """Return `DType.of(x)`, which also accepts the publication's spellings. Raises `DTypeError`."""
        named = self.spellings.get(x) if isinstance(x, str) else None
        dtype = DType.of(x) if named is None else named
        return self.aliases.get(dtype, dtype)

    def read(self, x: object) -> tuple[DType, bool]:
        """Return `dtype_of(x)`, and True if a question mark says that the dtype is only a default: "int32?"."""
        if isinstance(x, str) and x.endswith("?"):
            try:
                return self.dtype_of(x[:-1]), True
            except DTypeError as error:
                raise DTypeError(f"no dtype is called {x!r}", help=error.help) from None
        return self.dtype_of(x), False

    def makes_vector(self, op: str) -> bool:
        """Return True if an op makes a vector of one element from scalars."""
        return False

    def common(self, lhs: DType, rhs: DType) -> DType:
        """Return the common dtype of two different dtypes. Raises `NoPromotion`."""
        raise NotImplementedError

    def flattens(self, op: str) -> frozenset[str]:
        """Return the ops whose nested expressions are promoted together with `op`; empty for most systems."""
        return frozenset()

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        """Return the dtypes that the operands are cast to, and the dtype of the result. Raises `NoPromotion`."""
        if key.rule == "shift":
            return self._shift(key, operands)
        joined = self.join(key, operands)
        check_order(key, joined)
        if self.is_closed and key.op == "implicit_cast" and joined not in self.dtypes:
            raise NoPromotion(
                f"{joined} isn't supported by promotion in {self.name}",
                help=f"it has {', '.join(sorted(d.name for d in self.dtypes))}; in ops {joined} combines with itself",
            )
        return resolved(key, joined, len(operands))

    def join(self, key: Key, operands: Sequence[Operand]) -> DType:
        """Return the common dtype of all operands, folded from the left; literals take it if they fit."""
        dtypes = [o.dtype for o in operands if o.literal is None and o.dtype is not None]
        if not dtypes:
            return self.default_dtype([o.literal for o in operands if o.literal is not None])
        joined = dtypes[0]
        if joined.is_complex and joined not in self.dtypes:
            raise no_complex(self.name, joined)
        for dtype in dtypes[1:]:
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
        """Return the common dtype of two dtypes, which may be equal or unsupported. Raises `NoPromotion`."""
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
            raise NoPromotion(
                f"the number of bits to shift must be an int, got {rhs.literal!r}",
                help="shift by an int",
                error=DTypeError,
            )
        return Resolution((left, None), left)


class LatticeSystem(PromotionSystem):
    """A system in which the common dtype is the join on a lattice: the least dtype above both.

    Args:
        name: The name in errors.
        edges: For each dtype the dtypes directly above it.

    Raises:
        DTypeError: Two dtypes have upper bounds, but no least one.
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
                        f"{self.name}: {lhs} and {rhs} have no least upper bound",
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


def path_text(edges: Mapping[T, Sequence[T]], ends: Iterable[T], met: T, name: Callable[[T], str]) -> str:
    """Return shortest paths up a lattice from two dtypes to one above both: "int8 < int16 > uint8"."""

    def path(start: T) -> list[T]:
        waiting = [[start]]
        for steps in waiting:
            if steps[-1] == met:
                return steps
            waiting += [[*steps, above] for above in edges.get(steps[-1], ())]
        raise AssertionError("one end is not below the other")

    up, down = map(path, ends)
    return " < ".join(map(name, up)) + "".join(f" > {name(node)}" for node in down[-2::-1])


class TableSystem(PromotionSystem):
    """A system that looks pairs up in a table, in the order written: `table[lhs, rhs]`."""

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


# The notation of promotion tables in this folder: rows of short names, as in the publications.

SHORT: dict[str, D] = {
    "b1": D.bool,
    **{f"i{bits}": D.int(bits) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": D.uint(bits) for bits in (8, 16, 32, 64)},
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
    """Return the cells of a table whose lines are `row : cell cell ...`, one cell for each of `columns`."""
    cells = {}
    for line in table.strip().splitlines():
        row, _, written = line.partition(":")
        for column, cell in zip(columns, written.split(), strict=True):
            cells[row.strip(), column] = cell
    return cells


def dtypes_of(cells: dict[tuple[str, str], str]) -> dict[tuple[D, D], D]:
    """Return the cells of a table by dtype; all its names are short names."""
    return {(SHORT[row], SHORT[column]): SHORT[cell] for (row, column), cell in cells.items()}


# The promotion systems by name: those of publications, and those of array packages.

_SYSTEMS: dict[str, str] = {
    "max": "max.system",
    "max_published": "max.published",
    "kernel_float": "kernel_float.KernelFloat",
    "anvil": "anvil.Anvil",
    "array_api": "array_api.ArrayApi",
    "explicit": "array_api.Explicit",
    "allo_hls": "allo.AlloHls",
    "allo_cpp": "allo.AlloCpp",
    "numpy": "packages.numpy.NumPy",
    "jax": "packages.jax.Jax",
    "torch": "packages.torch.Torch",
}
"""The class or function of each system, in modules of this folder that are imported on first use."""

NAMES: tuple[str, ...] = tuple(_SYSTEMS)
"""The published systems."""


def system(name: str | PromotionSystem, **options: Any) -> PromotionSystem:
    """Return a promotion system. The same name and options give the same object.

    Args:
        name: One of `NAMES`, or a `PromotionSystem`, which is returned unchanged.
        options: `complex=False | True` of "max" adds complex64 and complex128 to its lattice;
            `profile="2025.12" | "seed"` of "array_api"; `revision="seed" | "latest"` of "allo_hls" and "allo_cpp";
            `fast_math=False | True` of "allo_hls"; `x64=True | False` and `dtype_promotion="standard" | "strict"` of
            "jax".

    Raises:
        PromotionError: The name or an option is unknown.
    """
    if isinstance(name, PromotionSystem) and not options:
        return name
    if not isinstance(name, str) or name not in _SYSTEMS:
        raise PromotionError(
            f"no promotion system is called {name!r}",
            help=f"{suggestion(name, _SYSTEMS)}use one of {', '.join(_SYSTEMS)}, or a PromotionSystem of your own",
        )
    try:
        return _create_system(name, tuple(sorted(options.items())))
    except PromotionError:
        raise
    except TypeError:
        options_text = ", ".join(f"{key}={value!r}" for key, value in options.items())
        parameters = ", ".join(inspect.signature(_system_class(name)).parameters)
        raise PromotionError(
            f"promotion system {name}: unknown option {options_text}",
            help=f"its options: {parameters}" if parameters else "it has no options",
        ) from None


def restored(name: str, options: dict[str, Any]) -> PromotionSystem:
    """Return a pickled system."""
    return system(name, **options)


@functools.cache
def _create_system(name: str, options: tuple[tuple[str, Any], ...]) -> PromotionSystem:
    return _system_class(name)(**dict(options))


def _system_class(name: str) -> Callable[..., PromotionSystem]:
    module, _, label = _SYSTEMS[name].rpartition(".")
    maker: Callable[..., PromotionSystem] = getattr(import_module(f"{__package__}.{module}"), label)
    return maker


def _reduce(self: PromotionSystem) -> tuple[Any, ...]:
    """Pickle a published system by its name, so that it stays a single object."""
    if self.name in NAMES and system(self.name, **self.options) is self:
        return restored, (self.name, dict(self.options))
    return copyreg.__newobj__, (type(self),), self.__dict__  # type: ignore[attr-defined]


setattr(PromotionSystem, "__reduce__", _reduce)  # noqa: B010 - set here, where the names of systems are defined


def implicit_cast_type(lhs: Any, rhs: Any, system: str | PromotionSystem = "max") -> DType:
    """Return the common dtype of two dtypes in a promotion system.

    Args:
        lhs: DTypes, anything that `DType.of` takes, or the publication's own spelling.
        rhs: Likewise.
        system: A name or a `PromotionSystem`.

    Raises:
        PromotionError: The dtypes have no common dtype, or the system does not have one of them.
        DTypeError: A dtype is unknown.
    """
    rules = _find_system(system)
    left, right = rules.dtype_of(lhs), rules.dtype_of(rhs)
    try:
        return rules.resolve(Key("implicit_cast", "join"), [Operand(left), Operand(right)]).result
    except NoPromotion as refusal:
        raise refusal.error(f"implicit_cast_type: {refusal.reason}", help=refusal.help) from None


_find_system = system
