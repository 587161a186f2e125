"""The operators that the installed onnxruntime knows, ONNX's or not: their schemas, and the types that it infers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import onnx
import onnxruntime

from graphcore.onnx.schemas.schemas import Operator, operator_of

LOG = logging.getLogger("graphcore")

_ENDING = frozenset(
    """CausalConvWithState ConvTransposeWithDynamicPads EmbedLayerNormalization ExpandDims GatedRelativePositionBias
    MatMulFpQ4 QLinearLeakyRelu QLinearSigmoid QMoE RelativePositionBias SkipLayerNormalization
    SkipSimplifiedLayerNormalization""".split()
)
"""Operators whose inference or kernels end the process on operands or attributes that make no sense. Found by asking
onnxruntime for operators of its own domains on operands of eight shapes, with and without attributes of odd values,
which 1.20.1 and 1.32.0 got to the end of, and on constants, which took too long to be asked for all: there may be more.
ExpandDims on a constant axis ends 1.27.0."""

_KEPT = 4096
"""Answers that are remembered: most nodes are like others."""


class InstalledOperators:
    """The operators of the installed build. libraries: of further operators, by path, which sessions register too."""

    def __init__(self, libraries: Sequence[str] = ()) -> None:
        self._libraries = tuple(libraries)
        self._schemas: dict[tuple[str, str], list[Any]] = {}
        self._domains: set[str] = set()
        self._answers: dict[bytes, list[onnx.TypeProto | None] | None] = {}
        self._found: dict[tuple[str, str, int], Operator | None] = {}
        try:
            from onnxruntime.capi import onnxruntime_pybind11_state as state

            for schema in state.get_all_operator_schema():
                self._schemas.setdefault((schema.domain, schema.name), []).append(schema)
                self._domains.add(schema.domain)
        except Exception as error:  # a build without it
            LOG.info("the operators of the installed onnxruntime cannot be read: %s: %s", type(error).__name__, error)

    def knows(self, domain: str) -> bool:
        """Return whether the build has schemas of a domain's operators."""
        return domain in self._domains

    def operator(self, domain: str, op_type: str, version: int) -> Operator | None:
        """Return what the schema says that is in force at a version of a domain; None where there is none."""
        key = domain, op_type, version
        if key not in self._found:
            fit = [s for s in self._schemas.get((domain, op_type), ()) if s.since_version <= version]
            newest = max(fit, key=lambda s: s.since_version, default=None)
            self._found[key] = None if newest is None or newest.deprecated else _operator(newest)
        return self._found[key]

    def results(self, model: onnx.ModelProto) -> list[onnx.TypeProto | None] | None:
        """Return the types that onnxruntime infers for the outputs of a small model; None where it does not take it.

        A type is None where onnxruntime does not tell it. Nothing of the model is run.
        """
        if any(node.op_type in _ENDING for node in model.graph.node):
            return None
        key = model.SerializeToString(deterministic=True)
        if key not in self._answers:
            while len(self._answers) >= _KEPT:
                self._answers.pop(next(iter(self._answers)), None)
            self._answers[key] = self._asked(model)
        return self._answers[key]

    def _asked(self, model: onnx.ModelProto) -> list[onnx.TypeProto | None] | None:
        found = self._described(model)
        if found is None:
            return None
        # onnxruntime describes a scalar and a tensor of unknown rank alike: the length of its shape tells them apart.
        open_ones = [v.name for v in found if v.type.startswith("tensor(") and not v.shape]
        scalars: set[str] = set()
        if open_ones:
            asked = onnx.ModelProto()
            asked.CopyFrom(model)
            for i, name in enumerate(open_ones):
                asked.graph.node.add(op_type="Shape", input=[name], output=[f"{name}/shape{i}"])
                asked.graph.output.add(name=f"{name}/shape{i}")
            told = {v.name: v.shape for v in self._described(asked) or ()}
            scalars = {name for i, name in enumerate(open_ones) if told.get(f"{name}/shape{i}") == [0]}
        return [_type(v, v.name in scalars) for v in found]

    def _described(self, model: onnx.ModelProto) -> list[Any] | None:
        """Return onnxruntime's description of a model's outputs; None where it does not take the model."""
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
        except Exception:
            return None
        return list(session.get_outputs())


def _operator(schema: Any) -> Operator:
    """Return what a schema of onnxruntime says."""
    return operator_of(schema, lambda p: (p.typeStr, str(p.option).rpartition(".")[2], p.isHomogeneous))


_NUMBERS = onnx.TensorProto.DataType


def _type(described: Any, is_scalar: bool) -> onnx.TypeProto | None:
    """Return the type of an output as onnxruntime describes it; None for one of no dtype."""
    made = onnx.TypeProto()
    text, holder = described.type, made
    while not text.startswith("tensor("):
        kind, _, rest = text.partition("(")
        if kind not in ("seq", "optional"):
            return None
        holder = (holder.sequence_type if kind == "seq" else holder.optional_type).elem_type
        text = rest.removesuffix(")")
    name = text.removeprefix("tensor(").removesuffix(")").upper()
    if name not in _NUMBERS.keys():  # noqa: SIM118 - an enumeration of protobuf
        return None
    holder.tensor_type.elem_type = _NUMBERS.Value(name)
    if holder is not made or not (described.shape or is_scalar):
        return made
    holder.tensor_type.shape.SetInParent()
    for size in described.shape:
        dim = holder.tensor_type.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size is not None:
            dim.dim_param = size
    return made
