"""Buffers in graphs: stores and loads in build order, in files, and refusals."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Buffer, DType, Graph, Shape, TensorType, ops
from graphcore.errors import (
    DTypeError,
    FeedError,
    GraphcoreError,
    GraphError,
    ResourceLimitError,
    ShapeError,
    SymbolError,
)
from graphcore.ir.transform.rewrite import NOTE
from graphcore.onnx import notes
from tests.sampling import drawn

D = DType
ROWS, COLUMNS = 3, 4


def load(graph: Graph) -> gc.Model:
    return gc.InferenceSession().load(graph)


def vector(initial: object = None) -> Graph:
    return Graph("g", {"x": TensorType(D.float32, [2]), "b": Buffer(D.float32, [2], initial=initial)})


# Programs of loads and stores

bound = st.none() | st.integers(-6, 6)
part = st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, -1, -3]))
index = st.tuples(st.integers(-ROWS, ROWS - 1) | part, st.integers(-COLUMNS, COLUMNS - 1) | part)
statement = st.one_of(
    st.tuples(st.just("load"), index),
    st.tuples(st.just("add"), st.integers(-3, 3)),
    st.tuples(st.just("store"), st.integers(-3, 3)),
    st.tuples(st.just("number"), index),
    st.tuples(st.just("value"), index),
    st.tuples(st.just("row"), st.integers(-ROWS, ROWS - 1)),
    st.tuples(st.just("span"), st.integers(-COLUMNS, COLUMNS)),
)


def perform(program: list[tuple[str, Any]], b: Any, x: Any, at: Any) -> list[Any]:
    """The program on a buffer, or on an array. Returns what is loaded; the last one is the buffer itself."""
    loaded = []
    for what, how in program:
        if what == "load":
            loaded.append(b[how] * 1)
        elif what == "add":
            b += x * how
        elif what == "store":
            b[...] = x - how
        elif what == "number":
            b[how] = 7
        elif what == "value":
            b[how] = x[0, 0] + b[how]
        elif what == "row":
            b[at, ::2] = x[how, ::-2]
        else:
            b[:, at:how] = x[0, 1]
    return [*loaded, b * 1]


programs = st.lists(statement, min_size=1, max_size=6)
calls = st.lists(st.integers(-ROWS, ROWS - 1), min_size=3, max_size=3)


def check_program(program: list[tuple[str, Any]], places: list[int]) -> None:
    """Check that a program gives what NumPy gives over several calls, in static and in dynamic shapes."""
    for dims in ([ROWS, COLUMNS], ["r", "c"]):
        types = {"x": TensorType(D.int32, dims), "at": TensorType(D.int64)}
        graph = Graph("program", types | {"b": Buffer(D.int32, dims)})
        graph.output(perform(program, graph.buffers["b"], graph["x"], graph["at"]))
        model = load(graph)
        now = np.zeros((ROWS, COLUMNS), np.int32)
        model.buffers["b"] = now
        for call, at in enumerate(places):
            x = np.arange(ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS) + 100 * call
            want = perform(program, now, x, at)
            for got, value in zip(model(x, np.array(at)), want, strict=True):
                np.testing.assert_array_equal(got, value)
            np.testing.assert_array_equal(model.buffers["b"], now)


@given(programs, calls)
@settings(max_examples=8, deadline=None)
def test_programs_of_loads_and_stores_over_several_calls_give_what_numpy_gives(
    program: list[tuple[str, Any]], places: list[int]
) -> None:
    check_program(program, places)


@pytest.mark.full
@given(programs, calls)
@settings(max_examples=drawn(40), deadline=None)
def test_many_programs_over_several_calls_give_what_numpy_gives(
    program: list[tuple[str, Any]], places: list[int]
) -> None:
    check_program(program, places)


def test_load_gives_what_was_stored_last_and_does_not_change_when_built_before_a_store() -> None:
    graph = vector()
    x, b = graph.inputs
    before, same = ops.buffer_load(b), b.reshape(2)
    ops.buffer_store(b, b + x)
    between = ops.buffer_load(b)
    graph["b"] *= 2.0
    graph.output(before, same, between, b, ops.sum(b), b.T if b.rank == 2 else -b)
    model = load(graph)
    one = np.ones(2, np.float32)
    assert [r.tolist() for r in model(one)] == [[0, 0], [0, 0], [1, 1], [2, 2], 4, [-2, -2]]
    assert [r.tolist() for r in model(one)] == [[2, 2], [2, 2], [3, 3], [6, 6], 12, [-6, -6]]


def test_slices_are_cut_off_at_the_ends_and_write_nothing_where_they_are_empty() -> None:
    graph = Graph("g", {"at": TensorType(D.int64), "n": TensorType(D.int64), "b": Buffer(D.int8, [5])})
    at, n, b = graph.inputs
    graph.buffers["b"][at : at + n] = np.int8(1)
    model = load(graph)
    for start, count in ((3, 4), (9, 2), (2, 0), (-2, 1), (4, 1), (0, 9)):
        want = np.zeros(5, np.int8)
        want[start : start + count] = 1
        assert model(np.array(start), np.array(count)) == []
        assert model.buffers["b"].tolist() == want.tolist(), (start, count)
        model.buffers.reset()
    assert b.shape == [5]


def test_buffer_is_what_it_holds_now_wherever_an_op_takes_a_symbol() -> None:
    results = {
        "flag": Buffer(D.bool),
        "count": Buffer(D.int64, initial=2),
        "sizes": Buffer(D.int64, [2], initial=[1, 3]),
    }
    graph = Graph("g", {"x": TensorType(D.float32, [3]), **results})
    x, flag, count, sizes = graph.inputs
    uses = {
        "cond": ops.cond(flag, lambda: x, lambda: -x),
        "full": ops.full([], count),
        "filled": ops.full([2], count),
        "top": ops.top_k(x, count)[0],
        "part": x[:count],
        "item": x[count],
        "times": ops.repeat_interleave(x[:2], sizes),
        "shaped": ops.reshape(x, sizes, out_dims=[1, 3]),
        "window": ops.hann_window(count),
        "while": ops.while_loop(lambda i: i < count, lambda i: i + 1, count - 2),
        "band": ops.band_part(ops.broadcast_to(x, [3, 3]), count - 2, -1),
        "list": ops.stack([count, count + 1]),
    }
    graph["flag"] = True
    graph["count"] = 1
    graph["sizes"] = sizes * 0
    graph.output(**uses)
    model = load(graph)
    array = np.array([5, 1, 4], np.float32)
    for result in (model(array), load(pickle.loads(pickle.dumps(graph)))(array)):
        shown = dict(zip(uses, [np.asarray(r).tolist() for r in result], strict=True))
        assert shown["cond"] == [-5, -1, -4]
        assert (shown["full"], shown["filled"], shown["top"]) == (2, [2, 2], [5, 4])
        assert (shown["part"], shown["item"], shown["times"]) == ([5, 1], 4, [5, 1, 1, 1])
        assert (shown["shaped"], shown["while"], shown["list"]) == ([[5, 1, 4]], 2, [2, 3])
        assert len(shown["window"]) == 2
        assert shown["band"] == [[5, 1, 4], [0, 1, 4], [0, 0, 4]]


def test_buffer_of_a_run_begins_anew_and_works_in_bodies() -> None:
    graph = Graph("g", {"x": TensorType(D.int32, ["n", 2])})
    (x,) = graph.inputs
    with graph:
        zeros = ops.buffer_create(Buffer(D.int32, ["n", 2], initial=3))
        text = ops.buffer_create(Buffer(D.string, [1]))
        exact = ops.buffer_create(Buffer(D.int16, [2], initial=[4, 5]))
    copied = ops.buffer_create(x)
    zeros += 1
    copied[0] = 9

    def turn(i: Any, total: Any) -> Any:
        inside = ops.buffer_create(total)
        inside[i] = copied[0, 1] + exact[1]
        return inside * 1

    graph.output(zeros, copied, text, ops.for_loop(2, turn, x[0]))
    model = load(graph)
    for _ in range(2):
        a, b, c, d = model(np.array([[1, 2], [3, 4]], np.int32))
        assert a.tolist() == [[4, 4], [4, 4]]
        assert b.tolist() == [[9, 9], [3, 4]]
        assert (c.tolist(), d.tolist()) == ([""], [14, 14])


def test_loads_within_bodies_and_functions_see_what_is_stored_so_far() -> None:
    graph = vector()
    x, b = graph.inputs
    b[0] = 5.0
    twice = gc.function(lambda value: value * 2)
    b[...] = twice(b)
    chosen = ops.cond(x.sum() > 0, lambda: b + 1, lambda: b)
    graph.output(chosen, ops.for_loop(3, lambda i, total: total + b, x))
    first, total = load(graph)(np.array([1, 2], np.float32))
    assert (first.tolist(), total.tolist()) == ([11, 1], [31, 2])


def test_stored_value_is_cast_where_its_dtype_is_held_exactly() -> None:
    graph = Graph("g", {"x": TensorType(D.int8, [2]), "b": Buffer(D.bfloat16, [2]), "i": Buffer(D.int32, [2])})
    x, b, i = graph.inputs
    ops.buffer_store(b, x)
    ops.buffer_store(i, np.array([300, -4], np.int16))
    ops.buffer_store_slice(i, True, [slice(0, 1)])
    graph.output(b.cast(D.float32))
    model = load(graph)
    assert model(np.array([-128, 127], np.int8))[0].tolist() == [-128, 127]
    assert model.buffers["i"].tolist() == [1, -4]
    ambiguous = Graph("a", {"b": Buffer(D.int8, [2])}, promotion="anvil")
    ambiguous["b"] = ambiguous.constant([1, 2], D.int32, ambiguous=True)
    assert not ambiguous["b"].ambiguous
    load(ambiguous)()


# Files


def decoded(model: onnx.ModelProto) -> Any:
    return json.loads(notes.read({p.key: p.value for p in model.metadata_props})[NOTE])


@pytest.mark.parametrize("target", ["onnx", "cpu", "cuda"])
def test_file_has_an_input_and_an_output_for_each_buffer_and_loads_with_buffers(target: Any) -> None:
    graph = Graph("g", {"x": TensorType(D.bfloat16, [2]), "b": Buffer(D.bfloat16, [2], initial=[1, 2], in_place=True)})
    graph["b"] += graph["x"]
    graph.output(y=graph["b"].cast(D.float32))
    model = graph.to_onnx(target=target)
    onnx.checker.check_model(model, full_check=True)
    assert [i.name for i in model.graph.input] == ["x", "b"]
    assert [o.name for o in model.graph.output] == ["y", "b_out"]
    assert decoded(model)["b"].keys() == {"output", "initial", "in_place"}
    again = Graph.load(model)
    assert [*again.buffers] == ["b"]
    assert again.buffers["b"].buffer.in_place
    assert again.output_types.keys() == {"y"}
    one = np.ones(2, D.bfloat16.numpy)
    for loaded in (load(graph), load(again), gc.InferenceSession().load(model), load(Graph.load(again.to_onnx()))):
        assert [loaded(one)[0].tolist() for _ in range(3)] == [[2, 3], [3, 4], [4, 5]]


def test_file_runs_in_plain_onnxruntime_where_the_state_is_fed_by_hand() -> None:
    graph = vector()
    graph["b"] += graph["x"]
    graph.output(y=graph["b"])
    session = onnxruntime.InferenceSession(graph.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    state = np.zeros(2, np.float32)
    for turn in (1, 2, 3):
        y, state = session.run(["y", "b_out"], {"x": np.ones(2, np.float32), "b": state})
        assert y.tolist() == state.tolist() == [turn, turn]


def test_names_of_outputs_give_way_and_a_buffer_that_is_only_read_has_none() -> None:
    results = {"b": Buffer(D.float32, [2]), "c": Buffer(D.float32, [2])}
    graph = Graph("g", results | {"b_out": TensorType(D.float32, [2])})
    graph["b"] = graph["b_out"]
    graph.output(c_out=graph["c"] + graph["b"], b_out_1=graph["b"])
    model = graph.to_onnx()
    assert [o.name for o in model.graph.output] == ["c_out", "b_out_1", "b_out_2"]
    assert decoded(model) == {"b": {"output": "b_out_2"}, "c": {}}
    for loaded in (load(graph), gc.InferenceSession().load(model)):
        loaded.buffers["c"] = np.array([1, 2], np.float32)
        assert [r.tolist() for r in loaded(np.array([4, 4], np.float32))] == [[5, 6], [4, 4]]
        assert loaded.buffers["c"].tolist() == [1, 2]


@pytest.mark.parametrize(
    "note",
    [
        "no json",
        "[]",
        "[" * 100_000,
        '{"b": {"output": "missing"}}',
        '{"missing": {"output": "b_out"}}',
        '{"b": {"output": "y"}}',
        '{"b": {"output": "b_out"}, "x": {"output": "b_out"}}',
        '{"b": {"output": "b_out", "initial": "%%"}}',
        '{"b": {"output": "b_out", "initial": "AAAA"}}',
        '{"b": {"output": "b_out", "initial": 7}}',
        '{"b": 5}',
        '{"b": {"output": ["b_out"]}}',
    ],
)
def test_note_of_a_file_is_passed_over_where_it_does_not_fit(note: str) -> None:
    graph = vector()
    graph["b"] += graph["x"]
    graph.output(y=graph["b"].sum())
    model = graph.to_onnx()
    for value in (*model.graph.input, *model.graph.output):
        value.ClearField("metadata_props")  # as files of before have it, or tools that leave it out
    next(p for p in model.metadata_props if p.key.startswith(NOTE)).value = note
    again = Graph.load(model)
    assert not again.buffers
    assert [s.name for s in again.inputs] == ["x", "b"]
    assert NOTE not in notes.read({p.key: p.value for p in again.to_onnx().metadata_props})


def test_large_initial_values_stay_out_of_files_but_not_out_of_sessions() -> None:
    graph = Graph("g", {"b": Buffer(D.float32, [1 << 18, 2], initial=np.ones((1 << 18, 2)))})
    graph["b"] += 1
    assert load(graph)() == []
    with pytest.raises(ResourceLimitError, match="the limit in a file is 1048576"):
        graph.to_onnx()
    wide = Graph("g", {"b": Buffer(DType.int(100), [2], initial=1 << 80)})
    wide["b"] += 1
    load(wide)()
    with pytest.raises(GraphError, match="int100"):
        wide.to_onnx()


# Graphs as values


def test_graph_with_buffers_is_copied_pickled_shown_and_optimised_whole() -> None:
    graph = vector([1, 2])
    x, b = graph.inputs
    ops.buffer_store(b, (b + x) * 1.0)
    graph.output(y=b.sum())
    assert str(graph).splitlines()[2].split("#")[0].split() == ["buffer", "b:", "float32[2]"]
    assert "store   b = mul" in str(graph)
    one = np.ones(2, np.float32)
    for other in (graph.copy(), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph)), graph.optimize()):
        if other.outputs == ():
            other.output(total=other["b"].sum())
        model = load(other)
        assert [float(model(one)[0]) for _ in range(2)] == [5, 7]
        other["b"] = other["x"]
        assert load(other).buffers["b"].tolist() == [1, 2]
    assert len(graph.optimize().nodes) < len(graph.nodes)
    assert pickle.loads(pickle.dumps(b)).name == "b"
    assert pickle.loads(pickle.dumps(b)).graph.buffers["b"].value.name == graph.buffers["b"].value.name


# What is refused


def refused(kind: type[GraphcoreError], text: str, call: Any) -> None:
    with pytest.raises(kind, match=text) as raised:
        call()
    assert raised.value.help


def test_stores_of_what_a_buffer_does_not_hold_are_refused() -> None:
    graph = Graph("g", {"x": TensorType(D.float64, [2]), "b": Buffer(D.float32, [2]), "n": Buffer(D.int8, ["n", 2])})
    x, b, n = graph.inputs
    refused(DTypeError, r"float32, which cannot hold every value of float64", lambda: ops.buffer_store(b, x))
    refused(DTypeError, r"300 cannot be held in int8", lambda: n.__setitem__(0, 300))
    refused(DTypeError, r"string values", lambda: b.__setitem__(0, "a"))
    refused(ShapeError, r"the buffer holds float32\[2\]", lambda: ops.buffer_store(b, np.ones(3, np.float32)))
    refused(ShapeError, r"the buffer holds int8\[n, 2\]", lambda: ops.buffer_store(n, np.ones(2, np.int8)))
    refused(ShapeError, r"does not broadcast to \[2\]", lambda: b.__setitem__(..., np.ones(3, np.float32)))
    refused(ShapeError, r"does not broadcast to \[1\]", lambda: b.__setitem__(slice(1), np.ones(2, np.float32)))
    refused(ShapeError, r"does not broadcast to \[\]", lambda: b.__setitem__(0, np.ones(1, np.float32)))
    refused(ShapeError, r"out of bounds", lambda: b.__setitem__(2, 1.0))
    for bad in ([0], np.array([True, False]), None, x.cast(D.int64)):
        refused(DTypeError, r"only ints", lambda bad=bad: b.__setitem__(bad, 1.0))
    refused(DTypeError, r"buffer must be a buffer, got Symbol", lambda: ops.buffer_store(x, x))
    refused(DTypeError, r"buffer must be a buffer, got ndarray", lambda: ops.buffer_load(np.ones(2)))  # type: ignore[arg-type]
    refused(GraphError, r"has no buffer", lambda: graph.__setitem__("x", x))
    refused(SymbolError, r"Symbols are immutable", lambda: x.__setitem__(0, 1.0))
    refused(GraphError, r"cannot be renamed", lambda: setattr(b, "name", "other"))
    other = vector()
    refused(GraphError, r"belongs to graph", lambda: ops.buffer_store(b, other["x"]))
    refused(GraphError, r"no outputs", lambda: other.verify())


def test_stores_within_bodies_are_refused() -> None:
    graph = vector()
    x, b = graph.inputs

    def store(*values: Any) -> Any:
        ops.buffer_store(b, x)
        return x

    refused(GraphError, "cannot be stored to in 'then'", lambda: ops.cond(x.sum() > 0, store, lambda: x))
    refused(GraphError, "the body of another graph", lambda: ops.for_loop(3, store, x))
    refused(GraphError, "the body of another graph", lambda: gc.function(store)(x))
    results = []

    def leak(i: Any, total: Any) -> Any:
        results.append(ops.buffer_create(total))
        return total

    ops.for_loop(3, leak, x)
    refused(GraphError, "body", lambda: ops.buffer_store(results[-1], x))
    refused(GraphError, "body", lambda: results[-1] + 1)


def test_buffers_are_declared_as_inputs_of_graphs_only() -> None:
    wrong: Any = [Buffer(D.int8, [2])]
    refused(GraphError, "declared as a Buffer", lambda: vector().subgraph("f", lambda x: x, wrong))
    refused(FeedError, "Buffer", lambda: gc.jit(lambda x, b: x)(np.ones(2), Buffer(D.int8, [2])))
    refused(DTypeError, "300 cannot be held in int8", lambda: Buffer(D.int8, [2], initial=300))
    refused(ShapeError, r"has shape \[3\]", lambda: Buffer(D.int8, [2], initial=[1, 2, 3]))
    refused(ShapeError, r"has shape \[2\]", lambda: Buffer(D.int8, ["n", 2], initial=[1, 2]))
    refused(ShapeError, "rank of a buffer", lambda: Buffer(D.int8, Shape.unknown()))
    with pytest.raises(AttributeError, match="immutable"):
        Buffer(D.int8, [2]).in_place = True
    assert repr(Buffer("int8", ["n", 2], in_place=True)) == "Buffer(DType.int8, [n, 2], in_place=True)"
    assert str(Buffer("int8", ["n", 2])) == "buffer int8[n, 2]"
