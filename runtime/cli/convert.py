"""`graphcore convert`: a model written anew for a target."""

from __future__ import annotations

import argparse
import os

from graphcore.errors import ExportError
from graphcore.ir.graph import Graph
from graphcore.runtime.cli.options import Commands, add_links, command, links
from graphcore.runtime.lowering import PRECISIONS, TARGETS

_SUMMARY = "Writes a model so that a plain onnxruntime of the target runs it, or as standard ONNX."


def add(commands: Commands) -> None:
    parser = command(commands, "convert", _SUMMARY, "example:\n  graphcore convert new.onnx plain.onnx --target cpu\n")
    parser.add_argument("source", metavar="IN", help="the .onnx file to read")
    parser.add_argument("path", metavar="OUT", help="the .onnx file to write")
    parser.add_argument("--target", choices=TARGETS, default="cpu", help="what it is to run on (cpu)")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="exact", help="whether narrow floats round after every op"
    )
    parser.add_argument(
        "--implicit-casts", action="store_true", help="cast operands of several dtypes as the promotion system says"
    )
    parser.add_argument(
        "--promotion", metavar="SYSTEM", help="the promotion system (the one that the model notes, or max)"
    )
    parser.add_argument("--opset", type=int, metavar="N", help="ONNX's opset of OUT (the oldest that will do)")
    parser.add_argument(
        "--ir-version", type=int, metavar="N", help="the version of the file format (the one that goes with the opset)"
    )
    parser.add_argument("--runtime", metavar="RELEASE", help="the onnxruntime that is to run it, such as 1.20")
    parser.add_argument("--external-data", action="store_true", help="put weights into a file beside it, OUT.data")
    add_links(parser)
    parser.set_defaults(function=convert)


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
