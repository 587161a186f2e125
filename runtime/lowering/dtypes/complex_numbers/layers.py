"""Layers of complex numbers: convolutions, normalisations by magnitudes, and gating functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY
from graphcore.errors import DTypeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ir.transform.walk import constant_array, constant_scalar
from graphcore.ops.control import scan
from graphcore.promotion.complex_operators import MOVES, PASS_THROUGH
from graphcore.runtime.lowering.dtypes import not_computed, with_longer_operands
from graphcore.runtime.lowering.dtypes.complex_numbers import arithmetic, exponentials, trigonometry
from graphcore.runtime.lowering.dtypes.complex_numbers import parts as r
from graphcore.runtime.lowering.dtypes.complex_numbers.arithmetic import (
    from_real,
    operands,
    product,
    quotient,
    rule,
    scaled,
    size,
    total,
)
from graphcore.runtime.lowering.dtypes.complex_numbers.exponentials import exponential, logarithm, rounded, wide
from graphcore.runtime.lowering.dtypes.complex_numbers.parts import (
    ComplexPair,
    ComplexPolicy,
    Result,
    holds_complex,
    stored_type,
)
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, _shape, tensor_type

# Sums of products


def _bilinear(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    """Build four real products of a MatMul or a convolution, or three (Gauss) if the rounding may differ.

    The bias of a convolution goes into two of them.
    """
    x, y, *biases = operands(on, node)
    type_ = tensor_type(x.real.dtype, node.outputs[0].shape)

    def times(a: Symbol, b: Symbol, *bias: Symbol) -> Symbol:
        return on.new.build.emit(node.op_type, (a, b, *bias), type_, node.attributes, node.domain)

    real_bias, imag_bias = [b.real for b in biases], [b.imag for b in biases]
    if not on.fast:
        real = e.sub(times(x.real, y.real, *real_bias), times(x.imag, y.imag))
        return (ComplexPair(real, e.add(times(x.real, y.imag, *imag_bias), times(x.imag, y.real))),)
    first = times(e.add(x.real, x.imag), y.real)
    second = times(x.real, e.sub(y.imag, y.real), *imag_bias)
    # The first product is part of both results, so it gets no bias.
    third = times(x.imag, e.add(y.real, y.imag), *map(r.neg, real_bias))
    return (ComplexPair(e.sub(first, third), e.add(first, second)),)


# Gates


def _gate(z: ComplexPair) -> ComplexPair:
    """Return 1 / (1 + e^-z) in float64, by e^-|Re z|, which does not overflow."""
    is_left = e.below(z.real, 0.0)
    power = exponential(z.each(lambda part: e.where(is_left, part, r.neg(part))), False)
    one = from_real(e.const(z.real, 1.0))
    return quotient(power.each(lambda a, b: e.where(is_left, a, b), one), total(power, one))


def _gated(values: ComplexPair, gates: ComplexPair) -> ComplexPair:
    """Return values times the sigmoid of gates, rounded to their dtype."""
    return rounded(product(wide(values), _gate(wide(gates))), values.real.dtype)


def _swish(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (z,) = operands(on, node)
    alpha = float(node.attributes.get("alpha", 1.0))
    return (_gated(z, scaled(z, alpha) if alpha != 1 else z),)


def _glu(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (z,) = operands(on, node)
    halves = []
    for part in z:
        type_ = tensor_type(part.dtype, node.outputs[0].shape)
        attributes = {"axis": node.attributes["axis"], "num_outputs": 2}
        halves.append(on.new.build.emit_many("Split", (part,), [type_, type_], attributes))
    return (_gated(*(ComplexPair(real, imag) for real, imag in zip(*halves, strict=True))),)


def _softsign(z: ComplexPair) -> ComplexPair:
    below = e.add(size(z), 1.0)
    return z.each(lambda part: e.div(part, below))


# Norms


def _mean(x: Symbol, axes: Sequence[int]) -> Symbol:
    return e.emit("ReduceMean", x, e.ints(x, list(axes)), keepdims=1)


def _scaled(z: ComplexPair, axes: Sequence[int], epsilon: float) -> ComplexPair:
    """Return z over the root of its mean square magnitude."""
    square = e.add(*z.each(e.square))
    root = r.sqrt(e.add(_mean(square, axes), epsilon))
    return z.each(lambda part: e.div(part, root))


def _trailing(node: Node, z: ComplexPair) -> tuple[range, float]:
    rank = z.real.rank
    return range(int(node.attributes.get("axis", -1)) % rank, rank), float(node.attributes.get("epsilon", 1e-5))


def _rms_norm(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    z, weight = operands(on, node)
    offset = float(node.attributes.get("weight_offset", 0.0))
    if offset:
        weight = ComplexPair(e.add(weight.real, offset), weight.imag)
    return (product(_scaled(z, *_trailing(node, z)), weight),)


def _layer_norm(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    z, scale, *bias = operands(on, node)
    axes, epsilon = _trailing(node, z)
    centred = z.each(lambda part: e.sub(part, _mean(part, axes)))
    normalised = product(_scaled(centred, axes, epsilon), scale)
    return (total(normalised, bias[0]) if bias else normalised,)


def _magnitude(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (z,) = operands(on, node)
    type_ = node.outputs[0].type
    return (size(z.each(lambda part: part.graph.build.emit("Magnitude", (part,), type_, node.attributes, LIBRARY))),)


def _lp_normalize(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    (z,) = operands(on, node)
    axis = int(node.attributes.get("axis", -1)) % z.real.rank
    shape = _shape([Dim(1) if i == axis else d for i, d in enumerate(z.real.shape)])
    if node.attributes.get("p", 2) == 1:
        length = e.emit("ReduceSum", size(z), e.ints(z.real, [axis]), shape=shape, keepdims=1)
    else:
        type_ = tensor_type(z.real.dtype, shape)
        attributes = {"axes": [axis], "keepdims": 1, "scaled": int(z.real.dtype is DType.float64)}
        length = size(z.each(lambda part: part.graph.build.emit("Magnitude", (part,), type_, attributes, LIBRARY)))
    divisor = e.where(r.is_zero(length), e.const(length, 1.0), length)
    return (z.each(lambda part: e.div(part, divisor)),)


def _log_sum_exp(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    """Subtract the largest real part first, as for real numbers."""
    source = present(node.inputs[0])
    dtype = source.dtype.storage
    z = wide(on.pair(source))
    axes = [on.of(s) for s in node.inputs[1:] if s is not None]
    keeps = int(node.attributes.get("keepdims", 1))
    largest = e.emit("ReduceMax", z.real, *axes, keepdims=1)
    largest = e.where(r.is_finite(largest), largest, e.const(largest, 0.0))
    power = exponential(ComplexPair(e.sub(z.real, largest), z.imag), False)
    shape = node.outputs[0].shape
    log_sum = logarithm(power.each(lambda part: e.emit("ReduceSum", part, *axes, shape=shape, keepdims=keeps)), False)
    added = e.emit("ReduceMax", largest, *axes, shape=shape, keepdims=keeps)
    return (rounded(ComplexPair(e.add(log_sum.real, added), log_sum.imag), dtype),)


# Products of complex matrices and products along axes.


def _einsum(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    """Return the sum of the real equations for every choice of parts, times i for each imaginary part."""
    pairs = operands(on, node)
    type_ = tensor_type(pairs[0].real.dtype, node.outputs[0].shape)
    sums: list[Symbol | None] = [None, None]
    for places in itertools.product((0, 1), repeat=len(pairs)):
        turns = sum(places)
        parts = tuple(pair[place] for pair, place in zip(pairs, places, strict=True))
        term = on.new.build.emit("Einsum", parts, type_, node.attributes, node.domain)
        is_minus = turns % 4 >= 2
        term_sum = sums[turns % 2]
        if term_sum is None:
            sums[turns % 2] = r.neg(term) if is_minus else term
        else:
            sums[turns % 2] = e.sub(term_sum, term) if is_minus else e.add(term_sum, term)
    real, imag = map(present, sums)
    return (ComplexPair(real, imag),)


def _reduce_prod(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    """Multiply one element after the other, along one axis after the other."""
    source, axes = present(node.inputs[0]), constant_array(node.inputs[1]) if len(node.inputs) > 1 else None
    current = on.pair(source)
    keeps = node.attributes.get("keepdims", 1)
    along = range(source.rank) if axes is None else sorted(int(axis) % source.rank for axis in axes)
    for axis in reversed(along):
        current, _ = _running_product(current, axis)
        if keeps:
            current = ComplexPair(*(e.unsqueeze(part, axis) for part in current))
    return (current,)


def _cum_prod(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    source, at = node.inputs
    assert source is not None
    axis = present(constant_scalar(at))
    is_exclusive, is_reverse = (bool(node.attributes.get(key, 0)) for key in ("exclusive", "reverse"))
    _, products = _running_product(
        on.pair(source), axis % source.rank, is_exclusive=is_exclusive, is_reverse=is_reverse
    )
    return (products,)


def _running_product(
    x: ComplexPair, axis: int, *, is_exclusive: bool = False, is_reverse: bool = False
) -> tuple[ComplexPair, ComplexPair]:
    """Return the product along an axis, and the running products."""
    shape = x.real.shape
    remaining_shape = _shape([*shape[:axis], *shape[axis + 1 :]])
    remaining_axes = e.ints(x.real, [i for i in range(len(shape)) if i != axis])
    sizes = e.emit("Gather", r.shape_of(x.real), remaining_axes, axis=0)
    start = [e.emit("Expand", e.const(x.real, value), sizes, shape=remaining_shape) for value in (1.0, 0.0)]

    def step(state: tuple[Symbol, Symbol], row: tuple[Symbol, Symbol]) -> tuple[object, object]:
        after = tuple(product(ComplexPair(*state), ComplexPair(*row)))
        return after, state if is_exclusive else after

    last, running = scan(step, tuple(start), tuple(x), axis=axis, reverse=is_reverse, out_axis=axis)
    return ComplexPair(*last), ComplexPair(*running)


# Moves of complex numbers: each part is moved by the operator itself. Bodies and lists take them as one tensor.

SUMS = frozenset("AveragePool Col2Im CumSum GridSample ReduceMean ReduceSum Resize RoiAlign".split())
"""Sums with real weights, which can be applied to each part of a complex number, as moves can."""


def _moved(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    if not all(isinstance(s.type, TensorType) for s in (*node.inputs, *node.outputs) if s is not None):
        return _keep_operator(on, node)  # Identity of a list
    types = [tensor_type(s.dtype.storage, s.shape) for s in node.outputs]
    pairs = [on.pair(s) if s is not None and holds_complex(s) else None for s in node.inputs]
    parts_results = []
    for place in (0, 1):
        inputs = tuple(
            None if s is None else on.of(s) if pair is None else pair[place]
            for s, pair in zip(node.inputs, pairs, strict=True)
        )
        parts_results.append(on.new.build.emit_many(node.op_type, inputs, types, node.attributes, node.domain))
    return [ComplexPair(*parts) for parts in zip(*parts_results, strict=True)]


def _shape_or_size(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    """Apply Shape or Size to one part: both have the same shape."""
    (x,) = map(present, node.inputs)
    result = e.emit(node.op_type, on.pair(x).real, dtype=DType.int64, shape=node.outputs[0].shape, **node.attributes)
    return (result,)


def _constant_of_shape(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    """Apply ConstantOfShape for each part."""
    (out,) = node.outputs
    (shape,) = (on.of(s) for s in node.inputs if s is not None)
    value = np.asarray(node.attributes["value"])
    type_ = tensor_type(out.dtype.storage, out.shape)
    parts = (np.ascontiguousarray(part).reshape(value.shape) for part in (value.real, value.imag))
    return (ComplexPair(*(on.new.build.emit("ConstantOfShape", (shape,), type_, {"value": part}) for part in parts)),)


def _keep_operator(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    inputs = tuple([None if s is None else on.of(s) for s in node.inputs])
    types = [stored_type(s.type) for s in node.outputs]
    attributes = on.rewrite.attributes(node)
    if node.op_type == "SequenceEmpty":
        attributes = {**attributes, "dtype": _leaf_type(node.outputs[0]).dtype.storage}
    if node.op_type == "Scan":
        attributes = with_longer_operands(node, attributes, holds_complex)
    elif node.op_type in ("ConcatFromSequence", "SplitToSequence"):
        attributes = _with_axis_from_front(node, attributes)
    return on.new.build.emit_many(node.op_type, inputs, types, attributes, node.domain)


def _with_axis_from_front(node: Node, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return attributes with a non-negative axis: the stored tensor has one more axis, the last."""
    axis = int(attributes.get("axis", 0))
    if axis >= 0:
        return attributes
    is_new = node.op_type == "ConcatFromSequence" and attributes.get("new_axis", 0)
    return {**attributes, "axis": axis + _leaf_type(node.inputs[0]).rank + int(bool(is_new))}


