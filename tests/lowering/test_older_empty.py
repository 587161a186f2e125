"""The crashes and errors of an older onnxruntime, above all on empty operands, which lowering avoids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import GraphError
from graphcore.ir.graph import TargetName
from graphcore.ir.transform import walk
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.select import keeps
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.lowering.targets.releases import Runtime, table_of
from graphcore.runtime.ort import optimisers, release, sessions
from graphcore.runtime.sessions import plan

pytestmark = pytest.mark.releases

D = DType
OLD = Runtime("1.24.1", 25)
NEWEST = Runtime(table_of("cpu").newest.version)


@pytest.fixture(autouse=True)
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "runtime", lambda: OLD)
    monkeypatch.setattr(sessions, "runtime", lambda: OLD)


def operators(graph: Graph, target: TargetName = "cpu") -> set[str]:
    return {node.op_type for node in lower(graph, target, runtime=OLD).nodes}


def run(graph: Graph, *arrays: Any) -> list[Any]:
    return list(gc.InferenceSession().load(graph)(*arrays))


# Einsum


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.float32, D.int64], ids=str)
@pytest.mark.parametrize("empty", ["i", "j", "k", "ij", "ijk", ""])
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,kj->i", "ij,jk->", "ij,jk->kji", "...j,jk->...k", "ii,ij,jk->k"])
def test_einsum_is_that_of_numpy_when_axes_are_empty(equation: str, empty: str, dtype: DType) -> None:
    sizes = {a: 0 if a in empty else n for a, n in zip("ijk", (2, 3, 4), strict=True)}
    terms = equation.replace("...", "i").split("->")[0].split(",")
    arrays = [np.full([sizes[a] for a in term], 3, dtype.numpy) for term in terms]
    graph = Graph("one", [TensorType(dtype, [*term]) for term in terms])
    graph.output(ops.einsum(equation, *graph.inputs))
    (got,) = run(graph, *arrays)
    np.testing.assert_array_equal(got, np.einsum(equation, *arrays))


@pytest.mark.numbers
def test_sum_over_an_empty_axis_is_zero_when_the_other_operand_is_not_finite() -> None:
    graph = Graph("one", {"x": TensorType(D.float32, ["i"]), "y": TensorType(D.float32, ["k"])})
    graph.output(ops.einsum("i,k->k", *graph.inputs))
    (got,) = run(graph, np.zeros(0, np.float32), np.array([np.inf, np.nan, 1], np.float32))
    np.testing.assert_array_equal(got, np.zeros(3, np.float32))


def test_einsum_is_left_alone_when_no_axis_can_be_empty() -> None:
    graph = Graph("one", [TensorType(D.float32, [2, 3]), TensorType(D.float32, [3, 4])])
    graph.output(ops.einsum("ij,jk->ik", *graph.inputs))
    assert operators(graph) == {"Einsum"}


# TopK


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.float16, D.float32, D.int64], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_sorting_is_that_of_numpy_when_nothing_is_known_of_the_dims(dtype: DType, axis: int) -> None:
    graph = Graph("one", {"x": TensorType(dtype, [gc.Dim.dynamic(), gc.Dim.dynamic()])})
    graph.output(ops.sort(graph["x"], axis))
    for shape in ((3, 4), (0, 4), (3, 0)):
        x = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype.numpy)
        np.testing.assert_array_equal(run(graph, x)[0], np.sort(x, axis))
    for runtime in (None, "1.27", "1.30"):
        graph.to_onnx(runtime=runtime)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.float32, D.float64, D.int32, D.int64, D.uint64, D.bfloat16, D.int8], ids=str)
@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3), (2, 3), (0, 0)])
@pytest.mark.parametrize("is_named", [False, True], ids=["known", "named"])
def test_sorting_is_that_of_numpy_when_rows_are_none(shape: tuple[int, ...], dtype: DType, is_named: bool) -> None:
    x = np.arange(np.prod(shape))[::-1].reshape(shape).astype(dtype.numpy)
    graph = Graph("one", {"x": TensorType(dtype, [f"n{i}" for i in range(x.ndim)] if is_named else list(shape))})
    graph.output(ops.sort(graph["x"]), ops.argsort(graph["x"]))
    values, places = run(graph, x)
    np.testing.assert_array_equal(values, np.sort(x))
    np.testing.assert_array_equal(places, np.argsort(x, kind="stable"))


# Extremes


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.int8, D.uint8, D.int32], ids=str)
@pytest.mark.parametrize("shape", [(2, 0), (2, 3)])
def test_extremes_are_the_ends_of_the_dtype_when_x_is_empty(shape: tuple[int, int], dtype: DType) -> None:
    x = np.arange(6).astype(dtype.numpy).reshape(2, 3)[:, : shape[1]]
    graph = Graph("one", {"x": TensorType(dtype, ["m", "n"])})
    graph.output(ops.min(graph["x"], axis=1), ops.max(graph["x"], axis=1), ops.max(graph["x"], axis=1, keepdims=True))
    least, greatest, remaining = run(graph, x)
    np.testing.assert_array_equal(least, x.min(axis=1, initial=dtype.max))
    np.testing.assert_array_equal(greatest, x.max(axis=1, initial=dtype.min))
    np.testing.assert_array_equal(remaining[:, 0], greatest)


@pytest.mark.numbers
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("shape", [(2, 0), (0, 2), (2, 3)])
def test_all_is_true_and_any_false_when_x_is_empty(shape: tuple[int, int], axis: int | None) -> None:
    x = np.zeros(shape, bool)
    graph = Graph("one", {"x": TensorType(D.bool, ["m", "n"])})
    graph.output(ops.all(graph["x"], axis=axis), ops.any(graph["x"], axis=axis))
    every, some = run(graph, x)
    np.testing.assert_array_equal(every, x.all(axis=axis))
    np.testing.assert_array_equal(some, x.any(axis=axis))


def test_kernel_of_extremes_does_not_stay_when_an_axis_may_be_empty() -> None:
    remaining, new = legality("cpu", OLD), legality("cpu")
    operand, result = TensorType(D.int32, ["n"]), TensorType(D.int32, [])
    assert keeps(new, "ReduceMax", D.int32, operand, result)
    assert not keeps(remaining, "ReduceMax", D.int32, operand, result)


# Kernels that are not there


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.float32, D.int64, D.int8, D.bool, D.bfloat16, D.int4, D.string], ids=str)
@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [1, 2, -2])
@pytest.mark.parametrize("has_starts", [False, True])
def test_tensors_are_written_into_a_cache_where_their_indices_say(
    dtype: DType, mode: str, axis: int, has_starts: bool
) -> None:
    past = np.zeros((2, 4, 5), np.int64)
    shape = [2, 4, 5]
    shape[axis] = 2
    update = np.arange(1, 1 + np.prod(shape)).reshape(shape) % 7
    starts = np.array([3, 1] if mode == "circular" else [2, 1])
    want, length = past.copy(), past.shape[axis]
    for row in range(2):
        for step in range(2):
            place = (starts[row] * has_starts + step) % length
            np.moveaxis(want[row], axis % 3 - 1, 0)[place] = np.moveaxis(update[row], axis % 3 - 1, 0)[step]

    def store(array: Any) -> Any:
        return array.astype(str).astype(object) if dtype is D.string else array.astype(dtype.numpy)

    graph = Graph("one", {"x": TensorType(dtype, ["b", 4, 5]), "y": TensorType(dtype, ["b", *shape[1:]])})
    if has_starts:
        where = graph.constant(starts)
        graph.output(ops.onnx.TensorScatter(graph["x"], graph["y"], where, axis=axis, mode=mode))
    else:
        graph.output(ops.onnx.TensorScatter(graph["x"], graph["y"], axis=axis, mode=mode))
    assert "TensorScatter" not in operators(graph)
    (got,) = run(graph, store(past), store(update))
    np.testing.assert_array_equal(got, store(want))


@pytest.mark.numbers
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 2, 0, 1)])
def test_averages_count_what_is_padded(padding: tuple[int, ...], ceil: bool) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 9)).astype(np.float32)
    graph = Graph("one", {"x": TensorType(D.float32, ["n", 3, "h", 9])})
    graph.output(ops.avg_pool2d(graph["x"], (3, 2), (2, 3), (1, 1), padding, ceil, True, "NCHW"))
    (got,) = run(graph, x)
    wide = Graph("wide", {"x": TensorType(D.float64, ["n", 3, "h", 9])})
    wide.output(ops.avg_pool2d(wide["x"], (3, 2), (2, 3), (1, 1), padding, ceil, True, "NCHW"))
    (want,) = run(wide, x.astype(np.float64))
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_loop_that_gathers_strings_is_refused() -> None:
    def step(number: gc.Symbol, text: gc.Symbol) -> Any:
        return text, text

    graph = Graph("one", {"n": TensorType(D.int64, []), "x": TensorType(D.string, [2])})
    text, gathered = _looped(graph, step)
    graph.output(text, gathered)
    with pytest.raises(GraphError, match="loses the strings") as caught:
        lower(graph, "cpu", runtime=OLD)
    assert "string" in str(caught.value)
    with pytest.raises(GraphError, match="loses the strings"):
        lower(graph, "cpu")


def _looped(graph: Graph, step: Any) -> Any:
    def body(number: gc.Symbol, going: gc.Symbol, text: gc.Symbol) -> Any:
        return (going, *step(number, text))

    return ops.onnx.Loop(graph["n"], graph.constant(np.array(True)), [graph["x"]], body=body)


# Optimisers


@pytest.mark.parametrize("dtype", [D.float32, D.float64], ids=str)
def test_optimiser_that_takes_an_empty_constant_for_one_is_off(monkeypatch: pytest.MonkeyPatch, dtype: DType) -> None:
    def build_graph(size: int) -> Graph:
        graph = Graph("one", {"x": TensorType(dtype, [1])})
        graph.output(graph["x"] * np.zeros(size, dtype.numpy))
        return graph

    def broken(size: int) -> tuple[str, ...]:
        graph = build_graph(size)
        return optimisers.unsafe(graph, walk.operators(graph))

    monkeypatch.setattr(optimisers, "runtime", lambda: OLD)
    assert "NoopElimination" in broken(0)
    assert "NoopElimination" not in broken(2)
    assert ("QuickGeluFusion" in broken(0)) is (dtype is D.float64)
    (got,) = run(build_graph(0), np.ones(1, dtype.numpy))
    assert got.shape == (0,)
    monkeypatch.setattr(optimisers, "runtime", lambda: NEWEST)
    assert "NoopElimination" not in broken(0)


# Casts and memory


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.int2, D.uint2, D.int4, D.uint4], ids=str)
@pytest.mark.parametrize("target", [D.int8, D.uint8, D.bool, D.float8_e5m2], ids=str)
def test_casts_of_parts_of_bytes_go_through_32_bits(dtype: DType, target: DType) -> None:
    graph = Graph("one", {"x": TensorType(D.bool, ["n"])})
    value = graph["x"].cast(dtype)
    graph.output(value.cast(target).cast(D.float32))
    for node in lower(graph, "cpu", runtime=OLD).nodes:
        (source, *_) = node.inputs
        if node.op_type == "Cast" and source is not None and source.dtype is dtype:
            assert node.outputs[0].dtype.bits > 8
    (got,) = run(graph, np.ones(9, bool))
    np.testing.assert_array_equal(got, np.ones(9, np.float32))


@pytest.mark.numbers
def test_negative_of_two_bits_is_right_when_it_is_computed_in_eight() -> None:
    graph = Graph("one", {"x": TensorType(D.bool, ["n"])})
    graph.output(-graph["x"].cast(D.int2))
    (got,) = run(graph, np.ones(9, bool))
    np.testing.assert_array_equal(got.astype(np.int8), np.full(9, -1))


def test_output_that_is_an_input_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.arange(3), np.arange(4)

    def ran(names: Any, feed: Any, options: Any) -> list[Any]:
        return [feed[name] for name in names]

    monkeypatch.setattr(release, "runtime", lambda: OLD)
    assert release.copying_outputs(ran, ()) is ran
    copied, shared = release.copying_outputs(ran, {"x"})(["x", "y"], {"x": x, "y": y}, None)
    np.testing.assert_array_equal(copied, x)
    assert not np.shares_memory(copied, x)
    assert shared is y
    monkeypatch.setattr(release, "runtime", lambda: NEWEST)
    assert release.copying_outputs(ran, {"x"}) is ran
