"""A call of each operator of com.microsoft that `ops.microsoft` makes from a schema, and what NumPy computes for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.graphs import Array

RNG = np.random.default_rng(11)
F32, F64, I32, I64, U8 = np.float32, np.float64, np.int32, np.int64, np.uint8


@dataclass(frozen=True)
class Call:
    """operands: None for those left out. formula: the results in float64 or exact; None if it is not simple."""

    operands: list[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    formula: Callable[..., Any] | None = None
    near: float = 2e-6
    """The largest difference, relative to the largest number of a result; 0 for equal ones."""


def real(*shape: int, factor: float = 1.0) -> Array:
    return (RNG.standard_normal(shape) * factor).astype(F32)


def whole(dtype: Any, *shape: int, most: int = 250) -> Array:
    return RNG.integers(0, most, shape).astype(dtype)


def i32(*values: int) -> Array:
    return np.array(values, I32)


def scalar(value: float, dtype: Any = F32) -> Array:
    return np.array(value, dtype)


SCALE, ZERO = scalar(0.02), scalar(3, U8)


def widened(x: Array, scale: Array = SCALE, zero: Array = ZERO) -> Array:
    return (x.astype(F64) - zero.astype(F64)) * scale.astype(F64)


def narrowed(x: Array, scale: Array = SCALE, zero: Array = ZERO) -> Array:
    return np.asarray(np.clip(np.rint(x / scale) + zero, 0, 255), U8)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x.astype(F64))))


def rms(x: Array, epsilon: float = 1e-5) -> Array:
    x = x.astype(F64)
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def lstm(x: Array, w: Array, r: Array) -> tuple[Array, Array, Array]:
    """ONNX's LSTM of one direction, gates in the order input, output, forget, cell."""
    h = c = np.zeros((x.shape[1], r.shape[-1]))
    rows = []
    for step in x.astype(F64):
        i, o, f, g = np.split(step @ w[0].T + h @ r[0].T, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        rows.append(h)
    return np.stack(rows)[:, None], h[None], c[None]


def heads(x: Array, count: int) -> Array:
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def attended(count: int, q: Array, k: Array, v: Array) -> Array:
    """Attention of [batch, positions, size], by heads."""
    q, k, v = (heads(x.astype(F64), count) for x in (q, k, v))
    result = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    return result.swapaxes(1, 2).reshape(result.shape[0], result.shape[2], -1)


def masked(q: Array, k: Array, v: Array, keys: Array, values: Array, _count: Array) -> tuple[Array, ...]:
    """Attention of one position after three that are in a cache of five."""
    caches = []
    for cache, new in ((keys, k), (values, v)):
        cache = cache.copy()
        cache[:, :, 3:4] = heads(new, 2)
        caches.append(cache)
    rows = (cache[:, :, :4].swapaxes(1, 2).reshape(2, 4, 8) for cache in caches)
    return attended(2, q, *rows), *caches


def convolved(x: Array, weight: Array, bias: Array, past: Array) -> tuple[Array, Array]:
    """A causal convolution of each channel, and the last positions."""
    size = weight.shape[-1]
    padded = np.concatenate([past, x], -1).astype(F64)
    y = sum(weight[:, 0, j, None] * padded[..., j : j + x.shape[-1]] for j in range(size)) + bias[:, None]
    return np.asarray(y), padded[..., -(size - 1) :]


def recurrent(q: Array, k: Array, v: Array, past: Array, decay: Array, beta: Array) -> tuple[Array, Array]:
    """The gated delta rule for [batch, positions, heads * size], by position."""
    count = past.shape[1]
    q, k, v = (heads(x.astype(F64), count) for x in (q, k, v))
    state, rows = past.astype(F64), []
    for t in range(q.shape[2]):
        state = state * np.exp(decay[:, t, :, None, None])
        change = beta[:, t, :, None] * (v[:, :, t] - np.einsum("bhkv,bhk->bhv", state, k[:, :, t]))
        state = state + k[:, :, t, :, None] * change[:, :, None]
        rows.append(np.einsum("bhk,bhkv->bhv", q[:, :, t], state) / np.sqrt(q.shape[-1]))
    return np.stack(rows, 1).reshape(q.shape[0], len(rows), -1), state


def murmur(x: Array) -> Array:
    """MurmurHash3_x86_32 of each int32, with seed 7, by its published text."""
    mask, results = 0xFFFFFFFF, []
    for number in x.ravel().tolist():
        k = number * 0xCC9E2D51 & mask
        k = (k << 15 | k >> 17) & mask
        h = 7 ^ (k * 0x1B873593 & mask)
        h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & mask
        h ^= 4
        h = (h ^ h >> 16) * 0x85EBCA6B & mask
        h = (h ^ h >> 13) * 0xC2B2AE35 & mask
        results.append(h ^ h >> 16)
    return np.array(results, np.uint32).reshape(x.shape)


def unique(x: Array) -> tuple[Array, Array, Array]:
    _, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    return x[np.sort(first)], np.argsort(order)[inverse].astype(I64), counts[order].astype(I64)


def warped(costs: Array) -> Array:
    """The cheapest path from the first to the last cell, each step down, right or both."""
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0
    for i in range(rows):
        for j in range(columns):
            total[i + 1, j + 1] = costs[i, j] + min(total[i, j], total[i, j + 1], total[i + 1, j])
    path, (i, j) = [], (rows, columns)
    while i or j:
        path.append((i - 1, j - 1))
        steps = {(i - 1, j - 1): 0, (i - 1, j): 1, (i, j - 1): 2}
        i, j = min(((a, b) for a, b in steps if a >= 0 and b >= 0), key=lambda p: (total[p], steps[p]))
    return np.array(path[::-1], I32).T


def hashed(ids: Array, multipliers: Array, sizes: Array) -> Array:
    """Hashes of n-grams of 2 and 3 ids with two heads each, and 0 before the start."""
    padded = np.pad(ids, ((0, 0), (2, 0)))
    shifts = [padded[:, 2 - n : padded.shape[1] - n] for n in range(3)]
    results = []
    for n in (2, 3):
        mix = np.bitwise_xor.reduce([shifts[i] * multipliers[i] for i in range(n)])
        results += [mix % sizes[(n - 2) * 2 + head] for head in range(2)]
    return np.stack(results, -1)


def repeated(ids: Array, scores: Array) -> Array:
    """Bigrams of the ids do not occur again."""
    result = scores.copy()
    for row, (before, after) in enumerate(zip(ids[:, :-1], ids[:, 1:], strict=True)):
        result[row, after[before == ids[row, -1]]] = -np.inf
    return result


def routed(logits: Array, bias: Array) -> Array:
    scores = sigmoid(logits)
    chosen = np.argsort(-(scores + bias), -1)[:, :2]
    result = np.full(logits.shape, -1e4)
    np.put_along_axis(result, chosen, np.log(np.take_along_axis(scores, chosen, -1)), -1)
    return result


def cropped(x: Array, boxes: Array, at: Array, size: Array) -> Array:
    """Bilinear samples at the corners of boxes and evenly between, as TensorFlow's crop_and_resize."""
    result = np.zeros((len(boxes), x.shape[1], *size))
    for n, (y1, x1, y2, x2) in enumerate(boxes.astype(F64)):
        rows, columns = (
            np.linspace(low * (length - 1), high * (length - 1), count)
            for low, high, length, count in ((y1, y2, x.shape[2], size[0]), (x1, x2, x.shape[3], size[1]))
        )
        for i, r in enumerate(rows):
            for j, c in enumerate(columns):
                top, left = int(np.floor(r)), int(np.floor(c))
                down, right = min(top + 1, x.shape[2] - 1), min(left + 1, x.shape[3] - 1)
                a, b = r - top, c - left
                image = x[at[n]].astype(F64)
                upper = image[:, top, left] * (1 - b) + image[:, top, right] * b
                lower = image[:, down, left] * (1 - b) + image[:, down, right] * b
                result[n, :, i, j] = upper * (1 - a) + lower * a
    return result


def transposed(x: Array, w: Array, pads: Array) -> Array:
    """A transposed convolution of stride 1 with pads cut off."""
    height, width = x.shape[2] + w.shape[2] - 1, x.shape[3] + w.shape[3] - 1
    full = np.zeros((x.shape[0], w.shape[1], height, width))
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            full[:, :, i : i + x.shape[2], j : j + x.shape[3]] += np.einsum("nchw,cm->nmhw", x, w[:, :, i, j])
    return full[:, :, pads[0] : height - pads[2], pads[1] : width - pads[3]]


def convolution(x: Array, w: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.asarray(np.einsum("nchwij,mcij->nmhw", windows, w))


def rotated(x: Array, at: Array, cos: Array, sin: Array) -> Array:
    """Three positions by sections of the angles, and halves of each head."""
    sections = np.repeat(np.arange(3), [2, 1, 1])
    c, s = (np.stack([t[at[section], i] for i, section in enumerate(sections)], -1) for t in (cos, sin))
    a, b = np.split(x.astype(F64), 2, -1)
    c, s = c[:, None], s[:, None]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def engram(key: Array, query: Array, value: Array, k: Array, q: Array, c: Array) -> tuple[Array, Array]:
    dot = (rms(key) * k * rms(query) * q).sum(-1, keepdims=True) / np.sqrt(key.shape[-1])
    gated = sigmoid(np.sign(dot) * np.sqrt(np.maximum(np.abs(dot), 1e-6))) * value[:, :, None]
    return gated, rms(gated) * c


def by_request(q: Array, k: Array, v: Array, starts: Array, decay: Array, beta: Array) -> tuple[Array, Array]:
    """The gated delta rule for packed requests; states have the values first."""
    parts = []
    for first, last in itertools.pairwise(starts.tolist()):
        a, b, c = (x[None, first:last].reshape(1, last - first, -1) for x in (q, k, v))
        y, state = recurrent(a, b, c, np.zeros((1, 2, 4, 4)), decay[None, first:last], beta[None, first:last])
        parts.append((y.reshape(-1, 2, 4), state.swapaxes(-1, -2)))
    return np.concatenate([y for y, _ in parts]), np.concatenate([state for _, state in parts])


def embedded(ids: Array, words: Array, positions: Array, gamma: Array, beta: Array, *_: Array) -> tuple[Array, Array]:
    x = widened(words)[ids] + widened(positions)[: ids.shape[1]]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return x * widened(gamma) + widened(beta), np.zeros(len(ids), I32)


def words(text: Array, weight: Array, bias: Array, letters: Array) -> Array:
    """The largest of a convolution over the letters of each word."""
    windows = np.lib.stride_tricks.sliding_window_view(letters[text].astype(F64), weight.shape[2], 1)
    return np.asarray(np.tanh(np.einsum("npcd,fdc->npf", windows, weight[:, 0]) + bias).max(1))


def nf4() -> Array:
    """The values of NF4, in the order of the codes: QLoRA, appendix E."""
    return np.array(
        [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
         -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
         0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
    )  # fmt: skip


def by_four_bits(a: Array, b: Array, largest: Array) -> Array:
    """Codes are two in a byte, the first in the high bits; a block of 16 has one factor."""
    codes = np.stack([b >> 4, b & 15], -1).reshape(-1)
    weight = (nf4()[codes].reshape(-1, 16) * largest[:, None]).reshape(4, 32)
    return np.asarray(a.astype(F64) @ weight.T)


STREAMS, STEPS = real(2, 3, 4, 8), real(2, 3, 8)
IMAGE = real(1, 2, 6, 6)
BYTES = whole(U8, 1, 2, 6, 6)
TEXT = np.array([["one two", "three"], ["four", "five six seven"]], dtype=object)
TOKENS = [["one two #", "three # #"], ["four # #", "five six seven"]]

CASES: dict[str, Call] = {
    "AttnLSTM": Call(
        [real(3, 2, 4), real(1, 12, 6), real(1, 12, 3), None, None, None, None, None, real(1, 3, 2), real(1, 5, 2),
         real(1, 2), real(2, 4, 5), None, real(1, 8, 2)],
        {"hidden_size": 3}, 3,
    ),
    "BifurcationDetector": Call(  # all are as predicted; the 9 is not in the source
        [np.array([1, 5, 3, 4, 2]), np.array([1, 5]), np.array([0]), np.array([1, 5, 3, 4, 2, 9])],
        {"min_ngram_size": 1, "max_ngram_size": 3}, 2,
        lambda *_: (np.array([1, 5, 1, 5, 3, 4, 2, 9]), np.array([-1])), near=0,
    ),
    "BranchwiseRMSNorm": Call([STREAMS, real(4, 8)], {}, formula=lambda x, scale: rms(x) * scale),
    "CDist": Call(
        [real(3, 4), real(5, 4)], {},
        formula=lambda a, b: ((a[:, None].astype(F64) - b) ** 2).sum(-1), near=1e-5,
    ),
    "CausalConvWithState": Call(
        [real(2, 3, 5), real(3, 1, 4), real(3), real(2, 3, 3)], {}, 2, convolved,
    ),
    "ConvTransposeWithDynamicPads": Call(
        [IMAGE, real(2, 3, 3, 3), np.array([1, 0, 1, 2])], {}, formula=transposed,
    ),
    "CropAndResize": Call(
        [IMAGE, np.array([[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9]], F32), i32(0, 0), i32(3, 4)], {}, formula=cropped,
    ),
    "DecoderMaskedMultiHeadAttention": Call(
        [real(2, 1, 8), real(2, 1, 8), real(2, 1, 8), None, None, real(2, 2, 5, 4), real(2, 2, 5, 4), i32(3)],
        {"num_heads": 2, "past_present_share_buffer": 1}, 3, masked,
    ),
    "DynamicQuantizeLSTM": Call(
        [real(3, 2, 4), whole(U8, 1, 4, 12, most=50), whole(U8, 1, 3, 12, most=50), None, None, None, None, None,
         np.array([0.02], F32), np.array([3], U8), np.array([0.02], F32), np.array([3], U8)],
        {"hidden_size": 3}, 3,
        lambda x, w, r, *_: lstm(x, widened(w).swapaxes(1, 2), widened(r).swapaxes(1, 2)), near=2e-2,
    ),
    "DynamicTimeWarping": Call([abs(real(4, 5))], {}, formula=warped, near=0),
    "EngramGate": Call(
        [STREAMS, real(2, 3, 4, 8), STEPS, real(4, 8), real(4, 8), real(4, 8)], {}, 2, engram, near=1e-5,
    ),
    "ExpandDims": Call([real(2, 3), scalar(1, I32)], {}, formula=lambda x, axis: x[:, None], near=0),
    "GatedAdd": Call([STEPS, real(2, 3, 8), real(2, 3, 1)], {}, formula=lambda x, y, gate: x + y.astype(F64) * gate),
    "GatedDeltaNet": Call(
        [real(5, 2, 4), real(5, 2, 4), real(5, 2, 4), i32(0, 2, 5), -abs(real(5, 2)), sigmoid(real(5, 2)).astype(F32)],
        {}, 2, by_request,
    ),
    "GatedRMSNorm": Call(
        [STEPS, real(4), real(2, 3, 8)], {},
        formula=lambda x, scale, gate: (rms(x.reshape(2, 3, 2, 4)) * scale).reshape(2, 3, 8) * gate * sigmoid(gate),
    ),
    "GatherND": Call(
        [real(2, 3), np.array([[0, 1], [1, 2]])], {}, formula=lambda x, at: x[at[:, 0], at[:, 1]], near=0,
    ),
    "GatherPacked": Call(  # GGUF's Q8_0: a scale in float16, and 32 numbers
        [np.concatenate([np.array([0.1, -2, 3, 4, 5], np.float16)[:, None].view(U8), whole(U8, 5, 32)], 1),
         np.array([0, 4, 2])],
        {"packed_type": 8, "K": 32, "output_dtype": 1},
        formula=lambda x, at: (x[:, :2].copy().view(np.float16).astype(F32) * x[:, 2:].view(np.int8))[at], near=0,
    ),
    "GridSample": Call(
        [IMAGE, np.stack(np.meshgrid(np.linspace(-1, 1, 6), np.linspace(-1, 1, 6)), -1)[None].astype(F32)],
        {"align_corners": 1}, formula=lambda x, grid: x, near=1e-5,
    ),
    "HyperConnectionPostMix": Call(
        [STREAMS, STEPS, real(2, 3, 4), real(2, 3, 4, 4)], {},
        formula=lambda x, y, gate, mix: (
            np.einsum("btck,btch->btkh", mix.astype(F64), x) + gate[..., None] * y[:, :, None]
        ),
    ),
    "HyperConnectionPreMix": Call(
        [STREAMS, real(2, 3, 4)], {"reduction_scale": 0.5},
        formula=lambda x, gate: 0.5 * (x.astype(F64) * gate[..., None]).sum(-2),
    ),
    "LinearAttention": Call(
        [STEPS, real(2, 3, 8), real(2, 3, 8), real(2, 2, 4, 4), -abs(real(2, 3, 2)),
         sigmoid(real(2, 3, 2)).astype(F32)],
        {"q_num_heads": 2, "kv_num_heads": 2}, 2, recurrent, near=1e-5,
    ),
    "LinearAttentionGate": Call(
        [STEPS, real(8), -abs(real(8)), real(2, 3, 8)], {}, 2,
        lambda a, bias, scale, b: (scale * np.log1p(np.exp(a.astype(F64) + bias)), sigmoid(b)),
    ),
    "MRotaryEmbedding": Call(
        [real(2, 3, 5, 8), whole(I64, 3, 2, 5, most=20), real(20, 4), real(20, 4)],
        {"mrope_section": [2, 1, 1]}, formula=rotated,
    ),
    "MatMulBnb4": Call(
        [real(3, 32), whole(U8, 64), abs(real(8))], {"K": 32, "N": 4, "block_size": 16, "quant_type": 1},
        formula=by_four_bits, near=1e-5,
    ),
    "MatMulInteger16": Call(
        [whole(np.int16, 2, 3) - np.int16(100), whole(np.int16, 3, 4)], {},
        formula=lambda a, b: a.astype(I32) @ b.astype(I32), near=0,
    ),
    "MaxpoolWithMask": Call(
        [IMAGE, np.ones((1, 2, 6, 6), I32)], {"kernel_shape": [2, 2], "strides": [2, 2]},
        formula=lambda x, _mask: x.reshape(1, 2, 3, 2, 3, 2).max((3, 5)), near=0,
    ),
    "MoEGroupRouter": Call([real(5, 6), real(6)], {"top_k": 2}, formula=routed),
    "MurmurHash3": Call([whole(I32, 2, 3)], {"seed": 7}, formula=murmur, near=0),
    "NGramHashMapping": Call(
        [whole(I64, 2, 5), np.array([3, 5, 7]), np.array([11, 13, 17, 19])],
        {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0}, formula=hashed, near=0,
    ),
    "NGramRepeatBlock": Call(
        [np.array([[1, 2, 3, 1], [4, 4, 4, 4]]), real(2, 6)], {"ngram_size": 2}, formula=repeated, near=0,
    ),
    "Pad": Call(
        [real(2, 3), np.array([0, 2, 1, 0]), np.array([9], F32)], {},
        formula=lambda x, _pads, value: np.pad(x, ((0, 1), (2, 0)), constant_values=value.item()), near=0,
    ),
    "QAttention": Call(
        [whole(U8, 2, 3, 6), whole(U8, 6, 24), real(24), SCALE, SCALE, None, ZERO, ZERO], {"num_heads": 2},
        formula=lambda x, w, bias, *_: attended(2, *np.split(widened(x) @ widened(w) + bias, 3, -1)), near=1e-4,
    ),
    "QEmbedLayerNormalization": Call(
        [whole(I32, 2, 3, most=9), None, whole(U8, 9, 8), whole(U8, 5, 8), None, whole(U8, 8), whole(U8, 8), None,
         SCALE, SCALE, None, SCALE, SCALE, ZERO, ZERO, None, ZERO, ZERO],
        {}, 2, embedded, near=1e-5,
    ),
    "QGemm": Call(
        [whole(U8, 3, 4), SCALE, ZERO, whole(U8, 4, 5), SCALE, ZERO], {},
        formula=lambda a, _s, _z, b, *_: widened(a) @ widened(b),
    ),
    "QLinearAveragePool": Call(
        [BYTES, SCALE, ZERO, SCALE, ZERO], {"kernel_shape": [2, 2], "strides": [2, 2]},
        formula=lambda x, *_: narrowed(widened(x).reshape(1, 2, 3, 2, 3, 2).mean((3, 5))), near=1,
    ),
    "QLinearConcat": Call(
        [SCALE, ZERO, whole(U8, 2, 3), SCALE, ZERO, whole(U8, 2, 4), scalar(0.01), ZERO], {"axis": 1},
        formula=lambda _s, _z, a, _t, _y, b, u, v: np.concatenate([a, narrowed(widened(b, u, v))], 1), near=1,
    ),
    "QLinearConv": Call(
        [BYTES, SCALE, ZERO, whole(U8, 3, 2, 3, 3), SCALE, ZERO, SCALE, scalar(100, U8)], {},
        formula=lambda x, _s, _z, w, _t, _y, u, v: narrowed(convolution(widened(x), widened(w)), u, v), near=1,
    ),
    "QLinearGlobalAveragePool": Call(
        [BYTES, SCALE, ZERO, SCALE, ZERO], {},
        formula=lambda x, *_: narrowed(widened(x).mean((2, 3), keepdims=True)), near=1,
    ),
    "QLinearSoftmax": Call(
        [whole(U8, 2, 5), SCALE, ZERO, scalar(1 / 256), scalar(0, U8)], {"opset": 13},
        formula=lambda x, _s, _z, t, y: narrowed(softmax(widened(x)), t, y), near=1,
    ),
    "QLinearWhere": Call(
        [np.array([[True, False, True], [False, True, False]]), whole(U8, 2, 3), SCALE, ZERO, whole(U8, 1, 3), SCALE,
         ZERO, SCALE, ZERO], {},
        formula=lambda c, x, _s, _z, y, *_: np.where(c, x, y), near=1,
    ),
    "Range": Call(
        [scalar(1), scalar(4), scalar(0.5)], {},
        formula=lambda a, b, c: np.arange(float(a), float(b), float(c)).astype(F32), near=0,
    ),
    "SampleOp": Call([real(2, 3)], {}, formula=lambda x: x, near=0),
    "ScaledSiLU": Call([real(2, 3)], {"alpha": 0.5}, formula=lambda x: x * 0.5 * sigmoid(x * 0.5)),
    "Tokenizer": Call(
        [TEXT], {"mark": 0, "mincharnum": 1, "pad_value": "#", "separators": [" "]},
        formula=lambda _x: np.array([[text.split() for text in row] for row in TOKENS], dtype=object), near=0,
    ),
    "UnfoldTensor": Call(
        [real(2, 7)], {"size": 3, "step": 2},
        formula=lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2], near=0,
    ),
    "Unique": Call([np.array([3, 1, 3, 2], F32)], {}, 3, unique, near=0),
    "VarlenCausalConvWithState": Call(
        [real(5, 3), real(3, 1, 4), i32(0, 5), real(3), real(1, 3, 3)], {}, 2,
        lambda x, w, _at, bias, past: tuple(
            y[0].T if i == 0 else y for i, y in enumerate(convolved(x.T[None], w, bias, past))
        ),
    ),
    "VarlenNGramHashMapping": Call(
        [whole(I64, 5), np.array([3, 5, 7]), np.array([11, 13, 17, 19]), i32(0, 5)],
        {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0},
        formula=lambda ids, a, b, _at: hashed(ids[None], a, b)[0], near=0,
    ),
    "WordConvEmbedding": Call(
        [whole(I32, 2, 6, most=9) + 1, real(4, 1, 2, 3), real(4), real(10, 3)], {}, formula=words,
    ),
}  # fmt: skip
"""By operator. MatMulFpQ4, SparseAttention and the searches, which take graphs, have tests of their own."""
