"""Complex numbers in the promotion systems: the array API's table, the extension of max, and who refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, PromotionError
from graphcore.promotion import NAMES, explain, system

D = DType
MAX: Any = system("max", complex=True)

# The standard's table of floating-point and complex dtypes, edition 2025.12.
STANDARD = """
       f32  f64  c64  c128
f32  : f32  f64  c64  c128
f64  : f64  f64  c128 c128
c64  : c64  c128 c64  c128
c128 : c128 c128 c128 c128
"""
EXTENDED = "bool int8 uint8 int64 uint64 index float16 bfloat16 float32 tensor_float32".split()


def graph_of(*dtypes: DType, promotion: Any) -> tuple[Symbol, ...]:
    return Graph("g", {f"x{i}": TensorType(dtype, [2]) for i, dtype in enumerate(dtypes)}, promotion=promotion).inputs


def test_table_is_the_standards() -> None:
    head, *rows = STANDARD.strip("\n").split("\n")
    for line in rows:
        row, _, cells = line.partition(":")
        for column, cell in zip(head.split(), cells.split(), strict=True):
            lhs, rhs = DType.of(row.strip()), DType.of(column)
            assert explain(lhs, rhs, "array_api").dtype is DType.of(cell)
            x, y = graph_of(lhs, rhs, promotion="array_api")
            assert (x * y).dtype is DType.of(cell)


@pytest.mark.parametrize("dtype", EXTENDED)
def test_max_joins_complex_numbers_to_its_top_when_asked(dtype: str) -> None:
    assert explain(dtype, "complex64", MAX).dtype is D.complex64
    assert explain("complex128", dtype, MAX).dtype is D.complex128
    assert explain("float64", "complex64", MAX).dtype is D.complex128
    x, y = graph_of(DType.of(dtype), D.complex64, promotion=MAX)
    assert (x + y).dtype is D.complex64


def test_extension_leaves_the_lattice_as_it_is() -> None:
    plain = system("max")
    for lhs in plain.dtypes:
        for rhs in plain.dtypes:
            assert MAX.meet(lhs, rhs) is plain.meet(lhs, rhs)
    assert MAX is system("max", complex=True)
    assert str(MAX) == "max(complex=True)"
    assert system("max", complex=False) is plain


@pytest.mark.parametrize("name", [name for name in NAMES if not system(name).has_complex])
def test_complex_numbers_are_refused_when_a_system_has_none(name: str) -> None:
    x, real = graph_of(D.complex64, D.float32, promotion=name)
    calls: list[Callable[[], Any]] = [lambda: x + x, lambda: x * real, lambda: ops.exp(x), lambda: real + 1j]
    for call in calls:
        with pytest.raises(PromotionError, match=f"{name} has no complex") as caught:
            call()
        assert "complex64" in str(caught.value) or "1j" in str(caught.value)
        assert caught.value.help
    assert ops.reshape(x, [1, 2]).dtype is D.complex64


def test_refusal_of_max_names_the_ways() -> None:
    (x,) = graph_of(D.complex64, promotion="max")
    with pytest.raises(PromotionError) as caught:
        x + x
    assert 'promotion="array_api"' in caught.value.help
    assert 'promotion.system("max", complex=True)' in caught.value.help


@pytest.mark.parametrize("promotion", ["array_api", MAX], ids=str)
def test_python_numbers_take_the_dtype_of_complex_ones(promotion: Any) -> None:
    z, wide, real, double = graph_of(D.complex64, D.complex128, D.float32, D.float64, promotion=promotion)
    for number in (1, 0.5, 2j, 1 - 1j):
        assert (z * number).dtype is D.complex64
        assert (number + wide).dtype is D.complex128
    assert (real + 1j).dtype is D.complex64
    assert (1j * double).dtype is D.complex128
    assert ops.exp(z).dtype is (z / 2).dtype is ops.mean(z).dtype is D.complex64
    assert abs(wide).dtype is D.float64
    assert abs(z).dtype is z.real.dtype is z.imag.dtype is ops.angle(z).dtype is D.float32
    assert (z == z).dtype is D.bool


def test_integers_do_not_become_complex_by_a_literal() -> None:
    (x,) = graph_of(D.int32, promotion=MAX)
    with pytest.raises(DTypeError, match="1j cannot be held in int32"):
        x + 1j
    (x,) = graph_of(D.int32, promotion="array_api")
    with pytest.raises(PromotionError, match="the complex 1j with int32"):
        x + 1j
    (x,) = graph_of(D.bool, promotion="array_api")
    with pytest.raises(PromotionError, match="the complex 1j with bool"):
        x & 1j


def test_literals_of_equal_value_stay_apart() -> None:
    (z,) = graph_of(D.complex128, promotion="array_api")
    first, second = z + complex(1, 0.0), z + complex(1, -0.0)
    assert first.producer.inputs[1] is not second.producer.inputs[1]  # type: ignore[union-attr]


def test_seed_of_the_standard_has_no_complex_numbers() -> None:
    seed: Any = system("array_api", profile="seed")
    assert explain("complex64", "float32", seed).kind == "undefined"
    (x,) = graph_of(D.float32, promotion=seed)
    with pytest.raises(PromotionError, match="the complex 1j with float32"):
        x + 1j
