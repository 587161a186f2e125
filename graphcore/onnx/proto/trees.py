"""Checks of the trees of `ai.onnx.ml`: kernels follow them from a root until they meet a leaf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from graphcore.arrays.casting import Array
from graphcore.errors import ModelError, ResourceLimitError

OPERATORS = frozenset({"TreeEnsembleClassifier", "TreeEnsembleRegressor"})
DEEPEST = 4096
"""The greatest depth of a tree, whose nodes the runtime puts in order by a function that calls itself."""

_LEAF = b"LEAF"
_TEXTS = ("classlabels_strings",)
_COUNTED = frozenset(
    """class_ids class_nodeids class_treeids target_ids target_nodeids target_treeids nodes_featureids
    nodes_nodeids nodes_treeids""".split()
)
_WAYS = frozenset({"nodes_falsenodeids", "nodes_truenodeids"})
_NAMES = _WAYS | {"nodes_modes", "nodes_nodeids", "nodes_treeids"}


def check_trees(attributes: Sequence[onnx.AttributeProto], place: object) -> None:
    """Raise `ModelError` for numbers of nodes that are none, and for trees in which a way leads from a node back to it,
    which a kernel would never leave."""
    said: Mapping[str, Any] = {a.name: a for a in attributes}
    _check_labels(said, place)
    lists = {name: np.array(said[name].ints, np.int64) for name in (_COUNTED | _WAYS) & said.keys()}
    for name in _COUNTED & lists.keys():
        if not _are_numbers(lists[name]):
            raise ModelError(f"load: {place}: {name} is beyond 0 to 2^31 - 1", help="write the model again")
    if not said.keys() >= _NAMES:
        return
    modes = said["nodes_modes"].strings
    goes_on = np.fromiter(map(_LEAF.__ne__, modes), bool, len(modes))
    numbered = (lists[f"nodes_{of}ids"] for of in ("tree", "node", "truenode", "falsenode"))
    columns = goes_on, *numbered
    count = min(map(len, columns))
    goes_on, trees, ids, *after = (column[:count] for column in columns)
    if not all(_are_numbers(numbers[goes_on]) for numbers in after):  # kernels read 32 bits of them
        raise ModelError(f"load: {place}: its trees have nodes beyond 0 to 2^31 - 1", help="write the model again")
    depth = _depth(trees << 32 | ids, [np.where(goes_on, trees << 32 | numbers, -1) for numbers in after])
    if depth is None:
        raise ModelError(f"load: {place}: its trees have a circle", help="write the model again")
    if depth > DEEPEST:
        raise ResourceLimitError(
            f"load: {place}: its trees are more than {DEEPEST} nodes deep",
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


def _are_numbers(numbers: Array) -> bool:
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() < 1 << 31)


def _depth(nodes: Array, after: Sequence[Array]) -> int | None:
    """Return the number of nodes on the longest way; None where one leads from a node back to it.

    nodes: their numbers. after: the numbers of those that each leads to. One beyond `DEEPEST` is not measured further.
    """
    order = np.argsort(nodes, kind="stable")
    known = nodes[order]
    is_last = np.append(known[1:] != known[:-1], np.ones(min(1, known.size), bool))
    order, known = order[is_last], known[is_last]  # of nodes with one number, kernels that take them keep one
    columns = []
    for numbers in after:
        wanted = numbers[order]
        place = np.minimum(np.searchsorted(known, wanted), known.size - 1)
        columns.append(np.where(known[place] == wanted, place, -1))
    ways = np.stack(columns, 1)
    waiting = np.bincount(ways[ways >= 0], minlength=known.size)
    free, seen, depth = np.flatnonzero(waiting == 0), 0, 0
    place_in = np.empty_like(waiting)
    while free.size and depth <= DEEPEST:
        seen, depth = seen + free.size, depth + 1
        below = ways[free].ravel()
        below = below[below >= 0]
        np.subtract.at(waiting, below, 1)
        free = below[waiting[below] == 0]
        places = np.arange(free.size)
        place_in[free] = places
        free = free[place_in[free] == places]  # each once, in less time than by np.unique
    return depth if seen == known.size or depth > DEEPEST else None
