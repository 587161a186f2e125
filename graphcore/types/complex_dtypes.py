"""Complex dtypes and those of their parts."""

from __future__ import annotations

from graphcore.errors import DTypeError
from graphcore.types.dtypes import DType


def real_of(dtype: DType) -> DType:
    """Return the dtype of the parts of complex numbers; any other dtype as it is."""
    return dtype.storage if dtype.is_complex else dtype


def complex_of(dtype: DType) -> DType:
    """Return the complex dtype whose parts hold a real one's values as well as a float of it would: complex128 for
    float64 and for integers of 32 bits and more, complex64 for the others; a complex dtype as it is."""
    if dtype.is_complex:
        return dtype
    is_double = dtype is DType.float64 or (dtype.is_integer and dtype.bits >= 32)
    return DType.complex128 if is_double else DType.complex64


def real_of_complex(source: DType, target: DType) -> DTypeError:
    """Return the error for a cast that would lose imaginary parts."""
    return DTypeError(
        f"cast: {source} values do not become {target}: their imaginary parts would be lost",
        help="say what is meant: ops.real(z), ops.imag(z), ops.abs(z)",
    )
