"""Run the Python code of one page in a clean interpreter: `python -m tests.project.page_runner docs/start/tour.md`."""

from __future__ import annotations

import ast
import linecache
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from graphcore.errors import GraphcoreError

_BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
_NEEDS = re.compile(r"# Needs (a GPU|OpenVINO|onnx-ir|PyTorch|JAX|the network|a Ray cluster|files of your own)\b")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the Python blocks of a page and the text blocks, which show their output, in order."""
    return [(kind, block) for kind, block in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def is_run(block: str) -> bool:
    """Return False for a Python block whose first line says that it needs something that tests do not have."""
    return _NEEDS.match(block) is None


def expected_output(page: Path) -> str:
    """Return the output that the page shows."""
    return "".join(block for kind, block in blocks(page) if kind == "text")


def run(page: Path, namespace: dict[str, Any]) -> None:
    """Run the blocks of a page as one program.

    An error of the library is printed as a traceback ends, and the next block follows. A statement that is an
    expression must have the value that its comment shows, where that is a Tensor or an Array.
    """
    name = f"{page.stem.lower()}.py"
    code = [block for kind, block in blocks(page) if kind == "python" and is_run(block)]
    program = "".join(code)
    # The lines that `str(graph)` and errors name are those of the page's code read as one file.
    linecache.cache[name] = (len(program), None, program.splitlines(keepends=True), name)
    number = 0
    for block in code:
        try:
            _run(block, name, number, namespace)
        except GraphcoreError as error:
            print(f"{type(error).__module__}.{type(error).__name__}: {error}")
        number += block.count("\n")


def _run(block: str, name: str, number: int, namespace: dict[str, Any]) -> None:
    lines = block.splitlines()
    for statement in ast.parse(block).body:
        comment = lines[statement.lineno - 1].partition("  # ")[2]
        ast.increment_lineno(statement, number)
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), name, "exec"), namespace)
            continue
        value = eval(compile(ast.Expression(statement.value), name, "eval"), namespace)
        is_print = ast.unparse(statement).startswith("print(")
        if comment.startswith(("Tensor(", "Array(")) and not is_print and repr(value) != comment:
            raise SystemExit(f"{ast.unparse(statement)} is {value!r}, and the page shows {comment}")


def main(path: str) -> None:
    with warnings.catch_warnings():
        run(Path(path), {"__name__": "__main__"})


if __name__ == "__main__":
    main(sys.argv[1])
