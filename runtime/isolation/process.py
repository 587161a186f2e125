"""A worker in its parent: start the process, load the model, send runs, and end it when its time is over."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import struct
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from graphcore.errors import GraphcoreError, GraphError, ResourceLimitError, RunTimeoutError
from graphcore.runtime.isolation import failures, framing, spawning
from graphcore.runtime.isolation.failures import What, WorkerLimits
from graphcore.runtime.isolation.framing import (
    RUN_HEAD,
    Channel,
    FrameKind,
    Lease,
    Malformed,
    SharedBlock,
    from_json,
    to_json,
)
from graphcore.runtime.isolation.sandbox import ProcessorTime
from graphcore.runtime.isolation.spawning import Timeout
from graphcore.support.lazy import Lazy

if TYPE_CHECKING:
    import numpy as np

    from graphcore.arrays.casting import Array
    from graphcore.runtime.isolation import codec
    from graphcore.types.tensor_types import Type
else:  # commands that run in a worker need no arrays
    np, codec = Lazy("numpy"), Lazy("graphcore.runtime.isolation.codec")

LOG = logging.getLogger("graphcore")
_MAX_CACHED_BLOCKS = 3
"""Maximum number of free result blocks that keep their memory for the next runs."""
_TO_STOP = 0.25
"""Seconds that a worker has to stop a run between two kernels when a call's time is over, before it is ended."""
_MAX_NAME_LENGTH = 1000
_DEVICE_PROVIDERS = ("cuda", "tensorrt", "rocm", "migraphx", "dml", "webgpu", "nvtensorrtrtx")
"""Parts of the names of providers with devices outside the sandbox."""
_warned: set[tuple[str, ...]] = set()


@dataclass(frozen=True, slots=True)
class WorkerProgram:
    """The arguments of each worker of a pool.

    name: of the model in errors until it is loaded. session: options of InferenceSession. request: of the model to
    load. content: of a model that is not a file. readable: the files and folders that the model needs besides the
    libraries. weights: arrays that replace the model's, by name.
    """

    name: str
    limits: WorkerLimits
    session: Mapping[str, Any]
    request: Mapping[str, Any]
    content: bytes | None
    readable: tuple[str, ...]
    weights: Mapping[str, Array] = field(default_factory=dict)

    @property
    def is_call(self) -> bool:
        """True if a worker calls a function instead of loading a model: see `call`."""
        return "function" in self.request


@dataclass(frozen=True, slots=True)
class WorkerSignature:
    """The description of a model that its worker sends."""

    name: str
    inputs: dict[str, Type]
    outputs: dict[str, Type]
    has_buffers: bool
    optional: dict[str, Type]


class WorkerEnded(Exception):
    """A worker has ended before the request was sent."""


