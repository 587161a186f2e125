"""ONNX's inference of one node: asked once for operands of the same types, and not at all where the types tell."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import onnx

from graphcore.errors import ModelError
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.proto.type_protos import SMALL, data_of, proto_of, read_type
from graphcore.onnx.schemas.schemas import by_schema, operator, schema_of
from graphcore.operators import REDUCTIONS
from graphcore.types.dim_parser import BOUND
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, Shape, TensorType, Type, _shape, tensor_type

# Types of what elementwise operators give, as ONNX's inference has them, told without a call of it.
#
# A call of the inference takes ten times as long, and most nodes of a model are elementwise.

_SAME = frozenset(
    """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Clip Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish Identity
    LeakyRelu Log Neg Not Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh
    ThresholdedRelu""".split()
)
"""Operators whose result is of the type of their first operand."""

_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Pow"})
_LOGIC = frozenset({"And", "Or", "Xor", "Equal", "Less", "Greater"})

OPERATORS = _SAME | _ARITHMETIC | _LOGIC | {"Cast"}
"""ONNX's own operators that `elementwise` knows."""

_CASTS: Mapping[object, DType] = {
    dtype.onnx: dtype
    for dtype in (
        *(DType.bool, DType.float16, DType.float32, DType.float64),
        *(DType.int8, DType.int16, DType.int32, DType.int64),
        *(DType.uint8, DType.uint16, DType.uint32, DType.uint64),
    )
}
"""The dtypes that every version of Cast gives."""

_UNKNOWN, _ONE = Dim.dynamic(), Dim(1)


