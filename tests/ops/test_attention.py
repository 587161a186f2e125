"""Attention and rotary embeddings, against their formulas in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from tests.support.graphs import Array, graph_of, run1

pytestmark = pytest.mark.releases

RNG = np.random.default_rng(5)
FLOATS: list[Any] = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
EPSILON: dict[Any, float] = {np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}
Dims = list[list[int | str]]

attention = ops.scaled_dot_product_attention


def normal(dtype: Any, *shape: int) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def attended(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    lengths: Array | None = None,
) -> Array:
    """Query by query, in float64."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    share = heads // k.shape[1]
    array = np.zeros((batch, heads, queries, v.shape[3]))
    whole = None if mask is None else np.broadcast_to(mask, (batch, heads, queries, keys))
    for b, h, i in np.ndindex(batch, heads, queries):
        scores = k[b, h // share] @ q[b, h, i] * (1 / math.sqrt(size) if scale is None else scale)
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        seen = np.ones(keys, bool)
        end = keys if lengths is None else int(lengths[b])
        seen[end:] = False
        if is_causal:
            seen[i + (0 if lengths is None else end - queries) + 1 :] = False
        if whole is not None and whole.dtype == bool:
            seen &= whole[b, h, i]
        elif whole is not None:
            scores = scores + whole[b, h, i]
        if seen.any():
            parts = np.exp(scores[seen] - scores[seen].max())
            array[b, h, i] = parts / parts.sum() @ v[b, h // share][seen]
    return array


def assert_near(got: Array, want: Array, dtype: Any) -> None:
    assert got.dtype == dtype
    error = {np.float32: 2e-6, np.float64: 1e-12}.get(dtype)
    relative = 0.0 if error else EPSILON[dtype] * 0.502
    off = np.abs(got.astype(np.float64) - want)
    assert (off <= (error or 2e-6) + np.abs(want) * relative).all(), off.max()


def flat(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


def heads_of(dtype: Any, kv_heads: int = 4) -> tuple[Array, Array, Array]:
    return normal(dtype, 2, 4, 3, 8), normal(dtype, 2, kv_heads, 5, 8), normal(dtype, 2, kv_heads, 5, 6)


FOUR: Dims = [["b", "h", "s", "d"], ["b", "g", "t", "d"], ["b", "g", "t", "e"]]


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"softcap": 2.0}], ids=str)
def test_attention_equals_formula_when_of_any_float(dtype: Any, kv_heads: int, options: dict[str, Any]) -> None:
    q, k, v = heads_of(dtype, kv_heads)
    want = attended(q, k, v, **options)
    dims: Dims = FOUR if kv_heads < 4 else [[d if d != "g" else "h" for d in row] for row in FOUR]
    assert_near(run1(partial(attention, **options), q, k, v, dims=dims), want, dtype)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_attention_equals_formula_when_heads_are_side_by_side(dtype: Any, kv_heads: int) -> None:
    q, k, v = heads_of(dtype, kv_heads)
    dims: Dims = [["b", "s", 32], ["b", "t", kv_heads * 8], ["b", "t", kv_heads * 6]]
    got = run1(
        partial(attention, is_causal=True, q_num_heads=4, kv_num_heads=kv_heads),
        flat(q), flat(k), flat(v), dims=dims,
    )  # fmt: skip
    assert_near(got, flat(attended(q, k, v, is_causal=True)), dtype)


MASKS = [(3, 5), (5,), (1, 5), (3, 1), (1, 1), (), (4, 3, 5), (1, 3, 5), (2, 1, 1, 5), (2, 1, 3, 5), (2, 4, 3, 5)]


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_attention_equals_formula_when_mask_broadcasts(shape: tuple[int, ...], kind: str, dtype: Any) -> None:
    q, k, v = heads_of(dtype)
    mask = np.asarray(RNG.random(shape) < 0.7) if kind == "bool" else np.asarray(normal(dtype, *shape))
    names = ["b", "h", "s", "t"][4 - len(shape) :]
    named = [n if size != 1 else 1 for n, size in zip(names, shape, strict=True)]
    dims: Dims = [["b", "h", "s", "d"], ["b", "h", "t", "d"], ["b", "h", "t", "e"], named]
    got = run1(attention, q, k, v, mask, dims=dims)
    assert_near(got, attended(q, k, v, mask.astype(np.float64) if kind == "float" else mask), dtype)


