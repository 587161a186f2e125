"""Infer the result types of operators of other domains: by rules, else by the runtime, else by its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import onnx

from graphcore.arrays.external_data import Folder
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.proto.tensors import read_attributes
from graphcore.onnx.proto.type_protos import proto_of, read_type, small_constants
from graphcore.onnx.schemas.runtime_operators import RuntimeOperators, installed
from graphcore.onnx.schemas.schemas import MICROSOFT, by_schema, recorded_operator
from graphcore.operators import SHAPES
from graphcore.operators.shapes.call import OperatorCall, shapes_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, Shape, TensorType, Type, _shape, tensor_type

Inputs: TypeAlias = "Sequence[Symbol | None]"
Rule: TypeAlias = "Callable[[onnx.NodeProto, Inputs], list[Type] | None]"

_IR = 10
_OPSETS = (17, 21)
"""The oldest and newest opset of models for the runtime's inference: those of the oldest supported onnxruntime."""

BLOCKED = "com.microsoft.nchwc"


@dataclass(frozen=True, slots=True)
class Like:
    """A rule: results have the shapes of another operator's results.

    Args:
        operator: An operator of ONNX.
        operands: The positions of its operands among the node's.
        dtype: The position of the operand that has the dtype of the results; float32 if it is left out.
        every: If not 0, the last position repeats with this step.
        unless: The rule does not apply if this attribute is not 0.
    """

    operator: str
    operands: tuple[int, ...] = (0,)
    dtype: int = 0
    every: int = 0
    unless: str = ""

    def __call__(self, proto: onnx.NodeProto, inputs: Inputs) -> list[Type] | None:
        """Return the types of a node's results; None if they are unknown."""
        attributes, _ = read_attributes(proto, _NOWHERE, proto.op_type)
        if attributes.get(self.unless):
            return None
        positions = [*self.operands]
        while self.every and positions[-1] + self.every < len(inputs):
            positions.append(positions[-1] + self.every)
        types = [None if i >= len(inputs) or (s := inputs[i]) is None else s.type for i in positions]
        shapes = [t.shape if isinstance(t, TensorType) else None for t in types]
        source = inputs[self.dtype] if self.dtype < len(inputs) else None
        dtype = DType.float32 if source is None else getattr(source.type, "dtype", None)
        try:
            results = shapes_of(SHAPES[self.operator], OperatorCall(shapes, attributes, len(proto.output)))
        except ValueError:  # operands that the operator does not accept: the runtime reports them
            return None
        if dtype is None or results is None:
            return None
        return [tensor_type(dtype, shape) for shape in results]


_NOWHERE = Folder(None)


def _ranked_operand(inputs: Inputs, position: int) -> TensorType | None:
    """Return the type of an operand if it is a tensor of known rank."""
    symbol = inputs[position] if position < len(inputs) else None
    if symbol is None or not isinstance(symbol.type, TensorType) or not symbol.type.shape.is_ranked:
        return None
    return symbol.type


def _expand_dims_types(proto: onnx.NodeProto, inputs: Inputs) -> list[Type] | None:
    """ExpandDims: insert an axis of length 1, at a position that is known if it is constant."""
    x = _ranked_operand(inputs, 0)
    if x is None:
        return None
    rank = len(x.shape) + 1
    axis = constant_array(inputs[1] if len(inputs) > 1 else None, weights=True, outer=True)
    if axis is None or axis.size != 1 or not -rank <= int(axis.reshape(())) < rank:
        return [tensor_type(x.dtype, _shape([Dim.dynamic()] * rank))]
    place = int(axis.reshape(())) % rank
    return [tensor_type(x.dtype, _shape([*x.shape[:place], Dim(1), *x.shape[place:]]))]


DimsOf: TypeAlias = "Callable[[Any, Mapping[str, Any]], Sequence[Iterable[Dim] | None]]"
"""(shapes of operands, None where the rank is unknown; attributes) -> the dims of results, None for unknown ones."""


def _by_dims(dims_of: DimsOf, dtype: int | DType = 0) -> Rule:
    """Return a rule by the dims of results. dtype: of the results, or the position of the operand that has it."""

    def rule(proto: onnx.NodeProto, inputs: Inputs) -> list[Type] | None:
        attributes, _ = read_attributes(proto, _NOWHERE, proto.op_type)
        types = [_ranked_operand(inputs, i) for i in range(16)]  # as many as a rule may name
        element = dtype if isinstance(dtype, DType) else getattr(types[dtype], "dtype", None)
        try:
            dims = [*dims_of([None if t is None else t.shape for t in types], attributes)]
        except (TypeError, IndexError):  # an operand without a known rank, or of another rank
            return None
        if element is None:
            return None
        dims += [None] * len(proto.output)
        return [OpaqueType() if d is None else tensor_type(element, _shape(d)) for d in dims[: len(proto.output)]]

    return rule


