"""Each pass by itself: removed and kept nodes, and exactness for every value of every dtype."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcore import DType, Graph, InferenceSession, Symbol, TensorType, ops, passes
from graphcore.arrays.casting import cast_array
from graphcore.ir.symbol import Constant
from graphcore.passes.simplify import holds, passes_through
from tests.support.optimised import (
    DTYPES,
    FLOATS,
    INTEGERS,
    Array,
    assert_same,
    bits,
    extremes,
    f32,
    graph_of,
    i8,
    operators,
    run,
    unchanged,
    vector,
)

# Dead code


def test_dead_code_removes_what_leads_to_no_output() -> None:
    graph = Graph("test", {"x": vector(), "unused": vector()})
    x, _ = graph.inputs
    graph.constant([1.0, 2.0])
    ops.exp(ops.sin(x) + 3.0)
    graph.output(y=x + 1.0)
    result = passes.dead_code(graph)
    assert operators(result) == ["Add"]
    assert sum(isinstance(s.producer, Constant) for s in result.symbols) == 1
    assert [s.name for s in result.inputs] == ["x", "unused"]
    assert len(graph.nodes) == 4


def test_dead_code_keeps_values_and_weights_with_names() -> None:
    graph = Graph("test", {"x": vector()})
    hidden = ops.sin(graph["x"])
    hidden.name = "hidden"
    graph.weight("spare", np.ones(3, np.float32))
    graph.output(graph["x"] + 1.0)
    changed = graph.optimize()
    assert operators(changed) == ["Sin", "Add"]
    assert changed["hidden"].type is hidden.type
    assert list(changed.weights) == ["spare"]


# Common subexpressions


def test_common_subexpressions_merges_equal_nodes_and_constants() -> None:
    def function(x: Symbol) -> Symbol:
        return ops.exp(x + np.float32(2)) * ops.exp(x + np.float32(2)) + ops.sum(x, axis=0) / ops.sum(x, axis=0)

    result = passes.common_subexpressions(graph_of(function, vector()))
    assert operators(result).count("Exp") == operators(result).count("ReduceSum") == 1


def test_common_subexpressions_looks_at_attributes_dtypes_and_signs() -> None:
    def function(x: Symbol) -> tuple[Symbol, ...]:
        casts = (x.cast(DType.float16), x.cast(DType.bfloat16))
        return *casts, ops.transpose(x, 0, 1), x.permute(1, 0, 2), x.permute(0, 2, 1), x * 0.0, x * -0.0

    graph = graph_of(function, vector(DType.float32, "a", "b", "c"))
    assert operators(passes.common_subexpressions(graph)) == [
        "Cast", "Cast", "Transpose", "Transpose", "Mul", "Mul",
    ]  # fmt: skip


def test_common_subexpressions_keeps_the_signs_of_attributes() -> None:
    x, slopes = f32([-1.0]), (0.0, -0.0, 0.0)
    graph = graph_of(lambda x: tuple(ops.leaky_relu(x, slope) for slope in slopes), vector())
    merged = passes.common_subexpressions(graph)
    assert operators(merged) == ["LeakyRelu"] * 2
    assert [np.signbit(y).item() for y in run(merged, x)] == [np.signbit(x * slope).item() for slope in slopes]


def test_common_subexpressions_merges_operands_in_any_order() -> None:
    def function(x: Symbol, y: Symbol) -> tuple[Symbol, ...]:
        pairs = [(x + y, y + x), (x * y, y * x), (x == y, y == x), (x != y, y != x), (x * 0.5, np.float32(0.5) * x)]
        return tuple(ops.where(a == b, 1.0, 2.0) for a, b in pairs)

    graph = graph_of(function, vector(), vector())
    result = passes.common_subexpressions(graph)
    counts = [operators(result).count(name) for name in ("Add", "Mul", "NotEqual")]
    assert counts == [1, 2, 1]
    x, y = f32([0.0, -0.0, np.nan, np.inf, 1e-45, 3e38]), f32([-0.0, 2.0, 1.0, -np.inf, 1e-45, 3e38])
    assert [r.tolist() for r in run(result, x, y)] == [r.tolist() for r in run(graph, x, y)]
    bitwise = graph_of(lambda x, y: ((x & y) ^ (y & x)) + ((x | y) ^ (y | x)), *[vector(DType.int32)] * 2)
    assert operators(passes.common_subexpressions(bitwise)).count("BitwiseAnd") == 1


@pytest.mark.parametrize("function", [ops.maximum, ops.minimum, ops.sub, ops.less, ops.atan2, lambda x, y: x // y])
def test_common_subexpressions_leaves_operands_that_may_not_change_places(function: Callable[..., Any]) -> None:
    graph = graph_of(lambda x, y: (function(x, y), function(y, x)), vector(), vector())
    zeros = f32([0.0, -0.0])
    merged = passes.common_subexpressions(graph)
    assert len(merged.nodes) == 2
    assert [bits(r) for r in run(merged, zeros, zeros[::-1])] == [bits(r) for r in run(graph, zeros, zeros[::-1])]


@pytest.mark.parametrize("operator", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_common_subexpressions_leaves_random_operators(operator: str) -> None:
    graph = Graph("test", {"x": vector(DType.float32, 4)})
    x = graph["x"]
    first, second = (graph.op(operator, [x], {"seed": 1.0}, [x.type])[0] for _ in range(2))
    graph.output(first - second)
    assert operators(graph.optimize()) == [operator, operator, "Sub"]


def test_common_subexpressions_leaves_domains_it_does_not_know() -> None:
    graph = Graph("test", {"x": vector()})
    x = graph["x"]
    first, second = (graph.op("Draw", [x], {}, [x.type], domain="some.where")[0] for _ in range(2))
    graph.output(first - second)
    assert operators(graph.optimize()) == ["Draw", "Draw", "Sub"]


def test_common_subexpressions_keeps_both_where_both_have_names() -> None:
    graph = Graph("test", {"x": vector()})
    first, second, third = (ops.exp(graph["x"]) for _ in range(3))
    second.name, third.name = "second", "third"
    graph.output(first + second + third)
    changed = graph.optimize()
    assert operators(changed) == ["Exp", "Exp", "Add", "Add"]
    assert changed["second"] is not changed["third"]


# Constants


def test_fold_constants_stops_at_its_limit_and_at_weights() -> None:
    graph = Graph("test", {"x": vector(DType.float32, 1)})
    wide = ops.broadcast_to(graph.constant(f32([1])), (1024,))
    weight = graph.weight("w", np.ones(1, np.float32))
    graph.output(graph["x"] + wide, weight + f32([1]))
    assert operators(passes.fold_constants(graph)) == ["Add", "Add"]
    assert operators(passes.fold_constants(graph, limit=4095)) == operators(graph)
    assert operators(passes.fold_constants(graph, limit=4096)) == ["Add", "Add"]


def test_fold_constants_leaves_what_kernels_approximate() -> None:
    graph = Graph("test", {"x": vector()})
    expected = graph.constant(f32([1, 2]))
    graph.output(ops.exp(expected), ops.sum(expected), expected / np.float32(3))
    assert operators(passes.fold_constants(graph)) == ["Exp", "ReduceSum"]


def test_fold_constants_leaves_quotients_by_zero() -> None:
    graph = Graph("test", {"x": vector()})
    result = graph.op("Div", [i8([-128, 1]), i8([-1, 0])], out_types=[TensorType(DType.int8, [2])])
    graph.output(*result)
    assert operators(graph.optimize()) == ["Div"]


def _pairs(dtype: DType) -> tuple[Array, Array]:
    values = extremes(dtype)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def _computed_and_folded(function: Callable[..., Any], dtype: DType, *arrays: Array) -> None:
    """The function of inputs as onnxruntime computes it, and of constants as folding does, element by element."""
    types = [vector(dtype, a.size) for a in arrays]
    computed = graph_of(function, *types)
    results = run(computed, *arrays)
    graph = Graph("constants", {"unused": vector()})
    with graph:
        output = function(*[graph.constant(a, dtype) for a in arrays])
    graph.output(*(output if isinstance(output, tuple) else (output,)))
    folded = graph.optimize()
    assert sum(symbol.is_constant for symbol in folded.outputs) > len(results) // 2
    for result, symbol in zip(results, folded.outputs, strict=True):
        if isinstance(symbol.producer, Constant):
            assert bits(symbol.producer.array) == bits(result), symbol
        else:  # what has NaN in it, or is not defined in NumPy
            assert symbol.dtype.is_float or dtype.is_float


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_fold_constants_gives_what_the_runtime_computes(dtype: DType) -> None:
    left, right = _pairs(dtype)
    if dtype.is_float:
        whole = np.isfinite(left.astype(np.float64)) & np.isfinite(right.astype(np.float64))
        left, right = left[whole], right[whole]

    def function(x: Symbol, y: Symbol) -> tuple[Symbol, ...]:
        results = [x + y, x - y, x * y, x < y, x <= y, x == y, ops.where(x < y, x, y), -x if dtype.is_signed else x + x]
        if dtype.is_float:
            results += [
                -x,
                abs(x),
                ops.sqrt(abs(x)),
                ops.floor(x),
                ops.ceil(x),
                x / ops.where(y == 0, ops.cast(y < y, dtype) + 1, y),
            ]
        else:
            results.append(x // y)
        return tuple(results)

    _computed_and_folded(function, dtype, left, right)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fold_constants_casts_as_the_runtime_does(dtype: DType) -> None:
    values = extremes(dtype)
    if dtype.is_float:
        values = values[~np.isnan(values.astype(np.float64))]

    def function(x: Symbol) -> tuple[Symbol, ...]:
        return tuple([ops.cast(ops.reshape(x, (-1, 1)), target) for target in DTYPES])

    _computed_and_folded(function, dtype, values)


def test_fold_constants_moves_every_dtype() -> None:
    for dtype in DTYPES:
        values = extremes(dtype)
        n = values.size

        def function(x: Symbol, n: int = n) -> tuple[Symbol, ...]:
            square = ops.concat([x, x]).reshape(2, n)
            return square.transpose(0, 1), square[0, 1:], ops.gather(square, np.array([1, -1]), axis=1), x.unsqueeze(0)

        graph = Graph("constants", {"unused": vector()})
        with graph:
            graph.output(*function(graph.constant(values, dtype)))
        changed = graph.optimize()
        assert not changed.nodes
        square = np.concatenate([values, values]).reshape(2, n)
        for symbol, wanted in zip(
            changed.outputs, [square.T, square[0, 1:], square[:, [1, -1]], values[None]], strict=True
        ):
            assert isinstance(symbol.producer, Constant)
            assert symbol.producer.array.tobytes() == np.ascontiguousarray(wanted).tobytes()


# Casts


@pytest.mark.parametrize(
    ("source", "between", "target", "remaining"),
    [
        (DType.float16, DType.float32, DType.float16, 0),
        (DType.bfloat16, DType.float64, DType.bfloat16, 0),
        (DType.int8, DType.float16, DType.int8, 0),
        (DType.uint32, DType.int64, DType.uint32, 0),
        (DType.bool, DType.float32, DType.bool, 0),
        (DType.float16, DType.float64, DType.float32, 1),
        (DType.int8, DType.int32, DType.uint8, 1),
        (DType.int8, DType.int16, DType.float64, 1),
        (DType.uint8, DType.float32, DType.int16, 1),
        (DType.float32, DType.float16, DType.float32, 2),
        (DType.float16, DType.bfloat16, DType.float16, 2),
        (DType.int64, DType.float64, DType.int64, 2),
        (DType.int8, DType.uint8, DType.int8, 2),
        (DType.int8, DType.float32, DType.uint8, 2),  # saturates by way of a float, and wraps without
        (DType.int32, DType.int8, DType.int32, 2),
        (DType.float32, DType.int64, DType.float32, 2),
    ],
)
def test_simplify_casts_where_it_is_exact(source: DType, between: DType, target: DType, remaining: int) -> None:
    graph = graph_of(lambda x: x.cast(between).cast(target), vector(source))
    changed = passes.simplify_casts(passes.dead_code(graph)).optimize(["simplify_casts", "dead_code"])
    assert operators(changed) == ["Cast"] * remaining
    assert_same(graph, extremes(source))


def test_simplify_casts_of_a_dtype_to_itself() -> None:
    graph = Graph("test", {"x": vector()})
    (result,) = graph.op("Cast", [graph["x"]], {"to": DType.float32}, [graph["x"].type])
    graph.output(ops.exp(result))
    assert operators(passes.simplify_casts(graph)) == ["Exp"]


def _all_values(dtype: DType) -> Array:
    if dtype.bits <= 16:
        if dtype.bits == 4:
            return np.arange(-8 if dtype.is_signed else 0, 8 if dtype.is_signed else 16).astype(dtype.numpy)
        if dtype is DType.bool:
            return np.array([False, True])
        return np.arange(1 << dtype.bits).astype(f"u{dtype.bits // 8}").view(dtype.numpy)
    return extremes(dtype)


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_what_passes_through_a_dtype_is_unchanged_for_every_value(source: DType) -> None:
    values = _all_values(source)
    for between in DTYPES:
        if not holds(between, source):
            continue
        wide = cast_array(values, source, between)
        assert bits(cast_array(wide, between, source)) == bits(values), between
        for target in DTYPES:
            if passes_through(source, between, target):
                assert bits(cast_array(wide, between, target)) == bits(cast_array(values, source, target))


# Identities

SQUARE = TensorType(DType.float32, [3, 3])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.graph.op("Identity", [x])[0],
        lambda x: x.permute(0, 1),
        lambda x: x.permute(1, 0).permute(1, 0),
        lambda x: x.reshape(3, 3),
        lambda x: x.graph.build.emit("Reshape", (x, x.graph.build.vector([3, 3])), x.type),
        lambda x: x.graph.build.emit("Slice", (x, *(x.graph.build.vector([v]) for v in (0, 3, 0))), x.type),
        lambda x: x.graph.build.emit("Concat", (x,), x.type, {"axis": 0}),
        lambda x: x + np.float32(-0.0),
        lambda x: x - np.float32(0.0),
        lambda x: x * 1.0,
        lambda x: np.float32(1) * x,
        lambda x: x / 1.0,
        lambda x: x * np.ones((3, 3), np.float32),
        lambda x: unchanged(x),
        lambda x: ops.onnx.Sum(x),
        lambda x: ops.onnx.Mean(x),
        lambda x: ops.onnx.Max(x),
        lambda x: ops.onnx.Min(x),
        lambda x: ops.onnx.Tile(x, np.array([1, 1])),
        lambda x: ops.onnx.Pad(x, np.zeros(4, np.int64), np.float32(3)),
        lambda x: ops.onnx.Pad(x, np.zeros(4, np.int64), mode="reflect"),
        lambda x: ops.onnx.Pad(x, np.array([0, 0]), None, np.array([1])),
        lambda x: ops.onnx.Split(x, None, num_outputs=1, outputs=1)[0],
        lambda x: ops.onnx.Split(x, np.array([3]), axis=1, outputs=1)[0],
    ],
)
def test_remove_identities_where_they_are(function: Callable[[Symbol], Symbol]) -> None:
    graph = graph_of(lambda x: ops.exp(function(x)), SQUARE)
    assert operators(passes.dead_code(passes.remove_identities(graph))) == ["Exp"]
    values = f32([[0.0, -0.0, 1.0], [np.nan, np.inf, -np.inf], [1e-45, -1e-45, 3e38]])
    assert_same(graph, values)
    as_output = assert_same(graph_of(function, SQUARE, output="y"), values)
    assert list(as_output.output_types) == ["y"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 0.0,
        lambda x: x - np.float32(-0.0),
        lambda x: x * 0.0,
        lambda x: x * -1.0,
        lambda x: 0.0 - x,
        lambda x: 1.0 / x,
        lambda x: x + f32([-0.0, 0.0, -0.0]),
        lambda x: x * np.ones((2, 3, 3), np.float32),
        lambda x: x.permute(1, 0),
        lambda x: x[::-1],
        lambda x: x // 1,
        lambda x: 1 // x,
        lambda x: ops.onnx.Sum(x, x),
        lambda x: ops.onnx.Tile(x, np.array([1, 2])),
        lambda x: ops.onnx.Pad(x, np.array([0, 0, 0, 1])),
        lambda x: ops.onnx.Pad(x, np.array([0, -1, 0, 1])),
        lambda x: ops.onnx.Split(x, np.array([1, 2]), outputs=2)[1],
        lambda x: x.reshape(9),
    ],
)
def test_remove_identities_leaves_what_is_none(function: Callable[[Symbol], Symbol]) -> None:
    graph = graph_of(function, SQUARE)
    assert operators(passes.remove_identities(graph)) == operators(graph)
    assert_same(graph, f32([[0.0, -0.0, 1.0], [np.nan, np.inf, -np.inf], [1e-45, -1e-45, 3e38]]))


def test_remove_identities_keeps_the_signs_of_zeros() -> None:
    zeros = f32([0.0, -0.0])

    def function(x: Any) -> tuple[Any, ...]:
        return x + zeros[0], x + zeros[1], x - zeros[0], x - zeros[1]

    results = run(passes.remove_identities(graph_of(function, vector())), zeros)
    assert [np.signbit(result).tolist() for result in results] == [np.signbit(y).tolist() for y in function(zeros)]


@pytest.mark.parametrize("dtype", INTEGERS[:10], ids=str)
def test_remove_identities_of_integers(dtype: DType) -> None:
    def function(x: Symbol) -> Symbol:
        one, nothing, ones = (x.graph.constant(v, dtype) for v in (1, 0, int(dtype.max) if dtype.is_unsigned else -1))
        moved = (x << nothing) >> 0
        return ((((moved + nothing) * one) - nothing) // one | nothing) & ones

    graph = graph_of(function, vector(dtype))
    assert not assert_same(graph, extremes(dtype)).nodes


def test_remove_identities_of_bools() -> None:
    graph = graph_of(lambda x: ~~(x & True) | False, vector(DType.bool))
    assert not assert_same(graph, np.array([False, True])).nodes


def test_remove_identities_leaves_what_dtypes_of_the_library_round() -> None:
    graph = graph_of(lambda x: unchanged(x * 1.0), vector(DType.tensor_float32))
    assert len(passes.remove_identities(graph).nodes) == 3


def test_fold_constants_slices_backwards_as_the_runtime_does() -> None:
    furthest = (1 << 63) - 1
    places = [-9, -2, -1, 0, 1, 3, 9, -furthest - 1, furthest]
    values = np.arange(4, dtype=np.float32)
    types = {"x": TensorType("float32", [4])} | {name: TensorType("int64", [1]) for name in ("start", "end", "step")}
    fed = Graph("fed", types)
    x, *bounds = fed.inputs
    fed.output(*fed.op("Slice", [x, *bounds[:2], np.array([0]), bounds[2]], {}, [TensorType("float32", ["n"])]))
    model = InferenceSession().load(fed)
    for start, end, step in itertools.product(places, places, (-2, -1, 1, 2)):
        (want,) = model(values, *[np.array([v]) for v in (start, end, step)])
        graph = Graph("folded", [])
        operands = [graph.constant(v) for v in (values, *map(np.array, ([start], [end], [0], [step])))]
        graph.output(*graph.op("Slice", operands, {}, [TensorType("float32", list(want.shape))]))
        (symbol,) = passes.fold_constants(graph).outputs
        if isinstance(symbol.producer, Constant):
            assert symbol.producer.array.tolist() == want.tolist(), (start, end, step)
