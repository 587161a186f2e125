"""The passes of lowering in their order, each with its condition and purpose."""

from __future__ import annotations

import json
from collections.abc import Set
from dataclasses import replace

from graphcore.build.declare import EXPANSIONS, LIBRARY
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.ir.symbol import Symbol, present
from graphcore.ir.transform import pickling
from graphcore.ir.transform.rewrite import exposed
from graphcore.onnx import notes
from graphcore.onnx.notes import OPSET
from graphcore.ops import families as families  # declares the expansions
from graphcore.passes import optimize as optimized
from graphcore.runtime.fusions import FUSIONS, fuse, may_fuse
from graphcore.runtime.lowering import functions
from graphcore.runtime.lowering.decompositions.bits import BitsViewed
from graphcore.runtime.lowering.dtypes import ambiguous, complex_numbers, integers, sequences, small_floats
from graphcore.runtime.lowering.expansion import composed, packed_weights, row_switch
from graphcore.runtime.lowering.expansion.row_switch import expand
from graphcore.runtime.lowering.legalise import Legaliser, is_legal
from graphcore.runtime.lowering.passes import LoweringRun, Pass, Summary
from graphcore.runtime.lowering.targets.legality import Legality, legality, schema_dtypes
from graphcore.runtime.lowering.targets.releases import OLDEST_OPSET, Runtime, default
from graphcore.runtime.lowering.workarounds import arithmetic, dequantized, empty, moves, sizes
from graphcore.support.gc_pause import uncollected
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

WORKAROUNDS: tuple[Pass, ...] = (
    arithmetic.ADDED_ZERO,
    arithmetic.ROUNDED,
    arithmetic.EMPTY,
    arithmetic.INFINITE_FACTOR,
    arithmetic.CLIPPED_RELU,
    arithmetic.QUICK_GELU,
    empty.NEGATIVE_AXES,
    empty.NO_AXES,
    dequantized.MATMUL,
    dequantized.ZERO_POINTS,
    dequantized.INT8,
    dequantized.MOVED,
    dequantized.SCALES,
    dequantized.PARTS,
    arithmetic.SIGNED_WEIGHTS,
    moves.CAST_BEFORE_SHAPE,
    moves.CAST,
    moves.CUBIC,
    moves.REPEATED,
    empty.ATTENTION,
    empty.KERNELS,
    empty.POOLS,
    empty.IMAGES,
    empty.LIMITS,
    empty.TERMS,
    sizes.FEW_AXES,
    sizes.OLD,
    sizes.RANKS,
    sizes.RESIZED,
    sizes.SAME_PADS,
)
"""Workarounds for bugs of onnxruntime, in the order in which they run."""


def run(passes: tuple[Pass, ...], summary: Summary, lowering: LoweringRun) -> Summary:
    """Run those passes that the graph needs and return its new summary; the same summary if none ran."""
    for step in passes:
        if (step.signs and step.signs.isdisjoint(summary.op_types)) or not step.needed(summary, lowering):
            continue
        result = step.run(summary, lowering)
        if result is None:
            continue
        lowering.trace.append(step)
        if result is not summary.graph:
            summary = Summary(result)
    return summary


def legalise_if_needed(summary: Summary, lowering: LoweringRun) -> Graph:
    """Run the passes of `LEGALISING`; return the same graph if it is legal and needs no workaround."""
    if is_legal(summary, lowering.rules, keeps_halves=lowering.precision is None):
        signed = [workaround for workaround in WORKAROUNDS if not workaround.signs.isdisjoint(summary.op_types)]
        if not any(workaround.needed(summary, lowering) for workaround in signed):
            return summary.graph
    lowering.source = summary.graph
    return run(LEGALISING, summary, lowering).graph


def with_kernels(rules: Legality, summary: Summary, op_types: Set[str] | None = None) -> Legality:
    """Return the rules of the newest opset that has the dtypes of a graph and kernels of its operators, or of others.

    onnxruntime 1.32 has a kernel of Attention for opset 24, and none for its version of opset 25.
    """
    runtime = rules.runtime
    if not rules.target.is_host or not runtime.version or runtime.is_fixed:
        return rules
    op_types = onnx_op_types(summary) if op_types is None else op_types
    missing = [op_type for op_type in op_types if not rules.dtypes(op_type)]
    # Where an older opset has no BitCast, floats would lose the signs of NaNs.
    avoided = runtime.avoided | {"BitCast"} if rules.dtypes("BitCast") else runtime.avoided
    for opset in range(runtime.opset - 1, OLDEST_OPSET - 1, -1) if missing else ():
        older = legality(rules.target.name, replace(runtime, opset=opset, avoided=avoided))
        if any(older.dtypes(op_type) for op_type in missing):
            lost = schema_dtypes("Cast", runtime.opset) - schema_dtypes("Cast", opset)
            return rules if lost & summary.dtypes else older
    return rules


def onnx_op_types(summary: Summary) -> Set[str]:
    """Return the names of the ONNX operators in a graph."""
    return {op_type for op_type, domain in summary.operators if not domain} if summary.domains else summary.op_types


# Passes that need more than a graph


