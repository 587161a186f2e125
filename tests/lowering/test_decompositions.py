"""Decompositions of operators whose kernels take fewer dtypes than ONNX, or give other numbers."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import graphcore as gc
from graphcore import DType, ops
from graphcore.errors import GraphError
from graphcore.runtime.lowering.decompositions import rows
from tests.support.graphs import Array
from tests.support.graphs import run_unchecked as run

pytestmark = pytest.mark.releases

D = DType
on: Any = ops.onnx


@pytest.mark.numbers
def test_max_roi_pool_has_pixels_of_neighbours_in_both_parts() -> None:
    x = np.arange(30, dtype=np.float64).reshape(1, 1, 6, 5)
    regions = np.array([[0, 1, 0, 3, 4], [0, 0, 2, 4, 2]], np.float64)
    (result,) = run(lambda x, r: on.MaxRoiPool(x, r, pooled_shape=[2, 2]), x, regions)
    # Rows 0 to 4 in two parts are rows 0 to 2 and 2 to 4; columns 0 to 4 likewise; one row is in both of its parts.
    assert result[:, 0].tolist() == [[[12, 13], [22, 23]], [[12, 14], [12, 14]]]


@pytest.mark.numbers
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([(1, 1), (2, 2), (3, 2)]), st.sampled_from([1.0, 0.5, 0.25]))
def test_max_roi_pool_gives_what_the_kernel_of_opset_16_gives(seed: int, pooled: tuple[int, int], scale: float) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(2, 3, 6, 5)).astype(np.float32)
    corners = np.sort(random.integers(0, 9, (4, 2, 2)), axis=1).reshape(4, 4)
    regions = np.concatenate([random.integers(0, 2, (4, 1)), corners], 1).astype(np.float32)
    attributes = {"pooled_shape": list(pooled), "spatial_scale": scale}
    (expected,) = _native("MaxRoiPool", {"x": x, "r": regions}, attributes, 16)
    (result,) = run(lambda x, r: on.MaxRoiPool(x, r, **attributes), x, regions)
    np.testing.assert_array_equal(result, expected)
    (double,) = run(lambda x, r: on.MaxRoiPool(x, r, **attributes), x.astype(np.float64), regions.astype(np.float64))
    np.testing.assert_array_equal(double, expected.astype(np.float64))


def _native(op_type: str, feeds: dict[str, Array], attributes: dict[str, Any], opset: int) -> list[Array]:
    """Return the result of onnxruntime's own kernel of an older opset."""
    node = helper.make_node(op_type, list(feeds), ["y"], **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    graph = helper.make_graph([node], "test", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.int8, D.int16, D.uint8, D.uint16, D.uint32, D.uint64], ids=str)
@pytest.mark.parametrize("is_kept", [0, 1])
def test_lists_of_narrow_integers_are_split_and_cast_back(dtype: DType, is_kept: int) -> None:
    x = np.array([[1, 2], [3, 4], [5, 6]], dtype.numpy)
    (results,) = run(lambda x: on.SplitToSequence(x, axis=0, keepdims=is_kept), x)
    expected = [row[None] if is_kept else row for row in x]
    assert [f.tolist() for f in results] == [e.tolist() for e in expected]
    assert all(f.dtype == dtype.numpy for f in results)
    (parts,) = run(lambda x: on.SplitToSequence(x, [1, 2], axis=0), x)
    assert [p.tolist() for p in parts] == [x[:1].tolist(), x[1:].tolist()]


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.bfloat16, D.int4, D.float8_e5m2, D.float4_e2m1, D.float32], ids=str)
def test_optionals_that_are_looked_into_are_their_values(dtype: DType) -> None:
    x = np.array([1, 2, 0]).astype(np.float32).astype(dtype.numpy)

    def look(x: gc.Symbol) -> list[gc.Symbol]:
        value = on.Optional(x)
        return [on.OptionalGetElement(value), on.OptionalHasElement(value)]

    value, has = run(look, x)
    assert value.dtype == x.dtype
    assert value.tolist() == x.tolist()
    assert has.tolist() is True


@pytest.mark.numbers
def test_bits_of_float4_stay_when_they_are_cast_to_float4() -> None:
    x = np.array([0.5, -1, 6, -0.0], np.float32).astype(D.float4_e2m1.numpy)
    (result,) = run(lambda x: on.BitCast(x, to=D.float4_e2m1), x)
    assert result.view(np.uint8).tolist() == x.view(np.uint8).tolist()


@pytest.mark.numbers
def test_products_of_float8_take_off_their_zero_points() -> None:
    eight = D.float8_e4m3fn.numpy
    a, b = (np.array(v, np.float32).astype(eight) for v in ([[1, 2, 1], [3, 1, 2]], [[1, 2], [1, 3], [1, 2]]))
    one, zero = np.float32(1), np.array(1, np.float32).astype(eight)

    def product(a: gc.Symbol, b: gc.Symbol, z: gc.Symbol) -> gc.Symbol:
        result: gc.Symbol = on.QLinearMatMul(a, one, z, b, one, z, np.float32(0.5), z)
        return result

    (result,) = run(product, a, b, zero)
    expected = ((a.astype(np.float32) - 1) @ (b.astype(np.float32) - 1)) / 0.5 + 1
    np.testing.assert_array_equal(result.astype(np.float32), expected)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows_of_narrow_floats_are_rounded_once(name: str, dtype: DType) -> None:
    size = np.array(7)
    (result,) = run(lambda n: getattr(on, name)(n, output_datatype=dtype), size)
    (wide,) = run(lambda n: getattr(on, name)(n, output_datatype=D.float32), size)
    assert result.dtype == dtype.numpy
    np.testing.assert_array_equal(result, wide.astype(dtype.numpy))


def test_eye_has_the_dtype_that_is_asked_for() -> None:
    for dtype in (D.int8, D.bool, D.float16, D.uint32):
        (result,) = run(lambda x, d=dtype: on.EyeLike(x, dtype=d), np.zeros((2, 3), np.float32))
        assert result.dtype == dtype.numpy
        np.testing.assert_array_equal(result.astype(np.float32), np.eye(2, 3))


@pytest.mark.numbers
def test_overlapping_bools_are_joined_by_or() -> None:
    x = np.array([[[1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1]]], bool)
    (result,) = run(lambda x: on.Col2Im(x, [3, 3], [2, 2]), x)
    (counted,) = run(lambda x: on.Col2Im(x, [3, 3], [2, 2]), x.astype(np.float32))
    np.testing.assert_array_equal(result, counted != 0)


def test_image_of_an_unknown_number_of_axes_is_refused_in_words() -> None:
    x, sizes = np.ones((1, 4, 4)), np.array([3, 3])
    dims: list[Any] = [[1, 4, 4], ["n"], ["n"]]
    with pytest.raises(GraphError, match="how many axes the image has"):
        run(lambda x, i, b: on.Col2Im(x, i, b), x, sizes, sizes - 1, dims=dims)


def test_functions_that_rows_name_exist() -> None:
    names = re.findall(r'"((?:cuda\.)?[a-z_]+)\.([a-z_0-9]+)"', inspect.getsource(rows))
    assert len(names) > 60
    folder = rows.__name__.rpartition(".")[0]
    results = {name: getattr(import_module(f"{folder}.{name[0]}"), name[1], None) for name in names if name[0] != "ai"}
    assert not [name for name, function in results.items() if not callable(function)]
