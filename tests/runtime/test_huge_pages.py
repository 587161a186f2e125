"""Memory gathered in huge pages: its contents stay, and unused memory is not taken."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphcore as gc
from graphcore.errors import GraphError
from graphcore.models import llama
from graphcore.runtime.ort import memory
from tests.support.graphs import Array

LARGE = 2 << 20


@contextmanager
def gathered(is_enabled: bool) -> Iterator[None]:
    """Gather the memory that is allocated meanwhile at once, as sessions with huge_pages=True do."""
    with memory.gathered_later(is_enabled) as later:
        yield
    if later is not None:
        later.gather()


def mapped(size: int) -> Array:
    """Memory of the process' own, of which nothing is in use."""
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


class Kernel:
    """A C library in which some pages are not in use, and that gathers all memory but some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unused: set[int] = set()
        self.refused: set[int] = set()
        self.gathered: list[int] = []
        monkeypatch.setattr("graphcore.runtime.ort.memory.ctypes.CDLL", lambda name: self)

    def __getattr__(self, name: str) -> Any:
        def call(*operands: Any) -> int:
            return int(getattr(self, f"_{name}")(*operands))

        return call

    def _mincore(self, start: int, size: int, pages: int) -> int:
        results = [start + 4096 * number not in self.unused for number in range(size // 4096)]
        ctypes.memmove(pages, bytes(results), len(results))
        return 0

    def _madvise(self, start: int, size: int, advice: int) -> int:
        assert (size, advice) == (LARGE, 25)
        self.gathered.append(start)
        return -1 if start in self.refused else 0


def collapse(ranges: list[tuple[int, int]], size: int) -> int:
    pieces = memory._Pieces(ranges, size)
    return pieces.gather(len(pieces))


def test_memory_holds_what_it_held_when_it_is_gathered() -> None:
    want = np.random.default_rng(0).integers(0, 256, 5 * LARGE, np.uint8)
    with gathered(True):
        array = mapped(5 * LARGE)
        array[...] = want
    np.testing.assert_array_equal(array, want)


def test_whole_pieces_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    kernel.refused = {4 * LARGE}
    assert collapse([(LARGE + 4096, 6 * LARGE - 4096), (8 * LARGE, 9 * LARGE)], LARGE) == 3
    assert kernel.gathered == [2 * LARGE, 3 * LARGE, 4 * LARGE, 8 * LARGE]


@pytest.mark.full
def test_memory_that_is_not_in_use_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with gathered(True):
        array = mapped(32 * LARGE)
        array[::LARGE] = 1
    assert int(array.astype(np.int64).sum()) == 32
    kernel = Kernel(monkeypatch)
    kernel.unused = {LARGE, 3 * LARGE + 4096, 5 * LARGE - 4096}
    assert collapse([(LARGE, 6 * LARGE)], LARGE) == 2
    assert kernel.gathered == [2 * LARGE, 5 * LARGE]


def test_memory_that_is_gone_is_passed_over() -> None:
    array = mapped(4 * LARGE)
    start = array.ctypes.data
    del array
    assert collapse([(start, start + 4 * LARGE), (start, start), (start + 1, start + 2)], LARGE) == 0


@pytest.mark.parametrize("enabled", [None, "always madvise [never]\n", "[always] madvise never\n"])
def test_nothing_is_looked_at_where_there_are_no_large_pages(
    enabled: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_SETTINGS", tmp_path)
    monkeypatch.setattr(memory, "_MAPS", tmp_path / "maps")  # not there
    if enabled is not None:
        (tmp_path / "enabled").write_text(enabled)
    with gathered(True):
        pass
    with gathered(False):
        pass


RANGES = st.lists(st.integers(0, 40), max_size=8, unique=True).map(
    lambda ends: list(zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False))
)


@given(RANGES, RANGES)
def test_parts_of_ranges_are_those_that_no_other_has(ranges: Any, others: Any) -> None:
    def points(ranges: Any) -> set[int]:
        return {point for start, end in ranges for point in range(start, end)}

    results = memory._without(ranges, others)
    assert points(results) == points(ranges) - points(others)
    assert all(start < end for start, end in results)


def doubling() -> gc.Graph:
    graph = gc.Graph("dense", {"x": gc.TensorType("float32", ["rows", 1024])})
    weight = np.random.default_rng(0).standard_normal((1024, 1024), np.float32)
    graph.output(graph["x"] @ graph.weight("w", weight))
    return graph


def test_model_gives_the_same_wherever_its_weights_lie() -> None:
    x = np.random.default_rng(1).standard_normal((3, 1024), np.float32)
    results = [gc.InferenceSession(huge_pages=wanted).load(doubling())(x)[0] for wanted in (True, False, None)]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("wanted", ["on", 1, 0, "auto"])
def test_option_that_is_not_a_choice_is_refused(wanted: Any) -> None:
    with pytest.raises(GraphError, match="huge_pages must be True, False or None"):
        gc.InferenceSession(huge_pages=wanted)


def decoder() -> gc.Graph:
    return llama.build(llama.Config(layers=1, vocabulary=64), cache=128)


def test_models_are_gathered_when_they_start_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[memory.Later] = []
    monkeypatch.setattr(memory, "_size", lambda: LARGE)
    monkeypatch.setattr(memory.Later, "gather", lambda later: results.append(later))
    for graph in (decoder(), doubling()):
        for wanted, count in ((None, 0), (False, 0), (True, 1)):
            gc.InferenceSession(huge_pages=wanted).load(graph)
            assert len(results) == count
        results.clear()


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many pieces each call gathers: of 70 of a memory of their own."""
    looked: list[int] = []
    gather = memory._Pieces.gather

    def noted(self: memory._Pieces, count: int) -> int:
        before = len(self)
        done = gather(self, count)
        looked.append(before - len(self))
        return done

    monkeypatch.setattr(memory._Pieces, "gather", noted)
    monkeypatch.setattr(memory, "_size", lambda: LARGE)
    monkeypatch.setattr(memory, "_without", lambda ranges, others: [(LARGE, 71 * LARGE)])
    return looked


def test_models_that_write_in_place_are_gathered_bit_by_bit_after_some_calls(shares: list[int]) -> None:
    model = gc.InferenceSession().load(decoder())
    results = []
    for number in range(80):
        results.append(len(shares))
        state = model.state() if number % 2 else model  # calls of all states count
        state(np.array([[3]]), np.array([1]))
    assert results[32] == 0
    assert results[33] == 1
    assert shares == [3] * 23 + [1]


def test_other_models_are_not_gathered_after_calls(shares: list[int]) -> None:
    for wanted in (None, False):
        model = gc.InferenceSession(huge_pages=wanted).load(doubling())
        for _ in range(80):
            model(np.ones((1, 1024), np.float32))
    assert not shares


def test_memory_that_is_gathered_later_holds_what_it_held() -> None:
    want = np.random.default_rng(0).integers(0, 256, 5 * LARGE, np.uint8)
    with memory.gathered_later(True) as later:
        array = mapped(5 * LARGE)
        array[...] = want
    if later is None:
        pytest.skip("there are no large pages here")
    ends = [later.after_call() for _ in range(80)]
    assert not any(ends[: memory._CALLS_BEFORE])
    assert ends[-1]
    np.testing.assert_array_equal(array, want)
