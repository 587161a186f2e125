"""Constants computed while lowering: operators whose result NumPy gives bit for bit, of operands known now.

What depends on how a kernel approximates (exp, sums of floats in some order) is left to the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore.dtypes import DType
from graphcore.symbol import Constant, Symbol
from graphcore.types import TensorType, Type

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalise import Legaliser

Array: TypeAlias = "np.ndarray[Any, Any]"
Attributes: TypeAlias = "dict[str, Any]"

LARGEST = 1 << 20
"""Bytes of the largest operand or result that is folded."""

_PLAIN = frozenset(
    {
        DType.bool, DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16, DType.uint32,
        DType.uint64, DType.float32, DType.float64,
    }
)  # fmt: skip


def fold(
    on: Legaliser, op_type: str, inputs: Sequence[Symbol | None], types: Sequence[Type], attributes: Attributes
) -> Symbol | None:
    """The operator's result as a constant, None where it is not known now, or not for certain."""
    function = _FOLDS.get(op_type)
    if function is None or len(types) != 1:
        return None
    (type_,) = types
    if not isinstance(type_, TensorType):
        return None
    arrays: list[Array | None] = []
    for symbol in inputs:
        producer = symbol.producer if symbol is not None else None
        if producer is None:
            arrays.append(None)
        elif type(producer) is Constant and not producer.is_weight and producer.array.nbytes <= LARGEST:
            arrays.append(producer.array)
        else:
            return None
    if op_type not in _MOVES and not all(s is None or s.dtype in _PLAIN for s in inputs):
        return None
    return _constant(on, function(arrays, attributes, type_), type_)


def fold_shape(on: Legaliser, operand: Symbol, attributes: Attributes, type_: Type) -> Symbol | None:
    """The operator Shape of a tensor all of whose dims are known."""
    if not isinstance(operand.type, TensorType) or not isinstance(type_, TensorType) or not operand.shape.is_static:
        return None
    dims = operand.shape.static_dims[attributes.get("start", 0) : attributes.get("end")]
    return _constant(on, np.array(dims, np.int64), type_)


def _constant(on: Legaliser, array: Array | None, type_: TensorType) -> Symbol | None:
    if array is None or array.nbytes > LARGEST:
        return None
    if type_.shape.is_static and tuple(type_.shape.static_dims) != array.shape:
        return None
    return on.graph._constant(np.require(array.astype(type_.dtype.numpy, copy=False), requirements="C"), type_.dtype)


def neutral(on: Legaliser, op_type: str, inputs: Sequence[Symbol | None], type_: Type) -> Symbol | None:
    """The operand that *and* with true, or *or* with false, leaves as it is."""
    for operand, other in (tuple(inputs), tuple(inputs)[::-1]):
        array = on.known(other)
        if array is not None and array.size == 1 and bool(array) is (op_type == "And") and operand is not None:
            return operand if operand.type is type_ else None
    return None


_Fold: TypeAlias = "Callable[[Sequence[Any], Attributes, TensorType], Array | None]"


