"""The state of an op in a dtype, from the lowered graph of the op's case."""

from __future__ import annotations

from collections import Counter

from graphcore import DType, Graph
from graphcore.errors import GraphcoreError
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.targets.legality import BY_RESULT, CONTROL, PRIMARY
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType
from tests.support.every_op import graph_of

CARRIERS = frozenset({"Cast", "BitCast", "Identity", "Constant"})
"""Operators that bring values into a dtype and compute nothing."""

SIZES = frozenset({"Shape", "Size"})
"""Operators that read no values, beside those that do."""

SOFT = frozenset({DType.tensor_float32, DType.float8_e4m3fn, DType.float8_e5m2})
"""Dtypes that no Cast of the runtime rounds to: it takes more operators, which are part of the conversion."""


def state(name: str, dtype: DType) -> str:
    """ "refused", "itself", "native", "expanded", or the dtypes that the op's operators are computed in instead."""
    try:
        graph, _, _ = graph_of([name], dtype)
        lowered = lower(graph, "cpu")
    except GraphcoreError:
        return "refused"
    return of_graph(graph, lowered, dtype)


def of_graph(graph: Graph, lowered: Graph, dtype: DType) -> str:
    """Return the state of a lowered graph of operands of a dtype, one of `state`'s words but "refused"."""
    built, made = _operators(graph), _operators(lowered)
    if not built:
        converts = any(node.op_type == "Cast" for node in graph.nodes)
        return "itself" if not converts else "expanded" if made else "native"
    wanted, found = (Counter(op for op, _ in operators) for operators in (built, made))
    soft = any(isinstance(s.type, TensorType) and s.dtype in SOFT for s in graph.symbols)
    if wanted - found or (found - wanted and not soft):
        return "expanded"
    if dtype is DType.tensor_float32:  # stored so, with operators that round it beside those of the op
        return DType.float32.name
    here = {computed.storage for _, computed in built}
    dtypes = {computed for op, computed in made if op in wanted}
    if dtypes <= here and not found - wanted:
        return "native"
    elsewhere = dtypes - here or dtypes
    return ", ".join(sorted(d.name for d in elsewhere - {DType.bool} or elsewhere))


def _operators(graph: Graph) -> list[tuple[str, DType]]:
    made = [(node.op_type, _decides(node)) for node in graph.nodes if node.op_type not in CARRIERS]
    return [pair for pair in made if pair[0] not in SIZES] or made


def _decides(node: Node) -> DType:
    if node.op_type in CONTROL:
        return _leaf(node.outputs[0])
    position = PRIMARY.get(node.op_type, 0)
    operand = node.inputs[position] if position < len(node.inputs) and node.op_type not in BY_RESULT else None
    return _leaf(node.outputs[0] if operand is None else operand)


def _leaf(symbol: Symbol) -> DType:
    """The dtype of a tensor, or of those in a list or optional."""
    type_ = symbol.type
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    return type_.dtype if isinstance(type_, TensorType) else symbol.dtype
