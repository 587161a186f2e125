"""Fourier transforms in float64: in float32 the kernels lose digits if the length is not a power of two."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, OpCall, Replacement
from graphcore.runtime.lowering.build.casts import compute_in
from graphcore.runtime.lowering.decompositions.shape_arithmetic import shape_of, transpose
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_F32, _F64, _I64 = DType.float32, DType.float64, DType.int64


def in_double(b: Builder, call: OpCall) -> Replacement:
    """Compute DFT and STFT of float32 in float64, and round once.

    In imported models, lengths of a power of two keep their kernel, whose error is at most 6e-7 of the largest result,
    and other known lengths become products.
    """
    if b.is_read:
        length = frame_length(b, call)
        if length and not length & (length - 1):
            return None
        by_product = None if length is None else product(b, call, length)
        if by_product is not None:
            return by_product
    return compute_in(b, _F64, call)


def stft_of_frames(b: Builder, call: OpCall) -> Replacement:
    """Compute an STFT whose frames may have no samples: the kernel divides by their number, but refuses long frames.

    Returns None if the length is known and positive. Raises `GraphError` if it is 0.
    """
    length = frame_length(b, call)
    if length:
        return None
    signal, step, window, frame_length_ = [*call.inputs, None, None][:4]
    if length is not None or (window is None and frame_length_ is None):
        raise GraphError(
            "STFT: its frames have no samples",
            operands={name: s for name, s in (("signal", signal), ("window", window)) if s is not None},
            help="pass a window, or a frame_length of at least 1",
        )
    if frame_length_ is not None:
        size = b.op("Reshape", b.cast(frame_length_, _I64), b.constant(np.zeros(0, np.int64), _I64), shape=_shape([]))
    else:
        sizes = b.op("Shape", window, dtype=_I64, shape=_shape([Dim(1)]))
        size = b.op("Squeeze", sizes, b.vector([0]), shape=_shape([]))
    is_some = b.op("Greater", size, b.scalar(0, _I64), dtype=DType.bool)
    size = b.op("Where", is_some, size, b.scalar(_REFUSED_LENGTH, _I64), dtype=_I64)
    return b.native("STFT", signal, step, window, size, dtype=_F64, shape=call.shape, **call.attributes)


_REFUSED_LENGTH = 1 << 62


def inverse(b: Builder, call: OpCall) -> Replacement:
    """Compute an inverse DFT and correct its factor: the kernel multiplies by 1 / n in float32, also in float64."""
    if not call.attributes.get("inverse"):
        return None
    result = b.native(call.op, *call.inputs, dtype=_F64, shape=call.shape, **call.attributes)
    factor = _factor(b, result, call)
    return result if factor is None else b.native("Div", result, factor, shape=call.shape)


def _factor(b: Builder, result: Symbol, call: OpCall) -> Symbol | None:
    """Return the factor by which the result is wrong: n times 1 / n in float32. None if that is exactly 1."""
    n = frame_length(b, call)
    if n is not None:
        return None if not n & (n - 1) else b.scalar(n * float(np.float32(1) / np.float32(n)), _F64)
    length, axis = _operands(call, 1, 2)
    if length is not None:
        count = b.native_cast(length, _I64)
    else:
        place = b.scalar(-2, _I64) if axis is None else b.native_cast(axis, _I64)
        count = b.op("Gather", shape_of(b, result), place, dtype=_I64, shape=_shape([]), axis=0)
    near = b.op("Div", b.scalar(1.0, _F32), b.native_cast(count, _F32))
    return b.op("Mul", b.native_cast(count, _F64), b.native_cast(near, _F64))


# Fourier transforms of imported models as products with the matrix of the transform.
#
# The float32 kernels compute lengths other than powers of two by convolutions (Bluestein), which lose digits (3e-5 of
# the largest result at 400, 1e-4 at 1000) and take five to ten times as long as a product, whose sums have the usual
# error (1e-6).

MAX_PRODUCT_LENGTH = 1024
"""Up to this length a product is faster than the kernel in float64."""


def frame_length(b: Builder, call: OpCall) -> int | None:
    """Return the length of a DFT or of the frames of an STFT; None if the graph does not determine it."""
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


def product(b: Builder, call: OpCall, length: int) -> Symbol | None:
    """Return a float32 DFT or STFT as a product or a convolution; None if it has no such form."""
    if not 2 <= length <= MAX_PRODUCT_LENGTH:
        return None
    return _frames(b, call, length) if call.op == "STFT" else _transform(b, call, length)


def _transform(b: Builder, call: OpCall, length: int) -> Symbol | None:
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
    used = int(size) * int(parts)  # zeros follow if the transform is longer
    matrix = b.constant(_matrix(length, count, int(parts), inverse)[:used], DType.float32)
    flat = _split(b, rows, (used,), drop=2)
    wide = b.op("MatMul", flat, matrix, shape=_shape([*[*flat.shape][:-1], Dim(2 * count)]))
    result = _split(b, wide, (count, 2), drop=1)
    return transpose(b, result, [order.index(a) for a in range(x.rank)])


def _frames(b: Builder, call: OpCall, length: int) -> Symbol | None:
    signal, step, window = _operands(call, 0, 1, 2)
    stride = _number(b, step)
    factors = None if window is None else b.array_of(window)
    is_real = signal.rank == 2 or (signal.rank == 3 and signal.shape[2] == 1)
    if stride is None or stride < 1 or (window is not None and factors is None) or not is_real:
        return None
    if factors is not None and factors.shape != (length,):
        return None
    count = length // 2 + 1 if call.attributes.get("onesided", 1) else length
    matrix = _matrix(length, count, 1, False).T  # each row is multiplied with one frame
    if factors is not None:
        matrix = matrix.astype(np.float64) * factors
    kernel = b.constant(np.ascontiguousarray(matrix, np.float32).reshape(2 * count, 1, length), DType.float32)
    batch = signal.shape[0]
    line = b.op("Reshape", signal, b.vector([0, 1, -1]), shape=_shape([batch, Dim(1), signal.shape[1]]))
    frames = call.shape[1] if call.shape.is_ranked else Dim.dynamic()
    swept = b.op("Conv", line, kernel, shape=_shape([batch, Dim(2 * count), frames]), strides=[stride])
    return _split(b, transpose(b, swept, [0, 2, 1]), (count, 2), drop=1)


def _split(b: Builder, x: Symbol, last: tuple[int, ...], *, drop: int) -> Symbol:
    """Return a tensor whose last `drop` axes are replaced by axes of the sizes `last`."""
    leading = [*x.shape][: x.rank - drop]
    shape = _shape([*leading, *map(Dim, last)])
    if x.shape == shape:
        return x
    return b.op("Reshape", x, b.vector([0] * len(leading) + list(last)), shape=shape)


def _operands(call: OpCall, *positions: int) -> list[Any]:
    """Return operands by position, None for omitted ones."""
    return [call.inputs[i] if i < len(call.inputs) else None for i in positions]


def _number(b: Builder, symbol: Symbol) -> int | None:
    array = b.array_of(symbol)
    return None if array is None or array.size != 1 else int(array.reshape(-1)[0])


@functools.lru_cache(maxsize=8)
def _matrix(length: int, count: int, parts: int, inverse: bool) -> Any:
    """Return the matrix of the transform, for rows of numbers, real or with alternating real and imaginary parts."""
    angles = 2 * np.pi * (np.outer(np.arange(length), np.arange(count)) % length) / length
    cos, sin = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    matrix = np.empty((length, parts, count, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cos, sin
    if parts == 2:
        matrix[:, 1, :, 0], matrix[:, 1, :, 1] = -sin, cos
    matrix = matrix.reshape(length * parts, 2 * count) / (length if inverse else 1)
    return matrix.astype(np.float32)


# Window functions in float64, which the runtime computes in float32, and in floats without a kernel.

TERMS = {
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""a, b, c of the window a - b cos(turn) + c cos(2 turn), as ONNX defines it."""


