"""Lists of tensors: `ops.list_*` beside Python's lists, in every dtype, in loops and in branches."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, SequenceType, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphcoreError, GraphError, ModelError, RunError, ShapeError
from graphcore.types.tensor_types import Type
from tests.sampling import drawn
from tests.support.every.case import ALL

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
D = DType
ODD = (D.int(5), D.uint(3), D.int(48))
X = np.arange(6, dtype=np.float32).reshape(3, 2)
free: Any = ops
"""The ops without their types, for what they must refuse."""
T: dict[str, Type] = {"x": TensorType(D.float32, ["n", 2])}


def graph_of(build: Callable[..., Any], types: dict[str, Type] = T, **options: Any) -> Graph:
    graph = Graph("lists", types, **options)
    with graph:
        result = build(*graph.inputs)
    graph.output(*result) if isinstance(result, tuple) else graph.output(result)
    return graph


def run(build: Callable[..., Any], *feeds: Any, types: dict[str, Type] = T, **options: Any) -> list[Any]:
    return gc.InferenceSession().load(graph_of(build, types, **options))(*(feeds or (X,)))


def same(result: Any, want: Any) -> bool:
    """Return True if two lists have equal elements of equal dtypes and shapes."""
    return len(result) == len(want) and all(
        a.dtype == b.dtype and a.shape == b.shape and (a == b).all() for a, b in zip(result, want, strict=True)
    )


def filled(dtype: DType) -> Array:
    if dtype is D.bool:
        return np.array([[True, False], [False, False], [True, True]])
    return np.asarray((X + 1).astype(dtype.numpy))


# What they compute


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [*ALL, *ODD], ids=str)
def test_lists_hold_elements_when_of_any_dtype(dtype: DType) -> None:
    x = filled(dtype)

    def build(x: Symbol) -> tuple[Symbol, ...]:
        values = ops.list_append(ops.list_of([x, x[:2]]), x[1:])
        values = ops.list_insert(values, 0, x[:1])
        rest, last = ops.list_pop(ops.list_erase(values, 1))
        cut, rows = ops.list_split(x, 2), ops.list_unstack(x)
        pairs = ops.list_map(lambda a, b: ops.concat([a, b]), rows, rows)
        alone = ops.list_append(ops.list_empty(x.dtype, x.shape), x)
        return (
            ops.list_concat(values),
            ops.list_concat(rest),
            last,
            ops.list_get(cut, -1),
            ops.list_stack(rows, 1),
            ops.list_stack(pairs),
            ops.list_get(alone, 0),
            ops.list_concat(ops.list_split(x, [1, 0, 2])),
        )

    graph = graph_of(build, {"x": TensorType(dtype, ["n", 2])})
    onnx.checker.check_model(graph.to_onnx(target="onnx"), full_check=True)
    want = [
        np.concatenate([x[:1], x, x[:2], x[1:]]),
        np.concatenate([x[:1], x[:2]]),
        x[1:],
        x[2:],
        np.stack(list(x), 1),
        np.concatenate([x, x], 1),
        x,
        x,
    ]
    result = gc.InferenceSession().load(graph)(x)
    for a, b in zip(result, want, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert (a == b).all()


_STEPS = st.lists(st.tuples(st.sampled_from("append insert erase".split()), st.integers(-6, 6)), max_size=6)


@settings(max_examples=drawn(40), deadline=None)
@given(_STEPS)
def test_any_steps_on_a_list_are_those_of_pythons_list(steps: list[tuple[str, int]]) -> None:
    want: list[Array] = [np.array([7], np.float32)]
    graph = Graph("steps")
    with graph:
        values = ops.list_of([np.array([7], np.float32)])
        for count, (step, index) in enumerate(steps):
            x = np.full(count % 3, count, np.float32)
            if step == "append":
                values = ops.list_append(values, x)
                want.append(x)
            elif step == "insert" and -len(want) <= index <= len(want):
                values = ops.list_insert(values, index, x)
                want.insert(index, x)
            elif step == "erase" and -len(want) <= index < len(want):
                values = ops.list_erase(values, index)
                del want[index]
        graph.output(values, ops.list_length(values))
    result, length = gc.InferenceSession().load(graph)()
    assert same(result, want)
    assert length == len(want)


def test_elements_meet_in_a_common_dtype_and_in_the_dims_that_all_have() -> None:
    graph = Graph("meet", {"x": TensorType(D.int8, ["n", 2]), "y": TensorType(D.bfloat16, ["n", 3])})
    x, y = graph.inputs
    assert str(ops.list_of([x, y]).type) == "seq(bfloat16[n, ?])"
    assert str(ops.list_of([x, 1]).type) == "seq(int8[...])"
    assert str(ops.list_get(ops.list_of([x, x]), 0).type) == "int8[n, 2]"
    assert str(ops.list_append(ops.list_of([x]), ops.concat([x, x])).type) == "seq(int8[?, 2])"
    assert str(ops.list_concat(ops.list_of([x, x])).type) == "int8[?, 2]"
    assert str(ops.list_stack(ops.list_of([x, x]), -1).type) == "int8[n, 2, ?]"
    assert str(ops.list_split(y, 1, 1).type) == "seq(bfloat16[n, 1])"
    assert str(ops.list_split(y, 2, 1).type) == "seq(bfloat16[n, ?])"
    assert str(ops.list_split(y, [1, 2], -1).type) == "seq(bfloat16[n, ?])"
    assert str(ops.list_unstack(y).type) == "seq(bfloat16[3])"
    with graph:
        assert str(ops.list_empty(D.float32).type) == "seq(float32[...])"
        assert str(ops.list_empty(TensorType(D.float32, ["n"])).type) == "seq(float32[n])"


def test_python_numbers_take_the_dtype_of_the_list() -> None:
    result, stacked = run(
        lambda x: (ops.list_append(ops.list_of([x, 1]), 2), ops.list_stack(ops.list_of([x[0, 0], 3])))
    )
    assert same(result, [X, np.array(1, np.float32), np.array(2, np.float32)])
    assert stacked.tolist() == [0, 3]


def test_positions_and_sizes_come_with_the_run() -> None:
    types: dict[str, Type] = {**T, "i": TensorType(D.int32, []), "sizes": TensorType(D.uint8, ["k"])}

    def build(x: Symbol, i: Symbol, sizes: Symbol) -> tuple[Symbol, ...]:
        rows = ops.list_unstack(x)
        return ops.list_get(rows, i), ops.list_erase(rows, i), ops.list_split(x, i + 3), ops.list_split(x, sizes)

    got, rest, halves, pieces = run(build, X, np.int32(-1), np.array([2, 1], np.uint8), types=types)
    assert got.tolist() == [4, 5]
    assert same(rest, [X[0], X[1]])
    assert same(halves, [X[:2], X[2:]])
    assert same(pieces, [X[:2], X[2:]])


def test_lists_go_into_models_and_come_out() -> None:
    types: dict[str, Type] = {"l": SequenceType(TensorType(D.int8, ["?"]))}
    results = [np.array([1, 2], np.int8), np.array([3], np.int8)]
    result, length = run(
        lambda v: (ops.list_append(v, np.array([4], np.int8)), ops.list_length(v)), results, types=types
    )
    assert same(result, [*results, np.array([4], np.int8)])
    assert length == 2


def test_strings_are_elements_too() -> None:
    types: dict[str, Type] = {"s": TensorType(D.string, ["n"])}
    words = np.array(["a", "b", "a"], object)
    results, hits = run(
        lambda s: (ops.list_split(s, 2), ops.list_map(lambda word: word == np.array("a", object), ops.list_unstack(s))),
        words,
        types=types,
    )
    assert [piece.tolist() for piece in results] == [["a", "b"], ["a"]]
    assert [bool(hit) for hit in hits] == [True, False, True]


@pytest.mark.parametrize("dtype", [D.int8, D.uint8, D.uint16, D.uint32, D.uint64], ids=str)
def test_models_cut_tensors_of_dtypes_that_the_runtime_does_not_cut(dtype: DType) -> None:
    nodes = [
        onnx.helper.make_node("SplitToSequence", ["x"], ["rows"], keepdims=0),
        onnx.helper.make_node("ConcatFromSequence", ["rows"], ["y"], axis=0, new_axis=1),
    ]
    infos = [onnx.helper.make_tensor_value_info("x", dtype.onnx, ["n", 2])]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("rows", "y")]
    graph = onnx.helper.make_graph(nodes, "cut", infos, outputs)
    x = filled(dtype)
    x[0, 0] = int(dtype.max)
    rows, y = gc.InferenceSession().load(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 26)])
    )(x)
    assert same(rows, list(x))
    assert y.dtype == x.dtype
    assert (y == x).all()


# In loops, branches, functions and maps


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.float32, D.bfloat16, D.int4, D.float8_e4m3fn, D.index], ids=str)
def test_a_loop_grows_a_list_when_of_any_dtype(dtype: DType) -> None:
    def build(x: Symbol) -> tuple[Symbol, ...]:
        x = x.cast(dtype)
        grown = ops.for_loop(3, lambda i, values: ops.list_append(values, x[:i]), ops.list_of([x]))
        doubled = ops.while_loop(
            lambda values: ops.list_length(values) < 4,
            lambda values: ops.list_append(values, ops.list_get(values, -1)),
            ops.list_empty(dtype, [2]) if dtype is None else ops.list_of([x[1]]),
        )
        assert str(grown.type) == f"seq({dtype}[?, 2])"
        return ops.list_concat(grown).cast(D.float32), ops.list_stack(doubled).cast(D.float32)

    grown, doubled = run(build)
    assert (grown == np.concatenate([X, X[:0], X[:1], X[:2]])).all()
    assert (doubled == np.stack([X[1]] * 4)).all()


def test_a_loop_widens_the_type_of_a_list() -> None:
    def build(x: Symbol) -> Symbol:
        y = ops.for_loop(2, lambda i, values: ops.list_append(values, x[0]), ops.list_of([x]))
        assert str(y.type) == "seq(float32[...])"
        return y

    (y,) = run(build)
    assert same(y, [X, X[0], X[0]])


def test_branches_give_lists_of_what_both_have() -> None:
    def build(x: Symbol) -> Symbol:
        y = ops.cond(x[0, 0] > 0, lambda: ops.list_of([x[:1]]), lambda: ops.list_of([x, x[:2]]))
        assert str(y.type) == "seq(float32[?, 2])"
        return ops.list_concat(y)

    assert (run(build)[0] == np.concatenate([X, X[:2]])).all()
    assert (run(build, X + 1)[0] == X[:1] + 1).all()


def test_a_map_gives_lists_put_together_as_its_function_does() -> None:
    def build(x: Symbol) -> tuple[Symbol, ...]:
        rows = ops.list_unstack(x)
        y = ops.list_map(lambda row: {"sum": row.sum(), "all": (row + x[0], row.cast(D.bfloat16))}, rows)
        return y["sum"], y["all"][0], ops.list_stack(y["all"][1]).cast(D.float32)

    sums, moved, back = run(build)
    assert same(sums, list(X.sum(1)))
    assert same(moved, list(X + X[0]))
    assert (back == X).all()


def test_map_is_empty_when_the_list_is_empty() -> None:
    (result,) = run(lambda x: ops.list_map(lambda row: row * 2, ops.list_unstack(x)), X[:0])
    assert result == []


def test_functions_take_lists_of_any_dtype() -> None:
    @gc.function
    def last(values: Symbol) -> Symbol:
        return ops.list_get(values, -1)

    (result,) = run(lambda x: last(ops.list_of([x.cast(D.bfloat16), x.cast(D.bfloat16) + 1])).cast(D.float32))
    assert (result == X + 1).all()


def test_optimised_pickled_and_read_graphs_give_the_same() -> None:
    graph = graph_of(lambda x: ops.list_concat(ops.list_map(lambda r: x[: r.sum().cast(D.int64)], ops.list_unstack(x))))
    (want,) = gc.InferenceSession().load(graph)(X)
    for other in (graph.optimize(), pickle.loads(pickle.dumps(graph)), Graph.load(graph.to_onnx(target="onnx"))):
        assert (gc.InferenceSession().load(other)(X)[0] == want).all()


@pytest.mark.parametrize("system", ["anvil", "array_api", "allo_hls", "numpy", "jax", "torch"])
def test_other_promotion_systems_have_lists_too(system: str) -> None:
    (result,) = run(lambda x: ops.list_map(lambda r: r * 2.0, ops.list_of([x, x[0]])), promotion=system)
    assert same(result, [X * 2, X[0] * 2])


# Errors


@pytest.mark.parametrize(
    ("build", "kind", "text"),
    [
        (lambda x: ops.list_of([]), ShapeError, "elements is empty"),
        (lambda x: ops.list_of(x), ShapeError, "elements must be a list of tensors"),
        (lambda x: ops.list_of([x.cast(D.int(100))]), DTypeError, "a list cannot hold int100"),
        (lambda x: ops.list_empty("float33"), DTypeError, "float33"),
        (lambda x: ops.list_empty(TensorType(D.bool), [3]), ShapeError, "both a TensorType and a shape"),
        (lambda x: ops.list_get(x, 0), DTypeError, "values must be a list of tensors"),
        (lambda x: free.list_length([x]), DTypeError, "values must be a list of the graph, got list"),
        (lambda x: free.list_get(ops.list_of([x]), 0.5), DTypeError, "the index must be an integer"),
        (lambda x: ops.list_get(ops.list_of([x]), x), DTypeError, "the index must be an integer"),
        (
            lambda x: ops.list_erase(ops.list_of([x]), x[0].cast(D.int8)),
            ShapeError,
            "index must be a scalar, got shape [2]",
        ),
        (lambda x: ops.list_append(ops.list_of([x]), x.cast(D.int8)), DTypeError, "a list of float32 cannot take int8"),
        (lambda x: ops.list_append(ops.list_of([x]), ops.list_of([x])), DTypeError, "cannot take seq(float32"),
        (lambda x: ops.list_append(ops.list_empty(D.int8), 300), DTypeError, "300 cannot be held in int8"),
        (lambda x: ops.list_concat(ops.list_of([x]), 2), ShapeError, "there is no axis 2"),
        (lambda x: ops.list_stack(ops.list_of([x]), 4), ShapeError, "there is no axis 4"),
        (lambda x: ops.list_split(x, 0), ShapeError, "the size of pieces must be >= 1, got 0"),
        (lambda x: ops.list_split(x, []), ShapeError, "sizes must be ints >= 0, got []"),
        (lambda x: ops.list_split(x, [1, 2], 1), ShapeError, "the sizes add up to 3, but axis 1 has 2"),
        (lambda x: ops.list_split(x, x), DTypeError, "sizes must have an integer dtype, got float32"),
        (lambda x: ops.list_split(x, x.cast(D.int8)), ShapeError, "sizes must be a scalar or a vector, got 2 axes"),
        (lambda x: ops.list_split(x[0, 0]), ShapeError, "there is no axis 0"),
        (lambda x: ops.list_map(lambda row: None, ops.list_unstack(x)), GraphError, "fn returns no Symbols"),
        (lambda x: ops.list_map(lambda: x), GraphError, "expected one or more lists"),
        (lambda x: ops.list_map(x, ops.list_of([x])), DTypeError, "fn must be a function, got Symbol"),
        (
            lambda x: ops.for_loop(2, lambda i, v: ops.list_of([x.cast(D.int8)]), ops.list_of([x])),
            DTypeError,
            "state changes its type from seq(float32[n, 2]) to seq(int8[n, 2])",
        ),
        (
            lambda x: ops.cond(x[0, 0] > 0, lambda: ops.list_of([x]), lambda: ops.list_of([x.cast(D.int8)])),
            DTypeError,
            "the branches return values of different kinds",
        ),
        (
            lambda x: ops.scan(lambda v, r: (ops.list_append(v, r), r), ops.list_empty(D.float32), x),
            DTypeError,
            "state must be a tensor, got seq(",
        ),
    ],
)
def test_what_lists_do_not_take_is_refused(
    build: Callable[[Symbol], Any], kind: type[GraphcoreError], text: str
) -> None:
    graph = Graph("refused", T)
    with graph, pytest.raises(kind) as raised:
        build(graph[0])
    assert text in raised.value.summary


@pytest.mark.parametrize(
    "build",
    [
        lambda x: ops.list_get(ops.list_of([x]), 1),
        lambda x: ops.list_get(ops.list_of([x]), -2),
        lambda x: ops.list_insert(ops.list_of([x]), 3, x),
        lambda x: ops.list_pop(ops.list_empty(D.float32)),
        lambda x: ops.list_concat(ops.list_append(ops.list_of([x]), x[0])),
        lambda x: ops.list_stack(ops.list_empty(D.float32)),
        lambda x: ops.list_split(x, [5, 2]),
        lambda x: ops.list_map(lambda a, b: a, ops.list_unstack(x), ops.list_of([x])),
        lambda x: ops.list_map(lambda a, b: a, ops.list_of([x]), ops.list_unstack(x)),
    ],
)
def test_what_only_the_run_knows_is_an_error_of_the_run(build: Callable[[Symbol], Any]) -> None:
    with pytest.raises(RunError):
        run(build)


def test_models_neither_take_nor_give_lists_of_dtypes_that_onnx_has_none_of() -> None:
    types: dict[str, Type] = {"l": SequenceType(TensorType(D.bfloat16, ["?"]))}
    with pytest.raises(ModelError, match="onnxruntime has no sequences of bfloat16"):
        run(lambda v: ops.list_length(v), [], types=types)
    with pytest.raises(ModelError, match="onnxruntime has no sequences of int4"):
        run(lambda x: ops.list_of([x.cast(D.int4)]))


@pytest.mark.parametrize(
    ("first", "other", "axis"), [([2, 3], [2, 0], 0), ([2, 3], [2, 4], -2), ([0], [2, 3], 0), ([2, 3], [1, 3], 1)]
)
def test_elements_that_are_known_not_to_fit_are_refused(first: list[int], other: list[int], axis: int) -> None:
    types = {"x": TensorType(D.float32, first), "y": TensorType(D.float32, other)}
    graph = Graph("lists", types)
    elements = ops.list_of([graph["x"], graph["y"]])
    with pytest.raises(ShapeError, match="list_concat: the shapes of elements differ"):
        ops.list_concat(elements, axis)
    with pytest.raises(ShapeError, match="list_stack: the shapes of elements differ"):
        ops.list_stack(elements, axis)
    nodes = [
        onnx.helper.make_node("SequenceConstruct", ["x", "y"], ["s"]),
        onnx.helper.make_node("ConcatFromSequence", ["s"], ["z"], axis=axis),
    ]
    inputs = [onnx.helper.make_tensor_value_info(name, 1, list(t.shape.static_dims)) for name, t in types.items()]
    outputs = [onnx.helper.make_tensor_value_info("z", 1, None)]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", inputs, outputs))
    with pytest.raises(ModelError, match="ConcatFromSequence 'z': elements have incompatible shapes"):
        Graph.load(model)


def test_elements_that_fit_along_an_axis_are_joined_along_it_alone() -> None:
    graph = Graph("lists", {"x": TensorType(D.float32, [2, 3]), "y": TensorType(D.float32, [2, 0])})
    elements = ops.list_of([graph["x"], graph["y"]])
    graph.output(ops.list_concat(elements, -1))
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(gc.InferenceSession().load(graph)(x, x[:, :0])[0], x)
    with pytest.raises(ShapeError):
        ops.list_stack(elements)
