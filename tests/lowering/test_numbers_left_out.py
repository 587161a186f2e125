"""Operands that are one number or a length, and hold none: kernels read it and divide by it all the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore.errors import GraphcoreError, GraphError, RunError
from tests.support.onnx_models import FLOAT, model, value

pytestmark = pytest.mark.releases

X = np.ones(2, np.float32)
NONE = np.zeros(0, np.int64)


def loop(turns: str, *nodes: onnx.NodeProto, constant: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> gc.Graph:
    """Return a Loop that negates x, whose number of turns is a value of the file."""
    inside = [helper.make_node("Identity", ["k"], ["goes"]), helper.make_node("Neg", ["v"], ["o"])]
    results = [value("i", TensorProto.INT64, []), value("k", TensorProto.BOOL, []), value("v", FLOAT, [2])]
    body = helper.make_graph(inside, "body", results, [value("goes", TensorProto.BOOL, []), value("o", FLOAT, [2])])
    node = helper.make_node("Loop", [turns, "going", "x"], ["y"], body=body)
    inputs = [value("x", FLOAT, [2]), value("n", TensorProto.INT64, ["k"])]
    constants = [numpy_helper.from_array(np.array(True), "going"), numpy_helper.from_array(constant, "m")]
    return gc.Graph.load(model([*nodes, node], inputs, [value("y", FLOAT, None)], constants, opset=17))


def test_loop_is_refused_when_the_file_gives_no_number_of_turns() -> None:
    for wrong in (NONE, np.ones(2, np.int64)):
        with pytest.raises(GraphError, match="the trip count must have one element"):
            gc.InferenceSession().load(loop("m", constant=wrong))
    for right in (np.array(1), np.array([1])):
        assert gc.InferenceSession().load(loop("m", constant=right))(X, NONE)[0].tolist() == [-1, -1]


def test_loop_fails_in_words_when_its_number_of_turns_is_none_in_the_run() -> None:
    joined = helper.make_node("Concat", ["n", "n"], ["two"], axis=0)
    first = helper.make_node("Slice", ["n", "m", "one"], ["some"])
    one = helper.make_node("Constant", [], ["one"], value_ints=[1])
    for item in (loop("n", constant=NONE), loop("two", joined, constant=NONE)):
        with pytest.raises(RunError):
            gc.InferenceSession().load(item)(X, NONE)
    sliced = gc.InferenceSession().load(loop("some", one, first, constant=np.array([0])))
    assert sliced(X, np.array([3, 9]))[0].tolist() == [-1, -1]
    with pytest.raises(RunError):
        sliced(X, NONE)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("what", ["window", "length", "both"])
def test_transform_fails_in_words_when_its_frames_have_no_samples(kind: int, static: bool, what: str) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    window, length = ("w" if what != "length" else ""), ("l" if what != "window" else "")
    node = helper.make_node("STFT", ["x", "step", window, length], ["y"])
    fed = {"w": np.ones(0, dtype), "l": np.array(0)}
    names = [name for name in (window, length) if name]
    constants = [numpy_helper.from_array(np.array(2), "step")]
    constants += [numpy_helper.from_array(fed[name], name) for name in names if static]
    inputs = [value("x", kind, ["b", "n", 1])]
    if not static:
        inputs += [value(n, kind if n == "w" else TensorProto.INT64, ["k"] if n == "w" else []) for n in names]
    proto = model([node], inputs, [value("y", kind, None)], constants, opset=17)
    with pytest.raises(GraphcoreError):
        gc.InferenceSession().load(proto)(x=np.ones((1, 8, 1), dtype), **({} if static else {n: fed[n] for n in names}))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_transform_is_right_when_only_the_run_knows_its_window(kind: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    node = helper.make_node("STFT", ["x", "step", "w"], ["y"], onesided=1)
    inputs = [value("x", kind, ["b", "n", 1]), value("w", kind, ["k"])]
    step = numpy_helper.from_array(np.array(2), "step")
    loaded = gc.InferenceSession().load(model([node], inputs, [value("y", kind, None)], [step], opset=17))
    x = np.random.default_rng(3).standard_normal((2, 12, 1)).astype(dtype)
    for length in (1, 3, 4):
        window = np.arange(1, length + 1).astype(dtype)
        (got,) = loaded(x=x, w=window)
        frames = np.lib.stride_tricks.sliding_window_view(x[..., 0].astype(np.float64), length, 1)[:, ::2]
        want = np.fft.rfft(frames * window)
        np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=2e-6 * np.abs(want).max())


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("is_ranked", [False, True], ids=["unranked", "named"])
def test_convolution_fails_in_words_when_its_filters_have_no_elements(kind: int, rank: int, is_ranked: bool) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"])
    dims: dict[str, list[int | str | None]] = {
        name: [f"{name}{i}" for i in range(count)] for name, count in (("x", rank + 2), ("w", rank + 2), ("b", 1))
    }
    inputs = [value(n, kind, d if is_ranked or n == "x" else None) for n, d in dims.items()]
    loaded = gc.InferenceSession().load(model([node], inputs, [value("y", kind, None)], [], opset=17))
    x = np.arange(2 * 5**rank, dtype=dtype).reshape(1, 2, *[5] * rank) % 7
    for axis in range(rank):
        kernel = [3] * rank
        kernel[axis] = 0
        with pytest.raises(RunError):
            loaded(x=x, w=np.ones((2, 2, *kernel), dtype), b=np.zeros(2, dtype))
    got = loaded(x=x, w=np.ones((3, 2, *[1] * rank), dtype), b=np.ones(3, dtype))[0]
    np.testing.assert_array_equal(got, np.repeat(x.sum(1, keepdims=True) + 1, 3, 1).astype(dtype))


def test_convolution_is_refused_when_the_file_has_filters_without_elements() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    constant = numpy_helper.from_array(np.ones((2, 2, 0), np.float32), "w")
    for inputs, constants in (([], [constant]), ([value("w", FLOAT, [2, 2, 0])], [])):
        proto = model(
            [node], [value("x", FLOAT, ["n", 2, "l"]), *inputs], [value("y", FLOAT, None)], constants, opset=17
        )
        with pytest.raises(GraphcoreError, match="filters have no elements along an axis"):
            gc.InferenceSession().load(proto)


def test_convolution_is_refused_when_the_graph_has_filters_without_elements() -> None:
    graph = gc.Graph("empty", {"x": gc.TensorType("float32", ["n", 2, "l"])})
    w = graph.constant(np.ones((2, 2, 0), np.float32))
    graph.output(*graph.op("Conv", [graph["x"], w], None, [gc.TensorType("float32", ["n", 2, "m"])]))
    with pytest.raises(GraphError, match="no elements along an axis"):
        gc.InferenceSession().load(graph)


@pytest.mark.parametrize("op", ["ConvInteger", "QLinearConv"])
def test_convolution_of_integers_is_refused_when_it_is_fed_filters_without_elements(op: str) -> None:
    """Its kernels give what the memory held before."""
    scales = {"xs": np.float32(1), "xz": np.uint8(1), "ws": np.float32(1), "wz": np.uint8(0), "ys": np.float32(1)}
    names = ["x", "w"] if op == "ConvInteger" else ["x", "xs", "xz", "w", "ws", "wz", "ys", "xz"]
    result, dtype = (TensorProto.INT32, "int32") if op == "ConvInteger" else (TensorProto.UINT8, "uint8")
    constants = [numpy_helper.from_array(np.asarray(n), key) for key, n in scales.items() if key in names]
    kind = TensorProto.UINT8
    inputs = [value("x", kind, ["n", 1, "h", "w"]), value("w", kind, ["f", 1, "k", "l"])]
    proto = model([helper.make_node(op, names, ["y"])], inputs, [value("y", result, None)], constants, opset=17)
    loaded = gc.InferenceSession().load(proto)
    x = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    with pytest.raises(RunError, match="cannot be reshaped"):
        loaded(x=x, w=np.zeros((1, 1, 2, 0), np.uint8))
    np.testing.assert_array_equal(loaded(x=x, w=np.ones((1, 1, 1, 1), np.uint8))[0], x.astype(dtype))