def _state_of_convolution(s: Sequence[Shape | None], attributes: Mapping[str, Any]) -> Iterable[Dim] | None:
    """Return the dims of the positions before the next one: of the state before, else of the default layout."""
    x, weight, _, past = s[:4]
    if past is not None or x is None or weight is None:
        return past
    if any(attributes.get(name) for name in ("channels_last", "state_length", "state_window")) or len(x) != 3:
        return None
    return [*x[:2], (weight[2] - 1) * attributes.get("dilation", 1)]


_ANY = Dim.dynamic()

RULES: Mapping[tuple[str, str], Rule] = {
    (MICROSOFT, "AttnLSTM"): Like("LSTM", (0, 1, 2)),
    (MICROSOFT, "BifurcationDetector"): _by_dims(lambda s, attributes: [[_ANY], s[2]]),
    (MICROSOFT, "BeamSearch"): _by_dims(lambda s, attributes: [[s[0][0], _ANY, _ANY]], DType.int32),
    (MICROSOFT, "CDist"): _by_dims(lambda s, attributes: [[s[0][0], s[1][0]]]),
    (MICROSOFT, "CausalConvWithState"): _by_dims(lambda s, attributes: [s[0], _state_of_convolution(s, attributes)]),
    (MICROSOFT, "ComplexMul"): Like("Add", (0, 1)),
    (MICROSOFT, "ComplexMulConj"): Like("Add", (0, 1)),
    (MICROSOFT, "ConvTransposeWithDynamicPads"): _by_dims(
        lambda s, attributes: [[s[0][0], s[1][1] * attributes.get("group", 1), *[_ANY] * len(s[0][2:])]]
    ),
    (MICROSOFT, "CropAndResize"): _by_dims(lambda s, attributes: [[s[1][0], s[0][1], _ANY, _ANY]]),
    (MICROSOFT, "DecoderMaskedMultiHeadAttention"): _by_dims(
        lambda s, attributes: [None, s[5], s[6]] if attributes.get("past_present_share_buffer") else [None]
    ),
    (MICROSOFT, "DynamicQuantizeLSTM"): Like("LSTM", (0, 1, 2)),
    (MICROSOFT, "ExpandDims"): _expand_dims_types,
    (MICROSOFT, "GatedDeltaNet"): _by_dims(
        lambda s, attributes: [None, s[6] or [_ANY, s[2][1], s[2][2], s[1][2]]], dtype=DType.float32
    ),
    (MICROSOFT, "GreedySearch"): _by_dims(lambda s, attributes: [[s[0][0], _ANY]], DType.int32),
    (MICROSOFT, "Irfft"): _by_dims(lambda s, attributes: [[*s[0][:-2], _ANY]]),
    (MICROSOFT, "MatMulFpQ4"): _by_dims(lambda s, attributes: [[*s[0][:-1], _ANY]]),
    (MICROSOFT, "MoE"): Like("Identity"),
    (MICROSOFT, "QGemm"): Like("Gemm", (0, 3, 6), dtype=8),
    (MICROSOFT, "QLinearAdd"): Like("Add", (0, 3)),
    (MICROSOFT, "QLinearAveragePool"): Like("AveragePool", unless="channels_last"),
    (MICROSOFT, "QLinearConcat"): Like("Concat", (2,), dtype=2, every=3),
    (MICROSOFT, "QLinearConv"): Like("Conv", (0, 3), dtype=7, unless="channels_last"),
    (MICROSOFT, "QLinearGlobalAveragePool"): Like("GlobalAveragePool", unless="channels_last"),
    (MICROSOFT, "QLinearLeakyRelu"): Like("Identity"),
    (MICROSOFT, "QLinearMul"): Like("Add", (0, 3)),
    (MICROSOFT, "QLinearReduceMean"): Like("ReduceMean"),
    (MICROSOFT, "QLinearSigmoid"): Like("Identity"),
    (MICROSOFT, "QLinearSoftmax"): Like("Identity"),
    (MICROSOFT, "QLinearWhere"): Like("Where", (0, 1, 4), dtype=1),
    (MICROSOFT, "QMoE"): Like("Identity"),
    (MICROSOFT, "Rfft"): _by_dims(lambda s, attributes: [[*s[0][:-1], _ANY, Dim(2)]]),
    (MICROSOFT, "Sampling"): _by_dims(lambda s, attributes: [[s[0][0], _ANY]], DType.int32),
    (MICROSOFT, "Tokenizer"): _by_dims(lambda s, attributes: [[*s[0], _ANY]]),
    (MICROSOFT, "WhisperBeamSearch"): _by_dims(lambda s, attributes: [[s[0][0], _ANY, _ANY]], DType.int32),
    (MICROSOFT, "WordConvEmbedding"): _by_dims(lambda s, attributes: [[*s[0][:-1], s[1][0]]], dtype=1),
    (BLOCKED, "AveragePool"): Like("AveragePool"),
    (BLOCKED, "Conv"): Like("Conv", (0, 1)),
    (BLOCKED, "GlobalAveragePool"): Like("GlobalAveragePool"),
    (BLOCKED, "GlobalMaxPool"): Like("GlobalMaxPool"),
    (BLOCKED, "MaxPool"): Like("MaxPool"),
}
"""The rules by domain and operator. Operators that `ops.microsoft` declares are typed there; rules are for the forms
that it does not declare."""


