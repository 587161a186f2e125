"""Fuse attention written as matrix products, a softmax and moves of axes, as exporters write it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.match import Pattern, either, op
from graphcore.ir.transform.ranges import range_of
from graphcore.ir.transform.rewrite import Inputs
from graphcore.ir.transform.walk import node_of
from graphcore.operators import Trait, having
from graphcore.passes.sweep import Sweep
from graphcore.runtime.fusions.matching import factor_of, floats, is_float32, is_known, number_of, vector
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

_SWAPPED = [0, 2, 1, 3]
"""Swaps heads and sequence."""

_GUARDED = Pattern(lambda weights: op("Where", op("IsNaN", weights), 0.0, weights))
"""PyTorch's exporter writes this for queries without any key, whose softmax is NaN."""
_KEYS = Pattern(lambda k: op("Transpose", k, perm=[0, 1, 3, 2]))
_SWAPPED_KEYS = Pattern(lambda k: op("Transpose", k, perm=[0, 2, 3, 1]))
_FLAT_KEYS = Pattern(lambda k: op("Reshape", op("Transpose", k, perm=[0, 2, 1]), ...), k=is_float32)
"""Batch and heads in one axis: PyTorch's exporter transposes like this."""
_HEADS = Pattern(lambda rows: op("Transpose", op("Reshape", rows, ...), perm=_SWAPPED), rows=is_float32)
_RESHAPED = Pattern(lambda x: either(*[op(name, x, ...) for name in sorted(having(Trait.VIEWS))]))


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
        if any(mask is not None and _is_slower(parts, mask) for mask in masks):
            return None
        return sweep.add(node, "Attention", (parts.q, parts.k, parts.v, *masks), result, {"scale": parts.scale})
    operands = (*packed, *masks)
    batch, _, length, size = result.shape
    attributes = {"scale": parts.scale, "q_num_heads": int(heads), "kv_num_heads": int(kv_heads)}
    attention = sweep.add(node, "Attention", operands, floats(batch, length, heads * size), attributes)
    # The next nodes usually undo these two, and optimisation then removes both.
    shape = sweep.constant(node, np.array([0, 0, int(heads), int(size)], np.int64))
    apart = sweep.add(node, "Reshape", (attention, shape), floats(batch, length, heads, size), {"allowzero": 0})
    return sweep.add(node, "Transpose", (apart,), result, {"perm": _SWAPPED})


def _is_slower(parts: _Parts, mask: Symbol) -> bool:
    """Return True for bools of each head, with which the operator takes 1.14 to 1.18 of the primitives' time on 1.31.1
    and 1.05 to 1.10 on 1.32: of all heads 0.78 to 0.86, of one query 0.90, and in rows of all heads 0.81 to 1.04."""
    return mask.dtype is DType.bool and mask.rank == 4 and mask.shape[1] != 1 and parts.q.shape[2] != 1


def _matched(sweep: Sweep, node: Node, inputs: Inputs) -> _Parts | None:
    weights, v = inputs
    guarded = _GUARDED.match(weights)
    weights = weights if guarded is None else guarded[0]
    softmax = node_of(weights, "Softmax")
    if softmax is None or not is_float32(v, weights) or v is None or v.rank != 4 or not is_known(v):
        return None
    if softmax.attributes.get("axis", -1) not in (-1, 3):
        return None
    scores = _scores(softmax.inputs[0])
    if scores is None:
        return None
    product, scale, masks = scores
    (q, q_factor), (turned, turned_factor) = (factor_of(s) for s in product.inputs)
    k, k_factor = factor_of(_keys(sweep, node, turned))
    scale *= q_factor * turned_factor * k_factor
    if k is None or q is None or not is_float32(q, k) or q.rank != 4 or k.rank != 4 or not is_known(q, k):
        return None
    if not 0 < scale < float("inf") or not _go_together(q, k, v) or not v.shape[3].is_static:
        return None
    if not all(is_mask(mask, q) for mask in masks):
        return None
    mask = sum_of(sweep, node, masks)
    if mask is not None and guarded is None and not is_finite(mask):
        return None
    once = _unrepeated(k), _unrepeated(v)
    if once[0].shape[1] == once[1].shape[1] != q.shape[1]:
        k, v = once
    return _Parts(q, k, v, mask, scale)


