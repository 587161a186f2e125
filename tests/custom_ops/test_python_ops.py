"""Declared operators that Python functions compute: numbers, dtypes, failures, threads, and missing packages."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphError, MissingExtraError, RunError
from tests.support.graphs import Array

pytest.importorskip("onnxruntime_extensions", reason="there are no wheels of it for this Python: pyproject.toml")

X = np.array([[0.5, -1, 2], [3, -4, 0.25]], np.float32)
DOMAIN = "tests.python"


@gc.custom_op(f"{DOMAIN}::Twice")
def twice(x: TensorType) -> TensorType:
    return x


@twice.python
def _twice(x: Array) -> Array:
    return x if x.dtype in (object, bool) else (x + x).astype(x.dtype)


@gc.custom_op(f"{DOMAIN}::Summary", promote="float")
def summary(x: TensorType, y: TensorType | None = None, *rest: TensorType, k: int = 1, word: str = "") -> Any:
    return TensorType(x.dtype, x.shape), TensorType(DType.int64, [len(x.shape)]), TensorType(DType.string, [])


@summary.python
def _summary(x: Array, y: Array | None, *rest: Array, k: int, word: str) -> Any:
    total = x * x.dtype.type(k) + (0 if y is None else y) + x.dtype.type(len(rest))
    return total, np.array(x.shape, np.int64), np.array(f"{word}{len(rest)}", object)


def graph(dtype: object = DType.float32, dims: tuple[int | str, ...] = ("n", 3)) -> Graph:
    return Graph("g", {"x": TensorType(DType.of(dtype), dims)})


def of(function: Callable[..., Any], name: str, dtype: object = DType.float32) -> gc.Model:
    """A model of one operator, of its operand's type, that a Python function computes."""

    def rule(x: TensorType) -> TensorType:
        return x

    op = gc.custom_op(f"{DOMAIN}::{name}", rule)
    op.python(function)
    g = graph(dtype)
    g.output(op(g[0]))
    return gc.InferenceSession().load(g)


DTYPES = (
    "bool int4 uint4 int8 int16 int32 int64 uint8 uint16 uint32 uint64 index address float8_e4m3fn float8_e5m2 float16 "
    "bfloat16 tensor_float32 float32 float64 string int23 uint50 int3"
).split()


def values(dtype: DType) -> Array:
    if dtype is DType.string:
        return np.array([["a", "é", ""], ["", "x" * 50, "b"]], object)
    if dtype is DType.bool:
        return np.array([[True, False, True], [False, False, True]])
    if dtype.is_float:
        return np.array([[1.5, -0.0, 0.25], [np.inf, np.nan, -3]]).astype(dtype.numpy)
    low, high = int(dtype.min) // 2, int(dtype.max) // 2
    return np.array([[low, high, 0], [1, high - 1, 1]], object).astype(dtype.storage.numpy)


@pytest.mark.parametrize("name", DTYPES)
def test_values_come_and_go_bit_for_bit_in_every_dtype(name: str) -> None:
    dtype = DType.of(name)
    g = graph(dtype)
    g.output(twice(g[0]))
    model = gc.InferenceSession().load(g)
    for x in (values(dtype), values(dtype)[:0]):
        (result,) = model(x)
        wanted = _twice(x)
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        if dtype is DType.string:
            assert result.tolist() == wanted.tolist()
        else:
            numbers = ~np.isnan(wanted.astype(np.float32)) if dtype.is_float else np.ones(wanted.shape, bool)
            assert result[numbers].tobytes() == wanted[numbers].tobytes()
            assert dtype.is_integer or np.isnan(result[~numbers].astype(np.float32)).all()


def test_scalars_optionals_variadics_attributes_and_several_results() -> None:
    g = graph(dims=())
    x = g[0]
    a, shape, word = summary(x)
    b, _, _ = summary(x, 3.0, k=2)
    c, _, _ = summary(x, None, x, x, k=3, word="many")
    d, other, message = summary(np.ones((2, 2), np.float32), x, x, word="é")
    g.output(a=a, shape=shape, word=word, b=b, c=c, d=d, other=other, said=message)
    results = gc.InferenceSession().load(g)(np.float32(5))
    assert [m.tolist() for m in results] == [5, [], "0", 13, 17, [[7, 7], [7, 7]], [2, 2], "é1"]
    (only,) = summary(x, outputs=1)
    assert only.shape == ()


