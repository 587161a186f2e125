"""Replaces the library's own operators, and ONNX's without a kernel for their dtype, by what they are made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphcore.build.declare import EXPANSIONS, FAST_EXPANSIONS, IN_DOUBLE, LIBRARY, expanded
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.state import accuracy as accuracies
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import bodies
from graphcore.runtime.lowering.expansion import composed, packed_weights
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.types.dtypes import DType


def expand(graph: Graph, rules: Legality) -> Graph:
    """A graph without operators that `EXPANSIONS` describes, unless the target has a kernel for them.

    Expansions compute floats narrower than 32 bits in float32 and round once, and int4 in int8.
    """
    return Rewrite(graph, _Expanding(rules)).run() if _expands(graph, rules) else graph


def _expands(graph: Graph, rules: Legality) -> bool:
    return any(_has_expansion(n, rules) or any(_expands(b, rules) for b in bodies(n)) for n in graph.nodes)


@dataclass(eq=False)
class _Expanding(Policy[Rewrite]):
    rules: Legality
    done: packed_weights.Packed = field(default_factory=dict)

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        if not _has_expansion(node, self.rules):
            return None
        around = rewrite.new.memory.loose
        return _fitted(node, inputs, self.rules) or _expanded(node, inputs, around, self.rules, self.done)

    def body(self, rewrite: Rewrite, body: Graph) -> Graph:
        return Rewrite(body, _Expanding(self.rules), rewrite).run()


def _has_expansion(node: Node, rules: Legality) -> bool:
    if node.op_type not in EXPANSIONS:
        if node.domain == LIBRARY:
            raise GraphError(f"{node.op_type}: the library's operator of this name has no expansion")
        return False
    if node.domain:
        return node.domain == LIBRARY
    row = rules.dtypes(node.op_type)
    if not row:
        return row is not None
    dtype = next((s.dtype for s in node.inputs if s is not None), None)
    if dtype is None or not dtype.is_float:
        return False
    return _WIDER.get(dtype, dtype) not in row or not computes(node, rules)


def computes(node: Node, rules: Legality) -> bool:
    """Return whether the existing kernel of a node's operator computes this node."""
    return (
        not rules.decomposes
        or bool(node.domain)
        or node.op_type not in PARTIAL_KERNELS
        or PARTIAL_KERNELS[node.op_type].is_native(node)
    )


def _fitted(node: Node, inputs: tuple[Symbol | None, ...], rules: Legality) -> tuple[Symbol, ...] | None:
    partial = PARTIAL_KERNELS.get(node.op_type) if not node.domain else None
    if partial is None or not rules.decomposes:
        return None
    row = rules.dtypes(node.op_type)
    dtype = next((s.dtype for s in node.inputs if s is not None), None)
    return partial.fitted(node, inputs) if row and dtype and _WIDER.get(dtype, dtype) in row else None


PARTIAL_KERNELS = {"Attention": composed}
"""Operators whose kernel runs some nodes only: the modules that decide which, and rewrite others for it."""

_WIDER = {
    DType.float16: DType.float32,
    DType.bfloat16: DType.float32,
    DType.tensor_float32: DType.float32,
    DType.float8_e4m3fn: DType.float32,
    DType.float8_e5m2: DType.float32,
    DType.float8_e4m3fnuz: DType.float32,
    DType.float8_e5m2fnuz: DType.float32,
    DType.float8_e8m0: DType.float32,
    DType.index: DType.uint64,
    DType.address: DType.uint64,
}
_NIBBLES = {DType.int4: DType.int8, DType.uint4: DType.uint8}
_DOUBLE = {d: DType.float64 for d in (DType.float32, *_WIDER) if d.is_float}
_OWN_WIDTH = frozenset({"ShiftLeft", "ShiftRight", "QMatMul", "Dequantize"})
"""Operators that count bits, so they see the dtype as it is."""


def _expanded(
    node: Node, inputs: tuple[Symbol | None, ...], around: dict[int, bool], rules: Legality, done: packed_weights.Packed
) -> tuple[Symbol, ...]:
    is_fast = accuracies.is_fast(node.attributes)
    in_double = node.op_type in IN_DOUBLE and not (is_fast and node.op_type in FAST_EXPANSIONS)
    table = _WIDER if node.op_type in _OWN_WIDTH else _DOUBLE if in_double else {**_WIDER, **_NIBBLES}
    wide = [s if s is None else s.graph.build.cast(s, table.get(s.dtype, s.dtype)) for s in inputs]
    made = packed_weights.fitted(node, wide, rules, done)
    if made is None:
        made = expanded(node.op_type, wide, node.attributes)
    results = made[: len(node.outputs)] if isinstance(made, tuple) else (made,)
    narrow = [r.graph.build.cast(r, wanted.type.dtype) for r, wanted in zip(results, node.outputs, strict=True)]
    for symbol in (*wide, *narrow):
        if symbol is not None and symbol.dtype.is_float:
            around[symbol.id] = around.get(symbol.id, True) and is_fast
    return tuple(narrow)
