"""Every operator of the default ONNX domain, with operands that are valid in each dtype its schema allows.

An operator with several cases has a kernel for a dtype when all of them run, each in the dtypes it is for. All values
are ordinary: what an operator makes of NaN, infinities, overflow and empty tensors is for tests/lowering.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
from onnx import helper

from graphcore.types.dtypes import DType
from tools.kernel_probe.case import DTYPES, SWEPT, Body, Case, Listed, Maybe, Operand, Values, tensor


def _passes(name: str) -> Body:
    """Return a branch that gives what `name` is outside."""
    return functools.partial(_branch, name)


def _branch(name: str, dtype: DType) -> onnx.GraphProto:
    node = helper.make_node("Identity", [name], [f"{name}_given"])
    return helper.make_graph([node], "branch", [], [_value(f"{name}_given", dtype)])


def _loop(dtype: DType) -> onnx.GraphProto:
    """Return a body that carries a value through every iteration, and collects it."""
    nodes = [
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("Unsqueeze", ["state", "axis"], ["collected"]),
        helper.make_node("Squeeze", ["collected", "axis"], ["carried"]),
    ]
    inputs = [_value("i", DType.int64, []), _value("go", DType.bool, []), _value("state", dtype)]
    outputs = [_value("go_on", DType.bool, []), _value("carried", dtype), _value("collected", dtype)]
    return helper.make_graph(nodes, "body", inputs, outputs, [_axis()])


def _scan(dtype: DType) -> onnx.GraphProto:
    """Return a body that carries a state and passes each row on."""
    nodes = [
        helper.make_node("Unsqueeze", ["state", "axis"], ["wide"]),
        helper.make_node("Squeeze", ["wide", "axis"], ["carried"]),
        helper.make_node("Unsqueeze", ["row", "axis"], ["wide_row"]),
        helper.make_node("Squeeze", ["wide_row", "axis"], ["passed"]),
    ]
    inputs = [_value("state", dtype, [3]), _value("row", dtype, [3])]
    outputs = [_value("carried", dtype, [3]), _value("passed", dtype, [3])]
    return helper.make_graph(nodes, "body", inputs, outputs, [_axis()])


def _mapped(dtype: DType) -> onnx.GraphProto:
    """Return a body that gives each item unchanged."""
    node = helper.make_node("Identity", ["item"], ["item_given"])
    return helper.make_graph([node], "body", [_value("item", dtype)], [_value("item_given", dtype)])


def _value(name: str, dtype: DType, shape: list[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype.onnx, shape)


def _axis() -> onnx.TensorProto:
    return tensor("axis", np.zeros(1, np.int64), DType.int64)


_MIXED: Values = (-2, 1, 0, 3, -1, 2)
_BELOW_ONE: Values = (0.25, 0.5, -0.25, 0.75)
_ONE: Values = (1,)


def _t(*shape: int, values: Values = (1, 2, 1, 3), dtype: DType | str = SWEPT) -> Operand:
    return Operand(shape, values, dtype)


def _ints(*values: int, constant: bool = False, dtype: DType = DType.int64) -> Operand:
    return Operand((len(values),), values, dtype, constant)


def _int(value: int, constant: bool = False) -> Operand:
    return Operand((), (value,), DType.int64, constant)


def _f32(*shape: int, values: Values = _ONE, constant: bool = False) -> Operand:
    return Operand(shape, values, DType.float32, constant)


def _bools(*values: int) -> Operand:
    return Operand((len(values),), values, DType.bool)


def _case(
    *inputs: Operand | Listed | Maybe | None,
    outputs: int = 1,
    only: str = "",
    captured: tuple[Operand, ...] = (),
    **attributes: Any,
) -> Case:
    return Case(inputs, attributes, outputs, frozenset(map(DType.of, only.split())) or None, captured)


_CONVERTED = [dtype for dtype in DTYPES if dtype is not DType.string]
_ALIKE = Operand((2, 3), (1, 0, 1, 1))
_DIGITS = Operand((2, 3), ("1", "0", "1", "1"))
_NUMBERS = " ".join(map(str, _CONVERTED))
_SEQUENCE = Listed((_t(2, 3), _t(2, 3)))
_IMAGE = _t(1, 1, 4, 4)
_HEADS = _t(1, 2, 3, 4)
_ROWS = (_f32(), _t(values=_ONE))
_QUANTIZED = (_t(2, 3), *_ROWS)
_QUANTIZED_B = (_t(3, 2), *_ROWS)
_QUANTIZED_W = (_t(1, 1, 2, 2), *_ROWS)

_ROWS_OF_CASES: list[tuple[str, list[Case]]] = [
    # Element by element
    ("Abs Ceil Floor Neg Relu Round Sign IsInf IsNaN", [_case(_t(2, 3, values=_MIXED))]),
    ("Cos Sin Tan Exp Tanh Sinh Cosh Asinh Atan Erf Gelu Mish Sigmoid Softplus Softsign", [_case(_t(2, 3))]),
    ("Celu Elu HardSigmoid HardSwish LeakyRelu Selu Shrink Swish ThresholdedRelu", [_case(_t(2, 3, values=_MIXED))]),
    ("Acosh Log Reciprocal Sqrt", [_case(_t(2, 3))]),
    ("Acos Asin Atanh", [_case(_t(2, 3, values=_BELOW_ONE))]),
    ("Not BitwiseNot Identity", [_case(_t(2, 3))]),
    ("Add Sub Mul Div And Or Xor BitwiseAnd BitwiseOr BitwiseXor", [_case(_t(2, 3), _t(2, 3, values=_ONE))]),
    ("Equal Less LessOrEqual Greater GreaterOrEqual PRelu Pow", [_case(_t(2, 3), _t(2, 3, values=_ONE))]),
    ("Max Min Sum Mean", [_case(_t(2, 3), _t(2, 3, values=_ONE))]),
    ("Mod", [_case(_t(2, 3), _t(2, 3, values=_ONE), only="float16 bfloat16 float32 float64", fmod=1),
             _case(_t(2, 3), _t(2, 3, values=_ONE), only="int8 int16 int32 int64 uint8 uint16 uint32 uint64")]),
    ("BitShift", [_case(_t(2, 3), _t(2, 3, values=_ONE), direction=way) for way in ("LEFT", "RIGHT")]),
    ("Clip", [_case(_t(2, 3), _t(values=_ONE), _t(values=(2,)))]),
    ("Where", [_case(_t(2, 3, values=(1, 0, 1, 1), dtype=DType.bool), _t(2, 3), _t(2, 3, values=_ONE))]),
    ("Dropout", [_case(_t(2, 3))]),
    ("StringConcat", [_case(_t(2, 3), _t(2, 3))]),
    ("StringNormalizer", [_case(_t(3), case_change_action="UPPER", locale="C")]),
    ("StringSplit", [_case(_t(3, values=("a b", "c", "d e")), outputs=2, delimiter=" ")]),
    ("RegexFullMatch", [_case(_t(3), pattern="a|b")]),
    # From one dtype to another
    ("Cast", [_case(_ALIKE, only=_NUMBERS, to=target.onnx) for target in _CONVERTED]
           + [_case(_DIGITS, only="string", to=target.onnx) for target in (DType.int64, DType.float32, DType.float64)]),
    ("CastLike", [_case(_ALIKE, _t(1, dtype=target), only=_NUMBERS) for target in _CONVERTED]
               + [_case(_DIGITS, _f32(1), only="string")]),
    ("BitCast", [_case(_t(2, 4), to=SWEPT)]),
    ("QuantizeLinear", [_case(_t(2, 3), _t(values=_ONE), _t(values=(0,), dtype=target)) for target in
                        (DType.int8, DType.uint8, DType.int16, DType.uint16)]),
    ("DequantizeLinear", [_case(_t(2, 3), _f32()), _case(_t(2, 3), _f32(), _t(values=(0,)))]),
    ("DynamicQuantizeLinear", [_case(_t(2, 3), outputs=3)]),
    # Products
    ("MatMul", [_case(_t(2, 3), _t(3, 2)), _case(_t(2, 2, 3), _t(2, 3, 2))]),
    ("Gemm", [_case(_t(2, 3), _t(3, 2), _t(2, 2)), _case(_t(2, 3), _t(2, 3), transB=1)]),
    ("MatMulInteger", [_case(_t(2, 3), _t(3, 2, dtype=DType.uint8)),
                       _case(_t(2, 3), _t(3, 2, dtype=DType.uint8), _t(values=_ONE),
                             _t(values=_ONE, dtype=DType.uint8))]),
    ("ConvInteger", [_case(_IMAGE, _t(1, 1, 2, 2, dtype=DType.uint8))]),
    ("QLinearMatMul", [_case(*_QUANTIZED, *_QUANTIZED_B, *_ROWS)]),
    ("QLinearConv", [_case(_IMAGE, *_ROWS, *_QUANTIZED_W, *_ROWS)]),
    ("Einsum", [_case(_t(2, 3), _t(3, 2), equation="ij,jk->ik"), _case(_t(2, 3), equation="ij->ji"),
                _case(_t(2, 3), equation="ij->i")]),
    ("Det", [_case(_t(3, 3))]),
    # Windows over images
    ("Conv", [_case(_t(1, 2, 4, 4), _t(2, 2, 3, 3), _t(2), kernel_shape=[3, 3]), _case(_t(1, 2, 5), _t(2, 2, 3))]),
    ("ConvTranspose", [_case(_t(1, 2, 4, 4), _t(2, 2, 3, 3), _t(2))]),
    ("DeformConv", [_case(_t(1, 1, 3, 3), _t(1, 1, 2, 2), _t(1, 8, 2, 2, values=(0,)))]),
    ("MaxPool AveragePool LpPool", [_case(_IMAGE, kernel_shape=[2, 2])]),
    ("GlobalMaxPool GlobalAveragePool GlobalLpPool", [_case(_IMAGE)]),
    ("MaxUnpool", [_case(_t(1, 1, 2, 2), Operand((1, 1, 2, 2), (0, 2, 8, 10), DType.int64), kernel_shape=[2, 2],
                         strides=[2, 2])]),
    ("MaxRoiPool", [_case(_IMAGE, _t(1, 5, values=(0, 0, 0, 3, 3)), pooled_shape=[2, 2])]),
    ("RoiAlign", [_case(_IMAGE, _t(1, 4, values=(0, 0, 3, 3)), _ints(0), output_height=2, output_width=2)]),
    ("LRN", [_case(_t(1, 3, 2, 2), size=3)]),
    ("Col2Im", [_case(_t(1, 4, 4), _ints(4, 4), _ints(2, 2), strides=[2, 2])]),
    ("Resize", [_case(_t(1, 1, 2, 2), None, _f32(4, values=(1, 1, 2, 2), constant=True), mode="nearest")]),
    ("GridSample", [_case(_t(1, 1, 3, 3), _f32(1, 2, 2, 2, values=(0,)))]),
    ("AffineGrid", [_case(_t(1, 2, 3), _ints(1, 1, 2, 2))]),
    ("ImageDecoder", [_case(_t(4))]),
    # Along axes
    ("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare",
     [_case(_t(2, 3), _ints(1, constant=True), keepdims=0), _case(_t(2, 3))]),
    ("ReduceMax ReduceMin",
     [_case(_t(2, 3), _ints(1, constant=True), keepdims=0), _case(_t(2, 3))]),
    ("ArgMax ArgMin", [_case(_t(2, 3), axis=1)]),
    ("CumSum CumProd", [_case(_t(2, 3), _int(1)), _case(_t(2, 3), _int(0), reverse=1, exclusive=1)]),
    ("TopK", [_case(_t(2, 3, values=(3, 1, 2)), _ints(2), outputs=2, axis=1),
              _case(_t(2, 3, values=(3, 1, 2)), _ints(2), outputs=2, axis=1, largest=0)]),
    ("Unique", [_case(_t(6), outputs=4)]),
    ("Hardmax Softmax LogSoftmax LpNormalization", [_case(_t(2, 3))]),
    ("NonZero", [_case(_t(2, 3, values=_MIXED))]),
    ("NonMaxSuppression", [_case(_t(1, 2, 4, values=(0, 0, 1, 1)), _t(1, 1, 2), _ints(1))]),
    ("TfIdfVectorizer", [
        _case(_t(4), only="int32 int64", mode="TF", max_gram_length=1, min_gram_length=1, max_skip_count=0,
              ngram_counts=[0], ngram_indexes=[0, 1, 2], pool_int64s=[1, 2, 3]),
        _case(_t(4), only="string", mode="TF", max_gram_length=1, min_gram_length=1, max_skip_count=0,
              ngram_counts=[0], ngram_indexes=[0, 1, 2], pool_strings=["b", "c", "d"])]),
    # Places
    ("Gather", [_case(_t(2, 3), _ints(0, 1, 0), axis=1)]),
    ("GatherElements", [_case(_t(2, 3), Operand((2, 3), (0, 1, 0, 1, 0, 1), DType.int64), axis=1)]),
    ("GatherND", [_case(_t(2, 3), Operand((2, 2), (0, 1, 1, 0), DType.int64))]),
    ("ScatterElements", [_case(_t(2, 3), Operand((2, 2), (0, 1, 1, 0), DType.int64), _t(2, 2), axis=1)]),
    ("ScatterND", [_case(_t(2, 3), Operand((2, 2), (0, 1, 1, 0), DType.int64), _t(2))]),
    ("TensorScatter", [_case(_t(1, 4, 2), _t(1, 1, 2), _ints(1))]),
    ("Slice", [_case(_t(2, 3), _ints(0, 0), _ints(2, 2), _ints(0, 1), _ints(1, 1)),
               _case(_t(2, 3), _ints(-1), _ints(-9), _ints(1), _ints(-1))]),
    ("Compress", [_case(_t(2, 3), _bools(1, 0), axis=0)]),
    ("Concat", [_case(_t(2, 3), _t(2, 3), axis=1)]),
    ("Split", [_case(_t(2, 3), _ints(1, 2), outputs=2, axis=1), _case(_t(2, 3), outputs=3, axis=1, num_outputs=3)]),
    ("Size Shape Flatten", [_case(_t(2, 3))]),
    ("Transpose", [_case(_t(2, 3)), _case(_t(2, 3, 4), perm=[2, 0, 1])]),
    ("Reshape", [_case(_t(2, 3), _ints(3, 2))]),
    ("Expand", [_case(_t(1, 3), _ints(2, 3))]),
    ("Tile", [_case(_t(2, 3), _ints(2, 1))]),
    ("Squeeze", [_case(_t(1, 3), _ints(0))]),
    ("Unsqueeze", [_case(_t(2, 3), _ints(0))]),
    ("Pad", [_case(_t(3, 3), _ints(1, 1, 1, 1), _t(values=_ONE)), _case(_t(3, 3), _ints(1, 1, 1, 1), mode="edge")]),
    ("CenterCropPad", [_case(_t(4, 4), _ints(2, 2))]),
    ("Trilu", [_case(_t(3, 3), upper=0)]),
    ("DepthToSpace", [_case(_t(1, 4, 2, 2), blocksize=2)]),
    ("SpaceToDepth", [_case(_IMAGE, blocksize=2)]),
    ("ReverseSequence", [_case(_t(3, 2), _ints(2, 3), time_axis=0, batch_axis=1)]),
    # From nothing
    ("OneHot", [_case(_ints(0, 2, 1), _int(3), _t(2))]),
    ("Range", [_case(_t(values=(0,)), _t(values=_ONE), _t(values=_ONE))]),
    ("EyeLike", [_case(_t(2, 2)), _case(_t(2, 2, dtype=DType.float32), dtype=SWEPT)]),
    ("Constant", [_case(value=_t(2))]),
    ("ConstantOfShape", [_case(_ints(2, 3), value=_t(1))]),
    ("HannWindow HammingWindow BlackmanWindow", [_case(_int(4), output_datatype=SWEPT)]),
    ("MelWeightMatrix", [_case(_int(4), _int(16), _int(8000), _f32(values=(0,)), _f32(values=(4000,)),
                               output_datatype=SWEPT)]),
    ("RandomNormal RandomUniform", [_case(shape=[2, 2], dtype=SWEPT)]),
    ("RandomNormalLike RandomUniformLike", [_case(_t(2, 3))]),
    ("Bernoulli", [_case(_t(2, 3, values=_ONE))]),
    ("Multinomial", [_case(_t(2, 3), sample_size=2)]),
    # Layers
    ("LayerNormalization", [_case(_t(2, 3), _t(3), _t(3))]),
    ("RMSNormalization", [_case(_t(2, 3), _t(3))]),
    ("GroupNormalization", [_case(_t(1, 4, 2), _t(4), _t(4), num_groups=2)]),
    ("InstanceNormalization", [_case(_t(1, 2, 4), _t(2), _t(2))]),
    ("BatchNormalization", [_case(_t(1, 2, 4), _t(2), _t(2), _t(2), _t(2))]),
    ("MeanVarianceNormalization", [_case(_t(1, 2, 2, 2, values=(1, 2, 5, 3)))]),
    ("Attention", [_case(_HEADS, _HEADS, _HEADS)]),
    ("RotaryEmbedding", [_case(_HEADS, _t(1, 3, 2), _t(1, 3, 2))]),
    ("RNN", [_case(_t(2, 1, 3), _t(1, 2, 3), _t(1, 2, 2), _t(1, 4), hidden_size=2)]),
    ("GRU", [_case(_t(2, 1, 3), _t(1, 6, 3), _t(1, 6, 2), _t(1, 12), hidden_size=2)]),
    ("LSTM", [_case(_t(2, 1, 3), _t(1, 8, 3), _t(1, 8, 2), _t(1, 16), hidden_size=2)]),
    ("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", [_case(_t(2, 3), _ints(0, 1))]),
    ("DFT", [_case(_t(1, 4, 1), None, _int(1, constant=True))]),
    ("STFT", [_case(_t(1, 8, 1), _int(2), _t(4))]),
    # Subgraphs, sequences, optionals
    ("If", [_case(Operand((), _ONE, DType.bool), captured=(_t(2, 3), _t(2, 3)), then_branch=_passes("c0"),
                  else_branch=_passes("c1"))]),
    ("Loop", [_case(_int(3), Operand((), _ONE, DType.bool), _t(2, 3), outputs=2, body=_loop)]),
    ("Scan", [_case(_t(3), _t(2, 3), outputs=2, body=_scan, num_scan_inputs=1)]),
    ("SequenceMap", [_case(_SEQUENCE, body=_mapped)]),
    ("SequenceConstruct", [_case(_t(2, 3), _t(2, 3))]),
    ("SequenceEmpty", [_case(dtype=SWEPT)]),
    ("SequenceInsert", [_case(_SEQUENCE, _t(2, 3))]),
    ("SequenceErase SequenceLength", [_case(_SEQUENCE)]),
    ("SequenceAt", [_case(_SEQUENCE, _int(1))]),
    ("SplitToSequence", [_case(_t(2, 3), axis=0)]),
    ("ConcatFromSequence", [_case(_SEQUENCE, axis=0)]),
    ("Optional", [_case(_t(2, 3))]),
    ("OptionalHasElement OptionalGetElement", [_case(Maybe(_t(2, 3)))]),
]  # fmt: skip

CASES: dict[str, tuple[Case, ...]] = {name: tuple(row) for names, row in _ROWS_OF_CASES for name in names.split()}
