"""Shared parts of the tests of hostile models: small ONNX models, and the check of their errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore.errors import GraphcoreError, ModelError
from tests.support.calls import calls

FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
CALLS = 5_000_000
"""Calls of functions in which a hostile model is refused: a second or two."""

Source = onnx.ModelProto | bytes | str | os.PathLike[str]


def value(name: str, dtype: int = FLOAT, shape: Sequence[int | str | None] | None = (2,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
    constants: Sequence[onnx.TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int | None = 20,
    **domains: int,
) -> onnx.ModelProto:
    """A model from x to y, both float32[2] unless other inputs and outputs are given."""
    graph = helper.make_graph(
        nodes,
        "hostile",
        [value("x")] if inputs is None else inputs,
        [value("y")] if outputs is None else outputs,
        constants,
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    if opset is not None:
        imports.append(helper.make_opsetid("", opset))
    made = helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=10)
    if opset is None and not domains:
        del made.opset_import[:]
    return made


def one(op_type: str, *inputs: str, outputs: Sequence[str] = ("y",), opset: int = 20, **attributes: Any) -> Any:
    """A model of one node called "culprit"."""
    node = helper.make_node(op_type, inputs or ["x"], outputs, "culprit", **attributes)
    return model([node], opset=opset)


def tensor(name: str, dtype: int, dims: Sequence[int], raw: bytes | None = None, **fields: Any) -> onnx.TensorProto:
    """A TensorProto with whatever is asked for in it."""
    made = onnx.TensorProto(name=name, data_type=dtype, dims=dims)
    if raw is not None:
        made.raw_data = raw
    for key, values in fields.items():
        getattr(made, key).extend(values)
    return made


def refused(
    source: Source, *words: str, kind: type[GraphcoreError] = ModelError, limit: int = CALLS, run: bool = False
) -> GraphcoreError:
    """Check that loading raises exactly one error of this kind that has these words and a help, in `limit` calls."""
    load: Callable[[Any], object] = gc.InferenceSession().load if run else gc.Graph.load
    with pytest.raises(GraphcoreError) as caught:
        calls(partial(load, source), limit)
    error = caught.value
    assert type(error) is kind, f"{type(error).__name__}: {error}"
    for word in words:
        assert word in str(error), str(error)
    assert error.help
    assert len(str(error)) < 4000
    return error
