"""Bodies of If, Loop and Scan: graphs that are built inside another, and use its Symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.types.tensor_types import Type


@contextmanager
def body(outer: Graph, name: str, inputs: Mapping[str, Type] | Sequence[Type] = ()) -> Iterator[Graph]:
    """Yield a body under construction: what is built inside on Symbols of outer graphs goes into it.

    See `new_body`. It is finished at the end; what it gives is said by `finish`, or `build.outputs`.

        with body(outer, "then_branch") as then:
            finish(then, [make()])
    """
    made = new_body(outer, name, inputs)
    with building(made):
        yield made


def new_body(outer: Graph, name: str, inputs: Mapping[str, Type] | Sequence[Type] = ()) -> Graph:
    """Return a body that is not built yet, of the promotion system, the layer and the lines of its outer graph.

    inputs: types by name, which are made unlike those of the outer graphs, or types of inputs without names.
    """
    taken: set[str] = set()
    around: Graph | None = outer if isinstance(inputs, Mapping) else None
    while around is not None:
        taken |= around.names.taken.keys()
        around = around.scope.outer
    named = {}
    for label, type_ in inputs.items() if isinstance(inputs, Mapping) else ():
        while label in taken:
            label += "_"
        named[label] = type_
    made = Graph(name, named, promotion=outer.promotion, strict=outer.strict)
    made.scope.outer = outer
    made.site.layer = outer.site.layer
    if not outer.site.is_user:
        made.site.is_user, made.site.origin = False, outer.site.origin
    for type_ in () if isinstance(inputs, Mapping) else inputs:
        made.build.input(type_)
    return made


def outermost(graph: Graph) -> Graph:
    """Return the graph around all bodies that a graph is in; itself where it is no body."""
    while graph.scope.outer is not None:
        graph = graph.scope.outer
    return graph


@contextmanager
def building(body: Graph) -> Iterator[None]:
    """Let what is built inside on Symbols of outer graphs go into the body, which is finished afterwards."""
    outer = body.scope.outer
    assert outer is not None
    assert outer.scope.is_open
    outer.scope.building, body.scope.is_finished = body, False
    try:
        with body:
            yield
    finally:
        outer.scope.building, body.scope.is_finished = None, True


def finish(body: Graph, results: Sequence[Symbol]) -> Graph:
    """Return the body with its outputs, each made by a node of its own, as ONNX has it. To be called while building."""
    own = body.build.own
    for node in body._nodes:
        if any(s is not None and s.graph is not body for s in node.inputs):
            inputs = tuple([None if s is None else own(s, node.op_type, "an operand") for s in node.inputs])
            change(node, inputs=inputs)
    made: list[Symbol] = []
    for result in results:
        is_new = isinstance(result.producer, Node) and not any(result is other for other in made)
        made.append(result if is_new else body.build.emit("Identity", (result,), result.type))
    body.output(made)
    return body
