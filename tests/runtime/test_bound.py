"""Models bound to fixed shapes: arrays that are filled and read in place."""

from __future__ import annotations

import gc as collector
import threading
from typing import Any

import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Buffer, DType, Graph, TensorType, ops
from graphcore.errors import FeedError, ModelError, ResourceLimitError, RunError
from graphcore.types.tensor_types import SequenceType

pytestmark = pytest.mark.releases

D = DType
Array = np.ndarray[Any, Any]


def affine() -> gc.Model:
    graph = Graph("affine", {"x": TensorType(D.float32, ["rows", 3]), "scale": TensorType(D.float32, [])})
    graph.output(y=graph["x"] * graph["scale"], total=graph["x"].sum(axis=0))
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


X = np.arange(6, dtype=np.float32).reshape(2, 3)
TWO = np.array(2, np.float32)


def test_arrays_are_filled_and_read_in_place() -> None:
    bound = affine().bind(rows=2)
    x, y = bound.inputs["x"], bound.outputs["y"]
    assert x.shape == y.shape == (2, 3)
    bound.inputs["scale"][...] = 2
    for row in range(4):
        x[...] = X + row
        first, total = bound()
        assert first is y
        assert total is bound.outputs["total"]
        assert np.array_equal(y, (X + row) * 2)
        assert np.array_equal(total, (X + row).sum(0))


def test_arrays_that_are_given_are_copied_and_others_hold_what_they_held() -> None:
    bound = affine().bind(rows=2)
    assert np.array_equal(bound(X, TWO)[0], X * 2)
    assert np.array_equal(bound(X + 1)[0], (X + 1) * 2)
    assert np.array_equal(bound(scale=np.array(3, np.float32))[0], (X + 1) * 3)
    assert np.array_equal(bound(scale=TWO, x=X.astype(">f4")[::-1])[0], X[::-1] * 2)
    assert np.array_equal(X, np.arange(6).reshape(2, 3))


@pytest.mark.parametrize(
    ("arrays", "named"),
    [((), {"rows": 2}), ((X,), {}), (((2, 3),), {}), ((), {"x": [2, 3]}), ((X, ()), {}), ((), {"rows": 2, "x": X})],
)
def test_shapes_are_bound_when_said_in_any_way(arrays: tuple[Any, ...], named: dict[str, Any]) -> None:
    bound = affine().bind(*arrays, **named)
    assert bound.inputs["x"].shape == (2, 3)
    assert bound.inputs["scale"].shape == ()
    is_example = any(value is X for value in (*arrays, *named.values()))
    assert np.array_equal(bound.inputs["x"], X if is_example else np.zeros((2, 3)))
    assert repr(bound) == "<Bound affine(x: float32[2, 3], scale: float32[]) -> y, total>"


def test_sizes_follow_from_other_inputs_and_expressions() -> None:
    n = gc.Dim("n")
    graph = Graph("two", {"a": TensorType(D.float32, [n]), "b": TensorType(D.float32, [n * 2 + 1])})
    graph.output(more=graph["a"] + 1, joined=ops.concat([graph["a"], graph["b"]]))
    bound = gc.InferenceSession().load(graph).bind(a=(3,))
    assert bound.inputs["b"].shape == (7,)
    assert bound.outputs["joined"].shape == (10,)
    bound.inputs["b"][...] = 5
    assert bound()[1].tolist() == [0] * 3 + [5] * 7


DTYPES = [
    D.bool, D.int2, D.int4, D.uint4, D.int8, D.uint64, D.float4_e2m1, D.float6_e2m3fn, D.float6_e3m2fn,
    D.float8_e4m3fn, D.float8_e5m2, D.float16, D.bfloat16, D.tensor_float32, D.float64, D.index, D.int(5), D.int(100),
]  # fmt: skip


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_gives_what_a_call_gives(dtype: DType) -> None:
    graph = Graph("same", {"x": TensorType(dtype, ["n", 3])})
    graph.output(ops.concat([graph["x"], graph["x"]], axis=1), ops.reshape(graph["x"], [-1]), graph["x"])
    model = gc.InferenceSession().load(graph)
    bound = model.bind(n=3)
    for shift in range(2):
        x: Array = (np.arange(9).reshape(3, 3) + shift) % 2
        x = x.astype(object) if dtype.bits > 64 else x.astype(dtype.numpy)
        for item, wanted in zip(bound(x), model(x), strict=True):
            assert item.dtype == wanted.dtype
            assert item.shape == wanted.shape
            assert item.tobytes() == wanted.tobytes()


