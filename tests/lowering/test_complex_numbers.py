"""Complex numbers as their parts: what runs is NumPy's, with the special cases of C99's Annex G."""

from __future__ import annotations

import itertools
import operator
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops, promotion
from graphcore.analysis.statistics import statistics
from graphcore.errors import DTypeError, FeedError
from graphcore.promotion.complex_operators import OPERATORS, ORDERED
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.dtypes.complex_numbers.layers import SUPPORTED
from tests.support.graphs import Array

DTYPES = [np.complex64, np.complex128]
NAMES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -3.0, np.inf, -np.inf, np.nan)

FUNCTIONS = (
    "exp expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh square "
    "reciprocal sign abs"
).split()

ULPS = dict.fromkeys(FUNCTIONS, 1.0) | {"square": 2.0, "reciprocal": 2.0, "sign": 2.0}
"""The bounds of docs/numbers.md for complex64: in units in the last place of the magnitude of the result."""
ULPS_OF_DOUBLE = dict.fromkeys(FUNCTIONS, 16.0) | {"square": 2.0, "reciprocal": 2.0, "sign": 2.0, "sqrt": 2.0, "abs": 1}


def expm1_of_unlimited(z: Array) -> Array:
    """The array API standard's special cases of expm1: those of exp, but for a real part of -1 where that is 0."""
    with np.errstate(all="ignore"):
        result: Array = np.exp(z)
    result.real = np.where(z.real == -np.inf, -1, result.real)
    return result


OPEN = {
    ("sin", "inf"), ("sinh", "inf"), ("acos", "nan"), ("atan", "nan"), ("asinh", "nan"), ("acosh", "nan"),
}  # fmt: skip
"""Functions of which Annex G leaves the sign of a part open where the other one is so."""


def drawn(*shape: int, dtype: Any = np.complex64, seed: int = 0) -> Array:
    rng = np.random.default_rng((seed, *shape))
    graph: Array = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return graph


def computed(function: Callable[..., Any], *arrays: Array, session: Any = None) -> Any:
    """Return the results of a graph of the array API's system, all axes named by their sizes."""
    types = {
        f"x{i}": TensorType(DType.of(x.dtype), [f"d{n}" if n > 1 else n for n in x.shape]) for i, x in enumerate(arrays)
    }
    graph = Graph("test", types, promotion="array_api")
    with graph:
        result = function(*graph.inputs)
    several = isinstance(result, (tuple, list))
    graph.output(*(result if several else (result,)))
    results = (session or gc.InferenceSession()).load(graph)(*arrays)
    return results if several else results[0]


def grid(dtype: Any) -> Array:
    return np.array([complex(*pair) for pair in itertools.product(SPECIAL, SPECIAL)], dtype)


def formula(name: str) -> Any:
    return getattr(np, NAMES.get(name, name))


