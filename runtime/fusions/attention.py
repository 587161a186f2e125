"""Fuse attention written as matrix products, a softmax and moves of axes, as exporters write it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.match import Pattern, either, op
from graphcore.passes.sweep import Inputs, Sweep
from graphcore.runtime.fusions.masks import for_kernel, is_finite, is_mask, scores_of, sum_of
from graphcore.runtime.fusions.matching import factor_of, floats, is_float32, is_known, node_of, vector
from graphcore.types.dtypes import DType

_SWAPPED = [0, 2, 1, 3]
"""Swaps heads and sequence."""

_GUARDED = Pattern(lambda weights: op("Where", op("IsNaN", weights), 0.0, weights))
"""PyTorch's exporter writes this for queries without any key, whose softmax is NaN."""
_KEYS = Pattern(lambda k: op("Transpose", k, perm=[0, 1, 3, 2]))
_SWAPPED_KEYS = Pattern(lambda k: op("Transpose", k, perm=[0, 2, 3, 1]))
_FLAT_KEYS = Pattern(lambda k: op("Reshape", op("Transpose", k, perm=[0, 2, 1]), ...), k=is_float32)
"""Batch and heads in one axis: PyTorch's exporter transposes like this."""
_HEADS = Pattern(lambda rows: op("Transpose", op("Reshape", rows, ...), perm=_SWAPPED), rows=is_float32)
_RESHAPED = Pattern(lambda x: either(*[op(name, x, ...) for name in ("Reshape", "Unsqueeze", "Squeeze", "Flatten")]))


def _repeated(x: Symbol) -> tuple[Symbol, ...]:
    one = either(op("Unsqueeze", x, ...), op("Reshape", x, ...))
    many = op("Expand", one, ...)
    return op("Reshape", many, ...), one, many


_REPEATED = Pattern(_repeated, x=is_float32)


@dataclass(frozen=True, slots=True)
class _Parts:
    """q, k, v: [batch, heads, sequence, size], of which k and v may have fewer heads. mask: added to the scores."""

    q: Symbol
    k: Symbol
    v: Symbol
    mask: Symbol | None
    scale: float


@dataclass(frozen=True, slots=True)
class _Slower:
    """A form that the operator computes slower. holds: whether it is one, by its parts and the operator's mask, where
    heads are apart. reason: the measured time, as a part of that of the primitives."""

    holds: Callable[[_Parts, Symbol], bool]
    reason: str


_SLOWER = (
    _Slower(
        lambda parts, mask: (
            mask.dtype is DType.bool and mask.rank == 4 and mask.shape[1] != 1 and parts.q.shape[2] != 1
        ),
        "bools of each head: 1.14 to 1.18 on 1.31.1, 1.05 to 1.10 on 1.32; of all heads 0.78 to 0.86, one query 0.90",
    ),
)
"""The forms that stay as they are. Rows of heads and sizes in one are faster even so: 0.81 to 1.04."""


