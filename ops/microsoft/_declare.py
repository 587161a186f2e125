"""The declaration of the runtime's own operators: a body of ops, and in which dtypes its kernel is used instead.

A kernel is used where it was measured to give what the body gives (tests/ops/test_microsoft.py does it again).
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
class Row:
    """The row of an operator in the documentation's table."""

    op: CustomOp
    kernels: str
    """The dtypes of the first operand in which the CPU provider's kernel is used."""
    note: str


ROWS: dict[str, Row] = {}
"""Every operator that is declared, by name."""


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
    """Declare an operator of the runtime by its body, whose types are the operator's.

    kernels: the dtypes of the first operand in which the CPU's kernel is right. when: which forms of it are. typed: the
    function is the type rule, and there is no body. usual: how many results a call gives that does not say.
    unsafe: why the kernel ends the process on such operands.
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
        made = register(CustomOp(label, rule, promote, dtypes, body, None, kernel, None, usual))
        made.unsafe = unsafe
        ROWS[made.name] = Row(made, kernels, note)
        return made

    return declare


def rounded_once(*, but: tuple[int, ...] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A body that computes floats narrower than 32 bits in float32 and rounds its results once.

    but: the positions of results that are float32 whatever the operands are. Results that are not floats stay as they
    are.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def made(*operands: Symbol | None, **attributes: Any) -> Any:
            narrow = [s.dtype for s in operands if s is not None and s.dtype in NARROW]
            results = function(*[_widened(s) for s in operands], **attributes)
            if not narrow:
                return results
            if not isinstance(results, tuple):
                return results.cast(narrow[0])
            return tuple(r if i in but or not r.dtype.is_float else r.cast(narrow[0]) for i, r in enumerate(results))

        return made

    return decorate


def shape_at(types: Types, position: int) -> Shape | None:
    """The shape of an operand; None where it is left out or its rank is not known."""
    found = types[position] if position < len(types) else None
    return found.shape if isinstance(found, TensorType) and found.shape.is_ranked else None


def may_be(dim: Dim, other: Dim) -> bool:
    """Return whether two dims may be equal, as far as is known."""
    return not dim.is_static or not other.is_static or dim == other


def check_row(name: str, x: Symbol | None, size: Dim | int) -> None:
    """Raise `ValueError` for an operand that is not so many numbers."""
    if x is not None and (x.rank != 1 or not may_be(x.shape[0], Dim(size) if isinstance(size, int) else size)):
        raise ValueError(f"{name} has shape {x.shape}, and [{size}] is wanted")


def _widened(symbol: Symbol | None) -> Symbol | None:
    return symbol.cast(DType.float32) if symbol is not None and symbol.dtype in NARROW else symbol
