"""Starting worker processes: with nothing of the parent's but one socket, and an environment of a few names."""

from __future__ import annotations

import importlib.util
import os
import queue
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache

from graphcore._version import FOLDER
from graphcore.errors import RunError, RunTimeoutError

_KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OMP_NUM_THREADS", "TZ")
"""Names of the environment that a worker sees too."""
_PACKAGES = ("numpy", "ml_dtypes", "onnx", "onnxruntime", "google.protobuf", "typing_extensions")
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/etc/localtime", "/proc/self"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system", "/dev/null", "/dev/urandom"),
)
_ROOMS = ("ops", "runtime", "models", "array_api")


@dataclass(frozen=True, slots=True)
class Started:
    """A process, the sockets to it, and where its last words are read."""

    process: subprocess.Popen[bytes]
    frames: socket.socket
    descriptors: socket.socket
    words: int


def start() -> Started:
    """Start a worker process, which waits for its settings. Raises `RunError` where that cannot be."""
    if not sys.executable or not hasattr(socket, "send_fds"):
        raise RunError(
            "IsolatedSession: this platform starts no workers: they need a Python executable and Unix sockets",
            help="run it on Linux or macOS, or in a container",
        )
    made: Future[Started] = Future()
    _starter().put(made)
    return made.result()


class _Starter:
    """A thread that lives as long as the process, and starts all workers.

    The kernel ends a worker when the *thread* that started it ends, and threads of users end early.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.asked: queue.SimpleQueue[Future[Started]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="graphcore starts workers", daemon=True).start()

    def _work(self) -> None:
        while True:
            made = self.asked.get()
            try:
                made.set_result(_start())
            except OSError as error:
                made.set_exception(
                    RunError(
                        f"IsolatedSession: no worker starts: {error.strerror}",
                        help="end other processes, or ask for fewer",
                    )
                )
            except BaseException as error:
                made.set_exception(error)


_known: _Starter | None = None


def _starter() -> queue.SimpleQueue[Future[Started]]:
    global _known
    if _known is None or _known.process != os.getpid():  # a fork has none of the threads
        _known = _Starter()
    return _known.asked


def _start() -> Started:
    pairs = socket.socketpair(), socket.socketpair()
    (frames, descriptors), theirs = zip(*pairs, strict=True)
    handles = [end.fileno() for end in theirs]
    words, writes = os.pipe()
    try:
        descriptors.setblocking(False)  # a worker that takes none keeps nobody waiting
        for handle in (words, writes):  # a worker that says much is not kept waiting, and takes no memory by it
            os.set_blocking(handle, False)
        process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-S", "-B", "-m", "graphcore.runtime.isolation.worker", *map(str, handles)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=writes,
            pass_fds=handles,
            close_fds=True,
            cwd="/",
            env=_environment(),
            start_new_session=True,  # Ctrl-C is the parent's
        )
    except BaseException:
        frames.close()
        descriptors.close()
        os.close(words)
        raise
    finally:
        for end in theirs:
            end.close()
        os.close(writes)
    return Started(process, frames, descriptors, words)


def _environment() -> dict[str, str]:
    """Return the environment of a worker."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    folders = [os.path.dirname(FOLDER), *(os.path.abspath(path) for path in sys.path if path)]
    return kept | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders)),
        "PYTHONUTF8": "1",
        "ORT_DISABLE_TELEMETRY": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


@cache
def libraries() -> tuple[str, ...]:
    """Return the files and folders that a worker reads its libraries from."""
    paths = sysconfig.get_paths()
    found = {paths["stdlib"], paths["platstdlib"], sysconfig.get_config_var("LIBDIR") or paths["stdlib"]}
    found |= {FOLDER, *(os.path.join(FOLDER, room) for room in _ROOMS)}
    found |= {os.path.join(os.path.dirname(FOLDER), room) for room in _ROOMS if not _is_in(room)}
    found |= {path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")}
    for name in _PACKAGES:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        for folder in () if spec is None else spec.submodule_search_locations or (spec.origin or "",):
            found |= {folder, f"{folder}.libs"}
    found |= {path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path}
    return (*_SYSTEM, *sorted(os.path.abspath(path) for path in found if path))


def _is_in(room: str) -> bool:
    return os.path.exists(os.path.join(FOLDER, room))


# The time that one call of an isolated model may take.


class Timeout:
    """Seconds of a call, which began when this was made."""

    __slots__ = ("deadline", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Return True if the time is over."""
        return time.monotonic() >= self.deadline

    def left(self, name: str) -> float:
        """Return the seconds that are left. name: of the model. Raises `RunTimeoutError` where there are none."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise self.over(name)
        return left

    def over(self, name: str, is_ended: bool = False) -> RunTimeoutError:
        """Return the error of a call whose time is over. is_ended: with its worker, which did not stop by itself."""
        stopped = "; its worker was ended" if is_ended else ""
        return RunTimeoutError(
            f"{name}: a run was stopped after timeout={self.seconds:g} seconds{stopped}",
            help="give it more time, or the session more workers: the wait for a free one counts",
        )
