"""Simplified shapes, known branches, indexing of constants and merged padding: the same bits with fewer nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphcore import Graph, InferenceSession, TensorType, ops
from graphcore.ir.symbol import Constant
from tests.support.optimised import Array, f32, operators

I64 = TensorProto.INT64


def _i64(values: Any) -> Array:
    return np.array(values, np.int64)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    output: tuple[int, list[int | str] | None],
    **arrays: Array,
) -> onnx.ModelProto:
    items = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    results = [helper.make_tensor_value_info("y", *output)]
    graph = helper.make_graph(nodes, "read", values, results, items)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _node(op_type: str, operands: str, result: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, operands.split(), [result], **attributes)


def _run(model: onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    result: Array = session.run(None, feeds)[0]
    return result


def _check(model: onnx.ModelProto, remaining: list[str], *sizes: tuple[int, ...]) -> Graph:
    """Compare with the file at several sizes of the dims, in the order of the inputs' dims that have names."""
    graph = Graph.load(model).optimize()
    assert operators(graph) == remaining
    written = graph.to_onnx(target="onnx")
    onnx.checker.check_model(written, full_check=True)
    for each in sizes:
        names = [d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param]
        named = dict(zip(dict.fromkeys(names), each, strict=True))
        rng = np.random.default_rng(0)
        feeds = {}
        for info in model.graph.input:
            dims = [named[d.dim_param] if d.dim_param else d.dim_value for d in info.type.tensor_type.shape.dim]
            feeds[info.name] = rng.standard_normal(dims).astype(np.float32)
        want, got = _run(model, feeds), _run(written, feeds)
        assert (got.shape, got.dtype, got.tobytes()) == (want.shape, want.dtype, want.tobytes())
    return graph


ZERO, ONE = {"zero": _i64(0), "axis": _i64([0])}, {"one": _i64(1)}


def test_reshape_to_computed_sizes_copies_axes() -> None:
    nodes = [
        _node("Shape", "x", "s"), _node("Gather", "s zero", "b"), _node("Gather", "s one", "t"),
        _node("Unsqueeze", "b axis", "bv"), _node("Unsqueeze", "t axis", "tv"),
        _node("Concat", "bv tv heads", "shape", axis=0), _node("Reshape", "x shape", "y"),
    ]  # fmt: skip
    model = _model(nodes, {"x": ["b", "t", 12]}, (1, None), **ZERO, **ONE, heads=_i64([3, 4]))
    result = _check(model, ["Reshape"], (2, 5), (1, 1), (3, 0), (0, 2))
    assert result.outputs[0].shape == ("b", "t", 3, 4)


def test_reshape_without_elements_is_not_given_a_size_to_work_out() -> None:
    nodes = [
        _node("Shape", "x", "s"), _node("Gather", "s zero", "b"), _node("Gather", "s one", "t"),
        _node("Mul", "b t", "n"), _node("Unsqueeze", "n axis", "nv"), _node("Concat", "nv twelve", "shape", axis=0),
        _node("Reshape", "x shape", "r"), _node("Neg", "r", "y"),
    ]  # fmt: skip
    model = _model(nodes, {"x": ["b", "t", 12]}, (1, ["n", 12]), **ZERO, **ONE, twelve=_i64([12]))
    _check(model, ["Reshape", "Neg"], (2, 3), (0, 3), (2, 0))  # -1 beside 12, which cannot be 0


def test_reshape_keeps_what_could_be_zero_elsewhere() -> None:
    nodes = [
        _node("Shape", "x", "s"), _node("Gather", "s zero", "b"), _node("Gather", "s one", "t"),
        _node("Mul", "t twelve", "n"), _node("Unsqueeze", "n axis", "nv"), _node("Unsqueeze", "b axis", "bv"),
        _node("Concat", "bv nv", "shape", axis=0), _node("Reshape", "x shape", "r"), _node("Neg", "r", "y"),
    ]  # fmt: skip
    model = _model(nodes, {"x": ["b", "t", 12]}, (1, ["b", "n"]), **ZERO, **ONE, twelve=_i64(12))
    graph = Graph.load(model).optimize()
    assert "Concat" in operators(graph)  # [0, -1] fails where b is 0
    for sizes in ((2, 3), (0, 3)):
        x = np.ones((*sizes, 12), np.float32)
        assert _run(graph.to_onnx(target="onnx"), {"x": x}).shape == (sizes[0], sizes[1] * 12)


