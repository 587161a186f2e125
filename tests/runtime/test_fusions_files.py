"""Attention in files for all releases, which have it in primitives: sessions run it as that of the Graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import graphcore as gc
from graphcore import Graph, TensorType, ops
from graphcore.ir.transform.walk import walk
from graphcore.models import encoder
from graphcore.ops import onnx as onnx_ops
from tests.models.encoder_references import tokens, weights
from tests.models.test_encoder import REFERENCES

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

Array = np.ndarray[Any, Any]
SIZES = {"batch": 2, "queries": 5, "keys": 7}
HEADS, SIZE = 4, 8
FORMS: dict[str, dict[str, list[int | str]]] = {
    "plain": {},
    "lengths": {"lengths": ["batch"]},
    "bools": {"mask": ["batch", 1, "queries", "keys"]},
    "bools and lengths": {"mask": ["batch", HEADS, "queries", "keys"], "lengths": ["batch"]},
    "bools of keys": {"mask": ["batch", 1, 1, "keys"]},
    "floats": {"added": ["batch", 1, "queries", "keys"]},
    "floats of all and lengths": {"added": [1, HEADS, "queries", "keys"], "lengths": ["batch"]},
    "causal": {},
}
DTYPES = {"mask": "bool", "added": "float32", "lengths": "int64"}


def built(form: str, rank: int = 3, levels: bool = False) -> Graph:
    """Attention of heads in rows, or apart. levels: returns its levels of bytes."""
    shapes = [[HEADS, n, SIZE] if rank == 4 else [n, HEADS * SIZE] for n in ("queries", "keys", "keys")]
    types = {name: TensorType("float32", ["batch", *shape]) for name, shape in zip("qkv", shapes, strict=True)}
    types |= {name: TensorType(DTYPES[name], shape) for name, shape in FORMS[form].items()}
    graph = Graph("attention", types)
    inputs = dict(zip(types, graph.inputs, strict=True))
    result = ops.scaled_dot_product_attention(
        inputs["q"], inputs["k"], inputs["v"], inputs.get("mask", inputs.get("added")), form == "causal",
        nonpad_kv_seqlen=inputs.get("lengths"), **({} if rank == 4 else {"q_num_heads": HEADS, "kv_num_heads": HEADS}),
    )  # fmt: skip
    with graph:
        graph.output(y=onnx_ops.DynamicQuantizeLinear(result)[0] if levels else result)
    return graph


def feeds(graph: Graph, **sizes: int) -> dict[str, Array]:
    rng, all_sizes = np.random.default_rng(0), {**SIZES, **sizes}
    arrays: dict[str, Array] = {}
    for symbol in graph.inputs:
        shape = [all_sizes[str(d)] if str(d) in all_sizes else int(d) for d in symbol.shape]
        arrays[symbol.name] = rng.standard_normal(shape).astype(np.float32)
        if symbol.name == "mask":
            arrays["mask"] = arrays["mask"] < 0.3
            arrays["mask"][:1, :, :1] = False  # a query that sees no key
        elif symbol.name == "added":
            arrays["added"][arrays["added"] > 0.3] = -np.inf
            arrays["added"][:1, :, :1] = -np.inf
            arrays["added"][:1, :, 1:2] = np.finfo(np.float32).min
        elif symbol.name == "lengths":
            arrays["lengths"] = np.array([3, 5][: shape[0]], np.int64)
    return arrays


def bare(model: onnx.ModelProto, arrays: dict[str, Array]) -> Array:
    """Return the result of onnxruntime alone."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: Array = session.run(None, arrays)[0]
    return result


def attentions(model: gc.Model) -> int:
    assert model._lowered is not None
    return sum(node.op_type == "Attention" for node in walk(model._lowered))


