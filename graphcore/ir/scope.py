"""What a value is in a graph: a Symbol of its own, what stands in it for one of a graph around it, or a constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays import casting
from graphcore.errors import DTypeError, GraphError
from graphcore.ir.buffers import BufferValue
from graphcore.ir.literals import array_dtype
from graphcore.ir.symbol import Captured, Symbol
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph


def operand(graph: Graph, value: Any, op: str, role: str) -> Symbol:
    """An operand as a Symbol of this graph; arrays become constants, Python scalars of their default dtype too."""
    if isinstance(value, Symbol):
        return graph._own(value, op, role)
    if isinstance(value, (np.ndarray, np.generic)):
        dtype = array_dtype(value, op, role)
        return graph._constant(casting.native(np.asarray(value)).copy(), dtype)
    if isinstance(value, (bool, int, float)):
        dtype = graph.promotion.default_dtype([value])
        return graph._scalar(value, dtype, graph.promotion.guesses_literals and dtype is not DType.bool)
    if hasattr(type(value), "__array_namespace__"):  # an array of another kind
        array = np.asarray(value)
        return graph._constant(array.copy(), array_dtype(array, op, role))
    raise _no_operand(value, op, role)


def own(graph: Graph, value: object, op: str, role: str) -> Symbol:
    """A Symbol as one of the graph, or of the body that is being built in it. Raises `GraphError` for any other's."""
    if not isinstance(value, Symbol):
        raise _no_operand(value, op, role)
    if isinstance(value, BufferValue):
        value = value.value
    if value.graph._inner is value.graph:
        raise GraphError(
            f"{op}: {role} belongs to a body, {value.graph.name!r}, and is not known outside of it",
            operands={role: value},
            help="return it from the function of the body, and use what cond or the loop gives",
        )
    if graph._inner is not None:
        return graph._open()._own(value, op, role)
    found = graph._capture(value)
    if found is None:
        theirs, ours = (
            (f" ({value.graph.promotion})", f" ({graph.promotion})")
            if value.graph.promotion is not graph.promotion
            else ("", "")
        )
        raise GraphError(
            f"{op}: {role} belongs to graph {value.graph.name!r}{theirs}, not to {graph.name!r}{ours}",
            operands={role: value},
            help="Symbols of two graphs never mix: make it an input of this graph",
        )
    return found


def capture(graph: Graph, symbol: Symbol) -> Symbol | None:
    """What stands in this graph for a Symbol of it or of one around it; None for a Symbol of any other."""
    if symbol.graph is graph:
        return symbol
    around = graph._outer
    outer = None if around is None else around._capture(symbol)
    if outer is None:
        return None
    found = graph._captured.get(outer.id)
    if found is None:
        outer.graph._expressions.pop(outer.id, None)
        found = graph._captured[outer.id] = graph._symbol(outer.type, Captured(outer))
    return found


def innermost(graph: Graph) -> Graph:
    """The innermost body that is being built in it, or itself. Raises `GraphError` for a body that is finished."""
    while (inner := graph._inner) is not None:
        if inner is graph:
            raise GraphError(
                f"the body {graph.name!r} is finished: nothing can be added to it",
                help="return its values from the function that made them, and use what cond or the loop gives",
            )
        graph = inner
    return graph


def in_body(graph: Graph, inputs: Sequence[Symbol | None], op: str) -> tuple[Graph, tuple[Symbol | None, ...]]:
    """The body that is being built in it, and what stands there for these operands."""
    body = innermost(graph)
    return body, tuple([None if s is None else body._own(s, op, "an operand") for s in inputs])


def _no_operand(value: object, op: str, role: str) -> DTypeError:
    fix = "give a Symbol, a NumPy array or a Python number"
    if isinstance(value, (list, tuple)):
        fix = "make it an array: np.asarray(value), or a constant: graph.constant(value, dtype)"
    return DTypeError(f"{op}: {role} is a {type(value).__name__}", operands={role: value}, help=fix)


__all__ = ["capture", "in_body", "innermost", "operand", "own"]
