"""Tensors held in few bits: values, scales and zero points as arrays, or blocks of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore.errors import ModelError
from graphcore.quantization.blocks import ENCODINGS

if TYPE_CHECKING:
    from graphcore.ir.symbol import Symbol

Array: TypeAlias = "np.ndarray[Any, Any]"

BASE = 254
"""The weight of a first digit of int8_split in units of the second: at most half of it is within -127 to 127."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedTensor:
    """A tensor held in an encoding, not dequantised.

    encoding: "int8", "int8_split", "int4", or the name that GGUF has for its blocks, "Q4_K". shape: of the tensor that
    is meant.

    data: of int8 the numbers, int8 or (with zero points) uint8, of that shape. Of int8_split the first digits of all
    and then the second: int8[2, *shape]. Of int4 the numbers 0 to 15, two in a byte, the first in the low bits: uint8,
    of the same dims but the last, which is half. Of GGUF's encodings the blocks: uint8, of the same dims but the last,
    which counts the bytes of a row; read-only where it maps a file.

    scales: float32. Of int8 and int8_split [] or, where `axis` is one, [shape[axis]]; of int4 the same dims as the
    tensor but the last, which counts blocks of `block_size`. zero_points: uint8, of the same shape; None is 0 of int8
    and 8 of int4.
    """

    encoding: str
    shape: tuple[int, ...]
    data: Array
    scales: Array | None = None
    zero_points: Array | None = None
    axis: int | None = None
    block_size: int | None = None

    @property
    def values(self) -> Array:
        """The numbers of int8, int8_split and int4, one an element. Raises `ModelError` for blocks of GGUF."""
        if self.encoding == "int8":
            return self.data
        if self.encoding == "int8_split":
            first, second = self.data.astype(np.int16)
            return np.asarray(first * np.int16(BASE) + second)
        if self.encoding == "int4":
            return nibbles(self.data).reshape(self.shape)
        raise ModelError(f"values: blocks of {self.encoding} hold numbers and scales together", help="take .data")

    @property
    def nbytes(self) -> int:
        """Bytes of all of its arrays."""
        return sum(a.nbytes for a in (self.data, self.scales, self.zero_points) if a is not None)

    def dequantize(self) -> Array:
        """The tensor as float32. Raises `ModelError` for an encoding that is not computed, or parts that do not fit."""
        from graphcore.quantization.blocks import dequantize  # 3 ms to import, which building graphs does not need

        if self.encoding not in ("int8", "int8_split", "int4"):
            return dequantize(self.data, self.encoding, self.shape)
        checked(self)
        assert self.scales is not None
        zeros = self.zero_points
        if self.encoding != "int4":
            along = [1] * len(self.shape)
            if self.axis is not None:
                along[self.axis] = -1
            centred = self.values.astype(np.float32)
            if zeros is not None:
                centred -= zeros.reshape(along)
            centred *= self.scales.reshape(along)
            return centred
        assert self.block_size is not None
        blocks = nibbles(self.data).reshape(*self.scales.shape, self.block_size).astype(np.float32)
        blocks -= np.float32(8) if zeros is None else zeros[..., None]
        blocks *= self.scales[..., None]
        return blocks.reshape(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A tensor of a graph held in an encoding: what `ops.quantize` gives.

    values: of int8 int8 or uint8, of int4 uint4, of the shape of the tensor; of int8_split int8, two of it; of GGUF's
    encodings blocks in uint8. scale: float32. Of int8 and int8_split a scalar or, where `axis` is one, a vector; of
    int4 one for each `block_size` of the last axis. zero_point: of the shape of `scale` and the dtype of `values`, or
    None. GGUF's have neither.
    """

    encoding: str
    values: Symbol
    scale: Symbol | None = None
    zero_point: Symbol | None = None
    axis: int | None = None
    block_size: int | None = None


def nibbles(packed: Array) -> Array:
    """Two numbers of 4 bits a byte, the low bits first, as uint8 of twice as many."""
    numbers = np.empty((*packed.shape[:-1], packed.shape[-1], 2), np.uint8)
    np.bitwise_and(packed, 15, out=numbers[..., 0])
    np.right_shift(packed, 4, out=numbers[..., 1])
    return numbers.reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def packed(numbers: Array) -> Array:
    """uint8 below 16, an even number a row, two in a byte."""
    made: Array = numbers[..., ::2] | numbers[..., 1::2] << np.uint8(4)
    return made


def checked(tensor: QuantizedTensor) -> QuantizedTensor:
    """The tensor, whose parts fit together. Raises `ModelError` that says which does not."""
    encoding = ENCODINGS.get(tensor.encoding.lower())
    shape, data, scales, zeros = tensor.shape, tensor.data, tensor.scales, tensor.zero_points
    if encoding is None:
        raise _unfit(f"no product of {tensor.encoding} is computed; {', '.join(ENCODINGS)} are")
    if not all(isinstance(a, np.ndarray) for a in (data, *(a for a in (scales, zeros) if a is not None))):
        raise _unfit("data, scales and zero points are NumPy arrays")
    if encoding.block_bytes is not None:
        assert encoding.block is not None
        if not shape or shape[-1] % encoding.block:
            raise _unfit(f"{list(shape)} has no rows of blocks of {encoding.block}")
        row = shape[-1] // encoding.block * encoding.block_bytes
        _check_part("data", data, (*shape[:-1], row), ("uint8",))
        return tensor
    if scales is None:
        raise _unfit("there are no scales")
    if tensor.encoding in ("int8", "int8_split"):
        if tensor.axis is not None and not 0 <= tensor.axis < len(shape):
            raise _unfit(f"there is no axis {tensor.axis} in {list(shape)}")
        of_scales: tuple[int, ...] = () if tensor.axis is None else (shape[tensor.axis],)
        if tensor.encoding == "int8_split":
            if zeros is not None:
                raise _unfit("int8_split has no zero points")
            _check_part("data", data, (2, *shape), ("int8",))
        else:
            _check_part("data", data, shape, ("int8",) if zeros is None else ("uint8",))
    else:
        block = tensor.block_size
        if block is None or block < 16 or block & block - 1:
            raise _unfit(f"a block has {block} elements, not a power of two from 16 on")
        if not shape or shape[-1] % block:
            raise _unfit(f"{list(shape)} has no rows of blocks of {block}")
        of_scales = (*shape[:-1], shape[-1] // block)
        _check_part("data", data, (*shape[:-1], shape[-1] // 2), ("uint8",))
    _check_part("scales", scales, of_scales, ("float32",))
    if zeros is not None:
        _check_part("zero_points", zeros, of_scales, ("uint8",))
        if tensor.encoding == "int4" and zeros.size and zeros.max() > 15:
            raise _unfit(f"a zero point is {zeros.max()}, and 15 is the greatest of 4 bits")
    return tensor


def _check_part(name: str, array: Array, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> None:
    if array.shape != shape or array.dtype.name not in dtypes:
        wanted = " or ".join(dtypes)
        raise _unfit(f"{name} is {array.dtype.name}{list(array.shape)}, not {wanted}{list(shape)}")


def _unfit(what: str) -> ModelError:
    return ModelError(f"quantized tensor: {what}", help="make it with graphcore.quantization.encode, or load_tensors")
