"""Why examples of onnx-tests fail where graphcore is right, by operator, each reason with the check that proves it.

A reason holds for an example only where its check does: the results are those that NumPy computes in more digits, or
Python exactly, or they differ only where the standard leaves them open. docs/development/conformance.md has examples.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Example:
    """A failure: what was raised, the model, whose first node is the operator, and the results of both runtimes.

    There is no model where the test raised before it had one, and there are no results where a runtime raised.
    """

    error: BaseException
    model: ModelProto | None = None
    results: Sequence[Array] = ()
    expected: Sequence[Array] = ()

    @property
    def operands(self) -> list[Any]:
        assert self.model is not None
        arrays = {each.name: numpy_helper.to_array(each) for each in self.model.graph.initializer}
        return [arrays.get(name) for name in self.model.graph.node[0].input]

    @property
    def attributes(self) -> dict[str, Any]:
        assert self.model is not None
        return {each.name: helper.get_attribute_value(each) for each in self.model.graph.node[0].attribute}


Check = Callable[[Example], bool]


def excuse_of(operator: str, kind: str, example: Example) -> str | None:
    """Return the reason of KNOWN for a failure of a kind (of `kind_of` in onnx_conformance.py), or None."""
    reason, holds = KNOWN.get(operator, {}).get(kind, (None, bool))
    if reason is None or (example.model is None and kind != "test"):
        return None
    with np.errstate(all="ignore"):
        return reason if holds(example) else None


# Checks


def _exactly(function: Callable[..., Sequence[Array]]) -> Check:
    """Return a check that the results are those of a function of the operands and attributes."""
    return lambda example: _equal(example.results, function(*example.operands, **example.attributes))


def _equal(results: Sequence[Array], truths: Sequence[Array]) -> bool:
    return len(results) == len(truths) and all(
        result.dtype == truth.dtype
        and result.shape == truth.shape
        and bool(np.all((result == truth) | ((result != result) & (truth != truth))))
        for result, truth in zip(results, truths, strict=True)
    )


_TOLERANCES = {"float16": 1e-3, "float32": 1e-5}
"""Those of the suite, which multiplies them by the result; 1e-7 for the other dtypes."""


def _nearly(
    function: Callable[..., Array],
    terms: Callable[..., Array] | None = None,
    *,
    cancels: bool = False,
    between: Callable[..., Array] | None = None,
) -> Check:
    """Return a check that the result is that of a function of the operands in more digits, within the tolerance.

    With `terms`, or where terms cancel, the tolerance is relative to the magnitude of the terms instead: any order of
    them has that error. What may come in `between`, as another product of some factors, may overflow, too, or have
    multiplied what an underflow took from a factor.
    """

    def holds(example: Example) -> bool:
        dtype = example.operands[0].dtype
        floats = [index for index, each in enumerate(example.operands) if getattr(each, "dtype", "") == dtype]
        wide = example.operands
        for index in floats if dtype.kind == "f" else [0]:  # the second may be axes
            wide[index] = wide[index].astype(np.longdouble)
        truth = function(*wide, **example.attributes)
        if [(each.shape, each.dtype) for each in example.results] != [(truth.shape, dtype)]:
            return False
        result = example.results[0]
        size = np.abs(truth)
        if cancels:
            positive = [np.abs(each) if getattr(each, "dtype", "") == np.longdouble else each for each in wide]
            size = function(*positive, **example.attributes)
        elif terms is not None:
            size = np.maximum(size, terms(*wide, **example.attributes))
        most = size if between is None else between(*wide, **example.attributes)
        lost = 1 if between is None else most
        is_float = dtype.kind == "f"
        limits: Any = np.finfo(dtype) if is_float else np.iinfo(dtype)
        unit = limits.smallest_subnormal if is_float else 1  # an integer may be cut off
        allowed = unit * lost + _TOLERANCES.get(dtype.name, 1e-7) * size
        is_open = (most > limits.max) | (np.isnan(truth) & (np.isnan(result) if is_float else True))
        return bool(np.all((result == truth.astype(dtype)) | (np.abs(result - truth) <= allowed) | is_open))

    return holds


def _nan_is_open(example: Example) -> bool:
    """Check that results differ only along lines with NaN."""
    (data,), (result,), (expected,) = example.operands, example.results, example.expected
    if (result.dtype, result.shape) != (expected.dtype, expected.shape):
        return False
    keepdims = bool(example.attributes.get("keepdims", 1))
    lines = np.isnan(data).any(example.attributes.get("axis", -1), keepdims=keepdims)
    return bool(np.all((result == expected) | lines))


def _strings_are_filled(example: Example) -> bool:
    """Check that there is an empty string for each number among the strings of the reference."""
    filled = np.frompyfunc(lambda each: each if isinstance(each, str) else "", 1, 1)
    return _equal(example.results, [np.asarray(filled(each)) for each in example.expected])


def _has_its_dtype(example: Example) -> bool:
    """Check that the results are those of the reference in the dtype of the operand."""
    return _equal(example.results, [each.astype(example.operands[0].dtype) for each in example.expected])


def _has_parts_below_0(example: Example) -> bool:
    axis, parts = example.attributes.get("axis", 0), example.attributes["num_outputs"]
    size = example.operands[0].shape[axis]
    return bool(-(-size // parts) * (parts - 1) > size)


def _has_no_bounds(example: Example) -> bool:
    return "max_value=-1 < min_value=0" in str(example.error)


# Operators


def _windows(
    x: Array,
    kernel_shape: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] = (),
    auto_pad: bytes = b"NOTSET",
    ceil_mode: int = 0,
    fill: float = 0,
) -> Array:
    """Return x with two axes for each of its windows': its places, and its elements at a place.

    Padding is filled with `fill`, and what `ceil_mode` adds behind it with 0.
    """
    for axis, (size, stride, dilation) in enumerate(zip(kernel_shape, strides, dilations, strict=True)):
        at, width, here = 2 + 2 * axis, (size - 1) * dilation + 1, x.shape[2 + 2 * axis]
        before, after = pads[axis :: len(kernel_shape)] if pads else (0, 0)
        if auto_pad.startswith(b"SAME"):
            whole = max((here - 1) // stride * stride + width - here, 0)
            before, after = sorted((whole // 2, whole - whole // 2), reverse=auto_pad == b"SAME_LOWER")
        steps = here + before + after - width
        places = (-(-steps // stride) if ceil_mode else steps // stride) + 1
        places -= (places - 1) * stride >= here + before  # one that begins in the padding at the end
        beyond = max((places - 1) * stride - steps, 0)
        for number, sides in ((fill, (before, after)), (0, (0, beyond))):
            x = np.pad(x, [sides if i == at else (0, 0) for i in range(x.ndim)], constant_values=number)
        x = np.take(x, stride * np.arange(places)[:, None] + dilation * np.arange(size), at)
    return x


def _average_pool(x: Array, count_include_pad: int = 0, **attributes: Any) -> Array:
    counted = _windows(np.ones_like(x), **attributes, fill=count_include_pad)
    return np.asarray(_windows(x, **attributes).sum((3, 5)) / counted.sum((3, 5)))


def _clip(x: Array, least: Array | None = None, most: Array | None = None) -> Sequence[Array]:
    for bound, limited in ((least, np.maximum), (most, np.minimum)):
        x = x if bound is None or np.isnan(bound) else limited(x, bound)
    return [x]


def _conv(x: Array, w: Array, b: Array | None = None, group: int = 1, **attributes: Any) -> Array:
    parts = zip(np.split(_windows(x, **attributes), group, 1), np.split(w, group), strict=True)
    y = np.concatenate([np.einsum("ncohpw,mchw->nmop", *part) for part in parts], 1)
    return y if b is None else y + b[:, None, None]


def _det(x: Array) -> Array:
    return np.where(np.isnan(x).any((-2, -1)), np.nan, np.linalg.det(x.astype(np.float64)).astype(np.longdouble))


def _norms(x: Array) -> Array:
    return np.asarray(np.sqrt((x * x).sum(-1)))


def _near_0(x: Array, alpha: float, gamma: float = 1) -> Array:
    return np.full(x.shape, alpha * gamma / 100)  # 1e-7 in float32


def _elu(x: Array, alpha: float, gamma: float = 1) -> Array:
    return np.where(x > 0, x, np.expm1(x) * alpha) * gamma


def _celu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, np.expm1(x / alpha) * alpha)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


_erf, _erfc = (np.vectorize(each, otypes=[np.longdouble]) for each in (math.erf, math.erfc))


def _gelu(x: Array, approximate: bytes = b"none") -> Array:
    if approximate == b"tanh":
        return np.asarray(x / 2 * (1 + np.tanh(np.sqrt(2 / np.longdouble(math.pi)) * (x + 0.044715 * x**3))))
    return np.asarray(x * _erfc(-x / np.sqrt(np.longdouble(2))) / 2)


def _log_softmax(x: Array, axis: int = -1) -> Array:
    below = x - x.max(axis, keepdims=True, initial=-np.inf)
    return np.asarray(below - np.log(np.exp(below).sum(axis, keepdims=True)))


def _flatten(x: Array, axis: int = 1) -> Sequence[Array]:
    return [x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))]


def _gather_elements(x: Array, indices: Array, axis: int = 0) -> Sequence[Array]:
    return [np.take_along_axis(x, indices.astype(np.int64), axis)]


def _powers(x: Array, y: Array) -> Sequence[Array]:
    bits = 8 * x.dtype.itemsize
    if x.dtype.kind not in "iu" or y.dtype.kind not in "iu":
        return ()

    def power(base: int, exponent: int) -> int:
        if exponent < 0:
            return {1: 1, -1: 1 - 2 * (exponent % 2)}.get(base, 0)
        whole = pow(base, exponent, 1 << bits)
        return whole - (whole >> bits - 1 << bits) * (x.dtype.kind == "i")

    powers = np.frompyfunc(lambda base, exponent: power(int(base), int(exponent)), 2, 1)(x, y)
    return [np.asarray(powers).astype(x.dtype)]


def _unique(x: Array, axis: int | None = None, sorted: int = 1) -> Sequence[Array]:
    rows = x.reshape(-1, 1) if axis is None else np.moveaxis(x, axis, 0)
    lines = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    keys = [tuple((each != each, each == each and each) for each in line) for line in lines.tolist()]  # NaN is last
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    order = builtins.sorted(first) if sorted else list(dict.fromkeys(keys))
    at = np.array([first[key] for key in order], np.int64)
    inverse = np.array([order.index(key) for key in keys], np.int64)
    counts = np.array([keys.count(key) for key in order], np.int64)
    return x.ravel()[at] if axis is None else np.take(x, at, axis), at, inverse, counts


def _reduced(function: Callable[..., Any]) -> Callable[..., Array]:
    """Return the reduction of ONNX for a function of the data, with the keywords of NumPy."""

    def reduction(data: Array, axes: Array | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Array:
        without = () if noop_with_empty_axes else None
        over = without if axes is None or not axes.size else tuple(axes.tolist())
        return np.asarray(function(data, axis=over, keepdims=bool(keepdims)))

    return reduction


def _log_sum_exp(x: Array, axis: Any, keepdims: bool) -> Array:
    greatest = x.max()
    return np.asarray(greatest + np.log(np.exp(x - greatest).sum(axis, keepdims=keepdims)))


def _greatest_product(x: Array, **over: Any) -> Array:
    return np.asarray(np.maximum(np.abs(x), 1).prod(**over))


def _nan_is_open_in_extremes(example: Example) -> bool:
    """Check that extremes differ only where one is taken of numbers with NaN."""
    (result,), (expected,) = example.results, example.expected
    with_nan = _reduced(lambda x, **over: np.isnan(x).any(**over))(*example.operands, **example.attributes)
    return (result.dtype, result.shape) == (expected.dtype, expected.shape) and bool(
        np.all((result == expected) | with_nan)
    )


# Reasons

_CANCELS = "Terms cancel, and the tolerance is relative to the result: sums in another order differ."
_DILATIONS = "The reference leaves dilations out of the size of the result."
_DTYPE = (
    "The reference gives int64 for int32, and the standard the dtype of the operand; it squares float16 in float16."
)
_FLOAT16 = "The reference computes float16 in float16."
_LOG = "The reference takes the logarithm of Softmax, which is 0 where x is 104 below the greatest, and 1 near it."
_NAN = "The standard does not say where NaN stands; onnxruntime's kernel passes over it."
_NAN_BOUND = "The standard does not say what NaN is as a bound; onnxruntime's kernel passes over it."
_NEAR_0 = "exp(x) - 1, as the standard writes it, is right to 1e-7 of 1; the tolerance is relative to the result."
_NO_NAN = "NumPy's determinant of a matrix with NaN may be 0."
_NO_BOUNDS = "The test draws indices of an axis without elements, and hypothesis refuses the bounds."
_ORDER = "Whether factors overflow in between depends on their order."
_OVERFLOWS = "The reference overflows in between, where the result itself fits."
_PARTS = "The standard has no parts of a negative size: 5 elements make no 4 parts of 2."
_RAISES = "The reference raises for operands that the standard allows."
_ROOT_OF_2 = "The reference rounds the square root of 2 to float32, and computes float16 in float16."
_STRINGS = "The reference puts the number 0 among strings."
_SUBNORMAL = "The kernel of float32 is right to 1.5e-43, which is more of a number below 1.2e-38 than the tolerance."
_TAKES = "The reference takes the unique parts along the first axis instead of the axis."
_WRAPS = "Overflow is open: the reference converts by float64, graphcore wraps."

_LOG_SOFTMAX = _nearly(_log_softmax, lambda x, **axis: np.full(x.shape, 0.01))  # of sums near 1
_SQUARES = _nearly(_reduced(lambda x, **over: (x * x).sum(**over)))


def _is_square_sum(example: Example) -> bool:
    return _SQUARES(example) if example.operands[0].dtype.kind == "f" else _has_its_dtype(example)


_DET = _nearly(_det, lambda x: _norms(x).prod(-1), between=lambda x: _greatest_product(_norms(x), axis=-1))

KNOWN: Mapping[str, Mapping[str, tuple[str, Check]]] = {
    "ArgMax": {"differs": (_NAN, _nan_is_open)},
    "ArgMin": {"differs": (_NAN, _nan_is_open)},
    "AveragePool": {"differs": (f"{_DILATIONS} {_CANCELS}", _nearly(_average_pool, cancels=True))},
    "Celu": {"differs": (_NEAR_0, _nearly(_celu, _near_0))},
    "Clip": {"differs": (_NAN_BOUND, _exactly(_clip))},
    "Conv": {"differs": (_CANCELS, _nearly(_conv, cancels=True))},
    "Det": {"differs": (f"{_CANCELS} {_NO_NAN}", _DET), "reference": (_RAISES, _DET)},
    "Elu": {"differs": (_NEAR_0, _nearly(_elu, _near_0))},
    "Erf": {"differs": ("The reference gives 0 near 0, where erf(x) is 1.128 x.", _nearly(_erf))},
    "Flatten": {"reference": (_RAISES, _exactly(_flatten))},
    "Gather": {"test": (_NO_BOUNDS, _has_no_bounds)},
    "GatherElements": {"reference": (_RAISES, _exactly(_gather_elements))},
    "Gelu": {"differs": (_ROOT_OF_2, _nearly(_gelu))},
    "Hardmax": {"differs": (_NAN, _nan_is_open)},
    "LogSoftmax": {"differs": (_LOG, _LOG_SOFTMAX), "reference": (_RAISES, _LOG_SOFTMAX)},
    "MatMul": {"differs": (_CANCELS, _nearly(np.matmul, cancels=True))},
    "Pad": {"differs": (_STRINGS, _strings_are_filled)},
    "Pow": {"differs": (_WRAPS, _exactly(_powers)), "reference": (_RAISES, _exactly(_powers))},
    "ReduceL2": {"differs": (_OVERFLOWS, _nearly(_reduced(lambda x, **over: np.sqrt((x * x).sum(**over)))))},
    "ReduceLogSum": {"reference": (_RAISES, _nearly(_reduced(lambda x, **over: np.log(x.sum(**over)))))},
    "ReduceLogSumExp": {"reference": (_RAISES, _nearly(_reduced(_log_sum_exp)))},
    "ReduceMax": {"differs": (_NAN, _nan_is_open_in_extremes)},
    "ReduceMean": {"differs": (_OVERFLOWS, _nearly(_reduced(np.mean), cancels=True))},
    "ReduceMin": {"differs": (_NAN, _nan_is_open_in_extremes)},
    "ReduceProd": {"differs": (_ORDER, _nearly(_reduced(np.prod), between=_reduced(_greatest_product)))},
    "ReduceSum": {"differs": (_CANCELS, _nearly(_reduced(np.sum), cancels=True))},
    "ReduceSumSquare": {"differs": (_DTYPE, _is_square_sum)},
    "Selu": {"differs": (_NEAR_0, _nearly(_elu, _near_0))},
    "Sigmoid": {"differs": (_FLOAT16, _nearly(_sigmoid))},
    "Split": {"candidate": (_PARTS, _has_parts_below_0)},
    "Tanh": {"differs": (_SUBNORMAL, _nearly(np.tanh, lambda x: np.full(x.shape, 2.4e-38)))},
    "Trilu": {"differs": (_STRINGS, _strings_are_filled)},
    "Unique": {"differs": (_TAKES, _exactly(_unique)), "reference": (_RAISES, _exactly(_unique))},
}
"""By operator and kind of failure: why the test or the reference is wrong or the difference allowed, and its check."""
