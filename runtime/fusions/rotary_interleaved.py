"""Rotary embeddings of neighbours, which GPT-J's line of models has: each pair is turned by one angle."""

from __future__ import annotations

import numpy as np

from graphcore.ir.symbol import Node, Symbol, array_of
from graphcore.passes.sweep import Inputs, Sweep
from graphcore.runtime.fusions.matching import EVERYWHERE, is_float32, is_known, node_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type


def interleaved(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """x * cos + pairs(-x[1::2], x[0::2]) * sin, of x: [batch, sequence, heads, size], as RotaryEmbedding."""
    plain, turned = inputs
    found = _matched(plain, turned) or _matched(turned, plain)
    if found is None:
        return None
    x, cos, sin = found
    if x.type is not node.outputs[0].type:
        return None
    batch, length, heads, size = x.shape
    half = Dim(int(size) // 2)
    shape = sweep.add(node, "Shape", (x,), tensor_type(DType.int64, _shape([Dim(4)])), {})
    front = sweep.add(node, "Shape", (x,), tensor_type(DType.int64, _shape([Dim(2)])), {"end": 2})
    three = tensor_type(DType.int64, _shape([Dim(3)]))
    width = sweep.constant(node, np.array([int(heads) * int(size)]))
    rows = sweep.add(node, "Concat", (front, width), three, {"axis": 0})
    target = sweep.add(node, "Concat", (front, sweep.constant(node, np.array([int(half)]))), three, {"axis": 0})
    flat_type = tensor_type(DType.float32, _shape([batch, length, heads * size]))
    flat = sweep.add(node, "Reshape", (x, rows), flat_type, {"allowzero": 1})
    tables = []
    for table in (cos, sin):
        kept = [d for axis, d in enumerate(table.shape) if axis != 2 or table.rank == 3]
        if table.rank == 4:
            one = tensor_type(DType.float32, _shape(kept))
            table = sweep.add(node, "Squeeze", (table, sweep.constant(node, np.array([2]))), one, {})
        whole = tensor_type(DType.float32, _shape([batch, length, half]))
        tables.append(sweep.add(node, "Expand", (table, target), whole, {}))
    attributes = {"interleaved": 1, "num_heads": int(heads)}
    made = sweep.add(node, "RotaryEmbedding", (flat, *tables), flat_type, attributes)
    return sweep.add(node, "Reshape", (made, shape), x.type, {"allowzero": 1})


def _matched(plain: Symbol | None, turned: Symbol | None) -> tuple[Symbol, Symbol, Symbol] | None:
    """x and half the tables of cos and sin."""
    first, second = node_of(plain, "Mul"), node_of(turned, "Mul")
    if first is None or second is None:
        return None
    for x, cos in (first.inputs, first.inputs[::-1]):
        for pairs, sin in (second.inputs, second.inputs[::-1]):
            if x is None or not is_float32(x) or x.rank != 4 or not is_known(x) or not x.shape[2].is_static:
                continue
            if _turned(pairs) is not x:
                continue
            half_cos, half_sin = _half(cos, x), _half(sin, x)
            if half_cos is not None and half_sin is not None:
                return x, half_cos, half_sin
    return None


def _half(table: Symbol | None, x: Symbol) -> Symbol | None:
    """What a table has each number of twice in a row: [batch or 1, sequence, 1, size / 2], maybe without the third."""
    whole = node_of(table, "Reshape")
    twice = None if whole is None else node_of(whole.inputs[0], "Expand", "Tile")
    apart = None if twice is None else node_of(twice.inputs[0], "Unsqueeze")
    source = None if apart is None else apart.inputs[0]
    if twice is None or apart is None or source is None or table is None:
        return None
    one, many = apart.outputs[0], twice.outputs[0]
    if not is_float32(table, one, many, source) or not is_known(table, one, many, source):
        return None
    batch, length, _, size = x.shape
    half = Dim(int(size) // 2)
    lead = [*table.shape][:3]
    fits = (
        [*table.shape] == [*lead, size]
        and lead[0] in (1, batch)
        and lead[1:] == [length, 1]
        and [*one.shape] == [*lead, half, 1]
        and [*many.shape] == [*lead, half, 2]
    )
    if not fits or [*source.shape] not in ([*lead, half], [*lead[:2], half]):
        return None
    return source


def _turned(symbol: Symbol | None) -> Symbol | None:
    """The x of which the neighbours change places, the first then negated."""
    whole = node_of(symbol, "Reshape", "Flatten")
    joined = None if whole is None else node_of(whole.inputs[0], "Concat")
    if joined is None or symbol is None or len(joined.inputs) != 2 or not is_float32(symbol, joined.outputs[0]):
        return None
    made = joined.outputs[0]
    last = node_of(joined.inputs[0], "Unsqueeze"), node_of(joined.inputs[1], "Unsqueeze")
    if joined.attributes.get("axis") not in (-1, made.rank - 1) or last[0] is None or last[1] is None:
        return None
    negated = node_of(last[0].inputs[0], "Neg")
    odd = None if negated is None else _every_second(negated.inputs[0])
    even = _every_second(last[1].inputs[0])
    if odd is None or even is None or odd[0] is not even[0] or (even[1], odd[1]) != (0, 1):
        return None
    x = odd[0]
    if symbol.type is not x.type or not x.shape[-1].is_static or int(x.shape[-1]) % 2:
        return None
    half = Dim(int(x.shape[-1]) // 2)
    return x if [*made.shape] == [*[*x.shape][:-1], half, 2] else None


def _every_second(symbol: Symbol | None) -> tuple[Symbol, int] | None:
    """What every second element of the last axis was taken of, and where it began."""
    node = node_of(symbol, "Slice")
    x = None if node is None else node.inputs[0]
    if node is None or x is None or not is_float32(x):
        return None
    arrays = [array_of(s) for s in node.inputs[1:]]
    if len(arrays) != 4 or any(a is None or a.size != 1 for a in arrays):
        return None
    start, end, axis, step = [int(a.reshape(-1)[0]) for a in arrays if a is not None]
    is_whole = end >= EVERYWHERE or (x.shape[-1].is_static and end == int(x.shape[-1]))
    return (x, start) if axis in (-1, x.rank - 1) and step == 2 and is_whole else None
