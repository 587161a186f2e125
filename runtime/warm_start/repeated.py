"""Optimised models as some releases of onnxruntime write them, with the initializers of bodies twice."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def without_repeats(model: bytes) -> bytes:
    """Return a model of which each graph has an initializer once; the given bytes where that is so.

    The first of those that share a name is kept. A release repeats one with the same values, in a file of weights.
    """
    proto = onnx.ModelProto.FromString(model)
    changed = [_deduplicate(graph) for graph in _graphs(proto.graph)]
    return proto.SerializeToString() if any(changed) else model


def _deduplicate(graph: onnx.GraphProto) -> bool:
    """Remove the repeated initializers of a graph; return whether there were any."""
    seen: set[str] = set()
    repeated = []
    for place, tensor in enumerate(graph.initializer):
        if tensor.name in seen:
            repeated.append(place)
        seen.add(tensor.name)
    for place in reversed(repeated):
        del graph.initializer[place]
    return bool(repeated)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the bodies within it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)
