"""Types of what elementwise operators give, as ONNX's inference has them, told without a call of it.

A call of the inference takes ten times as long, and most nodes of a model are elementwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphcore.ir.symbol import Symbol
from graphcore.types.dim_parser import BOUND
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

_SAME = frozenset(
    """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Clip Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish Identity
    LeakyRelu Log Neg Not Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh
    ThresholdedRelu""".split()
)
"""Operators whose result is of the type of their first operand."""

_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Pow"})
_LOGIC = frozenset({"And", "Or", "Xor", "Equal", "Less", "Greater"})

OPERATORS = _SAME | _ARITHMETIC | _LOGIC | {"Cast"}
"""ONNX's own operators that `elementwise` knows."""

_CASTS: Mapping[object, DType] = {
    dtype.onnx: dtype
    for dtype in (
        *(DType.bool, DType.float16, DType.float32, DType.float64),
        *(DType.int8, DType.int16, DType.int32, DType.int64),
        *(DType.uint8, DType.uint16, DType.uint32, DType.uint64),
    )
}
"""The dtypes that every version of Cast gives."""

_UNKNOWN, _ONE = Dim.dynamic(), Dim(1)


def elementwise(op_type: str, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> Type | None:
    """Return the type of the result of one of `OPERATORS`, all of whose operands it takes.

    None where only ONNX's inference tells it, or that there is none.
    """
    types = [None if s is None else s.type for s in inputs]
    first = types[0] if types else None
    if type(first) is not TensorType or not _is_plain(first):
        return None
    if op_type in _SAME:
        return first
    if op_type == "Cast":
        dtype = _CASTS.get(attributes.get("to"))
        return None if dtype is None else tensor_type(dtype, first.shape)
    if len(types) != 2:
        return None
    second = types[1]
    if type(second) is not TensorType or not _is_plain(second):
        return None
    dtype = first.dtype if op_type in _ARITHMETIC else DType.bool
    if first.shape == second.shape:
        return tensor_type(dtype, first.shape)
    dims = _broadcast(first.shape, second.shape)
    return None if dims is None else tensor_type(dtype, _shape(dims))


def _is_plain(type_: TensorType) -> bool:
    """Return whether a type is the same after a file has told it."""
    if type_.dtype.storage is not type_.dtype or type_.ambiguous or not type_.shape.is_ranked:
        return False
    return not any((d.is_symbolic and _is_retold(d)) or (d.is_static and int(d) < 0) for d in type_.shape)


def _is_retold(dim: Dim) -> bool:
    text = str(dim)
    return text.startswith("unk__") or BOUND in text


def _broadcast(a: Sequence[Dim], b: Sequence[Dim]) -> list[Dim] | None:
    """Return the dims of two operands together; None where they do not go together.

    As ONNX has it: beside a 1 stands the other, beside a number above 1 that number; of two that differ, neither.
    """
    rank = max(len(a), len(b))
    a, b = ((_ONE,) * (rank - len(dims)) + tuple(dims) for dims in (a, b))
    made = []
    for x, y in zip(a, b, strict=True):
        if x is y or y is _ONE:
            made.append(x)
        elif x is _ONE:
            made.append(y)
        elif x.is_static and y.is_static:
            return None
        elif x.is_static or y.is_static:
            made.append(x if x.is_static else y)
        else:
            made.append(_UNKNOWN)
    return made
