"""The names of Symbols in a graph, explicit and generated."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from graphcore.errors import GraphError
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol, present
from graphcore.support.escaping import similar

Output: TypeAlias = "tuple[str | None, Symbol]"
"""An output: its explicit name, or None, and its value."""


class Names:
    """The names of one graph. Each belongs to one Symbol."""

    def __init__(self) -> None:
        self.taken: dict[str, Symbol] = {}
        """The Symbols with explicit names, by name."""

    def claim(self, name: str, kind: str, owner: Symbol | None = None) -> str:
        """Reserve a name for `owner`, if one is given, and return it. Raises `GraphError` if it is taken.

        Names in imported models may be any text; `checked_name` is only for names that users choose.
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
        """Rename a Symbol. Raises `GraphError` if the name is taken."""
        claimed = self.claim(name, "name", symbol)
        if symbol.given_name is not None and symbol.given_name != claimed:
            del self.taken[symbol.given_name]
        change(symbol, given_name=claimed)

    def renamed(self, symbol: Symbol, name: str, outputs: Sequence[Output]) -> list[Output]:
        """Rename a Symbol and return the outputs with their new names.

        An output with the old name of the Symbol gets the new one; other outputs keep theirs. Raises `GraphError`.
        """
        before = symbol.name
        follows = [value is symbol and label in (None, before) for label, value in outputs]
        called = [name if moved else label or s.name for moved, (label, s) in zip(follows, outputs, strict=True)]
        holders = [value for own, (_, value) in zip(called, outputs, strict=True) if own == name]
        if len(holders) > 1 or any(s is not symbol or not isinstance(s.producer, Node) for s in holders):
            raise GraphError(
                f"name: an output already has the name {name!r}",
                operands={"output": holders[0]},
                help="choose another name",
            )
        self.rename(symbol, name)
        return [
            (name if moved and label is not None else label, value)
            for moved, (label, value) in zip(follows, outputs, strict=True)
        ]

    def find(self, name: str, symbols: Sequence[Symbol], outputs: Sequence[Output]) -> Symbol | None:
        """Return the Symbol with an explicit name, output name or generated name; None if there is none."""
        symbol = self.taken.get(name, None)
        if symbol is None:
            symbol = next((value for label, value in outputs if label == name), None)
        if symbol is None and (number := _number(name)) is not None and int(number[1]) < len(symbols):
            candidate = symbols[int(number[1])]
            symbol = candidate if candidate.name == name else None
        # A captured Symbol has the name of the Symbol in the outer graph.
        if symbol is None:
            symbol = next((s for s in symbols if type(s.producer) is Captured and s.name == name), None)
        return symbol

    def unknown(self, what: str, name: str, symbols: Sequence[Symbol], outputs: Sequence[Output]) -> GraphError:
        """Return the error for an unknown name, with suggestions. what: the expression that looked it up."""
        first = [s.name for s in symbols[:_MAX_COMPARED] if type(s.producer) is Input or s.given_name is not None]
        results = [s.name for s in symbols[:_MAX_COMPARED] if type(s.producer) is Node]
        computed = list(dict.fromkeys([*(label for label, _ in outputs if label), *results]))
        names = list(dict.fromkeys([*first, *computed]))
        close = similar(name, names)
        inputs = [s.name for s in symbols if type(s.producer) is Input]
        help = f"its inputs: {', '.join(map(repr, inputs)) or 'none'}"
        if outputs and computed:  # a graph that is being built also has nodes of calls that failed
            more = f" and {len(computed) - _MAX_SHOWN} more" if len(computed) > _MAX_SHOWN else ""
            help += f"; computed values: {', '.join(map(repr, computed[:_MAX_SHOWN]))}{more}"
        if close:
            help = f"did you mean {' or '.join(map(repr, close))}?"
        graph = f" in graph {symbols[0].graph.name!r}" if symbols else ""
        return GraphError(f"{what}: nothing{graph} has that name", help=help)

    def release(self, symbol: Symbol) -> None:
        """Remove the explicit name of a Symbol, so that another one can have it."""
        del self.taken[present(symbol.given_name)]
        change(symbol, given_name=None)

    def automatic(self, symbol: Symbol) -> str:
        """Return the generated name of a Symbol: layer, operator and number."""
        producer = symbol.producer
        kind = f"{producer.layer}{snake(producer.op_type)}" if type(producer) is Node else "constant"
        name = f"{kind}_{symbol.id}"
        while name in self.taken:
            name += "_"
        return name

    def check_output(self, label: str | None, value: Symbol) -> None:
        """Raise `GraphError` if the name of an output is taken by another Symbol, or the value is an input."""
        taken = None if label is None else self.taken.get(label)
        if taken is not None and (taken is not value or isinstance(value.producer, Input)):
            raise GraphError(
                f"output: the name {label!r} is taken",
                operands={"taken by": taken, "output": value},
                help="choose another name",
            )

    def of_outputs(self, outputs: list[Output]) -> list[Output]:
        """Return the outputs, with names for those whose Symbol's name is that of an input, or is taken."""
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
        """Give unnamed values the names of their outputs."""
        for label, value in outputs:
            if label is not None and value.given_name is None and not isinstance(value.producer, Constant):
                change(value, given_name=self.claim(label, "output", value))


def first_free(name: str, is_taken: Callable[[str], bool]) -> str:
    """Return the name, or the first of `name_1`, `name_2`, ... that is not taken."""
    free, count = name, 0
    while is_taken(free):
        count += 1
        free = f"{name}_{count}"
    return free


_number = re.compile(r".*_(\d{1,18})_*", re.DOTALL).fullmatch
_MAX_COMPARED = 20_000
"""The number of Symbols whose names are compared with an unknown name."""
_MAX_SHOWN = 8
"""The number of computed values that the error for an unknown name lists."""

_snakes: dict[str, str] = {"IsNaN": "is_nan"}


def snake(op_type: str) -> str:
    """Return the name of an operator in snake case: `ReduceSum` becomes `reduce_sum`."""
    result = _snakes.get(op_type)
    if result is None:
        result = _snakes[op_type] = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", op_type).lower()
    return result


_control = re.compile("[\0-\x1f]").search


def checked_name(name: object, kind: str) -> str:
    """Return a name that a user chose. Raises `GraphError` unless it is non-empty text without control characters."""
    if not isinstance(name, str) or not name or _control(name):
        raise GraphError(
            f"{kind}: {name!r} is not a valid name", help="a name is a non-empty string without control characters"
        )
    return name
