"""Dims of what windows go over, read from models: convolutions, pools and Fourier transforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import TensorType
from graphcore.errors import ModelError, ShapeError
from tests.onnx.test_reloaded_dims import without_dims_of_outputs
from tests.onnx.test_shape_values import SIZES, check
from tests.onnx.test_slice_shapes import constants
from tests.sampling import drawn


def read(nodes: str, inputs: str) -> gc.Graph:
    """A graph of ONNX's text whose output, y, has no declared shape, not even a rank."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float y) {{ {nodes} }}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return gc.Graph.load(model)


IMAGES = "float[batch, 4, h, w] x"

SHAPED = {
    "convolved": (
        "float[batch, 3, h, w] x, float[8, 3, 3, 3] f", "y = Conv<pads = [1, 1, 1, 1]>(x, f)", "batch, 8, h, w"
    ),
    "convolved in steps": (
        "float[batch, 3, h, w] x, float[8, 3, 3, 3] f", "y = Conv<strides = [2, 2]>(x, f)",
        "batch, 8, (h + 1) // 2 - 1, (w + 1) // 2 - 1",
    ),
    "convolved with the padding of the step": (
        "float[batch, 3, h, w] x, float[8, 3, 3, 3] f",
        'y = Conv<strides = [2, 1], auto_pad = "SAME_UPPER">(x, f)', "batch, 8, (h + 1) // 2, w",
    ),
    "convolved by a filter of any size": (
        "float[batch, 3, h] x, float[n, 3, k] f", "y = Conv(x, f)", "batch, n, h - k + 1"
    ),
    "integers convolved": (
        "uint8[batch, 3, h, w] x, uint8[8, 3, 1, 3] f", "z = ConvInteger(x, f) y = Cast<to = 1>(z)",
        "batch, 8, h, w - 2",
    ),
    "transposed": (
        "float[batch, 3, h, w] x, float[3, 4, 2, 2] f", "y = ConvTranspose<strides = [2, 2], group = 1>(x, f)",
        "batch, 4, 2 * h, 2 * w",
    ),
    "greatest": (
        IMAGES, "y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)", "batch, 4, h // 2, w // 2"
    ),
    "mean of windows that reach beyond": (
        IMAGES, "y = AveragePool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1>(x)",
        "batch, 4, (h + 1) // 2, (w + 1) // 2",
    ),
    "norm": (IMAGES, "y = LpPool<kernel_shape = [1, 3], dilations = [1, 2]>(x)", "batch, 4, h, w - 4"),
    "into blocks": (IMAGES, "y = DepthToSpace<blocksize = 2>(x)", "batch, 1, 2 * h, 2 * w"),
    "half the size": (
        IMAGES,
        "s = Constant<value = float[4] {1.0, 1.0, 0.5, 1.5}>() y = Resize<mode = \"nearest\">(x, , s)",
        "batch, 4, h // 2, w + w // 2",
    ),
    "some axes padded": (
        IMAGES, constants(p=[1, 0, 2, 3], a=[-1, 0]) + " y = Pad(x, p, , a)", "batch + 3, 4, h, w + 3"
    ),
    "two halves": (IMAGES, "a, y = Split<axis = 2, num_outputs = 2>(x)", "batch, 4, h // 2, w"),
    "largest": (
        IMAGES, constants(k=[2]) + " y, i = TopK<axis = 1>(x, k)", "batch, 2, h, w"
    ),
    "rows picked": ("float[batch, h, w] x, int64[n, 2] i", "y = GatherND(x, i)", "n, w"),
    "every axis turned round in steps": (
        IMAGES,
        constants(a=[-1, -1], e=[-(2**63), -(2**63)], ax=[2, 3], st=[-1, -2]) + " y = Slice(x, a, e, ax, st)",
        "batch, 4, h, (w + 1) // 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPED)
def test_dims_are_known_when_windows_go_over_named_dims(name: str) -> None:
    inputs, nodes, wanted = SHAPED[name]
    graph = read(nodes, inputs)
    assert str(graph.outputs[0].type) == f"float32[{wanted}]"
    if all(str(s.type) != "int64[n, 2]" for s in graph.inputs):
        check(graph, *[{"batch": 2, "h": h, "w": w, "n": 5, "k": 2} for h, w in ((7, 6), (8, 9))])


def test_dims_of_a_signals_frames_are_known() -> None:
    nodes = constants(step=[2], length=[8]) + " s = Squeeze(step) l = Squeeze(length) z = STFT(x, s, , l) y = Abs(z)"
    graph = read(nodes, "float[batch, t, 1] x")
    assert str(graph.outputs[0].type) == "float32[batch, t // 2 - 3, 5, 2]"
    check(graph, {"batch": 2, "t": 16}, {"batch": 1, "t": 21})


def test_frames_of_a_signal_have_dims_when_they_are_built() -> None:
    graph = gc.Graph("g", {"x": TensorType("float32", ["b", 64, 1])})
    with graph:
        result = gc.ops.onnx.STFT(graph["x"], np.int64(16), None, np.int64(16))
    assert str(result.type) == "float32[b, 4, 9, 2]"


def test_dims_of_a_loops_results_are_known_when_its_count_is(tmp_path: Path) -> None:
    graph = gc.Graph("g", {"x": TensorType("float32", ["b", 3])})
    with graph:
        _, collected = gc.ops.for_loop(3, lambda i, x: (x * 2.0, x), graph["x"], collect=True)
    graph.output(collected=collected)
    graph.export(tmp_path / "model.onnx")
    loaded = gc.Graph.load(without_dims_of_outputs(tmp_path / "model.onnx"))
    assert str(loaded.output_types["collected"]) == "float32[3, b, 3]"


@settings(max_examples=drawn(60), deadline=None)
@given(st.data())
def test_dims_are_those_of_the_run_when_windows_are_of_any_form(data: Any) -> None:
    count = data.draw(st.integers(1, 2))
    axes = st.lists(st.integers(1, 3), min_size=count, max_size=count)
    kernel, strides, dilations = data.draw(axes), data.draw(axes), data.draw(axes)
    op_type = data.draw(st.sampled_from(["Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"]))
    padding = data.draw(st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if padding.startswith("SAME"):
        dilations, strides = [1] * count, [min(pair) for pair in zip(kernel, strides, strict=True)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    if padding == "NOTSET":
        reach = [min(2, k - 1) for k in kernel] * 2
        attributes["pads"] = [data.draw(st.integers(0, most)) for most in reach]
    else:
        attributes["auto_pad"] = padding
    is_pool = op_type.endswith("Pool")
    if is_pool and padding == "NOTSET":
        attributes["ceil_mode"] = data.draw(st.integers(0, 1))
    inputs = ["x"] if is_pool else ["x", "f"]
    names = ["h", "w"][:count]
    node = onnx.helper.make_node(op_type, inputs, ["y"], **attributes)
    filters = np.ones([2, 2, *kernel], np.float32)
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            [node],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, ["batch", 2, *names])],
            [onnx.helper.make_tensor_value_info("y", 1, None)],
            [] if is_pool else [onnx.numpy_helper.from_array(filters, "f")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 21)],
        ir_version=10,
    )
    graph = gc.Graph.load(proto)
    type_ = graph.outputs[0].type
    is_known = not type_.shape.is_dynamic
    assert is_known or (op_type == "ConvTranspose" and padding.startswith("SAME"))
    check(graph, {"batch": 2, "h": data.draw(st.integers(9, 14)), "w": data.draw(st.integers(9, 14))})