def infer_other_domain(
    proto: onnx.NodeProto,
    inputs: Inputs,
    versions: Mapping[str, int],
    runtime: Callable[[], RuntimeOperators | None],
    declared: Sequence[Type],
) -> list[Type]:
    """Return the result types of a node of another domain, as far as they are known.

    Args:
        versions: Of the model's domains.
        runtime: Returns the operators of the installed runtime, or None.
        declared: The types of the results that the model declares. Unknown ones come from a rule, else the runtime.
    """
    types = list(declared)
    if all(_is_known(t) for t in types):
        return types
    rule = RULES.get((proto.domain, proto.op_type))
    if rule is not None:
        types = _fill_unknown(types, rule(proto, inputs))
    if all(_is_known(t) for t in types):
        return types
    operators = runtime()
    model = None if operators is None else _model_of_node(proto, inputs, versions)
    inferred = None if model is None or operators is None else operators.results(model)
    if inferred is not None:
        names = iter(inferred)
        protos = [next(names, None) if name else None for name in proto.output]
        types = _fill_unknown(types, [OpaqueType() if t is None else read_type(t) for t in protos])
    version = versions.get(proto.domain, 1)
    operator = None if operators is None else operators.operator(proto.domain, proto.op_type, version)
    operator = operator or recorded_operator(proto.domain, proto.op_type)
    if operator is None:
        return types
    bound = {p.type: s.type for i, s in enumerate(inputs) if s is not None and (p := operator.input(i)) is not None}
    return _fill_unknown(types, [by_schema(operator, i, bound) for i in range(len(types))])


def refusal(proto: onnx.NodeProto, inputs: Inputs, versions: Mapping[str, int], types: Sequence[Type]) -> str:
    """Return the reason why the runtime refuses the operands of a node whose result types are not known, or ""."""
    operators = None if all(_is_known(t) for t in types) else installed()
    model = None if operators is None else _model_of_node(proto, inputs, versions)
    return "" if model is None or operators is None else operators.refusal(model)


def _is_known(type_: Type) -> bool:
    if isinstance(type_, OpaqueType):
        return bool(type_.onnx)
    return not isinstance(type_, TensorType) or type_.shape.is_ranked


def _fill_unknown(types: Sequence[Type], inferred: Sequence[Type] | None) -> list[Type]:
    """Return the types, with inferred ones in place of those that are unknown or unranked."""
    if inferred is None:
        return list(types)
    result = []
    for old, new in zip(types, inferred, strict=True):
        is_same = isinstance(old, TensorType) and isinstance(new, TensorType) and old.dtype is new.dtype
        result.append(new if not _is_known(old) and (is_same or old == OpaqueType()) else old)
    return result


def _model_of_node(proto: onnx.NodeProto, inputs: Inputs, versions: Mapping[str, int]) -> onnx.ModelProto | None:
    """Return a model of the one node, with the values of small constants; None if an operand has no type."""
    if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in proto.attribute):
        return None
    model = onnx.ModelProto(ir_version=_IR)
    first, last = _OPSETS
    for domain, version in {**versions, "": min(max(versions.get("", first), first), last)}.items():
        model.opset_import.add(domain=domain, version=version)
    if proto.domain not in versions:
        model.opset_import.add(domain=proto.domain, version=1)
    named = {f"x{i}": s for i, s in enumerate(inputs) if s is not None}
    if any(s.type == OpaqueType() for s in named.values()):
        return None
    constants = small_constants(named)
    node = model.graph.node.add(op_type=proto.op_type, domain=proto.domain)
    node.input.extend("" if s is None else f"x{i}" for i, s in enumerate(inputs))
    node.output.extend(f"y{i}" if name else "" for i, name in enumerate(proto.output))
    node.attribute.extend(proto.attribute)
    model.graph.name = "question"
    for name, symbol in named.items():
        if name in constants:
            model.graph.initializer.append(constants[name])
        else:
            model.graph.input.add(name=name, type=proto_of(symbol.type))
    for name in node.output:
        if name:
            model.graph.output.add(name=name)
    return model
