"""Fourier transforms of models that others wrote as products with the matrix of the transform.

The float32 kernels compute lengths that are no power of two by convolutions (Bluestein), which lose digits (3e-5 of the
largest result at 400, 1e-4 at 1000) and take five to ten times as long as a product, whose sums are as exact as those
of any other (1e-6).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.shape_arithmetic import transpose
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

LONGEST = 1024
"""The length up to which a product is faster than the kernel in float64."""


def frame_length(b: Builder, call: Call) -> int | None:
    """Return the length of a DFT or of the frames of an STFT, None where the graph does not tell."""
    if call.op == "STFT":
        window, length = _operands(call, 2, 3)
        if length is not None:
            return _number(b, length)
        static = None if window is None else window.shape[0]
        return int(static) if static is not None and static.is_static else None
    x, length, axis = _operands(call, 0, 1, 2)
    if length is not None:
        return _number(b, length)
    position = -2 if axis is None else _number(b, axis)
    if position is None or not x.shape.is_ranked or not x.shape[position].is_static:
        return None
    return int(x.shape[position])


def product(b: Builder, call: Call, length: int) -> Symbol | None:
    """Return a float32 DFT or STFT as a product or a convolution; None where it has no such form."""
    if not 2 <= length <= LONGEST:
        return None
    return _frames(b, call, length) if call.op == "STFT" else _transform(b, call, length)


def _transform(b: Builder, call: Call, length: int) -> Symbol | None:
    x, axis = _operands(call, 0, 2)
    inverse, onesided = bool(call.attributes.get("inverse")), bool(call.attributes.get("onesided"))
    position = -2 if axis is None else _number(b, axis)
    if position is None or not x.shape.is_ranked or (inverse and onesided):
        return None
    position %= x.rank
    size, parts = x.shape[position], x.shape[-1]
    if position == x.rank - 1 or not parts.is_static or int(parts) not in (1, 2):
        return None
    if not size.is_static or not 0 < int(size) <= length:
        return None
    order = [a for a in range(x.rank) if a != position]
    order.insert(-1, position)
    rows = transpose(b, x, order)
    count = length // 2 + 1 if onesided else length
    used = int(size) * int(parts)  # zeros follow where the transform is longer
    matrix = b.constant(_matrix(length, count, int(parts), inverse)[:used], DType.float32)
    flat = _split(b, rows, (used,), drop=2)
    wide = b.op("MatMul", flat, matrix, shape=_with_last(flat, 2 * count))
    made = _split(b, wide, (count, 2), drop=1)
    return transpose(b, made, [order.index(a) for a in range(x.rank)])


def _frames(b: Builder, call: Call, length: int) -> Symbol | None:
    signal, step, window = _operands(call, 0, 1, 2)
    stride = _number(b, step)
    factors = None if window is None else b.known(window)
    is_real = signal.rank == 2 or (signal.rank == 3 and signal.shape[2] == 1)
    if stride is None or stride < 1 or (window is not None and factors is None) or not is_real:
        return None
    if factors is not None and factors.shape != (length,):
        return None
    count = length // 2 + 1 if call.attributes.get("onesided", 1) else length
    matrix = _matrix(length, count, 1, False).T  # the rows are what one frame is multiplied with
    if factors is not None:
        matrix = matrix.astype(np.float64) * factors
    kernel = b.constant(np.ascontiguousarray(matrix, np.float32).reshape(2 * count, 1, length), DType.float32)
    batch = signal.shape[0]
    line = b.op("Reshape", signal, b.vector([0, 1, -1]), shape=_shape([batch, Dim(1), signal.shape[1]]))
    frames = call.shape[1] if call.shape.is_ranked else Dim.dynamic()
    swept = b.op("Conv", line, kernel, shape=_shape([batch, Dim(2 * count), frames]), strides=[stride])
    return _split(b, transpose(b, swept, [0, 2, 1]), (count, 2), drop=1)


def _split(b: Builder, x: Symbol, last: tuple[int, ...], *, drop: int) -> Symbol:
    """Return a tensor whose last `drop` axes have become those of the sizes `last`."""
    kept = [*x.shape][: x.rank - drop]
    shape = _shape([*kept, *map(Dim, last)])
    if x.shape == shape:
        return x
    return b.op("Reshape", x, b.vector([0] * len(kept) + list(last)), shape=shape)


def _with_last(x: Symbol, size: int) -> Shape:
    return _shape([*[*x.shape][:-1], Dim(size)])


def _operands(call: Call, *positions: int) -> list[Any]:
    """Return operands by position, None for those that are left out."""
    return [call.inputs[i] if i < len(call.inputs) else None for i in positions]


def _number(b: Builder, symbol: Symbol) -> int | None:
    array = b.known(symbol)
    return None if array is None or array.size != 1 else int(array.reshape(-1)[0])


@functools.lru_cache(maxsize=8)
def _matrix(length: int, count: int, parts: int, inverse: bool) -> Any:
    """Return what a row of numbers, real or with real and imaginary parts in turn, is multiplied with."""
    angles = 2 * np.pi * (np.outer(np.arange(length), np.arange(count)) % length) / length
    cos, sin = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    made = np.empty((length, parts, count, 2))
    made[:, 0, :, 0], made[:, 0, :, 1] = cos, sin
    if parts == 2:
        made[:, 1, :, 0], made[:, 1, :, 1] = -sin, cos
    made = made.reshape(length * parts, 2 * count) / (length if inverse else 1)
    return made.astype(np.float32)
