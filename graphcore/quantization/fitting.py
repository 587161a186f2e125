"""Scales of 4-bit blocks that leave the least error: tried over narrower ranges, then solved for by least squares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphcore.errors import DTypeError
from graphcore.quantization.tensors import Array, QuantizedTensor, packed

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