@pytest.mark.parametrize("levels", [False, True])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("form", FORMS)
def test_file_gives_the_bits_of_its_graph(form: str, rank: int, levels: bool) -> None:
    graph = built(form, rank, levels)
    file, arrays = graph.to_onnx(), feeds(graph)
    model, loaded = gc.InferenceSession().load(graph), gc.InferenceSession().load(file)
    assert not any(node.op_type == "Attention" for node in file.graph.node)
    assert attentions(loaded) == attentions(model)
    assert loaded(**arrays)[0].tobytes() == model(**arrays)[0].tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_file_is_what_onnxruntime_computes(form: str) -> None:
    graph = built(form)
    file, arrays = graph.to_onnx(), feeds(graph)
    np.testing.assert_allclose(gc.InferenceSession().load(file)(**arrays)[0], bare(file, arrays), rtol=0, atol=1e-6)
    exact = gc.InferenceSession(optimize="off").load(file)
    assert attentions(exact) == 0
    assert exact(**arrays)[0].tobytes() == bare(file, arrays).tobytes()


@pytest.mark.parametrize("rank", [3, 4])
def test_lengths_that_no_kernel_takes(rank: int) -> None:
    graph = built("lengths", rank)
    file, arrays = graph.to_onnx(), feeds(graph)
    for lengths in ([0, 7], [-1, 8], [10**12, -(10**12)]):
        arrays["lengths"] = np.array(lengths)
        (result,) = gc.InferenceSession().load(file)(**arrays)
        np.testing.assert_allclose(result, bare(file, arrays), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", FORMS)
def test_empty_operands(form: str, size: str) -> None:
    graph = built(form)
    arrays = feeds(graph, **{size: 0})
    (result,) = gc.InferenceSession().load(graph.to_onnx())(**arrays)
    want = [arrays["q"].shape[0], arrays["q"].shape[1], HEADS * SIZE]
    assert list(result.shape) == want
    assert not result.any()


OTHER = {
    "And": "Or", "Div": "Mul", "Equal": "Less", "Exp": "Abs", "Greater": "Less", "IsNaN": "IsInf",
    "Less": "LessOrEqual", "Mul": "Add", "Reciprocal": "Neg", "ReduceMax": "ReduceMin", "ReduceSum": "ReduceMean",
    "Sub": "Add", "Xor": "Or",
}  # fmt: skip


def changed(file: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield the file with one operator, one pair of operands or one constant changed."""

    def copy() -> onnx.ModelProto:
        result = onnx.ModelProto()
        result.CopyFrom(file)
        return result

    for i, node in enumerate(file.graph.node):
        if node.op_type in OTHER:
            new = copy()
            new.graph.node[i].op_type = OTHER[node.op_type]
            yield f"{OTHER[node.op_type]} for {node.op_type} {node.name}", new
        if node.op_type in ("Where", "Sub"):
            new = copy()
            new.graph.node[i].input[-2:] = reversed(node.input[-2:])
            yield f"other operands of {node.op_type} {node.name}", new
    for i, initializer in enumerate(file.graph.initializer):
        array = numpy_helper.to_array(initializer)
        if array.size == 1 and (array.dtype != np.int64 or array.ndim == 0):
            for value in (0.5, np.nan) if array.dtype == np.float32 else (~array,):
                new = copy()
                other = np.full(array.shape, value, array.dtype)
                new.graph.initializer[i].CopyFrom(numpy_helper.from_array(other, initializer.name))
                yield f"{value} for {array} {initializer.name}", new


@pytest.mark.parametrize("form", ["bools and lengths", "floats of all and lengths"])
def test_file_that_someone_changed_computes_what_it_says(form: str) -> None:
    graph = built(form)
    arrays, count = feeds(graph), 0
    for what, file in changed(graph.to_onnx()):
        try:
            want = bare(file, arrays)
        except Exception:
            continue  # no longer a model that onnxruntime runs
        (got,) = gc.InferenceSession().load(file)(**arrays)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=what)
        count += 1
    assert count >= 20


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
@pytest.mark.parametrize("scheme", [None, "int8_dynamic"])
def test_file_of_an_encoder_gives_the_bits_of_its_graph(kind: str, scheme: str | None) -> None:
    case = REFERENCES[kind]
    graph = encoder.build(case["config"], weights(case["shapes"], case["seed"]))
    if scheme is not None:
        graph, _ = gc.quantize(graph, scheme)
    model, loaded = gc.InferenceSession().load(graph), gc.InferenceSession().load(graph.to_onnx())
    arrays = tokens(case["config"])
    assert attentions(loaded) == attentions(model)  # none where the release has no right kernel for lengths
    assert loaded(*arrays)[0].tobytes() == model(*arrays)[0].tobytes()
