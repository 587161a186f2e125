"""The eager array: values in memory, computed with by compiled graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.types.dtypes import DType

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
        """Where the values are: "cpu"."""
        return DEVICE

    @property
    def T(self) -> Array:  # noqa: N802 - the standard's name
        """The matrix with rows and columns exchanged. Raises `ShapeError` for what is not of rank 2."""
        if self.ndim != 2:
            raise ShapeError(f"T: an array of rank {self.ndim} is no matrix", help="x.mT transposes the last two axes")
        return self.mT

    @property
    def mT(self) -> Array:  # noqa: N802 - the standard's name
        """The matrices with rows and columns exchanged. Raises `ShapeError` below rank 2."""
        return _xp().matrix_transpose(self)  # type: ignore[no-any-return]

    def to_device(self, device: str, /, *, stream: object = None) -> Array:
        """The array on a device, which can only be "cpu". Raises `GraphError` for another and for a stream."""
        check_device("to_device", device)
        if stream is not None:
            raise GraphError("to_device: the cpu has no streams", help="leave stream out")
        return self

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The module with the standard's functions. Raises `GraphError` for an edition that it does not follow."""
        return namespace(api_version)

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

    def __contains__(self, item: object) -> bool:
        return bool(_xp().any(_xp().equal(self, item)))

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

    # Elements

    def __getitem__(self, key: Any, /) -> Array:
        index = _plain(key)
        if index is not None and len(index) == self.ndim and all(type(item) is int for item in index):
            _check_inside(index, self)
            return Array(self._data[index])
        from graphcore.array_api._indexing import getitem

        try:
            return getitem(self, key)  # type: ignore[no-any-return]
        except ShapeError as error:
            raise OutOfBounds(error.summary, operands={"x": self}, help=error.help) from None

    def __setitem__(self, key: Any, value: Any, /) -> None:
        from graphcore.array_api._indexing import setitem

        setitem(self, key, value)

    # Operators: each is the function of the namespace, so that Symbols, Arrays and scalars mix in all orders.

    def __abs__(self, /) -> Array:
        return _xp().abs(self)  # type: ignore[no-any-return]

    def __neg__(self, /) -> Array:
        return _xp().negative(self)  # type: ignore[no-any-return]

    def __pos__(self, /) -> Array:
        return _xp().positive(self)  # type: ignore[no-any-return]

    def __invert__(self, /) -> Array:
        return _xp().bitwise_invert(self)  # type: ignore[no-any-return]

    def __add__(self, other: Any, /) -> Any:
        return _binary("add", self, other)

    def __radd__(self, other: Any, /) -> Any:
        return _binary("add", other, self)

    def __iadd__(self, other: Any, /) -> Array:
        return _in_place("add", self, other)

    def __sub__(self, other: Any, /) -> Any:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Any, /) -> Any:
        return _binary("subtract", other, self)

    def __isub__(self, other: Any, /) -> Array:
        return _in_place("subtract", self, other)

    def __mul__(self, other: Any, /) -> Any:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Any, /) -> Any:
        return _binary("multiply", other, self)

    def __imul__(self, other: Any, /) -> Array:
        return _in_place("multiply", self, other)

    def __truediv__(self, other: Any, /) -> Any:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Any, /) -> Any:
        return _binary("divide", other, self)

    def __itruediv__(self, other: Any, /) -> Array:
        return _in_place("divide", self, other)

    def __floordiv__(self, other: Any, /) -> Any:
        return _binary("floor_divide", self, other)

    def __rfloordiv__(self, other: Any, /) -> Any:
        return _binary("floor_divide", other, self)

    def __ifloordiv__(self, other: Any, /) -> Array:
        return _in_place("floor_divide", self, other)

    def __mod__(self, other: Any, /) -> Any:
        return _binary("remainder", self, other)

    def __rmod__(self, other: Any, /) -> Any:
        return _binary("remainder", other, self)

    def __imod__(self, other: Any, /) -> Array:
        return _in_place("remainder", self, other)

    def __pow__(self, other: Any, /) -> Any:
        return _binary("pow", self, other)

    def __rpow__(self, other: Any, /) -> Any:
        return _binary("pow", other, self)

    def __ipow__(self, other: Any, /) -> Array:
        return _in_place("pow", self, other)

    def __and__(self, other: Any, /) -> Any:
        return _binary("bitwise_and", self, other)

    def __rand__(self, other: Any, /) -> Any:
        return _binary("bitwise_and", other, self)

    def __iand__(self, other: Any, /) -> Array:
        return _in_place("bitwise_and", self, other)

    def __or__(self, other: Any, /) -> Any:
        return _binary("bitwise_or", self, other)

    def __ror__(self, other: Any, /) -> Any:
        return _binary("bitwise_or", other, self)

    def __ior__(self, other: Any, /) -> Array:
        return _in_place("bitwise_or", self, other)

    def __xor__(self, other: Any, /) -> Any:
        return _binary("bitwise_xor", self, other)

    def __rxor__(self, other: Any, /) -> Any:
        return _binary("bitwise_xor", other, self)

    def __ixor__(self, other: Any, /) -> Array:
        return _in_place("bitwise_xor", self, other)

    def __lshift__(self, other: Any, /) -> Any:
        return _binary("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any, /) -> Any:
        return _binary("bitwise_left_shift", other, self)

    def __ilshift__(self, other: Any, /) -> Array:
        return _in_place("bitwise_left_shift", self, other)

    def __rshift__(self, other: Any, /) -> Any:
        return _binary("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any, /) -> Any:
        return _binary("bitwise_right_shift", other, self)

    def __irshift__(self, other: Any, /) -> Array:
        return _in_place("bitwise_right_shift", self, other)

    def __matmul__(self, other: Any, /) -> Any:
        return _binary("matmul", self, other)

    def __rmatmul__(self, other: Any, /) -> Any:
        return _binary("matmul", other, self)

    def __imatmul__(self, other: Any, /) -> Array:
        return _in_place("matmul", self, other)

    def __eq__(self, other: Any, /) -> Any:
        return _binary("equal", self, other)

    def __ne__(self, other: Any, /) -> Any:
        return _binary("not_equal", self, other)

    def __lt__(self, other: Any, /) -> Any:
        return _binary("less", self, other)

    def __le__(self, other: Any, /) -> Any:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Any, /) -> Any:
        return _binary("greater", self, other)

    def __ge__(self, other: Any, /) -> Any:
        return _binary("greater_equal", self, other)


def namespace(api_version: str | None = None) -> Any:
    """The module with the standard's functions. Raises `GraphError` for an edition that it does not follow."""
    module = _xp()
    if api_version is not None and api_version not in module.API_VERSIONS:
        raise GraphError(
            f"__array_namespace__: there is no edition {api_version!r}",
            help=f"use one of {', '.join(module.API_VERSIONS)}, or leave it out",
        )
    return module


def check_device(op: str, device: object) -> None:
    """Refuses a device that is not there."""
    if device is not None and device != DEVICE:
        raise GraphError(f"{op}: there is no device {device!r}", help='Arrays are on the device "cpu"')


def _xp() -> Any:
    from graphcore import array_api

    return array_api


_OPERANDS = (bool, int, float, np.ndarray)


def _binary(name: str, lhs: Any, rhs: Any) -> Any:
    from graphcore.ir.symbol import Symbol

    other = rhs if type(lhs) is Array else lhs
    if not isinstance(other, (Array, Symbol, *_OPERANDS)) or (name == "matmul" and isinstance(other, _OPERANDS[:3])):
        return NotImplemented
    return getattr(_xp(), name)(lhs, rhs)


def _in_place(name: str, array: Array, other: Any) -> Array:
    """array = name(array, other), in the same dtype and shape."""
    made = _binary(name, array, other)
    if made is NotImplemented or type(made) is not Array:
        return made  # type: ignore[no-any-return]
    if made.dtype is not array.dtype:
        raise DTypeError(
            f"{name}: in place, {array.dtype} would become {made.dtype}",
            operands={"x": array, "other": other},
            help="write x = x + y instead of x += y, or cast the other operand",
        )
    if made.shape != array.shape:
        raise ShapeError(
            f"{name}: in place, {list(array.shape)} would become {list(made.shape)}",
            operands={"x": array, "other": other},
            help="write x = x + y instead of x += y",
        )
    array._data = made._data
    return array


def _plain(key: Any) -> tuple[Any, ...] | None:
    """A key without arrays in it, as a tuple."""
    items = key if type(key) is tuple else (key,)
    return items if not any(isinstance(item, (Array, np.ndarray, list)) for item in items) else None


def _check_inside(index: tuple[int, ...], array: Array) -> None:
    for axis, (position, size) in enumerate(zip(index, array.shape, strict=True)):
        if not -size <= position < size:
            raise OutOfBounds(f"getitem: index {position} is outside of axis {axis}, which has {size} elements")
