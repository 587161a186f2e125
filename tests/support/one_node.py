"""Models of one node of any opset, run through graphcore and by others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

import graphcore as gc
from graphcore.onnx.opset import OPSET

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
    infos, held = [], []
    for i, (name, array) in enumerate(zip(names, case.inputs, strict=True)):
        if array is not None and i in case.constant:
            held.append(onnx.numpy_helper.from_array(array, name))
        elif array is not None:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            shape = ["batch" if not i + j else size for j, size in enumerate(array.shape)] if ranked else None
            infos.append(helper.make_tensor_value_info(name, kind, shape))
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "test", infos, made, held)
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
    results = model.execute(**feeds_of(case))
    results = list(results.values()) if isinstance(results, dict) else list(results)
    if case.expected is None:
        expected = native(case)
    else:
        made = case.expected(*[a for a in case.inputs if a is not None])
        expected = list(made) if isinstance(made, tuple) else [made]
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
