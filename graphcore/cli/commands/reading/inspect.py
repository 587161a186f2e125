"""`graphcore inspect`: what a model is, and what it costs."""

from __future__ import annotations

import argparse
from typing import Any

from graphcore.cli import output
from graphcore.cli.arguments.options import links
from graphcore.cli.inspection import facts, text
from graphcore.ir.graph import Graph


def inspect(args: argparse.Namespace) -> int:
    with output.working(f"loading {args.model}"):
        graph = Graph.load(args.model, **links(args))
        header = facts.header(args.model)
    with output.working(f"looking into {args.model}"):
        found: dict[str, Any] = {
            "model": args.model,
            **header,
            **facts.ends(graph),
            **facts.contents(graph),
            **facts.work(graph, dict(args.dim)),
            "casts": facts.cast_list(graph),
            "lacks": facts.lacking(graph, args.provider),
        }
    if args.nodes:
        found["node_list"] = facts.node_list(graph)
    if args.weights:
        with output.progress("reading weights") as advance:
            found["weight_list"] = facts.weight_list(graph, advance)
    if args.json:
        output.document(found)
    else:
        text.show(found)
    return 0
