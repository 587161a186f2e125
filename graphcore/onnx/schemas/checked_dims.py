"""Stops in front of nodes when ONNX infers a whole model, where its inference would end the process or fill the memory.

Constant operands are checked here, as they are while nodes are read (proto/limits.py): inference in C++ comes first,
and knows more of them than a file says in one place, by data propagation and through calls of functions.

Inference of Slice ends the process on a dim below 0 (an assertion of the C++ library, seen in onnx 1.22 to 1.23), which
the inference of other operators gives for windows larger than their image. Data propagation takes 140 bytes for each
element of a vector, whose length a file of 100 bytes says (2^62 from a ConstantOfShape), and whose elements are not
known. A node put before each node that is concerned has an inference in Python, which raises for such operands and so
ends inference, not the process.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

import numpy as np
import onnx

from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import Folder
from graphcore.onnx.proto import tensors
from graphcore.onnx.proto.limits import AXES_OF, MOST_SAID, check_constants
from graphcore.onnx.proto.ranges import CHECKED, LONGEST
from graphcore.operators import BY_TYPES

_ONNX = ("", "ai.onnx")
_DOMAIN = "graphcore.checks"
_DIMS = "CheckedDims"
_LENGTHS = "CheckedLengths"
_OPERANDS = "CheckedOperands"

PROPAGATED = frozenset(
    """Add Cast Concat Gather GreaterOrEqual GroupNormalization LessOrEqual MeanVarianceNormalization Mul Slice Squeeze
    Sub Unsqueeze""".split()
)
"""Operators whose data propagation copies elements of operands, in one of their versions or in the functions that they
are inferred by. Those of Shape and Size give no more than a tensor has axes."""

_BY_TYPES = (BY_TYPES | {"Constant"}) - CHECKED.keys()
"""Operators whose inference needs no stop, and gives the same with and without data propagation."""

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
    model = _without_negative_dims(model)
    if op_types <= _BY_TYPES:  # nothing reads what vectors hold
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)
    checked = CHECKED.keys() & op_types
    propagated = PROPAGATED & op_types
    safe = _with_stops(model, checked | propagated, propagated) if checked or propagated else model
    _copied.count = 0
    try:
        return onnx.shape_inference.infer_shapes(safe, strict_mode=True, data_prop=True)
    except Exception:
        if _copied.count <= _MOST:
            raise
    safe = _with_stops(model, checked, frozenset()) if checked else model
    return onnx.shape_inference.infer_shapes(safe, strict_mode=True)


def _without_negative_dims(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model where dims of values are unknown that a file gives as -1: inference computes with the number."""
    if next(_negative_dims(model.graph), None) is None:
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for dim in [*_negative_dims(made.graph)]:
        dim.Clear()
    return made


