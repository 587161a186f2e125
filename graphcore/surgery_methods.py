"""Methods of Graph that call, cut and edit graphs, attached as in `graph_methods`. See docs/howto/edit_model.md."""

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
    """The package `graphcore.surgery`, imported on first use, since importing onnx is slow."""

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
    """Call this graph: build its nodes in the graph of the operands, and return its outputs there.

    The weights are the same arrays, and a graph that is called twice has each weight once, as it has each buffer.
    Functions, bodies and operators of other domains are copied. Nodes whose operands have other dims get new types.
    Values keep their names, prefixed with that of the layer.

    Args:
        operands: A Symbol, array or number for each input that is not a buffer, by position or by name, or one mapping
            of all. They must have the dtype, rank and static dims of the input; dims of the same name must be equal.
        implicit_casts: If True, operands of another dtype are cast if the promotion system of the calling graph casts
            both to that of the input.
        as_function: If True, the nodes become a function of the model, called by one node. Otherwise they are inlined.
        layer: The layer of the nodes, by default the name of this graph; "" for none.

    Returns:
        A Symbol, or for several outputs a tuple of Symbols that are also accessible by name: `result["scores"]`.

    Raises:
        GraphError: The operands do not match the inputs.
        DTypeError: An operand has another dtype.
        ShapeError: An operand has another shape.

    Example:
        model = Graph.load("resnet.onnx")
        y = ops.softmax(model(images))
    """
    return surgery.call(self, operands, named, implicit_casts=implicit_casts, as_function=as_function, layer=layer)


