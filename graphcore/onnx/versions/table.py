"""The history of ONNX's operators: versions that changed their meaning, with conversions, and versions of files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node
from graphcore.ir.transform import walk
from graphcore.onnx.notes import DOMAINS, OPSET
from graphcore.onnx.schemas.schemas import Operator, element, operator, schema_of
from graphcore.onnx.versions import adapters, older
from graphcore.onnx.versions.older import Converted, ReadNode, expand_function
from graphcore.operators import Trait, having
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, TensorType, Type

Change: TypeAlias = Callable[[ReadNode], Converted]

# Operator: {version that changed it: the conversion across that change}. A node older than the version of Graphs goes
# through all changes after its own version; a newer node goes back through all changes that are newer than Graphs.
CHANGES: Mapping[str, Mapping[str, Mapping[int, Change]]] = {
    "": {
        "BatchNormalization": {9: adapters.per_feature, 14: adapters.training},
        "BitShift": {28: adapters.shift},
        "CausalConvWithState": {27: expand_function},
        "Clip": {11: older.clip},
        "DFT": {20: older.fourier},
        "Dropout": {10: older.dropout, 12: older.dropout},
        "Erf": {13: older.erf},
        "GridSample": {20: older.grid_sample},
        "GroupNormalization": {21: adapters.group},
        "Hardmax": {13: older.flatten_axes},
        "LinearAttention": {27: expand_function},
        "LogSoftmax": {13: older.flatten_axes},
        "Mod": {28: adapters.remainder},
        "OneHot": {11: older.one_hot},
        "Pad": {11: older.pad},
        "Range": {27: adapters.range_in},
        "ReduceSum": {13: older.attributes_to_operands},
        **{name: {18: older.attributes_to_operands} for name in older.REDUCTIONS},
        "Resize": {11: adapters.coordinates, 13: adapters.half_pixel},
        "RoiAlign": {16: older.roi_align},
        "Scan": {9: adapters.scan_over_batch},
        "Scatter": {11: older.scatter},
        "Slice": {10: older.attributes_to_operands},
        "Softmax": {13: older.flatten_axes},
        "SpaceToDepth": {28: adapters.space_to_depth},
        "Split": {13: older.attributes_to_operands, 18: older.split},
        "Squeeze": {13: older.attributes_to_operands},
        "SwiGLU": {28: expand_function},
        "TopK": {10: older.attributes_to_operands},
        "Unsqueeze": {13: older.attributes_to_operands},
        "Upsample": {9: adapters.upsample_scales, 10: adapters.upsample},
    },
    "ai.onnx.ml": {
        "LabelEncoder": {2: adapters.classes},
        "TreeEnsembleClassifier": {5: adapters.trees},
        "TreeEnsembleRegressor": {5: adapters.trees},
    },
    "ai.onnx.preview": {
        "FlexAttention": {1: expand_function},
    },
    "ai.onnx.preview.training": {
        "Adagrad": {1: adapters.optimizer},
        "Adam": {1: adapters.optimizer},
        "Momentum": {1: adapters.optimizer},
    },
}


def target(domain: str) -> int:
    """Return the version of a domain in Graphs; 0 for preview domains, which onnxruntime does not have."""
    return OPSET if not domain else DOMAINS.get(domain, 0)


def next_change(domain: str, op_type: str, version: int) -> tuple[int, Change] | None:
    """Return the next change from a version towards that of Graphs, and the version after it; None if there is none."""
    changes = CHANGES.get(domain, {}).get(op_type, {})
    newest = target(domain)
    if version < newest:
        ahead = min((v for v in changes if version < v <= newest), default=None)
        return None if ahead is None else (ahead, changes[ahead])
    back = max((v for v in changes if newest < v <= version), default=None)
    return None if back is None else (back - 1, changes[back])


# Versions of operators that do not change nodes of the version before, as `[domain:]operator@version`.
#
# Together with `CHANGES` these are all versions after opset 7; a test compares them with ONNX's own list.

MORE_DTYPES = """
    Abs@13 Acos@22 Acosh@22 Add@13 Add@14 ArgMax@13 ArgMin@13 Asin@22 Asinh@22 Atan@22 Atanh@22 AveragePool@22
    Bernoulli@22 Cast@13 Cast@21 Cast@23 Cast@25 Cast@28 Cast@9 CastLike@21 CastLike@23 CastLike@25 Ceil@13
    Celu@28 Clip@12 Clip@13 Compress@28 Concat@13 Constant@13 Constant@19 Constant@21 Constant@23 Constant@24
    Constant@25 Constant@9 ConstantOfShape@20 ConstantOfShape@21 ConstantOfShape@23 ConstantOfShape@24
    ConstantOfShape@25 Conv@22 ConvTranspose@22 Cos@22 Cosh@22 CumSum@14 DeformConv@22 DepthToSpace@13
    DequantizeLinear@19 DequantizeLinear@24 DequantizeLinear@25 DequantizeLinear@28 Det@22 Div@13 Div@14
    Dropout@13 Dropout@22 Einsum@28 Elu@22 Equal@11 Equal@13 Equal@19 Exp@13 Expand@13 EyeLike@22 Flatten@13
    Flatten@21 Flatten@23 Flatten@24 Flatten@25 Flatten@9 Floor@13 GRU@22 Gather@13 GatherElements@13
    GatherND@13 Gemm@13 Gemm@9 GlobalAveragePool@22 GlobalLpPool@22 GlobalMaxPool@22 Greater@13 Greater@9
    GreaterOrEqual@16 GridSample@22 HardSigmoid@22 HardSwish@22 Identity@13 Identity@14 Identity@16 Identity@19
    Identity@21 Identity@23 Identity@24 Identity@25 If@13 If@16 If@19 If@21 If@23 If@24 If@25
    InstanceNormalization@22 IsInf@20 IsNaN@13 IsNaN@20 LRN@13 LSTM@22 LeakyRelu@16 Less@13 Less@9
    LessOrEqual@16 Log@13 Loop@13 Loop@16 Loop@19 Loop@21 Loop@23 Loop@24 Loop@25 LpNormalization@22 LpPool@22
    MatMul@13 MatMul@9 Max@12 Max@13 MaxPool@12 MaxPool@22 MaxRoiPool@22 MaxUnpool@22 Mean@13
    MeanVarianceNormalization@13 Min@12 Min@13 Mish@22 Mod@13 Mul@13 Mul@14 Multinomial@22 Neg@13
    NegativeLogLikelihoodLoss@22 NonZero@13 OneHot@28 Optional@28 OptionalGetElement@18 OptionalGetElement@28
    OptionalHasElement@28 PRelu@16 PRelu@9 Pad@13 Pad@21 Pad@23 Pad@24 Pad@25 Pow@12 Pow@13 Pow@15
    QLinearMatMul@21 QuantizeLinear@24 QuantizeLinear@25 QuantizeLinear@28 RNN@22 RandomNormal@22
    RandomNormalLike@22 RandomUniform@22 RandomUniformLike@22 Reciprocal@13 ReduceL1@13 ReduceL2@13
    ReduceLogSum@13 ReduceLogSumExp@13 ReduceMax@12 ReduceMax@13 ReduceMax@20 ReduceMean@13 ReduceMin@12
    ReduceMin@13 ReduceMin@20 ReduceProd@13 ReduceSumSquare@13 Relu@13 Relu@14 Reshape@13 Reshape@19 Reshape@21
    Reshape@23 Reshape@24 Reshape@25 ReverseSequence@28 RoiAlign@22 Round@22 Scan@16 Scan@19 Scan@21 Scan@23
    Scan@24 Scan@25 ScatterElements@13 ScatterND@13 Selu@22 Shape@13 Shape@19 Shape@21 Shape@23 Shape@24
    Shape@25 Sigmoid@13 Sign@13 Sin@22 Sinh@22 Size@13 Size@19 Size@21 Size@23 Size@24 Size@25 Slice@13
    SoftmaxCrossEntropyLoss@13 Softplus@22 Softsign@22 SpaceToDepth@13 SplitToSequence@24 Sqrt@13 Squeeze@21
    Squeeze@23 Squeeze@24 Squeeze@25 Sub@13 Sub@14 Sum@13 Tan@22 Tanh@13 ThresholdedRelu@22 Tile@13 TopK@24
    Transpose@13 Transpose@21 Transpose@23 Transpose@24 Transpose@25 Unique@28 Unsqueeze@21 Unsqueeze@23
    Unsqueeze@24 Unsqueeze@25 Where@16
