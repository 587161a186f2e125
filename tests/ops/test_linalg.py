"""Products of matrices and their bands against NumPy."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from graphcore import Dim, DType, Graph, InferenceSession, Symbol, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from tests.support.graphs import graph_of, run1

Array = np.ndarray[Any, Any]


def numbers(dtype: Any, *shape: int, seed: int = 0) -> Array:
    random = np.random.default_rng((seed, *shape))
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, shape, dtype, endpoint=True)
    return (random.standard_normal(shape) > 0.5) if dtype is np.bool_ else random.standard_normal(shape).astype(dtype)


def symbols(*shapes: tuple[int | str, ...], dtype: DType = DType.float32) -> tuple[Symbol, ...]:
    return Graph("test", {f"x{i}": TensorType(dtype, shape) for i, shape in enumerate(shapes)}).inputs


def pair(left: tuple[int | str, ...], right: tuple[int | str, ...]) -> tuple[Symbol, Symbol]:
    lhs, rhs = symbols(left, right)
    return lhs, rhs


def assert_close(got: Array, want: Array) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(got, want)


# matmul

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], list[list[int | str]]]] = [
    ((3, 4), (4, 5), [["m", "k"], ["k", "n"]]),
    ((4,), (4, 5), [["k"], ["k", "n"]]),
    ((3, 4), (4,), [["m", "k"], ["k"]]),
    ((4,), (4,), [["k"], ["k"]]),
    ((2, 3, 4), (4, 5), [["b", "m", 4], [4, 5]]),
    ((4,), (7, 4, 5), [["k"], ["b", "k", "n"]]),
    ((7, 5, 4), (4,), [["b", "m", "k"], ["k"]]),
    ((2, 1, 3, 4), (7, 4, 5), [["b", 1, "m", "k"], ["c", "k", "n"]]),
    ((3, 0), (0, 5), [["m", "k"], ["k", "n"]]),
    ((0, 4), (4, 5), [["m", "k"], ["k", "n"]]),
]


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize(("left", "right", "dims"), SHAPES, ids=str)
def test_matmul_is_numpys_for_vectors_matrices_and_batches(left: Any, right: Any, dims: Any, dtype: Any) -> None:
    x, y = numbers(dtype, *left), numbers(dtype, *right, seed=1)
    assert_close(run1(operator.matmul, x, y, dims=dims), np.asarray(x @ y))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64, np.float16, np.float64, np.bool_])
def test_matmul_keeps_every_dtype(dtype: Any) -> None:
    x, y = numbers(dtype, 3, 40), numbers(dtype, 40, 5)
    if dtype is np.float16:
        want = (x.astype(np.float32) @ y.astype(np.float32)).astype(dtype)
        np.testing.assert_allclose(run1(ops.matmul, x, y, dims=[["m", "k"], ["k", "n"]]), want, rtol=1e-3)
    else:
        assert_close(run1(ops.matmul, x, y, dims=[["m", "k"], ["k", "n"]]), x @ y)


def test_matmul_answers_to_arrays_on_the_left() -> None:
    x, y = numbers(np.float32, 7, 3), numbers(np.float32, 3, 2)
    assert_close(run1(lambda s: x @ s, y, dims=[[3, "n"]]), x @ y)


def test_matmul_meets_in_the_common_dtype() -> None:
    x, y = symbols(("m", 4))[0], np.ones((4, 5), np.int8)
    assert (x @ y).type == TensorType(DType.float32, ["m", 5])
    assert ops.matmul(np.ones((7, 3), np.float16), symbols((3, "n"))[0]).shape == [7, "n"]


def test_matmul_shows_operands_as_they_were_given() -> None:
    (x,) = symbols(("m", 4), dtype=DType.int8)
    with pytest.raises(ShapeError, match=r"lhs +x0 +int8\[m, 4\](.|\n)*rhs +float32\[5, 4\]"):
        _ = x @ np.ones((5, 4), np.float32)
    assert not x.graph.nodes


def test_matmul_with_unknown_dims_trusts_the_runtime() -> None:
    graph = Graph(
        "test",
        {"x": TensorType(DType.float32, [Dim.dynamic(), Dim.dynamic()]), "y": TensorType(DType.float32, ["k", 2])},
    )
    result = graph["x"] @ graph["y"]
    assert result.shape[0].is_dynamic
    assert result.shape[1] == 2


def test_matmul_says_how_the_inner_dimensions_differ() -> None:
    hidden, query = symbols(("batch", 128, 768), (512, 768))
    hidden.name, query.name = "hidden", "w_query"
    with pytest.raises(ShapeError) as caught:
        _ = hidden @ query
    lines = str(caught.value).split("\n")
    assert lines[0] == "matmul: inner dimensions differ: 768 and 512"
    assert lines[1].split()[:2] == ["lhs", "hidden"]
    assert "float32[512, 768]" in lines[2]
    assert lines[3] == "  help: transpose rhs, or reshape lhs so that its last dimension is 512"
    assert lines[4].endswith("_ = hidden @ query")


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ((5, 3), (5, 4), "inner dimensions differ: 3 and 5(.|\n)*transpose lhs, or reshape it"),
        (
            ("m", "a"),
            ("b", "n"),
            "inner dimensions differ: a and b(.|\n)*give them one name, or declare it with ops.rebind",
        ),
        ((2, 3), (4,), "inner dimensions differ: 3 and 4(.|\n)*last dimension of lhs and rhs must be equal"),
        ((2, 3), (4, 5), "inner dimensions differ: 3 and 4(.|\n)*the last but one of rhs must be equal"),
        ((), (3, 4), r"lhs must be a vector or a matrix, got a scalar(.|\n)*multiply with lhs \* rhs"),
        ((3,), (), "rhs must be a vector or a matrix, got a scalar"),
        ((2, 3, 4), (5, 4, 6), "the batch axes do not broadcast: 2 and 5 at axis -1"),
    ],
)
def test_matmul_refuses_shapes_that_do_not_fit(left: Any, right: Any, message: str) -> None:
    x, y = symbols(left, right)
    with pytest.raises(ShapeError, match=f"matmul: {message}"):
        ops.matmul(x, y)


# linear


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((3, 4), ["n", "i"]),
        ((4,), ["i"]),
        ((4,), [4]),
        ((2, 3, 4), ["b", "s", 4]),
        ((2, 3, 4), ["b", 3, "i"]),
        ((2, 1, 3, 4), ["b", 1, "s", 4]),
        ((0, 3, 4), ["b", "s", 4]),
        ((2, 0, 4), ["b", "s", 4]),
        ((2, 3, 0), ["b", "s", 0]),
        ((2, 3, 0), ["b", "s", "i"]),
    ],
    ids=str,
)
def test_linear_multiplies_by_the_transposed_weight(shape: Any, dims: Any, dtype: Any, with_bias: bool) -> None:
    x, weight, bias = numbers(dtype, *shape), numbers(dtype, 5, shape[-1]), numbers(dtype, 5)
    arrays, types = [x, weight], [dims, ["o", dims[-1]]]
    want = x @ weight.T
    if with_bias:
        arrays, types, want = [*arrays, bias], [*types, ["o"]], want + bias
    assert_close(run1(ops.linear, *arrays, dims=types), want)


def test_linear_is_gemm_between_reshapes() -> None:
    (x,) = symbols(("batch", 16, 4))
    y = ops.linear(x, np.ones((5, 4), np.float32), np.ones(5, np.float32))
    assert y.shape == ["batch", 16, 5]
    assert [node.op_type for node in x.graph.nodes] == ["Reshape", "Gemm", "Reshape"]


def test_linear_of_float16_is_rounded_once() -> None:
    x, weight, bias = numbers(np.float16, 6, 64), numbers(np.float16, 3, 64), numbers(np.float16, 3) * np.float16(100)
    want = x.astype(np.float64) @ weight.astype(np.float64).T + bias
    got = run1(ops.linear, x, weight, bias, dims=[["n", 64], [3, 64], [3]])
    assert (np.abs(got - want) <= np.abs(np.spacing(want.astype(np.float16))) * 0.51).all()


def test_linear_of_bools_is_or_of_ands() -> None:
    x, weight, bias = numbers(np.bool_, 4, 6), numbers(np.bool_, 3, 6), np.array([True, False, False])
    assert_close(run1(ops.linear, x, weight, bias, dims=[["n", "i"], ["o", "i"], ["o"]]), (x @ weight.T) | bias)


@pytest.mark.parametrize(
    ("x", "weight", "bias", "message"),
    [
        (
            ("n", 4),
            (4, 5),
            (5,),
            r"inner dimensions differ: 4 in x and 5 in weight(.|\n)*transpose it, or use ops.matmul",
        ),
        (("n", 3), (4, 5), (4,), r"inner dimensions differ(.|\n)*the last dimensions of x and weight must be equal"),
        (("n", 4), (4,), (4,), "weight must have rank 2, got 1"),
        ((), (4, 4), (4,), r"x must be \[..., inputs\], got a scalar"),
        (("n", 4), (5, 4), (4,), r"bias must have shape \[5\], got \[4\](.|\n)*one number for each output"),
        (("n", 4), (5, 4), (1, 5), r"bias must have shape \[5\], got \[1, 5\]"),
    ],
)
def test_linear_refuses_shapes_that_do_not_fit(x: Any, weight: Any, bias: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=f"linear: {message}"):
        ops.linear(*symbols(x, weight, bias))


# outer, vecdot, tensordot


def test_outer_multiplies_every_pair() -> None:
    x, y = numbers(np.float32, 3), numbers(np.float32, 4)
    assert_close(run1(ops.outer, x, y), np.outer(x, y))
    flags = numbers(np.bool_, 5)
    assert_close(run1(ops.outer, flags, flags), np.outer(flags, flags))
    with pytest.raises(ShapeError, match=r"outer: rhs must have rank 1, got 2(.|\n)*ops.reshape\(rhs, \[-1\]\)"):
        ops.outer(*symbols(("n",), ("n", 2)))


def test_vecdot_contracts_one_axis_and_broadcasts_the_rest() -> None:
    x, y = numbers(np.float32, 2, 5, 3), numbers(np.float32, 5, 1)
    got = run1(lambda a, b: ops.vecdot(a, b, axis=-2), x, y, dims=[["b", "k", "c"], ["k", 1]])
    assert_close(got, np.einsum("bkc,kd->bc", x, y))
    u, v = numbers(np.int16, 4, 6), numbers(np.int16, 6)
    assert_close(run1(ops.vecdot, u, v, dims=[["n", "k"], ["k"]]), np.vecdot(u, v))


def test_vecdot_refuses_axes_and_lengths_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="vecdot: the vectors differ in length: 3 and 4"):
        ops.vecdot(*pair((2, 3), (2, 4)))
    with pytest.raises(ShapeError, match=r"vecdot: there is no axis 0 in both tensors(.|\n)*one of -1 to -1"):
        ops.vecdot(*pair((2, 3), (3,)), axis=0)
    with pytest.raises(ShapeError, match=r"vecdot: there is no axis -1(.|\n)*scalars have no axes"):
        ops.vecdot(*pair((2, 3), ()))


@pytest.mark.parametrize(
    ("axes", "right", "dims"),
    [
        (2, (5, 3, 4), ["b", "c", "d"]),
        (0, (4,), ["d"]),
        (([0, -1], [1, 0]), (3, 2), ["c", "a"]),
    ],
    ids=str,
)
def test_tensordot_is_numpys(axes: Any, right: Any, dims: Any) -> None:
    for dtype in (np.float32, np.int64):
        x, y = numbers(dtype, 2, 5, 3), numbers(dtype, *right)
        got = run1(lambda a, b: ops.tensordot(a, b, axes), x, y, dims=[["a", "b", "c"], dims])
        assert_close(got, np.tensordot(x, y, axes))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (3, "there are no 3 axes in both tensors(.|\n)*one of 0 to 2"),
        (1, "axis 1 of lhs is 3, axis 0 of rhs is 4"),
        (([0], [0, 1]), "got 1 axes of lhs and 2 of rhs"),
        (([2], [0]), "there is no axis 2 of a tensor of rank 2"),
        ("ab", "axes='ab' is not a pair of axes"),
    ],
)
def test_tensordot_refuses_axes_that_do_not_fit(axes: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=f"tensordot: {message}"):
        ops.tensordot(*pair((2, 3), (4, 2)), axes)


# einsum

EQUATIONS: list[tuple[str, list[list[int | str]]]] = [
    ("ij,jk->ik", [["i", "j"], ["j", "k"]]),
    ("ij,jk", [["i", "j"], ["j", "k"]]),
    (" ba ", [["i", "j"]]),
    ("ij->i", [["i", "j"]]),
    ("ij->", [["i", "j"]]),
    ("ij->ij", [["i", "j"]]),
    ("ii->i", [["i", "i"]]),
    ("ii", [["i", "i"]]),
    ("...ii", [["b", "i", "i"]]),
    ("iijj...->j...", [["i", "i", "j", "j", "k"]]),
    ("bhqd,bhkd->bhqk", [["b", "h", "q", "d"], ["b", "h", "k", "d"]]),
    ("...ij,...jk->...ik", [["b", 1, "i", "j"], ["c", "j", "k"]]),
    ("...ij,jk->...ik", [["b", "c", "i", "j"], ["j", "k"]]),
    ("ij...,jk->ik...", [["i", "j", "b", "c"], ["j", "k"]]),
    ("i...->...", [["i", "b", "c"]]),
    ("i,j->ij", [["i"], ["j"]]),
    ("i,ij,j->", [["i"], ["i", "j"], ["j"]]),
    ("aij,jk->ik", [["b", "i", "j"], ["j", "k"]]),
    ("Aij,jA->iA", [["a", "i", "j"], ["j", "a"]]),
    ("ij,ij->ij", [["i", 1], ["i", "j"]]),
    ("ij,jk->ik", [["i", 1], ["j", "k"]]),
    ("ij,ij->i", [["i", 1], ["i", "j"]]),
    ("i,i->", [["i"], [1]]),
]
SIZES: dict[int | str, int] = {"a": 2, "b": 2, "c": 6, "i": 3, "j": 4, "k": 5, "h": 3, "q": 4, "d": 5, 1: 1}


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8, np.bool_])
@pytest.mark.parametrize(("equation", "dims"), EQUATIONS, ids=str)
def test_einsum_is_numpys(equation: str, dims: list[list[int | str]], dtype: Any) -> None:
    arrays = [numbers(dtype, *(SIZES[d] for d in shape), seed=i) for i, shape in enumerate(dims)]
    want = np.asarray(np.einsum(equation, *arrays))
    assert_close(run1(lambda *s: ops.einsum(equation, *s), *arrays, dims=dims), want)


def test_einsum_of_integers_wraps_beyond_the_range_of_doubles() -> None:
    x = np.full((2, 3), 2**62, np.int64)
    np.testing.assert_array_equal(run1(lambda s: ops.einsum("ij->i", s), x), x.sum(1))
    np.testing.assert_array_equal(run1(lambda s: ops.einsum("ij,ij->i", s, s + 1), x), (x * (x + 1)).sum(1))


def test_einsum_is_one_node_for_floats() -> None:
    graph = graph_of(
        lambda q, k: ops.einsum("bqd,bkd->bqk", q, k),
        np.ones((2, 3, 4)),
        np.ones((2, 5, 4)),
        dims=[["b", "q", 4], ["b", "k", 4]],
    )
    assert [node.op_type for node in graph.nodes] == ["Einsum"]
    assert graph.outputs[0].shape == ["b", "q", "k"]


def test_einsum_meets_in_the_common_dtype() -> None:
    (x,) = symbols(("m", 4), dtype=DType.float16)
    assert ops.einsum("ij,jk", x, np.ones((4, 5), np.int8)).type == TensorType(DType.float16, ["m", 5])


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk", [(2, 3)], "2 terms for 1 operands"),
        ("ij", [(2, 3), (3,)], "1 terms for 2 operands"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "'j' is 3 in operand 0 and 4 in operand 1"),
        ("ij,jk->ik", [("a", "b"), ("c", "d")], "'j' is b in operand 0 and c in operand 1"),
        ("ii->i", [(3, 1)], "'i' is 3 in operand 0 and 1 in operand 0"),
        ("ijk->i", [(2, 3)], "the term 'ijk' does not describe operand 0, which has rank 2"),
        ("i->i", [(2, 3)], "the term 'i' does not describe operand 0, which has rank 2"),
        ("...ijk->i...", [(2, 3)], "the term '...ijk' does not describe operand 0"),
        ("i1->i", [(2, 3)], "'1' is not a letter"),
        ("i..->i", [(2, 3)], "'.' is not a letter"),
        ("ij->ik", [(2, 3)], "no operand has 'k'"),
        ("ij->ii", [(2, 3)], "the output has 'i' twice"),
        ("...i->i", [(2, 3)], "the output lacks the ... of the operands"),
        ("ij->...ij", [(2, 3)], "no operand has ...", ),
        ("...i,...i->...", [(2, 3), (4, 3)], "the axes of ... do not broadcast: 2 and 4 at axis -1"),
        ("ij->i->j", [(2, 3)], "'-' is not a letter"),
    ],
)  # fmt: skip
def test_einsum_refuses_equations_that_do_not_fit(equation: str, shapes: Any, message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        ops.einsum(equation, *symbols(*shapes))
    assert caught.value.summary.startswith(f"einsum: {equation!r}: {message}")
    assert caught.value.help


def test_einsum_refuses_a_call_without_equation_or_operands() -> None:
    (x,) = symbols((2, 3))
    with pytest.raises(DTypeError, match=r"einsum: equation must be a str, got <Symbol(.|\n)*give it first"):
        ops.einsum(x, "ij")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="einsum: 'ij': no operands"):
        ops.einsum("ij")


# Bands

BOUNDS = [(1, 2), (0, 0), (-1, 0), (0, -1), (-1, -1), (9, 9)]


def banded(x: Array, lower: int, upper: int, exclude: bool) -> Array:
    row, column = np.indices(x.shape[-2:])
    inside = ((lower < 0) | (row - column <= lower)) & ((upper < 0) | (column - row <= upper))
    return np.where(inside ^ exclude, x, np.zeros((), x.dtype))


@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
def test_band_part_keeps_the_band_or_what_is_outside(lower: int, upper: int, exclude: bool) -> None:
    for dtype in (np.float32, np.bool_, np.int8, np.uint16, np.float16):
        x = numbers(dtype, 2, 5, 7)
        for dims in (None, [["b", 5, 7]]):
            got = run1(lambda s: ops.band_part(s, lower, upper, exclude), x, dims=dims)
            assert_close(got, banded(x, lower, upper, exclude))


@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
def test_band_part_takes_symbols_as_bounds(lower: int, upper: int, exclude: bool) -> None:
    x = numbers(np.float32, 2, 5, 7)
    x[0, 0, 6] = x[1, 4, 0] = np.nan
    want = banded(x, lower, upper, exclude)
    got = run1(lambda s, a, b: ops.band_part(s, a, b, exclude), x, np.array(lower, np.int32), np.array(upper))
    assert_close(got, want)
    assert_close(run1(lambda s, b: ops.band_part(s, lower, b, exclude), x, np.array(upper, np.int8)), want)


def test_band_part_of_nothing_wanted_is_the_tensor() -> None:
    (x,) = symbols(("n", 4))
    assert ops.band_part(x, -1, None) is x
    assert ops.band_part(x, 1, 1).shape == ["n", 4]


@pytest.mark.parametrize("k", [-9, -1, 0, 2, 9])
def test_tril_and_triu_are_numpys(k: int) -> None:
    x = numbers(np.float32, 2, 5, 7)
    assert_close(run1(lambda s: ops.tril(s, k), x), np.tril(x, k))
    assert_close(run1(lambda s: ops.triu(s, k), x), np.triu(x, k))
    assert_close(run1(lambda s: ops.tril(s, k), x[:, :0]), x[:, :0])


def test_bands_refuse_what_is_not_a_matrix_or_bound() -> None:
    vector, matrix = symbols((4,), (4, 4))
    for name, arguments in (("tril", ()), ("triu", ()), ("band_part", (1, 1))):
        with pytest.raises(ShapeError, match=f"{name}: x must have rank 2 or more, got 1"):
            getattr(ops, name)(vector, *arguments)
    with pytest.raises(DTypeError, match=r"tril: k must be an int, got 1\.5"):
        ops.tril(matrix, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"band_part: num_lower must be >= -1, got -2(.|\n)*or -1 for all diagonals"):
        ops.band_part(matrix, -2, 0)
    with pytest.raises(DTypeError, match=r"band_part: num_upper=0\.5 is not a count"):
        ops.band_part(matrix, 0, 0.5)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match=r"band_part: num_lower must have an integer dtype, got float32"):
        ops.band_part(matrix, vector, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint64])
def test_matmul_with_a_vector_gives_nothing_when_there_are_no_rows(dtype: Any) -> None:
    vector = np.arange(4).astype(dtype)
    for rows in (0, 3):
        x = np.ones((rows, 4), dtype)
        assert_close(run1(lambda a, b: a @ b, x, vector, dims=[["n", 4], [4]]), x @ vector)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("mk", "nk4"),
        ("k", "nk4"),
        ("nmk", "k"),
        ("mk", "k4"),
        ("mk", "k"),
        ("nmk", "nk4"),
        ("k", "k"),
        ("mk", "anbk4"),
        ("1mk", "nk4"),
        ("a1mk", "nk4"),
    ],
)
def test_matmul_that_adds_nothing_up_gives_zero_when_ranks_differ(left: str, right: str, dtype: Any) -> None:
    types = [TensorType(dtype, [int(d) if d.isdigit() else d for d in dims]) for dims in (left, right)]
    graph = Graph("nothing", types)
    graph.output(graph[0] @ graph[1])
    model = InferenceSession().load(graph)
    sizes = {"m": 3, "n": 2, "a": 2, "b": 3, "1": 1, "4": 4}
    for length in (5, 0, 5, 0):  # what was computed before may lie where the result is put
        x, y = (np.full([{**sizes, "k": length}[d] for d in dims], 2, dtype) for dims in (left, right))
        np.testing.assert_array_equal(model(x, y)[0], np.matmul(x, y))
