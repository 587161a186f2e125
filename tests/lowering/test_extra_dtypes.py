"""Dtypes that only models have: float4, float6, 2-bit integers and the other float8s. They move and are cast."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore import DType, Graph, ops
from graphcore.arrays.external_data import Folder
from graphcore.errors import DTypeError, ModelError
from graphcore.ir.graph import TargetName
from graphcore.onnx.proto.tensors import array_of
from graphcore.onnx.proto.value_protos import raw

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
D = DType
FOUR, SIXES = D.float4_e2m1, (D.float6_e2m3fn, D.float6_e3m2fn)
SMALL = (FOUR, *SIXES)
THIRD_PARTY = (FOUR, D.int2, D.uint2, D.float8_e4m3fnuz, D.float8_e5m2fnuz, D.float8_e8m0)
PLAIN = (
    D.float32,
    D.float64,
    D.float16,
    D.bfloat16,
    D.int8,
    D.uint8,
    D.int16,
    D.int32,
    D.int64,
    D.uint64,
    D.int4,
    D.bool,
)


def every(dtype: DType) -> Array:
    """Every value of a dtype."""
    if dtype.is_integer:
        return np.arange(int(dtype.min), int(dtype.max) + 1, dtype=np.int8).astype(dtype.numpy)
    return np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)


def some(dtype: DType, *shape: int) -> Array:
    values = every(dtype)
    values = values[np.isfinite(values.astype(np.float32))]
    return np.resize(values, shape)


def model_of(nodes: list[Any], inputs: dict[str, Array], outputs: list[str], value: list[Any] | None = None) -> Any:
    infos = [helper.make_tensor_value_info(n, DType.of(x.dtype).onnx, list(x.shape)) for n, x in inputs.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "third_party", infos, results, value or [])
    numbers = {i.type.tensor_type.elem_type for i in infos} | {t.data_type for t in value or []}
    numbers |= {a.i for node in nodes for a in node.attribute if a.name == "to"}
    opset = 28 if numbers & {dtype.onnx for dtype in SIXES} else 25
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def run(nodes: list[Any], inputs: dict[str, Array], outputs: list[str], value: list[Any] | None = None) -> list[Any]:
    return gc.InferenceSession().load(model_of(nodes, inputs, outputs, value))(*inputs.values())


def same(result: Array, wanted: Array) -> None:
    assert result.dtype == wanted.dtype
    assert result.shape == wanted.shape
    assert result.tobytes() == np.ascontiguousarray(wanted).tobytes()


def ints(name: str, *values: int) -> Any:
    return onnx.numpy_helper.from_array(np.array(values, np.int64), name)


MOVES: dict[str, tuple[list[Any], dict[str, Any], list[Any], Any]] = {
    "Identity": (["x"], {}, [], lambda x: x),
    "Transpose": (["x"], {"perm": [1, 0, 2]}, [], lambda x: x.transpose(1, 0, 2)),
    "Reshape": (["x", "s"], {}, [ints("s", 4, -1)], lambda x: x.reshape(4, -1)),
    "Flatten": (["x"], {"axis": 2}, [], lambda x: x.reshape(6, 4)),
    "Squeeze": (["x", "s"], {}, [ints("s")], lambda x: x),
    "Unsqueeze": (["x", "s"], {}, [ints("s", 0)], lambda x: x[None]),
}


@pytest.mark.numbers
@pytest.mark.parametrize("op", MOVES)
@pytest.mark.parametrize("dtype", THIRD_PARTY, ids=str)
def test_values_move_as_they_are(op: str, dtype: DType) -> None:
    names, attributes, value, function = MOVES[op]
    x = some(dtype, 2, 3, 4)
    (result,) = run([helper.make_node(op, names, ["y"], **attributes)], {"x": x}, ["y"], value)
    same(result, function(x))


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", THIRD_PARTY, ids=str)
def test_every_value_comes_back_through_an_identity(dtype: DType) -> None:
    x = every(dtype)
    (result,) = run([helper.make_node("Identity", ["x"], ["y"])], {"x": x}, ["y"])
    wide = x.astype(np.float32)
    assert result.astype(np.float32)[~np.isnan(wide)].tolist() == wide[~np.isnan(wide)].tolist()
    assert np.isnan(result.astype(np.float32)[np.isnan(wide)]).all()


@pytest.mark.numbers
@pytest.mark.parametrize("target", PLAIN, ids=str)
@pytest.mark.parametrize("dtype", [*THIRD_PARTY, *SIXES], ids=str)
def test_every_value_is_cast_to_what_it_is(dtype: DType, target: DType) -> None:
    x = every(dtype)
    wide = x.astype(np.float64)
    if target.is_integer:
        x = x[np.isfinite(wide) & (wide >= float(target.min)) & (wide < float(int(target.max) + 1))]
    (result,) = run([helper.make_node("Cast", ["x"], ["y"], to=target.onnx)], {"x": x}, ["y"])
    wanted = x.astype(np.float64)
    wanted = wanted != 0 if target is D.bool else np.trunc(wanted) if target.is_integer else wanted
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(result.astype(np.float64), wanted.astype(target.numpy).astype(np.float64))
    assert result.dtype == target.numpy


def numbers(dtype: DType) -> Array:
    """The values of a small float, their midpoints, the float32s beside these, and numbers out of range."""
    values = np.unique(np.abs(every(dtype).astype(np.float32)))
    halfway = (values[1:] + values[:-1]) / 2
    beside = [np.nextafter(halfway, np.float32(way)) for way in (0, 100)]
    sizes = np.concatenate([values, halfway, *beside, np.array([1e6, np.inf, 1e-30, 0.01], np.float32)])
    return np.concatenate([sizes, -sizes, np.array([np.nan], np.float32)]).astype(np.float32)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("source", [D.float32, D.float64, D.float16, D.bfloat16, *SMALL], ids=str)
def test_floats_round_to_small_floats_to_even_and_saturate(source: DType, dtype: DType) -> None:
    with np.errstate(over="ignore"):
        x = numbers(dtype).astype(source.numpy)
    (result,) = run([helper.make_node("Cast", ["x"], ["y"], to=dtype.onnx)], {"x": x}, ["y"])
    same(result, x.astype(np.float32).astype(dtype.numpy))


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_double_rounds_to_small_floats_once(dtype: DType) -> None:
    values = np.unique(np.abs(every(dtype).astype(np.float64)))
    x = np.stack([(values[1:] + values[:-1]) / 2 * (1 + sign * 1e-13) for sign in (-1, 1)])
    (result,) = run([helper.make_node("Cast", ["x"], ["y"], to=dtype.onnx)], {"x": x}, ["y"])
    assert result.astype(float).tolist() == [values[:-1].tolist(), values[1:].tolist()]


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("source", [D.int8, D.uint8, D.int32, D.int64, D.uint64, D.bool, D.int4], ids=str)
def test_integers_round_to_small_floats(source: DType, dtype: DType) -> None:
    values = [*range(min(int(source.max), 40) + 1)] + ([-1, -3, -5, -7] if source.is_signed else [])
    if source.bits == 64:
        values.append(1 << 62)
    x = np.array(values).astype(source.numpy)
    (result,) = run([helper.make_node("Cast", ["x"], ["y"], to=dtype.onnx)], {"x": x}, ["y"])
    same(result, x.astype(np.float32).astype(dtype.numpy))


MOVED: dict[str, Any] = {
    "transpose": (lambda x: ops.transpose(x, [1, 0]), lambda x: x.T),
    "reshape": (lambda x: ops.reshape(x, [-1]), lambda x: x.reshape(-1)),
    "slice": (lambda x: x[1:, ::-1], lambda x: x[1:, ::-1]),
    "concat": (lambda x: ops.concat([x, -x]), lambda x: np.concatenate([x, -x])),
    "gather": (lambda x: ops.gather(x, ops.constant([3, 1])), lambda x: x[[3, 1]]),
    "where": (lambda x: ops.where(x > 1, x, abs(x)), lambda x: np.where(x.astype(np.float32) > 1, x, np.abs(x))),
    "sort": (ops.sort, lambda x: np.sort(x.astype(np.float32)).astype(x.dtype)),
    "cond": (lambda x: ops.cond(ops.all(x == x), lambda: x, lambda: -x), lambda x: x),
    "while": (
        lambda x: ops.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, -v), (ops.constant(0), x))[1], lambda x: -x
    ),
}  # fmt: skip


@pytest.mark.numbers
@pytest.mark.parametrize("op", MOVED)
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_ops_move_small_floats(op: str, dtype: DType) -> None:
    moved, reference = MOVED[op]
    x = every(dtype)[1 : 1 << (dtype.bits - 1)].copy()
    x = np.resize(x, (4, 6))
    graph = Graph("moved", {"x": gc.TensorType(dtype, ["n", "m"])})
    with graph:
        graph.output(moved(graph["x"]))
    (result,) = gc.InferenceSession().load(graph)(x)
    same(result, np.ascontiguousarray(reference(x)))


ARITHMETIC: dict[str, Any] = {
    "add": (lambda x, y: x + y, np.add), "multiply": (lambda x, y: x * y, np.multiply),
    "subtract": (lambda x, y: x - y, np.subtract), "divide": (lambda x, y: x / y, np.divide),
    "maximum": (ops.max, np.maximum), "sqrt": (lambda x, y: ops.sqrt(abs(x)), lambda x, y: np.sqrt(np.abs(x))),
    "matmul": (lambda x, y: x[:, None] @ y[None, :], np.outer),
}  # fmt: skip


@pytest.mark.numbers
@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_arithmetic_of_small_floats_rounds_each_result(op: str, dtype: DType) -> None:
    computed, reference = ARITHMETIC[op]
    values = every(dtype)
    x, y = (v.ravel() for v in np.meshgrid(values, values[values.astype(np.float32) != 0]))
    if op == "matmul":
        x, y = values, values
    graph = Graph(
        "arithmetic", {"x": gc.TensorType(dtype, ["n"]), "y": gc.TensorType(dtype, ["n" if op != "matmul" else "m"])}
    )
    graph.output(computed(*graph.inputs).cast(D.float32))
    (result,) = gc.InferenceSession().load(graph)(x, y)
    want = reference(x.astype(np.float32), y.astype(np.float32)).astype(dtype.numpy).astype(np.float32)
    np.testing.assert_array_equal(result, want)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_comparisons_of_small_floats(dtype: DType) -> None:
    x, y = (v.ravel() for v in np.meshgrid(every(dtype), every(dtype)))
    graph = Graph("comparison", {name: gc.TensorType(dtype, ["n"]) for name in "xy"})
    a, b = graph.inputs
    graph.output(a < b, a <= b, a == b, a != b)
    for got, function in zip(
        gc.InferenceSession().load(graph)(x, y), (np.less, np.less_equal, np.equal, np.not_equal), strict=True
    ):
        np.testing.assert_array_equal(got, function(x.astype(np.float32), y.astype(np.float32)))


@pytest.mark.numbers
@pytest.mark.parametrize("granularity", ["tensor", "axis", "block", "zero point"])
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_quantized_small_floats_round_once_and_come_back(dtype: DType, granularity: str) -> None:
    x = np.linspace(-40, 40, 96, dtype=np.float32).reshape(8, 12)
    scale = {"axis": np.arange(1, 9), "block": np.arange(1, 25).reshape(8, 3)}.get(granularity, np.array(1.5)).astype(
        np.float32
    )
    attributes: dict[str, Any] = {"axis": {"axis": 0}, "block": {"axis": 1, "block_size": 4}}.get(granularity, {})
    zero = np.zeros(scale.shape, dtype.numpy) if granularity != "zero point" else np.array(1.5, dtype.numpy)
    quantize = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes)
    dequantize = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes)
    values = [helper.make_tensor("z", dtype.onnx, zero.shape, zero.astype(np.float32).ravel().tolist())]
    if granularity == "zero point":  # which the kernel of DequantizeLinear refuses for floats
        dequantize = helper.make_node("DequantizeLinear", ["q", "s"], ["y"])
    q, y = run([quantize, dequantize], {"x": x, "s": scale}, ["q", "y"], values)
    wide = np.repeat(scale, 4, -1) if granularity == "block" else scale.reshape(-1, 1)
    shift = zero.astype(np.float32).ravel()[0]
    same(q, (x / wide + shift).astype(dtype.numpy))
    np.testing.assert_array_equal(y, q.astype(np.float32) * wide)


@pytest.mark.numbers
@pytest.mark.parametrize("precision", [D.float32, D.float16, D.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_small_floats_are_quantized_at_a_precision(dtype: DType, precision: DType) -> None:
    x, scale = np.linspace(-9, 9, 4000, dtype=np.float32).reshape(8, -1), np.linspace(0.3, 1.7, 8, dtype=np.float32)
    attributes: dict[str, Any] = {"axis": 0, "precision": precision.onnx, "output_dtype": dtype.onnx}
    model = model_of([helper.make_node("QuantizeLinear", ["x", "s"], ["y"], **attributes)], {"x": x, "s": scale}, ["y"])
    model.opset_import[0].version = 28
    (result,) = gc.InferenceSession(precision="exact").load(model)(x, scale)
    quotient = x.astype(precision.numpy) / scale.astype(precision.numpy)[:, None]
    same(result, quotient.astype(np.float32).astype(dtype.numpy))


@pytest.mark.numbers
@pytest.mark.parametrize("other", [*SIXES, D.uint(6), D.int(6), D.uint(2), D.uint(12)], ids=str)
@pytest.mark.parametrize("dtype", SIXES, ids=str)
def test_bits_of_float6_are_seen_as_other_dtypes_and_back(dtype: DType, other: DType) -> None:
    values = every(dtype)
    graph = Graph("bits", {"x": gc.TensorType(dtype, [64])})
    seen = ops.bitcast(graph["x"], other)
    graph.output(seen, ops.bitcast(seen, dtype))
    got, back = gc.InferenceSession().load(graph)(values)
    same(back, values)
    bits = np.unpackbits(values.view(np.uint8)[:, None], 1, 6, "little").reshape(-1, other.bits)
    codes = bits.astype(np.int64) @ (1 << np.arange(other.bits))
    if other.is_signed:
        codes = np.where(codes >= 32, codes - 64, codes)
    assert (got.view(np.uint8) if other.is_float else got).tolist() == codes.tolist()


@pytest.mark.parametrize("target", ["onnx", "cpu"])
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_files_keep_the_dtype_of_small_floats(dtype: DType, target: TargetName) -> None:
    weight = every(dtype)
    graph = Graph("file", {"x": gc.TensorType(dtype, ["n"])})
    w = graph.weight("w", weight)
    graph.output(y=graph["x"] * w[3:4], same=graph["x"], weight=w)
    proto = graph.to_onnx(target=target)
    onnx.checker.check_model(proto, full_check=True)
    stored = dtype.onnx if target == "onnx" and dtype is FOUR else TensorProto.FLOAT8E4M3FN
    assert {v.type.tensor_type.elem_type for v in (*proto.graph.input, *proto.graph.output)} == {stored}
    read = Graph.load(proto)
    assert read.weights["w"].dtype is dtype
    rounding = [sum(n.op_type == "Round" for n in p.graph.node) for p in (proto, read.to_onnx(target=target))]
    assert rounding[0] == rounding[1]  # values that a file notes are not rounded again
    for source in (graph, proto, read):
        model = gc.InferenceSession().load(source)
        assert {t.dtype for t in (*model.inputs.values(), *model.outputs.values())} == {dtype}  # type: ignore[union-attr]
        for got, want in zip(model(weight), (weight * weight[3:4], weight, weight), strict=True):
            same(got.astype(np.float32) + 0, want.astype(np.float32) + 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1000.0, 1000], ids=str)
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_constants_that_small_floats_cannot_hold_are_refused(dtype: DType, value: float) -> None:
    graph = Graph("constant", {"x": gc.TensorType(dtype, ["n"])})
    with pytest.raises(DTypeError, match=rf"add: {value} cannot be held in {dtype}"):
        graph["x"] + value
    with pytest.raises(DTypeError, match=f"cannot be held in {dtype}"):
        graph.constant(np.array([1, value]), dtype)
    graph.output(graph["x"] + float(dtype.max), graph.constant(np.array([0.3, -0.0]), dtype))
    got = gc.InferenceSession().load(graph)(every(dtype)[:1])
    same(got[0], np.array([dtype.max]).astype(dtype.numpy))
    same(got[1], np.array([0.3, -0.0]).astype(dtype.numpy))


def test_int32_data_of_float6_with_other_bits_is_refused() -> None:
    tensor = helper.make_tensor("w", TensorProto.FLOAT6E2M3, [2], [1.0, 2.0])
    bad = onnx.TensorProto(name="w", data_type=tensor.data_type, dims=[2], int32_data=[1, 64])
    proto = model_of([helper.make_node("Identity", ["w"], ["y"])], {}, ["y"], [bad])
    with pytest.raises(ModelError, match="holds more bits than an element has"):
        Graph.load(proto)


@pytest.mark.parametrize("dtype", SIXES, ids=str)
@pytest.mark.parametrize("count", range(9))
def test_float6_is_packed_as_onnx_packs_it(dtype: DType, count: int) -> None:
    values = every(dtype)[5 : 5 + count]
    packed = helper.make_tensor("w", dtype.onnx, [count], numpy_helper.from_array(values).raw_data, raw=True)
    unpacked = onnx.TensorProto(name="w", data_type=dtype.onnx, dims=[count], int32_data=values.view(np.uint8).tolist())
    for tensor in (packed, unpacked):
        same(array_of(tensor, Folder(None))[0], values)
    assert bytes(raw(values, dtype)) == packed.raw_data


# float4 in the corners of a model


@pytest.mark.numbers
def test_float4_weights_and_constants_are_those_of_the_file() -> None:
    values = every(FOUR)
    weight = helper.make_tensor("w", TensorProto.FLOAT4E2M1, [16], values.astype(np.float32).tolist())
    nodes = [
        helper.make_node("Constant", [], ["c"], value=weight),
        helper.make_node("DequantizeLinear", ["w", "scale"], ["y"]),
        helper.make_node("DequantizeLinear", ["c", "scale"], ["z"]),
        helper.make_node("Identity", ["w"], ["same"]),
    ]
    results = [weight, onnx.numpy_helper.from_array(np.array(3, np.float32), "scale")]
    y, z, again = run(nodes, {}, ["y", "z", "same"], results)
    assert y.tolist() == z.tolist() == (values.astype(np.float32) * 3).tolist()
    same(again, values)


@pytest.mark.parametrize("chosen", [True, False])
def test_float4_goes_in_and_out_of_branches(chosen: bool) -> None:
    x = some(FOUR, 5)
    branches = []
    for name, to in (("then_branch", FOUR), ("else_branch", FOUR)):
        nodes = [helper.make_node("Cast", ["x"], ["wide"], to=1), helper.make_node("Cast", ["wide"], ["r"], to=to.onnx)]
        if name == "else_branch":
            nodes = [helper.make_node("Identity", ["x"], ["r"])]
        branches.append((name, helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name="r")])))
    node = helper.make_node("If", ["c"], ["y"], **dict(branches))
    (result,) = run([node], {"c": np.array(chosen), "x": x}, ["y"])
    same(result, x)


def test_float4_input_is_an_output_too() -> None:
    x = some(FOUR, 3, 4)
    result = run([helper.make_node("Cast", ["x"], ["y"], to=1)], {"x": x}, ["x", "y"])
    same(result[0], x)
    assert result[1].tolist() == x.astype(np.float32).tolist()


def test_float4_beside_strings_comes_out() -> None:
    x, text = some(FOUR, 6), np.array(["a", "b"], object)
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["t"], ["u"])]
    y, u = run(nodes, {"x": x, "t": text}, ["y", "u"])
    same(y, x)
    assert u.tolist() == ["a", "b"]


def test_float4_is_kept_by_the_onnx_target_and_stored_as_float8_by_the_others() -> None:
    model = model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": some(FOUR, 3)}, ["y"])
    graph = Graph.load(model, promotion="max")  # written anew
    kinds = {}
    targets: tuple[TargetName, ...] = ("onnx", "cpu")
    for target in targets:
        kinds[target] = graph.to_onnx(target=target).graph.output[0].type.tensor_type.elem_type
    assert kinds == {"onnx": TensorProto.FLOAT4E2M1, "cpu": TensorProto.FLOAT8E4M3FN}


def test_float4_of_sizes_that_come_with_the_run() -> None:
    proto = model_of([helper.make_node("Cast", ["x"], ["y"], to=FOUR.onnx)], {"x": np.zeros((2, 2), np.float32)}, ["y"])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model = gc.InferenceSession().load(proto)
    assert str(model.outputs["y"]) == "float4_e2m1[n, 2]"
    for n in (0, 1, 5):
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        same(model(x)[0], x.astype(ml_dtypes.float4_e2m1fn))
