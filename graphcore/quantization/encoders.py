"""Encode arrays: int8 with a scale for the tensor or each channel, int4 in blocks, and GGUF's blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphcore.arrays.casting import is_masked
from graphcore.errors import DTypeError, ModelError, ShapeError
from graphcore.quantization.tensors import BASE, Array, Encoding, QuantizedTensor, encoding_of, packed
from graphcore.types.dtypes import DType

BLOCK_SIZE = 32

_MAX_SPLIT = 127 * BASE + 127


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
    """Quantise an array of floats.

    Numbers are rounded to the nearest, ties to even. A channel or block of zeros has the scale 1.

    Args:
        array: float16, bfloat16, float32 or float64, finite. Blocks lie along its last axis.
        encoding: A name in `ENCODINGS`, or the row.
        axis: Of int8 and int8_split, the axis with a scale for each index; None means one scale for the tensor.
        block_size: Of int4, a power of two of at least 16. Default 32.
        symmetric: True maps the greatest magnitude to 127 (int8), to 127 * 254 + 127 (int8_split), or to 0 or 15 around
            8 in each block (int4). False uses zero points, and maps the range from the minimum to the maximum, extended
            to 0, to 0..255 (int8) or 0..15 (int4).
        search: Of int4, try nearby scales and zero points, and choose those with the least sum of squared errors.
        reduce_range: Of symmetric int8, use 63 in place of 127, for processors on which products of unsigned with
            signed bytes saturate.

    Raises:
        DTypeError: The dtype or encoding is not supported, or the encoding does not take an argument.
        ShapeError: The block size does not divide the last dim.
        ModelError: The array contains NaN or infinities, or a scale overflows.
    """
    chosen = encoding_of("encode", encoding)
    check_arguments("encode", chosen, axis, block_size, symmetric)
    if reduce_range and (chosen.name != "int8" or not symmetric):
        raise DTypeError(f"encode: reduce_range applies to symmetric int8, not to {chosen}", help="omit reduce_range")
    x = _floats(array)
    if chosen.name == "int8":
        return _int8(x, _axis(axis, x), symmetric, 63 if reduce_range else 127)
    if chosen.name == "int8_split":
        return _int8_split(x, _axis(axis, x))
    block = block_size or BLOCK_SIZE if chosen.name == "int4" else chosen.block
    assert block is not None
    check_blocks("encode", chosen, x.shape, block)
    if chosen.name == "int4":
        tensor = _int4(x, block, symmetric)
        if not search:
            return tensor
        return fit_scales(x, tensor)
    from graphcore.quantization import kquants  # 3 ms to import, which only GGUF's encodings need

    assert chosen.block_bytes is not None
    blocks = kquants.encode_blocks(x, chosen.gguf, block, chosen.block_bytes)
    return QuantizedTensor(chosen.gguf, x.shape, blocks)


def check_arguments(op: str, encoding: Encoding, axis: int | None, block_size: int | None, symmetric: bool) -> None:
    """Raise `DTypeError` for an argument that the encoding does not take."""
    if axis is not None and encoding.name not in ("int8", "int8_split"):
        raise DTypeError(
            f"{op}: {encoding} has scales for blocks along the last axis, and takes no axis", help="omit axis"
        )
    if block_size is not None and encoding.name != "int4":
        what = "no blocks" if encoding.block is None else f"blocks of {encoding.block}"
        raise DTypeError(f"{op}: {encoding} has {what}", help="omit block_size")
    if block_size is not None and (type(block_size) is not int or block_size < 16 or block_size & block_size - 1):
        raise DTypeError(
            f"{op}: block_size must be a power of two of at least 16, got {block_size!r}",
            help="use 32, 64 or 128",
        )
    if not symmetric and encoding.name == "int8_split":
        raise DTypeError(f"{op}: {encoding} has no zero points", help="omit symmetric")
    if not symmetric and encoding.block is not None:
        raise DTypeError(
            f"{op}: {encoding} takes no symmetric: its format defines whether it has minima", help="omit symmetric"
        )


def check_blocks(op: str, encoding: Encoding, shape: tuple[int, ...], block: int) -> None:
    """Raise `ShapeError` if the block size does not divide the last dim."""
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
    """Return the number of elements in a row of bytes. Raises `ShapeError` if its blocks are incomplete."""
    assert encoding.block is not None
    assert encoding.block_bytes is not None
    if row % encoding.block_bytes:
        raise ShapeError(
            f"{op}: a row has {row} bytes, and a block of {encoding} has {encoding.block_bytes}",
            help="give uint8[..., bytes of a row], as in .data of load_tensors(..., dequantize=False)",
        )
    return row // encoding.block_bytes * encoding.block


def _floats(array: Any) -> Array:
    """Return the array in float32. Raises `DTypeError`, or `ModelError` if it is not finite."""
    if is_masked(array):
        raise DTypeError("encode: masked arrays are not supported", help="fill it: array.filled(0)")
    values = np.asarray(array)
    try:
        dtype = DType.of(values.dtype)
    except DTypeError:
        dtype = None
    if dtype is None or not dtype.is_float or dtype.bits < 16:
        raise DTypeError(
            f"encode: the array must have a float dtype, got {values.dtype}", help="cast it to float32 first"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.ascontiguousarray(values, np.float32).reshape(values.shape)
    if not np.isfinite(x).all():
        wide = values.astype(np.float64)
        what = "beyond float32" if np.isfinite(wide).all() else "NaN or infinite"
        raise ModelError(
            f"encode: {np.count_nonzero(~np.isfinite(x))} of {x.size} values are {what}",
            help="encodings represent finite float32 values only: replace them, for example with np.nan_to_num",
        )
    return x


def _axis(axis: int | None, x: Array) -> int | None:
    if axis is None:
        return None
    if isinstance(axis, bool) or not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
        raise ShapeError(
            f"encode: there is no axis {axis!r} of an array of rank {x.ndim}",
            help="omit it for a single scale, or give one of the axes",
        )
    return axis % x.ndim


def _int8(x: Array, axis: int | None, symmetric: bool, q_max: int) -> QuantizedTensor:
    others = tuple(a for a in range(x.ndim) if a != axis)
    of_scales = () if axis is None else (x.shape[axis],)
    if symmetric:
        scales = _without_zeros(np.abs(x).max(axis=others, keepdims=True, initial=0) / np.float32(q_max))
        values = np.clip(np.rint(x / scales), -q_max, q_max).astype(np.int8)
        return QuantizedTensor("int8", x.shape, values, scales.reshape(of_scales), None, axis)
    scales, zeros, numbers = _asymmetric(x, others, 255)
    return QuantizedTensor("int8", x.shape, numbers, scales.reshape(of_scales), zeros.reshape(of_scales), axis)


def _int8_split(x: Array, axis: int | None) -> QuantizedTensor:
    """Encode as integers of 16 bits, each 254 times a digit plus another digit, both from -127 to 127."""
    others = tuple(a for a in range(x.ndim) if a != axis)
    scales = _without_zeros(np.abs(x).max(axis=others, keepdims=True, initial=0) / np.float32(_MAX_SPLIT))
    whole = np.clip(np.rint(x / scales), -_MAX_SPLIT, _MAX_SPLIT)
    first = np.clip(np.rint(whole / BASE), -127, 127)
    digits = np.stack([first, whole - BASE * first]).astype(np.int8)
    of_scales = () if axis is None else (x.shape[axis],)
    return QuantizedTensor("int8_split", x.shape, digits, scales.reshape(of_scales), None, axis)


def _int4(x: Array, block: int, symmetric: bool) -> QuantizedTensor:
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // block, block)
    if symmetric:
        greatest, least = blocks.max(-1, keepdims=True, initial=0), blocks.min(-1, keepdims=True, initial=0)
        # The greatest magnitude becomes 0, which means -8: the only number without an opposite.
        scales = _without_zeros(np.where(greatest > -least, greatest, least) / np.float32(-8))
        numbers = np.clip(np.rint(blocks / scales) + 8, 0, 15).astype(np.uint8)
        zeros = None
    else:
        scales, points, numbers = _asymmetric(blocks, (-1,), 15)
        zeros = points[..., 0]
    return QuantizedTensor("int4", x.shape, packed(numbers.reshape(x.shape)), scales[..., 0], zeros, None, block)


def _asymmetric(x: Array, axes: tuple[int, ...], q_max: int) -> tuple[Array, Array, Array]:
    """Return scales, zero points and numbers from 0 to `q_max`, as ONNX's DynamicQuantizeLinear does."""
    least, greatest = x.min(axes, keepdims=True, initial=0), x.max(axes, keepdims=True, initial=0)
    with np.errstate(over="ignore"):
        scales = _without_zeros((greatest - least) / np.float32(q_max))
    if not np.isfinite(scales).all():
        raise ModelError(
            f"encode: the range from {least.min()} to {greatest.max()} overflows float32, and so does the scale",
            help="use symmetric=True, or scale the array down",
        )
    zeros = np.clip(np.rint(-least / scales), 0, q_max)
    numbers = np.clip(np.rint(x / scales) + zeros, 0, q_max)
    return scales, zeros.astype(np.uint8), numbers.astype(np.uint8)


