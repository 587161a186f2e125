"""Other arrays for the weights of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array, is_masked, native
from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Constant, Symbol
from graphcore.ir.transform.pickling import copied

_SHOWN = 20


def with_weights(graph: Graph, given: Mapping[str, Array]) -> Graph:
    """Return a copy of the graph with other arrays for some of its weights.

    given: arrays by the weights' names, of their dtypes and shapes. Raises `ModelError` that names all that are of
    another name, dtype or shape.
    """
    own = graph.weights
    folded = [f"{name!r}, by the pass {graph.folded[name]}" for name in given if name in graph.folded]
    if folded:
        raise ModelError(
            f"load: weights that optimize folded cannot be replaced: {'; '.join(folded[:_SHOWN])}",
            help="replace them before, or keep them: graph.optimize(keep=[...])",
        )
    faults = [fault for name, array in given.items() if (fault := _fault(own, name, array))]
    if faults:
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        names = ", ".join([*own][:_SHOWN]) + (", ..." if len(own) > _SHOWN else "")
        raise ModelError(
            f"load: {'; '.join(faults[:_SHOWN])}{more}",
            help=f"give arrays of the types of the graph's weights, which are {names or 'none'}",
        )
    made = copied(graph)
    for name, array in given.items():
        symbol = made.symbols[own[name].id]
        change(symbol, producer=Constant(native(array), True, symbol.producer.origin))
    return made


def _fault(own: Mapping[str, Symbol], name: object, array: Any) -> str:
    """Return what is wrong with an array that is given for a weight; nothing where all is right."""
    if not isinstance(name, str) or name not in own:
        return f"the graph has no weight {name!r:.200}"
    wanted = own[name].tensor_type
    if not isinstance(array, np.ndarray) or is_masked(array):
        return f"weight {name!r:.200} is {wanted}, and a {type(array).__name__} is given"
    if array.dtype.newbyteorder("=") != wanted.dtype.numpy or array.shape != tuple(wanted.shape.static_dims):
        return f"weight {name!r:.200} is {wanted}, and {array.dtype}{list(array.shape)} is given"
    return ""
