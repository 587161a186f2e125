"""Graphs: inputs, constants, nodes and outputs, in the order in which they were made."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir import emit
from graphcore.ir.buffers import Buffer, BufferValue
from graphcore.ir.builder import GraphBuilder
from graphcore.ir.names import Names, Output, checked_name
from graphcore.ir.scope import Scope
from graphcore.ir.state.attaching import Attached, Memory, attach
from graphcore.ir.state.frozen import CLOSED, Site, View, Weights, refused
from graphcore.ir.state.settings import without_minima
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.promotion import PromotionSystem
from graphcore.promotion import system as promotion_system
from graphcore.promotion.rules import Scalar
from graphcore.support.source_lines import user_origin
from graphcore.types.tensor_types import (
    ForeignType,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    known_type,
    tensor_type,
)

if TYPE_CHECKING:
    from graphcore.ir.attached import GraphMethods
else:
    GraphMethods = object


TargetName: TypeAlias = Literal["onnx", "cpu", "cuda", "openvino"]
Precision: TypeAlias = Literal["exact", "fast"]
Optimize: TypeAlias = Literal["off", "exact", "all"]

_CLOSED, _set = frozenset(CLOSED["Graph"]), object.__setattr__

_current: contextvars.ContextVar[Graph | None] = contextvars.ContextVar("graphcore_graph", default=None)


class Graph(GraphMethods, metaclass=Attached):
    """A graph of typed operators, built once by writing expressions on its Symbols.

    name: of the graph in the exported model. inputs: types by name, or a list of types (named `input0`, ...); a
    `Buffer` is one that a Model keeps between calls. promotion: a system's name or a `PromotionSystem`. strict:
    implicit casts that cannot hold the range of their operand raise instead of warning. Raises `GraphError` for names
    that are no names or not unique.

        g = Graph("scale", {"x": TensorType(DType.float32, ["batch", 4])})
        g.output(g["x"] * 2)
    """

    if not TYPE_CHECKING:  # takes what `__init__` takes

        def __new__(cls, *args: object, **named: object) -> Graph:
            attach()
            return super().__new__(cls)

    def __init__(
        self,
        name: str = "graph",
        inputs: Mapping[str, Type | Buffer] | Sequence[Type | Buffer] = (),
        *,
        promotion: str | PromotionSystem = "max",
        strict: bool = False,
    ) -> None:
        self.name = name
        _set(self, "promotion", promotion_system(promotion))
        # What it is made of. Only `graphcore.ir` and `build.insert` write these; others read the views below.
        self._symbols: list[Symbol] = []
        self._nodes: list[Node] = []
        self._inputs: tuple[Symbol, ...] = ()
        self._outputs: list[Output] | None = None
        self._buffers: dict[str, BufferValue] = {}
        # For the package alone, like all that has no place in the documentation of the class.
        self.names = Names()
        self.watched: dict[str, Symbol] = {}  # the Symbols that `Symbol.print` marked, by label
        self.metadata: dict[str, str] = {}
        self.folded: dict[str, str] = {}  # the weights that a pass made constants of, and which pass
        self.opsets: dict[str, int] = {}  # the versions of other domains that a model read from a file names
        self.edits = 0  # how often `insert_transformation` changed it, which a Model made of it has to know
        self.site = Site()
        self.scope = Scope()
        self.memory: Memory[Symbol] = Memory()
        self.build = GraphBuilder(self)
        self.strict = strict
        named = inputs.items() if isinstance(inputs, Mapping) else ((f"input{i}", t) for i, t in enumerate(inputs))
        for label, given in named:
            type_ = given.type if isinstance(given, Buffer) else given
            if not isinstance(type_, (TensorType, SequenceType, OptionalType, ForeignType)):
                raise GraphError(
                    f"Graph: the type of input {label!r} is {type_!r}",
                    help="give a TensorType: TensorType(DType.float32, ['batch', 4])",
                )
            if isinstance(type_, TensorType) and type_.dtype in self.promotion.aliases:
                type_ = tensor_type(self.promotion.aliases[type_.dtype], type_.shape, type_.ambiguous)
                if isinstance(given, Buffer):
                    given = Buffer(type_.dtype, type_.shape, initial=given.initial, in_place=given.in_place)
            if not isinstance(given, Buffer):
                type_ = without_minima(type_, self.metadata)
            made = self.build.input(type_, self.names.claim(checked_name(label, "input"), "input"), user_origin())
            if isinstance(given, Buffer):
                self.build.buffer(label, given, made)

    name: str
    """Its name in the exported model."""
    promotion: PromotionSystem
    """The promotion system that it was made with."""
    strict: bool
    """True where implicit casts that lose range raise. Counts for what is built from then on."""

    if not TYPE_CHECKING:  # who sees it lets every attribute be assigned

        def __setattr__(self, name: str, value: object) -> None:
            if name in _CLOSED:
                raise refused(self, "Graph", name)
            if name == "name":
                checked_name(value, "Graph")
            elif name == "strict":
                if not isinstance(value, (bool, np.bool_)):
                    raise GraphError(f"strict: {value!r} is no bool", help="graph.strict = True, or False")
                self.memory.plans.clear()  # of casts that were allowed
            _set(self, name, value)

    # What the graph is made of

    @property
    def inputs(self) -> tuple[Symbol, ...]:
        """The input Symbols, in order; what was declared as a Buffer is a BufferValue."""
        if self._buffers:
            return tuple(self._buffers.get(s.given_name or "", s) for s in self._inputs)
        return self._inputs

    @property
    def input_symbols(self) -> tuple[Symbol, ...]:
        """The input Symbols, in order, those of buffers as what the buffers hold at first."""
        return self._inputs

    @property
    def buffers(self) -> Mapping[str, BufferValue]:
        """The inputs that a Model keeps between calls, by name: a view."""
        return MappingProxyType(self._buffers)

    @property
    def outputs(self) -> tuple[Symbol, ...]:
        """The output Symbols, in order; empty before `output` was called."""
        return tuple(symbol for _, symbol in self._outputs or ())

    @property
    def named_outputs(self) -> Sequence[Output]:
        """The outputs, in order, each with the name that it was given, if it was."""
        return tuple(self._outputs or ())

    @property
    def output_types(self) -> dict[str, Type]:
        """The outputs' types by name. A dtype that is only a default stays, for nothing overrides it any more."""
        return {name or s.name: known_type(s.type) for name, s in self._outputs or ()}

    @property
    def nodes(self) -> View[Node]:
        """The nodes, in the order in which they were made, which is an order they can run in: a view, not a copy."""
        return View(self._nodes)

    @property
    def symbols(self) -> View[Symbol]:
        """All Symbols, by their numbers: a view, not a copy."""
        return View(self._symbols)

    @property
    def weights(self) -> Mapping[str, Symbol]:
        """The weights by name, in a dict that does not change: see `with_weights`."""
        return Weights({s.name: s for s in self._symbols if isinstance(s.producer, Constant) and s.producer.is_weight})

    def __getitem__(self, key: int | str) -> Symbol:
        """Return an input by position, or a Symbol by name.

        key: the name of an input or weight, one that was given to a Symbol or an output, or one that printing shows,
        such as "mul_2". Raises `GraphError` where there is none.
        """
        if isinstance(key, str):
            if key in self._buffers:
                return self._buffers[key]
            found = self.names.find(key, self._symbols, self.named_outputs)
            if found is None:
                where = next((f"{n.outputs[0].name}, {k}" for n, k, body in self._bodies() if body._has(key)), "")
                if where:
                    raise GraphError(
                        f"graph[{key!r}]: it is a value inside of a body of graph {self.name!r}: {where}",
                        help="return it from the function of the body, and use what cond or the loop gives",
                    )
                raise self.names.unknown(f"graph[{key!r}]", key, self._symbols, self.named_outputs)
            return found
        try:
            return self.inputs[key]
        except IndexError:
            raise GraphError(
                f"graph[{key}]: graph {self.name!r} has {len(self._inputs)} inputs", help="count them from 0"
            ) from None

    def _bodies(self) -> Iterator[tuple[Node, str, Graph]]:
        nodes = [node for node in self._nodes if node.attributes]
        return ((n, key, value) for n in nodes for key, value in n.attributes.items() if isinstance(value, Graph))

    def _has(self, name: str) -> bool:
        """Return whether something in the graph, or in a body of it, is called so."""
        found = self.names.find(name, self._symbols, self.named_outputs)
        return found is not None or any(body._has(name) for _, _, body in self._bodies())

    # Constants

    def constant(self, value: Any, dtype: object = None, *, name: str | None = None, ambiguous: bool = False) -> Symbol:
        """A value known now.

        value: a NumPy (or ml_dtypes) array, Python scalar or nested list of them, of any shape; it is copied.
        dtype: what to hold it as, by default the array's own (bool, int64 or float32 for Python numbers, if the
        promotion system says no other). ambiguous: the dtype gives way to a known one, in "anvil" and "jax", or to any
        that the constant meets, in "kernel_float". Raises `DTypeError` where an element cannot be held in `dtype` (ints
        exactly, floats rounded but not overflowed), `GraphError` for an ambiguous one in any other system.
        """
        return emit.given_constant(self, value, dtype, name, ambiguous)

    def scalar(
        self, value: Scalar | np.generic, dtype: object = None, rank: int = 0, *, ambiguous: bool = False
    ) -> Symbol:
        """A constant of one element, `rank` dims of 1. Raises as `constant` does."""
        made = np.reshape(np.asarray(value), (1,) * rank)
        return self.constant(made if isinstance(value, np.generic) else made.tolist(), dtype, ambiguous=ambiguous)

    def vector(self, values: Sequence[Scalar], dtype: object = None) -> Symbol:
        """A constant of shape [len(values)]. Raises `DTypeError` where `dtype` cannot hold one."""
        return self.constant(list(values), dtype)

    def weight(self, name: str, array: Any, dtype: object = None) -> Symbol:
        """A named tensor of known values, by reference.

        array: a NumPy or ml_dtypes array of any shape, memory-mapped ones included. It is not copied as long as it is
        C-contiguous and of `dtype` (by default its own): what it holds when the graph is exported or loaded counts.
        Raises `GraphError` for a name in use, `DTypeError` where `dtype` cannot hold an element.
        """
        return emit.given_weight(self, name, array, dtype)

    # Operators

    @contextmanager
    def layer(self, name: str) -> Iterator[str]:
        """Name nodes that are made inside after a layer: `outer/name/...`. Yields the whole path.

        A layer entered again under the same name gets a number: `block`, `block_1`.
        """
        checked_name(name, "layer")
        if not self.scope.is_open:
            with self.build.innermost().layer(name) as path:
                yield path
            return
        site = self.site
        path = outer = f"{site.layer}{name}"
        count = site.layers.get(outer, 0)
        if count:
            path = f"{outer}_{count}"
        site.layers[outer] = count + 1
        before, site.layer = site.layer, path + "/"
        try:
            yield path
        finally:
            site.layer = before

    @property
    def current_layer(self) -> str:
        """The path of the layer being built, "" outside of one."""
        return self.build.innermost().site.layer.rstrip("/")

    def output(self, *symbols: Symbol | Sequence[Symbol], **named: Symbol) -> None:
        """Set the outputs, once: positional ones keep their Symbol's name, named ones get theirs.

        Raises `GraphError` for Symbols of another graph, for names in use, and when called again.
        """
        if self._outputs is not None:
            raise GraphError(
                f"output: graph {self.name!r} has its outputs already",
                operands={name or f"output {i}": s for i, (name, s) in enumerate(self._outputs)},
                help="give all outputs in one call; graph.with_outputs(...) returns a new graph with others",
            )
        if not self.scope.is_open:
            raise GraphError(
                f"output: a body is being built in graph {self.name!r}, or it is a finished one",
                help="return what a body gives from its function, and set the outputs after it",
            )
        if not symbols and not named:
            raise GraphError("output: no Symbols given", help="graph.output(y), or graph.output(name=y)")
        outputs: list[tuple[str | None, Symbol]] = []
        flat: list[Any] = [*symbols[0]] if len(symbols) == 1 and isinstance(symbols[0], (tuple, list)) else [*symbols]
        for label, value in [*((None, s) for s in flat), *named.items()]:
            value = self.build.own(value, "output", label or "value")
            if label is not None:
                checked_name(label, "output")
            self.names.check_output(label, value)
            outputs.append((label, value))
        self._outputs = self.names.of_outputs(outputs)
        self.build.end_expressions([value for _, value in outputs])
        self.names.claim_outputs(self._outputs)

    # The graph as a whole

    def __repr__(self) -> str:
        return (
            f"<Graph {self.name!r}: {len(self._inputs)} inputs, {len(self._nodes)} nodes, {len(self.outputs)} outputs>"
        )

    def __enter__(self) -> Graph:
        self.__dict__.setdefault("_tokens", []).append(_current.set(self))
        return self

    def __exit__(self, *exception: object) -> None:
        _current.reset(self.__dict__["_tokens"].pop())

    @staticmethod
    def current() -> Graph:
        """The graph of the innermost `with graph:`. Raises `GraphError` outside of one."""
        graph = _current.get()
        if graph is None:
            raise GraphError("no graph is current", help="say which graph is meant: with graph: ...")
        return graph if graph.scope.is_open else graph.build.innermost()
