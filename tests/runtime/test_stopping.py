"""Runs that end early: at a deadline, when they are cancelled, on Ctrl-C, and with the program."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Buffer, Graph, TensorType, ops
from graphcore.errors import FeedError, RunError, RunTimeoutError
from graphcore.runtime.stopping.limit import Limit, current
from graphcore.runtime.stopping.watcher import Watcher
from tests.support.waiting import PATIENCE


def counting(**buffers: Any) -> gc.Model:
    """Return a model that counts up to n, from 0 on: for ever where n is below 0."""
    graph = Graph("spin", {"n": TensorType("int64", ["k"]), **buffers})
    if "seen" in buffers:
        graph["seen"] += 1
    end = graph["n"].max()
    graph.output(y=graph["n"] * 0 + ops.while_loop(lambda i: i != end, lambda i: i + 1, end * 0))
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


model = functools.cache(counting)
ENDLESS, FIVE = np.array([-1]), np.array([5])


def is_usable(result: gc.Model) -> bool:
    return [int(y) for y in result(FIVE)[0]] == [5] and current() is None


@pytest.mark.parametrize(
    "call",
    [
        lambda result: result(ENDLESS, timeout=0.2),
        lambda result: result(n=ENDLESS, timeout=0.2),
        lambda result: result({"n": ENDLESS}, timeout=np.float32(0.2)),
        lambda result: result.execute(ENDLESS, timeout=0.2),
        lambda result: result.execute(np.array([5, -1, 5]), micro_batch=1, timeout=0.2),
        lambda result: result.bind(k=1)(ENDLESS, timeout=0.2),
        lambda result: result.run_async(ENDLESS, timeout=0.2).result(PATIENCE),
        lambda result: list(result.map(np.array([5, -1]), batch=1, timeout=0.2)),
    ],
)
def test_call_beyond_its_time_is_stopped_and_the_model_stays_usable(call: Callable[[gc.Model], object]) -> None:
    result = model()
    with pytest.raises(RunTimeoutError):
        call(result)
    assert is_usable(result)


def test_error_names_the_model_and_the_limit_and_is_a_timeout() -> None:
    with pytest.raises(TimeoutError, match=r"spin: a run was stopped after timeout=0\.05 seconds") as result:
        model()(ENDLESS, timeout=0.05)
    assert isinstance(result.value, RunError)


def test_call_within_its_time_gives_what_it_gives_without() -> None:
    for _ in range(100):
        assert model()(FIVE, timeout=PATIENCE)[0].tolist() == [5]
    assert model().run_async(FIVE, timeout=PATIENCE).result(PATIENCE)[0].tolist() == [5]
    assert [y.tolist() for (y,) in model().map(np.array([3, 4]), batch=1, timeout=PATIENCE)] == [3, 4]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, "1", [1]])
def test_times_that_are_none_are_refused(timeout: Any) -> None:
    result = model()
    bound = result.bind(k=1)
    for call in (result, result.execute, result.run_async, bound):
        with pytest.raises(FeedError, match="is not a time"):
            call(FIVE, timeout=timeout)
    with pytest.raises(FeedError, match="is not a time"):
        result.map([FIVE], timeout=timeout)


def test_input_may_be_called_timeout() -> None:
    graph = Graph("named", {"timeout": TensorType("float32", [])})
    graph.output(y=graph["timeout"] * 2)
    result = gc.InferenceSession().load(graph)
    assert result(timeout=3)[0] == result({"timeout": 3})[0] == result(3)[0] == 6
    assert result.run_async(timeout=3).result(PATIENCE)[0] == 6
    assert result.bind()(timeout=np.float32(3))[0] == 6
    assert result.execute({"timeout": 3}, timeout=PATIENCE)[0] == 6


def test_limit_ends_in_time_when_the_main_thread_settles_signals_meanwhile() -> None:
    class Ending(threading.Event):
        deadline = 0.0
        expire = threading.Event.set

    watcher = Watcher()
    for _ in range(50):
        ending = Ending()
        ending.deadline = time.monotonic() + 0.001
        watcher.add(ending)
        watcher.settle()
        assert ending.wait(PATIENCE)


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now


def test_limit_expires_at_its_deadline_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(100.0)
    monkeypatch.setattr("graphcore.runtime.stopping.watcher.time", clock)
    monkeypatch.setattr("graphcore.runtime.stopping.limit.time", clock)
    watcher, limit = Watcher(), Limit("spin", 0.25)
    watcher._limits.add(limit)
    for now, is_over in ((100.0, False), (100.125, False), (100.25, True)):
        clock.now = now
        watcher._expire()
        assert limit.is_over is is_over
    with pytest.raises(RunTimeoutError):
        limit.check()


def test_shorter_of_two_limits_counts_however_they_are_nested() -> None:
    for outer, inner in ((0.1, 50), (50, 0.1)):
        with pytest.raises(RunTimeoutError, match=r"timeout=0\.1 "), Limit("outer", outer):
            model()(ENDLESS, timeout=inner)
    assert is_usable(model())


def test_stopped_call_leaves_buffers_as_they_were_or_says_that_they_are_lost() -> None:
    result = counting(seen=Buffer("int64", []))
    result(FIVE)
    with pytest.raises(RunTimeoutError):
        result(ENDLESS, timeout=0.1)
    assert result.buffers["seen"] == 1
    result(FIVE)
    assert result.buffers["seen"] == 2
    graph = Graph("kept", {"n": TensorType("int64", ["k"]), "seen": Buffer("int64", [4], in_place=True)})
    graph.buffers["seen"][0] = ops.while_loop(lambda i: i != graph["n"].max(), lambda i: i + 1, graph["n"].max() * 0)
    graph.output(y=graph["n"] + 1)
    remaining = gc.InferenceSession().load(graph)
    remaining(FIVE)
    with pytest.raises(RunTimeoutError):
        remaining(ENDLESS, timeout=0.1)
    if "seen" in remaining.buffers.in_place:
        with pytest.raises(RunError, match="reset"):
            remaining(FIVE)
        remaining.buffers.reset()
    remaining(FIVE)
    assert remaining.buffers["seen"][0] == 5


def test_future_that_is_cancelled_stops_its_run_and_frees_its_thread() -> None:
    result = counting()
    running = [result.run_async(ENDLESS) for _ in range(40)]
    while not running[0].running():
        time.sleep(0.001)
    assert not running[0].done()
    assert all(future.cancel() for future in running)
    assert not wait(running, PATIENCE).not_done
    for future in running:
        assert future.cancelled()
        assert not future.running()
        with pytest.raises(CancelledError):
            future.result(0)
    done = result.run_async(FIVE)
    assert done.result(PATIENCE)[0].tolist() == [5]
    assert not done.cancel()
    assert is_usable(result)


def test_threads_stop_and_cancel_each_other_in_any_order() -> None:
    result, wrong = counting(), []

    def use(number: int) -> None:
        random = np.random.default_rng(number)
        try:
            for _ in range(15):
                what = random.integers(4)
                if what == 0:
                    assert result(FIVE, timeout=PATIENCE)[0].tolist() == [5]
                elif what == 1:
                    with pytest.raises(RunTimeoutError):
                        result(ENDLESS, timeout=0.01)
                elif what == 2:
                    future = result.run_async(ENDLESS)
                    time.sleep(0.005 * random.random())
                    assert future.cancel()
                else:
                    assert result.run_async(FIVE).result(PATIENCE)[0].tolist() == [5]
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=use, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert is_usable(result)


PREFIX = """
import asyncio, os, signal, sys, threading, time
import numpy as np
from tests.runtime.test_stopping import ENDLESS, FIVE, counting, is_usable
from graphcore.errors import RunCancelledError, RunTimeoutError
from graphcore.runtime.stopping.limit import Limit
made = counting()
made(FIVE)
def interrupt():
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
def until(call):
    try:
        interrupt()
        call()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    assert is_usable(made)
