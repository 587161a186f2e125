"""The operators that a direct load supports: the dtypes of their results, and the nodes that need a Graph.

An operator has a row if its kernel, at every opset from `MIN_OPSET` on, gives the same bits as the lowered Graph. No
adapter of its versions changes numbers, and `Legality` knows from dtypes alone what a decomposition would fix.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from graphcore.errors import GraphcoreError
from graphcore.onnx.proto.limits import AXES, CHOICES, RANGES, check_values
from graphcore.onnx.proto.messages import INT, INTS, STRING, tensor
from graphcore.onnx.proto.ranges import MAX_AXES
from graphcore.operators import ONNX, REDUCTIONS, Trait, having
from graphcore.runtime.lowering.decompositions.recurrent import ENDS, FEATURES, FLAT
from graphcore.runtime.lowering.workarounds import empty
from graphcore.runtime.sessions.direct.scanned_values import ScannedValues
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    import onnx

MIN_OPSET = 7
"""The rows are valid from this opset on; onnxruntime has no kernels of older ones."""


_BOUNDS_ARE_OPERANDS = 11
"""The bounds of Clip are operands from this opset on."""

NEW_KERNELS: Mapping[str, int] = MappingProxyType({"AveragePool": 19})
"""The opset from which on onnxruntime has another kernel of an operator, with other rounding, which Graphs use."""


LOWERED_ALONE = frozenset(
    "DFT GRU GridSample InstanceNormalization LSTM Loop NonMaxSuppression OneHot RNN ReverseSequence STFT Scan".split()
)
"""Operators whose nodes can be lowered without the rest of the model: neither a fusion, nor a workaround, nor an
optimiser joins them with other nodes."""

ResultDtypes: TypeAlias = "Callable[[ScannedValues, onnx.NodeProto, Sequence[DType | None]], Sequence[DType] | None]"
"""Returns the dtypes of a node's results; None for a node that needs a Graph."""


def same_dtype(scan: ScannedValues, node: onnx.NodeProto, operands: Sequence[DType | None]) -> Sequence[DType] | None:
    """Return the dtype of the first operand for each result."""
    first = operands[0] if operands else None
    return None if first is None else [first] * len(node.output)


@dataclass(frozen=True, slots=True)
class DirectRow:
    """An operator. results: the dtype of the first operand by default. decides: the operand that selects the kernel.

    domain: of its nodes; ONNX's own by default. gives_map: whether its result is a map, which can only be an output.
    """

    results: ResultDtypes = same_dtype
    decides: int = 0
    domain: str = ""
    gives_map: bool = False


def _always(*dtypes: DType) -> DirectRow:
    return DirectRow(lambda scan, node, operands: dtypes)


def _if(
    suits: Callable[[ScannedValues, onnx.NodeProto, DType], bool] = lambda scan, node, first: True,
    *,
    max_results: int | None = None,
    **values: Sequence[int | bytes],
) -> DirectRow:
    """Return a row for results of the dtype of the first operand; other nodes need a Graph.

    suits: returns True for a node that fits, by that dtype. max_results: of nodes that fit. values: those that their
    attributes may have.
    """

    def results(scan: ScannedValues, node: onnx.NodeProto, operands: Sequence[DType | None]) -> list[DType] | None:
        first, count = operands[0] if operands else None, len(node.output)
        if any(a.name in values and (a.s or a.i) not in values[a.name] for a in node.attribute):
            return None
        if first is None or (max_results is not None and count > max_results) or not suits(scan, node, first):
            return None
        return [first] * count

    return DirectRow(results)


def _cast(scan: ScannedValues, node: onnx.NodeProto, operands: Sequence[DType | None]) -> Sequence[DType] | None:
    (source,) = operands
    target = scan.dtype_of(next((a.i for a in node.attribute if a.name == "to"), 0))
    if source is None or target is None or len(node.attribute) != 1 or DType.string in (source, target):
        return None
    if source is target:
        scan.casts[node.output[0]] = scan.casts.get(node.input[0], source)
        return [target]
    before = scan.casts.get(node.input[0])  # onnxruntime merges the two casts, and drops the rounding of the first
    if before is not None and not (_holds(source, before) or {before, source, target} <= _ROUNDED_FREELY):
        return None
    scan.casts[node.output[0]] = source
    return [target]


