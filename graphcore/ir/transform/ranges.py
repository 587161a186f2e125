"""Ranges of numbers that follow from the graph: a rule for each operator, and the range of one value.

Rules compute in float64; `Format.enclose` rounds outward to the dtype of the result. Sums are bounded for every order
of their terms. `Graph.bounds` applies the rules to a whole graph.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.intervals import ANY, ZERO, Format, Interval, combine, format_of, hull, interval_of, points
from graphcore.ir.transform.walk import constant_array, node_of
from graphcore.operators import Trait, data_of, having
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Array: TypeAlias = "np.ndarray[Any, Any]"
Ends: TypeAlias = "tuple[float, float]"
Rule: TypeAlias = "Callable[[Call], Interval | Sequence[Interval]]"

_MAX_DEPTH = 32
_POSITIVE = (0.0, math.inf)
_FLOATS = (DType.float16, DType.bfloat16, DType.float32, DType.float64)


@dataclass(frozen=True, slots=True)
class Call:
    """A node with the intervals of its operands, None for omitted ones.

    format: of the first result. array: returns the elements of a constant operand. size: returns the largest size of
    a dim, infinite if it is unknown.
    """

    node: Node
    operands: Sequence[Interval | None]
    format: Format
    array: Callable[[int], Array | None]
    size: Callable[[Dim], float]

    def __getitem__(self, position: int) -> Interval:
        """Return the interval of an operand. Raises `LookupError`."""
        if (operand := self.get(position)) is None:
            raise LookupError(position)
        return operand

    def get(self, position: int) -> Interval | None:
        return self.operands[position] if position < len(self.operands) else None

    @property
    def may_be_nan(self) -> bool:
        """True if an operand may be NaN."""
        return any(operand is not None and operand.may_be_nan for operand in self.operands)

    @property
    def is_finite(self) -> bool:
        """True if no operand may be infinite."""
        return not any(operand is not None and operand.is_infinite for operand in self.operands)

    @property
    def inner_largest(self) -> float:
        """The largest inner value of norms, attention and recurrent layers, which compute in float32 at least."""
        return max(self.format.largest, float(DType.float32.max))

    def ends(self, position: int) -> tuple[Any, Any]:
        """Return the lower and upper bounds of an operand: of each element of a constant vector; 0 if it is omitted."""
        array, operand = self.array(position), self.get(position) or ZERO
        return (array, array) if array is not None and array.ndim == 1 else (operand.low, operand.high)

    def number(self, name: str, default: float = 0.0) -> float:
        return float(self.node.attributes.get(name, default))

    def text(self, name: str, default: str) -> str:
        value = self.node.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def sizes(self, position: int = 0) -> list[float]:
        """Return the largest sizes of an operand's axes. Raises `TypeError` if its rank is unknown."""
        operand = self.node.inputs[position]
        return [self.size(dim) for dim in operand.shape] if operand is not None else []


# Arithmetic


def _each(function: Callable[[Interval, Interval], Interval]) -> Rule:
    """Return the rule of a function of two or more operands, rounded after each."""
    return lambda call: reduce(
        lambda a, b: call.format.enclose(function(a, b)), [call[i] for i in range(len(call.operands))]
    )


def _power(call: Call) -> Interval:
    x, y = call[0], call[1]
    if x.low <= 0 and (y.low != y.high or not y.low.is_integer() or (y.low < 0 and x.has_zero)):
        return call.format.whole
    within = ANY if x.low <= 0 and y.low % 2 else _POSITIVE
    return _approximate(call, combine(np.power, x, y), within)


def _clipped(call: Call) -> Interval:
    least, largest = (call.get(i) or Interval(*ANY) for i in (1, 2))
    return combine(np.minimum, combine(np.maximum, call[0], least), largest)


# Functions of one operand


