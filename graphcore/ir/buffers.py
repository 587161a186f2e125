"""Buffers: inputs of a graph that a Model keeps between calls, and what a graph makes of them.

Underneath every value is a Symbol that never changes. A buffer is a name for the one that it holds at this point of the
graph: reading it gives that Symbol, storing to it names another. What it holds at the end is a further output of the
exported model, which the next call is fed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from graphcore.errors import GraphcoreError, GraphError, ResourceLimitError, ShapeError
from graphcore.ir.literals import array_of, held_as
from graphcore.ir.symbol import Node, Symbol
from graphcore.onnx import notes
from graphcore.types.tensor_types import DimLike, TensorType

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph

NOTE = notes.BUFFERS

_LARGEST = 1 << 20  # bytes of an initial value that a file notes


class Buffer:
    """The type of an input that a Model keeps between calls: `Buffer(DType.float32, [2, 1024, 64])`.

    dtype, shape: as for a TensorType. A dim that is named, or unknown, may have another size after each call.
    initial: what the buffer holds at first, a number or an array of that shape; zeros, or empty strings, by default,
    with dims of size 0 where nobody says how large they are. in_place: the runtime may write into the memory that it
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
    """What was declared."""
    _value: Symbol
    _since: int  # the nodes that there were when it was stored to last

    type = property(lambda self: self.value.type)
    id = property(lambda self: self.value.id)
    producer = property(lambda self: self.value.producer)
    ambiguous = property(lambda self: self.value.ambiguous)

    @property
    def value(self) -> Symbol:
        """What it holds at this point of the graph."""
        return self._value

    @value.setter
    def value(self, value: Symbol) -> None:
        self._value = value
        self._since = min(self._since, len(self.graph._nodes))  # where those behind were taken back

    @property
    def name(self) -> str:
        """The input's name; of a buffer within the graph, that of its value."""
        return self.value.name if self._name is None else self._name

    @name.setter
    def name(self, name: str) -> NoReturn:
        raise GraphError(
            f"name: buffer {self.name!r} keeps its name", help="name what it holds: ops.buffer_load(buffer).name = ..."
        )

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<BufferValue {self}>"

    def __reduce__(self) -> tuple[Callable[..., Symbol], tuple[Graph, Any]]:
        return (_buffer_of, (self.graph, self._name)) if self._name is not None else self.value.__reduce__()

    def _hold(self, value: Symbol) -> None:
        """From here on it holds another value. Nodes that an op made of the buffer itself read what it held before."""
        for node in self.graph._nodes[self._since :]:
            if any(s is self for s in node.inputs):
                node.inputs = tuple([self.value if s is self else s for s in node.inputs])
        self._value = value
        self._since = len(self.graph._nodes)

    def _describe(self) -> tuple[str, str, str]:
        return self.name, f"buffer {self.type}", str(self.value.line or "")

    if TYPE_CHECKING:

        def __iadd__(self, other: Any) -> BufferValue: ...  # type: ignore[misc]
        def __isub__(self, other: Any) -> BufferValue: ...  # type: ignore[misc]
        def __imul__(self, other: Any) -> BufferValue: ...  # type: ignore[misc]


def value_of(graph: Graph, buffer: Buffer, value: Symbol, name: str | None = None) -> BufferValue:
    """A buffer of a graph that holds `value` at first."""
    made = object.__new__(BufferValue)
    made.graph = graph
    made._name = name
    made.buffer = buffer
    made._value = value
    made._since = len(graph._nodes)
    return made


def _buffer_of(graph: Graph, name: str) -> BufferValue:
    return graph._buffers[name]


def stored(graph: Graph) -> dict[str, Symbol]:
    """What the buffers of a graph hold at its end, by name, where that is not what they were fed."""
    inputs = {s._name: s for s in graph._inputs}
    return {name: held.value for name, held in graph._buffers.items() if held.value is not inputs[name]}


# Buffers as inputs and outputs, which is what a model in a file has


def exposed(graph: Graph, *, in_file: bool = False) -> Graph:
    """A graph of the same nodes whose buffers are inputs and further outputs, which its metadata tells.

    A graph without buffers is returned as it is. in_file: the metadata has initial values too. Raises
    `ResourceLimitError` for those that are too large, `GraphError` for those of integers of more than 64 bits.
    """
    if not graph._buffers:
        return graph
    made = graph.copy()
    outputs = [(name, made._symbols[s.id]) for name, s in graph._outputs or ()]
    used = {name or s.name for name, s in outputs}
    noted: dict[str, dict[str, Any]] = {}
    after = stored(graph)
    for name, held in graph._buffers.items():
        note = noted[name] = {"in_place": True} if held.buffer.in_place else {}
        if in_file and held.buffer.initial is not None:
            note["initial"] = _written(name, held.buffer)
        if name in after:
            symbol = made._symbols[after[name].id]
            taken = {label for label, s in made._names.taken.items() if s is not symbol or not _is_made(s)}
            label, count = f"{name}_out", 0
            while label in used or label in taken:
                count += 1
                label = f"{name}_out_{count}"
            used.add(label)
            outputs.append((label, symbol))
            note["output"] = label
    made._buffers = {}
    made._outputs = outputs
    made._metadata[NOTE] = json.dumps(noted)
    return made


