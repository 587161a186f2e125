"""The compilation and cache of eager functions of graphcore.array_api, and mixes of operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphcore as gc
import graphcore.array_api as xp
from graphcore import DType
from graphcore.array_api._eager import function as over_arrays
from graphcore.errors import DTypeError, GraphError, PromotionError, ShapeError
from graphcore.runtime.tracing import dispatch
from tests.support.graphs import ALL, COMPLEX, FLOATS, INTEGERS, NUMBERS, assert_same

# Signatures


def compiled(function: Callable[[], object]) -> int:
    """Return the number of functions compiled for a call."""
    before = dispatch._trace.cache_info().misses
    function()
    return dispatch._trace.cache_info().misses - before


def test_function_is_compiled_once_for_a_signature() -> None:
    dispatch._trace.cache_clear()
    x = xp.asarray(np.ones((7, 3), np.int16))
    assert compiled(lambda: xp.square(x)) == 1
    assert compiled(lambda: xp.square(xp.asarray(np.zeros((9, 4), np.int16)))) == 0
    assert compiled(lambda: xp.square(xp.asarray(np.zeros((9, 9), np.int16)))) == 1
    assert compiled(lambda: xp.square(xp.asarray(np.zeros((9, 0), np.int16)))) == 1
    assert compiled(lambda: xp.square(xp.asarray(np.ones((7, 3), np.uint16)))) == 1
    assert compiled(lambda: x * 3) == 1
    assert compiled(lambda: x * 4) == 0
    assert compiled(lambda: xp.sum(x, axis=1)) == 1
    assert compiled(lambda: xp.sum(x, axis=0)) == 1
    assert compiled(lambda: xp.sum(x, axis=1)) == 0


def test_functions_are_found_by_all_arguments_that_are_not_arrays() -> None:
    class Pair(NamedTuple):
        low: Any
        high: Any

    @over_arrays
    def spread(arrays: list[Any], factor: float, *, part: slice = slice(None)) -> Any:
        low, high = gc.ops.min(arrays[0]) * factor, gc.ops.max(arrays[1][part])
        return Pair(low, high) if factor else [low, high]

    x, y = xp.asarray([1.0, 2.0, 3.0]), np.array([4, 5, 6], np.float32)
    result = spread([x, y], 2.0, part=slice(0, 2))
    assert type(result) is Pair
    assert (float(result.low), float(result.high)) == (2.0, 5.0)
    assert compiled(lambda: spread([x, y], 2.0, part=slice(0, 2))) == 0
    assert compiled(lambda: spread([x, y], 2.0, part=slice(0, 3))) == 1
    assert compiled(lambda: spread([x, x], 2.0)) == 1
    zeros = [spread([x, y], zero) for zero in (0.0, -0.0)]
    assert [math.copysign(1, float(low)) for low, _ in zeros] == [1, -1]
    assert type(zeros[0]) is list
    with pytest.raises(DTypeError, match="spread: argument part must be a Symbol, an array or hashable, got set"):
        spread([x, y], 2.0, part={1})  # type: ignore[arg-type]


def test_static_functions_know_all_sizes() -> None:
    @over_arrays(static=True)
    def sizes(x: Any) -> Any:
        return tuple(x[i] for i in range(int(x.shape[0])))

    assert [float(v) for v in sizes(xp.asarray([1.0, 2.0, 3.0]))] == [1, 2, 3]
    assert len(sizes(xp.zeros(5))) == 5
    assert sizes(xp.zeros(0)) == ()


def test_threads_share_compiled_functions() -> None:
    dispatch._trace.cache_clear()
    x = xp.asarray(np.arange(6, dtype=np.int32))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: np.asarray(xp.square(x + i)), range(40)))
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, (np.arange(6) + i) ** 2)


def test_numpy_arrays_beside_arrays_are_operands() -> None:
    own, x = np.array([1, 2], np.float32), xp.asarray([3.0, 4.0])
    for item in (own + x, x + own, xp.add(own, x)):
        assert type(item) is xp.Array
        np.testing.assert_array_equal(np.asarray(item), [4, 6])
    with pytest.raises(GraphError, match="no operand is a Symbol"):
        xp.add(own, own)


def test_compiled_functions_are_bounded() -> None:
    for size in range(2, 12):
        xp.arange(size)
    assert dispatch._trace.cache_info().currsize <= dispatch.KEPT


def test_sizes_that_do_not_go_together_are_refused_with_their_numbers() -> None:
    with pytest.raises(ShapeError, match="3 and 4"):
        xp.ones(3) + xp.ones(4)
    with pytest.raises(ShapeError, match=r"(?s)matmul.*float32\[2, 3\]"):
        xp.matmul(xp.ones((2, 3)), xp.ones((2, 3)))
    with pytest.raises(ShapeError, match="reshape"):
        xp.reshape(xp.ones((5, 7)), (6, 6))
    with pytest.raises(IndexError, match="mask does not fit"):
        xp.ones(5)[xp.ones(4) == 1]


def test_empty_arrays_have_sums_and_products() -> None:
    for shapes in (((2, 0), (0, 3)), ((0, 3), (3, 2)), ((3,), (0, 3, 2)), ((0,), (0,)), ((0, 2, 3), (3,))):
        for dtype in (xp.float32, xp.int64, xp.uint8):
            x, y = (xp.zeros(shape, dtype=dtype) for shape in shapes)
            assert_same(x @ y, np.asarray(x) @ np.asarray(y), f"{shapes}")
    x, y = xp.zeros((0, 4, 1, 0)), xp.zeros((0, 4, 2, 0))
    assert xp.tensordot(x, y, axes=((0, 3), (3, 0))).shape == (4, 1, 4, 2)
    assert xp.vecdot(xp.zeros(0), xp.zeros((0, 0))).shape == (0,)
    assert float(xp.sum(xp.zeros(0))) == 0.0
    assert math.isnan(float(xp.mean(xp.zeros(0))))
    assert xp.unstack(xp.zeros((0, 2))) == ()


# Promotion and scalars


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_scalars_take_the_dtype_of_the_array(dtype: DType) -> None:
    x, t = xp.ones((2,), dtype=dtype), xp.asarray(True)
    takes = {
        True: dtype is DType.bool,
        3: dtype is not DType.bool,
        2.5: dtype.is_float,
        1 << 70: dtype.is_float and dtype.bits > 16,
        -1: dtype.is_signed or dtype.is_float,
        256: dtype.is_number and dtype.bits > 8,
    }
    for scalar, is_taken in takes.items():
        functions: list[Callable[[Any], Any]] = [
            lambda s: xp.equal(x, s),
            lambda s: s == x,
            lambda s: xp.where(t, s, x),
        ]
        for function in functions:
            if is_taken:
                function(scalar)
            else:
                with pytest.raises(PromotionError, match="undefined by the array API standard"):
                    function(scalar)
        if is_taken and dtype is not DType.bool:
            assert (x + scalar).dtype is (scalar + x).dtype is dtype


def test_scalars_are_not_operands_of_products_of_matrices() -> None:
    with pytest.raises(TypeError):
        xp.ones((2, 2)) @ 2
    with pytest.raises(TypeError):
        2 @ xp.ones((2, 2))
    with pytest.raises(TypeError):
        xp.ones(2) + "text"  # type: ignore[operator]


UNDEFINED: dict[str, tuple[Callable[[Any], Any], tuple[DType, ...]]] = {
    "sum of bools": (xp.sum, (DType.bool,)),
    "sqrt of integers": (xp.sqrt, (DType.bool, *INTEGERS)),
    "mean of integers": (xp.mean, (DType.bool, *INTEGERS)),
    "true division of integers": (lambda x: x / x, (DType.bool, *INTEGERS)),
    "arithmetic of bools": (lambda x: x + x, (DType.bool,)),
    "bits of floats": (lambda x: x & x, FLOATS),
    "shifts of floats and bools": (lambda x: x << x, (DType.bool, *FLOATS)),
    "logic of numbers": (lambda x: xp.logical_and(x, x), NUMBERS),
    "order of bools": (lambda x: x < x, (DType.bool,)),
    "sort of bools": (xp.sort, (DType.bool,)),
    "isnan of bools": (xp.isnan, (DType.bool,)),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_what_the_standard_leaves_open_is_refused(name: str) -> None:
    function, dtypes = UNDEFINED[name]
    for dtype in dtypes:
        with pytest.raises(PromotionError, match=r"(?s)undefined by the array API standard.*\.cast\("):
            function(xp.ones((2,), dtype=dtype))


def test_mixes_of_kinds_are_refused_and_those_of_widths_are_not() -> None:
    for lhs in ALL:
        for rhs in ALL:
            x, y = xp.ones((2,), dtype=lhs), xp.ones((2,), dtype=rhs)
            same_kind = lhs.is_float == rhs.is_float and (lhs is DType.bool) == (rhs is DType.bool)
            is_wide = DType.uint64 in (lhs, rhs) and (lhs.is_signed or rhs.is_signed)
            if same_kind and not is_wide:
                wanted = DType.of(np.promote_types(lhs.numpy, rhs.numpy))
                assert xp.result_type(x, rhs) is wanted is xp.result_type(lhs, y)
                assert xp.can_cast(lhs, wanted)
                assert xp.can_cast(x, rhs) is (wanted is rhs)
                continue
            assert not xp.can_cast(lhs, rhs)
            with pytest.raises(PromotionError, match="undefined by the array API standard"):
                xp.result_type(x, y)
            with pytest.raises(PromotionError, match="undefined by the array API standard"):
                _ = x == y


def test_result_type_takes_scalars_beside_arrays() -> None:
    assert xp.result_type(xp.int8, 3, xp.int16) is DType.int16
    assert xp.result_type(2.5, xp.float32, 1) is DType.float32
    for alone in ((), (1,), (True, 2.5)):
        with pytest.raises(DTypeError):
            xp.result_type(*alone)


# Dtypes


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_limits_equal_numpy(dtype: DType) -> None:
    if dtype.is_integer:
        own, theirs = xp.iinfo(dtype), np.iinfo(dtype.numpy)
        assert (own.bits, own.min, own.max, own.dtype) == (theirs.bits, theirs.min, theirs.max, dtype)
        with pytest.raises(DTypeError, match="is not a float dtype"):
            xp.finfo(dtype)
        return
    info, wanted = xp.finfo(xp.zeros(1, dtype=dtype)), np.finfo(dtype.numpy)
    assert (info.bits, info.eps, info.max, info.min) == (wanted.bits, wanted.eps, wanted.max, wanted.min)
    assert (info.smallest_normal, info.dtype) == (wanted.smallest_normal, dtype)
    with pytest.raises(DTypeError, match="is not an integer dtype"):
        xp.iinfo(dtype)


def test_isdtype_equals_numpy_for_every_kind() -> None:
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric")
    for dtype in ALL:
        for kind in kinds:
            assert xp.isdtype(dtype, kind) is np.isdtype(dtype.numpy, kind), (dtype, kind)
        assert xp.isdtype(dtype, dtype)
        assert xp.isdtype(dtype, ("bool", "numeric"))
        assert not xp.isdtype(dtype, ())
    with pytest.raises(DTypeError, match="unknown kind"):
        xp.isdtype(xp.int8, "integer")


def test_dtypes_are_those_of_arrays_and_symbols() -> None:
    for dtype in (*ALL, *COMPLEX):
        assert getattr(xp, dtype.name) is dtype is xp.zeros(1, dtype=dtype).dtype
    info = xp.__array_namespace_info__()
    # Those of the standard, which has no float16.
    assert info.dtypes() == {dtype.name: dtype for dtype in (*ALL, *COMPLEX) if dtype is not DType.float16}
    assert info.dtypes(kind=("bool", "real floating")) == {d.name: d for d in (DType.bool, *FLOATS[1:])}
    assert info.dtypes(kind="complex floating") == {d.name: d for d in COMPLEX}
    assert info.default_dtypes()["complex floating"] is xp.asarray(1j).dtype is DType.complex64
    assert info.default_dtypes()["real floating"] is xp.asarray(0.5).dtype is DType.float32
    assert info.default_device() in info.devices()
    assert info.capabilities()["data-dependent shapes"] is True


@pytest.mark.parametrize("dtype", ["bfloat16", "string", "int4"])
def test_dtypes_that_the_standard_has_not_make_no_arrays(dtype: str) -> None:
    with pytest.raises(DTypeError):
        xp.zeros(1, dtype=dtype)  # type: ignore[call-overload]


@pytest.mark.parametrize("result", [xp.meshgrid(), xp.broadcast_arrays(), xp.__array_namespace_info__().devices()])
def test_lists_of_the_namespace_are_tuples_as_in_2025_12(result: object) -> None:
    assert type(result) is tuple


def test_grids_and_broadcast_arrays_are_tuples_of_arrays() -> None:
    x = xp.ones(3)
    for item in (xp.meshgrid(x, x), xp.broadcast_arrays(x, xp.ones((2, 1)))):
        assert type(item) is tuple
        assert all(type(one) is xp.Array for one in item)


def test_float16_meets_float16_in_float16_and_wider_floats_in_theirs() -> None:
    x = xp.asarray([1.0, 2048.0, 65504.0], dtype=xp.float16)
    total = x + xp.asarray(1.0, dtype=xp.float16)
    assert total.dtype is xp.float16
    np.testing.assert_array_equal(np.asarray(total), np.array([2, 2048, 65504], np.float16))
    assert (x * 0.5).dtype is xp.float16
    assert (x + xp.ones(3, dtype=xp.float64)).dtype is xp.float64
    assert xp.result_type(xp.float16, xp.float32) is xp.float32
    assert xp.isdtype(xp.float16, "real floating")
    assert xp.finfo(xp.float16).bits == 16
