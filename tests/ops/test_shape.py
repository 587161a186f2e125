"""Dtypes, shapes and axes: `ops/shape.py`, `ops/rearranging.py` and sizes when the graph runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcore import Dim, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ops.shared.dims import dim_value, provably_differ, shape_vector
from tests.support.graphs import graph_of, run, run1

Array = np.ndarray[Any, Any]
UNKNOWN = Dim.dynamic()


def numbers(*shape: int, dtype: Any = np.float32) -> Array:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def symbol(*dims: Any, dtype: DType = DType.float32) -> Symbol:
    return Graph("test", {"x": TensorType(dtype, dims)})["x"]


def operators(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


# Casts


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        ([1.9, -1.9, 300.0], DType.int8, [1, -1, 127]),
        ([0.0, 0.5, -2.0], DType.bool, [False, True, True]),
        ([1.0, 2.5, 3.0], DType.float64, [1.0, 2.5, 3.0]),
        ([1.0, 2.5, 3.0], DType.bfloat16, [1.0, 2.5, 3.0]),
    ],
)
def test_cast_gives_values_when_dtype_differs(value: list[float], dtype: DType, expected: list[Any]) -> None:
    result = run1(lambda x: x.cast(dtype), np.array(value, np.float32))
    np.testing.assert_array_equal(result, np.array(expected, dtype.numpy))


def test_cast_is_symbol_itself_when_dtype_is_its_own() -> None:
    x = symbol("n")
    assert ops.cast(x, "float32") is x
    assert x.cast(np.float32) is x


def test_cast_is_shared_when_asked_twice() -> None:
    x = symbol("n")
    assert x.cast(DType.int8) is x.cast(DType.int8)
    assert operators(x.graph) == ["Cast"]


def test_cast_raises_when_strings_are_cast() -> None:
    with pytest.raises(DTypeError, match="cast: string cannot be cast to float32"):
        symbol("n", dtype=DType.string).cast(DType.float32)
    with pytest.raises(DTypeError, match="cast: float32 cannot be cast to string"):
        symbol("n").cast(DType.string)


def test_cast_raises_when_dtype_is_unknown() -> None:
    with pytest.raises(DTypeError, match="cast: no dtype is called 'float31'"):
        symbol("n").cast("float31")


# Shapes as values


def test_shape_of_gives_sizes_when_symbolic() -> None:
    (result,) = run(ops.shape_of, numbers(2, 3, 4))
    np.testing.assert_array_equal(result, np.array([2, 3, 4], np.int64))


def test_shape_of_gives_sizes_when_unknown() -> None:
    np.testing.assert_array_equal(run1(ops.shape_of, numbers(2, 3), dims=[[UNKNOWN, 3]]), [2, 3])


def test_shape_of_is_empty_when_scalar() -> None:
    assert ops.shape_of(symbol()).shape == [0]


@pytest.mark.parametrize(
    "shape",
    [
        ["n", "m"],
        ["m", 7, "n"],
        [Dim("n") * 2 + 1, Dim("n") * Dim("m"), 5],
        [5 - Dim("n"), -Dim("n") + 3],
        [(Dim("n") + 1) // 2, (Dim("n") - 7) // 2, (Dim("m") * 3) % 4],
        [Dim.maximum("n", "m"), Dim.minimum(Dim("n") - 9, "m")],
        [Dim("n") // Dim("m"), Dim("m") * Dim("m")],
        [],
    ],
)
def test_shape_to_tensor_gives_sizes_when_dims_are_expressions(shape: list[Any]) -> None:
    result = run1(lambda x, y: ops.shape_to_tensor(shape), numbers(4), numbers(3), dims=[["n"], ["m"]])
    sizes = {"n": 4, "m": 3}
    assert result.tolist() == [Dim(d).evaluate(sizes) for d in shape]


def test_shape_to_tensor_solves_for_name_when_input_has_multiple_of_it() -> None:
    result = run1(lambda x: ops.shape_to_tensor(["n", Dim("n") - 1]), numbers(11), dims=[[Dim("n") * 3 + 2]])
    assert result.tolist() == [3, 2]


def test_shape_to_tensor_is_constant_when_static() -> None:
    graph = Graph("test", {"x": TensorType(DType.float32, ["n"])})
    with graph:
        assert ops.shape_to_tensor([2, 3]).is_constant


def test_shape_to_tensor_raises_when_name_is_of_no_symbol() -> None:
    with (
        pytest.raises(ShapeError, match=r"shape_to_tensor: no Symbol has a dim 'm'[\s\S]*names of this graph: n"),
        symbol("n").graph,
    ):
        ops.shape_to_tensor(["m"])


def test_shape_to_tensor_raises_when_dim_is_unknown() -> None:
    with pytest.raises(ShapeError, match="the size of an unknown dim"), symbol("n").graph:
        ops.shape_to_tensor([UNKNOWN])


def test_shape_to_tensor_raises_when_given_symbol() -> None:
    x = symbol("n")
    with pytest.raises(ShapeError, match="shape_to_tensor: a shape must be static here, got a Symbol"), x.graph:
        ops.shape_to_tensor(x)  # type: ignore[arg-type]


def test_shape_vector_is_one_node_when_dims_are_those_of_one_source() -> None:
    x = symbol("a", 4, "b", "c")
    vector = shape_vector(x.graph, x.shape[:3], (x,))
    assert operators(x.graph) == ["Shape"]
    assert vector.type == TensorType(DType.int64, [3])
    assert shape_vector(x.graph, x.shape[:3], (x,)) is vector


def test_shape_vector_finds_dims_when_only_inner_symbols_have_them() -> None:
    def nothing_added(x: Symbol) -> Symbol:
        return ops.rebind(x.reshape(-1, 2), ["pairs", 2]) + ops.zeros(["pairs", 1], "int64")

    x = numbers(8, dtype=np.int64)
    np.testing.assert_array_equal(run1(nothing_added, x, dims=[[UNKNOWN]]), x.reshape(4, 2))


def test_dim_value_is_scalar_when_dim_is_expression() -> None:
    result = run1(lambda x: dim_value(x.graph, x.shape[0] * 2 + 1), numbers(4))
    assert result == 9
    assert result.shape == ()


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (Dim(3), Dim(4), True),
        (Dim("n"), Dim("n"), False),
        (Dim("n"), Dim("m"), False),
        (Dim("n"), Dim("n") + 1, True),
        (Dim("n") * 4, Dim("n") * 3, True),
        (Dim("n"), Dim(0), True),
        (Dim("n"), Dim(5), False),
        (UNKNOWN, Dim(5), False),
    ],
)
def test_provably_differ_answers_when_no_size_could_make_dims_equal(a: Dim, b: Dim, expected: bool) -> None:
    assert provably_differ(a, b) is expected


# Reshape


@pytest.mark.parametrize(
    ("dims", "shape", "expected"),
    [
        ([2, 3, 4], (6, 4), (6, 4)),
        ([2, 3, 4], (-1, 4), (6, 4)),
        ([2, 3, 4], -1, (24,)),
        (["a", "b", 4], ("a", "b", 2, 2), (2, 3, 2, 2)),
        (["a", "b", 4], (-1, 4), (6, 4)),
        (["a", "b", 4], ("a", -1), (2, 12)),
        (["a", "b", "c"], ("a", -1), (2, 12)),
        (["a", "b", "c"], (-1,), (24,)),
        (["a", "b", "c"], ("c", "b", "a"), (4, 3, 2)),
        (["a", "b", "c"], (Dim("a") * Dim("b"), "c"), (6, 4)),
        (["a", "b", 4], (2, "a", "b", -1), (2, 2, 3, 2)),
        (["a", "b", "c"], (-1, 6), (4, 6)),
        ([UNKNOWN, 3, 4], (-1, 2), (12, 2)),
        ([UNKNOWN, 3, 4], (UNKNOWN, 12), (2, 12)),
        ([UNKNOWN, UNKNOWN, 4], (UNKNOWN, UNKNOWN, 2, 2), (2, 3, 2, 2)),
        ([UNKNOWN, "b", 4], (-1, "b"), (8, 3)),
        ([UNKNOWN, UNKNOWN, 4], (UNKNOWN, -1), (2, 12)),
    ],
)
def test_reshape_keeps_order_of_elements_when_shape_is_of_any_kind(
    dims: list[Any], shape: Any, expected: tuple[int, ...]
) -> None:
    x = numbers(2, 3, 4)
    np.testing.assert_array_equal(run1(lambda s: ops.reshape(s, shape), x, dims=[dims]), x.reshape(expected))


@pytest.mark.parametrize(
    ("sizes", "dims", "shape", "expected"),
    [
        ((0, 3, 4), ["a", "b", 4], ("a", -1), (0, 12)),
        ((0, 3, 4), ["a", "b", "c"], ("a", "b", -1), (0, 3, 4)),
        ((2, 3, 0), ["a", "b", "c"], ("a", -1), (2, 0)),
        ((2, 0, 4), ["a", "b", "c"], (-1, "c"), (0, 4)),
        ((0, 3, 4), ["a", "b", "c"], ("c", "b", "a"), (4, 3, 0)),
        ((0, 3, 4), ["a", 3, 4], (-1, 6), (0, 6)),
        ((0, 3, 4), [0, 3, 4], (2, 0, 6), (2, 0, 6)),
        ((2, 0, 4), [UNKNOWN, UNKNOWN, 4], (UNKNOWN, -1), (2, 0)),
    ],
)
def test_reshape_gives_empty_tensor_when_axis_is_empty(
    sizes: tuple[int, ...], dims: list[Any], shape: Any, expected: tuple[int, ...]
) -> None:
    result = run1(lambda s: ops.reshape(s, shape), numbers(*sizes), dims=[dims])
    assert result.shape == expected


def test_reshape_needs_no_sizes_when_axes_stay_in_place() -> None:
    x = symbol("batch", "seq", 768)
    assert x.reshape("batch", "seq", 12, 64).shape == ["batch", "seq", 12, 64]
    assert x.reshape("batch", "seq", 12, 64).reshape("batch", "seq", -1).shape == ["batch", "seq", 768]
    assert x.reshape(-1, 768).shape == [Dim("batch") * Dim("seq"), 768]
    assert set(operators(x.graph)) == {"Reshape"}


def test_reshape_is_symbol_itself_when_shape_is_its_own() -> None:
    x = symbol("n", 4)
    assert x.reshape("n", 4) is x
    assert x.reshape(-1, 4) is x


def test_reshape_is_the_same_when_asked_again() -> None:
    x = symbol("n", 4)
    first, second = x.reshape("n", 2, -1), (x * 2).reshape("n", 2, -1)
    assert first.type is second.type
    assert first.producer.inputs[1] is second.producer.inputs[1]  # type: ignore[union-attr]
    assert second.reshape("n", 4).reshape("n", 2, -1).producer.inputs[0].shape == ["n", 4]  # type: ignore[union-attr]


def test_reshape_method_takes_pieces_when_not_given_sequence() -> None:
    x = symbol("n", 4)
    for item in (x.reshape("n", 2, 2), x.reshape(["n", 2, 2]), x.reshape([*x.shape[:1], 2, 2]), x.reshape(-1, 2, 2)):
        assert item.shape == ["n", 2, 2]
    assert x.reshape(-1).shape == [Dim("n") * 4]


def test_reshape_infers_quotient_when_division_is_not_provable() -> None:
    x = numbers(6)
    result = run1(lambda s: s.reshape(-1, 2), x)
    np.testing.assert_array_equal(result, x.reshape(3, 2))
    assert symbol("n").reshape(-1, 2).shape == [Dim("n") // 2, 2]


def test_reshape_takes_symbol_when_shape_is_known_at_run_time() -> None:
    x, shape = numbers(2, 3, 4), np.array([4, 6])
    result = run1(lambda s, t: ops.reshape(s, t), x, shape, dims=[["a", "b", "c"], [2]])
    np.testing.assert_array_equal(result, x.reshape(4, 6))
    result = run1(lambda s, t: s.reshape(t, out_dims=["p", "q"]), x, shape, dims=[["a", "b", "c"], ["k"]])
    np.testing.assert_array_equal(result, x.reshape(4, 6))


def test_reshape_takes_symbols_when_single_sizes_are_known_at_run_time() -> None:
    x = numbers(2, 3, 4)
    result = run1(lambda s, n: ops.reshape(s, [n, -1, 4]), x, np.array(3, np.int32), dims=[["a", "b", 4], []])
    np.testing.assert_array_equal(result, x.reshape(3, 2, 4))


def test_reshape_reads_sizes_when_shape_is_constant() -> None:
    x = symbol("n", 4)
    with x.graph:
        assert ops.reshape(x, ops.constant([-1, 2])).shape == [Dim("n") * 2, 2]


@pytest.mark.parametrize(
    "dtype", [np.int32, np.int64, np.bool_, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_reshape_moves_values_when_of_any_dtype(dtype: Any) -> None:
    x = numbers(2, 3, 4, dtype=dtype)
    np.testing.assert_array_equal(run1(lambda s: s.reshape("b", -1), x, dims=[["a", "b", 4]]), x.reshape(3, 8))


@pytest.mark.parametrize(
    ("dims", "shape", "message"),
    [
        ([2, 3], (4, 2), r"reshape: \[2, 3\] has 6 elements and \[4, 2\] has 8"),
        (["n", 4], ("n", 3), r"reshape: \[n, 4\] has 4 \* n elements and \[n, 3\] has 3 \* n"),
        ([2, 3], (-1, 4), "reshape: 6 elements are not divisible by 4"),
        ([Dim("n") * 2 + 1], (-1, 2), r"reshape: 2 \* n \+ 1 elements are not divisible by 2"),
        ([2, 3], (-1, -1), "reshape: more than one dim is -1"),
        ([2, 0], (0, -1), "reshape: -1 cannot be inferred beside a dim of 0"),
        ([2, 3], (-2, 3), r"reshape: -2 is not a valid dim[\s\S]*-1 for the inferred one"),
        ([2, 3], (2.0, 3), "reshape: 2.0 is not a valid dim"),
        (["n"], ("m",), "reshape: no Symbol has a dim 'm'"),
        ([UNKNOWN, 4], (4, UNKNOWN, UNKNOWN, -1), "reshape: more than one dim of the shape is unknown"),
    ],
)
def test_reshape_raises_when_shape_cannot_be(dims: list[Any], shape: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ops.reshape(symbol(*dims), shape)


def test_reshape_raises_when_symbol_is_not_a_shape() -> None:
    graph = Graph(
        "test",
        {
            "x": TensorType(DType.float32, ["n", 4]),
            "floats": TensorType(DType.float32, [2]),
            "sizes": TensorType(DType.int64, ["k"]),
            "three": TensorType(DType.int64, [3]),
            "matrix": TensorType(DType.int64, [2, 2]),
        },
    )
    x = graph["x"]
    with pytest.raises(DTypeError, match="reshape: shape must have an integer dtype, got float32"):
        ops.reshape(x, graph["floats"])
    with pytest.raises(ShapeError, match="the rank of the result is unknown: shape has k sizes"):
        ops.reshape(x, graph["sizes"])
    with pytest.raises(ShapeError, match=r"out_dims \[a, b\] has 2 dims, but shape has 3 sizes"):
        ops.reshape(x, graph["three"], ["a", "b"])
    with pytest.raises(ShapeError, match="reshape: size must be a scalar"):
        ops.reshape(x, [graph["matrix"], 2])
    with pytest.raises(ShapeError, match=r"\[n, 4\] has 4 \* n elements and \[n, 3, 1\] has 3 \* n"):
        ops.reshape(x, graph["three"], ["n", 3, 1])
    with pytest.raises(GraphError, match="belongs to graph"):
        ops.reshape(x, [symbol(dtype=DType.int64), 2])


def test_reshape_raises_when_out_dims_contradict_shape() -> None:
    x = symbol("n", 4)
    with pytest.raises(ShapeError, match="out_dims has 3 where the shape has 2"):
        ops.reshape(x, (-1, 2), ["m", 3])
    with pytest.raises(ShapeError, match=r"out_dims \[m\] has 1 dims and the shape has 2"):
        ops.reshape(x, (-1, 2), ["m"])
    assert ops.reshape(x, (-1, 2), ["m", 2]).shape == ["m", 2]


@pytest.mark.parametrize("dims", [["a", "b"], [UNKNOWN, UNKNOWN], [6, "b"], [6, 4]])
def test_reshape_like_gives_shape_when_of_another(dims: list[Any]) -> None:
    x, like = numbers(2, 3, 4), numbers(6, 4, dtype=np.int8)
    result = run1(ops.reshape_like, x, like, dims=[["p", "q", "r"], dims])
    np.testing.assert_array_equal(result, x.reshape(6, 4))


def test_reshape_like_raises_when_counts_differ() -> None:
    with pytest.raises(ShapeError, match=r"reshape_like: \[n, 4\] has 4 \* n elements and \[2\] has 2"):
        ops.reshape_like(symbol("n", 4), np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, -1, (24,)), (1, 2, (2, 12)), (0, 1, (6, 4)), (-2, -1, (2, 12)), (1, 1, (2, 3, 4))],
)
@pytest.mark.parametrize("dims", [["a", "b", "c"], [2, 3, 4], [UNKNOWN, UNKNOWN, UNKNOWN]])
def test_flatten_merges_axes_when_given(start: int, end: int, expected: tuple[int, ...], dims: list[Any]) -> None:
    x = numbers(2, 3, 4)
    np.testing.assert_array_equal(run1(lambda s: s.flatten(start, end), x, dims=[dims]), x.reshape(expected))


@pytest.mark.parametrize("dims", [["a", "b", "c", "d"], [UNKNOWN, "b", UNKNOWN, UNKNOWN]])
def test_flatten_merges_middle_axes_when_some_are_empty(dims: list[Any]) -> None:
    for sizes, expected in (((0, 3, 4, 2), (0, 12, 2)), ((2, 3, 0, 2), (2, 0, 2)), ((2, 3, 4, 5), (2, 12, 5))):
        assert run1(lambda s: s.flatten(1, 2), numbers(*sizes), dims=[dims]).shape == expected


def test_flatten_gives_one_axis_when_scalar() -> None:
    assert symbol().flatten().shape == [1]


def test_flatten_raises_when_axes_are_not_range() -> None:
    with pytest.raises(ShapeError, match="flatten: end_dim 0 is before start_dim 1"):
        symbol("n", 4).flatten(1, 0)
    with pytest.raises(ShapeError, match="flatten: there is no axis 2 of a tensor of rank 2"):
        symbol("n", 4).flatten(2)


# Broadcasting


@pytest.mark.parametrize(
    ("sizes", "dims", "shape", "expected"),
    [
        ((3, 1), ["n", 1], ("n", 4), (3, 4)),
        ((3, 1), ["n", 1], (2, "n", "n"), (2, 3, 3)),
        ((3,), ["n"], ("n", "n"), (3, 3)),
        ((), [], (2, 3), (2, 3)),
        ((3, 1), [UNKNOWN, 1], (UNKNOWN, 4), (3, 4)),
        ((1, 1), [UNKNOWN, 1], (5, 4), (5, 4)),
        ((0, 1), ["n", 1], ("n", 4), (0, 4)),
        ((3, 1), ["n", 1], ("n", 0), (3, 0)),
    ],
)
def test_broadcast_to_repeats_values_when_dims_are_one(
    sizes: tuple[int, ...], dims: list[Any], shape: Any, expected: tuple[int, ...]
) -> None:
    x = numbers(*sizes)
    result = run1(lambda s: s.broadcast_to(*shape), x, dims=[dims])
    np.testing.assert_array_equal(result, np.broadcast_to(x, expected))


def test_broadcast_to_takes_symbol_when_shape_is_known_at_run_time() -> None:
    x, shape = numbers(3, 1), np.array([2, 3, 4], np.int32)
    result = run1(lambda s, t: ops.broadcast_to(s, t), x, shape, dims=[["n", 1], [3]])
    np.testing.assert_array_equal(result, np.broadcast_to(x, (2, 3, 4)))
    result = run1(lambda s, t: ops.broadcast_to(s, t, [2, "n", "m"]), x, shape, dims=[["n", 1], ["k"]])
    np.testing.assert_array_equal(result, np.broadcast_to(x, (2, 3, 4)))


def test_broadcast_to_is_symbol_itself_when_shape_is_its_own() -> None:
    x = symbol("n", 4)
    assert x.broadcast_to("n", 4) is x


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.float16, ml_dtypes.bfloat16, np.uint64])
def test_broadcast_to_moves_values_when_of_any_dtype(dtype: Any) -> None:
    x = numbers(3, 1, dtype=dtype)
    np.testing.assert_array_equal(run1(lambda s: s.broadcast_to("n", 2), x, dims=[["n", 1]]), np.repeat(x, 2, 1))


@pytest.mark.parametrize(
    ("dims", "shape", "message"),
    [
        ([3], (4,), r"broadcast_to: \[3\] does not broadcast to \[4\]: 3 is neither 1 nor 4"),
        (["n"], ("m",), "n is neither 1 nor m"),
        ([2, 3], (3,), r"broadcast_to: \[3\] has fewer dims than \[2, 3\]"),
        ([1], (-1,), "broadcast_to: -1 is not a valid dim"),
        ([1], (UNKNOWN,), "broadcast_to: the size of an unknown dim"),
        ([1], ("m",), "broadcast_to: no Symbol has a dim 'm'"),
    ],
)
def test_broadcast_to_raises_when_shapes_do_not_go_together(dims: list[Any], shape: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ops.broadcast_to(symbol(*dims), shape)


def test_broadcast_to_raises_when_symbol_is_not_a_shape() -> None:
    graph = Graph(
        "test",
        {
            "x": TensorType(DType.float32, ["n"]),
            "floats": TensorType(DType.float32, [2]),
            "sizes": TensorType(DType.int64, ["k"]),
            "two": TensorType(DType.int64, [2]),
        },
    )
    with pytest.raises(DTypeError, match="broadcast_to: shape must have an integer dtype, got float32"):
        ops.broadcast_to(graph["x"], graph["floats"])
    with pytest.raises(ShapeError, match=r"the rank of the result is unknown: shape has type int64\[k\]"):
        ops.broadcast_to(graph["x"], graph["sizes"])
    with pytest.raises(ShapeError, match=r"out_dims \[n\] has 1 dims, but shape has 2 sizes"):
        ops.broadcast_to(graph["x"], graph["two"], ["n"])


# Order of axes


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: ops.transpose(x), (2, 1, 0)),
        (lambda x: ops.transpose(x, None), (2, 1, 0)),
        (lambda x: x.transpose(), (2, 1, 0)),
        (lambda x: ops.transpose(x, 0, 1), (1, 0, 2)),
        (lambda x: x.transpose(-1, -2), (0, 2, 1)),
        (lambda x: ops.transpose(x, (1, 2, 0)), (1, 2, 0)),
        (lambda x: x.transpose(1, 2, 0), (1, 2, 0)),
        (lambda x: ops.permute(x, [2, 0, 1]), (2, 0, 1)),
        (lambda x: x.permute(2, 0, 1), (2, 0, 1)),
        (lambda x: x.permute((0, -1, 1)), (0, 2, 1)),
        (lambda x: x.swapaxes(0, 2), (2, 1, 0)),
        (lambda x: ops.transpose_matrix(x), (0, 2, 1)),
        (lambda x: x.mT, (0, 2, 1)),
    ],
)
def test_transposition_orders_axes_when_asked_in_any_way(
    function: Callable[[Symbol], Symbol], expected: tuple[int, ...]
) -> None:
    x = numbers(2, 3, 4)
    np.testing.assert_array_equal(run1(function, x), x.transpose(expected))


def test_T_transposes_when_matrix() -> None:  # noqa: N802 - NumPy's name
    x = numbers(2, 3)
    np.testing.assert_array_equal(run1(lambda s: s.T, x), x.T)


def test_transposition_is_symbol_itself_when_nothing_moves() -> None:
    x = symbol("n", 4)
    assert x.transpose((0, 1)) is x
    assert x.swapaxes(1, 1) is x


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.float16, ml_dtypes.bfloat16, np.uint64])
def test_transpose_moves_values_when_of_any_dtype(dtype: Any) -> None:
    x = numbers(2, 3, dtype=dtype)
    np.testing.assert_array_equal(run1(ops.transpose, x), x.T)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.transpose(0, 3), "transpose: there is no axis 3 of a tensor of rank 3"),
        (lambda x: x.transpose((0, 1)), "transpose: got 2 axes for a tensor of rank 3"),
        (lambda x: x.permute(0, 1, 1), "permute: axis=.* names an axis twice"),
        (lambda x: x.permute(0, 1, 1.5), "permute: 1.5 is not an axis"),
        (lambda x: x.permute(None), "permute: None is not an axis of a tensor of rank 3"),
        (lambda x: x.swapaxes(0, -4), "swapaxes: there is no axis -4"),
        (lambda x: x.T, "T: a matrix must have rank 2, got 3"),
        (lambda x: ops.transpose_matrix(x[0, 0]), "transpose_matrix: matrix must have rank 2 or more, got 1"),
    ],
)
def test_transposition_raises_when_axes_are_wrong(function: Callable[[Symbol], Symbol], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        function(symbol("a", "b", 4))


# Axes of size 1


@pytest.mark.parametrize("axis", [1, -3, (1, 3), [3, 1]])
def test_squeeze_drops_axes_when_of_size_one(axis: int | Sequence[int]) -> None:
    x = numbers(2, 1, 3, 1)
    expected = np.squeeze(x, tuple(axis) if isinstance(axis, list) else axis)
    np.testing.assert_array_equal(run1(lambda s: s.squeeze(axis), x, dims=[["a", 1, "b", 1]]), expected)


def test_squeeze_drops_axis_when_size_is_unknown() -> None:
    assert run1(lambda s: ops.squeeze(s, 0), numbers(1, 3), dims=[[UNKNOWN, "n"]]).shape == (3,)


def test_squeeze_is_symbol_itself_when_no_axis_is_named() -> None:
    x = symbol("n", 1)
    assert x.squeeze(()) is x
    assert x.unsqueeze(()) is x


def test_squeeze_raises_when_size_is_not_one() -> None:
    with pytest.raises(ShapeError, match=r"squeeze: axis 0 must have size 1, got n[\s\S]*ops.rebind"):
        symbol("n", 1).squeeze(0)
    with pytest.raises(ShapeError, match="squeeze: axis must be an int or several, got None"):
        symbol("n", 1).squeeze(None)
    with pytest.raises(ShapeError, match="squeeze: there is no axis 2"):
        symbol("n", 1).squeeze(2)


@pytest.mark.parametrize("axis", [0, 2, -1, (0, -1), (3, 1)])
def test_unsqueeze_adds_axes_when_given(axis: int | tuple[int, ...]) -> None:
    x = numbers(2, 3)
    np.testing.assert_array_equal(run1(lambda s: s.unsqueeze(axis), x), np.expand_dims(x, axis))


def test_unsqueeze_raises_when_axis_is_none_of_result() -> None:
    with pytest.raises(ShapeError, match="unsqueeze: there is no axis 3 of a tensor of rank 3"):
        symbol("n", 4).unsqueeze(3)
    with pytest.raises(ShapeError, match="names an axis twice"):
        symbol("n", 4).unsqueeze((0, -4))


# Rebind


def test_rebind_names_dims_when_nothing_contradicts() -> None:
    x = numbers(4, 3)
    result = run1(lambda s: s.rebind("rows", 3) + s, x, dims=[["rows", UNKNOWN]])
    np.testing.assert_array_equal(result, x + x)
    y = ops.rebind(symbol(UNKNOWN, "m", 4), [Dim("n") * 2, 8, "four"])
    assert y.shape == [Dim("n") * 2, 8, "four"]
    assert operators(y.graph).count("Unsqueeze") == 2


def test_rebind_is_symbol_itself_when_shape_is_its_own() -> None:
    x = symbol("n", 4)
    assert x.rebind("n", 4) is x


def test_rebind_raises_when_dims_cannot_be() -> None:
    x = symbol("n", 4)
    with pytest.raises(ShapeError, match=r"rebind: axis 1 is 4 and cannot be 5 \(heads must agree\)"):
        ops.rebind(x, ["n", 5], "heads must agree")
    with pytest.raises(ShapeError, match=r"rebind: axis 0 is n and cannot be n \+ 1"):
        ops.rebind(x, [Dim("n") + 1, 4])
    with pytest.raises(ShapeError, match=r"rebind: \[n\] has 1 dims, but x \[n, 4\] has 2"):
        x.rebind("n")


def test_errors_name_operand_when_raised() -> None:
    with pytest.raises(ShapeError) as caught:
        symbol("n", 4).reshape(3, 7, 2, -1, -1)
    assert "x  x   float32[n, 4]" in str(caught.value)


def test_movement_keeps_dims_symbolic_when_chained() -> None:
    def heads(x: Symbol) -> Symbol:
        batch, length, _ = x.shape
        split = x.reshape(batch, length, 2, 3).transpose((0, 2, 1, 3))
        return split.transpose((0, 2, 1, 3)).reshape(batch, length, -1)

    x = numbers(2, 5, 6)
    np.testing.assert_array_equal(run1(heads, x, dims=[["b", "t", 6]]), x)
    graph = graph_of(heads, x, dims=[["b", "t", 6]])
    assert operators(graph) == ["Reshape", "Transpose", "Transpose", "Reshape"]
