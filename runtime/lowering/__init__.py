"""Lowering: from a graph as it was built to one that a target runs, with the numbers DESIGN section 4 promises.

Two passes, each making a new graph: `expand` replaces the library's own operators by ONNX's, `legalise` replaces
dtypes by those ONNX stores and operators by what the target has kernels for. A graph that needs neither is returned
as it is.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from graphcore.build.declare import LIBRARY
from graphcore.ir import pickling
from graphcore.ir.buffers import exposed
from graphcore.ir.definitions import operators
from graphcore.ir.graph import Graph, Optimize, Precision, Target
from graphcore.ir.rewrite import bodies
from graphcore.ir.symbol import Node, Symbol
from graphcore.onnx import notes
from graphcore.onnx.proto.model_proto import OPSET
from graphcore.runtime.fusions import FORMS, may_have, shaped
from graphcore.runtime.lowering import fuse_bias
from graphcore.runtime.lowering.decompositions import keeps_kernel, ml_operators, optionals
from graphcore.runtime.lowering.dtypes import ambiguous, float4, integers, nary, sequences
from graphcore.runtime.lowering.expansion.expand import FORMS as FORMED
from graphcore.runtime.lowering.expansion.expand import computes, expand
from graphcore.runtime.lowering.functions import custom_ops
from graphcore.runtime.lowering.functions import inline as calls
from graphcore.runtime.lowering.guards import added_zero, dequantized_matmul, empty_attention, negative_axes
from graphcore.runtime.lowering.legalisation.control_flow import carried_by
from graphcore.runtime.lowering.legalisation.legalise import legalise
from graphcore.runtime.lowering.targets.legality import BY_RESULT, CONTROL, PRIMARY, Legality, legality
from graphcore.runtime.lowering.targets.releases import OLDEST_OPSET, Runtime, default
from graphcore.support.gc_pause import uncollected
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

TARGETS: tuple[Target, ...] = ("onnx", "cpu", "cuda", "openvino")
PRECISIONS: tuple[Precision, ...] = ("exact", "fast")
LEVELS: tuple[Optimize, ...] = ("off", "exact", "all")
"""What `optimize` may be."""


_TRAPS = (added_zero, negative_axes, dequantized_matmul)
"""What the runtime takes for something else, looked for behind all other passes where an operator is a sign of it."""

_ALL_TRAPS = (*_TRAPS, empty_attention)
"""And what it fails on where primitives that ran were replaced; one's own attention is left as it is."""


def lower(
    graph: Graph,
    target: Target,
    precision: Precision = "exact",
    *,
    inline: bool = True,
    runtime: Runtime | None = None,
    optimize: Optimize = "off",
) -> Graph:
    """A graph of ONNX operators and dtypes that computes the same on `target`.

    precision: "exact" rounds after every op, "fast" leaves consecutive ones on narrow floats in float32. inline: calls
    of functions are replaced by their bodies; otherwise they stay where they can. runtime: the release of onnxruntime
    that is to run it, where it is not what files are written for; the graph is of an older opset than the runtime's
    where only that has kernels of an operator. optimize: "exact" runs the passes of
    `Graph.optimize` first; "all" looks for what runs faster in another form (`runtime/forms`), whose sums may come in
    another order, and runs the passes where there is some. Inputs and outputs keep their names and order. Raises
    `GraphError` for an op that the target has no way to run.
    """
    source = graph = exposed(graph)
    there = operators(graph)
    is_plain = not any(domain for _, domain in there)
    runtime = default(target) if runtime is None else runtime
    graph = graph if is_plain else custom_ops.resolved(graph, target, runtime)
    rules = legality(target, runtime)
    is_shaped = False
    if optimize == "exact":
        graph = graph.optimize()
    elif optimize == "all" and rules.detours and (may_have(there) or not is_plain):
        made = {op_type for form in FORMS if (form.sign, "") in there or not is_plain for op_type in form.makes}
        best = _with_kernels(rules, made)
        graph = shaped(before := graph, lambda op_type: best.allows(op_type, DType.float32))
        is_shaped = graph is not before
        there = operators(graph) if is_shaped else there
    if rules.detours:
        rules = _with_kernels(rules, {op_type for op_type, domain in there if not domain})
    # OpenVINO is given no calls with nothing in an operand.
    traps: tuple[Any, ...] = _ALL_TRAPS if is_shaped and target != "openvino" else _TRAPS
    traps = tuple(trap for trap in traps if rules.detours and rules.has_trap(trap.NAME))
    if not is_plain and calls.needed(graph):
        kept = None if inline else calls.kept(graph, lambda body: _lower(body, target, precision, rules, traps))
        graph = calls.inlined(graph) if kept is None else kept
    lowered = _lower(graph, target, precision, rules, traps, there if graph is source else None)
    return _of_opset(lowered, OPSET if target == "onnx" else rules.runtime.opset, is_new=lowered is not source)


def _of_opset(graph: Graph, opset: int, *, is_new: bool) -> Graph:
    """The graph, which says of which opset it is. is_new: it was made by lowering, and may be changed."""
    if graph._domains.get("", OPSET) == opset:
        return graph
    made = graph if is_new else pickling.copied(graph)
    made._domains[""] = opset
    return made


