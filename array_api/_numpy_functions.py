"""NumPy functions on Symbols: `np.mean(x, axis=0)`, `np.concatenate([x, y])`. They have NumPy's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from graphcore import array_api, ops
from graphcore import array_api as xp
from graphcore.array_api._eager import PROMOTION
from graphcore.build import operands
from graphcore.errors import SymbolError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.tracing.tensor import Tensor, at_once
from graphcore.types.dtypes import DType

Axis: TypeAlias = Any
_Function: TypeAlias = Callable[..., Any]


def call_function(function: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Build the ops of a NumPy function, see `Symbol.__array_function__`, or compute them on Tensors."""
    folder = str(getattr(function, "__module__", "numpy")).removeprefix("numpy").strip(".")
    label = ".".join(part for part in ("np", folder, function.__name__) if part and not part.startswith("_"))
    symbols = _symbols_of((*arguments, *named.values()))
    implementation = _FUNCTIONS.get(function)
    if not symbols:
        if implementation is None or function.__name__ in _OF_VALUES:
            return function(*_as_arrays(arguments), **_as_arrays(named))
        return at_once(call_function, (function, arguments, named), {})
    if implementation is None:
        raise _unsupported_error(label, symbols)
    parameters = inspect.signature(implementation).parameters
    _refuse_arguments(label, {n: v for n, v in named.items() if n not in parameters}, symbols)
    accepted = {n: v for n, v in named.items() if n in parameters and not (_is_default(n, v) and v is None)}
    try:
        bound = inspect.signature(implementation).bind(*arguments, **accepted)
    except TypeError as error:
        raise SymbolError(
            f"{label}: with Symbols, {error}", operands=symbols, help=f"the parameters are ({', '.join(parameters)})"
        ) from None
    with operands.graph_of(label, symbols.values()):  # arrays become constants of this graph
        return implementation(*bound.args, **bound.kwargs)


