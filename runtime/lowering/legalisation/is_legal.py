"""Tell whether a graph is legal as it stands, from a summary of it: then lowering returns it unchanged."""

from __future__ import annotations

from graphcore.build.declare import LIBRARY
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node
from graphcore.runtime.lowering.decompositions import keeps_half, keeps_kernel, ml_operators, strings
from graphcore.runtime.lowering.dtypes import sequences
from graphcore.runtime.lowering.dtypes.float4 import FOUR
from graphcore.runtime.lowering.expansion.expand import PARTIAL_KERNELS, computes
from graphcore.runtime.lowering.legalisation.control_flow import has_detour, stored_as
from graphcore.runtime.lowering.legalisation.select import keeps
from graphcore.runtime.lowering.summary import Summary, kinds_of
from graphcore.runtime.lowering.targets.legality import BY_RESULT, CONTROL, PRIMARY, Legality
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type


def is_legal(has: Summary, rules: Legality, *, keeps_halves: bool = False) -> bool:
    """Return whether a target runs a graph and its bodies as they are. Raises `GraphError` as `stored_as` does.

    keeps_halves: whether nodes of models that others wrote keep the runtime's kernels of float16 and bfloat16.
    """
    if sequences.are_held(has):
        return False
    if rules.decomposes and has.is_marked:
        return False
    dtypes = has.dtypes
    if any(dtype.storage is not dtype or (dtype is FOUR and rules.decomposes) for dtype in dtypes):
        return False
    if not has.op_types.isdisjoint(CONTROL) and any(
        node.op_type in CONTROL and not node.domain and (stored_as(node, rules) or _has_detour(node, rules))
        for part in has.parts
        for node in part.nodes
    ):
        return False
    if not has.op_types.isdisjoint(PARTIAL_KERNELS) and not all(
        computes(node, rules) for part in has.parts for node in part.nodes if node.op_type in PARTIAL_KERNELS
    ):
        return False
    if not all(_keeps(rules, *operator, dtype) for operator in has.operators for dtype in dtypes):
        # Not every operator takes every dtype that there is: which has which?
        if not all(_is_legal_by_kind(part, rules, keeps_halves=keeps_halves) for part in has.parts):
            return False
    return all(map(_has_own_outputs, has.parts))


def _has_detour(node: Node, rules: Legality) -> bool:
    inputs = [None if s is None else s.type for s in node.inputs]
    return has_detour(rules, node.op_type, node.attributes, inputs, [s.type for s in node.outputs])


def _is_legal_by_kind(graph: Graph, rules: Legality, *, keeps_halves: bool) -> bool:
    as_read = all(type(node.origin) is Imported for node in graph.nodes)
    halves = as_read and keeps_halves
    return all(_kind_is_legal(rules, as_read, halves, *kind) for kind in kinds_of(graph))


def _has_own_outputs(graph: Graph) -> bool:
    """Return whether every output is a node's result of its own, under the output's name."""
    outputs = graph.named_outputs or []
    produced = {s.id for _, s in outputs if isinstance(s.producer, Node)}
    return len(produced) == len(outputs) and all(name is None or name == s.given_name for name, s in outputs)


def _kind_is_legal(
    rules: Legality, as_read: bool, halves: bool, op_type: str, domain: str, operand: Type | None, result: Type
) -> bool:
    # The operand that decides where it is not the first one has the result's dtype.
    decides = result if operand is None or op_type in BY_RESULT or op_type in PRIMARY else operand
    dtype = decides.dtype if isinstance(decides, TensorType) else None
    if as_read and not domain and dtype is not None and keeps_kernel(op_type, dtype, operand):
        return rules.allows(op_type, dtype)
    if halves and not domain and dtype is not None and op_type != "Cast":
        if keeps_half(rules, op_type, dtype, operand, result):
            return True
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
        is_of_models = rules.decomposes and domain == ml_operators.DOMAIN
        return domain != LIBRARY and not (is_of_models and ml_operators.replaces(op_type, operand, result))
    if rules.decomposes and op_type in strings.OPERATORS:
        return False
    return op_type in CONTROL or (
        op_type != "Cast" and (dtype is None or keeps(rules, op_type, dtype, operand, result))
    )
