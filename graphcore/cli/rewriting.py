"""Commands that read a file, make another graph of it and write that: the calls of docs/surgery.md."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import onnx

from graphcore.arrays.external_data import model_bytes
from graphcore.cli import output
from graphcore.cli.arguments.options import links
from graphcore.ir.graph import Graph
from graphcore.onnx.proto.split_weights import split


def rewrite(args: argparse.Namespace, change: Callable[[Graph], Graph]) -> int:
    """Read `args.source`, change the graph, and write `args.path`; weights that lie in files beside the one lie in one
    beside the other. Raises what reading, changing and writing raise, and nothing is written then."""
    with output.working(f"loading {args.source}"):
        graph = Graph.load(args.source, **links(args))
        has_data = args.external_data or is_external(args.source)
    with output.working(f"{args.command}: {args.source}"):
        made = change(graph)
    with output.progress(f"writing {args.path}") as advance:
        made.export(
            args.path,
            target=args.target,
            external_data=True if has_data else None,
            opset=args.opset,
            ir_version=args.ir_version,
            runtime=args.runtime,
            progress=advance,
        )
    inputs = {s.name: str(s.type) for s in made.inputs}
    outputs = {name: str(type_) for name, type_ in made.output_types.items()}
    if args.json:
        output.document(
            {
                "source": args.source,
                "path": args.path,
                "bytes": os.path.getsize(args.path),
                "external_data": f"{args.path}.data" if has_data and os.path.exists(f"{args.path}.data") else None,
                "nodes": len(made.nodes),
                "inputs": [{"name": name, "type": type_} for name, type_ in inputs.items()],
                "outputs": [{"name": name, "type": type_} for name, type_ in outputs.items()],
            }
        )
        return 0
    output.line(f"{args.path}: {len(made.nodes)} nodes")
    rows = [("input", name, type_) for name, type_ in inputs.items()]
    output.table(rows + [("output", name, type_) for name, type_ in outputs.items()])
    return 0


def is_external(path: str) -> bool:
    """Return whether some weights of a model lie in files beside it."""
    head, _ = split(model_bytes(path))
    model = onnx.ModelProto.FromString(head)
    return any(each.data_location == onnx.TensorProto.EXTERNAL for each in model.graph.initializer)
