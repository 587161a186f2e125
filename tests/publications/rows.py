"""A row of a table: a check that a publication's suite makes, or those of one kind, and what the same gives here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """states: the check, in other words. call: of Symbols of each dtype. want: of their arrays; its dtype counts too.

    checks: how many of the suite's the row stands for. reason: why it cannot be stated here, in place of a call.
    """

    file: str
    states: str
    checks: int = 1
    dtypes: Sequence[DType] = ()
    call: Callable[..., Symbol] | None = None
    want: Callable[..., Any] | None = None
    arrays: Callable[[DType], Sequence[Array]] | None = None
    near: float = 0.0
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.states}"


def cells(rows: Sequence[Row]) -> list[tuple[Row, DType]]:
    """Return the rows that are stated, with each of their dtypes."""
    return [(row, dtype) for row in rows for dtype in row.dtypes if not row.reason]


def computed(row: Row, dtype: DType, promotion: str) -> tuple[Array, Array]:
    """Return the result of a row here, and the expected one."""
    assert row.call is not None
    assert row.want is not None
    assert row.arrays is not None
    arrays = row.arrays(dtype)
    types = [TensorType(DType.of(a.dtype), a.shape) for a in arrays]
    graph = Graph("suite", types, promotion=promotion)
    with graph:
        graph.output(row.call(*graph.inputs))
    (got,) = gc.InferenceSession().load(graph)(*arrays)
    with np.errstate(all="ignore"):
        return got, np.asarray(row.want(*arrays))
