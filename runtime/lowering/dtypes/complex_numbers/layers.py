"""Layers of complex numbers: convolutions, normalisations by magnitudes, and functions that gate."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.dtypes.complex_numbers import real as r
from graphcore.runtime.lowering.dtypes.complex_numbers.arithmetic import (
    difference,
    from_real,
    operands,
    product,
    quotient,
    size,
    total,
)
from graphcore.runtime.lowering.dtypes.complex_numbers.exponentials import exponential, logarithm, rounded, wide
from graphcore.runtime.lowering.dtypes.complex_numbers.parts import Pair, Parts, Result
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

# Sums of products


def _convolution(on: Parts, node: Node) -> Sequence[Result]:
    """Four real convolutions, or three (Gauss) where products may round otherwise. The bias goes into two of them."""
    x, filters, *biases = operands(on, node)
    type_ = tensor_type(x.real.dtype, node.outputs[0].shape)

    def convolved(a: Symbol, b: Symbol, *bias: Symbol) -> Symbol:
        return on.new.build.emit(node.op_type, (a, b, *bias), type_, node.attributes, node.domain)

    real_bias, imag_bias = [b.real for b in biases], [b.imag for b in biases]
    if not on.fast:
        real = r.sub(convolved(x.real, filters.real, *real_bias), convolved(x.imag, filters.imag))
        return (Pair(real, r.add(convolved(x.real, filters.imag, *imag_bias), convolved(x.imag, filters.real))),)
    first = convolved(r.add(x.real, x.imag), filters.real)
    second = convolved(x.real, r.sub(filters.imag, filters.real), *imag_bias)
    # The first product goes into both parts, so that a bias of its own is in none of them.
    third = convolved(x.imag, r.add(filters.real, filters.imag), *map(r.neg, real_bias))
    return (Pair(r.sub(first, third), r.add(first, second)),)


def _fma(on: Parts, node: Node) -> Sequence[Result]:
    x, y, z = operands(on, node)
    return (rounded(total(product(wide(x), wide(y)), wide(z)), x.real.dtype),)


# Gates


def _gate(z: Pair) -> Pair:
    """1 / (1 + e^-z), of e^-|Re z|, which does not overflow. In float64."""
    left = e.less(z.real, r.number(z.real, 0.0))
    outward = Pair(*(e.where(left, part, r.neg(part)) for part in z))
    power = exponential(outward, False)
    one = from_real(r.number(z.real, 1.0))
    return quotient(Pair(*(e.where(left, a, b) for a, b in zip(power, one, strict=True))), total(power, one))


def _gated(values: Pair, gates: Pair) -> Pair:
    """Return values times the sigmoid of gates, rounded to their dtype."""
    return rounded(product(wide(values), _gate(wide(gates))), values.real.dtype)


def _sigmoid(on: Parts, node: Node) -> Sequence[Result]:
    (z,) = operands(on, node)
    return (rounded(_gate(wide(z)), z.real.dtype),)


def _swish(on: Parts, node: Node) -> Sequence[Result]:
    (z,) = operands(on, node)
    alpha = float(node.attributes.get("alpha", 1.0))
    return (_gated(z, Pair(*(r.times(part, alpha) for part in z)) if alpha != 1 else z),)


def _glu(on: Parts, node: Node) -> Sequence[Result]:
    (z,) = operands(on, node)
    halves = []
    for part in z:
        type_ = tensor_type(part.dtype, node.outputs[0].shape)
        attributes = {"axis": node.attributes["axis"], "num_outputs": 2}
        halves.append(on.new.build.emit_many("Split", (part,), [type_, type_], attributes))
    return (_gated(*(Pair(real, imag) for real, imag in zip(*halves, strict=True))),)


def _swiglu(on: Parts, node: Node) -> Sequence[Result]:
    gate, up = operands(on, node)
    return (product(_gated(gate, gate), up),)


def _softsign(on: Parts, node: Node) -> Sequence[Result]:
    (z,) = operands(on, node)
    below = r.plus(size(z), 1.0)
    return (Pair(*(r.div(part, below) for part in z)),)


# Norms


def _mean(x: Symbol, axes: Sequence[int]) -> Symbol:
    shape = _shape([Dim(1) if i in axes else d for i, d in enumerate(x.shape)])
    return e.emit("ReduceMean", x, e.ints(x, list(axes)), shape=shape, keepdims=1)


def _scaled(z: Pair, axes: Sequence[int], epsilon: float) -> Pair:
    """Return z over the root of its mean square magnitude."""
    square = r.add(*(r.mul(part, part) for part in z))
    root = r.sqrt(r.plus(_mean(square, axes), epsilon))
    return Pair(*(r.div(part, root) for part in z))


def _trailing(node: Node, z: Pair) -> tuple[range, float]:
    rank = z.real.rank
    return range(int(node.attributes.get("axis", -1)) % rank, rank), float(node.attributes.get("epsilon", 1e-5))


def _rms_norm(on: Parts, node: Node) -> Sequence[Result]:
    z, weight = operands(on, node)
    offset = float(node.attributes.get("weight_offset", 0.0))
    if offset:
        weight = Pair(r.plus(weight.real, offset), weight.imag)
    return (product(_scaled(z, *_trailing(node, z)), weight),)


def _layer_norm(on: Parts, node: Node) -> Sequence[Result]:
    z, scale, *bias = operands(on, node)
    axes, epsilon = _trailing(node, z)
    centred = difference(z, Pair(*(_mean(part, axes) for part in z)))
    made = product(_scaled(centred, axes, epsilon), scale)
    return (total(made, bias[0]) if bias else made,)


def _magnitude(on: Parts, node: Node) -> Sequence[Result]:
    (z,) = operands(on, node)
    type_ = node.outputs[0].type
    return (size(Pair(*(on.new.build.emit("Magnitude", (part,), type_, node.attributes, LIBRARY) for part in z))),)


def _lp_normalize(on: Parts, node: Node) -> Sequence[Result]:
    (z,) = operands(on, node)
    axis = int(node.attributes.get("axis", -1)) % z.real.rank
    shape = _shape([Dim(1) if i == axis else d for i, d in enumerate(z.real.shape)])
    if node.attributes.get("p", 2) == 1:
        length = e.emit("ReduceSum", size(z), e.ints(z.real, [axis]), shape=shape, keepdims=1)
    else:
        type_ = tensor_type(z.real.dtype, shape)
        attributes = {"axes": [axis], "keepdims": 1, "scaled": int(z.real.dtype is DType.float64)}
        length = size(Pair(*(on.new.build.emit("Magnitude", (part,), type_, attributes, LIBRARY) for part in z)))
    divisor = e.where(r.is_zero(length), r.number(length, 1.0), length)
    return (Pair(*(r.div(part, divisor) for part in z)),)


def _log_sum_exp(on: Parts, node: Node) -> Sequence[Result]:
    """Of what is left when the greatest real part is taken away, as for real numbers."""
    source = node.inputs[0]
    assert source is not None
    dtype = source.dtype.storage
    z = wide(on.pair(source))
    axes = [on.of(s) for s in node.inputs[1:] if s is not None]
    keeps = int(node.attributes.get("keepdims", 1))
    kept = _shape([Dim.dynamic()] * z.real.rank)
    most = e.emit("ReduceMax", z.real, *axes, shape=kept, keepdims=1)
    most = e.where(r.is_finite(most), most, r.number(most, 0.0))
    power = exponential(Pair(r.sub(z.real, most), z.imag), False)
    shape = node.outputs[0].shape
    made = logarithm(Pair(*(e.emit("ReduceSum", part, *axes, shape=shape, keepdims=keeps) for part in power)), False)
    added = e.emit("ReduceMax", most, *axes, shape=shape, keepdims=keeps)
    return (rounded(Pair(r.add(made.real, added), made.imag), dtype),)


RULES = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "Fma": _fma,
    "Glu": _glu,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_normalize,
    "Magnitude": _magnitude,
    "RMSNormalization": _rms_norm,
    "ReduceLogSumExp": _log_sum_exp,
    "Sigmoid": _sigmoid,
    "Softsign": _softsign,
    "SwiGlu": _swiglu,
    "Swish": _swish,
}
