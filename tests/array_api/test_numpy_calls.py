"""NumPy's functions called on Symbols build ops that compute what NumPy does, or name the op to call."""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import DTypeError, ShapeError, SymbolError
from graphcore.runtime.tracing.tensor import Tensor

Array = np.ndarray[Any, Any]

X = np.array([[0.5, -1.5, 2.0], [0.25, 0.75, -0.5]], np.float32)
Y = np.array([[1.0, 2.0, -3.0], [4.0, 0.5, -0.25]], np.float32)
I = np.array([[3, 5, -7], [1, 0, 2]], np.int32)  # noqa: E741
B = X > 0


def graph() -> Any:
    return Graph(
        "g",
        {
            "x": TensorType(DType.float32, [2, 3]),
            "y": TensorType(DType.float32, [2, 3]),
            "i": TensorType(DType.int32, [2, 3]),
            "b": TensorType(DType.bool, [2, 3]),
        },
    )


def computed(function: Callable[..., Any], *names: str) -> list[Array]:
    """Return the results of a function of the named Symbols when the graph runs."""
    g = graph()
    result = function(*(g[name] for name in names))
    g.output(*(result if isinstance(result, (tuple, list)) else [result]))
    return gc.InferenceSession().load(g)(X, Y, I, B)


def wanted(function: Callable[..., Any], *names: str) -> list[Array]:
    result = function(*({"x": X, "y": Y, "i": I, "b": B}[name] for name in names))
    return [np.asarray(a) for a in (result if isinstance(result, (tuple, list)) else [result])]


def agree(function: Callable[..., Any], *names: str) -> None:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = wanted(function, *names)
    got = computed(function, *names)
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=2e-6, atol=1e-6)


UNARY = [
    "absolute", "fabs", "negative", "positive", "sign", "rint", "floor", "ceil", "trunc", "conjugate", "exp", "exp2",
    "expm1", "log", "log2", "log10", "log1p", "sqrt", "square", "reciprocal", "sin", "cos", "tan", "arcsin", "arccos",
    "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "isfinite", "isinf", "isnan", "signbit",
    "logical_not", "cbrt", "modf",
]  # fmt: skip
BINARY = [
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "divmod", "maximum", "minimum", "arctan2",
    "hypot", "logaddexp", "copysign", "nextafter", "equal", "not_equal", "less", "less_equal", "greater",
    "greater_equal", "logical_and", "logical_or", "logical_xor", "vecdot", "fmod",
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_ufunc_of_one_operand_builds_the_op(name: str) -> None:
    agree(getattr(np, name), "x")


@pytest.mark.parametrize("name", [n for n in BINARY if hasattr(np, n)])
def test_ufunc_of_two_operands_builds_the_op_in_either_order(name: str) -> None:
    ufunc = getattr(np, name)
    agree(ufunc, "x", "y")
    agree(lambda x: ufunc(x, Y), "x")
    agree(lambda x: ufunc(Y, x), "x")


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "add", "multiply", "floor_divide"])
def test_ufunc_of_integers_builds_the_op(name: str) -> None:
    ufunc = getattr(np, name)
    agree(lambda i: ufunc(i, np.int32(2)), "i")
    agree(lambda i: ufunc(np.full((2, 3), 6, np.int32), np.maximum(i, 1)), "i")
    agree(np.invert, "i")
    agree(lambda i: np.left_shift(np.abs(i), np.int32(2)), "i")


OPERATORS: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.lt,
    operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
]  # fmt: skip


@pytest.mark.parametrize("function", OPERATORS)
def test_array_and_symbol_meet_by_the_graphs_rules(function: Callable[[Any, Any], Any]) -> None:
    agree(lambda x: function(Y, x), "x")
    agree(lambda x: function(x, Y), "x")
    agree(lambda x: function(np.float32(2), x), "x")
    agree(lambda x: function(np.full((), 2, np.float32), x), "x")


