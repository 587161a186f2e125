"""NumPy functions on Symbols: `np.mean(x, axis=0)`, `np.concatenate([x, y])`. They have NumPy's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphcore import array_api, ops
from graphcore import array_api as xp
from graphcore.array_api._eager import PROMOTION
from graphcore.array_api._refusals import is_default, refuse_arguments, symbols_of, unsupported_error
from graphcore.build import operands
from graphcore.errors import SymbolError
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

Axis: TypeAlias = Any
_Function: TypeAlias = Callable[..., Any]

_FUNCTIONS: dict[Any, _Function] = {}
"""Implementations by NumPy function."""


def _implements(*names: str) -> Callable[[_Function], _Function]:
    """Register an implementation of NumPy functions; older releases of NumPy lack some."""

    def register(function: _Function) -> _Function:
        for name in names:
            if hasattr(np, name):
                _FUNCTIONS[getattr(np, name)] = function
        return function

    return register


def call_function(function: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Build the ops of a NumPy function: see `Symbol.__array_function__`."""
    folder = str(getattr(function, "__module__", "numpy")).removeprefix("numpy").strip(".")
    label = ".".join(part for part in ("np", folder, function.__name__) if part and not part.startswith("_"))
    symbols = symbols_of((*arguments, *named.values()))
    implementation = _FUNCTIONS.get(function)
    if implementation is None:
        raise unsupported_error(label, symbols)
    parameters = inspect.signature(implementation).parameters
    refuse_arguments(label, {n: v for n, v in named.items() if n not in parameters}, symbols)
    accepted = {n: v for n, v in named.items() if n in parameters and not (is_default(n, v) and v is None)}
    try:
        bound = inspect.signature(implementation).bind(*arguments, **accepted)
    except TypeError as error:
        raise SymbolError(
            f"{label}: with Symbols, {error}", operands=symbols, help=f"the parameters are ({', '.join(parameters)})"
        ) from None
    with operands.graph_of(label, symbols.values()):  # arrays become constants of this graph
        return implementation(*bound.args, **bound.kwargs)


def _symbol(a: Any) -> Symbol:
    return operands.operand("numpy", a, "a")


def _dtype(dtype: Any) -> DType | None:
    return None if dtype is None else PROMOTION.dtype_of(dtype)


def _as(a: Any, dtype: Any) -> Any:
    return a if dtype is None else ops.cast(a, dtype)


# Reductions


