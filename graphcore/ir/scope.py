"""How bodies are nested in graphs, and how operands become Symbols of a graph.

A body is built inside its outer graph. It captures each Symbol of the outer graph that it uses once.
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
    """The nesting of a graph.

    outer: the graph whose node has this one as a body. building: the body under construction in it. is_finished: True
    for a body to which nothing can be added any more. is_open: True if new nodes go into the graph itself: it is
    unfinished and `building` is None. A plain attribute, since each new node reads it. captured: the Symbols captured
    from the outer graph, by their numbers in that graph.
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
        own = array_dtype(value, op, role)
        dtype = builder.graph.promotion.dtype_of(own)
        array = casting.native(np.asarray(value))
        return builder.constant(array.copy() if dtype is own else casting.cast_array(array, own, dtype), dtype)
    if isinstance(value, (bool, int, float, complex)):
        promotion = builder.graph.promotion
        dtype = literal_dtype(promotion, value, op)
        return builder.scalar(value, dtype, promotion.guesses_literals and dtype is not DType.bool)
    if isinstance(value, Dim):
        return operand(builder, size_of(value, op, role), op, role)
    if isinstance(value, EagerArray):
        constant = builder.constant(value._data.copy(), value.dtype)
        is_guess = getattr(value, "ambiguous", False) and builder.graph.promotion.knows_ambiguous
        return change(constant, type=tensor_type(value.dtype, constant.shape, True)) if is_guess else constant
    tensor = casting.third_party_array(value)
    if tensor is not None:
        return operand(builder, tensor, op, role)
    raise _not_an_operand(value, op, role)


def own(builder: GraphBuilder, value: object, op: str, role: str) -> Symbol:
    """Return a Symbol of the graph, or of an outer graph, as a Symbol of the graph or of its body under construction.

    Raises `GraphError` for a Symbol of any other graph.
    """
    graph = builder.graph
    if not isinstance(value, Symbol):
        raise _not_an_operand(value, op, role)
    if isinstance(value, BufferValue):
        value = value.value
    if value.graph.scope.is_finished:
        raise GraphError(
            f"{op}: {role} belongs to the body {value.graph.name!r} and cannot be used outside of it",
            operands={role: value},
            help="return it from the function of the body, and use the result of cond or of the loop",
        )
    if not graph.scope.is_open:
        return builder.innermost().build.own(value, op, role)
    symbol = builder.capture(value)
    if symbol is None:
        theirs, ours = _places(value.graph, graph)
        raise GraphError(
            f"{op}: {role} belongs to graph {value.graph.name!r}{theirs}, not to {graph.name!r}{ours}",
            operands={role: value},
            help="Symbols of two graphs never mix: make it an input of this graph",
        )
    return symbol


def _places(theirs: Graph, ours: Graph) -> tuple[str, str]:
    """Return details that distinguish two graphs in an error: the promotion systems, or the source lines."""
    if theirs.promotion is not ours.promotion:
        return f" ({theirs.promotion})", f" ({ours.promotion})"
    if theirs.name != ours.name:
        return "", ""
    first, second = _made_at(theirs), _made_at(ours)
    return first and f" of {first}", second and f" of {second}"


def _made_at(graph: Graph) -> str:
    """Return the source line of the first Symbol of a graph, "" for an empty graph."""
    return next((str(symbol.line) for symbol in graph._symbols if symbol.line is not None), "")


def capture(builder: GraphBuilder, symbol: Symbol) -> Symbol | None:
    """Return a Symbol of the graph, or of an outer graph, as a Symbol of the graph; None for any other graph."""
    graph = builder.graph
    if symbol.graph is graph:
        return symbol
    outer = graph.scope.outer
    source = None if outer is None else outer.build.capture(symbol)
    if source is None:
        return None
    captures = graph.scope.captured
    result = captures.get(source.id)
    if result is None:
        source.graph.memory.expressions.pop(source.id, None)
        result = captures[source.id] = builder.symbol(source.type, Captured(source))
    return result


def innermost(builder: GraphBuilder) -> Graph:
    """Return the innermost body under construction in the graph, or the graph. Raises `GraphError` if finished."""
    graph = builder.graph
    while graph.scope.building is not None:
        graph = graph.scope.building
    if graph.scope.is_finished:
        raise GraphError(
            f"the body {graph.name!r} is finished: nothing can be added to it",
            help="return its values from its function, and use the result of cond or of the loop",
        )
    return graph


def size_of(dim: Dim, op: str, role: str) -> int:
    """Return a static dim as an int. Raises `DTypeError` for other dims."""
    if dim.is_static:
        return int(dim)
    raise DTypeError(
        f"{op}: {role} is the dim {dim}, whose size is not known while the graph is being built",
        operands={role: dim},
        help="take the size as a Symbol: ops.shape_of(x)[axis]",
    )


def _not_an_operand(value: object, op: str, role: str) -> DTypeError:
    fix = "pass a Symbol, a NumPy array or a Python number"
    if isinstance(value, (list, tuple)):
        fix = "make it an array: np.asarray(value), or a constant: graph.constant(value, dtype)"
    return DTypeError(f"{op}: {role} has unsupported type {type(value).__name__}", operands={role: value}, help=fix)
