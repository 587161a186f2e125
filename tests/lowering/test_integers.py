"""Integers of every width up to 64 bits: their values, and the number of operators that wrap them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.ir.graph import TargetName
from graphcore.ir.symbol import Node
from graphcore.runtime.lowering import lower
from tests.sampling import drawn
from tests.support.wide import Array, Known, trees, wrap

pytestmark = pytest.mark.releases

WIDTHS = [dtype for bits in range(1, 65) for dtype in (DType.int(bits), DType.uint(bits))]
ODD = [dtype for dtype in WIDTHS if dtype.storage is not dtype]
Function = Callable[..., Symbol]


def graph_of(function: Callable[..., Symbol | tuple[Symbol, ...]], *dtypes: DType) -> Graph:
    graph = Graph("test", {f"x{i}": TensorType(dtype, ["n"]) for i, dtype in enumerate(dtypes)})
    with graph:
        result = function(*graph.inputs)
    graph.output(*(result if isinstance(result, tuple) else (result,)))
    return graph


def run(function: Function, dtypes: Sequence[DType], *arrays: Array) -> list[Any]:
    graph = graph_of(function, *dtypes)
    (result,) = gc.InferenceSession().load(graph)(*arrays)
    assert result.dtype == graph.outputs[0].dtype.numpy
    return list(result.tolist())


def in_memory(dtype: DType) -> Array:
    """Values of a dtype's storage: limits, small ones, and any."""
    storage = dtype.storage
    edges = {int(limit) for d in (dtype, storage) for limit in (d.min, d.max)} | {0, 1}
    random = np.random.default_rng(dtype.bits)
    some = random.integers(int(storage.min), int(storage.max), 20, storage.numpy, endpoint=True)
    return np.array([*sorted(edges), *some.tolist()], storage.numpy)


def run_each(
    function: Callable[[Symbol, DType], Symbol], dtypes: Sequence[DType]
) -> list[tuple[DType, Array, list[Any]]]:
    """Return dtype, operand and result of a function, for all stored values of each dtype, in one graph."""
    graph = Graph("test", {dtype.name: TensorType(dtype, [dtype.name + "_n"]) for dtype in dtypes})
    graph.output(*[function(x, x.dtype) for x in graph.inputs])
    arrays = [in_memory(dtype) for dtype in dtypes]
    results = gc.InferenceSession().load(graph)(*arrays)
    for symbol, result in zip(graph.outputs, results, strict=True):
        assert result.dtype == symbol.dtype.numpy
    return [(d, a, r.tolist()) for d, a, r in zip(dtypes, arrays, results, strict=True)]


@pytest.mark.numbers
@settings(max_examples=drawn(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(trees(1, 64, 12, divides=True))
def test_trees_agree_with_python_integers(tree: tuple[Graph, list[Array], list[Known]]) -> None:
    graph, arrays, outputs = tree
    results = gc.InferenceSession(intra_op_num_threads=1).load(graph)(*arrays)
    for item, result in zip(outputs, results, strict=True):
        assert result.dtype == item.dtype.numpy
        assert result.tolist() == item.values, f"{item.symbol}\n{graph}"


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees(1, 64, 12, divides=True))
def test_trees_are_valid_onnx_on_every_target(tree: tuple[Graph, list[Array], list[Known]]) -> None:
    graph = tree[0]
    targets: tuple[TargetName, ...] = ("onnx", "cpu")
    for target in targets:
        onnx.checker.check_model(graph.to_onnx(target=target), full_check=True)
    lower(graph, "cuda")


@pytest.mark.numbers
def test_inputs_are_wrapped_when_they_come_out() -> None:
    for dtype, array, result in run_each(lambda x, dtype: ops.positive(x), ODD):
        assert result == [wrap(int(v), dtype) for v in array], dtype


@pytest.mark.numbers
@pytest.mark.parametrize("source", [DType.float64, DType.float32], ids=str)
def test_casts_of_floats_truncate_and_saturate_when_they_go_to_odd_widths(source: DType) -> None:
    edges = [float(int(limit)) * factor for d in ODD for limit in (d.min, d.max) for factor in (0.5, 1.0, 2.0)]
    floats = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 3e38, -3e38, np.inf, -np.inf, np.nan, *edges]
    array = np.array(floats, source.numpy)
    graph = Graph("test", {"x": TensorType(source, ["n"])})
    graph.output(*[graph[0].cast(dtype) for dtype in ODD])
    for dtype, result in zip(ODD, gc.InferenceSession().load(graph)(array), strict=True):
        least, greatest = int(dtype.min), int(dtype.max)
        assert result.dtype == dtype.numpy
        assert result.tolist() == [
            0 if np.isnan(v) else least if v <= least else greatest if v >= greatest else int(v) for v in array.tolist()
        ], dtype


