"""Operators that onnxruntime has in ONNX's own domain and ONNX has not, or has since a later opset.

onnxruntime writes them into the models that it has optimised, whatever their opset.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from graphcore.errors import ModelError

_SAME: Mapping[str, tuple[str, int, int]] = {
    "LayerNormalization": ("LayerNormalization", 17, 3),
    "SimplifiedLayerNormalization": ("RMSNormalization", 23, 1),
}
"""By onnxruntime's operator: ONNX's that computes the same from the same operands and attributes, the opset that has
it, and how many results the two have in common."""


def standard(proto: onnx.NodeProto, version: int, place: object) -> tuple[onnx.NodeProto, int]:
    """Return ONNX's node for one that the opset does not have, and the opset that has it; what was given if none does.

    Raises `ModelError` for a result that ONNX's operator does not give.
    """
    found = _SAME.get(proto.op_type)
    if found is None:
        return proto, version
    name, opset, results = found
    if any(proto.output[results:]):
        raise ModelError(
            f"load: {place}: result {results} of it is used, which ONNX's {name} does not give",
            help="export the model for inference, or load it before onnxruntime optimises it",
        )
    made = onnx.NodeProto()
    made.CopyFrom(proto)
    made.op_type = name
    del made.output[results:]
    return made, opset