def _approximate(call: Call, interval: Interval, within: Ends = ANY) -> Interval:
    """Widen by the error of kernels: 4 ulp, or near 0 a millionth (docs/numbers.md), within limits."""
    unit = call.format.unit
    if not unit:
        return interval
    absolute = 1e-14 if call.format.precision > 24 else 1e-6
    low, high = (max(abs(x) * 8 * unit, absolute) if math.isfinite(x) else 0.0 for x in interval)
    least, largest = within[0] - abs(within[0]) * 2 * unit, within[1] + abs(within[1]) * 2 * unit
    return Interval(max(interval.low - low, least), min(interval.high + high, largest), interval.may_be_nan)


def _function(
    function: Callable[..., Any], *turns: float, within: Ends = ANY, domain: Ends = ANY, **attributes: Any
) -> Rule:
    """Return the rule of a function that is monotone between its turning points and 0.

    within: the numbers that it has. domain: where it is not NaN. attributes: its other arguments, and their defaults.
    """

    def rule(call: Call) -> Interval:
        x, named = call[0], {name: call.node.attributes.get(name, value) for name, value in attributes.items()}
        images = function(points(Interval(*np.clip([*x], *domain)), *turns), **named)
        if np.isnan(images).any():
            return Interval(*within, True)
        is_outside = x.low < domain[0] or x.high > domain[1]
        return _approximate(call, hull(images, x.may_be_nan or is_outside), within)

    return rule


def _exact(function: Callable[[Any], Any]) -> Rule:
    return lambda call: combine(function, call[0])


def _sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -x))


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0)))


def _gelu(x: Array, approximate: str | bytes) -> Any:
    if approximate in ("tanh", b"tanh"):
        return x * _sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))
    return x * ((1 + _erf(x / math.sqrt(2))) / 2)


def _swish(call: Call) -> Interval | Sequence[Interval]:
    alpha = call.number("alpha", 1.0)
    least = (-0.2785 / alpha, math.inf) if alpha > 0 else ANY
    return _function(lambda x: x * _sigmoid(alpha * x), -1.2784645427610738 / alpha, within=least)(call)


_erf = np.vectorize(math.erf, otypes=[np.float64])


# Sums


def _summed(call: Call, low: Any, high: Any, magnitude: Any, terms: float, may_be_nan: bool) -> Interval:
    """Return the interval of sums of `terms` products, each rounded, in any order.

    magnitude: the sums of the largest magnitudes of products. If it overflows, a partial sum may, and the rest may be
    infinite or NaN. Source: Jeannerod and Rump, Improved error bounds for inner products in floating-point arithmetic.
    """
    unit = call.format.unit
    slack = magnitude * (terms + 4) * (unit + 2.0**-52) + terms * 2 * unit * call.format.tiny if unit else 0.0
    slack = np.where(np.equal(magnitude, 0), 0.0, slack)
    if not np.all(magnitude + slack <= call.format.largest):
        return call.format.whole
    return Interval(float(np.min(low - slack)), float(np.max(high + slack)), may_be_nan)


def _repeated(call: Call, term: Interval, terms: float) -> Interval:
    """Return the interval of sums of terms, at most so many; exactly if the number is an int."""
    low, high, magnitude = ((0.0 if x == 0 else x * terms) for x in (*term, term.magnitude))
    total = _summed(call, low, high, magnitude, terms, term.may_be_nan)
    if term.low >= 0:  # so are sums in any order
        total = replace(total, low=max(total.low, 0.0))
    return total if isinstance(terms, int) else term | total


def _weighted(call: Call, x: Interval, weights: Array, bias: tuple[Any, Any] = (0.0, 0.0)) -> Interval:
    """Return the interval of sums over the first axis of constant weights, exact for each of the others."""
    positive, negative = (select(weights, 0).sum(0, np.float64) for select in (np.maximum, np.minimum))
    low, high = x.low * positive + x.high * negative + bias[0], x.high * positive + x.low * negative + bias[1]
    magnitude = x.magnitude * (positive - negative) + np.maximum(np.abs(bias[0]), np.abs(bias[1]))
    return _summed(call, low, high, magnitude, len(weights) + 1, call.may_be_nan)


