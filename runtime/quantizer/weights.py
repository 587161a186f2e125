"""Weights: which constant an operand is, also after nodes that only bring a constant into another form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays import casting
from graphcore.arrays.casting import Array
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Step: TypeAlias = "tuple[str, Any]"

_FORMS = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that bring a constant into another form."""

HELD = (DType.float32, DType.float16, DType.bfloat16, DType.tensor_float32)
"""Floats of which nothing is lost in float32, which is what weights are encoded from."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant and what is done to it on the way to where it is read.

    root: the constant, in the graph that it is a constant of. steps: in order. through: the nodes on the way.
    """

    root: Symbol
    steps: tuple[Step, ...]
    through: tuple[Node, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Return a key, equal for weights that are the same array in the end."""
        return (id(self.root), *self.steps)

    def then(self, *steps: Step) -> Weight:
        """Return the weight with more done to it; what is undone again is left out."""
        made = list(self.steps)
        for step in steps:
            if step[0] == "transpose":
                perm = step[1]
                if made and made[-1][0] == "transpose":
                    before = made.pop()[1]
                    perm = tuple(before[axis] for axis in perm)
                if perm != tuple(range(len(perm))):
                    made.append(("transpose", perm))
            else:
                made.append(step)
        return Weight(self.root, tuple(made), self.through)

    def array(self) -> Array:
        """Return the array in the end."""
        assert isinstance(self.root.producer, Constant)
        array, dtype = self.root.producer.array, self.root.dtype
        for kind, value in self.steps:
            if kind == "transpose":
                array = array.transpose(value)
            elif kind == "reshape":
                array = array.reshape(value)
            elif kind == "scale":
                array = (array.astype(np.float32) * np.float32(value)).astype(array.dtype)
            else:
                array, dtype = casting.cast_array(array, dtype, value), value
        return np.ascontiguousarray(array)


def weight_of(symbol: Symbol | None) -> Weight | None:
    """Return the constant of floats that an operand is; None for anything else."""
    if symbol is None or not isinstance(symbol.type, TensorType) or not symbol.dtype.is_float:
        return None
    steps: list[Step] = []
    through: list[Node] = []
    while not isinstance(producer := symbol.producer, Constant):
        if isinstance(producer, Captured):
            symbol = producer.symbol
            continue
        if not isinstance(producer, Node) or producer.domain or producer.op_type not in _FORMS:
            return None
        first = producer.inputs[0]
        if first is None or not isinstance(first.type, TensorType) or not first.dtype.is_float:
            return None
        if not symbol.shape.is_static or not first.shape.is_static:
            return None
        steps += _steps(producer, first, symbol)
        through.append(producer)
        symbol = first
    return Weight(symbol, (), tuple(through)).then(*reversed(steps))


def _steps(node: Node, operand: Symbol, result: Symbol) -> list[Step]:
    if node.op_type == "Cast":
        return [("cast", result.dtype)]
    if node.op_type == "Identity":
        return []
    if node.op_type == "Transpose":
        return [("transpose", tuple(node.attributes.get("perm", range(operand.rank)[::-1])))]
    shape = tuple(result.shape.static_dims)
    return [] if shape == tuple(operand.shape.static_dims) else [("reshape", shape)]
