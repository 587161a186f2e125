"""Compute functions over Symbols on eager arrays: traced once for each signature, cached, and run."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore.arrays.eager_array import EagerArray
from graphcore.build.pytree import Structure, rebuilt, structure_of
from graphcore.errors import DTypeError, GraphcoreError, RunError
from graphcore.ir.graph import Graph
from graphcore.ir.state import settings
from graphcore.ir.symbol import Symbol
from graphcore.promotion.system import PromotionSystem
from graphcore.types.dtypes import is_wide
from graphcore.types.tensor_types import DimLike, TensorType

if TYPE_CHECKING:
    from graphcore.runtime.session import InferenceSession


Values: TypeAlias = "np.ndarray[Any, Any]"

CallStructure: TypeAlias = tuple[Structure, ...]
"""The nesting of the arguments of a call without operands: positional and named ones."""

KEPT = 512
"""The number of cached compiled functions: the last used ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Eager:
    """A kind of eager arrays, and how functions over Symbols compute on them.

    promotion: the system of the graphs. kind_of: the property of an operand that, with its shape, determines the type
    of its input. type_of: that type, from the kind and the dims. convert: makes an eager array of a result's values and
    the type of its Symbol.
    """

    promotion: PromotionSystem
    kind_of: Callable[[Any], Hashable]
    type_of: Callable[[Any, Iterable[DimLike]], TensorType]
    convert: Callable[[Values, TensorType], Any]


def split_operands(
    body: Callable[..., Any], arguments: Any, named: Any, operands: list[Any], is_operand: Callable[[Any], bool]
) -> CallStructure:
    """Return the nesting of the arguments of a call, and append the operands among them to `operands`."""
    place = f"{body.__name__}: argument "
    return tuple([structure_of(part, is_operand, operands, place, "", DTypeError) for part in (arguments, named)])


def call_with(body: Callable[..., Any], structure: CallStructure, operands: Sequence[Any]) -> Any:
    """Call the function with operands inserted in its arguments."""
    taken = iter(operands)
    arguments, named = [rebuilt(part, taken) for part in structure]
    return body(*arguments, **named)


# Compiled functions

_Compiled: TypeAlias = "tuple[Callable[..., list[Any]], Callable[[list[Any]], Any]]"

_refused: OrderedDict[Hashable, None] = OrderedDict()
"""Signatures that can only be traced with known sizes."""
_lock = threading.RLock()


def run(
    eager: Eager, body: Callable[..., Any], operands: list[Any], structure: CallStructure, *, static: bool = False
) -> Any:
    """Return the results of a function over Symbols for operands and other arguments, as eager arrays.

    operands: eager arrays and NumPy arrays. static: trace with the sizes of all axes, rather than with names for those
    above 1.
    """
    arrays = [value._data if isinstance(value, EagerArray) else value for value in operands]
    kinds = [eager.kind_of(value) for value in operands]
    own = _pattern(kinds, arrays)
    if not static and (eager, body, own, structure) not in _refused:
        try:
            model, rebuild = compiled_for(eager, body, own, structure)
            return rebuild(model(*arrays))
        except GraphcoreError as error:
            # If building or running fails without sizes, sizes are tried: that works, or raises a clearer error.
            if not isinstance(error, RunError):
                with _lock:
                    _refused[eager, body, own, structure] = None
                    if len(_refused) > KEPT:
                        _refused.popitem(last=False)
    own = tuple([(kind, array.shape) for kind, array in zip(kinds, arrays, strict=True)])
    model, rebuild = compiled_for(eager, body, own, structure)
    return rebuild(model(*arrays))


def _pattern(kinds: list[Hashable], arrays: list[Values]) -> tuple[Hashable, ...]:
    """Kinds and shapes: sizes 0 and 1 unchanged, others as names, the same for equal sizes.

    Whether two sizes are equal may decide which nodes are needed. Sizes that do not match fail while building.
    """
    names: dict[int, int | str] = {0: 0, 1: 1}
    return tuple(
        [
            (kind, tuple([names.setdefault(n, f"n{len(names) - 2}") for n in array.shape]))
            for kind, array in zip(kinds, arrays, strict=True)
        ]
    )


