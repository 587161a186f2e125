"""Fourier transforms in float64: in float32 the kernels lose digits where the length is no power of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_F32, _F64, _I64 = DType.float32, DType.float64, DType.int64


def in_double(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """DFT and STFT of float32, rounded once at the end."""
    return on.through(_F64, op, inputs, types, attributes)


def inverse(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernel multiplies an inverse by 1 / n in float32, also in float64: that factor is mended."""
    if not attributes.get("inverse"):
        return None
    made = on.native(op, *inputs, dtype=_F64, shape=types[0].shape, **attributes)
    factor = _factor(on, made, inputs)
    return made if factor is None else on.native("Div", made, factor, shape=types[0].shape)


def _factor(on: Legaliser, made: Symbol, inputs: Inputs) -> Symbol | None:
    """What the result is off by: n times 1 / n as float32 has it. None where that is exactly 1."""
    length, axis = (inputs[i] if i < len(inputs) else None for i in (1, 2))
    position = -2 if axis is None else on.known(axis)
    size = None
    if length is not None:
        size = on.known(length)
    elif position is not None and made.shape.is_ranked and made.shape[int(position)].is_static:
        size = int(made.shape[int(position)])
    if size is not None:
        n = int(size)
        return None if not n & (n - 1) else on.const(n * float(np.float32(1) / np.float32(n)), _F64)
    if length is not None:
        count = on.casts.plain(length, _I64)
    else:
        rank = Dim(made.rank) if made.shape.is_ranked else Dim.dynamic()
        shape = on.op("Shape", made, dtype=_I64, shape=_shape([rank]))
        place = on.const(-2, _I64) if axis is None else on.casts.plain(axis, _I64)
        count = on.op("Gather", shape, place, dtype=_I64, shape=_shape([]), axis=0)
    near = on.op("Div", on.const(1.0, _F32), on.casts.plain(count, _F32))
    return on.op("Mul", on.casts.plain(count, _F64), on.casts.plain(near, _F64))
