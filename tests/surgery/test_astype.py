"""`Graph.astype`: a graph in another dtype is the one that ops build in it, and gives nearly the same numbers."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import DType, Graph, LossyCastWarning, SequenceType, TensorType, ops
from graphcore.errors import DTypeError, GraphError
from graphcore.ir.buffers import Buffer
from graphcore.ir.symbol import Constant, Symbol
from graphcore.ir.transform.walk import parts
from tests.support.backend import collected
from tests.support.every_op import CASES, graph_of
from tests.support.trained import Trained, trained

__all__ = ["trained"]

F32 = DType.float32
op = ops.onnx
OTHERWISE = {"bernoulli", "bitcast", "complex", "lu", "lu_factor", "nextafter", "triangular_solve"}
"""Ops that draw or compute in float32 for narrower operands, as they would not for float32 ones, or whose result has a
dtype or shape that follows from the width of the operand."""


def built_in(target: DType) -> list[str]:
    """The ops that take float32 and the target."""
    return [n for n, case in CASES.items() if not {F32, target} & set(case.refused)]


def operators(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


def ran(graph: Graph, feeds: dict[str, Any], precision: Any = "exact") -> list[Any]:
    return [*gc.InferenceSession(intra_op_num_threads=1, precision=precision).load(graph)(**feeds)]


@functools.cache
def unchanged(trained: Trained) -> list[Any]:
    """Return the results of the graph of the file on `trained.feeds()`."""
    return ran(trained.graph(), trained.feeds())


def array_of(graph: Graph, name: str) -> np.ndarray[Any, Any]:
    producer = graph[name].producer
    assert isinstance(producer, Constant)
    return producer.array


def mlp() -> Graph:
    g = Graph("mlp", {"x": TensorType(F32, ["b", 4])})
    w = g.weight("w", np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4))
    g.output(y=ops.softmax(ops.relu(g["x"] @ w) * 2.5))
    return g


@pytest.mark.parametrize("target", [DType.float16, DType.bfloat16], ids=str)
def test_a_converted_op_is_the_op_built_in_that_dtype(target: DType) -> None:
    wrong = []
    for name in built_in(target):
        if name in OTHERWISE:
            continue
        source, wanted = graph_of([name], F32)[0], graph_of([name], target)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LossyCastWarning)
            graph = source.astype(target, keep_io=False)
        wanted = wanted.with_outputs(*wanted.outputs)  # without nodes that lead to no output
        difference = wanted.diff(graph)
        if difference.nodes or difference.types or difference.inputs or difference.outputs:
            wrong.append(f"{name}\n{difference}")
        if any(w.before != w.after for w in difference.weights):
            wrong.append(f"{name}\n{difference}")
    assert not wrong, "\n".join(wrong)


def test_a_converted_graph_gives_the_bits_of_the_graph_built_in_float16() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float16)
    half = Graph("mlp", {"x": TensorType("float16", ["b", 4])})
    w = half.weight("w", np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4).astype(np.float16))
    half.output(y=ops.softmax(ops.relu(half["x"] @ w) * 2.5))
    graph = mlp().astype("float16", keep_io=False)
    assert not half.diff(graph)
    np.testing.assert_array_equal(ran(graph, {"x": x})[0], ran(half, {"x": x})[0])


def test_inputs_and_outputs_stay_unless_they_are_converted_too() -> None:
    g = mlp()
    text = str(g)
    graph = g.astype("float16")
    assert graph["x"].dtype is F32
    assert graph.output_types == g.output_types
    assert operators(graph) == ["Cast", "MatMul", "Relu", "Mul", "Softmax", "Cast"]
    converted = g.astype("float16", keep_io=False)
    assert converted["x"].dtype is DType.float16
    assert "Cast" not in operators(converted)
    assert str(g) == text
    assert array_of(g, "w").dtype == np.float32
    assert array_of(graph, "w").dtype == np.float16


def test_kept_nodes_are_in_the_old_dtype_with_casts_at_their_borders_alone() -> None:
    g = mlp()
    graph = g.astype("float16", keep=["Softmax"])
    assert operators(graph) == ["Cast", "MatMul", "Relu", "Mul", "Cast", "Softmax"]
    graph = g.astype("float16", keep=["Softmax", "Mul"], keep_io=False)
    assert operators(graph) == ["MatMul", "Relu", "Cast", "Mul", "Softmax"]
    assert graph.output_types["y"].dtype is F32  # type: ignore[union-attr]
    graph = g.astype("float16", keep="w")
    assert array_of(graph, "w") is array_of(g, "w")


def test_keep_of_other_dtypes_is_a_warning() -> None:
    g = Graph("g", {"x": TensorType(F32, ["n"]), "count": TensorType("int64", [])})
    g.output(y=ops.exp(g["x"]), next=g["count"] * 2)
    with pytest.warns(UserWarning, match="astype: keep='Mul' keeps nothing: what it matches has no dtype") as caught:
        g.astype("float16", keep=["Mul", "Exp"])
    (warning,) = caught
    assert "(float32)\n  help: some names of these dtypes are 'Exp', 'y', 'x'" in str(warning.message)
    assert warning.filename == __file__
    with pytest.warns(UserWarning, match="keep='x' keeps nothing(.|\\n)*nothing is converted"):
        g.astype("float16", source="float64", keep="x")


def test_what_only_moves_values_between_kept_nodes_is_kept_too() -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 3])})
    g.output(ops.softmax(ops.transpose(ops.softmax(g["x"])).reshape(6)))
    graph = g.astype("float16", keep=["Softmax"], keep_io=False)
    assert operators(graph).count("Cast") == 1  # of the input
    assert all(s.dtype is F32 for node in graph.nodes for s in node.outputs if node.op_type != "Shape")


HUGE = np.array([[12, 1], [13, -20]], np.float32)
"""Exponents: float16 holds no exp(12), and exp(-20) is 0 in it."""

BETWEEN = {
    "ReverseSequence": lambda y, k: op.ReverseSequence(y, np.array([2, 2]), batch_axis=0, time_axis=1),
    "Trilu": lambda y, k: op.Trilu(y, upper=0),
    "Pad": lambda y, k: op.Pad(y, np.array([0, 1, 0, 0]), np.float32(1e5)),
    "CenterCropPad": lambda y, k: op.CenterCropPad(y, np.array([2, 4])),
    "Concat": lambda y, k: op.Concat(y, k, axis=0),
    "Where": lambda y, k: op.Where(np.array([[True], [False]]), y, k),
    "Unique": lambda y, k: op.Unique(y, sorted=0, outputs=2)[0],
    "ScatterElements": lambda y, k: op.ScatterElements(k, np.array([[0, 1], [1, 0]]), y),
    "ScatterND": lambda y, k: op.ScatterND(y, np.array([[1]]), k[:1]),
    "TensorScatter": lambda y, k: op.TensorScatter(y[None, None], k[None, None], None),
    "OneHot": lambda y, k: op.OneHot(np.array([1, 0]), np.array([2]), y[:, 0]),
    "two moves": lambda y, k: op.Concat(op.Trilu(y), op.Transpose(k), axis=1),
}


@pytest.mark.parametrize("move", BETWEEN)
def test_what_is_moved_between_kept_nodes_is_not_rounded(move: str) -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 2]), "k": TensorType(F32, [2, 2])})
    g.output(y=op.Log(BETWEEN[move](op.Exp(g["x"]), op.Exp(g["k"]))))
    graph = g.astype("float16", keep=["Exp", "Log"])
    assert DType.float16 not in {s.dtype for node in graph.nodes for s in node.outputs}
    assert ran(graph, {"x": HUGE, "k": HUGE[::-1]})[0].tobytes() == ran(g, {"x": HUGE, "k": HUGE[::-1]})[0].tobytes()


def test_moves_beside_what_is_computed_in_the_new_dtype_and_scatters_that_add_are_right() -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 2])})
    g.output(y=op.Log(op.Concat(op.Exp(g["x"]), op.Abs(g["x"]), axis=0)), z=op.Sqrt(op.Transpose(op.Abs(g["x"]))))
    graph = g.astype("float16", keep=["Exp", "Log"])
    y = ran(graph, {"x": HUGE})[0]
    np.testing.assert_allclose(y, np.log(np.concatenate([np.exp(HUGE), np.abs(HUGE)])), rtol=1e-3)
    assert {n.op_type: n.outputs[0].dtype for n in graph.nodes if n.op_type in ("Concat", "Transpose")} == {
        "Concat": F32, "Transpose": DType.float16,
    }  # fmt: skip
    g = Graph("g", {"x": TensorType(F32, [2, 2])})
    y = op.Exp(g["x"])
    g.output(y=op.Log(op.ScatterElements(y, np.array([[0, 1], [1, 0]]), y, reduction="add")))
    graph = g.astype("float16", keep=["Exp", "Log"])
    assert {n.outputs[0].dtype for n in graph.nodes if n.op_type == "ScatterElements"} == {DType.float16}


def test_a_weight_that_is_kept_is_moved_to_kept_nodes_as_it_is() -> None:
    g = Graph("g", {"x": TensorType(F32, [2])})
    w = g.weight("w", np.array([[1e5, 1], [2, 3]], np.float32))
    g.output(y=op.Log(op.Transpose(w)) + g["x"])
    graph = g.astype("float16", keep=["Log", "w"])
    assert [n.op_type for n in graph.nodes][:2] == ["Transpose", "Log"]


@pytest.mark.parametrize("name", ["is_inf", "is_finite", "is_nan", "nonzero"])
def test_a_test_of_a_kept_value_is_of_what_it_is_before_rounding(name: str) -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 2])})
    g.output(y=getattr(ops, name)(ops.exp(g["x"])), z=getattr(ops, name)(ops.transpose(ops.exp(g["x"]))))
    graph = g.astype("float16", keep="Exp")
    assert DType.float16 not in {s.dtype for node in graph.nodes for s in node.outputs}
    for item, wanted in zip(ran(graph, {"x": HUGE}), ran(g, {"x": HUGE}), strict=True):
        assert np.array_equal(item, wanted)
    g = Graph("g", {"x": TensorType(F32, [2, 2])})
    g.output(y=getattr(ops, name)(g["x"]))
    assert np.array_equal(ran(g.astype("float16"), {"x": HUGE * 1e5})[0], ran(g, {"x": HUGE * 1e5})[0])


def test_what_takes_only_a_shape_needs_no_cast() -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 2])})
    y = op.Exp(g["x"])
    g.output(
        eye=op.EyeLike(y, dtype=DType.int32), draws=op.RandomUniformLike(y, dtype=DType.float64), own=op.EyeLike(y)
    )
    graph = g.astype("float16", keep="Exp", keep_io=False)
    casts = [n for n in graph.nodes if n.op_type == "Cast"]
    assert len(casts) == 2  # of the input for Exp, and for what has the dtype of its operand
    assert {k: t.dtype for k, t in graph.output_types.items()} == {  # type: ignore[union-attr]
        "eye": DType.int32, "draws": DType.float64, "own": DType.float16,
    }  # fmt: skip


def test_layers_are_kept_with_all_that_is_in_them() -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 3])})
    x = g["x"]
    with g.layer("encoder"), g.layer("norm"):
        x = ops.exp(x)
    g.output(ops.tanh(x))
    for keep in ("encoder", "enc*", "encoder/norm"):
        results = {n.op_type: n.outputs[0].dtype for n in g.astype("float16", keep=keep).nodes if n.op_type != "Cast"}
        assert results == {"Exp": F32, "Tanh": DType.float16}


def test_a_pattern_without_a_match_is_an_error_at_the_calling_line() -> None:
    with pytest.raises(GraphError, match="no operator, layer or value matches 'Sofmax'") as raised:
        mlp().astype("float16", keep=["Sofmax"])
    assert "'Softmax'" in raised.value.help
    assert raised.value.line is not None
    assert raised.value.line.path == __file__
    with pytest.raises(GraphError, match="keep must be a pattern"):
        mlp().astype("float16", keep=[3])  # type: ignore[list-item]


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "string"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(DTypeError, match="not a dtype that graphs compute in"):
        mlp().astype(dtype)
    with pytest.raises(DTypeError, match="source must be floating-point dtypes"):
        mlp().astype("float16", source="int64")


def test_what_is_beyond_the_dtype_becomes_its_largest_value_with_a_warning() -> None:
    g = Graph("g", {"x": TensorType(F32, [4])})
    mask = g.weight("mask", np.array([0, np.finfo(np.float32).min, -np.inf, 1e-12], np.float32))
    g.output(g["x"] + mask)
    with pytest.warns(LossyCastWarning, match=r"'mask' float32\[4\].*1 of 4 values are beyond float16") as caught:
        graph = g.astype("float16")
    assert "1 of 4 values become 0" in str(caught[0].message)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(array_of(graph, "mask"), np.array([0, -65504, -np.inf, 0], np.float16))


def test_a_weight_that_many_nodes_read_is_cast_once_and_one_of_integers_not_at_all() -> None:
    g = Graph("g", {"x": TensorType(F32, [3])})
    table, places = np.ones((3, 3), np.float32), np.array([0, 2])
    w, v, i = g.weight("w", table), g.weight("v", table), g.weight("i", places)
    g.output(g["x"] @ w + g["x"] @ v + ops.gather(g["x"] @ w, i).sum())
    graph = g.astype("bfloat16")
    assert array_of(graph, "w") is array_of(graph, "v")
    assert array_of(graph, "i") is places
    assert set(graph.weights) == {"w", "v", "i"}


def test_sizes_scales_and_operators_of_other_domains_stay_in_float32() -> None:
    g = Graph("g", {"x": TensorType(F32, [1, 1, 2, 2])})
    scales = np.array([1, 1, 2, 2], np.float32)
    (big,) = g.op("Resize", [g["x"] * 2, None, scales], {"mode": "nearest"})
    (q,) = g.op("QuantizeLinear", [big * 3, np.array(0.1, np.float32), np.array(3, np.uint8)])
    (d,) = g.op("DequantizeLinear", [q, np.array(0.1, np.float32), np.array(3, np.uint8)])
    (n,) = g.op("Gelu", [d * 2], domain="com.microsoft", out_types=[d.type])
    g.output(n * 2)
    graph = g.astype("float16")
    for node in graph.nodes:
        dtypes = [s.dtype for s in (*node.inputs, *node.outputs) if s is not None and s.dtype.is_float]
        if node.op_type == "Resize":
            assert dtypes == [DType.float16, F32, DType.float16]
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear", "Gelu"):
            assert {*dtypes} == {F32}
    x = np.random.default_rng(0).standard_normal((1, 1, 2, 2)).astype(np.float32)
    np.testing.assert_allclose(ran(graph, {"x": x})[0], ran(g, {"x": x})[0], atol=0.02, rtol=0.02)


def test_classical_models_stay_in_float32() -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 3])})
    (y,) = g.op("Binarizer", [ops.exp(g["x"])], {"threshold": 1.0}, domain="ai.onnx.ml")
    g.output(y * 2)
    graph = g.astype("float16")
    (node,) = [n for n in graph.nodes if n.op_type == "Binarizer"]
    assert {s.dtype for s in (*node.inputs, *node.outputs) if s is not None} == {F32}
    x = np.array([[-1, 0, 1]] * 2, np.float32)
    np.testing.assert_array_equal(ran(graph, {"x": x})[0], ran(g, {"x": x})[0])


def test_a_mapped_sequence_that_stays_keeps_its_body() -> None:
    g = Graph("g", {"s": SequenceType(TensorType(F32, [2])), "x": TensorType(F32, [2])})
    g.output(ops.list_get(ops.list_map(lambda item: item + 1, g["s"]), 0) * g["x"])
    results = {"s": [np.ones(2, np.float32)], "x": np.full(2, 3, np.float32)}
    np.testing.assert_array_equal(ran(g.astype("float16"), results)[0], ran(g, results)[0])


def test_a_weight_that_both_dtypes_need_is_there_in_both() -> None:
    g = Graph("g", {"x": TensorType(F32, [2, 4])})
    w = g.weight("w", np.full((4, 4), 0.3, np.float32))
    first = g["x"] @ w
    first.name = "first"
    g.output(a=first, b=ops.exp(g["x"]) @ w)
    graph = g.astype("float16", keep="first")
    assert {name: s.dtype for name, s in graph.weights.items()} == {"w": F32, "w_1": DType.float16}
    assert array_of(graph, "w") is array_of(g, "w")


def test_random_constants_and_casts_are_made_in_the_new_dtype() -> None:
    g = Graph("g", {"i": TensorType("int64", ["n"])})
    (drawn,) = g.op("RandomNormal", [], {"shape": [3]})
    (eye,) = g.op("EyeLike", [g["i"].reshape(-1, 1)], {"dtype": F32})
    filled = g.full(1.5, ["n"])
    g.output(g["i"].cast("float32") + filled, drawn, eye)
    graph = g.astype("float16", keep_io=False)
    assert {s.dtype for s in graph.outputs} == {DType.float16}
    assert "Cast" in operators(graph)
    ran(graph, {"i": np.arange(3)})


def test_a_cast_that_is_needless_now_goes() -> None:
    g = Graph("g", {"x": TensorType("float16", [3])})
    g.output(y=ops.exp(g["x"]).cast("float32") * 2, z=g["x"].cast("float32"))
    graph = g.astype("float16", keep_io=False)
    assert operators(graph) == ["Exp", "Mul", "Identity"]
    back = graph.astype("float32", keep_io=False)
    assert {s.dtype for s in (*back.inputs, *back.outputs)} == {F32}


def test_bodies_functions_and_buffers_are_converted() -> None:
    @gc.function
    def scaled(x: Symbol) -> Symbol:
        return ops.exp(x) * 0.5

    g = Graph("g", {"x": TensorType(F32, ["n", 4]), "cache": Buffer(F32, [4], initial=0.5)})
    w = g.weight("w", np.full(4, 0.25, np.float32))
    x = g["x"]
    y = ops.cond(ops.sum(x) > 0, lambda: scaled(x) + w, lambda: x * w)
    z = ops.for_loop(3, lambda i, s: s * w + 1, y)
    g["cache"] = g["cache"] + z.max(axis=0)
    g.output(z=z, read=g["cache"] * 1)
    graph = g.astype("float16")
    assert graph.buffers["cache"].buffer.type.dtype is DType.float16
    for part in parts(graph):
        assert not [s for node in part.nodes for s in node.outputs if s.dtype is F32 and node.op_type != "Cast"]
    feed = {"x": np.random.default_rng(0).random((3, 4)).astype(np.float32)}
    for item, wanted in zip(ran(graph, feed), ran(g, feed), strict=True):
        np.testing.assert_allclose(item, wanted, rtol=0.01)
    changed = g.astype("float16", keep=["If"])
    assert {s.dtype for n in changed.nodes if n.op_type == "If" for s in n.outputs} == {F32}
    for item, wanted in zip(ran(changed, feed), ran(g, feed), strict=True):
        np.testing.assert_allclose(item, wanted, rtol=0.01)


def test_a_body_of_a_kept_node_is_kept() -> None:
    g = Graph("g", {"x": TensorType(F32, ["n", 4])})
    x = g["x"]
    g.output(y=ops.cond(ops.sum(x) > 0, lambda: ops.exp(x) * 0.5, lambda: ops.tanh(x) + 1))
    (remaining,) = (node for node in g.astype("float16", keep=["If"]).nodes if node.op_type == "If")
    bodies = [value for value in remaining.attributes.values() if isinstance(value, Graph)]
    assert [operators(body) for body in bodies] == [["Exp", "Mul"], ["Tanh", "Add"]]
    assert {s.dtype for body in bodies for node in body.nodes for s in node.outputs} == {F32}


def test_sequences_are_converted_where_none_is_at_an_edge() -> None:
    g = Graph("g", {"x": TensorType(F32, ["n", 4])})
    parts_of = ops.list_of([g["x"] * 2, g["x"]])
    g.output(ops.list_get(parts_of, 0))
    assert all("float32" not in str(n.outputs[0].type) for n in g.astype("float16").nodes[:-1] if n.op_type != "Cast")
    graph = g.astype("float16", keep="SequenceConstruct")
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(ran(graph, {"x": x})[0], ran(g, {"x": x})[0])


# export(io_dtype=...)


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float6_e3m2fn", "float4_e2m1", "float64"]
)
def test_a_file_with_io_dtype_is_fed_from_numpy(dtype: str, tmp_path: Any) -> None:
    own = getattr(DType, dtype)
    g = Graph("g", {"x": TensorType(own, ["n"]), "count": TensorType("int64", [])})
    x = g["x"]
    g.output(rounded=x, doubled=ops.cond(ops.any(x != 0), lambda: x + x, lambda: x), next=g["count"] + 1)
    g.export(tmp_path / "m.onnx", io_dtype="float32")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    edges = [(e.name, e.type, e.shape) for e in (*session.get_inputs(), *session.get_outputs())]
    assert edges == [
        ("x", "tensor(float)", ["n"]),
        ("count", "tensor(int64)", []),
        ("rounded", "tensor(float)", ["n"]),
        ("doubled", "tensor(float)", ["n"]),
        ("next", "tensor(int64)", []),
    ]
    values = np.array([0.3, 1.3, -1.7], np.float32)
    rounded, doubled, following = session.run(None, {"x": values, "count": np.array(4)})
    wanted = values.astype(own.numpy)
    np.testing.assert_array_equal(rounded, wanted.astype(np.float32))
    np.testing.assert_array_equal(doubled, (wanted + wanted).astype(np.float32))
    assert following == 5


def test_buffers_and_defaults_have_the_io_dtype() -> None:
    inputs: dict[str, TensorType | Buffer] = {
        "x": TensorType("bfloat16", [2]),
        "total": Buffer("bfloat16", [2], initial=[1.0, 2.0]),
    }
    g = Graph("g", inputs, defaults={"x": [0.5, 0.25]})
    g["total"] = g.buffers["total"] + g["x"]
    g.output(y=g["x"] * 2)
    loaded = Graph.load(g.to_onnx(io_dtype="float32"), defaults=True)
    assert {s.name: s.dtype for s in (*loaded.inputs, *loaded.outputs)} == {"x": F32, "total": F32, "y": F32}
    model = gc.InferenceSession().load(loaded)
    assert [y.tolist() for y in (*model(), *model(x=np.array([1.0, 2.0], np.float32)))] == [[1.0, 0.5], [2.0, 4.0]]
    assert model.buffers["total"].dtype == np.float32
    assert model.buffers["total"].tolist() == [2.5, 4.25]


def test_io_dtype_of_the_same_dtypes_changes_nothing() -> None:
    assert mlp().to_onnx(io_dtype="float32") == mlp().to_onnx()


def test_io_dtype_is_a_float_dtype() -> None:
    with pytest.raises(DTypeError, match="io_dtype: int8 is not a dtype that graphs compute in"):
        mlp().to_onnx(io_dtype="int8")


def test_initial_values_beyond_the_io_dtype_are_named() -> None:
    g = Graph("g", {"total": Buffer("float64", [2], initial=[1e300, 1.0])})
    g.output(y=g.buffers["total"] * 2)
    with pytest.warns(LossyCastWarning, match="io_dtype: float32 cannot represent(.|\n)*choose a wider dtype"):
        g.to_onnx(io_dtype="float32")


TOLERANCES = {"float16": 0.04, "bfloat16": 0.15, "float64": 1e-4}
HARD = {
    # Sums of squares beyond float16, and quotients of variances.
    "magika": ["*LayerNorm_*"],
}


@pytest.mark.parametrize(
    ("dtype", "precision"), [("float16", "exact"), ("float16", "fast"), ("bfloat16", "exact"), ("float64", "exact")]
)
def test_a_trained_model_gives_nearly_its_numbers(trained: Trained, dtype: str, precision: str) -> None:
    if trained.label in ("rapidocr-det", "rapidocr-rec") and dtype != "float64":
        pytest.skip("has scales of 1e5 and weights of 1e-8, which no narrow float holds")
    if trained.label == "dnsmos" and dtype == "float64":
        pytest.skip("takes half a minute in the kernel of float64")
    model, feeds = trained.graph(), trained.feeds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        graph = model.astype(dtype, keep=HARD.get(trained.label, ()))
    assert graph.output_types == model.output_types
    for item, wanted in zip(ran(graph, feeds, precision), unchanged(trained), strict=True):
        assert item.dtype == wanted.dtype
        if trained.label != "rapidocr-det":  # it blows up rounding a thousandfold on noise
            assert np.abs(item - wanted).max() <= TOLERANCES[dtype] * np.abs(wanted).max()


def test_a_converted_model_is_exported_for_an_older_release(trained: Trained, tmp_path: Any) -> None:
    if trained.label not in ("nudenet", "dnsmos", "rapidocr-cls", "silero-vad-static"):
        pytest.skip("four are enough")
    model, feeds = trained.graph(), trained.feeds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        graph = model.astype("float16")
    graph.export(tmp_path / "half.onnx", runtime="1.20")
    session = onnxruntime.InferenceSession(tmp_path / "half.onnx", providers=["CPUExecutionProvider"])
    for item, wanted in zip(session.run(None, feeds), unchanged(trained), strict=True):
        assert np.abs(item - wanted).max() <= 0.02 * np.abs(wanted).max()


CHUNKS = 32

BEYOND = {
    "test_bernoulli",
    "test_bernoulli_double",
    "test_bernoulli_double_expanded",
    "test_bernoulli_expanded",
    "test_logsoftmax_large_number",
    "test_logsoftmax_large_number_expanded",
    "test_logsoftmax_large_number_expanded_ver18",
    "test_reduce_prod_default_axes_keepdims_example",
    "test_softmax_large_number",
    "test_softmax_large_number_expanded",
    "test_softmax_large_number_expanded_ver18",
}
"""Tests of ONNX with numbers that float16 does not hold, and those that draw."""

REFUSED = {"test_eyelike_populate_off_main_diagonal"}
"""Tests whose model does not load in float16: onnxruntime has no such kernel of EyeLike, and lowering puts no other."""


@pytest.mark.parametrize("chunk", [*range(CHUNKS), pytest.param("pools", marks=pytest.mark.full)])
def test_models_of_onnx_own_tests_give_nearly_their_numbers_in_float16(chunk: int | str) -> None:
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, about what the tests hold
        cases = [*collected(pools=isinstance(chunk, str)).values()]
    for case in cases if isinstance(chunk, str) else cases[3 * chunk :: 3 * CHUNKS]:
        assert case.model is not None
        assert case.data_sets is not None
        try:
            model = Graph.load(case.model)
            feeds = case.data_sets[0][0]
            wanted = [*gc.InferenceSession().load(model)(*feeds)]
        except gc.GraphcoreError:  # what does not run as it is, which other tests know
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LossyCastWarning)
            graph = model.astype("float16")
        if case.name in REFUSED:
            with pytest.raises(gc.GraphcoreError, match="onnxruntime refused"):
                gc.InferenceSession().load(graph)
            continue
        results = [*gc.InferenceSession().load(graph)(*feeds)]
        for a, b in zip(results, wanted, strict=True):
            if isinstance(a, np.ndarray) and case.name not in BEYOND:
                same = a.shape == b.shape and a.dtype == b.dtype
                if same and a.dtype.kind == "f" and a.size:
                    scale = max(1, np.abs(np.nan_to_num(b)).max())
                    same = np.abs(np.nan_to_num(a) - np.nan_to_num(b)).max() <= 0.02 * scale
                if not same:
                    wrong.append(case.name)
    assert not wrong
