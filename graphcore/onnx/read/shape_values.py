"""Shapes that a model computes: what its small integer tensors hold, in dims.

Exporters write `Reshape(x, Concat(Gather(Shape(x), 0), [-1, 64]))`, of which ONNX's inference tells the rank alone.
Here every element of such a vector is an int, a dim, or not known, and the results that it shapes get their dims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays.evaluate import FOLDED, folded
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.onnx.read.slice_shapes import CUTS, Size, Value, left, parts
from graphcore.onnx.read.window_shapes import WINDOWS
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

_LONGEST = 32
_DTYPES = frozenset({DType.int64, DType.int32, DType.bool})
_UNKNOWN = Dim.dynamic()
_DEEPEST = 64
"""Nodes in a row that are followed."""


class Sizes:
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
        if not isinstance(producer, Node) or producer.domain:
            return None
        if producer.op_type == "Shape":
            return _shape_of(producer)
        rule = _VALUES.get(producer.op_type)
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
        if not isinstance(producer, Node) or producer.domain or not isinstance(type_, TensorType) or depth > _DEEPEST:
            return None
        if type_.shape.is_ranked and len(type_.shape) < 2:
            value = self.of(symbol, depth)
            sizes = value if isinstance(value, tuple) else (value,)
            return np.array(value, type_.dtype.numpy) if all(isinstance(size, int) for size in sizes) else None
        held = self._arrays.get(id(symbol))
        if held is None:
            held = self._arrays[id(symbol)] = symbol, self._folded(producer, type_, depth)
        return held[1]

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


def _of_array(array: np.ndarray[Any, Any]) -> Value:
    if array.ndim == 0:
        return int(array)
    return tuple(array.tolist()) if array.ndim == 1 and array.size <= _LONGEST else None


def _shape_of(node: Node) -> Value:
    operand = node.inputs[0]
    if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_ranked:
        return None
    dims = [*operand.shape][node.attributes.get("start", 0) : node.attributes.get("end")]
    return tuple([_size(d) for d in dims])


def _size(dim: Dim) -> Size:
    if dim.is_dynamic:
        return None
    return int(dim) if dim.is_static else dim


def _dim(size: Size) -> Dim:
    """The size of an axis; a number below 0 is none."""
    if size is None or (isinstance(size, int) and size < 0):
        return _UNKNOWN
    return Dim(size) if isinstance(size, int) else size


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
        return _size(made) if isinstance(made, Dim) else made

    return _by_element(computed)


def _quotient(a: int | Dim, b: int | Dim) -> int | Dim | None:
    """ONNX truncates, which for numbers that are not negative is what dims do."""
    return a // b if _least(a) >= 0 and _least(b) > 0 else None


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
        total = _size(math.prod([Dim(size) for size in value if size is not None], start=Dim(1)))
    except ValueError:  # dims have bounds on how long they may become, and none is below 0
        return None
    return (total,) if len(result.shape) == 1 else total


_VALUES: dict[str, _Rule] = {
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
    "Max": _arithmetic(lambda a, b: max(a, b) if isinstance(a, int) and isinstance(b, int) else Dim.maximum(a, b)),
    "Min": _arithmetic(lambda a, b: min(a, b) if isinstance(a, int) and isinstance(b, int) else Dim.minimum(a, b)),
    "Equal": _by_element(_equal),
    "Where": _by_element(_chosen),
}


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
        kept = _size(own[axis]) if own is not None and axis < len(own) else None
        chosen.append(kept if is_copy else size)
    open_axes = [i for i, size in enumerate(chosen) if size is None or size == -1]
    dims = [_dim(size) for size in chosen]
    if len(open_axes) == 1 and own is not None:
        dims[open_axes[0]] = left(own, [d for i, d in enumerate(dims) if i != open_axes[0]])
    return dims


def _expanded(sizes: Sizes, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> list[Dim] | None:
    x, target = inputs[0], sizes.of(inputs[1])
    if x is None or not isinstance(target, tuple) or not isinstance(x.type, TensorType) or not x.shape.is_ranked:
        return None
    return _broadcast([*x.shape], [_dim(size) for size in target])


def _broadcast(a: list[Dim], b: list[Dim]) -> list[Dim]:
    rank = max(len(a), len(b))
    a, b = ([Dim(1)] * (rank - len(dims)) + dims for dims in (a, b))
    return [_both(x, y) for x, y in zip(a, b, strict=True)]


def _both(a: Dim, b: Dim) -> Dim:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    for one, other in ((a, b), (b, a)):
        if one.is_static and int(one) > 1:  # which the other then is, or 1
            return one
        if not one.is_dynamic and not other.is_dynamic and _is_cut(other, one):
            return one
    return _UNKNOWN


def _is_cut(dim: Dim, whole: Dim) -> bool:
    """Return whether a dim is another one or a smaller number above 0: if the two broadcast they are equal."""
    return (
        dim._op == "min"
        and any(d == whole for d in dim._args)
        and all(d == whole or (d.lower_bound or 0) > 0 for d in dim._args)
    )


def _counted(sizes: Sizes, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> list[Dim] | None:
    start, limit, delta = (sizes.of(s) for s in inputs)
    if delta != 1 or start is None or limit is None or isinstance(start, tuple) or isinstance(limit, tuple):
        return None
    return [Dim.maximum(Dim(0) + limit - start, 0)]


def _constant(sizes: Sizes, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> list[Dim] | None:
    target = sizes.of(inputs[0])
    return [_dim(size) for size in target] if isinstance(target, tuple) else None


def _elementwise(sizes: Sizes, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> list[Dim] | None:
    made: list[Dim] = []
    for x in inputs:
        if x is None or not isinstance(x.type, TensorType) or not x.shape.is_ranked:
            return None
        made = _broadcast(made, [*x.shape])
    return made


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
    **dict.fromkeys(
        """Add Sub Mul Div Mod Pow And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift Where Equal Less Greater
        LessOrEqual GreaterOrEqual Max Min Sum Mean""".split(),
        (1, _elementwise),
    ),
}
"""By operator: the operands that the rule needs (older opsets may have attributes instead), and the rule."""

_ALIKE = frozenset({"MaxPool", "TopK"})
"""Operators whose results have all the same dims."""
