"""Failures of onnxruntime as errors of this library."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from graphcore.arrays import big_integers
from graphcore.arrays.casting import Array
from graphcore.build.shapes import AXIS, RANK, SIZE_CHECK
from graphcore.errors import RunError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol, present, root_of
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import bodies, mark_of, marked, node_of, walk
from graphcore.runtime.calls.feeds import summary
from graphcore.runtime.ort import python_ops
from graphcore.support.source_lines import Line
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type

_SIZE_CHECK = re.compile(rf".*Name:'([^\n]*?{SIZE_CHECK}[^\n]*)' Status Message.* got -(\d+)\s*$", re.DOTALL)
_TEXT = re.compile(rf"{SIZE_CHECK}(?P<name>.*?) to \[(?P<shape>[^\]]*)\](?:: (?P<message>.*?))?(?: #\d+)?$")


def run_error(
    model: str, error: Exception, feed: Mapping[str, Any], graph: Graph | None, users: UserNodes | None = None
) -> RunError:
    """Return the error for a failed run of a model.

    graph: the source of the model, if it is known. users: finds the failed node of that graph.
    """
    python = python_ops.failure(error)
    if python is not None:
        cause, text = python
        python_error = RunError(f"{model}: {text}", operands={name: summary(value) for name, value in feed.items()})
        python_error.__cause__ = cause
        return python_error
    match = _SIZE_CHECK.search(str(error))
    if match is not None:
        return _rebind_failed(model, match[1], int(match[2]), feed, graph)
    reason = RuntimeMessage.of(str(error))
    node = None if users is None else users.of(reason.node)
    inputs = {name: summary(value) for name, value in feed.items()}
    if node is None or users is None:
        return RunError(f"{model}: onnxruntime failed: {reason.why}", operands=inputs, help=reason.help, raw=reason.raw)
    shapes = users.shapes(node, feed)
    name = node.outputs[0].name
    operands: dict[str, object] = {"result": _OperandInRun(name, str(node.outputs[0].type), node.line)}
    for position, symbol in enumerate(node.inputs):
        if symbol is not None:
            operands[f"operand {position}"] = _OperandInRun(
                symbol.name, shapes.get(symbol.id, str(symbol.type)), symbol.line
            )
    operands.update({f"input {n}": text for n, text in inputs.items()})
    return RunError(
        f"{model}: onnxruntime failed at {name}, {_with_article(node.op_type)}: {reason.why}",
        operands=operands,
        help=reason.help,
        line=node.line,
        raw=reason.raw,
    )


def _with_article(op_type: str) -> str:
    return f"{'an' if op_type[:1] in 'AEIOU' else 'a'} {op_type}"


@dataclass(frozen=True, slots=True)
class _OperandInRun:
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
    node = next(_checked_tensors(graph, check), None) if graph is not None else None
    operands: dict[str, object] = {}
    if node is not None:
        x, rebound = node
        name, shape = x.name, str(rebound.shape)[1:-1] if axis >= 0 else shape
        stated = str(rebound.shape[axis]) if axis >= 0 else ""
        operands = {"x": x, "rebind": rebound}
    number = _evaluated(stated, feed, graph)
    evaluated = "" if number is None or stated == str(number) else f" = {number}"
    operands.update({f"input {n}": summary(value) for n, value in feed.items()})
    note = f" ({message})" if message else ""
    if axis < 0:
        return RunError(
            f"{model}: rebind: {name} has rank {size - RANK}, and dims of another rank were stated: [{shape}]{note}",
            operands=operands,
            help="feed arrays that give it that rank, or state one dim for each axis in rebind",
        )
    return RunError(
        f"{model}: rebind: axis {axis} of {name} has size {size}, and {stated}{evaluated} was stated: [{shape}]{note}",
        operands=operands,
        help="feed arrays that give it that size, or state another dim in rebind",
    )


def _checked_tensors(graph: Graph, check: str) -> Iterator[tuple[Symbol, Symbol]]:
    """Yield the tensors before and after the check of that name, which has a prefix inside a body or a call."""
    for node in walk(graph):
        apart = node_of(node.inputs[0], "Unsqueeze") if node.op_type == "Squeeze" else None
        zero = None if apart is None else node_of(apart.inputs[1], "Gather")
        place = None if zero is None else node_of(zero.inputs[1], "Shape")
        if apart is None or place is None or apart.inputs[0] is None:
            continue
        given_name = present(place.inputs[0]).given_name or ""
        if SIZE_CHECK in given_name and (check == given_name or check.endswith(f"/{given_name}")):
            yield apart.inputs[0], node.outputs[0]


def _evaluated(stated: str, feed: Mapping[str, Any], graph: Graph | None) -> int | None:
    """Return the size of a dim of the inputs' dim names; None if it cannot be evaluated."""
    sizes = _sizes_of(graph, feed) if graph is not None else {}
    try:
        return Dim(stated).evaluate(sizes)
    except (ValueError, TypeError, ZeroDivisionError):
        return None