def test_nodes_run_in_bodies_functions_and_beside_constants() -> None:
    @gc.function
    def block(x: Symbol) -> Any:
        return twice(x) + 1

    g = graph()
    x = g[0]
    constant = twice(g.constant(np.full((1, 3), 3, np.float32)))  # no operand of the run: computed in each all the same
    looped = ops.for_loop(3, lambda i, s: twice(s) + x, block(x) + constant)
    g.output(ops.cond(ops.sum(x) > 0, lambda: twice(looped), lambda: looped))
    model = gc.InferenceSession().load(g)
    for item in (X, -X, X):
        wanted = item * 2 + 1 + 6
        for _ in range(3):
            wanted = wanted * 2 + item
        wanted = wanted * 2 if item.sum() > 0 else wanted
        np.testing.assert_array_equal(model(item)[0], wanted)


def test_debug_optimize_jit_and_files_work_with_them() -> None:
    g = graph()
    result = twice(g[0])
    result.name = "twice"
    g.output(result * 2)
    model = gc.InferenceSession().load(g)
    np.testing.assert_array_equal(model.debug(X, watch="twice")["twice"], 2 * X)
    np.testing.assert_array_equal(gc.InferenceSession().load(g.optimize())(X)[0], 4 * X)
    np.testing.assert_array_equal(np.asarray(gc.jit(lambda x: twice(x) + 1)(X)), 2 * X + 1)
    proto = g.to_onnx(target="onnx")
    assert [(n.domain, n.op_type) for n in proto.graph.node] == [(DOMAIN, "Twice"), ("", "Mul")]
    np.testing.assert_array_equal(gc.InferenceSession().load(proto, custom_ops=["tests.python::Twice"])(X)[0], 4 * X)
    onnx.checker.check_model(proto)


def test_arrays_are_the_functions_own() -> None:
    results: list[Array] = []

    def spoil(x: Array) -> Array:
        results.append(x)
        result = x.copy()
        x[:] = 7
        return result[::-1]  # neither contiguous nor its own

    model = of(spoil, "Spoil")
    x = X.copy()
    np.testing.assert_array_equal(model(x)[0], X[::-1])
    np.testing.assert_array_equal(x, X)
    for _ in range(3):
        model(X * 0)
    np.testing.assert_array_equal(results[0], np.full((2, 3), 7, np.float32))


class Unlucky(Exception):
    """An error of a user's function."""


def raising(error: BaseException) -> Callable[[Array], Array]:
    def function(x: Array) -> Array:
        raise error

    return function


@pytest.mark.parametrize("error", [Unlucky("no luck"), SystemExit(3), MemoryError()])
def test_exception_becomes_a_run_error_with_it_as_cause(error: BaseException) -> None:
    model = of(raising(error), f"Raises{type(error).__name__}")
    for _ in range(2):
        with pytest.raises(RunError, match=rf"Raises.*its Python function raised {type(error).__name__}") as caught:
            model(X)
        assert caught.value.__cause__ is error
        assert "test_python_ops.py" in str(caught.value)


def test_interrupt_in_a_function_is_raised_as_it_is() -> None:
    model = of(raising(KeyboardInterrupt()), "RaisesInterrupt")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            model(X)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x.astype(np.float64), r"result 0 must be float32\[n, 3\], got float64\[2, 3\]"),
        (lambda x: x[:, :2], r"result 0 must be float32\[n, 3\], got float32\[2, 2\]"),
        (lambda x: x[:1], r"result 0 must be float32\[n, 3\], got float32\[1, 3\]"),
        (lambda x: x[0], r"result 0 must be float32\[n, 3\], got float32\[3\]"),
        (lambda x: 3.0, "result 0 must be .*, got float"),
        (lambda x: None, "result 0 must be .*, got NoneType"),
        (lambda x: (), "it returned 0 results, but 1 are declared"),
        (lambda x: x.tolist(), r"result 0 must be .*, got list|it returned"),
    ],
)
def test_result_that_is_not_as_declared_is_a_run_error(function: Callable[..., Any], text: str) -> None:
    model = of(lambda x: function(x), f"Wrong{abs(hash(text))}")
    with pytest.raises(RunError, match=text):
        model(X)


def test_result_out_of_range_of_its_dtype_is_a_run_error() -> None:
    model = of(lambda x: x + np.int32(1 << 22), "Range", DType.int(23))
    with pytest.raises(RunError, match="has values outside of the range of int23"):
        model(np.ones((2, 3), np.int32))


def test_strings_have_to_be_strings() -> None:
    model = of(lambda x: np.full(x.shape, 5, object), "Words", DType.string)
    with pytest.raises(RunError, match="must have only strings, got an element of type int"):
        model(values(DType.string))


