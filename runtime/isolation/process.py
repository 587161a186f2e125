"""One worker as its parent sees it: started, given a model, asked to run, and ended when its time is over."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from graphcore.arrays.big_integers import storage_axis
from graphcore.arrays.casting import Array
from graphcore.errors import GraphcoreError, ResourceLimitError, RunTimeoutError
from graphcore.runtime.isolation import failures, framing, spawning
from graphcore.runtime.isolation.codec import Layout, Reader, read, types_of, written
from graphcore.runtime.isolation.failures import What, WorkerLimits
from graphcore.runtime.isolation.framing import RUN_HEAD, Block, Channel, Kind, Lease, Malformed
from graphcore.runtime.isolation.sandbox import ProcessorTime
from graphcore.runtime.isolation.spawning import Timeout
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

LOG = logging.getLogger("graphcore")
_KEPT = 3
"""Free blocks of results that keep their memory for the next runs."""
_TO_STOP = 0.25
"""Seconds that a worker has to stop a run between two kernels when a call's time is over, before it is ended."""
_LONGEST_NAME = 1000
_warned: set[tuple[str, ...]] = set()


@dataclass(frozen=True, slots=True)
class Program:
    """The arguments of each worker of a pool.

    name: what errors call the model until it is read. session: of InferenceSession. asked: which model is loaded.
    content: of one that comes from no file. readable: the files and folders that it needs beside the libraries.
    weights: arrays in place of the model's, by name.
    """

    name: str
    limits: WorkerLimits
    session: Mapping[str, Any]
    asked: Mapping[str, Any]
    content: bytes | None
    readable: tuple[str, ...]
    weights: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Signature:
    """The description of a model that its worker sends."""

    name: str
    inputs: dict[str, Type]
    outputs: dict[str, Type]
    has_buffers: bool


class Ended(Exception):
    """A worker was found to have ended before it was asked for anything."""


