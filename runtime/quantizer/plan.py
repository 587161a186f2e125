"""The plan of a quantisation: encoded weights by node, and the reasons why others stay."""

from __future__ import annotations

import difflib
import fnmatch
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphcore.errors import GraphcoreError, GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol, present
from graphcore.ir.transform.walk import bodies, node_of, walk
from graphcore.operators import Trait, having
from graphcore.quantization import QuantizedTensor, encode
from graphcore.runtime.quantizer.report import Report, Row
from graphcore.runtime.quantizer.weights import HELD, Choices, TransformedWeight, distance, weight_of
from graphcore.types.tensor_types import TensorType

# Candidates for quantisation: nodes of a graph that read a weight, and the choice among them.

_PRODUCTS = frozenset({"MatMul", "Gemm"})
_NO_FORM = having(Trait.RECURRENT) | {"Conv", "ConvTranspose"}


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A node with a constant float weight.

    position: of the weight among its operands. matrix: the weight as a product reads it, [n, k], or a table of rows;
    None if it cannot be quantised. reason: why, or "".
    """

    node: Node
    position: int
    weight: TransformedWeight
    matrix: TransformedWeight | None
    reason: str = ""

    @property
    def is_table(self) -> bool:
        """Whether the node gathers rows of the weight."""
        return self.node.op_type == "Gather"

    @property
    def has_form(self) -> bool:
        """Whether nodes of its operator can be quantised."""
        return self.node.op_type not in _NO_FORM

    @property
    def elements(self) -> int:
        """The number of elements of the weight."""
        return math.prod(_shape(self.node, self.position))

    @property
    def layer(self) -> str:
        """The path of its layer."""
        return self.node.layer.rstrip("/")

    @property
    def names(self) -> set[str]:
        """The names that patterns are compared with."""
        result = self.node.outputs[0].name
        path = result if result.startswith(self.node.layer) else self.node.layer + result
        return {self.layer, result, path, self.weight.root.name} - {""}

    def row(
        self, scheme: str, reason: str, before: int, after: int, error: float, block_size: int | None = None
    ) -> Row:
        """Return the row of a report."""
        node, root = self.node, self.weight.root
        where = self.layer, node.outputs[0].name, node.op_type, root.name, tuple(root.shape.static_dims)
        return Row(*where, scheme, reason, before, after, error, block_size)


def candidates(graph: Graph) -> list[Candidate]:
    """Return the candidates of a graph and of the bodies in it, in order."""
    return [candidate for node in walk(graph) for candidate in _of(node)]


def _of(node: Node) -> Iterator[Candidate]:
    if node.domain or len(node.inputs) < 2 or _is_quantized(node):
        return
    if node.op_type in _PRODUCTS:
        left, right = (weight_of(s) for s in node.inputs[:2])
        if left is not None and right is not None:
            return  # constant folding computes it
        if right is not None and not _is_workaround(right):
            yield _product(node, right)
        elif left is not None and not _is_workaround(left):
            reason = "its weight is the left operand; only weights that are the right operand are quantised"
            yield Candidate(node, 0, left, None, reason)
    elif node.op_type == "Gather":
        table = weight_of(node.inputs[0])
        if table is not None and len(_shape(node, 0)) == 2 and node.attributes.get("axis", 0) in (0, -2):
            yield Candidate(node, 0, table, table)
    elif node.op_type in _NO_FORM:
        filters = weight_of(node.inputs[1])
        if filters is not None:
            yield Candidate(node, 1, filters, None, f"{node.op_type} is not quantised")


def _is_quantized(node: Node) -> bool:
    """Return True if a node already computes with bytes: both its other operand and the weight are dequantised."""
    operands = node.inputs[:2]
    return node.op_type in _PRODUCTS | _NO_FORM and all(node_of(s, "DequantizeLinear") is not None for s in operands)


def _is_workaround(weight: TransformedWeight) -> bool:
    """Return True for a row or column of zeros that detects NaN, in graphs that were quantised and lowered before."""
    producer = weight.root.producer
    assert isinstance(producer, Constant)
    return 1 in producer.array.shape[-2:] and not producer.array.any()


def _product(node: Node, weight: TransformedWeight) -> Candidate:
    shape, x = _shape(node, 1), node.inputs[0]
    if len(shape) != 2:
        reason = f"its weight has {len(shape)} dims; only weights of 2 dims are quantised"
        return Candidate(node, 1, weight, None, reason)
    if x is None or not isinstance(x.type, TensorType) or not x.shape.is_ranked:
        return Candidate(node, 1, weight, None, "the number of dims of its input is unknown")
    matrix = weight
    if node.op_type == "MatMul" or not node.attributes.get("transB", 0):
        matrix = weight.then(("transpose", (1, 0)))
    alpha = node.attributes.get("alpha", 1.0) if node.op_type == "Gemm" else 1.0
    return Candidate(node, 1, weight, matrix if alpha == 1 else matrix.then(("scale", float(alpha))))


def _shape(node: Node, position: int) -> tuple[int, ...]:
    symbol = present(node.inputs[position])
    return tuple(symbol.shape.static_dims)


@dataclass(frozen=True, slots=True)
class Selection:
    """The caller's choice of candidates.

    include, exclude: patterns of names. min_elements: of a weight that is worth it. embeddings: tables of rows too.
    """

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    min_elements: int
    embeddings: bool

    def refusal(self, candidate: Candidate) -> str:
        """Return why the candidate was not chosen, or ""."""
        names = candidate.names
        if self.include and not any(_matches(pattern, names) for pattern in self.include):
            return "no pattern of include matches it"
        for pattern in self.exclude:
            if _matches(pattern, names):
                return f"excluded by {pattern!r}"
        if candidate.is_table and not self.embeddings:
            return "it is an embedding table; only embeddings=True quantises those"
        least = max(self.min_elements, 1)
        if candidate.elements < least:
            return f"its weight is small: it has {candidate.elements} elements, fewer than min_elements={least}"
        return ""


def misfit(candidate: Candidate) -> str:
    """Return why a chosen candidate cannot be quantised, as far as its node shows, or ""."""
    operand = present(candidate.node.inputs[candidate.position])
    if candidate.matrix is not None and operand.dtype not in HELD:
        return f"its weight is {operand.dtype}; only {', '.join(map(str, HELD))} are quantised"
    return candidate.reason


def selection(
    candidates: Sequence[Candidate], include: object, exclude: object, min_elements: object, embeddings: bool
) -> Selection:
    """Return the caller's choice. Raises `GraphError` for invalid patterns, and for patterns that match nothing."""
    if not isinstance(min_elements, int) or isinstance(min_elements, bool) or min_elements < 0:
        raise GraphError(
            f"quantize: min_elements must be an integer of at least 0, got {min_elements!r:.80}",
            help="give a number of elements, such as 1024",
        )
    chosen = Selection(_patterns("include", include), _patterns("exclude", exclude), min_elements, bool(embeddings))
    names = {name: None for candidate in candidates for name in sorted(candidate.names)}
    for pattern in (*chosen.include, *chosen.exclude):
        if not _matches(pattern, names):
            near = difflib.get_close_matches(pattern, names, 3, 0.4) or [*names][:5]
            raise GraphError(
                f"quantize: no layer, result or weight that can be quantised matches {pattern!r}",
                help=f"some names are {', '.join(map(repr, near))}" if near else "the graph has no layer to quantise",
            )
    return chosen


