"""Integers of more than 64 bits in the bodies of If, Loop and Scan: states, results and what is captured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcore import DType, Symbol, TensorType, ops
from tests.support.wide import WIDTHS, Array, check, drawn, wrap

FLAG = TensorType(DType.bool, [])
COUNT = TensorType(DType.int64, [])


def low(array: Any, dtype: DType) -> Array:
    return np.asarray(np.frompyfunc(lambda v: wrap(int(v), dtype), 1, 1)(array), object)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize("flag", [True, False])
def test_branches_read_and_give_wide_integers(dtype: DType, flag: bool, tmp_path: Path) -> None:
    x = drawn(dtype, [3], 1)

    def chosen(p: Symbol, a: Symbol) -> tuple[Symbol, ...]:
        square = a * a
        value = a.graph.constant([7, 8, 1 << 60], dtype)
        return (
            ops.cond(p, lambda: a + 1, lambda: a * a),
            ops.cond(p, lambda: a, lambda: square),
            ops.cond(p, lambda: value, lambda: value * square),
            ops.cond(p, lambda: ops.cond(a[0] > 5, lambda: square - 1, lambda: square + (1 << 62)), lambda: a),
            *ops.cond(p, lambda: (square.cast(DType.int64), square), lambda: (a.cast(DType.int64), square - 1)),
        )

    square = low(x * x, dtype)
    value = np.array([7, 8, 1 << 60], object)
    wanted = [
        x + 1 if flag else square, x if flag else square, value if flag else value * square,
        (square - 1 if x[0] > 5 else square + (1 << 62)) if flag else x, low(square if flag else x, DType.int64),
        square if flag else square - 1,
    ]  # fmt: skip
    check(chosen, [FLAG, TensorType(dtype, [3])], [np.array(flag), x], wanted, folder=tmp_path)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize("trips", [0, 1, 5])
def test_loops_have_states_and_collect_results_of_wide_integers(dtype: DType, trips: int, tmp_path: Path) -> None:
    x = drawn(dtype, [3], 2)

    def turned(n: Symbol, a: Symbol) -> tuple[Symbol, ...]:
        last, every = ops.for_loop(n, lambda i, s: (s * 3 + i.cast(dtype) + a, s * s), a, collect=True)
        return last, every, ops.while_loop(lambda s, k: k < n, lambda s, k: (s * 7 - a, k + 1), (a, n * 0))[0]

    state, turn, stacked = x, x, []
    for i in range(trips):
        stacked.append(low(state * state, dtype))
        state, turn = low(state * 3 + i + x, dtype), low(turn * 7 - x, dtype)
    wanted = [state, np.array(stacked, object).reshape(trips, 3), turn]
    check(turned, [COUNT, TensorType(dtype, ["n"])], [np.array(trips), x], wanted, folder=tmp_path)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [DType.int(65), DType.uint(70), DType.int(96), DType.int(200)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("out_axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_go_along_any_axis_of_wide_integers(dtype: DType, axis: int, out_axis: int, reverse: bool) -> None:
    x = drawn(dtype, [3, 4], 3)
    start = drawn(dtype, [x.shape[1 - axis]], 4)

    def scanned(a: Symbol, b: Symbol) -> tuple[Symbol, ...]:
        step = lambda s, v: (s * 5 + v, s - v)  # noqa: E731
        return tuple(ops.scan(step, a, b, axis=axis, reverse=reverse, out_axis=out_axis))

    state, rows = start, []
    for row in list(np.moveaxis(x, axis, 0))[::-1] if reverse else np.moveaxis(x, axis, 0):
        rows.append(low(state - row, dtype))
        state = low(state * 5 + row, dtype)
    wanted = [state, np.stack(rows[::-1] if reverse else rows, out_axis)]
    for dims in ([[start.size], [3, 4]], [["b" if axis == 0 else "a"], ["a", "b"]]):
        check(scanned, [TensorType(dtype, d) for d in dims], [start, x], wanted)


def test_scans_of_no_elements_give_their_state() -> None:
    dtype = DType.int(96)
    start = drawn(dtype, [3], 5)
    types = [TensorType(dtype, ["b"]), TensorType(dtype, ["a", "b"])]
    wanted = [start, np.zeros((0, 3), object)]
    check(lambda a, b: tuple(ops.scan(lambda s, v: (s + v, s), a, b)), types, [start, np.zeros((0, 3), object)], wanted)


@pytest.mark.numbers
@pytest.mark.parametrize("flag", [True, False])
def test_bodies_inside_bodies_read_wide_integers_of_all_graphs_around(flag: bool) -> None:
    dtype = DType.int(96)
    x = drawn(dtype, [3], 6)

    def nested(p: Symbol, a: Symbol) -> Symbol:
        b = a * a

        def outer(i: Symbol, s: Symbol) -> Symbol:
            c = s + b
            inner = lambda: ops.for_loop(2, lambda j, t: t * c + b, c)  # noqa: E731
            y: Symbol = ops.cond(p, inner, lambda: c - b)
            return y

        y: Symbol = ops.for_loop(3, outer, a)
        return y

    square = low(x * x, dtype)
    state = x
    for _ in range(3):
        c = low(state + square, dtype)
        state = c
        for _ in range(2):
            state = low(state * c + square, dtype)
        if not flag:
            state = low(c - square, dtype)
    check(nested, [FLAG, TensorType(dtype, ["n"])], [np.array(flag), x], [state])


@pytest.mark.numbers
def test_bodies_hold_powers_products_and_reductions() -> None:
    dtype = DType.uint(70)
    x = drawn(dtype, [4], 7)

    def condition(p: Symbol, a: Symbol) -> tuple[Symbol, ...]:
        return (
            ops.cond(p, lambda: a ** (a % 5), lambda: ops.cumprod(a)),
            ops.cond(p, lambda: a @ a, lambda: ops.max(a)),
            ops.for_loop(2, lambda i, s: ops.sort(s * a), a),
        )

    power = np.array([pow(int(v), int(v % 5), 1 << 70) for v in x], object)
    state = x
    for _ in range(2):
        state = np.sort(low(state * x, dtype))
    for flag in (True, False):
        wanted = [power, x @ x, state] if flag else [np.multiply.accumulate(x), x.max(), state]
        check(condition, [FLAG, TensorType(dtype, ["n"])], [np.array(flag), x], wanted)