_ROUNDED_FREELY = frozenset({DType.float16, DType.float32})
"""The runtime may merge casts between these floats in models whose float16 it may round freely."""


def _holds(wide: DType, narrow: DType) -> bool:
    """Return True if `wide` has every value of `narrow`."""
    if narrow is DType.bool or wide is narrow:
        return True
    if wide is DType.bool:
        return False
    if narrow.is_float:
        return wide is DType.float64
    if wide.is_float:
        return narrow.bits <= (24 if wide is DType.float32 else 53)
    return narrow.bits < wide.bits and (wide.is_signed or narrow.is_unsigned)


def constant(scan: ScannedValues, node: onnx.NodeProto) -> bool:
    """Note the value of a Constant. Return True if its form and dtype are supported."""
    attributes, outputs = node.attribute, node.output
    make_tensor = _TENSORS.get(attributes[0].name) if len(attributes) == len(outputs) == 1 else None
    return make_tensor is not None and scan.takes_constant(outputs[0], make_tensor(attributes[0]))


_TENSORS: Mapping[str, Callable[[onnx.AttributeProto], onnx.TensorProto]] = {
    "value": lambda a: a.t,
    "value_float": lambda a: tensor(data_type=DType.float32.onnx, float_data=[a.f]),
    "value_floats": lambda a: tensor(data_type=DType.float32.onnx, dims=[len(a.floats)], float_data=a.floats),
    "value_int": lambda a: tensor(data_type=DType.int64.onnx, int64_data=[a.i]),
    "value_ints": lambda a: tensor(data_type=DType.int64.onnx, dims=[len(a.ints)], int64_data=a.ints),
}
"""Functions that return the tensor of a Constant, by the name of its attribute."""


def _filled(scan: ScannedValues, node: onnx.NodeProto, operands: Sequence[DType | None]) -> Sequence[DType] | None:
    value = next((a.t for a in node.attribute if a.name == "value"), None)
    dtype = DType.float32 if value is None else scan.dtype_of(value.data_type)
    return None if dtype is None else [dtype]


def _recurrent(scan: ScannedValues, node: onnx.NodeProto, first: DType) -> bool:
    if scan.has_unknown_ranks and scan.rules.has_trap(FLAT):
        return False
    features = scan.dims.get(node.input[1], ())
    trapped = [
        axis
        for axis, trap in ENDS.get(node.op_type, {}).items()
        if scan.rules.has_trap(trap) and not (axis == FEATURES and len(features) == 3 and features[FEATURES])
    ]
    scan.require_elements(node, node.input[0], trapped)
    return True


_MAX_STRIDE = 3
"""Up to this stride, gaps between the windows of a convolution have less than three elements."""


def _convolved(scan: ScannedValues, node: onnx.NodeProto, first: DType) -> bool:
    if any(a.name == "auto_pad" and a.s.startswith(b"SAME") for a in node.attribute):
        if any(a.name == "dilations" and {*a.ints} - {1} for a in node.attribute):
            return False  # the kernel refuses it
        if any(a.name == "strides" and max(a.ints, default=1) > _MAX_STRIDE for a in node.attribute):
            return False  # the kernel computes negative padding if windows have gaps
    # Filters that are computed at run time may have no elements.
    is_known = len(node.input) > 1 and node.input[1] in scan.dims
    return is_known or not scan.rules.has_trap(empty.KERNELS.name)


_FIRST_DTYPE = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu Compress
    Concat ConvTranspose Cos Cosh CumSum DepthToSpace Det Elu Erf Exp Expand Flatten Floor Gather GatherElements Gelu
    Gemm GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish Hardmax Identity LRN LeakyRelu Log
    LogSoftmax LpNormalization Max Mean MeanVarianceNormalization Min Mish Mul Neg Not Or PRelu Reciprocal Relu
    Reshape Round ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh Slice Softmax Softplus Softsign
    SpaceToDepth Sqrt Sub Sum Tan Tanh ThresholdedRelu Tile Transpose Trilu Unsqueeze Xor