def _patterns(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    patterns = tuple(value) if isinstance(value, Iterable) else (value,)
    if all(isinstance(each, str) for each in patterns):
        return patterns
    raise GraphError(
        f"quantize: {name} must be a pattern or a list of patterns, got {value!r:.80}", help="give one: 'encoder/*'"
    )


def _matches(pattern: str, names: set[str] | dict[str, None]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


_NONE: Mapping[tuple[Any, ...], Choices] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """An encoded weight. error: the change by encoding, relative to the length of the weight."""

    key: tuple[Any, ...]
    choices: Choices
    root: Symbol
    tensor: QuantizedTensor
    error: float


@dataclass(slots=True, eq=False)
class QuantizationPlan:
    """The encoded weight that each node reads, by the id of the node.

    used: the ids of the Symbols that something still reads.
    """

    choices: Choices
    chosen: dict[int, tuple[Candidate, Encoded]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    through: set[int] = field(default_factory=set)
    """The ids of nodes that transform weights before they are read."""


def planned(
    graph: Graph,
    candidates: Sequence[Candidate],
    choices: Choices,
    chosen: Selection,
    strict: bool,
    others: Mapping[tuple[Any, ...], Choices] = _NONE,
    step: Callable[[], None] = lambda: None,
) -> QuantizationPlan:
    """Return the plan for a graph.

    strict: raise for a chosen product that cannot be quantised. others: the choices of weights that do not follow
    `choices`, by key. step: called before each weight.
    """
    plan = QuantizationPlan(choices)
    encoded: dict[tuple[Any, ...], Encoded | GraphcoreError | str] = {}
    multiplied = {
        c.matrix.key for c in candidates if c.matrix is not None and not (c.is_table or chosen.refusal(c) or misfit(c))
    }
    for candidate in candidates:
        step()
        node = candidate.node
        refusal = chosen.refusal(candidate)
        reason = refusal or misfit(candidate)
        if reason or candidate.matrix is None:
            plan.reasons[id(node)] = reason
            if strict and not refusal and candidate.has_form:
                raise refused(candidate, reason)
            continue
        own = others.get(candidate.matrix.key, choices)
        rows = candidate.is_table and not own.shares_rows(candidate.matrix.key in multiplied)
        key = (*candidate.matrix.key, "rows" if rows else "")
        if key not in encoded:
            encoded[key] = _encoded(candidate, key, own, rows)
        weight = encoded[key]
        if isinstance(weight, Encoded):
            plan.chosen[id(node)] = candidate, weight
            plan.through.update(map(id, candidate.weight.through))
            continue
        error = weight if isinstance(weight, GraphcoreError) else None
        plan.reasons[id(node)] = reason_of(error) if error else str(weight)
        if error and strict:
            raise refused(candidate, plan.reasons[id(node)], error.help) from error
    mark(graph, plan)
    return plan


def _encoded(
    candidate: Candidate, key: tuple[Any, ...], choices: Choices, rows: bool
) -> Encoded | GraphcoreError | str:
    """Return the encoded weight; an error or a reason if it cannot be encoded."""
    array = present(candidate.matrix).array()
    try:
        tensor = encode(array, "int8", axis=0) if rows else choices.encoded(array)
    except GraphcoreError as error:
        return error
    producer = candidate.weight.root.producer
    assert isinstance(producer, Constant)
    # Weights of few bits that the file itself dequantises count as the floats that each run computes from them.
    whole = producer.array.nbytes if candidate.weight.root.dtype.is_float else array.nbytes
    if tensor.nbytes >= whole:
        return "its weight would not get smaller: the scales and zero points take as much memory as is saved"
    return Encoded(key, choices, candidate.weight.root, tensor, distance(array, tensor.dequantize()))


def reason_of(error: GraphcoreError) -> str:
    """Return the message of an error, without the name of the function."""
    return error.summary.partition(": ")[2] or error.summary


def refused(candidate: Candidate, reason: str, help: str = "") -> GraphError:
    """Return the error for a chosen layer that cannot be quantised."""
    node, symbol = candidate.node, candidate.node.outputs[0]
    return GraphError(
        f"quantize: {node.op_type} {symbol.name!r} cannot be quantised: {reason}",
        operands={"weight": candidate.weight.root, "result": symbol},
        help=help or f"leave it out: exclude={candidate.layer or symbol.name!r}",
    )


def mark(graph: Graph, plan: QuantizationPlan) -> None:
    """Mark the Symbols that are still read when the chosen nodes read encoded weights, including those in bodies."""
    used = plan.used
    needed = (*graph.outputs, *(buffer.value for buffer in graph.buffers.values()), *graph.watched.values())
    used.update(id(symbol) for symbol in needed)
    for node in reversed(graph.nodes):
        if not keeps(node, plan):
            continue
        for body in bodies(node):
            mark(body, plan)
            for symbol in body.symbols:
                if isinstance(symbol.producer, Captured) and id(symbol) in used:
                    used.add(id(symbol.producer.symbol))
        position = plan.chosen[id(node)][0].position if id(node) in plan.chosen else None
        used.update(id(s) for i, s in enumerate(node.inputs) if s is not None and i != position)


def keeps(node: Node, plan: QuantizationPlan) -> bool:
    """Return True if the node is still needed.

    Only nodes that transform a weight can become unneeded.
    """
    return id(node) not in plan.through or any(id(symbol) in plan.used for symbol in node.outputs)


def report(candidates: Sequence[Candidate], plan: QuantizationPlan) -> Report:
    """Return a row for each candidate."""
    seen: set[object] = set()
    rows = []
    for candidate in candidates:
        node, root = candidate.node, candidate.weight.root
        assert isinstance(root.producer, Constant)
        size = 0 if id(root) in seen else root.producer.array.nbytes
        seen.add(id(root))
        after = size if id(root) in plan.used else 0
        encoded = plan.chosen[id(node)][1] if id(node) in plan.chosen else None
        if encoded is not None and (place := (encoded.key, id(node.outputs[0].graph))) not in seen:
            seen.add(place)
            after += encoded.tensor.nbytes
        scheme = ""
        if encoded is not None:  # a table of rows is int8 if the scheme has no encoding of rows
            scheme = encoded.tensor.encoding if candidate.is_table else encoded.choices.scheme.name
        error, block_size = (0.0, None) if encoded is None else (encoded.error, encoded.tensor.block_size)
        rows.append(candidate.row(scheme, plan.reasons.get(id(node), ""), size, after, error, block_size))
    return Report(plan.choices.scheme.name, tuple(rows))
