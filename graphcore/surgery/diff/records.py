"""The records of what differs between two graphs, and their text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from graphcore.support.escaping import escaped

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that one graph has alone, or that both have with other operands, attributes or another operator.

    kind: "-", "+" or "~". name: of its first result, in the graph that has it, for "~" the first graph. details: what
    changed, in words. place: the body or function that it is in, "" for the graph itself.
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
    """A value inside of the graph that has another type. before, after: as printed. other: its name in the second."""

    name: str
    other: str
    before: str
    after: str
    place: str = ""

    def __str__(self) -> str:
        return escaped(f"~ {self.name}: {self.before} -> {self.after}")


@dataclass(frozen=True, slots=True)
class WeightChange:
    """A weight or constant that one graph has alone, or that holds other values in the second.

    kind: "-", "+" or "~". before, after: its types, "" where there is none. differing: the elements that differ, of
    `size`. largest: the greatest absolute difference. These are None where the shapes differ or there are no numbers.
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
        text = f"~ {_renamed(self.name, self.other)}: {types}"
        if self.differing:
            text += f", {self.differing} of {self.size} differ"
            text += "" if self.largest is None else f", by {self.largest:.4g} at most"
        return escaped(text)


@dataclass(frozen=True, slots=True)
class EdgeChange:
    """An input, output or buffer that one graph has alone, or with another name, type, place or value in the second.

    details: what changed, in words.
    """

    kind: str
    name: str
    text: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return escaped(f"{self.kind} {self.text}" + (f": {'; '.join(self.details)}" if self.details else ""))


@dataclass(frozen=True, slots=True)
class DimChange:
    """A name of dims of inputs that is another name, or a size, in the second graph."""

    name: str
    other: str

    def __str__(self) -> str:
        return escaped(f"~ {self.name} -> {self.other}")


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """A note of the graph: its name, its promotion system, its metadata, the versions of other domains."""

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
    """The differences of two graphs. False where there are none; printed, a line each, with "-", "+" and "~"."""

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

    def __str__(self) -> str:
        if not self:
            return "no differences"
        return "\n".join(escaped(line) for field in fields(self) for line in self._section(field.name))

    def _section(self, name: str) -> Iterator[str]:
        found = getattr(self, name)
        if not found:
            return
        yield f"{name}:"
        places = dict.fromkeys(getattr(each, "place", "") for each in found)
        for place in places:
            rows = [each for each in found if getattr(each, "place", "") == place]
            indent = "  "
            if place:
                yield f"  in {place}:"
                indent = "    "
            for line in _grouped(rows) if name in ("types", "weights") else map(str, rows):
                yield indent + line


def _grouped(rows: Sequence[TypeChange | WeightChange]) -> Iterator[str]:
    """Yield a line for each, or one for many whose dtype changes in the same way."""
    groups: dict[object, list[TypeChange | WeightChange]] = {}
    for row in rows:
        was, becomes = row.before.partition("["), row.after.partition("[")
        is_same_change = was[2] == becomes[2] and was[0] != becomes[0] and row.before and row.after
        groups.setdefault((was[0], becomes[0]) if is_same_change else id(row), []).append(row)
    for key, group in groups.items():
        if len(group) <= _SHOWN or not isinstance(key, tuple):
            yield from map(str, group)
        else:
            names = ", ".join(each.name for each in group[:3])
            yield f"~ {len(group)} of them: {key[0]} -> {key[1]} ({names}, ...)"


def _renamed(name: str, other: str) -> str:
    return name if name == other else f"{name} -> {other}"
