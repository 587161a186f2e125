"""Symbolic values of small integer tensors in a graph: the shapes that a model computes.

Exporters write `Reshape(x, Concat(Gather(Shape(x), 0), [-1, 64]))`. Each element of such a vector is evaluated to an
int, a dim, or None if it is unknown.
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
"""The domains of the rules: operators of the library with a name of ONNX have the same meaning."""

_MAX_LENGTH = 32
_DTYPES = frozenset({DType.int64, DType.int32, DType.bool})
_MAX_DEPTH = 64
"""The maximum length of a chain of nodes that is evaluated."""


class ShapeValues:
    """The values of a graph's integer tensors, evaluated on demand."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[Symbol, Value]] = {}
        self._arrays: dict[int, tuple[Symbol, np.ndarray[Any, Any] | None]] = {}  # of rank 2 and more

    def of(self, symbol: Symbol | None, depth: int = 0) -> Value:
        """Return the value of a scalar or short vector of integers or bools; None if it is unknown."""
        type_ = None if symbol is None else symbol.type
        if symbol is None or not isinstance(type_, TensorType) or type_.dtype not in _DTYPES:
            return None
        if not type_.shape.is_ranked or len(type_.shape) > 1 or depth > _MAX_DEPTH:
            return None
        entry = self._values.get(id(symbol))
        if entry is None:
            entry = self._values[id(symbol)] = symbol, self._read(symbol, type_, depth)
        return entry[1]

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
        value = None
        if rule is not None:
            value = rule([self.of(s, depth + 1) for s in producer.inputs], producer.attributes, type_)
        if value is None:
            array = self._folded(producer, type_, depth)
            value = None if array is None else _of_array(array)
        return None if isinstance(value, tuple) and len(value) > _MAX_LENGTH else value

    def _folded(self, node: Node, type_: TensorType, depth: int) -> np.ndarray[Any, Any] | None:
        """Return the result of a node on small constants, of any rank; None if it is not constant."""
        if node.op_type not in FOLDED or type_.dtype not in _DTYPES or not type_.shape.is_static:
            return None
        arrays = [None if s is None else self._array(s, depth + 1) for s in node.inputs]
        if any(a is None and s is not None for a, s in zip(arrays, node.inputs, strict=True)):
            return None
        dtypes = [None if s is None else s.dtype for s in node.inputs]
        return folded(node.op_type, arrays, dtypes, node.attributes, type_, _MAX_LENGTH * 8)

    def _array(self, symbol: Symbol, depth: int) -> np.ndarray[Any, Any] | None:
        producer, type_ = symbol.producer, symbol.type
        if isinstance(producer, Constant):
            return producer.array if producer.array.size <= _MAX_LENGTH else None
        if not isinstance(producer, Node) or producer.domain not in DOMAINS:
            return None
        if not isinstance(type_, TensorType) or depth > _MAX_DEPTH:
            return None
        if type_.shape.is_ranked and len(type_.shape) < 2:
            value = self.of(symbol, depth)
            sizes = value if isinstance(value, tuple) else (value,)
            return np.array(value, type_.dtype.numpy) if all(isinstance(size, int) for size in sizes) else None
        entry = self._arrays.get(id(symbol))
        if entry is None:
            entry = self._arrays[id(symbol)] = symbol, self._folded(producer, type_, depth)
        return entry[1]


def _of_array(array: np.ndarray[Any, Any]) -> Value:
    if array.ndim == 0:
        return int(array)
    return tuple(array.tolist()) if array.ndim == 1 and array.size <= _MAX_LENGTH else None


def _shape_of(node: Node) -> Value:
    operand = node.inputs[0]
    if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_ranked:
        return None
    dims = [*operand.shape][node.attributes.get("start", 0) : node.attributes.get("end")]
    return tuple([size_of(d) for d in dims])


# Rules by operator

_Rule: TypeAlias = "Callable[[list[Value], Mapping[str, Any], TensorType], Value]"


def _flat(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
    """Squeeze, Unsqueeze and Reshape between scalars and vectors of one element."""
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
    vector, indices = values
    if not isinstance(vector, tuple) or indices is None:
        return None

    def at(index: Size) -> Size:
        return vector[index] if isinstance(index, int) and -len(vector) <= index < len(vector) else None

    return tuple([at(p) for p in indices]) if isinstance(indices, tuple) else at(indices)


def _sliced(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
    vector, starts, ends, _, steps = (*values, None, None)[:5]
    bounds = [_only(starts), _only(ends), 1 if steps is None else _only(steps)]
    if not isinstance(vector, tuple) or not all(isinstance(v, int) for v in bounds):
        return None
    start, end, step = bounds
    return vector[start:end:step] if isinstance(step, int) and step > 0 else None


def _only(value: Value) -> Size:
    return value[0] if isinstance(value, tuple) and len(value) == 1 else None


def _filled(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
    (length,) = values
    value = attributes.get("value")
    fill = 0 if value is None else int(np.asarray(value).reshape(-1)[0])
    if length == ():
        return fill
    count = _only(length)
    return (fill,) * count if isinstance(count, int) and 0 <= count <= _MAX_LENGTH else None


def _by_element(function: Callable[..., Size]) -> _Rule:
    def apply(values: list[Value], attributes: Mapping[str, Any], result: TensorType) -> Value:
        lengths = {len(v) for v in values if isinstance(v, tuple)} - {1}
        if any(v is None for v in values) or len(lengths) > 1:
            return None
        if not any(isinstance(v, tuple) for v in values):
            return function(*values)
        count = max(lengths, default=1)
        vectors = [v if isinstance(v, tuple) else (v,) for v in values]
        columns = [v if len(v) == count else v * count for v in vectors]
        return tuple([function(*sizes) for sizes in zip(*columns, strict=True)])

    return apply


def _arithmetic(function: Callable[[Any, Any], Any]) -> _Rule:
    def computed(a: Size, b: Size) -> Size:
        if a is None or b is None:
            return None
        try:
            result = function(a, b)
        except (ArithmeticError, ValueError):  # the size of dim expressions is limited
            return None
        return size_of(result) if isinstance(result, Dim) else result

    return _by_element(computed)


def _quotient(a: int | Dim, b: int | Dim) -> int | Dim | None:
    """Div of ONNX truncates; `//` of dims does the same for non-negative numbers."""
    return a // b if _least(a) >= 0 and _least(b) > 0 else None


def _floor(a: int | Dim, b: int | Dim) -> int | Dim | None:
    """FloorDiv of the library, where division by 0 gives 0."""
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
    """ReduceProd of a vector."""
    (value, *_) = values
    if not isinstance(value, tuple) or any(size is None for size in value):
        return None
    try:
        total = size_of(math.prod([Dim(size) for size in value if size is not None], start=Dim(1)))
    except ValueError:  # the size of dim expressions is limited, and dims are not negative
        return None
    return (total,) if len(result.shape) == 1 else total


VALUES: dict[str, _Rule] = {
    "ReduceProd": _multiplied,
    "Identity": lambda values, attributes, result: values[0],
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
"""The rules that compute sizes, by operator. `FOLDED` has more operators, for constants alone."""
