"""Models in workers: what ends a process, or never ends, is an error of the call that did it; and the sandbox holds."""

from __future__ import annotations

import contextlib
import gc as garbage
import itertools
import os
import pickle
import platform
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import DType, Graph, OptionalType, SequenceType, TensorType, ops
from graphcore.errors import FeedError, GraphcoreError, GraphError, ModelError, ResourceLimitError, RunError
from graphcore.runtime.isolation import process, sandbox
from graphcore.runtime.isolation.failures import WorkerLimits
from graphcore.runtime.isolation.framing import Channel, FrameKind, Malformed
from graphcore.runtime.isolation.process import WorkerProgram
from tests.support.onnx_models import FLOAT, INT64, model, one, value
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is Linux'")

MEMORY = 1 << 30
START = 120.0
"""Seconds that a worker may take to start, on a busy machine too."""


class TakenOver:
    """A pickled "graph" that takes over its worker: the model then runs whatever Python code it is fed.

    What a worker could do once a kernel has been exploited. Only a test can load such a graph: those of users are
    pickled by the library.
    """

    CODE = """
import numpy as np
import graphcore.runtime.session as session
from graphcore import TensorType
from graphcore.runtime.calls.feeds import Inputs

class Model:
    name, _model_buffers = "taken over", ()
    inputs = Inputs({"code": TensorType("string", [])}, {})
    outputs = {"said": TensorType("string", []), "wide": TensorType("int100", [])}

    def __call__(self, feed):
        scope = {"said": "", "wide": np.zeros(4, np.uint32)}
        exec(str(feed["code"][()]), scope)
        return [np.array(str(scope["said"]), object), scope["wide"]]

session.InferenceSession.load = lambda *_, **__: Model()
"""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (self.CODE, {})


def taken_over(run_seconds: float = START) -> gc.IsolatedModel:
    program = WorkerProgram(
        name="taken over",
        limits=WorkerLimits(MEMORY, START, run_seconds),
        session=gc.IsolatedSession()._session,
        request={"kind": "graph", "line": "", "limits": {}},
        content=pickle.dumps(TakenOver()),
        readable=(),
    )
    return gc.IsolatedModel(program, 1)


@pytest.fixture(scope="module")
def worker() -> Iterator[Callable[[str], str]]:
    """A function that runs code in a worker, and returns what it leaves in `said`."""
    with taken_over() as result:
        yield lambda code: str(result(np.array(code, object))[0])


def endless() -> bytes:
    """A model that adds a feed to itself while another is true, which nothing changes."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Mul", ["v", "v"], ["v2"])],
        "body",
        [value("i", INT64, []), value("c", TensorProto.BOOL, []), value("v")],
        [value("c2", TensorProto.BOOL, []), value("v2")],
    )
    node = helper.make_node("Loop", ["", "more", "x"], ["y"], body=body)
    return bytes(model([node], [value("more", TensorProto.BOOL, []), value("x")]).SerializeToString())


def expanding() -> Graph:
    graph = Graph("expanding", {"count": TensorType(DType.int64, [1])})
    graph.output(y=ops.sum(ops.onnx.Expand(graph.constant(np.ones(1, np.float32)), graph["count"]) * 2.0))
    return graph


ONES = np.ones(2, np.float32)


def descriptors() -> int:
    """Return the number of open files, without those of garbage that earlier tests left."""
    garbage.collect()
    return len(os.listdir("/proc/self/fd"))


def has_ended(process: int) -> bool:
    """Return True if all threads of a process have ended, whether it was waited for or not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len(os.listdir(f"/proc/{process}/task")) == 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def check_gone(*processes: int) -> None:
    """Wait until processes have ended and were waited for."""
    until(lambda: not any(os.path.exists(f"/proc/{process}") for process in processes))


# Results


