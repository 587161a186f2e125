"""`graphcore quantize`: a model with weights of few bits, and what became of each layer."""

from __future__ import annotations

import argparse
import os

from graphcore import runtime
from graphcore.cli import files, output
from graphcore.cli.arguments.options import links
from graphcore.ir.graph import Graph


def quantize(args: argparse.Namespace) -> int:
    with output.working(f"loading {args.source}"):
        graph = Graph.load(args.source, **links(args))
    files.require_other("quantize", args.source, args.path)
    with output.progress(f"quantising {args.source}") as advance:
        made, report = runtime.quantize(
            graph,
            args.scheme,
            include=args.include,
            exclude=args.exclude,
            embeddings=args.embeddings,
            min_elements=args.min_elements,
            block_size=args.block_size,
            many_rows=args.many_rows,
            reduce_range=args.reduce_range,
            accuracy_level=args.accuracy_level,
            strict=args.strict,
            progress=advance,
        )
    with output.progress(f"writing {args.path}") as advance:
        made.export(args.path, target=args.target, progress=advance)
    if args.report:
        files.write_text("quantize", args.report, output.json_text(report.as_dicts()) + "\n")
    size = os.path.getsize(args.path)
    if args.json:
        counts = {"quantized": len(report.quantized), "before": report.before, "after": report.after}
        output.document(
            {"source": args.source, "path": args.path, "bytes": size, "target": args.target, "scheme": args.scheme}
            | counts
            | {"rows": report.as_dicts()}
        )
        return 0
    for text in str(output.escaped_record(report)).split("\n"):
        output.line(text)
    output.line(f"{args.path}: {size} bytes, for {args.target}")
    return 0
