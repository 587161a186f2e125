"""Fuzzing: what is tried, counted and found. Each kind is a generator of findings that ends when its time does."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import graphcore as gc
from graphcore.errors import GraphcoreError
from tests.fuzz import chains, elements, mutations, odd_feeds, operators, states, values
from tests.fuzz.pool import BAD, BUILD, Child
from tests.fuzz.programs import Program, code, drawn
from tests.fuzz.shrink import least, nearest
from tests.fuzz.ways import EAGER, WAYS, failure, tried
from tests.support import mutants as worker

SHRINKING = 60.0
"""Seconds that one finding may be shrunk for."""


@dataclass(slots=True)
class Tally:
    """Counts of a kind. tried: by what it came to. comparisons: of results with a reference. spent: processor time."""

    kind: str
    seed: int
    tried: Counter[str] = field(default_factory=Counter)
    comparisons: int = 0
    next_seed: int = 0
    spent: float = 0.0
    findings: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the counts as JSON."""
        return json.dumps(
            {
                "kind": self.kind, "seed": self.seed, "next_seed": self.next_seed, "tried": sum(self.tried.values()),
                "outcomes": dict(self.tried.most_common()), "comparisons": self.comparisons,
                "findings": len(self.findings), "processor_seconds": round(self.spent, 1),
            }
        )  # fmt: skip


OFTEN = [*[way for way in (*WAYS, EAGER) if way != "isolated"] * 10, "isolated"]
"""The ways by how often they are taken: a process for each graph takes as long as thirty graphs."""

Going = Callable[[int], bool]
"""Of how many were tried: whether there is time for another."""


def graphs(tally: Tally, going: Going) -> Iterator[str]:
    """Try random programs from a seed on."""
    seen: set[str] = set()
    while going(tally.next_seed - tally.seed):
        program = drawn(tally.next_seed, OFTEN)
        tally.next_seed += 1
        why, count = tried(program)
        tally.tried["wrong" if why else "right"] += 1
        tally.comparisons += count
        if why:
            result = shrunk(program, why)
            key = result.partition("assert")[0].partition("#")[2].partition(":")[0]
            if key not in seen:
                seen.add(key)
                yield result


def shrunk(program: Program, why: str) -> str:
    """Return a test of the smallest program that fails in any way."""
    small = least(program, lambda smaller: failure(smaller) is not None, SHRINKING)
    return code(small, failure(small) or why)


def ops(tally: Tally, going: Going) -> Iterator[str]:
    """Try single ops on all values, in an order of the seed's; ends when all were tried."""
    every = list(elements.elements())
    random.Random(tally.seed).shuffle(every)
    for i, element in enumerate(every):
        if not going(i):
            return
        why, count = elements.failure(element)
        tally.next_seed = tally.seed
        tally.tried["wrong" if why else "right"] += 1
        tally.comparisons += count
        if why:
            shown = f"Element({element.name!r}, DType.{element.dtype.name})"
            yield f"def test_found() -> None:\n    assert failure({shown}) == (None, {count})  # {why}"


def chained(tally: Tally, going: Going) -> Iterator[str]:
    """Try random chains of two or three ops with optimisers and without."""
    seen: set[tuple[str, str, str]] = set()
    while going(tally.next_seed - tally.seed):
        chain = chains.drawn(tally.next_seed)
        tally.next_seed += 1
        why, count = chains.failure(chain)
        tally.tried["wrong" if why else "right" if count else "refused"] += 1
        tally.comparisons += count
        key = chain.dtype.name, chain.first.partition(" ")[0], chain.second.partition(" ")[0]
        if why and chain.third:
            chain = next((c for c in chains.smaller(chain) if chains.failure(c)[0]), chain)
        if why and key not in seen:
            seen.add(key)
            shown = f"Chain(DType.{chain.dtype.name}, {chain.first!r}, {chain.second!r}, {chain.rows}, {chain.third!r})"
            message = why[:300].replace("\n", " ")
            yield f"def test_found() -> None:  # {message}\n    assert chains.failure({shown})[0] is None"


def files(tally: Tally, going: Going) -> Iterator[str]:
    """Try mutants of every format in a child."""
    sources = list(mutations.sources())
    seen: set[tuple[mutations.Source, str]] = set()
    with Child() as child:
        while going(tally.next_seed - tally.seed):
            number = tally.next_seed
            tally.next_seed += 1
            source = sources[number % len(sources)]
            content = mutations.mutated(source, number)
            what = child.ask(*source, content)
            tally.tried[f"{source[0]}: {what.partition(':')[0]}"] += 1
            if what.startswith(BAD) and (source, what) not in seen:
                seen.add((source, what))
                yield smallest(child, source, number, content, what)


def isolated(tally: Tally, going: Going) -> Iterator[str]:
    """Load and call mutants in isolated sessions of this process, which nothing may harm."""
    sources = [source for source in mutations.sources() if source[0] == "model"]
    seen: set[str] = set()
    while going(tally.next_seed - tally.seed):
        number = tally.next_seed
        tally.next_seed += 1
        source = sources[number % len(sources)]
        what = walled(mutations.mutated(source, number))
        tally.tried[what.partition(":")[0]] += 1
        if what.startswith(BAD) and what not in seen:
            seen.add(what)
            yield (
                f"def test_found() -> None:  # {what}\n"
                f"    assert not walled(mutations.mutated({source!r}, {number})).startswith(BAD)"
            )


