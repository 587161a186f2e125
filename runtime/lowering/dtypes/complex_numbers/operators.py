"""Operators on complex numbers. One row an operator; what has none is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphcore.build.declare import LIBRARY
from graphcore.errors import DTypeError
from graphcore.ir.symbol import Node
from graphcore.runtime.lowering.dtypes.complex_numbers import (
    arithmetic,
    exponentials,
    layers,
    movement,
    products,
    trigonometry,
)
from graphcore.runtime.lowering.dtypes.complex_numbers.parts import Parts, Result, holds_complex

_RULES: dict[str, Callable[[Parts, Node], Sequence[Result]]] = {
    **movement.RULES,
    **arithmetic.RULES,
    **exponentials.RULES,
    **trigonometry.RULES,
    **products.RULES,
    **layers.RULES,
}

SUPPORTED = frozenset(_RULES)
"""The operators that take complex numbers."""


def computed(on: Parts, node: Node) -> Sequence[Result]:
    """Return the results of a node on complex numbers. Raises `DTypeError` where there is no way to compute it."""
    rule = _RULES.get(node.op_type) if node.domain in ("", LIBRARY) else None
    if rule is None:
        raise _refused(node)
    return rule(on, node)


def _refused(node: Node) -> DTypeError:
    value = next(s for s in (*node.inputs, *node.outputs) if holds_complex(s))
    shown: dict[str, Any] = {f"input {i}": s for i, s in enumerate(node.inputs) if s is not None}
    if node.line is not None:
        shown["made at"] = str(node.line)
    return DTypeError(
        f"{node.op_type}: nothing computes it on {value.type}" if value is not None else node.op_type,
        operands=shown,
        help="compute on the parts: ops.real(z), ops.imag(z), ops.abs(z)",
    )
