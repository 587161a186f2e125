"""Slots: rows of the buffers of a Model in one memory, of which calls run any range."""

from __future__ import annotations

import mmap
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Buffer, DType, Graph, Model, TensorType, ops
from graphcore.errors import FeedError, ModelError, ResourceLimitError, RunError
from graphcore.runtime.ort import memory

pytestmark = pytest.mark.releases

D = DType
SIZE, ROWS = 6, 4


def written(in_place: bool, size: int = SIZE) -> Graph:
    """Write x to a place of each row, and return the row."""
    buffer = Buffer(D.float32, ["batch", size], in_place=in_place)
    graph = Graph("written", {"x": TensorType(D.float32, ["batch"]), "at": TensorType(D.int64, []), "row": buffer})
    x, at = graph["x"], graph["at"]
    number = ops.range(0, ops.shape_of(x)[0], dtype=D.int64, out_dim="batch")
    places = ops.stack([number, number * 0 + at], axis=1)
    graph["row"] = ops.scatter_nd(graph["row"], x, places)
    graph.output(graph["row"] * 2)
    return graph


def load(graph: Graph) -> Model:
    return gc.InferenceSession().load(graph)


@pytest.mark.skipif(not hasattr(mmap, "MADV_NOHUGEPAGE"), reason="the system has no large pages")
def test_memory_of_buffers_is_mapped_by_small_pages_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is taken page by page, where rows are written to."""
    advice: list[tuple[int, int]] = []

    class Pages(mmap.mmap):
        """Memory that cannot be written to."""

        def __new__(cls, handle: int, size: int, flags: int) -> Pages:
            return super().__new__(cls, handle, size, flags=flags, prot=mmap.PROT_READ)

        def madvise(self, option: int, start: int = 0, length: int | None = None) -> None:
            advice.append((len(self), option))

    size = 1 << 22
    model = load(written(True, size))
    monkeypatch.setattr(memory, "mmap", SimpleNamespace(**vars(mmap) | {"mmap": Pages}))
    rows = model.slots(ROWS).arrays["row"]
    assert advice == [(ROWS * size * 4, mmap.MADV_NOHUGEPAGE)]
    assert (rows.shape, rows.flags.writeable) == ((ROWS, size), False)


@pytest.mark.parametrize("in_place", [False, True])
@given(calls=st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(1, ROWS), st.integers(0, SIZE - 1)), max_size=10))
def test_call_on_a_range_reads_and_writes_its_rows_alone(in_place: bool, calls: list[tuple[int, int, int]]) -> None:
    model = load(written(in_place))
    assert (model.buffers.in_place == ("row",)) is in_place
    slots, want = model.slots(ROWS), np.zeros((ROWS, SIZE), np.float32)
    for number, (start, count, at) in enumerate(calls):
        stop = min(start + count, ROWS)
        x = np.arange(start, stop, dtype=np.float32) + 10 * number
        want[start:stop, at] = x
        (got,) = slots.run(start, stop, x, np.array(at))
        np.testing.assert_array_equal(got, want[start:stop] * 2)
    np.testing.assert_array_equal(slots.arrays["row"], want)


@pytest.mark.parametrize("in_place", [False, True])
def test_rows_are_moved_through_the_memory(in_place: bool) -> None:
    slots = load(written(in_place)).slots(ROWS)
    slots.run(1, 2, np.array([3.0], np.float32), np.array(2))
    rows = slots.arrays["row"]
    rows[0] = rows[1]
    (got,) = slots.run(0, 1, np.array([5.0], np.float32), np.array(4))
    np.testing.assert_array_equal(got, [[0, 0, 6, 0, 10, 0]])
    np.testing.assert_array_equal(slots.arrays["row"][:2], [[0, 0, 3, 0, 5, 0], [0, 0, 3, 0, 0, 0]])


@pytest.mark.parametrize("in_place", [False, True])
def test_call_that_fails_touches_no_other_row(in_place: bool) -> None:
    slots = load(written(in_place)).slots(ROWS)
    one = np.ones(1, np.float32)
    for row in range(ROWS):
        slots.run(row, row + 1, one, np.array(1))
    with pytest.raises(RunError):
        slots.run(1, 3, np.ones(2, np.float32), np.array(SIZE))
    np.testing.assert_array_equal(slots.arrays["row"][[0, 3]], [[0, 1, 0, 0, 0, 0]] * 2)
    np.testing.assert_array_equal(slots.run(1, 2, one, np.array(0))[0], [[2, 2, 0, 0, 0, 0]])


def test_slots_are_beside_the_model() -> None:
    model = load(written(True))
    slots = model.slots(2)
    assert len(slots) == 2
    assert repr(slots) == "<Slots of written: 2 rows>"
    slots.run(0, 2, np.ones(2, np.float32), np.array(0))
    (got,) = model(np.ones(2, np.float32), np.array(3))
    np.testing.assert_array_equal(got, [[0, 0, 0, 2, 0, 0]] * 2)
    assert model.slots(1).arrays["row"].sum() == 0


def test_buffers_of_any_dtype_and_initial_value_have_rows() -> None:
    types: dict[str, Any] = {
        "count": Buffer(D.int64, ["batch"], initial=7), "word": Buffer(D.string, ["batch"], initial="-"),
        "half": Buffer(D.bfloat16, ["batch", 2]), "x": TensorType(D.int64, ["batch"]),
    }  # fmt: skip
    graph = Graph("mixed", types)
    graph["count"] += graph["x"]
    graph["half"] += 1
    graph.output(graph["count"] * 1, graph["word"])
    slots = load(graph).slots(3)
    slots.run(1, 3, np.array([1, 2]))
    count, word = slots.run(0, 2, np.array([10, 20]))
    assert (count.tolist(), word.tolist()) == ([17, 28], ["-", "-"])
    assert slots.arrays["count"].tolist() == [17, 28, 9]
    assert slots.arrays["half"].astype(np.float32).tolist() == [[1, 1], [2, 2], [1, 1]]


# Refusals


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2", None], ids=repr)
def test_count_is_a_whole_number(count: Any) -> None:
    with pytest.raises(FeedError, match="count="):
        load(written(True)).slots(count)


@pytest.mark.parametrize("rows", [(0, 0), (2, 1), (-1, 2), (0, ROWS + 1)], ids=repr)
def test_ranges_that_are_empty_or_outside_are_refused(rows: tuple[int, int]) -> None:
    slots = load(written(True)).slots(ROWS)
    with pytest.raises(FeedError, match=f"rows {rows[0]} to {rows[1]} of {ROWS}"):
        slots.run(*rows, np.ones(1, np.float32), np.array(0))


def test_feeds_of_other_numbers_of_rows_are_refused() -> None:
    slots = load(written(True)).slots(ROWS)
    for count in (1, 3):
        with pytest.raises(FeedError, match="batch"):
            slots.run(0, 2, np.ones(count, np.float32), np.array(0))


def test_models_without_rows_are_refused() -> None:
    graph = Graph("plain", {"x": TensorType(D.float32, [3])})
    graph.output(graph["x"] * 2)
    with pytest.raises(ModelError, match="plain has no buffers"):
        load(graph).slots(2)
    shapes: list[tuple[Any, Any]] = [([3], ["batch"]), ([], ["batch"]), (["n"], ["m"]), (["n", "t"], ["n", 2])]
    for one, other in shapes:
        graph = Graph("odd", {"a": Buffer(D.float32, one), "b": Buffer(D.float32, other)})
        graph["a"] += 1
        graph["b"] += 1
        graph.output(graph["a"] + 1, graph["b"] + 1)
        with pytest.raises(ModelError, match="the buffers of odd must begin with the same named dim"):
            load(graph).slots(2)


def test_more_rows_than_there_is_memory_for_are_refused() -> None:
    with pytest.raises(ResourceLimitError, match="there is not enough memory for"):
        load(written(True)).slots(2**58)


def test_rows_that_a_call_stores_others_to_are_an_error() -> None:
    graph = Graph("grows", {"x": TensorType(D.float32, ["n"]), "row": Buffer(D.float32, ["batch"])})
    graph["row"] = ops.concat([graph["row"], graph["x"]])
    graph.output(graph["row"] + 1)
    slots = load(graph).slots(2)
    slots.run(0, 1, np.ones(2, np.float32))
    with pytest.raises(RunError, match="has stored another shape"):
        dict(slots.arrays)
