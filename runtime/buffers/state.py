"""State of the buffers of a Model between calls. See docs/howto/state.md.

A call reads the values of the previous call and writes new values to other memory; the two are swapped when the call
succeeds. A failed call changes nothing, and no call copies buffers that it does not store to.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, GraphcoreError, RunError
from graphcore.ir.buffers import Buffer, may_hold
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Node, Symbol
from graphcore.ir.transform.walk import bodies
from graphcore.runtime.calls.feeds import Feeds
from graphcore.runtime.ort import memory
from graphcore.runtime.ort.transport_dtypes import unpaired
from graphcore.runtime.stopping.limit import Limit, seconds_of
from graphcore.support.escaping import escaped
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, has_storage_axis
from graphcore.types.tensor_types import TensorType, Type

Value: TypeAlias = Any
"""The value of a buffer: an array, or an OrtValue if the runtime can write to bound memory."""

Stored: TypeAlias = tuple[list[Any], dict[str, Value], Any]
"""The results of a run: outputs, values stored to buffers, and the runner's data for the next run."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelBuffer:
    """A buffer of a Model. output: the name of its new value; None if no call changes it. keeps_shape: whether calls
    keep the shape. in_place: whether the new value may overwrite the old one."""

    name: str
    declaration: Buffer
    output: str | None
    keeps_shape: bool
    in_place: bool

    @property
    def type(self) -> TensorType:
        return self.declaration.type

    def initial_value(self, sizes: Mapping[str, int]) -> Array:
        """Return its value before the first store. sizes: of dims, by name; others are 0."""
        initial, dtype = self.declaration.initial, self.type.dtype
        if initial is not None and initial.ndim:
            return initial
        shape = [dim.evaluate(sizes) if dim.depends_on(sizes) else 0 for dim in self.type.shape]
        if initial is None and dtype is not DType.string:
            return memory.zeros(shape, dtype.numpy) if self.in_place else np.zeros(shape, dtype.numpy)
        return np.full(shape, "" if initial is None else initial[()], dtype.numpy)


def model_buffers(
    buffers: Mapping[str, Buffer],
    stored: Mapping[str, str | None],
    inputs: Mapping[str, Type],
    outputs: Mapping[str, Type],
    lowered: Graph,
) -> tuple[ModelBuffer, ...]:
    """Return the buffers of a graph's Model.

    stored: the outputs with their new values. inputs, outputs: all types, including those of buffers. lowered: the
    graph that runs.
    """
    entries, sharing = [], functools.cache(lambda: _Sharing(lowered))
    for name, declared in buffers.items():
        type_, output = inputs[name], stored[name]
        assert isinstance(type_, TensorType)
        buffer = declared if declared.type is type_ else Buffer(type_.dtype, type_.shape, in_place=declared.in_place)
        result = None if output is None else outputs[output]
        shares = declared.in_place and output is not None and sharing().may_share(name, output)
        keeps = isinstance(result, TensorType) and _keeps(type_, result, shares)
        entries.append(ModelBuffer(name, buffer, output, keeps, keeps and shares))
    return tuple(entries)


def _keeps(buffer: TensorType, stored: TensorType, shares: bool) -> bool:
    """Return True if the stored value has the shape of the buffer.

    For shared memory, static dims of the buffer may be unknown in the stored type: the runtime refuses to write another
    shape to it.
    """
    if buffer.shape.is_dynamic or not stored.shape.is_ranked or len(buffer.shape) != len(stored.shape):
        return False
    pairs = zip(buffer.shape, stored.shape, strict=True)
    return all(old is new or (shares and old.is_static and new.is_dynamic) for old, new in pairs)


@dataclass(frozen=True, slots=True)
class Growth:
    """The calls that another session of a Model runs. rows: of a call, by the sizes of its dims. least: of these calls.
    load: loads the Model whose session also runs all others; it raises `GraphcoreError` if that is not possible."""

    rows: Dim
    least: int
    load: Callable[[], Any]


