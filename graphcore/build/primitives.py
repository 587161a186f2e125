"""Single ONNX operators on Symbols of matching dtypes, and arithmetic, for writing expansions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.operators import SHAPES, Trait, having
from graphcore.operators.shapes.call import OperatorCall, Rule, broadcast, broadcast_shapes, same, shapes_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type


def emit(
    op_type: str, *inputs: Symbol | None, dtype: DType | None = None, shape: Shape | None = None, **attributes: Any
) -> Symbol:
    """Emit an ONNX operator with one output, by default of the dtype and the shape that the operator gives."""
    graph = next(s for s in inputs if s is not None).graph
    return graph.build.emit(op_type, inputs, result_type(op_type, inputs, attributes, dtype, shape), attributes)


_DTYPES = {
    **dict.fromkeys(having(Trait.COMPARES) | having(Trait.TESTS), DType.bool),
    **dict.fromkeys(having(Trait.POSITIONS) - having(Trait.SELECTS), DType.int64),
}
"""The dtypes of results that do not have the dtype of an operand."""


def result_type(
    op_type: str,
    inputs: Sequence[Symbol | None],
    attributes: Mapping[str, Any],
    dtype: DType | None = None,
    shape: Shape | None = None,
) -> TensorType:
    """Return the type of the result of an ONNX operator: by its shape rule, or the broadcast shape if it has none."""
    operands = [s for s in inputs if s is not None]
    if dtype is None:
        dtype = _DTYPES.get(op_type) or operands[1 if op_type == "Where" else 0].dtype
    if shape is None:
        rule = SHAPES.get(op_type, broadcast)
        if rule is same:
            shape = operands[0].shape
        elif rule is not broadcast:
            shape = _by_rule(rule, inputs, attributes)
    return tensor_type(dtype, _joint([s.shape for s in operands]) if shape is None else shape)


def _by_rule(rule: Rule, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> Shape | None:
    """Return the shape of a result by the constants among the operands; None if the rule does not tell it."""

    def array(position: int) -> Any:
        return constant_array(inputs[position]) if position < len(inputs) else None

    def value(position: int) -> Any:
        numbers = array(position)
        if numbers is None or numbers.ndim > 1 or numbers.dtype.kind not in "iub":
            return None
        return tuple(numbers.tolist()) if numbers.ndim else int(numbers)

    call = OperatorCall([s if s is None else s.shape for s in inputs], attributes, 1, value, array)
    try:
        shapes = shapes_of(rule, call)
    except ValueError:  # of dims that contradict each other, which imported models may declare
        return Shape.unknown()
    return None if shapes is None else shapes[0]


def _joint(shapes: Sequence[Shape]) -> Shape:
    try:
        return broadcast_shapes(shapes)
    except ValueError:  # imported models may have two names for one dim
        return Shape(["?"] * max(shape.rank for shape in shapes))


def const(like: Symbol, value: Any, dtype: DType | None = None) -> Symbol:
    """Return a scalar constant of the given dtype, by default that of `like`."""
    return like.graph.build.scalar(value, dtype or like.dtype)


def cast(x: Symbol, dtype: DType) -> Symbol:
    return x.graph.build.cast(x, dtype)


def cast_within(x: Symbol, dtype: DType) -> Symbol:
    """Cast values that are in the range of `dtype`, or integers that may wrap: lowering does not handle overflow."""
    return emit("Cast", x, dtype=dtype, to=dtype, within=True)


def bitcast(x: Symbol, dtype: DType) -> Symbol:
    """Reinterpret bits as another dtype of the same width. ONNX BitCast."""
    return x if x.dtype is dtype else emit("BitCast", x, dtype=dtype, to=dtype)


def where(condition: Symbol, x: Symbol, y: Symbol) -> Symbol:
    """ONNX Where."""
    shape = _joint([condition.shape, x.shape, y.shape])
    return x.graph.build.emit("Where", (condition, x, y), tensor_type(x.dtype, shape))


equal = functools.partial(emit, "Equal", dtype=DType.bool)
less = functools.partial(emit, "Less", dtype=DType.bool)
greater = functools.partial(emit, "Greater", dtype=DType.bool)
either, opposite = functools.partial(emit, "Or"), functools.partial(emit, "Not")


def both(*conditions: Symbol) -> Symbol:
    return functools.reduce(functools.partial(emit, "And"), conditions)


def ints(like: Symbol, values: Sequence[int]) -> Symbol:
    """Return an int64 vector constant, such as axes, shapes or pads."""
    return like.graph.build.vector(values)


# The axes of Symbols.


def transpose(x: Symbol, order: Sequence[int]) -> Symbol:
    """Return x with its axes in another order; x itself if that is the present one."""
    if list(order) == list(range(x.rank)):
        return x
    return emit("Transpose", x, shape=_shape([x.shape[axis] for axis in order]), perm=list(order))


def move_axis(x: Symbol, axis: int, to: int) -> Symbol:
    """Move an axis to another position; the others stay in order."""
    order = [other for other in range(x.rank) if other != axis]
    order.insert(to, axis)
    return transpose(x, order)


def unsqueeze(x: Symbol, *axes: int) -> Symbol:
    """Insert axes of size 1 at these positions of the result, in ascending order; a negative one must be alone."""
    dims = list(x.shape)
    for axis in axes:
        dims.insert(axis % (len(dims) + 1), Dim(1))
    return emit("Unsqueeze", x, ints(x, axes), shape=_shape(dims))


def squeeze(x: Symbol, *axes: int) -> Symbol:
    """Remove axes of size 1."""
    removed = {axis % x.rank for axis in axes}
    return emit("Squeeze", x, ints(x, axes), shape=_shape([dim for i, dim in enumerate(x.shape) if i not in removed]))


# Arithmetic of Symbols and numbers, and polynomials, for functions in float64.


def number(like: Symbol, value: Symbol | float) -> Symbol:
    """Return a Symbol unchanged, or a number as a constant of the dtype of `like`."""
    return value if isinstance(value, Symbol) else const(like, value)


def _of_numbers(op_type: str, dtype: DType | None = None) -> Callable[[Symbol | float, Symbol | float], Symbol]:
    """Return an operator of two operands, at least one of them a Symbol, whose dtype numbers get."""

    def apply(x: Symbol | float, y: Symbol | float) -> Symbol:
        like = x if isinstance(x, Symbol) else y
        assert isinstance(like, Symbol)
        return emit(op_type, number(like, x), number(like, y), dtype=dtype)

    return apply


add, sub = _of_numbers("Add"), _of_numbers("Sub")
mul, div = _of_numbers("Mul"), _of_numbers("Div")
clamp_max, clamp_min = _of_numbers("Min"), _of_numbers("Max")
below, equals = _of_numbers("Less", DType.bool), _of_numbers("Equal", DType.bool)


def where_number(condition: Symbol, x: Symbol | float, y: Symbol | float) -> Symbol:
    """Return x where the condition is True, else y. One of them must be a Symbol."""
    like = x if isinstance(x, Symbol) else y
    assert isinstance(like, Symbol)
    return where(condition, number(like, x), number(like, y))


def polynomial(x: Symbol, coefficients: Sequence[float]) -> Symbol:
    """Evaluate a polynomial by Horner's rule."""
    result = add(mul(x, coefficients[0]), coefficients[1])
    for coefficient in coefficients[2:]:
        result = add(mul(result, x), coefficient)
    return result


