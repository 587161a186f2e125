"""Indexing: `x[key]` of Arrays, `take` and `take_along_axis`; and the operators of Arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphcore import ops
from graphcore.array_api import _elementwise, _linear_algebra, _manipulation, _searching
from graphcore.array_api._eager import Array, Tensor, as_arrays, function, is_scalar, join_dtypes
from graphcore.array_api._manipulation import check_axis
from graphcore.arrays.eager_array import OutOfBounds
from graphcore.build.shapes import same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

__all__ = ["take", "take_along_axis"]


@function
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the slices of x at indices along an axis.

    Args:
        x: Any dtype.
        indices: Integers of any shape; negative ones count from the end.
        axis: None for the only axis of a vector.

    Raises:
        DTypeError: For indices that are not integers.
        ShapeError: For an invalid axis.
    """
    return ops.gather(x, indices, check_axis("take", axis, x))


@function
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the element of x for each of `indices` along an axis.

    Args:
        x: Any dtype.
        indices: Integers of the same rank, whose other dims broadcast with those of x.

    Raises:
        DTypeError: For indices that are not integers.
        ShapeError: For shapes that do not broadcast.
    """
    return ops.take_along_axis(x, indices, axis)


@function
def getitem(x: Tensor, key: Any) -> Tensor:
    """Return x[key] of a Symbol. Arrays use it too."""
    if isinstance(key, Symbol) and key.dtype is DType.bool and not key.rank:
        # A bool scalar selects 0 or 1 positions along a new axis.
        return ops.unsqueeze(x, 0)[ops.unsqueeze(key, 0)]
    if isinstance(key, Symbol) and key.dtype is DType.bool and _chooses_nothing(x, key):
        return ops.reshape(x[0:0], [0, *x.shape[key.rank :]])
    return x[key]


def _chooses_nothing(x: Symbol, mask: Symbol) -> bool:
    """Return True if a mask has axes of length 0, and fits along the others."""
    if mask.rank > x.rank or not any(dim == 0 for dim in mask.shape):
        return False
    return all(dim == 0 or same_dim(dim, size) for dim, size in zip(mask.shape, x.shape, strict=False))


def subscript(x: Array, key: Any, /) -> Array:
    """Return x[key] for an Array x. Raises `OutOfBounds` for invalid indices."""
    index = key if type(key) is tuple else (key,)
    if len(index) == x.ndim and all(type(item) is int for item in index):
        for axis, (position, size) in enumerate(zip(index, x.shape, strict=True)):
            if not -size <= position < size:
                raise OutOfBounds(
                    f"getitem: index {position} is out of bounds for axis {axis}, which has {size} elements",
                    help=f"use an index from {-size} to {size - 1}" if size else "the axis is empty: use a slice",
                )
        return Array(x._data[index])
    try:
        return getitem(x, key)  # type: ignore[no-any-return]
    except ShapeError as error:
        raise OutOfBounds(error.summary, operands={"x": x}, help=error.help) from None


def setitem(x: Array, key: Any, value: Any, /) -> None:
    """Assign x[key] = value in the memory of an Array x.

    value: a scalar or an array whose dtype promotes to that of x; not a Symbol. Raises `PromotionError` and
    `DTypeError` for others, `OutOfBounds` for an invalid key and for shapes that do not fit.
    """
    if isinstance(value, Symbol):
        raise DTypeError("setitem: a Symbol has no values to assign to an Array", help="use where(mask, value, x)")
    if is_scalar(value):
        value = as_arrays("setitem", (x, value))[1]
    if not isinstance(value, (Array, np.ndarray)):
        raise DTypeError(
            f"setitem: value must be an array or a scalar, got {type(value).__name__}", help="convert it: asarray"
        )
    if join_dtypes("setitem", (x, value)) is not x.dtype:
        raise DTypeError(f"setitem: values of {value.dtype} do not promote to {x.dtype}", help="cast them: astype")
    try:
        x._data[_numpy_key(key)] = np.asarray(value)
    except (IndexError, ValueError) as error:
        raise OutOfBounds(f"setitem: {error}", operands={"x": x}, help="give a key and values that fit") from None


def _numpy_key(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(_numpy_key(item) for item in key)
    return key._data if isinstance(key, Array) else key


# The operators of Arrays: each is a function of the namespace, so that Symbols, Arrays and scalars can be operands in
# any order. `Array` declares the types of what is attached here.

_OF = vars(_elementwise)

_UNARY = {
    "abs": _OF["abs"],
    "invert": _OF["bitwise_invert"],
    "neg": _OF["negative"],
    "pos": _OF["positive"],
}

_ARITHMETIC = {
    "add": _OF["add"],
    "and": _OF["bitwise_and"],
    "floordiv": _OF["floor_divide"],
    "lshift": _OF["bitwise_left_shift"],
    "matmul": _linear_algebra.matmul,
    "mod": _OF["remainder"],
    "mul": _OF["multiply"],
    "or": _OF["bitwise_or"],
    "pow": _OF["pow"],
    "rshift": _OF["bitwise_right_shift"],
    "sub": _OF["subtract"],
    "truediv": _OF["divide"],
    "xor": _OF["bitwise_xor"],
}
"""Operators with reflected and in-place forms."""

_COMPARISONS = {
    "eq": _OF["equal"],
    "ge": _OF["greater_equal"],
    "gt": _OF["greater"],
    "le": _OF["less_equal"],
    "lt": _OF["less"],
    "ne": _OF["not_equal"],
}

_Function = Callable[[Any, Any], Any]

_OPERANDS = (Array, Symbol, np.ndarray, np.generic, bool, int, float, complex)
_MATRICES = (Array, Symbol, np.ndarray)


def _attach_all() -> None:
    for name, unary in _UNARY.items():
        _attach(f"__{name}__", unary)
    for name, binary in {**_ARITHMETIC, **_COMPARISONS}.items():
        _attach_method(f"__{name}__", _forward(binary, _MATRICES if name == "matmul" else _OPERANDS))
    for name, binary in _ARITHMETIC.items():
        operands = _MATRICES if name == "matmul" else _OPERANDS
        _attach_method(f"__r{name}__", _forward(binary, operands, swapped=True))
        _attach_method(f"__i{name}__", _in_place(binary, operands))
    _attach_method("__contains__", lambda self, item, /: bool(_searching.any(_OF["equal"](self, item))))
    _attach("__getitem__", subscript)
    _attach("__setitem__", setitem)
    _attach("mT", property(_manipulation.matrix_transpose))


def _attach(name: str, member: object) -> None:
    setattr(Array, name, member)


def _attach_method(name: str, method: _Function) -> None:
    method.__name__, method.__qualname__ = name, f"{Array.__name__}.{name}"
    _attach(name, method)


def _forward(function: _Function, operands: tuple[type, ...], swapped: bool = False) -> _Function:
    def call(self: Array, other: Any, /) -> Any:
        if not isinstance(other, operands):
            return NotImplemented
        return function(other, self) if swapped else function(self, other)

    return call


def _in_place(function: _Function, operands: tuple[type, ...]) -> _Function:
    """Return a method that stores the result in the Array, whose dtype and shape do not change.

    With a Symbol as operand the result is a Symbol.
    """
    name = function.__name__

    def call(self: Array, other: Any, /) -> Any:
        if not isinstance(other, operands):
            return NotImplemented
        result = function(self, other)
        if type(result) is not Array:
            return result
        if result.dtype is not self.dtype:
            raise DTypeError(
                f"{name}: an in-place operation cannot change the dtype {self.dtype} to {result.dtype}",
                operands={"x": self, "other": other},
                help="write x = x + y instead of x += y, or cast the other operand",
            )
        if result.shape != self.shape:
            raise ShapeError(
                f"{name}: an in-place operation cannot change the shape {list(self.shape)} to {list(result.shape)}",
                operands={"x": self, "other": other},
                help="write x = x + y instead of x += y",
            )
        self._data = result._data
        return self

    return call


_attach_all()
