"""Buffers: inputs of a graph that a Model keeps between calls.

Underneath every value is a Symbol that never changes. A buffer is a name for the one that it holds at this point of the
graph: reading it gives that Symbol, storing to it names another. What it holds at the end is a further output of the
exported model, which the next call is fed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from graphcore.errors import GraphError, ShapeError
from graphcore.ir.literals import array_of, held_as
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Symbol
from graphcore.types.tensor_types import DimLike, TensorType

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph


class Buffer:
    """The type of an input that a Model keeps between calls: `Buffer(DType.float32, [2, 1024, 64])`.

    dtype, shape: as for a TensorType. A dim that is named, or unknown, may have another size after each call.
    initial: what the buffer holds at first, a number or an array of that shape; zeros, or empty strings, by default,
    with dims of size 0 where their size is not known. in_place: the runtime may write into the memory that it
    reads from, where the graph allows it; the call that fails then loses what the buffer held. Immutable. Raises
    `DTypeError` for an unknown dtype and an initial value that it cannot hold, `ShapeError` for one of another shape
    and for a rank that is not known.
    """

    __slots__ = ("in_place", "initial", "type")
    # So that none is taken for a fixed argument of a function that is traced.
    __hash__ = None  # type: ignore[assignment]

    type: TensorType
    initial: np.ndarray[Any, Any] | None
    in_place: bool

    def __init__(
        self, dtype: object, shape: Iterable[DimLike] = (), *, initial: Any = None, in_place: bool = False
    ) -> None:
        type_ = TensorType(dtype, shape)
        if not type_.shape.is_ranked:
            raise ShapeError("Buffer: the rank of a buffer must be known", help='give its dims: ["batch", 64]')
        object.__setattr__(self, "type", type_)
        object.__setattr__(self, "initial", None if initial is None else _initial(type_, initial))
        object.__setattr__(self, "in_place", bool(in_place))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Buffer is immutable")

    def __str__(self) -> str:
        return f"buffer {self.type}"

    def __repr__(self) -> str:
        more = "" if self.initial is None else f", initial={self.initial!r}"
        return f"Buffer({self.type.dtype!r}, {self.type.shape}{more}{', in_place=True' if self.in_place else ''})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _buffer, (self.type, self.initial, self.in_place)


def _buffer(type_: TensorType, initial: np.ndarray[Any, Any] | None, in_place: bool) -> Buffer:
    return Buffer(type_.dtype, type_.shape, initial=initial, in_place=in_place)


def _initial(type_: TensorType, value: Any) -> np.ndarray[Any, Any]:
    array, own = array_of(value, type_.dtype)
    if own is not type_.dtype:
        array = held_as(array, own, type_.dtype, "Buffer")
    fits = not array.ndim or (
        array.ndim == len(type_.shape)
        and all(not dim.is_static or int(dim) == size for dim, size in zip(type_.shape, array.shape, strict=True))
    )
    if not fits:
        raise ShapeError(
            f"Buffer: the initial value has shape {list(array.shape)}",
            operands={"buffer": str(type_)},
            help="give one number, or an array of the buffer's shape",
        )
    made = np.array(array)
    made.flags.writeable = False
    return made


class BufferValue(Symbol):
    """A buffer in its graph: as an operand it is what it holds at this point, a Symbol like any other.

    Made by `Graph(..., {"cache": Buffer(...)})`, as `graph["cache"]`, and by `ops.buffer_create`.
    `buffer[...] = value` and `buffer += value` store.
    """

    __slots__ = ("_since", "_value", "buffer")

    buffer: Buffer
    """The declaration."""
    _value: Symbol
    _since: int  # the nodes that there were when it was stored to last

    type = property(lambda self: self.value.type)
    id = property(lambda self: self.value.id)
    producer = property(lambda self: self.value.producer)
    ambiguous = property(lambda self: self.value.ambiguous)

    @property
    def value(self) -> Symbol:
        """The value at this point of the graph."""
        return self._value

    @value.setter
    def value(self, value: Symbol) -> None:
        self._value = value
        self._since = min(self._since, len(self.graph._nodes))  # later nodes may have been taken back

    @property
    def name(self) -> str:
        """The input's name; of a buffer within the graph, that of its value."""
        return self.value.name if self.given_name is None else self.given_name

    @name.setter
    def name(self, name: str) -> NoReturn:
        raise GraphError(
            f"name: buffer {self.name!r} keeps its name", help="name what it holds: ops.buffer_load(buffer).name = ..."
        )

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<BufferValue {self}>"

    def __reduce__(self) -> tuple[Callable[..., Symbol], tuple[Graph, Any]]:
        return (_buffer_of, (self.graph, self.given_name)) if self.given_name is not None else self.value.__reduce__()

    def _hold(self, value: Symbol) -> None:
        """From here on it holds another value. Nodes that an op made of the buffer itself read what it held before."""
        for node in self.graph._nodes[self._since :]:
            if any(s is self for s in node.inputs):
                change(node, inputs=tuple([self.value if s is self else s for s in node.inputs]))
        self._value = value
        self._since = len(self.graph._nodes)

    def _describe(self) -> tuple[str, str, str]:
        return self.name, f"buffer {self.type}", str(self.value.line or "")

    if TYPE_CHECKING:

        def __iadd__(self, other: Any) -> BufferValue: ...  # type: ignore[misc]
        def __isub__(self, other: Any) -> BufferValue: ...  # type: ignore[misc]
        def __imul__(self, other: Any) -> BufferValue: ...  # type: ignore[misc]


def value_of(graph: Graph, buffer: Buffer, value: Symbol, name: str | None = None) -> BufferValue:
    """Return a buffer of a graph that holds `value` at first."""
    made = object.__new__(BufferValue)
    return change(made, graph=graph, given_name=name, buffer=buffer, _value=value, _since=len(graph._nodes))


def _buffer_of(graph: Graph, name: str) -> BufferValue:
    return graph._buffers[name]


def stored(graph: Graph) -> dict[str, Symbol]:
    """Return the values of a graph's buffers at its end, by name, where they are not those that were fed."""
    inputs = {s.given_name: s for s in graph._inputs}
    return {name: held.value for name, held in graph._buffers.items() if held.value is not inputs[name]}


def may_hold(buffer: Buffer, type_: object) -> bool:
    """Return whether a buffer can hold values of a type: of its dtype and rank, with its dims where they are static."""
    own = buffer.type
    if not isinstance(type_, TensorType) or type_.dtype is not own.dtype:
        return False
    if not own.shape.is_ranked or not type_.shape.is_ranked or len(own.shape) != len(type_.shape):
        return False
    pairs = zip(own.shape, type_.shape, strict=True)
    return all(not dim.is_static or dim is new or new.is_dynamic for dim, new in pairs)
