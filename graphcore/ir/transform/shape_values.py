"""The values of small integer tensors of a graph, in numbers and dims: the shapes that a model computes.

Exporters write `Reshape(x, Concat(Gather(Shape(x), 0), [-1, 64]))`. Here every element of such a vector is an int, a
dim, or not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays.evaluate import FOLDED, folded
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.operators.shapes.call import Size, Value, size_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

DOMAINS = frozenset({"", "graphcore"})
"""The domains that rules are of: no operator of the library contradicts one of ONNX of its name."""

_LONGEST = 32
_DTYPES = frozenset({DType.int64, DType.int32, DType.bool})
_DEEPEST = 64
"""Nodes in a row that are followed."""


class ShapeValues:
    """The values of a graph's integer tensors, found when asked for."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Symbol, Value]] = {}
        self._arrays: dict[int, tuple[Symbol, np.ndarray[Any, Any] | None]] = {}  # of matrices and more

    def of(self, symbol: Symbol | None, depth: int = 0) -> Value:
        """Return what a scalar or short vector of integers or bools holds; None where that is not known at all."""
        type_ = None if symbol is None else symbol.type
        if symbol is None or not isinstance(type_, TensorType) or type_.dtype not in _DTYPES:
            return None
        if not type_.shape.is_ranked or len(type_.shape) > 1 or depth > _DEEPEST:
            return None
        held = self._found.get(id(symbol))
        if held is None:
            held = self._found[id(symbol)] = symbol, self._read(symbol, type_, depth)
        return held[1]

    def _read(self, symbol: Symbol, type_: TensorType, depth: int) -> Value:
        producer = symbol.producer
        if isinstance(producer, Captured):
            return self.of(producer.symbol, depth)
        if isinstance(producer, Constant):
            return _of_array(producer.array)
        if not isinstance(producer, Node) or producer.domain not in DOMAINS:
            return None
        if producer.op_type == "Shape":
            return _shape_of(producer)
        rule = VALUES.get(producer.op_type)
        made = None
        if rule is not None:
            made = rule([self.of(s, depth + 1) for s in producer.inputs], producer.attributes, type_)
        if made is None:
            array = self._folded(producer, type_, depth)
            made = None if array is None else _of_array(array)
        return None if isinstance(made, tuple) and len(made) > _LONGEST else made

    def _folded(self, node: Node, type_: TensorType, depth: int) -> np.ndarray[Any, Any] | None:
        """Return what a node gives that follows from small constants alone, of any rank."""
        if node.op_type not in FOLDED or type_.dtype not in _DTYPES or not type_.shape.is_static:
            return None
        arrays = [None if s is None else self._array(s, depth + 1) for s in node.inputs]
        if any(a is None and s is not None for a, s in zip(arrays, node.inputs, strict=True)):
            return None
        dtypes = [None if s is None else s.dtype for s in node.inputs]
        return folded(node.op_type, arrays, dtypes, node.attributes, type_, _LONGEST * 8)

    def _array(self, symbol: Symbol, depth: int) -> np.ndarray[Any, Any] | None:
        producer, type_ = symbol.producer, symbol.type
        if isinstance(producer, Constant):
            return producer.array if producer.array.size <= _LONGEST else None
        if not isinstance(producer, Node) or producer.domain not in DOMAINS:
            return None
        if not isinstance(type_, TensorType) or depth > _DEEPEST:
            return None
        if type_.shape.is_ranked and len(type_.shape) < 2:
            value = self.of(symbol, depth)
            sizes = value if isinstance(value, tuple) else (value,)
            return np.array(value, type_.dtype.numpy) if all(isinstance(size, int) for size in sizes) else None
        held = self._arrays.get(id(symbol))
        if held is None:
            held = self._arrays[id(symbol)] = symbol, self._folded(producer, type_, depth)
        return held[1]


def _of_array(array: np.ndarray[Any, Any]) -> Value:
    if array.ndim == 0:
        return int(array)
    return tuple(array.tolist()) if array.ndim == 1 and array.size <= _LONGEST else None


def _shape_of(node: Node) -> Value:
    operand = node.inputs[0]
    if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_ranked:
        return None
    dims = [*operand.shape][node.attributes.get("start", 0) : node.attributes.get("end")]
    return tuple([size_of(d) for d in dims])


# What operators make of values

_Rule: TypeAlias = "Callable[[list[Value], Mapping[str, Any], TensorType], Value]"


