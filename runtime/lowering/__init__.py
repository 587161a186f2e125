"""Lowering: from a graph as it was built to one that a target runs, with the numbers that docs/numbers.md promises.

`pipeline.PIPELINE` is the table of passes. Lowering returns a graph that needs none of them unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphcore.ir.graph import Optimize, Precision
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.support.lazy import attributes

if TYPE_CHECKING:
    from graphcore.runtime.lowering.expansion.row_switch import rows_of
    from graphcore.runtime.lowering.functions import inlined, resolved
    from graphcore.runtime.lowering.pipeline import lower
else:  # a model that is lowered already needs only the targets
    homes = {"inlined": "functions", "lower": "pipeline", "resolved": "functions", "rows_of": "expansion.row_switch"}
    __getattr__ = attributes(__name__, homes)

PRECISIONS: tuple[Precision, ...] = ("exact", "fast")
LEVELS: tuple[Optimize, ...] = ("off", "exact", "all")
"""The values of `optimize`."""


__all__ = ["LEVELS", "PRECISIONS", "TARGETS", "inlined", "lower", "resolved", "rows_of"]
