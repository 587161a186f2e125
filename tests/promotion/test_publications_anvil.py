"""Statements of anvil's vignette beside its tables: why a value that is known promotes otherwise."""

from __future__ import annotations

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, TensorType
from graphcore.promotion import common_dtype

D = DType


def test_product_is_int32_where_the_sum_before_it_is_known() -> None:
    graph = Graph("known", {"x": TensorType("bool", []), "y": TensorType("int16", [])}, promotion="anvil")
    x, y = graph.inputs
    guessed = (x + 1) * y
    expected = (x + graph.constant(1, "int32")) * y
    assert (guessed.dtype, expected.dtype) == (D.int16, D.int32)
    graph.output(guessed, expected)
    for result in gc.InferenceSession().load(graph)(np.array(True), np.array(2, np.int16)):
        assert result.item() == 4


def test_types_follow_from_those_of_inputs_where_nothing_is_a_literal() -> None:
    types = {"i": TensorType("int8", ["n"]), "u": TensorType("uint8", ["n"]), "f": TensorType("float32", ["n"])}
    graph = Graph("inferred", types, promotion="anvil")
    i, u, f = graph.inputs
    results = [i + u, i * f, (i + u) * (u + f), -i, i < u]
    assert [str(s.type) for s in results] == ["int16[n]", "float32[n]", "float32[n]", "int8[n]", "bool[n]"]


def test_integers_of_64_bits_meet_floats_in_the_float_for_speed() -> None:
    for integer in (D.int64, D.uint64):
        assert common_dtype(integer, D.float32) == common_dtype(D.float32, integer) == (D.float32, False)


def test_two_ambiguous_dtypes_meet_as_two_known_ones_do() -> None:
    dtypes = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
    for lhs in dtypes:
        for rhs in dtypes:
            assert common_dtype(lhs, rhs, True, True) == (common_dtype(lhs, rhs).dtype, True)
