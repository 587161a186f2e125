"""Calls with arrays of no elements that kernels refuse: nothing is given back for nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcore.arrays import big_integers
from graphcore.arrays.casting import Array
from graphcore.build.guards import GUARD
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node
from graphcore.ir.transform.rewrite import Rewrite
from graphcore.ir.transform.walk import bodies
from graphcore.runtime.calls.runtime_messages import Said
from graphcore.types.tensor_types import TensorType, Type

_WRONG_SIZE = re.compile(r" got -\d+\s*$")
"""The end of the runtime's message where a size is not the one that `ops.rebind` states."""
_MISTAKES = ("is outside of", "was stated")
"""Messages about feeds that are wrong with no elements as well."""


def is_of_nothing(error: Exception, feed: Mapping[str, Any]) -> bool:
    """Return whether a run may have failed since an array has no elements."""
    if not any(isinstance(array, np.ndarray) and not array.size for array in feed.values()):
        return False
    text = str(error)
    if GUARD in text and _WRONG_SIZE.search(text):
        return False
    why = Said.of(text).why
    return not any(mistake in why for mistake in _MISTAKES)


def nothing(outputs: Mapping[str, Type], sizes: Mapping[str, int]) -> list[Array] | None:
    """Return the results of a call whose results have no elements; None where some may have."""
    made = []
    for type_ in outputs.values():
        shape = _shape(type_, sizes)
        if shape is None or 0 not in shape:
            return None
        assert isinstance(type_, TensorType)
        if type_.dtype.is_complex:
            made.append(np.zeros(shape, type_.dtype.numpy))
            continue
        made.append(np.zeros((*shape, *big_integers.carried_axis(type_.dtype)), type_.dtype.storage.numpy))
    return made


def emptied(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return a graph that runs for these sizes of dims, in which no kernel makes what has no elements.

    Attention over no keys gives zeros, as a product of no terms does; what a Reshape gives has the shape of its type,
    since -1 says nothing of a tensor without elements.
    """
    return _emptied(graph, sizes, None)


def _emptied(graph: Graph, sizes: Mapping[str, int], outer: Rewrite | None) -> Graph:
    rewrite = Rewrite(graph, outer=outer)
    build = rewrite.new.build
    for node, inputs in rewrite.nodes():
        shapes = [_shape(s.type, sizes) for s in node.outputs]
        known = [shape for shape in shapes if shape is not None]
        has_all = len(known) == len(shapes) and not bodies(node)
        if has_all and (all(0 in shape for shape in known) or _is_attention_of_nothing(node, sizes)):
            pairs = zip(node.outputs, known, strict=True)
            rewrite.replace(node, [build.constant(np.zeros(n, s.dtype.numpy), s.dtype) for s, n in pairs])
        elif has_all and node.op_type == "Reshape" and not node.domain:
            (result,) = node.outputs
            target = build.vector(known[0])
            rewrite.replace(node, [build.emit("Reshape", (inputs[0], target), result.type, {"allowzero": 1})])
        else:
            rewrite.keep(node, inputs, lambda body: _emptied(body, sizes, rewrite))
    return rewrite.finish()


def _is_attention_of_nothing(node: Node, sizes: Mapping[str, int]) -> bool:
    """Return whether a node is attention without a past, of no queries or no keys."""
    if node.op_type != "Attention" or node.domain or len(node.outputs) != 1 or any(node.inputs[4:6]):
        return False
    shapes = [_shape(s.type, sizes) for s in node.inputs[:2] if s is not None]
    return any(shape is not None and 0 in shape for shape in shapes)


def _shape(type_: Type, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the shape of a type as numbers; None where only the run knows it."""
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return None
    if not all(not dim.is_dynamic and dim.parameters <= sizes.keys() for dim in type_.shape):
        return None
    try:
        shape = tuple(dim.evaluate(sizes) for dim in type_.shape)
    except ZeroDivisionError:
        return None
    return shape if all(size >= 0 for size in shape) else None
