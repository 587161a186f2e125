"""Buffers and `print`: the effects of a graph beside its outputs.

Buffers are mutable values of a graph; stores and loads take effect in the order in which the graph is built.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.build import operands
from graphcore.build.declare import op
from graphcore.build.operands import operand
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.buffers import Buffer, BufferValue, may_hold, value_of
from graphcore.ir.graph import Graph
from graphcore.ir.names import checked_name, first_free
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.creation import constant, full
from graphcore.ops.indexing import assign
from graphcore.types.dtypes import DType, is_wide

_NUMBERS = (bool, int, float, str)


@op(onnx="none, or ConstantOfShape", rule="keep")
def buffer_create(initial: Buffer | TensorLike) -> BufferValue:
    """A buffer inside the graph, initialised anew in every run.

    Args:
        initial: The initial value: a Symbol, array or number of any dtype and shape, or a `Buffer` with an initial
            value (zeros by default), whose named dims a Symbol of the graph must have. The buffer can hold other values
            of that dtype and rank, and of that shape where dims are numbers. A buffer that lasts from call to call is
            an input: `Graph("g", {"cache": Buffer(...)})`.

    Raises:
        ShapeError: For unknown dims.
        GraphError: For a `Buffer` outside of `with graph:`. Buffers have no ONNX operator: a load returns the last
            stored value.
    """
    if isinstance(initial, Buffer):
        value = _initial_value(initial)
        return value_of(value.graph, initial, value)
    graph = operands.graph_of("buffer_create", (initial,))
    value = graph.build.operand(initial, "buffer_create", "initial")
    value = value.cast(value.dtype) if value.ambiguous else value
    return value_of(value.graph, Buffer(value.dtype, value.shape), value)


@op(onnx="none", rule="keep")
def buffer_load(buffer: Symbol) -> Symbol:
    """The value of a buffer at this point of the graph: a Symbol that later stores do not change.

    Args:
        buffer: Of any dtype and shape; an op that takes the buffer as an operand loads it the same way.

    Returns:
        A Symbol of its dtype and of the last stored shape.

    Raises:
        DTypeError: For anything but a buffer.
    """
    value = _check_buffer("buffer_load", buffer)
    return value.graph.build.own(value, "buffer_load", "buffer")


@op(onnx="none, or Cast", rule="keep")
def buffer_store(buffer: Symbol, value: TensorLike) -> None:
    """Store a value to a buffer; later loads, in the order in which the graph is built, return it.

    Args:
        value: A Symbol or array, cast to the dtype of the buffer, which must hold all its values exactly, or a Python
            number that it holds; under Allo's promotion systems a Symbol of any dtype but string. Its rank must be that
            of the buffer, and its dims where they are numbers.

    Raises:
        DTypeError: For another dtype and for anything but a buffer.
        ShapeError: For another shape, `GraphError` in a body of a branch, loop or function that is not that of the
            buffer.
    """
    target = _check_buffer("buffer_store", buffer)
    graph = _open_graph("buffer_store", target)
    stored = _value(graph, "buffer_store", target, value)
    if not may_hold(target.buffer, stored.type):
        raise ShapeError(
            f"buffer_store: the value is {stored.type}, but the buffer holds {target.buffer.type}",
            operands={"buffer": target, "value": stored},
            help="give a value of that shape; buffer[...] = value broadcasts, and can store to a part",
        )
    _store(target, stored)


@op(onnx="ScatterND, Range, Slice", rule="keep")
def buffer_store_slice(buffer: Symbol, value: TensorLike, slices: Any) -> None:
    """Store to a part of a buffer: `buffer[slices] = value`, as in NumPy.

    Args:
        value: As for `buffer_store`, of a shape that broadcasts to that of the part.
        slices: One or a tuple or list of ints, integer scalars, slices with any step but 0 whose bounds are ints, Dims,
            None or integer Symbols, and `...`. Slices are clamped to the axis; a single position outside of it, if
            known only at run time, is an error of the run. Raises as `buffer_store` and `getitem` do, `ShapeError` for
            a value that does not broadcast, and `DTypeError` for arrays and masks among the slices.

    ONNX ScatterND.
    """
    target = _check_buffer("buffer_store_slice", buffer)
    graph = _open_graph("buffer_store_slice", target)
    stored = _value(graph, "buffer_store_slice", target, value)
    items = tuple(slices) if isinstance(slices, (tuple, list)) else (slices,)
    _store(target, assign("buffer_store_slice", target.value, items, stored))


def _initial_value(buffer: Buffer) -> Symbol:
    initial, type_ = buffer.initial, buffer.type
    if initial is None:
        zero: Any = "" if type_.dtype is DType.string else False
        return full(type_.shape, constant(zero, type_.dtype) if is_wide(type_.dtype) else zero, type_.dtype)
    value = Graph.current().build.constant(np.asarray(initial), type_.dtype)
    return value if initial.ndim else full(type_.shape, value, type_.dtype)


def _check_buffer(op: str, value: object) -> BufferValue:
    if isinstance(value, BufferValue):
        return value
    raise DTypeError(
        f"{op}: buffer must be a buffer, got {type(value).__name__}",
        operands={"buffer": value},
        help='declare one, Graph("g", {"cache": Buffer(...)}), and give graph["cache"]; or use ops.buffer_create(x)',
    )


def _open_graph(op: str, buffer: BufferValue) -> Graph:
    """Return the buffer's graph, which must be the one under construction."""
    graph = buffer.graph
    inner = graph if graph.scope.is_finished else graph.build.innermost()
    if inner is not graph or graph.scope.is_finished:
        raise GraphError(
            f"{op}: buffer {buffer.name!r} cannot be stored to in {inner.name!r}, the body of another graph",
            operands={"buffer": buffer},
            help="return the value from the function of the body, and store the result of cond, the loop or the call",
        )
    return graph


