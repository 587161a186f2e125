"""The methods of Graph and Symbol that need more than a graph: ops, passes, files, the runtime.

They are attached here, as the ops are attached to Symbol. For editors and type checkers `ir/attached.pyi` names those
of Graph, and Symbol lists its own under TYPE_CHECKING. Code of the package calls the functions that they stand for.
What is imported late is not needed to build a graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore import ops
from graphcore.arrays.external_data import ExternalData
from graphcore.build.declare import REGISTRY
from graphcore.build.functions import Subgraph
from graphcore.errors import GraphError
from graphcore.ir import printing as verification
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform import pickling
from graphcore.onnx.schemas import runtime_operators
from graphcore.promotion import PromotionSystem
from graphcore.promotion.rules import Scalar
from graphcore.support.escaping import method_hint
from graphcore.types.tensor_types import DimLike, Type

if TYPE_CHECKING:
    import onnx

    from graphcore.arrays.resource_limits import Limits
    from graphcore.custom_ops.custom_op import CustomOp
    from graphcore.runtime.inspection.placement import Placement
    from graphcore.runtime.inspection.profiling import Profile
    from graphcore.runtime.quantizer.report import Report
    from graphcore.support.progress import ProgressOption


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
    limits: Limits | None = None,
    custom_ops: Iterable[str | CustomOp[..., Any]] = (),
) -> Graph:
    """Read an ONNX model as a Graph.

    source: a path, bytes or a ModelProto of opset 7 or newer. Weights stay in the mapped file; external data is
    read from plain files in the model's folder only. Operators are brought to the opset that graphs are written
    with; those of other domains stay as they are. implicit_casts: operands that should be of one dtype and are not
    are cast to what the promotion system says. promotion: the system, by default the one that the model notes, or
    "max". external_data: "links" follows symbolic links of the data, as the cache of Hugging Face's hub has them,
    within external_data_root: by default the repository in that cache, else the model's folder (docs/security.md).
    limits: what the model may take, by default `gc.Limits()`. custom_ops: those whose Python functions the model may
    call, as `gc.custom_op` made them or by name: none by default.
    Raises `ModelError` for what is no valid model, `UnsafePathError` for data outside of its folder or of the root,
    `ResourceLimitError` for what is beyond a limit.
    """
    from graphcore.onnx.read.reader import load  # onnx, as above

    return load(
        source,
        implicit_casts=implicit_casts,
        promotion=promotion,
        external_data=external_data,
        external_data_root=external_data_root,
        limits=limits,
        custom_ops=custom_ops,
    )


load.__qualname__ = "Graph.load"
setattr(Graph, "load", staticmethod(load))  # noqa: B010 - as a static method


@method(Graph)
def verify(self: Graph) -> None:
    """Check that the graph is complete and sound. Raises `GraphError` that says what is not.

    Every operand, output and captured value is one of the graph or the body that it is in, and made before it is read;
    no two have the same name.
    """
    verification.verify(self)


@method(Graph)
def copy(self: Graph) -> Graph:
    """Return an independent graph of the same nodes; arrays are shared. Its outputs may be set anew."""
    made = pickling.copied(self)
    made.build.outputs(None)
    return made


@method(Graph)
def optimize(
    self: Graph,
    passes: Sequence[str | Callable[[Graph], Graph]] | None = None,
    *,
    limit: int = 1 << 20,
    keep: str | Iterable[str] = (),
) -> Graph:
    """Return a new graph that computes the same with fewer nodes, bit for bit but for which NaN a NaN is.

    passes: names or functions of `graphcore.passes`, by default all; they run together until they find nothing
    more. limit: the bytes of the largest constant that folding makes, or what it replaces; all of them take at most 16
    times as much more. keep: names or patterns ("head.*") of weights that can be replaced afterwards. Initializers of a
    model that was read are constants otherwise, and `with_weights` of one that was used says by which pass; weights
    that a user gave to a graph stay. Inputs, outputs, names that users gave, layers, lines and metadata stay; bodies
    are optimised too. Raises `GraphError` for an unfinished graph, a pass that does not exist, and a pattern that
    matches no weight.
    """
    from graphcore.passes import optimize  # needless until a graph is optimised

    return optimize(self, passes, limit=limit, keep=keep)


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
) -> onnx.ModelProto:
    """Return the graph as an `onnx.ModelProto` with its weights inside.

    target: "onnx" for standard ONNX with the ops as built; "cpu", "cuda" or "openvino" for what a plain
    onnxruntime session of that provider runs. precision: "exact", or "fast" to leave consecutive ops on floats
    narrower than float32 in float32; by default "exact", but that float16 and bfloat16 in models that others wrote
    are left to onnxruntime's own kernels. inline: calls of functions are replaced by their bodies; otherwise they are
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
    precision: Precision | None = None,
    external_data: bool | None = None,
    inline: bool = False,
    optimize: Optimize | None = None,
    opset: int | None = None,
    ir_version: int | None = None,
    runtime: str | None = None,
    progress: ProgressOption = False,
) -> None:
    """Write the graph as an ONNX file, atomically: a whole file or none.

    path: of the file. target, precision, inline, optimize, opset, ir_version, runtime: as for `to_onnx`, which
    tells what raises `GraphError`. external_data: weights in a file of
    their own beside it (`<name>.data`); by default above 1 GiB. progress: True shows a line on stderr; a
    function is told how many bytes are written, and of how many. Raises `ExportError` where the file cannot be
    written.
    """
    from graphcore.runtime.export import Options, export  # onnx, as above

    options = Options(target, precision, inline, optimize, opset, ir_version, runtime)
    export(self, path, external_data, options, progress)


