"""Recurrent networks of no sequences or no steps, which end the process in onnxruntime itself."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import graphcore as gc
from tests.support.onnx_models import FLOAT, model, value

pytestmark = pytest.mark.releases

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
HIDDEN, FEATURES = 2, 3


def network(op: str, dims: list[int | str], *, first: bool, direction: str) -> gc.runtime.Model:
    rng = np.random.default_rng(0)
    directions = 2 if direction == "bidirectional" else 1
    w = rng.standard_normal((directions, GATES[op] * HIDDEN, FEATURES)).astype(np.float32)
    r = rng.standard_normal((directions, GATES[op] * HIDDEN, HIDDEN)).astype(np.float32)
    results = ["y", "h", "c"][: 3 if op == "LSTM" else 2]
    inputs = [value("x", FLOAT, dims)]
    operands = ["x", "w", "r"]
    if first:
        inputs.append(value("h0", FLOAT, [directions, dims[1], HIDDEN]))
        operands += ["", "", "h0"]
    node = helper.make_node(op, operands, results, hidden_size=HIDDEN, direction=direction)
    constants = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(r, "r")]
    proto = model([node], inputs, [value(n, FLOAT, None) for n in results], constants, opset=22)
    return gc.InferenceSession().load(proto)


@pytest.mark.numbers
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize(("steps", "sequences"), [(0, 2), (3, 0), (0, 0)])
@pytest.mark.parametrize("first", [False, True], ids=["from zero", "from h0"])
@pytest.mark.parametrize("op", GATES)
def test_results_are_empty_when_there_is_nothing_to_go_through(
    op: str, first: bool, steps: int, sequences: int, is_static: bool, direction: str
) -> None:
    directions = 2 if direction == "bidirectional" else 1
    dims: list[int | str] = [steps, sequences, FEATURES] if is_static else ["steps", "sequences", FEATURES]
    network_ = network(op, dims, first=first, direction=direction)
    feeds = {"x": np.ones((steps, sequences, FEATURES), np.float32)}
    if first:
        feeds["h0"] = np.full((directions, sequences, HIDDEN), 0.25, np.float32)
    y, h, *cells = network_(**feeds)
    assert y.shape == (steps, directions, sequences, HIDDEN)
    assert h.shape == (directions, sequences, HIDDEN)
    if sequences:
        np.testing.assert_array_equal(h, feeds["h0"] if first else np.zeros_like(h))
        for c in cells:
            np.testing.assert_array_equal(c, np.zeros_like(h))


@pytest.mark.numbers
@pytest.mark.parametrize("first", [False, True], ids=["from zero", "from h0"])
@pytest.mark.parametrize("op", GATES)
def test_results_are_those_of_known_sizes_when_sizes_are_not_known(op: str, first: bool) -> None:
    rng = np.random.default_rng(1)
    feeds = {"x": rng.standard_normal((3, 2, FEATURES)).astype(np.float32)}
    if first:
        feeds["h0"] = rng.standard_normal((1, 2, HIDDEN)).astype(np.float32)
    expected = network(op, [3, 2, FEATURES], first=first, direction="forward")(**feeds)
    unknown = network(op, ["steps", "sequences", FEATURES], first=first, direction="forward")(**feeds)
    for a, b in zip(expected, unknown, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("argument", ["constant", "named", "unranked"])
def test_results_are_those_of_the_states_when_there_are_no_features(op: str, argument: str) -> None:
    rng = np.random.default_rng(2)
    rows = GATES[op] * HIDDEN
    feeds = {"x": np.zeros((3, 2, 0), np.float32), "w": np.zeros((1, rows, 0), np.float32)}
    results = {"r": rng.standard_normal((1, rows, HIDDEN)), "b": rng.standard_normal((1, 2 * rows))}
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in results.items()]
    node = helper.make_node(op, ["x", "w", "r", "b"], ["y"], hidden_size=HIDDEN)
    features = 0 if argument == "constant" else "k"
    inputs = [value("x", FLOAT, None if argument == "unranked" else ["t", "n", features])]
    if argument == "constant":
        constants.append(numpy_helper.from_array(feeds.pop("w"), "w"))
    else:
        inputs.append(value("w", FLOAT, None if argument == "unranked" else [1, rows, "k"]))
    proto = model([node], inputs, [value("y", FLOAT, None)], constants, opset=22)
    (got,) = gc.InferenceSession().load(proto)(**feeds)
    inputs = [value("x", FLOAT, ["t", "n", 1]), value("w", FLOAT, [1, rows, 1])]
    proto = model([node], inputs, [value("y", FLOAT, None)], constants[:2], opset=22)
    zeros = {"x": np.zeros((3, 2, 1), np.float32), "w": np.zeros((1, rows, 1), np.float32)}
    np.testing.assert_array_equal(got, gc.InferenceSession().load(proto)(**zeros)[0])
    assert got.any()


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 0, 3), (0, 0, 3)])
def test_results_are_empty_when_the_model_does_not_tell_the_rank(op: str, shape: tuple[int, ...]) -> None:
    rows = GATES[op] * HIDDEN
    results = {"w": np.ones((1, rows, FEATURES), np.float32), "r": np.ones((1, rows, HIDDEN), np.float32)}
    node = helper.make_node(op, ["x", "w", "r"], ["y"], hidden_size=HIDDEN)
    constants = [numpy_helper.from_array(array, name) for name, array in results.items()]
    proto = model([node], [value("x", FLOAT, None)], [value("y", FLOAT, None)], constants, opset=22)
    loaded = gc.InferenceSession().load(proto)
    assert loaded(np.ones(shape, np.float32))[0].shape == (shape[0], 1, shape[1], HIDDEN)
    for other in ((3,), (0,), (2, 3), (2, 1, 1, 3), ()):
        with pytest.raises(gc.GraphcoreError):
            loaded(np.ones(other, np.float32))
