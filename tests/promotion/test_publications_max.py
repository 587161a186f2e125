"""Statements of MAX's page that no table holds: its example, index, address and the floats that are placed above."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, implicit_cast_type, ops
from graphcore.promotion.max import LATTICE, max_system

D = DType
WORDS = [D.index, D.address]


def test_example_of_the_page_is_a_float32() -> None:
    graph = Graph("example")
    x, y = graph.scalar(1, "int16"), graph.scalar(1.0, "float32")
    output = x + y
    graph.output(output)
    assert output.dtype is D.float32
    (result,) = gc.InferenceSession().load(graph)()
    assert (result.dtype, result.item()) == (np.float32, 2.0)


@pytest.mark.parametrize("word", WORDS, ids=str)
def test_index_and_address_are_unsigned_words(word: DType) -> None:
    assert (word.is_signed, word.is_integer, word.min, word.max) == (False, True, 0, 2**64 - 1)
    graph = Graph("word", {"x": TensorType(word, ["n"])})
    graph.output(graph["x"] + 1, graph["x"] < 1)
    total, is_less = gc.InferenceSession().load(graph)(np.array([0, 2**64 - 1], np.uint64))
    assert total.tolist() == [1, 0]
    assert is_less.tolist() == [True, False]


@pytest.mark.parametrize("word", WORDS, ids=str)
def test_index_and_address_promote_up_to_uint64_and_nothing_to_them(word: DType) -> None:
    assert LATTICE[word] == (D.uint64,)
    for other in LATTICE:
        met = implicit_cast_type(word, other)
        assert met is (word if other is word else implicit_cast_type(D.uint64, other)), other
    for lhs, rhs in itertools.product(LATTICE, repeat=2):
        assert max_system.meet(lhs, rhs) is not word or lhs is rhs is word


def test_bfloat16_has_three_bits_of_precision_less_and_of_exponent_more() -> None:
    graph = Graph("narrow", {"x": TensorType(D.float32, ["n"])})
    graph.output(*(graph["x"].cast(d).cast("float32") for d in (D.float16, D.bfloat16)))
    x = np.array([1 + 2.0**-10, 2.0**100], np.float32)
    as_half, as_brain = gc.InferenceSession().load(graph)(x)
    assert as_half.tolist() == [1 + 2.0**-10, np.inf]
    assert as_brain.tolist() == [1, 2.0**100]


def test_tensor_float32_is_less_precise_than_float32_and_as_wide_in_range() -> None:
    graph = Graph("narrow", {"x": TensorType(D.float32, ["n"])})
    graph.output(graph["x"].cast(D.tensor_float32).cast("float32"))
    x = np.array([1 + 2.0**-10, 1 + 2.0**-11, 2.0**100], np.float32)
    (result,) = gc.InferenceSession().load(graph)(x)
    assert result.tolist() == [1 + 2.0**-10, 1, 2.0**100]


def test_floats_of_less_precision_are_above_and_never_met_by_accident() -> None:
    for explicit, below, above in ((D.bfloat16, D.float16, D.float32), (D.tensor_float32, D.float32, D.float64)):
        assert implicit_cast_type(below, explicit) is implicit_cast_type(explicit, below) is explicit
        assert implicit_cast_type(explicit, above) is above
        for lhs, rhs in itertools.product(LATTICE, repeat=2):
            if explicit not in (lhs, rhs):
                assert implicit_cast_type(lhs, rhs) is not explicit, (lhs, rhs)


def test_power_of_bfloat16_and_float16_loses_precision_that_a_cast_keeps() -> None:
    graph = Graph("power", {"b": TensorType(D.bfloat16, ["n"]), "h": TensorType(D.float16, ["n"])})
    b, h = graph.inputs
    lossy, remaining = b**h, b.cast(D.float16) ** h
    assert (lossy.dtype, remaining.dtype) == (D.bfloat16, D.float16)
    graph.output(ops.cast(lossy, "float32"), ops.cast(remaining, "float32"))
    exponent = np.float16(1.001)
    got = gc.InferenceSession().load(graph)(np.array([3], ml_dtypes.bfloat16), np.array([exponent]))
    true = 3.0 ** float(exponent)
    rounded = 3.0 ** float(exponent.astype(ml_dtypes.bfloat16))
    assert rounded == 3.0  # what is left of the exponent
    assert got[0].item() == rounded
    assert abs(got[1].item() - true) < 2.0**-9
