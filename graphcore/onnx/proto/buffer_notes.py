"""Buffers in the metadata of a model: write their initial values, read all of their notes."""

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

_MAX_INITIAL_BYTES = 1 << 20  # of an initial value in the metadata of a file


def note_initial_values(exposed: Graph, graph: Graph) -> None:
    """Add the initial values of a graph's buffers to the metadata of `exposed`, the graph with its buffers exposed.

    Raises `ResourceLimitError` for values that are too large, `GraphError` for integers of more than 64 bits.
    """
    initial = {n: state.buffer for n, state in graph.buffers.items() if state.buffer.initial is not None}
    if not initial:
        return
    noted: dict[str, dict[str, Any]] = json.loads(exposed.metadata[NOTE])
    for name, buffer in initial.items():
        output = noted[name].pop("output", None)  # "output" stays the last key
        noted[name]["initial"] = _encode_initial(name, buffer)
        if output is not None:
            noted[name]["output"] = output
    exposed.metadata[NOTE] = json.dumps(noted)


def read(graph: Graph) -> Graph:
    """Return the graph of a file with its buffers. A note that does not fit is dropped, since files are untrusted."""
    text = graph.metadata.get(NOTE)
    if text is None:
        return graph
    inputs = {s.name: s for s in graph.input_symbols}
    outputs = {name or s.name: s for name, s in graph.named_outputs}
    names = {*inputs, *outputs}
    try:
        notes = json.loads(text)  # may name values of other models that were merged into this one
        noted = {n: note for n, note in notes.items() if n in inputs and note.get("output", n) in names}
        results = [note["output"] for note in noted.values() if "output" in note]
        buffers = {name: _read_buffer(inputs[name].tensor_type, note) for name, note in noted.items()}
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


def _encode_initial(name: str, buffer: Buffer) -> str:
    """Encode an initial value as text: a TensorProto in base64."""
    assert buffer.initial is not None
    if has_storage_axis(buffer.type.dtype):
        raise GraphError(
            f"buffer {name!r}: a file cannot store an initial value of {buffer.type.dtype}",
            help="leave it out, and set it in the Model: model.buffers[name] = array",
        )
    content = join(tensor(buffer.initial, buffer.type.dtype.storage, ""))
    if len(content) > _MAX_INITIAL_BYTES:
        raise ResourceLimitError(
            f"buffer {name!r}: its initial value has {len(content)} bytes, the limit in a file is {_MAX_INITIAL_BYTES}",
            help="leave it out, and set it in the Model: model.buffers[name] = array",
        )
    return base64.b64encode(content).decode()


def _read_buffer(type_: TensorType, note: dict[str, Any]) -> Buffer:
    """Return the Buffer that a note describes for an input. A wrong note raises any exception."""
    in_place = note.get("in_place") is True
    if "initial" not in note:
        return Buffer(type_.dtype, type_.shape, in_place=in_place)
    try:
        proto = onnx.TensorProto.FromString(base64.b64decode(note["initial"], validate=True))
    except Exception as error:  # protobuf's own
        raise ValueError("the initial value is not a TensorProto") from error
    array, dtype = array_of(proto, Folder(None))
    if dtype is not type_.dtype.storage:
        raise ValueError("the initial value has another dtype")
    return Buffer(type_.dtype, type_.shape, initial=array, in_place=in_place)
