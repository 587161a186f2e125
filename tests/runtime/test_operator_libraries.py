"""Libraries of operators of other domains: `InferenceSession(custom_op_libraries=[path])`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import Graph, TensorType
from graphcore.errors import GraphError, ModelError
from graphcore.onnx.proto.opened import Opened
from graphcore.onnx.read import reader
from graphcore.runtime.ort.operators import InstalledOperators

extensions = pytest.importorskip("onnxruntime_extensions")
DOMAIN = "ai.onnx.contrib"


def model_of() -> onnx.ModelProto:
    """Return a model whose file says nothing of what its operators give."""
    nodes = [
        helper.make_node("StringUpper", ["x"], ["upper"], domain=DOMAIN),
        helper.make_node("StringConcat", ["upper", "x"], ["y"], domain=DOMAIN),
        helper.make_node("Shape", ["y"], ["z"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])]
    graph = helper.make_graph(nodes, "text", inputs, [onnx.ValueInfoProto(name=n) for n in ("y", "z")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def words(*texts: str) -> np.ndarray[Any, Any]:
    return np.array(texts, dtype=object)


def test_model_with_operators_of_a_library_is_typed_and_runs(tmp_path: Path) -> None:
    library = extensions.get_library_path()
    onnx.save(model_of(), tmp_path / "text.onnx")
    opened = Opened(tmp_path / "text.onnx", None)
    read = reader.read(opened, runtime=lambda: InstalledOperators([library]))
    assert [s.dtype for s in read.outputs] == [gc.DType.string, gc.DType.int64]
    session = gc.InferenceSession(custom_op_libraries=[library, Path(library)])
    for source in (tmp_path / "text.onnx", model_of(), read):
        joined, shape = session.load(source)(words("ab", "c"))
        assert joined.tolist() == ["ABab", "Cc"]
        assert shape.tolist() == [2]


def test_result_that_only_the_library_types_needs_it_to_be_read() -> None:
    library = extensions.get_library_path()
    model = model_of()
    del model.graph.node[2]
    model.graph.node.add(op_type="StringNormalizer", input=["y"], output=["z"])
    with pytest.raises(ModelError, match=r"the runtime has the result type of ai\.onnx\.contrib::StringConcat"):
        Graph.load(model)
    joined, same = gc.InferenceSession(custom_op_libraries=[library]).load(model)(words("ab"))
    assert joined.tolist() == same.tolist() == ["ABab"]


def test_library_of_the_extension_goes_with_operators_that_python_computes() -> None:
    @gc.custom_op("tests.libraries::Lengths", dtypes={"x": "string"})
    def lengths(x: Any) -> Any:
        return TensorType("int64", x.shape)

    @lengths.python
    def _(x: Any) -> Any:
        return np.array([len(text) for text in x], np.int64)

    graph = Graph("g", {"x": TensorType("string", ["n"])})
    (upper,) = graph.op("StringUpper", [graph["x"]], {}, [graph["x"].type], domain=DOMAIN)
    graph.output(upper=upper, lengths=lengths(graph["x"]))
    session = gc.InferenceSession(custom_op_libraries=[extensions.get_library_path()])
    upper, counted = session.load(graph)(words("ab", "c"))
    assert upper.tolist() == ["AB", "C"]
    assert counted.tolist() == [2, 1]


def test_cache_knows_the_libraries(tmp_path: Path) -> None:
    session = gc.InferenceSession(custom_op_libraries=[extensions.get_library_path()])
    for _ in range(2):
        joined, _ = session.load(model_of(), cache_dir=tmp_path)(words("ab"))
        assert joined.tolist() == ["ABab"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("operators.so", "must be a list of paths"),
        (5, "must be a list of paths"),
        (["missing.so"], "'missing.so' is not a file"),
        ([None], "None is not a file"),
        ([__file__], "onnxruntime cannot load"),
    ],
)
def test_what_is_not_a_library_is_refused_with_what_to_give(value: Any, why: str) -> None:
    with pytest.raises(GraphError, match=why) as caught:
        gc.InferenceSession(custom_op_libraries=value)
    assert "help:" in str(caught.value)
