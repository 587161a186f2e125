"""Scans of third-party models along any axis of empty operands, which end the process in onnxruntime itself."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import onnx
import pytest
from onnx import helper

import graphcore as gc
from graphcore.errors import RunError
from graphcore.runtime.lowering import lower
from tests.support.onnx_models import FLOAT, model, value

pytestmark = pytest.mark.releases

SHAPES = ((0, 3), (3, 0), (0, 0), (2, 0, 3), (2, 3, 0), (0, 2, 3), (2, 3))
PLACES = [(shape, axis, end) for shape in SHAPES for axis in range(len(shape)) for end in range(len(shape))]


def scan(
    shape: tuple[int, ...], axis: int, end: int, *, is_static: bool, has_state: bool = False, reverse: bool = False
) -> onnx.ModelProto:
    """Return a model that negates the slices along an axis, and puts them together along another."""
    dims: list[int | str] = list(shape) if is_static else [f"d{i}" for i in range(len(shape))]
    item = [d for i, d in enumerate(dims) if i != axis % len(shape)]
    state = [value("s", FLOAT, [2])] if has_state else []
    after = [value("t", FLOAT, [2])] if has_state else []
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    nodes += [helper.make_node("Neg", ["s"], ["t"])] if has_state else []
    body = helper.make_graph(nodes, "body", [*state, value("x", FLOAT, item)], [*after, value("y", FLOAT, item)])
    node = helper.make_node(
        "Scan", ["s0", "xs"] if has_state else ["xs"], ["last", "ys"] if has_state else ["ys"], body=body,
        num_scan_inputs=1, scan_input_axes=[axis], scan_output_axes=[end], scan_input_directions=[int(reverse)],
        scan_output_directions=[int(reverse)],
    )  # fmt: skip
    inputs = [value("s0", FLOAT, [2])] if has_state else []
    outputs = [value("last", FLOAT, [2])] if has_state else []
    return model([node], [*inputs, value("xs", FLOAT, dims)], [*outputs, value("ys", FLOAT, None)], [], opset=17)


@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize(("shape", "axis", "end"), PLACES)
def test_slices_are_put_together_along_any_axis_when_there_are_no_elements(
    shape: tuple[int, ...], axis: int, end: int, is_static: bool
) -> None:
    xs = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for negative, has_state, reverse in itertools.product((False, True), repeat=3):
        places = (axis - len(shape), end - len(shape)) if negative else (axis, end)
        proto = scan(shape, *places, is_static=is_static, has_state=has_state, reverse=reverse)
        loaded = gc.InferenceSession(intra_op_num_threads=1).load(proto)
        feeds = {"xs": xs} | ({"s0": np.ones(2, np.float32)} if has_state else {})
        with contextlib.suppress(*([] if shape[axis] else [RunError])):  # of no turns there may be no results
            results = loaded(**feeds)
            np.testing.assert_array_equal(results[-1], np.moveaxis(-xs, axis, end))
            if has_state:
                np.testing.assert_array_equal(results[0], np.full(2, (-1.0) ** shape[axis]))


def test_slices_are_put_together_when_the_body_says_too_much_of_its_result() -> None:
    inside = [helper.make_node("NonZero", ["x"], ["y"])]
    body = helper.make_graph(inside, "body", [value("x", FLOAT, [3])], [value("y", onnx.TensorProto.INT64, [1, 3])])
    node = helper.make_node("Scan", ["xs"], ["ys"], body=body, num_scan_inputs=1, scan_output_axes=[1])
    ys = value("ys", onnx.TensorProto.INT64, None)
    loaded = gc.InferenceSession().load(model([node], [value("xs", FLOAT, [2, 3])], [ys], [], opset=17))
    (result,) = loaded(np.zeros((2, 3), np.float32))
    assert result.shape == (1, 2, 0)


def test_axes_are_left_to_the_kernel_when_there_are_elements() -> None:
    plain = lower(gc.Graph.load(scan((2, 3), 1, 1, is_static=True)), "cpu")
    assert [node.op_type for node in plain.nodes] == ["Scan"]
    moved = lower(gc.Graph.load(scan((2, 3), 1, 1, is_static=False)), "cpu")
    assert [node.op_type for node in moved.nodes] == ["Transpose", "Scan", "Transpose"]
