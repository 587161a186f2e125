"""Tests of bounds: every value of a run lies within them, for each operator with a rule, and for random graphs."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.analysis.bounds import Bounds
from graphcore.errors import DTypeError, GraphcoreError, GraphError
from graphcore.ir.transform.ranges import RULES
from graphcore.operators import ONNX
from tests.support.operators.cases import Place

F32 = DType.float32
RANGES = ((-1.0, 1.0), (0.0, 3.0), (0.5, 4.0), (-6.0, 2.0), (-300.0, 200.0), (5.0, 5.0))


def f32(*shape: int | str) -> TensorType:
    return TensorType(F32, shape)


def check_within(model: gc.runtime.Model, bounds: Bounds, feeds: Mapping[str, Any]) -> None:
    """Check each value of a run that has a name outside of bodies."""
    for name, result in model.debug(feeds, watch="*").items():
        if not isinstance(result, np.ndarray) or result.dtype == object or result.dtype.kind == "c" or not result.size:
            continue
        values, interval = np.asarray(result, np.float64), bounds[name]
        assert interval.may_be_nan or not np.isnan(values).any(), (name, interval)
        numbers = values[~np.isnan(values)]
        if numbers.size:
            assert interval.low <= numbers.min(), (name, interval)
            assert numbers.max() <= interval.high, (name, interval)


def drawn(dtype: DType, shape: tuple[int, ...], ends: tuple[float, float], rng: np.random.Generator) -> Any:
    """Return an array of numbers between ends, which are among them."""
    array = rng.uniform(*ends, shape)
    if rng.random() < 0.8:
        array.reshape(-1)[:2] = ends[: array.size]
    return (np.trunc(array) if dtype.is_integer else array).astype(dtype.numpy)


def operators() -> Iterator[tuple[str, str, int]]:
    for name in sorted(RULES.keys() & ONNX):
        for dtype in ("float16", "float32", "int32"):
            place = Place("", name, DType.of(dtype))
            yield from (
                (name, dtype, i) for i, case in enumerate(place.cases) if not case.only or place.dtype in case.only
            )


@pytest.mark.parametrize(("name", "dtype", "at"), [*operators()])
def test_operators_stay_within(name: str, dtype: str, at: int) -> None:
    place = Place("", name, DType.of(dtype))
    case = place.cases[at]
    question = place.question(case)
    rng = np.random.default_rng([at, *name.encode()])
    try:
        graph = Graph.load(question.model)
        model, half = gc.InferenceSession().load(graph), half_of(graph) if dtype == "float32" else None
    except GraphcoreError:
        pytest.skip("the operator has no such dtype")
    for ends in RANGES:
        feeds, ranges = {}, {}
        for position, (key, (array, own)) in enumerate(question.feeds.items()):
            feeds[key] = array
            if own.is_float or (position == 0 and own.is_number):
                ranges[key] = ends
                feeds[key] = drawn(own, array.shape, ends, rng)
            elif array.dtype != object and array.size:
                ranges[key] = float(array.min()), float(array.max())
        try:
            model(feeds)
        except GraphcoreError:
            continue  # positions or sizes that are out of range
        check_within(model, graph.bounds(ranges), feeds)
        if half is not None:
            check_half(graph, half, graph.bounds(ranges, "float16"), feeds)


def half_of(graph: Graph) -> gc.runtime.Model | None:
    """Return a model of the graph in float16; None if an operator has no float16."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return gc.InferenceSession().load(graph.astype("float16", keep_io=False))
    except GraphcoreError:
        return None


