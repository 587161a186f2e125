"""Arrays that the runtime reads from and writes to where they lie."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import onnxruntime

from graphcore.onnx.proto.model_proto import raw
from graphcore.runtime.ort import output_carriers
from graphcore.runtime.ort.values import to_ort
from graphcore.types.dtypes import DType


class Slot:
    """An array of zeros of a stored dtype, and the OrtValue to bind for it.

    They share their memory where the runtime has the dtype in the form that NumPy has it in. Of others, float4 and what
    is packed several elements a byte, `put` copies from the array to the value and `fetch` from the value to the array.
    """

    __slots__ = ("_carrier", "_storage", "array", "is_shared", "value")

    def __init__(self, shape: Sequence[int], storage: DType) -> None:
        carrier = output_carriers.carrier_of(storage)
        self._storage = storage
        self.array = np.zeros(shape, storage.numpy)
        self.is_shared = carrier is storage and storage.bits >= 8
        self._carrier = self.array if carrier is storage else np.zeros(shape, carrier.numpy)
        if carrier.bits >= 8:
            self.value = to_ort(self._carrier, carrier)
        else:
            self.value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), carrier.onnx)

    def put(self) -> None:
        """What the array holds, to where the runtime reads it."""
        if self._carrier is not self.array:
            self._carrier[...] = self.array.astype(self._carrier.dtype)
        elif not self.is_shared and self.array.size:
            packed = np.frombuffer(raw(self.array, self._storage), np.uint8)
            ctypes.memmove(self.value.data_ptr(), packed.ctypes.data, packed.nbytes)

    def fetch(self) -> None:
        """What the runtime has written, to the array."""
        if not self.is_shared:
            self.array[...] = output_carriers.taken(self.value, self._storage)


__all__ = ["Slot"]
