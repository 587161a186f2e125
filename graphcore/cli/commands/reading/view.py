"""`graphcore view`: the page that shows a model."""

from __future__ import annotations

import argparse
import os

from graphcore import runtime
from graphcore.cli import output
from graphcore.cli.arguments.options import links
from graphcore.cli.measuring.distances import feeds_of
from graphcore.ir.graph import Graph
from graphcore.runtime.inspection.placement import Placement
from graphcore.runtime.inspection.profiling import Profile


def view(args: argparse.Namespace) -> int:
    with output.working(f"loading {args.model}"):
        graph = Graph.load(args.model, **links(args))
        against = None if args.against is None else Graph.load(args.against, **links(args))
    profile, placement = _measured(args, graph) if args.profile else (None, None)
    with output.working("drawing"):
        path = graph.view(
            args.output,
            open=args.output is None,
            title=os.path.basename(args.model),
            targets=args.target,
            profile=profile,
            placement=placement,
            against=against,
        )
    if args.json:
        output.document({"model": args.model, "path": path, "bytes": os.path.getsize(path)})
        return 0
    output.line(f"{args.output or path}: {output.size(os.path.getsize(path))}")
    return 0


def _measured(args: argparse.Namespace, graph: Graph) -> tuple[Profile, Placement]:
    """Return the time of each node, and where it runs."""
    with output.working("measuring"):
        model = runtime.InferenceSession(args.provider).load(graph)
        feeds = feeds_of("view", model.name, model.inputs, args, fills=True)
        return model.profile(feeds), model.placement()
