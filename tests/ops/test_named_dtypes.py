"""`ops.onnx` of index, address and tensor_float32, which are uint64 and float32 in a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from tests.support.graphs import run_unchecked as run

D = DType
on: Any = ops.onnx


def types_of(function: Any, *types: TensorType) -> list[str]:
    graph = Graph("test", types)
    with graph:
        result = function(*graph.inputs)
    return [str(s.type) for s in (result if isinstance(result, (list, tuple)) else [result])]


@pytest.mark.parametrize("dtype", [D.index, D.address, D.tensor_float32], ids=str)
def test_results_have_the_dtype_of_the_operands_of_their_type_variable(dtype: DType) -> None:
    x = TensorType(dtype, [2, 3])
    assert types_of(lambda x: on.Add(x, x), x) == [f"{dtype}[2, 3]"]
    assert types_of(lambda x: on.Mul(x, 2), x) == [f"{dtype}[2, 3]"]
    assert types_of(lambda x: on.Concat(x, x, axis=0), x) == [f"{dtype}[4, 3]"]
    assert types_of(lambda x: on.TopK(x, [1]), x) == [f"{dtype}[2, 1]", "int64[2, 1]"]
    assert types_of(lambda x: on.Less(x, x), x) == ["bool[2, 3]"]
    assert types_of(lambda x: on.Shape(x), x) == ["int64[2]"]
    assert types_of(lambda x: on.Cast(x, to=D.float64), x) == ["float64[2, 3]"]
    assert types_of(lambda x: on.CastLike(on.Cast(x, to=D.float32), x), x) == [f"{dtype}[2, 3]"]


def test_results_of_tensor_float32_are_rounded_once() -> None:
    x = np.array([1, 3, 0.1], np.float32)
    (total,) = run(lambda x: on.Add(x, np.float32(2.0**-12)), x, dtypes=[D.float32])
    assert total.tolist() != x.tolist()
    given_ = [D.tensor_float32, D.tensor_float32]
    (total, third) = run(lambda x, y: [on.Add(x, y), on.Div(x, on.Add(x, x))], x[:2], x[:2] * 2.0**-12, dtypes=given_)
    assert total.tolist() == [1.0, 3.0]
    assert third.tolist() == [0.5, 0.5]
    (mean, spread) = run(
        lambda x, s: on.LayerNormalization(x, s, outputs=2), x[None], np.ones(3, np.float32), dtypes=given_
    )
    assert mean.view(np.uint32).ravel().tolist() == (mean.view(np.uint32) & 0xFFFFE000).ravel().tolist()
    assert spread.tolist() != (spread.view(np.uint32) & 0xFFFFE000).view(np.float32).tolist()


def test_branches_and_loops_carry_index() -> None:
    def body(x: gc.Symbol, goes_on: gc.Symbol) -> list[gc.Symbol]:
        (chosen,) = on.If(goes_on, then_branch=lambda: on.Add(x, x), else_branch=lambda: x)
        (looped,) = on.Loop(3, None, x, body=lambda i, goes_on, v: [goes_on, on.Add(v, x)])
        return [chosen, looped]

    assert types_of(body, TensorType(D.index, [2]), TensorType(D.bool, [])) == ["index[2]", "index[2]"]
    x = np.array([2**63 + 1, 5], np.uint64)
    chosen, looped = run(body, x, np.array(True), dtypes=[D.index, D.bool], dims=[[2], []])
    assert chosen.tolist() == [2, 10]
    assert looped.tolist() == [4, 20]


def test_files_tell_the_dtypes_that_they_do_not_store(tmp_path: Any) -> None:
    graph = Graph("test", {"x": TensorType(D.index, [2]), "y": TensorType(D.tensor_float32, [2])})
    with graph:
        graph.output(a=on.Add(graph["x"], 1), b=on.Sqrt(graph["y"]))
    graph.export(tmp_path / "m.onnx", target="onnx")
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    assert [str(s.type) for s in Graph.load(tmp_path / "m.onnx").outputs] == ["index[2]", "tensor_float32[2]"]
