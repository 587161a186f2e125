"""Layers other than matrix products, which are quantised before the products.

LSTMs, GRUs and RNNs (`recurrent`, `steps`), and convolutions (`convolutions`) by the `ranges` of samples, put into a
new graph (`replacing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant
from graphcore.runtime.quantizer.layers import convolutions, recurrent
from graphcore.runtime.quantizer.layers.replacing import NodeReplacement, Ranges, replaced
from graphcore.runtime.quantizer.plan import Candidate, Selection, refused
from graphcore.runtime.quantizer.report import Report, Row
from graphcore.runtime.quantizer.weights import Choices, weight_of

_OPERATORS = convolutions.OPERATORS | recurrent.OPERATORS


@dataclass(frozen=True, slots=True)
class QuantizedLayers:
    """A graph whose layers were quantised, and a row for each of them, by its place among all candidates."""

    graph: Graph
    rows: Mapping[int, Row]

    @property
    def has_any(self) -> bool:
        """Return True if something was quantised."""
        return any(row.scheme for row in self.rows.values())

    def merged(self, others: Report) -> Report:
        """Return a report with the rows of all candidates in order. others: those of the products."""
        products = [row for row in others.rows if row.operator not in _OPERATORS]
        rest = iter(products)
        rows = [self.rows[i] if i in self.rows else next(rest) for i in range(len(self.rows) + len(products))]
        return Report(others.scheme, tuple(rows))


def layered(
    graph: Graph,
    candidates: Sequence[Candidate],
    choices: Choices,
    chosen: Selection,
    strict: bool,
    ranges: Ranges | None,
    step: Callable[[], None],
) -> QuantizedLayers:
    """Return a graph with quantised convolutions and recurrent layers.

    ranges: of activations on samples, if there are any. step: called after each layer.
    Raises `GraphError` where `strict` and a layer that was chosen cannot be quantised, though its operator has a form.
    """
    rows: dict[int, Row] = {}
    forms: dict[int, NodeReplacement] = {}
    for place, candidate in enumerate(candidates):
        node = candidate.node
        if node.op_type not in _OPERATORS:
            continue
        is_recurrent = node.op_type in recurrent.OPERATORS
        size, error, reason, scheme = 0, 0.0, chosen.refusal(candidate), ""
        if not reason:
            if is_recurrent:
                outcome, scheme = recurrent.replacements(node, choices), choices.scheme.name
                has_form = not recurrent.is_small(node)
            else:
                outcome, scheme = convolutions.replacements(graph, node, choices, ranges), convolutions.SCHEME
                has_form = ranges is not None and not convolutions.is_small(node)
            if isinstance(outcome, str):
                reason, scheme = outcome, ""
                if strict and has_form and choices.scheme.name == "int8_dynamic":
                    raise refused(candidate, reason)
            else:
                own, size, error = outcome
                forms.update(own)
        rows[place] = _row(candidate, scheme, reason, size, error)
        step()
    return QuantizedLayers(replaced(graph, forms) if forms else graph, rows)


def _row(candidate: Candidate, scheme: str, reason: str, size: int, error: float) -> Row:
    node, root = candidate.node, candidate.weight.root
    positions = recurrent.WEIGHTS if node.op_type in recurrent.OPERATORS else (candidate.position,)
    before = 0
    for position in positions:
        weight = weight_of(node.inputs[position])
        if weight is not None:
            assert isinstance(weight.root.producer, Constant)
            before += weight.root.producer.array.nbytes
    shape = tuple(root.shape.static_dims)
    result = node.outputs[0].name
    after = size if scheme else before
    return Row(candidate.layer, result, node.op_type, root.name, shape, scheme, reason, before, after, error)
