"""graphcore.array_api.fft: frequencies and shifts against NumPy's, and the errors of transforms."""

import inspect

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
        made = getattr(xp.fft, name)(length, d=0.3, dtype=dtype)
        assert made.dtype is (dtype or xp.float32)
        wanted = getattr(np.fft, name)(length, 0.3)
        np.testing.assert_allclose(n(made), wanted.astype(n(made).dtype), rtol=np.finfo(n(made).dtype).eps)


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), [1]])
def test_shifts_are_numpys_for_even_and_odd_lengths(axes: object) -> None:
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for name in ("fftshift", "ifftshift"):
        np.testing.assert_array_equal(n(getattr(xp.fft, name)(a(x), axes=axes)), getattr(np.fft, name)(x, axes))
        made = run1(lambda x, name=name: getattr(xp.fft, name)(x, axes=axes), x)
        np.testing.assert_array_equal(made, getattr(np.fft, name)(x, axes))
    with pytest.raises(ShapeError, match="no axis 3"):
        xp.fft.fftshift(a(x), axes=3)


@pytest.mark.parametrize("name", ["fft", "ifft", "fftn", "ifftn", "rfft", "irfft", "rfftn", "irfftn", "hfft", "ihfft"])
def test_transforms_say_that_there_are_no_complex_dtypes(name: str) -> None:
    function = getattr(xp.fft, name)
    parameters = inspect.signature(function).parameters
    assert list(parameters) == (["x", "s", "axes", "norm"] if name.endswith("n") else ["x", "n", "axis", "norm"])
    with pytest.raises(DTypeError, match=f"fft.{name}: there are no complex dtypes") as caught:
        function(a(np.zeros(4)))
    assert "ops." in str(caught.value)


def test_frequencies_refuse_lengths_below_1_and_other_dtypes() -> None:
    with pytest.raises(ShapeError, match="n=0 is no length"):
        xp.fft.fftfreq(0)
    with pytest.raises(DTypeError, match="int64 is no real floating dtype"):
        xp.fft.rfftfreq(4, dtype=xp.int64)
    with pytest.raises(GraphError, match="no device"):
        xp.fft.fftfreq(4, device="gpu")
