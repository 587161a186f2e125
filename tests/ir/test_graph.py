"""Building graphs: inputs, constants, weights, layers, outputs, names, text, copies."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcore import Dim, DType, Graph, OptionalType, SequenceType, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, PromotionError, SymbolError
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Constant, Node

D = DType
F32 = TensorType(D.float32, ["n", 4])


def array_of(symbol: Symbol) -> np.ndarray[Any, Any]:
    assert isinstance(symbol.producer, Constant)
    return symbol.producer.array


def node_of(symbol: Symbol) -> Node:
    assert isinstance(symbol.producer, Node)
    return symbol.producer


# Inputs


def test_inputs_are_found_by_position_and_name() -> None:
    graph = Graph("g", {"a": F32, "b": TensorType(D.int8)})
    assert [s.name for s in graph.inputs] == ["a", "b"]
    assert graph[0] is graph["a"] is graph.inputs[0]
    assert graph[-1] is graph["b"]
    assert graph["b"].type is TensorType(D.int8)
    assert (graph["a"].rank, graph["a"].ndim, graph["a"].dtype) == (2, 2, D.float32)
    assert graph["a"].shape == ["n", 4]
    assert graph["a"].graph is graph
    assert not graph["a"].is_constant


def test_inputs_are_numbered_when_given_as_a_list() -> None:
    graph = Graph("g", [F32, F32])
    assert [s.name for s in graph.inputs] == ["input0", "input1"]
    assert Graph("none").inputs == ()


def test_inputs_may_be_sequences_and_optionals() -> None:
    graph = Graph("g", {"s": SequenceType(F32), "o": OptionalType(F32)})
    assert str(graph["s"]) == "s: seq(float32[n, 4])"
    with pytest.raises(GraphError, match=r"optional\(float32\[n, 4\]\) is not a tensor and has no dtype"):
        _ = graph["o"].dtype
    with pytest.raises(GraphError, match="is not a tensor and has no shape"):
        _ = graph["s"].shape


def test_inputs_are_refused_when_a_type_is_none() -> None:
    with pytest.raises(GraphError, match="the type of input 'x' must be a TensorType, got 'float32'") as raised:
        Graph("g", {"x": "float32"})  # type: ignore[dict-item]
    assert raised.value.help == "for example TensorType(DType.float32, ['batch', 4])"


@pytest.mark.parametrize("name", ["", None, 3, "a\nb"])
def test_names_are_refused_when_they_are_none(name: Any) -> None:
    with pytest.raises(GraphError, match="is not a valid name"):
        Graph(name)
    with pytest.raises(GraphError, match="is not a valid name"):
        Graph("g", {name: F32})
    graph = Graph("g", {"x": F32})
    with pytest.raises(GraphError, match="is not a valid name"):
        graph.weight(name, np.zeros(2))
    with pytest.raises(GraphError, match="is not a valid name"), graph.layer(name):
        pass


def test_names_may_be_any_text() -> None:
    graph = Graph("größe", {"x/y:0": F32, "名": F32})
    assert graph["名"].name == "名"


def test_lookup_raises_when_there_is_none() -> None:
    graph = Graph("g", {"a": F32})
    with pytest.raises(GraphError, match=r"graph\['b'\]: nothing in graph 'g' has that name") as raised:
        graph["b"]
    assert raised.value.help == "its inputs: 'a'"
    with pytest.raises(GraphError, match=r"graph\[1\]: graph 'g' has 1 inputs"):
        graph[1]
    value = graph["a"]
    for _ in range(9):
        value = -value
    graph.output(last=value)
    with pytest.raises(GraphError) as raised:
        graph["b"]
    listed = ", ".join(f"'neg_{i}'" for i in range(1, 8))
    assert raised.value.help == f"its inputs: 'a'; computed values: 'last', {listed} and 1 more"


# Constants and weights


def test_constant_copies_its_array() -> None:
    graph = Graph("g")
    values = np.arange(3, dtype=np.float32)
    whole, part = graph.constant(values), graph.constant(values[1:])
    values[:] = 9
    assert array_of(whole).tolist() == [0, 1, 2]
    assert array_of(part).tolist() == [1, 2]
    assert whole.is_constant


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (1, D.int64, []), (1.5, D.float32, []), (True, D.bool, []), ([1, 2], D.int64, [2]),
        ([[1.0], [2.0]], D.float32, [2, 1]), ([np.float64(1)], D.float64, [1]),
        (np.float64(1), D.float64, []), (np.ones((2, 3), np.int8), D.int8, [2, 3]), ("text", D.string, []),
        (["a", "b"], D.string, [2]), (np.zeros(0, np.float16), D.float16, [0]),
        (np.ones(2, ml_dtypes.int4), D.int4, [2]),
        (np.ones(2, ml_dtypes.bfloat16), D.bfloat16, [2]), (np.array([1, 2], ">i4"), D.int32, [2]),
        (np.array(["a", "b"], object), D.string, [2]), ([2**63], D.uint64, [1]),
    ],
    ids=str,
)  # fmt: skip
def test_constant_has_its_own_dtype_when_none_is_given(value: Any, dtype: DType, shape: list[int]) -> None:
    result = Graph("g").constant(value)
    assert result.type is TensorType(dtype, shape)
    assert array_of(result).dtype.isnative
    assert array_of(result).tolist() == np.asarray(value).tolist()


def test_constant_is_held_as_the_dtype_given() -> None:
    graph = Graph("g")
    assert array_of(graph.constant([1, 2], D.int8)).dtype == np.int8
    assert array_of(graph.constant([0.1, 1e300], D.float64)).tolist() == [0.1, 1e300]
    assert array_of(graph.constant([0.1], "float16")).tolist() == [float(np.float16(0.1))]
    assert array_of(graph.constant([1 + 2.0**-12], D.tf32)).tolist() == [1.0]
    assert graph.constant([3], D.index).dtype is D.index
    assert array_of(graph.constant(np.array([True]), D.float32)).tolist() == [1.0]


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        ([1, 300], D.int8, "300 cannot be held in int8"),
        ([-1], D.uint8, "-1 cannot be held in uint8"),
        ([2.0], D.int32, r"2\.0 cannot be held in int32"),
        ([float("nan")], D.int32, "nan cannot be held in int32"),
        ([2049], D.float16, "2049 cannot be held in float16"),
        (1e300, None, r"1e\+300 cannot be held in float32"),
        ([1e6], D.float16, r"1000000\.0 cannot be held in float16"),
        (np.array([1e300]), D.float32, r"1e\+300 cannot be held in float32"),
        ([1 << 63], D.int64, "9223372036854775808 cannot be held in int64"),
        (np.arange(5000), D.int8, "4999 cannot be held in int8"),
        (np.arange(5000), D.float16, "2049 cannot be held in float16"),
        (["a"], D.int8, "string values cannot be cast to int8"),
        ([1], D.string, "int64 values cannot be cast to string"),
    ],
)
def test_constant_is_refused_when_an_element_cannot_be_held(value: Any, dtype: DType, text: str) -> None:
    graph = Graph("g")
    with pytest.raises(DTypeError, match=f"constant: {text}"):
        graph.constant(value, dtype)
    if isinstance(value, np.ndarray):
        with pytest.raises(DTypeError, match=f"weight: {text}"):
            graph.weight("w", value, dtype)


@pytest.mark.parametrize(
    "value",
    [None, object(), [[1], [1, 2]], {"a": 1}, 2**70, [1, None], np.array([None, 1], object), [b"x", 1]],
    ids=lambda v: repr(v)[:20],
)
def test_constant_is_refused_when_it_is_not_a_tensor(value: Any) -> None:
    with pytest.raises(DTypeError, match="constant: "):
        Graph("g").constant(value)


def test_scalar_and_vector_are_constants_of_rank_and_length() -> None:
    graph = Graph("g")
    assert graph.scalar(2, D.int8).type is TensorType(D.int8)
    assert graph.scalar(2.5, rank=2).type is TensorType(D.float32, [1, 1])
    assert graph.scalar(np.float16(2)).dtype is D.float16
    assert graph.scalar(True).dtype is D.bool
    assert graph.vector([1, 2, 3]).type is TensorType(D.int64, [3])
    assert graph.vector([1, 2], D.uint4).dtype is D.uint4
    with pytest.raises(DTypeError, match="300 cannot be held in int8"):
        graph.scalar(300, D.int8)


def test_named_constant_is_found_by_its_name() -> None:
    graph = Graph("g", {"x": F32})
    result = graph.constant(1.0, name="one")
    assert graph["one"] is result
    with pytest.raises(GraphError, match="constant: the name 'x' is taken"):
        graph.constant(1.0, name="x")


def test_weight_keeps_its_array_by_reference() -> None:
    graph = Graph("g")
    values = np.zeros((2, 3), np.float32)
    result = graph.weight("w", values)
    assert array_of(result) is values
    assert graph.weights == {"w": result}
    assert graph["w"] is result
    assert result.type is TensorType(D.float32, [2, 3])
    assert result.is_constant


def test_weight_of_uint64_is_kept_when_held_as_index() -> None:
    values = np.ones(2, np.uint64)
    result = Graph("g").weight("w", values, D.index)
    assert result.dtype is D.index
    assert array_of(result) is values


def test_weight_keeps_a_memory_map(tmp_path: Path) -> None:
    np.arange(4, dtype=np.float32).tofile(tmp_path / "w.bin")
    mapped = np.memmap(tmp_path / "w.bin", np.float32, "r")
    assert array_of(Graph("g").weight("w", mapped)) is mapped


def test_weight_is_made_native_and_contiguous_when_it_is_not() -> None:
    graph = Graph("g")
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    result = array_of(graph.weight("turned", turned))
    assert result.flags.c_contiguous
    assert (result == turned).all()
    swapped = array_of(graph.weight("swapped", np.array([1, 2], ">i4")))
    assert swapped.dtype.isnative
    assert swapped.tolist() == [1, 2]


def test_weight_is_refused_when_it_is_not_an_array_or_its_name_is_taken() -> None:
    graph = Graph("g", {"x": F32})
    with pytest.raises(DTypeError, match="weight 'w': must be an array, got list"):
        graph.weight("w", [1, 2])
    with pytest.raises(GraphError, match="weight: the name 'x' is taken"):
        graph.weight("x", np.zeros(2))
    with pytest.raises(DTypeError, match=r"weight: 'c' is an array of unsupported dtype datetime64\[D\]"):
        graph.weight("c", np.zeros(2, "M8[D]"))


# Casts


def test_cast_to_its_own_dtype_is_the_symbol_itself() -> None:
    graph = Graph("g", {"x": F32})
    assert graph["x"].cast(D.float32) is graph["x"]
    assert graph["x"].cast("float") is graph["x"]
    assert not graph.nodes


def test_cast_is_made_once() -> None:
    graph = Graph("g", {"x": F32, "y": TensorType(D.float64, ["n", 4])})
    x, y = graph.inputs
    assert x.cast(D.float64) is x.cast(D.float64)
    assert node_of(x + y).inputs[0] is node_of(x * y).inputs[0] is x.cast(D.float64)
    assert [n.op_type for n in graph.nodes].count("Cast") == 1


def test_cast_of_a_constant_happens_when_the_graph_is_built() -> None:
    graph = Graph("g", {"x": TensorType(D.bfloat16, [2])})
    result = graph["x"] + np.array([1, 2], np.int8)
    assert [n.op_type for n in graph.nodes] == ["Add"]
    constant = node_of(result).inputs[1]
    assert constant is not None
    assert (constant.dtype, array_of(constant).dtype) == (D.bfloat16, ml_dtypes.bfloat16)


def test_cast_of_a_weight_is_a_node() -> None:
    graph = Graph("g")
    weight = graph.weight("w", np.ones(2, np.float32))
    assert node_of(weight.cast(D.float16)).op_type == "Cast"


def test_cast_is_refused_when_there_is_no_such_dtype() -> None:
    graph = Graph("g", {"x": F32})
    with pytest.raises(DTypeError, match="no dtype is called 'flot'"):
        graph["x"].cast("flot")


# Operators


def test_arrays_and_numbers_go_on_either_side() -> None:
    graph = Graph("g", {"x": F32})
    x = graph["x"]
    ones = np.ones(4, np.float32)
    for item in (x + ones, ones + x, 1 + x, x + 1, np.float32(1) + x, ones - x, 2 / x, 2**x, 7 // x, 7 % x, ones * x):
        assert isinstance(item, Symbol)
        assert item.type is F32
    difference: Any = ones - x  # NumPy's annotations take every operand for an array
    first = node_of(difference).inputs
    assert first[0] is not None
    assert array_of(first[0]).tolist() == [1, 1, 1, 1]
    assert first[1] is x


def test_array_operands_are_copied() -> None:
    graph = Graph("g", {"x": F32})
    ones = np.ones(4, np.float32)
    result = graph["x"] + ones
    ones[:] = 5
    constant = node_of(result).inputs[1]
    assert constant is not None
    assert array_of(constant).tolist() == [1, 1, 1, 1]


def test_op_gives_an_operator_with_inferred_types() -> None:
    graph = Graph("g", {"x": F32, "n": TensorType(D.float32, ["batch", 6])})
    (result,) = graph.op("HardSwish", [graph["x"]])
    assert result.type is F32
    left, right = graph.op("Split", [graph["n"]], {"axis": 1, "num_outputs": 2})
    assert left.type is right.type is TensorType(D.float32, ["batch", 3])
    values, places = graph.op("TopK", [graph["n"], np.array([2], np.int64)])
    assert (values.type, places.type) == (TensorType(D.float32, ["batch", 2]), TensorType(D.int64, ["batch", 2]))
    (clipped,) = graph.op("Clip", [graph["x"], None, 6.0])
    assert node_of(clipped).inputs[1] is None


def test_op_takes_the_types_given() -> None:
    graph = Graph("g", {"x": F32})
    type_ = TensorType(D.int8, ["m"])
    (result,) = graph.op("Mystery", [graph["x"]], {"alpha": 1.5}, [type_], domain="my.ops")
    assert result.type is type_
    assert (node_of(result).domain, node_of(result).attributes) == ("my.ops", {"alpha": 1.5})


def test_op_raises_when_types_are_not_known() -> None:
    graph = Graph("g", {"x": F32})
    with pytest.raises(GraphError, match="ONNX opset 26 has no operator 'Reluu'"):
        graph.op("Reluu", [graph["x"]])
    with pytest.raises(
        GraphError, match=r"the output types of this operator of domain 'my\.ops' are unknown"
    ) as raised:
        graph.op("Mystery", [graph["x"]], domain="my.ops")
    assert raised.value.help == "give out_types"
    with pytest.raises(GraphError, match=r"MatMul: .*[Ii]ncompatible dimensions") as raised:
        graph.op("MatMul", [graph["x"], np.ones((3, 2), np.float32)])
    assert "    input 0  x   float32[n, 4]   test_graph.py" in str(raised.value)
    with pytest.raises(DTypeError, match="Relu: input 0 has unsupported type str"):
        graph.op("Relu", ["x"])  # type: ignore[list-item]
    other = Graph("other", {"y": F32})
    with pytest.raises(GraphError, match="Relu: input 0 belongs to graph 'other', not to 'g'"):
        graph.op("Relu", [other["y"]])
    assert not graph.nodes


def test_symbols_of_two_graphs_do_not_mix() -> None:
    x, y = Graph("one", {"x": F32})["x"], Graph("two", {"y": F32})["y"]
    with pytest.raises(GraphError, match=r"add: .* belongs to graph 'two', not to 'one'") as raised:
        x + y
    assert raised.value.help == "Symbols of two graphs never mix: make it an input of this graph"


# The current graph


def test_current_graph_takes_ops_without_symbols() -> None:
    graph, inner = Graph("outer"), Graph("inner")
    with graph:
        assert Graph.current() is graph
        with inner:
            assert Graph.current() is inner
            y = ops.add(np.ones(2, np.float32), 1.0)
        assert Graph.current() is graph
        with graph:
            assert Graph.current() is graph
        assert Graph.current() is graph
    assert y.graph is inner
    with pytest.raises(GraphError, match="there is no current graph"):
        Graph.current()


def test_current_graph_is_each_threads_own() -> None:
    seen: list[str] = []

    def look() -> None:
        try:
            Graph.current()
        except GraphError as error:
            seen.append(error.summary)

    with Graph("g"):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == ["there is no current graph"]


def test_ops_without_symbols_raise_when_no_graph_is_current() -> None:
    with pytest.raises(GraphError, match="exp: no operand is a Symbol, so there is no graph to build in"):
        ops.exp(np.ones(2, np.float32))


# Layers and names


def test_layers_name_what_is_made_inside() -> None:
    graph = Graph("g", {"x": F32})
    x = graph["x"]
    assert graph.current_layer == ""
    with graph.layer("encoder") as outer:
        with graph.layer("block") as first:
            a = ops.exp(x)
        with graph.layer("block") as second:
            b = ops.exp(x)
        assert graph.current_layer == "encoder"
        with graph.layer("mlp/up"):
            c = ops.exp(x)
    assert (outer, first, second) == ("encoder", "encoder/block", "encoder/block_1")
    assert [node_of(s).layer for s in (a, b, c)] == ["encoder/block/", "encoder/block_1/", "encoder/mlp/up/"]
    assert a.name == f"encoder/block/exp_{a.id}"
    assert graph.current_layer == ""


def test_layer_is_left_when_an_error_passes() -> None:
    graph = Graph("g")
    with pytest.raises(KeyError), graph.layer("a"):
        raise KeyError
    assert graph.current_layer == ""


def test_symbols_are_named_after_their_operator() -> None:
    graph = Graph("g", {"x": F32})
    assert ops.exp(graph["x"]).name == "exp_1"
    assert (graph["x"] + 1).name == "add_3"
    assert graph.constant(1).name == "constant_4"


def test_symbol_can_be_renamed() -> None:
    graph = Graph("g", {"x": F32})
    y = ops.exp(graph["x"])
    y.name = "hidden"
    assert graph["hidden"] is y
    y.name = "state"
    assert graph["state"] is y
    y.name = "state"
    with pytest.raises(GraphError, match=r"graph\['hidden'\]"):
        graph["hidden"]
    with pytest.raises(GraphError, match="name: the name 'x' is taken"):
        y.name = "x"
    assert y.name == "state"


def test_given_names_win_over_those_made() -> None:
    graph = Graph("g", {"exp_1": F32})
    y = ops.exp(graph["exp_1"])
    assert y.name == "exp_1_"


# Outputs


def test_outputs_are_positional_and_named() -> None:
    graph = Graph("g", {"x": F32})
    x = graph["x"]
    y = ops.exp(x)
    graph.output(y, log=ops.log(x))
    assert list(graph.output_types) == [y.name, "log"]
    assert graph.outputs == (y, graph["log"])


def test_output_takes_a_list() -> None:
    graph = Graph("g", {"x": F32})
    graph.output([graph["x"] + 1, graph["x"] + 2])
    assert len(graph.outputs) == 2


def test_outputs_have_names_of_their_own_when_symbols_are_inputs_or_come_twice() -> None:
    graph = Graph("g", {"x": F32})
    y = graph["x"] + 1
    graph.output(graph["x"], y, y, again=y, c=graph.constant(1.0))
    assert list(graph.output_types) == ["x_out", "add_2", "add_2_1", "again", "c"]
    assert graph.outputs[1] is graph.outputs[2] is graph.outputs[3] is y
    assert [o.name for o in graph.to_onnx(target="onnx").graph.output] == list(graph.output_types)
    twice = Graph("g", {"x": F32})
    twice.output(*[ops.exp(twice["x"])] * 2)
    assert [o.name for o in twice.to_onnx().graph.output] == list(twice.output_types) == ["exp_1", "exp_1_1"]


def test_outputs_are_refused_when_called_again_or_empty_or_no_symbols() -> None:
    graph = Graph("g", {"x": F32})
    with pytest.raises(GraphError, match="output: expected at least one Symbol"):
        graph.output()
    with pytest.raises(DTypeError, match="output: value has unsupported type ndarray"):
        graph.output(np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="output: y belongs to graph 'other', not to 'g'"):
        graph.output(y=Graph("other", {"y": F32})["y"])
    y = graph["x"] + 1
    with pytest.raises(GraphError, match="output: the name 'x' is taken"):
        graph.output(x=y)
    with pytest.raises(GraphError, match="output: the name 'x' is taken"):
        graph.output(x=graph["x"])
    graph.output(y=y)
    with pytest.raises(GraphError, match="output: graph 'g' has its outputs already"):
        graph.output(y)


def test_verify_raises_when_there_are_no_outputs() -> None:
    graph = Graph("g", {"x": F32})
    with pytest.raises(GraphError, match="graph 'g' has no outputs"):
        graph.verify()
    graph.output(graph["x"] + 1)
    graph.verify()


def test_verify_raises_when_an_operand_is_used_before_it_is_made() -> None:
    graph = Graph("g", {"x": F32})
    early = ops.exp(graph["x"])
    late = ops.log(early)
    graph.output(late)
    change(node_of(early), inputs=(late,))
    with pytest.raises(GraphError, match="Exp: an operand is used before it is computed"):
        graph.verify()


# Copies


def _numbers(graph: Graph) -> str:
    return str(graph).split("\n", 1)[1]


def test_copy_is_independent_and_shares_arrays() -> None:
    graph = Graph("g", {"x": F32}, promotion="max_published", strict=True)
    weight = np.ones(4, np.float32)
    with graph.layer("a"):
        y = graph["x"] * graph.weight("w", weight)
    graph.output(y=y)
    other = graph.copy()
    assert other.outputs == ()
    assert (other.strict, other.promotion) == (True, graph.promotion)
    assert array_of(other["w"]) is weight
    other.output(z=ops.exp(other["y"]))
    assert (len(graph.nodes), len(other.nodes)) == (1, 2)
    assert other["x"].graph is other
    assert other.nodes[0].layer == "a/"


@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_graph_comes_back_the_same(way: str) -> None:
    graph = Graph("g", {"x": TensorType(D.int8, [Dim("n") * 2]), "y": TensorType(D.tf32, [1])})
    x, y = graph.inputs
    with graph.layer("mix"):
        z = x * y + 1
    z.name = "z"
    (top, _) = graph.op("TopK", [z, np.array([2], np.int64)])
    graph.output(top, mixed=z.cast(D.float8_e5m2))
    other = pickle.loads(pickle.dumps(graph)) if way == "pickle" else copy.deepcopy(graph)
    assert str(other) == str(graph)
    assert other.output_types == graph.output_types
    assert other["z"].line == z.line
    assert other["z"].cast(D.float8_e5m2) is other.outputs[1], "the casts made are remembered"
    with other.layer("mix") as path:
        assert path == "mix_1"
    assert other["x"] + 1 is not None


@pytest.mark.parametrize("way", ["pickle", "deepcopy", "copy"])
def test_long_chain_comes_back_when_recursion_would_not_do(way: str) -> None:
    graph = Graph("chain", {"x": F32})
    y = graph["x"]
    for _ in range(2000):  # more than Python recurses
        y = ops.exp(y)
    graph.output(y=y)
    if way == "copy":
        other = graph.copy()
    else:
        other = pickle.loads(pickle.dumps(graph)) if way == "pickle" else copy.deepcopy(graph)
    assert len(other.nodes) == 2000
    assert other["y"].producer is other.nodes[-1]
    other.copy()


def test_symbol_pickles_with_its_graph() -> None:
    graph = Graph("g", {"x": F32})
    y = ops.exp(graph["x"])
    (other, back) = pickle.loads(pickle.dumps((graph, y)))
    assert back.graph is other
    assert back.name == y.name
    assert pickle.loads(pickle.dumps(y)).type is F32
    assert copy.copy(y) is y


# Text and drawings


def _text_graph() -> Graph:
    graph = Graph("scale", {"tokens": TensorType(D.int8, ["batch", 4]), "gain": TensorType(D.bfloat16, [4])})
    tokens, gain = graph.inputs
    bias = graph.weight("bias", np.zeros(4, np.float32))
    with graph.layer("head"):
        y = tokens * gain + 1
    graph.output(prob=ops.exp(y), shifted=y + bias)
    return graph


def test_text_has_a_line_a_node_with_types_and_source_lines() -> None:
    line = _text_graph.__code__.co_firstlineno
    here = [f"# test_graph.py:{line + i}" for i in range(8)]
    rows = str(_text_graph()).split("\n")
    assert [tuple(part.strip() for part in row.partition("  #")[::2]) for row in rows] == [
        ("graph scale (max) {", ""),
        ("input   tokens: int8[batch, 4]", here[1][2:]),
        ("input   gain: bfloat16[4]", here[1][2:]),
        ("weight  bias: float32[4]", here[3][2:]),
        ("head/cast_3: bfloat16[batch, 4] = Cast(tokens, to=bfloat16)", here[5][2:]),
        ("head/mul_4: bfloat16[batch, 4] = Mul(head/cast_3, gain)", here[5][2:]),
        ("head/add_6: bfloat16[batch, 4] = Add(head/mul_4, bfloat16(1.0))", here[5][2:]),
        ("prob: bfloat16[batch, 4] = Exp(head/add_6)", here[6][2:]),
        ("cast_8: float32[batch, 4] = Cast(head/add_6, to=float32)", here[6][2:]),
        ("shifted: float32[batch, 4] = Add(cast_8, bias)", here[6][2:]),
        ("output  prob: bfloat16[batch, 4]", ""),
        ("output  shifted: float32[batch, 4]", ""),
        ("}", ""),
    ]
    assert repr(_text_graph()) == "<Graph 'scale': 2 inputs, 6 nodes, 2 outputs>"


def test_lines_are_the_users_own() -> None:
    graph = Graph("g", {"x": F32})
    y = ops.exp(graph["x"]) + np.ones(4, np.float32)
    here = test_lines_are_the_users_own.__code__.co_firstlineno
    assert str(graph["x"].line) == f"test_graph.py:{here + 1}"
    assert y.line is not None
    assert (str(y.line), y.line.text) == (
        f"test_graph.py:{here + 2}",
        'y = ops.exp(graph["x"]) + np.ones(4, np.float32)',
    )
    assert {str(n.line) for n in graph.nodes} == {f"test_graph.py:{here + 2}"}


# Symbols as Python objects


def test_static_axis_can_be_walked_along() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, [3, "n"])})
    rows = list(graph["x"])
    assert [r.shape for r in rows] == [["n"]] * 3
    assert len(graph["x"]) == 3


def test_symbols_compare_element_by_element_and_hash_by_identity() -> None:
    graph = Graph("g", {"x": F32, "y": F32})
    x, y = graph.inputs
    assert (x == y).dtype is D.bool
    assert (x != 1).dtype is D.bool
    assert {x: "x", y: "y"}[x] == "x"
    assert any(s is y for s in (x, y))


def test_mistake_leaves_no_node_behind() -> None:
    graph = Graph("g", {"x": F32, "t": TensorType(D.int8, [3])})
    x, t = graph.inputs
    mistakes: list[Callable[[], object]] = [lambda: x + t, lambda: np.ones(3, np.int8) + x, lambda: t + 1.5]
    for mistake in mistakes:
        with pytest.raises((ValueError, TypeError)):
            mistake()
    assert not graph.nodes


def test_promotion_error_is_a_type_error_when_caught() -> None:
    graph = Graph("g", {"x": TensorType(D.float8_e5m2, []), "y": F32})
    with pytest.raises(TypeError) as raised:
        graph["x"] + graph["y"]
    assert isinstance(raised.value, PromotionError)
    with pytest.raises(TypeError) as caught:
        bool(graph["x"])
    assert isinstance(caught.value, SymbolError)


# Weights of objects


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.array([object(), None]),
            "weight 'w': an array of objects must contain only strings, got an element of type object",
        ),
        (np.array(["a", None]), "got an element of type NoneType"),
        (np.array([[1, "a"]], object), "got an element of type int"),
        (np.array(["a", "\ud800"], object), "has an unpaired surrogate"),
        (np.array([1.5, 2], object), "got an element of type float"),
    ],
)
def test_weight_of_objects_that_are_not_text_is_refused(array: Any, message: str) -> None:
    for dtype in (None, DType.string):
        with pytest.raises(DTypeError, match=message):
            Graph("g").weight("w", array, dtype)


def test_weight_of_text_is_taken() -> None:
    graph = Graph("g")
    assert str(graph.weight("u", np.array(["a", "bc"])).type) == "string[2]"
    assert str(graph.weight("o", np.array([["a", "bc"]], object)).type) == "string[1, 2]"


def test_inputs_and_outputs_have_names() -> None:
    g = Graph("g", {"tokens": TensorType(DType.float32, ["n"]), "mask": TensorType(DType.float32, ["n"])})
    tokens, mask = g.inputs
    g.output(total=tokens + mask, same=mask)
    assert g.inputs["mask"] is g.inputs.mask is g.inputs[1] is mask
    assert g.outputs["same"] is g.outputs.same is mask
    assert (g.inputs.names, g.outputs.names) == (("tokens", "mask"), ("total", "same"))
    assert g.inputs[:1] == (tokens,)
    assert pickle.loads(pickle.dumps(g)).outputs["total"].name == g.outputs["total"].name
    with pytest.raises(GraphError, match=r"no input is called 'token'\n  help: did you mean tokens\? the inputs are"):
        g.inputs["token"]
    with pytest.raises(AttributeError, match="no output is called 'logits'; the outputs are 'total', 'same'"):
        _ = g.outputs.logits
    assert g.inputs == (tokens, mask)
