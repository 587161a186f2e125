"""Declare onnxruntime's operators: a body of ops, and the dtypes in which the kernel is used instead.

A kernel is used where measurements show that it returns what the body returns (tests/ops/test_microsoft.py repeats
them).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphcore.custom_ops.custom_op import CustomOp, Types, register
from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType

DOMAIN = "com.microsoft"
FLOATS = "float16 bfloat16 float32 float64"
SINGLES = "float16 bfloat16 float32"
BYTES = "int8 uint8"

NARROW = (DType.float16, DType.bfloat16)

When = Callable[[Types, Mapping[str, Any], int], bool]


@dataclass(frozen=True, slots=True)
class ContribRow:
    """The row of an operator in the table of the documentation."""

    op: CustomOp
    kernels: str
    """The dtypes of the first operand in which the kernel of the CPU provider is used."""
    note: str


ROWS: dict[str, ContribRow] = {}
"""Every declared operator, by name."""


def contrib(
    *,
    promote: str | Mapping[str, str] = "none",
    dtypes: Mapping[str, str],
    kernels: str = "",
    when: When | None = None,
    note: str = "",
    unsafe: Callable[[Sequence[object]], str] | None = None,
    rounded: bool = True,
    wide: tuple[int, ...] = (),
) -> Callable[[Callable[..., Any]], CustomOp]:
    """Declare an operator of onnxruntime by its body, whose types are those of the operator.

    kernels: the dtypes of the first operand in which the CPU kernel is right. when: returns True for forms in which it
    is. unsafe: returns the reason why the kernel crashes the process for some operands, else "". rounded: the body is
    computed in float32 where floats are narrower, and its floats are rounded once, except the results at `wide`, which
    are always float32.
    """
    exact = frozenset(map(DType.of, kernels.split()))

    def kernel(target: str, types: Types, attributes: Mapping[str, Any], results: int) -> bool:
        first = types[0]
        if target not in ("cpu", "wasm") or not isinstance(first, TensorType) or first.dtype not in exact:
            return False
        return when is None or when(types, attributes, results)

    def declare(function: Callable[..., Any]) -> CustomOp:
        label = f"{DOMAIN}::{function.__name__}"
        body = _rounded_once(function, wide) if rounded else function
        declared = register(CustomOp(label, None, promote, dtypes, body, None, kernel, None, 1))
        declared.unsafe = unsafe
        ROWS[declared.name] = ContribRow(declared, kernels, note)
        return declared

    return declare


def _rounded_once(function: Callable[..., Any], but: tuple[int, ...]) -> Callable[..., Any]:
    """Return a body that computes floats narrower than 32 bits in float32, and rounds its results once."""

    @functools.wraps(function)
    def body(*operands: Symbol | None, **attributes: Any) -> Any:
        narrow = [s.dtype for s in operands if s is not None and s.dtype in NARROW]
        if not narrow:
            return function(*operands, **attributes)
        wide = [s.cast(DType.float32) if s is not None and s.dtype in NARROW else s for s in operands]
        results = function(*wide, **attributes)
        each = results if isinstance(results, tuple) else (results,)
        rounded = tuple(r if i in but or not r.dtype.is_float else r.cast(narrow[0]) for i, r in enumerate(each))
        return rounded if isinstance(results, tuple) else rounded[0]

    return body


def shape_at(types: Types, position: int) -> Shape | None:
    """Return the shape of an operand; None if it is omitted or its rank is unknown."""
    type_ = types[position] if position < len(types) else None
    return type_.shape if isinstance(type_, TensorType) and type_.shape.is_ranked else None


def may_be(dim: Dim, other: Dim) -> bool:
    """Return True unless two dims provably differ."""
    return not dim.is_static or not other.is_static or dim == other


def check_bias(x: Symbol | None, size: Dim | int) -> None:
    """Raise `ValueError` unless a bias is a vector of this size, or None."""
    if x is not None and (x.rank != 1 or not may_be(x.shape[0], Dim(size) if isinstance(size, int) else size)):
        raise ValueError(f"bias must have shape [{size}], got {x.shape}")
