"""Tensors as they lie in a file, and the mapping that reads them when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from graphcore.arrays.casting import native
from graphcore.errors import ModelError
from graphcore.quantization.blocks import BLOCKS, dequantize
from graphcore.quantization.tensors import QuantizedTensor
from graphcore.types.dtypes import DType

Array = np.ndarray[Any, Any]
Value = TypeVar("Value", covariant=True)

SHOWN = 256
"""Characters of a name that errors show: a file may say anything of any length."""

LARGEST_HEADER = 100_000_000
"""Bytes that a file may take to say what is in it."""

_MOST_DIMS = 64
_MOST_ELEMENTS = 1 << 59
"""The limit of NumPy's shapes, with elements or without."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file. encoding: the format's word. dtype: None for blocks, and for what is not read."""

    encoding: str
    shape: tuple[int, ...]
    content: memoryview
    dtype: DType | None


class Tensors(Mapping[str, Value]):
    """The tensors of a checkpoint by name. Each is read when it is asked for, and no copy of it is kept.

    Arrays are read-only and map the file, which must not be changed or cut short while one of them lives. Blocks are
    dequantised anew each time. `metadata`: what else the file says, by key.
    """

    __slots__ = ("_raw", "_stored", "metadata", "path")

    path: str
    metadata: Mapping[str, Any]

    def __init__(self, path: str, stored: dict[str, Stored], metadata: Mapping[str, Any], raw: bool) -> None:
        self.path = path
        self.metadata = metadata
        self._stored = stored
        self._raw = raw

    def __getitem__(self, name: str) -> Value:
        return _read(self._stored[name], name, self._raw)  # type: ignore[return-value]

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __repr__(self) -> str:
        return f"Tensors({self.path!r}, {len(self)} tensors)"

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, which is not read for it. Raises `KeyError`."""
        return self._stored[name].shape

    def encoding(self, name: str) -> str:
        """Return what the file calls a tensor's elements or blocks: "BF16", "Q4_K". Raises `KeyError`."""
        return self._stored[name].encoding


def _read(stored: Stored, name: str, raw: bool) -> Array | QuantizedTensor:
    if stored.dtype is not None:
        array = np.frombuffer(stored.content, stored.dtype.numpy).reshape(stored.shape)
        # Kernels read at aligned addresses only, which the usual writers see to.
        return native(array if array.flags.aligned else array.copy())
    block = BLOCKS.get(stored.encoding)
    if block is None:
        raise ModelError(
            f"load: tensor {name[:SHOWN]!r} is of dtype {stored.encoding}, which no array holds",
            help="convert it to another dtype",
        )
    if raw:
        *rows, last = stored.shape
        data = np.frombuffer(stored.content, np.uint8).reshape(*rows, last // block.elements * block.size)
        return QuantizedTensor(stored.encoding, stored.shape, data)
    return dequantize(np.frombuffer(stored.content, np.uint8), stored.encoding, stored.shape)


def shape_fault(shape: Sequence[Any]) -> str:
    """Return what is wrong with dims that a file says; "" where they are those of an array."""
    if len(shape) > _MOST_DIMS:
        return f"it has {len(shape)} dims, and {_MOST_DIMS} are the most that an array has"
    if not all(type(d) is int and d >= 0 for d in shape):
        return f"{str(list(shape))[:SHOWN]} is no shape"
    if math.prod(d or 1 for d in shape) > _MOST_ELEMENTS:
        return f"its dims are {str(list(shape))[:SHOWN]}"
    return ""


def damaged(path: str, what: str) -> ModelError:
    return ModelError(f"load: {path[:SHOWN]}: {what}", help="the file is cut short or damaged: fetch it again")
