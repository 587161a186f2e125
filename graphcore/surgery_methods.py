"""The methods of Graph that call, cut and edit: docs/howto/edit_model.md. Attached as those of `graph_methods` are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphcore.ir.buffers import Buffer
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Match, Node, Symbol
from graphcore.types.tensor_types import DimLike, Type

if TYPE_CHECKING:
    from graphcore import surgery


class _Surgery:
    """The package `graphcore.surgery`, imported at first use: onnx takes longer to import than all of graphcore."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("graphcore.surgery"), name)


if not TYPE_CHECKING:
    surgery = _Surgery()


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