class Runner(Protocol):
    """Runs a session with buffers. See `runners.py`.

    checks_shapes: whether the runtime refuses to write another shape to bound memory. writes_to_arrays: whether a value
    of `make_value` shares the memory of its array, so that in-place calls write there.
    """

    checks_shapes: bool
    writes_to_arrays: bool

    def make_value(self, buffer: ModelBuffer, array: Array) -> Value: ...
    def read(self, buffer: ModelBuffer, value: Value) -> Array: ...
    def shape(self, value: Value) -> tuple[int, ...]: ...
    def run(
        self, feed: Mapping[str, Any], values: Mapping[str, Value], spare: Mapping[str, Value], last: Any
    ) -> Stored: ...


class Program:
    """The part that all states of a Model share: how it runs, and its buffers."""

    def __init__(
        self,
        feeds: Feeds,
        buffers: tuple[ModelBuffer, ...],
        runner: Runner,
        failed: Callable[[Exception, Mapping[str, Any]], RunError],
        growth: Growth | None,
        grow: Callable[[], None],
    ) -> None:
        """failed: returns the error to raise for an exception of the runtime. grow: sets the runner for `growth`."""
        self.name = name = feeds.model
        self.failed = failed
        self.feeds = feeds
        self.buffers = buffers
        self.runner = runner
        self.growth = growth
        self._grow = grow
        self.is_static = all(k.type.shape.is_static for k in buffers)
        self.keeps_shapes = all(k.keeps_shape or k.output is None for k in buffers)
        self.is_in_place = all(k.in_place or k.output is None for k in buffers)
        self.writes_in_place = any(k.in_place for k in buffers)
        self._unchecked = [k for k in buffers if not (k.keeps_shape and runner.checks_shapes)]
        self._feeds_by_name = {k.name: Feeds(name, {k.name: k.type}, "buffer") for k in buffers}

    def runner_for(self, feed: Mapping[str, Any]) -> Runner:
        """Return the runner of a call; from the first call with many rows on it is that of the other session."""
        growth = self.growth
        if growth is not None:
            sizes = self.feeds.sizes_of(feed)
            if not growth.rows.depends_on(sizes) or growth.rows.evaluate(sizes) >= growth.least:
                self._grow()
        return self.runner

    def of(self, name: str) -> ModelBuffer:
        """Return a buffer by name. Raises `FeedError` for an unknown name."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        names = ", ".join(repr(k.name) for k in self.buffers)
        raise FeedError(f"{self.name}: there is no buffer {name!r}", help=f"its buffers: {names}")

    def value_of(self, buffer: ModelBuffer, array: Any) -> Value:
        """Check an array for a buffer and return a copy as a value. Raises `FeedError`."""
        checked = self._feeds_by_name[buffer.name].take([array], {})[buffer.name]
        return self.runner.make_value(buffer, np.array(checked, order="C"))

    def check(self, feed: Mapping[str, Any], values: Mapping[str, Value]) -> None:
        """Raise `FeedError` if a dim has different sizes in the feed and in the buffers."""
        shapes = {
            k.name: (
                k.type,
                np.broadcast_to(np.empty((), k.type.dtype.storage.numpy), self.runner.shape(values[k.name])),
            )
            for k in self.buffers
        }
        self.feeds.check_beside(feed, shapes)

    def check_stored(self, stored: Mapping[str, Value]) -> None:
        """Raise `RunError` if a stored value does not fit the static dims of its buffer."""
        for buffer in self._unchecked:
            if buffer.name not in stored:
                continue
            dtype, shape = buffer.type.dtype, self.runner.shape(stored[buffer.name])
            now = TensorType(dtype, shape[:-1] if has_storage_axis(dtype) else shape)
            if not may_hold(buffer.declaration, now):
                raise RunError(
                    f"{self.name}: the value stored to buffer {buffer.name!r} is {now}, which does not fit its type",
                    operands={"buffer": str(buffer.type)},
                    help="the buffer keeps its previous value; use named dims where sizes may change",
                )


class State:
    """The values of a Model's buffers for one stream of calls: `state(x)` runs the Model and updates the buffers.

    `Model.state()` creates more states that share the weights. Calls of one state from several threads wait for each
    other; calls of different states run in parallel.
    """

    def __init__(self, program: Program, arrays: Mapping[str, Any], values: Mapping[str, Value] | None = None) -> None:
        """arrays: of buffers, which are copied. values: of buffers, which are not."""
        self._program = program
        self._lock = threading.Lock()
        self._values: dict[str, Value] = {n: program.value_of(program.of(n), array) for n, array in arrays.items()}
        self._values.update(values or {})
        self._spare: dict[str, Value] = {}
        self._lost: frozenset[str] = frozenset()
        self._checked_shapes: list[Any] | None = None  # the shapes of a feed that fits the buffers
        self._last: Any = None  # the runner's data of the last call for the next one

    @property
    def buffers(self) -> Buffers:
        """The buffers by name, to read, set and reset."""
        return Buffers(self)

    def __call__(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> list[Any]:
        """Run the Model on one value for each input, as calling it does, and update the buffers.

        A failed or stopped call does not change the buffers. Raises as calling the Model does, and `FeedError` if a dim
        has different sizes in a buffer and in an input.
        """
        program = self._program
        if timeout is not None:
            if "timeout" not in program.feeds.types:
                with Limit(program.name, seconds_of(program.name, timeout)):
                    return self(*arrays, **named)
            named["timeout"] = timeout
        feed = program.feeds.take(arrays, named)
        with self._lock:
            values, runner = self._ready(feed), program.runner_for(feed)
            last, self._last = self._last, None
            try:
                results, stored, last = runner.run(feed, values, self._spare, last)
                program.check_stored(stored)
            except BaseException as error:
                self._lost |= {k.name for k in program.buffers if k.in_place}
                if isinstance(error, GraphcoreError) or not isinstance(error, Exception):
                    raise
                raised = program.failed(error, feed)
                raise raised from raised.__cause__ or error
            self._last = last
            if program.is_in_place:
                self._values = values
                return results
            for buffer in program.buffers:
                if buffer.keeps_shape and buffer.name in stored and not buffer.in_place:
                    self._spare[buffer.name] = values[buffer.name]
            self._values = {**values, **stored}
        return results

    def copy(self) -> State:
        """Return another state with copies of the current values."""
        with self._lock:
            self._check_lost()
            now = {name: self._read(name) for name in self._values}
        return State(self._program, now)

    def fed(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the feed of the session in a call: the inputs by name, and the values of the buffers."""
        program = self._program
        feed = program.feeds.take(arrays, named)
        with self._lock:
            values = self._ready(feed)
            return {**feed, **{k.name: program.runner.read(k, values[k.name]) for k in program.buffers}}

    def __repr__(self) -> str:
        text = ", ".join(f"{k.name}: {k.type}" for k in self._program.buffers)
        return escaped(f"<State of {self._program.name}: {text}>")

    def _ready(self, feed: Mapping[str, Any]) -> dict[str, Value]:
        """Return the values of all buffers; initial values for those that were not set."""
        program = self._program
        self._check_lost()
        shapes = [getattr(value, "shape", None) for value in feed.values()]
        is_known = program.is_static or shapes == self._checked_shapes
        if is_known and len(self._values) == len(program.buffers):
            return self._values
        sizes = program.feeds.sizes_of(feed)
        new = {
            k.name: program.value_of(k, k.initial_value(sizes)) for k in program.buffers if k.name not in self._values
        }
        values = {**self._values, **new}
        if not program.is_static:
            program.check(feed, values)
            self._checked_shapes = shapes if program.keeps_shapes and None not in shapes else None
        return values

    def _check_lost(self) -> None:
        if self._lost:
            lost = ", ".join(sorted(self._lost))
            raise RunError(
                f"{self._program.name}: a failed call may have written to {lost} in place",
                help="set these buffers, or reset them: model.buffers.reset()",
            )

    def _read(self, name: str) -> Array:
        buffer = self._program.of(name)
        value = self._values.get(name)
        if value is None:
            value = self._program.value_of(buffer, buffer.initial_value({}))
        read: Array = unpaired(self._program.runner.read(buffer, value), buffer.type)
        return read


