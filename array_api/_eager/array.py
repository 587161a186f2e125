"""The eager array: values in memory, computed with by compiled graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from graphcore.arrays.eager_array import EagerArray
from graphcore.errors import DTypeError, ShapeError
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
    DType.float16,
    DType.float32,
    DType.float64,
    DType.complex64,
    DType.complex128,
)
"""The dtypes of Arrays: the standard's, and float16, which the proposal that it grew from has."""

_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES}


class Array(EagerArray):
    """An array of the standard that holds its values. Made by `asarray` and the other creation functions.

    Its operators, methods and attributes are the standard's.
    """

    __slots__ = ()

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
    def T(self) -> Array:  # noqa: N802 - the standard's name
        """The matrix with rows and columns exchanged. Raises `ShapeError` for what is not of rank 2."""
        if self.ndim != 2:
            raise ShapeError(f"T: an array of rank {self.ndim} is no matrix", help="x.mT transposes the last two axes")
        return self.mT

    def __repr__(self) -> str:
        return f"Array({np.array2string(self._data, separator=', ', prefix='Array(')}, dtype={self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (self._data,)

    def __copy__(self) -> Array:
        return Array(self._data.copy())

    def __deepcopy__(self, memo: object) -> Array:
        return Array(self._data.copy())

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