@method(Graph)
def extract(self: Graph, inputs: Any = None, outputs: Any = ()) -> Graph:
    """Return a new graph of the part that computes some values from others.

    Names, source lines, layers and types are kept. Weights are the same arrays; unused ones are dropped. Buffers that
    are needed are kept.

    Args:
        inputs: The inputs of the part: names or Symbols of inputs, weights or results of nodes, or a mapping of them by
            new names. By default the inputs of the graph that are needed.
        outputs: The outputs of the part, in the same form.

    Raises:
        GraphError: A value does not exist, or an output needs an input that is not in `inputs`.

    Source: `onnx.utils.extract_model`.

    Example:
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
    """Return a new graph with other names. Names may be swapped.

    Args:
        names: New names by old names, of inputs, outputs, weights, other values and dims.
        values: New names of values, for names that are also names of dims.
        dims: New names of dims, for names that are also names of values.

    Raises:
        GraphError: A name does not exist or is taken, or two dims would get the same name.

    Example:
        model.rename({"input.1": "image", "unk__0": "batch"})
    """
    return surgery.rename(self, names or {}, values or {}, dims or {})


@method(Graph)
def with_dims(self: Graph, shapes: Mapping[str, Sequence[DimLike]] | None = None, **dims: DimLike) -> Graph:
    """Return a new graph whose inputs have other dims. All types are inferred again.

    Sizes that become names are also replaced inside of the graph: in a Reshape, Expand or Concat with the old number.

    Args:
        shapes: Dims by the names of inputs, one per axis: ints, names, or "?" for any size.
        dims: New dims by the names of dims in the inputs: `batch=4`, `seq="length"`.

    Raises:
        ShapeError: The meaning of a number in a node is ambiguous, or a node does not support the new size.
        GraphError: A name does not exist.

    Example:
        model.with_dims(batch=1)                                  # from names to sizes
        model.with_dims({"image": ["batch", 3, 224, 224]})        # from sizes to names
    """
    return surgery.with_dims(self, shapes or {}, dims)


@method(Graph)
def with_inputs(self: Graph, *inputs: str | Symbol, **more: Type | Buffer) -> Graph:
    """Return a new graph with these inputs, in this order. Buffers are kept.

    Args:
        inputs: Names or Symbols of inputs, and of weights, which become inputs. Other inputs are dropped.
        more: Types of additional, unused inputs by name.

    Raises:
        GraphError: An output needs a dropped input. Bind it with `with_constants`, or cut the graph with `extract`.

    Example:
        model.with_inputs("mask", "ids")
        model.with_inputs("x", "decoder.weight")
    """
    return surgery.with_inputs(self, inputs, more)


@method(Graph)
def with_outputs(self: Graph, *outputs: str | Symbol, **named: str | Symbol) -> Graph:
    """Return a new graph with these outputs, in this order, without nodes that they do not need.

    Args:
        outputs: Names or Symbols of outputs and other values.
        named: Names or Symbols of values by their new output names.

    Raises:
        GraphError: A value does not exist, or a name is in use.

    Example:
        model.with_outputs("logits", hidden="encoder/layer.11/add_7")
    """
    return surgery.with_outputs(self, outputs, named)


@method(Graph)
def with_constants(self: Graph, values: Mapping[str, Any] | None = None, **named: Any) -> Graph:
    """Return a new graph with constants instead of some inputs.

    Named dims get the sizes of the arrays, also in the other inputs.

    Args:
        values: Arrays or numbers by the names of inputs, of the same shapes. They are converted to the dtype of the
            input if it can represent them.
        named: Additional values by keyword.

    Raises:
        GraphError: A name does not exist.
        DTypeError: The dtype of the input cannot represent a value.
        ShapeError: A value has another shape.

    Example:
        model.with_constants(sampling_rate=16000)
    """
    return surgery.with_constants(self, {**(values or {}), **named})


@method(Graph)
def with_weights(self: Graph, weights: Mapping[str, Any]) -> Graph:
    """Return a new graph with other arrays for some weights, by reference.

    Args:
        weights: Arrays by name, of the dtype of the weight or of one whose values it can represent. For another shape,
            the types of consumers are inferred again.

    Raises:
        GraphError: There is no weight of that name.
        DTypeError: The dtype of the weight cannot represent a value.
        ShapeError: A consumer does not support the new shape.

    Example:
        model.with_weights({"head.weight": fine_tuned})
    """
    return surgery.with_weights(self, weights)


@method(Graph)
def replace(self: Graph, what: str | Symbol | Node, fn: Callable[..., Any]) -> Graph:
    """Return a new graph in which a value or a node is replaced. This graph does not change.

    Types may change: consumers are built again with the same checks. Outputs keep their names.

    Args:
        what: A value, by its name or as a Symbol, or a Node (`graph["y"].producer`), also in bodies and functions. A
            captured Symbol is replaced only in its body.
        fn: For a value, `fn(value)` replaces it in all consumers, outputs, bodies and stores to buffers; the value
            itself remains as far as `fn` uses it. For a node, `fn(*operands)` returns the replacements of its results,
            as one value or a tuple. Omitted operands are None, and keyword-only parameters are attributes of the node.
            Nodes that only it used are dropped. `fn` builds on Symbols of the new graph, where `value.graph["name"]` is
            an earlier value, and returns Symbols, arrays or numbers.

    Raises:
        GraphError: The value does not exist, or no output depends on it.
        DTypeError: A consumer does not support the new dtype.
        ShapeError: A consumer does not support the new shape.

    Example:
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
    """Return a new graph in which all matches of a pattern are replaced. This graph does not change.

    Matches are searched once, from the outputs backwards, also in bodies and functions. Nodes of a match are not part
    of another match, unless something else uses them: then they remain. Types and names: see `replace`.

    Args:
        pattern: An operator, "Relu" or "com.microsoft::Gelu"; a function of Symbols, one per parameter, that returns
            the Symbol to match, written with ops or `gc.patterns.op`; or a `gc.patterns.Pattern` with conditions.
        fn: For an operator, takes its operands and returns all results. For a function, takes the values of its
            parameters, by name if all names are the same, else by position, then the other values that the pattern
            returns. Keyword-only parameters are attributes of the last node.
        where: Returns True for each match, a `gc.patterns.Match` of this graph, to replace.
        missing_ok: If True, return an equal graph if nothing matches.

    Raises:
        GraphError: Nothing matches, or the pattern cannot be traced. Other errors: see `replace`.

    Source: function-based rewriting of ONNX Script.

    Example:
        graph.replace_all("Relu", lambda x: ops.abs(x))
        graph.replace_all("LeakyRelu", lambda x, *, alpha: ops.where(x > 0, x, x * alpha))
        graph.replace_all(lambda x: x * ops.sigmoid(x), lambda x: ops.silu(x))
    """
    return surgery.replace_all(self, pattern, fn, where, missing_ok)


