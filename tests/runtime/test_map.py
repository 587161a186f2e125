"""The items of an iterable, run in batches: order, lengths, errors, padding."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Buffer, DType, Graph, TensorType, ops
from graphcore.errors import FeedError, ModelError, RunError
from graphcore.runtime.calls.rows import SIZES, Pace
from tests.sampling import drawn

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]


def text_model() -> gc.Model:
    """Twice the values, and the sum of those that are weighed, of rows of any length."""
    graph = Graph(
        "text", {"x": TensorType("float32", ["batch", "n", 2]), "weight": TensorType("float32", ["batch", "n"])}
    )
    x, weight = graph.inputs
    graph.output(twice=x * 2, total=ops.sum(x[:, :, 0] * weight, axis=1), same=ops.permute(x, [1, 0, 2]))
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


def fixed_model() -> gc.Model:
    graph = Graph("fixed", {"x": TensorType("float32", ["batch", 3])})
    graph.output(y=graph["x"] * 2 + 1)
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


TEXT, FIXED = text_model(), fixed_model()


def row(length: int, number: int) -> tuple[Array, Array]:
    x = np.arange(length * 2, dtype=np.float32).reshape(length, 2) + number
    return x, np.ones(length, np.float32)


@settings(max_examples=drawn(40), deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), max_size=40),
    batch=st.none() | st.integers(1, 9),
    pad=st.sampled_from([None, 0, {"x": 7, "weight": 0}]),
    window=st.integers(1, 50),
    padding=st.sampled_from([0, 0.05, 0.9]),
)
def test_results_are_those_of_each_item_alone_in_order(
    lengths: list[int], batch: int | None, pad: Any, window: int, padding: float
) -> None:
    items = [row(length, i) for i, length in enumerate(lengths)]
    results = [*TEXT.map(iter(items), batch=batch, pad=pad, window=window, padding=padding)]
    assert len(results) == len(items)
    for (x, weight), (twice, total, same) in zip(items, results, strict=True):
        alone = TEXT(x[None], weight[None])
        assert np.array_equal(twice, alone[0][0])
        assert np.array_equal(total, alone[1][0])
        assert np.array_equal(same, x)
        assert isinstance(total, np.ndarray)
        assert total.shape == ()


@pytest.mark.parametrize("item", [np.ones(3, np.float32), [1, 1, 1], (np.ones(3, np.float32),), {"x": [1.0, 1, 1]}])
def test_item_is_an_array_a_tuple_or_a_dict(item: Any) -> None:
    ((y,),) = FIXED.map([item])
    assert y.tolist() == [3, 3, 3]


def test_rows_of_an_array_are_items() -> None:
    x = np.arange(300, dtype=np.float32).reshape(100, 3)
    assert np.array_equal(np.stack([y for (y,) in FIXED.map(x)]), x * 2 + 1)


def test_nothing_gives_nothing() -> None:
    assert [*FIXED.map([])] == []
    assert [*TEXT.map(iter(()), pad=0, progress=True)] == []


def test_results_come_before_the_iterable_ends() -> None:
    requested: list[int] = []

    def items() -> Iterator[Array]:
        for i in range(1_000_000):
            requested.append(i)
            yield np.full(3, i, np.float32)

    results = FIXED.map(items(), batch=4)
    assert not requested
    for i in range(9):
        assert next(results)[0][0] == 2 * i + 1
    assert len(requested) == 12
    results.close()  # type: ignore[attr-defined]
    assert next(results, None) is None
    assert len(requested) == 12


def test_windows_bound_what_is_read_ahead() -> None:
    results: list[int] = []

    def items() -> Iterator[tuple[Array, Array]]:
        for i in range(1000):
            results.append(i)
            yield row(1 + i % 5, i)

    next(TEXT.map(items(), pad=0, window=20))
    assert len(results) == 20


def test_what_the_iterable_raises_comes_after_the_results_before_it() -> None:
    def items() -> Iterator[Array]:
        for i in range(6):
            yield np.full(3, i, np.float32)
        raise OSError("the disk is gone")

    results = FIXED.map(items(), batch=4)
    assert [next(results)[0][0] for _ in range(6)] == [1, 3, 5, 7, 9, 11]
    with pytest.raises(OSError, match="the disk is gone"):
        next(results)


@pytest.mark.parametrize("bad", [np.ones(4, np.float32), np.ones(3), "text", None, (), (1, 2), {"z": 1}])
def test_item_that_does_not_fit_is_named(bad: Any) -> None:
    items = [np.ones(3, np.float32)] * 5 + [bad] + [np.ones(3, np.float32)]
    results = FIXED.map(items, batch=4)
    for _ in range(5):
        next(results)
    with pytest.raises(FeedError, match=r"^item 5: fixed: "):
        next(results)


def picking() -> gc.Model:
    graph = Graph("picking", {"i": TensorType(DType.int64, ["batch", "n"])})
    graph.output(y=ops.gather(graph.constant(np.arange(4, dtype=np.float32)), graph["i"]))
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


@pytest.mark.parametrize("batch", [1, 3, 8, None])
def test_item_that_fails_in_the_runtime_is_named_and_those_before_it_are_given(batch: int | None) -> None:
    items = [np.array([i % 4] * (1 + i % 3)) for i in range(20)]
    items[11] = np.array([9, 9])
    items[14] = np.array([9])
    results = picking().map(items, batch=batch, pad=0)
    assert [next(results)[0].tolist() for _ in range(11)] == [i.tolist() for i in items[:11]]
    with pytest.raises(RunError, match=r"^item 11: picking: onnxruntime failed"):
        next(results)


def test_padding_stays_under_its_share() -> None:
    lengths = np.random.default_rng(0).integers(1, 200, 700)
    sizes: list[tuple[int, int]] = []
    graph = Graph("count", {"x": TensorType(DType.int64, ["batch", "n"])})
    graph.output(y=graph["x"] + 1)
    model = gc.InferenceSession(intra_op_num_threads=1).load(graph)
    call = model._run

    def counted(names: Any, feed: Any, options: Any) -> Any:
        sizes.append((int((feed["x"] != -1).sum()), feed["x"].size))
        return call(names, feed, options)

    model._run = counted
    for padding in (0.0, 0.05, 0.3):
        sizes.clear()
        results = [*model.map([np.zeros(n, np.int64) for n in lengths], pad=-1, padding=padding, batch=16)]
        assert [y.size for (y,) in results] == lengths.tolist()
        assert sum(used for used, _ in sizes) == lengths.sum()
        assert all(used >= (1 - padding) * of for used, of in sizes)
    assert len(sizes) < 60


def test_batch_of_a_number_is_filled_and_what_comes_of_copies_left_out() -> None:
    graph = Graph("eights", {"x": TensorType("float32", [8, 2])})
    graph.output(y=graph["x"] + 1)
    model = gc.InferenceSession().load(graph)
    for batch in (None, 3, 20):
        results = [y.tolist() for (y,) in model.map(np.arange(22, dtype=np.float32).reshape(11, 2), batch=batch)]
        assert results == (np.arange(22).reshape(11, 2) + 1).tolist()


def test_output_whose_batch_is_named_otherwise_is_found() -> None:
    graph = Graph("open", {"x": TensorType("float32", ["batch", 3])})
    graph.output(y=(graph["x"] + 1).rebind("other", 3))
    results = [*gc.InferenceSession().load(graph).map(np.zeros((5, 3), np.float32), batch=2)]
    assert [y.tolist() for (y,) in results] == [[1, 1, 1]] * 5


def test_threads_map_with_one_model() -> None:
    wrong: list[int] = []

    def work(start: int) -> None:
        items = [row(1 + (start + i) % 7, i) for i in range(60)]
        for (x, _), (twice, *_) in zip(items, TEXT.map(items, pad=0), strict=True):
            wrong.extend([start] * (not np.array_equal(twice, x * 2)))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("items", "named", "message"),
    [
        (3, {}, "items must be an iterable of items, got int"),
        ({"x": 1}, {}, "items must be an iterable of items, got dict"),
        ([], {"batch": 0}, "batch must be an integer of at least 1, got 0"),
        ([], {"batch": 2.5}, "batch must be an integer of at least 1, got 2.5"),
        ([], {"window": 0}, "window must be an integer of at least 1, got 0"),
        ([], {"padding": 1}, "padding must be a fraction of a batch, got 1"),
        ([], {"padding": "x"}, "padding must be a fraction of a batch, got 'x'"),
        ([], {"pad": {"z": 0}}, "pad names 'z', which is not an input"),
        ([], {"pad": "text"}, "the pad value of input 'x'"),
        ([], {"pad": [0, 1]}, "the pad value of input 'x'"),
        ([], {"pad": np.int64(1)}, "the pad value of input 'x'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_at_once(items: Any, named: Any, message: str) -> None:
    with pytest.raises(FeedError, match=message):
        TEXT.map(items, **named)


def test_models_without_rows_are_refused_at_once() -> None:
    graph = Graph("scalar", {"x": TensorType("float32", [])})
    graph.output(y=graph["x"] + 1)
    with pytest.raises(ModelError, match="input 'x' has no axes"):
        gc.InferenceSession().load(graph).map([])
    changed = Graph("kept", {"x": TensorType("float32", [2]), "b": Buffer("float32", [2])})
    changed["b"] = changed["x"]
    changed.output(y=changed["b"] + 1)
    with pytest.raises(ModelError, match="kept has buffers"):
        gc.InferenceSession().load(changed).map([])


def test_progress_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert len([*FIXED.map(np.zeros((130, 3), np.float32), progress=True)]) == 130
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "[========================] 130/130 items, " in shown


def test_progress_is_told_to_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    results: list[tuple[int, int | None]] = []
    items = np.zeros((130, 3), np.float32)
    assert len([*FIXED.map(items, progress=lambda done, most: results.append((done, most)))]) == 130
    assert [done for done, _ in results] == sorted({done for done, _ in results})
    assert results[-1] == (130, 130)
    results.clear()
    assert len([*FIXED.map(iter(items), progress=lambda done, most: results.append((done, most)))]) == 130
    assert results[-1][0] == 130
    assert results[-1][1] is None
    assert capsys.readouterr().err == ""


def seconds(costs: dict[int, float], elements: int = 10) -> list[int]:
    """Return the numbers of rows that a pace chooses, of which an element costs so much."""
    pace, chosen = Pace(), []
    for _ in range(60):
        rows = pace.rows(elements)
        chosen.append(rows)
        pace.note(elements, rows, costs[rows] * rows * elements)
    return chosen


@pytest.mark.parametrize(("best", "tried"), [(1, {1, 4, 8}), (4, {1, 4, 8}), (8, {4, 8, 16}), (64, {4, 8, 16, 32, 64})])
def test_pace_settles_on_the_cheapest_rows(best: int, tried: set[int]) -> None:
    chosen = seconds({size: 1 + abs(SIZES.index(size) - SIZES.index(best)) * 0.3 for size in SIZES})
    assert set(chosen) == tried
    assert chosen[-32:].count(best) >= 29


def test_pace_finds_another_number_of_rows_when_the_first_times_were_disturbed() -> None:
    pace, chosen = Pace(), []
    for turn in range(400):
        rows = pace.rows(10)
        chosen.append(rows)
        disturbed = 3 if turn < 6 and rows == 8 else 1
        pace.note(10, rows, (1 if rows == 8 else 1.3) * disturbed * rows * 10)
    assert chosen[-32:].count(8) >= 29