def test_sizes_of_one_name_are_computed_once() -> None:
    nodes = [
        _node("Shape", "x", "s"), _node("Gather", "s one", "t"), _node("Neg", "x", "n"), _node("Shape", "n", "r"),
        _node("Gather", "r one", "u"), _node("Range", "zero t one", "p"), _node("Range", "zero u one", "q"),
        _node("Add", "p q", "y"),
    ]  # fmt: skip
    model = _model(nodes, {"x": ["b", "t"]}, (I64, ["t"]), zero=_i64(0), **ONE)
    _check(model, ["Shape", "Gather", "Range", "Add"], (2, 5), (1, 1))


def test_views_of_views_are_one() -> None:
    nodes = [
        _node("Unsqueeze", "x first", "a"), _node("Unsqueeze", "a last", "b"),
        _node("Transpose", "b", "c", perm=[2, 1, 0, 3]),
        _node("Transpose", "c", "d", perm=[0, 2, 1, 3]), _node("Neg", "d", "y"),
    ]  # fmt: skip
    model = _model(nodes, {"x": ["b", "t"]}, (1, None), first=_i64([0]), last=_i64([-1]))
    _check(model, ["Unsqueeze", "Transpose", "Neg"], (2, 5), (0, 3))


def test_expand_to_the_dims_that_are_there_goes() -> None:
    nodes = [
        _node("Shape", "x", "s"), _node("Equal", "s minus", "e"), _node("Where", "e ones s", "w"),
        _node("Expand", "x w", "z"), _node("Neg", "z", "y"),
    ]  # fmt: skip
    model = _model(nodes, {"x": ["b", "t"]}, (1, ["b", "t"]), minus=_i64([-1, -1]), ones=_i64([1, 1]))
    _check(model, ["Neg"], (2, 5), (1, 0))


def test_an_output_whose_dims_are_declared_wrong_keeps_what_is_computed() -> None:
    nodes = [_node("Shape", "x", "s"), _node("Concat", "s minus", "w", axis=0), _node("Reshape", "x w", "y")]
    model = _model(nodes, {"x": ["b", "t"]}, (1, [1, "wrong"]), minus=_i64([-1]))
    graph = Graph.load(model).optimize()
    x = np.ones((2, 3), np.float32)
    assert _run(graph.to_onnx(target="onnx"), {"x": x}).shape == (2, 3, 1)


@pytest.mark.parametrize("chosen", [True, False])
def test_an_if_whose_condition_is_known_is_its_branch(chosen: bool) -> None:
    def branch(op_type: str) -> onnx.GraphProto:
        return helper.make_graph(
            [_node("Add", "x two", "a"), _node(op_type, "a", "r")], op_type, [],
            [helper.make_tensor_value_info("r", 1, ["b", "t"])],
            [numpy_helper.from_array(f32(2 if op_type == "Neg" else 3), "two")],
        )  # fmt: skip

    nodes = [
        _node("Equal", "one other", "c"),
        helper.make_node("If", ["c"], ["z"], then_branch=branch("Neg"), else_branch=branch("Exp")),
        _node("Tanh", "z", "y"),
    ]
    model = _model(nodes, {"x": ["b", "t"]}, (1, ["b", "t"]), one=_i64(1), other=_i64(1 if chosen else 2))
    _check(model, ["Add", "Neg" if chosen else "Exp", "Tanh"], (2, 3))


