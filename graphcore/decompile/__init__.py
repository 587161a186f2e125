"""Graphs as Python source. See docs/howto/edit_as_source.md."""

from __future__ import annotations

import os
from pathlib import Path

from graphcore.checkpoints import safetensors
from graphcore.decompile.fields import with_fields as with_fields
from graphcore.decompile.module import source_of
from graphcore.decompile.text import Expr, call, quoted
from graphcore.errors import ExportError
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.support.atomic_files import replace_files
from graphcore.support.markup import escaped


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
    text, arrays, metadata = source_of(self, call("load_tensors(", [("", place)]))
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