def _keys(sweep: Sweep, at: Node, symbol: Symbol | None) -> Symbol | None:
    """Return the keys whose last two axes a Symbol swaps."""
    if (match := _KEYS.match(symbol)) is not None:
        k: Symbol = match[0]
        return k
    if symbol is None or not is_float32(symbol) or symbol.rank != 4:
        return None
    a, b, size, length = symbol.shape
    wanted = floats(a, b, length, size)
    if (match := _SWAPPED_KEYS.match(symbol)) is not None:
        return sweep.add(at, "Transpose", match, wanted, {"perm": _SWAPPED})
    match = _FLAT_KEYS.match(symbol)
    if match is None or not is_known(symbol, *match) or [*match[0].shape] != [a * b, length, size]:
        return None
    flat = match[0]
    apart = node_of(flat, "Reshape")
    if apart is not None and apart.inputs[0] is not None and apart.inputs[0].type is wanted:
        return apart.inputs[0]
    sizes = sweep.add(at, "Shape", (symbol,), vector(4), {})
    sizes = sweep.add(at, "Gather", (sizes, sweep.constant(at, np.array([0, 1, 3, 2]))), vector(4), {"axis": 0})
    return sweep.add(at, "Reshape", (flat, sizes), wanted, {"allowzero": 1})


def _go_together(q: Symbol, k: Symbol, v: Symbol) -> bool:
    """Return True if operands do not broadcast, except keys and values of one head."""
    (batch, heads, _, size), (_, own, length, _) = q.shape, k.shape
    fits = [*k.shape] == [batch, own, length, size] and [*v.shape][:3] == [batch, own, length]
    return fits and (own == heads or own == 1) and not any(d == 0 for s in (q, k, v) for d in s.shape)


def _unrepeated(symbol: Symbol) -> Symbol:
    """Return the heads that a Symbol repeats, each several times in a row; the Symbol itself if it repeats none."""
    match = _REPEATED.match(symbol)
    if match is None or not is_float32(*match) or not is_known(*match):
        return symbol
    x, one, many = match
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
    """Return the rows [batch, sequence, heads * size] that a Symbol [batch, heads, sequence, size] reshapes."""
    match = _HEADS.match(symbol)
    rows: Symbol | None = None if match is None else match[0]
    if rows is None or rows.rank != 3 or not is_known(rows):
        return None
    batch, heads, length, size = symbol.shape
    is_flat = size.is_static and heads.is_static and [*rows.shape] == [batch, length, heads * size]
    return rows if is_flat else None


