"""Square brackets against NumPy's, with dims known and unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcore import Dim, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphcoreError, ShapeError
from tests.sampling import drawn
from tests.support.graphs import run, run1

Array = np.ndarray[Any, Any]

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
X_DIMS: list[int | str] = ["n", "m", 5]


def symbol(dims: list[int | str], dtype: DType = DType.float32) -> Symbol:
    return Graph("test", {"x": TensorType(dtype, dims)})[0]


def check(indices: list[Any], x: Array = X, dims: list[int | str] | None = None) -> None:
    """Every index gives what NumPy gives, all in one graph."""
    wanted = dims or [f"d{i}" for i in range(x.ndim)]
    results = run(lambda s: [s[index] for index in indices], x, dims=[wanted])
    for index, result in zip(indices, results, strict=True):
        np.testing.assert_array_equal(result, x[index], err_msg=str(index), strict=True)


# Basic indexing


def test_ints_drop_axes_and_count_from_the_end_when_negative() -> None:
    check([0, -1, (0, 1), (-1, -2, -3), (slice(None), 2), (..., -1), np.int8(1), (1, ..., np.uint8(3))])


def test_slices_follow_numpy_on_unknown_sizes() -> None:
    bounds = [None, 0, 1, 2, -1, -2, 7, -7, 10**30, -(10**30), 2**31 - 1]
    check([slice(a, b, c) for a in bounds for b in bounds for c in (None, 2, -1)], X[:, 0, 0])


def test_slices_follow_numpy_on_empty_axes() -> None:
    bounds = [None, 0, 1, -1, -2]
    empty = np.zeros((0, 2), np.float32)
    check([slice(a, b, c) for a in bounds for b in bounds for c in (1, -1, -3)], empty)


def test_slices_of_several_axes_are_one_node() -> None:
    x = symbol(["n", "m", 5])
    y = x[1:, ::-1, 2:4]
    assert [node.op_type for node in x.graph.nodes] == ["Slice"]
    assert y.shape == [Dim.maximum(Dim("n") - 1, 0), "m", 2]


def test_a_whole_slice_makes_no_node() -> None:
    x = symbol(["n", 5])
    for y in (x[:], x[...], x[0:], x[:, :5], x[: Dim("n")], x[:, -5:], x[()]):
        assert y is x


def test_none_makes_new_axes() -> None:
    check([None, (None, 0), (0, None), (..., None), (None, ..., None, 0, None), (slice(1, None), None, slice(2))])


def test_slice_lengths_are_simple_dims() -> None:
    n = Dim("n")
    x = symbol(["n", 8])
    assert x[:3].shape == x[-3:].shape == [Dim.minimum(n, 3), 8]
    assert x[3:].shape == x[:-3].shape == [Dim.maximum(n - 3, 0), 8]
    assert x[1:-1].shape == [Dim.maximum(n - 2, 0), 8]
    assert x[::2].shape == [(n + 1) // 2, 8]
    assert x[::-1].shape == [n, 8]
    assert x[:, 6:0:-4].shape == ["n", 2]
    assert x[:, 5:2].shape == ["n", 0]


def test_dims_are_bounds_and_positions() -> None:
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    y = np.zeros(2, np.float32)
    n, k = Dim("n"), Dim("k")

    def function(x: Symbol, y: Symbol) -> list[Symbol]:
        return [x[:k], x[k:], x[: n - 1], x[n // 2 :], x[-k - 1 :], x[k], x[Dim(1) : Dim(3)], x[n - 1 : k : -1], x[::k]]

    half = [x[:2], x[2:], x[:5], x[3:], x[-3:], x[2], x[1:3], x[5:2:-1], x[::2]]
    for result, wanted in zip(run(function, x, y, dims=[["n", 4], ["k"]]), half, strict=True):
        np.testing.assert_array_equal(result, wanted)
    output = symbol(["n", 4])
    assert output[: n - 1].shape == [Dim.maximum(n - 1, 0), 4]
    assert output[n // 2 :].shape == [n - n // 2, 4]


@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_negative_dims_follow_numpy_when_0_or_beyond_the_axis(count: int) -> None:
    x, k = np.arange(6, dtype=np.float32), Dim("k")
    results = run(lambda x, y: [x[-k:], x[:-k], x[-k::2]], x, np.zeros(count, np.float32), dims=[["n"], ["k"]])
    for result, wanted in zip(results, [x[-count:], x[:-count], x[-count::2]], strict=True):
        np.testing.assert_array_equal(result, wanted, strict=True)


@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_slices_take_symbols_when_the_graph_runs(step: int) -> None:
    def function(x: Symbol, a: Symbol, b: Symbol, c: Symbol) -> list[Symbol]:
        return [x[a:b:step], x[a::step], x[:b:step], x[a:b:c], x[a::c], x[:b:c], x[::c], x[1:b, a]]

    x = X[:, :3, 0]
    for a, b in [(0, 2), (-1, 0), (2, -9), (1, 1)]:
        scalars = np.array(a, np.int32), np.array(b, np.int64), np.array(step, np.int8)
        results = run(function, x, *scalars)
        wanted = [x[a:b:step], x[a::step], x[:b:step], x[a:b:step], x[a::step], x[:b:step], x[::step], x[1:b, a]]
        for result, expected in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(result, expected)


def test_slices_backwards_from_before_the_first_element_are_empty() -> None:
    check([slice(-9, None, -1), slice(-4, -9, -2), (slice(None), slice(-5, None, -1))], X[:, :, 0], ["n", 4])


def test_integer_scalars_are_positions() -> None:
    for dtype in (np.int64, np.int32, np.uint8):
        first, second = run(lambda x, i: [x[i], x[:, i]], X, np.asarray(2, dtype), dims=[X_DIMS, []])
        np.testing.assert_array_equal(first, X[2])
        np.testing.assert_array_equal(second, X[:, 2])
    graph = Graph("test", {"x": TensorType(DType.float32, [3, 4])})
    with pytest.raises(ShapeError, match="index 3 is out of bounds for axis 0 of size 3"):
        graph[0][graph.constant(3)]


@pytest.mark.parametrize("dtype", [DType.bool, DType.int8, DType.uint16, DType.int64, DType.float16, DType.bfloat16])
def test_indexing_keeps_every_dtype(dtype: DType) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype.numpy)
    indices: list[Any] = [(slice(None, None, -1), 1), ([2, 0], [1, 1]), ([0, 2],), (..., None)]
    for result, index in zip(run(lambda s: [s[i] for i in indices], x), indices, strict=True):
        np.testing.assert_array_equal(result, x[index])


# Arrays of positions


def test_arrays_of_positions_go_where_numpy_puts_them() -> None:
    rows, columns = np.array([[0], [2]]), np.array([1, -1, 0], np.int32)
    check(
        [
            [0, 2], ([0, 2], [1, -1]), (rows, columns), (slice(None), rows), (slice(None), rows, columns),
            (rows, slice(None), columns), (0, slice(None), columns), (slice(None), 0, columns), (columns, ..., 0),
            (slice(None), [0], ..., [1]), (None, columns), (rows, None, columns), (..., None, columns, 0),
            (slice(1, None), [0, 1], slice(None, None, -1)), (rows, 1, columns), np.array(1), [[0, 1], [1, 2]], [],
        ]
    )  # fmt: skip


def test_index_symbols_broadcast_with_each_other_when_the_graph_runs() -> None:
    i, j = np.array([[0], [-1]]), np.array([1, 2, 3], np.int32)

    def function(x: Symbol, i: Symbol, j: Symbol) -> list[Symbol]:
        return [x[i, j], x[i], x[:, j], x[i, :, j], x[:, i, j], x[j - 1, 0], x[0, i, [[1]]]]

    results = run(function, X, i, j, dims=[X_DIMS, ["k", 1], ["l"]])
    wanted = [X[i, j], X[i], X[:, j], X[i, :, j], X[:, i, j], X[j - 1, 0], X[0, i, [[1]]]]
    for result, expected in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_index_symbols_of_unknown_lengths_broadcast() -> None:
    graph = Graph("test", {"x": TensorType(DType.float32, ["n", "m"]), "i": TensorType(DType.int64, ["k", "l"])})
    x, i = graph.inputs
    picked = i[i[:, 0] >= 0]
    assert x[picked, picked].shape == [Dim.dynamic(), "l"]

    def function(x: Symbol, i: Symbol) -> Symbol:
        chosen = i[i >= 0]
        return x[chosen, chosen[:1]]

    i_array = np.array([1, -5, 0, 2])
    np.testing.assert_array_equal(run1(function, X, i_array), X[[1, 0, 2], [1]])


# Masks


def test_masks_choose_what_is_true() -> None:
    rows, grid = X[:, 0, 0] != 20, X[:, :, 0] % 3 == 0
    columns = X[0, :, 0] > 4

    def function(x: Symbol, rows: Symbol, columns: Symbol, grid: Symbol) -> list[Symbol]:
        return [
            x[rows], x[:, columns], x[grid], x[rows, 1], x[rows, ..., 2:4], x[rows, 0, [1, 2]], x[x > 7], x[grid, [4]],
            x[None, grid], x[0, columns, None],
        ]  # fmt: skip

    results = run(function, X, rows, columns, grid, dims=[X_DIMS, ["n"], ["m"], ["n", "m"]])
    wanted = [
        X[rows], X[:, columns], X[grid], X[rows, 1], X[rows, ..., 2:4], X[rows, 0, [1, 2]], X[X > 7], X[grid, [4]],
        X[None, grid], X[0, columns, None],
    ]  # fmt: skip
    for result, expected in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_masks_of_nothing_give_nothing() -> None:
    none = np.zeros(3, bool)
    first, second = run(lambda x, m: [x[m], x[m, 1:]], X, none, dims=[X_DIMS, ["n"]])
    assert first.shape == (0, 4, 5)
    assert second.shape == (0, 3, 5)


def test_a_constant_mask_has_a_known_count() -> None:
    mask = np.array([True, False, True, True])
    x = symbol(["n", 4, "m"])
    assert x[:, mask].shape == ["n", 3, "m"]
    assert x[0, [True, False, False, True]].shape == [2, "m"]
    check([(slice(None), mask), (0, mask, None)], X, ["n", 4, 5])


def test_an_unknown_mask_gives_an_unknown_length() -> None:
    graph = Graph("test", {"x": TensorType(DType.float32, ["n", "m", 5]), "mask": TensorType(DType.bool, ["n", "m"])})
    assert graph[0][graph[1]].shape == [Dim.dynamic(), 5]


# The other spellings


def test_slice_tensor_is_indexing_with_a_list_of_indices() -> None:
    results = run(
        lambda x: [ops.slice_tensor(x, [slice(1, None), 2]), ops.slice_tensor(x, (..., 0)), ops.slice_tensor(x, 1)], X
    )
    for result, expected in zip(results, [X[1:, 2], X[..., 0], X[1]], strict=True):
        np.testing.assert_array_equal(result, expected)


def test_slice_names_the_dims_that_are_asked_for() -> None:
    def function(x: Symbol, k: Symbol) -> list[Symbol]:
        named = ops.slice(x, slice(None, k), slice(1, None), out_dims=["k", "rest", 5])
        assert named.shape == ["k", "rest", 5]
        assert x[(slice(None, k), "k"), 0].shape == ["k", 5]
        return [named, ops.slice(x, 1, axis=2), ops.slice(x, k, axis=1, keep_dims=True), x[(slice(k), "k"), 0]]

    results = run(function, X, np.array(2), dims=[X_DIMS, []])
    for result, expected in zip(results, [X[:2, 1:], X[:, :, 1], X[:, 2:3], X[:2, 0]], strict=True):
        np.testing.assert_array_equal(result, expected)


def test_symbols_unpack_along_a_known_first_axis() -> None:
    first, second = run(lambda x: list(x), X[:2], dims=[[2, "m", 5]])
    np.testing.assert_array_equal(first, X[0])
    np.testing.assert_array_equal(second, X[1])


# What is refused


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        ((0, 0, 0, 0), ShapeError, "too many indices: 4 for a tensor of rank 3"),
        ((..., 0, ...), ShapeError, "more than one `...`"),
        ((0, 0, 5), ShapeError, "index 5 is out of bounds for axis 2 of size 5"),
        ((0, 0, -6), ShapeError, "index -6 is out of bounds for axis 2 of size 5"),
        ((..., [0, 7]), ShapeError, "index 7 is out of bounds for axis 2 of size 5"),
        (10**30, ShapeError, "is out of bounds for any axis"),
        (slice(None, None, 0), ShapeError, "the step of a slice is 0"),
        (([0, 1], [0, 1, 2]), ShapeError, "index arrays do not broadcast together: 2 and 3"),
        ((..., np.ones(4, bool)), ShapeError, r"the mask does not fit: .* \[4\], those of x from axis 2 on are \[5\]"),
        (Dim.dynamic(), ShapeError, "cannot be an unknown dim"),
        (Dim("z"), ShapeError, "no Symbol has a dim 'z'"),
        ((slice(np.array([0, 1]), None),), ShapeError, r"the start of a slice must be a scalar, got shape \[2\]"),
        ((0, 0, (slice(0, 2), 3)), ShapeError, "a length of 2 cannot be named 3"),
        (1.0, DTypeError, "1.0 is not an index: positions are integers"),
        (np.array([0.5]), DTypeError, "index must be integers, not float64"),
        ("rows", DTypeError, "'rows' is not an index"),
        (True, DTypeError, "a bool scalar is not an index"),
        (np.array(True), DTypeError, "a bool scalar is not an index"),
        (slice(0, 1.5), DTypeError, "the stop of a slice must be an integer, got 1.5"),
        (slice(True, None), DTypeError, "the start of a slice must be an integer, got True"),
        ([[0], [1, 2]], DTypeError, "lists of one length"),
        (["a"], DTypeError, "index must be integers, not string"),
    ],
)
def test_a_wrong_index_is_an_error(index: Any, error: type[GraphcoreError], text: str) -> None:
    x = symbol(["n", "m", 5])
    with pytest.raises(error, match=f"^getitem: .*{text}"):
        x[index]


def test_a_list_of_symbols_is_an_error() -> None:
    graph = Graph("test", {"x": TensorType(DType.float32, ["n"]), "i": TensorType(DType.int64, [])})
    x, i = graph.inputs
    with pytest.raises(DTypeError, match=r"combine Symbols with ops\.stack"):
        x[[i, i]]


def test_a_mask_of_other_named_dims_is_an_error() -> None:
    graph = Graph("test", {"x": TensorType(DType.float32, ["n"]), "mask": TensorType(DType.bool, ["m"])})
    with pytest.raises(ShapeError, match=r"getitem: the mask does not fit: its dims are \[m\]"):
        graph[0][graph[1]]
    flag = Graph("test", {"x": TensorType(DType.float32, ["n"]), "flag": TensorType(DType.bool, [])})
    with pytest.raises(DTypeError, match="a bool scalar is not an index"):
        flag[0][flag[1]]


def test_slice_refuses_what_is_not_a_slice() -> None:
    x = symbol(["n", "m", 5])
    with pytest.raises(ShapeError, match="slice: got an array of positions"):
        ops.slice(x, [0, 1])
    with pytest.raises(ShapeError, match="slice: 1 out_dims for a result of rank 3"):
        ops.slice(x, slice(1, 2), out_dims=["k"])
    with pytest.raises(ShapeError, match="slice: a length of 5 cannot be named 4"):
        ops.slice(x, out_dims=["n", "m", 4])
    with pytest.raises(ShapeError, match="slice: there is no axis 3"):
        ops.slice(x, 0, axis=3)
    with pytest.raises(ShapeError, match="slice_tensor: too many indices"):
        ops.slice_tensor(x, [0, 0, 0, 0])


# Anything NumPy takes

_SIZES = (3, 4, 2)
_GRID = np.arange(24, dtype=np.float32).reshape(_SIZES)


@st.composite
def _indices(draw: st.DrawFn) -> tuple[Any, ...]:
    """An index of `_GRID` that NumPy takes: arrays of shape [2], [2, 1] or none broadcast together."""
    parts: list[Any] = []
    axes = draw(st.integers(0, 3))
    dots = draw(st.integers(-3, axes))
    for axis in range(axes):
        size = _SIZES[axis] if axis < dots or dots < 0 else _SIZES[axis - axes]
        if axis == dots:
            parts.append(...)
        kind = draw(st.sampled_from(["int", "slice", "slice", "array", "new"]))
        if kind == "new":
            parts.append(None)
        if kind == "int":
            parts.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            shape = draw(st.sampled_from([(2,), (2, 1), (1,)]))
            flat = draw(st.tuples(*[st.integers(-size, size - 1)] * int(np.prod(shape))))
            parts.append(np.array(flat, np.int64).reshape(shape))
        else:
            bound = st.none() | st.integers(-size - 2, size + 2)
            step = draw(st.none() | st.integers(1, 3) | st.integers(-3, -1))
            parts.append(slice(draw(bound), draw(bound), step))
    return tuple(parts)


@settings(max_examples=drawn(60))
@given(st.lists(_indices(), min_size=4, max_size=4))
def test_any_index_gives_what_numpy_gives(indices: list[tuple[Any, ...]]) -> None:
    check(indices, _GRID)
