"""The digits of weights of two times 8 bits."""

from __future__ import annotations

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.constants import constant_array
from graphcore.ir.symbol import Symbol
from graphcore.quantization.tensors import BASE
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape


def halves(values: Symbol) -> tuple[Symbol, Symbol]:
    """Return the first digits of a weight and the second: of int8[2, ...]."""
    made_once, keys = values.graph.memory.values, [("half", values.id, place) for place in (0, 1)]
    if keys[0] not in made_once:
        array = constant_array(values, outer=True)
        if array is not None:
            found = [values.graph.build.constant(np.ascontiguousarray(half), DType.int8) for half in array]
        else:
            shape = _shape(values.shape[1:])
            places = [e.const(values, place, DType.int64) for place in (0, 1)]
            found = [e.emit("Gather", values, place, shape=shape, axis=0) for place in places]
        made_once.update(zip(keys, found, strict=True))
    return made_once[keys[0]], made_once[keys[1]]


def whole(values: Symbol) -> Symbol:
    """Return 254 times the first digits plus the second, in float32."""
    first, second = (e.cast_within(half, DType.float32) for half in halves(values))
    return e.emit("Add", e.emit("Mul", first, e.const(first, float(BASE))), second)
