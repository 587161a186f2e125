"""Bodies of If, Loop and Scan: graphs that are built inside another, and use its Symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.types.tensor_types import Type


def body_of(graph: Graph, name: str, inputs: Mapping[str, Type]) -> Graph:
    """A body that is not built yet, of the promotion system of the graph around it."""
    taken: set[str] = set()
    around: Graph | None = graph
    while around is not None:
        taken |= around._names.taken.keys()
        around = around._outer
    named = {}
    for label, type_ in inputs.items():
        while label in taken:
            label += "_"
        named[label] = type_
    body = Graph(name, named, promotion=graph.promotion, strict=graph.strict)
    body._outer = graph
    body._layer = graph._layer
    return body


@contextmanager
def building(body: Graph) -> Iterator[None]:
    """What is built inside on Symbols of the graphs around goes into the body."""
    outer = body._outer
    assert outer is not None
    assert outer._inner is None
    outer._inner, body._inner = body, None
    try:
        with body:
            yield
    finally:
        outer._inner, body._inner = None, body


def finish(body: Graph, results: Sequence[Symbol]) -> Graph:
    """The body with its outputs, each made by a node of its own, as ONNX has it. To be called while building."""
    for node in body._nodes:
        if any(s is not None and s.graph is not body for s in node.inputs):
            node.inputs = tuple([None if s is None else body._own(s, node.op_type, "an operand") for s in node.inputs])
    made: list[Symbol] = []
    for result in results:
        is_new = isinstance(result.producer, Node) and not any(result is other for other in made)
        made.append(result if is_new else body._emit("Identity", (result,), result.type))
    body.output(made)
    return body