"""
"""More dtypes are allowed. Lowering handles those that the opset of Graphs does not have."""

FEWER_DTYPES = """
    ReduceLogSum@28 ReduceLogSumExp@28
"""
"""Useless dtypes are no longer allowed, by a version newer than that of Graphs."""

MORE_OPTIONS = """
    ArgMax@12 ArgMin@12 Attention@24 Attention@25 AveragePool@10 AveragePool@19 Cast@19 Cast@24 CastLike@19
    CastLike@24 Constant@11 Constant@12 DepthToSpace@11 DequantizeLinear@13 DequantizeLinear@21
    DequantizeLinear@23 GRU@14 GatherND@12 Gemm@11 LSTM@14 LpPool@18 MaxPool@10 MaxPool@8 OptionalHasElement@18
    Pad@18 QuantizeLinear@13 QuantizeLinear@19 QuantizeLinear@21 QuantizeLinear@23 RNN@14 Reshape@14 Resize@18
    ScatterElements@16 ScatterND@16 Shape@15 TopK@11 ai.onnx.ml:LabelEncoder@4
    ai.onnx.ml:TreeEnsembleClassifier@3 ai.onnx.ml:TreeEnsembleRegressor@3
"""
"""Optional attributes, operands or results were added; without them the meaning is the same."""

OTHER_WORDS = """
    ArgMax@11 ArgMin@11 AveragePool@11 BatchNormalization@15 Compress@11 Concat@11 Conv@11 ConvTranspose@11
    DepthToSpace@28 Flatten@11 Gather@11 Hardmax@11 If@11 LogSoftmax@11 Loop@11 LpPool@11 Max@8 MaxPool@11
    MaxUnpool@11 Mean@8 Min@8 NegativeLogLikelihoodLoss@13 NonMaxSuppression@11 Pad@19 ReduceL1@11 ReduceL2@11
    ReduceLogSum@11 ReduceLogSumExp@11 ReduceMax@11 ReduceMean@11 ReduceMin@11 ReduceProd@11 ReduceSum@11
    ReduceSumSquare@11 Resize@19 Scan@11 ScatterElements@18 ScatterND@18 Slice@11 Softmax@11 Split@11 Squeeze@11
    Sum@8 Unsqueeze@11 ai.onnx.preview.training:Gradient@1
