"""Patterns, matched in graphs that were built with ops."""

from __future__ import annotations

import numpy as np
import pytest

from graphcore import Graph, Symbol, TensorType, ops
from graphcore.ir.symbol import Node
from graphcore.ir.transform.match import Pattern, either, op
from graphcore.ir.transform.walk import constant_array

ROWS = TensorType("float32", ["n", 4])


def graph() -> Graph:
    return Graph("g", dict.fromkeys("xyz", ROWS))


def node(symbol: Symbol) -> Node:
    assert isinstance(symbol.producer, Node)
    return symbol.producer


def is_constant(symbol: Symbol) -> bool:
    return constant_array(symbol, weights=True, outer=True) is not None


def test_parameters_stand_for_the_operands() -> None:
    g = graph()
    pattern = Pattern(lambda a, b: op("Sqrt", a - b))
    assert pattern.match(ops.sqrt(g["x"] - g["y"])) == (g["x"], g["y"])
    assert pattern.match(ops.sqrt(g["y"] - g["x"])) == (g["y"], g["x"])


def test_symbols_that_are_not_such_node_do_not_match() -> None:
    g = graph()
    pattern = Pattern(lambda a, b: op("Sqrt", a - b))
    for symbol in (None, g["x"], g["x"] - g["y"], ops.sqrt(g["x"]), ops.exp(g["x"] - g["y"]), ops.sqrt(-g["x"])):
        assert pattern.match(symbol) is None


def test_operators_of_other_domains_do_not_match() -> None:
    g = graph()
    y = ops.rsqrt(g["x"])
    assert node(y).domain
    assert Pattern(lambda a: op("Rsqrt", a)).match(y) is None


def test_parameter_that_is_used_twice_stands_for_one_symbol() -> None:
    g = graph()
    square = Pattern(lambda a: a * a)
    assert square.match(g["x"] * g["x"]) == (g["x"],)
    assert square.match(g["x"] * g["y"]) is None


def test_part_that_is_used_twice_is_one_symbol() -> None:
    g = graph()

    def squared(a: Symbol, b: Symbol) -> Symbol:
        difference = a - b
        return difference * difference

    difference = g["x"] - g["y"]
    assert Pattern(squared).match(difference * difference) == (g["x"], g["y"])
    assert Pattern(squared).match(difference * (g["x"] - g["y"])) is None


def test_commutative_operands_match_in_either_order() -> None:
    g = graph()
    x, y, z = g["x"], g["y"], g["z"]
    pattern = Pattern(lambda a, b: a + op("Exp", b))
    assert pattern.match(x + ops.exp(y)) == pattern.match(ops.exp(y) + x) == (x, y)
    assert Pattern(lambda a, b: a - op("Exp", b)).match(ops.exp(y) - x) is None
    turned = Pattern(lambda a, b, c: a * b + op("Neg", a) * c)
    for first, second in ((x * y, -x * z), (y * x, z * -x)):
        for total in (first + second, second + first):
            assert turned.match(total) == (x, y, z)


def test_numbers_match_constants_of_that_value_and_kind() -> None:
    g = graph()
    half = Pattern(lambda a: a * 0.5)
    for number in (np.float32(0.5), np.array([0.5], np.float32)):
        assert half.match(g["x"] * g.constant(number)) == (g["x"],)
        assert half.match(g.constant(number) * g["x"]) == (g["x"],)
    for other in (np.float32(0.25), np.full(4, 0.5, np.float32), np.full((1, 1), 0.5, np.float32)):
        assert half.match(g["x"] * g.constant(other)) is None
    assert half.match(g["x"] * g["y"]) is None
    whole = Pattern(lambda a: op("Pow", a, 2))
    assert whole.match(ops.onnx.Pow(g["x"], np.int64(2))) == (g["x"],)
    assert whole.match(ops.onnx.Pow(g["x"], np.float32(2))) is None


def test_conditions_choose_what_a_parameter_stands_for() -> None:
    g = graph()
    number = g.constant(np.float32(3))
    pattern = Pattern(lambda a, b: a + b, b=is_constant)
    assert pattern.match(g["x"] + number) == pattern.match(number + g["x"]) == (g["x"], number)
    assert pattern.match(g["x"] + g["y"]) is None
    with pytest.raises(TypeError, match="'c'"):
        Pattern(lambda a, b: a + b, c=is_constant)


def test_alternatives_leave_parameters_of_the_others_empty() -> None:
    g = graph()
    pattern = Pattern(lambda a, axes: either(op("Sqrt", op("Unsqueeze", a, axes)), op("Exp", a)), axes=is_constant)
    unsqueezed = g["x"].unsqueeze(0)
    assert pattern.match(ops.sqrt(unsqueezed)) == (g["x"], node(unsqueezed).inputs[1])
    assert pattern.match(ops.exp(g["x"])) == (g["x"], None)
    assert pattern.match(ops.log(g["x"])) is None


def test_optional_nodes_are_an_alternative_to_their_operand() -> None:
    g = graph()
    pattern = Pattern(lambda a, b: either(op("Cast", a), a) * b, b=lambda s: s is not g["x"])
    wide = g["x"].cast("float64").cast("float32")
    assert pattern.match(wide * g["y"]) == (node(wide).inputs[0], g["y"])
    assert pattern.match(g["x"] * g["y"]) == (g["x"], g["y"])