def test_outputs_are_those_of_a_model_for_every_dtype() -> None:
    dtypes = [d for d in vars(DType).values() if isinstance(d, DType) and d is not DType.string and d.bits <= 64]
    graph = Graph("all", {d.name: TensorType(d, ["n", 3]) for d in dict.fromkeys(dtypes)})
    graph.output(**{f"{name}_out": ops.reshape(graph[name], [-1]) for name in [i.name for i in graph.inputs]})

    def stored(dtype: DType) -> np.dtype[Any]:
        return dtype.numpy if dtype.is_complex else dtype.storage.numpy

    random = np.random.default_rng(3)
    feed = {s.name: random.integers(0, 2, (5, 3)).astype(stored(s.dtype)) for s in graph.inputs}
    expected = gc.InferenceSession().load(graph)(feed)
    with gc.IsolatedSession(load_seconds=START).load(graph) as isolated:
        results = isolated(feed)
        assert isolated.inputs == {s.name: s.type for s in graph.inputs}
        assert [str(t) for t in isolated.outputs.values()] == [str(s.type) for s in graph.outputs]
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        assert result.tobytes() == wanted.tobytes()


def test_outputs_are_those_of_a_model_for_strings_lists_optionals_and_wide_integers() -> None:
    graph = Graph(
        "kinds",
        {
            "text": TensorType(DType.string, ["n"]),
            "listed": SequenceType(TensorType(DType.float32, ["k"])),
            "maybe": OptionalType(TensorType(DType.float32, ["m"])),
            "wide": TensorType(DType.int(100), ["w"]),
        },
    )
    graph.output(
        twice=ops.onnx.StringConcat(graph["text"], graph["text"]),
        longer=ops.onnx.SequenceInsert(graph["listed"], graph.constant(np.ones(3, np.float32))),
        there=ops.onnx.OptionalHasElement(graph["maybe"]),
        sum=graph["wide"] + graph["wide"],
    )
    feed = {
        "text": np.array(["", "größer", "𝄞\0x"], object),
        "listed": [np.arange(2, dtype=np.float32), np.zeros(0, np.float32)],
        "wide": [2**90, -5],
    }
    expected = gc.InferenceSession().load(graph).execute(feed, wide="object")
    with gc.IsolatedSession(load_seconds=START).load(graph) as isolated:
        results = isolated.execute(feed, wide="object")
        absent, present = isolated({**feed, "maybe": None})[2], isolated({**feed, "maybe": ONES})[2]
    assert results[0].tolist() == expected[0].tolist()
    assert [a.tolist() for a in results[1]] == [a.tolist() for a in expected[1]]
    assert (absent.item(), present.item()) == (False, True)
    assert results[3].tolist() == [2**91, -10]


@pytest.mark.full
def test_results_stay_as_they_are_when_other_calls_follow_and_the_model_is_closed() -> None:
    graph = Graph("grow", {"x": TensorType(DType.float32, ["n"])})
    graph.output(y=graph["x"] + 1, least=ops.min(graph["x"]))
    before = descriptors()
    with gc.IsolatedSession(load_seconds=START).load(graph) as isolated:
        results = [isolated(np.full(50_000 * (i % 4 + 1), i, np.float32))[0] for i in range(12)]
        slices = [array[::7] for array in results[:6]]
    for i, array in enumerate(results):
        assert array.shape == (50_000 * (i % 4 + 1),)
        assert (array == i + 1).all()
        array[:] = 0  # it is the caller's
    assert not any(part.any() for part in slices)
    assert descriptors() == before


def test_blocks_are_as_many_as_results_are_held_at_once() -> None:
    graph = Graph("grow", {"x": TensorType(DType.float32, ["n"])})
    graph.output(y=graph["x"] + 1)
    with gc.IsolatedSession(load_seconds=START).load(graph) as isolated:
        worker = isolated._pool()._places[0].worker
        assert worker is not None
        for turn in range(4):
            results = [isolated(np.full(40_000, 10 * turn + i, np.float32))[0] for i in range(8)]
            assert [array[0] for array in results] == [10 * turn + i + 1 for i in range(8)]
            assert all((array == array[0]).all() for array in results)
            del results
        assert worker._count <= 1 + 8  # the first is too small
        assert sum(not block.array.any() for block in worker._results) == 0
        isolated(np.ones(40_000, np.float32))
        assert sum(not block.array.any() for block in worker._results) == 7 - process._MAX_CACHED_BLOCKS


