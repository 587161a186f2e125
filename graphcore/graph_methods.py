"""The methods of Graph and Symbol that need more than a graph: ops, passes, files, the runtime.

They are attached here, as the ops are attached to Symbol; the classes list them under TYPE_CHECKING for editors and
type checkers. Code of the package calls the functions that they stand for. What is imported late is not needed to build
a graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from graphcore import ops
from graphcore.arrays.external_data import ExternalData
from graphcore.build.functions import Subgraph
from graphcore.errors import GraphError
from graphcore.ir.buffers import Buffer
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.ir.symbol import Match, Node, Symbol
from graphcore.ir.transform import pickling
from graphcore.ir.transform import verify as verification
from graphcore.onnx.schemas import runtime_operators
from graphcore.promotion import PromotionSystem
from graphcore.promotion.system import Scalar
from graphcore.types.tensor_types import DimLike, Type

if TYPE_CHECKING:
    import onnx

    from graphcore import surgery

_Function = TypeVar("_Function", bound=Callable[..., Any])


def method(owner: type, name: str = "") -> Callable[[_Function], _Function]:
    """Attach a function to a class as a method, under its own name or the one given."""

    def attach(function: _Function) -> _Function:
        function.__name__ = name or function.__name__
        function.__qualname__ = f"{owner.__name__}.{function.__name__}"
        setattr(owner, function.__name__, function)
        return function

    return attach


class _Surgery:
    """The package `graphcore.surgery`, imported at first use: onnx takes longer to import than all of graphcore."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("graphcore.surgery"), name)


if not TYPE_CHECKING:
    surgery = _Surgery()


def _installed_operators() -> runtime_operators.RuntimeOperators:
    from graphcore.runtime.ort.operators import InstalledOperators  # onnxruntime, which building does not need

    return InstalledOperators()


runtime_operators.provide(_installed_operators)

# Of Graph


@method(Graph, "__setitem__")
def store(self: Graph, key: str, value: Any) -> None:
    """Store to a buffer: `graph["cache"] = value`, see `ops.buffer_store`.

    Raises `GraphError` for other names.
    """
    held = self.buffers.get(key)
    if held is None:
        raise GraphError(
            f"graph[{key!r}] = ...: graph {self.name!r} has no buffer that is called so",
            help=f"its buffers: {', '.join(map(repr, self.buffers)) or 'none'}",
        )
    if value is not held:  # `graph["cache"] += value` has stored already
        ops.buffer_store(held, value)


@method(Graph)
def full(self: Graph, value: Scalar, shape: Sequence[DimLike], dtype: object = None) -> Symbol:
    """Return a tensor of `shape`, which may have named dims, with `value` everywhere. See `ops.full`."""
    with self:
        return ops.full(shape, value, dtype=dtype)


@method(Graph)
def range(
    self: Graph, start: Any, stop: Any = None, step: Any = 1, *, dtype: object = None, out_dim: Any = None
) -> Symbol:
    """Return the numbers from `start` up to `stop`, `step` apart. See `ops.range`."""
    with self:
        return ops.range(start, stop, step, dtype=dtype, out_dim=out_dim)


@method(Graph)
def op(
    self: Graph,
    op_type: str,
    inputs: Sequence[Symbol | np.ndarray[Any, Any] | Scalar | None] = (),
    attributes: Mapping[str, Any] | None = None,
    out_types: Sequence[Type] | None = None,
    *,
    domain: str = "",
) -> tuple[Symbol, ...]:
    """Emit any operator of any domain as it is: no promotion, no check of operands.

    inputs: Symbols, arrays (they become constants), Python scalars, None for an optional input left out.
    attributes: ints, floats, strings, arrays, Graphs and lists of them. out_types: one type an output; where they
    are not given ONNX's own inference finds them, or that of the installed runtime for its own operators. `export`
    raises `ExportError` where operands or out_types are not what the operator has. Returns the outputs. Raises
    `GraphError` where the types are not found.
    """
    symbols = tuple(None if v is None else self.build.operand(v, op_type, f"input {i}") for i, v in enumerate(inputs))
    if out_types is None:
        from graphcore.onnx.schemas.inference import infer_types  # onnx takes longer to import than all of graphcore

        out_types = infer_types(op_type, symbols, dict(attributes or {}), domain)
    else:
        self.site.has_untyped = True
    return self.build.emit_many(op_type, symbols, tuple(out_types), dict(attributes or {}), domain)