def cancelled(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return a Symbol that already has the shape of a Reshape's result: its operand, or the operand's source."""
    source: Symbol | None
    match = _RESHAPED.match(inputs[0]) or ()
    for source in (inputs[0], *match):
        if source is not None and source.type is node.outputs[0].type and is_known(source):
            return source
    return None


# Take the scores of an attention apart: the product, its factors and the masks that are added before the softmax.

_LEAST = float(np.finfo(np.float32).min)
_ABOVE_LEAST = np.nextafter(np.float32(_LEAST), np.float32(0))
_MAX_MASKS = 4
"""Maximum number of masks that are added one after the other."""

_CHOICE = Pattern(lambda keep, zero, hidden: op("Where", keep, zero, hidden), zero=lambda s: number_of(s) == 0)


def _scores(symbol: Symbol | None) -> tuple[Node, float, tuple[Symbol, ...]] | None:
    """Return product, scale and masks of product * scale + masks; None if scores do not have this form."""
    masks: tuple[Symbol, ...] = ()
    while (total := node_of(symbol, "Add")) is not None:
        for own, mask in (total.inputs, total.inputs[::-1]):
            if mask is not None and _leads_to_product(own, _MAX_MASKS) and _keeps_shape(own, total.outputs[0]):
                symbol, masks = own, (mask, *masks)
                break
        else:
            return None
        if len(masks) > _MAX_MASKS:
            return None
    scaled, scale = _factors(symbol)
    product = node_of(scaled, "MatMul")
    return None if product is None else (product, scale, masks)


def _leads_to_product(symbol: Symbol | None, max_terms: int) -> bool:
    """Return True if an operand of a sum is the scores, and not a mask."""
    factor = _factors(symbol)[0]
    if node_of(factor, "MatMul") is not None:
        return True
    total = node_of(factor, "Add") if factor is symbol else None
    return total is not None and max_terms > 0 and any(_leads_to_product(s, max_terms - 1) for s in total.inputs)


def _factors(symbol: Symbol | None) -> tuple[Symbol | None, float]:
    """Return an operand and the product of the numbers that it is multiplied with."""
    symbol, whole = factor_of(symbol)
    while whole and (factor := factor_of(symbol))[0] is not symbol:
        symbol, whole = factor[0], whole * factor[1]
    return symbol, whole


def _keeps_shape(own: Symbol | None, total: Symbol) -> bool:
    """Return True if only the mask broadcasts in a sum. The number of keys in it may be unknown: the product with the
    values determines it."""
    if own is None or own.type is total.type:
        return own is not None
    if not is_float32(own, total) or own.rank != total.rank or own.rank < 1:
        return False
    return [*own.shape][:-1] == [*total.shape][:-1] and total.shape[-1].is_dynamic


def sum_of(sweep: Sweep, node: Node, masks: tuple[Symbol, ...]) -> Symbol | None:
    """Return the sum of masks that each fit the scores; None if there are none."""
    whole = masks[0] if masks else None
    for mask in masks[1:]:
        assert whole is not None
        whole = sweep.add(node, "Add", (whole, mask), floats(*_broadcast(whole, mask)))
    return whole


def _broadcast(a: Symbol, b: Symbol) -> list[Dim]:
    rank = max(a.rank, b.rank)
    shapes = [[Dim(1)] * (rank - s.rank) + [*s.shape] for s in (a, b)]
    return [y if x == 1 else x if y == 1 or x == y else Dim.dynamic() for x, y in zip(*shapes, strict=True)]


def is_mask(mask: Symbol, q: Symbol) -> bool:
    """Return True if the operator takes a mask: float32 of two to four axes, each dim 1 or that of the scores.

    The last dim may be unknown, since it cannot be any other.
    """
    if not is_float32(mask) or not 2 <= mask.rank <= 4:
        return False
    wanted = [*q.shape][:3][4 - mask.rank :]
    return all(d == 1 or d == w for d, w in zip([*mask.shape][:-1], wanted, strict=True))


def is_finite(mask: Symbol) -> bool:
    """Return True if a mask is certainly nowhere -inf: for a row of -inf a softmax gives NaN, and the operator 0."""
    values = range_of(mask, weights=True)
    return values is not None and not values.has_nan and values.least >= _LEAST


def for_kernel(sweep: Sweep, node: Node, mask: Symbol, k: Symbol) -> Symbol:
    """Return a mask of all keys with which onnxruntime's kernel computes what the primitives compute: it treats the
    least float32 as -inf, and takes bools instead of -inf."""
    mask = _without_least(sweep, node, mask)
    keys = k.shape[2]
    if mask.shape[-1] == 1 or mask.shape[-1] == keys:
        return mask
    one = sweep.constant(node, np.ones(mask.rank - 1, np.int64))
    count = sweep.add(node, "Shape", (k,), vector(1), {"start": 2, "end": 3})
    target = sweep.add(node, "Concat", (one, count), vector(mask.rank), {"axis": 0})
    type_ = tensor_type(mask.dtype, _shape([*[*mask.shape][:-1], keys]))
    return sweep.add(node, "Expand", (mask, target), type_)


def _without_least(sweep: Sweep, node: Node, mask: Symbol) -> Symbol:
    match = _CHOICE.match(mask)
    if match is None or match[0].shape != mask.shape:
        return mask
    keep, zero, hidden = match
    if number_of(hidden) == -np.inf:
        condition: Symbol = keep
        return condition
    if number_of(hidden) != _LEAST:
        return mask
    # A score added to either number rounds to it, and the exponential of both is 0.
    least = sweep.constant(node, np.asarray(_ABOVE_LEAST))
    return sweep.add(node, "Where", (keep, zero, least), mask.type)