def test_outputs_are_new_in_each_call_when_only_the_run_knows_their_size() -> None:
    graph = Graph("found", {"x": TensorType(D.float32, ["n"]), "low": TensorType(D.bfloat16, ["n"])})
    graph.output(at=ops.nonzero(graph["x"]), more=graph["low"] + 1, some=graph["low"][graph["x"] > 0])
    bound = gc.InferenceSession().load(graph).bind(n=3)
    low = np.arange(3).astype(D.bfloat16.numpy)
    first = bound(np.array([0, 1, 1], np.float32), low)
    second = bound(np.array([0, 0, 1], np.float32))
    assert first[0].tolist() == [[1], [2]]
    assert second[0].tolist() == [[2]]
    assert bound.outputs["some"].tolist() == [2]
    assert first[2].tolist() == [1, 2]
    assert first[1] is second[1]


@pytest.mark.numbers
def test_outputs_that_are_all_made_by_the_run_are_those_of_the_last_call() -> None:
    graph = Graph("found", {"x": TensorType(D.float32, ["n"]), "y": TensorType(D.float32, ["n"])})
    graph.output(at=ops.nonzero(graph["x"]), some=graph["y"][graph["x"] > 1])
    model = gc.InferenceSession().load(graph)
    bound = model.bind(n=3)
    assert bound.outputs["at"].size == 0
    for x in ([0, 1, 2], [3, 0, 0], [0, 0, 0]):
        arrays = np.array(x, np.float32), np.array([5, 6, 7], np.float32)
        for item in (bound(*arrays), bound(), bound(x=arrays[0]), [*bound.outputs.values()]):
            for one, wanted in zip(item, model(*arrays), strict=True):
                assert np.array_equal(one, wanted)
                assert one.dtype == wanted.dtype
    with pytest.raises(FeedError, match="axis 0 of input 'x' must be 3"):
        bound(np.ones(2, np.float32), arrays[1])
    remaining = bound(np.array([0, 1, 1], np.float32))[0]
    bound(np.array([2, 0, 0], np.float32))
    assert remaining.tolist() == [[1], [2]]
    assert bound.outputs["at"].tolist() == [[0]]
    del bound, model
    collector.collect()
    assert remaining.tolist() == [[1], [2]]


@pytest.mark.numbers
def test_strings_that_come_out_are_new_in_each_call() -> None:
    graph = Graph("names", {"x": TensorType(D.int64, ["n"])})
    names = graph.constant(np.array(["none", "one", "two"], object))
    graph.output(name=ops.gather(names, graph["x"]), twice=graph["x"] * 2)
    bound = gc.InferenceSession().load(graph).bind(n=2)
    first, twice = bound(np.array([1, 2]))
    second, again = bound(np.array([0, 1]))
    assert first.tolist() == ["one", "two"]
    assert second.tolist() == bound.outputs["name"].tolist() == ["none", "one"]
    assert twice is again


def test_empty_arrays_are_bound() -> None:
    bound = affine().bind(rows=0)
    y, total = bound()
    assert y.shape == (0, 3)
    assert total.tolist() == [0, 0, 0]


def test_model_without_named_dims_needs_nothing_said() -> None:
    graph = Graph("fixed", {"x": TensorType(D.float32, [2])})
    graph.output(y=graph["x"] + 1)
    assert gc.InferenceSession().load(graph).bind()()[0].tolist() == [1, 1]


def test_compiled_model_is_bound_to_the_shapes_that_are_given(tmp_path: Any) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "same.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.log_severity_level = 4
    graph = Graph("same", {"x": TensorType(D.float32, ["n", 3])})
    graph.output(y=graph["x"] * 2)
    onnxruntime.InferenceSession(graph.to_onnx().SerializeToString(), options, providers=["CPUExecutionProvider"])
    bound = gc.InferenceSession().load(tmp_path / "same.ort").bind(x=(2, 3))
    assert np.array_equal(bound(X)[0], X * 2)


@pytest.mark.parametrize(
    ("arrays", "named", "message"),
    [
        ((), {}, "no size is given for rows"),
        ((), {"row": 2}, "there is no input and no dim 'row' to bind"),
        ((), {"rows": -1}, "rows=-1 is not a size"),
        ((), {"rows": 2.5}, "rows=2.5 is not a size"),
        ((), {"rows": True}, "rows=True is not a size"),
        ((), {"rows": 2, "x": (3, 3)}, "rows is 2, but 3 in the arrays and shapes"),
        ((), {"x": (2, 4)}, "axis 1 of input 'x' must be 3, got float32\\[2, 4\\]"),
        ((), {"x": (2,)}, "input 'x' must have rank 2"),
        ((), {"x": (2, "3")}, "is not a shape"),
        ((), {"x": "2, 3"}, "is not a shape or an array"),
        ((), {"x": 2}, "input 'x': 2 is not a shape or an array"),
        ((X.astype(np.float64),), {}, "input 'x' must be float32, got float64\\[2, 3\\]"),
        ((X,), {"x": X}, "input 'x' is given twice"),
        ((X, TWO, X), {}, "3 arrays given for 2 inputs"),
    ],
)
def test_what_does_not_fit_is_refused(arrays: tuple[Any, ...], named: dict[str, Any], message: str) -> None:
    with pytest.raises(FeedError, match=message):
        affine().bind(*arrays, **named)


