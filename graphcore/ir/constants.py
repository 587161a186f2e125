"""Reading constants: the value of a Symbol that is one, and None for any other."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.ir.symbol import Constant, Symbol, source_of


def constant_array(symbol: Symbol | None, *, weights: bool = False, outer: bool = False) -> np.ndarray[Any, Any] | None:
    """Return the value of a constant; None for anything else.

    weights: of a weight too, whose array its owner may change until the graph is exported or loaded. outer: of what
    stands in a body for a constant of an outer graph, too.
    """
    if symbol is None:
        return None
    producer = source_of(symbol) if outer else symbol.producer
    return producer.array if isinstance(producer, Constant) and (weights or not producer.is_weight) else None


def constant_scalar(symbol: Symbol | None, *, weights: bool = False, outer: bool = False) -> int | None:
    """Return the value of a constant of rank 0 as an int; None for anything else. See `constant_array`."""
    array = constant_array(symbol, weights=weights, outer=outer)
    return None if array is None or array.ndim else int(array)
