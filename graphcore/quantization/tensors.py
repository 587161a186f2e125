"""Quantised tensors: values, scales and zero points as arrays, or blocks that contain all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore.errors import DTypeError, ModelError
from graphcore.ir.symbol import present

if TYPE_CHECKING:
    from graphcore.ir.symbol import Symbol


Array: TypeAlias = "np.ndarray[Any, Any]"

BASE = 254
"""The weight of the first digit of int8_split in units of the second, which is from -127 to 127."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedTensor:
    """A quantised tensor.

    Attributes:
        encoding: "int8", "int8_split", "int4", or GGUF's name of its blocks, "Q4_K".
        shape: Of the dequantised tensor.
        data: Int8: the numbers, int8 or (with zero points) uint8, of that shape. int8_split: the first digits, then the
            second: int8[2, *shape]. int4: numbers from 0 to 15, two in a byte, the first in the low bits: uint8, with
            half the last dim. GGUF's encodings: the blocks, uint8, whose last dim is the number of bytes of a row;
            read-only if it maps a file.
        scales: Float32. int8 and int8_split: [], or [shape[axis]] if there is an `axis`. int4: the dims of the tensor,
            but the last is the number of blocks of `block_size`.
        zero_points: Uint8, of the shape of `scales`; None means 0 for int8, and 8 for int4.
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
        """The numbers of int8, int8_split and int4, one for each element.

        Raises:
            ModelError: For GGUF's blocks.
        """
        if self.encoding == "int8":
            return self.data
        if self.encoding == "int8_split":
            first, second = self.data.astype(np.int16)
            return np.asarray(first * np.int16(BASE) + second)
        if self.encoding == "int4":
            return nibbles(self.data).reshape(self.shape)
        raise ModelError(f"values: blocks of {self.encoding} contain numbers and scales together", help="use .data")

    @property
    def nbytes(self) -> int:
        """The number of bytes of all its arrays."""
        return sum(a.nbytes for a in (self.data, self.scales, self.zero_points) if a is not None)

    def dequantize(self) -> Array:
        """Return the tensor as float32.

        Raises:
            ModelError: For unsupported encodings, or arrays that do not match.
        """
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
        blocks = nibbles(self.data).reshape(*self.scales.shape, present(self.block_size)).astype(np.float32)
        blocks -= np.float32(8) if zeros is None else zeros[..., None]
        blocks *= self.scales[..., None]
        return blocks.reshape(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A quantised tensor of a graph: the result of `ops.quantize`.

    values: int8 or uint8 for int8, uint4 for int4, of the shape of the tensor; two int8 tensors stacked for int8_split;
    uint8 blocks for GGUF's encodings. scale: float32. A scalar for int8 and int8_split, or a vector if there is an
    `axis`; for int4 one for each `block_size` elements of the last axis. zero_point: of the shape of `scale` and the
    dtype of `values`, or None. GGUF's encodings have neither.
    """

    encoding: str
    values: Symbol
    scale: Symbol | None = None
    zero_point: Symbol | None = None
    axis: int | None = None
    block_size: int | None = None


def nibbles(packed: Array) -> Array:
    """Unpack two numbers of 4 bits from each byte, the low bits first, to uint8."""
    numbers = np.empty((*packed.shape[:-1], packed.shape[-1], 2), np.uint8)
    np.bitwise_and(packed, 15, out=numbers[..., 0])
    np.right_shift(packed, 4, out=numbers[..., 1])
    return numbers.reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def packed(numbers: Array) -> Array:
    """Pack two uint8 below 16 in each byte; rows have an even number of them."""
    result: Array = numbers[..., ::2] | numbers[..., 1::2] << np.uint8(4)
    return result


