"""`graphcore diff`: the differences between two models, and between their results."""

from __future__ import annotations

import argparse
import glob
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore import runtime
from graphcore.cli import output
from graphcore.cli.arguments.options import links
from graphcore.cli.distances import OutputDistance, distance, feeds_of
from graphcore.cli.output import Advance
from graphcore.errors import FeedError, GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.ir.names import snake
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.support import escaping
from graphcore.types.tensor_types import TensorType, Type

# Two models on the same arrays: pairs of outputs, and the first intermediate value that differs.

_MIN_VALUES_PER_RUN, _MAX_RUNS = 64, 16
"""Values that a run of both models compares at least, and the number of runs: each starts two sessions."""


@dataclass(frozen=True, slots=True)
class ValuePair:
    """A value in both models. old, new: its names."""

    old: str
    new: str
    distance: OutputDistance


def pair_names(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of names: equal ones, and the rest in order if both have the same number."""
    pairs = {name: name for name in old if name in new}
    left, right = [name for name in old if name not in pairs], [name for name in new if name not in pairs]
    if len(left) == len(right):
        pairs |= dict(zip(left, right, strict=True))
    return [(name, pairs[name]) for name in old if name in pairs]


def feeds_for(names: Sequence[str], feeds: Mapping[str, Any], inputs: Mapping[str, Type], model: str) -> dict[str, Any]:
    """Return the arrays of one model for the inputs of another, cast to their dtypes.

    names: the inputs of the first model. Raises `FeedError` if an input of the other has no counterpart.
    """
    pairs = {new: old for old, new in pair_names(names, [*inputs])}
    missing = [name for name in inputs if name not in pairs]
    if missing:
        raise FeedError(
            f"diff: the first model has no inputs that correspond to {', '.join(missing)} of {model}",
            help=f"run models with the same inputs; the first has {', '.join(names) or 'none'}",
        )
    return {name: _cast(feeds[pairs[name]], type_) for name, type_ in inputs.items()}


def _cast(array: Any, type_: Type) -> Any:
    if not isinstance(array, np.ndarray) or not isinstance(type_, TensorType) or array.dtype == object:
        return array
    dtype = type_.dtype.numpy
    return array if array.dtype == dtype or dtype.kind == "O" else array.astype(dtype)


def first_difference(
    old: runtime.Model,
    new: runtime.Model,
    graphs: tuple[Graph, Graph],
    feeds: tuple[Mapping[str, Any], Mapping[str, Any]],
    tolerances: tuple[float, float],
    progress: Advance,
) -> ValuePair | None:
    """Return the first intermediate value that differs by more than the tolerances, or None.

    Compares tensors with the same name in both models, in the order of the first model.
    """
    old_values, new_values = (
        {s.name: (s, node) for node in graph.nodes for s in node.outputs if isinstance(s.type, TensorType)}
        for graph in graphs
    )
    names = [name for name, value in old_values.items() if name in new_values and _match(*value, new_values[name][1])]
    size = max(_MIN_VALUES_PER_RUN, -(-len(names) // _MAX_RUNS))
    for start in range(0, len(names), size):
        progress(start, len(names))
        chunk = names[start : start + size]
        watch = [glob.escape(name) for name in chunk]
        before, after = (model.debug(feed, watch=watch) for model, feed in zip((old, new), feeds, strict=True))
        for name in chunk:
            if name in before and name in after:
                gap = distance(before[name], after[name], *tolerances)
                if gap.is_far:
                    return ValuePair(name, name, gap)
    return None


def _match(value: Symbol, old: Node, new: Node) -> bool:
    """Return True if a name means the same value of two nodes: a generated name also needs their operator and operands.

    Generated names have the number of a node, which another node has after an edit.
    """
    if not re.fullmatch(rf"(.*[/.])?{re.escape(snake(old.op_type))}_\d+_*", value.name, re.DOTALL):
        return True
    return (old.domain, old.op_type, _operands(old)) == (new.domain, new.op_type, _operands(new))


def _operands(node: Node) -> list[str]:
    """Return the names of operands before their casts, without those of constants, which another file may number."""
    names = []
    for operand in node.inputs:
        while operand is not None and isinstance(operand.producer, Node) and operand.producer.op_type == "Cast":
            operand = operand.producer.inputs[0]
        if operand is not None and not isinstance(operand.producer, Constant):
            names.append(operand.name)
    return names


_COLOURS = {"-": "\x1b[31m", "+": "\x1b[32m", "~": "\x1b[33m"}


@dataclass(frozen=True, slots=True)
class ResultComparison:
    """The comparison of results. outputs: pairs of outputs. alone: outputs without a counterpart. first: the first
    intermediate value that differs. unknown: why that is unknown, or ""."""

    outputs: list[ValuePair]
    alone: list[str]
    first: ValuePair | None
    unknown: str

    @property
    def differs(self) -> bool:
        return bool(self.alone) or any(pair.distance.is_far for pair in self.outputs)


def diff(args: argparse.Namespace) -> int:
    """Print the differences. Returns 0 if there are none, else 1; with --run only the outputs count."""
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


def _run(args: argparse.Namespace, old: Graph, new: Graph) -> ResultComparison:
    session = runtime.InferenceSession(args.provider, precision=args.precision)
    with output.working("starting both models"):
        first, second = session.load(old), session.load(new)
    old_feeds = feeds_of("diff", first.name, first.inputs, args, fills=True)
    feeds = old_feeds, feeds_for([*first.inputs], old_feeds, second.inputs, args.new)
    with output.working("running both models"):
        results = [
            dict(zip(model.outputs, model(**feed), strict=True))
            for model, feed in zip((first, second), feeds, strict=True)
        ]
    pairs = pair_names(*([*each] for each in results))
    outputs = [ValuePair(a, b, distance(results[0][a], results[1][b], args.atol, args.rtol)) for a, b in pairs]
    alone = [name for name in results[0] if name not in {pair.old for pair in outputs}]
    alone += [name for name in results[1] if name not in {pair.new for pair in outputs}]
    inner, unknown = None, ""
    if any(pair.distance.is_far for pair in outputs):
        with output.progress("comparing intermediate values") as advance:
            try:
                inner = first_difference(first, second, (old, new), feeds, (args.atol, args.rtol), advance)
            except GraphcoreError as error:
                unknown = error.summary
    return ResultComparison(outputs, alone, inner, unknown)


def _as_dict(compared: ResultComparison) -> dict[str, Any]:
    return {
        "outputs": [_pair_dict(pair) for pair in compared.outputs],
        "alone": compared.alone,
        "first": None if compared.first is None else _pair_dict(compared.first),
        "unknown": compared.unknown,
    }


def _pair_dict(pair: ValuePair) -> Mapping[str, Any]:
    return {"old": pair.old, "new": pair.new, **pair.distance.as_dict()}


def _print_change(text: str) -> None:
    colour = _COLOURS.get(text.strip()[:1], "") if output.has_colour(sys.stdout) else ""
    escaped_text = escaping.escaped(text)
    print(f"{colour}{escaped_text}\x1b[0m" if colour else escaped_text)


def _print(compared: ResultComparison) -> None:
    output.heading("numbers")
    rows = [_row(pair) for pair in compared.outputs]
    output.table(
        rows, head=("output", "differ", "beyond", "absolute", "relative", "ULP", "cosine"), numbers=range(1, 7)
    )
    for pair in compared.outputs:
        if pair.distance.reason:
            output.line(f"{_name(pair)}: {pair.distance.reason}")
    for name in compared.alone:
        output.line(f"{name}: only in one model")
    if compared.first is not None:
        output.line(
            f"first intermediate value that differs: {_name(compared.first)}: {_words(compared.first.distance)}"
        )
    elif any(pair.distance.is_far for pair in compared.outputs):
        reason = compared.unknown or "none of those that both models have"
        output.line(f"first intermediate value that differs: {reason}")


def _row(pair: ValuePair) -> tuple[str, ...]:
    gap = pair.distance
    numbers = (gap.absolute, gap.relative, gap.ulp, gap.cosine)
    return (
        _name(pair),
        f"{gap.differing} of {gap.size}",
        str(gap.beyond),
        *("-" if number is None else f"{number:.6g}" for number in numbers),
    )


def _name(pair: ValuePair) -> str:
    return pair.old if pair.old == pair.new else f"{pair.old} -> {pair.new}"


def _words(gap: OutputDistance) -> str:
    if gap.reason:
        return gap.reason
    text = f"{gap.beyond} of {gap.size} elements"
    if gap.absolute is not None:
        text += f", by {gap.absolute:.6g} at most"
    if gap.first is not None and gap.values is not None:
        text += f"; at {list(gap.first)} {gap.values[0]:.9g} and {gap.values[1]:.9g}"
    return text
