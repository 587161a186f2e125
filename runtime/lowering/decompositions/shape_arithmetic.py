"""Numbers that are constants when a graph is lowered, or computed at run time: one notation for both.

A `Number` is a NumPy array, or a Symbol if it depends on the sizes of the inputs. Functions of arrays return arrays, so
that tables of indices and weights of static sizes become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

Array: TypeAlias = "np.ndarray[Any, Any]"
Number: TypeAlias = "Array | Symbol"

_NUMPY: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": np.mod,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.round,
    "Abs": np.abs,
    "Less": np.less,
    "Equal": np.equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Not": np.logical_not,
    "Where": np.where,
}
_TESTS = frozenset({"Less", "Equal", "And", "Or", "Not"})


def symbol(b: Builder, number: Number) -> Symbol:
    """Return a number as a Symbol."""
    if isinstance(number, Symbol):
        return number
    return b.constant(np.ascontiguousarray(number).reshape(number.shape), DType.of(number.dtype))


def calculate(b: Builder, op: str, *numbers: Number | int | float) -> Number:
    """Return an element-wise result; Python numbers take the others' dtype. `Div` of integers is floor division."""
    typed = [n for n in numbers if not isinstance(n, (int, float))]
    dtype = DType.of(typed[-1].dtype)
    operands: list[Number] = [np.asarray(n, dtype.numpy) if isinstance(n, (int, float)) else n for n in numbers]
    arrays = [n for n in operands if not isinstance(n, Symbol)]
    if len(arrays) == len(operands):
        if op == "Div":
            return np.asarray(arrays[0] // arrays[1] if dtype.is_integer else arrays[0] / arrays[1])
        return np.asarray(_NUMPY[op](*arrays))
    symbols = [symbol(b, n) for n in operands]
    if op == "Div" and dtype.is_integer:
        left, right = symbols
        return b.native("Div", b.native("Sub", left, b.native("Mod", left, right)), right)
    return b.op(op, *symbols, dtype=DType.bool if op in _TESTS else dtype)


def cast(b: Builder, number: Number, dtype: DType) -> Number:
    """Return a number in another dtype that represents it."""
    if isinstance(number, Symbol):
        return b.cast(number, dtype)
    return number.astype(dtype.numpy)


def reshaped(b: Builder, number: Number, shape: Sequence[int]) -> Number:
    """Reshape a vector to dims of 1 and one of -1, so that it broadcasts along an axis."""
    if not isinstance(number, Symbol):
        return number.reshape(shape)
    return b.native("Reshape", number, b.vector(shape))


def length(b: Builder, x: Symbol, axis: int) -> Number:
    """Return the size of an axis, an int64 scalar."""
    dim = x.shape[axis]
    if dim.is_static:
        return np.asarray(int(dim), np.int64)
    axis %= x.rank
    return b.native("Squeeze", b.native("Shape", x, start=axis, end=axis + 1), b.vector([0]))


def shape_of(b: Builder, x: Symbol) -> Symbol:
    """Return the sizes of all axes, an int64 vector."""
    return b.op("Shape", x)


_MAX_COUNTED = 1 << 20
"""The maximum length of a constant count: a file of 200 bytes may request 2^31 elements."""


def count_up(b: Builder, count: Number) -> Number:
    """Return 0, 1, ... count - 1."""
    if not isinstance(count, Symbol) and count <= _MAX_COUNTED:
        return np.arange(int(count), dtype=np.int64)
    return b.native("Range", b.scalar(0, DType.int64), symbol(b, count), b.scalar(1, DType.int64))


def places(b: Builder, x: Symbol, axis: int) -> Symbol:
    """Return 0, 1, ... along an axis as int64, in a shape that broadcasts with `x`."""
    return symbol(b, reshaped(b, count_up(b, length(b, x, axis)), [-1, *[1] * (x.rank - 1 - axis)]))


def vector(b: Builder, numbers: Sequence[Number | int]) -> Symbol:
    """Return scalars as an int64 vector: the target of a Reshape, the pads of a Pad."""
    scalars = [np.asarray(n, np.int64) if isinstance(n, int) else n for n in numbers]
    if not any(isinstance(n, Symbol) for n in scalars):
        return b.vector([int(n) for n in scalars])
    return b.native("Concat", *(symbol(b, reshaped(b, n, [1])) for n in scalars), axis=0)


def lengths(b: Builder, x: Symbol, axes: Sequence[int]) -> list[Number]:
    return [length(b, x, axis) for axis in axes]


def dim_of(number: Number) -> Dim:
    """Return the dim of an axis of this size, dynamic if it is known at run time only."""
    return Dim.dynamic() if isinstance(number, Symbol) else Dim(int(number))


def dims(numbers: Sequence[Number | int]) -> Shape:
    return _shape([Dim(n) if isinstance(n, int) else dim_of(n) for n in numbers])


def reshape(b: Builder, x: Symbol, sizes: Sequence[Number | int]) -> Symbol:
    """Reshape a tensor to sizes, without -1."""
    return b.op("Reshape", x, vector(b, sizes), shape=dims(sizes), allowzero=1)


def transpose(b: Builder, x: Symbol, order: Sequence[int]) -> Symbol:
    if list(order) == list(range(x.rank)):
        return x
    return b.op("Transpose", x, perm=list(order))


def times(b: Builder, numbers: Sequence[Number | int]) -> Number:
    """Return the product."""
    product: Number = np.asarray(1, np.int64)
    for number in numbers:
        product = calculate(b, "Mul", product, number)
    return product


def elements(b: Builder, x: Symbol, count: int | None = None) -> list[Number]:
    """Return the scalars of a vector. count: their number, if it follows from the operator; default: the shape."""
    array = b.array_of(x)
    if array is not None:
        return [np.asarray(v, np.int64) for v in array]
    zero = b.vector([0])
    count = int(x.shape[0]) if count is None else count
    parts = [b.op("Slice", x, b.vector([i]), b.vector([i + 1]), zero, shape=_shape([Dim(1)])) for i in range(count)]
    return [b.native("Squeeze", part, zero) for part in parts]
