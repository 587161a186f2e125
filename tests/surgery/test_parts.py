"""Parts of graphs, and graphs with other names, inputs, outputs, constants and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from tests.sampling import drawn

F32 = DType.float32
rng = np.random.default_rng(1)
X = rng.standard_normal((2, 4)).astype(np.float32)


def run(graph: Graph, **feeds: Any) -> dict[str, Any]:
    model = gc.InferenceSession().load(graph)
    return dict(zip(graph.output_types, model(**feeds), strict=True))


def network() -> Graph:
    g = Graph("net", {"x": TensorType(F32, ["batch", 4]), "y": TensorType(F32, ["batch", 4])})
    with g.layer("first"):
        hidden = ops.relu(g["x"] @ g.weight("w1", rng.standard_normal((4, 3)).astype(np.float32)))
    hidden.name = "hidden"
    with g.layer("second"):
        head = hidden @ g.weight("w2", rng.standard_normal((3, 2)).astype(np.float32))
    g.output(head=head, total=ops.sum(g["y"]) + ops.sum(hidden))
    return g


@pytest.fixture
def net() -> Graph:
    return network()


def text(graph: Graph) -> bytes:
    return bytes(graph.to_onnx().SerializeToString())


# extract


def test_extract_gives_the_part_with_its_names_layers_lines_and_weights(net: Graph) -> None:
    before = text(net)
    graph = net.extract(["hidden"], ["head"])
    assert [str(s) for s in graph.inputs] == ["hidden: float32[batch, 3]"]
    assert [*graph.output_types] == ["head"]
    assert [*graph.weights] == ["w2"]
    assert graph.weights["w2"].producer.array is net.weights["w2"].producer.array  # type: ignore[union-attr]
    assert [n.layer for n in graph.nodes] == ["second/"]
    assert graph.nodes[0].line == net.nodes[-1].line or graph.nodes[0].line is not None
    assert text(net) == before, "the old graph stays"


def test_extract_takes_symbols_mappings_and_the_needed_inputs(net: Graph) -> None:
    graph = net.extract({"h": net["hidden"]}, {"logits": net.outputs[0]})
    assert [s.name for s in graph.inputs] == ["h"]
    assert [*graph.output_types] == ["logits"]
    whole = net.extract(None, "head")
    assert [s.name for s in whole.inputs] == ["x"], "y is not needed"
    np.testing.assert_array_equal(run(whole, x=X)["head"], run(net, x=X, y=X)["head"])


def test_parts_put_together_give_the_whole(net: Graph) -> None:
    whole = gc.compose(net.extract(["x"], ["hidden"]), net.extract(["hidden"], ["head"]))
    np.testing.assert_array_equal(run(whole, x=X)["head"], run(net, x=X, y=X)["head"])


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["x"], ["total"], "the outputs also depend on 'y'"),
        ([], ["head"], "the outputs also depend on 'x'"),
        (["x", "x"], ["head"], "input 'x' is given twice"),
        (["x"], [], "no outputs given"),
        (["nothing"], ["head"], "nothing"),
        (["x"], ["hiden"], "hidden"),
    ],
)
def test_extract_says_what_is_missing(net: Graph, inputs: list[str], outputs: list[str], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        net.extract(inputs, outputs)
    assert "test_parts.py" in str(caught.value)


def test_extract_refuses_values_of_other_graphs(net: Graph) -> None:
    with pytest.raises(GraphError, match="belongs to graph 'net', not to this one"):
        net.extract([network()["x"]], ["head"])


def test_extract_cuts_before_bodies_that_capture_a_value() -> None:
    g = Graph("g", {"x": TensorType(F32, [3]), "flag": TensorType(DType.bool, [])})
    doubled = g["x"] * 2
    doubled.name = "doubled"
    g.output(y=ops.cond(g["flag"], lambda: doubled + 1, lambda: doubled - 1))
    graph = g.extract(["doubled", "flag"], ["y"])
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(run(graph, doubled=x * 2, flag=np.array(True))["y"], x * 2 + 1)
    with pytest.raises(GraphError, match="also depend on 'flag'"):
        g.extract(["doubled"], ["y"])


def test_buffers_that_are_needed_come_along() -> None:
    g = Graph("g", {"x": TensorType(F32, []), "sum": gc.Buffer(F32, [])})
    total = g["sum"] + g["x"]
    g["sum"] = total
    g.output(y=total * 2, z=g["x"] * 3)
    graph = g.extract(["x"], ["y"])
    assert [*graph.buffers] == ["sum"]
    model = gc.InferenceSession().load(graph)
    assert [float(model(np.float32(2))[0]) for _ in range(2)] == [4, 8]
    assert not g.extract(["x"], ["z"]).buffers


@settings(max_examples=drawn(40), deadline=None)
@given(st.data())
def test_any_cut_of_a_random_graph_gives_the_same_numbers(data: st.DataObject) -> None:
    g = Graph("random", {"x": TensorType(F32, ["n"]), "y": TensorType(F32, ["n"])})
    values: list[Symbol] = [*g.inputs]
    for _ in range(data.draw(st.integers(2, 8))):
        a, b = (values[data.draw(st.integers(0, len(values) - 1))] for _ in range(2))
        op: Any = data.draw(st.sampled_from([ops.add, ops.mul, ops.max]))
        values.append(op(a, b))
    g.output(out=values[-1], other=values[len(values) // 2] * 1)
    x, y = X[0], X[1]
    cut = values[data.draw(st.integers(0, len(values) - 2))]
    first = g.extract(None, {"cut": cut})
    fed = {s.name: {"x": x, "y": y}[s.name] for s in first.inputs}
    middle = run(first, **fed)["cut"]
    names = {cut.name: middle, **{n: v for n, v in (("x", x), ("y", y)) if n != cut.name}}
    second = g.extract([*names], ["out"])
    np.testing.assert_array_equal(run(second, **names)["out"], run(g, x=x, y=y)["out"])


# rename


def test_rename_reaches_inputs_outputs_weights_values_and_dims(net: Graph) -> None:
    graph = net.rename({"x": "image", "head": "logits", "hidden": "features", "w1": "first.weight", "batch": "rows"})
    assert [s.name for s in graph.inputs] == ["image", "y"]
    assert [*graph.output_types] == ["logits", "total"]
    assert {*graph.weights} == {"first.weight", "w2"}
    assert str(graph["features"].type) == "float32[rows, 3]"
    proto = graph.to_onnx(target="onnx")
    assert [o.name for o in proto.graph.output] == ["logits", "total"]
    np.testing.assert_array_equal(run(graph, image=X, y=X)["logits"], run(net, x=X, y=X)["head"])


def test_names_can_be_swapped_and_automatic_ones_replaced(net: Graph) -> None:
    graph = net.rename({"x": "y", "y": "x"})
    assert [s.name for s in graph.inputs] == ["y", "x"]
    automatic = next(s.name for n in net.nodes for s in n.outputs if s.given_name is None)
    assert net.rename({automatic: "named"})["named"].type is not None


def test_a_name_of_a_value_and_a_dim_has_to_be_told_apart() -> None:
    g = Graph("g", {"n": TensorType(F32, ["n"])})
    g.output(y=g["n"] * 2)
    with pytest.raises(GraphError, match="is both a value and a dim"):
        g.rename({"n": "m"})
    graph = g.rename(values={"n": "m"}, dims={"n": "rows"})
    assert str(graph.inputs[0]) == "m: float32[rows]"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"nothing": "a"}, "nothing"),
        ({"x": "y"}, "the name 'y' is taken"),
        ({"x": "a", "y": "a"}, "two values would have the same name"),
        ({"batch": "7"}, "is not a name of a dim"),
    ],
)
def test_rename_refuses(net: Graph, names: dict[str, str], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        net.rename(names)


@pytest.mark.parametrize("size", [-3, -1, 1 << 63, 1 << 70, 1.5, True, None, "", "a b", "2 batch", [1]])
def test_sizes_of_dims_are_refused_when_they_are_none(net: Graph, size: Any) -> None:
    for work in (lambda: net.with_dims(batch=size), lambda: TensorType(F32, [size])):
        with pytest.raises(ShapeError, match="is not a valid dim") as caught:
            work()
        assert caught.value.help


def test_dim_that_no_file_can_say_is_left_open() -> None:
    """The sum of the axes, which wrapped to 0."""
    g = Graph("g", {"x": TensorType(F32, [1 << 62])})
    with pytest.raises(ShapeError, match="beyond int64"):
        ops.reshape(ops.unsqueeze(g["x"], 0) + ops.unsqueeze(g["x"], 1), [-1])
    g.output(y=ops.concat([g["x"]] * 4))
    assert g.outputs[0].shape == (1 << 64,)
    result = g.to_onnx()
    assert not result.graph.output[0].type.tensor_type.shape.dim[0].HasField("dim_value")


def test_bounds_of_dims_are_renamed_with_them() -> None:
    g = Graph("g", {"x": TensorType(F32, [gc.Dim("n", min=1)])})
    g.output(y=g["x"] * 2)
    result = gc.InferenceSession().load(g.rename(dims={"n": "rows"}))
    with pytest.raises(gc.GraphcoreError, match="rows"):
        result(np.zeros(0, np.float32))


# inputs, outputs, constants, weights


def test_outputs_are_dropped_added_and_put_in_another_order(net: Graph) -> None:
    graph = net.with_outputs("total", "hidden", logits="head")
    assert [*graph.output_types] == ["total", "hidden", "logits"]
    wanted = run(net, x=X, y=X)
    result = run(graph, x=X, y=X)
    np.testing.assert_array_equal(result["logits"], wanted["head"])
    assert len(net.with_outputs("head").nodes) < len(net.nodes), "what only others needed goes"


def test_inputs_are_dropped_added_and_put_in_another_order(net: Graph) -> None:
    graph = net.with_outputs("head").with_inputs("x", later=TensorType(DType.int64, []))
    assert [s.name for s in graph.inputs] == ["x", "later"]
    with pytest.raises(GraphError, match="cannot drop 'y', because the outputs depend on it"):
        net.with_inputs("x")
    with pytest.raises(GraphError, match="'hidden' is neither an input nor a weight"):
        net.with_inputs("x", "y", "hidden")


def test_a_weight_becomes_an_input(net: Graph) -> None:
    graph = net.with_inputs("x", "y", "w1")
    w1 = net.weights["w1"].producer.array  # type: ignore[union-attr]
    assert [*graph.weights] == ["w2"]
    np.testing.assert_array_equal(run(graph, x=X, y=X, w1=w1)["head"], run(net, x=X, y=X)["head"])


def test_an_input_becomes_a_constant_whose_sizes_hold_for_the_others(net: Graph) -> None:
    result = net.with_constants(y=X.tolist())
    assert [str(s) for s in result.inputs] == ["x: float32[2, 4]"]
    np.testing.assert_array_equal(run(result, x=X)["total"], run(net, x=X, y=X)["total"])
    with pytest.raises(ShapeError, match=r"'y' has shape \[batch, 4\], and the value \[3\]"):
        net.with_constants(y=np.zeros(3, np.float32))
    with pytest.raises(DTypeError):
        net.with_constants(y=np.full((2, 4), 1e300))
    with pytest.raises(GraphError, match="no input is called 'w1'"):
        net.with_constants({"w1": 1})


def test_a_constant_shape_is_known_where_it_decides_a_type() -> None:
    g = Graph("g", {"x": TensorType(F32, [6]), "shape": TensorType(DType.int64, [2])})
    (y,) = g.op("Reshape", [g["x"], g["shape"]], {}, [TensorType(F32, ["?", "?"])])
    g.output(y=ops.exp(y))
    assert str(g.with_constants(shape=[2, 3]).output_types["y"]) == "float32[2, 3]"


def test_weights_are_replaced_by_reference_and_readers_typed_again(net: Graph) -> None:
    array = rng.standard_normal((3, 5)).astype(np.float32)
    graph = net.with_weights({"w2": array})
    assert graph.weights["w2"].producer.array is array  # type: ignore[union-attr]
    assert str(graph.output_types["head"]) == "float32[batch, 5]"
    with pytest.raises(ShapeError, match="with_weights: MatMul"):
        net.with_weights({"w2": np.zeros((4, 5), np.float32)})
    with pytest.raises(GraphError, match="no weight is called 'w3'"):
        net.with_weights({"w3": array})


# dims


def test_named_dims_become_sizes_everywhere(net: Graph) -> None:
    graph = net.with_dims(batch=2)
    assert {str(s.type) for n in graph.nodes for s in n.outputs if s.type.shape.rank} == {
        "float32[2, 2]", "float32[2, 3]"
    }  # fmt: skip
    np.testing.assert_array_equal(run(graph, x=X, y=X)["head"], run(net, x=X, y=X)["head"])


@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (lambda x: ops.reshape(x, [2, 12]), [2, 3, 4]),
        (lambda x: ops.reshape(x, [-1, 4]), [2, 3, 4]),
        (lambda x: ops.reshape(x, [2, 3, 2, 2]), [2, 3, 4]),
        (lambda x: ops.reshape(x, [6, 4]) * 2, [2, 3, 4]),
        (lambda x: ops.reshape(ops.reshape(x, [6, 4]), [2, 3, 4]), [2, 3, 4]),
        (lambda x: ops.reshape(ops.transpose(x, 0, 1), [3, 2, 4]), [2, 3, 4]),
        (lambda x: ops.sum(x, axis=1), [2, 3, 4]),
        (lambda x: ops.broadcast_to(x, [5, 2, 3, 4]), [2, 3, 4]),
        (lambda x: ops.concat([x, np.ones((1, 1, 4), np.float32)], axis=1), [1, 3, 4]),
        (lambda x: ops.reshape(x, [1, 12]) + np.ones((1, 12), np.float32), [1, 3, 4]),
        (lambda x: ops.softmax(x @ np.ones((4, 3), np.float32)), [2, 3, 4]),
    ],
)
def test_sizes_become_names_and_numbers_inside_follow(build: Any, sizes: list[int]) -> None:
    g = Graph("g", {"x": TensorType(F32, sizes)})
    g.output(y=build(g["x"]))
    graph = Graph.load(g.to_onnx(target="onnx")).with_dims({"x": ["batch", *sizes[1:]]})
    for rows in (sizes[0], 5):
        h = Graph("h", {"x": TensorType(F32, [rows, *sizes[1:]])})
        x = rng.standard_normal((rows, *sizes[1:])).astype(np.float32)
        parts = [run(g, x=x[i : i + sizes[0]])["y"] for i in range(0, rows, sizes[0])] if rows == sizes[0] else []
        result = run(graph, x=x)["y"]
        if parts:
            np.testing.assert_array_equal(result, parts[0])
        assert h.inputs[0].type is not None
        assert result.size % rows == 0


def test_sizes_become_names_with_the_numbers_of_each_row() -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 3, 4])})
    y = ops.reshape(ops.reshape(g["x"], [2, 12]) @ np.arange(24, dtype=np.float32).reshape(12, 2), [2, 1, 2])
    g.output(y=y)
    graph = g.with_dims({"x": ["batch", 3, 4]})
    assert str(graph.output_types["y"]) == "float32[batch, 1, 2]"
    x = rng.standard_normal((4, 3, 4)).astype(np.float32)
    wanted = np.concatenate([run(g, x=x[:2])["y"], run(g, x=x[2:])["y"]])
    np.testing.assert_allclose(run(graph, x=x)["y"], wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("build", "sizes", "message"),
    [
        (lambda x: x + np.ones((2, 1, 1), np.float32), [2, 3, 4], "an operand has 2 elements where another has batch"),
        (lambda x: ops.reshape(x, [4, 6]), [2, 3, 4], "it is unclear which size changes"),
        (lambda x: ops.reshape(x, [12]), [1, 3, 4], "drops a dim of 1 that is batch now"),
        (lambda x: ops.concat([x, np.ones((2, 1, 4), np.float32)], axis=1), [2, 3, 4], "has 2 elements where another"),
        (lambda x: np.ones((3, 2), np.float32) @ x, [2, 4], "has 2 elements where another has batch"),
    ],
)
def test_a_number_that_cannot_be_told_is_named_with_its_node(build: Any, sizes: list[int], message: str) -> None:
    g = Graph("g", {"x": TensorType(F32, sizes)})
    g.output(y=build(g["x"]))
    with pytest.raises(ShapeError, match=message) as caught:
        g.with_dims({"x": ["batch", *sizes[1:]]})
    assert "with_dims: " in str(caught.value)
    assert "test_parts.py" in str(caught.value)


ROWS, WHOLE = np.ones((8, 4), np.float32), np.ones((8, 4), np.int32)
MEET: dict[str, Any] = {
    "atan2": lambda x: ops.atan2(x, ROWS),
    "//": lambda x: x // ROWS,
    "!=": lambda x: x != ROWS,
    "<<": lambda x: x.cast("int32") << WHOLE,
    "pow": lambda x: x.cast("int32") ** WHOLE,
    "hypot": lambda x: ops.hypot(x, ROWS),
    "copysign": lambda x: ops.copysign(x, ROWS),
    "ldexp": lambda x: ops.ldexp(x, WHOLE),
    "StringConcat": lambda x: ops.onnx.StringConcat(ops.onnx.Cast(x, to=DType.string), ROWS.astype(str).astype(object)),
    "fma": lambda x: ops.fma(x, ROWS, ROWS),
    "swiglu": lambda x: ops.swiglu(ROWS, x),
    "complex": lambda x: abs(ops.complex(x, ROWS)),
    "Add": lambda x: x + ROWS,
    "PRelu": lambda x: ops.prelu(x, ROWS),
    "Gemm": lambda x: ops.onnx.Gemm(ops.transpose(x, 0, 1), ROWS, transB=0),
    "Gemm's sum": lambda x: ops.onnx.Gemm(x, np.ones((5, 4), np.float32), np.ones((8, 5), np.float32), transB=1),
    "Einsum": lambda x: ops.onnx.Einsum(x, ROWS, equation="bi,bj->ij"),
    "Einsum with dots": lambda x: ops.onnx.Einsum(x, ROWS, equation="...i,...i->...i"),
    "ReverseSequence": lambda x: ops.onnx.ReverseSequence(x, np.full(8, 2), batch_axis=0, time_axis=1),
    "QuantizeLinear": lambda x: ops.onnx.QuantizeLinear(x, np.ones(8, np.float32), np.zeros(8, np.int8), axis=0),
    "DequantizeLinear": lambda x: ops.onnx.DequantizeLinear(x.cast("int8"), np.ones(8, np.float32), axis=-2),
}


@pytest.mark.parametrize("operator", MEET)
@pytest.mark.parametrize("rows", [3, "batch"])
def test_sizes_that_do_not_meet_are_refused_with_the_node(operator: str, rows: Any) -> None:
    g = Graph("g", {"x": TensorType(F32, [8, 4])}, promotion="numpy")
    g.output(y=MEET[operator](g["x"]))
    with pytest.raises(ShapeError, match="with_dims: ") as caught:
        g.with_dims({"x": [rows, 4]})
    assert "test_parts.py" in str(caught.value)
    assert str(rows) in caught.value.summary
    assert g.with_dims({"x": [8, 4]}).output_types == g.output_types


@pytest.mark.parametrize("operator", [o for o in MEET if o not in ("Gemm", "ReverseSequence")])
def test_one_row_meets_many_where_both_are_repeated(operator: str) -> None:
    g = Graph("g", {"x": TensorType(F32, [8, 4])}, promotion="numpy")
    g.output(y=MEET[operator](g["x"]))
    stays = operator in ("PRelu", "Gemm's sum", "QuantizeLinear", "DequantizeLinear")  # not repeated to the others
    if stays:
        with pytest.raises(ShapeError, match="where another has"):
            g.with_dims({"x": [1, 4]})
    else:
        assert run(g.with_dims({"x": [1, 4]}), x=np.ones((1, 4), np.float32))["y"].shape == g.outputs[0].shape


def test_a_weight_of_another_size_is_refused_with_the_node() -> None:
    for build in (lambda x, w: x // w, lambda x, w: ops.fma(x, w, x)):
        g = Graph("g", {"x": TensorType(F32, [8, 4])})
        g.output(y=build(g["x"], g.weight("w", ROWS)))
        with pytest.raises(ShapeError, match="8 and 3 at axis -2"):
            g.with_weights({"w": ROWS[:3]})


@pytest.mark.parametrize(
    ("shapes", "dims", "message"),
    [
        ({}, {"seq": 3}, "no input has a dim called 'seq'"),
        ({"z": [1]}, {}, "no input is called 'z'"),
        ({"x": [1]}, {}, "input 'x' has 2 dims"),
        ({"x": [2, 4], "y": [3, 4]}, {}, "dim batch would be 2 and 3"),
    ],
)
def test_with_dims_refuses(net: Graph, shapes: Any, dims: Any, message: str) -> None:
    with pytest.raises(gc.GraphcoreError, match=message):
        net.with_dims(shapes, **dims)


def test_operators_of_other_domains_come_along() -> None:
    @gc.custom_op("surgery.test::Doubled")
    def doubled(x: TensorType) -> TensorType:
        return x

    @doubled.body
    def _(x: Symbol) -> Symbol:
        return x + x

    g = Graph("g", {"x": TensorType(F32, ["n", 4])})
    g.output(y=doubled(g["x"]))
    h = Graph("h", {"x": TensorType(F32, [2, 4])})
    h.output(y=g(h["x"]))
    assert str(h.output_types["y"]) == "float32[2, 4]"
    np.testing.assert_array_equal(run(h, x=X)["y"], X * 2)
