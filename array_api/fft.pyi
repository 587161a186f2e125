# Made by docs/make_stubs.py from the functions.
# fmt: off
# ruff: noqa: E501

from collections.abc import Sequence
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar

import numpy as np

from graphcore.array_api._eager.array import Array
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

_T = TypeVar("_T", Symbol, Array)
_Number: TypeAlias = bool | int | float
_A: TypeAlias = Array | _Number  # an operand among Arrays
_S: TypeAlias = Symbol | Array | np.ndarray[Any, Any] | np.generic | _Number  # an operand among which is a Symbol

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn"
]

Norm: TypeAlias = Literal["backward", "ortho", "forward"]
def fft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.fft`."""
def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Array:
    """The frequencies that the elements of a transform of length n stand for: 0 and up, then the negative ones."""
def fftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.fft`, an axis at a time."""
def fftshift(x: _T, /, *, axes: int | Sequence[int] | None = None) -> _T:
    """The tensor with frequency 0 moved to the middle."""
def hfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.irfft`, of the conjugate."""
def ifft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.ifft`."""
def ifftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.ifft`, an axis at a time."""
def ifftshift(x: _T, /, *, axes: int | Sequence[int] | None = None) -> _T:
    """The inverse of `fftshift`, which for odd lengths is not the same."""
def ihfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.rfft`, of which it is the conjugate."""
def irfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.irfft`."""
def irfftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.irfft`, and `ifft` for other axes."""
def rfft(x: _T, /, *, n: int | None = None, axis: int = -1, norm: Norm = 'backward') -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.rfft`."""
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Array:
    """The frequencies that the elements of a transform of n real numbers stand for: 0 and up."""
def rfftn(x: _T, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = 'backward') -> NoReturn:
    """Not there without complex dtypes: raises `DTypeError`. See `graphcore.ops.rfft`, and `fft` for other axes."""
