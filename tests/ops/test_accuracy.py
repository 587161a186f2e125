"""The accuracy of single nodes: which are marked, what keeps the mark, and what lowering makes of it."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphError
from graphcore.ir.state.settings import KEY, OPERATORS
from graphcore.ops import where

D = DType
Values = np.ndarray[Any, Any]
HALVES = ("float16", "bfloat16", "tf32")


def graph_of(function: Callable[..., Any], dtype: str = "float32", count: int = 1) -> Graph:
    graph = Graph("accuracy", {f"x{i}": TensorType(dtype, ["n"]) for i in range(count)})
    result = function(*graph.inputs)
    graph.output(*(result if isinstance(result, tuple) else (result,)))
    return graph


def fast(function: Callable[..., Any]) -> Callable[..., Any]:
    def within(*operands: Symbol) -> Any:
        with gc.accuracy("fast"):
            return function(*operands)

    return within


def run(graph: Graph, *arrays: Values, **options: Any) -> list[Values]:
    return list(gc.InferenceSession(**options).load(graph)(*arrays))


def marked(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes if KEY in node.attributes]


def samples(dtype: str, seed: int = 0) -> Values:
    values = np.random.default_rng(seed).normal(size=4000)
    return values.astype(DType.of(dtype).numpy)


def chain(x: Symbol, y: Symbol) -> Symbol:
    return ops.sqrt(ops.exp(x) / ops.exp(y)) * x


# What is marked


def test_ops_of_a_block_are_marked_where_their_results_are_rounded() -> None:
    def build(x: Symbol) -> Symbol:
        with gc.accuracy("fast"):
            y = ops.exp(-x)
            with gc.accuracy("exact"):
                y = ops.log(y)
            y = ops.reshape(y, [-1]).cast("float64") + 1
        return where(y > 2, ops.sin(y), y * 3)

    graph = graph_of(build)
    assert marked(graph) == ["Exp", "Add"]
    assert "Exp(neg_1, accuracy='fast')" in str(graph)


def test_single_op_is_marked_by_its_argument() -> None:
    graph = graph_of(lambda x, y: ops.div(ops.exp(x, accuracy="fast"), ops.exp(y), accuracy="fast"), count=2)
    assert marked(graph) == ["Exp", "Div"]
    with gc.accuracy("fast"):
        graph = graph_of(lambda x: ops.exp(ops.sin(x, accuracy="exact")))
    assert marked(graph) == ["Exp"]


def test_integers_are_never_marked() -> None:
    assert marked(graph_of(fast(lambda x, y: x * y + x @ y), "int32", 2)) == []


def test_bad_levels_and_ops_without_a_fast_form_are_refused() -> None:
    (x,) = Graph("g", {"x": TensorType("float32", ["n"])}).inputs
    with pytest.raises(GraphError, match="accuracy: unknown level 'fastest'") as raised:
        gc.accuracy("fastest")  # type: ignore[arg-type]
    assert "'exact', 'fast'" in raised.value.help
    with pytest.raises(GraphError, match="unknown level 'low'"):
        ops.exp(x, accuracy="low")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="negate: the op has no fast form; it is always exact"):
        ops.negate(x, accuracy="fast")
    assert not x.graph.nodes


def test_block_counts_for_its_own_thread_and_task_and_ends_where_it_raises() -> None:
    seen: list[list[str]] = []
    with gc.accuracy("fast"):
        thread = threading.Thread(target=lambda: seen.append(marked(graph_of(ops.exp))))
        thread.start()
        thread.join()
    with pytest.raises(ZeroDivisionError), gc.accuracy("fast"):
        raise ZeroDivisionError
    assert [*seen, marked(graph_of(ops.exp))] == [[], []]

    async def task(level: Any) -> list[str]:
        with gc.accuracy(level):
            await asyncio.sleep(0)
            return marked(graph_of(ops.exp))

    async def both() -> list[list[str]]:
        return list(await asyncio.gather(task("fast"), task("exact")))

    assert asyncio.run(both()) == [["Exp"], []]


# What it does


@pytest.mark.parametrize("dtype", HALVES)
def test_values_between_fast_ops_are_not_rounded(dtype: str) -> None:
    arrays = samples(dtype), samples(dtype, 1)
    (result,) = run(graph_of(fast(chain), dtype, 2), *arrays)
    (whole,) = run(graph_of(chain, dtype, 2), *arrays, precision="fast")
    (exact,) = run(graph_of(chain, dtype, 2), *arrays)
    assert np.array_equal(result, whole), "as in a session of that precision"
    assert not np.array_equal(result, exact)
    true = np.sqrt(np.exp(arrays[0].astype(np.float64)) / np.exp(arrays[1].astype(np.float64)))
    true *= arrays[0].astype(np.float64)
    assert np.abs(result.astype(np.float64) - true).max() <= np.abs(exact.astype(np.float64) - true).max()


def _elu(x: Values) -> Values:
    return np.where(x < 0, np.expm1(np.minimum(x, 0)), x)


NARROW: dict[str, tuple[Callable[..., Symbol], Callable[[Values], Values]]] = {
    "elu": (ops.elu, _elu),
    "celu": (ops.celu, _elu),
    "selu": (ops.selu, lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * _elu(x), x)),
    "exp10": (ops.exp10, lambda x: 10.0**x),
}


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("dtype", HALVES)
def test_activations_and_powers_of_ten_are_not_rounded_in_between(name: str, dtype: str) -> None:
    function, reference = NARROW[name]
    array = np.minimum(samples(dtype), samples(dtype).dtype.type(0.5))
    true = reference(reference(array.astype(np.float64)))
    result, exact = (
        run(graph_of(f(lambda x: function(function(x))), dtype), array)[0].astype(np.float64)
        for f in (fast, lambda f: f)
    )
    assert np.abs(result - true).sum() < np.abs(exact - true).sum()
    np.testing.assert_allclose(result, true, atol=1e-3, rtol=2e-2 if dtype == "bfloat16" else 5e-3)


@pytest.mark.parametrize("dtype", HALVES)
def test_value_that_an_exact_op_reads_is_rounded(dtype: str) -> None:
    def build(x: Symbol, y: Symbol) -> tuple[Symbol, ...]:
        quotient = ops.div(x, y, accuracy="fast")
        return ops.exp(quotient), ops.exp(quotient, accuracy="fast"), quotient

    arrays = samples(dtype), samples(dtype, 1)
    exact, loose, quotient = run(graph_of(build, dtype, 2), *arrays)
    (want,) = run(graph_of(lambda x, y: ops.exp(x / y), dtype, 2), *arrays)
    (divided,) = run(graph_of(lambda x, y: x / y, dtype, 2), *arrays)
    assert np.array_equal(exact, want)
    assert np.array_equal(quotient, divided), "an output is rounded"
    assert not np.array_equal(loose, want)


@pytest.mark.parametrize("dtype", HALVES)
def test_exact_expansion_rounds_beside_a_fast_one(dtype: str) -> None:
    def build(x: Symbol, y: Symbol) -> tuple[Symbol, ...]:
        product = ops.mul(x, y, accuracy="fast")
        return ops.expm1(product), ops.exp2(product, accuracy="fast")

    arrays = samples(dtype), samples(dtype, 1)
    exact, _ = run(graph_of(build, dtype, 2), *arrays)
    (want,) = run(graph_of(lambda x, y: ops.expm1(x * y), dtype, 2), *arrays)
    assert np.array_equal(exact, want)


SPREAD = np.concatenate([np.linspace(-80, 80, 8001), np.linspace(-1, 1, 8001), np.logspace(-30, 1, 999)])
# What docs/numbers.md says: the error of the fast form beside the exact one, relative to the first or absolute.
ERRORS: dict[str, tuple[Callable[..., Symbol], float, float]] = {
    "exp2": (ops.exp2, 6e-6, 0.0),
    "exp10": (ops.exp10, 2e-7, 2e-45),
    "expm1": (ops.expm1, 3e-7, 1e-7),
    "log1p": (ops.log1p, 3e-7, 1e-7),
    "sigmoid": (ops.sigmoid, 0.0, 2e-7),
    "logaddexp": (ops.logaddexp, 3e-7, 3e-7),
    "fma": (ops.fma, 2e-7, 1e-6),
}


@pytest.mark.parametrize("name", list(ERRORS))
def test_short_forms_keep_to_the_error_that_is_documented(name: str) -> None:
    function, relative, absolute = ERRORS[name]
    count = {"fma": 3, "logaddexp": 2}.get(name, 1)
    arrays = [samples("float32", i) for i in range(count)] if count > 1 else [SPREAD.astype(np.float32)]
    if name == "log1p":
        arrays = [np.abs(arrays[0])]
    (exact,) = run(graph_of(function, count=count), *arrays)
    (result,) = run(graph_of(fast(function), count=count), *arrays)
    np.testing.assert_allclose(result, exact, relative, absolute)
    (same,) = run(graph_of(function, count=count), *arrays, precision="fast")
    assert np.array_equal(same, exact), "the precision of a session leaves float32 alone"
    few, many = (len(graph_of(f, count=count).to_onnx().graph.node) for f in (fast(function), function))
    assert few < many or name == "exp2", "which is a product and Exp in place of Pow"


@pytest.mark.parametrize("function", [ops.exp, ops.sqrt, ops.tanh, ops.sin, ops.rsqrt, ops.reciprocal])
def test_float32_and_float64_stay_where_there_is_no_shorter_form(function: Callable[..., Symbol]) -> None:
    for dtype in ("float32",) if function in (ops.tanh, ops.sin) else ("float32", "float64"):
        array = np.abs(samples(dtype))
        (exact,), (result,) = (run(graph_of(f, dtype), array) for f in (function, fast(function)))
        assert np.array_equal(exact, result)


def test_special_values_stay_what_they_are() -> None:
    array = np.array([np.nan, np.inf, -np.inf, 0.0, 200.0, -200.0], np.float32)
    for function in (ops.exp2, ops.exp10, ops.expm1, ops.sigmoid):
        (exact,), (result,) = (run(graph_of(f), array) for f in (function, fast(function)))
        assert np.array_equal(np.isnan(exact), np.isnan(result))
        assert np.array_equal(np.isinf(exact), np.isinf(result))


# What keeps it


def kept_by(graph: Graph, path: Path) -> dict[str, Graph]:
    copied = graph.copy()
    copied.output(copied.nodes[-1].outputs[0])
    graph.export(path / "built.onnx", target="onnx")
    graph.export(path / "old.onnx", target="onnx", opset=17)
    return {
        "copy": copied,
        "pickle": pickle.loads(pickle.dumps(graph)),
        "optimize": graph.optimize(),
        "rename": graph.rename({"x0": "other"}),
        "extract": graph.extract(outputs=[graph.outputs[0].name]),
        "with_dims": graph.with_dims(n=7),
        "file": Graph.load(path / "built.onnx"),
        "file of opset 17": Graph.load(path / "old.onnx"),
    }


def test_mark_is_kept_by_passes_surgery_and_files(tmp_path: Path) -> None:
    graph = graph_of(fast(chain), "float16", 2)
    arrays = samples("float16")[:7], samples("float16", 1)[:7]
    (want,) = run(graph, *arrays)
    for name, item in kept_by(graph, tmp_path).items():
        assert sorted(marked(item)) == ["Div", "Exp", "Exp", "Mul", "Sqrt"], name
        assert np.array_equal(run(item, *arrays)[0], want), name


def test_files_are_valid_onnx_with_the_mark_in_the_metadata_of_nodes() -> None:
    graph = graph_of(fast(chain), "float16", 2)
    for model in (graph.to_onnx(), graph.to_onnx(target="onnx"), graph.to_onnx(target="onnx", opset=17)):
        onnx.checker.check_model(model, full_check=True)
        assert all(a.name != KEY for node in model.graph.node for a in node.attribute)
    noted = [n for n in graph.to_onnx(target="onnx").graph.node if n.metadata_props]
    assert [(p.key, p.value) for n in noted for p in n.metadata_props] == [("graphcore.accuracy", "fast")] * 5
    assert not any(n.metadata_props for n in graph.to_onnx().graph.node), "what was lowered has no need of it"


def test_note_of_a_file_counts_for_operators_that_have_a_fast_form_alone() -> None:
    model = graph_of(lambda x: ops.relu(ops.exp(x))).to_onnx(target="onnx")
    for node in model.graph.node:
        node.metadata_props.add(key="graphcore.accuracy", value="fast")
    assert marked(Graph.load(model)) == ["Exp"]
    for node in model.graph.node:
        node.metadata_props[0].value = "fastest"
    assert marked(Graph.load(model)) == []


def test_mark_counts_in_bodies_functions_and_jit() -> None:
    arrays = samples("float16"), samples("float16", 1)
    (want,) = run(graph_of(fast(chain), "float16", 2), *arrays)

    def in_branch(x: Symbol, y: Symbol) -> Any:
        return ops.cond(x.graph.constant(True), lambda: fast(chain)(x, y), lambda: x)

    called = gc.function(fast(chain))
    for build in (in_branch, lambda x, y: called(x, y)):
        graph = graph_of(build, "float16", 2)
        assert np.array_equal(run(graph, *arrays)[0], want)
        onnx.checker.check_model(graph.to_onnx(target="onnx"), full_check=True)
        assert np.array_equal(run(Graph.load(graph.to_onnx(target="onnx")), *arrays)[0], want)
    assert np.array_equal(gc.jit(fast(chain))(*arrays), want)


def test_exact_and_fast_nodes_are_not_one_when_merged() -> None:
    graph = graph_of(lambda x: ops.exp2(x) - ops.exp2(x, accuracy="fast"))
    assert [node.op_type for node in graph.optimize().nodes] == ["Exp2", "Exp2", "Sub"]
    assert np.any(run(graph, np.linspace(50, 80, 99, dtype=np.float32))[0])


def test_operators_with_a_fast_form_are_operators_of_onnx_or_of_the_library() -> None:
    from graphcore.build.declare import EXPANSIONS, FAST_EXPANSIONS

    expected = {schema.name for schema in onnx.defs.get_all_schemas()} | set(EXPANSIONS)
    assert expected >= OPERATORS >= set(FAST_EXPANSIONS)


@pytest.mark.parametrize("name", ["acos", "asin", "atan", "elu", "exp", "log", "mish", "sigmoid", "sin", "cos", "tanh"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_numbers_have_results_within_the_documented_bounds_of_each_other(name: str, dtype: str) -> None:
    graph = Graph("g", {"x": TensorType(dtype, ["n"])})
    with graph:
        graph.output(getattr(ops, name)(graph["x"]))
    model = gc.InferenceSession().load(graph)
    units, near = {"float32": (7, 1.2e-7), "float64": (7, 9e-16)}[dtype]
    for value in np.random.default_rng(0).uniform(0.01, 0.99, 20).astype(dtype):
        array = np.concatenate([model(np.full(count, value, dtype))[0] for count in (1, 2, 3, 4, 5, 17, 33, 67)])
        assert np.ptp(array) <= max(units * np.spacing(np.abs(array).max()), near)
