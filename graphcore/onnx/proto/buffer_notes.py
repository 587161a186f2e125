"""Buffers in the metadata of a model: their initial values are written here, and read with all else noted of them."""

from __future__ import annotations

import base64
import json
from typing import Any

import onnx

from graphcore.arrays.external_data import Folder
from graphcore.errors import GraphcoreError, GraphError, ResourceLimitError
from graphcore.ir.buffers import Buffer, may_hold
from graphcore.ir.graph import Graph
from graphcore.ir.transform.rewrite import NOTE, attach
from graphcore.onnx.proto.model_proto import join
from graphcore.onnx.proto.tensors import array_of
from graphcore.onnx.proto.value_protos import tensor
from graphcore.types.dtypes import has_storage_axis
from graphcore.types.tensor_types import TensorType

_LARGEST = 1 << 20  # bytes of an initial value that a file notes


def note_initial_values(exposed: Graph, graph: Graph) -> None:
    """Add the initial values of a graph's buffers to the metadata of that graph with its buffers exposed.

    Raises `ResourceLimitError` for those that are too large, `GraphError` for those of integers of more than 64 bits.
    """
    initial = {n: held.buffer for n, held in graph.buffers.items() if held.buffer.initial is not None}
    if not initial:
        return
    noted: dict[str, dict[str, Any]] = json.loads(exposed.metadata[NOTE])
    for name, buffer in initial.items():
        output = noted[name].pop("output", None)  # noted last
        noted[name]["initial"] = _written(name, buffer)
        if output is not None:
            noted[name]["output"] = output
    exposed.metadata[NOTE] = json.dumps(noted)


def read(graph: Graph) -> Graph:
    """Return the graph of a file with its buffers. A note that does not fit it is dropped, for files are untrusted."""
    text = graph.metadata.get(NOTE)
    if text is None:
        return graph
    inputs = {s.name: s for s in graph.input_symbols}
    outputs = {name or s.name: s for name, s in graph.named_outputs}
    names = {*inputs, *outputs}
    try:
        said = json.loads(text)  # of all models that were merged into one, which may lack some of their names
        noted = {n: note for n, note in said.items() if n in inputs and note.get("output", n) in names}
        results = [note["output"] for note in noted.values() if "output" in note]
        buffers = {name: _read(inputs[name].tensor_type, note) for name, note in noted.items()}
        fits = (
            bool(noted)
            and len({*results}) == len(results)
            and all(
                may_hold(buffers[name], outputs[note["output"]].type)
                for name, note in noted.items()
                if "output" in note
            )
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError, GraphcoreError):
        fits = False
    if fits:
        graph.metadata[NOTE] = json.dumps(noted)
        attach(graph, buffers)
    else:
        del graph.metadata[NOTE]
    return graph


def _written(name: str, buffer: Buffer) -> str:
    """Return an initial value as text: a TensorProto in base64."""
    assert buffer.initial is not None
    if has_storage_axis(buffer.type.dtype):
        raise GraphError(
            f"buffer {name!r}: a model notes no initial values of {buffer.type.dtype}",
            help="leave it out, and set it in the Model: model.buffers[name] = array",
        )
    content = join(tensor(buffer.initial, buffer.type.dtype.storage, ""))
    if len(content) > _LARGEST:
        raise ResourceLimitError(
            f"buffer {name!r}: its initial value has {len(content)} bytes, and a model notes {_LARGEST} at most",
            help="leave it out, and set it in the Model: model.buffers[name] = array",
        )
    return base64.b64encode(content).decode()


def _read(type_: TensorType, note: dict[str, Any]) -> Buffer:
    """Return the Buffer that a note describes for an input. Raises whatever wrong notes lead to."""
    in_place = note.get("in_place") is True
    if "initial" not in note:
        return Buffer(type_.dtype, type_.shape, in_place=in_place)
    try:
        proto = onnx.TensorProto.FromString(base64.b64decode(note["initial"], validate=True))
    except Exception as error:  # protobuf's own
        raise ValueError("no tensor") from error
    array, dtype = array_of(proto, Folder(None))
    if dtype is not type_.dtype.storage:
        raise ValueError("an initial value of another dtype")
    return Buffer(type_.dtype, type_.shape, initial=array, in_place=in_place)
