"""Casts of arrays (docs/numbers.md, point 9) against the independent reference, for every pair of dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcore import DType
from graphcore.arrays.casting import cast_array, native, round_tf32
from graphcore.errors import DTypeError
from tests.support import reference

Array = np.ndarray[Any, Any]
D = DType

DTYPES = [
    D.bool, D.int4, D.uint4, D.int8, D.int16, D.int32, D.int64, D.uint8, D.uint16, D.uint32, D.uint64, D.index,
    D.address, D.float8_e4m3fn, D.float8_e5m2, D.float16, D.bfloat16, D.tensor_float32, D.float32, D.float64,
]  # fmt: skip
ODD = [D.int(1), D.uint(1), D.int(7), D.uint(7), D.int(12), D.uint(33), D.int(63)]
REDUCED = [d for d in DTYPES if d.is_float and d is not D.float64]


def assert_same(got: Array, want: Array, given_: Array) -> None:
    """Equal values, any NaN like any other, and -0.0 not like 0.0."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    with np.errstate(invalid="ignore"):  # signalling NaNs
        a, b = reference.exact(got), reference.exact(want)
    same = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    wrong = np.flatnonzero(~same)
    assert not wrong.size, f"{given_.ravel()[wrong[0]]!r} became {got[wrong[0]]!r}, not {want[wrong[0]]!r}"


@pytest.mark.parametrize("target", [*DTYPES, *ODD], ids=str)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_cast_equals_reference_for_every_pair(source: DType, target: DType) -> None:
    values = reference.samples(source, 300, 1)
    assert_same(cast_array(values, source, target), reference.cast(values, source, target), values)


@pytest.mark.parametrize("source", ODD, ids=str)
def test_cast_equals_reference_when_from_odd_widths(source: DType) -> None:
    values = reference.samples(source, 60, 2)
    for target in DTYPES:
        assert_same(cast_array(values, source, target), reference.cast(values, source, target), values)


@pytest.mark.parametrize("target", [*DTYPES, *ODD], ids=str)
@pytest.mark.parametrize("source", [D.float8_e4m3fn, D.float8_e5m2, D.float16, D.bfloat16], ids=str)
def test_cast_equals_reference_when_over_the_bit_patterns(source: DType, target: DType) -> None:
    patterns = np.arange(1 << source.bits, dtype=np.uint32).astype(f"u{source.bits // 8}").view(source.numpy)
    wide = patterns if source.bits == 8 else patterns[:: 7 if target.is_float else 97]
    with np.errstate(invalid="ignore"):  # of the reference: some patterns are signalling NaNs
        want = reference.cast(wide, source, target)
    assert_same(cast_array(wide, source, target), want, wide)


@pytest.mark.parametrize("target", [D.float8_e4m3fn, D.float8_e5m2, D.float16, D.bfloat16, D.tensor_float32], ids=str)
@given(st.lists(st.floats(width=64), min_size=1, max_size=8))
def test_float64_is_rounded_once(target: DType, numbers: list[float]) -> None:
    values = np.array(numbers, np.float64)
    assert_same(cast_array(values, D.float64, target), reference.cast(values, D.float64, target), values)


@pytest.mark.parametrize("target", REDUCED, ids=str)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_integers_are_rounded_once(target: DType, numbers: list[int]) -> None:
    unsigned = np.array(numbers, np.uint64)
    signed = unsigned.view(np.int64)
    assert_same(cast_array(unsigned, D.uint64, target), reference.cast(unsigned, D.uint64, target), unsigned)
    assert_same(cast_array(signed, D.int64, target), reference.cast(signed, D.int64, target), signed)


@pytest.mark.parametrize("target", REDUCED, ids=str)
def test_ties_and_their_neighbours_round_as_the_reference(target: DType) -> None:
    mantissa = reference.FORMATS[target][0]
    ties = []
    for exponent in (-20, -15, -7, -1, 0, 1, 5, 8, 15):
        for odd in (1, 3, 5, 7):
            tie = (1 + odd * 2.0 ** -(mantissa + 1)) * 2.0**exponent
            ties += [tie, np.nextafter(tie, 0), np.nextafter(tie, np.inf), tie + 2.0 ** (exponent - 40)]
    values = np.array([*ties, *(-t for t in ties)])
    assert_same(cast_array(values, D.float64, target), reference.cast(values, D.float64, target), values)
    wholes = np.array([(1 << e) + (1 << max(e - mantissa - 1, 0)) + d for e in range(2, 62) for d in (-1, 0, 1)])
    assert_same(cast_array(wholes, D.int64, target), reference.cast(wholes, D.int64, target), wholes)


