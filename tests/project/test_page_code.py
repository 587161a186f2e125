"""The code of how-to pages runs as it is printed; fragments have their operands from a prelude here."""

from __future__ import annotations

import ast
import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

_SYMBOLS = """
import numpy as np
import graphcore as gc
from graphcore import Graph, TensorType, ops
"""

PROGRAMS = (
    *("array_api", "buffers", "checkpoints", "doctor", "functions", "isolation", "onnx", "quantization", "running"),
    *("tensors", "view"),
)

FRAGMENTS = {
    "control": """
g = Graph("g", {"x": TensorType("float32", [3]), "n": TensorType("int64", []), "rows": TensorType("float32", ["r", 3])})
x, n, rows = g.inputs
""",
    "files": """
graph = Graph("g", {"x": TensorType("float32", ["n"])})
graph.output(y=graph["x"] + 1)
""",
    "numbers": "g = Graph('g', [])",
    "passes": """
graph = Graph("g", {"x": TensorType("float32", ["n", 2])})
graph.output(y=graph["x"] @ graph.weight("head.w", np.eye(2, dtype=np.float32)))
""",
    "random": """
shapes = {"p": ["batch", 4], "logits": ["batch", 10], "x": ["batch", 4]}
g = Graph("g", {k: TensorType("float32", s) for k, s in shapes.items()} | {"seed": TensorType("int64", [])})
p, logits, x, seed = g.inputs
""",
    "sequences": """
g = Graph("g", {"x": TensorType("float32", [6, 2]), "n": TensorType("int64", [])})
x, n = g.inputs
""",
}


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PROGRAMS)
def test_code_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(blocks(page), {})


@pytest.mark.parametrize("page", FRAGMENTS)
def test_fragments_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    exec(_SYMBOLS + FRAGMENTS[page], namespace)
    with namespace.get("g", contextlib.nullcontext()):
        run(blocks(page), namespace)


def run(parts: list[str], namespace: dict[str, Any]) -> None:
    """Run a page; the value of an expression is what a comment beside it says, where that is a Tensor or an Array."""
    code = "\n".join(parts)
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        source = ast.unparse(statement)
        if not isinstance(statement, ast.Expr):
            exec(source, namespace)
            continue
        value = eval(source, namespace)
        message = lines[statement.lineno - 1].partition("  # ")[2]
        if message.startswith(("Tensor(", "Array(")) and not source.startswith("print("):
            assert repr(value) == message
