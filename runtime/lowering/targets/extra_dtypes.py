"""Operators that were tried on dtypes which only models of others hold: what `measure` does not sweep."""

from __future__ import annotations

from graphcore.ir.graph import Target
from graphcore.types.dtypes import DType

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