def test_attention_expands_mask_only_when_kernel_does_not() -> None:
    q, k, v = heads_of(np.float32)
    dims: Dims = [["b", "h", "s", "d"], ["b", "h", "t", "d"], ["b", "h", "t", "e"]]
    whole = graph_of(attention, q, k, v, np.ones((2, 1, 3, 5), bool), dims=[*dims, ["b", 1, "s", "t"]])
    assert [n.op_type for n in whole.nodes] == ["Attention"]
    row = graph_of(attention, q, k, v, np.ones((2, 1, 1, 5), bool), dims=[*dims, ["b", 1, 1, "t"]])
    assert [n.op_type for n in row.nodes if n.op_type in ("Expand", "Attention")] == ["Expand", "Attention"]


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_equals_formula_when_keys_are_padded(dtype: Any, is_causal: bool, masked: bool) -> None:
    q, k, v = heads_of(dtype, 2)
    lengths = np.array([2, 5])
    mask = RNG.random((2, 1, 3, 5)) < 0.8
    dims: Dims = [*FOUR, ["b", 1, "s", "t"], ["b"]]
    got = run1(
        lambda q, k, v, m, n: attention(q, k, v, m if masked else None, is_causal=is_causal, nonpad_kv_seqlen=n),
        q, k, v, mask, lengths, dims=dims,
    )  # fmt: skip
    assert_near(got, attended(q, k, v, mask if masked else None, is_causal, lengths=lengths), dtype)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_attention_is_zero_when_a_query_sees_no_key(dtype: Any) -> None:
    q, k, v = heads_of(dtype)
    mask = np.ones((3, 5), bool)
    mask[1] = False
    got = run1(attention, q, k, v, mask, dims=[*FOUR, ["s", "t"]])
    assert not got[:, :, 1].any()
    assert_near(got, attended(q, k, v, mask), dtype)


def test_attention_sizes_are_known_when_dims_are_named() -> None:
    q, k, v = heads_of(np.float32)
    assert str(graph_of(attention, q, k, v, dims=FOUR).outputs[0].shape) == "[b, h, s, e]"
    three: Dims = [["b", "s", 32], ["b", "t", 32], ["b", "t", "y"]]
    result = graph_of(partial(attention, q_num_heads=4, kv_num_heads=4), flat(q), flat(k), flat(v), dims=three)
    assert result.outputs[0].shape[:2] == ["b", "s"]
    assert result.outputs[0].shape[2].evaluate({"y": 24}) == 24


@pytest.mark.numbers
def test_attention_works_when_dims_are_unknown() -> None:
    q, k, v = heads_of(np.float32, 2)
    unknown: Dims = [["?"] * 4] * 3
    assert_near(run1(attention, q, k, v, dims=unknown), attended(q, k, v), np.float32)
    mask = RNG.random((3, 5)) < 0.8
    assert_near(run1(attention, q, k, v, mask, dims=[*unknown, ["?"] * 2]), attended(q, k, v, mask), np.float32)
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    assert_near(run1(attention, q, k, v, mask, dims=[*unknown, ["?"] * 2]), attended(q, k, v, mask), np.float64)


@pytest.mark.numbers
def test_attention_promotes_when_dtypes_differ() -> None:
    dtypes = {"q": DType.bfloat16, "k": DType.float32, "v": DType.int8}
    g = Graph("g", {name: TensorType(dtype, [1, 1, 2, 4]) for name, dtype in dtypes.items()})
    assert attention(g["q"], g["k"], g["v"]).dtype is DType.float32


# Rotary embeddings


