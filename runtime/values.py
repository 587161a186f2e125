"""NumPy and ml_dtypes arrays to OrtValues and back, without a copy where onnxruntime can share the memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnxruntime

from graphcore.dtypes import DType
from graphcore.onnx.writer import raw

Array = np.ndarray[Any, Any]

PLAIN = frozenset(
    {
        DType.bool, DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16, DType.uint32,
        DType.uint64, DType.float16, DType.float32, DType.float64, DType.string,
    }
)  # fmt: skip
"""The stored dtypes that onnxruntime's Python API takes and gives as NumPy arrays."""

_CARRIERS = {1: np.uint8, 2: np.uint16}


def to_ort(array: Array, dtype: DType) -> onnxruntime.OrtValue:
    """An OrtValue of a C-contiguous array of a stored dtype. It shares the array's memory, but for 4-bit integers.

    The OrtValue keeps the array alive; onnxruntime keeps neither.
    """
    if dtype in PLAIN:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    if dtype.bits < 8:
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(array.shape), dtype.onnx)
        packed = np.frombuffer(raw(array, dtype), np.uint8)
        if packed.size:
            ctypes.memmove(value.data_ptr(), packed.ctypes.data, packed.nbytes)
        return value
    carrier = array.view(_CARRIERS[array.dtype.itemsize])
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(carrier, dtype.onnx)


def from_ort(value: onnxruntime.OrtValue, dtype: DType) -> Array:
    """The array of an OrtValue of a stored dtype; a copy where onnxruntime cannot make it itself."""
    if dtype in PLAIN:
        return value.numpy()  # type: ignore[no-any-return]
    shape = value.shape()
    size = value.tensor_size_in_bytes()
    data = np.frombuffer(ctypes.string_at(value.data_ptr(), size), np.uint8) if size else np.empty(0, np.uint8)
    if dtype.bits == 4:
        count = int(np.prod(shape, dtype=np.int64))
        nibbles = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)[:count].astype(np.int8)
        if dtype.is_signed:
            nibbles = np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.int8)
        return nibbles.astype(dtype.numpy).reshape(shape)
    return data.copy().view(dtype.numpy).reshape(shape)
