"""Pages of documents whose Python code is run: what it prints is what the page shows after it."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import warnings
from pathlib import Path
from typing import Any

from graphcore.errors import GraphcoreError

_BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the blocks of Python and of plain text of a page, in their order."""
    return [(kind, block) for kind, block in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def run(page: Path, name: str) -> tuple[str, str]:
    """Run the Python code of a page as one program, and return what it printed and what the page's text blocks show.

    name: of the file that lines of code are named by, in graphs and errors. An error of the library is printed as a
    traceback ends; the next block goes on after it.
    """
    found = blocks(page)
    code = "".join(block for kind, block in found if kind == "python")
    # The lines that `str(graph)` and errors name are those of the page's code read as one file.
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed, shown = "", ""
    number = 0
    for kind, block in found:
        if kind == "text":
            shown += block
            continue
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out), warnings.catch_warnings():
                exec(compile("\n" * number + block, name, "exec"), namespace)
        except GraphcoreError as error:
            out.write(f"{type(error).__module__}.{type(error).__name__}: {error}\n")
        number += block.count("\n")
        printed += out.getvalue()
    return printed, shown
