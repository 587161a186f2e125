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
from graphcore.runtime.stopping.limit import current
from graphcore.runtime.stopping.watcher import Watcher

SLACK = 3.0
"""Seconds that a loaded machine may take for what takes milliseconds."""


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


def is_usable(made: gc.Model) -> bool:
    return [int(y) for y in made(FIVE)[0]] == [5] and current() is None


def taken(call: Callable[[], object], error: type[BaseException]) -> float:
    """Return how many seconds a call took, which is to raise an error."""
    started = time.monotonic()
    with pytest.raises(error):
        call()
    return time.monotonic() - started


@pytest.mark.parametrize(
    "call",
    [
        lambda made: made(ENDLESS, timeout=0.2),
        lambda made: made(n=ENDLESS, timeout=0.2),
        lambda made: made({"n": ENDLESS}, timeout=np.float32(0.2)),
        lambda made: made.execute(ENDLESS, timeout=0.2),
        lambda made: made.execute(np.array([5, -1, 5]), micro_batch=1, timeout=0.2),
        lambda made: made.bind(k=1)(ENDLESS, timeout=0.2),
        lambda made: made.run_async(ENDLESS, timeout=0.2).result(20),
        lambda made: list(made.map(np.array([5, -1]), batch=1, timeout=0.2)),
    ],
)
def test_call_beyond_its_time_is_stopped_and_the_model_stays_usable(call: Callable[[gc.Model], object]) -> None:
    made = model()
    assert 0.15 < taken(lambda: call(made), RunTimeoutError) < 0.2 + SLACK
    assert is_usable(model())


def test_error_names_the_model_and_the_limit_and_is_a_timeout() -> None:
    with pytest.raises(TimeoutError, match=r"spin: a run was stopped after timeout=0\.05 seconds") as found:
        model()(ENDLESS, timeout=0.05)
    assert isinstance(found.value, RunError)


def test_call_within_its_time_gives_what_it_gives_without() -> None:
    for _ in range(100):
        assert model()(FIVE, timeout=50)[0].tolist() == [5]
    assert model().run_async(FIVE, timeout=50).result(20)[0].tolist() == [5]
    assert [y.tolist() for (y,) in model().map(np.array([3, 4]), batch=1, timeout=50)] == [3, 4]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, "1", [1]])
def test_times_that_are_none_are_refused(timeout: Any) -> None:
    made = model()
    bound = made.bind(k=1)
    for call in (made, made.execute, made.run_async, bound):
        with pytest.raises(FeedError, match="is no time"):
            call(FIVE, timeout=timeout)
    with pytest.raises(FeedError, match="is no time"):
        made.map([FIVE], timeout=timeout)


def test_input_may_be_called_timeout() -> None:
    graph = Graph("named", {"timeout": TensorType("float32", [])})
    graph.output(y=graph["timeout"] * 2)
    made = gc.InferenceSession().load(graph)
    assert made(timeout=3)[0] == made({"timeout": 3})[0] == made(3)[0] == made.run_async(timeout=3).result(20)[0] == 6
    assert made.bind()(timeout=np.float32(3))[0] == 6
    assert made.execute({"timeout": 3}, timeout=20)[0] == 6


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
        assert ending.wait(20)


def test_shorter_of_two_limits_counts_however_they_are_nested() -> None:
    from graphcore.runtime.stopping.limit import Limit

    for outer, inner in ((0.1, 50), (50, 0.1)):
        with pytest.raises(RunTimeoutError, match=r"timeout=0\.1 "), Limit("outer", outer):
            model()(ENDLESS, timeout=inner)
    assert is_usable(model())