def test_an_if_in_a_branch_whose_condition_is_known_is_its_branch() -> None:
    def graph(name: str, nodes: list[onnx.NodeProto], result: str) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(result, 1, None)])

    inner = helper.make_node(
        "If", ["known"], ["i"],
        then_branch=graph("yes", [_node("Neg", "x", "p")], "p"), else_branch=graph("no", [_node("Exp", "x", "q")], "q"),
    )  # fmt: skip
    nodes = [
        _node("ReduceSum", "x", "total", keepdims=0), _node("Greater", "total zero", "c"),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=graph("then", [inner, _node("Tanh", "i", "t")], "t"),
            else_branch=graph("else", [_node("Sin", "x", "u")], "u"),
        ),
    ]  # fmt: skip
    model = _model(nodes, {"x": ["b", "t"]}, (1, None), zero=f32(0), known=np.array(True))
    output = _check(model, ["ReduceSum", "Greater", "If"], (2, 3), (1, 4))
    then = output.nodes[-1].attributes["then_branch"]
    assert operators(then) == ["Neg", "Tanh"]


INDEXED: dict[str, tuple[str, dict[str, Array], dict[str, Any]]] = {
    "ConstantOfShape": ("shape", {"shape": _i64([2, 3])}, {"value": numpy_helper.from_array(f32([1.5]))}),
    "Range": ("a b c", {"a": _i64(9), "b": _i64(-2), "c": _i64(-3)}, {}),
    "Tile": ("d r", {"d": f32([[1, 2]]), "r": _i64([2, 3])}, {}),
    "GatherElements": ("d i", {"d": f32([[1, 2], [3, 4], [5, 6]]), "i": _i64([[-1, 0]])}, {"axis": 0}),
    "GatherND": ("d i", {"d": f32([[1, 2], [3, 4]]), "i": _i64([[1, -2], [0, 1]])}, {}),
    "ScatterElements": ("d i u", {"d": np.zeros((2, 3), np.float32), "i": _i64([[2, -3]]),
                                  "u": f32([[7, 8]])}, {"axis": 1}),
    "ScatterND": ("d i u", {"d": np.zeros((3, 2), np.float32), "i": _i64([[2], [-3]]),
                            "u": f32([[7, 8], [9, 10]])}, {}),
    "Trilu": ("d k", {"d": np.ones((3, 4), np.float32), "k": _i64(1)}, {"upper": 0}),
    "ReduceSum": ("d k", {"d": np.arange(6, dtype=np.int64).reshape(2, 3), "k": _i64([1])}, {"keepdims": 0}),
    "ReduceProd": ("d k", {"d": np.arange(1, 7, dtype=np.int64).reshape(2, 3), "k": _i64([-2])}, {}),
    "CumSum": ("d k", {"d": np.arange(6, dtype=np.int64).reshape(2, 3), "k": _i64(1)}, {}),
    "Clip": ("d k m", {"d": np.arange(6, dtype=np.int64), "k": _i64(2), "m": _i64(4)}, {}),
}  # fmt: skip


@pytest.mark.parametrize("op_type", INDEXED)
def test_indexing_of_constants_gives_what_the_runtime_computes(op_type: str) -> None:
    operands, arrays, attributes = INDEXED[op_type]
    is_float = op_type in ("ConstantOfShape", "Tile", "Trilu") or "Gather" in op_type or "Scatter" in op_type
    nodes = [_node(op_type, operands, "v", **attributes), _node("Neg", "v", "w"), _node("Shape", "x", "s"),
             _node("ReduceSum", "s", "t", keepdims=0), _node("Cast", "t", "f", to=1 if is_float else 7),
             _node("Add", "w f", "y")]  # fmt: skip
    model = _model(nodes, {"x": ["b", "c"]}, (1 if is_float else I64, None), **arrays)
    graph = Graph.load(model).optimize()
    assert operators(graph).count(op_type) == (op_type == "ReduceSum")  # that of the sizes, which the run knows
    x = {"x": np.ones((2, 3), np.float32)}
    want, got = _run(model, x), _run(graph.to_onnx(target="onnx"), x)
    assert (want.dtype, want.shape, want.tobytes()) == (got.dtype, got.shape, got.tobytes())


