"""Powers and sums of products of integers, which the kernels compute as doubles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.declare import EXPANSIONS
from graphcore.dtypes import DType
from graphcore.ops._einsum import Equation, parse
from graphcore.runtime.lowering.detours.kind import Inputs, Made
from graphcore.symbol import Symbol
from graphcore.types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalise import Legaliser


def power(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Pow of integers rounds beyond 2^53 and saturates; in int64, by squaring, its low bits are those of any width."""
    x, y = inputs
    if y.dtype.is_float:
        return None
    own, whole = x.dtype, DType.int64
    # All that it is made of has a right kernel in int64.
    made: Symbol = EXPANSIONS["IntegerPow"](*(on.casts.cast(s, s.dtype, whole) for s in (x, y)))
    return on.casts.cast(made, whole, own)


def einsum(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Einsum saturates where it sums over letters that one operand alone has: ReduceSum, as it is lowered, wraps."""
    equation = parse(attributes["equation"], len(inputs), {})
    if not any(equation.is_lone(label) for labels in equation.inputs for label in labels):
        return None
    made: list[Symbol] = []
    left = []
    for x, labels in zip(inputs, equation.inputs, strict=True):
        lone = [label for label in dict.fromkeys(labels) if equation.is_lone(label)]
        if lone:
            x, labels = _summed(on, x, labels, lone)
        made.append(x)
        left.append(labels)
    if len(made) == 1 and left[0] == equation.output:
        return made[0]
    return on.native(op, *made, shape=types[0].shape, equation=str(Equation(tuple(left), equation.output)))


def _summed(on: Legaliser, x: Symbol, labels: tuple[str, ...], lone: list[str]) -> tuple[Symbol, tuple[str, ...]]:
    order = tuple(dict.fromkeys(labels))
    dots = order.index("...") if "..." in order else len(order)
    if order != labels:
        diagonal = str(Equation((labels,), order))
        kept = [_axis(labels, label, x.rank) for label in order if label != "..."]
        shape = [x.shape[a] for a in kept[:dots]] + _dotted(x, labels) + [x.shape[a] for a in kept[dots:]]
        x = on.native("Einsum", x, shape=_shape(shape), equation=diagonal)
    axes = [_axis(order, label, x.rank) for label in lone]
    shape = [d for axis, d in enumerate(x.shape) if axis not in axes]
    made = on.op("ReduceSum", x, on.ints(axes), shape=_shape(shape), keepdims=0)
    return made, tuple(label for label in order if label not in lone)


def _axis(labels: tuple[str, ...], label: str, rank: int) -> int:
    """Where a label is, counted from the end behind the dots."""
    place = labels.index(label)
    return place if "..." not in labels[:place] else place - len(labels) + rank


def _dotted(x: Symbol, labels: tuple[str, ...]) -> list[Any]:
    """The dims that the dots stand for."""
    if "..." not in labels:
        return []
    start = labels.index("...")
    return list(x.shape[start : x.rank - (len(labels) - 1 - start)])