class Worker:
    """A worker process with one model. Only one thread may use it at a time."""

    def __init__(self, program: WorkerProgram) -> None:
        """Start the process and load the model. Raises errors of loading, `ModelError` if loading ends the process, and
        `ResourceLimitError` beyond a limit."""
        self._program = program
        self._name = program.name
        self._started = spawning.start()
        self._channel = Channel(self._started.frames, self._started.descriptors)
        self._time = ProcessorTime(self.process)
        self._input: SharedBlock | None = None
        self._results: deque[SharedBlock] = deque()
        self._needed = 0
        self._count = 0
        self._is_busy = True
        self.is_ended = False
        """Whether the process has ended, by itself or by `end`."""
        try:
            answer, deadline = self._load()
            if program.is_call:
                self.answer = answer
                return
            with self._ending("load"):
                self.signature = _signature(answer, deadline)
        except GraphcoreError:
            self.end()
            raise
        self._name = self.signature.name
        outputs = self.signature.outputs.values()
        self._expected = [codec.expected_dtype(type_) for type_ in outputs]

    @property
    def process(self) -> int:
        """The id of the process."""
        return self._started.process.pid

    def _load(self) -> tuple[Any, float]:
        """Send the request; return its answer, and the time until which it may be read."""
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
            self._channel.send(FrameKind.SETTINGS, to_json(settings), deadline)
            request = dict(program.request)
            if program.content is not None:
                self._hand(framing.of_bytes(program.content))
            if program.weights:
                request["weights"] = self._hand_weights(program.weights)
            self._channel.send(FrameKind.LOAD, to_json(request), deadline)
            _, content = self._channel.receive((FrameKind.READY,), deadline)
            missing += [str(each) for each in from_json(content)]
            if missing and limits.is_strict:
                raise failures.incomplete(missing)
            _warn(tuple(missing))
            expected = FrameKind.RESULTS if program.is_call else FrameKind.LOADED
            kind, content = self._channel.receive((expected, FrameKind.FAILED), deadline)
            answer = from_json(content)
            if kind is FrameKind.FAILED:
                raise self._error_of(answer, "load")
            self._is_busy = False
            self._read_words()  # drop warnings of the start, which do not explain a later end
            return answer, deadline

    def _hand(self, handle: int) -> None:
        try:
            self._channel.send_handle(handle)
        finally:
            os.close(handle)

    def _hand_weights(self, weights: Mapping[str, Array]) -> dict[str, Any]:
        """Send the worker a block with arrays; return their names, and where the block describes them."""
        try:
            layout = codec.ValueWriter(weights.values())
        except TypeError as error:
            raise failures.unsupported_value(self._name, error) from None
        handle, rounded = framing.create(layout.size + len(layout.head))
        try:
            content = SharedBlock(handle, rounded, 0).array
            layout.write(content)
            content[layout.size : layout.size + len(layout.head)] = np.frombuffer(layout.head, np.uint8)
            self._channel.send_handle(handle)
        finally:
            os.close(handle)
        return {"names": [*weights], "bytes": rounded, "head": [layout.size, len(layout.head)]}

    def _error_of(self, answer: Any, what: What) -> GraphcoreError:
        """Return the error that the worker describes, with the user's path of the model."""
        path, user_path = str(self._program.request.get("path", "")), self._program.name
        if path and isinstance(answer, dict):
            short = {
                key: text for key, text in answer.items() if isinstance(text, str) and len(text) <= failures.MAX_LENGTH
            }
            answer |= {key: text.replace(path, user_path)[: failures.MAX_LENGTH] for key, text in short.items()}
        return failures.error_of(answer, self._name, what, self._program.limits)

    def run(self, values: Sequence[Any], limit: Timeout | None = None) -> list[Any]:
        """Return the outputs for a value of each input.

        limit: of the call. Raises errors of the model; `RunError` if the run ends the process, `RunTimeoutError` if the
        call's time is over, and `ResourceLimitError` beyond a limit, after which `is_ended` may be True; `WorkerEnded`
        if the process had ended before.
        """
        try:
            layout = codec.ValueWriter(values)
        except TypeError as error:
            raise failures.unsupported_value(self._name, error) from None
        if self._channel.is_closed():
            self.end()
            raise WorkerEnded
        with self._ending("run", limit):
            deadline = _after(self._seconds(0.0 if limit is None else limit.remaining(self._name)))
            input_block = self._input
            if input_block is None or layout.size > input_block.size:
                input_block = self._input = self._new(layout.size, deadline, is_input=True)
            layout.write(input_block.array)
            block = self._block(deadline)
            self._is_busy = True
            seconds_left = 0.0 if limit is None else limit.remaining(self._name)
            self._time.allow(self._program.limits.run_seconds)
            self._channel.send(FrameKind.RUN, RUN_HEAD.pack(block.number, seconds_left) + layout.head, deadline)
            kind, content = self._channel.receive((FrameKind.RESULTS, FrameKind.NEED, FrameKind.FAILED), deadline)
            if kind is FrameKind.NEED:
                self._results.append(block)
                block = self._larger(content, block.size, deadline)
                kind, content = self._channel.receive((FrameKind.RESULTS,), deadline)
            self._is_busy = False
            if kind is FrameKind.FAILED:
                self._results.append(block)
                failed = self._error_of(from_json(content), "run")
                if limit is not None and isinstance(failed, RunTimeoutError):
                    raise limit.over(self._name)
                if isinstance(failed, ResourceLimitError):
                    self.end()  # after a failure the allocator may also fail for small sizes
                raise failed
            return self._results_of(content, block, deadline)

    def _seconds(self, seconds_left: float) -> float | None:
        """Return the seconds to wait for an answer. seconds_left: of the call, after which the worker stops by itself;
        0 for no limit."""
        limit = self._program.limits.run_seconds
        if not seconds_left:
            return limit
        return seconds_left + _TO_STOP if limit is None else min(limit, seconds_left + _TO_STOP)

    def _results_of(self, content: bytes, block: SharedBlock, deadline: float) -> list[Any]:
        """Return the results in a block: copies if they are small, else views of the block."""
        is_small = block.size == framing.MIN_BLOCK_BYTES
        array: Array = block.array if is_small else np.asarray(Lease(block, self._results.append))
        reader = codec.ValueReader(content, array, is_small, self._program.limits.memory, deadline)
        results = reader.values(len(self._expected))
        if is_small:
            self._results.append(block)
        for value, (dtype, last) in zip(results, self._expected, strict=True):
            if dtype is None:
                continue
            if type(value) is not np.ndarray or value.dtype != dtype or (last and value.shape[-1:] != last):
                raise Malformed("an output of another type")
        return results

    def _block(self, deadline: float) -> SharedBlock:
        """Return a block that is large enough for the results of the last run.

        A worker that was taken over keeps the memory of all blocks that it has ever received. So free blocks are
        emptied and used again; only blocks that have become too small are dropped.
        """
        free = self._results
        for _ in range(len(free)):
            block = free.popleft()
            if block.size >= self._needed:
                free.append(block)
            else:
                self._channel.send(FrameKind.DROP, struct.pack("<I", block.number), deadline)
        result_block = free.pop() if free else self._new(self._needed, deadline)
        for index in range(len(free) - _MAX_CACHED_BLOCKS):
            free[index].empty()
        return result_block.use()

    def _larger(self, content: bytes, least: int, deadline: float) -> SharedBlock:
        size = int.from_bytes(content, "little")
        if not least < size <= self._program.limits.memory:
            raise Malformed(f"that its results have {size} bytes")
        self._needed = size
        return self._new(size, deadline)

    def _new(self, size: int, deadline: float, is_input: bool = False) -> SharedBlock:
        handle, rounded = framing.create(size)
        try:
            self._count += 0 if is_input else 1
            number = 0 if is_input else self._count
            block = SharedBlock(handle, rounded, number)
            self._channel.send_handle(handle)
            self._channel.send(FrameKind.BLOCK, struct.pack("<IQ", number, rounded), deadline)
        finally:
            os.close(handle)
        return block

    @contextlib.contextmanager
    def _ending(self, what: What, limit: Timeout | None = None) -> Iterator[None]:
        """End the process on any exception in the block, except errors of its model."""
        try:
            yield
        except GraphcoreError:
            if self._is_busy:  # the request was not completed
                self.end()
            raise
        except BaseException as error:
            self._fail(what, error, limit)

    def _fail(self, what: What, error: BaseException, limit: Timeout | None) -> NoReturn:
        """End the process and raise the error of its failure."""
        limits = self._program.limits
        if isinstance(error, TimeoutError):
            self.end()
            if limit is not None and limit.is_over:
                raise limit.over(self._name, is_ended=True) from None
            raise failures.too_long(self._name, what, limits) from None
        if isinstance(error, Malformed):
            self.end()
            raise failures.malformed_answer(self._name, what, str(error)) from None
        if isinstance(error, (EOFError, OSError)):
            with contextlib.suppress(Exception):
                self._started.process.wait(1)  # the socket is closed a little before the process ends
            status, words = self.end()
            raise failures.died(status, words, self._name, what, limits) from None
        self.end()
        raise error

    def _read_words(self) -> bytes:
        with contextlib.suppress(OSError):
            return os.read(self._started.words, 1 << 16)
        return b""

    def end(self) -> tuple[int, str]:
        """End the process immediately; return its status and its last output. Its results stay valid."""
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


