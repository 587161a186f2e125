"""Rows run one job at a time: which failed is found by halves, and what becomes of it is the caller's choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from graphcore.arrays.casting import Array
from graphcore.errors import GraphcoreError
from graphcore.runtime.model import Model

Run: TypeAlias = Callable[[Sequence[Mapping[str, Array]]], Sequence[Sequence[Array]]]
Outcome: TypeAlias = "Sequence[Array] | Exception"


def runner(model: Model, batch: int | None, pad: Any, padding: float, dim: str | Mapping[str, int] | None) -> Run:
    """Return what runs rows as `Model.map` does: put together by their lengths, and filled up with pad."""

    def run(rows: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
        window = max(len(rows), 1)
        return list(model.map(rows, batch=batch, pad=pad, padding=padding, dim=dim, window=window))

    return run


def outcomes(run: Run, rows: Sequence[Mapping[str, Array]]) -> list[Outcome]:
    """Return the outputs of each row, or why it has none: where rows fail together, each half is run by itself."""
    if not rows:
        return []
    try:
        made = list(run(rows))
    except Exception as error:
        if len(rows) == 1:
            return [_of_row(error)]
        middle = len(rows) // 2
        return [*outcomes(run, rows[:middle]), *outcomes(run, rows[middle:])]
    return [*made]


def _of_row(error: Exception) -> Exception:
    """Return the error of a row, which is alone and needs no number."""
    cause = error.__cause__
    return cause if isinstance(error, GraphcoreError) and isinstance(cause, GraphcoreError) else error


def text_of(error: Exception) -> str:
    """Return an error on one line."""
    if isinstance(error, GraphcoreError):
        return error.summary
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
