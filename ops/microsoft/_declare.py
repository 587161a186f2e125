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
    typed: bool = False,
    usual: int = 1,
    note: str = "",
    unsafe: Callable[[Sequence[object]], str] | None = None,
) -> Callable[[Callable[..., Any]], CustomOp]:
    """Declare an operator of onnxruntime by its body, whose types are those of the operator.

    kernels: the dtypes of the first operand in which the CPU kernel is right. when: returns True for forms in which it
    is. typed: the function is the type rule, and there is no body. usual: the number of results of a call without
    `outputs`. unsafe: returns the reason why the kernel crashes the process for some operands, else "".
    """
    exact = frozenset(map(DType.of, kernels.split()))

    def kernel(target: str, types: Types, attributes: Mapping[str, Any], results: int) -> bool:
        first = types[0]
        if target != "cpu" or not isinstance(first, TensorType) or first.dtype not in exact:
            return False
        return when is None or when(types, attributes, results)

    def declare(function: Callable[..., Any]) -> CustomOp:
        label = f"{DOMAIN}::{function.__name__}"
        rule, body = (function, None) if typed else (None, function)
        declared = register(CustomOp(label, rule, promote, dtypes, body, None, kernel, None, usual))
        declared.unsafe = unsafe
        ROWS[declared.name] = ContribRow(declared, kernels, note)
        return declared

    return declare


def rounded_once(*, but: tuple[int, ...] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a body to compute floats narrower than 32 bits in float32 and round its results once.

    but: the positions of results that are always float32. Results that are not floats are unchanged.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*operands: Symbol | None, **attributes: Any) -> Any:
            narrow = [s.dtype for s in operands if s is not None and s.dtype in NARROW]
            results = function(*[_widened(s) for s in operands], **attributes)
            if not narrow:
                return results
            if not isinstance(results, tuple):
                return results.cast(narrow[0])
            return tuple(r if i in but or not r.dtype.is_float else r.cast(narrow[0]) for i, r in enumerate(results))

        return wrapper

    return decorate


def shape_at(types: Types, position: int) -> Shape | None:
    """Return the shape of an operand; None if it is omitted or its rank is unknown."""
    type_ = types[position] if position < len(types) else None
    return type_.shape if isinstance(type_, TensorType) and type_.shape.is_ranked else None


def may_be(dim: Dim, other: Dim) -> bool:
    """Return True unless two dims provably differ."""
    return not dim.is_static or not other.is_static or dim == other


def check_vector(name: str, x: Symbol | None, size: Dim | int) -> None:
    """Raise `ValueError` unless an operand is a vector of this size, or None."""
    if x is not None and (x.rank != 1 or not may_be(x.shape[0], Dim(size) if isinstance(size, int) else size)):
        raise ValueError(f"{name} must have shape [{size}], got {x.shape}")


def _widened(symbol: Symbol | None) -> Symbol | None:
    return symbol.cast(DType.float32) if symbol is not None and symbol.dtype in NARROW else symbol
