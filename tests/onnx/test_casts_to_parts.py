"""Floats cast to 2 and 4 bits: the file of each target gives what the Graph gives, in onnxruntime and read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.runtime.ort import release

PARTS = {
    DType.int4: (-8, 7),
    DType.uint4: (0, 15),
    DType.int2: (-2, 1),
    DType.uint2: (0, 3),
}
VALUES = [
    0,
    -0.0,
    0.5,
    -0.5,
    0.6,
    1.5,
    -1.5,
    2.5,
    3.5,
    4,
    7.9,
    8,
    -8.9,
    15.9,
    16,
    100,
    -100,
    1e30,
    -1e30,
    np.nan,
    np.inf,
    -np.inf,
]
SOURCES = (DType.float16, DType.bfloat16, DType.float32, DType.float64)


def skip_unless_taken(dtype: DType) -> None:
    if dtype.bits == 2 and not release.takes(25, 12):
        pytest.skip("this onnxruntime takes no file with integers of 2 bits")


def fed(source: DType) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        return np.array(VALUES).astype(source.numpy)


def expected(array: np.ndarray[Any, Any], dtype: DType) -> list[int]:
    """Truncated and saturated, NaN as 0: docs/numbers.md, 9."""
    least, most = PARTS[dtype]
    return [0 if np.isnan(v) else int(np.trunc(np.clip(float(v), least, most))) for v in array.astype(np.float64)]


def run_alone(model: bytes, array: np.ndarray[Any, Any]) -> list[int]:
    (result,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": array})
    return list(result)


@pytest.mark.parametrize("target", ["onnx", "cpu"])
@pytest.mark.parametrize("source", SOURCES, ids=str)
@pytest.mark.parametrize("dtype", PARTS, ids=str)
def test_casts_of_floats_to_parts_of_bytes_are_those_of_the_graph_in_files(
    dtype: DType, source: DType, target: Any
) -> None:
    skip_unless_taken(dtype)
    graph = Graph("g", {"x": TensorType(DType.float32 if source is DType.bfloat16 else source, ["n"])})
    graph.output(y=graph["x"].cast(source).cast(dtype).cast(DType.int64))
    array = fed(DType.float32 if source is DType.bfloat16 else source)
    wanted = expected(array.astype(source.numpy), dtype)
    assert list(gc.InferenceSession().load(graph)(array)[0]) == wanted
    for level in ("off", "all"):  # written, read and written again
        model = graph.to_onnx(target=target, optimize=level)
        onnx.checker.check_model(model)
        assert run_alone(model.SerializeToString(), array) == wanted
        graph = Graph.load(model.SerializeToString())
        assert list(gc.InferenceSession().load(graph)(array)[0]) == wanted


@pytest.mark.parametrize("dtype", PARTS, ids=str)
def test_casts_to_parts_of_bytes_keep_whole_numbers_that_are_known_in_range(dtype: DType) -> None:
    skip_unless_taken(dtype)
    least, most = PARTS[dtype]
    graph = Graph("g", {"x": TensorType(DType.float32, ["n"])})
    graph.output(y=ops.clip(graph["x"], float(least), float(most)).cast(dtype).cast(DType.int64))
    array = fed(DType.float32)
    for target in ("onnx", "cpu"):
        assert run_alone(graph.to_onnx(target=target).SerializeToString(), array) == expected(array, dtype)


@pytest.mark.parametrize("dims", [["n"], ["n", 3], [2], [2, 3]], ids=str)
@pytest.mark.parametrize("source", [DType.float32, DType.int8, DType.int64], ids=str)
@pytest.mark.parametrize("dtype", PARTS, ids=str)
def test_shapes_of_parts_of_bytes_are_known_in_the_graph_and_its_files(
    dtype: DType, source: DType, dims: list[str | int]
) -> None:
    skip_unless_taken(dtype)
    graph = Graph("g", {"x": TensorType(source, dims)})
    graph.output(y=ops.shape_of(graph["x"].cast(dtype)))
    shape = [2] if len(dims) == 1 else [2, 3]
    array = np.ones(shape, source.numpy)
    assert list(gc.InferenceSession().load(graph)(array)[0]) == shape
    for target in ("onnx", "cpu"):
        again = Graph.load(graph.to_onnx(target=target).SerializeToString())
        assert list(gc.InferenceSession().load(again)(array)[0]) == shape


@pytest.mark.parametrize("between", [DType.int32, DType.float32, DType.string], ids=str)
@pytest.mark.parametrize(("value", "wanted"), [("uint8", "string"), ("string", "int32"), ("string", "string")])
def test_casts_in_a_row_are_read_and_optimised_when_some_are_of_strings(
    value: str, between: DType, wanted: str
) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=between.onnx),
        helper.make_node("Cast", ["a"], ["y"], to=getattr(DType, wanted).onnx),
    ]
    ends = [helper.make_tensor_value_info(n, getattr(DType, d).onnx, ["n"]) for n, d in (("x", value), ("y", wanted))]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    graph = gc.Graph.load(proto)
    assert all(isinstance(node.attributes["to"], DType) for node in graph.nodes if node.op_type == "Cast")
    x = np.array(["1", "2"], object) if value == "string" else np.array([1, 2], np.uint8)
    for model in (graph, graph.optimize(), proto):
        (y,) = gc.InferenceSession(optimize="exact").load(model)(x)
        assert y.astype(np.float32).tolist() == [1, 2]
