"""Graphs as Python source. See docs/howto/edit_as_source.md."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.checkpoints import safetensors
from graphcore.decompile.fields import with_fields as with_fields
from graphcore.decompile.module import Writer, is_stored
from graphcore.decompile.text import Expr, call, quoted
from graphcore.errors import ExportError, GraphcoreError, GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.support.atomic_files import replace_files
from graphcore.support.markup import escaped
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
    place = name if path is None else call("Path(__file__).with_name(", [("", name)])
    text, arrays, metadata = _written(self, call("load_tensors(", [("", place)]))
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


class _Arrays(dict[str, Array]):
    """Arrays by name, as a file of them: those of dtypes that such a file does not have as bytes."""

    metadata: Mapping[str, str] = {}

    def __init__(self, arrays: Mapping[str, tuple[Array, DType]]) -> None:
        super().__init__({name: a if is_stored(dtype) else a.view(np.uint8) for name, (a, dtype) in arrays.items()})


def _written(graph: Graph, opening: Expr) -> tuple[str, _Arrays, dict[str, str]]:
    """Return the text of a graph, the arrays that it reads, and the metadata of the file of arrays.

    The text is run: a line that building refuses, since shapes are inferred there and were declared before, is written
    with declared types.
    """
    forced: set[object] = set()
    fields = None
    while True:
        writer = Writer(graph, opening, forced, fields)
        text = writer.write()
        arrays = _Arrays(writer.arrays)
        failing = _failing(text, writer, arrays)
        if not failing:
            return text, arrays, writer.metadata
        forced, fields = forced | failing, writer.fields


def _failing(text: str, writer: Writer, arrays: _Arrays) -> set[object]:
    """Run a module, and return the tokens of the line that fails."""
    name = "<module of a graph>"
    code = compile(text.replace("\n".join(writer.opening), "\n" * (len(writer.opening) - 1)), name, "exec")
    try:
        exec(code, {"__name__": name, "tensors": arrays})  # text of our own
    except GraphcoreError as error:
        frames = traceback.extract_tb(error.__traceback__)
        numbers = [frame.lineno for frame in frames if frame.filename == name and frame.lineno]
        tokens = {*writer.places[numbers[-1] - 1]} if numbers else set()
        if not tokens - writer.forced:
            raise GraphError(
                f"to_python: graph {writer.graph.name!r} cannot be built again: {error.summary}",
                help="graph.rename changes names that no graph can have; graph.extract cuts off other nodes",
            ) from None
        return tokens
    return set()
