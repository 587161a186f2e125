"""Graphs: inputs, constants, nodes and outputs, in the order in which they were made."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir import constants, emit, scope
from graphcore.ir.buffers import Buffer, BufferValue, stored, value_of
from graphcore.ir.names import Names, checked_name
from graphcore.ir.symbol import Constant, Input, Node, Symbol
from graphcore.promotion import PromotionSystem
from graphcore.promotion import system as promotion_system
from graphcore.promotion.system import Scalar
from graphcore.support.source_lines import Line, Origin, user_origin
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

    from graphcore.build.functions import Subgraph

Target: TypeAlias = Literal["onnx", "cpu", "cuda", "openvino"]
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
        self._symbols: list[Symbol] = []
        self._nodes: list[Node] = []
        self._inputs: tuple[Symbol, ...] = ()
        self._outputs: list[tuple[str | None, Symbol]] | None = None
        self._names = Names()
        self._buffers: dict[str, BufferValue] = {}
        self._watched: dict[str, Symbol] = {}  # what `Symbol.print` marked, by label
        self._metadata: dict[str, str] = {}
        self._domains: dict[str, int] = {}  # the versions of other domains that a model read from a file names
        self._read = 0  # how many of its first nodes are those of a model that others wrote
        self._edits = 0  # how often it was changed by inserting nodes, which a Model that was made of it has to know
        # Its place among graphs
        self._outer: Graph | None = None  # the graph whose node has this one as a body
        self._inner: Graph | None = None  # the body that is being built in it; a body that is finished has itself
        self._captured: dict[int, Symbol] = {}  # what stands in a body for a Symbol of the graph around it, by number
        # What building knows
        self._is_written = True  # by a user: what is made then belongs to the user's line, else to `_origin`
        self._origin: Origin | Line | None = None
        self._layer = ""
        self._layers: dict[str, int] = {}
        self._plans: dict[Any, Any] = {}  # what promotion and shape rules answered, by op and operand types
        self._once = constants.MadeOnce()
        self._expressions: dict[int, Any] = {}  # what Symbols that a longer expression may yet swallow are made of
        self._result_type = self.promotion.result_type
        named = inputs.items() if isinstance(inputs, Mapping) else ((f"input{i}", t) for i, t in enumerate(inputs))
        for position, (label, given) in enumerate(named):
            type_ = given.type if isinstance(given, Buffer) else given
            if not isinstance(type_, (TensorType, SequenceType, OptionalType, ForeignType)):
                raise GraphError(
                    f"Graph: the type of input {label!r} is {type_!r}",
                    help="give a TensorType: TensorType(DType.float32, ['batch', 4])",
                )
            made = self._symbol(type_, Input(position, user_origin()), self._names.claim(label, "input"))
            self._inputs += (made,)
            if isinstance(given, Buffer):
                self._buffers[label] = value_of(self, given, made, label)

    # What the graph is made of

    @property
    def inputs(self) -> tuple[Symbol, ...]:
        """The input Symbols, in order; what was declared as a Buffer is a BufferValue."""
        if self._buffers:
            return tuple(self._buffers.get(s._name or "", s) for s in self._inputs)
        return self._inputs

    @property
    def buffers(self) -> dict[str, BufferValue]:
        """The inputs that a Model keeps between calls, by name."""
        return dict(self._buffers)

    @property
    def outputs(self) -> tuple[Symbol, ...]:
        """The output Symbols, in order; empty before `output` was called."""
        return tuple(symbol for _, symbol in self._outputs or ())

    @property
    def output_types(self) -> dict[str, Type]:
        """The outputs' types by name. A dtype that is only a default stays, for nothing overrides it any more."""
        return {name or s.name: known_type(s.type) for name, s in self._outputs or ()}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in the order in which they were made, which is an order they can run in."""
        return tuple(self._nodes)

    @property
    def weights(self) -> dict[str, Symbol]:
        """The weights by name."""
        return {s.name: s for s in self._symbols if isinstance(s.producer, Constant) and s.producer.is_weight}

    def __getitem__(self, key: int | str) -> Symbol:
        """An input by position; an input, weight or named Symbol by name. Raises `GraphError` where there is none."""
        if isinstance(key, str):
            if key in self._buffers:
                return self._buffers[key]
            if key in self._names.taken:
                return self._names.taken[key]
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

    def __setitem__(self, key: str, value: Any) -> None:
        """Stores to a buffer: `graph["cache"] = value`, see `ops.buffer_store`. Raises `GraphError` for other names."""
        from graphcore.ops import buffer_store

        held = self._buffers.get(key)
        if held is None:
            raise GraphError(
                f"graph[{key!r}] = ...: graph {self.name!r} has no buffer that is called so",
                help=f"its buffers: {', '.join(map(repr, self._buffers)) or 'none'}",
            )
        if value is not held:  # as it is behind graph["cache"] += value
            buffer_store(held, value)

    # Constants

    def constant(self, value: Any, dtype: object = None, *, name: str | None = None, ambiguous: bool = False) -> Symbol:
        """A value known now.

        value: a NumPy (or ml_dtypes) array, Python scalar or nested list of them, of any shape; it is copied.
        dtype: what to hold it as, by default the array's own (bool, int64 or float32 for Python numbers, if the
        promotion system says no other). ambiguous: the dtype gives way to a known one, in "anvil", or to any that the
        constant meets, in "kernel_float". Raises `DTypeError` where an element cannot be held in `dtype` (ints
        exactly, floats rounded but not overflowed), `GraphError` for an ambiguous one in any other system.
        """
        return constants.given_constant(self, value, dtype, name, ambiguous)

    def scalar(
        self, value: Scalar | np.generic, dtype: object = None, rank: int = 0, *, ambiguous: bool = False
    ) -> Symbol:
        """A constant of one element, `rank` dims of 1. Raises as `constant` does."""
        made = np.reshape(np.asarray(value), (1,) * rank)
        return self.constant(made if isinstance(value, np.generic) else made.tolist(), dtype, ambiguous=ambiguous)

    def vector(self, values: Sequence[Scalar], dtype: object = None) -> Symbol:
        """A constant of shape [len(values)]. Raises `DTypeError` where `dtype` cannot hold one."""
        return self.constant(list(values), dtype)

    def full(self, value: Scalar, shape: Sequence[DimLike], dtype: object = None) -> Symbol:
        """A tensor of `shape`, which may have named dims, with `value` everywhere. See `ops.full`."""
        from graphcore.ops import full

        with self:
            return full(shape, value, dtype=dtype)

    def range(
        self, start: Any, stop: Any = None, step: Any = 1, *, dtype: object = None, out_dim: Any = None
    ) -> Symbol:
        """The numbers from `start` up to `stop`, `step` apart. See `ops.range`."""
        from graphcore.ops import range as range_op

        with self:
            return range_op(start, stop, step, dtype=dtype, out_dim=out_dim)

    def weight(self, name: str, array: Any, dtype: object = None) -> Symbol:
        """A named tensor of known values, by reference.

        array: a NumPy or ml_dtypes array of any shape, memory-mapped ones included. It is not copied as long as it is
        C-contiguous and of `dtype` (by default its own): what it holds when the graph is exported or loaded counts.
        Raises `GraphError` for a name in use, `DTypeError` where `dtype` cannot hold an element.
        """
        return constants.given_weight(self, name, array, dtype)

    # Operators

    def op(
        self,
        op_type: str,
        inputs: Sequence[Symbol | np.ndarray[Any, Any] | Scalar | None] = (),
        attributes: Mapping[str, Any] | None = None,
        out_types: Sequence[Type] | None = None,
        *,
        domain: str = "",
    ) -> tuple[Symbol, ...]:
        """Any operator of any domain, as it is: no promotion, no check of operands.

        inputs: Symbols, arrays (they become constants), Python scalars, None for an optional input left out.
        attributes: ints, floats, strings, arrays, Graphs and lists of them. out_types: one type an output; where they
        are not given ONNX's own inference finds them. Returns the outputs. Raises `GraphError` where it finds none.
        """
        symbols = tuple(None if v is None else self._operand(v, op_type, f"input {i}") for i, v in enumerate(inputs))
        if out_types is None:
            from graphcore.onnx.schemas.inference import infer_types

            out_types = infer_types(op_type, symbols, dict(attributes or {}), domain)
        return self._emit_many(op_type, symbols, tuple(out_types), dict(attributes or {}), domain)

    @contextmanager
    def layer(self, name: str) -> Iterator[str]:
        """Names what is made inside after a layer: nodes are called `outer/name/...`. Yields the whole path.

        A layer entered again under the same name gets a number: `block`, `block_1`.
        """
        checked_name(name, "layer")
        if self._inner is not None:
            with self._open().layer(name) as path:
                yield path
            return
        path = outer = f"{self._layer}{name}"
        count = self._layers.get(outer, 0)
        if count:
            path = f"{outer}_{count}"
        self._layers[outer] = count + 1
        before, self._layer = self._layer, path + "/"
        try:
            yield path
        finally:
            self._layer = before

    def subgraph(self, name: str, fn: Callable[..., Any], types: Mapping[str, Type] | Sequence[Type] = ()) -> Subgraph:
        """A function of declared operands, traced now, to be called any number of times like a Python function.

        name: of the function and of the layer of each call. fn: takes as many Symbols as there are types and returns a
        Symbol, or a tuple, list or dict of them. types: by name, or a list; dims that are named may be any in a call.
        Raises `GraphError` where `fn` uses Symbols from outside that are no constants, or returns none; calling it
        raises `GraphError`, `DTypeError` or `ShapeError` for operands that are not as declared. See `gc.function`.

            twice = g.subgraph("twice", lambda x: x + x, [TensorType(DType.float32, ["n"])])
            y = twice(g[0])
        """
        from graphcore.build.functions import Subgraph

        return Subgraph(self, name, fn, types)

    @property
    def current_layer(self) -> str:
        """The path of the layer being built, "" outside of one."""
        return self._open()._layer.rstrip("/")

    def output(self, *symbols: Symbol | Sequence[Symbol], **named: Symbol) -> None:
        """Sets the outputs, once: positional ones keep their Symbol's name, named ones get theirs.

        Raises `GraphError` for Symbols of another graph, for names in use, and when called again.
        """
        if self._outputs is not None:
            raise GraphError(
                f"output: graph {self.name!r} has its outputs already",
                operands={name or f"output {i}": s for i, (name, s) in enumerate(self._outputs)},
                help="give all outputs in one call, or build on graph.copy()",
            )
        if self._inner is not None:
            raise GraphError(
                f"output: a body is being built in graph {self.name!r}, or it is a finished one",
                help="return what a body gives from its function, and set the outputs behind it",
            )
        if not symbols and not named:
            raise GraphError("output: no Symbols given", help="graph.output(y), or graph.output(name=y)")
        outputs: list[tuple[str | None, Symbol]] = []
        flat: list[Any] = [*symbols[0]] if len(symbols) == 1 and isinstance(symbols[0], (tuple, list)) else [*symbols]
        for label, value in [*((None, s) for s in flat), *named.items()]:
            value = self._own(value, "output", label or "value")
            self._names.check_output(label, value)
            outputs.append((label, value))
        self._outputs = self._names.of_outputs(outputs)
        self._end_expressions([value for _, value in outputs])
        self._names.claim_outputs(self._outputs)

    @staticmethod
    def load(
        source: str | os.PathLike[str] | bytes | onnx.ModelProto,
        *,
        implicit_casts: bool = False,
        promotion: str | PromotionSystem | None = None,
    ) -> Graph:
        """An ONNX model as a Graph.

        source: a path, bytes or a ModelProto of opset 7 or newer. Weights stay in the mapped file; external data is
        read from plain files in the model's folder only. Operators are brought to the opset that graphs are written
        with; those of other domains stay as they are. implicit_casts: operands that should be of one dtype and are not
        are cast to what the promotion system says. promotion: the system, by default the one that the model notes, or
        "max". Raises `ModelError` for what is no valid model, `UnsafePathError` for data outside of its folder,
        `ResourceLimitError` for one nested or expanded beyond all measure.
        """
        from graphcore.onnx.read.reader import load

        return load(source, implicit_casts=implicit_casts, promotion=promotion)

    # The graph as a whole

    def verify(self) -> None:
        """Checks that the graph is complete and sound. Raises `GraphError` that says what is not."""
        if not self._outputs and not stored(self):
            raise GraphError(f"graph {self.name!r} has no outputs", help="say what it computes: graph.output(y)")
        for node in self._nodes:
            made = node.outputs[0].id if node.outputs else len(self._symbols)
            for symbol in node.inputs:
                if symbol is not None and (symbol.id >= made or symbol.graph is not self):
                    raise GraphError(
                        f"{node.op_type}: an operand is used before it is made", operands={"operand": symbol}
                    )

    def copy(self) -> Graph:
        """An independent graph of the same nodes; arrays are shared. Its outputs may be set anew."""
        from graphcore.ir.pickling import copied

        made = copied(self)
        made._outputs = None
        return made

    def optimize(
        self, passes: Sequence[str | Callable[[Graph], Graph]] | None = None, *, limit: int = 1 << 20
    ) -> Graph:
        """A new graph that computes the same with fewer nodes, bit for bit but for which NaN a NaN is.

        passes: names or functions of `graphcore.passes`, by default all; they run together until they find nothing
        more. limit: the bytes of the largest constant that folding makes. Inputs, outputs, names that users gave,
        layers, lines, metadata and weights stay; bodies are optimised too. Raises `GraphError` for an unfinished
        graph and for a pass that does not exist.
        """
        from graphcore.passes import optimize

        return optimize(self, passes, limit=limit)

    def to_onnx(
        self,
        *,
        target: Target = "cpu",
        precision: Precision = "exact",
        inline: bool = False,
        optimize: Optimize | None = None,
        opset: int | None = None,
        ir_version: int | None = None,
        runtime: str | None = None,
    ) -> onnx.ModelProto:
        """The graph as an `onnx.ModelProto` with its weights inside.

        target: "onnx" for standard ONNX with the ops as built; "cpu", "cuda" or "openvino" for what a plain
        onnxruntime session of that provider runs. precision: "exact", or "fast" to leave consecutive ops on floats
        narrower than float32 in float32. inline: calls of functions are replaced by their bodies; otherwise they are
        functions of the model where dtypes allow it. optimize: "exact" runs the passes of `Graph.optimize` first, bit
        for bit; "all" looks for what the provider runs faster in another form, whose sums in float32 may come in
        another order, and runs the passes where there is some; "off" does neither. By default it is "all", for target
        "onnx" "off". opset: ONNX's, from 17 to 26; by default the oldest in which all operators mean the same.
        ir_version: of the file format, by default the one that goes with the opset. runtime: the release of
        onnxruntime that is to run it, such as "1.20", which says both; opset is then one that it takes. Raises
        `GraphError` for an unfinished graph, for an opset or a release that is not known and for what has no form at
        that opset, and `ResourceLimitError` above protobuf's 2 GiB (use `export` then).
        """
        from graphcore.runtime.export import Options, model_proto

        return model_proto(self, Options(target, precision, inline, optimize, opset, ir_version, runtime))

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        target: Target = "cpu",
        precision: Precision = "exact",
        external_data: bool | None = None,
        inline: bool = False,
        optimize: Optimize | None = None,
        opset: int | None = None,
        ir_version: int | None = None,
        runtime: str | None = None,
    ) -> None:
        """Writes the graph as an ONNX file, atomically: a whole file or none.

        path: of the file. target, precision, inline, optimize, opset, ir_version, runtime: as for `to_onnx`, which
        tells what raises `GraphError`. external_data: weights in a file of
        their own beside it (`<name>.data`); by default above 1 GiB. Raises `ExportError` where the file cannot be
        written.
        """
        from graphcore.runtime.export import Options, export

        options = Options(target, precision, inline, optimize, opset, ir_version, runtime)
        export(self, path, external_data, options)

    def __str__(self) -> str:
        from graphcore.ir.printing import graph_text

        return graph_text(self)

    def __repr__(self) -> str:
        return (
            f"<Graph {self.name!r}: {len(self._inputs)} inputs, {len(self._nodes)} nodes, {len(self.outputs)} outputs>"
        )

    def _repr_html_(self) -> str:
        from graphcore.ir.printing import graph_html

        return graph_html(self)

    def _repr_svg_(self) -> str:
        from graphcore.ir.printing import graph_svg

        return graph_svg(self)

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
        return graph if graph._inner is None else graph._open()

    def __getstate__(self) -> dict[str, Any]:
        from graphcore.ir.pickling import state_of

        return state_of(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        from graphcore.ir.pickling import restore

        restore(self, state)

    # For those who declare ops. Functions of a graph that stand with their subject, so that a call costs no more.

    _symbol = emit.new_symbol
    _node = emit.new_node
    _emit = emit.emit
    _emit_many = emit.emit_many
    _end_expressions = emit.end_expressions

    _constant = constants.constant
    _scalar = constants.scalar
    _vector = constants.vector
    _cast = constants.cast

    _operand = scope.operand
    _own = scope.own
    _capture = scope.capture
    _open = scope.innermost
    _in_body = scope.in_body
