"""Fuse attention written as matrix products, a softmax and moves of axes, as exporters and `Graph.export` write it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.match import Pattern, either, op
from graphcore.ir.transform.ranges import range_of
from graphcore.ir.transform.rewrite import Inputs
from graphcore.ir.transform.walk import node_of
from graphcore.operators import Trait, having
from graphcore.passes.sweep import Sweep
from graphcore.runtime.fusions.matching import factor_of, floats, is_float32, is_known, number_of, value_of, vector
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


def _exact_softmax(scores: Symbol, nan: Symbol, zero: Symbol) -> Symbol:
    any_nan = op("ReduceMax", op("Cast", op("IsNaN", scores), to=DType.uint8), 3, keepdims=1)
    greatest = op("Where", op("Cast", any_nan, to=DType.bool), nan, op("ReduceMax", scores, 3, keepdims=1))
    is_hidden = op("Equal", greatest, -np.inf)
    finite = op("Where", is_hidden, 0.0, greatest)
    loses_sign = op("And", is_hidden, op("Less", op("Reciprocal", zero), 0.0))
    sign = op("Where", op("And", loses_sign, op("Greater", op("Reciprocal", finite), 0.0)), -1.0, 1.0)
    parts = op("Exp", op("Sub", scores, op("Mul", finite, sign)))
    return op("Div", parts, op("Where", is_hidden, 1.0, op("ReduceSum", parts, 3, keepdims=1)))


def _visible(mask: Symbol, added: Symbol, lengths: Symbol, end: Symbol) -> tuple[Symbol, ...]:
    is_before_end = op("Less", op("Range", 0, end, 1), op("Unsqueeze", lengths, ...))
    is_seen = either(op("Not", op("Equal", added, -np.inf)), mask)
    return either(is_before_end, op("And", is_seen, is_before_end), is_seen), is_before_end


_EXACT_SOFTMAX = Pattern(_exact_softmax, nan=lambda s: str(number_of(s)) == "nan", zero=lambda s: number_of(s) == 0)
"""The nodes that `Graph.export` writes for the softmax of Attention, which is 0 for queries that see no key."""
_MASKED = Pattern(
    lambda visible, scores, true: either(op("Where", op("Xor", visible, true), -np.inf, scores), scores),
    true=lambda s: str(value_of(s)) == "True",
)
_VISIBLE = Pattern(_visible)
_SAME_SIZES = Pattern(
    lambda x, zeros: op("Reshape", x, zeros, allowzero=0), zeros=lambda s: str(value_of(s)) == "[0 0 0 0]"
)
"""The node that `Graph.export` writes for a BitCast to the same dtype; it keeps optimisers from merging nodes."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """q, k, v: [batch, heads, sequence, size], of which k and v may have fewer heads. mask: added to the
    scores, or bools. lengths: numbers of keys of the items of the batch."""

    q: Symbol
    k: Symbol
    v: Symbol
    mask: Symbol | None
    scale: float
    lengths: Symbol | None = None


def attention(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return softmax(q @ k.T * scale + mask) @ v, of which the node is the last MatMul, as one Attention."""
    parts = _matched(sweep, node, inputs)
    result = None if parts is None else _fused(sweep, node, parts)
    return None if _is_slower(result) else result


