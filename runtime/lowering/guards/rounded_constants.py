"""Keep float64 constants near 0 and 1: onnxruntime's optimiser looks at them in float32, and takes x + 1e-300 for x.

The optimiser knows Add, Sub, Mul and Div. Sum computes what Add does and is left alone; a factor is given by a Where
whose condition only the run knows. Sessions leave the optimiser out, for models that others wrote too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.edit import edit
from graphcore.runtime.lowering.guards.added_zero import as_sum
from graphcore.runtime.lowering.guards.guard import Guard
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import tensor_type

_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}
"""By operator the number that changes nothing, at its second operand and in Add and Mul at its first one too."""


def is_rounded(array: np.ndarray[Any, Any], neutral: Sequence[float] = (0.0, 1.0)) -> bool:
    """Return whether an array is one float64 that float32 rounds to one of these numbers, which it is not."""
    if array.size != 1 or array.dtype != np.float64:
        return False
    number = array.reshape(())
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(number.astype(np.float32))
    return rounded in neutral and rounded != float(number)


def _is_needed(parts: Sequence[Graph]) -> bool:
    """Return whether a node that was built here has such a constant."""
    return any(_place(node) is not None for graph in parts for node in _nodes(graph))


def _run(parts: Sequence[Graph]) -> bool:
    """Write such nodes in other operators. Return whether there are any."""
    is_changed = False
    for graph in parts:
        found = [node for node in _nodes(graph) if _place(node) is not None]
        with edit(graph) as nodes:
            for node in found:
                nodes.insert_before(node, partial(_rewrite, graph, node))
        is_changed |= bool(found)
    return is_changed


def _nodes(graph: Graph) -> Iterator[Node]:
    return (n for n in graph.nodes if n.op_type in _NEUTRAL and not n.domain and type(n.origin) is not Imported)


def _place(node: Node) -> int | None:
    """Return where a node has such a constant beside an operand that is none."""
    lhs, rhs = (None if s is None else s.producer for s in node.inputs)
    if type(rhs) is Constant:
        place, held, other = 1, rhs, lhs
    elif type(lhs) is Constant and node.op_type in ("Add", "Mul"):
        place, held, other = 0, lhs, rhs
    else:
        return None
    return place if type(other) is not Constant and is_rounded(held.array, (_NEUTRAL[node.op_type],)) else None


def _rewrite(graph: Graph, node: Node) -> None:
    place = _place(node)
    assert place is not None
    held, other = node.inputs[place], node.inputs[1 - place]
    assert held is not None
    assert other is not None
    if node.op_type in ("Add", "Sub"):
        as_sum(graph, node)
    else:
        unknown = graph.build.emit("IsNaN", (other,), tensor_type(DType.bool, other.shape))
        factor = graph.build.emit("Where", (unknown, held, held), tensor_type(DType.float64, node.outputs[0].shape))
        inputs: list[Symbol | None] = [other, other]
        inputs[place] = factor
        change(node, inputs=tuple(inputs))


GUARD = Guard(
    "optimiser NoopElimination float64",
    "Add, Sub, Mul, Div",
    "the optimiser drops x + 1e-300, whose constant is 0 in float32",
    frozenset(_NEUTRAL),
    _is_needed,
    _run,
)
