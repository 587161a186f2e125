"""Pages that run their graph in the browser: the model, and onnxruntime-web. See docs/howto/draw.md."""

from __future__ import annotations

import base64
import gzip
from typing import Literal, TypeAlias

from graphcore.errors import GraphError
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.onnx.proto.model_proto import join
from graphcore.runtime.export import Options, write_graph
from graphcore.runtime.ort.web import web_package
from graphcore.support.escaping import size_text
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type
from graphcore.view.graph_data import GraphData, Json
from graphcore.view.text import dims_text, dtype_text, short_name

Wasm: TypeAlias = Literal["inline", "beside"]
"""Where a page has the WebAssembly of onnxruntime-web: in it, or in a file beside it, which a server must serve."""

_DTYPES = frozenset("bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64 string".split())
"""The names of dtypes that have arrays in JavaScript."""

_MAX_WATCHED = 1000
"""The maximum number of results of nodes that a page shows; larger graphs show their outputs only."""

_MAX_BYTES = 1 << 28
"""The maximum size of the model in a page. Browsers limit the length of a string to 2^29 characters."""


def run_data(data: GraphData, wasm: Wasm) -> Json:
    """Return the `Run` of `model.ts`. Raises as `save_html`."""
    release, program, webassembly = web_package()
    graph, places = data.graph, {id(symbol): i for i, symbol in enumerate(data.source_values)}
    border = [("input", s.name, s.type) for s in graph.input_symbols]
    border += [("output", name, type_) for name, type_ in graph.output_types.items()]
    for what, name, type_ in border:
        if not _has_array(type_):
            raise GraphError(
                f"view: a page cannot run graph {graph.name!r}: {what} {name!r:.80} is {type_}",
                help="JavaScript has tensors of bool, 8 to 64 bits, floats and strings: cast it, or omit run",
            )
    results = [s for s in data.source_values if s.graph is graph and type(s.producer) is Node]
    outputs = {id(symbol) for symbol in graph.outputs}
    shown = [s for s in results if id(s) not in outputs and _has_array(s.type)]
    if len(shown) > _MAX_WATCHED:
        shown = []
    prefix = "watched/"
    while any(name.startswith(prefix) for name in graph.output_types):
        prefix += "/"
    traced = copied(graph)
    pairs = [*graph.named_outputs, *((f"{prefix}{i}", symbol) for i, symbol in enumerate(shown))]
    traced.build.outputs([(name, traced.symbols[symbol.id]) for name, symbol in pairs])
    # JavaScript has no narrower floats: casts inside of the model give the same numbers.
    types = [type_ for _, _, type_ in border] + [symbol.type for symbol in shown]
    floats = {t.dtype for t in types if isinstance(t, TensorType) and t.dtype.is_float}
    wide = "float64" if DType.float64 in floats else "float32"
    io_dtype = None if floats <= {DType.float32, DType.float64} else wide
    written = write_graph(traced, Options("cpu", runtime=f"web-{release}", io_dtype=io_dtype))
    model = join(written.encoded())
    if len(model) > _MAX_BYTES:
        raise GraphError(
            f"view: the model of graph {graph.name!r} has {size_text(len(model))}; a page can contain 256 MiB",
            help="quantise it, see docs/howto/quantize.md, or load its file in a page of your own",
        )
    own = {s.given_name: places.get(id(s), -1) for s in graph.input_symbols}
    inputs = [(s.name, s, own.get(s.given_name, -1)) for s in written.graph.input_symbols]
    ends = [places[id(symbol)] for _, symbol in pairs]
    ends += [-1] * (len(written.graph.outputs) - len(ends))  # the new values of buffers
    named = [*zip(written.graph.output_types, written.graph.outputs, ends, strict=True)]
    first = len(graph.outputs)
    return {
        "release": release,
        "engine": _packed(program),
        "wasm": _packed(webassembly) if wasm == "inline" else "",
        "beside": "" if wasm == "inline" else f"onnxruntime-web-{release}.wasm",
        "model": _packed(model),
        "inputs": [_end(data, *each) for each in inputs if each[0] not in written.graph.defaults],
        "outputs": [_end(data, *each) for each in named],
        "watched": [first, first + len(shown)],
    }


def _has_array(type_: Type) -> bool:
    """Return True for tensors that JavaScript has arrays for, or that narrow floats become."""
    return isinstance(type_, TensorType) and (type_.dtype.is_float or type_.dtype.name in _DTYPES)


def _end(data: GraphData, name: str, symbol: Symbol, value: int) -> Json:
    """Return the `End` of an input or output of the model, which is a value of the page. value: its index, or -1."""
    own = (data.source_values[value] if value >= 0 else symbol).type
    return {
        "name": short_name(name),
        "value": value,
        "dtype": dtype_text(symbol.type),
        "own": dtype_text(own),
        "shape": dims_text(own),
    }


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()
