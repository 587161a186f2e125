"""The records of the differences between two graphs, and their text."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.ir.definitions import Definition
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol, root_of
from graphcore.support.escaping import escaped
from graphcore.surgery.patterns import comparable, defaults

_MAX_UNGROUPED = 12


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that only one graph has, or that differs in operands, attributes or operator.

    kind: "-", "+" or "~". name: of its first result, in the graph that has it, for "~" the first graph. details: text
    of the changes. place: the body or function that it is in, "" for the graph itself.
    """

    kind: str
    name: str
    op_type: str
    text: str
    details: tuple[str, ...] = ()
    place: str = ""

    def __str__(self) -> str:
        return escaped(f"{self.kind} {self.text}" + (f": {'; '.join(self.details)}" if self.details else ""))


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A value inside of the graph whose type differs. before, after: as printed. other: its second name."""

    name: str
    other: str
    before: str
    after: str
    place: str = ""

    def __str__(self) -> str:
        return escaped(f"~ {self.name}: {self.before} -> {self.after}")


@dataclass(frozen=True, slots=True)
class WeightChange:
    """A weight or constant that only one graph has, or whose values differ.

    kind: "-", "+" or "~". before, after: its types, "" if there is none. differing: the number of elements, of `size`,
    that differ. largest: the greatest absolute difference. Both are None if the shapes differ; `largest` is None if the
    elements are not numbers.
    """

    kind: str
    name: str
    other: str
    before: str
    after: str
    size: int
    differing: int | None = None
    largest: float | None = None
    place: str = ""

    def __str__(self) -> str:
        if self.kind != "~":
            return escaped(f"{self.kind} {self.name}: {self.before or self.after}")
        types = self.before if self.before == self.after else f"{self.before} -> {self.after}"
        name = self.name if self.name == self.other else f"{self.name} -> {self.other}"
        text = f"~ {name}: {types}"
        if self.differing:
            text += f", {self.differing} of {self.size} differ"
            text += "" if self.largest is None else f", by {self.largest:.4g} at most"
        return escaped(text)


@dataclass(frozen=True, slots=True)
class EdgeChange:
    """An input, output or buffer that only one graph has, or that differs in name, type, position or value.

    details: text of the changes.
    """

    kind: str
    name: str
    text: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return escaped(f"{self.kind} {self.text}" + (f": {'; '.join(self.details)}" if self.details else ""))


@dataclass(frozen=True, slots=True)
class DimChange:
    """A dim name of inputs that is another name, or a size, in the second graph."""

    name: str
    other: str

    def __str__(self) -> str:
        return escaped(f"~ {self.name} -> {self.other}")


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """A difference in the name, promotion system, metadata or opset versions of the graph."""

    key: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return escaped(f"+ {self.key}: {self.after}")
        if self.after is None:
            return escaped(f"- {self.key}: {self.before}")
        return escaped(f"~ {self.key}: {self.before} -> {self.after}")


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences of two graphs. False if there are none; printed one per line, with "-", "+" and "~"."""

    inputs: tuple[EdgeChange, ...] = ()
    outputs: tuple[EdgeChange, ...] = ()
    dims: tuple[DimChange, ...] = ()
    nodes: tuple[NodeChange, ...] = ()
    types: tuple[TypeChange, ...] = ()
    weights: tuple[WeightChange, ...] = ()
    metadata: tuple[MetadataChange, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def as_dict(self) -> dict[str, list[dict[str, Any]]]:
        """Return the records as dicts of strings, numbers and lists, for JSON."""
        return {
            field.name: [
                {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(each).items()}
                for each in getattr(self, field.name)
            ]
            for field in fields(self)
        }

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        if not self:
            return "no differences"
        return "\n".join(escaped(line) for field in fields(self) for line in self._section(field.name))

    def _section(self, name: str) -> Iterator[str]:
        records = getattr(self, name)
        if not records:
            return
        yield f"{name}:"
        places = dict.fromkeys(getattr(each, "place", "") for each in records)
        for place in places:
            rows = [each for each in records if getattr(each, "place", "") == place]
            indent = "  "
            if place:
                yield f"  in {place}:"
                indent = "    "
            for line in _group_lines(rows) if name in ("types", "weights") else map(str, rows):
                yield indent + line


def _group_lines(rows: Sequence[TypeChange | WeightChange]) -> Iterator[str]:
    """Yield a line for each record, or one for many with the same change of dtype."""
    groups: dict[object, list[TypeChange | WeightChange]] = {}
    for row in rows:
        was, becomes = row.before.partition("["), row.after.partition("[")
        is_same_change = was[2] == becomes[2] and was[0] != becomes[0] and row.before and row.after
        groups.setdefault((was[0], becomes[0]) if is_same_change else id(row), []).append(row)
    for key, group in groups.items():
        if len(group) <= _MAX_UNGROUPED or not isinstance(key, tuple):
            yield from map(str, group)
        else:
            names = ", ".join(each.name for each in group[:3])
            yield f"~ {len(group)} of them: {key[0]} -> {key[1]} ({names}, ...)"


# Keys to compare attributes, constants and weights by, and differences of arrays.


class Contents:
    """Cached keys of arrays, to compare them by."""

    def __init__(self) -> None:
        self._keys: dict[int, tuple[Array, Hashable]] = {}

    def of(self, array: Array) -> Hashable:
        """Return a key that is equal for arrays of the same dtype, shape and bits."""
        cached = self._keys.get(id(array))
        if cached is None:
            plain = array.dtype.kind == "O"
            data = repr(array.tolist()).encode() if plain else _bytes_of(array).data
            digest = hashlib.blake2b(data, digest_size=16).digest()
            cached = self._keys[id(array)] = array, (str(array.dtype), array.shape, digest)
        return cached[1]

    def attribute(self, value: Any) -> Hashable:
        """Return a key of an attribute; bodies are all alike, functions are compared by name.

        Floats are in single precision, in which files have them.
        """
        if isinstance(value, np.ndarray):
            return self.of(value)
        if isinstance(value, (list, tuple)):
            return tuple(self.attribute(each) for each in value)
        if isinstance(value, Graph):
            return "body"
        if isinstance(value, Definition):
            return value.name
        return value if isinstance(value, (str, bytes, int)) else repr(comparable(value))

    def attributes(self, node: Node) -> Hashable:
        """Return a key of the attributes of a node, without defaults, and without the dims of a call."""
        own = {k: v for k, v in node.attributes.items() if not is_default(node, k, v)}
        return tuple(sorted((k, self.attribute(v)) for k, v in own.items() if k != "dims" or "definition" not in own))


@dataclass(frozen=True, slots=True)
class WeightDifference:
    """The difference of two arrays. differing: elements. largest: the greatest absolute difference, of numbers."""

    differing: int | None
    largest: float | None


def distance(old: Array, new: Array) -> WeightDifference:
    """Return the difference of two arrays, None in both fields if the shapes differ. NaN equals NaN."""
    if old is new:
        return WeightDifference(0, None)
    if old.shape != new.shape:
        return WeightDifference(None, None)
    if "O" in (old.dtype.kind, new.dtype.kind):
        return WeightDifference(int(np.count_nonzero(old != new)), None)
    if old.dtype == new.dtype and np.array_equal(_bytes_of(old), _bytes_of(new)):
        return WeightDifference(0, None)
    whole = all(x.dtype.kind in "iu" and x.dtype.itemsize == 8 for x in (old, new))
    first, second = old.reshape(-1), new.reshape(-1)
    count, largest = 0, 0.0
    for start in range(0, first.size, _CHUNK_ELEMENTS):
        part = slice(start, start + _CHUNK_ELEMENTS)
        a, b = (x[part].astype(object if whole else np.float64) for x in (first, second))
        with np.errstate(invalid="ignore", over="ignore"):
            differs = np.asarray(a != b, bool)
            if not whole:
                differs &= ~(np.isnan(a) & np.isnan(b))
            gaps = np.abs(a - b)[differs].astype(np.float64)
        count += len(gaps)
        largest = float(np.maximum(largest, gaps.max())) if len(gaps) else largest
    return WeightDifference(count, largest if count else None)


_CHUNK_ELEMENTS = 1 << 22
"""Elements that are widened at once: weights may take most of the memory."""


def _bytes_of(array: Array) -> Array:
    """Return a view of the bytes, without a copy where the array is C-contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def array_of(symbol: Symbol) -> Array | None:
    """Return the array of a constant or weight, of this graph or captured from one around it."""
    symbol = root_of(symbol)
    return symbol.producer.array if isinstance(symbol.producer, Constant) else None


def is_named(symbol: Symbol) -> bool:
    """Return True if a constant has a name to pair it by."""
    return root_of(symbol).given_name is not None


def is_default(node: Node, key: str, value: Any) -> bool:
    """Return True if an attribute has the default value of its ONNX operator."""
    own = defaults(node)
    return key in own and bool(comparable(own[key]) == comparable(value))