def cancels_when(event):  # a limit whose runs end once something else has happened
    limit = Limit("spin")
    threading.Thread(target=lambda: event.wait() and limit.cancel()).start()
    return limit
"""


def child(code: str, **options: Any) -> list[str]:
    root = Path(__file__).parents[2]
    results = [sys.executable, "-c", PREFIX + code]
    done = subprocess.run(results, cwd=root, timeout=2 * PATIENCE, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    parts: list[str] = done.stdout.split("\n")
    return parts


posix = pytest.mark.skipif(os.name == "nt", reason="signals of other processes")


@posix
@pytest.mark.parametrize(
    "call",
    [
        "lambda: made(ENDLESS)",
        "lambda: made.execute(np.array([5, -1]), micro_batch=1)",
        "lambda bound=made.bind(k=1): bound(ENDLESS)",
        "lambda: made(ENDLESS, timeout=1000)",
        "lambda: made.run_async(ENDLESS).result()",
        "lambda: list(made.map(np.array([5, -1]), batch=1))",
        "lambda: asyncio.run(asyncio.wait_for(turn(), 1000))",
    ],
)
def test_interrupt_ends_a_call_that_has_no_end(call: str) -> None:
    code = f"async def turn(): made(ENDLESS)\nfor _ in range(3): until({call})"
    assert child(code) == ["interrupted"] * 3 + [""]


@posix
def test_interrupt_from_another_process_ends_the_program() -> None:
    root = Path(__file__).parents[2]
    code = PREFIX + "print('ready', flush=True)\nmade(ENDLESS)"
    results = [sys.executable, "-c", code]
    with subprocess.Popen(results, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        time.sleep(0.2)
        program.send_signal(signal.SIGINT)
        try:
            _, errors = program.communicate(timeout=PATIENCE)
        finally:
            program.kill()  # `with` waits for it without an end
    assert program.returncode == -signal.SIGINT
    assert errors.strip().endswith("KeyboardInterrupt")


@posix
def test_handlers_of_the_program_run_during_a_call_and_it_goes_on() -> None:
    code = """
