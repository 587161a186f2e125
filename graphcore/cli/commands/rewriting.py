"""Commands that read a model and write it anew: `astype`, `convert`, `extract`, `quantize` and `rename`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

import onnx

from graphcore import runtime
from graphcore.arrays.external_data import model_bytes
from graphcore.cli import files, output
from graphcore.cli.arguments.options import links
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.onnx.proto.split_weights import split


def rename(args: argparse.Namespace) -> int:
    names, values, dims = (_mapping(given) for given in (args.names, args.value, args.dim))
    if not names and not values and not dims:
        raise GraphError("rename: no name is given", help="say which: graphcore rename IN OUT old=new")
    return rewrite(args, lambda graph: graph.rename(names, values=values, dims=dims))


def _mapping(given: Sequence[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for old, new in given:
        if old in found:
            raise GraphError(f"rename: {old!r} is given two names", help="give one")
        found[old] = new
    return found


# Commands that read a file, make another graph of it and write that: the calls of docs/surgery.md.


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


# `graphcore astype`: a model that computes in another dtype of floats.


def astype(args: argparse.Namespace) -> int:
    return rewrite(
        args, lambda graph: graph.astype(args.dtype, source=args.dtypes, keep=args.keep, keep_io=not args.io)
    )


# `graphcore convert`: a model written anew for a target.


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


# `graphcore extract`: the part of a model that computes some values from others.


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


# `graphcore quantize`: a model with weights of few bits, and what became of each layer.


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
