"""Functions over Symbols that take Arrays as well: see `runtime.tracing.dispatch`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast, overload

import numpy as np

from graphcore.array_api._eager.array import Array
from graphcore.array_api._eager.scalars import PROMOTION
from graphcore.arrays.eager_array import EagerArray
from graphcore.build.declare import at_once
from graphcore.build.operands import graph_of
from graphcore.ir.symbol import Symbol
from graphcore.runtime.tracing.dispatch import Eager, called, compiled_for, run, taken_apart
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

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
        given = taken_apart(body, arguments, named, found, _is_operand)
        if any(type(value) is Symbol for value in found):
            graph = graph_of(body.__name__, found)
            made = [
                value if type(value) is Symbol else graph.build.operand(value, body.__name__, "x") for value in found
            ]
            return called(body, given, made)
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
    model, rebuild = compiled_for(EAGER, body, (), taken_apart(body, arguments, {}, [], _is_operand))
    return rebuild(model())
