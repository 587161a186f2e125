"""Activation functions of neural networks, and clipping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from graphcore.build import primitives as e
from graphcore.build.declare import EXPANSIONS, LIBRARY, expansion, op
from graphcore.build.elementwise import unary
from graphcore.build.operands import apply, graph_of, promote, promote_one, resolve
from graphcore.build.shapes import axis_of, broadcast, retype, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.elementwise import maximum, minimum
from graphcore.ops.shared.attributes import choice, domain_for, real
from graphcore.promotion.rules import Key
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

# Over an axis


def _over_axis(name: str, op_type: str, summary: str, limits: str = "") -> Callable[..., Symbol]:
    """Declare an activation of all elements along an axis."""
    doc = f"""{summary}

    Args:
        x: At least one axis, numbers or bools; integers become floats.

    Returns:
        The shape of x.{limits}

    Raises:
        ShapeError: For an invalid axis of x.

    ONNX {op_type}.
    """

    @op(onnx=op_type, rule="float", name=name, doc=doc)
    def activation(x: TensorLike, axis: int = -1) -> Symbol:
        symbol, dtype = promote_one(name, "float", x)
        position = axis_of(name, axis, symbol.rank, {"x": symbol})
        return symbol.graph.build.emit(op_type, (symbol,), retype(symbol, dtype), {"axis": position})

    return activation


_WEIGHTS = "The exponentials of x divided by their sum over an axis: weights that sum to 1."
softmax = _over_axis("softmax", "Softmax", _WEIGHTS, " -inf gets weight 0; a row of only -inf is NaN.")
logsoftmax = _over_axis("logsoftmax", "LogSoftmax", "The logarithm of `softmax`, without its underflow.")


@op(onnx="Split, Sigmoid, Mul", rule="float")
def glu(x: TensorLike, axis: int = -1) -> Symbol:
    """The first half of an axis times the sigmoid of the second: a gated linear unit.

    Args:
        x: Numbers or bools, an even size along `axis`; integers become floats.

    Returns:
        Half the size there.

    Raises:
        ShapeError: For an invalid axis of x and for an odd size.

    Dauphin et al. 2017, arXiv:1612.08083.
    """
    symbol, dtype = promote_one("glu", "float", x)
    position = axis_of("glu", axis, symbol.rank, {"x": symbol})
    size = symbol.shape[position]
    if size % 2 == 1:
        raise ShapeError(
            f"glu: axis {position} must have an even size, got {size}",
            operands={"x": symbol},
            help="the first half of the axis is values, the second half is gates",
        )
    shape = _shape([*symbol.shape[:position], size // 2, *symbol.shape[position + 1 :]])
    return symbol.graph.build.emit("Glu", (symbol,), tensor_type(dtype, shape), {"axis": position}, LIBRARY)


@expansion("Glu")
def _glu(x: Symbol, axis: int) -> Symbol:
    half = _shape([*x.shape[:axis], x.shape[axis] // 2, *x.shape[axis + 1 :]])
    types = [tensor_type(x.dtype, half)] * 2
    values, gates = x.graph.build.emit_many("Split", (x,), types, {"axis": axis, "num_outputs": 2})
    return e.emit("Mul", values, e.emit("Sigmoid", gates))


@op(onnx="Sigmoid, Mul", rule="float")
def swiglu(gate: TensorLike, up: TensorLike) -> Symbol:
    """gate * sigmoid(gate) * up, the gated unit of most language models.

    Args:
        gate: Shapes that broadcast; they are promoted together and integers become floats.
        up: As `gate`.

    Raises:
        ShapeError: If they do not broadcast.

    Shazeer 2020, arXiv:2002.05202.
    """
    (gate, up), dtype = promote("swiglu", "float", {"gate": gate, "up": up})
    shape = broadcast("swiglu", {"gate": gate, "up": up})
    return gate.graph.build.emit("SwiGlu", (gate, up), tensor_type(dtype, shape), None, LIBRARY)


@expansion("SwiGlu", broadcasts=True)
def _swiglu(gate: Symbol, up: Symbol) -> Symbol:
    return e.emit("Mul", swish(gate), up)


# Element-wise, without parameters

sigmoid = unary("sigmoid", "Sigmoid", "float", "1 / (1 + exp(-x)). ONNX Sigmoid.")
silu = unary("silu", "Swish", "float", "x * sigmoid(x), also called swish. ONNX Swish.")
softplus = unary("softplus", "Softplus", "float", "log(1 + exp(x)), without overflow. ONNX Softplus.")
softsign = unary("softsign", "Softsign", "float", "x / (1 + abs(x)). ONNX Softsign.")
hardswish = unary("hardswish", "HardSwish", "float", "x * min(max(x / 6 + 1 / 2, 0), 1). ONNX HardSwish.")
mish = unary("mish", "Mish", "float", "x * tanh(softplus(x)). ONNX Mish.")

_SELU_ALPHA, _SELU_GAMMA = 1.6732632423543772, 1.0507009873554805


@op(onnx="Relu", rule="number")
def relu(x: TensorLike) -> Symbol:
    """max(x, 0); NaN stays NaN.

    Args:
        x: Any shape, numbers or bools; unsigned integers and bools are returned unchanged.

    Returns:
        The dtype of x.

    Raises:
        DTypeError: For strings.

    ONNX Relu, and Max for integers.
    """
    symbol, dtype = promote_one("relu", "number", x)
    if dtype.is_float or dtype.is_complex:
        return symbol.graph.build.emit("Relu", (symbol,), symbol.type)
    if not dtype.is_signed:
        return symbol
    return symbol.graph.build.emit("Max", (symbol, symbol.graph.build.scalar(0, dtype)), symbol.type)


@op(onnx="Selu", rule="float")
def selu(x: TensorLike) -> Symbol:
    """The scaled `elu` whose outputs keep mean 0 and variance 1.

    Args:
        x: Any shape, numbers or bools; integers become floats.

    Klambauer et al. 2017, arXiv:1706.02515; ONNX Selu.
    """
    return _parametric("selu", "Selu", x, alpha=_SELU_ALPHA, gamma=_SELU_GAMMA)


# Element-wise, with parameters


@op(onnx="Gelu", rule="float")
def gelu(x: TensorLike, approximate: str = "none") -> Symbol:
    """x times the probability that a standard normal number is below x.

    Args:
        x: Any shape, numbers or bools; integers become floats.
        approximate: "none" for x/2 * (1 + erf(x / sqrt(2))), "tanh" for x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715
            x^3))), "quick" for x * sigmoid(1.702 x).

    Raises:
        GraphError: For another value.

    Hendrycks and Gimpel 2016, arXiv:1606.08415; ONNX Gelu.
    """
    choice("gelu", "approximate", approximate, ("none", "tanh", "quick"))
    symbol, dtype = promote_one("gelu", "float", x)
    if approximate == "quick":
        return symbol.graph.build.emit("QuickGelu", (symbol,), retype(symbol, dtype), None, LIBRARY)
    return symbol.graph.build.emit("Gelu", (symbol,), retype(symbol, dtype), {"approximate": approximate})


def _of_alpha(name: str, op_type: str, summary: str, alpha: float, source: str = "") -> Callable[..., Symbol]:
    """Declare an activation with one parameter. alpha: its default."""
    doc = f"""{summary}

    Args:
        x: Any shape, numbers or bools; integers become floats.
        alpha: A Python number.

    Raises:
        DTypeError, ShapeError: For an alpha that is not a finite number.

    {source}ONNX {op_type}.
    """
    default = alpha

    @op(onnx=op_type, rule="float", name=name, doc=doc)
    def activation(x: TensorLike, alpha: float = default) -> Symbol:
        return _parametric(name, op_type, x, alpha=real(name, "alpha", alpha))

    return activation


_CLEVERT = "Clevert et al. 2015, arXiv:1511.07289; "
elu = _of_alpha("elu", "Elu", "x where x is positive, alpha * (exp(x) - 1) elsewhere.", 1.0, _CLEVERT)
leaky_relu = _of_alpha("leaky_relu", "LeakyRelu", "x where x is not negative, alpha * x elsewhere.", 0.01)
thresholded_relu = _of_alpha("thresholded_relu", "ThresholdedRelu", "x where x is above alpha, 0 elsewhere.", 1.0)


@op(onnx="Celu", rule="float")
def celu(x: TensorLike, alpha: float = 1.0) -> Symbol:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0): an `elu` with slope 1 at 0 for every alpha.

    Args:
        x: Any shape, numbers or bools; integers become floats.
        alpha: A Python number, not 0.

    Raises:
        DTypeError, ShapeError: For another alpha.

    Barron 2017, arXiv:1704.07483; ONNX Celu.
    """
    number = real("celu", "alpha", alpha)
    if not number:
        raise ShapeError("celu: alpha=0 divides by zero", help="give another alpha, or use ops.relu(x)")
    return _parametric("celu", "Celu", x, alpha=number)


