"""State of the buffers of a Model between calls. See docs/howto/state.md.

A call reads the values that the call before it left and writes others beside them; the two change places when it has
come to its end. A call that fails has changed nothing, and no call copies what it does not store to.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from graphcore.types.dtypes import DType, is_carried
from graphcore.types.tensor_types import TensorType, Type

Value: TypeAlias = Any
"""The value of a buffer: an array, or an OrtValue where the runtime can be given memory to write to."""

Stored: TypeAlias = tuple[list[Any], dict[str, Value], Any]
"""The results of a run: outputs, values stored to buffers, and what the runner is handed in the next run."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A buffer as a Model keeps it. output: what it holds after a call, None where no call changes it. keeps_shape:
    every call leaves the shape that it found. in_place: that may be written where the value before it lies."""

    name: str
    buffer: Buffer
    output: str | None
    keeps_shape: bool
    in_place: bool

    @property
    def type(self) -> TensorType:
        return self.buffer.type

    def at_first(self, sizes: Mapping[str, int]) -> Array:
        """Return what it holds before anything was stored. sizes: of dims, by name; others are 0."""
        initial, dtype = self.buffer.initial, self.type.dtype
        if initial is not None and initial.ndim:
            return initial
        shape = [dim.evaluate(sizes) if _is_known(dim, sizes) else 0 for dim in self.type.shape]
        if initial is None and dtype is not DType.string:
            return memory.zeros(shape, dtype.numpy) if self.in_place else np.zeros(shape, dtype.numpy)
        return np.full(shape, "" if initial is None else initial[()], dtype.numpy)


def kept_of(
    buffers: Mapping[str, Buffer],
    stored: Mapping[str, str | None],
    inputs: Mapping[str, Type],
    outputs: Mapping[str, Type],
    lowered: Graph,
) -> tuple[Kept, ...]:
    """Return how a Model keeps the buffers of a graph.

    stored: the outputs that they hold afterwards. inputs, outputs: the types of all, of which buffers are some.
    lowered: the graph that runs.
    """
    made, sharing = [], Sharing(lowered)
    for name, declared in buffers.items():
        type_, output = inputs[name], stored[name]
        assert isinstance(type_, TensorType)
        buffer = declared if declared.type is type_ else Buffer(type_.dtype, type_.shape, in_place=declared.in_place)
        result = None if output is None else outputs[output]
        shares = declared.in_place and output is not None and sharing.may_share(name, output)
        keeps = isinstance(result, TensorType) and _keeps(type_, result, shares)
        made.append(Kept(name, buffer, output, keeps, keeps and shares))
    return tuple(made)


def _keeps(buffer: TensorType, stored: TensorType, shares: bool) -> bool:
    """Return whether what is stored has the shape that the buffer had.

    Of memory that is shared dims that are numbers need not be known of it: the runtime refuses to write another shape
    there.
    """
    if buffer.shape.is_dynamic or not stored.shape.is_ranked or len(buffer.shape) != len(stored.shape):
        return False
    pairs = zip(buffer.shape, stored.shape, strict=True)
    return all(own is new or (shares and own.is_static and new.is_dynamic) for own, new in pairs)


def without(types: Mapping[str, Type], names: Iterable[str | None]) -> dict[str, Type]:
    """Return the types of what is not among the names."""
    left = {*names}
    return {name: type_ for name, type_ in types.items() if name not in left}


def _is_known(dim: Any, sizes: Mapping[str, int]) -> bool:
    return not dim.is_dynamic and bool(dim.parameters <= sizes.keys())


class Runner(Protocol):
    """Runs a session with what buffers hold. See `runners.py`.

    checks_shapes: whether the runtime refuses what is not of the shape of the memory it is given to write to.
    writes_to_arrays: whether what `hold` gives shares the memory of its array, so that in-place calls write there.
    """

    checks_shapes: bool
    writes_to_arrays: bool

    def hold(self, kept: Kept, array: Array) -> Value: ...
    def read(self, kept: Kept, value: Value) -> Array: ...
    def shape(self, value: Value) -> tuple[int, ...]: ...
    def run(
        self, feed: Mapping[str, Any], held: Mapping[str, Value], spare: Mapping[str, Value], last: Any
    ) -> Stored: ...


class Program:
    """The part that all states of one Model share: how it is called, and what it keeps."""

    def __init__(
        self,
        feeds: Feeds,
        kept: tuple[Kept, ...],
        runner: Runner,
        failed: Callable[[Exception, Mapping[str, Any]], RunError],
    ) -> None:
        """failed: the error to raise where the runtime raises one."""
        self.name = name = feeds.model
        self.failed = failed
        self.feeds = feeds
        self.kept = kept
        self.runner = runner
        self.is_static = all(k.type.shape.is_static for k in kept)
        self.keeps_shapes = all(k.keeps_shape or k.output is None for k in kept)
        self.is_in_place = all(k.in_place or k.output is None for k in kept)
        self.writes_in_place = any(k.in_place for k in kept)
        self._unsure = [k for k in kept if not (k.keeps_shape and runner.checks_shapes)]
        self._given = {k.name: Feeds(name, {k.name: k.type}, "buffer") for k in kept}

    def of(self, name: str) -> Kept:
        """Return a buffer by its name. Raises `FeedError`."""
        for kept in self.kept:
            if kept.name == name:
                return kept
        known = ", ".join(repr(k.name) for k in self.kept)
        raise FeedError(f"{self.name}: there is no buffer {name!r}", help=f"its buffers: {known}")

    def held(self, kept: Kept, array: Any) -> Value:
        """Return a value of a buffer's own, of an unchecked array. Raises `FeedError`."""
        given = self._given[kept.name].take([array], {})[kept.name]
        return self.runner.hold(kept, np.array(given, order="C"))

    def check(self, feed: Mapping[str, Any], held: Mapping[str, Value]) -> None:
        """Raise `FeedError` where a dim has one size in what is fed and another in what is held."""
        shapes = {
            k.name: (
                k.type,
                np.broadcast_to(np.empty((), k.type.dtype.storage.numpy), self.runner.shape(held[k.name])),
            )
            for k in self.kept
        }
        self.feeds.check_beside(feed, shapes)

    def check_stored(self, stored: Mapping[str, Value]) -> None:
        """Raise `RunError` where what a call stored has other dims than the buffer's that are numbers."""
        for kept in self._unsure:
            if kept.name not in stored:
                continue
            dtype, shape = kept.type.dtype, self.runner.shape(stored[kept.name])
            now = TensorType(dtype, shape[:-1] if is_carried(dtype) else shape)
            if not may_hold(kept.buffer, now):
                raise RunError(
                    f"{self.name}: what was stored to buffer {kept.name!r} is {now}",
                    operands={"buffer": str(kept.type)},
                    help="the buffer holds what it held before; name the dims that may change",
                )