def checked(tensor: QuantizedTensor) -> QuantizedTensor:
    """Return the tensor if its arrays match its encoding and shape. Raises `ModelError` otherwise."""
    encoding = ENCODINGS.get(tensor.encoding.lower())
    shape, data, scales, zeros = tensor.shape, tensor.data, tensor.scales, tensor.zero_points
    if encoding is None:
        raise _error(f"encoding {tensor.encoding} is not supported in products; use one of {', '.join(ENCODINGS)}")
    if not all(isinstance(a, np.ndarray) for a in (data, *(a for a in (scales, zeros) if a is not None))):
        raise _error("data, scales and zero points must be NumPy arrays")
    if encoding.block_bytes is not None:
        assert encoding.block is not None
        if not shape or shape[-1] % encoding.block:
            raise _error(f"{list(shape)} has no rows of blocks of {encoding.block}")
        row = shape[-1] // encoding.block * encoding.block_bytes
        _check_part("data", data, (*shape[:-1], row), ("uint8",))
        return tensor
    if scales is None:
        raise _error("scales are missing")
    if tensor.encoding in ("int8", "int8_split"):
        if tensor.axis is not None and not 0 <= tensor.axis < len(shape):
            raise _error(f"there is no axis {tensor.axis} in shape {list(shape)}")
        of_scales: tuple[int, ...] = () if tensor.axis is None else (shape[tensor.axis],)
        if tensor.encoding == "int8_split":
            if zeros is not None:
                raise _error("int8_split has no zero points")
            _check_part("data", data, (2, *shape), ("int8",))
        else:
            _check_part("data", data, shape, ("int8",) if zeros is None else ("uint8",))
    else:
        block = tensor.block_size
        if block is None or block < 16 or block & block - 1:
            raise _error(f"block_size must be a power of two of at least 16, got {block}")
        if not shape or shape[-1] % block:
            raise _error(f"{list(shape)} has no rows of blocks of {block}")
        of_scales = (*shape[:-1], shape[-1] // block)
        _check_part("data", data, (*shape[:-1], shape[-1] // 2), ("uint8",))
    _check_part("scales", scales, of_scales, ("float32",))
    if zeros is not None:
        _check_part("zero_points", zeros, of_scales, ("uint8",))
        if tensor.encoding == "int4" and zeros.size and zeros.max() > 15:
            raise _error(f"zero points must be at most 15, got {zeros.max()}")
    return tensor


def _check_part(name: str, array: Array, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> None:
    if array.shape != shape or array.dtype.name not in dtypes:
        wanted = " or ".join(dtypes)
        raise _error(f"{name} must be {wanted}{list(shape)}, got {array.dtype.name}{list(array.shape)}")


def _error(what: str) -> ModelError:
    return ModelError(f"quantized tensor: {what}", help="create it with graphcore.quantization.encode or load_tensors")


# Quantised weights of GGUF files: blocks of a few scales and many small integers.
#
# The layouts are those of ggml (https://github.com/ggml-org/ggml, `ggml-common.h`). Everything is little endian, and
# float32 is computed in the order of ggml's own code, so that the numbers are the same bit for bit.

_Blocks = np.ndarray[Any, Any]

_CHUNK_BLOCKS = 1 << 9
"""Blocks that are dequantised at once, so that intermediate results stay in the cache."""


@dataclass(frozen=True, slots=True)
class GgufBlock:
    """The elements of a block, and its size in bytes.

    parts: splits blocks, uint8[n, size], into steps, numbers and minima. zero: the number that means 0.
    """

    elements: int
    size: int
    parts: Callable[[_Blocks], BlockParts] | None = None
    zero: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class BlockParts:
    """The parts of n blocks: steps * (numbers - zero) - minima. numbers: uint8[n, elements], int8 in Q8_0. steps,
    minima: float32[n, parts], each part of the same number of elements; minima may be None."""

    numbers: _Blocks
    steps: _Blocks
    minima: _Blocks | None = None


def parts_of(data: _Blocks, encoding: str) -> BlockParts:
    """Return the parts of blocks of a supported encoding. NaN and infinities do not warn."""
    block = BLOCKS[encoding]
    assert block.parts is not None
    with np.errstate(all="ignore"):
        return block.parts(np.ascontiguousarray(data).reshape(-1, block.size))


def dequantize(data: _Blocks, encoding: str, shape: tuple[int, ...]) -> _Blocks:
    """Return blocks as float32 of `shape`.

    Raises:
        ModelError: For an unsupported encoding.
    """
    block = BLOCKS[encoding]
    if block.parts is None:
        names = ", ".join(name for name, other in BLOCKS.items() if other.parts)
        raise ModelError(
            f"load: {encoding} cannot be dequantised",
            help=f"supported: {names}; dequantize=False returns the blocks unchanged",
        )
    blocks = data.reshape(-1, block.size)
    values = np.empty((math.prod(shape) // block.elements, block.elements), np.float32)
    with np.errstate(all="ignore"):  # a scale may be infinite or NaN, and times 0 it is NaN
        for start in range(0, len(blocks), _CHUNK_BLOCKS):
            decoded = block.parts(blocks[start : start + _CHUNK_BLOCKS])
            result = decoded.numbers.astype(np.float32).reshape(*decoded.steps.shape, -1)
            if block.zero:
                result -= np.float32(block.zero)
            result *= decoded.steps[:, :, None]
            if decoded.minima is not None:
                result -= decoded.minima[:, :, None]
            values[start : start + _CHUNK_BLOCKS] = result.reshape(len(result), -1)
    return values.reshape(shape)


def _half(raw: _Blocks) -> _Blocks:
    """Return the float16 in two bytes of each block as float32[n, 1]."""
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def _fields(raw: _Blocks, run: int, bits: int) -> _Blocks:
    """Unpack fields of some bits from runs of bytes: the lowest bits of a whole run first, then the next ones."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields = raw.reshape(len(raw), -1, 1, run) >> shifts & np.uint8((1 << bits) - 1)
    return fields.reshape(len(raw), -1)


def _fifth_bits(raw: _Blocks) -> _Blocks:
    """Return the bits of four bytes, times 16."""
    return np.unpackbits(raw, axis=1, bitorder="little") << np.uint8(4)


def _q5_0(b: _Blocks) -> BlockParts:
    return BlockParts(_fields(b[:, 6:], 16, 4) | _fifth_bits(b[:, 2:6]), _half(b[:, :2]))


def _q5_1(b: _Blocks) -> BlockParts:
    return BlockParts(_fields(b[:, 8:], 16, 4) | _fifth_bits(b[:, 4:8]), _half(b[:, :2]), -_half(b[:, 2:4]))


def _q2_k(b: _Blocks) -> BlockParts:
    scales = b[:, :16]
    steps = _half(b[:, 80:82]) * (scales & np.uint8(15)).astype(np.float32)
    minima = _half(b[:, 82:84]) * (scales >> np.uint8(4)).astype(np.float32)
    return BlockParts(_fields(b[:, 16:80], 32, 2), steps, minima)


def _q3_k(b: _Blocks) -> BlockParts:
    high, low, packed = _fields(b[:, :32], 32, 1), _fields(b[:, 32:96], 32, 2), b[:, 96:108]
    scales = _fields(packed[:, :8], 8, 4) | _fields(packed[:, 8:], 4, 2) << np.uint8(4)
    steps = _half(b[:, 108:110]) * (scales.astype(np.float32) - 32)
    return BlockParts(low | high << np.uint8(2), steps)


def _six_bits(packed: _Blocks) -> tuple[_Blocks, _Blocks]:
    """Unpack eight scales and eight minima of 6 bits each from 12 bytes, as float32."""
    first, second, last = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = [first & np.uint8(63), last & np.uint8(15) | first >> np.uint8(6) << np.uint8(4)]
    minima = [second & np.uint8(63), last >> np.uint8(4) | second >> np.uint8(6) << np.uint8(4)]
    return np.concatenate(scales, 1).astype(np.float32), np.concatenate(minima, 1).astype(np.float32)


def _q4_k(b: _Blocks) -> BlockParts:
    scales, minima = _six_bits(b[:, 4:16])
    return BlockParts(_fields(b[:, 16:], 32, 4), _half(b[:, :2]) * scales, _half(b[:, 2:4]) * minima)


def _q5_k(b: _Blocks) -> BlockParts:
    scales, minima = _six_bits(b[:, 4:16])
    numbers = _fields(b[:, 48:], 32, 4) | _fields(b[:, 16:48], 32, 1) << np.uint8(4)
    return BlockParts(numbers, _half(b[:, :2]) * scales, _half(b[:, 2:4]) * minima)


def _q6_k(b: _Blocks) -> BlockParts:
    numbers = _fields(b[:, :128], 64, 4) | _fields(b[:, 128:192], 32, 2) << np.uint8(4)
    scales = np.ascontiguousarray(b[:, 192:208]).view(np.int8).astype(np.float32)
    return BlockParts(numbers, _half(b[:, 208:210]) * scales)


BLOCKS = {
    "Q4_0": GgufBlock(32, 18, lambda b: BlockParts(_fields(b[:, 2:], 16, 4), _half(b[:, :2])), 8),
    "Q4_1": GgufBlock(32, 20, lambda b: BlockParts(_fields(b[:, 4:], 16, 4), _half(b[:, :2]), -_half(b[:, 2:4]))),
    "Q5_0": GgufBlock(32, 22, _q5_0, 16),
    "Q5_1": GgufBlock(32, 24, _q5_1),
    "Q8_0": GgufBlock(32, 34, lambda b: BlockParts(b[:, 2:].view(np.int8), _half(b[:, :2]))),
    "Q2_K": GgufBlock(256, 84, _q2_k),
    "Q3_K": GgufBlock(256, 110, _q3_k, 4),
    "Q4_K": GgufBlock(256, 144, _q4_k),
    "Q5_K": GgufBlock(256, 176, _q5_k),
    "Q6_K": GgufBlock(256, 210, _q6_k, 32),
    "Q8_1": GgufBlock(32, 40),
    "Q8_K": GgufBlock(256, 292),
    "IQ1_S": GgufBlock(256, 50),
    "IQ1_M": GgufBlock(256, 56),
    "IQ2_XXS": GgufBlock(256, 66),
    "IQ2_XS": GgufBlock(256, 74),
    "IQ2_S": GgufBlock(256, 82),
    "IQ3_XXS": GgufBlock(256, 98),
    "IQ3_S": GgufBlock(256, 110),
    "IQ4_NL": GgufBlock(32, 18),
    "IQ4_XS": GgufBlock(256, 136),
    "TQ1_0": GgufBlock(256, 54),
    "TQ2_0": GgufBlock(256, 66),
    "MXFP4": GgufBlock(32, 17),
}


# The encodings: the bits of a number, and which numbers share a scale.


@dataclass(frozen=True, slots=True)
class Encoding:
    """An encoding of floats in few bits.

    bits: of a number, without scales. block: numbers in a block; None if that is an argument. block_bytes: the size of
    a block; None if values and scales are separate arrays. gguf: the name in GGUF files, or "". meaning: the formula of
    the float for a number q.
    """

    name: str
    bits: int
    block: int | None
    block_bytes: int | None
    gguf: str
    meaning: str

    def __str__(self) -> str:
        return self.name


_ROWS = (
    Encoding("int8", 8, None, None, "", "(q - zero) * scale; a scale for the tensor, or for each index of an axis"),
    Encoding("int8_split", 16, None, None, "", "(254 * q1 + q2) * scale; two digits of 8 bits, scales as of int8"),
    Encoding(
        "int4", 4, None, None, "", "(q - zero) * scale; a scale for each block of the last axis, zero is 8 if none"
    ),
    Encoding("q4_0", 4, 32, 18, "Q4_0", "(q - 8) * d"),
    Encoding("q4_k", 4, 256, 144, "Q4_K", "d * s * q - dmin * m; s and m of 6 bits for each 32 numbers"),
    Encoding("q5_k", 5, 256, 176, "Q5_K", "d * s * q - dmin * m; s and m of 6 bits for each 32 numbers"),
    Encoding("q6_k", 6, 256, 210, "Q6_K", "d * s * (q - 32); s of 8 bits for each 16 numbers"),
)

ENCODINGS: Mapping[str, Encoding] = MappingProxyType({row.name: row for row in _ROWS})
"""Every encoding by name."""


def encoding_of(op: str, encoding: object) -> Encoding:
    """Return the encoding of a name, ignoring case. Raises `DTypeError` that lists the encodings."""
    if isinstance(encoding, Encoding):
        return encoding
    row = ENCODINGS.get(encoding.lower()) if isinstance(encoding, str) else None
    if row is None:
        raise DTypeError(f"{op}: there is no encoding {encoding!r:.80}", help=f"use one of {', '.join(ENCODINGS)}")
    return row
