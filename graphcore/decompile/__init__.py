"""Graphs as Python source. See docs/howto/edit_as_source.md."""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import re
import traceback
import zlib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx

from graphcore.arrays.casting import Array
from graphcore.checkpoints import Tensors, safetensors
from graphcore.decompile.module import Writer
from graphcore.decompile.templates import NAMESPACE, PUBLIC, Templates
from graphcore.decompile.text import WIDTH, Expr, call, lines, quoted, spaced
from graphcore.errors import ExportError, GraphcoreError, GraphError
from graphcore.ir.definitions import Definition
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Captured, Constant, Input, present, source_of
from graphcore.onnx.proto.value_protos import raw
from graphcore.onnx.read.source import tensors_of
from graphcore.support.atomic_files import replace_files
from graphcore.support.markup import escaped
from graphcore.surgery.diff.alignment import Alignment
from graphcore.surgery.diff.records import Contents
from graphcore.types.dtypes import DType


class Source(str):
    """The text of a module. Notebooks show it with highlighted syntax."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        try:
            from pygments import highlight  # type: ignore[import-untyped]  # of every notebook
            from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
            from pygments.lexers import PythonLexer  # type: ignore[import-untyped]
        except ImportError:
            return f"<pre>{escaped(self)}</pre>"
        html: str = highlight(self, PythonLexer(), HtmlFormatter(noclasses=True))
        return html


@method(Graph)
def to_python(self: Graph, path: str | os.PathLike[str] | None = None) -> Source:
    """Return the graph as a module of Python that builds it, as a person would write it.

    Repeated blocks become functions and loops, weights are read by name from a safetensors file, and comments tell
    types. The module defines `graph`, which exports the same bytes with `target="onnx"`; text that is edited builds
    another graph, whose values have the names of the file where they are still there.

    Args:
        path: The file to write, `model.py`; the arrays go to `model.safetensors` beside it. By default nothing is
            written, and the text reads the arrays from a file with the name of the graph.

    Raises:
        GraphError: An input or a node has a type that no expression makes, or the graph has buffers.
        ExportError: A file cannot be written.

    Example:
        Graph.load("model.onnx").to_python("model.py")
    """
    stem = self.name if path is None else Path(path).stem
    name = Expr(quoted(f"{stem}.safetensors"))
    place = name if path is None else call("Path(__file__).with_name(", [name])
    text, arrays, metadata = _written(self, call("load_tensors(", [place]))
    if path is not None:
        if arrays or metadata:
            safetensors.save(os.fspath(Path(path).with_name(f"{stem}.safetensors")), arrays, metadata)
        try:
            replace_files([(os.fspath(path), [text.encode()])])
        except OSError as error:
            raise ExportError(
                f"to_python: {os.fspath(path)} cannot be written: {error.strerror}", help="choose another path"
            ) from None
    return Source(text)


def _written(graph: Graph, opening: Expr) -> tuple[str, dict[str, Array], dict[str, str]]:
    """Return the text of a graph, the arrays that it reads, and the metadata of the file of arrays.

    The text is run: a line that building refuses, since shapes are inferred there and were declared before, is written
    with declared types.
    """
    templates, declared = Templates(graph), set[str]()
    while True:
        writer = Writer(graph, templates, declared)
        rows = spaced(writer.write())
        own = writer.arrays()
        arrays = {name: a if dtype in safetensors.NAMES else a.view(np.uint8) for name, (a, dtype) in own.items()}
        failing = _failing(writer, rows, arrays)
        if not failing:
            break
        declared |= failing
    fields = _encode_fields(graph, own)
    if fields:
        rows.append("graph = graph.with_fields(tensors)")
    first = lines("tensors = ", opening) if arrays or fields else []
    text = "\n".join([*_head(graph, [*first, *rows]), "", *first, *rows, ""])
    return text, arrays, {_FIELDS: fields} if fields else {}


def _failing(writer: Writer, rows: Sequence[str], arrays: Mapping[str, Array]) -> set[str]:
    """Run the rows of a module, and return the texts of the nodes of the row that fails."""
    name = "<module of a graph>"
    try:
        exec(compile("\n".join(rows), name, "exec"), {**NAMESPACE, "__name__": name, "tensors": arrays})  # our own text
    except GraphcoreError as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
        failing = writer.built.get(rows[(frames[-1].lineno or 0) - 1], set()) if frames else set[str]()
        if failing - writer.declared:
            return failing
        raise GraphError(
            f"to_python: graph {writer.graph.name!r} cannot be built again: {error.summary}",
            help="graph.rename changes names that no graph can have; graph.extract cuts off other nodes",
        ) from None
    return set()


def _head(graph: Graph, rows: Sequence[str]) -> list[str]:
    """Return the docstring and the imports of a module."""
    words = {node.id for node in ast.walk(ast.parse("\n".join(rows))) if isinstance(node, ast.Name)}
    public = [name for name in PUBLIC if name in words]
    line = f"from graphcore import {', '.join(public)}"
    blocks = [
        ["from functools import cache"] * ("cache" in words) + ["from pathlib import Path"] * ("Path" in words),
        ["import numpy as np"] * ("np" in words),
        [line] if len(line) <= WIDTH else ["from graphcore import (", *(f"    {name}," for name in public), ")"],
    ]
    blocks[-1] += ["from graphcore.ops import onnx"] * ("onnx" in words)
    name = re.sub(r"[^\w .:/-]", "_", graph.name)
    return [f'"""The graph {name} as source."""', *(row for block in blocks if block for row in ("", *block))]


# The fields of the file beside its graph, names first, which are stored beside the arrays.

_FIELDS = "graphcore.model"
"""The metadata of a file of arrays that has the model without its arrays."""


def _encode_fields(graph: Graph, arrays: Mapping[str, tuple[Array, DType]]) -> str:
    """Return the model without the arrays of a file; empty for a graph that is another one in ONNX."""
    try:
        model = graph.to_onnx(target="onnx")
        read = graph if graph.source is not None else Graph.load(model)
    except GraphcoreError:
        return ""
    contents = Contents()
    if read is not graph and _signature(read, contents) != _signature(graph, contents):
        return ""  # some ops, or dtypes, are others in ONNX
    places = {_digest(raw(array, dtype)): name for name, (array, dtype) in arrays.items()}
    for tensor in tensors_of(model):
        name = places.get(_digest(tensor.raw_data)) if tensor.raw_data else None
        if name is not None:
            tensor.raw_data = b""
            tensor.external_data.add(key=_FIELDS, value=name)
    return base64.b64encode(zlib.compress(model.SerializeToString(deterministic=True), 9)).decode()


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


@method(Graph)
def with_fields(self: Graph, tensors: Tensors[Array]) -> Graph:
    """Return a graph with the names and other fields of the model that `to_python` was called on.

    Args:
        tensors: The arrays that `to_python` wrote, from `gc.load_tensors`.

    Returns:
        The graph of that model if this one computes the same in the same way; otherwise this graph, whose values get
        the names of the values of the model that they stand for.
    """
    encoded = tensors.metadata.get(_FIELDS, "")
    if not encoded:
        return self
    model = onnx.ModelProto.FromString(zlib.decompress(base64.b64decode(encoded)))
    for tensor in tensors_of(model):
        names = [entry.value for entry in tensor.external_data if entry.key == _FIELDS]
        if names:
            tensor.ClearField("external_data")
            tensor.raw_data = bytes(raw(tensors[names[0]], DType.of(tensor.data_type)))
    old = Graph.load(model)
    contents = Contents()
    if _signature(old, contents) == _signature(self, contents):
        return old
    pairs = Alignment(old, self, contents)
    for symbol in old.symbols:
        new, name = pairs.values.get(symbol.id), symbol.given_name
        if new is not None and name and new.given_name is None and name not in self.names.taken:
            new.name = name
    return self


def _signature(graph: Graph, contents: Contents, outer: Mapping[int, Hashable] = MappingProxyType({})) -> Hashable:
    """Return a key that is equal for graphs that compute the same in the same way, whatever their names."""
    keys: dict[int, Hashable] = {}
    for symbol in graph.symbols:
        producer = symbol.producer
        if isinstance(producer, Input):
            keys[symbol.id] = ("input", symbol.name if graph.scope.outer is None else producer.position)
        elif isinstance(producer, Constant):
            keys[symbol.id] = contents.of(producer.array)
        elif isinstance(producer, Captured):
            keys[symbol.id] = outer[producer.symbol.id]
    nodes = Counter[Hashable]()
    for node in graph.nodes:
        is_returned = graph.scope.outer is not None and node.op_type == "Identity"
        if is_returned and isinstance(source_of(node.inputs[0]), Constant):
            keys[node.outputs[0].id] = keys[present(node.inputs[0]).id]  # a constant that a body returns
            continue
        inner = [
            _signature(item if isinstance(item, Graph) else item.body, contents, keys)
            for _, item in sorted(node.attributes.items())
            if isinstance(item, (Graph, Definition))
        ]
        operands = [None if s is None else keys[s.id] for s in node.inputs]
        key = hash((node.domain, node.op_type, contents.attributes(node), *inner, *operands))
        nodes[key] += 1
        keys |= {s.id: (key, position) for position, s in enumerate(node.outputs)}
    inputs = tuple((s.name, s.type) for s in graph.input_symbols) if graph.scope.outer is None else ()
    return inputs, tuple(keys[s.id] for s in graph.outputs), frozenset(nodes.items())