def _without_zeros(scales: Array) -> Array:
    """Replace zeros among scales by 1."""
    return np.where(scales == 0, np.float32(1), scales).astype(np.float32)


# Scales of 4-bit blocks with the least error: narrower ranges are tried, and scales refined by least squares.

_RANGES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)
"""Fractions of the range of a block to try: values beyond it are clipped."""

_SHIFTS = (-1, 0, 1)
"""Offsets from the zero point of the range to try."""

_CHUNK_BLOCKS = 1 << 12
"""Blocks that are fitted at once, so that intermediate results stay in the cache."""


def fit_scales(array: Array, tensor: QuantizedTensor) -> QuantizedTensor:
    """Return an int4 tensor with scales and zero points of less squared error.

    array: the floats that `tensor` was encoded from. Several ranges and zero points are tried for each block; the best
    scale for the resulting numbers q is x.q / q.q. No block has a greater error than in `tensor`. Raises `DTypeError`
    for any other encoding.
    """
    if tensor.encoding != "int4" or tensor.scales is None or tensor.block_size is None:
        raise DTypeError(
            f"fit_scales: the tensor must be encoded as int4, got {tensor.encoding}", help="encode it as int4"
        )
    x = np.ascontiguousarray(array, np.float32).reshape(-1, tensor.block_size)
    scales = tensor.scales.reshape(-1, 1)
    zeros = None if tensor.zero_points is None else tensor.zero_points.reshape(-1, 1)
    numbers = np.empty(x.shape, np.uint8)
    best_scales = np.empty(scales.shape, np.float32)
    best_zeros = np.empty(scales.shape, np.uint8)
    for start in range(0, len(x), _CHUNK_BLOCKS):
        part = slice(start, start + _CHUNK_BLOCKS)
        points = None if zeros is None else zeros[part].astype(np.float32)
        best_scales[part], point = _best_scales(x[part], scales[part], points)
        numbers[part] = np.clip(np.rint(x[part] / best_scales[part]) + point, 0, 15)
        best_zeros[part] = point
    return replace(
        tensor,
        data=packed(numbers.reshape(tensor.shape)),
        scales=best_scales.reshape(tensor.scales.shape),
        zero_points=None if tensor.zero_points is None else best_zeros.reshape(tensor.scales.shape),
    )


def _best_scales(x: Array, scales: Array, zeros: Array | None) -> tuple[Array, Array]:
    """Return the scale and zero point of each block with the greatest (x.q)^2 / q.q, the part of x that q explains."""
    best_explained = np.full(scales.shape, -1, np.float32)
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
            better = (explained > best_explained) & (solved != 0) & np.isfinite(solved)
            best_explained = np.where(better, explained, best_explained)
            best_scales = np.where(better, solved, best_scales)
            best_zeros = np.where(better, point, best_zeros)
    return best_scales, best_zeros