def _is_made(symbol: Symbol) -> bool:
    """Whether a node makes it, so that an output may have its name."""
    return isinstance(symbol.producer, Node)


def outputs_of(graph: Graph) -> dict[str, str | None]:
    """The buffers of an exposed graph by name, with the outputs that are what they hold afterwards, if they change."""
    return {name: note.get("output") for name, note in json.loads(graph._metadata.get(NOTE, "{}")).items()}


def attach(graph: Graph, buffers: Mapping[str, Buffer]) -> None:
    """Undoes `exposed`: inputs and outputs that the metadata tells are buffers again."""
    outputs = {name or s.name: s for name, s in graph._outputs or ()}
    inputs = {s.name: s for s in graph._inputs}
    labels = outputs_of(graph)
    del graph._metadata[NOTE]
    for name, buffer in buffers.items():
        label = labels[name]
        held = inputs[name] if label is None else outputs[label]
        graph._buffers[name] = value_of(graph, buffer, held, name)
    graph._outputs = [(name, s) for name, s in graph._outputs or () if (name or s.name) not in labels.values()]


def read(graph: Graph) -> Graph:
    """The graph of a file with its buffers. A note that does not fit it, for it may be anybody's, is passed over."""
    text = graph._metadata.get(NOTE)
    if text is None:
        return graph
    inputs = {s.name: s for s in graph._inputs}
    outputs = {name or s.name: s for name, s in graph._outputs or ()}
    names = {*inputs, *outputs}
    try:
        said = json.loads(text)  # of all models that were merged into one, which may lack some of their names
        noted = {n: note for n, note in said.items() if n in inputs and note.get("output", n) in names}
        results = [note["output"] for note in noted.values() if "output" in note]
        buffers = {name: _read(inputs[name].tensor_type, note) for name, note in noted.items()}
        fits = (
            bool(noted)
            and len({*results}) == len(results)
            and all(
                may_hold(buffers[name], outputs[note["output"]].type)
                for name, note in noted.items()
                if "output" in note
            )
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError, GraphcoreError):
        fits = False
    if fits:
        graph._metadata[NOTE] = json.dumps(noted)
        attach(graph, buffers)
    else:
        del graph._metadata[NOTE]
    return graph


def may_hold(buffer: Buffer, type_: object) -> bool:
    """Whether a buffer can hold values of a type: of its dtype and rank, with its dims where those are numbers."""
    own = buffer.type
    if not isinstance(type_, TensorType) or type_.dtype is not own.dtype:
        return False
    if not own.shape.is_ranked or not type_.shape.is_ranked or len(own.shape) != len(type_.shape):
        return False
    pairs = zip(own.shape, type_.shape, strict=True)
    return all(not dim.is_static or dim is new or new.is_dynamic for dim, new in pairs)


def _written(name: str, buffer: Buffer) -> str:
    """An initial value as text: a TensorProto in base64."""
    from graphcore.onnx.proto.model_proto import join, tensor

    assert buffer.initial is not None
    if buffer.type.dtype.bits > 64:
        raise GraphError(
            f"buffer {name!r}: a model notes no initial values of {buffer.type.dtype}",
            help="leave it out, and set it in the Model: model.buffers[name] = array",
        )
    content = join(tensor(buffer.initial, buffer.type.dtype.storage, ""))
    if len(content) > _LARGEST:
        raise ResourceLimitError(
            f"buffer {name!r}: its initial value has {len(content)} bytes, and a model notes {_LARGEST} at most",
            help="leave it out, and set it in the Model: model.buffers[name] = array",
        )
    return base64.b64encode(content).decode()


def _read(type_: TensorType, note: dict[str, Any]) -> Buffer:
    """The Buffer that a note tells of an input. Raises whatever wrong notes lead to."""
    in_place = note.get("in_place") is True
    if "initial" not in note:
        return Buffer(type_.dtype, type_.shape, in_place=in_place)
    import onnx

    from graphcore.arrays.mapped_files import Folder
    from graphcore.onnx.proto.tensors import array_of as read_array

    try:
        proto = onnx.TensorProto.FromString(base64.b64decode(note["initial"], validate=True))
    except Exception as error:  # protobuf's own
        raise ValueError("no tensor") from error
    array, dtype = read_array(proto, Folder(None))
    if dtype is not type_.dtype.storage:
        raise ValueError("an initial value of another dtype")
    return Buffer(type_.dtype, type_.shape, initial=array, in_place=in_place)


__all__ = ["Buffer", "BufferValue"]
