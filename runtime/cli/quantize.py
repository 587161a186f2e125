"""`graphcore quantize`: a model with weights of few bits, and what became of each layer."""

from __future__ import annotations

import argparse
import json
import os

from graphcore import runtime
from graphcore.errors import ExportError
from graphcore.ir.graph import Graph
from graphcore.runtime.cli.options import Commands, add_links, command, links
from graphcore.runtime.lowering import TARGETS

_SUMMARY = "Writes a model whose matrix products read weights of few bits, and prints what became of each layer."
_EPILOG = """Patterns are of layers, results or weights, with * ? [...] as in the shell; * goes across layers.

examples:
  graphcore quantize model.onnx small.onnx --scheme int8_dynamic
  graphcore quantize model.onnx small.onnx --scheme int4 --exclude 'head*' --embeddings
"""


def add(commands: Commands) -> None:
    parser = command(commands, "quantize", _SUMMARY, _EPILOG)
    parser.add_argument("source", metavar="IN", help="the .onnx file to read")
    parser.add_argument("path", metavar="OUT", help="the .onnx file to write")
    parser.add_argument(
        "--scheme", default="int8_dynamic", metavar="NAME", help="int8_dynamic, int8, int4, q4_0, ... (int8_dynamic)"
    )
    parser.add_argument(
        "--include", action="append", default=[], metavar="PATTERN", help="only these layers; repeatable"
    )
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="not these; repeatable")
    parser.add_argument("--embeddings", action="store_true", help="also tables that rows are looked up in, to int8")
    parser.add_argument("--min-elements", type=int, default=1024, metavar="N", help="leave smaller weights (1024)")
    parser.add_argument("--block-size", type=int, metavar="N", help="of int4: 16, 32, 64, ... (32)")
    parser.add_argument("--reduce-range", action="store_true", help="of int8: 7 bits, for x86 without VNNI")
    parser.add_argument("--accuracy-level", type=int, choices=(0, 4), help="0 is exact, 4 is faster (4)")
    parser.add_argument("--strict", action="store_true", help="fail where a chosen layer cannot be quantised")
    parser.add_argument("--target", choices=TARGETS, default="cpu", help="what it is to run on (cpu)")
    parser.add_argument("--report", metavar="FILE", help="write the rows of the report as JSON too")
    add_links(parser)
    parser.set_defaults(function=quantize)


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
