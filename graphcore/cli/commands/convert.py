"""`graphcore convert`: a model written anew for a target."""

from __future__ import annotations

import argparse
import os

from graphcore.cli.arguments.options import links
from graphcore.errors import ExportError
from graphcore.ir.graph import Graph


def convert(args: argparse.Namespace) -> int:
    graph = Graph.load(args.source, implicit_casts=args.implicit_casts, promotion=args.promotion, **links(args))
    if os.path.exists(args.path) and os.path.samefile(args.source, args.path):
        raise ExportError(
            f"convert: {args.path} is the file that is read", help="choose another name for what is written"
        )
    graph.export(
        args.path,
        target=args.target,
        precision=args.precision,
        external_data=True if args.external_data else None,
        opset=args.opset,
        ir_version=args.ir_version,
        runtime=args.runtime,
    )
    print(f"{args.path}: {len(graph.inputs)} inputs, {len(graph.outputs)} outputs, for {args.target}")
    return 0