def test_channel_counts_as_closed_when_a_frame_came_that_was_not_asked_for() -> None:
    pairs = [socket.socketpair() for _ in range(4)]
    ours, theirs = Channel(pairs[0][0], pairs[1][0]), pairs[0][1]
    theirs.sendall(b"\x09\x01\0\0\0a")
    assert ours.receive((FrameKind.DROP,)) == (FrameKind.DROP, b"a")
    assert not ours.is_closed()
    theirs.sendall(b"\x09\x01\0\0\0a\x09\x01\0\0\0b")  # which are read together
    assert ours.receive((FrameKind.DROP,)) == (FrameKind.DROP, b"a")
    assert ours.is_closed()
    ended = Channel(pairs[2][0], pairs[3][0])
    pairs[2][1].close()
    assert ended.is_closed()
    for each in itertools.chain(*pairs):
        each.close()


def test_worker_that_takes_no_descriptors_keeps_nobody_waiting() -> None:
    with taken_over() as isolated, open(os.devnull) as file:
        worker = isolated._pool()._places[0].worker
        assert worker is not None
        with pytest.raises(Malformed, match="without taking its blocks"):
            list(map(worker._channel.send_handle, itertools.repeat(file.fileno(), 100_000)))


# Limits


def test_endless_loop_is_an_error_within_its_seconds_and_the_next_call_runs() -> None:
    with gc.IsolatedSession(run_seconds=2, load_seconds=START).load(endless()) as isolated:
        with pytest.raises(ResourceLimitError, match="run_seconds=2") as caught:
            isolated(np.array(True), ONES)
        assert caught.value.help
        assert isolated(np.array(False), ONES)[0].tolist() == [1, 1]


def test_memory_bomb_is_an_error_and_the_next_call_runs() -> None:
    with gc.IsolatedSession(memory=MEMORY, load_seconds=START).load(expanding()) as isolated:
        for count in (1 << 29, 1 << 40):
            with pytest.raises(ResourceLimitError, match=f"memory={MEMORY}"):
                isolated(np.array([count]))
        assert isolated(np.array([10]))[0] == 20


def test_load_that_takes_too_long_is_an_error() -> None:
    with pytest.raises(ResourceLimitError, match=r"load_seconds=0\.01"):
        gc.IsolatedSession(load_seconds=0.01).load(endless())


@pytest.mark.parametrize(
    "proto",
    [
        model(
            [helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=-5)],
            [value("x", FLOAT, [2, 3]), value("i", INT64, [2, 1])],
            [value("y", FLOAT, None)],
        ),
        one("Frobnicate"),
    ],
    ids=["ends onnx", "unknown"],
)
def test_model_that_cannot_be_loaded_is_a_model_error(proto: Any) -> None:
    with pytest.raises(ModelError) as caught:
        gc.IsolatedSession(memory=MEMORY, load_seconds=START).load(proto)
    assert caught.value.help


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("import os; os.abort()", RunError, "SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", RunError, "SIGSEGV"),
        ("import signal; signal.raise_signal(signal.SIGFPE)", RunError, "SIGFPE"),
        ("import os; os._exit(3)", RunError, "status 3"),
        ("bytearray(1 << 31)", ResourceLimitError, "memory"),
        ("raise ValueError('\\x1b[31mred')", RunError, r"\x1b[31mred"),
    ],
)
def test_end_of_a_worker_is_an_error_of_the_call(
    worker: Callable[[str], str], code: str, kind: type[GraphcoreError], words: str
) -> None:
    with pytest.raises(GraphcoreError) as caught:
        worker(code)
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert worker("said = 6 * 7") == "42"


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff" * 100,  # no kind
        b"\x0a\xff\xff\xff\xff",  # an error of 4 GiB
        b"\x0a\x02\0\0\0{}",  # an error without words
        b"\x0a\x04\0\0\0[[[[",
        b"\x06\x01\0\0\0\x09",  # results of no kind
        b"\x06\x0b\0\0\0\0\x0a\0" + (1 << 40).to_bytes(8, "little"),  # outside of the block
        b"\x06\x16\0\0\0" + 2 * (b"\0\x0a\0" + bytes(8)),  # a number where text is
        b"\x07\x08\0\0\0" + b"\xff" * 8,  # results of 2^64 bytes
        b"\x07\0\0\0\0",  # results of no size
        b"\x06\x05\0\0\0\x02" + b"\xff" * 4,  # a list that is longer than its frame
    ],
)
def test_answer_that_makes_no_sense_is_an_error(worker: Callable[[str], str], answer: bytes) -> None:
    with pytest.raises(RunError, match="do not trust the model"):
        worker(answering(answer))


