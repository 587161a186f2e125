"""Wide integers put elsewhere: each limb is, by the operator itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.symbol import Node
from graphcore.operators import ROWS
from graphcore.promotion.allo import MOVES
from graphcore.runtime.lowering.dtypes.integers import conversions
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import joined
from graphcore.runtime.lowering.dtypes.integers.kinds import ZEROS, is_wide
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, Limb, Value
from graphcore.runtime.lowering.dtypes.integers.wide.operands import Rule, first, refused
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import tensor_type

_I64 = DType.int64


def moved(on: Widths, node: Node) -> Sequence[Result]:
    """An operator that puts values elsewhere does so with each limb."""
    positions = [i for i, s in enumerate(node.inputs) if s is not None and i in ROWS[node.op_type].data]
    if not all(is_wide(node.inputs[i]) for i in positions):
        raise refused(node)
    values = [on.value(s) for i in positions if (s := node.inputs[i]) is not None]
    if node.op_type in ZEROS:
        values.append(conversions.of_number(on.limbs, 0))
    aligned = on.limbs.aligned(values)
    rows = [on.limbs.full(Value(tuple(row), values[0].interval)) for row in aligned]
    windows = [joined([limb.window for limb in column]) for column in zip(*aligned, strict=True)]
    interval = joined([value.interval for value in values])
    others = {i: on.exact(s) for i, s in enumerate(node.inputs) if s is not None and i not in positions}
    types = [tensor_type(U64, s.shape) for s in node.outputs]
    made: list[list[Limb]] = [[] for _ in types]
    for place, window in enumerate(windows):
        inputs = [
            None if s is None else rows[positions.index(i)][place] if i in positions else others[i]
            for i, s in enumerate(node.inputs)
        ]
        results = on.new.build.emit_many(node.op_type, tuple(inputs), types, node.attributes, node.domain)
        for limbs, result in zip(made, results, strict=True):
            limbs.append(Limb(result, window))
    return [Value(tuple(limbs), interval) for limbs in made]


def _where(on: Widths, node: Node) -> Sequence[Result]:
    condition, x, y = node.inputs
    assert condition is not None
    assert x is not None
    assert y is not None
    truth = on.exact(condition)
    left, right = on.spread([on.value(x), on.value(y)], node, [truth])
    return (on.limbs.chosen(truth, left, right),)


def _measured(on: Widths, node: Node) -> Sequence[Result]:
    """Shape and Size, which every limb has."""
    x = on.value(first(node))
    made = e.emit(node.op_type, on.limbs.full(x)[0], dtype=_I64, shape=node.outputs[0].shape, **node.attributes)
    return (made,)


def _filled(on: Widths, node: Node) -> Sequence[Result]:
    """ConstantOfShape, one for each limb."""
    held = node.attributes.get("value")
    number = 0 if held is None else int(held.reshape(()))
    value = conversions.of_number(on.limbs, number)
    shape = on.exact(first(node))
    type_ = tensor_type(U64, node.outputs[0].shape)
    limbs = []
    for limb in value.limbs:
        one = np.array([limb.window.lo % (1 << 64)], np.uint64)
        limbs.append(Limb(on.new.build.emit(node.op_type, (shape,), type_, {"value": one}), limb.window))
    return (Value(tuple(limbs), value.interval),)


RULES: dict[str, Rule] = {
    **dict.fromkeys(MOVES, moved),
    "Where": _where,
    "Shape": _measured,
    "Size": _measured,
    "ConstantOfShape": _filled,
}
