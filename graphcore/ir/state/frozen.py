"""Immutability of nodes, Symbols and constants, and of the dicts and sequences that a graph returns.

Setting the type of a Symbol would make it disagree with the node that computes it. Assignments raise an error that
names the method to use instead. A new object is filled as an instance of an open subclass with the same slots, then
closed by `symbol.__class__ = Symbol`: setting seven slots past a `__setattr__` takes ten times as long. Passes and
readers, which change graphs before users see them, call `change(node, op_type="Sum")`.
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

_REPLACED = "replace it: graph.replace({what}, fn), which returns a new graph"
_WEIGHTS = "replace arrays in a new graph: graph.with_weights({'name': array})"

_NODE: Mapping[str, str] = {
    "op_type": _REPLACED,
    "inputs": _REPLACED,
    "outputs": _REPLACED,
    "attributes": _REPLACED,
    "domain": _REPLACED,
    "layer": "create it in that layer: with graph.layer(name): ...",
    "origin": "it is the source line of the call that created it",
    "line": "it is the source line of the call that created it",
}
_SYMBOL: Mapping[str, str] = {
    "type": "x.cast(dtype) gives another dtype, x.rebind(...) states dims, graph.with_dims({...}) changes inputs",
    "dtype": "cast it: x.cast(dtype), which returns a new Symbol",
    "shape": "x.reshape(...) gives another shape, x.rebind(...) states dims, graph.with_dims({...}) changes inputs",
    "rank": "x.reshape(...) gives another shape",
    "ndim": "x.reshape(...) gives another shape",
    "ambiguous": "declare it: TensorType(dtype, shape, ambiguous=True) for an input, "
    "graph.constant(value, dtype, ambiguous=True)",
    "producer": _REPLACED,
    "id": "Symbols are numbered in the order of their creation",
    "graph": "Symbols of two graphs never mix: call one graph on Symbols of the other",
    "given_name": "x.name = 'name', or graph.rename({'old': 'new'}), which returns a new graph",
    "is_constant": "bind an input to a constant in a new graph: graph.with_constants({'name': array})",
    "line": "it is the source line of the call that created it",
    "buffer": "declare it with the graph: Graph(name, {'cache': Buffer(...)})",
}
_PRODUCER: Mapping[str, str] = {
    "array": _WEIGHTS,
    "is_weight": "create it as a weight: graph.weight(name, array), or as a constant: graph.constant(array)",
    "origin": "it is the source line of the call that created it",
    "position": "inputs are numbered in the order of their declaration: Graph(name, {...})",
    "symbol": "return the value from the function of the body",
}
_GRAPH: Mapping[str, str] = {
    "promotion": "state it when the graph is created: Graph(name, inputs, promotion=...)",
    "inputs": "declare them with the graph: Graph(name, {...}); graph.with_inputs(...), graph.with_dims({...}) and "
    "graph.rename({...}) return new graphs",
    "outputs": "set them once with graph.output(...); graph.with_outputs(...) returns a new graph",
    "named_outputs": "set them once with graph.output(...); graph.with_outputs(...) returns a new graph",
    "output_types": "they are the types of the outputs: graph.output(y.cast(dtype))",
    "input_symbols": "declare inputs with the graph: Graph(name, {...})",
    "buffers": "declare them with the graph: Graph(name, {'cache': Buffer(...)})",
    "defaults": "give them with the graph: Graph(name, {...}, defaults={'a': array})",
    "nodes": "ops add nodes; graph.replace(x, fn) returns a new graph",
    "symbols": "ops add Symbols; graph.replace(x, fn) returns a new graph",
    "weights": f"graph.weight(name, array) adds one; {_WEIGHTS}",
    "current_layer": "with graph.layer(name): ...",
}
CLOSED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"Node": _NODE, "Symbol": _SYMBOL, "Constant": _PRODUCER, "Graph": _GRAPH}
)
"""The help of the error for each slot that cannot be assigned, by class."""


def assignment_error(part: object, kind: str, name: str, what: str = "x") -> ImmutableError:
    """Return the error of an assignment to `part`, an object of class `kind`. what: its variable name in the help."""
    operands: dict[str, object] = {what: part} if isinstance(part, Described) else {}
    array = getattr(part, "array", None) if kind == "Constant" else None
    if isinstance(array, np.ndarray):
        operands["array"] = f"{array.dtype}{list(array.shape)}"
    label = f"graph {getattr(part, 'name', '')!r}" if kind == "Graph" else type(part).__name__
    help = CLOSED[kind][name].replace("{what}", what)
    return ImmutableError(f"{label}: {name} cannot be assigned", operands=operands, help=help)


def closed(kind: str, what: str = "x") -> tuple[Callable[[Any, str, Any], None], Callable[[Any, str], None]]:
    """Return the `__setattr__` and `__delattr__` of a class, which raise `ImmutableError` for the slots in `CLOSED`."""
    names = CLOSED[kind]

    def assign(part: Any, name: str, value: Any) -> None:
        if name in names:
            raise assignment_error(part, kind, name, what)
        object.__setattr__(part, name, value)

    def delete(part: Any, name: str) -> None:
        if name in names:
            raise assignment_error(part, kind, name, what)
        object.__delattr__(part, name)

    return assign, delete


def change(part: _Part, **slots: Any) -> _Part:
    """Set slots of a node, Symbol or producer without the check, and return it. Only before users see the graph."""
    for name, value in slots.items():
        object.__setattr__(part, name, Attributes(value) if name == "attributes" else value)
    return part


class ReadOnly(dict[_Key, _Value]):
    """A read-only dict. `dict(it)` is a mutable copy."""

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
    _help = "replace the node: graph.replace(node, fn), which returns a new graph"


class Weights(ReadOnly[str, Any]):
    """The weights of a graph by name."""

    __slots__ = ()

    _what = "graph.weights"
    _help = CLOSED["Graph"]["weights"]


NO_ATTRIBUTES = Attributes()
"""The attributes of all nodes without attributes."""


# Read-only views of lists.

T = TypeVar("T", covariant=True)


class View(Sequence[T]):
    """A read-only view of a list, which follows its changes; `tuple(view)` is a snapshot.

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
        items = self._items[index]
        return tuple(items) if isinstance(items, list) else items

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


# Where new nodes of a graph come from.


@dataclass(slots=True)
class Site:
    """The layer and origin of new nodes of a graph."""

    layer: str = ""
    """The path of the current layer with a trailing slash, or ""."""
    origin: Origin | Line | None = None
    """The origin of new nodes if `is_user` is False."""
    is_user: bool = True
    """True if a user builds the graph: the origin of a new node is the line of user code that runs."""
    has_untyped: bool = False
    """True if the result types of some nodes are stated, not inferred: `Graph.op` with `out_types`."""
    layers: dict[str, int] = field(default_factory=dict)
    """The number of times each layer was entered, by path."""
