"""Traps of onnxruntime in casts: those that it merges, and those whose values differ from docs/numbers.md."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.lowering.build.casts import MERGED as MERGED_TRAP
from graphcore.runtime.lowering.build.casts import Casts
from graphcore.runtime.lowering.targets import traps
from graphcore.runtime.ort import release
from tests.support import reference
from tests.support.graphs import Array
from tools.kernel_probe.probes.conversions import of_casts
from tools.kernel_probe.probes.probe import outcome

pytestmark = pytest.mark.releases

D = DType

MERGED = """
bfloat16 int64: int32 uint32
bfloat16 uint64: uint32
float16 bfloat16: int8 uint8
float16 float32: uint32
float16 float64: uint32
float16 int64: int32
float32 bfloat16: int8 uint8
float32 float16: int8 uint8
float32 int64: int16 int32 uint16 uint32
float32 uint32: uint16
float32 uint64: uint16 uint32
float64 bfloat16: int8 uint8
float64 float16: int8 uint8
float64 float32: int16 int8 uint16 uint8
float64 int64: int16 int32 int8 uint16 uint32 uint8
float64 uint32: uint16 uint8
float64 uint64: uint16 uint32 uint8
float8_e4m3fn float64: uint32
float8_e4m3fn int64: int32
float8_e5m2 float64: uint32
float8_e5m2 int64: int32
int16 bfloat16: int8 uint8
int16 float16: int8 uint8
int32 bfloat16: int8 uint8
int32 float16: int8 uint8
int32 float32: int16 int8 uint16 uint8
int64 bfloat16: int8 uint8
int64 float16: int8 uint8
int64 float32: int16 int8 uint16 uint8
int64 float64: int16 int32 int8 uint16 uint32 uint8
uint16 bfloat16: int8 uint8
uint16 float16: int8 uint8
uint32 bfloat16: int8 uint8
uint32 float16: int8 uint8
uint32 float32: int16 int8 uint16 uint8
uint32 float64: int16 int32 int4 int8 uint16 uint4 uint8
uint64 bfloat16: int8 uint8
uint64 float16: int8 uint8
uint64 float32: int16 int8 uint16 uint8
uint64 float64: int16 int32 int8 uint16 uint32 uint8
"""
"""The casts, first middle: last, whose values onnxruntime changes by leaving out the middle one."""

TRIPLES = [
    (D.of(first), D.of(middle), D.of(last))
    for head, _, tail in (line.partition(":") for line in MERGED.split("\n") if line)
    for first, middle in [head.split()]
    for last in tail.split()
]
SOURCES = sorted({first for first, _, _ in TRIPLES}, key=str)


def values_of(dtype: DType) -> Array:
    """Return numbers, among them some that a cast through 32 bits or float32 would change."""
    values = reference.samples(dtype, 300, 3)
    if dtype not in (D.float32, D.float64):
        return values
    large = [2.0**33 + 3 * 2**10, 2.0**33 + 3, 2.0**31 + 771, 5e9, 3 - 1e-12, 32767.9999999]
    return np.concatenate([values, np.array(large, dtype.numpy)])


def test_there_are_101_casts_that_change_when_merged() -> None:
    assert len(TRIPLES) == len(set(TRIPLES)) == 101


@pytest.mark.numbers
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_cast_after_cast_is_right_where_the_runtime_merges_them(source: DType) -> None:
    triples = [triple for triple in TRIPLES if triple[0] is source]
    graph = Graph("casts", {"x": TensorType(source, ["n"])})
    graph.output(*(graph["x"].cast(middle).cast(last) for _, middle, last in triples))
    values = values_of(source)
    for (_, middle, last), got in zip(triples, gc.InferenceSession().load(graph)(values), strict=True):
        want = reference.cast(reference.cast(values, source, middle), middle, last)
        assert (got == want).all(), (source, middle, last)


def merged_and_apart(first: DType, middle: DType, last: DType) -> list[bytes]:
    """Return onnxruntime's results for the casts as they are, and for casts that cannot be merged."""
    graph = Graph("casts", {"x": TensorType(first, ["n"]), "y": TensorType(first, ["n"])})
    x, y = (graph.op("Cast", [s], {"to": middle}, [TensorType(middle, ["n"])])[0] for s in graph.inputs)
    (y,) = graph.op("BitCast", [y], {"to": middle}, [TensorType(middle, ["n"])])
    graph.output(*(graph.op("Cast", [s], {"to": last}, [TensorType(last, ["n"])])[0] for s in (x, y)))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = join(encode(graph))  # as it is: files workaround casts of floats to 4 bits
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    fed = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(values_of(first), first.onnx)
    results = session.run_with_ort_values(None, {"x": fed, "y": fed})
    return [ctypes.string_at(r.data_ptr(), r.tensor_size_in_bytes()) for r in results]


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_runtime_still_changes_values_by_merging_casts(source: DType) -> None:
    if not traps.trap_ranges().ranges[MERGED_TRAP].includes(release.runtime().version):
        pytest.skip("the installed onnxruntime was not seen to merge casts")
    for triple in TRIPLES:
        if triple[0] is source:
            merged, apart = merged_and_apart(*triple)
            assert merged != apart, triple


