"""Every operator of ONNX as a function, made from its schema at first use: `ops.onnx.Conv(x, w)`.

Names of operators, operands and attributes are those of the schemas; operands of one type variable are promoted to one
dtype; results are typed as in a loaded model. `ops.onnx.ml` has the operators of ai.onnx.ml, `ops.onnx.preview` and
`ops.onnx.preview.training` those of ONNX's preview domains. See docs/onnx.md.
"""

from __future__ import annotations

from graphcore.ops.onnx import _schemas
from graphcore.ops.onnx import ml as ml
from graphcore.ops.onnx import preview as preview

__getattr__, __dir__ = _schemas.namespace(__name__, "", "ml", "preview")