def walled(content: bytes) -> str:
    """Return the outcome of a model's bytes in an isolated session: "ran", or the name of an error."""
    try:
        session = gc.IsolatedSession(load_seconds=300, run_seconds=10, intra_op_num_threads=1)
        with session.load(content) as model:
            fed = worker.fed(model)  # type: ignore[arg-type]
            if fed is None:
                return "loaded"
            model.execute(fed)
    except GraphcoreError as error:
        return f"{type(error).__name__}{' of an end' if 'was ended by' in str(error) else ''}"
    except Exception as error:  # whatever it is, it should not have been
        return f"raised {type(error).__name__}: {error}"[:300]
    return "ran"


def feeds(tally: Tally, going: Going) -> Iterator[str]:
    """Feed every operator what it does not expect, in a child."""
    names = odd_feeds.names()
    seen: set[tuple[str, str]] = set()
    with Child() as child:
        while going(tally.next_seed - tally.seed):
            number = tally.next_seed
            tally.next_seed += 1
            name = random.Random(number).choice(names)
            what = child.ask("feeds", name, str(number).encode())
            tally.tried[what.partition(":")[0]] += 1
            operator = name.split()[1]
            if what.startswith(BAD) and (operator, what) not in seen:
                seen.add((operator, what))
                yield (
                    f"def test_found() -> None:  # {what}\n    with Child() as child:\n"
                    f"        what = child.ask('feeds', {name!r}, b'{number}')\n"
                    "    assert not what.startswith(BAD), what"
                )


def single(tally: Tally, going: Going) -> Iterator[str]:
    """Run models of one operator in each shape in turn, in a child."""
    shapes = list(operators.SHAPES)
    seen: set[tuple[str, str, str]] = set()
    with Child() as child:
        while going(tally.next_seed - tally.seed):
            number = tally.next_seed
            tally.next_seed += 1
            shape = shapes[number % len(shapes)]
            what = child.ask("operators", shape, str(number).encode())
            tally.tried[f"{shape}: {what.partition(':')[0]}"] += 1
            tally.comparisons += what == "ran"
            if what.startswith(BAD):
                operator = operators.drawn(shape, number).source.split()[1]
                key = shape, operator, what.partition(":")[0]
                if key not in seen:
                    seen.add(key)
                    yield (
                        f"def test_found() -> None:  # {operator}: {what}\n    with Child() as child:\n"
                        f"        what = child.ask('operators', {shape!r}, b'{number}')\n"
                        "    assert not what.startswith(BAD), what"
                    )


def programs(tally: Tally, going: Going) -> Iterator[str]:
    """Try random programs on complex numbers, wide integers, matrices and under the systems of packages, in turn."""
    subjects = list(values.SUBJECTS)
    seen: set[tuple[str, str]] = set()
    while going(tally.next_seed - tally.seed):
        number = tally.next_seed
        tally.next_seed += 1
        subject = subjects[number % len(subjects)]
        why, count = values.failure(subject, number)
        tally.tried[f"{subject}: {'wrong' if why else 'right'}"] += 1
        tally.comparisons += count
        if why and (subject, why.partition("[")[0][:60]) not in seen:
            seen.add((subject, why.partition("[")[0][:60]))
            steps = values.shrunk(subject, number)
            why = (values.failure(subject, number, steps)[0] or why).replace("\n", " ")
            call = f"values.failure({subject!r}, {number}, {steps})"
            yield f"def test_found() -> None:  # {why}\n    assert {call}[0] is None"


def smallest(child: Child, source: mutations.Source, number: int, content: bytes, what: str) -> str:
    """Save the bytes that are nearest to their seed and come to the same, and return a test of them."""
    kind = what.partition(":")[0]
    small = nearest(
        mutations.sources()[source], content, lambda b: child.ask(*source, b).partition(":")[0] == kind, SHRINKING
    )
    path = BUILD / f"{source[0]}-{number}.bin"
    path.write_bytes(small)
    return (
        f"def test_found() -> None:  # mutant {number} of {source}: {what}\n    with Child() as child:\n"
        f"        what = child.ask({source[0]!r}, {source[1]!r}, Path({str(path)!r}).read_bytes())\n"
        "    assert not what.startswith(BAD), what"
    )


def machines(tally: Tally, going: Going) -> Iterator[str]:
    """Run stateful machines in turn."""
    names = list(states.MACHINES)
    while going(tally.next_seed - tally.seed):
        name = names[tally.next_seed % len(names)]
        why = states.failure(name, tally.next_seed)
        tally.next_seed += 1
        tally.tried[f"{name}: {'wrong' if why else 'right'}"] += 1
        if why:
            yield f"states.failure({name!r}, {tally.next_seed - 1})\n{why}"


KINDS: dict[str, Callable[[Tally, Going], Iterator[str]]] = {
    "graphs": graphs, "ops": ops, "chains": chained, "files": files, "isolated": isolated, "feeds": feeds,
    "operators": single,
    "values": programs, "states": machines,
}  # fmt: skip


def fuzz(kind: str, seed: int, going: Going, say: Callable[[str], None] = print) -> Tally:
    """Hunt from a seed on while there is time. say: takes findings as they come, and the counts at the end."""
    tally = Tally(kind, seed, next_seed=seed)
    began = sum(os.times()[:4])  # of this process, and of those that it started and that ended
    for item in KINDS[kind](tally, going):
        tally.findings.append(item)
        say(item)
    tally.spent += sum(os.times()[:4]) - began
    say(tally.line())
    return tally


def saved(tallies: list[Tally]) -> Path:
    """Write what was found to build/fuzz/."""
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / "findings.txt"
    path.write_text("\n\n".join(item for tally in tallies for item in tally.findings))
    return path
