"""Methods of Graph and Symbol that need more than `graphcore.ir`: ops, passes, files, the runtime.

This module attaches them. Editors and type checkers read `ir/attached.pyi` for Graph, and the declarations under
TYPE_CHECKING for Symbol. Code of the package calls the underlying functions directly. Late imports are not needed to
build a graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from graphcore import ops
from graphcore.build.declare import REGISTRY
from graphcore.build.functions import Subgraph
from graphcore.errors import GraphError
from graphcore.ir import printing as verification
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName, read_by
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform import pickling
from graphcore.onnx.schemas import runtime_operators
from graphcore.promotion.rules import Scalar
from graphcore.support.escaping import method_hint
from graphcore.support.lazy import Lazy
from graphcore.types.tensor_types import DimLike, Type

if TYPE_CHECKING:
    import onnx

    from graphcore import array_api
    from graphcore import passes as optimisation
    from graphcore.array_api import _numpy_functions
    from graphcore.onnx.schemas import inference
    from graphcore.runtime import export as exporting
    from graphcore.runtime.inspection.placement import Placement
    from graphcore.runtime.inspection.profiling import Profile
    from graphcore.runtime.ort import operators
    from graphcore.runtime.quantizer.report import Report
    from graphcore.support.progress import ProgressOption
    from graphcore.surgery import calling
    from graphcore.view import notebook as drawing
else:  # most graphs need none of them, and some import onnx, the runtime, and what draws
    array_api, _numpy_functions = Lazy("graphcore.array_api"), Lazy("graphcore.array_api._numpy_functions")
    optimisation, calling = Lazy("graphcore.passes"), Lazy("graphcore.surgery.calling")
    inference, exporting = Lazy("graphcore.onnx.schemas.inference"), Lazy("graphcore.runtime.export")
    operators, drawing = Lazy("graphcore.runtime.ort.operators"), Lazy("graphcore.view.notebook")


runtime_operators.provide(lambda: operators.InstalledOperators())

# Methods of Graph


@method(Graph, "__setitem__")
def store(self: Graph, key: str, value: Any) -> None:
    """Store to a buffer: `graph["cache"] = value`, see `ops.buffer_store`.

    Raises `GraphError` for other names.
    """
    buffer = self.buffers.get(key)
    if buffer is None:
        raise GraphError(
            f"graph[{key!r}] = ...: graph {self.name!r} has no buffer of that name",
            help=f"its buffers: {', '.join(map(repr, self.buffers)) or 'none'}",
        )
    if value is not buffer:  # `graph["cache"] += value` has stored already
        ops.buffer_store(buffer, value)


@method(Graph)
def full(self: Graph, value: Scalar, shape: Sequence[DimLike], dtype: object = None) -> Symbol:
    """Return a tensor of a shape, which may have named dims, filled with `value`. See `ops.full`."""
    with self:
        return ops.full(shape, value, dtype=dtype)


@method(Graph)
def range(
    self: Graph, start: Any, stop: Any = None, step: Any = 1, *, dtype: object = None, out_dim: Any = None
) -> Symbol:
    """Return the numbers from `start` to `stop`, exclusive, in steps of `step`. See `ops.range`."""
    with self:
        return ops.range(start, stop, step, dtype=dtype, out_dim=out_dim)


@method(Graph)
def op(
    self: Graph,
    op_type: str,
    inputs: Symbol | Sequence[Symbol | np.ndarray[Any, Any] | Scalar | None] = (),
    attributes: Mapping[str, Any] | None = None,
    out_types: Sequence[Type] | None = None,
    *,
    domain: str = "",
) -> tuple[Symbol, ...]:
    """Emit an operator of any domain, without promotion and without checks of operands.

    Args:
        op_type: The name of the operator, also as "domain::name".
        inputs: A Symbol, or a sequence of Symbols, arrays or Python scalars, which become constants, and None for an
            omitted optional input.
        attributes: Ints, floats, strings, arrays, Graphs and lists of them.
        out_types: The types of the outputs. By default ONNX's inference determines them, or for operators of the
            installed runtime its own inference. `export` raises `ExportError` if they are wrong.
        domain: The domain of the operator.

    Returns:
        The outputs.

    Raises:
        GraphError: The types of the outputs cannot be inferred.
    """
    if "::" in op_type and not domain:
        domain, _, op_type = op_type.rpartition("::")
    operands = (inputs,) if isinstance(inputs, Symbol) else inputs
    symbols = tuple(None if v is None else self.build.operand(v, op_type, f"input {i}") for i, v in enumerate(operands))
    if out_types is None:
        out_types = inference.infer_types(op_type, symbols, dict(attributes or {}), domain)
    else:
        self.site.has_untyped = True
        out_types = [read_by(self.promotion, type_) for type_ in out_types]
    return self.build.emit_many(op_type, symbols, tuple(out_types), dict(attributes or {}), domain)


@method(Graph)
def subgraph(
    self: Graph, name: str, fn: Callable[..., Any], types: Mapping[str, Type] | Sequence[Type] = ()
) -> Callable[..., Any]:
    """Trace a function with declared operands; it can be called any number of times. See `gc.function`.

    Args:
        name: The name of the function and of the layer of each call.
        fn: Takes one Symbol per type, and returns a Symbol, or a tuple, list or dict of them.
        types: The types of the operands by name, or a list. Named dims may have any size in a call.

    Returns:
        The function. A call raises `GraphError`, `DTypeError` or `ShapeError` for operands of other types.

    Raises:
        GraphError: `fn` uses Symbols from outside other than constants, or does not return Symbols.

    Example:
        twice = g.subgraph("twice", lambda x: x + x, [TensorType(DType.float32, ["n"])])
        y = twice(g[0])
    """
    return Subgraph(self, name, fn, types)


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
    return calling.call(self, operands, named, implicit_casts=implicit_casts, as_function=as_function, layer=layer)


@method(Graph)
def verify(self: Graph) -> None:
    """Check the invariants of the graph.

    All operands, outputs and captured values belong to their graph or body and are computed before they are used; names
    are unique.

    Raises:
        GraphError: For the first violation.
    """
    verification.verify(self)


@method(Graph)
def copy(self: Graph) -> Graph:
    """Return an independent copy of the graph without outputs; arrays are shared."""
    graph = pickling.copied(self)
    graph.build.outputs(None)
    return graph


@method(Graph)
def optimize(
    self: Graph,
    passes: Sequence[str | Callable[[Graph], Graph]] | None = None,
    *,
    limit: int = 1 << 20,
    keep: str | Iterable[str] = (),
) -> Graph:
    """Return a new graph with fewer nodes and the same results, bit for bit except NaN payloads.

    Inputs, outputs, explicit names, layers, source lines and metadata are kept. Bodies are optimised too.

    Args:
        passes: Names or functions of `graphcore.passes`, by default all. They run together until nothing changes.
        limit: The maximum size in bytes of a constant created by folding, unless it replaces larger ones. All such
            constants together use at most 16 times as much additional memory.
        keep: Names or patterns ("head.*") of weights that must remain replaceable. Other initializers of an imported
            model become constants, and `with_weights` reports the pass that used one; weights of a built graph remain.

    Raises:
        GraphError: The graph is unfinished, a pass does not exist, or a pattern matches no weight.
    """
    return optimisation.optimize(self, passes, limit=limit, keep=keep)


@method(Graph)
def to_onnx(
    self: Graph,
    *,
    target: TargetName = "cpu",
    precision: Precision | None = None,
    inline: bool = False,
    optimize: Optimize | None = None,
    opset: int | None = None,
    ir_version: int | None = None,
    runtime: str | None = None,
    io_dtype: object = None,
) -> onnx.ModelProto:
    """Return the graph as an `onnx.ModelProto` that includes its weights.

    Args:
        target: "onnx" for standard ONNX with the ops as built; "cpu", "cuda" or "openvino" for a plain onnxruntime
            session of that provider; "wasm" or "webgpu" for onnxruntime-web. For "onnx", a loaded model in which
            nothing changed is written as it was read.
        precision: "exact", or "fast" to keep consecutive ops on floats narrower than float32 in float32. By default
            "exact", but onnxruntime's own kernels compute float16 and bfloat16 of imported models.
        inline: If True, calls of functions are replaced by their bodies. Otherwise they are functions of the model
            where dtypes allow it.
        optimize: "exact" runs the passes of `Graph.optimize`. "all" also uses faster forms for the provider, in which
            sums in float32 may have another order; without any, it does not run the passes. "off" does neither.
            Default "all", for target "onnx" "off".
        opset: The opset of ONNX, from 17 to 28; by default the oldest in which all operators have the same meaning.
        ir_version: The version of the file format, by default that of the opset.
        runtime: The release of onnxruntime that will run the model, such as "1.20". It determines `opset` and
            `ir_version`; an explicit `opset` must be supported by it. "web-1.30" is a release of onnxruntime-web, and
            the target "wasm" by default. "installed" is the installed one on this
            processor, whose products of bytes are faster in forms that are inexact on other processors.
        io_dtype: The dtype of every float input, output and buffer of the file, under the same names: "float32",
            "float16", "bfloat16" or "float64". Casts inside convert to and from their own dtypes, so that results are
            the same. Sequences, optionals and other dtypes are unchanged. By default each has its own dtype.

    Raises:
        DTypeError: `io_dtype` is not one of these dtypes.
        GraphError: The graph is unfinished, the opset or release is unknown, or an operator does not exist in it.
        ResourceLimitError: The model exceeds protobuf's 2 GiB. Use `export`.
    """
    options = exporting.Options(target, precision, inline, optimize, opset, ir_version, runtime, io_dtype)
    model: onnx.ModelProto = exporting.model_proto(self, options)
    return model


@method(Graph)
def to_ir(
    self: Graph,
    *,
    target: TargetName = "cpu",
    precision: Precision | None = None,
    inline: bool = False,
    optimize: Optimize | None = None,
    opset: int | None = None,
    ir_version: int | None = None,
    runtime: str | None = None,
    io_dtype: object = None,
) -> Any:
    """Return an `onnx_ir.Model`, which shares the arrays of weights. Needs the extra `ir`.

    The arguments and errors: see `to_onnx`. `ModelError` is raised if onnx-ir is not installed.
    """
    options = exporting.Options(target, precision, inline, optimize, opset, ir_version, runtime, io_dtype)
    return exporting.ir_model(self, options)


@method(Graph)
def export(
    self: Graph,
    path: str | os.PathLike[str],
    *,
    target: TargetName = "cpu",
    precision: Precision | None = None,
    external_data: bool | None = None,
    inline: bool = False,
    optimize: Optimize | None = None,
    opset: int | None = None,
    ir_version: int | None = None,
    runtime: str | None = None,
    io_dtype: object = None,
    progress: ProgressOption = False,
) -> None:
    """Write the graph as an ONNX file, atomically.

    The other arguments, and `GraphError`: see `to_onnx`.

    Args:
        path: The path of the file.
        external_data: If True, weights are written to a separate file beside it (`<name>.data`). Default for weights
            above 1 GiB.
        progress: True shows a line on stderr; a function is called with the number of written bytes and the total.

    Raises:
        ExportError: The file cannot be written.
    """
    options = exporting.Options(target, precision, inline, optimize, opset, ir_version, runtime, io_dtype)
    exporting.export(self, path, external_data, options, progress)


@method(Graph, "__str__")
def text(self: Graph) -> str:
    return verification.graph_text(self)


@method(Graph)
def save_html(
    self: Graph,
    path: str | os.PathLike[str],
    *,
    title: str = "",
    targets: Sequence[TargetName] | None = None,
    precision: Precision | None = None,
    optimize: Optimize = "all",
    profile: Profile | None = None,
    placement: Placement | None = None,
    quantization: Report | None = None,
    against: Graph | None = None,
    values: Mapping[str, Any] | None = None,
    statistics: bool = True,
    weight_bytes: int = 1 << 20,
    run: Literal["inline", "beside"] | None = None,
) -> None:
    """Write the graph as one HTML file, atomically: an interactive page that works offline. See docs/howto/draw.md.

    Args:
        path: The path of the file.
        title: The title of the page, by default the graph's name.
        targets: Targets for which the page shows the lowered nodes and the reasons. By default "cpu", if the graph can
            be lowered for it.
        precision: The precision of lowering, see `InferenceSession`.
        optimize: The optimisation of lowering, see `InferenceSession`.
        profile: The result of `Model.profile` for a Model of this graph; nodes show time and memory.
        placement: The result of `Model.placement` for a Model of this graph; nodes show providers.
        quantization: The report of `quantize`, for the graph before or after it.
        against: Another graph; the page shows the differences.
        values: Arrays by the names of values, such as from `Model.debug`; the page shows their statistics.
        statistics: Whether the page also shows statistics of weights, of at most 2^27 elements in total.
        weight_bytes: The page contains .npy files of weights, which it can save, of at most so many bytes in total, the
            smallest first. Of other weights it shows the first values.
        run: "inline" for a page that also runs the graph, with the WebAssembly of onnxruntime-web in it; "beside" for
            one that reads it from a file beside the page, from a server. See docs/howto/draw.md.

    Raises:
        ExportError: The file cannot be written.
        GraphError: A target or a name in `values` does not exist, or the script of the page was not built. Lowering for
            an explicit target may raise other errors.
        DTypeError: `values` has an item that is not an array.
        MissingExtraError: `run` is given and the npm package onnxruntime-web is not installed.
    """
    options = drawing.PageOptions(
        title, targets, precision, optimize, profile, placement, quantization, against, values or {}, statistics,
        weight_bytes, run,
    )  # fmt: skip
    drawing.save_html(self, path, options)


@method(Graph)
def view(
    self: Graph,
    path: str | os.PathLike[str] | None = None,
    *,
    open: bool = True,
    title: str = "",
    targets: Sequence[TargetName] | None = None,
    precision: Precision | None = None,
    optimize: Optimize = "all",
    profile: Profile | None = None,
    placement: Placement | None = None,
    quantization: Report | None = None,
    against: Graph | None = None,
    values: Mapping[str, Any] | None = None,
    statistics: bool = True,
    weight_bytes: int = 1 << 20,
    run: Literal["inline", "beside"] | None = None,
) -> str:
    """Write the page of the graph, open it in the browser, and return the path of the file.

    The other arguments and errors: see `save_html`.

    Args:
        path: The path of the file; by default a temporary file, which is not deleted.
        open: Whether to open the page in the browser.

    Example:
        graph.view(profile=model.profile(x))
    """
    options = drawing.PageOptions(
        title, targets, precision, optimize, profile, placement, quantization, against, values or {}, statistics,
        weight_bytes, run,
    )  # fmt: skip
    path_of_page: str = drawing.view(self, path, open, options)
    return path_of_page


@method(Graph)
def _repr_html_(self: Graph) -> str:
    drawn: str = drawing.graph_html(self)
    return drawn


@method(Graph)
def _repr_svg_(self: Graph) -> str | None:
    drawn: str | None = drawing.graph_svg(self)
    return drawn


setattr(Graph, "__getstate__", pickling.state_of)  # noqa: B010 - an assignment would be checked as an override
setattr(Graph, "__setstate__", pickling.restore)  # noqa: B010


# Methods of Node and Symbol


@method(Node, "__repr__")
def node_text(self: Node) -> str:
    return verification.node_text(self)


@method(Symbol, "_repr_html_")
def symbol_html(self: Symbol) -> str:
    drawn: str = drawing.symbol_html(self)
    return drawn


@method(Symbol, "_repr_svg_")
def symbol_svg(self: Symbol) -> str:
    drawn: str = drawing.symbol_svg(self)
    return drawn


@method(Symbol, "__getattr__")
def unknown_attribute(self: Symbol, name: str) -> Any:
    """Raise `AttributeError` with a suggestion."""
    hint = method_hint(name, REGISTRY, (Symbol,))
    # without obj= Python adds no suggestion of its own
    raise AttributeError(f"a Symbol has no attribute {name!r}{hint and f'; {hint}'}", name=name)


@method(Symbol, "__array_namespace__")
def array_namespace(self: Symbol, /, *, api_version: str | None = None) -> Any:
    """Return the module of the array API standard. Raises `GraphError` for an unsupported version."""
    return array_api._namespace(api_version)


@method(Symbol, "__array_ufunc__")
def array_ufunc(self: Symbol, ufunc: Any, how: str, /, *inputs: Any, **options: Any) -> Any:
    """Build the op of a NumPy ufunc: `np.exp(x)`, `np.add(array, x)`, `array + x`.

    Raises `SymbolError` with a suggestion for an unsupported ufunc or argument, and the errors of the op.
    """
    return _numpy_functions.call_ufunc(ufunc, how, inputs, options)


@method(Symbol, "__array_function__")
def array_function(self: Symbol, function: Any, types: Any, arguments: tuple[Any, ...], named: Any, /) -> Any:
    """Build the ops of a NumPy function: `np.mean(x, axis=0)`, `np.concatenate([x, y])`.

    Raises `SymbolError` with a suggestion for an unsupported function or argument.
    """
    return _numpy_functions.call_function(function, arguments, named)


@method(Symbol)
def to_device(self: Symbol, device: object, /, *, stream: object = None) -> Symbol:
    """Return the Symbol unchanged."""
    return self


def _size(self: Symbol) -> int | None:
    """The number of elements; None if it is not known while the graph is being built."""
    size = self.shape.size
    return int(size) if size.is_static else None


def _device(self: Symbol) -> None:
    """None: the session determines the device. Functions of the array API standard accept None as device=."""


setattr(Symbol, "size", property(_size))  # noqa: B010 - an assignment would be checked as an override
setattr(Symbol, "device", property(_device))  # noqa: B010
