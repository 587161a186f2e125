"""Value numbering for common subexpression elimination: the keys of equal nodes and constants."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.match import COMMUTATIVE
from graphcore.operators import Trait, having
from graphcore.types.dtypes import DType

Key: TypeAlias = "tuple[Hashable, ...]"

DOMAINS = frozenset({"", "ai.onnx.ml", "graphcore"})
"""Domains whose operators are pure; what others do is not known."""

RANDOM = having(Trait.RANDOM)
"""Operators that are not deterministic. Two of them are two draws even where a seed is given."""

_IN_ANY_ORDER = COMMUTATIVE - {"Max", "Min"}
"""Operators of two operands that may change places. Max(0.0, -0.0) and Max(-0.0, 0.0) are different zeros."""

_LARGEST = 1 << 12  # bytes of constants and attributes that are compared


class Merger:
    """The available nodes of one new graph, by what they compute."""

    def __init__(self) -> None:
        self._nodes: dict[Key, Node] = {}

    def key(self, node: Node, inputs: tuple[Symbol | None, ...], is_read: bool) -> Key | None:
        """Return the key that nodes that compute the same share; None for a node that is never merged.

        Nodes of a model that was read keep the runtime's own kernels: they have keys of their own.
        """
        if node.op_type in RANDOM or node.domain not in DOMAINS:
            return None
        attributes: Hashable = None
        if node.attributes:
            try:
                attributes = tuple([(key, _frozen(node.attributes[key])) for key in sorted(node.attributes)])
            except TypeError:
                return None
        operands = tuple([-1 if s is None else s.id for s in inputs])
        if node.op_type in _IN_ANY_ORDER and len(operands) == 2:
            operands = tuple(sorted(operands))
        types = tuple([id(s.type) for s in node.outputs])
        return node.op_type, node.domain, operands, attributes, types, is_read

    def found(self, key: Key | None) -> Node | None:
        """Return the node of a key, None where there is none."""
        if key is None:
            return None
        found = self._nodes.get(key)
        # A default dtype gives way to that of the other operand, which differs from use to use.
        if found is None or any(getattr(s.type, "ambiguous", False) for s in found.outputs):
            return None
        return found

    def remember(self, key: Key | None, node: Node) -> None:
        """Record a node under its key, unless there is one already."""
        if key is not None:
            self._nodes.setdefault(key, node)

    def constant(self, symbol: Symbol, is_initializer: bool = False) -> Key | None:
        """Return the key that equal constants share; None for weights, named, large and ambiguous ones.

        is_initializer: it is one that counts as a constant, whose name is only that of a value in a file.
        """
        producer = symbol.producer
        assert isinstance(producer, Constant)
        if symbol.ambiguous or (not is_initializer and (producer.is_weight or symbol.given_name is not None)):
            return None
        array = producer.array
        if array.dtype == object or array.nbytes > _LARGEST:
            return None
        return id(symbol.type), array.shape, array.tobytes()


def _frozen(value: Any) -> Hashable:
    """Return an attribute as a key: 0.0 is not -0.0, 1 is not 1.0 or True. Raises `TypeError` for what has none."""
    if isinstance(value, float):
        return float, struct.pack("<d", value)
    if isinstance(value, (bool, int, str, bytes, DType)):
        return type(value), value
    if isinstance(value, (list, tuple)):
        return list, tuple([_frozen(item) for item in value])
    if isinstance(value, np.ndarray) and value.dtype != object and value.nbytes <= _LARGEST:
        return _of_array(value)
    raise TypeError(f"a {type(value).__name__} is no key")


def _of_array(array: Array) -> Hashable:
    return np.ndarray, array.dtype, array.shape, array.tobytes()
