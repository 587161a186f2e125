"""Control flow: branches and loops give what the same Python code gives over values."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphcoreError, GraphError, PromotionError, ShapeError
from graphcore.ir.graph import TargetName
from tests.support.every.case import ALL
from tests.support.graphs import Array, graph_of

pytestmark = pytest.mark.releases

D = DType
SYSTEMS = ("max", "max_published", "anvil", "array_api", "allo_cpp", "numpy", "jax", "torch")


def run(graph: Graph, *arrays: Any) -> list[Array]:
    """Run the graph; check that written and read again it computes the same, and that onnx finds it valid."""
    targets: tuple[TargetName, ...] = ("onnx", "cpu")
    for target in targets:
        onnx.checker.check_model(graph.to_onnx(target=target), full_check=True)
    feeds = [np.asarray(a) for a in arrays]
    session = gc.InferenceSession()
    results = [np.asarray(r) for r in session.load(graph)(*feeds)]
    again = session.load(Graph.load(graph.to_onnx(target="onnx")))(*feeds)
    for one, other in zip(results, again, strict=True):
        assert one.dtype == other.dtype
        assert one.astype(object).tolist() == np.asarray(other).astype(object).tolist() or np.isnan(one).any()
    return results


def inputs(promotion: str = "max", **types: str) -> Graph:
    """A graph of inputs such as x="float32 n 4"."""
    results = {}
    for name, text in types.items():
        dtype, *dims = text.split()
        results[name] = TensorType(DType.of(dtype), [int(d) if d.isdigit() else d for d in dims])
    return Graph("test", results, promotion=promotion)


def f32(values: Any) -> Array:
    return np.array(values, np.float32)


def operators(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


# cond


def test_cond_gives_what_its_branch_gives() -> None:
    graph = inputs(p="bool", x="float32 n")
    p, x = graph.inputs
    graph.output(ops.cond(p, lambda v: v * 2, lambda v: v - 1, x))
    assert operators(graph) == ["If"]
    assert run(graph, True, f32([1, 2]))[0].tolist() == [2, 4]
    assert run(graph, False, f32([1, 2]))[0].tolist() == [0, 1]


def test_cond_casts_inside_its_branches_when_they_differ() -> None:
    graph = inputs(n="int8", x="float32 m", y="int16 m")
    n, x, y = graph.inputs
    result = ops.cond(n, lambda: {"a": y, "b": [x]}, lambda: {"b": (0 * y,), "a": y + 1})
    assert result["a"].dtype is D.int16
    assert result["b"][0].dtype is D.float32
    assert "Cast" not in operators(graph)[1:]  # the first is of the condition
    graph.output(result["a"], result["b"][0])
    assert [r.tolist() for r in run(graph, np.int8(-3), f32([0.5]), np.array([7], np.int16))] == [[7], [0.5]]
    assert [r.tolist() for r in run(graph, np.int8(0), f32([0.5]), np.array([7], np.int16))] == [[8], [0]]


def test_cond_takes_numbers_when_the_other_branch_has_a_dtype() -> None:
    graph = inputs(p="bool", x="int8")
    graph.output(ops.cond(graph[0], lambda: graph[1], lambda: 7), ops.cond(graph[0], lambda: 1.5, lambda: 2))
    assert graph.outputs[0].dtype is D.int8
    assert [r.item() for r in run(graph, False, np.int8(3))] == [7, 2.0]


@pytest.mark.parametrize(
    ("then", "other", "joined"),
    [("n 4", "n 4", "n 4"), ("n 4", "m 4", "? 4"), ("3", "4", "?"), ("n", "n", "n")],
)
def test_cond_joins_shapes(then: str, other: str, joined: str) -> None:
    graph = inputs(p="bool", x=f"float32 {then}", y=f"float32 {other}")
    y = ops.cond(graph[0], lambda: graph[1], lambda: graph[2])
    assert [str(d) for d in y.shape] == joined.split()


def test_cond_computes_one_branch_only() -> None:
    # The first element of an empty tensor would fail the run.
    graph = inputs(x="float32 n")
    x = graph[0]
    graph.output(ops.cond(ops.shape_of(x)[0] > 0, lambda: x[ops.shape_of(x)[0] - 1], lambda: -1.0))
    assert run(graph, f32([]))[0] == -1
    assert run(graph, f32([4, 5]))[0] == 5


def test_everything_is_built_in_the_body_when_its_operands_are_from_outside() -> None:
    graph = inputs(p="bool", x="float32 n 3", i="int64")
    p, x, i = graph.inputs
    before = len(graph.nodes)
    with graph:
        ops.cond(
            p, lambda: ops.softmax(-x + x * 2, axis=-1)[i].sum() + ops.zeros(["n"]).sum(), lambda: x.reshape(-1)[0]
        )
    assert operators(graph)[before:] == ["If"]


# while_loop


def fibonacci(count: int) -> int:
    a, b = 0, 1
    for _ in range(count):
        a, b = b, a + b
    return a


@pytest.mark.numbers
@pytest.mark.parametrize("count", [0, 1, 2, 10, 90])
def test_while_loop_counts_fibonacci_numbers(count: int) -> None:
    graph = inputs(n="int64")
    a, _, _ = ops.while_loop(lambda a, b, n: n > 0, lambda a, b, n: (b, a + b, n - 1), (0, 1, graph[0]))
    graph.output(a)
    assert run(graph, count)[0] == fibonacci(count)


def test_while_loop_takes_one_symbol_a_list_or_a_dict() -> None:
    graph = inputs(x="int32")
    one = ops.while_loop(lambda x: x < 100, lambda x: x * 3, graph[0])
    (two,) = ops.while_loop(lambda x: x < 100, lambda x: [x * 3], [graph[0]])
    named = ops.while_loop(lambda x, turns: x < 100, lambda x, turns: {"turns": turns + 1, "x": x * 3}, {
        "x": graph[0], "turns": np.int64(0),
    })  # fmt: skip
    assert list(named) == ["x", "turns"]
    graph.output(one, two, named["x"], named["turns"])
    assert [r.item() for r in run(graph, np.int32(2))] == [162, 162, 162, 4]


def test_while_loop_gives_its_init_when_there_is_no_turn() -> None:
    graph = inputs(x="float32 n")
    graph.output(ops.while_loop(lambda v: v.sum() < 0, lambda v: ops.concat([v, v]), graph[0]))
    assert run(graph, f32([1, 2, 3]))[0].tolist() == [1, 2, 3]


def test_dims_of_a_state_are_unknown_when_they_change() -> None:
    graph = inputs(n="int64", x="float32 m 2", y="float32 m")
    n, x, y = graph.inputs
    grown, remaining = ops.for_loop(n, lambda i, a, b: (ops.concat([a, a[:1]]), b + a.sum()), (x, y))
    assert [str(d) for d in grown.shape] == ["?", "2"]
    assert [str(d) for d in remaining.shape] == ["m"]
    graph.output(grown, remaining)
    for count in (0, 1, 3):
        results = run(graph, count, np.ones((2, 2), np.float32), np.zeros(2, np.float32))
        assert results[0].shape == (2 + count, 2)
        assert results[1].tolist() == [sum(2.0 * (2 + k) for k in range(count))] * 2


def test_changes_of_dims_reach_all_of_a_state_when_one_piece_passes_them_on() -> None:
    graph = inputs(x="float32 2")
    state = ops.for_loop(3, lambda i, a, b, c: (b, c, ops.concat([c, c])), (graph[0],) * 3)
    assert [str(s.shape) for s in state] == ["[?]"] * 3
    graph.output(*state)
    assert [len(r) for r in run(graph, f32([1, 2]))] == [4, 8, 16]


def test_weights_are_made_once_when_a_body_is_built_again() -> None:
    graph = inputs(n="int64", x="float32 m")

    def body(i: Symbol, x: Symbol) -> Symbol:
        return ops.concat([x, x]) * graph.weight("w", f32([2]))

    graph.output(ops.for_loop(graph[0], body, graph[1]))
    assert [*graph.weights] == ["w"]
    assert run(graph, 2, f32([1]))[0].tolist() == [4] * 4
    assert len(graph.to_onnx().graph.initializer) == 1


# for_loop and scan


@pytest.mark.numbers
@given(values=st.lists(st.integers(-1000, 1000), max_size=6), turns=st.integers(-2, 5))
@settings(max_examples=15, deadline=None)
def test_for_loop_gives_what_a_python_loop_gives(values: list[int], turns: int) -> None:
    array = np.array(values, np.int64)
    (last, states, numbers) = LOOP(np.int32(turns), array)
    want, seen = array, []
    for i in range(turns):
        seen.append(want)
        want = want * 3 + i
    assert last.tolist() == want.tolist()
    assert states.tolist() == [s.tolist() for s in seen]
    assert states.shape == (max(turns, 0), len(values))
    assert numbers.tolist() == list(range(turns))


def _loop() -> gc.Model:
    graph = inputs(k="int32", x="int64 n")
    last, (states, numbers) = ops.for_loop(graph[0], lambda i, x: (x * 3 + i, (x, i)), graph[1], collect=True)
    graph.output(last, states, numbers)
    return gc.InferenceSession().load(graph)


LOOP = _loop()


def test_for_loop_collects_without_a_state() -> None:
    graph = inputs(x="float32 4")
    with graph:
        nothing, squares = ops.for_loop(4, lambda i: (None, graph[0][i] * graph[0][i]), collect=True)
    assert nothing is None
    assert str(squares.type) == "float32[4]"
    graph.output(squares)
    assert run(graph, f32([1, 2, 3, 4]))[0].tolist() == [1, 4, 9, 16]


@pytest.mark.numbers
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5])
@pytest.mark.parametrize(("axis", "out_axis"), [(0, 0), (1, 0), (-1, -1), (0, 1)])
def test_scan_gives_what_a_python_loop_gives(axis: int, out_axis: int, length: int, reverse: bool) -> None:
    shape = [3, 3]
    shape[axis] = length
    x = np.arange(3 * length, dtype=np.float32).reshape(shape)
    dims = ["n" if size == length and at == axis % 2 else "3" for at, size in enumerate(shape)]
    graph = inputs(x=f"float32 {' '.join(dims)}")
    state, ys = ops.scan(
        lambda c, v: (c + v, {"sum": c + v, "twice": (2 * v).cast(D.float64)}), np.zeros(3, np.float32), graph[0],
        axis=axis, reverse=reverse, out_axis=out_axis,
    )  # fmt: skip
    graph.output(state, *ys.values())
    want, seen = np.zeros(3, np.float32), []
    for i in range(length)[:: -1 if reverse else 1]:
        want = want + np.take(x, i, axis)
        seen.append((want, 2.0 * np.take(x, i, axis)))
    got = run(graph, x)
    assert got[0].tolist() == want.tolist()
    for result, pieces in zip(got[1:], zip(*seen[:: -1 if reverse else 1], strict=True), strict=False):
        np.testing.assert_array_equal(result, np.stack(pieces, out_axis))
    assert got[1].shape == ((length, 3) if out_axis == 0 else (3, length))
    assert got[2].dtype == np.float64


def test_scan_is_one_node_when_its_length_is_known() -> None:
    graph = inputs(x="int32 5", y="int64 2 5")
    state, ys = ops.scan(lambda c, xs: (c + xs["a"], xs["b"]), np.int32(0), {"a": graph[0], "b": graph[1]}, axis=-1)
    assert operators(graph) == ["Scan"]
    assert str(ys.type) == "int64[5, 2]"
    graph.output(state, ys)
    x, y = np.arange(5, dtype=np.int32), np.arange(10).reshape(2, 5)
    assert [r.tolist() for r in run(graph, x, y)] == [10, y.T.tolist()]


# Nesting


def collatz(value: int) -> int:
    turns = 0
    while value != 1:
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        turns += 1
    return turns


@pytest.mark.parametrize("value", [1, 6, 27])
def test_a_choice_turns_in_a_loop(value: int) -> None:
    graph = inputs(n="int64")

    def body(n: Symbol, turns: Symbol) -> tuple[Symbol, Symbol]:
        return ops.cond(n % 2 == 0, lambda: n // 2, lambda: 3 * n + 1), turns + 1

    graph.output(ops.while_loop(lambda n, turns: n != 1, body, (graph[0], 0))[1])
    assert run(graph, value)[0] == collatz(value)


def nested() -> Graph:
    """Loops and a choice, three deep, that use values of every depth."""
    graph = inputs(k="int64", x="float32 n 3", w="float32 3")
    k, x, w = graph.inputs
    weight = graph.weight("scale", f32([[2, 1, 0.5]]))

    def outer(i: Symbol, total: Symbol) -> Any:
        with graph.layer("outer"):
            ones = ops.ones(["n", 3], dtype=D.float32) * weight

            def inner(j: Symbol, sum: Symbol) -> Any:
                with graph.layer("inner"):
                    return ops.cond((i + j) % 2 == 0, lambda: sum + w * x + ones, lambda: sum - x)

            return ops.for_loop(i, inner, total)

    with graph:
        graph.output(total=ops.for_loop(k, outer, x))
    return graph


def test_bodies_use_values_of_all_graphs_around_when_nested() -> None:
    graph = nested()
    x, w = np.arange(6, dtype=np.float32).reshape(2, 3), f32([1, 2, 3])
    want: Array = x
    for i in range(4):
        for j in range(i):
            want = want + w * x + f32([[2, 1, 0.5]]) if (i + j) % 2 == 0 else want - x
    assert run(graph, 4, x, w)[0].tolist() == want.tolist()
    assert "outer/inner/if_" in str(graph)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))], ids=["copy", "pickle"])
def test_bodies_stay_when_a_graph_is_copied(again: Callable[[Graph], Graph]) -> None:
    graph = nested()
    other = again(graph)
    assert str(other) == str(graph)
    feeds = 3, np.ones((1, 3), np.float32), f32([1, 2, 3])
    assert run(other, *feeds)[0].tolist() == run(graph, *feeds)[0].tolist()


def test_shadowed_names_are_given_once_when_loops_are_nested() -> None:
    text = str(nested())
    assert text.count("input   turn:") == 1
    assert text.count("input   turn_:") == 1


def test_jit_traces_loops() -> None:
    @gc.jit
    def root(x: Symbol) -> Any:
        return ops.while_loop(
            lambda r, d: abs(d) > 1e-9, lambda r, d: (r - d, (r - d) / 2 - x / (r - d) / 2), (x, x / 2)
        )[0]

    assert abs(root(np.float64(2.0)).item() - 2**0.5) < 1e-8


# Dtypes and systems


def _step(dtype: DType, x: Symbol) -> Callable[[Symbol], Symbol]:
    if dtype is D.string:
        return lambda a: a
    if dtype is D.bool:
        return lambda a: ~a
    return lambda a: a + x if dtype.bits == 4 else a * a + x


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [*ALL, DType.int(23), DType.uint(5), D.string], ids=str)
def test_bodies_compute_in_any_dtype_as_outside(dtype: DType) -> None:
    types = {"p": TensorType(D.bool, []), "x": TensorType(dtype, ["n"])}
    graph, plain = Graph("bodies", types), Graph("plain", types)
    p, x = graph.inputs
    f = _step(dtype, x)
    chosen = ops.cond(p, lambda: f(x), lambda: x)
    counted = ops.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, f(a)), (0, x))[1]
    first = ops.while_loop(lambda a, i: i < 2, lambda a, i: (f(a), i + 1), (x, 0))[0]
    scanned = ops.scan(lambda c, v: (f(c), v), x, x)
    collected = () if dtype is D.string else ops.for_loop(2, lambda i, a: (f(a), a), x, collect=True)
    graph.output(chosen, counted, first, *scanned, *collected)
    x = plain[1]
    f = _step(dtype, x)
    last = (f(f(x)), ops.stack([x, f(x)])) if collected else ()
    plain.output(f(x), f(f(x)), f(f(x)), f(f(x)), x, *last)
    array = np.array(["a", "bc"], object) if dtype is D.string else np.array([1, 0]).astype(dtype.numpy)
    got, want = run(graph, True, array), gc.InferenceSession().load(plain)(np.array(True), array)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.astype(object), other.astype(object))


@pytest.mark.parametrize("system", SYSTEMS)
def test_bodies_promote_by_the_system_around(system: str) -> None:
    graph = inputs(system, n="int32", x="float32 4")
    n, x = graph.inputs
    last = ops.for_loop(n, lambda i, s: s + x * 2, x)
    result = ops.while_loop(lambda a, b: a > 0, lambda a, b: ((a - 1).cast(D.int32), b * 2), (n, x))[1]
    graph.output(last, result, ops.cond(n > 2, lambda: x + 1, lambda: x))
    one = np.ones(4, np.float32)
    assert [r[0] for r in run(graph, np.int32(3), one)] == [7, 8, 2]
    body = next(node for node in graph.nodes if node.op_type == "Loop").attributes["body"]
    assert body.promotion is graph.promotion


def test_bodies_are_strict_when_the_graph_is() -> None:
    graph = Graph("strict", {"n": TensorType(D.int64, []), "x": TensorType(D.float16, [])}, strict=True)
    n, x = graph.inputs
    with pytest.raises(PromotionError, match="cannot hold the operand's range"):
        ops.for_loop(n, lambda i, s: s * n, x)
    with pytest.raises(PromotionError, match="of then from int64 to float16"):
        ops.cond(n > 0, lambda: n, lambda: x)


def test_ambiguous_state_is_known_when_it_goes_through_a_loop() -> None:
    graph = inputs("anvil", n="int32")
    y = ops.for_loop(graph[0], lambda i, s: s + 2, graph.constant(1))
    assert str(y.type) == "int32[]"
    graph.output(y)
    assert run(graph, np.int32(3))[0] == 7


# Bad input

BAD: dict[str, tuple[Callable[[Symbol, Symbol], Any], type[GraphcoreError], tuple[str, ...]]] = {
    "ranks": (lambda n, x: ops.cond(n, lambda: x, lambda: n), ShapeError, ("rank 1 and 0", "then  x", "else  n")),
    "dtypes": (
        lambda n, x: ops.cond(n, lambda: n.cast(D.int4), lambda: n),
        PromotionError,
        ("int4 and int64 have no common dtype", "then", "else"),
    ),
    "structures": (
        lambda n, x: ops.cond(n, lambda: (x, n), lambda: {"a": x}),
        GraphError,
        ("different structures", "then  (Symbol, Symbol)", "else  {'a': Symbol}"),
    ),
    "keys": (lambda n, x: ops.cond(n, lambda: {"a": x}, lambda: {"b": x}), GraphError, ("{'a': Symbol}", "{'b'")),
    "no results": (lambda n, x: ops.cond(n, lambda: None, lambda: None), GraphError, ("then_fn returns no Symbols",)),
    "text": (lambda n, x: ops.cond(n, lambda: "x", lambda: x), DTypeError, ("then has unsupported type str",)),
    "too large": (lambda n, x: ops.cond(n, lambda: n.cast(D.int8), lambda: 300), DTypeError, ("300 cannot be held",)),
    "vector pred": (lambda n, x: ops.cond(x, lambda: x, lambda: x), ShapeError, ("pred must be a scalar, got shape",)),
    "no graph": (lambda n, x: ops.cond(True, lambda: x, lambda: x), GraphError, ("no graph to build in",)),
    "no function": (
        lambda n, x: ops.cond(n, cast(Any, x), lambda: x), DTypeError, ("then_fn must be a function, got Symbol",),
    ),
    "integer condition": (
        lambda n, x: ops.while_loop(lambda s: s, lambda s: s - 1, n),
        DTypeError,
        ("the result of cond_fn must be bool, got int64",),
    ),
    "vector condition": (
        lambda n, x: ops.while_loop(lambda s: s > 0, lambda s: s, x),
        ShapeError,
        ("must be a scalar, got shape", "ops.all(x)"),
    ),
    "python condition": (
        lambda n, x: ops.while_loop(lambda s: True, lambda s: s, n),
        GraphError,
        ("the result of cond_fn must be a Symbol, got bool",),
    ),
    "late condition": (
        lambda n, x: ops.while_loop(lambda s: s > 0 if s is n else s, lambda s: s, n),
        DTypeError,
        ("must be bool, got int64",),
    ),
    "state's dtype": (
        lambda n, x: ops.while_loop(lambda s: s > 0, lambda s: s + x[0], n),
        DTypeError,
        ("state changes its dtype from int64 to float32", "before  state0", "after   add"),
    ),
    "state's rank": (
        lambda n, x: ops.while_loop(lambda a, s: a > 0, lambda a, s: (a, s + x), (n, x[0])),
        ShapeError,
        ("state.1 changes its rank from 0 to 1",),
    ),
    "state's structure": (
        lambda n, x: ops.while_loop(lambda s: s > 0, lambda s: (s, s), n), GraphError, ("before  Symbol",),  # type: ignore[arg-type, return-value]
    ),
    "state's number": (
        lambda n, x: ops.while_loop(lambda s: s > 0, lambda s: 2.5, n), DTypeError, ("state: 2.5 cannot be held",),
    ),
    "nothing back": (
        lambda n, x: ops.while_loop(lambda s: s > 0, lambda s: None, n), GraphError, ("after   None",),  # type: ignore[arg-type, return-value]
    ),
    "no state": (lambda n, x: ops.while_loop(lambda: n > 0, lambda: (), ()), GraphError, ("no graph",)),
    "float count": (
        lambda n, x: ops.for_loop(2.5, lambda i, s: s, n), DTypeError, ("must have an integer dtype, got float32",),
    ),
    "vector count": (
        lambda n, x: ops.for_loop(x.cast(D.int8), lambda i, s: s, n),
        ShapeError,
        ("trip_count must be a scalar, got shape",),
    ),
    "great count": (lambda n, x: ops.for_loop(2**63, lambda i, s: s, n), DTypeError, ("does not fit int64",)),
    "no pair": (lambda n, x: ops.for_loop(2, lambda i, s: s, n, collect=True), GraphError, ("must return a pair",)),
    "no results of a loop": (lambda n, x: ops.for_loop(n, lambda i: None), GraphError, ("neither a state",)),
    "scan of a scalar": (lambda n, x: ops.scan(lambda c, v: (c, v), n, n), ShapeError, ("no axis 0",)),
    "scan of no xs": (lambda n, x: ops.scan(lambda c, v: (c, v), n, ()), GraphError, ("xs has no Symbols",)),
    "other lengths": (
        lambda n, x: ops.scan(lambda c, v: (c, v), n, (x, np.ones(3))),
        ShapeError,
        ("the lengths of xs differ: 4 and 3",),
    ),
    "out_axis": (lambda n, x: ops.scan(lambda c, v: (c, v), n, x, out_axis=3), ShapeError, ("out_axis must be",)),
    "growing state": (
        lambda n, x: ops.scan(lambda c, v: (ops.concat([c, c]), v), x, x), ShapeError, ("from [4] to [8]", "for_loop"),
    ),
    "scan of no pair": (lambda n, x: ops.scan(lambda c, v: v, n, x), GraphError, ("must return a pair",)),  # type: ignore[arg-type, return-value]
    "scan to nothing": (lambda n, x: ops.scan(lambda c, v: (None, None), None, x), GraphError, ("neither a state",)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_control_flow_is_refused_when(name: str) -> None:
    build, kind, texts = BAD[name]
    graph = inputs(n="int64", x="float32 4")
    with pytest.raises(kind) as caught:
        build(*graph.inputs)
    for text in texts:
        assert text in str(caught.value)
    assert "test_control.py" in str(caught.value)
    graph.output(graph[1] + 1)  # the graph around goes on
    assert run(graph, 1, np.zeros(4, np.float32))[0].tolist() == [1] * 4


def test_strings_are_refused_when_a_loop_would_collect_them() -> None:
    graph = Graph("strings", {"x": TensorType(D.string, [])})
    with pytest.raises(DTypeError, match=r"use ops\.scan"):
        ops.for_loop(2, lambda i, s: (s, s), graph[0], collect=True)


LEAKS: dict[str, Callable[[Graph, Symbol, Symbol], Any]] = {
    "right": lambda graph, n, remaining: n + remaining,
    "left": lambda graph, n, remaining: remaining + n,
    "alone": lambda graph, n, remaining: -remaining,
    "with a number": lambda graph, n, remaining: remaining * 2,
    "in a sibling": lambda graph, n, remaining: ops.for_loop(2, lambda i, s: s + remaining, n),
    "as a result": lambda graph, n, remaining: ops.cond(n, lambda: remaining, lambda: n),
    "as an operand": lambda graph, n, remaining: ops.cond(n, lambda v: v + 1, lambda v: v, remaining),
    "as an output": lambda graph, n, remaining: graph.output(remaining),
    "as it is": lambda graph, n, remaining: graph.op("Add", [remaining, n]),
    "in a list": lambda graph, n, remaining: ops.stack([n, remaining]),
    "as an index": lambda graph, n, remaining: n.reshape(1)[remaining],
    "reshaped": lambda graph, n, remaining: remaining.reshape(1),
}


@pytest.mark.parametrize("name", LEAKS)
def test_symbol_of_a_body_is_refused_outside(name: str) -> None:
    graph = inputs(n="int64")
    results: list[Symbol] = []

    def body(i: Symbol, s: Symbol) -> Symbol:
        results.append(s + 1)
        return results[0]

    ops.for_loop(3, body, graph[0])
    with pytest.raises(GraphError, match="belongs to the body 'body' and cannot be used outside of it"):
        LEAKS[name](graph, graph[0], results[0])


def test_outputs_cannot_be_set_while_a_body_is_built() -> None:
    graph = inputs(n="int64")
    with pytest.raises(GraphError, match="has a body under construction"):
        ops.for_loop(3, lambda i, s: graph.output(s), graph[0])  # type: ignore[arg-type, return-value]


def test_graph_is_as_before_when_a_body_raises() -> None:
    graph = inputs(n="int64")

    def failing(i: Symbol, s: Symbol) -> Symbol:
        ops.cond(s, lambda: s + graph[0], lambda: 1 // 0)
        return s

    with pytest.raises(ZeroDivisionError):
        ops.for_loop(3, failing, graph[0])
    graph.output(graph[0] * 2)
    assert operators(graph) == ["Mul"]


def test_case_of_support_runs_when_it_holds_a_loop() -> None:
    graph = graph_of(lambda x: ops.for_loop(2, lambda i, s: s + x, x), f32([1, 2]))
    assert run(graph, f32([1, 2]))[0].tolist() == [3, 6]
