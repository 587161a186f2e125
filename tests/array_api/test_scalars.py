"""Scalars beside Arrays: those of NumPy, complex ones, and the functions that the standard has for floats alone."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from graphcore import DType, Graph, TensorType
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


@pytest.mark.parametrize("other", COMPLEX, ids=repr)
@pytest.mark.parametrize("function", [*OPERATORS, operator.truediv, operator.pow, operator.iadd, operator.imul])
def test_complex_operand_is_refused_in_words(function: Callable[[Any, Any], Any], other: Any) -> None:
    x = xp.asarray([1.0, 2.0])
    with pytest.raises(PromotionError, match="complex numbers are not computed with here"):
        function(x, other)
    if function not in (operator.iadd, operator.imul):
        with pytest.raises(PromotionError, match="complex numbers are not computed with here"):
            function(other, x)


def test_complex_operand_of_a_function_is_refused_in_words() -> None:
    x, imaginary = xp.asarray([1.0, 2.0]), cast(Any, 1j)
    calls: list[Callable[[], Any]] = [
        lambda: xp.add(x, imaginary),
        lambda: xp.where(x > 1, x, imaginary),
        lambda: xp.result_type(x, 1j),
    ]
    for call in calls:
        with pytest.raises(PromotionError, match="complex numbers are not computed with here"):
            call()


@pytest.mark.parametrize("dtype", KINDS["integral"], ids=str)
def test_signbit_is_refused_for_what_is_no_float(dtype: DType) -> None:
    with pytest.raises(DTypeError, match=f"signbit: it reads the bits of floats of 16, 32 or 64 bits, and {dtype} is"):
        xp.signbit(xp.asarray([1, 0], dtype=dtype))


@pytest.mark.parametrize("dtype", [DType.tensor_float32, DType.float8_e4m3fn, DType.float8_e5m2], ids=str)
def test_bits_of_floats_of_other_widths_are_refused(dtype: DType) -> None:
    x = Graph("g", {"x": TensorType(dtype, [2])})["x"]
    for name, operands in (("signbit", (x,)), ("copysign", (x, x)), ("nextafter", (x, x))):
        with pytest.raises(DTypeError, match=f"{name}: it reads the bits of floats.*and {dtype} is none"):
            getattr(xp, name)(*operands)


@pytest.mark.parametrize("dtype", [xp.int8, xp.uint64, xp.float32, xp.float64], ids=str)
def test_imaginary_part_is_refused_for_all_but_complex_dtypes(dtype: DType) -> None:
    with pytest.raises(DTypeError, match=f"imag: {dtype} is no complex dtype.*\n.*\n  help: .*zeros_like"):
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
