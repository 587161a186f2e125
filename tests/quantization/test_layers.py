"""Recurrent layers, convolutions and weights of bytes in files, beside NumPy's arithmetic on the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore import Graph
from graphcore.errors import GraphError
from graphcore.ir.symbol import present
from graphcore.runtime.quantizer.layers import convolutions
from graphcore.runtime.quantizer.layers import recurrent as quantized

Array = np.ndarray[Any, Any]
SESSION = gc.InferenceSession(intra_op_num_threads=1)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model(nodes: list[onnx.NodeProto], x: list[int | str], results: list[str], **arrays: Array | None) -> Graph:
    """A third-party model that takes x."""
    items = [numpy_helper.from_array(array, name) for name, array in arrays.items() if array is not None]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    value = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)]
    graph = helper.make_graph(nodes, "read", value, outputs, items)
    return Graph.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


def run(graph: Graph, *arrays: Array) -> list[Array]:
    return SESSION.load(graph)(*arrays)


def distance(result: Array, exact: Array) -> float:
    return float(np.linalg.norm(result.astype(np.float64) - exact) / np.linalg.norm(exact.astype(np.float64)))


def rounded(x: Array) -> tuple[Array, Any]:
    """What DynamicQuantizeLinear makes of x: numbers less their zero point, and their scale."""
    least, most = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32((most - least) / np.float32(255))
    zero = np.clip(np.rint(-least / scale), 0, 255)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero).astype(np.float32), scale


def in_bytes(weight: Array) -> tuple[Array, Array]:
    """The rows of a matrix in int8, each with its scale."""
    scale = np.abs(weight).max(1) / np.float32(127)
    return np.rint(weight / scale[:, None]).astype(np.float32), scale


def sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


# LSTM

INPUTS, HIDDEN = 24, 16


def lstm(directions: int, *, seed: int = 0, **attributes: Any) -> tuple[Graph, Array, Array, Array]:
    w = normal(directions, 4 * HIDDEN, INPUTS, seed=seed) / 5
    r = normal(directions, 4 * HIDDEN, HIDDEN, seed=seed + 1) / 5
    b = normal(directions, 8 * HIDDEN, seed=seed + 2) / 4
    direction = {"direction": "bidirectional"} if directions == 2 else {}
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], "lstm", hidden_size=HIDDEN, **direction, **attributes
    )
    return model([node], ["length", "batch", INPUTS], ["y", "h", "c"], w=w, r=r, b=b), w, r, b


def one_way(x: Array, w: Array, r: Array, b: Array) -> tuple[Array, Array, Array]:
    """An LSTM of one direction on bytes: x rounded as one tensor, what goes from step to step at each step."""
    (wide, steps), (back, strides) = in_bytes(w), in_bytes(r)
    length, batch, _ = x.shape
    numbers, scale = rounded(x)
    before = (numbers @ wide.T) * (scale * steps) + b[: 4 * HIDDEN] + b[4 * HIDDEN :]
    h = c = np.zeros((batch, HIDDEN), np.float32)
    results = []
    for step in range(length):
        gates = before[step]
        if h.any():
            own, size = rounded(h)
            gates = gates + (own @ back.T) * (size * strides)
        i, o, f, g = np.split(gates, 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        results.append(h)
    return np.stack(results), h, c


@pytest.mark.parametrize(("length", "batch"), [(1, 1), (1, 4), (9, 1)])
def test_lstm_is_that_of_bytes(length: int, batch: int) -> None:
    graph, w, r, b = lstm(1)
    result, report = gc.quantize(graph, "int8_dynamic")
    x = normal(length, batch, INPUTS, seed=7)
    y, h, c = run(result, x)
    want, last, cell = one_way(x, w[0], r[0], b[0])
    np.testing.assert_allclose(y[:, 0], want, atol=2e-6)
    np.testing.assert_allclose(h[0], last, atol=2e-6)
    np.testing.assert_allclose(c[0], cell, atol=2e-6)
    (row,) = report.rows
    assert (row.operator, row.scheme, row.before) == ("LSTM", "int8_dynamic", w.nbytes + r.nbytes)
    assert row.after < row.before / 3
    off = [in_bytes(a[0])[0] * in_bytes(a[0])[1][:, None] - a[0] for a in (w, r)]
    exact = np.sqrt(sum(np.square(a).sum() for a in off) / sum(np.square(a).sum() for a in (w, r)))
    assert row.error == pytest.approx(exact, rel=1e-3)


def test_lstm_of_two_directions_is_near_that_of_floats() -> None:
    graph, *_ = lstm(2)
    result, report = gc.quantize(graph, "int8_dynamic")
    x = normal(12, 3, INPUTS, seed=7)
    for got, want in zip(run(result, x), run(graph, x), strict=True):
        assert distance(got, want) < 0.02
    assert [*result.output_types.items()] == [*graph.output_types.items()]
    assert "w" not in result.weights
    assert not report.left


def test_lstm_gives_nan_for_sequences_that_have_it() -> None:
    output, _ = gc.quantize(lstm(1)[0], "int8_dynamic")
    x = normal(5, 3, INPUTS, seed=7)
    x[2, 1, 4] = np.nan
    y, h, c = run(output, x)
    for result in (y[:, 0], h, c):
        assert np.isnan(result[:, 1]).all()


@pytest.mark.parametrize("scheme", ["int8", "int8_dynamic16", "int8_split", "int4"])
def test_lstm_stays_under_other_schemes(scheme: str) -> None:
    graph, *_ = lstm(1)
    result, report = gc.quantize(graph, scheme)
    (row,) = report.rows
    assert row.reason == f"{scheme} does not quantise LSTM: int8_dynamic does"
    assert [node.op_type for node in result.nodes] == ["LSTM"]
    assert (row.before, row.after) == (row.before, row.before)


def test_lstm_whose_weights_are_computed_is_found_once_they_are_folded() -> None:
    _, w, r, b = lstm(1)
    nodes = [
        helper.make_node("Neg", ["r"], ["s"]),
        helper.make_node("LSTM", ["x", "w", "s", "b"], ["y"], hidden_size=HIDDEN),
    ]
    graph = model(nodes, ["length", "batch", INPUTS], ["y"], w=w, r=r, b=b)
    (row,) = gc.quantize(graph).report.left
    assert "its weight W or R is computed: call graph.optimize() first" in row.reason
    assert len(gc.quantize(graph.optimize()).report.quantized) == 1


# GRU and RNN


@pytest.fixture
def pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small layers are quantised too."""
    monkeypatch.setattr(quantized, "LEAST", {"GRU": 0, "RNN": 0})


