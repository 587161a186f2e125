"""Arrays of every stored dtype to onnxruntime and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType
from graphcore.runtime.ort.transport_dtypes import from_ort, to_ort
from tests.support import reference

STORED = [
    DType.bool, DType.int4, DType.uint4, DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16,
    DType.uint32, DType.uint64, DType.float8_e4m3fn, DType.float8_e5m2, DType.float16, DType.bfloat16, DType.float32,
    DType.float64,
]  # fmt: skip
RARE = [
    DType.int2, DType.uint2, DType.float4_e2m1, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz, DType.float8_e8m0,
]  # fmt: skip


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_array_comes_back_as_it_was(dtype: DType, shape: tuple[int, ...]) -> None:
    array = reference.samples(dtype, int(np.prod(shape)), 3).reshape(shape)
    assert same(from_ort(to_ort(array, dtype), dtype), array)


@pytest.mark.parametrize("shape", [(), (0,), (64,), (3, 5, 7)], ids=str)
@pytest.mark.parametrize("dtype", [*RARE, DType.int4, DType.uint4], ids=str)
def test_every_bit_pattern_comes_back_as_it_was(dtype: DType, shape: tuple[int, ...]) -> None:
    codes = np.resize(np.arange((1 << dtype.bits) - 1, -1, -1, dtype=np.uint8), shape)
    array = np.asarray(codes).view(dtype.numpy)
    assert same(from_ort(to_ort(array, dtype), dtype), array)


@pytest.mark.parametrize("dtype", [d for d in (*STORED, *RARE) if d.bits >= 8], ids=str)
def test_memory_is_shared_when_an_element_is_a_byte_or_more(dtype: DType) -> None:
    array = np.zeros(64, dtype.numpy)
    assert to_ort(array, dtype).data_ptr() == array.ctypes.data


@pytest.mark.parametrize("dtype", [*STORED, DType.index, DType.address, DType.tensor_float32], ids=str)
def test_model_hands_through_what_it_is_fed(dtype: DType) -> None:
    graph = Graph("through", {"x": TensorType(dtype, ["n", 2])})
    graph.output(y=graph["x"])
    array = reference.samples(dtype, 14, 4).reshape(7, 2)
    (got,) = gc.InferenceSession().load(graph)(array)
    assert same(got, array)


def test_strings_go_in_and_out() -> None:
    graph = Graph("strings", {"x": TensorType(DType.string, ["n"])})
    graph.output(y=graph["x"], same=graph["x"] == graph.constant("a"))
    got, equal = gc.InferenceSession().load(graph)(np.array(["a", "bc", "ü"]))
    assert got.tolist() == ["a", "bc", "ü"]
    assert equal.tolist() == [True, False, False]


def test_tf32_input_is_rounded_when_fed_with_more_bits() -> None:
    graph = Graph("tf32", {"x": TensorType(DType.tf32, ["n"])})
    graph.output(y=graph["x"] + 0.0)
    x = np.array([1 + 2.0**-12, 1 + 2.0**-10, np.nan, -0.0], np.float32)
    (got,) = gc.InferenceSession().load(graph)(x)
    assert np.array_equal(got, np.array([1, 1 + 2.0**-10, np.nan, 0], np.float32), equal_nan=True)