def _register_reduction(name: str, function: _Function) -> None:
    def reduced(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
        return function(a, axis=axis, keepdims=keepdims)

    _implements(*name.split())(reduced)


def _register_sum(name: str, function: _Function) -> None:
    def summed(a: Any, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
        return function(a, axis=axis, dtype=_dtype(dtype), keepdims=keepdims)

    _implements(name)(summed)


_register_sum("sum", xp.sum)
_register_sum("prod", xp.prod)


@_implements("mean")
def _mean(a: Any, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return xp.mean(_as(a, dtype), axis=axis, keepdims=keepdims)


_register_reduction("median", ops.median)


@_implements("quantile")
def _quantile(a: Any, q: Any, axis: Axis = None, *, method: Any = "linear", keepdims: bool = False) -> Any:
    return ops.quantile(a, q, axis=axis, keepdims=keepdims, method=method)


_register_reduction("max amax", xp.max)
_register_reduction("min amin", xp.min)
_register_reduction("all", xp.all)
_register_reduction("any", xp.any)
_register_reduction("argmax", xp.argmax)
_register_reduction("argmin", xp.argmin)
_register_reduction("count_nonzero", xp.count_nonzero)


def _register_deviation(name: str, function: _Function) -> None:
    def deviation(
        a: Any, axis: Axis = None, dtype: Any = None, *, ddof: float = 0, correction: float = 0, keepdims: bool = False
    ) -> Any:
        return function(_as(a, dtype), axis=axis, correction=ddof or correction, keepdims=keepdims)

    _implements(name)(deviation)


_register_deviation("var", xp.var)
_register_deviation("std", xp.std)


def _register_accumulation(name: str, function: _Function) -> None:
    def accumulated(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
        x = _symbol(a)
        return function(ops.reshape(x, -1) if axis is None else x, axis=axis, dtype=_dtype(dtype))

    _implements(name)(accumulated)


_register_accumulation("cumsum", xp.cumulative_sum)
_register_accumulation("cumprod", xp.cumulative_prod)


# Shapes


@_implements("shape")
def _shape(a: Any) -> Any:
    return a.shape


@_implements("ndim")
def _ndim(a: Any) -> int:
    return _symbol(a).rank


@_implements("size")
def _size(a: Any) -> int:
    size = _symbol(a).shape.size
    if not size.is_static:
        raise unsupported_error("np.size", symbols_of((a,)))
    return int(size)


@_implements("copy")
def _copy(a: Any) -> Any:
    return a


@_implements("reshape")
def _reshape(a: Any, shape: Any) -> Any:
    return ops.reshape(a, shape)


@_implements("ravel")
def _ravel(a: Any) -> Any:
    return ops.reshape(a, -1)


@_implements("transpose", "permute_dims")
def _transpose(a: Any, axes: Sequence[int] | None = None) -> Any:
    return xp.permute_dims(a, tuple(reversed(range(_symbol(a).rank))) if axes is None else tuple(axes))


@_implements("matrix_transpose")
def _matrix_transpose(x: Any) -> Any:
    return xp.matrix_transpose(x)


@_implements("swapaxes")
def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    return ops.swapaxes(a, axis1, axis2)


@_implements("moveaxis")
def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    return xp.moveaxis(a, source, destination)


@_implements("squeeze")
def _squeeze(a: Any, axis: Axis = None) -> Any:
    x = _symbol(a)
    ones = tuple(i for i, dim in enumerate(x.shape) if dim == 1) if axis is None else axis
    return x if ones == () else ops.squeeze(x, ones)


@_implements("expand_dims")
def _expand_dims(a: Any, axis: Any) -> Any:
    return xp.expand_dims(a, axis)


@_implements("broadcast_to")
def _broadcast_to(array: Any, shape: Any) -> Any:
    return xp.broadcast_to(array, shape)


@_implements("flip")
def _flip(m: Any, axis: Axis = None) -> Any:
    return xp.flip(m, axis=axis)


@_implements("roll")
def _roll(a: Any, shift: Any, axis: Axis = None) -> Any:
    return xp.roll(a, shift, axis=axis)


@_implements("repeat")
def _repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    return xp.repeat(a, repeats, axis=axis)


@_implements("tile")
def _tile(A: Any, reps: Any) -> Any:
    return xp.tile(A, (reps,) if isinstance(reps, int) else tuple(reps))


@_implements("tril")
def _tril(m: Any, k: int = 0) -> Any:
    return xp.tril(m, k=k)


@_implements("triu")
def _triu(m: Any, k: int = 0) -> Any:
    return xp.triu(m, k=k)


# Several arrays


@_implements("concatenate", "concat")
def _concatenate(arrays: Any, /, axis: int | None = 0) -> Any:
    return xp.concat(list(arrays), axis=axis)


@_implements("stack")
def _stack(arrays: Any, axis: int = 0) -> Any:
    return xp.stack(list(arrays), axis=axis)


@_implements("vstack")
def _vstack(tup: Any) -> Any:
    return xp.concat([ops.unsqueeze(a, 0) if np.ndim(a) == 1 else a for a in tup], axis=0)


@_implements("hstack")
def _hstack(tup: Any) -> Any:
    return xp.concat(list(tup), axis=0 if np.ndim(tup[0]) == 1 else 1)


# Elements


@_implements("where")
def _where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    return xp.nonzero(condition) if x is None and y is None else xp.where(condition, x, y)


@_implements("clip")
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    return xp.clip(a, a_min if min is None else min, a_max if max is None else max)


@_implements("take")
def _take(a: Any, indices: Any, axis: int | None = None) -> Any:
    return xp.take(ops.reshape(a, -1) if axis is None else a, _indices(indices), axis=axis or 0)


@_implements("take_along_axis")
def _take_along_axis(arr: Any, indices: Any, axis: int = -1) -> Any:
    return xp.take_along_axis(arr, indices, axis=axis)


def _indices(indices: Any) -> Any:
    return np.asarray(indices) if isinstance(indices, (int, list, tuple)) else indices


@_implements("sort")
def _sort(a: Any, axis: int | None = -1) -> Any:
    return xp.sort(ops.reshape(a, -1) if axis is None else a, axis=-1 if axis is None else axis)


@_implements("argsort")
def _argsort(a: Any, axis: int | None = -1) -> Any:
    return xp.argsort(ops.reshape(a, -1) if axis is None else a, axis=-1 if axis is None else axis)


@_implements("nonzero")
def _nonzero(a: Any) -> Any:
    return xp.nonzero(a)


@_implements("diff")
def _diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    return xp.diff(a, axis=axis, n=n)


@_implements("round", "around")
def _round(a: Any, decimals: int = 0) -> Any:
    return round(_symbol(a), decimals)


@_implements("astype")
def _astype(x: Any, dtype: Any, /) -> Any:
    return ops.cast(x, dtype)


# Products


@_implements("einsum")
def _einsum(subscripts: str, /, *operands: Any) -> Any:
    return ops.einsum(subscripts, *operands)


@_implements("dot")
def _dot(a: Any, b: Any) -> Any:
    if not np.ndim(a) or not np.ndim(b):
        return ops.mul(a, b)
    if np.ndim(a) <= 2 and np.ndim(b) <= 2:
        return ops.matmul(a, b)
    return xp.tensordot(a, b, axes=((-1,), (-1 if np.ndim(b) == 1 else -2,)))


@_implements("outer")
def _outer(a: Any, b: Any) -> Any:
    return ops.mul(ops.reshape(a, (-1, 1)), ops.reshape(b, (1, -1)))


@_implements("tensordot")
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    return xp.tensordot(a, b, axes=axes)


# Arrays of the same shape


def _register_fill(name: str, value: int) -> None:
    def filled(a: Any, dtype: Any = None) -> Any:
        return xp.full_like(a, value, dtype=_dtype(dtype))

    _implements(name)(filled)


_register_fill("zeros_like", 0)
_register_fill("empty_like", 0)
_register_fill("ones_like", 1)


@_implements("full_like")
def _full_like(a: Any, fill_value: Any, dtype: Any = None) -> Any:
    return xp.full_like(a, fill_value, dtype=_dtype(dtype))


# NumPy ufuncs on Symbols: `np.exp(x)`, `np.add(array, x)`, and `array + x`, which calls np.add.

# The functions that build the ops of each ufunc.
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
"""Comparisons with swapped operands, as in Python if the left operand does not implement them."""


def call_ufunc(ufunc: np.ufunc, how: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Build the ops of a NumPy ufunc: see `Symbol.__array_ufunc__`."""
    name = ufunc.__name__
    if how != "__call__":
        raise unsupported_error(f"np.{name}.{how}", symbols_of(inputs))
    function = _UFUNCS.get(name)
    if function is None:
        raise unsupported_error(f"np.{name}", symbols_of(inputs))
    if options:
        refuse_arguments(f"np.{name}", options, symbols_of(inputs))
    if name in _MIRRORED and not isinstance(inputs[0], Symbol):
        return _MIRRORED[name](inputs[1], inputs[0])
    return function(*inputs)