def _fuse(summary: Summary, lowering: LoweringRun) -> Graph | None:
    operators = summary.operators
    op_types = {op_type for fusion in FUSIONS if (fusion.sign, "") in operators for op_type in fusion.makes}
    best = with_kernels(lowering.newest, summary, op_types)
    fused = fuse(
        summary.graph,
        lambda op_type: best.allows(op_type, DType.float32),
        lowering.rules.target.is_host,
        spares_quantised=lowering.precision != "fast",
    )
    if fused is summary.graph:
        return None
    lowering.is_fused = True
    lowering.rules = with_kernels(lowering.newest, Summary(fused))
    return fused


def _inline_or_keep(summary: Summary, lowering: LoweringRun) -> Graph:
    if not lowering.inline:
        with_functions = functions.lower_bodies(
            summary.graph, lambda body: legalise_if_needed(Summary(body), replace(lowering, trace=[]))
        )
        if with_functions is not None:
            return with_functions
    return functions.inlined(summary.graph)


def _legalise(summary: Summary, lowering: LoweringRun) -> Graph:
    fast = lowering.precision == "fast" and lowering.rules.decomposes
    return Legaliser(summary.graph, lowering.rules, fast=fast, keeps_halves=lowering.precision is None).run()


def _has_slow_weights(summary: Summary, lowering: LoweringRun) -> bool:
    rules = lowering.rules
    return lowering.optimize == "all" and rules.target.is_host and rules.decomposes and not rules.runtime.saturates()


def _write_notes(summary: Summary, lowering: LoweringRun) -> Graph:
    graph, source = summary.graph, present(lowering.source)
    small = small_floats.stored(lowering.rules)
    values = [(s.name, s) for s in (*source.inputs, *source.outputs, *source.weights.values())]
    values += [(name, s) for name, s in source.named_outputs if name]
    semantic = {name: s.dtype.name for name, s in values if _is_semantic(s, small)}
    if semantic:
        recorded = json.loads(source.metadata.get(notes.DTYPES, "{}"))
        graph.metadata[notes.DTYPES] = json.dumps({**recorded, **semantic})
    graph.metadata[notes.TARGET] = lowering.rules.target.name
    graph.metadata[notes.PROMOTION] = source.promotion.note
    return graph


def _is_semantic(symbol: Symbol, small: frozenset[DType]) -> bool:
    dtype = symbol.type.dtype if isinstance(symbol.type, TensorType) else DType.string
    return dtype.storage is not dtype or dtype in small


def _if_changed(result: Graph, summary: Summary) -> Graph | None:
    return None if result is summary.graph else result


PREPARING: tuple[Pass, ...] = (
    Pass(
        "expose buffers", "it has buffers", "a runtime has only inputs and outputs",
        lambda summary, lowering: bool(summary.graph.buffers), lambda summary, lowering: exposed(summary.graph),
    ),
    Pass(
        "custom operators", "operators of other domains", "a body replaces a kernel that is missing or wrong",
        lambda summary, lowering: bool(summary.domains),
        lambda summary, lowering: _if_changed(
            functions.resolved(summary.graph, lowering.rules.target.name, lowering.newest.runtime), summary
        ),
    ),
    Pass(
        "optimise", 'optimize="exact", or "all" for OpenVINO, which computes few of the nodes that sizes need',
        "fewer nodes, bit for bit",
        lambda summary, lowering: lowering.optimize == "exact" or (
            lowering.optimize == "all" and lowering.rules.target.name == "openvino"
        ),
        lambda summary, lowering: optimized(summary.graph),
    ),
    Pass(
        "fuse", 'optimize="all", a provider, and operators of a fusion',
        "faster forms, before their operators are lowered separately",
        lambda summary, lowering: (
            lowering.optimize == "all" and lowering.newest.decomposes and may_fuse(summary.operators, summary.dtypes)
        ),
        _fuse,
    ),
    Pass(
        "functions", "calls", "inlined, or kept if ONNX stores every dtype",
        lambda summary, lowering: summary.has_calls, _inline_or_keep,
    ),
)  # fmt: skip
"""Passes over a whole graph with its calls, whether legal or not."""

