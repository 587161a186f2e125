"""rebind: dims that the user states, checked when the graph runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import graphcore as gc
from graphcore import DType, Graph, InferenceSession, Symbol, TensorType, ops
from graphcore.errors import RunError, ShapeError
from graphcore.ir.graph import TargetName
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape
from tests.support.every.case import ALL

TARGETS: tuple[TargetName, ...] = ("onnx", "cpu", "cuda")
SIZES = ((0, 4), (1, 4), (2, 4), (4, 2), (2, 3), (2, 1), (2, 0), (0, 0), (1, 1), (8, 1), (1, 8))


def graph_of(build: Callable[..., Any], *dims: Sequence[Any], dtype: DType = DType.float32) -> Graph:
    graph = Graph("stated", [TensorType(dtype, d) for d in dims])
    graph.output(y=build(*graph.inputs))
    return graph


def operators(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


def bare(graph: Graph, target: TargetName) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    content = graph.to_onnx(target=target).SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def runs(call: Callable[..., Any], *arguments: Any) -> bool:
    try:
        call(*arguments)
    except Exception as error:
        return "rebind" not in str(error)
    return True


def test_rebind_lets_exactly_the_stated_sizes_through() -> None:
    graph = graph_of(lambda x, b: ops.exp(x).rebind("batch", 4), ["?", "?"], ["batch"])
    model = InferenceSession().load(graph)
    for shape in SIZES:
        for batch in (0, 1, 2, 4):
            right = shape == (batch, 4)
            assert runs(model, ones(*shape), ones(batch)) == right, (shape, batch)
    assert model(ones(2, 4), ones(2))[0].shape == (2, 4)


@pytest.mark.parametrize("target", TARGETS)
def test_rebind_fails_in_a_bare_onnxruntime_when_a_size_is_another(target: TargetName) -> None:
    graph = graph_of(lambda x, b: ops.exp(x).rebind(["batch", 4], "heads must agree"), ["?", "?"], ["batch"])
    session = bare(graph, target)
    for shape in SIZES:
        feed = {"input0": ones(*shape), "input1": ones(2)}
        assert runs(session.run, None, feed) == (shape == (2, 4)), shape
    with pytest.raises(Exception, match=r"rebind exp_2 to \[batch, 4\]: heads must agree.*got -2000000000003"):
        session.run(None, {"input0": ones(2, 3), "input1": ones(2)})


BEFORE: dict[str, Callable[[Symbol], Symbol]] = {
    "nothing": lambda x: x,
    "reshape": lambda x: ops.reshape(ops.exp(x), ops.shape_of(x), out_dims=["?", "?"]),
    "unsqueeze": lambda x: x.unsqueeze(0).squeeze(0),
    "transpose": lambda x: ops.exp(x).transpose().transpose(),
}
AFTER: dict[str, Callable[[Symbol], Symbol]] = {
    "nothing": lambda y: y,
    "flatten": lambda y: y.flatten(),
    "reshape": lambda y: y.reshape(4, 2),
    "unsqueeze": lambda y: y.unsqueeze(0).squeeze(0),
    "transpose": lambda y: y.transpose(),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("after", AFTER)
def test_rebind_is_not_optimised_away_when_shapes_are_changed_around_it(
    before: str, after: str, target: TargetName
) -> None:
    graph = graph_of(lambda x: AFTER[after](BEFORE[before](x).rebind(2, 4)), ["?", "?"])
    for each in (graph, graph.optimize()):
        session = bare(each, target)
        for shape in ((2, 4), (4, 2), (8, 1), (1, 8), (2, 3), (0, 4), (1, 1)):
            assert runs(session.run, None, {"input0": ones(*shape)}) == (shape == (2, 4)), shape


def test_rebind_says_what_was_stated_and_what_is_when_it_fails() -> None:
    graph = Graph("scores", {"x": TensorType(DType.float32, ["?", "?"]), "b": TensorType(DType.float32, ["batch"])})
    scores = ops.exp(graph["x"])
    scores.name = "scores"
    graph.output(y=scores.rebind("batch", 4, message="heads\nmust agree") + 1)
    model = InferenceSession().load(graph)
    with pytest.raises(RunError) as raised:
        model(ones(2, 3), ones(2))
    text = str(raised.value)
    assert raised.value.summary == (
        "scores: rebind: axis 1 of scores has size 3, and 4 was stated: [batch, 4] (heads must agree)"
    )
    assert "x        scores" in text
    assert "float32[batch, 4]" in text
    assert "input b" in text
    assert text.count("test_rebind.py:") == 3  # where x was made, where it was bound, where the model was called
    with pytest.raises(RunError, match=r"axis 0 of scores has size 2, and batch = 3 was stated"):
        model(ones(2, 4), ones(3))


def test_rebind_names_the_right_one_of_several() -> None:
    def build(x: Symbol) -> Symbol:
        first, second = x.rebind(3, "m", message="a"), ops.exp(x)
        return ops.concat([first.rebind(3, 4, message="b"), second.rebind("k", 4, message="b")])

    model = InferenceSession().load(graph_of(build, ["?", "?"]))
    model(ones(3, 4))
    with pytest.raises(RunError, match=r"axis 0 .* size 2, and 3 was stated: \[3, m\] \(a\)"):
        model(ones(2, 4))
    with pytest.raises(RunError, match=r"axis 1 .* size 5, and 4 was stated: .*\(b\)"):
        model(ones(3, 5))


def test_rebind_makes_no_node_when_nothing_is_left_to_check() -> None:
    x = graph_of(lambda x: x, ["n", 4])[0]
    assert x.rebind("n", 4) is x
    assert x.rebind(Dim("n") * 2 - Dim("n"), 4) is x
    assert not operators(x.graph)


def test_rebind_only_names_when_names_are_fresh() -> None:
    graph = graph_of(lambda x: x.rebind("rows", "columns"), ["?", "n"])
    assert operators(graph) == ["Identity"]
    model = InferenceSession().load(graph)
    assert model(ones(0, 3))[0].shape == (0, 3)


def test_rebind_checks_equality_when_a_fresh_name_occurs_twice() -> None:
    model = InferenceSession().load(graph_of(lambda x: x.rebind("a", "a", Dim("a") + 1), ["?", "?", "?"]))
    assert model(ones(3, 3, 4))[0].shape == (3, 3, 4)
    assert model(ones(0, 0, 1))[0].shape == (0, 0, 1)
    for shape in ((3, 4, 4), (3, 3, 3), (1, 3, 2), (0, 1, 1)):
        with pytest.raises(RunError, match="rebind"):
            model(ones(*shape))


@pytest.mark.parametrize(
    ("stated", "right", "wrong"),
    [
        (Dim("n") * 2, (0, 2, 4), (1, 3, 5)),
        (Dim("n") + 1, (1, 2, 5), (0,)),
        (Dim("n") * 2 + 3, (3, 5), (0, 1, 2, 4)),
        (5 - Dim("n"), (0, 1, 5), (6, 7)),
        (Dim("n") - 3, (0, 1, 9), ()),
    ],
)
def test_rebind_solves_an_expression_of_a_fresh_name(stated: Dim, right: Sequence[int], wrong: Sequence[int]) -> None:
    def build(x: Symbol) -> Symbol:
        result = x.rebind(stated)
        with x.graph:
            return result + ops.zeros([stated], "float32")

    model = InferenceSession().load(graph_of(build, ["?"]))
    for size in right:
        assert model(ones(size))[0].shape == (size,)
    for size in wrong:
        with pytest.raises(RunError, match=rf"has size {size}, and "):
            model(ones(size))


def test_rebind_checks_expressions_of_known_names() -> None:
    stated = [Dim("a") * 2 + Dim("b"), Dim.maximum("a", "b"), Dim("a") // 2]
    model = InferenceSession().load(graph_of(lambda x, a, b: x.rebind(stated), ["?", "?", "?"], ["a"], ["b"]))
    assert model(ones(9, 3, 1), ones(3), ones(3))[0].shape == (9, 3, 1)
    with pytest.raises(RunError, match=r"axis 1 .* size 2, and max\(a, b\) = 3 was stated"):
        model(ones(9, 2, 1), ones(3), ones(3))
    for shape in ((8, 3, 1), (9, 3, 0), (9, 3, 2)):
        with pytest.raises(RunError, match="rebind"):
            model(ones(*shape), ones(3), ones(3))


def test_rebind_checks_two_known_names_when_both_are_of_inputs() -> None:
    model = InferenceSession().load(graph_of(lambda x, y: x.rebind("m") + y, ["n"], ["m"]))
    np.testing.assert_array_equal(model(ones(3), ones(3))[0], ones(3) * 2)
    for n, m in ((1, 3), (3, 1), (0, 1), (1, 0)):
        with pytest.raises(RunError, match=f"axis 0 of input0 has size {n}, and m = {m} was stated"):
            model(ones(n), ones(m))


def value_of(dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if dtype is DType.string:
        return np.full(shape, "a", object)
    return np.ones(shape, dtype.numpy)


@pytest.mark.parametrize("dtype", [*ALL, DType.string, DType.of("uint4"), DType.int(5), DType.int(100)], ids=str)
def test_rebind_checks_every_dtype(dtype: DType) -> None:
    graph = graph_of(lambda x: x.rebind("n", 3, message="why"), ["n", "?"], dtype=dtype)
    model = InferenceSession().load(graph)
    x = value_of(dtype, (2, 3)) if dtype.bits <= 64 else np.ones((2, 3), object)
    (result,) = model.execute(x, wide="object")
    assert result.shape == x.shape
    assert (result == x).all()
    wrong = x[:, :2]
    with pytest.raises(RunError, match=r"axis 1 of input0 has size 2, and 3 was stated: \[n, 3\] \(why\)"):
        model(wrong)


def test_rebind_checks_inside_bodies() -> None:
    def build(x: Symbol, y: Symbol, b: Symbol) -> Any:
        return ops.cond(b, lambda: ops.exp(x).rebind("m", message="then") + y, lambda: y)

    graph = Graph("bodies", [TensorType(DType.float32, ["?"]), TensorType(DType.float32, ["m"])])
    flag = ops.sum(graph[1]) > 2
    graph.output(y=build(graph[0], graph[1], flag))
    model = InferenceSession().load(graph)
    assert model(ones(3), ones(3))[0].shape == (3,)
    assert model(ones(1), ones(2))[0].shape == (2,)  # the other branch, which states nothing
    with pytest.raises(RunError, match=r"axis 0 of .* has size 1, and m = 3 was stated: \[m\] \(then\)"):
        model(ones(1), ones(3))


def test_rebind_checks_inside_loops_and_functions() -> None:
    @gc.function
    def halves(x: Symbol, y: Symbol) -> Symbol:
        return x[::2].rebind(y.shape[0], message="half") + y

    def build(x: Symbol, y: Symbol) -> Any:
        total = halves(x, y)
        return ops.for_loop(2, lambda i, s: s + x[::2].rebind("m", message="looped"), total)

    for graph in (graph_of(build, ["n"], ["m"]), graph_of(halves, ["n"], ["m"])):
        model = InferenceSession().load(graph)
        assert model(ones(5), ones(3))[0].shape == (3,)
        with pytest.raises(RunError, match=r"size 2, and m = 3 was stated: \[m\] \(half\)"):
            model(ones(4), ones(3))
        session = bare(graph, "cpu")
        names = [i.name for i in session.get_inputs()]
        with pytest.raises(Exception, match=r"rebind .* half"):
            session.run(None, dict(zip(names, (ones(4), ones(3)), strict=True)))


def test_rebind_checks_in_a_loop_body_alone() -> None:
    graph = graph_of(
        lambda x, y: ops.for_loop(2, lambda i, s: s + x[::2].rebind("m", message="looped"), y), ["n"], ["m"]
    )
    model = InferenceSession().load(graph)
    np.testing.assert_array_equal(model(ones(5), ones(3))[0], ones(3) * 3)
    with pytest.raises(RunError, match=r"size 1, and m = 3 was stated: \[m\] \(looped\)"):
        model(ones(1), ones(3))


def test_rebind_says_the_same_when_the_model_was_written_and_read(tmp_path: Any) -> None:
    graph = graph_of(lambda x, b: ops.exp(x).rebind(["batch", 4], "heads: agree"), ["?", "?"], ["batch"])
    graph.export(tmp_path / "stated.onnx")
    model = InferenceSession().load(tmp_path / "stated.onnx")
    with pytest.raises(RunError, match=r"axis 1 of exp_2 has size 3, and .*\(heads: agree\)"):
        model(ones(2, 3), ones(2))


def test_rebind_is_kept_when_the_graph_is_optimised() -> None:
    graph = graph_of(lambda x, b: ops.exp(x).rebind("batch", 4) + 0 * x, ["?", "?"], ["batch"]).optimize()
    model = InferenceSession().load(graph)
    assert model(ones(2, 4), ones(2))[0].shape == (2, 4)
    with pytest.raises(RunError, match="rebind"):
        model(ones(2, 3), ones(2))


def test_rebind_raises_at_once_when_dims_provably_differ() -> None:
    x = graph_of(lambda x: x, ["n", 4])[0]
    with pytest.raises(ShapeError, match=r"axis 1 is 4 and cannot be 5 \(why\)"):
        x.rebind("n", 5, message="why")
    with pytest.raises(ShapeError, match="give one dim for each axis"):
        x.rebind("n")


def test_rebind_checks_the_rank_where_it_is_unknown() -> None:
    graph = Graph("unranked", [TensorType(DType.float32, Shape.unknown()), TensorType(DType.float32, ["n"])])
    y = graph[0].rebind("n", 3, message="a matrix")
    assert y.type is TensorType(DType.float32, ["n", 3])
    graph.output(y=y * 2)
    model = InferenceSession().load(graph)
    assert model(ones(2, 3), ones(2))[0].shape == (2, 3)
    for shape in ((), (2,), (3,), (1, 2, 3)):
        with pytest.raises(RunError, match=rf"rank {len(shape)}, and .* stated: \[n, 3\] \(a matrix\)"):
            model(ones(*shape), ones(2))
    with pytest.raises(RunError, match=r"axis 1 of .* has size 2, and 3 was stated: \[n, 3\] \(a matrix\)"):
        model(ones(2, 2), ones(2))
    scalar = graph_of(lambda x: x.rebind(()) + 1, Shape.unknown())
    assert InferenceSession().load(scalar)(ones())[0] == 2
    with pytest.raises(RunError, match=r"has rank 1, and dims of another rank were stated: \[\]"):
        InferenceSession().load(scalar)(ones(1))


def test_rebind_has_a_known_axis_for_runtimes_that_need_ranks() -> None:
    """OpenVINO knows the element of a constant of one number, whatever its index, and so the rank behind Unsqueeze."""
    graph = graph_of(lambda x, b: ops.exp(x).rebind("batch", 4), ["?", "?"], ["batch"])
    model = graph.to_onnx(target="onnx").graph
    by_result = {name: node for node in model.node for name in node.output}
    constants = {constant.name: onnx.numpy_helper.to_array(constant).tolist() for constant in model.initializer}
    (unsqueeze,) = [node for node in model.node if node.op_type == "Unsqueeze"]
    axes = by_result[unsqueeze.input[1]]
    assert axes.op_type == "Gather"
    assert constants[axes.input[0]] == [0]


def test_rebind_copies_nothing_and_costs_little() -> None:
    plain = InferenceSession().load(graph_of(lambda x: ops.exp(x).flatten().sum(), ["?", "?"]))
    checked = InferenceSession().load(graph_of(lambda x: ops.exp(x).rebind("n", 4).flatten().sum(), ["?", "?"]))
    x = ones(8, 4)
    cost = min(checked.benchmark(x, runs=200)["best"] - plain.benchmark(x, runs=200)["best"] for _ in range(3))
    assert cost < 100e-6
