"""Ops that combine many elements: reductions, products, orders, normalisations, windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphcore import DType, Symbol, ops
from tests.ops.test_attention import attended, turned
from tests.ops.test_convolution import convolved, transposed
from tests.ops.test_fourier import numbers as complex_of
from tests.ops.test_fourier import parts
from tests.ops.test_normalization import grouped, standardised
from tests.ops.test_pooling import columns_of, pooled
from tests.ops.test_recurrent import layer
from tests.ops.test_resizing import cubic, hat, interpolated, regions
from tests.support.every.case import (
    BOOL,
    Array,
    Case,
    Operand,
    counted,
    double_of_integers,
    number,
    place,
    real,
    truth,
)

D = DType
X = ("n 4",)
WHOLE = ("n 4: whole",)
RING = ("n 4: ring",)
UNIT = ("n 4: unit",)
IMAGE = "b h w 2"


def holding(numbers: Any) -> Callable[[DType], Array]:
    """The same numbers in every dtype."""
    return lambda dtype: np.array(numbers, np.float32).astype(dtype.numpy)


def rank_of(x: Array) -> Array:
    """The places of elements in ascending order along the last axis, stable, NaN last."""
    if x.dtype == object:
        return np.argsort(x, axis=-1, kind="stable")
    return np.argsort(x, axis=-1, kind="stable")  # of NumPy: NaN last, beyond infinity


def taken(x: Array, places: Array) -> Array:
    return np.take_along_axis(x, places, -1)


def ranked(call: Callable[[Symbol], Any], formula: Callable[[Array], Any]) -> Case:
    """Two results: elements of the own dtype, and their places, which are cast to be compared with them."""
    return number(X, lambda x: call(x)[0], lambda x: taken(x, formula(x)))


def greatest(x: Array) -> Array:
    """The places of the elements in descending order, equal ones in their own, NaN first."""
    flipped = rank_of(x[..., ::-1])[..., ::-1]
    return np.asarray(x.shape[-1] - 1 - flipped)


def by_channels(formula: Callable[..., Array]) -> Callable[..., Array]:
    """A formula of x: [N, C, ...] in float64, given x: [N, ..., C]."""

    def apply(x: Array, *rest: Array) -> Array:
        result = formula(np.moveaxis(x, -1, 1).astype(np.float64), *(r.astype(np.float64) for r in rest))
        return np.moveaxis(result, 1, -1)

    return apply


def filter_first(filter: Array, rank: int) -> Array:
    """[..., C, F] to [F, C, ...]."""
    return np.moveaxis(np.moveaxis(filter, -1, 0), -1, 1)


def convolution(rank: int) -> Case:
    dims = ["b", "w", "h", "w"][: rank + 1]
    kernel = " ".join("2" * rank)
    call: Any = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}[rank]
    padding = (1, 0) * rank

    def formula(x: Array, filter: Array) -> Array:
        return convolved(x, filter_first(filter, rank), (1,) * rank, (1,) * rank, padding)

    results = [f"{' '.join(dims)} 2: whole", f"{kernel} 2 3: whole"]
    return real(results, lambda x, f: call(x, f, padding=padding), by_channels(formula), near=False)


def deconvolved(x: Array, filter: Array) -> Array:
    return transposed(x, filter_first(filter, 2), (2, 1), (1, 1), (1, 0, 0, 1), (0, 0))


def deconvolution(rank: int) -> Case:
    """One that adds no windows: the stride is the size of the filter."""
    dims = " ".join(["b", "w", "h", "w"][: rank + 1])
    call: Any = {1: ops.conv1d_transpose, 3: ops.conv3d_transpose}[rank]

    def formula(x: Array, filter: Array) -> Array:
        blocks = np.tensordot(x, filter, ([-1], [-1]))  # batch, places, kernel, channels
        order = [0, *(axis for i in range(rank) for axis in (1 + i, 1 + rank + i)), 1 + 2 * rank]
        shape = (len(x), *(2 * size for size in x.shape[1:-1]), filter.shape[-2])
        return np.asarray(blocks.transpose(order).reshape(shape))

    results = [f"{dims} 2: whole", f"{' '.join('2' * rank)} 3 2: whole"]
    return real(results, lambda x, f: call(x, f, 2), formula, near=False)


def pooling(rank: int, kind: str) -> Case:
    dims = " ".join(["b", "w", "h", "w"][: rank + 1])
    call: Any = getattr(ops, f"{kind}_pool{rank}d")

    def formula(x: Array) -> Array:
        for axis in range(1, rank + 1):
            ends = x.shape[axis]
            before, after = (np.take(x, range(i, ends - 1 + i), axis) for i in (0, 1))
            x = np.where((before > after) | (before != before), before, after) if kind == "max" else before + after
        return x if kind == "max" else np.asarray(x / 2**rank)

    if kind == "max":
        return number([f"{dims} 2"], lambda x: call(x, 2), formula)
    return real([f"{dims} 2: whole"], lambda x: call(x, 2), formula, near=False)


def recurrent(name: str, gates: int) -> Case:
    def formula(x: Array, *arrays: Array) -> Array:
        weights = [array.astype(np.float64) for array in arrays]
        zeros = np.zeros((x.shape[1], 2))
        return layer(name, x.astype(np.float64), weights, zeros, zeros, np.full(x.shape[1], len(x)), "forward")[0]

    results = [
        "3 b 2: unit",
        f"{2 * gates} 2: unit",
        f"{2 * gates} 2: unit",
        f"{2 * gates}: unit",
        f"{2 * gates}: unit",
    ]
    return real(results, lambda *operands: getattr(ops, name)(*operands)[0], formula)


def framed(x: Array, window: Array) -> Array:
    frames = np.stack([x[:, i : i + 4] * window for i in (0, 3)], 1).astype(np.float64)
    return parts(np.fft.rfft(frames))


def spaced(start: Array, stop: Array) -> Array:
    weight = np.arange(5, dtype=np.longdouble) / 4
    return np.asarray((1 - weight) * start + weight * stop)


def sampled(x: Array, grid: Array) -> Array:
    """Of a height of 6 and a width of 5: the middle is between two rows, and 1 is the last column."""
    rows = (x[:, 2] + x[:, 3]) / 2
    return np.stack([rows[:, [2, 4]]], 1)


def mean_pooled(x: Array) -> Array:
    return pooled(x, "avg", (2, 2), (1, 2), (1, 1), (1, 0, 0, 1))


def greatest_of_windows(x: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(1, 2))
    return np.asarray(np.maximum.reduce(windows.reshape(*windows.shape[:-2], 4), axis=-1))


def folded(x: Array) -> Array:
    array = np.zeros((len(x), 1, 3, 4), x.dtype)
    for window, elements in enumerate(columns_of((3, 4), (2, 2), (1, 1), (1, 1), (0, 0, 0, 0))):
        for element, (row, column) in enumerate(elements):
            array[:, 0, row, column] += x[:, element, window]
    return array


def channel_norm(x: Array, gamma: Array, beta: Array) -> Array:
    return grouped([x.astype(np.float64), gamma, beta], 2, 1e-5)


def instance(x: Array, gamma: Array, beta: Array) -> Array:
    return grouped([x.astype(np.float64), gamma, beta], 4, 1e-5)


def root_mean(x: Array, weight: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight)


def batch(x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Array:
    s, b, m, v = (np.asarray(a)[:, None] for a in (scale, bias, mean, var))
    return np.asarray((x - m) / np.sqrt(v + 1e-5) * s + b)


def unit_length(x: Array) -> Array:
    size = np.sqrt((x * x).sum(-1, keepdims=True))
    return np.asarray(np.where(size == 0, 0, x / np.where(size == 0, 1, size)))


def complex_product(x: Array, y: Array) -> Array:
    (a, b), (c, d) = ((v[..., 0], v[..., 1]) for v in (x, y))
    return np.stack([a * c - b * d, a * d + b * c], -1)


def pivoting(dtype: DType) -> Array:
    """A matrix of numbers that every dtype holds, whose decomposition is exact and exchanges rows."""
    array = np.array([[0, 1, 1, 0, 1], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [0, 1, 0, 1, 1], [1, 0, 0, 1, 1]])
    return array.astype(np.float32).astype(dtype.numpy)


def decomposed(x: Array) -> tuple[Array, Array, Array]:
    """P, L and U."""
    upper, lower, order = x.copy(), np.zeros_like(x), np.arange(len(x))
    for k in range(len(x)):
        swap = [k, k + int(np.argmax(np.abs(upper[k:, k])))]
        for part in (upper, lower, order):
            part[swap] = part[swap[::-1]]
        lower[k:, k] = upper[k:, k] / upper[k, k]
        upper[k + 1 :] -= lower[k + 1 :, k : k + 1] * upper[k]
    return np.eye(len(x))[:, order].astype(x.dtype), lower, upper


def packed(x: Array) -> Array:
    _, lower, upper = decomposed(x)
    return np.asarray(np.tril(lower, -1) + upper)


def forward(a: Array, b: Array) -> Array:
    """The solution of a unit lower triangular system."""
    x = np.zeros_like(b)
    for k in range(len(a)):
        x[k] = b[k] - a[k, :k] @ x[:k]
    return x


def boxes(dtype: DType) -> Array:
    """Regions that fit into what any dtype holds."""
    array = np.array([[0, 0, 0, 3, 3], [1, 1, 1, 4, 3]])
    return (array != 0 if dtype is D.bool else array).astype(np.float32).astype(dtype.numpy)


def causal(q: Array, k: Array, v: Array) -> Array:
    return attended(q, k, v, is_causal=True)


def log_sum(x: Array) -> Array:
    greatest_one = x.max(1)
    return np.asarray(greatest_one + np.log(np.exp(x - greatest_one[:, None]).sum(1)))


def units(dtype: DType) -> Array:
    """Vectors whose products every dtype holds."""
    array = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1], [0, 0, 1]])
    return array.astype(np.float32).astype(dtype.numpy)


def vector_product(x: Array, y: Array) -> Array:
    parts = [x[:, (i + 1) % 3] * y[:, (i + 2) % 3] - x[:, (i + 2) % 3] * y[:, (i + 1) % 3] for i in range(3)]
    return np.stack(parts, -1)


def running(formula: Any, call: Any) -> Case:
    return number(RING, call, lambda x: formula(x, axis=-1), counted)


def spread(x: Array, root: bool = False) -> Array:
    wide = x.astype(np.longdouble)
    result = ((wide - wide.mean(1, keepdims=True)) ** 2).mean(1)
    return np.asarray(np.sqrt(result) if root else result)


def average(value: tuple[str, ...], call: Any, formula: Any, near: bool = True) -> Case:
    return real(value, call, formula, double_of_integers, near)


CASES: dict[str, Case] = {
    "sum": number(RING, lambda x: ops.sum(x, axis=1), lambda x: x.sum(axis=1), counted),
    "prod": number(RING, lambda x: ops.prod(x, axis=1), lambda x: x.prod(axis=1), counted),
    "count_nonzero": place(X, lambda x: ops.count_nonzero(x, axis=1), lambda x: (x != 0).sum(axis=1)),
    "mean": average(WHOLE, lambda x: ops.mean(x, axis=1), lambda x: x.mean(axis=1), near=False),
    "var": average(UNIT, lambda x: ops.var(x, axis=1), spread),
    "stdev": average(UNIT, lambda x: ops.stdev(x, axis=1), lambda x: spread(x, root=True)),
    "median": average(UNIT, lambda x: ops.median(x, axis=1), lambda x: np.median(x, axis=1)),
    "quantile": average(
        UNIT, lambda x: ops.quantile(x, [0.1, 0.75], axis=1), lambda x: np.quantile(x, [0.1, 0.75], axis=1)
    ),
    "mag": real(UNIT, lambda x: ops.mag(x, axis=1), lambda x: np.sqrt((x * x).sum(axis=1))),
    "logsumexp": real(UNIT, lambda x: ops.logsumexp(x, axis=1), log_sum),
    "max": number(X, lambda x: ops.max(x, axis=1), lambda x: np.maximum.reduce(x, axis=1)),
    "min": number(X, lambda x: ops.min(x, axis=1), lambda x: np.minimum.reduce(x, axis=1)),
    "argmax": place(X, lambda x: ops.argmax(x, axis=1), lambda x: np.argmax(x, axis=1)),
    "argmin": place(X, lambda x: ops.argmin(x, axis=1), lambda x: np.argmin(x, axis=1)),
    "arg_max": place(X, lambda x: ops.arg_max(x), lambda x: np.argmax(x, axis=1)),
    "any": truth(X, lambda x: ops.any(x, axis=1), lambda x: (x != 0).any(axis=1)),
    "all": truth(X, lambda x: ops.all(x, axis=1), lambda x: (x != 0).all(axis=1)),
    "sort": number(X, ops.sort, lambda x: taken(x, rank_of(x))),
    "argsort": place(X, ops.argsort, rank_of),
    "top_k": ranked(lambda x: ops.top_k(x, 2), lambda x: greatest(x)[:, :2]),
    "bottom_k": ranked(lambda x: ops.bottom_k(x, 2), lambda x: rank_of(x)[:, :2]),
    "cumsum": running(np.add.accumulate, ops.cumsum),
    "cumprod": running(np.multiply.accumulate, ops.cumprod),
    "cummax": number(X, ops.cummax, lambda x: np.maximum.accumulate(x, axis=-1)),
    "cummin": number(X, lambda x: ops.cummin(x, 0, reverse=True), lambda x: np.minimum.accumulate(x[::-1])[::-1]),
    "cross": number([Operand("n 3", units), Operand("n 3", units)], ops.cross, vector_product, refused=BOOL),
    "matmul": number(["n 4: ring", "4 m: ring"], lambda x, y: x @ y, np.matmul),
    "linear": number(["n 4: ring", "3 4: ring", "3: ring"], ops.linear, lambda x, w, b: x @ w.T + b),
    "outer": number(["n: ring", "m: ring"], ops.outer, lambda x, y: x[:, None] * y),
    "vecdot": number(["n 4: ring", "n 4: ring"], ops.vecdot, lambda x, y: (x * y).sum(-1)),
    "tensordot": number(["n 4: ring", "4 m: ring"], lambda x, y: ops.tensordot(x, y, 1), np.matmul),
    "einsum": number(["n 4: ring", "m 4: ring"], lambda x, y: ops.einsum("ij,kj->ik", x, y), lambda x, y: x @ y.T),
    "lu": real([Operand("n n", pivoting)], ops.lu, decomposed, near=False),
    "lu_factor": real([Operand("n n", pivoting)], lambda x: ops.lu_factor(x)[0], packed, near=False),
    "triangular_solve": real(
        [Operand("n n", pivoting), "n m: whole"],
        lambda a, b: ops.triangular_solve(a, b, lower=True, unit_diagonal=True),
        forward,
        near=False,
    ),
    "mul_complex": number(["n 2: ring", "n 2: ring"], ops.mul_complex, complex_product, refused=BOOL),
    "fft": real(["n 4 2: unit"], lambda x: ops.fft(x, axis=1), lambda x: parts(np.fft.fft(complex_of(x)))),
    "ifft": real(["n 4 2: unit"], lambda x: ops.ifft(x, axis=1), lambda x: parts(np.fft.ifft(complex_of(x)))),
    "rfft": real(["n 4: unit"], ops.rfft, lambda x: parts(np.fft.rfft(x.astype(np.float64)))),
    "irfft": real(["n 4 2: unit"], lambda x: ops.irfft(x, axis=1), lambda x: np.fft.irfft(complex_of(x))),
    "layer_norm": real(
        ["n 4: unit", "4: unit", "4: unit"],
        ops.layer_norm,
        lambda x, g, b: standardised(x, (1,), 1e-5) * g + b,
    ),
    "rms_norm": real(["n 4: unit", "4: unit"], ops.rms_norm, root_mean),
    "group_norm": real(["n 4 5: unit", "4: unit", "4: unit"], lambda x, g, b: ops.group_norm(x, g, b, 2), channel_norm),
    "instance_norm": real(["n 4 5: unit", "4: unit", "4: unit"], ops.instance_norm, instance),
    "batch_norm": real(["n 4 k: unit", "4: unit", "4: unit", "4: unit", "4: positive"], ops.batch_norm, batch),
    "lp_normalize": real(UNIT, ops.lp_normalize, unit_length),
    "scaled_dot_product_attention": real(
        ["b 2 3 4: unit", "b 2 n 4: unit", "b 2 n 4: unit"],
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, is_causal=True),
        causal,
    ),
    "rotary_embedding": real(["b 2 n 4: whole", "b n 2: whole", "b n 2: whole"], ops.rotary_embedding, turned),
    "conv1d": convolution(1),
    "conv2d": convolution(2),
    "conv3d": convolution(3),
    "conv1d_transpose": deconvolution(1),
    "conv3d_transpose": deconvolution(3),
    "avg_pool1d": pooling(1, "avg"),
    "avg_pool3d": pooling(3, "avg"),
    "max_pool1d": pooling(1, "max"),
    "max_pool3d": pooling(3, "max"),
    "lstm": recurrent("lstm", 4),
    "gru": recurrent("gru", 3),
    "rnn": recurrent("rnn", 1),
    "stft": real(["b 8: unit", "4: unit"], lambda x, w: ops.stft(x, 4, 3, w), framed),
    "linspace": real([": unit", ": unit"], lambda x, y: ops.linspace(x, y, 5), spaced),
    "grid_sample": real(
        ["b h w 2: unit", Operand("b 1 2 2", holding([[[[0, 0], [1, 0]]]] * 2))],
        lambda x, grid: ops.grid_sample(x, grid, align_corners=True),
        sampled,
    ),
    "conv2d_transpose": real(
        ["b h w 2: whole", "2 2 3 2: whole"],
        lambda x, f: ops.conv2d_transpose(x, f, (2, 1), padding=(1, 0, 0, 1)),
        by_channels(deconvolved),
        near=False,
    ),
    "avg_pool2d": real(
        [f"{IMAGE}: whole"],
        lambda x: ops.avg_pool2d(x, (2, 2), (1, 2), padding=(1, 0, 0, 1)),
        by_channels(mean_pooled),
        near=False,
    ),
    "avg_pool": real(
        [f"{IMAGE}: whole"],
        lambda x: ops.avg_pool(x, (2, 2), (1, 2), padding=(1, 0, 0, 1)),
        by_channels(mean_pooled),
        near=False,
    ),
    "max_pool2d": number([IMAGE], lambda x: ops.max_pool2d(x, (2, 2)), greatest_of_windows),
    "max_pool": number([IMAGE], lambda x: ops.max_pool(x, (2, 2)), greatest_of_windows),
    "fold": real(["n 4 6: whole"], lambda x: ops.fold(x, (3, 4), (2, 2)), folded, near=False),
    "resize": real(
        ["b 2 4 5: unit"],
        lambda x: ops.resize(x, (x.shape[0], 2, 8, 10)),
        lambda x: interpolated(x, (len(x), 2, 8, 10), hat, 1),
    ),
    "resize_linear": real(
        ["b 4: unit"],
        lambda x: ops.resize_linear(x, (x.shape[0], 8)),
        lambda x: interpolated(x, (len(x), 8), hat, 1),
    ),
    "resize_bicubic": real(
        ["b 2 4 5: unit"],
        lambda x: ops.resize_bicubic(x, (x.shape[0], 2, 8, 10)),
        lambda x: interpolated(x, (len(x), 2, 8, 10), cubic, 2),
    ),
    "non_maximum_suppression": place(
        [Operand("1 3 4", holding([[[0, 0, 1, 1]] * 3])), Operand("1 1 3", holding([[[0, 1, 0]]]))],
        lambda boxes, scores: ops.non_maximum_suppression(boxes, scores, 3),
        lambda boxes, scores: np.array([[0, 0, int(np.argmax(scores))]]),
    ),
    "roi_align": real(
        [f"{IMAGE}: unit", Operand("2 5", boxes)],
        lambda x, r: ops.roi_align(x, r, 2, 2, sampling_ratio=2),
        lambda x, r: regions(x, r, 2, 2, ratio=2),
    ),
}
