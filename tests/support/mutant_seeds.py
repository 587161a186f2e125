"""Small valid models, one of each kind that the reader and the lowering treat in their own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphcore import DType, Graph, TensorType, ops
from tests.support.onnx_models import FLOAT, INT64, model, tensor, value

BOOL = TensorProto.BOOL


def constant(name: str, array: np.ndarray[Any, Any]) -> onnx.TensorProto:
    return numpy_helper.from_array(array, name)


def ints(name: str, *values: int) -> onnx.TensorProto:
    return constant(name, np.array(values, np.int64))


def node(op_type: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), domain=domain, **attributes)


def chain(*nodes: onnx.NodeProto, x: Sequence[int] = (2, 4), constants: Sequence[onnx.TensorProto] = ()) -> bytes:
    proto = model(nodes, [value("x", FLOAT, x)], [value("y", FLOAT, None)], constants)
    return bytes(proto.SerializeToString())


def convolution() -> bytes:
    weight = constant("w", np.ones((2, 1, 3, 3), np.float32))
    return chain(
        node("Conv", "x w", "a", strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], group=2, kernel_shape=[3, 3]),
        node("MaxPool", "a", "b", kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", "b", "c", kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
        node("ConvTranspose", "c w", "d", group=2, output_padding=[0, 0]),
        node("BatchNormalization", "d s s s s", "e", epsilon=0.1),
        node("GlobalAveragePool", "e", "y"),
        x=(1, 2, 6, 6),
        constants=[weight, constant("s", np.ones(2, np.float32))],
    )


def shapes() -> bytes:
    return chain(
        node("Reshape", "x to", "a"),
        node("Transpose", "a", "b", perm=[1, 0, 2]),
        node("Slice", "b starts ends axes steps", "c"),
        node("Expand", "c to3", "d"),
        node("Tile", "d reps", "e"),
        node("Pad", "e pads", "f", mode="constant"),
        node("Gather", "f picked", "g", axis=0),
        node("Concat", "g g", "h", axis=1),
        node("Split", "h", "i j", axis=1, num_outputs=2),
        node("Squeeze", "i first", "k"),
        node("Unsqueeze", "k first", "y"),
        constants=[
            ints("to", 2, 2, -1), ints("starts", 0), ints("ends", 2), ints("axes", 1), ints("steps", 1),
            ints("to3", 2, 2, 2), ints("reps", 1, 2, 1), ints("pads", 0, 0, 0, 0, 1, 0), ints("picked", 0),
            ints("first", 0),
        ],
    )  # fmt: skip


def makers() -> bytes:
    return chain(
        node("ConstantOfShape", "dims", "a", value=constant("v", np.array([2], np.float32))),
        node("Range", "zero four one", "b"),
        node("OneHot", "picked depth offon", "c", axis=-1),
        node("Cast", "b", "d", to=FLOAT),
        node("Add", "a d", "e"),
        helper.make_node("Resize", ["x", "", "scales"], ["f"], mode="nearest"),
        node("EyeLike", "x", "g", k=1),
        node("ReduceSum", "c", "h", keepdims=0),
        node("TopK", "f two", "i j", axis=-1),
        node("Trilu", "g", "k", upper=1),
        node("CumSum", "k one", "l"),
        node("ArgMax", "l", "m", axis=1),
        node("NonZero", "e", "n"),
        node("Sum", "e h d d", "y"),
        x=(4, 4),
        constants=[
            ints("dims", 4), *(constant(n, np.array(v, np.int64)) for n, v in (("zero", 0), ("four", 4), ("one", 1))),
            ints("picked", 0, 1), constant("depth", np.array(3, np.int64)),
            constant("offon", np.array([0, 1], np.float32)), constant("scales", np.array([1, 2], np.float32)),
            ints("two", 2),
        ],
    )  # fmt: skip


def layers() -> bytes:
    return chain(
        node("Gemm", "x w b", "a", alpha=0.5, beta=2.0, transB=1),
        node("LayerNormalization", "a s s", "c", axis=-1),
        node("Softmax", "c", "d", axis=1),
        node("Gelu", "d", "e", approximate="tanh"),
        node("Einsum", "e e", "f", equation="ij,kj->ik"),
        node("Clip", "f low", "g"),
        node("ReduceMean", "g axes", "h", keepdims=1),
        node("Where", "m x h", "i"),
        node("LeakyRelu", "i", "y", alpha=0.1),
        constants=[
            constant("w", np.ones((4, 4), np.float32)), constant("b", np.ones(4, np.float32)),
            constant("s", np.ones(4, np.float32)), constant("low", np.array(0, np.float32)),
            constant("m", np.array([[True], [False]])), ints("axes", 1),
        ],
    )  # fmt: skip


def recurrent() -> bytes:
    return chain(
        node("LSTM", "x w r", "a h c", hidden_size=2, direction="forward"),
        node("GRU", "x wg rg", "b", hidden_size=2),
        node("Add", "a b", "d"),
        node("Flatten", "d", "y", axis=1),
        x=(3, 1, 2),
        constants=[
            constant("w", np.ones((1, 8, 2), np.float32)), constant("r", np.ones((1, 8, 2), np.float32)),
            constant("wg", np.ones((1, 6, 2), np.float32)), constant("rg", np.ones((1, 6, 2), np.float32)),
        ],
    )  # fmt: skip


def control() -> bytes:
    """An If in a Loop, and a Scan."""
    then = helper.make_graph([node("Neg", "v", "t")], "then", [], [value("t")])
    other = helper.make_graph([node("Add", "v x", "e")], "else", [], [value("e")])
    loop = helper.make_graph(
        [node("Identity", "k", "go"), node("If", "k", "o", then_branch=then, else_branch=other)],
        "loop",
        [value("i", INT64, []), value("k", BOOL, []), value("v")],
        [value("go", BOOL, []), value("o")],
    )
    scan = helper.make_graph(
        [node("Add", "s e2", "s2"), node("Mul", "s2 e2", "p")],
        "scan",
        [value("s", FLOAT, []), value("e2", FLOAT, [])],
        [value("s2", FLOAT, []), value("p", FLOAT, [])],
    )
    nodes = [
        node("Loop", "n c x", "a", body=loop),
        node("Scan", "zero a", "last parts", body=scan, num_scan_inputs=1),
        node("Add", "last parts", "y"),
    ]
    results = [
        constant("n", np.array(3, np.int64)), constant("c", np.array(True)), constant("zero", np.array(0, np.float32)),
    ]  # fmt: skip
    return bytes(model(nodes, constants=results).SerializeToString())


def functions() -> bytes:
    inner = helper.make_function(
        "f", "Leaky", ["a"], ["b"], [onnx.NodeProto(op_type="LeakyRelu", input=["a"], output=["b"])],
        [helper.make_opsetid("", 20)], ["alpha"],
    )  # fmt: skip
    inner.node[0].attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    outer = helper.make_function(
        "f", "Twice", ["a"], ["b"],
        [node("Leaky", "a", "m", "f", alpha=0.5), node("Leaky", "m", "b", "f", alpha=0.25)],
        [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)],
    )  # fmt: skip
    nodes = [node("Twice", "x", "a", "f"), node("Leaky", "a", "y", "f", alpha=2.0)]
    return bytes(model(nodes, functions=[inner, outer], f=1).SerializeToString())


def sequences() -> bytes:
    return chain(
        node("SequenceConstruct", "x x", "s"),
        node("SplitToSequence", "x", "t", axis=0),
        node("SequenceInsert", "t x", "u"),
        node("SequenceAt", "s one", "a"),
        node("ConcatFromSequence", "s", "b", axis=0),
        node("SequenceErase", "s one", "v"),
        node("SequenceLength", "v", "l"),
        node("Optional", "a", "o"),
        node("OptionalGetElement", "o", "p"),
        node("ReduceSum", "b", "r", keepdims=0),
        node("Add", "p r", "y"),
        constants=[constant("one", np.array(1, np.int64))],
    )


def texts() -> bytes:
    stored = tensor("w", TensorProto.STRING, [2], string_data=[b"a", b"bc"])
    proto = model(
        [node("StringConcat", "w w", "a"), node("Equal", "a w", "b"), node("Cast", "b", "y", to=FLOAT),
         node("StringNormalizer", "w", "n", case_change_action="UPPER", locale="C")],
        [], [value("y"), value("n", TensorProto.STRING, None)], [stored],
    )  # fmt: skip
    return bytes(proto.SerializeToString())


def sparse() -> bytes:
    weights = onnx.SparseTensorProto(dims=[2, 4])
    weights.values.CopyFrom(constant("w", np.ones(2, np.float32)))
    weights.indices.CopyFrom(ints("", 1, 6))
    proto = onnx.ModelProto.FromString(chain(node("Add", "x w", "y")))
    proto.graph.sparse_initializer.append(weights)
    return bytes(proto.SerializeToString())


def quantized() -> bytes:
    return chain(
        node("QuantizeLinear", "x s z", "a"),
        node("DequantizeLinear", "a s z", "b"),
        node("DynamicQuantizeLinear", "b", "q qs qz"),
        node("MatMulInteger", "q q8 qz", "m"),
        node("Cast", "m", "c", to=FLOAT),
        node("ReduceMax", "c", "d", keepdims=0),
        node("Mul", "b d", "y"),
        constants=[
            constant("s", np.array(0.5, np.float32)), constant("z", np.array(3, np.int8)),
            constant("q8", np.ones((4, 2), np.uint8)),
        ],
    )  # fmt: skip


def signal() -> bytes:
    return chain(
        node("Unsqueeze", "x last", "a"),
        node("DFT", "a", "b", onesided=0),
        node("ReduceSumSquare", "b", "c", keepdims=0),
        node("HannWindow", "four", "h"),
        node("GridSample", "im grid", "g"),
        node("Mul", "x h", "d"),
        node("ReduceSum", "g", "e", keepdims=0),
        node("Sum", "c d e", "y"),
        constants=[
            ints("last", 2), constant("four", np.array(4, np.int64)), constant("im", np.ones((1, 1, 3, 3), np.float32)),
            constant("grid", np.zeros((1, 2, 2, 2), np.float32)),
        ],
    )  # fmt: skip


def old() -> bytes:
    """Opset 9, with what has become an operand since as attributes."""
    nodes = [
        node("Slice", "x", "a", starts=[0], ends=[2], axes=[0]),
        node("Pad", "a", "b", pads=[0, 0, 1, 0], value=1.0),
        node("ReduceSum", "b", "c", axes=[1], keepdims=1),
        node("Dropout", "c", "d", ratio=0.5),
        node("Clip", "d", "e", min=0.0, max=6.0),
        node("Upsample", "e scales", "f", mode="nearest"),
        node("Softmax", "f", "g", axis=1),
        node("TopK", "g", "h i", axis=0, k=2),
        node("Squeeze", "h", "y", axes=[1]),
    ]
    results = [constant("scales", np.array([2, 1], np.float32))]
    proto = model(nodes, [value("x", FLOAT, [2, 4])], [value("y", FLOAT, None)], results, opset=9)
    proto.ir_version = 4
    return bytes(proto.SerializeToString())


def narrow() -> bytes:
    """Our own export of dtypes that onnxruntime has few kernels for."""
    types = {"a": TensorType(DType.bfloat16, ["n", 4]), "b": TensorType(DType.int4, [4])}
    graph = Graph("narrow", types)
    a, b = graph.inputs
    weight = graph.weight("w", np.ones((4, 4)).astype(DType.bfloat16.numpy))
    graph.output(y=ops.softmax((a * b.cast(DType.bfloat16)) @ weight), z=b + b)
    return bytes(graph.to_onnx(target="onnx").SerializeToString())


def lowered() -> bytes:
    graph = Graph("lowered", {"a": TensorType(DType.int32, [3]), "b": TensorType(DType.tensor_float32, ["n", 3])})
    a, b = graph.inputs
    graph.output(q=a // (a - 1), r=ops.sum(b * b, axis=1))
    return bytes(graph.to_onnx(target="cpu").SerializeToString())


def large() -> bytes:
    """A weight long enough to stay in the file."""
    weight = constant("w", np.ones((4, 1100), np.float32))
    return chain(node("MatMul", "x w", "y"), constants=[weight])


def external() -> bytes:
    """Data in a file that a model given as bytes cannot have."""
    proto = onnx.ModelProto.FromString(chain(node("Add", "x w", "y")))
    weight = proto.graph.initializer.add(name="w", data_type=FLOAT, dims=[4])
    weight.data_location = TensorProto.EXTERNAL
    for key, text in (("location", "weights"), ("offset", "0"), ("length", "16")):
        weight.external_data.add(key=key, value=text)
    return bytes(proto.SerializeToString())


MAKERS: list[Callable[[], bytes]] = [
    convolution, shapes, makers, layers, recurrent, control, functions, sequences, texts, sparse, quantized, signal,
    old, narrow, lowered, large, external,
]  # fmt: skip

REFUSED = ("external",)
"""Those that are refused as they are."""


def seeds() -> dict[str, bytes]:
    return {make.__name__: make() for make in MAKERS}