def _negative_dims(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                yield dim
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _negative_dims(attribute.g)


def with_checked_dims(model: onnx.ModelProto, op_types: Set[str]) -> onnx.ModelProto:
    """Return a copy of a model that stops inference at a Slice of a tensor with a dim below 0; the model without Slice.

    op_types: the names of all operators in it. Inference of the copy raises what is no
    `onnx.shape_inference.InferenceError` there.
    """
    return _with_stops(model, _SLICED, frozenset()) if "Slice" in op_types else model


_SLICED = frozenset({"Slice"})


def _with_stops(model: onnx.ModelProto, op_types: Set[str], propagated: Set[str]) -> onnx.ModelProto:
    """Return a model with stops before the nodes of these operators. propagated: those whose lengths count."""
    _register()
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.opset_import.add(domain=_DOMAIN, version=1)
    stops = _Stops(op_types, propagated)
    stops.insert(made.graph.node, "")
    for number, function in enumerate(made.functions):
        function.opset_import.add(domain=_DOMAIN, version=1)
        stops.insert(function.node, f"{number}.")
    return made


class _Stops:
    """Puts stops before nodes. op_types: the operators that need some. propagated: those whose lengths count."""

    def __init__(self, op_types: Set[str], propagated: Set[str]) -> None:
        self._op_types = op_types
        self._propagated = propagated

    def insert(self, nodes: Any, path: str) -> None:
        """Put a stop before each node of a list that needs one. path: of the list, which makes names of results
        unique."""
        if not self._concerns(nodes):
            return
        made = []
        for number, node in enumerate(nodes):
            if node.op_type in self._op_types:
                made += self._stops(node, f"{_DOMAIN} {path}{number}")
            for place, attribute in enumerate(node.attribute):
                if attribute.type == onnx.AttributeProto.GRAPH:
                    self.insert(attribute.g.node, f"{path}{number}.{place}.")
            made.append(node)
        copied = onnx.GraphProto(node=made)
        del nodes[:]
        nodes.extend(copied.node)

    def _concerns(self, nodes: Iterable[onnx.NodeProto]) -> bool:
        return any(
            node.op_type in self._op_types
            or any(a.type == onnx.AttributeProto.GRAPH and self._concerns(a.g.node) for a in node.attribute)
            for node in nodes
        )

    def _stops(self, node: onnx.NodeProto, name: str) -> list[onnx.NodeProto]:
        op_type, names = node.op_type, node.input
        counts = op_type in self._propagated
        made = []
        if op_type == "Slice" and names and names[0]:
            inputs = [each for each in names if each] if counts else [names[0]]
            made.append(onnx.NodeProto(op_type=_DIMS, domain=_DOMAIN, input=inputs, output=[name]))
        elif counts and any(names):
            inputs = [each for each in names if each]
            made.append(onnx.NodeProto(op_type=_LENGTHS, domain=_DOMAIN, input=inputs, output=[name]))
        places = [place for place in sorted(CHECKED.get(op_type, ())) if place < len(names) and names[place]]
        if places and node.domain in _ONNX:
            stop = onnx.NodeProto(op_type=_OPERANDS, domain=_DOMAIN, output=[f"{name}."])
            stop.input.extend(names[place] for place in places)
            stop.attribute.add(name="op_type", type=onnx.AttributeProto.STRING, s=op_type.encode())
            stop.attribute.add(name="places", type=onnx.AttributeProto.INTS, ints=places)
            made.append(stop)
        return made


@functools.cache
def _register() -> None:
    """Tell ONNX of the nodes."""
    schema = onnx.defs.OpSchema
    attribute, kinds = schema.Attribute, onnx.defs.OpSchema.AttrType
    said = [attribute("op_type", kinds.STRING, "of the node"), attribute("places", kinds.INTS, "of the operands")]
    for name, stop, attributes in (
        (_DIMS, _stop_at_dims, []),
        (_LENGTHS, _stop_at_lengths, []),
        (_OPERANDS, _stop_at_operands, said),
    ):
        many = schema.FormalParameterOption.Variadic
        made = schema(
            name,
            _DOMAIN,
            1,
            inputs=[schema.FormalParameter("x", "T", param_option=many, is_homogeneous=False)],
            outputs=[schema.FormalParameter("y", "tensor(bool)")],
            type_constraints=[("T", ["tensor(float)"], "any: inference does not look at it")],
            attributes=attributes,
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


def _stop_at_operands(context: Any) -> None:
    op_type = context.get_attribute("op_type").s.decode()
    places = list(context.get_attribute("places").ints)
    for position, place in enumerate(places):
        type_ = context.get_input_type(position)
        dims: Sequence[Any] = () if type_ is None else type_.tensor_type.shape.dim
        if place in AXES_OF.get(op_type, ()) and any(dim.dim_value > MOST_SAID for dim in dims):
            raise LengthError("an operand that says something of more axes than a tensor has")
    arrays: list[Array | None] = [None] * (places[-1] + 1)
    for position, place in enumerate(places):
        arrays[place] = _known(context, position)
    check_constants(op_type, arrays, op_type)


def _known(context: Any, position: int) -> Array | None:
    """Return the elements that inference knows of an operand; None where it knows none."""
    tensor = context.get_input_data(position)
    if tensor is not None:
        return tensors.array_of(tensor, _NOWHERE)[0] if math.prod(tensor.dims) <= LONGEST else None
    said = context.get_symbolic_input(position)
    numbers = [] if said is None else [dim.dim_value for dim in said.dim if dim.HasField("dim_value")]
    return np.array(numbers) if numbers else None


_NOWHERE = Folder(None)
"""Where the data of tensors lies for inference, which opens no files."""
