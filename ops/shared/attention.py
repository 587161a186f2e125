"""The expansion of ONNX Attention in all its forms, for those that no kernel computes right."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcore.build import primitives as e
from graphcore.build.declare import expansion
from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.dims import Size, count_of, divided, places_of, shape_vector, size_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

ONE = Dim(1)
MAX_DISTANCE = 2**62
"""Longer than any sequence; positions can be this far beyond one without overflow of int64."""

Results = tuple[Symbol, Symbol, Symbol, Symbol]


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
    qk_matmul_output_mode: int = 0,
    softmax_precision: int = 0,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> Results:
    """Return the result, the present keys and values, and the scores at the stage that qk_matmul_output_mode names.

    As in ONNX's function body, the scores of mode 0 are before the softcap, a mask with fewer keys hides the others,
    and a query that sees no key gets 0. Other than there, a masked key is masked even if its score is NaN.
    """
    if (past_key is None) != (past_value is None):
        raise GraphError(
            "Attention: past_key and past_value must be given together, and one is missing",
            operands={"k": k, "v": v},
            help="give both or neither",
        )
    flat = q.rank == 3 if q.type.shape.is_ranked else q_num_heads > 0
    q, k, v = (_ranked(x, 3 if flat else 4) for x in (q, k, v))
    if flat:
        q, k, v = in_heads(q, q_num_heads), in_heads(k, kv_num_heads), in_heads(v, kv_num_heads)
    before: Symbol | None = None
    if past_key is not None and past_value is not None:
        past_key, past_value = _ranked(past_key, 4), _ranked(past_value, 4)
        before = count_of(past_key, 2)
        k, v = _appended(past_key, k), _appended(past_value, v)
    grid = _shape([*q.shape[:3], k.shape[2]])
    kv = v if v.shape[1].is_static else k  # which have equal numbers of heads
    transposed = e.transpose(k, [0, 1, 3, 2])
    product = _apart(e.emit("MatMul", _shared(q, kv), transposed, shape=_over(q, kv, grid)), q, kv, grid)
    # onnxruntime folds a constant factor into the product, as a float32; a BitCast prevents it.
    product = e.emit("BitCast", product, shape=grid, to=q.dtype)
    scores = raw = e.emit("Mul", product, _factor(q, scale), shape=grid)
    if softcap > 0:
        cap = e.const(q, softcap)
        scores = e.emit("Mul", e.emit("Tanh", e.emit("Div", scores, cap, shape=grid)), cap, shape=grid)
    capped = scores
    mask = attn_mask
    if mask is not None:
        mask = padded(mask if mask.dtype is DType.bool else e.cast(mask, q.dtype), k.shape[2], size_of(k, 2))
        if mask.dtype is not DType.bool:
            scores = e.emit("Add", scores, mask, shape=grid)
    minus_infinity = e.const(q, -math.inf)
    right = 0 if is_causal else right_window_size
    conditions = [*_unmasked(mask, minus_infinity), *_near(q, k, before, nonpad_kv_seqlen, left_window_size, right)]
    if conditions:
        scores = e.emit("Where", e.both(*conditions), scores, minus_infinity, dtype=q.dtype, shape=grid)
    weights = _weights(scores, softmax_precision)
    values = e.cast(v, DType.float64 if DType.float64 in (q.dtype, v.dtype) else q.dtype)
    shape = _shape([*q.shape[:3], v.shape[3]])
    parts = _shared(e.cast(weights, values.dtype), kv)
    result = _apart(e.emit("MatMul", parts, values, shape=_over(q, kv, shape)), q, kv, shape)
    qk_output = (raw, capped, scores, weights)[qk_matmul_output_mode]
    return side_by_side(result) if flat else result, k, v, qk_output


def _ranked(x: Symbol, rank: int) -> Symbol:
    """Give a Symbol of unknown rank unknown dims."""
    if x.type.shape.is_ranked:
        return x
    return e.emit("Identity", x, shape=Shape(["?"] * rank))


def _appended(past: Symbol, x: Symbol) -> Symbol:
    shape = _shape([*x.shape[:2], past.shape[2] + x.shape[2], x.shape[3]])
    return e.emit("Concat", past, x, shape=shape, axis=2)


# Heads of q that share a head of k and v are stacked along the queries


def _is_shared(q: Symbol, k: Symbol) -> bool:
    return q.shape[1] is not k.shape[1] or q.shape[1].is_dynamic


def _shared(x: Symbol, k: Symbol) -> Symbol:
    """Reshape [batch, heads, queries, n] to [batch, kv_heads, heads/kv_heads*queries, n]."""
    if not _is_shared(x, k):
        return x
    batch, heads, queries, width = x.shape
    every: Size = heads // k.shape[1] * queries
    if not (heads.is_static and k.shape[1].is_static and queries.is_static):
        q_heads, kv_heads, rows = (shape_vector(x.graph, [s]) for s in (size_of(x, 1), size_of(k, 1), size_of(x, 2)))
        every = e.emit("Mul", e.emit("Div", q_heads, kv_heads), rows)
    dims = [batch, k.shape[1], every if isinstance(every, Dim) else Dim.dynamic(), width]
    return reshaped(x, [size_of(x, 0), size_of(k, 1), every, size_of(x, 3)], dims)


def _over(q: Symbol, k: Symbol, grid: Shape) -> Shape:
    """Return the shape of a product of stacked heads."""
    if not _is_shared(q, k):
        return grid
    every = q.shape[1] // k.shape[1] * q.shape[2] if k.shape[1].is_static else Dim.dynamic()
    return _shape([grid[0], k.shape[1], every, grid[3]])


def _apart(x: Symbol, q: Symbol, k: Symbol, grid: Shape) -> Symbol:
    """Reshape [batch, kv_heads, heads/kv_heads*queries, n] to [batch, heads, queries, n]."""
    if not _is_shared(q, k):
        return x
    return reshaped(x, [size_of(q, 0), size_of(q, 1), size_of(q, 2), size_of(x, 3)], grid)


# Which keys a query sees


def padded(mask: Symbol, keys: Dim, count: Size) -> Symbol:
    """Extend a mask to all keys: the last keys, which it may lack, are hidden.

    count: the number of keys, if the dim is unknown. A mask of one key hides the others, as in ONNX's function.
    """
    is_ranked = mask.type.shape.is_ranked
    if is_ranked and (not mask.rank or (mask.shape[-1] is keys and not keys.is_dynamic)):
        return mask
    graph = mask.graph
    if is_ranked and mask.shape[-1].is_static and keys.is_static:
        ends = graph.build.vector([0, max(int(keys) - int(mask.shape[-1]), 0)])
    else:
        mask_keys = e.emit("Shape", mask, dtype=DType.int64, shape=_shape([ONE]), start=-1)
        more = e.emit("Max", e.emit("Sub", shape_vector(graph, [count]), mask_keys), graph.build.vector([0]))
        ends = e.emit("Concat", graph.build.vector([0]), more, shape=_shape([Dim(2)]), axis=0)
    hidden = e.const(mask, False if mask.dtype is DType.bool else -math.inf)
    shape = _shape([*mask.shape[:-1], keys]) if is_ranked else mask.type.shape
    return e.emit("Pad", mask, ends, hidden, graph.build.vector([-1]), shape=shape, mode="constant")


def _unmasked(mask: Symbol | None, minus_infinity: Symbol) -> list[Symbol]:
    if mask is None:
        return []
    if mask.dtype is DType.bool:
        return [mask]
    return [e.opposite(e.emit("Equal", mask, minus_infinity, dtype=DType.bool, shape=mask.type.shape))]


def _near(q: Symbol, k: Symbol, before: Symbol | None, lengths: Symbol | None, left: int, right: int) -> list[Symbol]:
    """Return conditions on [batch, heads, queries, keys]: the key is before the end, and in the window of the query.

    before: the number of keys before the first query. lengths: the number of keys of each item of the batch; the
    queries are then the last positions. left, right: the size of the window on each side; below 0 for no bound.
    """
    if lengths is None and left < 0 and right < 0:
        return []
    graph = q.graph
    conditions = []
    key = places_of(k, 2)
    first = before
    if lengths is not None:
        shape = _shape([lengths.shape[0] if lengths.type.shape.is_ranked else Dim.dynamic(), ONE, ONE, ONE])
        ends = e.emit("Unsqueeze", lengths, graph.build.vector([1, 2, 3]), shape=shape)
        conditions.append(e.less(key, ends))
        first = e.emit("Sub", ends, count_of(q, 2)) if before is None else before
    if left < 0 and right < 0:
        return conditions
    query = e.unsqueeze(places_of(q, 2), 1)
    place = query if first is None else e.emit("Add", query, first)
    if right >= 0:
        last = e.emit("Add", place, _distance(q, right)) if right else place
        conditions.append(e.emit("LessOrEqual", key, last, dtype=DType.bool))
    if left >= 0:
        conditions.append(e.emit("GreaterOrEqual", key, e.emit("Sub", place, _distance(q, left)), dtype=DType.bool))
    return conditions


def _distance(q: Symbol, keys: int) -> Symbol:
    return q.graph.build.scalar(min(keys, MAX_DISTANCE), DType.int64)


# Scores


def _factor(q: Symbol, scale: float | None) -> Symbol:
    if scale is not None:
        return e.const(q, scale)
    if q.shape[3].is_static:
        return e.const(q, 1 / math.sqrt(max(int(q.shape[3]), 1)))
    return e.emit("Reciprocal", e.emit("Sqrt", e.cast(count_of(q, 3), q.dtype)))


def _weights(scores: Symbol, precision: int) -> Symbol:
    """Return the softmax over keys, 0 for a query that sees none. precision: ONNX's code of the compute dtype, or 0."""
    dtype = scores.dtype
    requested = DType.of(precision) if precision else dtype
    wide = DType.float32 if requested.bits < 32 else requested
    scores = e.cast(e.cast(scores, requested), wide)
    column = _shape([*scores.shape[:3], ONE])
    last = scores.graph.build.vector([-1])
    greatest = e.emit("ReduceMax", scores, last, shape=column, keepdims=1)
    zero, one = e.const(scores, 0.0), e.const(scores, 1.0)
    none = e.equal(greatest, e.const(scores, -math.inf))
    parts = e.emit("Exp", e.emit("Sub", scores, e.where(none, zero, greatest), shape=scores.shape))
    total = e.emit("ReduceSum", parts, last, shape=column, keepdims=1)
    result = e.emit("Div", parts, e.where(none, one, total), shape=scores.shape)
    return e.cast(e.cast(result, requested), dtype)


