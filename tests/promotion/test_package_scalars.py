"""Python numbers, ranks and comparisons under `numpy`, `jax` and `torch`: what is refused, and what gives way."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, PromotionError
from graphcore.promotion import Key, Operand, system

D = DType
PACKAGES = ("numpy", "jax", "torch")


def graph_of(package: str, **dtypes: str) -> Graph:
    return Graph("scalars", {n: TensorType(DType.of(d), ["n"]) for n, d in dtypes.items()}, promotion=package)


def run(graph: Graph, result: Symbol, *arrays: Any) -> Any:
    graph.output(result)
    return gc.InferenceSession().load(graph)(*arrays)[0]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("dtype", "value"), [("int8", 300), ("uint8", -1), ("int64", 2**63), ("float16", 10**6)])
def test_number_that_the_dtype_cannot_hold_is_refused(package: str, dtype: str, value: int) -> None:
    x = graph_of(package, x=dtype)["x"]
    builds: list[Callable[[], Symbol]] = [lambda: x + value, lambda: value * x, lambda: ops.maximum(x, value)]
    for build in builds:
        with pytest.raises(DTypeError, match=f"{value} cannot be held in {dtype}"):
            build()


@pytest.mark.parametrize("package", PACKAGES)
def test_int_that_a_float_rounds_is_taken(package: str) -> None:
    graph = graph_of(package, x="float16")
    assert run(graph, graph["x"] + 2049, np.zeros(1, np.float16)).tolist() == [2048.0]


@pytest.mark.parametrize("package", PACKAGES)
def test_integer_to_the_power_of_a_negative_number_is_refused(package: str) -> None:
    graph = graph_of(package, x="int32", f="float32")
    with pytest.raises(DTypeError, match="negative"):
        graph["x"] ** -1
    assert run(graph, graph["f"] ** -1, np.ones(1, np.int32), np.full(1, 4, np.float32)).tolist() == [0.25]


INTEGERS = ["int8", "uint8", "int64", "uint64"]


@pytest.mark.parametrize("op", [ops.less, ops.equal, ops.greater_equal])
def test_numpy_compares_integers_as_numbers(op: Any) -> None:
    compared = {ops.less: np.less, ops.equal: np.equal, ops.greater_equal: np.greater_equal}[op]
    for left, right in itertools.product(INTEGERS, repeat=2):
        graph = graph_of("numpy", x=left, y=right)
        x, y = (np.array([i.min, i.max, i.max, 0], d) for d, i in ((d, np.iinfo(d)) for d in (left, right)))
        y = y[[0, 1, 3, 2]]
        assert run(graph, op(graph["x"], graph["y"]), x, y).tolist() == compared(x, y).tolist(), (left, right)
    for dtype, value in itertools.product(INTEGERS, (-(2**70), -129, -1, 0, 255, 256, 2**63, 2**64, 2**70)):
        graph = graph_of("numpy", x=dtype)
        x = np.array([np.iinfo(dtype).min, 0, 1, np.iinfo(dtype).max], dtype)
        assert run(graph, op(graph["x"], value), x).tolist() == compared(x, value).tolist(), (dtype, value)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64, -1])
def test_numpy_compares_an_int_in_integers_that_hold_it_and_the_dtype(dtype: str, value: int) -> None:
    own = DType.of(dtype)
    met = system("numpy").resolve(Key("less", "compare"), [Operand(own), Operand(None, value)])
    for operand in met.operands:
        assert operand is not None
        assert operand.min <= min(own.min, value)
        assert operand.max >= max(own.max, value)


def test_operand_of_unknown_rank_counts_as_with_axes_in_torch() -> None:
    met = system("torch").resolve(Key("add", "arithmetic"), [Operand(D.float16), Operand(D.float64, rank=0)])
    assert met.result is D.float16


def test_zero_dimensional_tensors_give_way_in_torch_alone() -> None:
    for package, expected in (("torch", D.float16), ("numpy", D.float64), ("jax", D.float64)):
        types = {"x": TensorType("float16", ["n"]), "y": TensorType("float64", [])}
        graph = Graph("ranks", types, promotion=package)
        with_warning = pytest.warns(gc.errors.LossyCastWarning) if package == "torch" else contextlib.nullcontext()
        with with_warning:
            result = graph["x"] * graph["y"]
        assert result.dtype is expected
        x, y = np.array([1, 3], np.float16), np.array(1 / 3)
        want = x * y.astype(expected.numpy)
        assert run(graph, result, x, y).tolist() == want.tolist()


@pytest.mark.parametrize("package", PACKAGES)
def test_clip_promotes_its_bounds(package: str) -> None:
    graph = graph_of(package, x="int8", low="int16", high="float32")
    y = ops.clip(graph["x"], graph["low"], graph["high"])
    assert y.dtype is D.float32
    x, low, high = np.array([-100, 5, 100], np.int8), np.array([-50] * 3, np.int16), np.full(3, 20.5, np.float32)
    assert run(graph, y, x, low, high).tolist() == [-50, 5, 20.5]


# What PyTorch 2.15 gives for [0.1, 1, 2, 0] == number.
COMPARED = {
    1j: [False] * 4, 1 + 0j: [False, True, False, False], 1e5j: [False] * 4, complex("nan"): [False] * 4,
    2 + 1e-3j: [False] * 4, 0j: [False, False, False, True],
}  # fmt: skip


@pytest.mark.parametrize("number", COMPARED, ids=str)
def test_float16_is_compared_with_a_complex_number_in_torch(number: complex) -> None:
    graph = graph_of("torch", x="float16")
    x = np.array([0.1, 1, 2, 0], np.float16)
    assert run(graph, ops.equal(graph["x"], number), x).tolist() == COMPARED[number]
    graph = graph_of("torch", x="float16")
    assert run(graph, ops.not_equal(number, graph["x"]), x).tolist() == [not same for same in COMPARED[number]]


@pytest.mark.parametrize("number", [0.1 + 0j, 70000 + 0j, 1 + 1e-20j])
def test_complex_number_that_complex32_rounds_is_refused_beside_float16_in_torch(number: complex) -> None:
    with pytest.raises(PromotionError, match="no complex dtype with parts"):
        graph_of("torch", x="float16")["x"] == number  # noqa: B015


def test_bool_to_the_power_of_a_bool_is_a_bool_in_torch() -> None:
    for power, want in ((True, [True, False]), (False, [True, True])):
        graph = graph_of("torch", x="bool")
        assert run(graph, graph["x"] ** power, np.array([True, False])).tolist() == want
    x = graph_of("torch", x="bool")["x"]
    builds: list[Callable[[], Symbol]] = [lambda: x**x, lambda: True**x]
    for build in builds:
        with pytest.raises(DTypeError, match="pow has no meaning for bool in PyTorch"):
            build()


def test_matmul_of_two_dtypes_is_refused_in_torch() -> None:
    types = {"x": TensorType("int8", [2, 2]), "y": TensorType("float32", [2, 2])}
    x, y = Graph("product", types, promotion="torch").inputs
    builds: list[Callable[[], Symbol]] = [
        lambda: x @ y, lambda: ops.linear(x, y), lambda: ops.einsum("ij,jk->ik", x, y),
    ]  # fmt: skip
    for build in builds:
        with pytest.raises(PromotionError, match="to have the same dtype"):
            build()
    assert (x.cast("float32") @ y).dtype is D.float32


def test_weak_types_are_made_by_numbers_alone_in_jax() -> None:
    graph = graph_of("jax", c="bool", i="int8", u="uint64", h="float16")
    c, i, u, h = graph.inputs
    weak = ops.where(c, 1, 2)
    assert [str(s.type) for s in (weak, weak + i, weak * 2.5, ops.sin(weak), i + u, (i + u) * h, ops.max(weak))] == [
        "int64?[n]", "int8[n]", "float64?[n]", "float64?[n]", "float64?[n]", "float16[n]", "int64[]",
    ]  # fmt: skip
    assert str((c + 1).type) == "int64?[n]"
    assert str((c + True).type) == "bool[n]"


@pytest.mark.parametrize("package", [*PACKAGES, "anvil", "kernel_float"])
def test_padding_is_of_what_it_pads(package: str) -> None:
    graph = graph_of(package, x="bool", i="int8")
    assert ops.pad(graph["i"], [(1, 0)], value=7).dtype is D.int8
    with pytest.raises(DTypeError):
        ops.pad(graph["i"], [(1, 0)], value=0.5)
    y = ops.pad(graph["x"], [(1, 1)], value=0)
    assert run(graph, y, np.array([True]), np.zeros(1, np.int8)).tolist() == [False, True, False]


@pytest.mark.parametrize(("package", "expected"), [("numpy", "float64"), ("jax", "bfloat16"), ("torch", "float32")])
def test_traced_numbers_are_weak_in_jax(package: str, expected: str) -> None:
    seen: list[str] = []

    def scaled(x: Symbol, factor: Any) -> Symbol:
        result: Symbol = x.cast("bfloat16") * factor if package == "jax" else x * factor
        seen.append(str(result.type))
        return result

    gc.jit(scaled, promotion=package)(np.array([1, 2], np.int8), 2.5)
    assert [text.partition("[")[0] for text in seen] == [expected]


# The options of JAX, whose matrices test_packages.py holds.


def test_jax_without_x64_has_the_dtypes_of_32_bits() -> None:
    rules = system("jax", x64=False)
    types = {n: TensorType(n, ["n"]) for n in ("int64", "uint64", "float64", "complex128", "float32")}
    graph = Graph("narrow", types, promotion=rules)
    assert [x.dtype for x in graph.inputs] == [D.int32, D.uint32, D.float32, D.complex64, D.float32]
    x, f = graph["int64"], graph["float32"]
    with graph:
        requested = [x.cast("float64"), ops.zeros([2], dtype="int64"), graph.constant(1, "uint64")]
    defaults = [graph.constant(2), graph.constant(2.5), graph.constant(np.float64(1)), graph.weight("w", np.arange(3))]
    assert [s.dtype for s in (*requested, *defaults)] == [
        D.float32, D.int32, D.uint32, D.int32, D.float32, D.float32, D.int32,
    ]  # fmt: skip
    assert str((x + np.float64(1)).type) == "float32[n]"
    assert [str(s.type) for s in (x / 2, ops.argmax(f), ops.sum(x), ops.where(f > 0, 1, 2), x.cast("int8") * 2.5)] == [
        "float32[n]", "int32[]", "int32[]", "int32?[n]", "float32?[n]",
    ]  # fmt: skip
    for number in (2**31, -(2**31) - 1, 2**40):
        with pytest.raises(DTypeError, match="cannot be held in int32"):
            x + number


def test_jit_of_jax_without_x64_takes_arrays_of_64_bits() -> None:
    double = gc.jit(lambda x: x * 2, promotion=system("jax", x64=False))
    for array, dtype in ((np.arange(3), "int32"), (np.array([0.5, 1e-50]), "float32"), (np.array([1j]), "complex64")):
        result = double(array)
        assert result.dtype == dtype
        assert result.tolist() == (array.astype(dtype) * 2).tolist()


def test_strict_jax_lets_python_numbers_alone_give_way() -> None:
    graph = Graph("strict", promotion=system("jax", dtype_promotion="strict"), inputs={
        n: TensorType(n, ["n"]) for n in ("bool", "int8", "int32", "float32")
    })  # fmt: skip
    i, f = graph["int32"], graph["float32"]
    assert [str(s.type) for s in (i + 1, f + 1, f * 2.5, graph["bool"] ** 2, i.cast("float32") + f)] == [
        "int32[n]", "float32[n]", "float32[n]", "int32[n]", "float32[n]",
    ]  # fmt: skip
    builds: list[Callable[[], Symbol]] = [
        lambda: i + f, lambda: i + graph["int8"], lambda: i + 2.5, lambda: i + True, lambda: graph["bool"] + 1,
        lambda: ops.where(graph["bool"], i, f),
    ]  # fmt: skip
    for build in builds:
        with pytest.raises(PromotionError, match="no available implicit dtype promotion path in JAX") as error:
            build()
        assert ".cast(DType." in str(error.value.help)
