"""The results of a case, by ONNX's own evaluator or by a formula where it lacks the operator or computes in float32."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from graphcore import DType
from graphcore.arrays.casting import cast_array
from tests.support.operators.cases import Place
from tools.kernel_probe.case import SWEPT, Case, Operand

Array = np.ndarray[Any, Any]
Attributes = dict[str, Any]


def single(value: float) -> float:
    """An attribute as a file stores it."""
    return float(np.float32(value))


def _erf(x: Array, a: Attributes) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axis=axes, keepdims=True)
    result: Array = centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + epsilon)
    return result


def _group_normalization(x: Array, scale: Array, bias: Array, a: Attributes) -> Array:
    groups = x.reshape(x.shape[0], a["num_groups"], -1)
    result: Array = _normalized(groups, (2,), 1e-5).reshape(x.shape) * scale[:, None] + bias[:, None]
    return result


def _mean_variance(x: Array, a: Attributes) -> Array:
    centred = x - x.mean(axis=(0, 2, 3), keepdims=True)
    return np.asarray(centred / (np.sqrt((centred**2).mean(axis=(0, 2, 3), keepdims=True)) + 1e-9))


def _response(x: Array, a: Attributes) -> Array:
    size, result = a["size"], np.empty_like(x)
    for c in range(x.shape[1]):
        near = x[:, max(0, c - (size - 1) // 2) : c + math.ceil((size - 1) / 2) + 1]
        result[:, c] = x[:, c] / (1 + 1e-4 / size * (near**2).sum(axis=1)) ** 0.75
    return result


def _max_roi_pool(x: Array, regions: Array, a: Attributes) -> Array:
    rows, columns = a["pooled_shape"]
    array = np.zeros((len(regions), x.shape[1], rows, columns))
    for r, region in enumerate(regions):
        corners = np.sign(region[1:]) * np.floor(np.abs(region[1:] * a.get("spatial_scale", 1.0)) + 0.5)
        left, top, right, bottom = corners
        for row, column in itertools.product(range(rows), range(columns)):
            y, x_ = _part(top, bottom, rows, row, x.shape[2]), _part(left, right, columns, column, x.shape[3])
            part = x[int(region[0]), :, y, x_]
            array[r, :, row, column] = part.max(axis=(1, 2)) if part.size else 0
    return array


def _part(first: float, last: float, parts: int, part: int, size: int) -> slice:
    """The pixels of a part, among those there are."""
    step = max(last - first + 1, 1) / parts
    begin, end = first + math.floor(part * step), first + math.ceil((part + 1) * step)
    return slice(int(np.clip(begin, 0, size)), int(np.clip(end, 0, size)))


def _nearest(x: Array, grid: Array, a: Attributes) -> Array:
    """Return the pixels at the grid's positions, 0 beyond the image."""
    array = np.full((1, 1, 2, 2), "" if x.dtype == object else 0, x.dtype)
    for place in itertools.product(range(2), range(2)):
        at = [math.floor(((v + 1) * 3 - 1) / 2 + 0.5) for v in grid[0][place]]
        if all(0 <= c < 3 for c in at):
            array[0, 0][place] = x[0, 0, at[1], at[0]]
    return array


def _one_hot(indices: Array, depth: Array, values: Array, a: Attributes) -> Array:
    return np.asarray(np.where(indices[:, None] == np.arange(int(depth)), values[1], values[0]))


def _scatter(data: Array, indices: Array, updates: Array, a: Attributes) -> Array:
    result = data.copy()
    np.put_along_axis(result, indices, updates, a["axis"])
    return result


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


# Results and their comparison

OF_BITS = frozenset("BitCast BitShift BitwiseNot QuantizeLinear".split())
"""Operators whose numbers depend on the dtype: they are evaluated in it, and no other way."""

OPTIONAL = frozenset({"Optional", "OptionalGetElement"})
"""Operators whose results the evaluator has in a list."""