def recurrent(
    op_type: str, directions: int = 1, *, bias: bool = True, first: bool = False, **attributes: Any
) -> tuple[Graph, dict[str, Array]]:
    gates = quantized.GATES[op_type]
    arrays = {"w": normal(directions, gates * HIDDEN, INPUTS) / 5, "r": normal(directions, gates * HIDDEN, HIDDEN) / 5}
    if bias:
        arrays["b"] = normal(directions, 2 * gates * HIDDEN, seed=2) / 4
    if first:
        arrays["f"] = np.repeat(normal(directions, 1, HIDDEN, seed=3), 3, 1)
    if directions == 2:
        attributes["direction"] = "bidirectional"
    operands = ["x", "w", "r", "b" if bias else "", "", "f"][: 6 if first else 4]
    node = helper.make_node(op_type, operands, ["y", "h"], op_type, hidden_size=HIDDEN, **attributes)
    return model([node], ["length", "batch", INPUTS], ["y", "h"], **arrays), arrays


def in_steps(x: Array, op_type: str, w: Array, r: Array, b: Array, resets_last: bool) -> list[Array]:
    """What a GRU or RNN of one direction gives after each step, on bytes."""

    def product(states: Array, weight: Array) -> Array:
        if not states.any():
            return np.zeros((len(states), len(weight)), np.float32)
        (numbers, scale), (rows, widths) = rounded(states), in_bytes(weight)
        result: Array = (numbers @ rows.T) * (scale * widths)
        return result

    own, theirs = np.split(b, 2)
    flat = product(x.reshape(-1, INPUTS), w).reshape(*x.shape[:2], -1) + own
    h, n, result = np.zeros((x.shape[1], HIDDEN), np.float32), 2 * HIDDEN, []
    for mine in flat:
        if op_type == "RNN":
            h = np.tanh(mine + product(h, r) + theirs)
        else:
            z, g = np.split(sigmoid(mine[:, :n] + product(h, r[:n]) + theirs[:n]), 2, 1)
            remaining = g * (product(h, r[n:]) + theirs[n:]) if resets_last else product(g * h, r[n:]) + theirs[n:]
            fresh = np.tanh(mine[:, n:] + remaining)
            h = (1 - z) * fresh + z * h
        h = h.astype(np.float32)
        result.append(h)
    return result


