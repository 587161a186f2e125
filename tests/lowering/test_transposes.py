"""Transposes beside operators that onnxruntime's optimisers cannot move them into or past."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops

pytestmark = pytest.mark.releases

PERMS = [(1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0), (0, 2, 1)]


def plain(model: onnx.ModelProto, x: Any, *, optimizes: bool = True) -> Any:
    """Return the results of onnxruntime alone."""
    options = onnxruntime.SessionOptions()
    if not optimizes:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.mark.numbers
@pytest.mark.parametrize("perm", PERMS)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("source", "dtype"), [("int8", "float32"), ("float16", "float32"), ("float32", "float64")])
def test_product_with_a_cast_transpose(source: str, dtype: str, side: int, perm: tuple[int, ...]) -> None:
    x = np.arange(60).reshape(4, 3, 5).astype(source)
    turned = x.transpose(perm).astype(dtype)
    w = np.arange(6 * turned.shape[2 - side]).reshape((-1, 6) if side == 0 else (6, -1)).astype(dtype)
    want = turned @ w if side == 0 else w @ turned
    graph = Graph("product", {"x": TensorType(source, x.shape)})
    t = ops.permute(graph["x"], perm).cast(dtype)
    graph.output(t @ w if side == 0 else w @ t)
    for got in (
        gc.InferenceSession().load(graph)(x)[0],
        gc.InferenceSession(optimize="off").load(graph)(x)[0],
        plain(graph.to_onnx(), x),
        plain(graph.to_onnx(target="onnx"), x),
    ):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16])
def test_product_of_halves(dtype: DType) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(dtype.numpy)
    graph = Graph("product", {"x": TensorType(dtype, x.shape)})
    graph.output(ops.permute(graph["x"], (1, 0, 2)) @ np.ones((4, 2), dtype.numpy))
    want = x.astype(np.float32).transpose(1, 0, 2) @ np.ones((4, 2), np.float32)
    np.testing.assert_array_equal(gc.InferenceSession().load(graph)(x)[0].astype(np.float32), want)
    if dtype is DType.float16:  # a plain session takes no arrays of the other
        for target in ("cpu", "onnx"):
            np.testing.assert_array_equal(plain(graph.to_onnx(target=target), x), want)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("is_cast", [False, True])
@pytest.mark.parametrize("precision", ["exact", None])
def test_third_party_models_load(kind: int, is_cast: bool, precision: Any) -> None:
    """Models that run as they are, or in the kernels' own precision, leave the optimiser out."""
    x = np.arange(24).reshape(2, 3, 4).astype(helper.tensor_dtype_to_np_dtype(kind))
    wide = TensorProto.DOUBLE if is_cast else kind
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2])]
    nodes += [helper.make_node("Cast", ["t"], ["c"], to=wide)] if is_cast else []
    nodes.append(helper.make_node("MatMul", [nodes[-1].output[0], "w"], ["y"]))
    w = numpy_helper.from_array(np.ones((4, 2), helper.tensor_dtype_to_np_dtype(wide)), "w")
    ends = [helper.make_tensor_value_info("x", kind, x.shape)], [helper.make_tensor_value_info("y", wide, None)]
    graph = helper.make_graph(nodes, "others", *ends, [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (got,) = gc.InferenceSession(precision=precision).load(model)(x)
    np.testing.assert_array_equal(got, x.transpose(1, 0, 2) @ np.ones((4, 2), x.dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("dims", [("n", "h", "w", "c"), (1, 8, 6, 3), (2, 8, 6, 3)])
def test_cubic_resize_between_transposes(dtype: str, between: bool, dims: Any) -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])]
    nodes += [helper.make_node("Relu", ["t"], ["r"])] if between else []
    nodes += [
        helper.make_node("Resize", [nodes[-1].output[0], "", "s"], ["z"], mode="cubic"),
        helper.make_node("Transpose", ["z"], ["y"], perm=[0, 2, 3, 1]),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [helper.make_tensor_value_info("x", kind, dims)], [helper.make_tensor_value_info("y", kind, None)]
    scales = numpy_helper.from_array(np.array([1, 1, 0.5, 0.5], np.float32), "s")
    model = helper.make_model(
        helper.make_graph(nodes, "resized", *ends, [scales]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    x = np.random.default_rng(0).normal(size=[d if isinstance(d, int) else 8 for d in dims]).astype(dtype)
    want = plain(model, x, optimizes=False)
    graph = Graph.load(model, promotion="max")  # else target "onnx" writes the model as it was read
    for got, target in itertools.product((gc.InferenceSession().load(model)(x)[0],), ("cpu", "onnx")):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(plain(graph.to_onnx(target=target), x), want)  # type: ignore[arg-type]
