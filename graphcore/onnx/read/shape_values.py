"""Dims that follow from the shapes that a model computes: see `graphcore.ir.transform.shape_values`.

ONNX's inference tells the rank alone of `Reshape(x, Concat(Gather(Shape(x), 0), [-1, 64]))`. Here the results that such
vectors shape get their dims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.onnx.read.slice_shapes import CUTS, WINDOWS, left, parts
from graphcore.operators.shapes.call import Size, dim_of, size_of
from graphcore.operators.shapes.elementwise import joint_dims
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

_UNKNOWN = Dim.dynamic()


class Sizes(ShapeValues):
    """The values of a graph's integer tensors, found when asked for, and the dims that follow from them."""

    def refined(
        self, op_type: str, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], types: list[Type]
    ) -> list[Type]:
        """The types of an operator's results, with the dims that what its operands hold tells."""
        fewest, rule = _SHAPES.get(op_type, (0, None))
        is_split = op_type == "Split"
        if (rule is None and not is_split) or len(inputs) < fewest or not inputs:
            return types
        try:
            made = None if rule is None else rule(self, inputs, attributes)
            each = parts(self, inputs, attributes) if is_split else [made] * (len(types) if op_type in _ALIKE else 1)
        except (ValueError, ArithmeticError):  # dims have bounds on how long they may become
            return types
        known = [] if each is None else each
        return [_refined(t, dims) for t, dims in zip(types, known, strict=False)] + types[len(known) :]


def _refined(type_: Type, made: Sequence[Dim] | None) -> Type:
    """Return the type with dims where it has none itself."""
    if made is None or not isinstance(type_, TensorType):
        return type_
    if type_.shape.is_ranked and (len(type_.shape) != len(made) or not any(d.is_dynamic for d in type_.shape)):
        return type_
    own = type_.shape if type_.shape.is_ranked else [_UNKNOWN] * len(made)
    dims = [new if old.is_dynamic else old for old, new in zip(own, made, strict=True)]
    return tensor_type(type_.dtype, _shape(dims))


# What operands hold tells of shapes


def _reshaped(sizes: Sizes, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> list[Dim] | None:
    x, target = inputs[0], sizes.of(inputs[1])
    if x is None or not isinstance(target, tuple):
        return None
    own = x.shape if isinstance(x.type, TensorType) and x.shape.is_ranked else None
    copies = not attributes.get("allowzero")
    chosen: list[Size] = []
    for axis, size in enumerate(target):
        is_copy = size == 0 and isinstance(size, int) and copies
        kept = size_of(own[axis]) if own is not None and axis < len(own) else None
        chosen.append(kept if is_copy else size)
    open_axes = [i for i, size in enumerate(chosen) if size is None or size == -1]
    dims = [dim_of(size) for size in chosen]
    if len(open_axes) == 1 and own is not None:
        dims[open_axes[0]] = left(own, [d for i, d in enumerate(dims) if i != open_axes[0]])
    return dims


def _expanded(sizes: Sizes, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> list[Dim] | None:
    x, target = inputs[0], sizes.of(inputs[1])
    if x is None or not isinstance(target, tuple) or not isinstance(x.type, TensorType) or not x.shape.is_ranked:
        return None
    return joint_dims([x.shape, [dim_of(size) for size in target]])


def _counted(sizes: Sizes, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> list[Dim] | None:
    start, limit, delta = (sizes.of(s) for s in inputs)
    if delta != 1 or start is None or limit is None or isinstance(start, tuple) or isinstance(limit, tuple):
        return None
    return [Dim.maximum(Dim(0) + limit - start, 0)]


def _constant(sizes: Sizes, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> list[Dim] | None:
    target = sizes.of(inputs[0])
    return [dim_of(size) for size in target] if isinstance(target, tuple) else None


def _flattened(sizes: Sizes, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> list[Dim] | None:
    (x,) = inputs
    if x is None or not isinstance(x.type, TensorType) or not x.shape.is_ranked:
        return None
    axis = attributes.get("axis", 1)
    if not -len(x.shape) <= axis <= len(x.shape):
        return None
    return [math.prod(dims, start=Dim(1)) for dims in ([*x.shape][:axis], [*x.shape][axis:])]


_ShapeRule: TypeAlias = "Callable[[Sizes, Sequence[Symbol | None], Mapping[str, Any]], list[Dim] | None]"

_SHAPES: dict[str, tuple[int, _ShapeRule]] = {
    "Reshape": (2, _reshaped),
    "Expand": (2, _expanded),
    "Flatten": (1, _flattened),
    "Range": (3, _counted),
    "ConstantOfShape": (1, _constant),
    **CUTS,
    **WINDOWS,
}
"""By operator: the operands that the rule needs (older opsets may have attributes instead), and the rule."""

_ALIKE = frozenset({"MaxPool", "TopK"})
"""Operators whose results have all the same dims."""