@given(st.integers(0, 2**32 - 1))
def test_tf32_keeps_ten_bits_of_any_pattern(bits: int) -> None:
    value = np.array([bits], np.uint32).view(np.float32)
    rounded = round_tf32(value)
    if not np.isfinite(value).all():
        assert_same(rounded, value, value)
        return
    assert not int(rounded.view(np.uint32)[0]) & 0x1FFF
    assert_same(rounded, reference.rounded(reference.exact(value), D.tensor_float32), value)


def test_float_to_integer_truncates_and_saturates() -> None:
    values = np.array([1.9, -1.9, 1e30, -1e30, np.inf, -np.inf, np.nan, -0.5, 127.9, -128.9, 255.9])
    assert cast_array(values, D.float64, D.int8).tolist() == [1, -1, 127, -128, 127, -128, 0, 0, 127, -128, 127]
    assert cast_array(values, D.float64, D.uint8).tolist() == [1, 0, 255, 0, 255, 0, 0, 0, 127, 0, 255]
    assert cast_array(values[4:7], D.float64, D.uint64).tolist() == [2**64 - 1, 0, 0]
    assert cast_array(values[4:7], D.float64, D.int64).tolist() == [2**63 - 1, -(2**63), 0]
    assert cast_array(np.array([2.0**63, -(2.0**63), 2.0**64]), D.float64, D.int64).tolist() == [
        2**63 - 1, -(2**63), 2**63 - 1,
    ]  # fmt: skip


def test_integer_to_integer_wraps() -> None:
    values = np.array([127, 128, 255, 256, -1, -129, 7, 8], np.int64)
    assert cast_array(values, D.int64, D.int8).tolist() == [127, -128, -1, 0, -1, 127, 7, 8]
    assert cast_array(values, D.int64, D.int4).astype(int).tolist() == [-1, 0, -1, 0, -1, -1, 7, -8]
    assert cast_array(values, D.int64, D.uint64).tolist()[4] == 2**64 - 1
    assert cast_array(values, D.int64, D.int(7)).tolist() == [-1, 0, -1, 0, -1, -1, 7, 8]


def test_bool_is_whether_it_is_not_zero() -> None:
    assert cast_array(np.array([0.0, -0.0, 0.1, np.nan, np.inf]), D.float64, D.bool).tolist() == [
        False, False, True, True, True,
    ]  # fmt: skip
    assert cast_array(np.array([0, 2], ml_dtypes.int4), D.int4, D.bool).tolist() == [False, True]


def test_float8_overflows_to_nan_or_infinity() -> None:
    values = np.array([464.0, 465.0, -1e9, np.inf], np.float32)
    near = cast_array(values, D.float32, D.float8_e4m3fn).astype(np.float32)
    assert near[0] == 448
    assert np.isnan(near[1:]).all()
    wide = np.array([61439.0, 61440.0, -1e9], np.float32)
    assert cast_array(wide, D.float32, D.float8_e5m2).astype(np.float32).tolist() == [57344.0, np.inf, -np.inf]


def test_cast_keeps_shape_when_empty_or_scalar() -> None:
    for shape in ((), (0,), (2, 0, 3)):
        for target in DTYPES:
            assert cast_array(np.zeros(shape), D.float64, target).shape == shape
            assert cast_array(np.zeros(shape, np.uint64), D.uint64, target).shape == shape


def test_cast_to_its_own_dtype_is_the_array_itself() -> None:
    values = np.ones(2, np.float32)
    assert cast_array(values, D.float32, D.float32) is values


def test_strings_are_not_cast() -> None:
    with pytest.raises(DTypeError, match="cast: string values do not become int8"):
        cast_array(np.array(["1"], object), D.string, D.int8)
    with pytest.raises(DTypeError, match="cast: int8 values do not become string"):
        cast_array(np.ones(1, np.int8), D.int8, D.string)


def test_native_makes_arrays_safe_to_keep() -> None:
    values = np.arange(6).reshape(2, 3)
    assert native(values) is values
    assert native(values.T).flags.c_contiguous
    swapped = native(values.astype(">i8"))
    assert swapped.dtype.isnative
    assert (swapped == values).all()
