"""Batches of models whose outputs call the batch dim otherwise than their inputs: axes given, or found by runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import graphcore as gc
from graphcore import Graph, TensorType, ops
from graphcore.errors import GraphError, ModelError
from graphcore.ir.symbol import Symbol
from tests.support.trained import models

Array = np.ndarray[Any, Any]


def build_model(function: Callable[[Symbol], Symbol], dims: list[int | str], dtype: str = "float32") -> gc.Model:
    """A model of x [batch, 4], whose output has these dims, stated and not checked against the input's."""
    graph = Graph("named", {"x": TensorType(dtype, ["batch", 4])})
    graph.output(y=function(graph["x"]).rebind(dims))
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


def rows(count: int) -> Array:
    return np.arange(4 * count, dtype=np.float32).reshape(count, 4)


NAMED: dict[str, tuple[Callable[[Symbol], Symbol], list[int | str], int]] = {
    "first": (lambda x: x + 1, ["unk__12", 4], 0),
    "second": (lambda x: ops.transpose(x, [1, 0]), [4, "other"], 1),
    "between": (lambda x: ops.unsqueeze(ops.transpose(x, [1, 0]), 2), [4, "other", 1], 1),
    "both named": (lambda x: ops.transpose(x, [1, 0]), ["a", "b"], 1),
}


@pytest.mark.parametrize("name", NAMED)
def test_axis_is_found_when_the_output_has_dims_of_other_names(name: str) -> None:
    function, dims, axis = NAMED[name]
    model = build_model(function, dims)
    whole = model(rows(6))[0]
    with gc.Batcher(model, max_wait_ms=50) as batcher:
        futures = [batcher.submit(rows(6)[i : i + 2]) for i in (0, 2, 4)]
        got = [future.result()[0] for future in futures]
    np.testing.assert_array_equal(np.concatenate(got, axis), whole)
    np.testing.assert_array_equal(model.execute(rows(6), micro_batch=2)[0], whole)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "bool", "float64"])
def test_axis_is_found_for_every_kind_of_dtype(dtype: str) -> None:
    model = build_model(lambda x: ops.transpose(x, [1, 0]), [4, "other"], dtype)
    x = (rows(3) % 2).astype(gc.DType.of(dtype).numpy)
    with gc.Batcher(model) as batcher:
        np.testing.assert_array_equal(batcher(x)[0], x.T)


@pytest.mark.parametrize(
    ("function", "dims", "word"),
    [
        (lambda x: ops.unsqueeze(x.sum(axis=0), 0), ["k", "l"], r"does not have the batch dim: .*\[1, 4\] for 2 rows"),
        (lambda x: ops.concat([x, x]), ["twice", 4], r"does not have .*\[4, 4\] for 2 rows and \[6, 4\] for 3"),
        (lambda x: x @ ops.transpose(x, [1, 0]), ["k", "l"], "output 'y' has the batch dim in more than one axis"),
        (lambda x: ops.softmax(x, 0), ["k", "l"], "output 'y' has other values for a row in a batch of 3"),
        (lambda x: 1e-9 * ops.softmax(x, 0), ["k", "l"], "output 'y' has other values for a row in a batch of 3"),
    ],
    ids=["none", "twice", "square", "dependent", "small"],
)  # fmt: skip
def test_request_is_refused_when_an_output_does_not_scale(
    function: Callable[[Symbol], Symbol], dims: list[int | str], word: str
) -> None:
    model = build_model(function, dims)
    with gc.Batcher(model) as batcher:
        for _ in range(2):
            with pytest.raises(ModelError, match=word):
                batcher(rows(2))
    with pytest.raises(ModelError, match=word):
        model.execute(rows(4), micro_batch=2)


