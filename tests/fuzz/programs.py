"""Programs of random graphs: values, steps that make values of them, and the Python text of both.

A program is a value that one number makes. A step names its operands by their place, and leaving a step out leaves the
others where they are, so that a program can be made smaller step by step.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from graphcore import DType
from graphcore.build.declare import REGISTRY
from tests.support import promoted
from tests.support.every.case import ALL
from tests.support.every_op import CASES

DIMS = ("n 4", "n 4", "n 4", "4", "n 1", "")
MOVES = ("flip", "stride", "double", "unsqueeze", "row", "flat", "turned")
WRAPS = ("", "", "", "cond", "function", "loop")
UNWRAPPED = frozenset(
    n for n, op in REGISTRY.items() if "buffer" in n or "random" in op.family or "sequence" in op.family
)
"""Ops that keep something, draw or make lists: their cases stand at the top of a graph."""


@dataclass(frozen=True, slots=True)
class Input:
    """dims: as of a case's operand. values: a key of `case.VALUES`, or "case NAME I": the I-th operand of that case."""

    dtype: DType
    dims: str = "n 4"
    values: str = "any"
    seed: int = 3

    def __repr__(self) -> str:
        return f"Input(DType.{self.dtype.name}, {self.dims!r}, {self.values!r}, {self.seed})"


@dataclass(frozen=True, slots=True)
class Place:
    """An operand: the value that an input or a step makes. Inputs come first."""

    at: int

    def __repr__(self) -> str:
        return f"Place({self.at})"


Operand: TypeAlias = Place | bool | int | float | str


@dataclass(frozen=True, slots=True)
class Step:
    """kind: "promoted", "move" or "case". name: of the op. wrap: the body that it stands in, or ""."""

    kind: str
    name: str
    operands: tuple[Operand, ...]
    wrap: str = ""

    def __repr__(self) -> str:
        shown = f"Step({self.kind!r}, {self.name!r}, {self.operands!r}"
        return f"{shown}, {self.wrap!r})" if self.wrap else f"{shown})"


@dataclass(frozen=True, slots=True)
class Program:
    """promotion: the system. way: the detour of `ways.WAYS` that the graph takes besides the plain one."""

    promotion: str
    inputs: tuple[Input, ...]
    steps: tuple[Step | None, ...]
    way: str = ""

    @property
    def count(self) -> int:
        return sum(step is not None for step in self.steps)

    def smaller(self) -> list[Program]:
        """Return programs that have a little less, the least first."""
        items = [i for i, step in enumerate(self.steps) if step is not None]
        results = []
        size = len(items) // 2
        while size:
            results += [self._without(items[i : i + size]) for i in range(0, len(items), size)]
            size //= 2
        results += [replace(self, way="")] if self.way else []
        for i in items:
            step = self.steps[i]
            if step is not None and step.wrap:
                steps = (*self.steps[:i], replace(step, wrap=""), *self.steps[i + 1 :])
                results.append(replace(self, steps=steps))
        for i in range(len(self.inputs)):
            results += self._without_operand(i)
        return results

    def _without(self, places: Sequence[int]) -> Program:
        return replace(self, steps=tuple(None if i in places else step for i, step in enumerate(self.steps)))

    def _without_operand(self, at: int) -> list[Program]:
        """Return the program without an input that no step reads."""
        places = [o.at for step in self.steps if step for o in step.operands if isinstance(o, Place)]
        if at in places or len(self.inputs) == 1:
            return []
        steps = tuple(
            step and replace(step, operands=tuple(_before(o, at) for o in step.operands)) for step in self.steps
        )
        return [replace(self, inputs=self.inputs[:at] + self.inputs[at + 1 :], steps=steps)]


def _before(operand: Operand, at: int) -> Operand:
    return Place(operand.at - 1) if isinstance(operand, Place) and operand.at > at else operand


def drawn(seed: int, ways: Sequence[str]) -> Program:
    """Return the program of a number."""
    rng = random.Random(seed)
    system = rng.choice(("max", "max", "max", "kernel_float", "anvil", "array_api"))
    own = promoted.DTYPES[system]
    few = rng.sample(own, min(len(own), rng.randint(1, 4)))
    inputs = [Input(rng.choice(few), rng.choice(DIMS), "any", rng.randrange(1 << 16)) for _ in range(rng.randint(1, 4))]
    plain = len(inputs)
    count = rng.randint(1, 14)
    wanted = [rng.random() < 0.35 and system == "max" for _ in range(count)]
    cases = [_case(rng) if is_case else None for is_case in wanted]
    places: list[tuple[Place, ...]] = []
    for case in cases:
        here = len(inputs)
        if case is not None:
            name, dtype = case
            values = CASES[name].operands
            seeds = [rng.randrange(1 << 16) for _ in values]
            inputs += [
                Input(o.dtype or dtype, o.dims, f"case {name} {i}", s)
                for i, (o, s) in enumerate(zip(values, seeds, strict=True))
            ]
        places.append(tuple(Place(i) for i in range(here, len(inputs))))
    steps: list[Step] = []
    for case, operands in zip(cases, places, strict=True):
        if case is not None:
            wrap = rng.choice(("", "", "cond", "function")) if case[0] not in UNWRAPPED else ""
            steps.append(Step("case", case[0], operands, wrap))
            continue
        results = [Place(i) for i in (*range(plain), *range(len(inputs), len(inputs) + len(steps)))]
        results += results[-3:]  # a graph is more often deep than wide
        steps.append(_step(rng, system, results))
    return Program(system, tuple(inputs), tuple(steps), rng.choice(ways))


def _case(rng: random.Random) -> tuple[str, DType]:
    while True:
        name, dtype = rng.choice(list(CASES)), rng.choice(ALL)
        if dtype not in CASES[name].refused:
            return name, dtype


def _step(rng: random.Random, system: str, expected: Sequence[Place]) -> Step:
    wrap = rng.choice(WRAPS)
    if rng.random() < 0.25:
        return Step("move", rng.choice(MOVES), (rng.choice(expected),), wrap)
    op = rng.choice((*promoted.UNARY, *promoted.BINARY, *promoted.BINARY, "where", "cast", "cast"))
    if op == "cast":
        return Step("promoted", op, (rng.choice(expected), rng.choice(promoted.DTYPES[system]).name), wrap)
    if op in promoted.UNARY:
        return Step("promoted", op, (rng.choice(expected),), wrap)
    picks: list[Operand] = [rng.choice(expected) for _ in range(3 if op == "where" else 2)]
    if rng.random() < 0.25:
        picks[-1] = rng.choice((True, 0, 1, 3, 100, 0.5, 1.5))
        if op != "where" and rng.random() < 0.4:
            picks.reverse()
    return Step("promoted", op, tuple(picks), wrap)


def code(program: Program, why: str) -> str:
    """Return a test that fails as the program does."""
    lines = [f"def test_found() -> None:  # {why.splitlines()[0][:90]}", "    program = Program("]
    lines.append(f"        {program.promotion!r},")
    lines.append(f"        ({''.join(f'{i!r}, ' for i in program.inputs).rstrip()}),")
    lines.append(f"        ({''.join(f'{s!r}, ' for s in program.steps).rstrip()}),")
    lines.append(f"        {program.way!r},")
    lines += ["    )", "    assert failure(program) is None"]
    return "\n".join(lines)


__all__ = ["Input", "Place", "Program", "Step", "code", "drawn"]
