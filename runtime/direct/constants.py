"""The values of small constants in a model that is scanned."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from graphcore.runtime.direct.operators import MOST_AXES
from graphcore.types.dtypes import DType

_MOST_ELEMENTS = 1 << 24
"""The largest number of a constant that says sizes."""

_NUMBERS = (DType.bool, DType.int8, DType.uint8, DType.int32, DType.int64, DType.float32, DType.float64)
_FROM_RAW: Mapping[DType, Any] = {dtype: dtype.numpy.newbyteorder("<") for dtype in _NUMBERS}
_FIELDS = {DType.float32: "float_data", DType.float64: "double_data", DType.int64: "int64_data"}


def values(tensor: onnx.TensorProto, dtype: DType) -> np.ndarray[Any, Any] | None:
    """Return what a tensor holds; None for one that is damaged, and for other dtypes."""
    if dtype not in _FROM_RAW:
        return None
    count = math.prod(tensor.dims)
    if raw := tensor.raw_data:
        return np.frombuffer(raw, _FROM_RAW[dtype]) if len(raw) == count * dtype.numpy.itemsize else None
    found = np.array(getattr(tensor, _FIELDS.get(dtype, "int32_data")), dtype.numpy)
    return found if found.size == count else None


def is_bounded(tensor: onnx.TensorProto, dtype: DType) -> bool:
    """Return whether a constant that may say sizes says small ones; true for one that is too long to say any."""
    raw = tensor.raw_data
    if raw and dtype is DType.int64 and not len(raw) % 8 and sys.byteorder == "little":
        sizes = memoryview(raw).cast("q")  # for a tenth of the time that NumPy takes
        return len(sizes) > 2 * MOST_AXES or (max(sizes) <= _MOST_ELEMENTS and min(sizes) >= -_MOST_ELEMENTS)
    if 0 < len(tensor.int64_data) <= 2 * MOST_AXES and dtype is DType.int64 and not raw:
        return bool(max(tensor.int64_data) <= _MOST_ELEMENTS and min(tensor.int64_data) >= -_MOST_ELEMENTS)
    found = values(tensor, dtype)
    return found is None or found.size > 2 * MOST_AXES or bool((np.abs(found) <= _MOST_ELEMENTS).all())


def is_within(indices: np.ndarray[Any, Any] | None, length: int) -> bool:
    """Return whether constant indices lie within an axis; true for a constant that is damaged."""
    return indices is None or not indices.size or bool(-length <= indices.min() and indices.max() < length)


def is_of_bits(tensor: onnx.TensorProto) -> bool:
    """Return whether a tensor of bools holds 0 and 1 alone."""
    numbers = tensor.raw_data or tensor.int32_data
    return not numbers or 0 <= min(numbers) <= max(numbers) <= 1


def is_text(tensor: onnx.TensorProto) -> bool:
    """Return whether a tensor of strings has one for each element, all of them text."""
    try:
        [text.decode() for text in tensor.string_data]
    except UnicodeDecodeError:
        return False
    return len(tensor.string_data) == math.prod(tensor.dims) and not tensor.raw_data