def answering(answer: bytes) -> str:
    """Return code that writes an answer of its own and then nothing."""
    return f"""
import os, sys, time
try:
    os.write(int(sys.argv[1]), {answer!r})
finally:
    time.sleep(1000)
"""


def empty_strings(count: int) -> str:
    """Return code that answers so many empty strings: it asks for a block for their lengths, which are zeros there."""
    need = b"\x07\x08\0\0\0" + (4 * count).to_bytes(8, "little")
    text = b"\x01\x07\x01" + bytes(8) + count.to_bytes(8, "little") + b"\0\x05\x01" + bytes(16)
    wide = b"\0\x07\x01" + bytes(8) + b"\x04" + bytes(7)
    return answering(need + b"\x06" + len(text + wide).to_bytes(4, "little") + text + wide)


def test_answer_that_takes_more_memory_than_a_worker_has_is_an_error(worker: Callable[[str], str]) -> None:
    with pytest.raises(RunError, match="values that take more memory than its limit"):
        worker(empty_strings(1 << 27))


def test_reading_of_an_answer_ends_with_the_time_of_its_request() -> None:
    with taken_over(run_seconds=0.2) as isolated, pytest.raises(ResourceLimitError, match=r"run_seconds=0\.2"):
        isolated(np.array(empty_strings(1 << 25), object))


def test_answer_with_too_many_digits_is_an_error(worker: Callable[[str], str]) -> None:
    for wide in ("np.ones((1, 5), np.uint32)", "np.zeros((4, 0), np.uint32)", "np.uint32(1)"):
        with pytest.raises(RunError, match="do not trust the model"):
            worker(f"import numpy as np; wide = {wide}")


# The sandbox


def attempt(what: str) -> str:
    """Code that says "done", or the name of the error that it meets."""
    return f"""
import ctypes, fcntl, mmap, os, resource, signal, socket, subprocess, sys, time
try:
    {what}
    said = "done"
except OSError as error:
    said = error.strerror
except Exception as error:
    said = type(error).__name__
"""


CLOSED = {
    "a socket": "socket.socket()",
    "a Unix socket": "socket.socket(socket.AF_UNIX)",
    "a connection": "socket.create_connection(('127.0.0.1', 80))",
    "another program": "subprocess.run(['/bin/true'])",
    "a fork": "os.fork()",
    "a signal to its parent": "os.kill(os.getppid(), 0)",
    "memory that no limit counts": "os.memfd_create('x')",
    "the mode of a file": "os.chmod('/nowhere', 0)",
    "the owner of a file": "os.chown('/nowhere', 0, 0)",
    "the date of a file": "os.utime('/nowhere')",
    "an attribute of a file": "os.setxattr('/nowhere', 'user.a', b'')",
    "the removal of an attribute": "os.removexattr('/nowhere', 'user.a')",
    "the length of a file": "os.truncate('/nowhere', 0)",
    "the length of an open file": "os.ftruncate(0, 0)",
    "shared memory without a file": "mmap.mmap(-1, 4096)",
    "memory that grows down": "mmap.mmap(-1, 4096, flags=0x122)",
    "its priority": "os.setpriority(os.PRIO_PROCESS, 0, 5)",
    "its processors": "os.sched_setaffinity(0, {0})",
    "the name of the machine": "socket.sethostname('other')",
    "its processor time": "resource.prlimit(0, resource.RLIMIT_CPU, (-1, -1))",
    "a handler of the end of that": "signal.signal(signal.SIGXCPU, signal.SIG_IGN)",
    "a mask of signals": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXCPU})",
    "a file to write to": "os.open('/dev/null', os.O_RDWR)",
    "a file to cut": "os.open('/nowhere', os.O_TRUNC)",
    "a file to make": "os.open('/nowhere', os.O_CREAT)",
    "flags of a file": "fcntl.ioctl(0, 0x40086602, bytes(8))",
    "a signal of a descriptor to its parent": "fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
    "the size of a pipe": "fcntl.fcntl(2, 1031, 1 << 20)",
    "a descriptor for its parent": "socket.send_fds(socket.socket(fileno=os.dup(int(sys.argv[2]))), [b'x'], [0])",
    "the time": "time.clock_settime(time.CLOCK_REALTIME, 0)",
    "the limits of its parent": "resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0))",
}