def ratio(x: Symbol, k: float) -> Symbol:
    """Return (x - k) / (x + k)."""
    return emit("Div", sub(x, k), add(x, k))


def upper(x: Symbol) -> Symbol:
    """Return the upper 26 bits of a float64, whose square is exact (Veltkamp's splitting)."""
    spread = mul(x, 134217729.0)
    return emit("Sub", spread, emit("Sub", spread, x))


def square(x: Symbol) -> Symbol:
    """Return x * x."""
    return emit("Mul", x, x)


# Sums, products and exponentials of float64 with their rounding errors. Sums are by D. Knuth ("The Art of Computer
# Programming", volume 2, 4.2.2), products by T. Dekker ("A floating-point technique for extending the available
# precision", 1971).


def sum_of(x: Symbol, y: Symbol) -> tuple[Symbol, Symbol]:
    """Return x + y and its rounding error."""
    total = add(x, y)
    other = sub(total, x)
    return total, add(sub(x, sub(total, other)), sub(y, other))


def product_of(x: Symbol, y: Symbol) -> tuple[Symbol, Symbol]:
    """Return x * y and its rounding error, if no product is above 2^996 or below 2^-969."""
    result = mul(x, y)
    a = upper(x)
    c = a if x is y else upper(y)
    b, d = sub(x, a), sub(y, c)
    rest = add(add(sub(mul(a, c), result), mul(a, d)), mul(b, c))
    return result, add(rest, mul(b, d))


# 64 log(2), the first part rounded so that its sum with numbers below -512 is exact.
_SHIFT, _SHIFT_REST = 44.36141955583662, -1.193080751183554e-13


def exp_factors(x: Symbol, growth: Symbol | None = None) -> tuple[Symbol, Symbol]:
    """Return two factors of e^x * (1 + growth) for x <= 0, of which only the second makes the product subnormal.

    The second is a power of two, 1 for x from -600 on.
    """
    low = below(x, -600.0)
    power = emit("Exp", add(x, where_number(low, _SHIFT, const(x, 0.0))))
    wrong = where_number(low, _SHIFT_REST, const(x, 0.0))
    wrong = wrong if growth is None else add(wrong, growth)
    return add(power, mul(power, wrong)), where_number(low, 2.0**-64, const(x, 1.0))
