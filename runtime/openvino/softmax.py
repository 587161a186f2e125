"""Softmax in place of what attention spells it out with, for a provider that runs the operator several times as fast.

Rows of which all are masked are 0 there, where Softmax gives NaN, as it does for a NaN or an infinity somewhere in a
row; the sum of a row tells these apart.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from graphcore.ir.constants import constant_array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.rewrite import Rewrite, with_names
from graphcore.passes.liveness import prune
from graphcore.types.dtypes import DType


class _Found(NamedTuple):
    """scores: what the softmax is of, along its last axis. total: the sum of the exponentials, for its type."""

    scores: Symbol
    total: Symbol


def joined(graph: Graph) -> Graph:
    """Return the graph with Softmax wherever it is spelt out; itself where it is not."""
    found = {n.outputs[0].id: made for n in graph.nodes if n.op_type == "Div" and (made := _found(n)) is not None}
    if not found:
        return graph
    rewrite = Rewrite(graph)
    for node, inputs in rewrite.nodes():
        softmax = found.get(node.outputs[0].id)
        if softmax is None:
            rewrite.keep(node, inputs, lambda body: body)
            continue
        rewrite.replace(node, (_softmax(rewrite.new, rewrite.of(softmax.scores), softmax.total),))
    new = with_names(rewrite.finish())
    prune(new)
    return new


def _softmax(graph: Graph, scores: Symbol, total: Symbol) -> Symbol:
    emit, type_ = graph.build.emit, total.type
    axes = graph.build.vector([scores.rank - 1])
    number = functools.partial(graph.build.scalar, dtype=DType.float32)
    made = emit("Softmax", (scores,), scores.type, {"axis": -1})
    whole = emit("ReduceSum", (made, axes), type_, {"keepdims": 1})
    known = emit("Equal", (whole, whole), type_.cast(DType.bool))
    below = emit("ReduceSum", (scores, axes), type_, {"keepdims": 1})
    masked = emit("Equal", (below, number(-math.inf)), type_.cast(DType.bool))
    rest = emit("Where", (masked, number(0.0), number(math.nan)), type_)
    return emit("Where", (known, made, rest), scores.type)


def _found(div: Node) -> _Found | None:
    exponentials, divisor = div.inputs
    if div.domain or exponentials is None or exponentials.type.dtype is not DType.float32:
        return None
    chosen = _made(divisor, "Where")
    total = None if chosen is None else _made(chosen.inputs[2], "ReduceSum")
    if chosen is None or total is None or total.inputs[0] is not exponentials or not _is(chosen.inputs[1], 1.0):
        return None
    known = _made(exponentials, "Where")  # NaN beside the kernel that loses it
    power = _made(exponentials if known is None else known.inputs[1], "Exp")
    less = None if power is None else _made(power.inputs[0], "Sub")
    greatest = None if less is None else _made(less.inputs[1], "Where")
    if (
        less is None
        or greatest is None
        or greatest.inputs[0] is not chosen.inputs[0]
        or not _is(greatest.inputs[1], 0.0)
    ):
        return None
    equal = _made(chosen.inputs[0], "Equal")
    scores = less.inputs[0]
    if equal is None or scores is None or not _is(equal.inputs[1], -math.inf) or not scores.shape.is_ranked:
        return None
    axes = total.inputs[1].producer if len(total.inputs) > 1 and total.inputs[1] is not None else None
    along_last = isinstance(axes, Constant) and axes.array.tolist() in ([scores.rank - 1], [-1])
    if not along_last or equal.inputs[0] is not greatest.inputs[2] or total.attributes.get("keepdims", 1) != 1:
        return None
    return _Found(scores, total.outputs[0])


def _made(symbol: Symbol | None, op_type: str) -> Node | None:
    """Return the node of an operator that made a Symbol."""
    producer = None if symbol is None else symbol.producer
    return producer if isinstance(producer, Node) and producer.op_type == op_type and not producer.domain else None


def _is(symbol: Symbol | None, number: float) -> bool:
    """Return whether it is one number, known now."""
    array = constant_array(symbol, weights=True)
    return array is not None and array.size == 1 and float(array.reshape(())) == number
