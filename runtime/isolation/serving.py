"""Load and run the model of a worker, inside the sandbox."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import pickle
import struct
from importlib import import_module
from typing import Any

from graphcore.arrays.casting import Array
from graphcore.arrays.resource_limits import Limits
from graphcore.runtime.isolation import sandbox
from graphcore.runtime.isolation.codec import ValueReader, ValueWriter, types_to_json
from graphcore.runtime.isolation.failures import describe_error
from graphcore.runtime.isolation.framing import RUN_HEAD, Channel, FrameKind, SharedBlock, from_json, to_json
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.runtime.stopping.limit import Limit


def serve(channel: Channel, settings: dict[str, Any], time: sandbox.ProcessorTime) -> None:
    """Load the requested model, and serve runs until the parent closes the sockets."""
    _, content = channel.receive((FrameKind.LOAD,))
    request = from_json(content)
    try:
        if "function" in request:  # of the trusted parent
            module, name = request["function"]
            answer = getattr(import_module(module), name)(request["path"], request["links"], *request["arguments"])
            channel.send(FrameKind.RESULTS, to_json(answer))
            return
        model = _load(request, settings["session"], channel)
        signature: dict[str, Any] = {"name": model.name, "has_buffers": bool(model._model_buffers)}
        inputs = model.inputs
        signature |= {"inputs": types_to_json(inputs), "outputs": types_to_json(model.outputs)}
        signature["optional"] = types_to_json(inputs.optional)
    except Exception as error:
        channel.send(FrameKind.FAILED, to_json(describe_error(error, "load", request["line"])))
        return
    gc.collect()
    gc.freeze()
    channel.send(FrameKind.LOADED, to_json(signature))
    served = _ServedModel(model, channel, time, settings["run_seconds"], request["line"])
    while True:
        served.next()


def _load(request: dict[str, Any], options: dict[str, Any], channel: Channel) -> Model:
    session = InferenceSession(
        options["providers"],
        precision=options["precision"],
        optimize=options["optimize"],
        provider_options=options["provider_options"],
        config=options["config"],
        **options["session_options"],
    )
    limits = Limits(**request["limits"])
    if request["kind"] == "path":
        weights = _weights(request, channel)
        return session.load(request["path"], weights, limits=limits, prepared=False, **request["links"])
    handle = channel.receive_handle()
    weights = _weights(request, channel)
    with (
        mmap.mmap(handle, 0, mmap.MAP_SHARED, mmap.PROT_READ)
        if os.fstat(handle).st_size
        else contextlib.nullcontext(b"") as content  # an empty file cannot be mapped
    ):
        os.close(handle)
        if request["kind"] == "graph":
            graph = pickle.loads(content)  # from the trusted parent: nothing that a worker sends is unpickled
            return session.load(graph, weights)
        return session.load(bytes(content), weights, limits=limits)


def _weights(request: dict[str, Any], channel: Channel) -> dict[str, Array] | None:
    """Return the arrays that replace the model's weights, from shared memory; None if there are none."""
    weights = request.get("weights")
    if weights is None:
        return None
    handle = channel.receive_handle()
    content = SharedBlock(handle, weights["bytes"], 0, is_read_only=True).array
    os.close(handle)
    at, length = weights["head"]
    values = ValueReader(content[at : at + length].tobytes(), content, is_copied=False).values(len(weights["names"]))
    return dict(zip(weights["names"], values, strict=True))


class _ServedModel:
    """A model and the blocks of its arrays."""

    def __init__(
        self, model: Model, channel: Channel, time: sandbox.ProcessorTime, seconds: float | None, line: str
    ) -> None:
        self._model = model
        self._names = (*model.inputs, *model.inputs.optional)
        self._channel = channel
        self._time = time
        self._seconds = seconds
        self._line = line
        self._blocks: dict[int, SharedBlock] = {}

    def next(self) -> None:
        """Answer the next frame."""
        kind, content = self._channel.receive((FrameKind.RUN, FrameKind.BLOCK, FrameKind.DROP))
        if kind is FrameKind.BLOCK:
            self._take(content)
        elif kind is FrameKind.DROP:
            del self._blocks[struct.unpack("<I", content)[0]]
        else:
            self._time.allow(self._seconds)
            self._run(content)

    def _take(self, content: bytes) -> SharedBlock:
        number, size = struct.unpack("<IQ", content)
        handle = self._channel.receive_handle()
        block = self._blocks[number] = SharedBlock(handle, size, number, is_read_only=number == 0)
        os.close(handle)
        return block

    def _run(self, content: bytes) -> None:
        number, seconds = RUN_HEAD.unpack_from(content)
        try:
            head = content[RUN_HEAD.size :]
            values = ValueReader(head, self._blocks[0].array, is_copied=False).values(len(self._names))
            feed = dict(zip(self._names, values, strict=True))
            with Limit(self._model.name, seconds) if seconds else contextlib.nullcontext():
                layout = ValueWriter(self._model(feed))
        except Exception as error:
            self._channel.send(FrameKind.FAILED, to_json(describe_error(error, "run", self._line)))
            return
        block = self._blocks[number]
        if layout.size > block.size:
            self._channel.send(FrameKind.NEED, struct.pack("<Q", layout.size))
            block = self._take(self._channel.receive((FrameKind.BLOCK,))[1])
        layout.write(block.array)
        self._channel.send(FrameKind.RESULTS, layout.head)