@method(Graph)
def subgraph(
    self: Graph, name: str, fn: Callable[..., Any], types: Mapping[str, Type] | Sequence[Type] = ()
) -> Callable[..., Any]:
    """Return a function of declared operands, traced now, to be called any number of times.

    name: of the function and of the layer of each call. fn: takes as many Symbols as there are types and returns a
    Symbol, or a tuple, list or dict of them. types: by name, or a list; dims that are named may be any in a call.
    Raises `GraphError` where `fn` uses Symbols from outside that are no constants, or returns none; calling it
    raises `GraphError`, `DTypeError` or `ShapeError` for operands that are not as declared. See `gc.function`.

        twice = g.subgraph("twice", lambda x: x + x, [TensorType(DType.float32, ["n"])])
        y = twice(g[0])
    """
    return Subgraph(self, name, fn, types)


def load(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    implicit_casts: bool = False,
    promotion: str | PromotionSystem | None = None,
    external_data: ExternalData = "plain",
    external_data_root: str | os.PathLike[str] | None = None,
) -> Graph:
    """Read an ONNX model as a Graph.

    source: a path, bytes or a ModelProto of opset 7 or newer. Weights stay in the mapped file; external data is
    read from plain files in the model's folder only. Operators are brought to the opset that graphs are written
    with; those of other domains stay as they are. implicit_casts: operands that should be of one dtype and are not
    are cast to what the promotion system says. promotion: the system, by default the one that the model notes, or
    "max". external_data: "links" follows symbolic links of the data, as the cache of Hugging Face's hub has them,
    within external_data_root: by default the repository in that cache, else the model's folder (docs/security.md).
    Raises `ModelError` for what is no valid model, `UnsafePathError` for data outside of its folder or of the root,
    `ResourceLimitError` for one nested or expanded beyond all measure.
    """
    from graphcore.onnx.read.reader import load  # onnx, as above

    return load(
        source,
        implicit_casts=implicit_casts,
        promotion=promotion,
        external_data=external_data,
        external_data_root=external_data_root,
    )


load.__qualname__ = "Graph.load"
setattr(Graph, "load", staticmethod(load))  # noqa: B010 - as a static method


@method(Graph, "__call__")
def call(
    self: Graph,
    *operands: Any,
    implicit_casts: bool = False,
    as_function: bool = False,
    layer: str | None = None,
    **named: Any,
) -> Any:
    """Build this graph's nodes in the graph of the operands, on them, and return what its outputs are there.

    operands: a Symbol, array or number for each input that is no buffer, by position or by name, or one mapping of
    all. Of the input's dtype, rank and static dims; dims of one name agree. implicit_casts: operands of another dtype
    are cast where the calling graph's promotion system says that both meet in the input's. as_function: the nodes
    become a function of the model, called as one node; by default they are inlined. layer: of the nodes, by default
    this graph's name; "" for none. Values keep their names after the layer's.

    Returns a Symbol, or for several outputs a tuple of Symbols that knows their names: `made["scores"]`. Weights
    are the same arrays, and those of a graph that is called twice are one; so are buffers. Functions, bodies and
    operators of other domains come along. Nodes on operands of other dims are typed again. Raises `GraphError`,
    `DTypeError` and `ShapeError` at the calling line.

        model = Graph.load("resnet.onnx")
        y = ops.softmax(model(images))
    """
    return surgery.call(self, operands, named, implicit_casts=implicit_casts, as_function=as_function, layer=layer)


@method(Graph)
def extract(self: Graph, inputs: Any = None, outputs: Any = ()) -> Graph:
    """Return a new graph of the part that computes some values from others.

    inputs: the values that are given to it: names or Symbols of inputs, weights or anything that a node makes, or such
    by new names in a mapping; by default the inputs of the graph that are needed. outputs: the values that it gives, in
    the same way. Names, lines, layers and types stay; weights are the same arrays, those that are not needed go.
    Buffers that are needed come along. Raises `GraphError` for a value that does not exist, and where an output needs
    an input that is not among `inputs`. Source: `onnx.utils.extract_model`.

        backbone = model.extract(["images"], ["features"])
        head = model.extract({"features": "features"}, model.outputs)
    """
    return surgery.extract(self, inputs, outputs)


