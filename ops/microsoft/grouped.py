"""GroupQueryAttention: attention of exported language models, with caches of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcore.custom_ops.custom_op import Types
from graphcore.ir.symbol import Symbol
from graphcore.ops import creation, reduction
from graphcore.ops.activation import softmax
from graphcore.ops.elementwise import tanh
from graphcore.ops.gathering import gather, gather_nd, where
from graphcore.ops.joining import concat, split
from graphcore.ops.linalg import matmul
from graphcore.ops.microsoft._declare import SINGLES, contrib, may_be, shape_at
from graphcore.ops.microsoft.attention import _in_heads, _rotate, _sequence_last, _static, check_rank
from graphcore.ops.rearranging import permute, unsqueeze
from graphcore.ops.shape import shape_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType

_FLOATS = "query key value past_key past_value cos_cache sin_cache attention_bias head_sink q_norm_weight k_norm_weight"


@contrib(
    promote={_FLOATS: "float"},
    dtypes={
        _FLOATS: SINGLES,
        "seqlens_k total_sequence_length": "int32",
        "position_ids": "int64",
        "k_scale v_scale": "float32",
    },
    kernels="float32",
    when=lambda types, attributes, results: _has_kernel(types, attributes, results),
    note="with heads of 8 n features, 16 n where they are rotated",
)
def GroupQueryAttention(  # noqa: N802
    query: Symbol,
    key: Symbol | None,
    value: Symbol | None,
    past_key: Symbol | None,
    past_value: Symbol | None,
    seqlens_k: Symbol,
    total_sequence_length: Symbol,
    cos_cache: Symbol | None = None,
    sin_cache: Symbol | None = None,
    position_ids: Symbol | None = None,
    attention_bias: Symbol | None = None,
    head_sink: Symbol | None = None,
    k_scale: Symbol | None = None,
    v_scale: Symbol | None = None,
    q_norm_weight: Symbol | None = None,
    k_norm_weight: Symbol | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: bool = True,
    do_rotary: bool = False,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: bool = False,
    scale: float | None = None,
    sliding_window_cache: bool = False,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Symbol, Symbol, Symbol]:
    """Causal attention in which each head of keys serves num_heads / kv_num_heads heads of queries, with a cache.

    Args:
        query: [batch, queries, num_heads * size]; key, value: [batch, queries, kv_num_heads * size], or None if query
            has all three concatenated.
        past_key: [batch, kv_num_heads, past, size], or None.
        past_value: [batch, kv_num_heads, past, size], or None.
        seqlens_k: [batch], the number of keys of each sequence with the new ones, minus 1.
        total_sequence_length: A scalar, the maximum of these numbers; if it is the number of queries, there is no past.
        cos_cache: [maximum positions, size / 2], for do_rotary.
        sin_cache: [maximum positions, size / 2], for do_rotary.
        attention_bias: Broadcasts to [batch, num_heads, queries, total].
        head_sink: [num_heads], an extra score in every softmax; smooth_softmax: an extra score of 0.
        local_window_size: The number of keys that a query sees, up to its position.

    Returns:
        [batch, queries, num_heads * size]; with outputs=3 also the keys and values, [batch, kv_num_heads, capacity,
        size], undefined after the last key.

    Ainslie et al. 2023, arXiv:2305.13245.
    """
    quantised = (k_quant_type, v_quant_type) != ("NONE", "NONE") or k_scale is not None or v_scale is not None
    normed = q_norm_weight is not None or k_norm_weight is not None
    if quantised or normed or sliding_window_cache or qk_output or position_ids is not None or not causal:
        raise ValueError(
            "quantised and sliding caches, norms of queries, position_ids and attention that is not causal are not "
            "supported: the operator has no body for them"
        )
    if num_heads < 1 or kv_num_heads < 1 or num_heads % kv_num_heads:
        raise ValueError(f"{num_heads} heads of queries cannot share {kv_num_heads} heads of keys")
    if local_window_size == 0 or local_window_size < -1:
        raise ValueError(f"local_window_size must be at least 1, or -1 for all, got {local_window_size}")
    check_rank("query", query, 3)
    if (past_key is None) != (past_value is None):
        raise ValueError("past_key and past_value must be given together")
    if attention_bias is not None:
        check_rank("attention_bias", attention_bias, 4)
    if key is None or value is None:
        size = _static("query", query, 2) // (num_heads + 2 * kv_num_heads)
        query, key, value = split(query, [size * n for n in (num_heads, kv_num_heads, kv_num_heads)], axis=2)
    batch, queries = query.shape[0], query.shape[1]
    key_counts = seqlens_k.reshape(batch, 1).cast(DType.int64) + 1
    total = total_sequence_length.reshape(()).cast(DType.int64)
    length = shape_of(query)[1]
    before = where(total == length, 0, key_counts - length)
    positions = before + creation.range(0, queries, dtype=DType.int64, out_dim=queries)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary requires cos_cache and sin_cache")
        last = shape_of(cos_cache)[0] - 1
        rotary_positions = reduction.min(reduction.max(positions, 0), last)
        width = 2 * _static("cos_cache", cos_cache, 1)
        query, key = (
            _rotate(x, rotary_positions, cos_cache, sin_cache, rotary_interleaved, heads, width)
            for x, heads in ((query, num_heads), (key, kv_num_heads))
        )
    q = _in_heads(query, num_heads)
    capacity = total if past_key is None else reduction.max(total, shape_of(past_key)[2])
    columns = creation.range(0, capacity, 1)
    keys = _update_cache(_in_heads(key, kv_num_heads), past_key, before, columns)
    values = _update_cache(_in_heads(value, kv_num_heads), past_value, before, columns)
    groups, size = num_heads // kv_num_heads, _static("query", q, 3)
    grouped = q.reshape(batch, kv_num_heads, groups, queries, size)
    turned_keys = unsqueeze(permute(keys, [0, 1, 3, 2]), 2)
    scores = matmul(grouped, turned_keys) * (scale or size**-0.5)
    scores = scores.reshape(batch, num_heads, queries, columns.shape[0])
    if softcap:
        scores = tanh(scores / softcap) * softcap
    if attention_bias is not None:
        # The bias of the keys is extended by 0 for the rest of the cache.
        count = shape_of(attention_bias)[3]
        biases = gather(attention_bias, reduction.min(columns, count - 1), axis=3)
        is_biased = (columns < count) | (shape_of(columns)[0] == count)
        scores = scores + where(is_biased, biases, 0.0)
    query_positions = positions.reshape(batch, 1, queries, 1)
    is_visible = columns <= query_positions
    if local_window_size >= 0:
        is_visible = is_visible & (columns > query_positions - local_window_size)
    scores = where(is_visible, scores, float("-inf"))
    weights = _weights(scores, head_sink, smooth_softmax == 1)
    is_key = (columns < (before + length)).reshape(batch, 1, columns.shape[0], 1)
    valid_values = unsqueeze(where(is_key, values, 0.0), 2)  # entries after the last key may be NaN
    product = matmul(weights.reshape(batch, kv_num_heads, groups, queries, columns.shape[0]), valid_values)
    heads = _sequence_last(product.reshape(batch, num_heads, queries, size))
    return heads.reshape(batch, queries, num_heads * size), keys, values


def _update_cache(new: Symbol, past: Symbol | None, before: Symbol, columns: Symbol) -> Symbol:
    """Return the cached keys or values, with the new ones after the last one of each sequence."""
    entries = new if past is None else concat([past, new], axis=2)
    start = 0 if past is None else shape_of(past)[2]
    count = shape_of(new)[2]
    is_new = (columns >= before) & (columns < before + count)
    sources = where(is_new, columns - before + start, columns)
    sources = reduction.min(sources, shape_of(entries)[2] - 1)
    rows = gather_nd(_sequence_last(entries), unsqueeze(sources, -1), batch_dims=1)
    return _sequence_last(rows)


def _weights(scores: Symbol, sink: Symbol | None, is_smooth: bool) -> Symbol:
    if sink is None and not is_smooth:
        return softmax(scores)
    heads = scores.shape[1]
    first = scores[..., :1]
    extra = (first > first).cast(scores.dtype)  # 0 for any score
    if sink is not None:
        extra = extra + sink.reshape(1, heads, 1, 1)
    return softmax(concat([extra, scores], axis=3))[..., 1:]


def _has_kernel(types: Types, attributes: Mapping[str, Any], results: int) -> bool:
    """Return True if the CPU kernel supports it.

    Heads have multiples of 8 features, 16 if rotated; several new tokens after a past need a batch of one.
    """
    query, past, cos = (shape_at(types, i) for i in (0, 3, 7))
    if query is None or not query[2].is_static or results == 2:
        return False
    heads = attributes["num_heads"] + (2 * attributes["kv_num_heads"] if types[1] is None else 0)
    size = int(query[2]) // heads
    if size % 8 or (past is not None and not may_be(query[0], Dim(1)) and not may_be(query[1], Dim(1))):
        return False
    return not attributes["do_rotary"] or (
        size % 16 == 0 and cos is not None and cos[1].is_static and int(cos[1]) % 8 == 0
    )
