"""The casts of a graph and their reasons: the op that needs each, the promotion system, and its row or rule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphcore.build.declare import MEANINGS, REGISTRY
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform import walk
from graphcore.ir.transform.walk import parts
from graphcore.promotion import PromotionSystem
from graphcore.promotion.explanations import explain
from graphcore.support.source_lines import Imported, Line, Loaded, cause_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_WRITTEN = re.compile(r"\b(?:cast|astype)\b")
"""Explicit casts in a user's source line."""

Readers: TypeAlias = "Mapping[int, list[Node]]"
"""The nodes of a graph that read each Symbol, by its number."""


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast and its reason.

    Attributes:
        node: The Cast.
        name: The name of its result.
        source: The dtype of its operand.
        result: The dtype of its result.
        implicit: True if promotion inserted it.
        op: The op whose operand was cast, "" if it is unknown.
        pair: The operands of that op, as dtypes or Python numbers; None if there are not two or they are unknown.
        words: The reason.
        system: The promotion system.
        line: The user's source line, or None.
    """

    node: Node
    name: str
    source: str
    result: str
    implicit: bool
    op: str
    pair: tuple[str, str] | None
    words: str
    system: str
    line: Line | None


def casts(graph: Graph) -> list[Cast]:
    """Return the casts of a graph, its bodies and its functions in order, with their reasons.

    Graphs record why promotion inserted a cast, even if passes rewrote them. Files do not: the reason of a Cast in a
    file is whether promotion would insert the same one.
    """
    return [cast for part in parts(graph) for cast in casts_of(part)]


def casts_of(graph: Graph) -> Iterator[Cast]:
    """Yield the casts among a graph's own nodes."""
    readers: dict[int, list[Node]] | None = None
    for node in graph.nodes:
        if node.op_type == "Cast" and not node.domain and node.inputs and node.inputs[0] is not None:
            if readers is None:
                readers = walk.readers(graph)
            yield _reason(graph, node, node.inputs[0], readers)


def _reason(graph: Graph, node: Node, operand: Symbol, readers: Readers) -> Cast:
    result = node.outputs[0]
    system = str(graph.promotion)
    source, target = _type_name(operand.type), _type_name(result.type)
    cause = cause_of(node.origin)
    implicit = cause is not None or result.id in graph.memory.implicit
    if cause:
        op, pair, words = _explain_cause(graph.promotion, operand, result, cause)
    elif implicit:
        op, pair, words = "", None, _without_cause(graph.promotion, result)
    elif node.line is not None and not isinstance(node.line, (Imported, Loaded)):
        verb = "written" if _WRITTEN.search(node.line.text) else "inserted by the op"
        op, pair, words = "", None, f"{verb} at {node.line}"
    else:
        op, pair, words = _explain_file_cast(graph.promotion, operand, result, readers)
    return Cast(node, result.name, source, target, implicit, op, pair, words, system, node.line)


def _type_name(type_: object) -> str:
    if not isinstance(type_, TensorType):
        return str(type_)
    return f"{type_.dtype.name}?" if type_.ambiguous else type_.dtype.name


def _without_cause(system: PromotionSystem, result: Symbol) -> str:
    if isinstance(result.type, TensorType) and result.type.dtype is system.index_dtype:
        return f"indices and counts are {system.index_dtype} in {system}"
    return "the operator takes its operand in this dtype"


def _explain_cause(
    system: PromotionSystem, operand: Symbol, result: Symbol, cause: tuple[Any, ...]
) -> tuple[str, tuple[str, str] | None, str]:
    """Return the op, the pair and the reason for a recorded cause."""
    op, *kinds = cause
    names = [_type_name(kind) if isinstance(kind, TensorType) else repr(kind[1]) for kind in kinds]
    pair = (names[0], names[1]) if len(names) == 2 else None
    declared = REGISTRY.get(op)
    rule = f"`{op}`: {MEANINGS[declared.rule]}" if declared is not None else f"`{op}`"
    target = _type_name(result.type)
    if _type_name(operand.type) not in names:
        return op, pair, f"{rule}; in {system} that result is {target}"
    if pair is not None and all(isinstance(kind, TensorType) for kind in kinds):
        reason = _promotion_reason(system, pair, result)
        if reason:
            return op, pair, f"{' and '.join(pair)} meet in {target}: {reason} ({rule})"
    names.remove(_type_name(operand.type))
    with_ = f" with {' and '.join(names)}" if names else ""
    return op, pair, f"{_type_name(operand.type)}{with_} is computed in {target} ({rule})"


def _promotion_reason(system: PromotionSystem, pair: tuple[str, str], result: Symbol) -> str:
    """Return the path, row or rule by which a system promotes two dtypes to that of a result, or ""."""
    try:
        answer = explain(*pair, system)
    except GraphcoreError:  # users' systems may not support dtypes alone
        return ""
    is_same = isinstance(result.type, TensorType) and answer.dtype is result.type.dtype
    return answer.reason if is_same else ""


def _explain_file_cast(
    system: PromotionSystem, operand: Symbol, result: Symbol, readers: Readers
) -> tuple[str, tuple[str, str] | None, str]:
    """Return the op, the pair and the reason for a cast in a file: whether promotion would insert it for a reader."""
    source = _type_name(operand.type)
    for reader in readers.get(result.id, ()):
        for other in reader.inputs:
            if other is None or other is result or _dtype(other) is None or _dtype(other) is not _dtype(result):
                continue
            before = _source_dtype(other)
            if reason := _promotion_reason(system, (source, before), result):
                words = f"a Cast of the file; {system} inserts the same for `{reader.op_type}`: {reason}"
                return reader.op_type, (source, before), words
    return "", None, "a Cast of the file"


def _dtype(symbol: Symbol | None) -> DType | None:
    return symbol.type.dtype if symbol is not None and isinstance(symbol.type, TensorType) else None


def _source_dtype(symbol: Symbol) -> str:
    """Return the dtype of an operand before its own cast, if it has one."""
    producer = symbol.producer
    if isinstance(producer, Node) and producer.op_type == "Cast" and not producer.domain:
        (operand, *_) = producer.inputs
        if operand is not None:
            return _type_name(operand.type)
    return _type_name(symbol.type)