@method(Graph)
def rename(
    self: Graph,
    names: Mapping[str, str] | None = None,
    *,
    values: Mapping[str, str] | None = None,
    dims: Mapping[str, str] | None = None,
) -> Graph:
    """Return a new graph with other names.

    names: new ones by old ones, of inputs, outputs, weights, other values and dims. values, dims: the same for names
    that are both. Names may be swapped. Raises `GraphError` for a name that nothing has, for one that is taken, and
    where two dims would become one.

        model.rename({"input.1": "image", "unk__0": "batch"})
    """
    return surgery.rename(self, names or {}, values or {}, dims or {})


@method(Graph)
def with_dims(self: Graph, shapes: Mapping[str, Sequence[DimLike]] | None = None, **dims: DimLike) -> Graph:
    """Return a new graph whose inputs have other dims; everything in it is typed again.

    shapes: dims by the names of inputs, one for each axis: ints, names, or "?" for any. dims: what stands for the
    names of dims in the inputs from now on: `batch=4`, `seq="length"`. Sizes that become names are looked for inside of
    the graph too: a Reshape, Expand or Concat that has the old number inside gets the new dim. Raises `ShapeError`
    that names the node where one cannot tell what its number means, or where it cannot do with the new size;
    `GraphError` for names that do not exist.

        model.with_dims(batch=1)                                  # from names to sizes
        model.with_dims({"image": ["batch", 3, 224, 224]})        # from sizes to names
    """
    return surgery.with_dims(self, shapes or {}, dims)


@method(Graph)
def with_inputs(self: Graph, *inputs: str | Symbol, **more: Type | Buffer) -> Graph:
    """Return a new graph with these inputs, in this order.

    inputs: names or Symbols of inputs, and of weights, which become inputs. Those that are left out are dropped.
    more: types of further inputs that nothing reads yet, by name. Buffers stay. Raises `GraphError` where an output
    needs an input that is dropped: bind it with `with_constants`, or cut the graph with `extract`.

        model.with_inputs("mask", "ids")
        model.with_inputs("x", "decoder.weight")
    """
    return surgery.with_inputs(self, inputs, more)


@method(Graph)
def with_outputs(self: Graph, *outputs: str | Symbol, **named: str | Symbol) -> Graph:
    """Return a new graph with these outputs, in this order; what only others needed goes.

    outputs: names or Symbols of outputs and of any other values. named: such by the names that they get. Raises
    `GraphError` for a value that does not exist and for names in use.

        model.with_outputs("logits", hidden="encoder/layer.11/add_7")
    """
    return surgery.with_outputs(self, outputs, named)


@method(Graph)
def with_constants(self: Graph, values: Mapping[str, Any] | None = None, **named: Any) -> Graph:
    """Return a new graph with constants in place of some inputs.

    values, named: arrays or numbers by the names of inputs, of their shapes; converted to their dtypes where these
    hold them. The sizes of named dims are those of the arrays from now on, in the other inputs too. Raises
    `GraphError` for other names, `DTypeError` and `ShapeError` for values that do not fit.

        model.with_constants(sampling_rate=16000)
    """
    return surgery.with_constants(self, {**(values or {}), **named})


@method(Graph)
def with_weights(self: Graph, weights: Mapping[str, Any]) -> Graph:
    """Return a new graph with other arrays for some weights, by reference.

    weights: arrays by name, of the weights' dtypes or ones that these hold. An array of another shape makes its readers
    be typed again. Raises `GraphError` for a name that no weight has, `DTypeError` for an array whose values the dtype
    cannot hold, `ShapeError` where a reader does not take the new shape.

        model.with_weights({"head.weight": fine_tuned})
    """
    return surgery.with_weights(self, weights)


@method(Graph)
def verify(self: Graph) -> None:
    """Check that the graph is complete and sound. Raises `GraphError` that says what is not.

    Every operand, output and captured value is one of the graph or the body that it is in, and made before it is read;
    no two have the same name.
    """
    verification.verify(self)


