"""Arrays of the standard that have values: computed by graphs that are traced once for each signature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

import numpy as np

from graphcore.arrays.eager_array import EagerArray
from graphcore.build.declare import at_once
from graphcore.build.operands import graph_of, promote
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.literals import scalar_array
from graphcore.ir.symbol import Symbol
from graphcore.promotion.array_api import ArrayApi
from graphcore.promotion.rules import Key, NoPromotion, Operand, Rule, Scalar
from graphcore.promotion.system import PromotionSystem
from graphcore.runtime.tracing.dispatch import Eager, call_with, compiled_for, run, split_operands
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

# The eager array: values in memory, computed with by compiled graphs.

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


# Python scalars beside arrays: they take the arrays' dtype.

PROMOTION = ArrayApi("2025.12 with float16")
"""The promotion system that Arrays compute with."""

_SCALARS = (bool, int, float, complex)


def is_scalar(value: object) -> bool:
    return type(value) in _SCALARS


def as_arrays(op: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values, in which scalars beside Arrays are Arrays of their dtype: so one graph serves all scalars.

    Scalars of NumPy are arrays without axes, of their own dtype.
    """
    if any(isinstance(value, np.generic) for value in values):
        values = tuple(np.asarray(value) if isinstance(value, np.generic) else value for value in values)
    kinds = [type(value) for value in values]
    if Symbol in kinds or Array not in kinds or not any(is_scalar(value) for value in values):
        return values
    dtype = joined(op, values)
    return tuple(Array(scalar_array(value, dtype)) if is_scalar(value) else value for value in values)


def joined(op: str, values: tuple[Any, ...], system: PromotionSystem = PROMOTION) -> DType:
    """The dtype in which dtypes, Symbols, arrays and Python scalars meet. Raises `PromotionError`."""
    given = [_operand(value) for value in values if value is not None]
    try:
        return system.resolve(Key(op, "join"), given).result
    except NoPromotion as refusal:
        raise refusal.error(f"{op}: {refusal.reason}", help=refusal.help) from None


def _operand(value: Any) -> Operand:
    if is_scalar(value):
        return Operand(None, literal=_scalar(value))
    if isinstance(value, (Array, Symbol)):
        return Operand(value.dtype)
    return Operand(DType.of(value.dtype if isinstance(value, np.ndarray) else value))


def _scalar(value: Any) -> Scalar:
    assert isinstance(value, _SCALARS)
    return value


def met(op: str, rule: Rule, x1: Any, x2: Any) -> tuple[Symbol, Symbol]:
    """Two operands as Symbols of the dtype in which they meet. Raises `PromotionError` and `DTypeError`."""
    (left, right), _ = promote(op, rule, {"x1": x1, "x2": x2})
    return left, right


Tensor: TypeAlias = Any
"""A Symbol or an Array: what the caller has. Its absence is None, and where scalars are taken it may be a number."""

_F = TypeVar("_F", bound=Callable[..., Any])

EAGER = Eager(
    PROMOTION,
    lambda value: (value._data if type(value) is Array else value).dtype,
    lambda dtype, shape: TensorType(DType.of(dtype), shape),
    lambda values, _: Array(values),
)
"""Arrays, whose functions compute by the standard's promotion."""


@overload
def function(body: _F, /) -> _F: ...
@overload
def function(*, static: bool = False) -> Callable[[_F], _F]: ...
def function(body: Any = None, /, *, static: bool = False) -> Any:
    """Make a function over Symbols one over Symbols, Arrays or both.

    body: builds with ops on Symbols and returns a Symbol, or a tuple, named tuple or list of them. Its operands are
    the Symbols, Arrays and NumPy arrays among its arguments, in lists and tuples too; all other arguments must be
    hashable, lists, tuples or slices. With a Symbol among the operands it builds in that one's graph, where Arrays are
    constants; with a Tensor among them it is computed as ops on Tensors are; with Arrays alone it is traced once for
    each signature and run, and the results are Arrays. Without operands it is called as it is. static: trace with the
    sizes of all axes, rather than with names for those above 1.
    """
    if body is None:
        return lambda given: function(given) if not static else _function(given, static=True)
    return _function(body, static=static)


def _function(body: _F, *, static: bool) -> _F:
    @functools.wraps(body)
    def call(*arguments: Any, **named: Any) -> Any:
        found: list[Any] = []
        given = split_operands(body, arguments, named, found, _is_operand)
        if any(type(value) is Symbol for value in found):
            graph = graph_of(body.__name__, found)
            made = [
                value if type(value) is Symbol else graph.build.operand(value, body.__name__, "x") for value in found
            ]
            return call_with(body, given, made)
        if any(isinstance(value, EagerArray) and type(value) is not Array for value in found):
            return at_once(body, arguments, named)
        if not any(type(value) is Array for value in found):
            return body(*arguments, **named)
        return run(EAGER, body, found, given, static=static)

    return cast(_F, call)


def _is_operand(value: object) -> bool:
    kind = type(value)
    return kind is Array or kind is Symbol or kind is np.ndarray or isinstance(value, EagerArray)


def computed(body: Callable[..., Any], /, *arguments: Any) -> Any:
    """Return what a function over Symbols gives for arguments of which none is an operand, as Arrays."""
    model, rebuild = compiled_for(EAGER, body, (), split_operands(body, arguments, {}, [], _is_operand))
    return rebuild(model())
