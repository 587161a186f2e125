"""Machines of hypothesis: Model and its Buffers, Batcher, the cache and exports, and isolated models, under faults."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import graphcore as gc
from graphcore import Buffer, DType, Graph, TensorType
from graphcore.errors import GraphcoreError
from tests.fuzz.mutations import cached_graph

Array = np.ndarray[Any, Any]
D = DType
ONE: dict[str, Any] = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}
INTEGERS = st.integers(-9, 9)


def counting() -> gc.Model:
    """A model that adds to what it holds."""
    graph = Graph("counting", {"x": TensorType(D.int64, [3]), "total": Buffer(D.int64, [3])})
    graph["total"] = graph["total"] + graph["x"]
    graph.output(held=graph["total"] * 1)
    return gc.InferenceSession(**ONE).load(graph)


def forked(work: Callable[[], None], seconds: float = 300.0) -> int:
    """Return the exit status of a fork that did some work: 0, a status, or minus a signal; it is killed after a
    time."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except GraphcoreError:
            os._exit(3)
        except BaseException:
            os._exit(4)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


class Holding(RuleBasedStateMachine):
    """States of one model, called in turn, by threads at once, with wrong operands, copied and set."""

    states = Bundle("states")

    def __init__(self) -> None:
        super().__init__()
        self.model = counting()
        self.expected: dict[int, Array] = {}

    @rule(target=states)
    def begin(self) -> Any:
        state = self.model.state()
        self.expected[id(state)] = np.zeros(3, np.int64)
        return state

    @rule(target=states, state=states)
    def copy(self, state: Any) -> Any:
        other = state.copy()
        self.expected[id(other)] = self.expected[id(state)].copy()
        return other

    @rule(state=states, number=INTEGERS)
    def call(self, state: Any, number: int) -> None:
        (got,) = state(np.full(3, number))
        self.expected[id(state)] = self.expected[id(state)] + number
        assert got.tolist() == self.expected[id(state)].tolist()

    @rule(state=states, numbers=st.lists(INTEGERS, min_size=2, max_size=6))
    def call_by_threads(self, state: Any, numbers: list[int]) -> None:
        threads = [threading.Thread(target=state, args=(np.full(3, n),)) for n in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.expected[id(state)] = self.expected[id(state)] + sum(numbers)

    @rule(state=states, wrong=st.sampled_from([np.zeros(2, np.int64), np.zeros(3), "x", None]))
    def call_wrongly(self, state: Any, wrong: Any) -> None:
        try:
            state(wrong)
        except GraphcoreError:
            return
        raise AssertionError(f"{wrong!r} was taken")

    @rule(state=states, number=INTEGERS)
    def set(self, state: Any, number: int) -> None:
        state.buffers["total"] = np.full(3, number)
        self.expected[id(state)] = np.full(3, number)

    @rule(state=states)
    def reset(self, state: Any) -> None:
        state.buffers.reset()
        self.expected[id(state)] = np.zeros(3, np.int64)

    @rule(state=states)
    def holds_what_is_known(self, state: Any) -> None:
        assert state.buffers["total"].tolist() == self.expected[id(state)].tolist()


class Batching(RuleBasedStateMachine):
    """Requests of a Batcher, waited for, by threads, wrong ones among them, and a close in between."""

    def __init__(self) -> None:
        super().__init__()
        graph = Graph("rows", {"x": TensorType(D.int64, ["n", "m"])})
        graph.output(y=graph["x"] * 2 + 1)
        self.model = gc.InferenceSession(**ONE).load(graph)
        self.batcher = gc.Batcher(self.model, max_batch=4, max_wait_ms=0.5)
        self.waiting: list[tuple[Future[list[Array]], Array]] = []
        self.closed = False

    @precondition(lambda self: not self.closed)
    @rule(rows=st.integers(1, 4), length=st.integers(0, 3), number=INTEGERS)
    def submit(self, rows: int, length: int, number: int) -> None:
        x = np.arange(rows * length).reshape(rows, length) + number
        self.waiting.append((self.batcher.submit(x), x))

    @precondition(lambda self: not self.closed)
    @rule(wrong=st.sampled_from([np.zeros((2, 2)), np.zeros(2, np.int64), np.zeros((0, 2), np.int64), "x"]))
    def submit_wrongly(self, wrong: Any) -> None:
        try:
            self.batcher.submit(wrong).result(60)
        except GraphcoreError:
            return
        raise AssertionError(f"{wrong!r} was taken")

    @precondition(lambda self: not self.closed)
    @rule(numbers=st.lists(INTEGERS, min_size=2, max_size=5))
    def submit_by_threads(self, numbers: list[int]) -> None:
        def work(number: int) -> None:
            x = np.full((1, 2), number)
            self.waiting.append((self.batcher.submit(x), x))

        threads = [threading.Thread(target=work, args=(n,)) for n in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @rule()
    def collect(self) -> None:
        while self.waiting:
            future, x = self.waiting.pop()
            (got,) = future.result(60)
            assert np.array_equal(got, x * 2 + 1)

    @precondition(lambda self: not self.closed)
    @rule()
    def close(self) -> None:
        self.batcher.close()
        self.closed = True

    @precondition(lambda self: self.closed)
    @rule()
    def begin_again(self) -> None:
        self.collect()
        self.batcher = gc.Batcher(self.model, max_batch=4, max_wait_ms=0.5)
        self.closed = False

    def teardown(self) -> None:
        self.collect()
        self.batcher.close()


class Caching(RuleBasedStateMachine):
    """A cache folder and an exported file, under damage, kills, a full disk, threads, and no right to write."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz"))
        self.cache = self.folder / "cache"
        self.file = self.folder / "model.onnx"
        self.graph = cached_graph()
        self.x = np.ones((2, 16), np.float32)
        (self.want,) = gc.InferenceSession(**ONE).load(self.graph)(self.x)
        self.graph.export(self.file, external_data=True)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def _load(self) -> None:
        (got,) = gc.InferenceSession(**ONE).load(self.graph, cache_dir=self.cache)(self.x)
        assert np.array_equal(got, self.want)

    @rule()
    def load(self) -> None:
        self._load()

    @rule()
    def load_by_threads(self) -> None:
        failed: list[BaseException] = []

        def work() -> None:
            try:
                self._load()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed

    @rule()
    def load_in_a_fork(self) -> None:
        assert forked(self._load) == 0

    def _files(self) -> list[Path]:
        return sorted(path for path in self.cache.glob("*") if path.is_file())  # a killed process leaves folders

    @rule(share=st.floats(0, 1), bit=st.integers(0, 7))
    def damage(self, share: float, bit: int) -> None:
        for path in self._files():
            content = bytearray(path.read_bytes())
            if content:
                content[int(share * (len(content) - 1))] ^= 1 << bit
                path.write_bytes(content)

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        for path in self._files():
            path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])

    @rule(bytes_=st.sampled_from([0, 1, 100, 1000, 5000]))
    def load_on_a_full_disk(self, bytes_: int) -> None:
        def work() -> None:
            _fill(bytes_)
            self._load()

        assert forked(work) == 0

    @rule(bytes_=st.sampled_from([0, 1, 100, 1000, 5000]))
    def export_on_a_full_disk(self, bytes_: int) -> None:
        def work() -> None:
            _fill(bytes_)
            self.graph.export(self.file, external_data=True)

        assert forked(work) in (0, 3)

    @rule(milliseconds=st.integers(0, 60))
    def kill_an_export(self, milliseconds: int) -> None:
        assert forked(lambda: self._export_for_ever(), milliseconds / 1000) == -signal.SIGKILL

    def _export_for_ever(self) -> None:
        while True:
            self.graph.export(self.file, external_data=True)

    @rule(milliseconds=st.integers(0, 60))
    def kill_a_load(self, milliseconds: int) -> None:
        def work() -> None:
            shutil.rmtree(self.cache, ignore_errors=True)
            while True:
                self._load()

        assert forked(work, milliseconds / 1000) == -signal.SIGKILL

    @rule()
    def load_where_nothing_can_be_written(self) -> None:
        self.cache.mkdir(exist_ok=True)
        self.cache.chmod(0o500)
        try:
            self._load()
        finally:
            self.cache.chmod(0o700)

    @rule()
    def load_where_a_file_is_in_the_way(self) -> None:
        shutil.rmtree(self.cache, ignore_errors=True)
        self.cache.write_bytes(b"")
        try:
            self._load()
        except GraphcoreError:
            pass
        finally:
            self.cache.unlink()

    @invariant()
    def the_model_is_there(self) -> None:
        (got,) = gc.InferenceSession(**ONE).load(self.file)(self.x)
        assert np.array_equal(got, self.want)


def _fill(count: int) -> None:
    """Let writes beyond a number of bytes fail in this process, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, count))


