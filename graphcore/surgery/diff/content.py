"""The contents of attributes, constants and weights: keys to compare them by, and differences of arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graphcore.arrays.casting import Array
from graphcore.ir.definitions import Definition
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.onnx.opset import DOMAINS, OPSET
from graphcore.onnx.schemas.schemas import schema_of


class Contents:
    """Keys of arrays, each made once."""

    def __init__(self) -> None:
        self._keys: dict[int, tuple[Array, Hashable]] = {}

    def of(self, array: Array) -> Hashable:
        """Return a key that arrays of the same dtype, shape and bits have."""
        found = self._keys.get(id(array))
        if found is None:
            plain = array.dtype.kind == "O"
            data = repr(array.tolist()).encode() if plain else _bytes_of(array).data
            digest = hashlib.blake2b(data, digest_size=16).digest()
            found = self._keys[id(array)] = array, (str(array.dtype), array.shape, digest)
        return found[1]

    def attribute(self, value: Any) -> Hashable:
        """Return a key of an attribute; of a body or a function that of what it is called."""
        if isinstance(value, np.ndarray):
            return self.of(value)
        if isinstance(value, (list, tuple)):
            return tuple(self.attribute(each) for each in value)
        if isinstance(value, Graph):
            return "body"
        if isinstance(value, Definition):
            return value.name
        return value if isinstance(value, (str, bytes, int)) else repr(value)

    def attributes(self, node: Node) -> Hashable:
        """Return a key of the attributes of a node, but for the dims of a call."""
        own = node.attributes
        if not own:
            return ()
        return tuple(sorted((k, self.attribute(v)) for k, v in own.items() if k != "dims" or "definition" not in own))


@dataclass(frozen=True, slots=True)
class Distance:
    """The difference of two arrays. differing: elements. largest: the greatest absolute difference, of numbers."""

    differing: int | None
    largest: float | None


def distance(old: Array, new: Array) -> Distance:
    """Return how much two arrays differ; nothing is known of arrays of different shapes. NaN equals NaN."""
    if old is new:
        return Distance(0, None)
    if old.shape != new.shape:
        return Distance(None, None)
    if "O" in (old.dtype.kind, new.dtype.kind):
        return Distance(int(np.count_nonzero(old != new)), None)
    if old.dtype == new.dtype and np.array_equal(_bytes_of(old), _bytes_of(new)):
        return Distance(0, None)
    whole = all(x.dtype.kind in "iu" and x.dtype.itemsize == 8 for x in (old, new))
    first, second = old.reshape(-1), new.reshape(-1)
    count, largest = 0, 0.0
    for start in range(0, first.size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        a, b = (x[part].astype(object if whole else np.float64) for x in (first, second))
        with np.errstate(invalid="ignore", over="ignore"):
            differs = np.asarray(a != b, bool)
            if not whole:
                differs &= ~(np.isnan(a) & np.isnan(b))
            gaps = np.abs(a - b)[differs].astype(np.float64)
        count += len(gaps)
        largest = float(np.maximum(largest, gaps.max())) if len(gaps) else largest
    return Distance(count, largest if count else None)


_AT_ONCE = 1 << 22
"""Elements that are widened together: weights may take most of the memory."""


def _bytes_of(array: Array) -> Array:
    """Return a view of the bytes, without a copy where the array is C-contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def array_of(symbol: Symbol) -> Array | None:
    """Return the array of a constant or weight, of this graph or captured from one around it."""
    symbol = origin_of(symbol)
    return symbol.producer.array if isinstance(symbol.producer, Constant) else None


def origin_of(symbol: Symbol) -> Symbol:
    """Return the value that a captured one stands for."""
    while isinstance(symbol.producer, Captured):
        symbol = symbol.producer.symbol
    return symbol


def is_named(symbol: Symbol) -> bool:
    """Return whether a constant has a name: it is found by that."""
    return origin_of(symbol).given_name is not None


def is_default(node: Node, key: str, value: Any) -> bool:
    """Return whether an attribute is what ONNX takes where it is left out."""
    schema = schema_of(node.op_type, node.domain, DOMAINS.get(node.domain, OPSET))
    declared = None if schema is None else schema.attributes.get(key)
    if declared is None or not declared.default_value.name:
        return False
    default = onnx.helper.get_attribute_value(declared.default_value)
    return bool((default.decode() if isinstance(default, bytes) else default) == value)
