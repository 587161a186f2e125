"""Bodies of `ops.onnx`'s control flow, and calls of its operators that are refused."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphcoreError, GraphError, PromotionError, ResourceLimitError, ShapeError
from graphcore.ops import onnx as onnx_ops
from graphcore.types.tensor_types import SequenceType, Type
from tests.support.graphs import run

ROOT = Path(__file__).parents[2]

x2 = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -4.0]], np.float32)
on: Any = onnx_ops  # for calls that type checkers refuse


def operands(*types: Type) -> tuple[Symbol, ...]:
    return Graph("test", types).inputs


def floats(*dims: int | str) -> TensorType:
    return TensorType(DType.float32, dims)


# Bodies


def test_if_captures_and_joins_what_its_branches_give() -> None:
    def function(x: Symbol) -> Symbol:
        is_large = ops.onnx.Greater(ops.onnx.ReduceSum(x, keepdims=0), 0)
        (result,) = ops.onnx.If(is_large, then_branch=lambda: x, else_branch=lambda: ops.onnx.Mul(x, -2.0) + x)
        return result

    for array in (x2, -x2):
        np.testing.assert_array_equal(run(function, array)[0], array if array.sum() > 0 else -array)


def test_loop_carries_stacks_and_nests() -> None:
    def function(x: Symbol) -> list[Symbol]:
        def inner(i: Symbol, goes_on: Symbol, value: Symbol) -> list[Symbol]:
            return [goes_on, ops.onnx.Add(value, x)]

        def body(i: Symbol, goes_on: Symbol, value: Symbol) -> list[Symbol]:
            (result,) = ops.onnx.Loop(2, None, value, body=inner)
            return [ops.onnx.Less(i, 2), result, i]

        return ops.onnx.Loop(10, True, x, body=body)

    result = run(function, x2)
    np.testing.assert_allclose(result[0], 7 * x2)
    np.testing.assert_array_equal(result[1], [0, 1, 2])


def test_loop_generalises_the_shape_that_it_carries() -> None:
    (x,) = operands(floats("n", 3))
    (result,) = ops.onnx.Loop(3, True, x, body=lambda i, c, v: [c, ops.onnx.Concat(v, x, axis=0)])
    assert result.type == floats("?", 3)


def test_scan_and_sequence_map_run() -> None:
    outputs = run(
        lambda x: ops.onnx.Scan(np.zeros(3, np.float32), x, body=lambda s, e: [s + e, s * e], num_scan_inputs=1),
        x2,
        dims=[["n", 3]],
    )
    np.testing.assert_array_equal(outputs[0], x2.sum(0))
    np.testing.assert_array_equal(outputs[1], np.stack([0 * x2[0], x2[0] * x2[1]]))
    (x,) = operands(floats(2))
    (result,) = ops.onnx.SequenceMap(ops.onnx.SequenceConstruct(x, x), x, body=lambda e, y: e > y)
    assert result.type == SequenceType(TensorType(DType.bool, [2]))


def test_dtypes_of_bodies_are_settled_when_they_were_only_defaults() -> None:
    graph = Graph("test", {"b": BOOL, "x": TensorType(DType.int8, [2])}, promotion="anvil")
    b, x = graph.inputs
    with graph:
        (chosen,) = _if(b, lambda: 1, lambda: 2)
        (looped,) = ops.onnx.Loop(3, True, 1, body=lambda i, c, v: [c, ops.onnx.Add(v, 1)])
        assert not chosen.ambiguous
        assert not looped.ambiguous
        graph.output(chosen, looped, x + looped.cast(DType.int8))
    result = gc.InferenceSession().load(graph)(b=np.array(False), x=np.array([1, 2], np.int8))
    np.testing.assert_array_equal(result[0], 2)
    np.testing.assert_array_equal(result[1], 4)
    np.testing.assert_array_equal(result[2], [5, 6])


def test_example_of_the_docs_builds_and_runs() -> None:
    (code,) = re.findall(
        r"```python\n(from graphcore import .*?)```", (ROOT / "docs" / "onnx.md").read_text(), re.DOTALL
    )
    results: dict[str, Any] = {}
    exec(code, results)
    x = np.arange(2 * 3 * 32 * 32, dtype=np.float32).reshape(2, 3, 32, 32)
    result = gc.InferenceSession().load(results["graph"])(x=x, steps=np.array(3))
    np.testing.assert_array_equal(result[0], x[:, :, 1::2, 1::2] / 8)


def test_bodies_may_be_graphs() -> None:
    body = Graph("body", {"i": TensorType(DType.int64, []), "c": TensorType(DType.bool, []), "v": floats("n", 3)})
    body.output(ops.onnx.Identity(body["c"]), body["v"] * 2)
    result = run(lambda x: ops.onnx.Loop(3, True, x, body=body), x2, dims=[["n", 3]])
    np.testing.assert_array_equal(result[0], 8 * x2)
    assert [s.name for s in body.inputs] == ["i", "c", "v"]
    assert body.to_onnx(target="onnx").graph.node[1].op_type == "Mul"  # and it is what it was


# Bad input

N4, SQUARE, INT, BOOL = floats("n", 4), floats(3, 3), TensorType(DType.int32, [4]), TensorType(DType.bool, [])
BODY = Graph("body", [SQUARE])
WRONG: list[tuple[type[GraphcoreError], str, Callable[..., Any]]] = [
    (GraphError, r"onnx.Conv: the operand 'W' is missing", lambda x, s, i, b: on.Conv(x)),
    (GraphError, r"onnx.MatMul: at most 2 operands are accepted, got 3", lambda x, s, i, b: on.MatMul(x, x, x)),
    (
        GraphError,
        r"onnx.Relu: there is no operand or attribute 'alpha'",
        lambda x, s, i, b: on.Relu(x, alpha=1),
    ),
    (GraphError, r"help: the signature is onnx.Add\(A, B\)", lambda x, s, i, b: on.Add(x, A=x)),
    (GraphError, r"onnx.Concat: the attribute 'axis' is missing", lambda x, s, i, b: on.Concat(x)),
    (GraphError, r"onnx.Concat: the operand 'inputs' is missing", lambda x, s, i, b: on.Concat(axis=0)),
    (GraphError, r"inputs must be one list of operands", lambda x, s, i, b: on.Concat(x, inputs=[x], axis=0)),
    (GraphError, r"onnx.Sum: data_0 must not contain None", lambda x, s, i, b: on.Sum(x, None)),
    (GraphError, r"outputs=3 does not match the results.*output, mask", lambda x, s, i, b: on.Dropout(x, outputs=3)),
    (GraphError, r"outputs=True does not match the results", lambda x, s, i, b: on.Dropout(x, outputs=True)),
    (GraphError, r"onnx.Split: the number of parts is unknown", lambda x, s, i, b: on.Split(x)),
    (DTypeError, r"onnx.Sqrt: X is int32, which it does not take", lambda x, s, i, b: on.Sqrt(i)),
    (DTypeError, r"help: it takes bfloat16, float16, float32, float64", lambda x, s, i, b: on.Sqrt(i)),
    (DTypeError, r"onnx.Reshape: shape is int32", lambda x, s, i, b: on.Reshape(x, i)),
    (DTypeError, r"onnx.Reshape: shape: ", lambda x, s, i, b: on.Reshape(x, [2, 2.5])),
    (DTypeError, r"onnx.Reshape: shape: ", lambda x, s, i, b: on.Reshape(x, [2, [3]])),
    (DTypeError, r"onnx.Add: A has unsupported type dict", lambda x, s, i, b: on.Add({}, x)),
    (DTypeError, r"onnx.SequenceAt: input_sequence is float32", lambda x, s, i, b: on.SequenceAt(x, 0)),
    (DTypeError, r"onnx.Add: ONNX has no int48", lambda x, s, i, b: on.Add(x.cast(DType.int(48)), 1)),
    (DTypeError, r"cannot be held in int32", lambda x, s, i, b: on.Add(i, 1 << 40)),
    (PromotionError, r"onnx.Clip: .* string", lambda x, s, i, b: on.Clip(x, "a")),
    (ShapeError, r"onnx.MatMul: inner dimensions differ: 4 and 3", lambda x, s, i, b: on.MatMul(x, s)),
    (ShapeError, r"onnx.TopK: ", lambda x, s, i, b: on.TopK(x, 2)),
    (GraphError, r"onnx.Softmax: axis is 7", lambda x, s, i, b: on.Softmax(x, axis=7)),
    (GraphError, r"attribute 'axis' must be an int of 64 bits.*, got 'a'", lambda x, s, i, b: on.Softmax(x, axis="a")),
    (
        GraphError,
        r"attribute 'axis' must be an int of 64 bits.*, got 1.5\s+help: the signature is onnx.Softmax",
        lambda x, s, i, b: on.Softmax(x, axis=1.5),
    ),
    (GraphError, r"attribute 'axis' must be an int of 64 bits", lambda x, s, i, b: on.Softmax(x, axis=1 << 63)),
    (
        GraphError,
        r"attribute 'alpha' must be a number in the range of float32, got 'a'",
        lambda x, s, i, b: on.Elu(x, alpha="a"),
    ),
    (
        GraphError,
        r"attribute 'alpha' must be a number in the range of float32, got 1e\+300",
        lambda x, s, i, b: on.Elu(x, alpha=1e300),
    ),
    (GraphError, r"attribute 'perm' must be a list of ints, got <Symbol", lambda x, s, i, b: on.Transpose(s, perm=s)),
    (GraphError, r"attribute 'value' must be .*, got '.ud800'", lambda x, s, i, b: on.Constant(value="\ud800")),
    (
        DTypeError,
        r"onnx.StringConcat: X: '.ud800' cannot be converted to a tensor",
        lambda x, s, i, b: on.StringConcat("\ud800", "a"),
    ),
    (GraphError, r"input 1 has shape \[\], but applies to 1 axes", lambda x, s, i, b: on.Upsample(i, np.float32(2))),
    (GraphError, r"attribute 'perm' must be a list of ints, got 'ab'", lambda x, s, i, b: on.Transpose(x, perm="ab")),
    (GraphError, r"attribute 'equation' must be a str, got 3", lambda x, s, i, b: on.Einsum(x, equation=3)),
    (GraphError, r"equation b'i\*j' is not a valid Einsum equation", lambda x, s, i, b: on.Einsum(x, equation="i*j")),
    (
        GraphError,
        r"attribute 'to' must be .*a DType that ONNX has, got DType\.int\(48\)",
        lambda x, s, i, b: on.Cast(x, to=DType.int(48)),
    ),
    (GraphError, r"attribute 'type' must be a type, .*, got 3", lambda x, s, i, b: on.Optional(type=3)),
    (GraphError, r"attribute 'value' must be an array, got ", lambda x, s, i, b: on.ConstantOfShape([2], value=x)),
    (GraphError, r"give one element", lambda x, s, i, b: on.ConstantOfShape([2], value=[1, 2])),
    (GraphError, r"onnx.Constant: exactly one value is required, got 0", lambda x, s, i, b: on.Constant()),
    (GraphError, r"strides is \[0, 0\]", lambda x, s, i, b: on.LpPool(x, kernel_shape=[1, 1], strides=[0, 0])),
    (GraphError, r"belongs to graph", lambda x, s, i, b: on.Add(x, BODY.inputs[0])),
    (
        GraphError,
        r"attribute 'then_branch' must be a function of Symbols, or a Graph, got 3",
        lambda x, s, i, b: on.If(b, then_branch=3, else_branch=list),
    ),
    (GraphError, r"different numbers of results", lambda x, s, i, b: _if(b, lambda: [x, x], lambda: x)),
    (
        GraphError,
        r"its branches return different types: float32.*, int32",
        lambda x, s, i, b: _if(b, lambda: x, lambda: i),
    ),
    (GraphError, r"the function for then_branch returns nothing", lambda x, s, i, b: _if(b, lambda: None, lambda: i)),
    (GraphError, r"then_branch must take 0 Symbols", lambda x, s, i, b: _if(b, lambda y: y, lambda: i)),
    (GraphError, r"graph 'body', which cannot be a body here", lambda x, s, i, b: _if(b, BODY, lambda: i)),
    (ResourceLimitError, r"41 deep: the limit is depth=40", lambda x, s, i, b: _deep(b, x, 50)),
    (ResourceLimitError, r"more than \d+ TiB", lambda x, s, i, b: on.ConstantOfShape([1 << 40, 1 << 20])),
]


def _if(b: Symbol, then: Any, otherwise: Any) -> list[Symbol]:
    return ops.onnx.If(b, then_branch=then, else_branch=otherwise)


def _deep(b: Symbol, x: Symbol, depth: int) -> Symbol:
    return _if(b, lambda: _deep(b, x, depth - 1), lambda: x)[0] if depth else x


@pytest.mark.parametrize(("error", "message", "call"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_calls_are_errors_that_say_what_is_taken(
    error: type[GraphcoreError], message: str, call: Callable[..., Any]
) -> None:
    graph = Graph("test", [N4, SQUARE, INT, BOOL])
    with graph, pytest.raises(error, match=message) as caught:
        call(*graph.inputs)
    assert type(caught.value) is error
    assert not caught.value.summary.startswith("load")
    assert caught.value.help
    graph.output(ops.onnx.Identity(graph.inputs[0]))  # and the graph goes on
    graph.to_onnx()


def test_values_of_a_body_are_not_known_outside() -> None:
    results: list[Symbol] = []
    b, x = operands(BOOL, N4)
    _if(b, lambda: results.append(ops.onnx.Neg(x)) or x, lambda: x)  # type: ignore[func-returns-value]
    with pytest.raises(GraphError, match="body"):
        ops.onnx.Add(results[0], x)


def test_errors_of_a_body_are_the_users_own_and_leave_the_graph_whole() -> None:
    b, x = operands(BOOL, N4)
    with pytest.raises(ZeroDivisionError):
        _if(b, lambda: 1 / 0, lambda: x)
    assert ops.onnx.Neg(x).graph is x.graph


def test_graph_of_calls_survives_pickling() -> None:
    b, x = operands(BOOL, N4)
    (result,) = _if(b, lambda: ops.onnx.Neg(x), lambda: x)
    x.graph.output(result)
    again = pickle.loads(pickle.dumps(x.graph))
    values = {"input0": np.array(True), "input1": np.full((2, 4), math.pi, np.float32)}
    np.testing.assert_array_equal(gc.InferenceSession().load(again)(**values)[0], -values["input1"])
