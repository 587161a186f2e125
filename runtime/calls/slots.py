"""Arrays that the runtime reads from and writes to where they lie."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import onnxruntime

from graphcore.onnx.proto.value_protos import raw
from graphcore.runtime.ort import transport_dtypes
from graphcore.runtime.ort.values import to_ort
from graphcore.types.dtypes import DType


class Slot:
    """An array of zeros of a stored dtype, and the OrtValue to bind for it.

    They share their memory where the runtime has the dtype in the form that NumPy has it in. Of others, float4 and what
    is packed several elements a byte, `put` copies from the array to the value and `fetch` from the value to the array.
    """

    __slots__ = ("_storage", "_transport", "array", "is_shared", "value")

    def __init__(self, shape: Sequence[int], storage: DType) -> None:
        transport = transport_dtypes.transport_dtype(storage)
        self._storage = storage
        self.array = np.zeros(shape, storage.numpy)
        self.is_shared = transport is storage and storage.bits >= 8
        self._transport = self.array if transport is storage else np.zeros(shape, transport.numpy)
        if transport.bits >= 8:
            self.value = to_ort(self._transport, transport)
        else:
            self.value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), transport.onnx)

    def put(self) -> None:
        """Copy the array to where the runtime reads it."""
        if self._transport is not self.array:
            self._transport[...] = self.array.astype(self._transport.dtype)
        elif not self.is_shared and self.array.size:
            packed = np.frombuffer(raw(self.array, self._storage), np.uint8)
            ctypes.memmove(self.value.data_ptr(), packed.ctypes.data, packed.nbytes)

    def fetch(self) -> None:
        """Copy what the runtime has written to the array."""
        if not self.is_shared:
            self.array[...] = transport_dtypes.from_value(self.value, self._storage)
