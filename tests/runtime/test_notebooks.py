"""In notebooks: lines of cells, bars below cells, and Ctrl-C, with a stand-in for IPython; with IPython where it is
installed."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Graph, TensorType
from graphcore.errors import ShapeError
from graphcore.support import progress
from graphcore.support.source_lines import Line

CELL = "/tmp/ipykernel_12/345.py"
"""The path of the code of a cell, as ipykernel names it."""


class Displays:
    """IPython.display, which records what it shows."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Displays:
        assert raw
        assert display_id
        self.update(data, raw=True)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data)


@pytest.fixture
def displays(monkeypatch: pytest.MonkeyPatch) -> Displays:
    """A notebook whose third cell has the path `CELL`."""
    result = Displays()
    names = {CELL: ("Cell", "In[3]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=names.get), kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=result))
    return result


def test_error_names_the_cell(displays: Displays, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "x = g['x']\n\ny = x * 2\n\nz = y @ other\n"
    monkeypatch.setitem(linecache.cache, CELL, (len(source), None, source.splitlines(keepends=True), CELL))
    graph = Graph("g", {"x": TensorType("float32", ["n", 3])})
    scope: dict[str, Any] = {"g": graph, "other": np.ones((4, 2), np.float32)}
    with pytest.raises(ShapeError) as raised:
        exec(compile(source, CELL, "exec"), scope)
    text = str(raised.value)
    assert "    lhs  mul_2   float32[n, 3]   Cell In[3], line 3\n" in text
    assert text.endswith("\n  at Cell In[3], line 5   z = y @ other")
    assert "# Cell In[3], line 3" in str(graph)
    assert str(Line(__file__, 7)) == "test_notebooks.py:7"


def test_line_has_the_file_name_when_ipython_does_not_name_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    for shell in (None, SimpleNamespace(), SimpleNamespace(compile=SimpleNamespace())):
        ipython: Any = SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        assert str(Line(CELL, 5)) == "345.py:5"
    monkeypatch.delitem(sys.modules, "IPython")
    assert str(Line(CELL, 5)) == "345.py:5"


def test_ipython_names_the_cell() -> None:
    pytest.importorskip("IPython", reason="IPython is not installed")
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import graphcore as gc\\nfrom graphcore import Graph, TensorType", store_history=True)
result = shell.run_cell("g = Graph('g', {'x': TensorType('float32', [2, 3])})\\ng['x'] @ g['x']", store_history=True)
print(str(result.error_in_exec).splitlines()[-1])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "  at Cell In[2], line 2   g['x'] @ g['x']"


@pytest.mark.parametrize(
    ("total", "text", "bar"),
    [(4, "4/4 <items>", '<progress value="4" max="4"></progress> 4/4'), (None, "4 <items>", "<div>4")],
)
def test_progress_is_a_bar_below_the_cell(
    displays: Displays,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    total: int | None,
    text: str,
    bar: str,
) -> None:
    monkeypatch.setattr(progress, "_INTERVAL", -1.0)
    line = progress.Progress(total, "<items>")
    for done in range(1, 5):
        line.show(done)
    line.close()
    assert displays.shown[0] == {"text/plain": ""}
    assert len(displays.shown) == 6
    assert displays.shown[-1]["text/plain"].startswith(text)
    assert bar in displays.shown[-1]["text/html"]
    assert "&lt;items&gt;" in displays.shown[-1]["text/html"]
    assert capsys.readouterr().err == ""


def test_progress_of_a_map_is_shown_in_a_notebook(displays: Displays) -> None:
    graph = Graph("g", {"x": TensorType("float32", ["n", 2])})
    graph.output(y=graph["x"] + 1)
    list(gc.InferenceSession().load(graph).map(np.ones((6, 2), np.float32), progress=True))
    assert "6/6 items" in displays.shown[-1]["text/plain"]


def test_progress_in_a_terminal_of_ipython_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = SimpleNamespace(compile=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    line = progress.Progress(2, "items")
    line.show(2)
    line.close()
    assert capsys.readouterr().err.startswith("\r[========================] 2/2 items")


# Ctrl-C

CELLS = """
import os, signal
import numpy as np
import graphcore as gc
from graphcore import Graph, TensorType
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a kernel that is idle

def cell(call):  # as a kernel runs one, with Python's own handler
    saved = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        signal.signal(signal.SIGINT, saved)

graph = Graph("g", {"x": TensorType("float32", ["n", 64])})
weights = [np.full((64, 64), i, np.float32) for i in range(4)]
y = graph["x"]
for i, weight in enumerate(weights):
    y = y @ graph.weight(f"w{i}", weight)
graph.output(y=y)

def interrupt(done, total):
    print("at", 0 < done <= total)
    os.kill(os.getpid(), signal.SIGINT)

data = {"external_data": True, "target": "onnx"}
cell(lambda: graph.export("g.onnx", progress=interrupt, **data))
print(sorted(os.listdir()))
cell(lambda: gc.quantize(graph, progress=interrupt))
graph.export("g.onnx", **data)
before = open("g.onnx", "rb").read(), open("g.onnx.data", "rb").read()
other = graph.rename({"x": "z"})
cell(lambda: other.export("g.onnx", progress=interrupt, **data))
print(sorted(os.listdir()), before == (open("g.onnx", "rb").read(), open("g.onnx.data", "rb").read()))
quantized, report = gc.quantize(graph)
print(len(report.quantized), gc.InferenceSession().load(graph)(np.ones((1, 64), np.float32))[0].shape)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupt_leaves_no_file_and_a_usable_session(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(gc.__file__).parents[1])}
    run = subprocess.run(
        [sys.executable, "-c", CELLS], cwd=tmp_path, capture_output=True, text=True, env=environment, check=True
    )
    files = "['g.onnx', 'g.onnx.data']"
    lines = run.stdout.splitlines()
    assert [line for line in lines if not line.startswith("at")] == [
        "interrupted", "[]", "interrupted", "interrupted", f"{files} True", "4 (1, 64)",
    ]  # fmt: skip
    assert "at True" in lines
