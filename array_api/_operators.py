"""The operators of Arrays, from tables: each is the function of the namespace.

Symbols, Arrays and scalars so mix in all orders. `Array` declares the types of what is attached here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphcore.array_api import _elementwise, _linear_algebra, _manipulation, _statistics
from graphcore.array_api._eager.array import Array
from graphcore.array_api._indexing import setitem, subscript
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol

_UNARY = {
    "abs": _elementwise.abs,
    "invert": _elementwise.bitwise_invert,
    "neg": _elementwise.negative,
    "pos": _elementwise.positive,
}

_ARITHMETIC = {
    "add": _elementwise.add,
    "and": _elementwise.bitwise_and,
    "floordiv": _elementwise.floor_divide,
    "lshift": _elementwise.bitwise_left_shift,
    "matmul": _linear_algebra.matmul,
    "mod": _elementwise.remainder,
    "mul": _elementwise.multiply,
    "or": _elementwise.bitwise_or,
    "pow": _elementwise.pow,
    "rshift": _elementwise.bitwise_right_shift,
    "sub": _elementwise.subtract,
    "truediv": _elementwise.divide,
    "xor": _elementwise.bitwise_xor,
}
"""Those with reflected and in-place forms."""

_COMPARISONS = {
    "eq": _elementwise.equal,
    "ge": _elementwise.greater_equal,
    "gt": _elementwise.greater,
    "le": _elementwise.less_equal,
    "lt": _elementwise.less,
    "ne": _elementwise.not_equal,
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
        _attach_method(f"__r{name}__", _reflected(binary, operands))
        _attach_method(f"__i{name}__", _in_place(binary, operands))
    _attach_method("__contains__", _contains)
    _attach("__getitem__", subscript)
    _attach("__setitem__", setitem)
    _attach("mT", property(_manipulation.matrix_transpose))


def _attach(name: str, member: object) -> None:
    setattr(Array, name, member)


def _attach_method(name: str, method: _Function) -> None:
    method.__name__, method.__qualname__ = name, f"{Array.__name__}.{name}"
    _attach(name, method)


def _forward(function: _Function, operands: tuple[type, ...]) -> _Function:
    def call(self: Array, other: Any, /) -> Any:
        return function(self, other) if isinstance(other, operands) else NotImplemented

    return call


def _reflected(function: _Function, operands: tuple[type, ...]) -> _Function:
    def call(self: Array, other: Any, /) -> Any:
        return function(other, self) if isinstance(other, operands) else NotImplemented

    return call


def _in_place(function: _Function, operands: tuple[type, ...]) -> _Function:
    """Return a method that puts the result into the Array, whose dtype and shape stay. With a Symbol it is a Symbol."""
    name = function.__name__

    def call(self: Array, other: Any, /) -> Any:
        if not isinstance(other, operands):
            return NotImplemented
        made = function(self, other)
        if type(made) is not Array:
            return made
        if made.dtype is not self.dtype:
            raise DTypeError(
                f"{name}: in place, {self.dtype} would become {made.dtype}",
                operands={"x": self, "other": other},
                help="write x = x + y instead of x += y, or cast the other operand",
            )
        if made.shape != self.shape:
            raise ShapeError(
                f"{name}: in place, {list(self.shape)} would become {list(made.shape)}",
                operands={"x": self, "other": other},
                help="write x = x + y instead of x += y",
            )
        self._data = made._data
        return self

    return call


def _contains(self: Array, item: object, /) -> bool:
    return bool(_statistics.any(_elementwise.equal(self, item)))


_attach_all()
