"""Replaces the library's own operators, and ONNX's without a kernel for their dtype, by what they are made of."""

from __future__ import annotations

from graphcore.declare import EXPANSIONS, LIBRARY
from graphcore.dtypes import DType
from graphcore.errors import GraphError
from graphcore.graph import Graph
from graphcore.runtime.lowering.legality import Legality
from graphcore.runtime.lowering.rewrite import Rewrite, bodies
from graphcore.symbol import Node, Symbol


def expand(graph: Graph, rules: Legality) -> Graph:
    """A graph without operators that `EXPANSIONS` describes, unless the target has a kernel for them.

    Expansions compute floats narrower than 32 bits in float32 and round once, and int4 in int8.
    """
    return _expand(graph, rules, None) if _expands(graph, rules) else graph


def _expands(graph: Graph, rules: Legality) -> bool:
    return any(_has_expansion(n, rules) or any(_expands(b, rules) for b in bodies(n)) for n in graph._nodes)


def _expand(graph: Graph, rules: Legality, outer: Rewrite | None) -> Graph:
    rewrite = Rewrite(graph, outer=outer)
    for node, inputs in rewrite.nodes():
        if _has_expansion(node, rules):
            rewrite.replace(node, _expanded(node, inputs))
        else:
            rewrite.keep(node, inputs, lambda body: _expand(body, rules, rewrite))
    return rewrite.finish()


def _has_expansion(node: Node, rules: Legality) -> bool:
    if node.op_type not in EXPANSIONS:
        if node.domain == LIBRARY:
            raise GraphError(f"{node.op_type}: the library's operator of this name has no expansion")
        return False
    if node.domain == LIBRARY:
        return True
    row = rules.dtypes(node.op_type)
    if not row:
        return row is not None
    dtype = next((s.dtype for s in node.inputs if s is not None), None)
    return dtype is not None and dtype.is_float and _WIDER.get(dtype, dtype) not in row


_WIDER = {
    DType.float16: DType.float32,
    DType.bfloat16: DType.float32,
    DType.tensor_float32: DType.float32,
    DType.float8_e4m3fn: DType.float32,
    DType.float8_e5m2: DType.float32,
    DType.index: DType.uint64,
    DType.address: DType.uint64,
}
_NIBBLES = {DType.int4: DType.int8, DType.uint4: DType.uint8}
_OWN_WIDTH = frozenset({"ShiftLeft", "ShiftRight"})  # count bits, so they see the dtype as it is


def _expanded(node: Node, inputs: tuple[Symbol | None, ...]) -> tuple[Symbol, ...]:
    table = _WIDER if node.op_type in _OWN_WIDTH else {**_WIDER, **_NIBBLES}
    wide = [s if s is None else s.graph._cast(s, table.get(s.dtype, s.dtype)) for s in inputs]
    made = EXPANSIONS[node.op_type](*wide, **node.attributes)
    results = made if isinstance(made, tuple) else (made,)
    return tuple(r.graph._cast(r, wanted.type.dtype) for r, wanted in zip(results, node.outputs, strict=True))
