"""Discrete and short-time Fourier transforms, and windows.

Complex numbers are of a complex dtype, or have a last axis of size 2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcore.arrays import casting
from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY, expansion, op
from graphcore.build.operands import dtype_of, graph_of, promote, promote_one
from graphcore.build.shapes import axis_of, check_integers, check_scalar, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ir.transform.walk import constant_scalar
from graphcore.ops.complex_numbers import as_real, complex_
from graphcore.ops.shared.attributes import choice, whole
from graphcore.ops.shared.dims import Axis, count_of, dim_value, places_of, product
from graphcore.ops.shared.reshape import reshaped
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, _dim, _shape, tensor_type

TWO = Dim(2)
_NORMALIZATIONS = ("backward", "ortho", "forward")

# Transforms


@op(onnx="DFT", rule="float")
def fft(
    x: TensorLike,
    n: DimLike | None = None,
    axis: int = -1,
    normalization: str = "backward",
    input_is_complex: bool = True,
) -> Symbol:
    """The discrete Fourier transform along an axis.

    Args:
        x: Complex numbers [...]; or [..., 2], the last axis real and imaginary parts, or real numbers if not
            input_is_complex; integers become floats.
        n: The length to which the signal is truncated or zero-padded; by default its length.
        axis: Of the signal, counted without the last axis of parts.
        normalization: The sum is divided by 1 for "backward", by sqrt(n) for "ortho", by n for "forward".

    Returns:
        [..., 2] with size n along the axis, or complex numbers [...] for complex x.

    Raises:
        ShapeError: For other shapes, for n below 1 and for an invalid axis.

    NumPy's fft.fft; ONNX DFT.
    """
    return _transform("fft", x, n, axis, normalization, is_complex=input_is_complex)


@op(onnx="DFT", rule="float")
def ifft(
    x: TensorLike,
    n: DimLike | None = None,
    axis: int = -1,
    normalization: str = "backward",
    input_is_complex: bool = True,
) -> Symbol:
    """The inverse of `fft`.

    As for `fft`, but for the normalization: the sum is divided by n for "backward", by sqrt(n) for "ortho", by 1 for
    "forward". NumPy's fft.ifft; ONNX DFT.
    """
    return _transform("ifft", x, n, axis, normalization, is_complex=input_is_complex, inverse=True)


@op(onnx="DFT", rule="float")
def rfft(x: TensorLike, n: DimLike | None = None, axis: int = -1, normalization: str = "backward") -> Symbol:
    """The discrete Fourier transform of real numbers along an axis, without its redundant half.

    Args:
        x: Real numbers, at least one axis; integers become floats.
        n: As for `fft`.
        axis: As for `fft`.
        normalization: As for `fft`.

    Returns:
        [..., 2] with size n // 2 + 1 along the axis. Raises as `fft` does.

    NumPy's fft.rfft; ONNX DFT.
    """
    return _transform("rfft", x, n, axis, normalization, is_complex=False, onesided=True)


@op(onnx="DFT", rule="float")
def irfft(
    x: TensorLike,
    n: DimLike | None = None,
    axis: int = -1,
    normalization: str = "backward",
    input_is_complex: bool = True,
    buffer_size_mb: int = 512,
) -> Symbol:
    """The inverse of `rfft`: real numbers from the first half of their transform.

    Args:
        x: As for `ifft`.
        n: The length of the result, by default 2 * (size - 1), which is even. Imaginary parts of the first number, and
            for an even n of the last, are ignored: these numbers must be real. buffer_size_mb: MAX's memory limit for a
            GPU library, ignored here.
        axis: As for `ifft`.
        normalization: As for `ifft`.
        input_is_complex: As for `ifft`.

    Returns:
        Real numbers, with size n along the axis. Raises as `fft` does.

    NumPy's fft.irfft; MAX's irfft; ONNX DFT.
    """
    whole("irfft", "buffer_size_mb", buffer_size_mb, 1)
    return _transform("irfft", x, n, axis, normalization, is_complex=input_is_complex, inverse=True, onesided=True)


def _transform(
    name: str,
    x: TensorLike,
    n: DimLike | None,
    axis: int,
    normalization: str,
    *,
    is_complex: bool,
    inverse: bool = False,
    onesided: bool = False,
) -> Symbol:
    symbol, dtype = promote_one(name, "float", x)
    roles = {"x": symbol}
    if dtype.is_complex:
        return _of_complex(name, symbol, n, axis, normalization, inverse=inverse, onesided=onesided)
    choice(name, "normalization", normalization, _NORMALIZATIONS)
    if is_complex and (not symbol.rank or not (symbol.shape[-1] == 2 or symbol.shape[-1].is_dynamic)):
        raise ShapeError(
            f"{name}: the last axis of x must have size 2, for real and imaginary parts, got shape {symbol.shape}",
            operands=roles,
            help="give [..., 2], or set input_is_complex=False" if name != "rfft" else "",
        )
    rank = symbol.rank - 1 if is_complex else symbol.rank
    position = axis_of(name, axis, rank, roles)
    size = symbol.shape[position]
    length = None if n is None else _dim(n) if isinstance(n, (Dim, str)) else Dim(whole(name, "n", n, 1))
    signal = length if length is not None else 2 * (size - 1) if inverse and onesided else size
    if signal.is_static and int(signal) < 1:
        raise ShapeError(
            f"{name}: the length of the signal must be at least 1, got {signal}", operands=roles, help="give n >= 1"
        )
    dims = list(symbol.shape[:rank])
    dims[position] = signal // 2 + 1 if onesided and not inverse else signal
    shape = _shape(dims if onesided and inverse else [*dims, TWO])
    graph = symbol.graph
    signal_length = None if length is None else dim_value(graph, length, [symbol], op=name)
    attributes = {
        "axis": position,
        "is_complex": int(is_complex),
        "inverse": int(inverse),
        "onesided": int(onesided),
        "normalization": normalization,
    }
    return graph.build.emit("Fourier", (symbol, signal_length), tensor_type(dtype, shape), attributes, LIBRARY)


def _of_complex(
    name: str, x: Symbol, n: DimLike | None, axis: int, normalization: str, *, inverse: bool, onesided: bool
) -> Symbol:
    """Return the transform of complex numbers: complex, or real for `irfft`."""
    if onesided and not inverse:
        raise DTypeError(f"{name}: x must be real, got {x.dtype}", operands={"x": x}, help="use ops.fft(x)")
    # Complex numbers are viewed as real ones with a last axis of real and imaginary parts, without a copy.
    emit = x.graph.build.emit
    pairs = emit("ToPairs", (x,), tensor_type(x.dtype.storage, _shape([*x.shape, TWO])), None, LIBRARY)
    spectrum = _transform(name, pairs, n, axis, normalization, is_complex=True, inverse=inverse, onesided=onesided)
    if onesided:
        return spectrum
    return emit("FromPairs", (spectrum,), tensor_type(x.dtype, _shape(spectrum.shape[:-1])), None, LIBRARY)


@expansion("Fourier")
def _fourier(
    x: Symbol,
    n: Symbol | None = None,
    *,
    axis: int,
    is_complex: int,
    inverse: int,
    onesided: int,
    normalization: str,
) -> Symbol:
    """Compute by the forward kernel and scale separately: the inverse kernel rounds its scale to float32."""
    dtype = x.dtype
    shape = list(x.shape[:-1] if is_complex else x.shape)
    length = _signal_length(x, n, axis, bool(inverse and onesided))
    static_length = constant_scalar(length, weights=True)
    if static_length is None or static_length & (static_length - 1):
        # For lengths that are not powers of two, the kernel's algorithm loses half the digits.
        x = e.cast(x, DType.float64)
    if not is_complex:
        x = e.unsqueeze(x, -1)
    size = (
        shape[axis]
        if n is None and not (inverse and onesided)
        else Dim.dynamic()
        if static_length is None
        else Dim(static_length)
    )
    shape[axis] = size
    if not inverse:
        shape[axis] = size // 2 + 1 if onesided else size
        result = _dft(x, length, axis, [*shape, TWO], onesided)
    elif not onesided:
        # Swapping real and imaginary parts before and after turns the transform into its inverse.
        result = _swap_parts(_dft(_swap_parts(x), length, axis, [*shape, TWO]))
    else:
        weighted = _dft(_weighted_half(x, length, axis), length, axis, [*shape, TWO])
        result = e.emit("Gather", weighted, x.graph.build.scalar(0, DType.int64), shape=_shape(shape), axis=-1)
    return e.cast(_normalised(result, length, normalization, bool(inverse)), dtype)


def _signal_length(x: Symbol, n: Symbol | None, axis: int, halved: bool) -> Symbol:
    """Return the length of the signal, an int64 scalar."""
    if n is not None:
        return n
    if halved and x.shape[axis].is_static:
        return x.graph.build.scalar(2 * (int(x.shape[axis]) - 1), DType.int64)
    length = count_of(x, axis)
    if not halved:
        return length
    return e.emit("Mul", e.emit("Sub", length, e.const(length, 1)), e.const(length, 2))


def _dft(x: Symbol, length: Symbol, axis: int, shape: list[Dim], onesided: int = 0) -> Symbol:
    place = x.graph.build.scalar(axis, DType.int64)
    return e.emit("DFT", x, length, place, shape=_shape(shape), onesided=onesided)


def _swap_parts(x: Symbol) -> Symbol:
    """Swap real and imaginary parts; a single real part becomes the imaginary part."""
    if x.shape[-1] == 1:
        pads = [0] * (2 * x.rank)
        pads[x.rank - 1] = 1
        return e.emit("Pad", x, x.graph.build.vector(pads), shape=_shape([*x.shape[:-1], TWO]), mode="constant")
    return e.emit("Gather", x, x.graph.build.vector([1, 0]), shape=x.shape, axis=-1)


def _weighted_half(x: Symbol, length: Symbol, axis: int) -> Symbol:
    """Return half a spectrum, conjugated and weighted: the real part of its transform is that of the full spectrum.

    The first number and, for an even length, the middle one have weight 1, the others 2, and numbers beyond the middle
    0.
    """
    graph = x.graph
    place = places_of(x, axis)
    doubled = e.mul(place, 2)
    inside = e.emit("LessOrEqual", doubled, length, dtype=DType.bool)
    ends = e.either(e.equals(place, 0), e.equal(doubled, length))
    weight = e.where(ends, e.const(x, 1.0), e.const(x, 2.0))
    weight, inside = (e.unsqueeze(s, *range(1, x.rank - axis)) for s in (weight, inside))
    parts = x
    if x.shape[-1] != 1:
        conjugate = np.array([1, -1], x.dtype.numpy)
        parts = e.emit("Mul", x, graph.build.constant(conjugate, x.dtype), shape=x.shape)
    # Selected, not multiplied by 0: numbers of weight 0 may be infinite.
    return e.where(inside, e.emit("Mul", parts, weight, shape=x.shape), e.const(x, 0.0))


def _normalised(x: Symbol, length: Symbol, normalization: str, inverse: bool) -> Symbol:
    if normalization == ("forward" if inverse else "backward"):
        return x
    divisor = e.cast(length, x.dtype)
    if normalization == "ortho":
        divisor = e.emit("Sqrt", divisor)
    return e.emit("Div", x, divisor, shape=x.shape)


@op(onnx="STFT", rule="float")
def stft(
    x: TensorLike, frame_length: int, frame_step: int, window: TensorLike | None = None, onesided: bool = True
) -> Symbol:
    """The short-time Fourier transform of signals: the spectrum of each frame.

    Args:
        x: [..., samples], real or complex.
        frame_length: The number of samples in a frame.
        frame_step: The number of samples between the starts of two frames.
        window: [frame_length], by which every frame is multiplied, such as `hann_window`; None for ones. x and window
            are promoted together; integers become floats.
        onesided: Omit the redundant half of each spectrum. Frames lie within the signal: `pad` it first for centred
            frames.

    Returns:
        [..., frames, bins, 2], real and imaginary parts last, with (samples - frame_length) // frame_step + 1 frames
        and frame_length // 2 + 1 bins, or frame_length if not onesided; for complex signals, which need onesided=False,
        complex numbers [..., frames, bins].

    Raises:
        ShapeError: For a signal shorter than a frame, steps and lengths below 1 and another window.
        DTypeError: For a complex window and for complex signals if onesided.

    ONNX STFT.
    """
    name = "stft"
    length, step = whole(name, "frame_length", frame_length, 1), whole(name, "frame_step", frame_step, 1)
    inputs = {"x": x} if window is None else {"x": x, "window": window}
    (symbol, *windows), dtype = promote(name, "float", inputs)
    roles = dict(zip(inputs, (symbol, *windows), strict=True))
    if dtype.is_complex:
        return _of_complex_signal(symbol, length, step, window, onesided=onesided)
    if not symbol.rank:
        raise ShapeError(f"{name}: x must be a signal, got a scalar", operands=roles, help="give [..., samples]")
    for frame_window in windows:
        if frame_window.rank != 1 or not same_dim(frame_window.shape[0], length):
            raise ShapeError(
                f"{name}: window has shape {frame_window.shape}, but a frame has {length} samples",
                operands=roles,
                help=f"give a window of shape [{length}], or another frame_length",
            )
    samples = symbol.shape[-1]
    if samples.is_static and int(samples) < length:
        raise ShapeError(
            f"{name}: a signal of {samples} samples is shorter than a frame of {length}",
            operands=roles,
            help="pad the signal with ops.pad, or use a shorter frame",
        )
    frames, bins = (samples - length) // step + 1, Dim(length // 2 + 1 if onesided else length)
    graph, rank = symbol.graph, symbol.rank
    sizes = [d if d.is_static else Axis(symbol, i) for i, d in enumerate(symbol.shape)]
    count: Dim | Axis | Symbol = sizes[0] if rank == 2 else symbol.shape[:-1].size
    if isinstance(count, Dim) and count.is_dynamic:
        count = product(graph, sizes[:-1], (symbol,), op=name)
    signal = reshaped(name, symbol, [count, sizes[-1], Dim(1)], roles)
    operands = (
        signal,
        graph.build.scalar(step, DType.int64),
        windows[0] if windows else None,
        graph.build.scalar(length, DType.int64),
    )
    type_ = tensor_type(dtype, _shape([signal.shape[0], frames, bins, TWO]))
    spectra = graph.build.emit("STFT", operands, type_, {"onesided": int(bool(onesided))})
    if rank == 2:
        return spectra
    target = [*sizes[:-1], frames if frames.is_static else Axis(spectra, 1), bins, TWO]
    return reshaped(name, spectra, target, roles, sources=(symbol,))


def _of_complex_signal(
    x: Symbol, frame_length: int, frame_step: int, window: TensorLike | None, *, onesided: bool
) -> Symbol:
    """Return the transform of the real part plus i times that of the imaginary part."""
    if window is not None:
        window = x.graph.build.operand(window, "stft", "window")
        if window.dtype.is_complex:
            raise DTypeError(
                "stft: window must be real, got complex numbers",
                operands={"x": x, "window": window},
                help="give its real part: ops.real(z)",
            )
    if onesided:
        raise DTypeError(
            "stft: the spectrum of a complex signal has no redundant half",
            operands={"x": x},
            help="set onesided=False",
        )
    (a, b), (c, d) = (
        as_real(stft(part, frame_length, frame_step, window, onesided=False)) for part in (x.real, x.imag)
    )
    return complex_(a - d, b + c)


# Windows


@op(onnx="HannWindow")
def hann_window(window_length: DimLike | Symbol, periodic: bool = True, dtype: object = DType.float32) -> Symbol:
    """The window 1/2 - 1/2 cos(2 pi i / n): a raised cosine.

    Args:
        window_length: An int >= 0, a dim of the graph or an integer scalar Symbol.
        periodic: N is the length, for spectral analysis; else the length - 1, so that the last element equals the
            first.
        dtype: A float.

    Returns:
        [window_length]; a window of length 1 is [1].

    Raises:
        DTypeError, ShapeError: For another length or dtype.

    NumPy's hanning; ONNX HannWindow.
    """
    return _window("hann_window", window_length, periodic, dtype, [0.5, 0.5])


@op(onnx="HammingWindow")
def hamming_window(window_length: DimLike | Symbol, periodic: bool = True, dtype: object = DType.float32) -> Symbol:
    """The window 0.54 - 0.46 cos(2 pi i / n): a raised cosine on a step.

    Arguments as for `hann_window`. NumPy's hamming; ONNX HammingWindow, which has 25/46 and 21/46.
    """
    return _window("hamming_window", window_length, periodic, dtype, [0.54, 0.46])


@op(onnx="BlackmanWindow")
def blackman_window(window_length: DimLike | Symbol, periodic: bool = True, dtype: object = DType.float32) -> Symbol:
    """The window 0.42 - 0.5 cos(2 pi i / n) + 0.08 cos(4 pi i / n).

    Arguments as for `hann_window`. NumPy's blackman; ONNX BlackmanWindow.
    """
    return _window("blackman_window", window_length, periodic, dtype, [0.42, 0.5, 0.08])


def _window(name: str, length: Any, periodic: bool, dtype: object, terms: list[float]) -> Symbol:
    graph = graph_of(name, (length,))
    wanted = dtype_of(name, dtype, graph)
    if not wanted.is_float:
        raise DTypeError(f"{name}: dtype must be a float, got {wanted}", help="use a float: dtype=DType.float32")
    if isinstance(length, Symbol):
        check_integers(name, "window_length", length)
        check_scalar(name, "window_length", length)
        dim, count = Dim.dynamic(), graph.build.cast(length, DType.int64)
    else:
        dim = _dim(length) if isinstance(length, (Dim, str)) else Dim(whole(name, "window_length", length, 0))
        if dim.is_static:
            values = _window_values(int(dim), periodic, terms)
            return graph.build.constant(casting.cast_array(values, DType.float64, wanted), wanted)
        count = dim_value(graph, dim, op=name)
    attributes = {"periodic": int(bool(periodic)), "terms": terms, "dtype": wanted}
    return graph.build.emit("CosineWindow", (count,), tensor_type(wanted, _shape([dim])), attributes, LIBRARY)


def _window_values(length: int, periodic: bool, terms: list[float]) -> np.ndarray[Any, Any]:
    if length <= 1:
        return np.ones(length, np.float64)
    turns = np.arange(length, dtype=np.float64) * (2 * math.pi / (length if periodic else length - 1))
    return np.asarray(sum((-1) ** k * a * np.cos(k * turns) for k, a in enumerate(terms)))


@expansion("CosineWindow")
def _cosine_window(length: Symbol, *, periodic: int, terms: list[float], dtype: DType) -> Symbol:
    """Compute in float64, so that the result is rounded once in every dtype."""
    zero, one = (e.const(length, n) for n in (0, 1))
    place = e.cast(e.emit("Range", zero, length, one, shape=_shape([Dim.dynamic()])), DType.float64)
    whole_turn = length if periodic else e.emit("Sub", length, one)
    # A window of length 1 would divide by 0.
    divisor = e.cast(e.emit("Max", whole_turn, one), DType.float64)
    turns = e.emit("Div", e.emit("Mul", place, e.const(place, 2 * math.pi)), divisor)
    total = e.emit("Mul", turns, e.const(turns, 0.0))
    for k, factor in enumerate(terms):
        wave = e.emit("Cos", e.emit("Mul", turns, e.const(turns, float(k))))
        total = e.emit("Add", total, e.emit("Mul", wave, e.const(turns, (-1) ** k * factor)))
    alone = e.less(e.const(length, 1), length)
    return e.where(alone, total, e.const(turns, 1.0))
