"""Weights: which constant an operand is, also after nodes that only bring a constant into another form.

Numbers of few bits that a file itself makes floats of, by DequantizeLinear or by Cast and Mul or Div, are weights too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays import casting
from graphcore.arrays.casting import Array
from graphcore.ir.constants import constant_array
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.operators import Trait, having
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Step: TypeAlias = "tuple[str, Any]"

_FORMS = having(Trait.VIEWS) | {"Cast", "Identity", "Transpose"}
"""Operators that bring a constant into another form."""

_ARITHMETIC = frozenset({"Add", "Div", "Mul", "Sub"})
"""Operators by which scales and zero points are applied."""

_HELD_IN_BITS = (DType.int8, DType.uint8, DType.int4, DType.uint4)

HELD = (DType.float32, DType.float16, DType.bfloat16, DType.tensor_float32)
"""Floats of which nothing is lost in float32, which is what weights are encoded from."""


@dataclass(frozen=True, slots=True)
class Operand:
    """The other operand of a step: a constant, told from others by the Symbol that it is."""

    number: int
    array: Array = field(compare=False)


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
            elif kind in _COMPUTED:
                array, dtype = _COMPUTED[kind](array, *value), DType.float32
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
        if not isinstance(producer, Node) or producer.domain:
            return None
        computed = _computed(producer)
        if computed is not None:
            symbol, step = computed
            steps.append(step)
            through.append(producer)
            continue
        if producer.op_type not in _FORMS:
            return None
        first = producer.inputs[0]
        if first is None or not isinstance(first.type, TensorType):
            return None
        if not first.dtype.is_float and (producer.op_type != "Cast" or first.dtype not in _HELD_IN_BITS):
            return None
        if not symbol.shape.is_static or not first.shape.is_static:
            return None
        steps += _steps(producer, first, symbol)
        through.append(producer)
        symbol = first
    return Weight(symbol, (), tuple(through)).then(*reversed(steps))


def _computed(node: Node) -> tuple[Symbol, Step] | None:
    """Return the operand that is the weight, and what is done to it, where a scale or zero point is applied."""
    if node.op_type == "DequantizeLinear":
        first, *rest = node.inputs
        numbers = [_constant(s) for s in rest]
        if first is None or any(a is None for a in numbers) or node.attributes.get("block_size", 0):
            return None
        if first.dtype not in _HELD_IN_BITS or node.outputs[0].dtype is not DType.float32:
            return None
        axis = node.attributes.get("axis", 1)
        return first, ("dequantized", (*[a for a in numbers if a is not None], axis))
    if node.op_type not in _ARITHMETIC or len(node.inputs) != 2 or node.outputs[0].dtype is not DType.float32:
        return None
    for place, symbol in enumerate(node.inputs):
        other = _constant(node.inputs[1 - place])
        if symbol is None or other is None or (place and node.op_type in ("Div", "Sub")):
            continue
        if isinstance(symbol.type, TensorType) and symbol.type.shape == node.outputs[0].shape and _is_held(symbol):
            return symbol, (node.op_type, (other,))
    return None


def _is_held(symbol: Symbol) -> bool:
    """Return whether a float comes from numbers of few bits."""
    producer = symbol.producer
    if not isinstance(producer, Node) or producer.domain or not producer.inputs or producer.inputs[0] is None:
        return False
    if producer.op_type == "Cast":
        return producer.inputs[0].dtype in _HELD_IN_BITS
    follows = producer.op_type in _FORMS | _ARITHMETIC
    return follows and any(s is not None and _is_held(s) for s in producer.inputs)


def _constant(symbol: Symbol | None) -> Operand | None:
    """Return a constant, also one that is cast."""
    if symbol is None:
        return None
    found = constant_array(symbol, weights=True, outer=True)
    if found is not None:
        return Operand(id(symbol), found)
    producer = symbol.producer
    if isinstance(producer, Node) and producer.op_type == "Cast" and not producer.domain:
        inner = _constant(producer.inputs[0])
        source = producer.inputs[0]
        if inner is not None and source is not None:
            return Operand(id(symbol), casting.cast_array(inner.array, source.dtype, symbol.dtype))
    return None


def _dequantized(array: Array, scale: Operand, *rest: Any) -> Array:
    """Return numbers less their zero points, times their scales, which are those of an axis or of all."""
    *zero, axis = rest
    wide = [array.astype(np.float32), scale.array, *(z.array.astype(np.float32) for z in zero)]
    shape = [1] * array.ndim
    if scale.array.size > 1:
        shape[axis] = -1
    x, factor, *least = [wide[0], *(a.reshape(shape) if a.size > 1 else a.reshape(()) for a in wide[1:])]
    made: Array = (x - least[0] if least else x) * factor
    return made


_COMPUTED: dict[str, Callable[..., Array]] = {
    "dequantized": _dequantized,
    "Add": lambda array, other: array + other.array,
    "Div": lambda array, other: array / other.array,
    "Mul": lambda array, other: array * other.array,
    "Sub": lambda array, other: array - other.array,
}


def _steps(node: Node, operand: Symbol, result: Symbol) -> list[Step]:
    if node.op_type == "Cast":
        return [("cast", result.dtype)]
    if node.op_type == "Identity":
        return []
    if node.op_type == "Transpose":
        return [("transpose", tuple(node.attributes.get("perm", range(operand.rank)[::-1])))]
    shape = tuple(result.shape.static_dims)
    return [] if shape == tuple(operand.shape.static_dims) else [("reshape", shape)]