def _value(graph: Graph, op: str, buffer: BufferValue, value: Any) -> Symbol:
    """Return the value to store, in the dtype of the buffer."""
    from graphcore.passes.simplify import holds  # takes 10 ms to import, and only graphs with buffers need it

    dtype = buffer.buffer.type.dtype
    if type(value) in _NUMBERS:
        try:
            return graph.constant(value, dtype)
        except DTypeError as error:
            why = error.summary.removeprefix("constant: ")
            raise DTypeError(
                f"{op}: {why}", operands={"buffer": buffer}, help=f"give a value that {dtype} can hold"
            ) from None
    symbol = graph.build.operand(value, op, "value")
    if symbol.ambiguous or (graph.promotion.converts_stores and DType.string not in (symbol.dtype, dtype)):
        return symbol.cast(dtype)
    if symbol.dtype is dtype or holds(dtype, symbol.dtype):
        return operands.cast_operand(symbol, dtype)
    raise DTypeError(
        f"{op}: the buffer holds {dtype}, which cannot hold every value of {symbol.dtype}",
        operands={"buffer": buffer, "value": symbol},
        help=f"cast the value: .cast(DType.{dtype.name})",
    )


def _store(buffer: BufferValue, value: Symbol) -> None:
    buffer.graph.build.end_expressions([value])
    buffer._hold(value)


# Stores by assignment


def _setitem(self: BufferValue, index: Any, value: Any) -> None:
    buffer_store_slice(self, value, index if isinstance(index, tuple) else (index,))


def _in_place(operator: str) -> Any:
    def update(self: BufferValue, other: Any) -> BufferValue:
        buffer_store(self, getattr(self.value, f"__{operator}__")(other))
        return self

    return update


BufferValue.__setitem__ = _setitem  # type: ignore[assignment, method-assign]
for _operator in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift",
):  # fmt: skip
    setattr(BufferValue, f"__i{_operator}__", _in_place(_operator))


# Values that a debug run returns


@op(onnx="none", method=True)
def print(x: TensorLike, label: str = "debug_tensor") -> Symbol:
    """Mark a value: `Model.debug(...)` without `watch` runs the model and returns all marked values by label.

    Args:
        x: Any shape and dtype.
        label: A repeated label gets a number, `h`, `h_1`; inside of a function it follows the layer of the call.

    Returns:
        `x` itself: the graph, its exports and how it runs stay the same.

    Raises:
        GraphError: For a value inside the body of If, Loop or Scan, which a run cannot return. Source: MAX.
    """
    # A Symbol is marked in its own graph, even while a body of that graph is under construction.
    symbol = x if isinstance(x, Symbol) and type(x) is Symbol and not x.graph.scope.is_finished else operand("print", x)
    graph = symbol.graph
    checked_name(label, "print")
    if graph.scope.outer is not None:
        raise GraphError(
            f"print: the value is in a body, {graph.name!r}, and a run cannot return values from there",
            operands={"value": symbol},
            help="return it from the function of the body, and print the result of cond or the loop",
        )
    graph.build.end_expressions((symbol,))
    graph.watched[first_free(label, lambda name: graph.watched.get(name, symbol) is not symbol)] = symbol
    return symbol