@pytest.mark.parametrize("rows", [10**14, 10**30])
def test_arrays_beyond_memory_are_refused(rows: int) -> None:
    with pytest.raises(ResourceLimitError, match="bind: affine: there is not enough memory for x, float32"):
        affine().bind(rows=rows)


def test_arrays_of_another_shape_are_refused_in_a_call_and_none_is_copied() -> None:
    bound = affine().bind(X, TWO)
    for arrays, named, message in (
        ((X + 1, np.zeros(3, np.float32)), {}, "input 'scale' must have rank 0"),
        ((X[:1],), {}, r"axis 0 of input 'x' must be 2, got float32\[1, 3\]"),
        ((X.astype(np.int32),), {}, "input 'x' must be float32"),
        ((), {"y": X}, "there is no input 'y'"),
        ((X,), {"x": X}, "input 'x' is given twice"),
        ((X, TWO, X), {}, "3 arrays given for 2 inputs"),
    ):
        with pytest.raises(FeedError, match=message):
            bound(*arrays, **named)
    assert np.array_equal(bound()[0], X * 2)
    with pytest.raises(FeedError, match=r"cannot be replaced\n  help: fill it, bound.inputs\['x'\]\[...\] = array"):
        bound.inputs["x"] = X  # type: ignore[index]


def test_models_that_cannot_be_bound_say_so() -> None:
    session = gc.InferenceSession()
    words = Graph("words", {"x": TensorType(D.string, ["n"])})
    words.output(y=words["x"])
    lists = Graph("lists", {"x": SequenceType(TensorType(D.float32, [2]))})
    lists.output(y=ops.onnx.SequenceLength(lists["x"]))
    for graph in (words, lists):
        with pytest.raises(ModelError, match="has strings, lists or optionals"):
            session.load(graph).bind(n=2)
    changed = Graph("kept", {"x": TensorType(D.float32, [2]), "b": Buffer(D.float32, [2])})
    changed["b"] = changed["x"]
    changed.output(y=changed["b"] + 1)
    with pytest.raises(ModelError, match="kept has buffers"):
        session.load(changed).bind()


def test_call_that_fails_says_why_and_leaves_the_next_one_right() -> None:
    graph = Graph("picked", {"i": TensorType(D.int64, ["n"])})
    graph.output(y=ops.gather(graph.constant(np.arange(4, dtype=np.float32)), graph["i"]))
    bound = gc.InferenceSession().load(graph).bind(n=1)
    with pytest.raises(RunError, match=r"picked: onnxruntime failed(.|\n)*i +int64\[1\]"):
        bound(np.array([9]))
    assert bound(np.array([3]))[0].tolist() == [3]


@pytest.mark.full
def test_bound_outlives_the_model() -> None:
    bound = affine().bind(X, TWO)
    collector.collect()
    assert np.array_equal(bound()[0], X * 2)
    y = bound.outputs["y"]
    del bound
    collector.collect()
    assert np.array_equal(y, X * 2)


def test_threads_with_a_bound_of_their_own_do_not_disturb_each_other() -> None:
    model = affine()
    wrong: list[int] = []

    def run(i: int) -> None:
        bound = model.bind(X + i, TWO)
        wrong.extend(i for _ in range(200) if not np.array_equal(bound()[0], (X + i) * 2))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("shape", [(4,), (2, 2), (), (0, 3)])
def test_bools_count_as_0_and_1_whatever_bytes_are_filled_in(shape: tuple[int, ...]) -> None:
    graph = Graph("count", {"x": TensorType(D.bool, [f"n{i}" for i in range(len(shape))])})
    graph.output(count=ops.sum(graph["x"].cast(D.int32)), other=~graph["x"])
    bound = gc.InferenceSession(intra_op_num_threads=1).load(graph).bind(x=shape)
    octets = np.resize(np.array([255, 0, 2, 1], np.uint8), shape)
    bound.inputs["x"].view(np.uint8)[...] = octets
    count, other = bound()
    assert int(count) == np.count_nonzero(octets)
    assert np.array_equal(other, octets == 0)


def test_sizes_that_make_a_dim_less_than_0_are_named() -> None:
    graph = Graph("less", {"x": TensorType(D.float32, ["n - 4"])})
    graph.output(y=graph["x"] + 1)
    model = gc.InferenceSession().load(graph)
    with pytest.raises(FeedError, match=r"less: with n=2, input 'x' would be float32\[-2\]"):
        model.bind(n=2)
    assert model.bind(n=4)()[0].shape == (0,)


def test_mapping_of_the_arrays_is_one_of_names() -> None:
    bound = affine().bind(rows=2)
    assert list(bound.inputs) == ["x", "scale"]
    assert {**bound.outputs}.keys() == {"y", "total"}
    assert len(bound.outputs) == 2
    assert "'scale': array(0., dtype=float32)" in repr(bound.inputs)
    with pytest.raises(KeyError):
        bound.outputs["none"]
