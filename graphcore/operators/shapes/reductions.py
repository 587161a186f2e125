"""Reductions, norms, softmax, products of matrices and recurrent layers: what goes along axes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from graphcore.errors import ShapeError
from graphcore.operators.shapes.call import UNKNOWN, Call, Rule, axis_of, joint_dims
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape

_ONE = Dim(1)


def reduced_shape(shape: Sequence[Dim], axes: Collection[int], keepdims: bool) -> Shape:
    """Return a shape whose axes are reduced: of length 1, or gone."""
    if keepdims:
        return _shape([_ONE if i in axes else d for i, d in enumerate(shape)])
    return _shape([d for i, d in enumerate(shape) if i not in axes])


def reduced(call: Call) -> Shape:
    """Reductions along the axes that operand 1 or an attribute of older opsets names, or along all."""
    dims, keepdims = call.dims(0), bool(call.attributes.get("keepdims", 1))
    if dims is None:
        return Shape.unknown()
    axes = call.value(1) if call.has(1) else tuple(call.attributes.get("axes", ()))
    count = None if not isinstance(axes, tuple) or None in axes else len(axes)
    if count is None:
        if keepdims:
            return _shape([UNKNOWN] * len(dims))
        given = call.dims(1)
        named = int(given[0]) if given and given[0].is_static else 0
        return _shape([UNKNOWN] * (len(dims) - named)) if 0 < named <= len(dims) else Shape.unknown()
    if not count and call.attributes.get("noop_with_empty_axes", 0):
        return _shape(dims)
    chosen = {axis_of(int(axis), len(dims)) for axis in axes} if count else {*range(len(dims))}  # type: ignore[union-attr, arg-type]
    return reduced_shape(dims, chosen, keepdims)


def position(call: Call) -> Shape:
    """ArgMax and ArgMin."""
    dims, attributes = call.dims(0), call.attributes
    if dims is None:
        return Shape.unknown()
    return reduced_shape(dims, [axis_of(attributes.get("axis", 0), len(dims))], bool(attributes.get("keepdims", 1)))


def along_axis(call: Call) -> Shape | None:
    """Norms: the shape of operand 0, which has the axis that an attribute names."""
    dims, axis = call.dims(0), call.attributes.get("axis")
    if dims is not None and axis is not None:
        axis_of(axis, len(dims))
    return call.shapes[0]


def softmax(call: Call) -> Shape | None:
    """Softmax, LogSoftmax and Hardmax. The axis that opset 11 takes where none is named is not the last one."""
    dims = call.dims(0)
    if dims is not None and 11 <= call.since < 13:
        axis_of(call.attributes.get("axis", 1), len(dims))
    return along_axis(call)


def from_axis(call: Call) -> list[Shape]:
    """LayerNormalization: its mean and deviation have axes of length 1 from the axis on."""
    dims = call.dims(0)
    if dims is None:
        return [Shape.unknown()] * call.count
    axis = axis_of(call.attributes.get("axis", -1), len(dims))
    return [_shape(dims), *[_shape([*dims[:axis], *[_ONE] * (len(dims) - axis)])] * (call.count - 1)]


def by_channels(call: Call) -> list[Shape]:
    """BatchNormalization: what it keeps has a number for each channel."""
    given = [(call.dims(0) or [])[1:2], *[call.dims(i) or [] for i in range(1, 5)]]
    sizes = [dim for own in given for dim in own if not dim.is_dynamic]
    numbers = {int(dim) for dim in sizes if dim.is_static}
    if len(numbers) > 1 and call.since >= 14:  # before 9, there may be one for each feature
        raise ShapeError(f"there are {sorted(numbers)} channels", help="give one number for each channel")
    channels = Dim(min(numbers)) if numbers else next(iter(sizes), UNKNOWN)
    assert call.shapes[0] is not None
    return [call.shapes[0], *[_shape([channels])] * (call.count - 1)]


# Products of matrices, and recurrent layers.


def product_shape(batch: Sequence[Dim], left: Sequence[Dim], right: Sequence[Dim]) -> Shape:
    """Return the shape of a product of stacks of matrices, or of vectors, whose axis goes. batch: of both stacks."""
    return _shape([*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ())])


def matmul(right: int = 1) -> Rule:
    """MatMul and its like. right: the position of the second matrix."""

    def rule(call: Call) -> Shape:
        a, b = call.dims(0), call.dims(right)
        if a is None or b is None:
            return Shape.unknown()
        if not a or not b:
            raise ShapeError("an operand is a scalar", help="multiply by Mul")
        inner, other = a[-1], b[-2 if len(b) > 1 else 0]
        if inner.is_static and other.is_static and inner is not other:
            raise ShapeError(f"inner dimensions differ: {inner} and {other}", help="transpose an operand")
        return product_shape(joint_dims([a[:-2], b[:-2]]), a, b)

    return rule


def gemm(call: Call) -> Shape:
    """Gemm."""
    a, b, attributes = call.dims(0), call.dims(1), call.attributes
    for dims in (a, b):
        if dims is not None and len(dims) != 2:
            raise ShapeError(f"an operand has {len(dims)} axes", help="give matrices")
    rows = UNKNOWN if a is None else a[-1 if attributes.get("transA") else 0]
    return _shape([rows, UNKNOWN if b is None else b[0 if attributes.get("transB") else -1]])


def recurrent(call: Call) -> list[Shape]:
    """RNN, GRU and LSTM: all states, and the last ones."""
    x, attributes = call.dims(0), call.attributes
    if x is not None and len(x) != 3:
        raise ShapeError(f"the operand has {len(x)} axes", help="give [length, batch, size]")
    hidden = Dim(attributes["hidden_size"]) if attributes.get("hidden_size", 0) > 0 else UNKNOWN
    ways = Dim(2 if attributes.get("direction") == "bidirectional" else 1)
    length, batch = (UNKNOWN, UNKNOWN) if x is None else x[:2]
    if attributes.get("layout"):
        length, batch = batch, length
        return [_shape([batch, length, ways, hidden]), *[_shape([batch, ways, hidden])] * 2][: call.count]
    return [_shape([length, ways, batch, hidden]), *[_shape([ways, batch, hidden])] * 2][: call.count]
