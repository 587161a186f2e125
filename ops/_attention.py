"""What attention and rotary embeddings are made of, for dtypes that no kernel computes in."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcore.declare import expansion
from graphcore.dims import Dim
from graphcore.dtypes import DType
from graphcore.ops import _emit as e
from graphcore.ops._dims import Axis, Size, shape_vector
from graphcore.symbol import Symbol
from graphcore.types import _shape, tensor_type

ONE = Dim(1)


@expansion("Attention")
def _attention(
    q: Symbol,
    k: Symbol,
    v: Symbol,
    attn_mask: Symbol | None = None,
    past_key: Symbol | None = None,
    past_value: Symbol | None = None,
    nonpad_kv_seqlen: Symbol | None = None,
    *,
    is_causal: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    q_num_heads: int = 0,
    kv_num_heads: int = 0,
) -> Symbol:
    flat = q.rank == 3
    if flat:
        q, k, v = _in_heads(q, q_num_heads), _in_heads(k, kv_num_heads), _in_heads(v, kv_num_heads)
    k, v = _for_each_head(k, q), _for_each_head(v, q)
    turned = e.emit("Transpose", k, shape=_shape([*k.shape[:2], k.shape[3], k.shape[2]]), perm=[0, 1, 3, 2])
    grid = _shape([*q.shape[:3], k.shape[2]])
    scores = e.emit("MatMul", q, turned, shape=grid)
    # onnxruntime draws a constant factor into the product, as a float32; not past a BitCast.
    scores = e.emit("BitCast", scores, shape=grid, to=q.dtype)
    scores = e.emit("Mul", scores, _factor(q, scale), shape=grid)
    if softcap:
        cap = e.const(q, softcap)
        scores = e.emit("Mul", e.emit("Tanh", e.emit("Div", scores, cap, shape=grid)), cap, shape=grid)
    nothing = e.const(q, -math.inf)
    if attn_mask is not None and attn_mask.dtype is not DType.bool:
        scores = e.emit("Add", scores, attn_mask, shape=grid)
    for seen in _seen(q, k, attn_mask, nonpad_kv_seqlen, bool(is_causal)):
        scores = e.emit("Where", seen, scores, nothing, dtype=q.dtype, shape=grid)
    made = e.emit("MatMul", _weights(scores), v, shape=_shape([*q.shape[:3], v.shape[3]]))
    return _side_by_side(made) if flat else made


def _weights(scores: Symbol) -> Symbol:
    """The softmax over keys, with 0 where there are none to see."""
    column = _shape([*scores.shape[:3], ONE])
    last = scores.graph._vector([-1])
    greatest = e.emit("ReduceMax", scores, last, shape=column, keepdims=1)
    zero, one = e.const(scores, 0.0), e.const(scores, 1.0)
    none = e.equal(greatest, e.const(scores, -math.inf))
    parts = e.emit("Exp", e.emit("Sub", scores, e.where(none, zero, greatest), shape=scores.shape))
    total = e.emit("ReduceSum", parts, last, shape=column, keepdims=1)
    return e.emit("Div", parts, e.where(none, one, total), shape=scores.shape)


def _seen(q: Symbol, k: Symbol, mask: Symbol | None, lengths: Symbol | None, is_causal: bool) -> list[Symbol]:
    """Conditions on [batch, heads, queries, keys], all of which a key must meet."""
    conditions = [mask] if mask is not None and mask.dtype is DType.bool else []
    if lengths is None and not is_causal:
        return conditions
    graph = q.graph
    key = _places(k, 2)
    offset = graph._scalar(0, DType.int64)
    if lengths is not None:
        shape = _shape([lengths.shape[0], ONE, ONE, ONE])
        ends = e.emit("Unsqueeze", lengths, graph._vector([1, 2, 3]), shape=shape)
        conditions.append(e.less(key, ends))
        offset = e.emit("Sub", ends, _length(q, 2))
    if is_causal:
        column = _shape([q.shape[2], ONE])
        query = e.emit("Unsqueeze", _places(q, 2), graph._vector([1]), shape=column)
        last = e.emit("Add", query, offset)
        conditions.append(e.emit("LessOrEqual", key, last, dtype=DType.bool))
    return conditions


def _length(x: Symbol, axis: int) -> Symbol:
    """The size of an axis, an int64 scalar."""
    if x.shape[axis].is_static:
        return x.graph._scalar(int(x.shape[axis]), DType.int64)
    return e.emit("Squeeze", shape_vector(x.graph, [Axis(x, axis)]), dtype=DType.int64, shape=_shape([]))


def _places(x: Symbol, axis: int) -> Symbol:
    """0, 1, ... along an axis, int64."""
    zero, one = (x.graph._scalar(n, DType.int64) for n in (0, 1))
    return e.emit("Range", zero, _length(x, axis), one, dtype=DType.int64, shape=_shape([x.shape[axis]]))


def _factor(q: Symbol, scale: float | None) -> Symbol:
    if scale is not None:
        return e.const(q, scale)
    if q.shape[3].is_static:
        return e.const(q, 1 / math.sqrt(max(int(q.shape[3]), 1)))
    return e.emit("Reciprocal", e.emit("Sqrt", e.cast(_length(q, 3), q.dtype)))


def _size(x: Symbol, axis: int) -> Size:
    return x.shape[axis] if x.shape[axis].is_static else Axis(x, axis)


def _divided(x: Symbol, axis: int, count: int) -> Size:
    if x.shape[axis].is_static:
        return x.shape[axis] // count
    return e.emit("Div", shape_vector(x.graph, [Axis(x, axis)]), x.graph._vector([count]))


def _in_heads(x: Symbol, heads: int) -> Symbol:
    """[batch, sequence, heads*size] as [batch, heads, sequence, size]."""
    batch, sequence, width = x.shape
    apart = _reshaped(
        x, [_size(x, 0), _size(x, 1), Dim(heads), _divided(x, 2, heads)], [batch, sequence, Dim(heads), width // heads]
    )
    shape = _shape([batch, Dim(heads), sequence, width // heads])
    return e.emit("Transpose", apart, shape=shape, perm=[0, 2, 1, 3])


def _side_by_side(x: Symbol) -> Symbol:
    """[batch, heads, sequence, size] as [batch, sequence, heads*size]."""
    batch, heads, sequence, size = x.shape
    turned = e.emit("Transpose", x, shape=_shape([batch, sequence, heads, size]), perm=[0, 2, 1, 3])
    width: Size = heads * size
    if not (heads * size).is_static:
        width = e.emit("Mul", shape_vector(x.graph, [_size(x, 1)]), shape_vector(x.graph, [_size(x, 3)]))
    return _reshaped(turned, [_size(turned, 0), _size(turned, 1), width], [batch, sequence, heads * size])


def _for_each_head(x: Symbol, q: Symbol) -> Symbol:
    """Keys or values repeated for the heads of q that share them."""
    if x.shape[1] is q.shape[1] and not q.shape[1].is_dynamic:
        return x
    batch, kv_heads, sequence, size = x.shape
    own = [_size(x, i) for i in range(4)]
    every: Size = q.shape[1] // kv_heads
    if not (q.shape[1].is_static and kv_heads.is_static):
        every = e.emit("Div", *(shape_vector(x.graph, [s]) for s in (_size(q, 1), own[1])))
    shape = _shape([batch, kv_heads, ONE, sequence, size])
    alone = e.emit("Unsqueeze", x, x.graph._vector([2]), shape=shape)
    shape = _shape([batch, kv_heads, q.shape[1] // kv_heads, sequence, size])
    target = shape_vector(x.graph, [ONE, ONE, every, ONE, ONE])
    repeated = e.emit("Expand", alone, target, shape=shape)
    return _reshaped(repeated, [own[0], _size(q, 1), own[2], own[3]], [batch, q.shape[1], sequence, size])


def _reshaped(x: Symbol, sizes: Sequence[Size], dims: Sequence[Dim]) -> Symbol:
    return e.emit("Reshape", x, shape_vector(x.graph, sizes), shape=_shape(dims), allowzero=1)


# Rotary embeddings


@expansion("RotaryEmbedding")
def _rotary_embedding(
    x: Symbol,
    cos: Symbol,
    sin: Symbol,
    position_ids: Symbol | None = None,
    *,
    interleaved: int = 0,
    rotary_embedding_dim: int = 0,
    num_heads: int = 0,
) -> Symbol:
    flat = x.rank == 3
    if flat:
        x = _in_heads(x, num_heads)
    half = Dim(rotary_embedding_dim // 2) if rotary_embedding_dim else x.shape[3] // 2
    angles = _shape([x.shape[0], ONE, x.shape[2], half])
    if position_ids is not None:
        taken = _shape([x.shape[0], x.shape[2], half])
        cos, sin = (e.emit("Gather", s, position_ids, shape=taken, axis=0) for s in (cos, sin))
    cos, sin = (e.emit("Unsqueeze", s, x.graph._vector([1]), shape=angles) for s in (cos, sin))
    turned, rest = x, None
    if rotary_embedding_dim:
        turned = _features(x, 0, rotary_embedding_dim, 2 * half)
        rest = _features(x, rotary_embedding_dim, 2**62, x.shape[3] - 2 * half)
    pairs = _shape([*x.shape[:3], half])
    if interleaved:
        shape = _shape([*x.shape[:3], half, Dim(2)])
        apart = _reshaped(turned, [*(_size(x, i) for i in range(3)), _divided(turned, 3, 2), Dim(2)], shape)
        a, b = (e.emit("Gather", apart, x.graph._scalar(i, DType.int64), shape=pairs, axis=-1) for i in (0, 1))
    else:
        a, b = x.graph._emit_many("Split", (turned,), [tensor_type(x.dtype, pairs)] * 2, {"axis": 3, "num_outputs": 2})
    real = e.emit("Sub", *(e.emit("Mul", s, t, shape=pairs) for s, t in ((cos, a), (sin, b))), shape=pairs)
    imaginary = e.emit("Add", *(e.emit("Mul", s, t, shape=pairs) for s, t in ((sin, a), (cos, b))), shape=pairs)
    if interleaved:
        shape = _shape([*x.shape[:3], half, Dim(2)])
        ends = [e.emit("Unsqueeze", s, x.graph._vector([4]), shape=_shape([*pairs, ONE])) for s in (real, imaginary)]
        both = e.emit("Concat", *ends, shape=shape, axis=4)
        made = _reshaped(both, [_size(turned, i) for i in range(4)], turned.shape)
    else:
        made = e.emit("Concat", real, imaginary, shape=_shape([*x.shape[:3], 2 * half]), axis=3)
    if rest is not None:
        made = e.emit("Concat", made, rest, shape=x.shape, axis=3)
    return _side_by_side(made) if flat else made


def _features(x: Symbol, start: int, stop: int, size: Dim) -> Symbol:
    """Those of the last axis from `start` up to `stop`."""
    ends = (x.graph._vector([n]) for n in (start, stop, x.rank - 1))
    return e.emit("Slice", x, *ends, shape=_shape([*x.shape[:-1], size]))