@pytest.mark.parametrize("what", CLOSED.values(), ids=CLOSED)
def test_call_of_the_kernel_is_refused_to_a_worker(worker: Callable[[str], str], what: str) -> None:
    assert worker(attempt(what)) in ("Operation not permitted", "Permission denied")


def system_calls() -> dict[str, tuple[int | None, int | None]]:
    """Return the numbers, on x86-64 and on ARM, of the system calls that workers may make, some with few arguments."""
    checked: dict[str, Any] = {**sandbox._VALUES, **sandbox._BITS, **sandbox._POINTERS}
    others = {"mmap": sandbox._MMAP, "clone": sandbox._CLONE, "tgkill": sandbox._TGKILL}
    return {**sandbox.ALLOWED, **{name: row[0] for name, row in checked.items()}, **others}


def test_system_call_that_is_not_listed_is_refused(worker: Callable[[str], str]) -> None:
    listed = {numbers[[*sandbox._AUDIT].index(platform.machine())] for numbers in system_calls().values()}
    listed |= {335, 336}  # of probes, which seccomp does not see; they end a process that is not probed
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
said = []
for number in {sorted({*range(600)} - listed)}:
    libc.syscall(number, *6 * [ctypes.c_long(-1)])
    if ctypes.get_errno() not in (1, 38):  # EPERM, ENOSYS
        said.append(number)
"""
    assert worker(code) == "[]"


@pytest.mark.parametrize(
    ("column", "header"), [(0, "x86_64-linux-gnu/asm/unistd_64.h"), (1, "asm-generic/unistd.h")], ids=["x86-64", "arm"]
)
def test_numbers_of_system_calls_are_those_of_the_kernel(column: int, header: str) -> None:
    path = Path("/usr/include", header)
    if not path.exists():
        pytest.skip("there are no headers of the kernel")
    results = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\s", path.read_text())
    by_name = {{"fstatat": "newfstatat"}.get(name, name): int(number) for name, number in results}
    newest = max(by_name.values())
    for name, numbers in {**system_calls(), **sandbox._MISSING}.items():
        number = numbers[column]
        if number is None or number < newest:
            assert by_name.get(name) == number, name


@pytest.mark.parametrize("version", [0, 1, 2])
def test_files_stay_as_they_are_where_landlock_is_old_or_missing(version: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    program = f"""
import os
from graphcore.runtime.isolation import sandbox
sandbox.version = lambda: {version}
had = sandbox.protections().missing
missing = [*sandbox.set_limits(1 << 30, os.getppid()), *sandbox.restrict_files(["/"]), *sandbox.restrict_calls()]
for change in (
    lambda: os.open("file", os.O_TRUNC),
    lambda: os.open("file", os.O_WRONLY),
    lambda: os.open("new", os.O_CREAT),
    lambda: os.truncate("file", 0),
    lambda: os.rename("file", "other"),
    lambda: os.link("file", "other"),
    lambda: os.symlink("file", "other"),
    lambda: os.unlink("file"),
    lambda: os.mkdir("other"),
    lambda: os.chmod("file", 0),
):
    try:
        change()
    except PermissionError:
        continue
    print("a change is not refused")