def _same(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
    return values[0]


def _flat(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
    """Squeeze, Unsqueeze and Reshape: a scalar becomes a vector of it, or a vector of one element the element."""
    (value, *_) = values
    if value is None:
        return None
    if len(result.shape) == 1:
        return value if isinstance(value, tuple) else (value,)
    return value if not isinstance(value, tuple) else value[0] if len(value) == 1 else None


def _joined(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
    parts = [v for v in values if isinstance(v, tuple)]
    return tuple([size for part in parts for size in part]) if len(parts) == len(values) else None


def _gathered(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
    vector, places = values
    if not isinstance(vector, tuple) or places is None:
        return None

    def at(place: Size) -> Size:
        return vector[place] if isinstance(place, int) and -len(vector) <= place < len(vector) else None

    return tuple([at(p) for p in places]) if isinstance(places, tuple) else at(places)


def _sliced(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
    vector, starts, ends, _, steps = (*values, None, None)[:5]
    given = [_only(starts), _only(ends), 1 if steps is None else _only(steps)]
    if not isinstance(vector, tuple) or not all(isinstance(v, int) for v in given):
        return None
    start, end, step = given
    return vector[start:end:step] if isinstance(step, int) and step > 0 else None


def _only(value: Value) -> Size:
    return value[0] if isinstance(value, tuple) and len(value) == 1 else None


def _filled(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
    (length,) = values
    value = attributes.get("value")
    held = 0 if value is None else int(np.asarray(value).reshape(-1)[0])
    if length == ():
        return held
    count = _only(length)
    return (held,) * count if isinstance(count, int) and 0 <= count <= _LONGEST else None


def _by_element(function: Callable[..., Size]) -> _Rule:
    def apply(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
        lengths = {len(v) for v in values if isinstance(v, tuple)} - {1}
        if any(v is None for v in values) or len(lengths) > 1:
            return None
        if not any(isinstance(v, tuple) for v in values):
            return function(*values)
        count = max(lengths, default=1)
        columns = [v if isinstance(v, tuple) and len(v) == count else _repeated(v, count) for v in values]
        return tuple([function(*sizes) for sizes in zip(*columns, strict=True)])

    return apply


def _repeated(value: Value, count: int) -> tuple[Size, ...]:
    return (value[0] if isinstance(value, tuple) else value,) * count


def _arithmetic(function: Callable[[Any, Any], Any]) -> _Rule:
    def computed(a: Size, b: Size) -> Size:
        if a is None or b is None:
            return None
        try:
            made = function(a, b)
        except (ArithmeticError, ValueError):  # dims have bounds on how long they may become
            return None
        return size_of(made) if isinstance(made, Dim) else made

    return _by_element(computed)


def _quotient(a: int | Dim, b: int | Dim) -> int | Dim | None:
    """ONNX truncates, which for numbers that are not negative is what dims do."""
    return a // b if _least(a) >= 0 and _least(b) > 0 else None


def _floor(a: int | Dim, b: int | Dim) -> int | Dim | None:
    """The library's FloorDiv, by which a quotient by 0 is 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else 0
    return _quotient(a, b)


def _least(size: int | Dim) -> int:
    bound = size if isinstance(size, int) else size.lower_bound
    return -1 if bound is None else bound


def _equal(a: Size, b: Size) -> Size:
    if a is None or b is None:
        return None
    if a == b:
        return 1
    both = isinstance(a, int) and isinstance(b, int)
    never = (isinstance(a, int) and a < _least(b)) or (isinstance(b, int) and b < _least(a))
    return 0 if both or never else None


def _chosen(test: Size, a: Size, b: Size) -> Size:
    if isinstance(test, int):
        return a if test else b
    return a if a is not None and a == b else None


def _multiplied(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
    """ReduceProd of a whole vector."""
    (value, *_) = values
    if not isinstance(value, tuple) or any(size is None for size in value):
        return None
    try:
        total = size_of(math.prod([Dim(size) for size in value if size is not None], start=Dim(1)))
    except ValueError:  # dims have bounds on how long they may become, and none is below 0
        return None
    return (total,) if len(result.shape) == 1 else total


VALUES: dict[str, _Rule] = {
    "ReduceProd": _multiplied,
    "Identity": _same,
    "Cast": lambda values, attributes, result: None if result.dtype is DType.bool else values[0],
    "Squeeze": _flat,
    "Unsqueeze": _flat,
    "Reshape": _flat,
    "Concat": _joined,
    "Gather": _gathered,
    "Slice": _sliced,
    "ConstantOfShape": _filled,
    "Add": _arithmetic(lambda a, b: a + b),
    "Sub": _arithmetic(lambda a, b: a - b),
    "Mul": _arithmetic(lambda a, b: a * b),
    "Div": _arithmetic(_quotient),
    "FloorDiv": _arithmetic(_floor),
    "Max": _arithmetic(lambda a, b: max(a, b) if isinstance(a, int) and isinstance(b, int) else Dim.maximum(a, b)),
    "Min": _arithmetic(lambda a, b: min(a, b) if isinstance(a, int) and isinstance(b, int) else Dim.minimum(a, b)),
    "Equal": _by_element(_equal),
    "Where": _by_element(_chosen),
}
"""The rules of what operators make of sizes, by operator; what follows from constants alone `FOLDED` has too."""
