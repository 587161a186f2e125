"""Marks on the values that a debug run shows."""

from __future__ import annotations

from graphcore.build.declare import op
from graphcore.build.operands import operand
from graphcore.errors import GraphError
from graphcore.ir.names import checked_name
from graphcore.ir.symbol import Symbol, TensorLike


@op(onnx="none", method=True)
def print(x: TensorLike, label: str = "debug_tensor") -> Symbol:
    """Mark a value: `Model.debug(...)` without `watch` runs the model and returns all marked values by label.

    x: any shape and dtype. label: a repeated one gets a number, `h`, `h_1`; inside of a function it follows the layer
    of the call. Returns `x` itself: the graph, what it exports and how it runs stay the same. Raises `GraphError` for a
    value inside the body of If, Loop or Scan, which a run cannot return. Source: MAX.
    """
    symbol = _value(x)
    graph = symbol.graph
    checked_name(label, "print")
    if graph.scope.outer is not None:
        raise GraphError(
            f"print: the value belongs to a body, {graph.name!r}, and a run gives no values from inside of it",
            operands={"value": symbol},
            help="return it from the function of the body, and print what cond or the loop gives",
        )
    own, count = label, 0
    while graph.watched.get(own, symbol) is not symbol:
        count += 1
        own = f"{label}_{count}"
    graph.build.end_expressions((symbol,))
    graph.watched[own] = symbol
    return symbol


def _value(x: TensorLike) -> Symbol:
    """Return the Symbol in its own graph, even while a body of that graph is under construction."""
    is_plain = type(x) is Symbol and not x.graph.scope.is_finished
    return x if is_plain and isinstance(x, Symbol) else operand("print", x)


__all__ = ["print"]