def restored(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return the Attention that `Graph.export` writes in primitives, of which the node is the last MatMul.

    A file that someone changed there does not match, and computes what it says.
    """
    weights, v = inputs
    softmax = _EXACT_SOFTMAX.match(weights)
    if softmax is None:
        return None
    visible, scores, _ = _MASKED.match(softmax[0]) or (None, None, None)
    parts = _of_scores(sweep, node, scores, v)
    mask, added, lengths, _, is_before_end = _VISIBLE.match(visible) or (None,) * 5
    if parts is None or parts.mask is not added or (mask is not None and not is_mask(mask, parts.q)):
        return None
    if lengths is not None:
        batch, keys = parts.q.shape[0], parts.k.shape[2]
        expected = tensor_type(DType.bool, _shape([batch, Dim(1), Dim(1), keys]))
        if is_before_end.type is not expected or lengths.type is not tensor_type(DType.int64, _shape([batch])):
            return None
    return _fused(sweep, node, replace(parts, mask=added if mask is None else mask, lengths=lengths))


def _fused(sweep: Sweep, node: Node, parts: _Parts) -> Symbol | None:
    q, k, v, mask = parts.q, parts.k, parts.v, parts.mask
    result = floats(*[*q.shape][:3], v.shape[3])
    if result is not node.outputs[0].type:
        return None
    if mask is not None:
        mask = for_kernel(sweep, node, mask, k)
    heads, kv_heads = q.shape[1], k.shape[1]
    rows = [row for row in map(_packed, (q, k, v)) if row is not None]
    is_packed = len(rows) == 3 and heads.is_static
    if is_packed:
        q, k, v = rows
    more: Inputs = () if mask is None else (mask,)
    if parts.lengths is not None:
        # The kernel refuses a length that is not between 0 and the number of keys.
        count = sweep.add(node, "Shape", (k,), vector(1), {"start": k.rank - 2, "end": k.rank - 1})
        least = sweep.add(node, "Max", (parts.lengths, sweep.constant(node, np.array(0))), parts.lengths.type)
        more = (mask, None, None, sweep.add(node, "Min", (least, count), parts.lengths.type))
    if not is_packed:
        return sweep.add(node, "Attention", (q, k, v, *more), result, {"scale": parts.scale})
    batch, _, length, size = result.shape
    attributes = {"scale": parts.scale, "q_num_heads": int(heads), "kv_num_heads": int(kv_heads)}
    attention = sweep.add(node, "Attention", (q, k, v, *more), floats(batch, length, heads * size), attributes)
    # The next nodes usually undo these two, and optimisation then removes both.
    shape = sweep.constant(node, np.array([0, 0, int(heads), int(size)], np.int64))
    apart = sweep.add(node, "Reshape", (attention, shape), floats(batch, length, heads, size), {"allowzero": 0})
    return sweep.add(node, "Transpose", (apart,), result, {"perm": _SWAPPED})


def _is_slower(result: Symbol | None) -> bool:
    """Return True for bools of each head, with which the operator takes 1.14 to 1.18 of the primitives' time on 1.31.1
    and 1.05 to 1.10 on 1.32: of all heads 0.78 to 0.86, of one query 0.90, and in rows of all heads 0.81 to 1.04."""
    node = node_of(result, "Attention")
    q, mask = (None, None) if node is None else (node.inputs[0], (*node.inputs, None)[3])
    if q is None or mask is None:
        return False
    return mask.dtype is DType.bool and mask.rank == 4 and mask.shape[1] != 1 and q.shape[2] != 1


def _matched(sweep: Sweep, node: Node, inputs: Inputs) -> _Parts | None:
    weights, v = inputs
    guarded = _GUARDED.match(weights)
    softmax = node_of(weights if guarded is None else guarded[0], "Softmax")
    if softmax is None or softmax.attributes.get("axis", -1) not in (-1, 3):
        return None
    parts = _of_scores(sweep, node, softmax.inputs[0], v)
    if parts is None or (parts.mask is not None and guarded is None and not is_finite(parts.mask)):
        return None
    return parts


def _of_scores(sweep: Sweep, node: Node, symbol: Symbol | None, v: Symbol | None) -> _Parts | None:
    """Return the parts of an attention by the operand of its softmax, and the values."""
    if symbol is None or not is_float32(v, symbol) or v is None or v.rank != 4 or not is_known(v):
        return None
    scores = _scores(symbol)
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
    once = _unrepeated(k), _unrepeated(v)
    if once[0].shape[1] == once[1].shape[1] != q.shape[1]:
        k, v = once
    return _Parts(q, k, v, sum_of(sweep, node, masks), scale)


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
    same = _SAME_SIZES.match(symbol)
    return (symbol if same is None else same[0]), whole


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
    """Return True if the operator takes a mask: float32 or bools of two to four axes, each dim 1 or that of the scores.

    The last dim may be unknown, since it cannot be any other.
    """
    if not is_float32(mask, other=DType.bool) or not 2 <= mask.rank <= 4:
        return False
    wanted = [*q.shape][:3][4 - mask.rank :]
    return all(d == 1 or d == w for d, w in zip([*mask.shape][:-1], wanted, strict=True))


def is_finite(mask: Symbol) -> bool:
    """Return True if a mask is certainly nowhere -inf: for a row of -inf a softmax gives NaN, and the operator 0."""
    values = range_of(mask, weights=True)
    return values is not None and not values.may_be_nan and values.low >= _LEAST


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
