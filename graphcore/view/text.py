"""Short texts of what graphs hold: names, attributes, constants, dims. Names may be long, and anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.support.escaping import text_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_LONGEST_NAME = 400
_LONGEST_TEXT = 200
_MOST_ELEMENTS = 8


def short_name(name: str) -> str:
    """Return a name; the beginning, the end and the length of one that is too long to be read."""
    if len(name) <= _LONGEST_NAME:
        return name
    half = _LONGEST_NAME // 2
    return f"{name[:half]} ... {name[-half:]} ({len(name)} characters)"


def short_text(text: str) -> str:
    """Return a text, cut where it is long."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ... ({len(text)} characters)"


def array_text(array: np.ndarray[Any, Any]) -> str:
    """Return the elements of a short array, `[1, -1]`, "" for a longer one."""
    if array.size > _MOST_ELEMENTS:
        return ""
    held = array.tolist()
    return short_text(held if isinstance(held, str) else text_of(held))


def attribute_text(value: Any) -> str:
    """Return the value of an attribute as it is read: arrays by their elements or their dtype and shape."""
    if isinstance(value, np.ndarray):
        return array_text(value) or f"{DType.of(value.dtype)}{list(value.shape)}"
    if isinstance(value, (list, tuple)) and len(value) > 100:
        return f"{short_text(str(list(value[:20])))} ({len(value)} elements)"
    if isinstance(value, str):
        return short_text(value)
    if isinstance(value, bytes):
        return short_text(repr(value[:_LONGEST_TEXT])) + (f" ({len(value)} bytes)" if len(value) > 40 else "")
    return short_text(str(value))


def dtype_text(type_: Type) -> str:
    """Return the dtype of a tensor type, `int32?` where it is only a default; the whole type where it is no tensor."""
    if not isinstance(type_, TensorType):
        return short_text(str(type_))
    return f"{type_.dtype.name}?" if type_.ambiguous else type_.dtype.name


def dims_text(type_: Type) -> list[str] | None:
    """Return the dims of a type as text; None where the rank is not known."""
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return None
    return [short_text(str(dim)) for dim in type_.shape]


def size_text(count: int) -> str:
    """Return bytes as they are read: `1.5 MB`."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def seconds_text(seconds: float) -> str:
    """Return a time as it is read: `1.25 ms`."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