def _matmul(call: Call) -> Interval:
    left, right = call.array(0), call.array(1)
    if right is not None:
        return _weighted(call, call[0], np.moveaxis(right, -2, 0) if right.ndim > 1 else right)
    if left is not None:
        return _weighted(call, call[1], np.moveaxis(left, -1, 0))
    if _is_distribution(call.node.inputs[0]):
        return _mean(call, call[1], call.sizes()[-1])
    return _repeated(call, call[0] * call[1], call.sizes()[-1])


def _is_distribution(symbol: Symbol | None) -> bool:
    """Return True for a Softmax along the last axis."""
    node = node_of(symbol, "Softmax", "Cast", "Identity")
    if node is None or node.op_type == "Softmax":
        return node is not None and node.attributes.get("axis", -1) in (-1, node.outputs[0].rank - 1)
    return _is_distribution(node.inputs[0])


def _mean(call: Call, values: Interval, count: float) -> Interval:
    """Return the interval of means of values, and 0, by weights from a Softmax."""
    low, high = values | ZERO
    return _summed(call, low, high, values.magnitude, 3 * count + 8, call.may_be_nan)


def _gemm(call: Call) -> Interval:
    x, weights, alpha, beta = call[0], call.array(1), call.number("alpha", 1.0), call.number("beta", 1.0)
    low, high = np.sort([end * beta for end in call.ends(2)], axis=0)
    if weights is not None:
        return _weighted(call, x, (weights.T if call.number("transB") else weights) * alpha, (low, high))
    terms = call.sizes()[0 if call.number("transA") else 1]
    product = _repeated(call, x * call[1], terms) * Interval(alpha, alpha)
    return call.format.enclose(product) + call.format.enclose(hull([low, high], call.may_be_nan))


def _conv(call: Call) -> Interval:
    x, filters, sizes = call[0], call.array(1), call.sizes(1)
    is_transposed = call.node.op_type == "ConvTranspose"
    if is_transposed or any(call.node.attributes.get("pads", ())) or call.text("auto_pad", "NOTSET") != "NOTSET":
        x = x | ZERO
    if filters is not None and not is_transposed:
        return _weighted(call, x, filters.reshape(len(filters), -1).T, call.ends(2))
    terms = math.prod(sizes[2:]) * (sizes[0] / call.number("group", 1.0) if is_transposed else sizes[1])
    return _repeated(call, x * call[1], terms) + hull(call.ends(2), call.may_be_nan)


# Reductions, windows and norms


def _terms(call: Call) -> float:
    """Return the number of elements that a reduction adds; an int if it is known."""
    sizes, axes = call.sizes(), call.node.attributes.get("axes")
    if call.get(1) is not None and (axes := call.array(1)) is None:
        return float(math.prod(sizes))
    if axes is None or not len(axes):
        return 1 if call.number("noop_with_empty_axes") else math.prod(sizes)
    return math.prod(sizes[int(axis)] for axis in axes)


def _sum_of(function: Callable[[Array], Array], call: Call) -> Interval:
    return _repeated(call, combine(function, call[0]), _terms(call))


def _average(call: Call) -> Interval:
    """Return the interval of means: of axes, or of windows."""
    kernel = call.node.attributes.get("kernel_shape")
    is_reduction = call.node.op_type == "ReduceMean"
    terms = _terms(call) if is_reduction else math.prod(call.sizes()[2:] if kernel is None else kernel)
    x = call[0] | ZERO if call.number("count_include_pad") else call[0]
    if not x.magnitude * terms <= call.format.largest:  # the sum may overflow
        return call.format.whole
    mean = _summed(call, x.low, x.high, x.magnitude, terms, x.may_be_nan)
    return replace(mean, low=max(mean.low, 0.0)) if x.low >= 0 else mean


