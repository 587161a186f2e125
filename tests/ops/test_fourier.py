"""Fourier transforms and windows, against NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcore import Dim, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from tests.support.graphs import Array, graph_of, run1

RNG = np.random.default_rng(17)
NO_COUNT: Any = 4.0
FLOATS: list[Any] = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
EPSILON: dict[Any, float] = {np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}
LENGTHS = [1, 2, 3, 4, 5, 8, 9, 12, 16, 30]


def parts(x: Array) -> Array:
    """Complex numbers with a last axis of real and imaginary parts."""
    return np.stack([x.real, x.imag], -1)


def numbers(x: Array) -> Array:
    """The complex numbers of `parts`."""
    wide = x.astype(np.float64)
    return np.asarray(wide[..., 0] + 1j * wide[..., 1])


def assert_near(got: Array, want: Array, dtype: Any) -> None:
    assert got.dtype == dtype
    assert got.shape == want.shape
    size = max(1.0, float(np.abs(want).max(initial=0)))
    error = {np.float64: 1e-13, np.float32: 2e-6}.get(dtype)
    relative = 0.0 if error else EPSILON[dtype] * 0.502
    off = np.abs(got.astype(np.float64) - want)
    assert (off <= (error or 2e-6) * size + np.abs(want) * relative).all(), off.max()


def normal(dtype: Any, *shape: int) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_transforms_equal_numpy_when_of_any_length(length: int, dtype: Any, symbolic: bool) -> None:
    dims: list[list[int | str]] = [["m", "n" if symbolic else length, 2]]
    x = normal(dtype, 3, length, 2)
    assert_near(run1(ops.fft, x, dims=dims), parts(np.fft.fft(numbers(x))), dtype)
    assert_near(run1(ops.ifft, x, dims=dims), parts(np.fft.ifft(numbers(x))), dtype)
    real = x[..., 0]
    assert_near(run1(ops.rfft, real, dims=[dims[0][:2]]), parts(np.fft.rfft(real.astype(np.float64))), dtype)
    if length > 1:
        assert_near(run1(ops.irfft, x, dims=dims), np.fft.irfft(numbers(x)), dtype)


FORMS: dict[str, tuple[Callable[..., Symbol], Callable[..., Array]]] = {
    "fft": (ops.fft, lambda x, *a: parts(np.fft.fft(numbers(x), *a))),
    "ifft": (ops.ifft, lambda x, *a: parts(np.fft.ifft(numbers(x), *a))),
    "rfft": (ops.rfft, lambda x, *a: parts(np.fft.rfft(x.astype(np.float64), *a))),
    "irfft": (ops.irfft, lambda x, *a: np.fft.irfft(numbers(x), *a)),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("normalization", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("n", [1, 4, 5, 6, 8, 12, 13])
@pytest.mark.parametrize("name", FORMS)
def test_transforms_equal_numpy_when_cut_or_padded(name: str, n: int, normalization: Any, dtype: Any) -> None:
    function, formula = FORMS[name]
    x = normal(dtype, 6, 2) if name == "rfft" else normal(dtype, 6, 2, 2)
    dims: list[list[int | str]] = [["n", *x.shape[1:]]]
    got = run1(lambda s: function(s, n, 0, normalization), x, dims=dims)
    assert_near(got, formula(x, n, 0, normalization), dtype)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("name", FORMS)
def test_transforms_equal_numpy_when_along_any_axis(name: str, axis: int) -> None:
    function, formula = FORMS[name]
    x = normal(np.float32, 3, 4, 5) if name == "rfft" else normal(np.float32, 3, 4, 5, 2)
    dims: list[list[int | str]] = [["a", "b", "c", *x.shape[3:]]]
    assert_near(run1(lambda s: function(s, axis=axis), x, dims=dims), formula(x, None, axis), np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transforms_take_real_numbers_when_told_so(dtype: Any) -> None:
    x = normal(dtype, 3, 6)
    wide = x.astype(np.float64)
    assert_near(run1(lambda s: ops.fft(s, input_is_complex=False), x), parts(np.fft.fft(wide)), dtype)
    assert_near(run1(lambda s: ops.ifft(s, input_is_complex=False), x), parts(np.fft.ifft(wide)), dtype)
    assert_near(run1(lambda s: ops.irfft(s, 9, input_is_complex=False), x), np.fft.irfft(wide, 9), dtype)


@pytest.mark.parametrize("n", [1000, 1024, 997])
def test_fft_is_accurate_when_long(n: int) -> None:
    x = normal(np.float32, 1, n, 2)
    assert_near(run1(ops.fft, x, dims=[["m", n, 2]]), parts(np.fft.fft(numbers(x))), np.float32)


def test_fft_gives_float_when_of_integers() -> None:
    x = RNG.integers(-9, 9, (3, 6, 2)).astype(np.int16)
    assert_near(run1(ops.fft, x, dims=[["m", "n", 2]]), parts(np.fft.fft(numbers(x))), np.float32)


def test_fft_length_may_be_a_dim_when_another_input_has_it() -> None:
    x, other = normal(np.float32, 2, 6, 2), normal(np.float32, 4)
    got = run1(lambda s, o: ops.fft(s, Dim("k") * 2), x, other, dims=[["m", "n", 2], ["k"]])
    assert_near(got, parts(np.fft.fft(numbers(x), 8)), np.float32)


def test_irfft_undoes_rfft_when_length_is_even() -> None:
    x = normal(np.float32, 3, 10)
    graph = graph_of(lambda s: ops.irfft(ops.rfft(s)), x, dims=[["m", 10]])
    assert graph.outputs[0].shape == ["m", 10]
    assert_near(run1(lambda s: ops.irfft(ops.rfft(s)), x, dims=[["m", 10]]), x, np.float32)


def test_transform_sizes_are_known_when_dims_are_named() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["m", "n", 2])})
    (x,) = graph.inputs
    assert [str(f(x).shape) for f in (ops.fft, ops.ifft)] == ["[m, n, 2]"] * 2
    assert ops.rfft(x).shape == ["m", "n", 2, 2]
    assert ops.irfft(x).shape == ["m", Dim("n") * 2 - 2]
    assert ops.rfft(x, axis=1).shape == ["m", Dim("n") // 2 + 1, 2, 2]


def test_fft_is_empty_when_there_is_no_batch() -> None:
    assert run1(ops.fft, np.zeros((0, 6, 2), np.float32), dims=[["m", "n", 2]]).shape == (0, 6, 2)


# Windows

WINDOWS: dict[str, tuple[Callable[..., Symbol], Callable[[int], Array]]] = {
    "hann": (ops.hann_window, np.hanning),
    "hamming": (ops.hamming_window, np.hamming),
    "blackman": (ops.blackman_window, np.blackman),
}


def window(formula: Callable[[int], Array], length: int, periodic: bool) -> Array:
    """NumPy's windows are symmetric; a periodic one is the next longer one without its end."""
    return formula(length + 1)[:-1] if periodic and length > 1 else formula(length)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 5, 16, 400])
