"""Statements of kernel_float's guide beside its table: labels, many operands, and where C++ differs."""

from __future__ import annotations

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops

D = DType
LABELS = {
    "b": D.bool, "i8": D.int8, "i16": D.int16, "i32": D.int32, "i64": D.int64, "u8": D.uint8, "u16": D.uint16,
    "u32": D.uint32, "u64": D.uint64, "f16": D.float16, "f32": D.float32, "f64": D.float64, "bf16": D.bfloat16,
}  # fmt: skip


@pytest.mark.parametrize("label", LABELS)
def test_label_is_read_as_the_guide_has_it(label: str) -> None:
    dtype = DType.of(label)
    assert dtype is LABELS[label]
    width = label.lstrip("biuf")
    assert not width or dtype.bits == int(width)
    assert dtype.is_float is ("f" in label)
    assert dtype.is_signed is (label[0] == "i")


@pytest.mark.parametrize("dtype", [D.bool, D.int8, D.uint8, D.int16, D.uint16], ids=str)
def test_narrow_integers_are_not_promoted_to_int_as_in_cpp(dtype: DType) -> None:
    graph = Graph("narrow", {"x": TensorType(dtype, ["n"])}, promotion="kernel_float")
    assert (graph["x"] * graph["x"]).dtype is dtype
    assert ops.add(graph["x"], graph["x"]).dtype is dtype


def test_vectors_of_int_and_float_are_added_as_floats() -> None:
    types = {"i": TensorType("int32", ["n"]), "f": TensorType("float32", ["n"])}
    graph = Graph("vectors", types, promotion="kernel_float")
    graph.output(graph["i"] + graph["f"])
    (result,) = gc.InferenceSession().load(graph)(np.array([1, 2**24 + 1], np.int32), np.array([0.5, 0], np.float32))
    assert (result.dtype, result.tolist()) == (np.float32, [1.5, 2.0**24])


def test_more_than_two_arguments_meet_in_one_type() -> None:
    types = {"b": TensorType("bool", [3]), "i": TensorType("int8", [1]), "f": TensorType("float16", [3])}
    graph = Graph("three", types, promotion="kernel_float")
    graph.output(ops.fma(*graph.inputs))
    (result,) = gc.InferenceSession().load(graph)(
        np.array([True, False, True]), np.array([3], np.int8), np.array([0.5, 1, 2], np.float16)
    )
    assert (result.dtype, result.tolist()) == (np.float16, [3.5, 1, 5])