@pytest.mark.numbers
@pytest.mark.parametrize("target", [DType.float64, DType.float32], ids=str)
def test_casts_to_floats_round_once_when_they_leave_odd_widths(target: DType) -> None:
    for dtype, array, result in run_each(lambda x, dtype: x.cast(target), ODD):
        wrapped = np.array([wrap(int(v), dtype) for v in array], np.int64 if dtype.is_signed else np.uint64)
        assert result == wrapped.astype(target.numpy).tolist(), dtype


@pytest.mark.numbers
def test_casts_to_bool_ask_the_low_bits_when_the_storage_has_more() -> None:
    for dtype, array, result in run_each(lambda x, dtype: x.cast(DType.bool), ODD):
        assert result == [wrap(int(v), dtype) != 0 for v in array], dtype


@pytest.mark.numbers
def test_casts_of_bools_wrap_when_the_width_is_one() -> None:
    flags = np.array([False, True])
    for dtype in (DType.int(1), DType.uint(1), DType.int(3)):
        assert run(lambda x, to=dtype: x.cast(to), [DType.bool], flags) == [0, wrap(1, dtype)]


@pytest.mark.numbers
def test_reductions_wrap_once_when_they_come_out() -> None:
    functions: dict[str, tuple[Callable[[Symbol, DType], Symbol], Callable[[list[int]], list[int]]]] = {
        "sum": (lambda x, d: ops.sum(x, axis=0, keepdims=True), lambda v: [sum(v)]),
        "dot": (lambda x, d: ops.reshape(x @ x, [1]), lambda v: [sum(a * a for a in v)]),
        "cumsum": (lambda x, d: ops.cumsum(x, axis=0), lambda v: [sum(v[: i + 1]) for i in range(len(v))]),
        "prod": (lambda x, d: ops.prod(x, axis=0, keepdims=True), lambda v: [math.prod(v)]),
        "max": (lambda x, d: ops.max(x, axis=0, keepdims=True), lambda v: [max(v)]),
        "sort": (lambda x, d: ops.sort(x, axis=0), sorted),
        "argmin": (lambda x, d: ops.argmin(x, axis=0, keepdims=True), lambda v: [v.index(min(v))]),
        "power": (lambda x, d: x ** (x & 1), lambda v: [a if a & 1 else 1 for a in v]),
    }
    for name, (function, reference) in functions.items():
        # A power of tensors is hundreds of operators.
        dtypes = ODD if name != "power" else [DType.int(5), DType.uint(7), DType.int(23)]
        for dtype, array, result in run_each(function, dtypes):
            exact = reference([wrap(int(v), dtype) for v in array])
            assert result == ([wrap(v, dtype) for v in exact] if name != "argmin" else exact), (name, dtype)