ran = threading.Event()
signal.signal(signal.SIGINT, lambda *_: ran.set())
interrupt()
try:
    with cancels_when(ran):
        made(ENDLESS)
except RunCancelledError:
    print("cancelled")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
made(ENDLESS)
"""
    assert child(code) == ["cancelled", ""]


@pytest.mark.full
@posix
def test_descriptor_of_another_package_is_told_of_signals() -> None:
    code = """
reader, writer = os.pipe()
os.set_blocking(writer, False)
ours = signal.set_wakeup_fd(writer)
time.sleep(0.2)
until(lambda: made(ENDLESS))
print("told", os.read(reader, 9) == bytes([signal.SIGINT]), ours >= 0)
"""
    assert child(code)[1:] == ["told True True", ""]


@pytest.mark.full
@posix
def test_forked_process_stops_runs_of_its_own() -> None:
    code = """
pid = os.fork()
until(lambda: made(ENDLESS))
try:
    made(ENDLESS, timeout=0.1)
except RunTimeoutError:
    print("timed out", flush=True)
if not pid:
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    result = child(code)
    message = "".join(result)  # the lines of two processes may run into each other
    assert message.count("timed out") == 2
    assert message.count("interrupted") == 2


def test_endless_call_does_not_keep_the_program_from_ending() -> None:
    code = """
for _ in range(20):
    made.run_async(ENDLESS)
print("ended")
"""
    assert child(code) == ["ended", ""]


KERNEL = """
import concurrent.futures, contextlib
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a kernel that is idle
loop = asyncio.new_event_loop()
others = []

def cell(call):  # as a notebook's kernel runs one: within a callback of the loop, with Python's own handler
    saved = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        signal.signal(signal.SIGINT, saved)

@contextlib.contextmanager
def cancelled_on_interrupt(task, handled):  # as it does for a cell with `await`: its handler raises nothing
    def handler(*_):
        loop.call_soon_threadsafe(task.cancel)
        handled.set()
    saved = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, saved)

async def beside():
    while True:
        others.append(1)
        await asyncio.sleep(0.01)
"""


@pytest.mark.full
@posix
@pytest.mark.parametrize("arms", ["", "loop.add_signal_handler(signal.SIGUSR1, print)"])
def test_interrupt_ends_a_cell_of_a_notebook_and_its_kernel_goes_on(arms: str) -> None:
    """arms: the loop may have a descriptor of its own for signals."""
    code = f"""{KERNEL}
async def serve():
    task = asyncio.ensure_future(beside())
    {arms}
    calls = lambda: made(ENDLESS), lambda: made(ENDLESS, timeout=1000), lambda: made.run_async(ENDLESS).result()
    for call in calls * 2:
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)  # of an idle kernel: nothing
        before = len(others)
        cell(lambda: (interrupt(), call()))
        cell(lambda: is_usable(made) and print("usable"))
        while len(others) == before:  # the loop goes on
            await asyncio.sleep(0.01)
    task.cancel()

loop.run_until_complete(serve())
"""
    assert child(code) == ["interrupted", "usable"] * 6 + [""]


@posix
def test_interrupt_of_a_cell_that_awaits_cancels_it_when_its_run_has_ended() -> None:
    """As it is for Python code: the handler leaves it to the loop, which the run holds up."""
    code = f"""{KERNEL}
handled = threading.Event()

async def awaits():
    interrupt()
    try:
        with cancels_when(handled):  # the interrupt, which the call outlives
            made(ENDLESS)
    except RunCancelledError:
        print("ran")
    await asyncio.Event().wait()

async def serve():
    task = asyncio.ensure_future(awaits())
    with cancelled_on_interrupt(task, handled):
        try:
            await task
        except asyncio.CancelledError:
            print("cancelled", is_usable(made))

loop.run_until_complete(serve())
"""
    assert child(code) == ["ran", "cancelled True", ""]


@pytest.mark.full
@posix
def test_runs_are_stopped_where_there_is_no_poll() -> None:
    code = """
import select
from graphcore.runtime.stopping.watcher import WATCHER
assert WATCHER._thread is None
until(lambda: made(ENDLESS))
try:
    made(ENDLESS, timeout=0.3)
except RunTimeoutError:
    print("timed out")
"""
    root = Path(__file__).parents[2]
    prefix = PREFIX.replace("made(FIVE)\n", "", 1)
    results = [sys.executable, "-c", f"import select\ndel select.poll\n{prefix}{code}"]
    done = subprocess.run(results, cwd=root, timeout=2 * PATIENCE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["interrupted", "timed out", ""]