print(open("file").read(), missing, had)
"""
    path = os.pathsep.join([os.getcwd(), *sys.path])
    run = [sys.executable, "-c", program]
    result = subprocess.run(run, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    gone = (["files (no Landlock)"], ("files",)) if not version else ([], ())
    assert result.stdout == f"kept {gone[0]} {gone[1]}\n", result.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not sandbox.version(), reason="the kernel has no Landlock")
def test_files_outside_of_the_model_are_closed_to_a_worker(worker: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    closed = {
        f"open({str(tmp_path / 'secret')!r})",
        f"os.listdir({str(tmp_path)!r})",
        f"open({str(tmp_path / 'new')!r}, 'w')",
        f"os.unlink({str(tmp_path / 'secret')!r})",
        "open('/etc/passwd')",
        "open(f'/proc/{os.getppid()}/environ')",
        "open('/tmp/of-a-worker', 'w')",
        "open('/dev/shm/of-a-worker', 'w')",
    }
    for what in closed:
        assert worker(attempt(what)) in ("Operation not permitted", "Permission denied"), what
    assert worker(attempt("open(os.__file__)")) == "done"


@pytest.mark.skipif(not sandbox.version(), reason="the kernel has no Landlock")
def test_model_in_a_file_reads_the_data_beside_it(tmp_path: Path) -> None:
    graph = Graph("weighty", {"x": TensorType(DType.float32, [64])})
    graph.output(y=graph["x"] + graph.constant(np.arange(64, dtype=np.float32), name="w"))
    (tmp_path / "real").mkdir()
    graph.export(tmp_path / "real" / "m.onnx", external_data=True)
    (tmp_path / "link.onnx").symlink_to(tmp_path / "real" / "m.onnx")
    with gc.IsolatedSession(load_seconds=START).load(tmp_path / "real" / "m.onnx") as isolated:
        assert isolated(np.ones(64, np.float32))[0].tolist() == list(range(1, 65))
    with pytest.raises(GraphcoreError):
        gc.IsolatedSession(load_seconds=START).load(tmp_path / "gone.onnx")


def test_worker_sees_neither_the_environment_nor_descriptors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    with open(tmp_path / "open", "wb") as file:
        os.set_inheritable(file.fileno(), True)
        with taken_over() as isolated:

            def output_of(code: str) -> str:
                return str(isolated(np.array(code, object))[0])

            names = output_of("import os; said = ' '.join(os.environ)").split()
            assert "AWS_SECRET_ACCESS_KEY" not in names
            assert "ORT_DISABLE_TELEMETRY" in names
            opened = Path(f"/proc/{isolated.processes[0]}/fd")
            targets = [os.readlink(handle).partition(":")[0] for handle in opened.iterdir()]
            assert sorted(targets) == ["/dev/null", "/dev/null", "pipe", "socket", "socket"]
            status = Path(f"/proc/{isolated.processes[0]}/status").read_text()
            assert "NoNewPrivs:\t1" in status
            assert "Seccomp:\t2" in status
            assert "CapBnd:\t" + 16 * "0" in status or os.getuid()
            assert "CapEff:\t" + 16 * "0" in status


def test_error_names_the_call_that_was_refused(worker: Callable[[str], str]) -> None:
    with pytest.raises(RunError) as caught:
        worker("import socket; socket.socket()")
    assert "system call" in caught.value.help
    assert "socket.py:" in caught.value.help
    assert caught.value.help in str(caught.value)
    with pytest.raises(RunError) as caught:  # of a library, which has no line
        worker("raise RuntimeError('mbind: Operation not permitted')")
    assert "system call" in caught.value.help


def test_tables_of_pages_are_bounded(worker: Callable[[str], str]) -> None:
    what = "mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)"
    assert worker(attempt(what)) == "Cannot allocate memory"


def test_processor_time_is_set_by_the_parent_for_each_request() -> None:
    with taken_over() as isolated:
        (process,) = isolated.processes

        def until() -> float:
            return resource.prlimit(process, resource.RLIMIT_CPU)[0]

        assert until() > 0
        place = isolated._pool()._places[0]
        assert place.worker is not None
        place.worker._time.until = 0.0
        resource.prlimit(process, resource.RLIMIT_CPU, (1000, -1))
        assert isolated(np.array("said = 1", object))[0] == "1"
        assert until() == place.worker._time.until > 0
        assert until() != 1000


@pytest.mark.full
def test_processor_time_ends_a_worker_that_nobody_watches() -> None:
    code = """
