"""Ranks that follow from operators' definitions, without ONNX's inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import ModelError

on: Any = ops.onnx
CASES: dict[str, tuple[Callable[..., Any], int, list[Any]]] = {
    "reshape": (lambda x, s: on.Reshape(x, s), 2, [[6, 4]]),
    "expand": (lambda x, s: on.Expand(x, s), 4, [[5, 1, 1, 4]]),
    "expand to fewer": (lambda x, s: on.Expand(x, s), 3, [[1]]),
    "squeeze": (lambda x, a: on.Squeeze(on.Unsqueeze(x, [0, 1]), a), 3, [[0, 1]]),
    "unsqueeze": (lambda x, a: on.Unsqueeze(x, a), 5, [[0, 4]]),
    "sum kept": (lambda x, a: on.ReduceSum(x, a), 3, [[1]]),
    "sum dropped": (lambda x, a: on.ReduceSum(x, a, keepdims=0), 2, [[1]]),
    "max dropped": (lambda x, a: on.ReduceMax(x, a, keepdims=0), 1, [[0, 1]]),
    "split": (lambda x, s: on.Split(x, s, axis=2, outputs=2), 3, [[1, 3]]),
    "crop": (lambda x, s: on.CenterCropPad(x, s), 3, [[1, 2, 3]]),
    "constant": (lambda x, s: on.ConstantOfShape(s), 2, [[1, 2]]),
    "window": (lambda x, n: on.HannWindow(n), 1, [7]),
    "group normalization": (
        lambda x, s: on.GroupNormalization(x, s, s, num_groups=1), 3, [np.ones(3, np.float32)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rank_is_that_of_the_result(name: str) -> None:
    call, wanted, value = CASES[name]
    arrays = [np.ones((2, 3, 4), np.float32), *map(np.asarray, value)]
    graph = Graph("test", [TensorType(DType.of(a.dtype), a.shape) for a in arrays])
    with graph:
        result = call(*graph.inputs)
    graph.output(*(result if isinstance(result, (list, tuple)) else [result]))
    assert graph.outputs[0].rank == wanted
    for target in ("onnx", "cpu"):
        onnx.checker.check_model(graph.to_onnx(target=target), full_check=True)
    for symbol, array in zip(graph.outputs, gc.InferenceSession().load(graph)(*arrays), strict=True):
        assert array.ndim == symbol.rank


def test_rank_stays_open_where_nothing_tells_it() -> None:
    graph = Graph("test", [TensorType(DType.float32, ["a", "b"]), TensorType(DType.int64, ["n"])])
    with graph:
        results = [
            on.Reshape(*graph.inputs),
            on.Squeeze(graph.inputs[0]),
            on.Unsqueeze(*graph.inputs),
            on.ReduceSum(*graph.inputs, keepdims=0),
        ]
    assert [str(s.type) for s in results] == ["float32[...]"] * 4


def test_outputs_have_the_rank_that_a_model_declares_when_inference_knows_none() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 18]>
        test (float[2, 3] x, int64[1] axes) => (float[2, 1] y) { y = ReduceSum <keepdims = 1> (x, axes) }"""
    )
    graph = Graph.load(model)
    assert str(graph.outputs[0].type) == "float32[2, 1]"
    for target in ("onnx", "cpu"):
        onnx.checker.check_model(graph.to_onnx(target=target), full_check=True)
    loaded = gc.InferenceSession().load(graph)
    (result,) = loaded(np.ones((2, 3), np.float32), np.array([1]))
    assert result.tolist() == [[3.0], [3.0]]


@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
def test_axis_of_scales_is_checked_when_a_model_is_read(operator: str) -> None:
    def read(count: int, rank: int = 2, **attributes: Any) -> gc.Graph:
        nodes = [onnx.helper.make_node(operator, ["x", "s", "z"], ["y"], **attributes)]
        kinds = [onnx.TensorProto.FLOAT, onnx.TensorProto.INT8]
        kinds = kinds if operator == "QuantizeLinear" else kinds[::-1]
        x, y = (onnx.helper.make_tensor_value_info(n, k, [3] * rank) for n, k in zip("xy", kinds, strict=True))
        arrays: dict[str, Any] = {"s": np.ones(count, np.float32), "z": np.zeros(count, np.int8)}
        results = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
        result = onnx.helper.make_graph(nodes, "g", [x], [y], results)
        return gc.Graph.load(onnx.helper.make_model(result, opset_imports=[onnx.helper.make_opsetid("", 19)]))

    for axis in (7, -3):
        with pytest.raises(ModelError, match=f"axis is {axis}, but the operand has 2 axes"):
            read(3, axis=axis)
    with pytest.raises(ModelError, match="axis is 1, but the operand has 1 axes"):
        read(3, rank=1)  # the default
    x = np.arange(9).reshape(3, 3)
    for graph in (read(3, axis=-2), read(3), read(1, axis=7), read(1, rank=1)):
        graph_input = graph.inputs[0]
        value = x[0] if graph_input.rank == 1 else x
        result = gc.InferenceSession().load(graph)(value.astype(graph_input.dtype.numpy))[0]
        assert np.array_equal(result, value)
