"""The examples of the ops, of op_examples.txt: each a doctest, shown on the page of its op."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_SECTION = re.compile(r"^\[(\w+)\]\n((?:.+\n)+)", re.MULTILINE)


@cache
def examples() -> dict[str, str]:
    """Return the example of each op by its name: lines of a Python session.

    They see `np`, `gc`, `ops`, `jit`, `DType`, `Graph` and `TensorType`.
    """
    text = (Path(__file__).parent / "op_examples.txt").read_text(encoding="utf-8")
    return dict(_SECTION.findall(text))
