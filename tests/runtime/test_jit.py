"""Functions of Symbols called with arrays."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Symbol, ops
from graphcore.errors import FeedError, GraphError

pytestmark = pytest.mark.releases

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
    with pytest.raises(FeedError, match="argument 1 is a set, neither a Symbol or array nor hashable"):
        power(x, {2})
    with pytest.raises(FeedError, match=r"argument 1\.k\.0 is a bytearray, neither"):
        power(x, {"k": [bytearray()]})


def test_arrays_in_tuples_lists_and_dicts_are_traced() -> None:
    traced = []

    @gc.jit
    def layer(params: dict[str, Any], xs: list[Symbol], *, scale: tuple[Any, int]) -> dict[str, Any]:
        traced.append(params)
        return {"y": (xs[0] @ params["w"] + params["b"], xs[1] * scale[0] ** scale[1]), "b": [params["b"]]}

    rng = np.random.default_rng(0)
    for size in (2, 3):
        params = {"w": rng.random((4, size)).astype(np.float32), "b": np.ones(size, np.float32)}
        x, factor = rng.random((3, 4)).astype(np.float32), np.array([2], np.int32)
        got = layer(params, [x, np.arange(2)], scale=(factor, 3))
        assert np.allclose(got["y"][0], x @ params["w"] + 1)
        assert got["y"][1].tolist() == [0, 8]
        assert got["b"][0].tolist() == [1] * size
    assert len(traced) == 1
    layer(params, [x, np.arange(2)], scale=(factor, 2))
    layer(dict(reversed(params.items())), [x, np.arange(2)], scale=(factor, 2))
    assert len(traced) == 3
    assert [s.name for s in traced[0].values()] == ["params.w", "params.b"]


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


def test_zeros_of_both_signs_and_bools_are_different_arguments() -> None:
    @gc.jit
    def times(x: Symbol, factor: Any) -> Any:
        return x * (factor[0] if isinstance(factor, tuple) else factor)

    x = np.ones(1, np.float32)
    for zero in (0.0, -0.0, np.float32(0.0), np.float32(-0.0), (0.0,), (-0.0,)):
        expected = zero[0] if isinstance(zero, tuple) else zero
        assert np.signbit(times(x, zero)[0]) == np.signbit(expected)
    assert gc.jit(lambda a, b: a + b)(np.ones(1, np.int8), 1).dtype == np.int8


def test_nan_is_traced_once() -> None:
    traced = []

    @gc.jit
    def plus(x: Symbol, y: float) -> Symbol:
        traced.append(y)
        return x + y

    for _ in range(3):
        plus(np.ones(1), float("nan"))
    assert len(traced) == 1


def test_arguments_are_told_apart_whatever_they_are_called() -> None:
    @gc.jit
    def minus(*arguments: Symbol, **named: Symbol) -> Symbol:
        return arguments[0] - named["arg0"]

    assert minus(np.array([3]), arg0=np.array([1])).tolist() == [2]

    @gc.jit
    def order(a: Symbol, b: Symbol) -> Symbol:
        return a - b

    three, one = np.array([3]), np.array([1])
    assert order(three, one) == order(three, b=one) == order(b=one, a=three) == 2
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        order(three)


def test_function_builds_into_the_graph_when_called_while_another_is_traced() -> None:
    inner = gc.jit(lambda x: x + 1)
    outer = gc.jit(lambda x: inner(x) * 2)
    assert outer(np.array([1, 2])).tolist() == [4, 6]


def test_method_can_be_jitted() -> None:
    class Scale:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        @gc.jit
        def apply(self, x: Symbol) -> Symbol:
            return x * self.factor

    assert [Scale(f).apply(np.array([2]))[0] for f in (3, 4)] == [6, 8]


def test_dtype_that_no_graph_has_is_refused() -> None:
    with pytest.raises(FeedError, match="jit: argument 'x' is complex128, which no graph computes with"):
        gc.jit(lambda x: x)(np.ones(1, complex))


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(GraphError, match="jit: a int is no function"):
        gc.jit(3)  # type: ignore[call-overload]


def test_failed_trace_is_not_kept() -> None:
    broken = [True]

    @gc.jit
    def sometimes(x: Symbol) -> Any:
        return None if broken[0] else x

    with pytest.raises(GraphError):
        sometimes(np.ones(1))
    broken[0] = False
    assert sometimes(np.ones(1)).tolist() == [1]