class Worker:
    """A worker process that holds one model. Used by one thread at a time."""

    def __init__(self, program: Program) -> None:
        """Start the process and load the model. Raises what loading it raises, `ModelError` where it ends the process,
        `ResourceLimitError` beyond a limit."""
        self._program = program
        self._name = program.name
        self._started = spawning.start()
        self._channel = Channel(self._started.frames, self._started.descriptors)
        self._time = ProcessorTime(self.process)
        self._input: Block | None = None
        self._results: deque[Block] = deque()
        self._needed = 0
        self._made = 0
        self._is_asked = True
        self.is_ended = False
        """True once the process is gone, by itself or by `end`."""
        try:
            self.signature = self._load()
        except GraphcoreError:
            self.end()
            raise
        self._name = self.signature.name
        outputs = self.signature.outputs.values()
        self._expected = [_stored(type_) for type_ in outputs]

    @property
    def process(self) -> int:
        """Return the id of the process."""
        return self._started.process.pid

    def _load(self) -> Signature:
        program, limits = self._program, self._program.limits
        deadline = _after(limits.load_seconds)
        missing = [] if self._time.allow(limits.load_seconds) else ["a limit of processor time (prlimit)"]
        settings = {
            "memory": limits.memory,
            "load_seconds": limits.load_seconds,
            "run_seconds": limits.run_seconds,
            "parent": os.getpid(),
            "readable": [*spawning.libraries(), *program.readable],
            "session": program.session,
        }
        with self._ending("load"):
            self._channel.send(Kind.SETTINGS, written(settings), deadline)
            asked = dict(program.asked)
            if program.content is not None:
                self._hand(framing.of_bytes(program.content))
            if program.weights:
                asked["weights"] = self._hand_weights(program.weights)
            self._channel.send(Kind.LOAD, written(asked), deadline)
            _, content = self._channel.receive((Kind.READY,), deadline)
            missing += [str(each) for each in read(content)]
            if missing and limits.is_strict:
                raise failures.incomplete(missing)
            _warn(tuple(missing))
            kind, content = self._channel.receive((Kind.LOADED, Kind.FAILED), deadline)
            said = read(content)
            if kind is Kind.FAILED:
                raise self._received(said, "load")
            self._is_asked = False
            self._read_words()  # warnings of a start are no last words
            return _signature(said, deadline)

    def _hand(self, handle: int) -> None:
        try:
            self._channel.hand(handle)
        finally:
            os.close(handle)

    def _hand_weights(self, weights: Mapping[str, Array]) -> dict[str, Any]:
        """Hand the worker a block with arrays; return their names, and where in it the block is described."""
        try:
            layout = Layout(weights.values())
        except TypeError as error:
            raise failures.unfit(self._name, error) from None
        handle, rounded = framing.create(layout.size + len(layout.head))
        try:
            content = Block(handle, rounded, 0).array
            layout.write(content)
            content[layout.size : layout.size + len(layout.head)] = np.frombuffer(layout.head, np.uint8)
            self._channel.hand(handle)
        finally:
            os.close(handle)
        return {"names": [*weights], "bytes": rounded, "head": [layout.size, len(layout.head)]}

    def _received(self, said: Any, what: What) -> GraphcoreError:
        """Return the error that the worker tells of, with the path of the model as the user gave it."""
        path, given = str(self._program.asked.get("path", "")), self._program.name
        if path and isinstance(said, dict):
            short = {key: text for key, text in said.items() if isinstance(text, str) and len(text) <= failures.LONGEST}
            said |= {key: text.replace(path, given)[: failures.LONGEST] for key, text in short.items()}
        return failures.received(said, self._name, what, self._program.limits)

    def run(self, values: Sequence[Any], limit: Timeout | None = None) -> list[Any]:
        """Return the outputs for a value of each input.

        limit: when the call is to end. Raises what the model raises; `RunError` where the run ends the process,
        `RunTimeoutError` where the call's time is over, and `ResourceLimitError` where it is beyond a limit, after
        which `is_ended` may be True; `Ended` where it had ended before.
        """
        try:
            layout = Layout(values)
        except TypeError as error:
            raise failures.unfit(self._name, error) from None
        if self._channel.is_closed():
            self.end()
            raise Ended
        with self._ending("run", limit):
            deadline = _after(self._seconds(0.0 if limit is None else limit.left(self._name)))
            given = self._input
            if given is None or layout.size > given.size:
                given = self._input = self._new(layout.size, deadline, is_input=True)
            layout.write(given.array)
            block = self._block(deadline)
            self._is_asked = True
            left = 0.0 if limit is None else limit.left(self._name)
            self._time.allow(self._program.limits.run_seconds)
            self._channel.send(Kind.RUN, RUN_HEAD.pack(block.number, left) + layout.head, deadline)
            kind, content = self._channel.receive((Kind.RESULTS, Kind.NEED, Kind.FAILED), deadline)
            if kind is Kind.NEED:
                self._results.append(block)
                block = self._larger(content, block.size, deadline)
                kind, content = self._channel.receive((Kind.RESULTS,), deadline)
            self._is_asked = False
            if kind is Kind.FAILED:
                self._results.append(block)
                failed = self._received(read(content), "run")
                if limit is not None and isinstance(failed, RunTimeoutError):
                    raise limit.over(self._name)
                if isinstance(failed, ResourceLimitError):
                    self.end()  # an allocator that failed may fail again, for what there is room for
                raise failed
            return self._taken(content, block, deadline)

    def _seconds(self, left: float) -> float | None:
        """Return the seconds that an answer is waited for. left: of the call, in which the worker stops by itself;
        0 where it has no end."""
        most = self._program.limits.run_seconds
        if not left:
            return most
        return left + _TO_STOP if most is None else min(most, left + _TO_STOP)

    def _taken(self, content: bytes, block: Block, deadline: float) -> list[Any]:
        """Return the results in a block: their own if they are small, and else views of it."""
        is_small = block.size == framing.LEAST
        array: Array = block.array if is_small else np.asarray(Lease(block, self._results.append))
        reader = Reader(content, array, is_small, self._program.limits.memory, deadline)
        results = reader.values(len(self._expected))
        if is_small:
            self._results.append(block)
        for value, (dtype, last) in zip(results, self._expected, strict=True):
            if dtype is None:
                continue
            if type(value) is not np.ndarray or value.dtype != dtype or (last and value.shape[-1:] != last):
                raise Malformed("an output of another type")
        return results

    def _block(self, deadline: float) -> Block:
        """Return a block that has room for what the last run gave.

        A worker that was taken over keeps the memory of all blocks that it was ever given. So those that are free stay
        for later runs, however many, and are empty; only blocks that have become too small are dropped.
        """
        free = self._results
        for _ in range(len(free)):
            block = free.popleft()
            if block.size >= self._needed:
                free.append(block)
            else:
                self._channel.send(Kind.DROP, struct.pack("<I", block.number), deadline)
        found = free.pop() if free else self._new(self._needed, deadline)
        for index in range(len(free) - _KEPT):
            free[index].empty()
        return found.use()

    def _larger(self, content: bytes, least: int, deadline: float) -> Block:
        size = int.from_bytes(content, "little")
        if not least < size <= self._program.limits.memory:
            raise Malformed(f"that its results have {size} bytes")
        self._needed = size
        return self._new(size, deadline)

    def _new(self, size: int, deadline: float, is_input: bool = False) -> Block:
        handle, rounded = framing.create(size)
        try:
            self._made += 0 if is_input else 1
            number = 0 if is_input else self._made
            made = Block(handle, rounded, number)
            self._channel.hand(handle)
            self._channel.send(Kind.BLOCK, struct.pack("<IQ", number, rounded), deadline)
        finally:
            os.close(handle)
        return made

    def _ending(self, what: What, limit: Timeout | None = None) -> _Ending:
        return _Ending(self, what, limit)

    def fail(self, what: What, error: BaseException, limit: Timeout | None) -> NoReturn:
        """End the process and raise what its failure means."""
        limits = self._program.limits
        if isinstance(error, TimeoutError):
            self.end()
            if limit is not None and limit.is_over:
                raise limit.over(self._name, is_ended=True) from None
            raise failures.too_long(self._name, what, limits) from None
        if isinstance(error, Malformed):
            self.end()
            raise failures.senseless(self._name, what, str(error)) from None
        if isinstance(error, (EOFError, OSError)):
            with contextlib.suppress(Exception):
                self._started.process.wait(1)  # the socket is closed a little before the process is gone
            status, words = self.end()
            raise failures.died(status, words, self._name, what, limits) from None
        self.end()
        raise error

    def _read_words(self) -> bytes:
        with contextlib.suppress(OSError):
            return os.read(self._started.words, 1 << 16)
        return b""

    def settle(self) -> None:
        """End the process if it is still owed something, or owes an answer."""
        if self._is_asked:
            self.end()

    def end(self) -> tuple[int, str]:
        """End the process, now; return its status and its last words. The results that it gave stay."""
        process = self._started.process
        if process.poll() is None:
            process.kill()
        status = process.wait()
        words = b""
        if not self.is_ended:
            words = self._read_words()
            os.close(self._started.words)
            self._channel.close()
        self.is_ended = True
        self._input = None
        self._results.clear()
        return status, words.decode("utf-8", "replace")