FORMS = [("RNN", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1})]


@pytest.mark.usefixtures("pays")
@pytest.mark.parametrize(("op_type", "attributes"), FORMS)
def test_gru_and_rnn_are_those_of_bytes(op_type: str, attributes: dict[str, Any]) -> None:
    graph, arrays = recurrent(op_type, **attributes)
    result, report = gc.quantize(graph, min_elements=1)
    x = normal(7, 3, INPUTS, seed=7)
    w, r, b = (array[0] for array in arrays.values())
    want = in_steps(x, op_type, w, r, b, bool(attributes))
    y, h = run(result, x)
    # A number that lies between two bytes may be rounded to the other one where sums differ by a last bit.
    np.testing.assert_allclose(y[:, 0], np.stack(want), atol=1e-4)
    np.testing.assert_allclose(h[0], want[-1], atol=1e-4)
    (row,) = report.rows
    before = arrays["w"].nbytes + arrays["r"].nbytes
    assert (row.operator, row.scheme, row.before) == (op_type, "int8_dynamic", before)
    assert row.after < row.before / 3
    off = [in_bytes(a[0])[0] * in_bytes(a[0])[1][:, None] - a[0] for a in (arrays["w"], arrays["r"])]
    whole = sum(np.square(a).sum() for a in (arrays["w"], arrays["r"]))
    assert row.error == pytest.approx(np.sqrt(sum(np.square(a).sum() for a in off) / whole), rel=1e-3)


@pytest.mark.usefixtures("pays")
@pytest.mark.parametrize(("op_type", "attributes"), FORMS)
@pytest.mark.parametrize("ways", [{}, {"direction": "reverse"}, {"directions": 2}, {"bias": False}, {"first": True}])
def test_gru_and_rnn_are_near_those_of_floats(op_type: str, attributes: dict[str, Any], ways: dict[str, Any]) -> None:
    graph, _ = recurrent(op_type, **attributes, **ways)
    result, report = gc.quantize(graph, min_elements=1)
    assert not report.left
    assert op_type not in {node.op_type for node in result.nodes}
    assert [*result.output_types.items()] == [*graph.output_types.items()]
    assert not {"w", "r", "b"} & {*result.weights}
    for length in (1, 12):
        x = normal(length, 3, INPUTS, seed=7)
        for got, want in zip(run(result, x), run(graph, x), strict=True):
            assert got.shape == want.shape
            assert distance(got, want) < 0.025


@pytest.mark.usefixtures("pays")
@pytest.mark.parametrize(("op_type", "attributes"), FORMS)
def test_gru_and_rnn_give_nan_for_nan_and_infinity_and_nothing_for_nothing(
    op_type: str, attributes: dict[str, Any]
) -> None:
    output = SESSION.load(gc.quantize(recurrent(op_type, **attributes)[0], min_elements=1).graph)
    for wrong in (np.nan, np.inf, -np.inf):
        x = normal(5, 3, INPUTS, seed=7)
        x[2, 1, 4] = wrong
        for result in output(x):
            assert np.isnan(result).all()
    y, h = output(np.zeros((0, 3, INPUTS), np.float32))
    assert (y.shape, h.shape) == ((0, 1, 3, HIDDEN), (1, 3, HIDDEN))
    assert not h.any()


def test_only_the_last_state_of_a_gru_is_asked_for() -> None:
    w, r = normal(1, 960, 320) / 20, normal(1, 960, 320, seed=1) / 20
    node = helper.make_node("GRU", ["x", "w", "r"], ["", "h"], hidden_size=320)
    graph = model([node], ["length", "batch", 320], ["h"], w=w, r=r)
    result, report = gc.quantize(graph, min_elements=1)
    assert not report.left
    x = normal(6, 2, 320)
    assert distance(run(result, x)[0], run(graph, x)[0]) < 0.025


