"""Checks of the trees of `ai.onnx.ml`: kernels follow them from a root until they meet a leaf."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import onnx

from graphcore.errors import ModelError

OPERATORS = frozenset({"TreeEnsembleClassifier", "TreeEnsembleRegressor"})
_LEAF = b"LEAF"


def check_trees(attributes: Sequence[onnx.AttributeProto], place: object) -> None:
    """Raise `ModelError` for numbers of nodes that are none, and for trees in which a way leads from a node back to it,
    which a kernel would never leave."""
    said: Mapping[str, Any] = {a.name: a for a in attributes if a.name.startswith("nodes_")}
    if not said.keys() >= _NAMES:
        return
    modes = said["nodes_modes"].strings
    ids, when_true, when_false = (list(said[f"nodes_{of}nodeids"].ints) for of in ("", "true", "false"))
    goes_on = [*map(_LEAF.__ne__, modes)]  # there are thousands of nodes: nothing here is a loop of Python
    own, first, second = ([*compress(numbers, goes_on)] for numbers in (ids, when_true, when_false))
    numbers = own, first, second
    if own and not (min(map(min, numbers)) >= 0 and max(map(max, numbers)) < 1 << 31):  # kernels read 32 bits of them
        raise ModelError(f"load: {place}: its trees have nodes beyond 0 to 2^31 - 1", help="write the model again")
    if all(map(operator.lt, own, first)) and all(map(operator.lt, own, second)):
        return
    trees = said["nodes_treeids"].ints
    ways = {
        (tree, i): () if mode == _LEAF else ((tree, t), (tree, f))
        for tree, i, t, f, mode in zip(trees, ids, when_true, when_false, modes, strict=False)
    }
    if _has_circle(ways):
        raise ModelError(f"load: {place}: its trees have a circle", help="write the model again")


def _has_circle(ways: Mapping[Any, Sequence[Any]]) -> bool:
    waiting = dict.fromkeys(ways, 0)
    for after in ways.values():
        for node in after:
            if node in waiting:
                waiting[node] += 1
    free = [node for node, count in waiting.items() if not count]
    seen = 0
    while free:
        seen += 1
        for node in ways[free.pop()]:
            if node in waiting:
                waiting[node] -= 1
                if not waiting[node]:
                    free.append(node)
    return seen < len(ways)


_NAMES = frozenset({"nodes_treeids", "nodes_nodeids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_modes"})

__all__ = ["OPERATORS", "check_trees"]
