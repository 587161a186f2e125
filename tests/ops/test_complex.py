"""Complex numbers as pairs against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from tests.support.graphs import run, run1

Array = np.ndarray[Any, Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def symbols(*shapes: tuple[int | str, ...], dtype: DType = DType.float32) -> tuple[Symbol, ...]:
    return Graph("test", {f"x{i}": TensorType(dtype, shape) for i, shape in enumerate(shapes)}).inputs


def as_numpy(pairs: Array) -> Array:
    result: Array = pairs[..., 0] + 1j * pairs[..., 1]
    return result


def as_pairs(values: Array) -> Array:
    return np.stack([values.real, values.imag], -1)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16, np.bool_])
def test_as_complex_puts_the_parts_on_a_last_axis(dtype: Any) -> None:
    real, imag = (numbers(2, 3, seed=i).astype(dtype) for i in (0, 1))
    got = run1(ops.as_complex, real, imag, dims=[["n", "m"], ["n", "m"]])
    np.testing.assert_array_equal(got, np.stack([real, imag], -1))
    assert run1(ops.as_complex, np.array(1.5, np.float32), np.array(2, np.float32)).tolist() == [1.5, 2]


def test_as_complex_meets_in_the_common_dtype() -> None:
    (three,) = symbols((3,), dtype=DType.int8)
    assert ops.as_complex(three, np.zeros(3, np.float16)).type == TensorType(DType.float16, [3, 2])


@pytest.mark.parametrize("dims", [None, [["n", "m", 6]], [["n", 3, 6]], [[2, 3, "d"]]], ids=str)
def test_as_interleaved_complex_pairs_neighbours(dims: Any) -> None:
    x = numbers(2, 3, 6)
    np.testing.assert_array_equal(run1(ops.as_interleaved_complex, x, dims=dims), x.reshape(2, 3, 3, 2))


def test_as_interleaved_complex_of_one_axis_and_of_nothing() -> None:
    np.testing.assert_array_equal(run1(ops.as_interleaved_complex, numbers(6)), numbers(6).reshape(3, 2))
    assert run1(ops.as_interleaved_complex, numbers(0, 6)).shape == (0, 3, 2)
    (x,) = symbols(("n", "d"))
    assert ops.as_interleaved_complex(x).shape == ["n", x.shape[1] // 2, 2]


def test_as_real_takes_the_parts_apart() -> None:
    x = numbers(3, 4, 2)
    real, imag = run(ops.as_real, x, dims=[["n", "m", 2]])
    np.testing.assert_array_equal(real, x[..., 0])
    np.testing.assert_array_equal(imag, x[..., 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_mul_complex_multiplies_and_broadcasts(dtype: Any) -> None:
    x, y = (numbers(3, 2) * 8).astype(dtype), (numbers(4, 1, 2) * 8).astype(dtype)
    got = run1(ops.mul_complex, x, y, dims=[["n", 2], ["m", 1, 2]])
    assert got.dtype == dtype
    np.testing.assert_allclose(got, as_pairs(as_numpy(x) * as_numpy(y)), rtol=1e-5, atol=1e-5)


def test_mul_complex_of_float16_is_rounded_once() -> None:
    x, y = numbers(500, 2).astype(np.float16), numbers(500, 2, seed=1).astype(np.float16)
    got = run1(ops.mul_complex, x, y, dims=[["n", 2], ["n", 2]])
    (a, b), (c, d) = x.astype(np.float32).T, y.astype(np.float32).T
    np.testing.assert_array_equal(got, np.stack([a * c - b * d, a * d + b * c], -1).astype(np.float16))


def test_mul_complex_of_int8_wraps() -> None:
    x, y = np.array([[100, 50]], np.int8), np.array([[3, -7]], np.int8)
    want = np.array([[100 * 3 + 50 * 7, 50 * 3 - 100 * 7]]).astype(np.int8)
    np.testing.assert_array_equal(run1(ops.mul_complex, x, y, dims=[["n", 2], [1, 2]]), want)


def test_rotary_embedding_is_a_complex_product() -> None:
    x, angle = numbers(5, 8), numbers(5, 4, seed=1)

    def rotate(s: Symbol, a: Symbol) -> Symbol:
        turned = ops.mul_complex(ops.as_interleaved_complex(s), ops.as_complex(ops.cos(a), ops.sin(a)))
        return ops.reshape(turned, [s.shape[0], 8])

    want = as_pairs(as_numpy(x.reshape(5, 4, 2)) * np.exp(1j * angle)).reshape(5, 8)
    np.testing.assert_allclose(run1(rotate, x, angle, dims=[["n", 8], ["n", 4]]), want, rtol=1e-4, atol=1e-5)


def test_complex_refuses_shapes_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"as_complex: the parts have different shapes: \[n\] and \[n, 1\]"):
        ops.as_complex(*symbols(("n",), ("n", 1)))
    with pytest.raises(ShapeError, match="as_interleaved_complex: the last axis must have an even length, got 5"):
        ops.as_interleaved_complex(symbols(("n", 5))[0])
    with pytest.raises(ShapeError, match="as_interleaved_complex: interleaved must have an axis, got a scalar"):
        ops.as_interleaved_complex(symbols(())[0])
    with pytest.raises(
        ShapeError,
        match=r"as_real: complex must be pairs of real and imaginary parts \[..., 2\]: its last axis is 3, not 2",
    ):
        ops.as_real(symbols(("n", 3))[0])
    with pytest.raises(
        ShapeError,
        match=r"mul_complex: rhs must be pairs of real and imaginary parts \[..., 2\]: it is a scalar(.|\n)*as_complex",
    ):
        ops.mul_complex(*symbols((3, 2), ()))
    with pytest.raises(ShapeError, match="mul_complex: shapes do not broadcast: n and 3 at axis -2"):
        ops.mul_complex(*symbols(("n", 2), (3, 2)))
    with pytest.raises(DTypeError, match="mul_complex has no meaning for bool"):
        ops.mul_complex(*symbols((2,), (2,), dtype=DType.bool))
