"""The constants and weights of a graph: scalars, vectors and casts are made once, so the same value is one Symbol."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays import casting
from graphcore.errors import DTypeError, GraphError
from graphcore.ir.emit import line_of_new, new_symbol
from graphcore.ir.literals import array_dtype, array_of, held_as, holds_numpy, python_dtype, scalar_array
from graphcore.ir.symbol import Constant, Symbol
from graphcore.promotion.system import Scalar
from graphcore.support.source_lines import user_origin
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph


class MadeOnce:
    """The Symbols of a graph that are found again where the same is asked for.

    values: constants by their value, and what ops make of a value once for all that read it, by keys of their own.
    casts: by the number of what is cast, the dtype, and whether that is only a default. implicit: what errors show in
    place of a cast that the user did not write, by the cast's number.
    """

    __slots__ = ("casts", "implicit", "values")

    def __init__(self) -> None:
        self.values: dict[Hashable, Symbol] = {}
        self.casts: dict[tuple[int, DType, bool], Symbol] = {}
        self.implicit: dict[int, Symbol] = {}

    def copy(self) -> MadeOnce:
        made = MadeOnce()
        made.values, made.casts, made.implicit = dict(self.values), dict(self.casts), dict(self.implicit)
        return made

    def keep_values(self, stays: Callable[[Symbol], bool]) -> None:
        """Forgets all values but those that stay."""
        self.values = {key: symbol for key, symbol in self.values.items() if stays(symbol)}

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """The Symbols have other numbers now."""
        self.casts = {(numbers[own], dtype, flag): s for (own, dtype, flag), s in self.casts.items()}
        self.implicit = {numbers[own]: s for own, s in self.implicit.items()}


def constant(graph: Graph, array: np.ndarray[Any, Any], dtype: DType, name: str | None = None) -> Symbol:
    """A constant of an array that is already right for `dtype` and that nobody else will change."""
    claimed = None if name is None else graph._names.claim(name, "constant")
    return new_symbol(graph, type_of(array, dtype), Constant(array, False, line_of_new(graph)), claimed)


def given_constant(graph: Graph, value: Any, dtype: object, name: str | None, ambiguous: bool) -> Symbol:
    """See `Graph.constant`."""
    if ambiguous and not graph.promotion.knows_ambiguous:
        raise GraphError(
            f"constant: in {graph.promotion} no dtype is ambiguous",
            help="leave it out, or build the graph with promotion='anvil' or 'kernel_float'",
        )
    array, own = array_of(value, dtype)
    default = own if holds_numpy(value) else python_dtype(array, own, graph.promotion)
    wanted = default if dtype is None else DType.of(dtype)
    if wanted is not own:
        array = held_as(array, own, wanted, "constant")
    if array is value or array.base is not None:
        array = array.copy()
    made = graph._constant(array, wanted, name)
    made.ambiguous = ambiguous
    return made


def given_weight(graph: Graph, name: str, array: Any, dtype: object) -> Symbol:
    """See `Graph.weight`."""
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"weight {name!r}: a {type(array).__name__} is no array", help="give a NumPy array: np.asarray(value)"
        )
    own = array_dtype(array, "weight", repr(name))
    wanted = own if dtype is None else DType.of(dtype)
    held = casting.native(array)
    if wanted is not own and not (wanted in (DType.index, DType.address) and own is DType.uint64):
        held = held_as(held, own, wanted, "weight")
    claimed = graph._names.claim(name, "weight")
    return new_symbol(graph, type_of(held, wanted), Constant(held, True, user_origin()), claimed)


def scalar(graph: Graph, value: Scalar, dtype: DType, ambiguous: bool = False) -> Symbol:
    """A scalar constant of a Python number that `dtype` holds; the same one is made once."""
    # 0.0 and -0.0 are equal, and so are 1 and True: neither pair is one constant.
    key = (dtype, type(value), value if value else str(value), ambiguous)
    values = graph._once.values
    found = values.get(key)
    if found is None:
        type_ = tensor_type(dtype, _shape(()), ambiguous)
        found = values[key] = new_symbol(graph, type_, Constant(scalar_array(value, dtype), False, None))
    return found


def vector(graph: Graph, values: Sequence[int]) -> Symbol:
    """An int64 constant, as ONNX takes axes, shapes and pads; the same one is made once."""
    key = ("vector", *values)
    found = graph._once.values.get(key)
    if found is None:
        array = np.array(values, np.int64)
        made = new_symbol(graph, type_of(array, DType.int64), Constant(array, False, None))
        found = graph._once.values[key] = made
    return found


def cast(graph: Graph, symbol: Symbol, dtype: DType, ambiguous: bool = False) -> Symbol:
    """`symbol` as `dtype`: itself if it is, a new constant of a constant, else a Cast node, made once."""
    own = symbol.type.dtype
    if own is dtype:
        return symbol
    key = (symbol.id, dtype, ambiguous)
    casts = graph._once.casts
    found = casts.get(key)
    if found is None:
        producer = symbol.producer
        type_ = tensor_type(dtype, symbol.type.shape, ambiguous)
        if type(producer) is Constant and not producer.is_weight:
            array = casting.cast_array(producer.array, own, dtype)
            found = new_symbol(graph, type_, Constant(array, False, producer.origin))
        else:
            found = graph._emit("Cast", (symbol,), type_, {"to": dtype})
        casts[key] = found
    return found


def type_of(array: np.ndarray[Any, Any], dtype: DType) -> TensorType:
    """The type of an array of values of a dtype."""
    return tensor_type(dtype, Shape(array.shape))


__all__ = ["MadeOnce", "cast", "constant", "given_constant", "given_weight", "scalar", "type_of", "vector"]
