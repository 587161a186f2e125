"""`graphcore extract`: the part of a model that computes some values from others."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from graphcore.cli.rewriting import rewrite
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph


def extract(args: argparse.Namespace) -> int:
    def part(graph: Graph) -> Graph:
        return graph.extract(args.inputs and _values(graph, args.inputs), _values(graph, args.outputs))

    return rewrite(args, part)


def _values(graph: Graph, texts: Sequence[str]) -> dict[str, str]:
    """Return names of values by the names that they get. Names may have "=" in them."""
    known = {symbol.name for symbol in graph.symbols} | {*graph.output_types}
    found: dict[str, str] = {}
    for text in texts:
        new, _, old = text.partition("=")
        name, value = (new, old) if text not in known and old else (text, text)
        if name in found:
            raise GraphError(
                f"extract: two values are to be called {name!r}", help="give one of them another: NEW=NAME"
            )
        found[name] = value
    return found
