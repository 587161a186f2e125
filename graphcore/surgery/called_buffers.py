"""The buffers of a graph that is called, in the graph that calls it."""

from __future__ import annotations

from graphcore.errors import GraphError
from graphcore.ir.buffers import BufferValue
from graphcore.support.source_lines import user_origin
from graphcore.surgery.replay import Replay


def carry_buffers(replay: Replay) -> None:
    """Declare the buffers of the old graph in the new one, before its nodes are made.

    Those of a graph that was called before are the same ones, which hold what they were left with.
    """
    new = replay.new
    if replay.old.buffers and new.scope.outer is not None:
        raise GraphError(
            f"{replay.what}: graph {replay.old.name!r} has buffers, and is called in a body",
            help="call it outside of the body, or make its buffers inputs and outputs",
        )
    for name, held in replay.old.buffers.items():
        symbol = replay.old.names.taken[name]
        key = ("buffer", id(held))
        found = new.memory.values.get(key)
        if not isinstance(found, BufferValue):
            free = replay.free_name(name, new, numbered=True)
            assert free is not None
            made = new.build.input(replay.type_of(symbol), free, user_origin())
            new.build.buffer(free, held.buffer, made)
            found = new.memory.values[key] = new.buffers[free]
        replay.bind(symbol, found.value, is_altered=False)


def store_buffers(replay: Replay) -> None:
    """Let the buffers hold what the old graph stores, after its nodes were made."""
    for held in replay.old.buffers.values():
        found = replay.new.memory.values[("buffer", id(held))]
        assert isinstance(found, BufferValue)
        found.value = replay.of(held.value)
