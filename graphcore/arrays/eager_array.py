"""The base class of eager arrays: values in memory, accessible to Python and other libraries."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.types.dtypes import DType

DEVICE = "cpu"
"""The only device of eager arrays."""


class OutOfBounds(ShapeError, IndexError):
    """An index or mask out of the bounds of an eager array."""


class EagerArray:
    """Values in memory. Subclasses define `dtype`, creation, copies and operators."""

    __slots__ = ("__weakref__", "_data")

    __array_ufunc__: Any = None  # `ndarray + array` calls the reflected operator of the array

    _data: np.ndarray[Any, Any]

    # Attributes

    @property
    def dtype(self) -> DType:
        """The element type."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple(self._data.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._data.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._data.size

    @property
    def device(self) -> str:
        """The device of the values: "cpu"."""
        return DEVICE

    def to_device(self, device: str, /, *, stream: object = None) -> Self:
        """Return the array on a device, which must be "cpu". Raises `GraphError` for other devices and for a stream."""
        check_device("to_device", device)
        if stream is not None:
            raise GraphError("to_device: the cpu has no streams", help="leave out stream")
        return self

    # Values, for Python and other libraries

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self._data, dtype=dtype) if copy is None else np.array(self._data, dtype=dtype, copy=copy)

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return self._data.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self, /) -> tuple[Any, int]:
        return self._data.__dlpack_device__()

    def _scalar(self, conversion: str) -> Any:
        if self.ndim:
            raise DTypeError(
                f"{conversion}: an array of rank {self.ndim} is not a scalar", help="select one element: x[0]"
            )
        return self._data[()]

    def _real(self, conversion: str) -> Any:
        value = self._scalar(conversion)
        if self.dtype.is_complex:
            raise DTypeError(
                f"{conversion}: {self.dtype} is not a real dtype", help="select a part: real(x), imag(x) or abs(x)"
            )
        return value

    def __bool__(self, /) -> bool:
        return bool(self._scalar("bool"))

    def __int__(self, /) -> int:
        return int(self._real("int"))

    def __float__(self, /) -> float:
        return float(self._real("float"))

    def __complex__(self, /) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self, /) -> int:
        value = self._scalar("index")
        if not self.dtype.is_integer:
            raise DTypeError(f"index: {self.dtype} is not an integer dtype", help="cast it: astype(x, int64)")
        return int(value)

    def __format__(self, spec: str, /) -> str:
        if not spec:
            return str(self)
        value = self._scalar("format")
        return format(float(value) if self.dtype.is_float else value, spec)

    def __len__(self) -> int:
        if not self.ndim:
            raise DTypeError("len: a scalar has no first axis", help="use x.size for the number of elements")
        return self.shape[0]

    def __getitem__(self, key: Any, /) -> Any:
        raise NotImplementedError

    def __iter__(self) -> Any:
        if not self.ndim:
            raise DTypeError("iter: cannot iterate over a scalar, which has no axes", help="use x.item() for its value")
        return (self[i] for i in range(self.shape[0]))

    __hash__ = None  # type: ignore[assignment]  # == compares elements

    def __str__(self) -> str:
        return str(self._data)

    def _describe(self) -> tuple[str, str, str]:
        return "", f"{self.dtype}{list(self.shape)}", ""


def check_device(op: str, device: object) -> None:
    """Raise `GraphError` for a device other than "cpu"."""
    if device is not None and device != DEVICE:
        raise GraphError(f"{op}: there is no device {device!r}", help='the only device of arrays is "cpu"')
