"""Graphs to ModelProtos and to files, whole or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from graphcore.buffers import exposed
from graphcore.errors import ExportError, GraphError
from graphcore.onnx.wire import Chunk
from graphcore.onnx.writer import OPSET, encode, join, raw, within_limit
from graphcore.replacing import replace_files
from graphcore.symbol import Constant

if TYPE_CHECKING:
    from graphcore.graph import Graph, Optimize, Precision, Target

EXTERNAL_ABOVE = 1 << 30
"""Bytes of weights and constants above which they go into a file of their own."""

_ALIGNMENT = 4096  # so that a page of the file can be mapped as it is
_SMALLEST = 1024  # bytes below which a tensor stays in the model


def lowered(
    graph: Graph,
    target: Target,
    precision: Precision = "exact",
    inline: bool = False,
    optimize: Optimize | None = None,
) -> Graph:
    """The graph legal for a target. Raises `GraphError` for a target, precision or level that does not exist."""
    from graphcore.runtime.lowering import LEVELS, PRECISIONS, TARGETS, lower

    if target not in TARGETS:
        raise GraphError(f"no target is called {target!r}", help=f"use one of {', '.join(TARGETS)}")
    if precision not in PRECISIONS:
        raise GraphError(f"there is no precision {precision!r}", help=f"use one of {', '.join(PRECISIONS)}")
    level: Optimize = ("off" if target == "onnx" else "all") if optimize is None else optimize
    if level not in LEVELS:
        raise GraphError(f"there is no level of optimization {level!r}", help=f"use one of {', '.join(LEVELS)}")
    if not graph.outputs:
        graph.verify()  # which says so; operands were checked as each node was made
    if target == "openvino":
        from graphcore.runtime.lowering.openvino import require

        shown = exposed(graph, in_file=True)
        return require(shown, lambda: lower(shown, target, precision, optimize=level))
    return lower(exposed(graph, in_file=True), target, precision, inline=inline, optimize=level)


def opset_of(target: Target) -> int:
    """The opset of files for a target: the newest that the runtime takes which it is of."""
    from graphcore.runtime.lowering.runtimes import default

    runtime = default(target)
    return OPSET if runtime is None else runtime.opset


def model_proto(
    graph: Graph,
    target: Target,
    precision: Precision = "exact",
    inline: bool = False,
    optimize: Optimize | None = None,
) -> onnx.ModelProto:
    """See `Graph.to_onnx`."""
    encoded = join(encode(lowered(graph, target, precision, inline, optimize), None, opset_of(target)))
    model: onnx.ModelProto = onnx.ModelProto.FromString(encoded)
    return model


def export(
    graph: Graph,
    path: str | os.PathLike[str],
    target: Target,
    external_data: bool | None,
    precision: Precision = "exact",
    inline: bool = False,
    optimize: Optimize | None = None,
) -> None:
    """See `Graph.export`."""
    file = os.path.realpath(os.fspath(path))
    legal = lowered(graph, target, precision, inline, optimize)
    if external_data is None:
        arrays = [s.producer.array for s in legal._symbols if isinstance(s.producer, Constant)]
        external_data = sum(array.nbytes for array in arrays) > EXTERNAL_ABOVE
    try:
        if not external_data:
            replace_files([(file, within_limit(encode(legal, None, opset_of(target))))])
            return
        data = _Data(os.path.basename(file) + ".data")
        model = encode(legal, data.place, opset_of(target))
        replace_files([(os.path.join(os.path.dirname(file), data.name), data.chunks), (file, within_limit(model))])
    except OSError as error:
        raise ExportError(
            f"export: {os.fspath(path)} cannot be written: {error.strerror or error}",
            help="choose a folder that exists and can be written to",
        ) from error


class _Data:
    """The file of weights beside the model: each at a page boundary."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.chunks: list[Chunk] = []
        self._size = 0

    def place(self, name: str, array: np.ndarray[Any, Any]) -> tuple[str, int] | None:
        if array.nbytes < _SMALLEST or array.dtype == object:
            return None
        from graphcore.dtypes import DType

        content = raw(array, DType.of(array.dtype))
        padding = -self._size % _ALIGNMENT
        self.chunks += [bytes(padding), content]
        offset = self._size + padding
        self._size = offset + len(content)
        return self.name, offset
