"""Products of matrices, and recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.errors import ShapeError
from graphcore.operators.shapes.call import UNKNOWN, Call, Rule
from graphcore.operators.shapes.elementwise import joint_dims
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape


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
