"""Eager Arrays of the standard, computed by graphs that are traced once for each signature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

import numpy as np

from graphcore.arrays.eager_array import EagerArray
from graphcore.build.declare import run_eagerly
from graphcore.build.operands import graph_of, promote
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.literals import scalar_array
from graphcore.ir.symbol import Symbol
from graphcore.promotion.array_api import ArrayApi
from graphcore.promotion.rules import Key, NoPromotion, Operand, Rule
from graphcore.promotion.system import PromotionSystem
from graphcore.runtime.tracing.dispatch import Eager, call_with, compiled_for, run, split_operands
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

# The eager array: values in memory.

DTYPES: tuple[DType, ...] = tuple(
    DType.of(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
)
"""The dtypes of Arrays: those of the standard, and float16."""

_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES}


class Array(EagerArray):
    """An array of the standard with values in memory, from `asarray` and other creation functions.

    It has the operators, methods and attributes of the standard.
    """

    __slots__ = ()

    def __init__(self, data: np.ndarray[Any, Any] | np.generic) -> None:
        if not isinstance(data, (np.ndarray, np.generic)) or data.dtype not in _BY_NUMPY:
            raise DTypeError(
                f"Array: unsupported values of {getattr(data, 'dtype', type(data).__name__)}",
                help=f"use asarray, with one of {', '.join(map(str, DTYPES))}",
            )
        self._data = data if type(data) is np.ndarray else np.asarray(data)

    # Attributes

    @property
    def dtype(self) -> DType:
        """The element type."""
        return _BY_NUMPY[self._data.dtype]

    @property
    def T(self) -> Array:  # noqa: N802 - the standard's name
        """The transposed matrix.

        Raises:
            ShapeError: Unless the rank is 2.
        """
        if self.ndim != 2:
            raise ShapeError(
                f"T: the array must be a matrix, got rank {self.ndim}", help="x.mT transposes the last two axes"
            )
        return self.mT

    def __repr__(self) -> str:
        return f"Array({np.array2string(self._data, separator=', ', prefix='Array(')}, dtype={self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (self._data,)

    def __copy__(self) -> Array:
        return Array(self._data.copy())

    def __deepcopy__(self, memo: object) -> Array:
        return Array(self._data.copy())

    # Operators and indexing. `_indexing` attaches them: each is the function of the namespace, so that Symbols, Arrays
    # and scalars can be operands in any order.

    if TYPE_CHECKING:

        @property
        def mT(self) -> Array:  # noqa: N802 - the standard's name
            """The transposed matrices. Raises `ShapeError` below rank 2."""

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


# Python scalars take the dtype of the arrays.

PROMOTION = ArrayApi("2025.12 with float16")
"""The promotion system of Arrays."""
_SCALARS = frozenset({bool, int, float, complex})


def is_scalar(value: object) -> bool:
    return type(value) in _SCALARS


def as_arrays(op: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert scalars among Arrays to Arrays of their dtype, so that one graph serves all scalars.

    NumPy scalars become arrays of rank 0 with their own dtype.
    """
    if any(isinstance(value, np.generic) for value in values):
        values = tuple(np.asarray(value) if isinstance(value, np.generic) else value for value in values)
    kinds = [type(value) for value in values]
    if Symbol in kinds or Array not in kinds or not any(is_scalar(value) for value in values):
        return values
    dtype = join_dtypes(op, values)
    return tuple(Array(scalar_array(value, dtype)) if is_scalar(value) else value for value in values)


def join_dtypes(op: str, values: tuple[Any, ...], system: PromotionSystem = PROMOTION) -> DType:
    """Return the dtype that dtypes, Symbols, arrays and Python scalars promote to. Raises `PromotionError`."""
    operands = [_operand(value) for value in values if value is not None]
    try:
        return system.resolve(Key(op, "join"), operands).result
    except NoPromotion as refusal:
        raise refusal.error(f"{op}: {refusal.reason}", help=refusal.help) from None


