"""graphcore.array_api: the same code on Symbols, Arrays and NumPy gives the same results; features of Arrays alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
import graphcore.array_api as xp
from graphcore import DType, Graph, TensorType
from graphcore.errors import GraphError, PromotionError
from tests.support.graphs import ALL, Values, assert_same

ANY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "astype": lambda xp, x, y: xp.astype(x, xp.float64),
    "broadcast_arrays": lambda xp, x, y: xp.broadcast_arrays(x, y[0])[1],
    "broadcast_to": lambda xp, x, y: xp.broadcast_to(y[0], (2, 2, 3)),
    "concat": lambda xp, x, y: xp.concat([x, y], axis=1),
    "concat flat": lambda xp, x, y: xp.concat([x, y], axis=None),
    "equal": lambda xp, x, y: xp.equal(x, y),
    "expand_dims": lambda xp, x, y: xp.expand_dims(x, axis=1),
    "flip": lambda xp, x, y: xp.flip(x),
    "flip an axis": lambda xp, x, y: xp.flip(x, axis=-1),
    "meshgrid": lambda xp, x, y: xp.meshgrid(x[0], y[:, 1])[0],
    "moveaxis": lambda xp, x, y: xp.moveaxis(xp.expand_dims(x, axis=0), (0, 1), (2, 0)),
    "not_equal": lambda xp, x, y: x != y,
    "permute_dims": lambda xp, x, y: xp.permute_dims(x, (1, 0)),
    "repeat": lambda xp, x, y: xp.repeat(x, 2, axis=1),
    "repeat flat": lambda xp, x, y: xp.repeat(x, 3),
    "reshape": lambda xp, x, y: xp.reshape(x, (3, -1)),
    "roll": lambda xp, x, y: xp.roll(x, 5),
    "roll axes": lambda xp, x, y: xp.roll(x, (1, -2), axis=(0, 1)),
    "squeeze": lambda xp, x, y: xp.squeeze(x[:1, :], axis=0),
    "stack": lambda xp, x, y: xp.stack([x, y], axis=1),
    "tile": lambda xp, x, y: xp.tile(x, (2, 1, 2)),
    "transpose": lambda xp, x, y: x.T + y.mT if x.dtype not in (np.bool_, DType.bool) else x.T,
    "unstack": lambda xp, x, y: xp.unstack(x, axis=1)[2],
    "where": lambda xp, x, y: xp.where(x == y, x, y),
    "all": lambda xp, x, y: xp.all(x, axis=0),
    "any": lambda xp, x, y: xp.any(x, axis=1, keepdims=True),
    "count_nonzero": lambda xp, x, y: xp.count_nonzero(x, axis=0),
    "nonzero": lambda xp, x, y: xp.nonzero(x)[1],
    "unique_values": lambda xp, x, y: np.unique(x) if xp is np else xp.unique_values(x),
    "unique_counts": lambda xp, x, y: xp.unique_counts(x).counts,
    "unique_inverse": lambda xp, x, y: xp.unique_inverse(x).inverse_indices,
    "take": lambda xp, x, y: xp.take(x, xp.asarray([2, 0]), axis=1),
    "take_along_axis": lambda xp, x, y: xp.take_along_axis(x, xp.asarray([[2], [0]]), axis=1),
    "tril": lambda xp, x, y: xp.tril(x, k=-1),
    "triu": lambda xp, x, y: xp.triu(x, k=1),
    "element": lambda xp, x, y: x[1, -1],
    "slices": lambda xp, x, y: x[::-1, None, 1:],
    "mask": lambda xp, x, y: x[x == y],
    "positions": lambda xp, x, y: x[xp.asarray([0, 1, 1]), xp.asarray([2, 2, 0])],
    "zeros_like": lambda xp, x, y: xp.zeros_like(x),
    "ones_like": lambda xp, x, y: xp.ones_like(x),
}

OF_NUMBERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda xp, x, y: x + y,
    "subtract": lambda xp, x, y: x - y,
    "multiply": lambda xp, x, y: x * y,
    "floor_divide": lambda xp, x, y: x // (y * y + xp.ones_like(y)),
    "remainder": lambda xp, x, y: x % (y * y + xp.ones_like(y)),
    "scalars": lambda xp, x, y: 2 + x * 3 - 1,
    "scalar powers": lambda xp, x, y: x**2,
    "less": lambda xp, x, y: x < y,
    "greater_equal scalar": lambda xp, x, y: x >= 3,
    "abs": lambda xp, x, y: xp.abs(x),
    "sign": lambda xp, x, y: xp.sign(x),
    "square": lambda xp, x, y: xp.square(x),
    "positive": lambda xp, x, y: +x,
    "maximum": lambda xp, x, y: xp.maximum(x, y),
    "minimum scalar": lambda xp, x, y: xp.minimum(x, 2),
    "clip": lambda xp, x, y: xp.clip(x, 1, y),
    "round": lambda xp, x, y: xp.round(x),
    "sum": lambda xp, x, y: xp.sum(x, axis=0),
    "prod": lambda xp, x, y: xp.prod(x, axis=1, keepdims=True),
    "max": lambda xp, x, y: xp.max(x, axis=1),
    "min": lambda xp, x, y: xp.min(x),
    "argmax": lambda xp, x, y: xp.argmax(x, axis=1),
    "argmin": lambda xp, x, y: xp.argmin(x),
    "cumulative_sum": lambda xp, x, y: xp.cumulative_sum(x, axis=1, include_initial=True),
    "cumulative_prod": lambda xp, x, y: xp.cumulative_prod(x, axis=0),
    "diff": lambda xp, x, y: xp.diff(x, axis=1, prepend=y[:, :1]),
    "diff twice": lambda xp, x, y: xp.diff(x, n=2),
    "sort": lambda xp, x, y: xp.sort(x, axis=0, descending=True) if xp is not np else -np.sort(-x, axis=0),
    "argsort": lambda xp, x, y: xp.argsort(x, axis=1, stable=True),
    "searchsorted": lambda xp, x, y: xp.searchsorted(xp.sort(x[0]), y, side="right"),
    "isin": lambda xp, x, y: xp.isin(x, y[0]),
    "matmul": lambda xp, x, y: x @ y.mT,
    "tensordot": lambda xp, x, y: xp.tensordot(x, y, axes=((0,), (0,))),
    "vecdot": lambda xp, x, y: xp.vecdot(x, y),
    "isfinite": lambda xp, x, y: xp.isfinite(x),
    "isnan": lambda xp, x, y: xp.isnan(x),
}

OF_INTEGERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "and": lambda xp, x, y: x & y,
    "or": lambda xp, x, y: x | 5,
    "xor": lambda xp, x, y: x ^ y,
    "invert": lambda xp, x, y: ~x,
    "left shift": lambda xp, x, y: x << 1,
    "right shift": lambda xp, x, y: x >> xp.ones_like(y),
}

OF_FLOATS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "divide": lambda xp, x, y: x / y,
    "scalar divide": lambda xp, x, y: 2.5 / y,
    "mean": lambda xp, x, y: xp.mean(x, axis=1),
    "var": lambda xp, x, y: xp.var(x, axis=0, correction=1),
    "std": lambda xp, x, y: xp.std(x),
    "exp": lambda xp, x, y: xp.exp(x),
    "expm1": lambda xp, x, y: xp.expm1(x),
    "log": lambda xp, x, y: xp.log(xp.abs(x) + 1.0),
    "log1p": lambda xp, x, y: xp.log1p(xp.abs(x)),
    "log2": lambda xp, x, y: xp.log2(xp.abs(x) + 1.0),
    "log10": lambda xp, x, y: xp.log10(xp.abs(x) + 1.0),
    "logaddexp": lambda xp, x, y: xp.logaddexp(x, y),
    "sqrt": lambda xp, x, y: xp.sqrt(xp.abs(x)),
    "sin": lambda xp, x, y: xp.sin(x),
    "cos": lambda xp, x, y: xp.cos(x),
    "tan": lambda xp, x, y: xp.tan(x),
    "sinh": lambda xp, x, y: xp.sinh(x),
    "asinh": lambda xp, x, y: xp.asinh(x),
    "atan": lambda xp, x, y: xp.atan(x),
    "atan2": lambda xp, x, y: xp.atan2(x, y),
    "tanh": lambda xp, x, y: xp.tanh(x),
    "hypot": lambda xp, x, y: xp.hypot(x, y),
    "copysign": lambda xp, x, y: xp.copysign(x, -y),
    "nextafter": lambda xp, x, y: xp.nextafter(x, y),
    "reciprocal": lambda xp, x, y: xp.reciprocal(y),
    "signbit": lambda xp, x, y: xp.signbit(-x),
    "floor": lambda xp, x, y: xp.floor(x * 0.3),
    "trunc": lambda xp, x, y: xp.trunc(x * 0.3),
    "softmax": lambda xp, x, y: xp.exp(x - xp.max(x, axis=-1, keepdims=True)),
}


def cases(dtype: DType) -> dict[str, Callable[[Any, Any, Any], Any]]:
    results = dict(ANY)
    if dtype is DType.bool:
        return results | {"and": OF_INTEGERS["and"], "invert": OF_INTEGERS["invert"]}
    results |= OF_NUMBERS | (OF_FLOATS if dtype.is_float else OF_INTEGERS)
    if dtype.is_unsigned:
        del results["sort"]  # NumPy has no descending sort, and unsigned numbers no negatives
    return results


def operands(dtype: DType) -> tuple[Values, Values]:
    x = np.array([[3, 0, 1], [2, 2, 5]])
    y = np.array([[3, 1, 2], [1, 2, 4]])
    if dtype.is_signed or dtype.is_float:
        x = x * np.array([1, -1, 1]) * np.array([[-1], [1]])
    return x.astype(dtype.numpy), y.astype(dtype.numpy)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_functions_of_arrays_and_symbols_equal_numpy(dtype: DType) -> None:
    x, y = operands(dtype)
    graph = Graph("g", {"x": TensorType(dtype, [2, 3]), "y": TensorType(dtype, [2, 3])}, promotion="array_api")
    # NumPy warns of what it computes beside the point here, such as divisions by 0.
    with np.errstate(all="ignore"):
        wanted = {name: np.asarray(function(np, x, y)) for name, function in cases(dtype).items()}
    symbols = graph.inputs
    namespace = symbols[0].__array_namespace__()
    assert namespace is xp
    with graph:
        built = {name: function(namespace, *symbols) for name, function in cases(dtype).items()}
    graph.output(*(value for value in built.values()))
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    for name, result in zip(built, gc.InferenceSession().load(graph)(x, y), strict=True):
        assert_same(result, wanted[name], f"{name} of Symbols")
    for name, function in cases(dtype).items():
        output = function(xp, xp.asarray(x), xp.asarray(y))
        assert type(output) is xp.Array
        assert_same(output, wanted[name], f"{name} of Arrays")


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("include_initial", [False, True])
def test_running_totals_equal_numpy(name: str, include_initial: bool) -> None:
    values = np.array([[3, -1, 2], [2, 5, 4]])
    for axis in (0, 1):
        result = getattr(xp, name)(xp.asarray(values), axis=axis, include_initial=include_initial)
        wanted = getattr(np, name)(values, axis=axis, include_initial=include_initial)
        assert_same(result, wanted, f"{name} along axis {axis}")


def test_symbols_keep_their_type_when_rolled_or_flipped() -> None:
    graph = Graph("moved", {"x": TensorType(DType.float32, ["n", 4, "?"])})
    x = graph["x"]
    for item in (xp.roll(x, 1, axis=(0, 1)), xp.roll(x, 3), xp.flip(x), xp.flip(x, axis=1)):
        assert item.type == x.type


def test_code_for_the_standard_builds_a_graph_of_named_dims() -> None:
    def softmax(x: Any) -> Any:
        namespace = x.__array_namespace__()
        shifted = namespace.exp(x - namespace.max(x, axis=-1, keepdims=True))
        return shifted / namespace.sum(shifted, axis=-1, keepdims=True)

    graph = Graph("softmax", {"x": TensorType(DType.float32, ["batch", 4])})
    output = softmax(graph[0])
    assert output.shape == ["batch", 4]
    graph.output(output)
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    (result,) = gc.InferenceSession().load(graph)(x)
    np.testing.assert_allclose(result, np.asarray(softmax(xp.asarray(x))), rtol=1e-6)


def test_symbols_keep_the_promotion_system_of_their_graph() -> None:
    graph = Graph("g", {"x": TensorType(DType.int8, [2]), "y": TensorType(DType.float32, [2])}, promotion="max")
    x, y = graph.inputs
    assert xp.add(x, y).dtype is DType.float32
    assert xp.result_type(x, y) is DType.float32
    assert xp.can_cast(x, xp.float32)
    with pytest.raises(PromotionError, match="undefined by the array API standard"):
        xp.result_type(xp.int8, xp.float32)


def test_arrays_beside_symbols_become_constants() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [2])}, promotion="array_api")
    (x,) = graph.inputs
    array = xp.asarray([1.0, 2.0])
    joined = gc.ops.concat([x, array])
    items = [x + array, array + x, xp.add(array, x), joined, array.__array_namespace__().exp(x)]
    assert all(type(value) is gc.Symbol for value in items)
    graph.output(*items)
    results = gc.InferenceSession().load(graph)(np.array([3, 4], np.float32))
    np.testing.assert_array_equal(results[0], [4, 6])
    np.testing.assert_array_equal(results[1], [4, 6])
    np.testing.assert_array_equal(results[3], [3, 4, 1, 2])
    assert type(xp.zeros(2)) is xp.Array
    assert type(xp.zeros_like(x)) is gc.Symbol
    assert xp.full_like(x, 2.5).shape == [2]


def test_tensors_are_computed_by_their_own_system() -> None:
    values = np.array([[4.0, 1.0], [2.0, 3.0]], np.float16)
    for promotion in ("max", "array_api", "numpy"):
        x = gc.tensor(values, promotion=promotion)
        own = x.__array_namespace__()
        for item, want in (
            (own.exp(x), np.exp(values)),
            (own.add(x, 1), values + 1),
            (own.concat([x, values]), np.concatenate([values, values])),
            (own.zeros_like(x), np.zeros_like(values)),
            (own.full_like(x, 2, dtype=DType.int8), np.full_like(values, 2, np.int8)),
            (own.linalg.solve(x.cast("float64"), np.eye(2)), np.linalg.inv(values.astype(np.float64))),
            (own.linalg.svd(x.cast("float64"))[1], np.linalg.svd(values.astype(np.float64))[1]),
        ):
            assert type(item) is gc.Tensor
            assert (item.promotion.name, item.dtype.numpy) == (promotion, want.dtype)
            np.testing.assert_allclose(item.numpy(), want, rtol=2e-3)
    graph = Graph("g", {"x": TensorType(DType.float32, [2, 2])})
    assert type(xp.add(graph["x"], gc.tensor(values))) is gc.Symbol
    with pytest.raises(PromotionError, match="max has no complex"):
        xp.linalg.eigvals(gc.tensor(values, "float32"))


def test_symbols_have_what_the_standard_asks_of_arrays() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [2, 3]), "y": TensorType(DType.int8, ["n", 3])})
    x, y = graph.inputs
    assert (x.ndim, x.size, y.size) == (2, 6, None)
    assert x.shape == (2, 3)
    assert x.to_device("cpu") is x
    assert x.T.shape == x.mT.shape == (3, 2)
    assert xp.ones(x.shape, dtype=x.dtype, device=x.device).shape == (2, 3)
    with graph:
        zeros, counted = xp.zeros(y.shape), xp.arange(y.shape[0])
        assert xp.asarray(y) is y
    graph.output(zeros, counted, xp.asarray(y, dtype=xp.int16))
    results = gc.InferenceSession().load(graph)(np.ones((2, 3), np.float32), np.ones((4, 3), np.int8))
    assert_same(results[0], np.zeros((4, 3), np.float32), "zeros")
    assert_same(results[1], np.arange(4), "arange")
    assert_same(results[2], np.ones((4, 3), np.int16), "asarray")


# The namespace


def test_namespace_is_found_by_edition() -> None:
    x = xp.ones(2)
    graph = Graph("g", [TensorType(DType.float32, [2])])
    for value in (x, graph[0]):
        assert value.__array_namespace__() is xp
        assert value.__array_namespace__(api_version="2024.12") is xp
        with pytest.raises(GraphError, match="unsupported api_version="):
            value.__array_namespace__(api_version="1999.12")


def test_building_with_the_namespace_leaves_onnxruntime_alone() -> None:
    code = """
import sys
import graphcore as gc
g = gc.Graph("g", [gc.TensorType(gc.DType.float32, [3])])
xp = g[0].__array_namespace__()
g.output(xp.sum(xp.exp(g[0]) * xp.ones(3)))
sys.exit("onnxruntime" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