@pytest.mark.numbers
def test_sums_and_products_over_axes_wrap_once_when_they_come_out() -> None:
    dtype = DType.int(13)
    array = np.random.default_rng(0).integers(-(1 << 15), 1 << 15, 1000).astype(np.int16)
    exact = [wrap(int(v), dtype) for v in array]
    assert run(lambda x: ops.sum(x, axis=0, keepdims=True), [dtype], array) == [wrap(sum(exact), dtype)]
    assert run(lambda x: ops.reshape(x @ x, [1]), [dtype], array) == [wrap(sum(v * v for v in exact), dtype)]
    total = np.cumsum(np.array(exact, object))
    assert run(lambda x: ops.cumsum(x, axis=0), [dtype], array) == [wrap(int(v), dtype) for v in total]


@pytest.mark.numbers
def test_indices_are_wrapped_when_they_are_of_an_odd_width() -> None:
    places = np.array([1, 8 + 2, 240, 31], np.uint8)
    table = np.arange(8, dtype=np.float32) * 3
    wanted = [3.0 * (int(v) % 8) for v in places]
    assert run(lambda x: ops.gather(ops.constant(table), x, axis=0), [DType.uint(3)], places) == wanted


# How many wraps there are


def operators(graph: Graph, target: TargetName = "cpu") -> Counter[str]:
    return Counter(node.op_type for node in lower(graph, target).nodes)


def grown(x: Symbol, y: Symbol) -> Symbol:
    """A sum that cannot leave its width."""
    wide = DType.int(x.dtype.bits + 1)
    return x.cast(wide) + y.cast(wide)


def test_a_grown_sum_wraps_its_inputs_alone_when_they_are_odd() -> None:
    graph = graph_of(grown, DType.int(23), DType.int(23))
    assert operators(graph) == {"BitwiseAnd": 2, "BitwiseXor": 2, "Sub": 2, "Add": 1}


def test_a_grown_sum_and_product_wrap_nothing_when_their_inputs_are_named() -> None:
    graph = graph_of(lambda x, y: grown(grown(x, y), grown(y, x)), DType.int(8), DType.int(8))
    assert operators(graph) == {"Cast": 2, "Add": 3}

    def product(x: Symbol, y: Symbol) -> Symbol:
        return x.cast(DType.int(48)) * y.cast(DType.int(48))

    assert operators(graph_of(product, DType.int32, DType.int16)) == {"Cast": 2, "Mul": 1}


def test_a_chain_wraps_once_when_only_its_result_is_looked_at() -> None:
    def chain(x: Symbol, y: Symbol) -> Symbol:
        for _ in range(20):
            x = (x * y + y - x) ^ ~y
        return ops.reshape(ops.concat([x, y]), [-1])

    graph = graph_of(chain, DType.uint(17), DType.uint(17))
    assert operators(graph)["BitwiseAnd"] == 1


def test_a_value_is_wrapped_once_when_several_operators_look_at_it() -> None:
    def looked_at(x: Symbol, y: Symbol) -> tuple[Symbol, ...]:
        product = x * y
        return product < y, product >> 3, ops.max(product, x), product

    graph = graph_of(looked_at, DType.uint(17), DType.uint(17))
    assert operators(graph)["BitwiseAnd"] == 3  # of x, of y, of the product


def test_results_that_stay_within_their_width_are_not_wrapped() -> None:
    def small(x: Symbol) -> tuple[Symbol, ...]:
        exact = x & 0xFF
        return (
            exact,
            exact + 1,
            exact >> 2,
            exact % 7,
            exact << 4,
            exact // 3,
            ops.max(exact, x.cast(DType.bool).cast(x.dtype)),
        )

    counts = operators(graph_of(small, DType.uint(17)))
    assert counts["BitwiseAnd"] == 2  # the one written, and what brings x into its width for the bool


def test_constants_need_no_wrap() -> None:
    def added(x: Symbol) -> Symbol:
        return x.cast(DType.int(20)) + 5

    assert operators(graph_of(added, DType.int8)) == {"Cast": 1, "Add": 1}


