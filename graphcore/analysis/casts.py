"""The casts of a graph and their reasons: which op wanted each, by which promotion system, by which row or rule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphcore.build.declare import MEANINGS, REGISTRY
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import parts
from graphcore.promotion import PromotionSystem
from graphcore.promotion.explanations import explain
from graphcore.support.source_lines import Imported, Line, Loaded, cause_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_WRITTEN = re.compile(r"\b(?:cast|astype)\b")
"""Calls that a user writes to cast."""

Readers: TypeAlias = "Mapping[int, list[Node]]"
"""The nodes of a graph that read each Symbol, by its number."""


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast and its reason.

    node: the Cast; name: of its result. source, result: the dtypes. implicit: promotion inserted it. op: the op whose
    operand was cast, "" where that is not known. pair: the operands that met there, as dtypes or Python numbers; None
    where there were not two, or where that is not known. words: the reason. system: the promotion system. line: the
    user's line, None where there is none.
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
    """Return the casts of a graph, of its bodies and of the functions that it calls, in order, with their reasons.

    Graphs remember why promotion inserted a cast, also where passes rewrote them. A file does not: of a Cast in it the
    reason says whether promotion would insert the same.
    """
    return [cast for part in parts(graph) for cast in casts_of(part)]


def casts_of(graph: Graph) -> Iterator[Cast]:
    """Yield the casts among a graph's own nodes."""
    readers: dict[int, list[Node]] | None = None
    for node in graph.nodes:
        if node.op_type == "Cast" and not node.domain and node.inputs and node.inputs[0] is not None:
            if readers is None:
                readers = _readers(graph)
            yield _reason(graph, node, node.inputs[0], readers)


def _readers(graph: Graph) -> dict[int, list[Node]]:
    readers: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for symbol in node.inputs:
            if symbol is not None:
                readers.setdefault(symbol.id, []).append(node)
    return readers


def _reason(graph: Graph, node: Node, operand: Symbol, readers: Readers) -> Cast:
    result = node.outputs[0]
    system = str(graph.promotion)
    source, target = _shown(operand.type), _shown(result.type)
    cause = cause_of(node.origin)
    implicit = cause is not None or result.id in graph.memory.implicit
    if cause:
        op, pair, words = _caused(graph.promotion, operand, result, cause)
    elif implicit:
        op, pair, words = "", None, _without_cause(graph.promotion, result)
    elif node.line is not None and not isinstance(node.line, (Imported, Loaded)):
        verb = "written" if _WRITTEN.search(node.line.text) else "made by the op"
        op, pair, words = "", None, f"{verb} at {node.line}"
    else:
        op, pair, words = _likely(graph.promotion, operand, result, readers)
    return Cast(node, result.name, source, target, implicit, op, pair, words, system, node.line)


def _shown(type_: object) -> str:
    if not isinstance(type_, TensorType):
        return str(type_)
    return f"{type_.dtype.name}?" if type_.ambiguous else type_.dtype.name


def _without_cause(system: PromotionSystem, result: Symbol) -> str:
    if isinstance(result.type, TensorType) and result.type.dtype is system.index_dtype:
        return f"indices and counts are {system.index_dtype} in {system}"
    return "the operator takes its operand in this dtype"


def _caused(
    system: PromotionSystem, operand: Symbol, result: Symbol, cause: tuple[Any, ...]
) -> tuple[str, tuple[str, str] | None, str]:
    """Return the op, the pair and the words for a cause."""
    op, *kinds = cause
    names = [_shown(kind) if isinstance(kind, TensorType) else repr(kind[1]) for kind in kinds]
    pair = (names[0], names[1]) if len(names) == 2 else None
    declared = REGISTRY.get(op)
    rule = f"`{op}`: {MEANINGS[declared.rule]}" if declared is not None else f"`{op}`"
    target = _shown(result.type)
    if _shown(operand.type) not in names:
        return op, pair, f"{rule}; in {system} that result is {target}"
    if pair is not None and all(isinstance(kind, TensorType) for kind in kinds):
        reason = _met(system, pair, result)
        if reason:
            return op, pair, f"{' and '.join(pair)} meet in {target}: {reason} ({rule})"
    with_ = f" with {' and '.join(_others(names, _shown(operand.type)))}" if len(names) > 1 else ""
    return op, pair, f"{_shown(operand.type)}{with_} is computed in {target} ({rule})"


def _others(names: list[str], name: str) -> list[str]:
    others = list(names)
    others.remove(name)
    return others


def _met(system: PromotionSystem, pair: tuple[str, str], result: Symbol) -> str:
    """Return the path, row or rule by which a system has two dtypes meet in that of a result, "" where it has not."""
    try:
        answer = explain(*pair, system)
    except GraphcoreError:  # a system of the user's own need not answer for dtypes alone
        return ""
    is_same = isinstance(result.type, TensorType) and answer.dtype is result.type.dtype
    return answer.reason if is_same else ""


def _likely(
    system: PromotionSystem, operand: Symbol, result: Symbol, readers: Readers
) -> tuple[str, tuple[str, str] | None, str]:
    """Return what is known of a cast in a file: whether promotion would insert it for an operand of its readers."""
    source = _shown(operand.type)
    for reader in readers.get(result.id, ()):
        for other in reader.inputs:
            if other is None or other is result or _dtype(other) is None or _dtype(other) is not _dtype(result):
                continue
            before = _before(other)
            if reason := _met(system, (source, before), result):
                words = f"a Cast of the file; {system} has the same for `{reader.op_type}`: {reason}"
                return reader.op_type, (source, before), words
    return "", None, "a Cast of the file"


def _dtype(symbol: Symbol | None) -> DType | None:
    return symbol.type.dtype if symbol is not None and isinstance(symbol.type, TensorType) else None


def _before(symbol: Symbol) -> str:
    """Return the dtype of an operand, of one that was cast too the dtype before."""
    producer = symbol.producer
    if isinstance(producer, Node) and producer.op_type == "Cast" and not producer.domain:
        (operand, *_) = producer.inputs
        if operand is not None:
            return _shown(operand.type)
    return _shown(symbol.type)


__all__ = ["Cast", "casts", "casts_of"]
