"""Errors of the runtime: they name the user's node, its line, and its operands with the shapes of the run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Dim, Graph, TensorType, ops
from graphcore.errors import RunError
from graphcore.ir.symbol import Node
from graphcore.runtime.calls.failures import RuntimeMessage

F32 = np.float32


def largest(dtype: str) -> Graph:
    graph = Graph("picked", {"x": TensorType(dtype, ["batch", "n"])})
    with graph:
        doubled = graph["x"] + graph["x"]
        values, _ = ops.top_k(doubled, 5)
    graph.output(values=values * 2)
    return graph


def multiplied(dtype: str) -> Graph:
    graph = Graph("product", {n: TensorType(dtype, [Dim.dynamic(), Dim.dynamic()]) for n in "xy"})
    with graph:
        result = ops.abs(graph["x"]) @ graph["y"]
    graph.output(made=result + 1)
    return graph


def gathered(dtype: str) -> Graph:
    graph = Graph("rows", {"x": TensorType(dtype, ["batch", "n"]), "i": TensorType("int64", ["k"])})
    with graph:
        y = ops.gather(ops.abs(graph["x"]), graph["i"], 1)
    graph.output(made=y)
    return graph


def reshaped(dtype: str) -> Graph:
    graph = Graph("blocks", {"x": TensorType(dtype, ["batch", "n"])})
    with graph:
        y = ops.reshape(graph["x"], [-1, 7])
    graph.output(made=y * 3)
    return graph


X = np.ones((2, 3), F32)

CASES: dict[str, tuple[Callable[[str], Graph], str, tuple[Any, ...], str, str]] = {
    "largest": (largest, "TopK", (X,), "k is 5, and the axis has 3 elements", "[2, 3]"),
    "multiplied": (multiplied, "MatMul", (X, X), "the inner dimensions of the product differ", "[2, 3]"),
    "gathered": (gathered, "Gather", (X, np.array([9])), "index 9 is outside of -3 to 2", "[2, 3]"),
    "reshaped": (reshaped, "Reshape", (X,), "[2, 3] cannot be reshaped to [-1, 7]", "[2, 3]"),
}
"""By name: what builds the graph, the operator that fails, what is fed, why it fails, and the shape of an operand."""


def failure(call: Callable[[], object]) -> RunError:
    with pytest.raises(RunError) as raised:
        call()
    return raised.value


def node_of(graph: Graph, op_type: str) -> Node:
    return next(node for node in graph.nodes if node.op_type == op_type)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("optimize", ["all", "off"])
@pytest.mark.parametrize("name", CASES)
def test_error_names_the_users_node_when_the_lowered_one_fails(name: str, optimize: Any, dtype: str) -> None:
    build, op_type, feed, _, shape = CASES[name]
    graph = build(dtype)
    node = node_of(graph, op_type)
    arrays = [a.astype(dtype) if a.dtype == F32 else a for a in feed]
    model = gc.InferenceSession(optimize=optimize).load(graph)
    error = failure(lambda: model(*arrays))
    text = str(error)
    assert f"{graph.name}: onnxruntime failed at {node.outputs[0].name}, a {op_type}: " in error.summary
    assert node.line is not None
    assert error.line == node.line
    assert f"{dtype}{shape}" in text
    assert "onnxruntime_src" not in text
    assert "::" not in text
    assert text.splitlines()[-1].startswith("  onnxruntime: ")
    assert error.help


@pytest.mark.parametrize("name", CASES)
def test_error_says_why_in_words(name: str) -> None:
    build, _, feed, why, _ = CASES[name]
    model = gc.InferenceSession().load(build("float32"))
    assert failure(lambda: model(*feed)).summary.endswith(why)


def test_error_shows_the_whole_of_it() -> None:
    graph = largest("float32")
    line = node_of(graph, "TopK").line
    assert line is not None
    model = gc.InferenceSession().load(graph)
    name = node_of(graph, "TopK").outputs[0].name
    assert str(failure(lambda: model(X))) == (
        f"picked: onnxruntime failed at {name}, a TopK: k is 5, and the axis has 3 elements\n"
        f"    result     {name}      float32[batch, 5]   {line}\n"
        f"    operand 0  add_1        float32[2, 3]       test_run_errors.py:{line.number - 1}\n"
        f"    operand 1  constant_2   int64[1] [5]\n"
        "    input x                 float32[2, 3]\n"
        "  help: use a smaller k, or feed a longer axis\n"
        f"  at {line}   values, _ = ops.top_k(doubled, 5)\n"
        f"  onnxruntime: TopK '{name}': k argument [5] should not be greater than specified axis dim value [3]"
    )


def test_error_names_the_line_in_the_function_when_it_is_traced() -> None:
    @gc.jit
    def summed(x: Any, y: Any) -> Any:
        doubled = x * 2.0
        return ops.exp(doubled) + y

    error = failure(lambda: summed(X, np.ones((2, 4), F32)))
    assert error.summary.endswith("an Add: shapes do not broadcast: 3 and 4 along one axis")
    assert error.line is not None
    assert error.line.text == "return ops.exp(doubled) + y"
    assert "float32[2, 4]" in str(error)


def test_error_names_the_node_of_a_model_that_was_read(tmp_path: Path) -> None:
    largest("float32").export(tmp_path / "model.onnx")
    model = gc.InferenceSession().load(tmp_path / "model.onnx")
    error = failure(lambda: model(X))
    assert "a TopK: k is 5, and the axis has 3 elements" in error.summary
    assert "float32[2, 3]" in str(error)


def test_error_names_the_node_in_a_body() -> None:
    graph = Graph("turns", {"x": TensorType("float32", ["n"]), "i": TensorType("int64", [1])})
    with graph:
        y = ops.for_loop(2, lambda turn, s: s + ops.gather(graph["x"], graph["i"]), graph["x"])
    graph.output(made=y)
    error = failure(lambda: gc.InferenceSession().load(graph)(np.ones(3, F32), np.array([7])))
    assert "index 7 is outside of -3 to 2" in error.summary
    assert error.line is not None
    assert error.line.text.startswith("y = ops.for_loop(2, ")


def test_error_names_the_layer_of_a_function() -> None:
    @gc.function
    def head(x: Any) -> Any:
        return ops.top_k(x, 5)[0]

    graph = Graph("headed", {"x": TensorType("float32", ["n", "m"])})
    with graph:
        result = head(ops.abs(graph["x"]))
    graph.output(made=result)
    error = failure(lambda: gc.InferenceSession().load(graph)(X))
    assert "a TopK: k is 5" in error.summary
    assert error.line is not None
    assert error.line.text == "return ops.top_k(x, 5)[0]"


def test_error_names_the_node_when_the_call_is_bound() -> None:
    bound = gc.InferenceSession().load(largest("float32")).bind(batch=2, n=3)
    assert "a TopK: k is 5, and the axis has 3 elements" in failure(bound).summary


def test_error_names_the_node_of_a_model_with_buffers() -> None:
    graph = Graph("kept", {"x": TensorType("float32", ["n"]), "cache": gc.Buffer("float32", [4])})
    with graph:
        cache = graph["cache"]
        result = ops.top_k(graph["x"], 9)[0] + cache[0]
        ops.buffer_store(cache, cache + 1)
    graph.output(made=result)
    model = gc.InferenceSession().load(graph)
    error = failure(lambda: model(np.ones(3, F32)))
    assert "a TopK: k is 9, and the axis has 3 elements" in error.summary
    assert error.line is not None
    assert error.line.text.startswith("result = ops.top_k")


def test_second_error_needs_no_second_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphcore.runtime.calls import failures

    model = gc.InferenceSession().load(largest("float32"))
    first = failure(lambda: model(X))
    monkeypatch.setattr(failures, "marked", None)
    second = failure(lambda: model(X))
    assert second.summary == first.summary


def test_error_is_told_without_a_node_when_none_is_found() -> None:
    graph = largest("float32")
    model = gc.InferenceSession().load(graph)
    users = model._user_nodes()
    assert users is not None
    users._origins_by_name = {}
    error = failure(lambda: model(X))
    assert error.summary == "picked: onnxruntime failed: k is 5, and the axis has 3 elements"
    assert error.line is not None
    assert error.line.number > inspect.getsourcelines(failure)[1]


MESSAGES = {
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Attention node. Name:'y' Status "
    "Message: /onnxruntime_src/onnxruntime/core/providers/cpu/llm/attention_parameters.h:83 void onnxruntime::"
    "attention_helper::AttentionParameters::checkParameters() const q_sequence_length > 0 was false. Q sequence length "
    "must be greater than 0\n": (
        "y",
        "onnxruntime: Attention 'y': q_sequence_length > 0 was false. Q sequence length must be greater than 0",
    ),
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Cast node. Name:'a/b' "
    "Status Message: /onnxruntime_src/onnxruntime/core/framework/op_kernel.h:83 virtual onnxruntime::common::Status "
    "onnxruntime::(anonymous namespace)::F<T>::Compute(int) const [with T = std::vector<int>] x was false. no good": (
        "a/b",
        "onnxruntime: Cast 'a/b': x was false. no good",
    ),
    "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions": ("", ""),
    "": ("", ""),
    "/onnxruntime_src/a.cc:1 f(": ("", ""),
}


@pytest.mark.parametrize("text", MESSAGES)
def test_places_in_the_runtimes_source_are_left_out(text: str) -> None:
    message = RuntimeMessage.of(text)
    node, raw = MESSAGES[text]
    assert (message.node, message.raw) == (node, raw)
    assert "onnxruntime_src" not in message.why


def test_message_of_a_concat_names_the_axis_and_both_sizes() -> None:
    message = RuntimeMessage.of(
        "Non-zero status code returned while running Concat node. Name:'c' Status Message: "
        "concat.cc:159 PrepareForCompute Non concat axis dimensions must match: "
        "Axis 2 has mismatched dimensions of 5 and 7"
    )
    assert message.why == "the operands to concatenate have 5 and 7 elements along axis 2"