"""

ROWS = MappingProxyType(
    {
        **dict.fromkeys(_FIRST_DTYPE.split(), DirectRow()),
        **dict.fromkeys(having(Trait.COMPARES) & ONNX, _always(DType.bool)),
        **dict.fromkeys(("IsInf", "IsNaN"), _always(DType.bool)),
        **dict.fromkeys(("ArgMax", "ArgMin", "Shape", "Size"), _always(DType.int64)),
        **dict.fromkeys(
            ("AveragePool", "LpPool", "MaxPool"),
            _if(
                lambda scan, node, first: scan.opset >= NEW_KERNELS.get(node.op_type, 0),
                max_results=1,
                ceil_mode=(0,),
                auto_pad=(b"NOTSET", b"VALID"),
            ),
        ),
        **dict.fromkeys(("GRU", "LSTM"), _if(_recurrent, layout=(0,))),
        "Conv": _if(_convolved),
        **dict.fromkeys(REDUCTIONS, _if(lambda scan, node, first: scan.reduces(node))),
        **dict.fromkeys(
            ("Div", "Mod"),
            _if(lambda scan, node, first: not node.attribute and (not first.is_integer or scan.divides(node.input[1]))),
        ),
        "BatchNormalization": _if(max_results=1, training_mode=(0,), spatial=(1,)),
        "Cast": DirectRow(_cast),
        # Bounds that are attributes default to those of float32, which the float16 kernel ignores.
        "Clip": _if(lambda scan, node, first: scan.opset >= _BOUNDS_ARE_OPERANDS or first is not DType.float16),
        "Constant": DirectRow(),
        "ConstantOfShape": DirectRow(_filled),
        "Dropout": _if(lambda scan, node, first: len(node.input) == 1, max_results=1),
        # Kernels do not check the number of batch dims, and end the process if the operands have fewer.
        "GatherND": _if(batch_dims=(0,)),
        "If": DirectRow(),
        "LayerNormalization": _if(max_results=1),
        # Some kernels compute products without terms wrong.
        "MatMul": _if(lambda scan, node, first: len(scan.dims.get(node.input[1], ())) >= 2),
        "Pad": DirectRow(),
        "Pow": _if(lambda scan, node, first: scan.dtypes.get(node.input[1]) in (first, DType.int32, DType.int64)),
        "Range": DirectRow(),
        "Split": _if(
            lambda scan, node, first: all(a.i == len(node.output) for a in node.attribute if a.name == "num_outputs")
        ),
        "Squeeze": _if(lambda scan, node, first: len(node.input) < 2 or 0 not in scan.dims.get(node.input[1], ())),
        "Resize": _if(
            lambda scan, node, first: not {b"align_corners", b"linear"} <= {a.s for a in node.attribute},
            mode=(b"nearest", b"linear"),
            axes=(),
            antialias=(0,),
        ),
        "TopK": DirectRow(lambda scan, node, operands: None if operands[0] is None else [operands[0], DType.int64]),
        "Where": DirectRow(lambda scan, node, operands: None if operands[1] is None else [operands[1]], decides=1),
    }
)
"""Rows of operators of ONNX's own domain, by name."""

