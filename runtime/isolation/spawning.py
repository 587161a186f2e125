"""Start worker processes with two sockets to the parent and a minimal environment."""

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
from typing import TYPE_CHECKING

from graphcore._version import FOLDER, PACKAGES
from graphcore.errors import RunError, RunTimeoutError

if TYPE_CHECKING:
    from graphcore.arrays.external_data import ExternalData

_INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OMP_NUM_THREADS", "TZ")
"""Environment variables that a worker inherits."""
_PACKAGES = ("numpy", "ml_dtypes", "onnx", "onnxruntime", "google.protobuf", "typing_extensions")
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/etc/localtime", "/proc/self"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system", "/dev/null", "/dev/urandom"),
)


@dataclass(frozen=True, slots=True)
class StartedWorker:
    """A process, the sockets to it, and the descriptor of its stderr."""

    process: subprocess.Popen[bytes]
    frames: socket.socket
    descriptors: socket.socket
    words: int


def start() -> StartedWorker:
    """Start a worker process, which waits for its settings. Raises `RunError` if that fails."""
    if not sys.executable or not hasattr(socket, "send_fds"):
        raise RunError(
            "IsolatedSession: workers cannot start on this platform: they need a Python executable and Unix sockets",
            help="run it on Linux or macOS, or in a container",
        )
    future: Future[StartedWorker] = Future()
    _starter().put(future)
    return future.result()


class _StarterThread:
    """A thread that lives as long as the process, and starts all workers.

    The kernel ends a worker when the *thread* that started it ends, and threads of users may end early.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.requests: queue.SimpleQueue[Future[StartedWorker]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="graphcore starts workers", daemon=True).start()

    def _work(self) -> None:
        while True:
            future = self.requests.get()
            try:
                future.set_result(_start())
            except OSError as error:
                future.set_exception(
                    RunError(
                        f"IsolatedSession: a worker cannot be started: {error.strerror}",
                        help="end other processes, or use fewer workers",
                    )
                )
            except BaseException as error:
                future.set_exception(error)


_starter_thread: _StarterThread | None = None


def _starter() -> queue.SimpleQueue[Future[StartedWorker]]:
    global _starter_thread
    if _starter_thread is None or _starter_thread.process != os.getpid():  # a forked process has none of the threads
        _starter_thread = _StarterThread()
    return _starter_thread.requests


def _start() -> StartedWorker:
    pairs = socket.socketpair(), socket.socketpair()
    (frames, descriptors), theirs = zip(*pairs, strict=True)
    handles = [end.fileno() for end in theirs]
    words, writes = os.pipe()
    try:
        descriptors.setblocking(False)  # a worker that does not receive descriptors must not block the parent
        for handle in (words, writes):  # much output must not block the worker, or use memory
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
            start_new_session=True,  # only the parent gets Ctrl-C
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
    return StartedWorker(process, frames, descriptors, words)


def _environment() -> dict[str, str]:
    """Return the environment of a worker."""
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    if sys.pycache_prefix:  # modules that are compiled already take a third of the time
        environment["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    folders = [os.path.dirname(FOLDER), *(os.path.abspath(path) for path in sys.path if path)]
    return environment | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders)),
        "PYTHONUTF8": "1",
        "ORT_DISABLE_TELEMETRY": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


@cache
def libraries() -> tuple[str, ...]:
    """Return the files and folders of the libraries of a worker."""
    paths = sysconfig.get_paths()
    readable = {paths["stdlib"], paths["platstdlib"], sysconfig.get_config_var("LIBDIR") or paths["stdlib"]}
    readable |= {FOLDER, *PACKAGES.values()}
    readable |= {path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")}
    for name in _PACKAGES:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        for folder in () if spec is None else spec.submodule_search_locations or (spec.origin or "",):
            readable |= {folder, f"{folder}.libs"}
    readable |= {sys.pycache_prefix or "", *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)}
    return (*_SYSTEM, *sorted(os.path.abspath(path) for path in readable if path))


def readable(path: str, external_data: ExternalData, root: str | None) -> tuple[str, ...]:
    """Return the folders and files that a worker needs for the model in a file."""
    paths = [os.path.dirname(path), os.path.realpath(path)]
    if root is not None:
        paths.append(root)
    elif external_data == "links":  # the layout of Hugging Face's cache: REPOSITORY/snapshots/REVISION/model.onnx
        before, is_there, _ = path.rpartition(f"{os.sep}snapshots{os.sep}")
        paths += [before] if is_there else []
    return tuple(paths)


# The time limit of a call of an isolated model.


class Timeout:
    """Seconds of a call, which start when this is created."""

    __slots__ = ("deadline", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.deadline

    def remaining(self, name: str) -> float:
        """Return the remaining seconds. name: of the model. Raises `RunTimeoutError` if there are none."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise self.over(name)
        return seconds

    def over(self, name: str, is_ended: bool = False) -> RunTimeoutError:
        """Return the error of a call whose time is over. is_ended: whether its worker did not stop, and was ended."""
        stopped = "; its worker was ended" if is_ended else ""
        return RunTimeoutError(
            f"{name}: a run was stopped after timeout={self.seconds:g} seconds{stopped}",
            help="give it more time, or the session more workers: the wait for a free one counts",
        )
