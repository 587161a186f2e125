"""The types of what operators of other domains give: by rules, else as the runtime infers them, else by its schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx

from graphcore.arrays.external_data import Folder
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.proto.tensors import read_attributes
from graphcore.onnx.proto.type_protos import data_of, proto_of, read_type
from graphcore.onnx.schemas.runtime_operators import RuntimeOperators
from graphcore.onnx.schemas.schemas import by_schema
from graphcore.operators import SHAPES
from graphcore.operators.shapes.call import OperatorCall, shapes_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, TensorType, Type, _shape, tensor_type

Given: TypeAlias = "Sequence[Symbol | None]"
Rule: TypeAlias = "Callable[[onnx.NodeProto, Given], list[Type] | None]"

_IR = 10
_OPSETS = (17, 21)
"""The oldest and newest opset that questions are written in: what the oldest supported onnxruntime takes."""

MICROSOFT, BLOCKED = "com.microsoft", "com.microsoft.nchwc"


@dataclass(frozen=True, slots=True)
class Like:
    """A rule: results have the shapes of those of another operator.

    operator: of ONNX. operands: the positions of its operands among the node's; with `every`, the last one and each
    that comes so many further. dtype: the position of the operand whose dtype the results have; float32 where it is
    left out. unless: an attribute that, where it is not 0, makes it another operator.
    """

    operator: str
    operands: tuple[int, ...] = (0,)
    dtype: int = 0
    every: int = 0
    unless: str = ""

    def __call__(self, proto: onnx.NodeProto, inputs: Given) -> list[Type] | None:
        """Return the types of a node's results; None where they are not known."""
        attributes, _ = read_attributes(proto, _NOWHERE, proto.op_type)
        if attributes.get(self.unless):
            return None
        positions = [*self.operands]
        while self.every and positions[-1] + self.every < len(inputs):
            positions.append(positions[-1] + self.every)
        types = [None if i >= len(inputs) or (s := inputs[i]) is None else s.type for i in positions]
        shapes = [t.shape if isinstance(t, TensorType) else None for t in types]
        decides = inputs[self.dtype] if self.dtype < len(inputs) else None
        dtype = DType.float32 if decides is None else _dtype(decides)
        try:
            made = shapes_of(SHAPES[self.operator], OperatorCall(shapes, attributes, len(proto.output)))
        except ValueError:  # operands that the operator does not take: the runtime says so
            return None
        if dtype is None or made is None:
            return None
        return [tensor_type(dtype, shape) for shape in made]


_NOWHERE = Folder(None)


def _dtype(symbol: Symbol) -> DType | None:
    return symbol.type.dtype if isinstance(symbol.type, TensorType) else None


def _ranked_operand(inputs: Given, position: int) -> TensorType | None:
    """Return the type of an operand that is a tensor of known rank."""
    symbol = inputs[position] if position < len(inputs) else None
    if symbol is None or not isinstance(symbol.type, TensorType) or not symbol.type.shape.is_ranked:
        return None
    return symbol.type


def _tokens(proto: onnx.NodeProto, inputs: Given) -> list[Type] | None:
    """Tokenizer: as many strings for each string as the one with the most tokens has."""
    x = _ranked_operand(inputs, 0)
    return None if x is None else [tensor_type(x.dtype, _shape([*x.shape, Dim.dynamic()]))]


def _distances(proto: onnx.NodeProto, inputs: Given) -> list[Type] | None:
    """CDist: [m, k] and [n, k] give [m, n]."""
    a, b = _ranked_operand(inputs, 0), _ranked_operand(inputs, 1)
    if a is None or b is None or len(a.shape) != 2 or len(b.shape) != 2:
        return None
    return [tensor_type(a.dtype, _shape([a.shape[0], b.shape[0]]))]


def _expanded(proto: onnx.NodeProto, inputs: Given) -> list[Type] | None:
    """ExpandDims: an axis of length 1 comes in, at a place that is known where it is a constant."""
    x = _ranked_operand(inputs, 0)
    if x is None:
        return None
    rank = len(x.shape) + 1
    axis = constant_array(inputs[1] if len(inputs) > 1 else None, weights=True, outer=True)
    if axis is None or axis.size != 1 or not -rank <= int(axis.reshape(())) < rank:
        return [tensor_type(x.dtype, _shape([Dim.dynamic()] * rank))]
    place = int(axis.reshape(())) % rank
    return [tensor_type(x.dtype, _shape([*x.shape[:place], Dim(1), *x.shape[place:]]))]


