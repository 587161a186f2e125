"""`graphcore diff`: what differs between two models, and between what they compute."""

from __future__ import annotations

import argparse
import glob
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore import runtime
from graphcore.cli import output
from graphcore.cli.arguments.options import links
from graphcore.cli.distances import Distance, distance, feeds_of
from graphcore.cli.output import Advance
from graphcore.errors import FeedError, GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.support import escaping
from graphcore.types.tensor_types import TensorType, Type

# Two models on the same arrays: their outputs in pairs, and the first value inside that differs.

_FEWEST, _MOST_RUNS = 64, 16
"""Values inside that one run of both models compares at least, and runs at most: each starts a session of each."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A value of two models. old, new: its names."""

    old: str
    new: str
    distance: Distance


def paired(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]]:
    """Return names in pairs: equal ones, and the rest in order where there are as many of both."""
    found = {name: name for name in old if name in new}
    left, right = [name for name in old if name not in found], [name for name in new if name not in found]
    if len(left) == len(right):
        found |= dict(zip(left, right, strict=True))
    return [(name, found[name]) for name in old if name in found]


def feeds_for(names: Sequence[str], given: Mapping[str, Any], inputs: Mapping[str, Type], model: str) -> dict[str, Any]:
    """Return the arrays of one model for the inputs of another, cast to their dtypes.

    names: the first model's inputs. Raises `FeedError` where an input of the other has no counterpart.
    """
    pairs = {new: old for old, new in paired(names, [*inputs])}
    missing = [name for name in inputs if name not in pairs]
    if missing:
        raise FeedError(
            f"diff: nothing is given for {', '.join(missing)} of {model}",
            help=f"run models with the same inputs; the first has {', '.join(names) or 'none'}",
        )
    return {name: _cast(given[pairs[name]], type_) for name, type_ in inputs.items()}


def _cast(array: Any, type_: Type) -> Any:
    if not isinstance(array, np.ndarray) or not isinstance(type_, TensorType) or array.dtype == object:
        return array
    wanted = type_.dtype.numpy
    return array if array.dtype == wanted or wanted.kind == "O" else array.astype(wanted)