@op(onnx="HardSigmoid", rule="float")
def hardsigmoid(x: TensorLike, alpha: float = 1 / 6, beta: float = 0.5) -> Symbol:
    """min(max(alpha * x + beta, 0), 1).

    Args:
        x: Any shape, numbers or bools; integers become floats.
        alpha: Python numbers.
        beta: Python numbers.

    Raises:
        DTypeError, ShapeError: For those that are not finite numbers.

    ONNX HardSigmoid, whose default alpha is 0.2.
    """
    numbers = {"alpha": real("hardsigmoid", "alpha", alpha), "beta": real("hardsigmoid", "beta", beta)}
    return _parametric("hardsigmoid", "HardSigmoid", x, **numbers)


def _parametric(name: str, op_type: str, x: TensorLike, **numbers: float) -> Symbol:
    symbol, dtype = promote_one(name, "float", x)
    domain = domain_for(dtype, *numbers.values())
    return symbol.graph.build.emit(op_type, (symbol,), retype(symbol, dtype), dict(numbers), domain)


@op(onnx="PRelu", rule="float")
def prelu(x: TensorLike, slope: TensorLike) -> Symbol:
    """x where x is not negative, slope * x elsewhere.

    Args:
        x: Any shape.
        slope: A shape that broadcasts to that of x: [channels, 1, 1] for images [batch, channels, height, width]. They
            are promoted together; integers become floats.

    Raises:
        ShapeError: For another slope.

    ONNX PRelu.
    """
    (symbol, slope), dtype = promote("prelu", "float", {"x": x, "slope": slope})
    roles = {"x": symbol, "slope": slope}
    shape = broadcast("prelu", roles)
    if len(shape) != symbol.rank or any(not same_dim(a, b) for a, b in zip(shape, symbol.shape, strict=True)):
        raise ShapeError(
            f"prelu: slope of shape {slope.shape} does not broadcast to x",
            operands=roles,
            help="give a scalar, or a slope with trailing axes of size 1: slope.reshape(channels, 1, 1)",
        )
    return symbol.graph.build.emit("PRelu", (symbol, slope), retype(symbol, dtype))