def _normalized(call: Call, axes: slice, bias: int = 2) -> Interval:
    """Return the interval of numbers over their root mean square, at most the root of their count, scaled."""
    count = math.prod(call.sizes()[axes])
    limit = math.sqrt(count) * (1 + (count + 8) * 2 * call.format.unit)
    scales, shifts = call.ends(1), call.ends(bias)
    size, offset = limit * np.max(np.abs(scales), 0), np.max(np.abs(shifts), 0)
    is_defined = call[0].magnitude * count < call.inner_largest
    may_be_nan = call.may_be_nan or not is_defined or call.number("epsilon", 1e-5) <= 0
    return _summed(call, shifts[0] - size, shifts[1] + size, size + offset, 2, may_be_nan)


def _batch_norm(call: Call) -> Interval:
    scale, bias, mean, variance = (call.array(i) for i in range(1, 5))
    if scale is None or bias is None or mean is None or variance is None or call.number("training_mode"):
        return call.format.whole
    factor = scale / np.sqrt(variance + call.number("epsilon", 1e-5))
    ends = np.multiply.outer([*call[0]], factor)
    shift, size = bias - mean * factor, np.abs(ends).max(0) + np.abs(bias) + np.abs(mean * factor)
    return _summed(call, ends.min(0) + shift, ends.max(0) + shift, size, 8, call.may_be_nan)


def _recurrent(call: Call) -> Sequence[Interval]:
    """Return the intervals of states: means of values between -1 and 1. The cells of an LSTM grow by 1 each step."""
    steps = call.sizes()[1 if call.number("layout") else 0]
    state, cell, bias = (call.get(i) or ZERO for i in (5, 6, 3))
    state = _approximate(call, state | Interval(-1.0, 1.0))
    weights = call.sizes(1)[-1] * call[0].magnitude * call[1].magnitude
    gate = weights + call.sizes(2)[-1] * state.magnitude * call[2].magnitude + 2 * bias.magnitude
    if call.node.attributes.get("activations") or call.get(7) is not None or not gate <= call.inner_largest:
        return ()
    grown = cell.magnitude + steps * (1 + 1e-6)
    states, cells = (_summed(call, -n, n, n, 3 * steps, call.may_be_nan) for n in (state.magnitude, grown))
    return states, states, cells


def _attention(call: Call) -> Interval:
    """Return the interval of means of values, operand 2, and of earlier ones, operand 5."""
    scores = call[0].magnitude * call[1].magnitude * call.sizes()[-1]
    if not (call.is_finite and scores <= call.inner_largest):
        return call.format.whole
    places = [i for i in (2, 5) if call.get(i) is not None]
    return _mean(call, reduce(operator.or_, (call[i] for i in places)), sum(call.sizes(i)[-2] for i in places))


# Casts and movement


def _cast(call: Call) -> Interval:
    x = call[0]
    if call.format.precision:
        return x
    is_known = not x.may_be_nan and call.format.least <= x.low and x.high <= call.format.largest
    is_bool = call.node.outputs[0].dtype is DType.bool
    return Interval(*np.trunc([*x])) if is_known and not is_bool else call.format.whole


def _moved(call: Call) -> Sequence[Interval]:
    joined = reduce(operator.or_, (o for o in data_of(call.node.op_type, call.operands) if o is not None))
    if call.node.op_type in having(Trait.FILLS):
        joined = joined | ZERO
    return [joined if call.text("reduction", "none") == "none" else call.format.whole] * len(call.node.outputs)


def _resized(call: Call) -> Interval:
    x, mode = call[0], call.text("mode", "nearest")
    crops = call.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    if crops or mode not in ("nearest", "linear"):  # the weights of cubic ones can be negative
        return call.format.whole
    roundings = 16  # eight products in three axes, with weights that are rounded
    return x if mode == "nearest" else _summed(call, x.low, x.high, x.magnitude, roundings, x.may_be_nan)


def _bounded(low: float, high: float) -> Rule:
    return lambda call: _approximate(call, Interval(low, high, call.may_be_nan or not call.is_finite), (low, high))


