"""Loading and running the model of a worker: what runs inside the sandbox."""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import struct
from typing import Any

from graphcore.arrays.casting import Array
from graphcore.arrays.resource_limits import Limits
from graphcore.runtime.isolation import sandbox
from graphcore.runtime.isolation.codec import Layout, Reader, described, read, written
from graphcore.runtime.isolation.failures import told
from graphcore.runtime.isolation.framing import RUN_HEAD, Block, Channel, Kind
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.runtime.stopping.limit import Limit


def serve(channel: Channel, settings: dict[str, Any], time: sandbox.ProcessorTime) -> None:
    """Load the model that is asked for, and run it as often as is asked."""
    _, content = channel.receive((Kind.LOAD,))
    asked = read(content)
    try:
        model = _loaded(asked, settings["session"], channel)
        said: dict[str, Any] = {"name": model.name, "has_buffers": bool(model._model_buffers)}
        said |= {"inputs": described(model.inputs), "outputs": described(model.outputs)}
    except Exception as error:
        channel.send(Kind.FAILED, written(told(error, "load", asked["line"])))
        return
    gc.collect()
    gc.freeze()
    channel.send(Kind.LOADED, written(said))
    served = _Served(model, channel, time, settings["run_seconds"], asked["line"])
    while True:
        served.next()


def _loaded(asked: dict[str, Any], options: dict[str, Any], channel: Channel) -> Model:
    session = InferenceSession(
        options["providers"],
        precision=options["precision"],
        optimize=options["optimize"],
        provider_options=options["provider_options"],
        config=options["config"],
        **options["session_options"],
    )
    limits = Limits(**asked["limits"])
    if asked["kind"] == "path":
        return session.load(asked["path"], _weights(asked, channel), limits=limits, **asked["links"])
    handle = channel.handed()
    weights = _weights(asked, channel)
    with mmap.mmap(handle, 0, mmap.MAP_SHARED, mmap.PROT_READ) if os.fstat(handle).st_size else _Nothing() as content:
        os.close(handle)
        if asked["kind"] == "graph":
            graph = pickle.loads(content)  # of the parent, which is trusted: nothing that a worker says is unpickled
            return session.load(graph, weights)
        return session.load(bytes(content), weights, limits=limits)


def _weights(asked: dict[str, Any], channel: Channel) -> dict[str, Array] | None:
    """Return the arrays in place of the model's weights, which lie in shared memory; None where there are none."""
    said = asked.get("weights")
    if said is None:
        return None
    handle = channel.handed()
    content = Block(handle, said["bytes"], 0, is_read_only=True).array
    os.close(handle)
    at, length = said["head"]
    values = Reader(content[at : at + length].tobytes(), content, is_copied=False).values(len(said["names"]))
    return dict(zip(said["names"], values, strict=True))


class _Nothing:
    """The content of an empty file, of which there are no mappings."""

    def __enter__(self) -> bytes:
        return b""

    def __exit__(self, *_: object) -> None:
        pass


class _Served:
    """A model, and the blocks that its arrays go through."""

    def __init__(
        self, model: Model, channel: Channel, time: sandbox.ProcessorTime, seconds: float | None, line: str
    ) -> None:
        self._model = model
        self._names = tuple(model.inputs)
        self._channel = channel
        self._time = time
        self._seconds = seconds
        self._line = line
        self._blocks: dict[int, Block] = {}

    def next(self) -> None:
        """Answer the next frame."""
        kind, content = self._channel.receive((Kind.RUN, Kind.BLOCK, Kind.DROP))
        if kind is Kind.BLOCK:
            self._take(content)
        elif kind is Kind.DROP:
            del self._blocks[struct.unpack("<I", content)[0]]
        else:
            self._time.allow(self._seconds)
            self._run(content)

    def _take(self, content: bytes) -> Block:
        number, size = struct.unpack("<IQ", content)
        handle = self._channel.handed()
        made = self._blocks[number] = Block(handle, size, number, is_read_only=number == 0)
        os.close(handle)
        return made

    def _run(self, content: bytes) -> None:
        number, seconds = RUN_HEAD.unpack_from(content)
        try:
            head = content[RUN_HEAD.size :]
            values = Reader(head, self._blocks[0].array, is_copied=False).values(len(self._names))
            feed = dict(zip(self._names, values, strict=True))
            if seconds:
                with Limit(self._model.name, seconds):
                    layout = Layout(self._model(feed))
            else:
                layout = Layout(self._model(feed))
        except Exception as error:
            self._channel.send(Kind.FAILED, written(told(error, "run", self._line)))
            return
        block = self._blocks[number]
        if layout.size > block.size:
            self._channel.send(Kind.NEED, struct.pack("<Q", layout.size))
            block = self._take(self._channel.receive((Kind.BLOCK,))[1])
        layout.write(block.array)
        self._channel.send(Kind.RESULTS, layout.head)