def _as_arrays(value: Any) -> Any:
    """Return arguments with arrays in place of Tensors."""
    if isinstance(value, dict):
        return {name: _as_arrays(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_arrays(item) for item in value]
    return np.asarray(value) if isinstance(value, Tensor) else value


def _symbol(a: Any) -> Symbol:
    return operands.operand("numpy", a, "a")


def _dtype(dtype: Any) -> DType | None:
    return None if dtype is None else PROMOTION.dtype_of(dtype)


def _as(a: Any, dtype: Any) -> Any:
    return a if dtype is None else ops.cast(a, dtype)


def _squeeze(a: Any, axis: Axis = None) -> Any:
    x = _symbol(a)
    ones = tuple(i for i, dim in enumerate(x.shape) if dim == 1) if axis is None else axis
    return x if ones == () else ops.squeeze(x, ones)


def _size(a: Any) -> int:
    size = _symbol(a).shape.size
    if not size.is_static:
        raise _unsupported_error("np.size", _symbols_of((a,)))
    return int(size)


def _dot(a: Any, b: Any) -> Any:
    if not np.ndim(a) or not np.ndim(b):
        return ops.mul(a, b)
    if np.ndim(a) <= 2 and np.ndim(b) <= 2:
        return ops.matmul(a, b)
    return xp.tensordot(a, b, axes=((-1,), (-1 if np.ndim(b) == 1 else -2,)))


def _reduction(function: _Function) -> _Function:
    return lambda a, axis=None, *, keepdims=False: function(a, axis=axis, keepdims=keepdims)


def _sum(function: _Function) -> _Function:
    return lambda a, axis=None, dtype=None, *, keepdims=False: function(
        a, axis=axis, dtype=_dtype(dtype), keepdims=keepdims
    )


def _deviation(function: _Function) -> _Function:
    return lambda a, axis=None, dtype=None, *, ddof=0, correction=0, keepdims=False: function(
        _as(a, dtype), axis=axis, correction=ddof or correction, keepdims=keepdims
    )


def _accumulation(function: _Function) -> _Function:
    return lambda a, axis=None, dtype=None: function(_flat(_symbol(a), axis), axis=axis, dtype=_dtype(dtype))


def _flat(a: Any, axis: int | None) -> Any:
    """Return an operand, flattened for an axis of None."""
    return ops.reshape(a, -1) if axis is None else a


_BY_NAME: dict[str, _Function] = {
    # Reductions
    "sum": _sum(xp.sum),
    "prod": _sum(xp.prod),
    "mean": lambda a, axis=None, dtype=None, *, keepdims=False: xp.mean(_as(a, dtype), axis=axis, keepdims=keepdims),
    "median": _reduction(ops.median),
    "quantile": lambda a, q, axis=None, *, method="linear", keepdims=False: ops.quantile(
        a, q, axis=axis, keepdims=keepdims, method=method
    ),
    **dict.fromkeys(("max", "amax"), _reduction(xp.max)),
    **dict.fromkeys(("min", "amin"), _reduction(xp.min)),
    **{name: _reduction(getattr(xp, name)) for name in ("all", "any", "argmax", "argmin", "count_nonzero")},
    "var": _deviation(xp.var),
    "std": _deviation(xp.std),
    "cumsum": _accumulation(xp.cumulative_sum),
    "cumprod": _accumulation(xp.cumulative_prod),
    # Shapes
    "shape": lambda a: a.shape,
    "ndim": lambda a: _symbol(a).rank,
    "size": _size,
    "copy": lambda a: a,
    "reshape": lambda a, shape: ops.reshape(a, shape),
    "ravel": lambda a: ops.reshape(a, -1),
    **dict.fromkeys(
        ("transpose", "permute_dims"),
        lambda a, axes=None: xp.permute_dims(a, tuple(range(_symbol(a).rank))[::-1] if axes is None else tuple(axes)),
    ),
    "matrix_transpose": lambda x: xp.matrix_transpose(x),
    "swapaxes": lambda a, axis1, axis2: ops.swapaxes(a, axis1, axis2),
    "moveaxis": lambda a, source, destination: xp.moveaxis(a, source, destination),
    "squeeze": _squeeze,
    "expand_dims": lambda a, axis: xp.expand_dims(a, axis),
    "broadcast_to": lambda array, shape: xp.broadcast_to(array, shape),
    "flip": lambda m, axis=None: xp.flip(m, axis=axis),
    "roll": lambda a, shift, axis=None: xp.roll(a, shift, axis=axis),
    "repeat": lambda a, repeats, axis=None: xp.repeat(a, repeats, axis=axis),
    "tile": lambda A, reps: xp.tile(A, (reps,) if isinstance(reps, int) else tuple(reps)),
    "tril": lambda m, k=0: xp.tril(m, k=k),
    "triu": lambda m, k=0: xp.triu(m, k=k),
    # Several arrays
    **dict.fromkeys(("concatenate", "concat"), lambda arrays, /, axis=0: xp.concat(list(arrays), axis=axis)),
    "stack": lambda arrays, axis=0: xp.stack(list(arrays), axis=axis),
    "vstack": lambda tup: xp.concat([ops.unsqueeze(a, 0) if np.ndim(a) == 1 else a for a in tup], axis=0),
    "hstack": lambda tup: xp.concat(list(tup), axis=0 if np.ndim(tup[0]) == 1 else 1),
    # Elements
    "where": lambda condition, x=None, y=None, /: (
        xp.nonzero(condition) if x is None and y is None else xp.where(condition, x, y)
    ),
    "clip": lambda a, a_min=None, a_max=None, *, min=None, max=None: xp.clip(
        a, a_min if min is None else min, a_max if max is None else max
    ),
    "take": lambda a, indices, axis=None: xp.take(
        _flat(a, axis), np.asarray(indices) if isinstance(indices, (int, list, tuple)) else indices, axis=axis or 0
    ),
    "take_along_axis": lambda arr, indices, axis=-1: xp.take_along_axis(arr, indices, axis=axis),
    "sort": lambda a, axis=-1: xp.sort(_flat(a, axis), axis=-1 if axis is None else axis),
    "argsort": lambda a, axis=-1: xp.argsort(_flat(a, axis), axis=-1 if axis is None else axis),
    "nonzero": lambda a: xp.nonzero(a),
    "diff": lambda a, n=1, axis=-1: xp.diff(a, axis=axis, n=n),
    **dict.fromkeys(("round", "around"), lambda a, decimals=0: round(_symbol(a), decimals)),
    "astype": lambda x, dtype, /: ops.cast(x, dtype),
    # Products
    "einsum": lambda subscripts, /, *operands: ops.einsum(subscripts, *operands),
    "dot": _dot,
    "outer": lambda a, b: ops.mul(ops.reshape(a, (-1, 1)), ops.reshape(b, (1, -1))),
    "tensordot": lambda a, b, axes=2: xp.tensordot(a, b, axes=axes),
    # Arrays of the same shape
    **dict.fromkeys(("zeros_like", "empty_like"), lambda a, dtype=None: xp.full_like(a, 0, dtype=_dtype(dtype))),
    "ones_like": lambda a, dtype=None: xp.full_like(a, 1, dtype=_dtype(dtype)),
    "full_like": lambda a, fill_value, dtype=None: xp.full_like(a, fill_value, dtype=_dtype(dtype)),
}
"""Implementations, with NumPy's parameters."""

_OF_VALUES = frozenset({"shape", "ndim", "size", "copy", "zeros_like", "empty_like", "ones_like", "full_like"})
"""Those that give no Tensors for Tensors, but what they give for arrays."""

# Older releases of NumPy lack some.
_FUNCTIONS: dict[Any, _Function] = {getattr(np, name): f for name, f in _BY_NAME.items() if hasattr(np, name)}


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
    """Build the ops of a NumPy ufunc, see `Symbol.__array_ufunc__`, or compute them on Tensors."""
    name = ufunc.__name__
    if how != "__call__":
        raise _unsupported_error(f"np.{name}.{how}", _symbols_of(inputs))
    function = _UFUNCS.get(name)
    if function is None:
        raise _unsupported_error(f"np.{name}", _symbols_of(inputs))
    if options:
        _refuse_arguments(f"np.{name}", options, _symbols_of(inputs))
    if name in _MIRRORED and not isinstance(inputs[0], Symbol):
        return _MIRRORED[name](inputs[1], inputs[0])
    return function(*inputs)


# Errors of NumPy functions on Symbols, with the op to use instead if there is one.

# Default values of arguments of NumPy functions, and alternatives to other values.
_SILENT: Mapping[str, tuple[object, ...]] = {
    "out": (None,), "where": (True,), "dtype": (None,), "casting": ("same_kind", None),
    "order": ("K", "C", None), "subok": (True, False), "initial": (None,), "kind": (None,), "stable": (None, True),
    "copy": (None,), "like": (None,), "mode": (None, "raise"), "device": (None, "cpu"), "signature": (None,),
}  # fmt: skip
_FIXES: Mapping[str, str] = {
    "out": "Symbols and Tensors have no memory to write to: assign the result, y = x + z, also in place of `x += z`",
    "where": "choose with ops.where(condition, result, other)",
    "dtype": "cast the operands: x.cast(DType.float32)",
    "casting": "cast the operands: x.cast(DType.float32)",
    "signature": "cast the operands: x.cast(DType.float32)",
}


def _is_default(name: str, value: object) -> bool:
    """Return True if an argument has its default value."""
    if name == "out" and isinstance(value, tuple):
        return all(array is None for array in value)
    return isinstance(value, (str, bool, type(None))) and value in _SILENT.get(name, ())


def _refuse_arguments(label: str, arguments: Mapping[str, Any], operands: Mapping[str, object]) -> None:
    """Raise `SymbolError` for the first argument that no op supports."""
    for name, value in arguments.items():
        if not _is_default(name, value):
            fix = _FIXES.get(name, f"omit {name}, or call the op: {_counterpart(label) or 'see docs/ops.md'}")
            kinds = "Symbols" if operands else "Tensors"
            raise SymbolError(f"{label}: {name}= is not supported for {kinds}", operands=operands, help=fix)


def _unsupported_error(label: str, operands: Mapping[str, object]) -> SymbolError:
    """Return the error for a NumPy function without an op."""
    why = "NumPy computes with values, but a Symbol has none while the graph is built"
    where = "the outputs of the model"
    if not operands:
        why, where = "no op of that name computes on Tensors", "an array: x.numpy()"
    counterpart = _counterpart(label)
    fix = f"use {counterpart}" if counterpart else f"build it from ops, or call it on {where}"
    return SymbolError(f"{label}: {why}", operands=operands, help=fix)


def _symbols_of(values: Any) -> dict[str, object]:
    """Return the Symbols among arguments, for errors."""
    flat = [v for value in values for v in (value if isinstance(value, (list, tuple)) else (value,))]
    return {f"x{i + 1}": value for i, value in enumerate(v for v in flat if isinstance(v, Symbol))}


_OTHER_NAMES: Mapping[str, str] = {
    "np.add.reduce": "ops.sum(x, axis)", "np.multiply.reduce": "ops.prod(x, axis)",
    "np.maximum.reduce": "ops.max(x, axis)", "np.minimum.reduce": "ops.min(x, axis)",
    "np.logical_and.reduce": "ops.all(x, axis)", "np.logical_or.reduce": "ops.any(x, axis)",
    "np.add.accumulate": "ops.cumsum(x, axis)", "np.multiply.accumulate": "ops.cumprod(x, axis)",
    "np.multiply.outer": "ops.outer(x, y)", "np.add.at": "ops.scatter_nd_add",
    "np.pad": "ops.pad", "np.dot": "ops.matmul, or ops.tensordot", "np.nan_to_num": "ops.where(ops.is_nan(x), 0, x)",
    "np.heaviside": "ops.where(x < 0, 0, 1)", "np.cbrt": "ops.sign(x) * ops.abs(x) ** (1 / 3)",
    "np.split": "ops.split", "np.array_split": "ops.split", "np.argpartition": "ops.top_k", "np.partition": "ops.sort",
    "np.allclose": "ops.all(ops.abs(x - y) <= tolerance)", "np.isclose": "ops.abs(x - y) <= tolerance",
    "np.array_equal": "ops.all(x == y)", "np.inner": "ops.vecdot", "np.vdot": "ops.vecdot",
    "np.put_along_axis": "ops.scatter", "np.gradient": "graphcore.array_api.diff", "np.select": "ops.where",
    "np.unique": "graphcore.array_api.unique_values", "np.average": "ops.mean",
    "np.fmax": "ops.maximum, which propagates NaN", "np.fmin": "ops.minimum, which propagates NaN",
    "np.size": "x.shape.size, a Dim, or ops.prod(ops.shape_of(x))",
    "np.linalg.norm": "graphcore.array_api.linalg.vector_norm or matrix_norm",
}  # fmt: skip


def _counterpart(label: str) -> str:
    """Return the function to use in place of `np.name`, or ""."""
    if label in _OTHER_NAMES:
        return _OTHER_NAMES[label]
    _, *folders, name = label.split(".")
    if folders in (["linalg"], ["fft"]) and hasattr(getattr(array_api, folders[0]), name):
        return f"graphcore.array_api.{folders[0]}.{name}"
    if not folders and name in ops.__all__:
        return f"ops.{name}"
    return f"graphcore.array_api.{name}" if not folders and hasattr(array_api, name) else ""
