"""Functions and subgraphs: traced once, called often, exported as functions or inlined, with the same numbers."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Dim, DType, Graph, SequenceType, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphcoreError, GraphError, ShapeError
from graphcore.ir.definitions import definition_of, definitions
from graphcore.ir.graph import TargetName
from graphcore.runtime.lowering.functions import inlined
from tests.support.every_op import CASES, graph_of

D = DType
F32 = TensorType(D.float32, ["batch", 4])
TARGETS: tuple[TargetName, ...] = ("onnx", "cpu", "cuda")
Array = np.ndarray[Any, Any]

rng = np.random.default_rng(5)
X = rng.standard_normal((3, 4)).astype(np.float32)
W = rng.standard_normal((4, 4)).astype(np.float32)


def layer(x: Symbol, w: Any, scale: float = 2.0) -> Symbol:
    return ops.softmax(x @ w) * scale + x


def stacked(call: Callable[..., Symbol], calls: int = 3, type_: TensorType = F32) -> Graph:
    graph = Graph("stacked", {"x": type_})
    result = graph[0]
    for _ in range(calls):
        result = call(result, W)
    graph.output(result)
    return graph


def ran(model: onnx.ModelProto, *arrays: Array) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return list(session.run(None, dict(zip(names, arrays, strict=True))))


def bodies_of(graph: Graph) -> list[Graph]:
    return [definition.body for definition in definitions(graph)]


# One definition, many calls


def test_function_is_traced_once_when_called_often() -> None:
    traced: list[int] = []

    @gc.function
    def block(x: Symbol, w: Any) -> Symbol:
        traced.append(1)
        return layer(x, w)

    graph = stacked(block, 12)
    assert len(traced) == 1
    assert len(graph.nodes) == 12
    assert len({definition_of(node) for node in graph.nodes}) == 1
    stacked(block, 2)
    assert len(traced) == 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("inline", [False, True])
def test_exported_function_gives_the_numbers_of_its_body(target: TargetName, inline: bool) -> None:
    model = stacked(gc.function(layer)).to_onnx(target=target, inline=inline)
    onnx.checker.check_model(model, full_check=True)
    assert [f.name for f in model.functions] == ([] if inline else ["layer"])
    assert {f.domain for f in model.functions} == (set() if inline else {"graphcore.functions"})
    assert sum(node.domain == "graphcore.functions" for node in model.graph.node) == (0 if inline else 3)
    plain = stacked(layer).to_onnx(target=target)
    assert ran(model, X)[0].tobytes() == ran(plain, X)[0].tobytes()


def test_session_gives_the_numbers_of_the_body() -> None:
    (got,) = gc.InferenceSession().load(stacked(gc.function(layer)))(X)
    (want,) = gc.InferenceSession().load(stacked(layer))(X)
    assert got.tobytes() == want.tobytes()


def test_inlined_graph_is_the_one_that_was_written_out() -> None:
    got = stacked(gc.function(layer)).to_onnx(inline=True)
    want = stacked(layer).to_onnx()
    assert [n.op_type for n in got.graph.node] == [n.op_type for n in want.graph.node]


def test_inlined_nodes_have_the_layer_of_their_call_and_the_line_of_the_body() -> None:
    graph = inlined(stacked(gc.function(layer)))
    assert list(dict.fromkeys(node.layer for node in graph.nodes)) == ["layer/", "layer_1/", "layer_2/"]
    assert all(node.line is not None and "softmax(x @ w)" in node.line.text for node in graph.nodes)


def test_values_keep_their_names_when_calls_are_inlined() -> None:
    @gc.function
    def block(x: Symbol) -> Symbol:
        scores = x * 2
        scores.name = "scores"
        return scores + 1

    graph = Graph("g", [F32])
    before = ops.exp(graph[0])
    after = ops.exp(block(block(before)))
    graph.output(after)
    plain = inlined(graph)
    names = [s.name for node in plain.nodes for s in node.outputs]
    called = [s.name for node in graph.nodes for s in node.outputs]
    assert {before.name, after.name, "block/scores", "block_1/scores", *called} <= {*names}
    assert plain.output_types == graph.output_types


def test_signatures_have_definitions_of_their_own() -> None:
    block = gc.function(layer, name="block")
    graph = Graph("g", {"x": F32, "y": TensorType(D.float64, [2, 4])})
    x, y = graph.inputs
    results = [block(x, W), block(x, W, 2.0), block(x, W, scale=3.0), block(y, W), block(x, W.astype(np.float64))]
    graph.output(*results)
    assert [*definitions(graph).values()] == ["block", "block_1", "block_2", "block_3"]
    assert [s.dtype for s in results] == [D.float32] * 3 + [D.float64] * 2
    model = graph.to_onnx(target="onnx")
    onnx.checker.check_model(model, full_check=True)
    arrays = X, rng.standard_normal((2, 4))
    plain = Graph("p", {"x": F32, "y": TensorType(D.float64, [2, 4])})
    x, y = plain.inputs
    plain.output(layer(x, W), layer(x, W), layer(x, W, 3.0), layer(y, W), layer(x, W.astype(np.float64)))
    for got, want in zip(ran(graph.to_onnx(), *arrays), ran(plain.to_onnx(), *arrays), strict=True):
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("values", [(1, True), (1, 1.0), (0.0, -0.0), ("a", b"a"), ((1,), (True,))])
def test_static_arguments_that_python_calls_equal_are_told_apart(values: tuple[Any, Any]) -> None:
    seen = []

    @gc.function
    def block(x: Symbol, kind: Any) -> Symbol:
        seen.append(kind)
        return x + 1

    graph = Graph("g", [F32])
    for value in (*values, *values):
        block(graph[0], value)
    assert list(map(repr, seen)) == list(map(repr, values)) or len({*map(repr, seen)}) == 1


@pytest.mark.parametrize(("system", "dtype"), [("max", D.float64), ("anvil", D.int32), ("allo_hls", D.int32)])
def test_promotion_system_belongs_to_the_signature(system: str, dtype: DType) -> None:
    graph = Graph("g", [TensorType(D.int32, [2])], promotion=system)
    assert DIVIDED(graph[0], graph[0]).dtype is dtype


DIVIDED = gc.function(lambda x, y: x / y, name="divided")


def test_strict_graphs_trace_strictly() -> None:
    added = gc.function(lambda x, y: x + y, name="added")
    types = [TensorType(D.int64, [2]), TensorType(D.uint64, [2])]
    with pytest.warns(gc.LossyCastWarning):
        added(*Graph("g", types).inputs)
    with pytest.raises(gc.errors.PromotionError):
        added(*Graph("g", types, strict=True).inputs)


def test_functions_of_one_name_get_names_of_their_own() -> None:
    first = gc.function(lambda x: x + 1, name="same")
    second = gc.function(lambda x: x * 2, name="same")
    graph = Graph("g", [F32])
    graph.output(second(first(graph[0])))
    model = graph.to_onnx()
    assert [f.name for f in model.functions] == ["same", "same_1"]
    assert [n.op_type for n in model.graph.node] == ["same", "same_1"]
    assert np.array_equal(ran(model, X)[0], (X + 1) * 2)


# Operands and results


class Pair(NamedTuple):
    first: Any
    second: Any


def test_nested_operands_and_results_keep_their_structure() -> None:
    @gc.function
    def parts(params: dict[str, Any], *more: Any, pair: Pair, bias: Any = None) -> dict[str, Any]:
        assert bias is None
        return {"sum": params["w"] + more[0], "rest": [more[1] * 2, (pair.first, Pair(params["w"], pair.second))]}

    graph = Graph("g", [F32, F32])
    x, y = graph.inputs
    result = parts({"w": x}, y, np.float32(3), pair=Pair(y, x))
    assert list(result) == ["sum", "rest"]
    assert isinstance(result["rest"], list)
    assert isinstance(result["rest"][1][1], Pair)
    graph.output(result["sum"], result["rest"][0], result["rest"][1][0], *result["rest"][1][1])
    want: list[Any] = [X + W[:3], np.float32(6), W[:3], X, X]
    for model in (graph.to_onnx(), graph.to_onnx(inline=True)):
        for got, expected in zip(ran(model, X, W[:3]), want, strict=True):
            assert np.array_equal(got, expected)
    (body,) = bodies_of(graph)
    assert [s.name for s in body.inputs] == ["params.w", "more.0", "more.1", "pair.first", "pair.second"]


def test_operands_that_are_results_and_constants_that_are_come_out() -> None:
    @gc.function
    def same(x: Symbol) -> tuple[Symbol, ...]:
        five = Graph.current().constant(5, D.int8)
        return x, x, five, five

    graph = Graph("g", [F32])
    graph.output(*same(graph[0]), *same(graph[0]))
    wanted: list[Any] = [X, X, np.int8(5), np.int8(5)]
    for model in (graph.to_onnx(), graph.to_onnx(inline=True), graph.to_onnx(target="onnx")):
        onnx.checker.check_model(model, full_check=True)
        for got, want in zip(ran(model, X), wanted * 2, strict=True):
            assert got.dtype == want.dtype
            assert np.array_equal(got, want)


def test_function_without_operands_is_built_in_the_current_graph() -> None:
    @gc.function
    def table() -> Symbol:
        return ops.range(0, 4, 1, dtype=D.float32)

    graph = Graph("g", [F32])
    with graph:
        graph.output(graph[0] + table())
    assert np.array_equal(ran(graph.to_onnx(), X)[0], X + np.arange(4, dtype=np.float32))


def test_methods_are_functions() -> None:
    class Module:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @gc.function
        def forward(self, x: Symbol) -> Symbol:
            return x * self.factor

    graph = Graph("g", [F32])
    twice, thrice = Module(2.0), Module(3.0)
    graph.output(thrice.forward(twice.forward(twice.forward(graph[0]))))
    assert len(bodies_of(graph)) == 2
    assert np.array_equal(ran(graph.to_onnx(), X)[0], X * 4 * 3)


# Dims


def test_dims_of_results_are_those_of_the_call() -> None:
    @gc.function
    def swapped(x: Symbol) -> Symbol:
        return ops.concat([x, x], axis=1).T

    a, b = Dim("a"), Dim("b")
    graph = Graph(
        "g", {"x": TensorType(D.int8, [a, b]), "y": TensorType(D.int8, [b, a]), "z": TensorType(D.int8, [2, b])}
    )
    x, y, z = (swapped(s) for s in graph.inputs)
    assert [*x.shape] == [b * 2, a]
    assert [*y.shape] == [a * 2, b]
    assert [*z.shape] == [b * 2, 2]
    assert len(bodies_of(graph)) == 2  # one has a static size
    graph.output(x, y, z)
    assert [*inlined(graph).outputs[1].shape] == [a * 2, b]


def test_equal_dims_belong_to_the_signature() -> None:
    @gc.function
    def added(x: Symbol, y: Symbol) -> Symbol:
        return x + y

    graph = Graph("g", {"x": TensorType(D.int8, ["a"]), "y": TensorType(D.int8, ["a"]), "z": TensorType(D.int8, [1])})
    x, y, z = graph.inputs
    assert [*added(x, y).shape] == [*added(x, z).shape] == [Dim("a")]
    assert len(bodies_of(graph)) == 2


def test_dims_that_a_body_names_differ_from_call_to_call() -> None:
    @gc.function
    def places(x: Symbol) -> Symbol:
        return ops.nonzero(x, out_dim="count")

    graph = Graph("g", [TensorType(D.int8, ["n"])])
    first = places(graph[0])
    second = places(graph[0] + 1)
    assert [str(s.shape[0]) for s in (first, second)] == ["places/count", "places_1/count"]
    graph.output(first, second)
    array = np.array([-1, 0, 3], np.int8)
    for model in (graph.to_onnx(), graph.to_onnx(inline=True)):
        got = ran(model, array)
        assert [g.tolist() for g in got] == [[[0], [2]], [[1], [2]]]


def test_sizes_are_those_of_the_call_when_the_body_asks_for_them() -> None:
    @gc.function
    def halves(x: Symbol) -> Symbol:
        n = x.shape[0]
        return ops.sum(x.reshape(2, n), axis=1) / ops.shape_of(x)[0]

    graph = Graph("g", {"x": TensorType(D.float64, ["n", 2]), "y": TensorType(D.float64, ["m", 2])})
    graph.output(*(halves(s) for s in graph.inputs))
    x, y = np.arange(8.0).reshape(4, 2), np.arange(4.0).reshape(2, 2)
    want = [a.reshape(2, -1).sum(1) / len(a) for a in (x, y)]
    assert len(bodies_of(graph)) == 1
    for model in (graph.to_onnx(), graph.to_onnx(inline=True)):
        assert all(np.allclose(a, b) for a, b in zip(ran(model, x, y), want, strict=True))


# Weights and constants


def with_weight(x: Symbol) -> Symbol:
    return x + Graph.current().weight("bias", np.full(4, 10, np.float32))


def test_weights_of_a_body_exist_once_a_call() -> None:
    inner = gc.function(with_weight, name="inner")

    @gc.function
    def outer(x: Symbol) -> Any:
        return inner(inner(x))

    graph = Graph("g", [F32])
    with graph.layer("encoder"):
        result = outer(graph[0])
    graph.output(outer(result))
    names = ["encoder/outer/inner/bias", "encoder/outer/inner_1/bias", "outer/inner/bias", "outer/inner_1/bias"]
    assert [*graph.weights] == names
    assert np.allclose(ran(graph.to_onnx(), X)[0], X + 40)
    results = {names[1]: np.full(4, 1, np.float32), names[2]: np.full(4, 2, np.float32)}
    (got,) = gc.InferenceSession().load(graph, weights=results)(X)
    assert np.allclose(got, X + 23)


def test_weights_are_not_copied() -> None:
    array = np.ones(4, np.float32)
    block = gc.function(lambda x: x + Graph.current().weight("w", array), name="block")
    graph = Graph("g", [F32])
    graph.output(block(block(graph[0])))
    assert all(symbol.producer.array is array for symbol in graph.weights.values())  # type: ignore[union-attr]


def test_constants_from_outside_are_copied_in() -> None:
    graph = Graph("g", [F32])
    outside = graph.constant(W[0])

    @gc.function
    def added(x: Symbol) -> Symbol:
        return outside * x + outside + np.float32(1)

    graph.output(added(added(graph[0])))
    once = outside.producer.array * X + W[0] + 1  # type: ignore[union-attr]
    want = W[0] * once + W[0] + 1
    for model in (graph.to_onnx(), graph.to_onnx(inline=True)):
        assert np.allclose(ran(model, X)[0], want)
    assert sum(t.dims == [4] for t in graph.to_onnx(inline=True).graph.initializer) == 1


# Functions in functions, and bodies


def test_functions_call_functions_and_each_is_written_once() -> None:
    inner = gc.function(lambda x: ops.tanh(x) * 2, name="inner")

    @gc.function
    def outer(x: Symbol, w: Any) -> Any:
        with Graph.current().layer("attention"):
            result = inner(x @ w)
        return inner(result) + x

    graph = stacked(outer, 2)
    model = graph.to_onnx()
    assert [f.name for f in model.functions] == ["inner", "outer"]
    onnx.checker.check_model(model, full_check=True)
    assert np.allclose(ran(model, X)[0], ran(graph.to_onnx(inline=True), X)[0], atol=1e-6)
    layers = list(dict.fromkeys(node.layer for node in inlined(graph).nodes))
    parts = ["attention/", "attention/inner/", "inner/", ""]
    assert layers == [f"{call}/{part}" for call in ("outer", "outer_1") for part in parts]
    assert list(dict.fromkeys(n.layer for n in Graph.load(model).nodes)) == layers


def test_functions_hold_control_flow_and_are_called_in_it() -> None:
    inner = gc.function(lambda x, y: x * y + 1, name="inner")

    @gc.function
    def branched(x: Symbol, y: Symbol) -> Any:
        return ops.cond(ops.sum(x) > 0, lambda: inner(x, y) * 2, lambda: inner(y, y) - x)

    graph = Graph("g", {"x": TensorType(D.float32, ["n"]), "y": TensorType(D.float32, ["n"])})
    x, y = graph.inputs
    graph.output(ops.cond(ops.sum(y) > 0, lambda: branched(x, y), lambda: branched(y, x)), branched(y, x))

    def wanted(a: Array, b: Array) -> Array:
        result: Array = (a * b + 1) * 2 if a.sum() > 0 else (b * b + 1) - a
        return result

    models = [graph.to_onnx(), graph.to_onnx(inline=True), graph.to_onnx(target="onnx")]
    assert [len(m.functions) for m in models] == [2, 0, 2]
    load = gc.InferenceSession().load
    runs: list[Callable[..., Sequence[Array]]] = [load(graph), *(load(m) for m in models)]
    runs += [lambda *arrays, m=m: ran(m, *arrays) for m in models]
    for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        a, b = (np.array([1.5, 2, 3], np.float32) * sign for sign in signs)
        want = [wanted(a, b) if b.sum() > 0 else wanted(b, a), wanted(b, a)]
        for run in runs:
            assert all(np.array_equal(g, w) for g, w in zip(run(a, b), want, strict=True))


# Every dtype and system


DTYPES = [
    D.bool, D.int4, D.uint4, D.int8, D.uint16, D.int64, D.uint64, D.index, D.float16, D.bfloat16, D.tf32,
    D.float8_e4m3fn,
    D.float64, D.float4_e2m1, D.float6_e2m3fn, D.float6_e3m2fn, D.int(3), D.uint(12),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_function_of_a_dtype_gives_the_numbers_of_its_body(dtype: DType) -> None:
    def body(x: Symbol, y: Symbol) -> Symbol:
        return ops.where(x == y, x * y, ops.max(x, y) + x)

    type_ = TensorType(dtype, ["n"])
    arrays = [np.array(values).astype(dtype.numpy) for values in ([1, 0, 1, 2], [1, 1, 0, 1])]
    graph, plain = Graph("g", [type_, type_]), Graph("g", [type_, type_])
    graph.output(gc.function(body)(*graph.inputs))
    plain.output(body(*plain.inputs))
    session = gc.InferenceSession()
    (want,) = session.load(plain)(*arrays)
    sources: list[Any] = [graph, graph.to_onnx(), graph.to_onnx(target="onnx"), graph.to_onnx(inline=True)]
    for source in sources:
        (got,) = session.load(source)(*arrays)
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()
    remaining = dtype not in (D.int(3), D.uint(12), D.float4_e2m1, D.float6_e2m3fn, D.float6_e3m2fn)
    assert len(graph.to_onnx().functions) == remaining  # dtypes stored as others are inlined


def is_built(name: str, dtype: DType) -> bool:
    try:
        graph_of([name], dtype)
    except GraphcoreError:
        return False
    return True


INLINED = {"complex", "bit_concat", "bit_extract", "bit_insert"}
"""Ops on dtypes that ONNX has not, complex ones and integers of odd widths: functions with them are inlined."""


CHUNKS = 24


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("dtype", [D.float32, D.int8, D.uint64], ids=str)
def test_every_op_in_a_function_gives_what_it_gives_outside(dtype: DType, chunk: int) -> None:
    names = [name for name in [*CASES][chunk::CHUNKS] if is_built(name, dtype) and name not in INLINED]
    plain, _, arrays = graph_of(names, dtype)

    @gc.function
    def every(*values: Symbol) -> list[Symbol]:
        rest = iter(values)
        items = [CASES[name].results([next(rest) for _ in CASES[name].operands]) for name in names]
        return [symbol for results in items for symbol in results]

    graph = Graph("g", {s.name: s.type for s in plain.inputs})
    graph.output(*every(*graph.inputs))
    model = graph.to_onnx()
    assert len(model.functions) == 1
    onnx.checker.check_model(model, full_check=True)
    for got, want in zip(ran(model, *arrays), ran(plain.to_onnx(), *arrays), strict=True):
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    "system",
    ["max", "max_published", "kernel_float", "anvil", "array_api", "allo_hls", "allo_cpp", "numpy", "jax", "torch"],
)
def test_function_under_a_promotion_system_gives_the_numbers_of_its_body(system: str) -> None:
    def body(x: Symbol, y: Symbol) -> Symbol:
        return ((x + y) * (x - y)).cast(D.int32)

    types = [TensorType(D.int32, [4])] * 2
    arrays = np.arange(4, dtype=np.int32), np.array([7, -1, 2, 3], np.int32)
    graph = Graph("g", types, promotion=system)
    graph.output(gc.function(body)(*graph.inputs))
    for source in (graph, graph.to_onnx(), graph.to_onnx(inline=True)):
        assert np.array_equal(
            gc.InferenceSession().load(source)(*arrays)[0], (arrays[0] + arrays[1]) * (arrays[0] - arrays[1])
        )


def test_defaulted_dtypes_stay_so_across_a_call() -> None:
    @gc.function
    def body(x: Symbol) -> Symbol:
        return Graph.current().constant(3, ambiguous=True) * 2

    graph = Graph("g", [TensorType(D.int8, [4])], promotion="anvil")
    result = body(graph[0])
    assert result.ambiguous
    assert (result + graph[0]).dtype is D.int8
    graph.output(result + graph[0])
    for model in (graph.to_onnx(), graph.to_onnx(inline=True)):
        assert ran(model, np.arange(4, dtype=np.int8))[0].tolist() == [6, 7, 8, 9]


_STEPS: dict[str, Callable[..., Symbol]] = {
    "scaled": lambda x, by: x * by,
    "clipped": lambda x, by: ops.min(ops.max(x, by), 40),
    "divided": lambda x, by: (x // 3).cast(x.dtype) + by,
    "turned": lambda x, by: ops.concat([x[by % 2 :], x[: by % 2]]),
}
_FUNCTIONS = {name: gc.function(step, name=name) for name, step in _STEPS.items()}


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([*_STEPS]), st.integers(0, 5)), min_size=1, max_size=6),
    st.sampled_from([D.int8, D.uint16, D.int64]),
)
def test_chains_of_calls_are_chains_of_bodies(steps: list[tuple[str, int]], dtype: DType) -> None:
    arrays = np.array([3, 0, 100, 7, 55]).astype(dtype.numpy)
    results = []
    for table in (_FUNCTIONS, _STEPS):
        graph = Graph("g", [TensorType(dtype, ["n"])])
        result = graph[0]
        for name, by in steps:
            result = table[name](result, by)
        graph.output(result)
        results += [ran(graph.to_onnx(), arrays)[0], gc.InferenceSession().load(graph)(arrays)[0]]
    assert all(r.dtype == results[0].dtype and np.array_equal(r, results[0]) for r in results)


# Files, text, copies


def test_loaded_model_computes_the_same_when_its_functions_are_expanded(tmp_path: Path) -> None:
    graph = stacked(gc.function(with_weight_and(layer), name="block"), 3)
    path = tmp_path / "model.onnx"
    graph.export(path, target="onnx", external_data=True)
    loaded = Graph.load(path)
    assert list(dict.fromkeys(node.layer for node in loaded.nodes)) == ["block/", "block_1/", "block_2/"]
    assert {*graph.weights} <= {*loaded.weights}
    session = gc.InferenceSession()
    assert session.load(loaded)(X)[0].tobytes() == session.load(graph)(X)[0].tobytes()
    graph.export(path, inline=True)
    assert not onnx.load(path).functions


def with_weight_and(body: Callable[..., Symbol]) -> Callable[..., Symbol]:
    return lambda x, w: with_weight(body(x, w))


def test_text_shows_a_definition_once_and_its_calls() -> None:
    inner = gc.function(lambda x: x + 1, name="inner")
    outer = gc.function(lambda x: inner(inner(x)), name="outer")
    graph = Graph("g", {"x": F32})
    graph.output(y=outer(outer(graph[0])))
    text = [line.partition("#")[0].rstrip() for line in str(graph).splitlines()]
    assert text == [
        "function inner {",
        "  input   x: float32[batch, 4]",
        "  add_2: float32[batch, 4] = Add(x, float32(1.0))",
        "  output  add_2: float32[batch, 4]",
        "}",
        "function outer {",
        "  input   x: float32[batch, 4]",
        "  inner/inner_1: float32[batch, 4] = inner(x)",
        "  inner_1/inner_2: float32[batch, 4] = inner(inner/inner_1)",
        "  output  inner_1/inner_2: float32[batch, 4]",
        "}",
        "graph g (max) {",
        "  input   x: float32[batch, 4]",
        "  outer/outer_1: float32[batch, 4] = outer(x)",
        "  y: float32[batch, 4] = outer(outer/outer_1)",
        "  output  y: float32[batch, 4]",
        "}",
    ]
    assert ">outer</text>" in graph._repr_html_()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))], ids=["deepcopy", "pickle"])
def test_copies_share_one_definition(again: Callable[[Graph], Graph]) -> None:
    graph = stacked(gc.function(with_weight_and(layer), name="block"), 4)
    other = again(graph)
    assert str(other) == str(graph)
    assert len(bodies_of(other)) == 1
    assert other.to_onnx() == graph.to_onnx()
    extended = other.copy()
    extended.output(extended.nodes[0].outputs[0])
    assert len(extended.to_onnx().functions) == 1


def test_jit_traces_functions() -> None:
    block = gc.function(layer, name="block")

    @gc.jit
    def run(x: Any) -> Any:
        return block(block(x, W), W)

    (want,) = gc.InferenceSession().load(stacked(layer, 2))(X)
    assert np.allclose(run(X), want)


def test_threads_share_what_is_traced() -> None:
    traced: list[int] = []

    @gc.function
    def block(x: Symbol, w: Any) -> Symbol:
        traced.append(1)
        return layer(x, w)

    with ThreadPoolExecutor(8) as pool:
        texts = [*pool.map(lambda _: str(stacked(block)).splitlines()[-2], range(16))]
    assert len(traced) == 1
    assert len({*texts}) == 1


def test_page_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "howto" / "functions.md").read_text()
    code = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    exec(compile(code, "functions.md", "exec"), {})
    remaining, flat = onnx.load("stack.onnx"), onnx.load("flat.onnx")
    assert [len(m.functions) for m in (remaining, flat)] == [1, 0]
    assert np.allclose(ran(remaining, X)[0], ran(flat, X)[0])


# Subgraphs


def test_subgraph_is_called_like_a_function() -> None:
    graph = Graph("g", {"x": F32, "y": TensorType(D.float32, [2, 4])})
    shifted = graph.subgraph("shifted", lambda x, by: (x + by, x - by), {"x": F32, "by": TensorType(D.float32)})
    x, y = graph.inputs
    up, down = shifted(x, 1)
    more, _ = shifted(by=np.float32(2), x=y)
    assert [*more.shape] == [2, 4]
    assert "shifted" in repr(shifted)
    graph.output(up, down, more)
    model = graph.to_onnx()
    assert [f.name for f in model.functions] == ["shifted"]
    for got, want in zip(ran(model, X, X[:2]), [X + 1, X - 1, X[:2] + 2], strict=True):
        assert np.array_equal(got, want)


def subgraph(*types: TensorType) -> tuple[Graph, Callable[..., Any]]:
    graph = Graph(
        "g", {"x": F32, "u": TensorType(D.float32, [Dim.dynamic(), 4]), "i": TensorType(D.int8, ["batch", 4])}
    )
    return graph, graph.subgraph("sub", lambda *operands: operands[0] + operands[-1], types)


def test_subgraph_refuses_operands_that_are_not_as_declared() -> None:
    graph, sub = subgraph(F32, F32)
    x, u, i = graph.inputs
    with pytest.raises(GraphError, match="subgraph 'sub' takes 2 operands, got 1: operand 0"):
        sub(x)
    with pytest.raises(GraphError, match="subgraph 'one' takes 1 operand, got 2"):
        graph.subgraph("one", ops.relu, [F32])(x, x)
    with pytest.raises(GraphError, match="takes 2 operands, got 0: none"):
        sub()
    with pytest.raises(GraphError, match="takes 2 operands, got 2: operand 0, by"):
        sub(x, by=x)
    with pytest.raises(DTypeError, match=r"operand input1 is declared as float32\[batch, 4\]\n.*i +int8"):
        sub(x, i)
    with pytest.raises(DTypeError, match=r"cast it: input1.cast\(float32\)"):
        sub(x, i)
    for wrong in (x[0], x.T, ops.concat([x, x]), u):
        with pytest.raises(ShapeError, match=r"operand input1 is declared as float32\[batch, 4\]"):
            sub(x, wrong)
    with pytest.raises(DTypeError, match="has unsupported type str"):
        sub(x, "x")
    assert sub(x, x).shape == x.shape


def test_subgraph_takes_unknown_dims_for_names_that_occur_once() -> None:
    graph, sub = subgraph(F32)
    assert sub(graph["u"]).shape[0].is_dynamic
    assert not graph.subgraph("none", lambda: ops.range(0, 3, 1), [])().shape[0].is_dynamic


def test_subgraph_takes_sequences_of_the_declared_type() -> None:
    pair = SequenceType(TensorType(D.int8, [2]))
    graph = Graph("g", {"a": pair, "b": SequenceType(TensorType(D.int16, [2])), "x": TensorType(D.int8, [2])})
    joined = graph.subgraph(
        "joined", lambda s: s.graph.op("ConcatFromSequence", [s], {"axis": 0}, [TensorType(D.int8, ["n"])])[0], [pair]
    )
    changed = joined(graph["a"])
    for wrong in ("b", "x"):
        with pytest.raises(DTypeError, match="operand input0 is declared as"):
            joined(graph[wrong])
    graph.output(changed)
    for model in (graph.to_onnx(), graph.to_onnx(inline=True)):
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        results = {"a": [np.array([1, 2], np.int8)] * 2, "b": [], "x": np.zeros(2, np.int8)}
        results = {i.name: results[i.name] for i in session.get_inputs() if i.name != "b"} | {
            "b": [np.zeros(2, np.int16)]
        }
        assert session.run(None, results)[0].tolist() == [1, 2, 1, 2]


# What is refused


def test_recursion_is_refused_and_names_the_chain() -> None:
    @gc.function
    def first(x: Symbol) -> Any:
        return second(x)

    @gc.function
    def second(x: Symbol) -> Any:
        return first(x)

    graph = Graph("g", [F32])
    with pytest.raises(GraphError, match="function 'first' calls itself: first -> second -> first"):
        first(graph[0])
    assert not graph.nodes
    graph.output(graph[0] + 1)  # the graph goes on as before


def test_symbols_from_outside_are_refused_and_named() -> None:
    graph = Graph("g", {"x": F32, "outside": F32})
    outside = graph["outside"]
    weight = graph.weight("held", np.ones(4, np.float32))
    uses: list[Callable[[Symbol], Any]] = [
        lambda x: x + outside,
        lambda x: outside + x,
        lambda x: ops.exp(outside),
        lambda x: outside,
        lambda x: x * weight,
        lambda x: ops.concat([x, outside]),
        lambda x: gc.function(lambda y: y + outside, name="inner")(x),
    ]
    for use in uses:
        with pytest.raises(GraphError, match="belongs to graph 'g', outside of function") as caught:
            gc.function(use, name="uses")(graph["x"])
        assert caught.value.help == "pass it to the function as an operand; a function can only capture constants"
        assert "held" in str(caught.value) or "outside  " in str(caught.value)
    assert not graph.nodes
    with pytest.raises(GraphError, match="outside of function 'sub'"):
        graph.subgraph("sub", lambda x: x + outside, [F32])


def test_symbols_of_a_body_are_not_known_outside() -> None:
    leaked: list[Symbol] = []

    @gc.function
    def block(x: Symbol) -> Symbol:
        leaked.append(x * 2)
        return leaked[-1] + 1

    graph = Graph("g", [F32])
    result = block(graph[0])
    with pytest.raises(GraphError):
        result + leaked[0]
    with pytest.raises(GraphError):
        leaked[0] + 1
    with pytest.raises(GraphError, match="weight 'w': function 'block' is traced already"):
        leaked[0].graph.weight("w", X)


@pytest.mark.parametrize("result", [None, 3, [], {}, X, "text"], ids=repr)
def test_results_that_are_not_symbols_are_refused(result: Any) -> None:
    graph = Graph("g", [F32])
    with pytest.raises(GraphError, match=f"function 'block' must return Symbols, got {type(result).__name__}"):
        gc.function(lambda x: result, name="block")(graph[0])
    if not isinstance(result, (list, dict)):
        with pytest.raises(GraphError, match="function 'block'"):
            gc.function(lambda x: (x, result), name="block")(graph[0])
    assert not graph.nodes


def test_arguments_that_the_function_does_not_take_are_refused() -> None:
    block = gc.function(layer, name="block")
    graph = Graph("g", [F32])
    with pytest.raises(GraphError, match="function 'block': missing a required argument: 'w'") as caught:
        block(graph[0])  # type: ignore[call-arg]
    assert caught.value.help.startswith("call it as block(x: ")
    with pytest.raises(GraphError, match="got an unexpected keyword argument 'bias'"):
        block(graph[0], W, bias=1)  # type: ignore[call-arg]
    with pytest.raises(GraphError, match="w must be a Symbol, an array or hashable, got set"):
        block(graph[0], {1, 2})
    with pytest.raises(GraphError, match=r"\(1, 2\) is no|belongs to graph"):
        block(graph[0], Graph("other", [F32])[0])
    with pytest.raises(GraphError, match="no operand is a Symbol, so there is no graph"):
        block(X, W)  # type: ignore[arg-type]


def test_names_and_values_that_are_none_are_refused() -> None:
    names: list[Any] = ["", 3, "a\nb"]
    for name in names:
        with pytest.raises(GraphError, match="is not a valid name"):
            gc.function(layer, name=name)
        with pytest.raises(GraphError, match="is not a valid name"):
            Graph("g").subgraph(name, layer, [F32, F32])
    for value in (3, "layer", X):
        with pytest.raises(GraphError, match="must be a function, got"):
            gc.function(value)  # type: ignore[call-overload]
        with pytest.raises(GraphError, match="must be a function, got"):
            Graph("g").subgraph("sub", value, [])  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="the type of input 'input0' must be a TensorType, got 3"):
        Graph("g").subgraph("sub", layer, [3])  # type: ignore[list-item]


def test_names_that_are_not_identifiers_are_written_as_such() -> None:
    graph = Graph("g", [F32])
    graph.output(gc.function(lambda x: x + 1)(gc.function(layer, name="3 blocks/é")(graph[0], W)))
    model = graph.to_onnx()
    assert [f.name for f in model.functions] == ["_3_blocks__", "lambda"]
    onnx.checker.check_model(model, full_check=True)


def test_calls_of_missing_functions_in_a_file_are_nodes_like_others() -> None:
    node = onnx.helper.make_node("block", ["x"], ["y"], domain="graphcore.functions", definition="nothing")
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy")
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("graphcore.functions", 1)]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=imports)
    graph = Graph.load(model)
    assert "block(x, definition=" in str(graph)
    assert graph.to_onnx().graph.node[0].attribute[0].name == "definition"
    with pytest.raises(gc.GraphcoreError):
        gc.InferenceSession().load(graph)


def test_failed_body_leaves_the_graph_as_it_was() -> None:
    @gc.function
    def block(x: Symbol, fail: Any) -> Symbol:
        if fail:
            raise KeyError("no")
        return x + 1

    graph = Graph("g", [F32])
    with pytest.raises(KeyError):
        block(graph[0], True)
    graph.output(block(graph[0], False))
    assert [node.layer for node in graph.nodes] == ["block/"]


@pytest.mark.parametrize("optimize", ["off", "exact", "all"])
def test_bodies_without_calls_read_the_values_of_the_graph_with_calls(optimize: Any) -> None:
    @gc.function
    def twice(x: Symbol) -> Symbol:
        return x * 2.0

    g = Graph("g", {"x": TensorType("float32", ["n"]), "p": TensorType("bool", [])})
    y = twice(g["x"]) + 1.0
    g.output(ops.cond(g["p"], lambda: twice(y), lambda: y), ops.sum(y) + 3.0)
    proto = g.to_onnx(optimize=optimize)
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.array([1, 2, 3], np.float32)
    for p in (True, False):
        first, second = session.run(None, {"x": x, "p": np.array(p)})
        assert first.tolist() == ((x * 2 + 1) * (2 if p else 1)).tolist()
        assert second == (x * 2 + 1).sum() + 3
