"""Calling a Graph on Symbols of another."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.symbol import Symbols

F32 = DType.float32
rng = np.random.default_rng(0)


def mlp() -> Graph:
    g = Graph("mlp", {"x": TensorType(F32, ["batch", 4])})
    w = g.weight("w", rng.standard_normal((4, 3)).astype(np.float32))
    with g.layer("dense"):
        y = g["x"] @ w
    g.output(y=ops.relu(y + 1))
    return g


def two() -> Graph:
    g = Graph("two", {"a": TensorType(F32, ["n", "m"]), "b": TensorType(F32, ["m"])})
    g.output(total=g["a"] + g["b"], most=ops.max(g["a"], axis=1))
    return g


def run(graph: Graph, *arrays: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return tuple(gc.InferenceSession().load(graph)(*arrays))


X = rng.standard_normal((2, 4)).astype(np.float32)


def test_a_call_gives_what_the_graph_gives_with_as_many_nodes() -> None:
    model = mlp()
    g = Graph("caller", {"x": TensorType(F32, ["rows", 4])})
    y = model(g["x"])
    assert isinstance(y, Symbol)
    assert str(y.type) == "float32[rows, 3]"
    g.output(y)
    assert len(g.nodes) == len(model.nodes)
    np.testing.assert_array_equal(run(g, X)[0], run(model, X)[0])
    assert [node.layer for node in g.nodes] == ["mlp/dense/", "mlp/", "mlp/"]
    assert "mlp/w" in g.weights
    assert g.weights["mlp/w"].producer.array is model.weights["w"].producer.array  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "value", [lambda x, b: ((x, b), {}), lambda x, b: ((x,), {"b": b}), lambda x, b: ((), {"b": b, "a": x}),
              lambda x, b: (({"a": x, "b": b},), {})]
)  # fmt: skip
def test_operands_are_given_by_position_by_name_or_in_one_mapping(value: object) -> None:
    g = Graph("caller", {"x": TensorType(F32, [2, 4]), "b": TensorType(F32, [4])})
    arguments, named = value(*g.inputs)  # type: ignore[operator]
    results = two()(*arguments, **named)
    assert isinstance(results, Symbols)
    assert results.names == ("total", "most")
    assert results["total"] is results[0]
    assert results.asdict()["most"] is results[1]
    assert [str(s.type) for s in results] == ["float32[2, 4]", "float32[2]"]
    with pytest.raises(GraphError, match="no output is called 'least'"):
        results["least"]


def test_arrays_numbers_and_lists_are_constants_of_the_dtype_of_the_input() -> None:
    g = Graph("caller", {"x": TensorType(F32, [1, 4])})
    result = two()(g["x"], [1, 2, 3, 4])
    g.output(list(result))
    np.testing.assert_array_equal(run(g, X[:1])[0], X[:1] + np.array([1, 2, 3, 4], np.float32))


def test_weights_are_one_where_a_graph_is_called_twice() -> None:
    model = mlp()
    g = Graph("caller", {"a": TensorType(F32, ["n", 4]), "b": TensorType(F32, [3, 4])})
    y, z = model(g["a"]), model(g["b"])
    g.output(y, z)
    assert [*g.weights] == ["mlp/w"]
    assert len({node.layer for node in g.nodes}) == 4
    assert str(z.type) == "float32[3, 3]"
    again = model.copy()
    h = Graph("other", {"a": TensorType(F32, ["n", 4])})
    again.output(again.symbols[-1])
    h.output(model(h["a"]), again(h["a"]))
    assert [*h.weights] == ["mlp/w", "mlp_1/w"], "a copy has weights of its own"


def test_a_call_as_a_function_is_one_node_and_shares_its_weights() -> None:
    model = mlp()
    g = Graph("caller", {"a": TensorType(F32, ["n", 4]), "b": TensorType(F32, [2, 4])})
    y, z = model(g["a"], as_function=True), model(g["b"], as_function=True)
    g.output(y, z)
    assert [node.op_type for node in g.nodes] == ["mlp", "mlp"]
    assert len(g.weights) == 1
    assert str(z.type) == "float32[2, 3]"
    proto = g.to_onnx(target="onnx")
    assert [f.name for f in proto.functions] == ["mlp"]
    want = run(model, X)[0]
    for item in run(g, X, X):
        np.testing.assert_array_equal(item, want)


def test_a_graph_is_called_in_bodies_in_functions_and_in_jit() -> None:
    model = mlp()
    want = run(model, X)[0]
    g = Graph("caller", {"x": TensorType(F32, ["n", 4]), "c": TensorType(DType.bool, [])})
    y = ops.cond(g["c"], lambda: model(g["x"]), lambda: model(g["x"]) * 0)
    g.output(y)
    assert len(g.weights) == 1
    np.testing.assert_array_equal(run(g, X, np.array(True))[0], want)
    np.testing.assert_array_equal(run(g, X, np.array(False))[0], want * 0)

    @gc.function
    def twice(x: Symbol) -> Any:
        return model(x) + model(x)

    h = Graph("functions", {"x": TensorType(F32, ["n", 4])})
    h.output(twice(h["x"]))
    np.testing.assert_array_equal(run(h, X)[0], want + want)
    np.testing.assert_array_equal(gc.jit(lambda x: model(x))(X), want)


def test_bodies_functions_buffers_and_custom_operators_come_along() -> None:
    model = Graph("stateful", {"x": TensorType(F32, ["n"]), "total": gc.Buffer(F32, [], initial=1)})
    n, remaining = model["x"], model["total"]
    total = ops.sum(n) + remaining
    model["total"] = total
    model.output(grown=ops.while_loop(lambda s: s < 100, lambda s: s * 2, total))
    g = Graph("caller", {"x": TensorType(F32, [3])})
    first = model(g["x"])
    second = model(g["x"])
    g.output(first=first, second=second)
    assert [*g.buffers] == ["stateful/total"], "one state for both calls"
    ready = gc.InferenceSession().load(g)
    x = np.array([1, 2, 3], np.float32)
    want = gc.InferenceSession().load(model)
    for _ in range(2):
        a, b = ready(x)
        np.testing.assert_array_equal([a, b], [want(x)[0], want(x)[0]])


def test_buffers_are_not_called_in_bodies_nor_as_functions() -> None:
    model = Graph("stateful", {"x": TensorType(F32, []), "total": gc.Buffer(F32, [])})
    model["total"] = model["total"] + model["x"]
    model.output(y=model["total"] * 1)
    g = Graph("caller", {"x": TensorType(F32, [])})
    with pytest.raises(GraphError, match="has buffers, so it cannot be called in a body"):
        ops.while_loop(lambda s: s < 1, lambda s: model(s), g["x"])
    with pytest.raises(GraphError, match="has buffers, and functions cannot have buffers"):
        model(g["x"], as_function=True)


def test_nodes_are_typed_again_for_static_dims() -> None:
    model = Graph("flat", {"x": TensorType(F32, ["n", "h", "w"])})
    model.output(y=ops.reshape(model["x"], [model["x"].shape[0], -1]))
    loaded = Graph.load(model.to_onnx())
    g = Graph("caller", {"x": TensorType(F32, [2, 3, 5])})
    for each in (model, loaded):
        assert str(each(g["x"]).type) == "float32[2, 15]"


def test_an_unknown_dim_of_the_model_takes_any() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[N, M] x) => (float[N, K] y) { t = Transpose(x) y = Abs(t) }'
    )
    model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    g = Graph("caller", {"x": TensorType(F32, ["a", 7])})
    assert str(Graph.load(model)(g["x"]).type) == "float32[7, a]"


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda g: two()(g["x"]), GraphError, "missing operands for 'b'"),
        (lambda g: two()(g["x"], g["v"], g["v"]), GraphError, "got 3 operands for 2 inputs"),
        (lambda g: two()(g["x"], c=g["v"]), GraphError, "there is no input 'c'"),
        (lambda g: two()(g["x"], a=g["x"]), GraphError, "input 'a' is given twice"),
        (lambda g: mlp()(g["v"]), ShapeError, "input 'x' has rank 2, and the operand has rank 1"),
        (lambda g: mlp()(g["wide"]), ShapeError, "dim 1 of input 'x' is 4, got 5"),
        (lambda g: two()(g["x"], g["w"]), ShapeError, "is m, which is 4 in input 'a', got 3"),
        (lambda g: mlp()(g["i"]), DTypeError, "input 'x' is float32, got int8"),
        (lambda g: mlp()(g["d"], implicit_casts=True), DTypeError, "they meet in float64 under max"),
        (lambda g: mlp()(X), GraphError, "gc.InferenceSession"),
        (lambda g: Graph("empty", {"x": TensorType(F32, [])})(g["v"]), GraphError, "no outputs"),
    ],
)  # fmt: skip
def test_a_call_that_cannot_be_is_an_error_at_its_line(build: object, error: type[Exception], text: str) -> None:
    g = Graph(
        "caller",
        {
            "x": TensorType(F32, [2, 4]), "v": TensorType(F32, [4]), "w": TensorType(F32, [3]),
            "wide": TensorType(F32, [2, 5]), "i": TensorType(DType.int8, [2, 4]),
            "d": TensorType(DType.float64, [2, 4]),
        },
    )  # fmt: skip
    with pytest.raises(error, match=None) as caught:
        build(g)  # type: ignore[operator]
    assert text in str(caught.value)
    assert "test_call.py" in str(caught.value)
    assert not g.nodes, "nothing is left of the call"


def test_implicit_casts_are_those_of_the_callers_promotion_system() -> None:
    g = Graph("caller", {"i": TensorType(DType.int8, [2, 4])})
    g.output(mlp()(g["i"], implicit_casts=True))
    assert g.nodes[0].op_type == "Cast"
    book = Graph("strict", {"i": TensorType(DType.int8, [2, 4])}, promotion="array_api")
    with pytest.raises(gc.GraphcoreError):
        mlp()(book["i"], implicit_casts=True)


def test_results_of_a_call_are_pickled_and_copied_with_their_graph() -> None:
    g = Graph("caller", {"x": TensorType(F32, [2, 4]), "b": TensorType(F32, [4])})
    g.output(list(two()(*g.inputs)))
    again = copy.deepcopy(g)
    np.testing.assert_array_equal(run(again, X, X[0])[0], run(g, X, X[0])[0])


def test_names_of_values_follow_the_layer_and_those_of_the_caller_stay() -> None:
    model = mlp()
    g = Graph("caller", {"x": TensorType(F32, [2, 4])})
    y = model(g["x"], layer="encoder")
    assert y.name == "encoder/y"
    z = model(g["x"], layer="")
    assert z.name == "y"
    assert model(g["x"], layer="").name != "y"


def test_own_dims_of_two_calls_differ() -> None:
    model = Graph("picked", {"x": TensorType(F32, ["n"])})
    model.output(y=ops.nonzero(model["x"], out_dim="found"))
    g = Graph("caller", {"a": TensorType(F32, ["n"]), "b": TensorType(F32, ["m"])})
    first, second = model(g["a"]), model(g["b"])
    assert first.shape[0] != second.shape[0]


def test_compose_runs_the_second_on_what_the_first_gives() -> None:
    first = Graph("pre", {"pixels": TensorType(DType.uint8, ["n", 4])})
    first.output(images=first["pixels"].cast(F32) / 255, raw=first["pixels"] + 0)
    whole = gc.compose(first, mlp(), {"images": "x"})
    assert [s.name for s in whole.inputs] == ["pixels"]
    assert [*whole.output_types] == ["raw", "y"]
    pixels = rng.integers(0, 255, (2, 4), np.uint8)
    expected = run(mlp_of(whole), pixels.astype(np.float32) / 255)[0]
    np.testing.assert_allclose(run(whole, pixels)[1], expected, rtol=1e-5)  # 255 divides the weights, not the pixels
    buffer = io.BytesIO(whole.to_onnx().SerializeToString())
    assert Graph.load(buffer.getvalue()).output_types.keys() == whole.output_types.keys()


def mlp_of(whole: Graph) -> Graph:
    """The MLP with the weight that a composed graph has."""
    g = Graph("mlp", {"x": TensorType(F32, ["batch", 4])})
    g.output(y=ops.relu(g["x"] @ g.weight("w", whole.weights["w"].producer.array) + 1))  # type: ignore[union-attr]
    return g


def test_compose_connects_equal_names_and_single_ones() -> None:
    first = Graph("pre", {"p": TensorType(F32, ["n", 4])})
    first.output(anything=first["p"] * 2)
    assert [*gc.compose(first, mlp()).output_types] == ["y"]
    second = Graph("post", {"y": TensorType(F32, ["n", 3]), "k": TensorType(F32, [3])})
    second.output(z=second["y"] * second["k"])
    whole = gc.compose(mlp(), second)
    assert [s.name for s in whole.inputs] == ["x", "k"]
    assert [*whole.output_types] == ["z"]


@pytest.mark.parametrize(
    ("connect", "text"),
    [
        ({"nothing": "x"}, "the first graph has no output 'nothing'"),
        ({"most": "nothing"}, "the second graph has no input 'nothing'"),
        ({}, "connect is empty, so no output feeds an input"),
        (None, "no output of the first graph has the name of an input of the second"),
    ],
)
def test_compose_says_which_names_there_are(connect: dict[str, str] | None, text: str) -> None:
    with pytest.raises(GraphError, match=text) as caught:
        gc.compose(two(), mlp(), connect)
    assert "takes x" in str(caught.value)


def test_compose_refuses_inputs_of_one_name() -> None:
    second = Graph("post", {"y": TensorType(F32, ["n", 3]), "x": TensorType(F32, [3])})
    second.output(z=second["y"] * second["x"])
    with pytest.raises(GraphError, match="both graphs have an input 'x'") as caught:
        gc.compose(mlp(), second, {"y": "y"})
    assert "rename" in str(caught.value)