def call(
    function: tuple[str, str], path: str, arguments: Sequence[Any], links: Mapping[str, Any], limits: WorkerLimits
) -> Any:
    """Return the result of a function that reads a model's file in a worker, as plain values that nothing has checked.

    function: its module and name; it takes the absolute path and the arguments. Raises errors as `Worker`.
    """
    root, place = links["external_data_root"], os.path.abspath(path)
    links = {**links, "external_data_root": root and os.path.abspath(root)}
    request = {"line": "", "function": function, "path": place, "arguments": arguments, "links": links}
    readable = spawning.readable(place, links["external_data"], links["external_data_root"])
    worker = Worker(WorkerProgram(path, limits, {}, request, None, readable))
    worker.end()
    return worker.answer


def require_host(providers: Sequence[str]) -> None:
    """Raise `GraphError` for a provider with devices outside the sandbox."""
    for provider in providers:
        if any(part in str(provider).lower() for part in _DEVICE_PROVIDERS):
            raise GraphError(
                f"IsolatedSession: {provider!r:.80} runs on a device, whose driver is outside of the sandbox",
                help='run it on "cpu", or the whole program in a container',
            )


def _after(seconds: float | None) -> float:
    """Return the time of `time.monotonic` after a number of seconds."""
    return math.inf if seconds is None else time.monotonic() + seconds


def _signature(answer: Any, deadline: float) -> WorkerSignature:
    if not isinstance(answer, dict) or not isinstance(answer.get("name"), str):
        raise Malformed("no signature")
    name = failures.clean(answer["name"][:_MAX_NAME_LENGTH])
    inputs, outputs, optional = (
        codec.types_from_json(answer.get(each), deadline) for each in ("inputs", "outputs", "optional")
    )
    return WorkerSignature(name, inputs, outputs, bool(answer.get("has_buffers")), optional)


def _warn(missing: tuple[str, ...]) -> None:
    """Log missing protections once."""
    if missing and missing not in _warned:
        _warned.add(missing)
        LOG.warning("IsolatedSession: workers run here without protection of %s", "; ".join(missing))
