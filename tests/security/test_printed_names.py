"""Names of models are untrusted: what is printed of them moves no cursor, turns no text around and begins no line."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import GraphcoreError, LossyCastWarning
from graphcore.runtime.lowering.report import report
from graphcore.runtime.ort import release
from graphcore.support.escaping import escaped, escaped_lines
from tests.sampling import drawn

FORGED = "error: forged"
UNSEEN = "\x1b\x07\r\n\t\x00\x7f\x9b\u202e\u2066\u200b\u2028\ufeff\ud800"
evil = st.text(st.sampled_from(f"{UNSEEN}ab[0m'\"\\"), min_size=1, max_size=8).map(lambda text: f"{text}\n{FORGED}")
names = evil.map(lambda text: text.replace("\ud800", "?"))  # protobuf has no half surrogates


def is_safe(text: str) -> bool:
    lines = text.split("\n")
    return all(line.isprintable() for line in lines) and not any(line.strip().startswith(FORGED) for line in lines)


def third_party(name: str) -> onnx.ModelProto:
    """Return a model all of whose names end so: two products, and an operator of another domain that is not run."""
    weight = numpy_helper.from_array(np.eye(64, dtype=np.float32), f"w{name}")
    nodes = [
        helper.make_node("MatMul", [f"x{name}", f"w{name}"], [f"h{name}"], name=f"n{name}"),
        helper.make_node("MatMul", [f"h{name}", f"w{name}"], [f"y{name}"]),
    ]
    ends = [[helper.make_tensor_value_info(f"{end}{name}", TensorProto.FLOAT, [f"d{name}", 64])] for end in "xy"]
    graph = helper.make_graph(nodes, f"g{name}", ends[0], ends[1], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10, producer_name=name)
    model.metadata_props.add(key=f"k{name}", value=name)
    return model


def message_of(work: object) -> str:
    """Return the whole text of an error, with its notes."""
    try:
        work()  # type: ignore[operator]
    except GraphcoreError as error:
        return f"{error}\n  {error.summary}\n  {error.help}"
    return ""


def printed(name: str) -> Iterator[str]:
    """Yield all that is printed of a model with such names."""
    proto = third_party(name)
    graph = Graph.load(proto.SerializeToString())
    yield str(graph)
    yield repr(graph)
    for symbol in graph.symbols:
        yield f"{symbol}\n  {symbol!r}"
        yield repr(symbol.type)
    model = gc.InferenceSession().load(graph)
    yield repr(model)
    yield message_of(model)
    yield message_of(lambda: model(np.ones((2, 3), np.float32)))
    yield message_of(lambda: model(np.ones((2, 64), np.int8)))
    yield message_of(lambda: graph[f"z{name}"])
    x = graph[graph.inputs[0].name]
    yield message_of(lambda: x @ x)
    yield message_of(lambda: graph.weight(x.name, np.ones(2, np.float32)))
    result = report(graph, "cpu", release.runtime())
    yield from map(str, result.changes)
    yield message_of(lambda: gc.quantize(graph))
    del proto.graph.initializer[:]
    yield message_of(lambda: Graph.load(proto.SerializeToString()))
    yield message_of(lambda: gc.InferenceSession().load(proto.SerializeToString()))
    proto.graph.node[0].op_type = f"Op{name}"
    yield message_of(lambda: Graph.load(proto.SerializeToString()))


@settings(max_examples=15)
@given(names)
@example("\x1b]0;owned\x07\r\u202e\nerror: forged [bold]x[/bold] ")
def test_names_of_loaded_models_are_escaped_wherever_they_are_printed(name: str) -> None:
    for text in printed(name):
        assert is_safe(text), repr(text)


@settings(max_examples=drawn(30))
@given(evil)
def test_names_of_built_graphs_are_escaped_in_text_errors_and_warnings(name: str) -> None:
    given_name = "".join(c for c in name if c >= " ")  # others are not names: the builder refuses them
    assert is_safe(message_of(lambda: Graph(name, {name: TensorType(DType.float32, [2])})))
    graph = Graph(f"g{given_name}", {f"x{given_name}": TensorType(DType.int32, ["d"])})
    x = graph.inputs[0]
    weight = graph.weight(f"w{given_name}", np.ones(3, np.float32))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LossyCastWarning)
        y = x * ops.cast(weight, DType.float16)[:1]
    graph.output(**{f"y{given_name}": y})
    texts = [str(graph), repr(graph), repr(x), repr(y), *(str(warning.message) for warning in caught)]
    wide = graph.weight(f"v{given_name}", np.ones((64, 64), np.float32))
    layers = Graph("layers", {f"x{given_name}": TensorType(DType.float32, ["n", 64])})
    layers.output(y=layers.inputs[0] @ layers.weight(f"w{given_name}", np.ones((64, 64), np.float32)))
    texts += [str(gc.quantize(layers).report), repr(wide)]
    texts += [message_of(lambda: x @ weight), message_of(lambda: graph.output(**{x.name: y}))]
    assert all(map(is_safe, texts)), texts


@given(st.text())
def test_escaping_is_printable_and_stays_when_done_again(text: str) -> None:
    result = escaped(text)
    assert result.isprintable()
    assert escaped(result) == result
    assert (result == text) is text.isprintable()
    lines = escaped_lines(text)
    assert escaped_lines(lines) == lines
    assert all(line.startswith("  ") for line in lines.split("\n")[1:])


@pytest.mark.parametrize(
    ("text", "result"),
    [("x", "x"), ("é 語", "é 語"), ("a\x1bb", "a\\x1bb"), ("\u202e\n", "\\u202e\\n"), ("\ud800", "\\ud800")],
)
def test_what_is_not_printable_is_spelled_out(text: str, result: str) -> None:
    assert escaped(text) == result
