"""Names: those given to the Symbols of a graph, and those made for the others."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import TypeAlias

from graphcore.errors import GraphError
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol

Output: TypeAlias = "tuple[str | None, Symbol]"
"""An output: the name it was given, if one was, and its value."""


class Names:
    """The names of one graph, each of one Symbol."""

    def __init__(self) -> None:
        self.taken: dict[str, Symbol] = {}
        """The names that were given, with the Symbols that have them."""

    def claim(self, name: str, kind: str, owner: Symbol | None = None) -> str:
        """Return a name that is not taken; it is `owner`'s from then on. Raises `GraphError`.

        Models that are loaded have names of any text, which their copies keep: `checked_name` is for those that users
        give.
        """
        if not isinstance(name, str) or not name:
            checked_name(name, kind)
        taken = self.taken.get(name)
        if taken is not None and taken is not owner:
            raise GraphError(
                f"{kind}: the name {name!r} is taken", operands={"taken by": taken}, help="choose another name"
            )
        if owner is not None:
            self.taken[name] = owner
        return name

    def rename(self, symbol: Symbol, name: str) -> None:
        """Give a Symbol a name in place of the one it has. Raises `GraphError`."""
        claimed = self.claim(name, "name", symbol)
        if symbol.given_name is not None and symbol.given_name != claimed:
            del self.taken[symbol.given_name]
        change(symbol, given_name=claimed)

    def renamed(self, symbol: Symbol, name: str, outputs: Sequence[Output]) -> list[Output]:
        """Give a Symbol of the graph with these outputs another name, and return the outputs under theirs.

        An output that is called as the Symbol is called so again; one with a name of its own keeps it. Raises
        `GraphError`.
        """
        before = symbol.name
        follows = [value is symbol and label in (None, before) for label, value in outputs]
        called = [name if moved else label or s.name for moved, (label, s) in zip(follows, outputs, strict=True)]
        holders = [value for own, (_, value) in zip(called, outputs, strict=True) if own == name]
        if len(holders) > 1 or any(s is not symbol or not isinstance(s.producer, Node) for s in holders):
            raise GraphError(
                f"name: an output is called {name!r}", operands={"output": holders[0]}, help="choose another name"
            )
        self.rename(symbol, name)
        return [
            (name if moved and label is not None else label, value)
            for moved, (label, value) in zip(follows, outputs, strict=True)
        ]

    def find(self, name: str, symbols: Sequence[Symbol], outputs: Sequence[Output]) -> Symbol | None:
        """Return the Symbol that is called so by itself, as an output, or by its operator and number."""
        found = self.taken.get(name, None)
        if found is None:
            found = next((value for label, value in outputs if label == name), None)
        if found is None and (number := _number(name)) is not None and int(number[1]) < len(symbols):
            made = symbols[int(number[1])]
            found = made if made.name == name else None
        # What stands for a value of an outer graph has the name of that.
        if found is None:
            found = next((s for s in symbols if type(s.producer) is Captured and s.name == name), None)
        return found

    def unknown(self, asked: str, name: str, symbols: Sequence[Symbol], outputs: Sequence[Output]) -> GraphError:
        """Return the error for a name that nothing has, with those that are like it."""
        first = [s.name for s in symbols[:_LOOKED_AT] if type(s.producer) is Input or s.given_name is not None]
        made = [s.name for s in symbols[:_LOOKED_AT] if type(s.producer) is Node]
        known = list(dict.fromkeys([*first, *(label for label, _ in outputs if label), *made]))
        close = difflib.get_close_matches(name, known, 3, 0.6)
        inputs = [s.name for s in symbols if type(s.producer) is Input]
        help = f"its inputs: {', '.join(map(repr, inputs)) or 'none'}"
        if close:
            help = f"did you mean {' or '.join(map(repr, close))}?"
        graph = f" in graph {symbols[0].graph.name!r}" if symbols else ""
        return GraphError(f"{asked}: nothing{graph} is called so", help=help)

    def release(self, symbol: Symbol) -> None:
        """Take its name from a Symbol, which has one: another may have it then."""
        assert symbol.given_name is not None
        del self.taken[symbol.given_name]
        change(symbol, given_name=None)

    def automatic(self, symbol: Symbol) -> str:
        """Return the name of a Symbol without one of its own: its operator and its number."""
        producer = symbol.producer
        kind = f"{producer.layer}{snake(producer.op_type)}" if type(producer) is Node else "constant"
        name = f"{kind}_{symbol.id}"
        while name in self.taken:
            name += "_"
        return name

    def check_output(self, label: str | None, value: Symbol) -> None:
        """Raise `GraphError` where an output cannot be called so: something else is, or it is an input."""
        taken = None if label is None else self.taken.get(label)
        if taken is not None and (taken is not value or isinstance(value.producer, Input)):
            raise GraphError(
                f"output: the name {label!r} is taken",
                operands={"taken by": taken, "output": value},
                help="choose another name",
            )

    def of_outputs(self, outputs: list[Output]) -> list[Output]:
        """The outputs with names of their own where a Symbol's will not do: it is an input's, or taken already."""
        used = {label for label, _ in outputs if label is not None}
        labelled: list[Output] = []
        for label, value in outputs:
            if label is None:
                own = value.name if isinstance(value.producer, Node) else f"{value.name}_out"
                name, count = own, 0
                while name in used or self.taken.get(name, value) is not value:
                    count += 1
                    name = f"{own}_{count}"
                used.add(name)
                if name != value.name or sum(value is other for _, other in outputs) > 1:
                    label = name
            labelled.append((label, value))
        return labelled

    def claim_outputs(self, outputs: list[Output]) -> None:
        """Values without a name get that of their output."""
        for label, value in outputs:
            if label is not None and value.given_name is None and not isinstance(value.producer, Constant):
                change(value, given_name=self.claim(label, "output", value))


_number = re.compile(r".*_(\d{1,18})_*", re.DOTALL).fullmatch
_LOOKED_AT = 20_000
"""Symbols of a graph whose names are compared with one that nothing has."""

_snakes: dict[str, str] = {"IsNaN": "is_nan"}


def snake(op_type: str) -> str:
    """An operator's name in lower case with underscores: `ReduceSum` is `reduce_sum`."""
    found = _snakes.get(op_type)
    if found is None:
        found = _snakes[op_type] = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", op_type).lower()
    return found


_control = re.compile("[\0-\x1f]").search


def checked_name(name: object, kind: str) -> str:
    """The name that a user gives, if it can be one: text without control characters. Raises `GraphError`."""
    if not isinstance(name, str) or not name or _control(name):
        raise GraphError(f"{kind}: {name!r} is no name", help="a name is a non-empty string without control characters")
    return name