def test_array_before_a_symbol_is_promoted_as_after_it() -> None:
    int8, uint64 = np.ones(2, np.int8), TensorType(DType.uint64, [2])
    for promotion, dtype in (("anvil", DType.int64), ("max", DType.float16)):
        u: Any = Graph("g", {"u": uint64}, promotion=promotion)["u"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gc.LossyCastWarning)
            for item in (int8 + u, np.add(int8, u), u + int8, np.add(u, int8), np.int8(1) * u):
                assert item.dtype is dtype


def test_comparison_of_an_array_with_a_symbol_is_the_symbols_mirrored() -> None:
    x = graph()["x"]
    assert [operator.lt(Y, x).producer.op_type, np.less(Y, x).producer.op_type] == ["Greater", "Greater"]
    assert operator.lt(Y, x).producer.inputs[0] is x


def test_products_of_matrices() -> None:
    agree(lambda x: Y.T @ x, "x")
    agree(lambda x: np.matmul(x, Y.T), "x")
    agree(lambda x, y: np.dot(x, np.transpose(y)), "x", "y")
    agree(lambda x: np.dot(x, 2.0), "x")
    agree(lambda x: np.dot(np.ones((2, 3, 2), np.float32), x), "x")
    agree(lambda x: np.einsum("ij,kj->ik", x, Y), "x")
    agree(lambda x, y: np.tensordot(x, y, axes=((1,), (1,))), "x", "y")
    agree(lambda x, y: np.outer(x, y), "x", "y")


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": np.sum, "sum of an axis": lambda x: np.sum(x, axis=0, keepdims=True),
    "sum by position": lambda x: np.sum(x, 1),
    "sum in a dtype": lambda x: np.sum(x, dtype=np.float64), "prod": np.prod, "mean": np.mean,
    "mean in a dtype": lambda x: np.mean(x, axis=1, dtype=np.float64), "std": lambda x: np.std(x, axis=1, ddof=1),
    "var": np.var, "max": np.max, "amin": lambda x: np.amin(x, axis=(0, 1)), "argmax": lambda x: np.argmax(x, axis=1),
    "argmin": np.argmin, "all": lambda x: np.all(x > -9), "any": lambda x: np.any(x > 1, axis=1),
    "count_nonzero": np.count_nonzero, "cumsum": np.cumsum, "cumsum of an axis": lambda x: np.cumsum(x, axis=1),
    "cumprod": lambda x: np.cumprod(x, axis=0), "reshape": lambda x: np.reshape(x, (3, 2)), "ravel": np.ravel,
    "reshape by an int": lambda x: np.reshape(x, -1), "transpose": np.transpose,
    "transpose by axes": lambda x: np.transpose(x, (1, 0)), "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1), "squeeze": lambda x: np.squeeze(np.expand_dims(x, 1)),
    "squeeze an axis": lambda x: np.squeeze(np.expand_dims(x, 0), axis=0), "squeeze nothing": np.squeeze,
    "broadcast_to": lambda x: np.broadcast_to(x, (4, 2, 3)), "flip": np.flip,
    "flip an axis": lambda x: np.flip(x, axis=1),
    "roll": lambda x: np.roll(x, 1, axis=1), "repeat": lambda x: np.repeat(x, 2, axis=0),
    "tile": lambda x: np.tile(x, 2),
    "tile axes": lambda x: np.tile(x, (2, 1)), "tril": np.tril, "triu": lambda x: np.triu(x, k=1),
    "concatenate": lambda x: np.concatenate([x, Y, x], axis=1),
    "concatenate flat": lambda x: np.concatenate((x, Y), None),
    "stack": lambda x: np.stack([Y, x], axis=-1), "vstack": lambda x: np.vstack([x, Y[0]]),
    "hstack": lambda x: np.hstack([x, Y]), "hstack of vectors": lambda x: np.hstack([x[0], Y[0]]),
    "where": lambda x: np.where(x > 0, x, Y), "where by an array": lambda x: np.where(B, x, 0.0),
    "where of one": lambda x: np.where(x > 0), "nonzero": lambda x: np.nonzero(x > 0),
    "clip": lambda x: np.clip(x, -1, 1),
    "clip below": lambda x: np.clip(x, None, Y), "clip by name": lambda x: np.clip(x, a_min=0.0, a_max=None),
    "take": lambda x: np.take(x, [0, 2], axis=1), "take flat": lambda x: np.take(x, np.array([0, 5])),
    "take_along_axis": lambda x: np.take_along_axis(x, np.array([[0], [2]]), axis=1),
    "sort": lambda x: np.sort(x, axis=0), "sort flat": lambda x: np.sort(x, axis=None), "argsort": np.argsort,
    "diff": lambda x: np.diff(x, axis=1), "round": np.round, "zeros_like": np.zeros_like,
    "ones_like": lambda x: np.ones_like(x, dtype=np.int8), "full_like": lambda x: np.full_like(x, 2.5),
    "copy": np.copy, "median": np.median, "quantile": lambda x: np.quantile(x, 0.3, axis=1, method="lower"),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_builds_what_it_computes(name: str) -> None:
    agree(FUNCTIONS[name], "x")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_computes_on_tensors(name: str) -> None:
    result = FUNCTIONS[name](gc.tensor(X))
    for got, want in zip(*(r if isinstance(r, tuple) else (r,) for r in (result, FUNCTIONS[name](X))), strict=True):
        assert isinstance(got, np.ndarray if name.endswith(("_like", "copy")) else Tensor)
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-6, atol=1e-6)


