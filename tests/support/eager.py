"""Shared parts of the tests of graphcore.array_api: the standard's dtypes, and comparison with NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore import DType

Values = np.ndarray[Any, Any]

SIGNED = (DType.int8, DType.int16, DType.int32, DType.int64)
UNSIGNED = (DType.uint8, DType.uint16, DType.uint32, DType.uint64)
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = (DType.float16, DType.float32, DType.float64)
COMPLEX = (DType.complex64, DType.complex128)
NUMBERS = (*INTEGERS, *FLOATS)
ALL = (DType.bool, *NUMBERS)


def assert_same(made: object, wanted: Values, what: str) -> None:
    array = np.asarray(made)
    assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape), what
    if wanted.dtype.kind == "f":
        rtol = {2: 2e-3, 4: 2e-6, 8: 1e-12}[wanted.dtype.itemsize]
        np.testing.assert_allclose(array, wanted, rtol=rtol, atol=rtol, err_msg=what)
    else:
        np.testing.assert_array_equal(array, wanted, err_msg=what)