@pytest.mark.usefixtures("pays")
@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        (
            {"activations": ["Sigmoid", "Relu"]},
            "it has activations Sigmoid, Relu; GRU is quantised with the default ones only",
        ),
        ({"clip": 2.0}, "it has clip=2; GRU is quantised without clip only"),
        ({"layout": 1}, "it has layout=1; GRU is quantised with layout=0 only"),
    ],
)
def test_gru_of_another_kind_stays_and_says_why(attributes: dict[str, Any], reason: str) -> None:
    if "layout" in attributes:
        node = helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=HIDDEN, **attributes)
        w, r = normal(1, 3 * HIDDEN, INPUTS), normal(1, 3 * HIDDEN, HIDDEN)
        graph = model([node], ["batch", "length", INPUTS], ["y"], w=w, r=r)
    else:
        graph, _ = recurrent("GRU", **attributes)
    result, report = gc.quantize(graph, min_elements=1)
    assert [row.reason for row in report.left] == [reason]
    assert [node.op_type for node in result.nodes] == ["GRU"]
    with pytest.raises(GraphError, match="cannot be quantised"):
        gc.quantize(graph, strict=True)


def test_small_gru_and_rnn_stay_and_say_why() -> None:
    for op_type in ("GRU", "RNN"):
        graph, _ = recurrent(op_type)
        _, report = gc.quantize(graph, min_elements=1, strict=True)
        (row,) = report.left
        least = quantized.LEAST[op_type]
        assert row.reason == f"int8 would be slower: elements of W and R times rows of the batch are fewer than {least}"


# Convolutions


