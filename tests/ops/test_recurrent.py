"""Recurrent layers, against loops over steps in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.runtime.lowering import lower
from tests.support.graphs import Array

pytestmark = pytest.mark.releases

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
STEPS, BATCH, FEATURES, HIDDEN = 5, 3, 2, 4


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def lstm_step(x: Array, h: Array, c: Array, w: Array, r: Array, b: Array, rb: Array) -> tuple[Array, Array]:
    i, f, g, o = np.split(x @ w.T + b + h @ r.T + rb, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_step(x: Array, h: Array, c: Array, w: Array, r: Array, b: Array, rb: Array) -> tuple[Array, Array]:
    mine, theirs = np.split(x @ w.T + b, 3, axis=1), np.split(h @ r.T + rb, 3, axis=1)
    reset, update = sigmoid(mine[0] + theirs[0]), sigmoid(mine[1] + theirs[1])
    new = np.tanh(mine[2] + reset * theirs[2])
    return (1 - update) * new + update * h, c


def rnn_step(x: Array, h: Array, c: Array, w: Array, r: Array, b: Array, rb: Array) -> tuple[Array, Array]:
    return np.tanh(x @ w.T + b + h @ r.T + rb), c


STEP: dict[str, Callable[..., tuple[Array, Array]]] = {"lstm": lstm_step, "gru": gru_step, "rnn": rnn_step}


def over_steps(
    name: str, x: Array, weights: list[Array], h: Array, c: Array, lengths: Array, *, backward: bool
) -> tuple[Array, Array, Array]:
    """One direction, sequence by sequence: x: [steps, batch, features]."""
    y = np.zeros((len(x), x.shape[1], h.shape[1]))
    last_h, last_c = h.copy(), c.copy()
    for b in range(x.shape[1]):
        there = range(lengths[b])
        hidden, memory = h[b : b + 1], c[b : b + 1]
        for step in reversed(there) if backward else there:
            hidden, memory = STEP[name](x[step, b : b + 1], hidden, memory, *weights)
            y[step, b] = hidden
        last_h[b], last_c[b] = hidden, memory
    return y, last_h, last_c


def layer(
    name: str, x: Array, weights: list[Array], h: Array, c: Array, lengths: Array, direction: str
) -> tuple[Array, ...]:
    """The results of ops.<name>, in float64."""
    if direction != "bidirectional":
        result = over_steps(name, x, weights, h, c, lengths, backward=direction == "reverse")
        return result if name == "lstm" else result[:2]
    both = [over_steps(name, x, [w[i] for w in weights], h[i], c[i], lengths, backward=i == 1) for i in (0, 1)]
    y = np.concatenate([both[0][0], both[1][0]], axis=-1)
    states = [np.stack([both[0][i], both[1][i]]) for i in (1, 2)]
    return (y, *states) if name == "lstm" else (y, states[0])


def operands(name: str, direction: str, seed: int = 1) -> tuple[Array, list[Array], Array, Array]:
    rng = np.random.default_rng(seed)
    rows = GATES[name] * HIDDEN
    front = (2,) if direction == "bidirectional" else ()
    shapes = [(rows, FEATURES), (rows, HIDDEN), (rows,), (rows,)]
    weights = [rng.normal(size=(*front, *shape)) for shape in shapes]
    h, c = (rng.normal(size=(*front, BATCH, HIDDEN)) for _ in range(2))
    return rng.normal(size=(STEPS, BATCH, FEATURES)), weights, h, c


def model(
    name: str, arrays: dict[str, Array], dims: dict[str, Any], dtype: DType = DType.float32, **options: Any
) -> tuple[Graph, list[Array]]:
    types = {}
    for role, array in arrays.items():
        shape: Any = dims.get(role, array.shape)
        types[role] = TensorType(DType.int64 if role == "lengths" else dtype, shape)
    graph = Graph(name, types)
    output = getattr(ops, name)(**{role: graph[role] for role in arrays}, **options)
    graph.output(*output)
    feeds = [a.astype(np.int64 if role == "lengths" else dtype.numpy) for role, a in arrays.items()]
    results = gc.InferenceSession().load(graph)(*feeds)
    for symbol, result in zip(output, results, strict=True):
        assert symbol.dtype is dtype
        assert symbol.rank == result.ndim
    return graph, list(results)


def named(name: str, direction: str, *, state: bool, lengths: bool) -> tuple[dict[str, Array], tuple[Array, ...]]:
    """Operands by role, and what is wanted of them."""
    x, weights, h, c = operands(name, direction)
    arrays = {"x": x, **dict(zip(("weight", "recurrent_weight", "bias", "recurrent_bias"), weights, strict=True))}
    ends = np.array([5, 2, 0]) if lengths else np.full(BATCH, STEPS)
    if state:
        arrays["initial_h"] = h
        if name == "lstm":
            arrays["initial_c"] = c
    else:
        h, c = np.zeros_like(h), np.zeros_like(c)
    if lengths:
        arrays["lengths"] = ends
    return arrays, layer(name, x, weights, h, c, ends, direction)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("lengths", [False, True])
def test_layer_gives_the_steps_of_its_definition(name: str, direction: str, lengths: bool) -> None:
    for state in (False, True):
        arrays, want = named(name, direction, state=state, lengths=lengths)
        dims: dict[str, Any] = {"x": ["steps", "batch", FEATURES]}
        dims |= {role: ["batch"] for role in ("lengths",) if lengths}
        front = [2] if direction == "bidirectional" else []
        dims |= {role: [*front, "batch", HIDDEN] for role in ("initial_h", "initial_c")}
        _, got = model(name, arrays, dims, direction=direction)
        for result, wanted in zip(got, want, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("name", GATES)
def test_layer_takes_the_batch_first(name: str, direction: str) -> None:
    arrays, want = named(name, direction, state=True, lengths=False)
    arrays["x"] = arrays["x"].swapaxes(0, 1)
    dims: dict[str, Any] = {"x": ["batch", "steps", FEATURES]}
    dims |= {role: [*arrays[role].shape[:-2], "batch", HIDDEN] for role in ("initial_h", "initial_c") if role in arrays}
    graph, got = model(name, arrays, dims, direction=direction, batch_first=True)
    y, h = graph.outputs[0], graph.outputs[1]
    assert y.shape == ["batch", "steps", HIDDEN * (2 if direction == "bidirectional" else 1)]
    assert h.shape[-2:] == ["batch", HIDDEN]
    np.testing.assert_allclose(got[0], want[0].swapaxes(0, 1), rtol=1e-4, atol=1e-5)
    for result, wanted in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16, DType.float64], ids=str)
@pytest.mark.parametrize("name", GATES)
def test_layer_runs_when_of_any_float(name: str, dtype: DType) -> None:
    arrays, want = named(name, "bidirectional", state=True, lengths=True)
    _, got = model(name, arrays, {}, dtype, direction="bidirectional")
    near = {DType.float16: 2e-2, DType.bfloat16: 2e-1, DType.float64: 1e-12}[dtype]
    for result, wanted in zip(got, want, strict=True):
        np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=near, atol=near)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("lengths", [False, True])
def test_layer_of_float64_takes_steps_that_the_run_knows(name: str, direction: str, lengths: bool) -> None:
    for state in (False, True):
        arrays, want = named(name, direction, state=state, lengths=lengths)
        graph, got = model(name, arrays, {"x": ["steps", BATCH, FEATURES]}, DType.float64, direction=direction)
        for result, wanted in zip(got, want, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-12)
        targets: list[Any] = ["onnx", "cuda", "openvino"]
        for target in targets:
            assert "RecurrentSteps" not in {node.op_type for node in lower(graph, target).nodes}


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("size", [(0, BATCH), (STEPS, 0)])
def test_layer_of_float64_gives_initial_states_when_nothing_is_read(name: str, size: tuple[int, int]) -> None:
    x, weights, h, c = operands(name, "forward")
    roles = dict(zip(("weight", "recurrent_weight", "bias", "recurrent_bias"), weights, strict=True))
    steps, batch = size
    roles |= {"initial_h": h[:batch], "initial_c": c[:batch]} if name == "lstm" else {"initial_h": h[:batch]}
    dims: dict[str, Any] = {role: ["batch", HIDDEN] for role in ("initial_h", "initial_c")}
    dims["x"] = ["steps", "batch", FEATURES]
    _, got = model(name, {"x": x[:steps, :batch], **roles}, dims, DType.float64)
    assert got[0].shape == (steps, batch, HIDDEN)
    np.testing.assert_array_equal(got[1], h[:batch] if not steps else got[1])
    assert got[1].shape == (batch, HIDDEN)


@pytest.mark.parametrize(("name", "order"), [("lstm", "iofg"), ("gru", "zrn")])
@pytest.mark.parametrize("constant", [False, True])
def test_gates_of_weights_come_in_any_order(name: str, order: str, constant: bool) -> None:
    arrays, want = named(name, "forward", state=False, lengths=False)
    expected = {"lstm": "ifgo", "gru": "rzn"}[name]
    for role in ("weight", "recurrent_weight", "bias", "recurrent_bias"):
        parts = np.split(arrays[role], len(expected))
        arrays[role] = np.concatenate([parts[expected.index(gate)] for gate in order]).astype(np.float32)
    if not constant:
        _, got = model(name, arrays, {}, gates=order)
    else:
        graph = Graph("constant", {"x": TensorType(DType.float32, ["steps", "batch", FEATURES])})
        results = {role: array for role, array in arrays.items() if role != "x"}
        graph.output(*getattr(ops, name)(graph["x"], **results, gates=order))
        assert {node.op_type for node in graph.nodes} <= {name.upper(), "Squeeze", "Concat"}  # nothing is reordered
        got = list(gc.InferenceSession().load(graph)(arrays["x"].astype(np.float32)))
    for result, wanted in zip(got, want, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_weights_of_pytorch_are_reordered_when_constant() -> None:
    arrays, want = named("lstm", "forward", state=False, lengths=False)
    graph = Graph("constant", {"x": TensorType(DType.float32, ["steps", "batch", FEATURES])})
    results: dict[str, Any] = {role: array.astype(np.float32) for role, array in arrays.items() if role != "x"}
    graph.output(*ops.lstm(graph["x"], **results))
    assert "Split" not in {node.op_type for node in graph.nodes}
    got = gc.InferenceSession().load(graph)(arrays["x"].astype(np.float32))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("left_out", ["bias", "recurrent_bias"])
def test_one_bias_does_without_the_other(left_out: str) -> None:
    x, weights, h, c = operands("gru", "forward")
    weights[2 if left_out == "bias" else 3][:] = 0
    roles = dict(zip(("weight", "recurrent_weight", "bias", "recurrent_bias"), weights, strict=True))
    del roles[left_out]
    _, got = model("gru", {"x": x, **roles}, {})
    want = layer("gru", x, weights, np.zeros_like(h), c, np.full(BATCH, STEPS), "forward")
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)


def test_gru_resets_before_the_product_when_asked_to() -> None:
    x, weights, h, _ = operands("gru", "forward")
    roles = dict(zip(("weight", "recurrent_weight", "bias", "recurrent_bias"), weights, strict=True))
    _, got = model("gru", {"x": x[:1], **roles, "initial_h": h}, {}, reset_after=False)
    dims: dict[str, Any] = {"x": ["steps", BATCH, FEATURES]}
    _, double = model("gru", {"x": x[:1], **roles, "initial_h": h}, dims, DType.float64, reset_after=False)
    np.testing.assert_allclose(got[1], double[1], rtol=1e-4, atol=1e-5)
    w, r, b, rb = (np.split(array, 3) for array in weights)
    reset, update = (sigmoid(x[0] @ w[i].T + b[i] + h @ r[i].T + rb[i]) for i in (0, 1))
    new = np.tanh(x[0] @ w[2].T + b[2] + (reset * h) @ r[2].T + rb[2])
    np.testing.assert_allclose(got[1], (1 - update) * new + update * h, rtol=1e-4, atol=1e-5)


def test_rnn_rectifies_when_asked_to() -> None:
    x, weights, h, _ = operands("rnn", "forward")
    roles = dict(zip(("weight", "recurrent_weight", "bias", "recurrent_bias"), weights, strict=True))
    _, got = model("rnn", {"x": x[:1], **roles, "initial_h": h}, {}, activation="relu")
    dims: dict[str, Any] = {"x": ["steps", BATCH, FEATURES]}
    _, double = model("rnn", {"x": x[:1], **roles, "initial_h": h}, dims, DType.float64, activation="relu")
    np.testing.assert_allclose(got[1], double[1], rtol=1e-4, atol=1e-5)
    w, r, b, rb = weights
    np.testing.assert_allclose(got[1], np.maximum(x[0] @ w.T + b + h @ r.T + rb, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("size", [(0, BATCH), (STEPS, 0)])
def test_layer_gives_initial_states_when_nothing_is_read(name: str, size: tuple[int, int]) -> None:
    x, weights, h, c = operands(name, "forward")
    roles = dict(zip(("weight", "recurrent_weight", "bias", "recurrent_bias"), weights, strict=True))
    steps, batch = size
    states = {"initial_h": h[:batch], "initial_c": c[:batch]} if name == "lstm" else {"initial_h": h[:batch]}
    dims = {"x": ["steps", "batch", FEATURES]} | {role: ["batch", HIDDEN] for role in states}
    _, got = model(name, {"x": x[:steps, :batch], **roles, **states}, dims)
    assert got[0].shape == (steps, batch, HIDDEN)
    if not steps:
        np.testing.assert_array_equal(got[1], h.astype(np.float32))


@pytest.mark.parametrize("target", ["onnx", "cuda", "openvino"])
@pytest.mark.parametrize("name", GATES)
def test_layer_is_lowered_when_for_another_target(name: str, target: Any) -> None:
    arrays, _ = named(name, "bidirectional", state=True, lengths=True)
    graph, _ = model(name, arrays, {}, direction="bidirectional")
    assert name.upper() in {node.op_type for node in lower(graph, target).nodes}


def symbols(**shapes: list[Any]) -> dict[str, Any]:
    graph = Graph("bad", {role: TensorType(DType.float32, shape) for role, shape in shapes.items()})
    return {role: graph[role] for role in shapes}


GOOD: dict[str, list[Any]] = {"x": ["s", "b", 2], "weight": [16, 2], "recurrent_weight": [16, 4]}


@pytest.mark.parametrize(
    ("shapes", "options", "words"),
    [
        ({"x": ["b", 2]}, {}, r"x must have rank 3, got 2[\s\S]*\[steps, batch, features\]"),
        ({"x": ["b", 2]}, {"batch_first": True}, r"\[batch, steps, features\]"),
        ({"x": ["s", "b", 3]}, {}, r"weight must have shape \[16, 3\], got \[16, 2\]"),
        ({"recurrent_weight": [16, 5]}, {}, r"must have shape \[20, 2\]"),
        ({"recurrent_weight": [16, "h"]}, {}, "the hidden size must be static"),
        ({"bias": [15]}, {}, r"bias must have shape \[16\], got \[15\]"),
        ({"initial_h": ["b", 3]}, {}, r"initial_h must have shape \[b, 4\], got \[b, 3\]"),
        ({}, {"direction": "bidirectional"}, r"must have shape \[2, 16, 2\], got[\s\S]*one for each direction"),
        ({}, {"direction": "backward"}, "direction='backward' is not known"),
        ({}, {"gates": "ifco"}, "gates='ifco' is not an order"),
        ({}, {"lengths": np.array([[1]])}, r"lengths must have shape \[b\]"),
    ],
)
def test_layer_says_what_is_wrong(shapes: dict[str, list[Any]], options: dict[str, Any], words: str) -> None:
    with pytest.raises((GraphError, ShapeError), match=words):
        ops.lstm(**symbols(**{**GOOD, **shapes}), **options)


def test_layer_refuses_lengths_that_are_not_integers() -> None:
    with pytest.raises(DTypeError, match="lengths must have an integer dtype, got float64"):
        ops.lstm(**symbols(**GOOD), lengths=np.array([1.0]))
