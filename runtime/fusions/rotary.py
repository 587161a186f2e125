"""Rotary embeddings written as halves that are turned, which is how PyTorch's models have them."""

from __future__ import annotations

import numpy as np

from graphcore.ir.symbol import Node, Symbol, array_of
from graphcore.passes.sweep import Inputs, Sweep
from graphcore.runtime.fusions.matching import EVERYWHERE, is_float32, is_known, node_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

_ELEMENTWISE = ("Cos", "Sin", "Mul", "Cast", "Unsqueeze", "Identity", "Reshape")


def rotary(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """x * cos + concat(-x[half:], x[:half]) * sin, of x: [batch, heads, sequence, size], as RotaryEmbedding."""
    plain, turned = inputs
    found = _matched(plain, turned) or _matched(turned, plain)
    if found is None:
        return None
    x, cos, sin = found
    if x.type is not node.outputs[0].type:
        return None
    batch, _, length, size = x.shape
    half = int(size) // 2
    shape = sweep.add(node, "Shape", (x,), tensor_type(DType.int64, _shape([Dim(4)])), {})
    pair = tensor_type(DType.int64, _shape([Dim(2)]))
    rows = sweep.add(node, "Gather", (shape, sweep.constant(node, np.array([0, 2]))), pair, {"axis": 0})
    three = tensor_type(DType.int64, _shape([Dim(3)]))
    target = sweep.add(node, "Concat", (rows, sweep.constant(node, np.array([half]))), three, {"axis": 0})
    cache = tensor_type(DType.float32, _shape([batch, length, Dim(half)]))
    tables = []
    for table in (cos, sin):
        flat = tensor_type(DType.float32, _shape([table.shape[0], *table.shape[2:]]))
        one = sweep.add(node, "Squeeze", (table, sweep.constant(node, np.array([1]))), flat, {})
        bounds = (sweep.constant(node, np.array([v])) for v in (0, half, 2))
        cut = tensor_type(DType.float32, _shape([*flat.shape[:2], Dim(half)]))
        part = sweep.add(node, "Slice", (one, *bounds), cut, {})
        tables.append(sweep.add(node, "Expand", (part, target), cache, {}))
    return sweep.add(node, "RotaryEmbedding", (x, *tables), x.type, {})


def _matched(plain: Symbol | None, turned: Symbol | None) -> tuple[Symbol, Symbol, Symbol] | None:
    first, second = node_of(plain, "Mul"), node_of(turned, "Mul")
    if first is None or second is None:
        return None
    for x, cos in (first.inputs, first.inputs[::-1]):
        for half, sin in (second.inputs, second.inputs[::-1]):
            if x is None or cos is None or sin is None or not is_float32(x, cos, sin) or x.rank != 4:
                continue
            if not x.shape[3].is_static or int(x.shape[3]) % 2 or not is_known(x) or _turned(half) is not x:
                continue
            if _is_table(cos, x) and _is_table(sin, x):
                return x, cos, sin
    return None


def _is_table(table: Symbol, x: Symbol) -> bool:
    """Whether it has numbers for each place of the sequence, the second half of which are the first again."""
    batch, _, length, size = x.shape
    dims = [*table.shape]
    fits = len(dims) == 4 and dims[0] in (1, batch) and dims[1] == 1 and dims[2:] == [length, size]
    return fits and _is_doubled(table)


def _is_doubled(table: Symbol | None) -> bool:
    array = array_of(table)
    if array is not None:
        half = array.shape[-1] // 2 if array.ndim else 0
        return bool(half) and bool((array[..., :half] == array[..., half:]).all())
    joined = node_of(table, "Concat")
    if joined is not None and table is not None:
        last = joined.attributes.get("axis") in (-1, table.rank - 1)
        return last and len(joined.inputs) == 2 and joined.inputs[0] is joined.inputs[1]
    node = node_of(table, *_ELEMENTWISE)
    if node is None or table is None or not is_float32(node.inputs[0], table):
        return False
    source = node.inputs[0]
    assert source is not None
    if source.shape[-1] != table.shape[-1]:
        return False
    if node.op_type == "Mul":
        others = [array_of(s) for s in node.inputs]
        return any(a is not None and a.size == 1 and _is_doubled(s)
                   for a, s in zip(others, node.inputs[::-1], strict=True))  # fmt: skip
    return _is_doubled(source)


def _turned(symbol: Symbol | None) -> Symbol | None:
    """The x of concat(-x[half:], x[:half]) along the last axis."""
    joined = node_of(symbol, "Concat")
    if joined is None or symbol is None or len(joined.inputs) != 2:
        return None
    if joined.attributes.get("axis") not in (-1, symbol.rank - 1):
        return None
    negated = node_of(joined.inputs[0], "Neg")
    behind = None if negated is None else node_of(negated.inputs[0], "Slice")
    before = node_of(joined.inputs[1], "Slice")
    if behind is None or before is None or behind.inputs[0] is not before.inputs[0]:
        return None
    x = before.inputs[0]
    if x is None or not is_float32(x) or not x.shape[-1].is_static:
        return None
    half = int(x.shape[-1]) // 2
    is_first = _cuts(before, x.rank) == (0, half)
    found = _cuts(behind, x.rank)
    return x if is_first and found is not None and found[0] == half and found[1] >= 2 * half else None


def _cuts(node: Node, rank: int) -> tuple[int, int] | None:
    """Start and end of a Slice along the last axis alone, one after the other."""
    arrays = [array_of(s) for s in node.inputs[1:]]
    if len(arrays) < 3 or any(a is None or a.size != 1 for a in arrays):
        return None
    start, end, axis, *step = [int(a.reshape(-1)[0]) for a in arrays if a is not None]
    return (start, min(end, EVERYWHERE)) if axis in (-1, rank - 1) and step in ([], [1]) else None
