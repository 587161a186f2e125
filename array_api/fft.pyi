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
    """The discrete Fourier transform along an axis."""
def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Array:
    """The frequencies that the elements of a transform of length n stand for: 0 and up, then the negative ones."""
def fftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> _T:
    """The discrete Fourier transform along several axes."""
def fftshift(x: _T, /, *, axes: int | Sequence[int] | None = None) -> _T:
    """The tensor with frequency 0 moved to the middle."""
def hfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> _T:
    """The discrete Fourier transform of a signal whose second half mirrors the first, which is real."""
def ifft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> _T:
    """The inverse of `fft`: as there, but the sum is divided by n for "backward" and by 1 for "forward"."""
def ifftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> _T:
    """The inverse of `fftn`, whose arguments it has."""
def ifftshift(x: _T, /, *, axes: int | Sequence[int] | None = None) -> _T:
    """The inverse of `fftshift`, which for odd lengths is not the same."""
def ihfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> _T:
    """The inverse of `hfft`: the first half of a signal, complex numbers, from its real transform."""
def irfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> _T:
    """The inverse of `rfft`: real numbers of the first half of their transform."""
def irfftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> _T:
    """The inverse of `rfftn`, whose arguments it has; s: of the result. Returns floats."""
def rfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> _T:
    """The discrete Fourier transform of real numbers along an axis, without its redundant half."""
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Array:
    """The frequencies that the elements of a transform of n real numbers stand for: 0 and up."""
def rfftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> _T:
    """The discrete Fourier transform of real numbers along several axes, without its redundant half along the last."""