import contextlib, ctypes, resource, signal
for attempt in (
    lambda: signal.signal(signal.SIGXCPU, signal.SIG_IGN),
    lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXCPU}),
    lambda: resource.prlimit(0, resource.RLIMIT_CPU, (-1, -1)),
    lambda: ctypes.CDLL(None).setrlimit(0, (ctypes.c_long * 2)(-1, -1)),
    lambda: ctypes.CDLL(None).syscall(15),
):
    with contextlib.suppress(OSError):
        attempt()
while True:
    pass
"""
    with taken_over() as isolated:
        (process,) = isolated.processes
        used = time.clock_gettime(~process << 3 | 2)
        resource.prlimit(process, resource.RLIMIT_CPU, (int(used) + 1, -1))
        with pytest.raises(ResourceLimitError, match="run_seconds"):
            isolated(np.array(code, object))


def test_worker_outlives_its_parent_by_no_call(worker: Callable[[str], str]) -> None:
    code = "libc = ctypes.CDLL(None, use_errno=True); libc.prctl(1, 0, 0, 0, 0); error = ctypes.get_errno()"
    assert worker(attempt(f"{code}; raise OSError(error, os.strerror(error))")) == "Operation not permitted"


def test_protections_are_told_and_may_be_required(monkeypatch: pytest.MonkeyPatch) -> None:
    result = gc.IsolatedSession().protections
    assert result.files == (sandbox.version() > 0)
    assert result.memory
    monkeypatch.setattr(sandbox, "version", lambda: 0)
    assert gc.IsolatedSession().protections.missing == ("files", *result.missing)
    with pytest.raises(GraphError, match="workers on this machine lack: files"):
        gc.IsolatedSession(require="full")
    with pytest.raises(GraphError, match=r"require must be .* got 'some'"):
        gc.IsolatedSession(require="some")  # type: ignore[arg-type]


def test_missing_protections_are_named_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        process._warn(("files (no Landlock)", "a protection of a test"))
    assert [record.getMessage() for record in caplog.records] == [
        "IsolatedSession: workers run here without protection of files (no Landlock); a protection of a test"
    ]


# Processes


def shared_files(process: int) -> set[str]:
    """Return the files of shared memory that a process has mapped or open."""
    targets = [line.partition("/dev/shm/") for line in Path(f"/proc/{process}/maps").read_text().splitlines()]
    for handle in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            targets.append(os.readlink(handle).partition("/dev/shm/"))
    return {f"/dev/shm/{name}" for _, mark, name in targets if mark}


def test_shared_memory_is_found_by_process() -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        assert file.name in shared_files(os.getpid())
    assert file.name not in shared_files(os.getpid())


@pytest.mark.full
def test_other_requests_are_not_affected_when_a_worker_is_killed() -> None:
    graph = Graph("busy", {"x": TensorType(DType.float32, ["n", "n"])})
    total = graph["x"]
    for _ in range(10):
        total = ops.tanh(total @ graph["x"])
    graph.output(y=total)
    x = np.random.default_rng(1).standard_normal((200, 200)).astype(np.float32)
    before, shared = descriptors(), shared_files(os.getpid())
    opened: set[str] = set()
    with gc.IsolatedSession(workers=2, load_seconds=START, intra_op_num_threads=1).load(graph) as isolated:
        expected = isolated(x)[0]
        seen = set(isolated.processes)
        outcomes: list[str] = []

        def call(_: int) -> None:
            try:
                assert (isolated(x)[0] == expected).all()
                outcomes.append("right")
            except RunError as error:
                outcomes.append("killed" if "SIGKILL" in str(error) else str(error))

        with ThreadPoolExecutor(8) as threads:
            calls = [threads.submit(call, i) for i in range(64)]
            for _ in range(3):
                time.sleep(0.05)
                for process in isolated.processes[:1]:
                    opened |= shared_files(process)
                    os.kill(process, signal.SIGKILL)
                    seen.add(process)
            for each in calls:
                each.result()
        assert len(outcomes) == 64
        assert outcomes.count("right") >= 61
        assert {*outcomes} <= {"right", "killed"}
        assert (isolated(x)[0] == expected).all()
        seen |= {*isolated.processes}
        opened = opened.union(*map(shared_files, (os.getpid(), *isolated.processes))) - shared
    assert isolated.processes == []
    check_gone(*seen)
    assert descriptors() == before
    assert not [path for path in opened if os.path.exists(path)]


def test_worker_ended_while_it_waits_is_replaced(worker: Callable[[str], str]) -> None:
    process = int(worker("import os; said = os.getpid()"))
    os.kill(process, signal.SIGKILL)
    until(lambda: has_ended(process))
    assert int(worker("import os; said = os.getpid()")) != process


def test_interrupt_ends_the_run_and_the_model_stays_usable() -> None:
    with gc.IsolatedSession(load_seconds=START).load(endless()) as isolated:
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT))

        def call() -> None:
            timer.start()
            isolated(np.array(True), ONES)

        with pytest.raises(KeyboardInterrupt):
            call()
        timer.join()
        assert isolated(np.array(False), ONES)[0].tolist() == [1, 1]


def test_close_waits_for_calls_and_refuses_others() -> None:
    with gc.IsolatedSession(load_seconds=START).load(endless()) as isolated:
        futures = [isolated.run_async(np.array(False), ONES * i) for i in range(5)]
        processes = isolated.processes
    assert [future.result()[0].tolist() for future in futures] == [[i, i] for i in range(5)]
    check_gone(*processes)
    isolated.close()
    with pytest.raises(RunError, match="closed"):
        isolated(np.array(False), ONES)


@pytest.mark.full
def test_fork_has_workers_of_its_own() -> None:
    with gc.IsolatedSession(load_seconds=START).load(endless()) as isolated:
        ours = isolated.processes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forks beside threads
            child = os.fork()
        if child == 0:
            status = 1
            try:
                is_right = isolated(np.array(False), ONES)[0].tolist() == [1, 1] and isolated.processes != ours
                isolated.close()
                status = 0 if is_right else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert isolated.processes == ours
        assert isolated(np.array(False), ONES)[0].tolist() == [1, 1]


@pytest.mark.full
def test_worker_ends_with_its_parent_and_not_with_a_thread() -> None:
    program = f"""
