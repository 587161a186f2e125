"""Ops of quantised tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore import DType, ops
from graphcore.quantization import QuantizedTensor, encode
from tests.support import reference
from tests.support.every.case import ALL, Array, Case, D, operands, real, smallest_float

NOT_BYTES = frozenset(ALL) - {D.uint8}

_WHOLE = np.random.default_rng(5).integers(-4, 5, (3, 16))
WEIGHT = QuantizedTensor("int8", (3, 16), _WHOLE.astype(np.int8), np.array(0.5, np.float32))
"""Halves, whose sums are exact."""


def _scaled(dtype: DType, x: Array) -> Array:
    """Return x after quantisation to 8 bits, by the formulas of int8 in float32."""
    made = reference.cast(reference.cast(x, dtype, smallest_float(dtype)), smallest_float(dtype), D.float32)
    return encode(np.asarray(made, np.float32), "int8").dequantize()


def _blocks(dtype: DType, x: Array) -> Array:
    return QuantizedTensor("Q4_0", (x.shape[0], 32), x).dequantize()


def _to_float32(dtype: DType) -> DType:
    return D.float32


def _product(x: Any) -> Any:
    return x @ (_WHOLE / 2).T.astype(np.longdouble)


CASES: dict[str, Case] = {
    "quantize": Case(operands("n 4: unit"), lambda x: ops.dequantize(ops.quantize(x)), _scaled, _to_float32),
    "dequantize": Case(operands("n 18"), lambda x: ops.dequantize("q4_0", x), _blocks, _to_float32, NOT_BYTES),
    "qmatmul": real(("n 16: whole",), lambda x: ops.qmatmul("int8", x, WEIGHT), _product, near=False),
}
