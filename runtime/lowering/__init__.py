"""Lowering: from a graph as it was built to one that a target runs, with the numbers that docs/numbers.md promises.

`pipeline.PIPELINE` is the table of passes. Lowering returns a graph that needs none of them unchanged.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphcore.ir.graph import Optimize, Precision
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.support.gc_pause import freeze, uncollected

if TYPE_CHECKING:
    from graphcore.runtime.lowering.functions import inlined, resolved
    from graphcore.runtime.lowering.pipeline import lower

PRECISIONS: tuple[Precision, ...] = ("exact", "fast")
LEVELS: tuple[Optimize, ...] = ("off", "exact", "all")
"""The values of `optimize`."""

_MODULES = {"inlined": "functions", "lower": "pipeline", "resolved": "functions"}

if not TYPE_CHECKING:  # checkers know each name from the imports above

    def __getattr__(name: str) -> Any:
        """Import a function that lowers on first use: a model that is lowered already needs only the targets."""
        if name not in _MODULES:
            raise AttributeError(f"module 'graphcore.runtime.lowering' has no attribute {name!r}")
        module = f"graphcore.runtime.lowering.{_MODULES[name]}"
        if module not in sys.modules:  # each freeze puts off the next collection
            with uncollected():
                import_module(module)
                freeze()
        value = globals()[name] = getattr(sys.modules[module], name)
        return value


__all__ = ["LEVELS", "PRECISIONS", "TARGETS", "inlined", "lower", "resolved"]
