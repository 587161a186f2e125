"""Numbers that are known when a graph is lowered, or else computed when it runs: one way to write both.

A `Number` is a NumPy array, or a Symbol where it depends on the sizes of what is fed. Functions of arrays alone give
arrays, so that tables of indices and weights of static sizes become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

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


def symbol(on: Legaliser, number: Number) -> Symbol:
    """A number as a Symbol."""
    if isinstance(number, Symbol):
        return number
    return on.graph._constant(np.ascontiguousarray(number).reshape(number.shape), DType.of(number.dtype))


def calculate(on: Legaliser, op: str, *numbers: Number | int | float) -> Number:
    """An element-wise operator; Python numbers take the dtype of the others. `Div` of integers is a floor division."""
    given = [n for n in numbers if not isinstance(n, (int, float))]
    own = DType.of(given[-1].dtype)
    operands: list[Number] = [np.asarray(n, own.numpy) if isinstance(n, (int, float)) else n for n in numbers]
    arrays = [n for n in operands if not isinstance(n, Symbol)]
    if len(arrays) == len(operands):
        if op == "Div":
            return np.asarray(arrays[0] // arrays[1] if own.is_integer else arrays[0] / arrays[1])
        return np.asarray(_NUMPY[op](*arrays))
    symbols = [symbol(on, n) for n in operands]
    if op == "Div" and own.is_integer:
        left, right = symbols
        return on.native("Div", on.native("Sub", left, on.native("Mod", left, right)), right)
    return on.op(op, *symbols, dtype=DType.bool if op in _TESTS else own)


def cast(on: Legaliser, number: Number, dtype: DType) -> Number:
    """As another dtype that holds it."""
    if isinstance(number, Symbol):
        return on.casts.cast(number, number.dtype, dtype)
    return number.astype(dtype.numpy)


def reshaped(on: Legaliser, number: Number, shape: Sequence[int]) -> Number:
    """With dims of 1 and one of -1: a vector brought to where it broadcasts."""
    if not isinstance(number, Symbol):
        return number.reshape(shape)
    size = number.shape.size
    return on.native("Reshape", number, on.ints(shape), shape=_shape([size if n == -1 else Dim(n) for n in shape]))


def length(on: Legaliser, x: Symbol, axis: int) -> Number:
    """The size of an axis, an int64 scalar."""
    dim = x.shape[axis]
    if dim.is_static:
        return np.asarray(int(dim), np.int64)
    axis %= x.rank
    size = on.native("Shape", x, dtype=DType.int64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)
    return on.native("Squeeze", size, on.ints([0]), shape=_shape([]))


def count_up(on: Legaliser, count: Number) -> Number:
    """0, 1, ... count - 1."""
    if not isinstance(count, Symbol):
        return np.arange(int(count), dtype=np.int64)
    zero, one = on.const(0, DType.int64), on.const(1, DType.int64)
    return on.native("Range", zero, count, one, dtype=DType.int64, shape=_shape([Dim.dynamic()]))


def vector(on: Legaliser, numbers: Sequence[Number | int]) -> Symbol:
    """Scalars as an int64 vector: the target of a Reshape, the pads of a Pad."""
    held = [np.asarray(n, np.int64) if isinstance(n, int) else n for n in numbers]
    if not any(isinstance(n, Symbol) for n in held):
        return on.ints([int(n) for n in held])
    parts = [reshaped(on, n, [1]) for n in held]
    shape = _shape([Dim(len(parts))])
    return on.native("Concat", *(symbol(on, p) for p in parts), dtype=DType.int64, shape=shape, axis=0)


def lengths(on: Legaliser, x: Symbol, axes: Sequence[int]) -> list[Number]:
    return [length(on, x, axis) for axis in axes]


def dim_of(number: Number) -> Dim:
    """The dim of an axis of this size, dynamic where only the running graph knows."""
    return Dim.dynamic() if isinstance(number, Symbol) else Dim(int(number))


def dims(numbers: Sequence[Number | int]) -> Shape:
    return _shape([Dim(n) if isinstance(n, int) else dim_of(n) for n in numbers])


def reshape(on: Legaliser, x: Symbol, sizes: Sequence[Number | int]) -> Symbol:
    """To a shape of sizes, all told."""
    return on.op("Reshape", x, vector(on, sizes), shape=dims(sizes), allowzero=1)


def transpose(on: Legaliser, x: Symbol, order: Sequence[int]) -> Symbol:
    if list(order) == list(range(x.rank)):
        return x
    return on.op("Transpose", x, shape=_shape([x.shape[a] for a in order]), perm=list(order))


def times(on: Legaliser, numbers: Sequence[Number | int]) -> Number:
    """The product."""
    made: Number = np.asarray(1, np.int64)
    for number in numbers:
        made = calculate(on, "Mul", made, number)
    return made


def elements(on: Legaliser, x: Symbol) -> list[Number]:
    """The scalars of a vector of static size."""
    array = on.known(x)
    if array is not None:
        return [np.asarray(v, np.int64) for v in array]
    zero = on.ints([0])
    count = int(x.shape[0])
    parts = [on.op("Slice", x, on.ints([i]), on.ints([i + 1]), zero, shape=_shape([Dim(1)])) for i in range(count)]
    return [on.native("Squeeze", part, zero, shape=_shape([])) for part in parts]
