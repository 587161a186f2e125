"""graphcore.array_api.fft against NumPy's."""

import inspect
from typing import Any

import numpy as np
import pytest

import graphcore.array_api as xp
from graphcore import DType
from graphcore.errors import DTypeError, GraphError, ShapeError
from tests.support.graphs import Array, run1


def a(value: object) -> xp.Array:
    return xp.asarray(value)


def n(value: object) -> Array:
    return np.asarray(value)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 9, 100])
@pytest.mark.parametrize("dtype", [None, xp.float32, xp.float64])
def test_frequencies_are_numpys(length: int, dtype: DType | None) -> None:
    for name in ("fftfreq", "rfftfreq"):
        result = getattr(xp.fft, name)(length, d=0.3, dtype=dtype)
        assert result.dtype is (dtype or xp.float32)
        wanted = getattr(np.fft, name)(length, 0.3)
        np.testing.assert_allclose(n(result), wanted.astype(n(result).dtype), rtol=np.finfo(n(result).dtype).eps)


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), [1]])
def test_shifts_are_numpys_for_even_and_odd_lengths(axes: object) -> None:
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for name in ("fftshift", "ifftshift"):
        np.testing.assert_array_equal(n(getattr(xp.fft, name)(a(x), axes=axes)), getattr(np.fft, name)(x, axes))
        result = run1(lambda x, name=name: getattr(xp.fft, name)(x, axes=axes), x)
        np.testing.assert_array_equal(result, getattr(np.fft, name)(x, axes))
    with pytest.raises(ShapeError, match="no axis 3"):
        xp.fft.fftshift(a(x), axes=3)


TRANSFORMS: list[tuple[str, dict[str, Any]]] = [
    ("fft", {}), ("fft", {"n": 7, "axis": 1}), ("fft", {"n": 3}), ("ifft", {}), ("ifft", {"axis": 0}), ("fftn", {}),
    ("fftn", {"s": (3, 8), "axes": (0, 2)}), ("fftn", {"s": (4,), "axes": (2,)}), ("ifftn", {"axes": (1,)}),
    ("irfft", {}),
    ("irfft", {"n": 7}), ("irfftn", {}), ("irfftn", {"s": (4, 5), "axes": (1, 2)}), ("hfft", {}),
    ("hfft", {"n": 9, "axis": 0}),
]  # fmt: skip
OF_REAL: list[tuple[str, dict[str, Any]]] = [
    ("rfft", {}),
    ("rfft", {"n": 9, "axis": 0}),
    ("rfftn", {}),
    ("rfftn", {"axes": (0, 1)}),
    ("ihfft", {}),
]


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_transforms_are_numpys(dtype: type, norm: str) -> None:
    rng = np.random.default_rng(0)
    x: Array = (rng.standard_normal((4, 6, 5)) + 1j * rng.standard_normal((4, 6, 5))).astype(dtype)
    for name, arguments in (*TRANSFORMS, *OF_REAL):
        value = x.real.copy() if (name, arguments) in OF_REAL else x
        got = n(getattr(xp.fft, name)(a(value), norm=norm, **arguments))
        want = getattr(np.fft, name)(value, norm=norm, **arguments)
        assert got.dtype == want.dtype, name
        assert got.shape == want.shape, name
        limit = 16 * np.finfo(got.dtype).eps * np.abs(want).max()
        assert np.abs(got - want).max() <= limit, (name, arguments)


@pytest.mark.parametrize("name", ["fft", "ifft", "fftn", "ifftn", "rfft", "irfft", "rfftn", "irfftn", "hfft", "ihfft"])
def test_transforms_have_the_standards_arguments_and_refuse_integers(name: str) -> None:
    function = getattr(xp.fft, name)
    parameters = inspect.signature(function).parameters
    assert list(parameters) == (["x", "s", "axes", "norm"] if name.endswith("n") else ["x", "n", "axis", "norm"])
    with pytest.raises(DTypeError, match=f"fft.{name}: x must be (complex numbers or )?floats, got int64"):
        function(a(np.zeros(4, np.int64)))


@pytest.mark.parametrize("name", ["rfft", "rfftn", "ihfft"])
def test_transforms_of_real_numbers_refuse_complex_ones(name: str) -> None:
    with pytest.raises(DTypeError, match="x must be floats, got complex64"):
        getattr(xp.fft, name)(a(np.zeros(4, np.complex64)))


def test_transforms_refuse_lengths_and_axes_that_do_not_go_together() -> None:
    x = a(np.zeros((4, 5), np.complex64))
    with pytest.raises(ShapeError, match="1 lengths for 2 axes"):
        xp.fft.fftn(x, s=(4,), axes=(0, 1))
    with pytest.raises(ShapeError, match="no axis is given"):
        xp.fft.ifftn(x, axes=())


def test_frequencies_refuse_lengths_below_1_and_other_dtypes() -> None:
    with pytest.raises(ShapeError, match="n must be an int of at least 1, got 0"):
        xp.fft.fftfreq(0)
    with pytest.raises(DTypeError, match="int64 is not a real floating dtype"):
        xp.fft.rfftfreq(4, dtype=xp.int64)
    with pytest.raises(GraphError, match="no device"):
        xp.fft.fftfreq(4, device="gpu")