@method(Graph)
def replace(self: Graph, what: str | Symbol | Node, fn: Callable[..., Any]) -> Graph:
    """Return a new graph in which something else stands for a value, or for a node. This graph stays.

    what: a value, by its name or as a Symbol, or a Node (`graph["y"].producer`). In place of a value, all that reads it
    reads `fn(value)`, outputs, bodies and stores to buffers included; the value itself goes on being computed as far
    as `fn` uses it. In place of a node, `fn(*operands)` gives what the node gave, as one value or a tuple, and None
    stands for operands that are absent; keyword-only parameters of `fn` are attributes of the node, and nodes that only
    fed this one go. Values and nodes may be in bodies and functions; a captured Symbol is replaced in its body alone.

    fn: builds on Symbols of the new graph, and returns Symbols, arrays or numbers. Types may change: what reads them
    is typed again with the checks of building. What was made before is `value.graph["name"]`. Outputs keep their names.
    Raises `GraphError` for what the graph does not have and what no output is made of, `DTypeError` and `ShapeError`
    that name the node that does not take what it reads.

        half = graph.replace("hidden", lambda h: h.cast("float16"))
        smooth = graph.replace(graph["y"].producer, lambda x: ops.gelu(x))
    """
    return surgery.replace(self, what, fn)


@method(Graph)
def replace_all(
    self: Graph,
    pattern: str | Callable[..., Any],
    fn: Callable[..., Any],
    *,
    where: Callable[[Match], bool] | None = None,
    missing_ok: bool = False,
) -> Graph:
    """Return a new graph in which something else stands for all that a pattern describes. This graph stays.

    pattern: an operator, "Relu" or "com.microsoft::Gelu"; or a function of Symbols that returns what is to be found,
    written with ops or `gc.patterns.op`, and of which every parameter stands for one value; or a
    `gc.patterns.Pattern` with conditions. fn: of an operator, takes its operands, and returns all its results. Of a
    function, takes the values of the parameters: by name where all of its parameters are named so, else by position;
    then the other values that the pattern returned. Keyword-only parameters are attributes of the last node. where:
    whether a match, a `gc.patterns.Match` of this graph, is to be replaced. missing_ok: return an equal graph where
    nothing matches.

    Matches are looked for once, from the outputs back, in bodies and functions too; what a match replaces is not
    looked at again, unless something else uses it, for which it goes on being computed. Types and names: see
    `replace`. Raises `GraphError` where nothing matches or the pattern cannot be traced, and as `replace` does.

    Source: rewriting by patterns of functions, as ONNX Script has it.

        graph.replace_all("Relu", lambda x: ops.abs(x))
        graph.replace_all("LeakyRelu", lambda x, *, alpha: ops.where(x > 0, x, x * alpha))
        graph.replace_all(lambda x: x * ops.sigmoid(x), lambda x: ops.silu(x))
    """
    return surgery.replace_all(self, pattern, fn, where, missing_ok)


@method(Graph)
def find_all(
    self: Graph, pattern: str | Callable[..., Any], *, where: Callable[[Match], bool] | None = None
) -> list[Match]:
    """Return the parts of the graph that a pattern describes: what `replace_all` would replace.

    pattern, where: see `replace_all`. A match has its last `node`, its `nodes`, its `result`, and what stands for each
    parameter, `match["x"]`. Raises `GraphError` where the pattern cannot be traced.

        print(len(graph.find_all(lambda x: x * ops.sigmoid(x))))
    """
    return surgery.find_all(self, pattern, where)


@method(Graph)
def fold_preprocessing(self: Graph) -> Graph:
    """Return a new graph whose first products do the affine steps on the way from the inputs to them.

    Add, Sub, Mul, Div and Neg by constants that are one value, or one for each channel, and BatchNormalization become a
    part of the weights and bias of the Conv, ConvTranspose, MatMul or Gemm that they lead to, and so do Gather, Slice,
    and Split with Concat that put the channels in another order (RGB and BGR). Cast, Transpose, Reshape and Resize may
    stand between and stay. Folded is what float32 and float64 products alone read. A shift before a convolution that
    pads with zeros stays as one Add, since the zeros are not shifted.

    Weights are read now; those that change are new arrays, all others are the same. The numbers are those of the graph
    up to the rounding of its dtype, not bit for bit. Raises `GraphError` that says why where nothing can be folded.

        small = gc.compose(preprocess, model).fold_preprocessing()
    """
    return surgery.fold_preprocessing(self)


