"""Windows with dilations or gaps, padded as auto_pad says: their sizes and elements are those that ONNX gives."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import graphcore as gc
from graphcore.conformance.runtimes import OrtModel
from graphcore.errors import GraphError

pytestmark = pytest.mark.releases

OPERATORS = ("MaxPool", "AveragePool", "LpPool", "Conv", "ConvInteger")
MODES = ("SAME_UPPER", "SAME_LOWER")


def windows(op: str, dims: list[Any], **attributes: Any) -> tuple[onnx.ModelProto, Any]:
    """Return a model of one operator, and its filters; those of pools are ones."""
    kernel = attributes["kernel_shape"]
    element, result = (2, 6) if op == "ConvInteger" else (1, 1)
    dtype = helper.tensor_dtype_to_np_dtype(element)
    has_filters = op.startswith("Conv")
    filters = np.random.default_rng(1).integers(0, 9, (1, 1, *kernel)).astype(dtype) if has_filters else np.ones(kernel)
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"][: 1 + has_filters], ["y"], **attributes)],
        "windows",
        [helper.make_tensor_value_info("x", element, dims)],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(filters, "w")] if has_filters else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), filters.reshape(kernel)


def expected(op: str, mode: str, x: Any, filters: Any, gap: int, step: int, counts_pads: int = 0) -> Any:
    """Return the result by ONNX's definition, window by window."""
    size = filters.shape[0]
    want = np.zeros([1, 1, *(-(-there // step) for there in x.shape[2:])])
    total = [
        max((places - 1) * step + (size - 1) * gap + 1 - there, 0)
        for places, there in zip(want.shape[2:], x.shape[2:], strict=True)
    ]
    before = [pads // 2 if mode == "SAME_UPPER" else pads - pads // 2 for pads in total]
    for place in np.ndindex(*want.shape[2:]):
        results = []
        for tap in itertools.product(range(size), repeat=2):
            at = [p * step - b + t * gap for p, b, t in zip(place, before, tap, strict=True)]
            if all(0 <= a < there for a, there in zip(at, x.shape[2:], strict=True)):
                results.append((float(x[0, 0, *at]), float(filters[tap])))
        values = [value for value, _ in results]
        if op == "MaxPool":
            result = max(values, default=-math.inf)
        elif op == "AveragePool":
            count = size**2 if counts_pads else len(values)
            result = sum(values) / count if count else math.nan
        else:
            result = math.sqrt(sum(v * v for v in values)) if op == "LpPool" else sum(v * f for v, f in results)
        want[0, 0, *place] = result
    return want


@pytest.mark.numbers
@pytest.mark.parametrize("there", [3, 4, 7])
@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("gap", [1, 2, 3])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", OPERATORS)
def test_windows_are_those_of_onnx(op: str, mode: str, size: int, gap: int, step: int, there: int) -> None:
    shape = [1, 1, there, there + 1]
    model, filters = windows(op, shape, kernel_shape=[size] * 2, dilations=[gap] * 2, strides=[step] * 2, auto_pad=mode)
    x = np.random.default_rng(0).integers(0, 9, shape).astype(np.uint8 if op == "ConvInteger" else np.float32)
    want = expected(op, mode, x, filters, gap, step)
    graph = gc.Graph.load(model)
    assert [int(dim) for dim in graph.outputs[0].shape] == [*want.shape]
    (result,) = gc.InferenceSession(intra_op_num_threads=1).load(model)(x)
    np.testing.assert_allclose(result, want, rtol=1e-6)


@pytest.mark.numbers
@pytest.mark.parametrize("there", [4, 5, 8])
@pytest.mark.parametrize("step", [4, 6])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", ["Conv", "ConvInteger"])
def test_convolutions_with_gaps_begin_at_the_first_element(
    op: str, mode: str, size: int, step: int, there: int
) -> None:
    model, filters = windows(op, [1, 1, there, there + 1], strides=[step] * 2, auto_pad=mode, kernel_shape=[size] * 2)
    bare = onnx.ModelProto.FromString(model.SerializeToString())
    bare.graph.node[0].attribute.remove(next(a for a in bare.graph.node[0].attribute if a.name == "kernel_shape"))
    x = np.random.default_rng(0).integers(1, 9, (1, 1, there, there + 1))
    x = x.astype(np.uint8 if op == "ConvInteger" else np.float32)
    want = expected(op, mode, x, filters, 1, step)
    for proto in (model, bare):
        (result,) = gc.InferenceSession(intra_op_num_threads=1).load(proto)(x)
        np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize("mode", MODES)
def test_pads_are_counted_when_an_average_counts_them(mode: str) -> None:
    attributes = {"kernel_shape": [2, 2], "dilations": [3, 3], "auto_pad": mode}
    model, filters = windows("AveragePool", [1, 1, 5, 5], count_include_pad=1, **attributes)
    x = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    (result,) = gc.InferenceSession(intra_op_num_threads=1).load(model)(x)
    np.testing.assert_allclose(result, expected("AveragePool", mode, x, filters, 3, 1, counts_pads=1), rtol=1e-6)


@pytest.mark.numbers
@pytest.mark.parametrize(("size", "gap", "step"), [(3, 2, 1), (2, 3, 2), (2, 1, 4), (1, 1, 3)])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", OPERATORS)
def test_windows_of_images_of_any_size(op: str, mode: str, size: int, gap: int, step: int) -> None:
    model, filters = windows(
        op, [1, 1, "h", "w"], kernel_shape=[size] * 2, dilations=[gap] * 2, strides=[step] * 2, auto_pad=mode
    )
    graph = gc.Graph.load(model)
    loaded, file = (
        gc.InferenceSession(intra_op_num_threads=1).load(graph),
        OrtModel(graph.to_onnx().SerializeToString()),
    )
    for there in ((3, 4), (7, 8), (6, 5)):
        x = np.random.default_rng(0).integers(1, 9, (1, 1, *there))
        x = x.astype(np.uint8 if op == "ConvInteger" else np.float32)
        want = expected(op, mode, x, filters, gap, step)
        for item in (*loaded(x), *file(x=x)):
            np.testing.assert_allclose(item, want, rtol=1e-6)


def test_padding_is_the_zero_point_when_only_the_run_knows_the_size() -> None:
    attributes: dict[str, Any] = {"kernel_shape": [2, 2], "dilations": [2, 2], "strides": [2, 2], "auto_pad": MODES[0]}
    model, filters = windows("ConvInteger", [1, 1, "h", "w"], **attributes)
    model.graph.initializer.append(numpy_helper.from_array(np.array(3, np.uint8), "zero"))
    model.graph.node[0].input.append("zero")
    x = np.arange(30, dtype=np.uint8).reshape(1, 1, 5, 6)
    (result,) = gc.InferenceSession(intra_op_num_threads=1).load(model)(x)
    np.testing.assert_array_equal(result, expected("ConvInteger", MODES[0], x.astype(int) - 3, filters, 2, 2))


def test_places_of_maxima_are_refused_when_only_the_run_knows_the_size() -> None:
    attributes: dict[str, Any] = {"kernel_shape": [2, 2], "dilations": [2, 2], "strides": [2, 2], "auto_pad": MODES[0]}
    model, _ = windows("MaxPool", [1, 1, "h", "w"], **attributes)
    model.graph.node[0].output.append("places")
    model.graph.output.append(helper.make_tensor_value_info("places", 7, None))
    with pytest.raises(GraphError, match="pads that are smaller than the window") as caught:
        gc.InferenceSession().load(model)
    assert "with_dims" in caught.value.help
