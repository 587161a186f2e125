"""What is done to the scores of attention before their softmax: factors, and masks that are added."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.passes.sweep import Sweep
from graphcore.runtime.fusions.matching import bounds, factor_of, is_float32, node_of, number_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape, tensor_type

_LEAST = float(np.finfo(np.float32).min)
_ABOVE_LEAST = np.nextafter(np.float32(_LEAST), np.float32(0))
_MOST = 4
"""Masks that are added one after the other."""


@dataclass(frozen=True, slots=True)
class Scores:
    """product * scale + masks."""

    product: Node
    scale: float
    masks: tuple[Symbol, ...]


def scores_of(symbol: Symbol | None) -> Scores | None:
    """What scores are made of, None where they are no product of matrices."""
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
    made = _factors(symbol)[0]
    if node_of(made, "MatMul") is not None:
        return True
    total = node_of(made, "Add") if made is symbol else None
    return total is not None and most > 0 and any(_leads_to_product(s, most - 1) for s in total.inputs)


def _factors(symbol: Symbol | None) -> tuple[Symbol | None, float]:
    """An operand and the numbers that it is multiplied with."""
    symbol, whole = factor_of(symbol)
    while whole and (found := factor_of(symbol))[0] is not symbol:
        symbol, whole = found[0], whole * found[1]
    return symbol, whole


def _keeps_shape(own: Symbol | None, total: Symbol) -> bool:
    """Whether a mask broadcasts to the scores, and they not to it. The product with the values tells how many keys
    there are, so that nothing need be known of that axis of the sum."""
    if own is None or own.type is total.type:
        return own is not None
    if not is_float32(own, total) or own.rank != total.rank or own.rank < 1:
        return False
    return [*own.shape][:-1] == [*total.shape][:-1] and total.shape[-1].is_dynamic


def mask_of(sweep: Sweep, node: Node, masks: tuple[Symbol, ...]) -> Symbol | None:
    """The sum of masks that each fit the scores, None where there are none."""
    if not masks:
        return None
    whole = masks[0]
    for mask in masks[1:]:
        whole = sweep.add(node, "Add", (whole, mask), tensor_type(DType.float32, _shape(_together(whole, mask))))
    return whole


def _together(a: Symbol, b: Symbol) -> list[Dim]:
    rank = max(a.rank, b.rank)
    shapes = [[Dim(1)] * (rank - s.rank) + [*s.shape] for s in (a, b)]
    return [y if x == 1 else x if y == 1 or x == y else Dim.dynamic() for x, y in zip(*shapes, strict=True)]


def fits(mask: Symbol, q: Symbol) -> bool:
    """Whether a mask is one of the operator's: float32, each dim 1 or that of the scores, of two axes or more.

    Nothing need be known of the last one, which cannot be any other.
    """
    if not is_float32(mask) or not 2 <= mask.rank <= 4:
        return False
    wanted = [*q.shape][:3][4 - mask.rank :]
    return all(d == 1 or d == w for d, w in zip([*mask.shape][:-1], wanted, strict=True))


def is_finite(mask: Symbol) -> bool:
    """Whether a mask is certainly nowhere -inf, of which a softmax makes NaN and the operator 0."""
    held = bounds(mask)
    return held is not None and held[0] >= _LEAST


def as_taken(sweep: Sweep, node: Node, mask: Symbol | None, k: Symbol) -> Symbol | None:
    """The mask as the kernel takes it: of all keys, bools for -inf, and nothing that it takes for -inf without being
    it."""
    if mask is None:
        return None
    mask = _as_numbers(sweep, node, mask)
    keys = k.shape[2]
    if mask.shape[-1] == 1 or mask.shape[-1] == keys:
        return mask
    one = sweep.constant(node, np.ones(mask.rank - 1, np.int64))
    count = sweep.add(node, "Shape", (k,), tensor_type(DType.int64, _shape([Dim(1)])), {"start": 2, "end": 3})
    target_type = tensor_type(DType.int64, _shape([Dim(mask.rank)]))
    target = sweep.add(node, "Concat", (one, count), target_type, {"axis": 0})
    assert isinstance(mask.type, TensorType)
    type_ = tensor_type(mask.type.dtype, _shape([*[*mask.shape][:-1], keys]))
    return sweep.add(node, "Expand", (mask, target), type_)


def _as_numbers(sweep: Sweep, node: Node, mask: Symbol) -> Symbol:
    choice = node_of(mask, "Where")
    if choice is None:
        return mask
    test, kept, left = choice.inputs
    if number_of(kept) != 0 or test is None or test.shape != mask.shape:
        return mask
    if number_of(left) == -np.inf:
        return test
    if number_of(left) != _LEAST:
        return mask
    # Scores are lost in either number, and the exponential of both is 0.
    least = sweep.constant(node, np.asarray(_ABOVE_LEAST))
    return sweep.add(node, "Where", (test, kept, least), mask.type)
