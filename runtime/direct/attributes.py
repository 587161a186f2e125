"""The attributes of a node in a model that is scanned: what kernels were tried with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import onnx

from graphcore.errors import GraphcoreError
from graphcore.onnx.proto.limits import AXES, CHOICES, RANGES, check_values
from graphcore.onnx.proto.ranges import MOST_AXES

LIMITED = frozenset({*RANGES, *AXES, *(op for op, _ in CHOICES), "Transpose"})
"""Operators whose attributes `is_plain` looks at."""

_AXES = frozenset({"axis", "axes", "batch_axis", "time_axis"})
_KINDS = onnx.AttributeProto

_LARGEST_SAID = 1 << 24
"""The largest window, group or count that an attribute may say."""


def is_plain(node: onnx.NodeProto) -> bool:
    """Return whether the attributes of a node say numbers and words that kernels were tried with."""
    said: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return False
        kind, name = attribute.type, attribute.name
        if kind == _KINDS.INT:
            said[name] = attribute.i
        elif kind == _KINDS.INTS:
            said[name] = list(attribute.ints)
        elif kind == _KINDS.STRING:
            said[name] = attribute.s
    try:
        check_values(node.op_type, said, node.op_type)
    except GraphcoreError:
        return False
    if node.op_type in RANGES and any(abs(n) > _LARGEST_SAID for n in _numbers(said.values())):
        return False
    for name in _AXES & said.keys():
        axes = said[name] if isinstance(said[name], list) else [said[name]]
        if not all(isinstance(axis, int) and abs(axis) < MOST_AXES for axis in axes):
            return False
    perm = said.get("perm")
    return perm is None or (isinstance(perm, list) and sorted(perm) == [*range(len(perm))])


def _numbers(said: Iterable[Any]) -> Iterator[int]:
    """Yield the integers among the values of attributes."""
    for value in said:
        if isinstance(value, int):
            yield value
        elif isinstance(value, list):
            yield from value


__all__ = ["LIMITED", "MOST_AXES", "is_plain"]
