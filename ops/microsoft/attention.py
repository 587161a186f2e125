"""Attention fused with projections, biases, masks and caches, and rotary position embeddings."""

from __future__ import annotations

from graphcore.custom_ops.custom_op import Types
from graphcore.ir.symbol import Symbol
from graphcore.ops import creation
from graphcore.ops.activation import softmax
from graphcore.ops.attention import rotary_embedding
from graphcore.ops.gathering import where
from graphcore.ops.joining import concat, split, stack
from graphcore.ops.linalg import matmul
from graphcore.ops.microsoft._declare import SINGLES, check_bias, contrib, may_be, shape_at
from graphcore.ops.rearranging import permute
from graphcore.ops.shape import broadcast_to, shape_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Heads = tuple[Symbol, Symbol, Symbol]


@contrib(
    promote={"input cos_cache sin_cache": "float"},
    dtypes={"input cos_cache sin_cache": SINGLES, "position_ids": "int64"},
    kernels="float32",
    when=lambda types, attributes, results: not attributes["is_packed_batching"],
)
def RotaryEmbedding(  # noqa: N802
    input: Symbol,
    position_ids: Symbol,
    cos_cache: Symbol,
    sin_cache: Symbol,
    *,
    interleaved: bool = False,
    is_packed_batching: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Symbol:
    """Rotary position embedding: pairs of features rotated by angles that increase with the position.

    Args:
        input: [batch, positions, heads * size] or [batch, heads, positions, size].
        position_ids: [batch, positions], or [1], the first position of all.
        cos_cache: [maximum positions, rotated / 2].
        sin_cache: [maximum positions, rotated / 2].
        interleaved: A pair is two neighbours.
        num_heads: Required with rotary_embedding_dim, the number of rotated features of a head. scale is ignored, as in
            the kernel.

    Returns:
        The type of input.

    Su et al. 2021, arXiv:2104.09864.
    """
    if is_packed_batching:
        raise ValueError("is_packed_batching is not supported: the operator has no body for it")
    if input.rank not in (3, 4):
        raise ValueError(f"input must have 3 or 4 axes, got shape {input.shape}")
    if rotary_embedding_dim and not num_heads:
        raise ValueError("rotary_embedding_dim requires num_heads")
    return _rotate(input, position_ids, cos_cache, sin_cache, interleaved, num_heads, rotary_embedding_dim)


def _rotate(
    x: Symbol, positions: Symbol, cos: Symbol, sin: Symbol, interleaved: bool, heads: int, turned: int
) -> Symbol:
    if x.rank == 3 and not heads:
        size, features = 2 * _static("cos_cache", cos, 1), _static("input", x, 2)
        heads = max(features // size, 1)
    sequence = x.shape[1] if x.rank == 3 else x.shape[2]
    if cos.rank != 2 or (sequence.is_static and cos.shape[0].is_static and int(sequence) > int(cos.shape[0])):
        raise ValueError(f"cos_cache has shape {cos.shape}, for {sequence} positions")
    if positions.rank == 2 and not may_be(positions.shape[0], x.shape[0]):
        raise ValueError(f"position_ids has shape {positions.shape}, for a batch of {x.shape[0]}")
    if positions.rank < 2:
        if positions.rank == 1 and not may_be(positions.shape[0], Dim(1)):
            raise ValueError(f"position_ids must have shape [1] or [batch, positions], got {positions.shape}")
        counted = creation.range(0, sequence, dtype=DType.int64, out_dim=sequence)
        positions = broadcast_to(positions + counted, [x.shape[0], sequence])
    return rotary_embedding(x, cos, sin, positions, interleaved, turned, heads if x.rank == 3 else None)


def check_rank(name: str, x: Symbol, rank: int) -> None:
    if x.rank != rank:
        raise ValueError(f"{name} must have {rank} axes, got shape {x.shape}")


def _static(name: str, x: Symbol, axis: int) -> int:
    if not x.shape[axis].is_static:
        raise ValueError(f"axis {axis} of {name} must be static, got {x.shape[axis]}")
    return int(x.shape[axis])


# MultiHeadAttention and Attention


@contrib(
    promote={"query key value bias attention_bias past_key past_value": "float"},
    dtypes={
        "query key value bias attention_bias past_key past_value": SINGLES,
        "key_padding_mask past_sequence_length cache_indirection": "int32",
    },
    kernels="float32",
    when=lambda types, attributes, results: _mha_kernel(types, bool(attributes["unidirectional"]), results),
    note="unless packed, or causal with more keys than queries",
)
def MultiHeadAttention(  # noqa: N802
    query: Symbol,
    key: Symbol | None = None,
    value: Symbol | None = None,
    bias: Symbol | None = None,
    key_padding_mask: Symbol | None = None,
    attention_bias: Symbol | None = None,
    past_key: Symbol | None = None,
    past_value: Symbol | None = None,
    past_sequence_length: Symbol | None = None,
    cache_indirection: Symbol | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float | None = None,
    unidirectional: bool = False,
) -> tuple[Symbol, Symbol, Symbol, Symbol]:
    """softmax(q @ k^T * scale + masks) @ v, head by head.

    Args:
        query: [batch, queries, heads * size], or with keys and values [batch, queries, heads, 3, size].
        key: Likewise, or [batch, keys, heads, 2, size] for both in key, or [batch, heads, keys, size].
        value: As `key`.
        bias: Of the three projections, concatenated.
        key_padding_mask: [batch], the number of valid keys, or [batch, keys] or [batch, queries, keys], 0 for masked
            keys, to whose scores mask_filter_value is added.
        attention_bias: Broadcasts to [batch, heads, queries, keys].
        past_key: [batch, heads, past, size], before the keys.
        past_value: [batch, heads, past, size], before the keys.

    Returns:
        [batch, queries, heads * value size]; with outputs=4 also all keys, all values and the scores before the
        softmax.

    Vaswani et al. 2017, arXiv:1706.03762.
    """
    if past_sequence_length is not None or cache_indirection is not None:
        raise ValueError("caches shared between past and present are not supported: the operator has no body for them")
    if num_heads < 1:
        raise ValueError(f"num_heads must be at least 1, got {num_heads}")
    q, k, v = _project(query, key, value, bias, num_heads)
    return _attend(
        q, k, v, past_key, past_value, key_padding_mask, attention_bias, scale, mask_filter_value, unidirectional
    )


def _mha_kernel(types: Types, is_causal: bool, results: int) -> bool:
    """Return True if the CPU kernel is right for the form: not packed, and values as wide as keys if there is a past.

    onnxruntime does not know the type of the scores. With fewer or more keys than queries its last query looks ahead.
    """
    query, key, value = (types[i] if i < len(types) else None for i in range(3))
    if not all(isinstance(t, TensorType) and t.shape.is_ranked for t in (query, key, value)):
        return False
    assert isinstance(query, TensorType)
    assert isinstance(key, TensorType)
    assert isinstance(value, TensorType)
    if len(query.shape) != 3 or len(key.shape) == 5 or results > 3:
        return False
    if is_causal and key.shape[1 if len(key.shape) == 3 else 2] != query.shape[1]:
        return False
    if len(key.shape) == 4 and key.shape != value.shape:
        return False
    bias = shape_at(types, 5)
    if bias is not None and bias[2] != query.shape[1]:
        return False
    has_past = len(types) > 6 and types[6] is not None
    return not has_past or (len(key.shape) == len(value.shape) and key.shape[-1] == value.shape[-1])


def _project(query: Symbol, key: Symbol | None, value: Symbol | None, bias: Symbol | None, heads: int) -> Heads:
    """Return queries, keys and values as [batch, heads, positions, size]."""
    if query.rank == 5 or (key is not None and key.rank in (4, 5)):
        if bias is not None:
            raise ValueError("a bias requires queries, keys and values of three axes")
        if query.rank == 5:
            q, k, v = (_sequence_last(query[:, :, :, i]) for i in range(3))
            return q, k, v
        assert key is not None
        q = _in_heads(query, heads)
        if key.rank == 5:
            return q, _sequence_last(key[:, :, :, 0]), _sequence_last(key[:, :, :, 1])
        return q, key, _present("value", value)
    key, value = _present("key", key), _present("value", value)
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.rank != 3:
            raise ValueError(f"{name} must have three axes, got shape {x.shape}")
    if bias is not None:
        sizes = [x.shape[2] for x in (query, key, value)]
        q_bias, k_bias, v_bias = split(bias, sizes)
        query, key, value = query + q_bias, key + k_bias, value + v_bias
    return _in_heads(query, heads), _in_heads(key, heads), _in_heads(value, heads)


def _present(name: str, x: Symbol | None) -> Symbol:
    if x is None:
        raise ValueError(f"the operand {name!r} is missing")
    return x


def _in_heads(x: Symbol, heads: int) -> Symbol:
    features = x.shape[2]
    if features.is_static and int(features) % heads:
        raise ValueError(f"{features} features cannot be split into {heads} heads")
    return _sequence_last(x.reshape(x.shape[0], x.shape[1], heads, features // heads))


def _sequence_last(x: Symbol) -> Symbol:
    """Transpose [batch, positions, heads, size] to [batch, heads, positions, size], or back."""
    return permute(x, [0, 2, 1, 3])


def _attend(
    q: Symbol,
    k: Symbol,
    v: Symbol,
    past_k: Symbol | None,
    past_v: Symbol | None,
    mask: Symbol | None,
    bias: Symbol | None,
    scale: float | None,
    filler: float,
    is_causal: bool,
) -> tuple[Symbol, Symbol, Symbol, Symbol]:
    if (past_k is None) != (past_v is None):
        raise ValueError("past keys and past values must be given together")
    if not may_be(q.shape[0], k.shape[0]):
        raise ValueError(f"queries have a batch of {q.shape[0]}, but keys of {k.shape[0]}")
    if past_k is not None and past_v is not None:
        k, v = concat([past_k, k], axis=2), concat([past_v, v], axis=2)
    size = _static("query", q, 3)
    scores = matmul(q, permute(k, [0, 1, 3, 2])) * (scale or size**-0.5)
    if bias is not None:
        check_rank("attention_bias", bias, 4)
        scores = scores + bias
    batch, _, queries, keys = scores.shape
    if mask is not None:
        if mask.rank > 3:
            raise ValueError(f"a mask of shape {mask.shape} is not supported: it must have 1 to 3 axes")
        if mask.rank == 1:
            at = creation.range(0, keys, dtype=DType.int32, out_dim=keys)
            counts = at < mask.reshape(batch, 1)
        else:
            counts = mask != 0
        wide = counts.reshape(batch, 1, 1, keys) if mask.rank < 3 else counts.reshape(batch, 1, queries, keys)
        scores = scores + where(wide, 0.0, filler)
    if is_causal:
        rows = creation.range(0, queries, dtype=DType.int64, out_dim=queries).reshape(queries, 1)
        if past_k is not None:
            rows = rows + shape_of(past_k)[2]
        columns = creation.range(0, keys, dtype=DType.int64, out_dim=keys)
        scores = where(columns <= rows, scores, float("-inf"))
    weights = softmax(scores)
    result = _sequence_last(matmul(weights, v))
    return result.reshape(batch, queries, result.shape[2] * result.shape[3]), k, v, scores


@contrib(
    promote={"input weights bias past attention_bias": "float"},
    dtypes={"input weights bias past attention_bias": SINGLES, "mask_index past_sequence_length": "int32"},
    kernels="float32",
    when=lambda types, attributes, results: len(types) > 2 and types[2] is not None,
    note="where there is a bias",
    unsafe=lambda inputs: (
        "" if len(inputs) > 2 and inputs[2] is not None else "its kernel reads a bias, which is missing"
    ),
)
def Attention(  # noqa: N802
    input: Symbol,
    weights: Symbol,
    bias: Symbol | None = None,
    mask_index: Symbol | None = None,
    past: Symbol | None = None,
    attention_bias: Symbol | None = None,
    past_sequence_length: Symbol | None = None,
    *,
    num_heads: int,
    do_rotary: bool = False,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: bool = False,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: bool = False,
) -> tuple[Symbol, Symbol]:
    """Attention of input @ weights + bias, the concatenated queries, keys and values.

    Args:
        input: [batch, positions, features].
        weights: [features, 3 * size], or the sum of qkv_hidden_sizes.
        mask_index: [batch], the number of valid keys, or [batch, keys] or [batch, positions, keys], 0 for masked keys.
        past: [2, batch, heads, past, size].

    Returns:
        [batch, positions, size]; with outputs=2 also all keys and values, shaped as past.
    """
    if do_rotary or past_present_share_buffer or past_sequence_length is not None:
        raise ValueError(
            "rotation, and caches shared between past and present, are not supported: the operator has no body for them"
        )
    if num_heads < 1:
        raise ValueError(f"num_heads must be at least 1, got {num_heads}")
    width = _static("weights", weights, 1)
    sizes = [*qkv_hidden_sizes] if qkv_hidden_sizes else [width // 3] * 3
    if len(sizes) != 3 or sum(sizes) != width or min(sizes) < 1:
        raise ValueError(f"{width} columns of weights cannot be split into {sizes}")
    check_bias(bias, width)
    projected = matmul(input, weights)
    if bias is not None:
        projected = projected + bias
    q, k, v = (_in_heads(part, num_heads) for part in split(projected, sizes, axis=2))
    past_k, past_v = (None, None) if past is None else (past[0], past[1])
    result, keys, values, _ = _attend(
        q, k, v, past_k, past_v, mask_index, attention_bias, scale, mask_filter_value, unidirectional
    )
    same = sizes[1] == sizes[2]
    return result, stack([keys, values]) if same else keys
