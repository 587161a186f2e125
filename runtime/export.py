"""Write graphs as ModelProtos and to files, atomically."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from graphcore.errors import ExportError, GraphError
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.ir.symbol import Constant
from graphcore.ir.transform.rewrite import exposed
from graphcore.onnx.notes import OPSET
from graphcore.onnx.proto.buffer_notes import note_initial_values
from graphcore.onnx.proto.model_proto import encode, join, within_limit
from graphcore.onnx.proto.value_protos import Chunk, External, raw
from graphcore.onnx.read.ir_models import to_ir
from graphcore.onnx.read.source import Source, source_of
from graphcore.runtime.lowering import LEVELS, PRECISIONS, TARGETS, file_versions, lower
from graphcore.runtime.lowering.decompositions.bits import BitsViewed
from graphcore.runtime.lowering.targets.releases import ANY, Runtime
from graphcore.runtime.ort.openvino.support import require
from graphcore.support.atomic_files import replace_files, replace_pair
from graphcore.support.escaping import choices
from graphcore.support.progress import ProgressOption, display_for
from graphcore.surgery.astype import with_io_dtype
from graphcore.types.dtypes import DType

EXTERNAL_ABOVE = 1 << 30
"""Weights and constants of more bytes go to a file of their own."""

INSTALLED = "installed"
"""The value of `runtime` for the installed release on this processor."""

_ALIGNMENT = 4096  # so that pages of the file can be mapped
_PIECE = 1 << 24  # bytes that are written between two reports of progress
_MIN_EXTERNAL_BYTES = 1024  # bytes below which a tensor stays in the model


@dataclass(frozen=True, slots=True)
class Options:
    """Options of writing a graph, see `Graph.to_onnx`."""

    target: TargetName = "cpu"
    precision: Precision | None = None
    inline: bool = False
    optimize: Optimize | None = None
    opset: int | None = None
    ir_version: int | None = None
    runtime: str | None = None
    io_dtype: object = None


@dataclass(frozen=True, slots=True)
class WrittenGraph:
    """A graph with the nodes of a file.

    versions: of ONNX's domains. ir: of the file format. is_legal: lowering for the CPU leaves it unchanged.
    """

    graph: Graph
    versions: Mapping[str, int]
    ir: int
    is_legal: bool = False

    def encoded(self, external: External | None = None) -> list[Chunk]:
        """Return the ModelProto in chunks."""
        return encode(
            self.graph, external, ir=self.ir, versions=self.versions, keeps_fields=True, is_legal=self.is_legal
        )


def write_graph(graph: Graph, options: Options) -> WrittenGraph:
    """Return the graph lowered for a target, at the requested versions, or the oldest possible ones.

    Raises `GraphError` for a target, precision, level, opset or release that does not exist, and for what has no form
    at the opset that was asked for; `ExportError` for a node of dtypes that its operator does not have.
    """
    if options.target not in TARGETS:
        raise GraphError(f"no target is called {options.target!r}", help=choices(options.target, TARGETS))
    if options.precision is not None and options.precision not in PRECISIONS:
        raise GraphError(f"there is no precision {options.precision!r}", help=choices(options.precision, PRECISIONS))
    options = replace(options, target=file_versions.web_target(options.target, options.runtime))
    versions = _versions(options)
    if not graph.outputs:
        graph.verify()  # which says so; operands were checked as each node was made
    if options.io_dtype is not None:
        graph = with_io_dtype(graph, options.io_dtype)
    result = file_versions.written(graph, lambda runtime: _lowered(graph, options, runtime), options.target, versions)
    is_usual = options.target == "cpu" and options.opset is None and options.runtime is None
    return WrittenGraph(*result, is_usual and not result[0].metadata)


def _versions(options: Options) -> file_versions.Versions:
    """Return the versions for the options; "installed" is the installed release on this processor."""
    if options.runtime != INSTALLED:
        return file_versions.choose_versions(options.target, options.opset, options.ir_version, options.runtime)
    from graphcore.runtime.ort import release  # imports onnxruntime, which other files do not need

    version = release.runtime().version
    versions = file_versions.choose_versions(options.target, options.opset, options.ir_version, version)
    return replace(versions, runtime=replace(versions.runtime, saturates=release.saturates))


def lowered(graph: Graph, target: TargetName, precision: Precision | None = "exact") -> Graph:
    """Return the graph as in a file for a target. Raises as `write_graph`."""
    return write_graph(graph, Options(target, precision)).graph


def _as_read(graph: Graph, options: Options) -> Source | None:
    """Return the model that a graph was read from, if that is what the options ask for."""
    source = source_of(graph)
    if source is None or replace(options, optimize=None, opset=None, ir_version=None) != Options("onnx"):
        return None
    pairs = zip((options.opset, options.ir_version), source.versions, strict=True)
    same = options.optimize in (None, "off") and all(wanted in (None, version) for wanted, version in pairs)
    return source if same else None


def _lowered(graph: Graph, options: Options, runtime: Runtime) -> Graph:
    target, precision = options.target, options.precision
    level: Optimize = ("all" if TARGETS[target].table else "off") if options.optimize is None else options.optimize
    if level not in LEVELS:
        raise GraphError(f"there is no level of optimization {level!r}", help=choices(level, LEVELS))
    with_buffers = exposed(graph)
    note_initial_values(with_buffers, graph)

    def lower_for(runtime: Runtime, inline: bool) -> Graph:
        return lower(with_buffers, target, precision, inline=inline, runtime=runtime, optimize=level)

    try:
        if not TARGETS[target].runs_whole_graphs:
            return lower_for(runtime, options.inline)
        return require(with_buffers, lambda: lower_for(runtime, True))
    except BitsViewed:
        raise
    except GraphError as error:
        if runtime.opset >= OPSET:
            raise
        opset = _lowest_opset(lambda opset: lower_for(replace(ANY, opset=opset), True), runtime.opset + 1)
        if opset is None:
            raise
        raise error.with_help(
            f"export: {error.summary} at opset {runtime.opset}: opset {opset} is the lowest at which it can be written",
            f"export with opset={opset} or newer, for a runtime that takes it",
        ) from None


def _lowest_opset(lower_at: Callable[[int], Graph], first: int) -> int | None:
    """Return the first opset at which a graph can be lowered; None if there is none."""
    for opset in range(first, OPSET + 1):
        try:
            lower_at(opset)
        except GraphError:
            continue
        return opset
    return None


def model_proto(graph: Graph, options: Options) -> onnx.ModelProto:
    """Return a ModelProto, as `Graph.to_onnx` says."""
    encoded = join((_as_read(graph, options) or write_graph(graph, options)).encoded())
    model: onnx.ModelProto = onnx.ModelProto.FromString(encoded)
    return model


def ir_model(graph: Graph, options: Options) -> Any:
    """Return an `onnx_ir.Model`, as `Graph.to_ir` says."""
    result = write_graph(graph, options)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    own = {s.name for s in result.graph.symbols if isinstance(s.producer, Constant)} | result.graph.defaults.keys()

    def place(name: str, array: np.ndarray[Any, Any]) -> tuple[str, int] | None:
        if name not in own or array.nbytes < _MIN_EXTERNAL_BYTES or array.dtype == object:
            return None
        arrays[name] = array
        return "memory", 0

    return to_ir(onnx.ModelProto.FromString(join(result.encoded(place))), arrays)


def export(
    graph: Graph,
    path: str | os.PathLike[str],
    external_data: bool | None,
    options: Options,
    progress: ProgressOption = False,
) -> None:
    """Write a file, as `Graph.export` says."""
    file = os.path.realpath(os.fspath(path))
    result = _as_read(graph, options) or write_graph(graph, options)
    if external_data is None:
        written = result.graph if isinstance(result, WrittenGraph) else graph
        arrays = [s.producer.array for s in written.symbols if isinstance(s.producer, Constant)]
        external_data = sum(array.nbytes for array in arrays) > EXTERNAL_ABOVE
    try:
        if not external_data:
            _write([(file, within_limit(result.encoded()))], progress)
            return
        data = _Data(result, f"{os.path.basename(file)}.data")
        usual = data.model(os.path.basename(file) + ".data")
        with _with_progress(progress, sum(map(len, [*usual, *data.chunks]))) as pieces:
            replace_pair(file, lambda name: pieces(data.model(name)), f"{file}.data", pieces(data.chunks))
    except OSError as error:
        is_open = (
            isinstance(error, PermissionError) and os.access(os.path.dirname(file), os.W_OK) and os.path.exists(file)
        )
        raise ExportError(
            f"export: {os.fspath(path)} cannot be written: {error.strerror or error}",
            help="Windows replaces no open file: choose another path, or drop the graphs and models loaded from it"
            if is_open
            else "choose a folder that exists and can be written to",
        ) from error


def _write(files: Sequence[tuple[str, Sequence[Chunk]]], progress: ProgressOption) -> None:
    """Write files atomically. progress: reports the written bytes."""
    with _with_progress(progress, sum(len(chunk) for _, chunks in files for chunk in chunks)) as pieces:
        replace_files([(path, pieces(chunks)) for path, chunks in files])


@contextlib.contextmanager
def _with_progress(progress: ProgressOption, total: int) -> Iterator[Callable[[Sequence[Chunk]], Iterable[Chunk]]]:
    """Yield a function that splits chunks into pieces and reports progress as they are written."""
    progress_line = display_for(progress, total, "bytes")
    if progress_line is None:
        yield lambda chunks: chunks
        return
    done = 0

    def pieces(chunks: Sequence[Chunk]) -> Iterator[Chunk]:
        nonlocal done
        for chunk in chunks:
            for start in range(0, len(chunk), _PIECE):
                piece = chunk[start : start + _PIECE]
                yield piece
                done += len(piece)
                progress_line.show(min(done, total))  # a model that replaces another is written twice

    try:
        yield pieces
    finally:
        progress_line.close()


class _Data:
    """The file of weights beside a model, each aligned to a page."""

    def __init__(self, written_graph: WrittenGraph | Source, name: str) -> None:
        """name: of the file, as a rule."""
        self._written_graph = written_graph
        self._name = name
        self._offsets: list[int | None] = []
        """The offset of each tensor in the order of the model; None for a tensor in the model."""
        self._size = 0
        self.chunks: list[Chunk] = []
        self._usual = written_graph.encoded(self._place)

    def model(self, name: str) -> list[Chunk]:
        """Return the ModelProto that refers to the file of weights of this name. Raises `ExportError`."""
        if name == self._name:
            return within_limit(self._usual)
        offsets = iter(self._offsets)

        def placed(_: str, __: np.ndarray[Any, Any]) -> tuple[str, int] | None:
            offset = next(offsets)
            return None if offset is None else (name, offset)

        return within_limit(self._written_graph.encoded(placed))

    def _place(self, _: str, array: np.ndarray[Any, Any]) -> tuple[str, int] | None:
        if array.nbytes < _MIN_EXTERNAL_BYTES or array.dtype == object:
            self._offsets.append(None)
            return None
        content = raw(array, DType.of(array.dtype))
        padding = -self._size % _ALIGNMENT
        self.chunks += [bytes(padding), content]
        offset = self._size + padding
        self._size = offset + len(content)
        self._offsets.append(offset)
        return self._name, offset