"""
"""The text was clarified. In particular:

- negative axes are allowed since 11 nearly everywhere, and broadcasting since 8 in Max, Mean, Min and Sum;
- ConvTranspose stated in one of two places that SAME_UPPER pads at the front; no implementation did;
- modes were added to Pad (19) and Resize (19), reductions to ScatterElements and ScatterND (18);
- the dtypes of statistics that BatchNormalization (15) allows were allowed before;
- Gradient has one version, and stays a node: its derivatives are those of the graph around it.
"""

UNCHANGED: frozenset[str] = frozenset(f"{MORE_DTYPES} {FEWER_DTYPES} {MORE_OPTIONS} {OTHER_WORDS}".split())


# The versions of operators and of the file format that files can be written in.

OLDEST_OPSET = 17
"""The oldest opset that files are written in."""

OLDEST: dict[str, int] = {"": OLDEST_OPSET, "ai.onnx.ml": 3}
"""The oldest versions of domains that files are written in: those of one release of ONNX."""

_WITH_BODIES = having(Trait.BODIES)

OLDEST_IR = 8
"""The oldest version of the file format that files are written in: the one of opset 17."""

IR_OF_OPSET: dict[int, int] = {
    17: 8,
    18: 8,
    19: 9,
    20: 9,
    21: 10,
    22: 10,
    23: 11,
    24: 12,
    25: 13,
    26: 13,
    27: 13,
    28: 14,
}
"""The version of the file format that came with each opset, so that readers of the opset support it."""

IR_OF_DTYPE: dict[DType, int] = {
    **dict.fromkeys((DType.float8_e4m3fn, DType.float8_e4m3fnuz, DType.float8_e5m2, DType.float8_e5m2fnuz), 9),
    **dict.fromkeys((DType.int4, DType.uint4), 10),
    DType.float4_e2m1: 11,
    DType.float8_e8m0: 12,
    **dict.fromkeys((DType.int2, DType.uint2), 13),
    **dict.fromkeys((DType.float6_e2m3fn, DType.float6_e3m2fn), 14),
}
"""The version of the file format that added a dtype; other dtypes are older than `OLDEST_IR`."""


@functools.cache
def versions(op_type: str, domain: str = "") -> tuple[Operator, ...]:
    """Return the versions of an operator that files can have, newest first; empty if ONNX does not have it."""
    result: list[Operator] = []
    version = target(domain) if domain in OLDEST else 0
    while version > 0:
        schema = schema_of(op_type, domain, version)
        if schema is None:
            break
        if not schema.deprecated:
            result.append(operator(schema))
        if schema.since_version <= OLDEST[domain]:
            break
        version = schema.since_version - 1
    return tuple(result)


@functools.cache
def changes(op_type: str, domain: str = "") -> tuple[tuple[Operator, Operator | None], ...]:
    """Return the versions of an operator that files can have, newest first, each with the one before it."""
    operators = versions(op_type, domain)
    return tuple(zip(operators, (*operators[1:], None), strict=True)) if operators else ()


def is_recent(op_type: str, domain: str = "") -> bool:
    """Return True if an operator was added or changed after the oldest version that files can have."""
    operators = versions(op_type, domain)
    return bool(operators) and operators[0].version > OLDEST[domain]


def takes_types(version: Operator, node: Node) -> bool:
    """Return True if a version of an operator accepts the types of a node's operands and results.

    Operands that it does not have are ignored: the version that added them has a row in `downgrade`.
    """
    operands = tuple([None if s is None else s.type for s in node.inputs])
    return _takes_types(version, operands, tuple([s.type for s in node.outputs]))


@functools.lru_cache(1 << 14)
def _takes_types(version: Operator, operands: Sequence[Type | None], results: Sequence[Type]) -> bool:
    pairs = [(version.input(i), type_) for i, type_ in enumerate(operands) if type_ is not None]
    pairs += [(version.output(i), type_) for i, type_ in enumerate(results)]
    return all(
        parameter is None
        or not parameter.allowed
        or isinstance(type_, OpaqueType)
        or element(type_) in parameter.allowed
        for parameter, type_ in pairs
    )


# The version of the file format


def ir_of(graphs: Iterable[Graph]) -> tuple[int, str]:
    """Return the oldest version of the file format with all dtypes of graphs, and a dtype that needs it."""
    types = {symbol.type for graph in graphs for symbol in graph.symbols}
    result = (OLDEST_IR, "")
    for dtype in {dtype.storage for type_ in types for dtype in _dtypes(type_)}:
        result = max(result, (IR_OF_DTYPE.get(dtype, OLDEST_IR), dtype.name))
    return result


def _dtypes(type_: Type) -> Iterator[DType]:
    if isinstance(type_, (SequenceType, OptionalType)):
        yield from _dtypes(type_.element)
    elif isinstance(type_, TensorType):
        yield type_.dtype


def parts(graph: Graph, operators: set[tuple[str, str]]) -> list[Graph]:
    """Return a graph, its bodies and its functions, with their bodies. operators: of the graph."""
    if all(domain in OLDEST and op_type not in _WITH_BODIES for op_type, domain in operators):
        return [graph]
    return [*walk.parts(graph)]


def constants_of(graph: Graph) -> set[Type]:
    """Return the types of a graph's constants, which are nodes in a function."""
    return {s.type for s in graph.symbols if isinstance(s.producer, Constant)}


@functools.cache
def since(op_type: str, result: Type) -> int:
    """Return the oldest version of an operator without operands that can return a type."""
    oldest = OLDEST_OPSET
    for version in versions(op_type):
        if element(result) not in version.outputs[0].allowed:
            break
        oldest = max(version.version, OLDEST_OPSET)
    return oldest