@method(Graph)
def astype(
    self: Graph, dtype: object, *, source: object = None, keep: str | Iterable[str] = (), keep_io: bool = True
) -> Graph:
    """Return a new graph that computes in another dtype of floats.

    dtype: "float16", "bfloat16", "float32" or "float64". source: the dtypes that become it, by default float32, and for
    "float32" float16 and bfloat16. keep: patterns, as the shell has them, of operators ("Softmax"), layers
    ("encoder/*"), results, inputs and weights that stay in their dtype, with casts around them. keep_io: inputs and
    outputs stay as they are, so that whoever feeds the graph sees no difference, with casts at the edges; otherwise
    they are of `dtype` too, but for results of nodes that stay. Buffers are of `dtype` in either case.

    Weights and constants are cast once; those in other dtypes are the same arrays. Operands that an operator takes in
    float32 alone stay so: sizes for Resize, scales for QuantizeLinear, classical models, operators of other domains.
    Bodies and functions are converted too; sequences stay. Finite weights beyond the range of `dtype` become its
    largest finite value: `LossyCastWarning` names them, and how many others become 0. Raises `DTypeError` for other
    dtypes, `GraphError` for patterns that match nothing. Source: the float16 conversion of onnxconverter-common.

        half = model.astype("float16", keep=["Softmax", "head/*"])
    """
    return surgery.astype(self, dtype, source, keep, bool(keep_io))


@method(Graph)
def diff(self: Graph, other: Graph) -> Any:
    """Return what differs between this graph and another one; printed, lines with "-", "+" and "~".

    Nodes are paired by the names of their results, then by what they are made of and what reads them, so that order,
    numbers and automatic names do not matter. Weights are compared by what they hold. A dim that has another name, or
    a size, is told once. Bodies and functions are compared too; lines and layers are not.

    Returns a `Diff`, False where nothing differs, with tuples of frozen records: `inputs`, `outputs`, `dims`, `nodes`,
    `types` of values inside, `weights` and `metadata`; `as_dict()` is for JSON. Raises `GraphError` for what is no
    Graph.

        print(model.diff(Graph.load("quantised.onnx")))
    """
    return surgery.diff(self, other)


@method(Graph)
def copy(self: Graph) -> Graph:
    """Return an independent graph of the same nodes; arrays are shared. Its outputs may be set anew."""
    made = pickling.copied(self)
    made.build.outputs(None)
    return made


@method(Graph)
def optimize(
    self: Graph, passes: Sequence[str | Callable[[Graph], Graph]] | None = None, *, limit: int = 1 << 20
) -> Graph:
    """Return a new graph that computes the same with fewer nodes, bit for bit but for which NaN a NaN is.

    passes: names or functions of `graphcore.passes`, by default all; they run together until they find nothing
    more. limit: the bytes of the largest constant that folding makes. Inputs, outputs, names that users gave,
    layers, lines, metadata and weights stay; bodies are optimised too. Raises `GraphError` for an unfinished
    graph and for a pass that does not exist.
    """
    from graphcore.passes import optimize  # needless until a graph is optimised

    return optimize(self, passes, limit=limit)


@method(Graph)
def to_onnx(
    self: Graph,
    *,
    target: TargetName = "cpu",
    precision: Precision = "exact",
    inline: bool = False,
    optimize: Optimize | None = None,
    opset: int | None = None,
    ir_version: int | None = None,
    runtime: str | None = None,
) -> onnx.ModelProto:
    """Return the graph as an `onnx.ModelProto` with its weights inside.

    target: "onnx" for standard ONNX with the ops as built; "cpu", "cuda" or "openvino" for what a plain
    onnxruntime session of that provider runs. precision: "exact", or "fast" to leave consecutive ops on floats
    narrower than float32 in float32. inline: calls of functions are replaced by their bodies; otherwise they are
    functions of the model where dtypes allow it. optimize: "exact" runs the passes of `Graph.optimize` first, bit
    for bit; "all" looks for what the provider runs faster in another form, whose sums in float32 may come in
    another order, and runs the passes where there is some; "off" does neither. By default it is "all", for target
    "onnx" "off". opset: ONNX's, from 17 to 26; by default the oldest in which all operators mean the same.
    ir_version: of the file format, by default the one that goes with the opset. runtime: the release of
    onnxruntime that is to run it, such as "1.20", which says both; opset is then one that it takes. Raises
    `GraphError` for an unfinished self, for an opset or a release that is not known and for what has no form at
    that opset, and `ResourceLimitError` above protobuf's 2 GiB (use `export` then).
    """
    from graphcore.runtime.export import Options, model_proto  # onnx, as above

    return model_proto(self, Options(target, precision, inline, optimize, opset, ir_version, runtime))