@method(Graph)
def find_all(
    self: Graph, pattern: str | Callable[..., Any], *, where: Callable[[Match], bool] | None = None
) -> list[Match]:
    """Return the matches of a pattern, which `replace_all` would replace.

    Args:
        pattern: The pattern, see `replace_all`.
        where: A condition for matches, see `replace_all`.

    Returns:
        Matches with the last `node`, all `nodes`, the `result`, and the Symbol of each parameter, `match["x"]`.

    Raises:
        GraphError: The pattern cannot be traced.

    Example:
        print(len(graph.find_all(lambda x: x * ops.sigmoid(x))))
    """
    return surgery.find_all(self, pattern, where)


@method(Graph)
def fold_preprocessing(self: Graph) -> Graph:
    """Return a new graph with affine preprocessing folded into the first products.

    The products are Conv, ConvTranspose, MatMul and Gemm. BatchNormalization, and Add, Sub, Mul, Div, Neg by constants
    with one value, or one per channel, are folded into their weights and bias. So are Gather, Slice, and Split with
    Concat that reorder channels (RGB and BGR). Cast, Transpose, Reshape and Resize in between are kept. Only values
    whose consumers are all float32 and float64 products are folded. A shift before a convolution with zero padding
    remains as one Add, since the padding is not shifted.

    Weights are read immediately; changed weights are new arrays, others are the same. Results are equal up to the
    rounding of the dtype, not bit for bit.

    Raises:
        GraphError: Nothing can be folded; the message gives the reason.

    Example:
        small = gc.compose(preprocess, model).fold_preprocessing()
    """
    return surgery.fold_preprocessing(self)


@method(Graph)
def astype(
    self: Graph, dtype: object, *, source: object = None, keep: str | Iterable[str] = (), keep_io: bool = True
) -> Graph:
    """Return a new graph that computes in another float dtype.

    Weights and constants are cast once; those of other dtypes are the same arrays. Operands that an operator accepts
    only in float32 are not converted: sizes of Resize, scales of QuantizeLinear, classical models, operators of other
    domains. Bodies and functions are converted, sequences are not. Finite weights beyond the range of `dtype` become
    its largest finite value; a `LossyCastWarning` names them, and counts those that become 0.

    Args:
        dtype: "float16", "bfloat16", "float32" or "float64".
        source: The dtypes to convert, by default float32, and for "float32" float16 and bfloat16.
        keep: Shell patterns of operators ("Softmax"), layers ("encoder/*"), results, inputs and weights to keep in
            their dtype, with casts around them. A pattern that matches nothing of the converted dtypes is a warning.
        keep_io: If True, inputs and outputs keep their dtypes, with casts after and before them. Otherwise they are
            converted, except results of nodes in `keep`. Buffers are always converted.

    Raises:
        DTypeError: The dtype is not supported.
        GraphError: A pattern matches nothing.

    Source: the float16 conversion of onnxconverter-common.

    Example:
        half = model.astype("float16", keep=["Softmax", "head/*"])
    """
    return surgery.astype(self, dtype, source, keep, bool(keep_io))


@method(Graph)
def diff(self: Graph, other: Graph) -> Any:
    """Return the differences between this graph and another one; printed as lines with "-", "+" and "~".

    Nodes are matched by the names of their results, then by their operands and consumers, so that order, numbers and
    generated names do not matter. Weights are compared by value. A renamed dim, or one with a size, is reported once.
    Bodies and functions are compared; source lines and layers are not.

    Returns:
        A `Diff`, which is False if nothing differs, with tuples of frozen records: `inputs`, `outputs`, `dims`,
        `nodes`, `types` of inner values, `weights` and `metadata`. `as_dict()` is for JSON.

    Raises:
        GraphError: `other` is not a Graph.

    Example:
        print(model.diff(Graph.load("quantised.onnx")))
    """
    return surgery.diff(self, other)
