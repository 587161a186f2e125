"""A case for every op, and one-op graphs of them in any dtype, for the sweep and docs/dtypes.md."""

from __future__ import annotations

import warnings

from graphcore import DType, Graph, TensorType
from graphcore.errors import LossyCastWarning
from graphcore.ir.symbol import Symbol
from tests.support.every import bits, buffers, floats, layers, movement, numbers, quantised, values
from tests.support.every.case import ALL, Array, Case

CASES: dict[str, Case] = {
    **numbers.CASES,
    **floats.CASES,
    **bits.CASES,
    **movement.CASES,
    **buffers.CASES,
    **layers.CASES,
    **quantised.CASES,
    **values.CASES,
}


def graph_of(names: list[str], dtype: DType) -> tuple[Graph, dict[str, tuple[Symbol, ...]], list[Array]]:
    """The ops of one dtype in a graph, each on operands of its own; what each gives; the arrays to feed.

    Raises what an op raises that refuses the dtype.
    """
    types, arrays = {}, []
    for name in names:
        for i, operand in enumerate(CASES[name].operands):
            types[f"{name}_{i}"] = TensorType(operand.dtype or dtype, operand.shape)
        arrays += CASES[name].arrays(dtype)
    graph = Graph("every", types)
    made = {}
    with graph, warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        for name in names:
            count = len(CASES[name].operands)
            made[name] = CASES[name].results([graph[f"{name}_{i}"] for i in range(count)])
    graph.output(**{f"out_{name}_{i}": s for name, results in made.items() for i, s in enumerate(results)})
    return graph, made, arrays


__all__ = ["ALL", "CASES", "graph_of"]