NARROW = (DType.float16, DType.bfloat16)


def narrow_window(b: Builder, call: OpCall) -> Replacement:
    """Compute a window function in float32, and round once."""
    dtype = call.types[0].dtype
    if dtype not in NARROW:
        return window(b, call) if call.op in TERMS else None
    options = {**call.attributes, "output_datatype": DType.float32}
    wide = b.op(call.op, *call.inputs, dtype=DType.float32, shape=call.shape, **options)
    return b.cast(wide, dtype)


def window(b: Builder, call: OpCall) -> Replacement:
    """Compute a window function with a float64 result: the function body is correct for float32."""
    if call.types[0].dtype is not DType.float64:
        return None
    (length,) = call.inputs
    f64, scalar = DType.float64, _shape(())
    count = b.cast(length, f64)
    if length.rank:
        count = b.native("Squeeze", count, shape=scalar)
    one, shape = b.scalar(1.0, f64), _shape([Dim.dynamic()])
    places = b.native("Range", b.scalar(0.0, f64), count, one, shape=shape)
    whole = count if call.attributes.get("periodic", 1) else b.native("Sub", count, one)
    turns = b.native("Div", b.native("Mul", places, b.scalar(2 * math.pi, f64)), whole)
    twice = b.native("Mul", turns, b.scalar(2.0, f64))
    mean, once, again = (b.scalar(term, f64) for term in TERMS[call.op])
    result = b.native("Sub", mean, b.native("Mul", once, b.op("Cos", turns)))
    return b.native("Add", result, b.native("Mul", again, b.op("Cos", twice)), shape=call.shape)
