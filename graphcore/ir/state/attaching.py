"""Lazy attachment of the operators of Symbol and of the Graph methods that packages above this one implement.

Most of these packages are imported before the first graph is created, or when an unknown attribute of the class is
read; those that import onnx, which is slow, when one of their methods is used. A process that only runs a model imports
none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from graphcore.support.gc_pause import freeze, uncollected

if TYPE_CHECKING:
    from graphcore.types.dims import Dim
    from graphcore.types.dtypes import DType


_PARTS = ("ops.families", "graph_methods", "build.functions", "build.insert")
_LATE = {
    name: module
    for module, names in {
        "analysis.bounds": "bounds",
        "onnx.read.ir_models": "from_ir",
        "onnx.read.reader": "load",
        "surgery.astype": "astype",
        "surgery.diff": "diff",
        "decompile": "to_python with_fields",
        "surgery.interface": "extract rename with_constants with_inputs with_outputs with_weights",
        "surgery.products": "fold_preprocessing",
        "surgery.replacing": "find_all replace replace_all",
        "surgery.sizes": "with_dims",
    }.items()
    for name in names.split()
}
"""The modules of the methods of Graph that are attached on first use."""
_done: list[bool] = []


def attach() -> None:
    """Import the modules that attach methods, once."""
    if not _done:
        with uncollected():
            for name in _PARTS:
                import_module(f"graphcore.{name}")
            freeze()
        _done.append(True)


def attach_late(*names: str) -> None:
    """Import the modules that attach these methods of Graph; other names have none."""
    for module in {_LATE[name] for name in names if name in _LATE}:
        import_module(f"graphcore.{module}")


class Attached(type):
    """The metaclass of Graph."""

    if not TYPE_CHECKING:  # type checkers would accept every attribute

        def __getattr__(cls, name: str) -> Any:
            """Attach the methods, and return the attribute."""
            if not name.startswith("__"):
                attach()
                attach_late(name)
            return type.__getattribute__(cls, name)

    def __dir__(cls) -> list[str]:
        attach()
        attach_late(*_LATE)
        return [*super().__dir__()]


# The caches of a graph under construction.

Symbol = TypeVar("Symbol")
"""The Symbols of a graph; this module uses none of their attributes."""


class DimPlaces(dict["Dim", tuple[Symbol, int]], Generic[Symbol]):
    """The first axis with each symbolic dim of a graph. seen: the number of Symbols that were searched."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0


@dataclass(slots=True, eq=False)
class Memory(Generic[Symbol]):
    """The caches of one graph.

    plans: results of promotion and shape rules, by op and operand types. reshapes: plans of Reshape, by type and target
    shape. indices: the entries of an index, by type and index. sizes: Symbols of sizes, by dims. dim_places: see
    `DimPlaces`. values: constants by value, and shared results of ops by key. casts: by the number of the operand,
    the dtype, and whether it is ambiguous. implicit: the operands of implicit casts, which errors show in their place,
    by the number of the cast. expressions: the terms of Symbols that a longer expression may still absorb, by number.
    tensors: quantised tensors and the constants of their arrays, by the identity of the tensor, which is kept alive.
    functions: graphs that are called as functions with their definitions, by graph and operand types. loose: casts
    that `precision="fast"` may omit, by number, with True if all their nodes may be less accurate anyway.
    """

    plans: dict[Hashable, Any] = field(default_factory=dict)
    reshapes: dict[Hashable, tuple[Symbol | None, Any, Mapping[str, Any]]] = field(default_factory=dict)
    indices: dict[Hashable, list[Any]] = field(default_factory=dict)
    sizes: dict[Hashable, Symbol] = field(default_factory=dict)
    dim_places: DimPlaces[Symbol] = field(default_factory=DimPlaces)
    values: dict[Hashable, Symbol] = field(default_factory=dict)
    casts: dict[tuple[int, DType, bool], Symbol] = field(default_factory=dict)
    implicit: dict[int, Symbol] = field(default_factory=dict)
    expressions: dict[int, Any] = field(default_factory=dict)
    tensors: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    functions: dict[Hashable, tuple[Any, Any]] = field(default_factory=dict)
    loose: dict[int, bool] = field(default_factory=dict)

    def copy(self) -> Memory[Symbol]:
        """Return a copy of the caches, but for the places of dims, which are found again."""
        copies: Any = {e.name: dict(getattr(self, e.name)) for e in fields(self) if e.name != "dim_places"}
        return Memory(**copies)

    # Invalidation after an edit of the graph

    def forget_values(self, is_stale: Callable[[Symbol], bool]) -> None:
        """Remove stale values."""
        self.values = {key: symbol for key, symbol in self.values.items() if not is_stale(symbol)}

    def forget_sizes(self, is_stale: Callable[[Symbol], bool]) -> None:
        """Remove stale sizes."""
        self.sizes = {key: symbol for key, symbol in self.sizes.items() if not is_stale(symbol)}

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Update the caches after a renumbering of Symbols."""
        self.casts = {(numbers[own], dtype, flag): s for (own, dtype, flag), s in self.casts.items()}
        self.implicit = {numbers[own]: s for own, s in self.implicit.items()}
        self.expressions = {numbers[own]: expression for own, expression in self.expressions.items()}
        self.loose = {numbers[own]: is_fast for own, is_fast in self.loose.items()}
        self.dim_places = DimPlaces()


# Methods that are attached to a class from another module.

_Function = TypeVar("_Function", bound=Callable[..., Any])


def method(owner: type, name: str = "", *, is_static: bool = False) -> Callable[[_Function], _Function]:
    """Attach a function to a class as a method or static method, by default under its own name."""

    def attach(function: _Function) -> _Function:
        function.__name__ = name or function.__name__
        function.__qualname__ = f"{owner.__name__}.{function.__name__}"
        setattr(owner, function.__name__, staticmethod(function) if is_static else function)
        return function

    return attach
