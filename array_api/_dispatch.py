"""Functions over Symbols that take Arrays as well: traced once for each signature, kept, and run."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

import numpy as np

from graphcore.array_api._array import Array
from graphcore.array_api._scalars import PROMOTION
from graphcore.dtypes import DType
from graphcore.errors import DTypeError, GraphcoreError, RunError
from graphcore.graph import Graph
from graphcore.operands import graph_of
from graphcore.symbol import Symbol
from graphcore.types import TensorType

if TYPE_CHECKING:
    from graphcore.runtime import InferenceSession, Model

Tensor: TypeAlias = Any
"""A Symbol or an Array: what the caller has. Its absence is None, and where scalars are taken it may be a number."""

_F = TypeVar("_F", bound=Callable[..., Any])

KEPT = 512
"""How many compiled functions are kept: those used last."""


@overload
def function(body: _F, /) -> _F: ...
@overload
def function(*, static: bool = False) -> Callable[[_F], _F]: ...
def function(body: Any = None, /, *, static: bool = False) -> Any:
    """Makes a function over Symbols one over Symbols, Arrays or both.

    body: builds with ops on Symbols and returns a Symbol, or a tuple, named tuple or list of them. Its operands are
    the Symbols, Arrays and NumPy arrays among its arguments, in lists and tuples too; all other arguments must be
    hashable, lists, tuples or slices. With a Symbol among the operands it builds in that one's graph, where Arrays are
    constants; with Arrays alone it is traced once for each signature and run, and the results are Arrays. Without
    operands it is called as it is. static: trace with the sizes of all axes, rather than with names for those above 1.
    """
    if body is None:
        return lambda given: function(given) if not static else _function(given, static=True)
    return _function(body, static=static)


def _function(body: _F, *, static: bool) -> _F:
    @functools.wraps(body)
    def call(*arguments: Any, **named: Any) -> Any:
        found: list[Any] = []
        for value in arguments:
            _find(value, found)
        for value in named.values():
            _find(value, found)
        if not found:
            return body(*arguments, **named)
        if any(type(value) is Symbol for value in found):
            graph = graph_of(body.__name__, found)
            made = [value if type(value) is Symbol else graph._operand(value, body.__name__, "x") for value in found]
            arguments, named = _replaced((arguments, named), made)
            return body(*arguments, **named)
        if not any(type(value) is Array for value in found):
            return body(*arguments, **named)
        return _run(body, found, arguments, named, static=static)

    return cast(_F, call)


def _find(value: Any, found: list[Any]) -> None:
    """Appends the operands in an argument."""
    kind = type(value)
    if kind is Array or kind is Symbol or kind is np.ndarray:
        found.append(value)
    elif kind is tuple or kind is list:
        for item in value:
            _find(item, found)
    elif kind is slice:
        for item in (value.start, value.stop, value.step):
            _find(item, found)


def _replaced(value: Any, operands: list[Any]) -> Any:
    """The argument with its operands replaced, in order."""
    taken = iter(operands)

    def replace(value: Any) -> Any:
        kind = type(value)
        if kind is Array or kind is Symbol or kind is np.ndarray:
            return next(taken)
        if kind is tuple or kind is list:
            return kind(replace(item) for item in value)
        if kind is dict:
            return {name: replace(item) for name, item in value.items()}
        if kind is slice:
            return slice(replace(value.start), replace(value.stop), replace(value.step))
        return value

    return replace(value)


def _key(value: Any, op: str) -> Hashable:
    """What of an argument belongs to a signature: operands by their place, all else by its value."""
    kind = type(value)
    if kind is Array or kind is np.ndarray:
        return Array
    if kind is tuple or kind is list:
        return kind, tuple(_key(item, op) for item in value)
    if kind is dict:
        return tuple((name, _key(item, op)) for name, item in value.items())
    if kind is slice:
        return slice, _key(value.start, op), _key(value.stop, op), _key(value.step, op)
    if kind is float or kind is complex:  # by their text NaNs are equal, and zeros of two signs are not
        return kind, repr(value)
    try:
        hash(value)
    except TypeError:
        raise DTypeError(f"{op}: an argument is a {kind.__name__}", help="give an array, a number or a tuple") from None
    return kind, value


def computed(body: Callable[..., Any], /, *arguments: Any) -> Any:
    """What a function over Symbols gives for arguments of which none is an operand, as Arrays."""
    model, rebuild = _compiled_for(body, (), _key(arguments, body.__name__), arguments, {})
    return rebuild(model())


# Compiled functions

_Compiled: TypeAlias = "tuple[Model | Callable[..., list[Any]], Callable[[list[Any]], Any]]"

_compiled: OrderedDict[Hashable, _Compiled] = OrderedDict()
_refused: OrderedDict[Hashable, None] = OrderedDict()
"""Signatures that build only where all sizes are known."""
_lock = threading.RLock()


def _run(body: Callable[..., Any], found: list[Any], arguments: Any, named: Any, *, static: bool) -> Any:
    arrays = [value._data if type(value) is Array else value for value in found]
    own = _pattern(arrays)
    rest = _key((arguments, named), body.__name__)
    if not static and (body, own, rest) not in _refused:
        try:
            model, rebuild = _compiled_for(body, own, rest, arguments, named)
            return rebuild(model(*arrays))
        except GraphcoreError as error:
            # What cannot be built, or run, without sizes is tried with them: it works, or says better what is wrong.
            if not isinstance(error, RunError):
                with _lock:
                    _refused[body, own, rest] = None
                    if len(_refused) > KEPT:
                        _refused.popitem(last=False)
    own = tuple((array.dtype, array.shape) for array in arrays)
    model, rebuild = _compiled_for(body, own, rest, arguments, named)
    return rebuild(model(*arrays))


def _pattern(arrays: list[np.ndarray[Any, Any]]) -> tuple[Hashable, ...]:
    """Dtypes and shapes: sizes of 0 and 1 as they are, others by names, so that equal ones have one name.

    What does not go together is seen while building; that two sizes are equal may decide which nodes are needed.
    """
    names: dict[int, int | str] = {0: 0, 1: 1}
    return tuple(
        (array.dtype, tuple(names.setdefault(n, f"n{len(names) - 2}") for n in array.shape)) for array in arrays
    )


def _compiled_for(body: Callable[..., Any], own: Any, rest: Hashable, arguments: Any, named: Any) -> _Compiled:
    key = body, own, rest
    found = _compiled.get(key)
    with _lock:
        if found is None:
            found = _trace(body, own, arguments, named)
            _compiled[key] = found
            if len(_compiled) > KEPT:
                _compiled.popitem(last=False)
        elif key in _compiled:
            _compiled.move_to_end(key)
    return found


def _trace(body: Callable[..., Any], own: Any, arguments: Any, named: Any) -> _Compiled:
    types = {f"x{i}": TensorType(DType.of(dtype), shape) for i, (dtype, shape) in enumerate(own)}
    graph = Graph(body.__name__.strip("_") or "function", types, promotion=PROMOTION)
    positional, keywords = _replaced((arguments, named), list(graph.inputs))
    with graph:
        made = body(*positional, **keywords)
    results, rebuild = _structure(made)
    if not results:
        return _nothing, rebuild
    graph.output(*results)
    return _session().load(graph), rebuild


def _nothing(*arrays: Any) -> list[Any]:
    """In place of a Model without outputs."""
    return []


def _structure(made: Any) -> tuple[list[Symbol], Callable[[list[Any]], Any]]:
    """The Symbols that a function returned, and what makes Arrays of their values in the same structure."""
    if type(made) is Symbol:
        return [made], lambda arrays: Array(arrays[0])
    kind = type(made)
    if hasattr(kind, "_make"):
        return list(made), lambda arrays: kind._make(map(Array, arrays))
    return list(made), lambda arrays: kind(map(Array, arrays))


@functools.cache
def _session() -> InferenceSession:
    # Imported here so that graphs are built without onnxruntime. Hundreds of sessions, each with threads of its own,
    # would be thousands of threads: each computes in the thread that calls it.
    from graphcore.runtime import InferenceSession

    return InferenceSession(intra_op_num_threads=1)