def test_stopped_call_leaves_buffers_as_they_were_or_says_that_they_are_lost() -> None:
    made = counting(seen=Buffer("int64", []))
    made(FIVE)
    assert taken(lambda: made(ENDLESS, timeout=0.1), RunTimeoutError) < SLACK
    assert made.buffers["seen"] == 1
    made(FIVE)
    assert made.buffers["seen"] == 2
    graph = Graph("kept", {"n": TensorType("int64", ["k"]), "seen": Buffer("int64", [4], in_place=True)})
    graph.buffers["seen"][0] = ops.while_loop(lambda i: i != graph["n"].max(), lambda i: i + 1, graph["n"].max() * 0)
    graph.output(y=graph["n"] + 1)
    kept = gc.InferenceSession().load(graph)
    kept(FIVE)
    with pytest.raises(RunTimeoutError):
        kept(ENDLESS, timeout=0.1)
    if "seen" in kept.buffers.in_place:
        with pytest.raises(RunError, match="reset"):
            kept(FIVE)
        kept.buffers.reset()
    kept(FIVE)
    assert kept.buffers["seen"][0] == 5


def test_future_that_is_cancelled_stops_its_run_and_frees_its_thread() -> None:
    made = counting()
    running = [made.run_async(ENDLESS) for _ in range(40)]
    while not running[0].running():
        time.sleep(0.001)
    assert not running[0].done()
    assert all(future.cancel() for future in running)
    assert not wait(running, 20).not_done
    for future in running:
        assert future.cancelled()
        assert not future.running()
        with pytest.raises(CancelledError):
            future.result(0)
    done = made.run_async(FIVE)
    assert done.result(20)[0].tolist() == [5]
    assert not done.cancel()
    assert is_usable(made)


def test_threads_stop_and_cancel_each_other_in_any_order() -> None:
    made, wrong = counting(), []

    def use(number: int) -> None:
        random = np.random.default_rng(number)
        try:
            for _ in range(15):
                what = random.integers(4)
                if what == 0:
                    assert made(FIVE, timeout=50)[0].tolist() == [5]
                elif what == 1:
                    taken(lambda: made(ENDLESS, timeout=0.01), RunTimeoutError)
                elif what == 2:
                    future = made.run_async(ENDLESS)
                    time.sleep(0.005 * random.random())
                    assert future.cancel()
                else:
                    assert made.run_async(FIVE).result(50)[0].tolist() == [5]
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=use, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert is_usable(made)


PREFIX = """
import asyncio, os, signal, sys, threading, time
import numpy as np
from tests.runtime.test_stopping import ENDLESS, FIVE, counting, is_usable
from graphcore.errors import RunTimeoutError
made = counting()
made(FIVE)
at = []
def interrupt(after=0.2):
    def send():
        at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(after, send).start()
def until(call):
    interrupt()
    try:
        call()
    except KeyboardInterrupt:
        print("after", time.monotonic() - at[-1])
    assert is_usable(made)
"""


