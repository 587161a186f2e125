"""NumPy and ml_dtypes arrays to OrtValues and back, without a copy where onnxruntime can share the memory."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import onnxruntime

from graphcore.arrays.casting import Array
from graphcore.onnx.proto.value_protos import raw
from graphcore.types.dtypes import DType

PLAIN = frozenset(
    {
        DType.bool, DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16, DType.uint32,
        DType.uint64, DType.float16, DType.float32, DType.float64, DType.string,
    }
)  # fmt: skip
"""The stored dtypes that onnxruntime's Python API takes and gives as NumPy arrays."""

_BITS = {1: np.uint8, 2: np.uint16}


def to_ort(array: Array, dtype: DType) -> onnxruntime.OrtValue:
    """Return an OrtValue of a C-contiguous array of a stored dtype other than string, of which onnxruntime makes none.

    It shares the array's memory, but for dtypes of less than a byte, and keeps the array alive. A session that was
    given the OrtValue keeps neither.
    """
    if dtype in PLAIN:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    if dtype.bits < 8:
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(array.shape), dtype.onnx)
        packed = np.frombuffer(raw(array, dtype), np.uint8)
        if packed.size:
            ctypes.memmove(value.data_ptr(), packed.ctypes.data, packed.nbytes)
        return value
    bits = array.view(_BITS[array.dtype.itemsize])
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, dtype.onnx)


def from_ort(value: onnxruntime.OrtValue, dtype: DType) -> Array:
    """Return the array of an OrtValue of a stored dtype.

    It shares the memory, and keeps it alive, for dtypes in `PLAIN`; of others it is a copy.
    """
    if dtype in PLAIN:
        return value.numpy()  # type: ignore[no-any-return]
    shape = tuple(value.shape())
    if dtype.bits < 8:
        return _unpacked(value, dtype, shape)
    array = np.empty(shape, dtype.numpy)
    if array.size:
        ctypes.memmove(array.ctypes.data, value.data_ptr(), array.nbytes)
    return array


def _unpacked(value: onnxruntime.OrtValue, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return several elements a byte, the first in the lowest bits."""
    packed = np.frombuffer(ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes()), np.uint8)
    mask = np.uint8((1 << dtype.bits) - 1)
    places = [packed >> np.uint8(place) & mask for place in range(0, 8, dtype.bits)]
    codes = np.stack(places, axis=-1).reshape(-1)[: math.prod(shape)]
    return codes.view(dtype.numpy).reshape(shape)  # ml_dtypes has an element a byte, in its low bits
