"""The place of a graph among others, and which Symbols it has for the values that are used in it.

A body is built inside its outer graph, and uses the Symbols of that: each is captured, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays import casting
from graphcore.arrays.eager_array import EagerArray
from graphcore.errors import DTypeError, GraphError
from graphcore.ir.buffers import BufferValue
from graphcore.ir.literals import array_dtype, literal_dtype
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Captured, Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import tensor_type

if TYPE_CHECKING:
    from graphcore.ir.builder import GraphBuilder
    from graphcore.ir.graph import Graph


class Scope:
    """The place of a graph among others.

    outer: the graph whose node has this one as a body. building: the body under construction in it. is_finished: True
    of a body to which nothing can be added any more. is_open: True if nodes are added to the graph itself, since there
    is no such body, and it is unfinished: an attribute, since each node that is made asks for it. captured: the Symbols
    that stand for those of the outer graph, by their numbers there.
    """

    __slots__ = ("_building", "_is_finished", "captured", "is_open", "outer")

    def __init__(self) -> None:
        self.outer: Graph | None = None
        self.captured: dict[int, Symbol] = {}
        self._building: Graph | None = None
        self._is_finished = False
        self.is_open = True

    @property
    def building(self) -> Graph | None:
        return self._building

    @building.setter
    def building(self, body: Graph | None) -> None:
        self._building = body
        self.is_open = body is None and not self._is_finished

    @property
    def is_finished(self) -> bool:
        return self._is_finished

    @is_finished.setter
    def is_finished(self, is_finished: bool) -> None:
        self._is_finished = is_finished
        self.is_open = not is_finished and self._building is None


def operand(builder: GraphBuilder, value: Any, op: str, role: str) -> Symbol:
    """Return an operand as a Symbol of the graph; arrays and Python scalars become constants."""
    if isinstance(value, Symbol):
        return builder.own(value, op, role)
    if isinstance(value, (np.ndarray, np.generic)):
        dtype = array_dtype(value, op, role)
        return builder.constant(casting.native(np.asarray(value)).copy(), dtype)
    if isinstance(value, (bool, int, float, complex)):
        promotion = builder.graph.promotion
        dtype = literal_dtype(promotion, value, op)
        return builder.scalar(value, dtype, promotion.guesses_literals and dtype is not DType.bool)
    if isinstance(value, Dim):
        return operand(builder, size_of(value, op, role), op, role)
    if isinstance(value, EagerArray):
        made = builder.constant(value._data.copy(), value.dtype)
        is_guess = getattr(value, "ambiguous", False) and builder.graph.promotion.knows_ambiguous
        return change(made, type=tensor_type(value.dtype, made.shape, True)) if is_guess else made
    if hasattr(type(value), "__array_namespace__"):  # an array of another kind
        array = np.asarray(value)
        return builder.constant(array.copy(), array_dtype(array, op, role))
    raise _no_operand(value, op, role)


def own(builder: GraphBuilder, value: object, op: str, role: str) -> Symbol:
    """Return the Symbol of the graph, or of the body under construction in it, for one of it or of an outer graph.

    Raises `GraphError` for a Symbol of any other graph.
    """
    graph = builder.graph
    if not isinstance(value, Symbol):
        raise _no_operand(value, op, role)
    if isinstance(value, BufferValue):
        value = value.value
    if value.graph.scope.is_finished:
        raise GraphError(
            f"{op}: {role} belongs to a body, {value.graph.name!r}, and is not known outside of it",
            operands={role: value},
            help="return it from the function of the body, and use what cond or the loop gives",
        )
    if not graph.scope.is_open:
        return builder.innermost().build.own(value, op, role)
    found = builder.capture(value)
    if found is None:
        theirs, ours = _places(value.graph, graph)
        raise GraphError(
            f"{op}: {role} belongs to graph {value.graph.name!r}{theirs}, not to {graph.name!r}{ours}",
            operands={role: value},
            help="Symbols of two graphs never mix: make it an input of this graph",
        )
    return found


def _places(theirs: Graph, ours: Graph) -> tuple[str, str]:
    """Return what tells two graphs apart in an error, beside their names: their promotion, or where they were made."""
    if theirs.promotion is not ours.promotion:
        return f" ({theirs.promotion})", f" ({ours.promotion})"
    if theirs.name != ours.name:
        return "", ""
    first, second = _made_at(theirs), _made_at(ours)
    return first and f" of {first}", second and f" of {second}"


def _made_at(graph: Graph) -> str:
    """Return the line that made a graph's inputs, or the first one that added to it; "" for an empty graph."""
    return next((str(symbol.line) for symbol in graph._symbols if symbol.line is not None), "")


def capture(builder: GraphBuilder, symbol: Symbol) -> Symbol | None:
    """Return the Symbol of the graph for one of it or of an outer graph; None for a Symbol of any other."""
    graph = builder.graph
    if symbol.graph is graph:
        return symbol
    outer = graph.scope.outer
    found = None if outer is None else outer.build.capture(symbol)
    if found is None:
        return None
    captured = graph.scope.captured
    made = captured.get(found.id)
    if made is None:
        found.graph.memory.expressions.pop(found.id, None)
        made = captured[found.id] = builder.symbol(found.type, Captured(found))
    return made


def innermost(builder: GraphBuilder) -> Graph:
    """Return the innermost body under construction in the graph, or the graph. Raises `GraphError` if finished."""
    graph = builder.graph
    while graph.scope.building is not None:
        graph = graph.scope.building
    if graph.scope.is_finished:
        raise GraphError(
            f"the body {graph.name!r} is finished: nothing can be added to it",
            help="return its values from the function that made them, and use what cond or the loop gives",
        )
    return graph


def size_of(dim: Dim, op: str, role: str) -> int:
    """Return a dim that is given as a number. Raises `DTypeError` for one that only the run knows."""
    if dim.is_static:
        return int(dim)
    raise DTypeError(
        f"{op}: {role} is the dim {dim}, which is known when the graph runs and is no operand before",
        operands={role: dim},
        help="take the size as a Symbol: ops.shape_of(x)[axis]",
    )


def _no_operand(value: object, op: str, role: str) -> DTypeError:
    fix = "give a Symbol, a NumPy array or a Python number"
    if isinstance(value, (list, tuple)):
        fix = "make it an array: np.asarray(value), or a constant: graph.constant(value, dtype)"
    return DTypeError(f"{op}: {role} is a {type(value).__name__}", operands={role: value}, help=fix)
