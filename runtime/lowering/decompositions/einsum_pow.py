"""Powers and sums of products of integers, which the kernels compute as doubles."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from graphcore.build.declare import EXPANSIONS
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.einsum import Equation, parse, spelled
from graphcore.runtime.lowering.build.builder import Builder, Call, Replacement
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape


def power(b: Builder, call: Call) -> Replacement:
    """Compute Pow of integers by squaring in int64: the kernel rounds beyond 2^53 and saturates."""
    x, y = call.inputs
    if y.dtype.is_float:
        return None
    own, whole = x.dtype, DType.int64
    # All that it is made of has a right kernel in int64.
    made: Symbol = EXPANSIONS["IntegerPow"](*(b.cast(s, whole) for s in (x, y)))
    return b.cast(made, own)


def einsum(b: Builder, call: Call) -> Replacement:
    """Compute Einsum with ReduceSum, which wraps: the kernel saturates in sums over letters of one operand alone."""
    equation = parse(call.attributes["equation"], len(call.inputs), {})
    if not any(equation.is_lone(label) for labels in equation.inputs for label in labels):
        return turned(b, call)
    if all(x.shape.is_ranked for x in call.inputs) and any(map(_may_be_empty, call.inputs)):
        equation = spelled(equation, [x.rank for x in call.inputs])
    made: list[Symbol] = []
    left = []
    for x, labels in zip(call.inputs, equation.inputs, strict=True):
        lone = [label for label in dict.fromkeys(labels) if equation.is_lone(label)]
        if lone:
            x, labels = _summed(b, x, labels, lone)
        made.append(x)
        left.append(labels)
    if len(made) == 1 and left[0] == equation.output:
        return made[0]
    return _product(b, made, Equation(tuple(left), equation.output), call.shape)


def turned(b: Builder, call: Call) -> Replacement:
    """Compute Einsum of operands that may be empty and that the kernel would transpose: see `_product`."""
    if not any(map(_may_be_empty, call.inputs)):
        return None
    equation = parse(call.attributes["equation"], len(call.inputs), {})
    if len(call.inputs) < 2 and _is_plain(equation):
        return None
    return _product(b, list(call.inputs), equation, call.shape)


def _may_be_empty(x: Symbol) -> bool:
    """Return whether a Symbol may have no elements, as far as its type tells."""
    return not x.shape.is_ranked or any((dim.lower_bound or 0) < 1 for dim in x.shape)


def _product(b: Builder, inputs: Sequence[Symbol], equation: Equation, shape: Shape) -> Symbol:
    """Compute Einsum after a Transpose: the kernel divides by zero as it transposes an operand without elements.

    It takes two operands at a time, as the kernel does, each with its axes in the order in which they are multiplied.
    """
    if not any(map(_may_be_empty, inputs)) or not all(x.shape.is_ranked for x in inputs):
        return b.native("Einsum", *inputs, shape=shape, equation=str(equation))
    equation = spelled(equation, [x.rank for x in inputs])
    if any("..." in labels for labels in equation.inputs):  # the letters ran out
        return b.native("Einsum", *inputs, shape=shape, equation=str(equation))
    unique = [_diagonal(b, x, labels) for x, labels in zip(inputs, equation.inputs, strict=True)]
    inputs, terms = [x for x, _ in unique], tuple(labels for _, labels in unique)
    if len(inputs) < 2:
        return b.native("Einsum", *inputs, shape=shape, equation=str(Equation(terms, equation.output)))
    made, labels = inputs[0], terms[0]
    for i, (x, others) in enumerate(zip(inputs[1:], terms[1:], strict=True), 2):
        later = {label for term in (*terms[i:], equation.output) for label in term}
        order = [label for label in (*equation.output, *labels, *others) if label in later]
        kept = [label for label in dict.fromkeys(order) if label in labels or label in others]
        both = [label for label in kept if label in labels and label in others]
        mine, theirs = ([a for a in kept if a in term and a not in both] for term in (labels, others))
        met = [label for label in labels if label in others and label not in both]
        lone = [[a for a in term if a not in kept and a not in met] for term in (labels, others)]
        left, right = (*both, *mine, *met, *lone[0]), (*both, *met, *theirs, *lone[1])
        operands = _transposed(b, made, labels, left), _transposed(b, x, others, right)
        sizes = dict(zip(left, operands[0].shape, strict=True))
        sizes |= {a: d for a, d in zip(right, operands[1].shape, strict=True) if d != 1 or a not in sizes}
        labels = (*both, *mine, *theirs)
        made = b.native(
            "Einsum",
            *operands,
            shape=_shape(sizes[label] for label in labels),
            equation=str(Equation((left, right), labels)),
        )
    return _transposed(b, made, labels, equation.output)


def _is_plain(equation: Equation) -> bool:
    """Return whether no letter stands twice in a term."""
    return all(len(set(labels)) == len(labels) for labels in equation.inputs)


def _diagonal(b: Builder, x: Symbol, labels: tuple[str, ...]) -> tuple[Symbol, tuple[str, ...]]:
    """Return an operand with one axis in place of two of one letter: the kernel takes these at the end alone."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            rest = [a for a in range(len(labels)) if a not in (first, second)]
            order = [*rest, first, second]
            turned = x
            if order != list(range(len(labels))):
                turned = b.op("Transpose", x, shape=_shape([x.shape[a] for a in order]), perm=order)
            kept = tuple(labels[a] for a in rest)
            plain = tuple(string.ascii_letters[: len(rest) + 1])
            taken = str(Equation(((*plain, plain[-1]),), plain))
            x = b.native("Einsum", turned, shape=_shape([x.shape[a] for a in (*rest, first)]), equation=taken)
            labels = (*kept, label)
    return x, labels


def _transposed(b: Builder, x: Symbol, labels: tuple[str, ...], order: tuple[str, ...]) -> Symbol:
    if labels == order:
        return x
    perm = [labels.index(label) for label in order]
    return b.op("Transpose", x, shape=_shape([x.shape[a] for a in perm]), perm=perm)


def _summed(b: Builder, x: Symbol, labels: tuple[str, ...], lone: list[str]) -> tuple[Symbol, tuple[str, ...]]:
    if _may_be_empty(x) and "..." not in labels:
        x, labels = _diagonal(b, x, labels)
    order = tuple(dict.fromkeys(labels))
    dots = order.index("...") if "..." in order else len(order)
    if order != labels:
        diagonal = str(Equation((labels,), order))
        kept = [_axis(labels, label, x.rank) for label in order if label != "..."]
        shape = [x.shape[a] for a in kept[:dots]] + _dotted(x, labels) + [x.shape[a] for a in kept[dots:]]
        x = b.native("Einsum", x, shape=_shape(shape), equation=diagonal)
    axes = [_axis(order, label, x.rank) for label in lone]
    shape = [d for axis, d in enumerate(x.shape) if axis not in axes]
    made = b.op("ReduceSum", x, b.vector(axes), shape=_shape(shape), keepdims=0)
    return made, tuple(label for label in order if label not in lone)


def _axis(labels: tuple[str, ...], label: str, rank: int) -> int:
    """Return the axis of a label, counted from the end for those after the dots."""
    place = labels.index(label)
    return place if "..." not in labels[:place] else place - len(labels) + rank


def _dotted(x: Symbol, labels: tuple[str, ...]) -> list[Any]:
    """Return the dims that the dots stand for."""
    if "..." not in labels:
        return []
    start = labels.index("...")
    return list(x.shape[start : x.rank - (len(labels) - 1 - start)])
