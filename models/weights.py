"""Weights from safetensors files, memory-mapped: nothing is read before it is used.

The format: eight bytes with the length of a JSON header, the header, the tensors' bytes
(https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from graphcore import DType
from graphcore.errors import ModelError
from graphcore.numerics import Array

_DTYPES = {
    "BOOL": DType.bool, "I8": DType.int8, "I16": DType.int16, "I32": DType.int32, "I64": DType.int64,
    "U8": DType.uint8, "U16": DType.uint16, "U32": DType.uint32, "U64": DType.uint64,
    "F8_E4M3": DType.float8_e4m3fn, "F8_E5M2": DType.float8_e5m2,
    "F16": DType.float16, "BF16": DType.bfloat16, "F32": DType.float32, "F64": DType.float64,
}  # fmt: skip
_LARGEST_HEADER = 100 << 20


def load_safetensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The tensors of a file by name, as read-only arrays that map it.

    Raises `ModelError` for a file that is missing, cut short or not what its header says.
    """
    shown = os.fspath(path)
    try:
        data = np.memmap(shown, np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise ModelError(f"{shown} cannot be read: {error}", help="give the path of a .safetensors file") from None
    entries, start = _header(data, shown)
    return {
        name: _tensor(data[start:], name, entry, shown) for name, entry in entries.items() if name != "__metadata__"
    }


def _header(data: Array, path: str) -> tuple[dict[str, Any], int]:
    size = int.from_bytes(data[:8].tobytes(), "little")
    if data.size < 8 or size > min(data.size - 8, _LARGEST_HEADER):
        raise ModelError(f"{path}: the header says {size} bytes, the file has {data.size}", help="fetch the file again")
    try:
        entries = json.loads(data[8 : 8 + size].tobytes())
    except ValueError as error:
        raise ModelError(f"{path}: the header is no JSON: {error}", help="fetch the file again") from None
    if not isinstance(entries, dict):
        raise ModelError(f"{path}: the header is no JSON object", help="fetch the file again")
    return entries, 8 + size


def _tensor(data: Array, name: str, entry: Any, path: str) -> Array:
    try:
        dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], [int(n) for n in entry["shape"]], entry["data_offsets"]
        count = int(np.prod(shape, dtype=object))
        fits = min(shape, default=0) >= 0 and 0 <= begin <= end <= data.size
        if not fits or end - begin != count * dtype.numpy.itemsize:
            raise ValueError(f"{dtype}{shape} does not fit into bytes {begin} to {end} of {data.size}")
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: tensor {name!r}: {error!r}", help="fetch the file again") from None
    return data[begin:end].view(dtype.numpy).reshape(shape)
