"""Tests of operations: each operator by its sizes, dims that are names, bodies and functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Dim, DType, Graph, TensorType, ops
from graphcore.analysis.flops import Flops, flops
from graphcore.errors import ShapeError
from tests.support.drawn_graphs import branching, called, exported, mixed, unet

F32 = DType.float32


def of_node(
    op: str, shapes: list[list[Any] | None], result: list[Any], attributes: Any = None, domain: str = ""
) -> Any:
    results = [shape for shape in shapes if shape is not None]
    graph = Graph("g", [TensorType(F32, shape) for shape in results])
    inputs = iter(graph.inputs)
    operands = [None if shape is None else next(inputs) for shape in shapes]
    graph.op(op, operands, attributes or {}, [TensorType(F32, result)], domain=domain)
    (entry,) = flops(graph).nodes
    return entry.reason if entry.flops is None else str(entry.flops)


@pytest.mark.parametrize(
    ("op", "shapes", "result", "attributes", "expected"),
    [
        ("MatMul", [[2, 3], [3, 5]], [2, 5], {}, 2 * 2 * 3 * 5),
        ("MatMul", [[7, 2, 3], [3, 5]], [7, 2, 5], {}, 2 * 7 * 2 * 3 * 5),
        ("MatMul", [[3], [3]], [], {}, 6),
        ("Gemm", [[3, 2], [3, 5]], [2, 5], {"transA": 1}, 2 * 2 * 3 * 5),
        ("Gemm", [[2, 3], [3, 5], [5]], [2, 5], {}, 2 * 2 * 3 * 5),
        ("Conv", [[1, 4, 9, 9], [8, 4, 3, 3]], [1, 8, 7, 7], {}, 2 * 8 * 49 * 4 * 9),
        ("Conv", [[1, 4, 9, 9], [4, 1, 3, 3]], [1, 4, 7, 7], {"group": 4}, 2 * 4 * 49 * 9),
        ("ConvTranspose", [[1, 4, 5, 5], [4, 2, 3, 3]], [1, 2, 7, 7], {}, 2 * 4 * 25 * 2 * 9),
        ("Einsum", [[2, 3], [3, 5]], [2, 5], {"equation": "ij,jk->ik"}, 2 * 2 * 3 * 5),
        ("Einsum", [[7, 2, 3], [7, 3, 5]], [7, 2, 5], {"equation": "...ij,...jk->...ik"}, 2 * 7 * 2 * 3 * 5),
        ("Einsum", [[4, 5]], [4], {"equation": "ij->i"}, 20),
        ("LSTM", [[6, 2, 3], [1, 20, 3], [1, 20, 5]], [6, 1, 2, 5], {}, 6 * 2 * (8 * 5 * (3 + 5) + 24 * 5)),
        ("GRU", [[6, 2, 3], [2, 15, 3], [2, 15, 5]], [6, 2, 2, 5], {}, 12 * 2 * (6 * 5 * 8 + 18 * 5)),
        ("Attention", [[2, 4, 6, 8], [2, 4, 7, 8], [2, 4, 7, 9]], [2, 4, 6, 9], {}, 2 * 4 * 6 * 7 * (16 + 18 + 5)),
        (
            "Attention",
            [[2, 6, 32], [2, 7, 16], [2, 7, 16]],
            [2, 6, 32],
            {"q_num_heads": 4, "kv_num_heads": 2},
            2 * 4 * 6 * 7 * (16 + 16 + 5),
        ),
        ("Softmax", [[3, 4]], [3, 4], {}, 60),
        ("LayerNormalization", [[3, 4], [4]], [3, 4], {}, 96),
        ("Relu", [[3, 4]], [3, 4], {}, 12),
        ("Add", [[3, 1], [4]], [3, 4], {}, 12),
        ("ReduceSum", [[3, 4]], [3, 1], {}, 12),
        ("Sum", [[4], [4], [4]], [4], {}, 8),
        ("ScatterElements", [[9, 4], [3, 4], [3, 4]], [9, 4], {"axis": 0}, 0),
        ("ScatterElements", [[9, 4], [3, 4], [3, 4]], [9, 4], {"axis": 0, "reduction": "add"}, 12),
        ("ScatterND", [[9, 4], [5, 1], [5, 4]], [9, 4], {"reduction": "none"}, 0),
        ("ScatterND", [[9, 4], ["n", 1], ["n", 4]], [9, 4], {"reduction": "max"}, "4 * n"),
        ("MaxPool", [[1, 2, 8, 8]], [1, 2, 4, 4], {"kernel_shape": [2, 2]}, 2 * 16 * 4),
        ("Reshape", [[3, 4], [1]], [12], {}, 0),
        ("Cast", [[3, 4]], [3, 4], {"to": 1}, 0),
        ("MatMul", [["n", 3], [3, "m"]], ["n", "m"], {}, "6 * m * n"),
        ("Relu", [["n", 4]], ["n", 4], {}, "4 * n"),
        ("Add", [[Dim.dynamic()], [1]], [Dim.dynamic()], {}, "a dim is not known"),
        ("NoSuchOperator", [[1]], [1], {}, "no rule for this operator"),
    ],
)
def test_operations_are(op: str, shapes: Any, result: Any, attributes: Any, expected: Any) -> None:
    assert of_node(op, shapes, result, attributes) == str(expected)


@pytest.mark.parametrize(
    ("op", "shapes", "result", "attributes", "expected"),
    [
        ("FusedMatMul", [[3, 2], [3, 5]], [2, 5], {"transA": 1}, 60),
        ("MatMulNBits", [[2, 32], [5, 1, 16], [5]], [2, 5], {"N": 5, "K": 32}, 2 * 2 * 32 * 5),
        ("MultiHeadAttention", [[2, 6, 8], [2, 7, 8], [2, 7, 8]], [2, 6, 8], {"num_heads": 2}, 4 * 42 * (8 + 8 + 5)),
        ("Gelu", [[3, 4]], [3, 4], {}, 12),
    ],
)
def test_operations_of_com_microsoft_are(op: str, shapes: Any, result: Any, attributes: Any, expected: int) -> None:
    assert of_node(op, shapes, result, attributes, "com.microsoft") == str(expected)


def test_dims_are_given_sizes_or_stay_names() -> None:
    result = flops(mixed())
    assert str(result.total) == "4384 * batch"
    assert flops(mixed(), {"batch": 10}).total == 43840
    assert str(flops(mixed(), {"batch": "rows"}).total) == "4384 * rows"
    assert {layer: str(dim) for layer, dim in result.by_layer().items()} == {
        "scale": "192 * batch",
        "head": "4192 * batch",
    }


def test_total_is_of_what_is_known() -> None:
    result = flops(branching())
    assert [entry.operator for entry in result.unknown] == ["Loop"]
    assert result.unknown[0].reason == "its trip count is not constant"
    assert result.total == sum((e.flops for e in result.nodes if e.flops is not None), Dim(0))


def test_if_counts_as_its_costlier_branch_and_a_loop_as_its_trips() -> None:
    graph = Graph("g", {"x": TensorType(F32, [4]), "p": TensorType(DType.bool, [])})
    x, p = graph.inputs
    y = ops.cond(p, lambda: ops.exp(x), lambda: ops.exp(ops.exp(x)))
    z = ops.for_loop(5, lambda i, v: ops.exp(v) * 2, y)
    graph.output(z)
    assert {e.operator: e.flops for e in flops(graph).nodes} == {"If": 8, "Loop": 5 * 8}


def test_scan_counts_its_length() -> None:
    graph = Graph("g", {"x": TensorType(F32, ["t", 4])})
    y = ops.scan(lambda state, row: (state + row, state), graph.constant(np.zeros(4, np.float32)), graph["x"])
    graph.output(*(y if isinstance(y, tuple) else (y,)))
    assert "t" in str(flops(graph).total)


def test_call_counts_as_its_function_does_with_the_dims_of_the_call() -> None:
    result = flops(called())
    assert [str(entry.flops) for entry in result.nodes] == ["136 * n"] * 4
    assert flops(called(), {"n": 2}).total == 4 * 272


def convolved(x: Any) -> Any:
    return ops.onnx.Conv(x, np.ones((2, 1, 256), np.float32), strides=[128])


@pytest.mark.parametrize("call", [convolved, gc.function(convolved)])
def test_flops_are_unknown_where_a_window_does_not_fit(call: Any) -> None:
    graph = Graph("g", {"x": TensorType(F32, ["n", 1, "t"])})
    graph.output(call(graph["x"]))
    assert flops(graph, {"n": 3, "t": 512}).total == 2 * 256 * (3 * 2 * 3)
    result = flops(graph, {"n": 1, "t": 1})
    assert result.total == 0
    assert [entry.reason for entry in result.unknown] == ["a dim is negative for these sizes"]


def test_third_party_models_are_counted() -> None:
    result = flops(exported(2))
    assert result.total == 2 * (4 * 2 * 8**3 + 5 * 64 + 7 * 64)  # products, a Softmax, seven element-wise nodes
    assert not result.unknown
    assert isinstance(flops(unet(), {"batch": 1}), Flops)


@pytest.mark.parametrize("dims", [{"batch": -1}, {"batch": 1.5}, {"batch": True}, {"1 2": 3}])
def test_what_is_not_a_size_is_refused(dims: Any) -> None:
    with pytest.raises(ShapeError, match="flops"):
        flops(mixed(), dims)


def test_functions_that_call_each_other_are_counted_once() -> None:
    result: Any = lambda x: ops.exp(x)  # noqa: E731
    for i in range(24):  # each calls the one before it twice: 2 to the 24th, if they were counted each time

        def twice(x: Any, inner: Any = result) -> Any:
            return inner(inner(x))

        result = gc.function(twice, name=f"f{i}")
    graph = Graph("g", {"x": TensorType(F32, ["n"])})
    graph.output(result(graph["x"]))
    assert str(flops(graph).total) == f"{1 << 24} * n"
