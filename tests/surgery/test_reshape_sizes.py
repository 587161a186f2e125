"""Reshapes whose sizes are computed, after dims of the inputs became names: `Graph.with_dims`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest

import graphcore as gc
from graphcore import Graph, Symbol, TensorType, ops
from graphcore.errors import ShapeError

ONE = "int64[1] one = {1}, int64[1] first = {0}, int64[1] last = {1}"


def loaded(body: str, x: str, y: str, constants: str = ONE, rest: str = "") -> Graph:
    """Return a graph of one input and one output."""
    text = f"""
    <ir_version: 10, opset_import: ["" : 18, "local" : 1]>
    model (float[{x}] x) => (float[{y}] y) <{constants}> {{ {body} }}
    {rest}
    """
    return Graph.load(onnx.parser.parse_model(text))


def run(graph: Graph, x: Any) -> Any:
    (result,) = gc.InferenceSession().load(graph)(x)
    return result


def counted(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


LAST = "shape = Shape(x) s = Gather(shape, last)"

FREED: dict[str, tuple[str, str, str, str, str]] = {
    "size of another axis": (
        f"{LAST} to = Concat<axis=0>(one, one, one, s) y = Reshape(x, to)", "1, s", "1, 1, 1, s", ONE,
        "batch, 1, 1, s",
    ),
    "split": (
        f"{LAST} to = Concat<axis=0>(one, s, eight, eight) y = Reshape(x, to)", "1, s, 64", "1, s, 8, 8",
        ONE + ", int64[1] eight = {8}", "batch, s, 8, 8",
    ),
    "rest": (
        f"{LAST} to = Concat<axis=0>(one, s, rest) y = Reshape(x, to)", "1, s, 2, 4", "1, s, 8",
        ONE + ", int64[1] rest = {-1}", "batch, s, 8",
    ),
    "constants": (
        "to = Concat<axis=0>(two, six) y = Reshape(x, to)", "2, 3, 2", "2, 6",
        "int64[1] two = {2}, int64[1] six = {6}", "batch, 6",
    ),
    "flattened before": (
        f"{LAST} flat = Reshape(x, rows) back = Relu(flat) to = Concat<axis=0>(two, s, four) y = Reshape(back, to)",
        "2, s, 4", "2, s, 4", ONE + ", int64[2] rows = {-1, 4}, int64[1] two = {2}, int64[1] four = {4}",
        "batch, s, 4",
    ),
    "constant after a product of dims": (
        "flat = Reshape(x, rows) y = Reshape(flat, to)", "2, s, 4", "2, s, 4",
        "int64[2] rows = {-1, 4}, int64[3] to = {2, -1, 4}", "batch, s, 4",
    ),
    "last axis": (
        "y = Reshape(x, to)", "2, s, 4", "s, 2, 4", "int64[3] to = {-1, 2, 4}", "s, batch, 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FREED)
def test_sizes_follow_the_dims_of_the_operand(name: str) -> None:
    body, value, result, constants, wanted = FREED[name]
    old = loaded(body, value, result, constants)
    rows, *dims = value.split(", ")
    graph = old.with_dims({"x": ["batch", *[int(d) if d.isdecimal() else d for d in dims]]})
    assert str(graph.output_types["y"]) == f"float32[{wanted}]"
    for batch in (int(rows), 3, 5):
        x = counted(batch, *[int(d) if d.isdecimal() else 6 for d in dims])
        sizes = {"batch": batch, "s": 6}
        shape = [int(d) if d.isdecimal() else sizes[d] for d in wanted.split(", ")]
        np.testing.assert_array_equal(run(graph, x), np.maximum(x, 0).reshape(shape))


def test_a_result_that_holds_all_elements_stays() -> None:
    """One row for each row of a batch of 1 is one row for each row of all of them."""
    graph = loaded("y = Reshape(x, to)", "1, s, 4", "s, 4", "int64[2] to = {-1, 4}")
    changed = graph.with_dims({"x": ["batch", "s", 4]})
    assert [n.op_type for n in changed.nodes] == ["Reshape"]
    np.testing.assert_array_equal(run(changed, counted(3, 5, 4)), counted(15, 4))


def test_sizes_in_the_body_of_an_if_follow() -> None:
    body = """
    positive = ReduceSum <keepdims = 0> (x)
    zero = Constant <value = float {0.0}> ()
    is = Greater(positive, zero)
    y = If (is) <
        then_branch = then () => (float[1, 1, s] a) { shape = Shape(x) s = Gather(shape, last)
            to = Concat<axis=0>(one, one, s) a = Reshape(x, to) },
        else_branch = else () => (float[1, 1, s] b) { c = Reshape(x, rank) b = Neg(c) }
    >
    """
    graph = loaded(body, "1, s", "1, 1, s", ONE + ", int64[3] rank = {1, 1, -1}")
    changed = graph.with_dims({"x": ["batch", "s"]})
    assert str(changed.output_types["y"]) == "float32[batch, 1, s]"
    for x in (counted(3, 4), -counted(3, 4)):
        np.testing.assert_array_equal(run(changed, x), np.abs(x).reshape(3, 1, 4))


def test_sizes_in_the_body_of_a_loop_follow() -> None:
    body = """
    y = Loop (turns, , x) <
        body = turn (int64 i, bool going, float[1, s] v) => (bool on, float[1, s] w) {
            on = Identity(going)
            shape = Shape(v) s = Gather(shape, last)
            to = Concat<axis=0>(one, one, s) a = Reshape(v, to) b = Add(a, a) w = Squeeze(b, last) }
    >
    """
    graph = loaded(body, "1, s", "1, s", ONE + ", int64 turns = {2}")
    changed = graph.with_dims({"x": ["batch", "s"]})
    assert str(changed.output_types["y"]) == "float32[batch, s]"
    np.testing.assert_array_equal(run(changed, counted(3, 4)), 4 * counted(3, 4))


def test_sizes_in_a_function_follow() -> None:
    rest = """
    <domain: "local", opset_import: ["" : 18]>
    lifted (v) => (w) {
        one = Constant <value_ints = [1]> () last = Constant <value_ints = [1]> ()
        shape = Shape(v) s = Gather(shape, last) to = Concat<axis=0>(one, one, s) w = Reshape(v, to) }
    """
    graph = loaded("y = local.lifted(x)", "1, s", "1, 1, s", ONE, rest)
    changed = graph.with_dims({"x": ["batch", "s"]})
    assert str(changed.output_types["y"]) == "float32[batch, 1, s]"
    np.testing.assert_array_equal(run(changed, counted(3, 4)), counted(3, 1, 4))


REFUSED: dict[str, tuple[str, str, str, str]] = {
    "split in two ways": (
        "to = Concat<axis=0>(four, six) y = Reshape(x, to)", "2, 3, 4", "4, 6",
        "int64[1] four = {4}, int64[1] six = {6}",
    ),
    "dropped": (f"{LAST} y = Reshape(x, s)", "1, s", "s", ONE),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_sizes_that_cannot_be_told_are_refused(name: str) -> None:
    body, value, result, constants = REFUSED[name]
    graph = loaded(body, value, result, constants)
    dims: list[Any] = [int(d) if d.isdecimal() else d for d in value.split(", ")[1:]]
    with pytest.raises(ShapeError, match="with_dims: Reshape 'y': it") as caught:
        graph.with_dims({"x": ["batch", *dims]})
    assert caught.value.help


def test_a_reshape_that_loses_elements_already_is_refused_for_a_size() -> None:
    body = f"{LAST} to = Concat<axis=0>(one, one, s) y = Reshape(x, to)"
    graph = loaded(body, "batch, s", "1, 1, s")
    assert run(graph.with_dims(batch=1), counted(1, 4)).shape == (1, 1, 4)
    with pytest.raises(ShapeError, match=r"its operand has 3 \* s elements now, and its result s"):
        graph.with_dims(batch=3)


def test_a_weight_does_not_follow_the_size_of_an_input() -> None:
    """A weight of 2 x 4 elements under Shape(x), which was [2, 4], does not become one of a batch."""
    graph = loaded(
        "shape = Shape(x) w = Reshape(flat, shape) y = Mul(x, w)", "2, 4", "2, 4",
        "float[8] flat = {1, 2, 3, 4, 5, 6, 7, 8}",
    )  # fmt: skip
    with pytest.raises(ShapeError, match="an operand has 2 elements where another has batch now"):
        graph.with_dims({"x": ["batch", 4]})


@pytest.mark.parametrize(
    "build",
    [ops.string_of, lambda x: ops.string_of(x.cast("int5"))],
    ids=["float", "narrow"],
)
def test_casts_that_keep_values_are_typed_again_on_unknown_sizes(build: Callable[[Symbol], Symbol]) -> None:
    graph = Graph("cast", {"x": TensorType("float32", ["?", "m"])})
    graph.output(build(graph["x"]))
    sized = graph.with_dims({"x": [2, 4]})
    assert sized.inputs[0].shape == (2, 4)
    np.testing.assert_array_equal(run(sized, counted(2, 4)), run(graph, counted(2, 4)))
