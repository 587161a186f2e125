"""Weights: the constant behind an operand, also through nodes that only transform a constant.

Integers of few bits are weights too if the file itself dequantises them, by DequantizeLinear or by Cast and Mul or Div.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays import casting
from graphcore.arrays.casting import Array
from graphcore.errors import GraphError
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.walk import constant_array, node_of
from graphcore.operators import Trait, having
from graphcore.quantization import ENCODINGS, QuantizedTensor, encode
from graphcore.support.escaping import suggestion
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Step: TypeAlias = "tuple[str, Any]"

_FORMS = having(Trait.VIEWS) | {"Cast", "Identity", "Transpose"}
"""Operators that transform a constant."""

_ARITHMETIC = frozenset({"Add", "Div", "Mul", "Sub"})
"""Operators that apply scales and zero points."""

_HELD_IN_BITS = (DType.int8, DType.uint8, DType.int4, DType.uint4)

HELD = (DType.float32, DType.float16, DType.bfloat16, DType.tensor_float32)
"""Floats that convert to float32 exactly: weights are encoded from float32."""


@dataclass(frozen=True, slots=True)
class StepOperand:
    """The other operand of a step: a constant, identified by its Symbol."""

    number: int
    array: Array = field(compare=False)


@dataclass(frozen=True, slots=True)
class TransformedWeight:
    """A constant and the steps that transform it before it is read.

    root: the constant, in the graph that it is a constant of. steps: in order. through: the nodes on the way.
    """

    root: Symbol
    steps: tuple[Step, ...]
    through: tuple[Node, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is equal for weights with the same final array."""
        return (id(self.root), *self.steps)

    def then(self, *steps: Step) -> TransformedWeight:
        """Return the weight with another step; two inverse steps cancel."""
        all_steps = list(self.steps)
        for step in steps:
            if step[0] == "transpose":
                perm = step[1]
                if all_steps and all_steps[-1][0] == "transpose":
                    before = all_steps.pop()[1]
                    perm = tuple(before[axis] for axis in perm)
                if perm != tuple(range(len(perm))):
                    all_steps.append(("transpose", perm))
            else:
                all_steps.append(step)
        return TransformedWeight(self.root, tuple(all_steps), self.through)

    def array(self) -> Array:
        """Return the final array."""
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


def weight_of(symbol: Symbol | None) -> TransformedWeight | None:
    """Return the float constant of an operand; None for other operands."""
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
    return TransformedWeight(symbol, (), tuple(through)).then(*reversed(steps))


def _computed(node: Node) -> tuple[Symbol, Step] | None:
    """Return the operand that is the weight, and its step, for a node that applies a scale or zero point."""
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
    """Return True if a float comes from numbers of few bits."""
    producer = symbol.producer
    if not isinstance(producer, Node) or producer.domain or not producer.inputs or producer.inputs[0] is None:
        return False
    if producer.op_type == "Cast":
        return producer.inputs[0].dtype in _HELD_IN_BITS
    follows = producer.op_type in _FORMS | _ARITHMETIC
    return follows and any(s is not None and _is_held(s) for s in producer.inputs)


def _constant(symbol: Symbol | None) -> StepOperand | None:
    """Return a constant, also one that is cast."""
    if symbol is None:
        return None
    array = constant_array(symbol, weights=True, outer=True)
    if array is not None:
        return StepOperand(id(symbol), array)
    cast = node_of(symbol, "Cast")
    source = None if cast is None else cast.inputs[0]
    inner = _constant(source)
    if inner is None or source is None:
        return None
    return StepOperand(id(symbol), casting.cast_array(inner.array, source.dtype, symbol.dtype))


def _dequantized(array: Array, scale: StepOperand, *rest: Any) -> Array:
    """Subtract zero points from numbers and multiply them with scales, of an axis or of the whole array."""
    *zero, axis = rest
    wide = [array.astype(np.float32), scale.array, *(z.array.astype(np.float32) for z in zero)]
    shape = [1] * array.ndim
    if scale.array.size > 1:
        shape[axis] = -1
    x, factor, *least = [wide[0], *(a.reshape(shape) if a.size > 1 else a.reshape(()) for a in wide[1:])]
    scaled: Array = (x - least[0] if least else x) * factor
    return scaled


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