@method(Graph, "__str__")
def text(self: Graph) -> str:
    from graphcore.ir.printing import graph_text  # needless until a graph is printed

    return graph_text(self)


def _drawing() -> ModuleType:
    from graphcore.view import notebook  # the runtime, and what draws, which most graphs need not

    return notebook


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
) -> None:
    """Write the graph as one HTML file, whole or not at all: a page to look into it that asks no network.

    path: of the file. title: of the page, by default the graph's name. targets: those for which the page shows what
    lowering makes of each node, and why; by default "cpu", where the graph can be lowered for it. precision, optimize:
    of lowering, as for `InferenceSession`. profile, placement: what `Model.profile` and `Model.placement` of a Model
    of this graph gave; time, memory and providers are shown on the nodes. quantization: the report of `quantize`, for
    the graph before or after it. against: another graph; what differs from it is shown. values: arrays by the names
    of values, such as `Model.debug` gives, whose statistics are shown. statistics: whether those of weights are too,
    of the first 2^27 elements in all. See docs/howto/draw.md.

    Raises `ExportError` where the file cannot be written, `GraphError` for a target that there is not, a name in
    `values` that nothing has, and where the page's own program was not built; what lowering for a target that was
    asked for raises; `DTypeError` for values that are no arrays.
    """
    drawing = _drawing()
    shown = drawing.Shown(
        title, targets, precision, optimize, profile, placement, quantization, against, values or {}, statistics
    )
    drawing.save_html(self, path, shown)


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
) -> str:
    """Write the page of the graph, show it in the browser, and return the path of the file.

    path: of the file; by default a temporary one, which stays. open: whether the browser is asked to show it. All other
    arguments, and what is raised: as for `save_html`.

        graph.view(profile=model.profile(x))
    """
    drawing = _drawing()
    shown = drawing.Shown(
        title, targets, precision, optimize, profile, placement, quantization, against, values or {}, statistics
    )
    path_of_page: str = drawing.view(self, path, open, shown)
    return path_of_page


@method(Graph)
def _repr_html_(self: Graph) -> str:
    drawn: str = _drawing().graph_html(self)
    return drawn


@method(Graph)
def _repr_svg_(self: Graph) -> str | None:
    drawn: str | None = _drawing().graph_svg(self)
    return drawn


setattr(Graph, "__getstate__", pickling.state_of)  # noqa: B010 - an assignment would be checked as an override
setattr(Graph, "__setstate__", pickling.restore)  # noqa: B010


# Of Symbol


@method(Symbol, "_repr_html_")
def symbol_html(self: Symbol) -> str:
    drawn: str = _drawing().symbol_html(self)
    return drawn


@method(Symbol, "_repr_svg_")
def symbol_svg(self: Symbol) -> str:
    drawn: str = _drawing().symbol_svg(self)
    return drawn


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


@method(Symbol, "__getattr__")
def unknown_attribute(self: Symbol, name: str) -> Any:
    """Raise `AttributeError` that says what to write instead."""
    hint = method_hint(name, REGISTRY, (Symbol,))
    raise AttributeError(f"a Symbol has no attribute {name!r}{hint and f'; {hint}'}")


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
    from graphcore.array_api._numpy_functions import call_ufunc  # as above

    return call_ufunc(ufunc, how, inputs, options)


@method(Symbol, "__array_function__")
def array_function(self: Symbol, function: Any, types: Any, arguments: tuple[Any, ...], named: Any, /) -> Any:
    """Build the ops of a NumPy function: `np.mean(x, axis=0)`, `np.concatenate([x, y])`.

    Raises `SymbolError` that names the counterpart for a function or an argument that builds none.
    """
    from graphcore.array_api._numpy_functions import call_function  # as above

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