def convolution(
    *, groups: int = 1, norm: bool = False, relu: bool = False, bias: bool = True
) -> tuple[Graph, Array, Array | None]:
    filters = normal(32, 16 // groups, 3, 3) / 6
    added = normal(32, seed=1) if bias else None
    operands = ["x", "w", "b"] if bias else ["x", "w"]
    nodes = [helper.make_node("Conv", operands, ["conv"], pads=[1] * 4, group=groups)]
    arrays: dict[str, Array] = {}
    if norm:
        nodes.append(helper.make_node("BatchNormalization", [nodes[-1].output[0], *"smuv"], ["norm"]))
        arrays = {n: normal(32, seed=i) for i, n in enumerate("smu", 3)} | {"v": np.abs(normal(32, seed=9)) + 1}
    if relu:
        nodes.append(helper.make_node("Relu", [nodes[-1].output[0]], ["relu"]))
    return model(nodes, ["n", 16, 12, 10], [nodes[-1].output[0]], w=filters, b=added, **arrays), filters, added


def calibrated(least: float, most: float) -> tuple[Any, Any]:
    least, most = min(least, 0), max(most, 0)
    scale = (np.float32(most) - np.float32(least)) / np.float32(255)
    return scale, np.clip(np.rint(np.float32(-least) / scale), 0, 255)


def conv2d(x: Array, w: Array) -> Array:
    """A convolution of stride 1 with a border of 1, in float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    result: Array = np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.float64))
    return result


def test_convolution_is_that_of_bytes() -> None:
    graph, filters, bias = convolution()
    assert bias is not None
    samples = [normal(2, 16, 12, 10, seed=seed) for seed in (3, 4)]
    result, report = gc.quantize(graph, "int8_dynamic", samples=[{"x": x} for x in samples])
    exact = np.concatenate([run(graph, x)[0] for x in samples])
    step, zero = calibrated(min(x.min() for x in samples), max(x.max() for x in samples))
    out, point = calibrated(exact.min(), exact.max())
    x = normal(1, 16, 12, 10, seed=5)
    numbers = np.clip(np.rint(x / step) + zero, 0, 255) - zero
    flat, scales = in_bytes(filters.reshape(32, -1))
    steps = scales * step
    total = conv2d(numbers, flat.reshape(filters.shape)) + np.rint(bias / steps)[:, None, None]
    real = total * steps[:, None, None].astype(np.float64)
    want = (np.clip(np.rint(real / out) + point, 0, 255) - point) * out
    (got,) = run(result, x)
    assert np.abs(got - want).max() <= out * 1.001  # a number halfway goes up or down
    assert (np.abs(got - want) > out / 2).mean() < 0.002
    (row,) = report.rows
    assert (row.scheme, row.reason) == ("int8_static", "")
    assert row.error == pytest.approx(distance(flat * scales[:, None], filters.reshape(32, -1)), rel=1e-3)
    assert row.after < row.before / 3


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_convolution_is_near_that_of_floats(groups: int, norm: bool, relu: bool) -> None:
    graph, *_ = convolution(groups=groups, norm=norm, relu=relu, bias=not norm)
    x = normal(2, 16, 12, 10, seed=3)
    result, report = gc.quantize(graph, samples=[(x,)], min_elements=1)
    assert len(report.quantized) == 1
    operators = {node.op_type for node in result.nodes}
    assert operators == {"QuantizeLinear", "DequantizeLinear", "Conv"}
    got, want = run(result, x)[0], run(graph, x)[0]
    assert distance(got, want) < 0.02
    assert got.min() >= 0 or not relu
    assert [*result.output_types.items()] == [*graph.output_types.items()]


def test_convolutions_in_a_row_share_their_bytes() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4), helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["b"], pads=[1] * 4),
        helper.make_node("Conv", ["r", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]  # fmt: skip
    graph = model(nodes, ["n", 16, 9, 9], ["y"], w=normal(16, 16, 3, 3) / 12, v=normal(16, 16, 3, 3, seed=1) / 12)
    x = normal(2, 16, 9, 9, seed=3)
    result, report = gc.quantize(graph, samples=[(x,)])
    assert [row.scheme for row in report] == ["int8_static"] * 3
    assert [node.op_type for node in result.nodes].count("QuantizeLinear") == 4  # x, r, b and c
    assert distance(run(result, x)[0], run(graph, x)[0]) < 0.02


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("last", ["Conv", "Sigmoid"])
def test_sums_before_a_convolution_are_of_bytes(relu: bool, last: str) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4), helper.make_node("Add", ["a", "x"], ["s"])]
    if relu:
        nodes.append(helper.make_node("Relu", ["s"], ["r"]))
    operands = [nodes[-1].output[0], *["v"] * (last == "Conv")]
    attributes: dict[str, Any] = {"pads": [1] * 4} if last == "Conv" else {}
    nodes.append(helper.make_node(last, operands, ["y"], **attributes))
    graph = model(nodes, ["n", 16, 9, 9], ["y"], w=normal(16, 16, 3, 3) / 12, v=normal(16, 16, 3, 3, seed=1) / 12)
    x = normal(2, 16, 9, 9, seed=3)
    result, _ = gc.quantize(graph, samples=[(x,)])
    (add,) = [node for node in result.nodes if node.op_type == "Add"]
    before = [getattr(present(symbol).producer, "op_type", "") for symbol in add.inputs]
    after = [node.op_type for node in result.nodes if any(s is add.outputs[0] for s in node.inputs)]
    is_in_bytes = before == ["DequantizeLinear"] * 2 and after == ["QuantizeLinear"]
    assert is_in_bytes == (last == "Conv")
    assert ("Relu" in {node.op_type for node in result.nodes}) == (relu and last != "Conv")
    got, want = run(result, x)[0], run(graph, x)[0]
    assert distance(got, want) < 0.02


def test_bias_that_is_shared_by_identity_is_constant() -> None:
    nodes = [
        helper.make_node("Identity", ["b"], ["shared"]),
        helper.make_node("Conv", ["x", "w", "shared"], ["y"], pads=[1] * 4),
    ]
    graph = model(nodes, ["n", 16, 9, 9], ["y"], w=normal(16, 16, 3, 3) / 12, b=normal(16, seed=1))
    x = normal(2, 16, 9, 9, seed=3)
    result, report = gc.quantize(graph, samples=[(x,)])
    assert [row.scheme for row in report] == ["int8_static"]
    assert distance(run(result, x)[0], run(graph, x)[0]) < 0.02


def test_convolutions_without_samples_and_of_other_kinds_say_why() -> None:
    graph, *_ = convolution()
    assert [row.reason for row in gc.quantize(graph).report.left] == [
        "the ranges of its input and output are unknown: give samples, which measure them"
    ]
    assert [row.reason for row in gc.quantize(graph, "int8").report.left] == [
        "int8 does not quantise convolutions: int8_dynamic with samples does"
    ]


TRANSPOSED: dict[str, tuple[list[int], dict[str, Any]]] = {
    "phases that meet nothing else": ([2, 2], {"strides": [2, 2]}),
    "phases that overlap": ([4, 4], {"strides": [2, 2], "pads": [1] * 4}),
    "sizes that no stride divides": ([3, 3], {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
    "padding of one side": ([3, 5], {"strides": [3, 3], "pads": [0, 0, 0, 2]}),
    "no stride": ([3, 3], {"pads": [1] * 4}),
    "fewer numbers than phases": ([2, 2], {"strides": [3, 3], "output_padding": [1, 1]}),
    "one axis": ([16], {"strides": [8], "pads": [4, 4]}),
    "one axis, no stride": ([5], {"pads": [2, 2]}),
}


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_convolution_is_near_that_of_floats(case: str, norm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "LEAST", 0)
    size, attributes = TRANSPOSED[case]
    filters = normal(16, 8, *size) / 6
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["up"], **attributes)]
    arrays = {"w": filters, "b": normal(8, seed=1)}
    if norm:
        nodes.append(helper.make_node("BatchNormalization", ["up", "s", "t", "m", "v"], ["norm"]))
        arrays |= {
            "s": normal(8, seed=2),
            "t": normal(8, seed=3),
            "m": normal(8, seed=4),
            "v": normal(8, seed=5) ** 2 + 1,
        }
    nodes.append(helper.make_node("Relu", [nodes[-1].output[0]], ["y"]))
    graph = model(nodes, ["n", 16, *["height", "width"][: len(size)]], ["y"], **arrays)
    x = normal(2, 16, *[9, 7][: len(size)], seed=3)
    result, report = gc.quantize(graph, samples=[(x,)], min_elements=1)
    (row,) = report.rows
    assert (row.operator, row.scheme, row.reason) == ("ConvTranspose", "int8_static", "")
    assert not {"ConvTranspose", "BatchNormalization", "Relu"} & {node.op_type for node in result.nodes}
    got, want = run(result, x)[0], run(graph, x)[0]
    assert got.shape == want.shape
    assert distance(got, want) < 0.025
    assert [*result.output_types.items()] == [*graph.output_types.items()]


@pytest.mark.parametrize(
    ("shape", "attributes", "reason"),
    [
        ((16, 16, 2, 2), {"strides": [2, 2]}, "int8 would be slower: each result is a sum of fewer than 64 products"),
        ((64, 8, 3, 3), {}, "its output is not 1 times as long as its input, as the stride is"),
        ((64, 8, 3, 3), {"group": 2}, "it has group=2; transposed convolutions without groups are quantised"),
        ((64, 8, 2, 2), {"strides": [2, 2], "output_shape": [12, 10]}, "it has auto_pad or output_shape"),
        ((64, 8, 2, 2), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, "it has auto_pad or output_shape"),
        ((64, 8, 3, 3), {"dilations": [2, 2]}, "it has dilations, or strides that differ"),
        ((64, 8, 4, 2), {"strides": [4, 2]}, "it has dilations, or strides that differ"),
        ((64, 8, 2, 2, 2), {"strides": [2, 2, 2]}, "it has 3 spatial axes"),
    ],
)
def test_transposed_convolution_of_another_kind_stays_and_says_why(
    shape: tuple[int, ...], attributes: dict[str, Any], reason: str
) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    sizes = [6, 5, 4][: len(shape) - 2]
    graph = model([node], ["n", shape[0], *sizes], ["y"], w=normal(*shape))
    samples = [(normal(1, shape[0], *sizes),)]
    result, report = gc.quantize(graph, samples=samples)
    (row,) = report.left
    assert row.reason.startswith(reason)
    assert [node.op_type for node in result.nodes] == ["ConvTranspose"]
    if "products" in reason:
        gc.quantize(graph, samples=samples, strict=True)
    else:
        with pytest.raises(GraphError, match="ConvTranspose 'y' cannot be quantised"):
            gc.quantize(graph, samples=samples, strict=True)


def test_samples_that_lead_to_infinity_are_refused() -> None:
    graph, *_ = convolution()
    with pytest.raises(GraphError, match="a sample makes a value NaN or infinite, which has no range"):
        gc.quantize(graph, samples=[(np.full((1, 16, 12, 10), np.inf, np.float32),)])


def test_products_and_convolutions_are_reported_in_order() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "m"], ["a"]), helper.make_node("Conv", ["a", "w"], ["b"], pads=[1] * 4),
        helper.make_node("MatMul", ["b", "n"], ["y"]),
    ]  # fmt: skip
    graph = model(nodes, [2, 16, 12, 64], ["y"], m=normal(64, 32), w=normal(16, 16, 3, 3), n=normal(32, 64))
    x = normal(2, 16, 12, 64)
    result, report = gc.quantize(graph, samples=[(x,)])
    assert [(row.operator, row.scheme) for row in report] == [
        ("MatMul", "int8_dynamic"), ("Conv", "int8_static"), ("MatMul", "int8_dynamic"),
    ]  # fmt: skip
    assert distance(run(result, x)[0], run(graph, x)[0]) < 0.04
    _, report = gc.quantize(graph, samples=[(x,)], exclude="b")
    assert [row.reason for row in report] == ["", "excluded by 'b'", ""]


# Weights that files hold in bytes


@pytest.mark.parametrize("form", ["cast and mul", "cast, sub and mul", "dequantize", "dequantize by axis"])
def test_weights_of_bytes_are_found(form: str) -> None:
    random = np.random.default_rng(0)
    numbers = random.integers(-127, 128, (64, 48)).astype(np.int8)
    scale = (random.random(48) + 0.5).astype(np.float32) / 64
    zero = np.zeros(48, np.float32)
    arrays: dict[str, Array] = {"q": numbers, "s": scale}
    if form.startswith("cast"):
        nodes = [helper.make_node("Cast", ["q"], ["f"], to=1)]
        if "sub" in form:
            zero = random.integers(-9, 9, 48).astype(np.float32)
            arrays["z"] = zero
            nodes.append(helper.make_node("Sub", ["f", "z"], ["d"]))
        nodes.append(helper.make_node("Mul", [nodes[-1].output[0], "s"], ["w"]))
    elif form == "dequantize":
        arrays["s"] = scale = scale[:1].reshape(())
        nodes = [helper.make_node("DequantizeLinear", ["q", "s"], ["w"])]
    else:
        arrays["z"] = random.integers(-9, 9, 48).astype(np.int8)
        zero = arrays["z"].astype(np.float32)
        nodes = [helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1)]
    nodes.append(helper.make_node("MatMul", ["x", "w"], ["y"]))
    graph = model(nodes, ["n", 64], ["y"], **arrays)
    result, report = gc.quantize(graph, "int8_dynamic")
    (row,) = report.rows
    assert (row.weight, row.scheme) == ("q", "int8_dynamic")
    x = normal(5, 64)
    weight = (numbers.astype(np.float32) - zero) * scale
    flat, scales = in_bytes(weight.T)
    own, step = rounded(x)
    np.testing.assert_allclose(run(result, x)[0], (own @ flat.T) * (step * scales), rtol=2e-6, atol=1e-5)
    assert row.error == pytest.approx(distance((flat * scales[:, None]).T, weight), abs=1e-4)
    assert not {"f", "d", "w"} & {symbol.name for symbol in result.symbols}


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
def test_constant_stays_before_a_weight_of_bytes(op: str) -> None:
    random = np.random.default_rng(0)
    numbers = random.integers(-127, 128, (64, 48)).astype(np.int8)
    offset = random.integers(20, 90, 48).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["q"], ["f"], to=1), helper.make_node(op, ["z", "f"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]  # fmt: skip
    result, _ = gc.quantize(model(nodes, ["n", 64], ["y"], q=numbers, z=offset), "int8_dynamic")
    x = normal(5, 64)
    weight = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract}[op](offset, numbers.astype(np.float32))
    assert distance(run(result, x)[0], x @ weight) < 0.02


def test_what_computes_with_bytes_already_stays() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "u"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s", "u"], ["b"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"]), helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]  # fmt: skip
    graph = model(nodes, ["n", 64], ["y"], q=np.ones((64, 48), np.int8), s=np.array(0.1, np.float32),
                  u=np.array(128, np.uint8))  # fmt: skip
    assert not gc.quantize(graph).report.rows
