"""`graphcore convert`: a model written anew for a target."""

from __future__ import annotations

import argparse
import os

from graphcore.cli import files, output
from graphcore.cli.arguments.options import links
from graphcore.ir.graph import Graph


def convert(args: argparse.Namespace) -> int:
    with output.working(f"loading {args.source}"):
        graph = Graph.load(args.source, implicit_casts=args.implicit_casts, promotion=args.promotion, **links(args))
    files.require_other("convert", args.source, args.path)
    with output.progress(f"writing {args.path}") as advance:
        graph.export(
            args.path,
            target=args.target,
            precision=args.precision,
            external_data=True if args.external_data else None,
            opset=args.opset,
            ir_version=args.ir_version,
            runtime=args.runtime,
            progress=advance,
        )
    if args.json:
        ends = {"inputs": [s.name for s in graph.inputs], "outputs": [*graph.output_types]}
        output.document(
            {"source": args.source, "path": args.path, "bytes": os.path.getsize(args.path), "target": args.target}
            | ends
        )
        return 0
    output.line(f"{args.path}: {len(graph.inputs)} inputs, {len(graph.outputs)} outputs, for {args.target}")
    return 0