class State:
    """The values of the buffers of a Model for one stream of calls: `state(x)` runs the Model and moves on.

    `Model.state()` makes more of them over the same weights. Calls of one state from several threads wait for each
    other; those of several states run at once.
    """

    def __init__(self, program: Program, given: Mapping[str, Any], held: Mapping[str, Value] | None = None) -> None:
        """given: arrays of buffers, which are copied. held: values that are not."""
        self._program = program
        self._lock = threading.Lock()
        self._held: dict[str, Value] = {n: program.held(program.of(n), array) for n, array in given.items()}
        self._held.update(held or {})
        self._spare: dict[str, Value] = {}
        self._lost: frozenset[str] = frozenset()
        self._fitting: list[Any] | None = None  # the shapes of a feed that goes with what is held
        self._last: Any = None  # what the runner has left of the last call for the next one

    @property
    def buffers(self) -> Buffers:
        """Return the buffers by name, to read, to set and to reset."""
        return Buffers(self)

    def __call__(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> list[Any]:
        """Run the Model on one value for each input, as calling it does, and keep what is stored to the buffers.

        A call that fails, or is stopped, leaves the buffers as they were. Raises what calling the Model does, and
        `FeedError` where a dim has another size in a buffer than in an input.
        """
        program = self._program
        if timeout is not None:
            if "timeout" not in program.feeds.types:
                with Limit(program.name, seconds_of(program.name, timeout)):
                    return self(*arrays, **named)
            named["timeout"] = timeout
        feed = program.feeds.take(arrays, named)
        with self._lock:
            held = self._ready(feed)
            last, self._last = self._last, None
            try:
                results, stored, last = program.runner.run(feed, held, self._spare, last)
                program.check_stored(stored)
            except BaseException as error:
                self._lost |= {k.name for k in program.kept if k.in_place}
                if isinstance(error, GraphcoreError) or not isinstance(error, Exception):
                    raise
                made = program.failed(error, feed)
                raise made from made.__cause__ or error
            self._last = last
            if program.is_in_place:
                self._held = held
                return results
            for kept in program.kept:
                if kept.keeps_shape and kept.name in stored and not kept.in_place:
                    self._spare[kept.name] = held[kept.name]
            self._held = {**held, **stored}
        return results

    def copy(self) -> State:
        """Return another state that holds the same now."""
        with self._lock:
            self._check_lost()
            now = {name: self._read(name) for name in self._held}
        return State(self._program, now)

    def fed(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the session would be fed in a call: the inputs by name, and what the buffers hold."""
        program = self._program
        feed = program.feeds.take(arrays, named)
        with self._lock:
            held = self._ready(feed)
            return {**feed, **{k.name: program.runner.read(k, held[k.name]) for k in program.kept}}

    def __repr__(self) -> str:
        kept = ", ".join(f"{k.name}: {k.type}" for k in self._program.kept)
        return escaped(f"<State of {self._program.name}: {kept}>")

    def _ready(self, feed: Mapping[str, Any]) -> dict[str, Value]:
        """Return what all buffers hold: those that were not set, what they hold at first."""
        program = self._program
        self._check_lost()
        shapes = [getattr(value, "shape", None) for value in feed.values()]
        is_known = program.is_static or shapes == self._fitting
        if is_known and len(self._held) == len(program.kept):
            return self._held
        sizes = program.feeds.sizes_of(feed)
        new = {k.name: program.held(k, k.at_first(sizes)) for k in program.kept if k.name not in self._held}
        held = {**self._held, **new}
        if not program.is_static:
            program.check(feed, held)
            self._fitting = shapes if program.keeps_shapes and None not in shapes else None
        return held

    def _check_lost(self) -> None:
        if self._lost:
            lost = ", ".join(sorted(self._lost))
            raise RunError(
                f"{self._program.name}: a call failed that may have written to {lost} in place",
                help="set these buffers, or reset them: model.buffers.reset()",
            )

    def _read(self, name: str) -> Array:
        kept = self._program.of(name)
        held = self._held.get(name)
        if held is None:
            held = self._program.held(kept, kept.at_first({}))
        read: Array = unpaired(self._program.runner.read(kept, held), kept.type)
        return read


class Buffers:
    """The buffers of a state by name: `buffers["cache"]` is a copy of what it holds, and setting it copies too."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Array:
        """Return a copy.

        Before anything was stored, dims that only a call knows are 0. Raises `FeedError` for other names.
        """
        state = self._state
        with state._lock:
            state._check_lost()
            return state._read(name)

    def __setitem__(self, name: str, array: Any) -> None:
        """Set what a buffer holds. Raises `FeedError` for an array that is not of its type."""
        state = self._state
        held = state._program.held(state._program.of(name), array)
        with state._lock:
            state._held = {**state._held, name: held}
            state._spare.pop(name, None)
            state._fitting = None
            state._lost -= {name}

    def reset(self, *names: str) -> None:
        """Make buffers, all by default, hold what they held at first. Raises `FeedError` for other names."""
        state = self._state
        chosen = {state._program.of(name).name for name in names} or {k.name for k in state._program.kept}
        with state._lock:
            state._held = {name: value for name, value in state._held.items() if name not in chosen}
            state._fitting = None
            state._lost -= chosen

    def keys(self) -> tuple[str, ...]:
        """Return the names."""
        return tuple(k.name for k in self._state._program.kept)

    @property
    def in_place(self) -> tuple[str, ...]:
        """Return the names of those that are written where they lie."""
        return tuple(k.name for k in self._state._program.kept if k.in_place)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._state._program.kept)

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __repr__(self) -> str:
        kept = ", ".join(f"{k.name}: {k.type}" for k in self._state._program.kept)
        return escaped(f"<Buffers: {kept or 'none'}>")


# Decide whether what a graph stores to a buffer may be written to the memory that it reads the buffer from.

_WRITERS = {
    ("", "ScatterND"): {0: 0},
    ("", "ScatterElements"): {0: 0},
    ("", "TensorScatter"): {0: 0},
    ("com.microsoft", "GroupQueryAttention"): {1: 3, 2: 4},
}
"""Operators whose kernels copy an operand to a result, where that lies elsewhere, and then change parts: which results
and which operands. Of attention each cache may be shared or not, and a shared one is not copied."""

_SHAPES = frozenset({"Shape", "Size"})
"""Operators that read no elements."""


class Sharing:
    """Decides it for the buffers of one lowered graph, whose readers are listed once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._inputs = {s.name: s for s in graph.input_symbols}
        self._outputs = {label or s.name: s for label, s in graph.named_outputs}
        self._readers: dict[int, _Readers] = {}

    def may_share(self, name: str, output: str) -> bool:
        """Return whether one memory may be an input and an output of the graph.

        So it is where a single writer reads the input and gives the output. Whoever else reads what is stored reads the
        output, which is there when the input has been read; any other kernel might read what it has overwritten, and a
        second writer would copy all the same.
        """
        start, end = self._inputs[name], self._outputs[output]
        is_output = any(s is start for s in self._outputs.values())
        return not is_output and self._is_written(self._graph, start, end)

    def _is_written(self, graph: Graph, start: Symbol, end: Symbol) -> bool:
        """Return whether a single writer reads a value and gives another one: in both branches, where that is an If."""
        writer = end.producer
        if not isinstance(writer, Node):
            return False
        readers = self._of(graph)
        if writer.op_type == "If" and not writer.domain:
            if readers.count(start, but=writer):
                return False
            position = next(i for i, s in enumerate(writer.outputs) if s is end)
            own = [(inner, self._of(inner).own(start), inner.outputs[position]) for inner in bodies(writer)]
            return all(s is not None and self._is_written(inner, s, made) for inner, s, made in own)
        operands = _WRITERS.get((writer.domain, writer.op_type), {})
        read = next((operands.get(i) for i, s in enumerate(writer.outputs) if s is end), None)
        if read is None or read >= len(writer.inputs) or writer.inputs[read] is not start:
            return False
        return readers.count(start) == 1

    def _of(self, graph: Graph) -> _Readers:
        found = self._readers.get(id(graph))
        if found is None:
            found = self._readers[id(graph)] = _Readers(graph, self._of)
        return found


class _Readers:
    """The readers of the values of a graph."""

    def __init__(self, graph: Graph, of: Callable[[Graph], _Readers]) -> None:
        """of: gives the readers of another graph."""
        self._direct = Counter(id(s) for node in graph.nodes if node.op_type not in _SHAPES for s in node.inputs)
        self._captured = {id(s.producer.symbol): s for s in graph.symbols if isinstance(s.producer, Captured)}
        inner = [(node, bodies(node)) for node in graph.nodes]
        self._inner = [(node, [of(body) for body in own]) for node, own in inner if own]

    def own(self, symbol: Symbol) -> Symbol | None:
        """Return what stands in the graph for a value of the one around it; None where it is not read there."""
        return self._captured.get(id(symbol))

    def count(self, symbol: Symbol, but: Node | None = None) -> int:
        """Return how often nodes read the elements of a value; in a body counts for two, as it may be at any time.

        but: a node whose bodies are not looked at.
        """
        inner = any(body.own(symbol) is not None for node, own in self._inner if node is not but for body in own)
        return self._direct[id(symbol)] + 2 * inner