def _complex(change: int) -> Rule:
    """Rfft, Irfft: a last axis of 2, real and imaginary, comes or goes; the one before has another length."""

    def rule(proto: onnx.NodeProto, inputs: Given) -> list[Type] | None:
        x = _ranked_operand(inputs, 0)
        if x is None or len(x.shape) + change < 1:
            return None
        kept = list(x.shape)[: -1 if change > 0 else -2]
        tail = [Dim.dynamic(), Dim(2)] if change > 0 else [Dim.dynamic()]
        return [tensor_type(x.dtype, _shape([*kept, *tail]))]

    return rule


RULES: Mapping[tuple[str, str], Rule] = {
    (MICROSOFT, "AttnLSTM"): Like("LSTM", (0, 1, 2)),
    (MICROSOFT, "CDist"): _distances,
    (MICROSOFT, "ComplexMul"): Like("Add", (0, 1)),
    (MICROSOFT, "ComplexMulConj"): Like("Add", (0, 1)),
    (MICROSOFT, "DynamicQuantizeLSTM"): Like("LSTM", (0, 1, 2)),
    (MICROSOFT, "ExpandDims"): _expanded,
    (MICROSOFT, "Irfft"): _complex(-1),
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
    (MICROSOFT, "Rfft"): _complex(1),
    (MICROSOFT, "Tokenizer"): _tokens,
    (BLOCKED, "AveragePool"): Like("AveragePool"),
    (BLOCKED, "Conv"): Like("Conv", (0, 1)),
    (BLOCKED, "GlobalAveragePool"): Like("GlobalAveragePool"),
    (BLOCKED, "GlobalMaxPool"): Like("GlobalMaxPool"),
    (BLOCKED, "MaxPool"): Like("MaxPool"),
}
"""The rules by domain and operator. What `ops.microsoft` declares is typed there; a rule stands for forms of it that
are not declared."""


def typed(
    proto: onnx.NodeProto,
    inputs: Given,
    versions: Mapping[str, int],
    runtime: Callable[[], RuntimeOperators | None],
    told: Sequence[Type],
) -> list[Type]:
    """Return the types of the results of a node of another domain, as far as they are known.

    versions: of the model's domains. runtime: gives what knows more operators, if anything does. told: what the model
    says of each result. Shapes are those told, unless one is not; then a rule's, and else the runtime's.
    """
    made = list(told)
    if all(_is_known(t) for t in made):
        return made
    rule = RULES.get((proto.domain, proto.op_type))
    if rule is not None:
        made = _filled(made, rule(proto, inputs))
    known = None if all(_is_known(t) for t in made) else runtime()
    if known is None:
        return made
    question = _question(proto, inputs, versions)
    answer = None if question is None else known.results(question)
    if answer is not None:
        names = iter(answer)
        found = [next(names, None) if name else None for name in proto.output]
        made = _filled(made, [ForeignType() if t is None else read_type(t) for t in found])
    operator = known.operator(proto.domain, proto.op_type, versions.get(proto.domain, 1))
    if operator is None:
        return made
    bound = {p.type: s.type for i, s in enumerate(inputs) if s is not None and (p := operator.input(i)) is not None}
    return _filled(made, [by_schema(operator, i, bound) for i in range(len(made))])


def _is_known(type_: Type) -> bool:
    if isinstance(type_, ForeignType):
        return bool(type_.onnx)
    return not isinstance(type_, TensorType) or type_.shape.is_ranked


def _filled(types: Sequence[Type], found: Sequence[Type] | None) -> list[Type]:
    """Return the types, those found in place of what is not known, or lacks a rank."""
    if found is None:
        return list(types)
    made = []
    for old, new in zip(types, found, strict=True):
        is_same = isinstance(old, TensorType) and isinstance(new, TensorType) and old.dtype is new.dtype
        made.append(new if not _is_known(old) and (is_same or old == ForeignType()) else old)
    return made


def _question(proto: onnx.NodeProto, inputs: Given, versions: Mapping[str, int]) -> onnx.ModelProto | None:
    """Return the model of the one node on its operands, small constants with their values; None if one has no type."""
    if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in proto.attribute):
        return None
    model = onnx.ModelProto(ir_version=_IR)
    first, last = _OPSETS
    for domain, version in {**versions, "": min(max(versions.get("", first), first), last)}.items():
        model.opset_import.add(domain=domain, version=version)
    if proto.domain not in versions:
        model.opset_import.add(domain=proto.domain, version=1)
    named = {f"x{i}": s for i, s in enumerate(inputs) if s is not None}
    if any(s.type == ForeignType() for s in named.values()):
        return None
    constants = data_of(named)
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
