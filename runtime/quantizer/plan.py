"""The plan of a quantisation: encoded weights by node, and the reasons why others stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphcore.errors import GraphcoreError, GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.walk import bodies
from graphcore.quantization import QuantizedTensor, encode
from graphcore.runtime.quantizer.candidates import Candidate, Selection, misfit
from graphcore.runtime.quantizer.report import Report, Row
from graphcore.runtime.quantizer.schemes import Choices, distance

_NONE: Mapping[tuple[Any, ...], Choices] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A weight that was encoded. error: what that changes in it, relative to its length."""

    key: tuple[Any, ...]
    choices: Choices
    root: Symbol
    tensor: QuantizedTensor
    error: float


@dataclass(slots=True, eq=False)
class Plan:
    """The encoded weight that each node reads, by the id of the node.

    used: the ids of the Symbols that something still reads.
    """

    choices: Choices
    chosen: dict[int, tuple[Candidate, Encoded]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    through: set[int] = field(default_factory=set)
    """The ids of nodes that bring weights into the form in which they were read."""


def planned(
    graph: Graph,
    found: Sequence[Candidate],
    choices: Choices,
    chosen: Selection,
    strict: bool,
    others: Mapping[tuple[Any, ...], Choices] = _NONE,
    step: Callable[[], None] = lambda: None,
) -> Plan:
    """Return the plan for a graph.

    strict: raises for a product that was chosen and cannot be quantised. others: of weights, by their keys, that do not
    go by `choices`. step: called before each weight.
    """
    plan = Plan(choices)
    encoded: dict[tuple[Any, ...], Encoded | GraphcoreError | str] = {}
    multiplied = {
        c.matrix.key for c in found if c.matrix is not None and not (c.is_table or chosen.refusal(c) or misfit(c))
    }
    for candidate in found:
        step()
        node = candidate.node
        refusal = chosen.refusal(candidate)
        reason = refusal or misfit(candidate)
        if reason or candidate.matrix is None:
            plan.reasons[id(node)] = reason
            if strict and not refusal and candidate.has_form:
                raise _strict(candidate, reason, "")
            continue
        own = others.get(candidate.matrix.key, choices)
        rows = candidate.is_table and not own.shares_rows(candidate.matrix.key in multiplied)
        key = (*candidate.matrix.key, "rows" if rows else "")
        if key not in encoded:
            encoded[key] = _encoded(candidate, key, own, rows)
        made = encoded[key]
        if isinstance(made, Encoded):
            plan.chosen[id(node)] = candidate, made
            plan.through.update(map(id, candidate.weight.through))
            continue
        error = made if isinstance(made, GraphcoreError) else None
        plan.reasons[id(node)] = _short(error) if error else str(made)
        if error and strict:
            raise _strict(candidate, plan.reasons[id(node)], error.help) from error
    _mark(graph, plan)
    return plan


def _encoded(
    candidate: Candidate, key: tuple[Any, ...], choices: Choices, rows: bool
) -> Encoded | GraphcoreError | str:
    """Return the weight encoded; an error or a reason where it cannot be."""
    assert candidate.matrix is not None
    array = candidate.matrix.array()
    try:
        tensor = encode(array, "int8", axis=0) if rows else choices.encoded(array)
    except GraphcoreError as error:
        return error
    producer = candidate.weight.root.producer
    assert isinstance(producer, Constant)
    # Numbers of few bits that the file makes floats of are compared with those floats, which each run computes.
    whole = producer.array.nbytes if candidate.weight.root.dtype.is_float else array.nbytes
    if tensor.nbytes >= whole:
        return "scales and zero points would take more than is saved"
    return Encoded(key, choices, candidate.weight.root, tensor, distance(array, tensor.dequantize()))


def _short(error: GraphcoreError) -> str:
    """Return what an error says, without the function that says it."""
    return error.summary.partition(": ")[2] or error.summary


def _strict(candidate: Candidate, reason: str, help: str) -> GraphError:
    node, symbol = candidate.node, candidate.node.outputs[0]
    return GraphError(
        f"quantize: {node.op_type} {symbol.name!r} cannot be quantised: {reason}",
        operands={"weight": candidate.weight.root, "result": symbol},
        help=help or f"leave it out: exclude={candidate.layer or symbol.name!r}",
    )


def _mark(graph: Graph, plan: Plan) -> None:
    """Mark which Symbols are read when the chosen nodes read encoded weights instead; bodies are looked into."""
    used = plan.used
    kept = (*graph.outputs, *(held.value for held in graph.buffers.values()), *graph.watched.values())
    used.update(id(symbol) for symbol in kept)
    for node in reversed(graph.nodes):
        if not keeps(node, plan):
            continue
        for body in bodies(node):
            _mark(body, plan)
            for symbol in body.symbols:
                if isinstance(symbol.producer, Captured) and id(symbol) in used:
                    used.add(id(symbol.producer.symbol))
        position = plan.chosen[id(node)][0].position if id(node) in plan.chosen else None
        used.update(id(s) for i, s in enumerate(node.inputs) if s is not None and i != position)


def keeps(node: Node, plan: Plan) -> bool:
    """Return whether the node is still needed.

    Only those that bring a weight into another form may be needed no more.
    """
    return id(node) not in plan.through or any(id(symbol) in plan.used for symbol in node.outputs)


def report(found: Sequence[Candidate], plan: Plan) -> Report:
    """Return a row for each candidate."""
    seen: set[object] = set()
    rows = []
    for candidate in found:
        node, root = candidate.node, candidate.weight.root
        assert isinstance(root.producer, Constant)
        size = 0 if id(root) in seen else root.producer.array.nbytes
        seen.add(id(root))
        after = size if id(root) in plan.used else 0
        encoded = plan.chosen[id(node)][1] if id(node) in plan.chosen else None
        if encoded is not None and (place := (encoded.key, id(node.outputs[0].graph))) not in seen:
            seen.add(place)
            after += encoded.tensor.nbytes
        rows.append(
            Row(
                candidate.layer,
                node.outputs[0].name,
                node.op_type,
                root.name,
                tuple(root.shape.static_dims),
                "" if encoded is None else _scheme(candidate, encoded),
                plan.reasons.get(id(node), ""),
                size,
                after,
                0.0 if encoded is None else encoded.error,
                None if encoded is None else encoded.tensor.block_size,
            )
        )
    return Report(plan.choices.scheme.name, tuple(rows))


def _scheme(candidate: Candidate, encoded: Encoded) -> str:
    """Return what the weight is held in: a table of rows is int8 where the scheme has no rows of its own."""
    return encoded.tensor.encoding if candidate.is_table else encoded.choices.scheme.name
