"""Dims of models that compute their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import TensorType
from tests.sampling import drawn


def read(nodes: str, inputs: str = "float[batch, seq, 12] x", constants: str = "") -> gc.Graph:
    """A graph of ONNX's text whose outputs, y, have no declared shape."""
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float y) {constants} {{ {nodes} }}'
    return gc.Graph.load(onnx.parser.parse_model(text))


def check(graph: gc.Graph, *sizes: dict[str, int]) -> None:
    """Every value of the graph has the shape that its type says, for each of the sizes of names."""
    model = gc.InferenceSession().load(graph)
    for size in sizes:
        feeds = []
        for symbol in graph.inputs:
            assert isinstance(symbol.type, TensorType)
            shape = [d.evaluate(size) for d in symbol.shape]
            feeds.append(np.arange(int(np.prod(shape))).reshape(shape).astype(symbol.dtype.numpy))
        for name, array in model.debug(*feeds, watch="*").items():
            type_ = graph[name].type
            assert isinstance(type_, TensorType)
            results = [d.is_dynamic or d.evaluate(size) for d in type_.shape]
            assert [n is True or n == m for n, m in zip(results, array.shape, strict=True)] == [True] * array.ndim, name


SIZES = ({"batch": 2, "seq": 3}, {"batch": 1, "seq": 1}, {"batch": 5, "seq": 4})

