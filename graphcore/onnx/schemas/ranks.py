"""Ranks of results that ONNX's inference does not tell: a file says the rank of each of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import onnx

from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, TensorType, Type, _shape, tensor_type

Given: TypeAlias = "Sequence[Symbol | None]"
Rule: TypeAlias = "Callable[[Given, Mapping[str, int]], Shape | None]"


def ranked(proto: onnx.NodeProto, position: int, type_: Type, inputs: Given) -> Type:
    """The type of a result, with its rank where the operator's definition has one."""
    if not isinstance(type_, TensorType) or type_.shape.is_ranked:
        return type_
    rule = _RULES.get(proto.op_type)
    if rule is None:
        return type_
    rules = rule if isinstance(rule, tuple) else (rule,)
    shape = rules[min(position, len(rules) - 1)](inputs, {a.name: a.i for a in proto.attribute})
    return type_ if shape is None else tensor_type(type_.dtype, shape)


def _unknown(rank: int) -> Shape:
    return _shape([Dim.dynamic()] * rank)


def _of(inputs: Given, position: int) -> Shape | None:
    """The shape of an operand, where its rank is known."""
    operand = inputs[position] if position < len(inputs) else None
    if operand is None or not isinstance(operand.type, TensorType) or not operand.type.shape.is_ranked:
        return None
    return operand.type.shape


def _length(inputs: Given, position: int) -> int | None:
    """Return how long an operand is that is a vector."""
    shape = _of(inputs, position)
    return int(shape[0]) if shape is not None and shape.rank == 1 and shape[0].is_static else None


def _always(rank: int) -> Rule:
    return lambda inputs, attributes: _unknown(rank)


def _same(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
    return _of(inputs, 0)


def _alike(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
    """Of the rank of the first operand."""
    shape = _of(inputs, 0)
    return None if shape is None else _unknown(shape.rank)


def _as_long(position: int) -> Rule:
    """Of a rank that is the length of an operand."""

    def rule(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
        length = _length(inputs, position)
        return None if length is None else _unknown(length)

    return rule


def _expanded(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
    shape, length = _of(inputs, 0), _length(inputs, 1)
    return None if shape is None or length is None else _unknown(max(shape.rank, length))


def _with_axes(sign: int) -> Rule:
    """As many axes more or fewer as the second operand names."""

    def rule(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
        shape, count = _of(inputs, 0), _length(inputs, 1)
        return (
            None
            if shape is None or count is None or shape.rank + sign * count < 0
            else _unknown(shape.rank + sign * count)
        )

    return rule


def _reduced(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
    if attributes.get("keepdims", 1):
        return _alike(inputs, attributes)
    return _with_axes(-1)(inputs, attributes) if _length(inputs, 1) else None


_RULES: dict[str, Rule | tuple[Rule, ...]] = {
    "ConstantOfShape": _as_long(0),
    "Expand": _expanded,
    "Reshape": _as_long(1),
    "Squeeze": _with_axes(-1),
    "Unsqueeze": _with_axes(1),
    **dict.fromkeys(
        """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
        ReduceSumSquare""".split(),
        _reduced,
    ),
    **dict.fromkeys("CenterCropPad Pad Resize Slice Split Tile".split(), _alike),
    **dict.fromkeys("GroupNormalization Imputer MeanVarianceNormalization Normalizer Scaler".split(), _same),
    **dict.fromkeys("BlackmanWindow HammingWindow HannWindow".split(), _always(1)),
    **dict.fromkeys("FeatureVectorizer LinearRegressor MelWeightMatrix SVMRegressor".split(), _always(2)),
    "SVMClassifier": (_always(1), _always(2)),
    "STFT": _always(4),
}
"""By operator, or by operator and result."""
