"""Refuse assignment: slots of nodes, Symbols and constants, and the dicts that a graph shows.

A Symbol whose type were set would run as another than it says. The classes refuse every assignment, with the method
that does what was wanted. A new object is filled as one of an open subclass of the same slots, and closed by
`made.__class__ = Symbol`: setting seven slots past a `__setattr__` takes ten times as long. Passes and readers, which
change graphs that no user has, say `change(node, op_type="Sum")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar, overload

import numpy as np

from graphcore.errors import Described, ImmutableError
from graphcore.support.source_lines import Line, Origin

_Part = TypeVar("_Part")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_REPLACED = "put something else in its place: graph.replace({what}, fn), which returns a new graph"
_WEIGHTS = "give other arrays to a new graph: graph.with_weights({'name': array})"

_NODE: Mapping[str, str] = {
    "op_type": _REPLACED,
    "inputs": _REPLACED,
    "outputs": _REPLACED,
    "attributes": _REPLACED,
    "domain": _REPLACED,
    "layer": "make it in that layer: with graph.layer(name): ...",
    "origin": "the line is that of the call that made it",
    "line": "the line is that of the call that made it",
}
_SYMBOL: Mapping[str, str] = {
    "type": "x.cast(dtype) gives another dtype, x.rebind(...) states dims, graph.with_dims({...}) changes inputs",
    "dtype": "cast it: x.cast(dtype), which returns a new Symbol",
    "shape": "x.reshape(...) gives another shape, x.rebind(...) states dims, graph.with_dims({...}) changes inputs",
    "rank": "x.reshape(...) gives another shape",
    "ndim": "x.reshape(...) gives another shape",
    "ambiguous": "say so where it is made: TensorType(dtype, shape, ambiguous=True) of an input, "
    "graph.constant(value, dtype, ambiguous=True)",
    "producer": _REPLACED,
    "id": "Symbols are numbered in the order of their making",
    "graph": "Symbols of two graphs never mix: call one graph on Symbols of the other",
    "given_name": "x.name = 'name', or graph.rename({'old': 'new'}), which returns a new graph",
    "is_constant": "bind an input to a constant in a new graph: graph.with_constants({'name': array})",
    "line": "the line is that of the call that made it",
    "buffer": "declare it with the graph: Graph(name, {'cache': Buffer(...)})",
}
_PRODUCER: Mapping[str, str] = {
    "array": _WEIGHTS,
    "is_weight": "make it as a weight: graph.weight(name, array), or as a constant: graph.constant(array)",
    "origin": "the line is that of the call that made it",
    "position": "inputs are numbered as they are declared: Graph(name, {...})",
    "symbol": "return the value from the function of the body",
}
_GRAPH: Mapping[str, str] = {
    "promotion": "what was built is built: say it where the graph is made, Graph(name, inputs, promotion=...)",
    "inputs": "declare them with the graph: Graph(name, {...}); graph.with_inputs(...), graph.with_dims({...}) and "
    "graph.rename({...}) return new graphs",
    "outputs": "set them once with graph.output(...); graph.with_outputs(...) returns a new graph",
    "named_outputs": "set them once with graph.output(...); graph.with_outputs(...) returns a new graph",
    "output_types": "they are the types of the outputs: graph.output(y.cast(dtype))",
    "input_symbols": "declare inputs with the graph: Graph(name, {...})",
    "buffers": "declare them with the graph: Graph(name, {'cache': Buffer(...)})",
    "nodes": "ops add nodes; graph.replace(x, fn) returns a new graph",
    "symbols": "ops add Symbols; graph.replace(x, fn) returns a new graph",
    "weights": f"graph.weight(name, array) adds one; {_WEIGHTS}",
    "current_layer": "with graph.layer(name): ...",
}
CLOSED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"Node": _NODE, "Symbol": _SYMBOL, "Constant": _PRODUCER, "Graph": _GRAPH}
)
"""The slots that cannot be assigned, by class, each with the help of its error."""


def refused(part: object, kind: str, name: str, what: str = "x") -> ImmutableError:
    """Return the error of an assignment to `part`, a thing of a kind. what: how its help calls it."""
    operands: dict[str, object] = {what: part} if isinstance(part, Described) else {}
    array = getattr(part, "array", None) if kind == "Constant" else None
    if isinstance(array, np.ndarray):
        operands["array"] = f"{array.dtype}{list(array.shape)}"
    shown = f"graph {getattr(part, 'name', '')!r}" if kind == "Graph" else type(part).__name__
    help = CLOSED[kind][name].replace("{what}", what)
    return ImmutableError(f"{shown}: {name} cannot be assigned", operands=operands, help=help)


def closed(kind: str, what: str = "x") -> tuple[Callable[[Any, str, Any], None], Callable[[Any, str], None]]:
    """Return the `__setattr__` and `__delattr__` of a class, which raise `ImmutableError` for what is closed."""
    names = CLOSED[kind]

    def assign(part: Any, name: str, value: Any) -> None:
        if name in names:
            raise refused(part, kind, name, what)
        object.__setattr__(part, name, value)

    def delete(part: Any, name: str) -> None:
        if name in names:
            raise refused(part, kind, name, what)
        object.__delattr__(part, name)

    return assign, delete


def change(part: _Part, **slots: Any) -> _Part:
    """Set slots of a node, Symbol or producer, past the check, and return it. Only for graphs that no user has."""
    for name, value in slots.items():
        object.__setattr__(part, name, Attributes(value) if name == "attributes" else value)
    return part


class ReadOnly(dict[_Key, _Value]):
    """A dict that does not change. `dict(it)` is one that does."""

    __slots__ = ()

    _what = "this dict"
    _help = "change a copy: dict(it)"

    def _refuse(self, *args: Any, **named: Any) -> NoReturn:
        key = f"[{args[0]!r:.60}]" if args and isinstance(args[0], str) else ""
        raise ImmutableError(f"{self._what}{key} cannot be assigned", help=self._help)

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[_Key, _Value]:
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


class Attributes(ReadOnly[str, Any]):
    """The attributes of a node."""

    __slots__ = ()

    _what = "node.attributes"
    _help = "make another node: graph.replace(node, fn), which returns a new graph"


class Weights(ReadOnly[str, Any]):
    """The weights of a graph by name."""

    __slots__ = ()

    _what = "graph.weights"
    _help = CLOSED["Graph"]["weights"]


NO_ATTRIBUTES = Attributes()
"""Those of every node without any."""


# Sequences that show a list without copying it.

T = TypeVar("T", covariant=True)


class View(Sequence[T]):
    """A list that its owner alone changes. It grows with the list; `tuple(view)` is what it shows now.

    Equal to views, tuples and lists of the same elements. A slice is a tuple.
    """

    __slots__ = ("_items",)

    def __init__(self, items: list[T]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        found = self._items[index]
        return tuple(found) if isinstance(found, list) else found

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __reversed__(self) -> Iterator[T]:
        return reversed(self._items)

    def __contains__(self, value: object) -> bool:
        return value in self._items

    def __add__(self, other: Sequence[Any]) -> tuple[Any, ...]:
        return (*self._items, *other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, View):
            return self._items == other._items
        return isinstance(other, (tuple, list)) and self._items == [*other]

    __hash__ = None  # type: ignore[assignment]  # its elements change

    def __repr__(self) -> str:
        return repr(tuple(self._items))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a view belongs to its graph: pickle the graph, or tuple(view)")


# The origin of a graph's nodes: in the user's code, in the layers and in the file.


@dataclass(slots=True)
class Site:
    """The place that new nodes of a graph belong to."""

    layer: str = ""
    """The path of the layer being built, with a slash after it, or ""."""
    origin: Origin | Line | None = None
    """The line that new nodes belong to unless `is_user`."""
    is_user: bool = True
    """True if a user builds the graph: a new node belongs to the user's line that runs."""
    has_untyped: bool = False
    """True if there are nodes whose results' types were given and not inferred: `Graph.op` with `out_types`."""
    layers: dict[str, int] = field(default_factory=dict)
    """The number of times each layer was entered, by path."""