def test_function_without_an_op_takes_the_values_of_tensors() -> None:
    x = gc.tensor(X)
    assert (np.shape(x), np.ndim(x), np.size(x)) == (X.shape, 2, 6)
    assert np.trace(x) == np.trace(X)
    assert np.allclose(a=[x, x], b=[X, X])
    with pytest.raises(SymbolError, match=r"np\.mean: where= is not supported"):
        np.mean(x, where=X > 0)


def test_sums_of_integers_are_of_the_dtype_of_numpys() -> None:
    for function in (np.sum, np.prod, lambda i: np.cumsum(i, axis=0), lambda i: np.sum(i, dtype=np.int16)):
        assert computed(function, "i")[0].dtype == wanted(function, "i")[0].dtype
    agree(np.mean, "i")
    agree(np.sum, "b")


def test_shapes_are_those_of_the_symbol() -> None:
    x: Any = Graph("g", {"x": TensorType(DType.float32, ["n", 3])})["x"]
    assert np.shape(x) == ["n", 3]
    assert np.ndim(x) == 2
    assert np.size(graph()["x"]) == 6
    with pytest.raises(SymbolError, match=r"np.size: .*\n.*\n  help: use x.shape.size, a Dim"):
        np.size(x)


def test_function_in_jit_builds_the_op() -> None:
    got = gc.jit(lambda x: np.tanh(x) + np.mean(x, axis=0))(X)
    np.testing.assert_allclose(got, np.tanh(X) + X.mean(axis=0), rtol=2e-6, atol=1e-6)


# What is refused


def heaviside(x: Any) -> Any:
    return np.heaviside(x, 0.5)