def child(code: str, **options: Any) -> list[str]:
    root = Path(__file__).parents[2]
    given = [sys.executable, "-c", PREFIX + code]
    done = subprocess.run(given, cwd=root, timeout=100, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    found: list[str] = done.stdout.split("\n")
    return found


posix = pytest.mark.skipif(os.name == "nt", reason="signals of other processes")


@posix
@pytest.mark.parametrize(
    "call",
    [
        "lambda: made(ENDLESS)",
        "lambda: made.execute(np.array([5, -1]), micro_batch=1)",
        "lambda bound=made.bind(k=1): bound(ENDLESS)",
        "lambda: made(ENDLESS, timeout=60)",
        "lambda: made.run_async(ENDLESS).result()",
        "lambda: list(made.map(np.array([5, -1]), batch=1))",
        "lambda: asyncio.run(asyncio.wait_for(turn(), 60))",
    ],
)
def test_interrupt_ends_a_call_at_once(call: str) -> None:
    code = f"async def turn(): made(ENDLESS)\nfor _ in range(3): until({call})"
    found = [float(line.split()[1]) for line in child(code) if line.startswith("after")]
    assert len(found) == 3
    assert min(found) < 0.2
    assert max(found) < SLACK


@posix
def test_interrupt_from_another_process_ends_the_program() -> None:
    root = Path(__file__).parents[2]
    code = PREFIX + "print('ready', flush=True)\nmade(ENDLESS)"
    given = [sys.executable, "-c", code]
    with subprocess.Popen(given, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        time.sleep(0.2)
        program.send_signal(signal.SIGINT)
        try:
            _, errors = program.communicate(timeout=20)
        finally:
            program.kill()  # `with` waits for it without an end
    assert program.returncode == -signal.SIGINT
    assert errors.strip().endswith("KeyboardInterrupt")


@posix
def test_handlers_of_the_program_run_at_once_and_the_call_goes_on() -> None:
    code = """
ran = []
signal.signal(signal.SIGINT, lambda *_: ran.append(time.monotonic()))
interrupt()
try:
    made(ENDLESS, timeout=1.5)
except RunTimeoutError:
    print("heard", len(ran), ran[0] - at[0] < 1.0)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
made(ENDLESS)
"""
    assert child(code) == ["heard 1 True", ""]


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
    found = child(code)
    told = "".join(found)  # the lines of two processes may run into each other
    assert told.count("timed out") == 2
    assert told.count("after") == 2


def test_endless_call_does_not_keep_the_program_from_ending() -> None:
    code = """
for _ in range(20):
    made.run_async(ENDLESS)
print("ended")
"""
    started = time.monotonic()
    assert child(code) == ["ended", ""]
    assert time.monotonic() - started < 60


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
        print("after", time.monotonic() - at[-1])
    finally:
        signal.signal(signal.SIGINT, saved)

@contextlib.contextmanager
def cancelled_on_interrupt(task):  # as it does for a cell with `await`: its handler raises nothing
    def handler(*_):
        loop.call_soon_threadsafe(task.cancel)
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


@posix
@pytest.mark.parametrize("arms", ["", "loop.add_signal_handler(signal.SIGUSR1, print)"])
def test_interrupt_ends_a_cell_of_a_notebook_and_its_kernel_goes_on(arms: str) -> None:
    """arms: the loop may have a descriptor of its own for signals."""
    code = f"""{KERNEL}
async def serve():
    task = asyncio.ensure_future(beside())
    {arms}
    calls = lambda: made(ENDLESS), lambda: made(ENDLESS, timeout=60), lambda: made.run_async(ENDLESS).result()
    for call in calls * 2:
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)  # of an idle kernel: nothing
        interrupt()
        before = len(others)
        cell(call)
        cell(lambda: is_usable(made) and print("usable"))
        await asyncio.sleep(0.05)
        assert len(others) > before, "the loop stands"
    task.cancel()

loop.run_until_complete(serve())
"""
    found = child(code)
    assert found.count("usable") == 6
    taken = [float(line.split()[1]) for line in found if line.startswith("after")]
    assert len(taken) == 6
    assert min(taken) < 0.2
    assert max(taken) < SLACK


@posix
def test_interrupt_of_a_cell_that_awaits_cancels_it_when_its_run_has_ended() -> None:
    """As it is for Python code: the handler leaves it to the loop, which the run holds up."""
    code = f"""{KERNEL}
async def awaits():
    interrupt(0.1)
    with contextlib.suppress(RunTimeoutError):
        made(ENDLESS, timeout=0.6)
    print("ran", time.monotonic() - at[0] > 0.4)
    await asyncio.sleep(60)

async def serve():
    task = asyncio.ensure_future(awaits())
    with cancelled_on_interrupt(task):
        try:
            await task
        except asyncio.CancelledError:
            print("cancelled", is_usable(made))

loop.run_until_complete(serve())
"""
    assert child(code) == ["ran True", "cancelled True", ""]


@posix
def test_runs_are_stopped_where_there_is_no_poll() -> None:
    code = """
import select
from graphcore.runtime.stopping.watcher import WATCHER
assert WATCHER._thread is None
until(lambda: made(ENDLESS))
started = time.monotonic()
try:
    made(ENDLESS, timeout=0.3)
except RunTimeoutError:
    print("timed out", time.monotonic() - started < 3)
"""
    root = Path(__file__).parents[2]
    prefix = PREFIX.replace("made(FIVE)\n", "", 1)
    given = [sys.executable, "-c", f"import select\ndel select.poll\n{prefix}{code}"]
    done = subprocess.run(given, cwd=root, timeout=100, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split("\n")
    assert found[0].startswith("after")
    assert float(found[0].split()[1]) < SLACK
    assert found[1:] == ["timed out True", ""]