# Schemes of quantisation: an encoding, its options, and how a product reads it.


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to quantise the matrices of a graph.

    encoding: of `graphcore.quantization`. is_dynamic: the other operand is quantised too, when the graph runs, to
    `digits` digits of int8. symmetric: the default; None where the encoding decides. channels, blocks: whether the
    scheme has a scale for each output, and blocks of a size that can be chosen.
    """

    name: str
    encoding: str
    is_dynamic: bool = False
    symmetric: bool | None = None
    channels: bool = False
    blocks: bool = False
    digits: int = 1


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        scheme.name: scheme
        for scheme in (
            Scheme("int8_dynamic", "int8", is_dynamic=True, symmetric=True, channels=True),
            Scheme("int8_dynamic16", "int8", is_dynamic=True, symmetric=False, channels=True, digits=2),
            Scheme("int8", "int8", symmetric=True, channels=True),
            Scheme("int8_split", "int8_split", is_dynamic=True, channels=True),
            Scheme("int4", "int4", symmetric=False, blocks=True),
            Scheme("q4_0", "q4_0"),
            Scheme("q4_k", "q4_k"),
            Scheme("q5_k", "q5_k"),
            Scheme("q6_k", "q6_k"),
        )
    }
)
"""Every scheme by name."""

BLOCK_SIZES = (128, 64, 32)
"""Candidate block sizes if none is given: larger blocks need fewer bits, and make products faster."""

MAX_ERROR = 0.11
"""Maximum error of a quantised weight relative to its length, for blocks larger than necessary."""


@dataclass(frozen=True, slots=True)
class Choices:
    """A scheme with its options.

    block_size: None of a scheme with blocks chooses for each weight: the largest whose error is within `MAX_ERROR`,
    or the smallest.
    """

    scheme: Scheme
    block_size: int | None
    per_channel: bool
    symmetric: bool
    reduce_range: bool
    accuracy_level: int
    search: bool

    def encoded(self, matrix: Array) -> QuantizedTensor:
        """Return a matrix [n, k] in the encoding. Raises what `encode` does for one that it does not take."""
        scheme = self.scheme
        if scheme.encoding == "int8":
            axis = 0 if self.per_channel else None
            return encode(matrix, "int8", axis=axis, symmetric=self.symmetric, reduce_range=self.reduce_range)
        if scheme.encoding == "int8_split":
            return encode(matrix, "int8_split", axis=0 if self.per_channel else None)
        if scheme.encoding == "int4":
            return self._in_blocks(matrix)
        return encode(matrix, scheme.encoding)

    def _in_blocks(self, matrix: Array) -> QuantizedTensor:
        sizes = [size for size in BLOCK_SIZES[:-1] if not matrix.shape[-1] % size] if self.block_size is None else []
        for size in sizes:
            weight = encode(matrix, "int4", block_size=size, symmetric=self.symmetric, search=self.search)
            if distance(matrix, weight.dequantize()) <= MAX_ERROR:
                return weight
        size = BLOCK_SIZES[-1] if self.block_size is None else self.block_size
        return encode(matrix, "int4", block_size=size, symmetric=self.symmetric, search=self.search)

    def shares_rows(self, is_multiplied: bool) -> bool:
        """Return True if a table of rows has the encoding of a product's matrix, so that one array serves both.

        is_multiplied: whether the table is also such a matrix. A table that is not has 8 bits where the scheme has 4.
        """
        if self.scheme.encoding == "int4":
            return is_multiplied
        return self.scheme.encoding == "int8" and self.per_channel and self.symmetric and not self.reduce_range

    @property
    def has_two_forms(self) -> bool:
        """Return True if products have another form for many rows than for few."""
        return ENCODINGS[self.scheme.encoding].bits == 4 and self.accuracy_level == 4


def distance(array: Array, other: Array) -> float:
    """Return the length of the difference of two matrices over the length of the first."""
    exact = array.astype(np.float32, copy=False)
    length = float(np.linalg.norm(exact))
    return float(np.linalg.norm(other - exact)) / length if length else 0.0


def choices(
    scheme: object,
    block_size: int | None,
    per_channel: bool,
    symmetric: bool | None,
    reduce_range: bool,
    accuracy_level: int | None,
    search: bool,
    large_blocks: bool = False,
) -> Choices:
    """Return the scheme of a name, with its options.

    large_blocks: choose the size of blocks for each weight if `block_size` is None.
    Raises `GraphError` for a name or an option that does not exist.
    """
    row = SCHEMES.get(scheme) if isinstance(scheme, str) else None
    if row is None:
        raise GraphError(
            f"quantize: there is no scheme {scheme!r:.80}",
            help=f"{suggestion(scheme, SCHEMES)}use one of {', '.join(SCHEMES)}",
        )
    size = block_size
    if row.blocks:
        size = BLOCK_SIZES[-1] if block_size is None and not large_blocks else block_size
        if size is not None and (type(size) is not int or size < 16 or size & size - 1):
            raise GraphError(
                f"quantize: block_size must be a power of two of at least 16, got {block_size!r:.80}",
                help="use 32, 64 or 128",
            )
    elif block_size is not None:
        raise GraphError(f"quantize: scheme {row.name!r} does not take block_size", help="leave it out")
    if not row.channels and not per_channel:
        raise GraphError(
            f"quantize: scheme {row.name!r} has a scale for each block, and takes no per_channel", help="leave it out"
        )
    if symmetric is not None and row.symmetric is None:
        raise GraphError(
            f"quantize: scheme {row.name!r} takes no symmetric: its format defines whether it has minima",
            help="leave it out",
        )
    level = (0 if row.is_dynamic else 4) if accuracy_level is None else accuracy_level
    if type(level) is not int or level not in (0, 4) or (row.is_dynamic and level):
        raise GraphError(
            f"quantize: scheme {row.name!r} does not take accuracy_level={accuracy_level!r:.80}",
            help="leave it out" if row.is_dynamic else "use 0 for products in float32, or 4 for faster kernels",
        )
    is_symmetric = bool(row.symmetric) if symmetric is None else bool(symmetric)
    if reduce_range and (row.encoding != "int8" or not is_symmetric):
        raise GraphError(
            f"quantize: reduce_range applies to symmetric int8, not to {row.name!r} with symmetric={is_symmetric}",
            help="leave it out",
        )
    return Choices(row, size, bool(per_channel), is_symmetric, bool(reduce_range), level, bool(search))