def first_difference(
    old: runtime.Model,
    new: runtime.Model,
    graphs: tuple[Graph, Graph],
    feeds: tuple[Mapping[str, Any], Mapping[str, Any]],
    tolerances: tuple[float, float],
    progress: Advance,
) -> Pair | None:
    """Return the first value inside whose numbers differ by more than the tolerances, in the order in which the first
    model makes them, of tensors that have the same name in both; None where there is none."""
    known = {s.name for node in graphs[1].nodes for s in node.outputs if isinstance(s.type, TensorType)}
    made = (s for node in graphs[0].nodes for s in node.outputs if isinstance(s.type, TensorType))
    names = [s.name for s in made if s.name in known]
    size = max(_FEWEST, -(-len(names) // _MOST_RUNS))
    for start in range(0, len(names), size):
        progress(start, len(names))
        chunk = names[start : start + size]
        watch = [glob.escape(name) for name in chunk]
        before, after = (model.debug(feed, watch=watch) for model, feed in zip((old, new), feeds, strict=True))
        for name in chunk:
            if name in before and name in after:
                found = distance(before[name], after[name], *tolerances)
                if found.is_far:
                    return Pair(name, name, found)
    return None


_COLOURS = {"-": "\x1b[31m", "+": "\x1b[32m", "~": "\x1b[33m"}


@dataclass(frozen=True, slots=True)
class Compared:
    """The numbers of two models. outputs: in pairs. alone: outputs without a counterpart. first: the first value inside
    that differs. unknown: why that is not known."""

    outputs: list[Pair]
    alone: list[str]
    first: Pair | None
    unknown: str

    @property
    def differs(self) -> bool:
        return bool(self.alone) or any(pair.distance.is_far for pair in self.outputs)


def diff(args: argparse.Namespace) -> int:
    """Print what differs. Returns 0 where nothing does, else 1; with --run where the outputs are the same."""
    with output.working(f"loading {args.old} and {args.new}"):
        old, new = (Graph.load(path, **links(args)) for path in (args.old, args.new))
    with output.working("comparing the graphs"):
        changes = old.diff(new)
    compared = _run(args, old, new) if args.run else None
    differs = bool(changes) if compared is None else compared.differs
    if args.html:
        with output.working(f"writing {args.html}"):
            old.save_html(args.html, against=new)
    if args.json:
        output.document(
            {
                "old": args.old,
                "new": args.new,
                "same": not differs,
                "changes": changes.as_dict(),
                "run": None if compared is None else _as_dict(compared),
                "html": args.html,
            }
        )
        return int(differs)
    for text in str(output.escaped_record(changes)).split("\n"):
        _print_change(text)
    if compared is not None:
        _print(compared)
    if args.html:
        output.line(f"{args.html}: both graphs")
    return int(differs)


def _run(args: argparse.Namespace, old: Graph, new: Graph) -> Compared:
    session = runtime.InferenceSession(args.provider, precision=args.precision)
    with output.working("starting both models"):
        first, second = session.load(old), session.load(new)
    given = feeds_of("diff", first.name, first.inputs, args, fills=True)
    feeds = given, feeds_for([*first.inputs], given, second.inputs, args.new)
    with output.working("running both models"):
        results = [
            dict(zip(model.outputs, model(**feed), strict=True))
            for model, feed in zip((first, second), feeds, strict=True)
        ]
    pairs = paired(*([*each] for each in results))
    outputs = [Pair(a, b, distance(results[0][a], results[1][b], args.atol, args.rtol)) for a, b in pairs]
    alone = [name for name in results[0] if name not in {pair.old for pair in outputs}]
    alone += [name for name in results[1] if name not in {pair.new for pair in outputs}]
    found, unknown = None, ""
    if any(pair.distance.is_far for pair in outputs):
        with output.progress("looking inside") as advance:
            try:
                found = first_difference(first, second, (old, new), feeds, (args.atol, args.rtol), advance)
            except GraphcoreError as error:
                unknown = error.summary
    return Compared(outputs, alone, found, unknown)


def _as_dict(compared: Compared) -> dict[str, Any]:
    return {
        "outputs": [_of(pair) for pair in compared.outputs],
        "alone": compared.alone,
        "first": None if compared.first is None else _of(compared.first),
        "unknown": compared.unknown,
    }


def _of(pair: Pair) -> Mapping[str, Any]:
    return {"old": pair.old, "new": pair.new, **pair.distance.as_dict()}


def _print_change(text: str) -> None:
    colour = _COLOURS.get(text.strip()[:1], "") if output.has_colour(sys.stdout) else ""
    shown = escaping.escaped(text)
    print(f"{colour}{shown}\x1b[0m" if colour else shown)


def _print(compared: Compared) -> None:
    output.heading("numbers")
    rows = [_row(pair) for pair in compared.outputs]
    output.table(
        rows, head=("output", "differ", "beyond", "absolute", "relative", "ULP", "cosine"), numbers=range(1, 7)
    )
    for pair in compared.outputs:
        if pair.distance.reason:
            output.line(f"{_name(pair)}: {pair.distance.reason}")
    for name in compared.alone:
        output.line(f"{name}: in one model alone")
    if compared.first is not None:
        output.line(f"first value inside that differs: {_name(compared.first)}: {_words(compared.first.distance)}")
    elif any(pair.distance.is_far for pair in compared.outputs):
        reason = compared.unknown or "no value of one name in both differs"
        output.line(f"first value inside that differs: {reason}")


def _row(pair: Pair) -> tuple[str, ...]:
    found = pair.distance
    numbers = (found.absolute, found.relative, found.ulp, found.cosine)
    return (
        _name(pair),
        f"{found.differing} of {found.size}",
        str(found.beyond),
        *("-" if number is None else f"{number:.6g}" for number in numbers),
    )


def _name(pair: Pair) -> str:
    return pair.old if pair.old == pair.new else f"{pair.old} -> {pair.new}"


def _words(found: Distance) -> str:
    if found.reason:
        return found.reason
    text = f"{found.beyond} of {found.size} elements"
    if found.absolute is not None:
        text += f", by {found.absolute:.6g} at most"
    if found.first is not None and found.values is not None:
        text += f"; at {list(found.first)} {found.values[0]:.9g} and {found.values[1]:.9g}"
    return text
