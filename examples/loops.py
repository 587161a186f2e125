"""Loops and a choice inside one model: Collatz numbers, a running maximum, and a table that grows.

python examples/loops.py
"""

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops


def step(n: Symbol, turns: Symbol) -> tuple[Symbol, Symbol]:
    return ops.cond(n % 2 == 0, lambda: n // 2, lambda: 3 * n + 1), turns + 1


if __name__ == "__main__":
    graph = Graph("loops", {"n": TensorType(DType.int64, []), "x": TensorType(DType.float32, ["time", 2])})
    n, x = graph.inputs
    _, turns = ops.while_loop(lambda n, turns: n != 1, step, (n, 0))
    _, highest = ops.scan(lambda best, row: (ops.max(best, row), ops.max(best, row)), x[0], x)
    grown = ops.for_loop(turns, lambda i, rows: ops.concat([rows, rows[-1:] + 1]), x[:1])
    graph.output(turns=turns, highest=highest, grown=grown)
    print(graph)
    model = gc.InferenceSession().load(graph)
    turned, best, rows = model(np.array(6), np.array([[1, 5], [3, 2], [2, 9]], np.float32))
    print(f"{turned} turns, {best.tolist()}, {len(rows)} rows up to {rows[-1].tolist()}")