def _leaf_type(symbol: Symbol | None) -> TensorType:
    type_ = None if symbol is None else symbol.type
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    assert isinstance(type_, TensorType)
    return type_


# Operators on complex numbers. One row per operator; operators without one are refused.

_RULES: dict[str, Callable[[ComplexPolicy, Node], Sequence[Result]]] = {
    **dict.fromkeys(MOVES | SUMS, _moved),
    **dict.fromkeys(PASS_THROUGH, _keep_operator),
    "ConstantOfShape": _constant_of_shape,
    "Shape": _shape_or_size,
    "Size": _shape_or_size,
    # Complex numbers are stored as a tensor of pairs.
    **dict.fromkeys(("FromPairs", "ToPairs"), lambda on, node: (on.of(present(node.inputs[0])),)),
    **arithmetic.RULES,
    **{name: partial(exponentials.elementwise, f) for name, f in (exponentials.RULES | trigonometry.RULES).items()},
    "Pow": exponentials.power,
    "Conv": _bilinear,
    "ConvTranspose": _bilinear,
    "Fma": rule(lambda x, y, z: rounded(total(product(wide(x), wide(y)), wide(z)), x.real.dtype)),
    "Glu": _glu,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_normalize,
    "Magnitude": _magnitude,
    "RMSNormalization": _rms_norm,
    "ReduceLogSumExp": _log_sum_exp,
    "Sigmoid": rule(lambda z: rounded(_gate(wide(z)), z.real.dtype)),
    "Softsign": rule(_softsign),
    "SwiGlu": rule(lambda gate, up: product(_gated(gate, gate), up)),
    "Swish": _swish,
    "CumProd": _cum_prod,
    "Einsum": _einsum,
    "MatMul": _bilinear,
    "ReduceProd": _reduce_prod,
}

SUPPORTED = frozenset(_RULES)
"""The operators that support complex numbers."""


def computed(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    """Return the results of a node on complex numbers. Raises `DTypeError` for operators without a rule."""
    rule = _RULES.get(node.op_type) if node.domain in ("", LIBRARY) else None
    if rule is None:
        raise _refused(node)
    return rule(on, node)


def _refused(node: Node) -> DTypeError:
    value = present(next(s for s in (*node.inputs, *node.outputs) if holds_complex(s)))
    return not_computed(
        node, f"nothing computes it on {value.type}", "compute on the parts: ops.real(z), ops.imag(z), ops.abs(z)"
    )


def stored(graph: Graph, fast: bool, branches: bool) -> Graph:
    """Return the graph with real tensors in place of complex ones."""
    return ComplexPolicy(graph, computed, fast=fast, branches=branches).rewrite.run()
