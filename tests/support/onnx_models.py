"""Small ONNX models: hostile ones with the check of their errors, and those of one node of any opset."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import graphcore as gc
from graphcore.errors import GraphcoreError, ModelError
from graphcore.onnx.notes import OPSET
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
    model = helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=10)
    if opset is None and not domains:
        del model.opset_import[:]
    return model


def one(op_type: str, *inputs: str, outputs: Sequence[str] = ("y",), opset: int = 20, **attributes: Any) -> Any:
    """A model of one node called "culprit"."""
    node = helper.make_node(op_type, inputs or ["x"], outputs, "culprit", **attributes)
    return model([node], opset=opset)


def tensor(name: str, dtype: int, dims: Sequence[int], raw: bytes | None = None, **fields: Any) -> onnx.TensorProto:
    """A TensorProto with whatever is asked for in it."""
    result = onnx.TensorProto(name=name, data_type=dtype, dims=dims)
    if raw is not None:
        result.raw_data = raw
    for key, values in fields.items():
        getattr(result, key).extend(values)
    return result


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


# Models of one node of any opset, run through graphcore and by onnxruntime or ONNX's evaluator

Array = np.ndarray[Any, Any]
F32, F64, F16, I64 = np.float32, np.float64, np.float16, np.int64


@dataclass(frozen=True)
class Case:
    """A node of a version, and what it gives: by a function of its operands, or as onnxruntime runs it itself."""

    op: str
    version: int
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    expected: Callable[..., Any] | None = None
    constant: Sequence[int] = ()
    """The operands that are constants of the model."""
    domain: str = ""
    tolerance: float = 1e-5

    @property
    def label(self) -> str:
        shown = ",".join(f"{k}={v}" for k, v in self.attributes.items() if isinstance(v, (int, float, str, list)))
        return f"{self.op}-{self.version}-{shown:.60}-{self.outputs}"


def model_of(case: Case, ranked: bool) -> onnx.ModelProto:
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(case.inputs)]
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, domain=case.domain, **case.attributes)
    infos, value = [], []
    for i, (name, array) in enumerate(zip(names, case.inputs, strict=True)):
        if array is not None and i in case.constant:
            value.append(onnx.numpy_helper.from_array(array, name))
        elif array is not None:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            shape = ["batch" if not i + j else size for j, size in enumerate(array.shape)] if ranked else None
            infos.append(helper.make_tensor_value_info(name, kind, shape))
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "test", infos, results, value)
    default = OPSET if case.domain else case.version
    imports = [helper.make_opsetid("", default)]
    if case.domain:
        imports.append(helper.make_opsetid(case.domain, case.version))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def feeds_of(case: Case) -> dict[str, Array]:
    return {f"x{i}": a for i, a in enumerate(case.inputs) if a is not None and i not in case.constant}


def native(case: Case) -> list[Array]:
    """Return onnxruntime's results for the model as it is."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model_of(case, True).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds_of(case)))


def check(case: Case, ranked: bool = True) -> None:
    model = gc.InferenceSession().load(model_of(case, ranked))
    results = list(model.execute(**feeds_of(case)))
    if case.expected is None:
        expected = native(case)
    else:
        result = case.expected(*[a for a in case.inputs if a is not None])
        expected = list(result) if isinstance(result, tuple) else [result]
    for got, wanted in zip(results, expected, strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        if got.dtype.kind in "OU":
            assert got.tolist() == wanted.tolist()
        else:
            np.testing.assert_allclose(
                got.astype(F64), wanted.astype(F64), rtol=case.tolerance, atol=case.tolerance, equal_nan=True
            )


def noise(*shape: int, dtype: Any = F32) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def evaluated(case: Case) -> Case:
    """The case, with what ONNX's own evaluator gives."""
    session = ReferenceEvaluator(model_of(case, True))
    return replace(case, expected=lambda *_: tuple(session.run(None, feeds_of(case))))
