"""Dtypes of the standard, and functions on dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from graphcore import ops
from graphcore.array_api._eager import DTYPES, PROMOTION, Array, Tensor, function, is_scalar, join_dtypes
from graphcore.arrays.eager_array import DEVICE, check_device
from graphcore.build.operands import graph_of
from graphcore.errors import DTypeError, PromotionError
from graphcore.ir.symbol import Symbol
from graphcore.promotion.system import PromotionSystem
from graphcore.types.dtypes import DType, real_of

__all__ = ["__array_namespace_info__", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]
__all__ += [dtype.name for dtype in DTYPES]

int8, int16, int32, int64 = DType.int8, DType.int16, DType.int32, DType.int64
uint8, uint16, uint32, uint64 = DType.uint8, DType.uint16, DType.uint32, DType.uint64
float16, float32, float64 = DType.float16, DType.float32, DType.float64
complex64, complex128 = DType.complex64, DType.complex128
bool = DType.bool

KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (bool,),
    "signed integer": (int8, int16, int32, int64),
    "unsigned integer": (uint8, uint16, uint32, uint64),
    "integral": (int8, int16, int32, int64, uint8, uint16, uint32, uint64),
    "real floating": (float32, float64),
    "complex floating": (complex64, complex128),
    "numeric": (int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64, complex64, complex128),
}
"""The kinds of `isdtype`, with the standard's dtypes of each."""

DEFAULT_FLOAT = DType.float32
"""The dtype of Python floats, as in graphs."""
DEFAULT_INTEGER = DType.int64
DEFAULT_COMPLEX = DType.complex64
"""The dtype of Python complex numbers."""


def dtype_of(value: Any) -> DType:
    """Return the dtype of a Symbol or Array, or a dtype itself."""
    return value.dtype if isinstance(value, (Symbol, Array)) else PROMOTION.dtype_of(value)


def check_dtype(op: str, dtype: object) -> DType | None:
    """Return a `dtype` argument as a DType. Raises `DTypeError` if Arrays do not support it."""
    if dtype is None:
        return None
    result = PROMOTION.dtype_of(dtype)
    if result not in DTYPES:
        raise DTypeError(f"{op}: Arrays do not support {result}", help=f"use one of {', '.join(map(str, DTYPES))}")
    return result


@function
def _cast(x: Tensor, dtype: DType) -> Tensor:
    return ops.cast(x, dtype)


def astype(x: Tensor, dtype: DType, /, *, copy: Any = True, device: str | None = None) -> Tensor:
    """Cast values to another dtype.

    Args:
        x: Any shape and dtype.
        copy: Copy an Array that has the dtype already. Floats are truncated and saturated to integers, NaN becomes 0;
            integers wrap; bool is `!= 0`.

    Raises:
        DTypeError: For an invalid dtype.
        GraphError: For a device other than "cpu".
    """
    check_device("astype", device)
    target = PROMOTION.dtype_of(dtype)
    if type(x) is Array:
        check_dtype("astype", target)
        if x.dtype is target:
            return Array(x._data.copy()) if copy else x
    return _cast(x, target)


def can_cast(from_: Any, to: DType, /) -> Any:
    """Return True if type promotion can convert a dtype, or that of a Symbol or Array, to `to`."""
    source, target = dtype_of(from_), PROMOTION.dtype_of(to)
    try:
        return join_dtypes("can_cast", (source, target), _system((from_,))) is target
    except PromotionError:
        return False


@dataclass(frozen=True, slots=True)
class FInfo:
    """The limits of a float dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class IInfo:
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FInfo:
    """Return the limits of a float dtype, of the parts of a complex dtype, or of the dtype of a Symbol or Array.

    Raises:
        DTypeError: For other dtypes.
    """
    dtype = real_of(dtype_of(type))
    if not dtype.is_float:
        raise DTypeError(f"finfo: {dtype} is not a float dtype", help="iinfo is for integers")
    info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return FInfo(dtype.bits, float(info.eps), float(dtype.max), float(dtype.min), float(info.smallest_normal), dtype)


def iinfo(type: Any, /) -> IInfo:
    """Return the limits of an integer dtype, or of that of a Symbol or Array.

    Raises:
        DTypeError: For others.
    """
    dtype = dtype_of(type)
    if not dtype.is_integer:
        raise DTypeError(f"iinfo: {dtype} is not an integer dtype", help="finfo is for floats")
    return IInfo(dtype.bits, int(dtype.max), int(dtype.min), dtype)


_PROPERTIES = {
    "signed integer": "is_signed", "unsigned integer": "is_unsigned", "integral": "is_integer",
    "real floating": "is_float", "complex floating": "is_complex", "numeric": "is_number",
}  # fmt: skip
"""The properties of a DType that say whether it is of a kind."""


def isdtype(dtype: DType, kind: Any) -> Any:
    """Return True if a dtype is of a kind: a dtype, one of `KINDS` by name, or a tuple of those.

    Dtypes outside the standard, such as bfloat16, have the kind of their values.

    Raises:
        DTypeError: For an unknown kind.
    """
    source = PROMOTION.dtype_of(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(source, one) for one in kind)
    if isinstance(kind, DType):
        return source is kind
    if kind not in KINDS:
        raise DTypeError(f"isdtype: unknown kind {kind!r}", help=f"use one of {', '.join(map(repr, KINDS))}")
    return source is bool if kind == "bool" else getattr(source, _PROPERTIES[kind])


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the dtype that dtypes, Symbols, Arrays and Python scalars promote to.

    Symbols use the promotion system of their graph, other values that of the standard.

    Raises:
        DTypeError: Without arguments or for scalars only.
        PromotionError: If there is no common dtype.
    """
    if not arrays_and_dtypes or all(is_scalar(value) for value in arrays_and_dtypes):
        raise DTypeError(
            "result_type: no array or dtype is given", help="give at least one; Python scalars take its dtype"
        )
    return join_dtypes("result_type", arrays_and_dtypes, _system(arrays_and_dtypes))


def _system(values: tuple[Any, ...]) -> PromotionSystem:
    symbols = [value for value in values if isinstance(value, (Symbol, np.ndarray))]
    if not any(isinstance(value, Symbol) for value in symbols):
        return PROMOTION
    return graph_of("result_type", symbols).promotion


# Information about the namespace: capabilities, devices and dtypes.


class Info:
    """The result of `__array_namespace_info__`."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """Return the supported optional parts of the standard."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Return the device of new arrays."""
        return DEVICE

    def devices(self) -> tuple[str, ...]:
        """Return all devices in a tuple, as in version 2025.12; earlier versions have a list."""
        return (DEVICE,)

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """Return the dtypes of Python numbers and of indices."""
        check_device("default_dtypes", device)
        return {
            "real floating": DEFAULT_FLOAT,
            "complex floating": DEFAULT_COMPLEX,
            "integral": DEFAULT_INTEGER,
            "indexing": DEFAULT_INTEGER,
        }

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """Return the dtypes by name, optionally of one or several kinds. Raises `DTypeError` for an unknown kind."""
        check_device("dtypes", device)
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for one in kinds:
            if one not in KINDS:
                raise DTypeError(f"dtypes: unknown kind {one!r}", help=f"use one of {', '.join(map(repr, KINDS))}")
        return {dtype.name: dtype for one in kinds for dtype in KINDS[one]}


def __array_namespace_info__() -> Info:  # noqa: N807 - the standard's name
    """Return information about the namespace."""
    return Info()