RULES: dict[str, Rule] = {
    **dict.fromkeys(sorted(having(Trait.MOVES, Trait.FILLS, Trait.JOINS)), _moved),
    **dict.fromkeys(("Softmax", "Hardmax"), _bounded(0.0, 1.0)),
    **dict.fromkeys(("Sin", "Cos"), _bounded(-1.0, 1.0)),
    "LogSoftmax": _bounded(-math.inf, 0.0),
    "Abs": _exact(np.abs),
    "Ceil": _exact(np.ceil),
    "Floor": _exact(np.floor),
    "Neg": _exact(np.negative),
    "Relu": _exact(lambda x: np.maximum(x, 0.0)),
    "Round": _exact(np.rint),
    "Sign": _exact(np.sign),
    "Square": _exact(np.square),
    "Trunc": _exact(np.trunc),
    "Acos": _function(np.arccos, domain=(-1.0, 1.0)),
    "Acosh": _function(np.arccosh, within=_POSITIVE, domain=(1.0, math.inf)),
    "Asin": _function(np.arcsin, domain=(-1.0, 1.0)),
    "Asinh": _function(np.arcsinh),
    "Atan": _function(np.arctan),
    "Atanh": _function(np.arctanh, domain=(-1.0, 1.0)),
    "Celu": _function(lambda x, alpha: alpha * _elu(x / alpha, 1.0), alpha=1.0),
    "Cosh": _function(np.cosh, within=(1.0, math.inf)),
    "Elu": _function(_elu, alpha=1.0),
    "Erf": _function(_erf, within=(-1.0, 1.0)),
    "Exp": _function(np.exp, within=_POSITIVE),
    "Expm1": _function(np.expm1, within=(-1.0, math.inf)),
    "Gelu": _function(_gelu, -0.752, within=(-0.171, math.inf), approximate="none"),
    "HardSigmoid": _function(lambda x, alpha, beta: np.clip(alpha * x + beta, 0.0, 1.0), alpha=0.2, beta=0.5),
    "HardSwish": _function(lambda x: x * np.clip(x / 6 + 0.5, 0.0, 1.0), -1.5, within=(-0.376, math.inf)),
    "LeakyRelu": _function(lambda x, alpha: np.where(x < 0, alpha * x, x), alpha=0.01),
    "Log": _function(np.log, domain=_POSITIVE),
    "Log1p": _function(np.log1p, domain=(-1.0, math.inf)),
    "Mish": _function(lambda x: x * np.tanh(np.logaddexp(0.0, x)), -1.192446, within=(-0.309, math.inf)),
    "Selu": _function(lambda x, alpha, gamma: gamma * _elu(x, alpha), alpha=1.67326319, gamma=1.05070102),
    "Sigmoid": _function(_sigmoid, within=(0.0, 1.0)),
    "Sinh": _function(np.sinh),
    "Softplus": _function(lambda x: np.logaddexp(0.0, x), within=_POSITIVE),
    "Softsign": _function(lambda x: x / (1 + np.abs(x)), within=(-1.0, 1.0)),
    "Sqrt": _function(np.sqrt, within=_POSITIVE, domain=_POSITIVE),
    "Rsqrt": _function(lambda x: 1 / np.sqrt(x), within=_POSITIVE, domain=_POSITIVE),
    "Swish": _swish,
    "Tanh": _function(np.tanh, within=(-1.0, 1.0)),
    **dict.fromkeys(("Add", "Sum"), _each(operator.add)),
    "Sub": _each(operator.sub),
    "Mul": _each(operator.mul),
    "Div": _each(operator.truediv),
    "Max": _each(partial(combine, np.maximum)),
    "Min": _each(partial(combine, np.minimum)),
    "Pow": _power,
    "Reciprocal": lambda call: Interval(1.0, 1.0) / call[0],
    "PRelu": lambda call: call[0] | call[0] * call[1],
    "Clip": _clipped,
    "MatMul": _matmul,
    "Gemm": _gemm,
    **dict.fromkeys(("Conv", "ConvTranspose"), _conv),
    "ReduceSum": partial(_sum_of, np.positive),
    "ReduceL1": partial(_sum_of, np.abs),
    "ReduceL2": lambda call: _approximate(call, combine(np.sqrt, _sum_of(np.square, call)), _POSITIVE),
    "ReduceSumSquare": partial(_sum_of, np.square),
    **dict.fromkeys(("ReduceMean", "AveragePool", "GlobalAveragePool"), _average),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "TopK", "Unique"), lambda call: call[0]),
    "LayerNormalization": lambda call: _normalized(call, slice(int(call.number("axis", -1)), None)),
    "RMSNormalization": lambda call: _normalized(call, slice(int(call.number("axis", -1)), None), bias=9),
    "InstanceNormalization": lambda call: _normalized(call, slice(2, None)),
    "GroupNormalization": lambda call: _normalized(call, slice(1, None)),
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "Attention": _attention,
    "ConstantOfShape": lambda call: hull(call.node.attributes.get("value", 0.0), False),
    "BitCast": lambda call: (
        call[0] if numbers_of(call.node.inputs[0]) is numbers_of(call.node.outputs[0]) else call.format.whole
    ),
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    "Resize": _resized,
    "Shape": lambda call: Interval(0.0, min(max([0.0, *call.sizes()]), 2.0**62)),
    "Dropout": lambda call: call.format.whole if (call.get(2) or ZERO).high else call[0],
    "Range": lambda call: _approximate(call, call[0] | call[1]),
    "DequantizeLinear": lambda call: call.format.enclose(call[0] - (call.get(2) or ZERO)) * call[1],
}
"""The rules of operators of ONNX and of the library. A rule gives the intervals of the first results."""