def _with_kernels(rules: Legality, op_types: set[str]) -> Legality:
    """The rules of the newest opset at which the runtime has kernels of these operators, as far as it has any.

    onnxruntime 1.32 has a kernel of Attention for opset 24, and none of the version for opset 25 that it knows.
    """
    runtime = rules.runtime
    if rules.target != "cpu" or not runtime.version or runtime.is_fixed:
        return rules
    lacking = [op_type for op_type in op_types if not rules.dtypes(op_type)]
    for opset in range(runtime.opset - 1, OLDEST_OPSET - 1, -1) if lacking else ():
        older = legality("cpu", replace(runtime, opset=opset))
        if any(older.dtypes(op_type) for op_type in lacking):
            return older
    return rules


def _lower(
    graph: Graph,
    target: Target,
    precision: Precision,
    rules: Legality,
    traps: tuple[Any, ...],
    there: set[tuple[str, str]] | None = None,
) -> Graph:
    """there: the operators of the graph, where they are known already."""
    there = operators(graph) if there is None else there
    if _is_legal(graph, rules, there) and not any(trap.needed(graph) for trap in _signed(traps, there)):
        return graph
    with uncollected():
        source = ambiguous.narrowed(graph) if ambiguous.needed(graph) else graph
        source = nary.balanced(source) if nary.needed(source) else source
        source = integers.carried(source) if integers.needed(source) else source
        source = float4.carried(source) if rules.detours and float4.needed(source) else source
        source = sequences.carried(source, rules) if sequences.needed(source, rules) else source
        lowered = legalise(expand(source, rules), rules, fast=precision == "fast" and rules.detours)
        there = operators(lowered)
        for trap in _signed(traps, there):
            trap.keep(lowered)
        if target == "cpu" and any(domain for _, domain in there):
            fuse_bias.fuse(lowered)
    semantic = {
        s.name: s.dtype.name for s in (*graph.inputs, *graph.outputs, *graph.weights.values()) if _is_semantic(s)
    }
    semantic.update({name: s.dtype.name for name, s in graph._outputs or () if name and _is_semantic(s)})
    if semantic:
        noted = json.loads(graph._metadata.get(notes.DTYPES, "{}"))
        lowered._metadata[notes.DTYPES] = json.dumps({**noted, **semantic})
    lowered._metadata[notes.TARGET] = target
    lowered._metadata[notes.PROMOTION] = graph.promotion.note
    return lowered


def _signed(traps: tuple[Any, ...], there: set[tuple[str, str]]) -> list[Any]:
    """Those that a graph with these operators may have."""
    names = {op_type for op_type, _ in there} if traps else ()
    return [trap for trap in traps if not trap.SIGNS.isdisjoint(names)]


def _is_semantic(symbol: Symbol) -> bool:
    return isinstance(symbol.type, TensorType) and symbol.dtype.storage is not symbol.dtype


def _is_legal(graph: Graph, rules: Legality, there: set[tuple[str, str]] | None = None) -> bool:
    """there: its operators and those of its bodies, where they are known."""
    types = {s.type for s in graph._symbols}
    dtypes = {t.dtype for t in types if isinstance(t, TensorType)}
    if sequences.holds_any(types):
        return False
    if any(dtype.storage is not dtype or (dtype is float4.FOUR and rules.detours) for dtype in dtypes):
        return False
    there = {(n.op_type, n.domain) for n in graph._nodes} if there is None else there
    if any(op in CONTROL for op, _ in there):
        if any(n.op_type in CONTROL and not n.domain and carried_by(n, rules) for n in graph._nodes):
            return False
    formed = [n for n in graph._nodes if n.op_type in FORMED] if any(op in FORMED for op, _ in there) else []
    if not all(computes(n, rules) for n in formed):
        return False
    if not all(_is_legal(body, rules) for n in graph._nodes if n.attributes for body in bodies(n)):
        return False
    as_read = bool(graph._nodes) and graph._read == len(graph._nodes)
    if not all(_keeps(rules, *operator, dtype) for operator in there for dtype in dtypes):
        # Not every operator takes every dtype that there is: which has which?
        kinds = {
            (n.op_type, n.domain, s.type if n.inputs and (s := n.inputs[0]) is not None else None, n.outputs[0].type)
            for n in graph._nodes
            if n.outputs
        }
        if not all(_kind_is_legal(rules, as_read, *kind) for kind in kinds):
            return False
    outputs = graph._outputs or []
    produced = {s.id for _, s in outputs if isinstance(s.producer, Node)}
    return len(produced) == len(outputs) and all(name is None or name == s._name for name, s in outputs)


def _kind_is_legal(
    rules: Legality, as_read: bool, op_type: str, domain: str, operand: Type | None, result: Type
) -> bool:
    # The operand that decides where it is not the first one has the result's dtype.
    decides = result if operand is None or op_type in BY_RESULT or op_type in PRIMARY else operand
    dtype = decides.dtype if isinstance(decides, TensorType) else None
    if as_read and not domain and dtype is not None and keeps_kernel(op_type, dtype, operand):
        return rules.allows(op_type, dtype)
    return _keeps(rules, op_type, domain, dtype, operand, result)


def _keeps(
    rules: Legality,
    op_type: str,
    domain: str,
    dtype: DType | None,
    operand: Type | None = None,
    result: Type | None = None,
) -> bool:
    if domain:
        is_learned = rules.detours and domain == ml_operators.DOMAIN
        return domain != LIBRARY and not (is_learned and ml_operators.replaces(op_type, operand, result))
    if rules.detours and op_type in optionals.OPERATORS:
        return False
    return op_type in CONTROL or (op_type != "Cast" and (dtype is None or rules.keeps(op_type, dtype, operand, result)))


__all__ = ["LEVELS", "PRECISIONS", "TARGETS", "lower"]