class _Ending:
    """Ends a worker for whatever leaves the block but an error of its model."""

    __slots__ = ("_limit", "_what", "_worker")

    def __init__(self, worker: Worker, what: What, limit: Timeout | None) -> None:
        self._worker = worker
        self._what = what
        self._limit = limit

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        if isinstance(error, GraphcoreError):
            self._worker.settle()
            return
        self._worker.fail(self._what, error, self._limit)


def _stored(type_: Type) -> tuple[Any, tuple[int, ...]]:
    """Return the dtype of the arrays of a tensor's type, None for what is none; and the dim that wide integers add."""
    if not isinstance(type_, TensorType):
        return None, ()
    if type_.dtype is DType.string or type_.dtype.is_complex:
        return type_.dtype.numpy, ()
    return type_.dtype.storage.numpy, storage_axis(type_.dtype)


def _after(seconds: float | None) -> float:
    """Return the time of `time.monotonic` in so many seconds."""
    return math.inf if seconds is None else time.monotonic() + seconds


def _signature(said: Any, deadline: float) -> Signature:
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        raise Malformed("no signature")
    name = failures.clean(said["name"][:_LONGEST_NAME])
    inputs, outputs = (types_of(said.get(each), deadline) for each in ("inputs", "outputs"))
    return Signature(name, inputs, outputs, bool(said.get("has_buffers")))


def _warn(missing: tuple[str, ...]) -> None:
    """Log, once, which protections are missing."""
    if missing and missing not in _warned:
        _warned.add(missing)
        LOG.warning("IsolatedSession: workers run here without protection of %s", "; ".join(missing))