def test_alternative_is_left_when_what_follows_does_not_fit() -> None:
    """The first alternative of `part` fits, and the sum only with the second."""
    g = graph()
    pattern = Pattern(lambda a, b: op("Sub", either(op("Neg", a), a), op("Exp", b)) + a)
    minus = -g["x"]
    assert pattern.match((minus - ops.exp(g["y"])) + minus) == (minus, g["y"])
    assert pattern.match((minus - ops.exp(g["y"])) + g["x"]) == (g["x"], g["y"])


def test_attributes_that_a_pattern_states_must_be_there() -> None:
    g = graph()
    x, axes = g["x"], np.array([1])
    pattern = Pattern(lambda a, axes: op("ReduceMean", a, axes, keepdims=1))
    for mean in (ops.onnx.ReduceMean(x, axes), ops.onnx.ReduceMean(x, axes, keepdims=1)):
        assert pattern.match(mean) is not None
    assert pattern.match(ops.onnx.ReduceMean(x, axes, keepdims=0)) is None
    assert Pattern(lambda a, axes: op("ReduceMean", a, axes)).match(ops.onnx.ReduceMean(x, axes, keepdims=0))
    joined = Pattern(lambda a, b: op("Concat", a, b, axis=-1))
    assert [joined.match(ops.onnx.Concat(x, x, axis=i)) is not None for i in (-2, -1, 0, 1)] == [False, True] * 2
    assert Pattern(lambda a: op("Transpose", a, perm=[1, 0])).match(x.permute(1, 0)) == (x,)


def test_dots_stand_for_any_further_operands() -> None:
    g = graph()
    pattern = Pattern(lambda a: op("Slice", a, ...))
    start, end, axis, step = (np.array([value]) for value in (0, 3, 1, 2))
    for cut in (ops.onnx.Slice(g["x"], start, end, axis), ops.onnx.Slice(g["x"], start, end, axis, step)):
        assert pattern.match(cut) == (g["x"],)
        assert Pattern(lambda a: op("Slice", a)).match(cut) is None


def test_function_returns_what_a_match_is_to_tell() -> None:
    g = graph()

    def scaled(a: Symbol, b: Symbol) -> tuple[Symbol, ...]:
        root = either(op("Sqrt", a), op("Exp", a))
        return root * b, root

    root = ops.exp(g["x"])
    assert Pattern(scaled).match(g["y"] * root) == (g["x"], g["y"], root)


def test_nodes_match_on_operands_that_are_to_come() -> None:
    g, other = graph(), graph()
    pattern = Pattern(lambda a, b: a + op("Exp", b))
    total = g["x"] + g["y"]
    grown = ops.exp(other["y"])
    assert pattern.match_node(node(total), (grown, other["x"])) == (other["x"], other["y"])
    assert pattern.match_node(node(total), total.producer.inputs) is None  # type: ignore[union-attr]


def test_alternatives_of_the_last_node_match_on_operands_that_are_to_come() -> None:
    g = graph()
    pattern = Pattern(lambda a, b: either(a - b, either(a, a * op("Exp", b))))
    product = g["y"] * g["x"]
    assert pattern.match_node(node(product), (ops.exp(g["y"]), g["x"])) == (g["x"], g["y"])
    assert pattern.match_node(node(g["x"] - g["y"]), (g["x"], g["y"])) == (g["x"], g["y"])
    assert pattern.match_node(node(product), (g["y"], g["x"])) is None
    assert pattern.match(product) == (product, None)


def test_values_that_are_used_elsewhere_match() -> None:
    g = graph()
    root = ops.sqrt(g["x"])
    total = root + g["y"]
    g.output(total, root, root * 2.0)
    assert Pattern(lambda a, b: op("Sqrt", a) + b).match(total) == (g["x"], g["y"])


def test_results_beyond_the_first_do_not_match() -> None:
    g = graph()
    first, second = ops.onnx.TopK(g["x"], np.array([2]))
    pattern = Pattern(lambda a: op("TopK", a, ...))
    assert pattern.match(first) == (g["x"],)
    assert pattern.match(second) is None


def test_constants_of_outer_graphs_match_in_bodies_and_nodes_do_not() -> None:
    g = Graph("g", {"x": ROWS, "n": TensorType("int64", [])})
    two, outside = g.constant(np.float32(2)), ops.exp(g["x"])
    seen = []

    def step(i: Symbol, x: Symbol) -> Symbol:
        seen.extend([x * two, x * outside])
        return seen[0] + seen[1]

    g.output(ops.for_loop(g["n"], step, g["x"]))
    double, product = seen
    assert double.graph is not g
    assert Pattern(lambda a: a * 2.0).match(double) == (node(double).inputs[0],)
    assert Pattern(lambda a, b: a * b).match(product) is not None
    assert Pattern(lambda a, b: a * op("Exp", b)).match(product) is None


def test_pattern_is_traced_once() -> None:
    g, calls = graph(), []

    def negated(a: Symbol) -> Symbol:
        calls.append(a)
        return -a

    pattern = Pattern(negated)
    assert not calls
    assert pattern.match(-g["x"]) == pattern.match(-g["x"]) == (g["x"],)
    assert len(calls) == 1
