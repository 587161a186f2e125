"""Dtypes that only models have: float4, 2-bit integers and the other float8s. They move and are cast."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import DType, Graph
from graphcore.ir.graph import TargetName

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
D = DType
FOUR = D.float4_e2m1
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
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])


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
@pytest.mark.parametrize("dtype", THIRD_PARTY, ids=str)
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


HALFWAY = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
NUMBERS = np.array(
    [0, -0.0, *HALFWAY, *(-h for h in HALFWAY), *(np.nextafter(np.float32(h), np.float32(9)) for h in HALFWAY),
     *(np.nextafter(np.float32(h), np.float32(0)) for h in HALFWAY), 6, 7, 1e6, -8, np.inf, -np.inf, np.nan, 1e-30,
     -1e-30],
    np.float32,
)  # fmt: skip


@pytest.mark.numbers
@pytest.mark.parametrize("source", [D.float32, D.float64, D.float16, D.bfloat16], ids=str)
def test_floats_round_to_float4_to_even_and_saturate(source: DType) -> None:
    with np.errstate(over="ignore"):
        x = NUMBERS.astype(source.numpy)
    (result,) = run([helper.make_node("Cast", ["x"], ["y"], to=FOUR.onnx)], {"x": x}, ["y"])
    same(result, x.astype(np.float64).astype(np.float32).astype(ml_dtypes.float4_e2m1fn))


@pytest.mark.numbers
def test_double_rounds_to_float4_once() -> None:
    x = np.array([0.25 + 1e-12, 2.5 + 1e-12, 5 - 1e-12, -0.75 - 1e-13, -0.75 + 1e-13])
    (result,) = run([helper.make_node("Cast", ["x"], ["y"], to=FOUR.onnx)], {"x": x}, ["y"])
    assert result.astype(float).tolist() == [0.5, 3, 4, -1, -0.5]


@pytest.mark.numbers
@pytest.mark.parametrize("source", [D.int8, D.uint8, D.int32, D.int64, D.uint64, D.bool, D.int4], ids=str)
def test_integers_round_to_float4(source: DType) -> None:
    values = [0, 1, 2, 3, 4, 5, 6, 7] + ([-1, -3, -5, -7] if source.is_signed else [])
    if source is D.bool:
        values = [0, 1]
    if source.bits == 64:
        values.append(1 << 62)
    x = np.array(values).astype(source.numpy)
    (result,) = run([helper.make_node("Cast", ["x"], ["y"], to=FOUR.onnx)], {"x": x}, ["y"])
    same(result, x.astype(np.float32).astype(ml_dtypes.float4_e2m1fn))


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
    graph = Graph.load(model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": some(FOUR, 3)}, ["y"]))
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
