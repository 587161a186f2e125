"""Graphs: inputs, constants, nodes and outputs, in the order in which they were made."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir import emit
from graphcore.ir.buffers import Buffer, BufferValue, stored
from graphcore.ir.builder import GraphBuilder
from graphcore.ir.names import Names, Output, checked_name
from graphcore.ir.scope import Scope
from graphcore.ir.state.memory import Memory
from graphcore.ir.state.site import Site
from graphcore.ir.state.view import View
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.promotion import PromotionSystem
from graphcore.promotion import system as promotion_system
from graphcore.promotion.system import Scalar
from graphcore.support.source_lines import user_origin
from graphcore.types.tensor_types import (
    DimLike,
    ForeignType,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    known_type,
)

if TYPE_CHECKING:
    import onnx

    from graphcore.arrays.external_data import ExternalData


TargetName: TypeAlias = Literal["onnx", "cpu", "cuda", "openvino"]
Precision: TypeAlias = Literal["exact", "fast"]
Optimize: TypeAlias = Literal["off", "exact", "all"]

_current: contextvars.ContextVar[Graph | None] = contextvars.ContextVar("graphcore_graph", default=None)


class Graph:
    """A graph of typed operators, built once by writing expressions on its Symbols.

    name: of the graph in the exported model. inputs: types by name, or a list of types (named `input0`, ...); a
    `Buffer` is one that a Model keeps between calls. promotion: a system's name or a `PromotionSystem`. strict:
    implicit casts that cannot hold the range of their operand raise instead of warning. Raises `GraphError` for names
    that are no names or not unique.

        g = Graph("scale", {"x": TensorType(DType.float32, ["batch", 4])})
        g.output(g["x"] * 2)
    """

    def __init__(
        self,
        name: str = "graph",
        inputs: Mapping[str, Type | Buffer] | Sequence[Type | Buffer] = (),
        *,
        promotion: str | PromotionSystem = "max",
        strict: bool = False,
    ) -> None:
        self.name = checked_name(name, "Graph")
        self.promotion = promotion_system(promotion)
        self.strict = strict
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
        self.opsets: dict[str, int] = {}  # the versions of other domains that a model read from a file names
        self.edits = 0  # how often `insert_transformation` changed it, which a Model made of it has to know
        self.site = Site()
        self.scope = Scope()
        self.memory: Memory[Symbol] = Memory()
        self.build = GraphBuilder(self)
        named = inputs.items() if isinstance(inputs, Mapping) else ((f"input{i}", t) for i, t in enumerate(inputs))
        for label, given in named:
            type_ = given.type if isinstance(given, Buffer) else given
            if not isinstance(type_, (TensorType, SequenceType, OptionalType, ForeignType)):
                raise GraphError(
                    f"Graph: the type of input {label!r} is {type_!r}",
                    help="give a TensorType: TensorType(DType.float32, ['batch', 4])",
                )
            made = self.build.input(type_, self.names.claim(label, "input"), user_origin())
            if isinstance(given, Buffer):
                self.build.buffer(label, given, made)

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
        return self._outputs or ()

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
    def weights(self) -> dict[str, Symbol]:
        """The weights by name."""
        return {s.name: s for s in self._symbols if isinstance(s.producer, Constant) and s.producer.is_weight}

    def __getitem__(self, key: int | str) -> Symbol:
        """An input by position; an input, weight or named Symbol by name. Raises `GraphError` where there is none."""
        if isinstance(key, str):
            if key in self._buffers:
                return self._buffers[key]
            if key in self.names.taken:
                return self.names.taken[key]
            constants = ", ".join(repr(s.name) for s in self._inputs) or "none"
            raise GraphError(
                f"graph[{key!r}]: nothing in graph {self.name!r} is called so", help=f"its inputs: {constants}"
            )
        try:
            return self.inputs[key]
        except IndexError:
            raise GraphError(
                f"graph[{key}]: graph {self.name!r} has {len(self._inputs)} inputs", help="count them from 0"
            ) from None

    # Constants

    def constant(self, value: Any, dtype: object = None, *, name: str | None = None, ambiguous: bool = False) -> Symbol:
        """A value known now.

        value: a NumPy (or ml_dtypes) array, Python scalar or nested list of them, of any shape; it is copied.
        dtype: what to hold it as, by default the array's own (bool, int64 or float32 for Python numbers, if the
        promotion system says no other). ambiguous: the dtype gives way to a known one, in "anvil", or to any that the
        constant meets, in "kernel_float". Raises `DTypeError` where an element cannot be held in `dtype` (ints
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
                help="give all outputs in one call, or build on graph.copy()",
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
            self.names.check_output(label, value)
            outputs.append((label, value))
        self._outputs = self.names.of_outputs(outputs)
        self.build.end_expressions([value for _, value in outputs])
        self.names.claim_outputs(self._outputs)

    # The graph as a whole

    def verify(self) -> None:
        """Check that the graph is complete and sound. Raises `GraphError` that says what is not."""
        if not self._outputs and not stored(self):
            raise GraphError(f"graph {self.name!r} has no outputs", help="say what it computes: graph.output(y)")
        for node in self._nodes:
            made = node.outputs[0].id if node.outputs else len(self._symbols)
            for symbol in node.inputs:
                if symbol is not None and (symbol.id >= made or symbol.graph is not self):
                    raise GraphError(
                        f"{node.op_type}: an operand is used before it is made", operands={"operand": symbol}
                    )

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

    if TYPE_CHECKING:  # attached by `graph_methods`, which knows what stands above a graph

        def __setitem__(self, key: str, value: Any) -> None:
            """Store to a buffer: `graph["cache"] = value`, see `ops.buffer_store`."""

        def full(self, value: Scalar, shape: Sequence[DimLike], dtype: object = None) -> Symbol:
            """Return a tensor of `shape`, which may have named dims, with `value` everywhere. See `ops.full`."""

        def range(
            self, start: Any, stop: Any = None, step: Any = 1, *, dtype: object = None, out_dim: Any = None
        ) -> Symbol:
            """Return the numbers from `start` up to `stop`, `step` apart. See `ops.range`."""

        def op(
            self,
            op_type: str,
            inputs: Sequence[Symbol | np.ndarray[Any, Any] | Scalar | None] = (),
            attributes: Mapping[str, Any] | None = None,
            out_types: Sequence[Type] | None = None,
            *,
            domain: str = "",
        ) -> tuple[Symbol, ...]:
            """Emit any operator of any domain as it is: no promotion, no check of operands."""

        def subgraph(
            self, name: str, fn: Callable[..., Any], types: Mapping[str, Type] | Sequence[Type] = ()
        ) -> Callable[..., Any]:
            """Return a function of declared operands, traced now, to be called any number of times."""

        @staticmethod
        def load(
            source: str | os.PathLike[str] | bytes | onnx.ModelProto,
            *,
            implicit_casts: bool = False,
            promotion: str | PromotionSystem | None = None,
            external_data: ExternalData = "plain",
            external_data_root: str | os.PathLike[str] | None = None,
        ) -> Graph:
            """Read an ONNX model as a Graph."""

        def __call__(
            self,
            *operands: Any,
            implicit_casts: bool = False,
            as_function: bool = False,
            layer: str | None = None,
            **named: Any,
        ) -> Any:
            """Build this graph's nodes in the graph of the operands, on them."""

        def extract(self, inputs: Any = None, outputs: Any = ()) -> Graph:
            """Return a new graph of the part that computes some values from others."""

        def rename(
            self,
            names: Mapping[str, str] | None = None,
            *,
            values: Mapping[str, str] | None = None,
            dims: Mapping[str, str] | None = None,
        ) -> Graph:
            """Return a new graph with other names."""

        def with_dims(self, shapes: Mapping[str, Sequence[DimLike]] | None = None, **dims: DimLike) -> Graph:
            """Return a new graph whose inputs have other dims; everything in it is typed again."""

        def with_inputs(self, *inputs: str | Symbol, **more: Type | Buffer) -> Graph:
            """Return a new graph with these inputs, in this order."""

        def with_outputs(self, *outputs: str | Symbol, **named: str | Symbol) -> Graph:
            """Return a new graph with these outputs, in this order; what only others needed goes."""

        def with_constants(self, values: Mapping[str, Any] | None = None, **named: Any) -> Graph:
            """Return a new graph with constants in place of some inputs."""

        def with_weights(self, weights: Mapping[str, Any]) -> Graph:
            """Return a new graph with other arrays for some weights, by reference."""

        def copy(self) -> Graph:
            """Return an independent graph of the same nodes; arrays are shared. Its outputs may be set anew."""

        def optimize(
            self, passes: Sequence[str | Callable[[Graph], Graph]] | None = None, *, limit: int = 1 << 20
        ) -> Graph:
            """Return a new graph that computes the same with fewer nodes, bit for bit but for which NaN a NaN is."""

        def to_onnx(
            self,
            *,
            target: TargetName = "cpu",
            precision: Precision = "exact",
            inline: bool = False,
            optimize: Optimize | None = None,
            opset: int | None = None,
            ir_version: int | None = None,
            runtime: str | None = None,
        ) -> onnx.ModelProto:
            """Return the graph as an `onnx.ModelProto` with its weights inside."""

        def export(
            self,
            path: str | os.PathLike[str],
            *,
            target: TargetName = "cpu",
            precision: Precision = "exact",
            external_data: bool | None = None,
            inline: bool = False,
            optimize: Optimize | None = None,
            opset: int | None = None,
            ir_version: int | None = None,
            runtime: str | None = None,
        ) -> None:
            """Write the graph as an ONNX file, atomically: a whole file or none."""

        def __str__(self) -> str: ...
        def _repr_html_(self) -> str: ...
        def _repr_svg_(self) -> str: ...
