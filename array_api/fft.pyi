# Made by docs/make_stubs.py from the functions.
# fmt: off
# ruff: noqa: E501

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from graphcore.array_api._eager import Array
from graphcore.ir.symbol import Symbol
from graphcore.runtime.tracing.tensor import Tensor as EagerTensor
from graphcore.types.dtypes import DType

_T = TypeVar("_T", Symbol, Array, EagerTensor)
_A: TypeAlias = Array | np.ndarray[Any, Any] | np.generic | bool | int | float | complex  # an operand among Arrays
_E: TypeAlias = EagerTensor | _A  # an operand among which is a Tensor
_S: TypeAlias = Symbol | _E  # an operand among which is a Symbol

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn"
]

Norm: TypeAlias = Literal["backward", "ortho", "forward"]
def fft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> _T:
    """Return the discrete Fourier transform along an axis."""
def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Array:
    """Return the frequencies of a transform of length n: 0 and positive ones, then negative ones."""
def fftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> _T:
    """Return the discrete Fourier transform along several axes."""
def fftshift(x: _T, /, *, axes: int | Sequence[int] | None = None) -> _T:
    """Move frequency 0 to the middle."""
def hfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> _T:
    """Return the discrete Fourier transform of a Hermitian-symmetric signal, which is real."""
def ifft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> _T:
    """Return the inverse of `fft`. The divisor is n for "backward" and 1 for "forward"."""
def ifftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> _T:
    """Return the inverse of `fftn`. Arguments are those of `fftn`."""
def ifftshift(x: _T, /, *, axes: int | Sequence[int] | None = None) -> _T:
    """Return the inverse of `fftshift`, which differs from it for odd lengths."""
def ihfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> _T:
    """Return the inverse of `hfft`: the first half of a signal, complex numbers, from its real transform."""
def irfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> _T:
    """Return the inverse of `rfft`: real numbers from the first half of their transform."""
def irfftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> _T:
    """Return the inverse of `rfftn`, as floats."""
def rfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> _T:
    """Return the discrete Fourier transform of real numbers along an axis, without its redundant half."""
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Array:
    """Return the frequencies of a transform of n real numbers: 0 and positive ones."""
def rfftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> _T:
    """Return the discrete Fourier transform of real numbers along several axes, without the redundant half of the last."""