# What else lowering does about casts is in the probes of `measure/probes/casts.py`


def test_float32_is_rounded_to_tensor_float32_and_without_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = of_casts(
        lambda x: x.cast(D.tf32).cast(D.float32), [1 + 2.0**-11 + 2.0**-20], [1 + 2.0**-10], D.float32, D.float32
    )
    assert not outcome(probe)
    monkeypatch.setattr(Casts, "round_tf32", lambda casts, symbol: symbol)
    assert outcome(probe)


def test_minus_zero_of_float8_is_true_to_the_runtime_and_false_to_us() -> None:
    for dtype in (D.float8_e4m3fn, D.float8_e5m2):

        def build(x: Any, dtype: DType = dtype) -> Any:
            return x.cast(dtype).cast(D.bool)

        probe = of_casts(build, [-0.0, 0.0, 1.0], [False, False, True], D.float32, D.bool)
        assert probe.is_right(probe.run())


@pytest.mark.numbers
def test_float8_is_true_unless_it_is_zero() -> None:
    dtypes = [D.float8_e4m3fn, D.float8_e5m2, D.float8_e4m3fnuz, D.float8_e5m2fnuz, D.float8_e8m0]
    graph = Graph("truths", {dtype.name: TensorType(dtype, ["n"]) for dtype in dtypes})
    types = [TensorType(D.bool, ["n"])]
    graph.output(*(graph.op("Cast", [x], {"to": D.bool}, types)[0] for x in graph.inputs))
    arrays = [np.arange(256, dtype=np.uint8).view(dtype.numpy) for dtype in dtypes]
    for dtype, x, got in zip(dtypes, arrays, gc.InferenceSession().load(graph)(*arrays), strict=True):
        np.testing.assert_array_equal(got, x.astype(np.float64) != 0, err_msg=dtype.name)


@pytest.mark.numbers
def test_bytes_of_bools_other_than_0_and_1_do_not_leak() -> None:
    fed = np.array([2, 0, 255, 1], np.uint8).view(bool)
    graph = Graph("bools", {"x": TensorType(D.bool, ["n"])})
    x = graph["x"]
    graph.output(x.cast(D.int32), ops.sum(x), ~x, x == np.array(True), ops.argmax(x), x @ x, ops.reshape(x, (-1, 1)))
    cast, total, flipped, equal, first, product, moved = gc.InferenceSession().load(graph)(fed)
    assert cast.tolist() == [1, 0, 1, 1]
    assert (int(total), int(first), product.view(np.uint8).tolist()) == (3, 0, 1)
    assert flipped.view(np.uint8).tolist() == [0, 1, 0, 0]
    assert equal.view(np.uint8).tolist() == moved[:, 0].view(np.uint8).tolist() == [1, 0, 1, 1]


def test_cast_saturates_where_a_cast_before_it_truncates_below_the_range_of_its_operand() -> None:
    graph = Graph("truncated", {"x": TensorType(D.uint8, ["n"])})
    halves = graph["x"].cast(D.float32) * np.float32(2.0**-10) + np.float32(0.5)  # 0.5 to 0.75
    whole = halves.cast(D.int32).cast(D.float32)
    graph.output(((whole - np.float32(0.5)) * np.float32(500)).cast(D.uint8))
    (result,) = gc.InferenceSession().load(graph)(np.array([0, 7, 255], np.uint8))
    assert result.tolist() == [0, 0, 0]


def test_cast_saturates_where_the_weights_of_a_resize_add_up_to_more_than_1() -> None:
    graph = Graph("resized", {"x": TensorType(D.bool, [1, 1, 2, 2])})
    resized = ops.resize(graph["x"].cast(D.float32), (1, 1, 19, 19))
    rest = (np.float32(1) - resized) * np.float32(1e9)
    graph.output(rest, rest.cast(D.uint32))
    rest, result = gc.InferenceSession().load(graph)(np.ones((1, 1, 2, 2), bool))
    assert np.array_equal(result, np.clip(rest, 0, None).astype(np.uint32))