@pytest.mark.parametrize("name", WINDOWS)
def test_window_equals_numpy_when_length_is_known_or_not(name: str, length: int, periodic: bool, dtype: Any) -> None:
    function, formula = WINDOWS[name]
    want = window(formula, length, periodic)
    options: dict[str, Any] = {"periodic": periodic, "dtype": dtype}
    assert_near(run1(lambda x: function(length, **options) * x, np.ones(1, dtype), dims=[[1]]), want, dtype)
    x = np.zeros((length, 2), np.float32)
    assert_near(run1(lambda x: function(Dim("n"), **options), x, dims=[["n", 2]]), want, dtype)
    assert_near(run1(lambda n: function(n, **options), np.array(length, np.int32)), want, dtype)


def test_window_is_a_constant_when_length_is_known() -> None:
    with Graph("g", {"x": TensorType(DType.float32, ["n"])}) as graph:
        y = ops.hann_window(8)
    assert y.is_constant
    assert y.graph is graph
    assert str(y.type) == "float32[8]"


# Mistakes


def graph() -> Graph:
    return Graph(
        "g",
        {
            "x": TensorType(DType.float32, ["m", "n", 2]),
            "real": TensorType(DType.float32, ["m", 5]),
            "one": TensorType(DType.float32, ["m", 1, 2]),
            "vector": TensorType(DType.int64, ["m"]),
            "scalar": TensorType(DType.float32, []),
        },
    )


MISTAKES: list[tuple[Callable[[Graph], Symbol], str]] = [
    (
        lambda g: ops.fft(g["real"]),
        r"fft: the last axis of x must have size 2, for real and imaginary parts, got shape \[m, 5\]",
    ),
    (
        lambda g: ops.ifft(g["scalar"]),
        r"ifft: the last axis of x must have size 2, for real and imaginary parts, got shape \[\]",
    ),
    (lambda g: ops.fft(g["x"], axis=2), "fft: there is no axis 2 of a tensor of rank 2"),
    (lambda g: ops.rfft(g["scalar"]), "rfft: there is no axis -1 of a tensor of rank 0"),
    (lambda g: ops.rfft(g["real"], 0), "rfft: n=0 is below 1"),
    (lambda g: ops.irfft(g["one"]), "irfft: the length of the signal must be at least 1, got 0"),
    (lambda g: ops.fft(g["x"], Dim("other")), "fft: no Symbol has a dim 'other'"),
    (lambda g: ops.irfft(g["x"], buffer_size_mb=0), "irfft: buffer_size_mb=0 is below 1"),
]


