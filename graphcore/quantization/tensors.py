"""Tensors held in few bits: values, scales and zero points as arrays, or blocks of all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore.errors import DTypeError, ModelError

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


# Quantised weights as GGUF files hold them: blocks of a few scales and many small integers.
#
# The layouts are those of ggml (https://github.com/ggml-org/ggml, `ggml-common.h`). Everything is little endian, and
# float32 is computed in the order of ggml's own code, so that the numbers are the same bit for bit.

_Blocks = np.ndarray[Any, Any]

_AT_ONCE = 1 << 9
"""Blocks that are dequantised at once: what is computed on the way stays in the cache."""


@dataclass(frozen=True, slots=True)
class Block:
    """elements, size in bytes, and how float32[n, elements] is made of uint8[n, size], if that is known.

    parts: what some are made of. zero: what stands for 0 among their numbers.
    """

    elements: int
    size: int
    decode: Callable[[_Blocks], _Blocks] | None = None
    parts: Callable[[_Blocks], Parts] | None = None
    zero: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """n blocks as steps * (numbers - zero) - minima. numbers: uint8[n, elements]. steps and minima: float32[n, parts],
    each of equally many elements; minima are None where there are none."""

    numbers: _Blocks
    steps: _Blocks
    minima: _Blocks | None = None


def parts_of(data: _Blocks, encoding: str) -> Parts:
    """The parts of blocks of a known encoding. Values that are no numbers are what they are, without a warning."""
    block = BLOCKS[encoding]
    assert block.parts is not None
    with np.errstate(all="ignore"):
        return block.parts(np.ascontiguousarray(data).reshape(-1, block.size))


def _by_parts(parts: Callable[[_Blocks], Parts], zero: int = 0) -> Callable[[_Blocks], _Blocks]:
    def decode(b: _Blocks) -> _Blocks:
        made = parts(b)
        values = _scaled(made.steps, made.numbers.astype(np.float32) - np.float32(zero))
        return _flat(values if made.minima is None else values - made.minima[:, :, None])

    return decode


def dequantize(data: _Blocks, encoding: str, shape: tuple[int, ...]) -> _Blocks:
    """Blocks as float32 of `shape`. Raises `ModelError` for an encoding that is not computed."""
    block = BLOCKS[encoding]
    if block.decode is None:
        known = ", ".join(name for name, other in BLOCKS.items() if other.decode)
        raise ModelError(
            f"load: {encoding} is not dequantised", help=f"{known} are; dequantize=False gives the blocks as they are"
        )
    blocks = data.reshape(-1, block.size)
    made = np.empty((math.prod(shape) // block.elements, block.elements), np.float32)
    with np.errstate(all="ignore"):  # a scale may be infinite or no number, and times 0 that is what it is
        for start in range(0, len(blocks), _AT_ONCE):
            made[start : start + _AT_ONCE] = block.decode(blocks[start : start + _AT_ONCE])
    return made.reshape(shape)


def _half(raw: _Blocks) -> _Blocks:
    """Two bytes of each block as float32[n, 1]."""
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def _fields(raw: _Blocks, run: int, bits: int) -> _Blocks:
    """The fields of some bits that runs of bytes hold: first the lowest bits of a whole run, then the next ones."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields = raw.reshape(len(raw), -1, 1, run) >> shifts & np.uint8((1 << bits) - 1)
    return fields.reshape(len(raw), -1)


def _fifth_bits(raw: _Blocks) -> _Blocks:
    """The bits of four bytes, times 16."""
    return np.unpackbits(raw, axis=1, bitorder="little") << np.uint8(4)


def _scaled(scales: _Blocks, values: _Blocks) -> _Blocks:
    """Values times the scales of the equal parts they fall into."""
    parts = values.reshape(len(values), scales.shape[1], -1)
    return scales[:, :, None] * parts


def _flat(parts: _Blocks) -> _Blocks:
    return parts.reshape(len(parts), -1)


def _q4_0(b: _Blocks) -> Parts:
    return Parts(_fields(b[:, 2:], 16, 4), _half(b[:, :2]))


def _q4_1(b: _Blocks) -> _Blocks:
    return _half(b[:, :2]) * _fields(b[:, 4:], 16, 4).astype(np.float32) + _half(b[:, 2:4])


def _q5_0(b: _Blocks) -> _Blocks:
    values = _fields(b[:, 6:], 16, 4) | _fifth_bits(b[:, 2:6])
    return _half(b[:, :2]) * (values.astype(np.float32) - 16)


def _q5_1(b: _Blocks) -> _Blocks:
    values = _fields(b[:, 8:], 16, 4) | _fifth_bits(b[:, 4:8])
    return _half(b[:, :2]) * values.astype(np.float32) + _half(b[:, 2:4])


