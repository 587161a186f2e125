"""Failures of onnxruntime as errors of this library."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from graphcore.build.shapes import AXIS, RANK, SIZE_CHECK
from graphcore.errors import RunError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.walk import mark_of, marked, walk
from graphcore.runtime.calls.feeds import summary
from graphcore.runtime.ort import python_ops
from graphcore.support.source_lines import Line
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType

_SIZE_CHECK = re.compile(rf".*Name:'([^\n]*?{SIZE_CHECK}[^\n]*)' Status Message.* got -(\d+)\s*$", re.DOTALL)
_TEXT = re.compile(rf"{SIZE_CHECK}(?P<name>.*?) to \[(?P<shape>[^\]]*)\](?:: (?P<message>.*?))?(?: #\d+)?$")


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
    found = _SIZE_CHECK.search(str(error))
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


def _rebind_failed(model: str, check: str, code: int, feed: Mapping[str, Any], graph: Graph | None) -> RunError:
    axis, size = code // AXIS - 1, code % AXIS
    text = _TEXT.search(check)
    name, shape, message = (text["name"], text["shape"], text["message"]) if text else ("?", "", None)
    stated = "another size"
    node = next(_guarded(graph, check), None) if graph is not None else None
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


def _guarded(graph: Graph, check: str) -> Iterator[tuple[Symbol, Symbol]]:
    """Yield the tensors before and after the check of that name, which is longer inside a body or a call."""
    for node in walk(graph):
        if node.op_type != "Squeeze" or node.inputs[0] is None:
            continue
        apart = node.inputs[0].producer
        if not isinstance(apart, Node) or apart.op_type != "Unsqueeze" or apart.inputs[0] is None:
            continue
        place = apart.inputs[1].producer if apart.inputs[1] is not None else None
        if isinstance(place, Node) and place.op_type == "Shape" and place.inputs[0] is not None:
            own = place.inputs[0].given_name
            if own is not None and SIZE_CHECK in own and (check == own or check.endswith(f"/{own}")):
                yield apart.inputs[0], node.outputs[0]


def _evaluated(stated: str, feed: Mapping[str, Any], graph: Graph | None) -> int | None:
    """Return the size of a dim that the names of the inputs make up."""
    sizes = sizes_of(graph, feed) if graph is not None else {}
    try:
        return Dim(stated).evaluate(sizes)
    except (ValueError, TypeError, ZeroDivisionError):
        return None


# Messages of onnxruntime in words: which node failed, why, and what to do.

_RUNNING = re.compile(
    r"^[^\n]*?Non-zero status code returned while running (?P<op>\S+) node\. "
    r"Name:'(?P<node>[^\n]*?)' Status Message: (?P<said>.*)$",
    re.DOTALL,
)
_OTHER = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?P<said>.*)$", re.DOTALL)
_PLACE = re.compile(r"(?:/[\w.+-]+)*/?[\w.+-]+\.(?:h|hpp|cc|cpp|cu|cuh):\d+ ")

_SIZES = "see the shapes of this run: feed arrays whose sizes fit, or build the graph for these"

_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        r"k argument \[(-?\d+)\] should not be greater than specified axis dim value \[(\d+)\]",
        "k is {0}, and the axis has {1} elements",
        "ask for fewer elements, or feed a longer axis",
    ),
    (
        r"Attempting to broadcast an axis by a dimension other than 1\. (\d+) by (\d+)",
        "shapes do not broadcast: {0} and {1} along one axis",
        _SIZES,
    ),
    (
        r"Input shape:\s*\{([\d,]*)\}, requested shape:\s*\{([-\d,]*)\}",
        "[{0}] cannot be reshaped to [{1}]",
        "the numbers of elements must be the same",
    ),
    (
        r"idx=(-?\d+) must be within the inclusive range \[(-?\d+),(-?\d+)\]",
        "index {0} is outside of {1} to {2}",
        "give indices within the axis",
    ),
    (
        r"axis (-?\d+) is not in valid range \[(-?\d+),(-?\d+)\]",
        "axis {0} is outside of {1} to {2}",
        "feed an operand that has that axis",
    ),
    (r"MatMul dimension mismatch", "the inner dimensions of the product differ", _SIZES),
    (
        r"Non concat axis dimensions must match: Axis (\d+) has mismatched dimensions of (\d+) and (\d+)",
        "what is joined has {1} and {2} elements along axis {0}",
        "join along the axis in which they differ",
    ),
    (
        r"Split split attribute.*sum.*?(\d+).*?(\d+)",
        "the sizes of the parts do not add up to the axis",
        "give sizes whose sum is the size of the axis",
    ),
    (
        r"(Q|KV) sequence length must be greater than 0",
        "the kernel takes no sequence of length 0",
        "feed a longer sequence",
    ),
    (
        r"dim0_offset < dim0_size was false",
        "the axis that it goes along has no elements",
        "feed one or more steps: onnxruntime's Scan takes no axis of length 0",
    ),
    (r"[Ii]nteger divi\w+ by zero|[Dd]ivision by zero", "integers are divided by zero", "leave out zeros"),
    (r"[Ff]ailed to allocate memory|bad_alloc|bad allocation", "there is not enough memory", "feed smaller arrays"),
)
"""Messages of the runtime: a pattern, its meaning, and the fix."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the runtime. node: the name of the node that failed, or "". why, help: in words. raw: the message
    without the places in its source."""

    node: str
    why: str
    help: str
    raw: str

    @classmethod
    def of(cls, text: str) -> Self:
        """Return what a message says."""
        running = _RUNNING.match(text.strip())
        other = running or _OTHER.match(text.strip())
        said = _without_places(other["said"] if other is not None else text)
        where = f"{running['op']} {running['node']!r}: " if running is not None else ""
        raw = f"onnxruntime: {where}{said}"
        node = running["node"] if running is not None else ""
        for pattern, why, help in _WORDS:
            found = re.search(pattern, text, re.DOTALL)
            if found is not None:
                groups = [", ".join(g.split(",")) if g else "" for g in found.groups()]
                return cls(node, why.format(*groups), help, raw)
        return cls(node, said, "sizes that only the run knows may not fit together, or an operand may hold what the "
                   "kernel does not take", raw if where else "")  # fmt: skip


def _without_places(text: str) -> str:
    """Return a message without files of the runtime's source, signatures of its functions and line breaks."""
    while (found := _PLACE.search(text)) is not None:
        text = text[: found.start()] + _without_signature(text[found.end() :])
    return " ".join(text.split())