class Buffers:
    """The buffers of a state by name: `buffers["cache"]` is a copy of its value, and setting it copies too."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Array:
        """Return a copy of a buffer's value. Raises `FeedError` for an unknown name.

        Before the first store, dims that are only known in a call are 0.
        """
        state = self._state
        with state._lock:
            state._check_lost()
            return state._read(name)

    def __setitem__(self, name: str, array: Any) -> None:
        """Set the value of a buffer. Raises `FeedError` for an array that does not fit its type."""
        state = self._state
        value = state._program.value_of(state._program.of(name), array)
        with state._lock:
            state._values = {**state._values, name: value}
            state._spare.pop(name, None)
            state._checked_shapes = None
            state._lost -= {name}

    def reset(self, *names: str) -> None:
        """Reset buffers, all by default, to their initial values. Raises `FeedError` for an unknown name."""
        state = self._state
        chosen = {state._program.of(name).name for name in names} or {k.name for k in state._program.buffers}
        with state._lock:
            state._values = {name: value for name, value in state._values.items() if name not in chosen}
            state._checked_shapes = None
            state._lost -= chosen

    def keys(self) -> tuple[str, ...]:
        """Return the names of the buffers."""
        return tuple(k.name for k in self._state._program.buffers)

    @property
    def in_place(self) -> tuple[str, ...]:
        """The names of the buffers that are written in place."""
        return tuple(k.name for k in self._state._program.buffers if k.in_place)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._state._program.buffers)

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __repr__(self) -> str:
        text = ", ".join(f"{k.name}: {k.type}" for k in self._state._program.buffers)
        return escaped(f"<Buffers: {text or 'none'}>")


# Decide whether a graph may store to the memory from which it reads the buffer.

_WRITERS = {
    ("", "ScatterND"): {0: 0},
    ("", "ScatterElements"): {0: 0},
    ("", "TensorScatter"): {0: 0},
    ("com.microsoft", "GroupQueryAttention"): {1: 3, 2: 4},
    ("com.microsoft", "SparseAttention"): {1: 3, 2: 4},
}
"""Operators whose kernels copy an operand to a result, unless they share memory, and then change parts of it: the
operand of each such result. Attention may share each cache or not, and does not copy a shared one; SparseAttention
requires shared ones."""

_SHAPES = frozenset({"Shape", "Size"})
"""Operators that read no elements."""


class _Sharing:
    """Decides this for the values of a graph, whose readers are counted once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._direct = Counter(id(s) for node in graph.nodes if node.op_type not in _SHAPES for s in node.inputs)
        self._captured = {id(s.producer.symbol): s for s in graph.symbols if isinstance(s.producer, Captured)}
        inner = [(node, bodies(node)) for node in graph.nodes]
        self._inner = {node: [_Sharing(body) for body in own] for node, own in inner if own}

    def may_share(self, name: str, output: str) -> bool:
        """Return True if an input and an output of the graph may share memory.

        They may if a single writer reads the input and returns the output. Other nodes read the stored value from the
        output, after the input was read. Any other reader of the input could see overwritten values, and a second
        writer would copy anyway.
        """
        start = next(s for s in self._graph.input_symbols if s.name == name)
        end = next(s for label, s in self._graph.named_outputs if (label or s.name) == output)
        return all(s is not start for s in self._graph.outputs) and self._has_one_writer(start, end)

    def _has_one_writer(self, start: Symbol, end: Symbol) -> bool:
        """Return True if a single writer reads a value and returns another one; for an If, in both branches."""
        writer = end.producer
        if not isinstance(writer, Node):
            return False
        position = next(i for i, s in enumerate(writer.outputs) if s is end)
        if writer.op_type == "If" and not writer.domain:
            branches = [(inner, inner._captured.get(id(start))) for inner in self._inner[writer]]
            return not self._count(start, but=writer) and all(
                s is not None and inner._has_one_writer(s, inner._graph.outputs[position]) for inner, s in branches
            )
        read = _WRITERS.get((writer.domain, writer.op_type), {}).get(position)
        if read is None or read >= len(writer.inputs) or writer.inputs[read] is not start:
            return False
        return self._count(start) == 1

    def _count(self, symbol: Symbol, but: Node | None = None) -> int:
        """Return the number of reads of a value's elements; a body counts as two, because it may read at any time.

        but: a node whose bodies are skipped.
        """
        inner = (body for node, own in self._inner.items() if node is not but for body in own)
        return self._direct[id(symbol)] + 2 * any(id(symbol) in body._captured for body in inner)