# Messages of onnxruntime, explained: which node failed, why, and the fix.

_RUNNING = re.compile(
    r"^[^\n]*?Non-zero status code returned while running (?P<op>\S+) node\. "
    r"Name:'(?P<node>[^\n]*?)' Status Message: (?P<said>.*)$",
    re.DOTALL,
)
_OTHER = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?P<said>.*)$", re.DOTALL)
_PLACE = re.compile(r"(?:/[\w.+-]+)*/?[\w.+-]+\.(?:h|hpp|cc|cpp|cu|cuh):\d+ ")

_SIZES = "see the shapes of this run: feed arrays whose sizes fit, or build the graph for these"

_EXPLANATIONS: tuple[tuple[str, str, str], ...] = (
    (
        r"k argument \[(-?\d+)\] should not be greater than specified axis dim value \[(\d+)\]",
        "k is {0}, and the axis has {1} elements",
        "use a smaller k, or feed a longer axis",
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
        "the operands to concatenate have {1} and {2} elements along axis {0}",
        "join along the axis in which they differ",
    ),
    (
        r"Split split attribute.*sum.*?(\d+).*?(\d+)",
        "the sizes of the parts do not add up to the axis",
        "give sizes whose sum is the size of the axis",
    ),
    (
        r"(Q|KV) sequence length must be greater than 0",
        "the kernel does not support sequences of length 0",
        "feed a longer sequence",
    ),
    (
        r"dim0_offset < dim0_size was false",
        "the scanned axis has no elements",
        "feed one or more steps: onnxruntime's Scan does not support axes of length 0",
    ),
    (
        r"[Ii]nteger divi\w+ by zero|[Dd]ivision by zero",
        "integers are divided by zero",
        "feed divisors other than zero",
    ),
    (r"[Ff]ailed to allocate memory|bad_alloc|bad allocation", "there is not enough memory", "feed smaller arrays"),
)
"""Messages of the runtime: a pattern, its meaning, and the fix."""


@dataclass(frozen=True, slots=True)
class RuntimeMessage:
    """A message of the runtime. node: the name of the failed node, or "". why, help: the explanation and the fix. raw:
    the message without positions in onnxruntime's source."""

    node: str
    why: str
    help: str
    raw: str

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse and explain a message."""
        running = _RUNNING.match(text.strip())
        other = running or _OTHER.match(text.strip())
        message = _without_places(other["said"] if other is not None else text)
        where = f"{running['op']} {running['node']!r}: " if running is not None else ""
        raw = f"onnxruntime: {where}{message}"
        node = running["node"] if running is not None else ""
        for pattern, why, help in _EXPLANATIONS:
            match = re.search(pattern, text, re.DOTALL)
            if match is not None:
                groups = [", ".join(g.split(",")) if g else "" for g in match.groups()]
                return cls(node, why.format(*groups), help, raw)
        return cls(node, message, "sizes known only at run time may not fit together, or the kernel may not support "
                   "the values of an operand", raw if where else "")  # fmt: skip


def _without_places(text: str) -> str:
    """Remove files of onnxruntime's source, signatures of its functions and line breaks from a message."""
    while (place := _PLACE.search(text)) is not None:
        text = text[: place.start()] + _without_signature(text[place.end() :])
    return " ".join(text.split())


