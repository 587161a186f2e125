"""Graphs: inputs, constants, nodes and outputs, in the order of their creation."""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import DTypeError, GraphError
from graphcore.ir import emit
from graphcore.ir.buffers import Buffer, BufferValue
from graphcore.ir.builder import GraphBuilder
from graphcore.ir.literals import default_array
from graphcore.ir.names import Names, Output, checked_name
from graphcore.ir.scope import Scope
from graphcore.ir.state.attaching import Attached, Memory, attach, attach_late
from graphcore.ir.state.file_fields import FileFields
from graphcore.ir.state.frozen import CLOSED, Site, View, Weights, assignment_error
from graphcore.ir.state.settings import without_minima
from graphcore.ir.symbol import Constant, Node, Symbol, Symbols
from graphcore.promotion import PromotionSystem
from graphcore.promotion import system as promotion_system
from graphcore.promotion.rules import Scalar
from graphcore.support.source_lines import user_origin
from graphcore.types.tensor_types import (
    OpaqueType,
    OptionalType,
    SequenceType,
    SpelledType,
    TensorType,
    Type,
    known_type,
    tensor_type,
)

if TYPE_CHECKING:
    from graphcore.ir.attached import GraphMethods
else:
    GraphMethods = object


TargetName: TypeAlias = Literal["onnx", "cpu", "cuda", "openvino", "wasm", "webgpu"]
Precision: TypeAlias = Literal["exact", "fast"]
Optimize: TypeAlias = Literal["off", "exact", "all"]

_CLOSED, _set = frozenset(CLOSED["Graph"]), object.__setattr__

_current: contextvars.ContextVar[Graph | None] = contextvars.ContextVar("graphcore_graph", default=None)


