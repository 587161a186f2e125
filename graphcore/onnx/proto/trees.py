"""Checks of the trees of `ai.onnx.ml`: kernels follow them from a root until they meet a leaf."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import onnx

from graphcore.errors import ModelError, ResourceLimitError

OPERATORS = frozenset({"TreeEnsembleClassifier", "TreeEnsembleRegressor"})
DEEPEST = 4096
"""The greatest depth of a tree, whose nodes the runtime puts in order by a function that calls itself."""

_LEAF = b"LEAF"
_TEXTS = ("classlabels_strings",)
_COUNTED = frozenset(
    """class_ids class_nodeids class_treeids target_ids target_nodeids target_treeids nodes_featureids
    nodes_treeids""".split()
)


def check_trees(attributes: Sequence[onnx.AttributeProto], place: object) -> None:
    """Raise `ModelError` for numbers of nodes that are none, and for trees in which a way leads from a node back to it,
    which a kernel would never leave."""
    said: Mapping[str, Any] = {a.name: a for a in attributes}
    _check_labels(said, place)
    for name in _COUNTED & said.keys():
        numbers = said[name].ints
        if numbers and not 0 <= min(numbers) <= max(numbers) < 1 << 31:
            raise ModelError(f"load: {place}: {name} is beyond 0 to 2^31 - 1", help="write the model again")
    if not said.keys() >= _NAMES:
        return
    modes = said["nodes_modes"].strings
    ids, when_true, when_false = (list(said[f"nodes_{of}nodeids"].ints) for of in ("", "true", "false"))
    goes_on = [*map(_LEAF.__ne__, modes)]  # there are thousands of nodes: nothing here is a loop of Python
    own, first, second = ([*compress(numbers, goes_on)] for numbers in (ids, when_true, when_false))
    numbers = own, first, second
    if own and not (min(map(min, numbers)) >= 0 and max(map(max, numbers)) < 1 << 31):  # kernels read 32 bits of them
        raise ModelError(f"load: {place}: its trees have nodes beyond 0 to 2^31 - 1", help="write the model again")
    if len(own) < DEEPEST and all(map(operator.lt, own, first)) and all(map(operator.lt, own, second)):
        return
    trees = said["nodes_treeids"].ints
    ways = {
        (tree, i): () if mode == _LEAF else ((tree, t), (tree, f))
        for tree, i, t, f, mode in zip(trees, ids, when_true, when_false, modes, strict=False)
    }
    depth = _depth(ways)
    if depth is None:
        raise ModelError(f"load: {place}: its trees have a circle", help="write the model again")
    if depth > DEEPEST:
        raise ResourceLimitError(
            f"load: {place}: its trees are {depth} nodes deep, and {DEEPEST} are the most",
            help="limit the depth of the trees when they are trained",
        )


def _check_labels(said: Mapping[str, Any], place: object) -> None:
    """Raise `ModelError` for labels of two kinds, and for one string alone, where kernels read a second one."""
    labels = [*(said[name].strings for name in _TEXTS if name in said)]
    numbers = [*(said[name].ints for name in ("classlabels_int64s",) if name in said)]
    if any(labels) and any(numbers):
        raise ModelError(f"load: {place}: its labels are strings and integers", help="give labels of one kind")
    if any(len(found) == 1 for found in labels):
        raise ModelError(f"load: {place}: it has one label, a string", help="give a label for each class")


def _depth(ways: Mapping[Any, Sequence[Any]]) -> int | None:
    """Return the number of nodes on the longest way; None where one leads from a node back to it."""
    waiting = dict.fromkeys(ways, 0)
    for after in ways.values():
        for node in after:
            if node in waiting:
                waiting[node] += 1
    free = [node for node, count in waiting.items() if not count]
    depths = dict.fromkeys(free, 1)
    seen = 0
    while free:
        seen += 1
        above = free.pop()
        depth = depths[above] + 1
        for node in ways[above]:
            if node in waiting:
                depths[node] = max(depth, depths.get(node, 0))
                waiting[node] -= 1
                if not waiting[node]:
                    free.append(node)
    return None if seen < len(ways) else max(depths.values(), default=0)


_NAMES = frozenset({"nodes_treeids", "nodes_nodeids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_modes"})

__all__ = ["OPERATORS", "check_trees"]