LEGALISING: tuple[Pass, ...] = (
    Pass(
        "complex numbers", "such dtypes", "their real and imaginary parts, which every kernel and fusion supports",
        lambda summary, lowering: complex_numbers.needed(summary),
        lambda summary, lowering: complex_numbers.store(
            summary.graph,
            fast=lowering.precision == "fast",
            branches=not lowering.rules.target.runs_whole_graphs,
        ),
    ),
    Pass(
        "ambiguous integers", "casts of such integers to narrower ones", "low bits do not need a wide dtype",
        lambda summary, lowering: ambiguous.needed(summary),
        lambda summary, lowering: ambiguous.narrowed(summary.graph),
    ),
    Pass(
        "n-ary sums and products", "SumOfTerms, ProductOfTerms", "ONNX adds pairs: balanced trees",
        lambda summary, lowering: composed.needed(summary), lambda summary, lowering: composed.balanced(summary.graph),
    ),
    Pass(
        "odd and wide integers", "such dtypes", "the next width of ONNX, or limbs of 32 bits",
        lambda summary, lowering: integers.needed(summary), lambda summary, lowering: integers.store(summary.graph),
    ),
    Pass(
        "small floats", "float6; float4, for a provider", "no kernel supports them; float8 represents their values",
        lambda summary, lowering: small_floats.needed(summary, small_floats.stored(lowering.rules)),
        lambda summary, lowering: small_floats.store_as_float8(summary.graph, small_floats.stored(lowering.rules)),
    ),
    Pass(
        "sequences", "lists and optionals of other dtypes, or lists that the target cannot split into",
        "ONNX has lists and optionals of 13 dtypes",
        lambda summary, lowering: sequences.needed(summary, lowering.rules),
        lambda summary, lowering: sequences.store(summary.graph, lowering.rules),
    ),
    Pass(
        "expand", "operators of graphcore, or without a kernel", "other operators compute them",
        lambda summary, lowering: LIBRARY in summary.domains or not summary.op_types.isdisjoint(EXPANSIONS),
        lambda summary, lowering: _if_changed(expand(summary.graph, lowering.rules), summary),
    ),
    Pass(
        "legalise", "always", "every node legal, computed in another dtype, or decomposed",
        lambda summary, lowering: True, _legalise,
    ),
    *WORKAROUNDS,
    Pass(
        "fuse bias", "quantised products of com.microsoft, for a provider that has their kernels",
        "saves one write of the result",
        lambda summary, lowering: lowering.rules.target.packs_weights and packed_weights.may_fuse(summary),
        lambda summary, lowering: summary.graph if packed_weights.fuse(summary.parts) else None,
    ),
    Pass(
        "notes", "always", "dtypes, target and promotion for readers of the file",
        lambda summary, lowering: True, _write_notes,
    ),
)  # fmt: skip
"""Passes that legalise a graph, or the body of a function that stays; none runs on a graph that is legal already."""

FINISHING: tuple[Pass, ...] = (
    Pass(
        "unsigned weights of bytes", 'optimize="all", a session on a processor without this trap',
        "products with signed bytes take half the time", _has_slow_weights,
        lambda summary, lowering: _if_changed(arithmetic.with_signed_weights(summary.graph), summary),
        arithmetic.SIGNED_IS_FASTER,
    ),
    Pass(
        "switch by rows", 'optimize="all", a session, and a graph quantised for it',
        "products of 4 bits for few rows, of bytes for many",
        lambda summary, lowering: (
            lowering.optimize == "all"
            and lowering.rules.target.packs_weights
            and row_switch.is_wanted(summary.graph, summary.operators)
        ),
        lambda summary, lowering: _if_changed(row_switch.switched(summary.graph, lowering.newest.runtime), summary),
    ),
)  # fmt: skip
"""Passes from a legal graph to a legal graph."""

PIPELINE: tuple[Pass, ...] = (*PREPARING, *LEGALISING, *FINISHING)


@uncollected()
def lower(
    graph: Graph,
    target: TargetName,
    precision: Precision | None = "exact",
    *,
    inline: bool = True,
    runtime: Runtime | None = None,
    optimize: Optimize = "off",
    trace: list[Pass] | None = None,
) -> Graph:
    """Return a graph of ONNX operators and dtypes that computes the same on `target`.

    precision: "exact" rounds after every op, "fast" computes consecutive ops on narrow floats in float32, None leaves
    nodes of imported models to the runtime's kernels and rounds after every other op. inline: replace calls of
    functions by their bodies; otherwise they stay where possible. runtime: the release that runs the graph, by default
    the one that files are written for; the graph has an older opset than the runtime's if only that has kernels of an
    operator. optimize: "exact" runs the passes of `Graph.optimize` first; "all" applies fusions (`runtime/fusions`),
    which may change the order of sums, and runs the passes if some matched; it does not fuse the operands of quantisers
    unless precision is "fast". trace: receives the passes that ran. Inputs and outputs keep their names and order.
    Raises `GraphError` for an op that the target cannot run.
    """
    newest = legality(target, default(target) if runtime is None else runtime)
    summary = Summary(graph)
    rules = with_kernels(newest, summary)
    lowering = LoweringRun(newest, rules, precision, optimize, inline, [] if trace is None else trace)
    passes = len(lowering.trace)
    try:
        result = legalise_if_needed(run(PREPARING, summary, lowering), lowering)
    except BitsViewed:
        if "BitCast" in newest.runtime.avoided:
            raise
        del lowering.trace[passes:]
        at_newest = replace(newest.runtime, is_fixed=True)
        return lower(graph, target, precision, inline=inline, runtime=at_newest, optimize=optimize, trace=trace)
    if row_switch.NOTE in result.metadata or not arithmetic.SIGNED_IS_FASTER.isdisjoint(summary.op_types):
        result = run(FINISHING, Summary(result), lowering).graph
    opset = lowering.rules.runtime.opset if lowering.rules.decomposes else OPSET
    if result.opsets.get("", OPSET) == opset:
        return result
    result = pickling.copied(result) if result is graph else result
    result.opsets[""] = opset
    return result
