"""Tensors printed as anvil, a compiler of R programs, prints them."""

from __future__ import annotations

from typing import Any

import numpy as np

_NAMES = {"bool": "pred", "float32": "f32", "float64": "f64"}
MOST_ROWS = 30
"""The most rows of a block that are printed; R prints as many of its tensors."""


def printed(values: np.ndarray[Any, Any], dtype: str) -> str:
    """Return the values, in columns that are aligned, and their type: `[ CPUf32{2,3} ]`.

    Floats have four digits after the point, truth values are 1 and 0. As in the publication nothing tells that a dtype
    is only a default; `repr` does.
    """
    name = _NAMES.get(dtype) or dtype.replace("uint", "ui").replace("int", "i")
    kind = f"[ CPU{name}{{{','.join(map(str, values.shape))}}} ]"
    return "\n".join(("AnvilTensor", *_lines(values), kind))


def _lines(values: np.ndarray[Any, Any]) -> list[str]:
    if values.ndim > 2:
        found = []
        for place in np.ndindex(values.shape[:-2]):
            found += [f"({','.join(str(i + 1) for i in place)},.,.) =", *_lines(values[place])]
        return found
    rows_of = values if values.ndim == 2 else values.reshape(-1, 1)
    cells = [[_cell(value) for value in row] for row in rows_of]
    width = max((len(cell) for row in cells for cell in row), default=0)
    rows = [" " + "  ".join(cell.rjust(width) for cell in row) for row in cells[:MOST_ROWS]]
    return rows if len(cells) <= MOST_ROWS else [*rows, f" ... [{len(cells) - MOST_ROWS} more rows]"]


def _cell(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    return f"{value:.4f}" if isinstance(value, (float, np.floating)) else str(value)