def test_failure_in_one_run_leaves_others_alone() -> None:
    def picky(x: Array) -> Array:
        time.sleep(0.001)
        if x[0, 0] < 0:
            raise Unlucky(f"{x[0, 0]:.0f}")
        return x + 1

    model = of(picky, "Picky")
    wrong: list[str] = []

    def work(number: int) -> None:
        for i in range(15):
            value = float(number * 100 + i + 1) * (-1 if i % 3 == 0 else 1)
            x = np.full((2, 3), value, np.float32)
            try:
                (result,) = model(x)
                if value < 0 or not (result == x + 1).all():
                    wrong.append(f"{value} gave {result}")
            except RunError as error:
                if str(error.__cause__) != f"{value:.0f}":
                    wrong.append(f"{value} gave {error.__cause__!r}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_failures_of_the_runtime_are_not_taken_for_theirs() -> None:
    op = gc.custom_op(f"{DOMAIN}::Fine", lambda x: x, python=lambda x: x)
    g = Graph("g", {"x": TensorType(DType.float32, ["n"]), "k": TensorType(DType.int64, ["r"])})
    g.output(g.op("Reshape", [op(g["x"]), g["k"]], None, [TensorType(DType.float32, ["a", "b"])])[0])
    with pytest.raises(RunError, match="onnxruntime failed"):
        gc.InferenceSession().load(g)(np.ones(5, np.float32), np.array([2, 2]))


def adding(number: int) -> Callable[[Array], Array]:
    return lambda x: x + np.float32(number)


def test_sessions_may_come_and_go_and_names_do_not_collide() -> None:
    models = []
    for number in range(12):
        op = gc.custom_op(f"{DOMAIN}.n{number}::Same", lambda x: x, python=adding(number))
        g = graph()
        g.output(op(g[0]))
        models.append(gc.InferenceSession().load(g))
        if number % 3 == 2:
            del models[0]
        for model in models:
            result = model(X)[0]
            assert ((result - X).round() == (result - X).round()[0, 0]).all()
    assert [float((m(X)[0] - X).round()[0, 0]) for m in models] == [4, 5, 6, 7, 8, 9, 10, 11]


def test_implementation_may_run_a_model_itself() -> None:
    inner = of(lambda x: x * 2, "Inner")
    broken = of(raising(Unlucky("inside")), "Broken")
    np.testing.assert_array_equal(of(lambda x: inner(x)[0] + 1, "Nests")(X)[0], 2 * X + 1)
    with pytest.raises(RunError, match="Nested2") as caught:
        of(lambda x: broken(x)[0], "Nested2")(X)
    assert isinstance(caught.value.__cause__, RunError)
    assert isinstance(caught.value.__cause__.__cause__, Unlucky)


def test_nothing_is_kept_of_runs_that_failed() -> None:
    from graphcore.runtime.ort.python_ops import _threads

    g = Graph("g", {"x": TensorType(DType.float32, ["n"]), "k": TensorType(DType.int64, ["r"])})
    shaped = g.op("Reshape", [g["x"], g["k"]], None, [TensorType(DType.float32, ["a", "b"])])[0]
    g.output(summary(twice(g["x"]), outputs=1)[0], summary(np.ones(3, np.float32), shaped, outputs=1)[0])
    model = gc.InferenceSession().load(g)
    for _ in range(5):
        with pytest.raises(RunError):
            model(np.ones(5, np.float32), np.array([2, 2]))
    inner = of(raising(Unlucky("inside")), "Forgets")

    def careful(x: Array) -> Array:
        with pytest.raises(RunError):
            inner(x)
        return x

    np.testing.assert_array_equal(of(careful, "Careful")(X)[0], X)
    assert not _threads.frames
    assert not _threads.computing


def test_parallel_execution_and_profiling_work() -> None:
    import onnxruntime

    g = graph()
    g.output(twice(g[0]) + twice(g[0] + 1))
    session = gc.InferenceSession(execution_mode=onnxruntime.ExecutionMode.ORT_PARALLEL, inter_op_num_threads=4)
    np.testing.assert_array_equal(session.load(g)(X)[0], 4 * X + 2)
    assert "Take_float32" in str(gc.InferenceSession().load(g).profile(X, runs=1))


def test_operands_that_cannot_be_handed_over_are_refused() -> None:
    g = graph(DType.int(80))
    g.output(twice(g[0]))
    with pytest.raises(GraphError, match=r"int80\[n, 3\] cannot be passed to a Python function"):
        gc.InferenceSession().load(g)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    g = graph()
    g.output(twice(g[0]))
    monkeypatch.setitem(sys.modules, "onnxruntime_extensions", None)
    with pytest.raises(MissingExtraError, match=r"onnxruntime-extensions(.|\n)*\[python-ops\]"):
        gc.InferenceSession().load(g)
    g.to_onnx(target="onnx")  # which runs nothing
