"""The eager array: values in memory, computed with by compiled graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.ir.symbol import Symbol

DTYPES: tuple[DType, ...] = (
    DType.bool,
    DType.int8,
    DType.int16,
    DType.int32,
    DType.int64,
    DType.uint8,
    DType.uint16,
    DType.uint32,
    DType.uint64,
    DType.float32,
    DType.float64,
)
"""The standard's dtypes, without the complex ones."""

_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES}

DEVICE = "cpu"
"""The one device that Arrays are on."""


class OutOfBounds(ShapeError, IndexError):
    """Positions, or masks, that an Array has not."""


class Array:
    """An array of the standard that holds its values. Made by `asarray` and the other creation functions.

    Its operators, methods and attributes are the standard's.
    """

    __slots__ = ("__weakref__", "_data")

    __array_ufunc__ = None  # ndarray + array is the Array's business

    _data: np.ndarray[Any, Any]

    def __init__(self, data: np.ndarray[Any, Any] | np.generic) -> None:
        if not isinstance(data, (np.ndarray, np.generic)) or data.dtype not in _BY_NUMPY:
            raise DTypeError(
                f"Array: no values of {getattr(data, 'dtype', type(data).__name__)}",
                help=f"make it with asarray, of one of {', '.join(map(str, DTYPES))}",
            )
        self._data = data if type(data) is np.ndarray else np.asarray(data)

    # Attributes

    @property
    def dtype(self) -> DType:
        """The element type."""
        return _BY_NUMPY[self._data.dtype]

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
        """The device that has the values: "cpu"."""
        return DEVICE

    @property
    def T(self) -> Array:  # noqa: N802 - the standard's name
        """The matrix with rows and columns exchanged. Raises `ShapeError` for what is not of rank 2."""
        if self.ndim != 2:
            raise ShapeError(f"T: an array of rank {self.ndim} is no matrix", help="x.mT transposes the last two axes")
        return self.mT

    def to_device(self, device: str, /, *, stream: object = None) -> Array:
        """The array on a device, which can only be "cpu". Raises `GraphError` for another and for a stream."""
        check_device("to_device", device)
        if stream is not None:
            raise GraphError("to_device: the cpu has no streams", help="leave stream out")
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

    def _scalar(self, wanted: str) -> Any:
        if self.ndim:
            raise DTypeError(f"{wanted}: an array of rank {self.ndim} is no scalar", help="take one element: x[0]")
        return self._data[()]

    def __bool__(self, /) -> bool:
        return bool(self._scalar("bool"))

    def __int__(self, /) -> int:
        return int(self._scalar("int"))

    def __float__(self, /) -> float:
        return float(self._scalar("float"))

    def __complex__(self, /) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self, /) -> int:
        value = self._scalar("index")
        if not self.dtype.is_integer:
            raise DTypeError(f"index: {self.dtype} is no integer", help="cast it: astype(x, int64)")
        return int(value)

    def __len__(self) -> int:
        if not self.ndim:
            raise DTypeError("len: a scalar has no first axis")
        return self.shape[0]

    def __iter__(self) -> Any:
        if not self.ndim:
            raise DTypeError("iter: a scalar has no first axis to go along")
        return (self[i] for i in range(self.shape[0]))

    __hash__ = None  # type: ignore[assignment]  # it can change, and == compares elements

    def __repr__(self) -> str:
        return f"Array({np.array2string(self._data, separator=', ', prefix='Array(')}, dtype={self.dtype})"

    def __str__(self) -> str:
        return str(self._data)

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (self._data,)

    def __copy__(self) -> Array:
        return Array(self._data.copy())

    def __deepcopy__(self, memo: object) -> Array:
        return Array(self._data.copy())

    def _describe(self) -> tuple[str, str, str]:
        return "", f"{self.dtype}{list(self.shape)}", ""

    # Operators and elements. `_operators` attaches them: each is the function of the namespace, so that Symbols, Arrays
    # and scalars mix in all orders.

    if TYPE_CHECKING:

        @property
        def mT(self) -> Array:  # noqa: N802 - the standard's name
            """The matrices with rows and columns exchanged. Raises `ShapeError` below rank 2."""

        def __array_namespace__(self, /, *, api_version: str | None = None) -> Any: ...
        def __getitem__(self, key: Any, /) -> Array: ...
        def __setitem__(self, key: Any, value: Any, /) -> None: ...
        def __contains__(self, item: object, /) -> bool: ...

        def _of_one(self, /) -> Array: ...
        @overload
        def _of_two(self, other: Symbol, /) -> Symbol: ...
        @overload
        def _of_two(self, other: Array | np.ndarray[Any, Any] | np.generic | bool | int | float, /) -> Array: ...
        def _of_two(self, other: Any, /) -> Any: ...
        def _in_place(self, other: Any, /) -> Array: ...

        __abs__ = __neg__ = __pos__ = __invert__ = _of_one
        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = _of_two
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rmatmul__ = _of_two
        __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = __imatmul__ = _in_place
        __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _of_two
        __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = _of_two
        __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = _in_place
        __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _of_two  # type: ignore[assignment]


def check_device(op: str, device: object) -> None:
    """Refuse a device that is not there."""
    if device is not None and device != DEVICE:
        raise GraphError(f"{op}: there is no device {device!r}", help='Arrays are on the device "cpu"')