def test_transform_refuses_a_normalization_that_is_not_known() -> None:
    with pytest.raises(GraphError, match="fft: normalization='forwards' is not known\n  help: did you mean forward"):
        ops.fft(graph()["x"], normalization="forwards")


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_transform_refuses_when_shapes_do_not_fit(mistake: Callable[[Graph], Symbol], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        mistake(graph())


def test_window_refuses_when_length_or_dtype_has_no_meaning() -> None:
    g = graph()
    with g:
        with pytest.raises(ShapeError, match="hann_window: window_length=-1 is below 0"):
            ops.hann_window(-1)
        with pytest.raises(DTypeError, match=r"hamming_window: window_length=2\.5 is not an int"):
            ops.hamming_window(2.5)  # type: ignore[arg-type]
        with pytest.raises(DTypeError, match="blackman_window: dtype must be a float, got int8"):
            ops.blackman_window(4, dtype=DType.int8)
        with pytest.raises(ShapeError, match="hann_window: no Symbol has a dim 'other'"):
            ops.hann_window(Dim("other"))
    with pytest.raises(ShapeError, match="hann_window: window_length must be a scalar"):
        ops.hann_window(g["vector"])
    with pytest.raises(GraphError, match="hann_window: no operand is a Symbol, so there is no graph to build in"):
        ops.hann_window(4)


def test_fft_refuses_when_operand_is_a_string() -> None:
    g = Graph("g", {"x": TensorType(DType.string, ["n", 2])})
    with pytest.raises(DTypeError, match="fft has no meaning for string"):
        ops.fft(g["x"])


# Spectra of frames


def framed(x: Array, length: int, step: int, window: Array, onesided: bool) -> Array:
    starts = range(0, x.shape[-1] - length + 1, step)
    frames = np.stack([x[..., i : i + length] * window for i in starts], -2).astype(np.float64)
    return parts(np.fft.rfft(frames) if onesided else np.fft.fft(frames))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("length", "step"), [(1, 1), (4, 2), (5, 3), (8, 8), (7, 10)])
@pytest.mark.parametrize("onesided", [True, False])
def test_stft_gives_the_spectrum_of_each_frame(dtype: Any, length: int, step: int, onesided: bool) -> None:
    x, window = RNG.standard_normal((3, 23)).astype(dtype), RNG.standard_normal(length).astype(dtype)
    near = EPSILON.get(dtype, 1e-5 if dtype is np.float32 else 1e-11) * 4
    for dims in (["n", "samples"], ["n", 23]):
        result = run1(lambda x, w: ops.stft(x, length, step, w, onesided), x, window, dims=[dims, [length]])
        wide = framed(x.astype(np.float64), length, step, window.astype(np.float64), onesided)
        assert result.dtype == dtype
        np.testing.assert_allclose(result.astype(np.float64), wide, rtol=near, atol=near * np.abs(wide).max())


@pytest.mark.parametrize("shape", [(23,), (2, 23), (2, 3, 23), (2, 0, 23), (0, 23)])
def test_stft_takes_signals_of_any_rank(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    want = framed(x, 8, 5, np.ones(8), True)
    for dims in (list(shape), [f"d{i}" for i in range(len(shape))], ["?"] * len(shape)):
        result = run1(lambda x: ops.stft(x, 8, 5), x, dims=[dims])
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)


def test_stft_knows_its_sizes() -> None:
    graph = Graph("g", {"x": TensorType(DType.int8, ["n", 400]), "y": TensorType(DType.float32, ["samples"])})
    assert ops.stft(graph["x"], 25, 10).type == TensorType(DType.float16, ["n", 38, 13, 2])
    samples = graph["y"].shape[0]
    assert ops.stft(graph["y"], 25, 10, onesided=False).shape == [(samples - 25) // 10 + 1, 25, 2]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: ops.stft(x, 0, 1), ShapeError, "frame_length=0 is below 1"),
        (lambda x: ops.stft(x, 4, 0), ShapeError, "frame_step=0 is below 1"),
        (lambda x: ops.stft(x, NO_COUNT, 1), DTypeError, "frame_length=4.0 is not an int"),
        (lambda x: ops.stft(x, 40, 1), ShapeError, "a signal of 30 samples is shorter than a frame of 40"),
        (
            lambda x: ops.stft(x, 4, 1, np.ones(5, np.float32)),
            ShapeError,
            r"window has shape \[5\], but a frame has 4 samples",
        ),
        (lambda x: ops.stft(x[0, 0], 4, 1), ShapeError, "x must be a signal, got a scalar"),
    ],
)
def test_stft_says_what_is_wrong(call: Callable[[Symbol], Any], error: type[Exception], words: str) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 30])})
    with pytest.raises(error, match=words):
        call(graph["x"])