def _q8_0(b: _Blocks) -> _Blocks:
    return _half(b[:, :2]) * b[:, 2:].view(np.int8).astype(np.float32)


def _q2_k(b: _Blocks) -> _Blocks:
    scales, values = b[:, :16], _fields(b[:, 16:80], 32, 2).astype(np.float32)
    steps = _half(b[:, 80:82]) * (scales & np.uint8(15)).astype(np.float32)
    least = _half(b[:, 82:84]) * (scales >> np.uint8(4)).astype(np.float32)
    return _flat(_scaled(steps, values) - least[:, :, None])


def _q3_k(b: _Blocks) -> _Blocks:
    high, low, packed = _fields(b[:, :32], 32, 1), _fields(b[:, 32:96], 32, 2), b[:, 96:108]
    scales = _fields(packed[:, :8], 8, 4) | _fields(packed[:, 8:], 4, 2) << np.uint8(4)
    steps = _half(b[:, 108:110]) * (scales.astype(np.float32) - 32)
    return _flat(_scaled(steps, (low | high << np.uint8(2)).astype(np.float32) - 4))


def _six_bits(packed: _Blocks) -> tuple[_Blocks, _Blocks]:
    """The eight scales and eight minima of 6 bits each in 12 bytes, as float32."""
    first, second, last = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = [first & np.uint8(63), last & np.uint8(15) | first >> np.uint8(6) << np.uint8(4)]
    minima = [second & np.uint8(63), last >> np.uint8(4) | second >> np.uint8(6) << np.uint8(4)]
    return np.concatenate(scales, 1).astype(np.float32), np.concatenate(minima, 1).astype(np.float32)


def _q4_k(b: _Blocks) -> Parts:
    scales, minima = _six_bits(b[:, 4:16])
    return Parts(_fields(b[:, 16:], 32, 4), _half(b[:, :2]) * scales, _half(b[:, 2:4]) * minima)


def _q5_k(b: _Blocks) -> Parts:
    scales, minima = _six_bits(b[:, 4:16])
    numbers = _fields(b[:, 48:], 32, 4) | _fields(b[:, 16:48], 32, 1) << np.uint8(4)
    return Parts(numbers, _half(b[:, :2]) * scales, _half(b[:, 2:4]) * minima)


def _q6_k(b: _Blocks) -> Parts:
    numbers = _fields(b[:, :128], 64, 4) | _fields(b[:, 128:192], 32, 2) << np.uint8(4)
    scales = np.ascontiguousarray(b[:, 192:208]).view(np.int8).astype(np.float32)
    return Parts(numbers, _half(b[:, 208:210]) * scales)


BLOCKS = {
    "Q4_0": Block(32, 18, _by_parts(_q4_0, 8), _q4_0, 8),
    "Q4_1": Block(32, 20, _q4_1),
    "Q5_0": Block(32, 22, _q5_0),
    "Q5_1": Block(32, 24, _q5_1),
    "Q8_0": Block(32, 34, _q8_0),
    "Q2_K": Block(256, 84, _q2_k),
    "Q3_K": Block(256, 110, _q3_k),
    "Q4_K": Block(256, 144, _by_parts(_q4_k), _q4_k),
    "Q5_K": Block(256, 176, _by_parts(_q5_k), _q5_k),
    "Q6_K": Block(256, 210, _by_parts(_q6_k, 32), _q6_k, 32),
    "Q8_1": Block(32, 40),
    "Q8_K": Block(256, 292),
    "IQ1_S": Block(256, 50),
    "IQ1_M": Block(256, 56),
    "IQ2_XXS": Block(256, 66),
    "IQ2_XS": Block(256, 74),
    "IQ2_S": Block(256, 82),
    "IQ3_XXS": Block(256, 98),
    "IQ3_S": Block(256, 110),
    "IQ4_NL": Block(32, 18),
    "IQ4_XS": Block(256, 136),
    "TQ1_0": Block(256, 54),
    "TQ2_0": Block(256, 66),
    "MXFP4": Block(32, 17),
}


# The encodings: how many bits a number takes, and which numbers share a scale.


@dataclass(frozen=True, slots=True)
class Encoding:
    """One way to hold floats in few bits.

    bits: of a number, without scales. block: how many numbers share what a block has; None where that is chosen.
    block_bytes: what such a block takes; None where values and scales are arrays of their own. gguf: its name in GGUF
    files, or "". meaning: which float a number stands for.
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
    """The encoding of a name, in capitals or not. Raises `DTypeError` that lists those there are."""
    if isinstance(encoding, Encoding):
        return encoding
    found = ENCODINGS.get(encoding.lower()) if isinstance(encoding, str) else None
    if found is None:
        raise DTypeError(f"{op}: there is no encoding {encoding!r:.80}", help=f"one of {', '.join(ENCODINGS)}")
    return found
