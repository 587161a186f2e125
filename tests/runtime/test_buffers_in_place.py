"""Calls of a state whose buffers are written in place, which stay bound from one call to the next."""

from __future__ import annotations

import gc as collector
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Buffer, DType, Graph, Model, TensorType, ops
from graphcore.errors import RunError
from tests.support.graphs import Array

pytestmark = pytest.mark.releases

D = DType


def rows() -> Model:
    """Write rows into a buffer and return all of it and how many rows came: read back, the outputs are other memory."""
    types = {"at": TensorType(D.int64, ["n", 1]), "x": TensorType(D.float32, ["n", 2])}
    graph = Graph("rows", types | {"b": Buffer(D.float32, [6, 2], in_place=True), "by": Buffer(D.float32, initial=1)})
    stored = ops.scatter_nd(graph["b"], graph["x"], graph["at"])
    ops.buffer_store(graph.buffers["b"], stored)
    graph.output(now=stored * graph["by"], count=ops.shape_of(graph["x"])[0])
    model = gc.InferenceSession(intra_op_num_threads=1).load(graph)
    assert model.buffers.in_place == ("b",)
    return model


MODEL = rows()


def fed(at: list[int], value: float) -> tuple[Array, Array]:
    return np.array(at, np.int64)[:, None], np.full((len(at), 2), value, np.float32)


STEPS = st.lists(
    st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True), st.integers(-9, 9), st.integers(0, 5)),
    max_size=12,
)


@pytest.mark.numbers
@given(STEPS)
def test_calls_of_any_shapes_give_what_numpy_does_and_leave_what_earlier_ones_gave(steps: Any) -> None:
    state, other = MODEL.state(), MODEL.state()
    want, by = np.zeros((6, 2), np.float32), 1.0
    given_before: list[tuple[Array, Array]] = []
    for number, (at, value, kind) in enumerate(steps):
        if kind == 1:
            state.buffers["b"] = want = np.full((6, 2), number, np.float32)
        elif kind == 2:
            state.buffers.reset("b")
            want = np.zeros((6, 2), np.float32)
        elif kind == 3:
            by = float(number)
            state.buffers["by"] = np.array(by, np.float32)
        elif kind == 4:
            state = state.copy()
        elif kind == 5:
            other(*fed([0, 1, 2, 3, 4, 5], 100))
        arrays = fed(at, value)
        now, count = state(*arrays)
        want = want.copy()
        want[at] = value
        for array in arrays:
            array[...] = 0  # no call looks at what an earlier one was given
        given_before.append((now, want * np.float32(by)))
        assert count == len(at)
        np.testing.assert_array_equal(state.buffers["b"], want)
    for got, wanted in given_before:
        np.testing.assert_array_equal(got, wanted)


def test_arrays_that_are_filled_anew_are_read_anew() -> None:
    state = MODEL.state()
    at, x = fed([0], 1)
    for turn in range(4):
        at[...], x[...] = turn, turn + 5
        now, _ = state(at, x)
        assert now[turn].tolist() == [turn + 5] * 2


def test_outputs_outlive_the_state() -> None:
    state = MODEL.state()
    state(*fed([0], 1))
    now, _ = state(*fed([1], 2))
    del state
    collector.collect()
    for value in range(3):
        MODEL.state()(*fed([2], value))
    assert now[:2].tolist() == [[1, 1], [2, 2]]


def test_call_that_fails_between_others_is_forgotten_when_the_buffer_is_set() -> None:
    state = MODEL.state()
    state(*fed([0], 1))
    state(*fed([1], 1))
    with pytest.raises(RunError):
        state(*fed([99], 3))
    with pytest.raises(RunError, match="in place"):
        state(*fed([1], 3))
    state.buffers["b"] = np.ones((6, 2), np.float32)
    now, _ = state(*fed([2], 7))
    assert now[:, 0].tolist() == [1, 1, 7, 1, 1, 1]


def test_state_that_is_dropped_is_freed() -> None:
    state = MODEL.state()
    for _ in range(3):
        state(*fed([0], 1))
    watched = weakref.ref(state)
    del state
    assert watched() is None
