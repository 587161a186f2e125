"""Dims that follow from the shapes that a model computes: see `graphcore.ir.transform.shape_values`.

ONNX's inference tells the rank alone of `Reshape(x, Concat(Gather(Shape(x), 0), [-1, 64]))`. Here the results that such
vectors shape get their dims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.onnx.read.slice_shapes import WINDOWS
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

_UNKNOWN = Dim.dynamic()


class Sizes(ShapeValues):
    """The values of a graph's integer tensors, found when asked for, and the dims that follow from them."""

    def refined(
        self, op_type: str, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], types: list[Type]
    ) -> list[Type]:
        """The types of an operator's results, with the dims that what its operands hold tells."""
        fewest, rule = WINDOWS.get(op_type, (0, None))
        if rule is None or len(inputs) < fewest or not inputs:
            return types
        try:
            made = rule(self, inputs, attributes)
        except (ValueError, ArithmeticError):  # dims have bounds on how long they may become
            return types
        return [_refined(t, made) for t in types]


def _refined(type_: Type, made: Sequence[Dim] | None) -> Type:
    """Return the type with dims where it has none itself."""
    if made is None or not isinstance(type_, TensorType):
        return type_
    if type_.shape.is_ranked and (len(type_.shape) != len(made) or not any(d.is_dynamic for d in type_.shape)):
        return type_
    own = type_.shape if type_.shape.is_ranked else [_UNKNOWN] * len(made)
    dims = [new if old.is_dynamic else old for old, new in zip(own, made, strict=True)]
    return tensor_type(type_.dtype, _shape(dims))