def compiled_for(eager: Eager, body: Callable[..., Any], own: Any, structure: CallStructure) -> _Compiled:
    """Return the compiled function for operands of these kinds and dims, and the function that builds its result."""
    with _lock:  # each function is traced once
        return _trace(eager, body, own, structure, settings.current.get())


@functools.lru_cache(KEPT)
def _trace(eager: Eager, body: Callable[..., Any], own: Any, arguments: CallStructure, active: Hashable) -> _Compiled:
    """Trace a function and load its graph. active: the settings, under which the trace is used again."""
    types = {f"x{i}": eager.type_of(kind, shape) for i, (kind, shape) in enumerate(own)}
    graph = Graph(body.__name__.strip("_") or "function", types, promotion=eager.promotion)
    results: list[Any] = []
    with graph:
        result = call_with(body, arguments, graph.inputs)
        structure = structure_of(result, _is_symbol, results, f"{body.__name__}: result ")
    made_types = [symbol.type for symbol in results]

    def rebuild(arrays: list[Any]) -> Any:
        values = [eager.convert(array, type_) for array, type_ in zip(arrays, made_types, strict=True)]
        return rebuilt(structure, iter(values))

    if not results:
        return (lambda *arrays: []), rebuild  # a Model has outputs
    graph.output(*results)
    model = session().load(graph)
    if any(isinstance(t, TensorType) and is_wide(t.dtype) for t in made_types):
        return functools.partial(model.execute, wide="object"), rebuild
    return model, rebuild


def _is_symbol(value: object) -> bool:
    return isinstance(value, Symbol)


@functools.cache
def session() -> InferenceSession:
    """Return the session that all compiled functions share."""
    # Imported here so that graphs are built without onnxruntime. Hundreds of sessions, each with threads of its own,
    # would be thousands of threads: each computes in the thread that calls it.
    from graphcore.runtime.session import InferenceSession

    return InferenceSession(intra_op_num_threads=1)


# Tensors printed as anvil, a compiler of R programs, prints them.

_NAMES = {"bool": "pred", "float32": "f32", "float64": "f64"}
MAX_ROWS = 30
"""Maximum number of printed rows of a block, as many as R prints."""


def printed(values: np.ndarray[Any, Any], dtype: str) -> str:
    """Return the values in aligned columns, and their type: `[ CPUf32{2,3} ]`.

    Floats have four digits after the point, truth values are 1 and 0. As in the publication, a dtype that is only a
    default is not marked; `repr` marks it.
    """
    name = _NAMES.get(dtype) or dtype.replace("uint", "ui").replace("int", "i")
    kind = f"[ CPU{name}{{{','.join(map(str, values.shape))}}} ]"
    return "\n".join(("AnvilTensor", *_lines(values), kind))


def _lines(values: np.ndarray[Any, Any]) -> list[str]:
    if values.ndim > 2:
        lines = []
        for place in np.ndindex(values.shape[:-2]):
            lines += [f"({','.join(str(i + 1) for i in place)},.,.) =", *_lines(values[place])]
        return lines
    rows_of = values if values.ndim == 2 else values.reshape(-1, 1)
    cells = [[_cell(value) for value in row] for row in rows_of]
    width = max((len(cell) for row in cells for cell in row), default=0)
    rows = [" " + "  ".join(cell.rjust(width) for cell in row) for row in cells[:MAX_ROWS]]
    return rows if len(cells) <= MAX_ROWS else [*rows, f" ... [{len(cells) - MAX_ROWS} more rows]"]


def _cell(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    return f"{value:.4f}" if isinstance(value, (float, np.floating)) else str(value)
