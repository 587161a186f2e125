"""Folding preprocessing into the first products of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.surgery.copying import finish, replica
from graphcore.surgery.folding.products import FOLDED_INTO, PRODUCTS, Fold, Readers, Unfoldable, fold_into, reasons
from graphcore.surgery.replay import Replay, reads
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, Type, tensor_type

_WHAT = "fold_preprocessing"


def fold_preprocessing(graph: Graph) -> Graph:
    """Return a graph whose first products do the affine steps before them. See `Graph.fold_preprocessing`."""
    graph.verify()
    readers = _readers(graph)
    folds: list[Fold] = []
    unfolded: list[tuple[Node, str]] = []
    for node in _first_products(graph):
        try:
            folds.append(fold_into(node, readers))
        except Unfoldable as error:
            unfolded.append((node, str(error)))
    if not folds:
        why = reasons(unfolded) or f"no {', '.join(sorted(FOLDED_INTO))} comes after an input"
        raise GraphError(
            f"{_WHAT}: nothing is folded: {why}",
            help="graph.optimize() first makes constants of what is computed from constants alone; products in bodies "
            "and functions are not looked at",
        )
    return _folded(graph, folds, readers)


def _readers(graph: Graph) -> Readers:
    """Return what reads each Symbol, None for outputs, buffers, what is watched, and bodies."""
    found: dict[int, list[Node | None]] = {}
    for node in graph.nodes:
        own = [s.id for s in node.inputs if s is not None]
        for number in dict.fromkeys(own):
            found.setdefault(number, []).append(node)
        for symbol in reads(node)[len(own) :]:
            found.setdefault(symbol.id, []).append(None)
    ends = [*graph.outputs, *graph.watched.values(), *(held.value for held in graph.buffers.values())]
    for symbol in ends:
        if symbol.graph is graph:
            found.setdefault(symbol.id, []).append(None)
    return found


def _first_products(graph: Graph) -> list[Node]:
    """Return the products that no other product comes before."""
    later: set[int] = set()
    found = []
    for node in graph.nodes:
        is_later = any(s.id in later for s in reads(node))
        if node.op_type in FOLDED_INTO and not node.domain and not is_later:
            found.append(node)
        if is_later or node.op_type in PRODUCTS:
            later.update(s.id for s in node.outputs)
    return found


def _folded(graph: Graph, folds: Sequence[Fold], readers: Readers) -> Graph:
    replay = replica(graph, _WHAT)
    dropped = {number: position for fold in folds for number, position in fold.chain.dropped.items()}

    def operand_of(node: Node) -> Sequence[Symbol] | None:
        """Return the operand that stands for the results of a node that is folded."""
        if id(node) not in dropped:
            return None
        operand = node.inputs[dropped[id(node)]]
        assert operand is not None
        return [replay.of(operand)] * len(node.outputs)

    replay.in_place_of = operand_of
    products = {id(fold.node): fold for fold in folds}
    constants: dict[tuple[int, int], Symbol] = {}
    for fold in folds:
        for node, position, array in fold.constants():
            constants[id(node), position] = _constant(replay, node, position, array, readers)

    def instead(node: Node, inputs: tuple[Symbol | None, ...]) -> Sequence[Symbol] | None:
        own = {position: s for (number, position), s in constants.items() if number == id(node)}
        if not own:
            return None
        made = [own.get(position, s) for position, s in enumerate(inputs)]
        fold = products.get(id(node))
        if fold is not None and fold.before is not None:
            data = made[fold.operand]
            assert data is not None
            made[fold.operand] = _sum(replay, node, data, fold.before)
        types = replay.results(node, made)
        if fold is None:
            return replay.append(node, made, types, node.attributes)
        if fold.bias is not None:
            made[2:] = [own[2]]
        return _product(replay, fold, made, types)

    replay.instead = instead
    return finish(replay)


def _product(replay: Replay, fold: Fold, inputs: Sequence[Symbol | None], types: Sequence[Type]) -> Sequence[Symbol]:
    node, attributes = fold.node, dict(fold.attributes)
    if fold.after is None or fold.add is not None:
        return replay.append(node, inputs, types, attributes)
    build = replay.new.build
    (result,) = build.append(node.op_type, tuple(inputs), types, attributes, node.domain, node.layer, node.origin)
    return [_sum(replay, node, result, fold.after, replay.free_name(node.outputs[0].given_name, replay.new))]


def _sum(replay: Replay, node: Node, symbol: Symbol, array: npt.NDArray[Any], name: str | None = None) -> Symbol:
    """Return the sum of a value and a constant that broadcasts to it, made where a node is."""
    build = replay.new.build
    other = build.symbol(_type_of(array), Constant(array, False, node.origin))
    (made,) = build.append("Add", (symbol, other), [symbol.type], {}, "", node.layer, node.origin, [name])
    return made


def _constant(replay: Replay, node: Node, position: int, array: npt.NDArray[Any], readers: Readers) -> Symbol:
    """Return a constant in place of an operand. It stands for the old one where nothing else reads that."""
    old = node.inputs[position] if position < len(node.inputs) else None
    name = None if old is None else old.given_name
    is_weight = old is not None and isinstance(old.producer, Constant) and old.producer.is_weight
    is_only = old is not None and readers.get(old.id, []) == [node] and sum(s is old for s in node.inputs) == 1
    if name is not None:
        name = replay.free_name(name if is_only else f"{name}_folded", replay.new, numbered=True)
    made = replay.new.build.symbol(_type_of(array), Constant(array, is_weight, node.origin), name)
    if old is not None and is_only:
        replay.bind(old, made)
    return made


def _type_of(array: npt.NDArray[Any]) -> Type:
    return tensor_type(DType.of(array.dtype), Shape(array.shape))
