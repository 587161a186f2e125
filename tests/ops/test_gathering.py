"""Gathering, scattering, finding and choosing elements, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcore import Dim, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import (
    DTypeError,
    GraphcoreError,
    GraphError,
    LossyCastWarning,
    PromotionError,
    RunError,
    ShapeError,
)
from tests.support.graphs import graph_of, run, run1

Array = np.ndarray[Any, Any]

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
INDEX_DTYPES = [np.int64, np.int32, np.int8, np.uint16]
DTYPES = [DType.bool, DType.int8, DType.uint16, DType.int32, DType.int64, DType.float16, DType.bfloat16, DType.float64]
REDUCTIONS: dict[str, Any] = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}


def symbols(*types: tuple[DType, list[int | str]]) -> tuple[Symbol, ...]:
    return Graph("test", [TensorType(dtype, dims) for dtype, dims in types]).inputs


F32, I64, BOOL = DType.float32, DType.int64, DType.bool

# Taking


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_gather_takes_slices_along_an_axis(dtype: type[np.generic]) -> None:
    indices = np.array([[0, 1], [1, 0]]).astype(dtype)
    results = run(lambda x, i: [ops.gather(x, i, axis=axis) for axis in (0, 1, -1)], X, indices)
    for axis, result in zip((0, 1, -1), results, strict=True):
        np.testing.assert_array_equal(result, np.take(X, indices, axis=axis))


def test_gather_wraps_negative_indices_and_takes_scalars() -> None:
    first, second = run(lambda x: [ops.gather(x, np.array([-1, 0]), axis=1), ops.gather(x, -1, axis=2)], X)
    np.testing.assert_array_equal(first, X[:, [-1, 0]])
    np.testing.assert_array_equal(second, X[..., -1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_keeps_every_dtype(dtype: DType) -> None:
    x = np.arange(6).reshape(3, 2).astype(dtype.numpy)
    np.testing.assert_array_equal(run1(lambda x: ops.gather(x, np.array([2, 0])), x), x[[2, 0]])


def test_gather_replaces_a_dim_by_those_of_the_indices() -> None:
    x, i = symbols((F32, ["n", "m"]), (I64, ["k", 2]))
    assert ops.gather(x, i, axis=1).type == TensorType(F32, ["n", "k", 2])


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_embedding_takes_a_row_for_each_id(dtype: type[np.generic]) -> None:
    table, ids = np.arange(20, dtype=np.float32).reshape(5, 4), np.array([[4, 0, 4], [1, 2, 3]]).astype(dtype)
    dims: list[list[int | str]] = [["n", "d"], ["b", "t"]]
    np.testing.assert_array_equal(run1(ops.embedding, table, ids, dims=dims), table[ids], strict=True)
    t, i = symbols((F32, ["n", "d"]), (I64, ["b", "t"]))
    assert ops.embedding(t, i).type == TensorType(F32, ["b", "t", "d"])


def test_gather_nd_takes_slices_at_coordinates() -> None:
    pairs = np.array([[0, 2], [1, -1], [-2, 0]], np.int32)
    batched = np.array([[[2], [0]], [[1], [-1]]])

    def function(x: Symbol, pairs: Symbol, batched: Symbol) -> list[Symbol]:
        return [ops.gather_nd(x, pairs), ops.gather_nd(x, batched, batch_dims=1), ops.gather_nd(x, batched[0, 1])]

    dims: list[list[int | str]] = [["b", "n", "m"], ["k", 2], ["b", "l", 1]]
    results = run(function, X, pairs, batched, dims=dims)
    wanted = [X[pairs[:, 0], pairs[:, 1]], np.stack([X[0, [2, 0]], X[1, [1, -1]]]), X[0]]
    for result, expected in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_take_along_axis_takes_one_element_for_each_index() -> None:
    order = np.argsort(-X, axis=1)
    result = run1(lambda x, i: ops.take_along_axis(x, i, axis=1), X, order, dims=[["b", "n", "m"]] * 2)
    np.testing.assert_array_equal(result, np.take_along_axis(X, order, axis=1))
    last = np.array([[[0], [-1], [1]], [[3], [2], [0]]], np.int16)
    result = run1(ops.take_along_axis, X, last, dims=[["b", "n", "m"], ["b", "n", "k"]])
    np.testing.assert_array_equal(result, np.take_along_axis(X, last, axis=-1))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take_along_axis_broadcasts_the_other_dims(axis: int) -> None:
    shape: list[int | str] = [1, 1, 1]
    shape[axis] = "k"
    indices = np.array([1, 0, -1]).reshape([-1 if d == "k" else 1 for d in shape])
    result = run1(lambda x, i: ops.take_along_axis(x, i, axis=axis), X, indices, dims=[["b", "n", 4], shape])
    np.testing.assert_array_equal(result, np.take_along_axis(X, indices, axis=axis))
    narrow = X[:1] if axis else X[:, :1]
    wide = np.zeros([3 if i == axis else n for i, n in enumerate(X.shape)], np.int64)
    result = run1(lambda x, i: ops.take_along_axis(x, i, axis=axis), narrow, wide, dims=[narrow.shape, wide.shape])
    np.testing.assert_array_equal(result, np.take_along_axis(narrow, wide, axis=axis))


# Finding


@pytest.mark.parametrize("dtype", [*DTYPES, DType.uint64])
def test_nonzero_gives_a_row_of_coordinates_for_each_element(dtype: DType) -> None:
    x = np.array([[0, 1, 0], [3, 0, 7]]).astype(dtype.numpy)
    np.testing.assert_array_equal(run1(ops.nonzero, x), np.argwhere(x != 0), strict=True)


def test_nonzero_finds_nan_and_the_smallest_numbers() -> None:
    x = np.array([0.0, -0.0, np.nan, 5e-324, 1e-300, np.inf])
    np.testing.assert_array_equal(run1(ops.nonzero, x), [[2], [3], [4], [5]])


def test_nonzero_names_its_rows_where_asked() -> None:
    (x,) = symbols((F32, ["n", "m"]))
    assert ops.nonzero(x).type == TensorType(I64, [Dim.dynamic(), 2])
    assert ops.nonzero(x, out_dim="found").type == TensorType(I64, ["found", 2])


# Choosing


@pytest.mark.parametrize("op", [ops.where, ops.select])
def test_where_chooses_and_broadcasts(op: Callable[..., Symbol]) -> None:
    condition = np.array([[True], [False], [True]])
    y = -np.arange(4, dtype=np.float32)
    result = run1(op, condition, X, y, dims=[["n", 1], ["b", "n", "m"], ["m"]])
    np.testing.assert_array_equal(result, np.where(condition, X, y), strict=True)


@pytest.mark.parametrize("dtype", [*DTYPES, DType.uint32, DType.uint64])
def test_where_works_for_every_dtype(dtype: DType) -> None:
    x, y = np.array([0, 1, 1]).astype(dtype.numpy), np.array([1, 0, 1]).astype(dtype.numpy)
    condition = np.array([True, False, True])
    result = run1(ops.where, condition, x, y, dims=[["n"]] * 3)
    np.testing.assert_array_equal(result, np.where(condition, x, y), strict=True)


def test_where_promotes_its_choices_and_not_its_condition() -> None:
    condition, x, y = symbols((DType.float64, ["n"]), (DType.int8, ["n"]), (DType.float16, ["n"]))
    assert ops.where(condition, x, y).dtype is DType.float16
    assert ops.where(condition, x, 3).dtype is DType.int8
    assert ops.where(condition, 2, 3.5).dtype is DType.float32
    assert ops.where(condition, 2, 3).dtype is DType.int64


def test_where_reads_a_number_as_whether_it_is_not_zero() -> None:
    condition = np.array([0.0, 0.25, np.nan, -3.0, 1e-300])
    result = run1(lambda c: ops.where(c, 1, 2), condition)
    np.testing.assert_array_equal(result, [2, 1, 1, 1, 1])


def test_where_refuses_what_does_not_go_together() -> None:
    condition, x, y = symbols((BOOL, ["n"]), (F32, ["n"]), (DType.float8_e4m3fn, ["n"]))
    with pytest.raises(PromotionError, match=r"where: float32 and float8_e4m3fn have no common dtype"):
        ops.where(condition, x, y)
    with pytest.raises(ShapeError, match=r"where: shapes do not broadcast: n and 3"):
        ops.where(condition, x, np.zeros(3, np.float32))
    with pytest.raises(DTypeError, match=r"select: condition must be bools or numbers, got string"):
        ops.select(condition.graph.constant(["a"]), x, x)
    with pytest.raises(DTypeError, match=r"where: 2.5 cannot be held in bool"):
        ops.where(condition, condition, 2.5)
    with pytest.raises(GraphError, match=r"no operand is a Symbol"):
        ops.where(True, 1, 2)


# Putting


def scattered(x: Array, updates: Array, indices: Array, axis: int, reduction: Any = None) -> Array:
    """Element by element, as arrays of rank 0: np.where takes integers beyond int64 only in arrays of dtype object."""
    result = x.copy()
    for position in np.ndindex(indices.shape):
        place = [*position]
        place[axis] = int(indices[position])
        at, update = (*place, ...), updates[(*position, ...)]
        result[at] = update if reduction is None else reduction(result[at], update)
    return result


def scattered_nd(x: Array, updates: Array, indices: Array, reduction: Any = None) -> Array:
    result = x.copy()
    for position in np.ndindex(indices.shape[:-1]):
        at: Any = (*map(int, indices[position]), ...)
        update = updates[(*position, ...)]
        result[at] = update if reduction is None else reduction(result[at], update)
    return result


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_replaces_elements(axis: int, dtype: type[np.generic]) -> None:
    x = np.zeros((3, 4), np.float32)
    indices = np.array([[0, 2], [1, 0]]).astype(dtype)
    updates = np.array([[1, 2], [3, 4]], np.float32)
    result = run1(lambda x, u, i: ops.scatter(x, u, i, axis=axis), x, updates, indices, dims=[[3, "m"], [2, 2], [2, 2]])
    np.testing.assert_array_equal(result, scattered(x, updates, indices, axis), strict=True)


def test_scatter_wraps_negative_indices() -> None:
    result = run1(lambda x: ops.scatter(x, np.array([9, 8], np.float32), np.array([-1, 0])), np.zeros(3, np.float32))
    np.testing.assert_array_equal(result, [8, 0, 9])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_combines_with_every_update(dtype: DType, reduction: str) -> None:
    x = np.array([[3, 0, 5, 1], [0, 1, 2, 7]]).astype(dtype.numpy)
    updates = np.array([[2, 0, 6], [1, 3, 1]]).astype(dtype.numpy)
    indices = np.array([[0, 3, 0], [1, 1, -1]])
    op = getattr(ops, f"scatter_{reduction}")
    result = run1(op, x, updates, indices, dims=[["n", "m"], ["n", "k"], ["n", "k"]])
    np.testing.assert_array_equal(result, scattered(x, updates, indices, -1, REDUCTIONS[reduction]), strict=True)


@pytest.mark.parametrize("dtype", [DType.int8, DType.bfloat16, DType.bool])
def test_scatter_nd_replaces_slices(dtype: DType) -> None:
    x = np.zeros((3, 4, 2)).astype(dtype.numpy)
    indices = np.array([[0, 1], [2, -1]], np.int32)
    updates = np.array([[1, 2], [3, 4]]).astype(dtype.numpy)
    result = run1(ops.scatter_nd, x, updates, indices, dims=[["n", "m", 2], ["k", 2], ["k", 2]])
    np.testing.assert_array_equal(result, scattered_nd(x, updates, indices), strict=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_nd_combines_with_every_update(dtype: DType, reduction: str) -> None:
    x = np.array([[3, 0], [5, 1], [1, 0]]).astype(dtype.numpy)
    updates = np.array([[2, 0], [6, 1], [0, 3]]).astype(dtype.numpy)
    indices = np.array([[1], [-1], [1]])
    op = getattr(ops, f"scatter_nd_{reduction}")
    result = run1(op, x, updates, indices, dims=[["n", "m"], ["k", "m"], ["k", 1]])
    np.testing.assert_array_equal(result, scattered_nd(x, updates, indices, REDUCTIONS[reduction]), strict=True)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_index_add_adds_every_slice(dtype: DType, axis: int) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(dtype.numpy)
    index = np.array([0, 1, -1, 0, 0])
    values = np.moveaxis(np.arange(5 * 12).reshape(5, -1) % 3, 0, axis)
    shape = [*x.shape]
    shape[axis] = 5
    values = np.resize(values, shape).astype(dtype.numpy)
    wanted = x.copy()
    at: list[Any] = [slice(None)] * 3
    at[axis] = index
    np.add.at(wanted, tuple(at), values)
    dims: list[list[int | str]] = [["a", "b", "c"], ["k"], ["a", "b", "c"]]
    dims[2][axis] = "k"
    result = run1(lambda x, i, v: ops.index_add(x, axis, i, v), x, index, values, dims=dims)
    np.testing.assert_array_equal(result, wanted, strict=True)


@pytest.mark.parametrize("ids", [[2, 0, 2, 1, 2], [-1, 0, 3, 400, 2], [3, 3, 3, -3, -3]])
@pytest.mark.parametrize("dtype", DTYPES)
def test_segment_sum_adds_slices_of_one_id(dtype: DType, ids: list[int]) -> None:
    values, segments = np.arange(10).reshape(5, 2).astype(dtype.numpy), np.array(ids)
    inside = (segments >= 0) & (segments < 3)
    wanted = np.zeros((3, 2), dtype.numpy)
    np.add.at(wanted, segments[inside], values[inside])

    def function(values: Symbol, ids: Symbol, count: Symbol, three: Symbol) -> list[Symbol]:
        constant = ops.segment_sum(values.rebind([5, 2]), segments, 3)
        return [constant, *(ops.segment_sum(values, ids, n) for n in (3, count, three.shape[0]))]

    dims: list[list[int | str]] = [["n", 2], ["n"], [], ["three"]]
    for result in run(function, values, segments, np.array(3), np.zeros(3, np.float32), dims=dims):
        np.testing.assert_array_equal(result, wanted, strict=True)


def test_segment_sum_of_nothing_and_of_scalars() -> None:
    values, ids = np.array([1.5, 2.5, 4.0], np.float32), np.array([1, 1, 0], np.int8)
    none, sums = run(
        lambda v, i: [ops.segment_sum(v, i, 0), ops.segment_sum(v, i, 2)], values, ids, dims=[["n"], ["n"]]
    )
    np.testing.assert_array_equal(none, np.zeros(0, np.float32), strict=True)
    np.testing.assert_array_equal(sums, np.array([4.0, 4.0], np.float32), strict=True)
    v, i = symbols((F32, ["n", "d"]), (I64, ["n"]))
    assert ops.segment_sum(v, i, "d").type == TensorType(F32, ["d", "d"])


@pytest.mark.parametrize("dtype", [DType.uint8, DType.int16])
def test_scattered_integers_wrap(dtype: DType) -> None:
    x = np.array([int(dtype.max), 3]).astype(dtype.numpy)
    twos, indices = np.full(3, 2, dtype.numpy), np.array([0, 0, 1])

    def function(x: Symbol, u: Symbol, i: Symbol) -> list[Symbol]:
        return [ops.scatter_add(x, u, i), ops.scatter_mul(x, u, i)]

    added, multiplied = run(function, x, twos, indices, dims=[["n"], ["k"], ["k"]])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(added, scattered(x, twos, indices, 0, np.add))
        np.testing.assert_array_equal(multiplied, scattered(x, twos, indices, 0, np.multiply))


@pytest.mark.parametrize("dtype", [DType.float32, DType.float16, DType.float64])
def test_scattered_extremes_propagate_nan(dtype: DType) -> None:
    x, updates = np.array([np.nan, 1, 2]).astype(dtype.numpy), np.array([0, np.nan, 5]).astype(dtype.numpy)
    indices = np.arange(3)

    def function(x: Symbol, u: Symbol, i: Symbol) -> list[Symbol]:
        return [ops.scatter_max(x, u, i), ops.scatter_min(x, u, i)]

    greatest, least = run(function, x, updates, indices, dims=[["n"], ["k"], ["k"]])
    np.testing.assert_array_equal(greatest, [np.nan, np.nan, 5])
    np.testing.assert_array_equal(least, [np.nan, np.nan, 2])


def test_scattered_extremes_of_bools_equal_numpy() -> None:
    x, updates = np.array([False, False, True, True]), np.array([False, True, False, True])
    indices = np.arange(4)

    def function(x: Symbol, u: Symbol, i: Symbol) -> list[Symbol]:
        rows = ops.unsqueeze(i, 1)
        along = [ops.scatter_max(x, u, i), ops.scatter_min(x, u, i)]
        return [*along, ops.scatter_nd_max(x, u, rows), ops.scatter_nd_min(x, u, rows)]

    results = run(function, x, updates, indices, dims=[["n"], ["k"], ["k"]])
    for result, extreme in zip(results, [np.maximum, np.minimum] * 2, strict=True):
        np.testing.assert_array_equal(result, extreme(x, updates), strict=True)


def test_updates_are_cast_to_the_dtype_of_x_where_promotion_says_so() -> None:
    x, small, i = symbols((F32, ["n"]), (DType.int8, ["k"]), (I64, ["k"]))
    assert ops.scatter(x, small, i).type == TensorType(F32, ["n"])
    with pytest.warns(LossyCastWarning, match="scatter: the implicit cast of updates from int64 to float16"):
        ops.scatter(x.cast(DType.float16), i, i)
    with pytest.raises(
        DTypeError, match=r"scatter_add: the result has the dtype of x, int8, but .* promote to float32"
    ):
        ops.scatter_add(small, x, i)
    with pytest.raises(DTypeError, match=r"help: cast updates: \.cast\(DType\.int8\), or x: \.cast\(DType\.float32\)"):
        ops.masked_scatter(small, True, x)


def test_masked_scatter_takes_updates_in_order() -> None:
    mask = X % 5 == 0
    updates = -np.arange(10, dtype=np.float32)
    wanted = X.copy()
    wanted[mask] = updates[: mask.sum()]
    dims: list[list[int | str]] = [["b", "n", "m"], ["b", "n", "m"], ["k", 2]]
    result = run1(ops.masked_scatter, X, mask, updates.reshape(5, 2), dims=dims)
    np.testing.assert_array_equal(result, wanted, strict=True)


def test_masked_scatter_fails_when_there_are_too_few_updates() -> None:
    mask = np.array([True, True, False])
    with pytest.raises(RunError):
        run(ops.masked_scatter, np.zeros(3, np.float32), mask, np.ones(1, np.float32), dims=[["n"], ["n"], ["k"]])


def test_masked_scatter_broadcasts_the_mask() -> None:
    mask = np.array([0, 2, 0, -1], np.int8)
    wanted = X.copy()
    wanted[..., [1, 3]] = np.arange(12).reshape(2, 3, 2)
    updates = np.arange(12, dtype=np.int16)
    result = run1(ops.masked_scatter, X, mask, updates, dims=[["b", "n", "m"], ["m"], ["k"]])
    np.testing.assert_array_equal(result, wanted, strict=True)
    none = run1(lambda x: ops.masked_scatter(x, False, np.zeros(0, np.float32)), X)
    np.testing.assert_array_equal(none, X)


# What is refused


def _wrong() -> list[tuple[str, Callable[[Symbol, Symbol, Symbol], Any], type[GraphcoreError], str]]:
    """An op, a call with x float32[n, 3], i int64[k, 2] and a bool mask [n], and the error."""
    f = np.zeros((2, 2), np.float32)
    a_list: Any = [0]
    return [
        ("gather", lambda x, i, m: ops.gather(x, i, axis=2), ShapeError, "there is no axis 2 of a tensor of rank 2"),
        ("gather", lambda x, i, m: ops.gather(x, x), DTypeError, "indices must be integers, not float32"),
        ("gather", lambda x, i, m: ops.gather(x, m), DTypeError, "indices must be integers, not bool"),
        ("gather", lambda x, i, m: ops.gather(x, 3, 1), ShapeError, "index 3 is out of bounds for axis 1 of size 3"),
        ("gather", lambda x, i, m: ops.gather(x, a_list), DTypeError, "indices has unsupported type list"),
        ("embedding", lambda x, i, m: ops.embedding(x[0], i), ShapeError, "table must have rank 2, got 1"),
        ("embedding", lambda x, i, m: ops.embedding(x, x), DTypeError, "ids must be integers, not float32"),
        ("embedding", lambda x, i, m: ops.embedding(x, -1), ShapeError, "id -1 is below 0"),
        (
            "embedding", lambda x, i, m: ops.embedding(x.graph.constant(f), 2),
            ShapeError, "index 2 is out of bounds for axis 0 of size 2",
        ),
        ("index_add", lambda x, i, m: ops.index_add(x, 2, i[:, 0], f), ShapeError, "there is no axis 2"),
        ("index_add", lambda x, i, m: ops.index_add(x, 1, i, f), ShapeError, "index must have rank 1, got 2"),
        ("index_add", lambda x, i, m: ops.index_add(x, 1, m, f), DTypeError, "index must be integers, not bool"),
        (
            "index_add", lambda x, i, m: ops.index_add(x, 1, i[:, 0], x),
            ShapeError, r"values must have shape \[n, k\], got \[n, 3\]",
        ),
        (
            "index_add", lambda x, i, m: ops.index_add(x, 1, np.array([3]), x[:, :1]),
            ShapeError, "index 3 is out of bounds for axis 1 of size 3",
        ),
        (
            "index_add", lambda x, i, m: ops.index_add(i, 0, i[:, 0], ops.cast(i, "float32")),
            DTypeError, "the result has the dtype of x, int64, but x and values promote to float32",
        ),
        ("segment_sum", lambda x, i, m: ops.segment_sum(x, i[:, 0], 3), ShapeError, r"got shapes \[k\] and \[n, 3\]"),
        ("segment_sum", lambda x, i, m: ops.segment_sum(x[0, 0], 0, 3), ShapeError, r"got shapes \[\] and \[\]"),
        ("segment_sum", lambda x, i, m: ops.segment_sum(x, m, 3), DTypeError, "ids must be integers, not bool"),
        ("segment_sum", lambda x, i, m: ops.segment_sum(i, i[:, 0], -1), ShapeError, "-1 is not a valid dim"),
        (
            "segment_sum", lambda x, i, m: ops.segment_sum(ops.string_of(i), i[:, 0], 2),
            DTypeError, "this has no meaning for string",
        ),
        ("gather_nd", lambda x, i, m: ops.gather_nd(x, i[:, 0]), ShapeError, "must be 1 to 2, got k"),
        ("gather_nd", lambda x, i, m: ops.gather_nd(x, i[0, 0]), ShapeError, "must be 1 to 2, got a scalar"),
        ("gather_nd", lambda x, i, m: ops.gather_nd(x, i, batch_dims=1), ShapeError, "batch dims differ at axis 0: n"),
        ("gather_nd", lambda x, i, m: ops.gather_nd(x, i, batch_dims=2), ShapeError, "batch_dims=2 is not possible"),
        ("gather_nd", lambda x, i, m: ops.gather_nd(x, i, batch_dims=True), ShapeError, "batch_dims=True is not"),
        ("gather_nd", lambda x, i, m: ops.gather_nd(x, np.array([0, -4])), ShapeError, "index -4 is out of bounds"),
        (
            "take_along_axis", lambda x, i, m: ops.take_along_axis(x, i),
            ShapeError, "dims other than axis 1 do not broadcast: n",
        ),
        ("take_along_axis", lambda x, i, m: ops.take_along_axis(x, i[0]), ShapeError, "the ranks .* differ: 2 and 1"),
        ("take_along_axis", lambda x, i, m: ops.take_along_axis(x, np.array([[3]])), ShapeError, "index 3 is out of"),
        ("nonzero", lambda x, i, m: ops.nonzero(x[0, 0]), ShapeError, "x must have an axis, got a scalar"),
        (
            "nonzero", lambda x, i, m: ops.nonzero(x.graph.constant(["a"])),
            DTypeError, "x must be bools or numbers, got string",
        ),
        ("scatter", lambda x, i, m: ops.scatter(x, f, i), ShapeError, "updates and indices differ at axis 0: 2 and k"),
        ("scatter", lambda x, i, m: ops.scatter(x, 0.0, i), ShapeError, "the ranks .* must be equal and not 0"),
        ("scatter", lambda x, i, m: ops.scatter(x, f, f), DTypeError, "indices must be integers, not float32"),
        ("scatter", lambda x, i, m: ops.scatter(x, f, i, axis=5), ShapeError, "there is no axis 5"),
        (
            "scatter_max", lambda x, i, m: ops.scatter_max(x, np.zeros((1, 4), np.float32), np.array([[0] * 4]), 0),
            ShapeError, "indices are longer than x at axis 1: 4 and 3",
        ),
        ("scatter", lambda x, i, m: ops.scatter(x, f, np.full((2, 2), 3)), ShapeError, "index 3 is out of bounds"),
        ("scatter_nd", lambda x, i, m: ops.scatter_nd(x, f, i), ShapeError, r"updates must have shape \[k\], got"),
        ("scatter_nd", lambda x, i, m: ops.scatter_nd(x, f, f), DTypeError, "indices must be integers, not float32"),
        (
            "scatter_nd_mul", lambda x, i, m: ops.scatter_nd_mul(x, f[0], np.array([[0, 0], [0, 3]])),
            ShapeError, "index 3 is out of bounds for axis 1 of size 3",
        ),
        (
            "scatter_nd_add",
            lambda x, i, m: ops.scatter_nd_add(x.graph.constant(["a"]), x.graph.constant("b"), np.array([0])),
            DTypeError, "has no meaning for string",
        ),
        ("masked_scatter", lambda x, i, m: ops.masked_scatter(x, m, f), ShapeError, "shapes do not broadcast: 3 and n"),
        ("masked_scatter", lambda x, i, m: ops.masked_scatter(x[0, :1], x, f), ShapeError, "does not broadcast to"),
        (
            "masked_scatter", lambda x, i, m: ops.masked_scatter(x[0, 0], True, f),
            ShapeError, "x must have an axis, got a scalar",
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "call", "error", "text"), _wrong())
def test_a_wrong_call_is_an_error(
    name: str, call: Callable[[Symbol, Symbol, Symbol], Any], error: type[GraphcoreError], text: str
) -> None:
    x, i, mask = symbols((F32, ["n", 3]), (I64, ["k", 2]), (BOOL, ["n"]))
    with pytest.raises(error, match=f"^{name}: .*{text}"):
        call(x, i, mask)


def test_one_operator_is_emitted_where_onnx_has_one() -> None:
    i = np.zeros((2, 2), np.int64)
    calls: dict[str, Callable[[Symbol], Symbol]] = {
        "Gather": lambda x: ops.gather(x, i),
        "GatherND": lambda x: ops.gather_nd(x, i),
        "GatherElements": lambda x: ops.take_along_axis(x, i),
        "ScatterElements": lambda x: ops.scatter_add(x, np.ones((2, 2), np.float32), i),
        "ScatterND": lambda x: ops.scatter_nd(x, np.ones(2, np.float32), i),
        "Where": lambda x: ops.where(np.ones((2, 2), bool), x, 0),
    }
    for op_type, call in calls.items():
        graph = graph_of(call, np.zeros((2, 2), np.float32), dims=[[2, 2]])
        assert [node.op_type for node in graph.nodes] == [op_type]
