"""The state of a Model between calls: every dtype, several states, threads, calls that fail."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Buffer, DType, Graph, Model, SequenceType, TensorType, ops
from graphcore.arrays import big_integers
from graphcore.errors import FeedError, GraphcoreError, ModelError, RunError
from tests.support.every.case import ALL

pytestmark = pytest.mark.releases

D = DType
MORE = (
    D.int2,
    D.uint2,
    D.float4_e2m1,
    D.float6_e3m2fn,
    D.float8_e4m3fnuz,
    D.float8_e5m2fnuz,
    DType.int(23),
    DType.uint(3),
)


def load(graph: Graph) -> Model:
    return gc.InferenceSession().load(graph)


def counter(initial: object = None) -> Graph:
    """Return the number of calls, times `by`."""
    graph = Graph("counter", {"by": TensorType(D.int64), "count": Buffer(D.int64, initial=initial)})
    graph["count"] += 1
    graph.output(graph["count"] * graph["by"])
    return graph


def called(state: Any, *arrays: Any) -> Any:
    return [a.tolist() for a in state(*map(np.asarray, arrays))]


# Dtypes


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [*ALL, *MORE], ids=str)
def test_state_of_any_dtype_is_kept_as_it_was_stored(dtype: DType) -> None:
    types = {"x": TensorType(dtype, [4]), "at": TensorType(D.int64)}
    graph = Graph("kept", types | {"b": Buffer(dtype, [3, 4]), "last": Buffer(dtype, ["n"])})
    old, last = ops.buffer_load(graph.buffers["b"]), ops.buffer_load(graph.buffers["last"])
    graph.buffers["b"][graph["at"]] = graph["x"]
    graph["last"] = ops.concat([last, graph["x"][:1]])
    graph.output(old, graph["b"], last)
    model = load(graph)
    rows = [np.array(row).astype(dtype.numpy) for row in ([0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1])]
    now = np.zeros((3, 4), dtype.numpy)
    for turn, row in enumerate(rows):
        was, is_now, ends = model(row, np.array(turn))
        assert was.tobytes() == now.tobytes()
        now[turn] = row
        assert is_now.dtype == model.buffers["b"].dtype == dtype.numpy
        assert is_now.tobytes() == model.buffers["b"].tobytes() == now.tobytes()
        assert ends.tobytes() == now[:turn, 0].tobytes()
    model.buffers["b"] = now[::-1]
    assert model.buffers["b"].tobytes() == now[::-1].tobytes()
    assert model(rows[0], np.array(1))[0].tobytes() == now[::-1].tobytes()


@pytest.mark.numbers
def test_state_of_strings_and_of_wide_integers_is_kept() -> None:
    wide = DType.int(100)
    types = {"s": TensorType(D.string), "w": TensorType(wide)}
    graph = Graph("g", types | {"words": Buffer(D.string, [2], initial="-"), "bfloats": Buffer(D.bfloat16, [1])})
    graph.buffers["words"][1] = graph["s"]
    graph["bfloats"] += 1
    graph.output(graph["words"], graph["bfloats"])
    model = load(graph)
    assert called(model, np.array("a", object), big_integers.array_of(1)) == [["-", "a"], [1.0]]
    assert called(model, np.array("b", object), big_integers.array_of(1)) == [["-", "b"], [2.0]]
    assert model.buffers["words"].tolist() == ["-", "b"]
    assert model.buffers["bfloats"].tolist() == [2]
    long = Graph("g", {"x": TensorType(wide), "b": Buffer(wide, [], initial=1 << 70)})
    long["b"] *= long["x"]
    long.output(long["b"])
    model = load(long)
    for power in (1, 2):
        assert model.execute(big_integers.array_of(-2), wide="object")[0] == (1 << 70) * (-2) ** power
    assert big_integers.from_digits(model.buffers["b"], wide) == 1 << 72
    model.buffers["b"] = big_integers.array_of(3)
    assert model.execute(big_integers.array_of(5), wide="object")[0] == 15


def test_state_is_kept_beside_sequences() -> None:
    graph = Graph("g", {"list": SequenceType(TensorType(D.float32, [2])), "b": Buffer(D.float32, [2])})
    first = ops.onnx.SequenceAt(graph["list"], np.array(0))
    graph["b"] += first
    graph.output(graph["b"].sum())
    model = load(graph)
    assert [float(model([np.ones(2, np.float32)])[0]) for _ in range(3)] == [2, 4, 6]


# States


def test_states_of_one_model_are_independent() -> None:
    model = load(counter(10))
    one, two = model.state(), model.state(count=np.array(100))
    assert [called(s, 1) for s in (model, one, two, one, two, one)] == [[11], [11], [101], [12], [102], [13]]
    three = one.copy()
    assert [called(s, 2) for s in (one, three, three, model)] == [[28], [28], [30], [24]]
    assert [int(s.buffers["count"]) for s in (model, one, two, three)] == [12, 14, 102, 15]
    assert repr(one) == "<State of counter: count: int64[]>"


def test_buffers_are_read_set_and_reset() -> None:
    graph = Graph("g", {"a": Buffer(D.float32, [2], initial=[1, 2]), "b": Buffer(D.int8, [])})
    graph["a"] *= 2
    graph["b"] += 1
    graph.output(graph["a"])
    model = load(graph)
    first = model()[0]
    read, argument = model.buffers["a"], np.array([5, 6], np.float32)
    model.buffers["a"] = argument
    argument[:] = read[:] = first[:] = 0
    assert model.buffers["a"].tolist() == [5, 6]
    assert called(model) == [[10, 12]]
    model.buffers.reset("a")
    assert {name: value.tolist() for name, value in dict(model.buffers).items()} == {"a": [1, 2], "b": 2}
    model.buffers.reset()
    assert (called(model), int(model.buffers["b"])) == ([[2, 4]], 1)
    assert (len(model.buffers), [*model.buffers], "a" in model.buffers, "c" in model.buffers) == (
        2,
        ["a", "b"],
        True,
        False,
    )
    assert repr(model) == "<Model g() -> mul_3: float32[2], keeps a: float32[2], b: int8[]>"
    assert repr(model.buffers) == "<Buffers: a: float32[2], b: int8[]>"
    assert (model.inputs, [*model.outputs]) == ({}, ["mul_3"])


def test_what_a_call_returns_is_not_what_the_buffer_holds() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, [3]), "b": Buffer(D.float32, [3]), "c": Buffer(D.float32, ["n"])})
    graph["b"] = graph["x"]
    graph["c"] = graph["x"]
    graph.output(graph["b"], graph["c"], graph["x"])
    model, x = load(graph), np.ones(3, np.float32)
    for result in model(x):
        result[:] = 7
    x[:] = 8
    assert model.buffers["b"].tolist() == model.buffers["c"].tolist() == [1, 1, 1]


def test_dims_of_buffers_are_those_of_the_inputs_at_first_and_may_change_in_calls() -> None:
    results = {"sum": Buffer(D.float32, ["batch"], initial=1), "all": Buffer(D.float32, ["t", "batch"])}
    graph = Graph("g", {"x": TensorType(D.float32, ["batch"]), **results})
    graph["sum"] += graph["x"]
    graph["all"] = ops.concat([graph["all"], graph["x"].reshape(1, "batch")])
    graph.output(graph["all"].sum())
    model = load(graph)
    assert (model.buffers["sum"].shape, model.buffers["all"].shape) == ((0,), (0, 0))
    for turn in (1, 2, 3):
        assert called(model, np.ones(2, np.float32)) == [2 * turn]
    assert model.buffers["sum"].tolist() == [4, 4]
    assert model.buffers["all"].shape == (3, 2)
    message = (
        r"axis 0 of buffer 'sum' is batch, which is 3 in input 'x', but its value is float32\[2\](.|\n)*buffers\.reset"
    )
    with pytest.raises(FeedError, match=message):
        model(np.ones(3, np.float32))
    assert called(model.state(), np.ones(3, np.float32)) == [3]
    model.buffers.reset()
    assert called(model, np.ones(5, np.float32)) == [5]


def test_shape_that_only_the_run_knows_must_be_the_buffers() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, ["n"]), "b": Buffer(D.float32, [2])})
    graph["b"] = graph["x"][graph["x"] > 0] * 2.0
    graph.output(graph["b"].sum())
    model = load(graph)
    assert called(model, np.array([1, -1, 2], np.float32)) == [6]
    with pytest.raises(RunError, match=r"the value stored to buffer 'b' is float32\[1\]"):
        model(np.array([1, -1], np.float32))
    assert model.buffers["b"].tolist() == [2, 4]


# Calls that fail, and threads


def rows(in_place: bool) -> Graph:
    """Store a row, then split the positions into two parts, which fails for another number of them."""
    cache = Buffer(D.float32, [4, 2], in_place=in_place)
    graph = Graph("rows", {"at": TensorType(D.int64), "parts": TensorType(D.int64), "cache": cache})
    graph.buffers["cache"][graph["at"]] = 1.0
    loaded = ops.buffer_load(graph.buffers["cache"])
    graph.output(graph.op("Reshape", [loaded, ops.stack([graph["parts"], graph["parts"]])])[0])
    return graph


def test_call_that_fails_leaves_the_buffers_as_they_were() -> None:
    model = load(rows(in_place=False))
    with pytest.raises(FeedError):
        model(np.array(0))
    for at, parts in ((0, 3), (9, 2)):
        with pytest.raises(RunError, match="onnxruntime failed"):
            model(np.array(at), np.array(parts))
        assert not model.buffers["cache"].any()
    assert not model.buffers.in_place


def test_call_that_fails_loses_a_buffer_that_is_written_in_place_until_it_is_set() -> None:
    graph = Graph("g", {"at": TensorType(D.int64), "b": Buffer(D.float32, [4], in_place=True), "n": Buffer(D.int64)})
    graph.buffers["b"][graph["at"]] = 1.0
    graph["n"] += 1
    graph.output(graph["n"])
    model = load(graph)
    assert model.buffers.in_place == ("b",)
    model(np.array(0))
    uses: list[Any] = [model, lambda at: model.buffers["b"], lambda at: model.debug(at, watch="*")]
    fixes: list[Any] = [model.buffers.reset, lambda: model.buffers.__setitem__("b", np.ones(4, np.float32))]
    for fix in fixes:
        with pytest.raises(RunError, match="onnxruntime failed"):
            model(np.array(9))
        for use in uses:
            with pytest.raises(RunError, match="a failed call may have written to b in place") as raised:
                use(np.array(0))
            assert "reset" in raised.value.help
        fix()
        model(np.array(0))
    assert model.buffers["b"].tolist() == [1, 1, 1, 1]


def test_calls_of_one_state_from_many_threads_do_not_interleave() -> None:
    model = load(counter())
    states: list[Any] = [model, model.state(), model.state()]
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(lambda i: (i % 3, int(states[i % 3](np.array(1))[0])), range(300)))
    for number, state in enumerate(states):
        assert sorted(count for which, count in seen if which == number) == [*range(1, 101)]
        assert state.buffers["count"] == 100
    stop = threading.Event()
    pairs = Graph("pairs", {"b": Buffer(D.int64, [1000])})
    pairs["b"] += 1
    whole = load(pairs)

    def call() -> None:
        while not stop.is_set():
            whole()

    thread = threading.Thread(target=call)
    thread.start()
    try:
        for _ in range(100):
            assert np.unique(whole.buffers["b"]).size == 1
    finally:
        stop.set()
        thread.join()


# What else a Model does


def test_debug_profile_and_benchmark_leave_the_buffers_as_they_are() -> None:
    model = load(counter(5))
    model(np.array(1))
    watched = model.debug(by=np.array(3), watch="*")
    assert sorted(int(v) for v in watched.values()) == [7, 21]
    model.profile(np.array(1), runs=2)
    model.benchmark(np.array(1), runs=2)
    model.placement()
    assert model.buffers["count"] == 6
    named = Graph("g", {"x": TensorType(D.float32, ["n"]), "b": Buffer(D.float32, ["n"])})
    named["b"] += named["x"]
    named.output(named["b"] * 2)
    fresh = load(named)
    assert [v.tolist() for v in fresh.debug(np.ones(2, np.float32), watch="add*").values()] == [[1, 1]]
    assert fresh.buffers["b"].shape == (0,)


def test_weights_may_be_others() -> None:
    graph = Graph("g", {"b": Buffer(D.float32, [2], initial=1)})
    graph["b"] *= graph.weight("w", np.array([2, 3], np.float32))
    graph.output(graph["b"])
    model = gc.InferenceSession().load(graph, weights={"w": np.array([5, 7], np.float32)})
    assert [called(model) for _ in range(2)] == [[[5, 7]], [[25, 49]]]


@pytest.mark.parametrize(
    ("kind", "text", "use"),
    [
        (FeedError, "there is no buffer 'd'", lambda m: m.buffers["d"]),
        (FeedError, "there is no buffer 'd'", lambda m: m.buffers.reset("d")),
        (FeedError, "there is no buffer 'd'", lambda m: m.state(d=np.zeros(2))),
        (
            FeedError,
            r"buffer 'count' must be int64, got float64\[\]",
            lambda m: m.buffers.__setitem__("count", np.array(1.0)),
        ),
        (FeedError, "buffer 'count' must have rank 0", lambda m: m.state(count=np.zeros(2, np.int64))),
        (FeedError, "buffer 'count': 2.5 cannot be held in int64", lambda m: m.buffers.__setitem__("count", 2.5)),
        (FeedError, "2 arrays given for 1 inputs", lambda m: m(np.array(1), np.array(1))),
        (FeedError, "there is no input 'count'", lambda m: m(np.array(1), count=np.array(1))),
    ],
)
def test_use_that_does_not_fit_is_refused(kind: type[GraphcoreError], text: str, use: Any) -> None:
    with pytest.raises(kind, match=text) as raised:
        use(load(counter()))
    assert raised.value.help


def test_model_without_buffers_has_no_states() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, [2])})
    graph.output(graph["x"] + 1)
    model = load(graph)
    for use in (lambda: model.buffers, model.state):
        with pytest.raises(ModelError, match="has no buffers"):
            use()


# In place


def stored(build: Any, shape: tuple[Any, ...] = (4, 2)) -> bool:
    """Return True if the stores of `build` may be in place; check the numbers either way."""
    models = []
    for in_place in (True, False):
        buffer = Buffer(D.float32, shape, in_place=in_place)
        graph = Graph("g", {"at": TensorType(D.int64), "b": buffer})
        graph.output(build(graph, graph.buffers["b"], graph["at"]))
        models.append(load(graph))
    start = np.arange(8, dtype=np.float32).reshape(4, 2)
    for model in models:
        model.buffers["b"] = start
    for at in (0, 2, 1, 2):
        ours, other = (model(np.array(at)) for model in models)
        np.testing.assert_array_equal(ours[0], other[0])
        ours[0].fill(-1)  # which the caller owns
        np.testing.assert_array_equal(models[0].buffers["b"], models[1].buffers["b"])
    return bool(models[0].buffers.in_place)


def test_writing_in_place_is_chosen_where_nothing_else_reads_the_buffer() -> None:
    def row(graph: Graph, b: Any, at: Any) -> Any:
        b[at] = 1.5
        return b.sum(axis=1) + b[at, 0]

    def rows(graph: Graph, b: Any, at: Any) -> Any:
        b[at] = 1.5
        b[:, 1] = b[at, 0] + 2
        return b[1:] - b[:3]

    def read_before(graph: Graph, b: Any, at: Any) -> Any:
        old = ops.buffer_load(b) * 2
        b[at] = 1.5
        return old

    def read_in_body(graph: Graph, b: Any, at: Any) -> Any:
        old = ops.buffer_load(b)
        b[at] = 1.5
        return ops.for_loop(2, lambda i, total: total + old[i, 0], at.cast(D.float32))

    def given_back(graph: Graph, b: Any, at: Any) -> Any:
        b[at] = 1.5
        return ops.buffer_load(b)

    def computed(graph: Graph, b: Any, at: Any) -> Any:
        b[at] = 1.5
        b += 1.0
        return b.sum()

    def of_itself(graph: Graph, b: Any, at: Any) -> Any:
        b[at] = b[0] + 1
        return b.sum()

    def grown(graph: Graph, b: Any, at: Any) -> Any:
        b[at] = 2.0
        ops.buffer_store(b, ops.concat([b, b[:1]])[1:])
        return b.sum()

    assert stored(row)
    assert not any(stored(build) for build in (rows, read_before, read_in_body, computed, of_itself, grown))
    stored(given_back)
    assert stored(row, ("n", "m"))


def test_quantised_graph_keeps_its_buffers() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, [1, 64]), "b": Buffer(D.float32, [1, 64])})
    graph["b"] = graph["x"] + graph["b"] @ graph.weight("w", np.eye(64, dtype=np.float32))
    graph.output(graph["b"])
    quantised = gc.quantize(graph, "int8").graph
    model, x = load(quantised), np.full((1, 64), 3, np.float32)
    assert quantised.buffers.keys() == {"b"}
    for turn in (1, 2, 3):
        np.testing.assert_allclose(model(x)[0], 3 * turn, rtol=0.05)


@pytest.mark.parametrize("in_place", [False, True])
def test_dims_are_compared_again_after_a_buffer_was_set_or_reset(in_place: bool) -> None:
    cache = Buffer(D.float32, ["batch", 4], in_place=in_place)
    graph = Graph("kept", {"x": TensorType(D.float32, ["batch"]), "b": cache})
    graph.buffers["b"][:, 1] = graph["x"]
    graph.output(total=graph["b"].sum(axis=1))
    model = load(graph)
    one, two = np.ones(1, np.float32), np.ones(2, np.float32)
    for _ in range(3):
        assert model(one)[0].shape == (1,)
    for _ in range(2):
        with pytest.raises(FeedError):
            model(two)
        assert model(one)[0].shape == (1,)
    model.buffers["b"] = np.zeros((2, 4), np.float32)
    with pytest.raises(FeedError):
        model(one)
    assert model(two)[0].shape == (2,)
    with pytest.raises(FeedError):
        model(one)
    model.buffers.reset()
    assert model(one)[0].shape == (1,)
    with pytest.raises(FeedError):
        model(two)