def test_lowering_is_linear_when_a_sum_is_long() -> None:
    def total(x: Symbol) -> Symbol:
        for bits in range(24, 24 + 38):
            x = x.cast(DType.int(bits)) + 1
        return x

    graph = graph_of(total, DType.int(23))
    assert operators(graph)["BitwiseAnd"] == 1
    assert run(total, [DType.int(23)], np.array([5, -5], np.int32)) == [43, 33]


# Bodies of If and Loop


def new_body(outer: Graph, name: str, types: dict[str, TensorType]) -> Graph:
    body = Graph(name, types)
    body.scope.outer = outer
    return body


@pytest.mark.numbers
def test_bodies_compute_in_odd_widths_when_they_capture_values() -> None:
    dtype = DType.int(23)
    graph = Graph("test", {"flag": TensorType(DType.bool, []), "x": TensorType(dtype, ["n"])})
    flag, x = graph.inputs
    doubled = x + x
    functions: dict[str, Function] = {"then_branch": lambda v: v * v, "else_branch": lambda v: v >> 1}
    branches = {}
    for name, function in functions.items():
        body = new_body(graph, name, {})
        inner = body.build.capture(doubled)
        assert inner is not None
        body.output(function(inner))
        branches[name] = body
    (result,) = graph.op("If", [flag], branches, [x.type])
    graph.output(result.cast(DType.int(40)))
    model = gc.InferenceSession().load(graph)
    values = np.array([1, -5, 1 << 21, (1 << 22) + 3, 12345678], np.int32)
    exact = [wrap(2 * int(v), dtype) for v in values]
    assert model(np.array(True), values)[0].tolist() == [wrap(v * v, dtype) for v in exact]
    assert model(np.array(False), values)[0].tolist() == [v >> 1 for v in exact]


@pytest.mark.numbers
def test_loops_carry_odd_widths_when_they_turn() -> None:
    dtype = DType.uint(5)
    graph = Graph("test", {"x": TensorType(dtype, ["n"])})
    body = new_body(graph, "body", {
        "turn": TensorType(DType.int64, []), "on": TensorType(DType.bool, []), "v": TensorType(dtype, ["n"]),
    })  # fmt: skip
    _, on, v = body.inputs
    body.output(ops.positive(on), v * v + 3)
    (output,) = graph.op(
        "Loop", [graph.constant(np.array(4)), graph.constant(np.array(True)), graph[0]], {"body": body}, [graph[0].type]
    )
    graph.output(output)
    assert isinstance(output.producer, Node)
    wanted = []
    for value in (0, 1, 2, 30, 31, 200):
        for _ in range(4):
            value = wrap(value * value + 3, dtype)
        wanted.append(value)
    (result,) = gc.InferenceSession().load(graph)(np.array([0, 1, 2, 30, 31, 200], np.uint8))
    assert result.tolist() == wanted


# Files


def test_odd_widths_are_noted_when_a_file_is_read_back(tmp_path: Any) -> None:
    graph = graph_of(lambda x: x + x, DType.int(23))
    graph.export(tmp_path / "odd.onnx")
    model = gc.InferenceSession().load(tmp_path / "odd.onnx")
    assert [t.dtype for t in (*model.inputs.values(), *model.outputs.values())] == [DType.int(23)] * 2  # type: ignore[union-attr]
    assert model(np.array([1 << 21, 3], np.int32))[0].tolist() == [-(1 << 22), 6]


def test_weights_and_constants_of_odd_widths_are_taken_as_they_are() -> None:
    graph = Graph("test", {"x": TensorType(DType.uint(12), [3])})
    weight = graph.weight("w", np.array([1, 4095, 2000], np.uint16), DType.uint(12))
    constant = graph.constant([4095, 1, 7], DType.uint(12))
    graph.output(graph[0] * weight + constant)
    (result,) = gc.InferenceSession().load(graph)(np.array([5, 6, 4097], np.uint16))
    assert result.tolist() == [(5 + 4095) % 4096, (6 * 4095 + 1) % 4096, 2007]