import threading, time
import numpy as np
from tests.security.test_isolation import *
made = []
if __name__ == "__main__":
    thread = threading.Thread(target=lambda: made.append(gc.IsolatedSession(load_seconds={START}).load(endless())))
    thread.start()
    thread.join()
    made[0](np.array(False), ONES)
    print(made[0].processes[0], flush=True)
    made[0](np.array(True), ONES)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    started = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment)
    with started:
        assert started.stdout is not None
        process = int(started.stdout.readline())
        time.sleep(0.5)
        assert Path(f"/proc/{process}").exists()
        started.kill()
    check_gone(process)


# Arguments


def test_feed_that_does_not_fit_is_refused_before_it_goes_to_a_worker() -> None:
    with gc.IsolatedSession(load_seconds=START).load(endless()) as isolated:
        with pytest.raises(FeedError, match="float32"):
            isolated(np.array(True), ONES.astype(np.float64))
        with pytest.raises(FeedError, match="no output"):
            isolated.run(["z"], {"more": np.array(False), "x": ONES})
        assert isolated.run(["y"], {"more": np.array(False), "x": ONES})[0].tolist() == [1, 1]
        with pytest.raises(ModelError, match="cannot be copied or pickled"):
            pickle.dumps(isolated)


@pytest.mark.parametrize(
    "arguments",
    [
        {"memory": 1},
        {"memory": "1G"},
        {"load_seconds": 0},
        {"run_seconds": -1},
        {"run_seconds": "1"},
        {"workers": 0},
        {"providers": "cuda"},
        {"providers": ["CUDAExecutionProvider", "cpu"]},
        {"config": {"x": object()}},
    ],
)
def test_session_refuses_arguments_that_make_no_sense(arguments: dict[str, Any]) -> None:
    with pytest.raises(GraphError) as caught:
        gc.IsolatedSession(**arguments)
    assert caught.value.help
