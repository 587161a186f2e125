"""Operators of Symbols, and methods of Graphs that need more than a graph: folders above this one attach them.

They are imported before the first graph is made, and when a name of the class is asked for that it has not: whoever
only runs a model makes none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from graphcore.support.gc_pause import freeze, uncollected

if TYPE_CHECKING:
    from graphcore.types.dims import Dim
    from graphcore.types.dtypes import DType


_PARTS = ("ops", "graph_methods", "surgery_methods", "build.functions")
_done: list[bool] = []


def attach() -> None:
    """Import what attaches, once."""
    if not _done:
        with uncollected():
            for name in _PARTS:
                import_module(f"graphcore.{name}")
            freeze()
        _done.append(True)


class Attached(type):
    """The class of Graph."""

    if not TYPE_CHECKING:  # who sees it lets every name be asked for

        def __getattr__(cls, name: str) -> Any:
            """Return what is attached under a name that the class has not yet."""
            if not _done and not name.startswith("__"):
                attach()
                return getattr(cls, name)
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")

    def __dir__(cls) -> list[str]:
        attach()
        return [*super().__dir__()]


# The caches of a graph under construction, so that the same is computed, and made, once.

Symbol = TypeVar("Symbol")
"""The Symbols of a graph, of which nothing is asked here."""


class DimPlaces(dict["Dim", tuple[Symbol, int]], Generic[Symbol]):
    """The first axis of a graph that has each symbolic dim. seen: the number of Symbols that were looked at."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0


class Memory(Generic[Symbol]):
    """The caches of one graph, one a subject.

    plans: the answers of promotion and shape rules, by op and operand types. reshapes: the plans of Reshape, by type
    and wanted shape. indices: the entries of an index, by type and index. sizes: Symbols of sizes, by dims.
    dim_places: see `DimPlaces`. values: constants by their value, and what ops make of a value once for all that read
    it. casts: by the number of the operand, the dtype, and whether that is only a default. implicit: what errors show
    in place of a cast that the user did not write, by the number of the cast. expressions: the terms of Symbols that a
    longer expression may still take over, by number. tensors: quantised tensors and the constants of their arrays, by
    the identity of the tensor, which is kept alive. functions: graphs that are called as functions, and what was made
    of each for operands of some types, by both. loose: by the numbers of casts that `precision="fast"`
    may omit, whether all the nodes that they belong to may be less accurate of themselves.
    """

    __slots__ = (
        "casts",
        "dim_places",
        "expressions",
        "functions",
        "implicit",
        "indices",
        "loose",
        "plans",
        "reshapes",
        "sizes",
        "tensors",
        "values",
    )

    def __init__(self) -> None:
        self.plans: dict[Hashable, Any] = {}
        self.reshapes: dict[Hashable, tuple[Symbol | None, Any, Mapping[str, Any]]] = {}
        self.indices: dict[Hashable, list[Any]] = {}
        self.sizes: dict[Hashable, Symbol] = {}
        self.dim_places: DimPlaces[Symbol] = DimPlaces()
        self.values: dict[Hashable, Symbol] = {}
        self.casts: dict[tuple[int, DType, bool], Symbol] = {}
        self.implicit: dict[int, Symbol] = {}
        self.expressions: dict[int, Any] = {}
        self.tensors: dict[int, tuple[Any, Any]] = {}
        self.functions: dict[Hashable, tuple[Any, Any]] = {}
        self.loose: dict[int, bool] = {}

    def copy(self) -> Memory[Symbol]:
        """Return caches of their own with the same entries."""
        made: Memory[Symbol] = Memory()
        made.plans, made.reshapes, made.indices = dict(self.plans), dict(self.reshapes), dict(self.indices)
        made.sizes, made.values, made.casts = dict(self.sizes), dict(self.values), dict(self.casts)
        made.tensors, made.functions = dict(self.tensors), dict(self.functions)
        made.implicit, made.expressions, made.loose = dict(self.implicit), dict(self.expressions), dict(self.loose)
        return made

    # Told by an edit of the graph

    def forget_values(self, is_stale: Callable[[Symbol], bool]) -> None:
        """Forget the values that may not be found again."""
        self.values = {key: symbol for key, symbol in self.values.items() if not is_stale(symbol)}

    def forget_sizes(self, is_stale: Callable[[Symbol], bool]) -> None:
        """Forget the sizes that may not be found again."""
        self.sizes = {key: symbol for key, symbol in self.sizes.items() if not is_stale(symbol)}

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Note that Symbols have other numbers, and another order."""
        self.casts = {(numbers[own], dtype, flag): s for (own, dtype, flag), s in self.casts.items()}
        self.implicit = {numbers[own]: s for own, s in self.implicit.items()}
        self.expressions = {numbers[own]: found for own, found in self.expressions.items()}
        self.loose = {numbers[own]: is_fast for own, is_fast in self.loose.items()}
        self.dim_places = DimPlaces()


# Methods that are attached to a class from another file than its own.

_Function = TypeVar("_Function", bound=Callable[..., Any])


def method(owner: type, name: str = "") -> Callable[[_Function], _Function]:
    """Attach a function to a class as a method, under its own name or the one given."""

    def attach(function: _Function) -> _Function:
        function.__name__ = name or function.__name__
        function.__qualname__ = f"{owner.__name__}.{function.__name__}"
        setattr(owner, function.__name__, function)
        return function

    return attach
