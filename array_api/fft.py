"""The standard's extension for Fourier transforms, as far as it is of real numbers.

Transforms have complex operands or results, and there are no complex dtypes here: they raise `DTypeError`, which names
the op of `graphcore.ops` that has real and imaginary parts as a last axis of size 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NoReturn, TypeAlias

import numpy as np

from graphcore import ops
from graphcore.array_api._algorithms.loops import count_of, positions
from graphcore.array_api._creation import arange
from graphcore.array_api._data_types import DEFAULT_FLOAT, astype, checked
from graphcore.array_api._eager.dispatch import Tensor, function
from graphcore.array_api._manipulation import concat
from graphcore.build import primitives as e
from graphcore.build.shapes import axes_of
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip

Norm: TypeAlias = Literal["backward", "ortho", "forward"]


# Frequencies


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """The frequencies that the elements of a transform of length n stand for: 0 and up, then the negative ones.

    n: at least 1. d: the distance of samples. dtype: float32 or float64, float32 if not told. Returns [n]. Raises
    `ShapeError` for a length below 1, `DTypeError` for other dtypes, `GraphError` for another device than "cpu".
    """
    length, wanted = _length("fftfreq", n), _float("fftfreq", dtype)
    upper = (length - 1) // 2 + 1
    numbers = concat([arange(0, upper), arange(upper - length, 0)])
    return _frequencies(numbers, length, d, wanted, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """The frequencies that the elements of a transform of n real numbers stand for: 0 and up.

    n, d, dtype: as for `fftfreq`. Returns [n // 2 + 1]. Raises as `fftfreq` does.
    """
    length, wanted = _length("rfftfreq", n), _float("rfftfreq", dtype)
    return _frequencies(arange(0, length // 2 + 1), length, d, wanted, device)


def _frequencies(numbers: Tensor, n: int, d: float, dtype: DType, device: str | None) -> Tensor:
    return astype(astype(numbers, DType.float64) / (n * float(d)), dtype, device=device)


def _length(op: str, n: int) -> int:
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
        raise ShapeError(f"{op}: n={n!r} is no length of a signal", help="give an int, at least 1")
    return int(n)


def _float(op: str, dtype: DType | None) -> DType:
    found = checked(op, dtype) or DEFAULT_FLOAT
    if found not in (DType.float32, DType.float64):
        raise DTypeError(f"{op}: {found} is no real floating dtype", help="use float32 or float64")
    return found


# Order


@function
def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The tensor with frequency 0 moved to the middle.

    x: any shape and dtype. axes: one, several, or None for all. Raises `ShapeError` for what is no axis.
    """
    return _shifted("fftshift", x, axes, inverse=False)


@function
def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`, which for odd lengths is not the same."""
    return _shifted("ifftshift", x, axes, inverse=True)


def _shifted(op: str, x: Symbol, axes: int | Sequence[int] | None, *, inverse: bool) -> Symbol:
    for axis in axes_of(op, axes, x.rank, {"x": x}):
        n = count_of(x, axis)
        half = e.emit("Div", n, e.const(n, 2))
        source = positions(x, axis) + (half if inverse else n - half)
        x = ops.gather(x, e.where(source < n, source, source - n), axis)
    return x


# Transforms


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.fft`."""
    _refuse("fft", "fft", x)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.ifft`."""
    _refuse("ifft", "ifft", x)


def fftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.fft`, an axis at a time."""
    _refuse("fftn", "fft", x)


def ifftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.ifft`, an axis at a time."""
    _refuse("ifftn", "ifft", x)


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.rfft`."""
    _refuse("rfft", "rfft", x)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.irfft`."""
    _refuse("irfft", "irfft", x)


def rfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.rfft`, and `fft` for other axes."""
    _refuse("rfftn", "rfft", x)


def irfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.irfft`, and `ifft` for other axes."""
    _refuse("irfftn", "irfft", x)


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.irfft`, of the conjugate."""
    _refuse("hfft", "irfft", x)


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.rfft`, of which it is the conjugate."""
    _refuse("ihfft", "rfft", x)


def _refuse(op: str, instead: str, x: Tensor) -> NoReturn:
    raise DTypeError(
        f"fft.{op}: there are no complex dtypes, which a Fourier transform goes from or to",
        operands={"x": x},
        help=f"build a graph with ops.{instead}, whose complex numbers are a last axis of size 2",
    )
