"""Concatenation, splitting, repetition and padding: `ops/joining.py` and `ops/rearranging.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcore import Dim, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, PromotionError, ShapeError
from tests.support.graphs import run, run1

Array = np.ndarray[Any, Any]
UNKNOWN = Dim.dynamic()
NO_SIZE: Any = 1.5
DTYPES = [np.bool_, np.int16, np.int32, np.int64, np.uint64, np.float16, ml_dtypes.bfloat16, np.float64]


def numbers(*shape: int, dtype: Any = np.float32) -> Array:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def symbol(*dims: Any, dtype: DType = DType.float32) -> Symbol:
    return Graph("test", {"x": TensorType(dtype, dims)})["x"]


def symbols(*shapes: list[Any], dtype: DType = DType.float32) -> tuple[Symbol, ...]:
    return Graph("test", [TensorType(dtype, shape) for shape in shapes]).inputs


# Concat and stack


@pytest.mark.parametrize("axis", [0, -2])
def test_concat_joins_along_axis_when_sizes_differ_there(axis: int) -> None:
    x, y = numbers(2, 3), numbers(4, 3)
    result = run1(lambda a, b: ops.concat([a, b, a], axis), x, y, dims=[["n", "k"], ["m", "k"]])
    np.testing.assert_array_equal(result, np.concatenate([x, y, x]))


def test_concat_adds_dims_when_symbolic() -> None:
    a, b = symbols(["n", 3, UNKNOWN], ["n", "m", 5])
    assert ops.concat([a, b, b], axis=1).shape == ["n", Dim("m") * 2 + 3, 5]
    assert ops.concat([a, b], axis=1, out_dim="total").shape == ["n", "total", 5]
    assert ops.concat((a,), axis=1) is a


def test_concat_takes_arrays_when_beside_symbols() -> None:
    x = numbers(2, 3)
    result = run1(lambda a: ops.concat([a, np.ones((1, 3), np.float32)]), x, dims=[["n", 3]])
    np.testing.assert_array_equal(result, np.concatenate([x, np.ones((1, 3), np.float32)]))


def test_concat_promotes_all_when_dtypes_differ() -> None:
    x, y, z = numbers(2, dtype=np.int8), numbers(2, dtype=np.float32), np.array([True, False])
    result = run1(lambda *all: ops.concat(all), x, y, z)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, [0, 1, 0, 1, 1, 0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_concat_and_stack_move_values_when_of_any_dtype(dtype: Any) -> None:
    x = numbers(2, 3, dtype=dtype)
    joined, stacked = run(lambda a: (ops.concat([a, a], 1), ops.stack([a, a], -1)), x)
    np.testing.assert_array_equal(joined, np.concatenate([x, x], 1))
    np.testing.assert_array_equal(stacked, np.stack([x, x], -1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda a, b, c: ops.concat([a, b], 1), "concat: sizes differ at axis 0: n and 2"),
        (lambda a, b, c: ops.concat([a, c]), "concat: value 1 cannot be joined: ranks differ: 2 and 1"),
        (lambda a, b, c: ops.concat([a, a], 2), "concat: there is no axis 2 of a tensor of rank 2"),
        (lambda a, b, c: ops.concat([a[0, 0], 1.0]), "concat: value 0 cannot be joined: a scalar has no axes"),
        (lambda a, b, c: ops.concat([]), "concat: values is empty"),
        (lambda a, b, c: ops.concat(a), "concat: values must be a list of tensors"),
        (lambda a, b, c: ops.concat([b, b], 0, 5), "concat: out_dim is 5, but the sizes of axis 0 add up to 4"),
        (lambda a, b, c: ops.stack([a, b]), "stack: sizes differ at axis 0: n and 2"),
        (lambda a, b, c: ops.stack([a, c]), "stack: ranks differ: value 0 has 2 and value 1 has 1"),
        (lambda a, b, c: ops.stack([a, a], 3), "stack: there is no axis 3 of a tensor of rank 3"),
        (lambda a, b, c: ops.stack([]), "stack: values is empty"),
    ],
)
def test_joining_raises_when_tensors_do_not_go_together(make: Callable[..., Any], message: str) -> None:
    a, b, c = symbols(["n", 3], [2, 3], ["n"])
    with pytest.raises(ShapeError, match=message), a.graph:
        make(a, b, c)


def test_concat_raises_when_dtypes_do_not_meet() -> None:
    graph = Graph("test", {"x": TensorType("float8_e5m2", ["n"]), "y": TensorType("float32", ["n"])})
    with pytest.raises(PromotionError, match="concat"):
        ops.concat(graph.inputs)
    with pytest.raises(GraphError, match="belongs to graph"):
        ops.concat([symbol("n"), symbol("n")])


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_stack_adds_axis_when_anywhere(axis: int) -> None:
    x, y = numbers(2, 3), numbers(2, 3) + 10
    result = run1(lambda a, b: ops.stack([a, b], axis), x, y, dims=[["n", 3], ["n", UNKNOWN]])
    np.testing.assert_array_equal(result, np.stack([x, y], axis))
    assert ops.stack([symbol("n", 3)], axis).rank == 3


def test_stack_joins_scalars_when_beside_numbers() -> None:
    result = run1(lambda a: ops.stack([a, 2.0, a]), np.array(1.5, np.float32))
    np.testing.assert_array_equal(result, [1.5, 2.0, 1.5])


# Split and chunk


@pytest.mark.parametrize("dims", [[7, "k"], ["n", "k"], [UNKNOWN, "k"]])
def test_split_cuts_axis_when_sizes_are_given(dims: list[Any]) -> None:
    x = numbers(7, 2)
    results = run(lambda s: ops.split(s, [2, 1, 4]), x, dims=[dims])
    for result, expected in zip(results, np.split(x, [2, 3]), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_split_cuts_axis_when_sizes_are_symbolic() -> None:
    x, y = numbers(2, 7), numbers(3)
    results = run(lambda s, t: ops.split(s, ["m", Dim("n") - Dim("m")], 1), x, y,
                  dims=[["k", "n"], ["m"]])  # fmt: skip
    for result, expected in zip(results, np.split(x, [3], 1), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dims", [[6, "k"], ["n", "k"], [Dim("n") * 3, "k"], [UNKNOWN, "k"]])
def test_split_makes_equal_pieces_when_number_is_given(dims: list[Any]) -> None:
    x = numbers(6, 2)
    results = run(lambda s: ops.split(s, 3, axis=-2), x, dims=[dims])
    for result, expected in zip(results, np.split(x, 3), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("length", [0, 2, 5, 8])
@pytest.mark.parametrize("dim", ["n", UNKNOWN, None])
def test_chunk_makes_exact_number_of_pieces_when_axis_does_not_divide(length: int, dim: Any) -> None:
    x = numbers(2, length)
    results = run(lambda s: ops.chunk(s, 4, 1), x, dims=[["k", length if dim is None else dim]])
    for result, expected in zip(results, np.array_split(x, 4, 1), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_split_is_symbol_itself_when_one_piece() -> None:
    x = symbol("n")
    assert ops.split(x, 1) == (x,)
    assert ops.chunk(x, 1) == (x,)


def test_split_dims_are_symbolic_when_axis_is() -> None:
    a, b = ops.split(symbol(Dim("n") * 2), 2)
    assert a.shape == b.shape == ["n"]
    assert [piece.shape[0] for piece in ops.chunk(symbol("n"), 2)] == [(Dim("n") + 1) // 2, Dim("n") // 2]


@pytest.mark.parametrize("dtype", DTYPES)
def test_split_moves_values_when_of_any_dtype(dtype: Any) -> None:
    x = numbers(4, dtype=dtype)
    for result, expected in zip(run(lambda s: ops.split(s, 2), x), np.split(x, 2), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: ops.split(x, [2, 3], 1), "split: the sizes add up to 5, but axis 1 has 4"),
        (lambda x: ops.split(x, [Dim("n"), 1], 0), r"split: the sizes add up to n \+ 1, but axis 0 has n"),
        (lambda x: ops.split(x, 3, 1), "split: axis 1 of size 4 cannot be split into 3 equal pieces"),
        (lambda x: ops.split(x, 0, 1), "split: sizes must be an int >= 1, got 0"),
        (lambda x: ops.split(x, [], 1), "split: sizes is empty"),
        (lambda x: ops.split(x, [5, -1], 1), "split: -1 is not a valid dim"),
        (lambda x: ops.split(x, 2, 2), "split: there is no axis 2"),
        (lambda x: ops.chunk(x, 0), "chunk: chunks must be an int >= 1, got 0"),
        (lambda x: ops.chunk(x, NO_SIZE), "chunk: chunks must be an int >= 1, got 1.5"),
        (lambda x: ops.split(x, ["a", "b"], 0), "split: no Symbol has a dim 'a'"),
    ],
)
def test_split_raises_when_pieces_cannot_be(make: Callable[[Symbol], Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        make(symbol("n", 4))


# Repeating


@pytest.mark.parametrize(
    ("shape", "repeats"),
    [((2, 3), (2, 2)), ((2, 3), 2), ((2, 3), (3, 1)), ((2,), (2, 1, 3)), ((), 3), ((), (2, 2)), ((2, 3), (0, 1)),
     ((0, 3), (2, 2)), ((2, 3), (1, 1))],
)  # fmt: skip
def test_tile_repeats_tensor_when_counts_are_of_any_number(shape: tuple[int, ...], repeats: Any) -> None:
    x = numbers(*shape)
    np.testing.assert_array_equal(run1(lambda s: ops.tile(s, repeats), x), np.tile(x, repeats))


def test_tile_repeats_tensor_when_counts_are_symbolic() -> None:
    x = numbers(2, 3)
    result = run1(lambda s: ops.tile(s, ["k", 1]), x, dims=[["n", "k"]])
    np.testing.assert_array_equal(result, np.tile(x, (3, 1)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tile_moves_values_when_of_any_dtype(dtype: Any) -> None:
    x = numbers(3, dtype=dtype)
    np.testing.assert_array_equal(run1(lambda s: ops.tile(s, 2), x), np.tile(x, 2))


def test_tile_raises_when_counts_are_not_sizes() -> None:
    with pytest.raises(ShapeError, match="tile: -1 is not a valid dim"):
        ops.tile(symbol("n"), -1)
    with pytest.raises(ShapeError, match=r"tile: 1.5 is not a valid dim[\s\S]*repeats are ints"):
        ops.tile(symbol("n"), [NO_SIZE])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("repeats", [0, 1, 3])
@pytest.mark.parametrize("dims", [["a", "b", "c"], [UNKNOWN, UNKNOWN, UNKNOWN]])
def test_repeat_interleave_repeats_elements_when_by_number(axis: int | None, repeats: int, dims: list[Any]) -> None:
    x = numbers(2, 3, 2)
    result = run1(lambda s: ops.repeat_interleave(s, repeats, axis), x, dims=[dims])
    np.testing.assert_array_equal(result, np.repeat(x, repeats, axis))


@pytest.mark.parametrize("repeats", [[2, 0, 1], np.array([1, 1, 3])])
def test_repeat_interleave_repeats_each_when_by_list(repeats: Any) -> None:
    x = numbers(2, 3)
    result = run1(lambda s: ops.repeat_interleave(s, repeats, 1), x)
    np.testing.assert_array_equal(result, np.repeat(x, repeats, 1))


@pytest.mark.parametrize("out_dim", [None, "total"])
def test_repeat_interleave_repeats_each_when_by_symbol(out_dim: str | None) -> None:
    x, repeats = numbers(4, 2), np.array([2, 0, 3, 1], np.int32)
    result = run1(lambda s, r: ops.repeat_interleave(s, r, 0, out_dim), x, repeats, dims=[["n", "k"], ["n"]])
    np.testing.assert_array_equal(result, np.repeat(x, repeats, 0))
    none = run1(lambda s, r: ops.repeat_interleave(s, r, 0, out_dim), x, repeats * 0, dims=[["n", "k"], ["n"]])
    assert none.shape == (0, 2)


def test_repeat_interleave_names_axis_when_out_dim_is_given() -> None:
    assert ops.repeat_interleave(symbol("n"), 2, 0, "twice").shape == ["twice"]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda x, r, f: ops.repeat_interleave(x, -1, 0),
            ShapeError,
            "repeat_interleave: repeats must be ints >= 0, got -1",
        ),
        (
            lambda x, r, f: ops.repeat_interleave(x, 1.5, 0),
            ShapeError,
            "repeat_interleave: repeats must be ints >= 0, got 1.5",
        ),
        (lambda x, r, f: ops.repeat_interleave(x, [1, 2], 1), ShapeError, "got 2 repeats for an axis of size 4"),
        (lambda x, r, f: ops.repeat_interleave(x, 2, 2), ShapeError, "repeat_interleave: there is no axis 2"),
        (
            lambda x, r, f: ops.repeat_interleave(x, r, 1),
            ShapeError,
            r"got repeats of shape \[3\] for an axis of size 4",
        ),
        (lambda x, r, f: ops.repeat_interleave(x, f, 1), DTypeError, "repeats must have an integer dtype, got float32"),
        (lambda x, r, f: ops.repeat_interleave(x, 2, 1, 9), ShapeError, "out_dim is 9, but the size of the axis is 8"),
    ],
)
def test_repeat_interleave_raises_when_repeats_cannot_be(
    make: Callable[..., Any], error: type[Exception], message: str
) -> None:
    graph = Graph(
        "test",
        {
            "x": TensorType(DType.float32, ["n", 4]),
            "r": TensorType(DType.int64, [3]),
            "f": TensorType(DType.float32, [4]),
        },
    )
    with pytest.raises(error, match=message):
        make(*graph.inputs)


# Pad


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("paddings", [[0, 1, 2, 2], [(0, 1), (2, 2)], [0, 0, 3, 0], 2, np.array([[1, 2], [3, 1]])])
def test_pad_adds_elements_when_in_any_mode(mode: Any, paddings: Any) -> None:
    x = numbers(3, 4)
    pairs = np.broadcast_to(np.array(paddings).reshape(-1, 2) if not isinstance(paddings, int) else paddings, (2, 2))
    result = run1(lambda s: ops.pad(s, paddings, mode), x)
    np.testing.assert_array_equal(result, np.pad(x, pairs, mode))


def test_pad_mirrors_and_wraps_when_by_as_much_as_there_is() -> None:
    x = numbers(4)
    reflected, wrapped = run(lambda s: (ops.pad(s, [3, 3], "reflect"), ops.pad(s, [4, 4], "wrap")), x, dims=[[4]])
    np.testing.assert_array_equal(reflected, np.pad(x, 3, "reflect"))
    np.testing.assert_array_equal(wrapped, np.pad(x, 4, "wrap"))


def test_pad_fills_with_value_when_constant() -> None:
    x = numbers(3, dtype=np.int8)
    result = run1(lambda s: ops.pad(s, [1, 2], value=-7), x)
    np.testing.assert_array_equal(result, np.array([-7, 0, 1, 2, -7, -7], np.int8))
    result = run1(lambda s, v: ops.pad(s, [1, 0], "constant", v), x, np.array(9, np.int8))
    np.testing.assert_array_equal(result, np.array([9, 0, 1, 2], np.int8))


def test_pad_adds_symbolic_sizes_when_dims_are_given() -> None:
    x = numbers(3)
    result = run1(lambda s: ops.pad(s, ["n", Dim("n") - 1]), x, dims=[["n"]])
    np.testing.assert_array_equal(result, np.pad(x, (3, 2)))
    assert ops.pad(symbol("n"), [2, 1]).shape == [Dim("n") + 3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad_moves_values_when_of_any_dtype(dtype: Any) -> None:
    x = numbers(3, dtype=dtype)
    padded, edged = run(lambda s: (ops.pad(s, [1, 2]), ops.pad(s, [1, 2], "edge")), x)
    np.testing.assert_array_equal(padded, np.pad(x, (1, 2)))
    np.testing.assert_array_equal(edged, np.pad(x, (1, 2), "edge"))


def test_pad_is_symbol_itself_when_nothing_is_added() -> None:
    x = symbol("n", 4)
    assert ops.pad(x, 0) is x


@pytest.mark.parametrize(
    ("paddings", "options", "error", "message"),
    [
        ([1, 1], {}, ShapeError, "pad: got 2 paddings for 2 axes"),
        ([0, 0, -1, 0], {}, ShapeError, r"pad: -1 is not a valid dim[\s\S]*remove elements with a slice"),
        ([(1, 1, 1)], {}, ShapeError, r"pad: \(1, 1, 1\) is not a pair"),
        (1.5, {}, ShapeError, "pad: paddings must be ints, got 1.5"),
        (1, {"mode": "mirror"}, ShapeError, "pad: unknown mode 'mirror'"),
        ([0, 0, 4, 0], {"mode": "reflect"}, ShapeError, "axis 1 of size 4 cannot be padded by 4 in mode 'reflect'"),
        ([0, 0, 0, 5], {"mode": "wrap"}, ShapeError, "axis 1 of size 4 cannot be padded by 5 in mode 'wrap'"),
        (1, {"value": 300}, DTypeError, "300 cannot be held in int8"),
        (1, {"value": 1.5}, DTypeError, "1.5 cannot be held in int8"),
        (1, {"value": np.zeros(2, np.int8)}, ShapeError, r"pad: value must be a scalar, got shape \[2\]"),
        (1, {"value": np.float32(1)}, DTypeError, "pad: value is float32, but x is int8"),
    ],
)
def test_pad_raises_when_paddings_cannot_be(
    paddings: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ops.pad(symbol("n", 4, dtype=DType.int8), paddings, **options)


def test_pad_raises_when_empty_axis_has_no_edge() -> None:
    with pytest.raises(ShapeError, match="axis 0 of size 0 cannot be padded by 1 in mode 'edge'"):
        ops.pad(symbol(0), [1, 0], "edge")
