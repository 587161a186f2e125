"""NumPy's universal functions on Symbols: `np.exp(x)`, `np.add(array, x)`, and `array + x`, which calls that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphcore import array_api, ops
from graphcore.array_api._numpy.refusals import refuse_arguments, shown, unknown
from graphcore.ir.symbol import Symbol

# NumPy's names, and the functions that build the same. What is an operator of Python is that of Symbols.
_UFUNCS: dict[str, Callable[..., Any]] = {
    "absolute": ops.abs, "fabs": ops.abs, "negative": ops.negate, "positive": ops.positive, "sign": ops.sign,
    "rint": ops.rint, "floor": ops.floor, "ceil": ops.ceil, "trunc": ops.trunc, "conjugate": ops.positive,
    "exp": ops.exp, "exp2": ops.exp2, "expm1": ops.expm1, "log": ops.log, "log2": ops.log2, "log10": ops.log10,
    "log1p": ops.log1p, "cbrt": ops.cbrt, "sqrt": ops.sqrt, "square": ops.square, "reciprocal": ops.reciprocal,
    "sin": ops.sin, "cos": ops.cos, "tan": ops.tan, "arcsin": ops.asin, "arccos": ops.acos, "arctan": ops.atan,
    "sinh": ops.sinh, "cosh": ops.cosh, "tanh": ops.tanh, "arcsinh": ops.asinh, "arccosh": ops.acosh,
    "arctanh": ops.atanh, "arctan2": ops.atan2, "isfinite": ops.is_finite, "isinf": ops.is_inf, "isnan": ops.is_nan,
    "invert": ops.bitwise_not, "logical_not": ops.logical_not, "signbit": array_api.signbit,
    "add": ops.add, "subtract": ops.sub, "multiply": ops.mul, "divide": ops.div, "floor_divide": ops.floor_div,
    "remainder": ops.mod, "fmod": ops.fmod, "modf": ops.modf, "power": ops.pow, "matmul": ops.matmul,
    "divmod": ops.divmod, "maximum": ops.maximum,
    "minimum": ops.minimum, "bitwise_and": ops.bitwise_and, "bitwise_or": ops.bitwise_or,
    "bitwise_xor": ops.bitwise_xor, "left_shift": ops.left_shift, "right_shift": ops.right_shift,
    "logical_and": ops.logical_and, "logical_or": ops.logical_or, "logical_xor": ops.logical_xor,
    "equal": ops.equal, "not_equal": ops.not_equal, "less": ops.less, "less_equal": ops.less_equal,
    "greater": ops.greater, "greater_equal": ops.greater_equal, "hypot": array_api.hypot,
    "logaddexp": array_api.logaddexp, "copysign": array_api.copysign, "nextafter": array_api.nextafter,
    "vecdot": ops.vecdot,
}  # fmt: skip

_MIRRORED: Mapping[str, Callable[..., Any]] = {
    "equal": ops.equal, "not_equal": ops.not_equal, "less": ops.greater, "less_equal": ops.greater_equal,
    "greater": ops.less, "greater_equal": ops.less_equal,
}  # fmt: skip
"""Comparisons with the operands exchanged, as Python compares where the left one does not know how."""


def call_ufunc(ufunc: np.ufunc, how: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Build what a ufunc of NumPy computes: see `Symbol.__array_ufunc__`."""
    name = ufunc.__name__
    if how != "__call__":
        raise unknown(f"np.{name}.{how}", shown(inputs))
    function = _UFUNCS.get(name)
    if function is None:
        raise unknown(f"np.{name}", shown(inputs))
    if options:
        refuse_arguments(f"np.{name}", options, shown(inputs))
    if name in _MIRRORED and not isinstance(inputs[0], Symbol):
        return _MIRRORED[name](inputs[1], inputs[0])
    return function(*inputs)
