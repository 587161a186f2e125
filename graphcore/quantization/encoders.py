"""Encoding arrays: int8 with a scale for the tensor or each channel, int4 in blocks, and GGUF's blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphcore.arrays.casting import is_masked
from graphcore.errors import DTypeError, ModelError, ShapeError
from graphcore.quantization.tensors import BASE, Array, Encoding, QuantizedTensor, encoding_of, packed
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


# Scales of 4-bit blocks that leave the least error: tried over narrower ranges, then solved for by least squares.

_RANGES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)
"""Parts of the range between the least number of a block and the greatest that are tried: the rest is clipped."""

_SHIFTS = (-1, 0, 1)
"""The offsets that are tried on the zero point that the range gives."""

_AT_ONCE = 1 << 12
"""Blocks that are fitted at once: what is computed on the way stays in the cache."""


def fitted(array: Array, tensor: QuantizedTensor) -> QuantizedTensor:
    """The int4 tensor of an array with the scales and zero points that are nearest to it in the sum of squares.

    array: the floats that `tensor` was encoded from. Of each block several ranges and zero points are tried; for the
    numbers that each gives, the best scale is x.q / q.q. No block is further from the array than in `tensor`.
    Raises `DTypeError` for any other encoding.
    """
    if tensor.encoding != "int4" or tensor.scales is None or tensor.block_size is None:
        raise DTypeError(f"fitted: {tensor.encoding} has no scales to choose", help="encode it as int4")
    x = np.ascontiguousarray(array, np.float32).reshape(-1, tensor.block_size)
    scales = tensor.scales.reshape(-1, 1)
    zeros = None if tensor.zero_points is None else tensor.zero_points.reshape(-1, 1)
    numbers = np.empty(x.shape, np.uint8)
    best_scales = np.empty(scales.shape, np.float32)
    best_zeros = np.empty(scales.shape, np.uint8)
    for start in range(0, len(x), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        points = None if zeros is None else zeros[part].astype(np.float32)
        best_scales[part], point = _best(x[part], scales[part], points)
        numbers[part] = np.clip(np.rint(x[part] / best_scales[part]) + point, 0, 15)
        best_zeros[part] = point
    return replace(
        tensor,
        data=packed(numbers.reshape(tensor.shape)),
        scales=best_scales.reshape(tensor.scales.shape),
        zero_points=None if tensor.zero_points is None else best_zeros.reshape(tensor.scales.shape),
    )


def _best(x: Array, scales: Array, zeros: Array | None) -> tuple[Array, Array]:
    """The scale and zero point of each block for which x.q squared over q.q, what q explains of x, is greatest."""
    most = np.full(scales.shape, -1, np.float32)
    best_scales, best_zeros = scales, np.full(scales.shape, 8, np.float32) if zeros is None else zeros
    tried = [(1, 0), (-1, 0)] if zeros is None else [(1, shift) for shift in _SHIFTS]
    for part in _RANGES:
        for sign, shift in tried:
            step = scales * np.float32(sign * part)
            point = np.float32(8) if zeros is None else np.clip(zeros + np.float32(shift), 0, 15)
            q = x / step
            np.rint(q, out=q)
            q += point
            np.clip(q, 0, 15, out=q)
            q -= point
            along = np.einsum("ij,ij->i", x, q)[:, None]
            square = np.einsum("ij,ij->i", q, q)[:, None]
            solved = along / np.where(square == 0, np.float32(1), square)
            explained = along * solved
            better = (explained > most) & (solved != 0) & np.isfinite(solved)
            most = np.where(better, explained, most)
            best_scales = np.where(better, solved, best_scales)
            best_zeros = np.where(better, point, best_zeros)
    return best_scales, best_zeros
