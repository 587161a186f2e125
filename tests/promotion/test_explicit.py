"""The system `explicit` beside TensorFlow, whose tensors of two dtypes do not combine.

The tables are what TensorFlow 2.21 gives; where it is installed, they are asked again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, implicit_cast_type, ops
from graphcore.errors import GraphcoreError, PromotionError
from graphcore.promotion import explain

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
).split()
REFUSED = "-"
INTEGERS, FLOATS, COMPLEX = DTYPES[1:9], DTYPES[9:13], DTYPES[13:]
REAL = [*INTEGERS, *FLOATS]

Function = Callable[[Any, Any], Any]
CALLS: dict[str, tuple[Function, Callable[[Any], Function]]] = {
    "add": (ops.add, lambda tf: tf.add),
    "sub": (ops.sub, lambda tf: tf.subtract),
    "div": (ops.div, lambda tf: tf.truediv),
    "floor_div": (ops.floor_div, lambda tf: tf.math.floordiv),
    "mod": (ops.mod, lambda tf: tf.math.floormod),
    "maximum": (ops.maximum, lambda tf: tf.maximum),
    "less": (ops.less, lambda tf: tf.less),
    "equal": (ops.equal, lambda tf: tf.equal),
    "bitwise_and": (ops.bitwise_and, lambda tf: lambda x, y: x & y),
    "logical_and": (ops.logical_and, lambda tf: tf.logical_and),
    "left_shift": (ops.left_shift, lambda tf: tf.bitwise.left_shift),
    "clip": (lambda x, y: ops.clip(x, y, y), lambda tf: lambda x, y: tf.clip_by_value(x, y, y)),
    "where": (
        lambda x, y: ops.where(x.graph.constant(True), x, y),
        lambda tf: lambda x, y: tf.where(tf.constant(True), x, y),
    ),
    "concat": (lambda x, y: ops.concat([x, y]), lambda tf: lambda x, y: tf.concat([x, y], 0)),
}
"""The function here and in TensorFlow, by op."""


def same(*dtypes: str) -> dict[str, str]:
    return {dtype: dtype for dtype in dtypes}


# The dtype that each op gives of two tensors of one dtype; others are refused. Two dtypes are always refused.
OF_ONE_DTYPE: dict[str, dict[str, str]] = {
    "add": same(*REAL, *COMPLEX),
    "sub": same(*REAL, *COMPLEX),
    "div": {
        **dict.fromkeys(("int8", "int16", "uint8", "uint16"), "float32"),
        **dict.fromkeys(("int32", "int64", "uint32", "uint64"), "float64"),
        **same(*FLOATS, *COMPLEX),
    },
    "floor_div": same(*REAL),
    "mod": same(*REAL),
    "maximum": same(*REAL),
    "less": dict.fromkeys(REAL, "bool"),
    "equal": dict.fromkeys(DTYPES, "bool"),
    "bitwise_and": same("bool", *INTEGERS),
    "logical_and": same("bool"),
    "left_shift": same(*INTEGERS),
    "clip": same(*REAL),
    "where": same(*DTYPES),
    "concat": same(*DTYPES),
}
# The dtypes of the tensors that a Python number combines with, whose dtype it takes. TensorFlow's converter also lets
# a bool into some dtypes of numbers, and wraps an int that the dtype does not hold; both are refused here.
OF_SCALARS: dict[bool | float | complex, list[str]] = {2: [*REAL, *COMPLEX], 2.5: [*FLOATS, *COMPLEX], 2j: COMPLEX}


def graph_of(*dtypes: str) -> Graph:
    return Graph("casts", {f"{i}": TensorType(d, ["n"]) for i, d in enumerate(dtypes)}, promotion="explicit")


def printed(build: Callable[[], Symbol]) -> str:
    try:
        return build().dtype.name
    except GraphcoreError:
        return REFUSED


@pytest.mark.parametrize("op", CALLS)
def test_tensors_of_one_dtype_combine_as_in_tensorflow(op: str) -> None:
    graph = graph_of(*DTYPES)
    for dtype, x in zip(DTYPES, graph.inputs, strict=True):
        assert printed(lambda x=x: CALLS[op][0](x, x)) == OF_ONE_DTYPE[op].get(dtype, REFUSED), dtype  # type: ignore[misc]


@pytest.mark.parametrize("op", CALLS)
def test_tensors_of_two_dtypes_are_refused_with_the_cast_to_write(op: str) -> None:
    graph = graph_of(*DTYPES)
    for x, y in itertools.permutations(graph.inputs, 2):
        with pytest.raises(PromotionError, match="needs an explicit cast") as error:
            CALLS[op][0](x, y)
        assert ".cast(DType." in str(error.value.help), (x.dtype, y.dtype)


@pytest.mark.parametrize("number", OF_SCALARS)
def test_number_takes_the_dtype_of_a_tensor_of_its_kind(number: complex) -> None:
    for dtype, x in zip(DTYPES, graph_of(*DTYPES).inputs, strict=True):
        want = dtype if dtype in OF_SCALARS[number] else REFUSED
        assert printed(lambda x=x: x + number) == want, dtype  # type: ignore[misc]
        assert printed(lambda x=x: number - x) == want, dtype  # type: ignore[misc]


def test_bool_and_ints_that_do_not_fit_are_refused() -> None:
    i, f = graph_of("int8", "float32").inputs
    builds: list[Callable[[], Symbol]] = [lambda: i + 300, lambda: i + True, lambda: f * True]
    for build in builds:
        with pytest.raises(PromotionError, match="needs an explicit cast"):
            build()


def test_cast_that_the_error_shows_is_what_it_takes() -> None:
    graph = graph_of("int32", "float32")
    i, f = graph.inputs
    with pytest.raises(PromotionError, match=r"add: int32 with float32 needs an explicit cast") as error:
        i + f
    assert error.value.help == "cast the integer: .cast(DType.float32)"
    graph.output(i.cast(DType.float32) + f)
    assert gc.InferenceSession().load(graph)(np.array([1], np.int32), np.array([0.5], np.float32))[0].tolist() == [1.5]
    assert {n.op_type for n in graph.nodes} == {"Cast", "Add"}


def test_functions_of_floats_refuse_integers_and_numbers_have_tensorflows_defaults() -> None:
    (i,) = graph_of("int8").inputs
    for function in (ops.exp, ops.sqrt, ops.mean, ops.softmax):
        with pytest.raises(PromotionError, match="int8 needs an explicit cast"):
            function(i)
    graph = graph_of()
    values = (2, 2**40, 2.5, True, 2j)
    assert [graph.constant(v).dtype.name for v in values] == ["int32", "int64", "float32", "bool", "complex128"]


def test_implicit_cast_type_and_explain_refuse_two_dtypes() -> None:
    assert implicit_cast_type("int8", "int8", "explicit") is DType.int8
    with pytest.raises(PromotionError, match="int8 with int16 needs an explicit cast"):
        implicit_cast_type("int8", "int16", "explicit")
    assert explain("int8", "int16", "explicit").kind == "no rule"


@pytest.mark.parametrize("op", CALLS)
def test_tables_are_what_the_installed_tensorflow_gives(op: str) -> None:
    tf: Any = pytest.importorskip("tensorflow")

    def dtype_of(*operands: Any) -> str:
        try:
            return str(CALLS[op][1](tf)(*operands).dtype.name)
        except (TypeError, ValueError, tf.errors.OpError):
            return REFUSED

    x = {dtype: tf.cast(tf.ones(2), dtype) for dtype in DTYPES}
    assert {d: dtype_of(x[d], x[d]) for d in DTYPES} == {d: OF_ONE_DTYPE[op].get(d, REFUSED) for d in DTYPES}
    assert {dtype_of(x[a], x[b]) for a, b in itertools.permutations(DTYPES, 2)} == {REFUSED}
    if op == "add":
        for number, dtypes in OF_SCALARS.items():
            assert [d for d in DTYPES if dtype_of(x[d], number) == d] == dtypes
