"""Functions over Symbols that take Arrays as well: traced once for each signature, kept, and run."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

import numpy as np

from graphcore.array_api._eager.array import Array
from graphcore.array_api._eager.scalars import PROMOTION
from graphcore.build.operands import graph_of
from graphcore.build.pytree import Structure, rebuilt, structure_of
from graphcore.errors import DTypeError, GraphcoreError, RunError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

if TYPE_CHECKING:
    from graphcore.runtime import InferenceSession, Model

Tensor: TypeAlias = Any
"""A Symbol or an Array: what the caller has. Its absence is None, and where scalars are taken it may be a number."""

_F = TypeVar("_F", bound=Callable[..., Any])

_Given: TypeAlias = tuple[Structure, ...]
"""The arguments of a call without their operands: those by position, and those by name."""

KEPT = 512
"""The number of compiled functions that are kept: those used last."""


@overload
def function(body: _F, /) -> _F: ...
@overload
def function(*, static: bool = False) -> Callable[[_F], _F]: ...
def function(body: Any = None, /, *, static: bool = False) -> Any:
    """Make a function over Symbols one over Symbols, Arrays or both.

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
        given = _taken_apart(body, arguments, named, found)
        if any(type(value) is Symbol for value in found):
            graph = graph_of(body.__name__, found)
            made = [
                value if type(value) is Symbol else graph.build.operand(value, body.__name__, "x") for value in found
            ]
            return _called(body, given, made)
        if not any(type(value) is Array for value in found):
            return body(*arguments, **named)
        return _run(body, found, given, static=static)

    return cast(_F, call)


def _is_operand(value: object) -> bool:
    kind = type(value)
    return kind is Array or kind is Symbol or kind is np.ndarray


def _taken_apart(body: Callable[..., Any], arguments: Any, named: Any, found: list[Any]) -> _Given:
    """Return how the arguments of a call are nested; the operands among them are appended to `found`."""
    place = f"{body.__name__}: argument "
    return tuple([structure_of(part, _is_operand, found, place, "", DTypeError) for part in (arguments, named)])


def _called(body: Callable[..., Any], given: _Given, operands: Sequence[Any]) -> Any:
    """The function, called with these operands in the places of those that were taken out."""
    taken = iter(operands)
    arguments, named = [rebuilt(part, taken) for part in given]
    return body(*arguments, **named)


def computed(body: Callable[..., Any], /, *arguments: Any) -> Any:
    """Return what a function over Symbols gives for arguments of which none is an operand, as Arrays."""
    model, rebuild = _compiled_for(body, (), _taken_apart(body, arguments, {}, []))
    return rebuild(model())


# Compiled functions

_Compiled: TypeAlias = "tuple[Model | Callable[..., list[Any]], Callable[[list[Any]], Any]]"

_compiled: OrderedDict[Hashable, _Compiled] = OrderedDict()
_refused: OrderedDict[Hashable, None] = OrderedDict()
"""Signatures that build only where all sizes are known."""
_lock = threading.RLock()


def _run(body: Callable[..., Any], found: list[Any], given: _Given, *, static: bool) -> Any:
    arrays = [value._data if type(value) is Array else value for value in found]
    own = _pattern(arrays)
    if not static and (body, own, given) not in _refused:
        try:
            model, rebuild = _compiled_for(body, own, given)
            return rebuild(model(*arrays))
        except GraphcoreError as error:
            # What cannot be built, or run, without sizes is tried with them: it works, or says better what is wrong.
            if not isinstance(error, RunError):
                with _lock:
                    _refused[body, own, given] = None
                    if len(_refused) > KEPT:
                        _refused.popitem(last=False)
    own = tuple((array.dtype, array.shape) for array in arrays)
    model, rebuild = _compiled_for(body, own, given)
    return rebuild(model(*arrays))


def _pattern(arrays: list[np.ndarray[Any, Any]]) -> tuple[Hashable, ...]:
    """Dtypes and shapes: sizes of 0 and 1 as they are, others by names, so that equal ones have one name.

    What does not go together is seen while building; that two sizes are equal may decide which nodes are needed.
    """
    names: dict[int, int | str] = {0: 0, 1: 1}
    return tuple(
        (array.dtype, tuple(names.setdefault(n, f"n{len(names) - 2}") for n in array.shape)) for array in arrays
    )


def _compiled_for(body: Callable[..., Any], own: Any, given: _Given) -> _Compiled:
    key = body, own, given
    found = _compiled.get(key)
    with _lock:
        if found is None:
            found = _trace(body, own, given)
            _compiled[key] = found
            if len(_compiled) > KEPT:
                _compiled.popitem(last=False)
        elif key in _compiled:
            _compiled.move_to_end(key)
    return found


def _trace(body: Callable[..., Any], own: Any, given: _Given) -> _Compiled:
    types = {f"x{i}": TensorType(DType.of(dtype), shape) for i, (dtype, shape) in enumerate(own)}
    graph = Graph(body.__name__.strip("_") or "function", types, promotion=PROMOTION)
    with graph:
        made = _called(body, given, graph.inputs)
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