def test_sizes_of_other_models_are_those_of_their_runs() -> None:
    """A stack as vision models have it: the dims that one operator gives are those that the next one takes."""
    nodes = """ a = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, f) b = Relu(a)
        c = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(b) y = Add(c, c) """
    graph = read(nodes, "float[batch, 3, seq, 16] x, float[4, 3, 3, 3] f")
    assert str(graph.outputs[0].type) == "float32[batch, 4, (seq + 3) // 4, 4]"
    check(graph, *SIZES)


@pytest.mark.parametrize("attribute", ["", "strides = [2]", "pads = [0, 0]", "dilations = [1, 1, 1]"])
def test_blocks_and_steps_have_the_axes_of_the_image(attribute: str) -> None:
    block = "{2, 2}" if attribute else "{4}"
    nodes = (
        f"i = Constant<value = int64[2] {{4, 4}}>() b = Constant<value = int64[{len(block) // 3}] {block}>() "
        f"y = Col2Im<{attribute}>(x, i, b)"
    )
    with pytest.raises(ModelError, match="different numbers of axes"):
        read(nodes.replace("<>", ""), "float[1, 4, 4] x")


def test_vectorized_features_have_equally_many_rows() -> None:
    text = """<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]>
        g (float[{}, 2] x, float[{}, 1] z) => (float[] y)
        {{ y = ai.onnx.ml.FeatureVectorizer<inputdimensions = [2, 1]>(x, z) }}"""

    def load(*parts: str) -> gc.Graph:
        model = onnx.parser.parse_model(text.format(*parts))
        model.graph.output[0].type.tensor_type.ClearField("shape")
        return gc.Graph.load(model)

    assert str(load("n", "n").outputs[0].type) == "float32[n, 3]"
    with pytest.raises(ModelError, match="different numbers of rows"):
        load("2", "3")


@pytest.mark.parametrize("place", ["input", "inner", "body"])
def test_dims_of_minus_one_are_unknown(place: str, tmp_path: Path) -> None:
    sized = "y = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(x)"
    branches = "then_branch = g () => (float[-1, 8, -1, -1] a) {{ a = {} }}, else_branch = h () => (b) {{ b = {} }}"
    body = f"y = If(c) <{branches.format(sized[4:], 'Identity(x)')}>"
    text = {
        "input": f"(float[-1, 8, -1, -1] x) => (float[-1, 8, -1, -1] z) {{ {sized} z = Relu(y) }}",
        "inner": f"(float[n, 8, h, w] x) => (float[n, 8, k, l] z) <float[-1, 8, -1, -1] y> {{ {sized} z = Relu(y) }}",
        "body": f"(float[-1, 8, -1, -1] x, bool c) => (float[-1, 8, -1, -1] z) {{ {body} z = Relu(y) }}",
    }[place]
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    if place != "inner":
        assert any(dim.dim_value < 0 for dim in model.graph.input[0].type.tensor_type.shape.dim)
    graph = gc.Graph.load(model)
    types = [type_ for node in graph.nodes for output in node.outputs for type_ in [output.type]]
    assert not any(dim.is_static and int(dim) < 1 for type_ in types for dim in type_.shape), types
    z = graph.outputs[0]
    if place != "inner":  # half of a size of which nothing is known is refused, not all of it taken
        with pytest.raises(ShapeError, match="cannot be an unknown dim"):
            z[:, :, : z.shape[2] // 2]
    graph.export(tmp_path / "m.onnx")
    x = np.arange(2 * 8 * 8 * 8, dtype=np.float32).reshape(2, 8, 8, 8)
    (result,) = gc.InferenceSession().load(tmp_path / "m.onnx")(x, *[np.array(True)] * (place == "body"))
    np.testing.assert_array_equal(result, x.reshape(2, 8, 4, 2, 4, 2).max((3, 5)))