def _by(function: Callable[..., Any]) -> _Fold:
    def apply(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
        with np.errstate(all="ignore"):
            return np.asarray(function(*arrays))

    return apply


def _divides(x: Array, y: Array) -> bool:
    """Whether no quotient of integers fails or overflows."""
    least = np.iinfo(x.dtype).min
    return bool((y != 0).all() and not (least and (x == least).any() and (y == -1).any()))


def _div(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
    x, y = arrays
    with np.errstate(all="ignore"):
        if x.dtype.kind == "f":
            return np.asarray(x / y)
        if not _divides(x, y):
            return None
        quotient = x // y
        cut = (quotient < 0) & (quotient * y != x)  # NumPy rounds down, ONNX towards zero
        return np.asarray(quotient + cut.astype(x.dtype))


def _mod(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
    x, y = arrays
    if x.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return np.asarray(np.fmod(x, y)) if attributes.get("fmod") else None
    if not _divides(x, y):
        return None
    return np.asarray(np.fmod(x, y) if attributes.get("fmod") else np.mod(x, y))


def _extreme(function: Callable[..., Any]) -> _Fold:
    def apply(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
        if arrays[0].dtype.kind == "f":  # which of 0.0 and -0.0 is the kernel's choice
            return None
        made = arrays[0]
        for other in arrays[1:]:
            made = function(made, other)
        return np.asarray(made)

    return apply


def _shift(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
    x, count = arrays
    bits = 8 * x.dtype.itemsize
    small = np.minimum(count, bits - 1).astype(x.dtype)
    shifted = x << small if attributes["direction"] in ("LEFT", b"LEFT") else x >> small
    return np.where(count < bits, shifted, np.zeros((), x.dtype))


def _reshaped(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
    return np.asarray(arrays[0].reshape(type_.shape.static_dims)) if type_.shape.is_static else None


def _expanded(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
    shape = np.broadcast_shapes(arrays[0].shape, tuple(int(d) for d in arrays[1]))
    size = int(np.prod(shape, dtype=object)) * arrays[0].itemsize
    return np.broadcast_to(arrays[0], shape) if size <= LARGEST else None


def _transposed(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
    return np.asarray(arrays[0].transpose(attributes.get("perm")))


def _joined(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
    return np.concatenate(arrays, axis=attributes["axis"])


def _gathered(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
    x, places = arrays
    axis = attributes.get("axis", 0)
    length = x.shape[axis]
    if places.size and (places.min() < -length or places.max() >= length):
        return None
    return np.asarray(np.take(x, places, axis=axis))


def _sliced(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
    x, starts, ends, axes, steps = (*arrays, None, None)[:5]
    at = [slice(None)] * x.ndim
    for i in range(len(starts)):
        axis = i if axes is None else int(axes[i])
        at[axis] = slice(int(starts[i]), int(ends[i]), 1 if steps is None else int(steps[i]))
    return np.asarray(x[tuple(at)])


def _viewed(arrays: Sequence[Any], attributes: Attributes, type_: TensorType) -> Array | None:
    (x,) = arrays
    return np.asarray(x.view(type_.dtype.numpy)) if x.dtype.itemsize == np.dtype(type_.dtype.numpy).itemsize else None


_FOLDS: dict[str, _Fold] = {
    "Add": _by(np.add),
    "Sub": _by(np.subtract),
    "Mul": _by(np.multiply),
    "Neg": _by(np.negative),
    "Abs": _by(np.abs),
    "Floor": _by(np.floor),
    "Ceil": _by(np.ceil),
    "Div": _div,
    "Mod": _mod,
    "Max": _extreme(np.maximum),
    "Min": _extreme(np.minimum),
    "BitwiseAnd": _by(np.bitwise_and),
    "BitwiseOr": _by(np.bitwise_or),
    "BitwiseXor": _by(np.bitwise_xor),
    "BitwiseNot": _by(np.invert),
    "BitShift": _shift,
    "And": _by(np.logical_and),
    "Or": _by(np.logical_or),
    "Xor": _by(np.logical_xor),
    "Not": _by(np.logical_not),
    "Equal": _by(np.equal),
    "Less": _by(np.less),
    "Greater": _by(np.greater),
    "LessOrEqual": _by(np.less_equal),
    "GreaterOrEqual": _by(np.greater_equal),
    "IsNaN": _by(np.isnan),
    "Where": _by(np.where),
    "Identity": _reshaped,
    "Reshape": _reshaped,
    "Flatten": _reshaped,
    "Squeeze": _reshaped,
    "Unsqueeze": _reshaped,
    "Expand": _expanded,
    "Transpose": _transposed,
    "Concat": _joined,
    "Gather": _gathered,
    "Slice": _sliced,
    "BitCast": _viewed,
}
_MOVES = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Transpose", "Concat", "Gather", "Slice"}
)