def wanted(place: Place, case: Case) -> list[Any] | None:
    """The values: by a formula, or as ONNX's evaluator has them; None where it has none.

    Floats are evaluated in float64, of the very operands, and rounded at the end; all else in the dtype, and in float64
    where the evaluator does not know the dtype. Operators of ai.onnx.ml compute in floats whatever they take.
    """
    dtype = place.dtype
    if place.name in FORMULAS:
        return _by_formula(FORMULAS[place.name], case, dtype)
    ways = [dtype]
    if dtype.is_number and place.name not in OF_BITS:
        ways = [DType.float64, dtype] if dtype.is_float or place.domain else [dtype, DType.float64]
    results = next((f for way in ways if (f := _evaluated(place, case, way)) is not None), None)
    if results is not None and place.name in OPTIONAL:
        return [f[0] if isinstance(f, list) else f for f in results]
    return results


def _by_formula(formula: Callable[..., Any], case: Case, dtype: DType) -> list[Any]:
    is_cast = formula in (FORMULAS["Cast"], FORMULAS["CastLike"])
    arrays: list[Array | None] = []
    for operand in case.inputs:
        array = operand.array(dtype) if isinstance(operand, Operand) else None
        if array is not None and array.dtype != object and not is_cast and DType.of(array.dtype).is_float:
            array = cast_array(array, DType.of(array.dtype), DType.float64)
        arrays.append(array)
    result = formula(*arrays, {n: dtype.onnx if v is SWEPT else v for n, v in case.attributes.items()})
    return result if isinstance(result, list) and formula is not FORMULAS["ZipMap"] else [result]


def _evaluated(place: Place, case: Case, way: DType) -> list[Any] | None:
    own, requested = place.question(case), place.question(case, way)
    feeds = {}
    for name, (array, dtype) in own.feeds.items():
        other = requested.feeds[name][1]
        feeds[name] = array if dtype is other else cast_array(array, dtype, other)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return list(ReferenceEvaluator(requested.model).run(None, feeds))
    except Exception:  # of many kinds
        return None


def difference(result: Any, want: Any, dtype: DType | None = None) -> str:
    """ "" where the two are the same bits, "near" where they are as near as docs/numbers.md promises, or how not.

    dtype: where it is not that of the array found.
    """
    if isinstance(result, list) or isinstance(want, list):
        if not isinstance(result, list) or not isinstance(want, list) or len(result) != len(want):
            return f"{result!r:.80} for {want!r:.80}"
        return max((difference(f, w) for f, w in zip(result, want, strict=True)), key=len, default="")
    if result is None or want is None or isinstance(want, dict):
        return "" if result is want or result == want else f"{result!r:.80} for {want!r:.80}"
    want = np.asarray(want)
    if result.shape != want.shape:
        return f"shape {result.shape} for {want.shape}"
    if result.dtype == object or want.dtype.kind in "OUST":
        return "" if result.astype(str).tolist() == want.astype(str).tolist() else f"{result} for {want}"
    dtype = dtype or DType.of(result.dtype)
    if DType.of(want.dtype) is not dtype:
        want = cast_array(want, DType.of(want.dtype), dtype)
    if not dtype.is_float:
        return "" if (result == want).all() else f"{result.tolist()} for {want.tolist()}"
    x, y = result.astype(np.float64), want.astype(np.float64)
    if ((x == y) | (np.isnan(x) & np.isnan(y))).all():
        return ""
    return "near" if np.allclose(x, y, rtol=_step(dtype), atol=_NEAR.get(dtype, 1e-6), equal_nan=True) else _shown(x, y)


_NEAR = {DType.float64: 1e-12}


def _step(dtype: DType) -> float:
    """4 units in the last place of float32, and one of a narrower float that such a number is rounded to."""
    if dtype is DType.float64:
        return 1e-12
    return 4 * 2.0**-23 if dtype is DType.float32 else 2.0 ** -_MANTISSAS[dtype]


_MANTISSAS = {
    DType.float16: 10, DType.bfloat16: 7, DType.float8_e4m3fn: 3, DType.float8_e5m2: 2, DType.float8_e4m3fnuz: 3,
    DType.float8_e5m2fnuz: 2, DType.tensor_float32: 10, DType.float8_e8m0: 0, DType.float4_e2m1: 1,
    DType.float6_e2m3fn: 3, DType.float6_e3m2fn: 2,
}  # fmt: skip


def _shown(x: Array, y: Array) -> str:
    return f"{x.ravel()[:8].tolist()} for {y.ravel()[:8].tolist()}"