def _operand(value: Any) -> Operand:
    if is_scalar(value):
        return Operand(None, literal=value)
    if isinstance(value, (Array, Symbol)):
        return Operand(value.dtype)
    return Operand(DType.of(value.dtype if isinstance(value, np.ndarray) else value))


def promote_pair(op: str, rule: Rule, x1: Any, x2: Any) -> tuple[Symbol, Symbol]:
    """Promote two operands to Symbols of their common dtype. Raises `PromotionError` and `DTypeError`."""
    (left, right), _ = promote(op, rule, {"x1": x1, "x2": x2})
    return left, right


Tensor: TypeAlias = Any
"""A Symbol or an Array; None if it is optional, and a number where scalars are accepted."""

_F = TypeVar("_F", bound=Callable[..., Any])

EAGER = Eager(
    PROMOTION,
    lambda value: (value._data if type(value) is Array else value).dtype,
    lambda dtype, shape: TensorType(DType.of(dtype), shape),
    lambda values, _: Array(values),
)
"""How eager functions handle Arrays."""


@overload
def function(body: _F, /) -> _F: ...
@overload
def function(*, static: bool = False, scalars: slice | None = None) -> Callable[[_F], _F]: ...
def function(body: Any = None, /, *, static: bool = False, scalars: slice | None = None) -> Any:
    """Make a function on Symbols accept Symbols, Arrays or both.

    body: builds with ops on Symbols and returns a Symbol, or a tuple, named tuple or list of them. Its operands are
    the Symbols, Arrays and NumPy arrays among its arguments, in lists and tuples too; all other arguments must be
    hashable, lists, tuples or slices. With a Symbol among the operands it builds in the graph of that Symbol, where
    Arrays are constants. With a Tensor among them it runs like ops on Tensors. With Arrays only it is traced once for
    each signature, and the results are Arrays. Without operands it is called directly. static: trace with the sizes of
    all axes, instead of names for sizes above 1. scalars: the positions of arguments that may be Python scalars, which
    `as_arrays` converts.
    """
    if body is None:
        return lambda wrapped: _function(wrapped, static=static, scalars=scalars)
    return _function(body, static=static, scalars=scalars)


def _function(body: _F, *, static: bool, scalars: slice | None) -> _F:
    @functools.wraps(body)
    def call(*arguments: Any, **named: Any) -> Any:
        if scalars is not None:
            converted = as_arrays(body.__name__, arguments[scalars])
            arguments = (*arguments[: scalars.start], *converted, *arguments[scalars.stop :])
        operands: list[Any] = []
        template = split_operands(body, arguments, named, operands, _is_operand)
        if any(type(value) is Symbol for value in operands):
            graph = graph_of(body.__name__, operands)
            symbols = [
                value if type(value) is Symbol else graph.build.operand(value, body.__name__, "x") for value in operands
            ]
            return call_with(body, template, symbols)
        if any(isinstance(value, EagerArray) and type(value) is not Array for value in operands):
            return run_eagerly(body, arguments, named)
        if not any(type(value) is Array for value in operands):
            return body(*arguments, **named)
        return run(EAGER, body, operands, template, static=static)

    return cast(_F, call)


def _is_operand(value: object) -> bool:
    kind = type(value)
    return kind is Array or kind is Symbol or kind is np.ndarray or isinstance(value, EagerArray)


def compute(body: Callable[..., Any], /, *arguments: Any) -> Any:
    """Call a function on Symbols with arguments that are not operands, and return the results as Arrays."""
    model, rebuild = compiled_for(EAGER, body, (), split_operands(body, arguments, {}, [], _is_operand))
    return rebuild(model())


def public(names: dict[str, Any]) -> list[str]:
    """Return the names of the functions that a module defines for the namespace, from its globals."""
    return [
        name
        for name, value in names.items()
        if getattr(value, "__module__", "") == names["__name__"] and not isinstance(value, type) and name[0] != "_"
    ]