def read_by(promotion: PromotionSystem, type_: Type) -> Type:
    """Return a declared type with the dtypes that a promotion system has for its spellings."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(read_by(promotion, type_.element))
    if isinstance(type_, SpelledType):
        dtype, is_default = promotion.read(type_.spelling)
        return tensor_type(dtype, type_.shape, type_.ambiguous or is_default)
    if isinstance(type_, TensorType) and type_.dtype in promotion.aliases:
        return tensor_type(promotion.aliases[type_.dtype], type_.shape, type_.ambiguous)
    return type_


class Graph(GraphMethods, metaclass=Attached):
    """A graph of typed operators, built once by writing expressions on its Symbols.

    Args:
        name: The name of the graph in the exported model.
        inputs: Types by name, or a list of types, which are named `input0`, `input1`, ... A `Buffer` declares an input
            that a Model keeps between calls.
        promotion: The name of a promotion system, or a `PromotionSystem`.
        strict: If True, implicit casts that cannot hold the range of their operand raise instead of warning.
        defaults: Values of inputs by name, which a call may omit. No pass takes them for constants.

    Raises:
        GraphError: A name is invalid or not unique, or a default belongs to no input that is a tensor.
        DTypeError: The dtype of an input cannot represent its default.
        ShapeError: A default has another shape than its input.

    Example:
        g = Graph("scale", {"x": TensorType(DType.float32, ["batch", 4])})
        g.output(g["x"] * 2)
    """

    if not TYPE_CHECKING:  # the signature is that of `__init__`

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
        defaults: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.name = name
        _set(self, "promotion", promotion_system(promotion))
        # The contents. Only `graphcore.ir` and `build.insert` write these; other code reads the views below.
        self._symbols: list[Symbol] = []
        self._nodes: list[Node] = []
        self._inputs: tuple[Symbol, ...] = ()
        self._outputs: list[Output] | None = None
        self._buffers: dict[str, BufferValue] = {}
        self._defaults: dict[str, Array] = {}
        # Internal, like everything that the documentation of the class leaves out.
        self.reference = weakref.ref(self)
        self.names = Names()
        self.watched: dict[str, Symbol] = {}  # the Symbols that `Symbol.print` marked, by label
        self.metadata: dict[str, str] = {}
        self.folded: dict[str, str] = {}  # weights that a pass turned into constants, with the name of the pass
        self.opsets: dict[str, int] = {}  # opset versions of other domains, from the imported model
        self.file_fields: FileFields | None = None
        self.source: object = None  # the model that the graph was read from, until a Symbol is renamed
        self.edits = 0  # the number of calls of `insert_transformation`, by which a Model detects changes
        self.site = Site()
        self.scope = Scope()
        self.memory: Memory[Symbol] = Memory()
        self.build = GraphBuilder(self)
        self.strict = strict
        if not isinstance(inputs, Iterable):
            raise GraphError(
                f"Graph: inputs must be a mapping of names to types, or a sequence of types, got {inputs!r}",
                help='give names: {"x": TensorType(DType.float32, ["batch", 4])}',
            )
        named = inputs.items() if isinstance(inputs, Mapping) else ((f"input{i}", t) for i, t in enumerate(inputs))
        for label, declared in named:
            type_ = declared.type if isinstance(declared, Buffer) else declared
            if not isinstance(type_, (TensorType, SequenceType, OptionalType, OpaqueType)):
                raise GraphError(
                    f"Graph: the type of input {label!r} must be a TensorType, got {type_!r}",
                    help="for example TensorType(DType.float32, ['batch', 4])",
                )
            type_ = read_by(self.promotion, type_)
            if isinstance(declared, Buffer) and isinstance(type_, TensorType) and type_ is not declared.type:
                declared = Buffer(type_.dtype, type_.shape, initial=declared.initial, in_place=declared.in_place)
            if not isinstance(declared, Buffer):
                type_ = without_minima(type_, self.metadata)
            symbol = self.build.input(type_, self.names.claim(checked_name(label, "input"), "input"), user_origin())
            if isinstance(declared, Buffer):
                self.build.buffer(label, declared, symbol)
        for label, value in defaults.items():
            owner = self.names.taken.get(label)
            if owner is None or label in self._buffers or not isinstance(owner.type, TensorType):
                raise GraphError(
                    f"Graph: the default {label!r} belongs to no input that is a tensor",
                    help="give the type of the input too: Graph(inputs={'a': type}, defaults={'a': array})",
                )
            self._defaults[label] = default_array(owner.type, label, value)

    name: str
    """The name in the exported model."""
    promotion: PromotionSystem
    """The promotion system of the graph."""
    strict: bool
    """True if implicit casts that lose range raise. A change applies to ops that are called afterwards."""

    if not TYPE_CHECKING:  # type checkers would let every attribute be assigned

        def __setattr__(self, name: str, value: object) -> None:
            if name in _CLOSED:
                raise assignment_error(self, "Graph", name)
            if name == "name":
                checked_name(value, "Graph")
            elif name == "strict":
                if not isinstance(value, (bool, np.bool_)):
                    raise GraphError(f"strict: must be a bool, got {value!r}", help="graph.strict = True, or False")
                self.memory.plans.clear()  # they may hold casts that are errors now
            _set(self, name, value)

        def __getattr__(self, name: str) -> Any:
            """Attach a method whose module is not imported yet."""
            attach_late(name)
            return object.__getattribute__(self, name)

    def __dir__(self) -> list[str]:
        return [*dir(type(self)), *vars(self)]

    # Contents

    @property
    def inputs(self) -> Symbols:
        """The input Symbols, in order and by name, `inputs["x"]`; an input declared as a Buffer is a BufferValue."""
        buffers = self._buffers
        inputs = [buffers.get(s.given_name or "", s) for s in self._inputs] if buffers else self._inputs
        return Symbols(inputs, kind="input")

    @property
    def input_symbols(self) -> tuple[Symbol, ...]:
        """The input Symbols, in order; for a buffer, the Symbol of its value at the start of a call."""
        return self._inputs

    @property
    def buffers(self) -> Mapping[str, BufferValue]:
        """The inputs that a Model keeps between calls, by name, as a view."""
        return MappingProxyType(self._buffers)

    @property
    def defaults(self) -> Mapping[str, Array]:
        """The values of the inputs that a call may omit, by name, as a view."""
        return MappingProxyType(self._defaults)

    @property
    def outputs(self) -> Symbols:
        """The output Symbols, in order and by name, `outputs["y"]`; empty before `output` is called."""
        outputs = self._outputs or ()
        return Symbols([symbol for _, symbol in outputs], tuple([name or symbol.name for name, symbol in outputs]))

    @property
    def named_outputs(self) -> Sequence[Output]:
        """The outputs, in order, as pairs of name and Symbol; the name is None if `output` got none."""
        return tuple(self._outputs or ())

    @property
    def output_types(self) -> dict[str, Type]:
        """The types of the outputs by name. Ambiguous dtypes are final here."""
        return {name or s.name: known_type(s.type) for name, s in self._outputs or ()}

    @property
    def nodes(self) -> View[Node]:
        """The nodes in the order of their creation, which is a topological order, as a view."""
        return View(self._nodes)

    @property
    def symbols(self) -> View[Symbol]:
        """All Symbols, indexed by `Symbol.id`, as a view."""
        return View(self._symbols)

    @property
    def weights(self) -> Mapping[str, Symbol]:
        """The weights by name, in a read-only dict. See `with_weights`."""
        return Weights({s.name: s for s in self._symbols if isinstance(s.producer, Constant) and s.producer.is_weight})

    def __getitem__(self, key: int | str) -> Symbol:
        """Return an input by position, or a Symbol by name.

        Args:
            key: The name of an input, weight, Symbol or output, or a generated name as printed, such as "mul_2".

        Raises:
            GraphError: Nothing in the graph has that name.
        """
        if isinstance(key, str):
            if key in self._buffers:
                return self._buffers[key]
            symbol = self.names.find(key, self._symbols, self.named_outputs)
            if symbol is None:
                where = next((f"{n.outputs[0].name}, {k}" for n, k, body in self._bodies() if body._has(key)), "")
                if where:
                    raise GraphError(
                        f"graph[{key!r}]: it is a value inside of a body of graph {self.name!r}: {where}",
                        help="return it from the function of the body, and use the result of cond or of the loop",
                    )
                raise self.names.unknown(f"graph[{key!r}]", key, self._symbols, self.named_outputs)
            return symbol
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
        """Return True if a Symbol or output of the graph, or of one of its bodies, has that name."""
        symbol = self.names.find(name, self._symbols, self.named_outputs)
        return symbol is not None or any(body._has(name) for _, _, body in self._bodies())

    # Constants

    def constant(self, value: Any, dtype: object = None, *, name: str | None = None, ambiguous: bool = False) -> Symbol:
        """Add a constant.

        Args:
            value: A NumPy or ml_dtypes array, a Python scalar, or nested lists of scalars. It is copied.
            dtype: The dtype of the constant. By default that of the array; for Python numbers the default of the
                promotion system, usually bool, int64 or float32.
            name: The name of the constant.
            ambiguous: If True, the dtype gives way to an operand with a definite dtype (systems "anvil" and "jax"), or
                to any other operand ("kernel_float").

        Raises:
            DTypeError: `dtype` cannot represent an element. Ints must be exact; floats may be rounded, not overflow.
            GraphError: `ambiguous` is True and the promotion system has no ambiguous dtypes.
        """
        return emit.make_constant(self, value, dtype, name, ambiguous)

    def scalar(
        self, value: Scalar | np.generic, dtype: object = None, rank: int = 0, *, ambiguous: bool = False
    ) -> Symbol:
        """Add a constant of one element with `rank` dims of size 1. Raises as `constant` does."""
        array = np.reshape(np.asarray(value), (1,) * rank)
        return self.constant(array if isinstance(value, np.generic) else array.tolist(), dtype, ambiguous=ambiguous)

    def vector(self, values: Sequence[Scalar], dtype: object = None) -> Symbol:
        """Add a constant of shape [len(values)].

        Raises:
            DTypeError: If `dtype` cannot represent a value.
        """
        return self.constant(list(values), dtype)

    def weight(self, name: str, array: Any, dtype: object = None) -> Symbol:
        """Add a weight: a named tensor whose array is kept by reference.

        Args:
            name: The name of the weight in the graph and in the exported model.
            array: A NumPy or ml_dtypes array, which may be memory-mapped. A C-contiguous array of `dtype` is not
                copied: its values are read when the graph is exported or loaded.
            dtype: The dtype of the weight, by default that of the array.

        Raises:
            GraphError: The name is in use.
            DTypeError: `dtype` cannot represent an element.
        """
        return emit.make_weight(self, name, array, dtype)

    # Operators

    @contextmanager
    def layer(self, name: str) -> Iterator[str]:
        """Prefix the names of new nodes with the path of a layer, `outer/name/...`.

        A layer that is entered again under the same name gets a number: `block`, `block_1`.

        Returns:
            The path.
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
        """The path of the current layer, "" outside of all layers."""
        return self.build.innermost().site.layer.rstrip("/")

    def output(self, *symbols: Symbol | Sequence[Symbol], **named: Symbol) -> None:
        """Set the outputs, once. Positional outputs keep the name of their Symbol; keywords name the others.

        Raises:
            GraphError: A Symbol belongs to another graph, a name is in use, or the outputs are set already.
        """
        if self._outputs is not None:
            raise GraphError(
                f"output: graph {self.name!r} has its outputs already",
                operands={name or f"output {i}": s for i, (name, s) in enumerate(self._outputs)},
                help="pass all outputs in one call; graph.with_outputs(...) returns a new graph with other outputs",
            )
        if not self.scope.is_open:
            raise GraphError(
                f"output: graph {self.name!r} has a body under construction, or is itself a finished body",
                help="return the results of a body from its function, and set the outputs afterwards",
            )
        if not symbols and not named:
            raise GraphError("output: expected at least one Symbol", help="graph.output(y), or graph.output(name=y)")
        outputs: list[tuple[str | None, Symbol]] = []
        flat: list[Any] = [*symbols[0]] if len(symbols) == 1 and isinstance(symbols[0], (tuple, list)) else [*symbols]
        for label, value in [*((None, s) for s in flat), *named.items()]:
            if not isinstance(value, Symbol):
                raise _not_an_output(value, label or "value")
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
        """Return the graph of the innermost `with graph:`.

        Raises:
            GraphError: Outside of one.
        """
        graph = _current.get()
        if graph is None:
            raise GraphError("there is no current graph", help="enter one: with graph: ...")
        return graph if graph.scope.is_open else graph.build.innermost()


def _not_an_output(value: object, label: str) -> DTypeError:
    fix = "pass Symbols: graph.output(name=y); graph.constant(value) makes one of a number or an array"
    if isinstance(value, Mapping):
        fix = "pass a dict as keywords: graph.output(**outputs), as in graph.output(name=y)"
    return DTypeError(f"output: {label} has unsupported type {type(value).__name__}", operands={label: value}, help=fix)
