"""Fourier transforms in float64: in float32 the kernels lose digits where the length is not a power of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.build.compute import compute_in
from graphcore.runtime.lowering.decompositions import fourier_products
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_F32, _F64, _I64 = DType.float32, DType.float64, DType.int64


def in_double(b: Builder, call: Call) -> Replacement:
    """Compute DFT and STFT of float32 in float64, and round once.

    In models that others wrote, lengths of a power of two stay as they are, whose kernel is right to 6e-7 of the
    largest result, and other known lengths become products.
    """
    if b.is_read:
        length = fourier_products.frame_length(b, call)
        if length and not length & (length - 1):
            return None
        made = None if length is None else fourier_products.product(b, call, length)
        if made is not None:
            return made
    return compute_in(b, _F64, call)


def framed(b: Builder, call: Call) -> Replacement:
    """Compute an STFT whose frames may have no samples, by whose number the kernel divides: it refuses a long frame.

    None where the length is known. Raises `GraphError` where that is 0.
    """
    length = fourier_products.frame_length(b, call)
    if length:
        return None
    signal, step, window, said = [*call.inputs, None, None][:4]
    if length is not None or (window is None and said is None):
        raise GraphError(
            "STFT: its frames have no samples",
            operands={name: s for name, s in (("signal", signal), ("window", window)) if s is not None},
            help="give a window, or a frame_length of at least 1",
        )
    if said is not None:
        size = b.op("Reshape", b.cast(said, _I64), b.constant(np.zeros(0, np.int64), _I64), shape=_shape([]))
    else:
        sizes = b.op("Shape", window, dtype=_I64, shape=_shape([Dim(1)]))
        size = b.op("Squeeze", sizes, b.vector([0]), shape=_shape([]))
    is_some = b.op("Greater", size, b.scalar(0, _I64), dtype=DType.bool)
    size = b.op("Where", is_some, size, b.scalar(_TOO_LONG, _I64), dtype=_I64)
    return b.native("STFT", signal, step, window, size, dtype=_F64, shape=call.shape, **call.attributes)


_TOO_LONG = 1 << 62


def inverse(b: Builder, call: Call) -> Replacement:
    """Compute an inverse DFT and correct its factor: the kernel multiplies by 1 / n in float32, also in float64."""
    if not call.attributes.get("inverse"):
        return None
    made = b.native(call.op, *call.inputs, dtype=_F64, shape=call.shape, **call.attributes)
    factor = _factor(b, made, call.inputs)
    return made if factor is None else b.native("Div", made, factor, shape=call.shape)


def _factor(b: Builder, made: Symbol, inputs: Sequence[Any]) -> Symbol | None:
    """Return the factor by which the result is off: n times 1 / n in float32. None where that is exactly 1."""
    length, axis = (inputs[i] if i < len(inputs) else None for i in (1, 2))
    position = -2 if axis is None else b.known(axis)
    size = None
    if length is not None:
        size = b.known(length)
    elif position is not None and made.shape.is_ranked and made.shape[int(position)].is_static:
        size = int(made.shape[int(position)])
    if size is not None:
        n = int(size)
        return None if not n & (n - 1) else b.scalar(n * float(np.float32(1) / np.float32(n)), _F64)
    if length is not None:
        count = b.native_cast(length, _I64)
    else:
        rank = Dim(made.rank) if made.shape.is_ranked else Dim.dynamic()
        shape = b.op("Shape", made, dtype=_I64, shape=_shape([rank]))
        place = b.scalar(-2, _I64) if axis is None else b.native_cast(axis, _I64)
        count = b.op("Gather", shape, place, dtype=_I64, shape=_shape([]), axis=0)
    near = b.op("Div", b.scalar(1.0, _F32), b.native_cast(count, _F32))
    return b.op("Mul", b.native_cast(count, _F64), b.native_cast(near, _F64))
