"""Quantise whole graphs: weights of matrix products, LSTMs, convolutions and embedding tables held in few bits.

`quantize` finds the nodes that read a constant weight and chooses among them (`plan`), encodes the chosen weights
(`weights`, `mixed_precision`), builds a new graph that reads them (`layers.replacing`) and describes the result
(`report`). Recurrent layers and convolutions come first (`layers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant
from graphcore.runtime.lowering import functions
from graphcore.runtime.lowering.expansion import row_switch
from graphcore.runtime.quantizer.layers import convolutions, recurrent
from graphcore.runtime.quantizer.layers.replacing import NodeReplacement, Ranges, measured_ranges, replaced, rewritten
from graphcore.runtime.quantizer.mixed_precision import runs_of, single_digits
from graphcore.runtime.quantizer.plan import Candidate, Selection, candidates, planned, refused, selection
from graphcore.runtime.quantizer.plan import report as reported
from graphcore.runtime.quantizer.report import Report, Row
from graphcore.runtime.quantizer.weights import SCHEMES, Choices, Scheme, choices, weight_of
from graphcore.support.progress import ProgressOption, steps
from graphcore.support.source_lines import Imported

NOTE = "graphcore.quantized"
"""The property of a graph and its file that lists the schemes that were applied to it."""


class Quantization(NamedTuple):
    """A quantised graph and a report of its layers."""

    graph: Graph
    report: Report


def quantize(
    graph: Graph,
    scheme: str = "int8_dynamic",
    *,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    embeddings: bool | None = None,
    min_elements: int = 1024,
    block_size: int | None = None,
    many_rows: str | None = None,
    per_channel: bool = True,
    symmetric: bool | None = None,
    reduce_range: bool = False,
    accuracy_level: int | None = None,
    search: bool = True,
    strict: bool = False,
    samples: Iterable[Mapping[str, Any] | Sequence[Any]] | None = None,
    tolerance: float = 1e-4,
    progress: ProgressOption = False,
) -> Quantization:
    """Return a new graph whose matrix products read weights of few bits, and a report of what was quantised.

    Inputs, outputs, names, types, layers and source lines stay. MatMul and Gemm are quantised whose right operand is a
    constant of floats, also after Transpose, Reshape and Cast, and in bodies and functions. A function in which
    something is quantised is inlined. A weight that several nodes share is encoded once.

    Args:
        scheme: "int8_dynamic", the fastest, multiplies int8 weights with activations that are quantised when the graph
            runs; it also quantises LSTM, GRU and RNN, and convolutions where there are samples. "int8_dynamic16" has
            activations in two digits of int8, "int8_split" weights too, near float32. "int8", "int4", "q4_0", "q4_k",
            "q5_k" and "q6_k" quantise weights alone.
        include: Patterns of layers ("encoder/0*"), results or weights, with `*`, `?` and `[...]` as in the shell; `*`
            matches across layers.
        exclude: As `include`.
        embeddings: Also quantise tables that Gather takes rows from, to int8 with a scale a row, under any scheme. A
            table that is also a weight of "int8", "int8_dynamic" or "int4" is stored once, in that encoding. None
            quantises tables of graphs whose buffers are written in place, such as decoders.
        min_elements: Weights with fewer elements stay.
        block_size: For "int4", a power of two of at least 16. The default is 32; for decoders the largest of 128, 64
            and 32 that changes a weight by at most 11 % of its length, or 32.
        many_rows: For 4 bits with accuracy_level 4. "int8" lets sessions multiply bytes where there are many rows,
            which is 1 to 2.5 % off instead of 0.6 to 1.3. "same" does not; None does for decoders.
        per_channel: For int8, a scale for each output instead of one for the weight.
        symmetric: Without zero points, the default of int8 and int8_dynamic, not of int8_dynamic16 and int4.
        reduce_range: For int8, 7 bits, for files that go to x86 processors without VNNI.
        accuracy_level: For weights alone, 0 for products in float32, 4 (the default) for the CPU's faster kernels.
        search: Try several scales for each block of int4 and take the one with the least error.
        strict: Raise for a chosen layer that cannot be quantised, such as one that blocks do not divide. Otherwise it
            stays, and the report gives the reason.
        samples: For each run of the graph the arrays of its inputs, in order or by name. With int8_dynamic, they give
            the ranges of what convolutions read and return, and convolutions are quantised too (QuantizeLinear,
            DequantizeLinear; a scale for each output; batch norms folded in). With int8_split, weights that need no
            second digit are quantised as in int8_dynamic16, which saves a third of the products with them.
        tolerance: With int8_split, how far outputs of floats may be off on the samples: half of the squared length of
            the change over that of the output. For vectors of length 1 that is 1 less the mean cosine.
        progress: True shows a line on stderr. A function gets the number of layers done, and of all layers.

    Returns:
        `Quantization(graph, report)`; `print(report)` shows a table.

    Raises:
        GraphError: For an unfinished graph, a scheme or option that does not exist, patterns that match nothing, and a
            graph that is already quantised.
        FeedError: For samples that do not fit the inputs.
    """
    if not isinstance(graph, Graph):
        raise GraphError(
            f"quantize: graph must be a Graph, got {type(graph).__name__}", help="load a model: Graph.load(path)"
        )
    is_decoder = any(buffer.buffer.in_place for buffer in graph.buffers.values())
    chosen = choices(scheme, block_size, per_channel, symmetric, reduce_range, accuracy_level, search, is_decoder)
    if many_rows not in (None, "int8", "same") or (many_rows == "int8" and not chosen.has_two_forms):
        raise GraphError(
            f"quantize: scheme {chosen.scheme.name!r} does not take many_rows={many_rows!r:.80}",
            help='use "int8" or "same" with a scheme of 4 bits and accuracy_level=4; otherwise leave it out',
        )
    if not graph.outputs:
        graph.verify()  # raises
    if graph.scope.outer is not None:
        raise GraphError(
            f"quantize: graph {graph.name!r} is the body of a node", help="quantise the graph that has the node"
        )
    done = graph.metadata.get(NOTE, "")
    # A file has matrices that belong to the encodings, such as minima of blocks.
    if done and any(type(node.origin) is Imported for node in graph.nodes):
        raise _again(graph, done, "is already quantised", "quantise each part by its scheme before the file is written")
    embeddings = is_decoder if embeddings is None else embeddings
    source = functions.inlined(graph)
    products = candidates(source)
    select = selection(products, include, exclude, min_elements, embeddings)
    if source is not graph:
        own = candidates(graph)
        chosen_of_own = sum(not select.refusal(each) for each in own)
        if chosen_of_own == sum(not select.refusal(each) for each in products):
            source, products = graph, own  # nothing to do in functions: they stay
    is_static = samples is not None and chosen.scheme.name == "int8_dynamic"
    ranges = measured_ranges(source, convolutions.measured(source), runs_of(samples)) if is_static else None
    with steps(progress, len(products), "layers") as step:
        layers = _layered(source, products, chosen, select, strict, ranges, step)
        source, products = layers.graph, products if layers.graph is source else candidates(layers.graph)
        others = (
            {} if samples is None or is_static else single_digits(source, products, chosen, select, samples, tolerance)
        )
        plan = planned(source, products, chosen, select, strict, others, step)
    if done and not plan.chosen and not layers.has_any:
        raise _again(
            graph, done, "is already quantised, and none of the chosen layers is left", "or choose other layers"
        )
    quantized = rewritten(source, plan)
    if plan.chosen or layers.has_any:
        quantized.metadata[NOTE] = f"{done}, {chosen.scheme.name}" if done else chosen.scheme.name
        if chosen.has_two_forms and (many_rows or ("int8" if is_decoder else "same")) == "int8":
            quantized.metadata[row_switch.NOTE] = "int8"
    return Quantization(quantized, layers.merged(reported(products, plan)))


# Layers other than matrix products, which are quantised first.

_OPERATORS = convolutions.OPERATORS | recurrent.OPERATORS


@dataclass(frozen=True, slots=True)
class _QuantizedLayers:
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


def _layered(
    graph: Graph,
    candidates: Sequence[Candidate],
    choices: Choices,
    chosen: Selection,
    strict: bool,
    ranges: Ranges | None,
    step: Callable[[], None],
) -> _QuantizedLayers:
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
    return _QuantizedLayers(replaced(graph, forms) if forms else graph, rows)


def _row(candidate: Candidate, scheme: str, reason: str, size: int, error: float) -> Row:
    node = candidate.node
    positions = recurrent.WEIGHTS if node.op_type in recurrent.OPERATORS else (candidate.position,)
    before = 0
    for position in positions:
        weight = weight_of(node.inputs[position])
        if weight is not None:
            assert isinstance(weight.root.producer, Constant)
            before += weight.root.producer.array.nbytes
    return candidate.row(scheme, reason, before, size if scheme else before, error)


def _again(graph: Graph, done: str, what: str, other: str) -> GraphError:
    return GraphError(
        f"quantize: graph {graph.name!r} {what}: it has {done:.80}",
        help=f"quantise the original graph of floats; {other}",
    )


__all__ = ["NOTE", "SCHEMES", "Quantization", "Report", "Row", "Scheme", "quantize"]
