"""Scalars beside Arrays: those of NumPy, complex ones, and the functions that the standard has for floats alone."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from graphcore import DType
from graphcore import array_api as xp
from graphcore.array_api import Array
from graphcore.array_api._data_types import KINDS
from graphcore.errors import DTypeError, PromotionError

pytestmark = pytest.mark.releases

OPERATORS: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.eq, operator.ne, operator.lt,
    operator.le, operator.gt, operator.ge,
]  # fmt: skip
SCALARS = [np.int8(2), np.int32(2), np.int64(2), np.uint8(2), np.uint64(2), np.float32(2), np.float64(2)]


@pytest.mark.parametrize("function", OPERATORS)
@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: type(s).__name__)
def test_numpy_scalar_is_an_array_without_axes(function: Callable[[Any, Any], Any], scalar: Any) -> None:
    x = xp.asarray(np.array([1, 2, 5], scalar.dtype))
    for got, wanted in (
        (function(x, scalar), function(x, xp.asarray(np.asarray(scalar)))),
        (function(scalar, x), function(xp.asarray(np.asarray(scalar)), x)),
    ):
        assert type(got) is Array
        assert got.dtype is wanted.dtype
        assert np.array_equal(np.asarray(got), np.asarray(wanted))


def test_numpy_scalar_promotes_by_its_dtype() -> None:
    x = xp.asarray([1, 2], dtype=xp.int8)
    assert (x * np.int64(2)).dtype is DType.int64
    assert (np.int64(2) * x).dtype is DType.int64
    assert xp.multiply(x, np.int16(2)).dtype is DType.int16
    assert (x * 2).dtype is DType.int8
    with pytest.raises(PromotionError, match="int8 with float32"):
        x * np.float32(2)
    x += np.int8(3)
    assert np.asarray(x).tolist() == [4, 5]


COMPLEX: list[Any] = [1j, np.complex64(1j), np.complex128(1j), np.array([1j, 2]), np.array(1, np.complex64)]


COMPUTED = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.eq, operator.ne]
ORDERED = [operator.lt, operator.le, operator.gt, operator.ge, operator.floordiv, operator.mod]


@pytest.mark.parametrize("other", COMPLEX, ids=repr)
@pytest.mark.parametrize("function", COMPUTED)
def test_complex_operand_makes_complex_numbers_of_floats(function: Callable[[Any, Any], Any], other: Any) -> None:
    values = np.array([1.0, 2.0], np.float32)
    for mine, theirs in (
        ((xp.asarray(values), other), (values, other)),
        ((other, xp.asarray(values)), (other, values)),
    ):
        wanted = np.asarray(function(*theirs))
        array = np.asarray(function(*mine))
        if wanted.dtype != bool:
            # NumPy takes its own scalars without axes for Python's; here they are arrays of their dtype.
            assert array.dtype == np.result_type(np.complex64, other if isinstance(other, np.generic) else wanted.dtype)
        np.testing.assert_allclose(array, wanted, rtol=1e-6)


@pytest.mark.parametrize("other", COMPLEX, ids=repr)
@pytest.mark.parametrize("function", ORDERED)
def test_order_and_remainders_of_complex_operands_are_refused(function: Callable[[Any, Any], Any], other: Any) -> None:
    x = xp.asarray([1.0, 2.0])
    for pair in ((x, other), (other, x)):
        with pytest.raises(DTypeError):
            function(*pair)


@pytest.mark.parametrize("other", COMPLEX, ids=repr)
@pytest.mark.parametrize("function", [operator.iadd, operator.imul])
def test_complex_operand_in_place_of_floats_is_refused(function: Callable[[Any, Any], Any], other: Any) -> None:
    with pytest.raises(DTypeError, match="an in-place operation cannot change the dtype float32 to complex"):
        function(xp.asarray([1.0, 2.0]), other)


def test_complex_scalar_goes_with_floats_and_complex_numbers_alone() -> None:
    x, imaginary = xp.asarray([1.0, 2.0]), cast(Any, 1j)
    assert xp.result_type(x, 1j) is xp.add(x, imaginary).dtype is xp.where(x > 1, x, imaginary).dtype is xp.complex64
    assert (xp.ones(2, dtype=xp.float64) * imaginary).dtype is xp.complex128
    assert (xp.ones(2, dtype=xp.float16) * imaginary).dtype is xp.complex64
    assert xp.result_type(xp.float16, xp.complex128) is xp.complex128
    for dtype in (xp.int8, xp.bool):
        with pytest.raises(PromotionError, match="undefined by the array API standard"):
            xp.ones(2, dtype=dtype) + imaginary


def test_complex_numbers_are_spaced_evenly() -> None:
    for start, stop, endpoint in ((0, 1j, True), (1 + 1j, 3.0, False)):
        array = np.asarray(xp.linspace(start, stop, 5, endpoint=endpoint))
        assert array.dtype == np.complex64
        np.testing.assert_allclose(array, np.linspace(start, stop, 5, endpoint=endpoint), rtol=1e-6, atol=1e-7)
    assert xp.linspace(1, 2, 3, dtype=xp.complex128).dtype is xp.complex128
    with pytest.raises(DTypeError, match="cannot be float32"):
        xp.linspace(0, 1j, 3, dtype=xp.float32)


def test_complex_numbers_are_rounded_in_their_parts() -> None:
    z = xp.asarray([1.5 - 2.5j, -0.5 + 0.25j], dtype=xp.complex128)
    np.testing.assert_array_equal(np.asarray(xp.round(z)), np.round(np.asarray(z)))


def test_expm1_of_complex_zeros_has_the_standards_real_zero() -> None:
    array = np.asarray(xp.expm1(xp.asarray([complex(-0.0, 0.0), complex(0.0, -0.0)], dtype=xp.complex128)))
    np.testing.assert_array_equal(np.signbit(array.real), [False, False])
    np.testing.assert_array_equal(np.signbit(array.imag), [False, True])


@pytest.mark.parametrize("dtype", [xp.complex64, xp.complex128], ids=str)
def test_tanh_of_infinite_numbers_has_a_zero_with_the_sign_of_the_imaginary_part(dtype: DType) -> None:
    parts = [2.8, -2.8, 0.5, -0.5, 0.0, -0.0]
    array = np.asarray(xp.tanh(xp.asarray([complex(s * np.inf, b) for s in (1, -1) for b in parts], dtype=dtype)))
    np.testing.assert_array_equal(array.real, [1] * 6 + [-1] * 6)
    np.testing.assert_array_equal(array.imag, 0)
    np.testing.assert_array_equal(np.signbit(array.imag), [False, True] * 6)


def test_complex_array_is_not_a_real_scalar() -> None:
    z = xp.asarray(1 + 2j)
    assert complex(z) == 1 + 2j
    assert bool(z)
    for convert in (int, float):
        with pytest.raises(DTypeError, match="complex64 is not a real dtype"):
            convert(z)


@pytest.mark.parametrize("dtype", KINDS["integral"], ids=str)
def test_signbit_is_refused_for_what_is_not_a_float(dtype: DType) -> None:
    with pytest.raises(DTypeError, match=f"signbit: x must be floats, got {dtype}"):
        xp.signbit(xp.asarray([1, 0], dtype=dtype))


@pytest.mark.parametrize("dtype", [xp.int8, xp.uint64, xp.float32, xp.float64], ids=str)
def test_imaginary_part_is_refused_for_all_but_complex_dtypes(dtype: DType) -> None:
    with pytest.raises(DTypeError, match=f"imag: {dtype} is not a complex dtype.*\n.*\n  help: .*zeros_like"):
        xp.imag(xp.asarray([1, 0], dtype=dtype))


@pytest.mark.parametrize("name", ["real", "conj"])
def test_real_part_and_conjugate_are_the_numbers_themselves(name: str) -> None:
    for dtype in (xp.int8, xp.uint64, xp.float32, xp.float64):
        x = xp.asarray([1, 0], dtype=dtype)
        got = getattr(xp, name)(x)
        assert got.dtype is dtype
        assert np.array_equal(np.asarray(got), np.asarray(x))
    with pytest.raises(PromotionError, match="bool is undefined by the array API standard"):
        getattr(xp, name)(xp.asarray([True]))
