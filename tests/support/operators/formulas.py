"""References of operators that ONNX's evaluator lacks or computes in float32: of arrays, floats as float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphcore import DType
from graphcore.arrays.casting import cast_array

Array = np.ndarray[Any, Any]
Attributes = dict[str, Any]


def single(value: float) -> float:
    """An attribute as a file stores it."""
    return float(np.float32(value))


def _erf(x: Array, a: Attributes) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axis=axes, keepdims=True)
    made: Array = centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + epsilon)
    return made


def _group_normalization(x: Array, scale: Array, bias: Array, a: Attributes) -> Array:
    groups = x.reshape(x.shape[0], a["num_groups"], -1)
    made: Array = _normalized(groups, (2,), 1e-5).reshape(x.shape) * scale[:, None] + bias[:, None]
    return made


def _mean_variance(x: Array, a: Attributes) -> Array:
    centred = x - x.mean(axis=(0, 2, 3), keepdims=True)
    return np.asarray(centred / (np.sqrt((centred**2).mean(axis=(0, 2, 3), keepdims=True)) + 1e-9))


def _response(x: Array, a: Attributes) -> Array:
    size, made = a["size"], np.empty_like(x)
    for c in range(x.shape[1]):
        near = x[:, max(0, c - (size - 1) // 2) : c + math.ceil((size - 1) / 2) + 1]
        made[:, c] = x[:, c] / (1 + 1e-4 / size * (near**2).sum(axis=1)) ** 0.75
    return made


def _max_roi_pool(x: Array, regions: Array, a: Attributes) -> Array:
    rows, columns = a["pooled_shape"]
    made = np.zeros((len(regions), x.shape[1], rows, columns))
    for r, region in enumerate(regions):
        corners = np.sign(region[1:]) * np.floor(np.abs(region[1:] * a.get("spatial_scale", 1.0)) + 0.5)
        left, top, right, bottom = corners
        for row, column in itertools.product(range(rows), range(columns)):
            y, x_ = _part(top, bottom, rows, row, x.shape[2]), _part(left, right, columns, column, x.shape[3])
            part = x[int(region[0]), :, y, x_]
            made[r, :, row, column] = part.max(axis=(1, 2)) if part.size else 0
    return made


def _part(first: float, last: float, parts: int, part: int, size: int) -> slice:
    """The pixels of a part, among those there are."""
    step = max(last - first + 1, 1) / parts
    begin, end = first + math.floor(part * step), first + math.ceil((part + 1) * step)
    return slice(int(np.clip(begin, 0, size)), int(np.clip(end, 0, size)))


def _nearest(x: Array, grid: Array, a: Attributes) -> Array:
    """Return the pixels at the grid's positions, 0 beyond the image."""
    made = np.full((1, 1, 2, 2), "" if x.dtype == object else 0, x.dtype)
    for place in itertools.product(range(2), range(2)):
        at = [math.floor(((v + 1) * 3 - 1) / 2 + 0.5) for v in grid[0][place]]
        if all(0 <= c < 3 for c in at):
            made[0, 0][place] = x[0, 0, at[1], at[0]]
    return made


def _one_hot(indices: Array, depth: Array, values: Array, a: Attributes) -> Array:
    return np.asarray(np.where(indices[:, None] == np.arange(int(depth)), values[1], values[0]))


def _scatter(data: Array, indices: Array, updates: Array, a: Attributes) -> Array:
    made = data.copy()
    np.put_along_axis(made, indices, updates, a["axis"])
    return made


def _quantized_product(*arrays: Any) -> Array:
    *operands, _ = arrays
    left, left_scale, left_zero, right, right_scale, right_zero, scale, zero = operands
    product = ((left - left_zero) * left_scale) @ ((right - right_zero) * right_scale)
    return np.asarray(product / scale + zero)


def _mapped(x: Array, a: Attributes) -> Array:
    numbers, texts = a["cats_int64s"], a["cats_strings"]
    table = dict(zip(texts, numbers, strict=True)) if x.dtype == object else dict(zip(numbers, texts, strict=True))
    return np.array([table[v] for v in x.ravel().tolist()], None if x.dtype == object else object).reshape(x.shape)


def _cast(x: Array, target: DType) -> Array:
    """As ONNX has it: floats wrap on their way to 2 or 4 bits, and saturate on that to 8 and more."""
    if x.dtype == object:
        return x.astype(target.numpy)
    own = DType.of(x.dtype)
    if own.is_float and target.is_integer and target.bits < 8:
        x, own = cast_array(x, own, DType.int32), DType.int32
    return cast_array(x, own, target)


FORMULAS: dict[str, Callable[..., Any]] = {
    "Cast": lambda x, a: _cast(x, DType.of(a["to"])),
    "CastLike": lambda x, like, a: _cast(x, DType.of(like.dtype)),
    "CategoryMapper": _mapped,
    "Erf": _erf,
    "Gelu": lambda x, a: x * (1 + _erf(x / math.sqrt(2), a)) / 2,
    "GlobalLpPool": lambda x, a: np.sqrt((x**2).sum(axis=(2, 3), keepdims=True)),
    "GroupNormalization": _group_normalization,
    "HardSigmoid": lambda x, a: np.clip(0.2 * x + 0.5, 0, 1),
    "HardSwish": lambda x, a: x * np.clip(x / 6 + 0.5, 0, 1),
    "GridSample": _nearest,
    "LRN": _response,
    "LeakyRelu": lambda x, a: np.where(x < 0, 0.01 * x, x),
    "Loop": lambda count, goes_on, x, a: [x, np.stack([x[None]] * int(count))],
    "MaxRoiPool": _max_roi_pool,
    "MeanVarianceNormalization": _mean_variance,
    "NonMaxSuppression": lambda boxes, scores, most, a: np.array([[0, 0, 1]]),
    "OneHot": _one_hot,
    "QLinearMatMul": _quantized_product,
    "Resize": lambda x, roi, scales, a: x.repeat(2, axis=2).repeat(2, axis=3),
    "Scatter": _scatter,
    "Selu": lambda x, a: single(1.05070102214813232421875)
    * np.where(x > 0, x, single(1.67326319217681884765625) * np.expm1(np.minimum(x, 0))),
    "Trilu": lambda x, a: np.where(np.tri(len(x)) > 0, x, "" if x.dtype == object else 0),
    "ZipMap": lambda x, a: [dict(zip(a["classlabels_int64s"], row, strict=True)) for row in x.tolist()],
}  # fmt: skip