# Between [batch, heads, sequence, size] and [batch, sequence, heads * size]


def reshaped(x: Symbol, sizes: Sequence[Size], dims: Sequence[Dim]) -> Symbol:
    return e.emit("Reshape", x, shape_vector(x.graph, sizes), shape=_shape(dims), allowzero=1)


def in_heads(x: Symbol, heads: int) -> Symbol:
    """Reshape [batch, sequence, heads*size] to [batch, heads, sequence, size]."""
    batch, sequence, width = x.shape
    sizes = [size_of(x, 0), size_of(x, 1), Dim(heads), divided(x, 2, heads)]
    apart = reshaped(x, sizes, [batch, sequence, Dim(heads), width // heads])
    return e.transpose(apart, [0, 2, 1, 3])


def side_by_side(x: Symbol) -> Symbol:
    """Reshape [batch, heads, sequence, size] to [batch, sequence, heads*size]."""
    batch, heads, sequence, head_size = x.shape
    transposed = e.transpose(x, [0, 2, 1, 3])
    width: Size = heads * head_size
    if not (heads * head_size).is_static:
        width = e.emit("Mul", shape_vector(x.graph, [size_of(x, 1)]), shape_vector(x.graph, [size_of(x, 3)]))
    sizes = [size_of(transposed, 0), size_of(transposed, 1), width]
    return reshaped(transposed, sizes, [batch, sequence, heads * head_size])