def test_request_that_fails_leaves_the_axis_to_the_next() -> None:
    graph = Graph("checked", {"x": TensorType("float32", ["batch", "length"])})
    graph.output(y=ops.transpose(graph["x"].rebind(["batch", 4]), [1, 0]).rebind([4, "other"]))
    with gc.Batcher(gc.InferenceSession().load(graph)) as batcher:
        with pytest.raises(gc.errors.RunError):
            batcher(np.ones((1, 3), np.float32))
        assert batcher(rows(2))[0].tolist() == rows(2).T.tolist()


@pytest.mark.parametrize("axis", [1, -1, np.int64(1)])
def test_axis_is_what_the_user_says(axis: int) -> None:
    model = build_model(lambda x: ops.transpose(x, [1, 0]), [4, "other"])
    with gc.Batcher(model, dim={"y": axis}) as batcher:
        assert batcher(rows(3))[0].tolist() == rows(3).T.tolist()


def test_axis_of_an_input_is_what_the_user_says() -> None:
    graph = Graph("two", {"x": TensorType("float32", ["batch", 4]), "h": TensorType("float32", [4, "states"])})
    graph.output(y=graph["x"] + ops.transpose(graph["h"], [1, 0]).rebind(["batch", 4]))
    model = gc.InferenceSession().load(graph)
    with pytest.raises(ModelError, match="input 'h' does not have the batch dim") as caught:
        gc.Batcher(model)
    assert "dim={" in caught.value.help
    with gc.Batcher(model, dim={"h": 1}, max_wait_ms=50) as batcher:
        futures = [batcher.submit(rows(2), rows(2).T), batcher.submit(rows(1), 0 * rows(1).T)]
        assert [future.result()[0].tolist() for future in futures] == [(2 * rows(2)).tolist(), rows(1).tolist()]


@pytest.mark.parametrize(
    ("dim", "kind", "word"),
    [
        ({"z": 0}, GraphError, "'z', which is not a tensor input or output"),
        ({"y": 2}, GraphError, "axis 2 of 'y'"),
        ({"y": -3}, GraphError, "axis -3 of 'y'"),
        ({"y": True}, GraphError, "axis True of 'y'"),
        ({"y": "batch"}, GraphError, "axis 'batch' of 'y'"),
        (0, GraphError, "dim=0 is not a dim"),
        ({"y": 0}, ModelError, "output 'y' does not have the batch dim"),
    ],
)
def test_dim_is_refused_when_it_is_none(dim: Any, kind: type[Exception], word: str) -> None:
    with pytest.raises(kind, match=word):
        gc.Batcher(build_model(lambda x: ops.transpose(x, [1, 0]), [4, "other"]), dim=dim)


def test_exporters_names_of_outputs_do_not_matter() -> None:
    shape = helper.make_node("Shape", ["x"], ["s"])
    nodes = [shape, helper.make_node("Expand", ["one", "s"], ["e"]), helper.make_node("Add", ["x", "e"], ["y"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "named", [info("x", 1, ["batch", 4])], [info("y", 1, ["unk__123", 4])],
        [helper.make_tensor("one", 1, [], [1.0])],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(proto)
    with gc.Batcher(gc.InferenceSession().load(proto)) as batcher:
        assert batcher(rows(2))[0].tolist() == (rows(2) + 1).tolist()


def test_model_of_a_package_is_batched_by_the_dim_of_its_types_where_its_file_names_another() -> None:
    (path,) = [path for path in models("rapidocr_onnxruntime") if "det" in path.name]
    model = gc.InferenceSession().load(path)
    images = np.random.default_rng(0).standard_normal((3, 3, 64, 64)).astype(np.float32)
    with gc.Batcher(model, max_wait_ms=50) as batcher:
        assert (batcher._batches.outputs, batcher._batches.open) == (dict.fromkeys(model.outputs, 0), {})
        futures = [batcher.submit(images[i : i + 1]) for i in range(3)]
        for image, future in zip(images, futures, strict=True):
            np.testing.assert_allclose(future.result()[0], model(image[None])[0], atol=1e-5)
