"""The extension of the standard for Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np

from graphcore import ops
from graphcore.array_api._creation import arange
from graphcore.array_api._data_types import DEFAULT_FLOAT, astype, check_dtype
from graphcore.array_api._eager import Tensor, function
from graphcore.array_api._manipulation import concat
from graphcore.build import primitives as e
from graphcore.build.shapes import axes_of
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.ops.matrices import positions
from graphcore.ops.shared.dims import count_of
from graphcore.types.dtypes import DType, complex_of

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip

Norm: TypeAlias = Literal["backward", "ortho", "forward"]


# Frequencies


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Return the frequencies of a transform of length n: 0 and positive ones, then negative ones.

    Args:
        n: At least 1.
        d: The sample spacing.
        dtype: Float16, float32 or float64; by default float32.

    Returns:
        [n].

    Raises:
        ShapeError: For a length below 1.
        DTypeError: For other dtypes.
        GraphError: For a device other than "cpu".
    """
    length, result_dtype = _length("fftfreq", n), _float("fftfreq", dtype)
    upper = (length - 1) // 2 + 1
    numbers = concat([arange(0, upper), arange(upper - length, 0)])
    return _frequencies(numbers, length, d, result_dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Return the frequencies of a transform of n real numbers: 0 and positive ones.

    Args:
        n: As for `fftfreq`.
        d: As for `fftfreq`.
        dtype: As for `fftfreq`.

    Returns:
        [n // 2 + 1]. Raises as `fftfreq` does.
    """
    length, result_dtype = _length("rfftfreq", n), _float("rfftfreq", dtype)
    return _frequencies(arange(0, length // 2 + 1), length, d, result_dtype, device)


def _frequencies(numbers: Tensor, n: int, d: float, dtype: DType, device: str | None) -> Tensor:
    return astype(astype(numbers, DType.float64) / (n * float(d)), dtype, device=device)


def _length(op: str, n: int) -> int:
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
        raise ShapeError(f"{op}: n must be an int of at least 1, got {n!r}", help="give the length of the signal")
    return int(n)


def _float(op: str, dtype: DType | None) -> DType:
    result = check_dtype(op, dtype) or DEFAULT_FLOAT
    if not result.is_float:
        raise DTypeError(f"{op}: {result} is not a real floating dtype", help="use float16, float32 or float64")
    return result


# Order


@function
def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Move frequency 0 to the middle.

    Args:
        x: Any shape and dtype.
        axes: One, several, or None for all.

    Raises:
        ShapeError: For an invalid axis.
    """
    return _shift("fftshift", x, axes, inverse=False)


@function
def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Return the inverse of `fftshift`, which differs from it for odd lengths."""
    return _shift("ifftshift", x, axes, inverse=True)


def _shift(op: str, x: Symbol, axes: int | Sequence[int] | None, *, inverse: bool) -> Symbol:
    for axis in axes_of(op, axes, x.rank, {"x": x}):
        n = count_of(x, axis)
        half = e.emit("Div", n, e.const(n, 2))
        source = positions(x, axis) + (half if inverse else n - half)
        x = ops.gather(x, e.where(source < n, source, source - n), axis)
    return x


# Transforms


@function
def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the discrete Fourier transform along an axis.

    Args:
        x: Complex numbers, or floats, which become complex; at least rank 1.
        n: The length to which the signal is truncated or zero-padded; by default its size.
        norm: The divisor, 1 for "backward", sqrt(n) for "ortho", n for "forward".

    Returns:
        Complex numbers, with size n along the axis.

    Raises:
        DTypeError: For other dtypes.
        ShapeError: For n below 1 and for an invalid axis.
    """
    return ops.fft(_complex("fft", x), n, axis, norm)


@function
def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the inverse of `fft`. The divisor is n for "backward" and 1 for "forward"."""
    return ops.ifft(_complex("ifft", x), n, axis, norm)


@function
def fftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Tensor:
    """Return the discrete Fourier transform along several axes.

    Args:
        x: As for `fft`.
        s: The lengths along the axes.
        axes: By default the last len(s) axes, or all. Raises as `fft` does, and `ShapeError` if the numbers of lengths
            and axes differ.
        norm: As for `fft`.
    """
    return _each(ops.fft, _complex("fftn", x), _axes("fftn", x, s, axes), norm)


@function
def ifftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Tensor:
    """Return the inverse of `fftn`. Arguments are those of `fftn`."""
    return _each(ops.ifft, _complex("ifftn", x), _axes("ifftn", x, s, axes), norm)


@function
def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the discrete Fourier transform of real numbers along an axis, without its redundant half.

    Args:
        x: Floats, at least rank 1.
        n: As for `fft`.
        norm: As for `fft`.

    Returns:
        Complex numbers, with size n // 2 + 1 along the axis. Raises as `fft` does.
    """
    return _half("rfft", x, n, axis, norm)


@function
def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the inverse of `rfft`: real numbers from the first half of their transform.

    Args:
        x: Complex numbers, or floats.
        n: The length of the result; by default 2 * (size - 1), so give an odd length.

    Returns:
        Floats, with size n along the axis. Raises as `fft` does.
    """
    return ops.irfft(_complex("irfft", x), n, axis, norm)


@function
def rfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Tensor:
    """Return the discrete Fourier transform of real numbers along several axes, without the redundant half of the last.

    Args:
        x: Floats.
        s: As for `fftn`.
        axes: As for `fftn`.
        norm: As for `fftn`. Raises as `fftn` does.
    """
    *others, (axis, n) = _axes("rfftn", x, s, axes)
    return _each(ops.fft, _half("rfftn", x, n, axis, norm), others, norm)


@function
def irfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> Tensor:
    """Return the inverse of `rfftn`, as floats.

    Arguments are those of `rfftn`.

    Args:
        s: The lengths of the result.
    """
    *others, (axis, n) = _axes("irfftn", x, s, axes)
    return ops.irfft(_each(ops.ifft, _complex("irfftn", x), others, norm), n, axis, norm)


@function
def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the discrete Fourier transform of a Hermitian-symmetric signal, which is real.

    Args:
        x: Complex numbers, the first half of the signal. n: the length of the result, by default 2 * (size - 1).
        norm: As for `fft`.

    Returns:
        Floats, with size n along the axis. Raises as `fft` does.
    """
    return ops.irfft(ops.conj(_complex("hfft", x)), n, axis, _INVERSE.get(norm, norm))


@function
def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the inverse of `hfft`: the first half of a signal, complex numbers, from its real transform."""
    return ops.conj(_half("ihfft", x, n, axis, _INVERSE.get(norm, norm)))


_INVERSE: dict[str, Norm] = {"backward": "forward", "forward": "backward"}
"""The normalisation that divides an inverse transform like a forward one."""


def _complex(op: str, x: Symbol) -> Symbol:
    if not x.dtype.is_float and not x.dtype.is_complex:
        raise DTypeError(
            f"fft.{op}: x must be complex numbers or floats, got {x.dtype}",
            operands={"x": x},
            help="cast it: astype(x, complex64)",
        )
    return ops.cast(x, complex_of(x.dtype))


def _half(op: str, x: Symbol, n: int | None, axis: int, norm: Norm) -> Symbol:
    if not x.dtype.is_float:
        raise DTypeError(
            f"fft.{op}: x must be floats, got {x.dtype}",
            operands={"x": x},
            help="fft and ifft take complex numbers" if x.dtype.is_complex else "cast it: astype(x, float32)",
        )
    return ops.complex(*ops.as_real(ops.rfft(x, n, axis, norm)))


def _each(transform: Callable[..., Symbol], x: Symbol, axes: Sequence[tuple[int, int | None]], norm: Norm) -> Symbol:
    for axis, n in reversed(axes):
        x = transform(x, n, axis, norm)
    return x


def _axes(op: str, x: Symbol, s: Sequence[int] | None, axes: Sequence[int] | None) -> list[tuple[int, int | None]]:
    """Return the axes with the length along each, None for the size of the axis."""
    if axes is None:
        axes = range(x.rank) if s is None else range(x.rank - len(s), x.rank)
    if s is not None and len(s) != len(axes):
        raise ShapeError(
            f"fft.{op}: {len(s)} lengths for {len(axes)} axes", operands={"x": x}, help="give one length for each axis"
        )
    if not len(axes):
        raise ShapeError(f"fft.{op}: no axis is given", operands={"x": x}, help="give one or more")
    checked_axes = axes_of(f"fft.{op}", list(axes), x.rank, {"x": x})
    return list(zip(checked_axes, s if s is not None else [None] * len(axes), strict=True))
