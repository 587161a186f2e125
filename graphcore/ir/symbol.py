"""Symbols: the values of a graph, placeholders for tensors that exist when it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from graphcore.arrays.eager_array import EagerArray
from graphcore.errors import GraphError, SymbolError
from graphcore.ir.named import Named
from graphcore.ir.state.frozen import change, closed
from graphcore.operators import Trait, having
from graphcore.support.escaping import escaped
from graphcore.support.source_lines import Line, Origin, line_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph

    class BitFields(Protocol):
        """The type of `x.bits`."""

        def __getitem__(self, place: Any, /) -> Symbol: ...
        def __setitem__(self, place: Any, value: TensorLike, /) -> None: ...


TensorLike: TypeAlias = "Symbol | EagerArray | np.ndarray[Any, Any] | np.generic | Dim | bool | int | float | complex"


class Node:
    """One operator applied to Symbols. `domain` is the ONNX domain: "" is the default, "graphcore" the library's own.

    `graph.build.emit` creates nodes and sets the slots directly: calling `__init__` would be a fifth of the cost of a
    node. A node does not change afterwards, see `graphcore.ir.state.frozen`.
    """

    __slots__ = ("attributes", "domain", "inputs", "layer", "op_type", "origin", "outputs")

    op_type: str
    inputs: tuple[Symbol | None, ...]
    outputs: tuple[Symbol, ...]
    attributes: Mapping[str, Any]
    domain: str
    layer: str
    """The path of its layer with a trailing slash, or ""."""
    origin: Origin | Line | None

    def __init__(self, *args: object, **named: object) -> None:
        raise GraphError(
            "Node(): nodes cannot be created directly; ops create them in the graph of their operands",
            help="graph.op('Relu', [x]) emits any operator and returns its outputs",
        )

    if not TYPE_CHECKING:  # type checkers would let every attribute be assigned
        __setattr__, __delattr__ = closed("Node", "node")

    @property
    def line(self) -> Line | None:
        """The source line in user code that created it."""
        return line_of(self.origin)

    def _describe(self) -> tuple[str, str, str]:
        return self.op_type, "node", str(self.line or "")


class Constant:
    """The producer of a constant or weight Symbol. The array of a weight belongs to the caller and is never copied."""

    __slots__ = ("array", "is_weight", "origin")

    array: np.ndarray[Any, Any]
    is_weight: bool
    origin: Origin | Line | None

    def __init__(self, array: np.ndarray[Any, Any], is_weight: bool, origin: Origin | Line | None) -> None:
        _set_array(self, array)
        _set_is_weight(self, is_weight)
        _set_origin(self, origin)

    if not TYPE_CHECKING:
        __setattr__, __delattr__ = closed("Constant")


# The setters of the slots: an assignment would call `__setattr__`.
_set_array, _set_is_weight, _set_origin = [Constant.__dict__[slot].__set__ for slot in ("array", "is_weight", "origin")]


class Input:
    """The producer of an input Symbol: its position."""

    __slots__ = ("origin", "position")

    position: int
    origin: Origin | Line | None

    def __init__(self, position: int, origin: Origin | Line | None) -> None:
        change(self, position=position, origin=origin)

    if not TYPE_CHECKING:
        __setattr__, __delattr__ = closed("Constant")


class Captured:
    """The producer of a Symbol in the body of an If, Loop or Scan that refers to a Symbol of the outer graph."""

    __slots__ = ("symbol",)

    symbol: Symbol

    def __init__(self, symbol: Symbol) -> None:
        change(self, symbol=symbol)

    if not TYPE_CHECKING:
        __setattr__, __delattr__ = closed("Constant")

    @property
    def origin(self) -> Origin | Line | None:
        """The origin of that Symbol."""
        return self.symbol.producer.origin


class LastShape(threading.local):
    """The graph of the Symbol whose shape was read last in a thread. Dims are shared by graphs, so they cannot tell."""

    graph: Callable[[], Graph | None] = staticmethod(lambda: None)


last_shape = LastShape()


if TYPE_CHECKING:

    class TensorMethods:
        """The operators and methods that Symbols and eager Tensors have, for editors and type checkers."""

        def __add__(self, other: TensorLike) -> Self: ...
        def __radd__(self, other: TensorLike) -> Self: ...
        def __sub__(self, other: TensorLike) -> Self: ...
        def __rsub__(self, other: TensorLike) -> Self: ...
        def __mul__(self, other: TensorLike) -> Self: ...
        def __rmul__(self, other: TensorLike) -> Self: ...
        def __truediv__(self, other: TensorLike) -> Self: ...
        def __rtruediv__(self, other: TensorLike) -> Self: ...
        def __floordiv__(self, other: TensorLike) -> Self: ...
        def __rfloordiv__(self, other: TensorLike) -> Self: ...
        def __mod__(self, other: TensorLike) -> Self: ...
        def __rmod__(self, other: TensorLike) -> Self: ...
        def __divmod__(self, other: TensorLike) -> tuple[Self, Self]: ...
        def __rdivmod__(self, other: TensorLike) -> tuple[Self, Self]: ...
        def __pow__(self, other: TensorLike) -> Self: ...
        def __rpow__(self, other: TensorLike) -> Self: ...
        def __matmul__(self, other: TensorLike) -> Self: ...
        def __rmatmul__(self, other: TensorLike) -> Self: ...
        def __and__(self, other: TensorLike) -> Self: ...
        def __rand__(self, other: TensorLike) -> Self: ...
        def __or__(self, other: TensorLike) -> Self: ...
        def __ror__(self, other: TensorLike) -> Self: ...
        def __xor__(self, other: TensorLike) -> Self: ...
        def __rxor__(self, other: TensorLike) -> Self: ...
        def __lshift__(self, other: TensorLike) -> Self: ...
        def __rlshift__(self, other: TensorLike) -> Self: ...
        def __rshift__(self, other: TensorLike) -> Self: ...
        def __rrshift__(self, other: TensorLike) -> Self: ...
        def __eq__(self, other: TensorLike | str) -> Self: ...  # type: ignore[override]
        def __ne__(self, other: TensorLike | str) -> Self: ...  # type: ignore[override]
        def __lt__(self, other: TensorLike) -> Self: ...
        def __le__(self, other: TensorLike) -> Self: ...
        def __gt__(self, other: TensorLike) -> Self: ...
        def __ge__(self, other: TensorLike) -> Self: ...
        def __neg__(self) -> Self: ...
        def __pos__(self) -> Self: ...
        def __abs__(self) -> Self: ...
        def __invert__(self) -> Self: ...
        def __round__(self, digits: int = 0) -> Self: ...
        def __floor__(self) -> Self: ...
        def __ceil__(self) -> Self: ...
        def __trunc__(self) -> Self: ...
        def cast(self, dtype: object) -> Self: ...
        def bitcast(self, dtype: object) -> Self: ...
        def with_bits(self, high: int, low: int, value: TensorLike) -> Self: ...
        def conj(self) -> Self: ...
        def rebind(self, *shape: Any, message: str = "") -> Self: ...
        def reshape(self, *shape: Any, out_dims: Any = None) -> Self: ...
        def broadcast_to(self, *shape: Any, out_dims: Any = None) -> Self: ...
        def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self: ...
        def transpose(self, *axes: Any) -> Self: ...
        def permute(self, *axes: Any) -> Self: ...
        def swapaxes(self, axis1: int, axis2: int) -> Self: ...
        def squeeze(self, axis: Any) -> Self: ...
        def unsqueeze(self, axis: Any) -> Self: ...
        def sum(self, axis: Any = None, keepdims: bool = False) -> Self: ...
        def prod(self, axis: Any = None, keepdims: bool = False) -> Self: ...
        def mean(self, axis: Any = None, keepdims: bool = False) -> Self: ...
        def var(self, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Self: ...
        def stdev(self, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Self: ...
        def median(self, axis: Any = None, keepdims: bool = False) -> Self: ...
        def quantile(self, q: Any, axis: Any = None, keepdims: bool = False, method: Any = "linear") -> Self: ...
        def max(self, axis: Any = None, keepdims: bool = False) -> Self: ...
        def min(self, axis: Any = None, keepdims: bool = False) -> Self: ...
        def argmax(self, axis: int | None = None, keepdims: bool = False) -> Self: ...
        def argmin(self, axis: int | None = None, keepdims: bool = False) -> Self: ...

else:
    TensorMethods = object


class Symbol(TensorMethods):
    """A value of a Graph: a dtype and a shape at build time, a tensor when the graph runs.

    Python operators and the methods of the operator library build nodes. `Graph.inputs`, `Graph.constant` and ops
    create Symbols; the class cannot be called. Operators and methods are implemented beside the ops (`graphcore.ops`)
    and declared here for editors and type checkers.
    """

    __slots__ = ("__weakref__", "given_name", "graph", "id", "producer", "type")

    graph: Graph
    """The graph of the Symbol."""
    type: TensorType | Any
    """The TensorType. Any stands for a SequenceType, OptionalType or OpaqueType, which are rare: use isinstance."""
    producer: Node | Constant | Input | Captured
    """The node, constant, input or captured Symbol that produces the value."""
    id: int
    """The number of the Symbol in its graph, in the order of creation."""
    given_name: str | None
    """The explicit name, None if the name is generated."""

    def __init__(self, *args: object, **named: object) -> None:
        raise SymbolError(
            "Symbol(): Symbols cannot be created directly; they are values of a graph",
            help="take an input, Graph('name', {'x': TensorType(DType.float32, [4])})['x'], "
            "a constant, graph.constant(value), or the result of an op",
        )

    if not TYPE_CHECKING:
        __setattr__, __delattr__ = closed("Symbol")

    @property
    def dtype(self) -> DType:
        """The element type."""
        try:
            return self.type.dtype
        except AttributeError:
            raise GraphError(
                f"{self.type} is not a tensor and has no dtype", operands={"value": self}, help="use its .type"
            ) from None

    @property
    def shape(self) -> Shape:
        """The dims, outermost first."""
        try:
            shape: Shape = self.type.shape
        except AttributeError:
            raise GraphError(
                f"{self.type} is not a tensor and has no shape", operands={"value": self}, help="use its .type"
            ) from None
        last_shape.graph = self.graph.reference
        return shape

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self.shape)

    ndim = rank

    @property
    def ambiguous(self) -> bool:
        """True if the dtype is only a default that gives way to others, in promotion systems with such dtypes."""
        return getattr(self.type, "ambiguous", False)

    @property
    def tensor_type(self) -> TensorType:
        """The type.

        Raises:
            GraphError: If it is not a TensorType.
        """
        self.dtype  # noqa: B018 - raises if it is not a tensor
        return self.type

    @property
    def name(self) -> str:
        """The name in the graph and in the exported model: `given_name`, or generated from the operator and `id`."""
        if self.given_name is not None:
            return self.given_name
        producer = self.producer
        return producer.symbol.name if type(producer) is Captured else self.graph.names.automatic(self)

    @name.setter
    def name(self, name: str) -> None:
        self.graph.build.rename(self, name)

    @property
    def line(self) -> Line | None:
        """The source line in user code that created it."""
        return line_of(self.producer.origin)

    @property
    def is_constant(self) -> bool:
        """True for a constant or a weight."""
        return type(self.producer) is Constant

    __hash__ = object.__hash__

    def _error(self, summary: str, help: str) -> SymbolError:
        return SymbolError(summary, operands={"value": self}, help=help)

    def __bool__(self) -> NoReturn:
        fix = (
            "use ops.where(condition, a, b), or ops.cond(condition, then_fn, else_fn) for branches, & | ~ for and, or, "
            "not, and `is` to compare Symbols themselves"
        )
        if getattr(self.producer, "op_type", "") in _COMPARISONS:
            fix += "; simultaneous multi-way comparisons are not supported: write (a < b) & (b < c) for a < b < c"
        raise self._error("bool: a Symbol has no truth value while the graph is being built", fix)

    def __contains__(self, item: object) -> NoReturn:
        raise self._error(
            "in: the elements of a Symbol are not known while the graph is being built",
            "use ops.max(x == item) for a bool Symbol",
        )

    def __iter__(self) -> Iterator[Symbol]:
        if not self.rank:
            raise self._error(
                "iter: cannot iterate over a scalar, which has no axes",
                "use the Symbol itself, or add an axis: ops.unsqueeze(x, 0)",
            )
        first = self.shape[0]
        if not first.is_static:
            raise self._error(
                f"iter: the length of the first axis, {first}, is not known while the graph is being built",
                "work on the whole tensor, or make the dim static",
            )
        return (self[i] for i in range(int(first)))

    def __len__(self) -> int:
        if not self.rank or not self.shape[0].is_static:
            raise self._error(
                "len: the length of the first axis is not known while the graph is being built",
                "use x.shape[0] for the dim, ops.shape_of(x) for a Symbol",
            )
        return int(self.shape[0])

    def __setitem__(self, index: Any, value: Any) -> None:
        raise self._error(
            "setitem: Symbols are immutable",
            "compute a new one with ops.where or ops.scatter_nd, or use a buffer: ops.buffer_create(x)",
        )

    def _no_value(self, conversion: str) -> NoReturn:
        raise self._error(
            f"{conversion}: a Symbol has no value while the graph is being built",
            "make it an output of the graph, run the graph, and convert the result",
        )

    def __int__(self) -> int:
        self._no_value("int")

    def __index__(self) -> int:
        self._no_value("index")

    def __float__(self) -> float:
        self._no_value("float")

    def __complex__(self) -> complex:
        self._no_value("complex")

    if not TYPE_CHECKING:  # in NumPy's stubs, everything with __array__ is an operand of ndarray's operators

        def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
            self._no_value("array")

    def __copy__(self) -> Symbol:
        return self

    def __reduce__(self) -> tuple[Callable[..., Symbol], tuple[Graph, int]]:
        return _symbol_of, (self.graph, self.id)

    def __str__(self) -> str:
        return escaped(f"{self.name}: {self.type}")

    def __repr__(self) -> str:
        return f"<Symbol {self}>"

    def _describe(self) -> tuple[str, str, str]:
        operand = self.graph.memory.implicit.get(self.id)
        if operand is not None:
            return operand._describe()
        name = "" if self.given_name is None and self.is_constant else self.name
        return name, str(self.type), str(self.line or "")

    if TYPE_CHECKING:

        def __getitem__(self, index: Any) -> Symbol: ...
        @property
        def T(self) -> Symbol: ...  # noqa: N802 - NumPy's name
        @property
        def mT(self) -> Symbol: ...  # noqa: N802 - the array API's name
        @property
        def real(self) -> Symbol: ...
        @property
        def imag(self) -> Symbol: ...
        def __array_ufunc__(self, ufunc: Any, how: str, /, *inputs: Any, **options: Any) -> Any: ...
        def __array_function__(self, function: Any, types: Any, arguments: tuple[Any, ...], named: Any, /) -> Any: ...
        def __array_namespace__(self, /, *, api_version: str | None = None) -> Any: ...
        @property
        def size(self) -> int | None: ...
        @property
        def device(self) -> None: ...
        def to_device(self, device: object, /, *, stream: object = None) -> Symbol: ...
        @property
        def bits(self) -> BitFields:
            """The bits of an integer: `x.bits[3]` is a bool, `x.bits[7:4]` are bits 7 down to 4, both included."""

        def insert_transformation(self, transform: Callable[[Symbol], Symbol]) -> Symbol:
            """Replace the Symbol by `transform(self)` in all nodes that read it now."""

        def print(self, label: str = "debug_tensor") -> Symbol: ...
        def _repr_html_(self) -> str: ...
        def _repr_svg_(self) -> str: ...


_COMPARISONS = having(Trait.COMPARES)


class SymbolTuple(NamedTuple):
    """Two Symbols, as `implicit_cast` returns them."""

    lhs: Symbol
    rhs: Symbol


@dataclass(frozen=True, slots=True)
class Match:
    """A part of a graph that matches a pattern.

    Attributes:
        node: The node that computes the result.
        values: The matched Symbols by the names of the pattern's parameters; None for parameters of alternatives that
            did not match.
        others: The matched Symbols of the other values that the pattern function returns.
        nodes: All matched nodes, in order.
    """

    node: Node
    values: Mapping[str, Symbol | None]
    others: tuple[Symbol, ...]
    nodes: tuple[Node, ...]

    @property
    def result(self) -> Symbol:
        """The result of the matched part."""
        return self.node.outputs[0]

    def __getitem__(self, name: str) -> Symbol | None:
        """Return the Symbol that matches a parameter. Raises `GraphError` if the pattern has no such parameter."""
        if name not in self.values:
            raise GraphError(
                f"the pattern has no parameter {name!r}",
                help=f"its parameters: {', '.join(map(repr, self.values)) or 'none, for it is an operator'}",
            )
        return self.values[name]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={'None' if s is None else s.name}" for name, s in self.values.items())
        return escaped(f"<Match of {self.node.op_type} {self.result.name!r}{': ' * bool(values)}{values}>")


def _symbol_of(graph: Graph, id: int) -> Symbol:
    return graph._symbols[id]


_Value = TypeVar("_Value")


def present(value: _Value | None) -> _Value:
    """Return an operand, or another value, that is known to be there."""
    assert value is not None
    return value


def root_of(symbol: Symbol) -> Symbol:
    """Return the Symbol of the outer graph that a captured Symbol stands for; the same Symbol if it is not captured."""
    while isinstance(symbol.producer, Captured):
        symbol = symbol.producer.symbol
    return symbol


def source_of(symbol: Symbol | None) -> Node | Constant | Input | None:
    """Return the producer of a Symbol; for a captured Symbol, that of the outer graph's Symbol."""
    producer = None if symbol is None else root_of(symbol).producer
    return None if isinstance(producer, Captured) else producer


class Symbols(Named[Symbol, "tuple[Symbol, ...]"], tuple[Symbol, ...]):
    """The inputs or outputs of a Graph: a tuple with access by name."""

    def __new__(cls, values: Iterable[Symbol], names: tuple[str, ...] | None = None, kind: str = "output") -> Symbols:
        symbols = super().__new__(cls, values)
        symbols._names, symbols._kind = names, kind
        return symbols

    def asdict(self) -> dict[str, Symbol]:
        """Return the Symbols by name."""
        return dict(zip(self.names, self, strict=True))
