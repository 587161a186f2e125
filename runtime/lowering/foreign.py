"""Kernels for the dtypes that models may hold and that are none of the library's own: what `measure` does not sweep."""

from __future__ import annotations

from graphcore.dtypes import DType
from graphcore.graph import Target

_FNUZ = "DequantizeLinear Identity Reshape Shape Transpose"
_BITS = "DequantizeLinear Transpose"

KERNELS: dict[Target, dict[DType, frozenset[str]]] = {
    "cpu": {
        DType.int2: frozenset(_BITS.split()),
        DType.uint2: frozenset(_BITS.split()),
        DType.float8_e4m3fnuz: frozenset(_FNUZ.split()),
        DType.float8_e5m2fnuz: frozenset(_FNUZ.split()),
    }
}


def of_models(target: Target, op_type: str) -> frozenset[DType]:
    """The dtypes of models that a target has a right kernel of an operator for."""
    return frozenset(dtype for dtype, row in KERNELS.get(target, {}).items() if op_type in row)
