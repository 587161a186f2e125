"""Buffers: inputs of a graph that a Model keeps between calls.

Symbols never change. A buffer is a name for the Symbol that it holds at a point of the graph: reading the buffer gives
that Symbol, storing to it replaces the Symbol. The last one is an additional output of the exported model, and the
input of the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from graphcore.errors import GraphError, ShapeError
from graphcore.ir.literals import array_of, checked_cast
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Symbol
from graphcore.types.tensor_types import DimLike, SpelledType, TensorType

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph


class Buffer:
    """The type of an input that a Model keeps between calls: `Buffer(DType.float32, [2, 1024, 64])`. Immutable.

    Args:
        dtype: The dtype, as for a TensorType.
        shape: The dims, as for a TensorType. The size of a named or unknown dim may change with each call.
        initial: The value before the first call, a number or an array of that shape. By default zeros or empty strings,
            with size 0 for dims that are not static.
        in_place: Whether the runtime may write into the memory that it reads from, where the graph allows it. A call
            that fails then loses the value of the buffer.

    Raises:
        DTypeError: The dtype is unknown, or cannot represent the initial value.
        ShapeError: The rank is unknown, or the initial value has another shape.
    """

    __slots__ = ("in_place", "initial", "type")
    # Not hashable, so that tracing never takes a Buffer for a static argument.
    __hash__ = None  # type: ignore[assignment]

    type: TensorType
    initial: np.ndarray[Any, Any] | None
    in_place: bool

    def __init__(
        self, dtype: object, shape: Iterable[DimLike] = (), *, initial: Any = None, in_place: bool = False
    ) -> None:
        type_ = TensorType(dtype, shape)
        if not type_.shape.is_ranked:
            raise ShapeError("Buffer: the rank of a buffer must be known", help='state its dims: ["batch", 64]')
        is_spelled = isinstance(type_, SpelledType)  # its graph reads the dtype, and then the value
        object.__setattr__(self, "type", type_)
        object.__setattr__(self, "initial", initial if initial is None or is_spelled else _initial(type_, initial))
        object.__setattr__(self, "in_place", bool(in_place))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Buffer is immutable")

    def __str__(self) -> str:
        return f"buffer {self.type}"

    def __repr__(self) -> str:
        more = "" if self.initial is None else f", initial={self.initial!r}"
        dtype = self.type.spelling if isinstance(self.type, SpelledType) else self.type.dtype
        return f"Buffer({dtype!r}, {self.type.shape}{more}{', in_place=True' if self.in_place else ''})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _buffer, (self.type, self.initial, self.in_place)


def _buffer(type_: TensorType, initial: np.ndarray[Any, Any] | None, in_place: bool) -> Buffer:
    dtype = type_.spelling if isinstance(type_, SpelledType) else type_.dtype
    return Buffer(dtype, type_.shape, initial=initial, in_place=in_place)


def _initial(type_: TensorType, value: Any) -> np.ndarray[Any, Any]:
    array, dtype = array_of(value, type_.dtype)
    if dtype is not type_.dtype:
        array = checked_cast(array, dtype, type_.dtype, "Buffer")
    if array.ndim and not type_.shape.allows(array.shape):
        raise ShapeError(
            f"Buffer: the initial value has shape {list(array.shape)}, which does not fit the buffer",
            operands={"buffer": str(type_)},
            help="pass one number, or an array of the buffer's shape",
        )
    result = np.array(array)
    result.flags.writeable = False
    return result


class BufferValue(Symbol):
    """A buffer in its graph. As an operand it is the Symbol that it holds at that point.

    `graph["cache"]` is one after `Graph(..., {"cache": Buffer(...)})`; `ops.buffer_create` returns one.
    `buffer[...] = value` and `buffer += value` store.
    """

    __slots__ = ("_since", "_value", "buffer")

    buffer: Buffer
    """The declaration."""
    _value: Symbol
    _since: int  # the number of nodes at the last store

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
        self._since = min(self._since, len(self.graph._nodes))  # later nodes may have been removed

    @property
    def name(self) -> str:
        """The name of the input; for a buffer created inside the graph, that of its value."""
        return self.value.name if self.given_name is None else self.given_name

    @name.setter
    def name(self, name: str) -> NoReturn:
        raise GraphError(
            f"name: buffer {self.name!r} cannot be renamed", help="name its value: ops.buffer_load(buffer).name = ..."
        )

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<BufferValue {self}>"

    def __reduce__(self) -> tuple[Callable[..., Symbol], tuple[Graph, Any]]:
        return (_buffer_of, (self.graph, self.given_name)) if self.given_name is not None else self.value.__reduce__()

    def _hold(self, value: Symbol) -> None:
        """Store a value. Nodes that have the buffer itself as an operand get its previous value instead."""
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
    """Return a buffer of a graph whose value is `value`."""
    result = object.__new__(BufferValue)
    return change(result, graph=graph, given_name=name, buffer=buffer, _value=value, _since=len(graph._nodes))


def _buffer_of(graph: Graph, name: str) -> BufferValue:
    return graph._buffers[name]


def stored(graph: Graph) -> dict[str, Symbol]:
    """Return the final values of the buffers that a graph stores to, by name."""
    inputs = {s.given_name: s for s in graph._inputs}
    return {name: buffer.value for name, buffer in graph._buffers.items() if buffer.value is not inputs[name]}


def may_hold(buffer: Buffer, type_: object) -> bool:
    """Return True if a buffer can hold values of a type: the dtype, the rank and the static dims must be equal."""
    declared = buffer.type
    if not isinstance(type_, TensorType) or type_.dtype is not declared.dtype:
        return False
    if not declared.shape.is_ranked or not type_.shape.is_ranked or len(declared.shape) != len(type_.shape):
        return False
    pairs = zip(declared.shape, type_.shape, strict=True)
    return all(not dim.is_static or dim is new or new.is_dynamic for dim, new in pairs)
