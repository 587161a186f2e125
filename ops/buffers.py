"""Buffers and `print`: what a graph does besides giving outputs.

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
from graphcore.ir.names import checked_name
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.creation import constant, full
from graphcore.ops.indexing import assigned
from graphcore.types.dtypes import DType, is_wide

_NUMBERS = (bool, int, float, str)


@op(onnx="none, or ConstantOfShape", rule="keep")
def buffer_create(initial: Buffer | TensorLike) -> BufferValue:
    """A buffer inside the graph, initialised anew in every run.

    initial: its first value: a Symbol, array or number of any dtype and shape, or a `Buffer` for its own initial value
    (zeros by default), whose named dims a Symbol of the graph must have. It can hold other values of that dtype and
    rank, and of that shape where dims are numbers. A buffer that lasts from call to call is an input: `Graph("g",
    {"cache": Buffer(...)})`. Raises `ShapeError` for unknown dims, `GraphError` for a `Buffer` outside of `with
    graph:`. Buffers have no ONNX operator: a load reads the value stored last.
    """
    if isinstance(initial, Buffer):
        value = _at_first(initial)
        return value_of(value.graph, initial, value)
    graph = operands.graph_of("buffer_create", (initial,))
    value = graph.build.operand(initial, "buffer_create", "initial")
    value = value.cast(value.dtype) if value.ambiguous else value
    return value_of(value.graph, Buffer(value.dtype, value.shape), value)


@op(onnx="none", rule="keep")
def buffer_load(buffer: Symbol) -> Symbol:
    """The value of a buffer at this point of the graph: a Symbol that later stores do not change.

    buffer: of any dtype and shape; as an operand of any op it is read the same way. Returns a Symbol of its dtype and
    of the shape stored last. Raises `DTypeError` for anything but a buffer.
    """
    held = _checked("buffer_load", buffer)
    return held.graph.build.own(held, "buffer_load", "buffer")


@op(onnx="none, or Cast", rule="keep")
def buffer_store(buffer: Symbol, value: TensorLike) -> None:
    """Store a value to a buffer, from here on in the order in which the graph is built.

    value: a Symbol or array of a dtype that the buffer's holds exactly, to which it is cast, or a Python number that it
    holds; under Allo's promotion systems a Symbol of any dtype but string, which is cast; of the buffer's rank, and of
    its dims where they are numbers. Raises `DTypeError` for another dtype and for anything but a buffer, `ShapeError`
    for another shape, `GraphError` within the body of a branch, loop or function that the buffer does not belong to.
    """
    held = _checked("buffer_store", buffer)
    graph = _open("buffer_store", held)
    made = _value(graph, "buffer_store", held, value)
    if not may_hold(held.buffer, made.type):
        raise ShapeError(
            f"buffer_store: the buffer holds {held.buffer.type}",
            operands={"buffer": held, "value": made},
            help="give a value of that shape; buffer[...] = value broadcasts, and stores to a part",
        )
    _hold(held, made)


@op(onnx="ScatterND, Range, Slice", rule="keep")
def buffer_store_slice(buffer: Symbol, value: TensorLike, slices: Any) -> None:
    """Store to a part of a buffer: `buffer[slices] = value`, as in NumPy. ONNX ScatterND.

    value: as for `buffer_store`, of a shape that broadcasts to that of the part. slices: one or a tuple or list of
    ints, integer scalars, slices with any step but 0 whose bounds are ints, Dims, None or integer Symbols, and `...`.
    Slices are cut off at the ends of an axis; a single position outside of it, where only the run knows it, fails in
    the run. Raises as `buffer_store` and `getitem` do, `ShapeError` for a value that does not broadcast, and
    `DTypeError` for arrays and masks among the slices.
    """
    held = _checked("buffer_store_slice", buffer)
    graph = _open("buffer_store_slice", held)
    made = _value(graph, "buffer_store_slice", held, value)
    items = tuple(slices) if isinstance(slices, (tuple, list)) else (slices,)
    _hold(held, assigned("buffer_store_slice", held.value, items, made))


def _at_first(buffer: Buffer) -> Symbol:
    initial, type_ = buffer.initial, buffer.type
    if initial is None:
        nothing: Any = "" if type_.dtype is DType.string else False
        return full(type_.shape, constant(nothing, type_.dtype) if is_wide(type_.dtype) else nothing, type_.dtype)
    held = Graph.current().build.constant(np.asarray(initial), type_.dtype)
    return held if initial.ndim else full(type_.shape, held, type_.dtype)


def _checked(op: str, value: object) -> BufferValue:
    if isinstance(value, BufferValue):
        return value
    raise DTypeError(
        f"{op}: a {type(value).__name__} is no buffer",
        operands={"buffer": value},
        help='declare it, Graph("g", {"cache": Buffer(...)}), and give graph["cache"]; or ops.buffer_create(x)',
    )


def _open(op: str, held: BufferValue) -> Graph:
    """Return the buffer's graph, which must be the one under construction."""
    graph = held.graph
    inner = graph if graph.scope.is_finished else graph.build.innermost()
    if inner is not graph or graph.scope.is_finished:
        raise GraphError(
            f"{op}: buffer {held.name!r} is stored to within {inner.name!r}, a body that it does not belong to",
            operands={"buffer": held},
            help="return the value from the function of the body, and store what cond, the loop or the call gives",
        )
    return graph


def _value(graph: Graph, op: str, held: BufferValue, value: Any) -> Symbol:
    """Return the value to store, in the dtype of the buffer."""
    from graphcore.passes.simplify import holds  # 10 ms to import, which graphs without buffers do not need

    dtype = held.buffer.type.dtype
    if type(value) in _NUMBERS:
        try:
            return graph.constant(value, dtype)
        except DTypeError as error:
            why = error.summary.removeprefix("constant: ")
            raise DTypeError(f"{op}: {why}", operands={"buffer": held}, help=f"give what {dtype} holds") from None
    made = graph.build.operand(value, op, "value")
    if made.ambiguous or (graph.promotion.converts_stores and DType.string not in (made.dtype, dtype)):
        return made.cast(dtype)
    if made.dtype is dtype or holds(dtype, made.dtype):
        return operands.cast_operand(made, dtype)
    raise DTypeError(
        f"{op}: the buffer holds {dtype}, which does not hold every value of {made.dtype}",
        operands={"buffer": held, "value": made},
        help=f"cast what is stored: .cast(DType.{dtype.name})",
    )


def _hold(held: BufferValue, value: Symbol) -> None:
    held.graph.build.end_expressions([value])
    held._hold(value)


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


# Marks on the values that a debug run shows


@op(onnx="none", method=True)
def print(x: TensorLike, label: str = "debug_tensor") -> Symbol:
    """Mark a value: `Model.debug(...)` without `watch` runs the model and returns all marked values by label.

    x: any shape and dtype. label: a repeated one gets a number, `h`, `h_1`; inside of a function it follows the layer
    of the call. Returns `x` itself: the graph, what it exports and how it runs stay the same. Raises `GraphError` for a
    value inside the body of If, Loop or Scan, which a run cannot return. Source: MAX.
    """
    symbol = _marked(x)
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


def _marked(x: TensorLike) -> Symbol:
    """Return the Symbol in its own graph, even while a body of that graph is under construction."""
    is_plain = type(x) is Symbol and not x.graph.scope.is_finished
    return x if is_plain and isinstance(x, Symbol) else operand("print", x)
