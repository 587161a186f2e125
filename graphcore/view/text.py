"""Short texts of names, attributes, constants and dims. Names in models may be long and contain anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.support.escaping import text_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_MAX_NAME_LENGTH = 400
_MAX_TEXT_LENGTH = 200
_MAX_ELEMENTS = 8


def short_name(name: str) -> str:
    """Return a name, shortened to its beginning, end and length if it is too long."""
    if len(name) <= _MAX_NAME_LENGTH:
        return name
    half = _MAX_NAME_LENGTH // 2
    return f"{name[:half]} ... {name[-half:]} ({len(name)} characters)"


def short_text(text: str) -> str:
    """Return a text, truncated if it is long."""
    return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[:_MAX_TEXT_LENGTH]} ... ({len(text)} characters)"


def array_text(array: np.ndarray[Any, Any]) -> str:
    """Return the elements of a short array, `[1, -1]`, "" for a longer one."""
    if array.size > _MAX_ELEMENTS:
        return ""
    values = array.tolist()
    return short_text(values if isinstance(values, str) else text_of(values))


def first_text(array: np.ndarray[Any, Any]) -> str:
    """Return the first elements of a long array, `0.5, -1.0, ...`, "" for a short one."""
    return "" if array.size <= _MAX_ELEMENTS else f"{short_text(', '.join(map(str, array.flat[:_MAX_ELEMENTS])))}, ..."


def attribute_text(value: Any) -> str:
    """Return the text of an attribute: arrays by their elements or their dtype and shape."""
    if isinstance(value, np.ndarray):
        return array_text(value) or f"{DType.of(value.dtype)}{list(value.shape)}"
    if isinstance(value, (list, tuple)) and len(value) > 100:
        return f"{short_text(str(list(value[:20])))} ({len(value)} elements)"
    if isinstance(value, str):
        return short_text(value)
    if isinstance(value, bytes):
        return short_text(repr(value[:_MAX_TEXT_LENGTH])) + (f" ({len(value)} bytes)" if len(value) > 40 else "")
    return short_text(str(value))


def dtype_text(type_: Type) -> str:
    """Return the dtype of a tensor type, `int32?` if it is only a default; the full text of other types."""
    if not isinstance(type_, TensorType):
        return short_text(str(type_))
    return f"{type_.dtype.name}?" if type_.ambiguous else type_.dtype.name


def dims_text(type_: Type) -> list[str] | None:
    """Return the dims of a type as text, None if the rank is unknown."""
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return None
    return [short_text(str(dim)) for dim in type_.shape]


def seconds_text(seconds: float) -> str:
    """Return the text of a time: `1.25 ms`."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