@method(Graph)
def export(
    self: Graph,
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
    """Write the graph as an ONNX file, atomically: a whole file or none.

    path: of the file. target, precision, inline, optimize, opset, ir_version, runtime: as for `to_onnx`, which
    tells what raises `GraphError`. external_data: weights in a file of
    their own beside it (`<name>.data`); by default above 1 GiB. Raises `ExportError` where the file cannot be
    written.
    """
    from graphcore.runtime.export import Options, export  # onnx, as above

    options = Options(target, precision, inline, optimize, opset, ir_version, runtime)
    export(self, path, external_data, options)


@method(Graph, "__str__")
def text(self: Graph) -> str:
    from graphcore.ir.printing import graph_text  # needless until a graph is printed

    return graph_text(self)


@method(Graph)
def _repr_html_(self: Graph) -> str:
    from graphcore.ir.printing import graph_html  # as above

    return graph_html(self)


@method(Graph)
def _repr_svg_(self: Graph) -> str:
    from graphcore.ir.printing import graph_svg  # as above

    return graph_svg(self)


setattr(Graph, "__getstate__", pickling.state_of)  # noqa: B010 - an assignment would be checked as an override
setattr(Graph, "__setstate__", pickling.restore)  # noqa: B010


# Of Symbol


@method(Symbol)
def insert_transformation(self: Symbol, transform: Callable[[Symbol], Symbol]) -> Symbol:
    """Let everything that reads this Symbol now read `transform(self)` instead.

    The transformation itself reads the Symbol.

    transform: called once with the Symbol; returns one of the same dtype and shape. Nodes, bodies that capture the
    Symbol, outputs (which keep their names) and what a buffer holds are changed; what uses the Symbol afterwards
    reads it as it is. Symbols that come later get other numbers, and those without a name other names. A Model that
    was loaded stays what it was. Returns the new Symbol. Raises `DTypeError` or `ShapeError` where the type
    changes, `GraphError` where the result is made of what reads the Symbol, and for one of a finished body or of a
    graph in which a body is being built; the graph is then as before.

        hidden.insert_transformation(lambda h: ops.clip(h, -10, 10))
    """
    from graphcore.build.insert import insert  # needless for most graphs

    return insert(self, transform)


@method(Symbol, "__array_namespace__")
def array_namespace(self: Symbol, /, *, api_version: str | None = None) -> Any:
    """Return the module with the standard's functions. Raises `GraphError` for an edition that it does not follow."""
    from graphcore.array_api import _namespace  # compiled functions of Arrays: most graphs need none

    return _namespace(api_version)


@method(Symbol, "__array_ufunc__")
def array_ufunc(self: Symbol, ufunc: Any, how: str, /, *inputs: Any, **options: Any) -> Any:
    """Build the op of a NumPy ufunc: `np.exp(x)`, `np.add(array, x)` and `array + x`, which is the same to NumPy.

    Raises `SymbolError` that names the counterpart for a ufunc or an argument that builds none, and what the op raises.
    """
    from graphcore.array_api._numpy.ufuncs import call_ufunc  # as above

    return call_ufunc(ufunc, how, inputs, options)


@method(Symbol, "__array_function__")
def array_function(self: Symbol, function: Any, types: Any, arguments: tuple[Any, ...], named: Any, /) -> Any:
    """Build the ops of a NumPy function: `np.mean(x, axis=0)`, `np.concatenate([x, y])`.

    Raises `SymbolError` that names the counterpart for a function or an argument that builds none.
    """
    from graphcore.array_api._numpy.functions import call_function  # as above

    return call_function(function, arguments, named)


@method(Symbol)
def to_device(self: Symbol, device: object, /, *, stream: object = None) -> Symbol:
    """Return the Symbol itself."""
    return self


def _size(self: Symbol) -> int | None:
    """The number of elements; None where it is not known while the graph is being built."""
    size = self.shape.size
    return int(size) if size.is_static else None


def _device(self: Symbol) -> None:
    """None: where a Symbol's tensor will be is the session's to say. The standard's functions take it as device=."""


setattr(Symbol, "size", property(_size))  # noqa: B010 - an assignment would be checked as an override
setattr(Symbol, "device", property(_device))  # noqa: B010