def parts(values: Array) -> tuple[Array, Array]:
    return (values.real, values.imag) if values.dtype.kind == "c" else (values, np.zeros_like(values))


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_have_numpys_special_cases(dtype: Any) -> None:
    z = grid(dtype)
    results = computed(lambda x: [getattr(ops, name)(x) for name in FUNCTIONS], z)
    failed = []
    for name, got in zip(FUNCTIONS, results, strict=True):
        with np.errstate(all="ignore"):
            want = formula(name)(z)
        if name == "expm1":  # of which NumPy's is exp(z) - 1 for what is not finite
            want = np.where(np.isfinite(z), want, expm1_of_unlimited(z))
        for value, one, other in zip(z, got, want, strict=True):
            is_open = any(
                (name, kind) in OPEN and (np.isinf(value).any() if kind == "inf" else np.isnan(value))
                for kind in ("inf", "nan")
            )
            for a, b in zip(parts(np.asarray(one)), parts(np.asarray(other)), strict=True):
                same: Any = (np.isnan(a) and np.isnan(b)) or np.isclose(a, b, rtol=1e-5, atol=0)
                same = same and (np.isnan(a) or is_open or np.signbit(a) == np.signbit(b))
                if not same and not (is_open and np.isclose(abs(a), abs(b))):
                    failed.append(f"{name}({value}): {one}, not {other}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_are_within_their_bounds(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    z = (drawn(3000, dtype=np.complex128) * np.exp(rng.uniform(-6, 2, 3000))).astype(dtype)
    is_double = dtype is np.complex128
    results = computed(lambda x: [getattr(ops, name)(x) for name in FUNCTIONS], z)
    for name, got in zip(FUNCTIONS, results, strict=True):
        want = formula(name)(z.astype(np.clongdouble if is_double else np.complex128))
        unit = np.finfo(dtype).eps * np.abs(want)
        most = float((np.abs(got.astype(want.dtype) - want) / unit).max())
        assert most <= (ULPS_OF_DOUBLE if is_double else ULPS)[name], (name, most)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tangents_are_numbers_above_and_below_their_poles(dtype: Any) -> None:
    poles = np.array([0.5, -0.5, 1.5, 2.5]) * np.pi
    heights = np.array([0.1, 0.88137358701954305, 1.0, 3.0, -0.5, 19.0, 30.0])
    z = np.empty((len(poles), len(heights)), dtype)
    z.real, z.imag = poles[:, None], heights
    graph = Graph("tan", {"z": TensorType(DType.of(np.dtype(dtype)), ["n", "m"])}, promotion="array_api")
    graph.output(ops.tan(graph["z"]), ops.tanh(graph["z"] * 1j))
    tan, tanh = gc.InferenceSession().load(graph)(z)
    want = np.tan(z.astype(np.clongdouble))
    assert (np.abs(tan - want) <= 16 * np.finfo(dtype).eps * np.abs(want)).all()
    assert (np.abs(tanh - 1j * want) <= 16 * np.finfo(dtype).eps * np.abs(want)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_is_numpys_formula_bit_for_bit(dtype: Any) -> None:
    x, y = (np.concatenate([np.repeat(grid(dtype), 81), drawn(500, dtype=dtype)]),
            np.concatenate([np.tile(grid(dtype), 81), drawn(500, dtype=dtype, seed=1)]))  # fmt: skip
    added, less, times, over, minus, same, apart = computed(
        lambda a, b: [a + b, a - b, a * b, a / b, -a, a == b, a != b], x, y
    )
    with np.errstate(all="ignore"):
        product = np.empty_like(x)  # not x * y, which fuses the sums on some processors
        product.real = x.real * y.real - x.imag * y.imag
        product.imag = x.real * y.imag + x.imag * y.real
        for got, want in ((added, x + y), (less, x - y), (times, product), (over, x / y), (minus, -x)):
            assert got.dtype == dtype
            for a, b in zip(parts(got), parts(want), strict=True):
                np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(same, x == y)
        np.testing.assert_array_equal(apart, x != y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extreme", [None, 0.0, 1e-300, 1e300, np.inf, np.nan], ids=str)
def test_quotients_are_the_same_bits_beside_extreme_numbers(dtype: Any, extreme: float | None) -> None:
    edges = [complex(a, b) for a in (0.0, -0.0, 1.0, -3.0) for b in (1.0, -1.0, 0.5)]
    edges += [complex(z.imag, z.real) for z in edges]
    x = np.concatenate([np.repeat(np.array(edges, dtype), len(edges)), drawn(500, dtype=dtype)])
    y = np.concatenate([np.tile(np.array(edges, dtype), len(edges)), drawn(500, dtype=dtype, seed=1)])
    graph = Graph("quotient", dict.fromkeys("xy", TensorType(DType.of(np.dtype(dtype)), ["n"])), promotion="array_api")
    graph.output(graph["x"] / graph["y"])
    model = gc.InferenceSession().load(graph)
    part = np.finfo(dtype).dtype
    with np.errstate(all="ignore"):
        for place in ("none",) if extreme is None else ("x", "y"):
            added = {name: np.array([extreme if name == place else 2.0], dtype) for name in "xy"}
            got = model(np.append(x, added["x"]), np.append(y, added["y"]))[0][: len(x)]
            want = x / y
            np.testing.assert_array_equal(got.view(part), want.view(part))
            np.testing.assert_array_equal(np.signbit(got.view(part)), np.signbit(want.view(part)))


def test_quotients_have_branches_only_where_the_target_runs_them() -> None:
    graph = Graph("quotient", dict.fromkeys("xy", TensorType("complex64", ["n"])), promotion="array_api")
    graph.output(graph["x"] / graph["y"])
    assert "If" in {node.op_type for node in lower(graph, "cpu").nodes}
    assert "If" not in {node.op_type for node in lower(graph, "openvino").nodes}


@pytest.mark.parametrize("dtype", DTYPES)
def test_magnitude_neither_overflows_nor_vanishes(dtype: Any) -> None:
    info = np.finfo(dtype)
    sizes = np.array([info.max, info.max / 2, info.tiny, info.smallest_subnormal, 1, 3e-7], info.dtype)
    z = np.array([complex(a, b) for a in sizes for b in sizes], dtype)
    with np.errstate(over="ignore"):
        want = np.hypot(z.real, z.imag)
    np.testing.assert_allclose(computed(abs, z), want, rtol=info.eps, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_and_casts_are_numpys(dtype: Any) -> None:
    z, x = np.concatenate([grid(dtype), drawn(20, dtype=dtype)]), np.arange(5, dtype=np.int32)
    real, imag, conj, truth, angle, nan, inf, finite, other, whole = computed(
        lambda z, x: [
            z.real, z.imag, z.conj(), z.cast(DType.bool), ops.angle(z), ops.is_nan(z), ops.is_inf(z), ops.is_finite(z),
            z.cast(DType.complex128), x.cast(DType.complex64),
        ],
        z,
        x,
    )  # fmt: skip
    np.testing.assert_array_equal(real, z.real)
    np.testing.assert_array_equal(imag, z.imag)
    np.testing.assert_array_equal(np.signbit(conj.imag), np.signbit(-z.imag))
    np.testing.assert_array_equal(truth, z.astype(bool))
    np.testing.assert_allclose(angle, np.angle(z), rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(nan, np.isnan(z))
    np.testing.assert_array_equal(inf, np.isinf(z))
    np.testing.assert_array_equal(finite, np.isfinite(z))
    np.testing.assert_array_equal(other, z.astype(np.complex128))
    np.testing.assert_array_equal(whole, x.astype(np.complex64))
    assert (other.dtype, whole.dtype) == (np.complex128, np.complex64)


@pytest.mark.parametrize(
    "dims", [([3], ["n", 3]), ([], ["n", 3]), ([1, 3], ["n", 1]), (["n", 3], []), ([2, 3], [3])], ids=str
)
def test_parts_of_other_shapes_meet(dims: tuple[list[Any], list[Any]]) -> None:
    rules = promotion.system("max", complex=True)
    graph = Graph("parts", {f"x{i}": TensorType(DType.float32, d) for i, d in enumerate(dims)}, promotion=rules)
    graph.output(ops.complex(*graph.inputs))
    sizes = [[2 if d == "n" else d for d in shape] for shape in dims]
    real, imag = (np.arange(np.prod(s), dtype=np.float32).reshape(s) + i for i, s in enumerate(sizes))
    for source in (graph, graph.to_onnx(target="onnx")):
        (got,) = gc.InferenceSession().load(source)(real, imag)
        np.testing.assert_array_equal(got, (real + 1j * imag).astype(np.complex64))


def test_powers_are_numpys() -> None:
    z, w = drawn(40, dtype=np.complex128), drawn(40, dtype=np.complex128, seed=1)
    z[:2], w[:3] = 0, (2, 0, 0)
    results = computed(lambda z, w: [z**w, z**0, z**1, z**2, z**7, z**-3, z**0.5, 2.0**z, z ** (1 + 2j)], z[2:], w[2:])
    z, w = z[2:], w[2:]
    for got, want in zip(
        results, [z**w, z**0, z, z**2, z**7, z**-3.0, z**0.5, 2.0**z, z ** (1 + 2j)], strict=True
    ):  # fmt: skip
        np.testing.assert_allclose(got, want, rtol=1e-13)
    nothing = np.zeros(3, np.complex128)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            computed(lambda z, w: z**w, nothing, np.array([1 + 1j, 0, -1])), nothing ** np.array([1 + 1j, 0, -1])
        )


MOVES: dict[str, tuple[Callable[..., Any], Callable[[Array], Any]]] = {
    "reshape": (lambda x: ops.reshape(x, [-1]), lambda x: x.reshape(-1)),
    "transpose": (lambda x: ops.permute(x, [2, 0, 1]), lambda x: x.transpose(2, 0, 1)),
    "slice": (lambda x: x[1:, ::2], lambda x: x[1:, ::2]),
    "gather": (lambda x: ops.gather(x, np.array([1, 0]), 1), lambda x: x[:, [1, 0]]),
    "mask": (lambda x: x[ops.abs(x) > 1], lambda x: x[np.abs(x) > 1]),
    "concat": (lambda x: ops.concat([x, x * 2], 1), lambda x: np.concatenate([x, x * 2], 1)),
    "stack": (lambda x: ops.stack([x, x], -1), lambda x: np.stack([x, x], -1)),
    "flip": (ops.flip, lambda x: x[::-1, ::-1, ::-1]),
    "roll": (lambda x: ops.roll(x, 2, 1), lambda x: np.roll(x, 2, 1)),
    "tile": (lambda x: ops.tile(x, [2, 1, 3]), lambda x: np.tile(x, [2, 1, 3])),
    "pad": (lambda x: ops.pad(x, [(1, 0), (0, 2), (0, 0)], value=1j), lambda x: np.pad(
        x, [(1, 0), (0, 2), (0, 0)], constant_values=1j)),
    "where": (lambda x: ops.where(x.real > 0, x, 1j), lambda x: np.where(x.real > 0, x, np.complex64(1j))),
    "band": (ops.triu, np.triu),
    "broadcast": (lambda x: ops.broadcast_to(x[0], ["d3", "d4", "d2"]), lambda x: np.broadcast_to(x[0], (3, 4, 2))),
    "split": (lambda x: ops.split(x, [1, 2]), lambda x: np.split(x, [1])),
    "sum": (lambda x: ops.sum(x, (0, 2)), lambda x: x.sum((0, 2))),
    "mean": (lambda x: ops.mean(x, 1, keepdims=True), lambda x: x.mean(1, keepdims=True)),
    "prod": (lambda x: ops.prod(x, 1), lambda x: x.prod(1)),
    "prod of all": (lambda x: ops.prod(x, keepdims=True), lambda x: x.prod(keepdims=True)),
    "cumsum": (lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1)),
    "cumprod": (lambda x: ops.cumprod(x, 2), lambda x: x.cumprod(2)),
    "cumprod backwards": (lambda x: ops.cumprod(x, 1, reverse=True, exclusive=True), lambda x: np.concatenate(
        [x[:, :0:-1].cumprod(1)[:, ::-1], np.ones_like(x[:, :1])], 1)),
    "count": (ops.count_nonzero, np.count_nonzero),
    "shape": (ops.shape_of, lambda x: np.array(x.shape)),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_moves_and_sums_are_numpys(name: str) -> None:
    x = drawn(3, 4, 2)
    call, want = MOVES[name]
    result, wanted = computed(call, x), want(x)
    if not isinstance(result, list):
        result, wanted = [result], [wanted]
    for got, one in zip(result, wanted, strict=True):
        assert got.shape == np.shape(one)
        np.testing.assert_allclose(got, one, rtol=1e-5)


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_products_are_numpys_when_of_four_and_of_three_real_ones(precision: Any) -> None:
    x, y = drawn(2, 3, 4), drawn(4, 5)
    session = gc.InferenceSession(precision=precision)
    cases: list[tuple[Callable[..., Any], Any]] = [
        (operator.matmul, x @ y),
        (lambda x, y: ops.einsum("bij,jk->bk", x, y), np.einsum("bij,jk->bk", x, y)),
        (lambda x, y: ops.einsum("bij,jk,lk->bl", x, y, y), np.einsum("bij,jk,lk->bl", x, y, y)),
        (lambda x, y: ops.tensordot(x, y, 1), np.tensordot(x, y, 1)),
        (lambda x, y: ops.vecdot(x, y.T[0]), np.vecdot(x, y.T[0])),
        (lambda x, y: ops.outer(x[0, 0], y[0]), np.outer(x[0, 0], y[0])),
        (lambda x, y: ops.linear(x, y.T, y[0]), x @ y + y[0]),
    ]
    for call, want in cases:
        np.testing.assert_allclose(computed(call, x, y, session=session), want, rtol=2e-5, atol=2e-6)


def test_fast_products_are_three_real_ones() -> None:
    graph = Graph("g", {"x": TensorType(DType.complex64, [4, 4])}, promotion="array_api")
    graph.output(graph["x"] @ graph["x"])
    counts = [
        sum(node.op_type == "MatMul" for node in lower(graph, "cpu", precision).nodes)
        for precision in ("exact", None, "fast")
    ]
    assert counts == [4, 4, 3]


def test_bodies_take_and_give_complex_numbers() -> None:
    x = drawn(4, 2)

    def build(x: Any) -> list[Any]:
        outer = x * 2j
        chosen = ops.cond(ops.sum(x.real) > 0, lambda: x + outer, lambda: outer)
        turned = ops.for_loop(3, lambda i, value: value * outer, x)
        last, running = ops.scan(lambda value, row: (value + row, value * row), x[0], x)
        return [chosen, turned, last, running]

    chosen, turned, last, running = computed(build, x)
    np.testing.assert_allclose(chosen, x + x * 2j if x.real.sum() > 0 else x * 2j, rtol=1e-6)
    np.testing.assert_allclose(turned, x * (x * 2j) ** 3, rtol=1e-5)
    np.testing.assert_allclose(last, x[0] + x.sum(0), rtol=1e-5)
    sums = np.concatenate([x[:1], x[0] + x.cumsum(0)[:-1]])
    np.testing.assert_allclose(running, sums * x, rtol=1e-5)


def test_functions_and_lists_take_complex_numbers() -> None:
    x = drawn(3, 4)

    @gc.function
    def twice(x: Any) -> Any:
        return x * x + 1j

    def build(x: Any) -> list[Any]:
        rows = ops.list_unstack(x)
        columns = ops.list_split(x, 1, axis=-1)
        return [twice(x), rows, ops.list_stack(rows, -1), ops.list_concat(columns, -1), ops.list_get(columns, -1)]

    squared, rows, stacked, joined, column = computed(build, x)
    np.testing.assert_allclose(squared, x * x + 1j, rtol=1e-5)
    assert all(row.dtype == np.complex64 for row in rows)
    np.testing.assert_array_equal(rows, x)
    np.testing.assert_array_equal(stacked, x.T)
    np.testing.assert_array_equal(joined, x)
    np.testing.assert_array_equal(column, x[:, -1:])


# Constants, files, feeds


def test_constants_weights_and_buffers_hold_complex_numbers(tmp_path: Path) -> None:
    value = drawn(3)
    graph = Graph(
        "g",
        {"x": TensorType(DType.complex64, [3]), "total": gc.Buffer(DType.complex64, [3])},
        promotion="array_api",
    )
    with graph:
        graph["total"] = graph["total"] + graph["x"] * graph.weight("w", value) + graph.constant([1j, 2, -0.0])
        graph.output(y=graph["total"] * 1, z=ops.full([2], 1 - 2j, DType.complex128))
    path = tmp_path / "m.onnx"
    graph.export(path)
    for model in (gc.InferenceSession().load(graph), gc.InferenceSession().load(path)):
        x, total = drawn(3, seed=1), np.zeros(3, np.complex64)
        for _ in range(3):
            total = total + x * value + np.array([1j, 2, 0], np.complex64)
            y, z = model(x)
            np.testing.assert_allclose(y, total, rtol=1e-6)
            np.testing.assert_array_equal(z, np.full(2, 1 - 2j))
        assert model.buffers["total"].dtype == np.complex64
        np.testing.assert_allclose(model.buffers["total"], total, rtol=1e-6)
        model.buffers["total"] = x
        np.testing.assert_allclose(model.state(total=x * 2)(x)[0], x * 2 + x * value + [1j, 2, 0], rtol=1e-6)


def test_files_say_which_inputs_are_complex(tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType(DType.complex128, ["n", 2])}, promotion="array_api")
    graph.output(y=ops.exp(graph["x"]), size=abs(graph["x"]))
    path = tmp_path / "m.onnx"
    graph.export(path)
    model = gc.InferenceSession().load(path)
    assert model.inputs["x"] == TensorType(DType.complex128, ["n", 2])
    assert model.outputs["y"] == TensorType(DType.complex128, ["n", 2])
    x = drawn(5, 2, dtype=np.complex128)
    y, size = model(x)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-14)
    np.testing.assert_allclose(size, abs(x), rtol=1e-15)
    again = gc.InferenceSession().load(Graph.load(path))
    np.testing.assert_array_equal(again(x)[0], y)
    assert Graph.load(path).inputs[0].type == TensorType(DType.float64, ["n", 2, 2])


def test_feeds_and_results_are_views() -> None:
    graph = Graph("g", {"x": TensorType(DType.complex64, ["n"])}, promotion="array_api")
    graph.output(y=graph["x"] * 2)
    model = gc.InferenceSession().load(graph)
    x = drawn(6)
    fed = model._feeds.take((x,), {})["x"]
    assert np.shares_memory(fed, x)
    assert fed.shape == (6, 2)
    (y,) = model(x)
    assert y.base is not None
    for item in (x[::2], x[::-1], x.byteswap().view(x.dtype.newbyteorder()), [1, 2j], np.stack([x.real, x.imag], -1)):
        want = np.asarray(item, np.complex64) if not isinstance(item, np.ndarray) or item.dtype.kind == "c" else x
        np.testing.assert_array_equal(model(item)[0], want * 2)
    (nothing,) = model(np.zeros(0, np.complex64))
    assert (nothing.dtype, nothing.shape) == (np.complex64, (0,))


def test_feeds_refuse_other_dtypes_and_shapes() -> None:
    graph = Graph("g", {"x": TensorType(DType.complex64, ["n", 3])}, promotion="array_api")
    graph.output(y=graph["x"] * 2)
    model = gc.InferenceSession().load(graph)
    x = drawn(2, 3)
    model(x)
    for wrong, why in (
        (x.astype(np.complex128), "complex128"),
        (x.real, "float32"),
        (x[0], "rank 2"),
        (x[:, :2], "axis 1"),
        (np.zeros((2, 3, 3), np.float32), "float32"),
        ([[1e300j] * 3], "cannot be held"),
    ):
        with pytest.raises(FeedError, match=why):
            model(wrong)


def test_bindings_hold_complex_arrays() -> None:
    graph = Graph("g", {"x": TensorType(DType.complex64, ["n"])}, promotion="array_api")
    graph.output(y=graph["x"] * 2, some=graph["x"][abs(graph["x"]) > 1])
    bound = gc.InferenceSession().load(graph).bind(n=5)
    x = drawn(5)
    for _ in range(2):
        y, some = bound(x)
        np.testing.assert_array_equal(y, x * 2)
        np.testing.assert_array_equal(some, x[abs(x) > 1])
    bound.inputs["x"][...] = x + 1
    assert bound.inputs["x"].dtype == np.complex64
    np.testing.assert_array_equal(bound()[0], (x + 1) * 2)
    np.testing.assert_array_equal(bound.outputs["y"], (x + 1) * 2)
    with pytest.raises(FeedError):
        bound(x[:4])


def test_rows_run_apart_and_in_threads() -> None:
    graph = Graph("g", {"x": TensorType(DType.complex64, ["n", 2])}, promotion="array_api")
    graph.output(y=graph["x"] * 2j)
    model = gc.InferenceSession().load(graph)
    x = drawn(7, 2)
    np.testing.assert_allclose(model.execute(x, micro_batch=3)[0], x * 2j)
    np.testing.assert_allclose(model.run_async(x).result()[0], x * 2j)
    rows = [row[0] for row in model.map([{"x": row} for row in x], batch=2)]
    np.testing.assert_allclose(np.stack([np.asarray(row).reshape(2) for row in rows]), x * 2j)


def test_isolated_sessions_give_complex_arrays() -> None:
    graph = Graph("g", {"x": TensorType(DType.complex64, ["n"])}, promotion="array_api")
    graph.output(y=graph["x"] * 2j)
    x = drawn(4)
    model = gc.IsolatedSession(load_seconds=300, run_seconds=100).load(graph)
    np.testing.assert_allclose(model(x)[0], x * 2j)


def test_traced_functions_take_complex_arrays() -> None:
    x = drawn(4)
    result = gc.jit(lambda x: x * 1j, promotion="array_api")(x)
    np.testing.assert_array_equal(result, x * np.complex64(1j))


# What is refused


REFUSED: dict[str, Callable[[Any], Any]] = {
    "<": lambda x: x < x,
    ">=": lambda x: x >= 1,
    "max": ops.max,
    "maximum": lambda x: ops.maximum(x, 0),
    "argmax": ops.argmax,
    "top_k": lambda x: ops.top_k(x, 1),
    "floor": ops.floor,
    "round": ops.round,
    "//": lambda x: x // 2,
    "%": lambda x: x % 2,
    "clip": lambda x: ops.clip(x, 0, 1),
    "relu": ops.relu,
}


@pytest.mark.parametrize("name", REFUSED)
def test_order_of_complex_numbers_is_refused(name: str) -> None:
    graph = Graph("g", {"x": TensorType(DType.complex64, [4])}, promotion="array_api")
    with pytest.raises(DTypeError, match="complex numbers have no order") as caught:
        REFUSED[name](graph["x"])
    assert "complex64[4]" in str(caught.value)
    assert "test_complex_numbers.py:" in str(caught.value)
    assert "ops.real(z)" in caught.value.help


@pytest.mark.parametrize("dtype", [DType.float32, DType.float64, DType.int32, DType.float16])
def test_casts_to_real_dtypes_are_refused(dtype: DType) -> None:
    graph = Graph("g", {"x": TensorType(DType.complex64, [4])}, promotion="array_api")
    calls: list[Callable[[], Any]] = [lambda: graph["x"].cast(dtype), lambda: graph.constant([1j], dtype)]
    for call in calls:
        with pytest.raises(DTypeError, match="imaginary parts would be lost") as caught:
            call()
        assert "ops.real(z)" in caught.value.help


def test_operators_of_other_domains_are_refused() -> None:
    graph = Graph("g", {"x": TensorType(DType.complex64, [4])}, promotion="array_api")
    twice = gc.custom_op("my.domain::Twice", lambda x: x, python=lambda x: x * 2)
    with pytest.raises(DTypeError, match=r"Twice: it does not support complex64") as caught:
        twice(graph["x"])
    assert "ops.real(z) and ops.imag(z)" in caught.value.help


def test_parts_that_are_complex_are_refused() -> None:
    graph = Graph("g", {"x": TensorType(DType.complex64, [4])}, promotion="array_api")
    with pytest.raises(DTypeError, match="the parts must be real, got"):
        ops.complex(graph["x"], 1.0)
    with pytest.raises(DTypeError, match="rfft: x must be real, got complex64"):
        ops.rfft(graph["x"])
    with pytest.raises(DTypeError, match="cannot be held in complex64"):
        graph["x"] + 1e300j
    with pytest.raises(DTypeError, match="no minimum or maximum value"):
        DType.complex64.max  # noqa: B018


def test_operators_that_are_let_through_have_rules() -> None:
    assert OPERATORS == SUPPORTED
    assert not OPERATORS & ORDERED


# Costs nothing


def test_graphs_of_real_numbers_are_left_as_they_are() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n"])})
    graph.output(graph["x"] * 2 + 1)
    trace: list[Any] = []
    lower(graph, "cpu", trace=trace)
    assert "complex numbers" not in [step.name for step in trace]


def test_dtypes_are_one_object_each() -> None:
    for name, numpy in (("complex64", np.complex64), ("complex128", np.complex128)):
        dtype = DType.of(name)
        assert dtype is DType.of(numpy) is DType.of(np.dtype(numpy)) is getattr(DType, name)
        assert dtype is pickle.loads(pickle.dumps(dtype))
        assert (dtype.is_complex, dtype.is_float, dtype.is_number) == (True, False, True)
        assert dtype.numpy == numpy
        assert dtype.storage is (DType.float32 if name == "complex64" else DType.float64)
    assert DType.of("c64") is DType.complex64
    assert DType.of("c128") is DType.of(complex) is DType.complex128


def test_statistics_are_of_magnitudes() -> None:
    z = drawn(50)
    result = statistics(z)
    assert (result.min, result.max) == (float(abs(z).min()), float(abs(z).max()))