REFUSED: list[tuple[Callable[[Any], Any], str, str]] = [
    (heaviside, "np.heaviside: NumPy computes with values", r"ops.where\(x < 0, 0, 1\)"),
    (np.nanmedian, "np.nanmedian: NumPy computes with values", "build it from ops"),
    (np.unique, "np.unique: NumPy", "use graphcore.array_api.unique_values"),
    (np.linalg.inv, "np.linalg.inv: NumPy", "use graphcore.array_api.linalg.inv"),
    (np.fft.fft, "np.fft.fft: NumPy", "use graphcore.array_api.fft.fft"),
    (lambda x: np.pad(x, 1), "np.pad: NumPy", "use ops.pad"),
    (lambda x: np.split(x, 1), "np.split: NumPy", "use ops.split"),
    (lambda x: np.meshgrid(x), "np.meshgrid: NumPy", "use graphcore.array_api.meshgrid"),
    (np.add.reduce, "np.add.reduce: NumPy", r"use ops.sum\(x, axis\)"),
    (lambda x: np.add.accumulate(x), "np.add.accumulate: NumPy", "use ops.cumsum"),
    (lambda x: np.multiply.outer(x, x), "np.multiply.outer: NumPy", "use ops.outer"),
    (lambda x: np.add(x, Y, out=Y.copy()), "np.add: out= is not supported for Symbols", "assign the result"),
    (lambda x: np.add(x, Y, where=B), "np.add: where= is not supported", "choose with ops.where"),
    (lambda x: np.add(x, Y, dtype=np.float64), "np.add: dtype= is not supported", "cast the operands: x.cast"),
    (lambda x: np.sum(x, where=B), "np.sum: where= is not supported", "choose with ops.where"),
    (lambda x: np.sum(x, out=Y.copy()), "np.sum: out= is not supported", "assign the result"),
    (lambda x: np.sum(x, initial=3), "np.sum: initial= is not supported", "omit initial"),
    (lambda x: np.reshape(x, (3, 2), order="F"), "np.reshape: order= is not supported", "omit order"),
    (
        lambda x: np.sum(x, 0, None, None),
        "np.sum: with Symbols, too many positional",
        r"the parameters are \(a, axis, dtype",
    ),
]


@pytest.mark.parametrize(("mistake", "message", "fix"), REFUSED)
def test_function_that_builds_nothing_names_the_way_out(mistake: Callable[[Any], Any], message: str, fix: str) -> None:
    with pytest.raises(SymbolError, match=message) as error:
        mistake(graph()["x"])
    assert "x1" in str(error.value)
    assert re.search(fix, error.value.help)
    with pytest.raises(TypeError):
        mistake(graph()["x"])


def test_array_is_not_added_to_in_place() -> None:
    array = Y.copy()
    with pytest.raises(
        SymbolError, match=r"np.add: out= is not supported.*\n.*\n  help: .*assign the result, y = x \+ z"
    ):
        array += graph()["x"]
    assert np.array_equal(array, Y)


def test_silent_arguments_change_nothing() -> None:
    g = graph()
    assert np.add(g["x"], Y, out=None, where=True, dtype=None, casting="same_kind").dtype is DType.float32
    assert np.sum(g["x"], axis=0, out=None).shape == (3,)
    assert np.sort(g["x"], kind=None).shape == (2, 3)


def test_mistakes_keep_the_errors_of_the_ops() -> None:
    x = graph()["x"]
    with pytest.raises(ShapeError, match="add: shapes do not broadcast: 4 and 3 at axis -1"):
        np.ones((2, 4), np.float32) + x
    with pytest.raises(DTypeError, match="add: rhs has unsupported type list"):
        np.add(x, [1, 2, 3])
    with pytest.raises(ShapeError, match="there is no axis 2"):
        np.mean(x, axis=2)


def test_error_and_node_have_the_users_line() -> None:
    x = graph()["x"]
    result: Any = np.mean(np.exp(x), axis=0)
    assert result.line is not None
    assert result.line.text == "result: Any = np.mean(np.exp(x), axis=0)"
    with pytest.raises(SymbolError) as error:
        np.nanmedian(x)
    assert error.value.line is not None
    assert error.value.line.path == __file__


def test_symbol_still_has_no_value() -> None:
    x = graph()["x"]
    for convert in (np.asarray, np.array, lambda s: np.float32(s), lambda s: np.array([s, s])):
        with pytest.raises(TypeError):
            convert(x)
    assert ops.exp(x).dtype is DType.float32
