"""Attention written as products, a softmax and moves of axes: as exporters write it, and users who know no better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.passes.sweep import Inputs, Sweep
from graphcore.runtime.fusions.masks import as_taken, fits, is_finite, mask_of, scores_of
from graphcore.runtime.fusions.matching import factor_of, is_float32, is_known, node_of, number_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape, tensor_type

_SWAPPED = [0, 2, 1, 3]
"""Heads before or behind the sequence."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """q, k, v: [batch, heads, sequence, size], of which k and v may have fewer heads. mask: added to the scores."""

    q: Symbol
    k: Symbol
    v: Symbol
    mask: Symbol | None
    scale: float


def attention(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """softmax(q @ k.T * scale + mask) @ v, the MatMul at its end being looked at, as one Attention."""
    parts = _matched(sweep, node, inputs)
    if parts is None:
        return None
    mask = as_taken(sweep, node, parts.mask, parts.k)
    masks: Inputs = () if mask is None else (mask,)
    result = tensor_type(DType.float32, _shape([*[*parts.q.shape][:3], parts.v.shape[3]]))
    if result is not node.outputs[0].type:
        return None
    packed = tuple([_packed(s) for s in (parts.q, parts.k, parts.v)])
    heads, kv_heads = parts.q.shape[1], parts.k.shape[1]
    if any(s is None for s in packed) or not heads.is_static:
        return sweep.add(node, "Attention", (parts.q, parts.k, parts.v, *masks), result, {"scale": parts.scale})
    operands = (*packed, *masks)
    batch, _, length, size = result.shape
    attributes = {"scale": parts.scale, "q_num_heads": int(heads), "kv_num_heads": int(kv_heads)}
    flat = tensor_type(DType.float32, _shape([batch, length, heads * size]))
    made = sweep.add(node, "Attention", operands, flat, attributes)
    # What follows undoes these two as a rule, and then nothing is left of either.
    shape = sweep.constant(node, np.array([0, 0, int(heads), int(size)], np.int64))
    apart = tensor_type(DType.float32, _shape([batch, length, heads, size]))
    apart_heads = sweep.add(node, "Reshape", (made, shape), apart, {"allowzero": 0})
    return sweep.add(node, "Transpose", (apart_heads,), result, {"perm": _SWAPPED})


def _matched(sweep: Sweep, node: Node, inputs: Inputs) -> _Parts | None:
    weights, v = inputs
    weights, is_zeroed = _zeroed(weights)
    softmax = node_of(weights, "Softmax")
    if softmax is None or not is_float32(v, weights) or v is None or v.rank != 4 or not is_known(v):
        return None
    if softmax.attributes.get("axis", -1) not in (-1, 3):
        return None
    scores = scores_of(softmax.inputs[0])
    if scores is None:
        return None
    (q, q_factor), (turned, turned_factor) = (factor_of(s) for s in scores.product.inputs)
    k, k_factor = factor_of(_turned(sweep, node, turned))
    scale = scores.scale * q_factor * turned_factor * k_factor
    if k is None or q is None or not is_float32(q, k) or q.rank != 4 or k.rank != 4 or not is_known(q, k):
        return None
    if not 0 < scale < float("inf") or not _go_together(q, k, v) or not v.shape[3].is_static:
        return None
    if not all(fits(mask, q) for mask in scores.masks):
        return None
    mask = mask_of(sweep, node, scores.masks)
    if mask is not None and not is_zeroed and not is_finite(mask):
        return None
    once = _shared(k), _shared(v)
    if once[0].shape[1] == once[1].shape[1] != q.shape[1]:
        k, v = once
    return _Parts(q, k, v, mask, scale)


def _zeroed(weights: Symbol | None) -> tuple[Symbol | None, bool]:
    """Weights with 0 in place of NaN, which a query without any key has: what PyTorch's exporter writes."""
    choice = node_of(weights, "Where")
    test = None if choice is None else node_of(choice.inputs[0], "IsNaN")
    if choice is None or test is None or number_of(choice.inputs[1]) != 0 or test.inputs[0] is not choice.inputs[2]:
        return weights, False
    return choice.inputs[2], True