# The range of one value

_FOLLOWED = having(Trait.MOVES).union(
    "Clip Resize ConstantOfShape BitCast Cast Floor Ceil Round Relu Abs Neg Where Add Sub Mul Min Max Concat "
    "Sigmoid HardSigmoid Softmax Hardmax LogSoftmax Tanh Sin Cos Erf Sign".split()
)
"""The operators that `range_of` follows: few enough that it need not remember ranges."""


def range_of(symbol: Symbol | None, depth: int = 0, *, weights: bool = False) -> Interval | None:
    """Return the range of a value; None if nothing is known, or it may be infinite.

    weights: also of weights, which can still change, and constants of outer graphs.
    """
    array, numbers = constant_array(symbol, weights=weights, outer=weights), numbers_of(symbol)
    if symbol is None or numbers is None or depth > _MAX_DEPTH:
        return None
    dtype, node, interval = symbol.dtype, symbol.producer, numbers.whole
    if array is not None and (dtype in _FLOATS or weights):
        interval = interval_of(array) or Interval(*ANY)
    elif not (dtype in _FLOATS or dtype.is_integer or dtype is DType.bool):
        return None
    elif isinstance(node, Node) and not node.domain and node.op_type in _FOLLOWED:
        wholes = [None if (other := numbers_of(operand)) is None else other.whole for operand in node.inputs]
        ranges = [range_of(operand, depth + 1, weights=weights) for operand in node.inputs]
        operands = [interval or whole for interval, whole in zip(ranges, wholes, strict=True)]
        call = Call(node, operands, numbers, lambda position: None, lambda dim: math.inf)
        interval = numbers.enclose((results_of(call) or [interval])[0])
    return None if interval.is_infinite else interval


def numbers_of(symbol: Symbol | None) -> Format | None:
    """Return the numbers of the dtype of a tensor; None for other values."""
    return format_of(symbol.dtype) if symbol is not None and isinstance(symbol.type, TensorType) else None


def results_of(call: Call) -> Sequence[Interval]:
    """Return the ranges of the first results of a node, before rounding; none if its operator has no rule."""
    rule = RULES.get(call.node.op_type)
    try:
        with np.errstate(all="ignore"):
            results = rule(call) if rule else ()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return ()  # an operand without a range, or invalid attributes, which `Graph.op` accepts
    return [results] if isinstance(results, Interval) else results