def _without_signature(text: str) -> str:
    """Return the text after the signature of a function: `void f(int, T) [with T = int] const`."""
    opened = text.find("(")
    if opened < 0 or "\n" in text[:opened] or "." in text[:opened]:
        return text
    end = _after_bracket(text, opened)
    while True:
        rest = text[end:].lstrip()
        if rest.startswith("const "):
            end = len(text) - len(rest) + len("const ")
        elif rest.startswith("[with "):
            end = _after_bracket(text, text.index("[with ", end))
        elif rest.startswith("::") and "(" in rest:  # a function inside another
            end = _after_bracket(text, text.index("(", end))
        else:
            return rest


def _after_bracket(text: str, opened: int) -> int:
    """Return the position after the bracket that closes the one at `opened`."""
    depth = 0
    for place in range(opened, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if not depth:
            return place + 1
    return len(text)


# The user's nodes that lowered nodes come from, and their shapes in a failed run.

_MAX_WATCHED_NODES = 20_000
"""A failed graph of up to this many nodes is run again, up to the failed node, to find shapes."""


class UserNodes:
    """Finds the failed node of a graph by the name of the lowered node.

    Lowers the graph again with numbers instead of source lines, since passes copy lines to the nodes that they create.
    lower: lowers as for the session. run: returns the arrays of values for a feed.
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
        self._origins_by_name: dict[str, Node] | None = None

    def of(self, name: str) -> Node | None:
        """Return the node of the graph that the lowered node comes from; None if it is unknown."""
        if not name:
            return None
        if self._origins_by_name is None:
            try:
                self._origins_by_name = _origins(self._graph, self._lower)
            except Exception:  # the failed run is the error to report
                self._origins_by_name = {}
        return next((self._origins_by_name[key] for key in _spellings(name) if key in self._origins_by_name), None)

    def shapes(self, node: Node, feed: Mapping[str, Any]) -> dict[int, str]:
        """Return the dtypes and shapes of a node's operands in this run by id, as far as they are known."""
        sizes = _sizes_of(self._graph, feed)
        shapes: dict[int, str] = {}
        unknown: list[Symbol] = []
        for symbol in {s.id: s for s in node.inputs if s is not None}.values():
            text = _in_run(symbol, sizes, feed)
            shapes[symbol.id] = text
            if "?" in text and symbol.graph is self._graph and isinstance(symbol.producer, Node):
                unknown.append(symbol)
        if unknown and len(self._graph.nodes) <= _MAX_WATCHED_NODES:
            try:
                arrays = self._run(unknown, feed)
            except Exception:  # their producers may have failed
                return shapes
            shapes.update({s.id: summary(array) for s, array in zip(unknown, arrays, strict=True)})
        return shapes


def _origins(graph: Graph, lower: Callable[[Graph], Graph]) -> dict[str, Node]:
    """Return the nodes of the graph by the names of the first results of their lowered nodes."""
    nodes = [*walk(graph)]
    lowered = lower(marked(graph))
    origins: dict[str, Node] = {}
    for node in (*lowered.nodes, *walk(lowered)):
        number = mark_of(node)
        if number is not None:
            origins.setdefault(node.outputs[0].name, nodes[number])
    return origins


def _spellings(name: str) -> list[str]:
    """Return the possible names of a node before the runtime renamed it, in a body or by fusion."""
    parts = re.split(r"/", name)
    ends = ["/".join(parts[i:]) for i in range(len(parts))]
    starts = ["/".join(parts[:i]) for i in range(len(parts) - 1, 0, -1)]
    bare = [re.sub(r"(?:_token_\d+|_\d+|_[A-Z]\w*)$", "", text) for text in (name, *starts)]
    return [*ends, *starts, *bare]


def _sizes_of(graph: Graph, feed: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of named dims in the inputs of a graph."""
    return python_ops.sizes_of((symbol.type, feed.get(symbol.name)) for symbol in graph.inputs)


def _in_run(symbol: Symbol, sizes: Mapping[str, int], feed: Mapping[str, Any]) -> str:
    """Return the dtype and shape of a value in a run, with `?` for unknown sizes."""
    symbol = root_of(symbol)
    type_ = symbol.type
    if isinstance(symbol.producer, Constant):
        array = symbol.producer.array
        return f"{type_.dtype}{list(array.shape)}" + (f" {array.tolist()}" if array.size <= 8 and array.ndim else "")
    fed = feed.get(symbol.name)
    if isinstance(fed, np.ndarray) and not isinstance(symbol.producer, Node):
        return summary(fed)
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return f"{type_}" if not isinstance(type_, TensorType) else f"{type_.dtype}[?...]"
    return f"{type_.dtype}[{', '.join(_size(dim, sizes) for dim in type_.shape)}]"


def _size(dim: Dim, sizes: Mapping[str, int]) -> str:
    try:
        return str(dim.evaluate(sizes))
    except (ValueError, TypeError, ZeroDivisionError):
        return "?"


# Calls with empty arrays that kernels refuse: empty inputs give empty outputs.

_WRONG_SIZE = re.compile(r" got -\d+\s*$")
"""The end of the runtime's message if a size differs from the one that `ops.rebind` states."""
_MISTAKES = ("is outside of", "was stated")
"""Messages about mistakes that do not depend on empty arrays."""


def is_about_empty(error: Exception, feed: Mapping[str, Any]) -> bool:
    """Return True if a run may have failed because an array is empty."""
    if not any(isinstance(array, np.ndarray) and not array.size for array in feed.values()):
        return False
    text = str(error)
    if SIZE_CHECK in text and _WRONG_SIZE.search(text):
        return False
    why = RuntimeMessage.of(text).why
    return not any(mistake in why for mistake in _MISTAKES)


def zero_results(outputs: Mapping[str, Type], sizes: Mapping[str, int]) -> list[Array] | None:
    """Return the results of a call if all of them are empty; None if some may have elements."""
    results = []
    for type_ in outputs.values():
        shape = _static_shape(type_, sizes)
        if shape is None or 0 not in shape:
            return None
        assert isinstance(type_, TensorType)
        if type_.dtype.is_complex:
            results.append(np.zeros(shape, type_.dtype.numpy))
            continue
        results.append(np.zeros((*shape, *big_integers.storage_axis(type_.dtype)), type_.dtype.storage.numpy))
    return results


def without_empty(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return a graph for these sizes of dims, in which no kernel computes an empty tensor.

    Attention over no keys gives zeros, as a product without terms does. A Reshape gets the shape of its type, since -1
    is undefined for an empty tensor.
    """
    return Rewrite(graph, _RemoveEmpty(sizes)).run()


@dataclass(eq=False)
class _RemoveEmpty(Policy[Rewrite]):
    sizes: Mapping[str, int]

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        shapes, build = [_static_shape(s.type, self.sizes) for s in node.outputs], rewrite.new.build
        known_shapes = [shape for shape in shapes if shape is not None]
        if len(known_shapes) < len(shapes) or bodies(node):
            return None
        if all(0 in shape for shape in known_shapes) or _is_empty_attention(node, self.sizes):
            pairs = zip(node.outputs, known_shapes, strict=True)
            return [build.constant(np.zeros(n, s.dtype.numpy), s.dtype) for s, n in pairs]
        if node.op_type != "Reshape" or node.domain:
            return None
        target = build.vector(known_shapes[0])
        return [build.emit("Reshape", (inputs[0], target), node.outputs[0].type, {"allowzero": 1})]


def _is_empty_attention(node: Node, sizes: Mapping[str, int]) -> bool:
    """Return True if a node is attention without a past and with no queries or no keys."""
    if node.op_type != "Attention" or node.domain or len(node.outputs) != 1 or any(node.inputs[4:6]):
        return False
    shapes = [_static_shape(s.type, sizes) for s in node.inputs[:2] if s is not None]
    return any(shape is not None and 0 in shape for shape in shapes)


def _static_shape(type_: Type, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the shape of a type as numbers; None if it is only known at run time."""
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return None
    if not all(dim.depends_on(sizes) for dim in type_.shape):
        return None
    try:
        shape = tuple(dim.evaluate(sizes) for dim in type_.shape)
    except ZeroDivisionError:
        return None
    return shape if all(size >= 0 for size in shape) else None
