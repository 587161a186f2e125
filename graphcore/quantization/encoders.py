"""Encoding arrays: int8 with a scale for the tensor or each channel, int4 in blocks, and GGUF's blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.arrays.casting import is_masked
from graphcore.errors import DTypeError, ModelError, ShapeError
from graphcore.quantization.encodings import Encoding, encoding_of
from graphcore.quantization.fitting import fitted
from graphcore.quantization.tensors import BASE, Array, QuantizedTensor, packed
from graphcore.types.dtypes import DType

BLOCK_SIZE = 32

_MOST_OF_SPLIT = 127 * BASE + 127


def encode(
    array: Any,
    encoding: str | Encoding,
    *,
    axis: int | None = None,
    block_size: int | None = None,
    symmetric: bool = True,
    search: bool = False,
    reduce_range: bool = False,
) -> QuantizedTensor:
    """An array of floats held in few bits.

    array: float16, bfloat16, float32 or float64, finite; blocks lie along its last axis. axis: of int8 and int8_split
    the axis whose every index has a scale of its own; None is one scale for all. block_size: of int4, a power of two
    from 16 on (32).

    symmetric: of int8 the greatest magnitude becomes 127, and of int4 that of a block 0 or 15, around 8. Otherwise
    there are zero points, and what lies between the least number (or 0) and the greatest (or 0) becomes 0 to 255 or 0
    to 15. Of int8_split the greatest magnitude becomes 127 * 254 + 127. search: of int4, scales and zero points near
    those are tried, and what is nearest to the array in the sum of squares is taken. reduce_range: of symmetric int8,
    63 in place of 127, for processors on which products of unsigned with signed bytes saturate.

    Ties go to even. What is all zero has the scale 1. Raises `DTypeError` for other dtypes, encodings and arguments
    that an encoding has not, `ShapeError` for shapes that blocks do not divide, `ModelError` for NaN, infinities and
    scales that overflow.
    """
    chosen = encoding_of("encode", encoding)
    check_arguments("encode", chosen, axis, block_size, symmetric)
    if reduce_range and (chosen.name != "int8" or not symmetric):
        raise DTypeError(f"encode: reduce_range is of symmetric int8, not of {chosen}", help="leave it out")
    x = _floats(array)
    if chosen.name == "int8":
        return _int8(x, _axis(axis, x), symmetric, 63 if reduce_range else 127)
    if chosen.name == "int8_split":
        return _split(x, _axis(axis, x))
    block = block_size or BLOCK_SIZE if chosen.name == "int4" else chosen.block
    assert block is not None
    check_blocks("encode", chosen, x.shape, block)
    if chosen.name == "int4":
        made = _int4(x, block, symmetric)
        if not search:
            return made
        return fitted(x, made)
    from graphcore.quantization import kquants  # 3 ms to import, which only GGUF's encodings need

    assert chosen.block_bytes is not None
    blocks = kquants.encoded(x, chosen.gguf, block, chosen.block_bytes)
    return QuantizedTensor(chosen.gguf, x.shape, blocks)


def check_arguments(op: str, encoding: Encoding, axis: int | None, block_size: int | None, symmetric: bool) -> None:
    """Raise `DTypeError` for an argument that the encoding has not."""
    if axis is not None and encoding.name not in ("int8", "int8_split"):
        raise DTypeError(
            f"{op}: {encoding} has blocks along the last axis, not an axis of scales", help="leave out axis"
        )
    if block_size is not None and encoding.name != "int4":
        what = "no blocks" if encoding.block is None else f"blocks of {encoding.block}"
        raise DTypeError(f"{op}: {encoding} has {what}", help="leave out block_size")
    if block_size is not None and (type(block_size) is not int or block_size < 16 or block_size & block_size - 1):
        raise DTypeError(f"{op}: block_size is {block_size!r}", help="give a power of two from 16 on: 32, 64, 128")
    if not symmetric and encoding.name == "int8_split":
        raise DTypeError(f"{op}: {encoding} has no zero points", help="leave out symmetric")
    if not symmetric and encoding.block is not None:
        raise DTypeError(f"{op}: whether there are minima is up to {encoding} itself", help="leave out symmetric")


def check_blocks(op: str, encoding: Encoding, shape: tuple[int, ...], block: int) -> None:
    """Raise `ShapeError` where blocks do not divide the last axis."""
    if shape and not shape[-1] % block:
        return
    last = shape[-1] if shape else 1
    fits = next((b for b in (256, 128, 64, 32, 16) if b < block and not last % b), None)
    other = f"block_size={fits}, or " if shape and encoding.name == "int4" and fits else ""
    raise ShapeError(
        f"{op}: blocks of {block} do not divide {last}, the last dim of {list(shape)}",
        help=f"{other}pad the last axis with zeros to {max(-(-last // block), 1) * block}",
    )


def whole_blocks(op: str, encoding: Encoding, row: int) -> int:
    """Return how many numbers a row of so many bytes holds. Raises `ShapeError` for one of no whole blocks."""
    assert encoding.block is not None
    assert encoding.block_bytes is not None
    if row % encoding.block_bytes:
        raise ShapeError(
            f"{op}: a row has {row} bytes, and a block of {encoding} has {encoding.block_bytes}",
            help="give uint8[..., bytes of a row], as load_tensors(..., dequantize=False) has them in .data",
        )
    return row // encoding.block_bytes * encoding.block


def _floats(array: Any) -> Array:
    """The array in float32, finite."""
    if is_masked(array):
        raise DTypeError("encode: a masked array, and encodings know no masks", help="fill it: array.filled(0)")
    given = np.asarray(array)
    try:
        dtype = DType.of(given.dtype)
    except DTypeError:
        dtype = None
    if dtype is None or not dtype.is_float or dtype.bits < 16:
        raise DTypeError(f"encode: an array of {given.dtype} is not of floats", help="cast it to float32 first")
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.ascontiguousarray(given, np.float32).reshape(given.shape)
    if not np.isfinite(x).all():
        wide = given.astype(np.float64)
        what = "beyond float32" if np.isfinite(wide).all() else "NaN or infinite"
        raise ModelError(
            f"encode: {np.count_nonzero(~np.isfinite(x))} of {x.size} numbers are {what}",
            help="no scale holds them: find out where they come from, or np.nan_to_num",
        )
    return x


def _axis(axis: int | None, x: Array) -> int | None:
    if axis is None:
        return None
    if isinstance(axis, bool) or not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
        raise ShapeError(
            f"encode: there is no axis {axis!r} of an array of rank {x.ndim}",
            help="leave it out for one scale, or give one of the axes",
        )
    return axis % x.ndim


def _int8(x: Array, axis: int | None, symmetric: bool, most: int) -> QuantizedTensor:
    others = tuple(a for a in range(x.ndim) if a != axis)
    of_scales = () if axis is None else (x.shape[axis],)
    if symmetric:
        scales = _whole(np.abs(x).max(axis=others, keepdims=True, initial=0) / np.float32(most))
        values = np.clip(np.rint(x / scales), -most, most).astype(np.int8)
        return QuantizedTensor("int8", x.shape, values, scales.reshape(of_scales), None, axis)
    scales, zeros, numbers = _between(x, others, 255)
    return QuantizedTensor("int8", x.shape, numbers, scales.reshape(of_scales), zeros.reshape(of_scales), axis)


def _split(x: Array, axis: int | None) -> QuantizedTensor:
    """Whole numbers of 16 bits, and each as 254 times a digit plus another one, both from -127 to 127."""
    others = tuple(a for a in range(x.ndim) if a != axis)
    scales = _whole(np.abs(x).max(axis=others, keepdims=True, initial=0) / np.float32(_MOST_OF_SPLIT))
    whole = np.clip(np.rint(x / scales), -_MOST_OF_SPLIT, _MOST_OF_SPLIT)
    first = np.clip(np.rint(whole / BASE), -127, 127)
    digits = np.stack([first, whole - BASE * first]).astype(np.int8)
    of_scales = () if axis is None else (x.shape[axis],)
    return QuantizedTensor("int8_split", x.shape, digits, scales.reshape(of_scales), None, axis)


def _int4(x: Array, block: int, symmetric: bool) -> QuantizedTensor:
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // block, block)
    if symmetric:
        greatest, least = blocks.max(-1, keepdims=True, initial=0), blocks.min(-1, keepdims=True, initial=0)
        # The greatest magnitude becomes 0, which is -8 and the one number without an opposite.
        scales = _whole(np.where(greatest > -least, greatest, least) / np.float32(-8))
        numbers = np.clip(np.rint(blocks / scales) + 8, 0, 15).astype(np.uint8)
        zeros = None
    else:
        scales, points, numbers = _between(blocks, (-1,), 15)
        zeros = points[..., 0]
    return QuantizedTensor("int4", x.shape, packed(numbers.reshape(x.shape)), scales[..., 0], zeros, None, block)


def _between(x: Array, axes: tuple[int, ...], most: int) -> tuple[Array, Array, Array]:
    """Scales, zero points and numbers from 0 to `most`, as ONNX's DynamicQuantizeLinear has them."""
    least, greatest = x.min(axes, keepdims=True, initial=0), x.max(axes, keepdims=True, initial=0)
    with np.errstate(over="ignore"):
        scales = _whole((greatest - least) / np.float32(most))
    if not np.isfinite(scales).all():
        raise ModelError(
            f"encode: between {least.min()} and {greatest.max()} lies more than float32 holds, and the scale overflows",
            help="encode it with symmetric=True, or scale it down",
        )
    zeros = np.clip(np.rint(-least / scales), 0, most)
    numbers = np.clip(np.rint(x / scales) + zeros, 0, most)
    return scales, zeros.astype(np.uint8), numbers.astype(np.uint8)


def _whole(scales: Array) -> Array:
    """Scales of which none is 0."""
    return np.where(scales == 0, np.float32(1), scales).astype(np.float32)
