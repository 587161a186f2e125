"""`graphcore quantize`: a model with weights of few bits, and what became of each layer."""

from __future__ import annotations

import argparse
import json
import os

from graphcore import runtime
from graphcore.cli.arguments.options import links
from graphcore.errors import ExportError
from graphcore.ir.graph import Graph


def quantize(args: argparse.Namespace) -> int:
    graph = Graph.load(args.source, **links(args))
    if os.path.exists(args.path) and os.path.samefile(args.source, args.path):
        raise ExportError(
            f"quantize: {args.path} is the file that is read", help="choose another name for what is written"
        )
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
    )
    made.export(args.path, target=args.target)
    if args.report:
        _write(args.report, json.dumps(report.as_dicts(), indent=2) + "\n")
    print(report)
    print(f"{args.path}: {os.path.getsize(args.path)} bytes, for {args.target}")
    return 0


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ExportError(
            f"quantize: {path} cannot be written: {error.strerror or error}",
            help="choose a folder that exists and can be written to",
        ) from None