def check_half(graph: Graph, half: gc.runtime.Model, bounds: Bounds, feeds: Mapping[str, Any]) -> None:
    """Check the outputs of a model that computes in float16, if it takes only float16."""
    try:
        with np.errstate(over="ignore"):
            halves = {name: a.astype(np.float16) if a.dtype == np.float32 else a for name, a in feeds.items()}
        results = half(halves)
    except GraphcoreError:
        return
    outputs = [results] if len(graph.outputs) == 1 else [*results]
    for symbol, result in zip(graph.outputs, outputs, strict=True):
        if isinstance(result, np.ndarray) and result.size and symbol in bounds:
            values, interval = result.astype(np.float64), bounds[symbol]
            assert interval.may_be_nan or not np.isnan(values).any(), (symbol, interval)
            numbers = values[~np.isnan(values)]
            assert ((interval.low <= numbers) & (numbers <= interval.high)).all(), (symbol, interval, numbers)


STEPS: dict[str, Any] = {
    "add": lambda a, b, w: a + b,
    "subtract": lambda a, b, w: a - b * 0.5,
    "multiply": lambda a, b, w: a * b,
    "divide": lambda a, b, w: a / (ops.abs(b) + 0.5),
    "power": lambda a, b, w: a**2 + ops.abs(b) ** 1.5,
    "exp": lambda a, b, w: ops.exp(ops.minimum(a, 3.0)),
    "log": lambda a, b, w: ops.log(ops.abs(a) + 1.0),
    "sqrt": lambda a, b, w: ops.sqrt(ops.relu(a)) + ops.rsqrt(ops.square(b) + 1.0),
    "sine": lambda a, b, w: ops.sin(a) + ops.cos(b),
    "gates": lambda a, b, w: ops.sigmoid(a) * ops.tanh(b),
    "activations": lambda a, b, w: ops.gelu(a) + ops.silu(b) + ops.softplus(a) + ops.elu(b),
    "more": lambda a, b, w: ops.mish(a) - ops.hardswish(b) + ops.leaky_relu(a, 0.2) + ops.erf(b),
    "clip": lambda a, b, w: ops.clip(a, -1.5, 2.5) + ops.maximum(a, b) - ops.minimum(a, b),
    "where": lambda a, b, w: ops.where(a < b, a, b * 2.0),
    "softmax": lambda a, b, w: ops.softmax(a) @ ops.permute(b, [1, 0]) @ b,
    "matmul": lambda a, b, w: a @ w,
    "outer": lambda a, b, w: (a @ ops.permute(b, [1, 0])) @ a,
    "sum": lambda a, b, w: ops.sum(a, axis=-1, keepdims=True) + b,
    "mean": lambda a, b, w: (a - ops.mean(a, axis=-1, keepdims=True)) * 0.5,
    "largest": lambda a, b, w: a - ops.max(a, axis=0, keepdims=True),
    "norms": lambda a, b, w: ops.layer_norm(a, w[0], w[1]) + ops.rms_norm(b, w[2]),
    "moves": lambda a, b, w: ops.concat([a[:, 2:], ops.flip(b, 1)[:, :2]], axis=1).reshape([4, 3]).transpose([1, 0]),
    "round": lambda a, b, w: ops.round(a) + ops.floor(b) - ops.trunc(a),
    "cast": lambda a, b, w: a.cast("float16").cast("float32") + ops.clip(b, -9, 9).cast("int8").cast("float32"),
    "body": lambda a, b, w: ops.cond(ops.sum(a) > ops.sum(b), lambda: a * 2.0, lambda: b - 1.0),
    "loop": lambda a, b, w: ops.for_loop(3, lambda i, h: h * 0.5 + ops.tanh(b), a),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_stay_within(seed: int) -> None:
    rng, draws = random.Random(seed), np.random.default_rng(seed)
    graph = Graph("g", {"x": f32(3, 4), "y": f32(3, 4)})
    w = graph.weight("w", draws.normal(size=(4, 4)).astype(np.float32))
    values = [graph["x"], graph["y"]]
    for _ in range(7):
        values.append(STEPS[rng.choice(sorted(STEPS))](rng.choice(values[-3:]), rng.choice(values), w))
    graph.output(*values[2:])
    ranges = {name: rng.choice((*RANGES, (-3e38, 3e38))) for name in ("x", "y")}
    model, half = gc.InferenceSession().load(graph), half_of(graph)
    for _ in range(3):
        feeds = {name: drawn(F32, (3, 4), ends, draws) for name, ends in ranges.items()}
        check_within(model, graph.bounds(ranges), feeds)
        if half is not None:
            check_half(graph, half, graph.bounds(ranges, "float16"), feeds)


# Values that are known


def of_op(
    op: str, types: list[TensorType], ranges: list[tuple[float, float]], attributes: Any = None, dtype: Any = None
) -> Any:
    """Return the interval of one node, with its bounds rounded to 5 digits."""
    graph = Graph("g", types)
    (y, *_) = graph.op(op, list(graph.inputs), attributes or {})
    graph.output(y=y)
    named = {symbol.name: ends for symbol, ends in zip(graph.inputs, ranges, strict=False)}
    low, high = (interval := graph.bounds(named, dtype)["y"])
    return float(f"{low:.5g}"), float(f"{high:.5g}"), interval.may_be_nan


INF = float("inf")


@pytest.mark.parametrize(
    ("op", "types", "ranges", "attributes", "expected"),
    [
        ("Add", [f32(2), f32(2)], [(0, 1), (-1, 2)], {}, (-1, 3, False)),
        ("Sub", [f32(2), f32(2)], [(0, 1), (-1, 2)], {}, (-2, 2, False)),
        ("Mul", [f32(2), f32(2)], [(-3, 2), (-1, 4)], {}, (-12, 8, False)),
        ("Div", [f32(2), f32(2)], [(-3, 2), (2, 4)], {}, (-1.5, 1, False)),
        ("Div", [f32(2), f32(2)], [(1, 2), (-1, 4)], {}, (-INF, INF, False)),
        ("Div", [f32(2), f32(2)], [(-1, 2), (0, 4)], {}, (-INF, INF, True)),
        ("Add", [f32(2), f32(2)], [(-3e38, 3e38), (0, 3e38)], {}, (-3e38, INF, False)),
        ("Abs", [f32(2)], [(-3, 2)], {}, (0, 3, False)),
        ("Sqrt", [f32(2)], [(-3, 4)], {}, (0, 2, True)),
        ("Log", [f32(2)], [(0, 1)], {}, (-INF, 1e-06, False)),
        ("Exp", [f32(2)], [(0, 1000)], {}, (1, INF, False)),
        ("Sigmoid", [f32(2)], [(0, 100)], {}, (0.5, 1, False)),
        ("Sin", [f32(2)], [(0, INF)], {}, (-1, 1, True)),
        ("Gelu", [f32(2)], [(-5, 0)], {}, (-0.16997, 1e-06, False)),
        ("Relu", [f32(2)], [], {}, (0, INF, True)),
        ("Softmax", [f32("n", 4)], [(-9, 9)], {}, (0, 1, False)),
        ("Softmax", [f32("n", 4)], [(-INF, 9)], {}, (0, 1, True)),
        ("ReduceSum", [f32(4)], [(1, 2)], {}, (4, 8, False)),
        ("ReduceSum", [f32("n")], [(1, 2)], {}, (0, INF, True)),
        ("ReduceSum", [f32("n")], [(-1, 2)], {}, (-INF, INF, True)),
        ("ReduceMean", [f32(4)], [(1, 2)], {}, (1, 2, False)),
        ("ReduceMax", [f32("n")], [(1, 2)], {}, (1, 2, False)),
        ("MatMul", [f32(2, 4), f32(4, 3)], [(-1, 2), (0, 3)], {}, (-12, 24, False)),
        ("MaxPool", [f32(1, 1, 4, 4)], [(-1, 2)], {"kernel_shape": [2, 2]}, (-1, 2, False)),
        ("LayerNormalization", [f32("n", 4), f32(4), f32(4)], [(-9, 9), (1, 2), (-3, 5)], {}, (-7, 9, False)),
        ("RMSNormalization", [f32("n", 4), f32(4)], [(-9, 9), (1, 2)], {}, (-4, 4, False)),
        ("Cast", [f32(2)], [(-1.5, 2.5)], {"to": DType.int8.onnx}, (-1, 2, False)),
        ("Cast", [f32(2)], [(-1.5, 200)], {"to": DType.int8.onnx}, (-128, 127, False)),
        ("Cast", [f32(2)], [(-1, 1e5)], {"to": DType.float16.onnx}, (-1, INF, False)),
        ("Cast", [f32(2)], [(0.25, 0.75)], {"to": DType.bool.onnx}, (0, 1, False)),
        ("ConstantOfShape", [TensorType(DType.int64, [1])], [], {"value": np.full(1, np.nan)}, (0, 0, True)),
        ("Det", [f32(2, 2)], [(0, 1)], {}, (-INF, INF, True)),
    ],
)
def test_interval_is_tight(
    op: str, types: list[TensorType], ranges: list[tuple[float, float]], attributes: Any, expected: Any
) -> None:
    assert of_op(op, types, ranges, attributes) == expected


def test_products_with_constant_weights_are_exact_for_each_column() -> None:
    weights = np.array([[1.0, -2.0], [0.5, 3.0], [-4.0, 0.0]], np.float32)
    graph = Graph("g", {"x": f32("n", 3), "image": f32("n", 1, 8, 8)})
    w, filters = graph.weight("w", weights), graph.weight("f", np.array([[[[1, -1]]], [[[2, 3]]]], np.float32))
    whole, padded = (graph.op("Conv", [graph["image"], filters], {"pads": p})[0] for p in ([0] * 4, [0, 1, 0, 1]))
    turned = graph["x"] @ graph.weight("v", weights.T.copy()).transpose()
    graph.output(y=graph["x"] @ w, turned=turned, whole=whole, padded=padded)
    bounds = graph.bounds({"x": (-1, 2), "image": (1, 2)})
    for name in ("y", "turned"):  # columns: -9.5 to 7 and -7 to 8
        assert [*bounds[name]] == pytest.approx([-9.5, 8], rel=1e-5)
    assert [*bounds["whole"]] == pytest.approx([-1, 10], rel=1e-5)
    assert [*bounds["padded"]] == pytest.approx([-2, 10], rel=1e-5)


def test_sums_of_the_largest_size_of_a_named_dim_are_bounded() -> None:
    graph = Graph("g", {"x": f32("n")})
    graph.output(y=ops.sum(graph["x"]))
    assert [*graph.bounds({"x": (1, 2)}, dims={"n": 8})["y"]] == pytest.approx([1, 16], rel=1e-5)


def test_dtype_rounds_every_value_and_overflows() -> None:
    graph = Graph("g", {"x": f32(2)})
    graph.output(y=graph["x"] * 0.1, z=graph["x"] * 100.0)
    bounds = graph.bounds({"x": (1, 1000)}, "float16")
    tenth = float(np.float16(0.1))
    assert bounds["y"].low <= tenth < np.nextafter(np.float16(tenth), np.float16(1))
    assert bounds["z"].high == INF
    assert graph.bounds({"x": (1, 1000)})["z"].high == 1e5
    partial = Graph("g", {"x": f32(4)})
    partial.output(y=ops.sum(partial["x"]))  # 60000 + 60000 - 60000 - 60000 overflows on the way
    assert partial.bounds({"x": (-60000, 60000)}, "float16")["y"].may_be_nan


def test_proofs_say_which_faults_are_absent() -> None:
    graph = Graph("g", {"x": f32(2)})
    big = graph["x"] * graph.weight("w", np.array([1e5, 1], np.float32))
    graph.output(y=graph["x"], big=big, small=graph["x"] * 1e-6, never=ops.log(graph["x"] - 2.0))
    bounds = graph.bounds({"x": (1, 2)})
    assert bounds.proves("y", "float16") == (True, True)
    assert bounds.proves("big", "float16") == (False, True)
    assert bounds.proves("small", "float16") == (True, False)
    assert bounds.proves("small", "bfloat16").no_underflow
    assert not bounds.proves("never", "float16").no_overflow
    assert bounds.proves("w", "float16") == (False, True)
    assert bounds.proves("w", "float32") == (True, True)
    zeros = Graph("g", {"x": f32(2)})
    zeros.output(y=zeros["x"] * zeros.weight("w", np.array([0, 1], np.float32)))
    assert zeros.bounds({"x": (1, 2)}).proves("w", "float16").no_underflow


# Bodies, functions, errors


def test_branches_are_joined_and_states_widened() -> None:
    graph = Graph("g", {"x": f32(4), "p": TensorType(DType.bool, []), "n": TensorType(DType.int64, [])})
    x = graph["x"]
    branch = ops.cond(graph["p"], lambda: x + 1.0, lambda: x * -2.0)
    bounded = ops.for_loop(graph["n"], lambda i, h: ops.tanh(h + x), x)
    growing, halved = ops.for_loop(graph["n"], lambda i, a, b: (a + x, b * 0.5), (x, x))
    largest, steps = ops.scan(lambda h, row: (ops.maximum(h, row), row + h), x[0], x)
    graph.output(branch=branch, bounded=bounded, growing=growing, halved=halved, largest=largest, steps=steps)
    bounds = graph.bounds({"x": (0, 1)})
    assert [*bounds["branch"]] == [-2, 2]
    assert [*bounds["bounded"]] == pytest.approx([-2, 2], abs=1e-4)  # it grows by the error of tanh(0)
    assert bounds["growing"].high == INF
    assert [*bounds["halved"]] == [0, 1]
    assert [*bounds["largest"]] == [0, 1]
    assert [*bounds["steps"]] == [0, 2]
    body = next(node.attributes["body"] for node in graph.nodes if node.op_type == "Loop")
    assert [*bounds[body.outputs[1]]] == pytest.approx([np.tanh(-2), np.tanh(3)], abs=1e-4)


def test_functions_are_bounded_for_each_call_and_joined_inside() -> None:
    @gc.function
    def doubled(x: Symbol, w: Symbol) -> Symbol:
        return ops.relu(x @ w)

    graph = Graph("g", {"x": f32("n", 2)})
    w = graph.weight("w", np.array([[1, 0], [-1, 2]], np.float32))
    first = doubled(graph["x"], w)
    graph.output(first=first, second=doubled(first, w))
    bounds = graph.bounds({"x": (-1, 1)})
    assert [*bounds["first"]] == pytest.approx([0, 2], rel=1e-5)
    assert [*bounds["second"]] == pytest.approx([0, 4], rel=1e-5)
    inner = [symbol for symbol in bounds if symbol.graph is not graph and "relu" in symbol.name]
    assert [bounds[symbol].high for symbol in inner] == pytest.approx([4], rel=1e-5)


def test_names_and_errors() -> None:
    graph = Graph("g", {"x": f32(2), "s": TensorType(DType.string, [2])})
    graph.output(y=graph["x"] + 1.0)
    bounds = graph.bounds({"x": (0, 1)})
    assert [*bounds[graph["y"]]] == [*bounds["y"]] == [1, 2]
    assert len(bounds) == len([*bounds]) == len(dict(bounds))
    assert "y" in bounds
    assert graph["x"] in bounds
    assert "nothing" not in bounds
    with pytest.raises(GraphError, match="has no bounds"):
        bounds["s"]
    with pytest.raises(GraphError, match="nothing"):
        bounds["nothing"]
    for inputs in ({"y": (0, 1)}, {"x": (1, 0)}, {"x": 3}, {"x": (0, float("nan"))}):
        with pytest.raises(GraphError, match="bounds: inputs"):
            graph.bounds(inputs)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="int8 is not a float dtype"):
        graph.bounds({}, "int8")
    with pytest.raises(DTypeError, match="int8 is not a float dtype"):
        bounds.proves("y", "int8")
