"""Operators of onnxruntime's domain com.microsoft: docs/custom_ops.md.

`ops.microsoft.FusedMatMul(a, b, alpha=0.5)`: names of operators, operands and attributes are those of onnxruntime.
Nodes of loaded models are typed by these declarations. An operator with a body runs in all its dtypes and on every
provider; onnxruntime's kernel is used where it returns the same numbers. Operators that are not declared here are made
from onnxruntime's schemas at first use, as those of `ops.onnx`, and run where onnxruntime has a kernel.
"""

from __future__ import annotations

from graphcore.ops.microsoft import attention, experts, fused, grouped, products, quantized  # noqa: F401 - declared there
from graphcore.ops.microsoft._declare import ROWS
from graphcore.ops.onnx._schemas import namespace

# Every declared operator is a name of this package.
globals().update({name: row.op for name, row in ROWS.items()})
__all__ = sorted(ROWS)

__getattr__, __dir__ = namespace(__name__, "com.microsoft", *__all__)