_OPERANDS_AND_RESULTS: Mapping[str, str] = {
    "7:1>1": "Abs Acos ArgMax ArgMin Asin Atan AveragePool Cast Ceil Cos DepthToSpace Elu Exp Flatten Floor"
    " GlobalAveragePool GlobalMaxPool HardSigmoid Hardmax Identity LRN LeakyRelu Log LogSoftmax LpNormalization LpPool"
    " Neg Not Reciprocal Relu Selu Shape Sigmoid Sin Size Softmax Softplus Softsign SpaceToDepth Sqrt Tan Tanh"
    " Transpose",
    "7:2>1": "Add And Div Equal Gather Greater Less MatMul Mul Or PRelu Pow Reshape Sub Tile Xor",
    "9:1>1": "Acosh Asinh Atanh ConstantOfShape Cosh Erf IsNaN MeanVarianceNormalization Shrink Sign Sinh",
    "7:1>1 18:1-2>1": "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd"
    " ReduceSumSquare",
    "7:1->1": "Concat Max Mean Min Sum",
    "11:2>1": "BitShift CumSum GatherElements GatherND",
    "18:2>1": "BitwiseAnd BitwiseOr BitwiseXor",
    "11:3>1": "Range ScatterElements ScatterND",
    "18:1>1": "BitwiseNot Mish", "7:2-3>1": "Conv ConvTranspose", "11:1>1": "Det Round",
    "12:2>1": "GreaterOrEqual LessOrEqual", "10:1>1": "IsInf ThresholdedRelu", "7:1>1 13:1-2>1": "ReduceSum Squeeze",
    "7:5>1-5 14:5>1-3": "BatchNormalization", "12:1>1": "Celu", "7:1>1 11:1-3>1": "Clip", "9:2>1": "Compress",
    "7:0>1": "Constant", "7:1>1-2 12:1-3>1-2": "Dropout", "8:2>1": "Expand", "7:3-6>0-2": "GRU", "20:1>1": "Gelu",
    "7:3>1 11:2-3>1": "Gemm", "14:1>1": "HardSwish", "7:1>1-": "If", "7:3-8>0-3": "LSTM",
    "17:2-3>1-3": "LayerNormalization", "7:1>1 8:1>1-2": "MaxPool", "10:2>1": "Mod",
    "7:1>1 11:2-3>1 18:2-4>1": "Pad", "10:2>1 11:3-4>1 13:1-4>1": "Resize", "7:1>1 10:3-5>1": "Slice",
    "7:1>1- 13:1-2>1-": "Split", "7:1>2 10:2>2": "TopK", "14:1-2>1": "Trilu", "7:1>1 13:2>1": "Unsqueeze",
    "9:3>1": "Where", "1:1>2": "LinearClassifier SVMClassifier", "1:2>1": "ArrayFeatureExtractor",
    "1:1>2 5:": "TreeEnsembleClassifier", "1:1>1 5:": "TreeEnsembleRegressor", "1:1->1": "FeatureVectorizer",
    "1:1>1": "Binarizer Imputer LabelEncoder LinearRegressor Normalizer OneHotEncoder SVMRegressor Scaler ZipMap",
}  # fmt: skip
"""The numbers of operands and of results that operators take, by the version of their domain from which on they do;
none where it is deprecated."""

VARIADIC = 1 << 30
"""More results than any operator has, except variadic ones."""


class Arity(NamedTuple):
    """The numbers of operands and results of an operator."""

    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int


@functools.cache
def arity_of(op_type: str, version: int) -> Arity | None:
    """Return the arity of an operator with a row at an opset; None if there is none."""
    rows = next((rows for rows, names in _OPERANDS_AND_RESULTS.items() if op_type in names.split()), "")
    ranges = [row.partition(":")[2] for row in rows.split() if int(row.partition(":")[0]) <= version]
    if not ranges or not ranges[-1]:
        return None
    bounds: list[int] = []
    for numbers in ranges[-1].split(">"):
        first, to, last = numbers.partition("-")
        bounds += int(first), int(last or (VARIADIC + 1 if to else first))
    return Arity(*bounds)


# Checks of the attributes of a node: only values that kernels were tested with.

LIMITED = frozenset({*RANGES, *AXES, *(op for op, _ in CHOICES), "Transpose"})
"""Operators whose attributes `is_plain` checks."""

_AXES = frozenset({"axis", "axes", "batch_axis", "time_axis"})

_MAX_ATTRIBUTE = 1 << 24
"""The largest window, group or count in an attribute."""


def is_plain(node: onnx.NodeProto) -> bool:
    """Return True if kernels were tested with the values of a node's attributes."""
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return False
        kind, name = attribute.type, attribute.name
        if kind == INT:
            attributes[name] = attribute.i
        elif kind == INTS:
            attributes[name] = list(attribute.ints)
        elif kind == STRING:
            attributes[name] = attribute.s
    try:
        check_values(node.op_type, attributes, node.op_type)
    except GraphcoreError:
        return False
    lists = {name: value if isinstance(value, list) else [value] for name, value in attributes.items()}
    numbers = (number for values in lists.values() for number in values if isinstance(number, int))
    if node.op_type in RANGES and any(abs(number) > _MAX_ATTRIBUTE for number in numbers):
        return False
    axes = (axis for name in _AXES & lists.keys() for axis in lists[name])
    if not all(isinstance(axis, int) and abs(axis) < MAX_AXES for axis in axes):
        return False
    perm = attributes.get("perm")
    return perm is None or (isinstance(perm, list) and sorted(perm) == [*range(len(perm))])