def attention(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return softmax(q @ k.T * scale + mask) @ v, of which the node is the last MatMul, as one Attention."""
    parts = _matched(sweep, node, inputs)
    if parts is None:
        return None
    masks: Inputs = () if parts.mask is None else (for_kernel(sweep, node, parts.mask, parts.k),)
    result = floats(*[*parts.q.shape][:3], parts.v.shape[3])
    if result is not node.outputs[0].type:
        return None
    packed = tuple([_packed(s) for s in (parts.q, parts.k, parts.v)])
    heads, kv_heads = parts.q.shape[1], parts.k.shape[1]
    if any(s is None for s in packed) or not heads.is_static:
        if any(slower.holds(parts, mask) for slower in _SLOWER for mask in masks if mask is not None):
            return None
        return sweep.add(node, "Attention", (parts.q, parts.k, parts.v, *masks), result, {"scale": parts.scale})
    operands = (*packed, *masks)
    batch, _, length, size = result.shape
    attributes = {"scale": parts.scale, "q_num_heads": int(heads), "kv_num_heads": int(kv_heads)}
    made = sweep.add(node, "Attention", operands, floats(batch, length, heads * size), attributes)
    # What follows undoes these two as a rule, and then neither is left.
    shape = sweep.constant(node, np.array([0, 0, int(heads), int(size)], np.int64))
    apart = sweep.add(node, "Reshape", (made, shape), floats(batch, length, heads, size), {"allowzero": 0})
    return sweep.add(node, "Transpose", (apart,), result, {"perm": _SWAPPED})


def _matched(sweep: Sweep, node: Node, inputs: Inputs) -> _Parts | None:
    weights, v = inputs
    guarded = _GUARDED.match(weights)
    weights = weights if guarded is None else guarded[0]
    softmax = node_of(weights, "Softmax")
    if softmax is None or not is_float32(v, weights) or v is None or v.rank != 4 or not is_known(v):
        return None
    if softmax.attributes.get("axis", -1) not in (-1, 3):
        return None
    scores = scores_of(softmax.inputs[0])
    if scores is None:
        return None
    (q, q_factor), (turned, turned_factor) = (factor_of(s) for s in scores.product.inputs)
    k, k_factor = factor_of(_keys(sweep, node, turned))
    scale = scores.scale * q_factor * turned_factor * k_factor
    if k is None or q is None or not is_float32(q, k) or q.rank != 4 or k.rank != 4 or not is_known(q, k):
        return None
    if not 0 < scale < float("inf") or not _go_together(q, k, v) or not v.shape[3].is_static:
        return None
    if not all(is_mask(mask, q) for mask in scores.masks):
        return None
    mask = sum_of(sweep, node, scores.masks)
    if mask is not None and guarded is None and not is_finite(mask):
        return None
    once = _unrepeated(k), _unrepeated(v)
    if once[0].shape[1] == once[1].shape[1] != q.shape[1]:
        k, v = once
    return _Parts(q, k, v, mask, scale)


def _keys(sweep: Sweep, at: Node, symbol: Symbol | None) -> Symbol | None:
    """Return the keys of which a Symbol is the transpose: its last two axes change places."""
    if (found := _KEYS.match(symbol)) is not None:
        k: Symbol = found[0]
        return k
    if symbol is None or not is_float32(symbol) or symbol.rank != 4:
        return None
    a, b, size, length = symbol.shape
    wanted = floats(a, b, length, size)
    if (found := _SWAPPED_KEYS.match(symbol)) is not None:
        return sweep.add(at, "Transpose", found, wanted, {"perm": _SWAPPED})
    found = _FLAT_KEYS.match(symbol)
    if found is None or not is_known(symbol, *found) or [*found[0].shape] != [a * b, length, size]:
        return None
    flat = found[0]
    apart = node_of(flat, "Reshape")
    if apart is not None and apart.inputs[0] is not None and apart.inputs[0].type is wanted:
        return apart.inputs[0]
    sizes = sweep.add(at, "Shape", (symbol,), vector(4), {})
    sizes = sweep.add(at, "Gather", (sizes, sweep.constant(at, np.array([0, 1, 3, 2]))), vector(4), {"axis": 0})
    return sweep.add(at, "Reshape", (flat, sizes), wanted, {"allowzero": 1})


def _go_together(q: Symbol, k: Symbol, v: Symbol) -> bool:
    """Return whether operands do not broadcast, except keys and values of one head."""
    (batch, heads, _, size), (_, own, length, _) = q.shape, k.shape
    fits = [*k.shape] == [batch, own, length, size] and [*v.shape][:3] == [batch, own, length]
    return fits and (own == heads or own == 1) and not any(d == 0 for s in (q, k, v) for d in s.shape)


def _unrepeated(symbol: Symbol) -> Symbol:
    """Return the heads of which a Symbol has each several times in a row, the Symbol itself if there are none."""
    found = _REPEATED.match(symbol)
    if found is None or not is_float32(*found) or not is_known(*found):
        return symbol
    x, one, many = found
    if x.rank != 4 or many.rank != 5:
        return symbol
    batch, heads, length, size = x.shape
    count = many.shape[2]
    fits = (
        [*one.shape] == [batch, heads, 1, length, size]
        and [*many.shape] == [batch, heads, count, length, size]
        and [*symbol.shape] == [batch, heads * count, length, size]
    )
    return x if fits and heads.is_static and count.is_static else symbol


def _packed(symbol: Symbol) -> Symbol | None:
    """Return [batch, sequence, heads * size], of which a Symbol is [batch, heads, sequence, size]."""
    found = _HEADS.match(symbol)
    rows: Symbol | None = None if found is None else found[0]
    if rows is None or rows.rank != 3 or not is_known(rows):
        return None
    batch, heads, length, size = symbol.shape
    is_flat = size.is_static and heads.is_static and [*rows.shape] == [batch, length, heads * size]
    return rows if is_flat else None


def cancelled(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return what has the shape already that a Reshape gives: its operand, or what that was reshaped from."""
    source: Symbol | None
    found = _RESHAPED.match(inputs[0]) or ()
    for source in (inputs[0], *found):
        if source is not None and source.type is node.outputs[0].type and is_known(source):
            return source
    return None