def elementwise(op_type: str, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> Type | None:
    """Return the type of the result of one of `OPERATORS`, all of whose operands it takes.

    None where only ONNX's inference tells it, or that there is none.
    """
    types = [None if s is None else s.type for s in inputs]
    first = types[0] if types else None
    if type(first) is not TensorType or not _is_plain(first):
        return None
    if op_type in _SAME:
        return first
    if op_type == "Cast":
        dtype = _CASTS.get(attributes.get("to"))
        return None if dtype is None else tensor_type(dtype, first.shape)
    if len(types) != 2:
        return None
    second = types[1]
    if type(second) is not TensorType or not _is_plain(second):
        return None
    dtype = first.dtype if op_type in _ARITHMETIC else DType.bool
    if first.shape == second.shape:
        return tensor_type(dtype, first.shape)
    dims = _broadcast(first.shape, second.shape)
    return None if dims is None else tensor_type(dtype, _shape(dims))


def _is_plain(type_: TensorType) -> bool:
    """Return whether a type is the same after a file has told it."""
    if type_.dtype.storage is not type_.dtype or type_.ambiguous or not type_.shape.is_ranked:
        return False
    return not any((d.is_symbolic and _is_retold(d)) or (d.is_static and int(d) < 0) for d in type_.shape)


def _is_retold(dim: Dim) -> bool:
    text = str(dim)
    return text.startswith("unk__") or BOUND in text


def _broadcast(a: Sequence[Dim], b: Sequence[Dim]) -> list[Dim] | None:
    """Return the dims of two operands together; None where they do not go together.

    As ONNX has it: beside a 1 stands the other, beside a number above 1 that number; of two that differ, neither.
    """
    rank = max(len(a), len(b))
    a, b = ((_ONE,) * (rank - len(dims)) + tuple(dims) for dims in (a, b))
    made = []
    for x, y in zip(a, b, strict=True):
        if x is y or y is _ONE:
            made.append(x)
        elif x is _ONE:
            made.append(y)
        elif x.is_static and y.is_static:
            return None
        elif x.is_static or y.is_static:
            made.append(x if x.is_static else y)
        else:
            made.append(_UNKNOWN)
    return made


# Ranks of results that ONNX's inference does not tell: a file says the rank of each of its outputs.

Given: TypeAlias = "Sequence[Symbol | None]"
Rule: TypeAlias = "Callable[[Given, Mapping[str, int]], Shape | None]"


def ranked(proto: onnx.NodeProto, position: int, type_: Type, inputs: Given) -> Type:
    """The type of a result, with its rank where the operator's definition has one."""
    if not isinstance(type_, TensorType) or type_.shape.is_ranked:
        return type_
    rule = _RULES.get(proto.op_type)
    if rule is None:
        return type_
    rules = rule if isinstance(rule, tuple) else (rule,)
    shape = rules[min(position, len(rules) - 1)](inputs, {a.name: a.i for a in proto.attribute})
    return type_ if shape is None else tensor_type(type_.dtype, shape)


def _unknown(rank: int) -> Shape:
    return _shape([Dim.dynamic()] * rank)


def _of(inputs: Given, position: int) -> Shape | None:
    """The shape of an operand, where its rank is known."""
    operand = inputs[position] if position < len(inputs) else None
    if operand is None or not isinstance(operand.type, TensorType) or not operand.type.shape.is_ranked:
        return None
    return operand.type.shape


def _length(inputs: Given, position: int) -> int | None:
    """Return how long an operand is that is a vector."""
    shape = _of(inputs, position)
    return int(shape[0]) if shape is not None and shape.rank == 1 and shape[0].is_static else None


def _always(rank: int) -> Rule:
    return lambda inputs, attributes: _unknown(rank)


def _same(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
    return _of(inputs, 0)


def _alike(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
    """Of the rank of the first operand."""
    shape = _of(inputs, 0)
    return None if shape is None else _unknown(shape.rank)


def _as_long(position: int) -> Rule:
    """Of a rank that is the length of an operand."""

    def rule(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
        length = _length(inputs, position)
        return None if length is None else _unknown(length)

    return rule


def _expanded(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
    shape, length = _of(inputs, 0), _length(inputs, 1)
    return None if shape is None or length is None else _unknown(max(shape.rank, length))


def _with_axes(sign: int) -> Rule:
    """As many axes more or fewer as the second operand names."""

    def rule(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
        shape, count = _of(inputs, 0), _length(inputs, 1)
        return (
            None
            if shape is None or count is None or shape.rank + sign * count < 0
            else _unknown(shape.rank + sign * count)
        )

    return rule


def _reduced(inputs: Given, attributes: Mapping[str, int]) -> Shape | None:
    if attributes.get("keepdims", 1):
        return _alike(inputs, attributes)
    return _with_axes(-1)(inputs, attributes) if _length(inputs, 1) else None


_RULES: dict[str, Rule | tuple[Rule, ...]] = {
    "ConstantOfShape": _as_long(0),
    "Expand": _expanded,
    "Reshape": _as_long(1),
    "Squeeze": _with_axes(-1),
    "Unsqueeze": _with_axes(1),
    **dict.fromkeys(REDUCTIONS, _reduced),
    **dict.fromkeys("CenterCropPad Pad Resize Slice Split Tile".split(), _alike),
    **dict.fromkeys("GroupNormalization Imputer MeanVarianceNormalization Normalizer Scaler".split(), _same),
    **dict.fromkeys("BlackmanWindow HammingWindow HannWindow".split(), _always(1)),
    **dict.fromkeys("FeatureVectorizer LinearRegressor MelWeightMatrix SVMRegressor".split(), _always(2)),
    "SVMClassifier": (_always(1), _always(2)),
    "STFT": _always(4),
}
"""By operator, or by operator and result."""


_SHOWN = 100
"""Characters of a name that errors show."""

BLIND = OPERATORS | frozenset(
    """ArgMax ArgMin AveragePool BatchNormalization Concat Conv ConvInteger ConvTranspose DequantizeLinear Flatten GRU
    Gather Gemm GlobalAveragePool GlobalMaxPool InstanceNormalization LSTM LogSoftmax MatMul MatMulInteger Max MaxPool
    Mean Min QLinearConv QLinearMatMul QuantizeLinear RNN Shape Size Softmax Sum Transpose Where""".split()
)
"""Operators of ONNX whose inference reads the types of operands alone, not what they hold."""

_MOST = 4096
"""Answers of inference that are remembered."""
_LONGEST = 2048
"""Bytes of attributes and operands up to which an answer is remembered."""

_answers: dict[Hashable, tuple[Type, ...]] = {}


def inferred(
    proto: onnx.NodeProto,
    schema: onnx.defs.OpSchema,
    inputs: Sequence[Symbol | None],
    versions: Mapping[str, int],
    known: Mapping[str, onnx.TypeProto],
    place: object,
    attributes: Mapping[str, Any] | None = None,
) -> list[Type]:
    """The types of a node's results, as ONNX infers them from its operands'. Raises `ModelError`.

    inputs: None for one that is left out, also where the node has a name for it: of an operand that a call leaves out.
    attributes: of the node, where they were read already.
    """
    op_type, outputs = proto.op_type, [*proto.output]
    if attributes is not None and len(outputs) == 1 and op_type in OPERATORS and not schema.domain and outputs[0]:
        told = elementwise(op_type, inputs, attributes)
        if told is not None:
            return [told]
    key = _key(proto, schema, inputs, versions, outputs)
    found = None if key is None else _answers.get(key)
    if found is None:
        found = tuple(_asked(proto, schema, inputs, versions, outputs, place))
        if key is not None:
            if len(_answers) >= _MOST:
                _answers.clear()
            _answers[key] = found
    made = []
    for position, (name, type_) in enumerate(zip(outputs, found, strict=True)):
        if isinstance(type_, TensorType) and not type_.shape.is_ranked and name in known:
            said = read_type(known[name])
            if isinstance(said, TensorType) and said.dtype is type_.dtype:
                type_ = said
        made.append(ranked(proto, position, type_, inputs))
    return made


def _key(
    proto: onnx.NodeProto,
    schema: onnx.defs.OpSchema,
    inputs: Sequence[Symbol | None],
    versions: Mapping[str, int],
    outputs: Sequence[str],
) -> Hashable | None:
    """Return all that an answer of inference depends on; None where that is too long to be remembered."""
    if len(outputs) > 1 and len(set(outputs)) != len(outputs):
        return None
    size = 0
    said = []
    for attribute in proto.attribute:
        if attribute.type in _LARGE_KINDS and attribute.ByteSize() > _LONGEST:
            return None
        if attribute.type in _GRAPHS:
            return None
        content = attribute.SerializeToString()
        size += len(content)
        said.append(content)
    types: list[Type | None] = []
    held: list[bytes | None] = []
    is_blind = not schema.domain and schema.name in BLIND
    for symbol in inputs:
        types.append(None if symbol is None else symbol.type)
        if is_blind:
            continue
        array = constant_array(symbol, weights=True, outer=True)
        if array is None or array.nbytes > SMALL:
            held.append(None)
            continue
        if array.dtype == object:
            return None
        size += array.nbytes
        held.append(array.tobytes())
    if size > _LONGEST:
        return None
    opsets = tuple(versions.items())
    names = tuple(map(bool, outputs))
    return schema.name, schema.domain, schema.since_version, opsets, names, *said, None, *types, *held


_Kinds = onnx.AttributeProto
_GRAPHS = frozenset({_Kinds.GRAPH, _Kinds.GRAPHS})
_LARGE_KINDS = frozenset(
    {_Kinds.TENSOR, _Kinds.TENSORS, _Kinds.SPARSE_TENSOR, _Kinds.SPARSE_TENSORS, _Kinds.INTS, _Kinds.FLOATS}
)


def _asked(
    proto: onnx.NodeProto,
    schema: onnx.defs.OpSchema,
    inputs: Sequence[Symbol | None],
    versions: Mapping[str, int],
    outputs: Sequence[str],
    place: object,
) -> list[Type]:
    """Return what inference answers, and where it does not know what the schema tells. Raises `ModelError`."""
    named = {name: s for name, s in zip(proto.input, inputs, strict=False) if s is not None}
    types = {name: proto_of(s.type) for name, s in named.items() if s.type != ForeignType()}
    proto = _without(proto, inputs)
    for name in proto.input:
        if name and name not in types:  # which inference looks up
            raise ModelError(
                f"load: {place}: the type of its operand {name[:_SHOWN]!r} is not known",
                operands=dict(named),
                help="say it in the model: as the type of an input, or in value_info",
            )
    imports = [onnx.OperatorSetIdProto(domain=d, version=v) for d, v in versions.items()]
    is_blind = not schema.domain and schema.name in BLIND
    try:
        found = onnx.shape_inference.infer_node_outputs(
            _inferable(schema),
            as_meant(proto),
            types,
            {} if is_blind else data_of(named),
            opset_imports=imports,
            ir_version=onnx.IR_VERSION,
        )
    except Exception as error:
        reason = str(error).strip().split("\n")[-1]
        raise ModelError(
            f"load: {place}: {reason}",
            operands=dict(named),
            help="see the operator's ONNX schema",
        ) from None
    op = operator(schema)
    bound = {p.type: s.type for i, s in enumerate(inputs) if s is not None and (p := op.input(i)) is not None}
    made = []
    for position, name in enumerate(outputs):
        type_ = read_type(found[name]) if name in found else ForeignType()
        if isinstance(type_, ForeignType) and not type_.onnx:
            type_ = by_schema(op, position, bound)
        made.append(type_)
    return made


MISREAD = {"STFT": ("onesided", 1)}
"""Attributes of ONNX's own operators that its inference takes for another value than their default where they are left
out, with the default. Seen in onnx 1.22 and 1.23; saying the default is right in every release."""


def is_misread(node: onnx.NodeProto) -> bool:
    """Return whether ONNX's inference would take a node for another one. See `MISREAD`."""
    if node.op_type not in MISREAD or node.domain not in ("", "ai.onnx"):
        return False
    return all(a.name != MISREAD[node.op_type][0] for a in node.attribute)


def as_meant(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a node that ONNX's inference takes for what it is."""
    if not is_misread(node):
        return node
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.attribute.append(onnx.helper.make_attribute(*MISREAD[node.op_type]))
    return made


def _without(proto: onnx.NodeProto, inputs: Sequence[Symbol | None]) -> onnx.NodeProto:
    """Return the node with no names for the operands that are left out."""
    if not any(name and s is None for name, s in zip(proto.input, inputs, strict=False)):
        return proto
    made = onnx.NodeProto()
    made.CopyFrom(proto)
    made.input[:] = ["" if s is None else name for name, s in zip(proto.input, inputs, strict=False)]
    return made


def _inferable(schema: onnx.defs.OpSchema) -> onnx.defs.OpSchema:
    """The schema, or for one that is deprecated, which inference refuses, the one before it or else the newest."""
    if not schema.deprecated:
        return schema
    return schema_of(schema.name, schema.domain, schema.since_version - 1) or onnx.defs.get_schema(
        schema.name, domain=schema.domain
    )
