"""Failures of onnxruntime as errors of this library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphcore.build.guards import AXIS, GUARD, RANK
from graphcore.errors import RunError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import walk
from graphcore.runtime import python_ops
from graphcore.runtime.calls.feeds import summary
from graphcore.runtime.calls.runtime_messages import Said
from graphcore.runtime.calls.user_nodes import UserNodes, sizes_of
from graphcore.support.source_lines import Line
from graphcore.types.dims import Dim

_GUARD = re.compile(rf".*Name:'([^\n]*?{GUARD}[^\n]*)' Status Message.* got -(\d+)\s*$", re.DOTALL)
_TEXT = re.compile(rf"{GUARD}(?P<name>.*?) to \[(?P<shape>[^\]]*)\](?:: (?P<message>.*?))?(?: #\d+)?$")


def failed(
    model: str, error: Exception, feed: Mapping[str, Any], graph: Graph | None, users: UserNodes | None = None
) -> RunError:
    """Return the error to raise where running a model failed.

    graph: what it was made of, where that is known. users: finds the node of that graph which failed.
    """
    python = python_ops.failure(error)
    if python is not None:
        cause, said = python
        made = RunError(f"{model}: {said}", operands={name: summary(value) for name, value in feed.items()})
        made.__cause__ = cause
        return made
    found = _GUARD.search(str(error))
    if found is not None:
        return _rebind_failed(model, found[1], int(found[2]), feed, graph)
    reason = Said.of(str(error))
    node = None if users is None else users.of(reason.node)
    inputs = {name: summary(value) for name, value in feed.items()}
    if node is None or users is None:
        return RunError(f"{model}: onnxruntime failed: {reason.why}", operands=inputs, help=reason.help, raw=reason.raw)
    shapes = users.shapes(node, feed)
    name = node.outputs[0].name
    operands: dict[str, object] = {"result": _Operand(name, str(node.outputs[0].type), node.line)}
    for position, symbol in enumerate(node.inputs):
        if symbol is not None:
            operands[f"operand {position}"] = _Operand(
                symbol.name, shapes.get(symbol.id, str(symbol.type)), symbol.line
            )
    operands.update({f"input {n}": text for n, text in inputs.items()})
    return RunError(
        f"{model}: onnxruntime failed at {name}, {_an(node.op_type)}: {reason.why}",
        operands=operands,
        help=reason.help,
        line=node.line,
        raw=reason.raw,
    )


def _an(op_type: str) -> str:
    return f"{'an' if op_type[:1] in 'AEIOU' else 'a'} {op_type}"


@dataclass(frozen=True, slots=True)
class _Operand:
    """A value of the user's graph, with the shape that it has in the run."""

    name: str
    type: str
    line: Line | None

    def _describe(self) -> tuple[str, str, str]:
        return self.name, self.type, "" if self.line is None else str(self.line)


def _rebind_failed(model: str, guard: str, code: int, feed: Mapping[str, Any], graph: Graph | None) -> RunError:
    axis, size = code // AXIS - 1, code % AXIS
    text = _TEXT.search(guard)
    name, shape, message = (text["name"], text["shape"], text["message"]) if text else ("?", "", None)
    stated = "another size"
    node = next(_guarded(graph, guard), None) if graph is not None else None
    operands: dict[str, object] = {}
    if node is not None:
        x, made = node
        name, shape = x.name, str(made.shape)[1:-1] if axis >= 0 else shape
        stated = str(made.shape[axis]) if axis >= 0 else ""
        operands = {"x": x, "rebind": made}
    number = _evaluated(stated, feed, graph)
    known = "" if number is None or stated == str(number) else f" = {number}"
    operands.update({f"input {n}": summary(value) for n, value in feed.items()})
    told = f" ({message})" if message else ""
    if axis < 0:
        return RunError(
            f"{model}: rebind: {name} has rank {size - RANK}, and the dims of another were stated: [{shape}]{told}",
            operands=operands,
            help="feed what makes the rank right, or state as many dims as there are axes",
        )
    return RunError(
        f"{model}: rebind: axis {axis} of {name} has size {size}, and {stated}{known} was stated: [{shape}]{told}",
        operands=operands,
        help="feed what makes that size right, or state another dim in rebind",
    )


def _guarded(graph: Graph, guard: str) -> Iterator[tuple[Symbol, Symbol]]:
    """Yield the tensors that the guard of that name compares, which is longer where it is in a body or a call, before
    and after."""
    for node in walk(graph):
        if node.op_type != "Squeeze" or node.inputs[0] is None:
            continue
        apart = node.inputs[0].producer
        if not isinstance(apart, Node) or apart.op_type != "Unsqueeze" or apart.inputs[0] is None:
            continue
        place = apart.inputs[1].producer if apart.inputs[1] is not None else None
        if isinstance(place, Node) and place.op_type == "Shape" and place.inputs[0] is not None:
            own = place.inputs[0].given_name
            if own is not None and GUARD in own and (guard == own or guard.endswith(f"/{own}")):
                yield apart.inputs[0], node.outputs[0]


def _evaluated(stated: str, feed: Mapping[str, Any], graph: Graph | None) -> int | None:
    """Return the size of a dim that the names of the inputs make up."""
    sizes = sizes_of(graph, feed) if graph is not None else {}
    try:
        return Dim(stated).evaluate(sizes)
    except (ValueError, TypeError, ZeroDivisionError):
        return None
