"""What Windows lacks is not needed: the package works, or says what does not, without fcntl, poll, /proc and the like.

The process of these tests is Linux without what Windows does not have; a path is still one of Linux.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WINDOWS = """
import asyncio, builtins, concurrent.futures, ctypes, io, mmap, multiprocessing, os, platform, select, selectors, signal
import socket, subprocess, sys, tempfile, uuid, webbrowser
import numpy, ml_dtypes, onnx, onnxruntime

for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for module, names in (
    (os, "fork register_at_fork geteuid getuid uname O_NOFOLLOW O_NONBLOCK memfd_create sched_getaffinity set_blocking"
         " statvfs pread fchmod mkfifo killpg setsid ST_RDONLY"),
    (select, "poll epoll"),
    (selectors, "PollSelector EpollSelector"),
    (socket, "send_fds recv_fds"),
    (signal, "SIGXCPU SIGKILL pthread_sigmask setitimer"),
    (mmap, "MADV_NOHUGEPAGE MADV_DONTNEED MADV_REMOVE MAP_PRIVATE MAP_ANONYMOUS MAP_SHARED PROT_READ PROT_WRITE"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
selectors.DefaultSelector = selectors.SelectSelector
sys.platform = "win32"
platform.system = lambda: "Windows"
os.supports_dir_fd = set()

os_open, os_replace, file_open, Library = os.open, os.replace, builtins.open, ctypes.CDLL

def opened(path, flags, mode=0o777, *, dir_fd=None):
    if os.path.isdir(path) or dir_fd is not None:
        raise PermissionError(13, "Permission denied", path)
    return os_open(path, flags, mode)

def replaced(source, target):
    with file_open("/proc/self/maps") as maps:
        if os.path.realpath(target) in maps.read():
            raise PermissionError(13, "Access is denied", target)
    os_replace(source, target)

def without_proc(path, *args, **options):
    if str(path).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "No such file or directory", path)
    return file_open(path, *args, **options)

def library(name, *args, **options):
    if name is None:
        raise TypeError("bad argument type for built-in operation")
    return Library(name, *args, **options)

def waited(self, timeout=None):  # select takes sockets alone
    import stat
    assert all(stat.S_ISSOCK(os.fstat(key.fd).st_mode) for key in self.get_map().values())
    return select_of(self, timeout)

select_of = selectors.SelectSelector.select
selectors.SelectSelector.select = waited
os.open, os.replace, builtins.open, io.open, ctypes.CDLL = opened, replaced, without_proc, without_proc, library
"""

START = """
import warnings
import numpy as np
import graphcore as gc
from graphcore import Graph, InferenceSession, TensorType, ops

def net(size=64):
    graph = Graph("net", {"x": TensorType("float32", ["n", size])})
    weight = graph.weight("w", np.eye(size, dtype=np.float32))
    graph.output(y=ops.relu(graph["x"] @ weight))
    return graph

x = np.arange(-32, 32, dtype=np.float32)[None]
y = np.maximum(x, 0).tolist()
"""


def run(code: str, folder: Path) -> list[str]:
    """Run code on the simulated system; return the lines that it prints."""
    (folder / "program.py").write_text(f"{WINDOWS}\nsys.path.insert(0, {str(ROOT)!r})\n{START}\n{code}")
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_graphs_run_and_files_are_written_and_read(tmp_path: Path) -> None:
    code = """
assert InferenceSession().load(net())(x)[0].tolist() == y
net().export("m.onnx", external_data=True)
net().export("m.onnx", external_data=True)
for _ in range(2):
    assert InferenceSession().load("m.onnx", cache_dir="cache")(x)[0].tolist() == y
graph = Graph.load("m.onnx")
graph.save_html("m.html")
assert gc.jit(lambda a: a + 1)(x).tolist() == (x + 1).tolist()
gc.save_tensors("t.safetensors", {"x": x})
assert gc.load_tensors("t.safetensors")["x"].tolist() == x.tolist()
try:
    graph.export("m.onnx", external_data=True)
except gc.errors.ExportError as error:
    print(error.summary, error.help, sep="\\n")
os.symlink(".", "linked")
assert Graph.load("linked/m.onnx").nodes
os.rename("m.onnx.data", "elsewhere")
os.symlink("elsewhere", "m.onnx.data")
try:
    Graph.load("m.onnx")
except gc.errors.UnsafePathError as error:
    print(error.summary)
"""
    assert run(code, tmp_path) == [
        "export: m.onnx cannot be written: Access is denied",
        "Windows replaces no open file: choose another path, or drop the graphs and models loaded from it",
        "load: tensor 'w' lies in 'm.onnx.data', and a symbolic link is on the way",
    ]


def test_runs_end_at_deadlines(tmp_path: Path) -> None:
    code = """
graph = Graph("endless", {"x": TensorType("float32", [])})
graph.output(ops.while_loop(lambda x: x >= 0, lambda x: x * 0, graph["x"]))
model = InferenceSession().load(graph)
try:
    model(np.float32(1), timeout=0.3)
except gc.errors.RunTimeoutError:
    print("ended")
"""
    assert run(code, tmp_path) == ["ended"]


def test_doctor_reports_and_the_sandbox_says_that_it_needs_another_system(tmp_path: Path) -> None:
    code = """
from graphcore.runtime.doctor import report
result = report()
print(result.runs, result.machine.system.split()[0])
print(*[f.text for f in result.findings if "could not be checked" in f.text])
try:
    gc.IsolatedSession().load(net())
except gc.errors.RunError as error:
    print(error.summary)
"""
    lines = run(code, tmp_path)
    assert lines[:2] == ["True Windows", ""]
    assert lines[2].startswith("IsolatedSession: workers cannot start on this platform")


@pytest.mark.full
def test_every_module_is_imported(tmp_path: Path) -> None:
    code = """
import importlib
sys.modules["ray"] = sys.modules["tritonclient"] = None  # their own modules read sys.platform
from docs.imports import modules
for name in sorted(modules()):
    if name != "runtime.isolation.worker" and not name.startswith("scale.batch") and "__main__" not in name:
        try:
            importlib.import_module(f"graphcore.{name}".rstrip("."))
        except ImportError as error:
            assert "graphcore" not in str(error.name), error
"""
    assert run(code, tmp_path) == []
