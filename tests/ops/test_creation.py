"""Constants, ranges and tensors of one value: `ops/creation.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcore import Dim, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from tests.support.graphs import run, run1

Array = np.ndarray[Any, Any]
UNKNOWN = Dim.dynamic()
NO_SIZE: Any = 2.5
NO_SCALAR: Any = [1, 2]
X = np.arange(12, dtype=np.float32).reshape(3, 4)
NUMBERS = [DType.int8, DType.uint16, DType.int32, DType.uint64, DType.float16, DType.bfloat16, DType.float64]


def symbol(*dims: Any, dtype: DType = DType.float32) -> Symbol:
    return Graph("test", {"x": TensorType(dtype, dims)})["x"]


# Constants


def test_constant_is_in_current_graph_when_made() -> None:
    result = run1(lambda x: x + ops.constant([[1, 2, 3, 4]], DType.float32), X, dims=[["n", 4]])
    np.testing.assert_array_equal(result, X + np.array([[1, 2, 3, 4]], np.float32))


def test_constant_has_dtype_of_value_when_none_is_given() -> None:
    with Graph("test"):
        assert ops.constant(True).dtype is DType.bool
        assert ops.constant([1, 2]).type == TensorType(DType.int64, [2])
        assert ops.constant(1.5).dtype is DType.float32
        assert ops.constant(np.float64(1.5)).dtype is DType.float64


def test_constant_raises_when_dtype_cannot_hold_value() -> None:
    with Graph("test"):
        with pytest.raises(DTypeError, match=r"1\.5 cannot be held in int32"):
            ops.constant(1.5, DType.int32)
        with pytest.raises(DTypeError, match="constant: no dtype is called 'int33x'"):
            ops.constant(1, "int33x")


def test_creation_raises_when_no_graph_is_current() -> None:
    with pytest.raises(GraphError, match="there is no current graph"):
        ops.constant(1)
    with pytest.raises(GraphError, match=r"zeros: .* there is no graph to build in"):
        ops.zeros([2])
    with pytest.raises(GraphError, match=r"range: .* there is no graph to build in"):
        ops.range(3)


# One value everywhere


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([2, 3], (2, 3)),
        (5, (5,)),
        ("n", (3,)),
        (["n", 2, "m"], (3, 2, 4)),
        ([Dim("n") * 2 + 1, "m"], (7, 4)),
        (["n", 0], (3, 0)),
        ([], ()),
    ],
)
def test_full_fills_shape_when_static_or_symbolic(shape: Any, expected: tuple[int, ...]) -> None:
    filled, zeros, ones = run(
        lambda x: (ops.full(shape, 7), ops.zeros(shape), ops.ones(shape, "int8")), X, dims=[["n", "m"]]
    )
    np.testing.assert_array_equal(filled, np.full(expected, 7, np.int64))
    np.testing.assert_array_equal(zeros, np.zeros(expected, np.float32))
    np.testing.assert_array_equal(ones, np.ones(expected, np.int8))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (True, None, DType.bool),
        (3, None, DType.int64),
        (0.1, None, DType.float32),
        (np.float64(0.1), None, DType.float64),
        (np.int8(3), None, DType.int8),
        (3, "float32", DType.float32),
        (float("inf"), "float16", DType.float16),
        (2**63, "uint64", DType.uint64),
        (-0.0, "float64", DType.float64),
    ],
)
def test_full_has_dtype_when_given_or_of_value(value: Any, dtype: str | None, expected: DType) -> None:
    result = run1(lambda x: ops.full(["n", 2], value, dtype), X, dims=[["n", "m"]])
    want = np.full((3, 2), value, expected.numpy)
    assert result.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    "dtype", [*NUMBERS, DType.bool, DType.int4, DType.float8_e4m3fn, DType.tf32, DType.index, DType.int(24)], ids=str
)
def test_ones_are_one_when_of_any_dtype(dtype: DType) -> None:
    result = run1(lambda x: ops.ones(["n"], dtype).cast(DType.float32), X, dims=[["n", "m"]])
    np.testing.assert_array_equal(result, np.ones(3, np.float32))


def test_full_takes_symbol_when_value_is_known_at_run_time() -> None:
    result = run1(lambda x, v: ops.full(["n", 2], v), X, np.array(2.5, np.float32), dims=[["n", "m"], []])
    np.testing.assert_array_equal(result, np.full((3, 2), 2.5, np.float32))
    result = run1(lambda x, v: ops.full([2], v, "int8"), X, np.array(2.5, np.float32))
    np.testing.assert_array_equal(result, np.full(2, 2, np.int8))


def test_graph_makes_full_and_range_when_not_current() -> None:
    graph = Graph("test", {"x": TensorType(DType.float32, ["n"])})
    assert graph.full(1.0, ["n", 2]).type == TensorType(DType.float32, ["n", 2])
    assert graph.range(2, "n").type == TensorType(DType.int64, [Dim.maximum(Dim("n") - 2, 0)])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ops.zeros(["k"]), ShapeError, "zeros: no Symbol has a dim 'k'"),
        (lambda: ops.ones([UNKNOWN]), ShapeError, "ones: the size of an unknown dim"),
        (lambda: ops.full([-1], 0), ShapeError, "full: -1 is not a valid dim"),
        (lambda: ops.full([NO_SIZE], 0), ShapeError, "full: 2.5 is not a valid dim"),
        (lambda: ops.full([2], NO_SCALAR), ShapeError, r"full: value must be a scalar, got shape \[2\]"),
        (lambda: ops.full([2], 300, "int8"), DTypeError, "full: 300 cannot be held in int8"),
        (lambda: ops.full([2], 1.5, "int8"), DTypeError, "full: 1.5 cannot be held in int8"),
        (lambda: ops.full([2], 1e10, "float16"), DTypeError, "full: 10000000000.0 cannot be held in float16"),
        (lambda: ops.zeros([2], "int0"), DTypeError, "zeros: "),
        (lambda: ops.full([2], Graph.current()["x"]), ShapeError, r"full: value must be a scalar, got shape \[n\]"),
    ],
)
def test_full_raises_when_shape_or_value_cannot_be(
    make: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with symbol("n").graph, pytest.raises(error, match=message):
        make()


FROM_DIMS = {
    "zeros": lambda x: ops.zeros([x.shape[0], 4]),
    "zeros of a static shape": lambda x: ops.zeros(x.shape[1]),
    "full": lambda x: ops.full([x.shape[0] * 2, 4], 2.5),
    "range": lambda x: ops.range(x.shape[0]),
    "linspace": lambda x: ops.linspace(0, 1, x.shape[0]),
    "hann_window": lambda x: ops.hann_window(x.shape[0]),
    "random_uniform": lambda x: ops.random_uniform(x.shape, seed=1),
    "random_normal": lambda x: ops.random_normal(x.shape, seed=1),
    "random_int": lambda x: ops.random_int(x.shape, 0, 3, seed=1),
    "bernoulli": lambda x: ops.bernoulli(0.5, x.shape, seed=1),
    "permutation": lambda x: ops.permutation(x.shape[0], seed=1),
    "shape_to_tensor": lambda x: ops.shape_to_tensor(x.shape),
}


@pytest.mark.parametrize("name", FROM_DIMS)
def test_graph_is_that_of_the_dims_of_a_shape(name: str) -> None:
    x, other = symbol("n", 3), symbol("n", 3)
    assert FROM_DIMS[name](x).graph is x.graph
    assert FROM_DIMS[name](other).graph is other.graph
    with x.graph:
        assert FROM_DIMS[name](other).graph is x.graph


def test_dims_in_a_body_build_in_the_body() -> None:
    x = symbol("n", 3)
    result = ops.cond(ops.sum(x) > 0, lambda: ops.ones([x.shape[0], 3]) + x, lambda: x)
    assert result.type == x.type
    assert ops.zeros([x.shape[0]]).graph is x.graph


def test_dims_of_a_finished_graph_tell_no_graph() -> None:
    x = symbol("n")
    x.graph.output(y=x + 1)
    with pytest.raises(GraphError, match="zeros: no operand is a Symbol, so there is no graph to build in"):
        ops.zeros(x.shape)


@pytest.mark.parametrize("dtype", [DType.int32, DType.int64])
def test_sizes_are_scalars_that_the_graph_computes(dtype: DType) -> None:
    def build(x: Symbol) -> list[Symbol]:
        rows = ops.shape_of(x)[0].cast(dtype)
        return [ops.ones([rows, 2, x.shape[1]]), ops.full([rows], rows), ops.random_int([rows + 1], 5, 6, seed=1)]

    ones, rows, drawn = run(build, X, dims=[["n", "m"]])
    np.testing.assert_array_equal(ones, np.ones((3, 2, 4), np.float32))
    np.testing.assert_array_equal(rows, np.full(3, 3))
    np.testing.assert_array_equal(drawn, np.full(4, 5))


def test_sizes_must_be_integer_scalars() -> None:
    x = symbol("n", 3)
    with pytest.raises(ShapeError, match=r"zeros: size must be a scalar, got shape \[2\]"):
        ops.zeros([ops.shape_of(x), 4])
    with pytest.raises(ShapeError, match=r"zeros: a shape must be static here(.|\n)*broadcast_to takes a Symbol"):
        ops.zeros(ops.shape_of(x))
    with pytest.raises(DTypeError, match="zeros: size must have an integer dtype, got float32"):
        ops.zeros([x[0, 0], 4])


# Ranges


@pytest.mark.parametrize(
    "bounds", [(5,), (0,), (-3,), (2, 7), (7, 2), (0, 10, 3), (10, 0, -3), (-5, 5, 4), (3, 3),
               (np.int32(2), np.int64(9))]
)  # fmt: skip
def test_range_counts_when_bounds_are_ints(bounds: tuple[int, ...]) -> None:
    result = run1(lambda x: ops.range(*bounds), X)
    np.testing.assert_array_equal(result, np.arange(*bounds, dtype=np.int64))
    with symbol("n").graph:
        assert ops.range(*bounds).shape == [len(range(*bounds))]


@pytest.mark.parametrize("bounds", [(2.5,), (0, 1, 0.1), (1.0, 0.0, -0.25), (0.0, -1.0), (0, 0.3, 0.1)])
@pytest.mark.parametrize("dtype", [None, "float64", "bfloat16"])
def test_range_counts_when_bounds_are_floats(bounds: tuple[float, ...], dtype: str | None) -> None:
    result = run1(lambda x: ops.range(*bounds, dtype=dtype), X)
    expected = np.arange(*bounds)
    assert result.shape == expected.shape
    tolerance = {None: 1e-6, "float64": 1e-15, "bfloat16": 1e-2}[dtype]
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_range_counts_when_of_any_dtype(dtype: DType) -> None:
    counted, symbolic = run(
        lambda x: (ops.range(1, 9, 3, dtype=dtype), ops.range("n", dtype=dtype)), X, dims=[["n", 4]]
    )
    np.testing.assert_array_equal(counted, np.array([1, 4, 7]).astype(dtype.numpy))
    np.testing.assert_array_equal(symbolic, np.array([0, 1, 2]).astype(dtype.numpy))


@pytest.mark.parametrize(
    "make",
    [
        lambda n, m: (n,),
        lambda n, m: (1, n + m),
        lambda n, m: (n, m),
        lambda n, m: (m, n),
        lambda n, m: (0, n * m, 5),
        lambda n, m: (n * m, n, -2),
        lambda n, m: (n - 5, 2),
    ],
)
def test_range_counts_when_bounds_are_dims(make: Callable[..., tuple[Any, ...]]) -> None:
    result = run1(lambda x: ops.range(*make(Dim("n"), Dim("m"))), X, dims=[["n", "m"]])
    np.testing.assert_array_equal(result, np.arange(*make(3, 4)))


def test_range_has_named_length_when_up_to_dim() -> None:
    with symbol("n", Dim("m") * 2).graph:
        assert ops.range("n").shape == ["n"]
        assert ops.range(0, Dim("m") * 2, 2).shape == ["m"]
        assert ops.range("n", out_dim="rows").shape == ["rows"]


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.float16, np.float32, np.float64])
def test_range_counts_when_bounds_are_symbols(dtype: Any) -> None:
    start, stop = np.array(2, dtype), np.array(11, dtype)
    named, unnamed = run(lambda a, b: (ops.range(a, b, 3, out_dim="k"), ops.range(b)), start, stop)
    np.testing.assert_array_equal(named, np.arange(2, 11, 3).astype(dtype))
    np.testing.assert_array_equal(unnamed, np.arange(11).astype(dtype))
    assert named.dtype == dtype


def test_range_promotes_bounds_when_symbols_differ() -> None:
    start, stop = np.array(1, np.int8), np.array(4, np.int32)
    result = run1(lambda a, b: ops.range(a, b, out_dim=3, dtype="float64"), start, stop)
    np.testing.assert_array_equal(result, np.array([1, 2, 3], np.float64))


def test_range_goes_on_when_dim_meets_symbol() -> None:
    result = run1(lambda x, a: ops.range(a, x.shape[0]), X, np.array(1))
    np.testing.assert_array_equal(result, [1, 2])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda x: ops.range(0, 5, 0), ShapeError, "range: step must not be 0"),
        (lambda x: ops.range(0, 5, "n"), ShapeError, "range: step must be an int, got n"),
        (lambda x: ops.range(0, "k"), ShapeError, "range: no Symbol has a dim 'k'"),
        (lambda x: ops.range(0.5, "n"), ShapeError, "range: a Dim cannot be combined with a float bound"),
        (lambda x: ops.range(0, float("inf")), ShapeError, "range: stop must be finite, got inf"),
        (lambda x: ops.range(0, 5, out_dim=4), ShapeError, "range: out_dim is 4, but the length is 5"),
        (lambda x: ops.range(0.0, 5.0, out_dim=4), ShapeError, "range: out_dim is 4, but the length is 5"),
        (lambda x: ops.range(x), ShapeError, r"range: stop must be a scalar, got shape \[n\]"),
        (lambda x: ops.range(5, dtype="bool"), DTypeError, "range: dtype must be an integer or a float, got bool"),
        (lambda x: ops.range(x[0] > 0, x[0] > 1, True), DTypeError, "range: bounds must be numbers, got bool"),
        (lambda x: ops.range(True), DTypeError, "range: stop must be a number, got True"),
        (lambda x: ops.range([1]), DTypeError, r"range: stop must be a number, got \[1\]"),
        (lambda x: ops.range(0, 300, dtype="int8"), DTypeError, "range: 299 cannot be held in int8"),
        (lambda x: ops.range(-1, 3, dtype="uint8"), DTypeError, "range: -1 cannot be held in uint8"),
        (lambda x: ops.range(0.5, 3, dtype="int8"), DTypeError, "range: float bounds need a float dtype, got int8"),
    ],
)
def test_range_raises_when_bounds_cannot_be(
    make: Callable[[Symbol], Any], error: type[Exception], message: str
) -> None:
    x = symbol("n")
    with x.graph, pytest.raises(error, match=message):
        make(x)


# Equal distances


ENDS = [(0, 1), (-3.5, 2), (2, -7), (5, 5), (1e300, -1e300)]


@pytest.mark.parametrize(("start", "stop"), ENDS)
@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace_is_that_of_numpy(start: float, stop: float, count: int, endpoint: bool) -> None:
    want = np.array([start + (stop / 2 - start / 2) * i * 2 / max(count - endpoint, 1) for i in range(count)])
    for dtype in (DType.float64, None, DType.float16):
        near = {DType.float64: 1e-12, None: 1e-6, DType.float16: 1e-3}[dtype]
        if abs(start) > 1e9 and dtype is not DType.float64:
            continue
        result = run1(lambda x: ops.linspace(start, stop, count, endpoint, dtype), X)  # noqa: B023
        assert result.dtype == (np.float32 if dtype is None else dtype.numpy)
        np.testing.assert_allclose(result.astype(np.float64), want, rtol=near, atol=near * abs(stop))


@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace_between_symbols_broadcasts_them(endpoint: bool) -> None:
    low, high = np.array([[0.0], [2.0]]), np.array([1.0, -1.0, 3.0])
    first, last = np.broadcast_arrays(low, high)
    want = np.linspace(first, last, 5, endpoint)
    for dims in ([[2, 1], [3]], [["a", 1], ["b"]]):
        result = run1(lambda x, y: ops.linspace(x, y, 5, endpoint), low, high, dims=dims)
        np.testing.assert_allclose(result, want, rtol=1e-14)
    narrow = run1(lambda x: ops.linspace(0, x, 3), np.array([1, 2], np.float16))
    assert narrow.dtype == np.float16
    np.testing.assert_array_equal(narrow, [[0, 0], [0.5, 1], [1, 2]])


@pytest.mark.parametrize("count", [0, 1, 4])
def test_linspace_takes_a_dim_of_the_graph(count: int) -> None:
    x = np.zeros(count, np.float32)
    for of in (lambda x: ops.linspace(0, 1, x.shape[0]), lambda x: ops.linspace(0.0, np.float32(1), "n")):
        np.testing.assert_allclose(run1(of, x, dims=[["n"]]), np.linspace(0, 1, count), rtol=1e-6)


def test_linspace_truncates_when_of_integers() -> None:
    result = run1(lambda x: ops.linspace(-2, 2, 4, dtype=DType.int32), X)
    np.testing.assert_array_equal(result, [-2, 0, 0, 2])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: ops.linspace(0, 1, -1), ShapeError, "linspace"),
        (lambda x: ops.linspace(0, 1, "?"), ShapeError, "num must not be an unknown dim"),
        (lambda x: ops.linspace(0, True, 2), DTypeError, "stop must be a number, got True"),
        (
            lambda x: ops.linspace(0, 1, 3, dtype=DType.bool),
            DTypeError,
            "dtype must be an integer or a float, got bool",
        ),
        (lambda x: ops.linspace(x, np.ones(5, np.float32), 3), ShapeError, "shapes do not broadcast"),
    ],
)
def test_linspace_says_what_is_wrong(call: Any, error: type[Exception], words: str) -> None:
    x = symbol(3, 4)
    with x.graph, pytest.raises(error, match=words):
        call(x)


# One-hot vectors


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.int64])
def test_one_hot_marks_the_place_of_each_index(axis: int, dtype: Any) -> None:
    indices = np.array([[0, 3, 1], [2, 7, 3]]).astype(dtype)
    want = np.moveaxis((indices[..., None] == np.arange(4)).astype(np.float32), -1, axis)
    for dims in ([2, 3], ["a", "b"]):
        result = run1(lambda x: ops.one_hot(x, 4, axis), indices, dims=[dims])
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, want)


def test_one_hot_counts_negative_indices_from_the_end() -> None:
    result = run1(lambda x: ops.one_hot(x, 3, dtype=DType.int8), np.array([-1, -3, -4, 3]))
    np.testing.assert_array_equal(result, np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]], np.int8))


def test_one_hot_takes_depth_and_values_that_the_run_knows() -> None:
    indices, depth, on = np.array([1, 0]), np.array(3, np.int16), np.array(0.9)
    result = run1(lambda x, d, v: ops.one_hot(x, d, on_value=v, off_value=-1), indices, depth, on, dims=[["n"], [], []])
    np.testing.assert_array_equal(result, [[-1, 0.9, -1], [0.9, -1, -1]])
    words = run1(lambda x: ops.one_hot(x, "n", on_value="yes", off_value="no"), indices, dims=[["n"]])
    assert words.tolist() == [["no", "yes"], ["yes", "no"]]


def test_one_hot_of_no_indices_is_empty() -> None:
    assert run1(lambda x: ops.one_hot(x, 3), np.zeros((0, 2), np.int64)).shape == (0, 2, 3)
    assert run1(lambda x: ops.one_hot(x, 3, 0), np.zeros((0, 2), np.int32)).shape == (3, 0, 2)


def test_one_hot_has_known_sizes() -> None:
    x = symbol("n", 4, dtype=DType.int32)
    assert ops.one_hot(x, 7, 1).type == TensorType(DType.float32, ["n", 7, 4])
    assert ops.one_hot(x, "n").shape == ["n", 4, "n"]
    assert ops.one_hot(x, x[0, 0]).shape[2].is_dynamic


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: ops.one_hot(x, 0), ShapeError, "one_hot: depth must be at least 1, got 0"),
        (lambda x: ops.one_hot(x, 3, 3), ShapeError, "there is no axis 3 of a tensor of rank 3"),
        (lambda x: ops.one_hot(x.cast(DType.float32), 3), DTypeError, "indices must be integers, not float32"),
        (lambda x: ops.one_hot(x, x), ShapeError, r"depth must be a scalar, got shape \[3, 4\]"),
        (lambda x: ops.one_hot(x, 3, on_value=x), ShapeError, r"on_value must be a scalar, got shape \[3, 4\]"),
        (lambda x: ops.one_hot(x, 3, on_value=300, dtype=DType.int8), DTypeError, "300"),
    ],
)
def test_one_hot_says_what_is_wrong(call: Any, error: type[Exception], words: str) -> None:
    x = symbol(3, 4, dtype=DType.int32)
    with pytest.raises(error, match=words):
        call(x)
