"""Errors of NumPy functions on Symbols, with the op to use instead if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcore import array_api, ops
from graphcore.errors import SymbolError
from graphcore.ir.symbol import Symbol

# Default values of arguments of NumPy functions, and alternatives to other values.
_SILENT: Mapping[str, tuple[object, ...]] = {
    "out": (None,), "where": (True,), "dtype": (None,), "casting": ("same_kind", None),
    "order": ("K", "C", None), "subok": (True, False), "initial": (None,), "kind": (None,), "stable": (None, True),
    "copy": (None,), "like": (None,), "mode": (None, "raise"), "device": (None, "cpu"), "signature": (None,),
}  # fmt: skip
_FIXES: Mapping[str, str] = {
    "out": "a Symbol has no memory to write to: assign the result, y = x + z, also in place of `x += z`",
    "where": "choose with ops.where(condition, result, other)",
    "dtype": "cast the operands: x.cast(DType.float32)",
    "casting": "cast the operands: x.cast(DType.float32)",
    "signature": "cast the operands: x.cast(DType.float32)",
}


def is_default(name: str, value: object) -> bool:
    """Return True if an argument has its default value."""
    if name == "out" and isinstance(value, tuple):
        return all(array is None for array in value)
    return isinstance(value, (str, bool, type(None))) and value in _SILENT.get(name, ())


def refuse_arguments(label: str, arguments: Mapping[str, Any], operands: Mapping[str, object]) -> None:
    """Raise `SymbolError` for the first argument that no op supports."""
    for name, value in arguments.items():
        if not is_default(name, value):
            fix = _FIXES.get(name, f"omit {name}, or call the op: {_counterpart(label) or 'see docs/ops.md'}")
            raise SymbolError(f"{label}: {name}= is not supported for Symbols", operands=operands, help=fix)


def unsupported_error(label: str, operands: Mapping[str, object]) -> SymbolError:
    """Return the error for a NumPy function without an op."""
    counterpart = _counterpart(label)
    return SymbolError(
        f"{label}: NumPy computes with values, but a Symbol has none while the graph is built",
        operands=operands,
        help=f"use {counterpart}" if counterpart else "build it from ops, or call it on the outputs of the model",
    )


def symbols_of(values: Any) -> dict[str, object]:
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
