"""Recurrent networks in float64 and with the batch first, for which there are no kernels, against loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(9)
STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 2, 5
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LENGTHS = np.array([4, 1, 3], np.int32)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def cell(
    op: str, x: Array, h: Array, c: Array, w: Array, r: Array, b: Array, p: Array, options: dict[str, Any]
) -> tuple[Array, Array]:
    """One step, by the formulas of ONNX."""
    bound = options.get("clip", np.inf)

    def active(function: Callable[[Array], Array], value: Array) -> Array:
        return function(np.clip(value, -bound, bound))

    count = GATES[op]
    ws, rs = w.reshape(count, HIDDEN, -1), r.reshape(count, HIDDEN, HIDDEN)
    bw, br = b[: count * HIDDEN].reshape(count, -1), b[count * HIDDEN :].reshape(count, -1)
    both = [x @ ws[i].T + bw[i] + h @ rs[i].T + br[i] for i in range(count)]
    if op == "RNN":
        return active(np.tanh, both[0]), c
    if op == "GRU":
        update, reset = active(sigmoid, both[0]), active(sigmoid, both[1])
        if options.get("linear_before_reset"):
            remaining = reset * (h @ rs[2].T + br[2])
        else:
            remaining = (reset * h) @ rs[2].T + br[2]
        fresh = active(np.tanh, x @ ws[2].T + bw[2] + remaining)
        return (1 - update) * fresh + update * h, c
    peeps = p.reshape(3, HIDDEN)
    taken = active(sigmoid, both[0] + peeps[0] * c)
    remaining = 1 - taken if options.get("input_forget") else active(sigmoid, both[2] + peeps[2] * c)
    memory = remaining * c + taken * active(np.tanh, both[3])
    return active(sigmoid, both[1] + peeps[1] * memory) * np.tanh(memory), memory


def run_through(
    op: str, x: Array, weights: tuple[Array, ...], h: Array, c: Array, options: dict[str, Any]
) -> tuple[Array, Array, Array]:
    direction = options.get("direction", "forward")
    ways = ["forward", "reverse"] if direction == "bidirectional" else [direction]
    array = np.zeros((STEPS, len(ways), BATCH, HIDDEN))
    last, memory = h.copy(), c.copy()
    for way, n in itertools.product(range(len(ways)), range(BATCH)):
        order = range(LENGTHS[n]) if ways[way] == "forward" else reversed(range(LENGTHS[n]))
        for step in order:
            w, r, b, p = (s[way] for s in weights)
            last[way, n], memory[way, n] = cell(op, x[step, n], last[way, n], memory[way, n], w, r, b, p, options)
            array[step, way, n] = last[way, n]
    return array, last, memory


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *[(op, {"direction": way}) for op in GATES for way in ("forward", "reverse", "bidirectional")],
    *[(op, {"clip": 0.5}) for op in GATES],
    ("GRU", {"linear_before_reset": 1}),
    ("LSTM", {"input_forget": 1}),
]


@pytest.mark.parametrize(("op", "options"), OPTIONS)
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_recurrent_networks_are_those_of_loops_in_both_layouts(
    dtype: Any, layout: int, op: str, options: dict[str, Any]
) -> None:
    ways, count = 2 if options.get("direction") == "bidirectional" else 1, GATES[op]
    shapes = [(ways, count * HIDDEN, INPUTS), (ways, count * HIDDEN, HIDDEN), (ways, 2 * count * HIDDEN)]
    w, r, b = (RNG.standard_normal(s).astype(dtype) for s in shapes)
    p = RNG.standard_normal((ways, 3 * HIDDEN)).astype(dtype)
    x = RNG.standard_normal((STEPS, BATCH, INPUTS)).astype(dtype)
    h, c = (RNG.standard_normal((ways, BATCH, HIDDEN)).astype(dtype) for _ in range(2))
    doubles = [np.asarray(s, np.float64) for s in (x, w, r, b, p, h, c)]
    expected: list[Array] = list(run_through(op, doubles[0], tuple(doubles[1:5]), doubles[5], doubles[6], options))
    fed: Array = x
    axes: list[Any] = [STEPS, "n", INPUTS]
    starts = [h, c]
    ends: list[list[Any]] = [[STEPS, ways, "n", HIDDEN], [ways, "n", HIDDEN], [ways, "n", HIDDEN]]
    if layout:
        fed, axes = x.swapaxes(0, 1), ["n", STEPS, INPUTS]
        starts = [s.swapaxes(0, 1) for s in starts]
        ends = [["n", STEPS, ways, HIDDEN], ["n", ways, HIDDEN], ["n", ways, HIDDEN]]
        expected = [expected[0].transpose(2, 0, 1, 3), *(e.swapaxes(0, 1) for e in expected[1:])]
    own = DType.of(np.dtype(dtype))
    graph = Graph("test", {"x": TensorType(own, axes)})
    items: list[Any] = [graph["x"], w, r, b, LENGTHS, np.ascontiguousarray(starts[0])]
    results = 2
    if op == "LSTM":
        items += [np.ascontiguousarray(starts[1]), p]
        results = 3
    attributes = {"hidden_size": HIDDEN, "layout": layout, **options}
    graph.output(*graph.op(op, items, attributes, [TensorType(own, e) for e in ends[:results]]))
    output = gc.InferenceSession().load(graph)(np.ascontiguousarray(fed))
    near = 1e-12 if dtype is np.float64 else 1e-5
    for result, right in zip(output, expected, strict=False):
        np.testing.assert_allclose(result, right, rtol=near, atol=near)
