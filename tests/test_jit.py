"""Functions of Symbols called with arrays."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Symbol, ops
from graphcore.errors import FeedError, GraphError

Array = np.ndarray[Any, Any]


def test_function_computes_on_arrays_when_jitted() -> None:
    @gc.jit
    def scaled(x: Symbol, y: Symbol) -> Symbol:
        """Its own docstring."""
        return x * y + 1

    assert scaled.__doc__ == "Its own docstring."
    x, y = np.arange(3, dtype=np.int8), np.array([0.5, 1, 2], np.float32)
    got = scaled(x, y)
    assert got.dtype == np.float32
    assert np.array_equal(got, x * y + 1)


def test_function_is_traced_once_for_each_signature() -> None:
    traced = []

    @gc.jit
    def double(x: Symbol) -> Symbol:
        traced.append(x.type)
        return x * 2

    for size in (3, 5, 0):
        assert double(np.ones(size, np.float32)).shape == (size,)
    double(np.ones((2, 2), np.float32))
    double(np.ones(3, np.int32))
    double(np.ones(3, ">i4"))
    assert [str(t) for t in traced] == ["float32[?]", "float32[?, ?]", "int32[?]"]


def test_other_arguments_are_part_of_the_signature() -> None:
    @gc.jit
    def power(x: Symbol, n: int, *, negative: bool = False) -> Symbol:
        return -(x**n) if negative else x**n

    x = np.array([1.0, 2.0], np.float32)
    assert power(x, 2).tolist() == [1, 4]
    assert power(x, 3).tolist() == [1, 8]
    assert power(x, 3, negative=True).tolist() == [-1, -8]
    with pytest.raises(FeedError, match="argument 1 is a list, neither an array nor hashable"):
        power(x, [2])


def test_result_has_the_structure_that_was_returned() -> None:
    x = np.array([3, 1], np.int32)
    assert isinstance(gc.jit(lambda s: (s, s + 1))(x), tuple)
    assert isinstance(gc.jit(lambda s: [s, s + 1])(x), list)
    named = gc.jit(lambda s: {"least": ops.min(s, axis=0), "all": s})(x)
    assert named["least"] == 1
    assert named["all"].tolist() == [3, 1]


def test_result_that_is_no_symbol_is_refused() -> None:
    with pytest.raises(GraphError, match="jit: the function returned a int, no Symbols"):
        gc.jit(lambda s: 3)(np.ones(2))


def test_promotion_system_is_the_one_asked_for() -> None:
    x, y = np.array([True]), np.array([3], np.uint64)
    assert gc.jit(lambda a, b: a + b, promotion="max_published")(x, y).dtype == np.uint64


def test_threads_share_one_trace() -> None:
    traced = []

    @gc.jit
    def slow(x: Symbol) -> Symbol:
        traced.append(x)
        return x + 1

    results: list[Array] = []
    threads = [threading.Thread(target=lambda: results.append(slow(np.ones(4)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(traced) == 1
    assert all(r.tolist() == [2.0] * 4 for r in results)
