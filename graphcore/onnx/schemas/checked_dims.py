"""Stops in front of nodes when ONNX infers a whole model, where its inference would end the process or fill the memory.

Inference of Slice ends the process on a dim below 0 (an assertion of the C++ library, seen in onnx 1.22 to 1.23), which
the inference of other operators gives for windows larger than their image. Data propagation takes 140 bytes for each
element of a vector, whose length a file of 100 bytes says (2^62 from a ConstantOfShape), and whose elements are not
known. A node put before each node that is concerned has an inference in Python, which raises for such operands and so
ends inference, not the process.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Sequence, Set
from typing import Any

import onnx

_DOMAIN = "graphcore.checks"
_DIMS = "CheckedDims"
_LENGTHS = "CheckedLengths"

PROPAGATED = frozenset(
    """Add Cast Concat Gather GreaterOrEqual GroupNormalization LessOrEqual MeanVarianceNormalization Mul Slice Squeeze
    Sub Unsqueeze""".split()
)
"""Operators whose data propagation copies elements of operands, in one of their versions or in the functions that they
are inferred by. Those of Shape and Size give no more than a tensor has axes."""

_FREE = 64
"""Elements of vectors that are not counted: no more than what says something of each axis."""

_MOST = 1 << 20
"""Elements of longer vectors that data propagation may copy in one inference."""


class NegativeDimError(Exception):
    """A dim below 0."""


class LengthError(Exception):
    """Vectors of more elements than are propagated."""


class _Copied(threading.local):
    """The elements that the inference of this thread has copied."""

    count = 0


_copied = _Copied()


def inferred_whole(model: onnx.ModelProto, op_types: Set[str]) -> onnx.ModelProto:
    """Return a model with the types that ONNX infers, what vectors hold where they are short.

    op_types: the names of all operators in it. Raises an exception of any class where inference fails.
    """
    checked = PROPAGATED & op_types
    safe = _with_stops(model, checked) if checked else model
    _copied.count = 0
    try:
        return onnx.shape_inference.infer_shapes(safe, strict_mode=True, data_prop=True)
    except Exception:
        if _copied.count <= _MOST:
            raise
    safe = _with_stops(model, _SLICED) if "Slice" in op_types else model
    return onnx.shape_inference.infer_shapes(safe, strict_mode=True)


def with_checked_dims(model: onnx.ModelProto, op_types: Set[str]) -> onnx.ModelProto:
    """Return a copy of a model that stops inference at a Slice of a tensor with a dim below 0; the model without Slice.

    op_types: the names of all operators in it. Inference of the copy raises what is no
    `onnx.shape_inference.InferenceError` there.
    """
    return _with_stops(model, _SLICED) if "Slice" in op_types else model


_SLICED = frozenset({"Slice"})


def _with_stops(model: onnx.ModelProto, op_types: Set[str]) -> onnx.ModelProto:
    """Return a copy of a model with a stop before each node of these operators. One for Slice alone has no lengths."""
    _register()
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.opset_import.add(domain=_DOMAIN, version=1)
    _insert(made.graph.node, "", op_types)
    for number, function in enumerate(made.functions):
        function.opset_import.add(domain=_DOMAIN, version=1)
        _insert(function.node, f"{number}.", op_types)
    return made


def _concerns(nodes: Iterable[onnx.NodeProto], op_types: Set[str]) -> bool:
    return any(
        node.op_type in op_types
        or any(a.type == onnx.AttributeProto.GRAPH and _concerns(a.g.node, op_types) for a in node.attribute)
        for node in nodes
    )


def _insert(nodes: Any, path: str, op_types: Set[str]) -> None:
    """Put a stop before each node of a list that needs one. path: of the list, which makes names of results unique."""
    if not _concerns(nodes, op_types):
        return
    made = []
    for number, node in enumerate(nodes):
        op_type = node.op_type
        if op_type in op_types and any(node.input):
            is_sliced = op_type == "Slice"
            inputs = [node.input[0]] if is_sliced and op_types is _SLICED else [name for name in node.input if name]
            made.append(
                onnx.NodeProto(
                    op_type=_DIMS if is_sliced else _LENGTHS,
                    domain=_DOMAIN,
                    input=inputs,
                    output=[f"{_DOMAIN} {path}{number}"],
                )
            )
        for place, attribute in enumerate(node.attribute):
            if attribute.type == onnx.AttributeProto.GRAPH:
                _insert(attribute.g.node, f"{path}{number}.{place}.", op_types)
        made.append(node)
    copied = onnx.GraphProto(node=made)
    del nodes[:]
    nodes.extend(copied.node)


@functools.cache
def _register() -> None:
    """Tell ONNX of the nodes."""
    schema = onnx.defs.OpSchema
    for name, stop in ((_DIMS, _stop_at_dims), (_LENGTHS, _stop_at_lengths)):
        many = schema.FormalParameterOption.Variadic
        made = schema(
            name,
            _DOMAIN,
            1,
            inputs=[schema.FormalParameter("x", "T", param_option=many, is_homogeneous=False)],
            outputs=[schema.FormalParameter("y", "tensor(bool)")],
            type_constraints=[("T", ["tensor(float)"], "any: inference does not look at it")],
        )
        made.set_type_and_shape_inference_function(stop)
        onnx.defs.register_schema(made)


def _stop_at_dims(context: Any) -> None:
    type_ = context.get_input_type(0)
    if type_ is not None and any(dim.dim_value < 0 for dim in type_.tensor_type.shape.dim):
        raise NegativeDimError("a dim below 0")
    _stop_at_lengths(context)


def _stop_at_lengths(context: Any) -> None:
    for position in range(context.get_num_inputs()):
        type_ = context.get_input_type(position)
        dims: Sequence[Any] = () if type_ is None else type_.tensor_type.shape.dim
        if len(dims) == 1 and dims[0].dim_value > _FREE:
            _copied.count += dims[0].dim_value
    if _copied.count > _MOST:
        raise LengthError("vectors of too many elements")


__all__ = ["PROPAGATED", "inferred_whole", "with_checked_dims"]
