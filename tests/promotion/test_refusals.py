"""Refusals of every system, in graphs and of eager tensors: orders and real parts of complex numbers, too wide ints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, PromotionSystem, TensorType, ops
from graphcore.errors import DTypeError, FeedError, GraphcoreError, PromotionError
from graphcore.promotion import NAMES, system

D = DType
SYSTEMS: list[PromotionSystem] = [
    *map(system, NAMES),
    system("max", complex=True),
    system("array_api", profile="seed"),
    system("allo_hls", revision="latest"),
]
BIG = 2**70000
TypesOf = Callable[..., list[Any]]


def symbols(rules: PromotionSystem, *dtypes: str) -> list[Any]:
    return list(Graph("g", {f"x{i}": TensorType(d, [3]) for i, d in enumerate(dtypes)}, promotion=rules).inputs)


def tensors(rules: PromotionSystem, *dtypes: str) -> list[Any]:
    return [gc.tensor(np.ones(3, D.of(dtype).numpy), promotion=rules) for dtype in dtypes]


MADE = [pytest.param(symbols, id="graph"), pytest.param(tensors, id="tensor")]

# Operations that ask which of two numbers is the greater, or for the whole number next to one.
ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "less": lambda z, r: z < z,
    "less_equal": lambda z, r: z <= r,
    "greater": lambda z, r: r > z,
    "greater_equal": lambda z, r: z >= 1,
    "maximum": lambda z, r: ops.maximum(z, r),
    "minimum": lambda z, r: ops.minimum(z, z),
    "max": lambda z, r: ops.max(z),
    "min": lambda z, r: ops.min(z, axis=0),
    "sort": lambda z, r: ops.sort(z),
    "argsort": lambda z, r: ops.argsort(z),
    "argmax": lambda z, r: ops.argmax(z),
    "argmin": lambda z, r: ops.argmin(z),
    "top_k": lambda z, r: ops.top_k(z, 1),
    "clip": lambda z, r: ops.clip(z, 0, 1),
    "relu": lambda z, r: ops.relu(z),
    "floor": lambda z, r: ops.floor(z),
    "ceil": lambda z, r: ops.ceil(z),
    "trunc": lambda z, r: ops.trunc(z),
    "floor_div": lambda z, r: z // z,
    "mod": lambda z, r: z % 2,
    "median": lambda z, r: ops.median(z),
    "quantile": lambda z, r: ops.quantile(z, 0.5),
}
# The words in which a system that has complex numbers refuses an order of them.
WORDS = {
    "max": "complex numbers have no order",
    "array_api": "complex numbers have no order",
    "explicit": "complex numbers have no order",
    "numpy": "(NumPy compares the real parts of complex64 first|has no meaning for complex64 in NumPy)",
    "jax": "(JAX compares the real parts of complex64 first|has no meaning for complex64 in JAX)",
    "torch": "has no meaning for complex64 in PyTorch",
}


def is_clear(error: GraphcoreError, op: str) -> bool:
    """Return True if an error names the op once, at the start, and says what to do."""
    return error.summary.startswith(f"{op}: ") and bool(error.help) and len(error.summary) < 300


@pytest.mark.parametrize("result", MADE)
@pytest.mark.parametrize("rules", SYSTEMS, ids=str)
def test_order_of_complex_numbers_is_refused(rules: PromotionSystem, result: TypesOf) -> None:
    for op, function in ORDERS.items():
        z, real = result(rules, "complex64", "float32")
        with pytest.raises((DTypeError, PromotionError)) as caught:
            function(z, real)
        assert is_clear(caught.value, op), caught.value
        if not rules.has_complex:
            assert "complex64" in caught.value.summary
            continue
        if rules.name == "explicit" and "explicit cast" in caught.value.summary:
            continue  # which it says first of a complex and a real operand
        caught.match(WORDS[rules.name])
        assert type(caught.value) is DTypeError
        assert "ops.abs(z)" in caught.value.help


@pytest.mark.parametrize("result", MADE)
@pytest.mark.parametrize("rules", SYSTEMS, ids=str)
def test_bits_of_complex_numbers_are_refused(rules: PromotionSystem, result: TypesOf) -> None:
    calls: list[tuple[str, Callable[[Any], Any]]] = [
        ("left_shift", lambda z: z << 1), ("bitwise_and", lambda z: z & z), ("bitwise_not", lambda z: ~z),
    ]  # fmt: skip
    for op, call in calls:
        (z,) = result(rules, "complex64")
        with pytest.raises((DTypeError, PromotionError), match="complex64") as caught:
            call(z)
        assert is_clear(caught.value, op), caught.value


# A real output asked of a complex value.


@pytest.mark.parametrize("result", MADE)
@pytest.mark.parametrize("target", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("rules", SYSTEMS, ids=str)
def test_cast_of_complex_numbers_to_real_ones_is_refused(rules: PromotionSystem, target: str, result: TypesOf) -> None:
    (z,) = result(rules, "complex64")
    with pytest.raises(
        DTypeError, match=f"complex64 values cannot be cast to {target}: their imaginary parts"
    ) as caught:
        z.cast(target)
    assert "ops.real(z), ops.imag(z), ops.abs(z)" in caught.value.help


@pytest.mark.parametrize("rules", SYSTEMS, ids=str)
def test_real_dtype_of_complex_values_is_refused(rules: PromotionSystem) -> None:
    graph = Graph("g", promotion=rules)
    lost = "complex128 values cannot be cast to float32: their imaginary parts would be lost"
    results: list[Callable[[], Any]] = [
        lambda: gc.tensor(1j, D.float32, promotion=rules),
        lambda: gc.tensor(np.array([1j]), D.float32, promotion=rules),
        lambda: gc.tensor(gc.tensor(np.array([1j]), promotion=rules), D.float32, promotion=rules),
        lambda: gc.tensor([1j, 2], D.float32, promotion=rules),
        lambda: graph.constant(1j, dtype=D.float32),
        lambda: graph.constant(np.array([1j]), dtype=D.float32),
    ]
    for make in results:
        with pytest.raises(DTypeError, match=lost):
            make()


@pytest.mark.parametrize("rules", SYSTEMS, ids=str)
def test_python_number_of_a_complex_tensor_is_refused(rules: PromotionSystem) -> None:
    z = gc.tensor(np.complex64(1j), promotion=rules)
    for convert in (float, int):
        with pytest.raises(DTypeError, match="complex64 is not a real dtype"):
            convert(z)
    assert complex(z) == z.item() == 1j


@pytest.mark.parametrize("rules", SYSTEMS, ids=str)
def test_complex_array_for_a_real_input_is_refused(rules: PromotionSystem) -> None:
    graph = Graph("g", {"x": TensorType("float32", [3])}, promotion=rules)
    graph.output(graph["x"])
    with pytest.raises(FeedError, match="input 'x' must be float32, got complex64") as caught:
        gc.InferenceSession().load(graph)(np.ones(3, np.complex64))
    assert "array.real" in caught.value.help


# Complex numbers of Python


@pytest.mark.parametrize("result", MADE)
@pytest.mark.parametrize("rules", SYSTEMS, ids=str)
def test_python_complex_number_is_taken_by_systems_that_have_them(rules: PromotionSystem, result: TypesOf) -> None:
    (x,) = result(rules, "float32")
    calls: list[Callable[[], Any]] = [lambda: x + 1j, lambda: 1j * x, lambda: x - 2j, lambda: x == 1j]
    for call in calls:
        if rules.has_complex and rules.name != "explicit":
            assert call().dtype in (D.complex64, D.bool)
            continue
        with pytest.raises(PromotionError) as caught:
            call()
        assert "1j" in str(caught.value) or "2j" in str(caught.value)
        assert caught.value.help


@pytest.mark.parametrize("name", ["numpy", "jax", "torch"])
def test_eager_tensors_compute_with_python_complex_numbers_as_graphs_do(name: str) -> None:
    for dtype in ("bool", "int8", "int64", "float32", "float64", "complex64"):
        (x,), (t,) = symbols(system(name), dtype), tensors(system(name), dtype)
        assert (x * 2j).dtype is (t * 2j).dtype
        assert (x * 2j).ambiguous is (t * 2j).ambiguous
        np.testing.assert_array_equal((t * 2j).numpy(), np.ones(3) * 2j)


def test_complex_number_that_gives_way_to_a_half_names_complex32_in_torch() -> None:
    types = {"h": TensorType("float16", ["n"]), "z": TensorType("complex64", [])}
    h, z = Graph("half", types, promotion="torch").inputs
    b = Graph("brain", {"b": TensorType("bfloat16", ["n"])}, promotion="torch")["b"]
    calls: list[Callable[[], Any]] = [lambda: h + 1j, lambda: h * z]
    for call in calls:
        with pytest.raises(PromotionError, match="complex32") as caught:
            call()
        assert ".cast(DType.float32)" in caught.value.help
    assert (b + 1j).dtype is D.complex64
    assert (h.cast("float32") * z).dtype is D.complex64


# Integers beyond 65,536 bits


def too_long(number: int, dtype: str) -> dict[str, Callable[[TypesOf, PromotionSystem], Any]]:
    return {
        "add": lambda result, rules: result(rules, dtype)[0] + number,
        "mul": lambda result, rules: number * result(rules, dtype)[0],
        "less": lambda result, rules: result(rules, dtype)[0] < number,
        "equal": lambda result, rules: result(rules, dtype)[0] == number,
        "bitwise_and": lambda result, rules: result(rules, dtype)[0] & number,
    }


@pytest.mark.parametrize("result", MADE)
@pytest.mark.parametrize("dtype", ["int32", "uint64", "float32", "complex64"])
@pytest.mark.parametrize("rules", SYSTEMS, ids=str)
def test_int_beyond_the_widest_dtype_is_refused(rules: PromotionSystem, dtype: str, result: TypesOf) -> None:
    for number in (BIG, -BIG):
        for op, call in too_long(number, dtype).items():
            with pytest.raises((DTypeError, PromotionError)) as caught:
                call(result, rules)
            assert is_clear(caught.value, op), caught.value


@pytest.mark.parametrize("rules", SYSTEMS, ids=str)
def test_value_beyond_the_widest_dtype_is_refused(rules: PromotionSystem) -> None:
    graph = Graph("g", promotion=rules)
    results: list[Callable[[], Any]] = [
        lambda: gc.tensor(BIG, promotion=rules),
        lambda: gc.tensor([1, -BIG], promotion=rules),
        lambda: gc.tensor(BIG, D.int(65536), promotion=rules),
        lambda: graph.constant(BIG),
        lambda: graph.constant(BIG, dtype=D.int(65536)),
        lambda: gc.implicit_cast_type("int65537", "int8", rules),
    ]
    for make in results:
        with pytest.raises(DTypeError, match="65536 bits at most"):
            make()


@pytest.mark.parametrize("revision", ["seed", "latest"])
def test_result_beyond_the_widest_dtype_is_refused_where_results_grow(revision: str) -> None:
    rules = system("allo_hls", revision=revision)
    calls: dict[str, Callable[[Any], Any]] = {"add": lambda x: x + x, "sub": lambda x: x - x, "mul": lambda x: x * x}
    for op, call in calls.items():
        (x,) = Graph("g", {"x": TensorType(D.int(65536), [3])}, promotion=rules).inputs
        with pytest.raises(DTypeError, match="integers have 65536 bits at most") as caught:
            call(x)
        assert is_clear(caught.value, op)


def test_widest_values_are_held() -> None:
    wide = gc.tensor([2**65535 - 1, -(2**65535)], D.int(65536))
    assert wide.tolist() == [2**65535 - 1, -(2**65535)]
    assert gc.tensor(2**65536 - 1, D.uint(65536)).item() == 2**65536 - 1
    with pytest.raises(DTypeError, match="cannot be held in int65536"):
        gc.tensor(2**65535, D.int(65536))


@pytest.mark.parametrize("rules", [system("kernel_float"), system("anvil")], ids=str)
def test_wide_integers_are_refused_by_systems_that_end_at_64_bits(rules: PromotionSystem) -> None:
    calls: list[Callable[[Any], Any]] = [lambda x: x + x, lambda x: x << 3, lambda x: x < x, lambda x: x**2]
    for call in calls:
        (x,) = Graph("g", {"x": TensorType(D.int(100), [3])}, promotion=rules).inputs
        with pytest.raises(PromotionError, match=f"{rules.name} has no int100"):
            call(x)