def turned(
    x: Array, cos: Array, sin: Array, positions: Array | None = None, interleaved: bool = False, size: int = 0
) -> Array:
    """As a product of complex numbers, in float64. x: [batch, heads, sequence, size]."""
    x, cos, sin = (a.astype(np.float64) for a in (x, cos, sin))
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    size = size or x.shape[3]
    angle = (cos + 1j * sin)[:, None]
    first, second = (
        (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(size // 2), slice(size // 2, size))
    )
    product = (x[..., first] + 1j * x[..., second]) * angle
    result = x.copy()
    result[..., first], result[..., second] = product.real, product.imag
    return result


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("size", [0, 4])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize("side_by_side", [False, True])
def test_rotary_embedding_equals_formula_when_of_any_float(
    dtype: Any, size: int, interleaved: bool, by_position: bool, side_by_side: bool
) -> None:
    x = normal(dtype, 2, 3, 4, 8)
    half = (size or 8) // 2
    shape = (10, half) if by_position else (2, 4, half)
    cos, sin = normal(dtype, *shape), normal(dtype, *shape)
    positions = RNG.integers(0, 10, (2, 4)) if by_position else None
    want = turned(x, cos, sin, positions, interleaved, size)
    arrays = [x, cos, sin] if positions is None else [x, cos, sin, positions]
    cache: list[int | str] = ["p", half] if by_position else ["b", "s", half]
    dims: Dims = [["b", "h", "s", 8], cache, cache, ["b", "s"]]
    heads = None
    if side_by_side:
        arrays[0], want, heads, dims[0] = flat(x), flat(want), 3, ["b", "s", 24]
    options: dict[str, Any] = {"interleaved": interleaved, "rotary_embedding_dim": size, "num_heads": heads}
    got = run1(partial(ops.rotary_embedding, **options), *arrays, dims=dims[: len(arrays)])
    assert_near(got, want, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rotary_embedding_takes_caches_once_when_batch_is_one_there(dtype: Any) -> None:
    x, cos, sin = normal(dtype, 2, 3, 4, 8), normal(dtype, 1, 4, 4), normal(dtype, 1, 4, 4)
    got = run1(ops.rotary_embedding, x, cos, sin, dims=[["b", "h", "s", 8], [1, "s", 4], [1, "s", 4]])
    assert_near(got, turned(x, cos, sin), dtype)


def test_rotary_embedding_takes_the_number_of_heads_of_four_axes() -> None:
    x, cos, sin = normal(np.float32, 2, 3, 4, 8), normal(np.float32, 2, 4, 4), normal(np.float32, 2, 4, 4)
    dims: Dims = [["b", 3, "s", 8], ["b", "s", 4], ["b", "s", 4]]
    got = run1(partial(ops.rotary_embedding, num_heads=3), x, cos, sin, dims=dims)
    assert_near(got, turned(x, cos, sin), np.float32)


def test_rotary_embedding_casts_positions_when_int32() -> None:
    x, cos, sin = normal(np.float32, 2, 3, 4, 8), normal(np.float32, 9, 4), normal(np.float32, 9, 4)
    positions = np.array([[3, 0, 8, 1]], np.int32)
    got = run1(ops.rotary_embedding, x, cos, sin, positions, dims=[["b", "h", "s", 8], ["p", 4], ["p", 4], [1, "s"]])
    assert_near(got, turned(x, cos, sin, positions.repeat(2, 0)), np.float32)


# Mistakes


def graph() -> Graph:
    shapes: dict[str, list[int | str]] = {
        "q": ["b", 4, "s", 8], "k": ["b", 2, "t", 8], "v": ["b", 2, "t", 6], "three": ["b", "s", 32],
        "odd": ["b", 3, "t", 8], "short": ["b", 2, "t", 7], "other": ["b", 2, "u", 6], "vec": ["c"],
        "cache": ["p", 4], "own": ["b", "s", 4], "narrow": ["b", "s", 3], "uneven": ["b", 4, "s", 7],
    }  # fmt: skip
    types = {name: TensorType(DType.float32, shape) for name, shape in shapes.items()}
    types["ints"] = TensorType(DType.int32, ["s", "t"])
    types["positions"] = TensorType(DType.int64, ["b", "s"])
    types["lengths"] = TensorType(DType.int64, ["c"])
    return Graph("g", types)


MISTAKES: list[tuple[Callable[[Graph], Symbol], str]] = [
    (lambda g: attention(g["q"], g["k"], g["three"]), "q, k and v must all have rank 4 or all rank 3, got 4, 4 and 3"),
    (lambda g: attention(g["three"], g["three"], g["three"]), "rank 3 need numbers of heads"),
    (
        lambda g: attention(g["three"], g["three"], g["three"], q_num_heads=5, kv_num_heads=4),
        "the 32 features of q cannot be split into 5 heads",
    ),
    (
        lambda g: attention(g["three"], g["three"], g["three"], q_num_heads=4, kv_num_heads=0),
        "kv_num_heads=0 is below 1",
    ),
    (lambda g: attention(g["q"], g["k"], g["v"], q_num_heads=4), "operands of rank 4 have their heads in axis 1"),
    (lambda g: attention(g["q"], g["odd"], g["odd"]), "4 heads of q cannot share 3 heads of k and v evenly"),
    (lambda g: attention(g["q"], g["k"], g["odd"]), "numbers of heads of k and v differ: 2 and 3"),
    (lambda g: attention(g["q"], g["short"], g["v"]), "sizes of a head of q and k differ: 8 and 7"),
    (lambda g: attention(g["q"], g["k"], g["other"]), "lengths of k and v differ: t and u"),
    (
        lambda g: attention(g["q"], g["k"], g["v"], g["vec"]),
        r"attn_mask of shape \[c\] does not broadcast to \[b, 4, s, t\]",
    ),
    (lambda g: attention(g["q"], g["k"], g["v"], scale=0), "scale must be positive, got 0"),
    (lambda g: attention(g["q"], g["k"], g["v"], softcap=-1.0), "softcap=-1.0 is not finite and at least 0"),
    (
        lambda g: attention(g["q"], g["k"], g["v"], nonpad_kv_seqlen=g["lengths"]),
        r"nonpad_kv_seqlen must have shape \[b\], got \[c\]",
    ),
    (lambda g: ops.rotary_embedding(g["vec"], g["own"], g["own"]), "rotary_embedding: x must have rank 3 or 4, got 1"),
    (lambda g: ops.rotary_embedding(g["three"], g["own"], g["own"]), "x of rank 3 needs a number of heads"),
    (
        lambda g: ops.rotary_embedding(g["three"], g["own"], g["own"], num_heads=5),
        "32 features cannot be split into 5 heads",
    ),
    (lambda g: ops.rotary_embedding(g["q"], g["own"], g["own"], num_heads=3), "num_heads is 3, but x has 4 heads"),
    (
        lambda g: ops.rotary_embedding(g["q"], g["cache"], g["cache"]),
        r"cos_cache must have shape \[b, s, 4\], got \[p, 4\]",
    ),
    (
        lambda g: ops.rotary_embedding(g["q"], g["own"], g["narrow"]),
        r"sin_cache must have shape \[b, s, 4\], got \[b, s, 3\]",
    ),
    (
        lambda g: ops.rotary_embedding(g["q"], g["own"], g["own"], g["positions"]),
        r"cos_cache must have shape \[positions, 4\], got \[b, s, 4\]",
    ),
    (
        lambda g: ops.rotary_embedding(g["q"], g["cache"], g["cache"], g["lengths"]),
        r"position_ids must have shape \[b, s\], got \[c\]",
    ),
    (
        lambda g: ops.rotary_embedding(g["q"], g["own"], g["own"], rotary_embedding_dim=10),
        "rotary_embedding_dim=10 must be an even number up to the size of a head, 8",
    ),
    (lambda g: ops.rotary_embedding(g["uneven"], g["own"], g["own"]), "the size of a head must be even, got 7"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_attention_refuses_when_shapes_do_not_fit(mistake: Callable[[Graph], Symbol], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        mistake(graph())


def test_attention_refuses_when_dtypes_have_no_meaning() -> None:
    g = graph()
    with pytest.raises(DTypeError, match="attn_mask must be bools or floats, got int32"):
        attention(g["q"], g["k"], g["v"], g["ints"])
    with pytest.raises(DTypeError, match="nonpad_kv_seqlen must have an integer dtype, got float32"):
        attention(g["q"], g["k"], g["v"], nonpad_kv_seqlen=g["vec"])
    with pytest.raises(DTypeError, match="position_ids must have an integer dtype, got float32"):
        ops.rotary_embedding(g["q"], g["cache"], g["cache"], g["own"])


def test_signs_of_nan_are_read_when_attention_has_a_kernel_of_an_older_opset_only() -> None:
    x = np.array([0x7F, 0xFF, 0x80, 0x38], np.uint8).view(ml_dtypes.float8_e4m3fn)
    q = np.ones((1, 1, 2, 4))
    graph = graph_of(lambda x, q: [ops.signbit(x), ops.scaled_dot_product_attention(q, q, q, is_causal=True)], x, q)
    signs, attention = gc.InferenceSession().load(graph)(x, q)
    assert signs.tolist() == [False, True, True, False]
    assert np.array_equal(attention, q)


def test_graph_of_newer_dtypes_loads_when_attention_has_a_kernel_of_an_older_opset_only() -> None:
    x = np.array([[0, 1], [1, 1]], bool)
    q = np.ones((1, 1, 2, 4), np.float32)
    graph = graph_of(
        lambda x, q: [x.cast("uint2") << 1, ops.scaled_dot_product_attention(q, q, q, is_causal=True)], x, q
    )
    bits, attention = gc.InferenceSession().load(graph)(x, q)
    assert bits.astype(int).tolist() == [[0, 2], [2, 2]]
    assert np.array_equal(attention, q)
