"""The operators of the installed onnxruntime, ONNX's and others: their schemas, and the types that it infers."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import onnx
import onnxruntime

from graphcore.onnx.proto.type_protos import proto_of
from graphcore.onnx.schemas.schemas import Operator, operator_of
from graphcore.runtime.ort.transport_dtypes import type_of
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType

LOG = logging.getLogger("graphcore")

_CRASHING = frozenset(
    """CausalConvWithState ConvTransposeWithDynamicPads EmbedLayerNormalization ExpandDims GatedRelativePositionBias
    MatMulFpQ4 QLinearLeakyRelu QLinearSigmoid QMoE RelativePositionBias SkipLayerNormalization
    SkipSimplifiedLayerNormalization""".split()
)
"""Operators whose inference or kernels end the process on invalid operands or attributes. Found by probing operators of
onnxruntime's own domains with operands of eight shapes, with and without odd attributes, which 1.20.1 and 1.32.0
completed, and with constants, which took too long to complete: there may be more. ExpandDims on a constant axis ends
1.27.0."""

_REFUSAL = re.compile(r"\[(Shape|Type)InferenceError\][^\n]*")
"""What onnxruntime says of operands that an operator does not take, in an error that may have other reasons."""

_MAX_ANSWERS = 4096
"""Size of the cache of inferred types: most nodes are like others."""


class InstalledOperators:
    """The operators of the installed build. libraries: paths of libraries with more operators, which sessions use."""

    def __init__(self, libraries: Sequence[str] = ()) -> None:
        self._libraries = tuple(libraries)
        self._schemas: dict[tuple[str, str], list[Any]] = {}
        self._answers: dict[bytes, list[onnx.TypeProto | None] | None] = {}
        self._operators: dict[tuple[str, str, int], Operator | None] = {}
        try:
            from onnxruntime.capi import onnxruntime_pybind11_state as state

            for schema in state.get_all_operator_schema():
                self._schemas.setdefault((schema.domain, schema.name), []).append(schema)
        except Exception as error:  # a build without it
            LOG.info("the operators of the installed onnxruntime cannot be read: %s: %s", type(error).__name__, error)

    def operator(self, domain: str, op_type: str, version: int) -> Operator | None:
        """Return an operator by the schema for a version of its domain; None if there is none."""
        key = domain, op_type, version
        if key not in self._operators:
            fit = [s for s in self._schemas.get((domain, op_type), ()) if s.since_version <= version]
            newest = max(fit, key=lambda s: s.since_version, default=None)
            self._operators[key] = None if newest is None or newest.deprecated else _operator(newest)
        return self._operators[key]

    def results(self, model: onnx.ModelProto) -> list[onnx.TypeProto | None] | None:
        """Return the types that onnxruntime infers for the outputs of a small model; None if it refuses the model.

        A type that onnxruntime does not infer is None. The model is not run.
        """
        if any(node.op_type in _CRASHING for node in model.graph.node):
            return None
        key = model.SerializeToString(deterministic=True)
        if key not in self._answers:
            while len(self._answers) >= _MAX_ANSWERS:
                self._answers.pop(next(iter(self._answers)), None)
            self._answers[key] = self._infer(model)
        return self._answers[key]

    def refusal(self, model: onnx.ModelProto) -> str:
        """Return the reason why inference refuses a small model; "" if it does not, or if that cannot be asked."""
        is_asked = not any(node.op_type in _CRASHING for node in model.graph.node)
        described = self._describe_outputs(model) if is_asked else ""
        match = _REFUSAL.search(described) if isinstance(described, str) else None
        return "" if match is None else match[0]

    def _infer(self, model: onnx.ModelProto) -> list[onnx.TypeProto | None] | None:
        outputs = self._describe_outputs(model)
        if isinstance(outputs, str):
            return None
        # onnxruntime describes a scalar and a tensor of unknown rank alike: the length of the shape distinguishes them.
        open_ones = [v.name for v in outputs if v.type.startswith("tensor(") and not v.shape]
        scalars: set[str] = set()
        if open_ones:
            probe = onnx.ModelProto()
            probe.CopyFrom(model)
            for i, name in enumerate(open_ones):
                probe.graph.node.add(op_type="Shape", input=[name], output=[f"{name}/shape{i}"])
                probe.graph.output.add(name=f"{name}/shape{i}")
            described = self._describe_outputs(probe)
            shapes = {} if isinstance(described, str) else {v.name: v.shape for v in described}
            scalars = {name for i, name in enumerate(open_ones) if shapes.get(f"{name}/shape{i}") == [0]}
        return [_type(v, v.name in scalars) for v in outputs]

    def _describe_outputs(self, model: onnx.ModelProto) -> list[Any] | str:
        """Return onnxruntime's description of a model's outputs; the message if it refuses the model."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            for path in self._libraries:
                options.register_custom_ops_library(path)
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"], enable_fallback=0
            )
        except Exception as error:
            return str(error)
        return list(session.get_outputs())


def _operator(schema: Any) -> Operator:
    """Convert a schema of onnxruntime."""
    return operator_of(schema, lambda p: (p.typeStr, str(p.option).rpartition(".")[2], p.isHomogeneous))


def _type(described: Any, is_scalar: bool) -> onnx.TypeProto | None:
    """Return the type of an output from onnxruntime's description; None if the dtype is unknown."""
    type_ = leaf = type_of(described)
    while isinstance(leaf, (SequenceType, OptionalType)):
        leaf = leaf.element
    if not isinstance(leaf, TensorType) or leaf.dtype.is_complex:  # sessions have no complex numbers
        return None
    return proto_of(TensorType(leaf.dtype, []) if is_scalar else type_)