def _without_signature(text: str) -> str:
    """Return what stands after the signature of a function: `void f(int, T) [with T = int] const`."""
    opened = text.find("(")
    if opened < 0 or "\n" in text[:opened] or "." in text[:opened]:
        return text
    end = _closed(text, opened)
    while True:
        rest = text[end:].lstrip()
        if rest.startswith("const "):
            end = len(text) - len(rest) + len("const ")
        elif rest.startswith("[with "):
            end = _closed(text, text.index("[with ", end))
        elif rest.startswith("::") and "(" in rest:  # of a function inside of another
            end = _closed(text, text.index("(", end))
        else:
            return rest


def _closed(text: str, opened: int) -> int:
    """Return the place after the bracket that closes the one at `opened`."""
    depth = 0
    for place in range(opened, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if not depth:
            return place + 1
    return len(text)


# The nodes of a user's graph that those of the lowered one were made of, and their shapes in a run that failed.

_MOST_WATCHED = 20_000
"""Nodes of a graph that is run again, up to the one that failed, for shapes that only a run tells."""


class UserNodes:
    """Finds the node of a graph that failed, by the name that the lowered one has.

    The graph is lowered once more for it, each node with its number in place of its line: passes hand lines on to what
    they make. lower: does what was done before the session was started. run: gives the arrays of values for a feed.
    """

    def __init__(
        self,
        graph: Graph,
        lower: Callable[[Graph], Graph],
        run: Callable[[Sequence[Symbol], Mapping[str, Any]], Sequence[Any]],
    ) -> None:
        self._graph = graph
        self._lower = lower
        self._run = run
        self._found: dict[str, Node] | None = None

    def of(self, name: str) -> Node | None:
        """Return the node of the graph that the node of that name was made of; None where that is not known."""
        if not name:
            return None
        if self._found is None:
            try:
                self._found = _origins(self._graph, self._lower)
            except Exception:  # the run failed, and that is what is to be told
                self._found = {}
        return next((self._found[key] for key in _spellings(name) if key in self._found), None)

    def shapes(self, node: Node, feed: Mapping[str, Any]) -> dict[int, str]:
        """Return the dtype and shape in this run of the operands of a node, by their numbers, as far as known."""
        sizes = sizes_of(self._graph, feed)
        found: dict[int, str] = {}
        unknown: list[Symbol] = []
        for symbol in {s.id: s for s in node.inputs if s is not None}.values():
            text = _in_run(symbol, sizes, feed)
            found[symbol.id] = text
            if "?" in text and symbol.graph is self._graph and isinstance(symbol.producer, Node):
                unknown.append(symbol)
        if unknown and len(self._graph.nodes) <= _MOST_WATCHED:
            try:
                arrays = self._run(unknown, feed)
            except Exception:  # what they are made of may have failed
                return found
            found.update({s.id: summary(array) for s, array in zip(unknown, arrays, strict=True)})
        return found


def _origins(graph: Graph, lower: Callable[[Graph], Graph]) -> dict[str, Node]:
    """Return, by the names of the lowered nodes' first results, the nodes of the graph that they were made of."""
    nodes = [*walk(graph)]
    lowered = lower(marked(graph))
    found: dict[str, Node] = {}
    for node in (*lowered.nodes, *walk(lowered)):
        number = mark_of(node)
        if number is not None:
            found.setdefault(node.outputs[0].name, nodes[number])
    return found


def _spellings(name: str) -> list[str]:
    """Return the names that a node may have had before the runtime renamed it: in a body, or fused with others."""
    parts = re.split(r"/", name)
    ends = ["/".join(parts[i:]) for i in range(len(parts))]
    starts = ["/".join(parts[:i]) for i in range(len(parts) - 1, 0, -1)]
    bare = [re.sub(r"(?:_token_\d+|_\d+|_[A-Z]\w*)$", "", text) for text in (name, *starts)]
    return [*ends, *starts, *bare]


def sizes_of(graph: Graph, feed: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of the dims that have names, in the inputs of a graph."""
    sizes: dict[str, int] = {}
    for symbol in graph.inputs:
        array = feed.get(symbol.name)
        if isinstance(array, np.ndarray) and isinstance(symbol.type, TensorType) and symbol.shape.is_ranked:
            sizes.update({d.name: n for d, n in zip(symbol.shape, array.shape, strict=False) if d.name is not None})
    return sizes


def _in_run(symbol: Symbol, sizes: Mapping[str, int], feed: Mapping[str, Any]) -> str:
    """Return the dtype and shape of a value in a run, with `?` where dims do not tell."""
    while isinstance(symbol.producer, Captured):
        symbol = symbol.producer.symbol
    type_ = symbol.type
    if isinstance(symbol.producer, Constant):
        array = symbol.producer.array
        return f"{type_.dtype}{list(array.shape)}" + (f" {array.tolist()}" if array.size <= 8 and array.ndim else "")
    given = feed.get(symbol.name)
    if isinstance(given, np.ndarray) and not isinstance(symbol.producer, Node):
        return summary(given)
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return f"{type_}" if not isinstance(type_, TensorType) else f"{type_.dtype}[?...]"
    return f"{type_.dtype}[{', '.join(_size(dim, sizes) for dim in type_.shape)}]"


def _size(dim: Dim, sizes: Mapping[str, int]) -> str:
    try:
        return str(dim.evaluate(sizes))
    except (ValueError, TypeError, ZeroDivisionError):
        return "?"
