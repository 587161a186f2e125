"""Fuse rotary embeddings written as two halves, which is how PyTorch's models write them."""

from __future__ import annotations

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.match import Pattern, either, op
from graphcore.ir.transform.rewrite import Inputs
from graphcore.ir.transform.walk import node_of
from graphcore.passes.sweep import Sweep
from graphcore.runtime.fusions.matching import floats, is_float32, is_known, slice_of, value_of, vector
from graphcore.types.dims import Dim

_ELEMENTWISE = ("Cos", "Sin", "Cast", "Unsqueeze", "Identity", "Reshape")


def _halves(x: Symbol, cos: Symbol, sin: Symbol) -> tuple[Symbol, ...]:
    first, second = op("Slice", x, ...), op("Slice", x, ...)
    return x * cos + op("Concat", -second, first, axis=-1) * sin, first, second


_HALVES = Pattern(_halves, x=is_float32, cos=is_float32, sin=is_float32)


def rotary(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return x * cos + concat(-x[half:], x[:half]) * sin, of x: [batch, heads, sequence, size], as RotaryEmbedding."""
    match = _HALVES.match_node(node, inputs)
    if match is None:
        return None
    x, cos, sin, first, second = match
    if x.type is not node.outputs[0].type or x.rank != 4 or not is_known(x) or not x.shape[3].is_static:
        return None
    batch, _, length, size = x.shape
    half = int(size) // 2
    start, end, step = slice_of(second) or (0, 0, 0)
    if int(size) % 2 or slice_of(first) != (0, half, 1) or (start, step) != (half, 1) or end < int(size):
        return None
    if not _is_table(cos, x) or not _is_table(sin, x):
        return None
    shape = sweep.add(node, "Shape", (x,), vector(4), {})
    rows = sweep.add(node, "Gather", (shape, sweep.constant(node, np.array([0, 2]))), vector(2), {"axis": 0})
    target = sweep.add(node, "Concat", (rows, sweep.constant(node, np.array([half]))), vector(3), {"axis": 0})
    tables = []
    for table in (cos, sin):
        of, _, *rest = table.shape
        flat = sweep.add(node, "Squeeze", (table, sweep.constant(node, np.array([1]))), floats(of, *rest), {})
        bounds = [sweep.constant(node, np.array([v])) for v in (0, half, 2)]
        cut = sweep.add(node, "Slice", (flat, *bounds), floats(of, length, Dim(half)), {})
        tables.append(sweep.add(node, "Expand", (cut, target), floats(batch, length, Dim(half)), {}))
    return sweep.add(node, "RotaryEmbedding", (x, *tables), x.type, {})


def _is_table(table: Symbol, x: Symbol) -> bool:
    """Return True if a table is [batch or 1, 1, sequence, size], and its second half equals the first."""
    batch, _, length, size = x.shape
    dims = [*table.shape]
    fits = len(dims) == 4 and dims[0] in (1, batch) and dims[1] == 1 and dims[2:] == [length, size]
    return fits and _is_doubled(table)


def _is_doubled(table: Symbol | None) -> bool:
    """Return True if the second half of the last axis certainly equals the first."""
    array = value_of(table)
    if array is not None:
        half = array.shape[-1] // 2 if array.ndim else 0
        return bool(half) and bool((array[..., :half] == array[..., half:]).all())
    if _JOINED.match(table) is not None:
        return True
    scaled = _SCALED.match(table)
    if scaled is not None:
        return _is_doubled(scaled[0])
    node = node_of(table, *_ELEMENTWISE)
    source = None if node is None else node.inputs[0]
    if source is None or table is None or not is_float32(source, table) or not source.rank:
        return False
    return source.shape[-1] == table.shape[-1] and _is_doubled(source)


_JOINED = Pattern(lambda half: op("Concat", half, half, axis=-1))


_SCALED = Pattern(
    lambda table, factor: table * factor,
    factor=lambda s: (array := value_of(s)) is not None and array.size == 1,
)


# Fuse rotary embeddings of neighbours, as GPT-J's line of models has them: one angle turns each pair.


def _pairs(x: Symbol, cos: Symbol, sin: Symbol) -> tuple[Symbol, ...]:
    even, odd = op("Slice", x, ...), op("Slice", x, ...)
    joined = op("Concat", op("Unsqueeze", -odd, ...), op("Unsqueeze", even, ...), axis=-1)
    pairs = either(op("Reshape", joined, ...), op("Flatten", joined))
    return x * cos + pairs * sin, even, odd, joined, pairs


def _twice(source: Symbol) -> tuple[Symbol, ...]:
    one = op("Unsqueeze", source, ...)
    two = either(op("Expand", one, ...), op("Tile", one, ...))
    return op("Reshape", two, ...), one, two


_PAIRS = Pattern(_pairs, x=is_float32)
_TWICE = Pattern(_twice)


def interleaved(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return x * cos + pairs(-x[1::2], x[0::2]) * sin, of x: [batch, sequence, heads, size], as RotaryEmbedding."""
    match = _PAIRS.match_node(node, inputs)
    if match is None:
        return None
    x, cos, sin, even, odd, joined, pairs = match
    if x.type is not node.outputs[0].type or x.rank != 4 or not is_known(x) or not is_float32(joined):
        return None
    batch, length, heads, size = x.shape
    if not heads.is_static or not size.is_static or int(size) % 2:
        return None
    half = Dim(int(size) // 2)
    if pairs.type is not x.type or [*joined.shape] != [batch, length, heads, half, 2]:
        return None
    if not _is_every_second(even, x, 0) or not _is_every_second(odd, x, 1):
        return None
    half_cos, half_sin = _half(cos, x), _half(sin, x)
    if half_cos is None or half_sin is None:
        return None
    shape = sweep.add(node, "Shape", (x,), vector(4), {})
    front = sweep.add(node, "Shape", (x,), vector(2), {"end": 2})
    width = sweep.constant(node, np.array([int(heads) * int(size)]))
    rows = sweep.add(node, "Concat", (front, width), vector(3), {"axis": 0})
    target = sweep.add(node, "Concat", (front, sweep.constant(node, np.array([int(half)]))), vector(3), {"axis": 0})
    flat = sweep.add(node, "Reshape", (x, rows), floats(batch, length, heads * size), {"allowzero": 1})
    tables = []
    for table in (half_cos, half_sin):
        if table.rank == 4:
            of, places, _, _ = table.shape
            axis = sweep.constant(node, np.array([2]))
            table = sweep.add(node, "Squeeze", (table, axis), floats(of, places, half), {})
        tables.append(sweep.add(node, "Expand", (table, target), floats(batch, length, half), {}))
    attributes = {"interleaved": 1, "num_heads": int(heads)}
    rotated = sweep.add(node, "RotaryEmbedding", (flat, *tables), flat.type, attributes)
    return sweep.add(node, "Reshape", (rotated, shape), x.type, {"allowzero": 1})


def _is_every_second(symbol: Symbol, x: Symbol, first: int) -> bool:
    start, end, step = slice_of(symbol) or (0, 0, 0)
    return (start, step) == (first, 2) and end >= int(x.shape[3])


def _half(table: Symbol, x: Symbol) -> Symbol | None:
    """Return the table [batch or 1, sequence, 1, size / 2], or without the third axis, of which one repeats numbers."""
    match = _TWICE.match(table)
    if match is None or not is_float32(table, *match) or not is_known(table, *match):
        return None
    source, one, two = match
    batch, length, _, size = x.shape
    half = Dim(int(size) // 2)
    of = table.shape[0] if table.rank else None
    lead = [of, length, 1]
    fits = (
        of in (1, batch)
        and [*table.shape] == [*lead, size]
        and [*one.shape] == [*lead, half, 1]
        and [*two.shape] == [*lead, half, 2]
        and [*source.shape] in ([*lead, half], [*lead[:2], half])
    )
    return source if fits else None