@pytest.mark.parametrize(
    ("op_type", "arrays"),
    [
        ("GatherND", {"d": f32([[1, 2]]), "i": _i64([[5, 0]])}),
        ("ScatterElements", {"d": f32([1, 2]), "i": _i64([0, 0]), "u": f32([3, 4])}),
        ("CumSum", {"d": f32([0.1, 0.2, 0.3]), "i": _i64(0)}),
    ],
)
def test_indexing_that_is_not_certain_is_left_to_the_runtime(op_type: str, arrays: dict[str, Array]) -> None:
    nodes = [_node(op_type, " ".join(arrays), "v"), _node("Neg", "v", "y")]
    graph = Graph.load(_model(nodes, {"x": [1]}, (1, None), **arrays)).optimize()
    assert op_type in operators(graph)


@pytest.mark.parametrize(("groups", "stride", "size"), [(1, 1, 3), (4, 1, 3), (4, 2, 5), (1, 2, 1)])
def test_padding_is_merged_into_a_convolution(groups: int, stride: int, size: int) -> None:
    rng = np.random.default_rng(1)
    filters = rng.standard_normal((8, 4 // groups, size, size)).astype(np.float32)
    nodes = [
        _node("Pad", "x pads", "p"),
        _node("Conv", "p w b", "y", group=groups, strides=[stride] * 2, pads=[0, 1, 2, 0], kernel_shape=[size] * 2),
    ]
    model = _model(nodes, {"x": ["n", 4, 9, 11]}, (1, None), w=filters, b=rng.standard_normal(8).astype(np.float32),
                   pads=_i64([0, 0, 1, 2, 0, 0, 0, 3]))  # fmt: skip
    result = _check(model, ["Conv"], (2,), (1,))
    assert [*result.nodes[0].attributes["pads"]] == [1, 3, 2, 3]


@pytest.mark.parametrize("what", ["reflect", "value", "channels", "cropped", "infinite"])
def test_padding_that_is_not_a_border_of_zeros_stays(what: str) -> None:
    others = {"channels": [0, 1, 1, 1, 0, 0, 1, 1], "cropped": [0, 0, -1, 0, 0, 0, 0, 0]}
    pads = others.get(what, [0, 0, 1, 1, 0, 0, 1, 1])
    filters = np.ones((2, 3 if what == "channels" else 2, 3, 3), np.float32)
    if what == "infinite":
        filters[0, 0, 0, 0] = np.inf
    mode = {"mode": "reflect"} if what == "reflect" else {}
    nodes = [_node("Pad", "x pads value", "p", **mode), _node("Conv", "p w", "y")]
    value = f32(1 if what == "value" else 0)
    model = _model(nodes, {"x": [1, 2, 6, 6]}, (1, None), w=filters, pads=_i64(pads), value=value)
    assert operators(Graph.load(model).optimize()) == ["Pad", "Conv"]


def test_floor_division_of_sizes_is_folded() -> None:
    cases: list[tuple[Any, ...]] = [([4, 9], [], [[2, 4], [-3]]), (["a", 9], ["Shape", "FloorDiv"], [[-3]])]
    for sizes, item, element in cases:
        graph = Graph("g", {"x": TensorType("float32", sizes)})
        shape = ops.onnx.Shape(graph["x"])
        graph.output(shape // 2, shape[1:] // -4)
        changed = graph.optimize()
        assert operators(changed) == item
        assert [s.producer.array.tolist() for s in changed.outputs if isinstance(s.producer, Constant)] == element
        x = np.zeros((4, 9), np.float32)
        assert [r.tolist() for r in InferenceSession().load(changed)(x)] == [[2, 4], [-3]]
