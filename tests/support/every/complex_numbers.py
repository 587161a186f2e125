"""The cases of ops on complex numbers: a graph of one op, and what becomes of it."""

from __future__ import annotations

import numpy as np

from graphcore import DType, Graph, TensorType, promotion
from graphcore.errors import DTypeError, GraphcoreError, PromotionError
from graphcore.ir.symbol import Symbol
from tests.support.every.case import SIZES, Array
from tests.support.every_op import CASES


def graph_of(name: str, dtype: DType = DType.complex64) -> tuple[Graph, tuple[Symbol, ...], list[Array]]:
    """Return a graph of an op on complex numbers, what it gives, and the arrays to feed.

    Operands whose dtype the op's case says keep that. Raises what an op raises that refuses complex numbers.
    """
    case = CASES[name]
    types, arrays = {}, []
    for i, operand in enumerate(case.operands):
        types[f"x{i}"] = TensorType(operand.dtype or dtype, operand.shape)
        sizes = [SIZES[d] if isinstance(d, str) else d for d in operand.shape]
        arrays.append(operand.array(dtype, i) if operand.dtype else drawn(sizes, dtype, i))
    graph = Graph("every", types, promotion=promotion.system("max", complex=True))
    with graph:
        made = case.results(list(graph.inputs))
    graph.output(**{f"y{i}": symbol for i, symbol in enumerate(made)})
    return graph, made, arrays


def drawn(shape: list[int], dtype: DType, seed: int) -> Array:
    """Return complex numbers of every quadrant."""
    rng = np.random.default_rng((seed, *shape))
    made: Array = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype.numpy)
    return made


def state(name: str) -> str:
    """Return "parts" where an op is computed on the parts of complex numbers, "refused" where it has no meaning."""
    try:
        graph_of(name)
    except (DTypeError, PromotionError):
        return "refused"
    except GraphcoreError as error:
        return f"{type(error).__name__}"
    return "parts"


__all__ = ["drawn", "graph_of", "state"]