SHAPED = {
    "heads": (
        """ s = Shape(x) zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>()
            ax = Constant<value = int64[1] {0}>() rest = Constant<value = int64[2] {-1, 4}>()
            b0 = Gather<axis = 0>(s, zero) s0 = Gather<axis = 0>(s, one) b = Unsqueeze(b0, ax) n = Unsqueeze(s0, ax)
            to = Concat<axis = 0>(b, n, rest) y = Reshape(x, to) """,
        "batch, seq, 3, 4",
    ),
    "copied axes": ("""to = Constant<value = int64[4] {0, 0, 3, -1}>() y = Reshape(x, to)""", "batch, seq, 3, 4"),
    "rows": ("""to = Constant<value = int64[2] {-1, 6}>() y = Reshape(x, to)""", "2 * batch * seq, 6"),
    "sliced shape": (
        """ s = Shape(x) a = Constant<value = int64[1] {0}>() e = Constant<value = int64[1] {2}>()
            t = Slice(s, a, e, a) m = Constant<value = int64[1] {-1}>() to = Concat<axis = 0>(t, m)
            y = Reshape(x, to) """,
        "batch, seq, 12",
    ),
    "part of a shape": ("s = Shape<start = 1>(x) m = Constant<value = int64[1] {-1}>()"
                        "to = Concat<axis = 0>(m, s) y = Reshape(x, to)", "batch, seq, 12"),
    "expand by Where": (
        """ s = Shape(x) m = Constant<value = int64[3] {-1, -1, -1}>() is = Equal(s, m)
            ones = Constant<value = int64[3] {1, 1, 1}>() to = Where(is, ones, s)
            c = Constant<value = float[1] {1.5}>() y = Expand(c, to) """,
        "batch, seq, 12",
    ),
    "ConstantOfShape": ("s = Shape(x) y = ConstantOfShape<value = float[1] {1.0}>(s)", "batch, seq, 12"),
    "range": (
        """ s = Shape<start = 1, end = 2>(x) n = Squeeze(s) z = Constant<value = int64 {0}>()
            o = Constant<value = int64 {1}>() r = Range(z, n, o) y = Cast<to = 1>(r) """,
        "seq",
    ),
    "arithmetic": (
        """ s = Shape<start = 1, end = 2>(x) two = Constant<value = int64[1] {2}>() t = Mul(s, two) u = Add(t, two)
            v = Sub(u, two) b = Shape<start = 0, end = 1>(x) six = Constant<value = int64[1] {6}>()
            to = Concat<axis = 0>(b, v, six) y = Reshape(x, to) """,
        "batch, 2 * seq, 6",
    ),
    "flattened": ("y = Flatten<axis = 2>(x)", "batch * seq, 12"),
    "cut to the length": (
        """ s = Shape<start = 1, end = 2>(x) a = Constant<value = int64[1] {0}>() p = Slice(table, a, s, a)
            ax = Constant<value = int64[1] {0}>() q = Unsqueeze(p, ax) y = Add(x, q) """,
        "batch, seq, 12",
    ),
    "through a cast": (
        """ s = Shape(x) h = Cast<to = 6>(s) l = Cast<to = 7>(h) y = Reshape(x, l) """, "batch, seq, 12"
    ),
    "a quotient": (
        """ s = Shape<start = 2>(x) k = Constant<value = int64[1] {3}>() q = Div(s, k) h = Shape<end = 2>(x)
            to = Concat<axis = 0>(h, k, q) y = Reshape(x, to) """,
        "batch, seq, 3, 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPED)
def test_dims_are_known_when_a_model_computes_the_shape(name: str) -> None:
    nodes, wanted = SHAPED[name]
    table = ", ".join(["0.5"] * 6144)
    graph = read(nodes, constants=f"<float[512, 12] table = {{{table}}}>" if "table" in nodes else "")
    assert str(graph.outputs[0].type) == f"float32[{wanted}]"
    check(graph, *SIZES)


@pytest.mark.parametrize(("divisor", "length"), [(4, "3"), (-4, "?"), (5, "2"), (12, "1"), (0, "0"), (-12, "?")])
def test_dims_are_those_of_floor_division(divisor: Any, length: str) -> None:
    graph = gc.Graph("g", {"x": TensorType("float32", ["n", 12])})
    result = gc.ops.onnx.ConstantOfShape(gc.ops.onnx.Shape(graph["x"])[1:] // divisor)
    assert str(result.shape) == f"[{length}]"
    halves = gc.ops.onnx.ConstantOfShape(gc.ops.onnx.Shape(graph["x"]) // 2)
    assert str(halves.shape) == "[n // 2, 6]"


def test_dims_stay_unknown_when_nothing_tells_them() -> None:
    graph = read("y = Reshape(x, to)", "float[batch, seq, 12] x, int64[2] to")
    assert str(graph.outputs[0].type) == "float32[?, ?]"
    graph = read("s = Shape(x) a = Add(s, s) y = Reshape(x, a)", "float[n] x")
    assert str(graph.outputs[0].type) == "float32[2 * n]"  # which no run can have, but for an empty x
    quotient = "s = Shape(x) k = Constant<value = int64[1] {-2}>() q = Div(s, k) p = Mul(q, k) y = Reshape(x, p)"
    graph = read(quotient.replace("y = Reshape(x, p)", "r = Concat<axis = 0>(p, q) y = Reshape(x, r)"), "float[n] x")
    assert str(graph.outputs[0].type) == "float32[?, ?]"  # ONNX truncates, dims floor
    assert str(read(quotient, "float[n] x").outputs[0].type) == "float32[n]"  # all elements are in the only axis


def test_rules_read_the_attributes_of_older_opsets() -> None:
    text = (
        '<ir_version: 7, opset_import: ["" : 9]> g (float[batch, 12] x) => (float y) '
        "{ a = Slice<axes = [1], starts = [0], ends = [4]>(x) y = Slice<axes = [0], starts = [0], ends = [2]>(a) }"
    )
    assert str(gc.Graph.load(onnx.parser.parse_model(text)).outputs[0].type) == "float32[min(batch, 2), 4]"


def test_lengths_that_are_cut_by_others_stay_unknown() -> None:
    """min(batch, seq) is not seq, and neither is known to be above 0."""
    nodes = """ b = Shape<start = 0, end = 1>(x) a = Constant<value = int64[1] {0}>()
        ax = Constant<value = int64[1] {1}>() p = Slice(x, a, b, ax) y = Add(x, p) """
    assert str(read(nodes).outputs[0].type) == "float32[batch, ?, 12]"


_Step = tuple[str, tuple[int, ...]]

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("split"), st.tuples(st.sampled_from([1, 2, 3, 4, 6]))),
        st.tuples(st.just("rows"), st.tuples(st.integers(0, 3))),
        st.tuples(st.just("turn"), st.permutations(range(3)).map(tuple)),
        st.tuples(st.just("cut"), st.tuples(st.integers(0, 2), st.integers(0, 5))),
        st.tuples(st.just("spread"), st.tuples(st.integers(0, 2))),
    ),
    max_size=5,
)


def _program(steps: Sequence[_Step]) -> onnx.ModelProto:
    """Reshapes, as exporters write them, of a tensor that has three axes between any two steps."""
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(values: Any) -> str:
        name = f"c{len(constants)}"
        constants.append(onnx.numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name

    def emit(op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}{len(nodes)}"
        nodes.append(onnx.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def size(x: str, axis: int) -> str:
        picked = emit("Gather", emit("Shape", x), constant(axis), axis=0)
        return emit("Unsqueeze", picked, constant([0]))

    x = "x"
    for kind, arguments in steps:
        if kind == "split":
            whole = emit("Mul", size(x, 1), size(x, 2))
            to = emit("Concat", size(x, 0), constant([-1]), size(x, 2), axis=0)
            x = emit("Reshape", emit("Reshape", x, emit("Concat", constant([-1]), whole, axis=0)), to)
        elif kind == "rows":
            flat = emit("Reshape", x, constant([-1]))
            x = emit("Reshape", flat, emit("Concat", size(x, 0), size(x, 1), constant([-1]), axis=0))
            x = emit("Add", x, emit("Expand", constant_float(constants), emit("Shape", x)))
        elif kind == "turn":
            x = emit("Transpose", x, perm=list(arguments))
        elif kind == "cut":
            axis, start = arguments
            x = emit("Slice", x, constant([0]), emit("Max", size(x, axis), constant([start])), constant([axis]))
        else:
            (axis,) = arguments
            ones = [constant([1]), constant([1]), constant([1])]
            ones[axis] = size(x, axis)
            part = emit("ConstantOfShape", emit("Concat", *ones, axis=0))
            x = emit("Add", x, part)
    nodes.append(onnx.helper.make_node("Identity", [x], ["y"]))
    inputs = [onnx.helper.make_tensor_value_info("x", 1, ["a", "b", 6])]
    outputs = [onnx.helper.make_tensor_value_info("y", 1, None)]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def constant_float(constants: list[Any]) -> str:
    name = f"f{len(constants)}"
    constants.append(onnx.numpy_helper.from_array(np.ones(1, np.float32), name))
    return name


@settings(max_examples=drawn(40), deadline=None)
@given(_STEPS, st.integers(1, 3), st.integers(1, 4))
def test_dims_are_those_of_the_run_when_reshapes_follow_each_other(steps: Any, a: int, b: int) -> None:
    graph = gc.Graph.load(_program(steps))
    type_ = graph.outputs[0].type
    assert isinstance(type_, TensorType)
    assert type_.shape.is_ranked
    check(graph, {"a": a, "b": b})