def _turned(sweep: Sweep, at: Node, symbol: Symbol | None) -> Symbol | None:
    """The keys of which a Symbol is the transpose: its last two axes change places."""
    node = node_of(symbol, "Transpose")
    if node is not None and node.attributes.get("perm") == [0, 1, 3, 2]:
        return node.inputs[0]
    if node is not None and node.attributes.get("perm") == [0, 2, 3, 1] and is_float32(symbol) and symbol is not None:
        batch, heads, size, length = symbol.shape
        type_ = tensor_type(DType.float32, _shape([batch, heads, length, size]))
        return sweep.add(at, "Transpose", node.inputs, type_, {"perm": _SWAPPED})
    # The same with the two first axes as one, which is how PyTorch's exporter transposes.
    outer = node_of(symbol, "Reshape")
    inner = None if outer is None else node_of(outer.inputs[0], "Transpose")
    middle = None if inner is None or inner.attributes.get("perm") != [0, 2, 1] else inner.inputs[0]
    if middle is None or symbol is None or not is_float32(middle, symbol) or not is_known(middle, symbol):
        return None
    if symbol.rank != 4 or middle.rank != 3:
        return None
    a, b, size, length = symbol.shape
    if [*middle.shape] != [a * b, length, size]:
        return None
    wanted = tensor_type(DType.float32, _shape([a, b, length, size]))
    first = node_of(middle, "Reshape")
    if first is not None and first.inputs[0] is not None and first.inputs[0].type is wanted:
        return first.inputs[0]
    four = tensor_type(DType.int64, _shape([Dim(4)]))
    sizes = sweep.add(at, "Shape", (symbol,), four, {})
    sizes = sweep.add(at, "Gather", (sizes, sweep.constant(at, np.array([0, 1, 3, 2]))), four, {"axis": 0})
    return sweep.add(at, "Reshape", (middle, sizes), wanted, {"allowzero": 1})


def _go_together(q: Symbol, k: Symbol, v: Symbol) -> bool:
    """Whether nothing of them broadcasts, but for keys and values of one head."""
    (batch, heads, _, size), (_, own, length, _) = q.shape, k.shape
    fits = [*k.shape] == [batch, own, length, size] and [*v.shape][:3] == [batch, own, length]
    return fits and (own == heads or own == 1) and not any(d == 0 for s in (q, k, v) for d in s.shape)


def _shared(symbol: Symbol) -> Symbol:
    """The heads of which each is there several times in a row, or the Symbol itself."""
    whole = node_of(symbol, "Reshape")
    expanded = None if whole is None else node_of(whole.inputs[0], "Expand")
    apart = None if expanded is None else node_of(expanded.inputs[0], "Unsqueeze", "Reshape")
    source = None if apart is None else apart.inputs[0]
    if expanded is None or apart is None or source is None or not is_float32(source) or source.rank != 4:
        return symbol
    batch, heads, length, size = source.shape
    one, many = apart.outputs[0], expanded.outputs[0]
    if not is_float32(one, many) or not is_known(source, one, many) or many.rank != 5:
        return symbol
    count = many.shape[2]
    fits = (
        [*one.shape] == [batch, heads, Dim(1), length, size]
        and [*many.shape] == [batch, heads, count, length, size]
        and [*symbol.shape] == [batch, heads * count, length, size]
    )
    return source if fits and heads.is_static and count.is_static else symbol


def _packed(symbol: Symbol) -> Symbol | None:
    """[batch, sequence, heads * size], of which heads were made and brought to the front."""
    turned = node_of(symbol, "Transpose")
    if turned is None or turned.attributes.get("perm") != _SWAPPED:
        return None
    apart = node_of(turned.inputs[0], "Reshape")
    whole = None if apart is None else apart.inputs[0]
    if whole is None or not is_float32(whole) or whole.rank != 3 or not is_known(whole):
        return None
    batch, heads, length, size = symbol.shape
    is_flat = size.is_static and heads.is_static and [*whole.shape] == [batch, length, heads * size]
    return whole if is_flat else None


def cancelled(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """A Reshape of what was reshaped from that shape, or of what has that shape."""
    if inputs[0] is not None and inputs[0].type is node.outputs[0].type and is_known(inputs[0]):
        return inputs[0]
    inner: Any = node_of(inputs[0], "Reshape", "Unsqueeze", "Squeeze", "Flatten")
    source: Symbol | None = None if inner is None else inner.inputs[0]
    type_ = node.outputs[0].type
    if source is None or source.type is not type_ or not isinstance(type_, TensorType) or not is_known(source):
        return None
    return source
