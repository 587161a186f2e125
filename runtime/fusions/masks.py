"""Take the scores of an attention apart: the product, its factors and the masks that are added before the softmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.match import Pattern, op
from graphcore.passes.sweep import Sweep
from graphcore.runtime.fusions.matching import bounds, factor_of, floats, is_float32, node_of, number_of, vector
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import _shape, tensor_type

_LEAST = float(np.finfo(np.float32).min)
_ABOVE_LEAST = np.nextafter(np.float32(_LEAST), np.float32(0))
_MOST = 4
"""The most masks that may be added one after the other."""

_CHOICE = Pattern(lambda keep, zero, hidden: op("Where", keep, zero, hidden), zero=lambda s: number_of(s) == 0)


@dataclass(frozen=True, slots=True)
class Scores:
    """product * scale + masks."""

    product: Node
    scale: float
    masks: tuple[Symbol, ...]


def scores_of(symbol: Symbol | None) -> Scores | None:
    """Return the parts of scores, None where they are no matrix product with factors and masks."""
    masks: tuple[Symbol, ...] = ()
    while (total := node_of(symbol, "Add")) is not None:
        for own, mask in (total.inputs, total.inputs[::-1]):
            if mask is not None and _leads_to_product(own, _MOST) and _keeps_shape(own, total.outputs[0]):
                symbol, masks = own, (mask, *masks)
                break
        else:
            return None
        if len(masks) > _MOST:
            return None
    scaled, scale = _factors(symbol)
    product = node_of(scaled, "MatMul")
    return None if product is None else Scores(product, scale, masks)


def _leads_to_product(symbol: Symbol | None, most: int) -> bool:
    """Return whether an operand of a sum is the scores, and not a mask."""
    made = _factors(symbol)[0]
    if node_of(made, "MatMul") is not None:
        return True
    total = node_of(made, "Add") if made is symbol else None
    return total is not None and most > 0 and any(_leads_to_product(s, most - 1) for s in total.inputs)


def _factors(symbol: Symbol | None) -> tuple[Symbol | None, float]:
    """Return an operand and the product of the numbers that it is multiplied with."""
    symbol, whole = factor_of(symbol)
    while whole and (found := factor_of(symbol))[0] is not symbol:
        symbol, whole = found[0], whole * found[1]
    return symbol, whole


def _keeps_shape(own: Symbol | None, total: Symbol) -> bool:
    """Return whether only the mask broadcasts in a sum. The number of keys in it may be unknown: the product with the
    values tells it."""
    if own is None or own.type is total.type:
        return own is not None
    if not is_float32(own, total) or own.rank != total.rank or own.rank < 1:
        return False
    return [*own.shape][:-1] == [*total.shape][:-1] and total.shape[-1].is_dynamic


def sum_of(sweep: Sweep, node: Node, masks: tuple[Symbol, ...]) -> Symbol | None:
    """Return the sum of masks that each fit the scores, None where there are none."""
    whole = masks[0] if masks else None
    for mask in masks[1:]:
        assert whole is not None
        whole = sweep.add(node, "Add", (whole, mask), floats(*_broadcast(whole, mask)))
    return whole


def _broadcast(a: Symbol, b: Symbol) -> list[Dim]:
    rank = max(a.rank, b.rank)
    shapes = [[Dim(1)] * (rank - s.rank) + [*s.shape] for s in (a, b)]
    return [y if x == 1 else x if y == 1 or x == y else Dim.dynamic() for x, y in zip(*shapes, strict=True)]


def is_mask(mask: Symbol, q: Symbol) -> bool:
    """Return whether the operator takes a mask: float32 of two to four axes, each dim 1 or that of the scores.

    The last dim may be unknown, since it cannot be any other.
    """
    if not is_float32(mask) or not 2 <= mask.rank <= 4:
        return False
    wanted = [*q.shape][:3][4 - mask.rank :]
    return all(d == 1 or d == w for d, w in zip([*mask.shape][:-1], wanted, strict=True))


def is_finite(mask: Symbol) -> bool:
    """Return whether a mask is certainly nowhere -inf, of which a softmax makes NaN and the operator 0."""
    held = bounds(mask)
    return held is not None and held[0] >= _LEAST


def for_kernel(sweep: Sweep, node: Node, mask: Symbol, k: Symbol) -> Symbol:
    """Return a mask of all keys that onnxruntime's kernel computes as the primitives did: it takes the least float32
    for -inf, and bools in place of -inf."""
    mask = _without_least(sweep, node, mask)
    keys = k.shape[2]
    if mask.shape[-1] == 1 or mask.shape[-1] == keys:
        return mask
    one = sweep.constant(node, np.ones(mask.rank - 1, np.int64))
    count = sweep.add(node, "Shape", (k,), vector(1), {"start": 2, "end": 3})
    target = sweep.add(node, "Concat", (one, count), vector(mask.rank), {"axis": 0})
    type_ = tensor_type(mask.dtype, _shape([*[*mask.shape][:-1], keys]))
    return sweep.add(node, "Expand", (mask, target), type_)


def _without_least(sweep: Sweep, node: Node, mask: Symbol) -> Symbol:
    found = _CHOICE.match(mask)
    if found is None or found[0].shape != mask.shape:
        return mask
    keep, zero, hidden = found
    if number_of(hidden) == -np.inf:
        kept: Symbol = keep
        return kept
    if number_of(hidden) != _LEAST:
        return mask
    # Scores are lost in either number, and the exponential of both is 0.
    least = sweep.constant(node, np.asarray(_ABOVE_LEAST))
    return sweep.add(node, "Where", (keep, zero, least), mask.type)