# Clipping


@op(onnx="Clip", rule="number")
def clip(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Symbol:
    """min(max(x, min), max): elements below `min` become `min`, then those above `max` become `max`; NaN stays NaN.

    Args:
        x: Any shape, numbers or bools.
        min: Shapes that broadcast with x, or None for no bound; they must promote to the dtype of x, but under "numpy",
            "jax" and "torch" the result has the common dtype of all three.
        max: Shapes that broadcast with x, or None for no bound; they must promote to the dtype of x, but under "numpy",
            "jax" and "torch" the result has the common dtype of all three. A NaN bound has no effect if it is a scalar;
            else the result is NaN there.

    Returns:
        The dtype of x.

    Raises:
        DTypeError: For a bound that does not fit the dtype of x.
        ShapeError: For shapes that do not broadcast.

    The array API standard's clip; ONNX Clip.
    """
    return _clip("clip", x, min, max)


@op(onnx="Clip", rule="float")
def hardtanh(x: TensorLike, min: TensorLike = -1.0, max: TensorLike = 1.0) -> Symbol:
    """x clipped to lie between `min` and `max`.

    Args:
        x: Any shape, numbers or bools; integers become floats.
        min: As for `clip`.
        max: As for `clip`. Raises as `clip` does.

    ONNX Clip.
    """
    symbol, _ = promote_one("hardtanh", "float", x)
    return _clip("hardtanh", symbol, min, max)


def _clip(name: str, x: TensorLike, low: TensorLike | None, high: TensorLike | None) -> Symbol:
    graph = graph_of(name, [x, low, high])
    if graph.promotion.bounds_promote:
        bounded = {"x": x, "min": low, "max": high}
        (x, *bounds), _ = promote(name, "number", {role: v for role, v in bounded.items() if v is not None})
        low = None if low is None else bounds.pop(0)
        high = None if high is None else bounds.pop(0)
    symbol, dtype = promote_one(name, "number", x if isinstance(x, Symbol) else graph.build.operand(x, name, "x"))
    least = None if low is None else _bound(name, symbol, "min", low)
    greatest = None if high is None else _bound(name, symbol, "max", high)
    if least is None and greatest is None:
        return symbol
    if dtype is not DType.bool and not any(b is not None and b.rank for b in (least, greatest)):
        if dtype.is_float and dtype.bits >= 16:  # for an omitted bound, ONNX takes the largest finite numbers
            least = graph.build.scalar(-math.inf, dtype) if least is None else least
            greatest = graph.build.scalar(math.inf, dtype) if greatest is None else greatest
        inputs = (symbol, least, greatest) if greatest is not None else (symbol, least)
        return graph.build.emit("Clip", inputs, symbol.type)
    broadcast(name, {role: s for role, s in (("x", symbol), ("min", least), ("max", greatest)) if s is not None})
    if least is not None:
        symbol = maximum(symbol, least)
    return symbol if greatest is None else minimum(symbol, greatest)


def _bound(name: str, x: Symbol, role: str, value: TensorLike) -> Symbol:
    """Return a bound as a Symbol of the dtype of x."""
    literal: Any = value if type(value) in (bool, int, float) else None
    symbol = None if literal is not None else x.graph.build.operand(value, name, role)
    roles = {"x": x, role: value if symbol is None else symbol}
    resolution = resolve(x.graph, Key(name, "number"), roles, (x, symbol), (None, literal))
    if resolution.result is not x.dtype:
        raise DTypeError(
            f"{name}: {role} would promote x to {resolution.result}, but bounds must not change the dtype of x",
            operands=roles,
            help=f"cast the bound: {role}.cast(DType.{x.dtype.name}), or x: x.cast(DType.{resolution.result.name})",
        )
    return apply(x.graph, name, roles, (x, symbol), (None, literal), resolution)[1]


# Expansions, for dtypes without a kernel


def _expm1_times(x: Symbol, factor: float) -> Symbol:
    result: Symbol = EXPANSIONS["Expm1"](x)
    return result if factor == 1 else e.emit("Mul", result, e.const(x, factor))


def _below_zero(x: Symbol, there: Symbol) -> Symbol:
    """Return `there` where x is negative, else x."""
    return e.where(e.less(x, e.const(x, 0.0)), there, x)


@expansion("Swish", fast=True)
def _quick_swish(x: Symbol, alpha: float = 1.0) -> Symbol:
    return e.emit("Mul", x, e.emit("Sigmoid", x if alpha == 1 else e.mul(x, alpha)))


@expansion("Swish")
def swish(x: Symbol, alpha: float = 1.0) -> Symbol:
    """Return x * sigmoid(alpha * x)."""
    if x.dtype is not DType.float64:
        return _quick_swish(x, alpha)
    if alpha == 1:
        return times_sigmoid(x, x)
    bounded = e.clamp_max(e.clamp_min(x, -1e200), 1e200)
    return times_sigmoid(x, *e.product_of(bounded, e.const(x, alpha)))


def times_sigmoid(x: Symbol, inner: Symbol, rest: Symbol | None = None) -> Symbol:
    """Return x / (1 + exp(-inner - rest)) in float64, without underflow before the product does."""
    below = e.below(inner, 0.0)
    if rest is not None:
        rest = e.where(below, rest, e.emit("Neg", rest))
    power, tail = e.exp_factors(e.emit("Neg", e.emit("Abs", inner)), rest)
    share = e.emit("Div", e.where_number(below, power, 1.0), e.add(e.emit("Mul", power, tail), 1.0))
    return e.mul(e.mul(x, share), e.where_number(below, tail, 1.0))


@expansion("Gelu")
def _gelu(x: Symbol, approximate: str = "none") -> Symbol:
    if approximate == "tanh":
        cube = e.emit("Mul", e.emit("Mul", x, x), x)
        inner = e.emit("Add", x, e.emit("Mul", cube, e.const(x, 0.044715)))
        spread = e.emit("Tanh", e.emit("Mul", inner, e.const(x, math.sqrt(2 / math.pi))))
    else:
        spread = e.emit("Erf", e.emit("Mul", x, e.const(x, math.sqrt(0.5))))
    half = e.emit("Mul", x, e.const(x, 0.5))
    return e.emit("Mul", half, e.emit("Add", spread, e.const(x, 1.0)))


@expansion("Softplus")
def _softplus(x: Symbol) -> Symbol:
    tail: Symbol = EXPANSIONS["Log1p"](e.emit("Exp", e.emit("Neg", e.emit("Abs", x))))
    return e.emit("Add", e.emit("Max", x, e.const(x, 0.0)), tail)


@expansion("HardSigmoid")
def _hardsigmoid(x: Symbol, alpha: float = 0.2, beta: float = 0.5) -> Symbol:
    if x.dtype is DType.float64:  # both may cancel
        rise, lost = e.product_of(e.clamp_max(e.clamp_min(x, -1e200), 1e200), e.const(x, alpha))
        return _to_one(e.add(e.add(rise, beta), lost))
    return _to_one(e.add(e.mul(x, alpha), beta))


def _to_one(x: Symbol) -> Symbol:
    return e.emit("Clip", x, e.const(x, 0.0), e.const(x, 1.0))


@expansion("HardSwish")
def _hardswish(x: Symbol) -> Symbol:
    share = e.emit("Div", e.add(x, 3.0), e.const(x, 6.0)) if x.dtype is DType.float64 else e.add(e.mul(x, 1 / 6), 0.5)
    return e.emit("Mul", x, _to_one(share))


@expansion("Elu")
def _elu(x: Symbol, alpha: float = 1.0) -> Symbol:
    return _below_zero(x, _expm1_times(x, alpha))


@expansion("Selu")
def _selu(x: Symbol, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Symbol:
    return e.emit("Mul", _elu(x, alpha), e.const(x, gamma))


@expansion("Celu")
def _celu(x: Symbol, alpha: float = 1.0) -> Symbol:
    zero = e.const(x, 0.0)
    inner = x if alpha == 1 else e.emit("Div", x, e.const(x, alpha))
    return e.emit("Add", e.emit("Max", x, zero), e.emit("Min", _expm1_times(inner, alpha), zero))


EXPANSIONS.update(
    QuickGelu=lambda x: swish(x, 1.702),
    Softsign=lambda x: e.emit("Div", x, e.emit("Add", e.emit("Abs", x), e.const(x, 1.0))),
    Mish=lambda x: e.emit("Mul", x, e.emit("Tanh", _softplus(x))),
    LeakyRelu=lambda x, alpha=0.01: _below_zero(x, e.emit("Mul", x, e.const(x, alpha))),
    ThresholdedRelu=lambda x, alpha=1.0: e.where(e.greater(x, e.const(x, alpha)), x, e.const(x, 0.0)),
    PRelu=lambda x, slope: e.where(e.less(x, e.const(x, 0.0)), e.emit("Mul", x, slope), x),
)
