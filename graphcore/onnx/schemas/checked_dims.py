"""Stops in front of Slices when ONNX infers a whole model, where its inference would end the process.

Inference of Slice ends the process on a dim below 0 (an assertion of the C++ library, seen in onnx 1.22 to 1.23), which
the inference of other operators gives for windows larger than their image. A node put before each Slice has an
inference in Python, which raises for such operands and so ends inference, not the process.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Set
from typing import Any

import onnx

_DOMAIN = "graphcore.checks"
_DIMS = "CheckedDims"


class NegativeDimError(Exception):
    """A dim below 0."""


def with_checked_dims(model: onnx.ModelProto, op_types: Set[str]) -> onnx.ModelProto:
    """Return a copy of a model that stops inference at a Slice of a tensor with a dim below 0; the model without Slice.

    op_types: the names of all operators in it. Inference of the copy raises what is no
    `onnx.shape_inference.InferenceError` there.
    """
    if "Slice" not in op_types:
        return model
    _register()
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.opset_import.add(domain=_DOMAIN, version=1)
    _insert_stops(made.graph.node, "")
    for number, function in enumerate(made.functions):
        function.opset_import.add(domain=_DOMAIN, version=1)
        _insert_stops(function.node, f"{number}.")
    return made


def _insert_stops(nodes: Any, path: str) -> None:
    """Put a stop before each Slice of a list. path: of the list, which makes names of results unique."""
    if not _has_slices(nodes):
        return
    made = []
    for number, node in enumerate(nodes):
        if node.op_type == "Slice" and node.input and node.input[0]:
            name = f"{_DOMAIN} {path}{number}"
            made.append(onnx.NodeProto(op_type=_DIMS, domain=_DOMAIN, input=[node.input[0]], output=[name]))
        for place, attribute in enumerate(node.attribute):
            if attribute.type == onnx.AttributeProto.GRAPH:
                _insert_stops(attribute.g.node, f"{path}{number}.{place}.")
        made.append(node)
    copied = onnx.GraphProto(node=made)
    del nodes[:]
    nodes.extend(copied.node)


def _has_slices(nodes: Iterable[onnx.NodeProto]) -> bool:
    return any(
        node.op_type == "Slice"
        or any(a.type == onnx.AttributeProto.GRAPH and _has_slices(a.g.node) for a in node.attribute)
        for node in nodes
    )


@functools.cache
def _register() -> None:
    """Tell ONNX of the node."""
    schema = onnx.defs.OpSchema
    made = schema(
        _DIMS,
        _DOMAIN,
        1,
        inputs=[schema.FormalParameter("x", "T")],
        outputs=[schema.FormalParameter("y", "tensor(bool)")],
        type_constraints=[("T", ["tensor(float)"], "any: inference does not look at it")],
    )
    made.set_type_and_shape_inference_function(_stop_at_dims)
    onnx.defs.register_schema(made)


def _stop_at_dims(context: Any) -> None:
    type_ = context.get_input_type(0)
    if type_ is not None and any(dim.dim_value < 0 for dim in type_.tensor_type.shape.dim):
        raise NegativeDimError("a dim below 0")