class Isolated(RuleBasedStateMachine):
    """A model in a worker, whose worker is killed, that is called wrongly, by threads, and closed."""

    def __init__(self) -> None:
        super().__init__()
        session: Any = getattr(gc, "IsolatedSession")  # noqa: B009 a release may not have it
        self.model = session(intra_op_num_threads=1, load_seconds=600).load(cached_graph())
        (self.want,) = gc.InferenceSession(**ONE).load(cached_graph())(np.ones((2, 16), np.float32))

    def teardown(self) -> None:
        self.model.close()

    @rule()
    def call(self) -> None:
        (got,) = self.model(np.ones((2, 16), np.float32))
        assert np.array_equal(got, self.want)

    @rule(wrong=st.sampled_from([np.ones((2, 3), np.float32), np.ones(2), "x"]))
    def call_wrongly(self, wrong: Any) -> None:
        try:
            self.model(wrong)
        except GraphcoreError:
            return
        raise AssertionError(f"{wrong!r} was taken")

    @rule()
    def call_by_threads(self) -> None:
        threads = [threading.Thread(target=self.call) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @rule()
    def kill(self) -> None:
        for process in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        try:
            self.model(np.ones((2, 16), np.float32))
        except GraphcoreError:
            return


def _children() -> list[int]:
    """Return the processes that this one has started and that are of an isolated session."""
    results = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread, and below a process, that has ended meanwhile
            results += [int(p) for p in (thread / "children").read_text().split()]
    return [p for p in results if _is_isolated(p)]


def _is_isolated(process: int) -> bool:
    with contextlib.suppress(OSError):
        return b"isolation" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


MACHINES: dict[str, type[RuleBasedStateMachine]] = {"buffers": Holding, "batcher": Batching, "cache": Caching}
if hasattr(gc, "IsolatedSession"):
    MACHINES["isolated"] = Isolated


def failure(name: str, seed: int, examples: int = 3, steps: int = 10) -> str | None:
    """Return a description of what is wrong after some steps of a machine, with the steps, or None."""
    from hypothesis import seed as seeded  # late: of the test alone

    machine = type(name, (MACHINES[name],), {})
    result = seeded(seed)(machine)
    limits = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None, print_blob=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    try:
        run_state_machine_as_test(result, settings=limits)
    except Exception as error:
        return "\n".join(f"{name}: {type(e).__name__}: {e}\n" + "\n".join(_notes(e)) for e in _parts(error))
    return None


def _parts(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [part for inner in error.exceptions for part in _parts(inner)]
    return [error]


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))
