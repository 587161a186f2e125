"""Commands that print or draw: `inspect`, `view`, `decompile` and `completion`."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from graphcore import runtime
from graphcore.cli import facts, output
from graphcore.cli.arguments import parser
from graphcore.cli.arguments.options import links
from graphcore.cli.distances import feeds_of
from graphcore.errors import MissingExtraError
from graphcore.ir.graph import Graph
from graphcore.runtime.inspection.placement import Placement
from graphcore.runtime.inspection.profiling import Profile

_FILES = frozenset({"MODEL", "IN", "OUT", "A", "B", "FILE"})
"""Metavars of arguments that are files."""


def completion(args: argparse.Namespace) -> int:
    try:
        import shtab  # of the extra `cli`
    except ImportError:
        raise MissingExtraError(
            "completion: the package shtab is not installed", help='pip install "graphcore-engine[cli]"'
        ) from None
    root = parser()
    _mark_files(root, shtab.FILE)
    print(shtab.complete(root, shell=args.shell))
    return 0


def _mark_files(parser: argparse.ArgumentParser, kind: object) -> None:
    """Mark the arguments that are files, for completion."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _mark_files(inner, kind)
        elif action.metavar in _FILES:
            action.complete = kind  # type: ignore[attr-defined]


def decompile(args: argparse.Namespace) -> int:
    with output.working(f"decompiling {args.model}"):
        text = Graph.load(args.model, **links(args)).to_python(args.output)
    count = len(text.splitlines())
    if args.json:
        output.document({"model": args.model, "output": args.output, "lines": count, "text": text})
    elif args.output is None:
        print(text, end="")
    else:
        output.line(f"wrote {args.output}: {count} lines")
    return 0


# `graphcore inspect`: facts about a model.


def inspect(args: argparse.Namespace) -> int:
    with output.working(f"loading {args.model}"):
        graph = Graph.load(args.model, **links(args))
        header = facts.header(args.model)
    with output.working(f"inspecting {args.model}"):
        info: dict[str, Any] = {
            "model": args.model,
            **header,
            **facts.ends(graph),
            **facts.contents(graph),
            **facts.work(graph, dict(args.dim)),
            "casts": facts.cast_list(graph),
            "lacks": facts.lacking(graph, args.provider),
        }
    if args.nodes:
        info["node_list"] = facts.node_list(graph)
    if args.weights:
        with output.progress("reading weights") as advance:
            info["weight_list"] = facts.weight_list(graph, advance)
    if args.json:
        output.document(info)
    else:
        show(info)
    return 0


# The output of `graphcore inspect` as tables.

_MAX_LAYERS = 40
_MAX_CASTS = 20
_MAX_REASONS = 3
"""Maximum number of rows of each table; --json has all."""


def show(info: Mapping[str, Any]) -> None:
    """Print the facts from `facts`."""
    opsets = ", ".join(f"{domain} {version}" for domain, version in info["opsets"].items())
    rows = [
        ("graph", info["name"]),
        ("file", output.size(info["bytes"]) + (", with external data" if info["external_data"] else "")),
        ("opset", opsets),
        ("IR version", str(info["ir_version"])),
        ("producer", info["producer"]),
        ("nodes", f"{info['nodes']}"),
        ("parameters", f"{output.short_count(info['parameters'])} in {output.size(info['weight_bytes'])}"),
        ("work", _work(info)),
        ("dims", ", ".join(info["dims"])),
        ("promotion", info["promotion"]),
    ]
    output.table([row for row in rows if row[1]])
    _show_ends(info)
    output.heading("operators")
    output.table([(name, str(count)) for name, count in info["operators"].items()], numbers=(1,))
    output.heading("dtypes")
    rows_of_dtypes = [(n, str(d["values"]), output.size(d["weight_bytes"])) for n, d in info["dtypes"].items()]
    output.table(rows_of_dtypes, head=("dtype", "values", "weights"), numbers=(1, 2))
    _show_layers(info)
    _show_casts(info["casts"])
    _show_lacking(info["lacks"])
    if "node_list" in info:
        _show_nodes(info["node_list"])
    if "weight_list" in info:
        _show_weights(info["weight_list"])


def _work(info: Mapping[str, Any]) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in info["sizes"].items())
    total = info["flops_with_sizes"] if info["flops"] is None else output.short_count(info["flops"])
    text = ("at least " if info["uncounted"] else "") + f"{total} FLOPs" + (f" with {sizes}" if sizes else "")
    uncounted = [f"{each['operator']} x{each['count']}: {each['reason']}" for each in info["uncounted"]]
    more = f" and {len(uncounted) - _MAX_REASONS} more" if len(uncounted) > _MAX_REASONS else ""
    return text + (f"; not counted: {'; '.join(uncounted[:_MAX_REASONS])}{more}" if uncounted else "")


def _show_ends(info: Mapping[str, Any]) -> None:
    output.heading("inputs and outputs")
    kinds = ("inputs", "outputs", "buffers")
    rows = [
        (kind[:-1], each["name"], each["type"] + (" = default" if "default" in each else ""))
        for kind in kinds
        for each in info[kind]
    ]
    output.table(rows)


def _show_layers(info: Mapping[str, Any]) -> None:
    layers = info["layers"]
    if not layers:
        return
    output.heading("layers")
    depth = max((d for d in range(12) if sum(each["depth"] <= d for each in layers) <= _MAX_LAYERS), default=0)
    displayed = [each for each in layers if each["depth"] <= depth][:_MAX_LAYERS]
    total = info["parameters"] or 1
    outer: dict[int, str] = {-1: ""}
    names = []
    for each in displayed:
        outer[each["depth"]] = f"{each['path']}/"
        names.append("  " * each["depth"] + each["path"].removeprefix(outer.get(each["depth"] - 1, "")))
    rows = [
        (
            name,
            str(each["nodes"]),
            output.short_count(each["parameters"]),
            f"{each['parameters'] / total:.1%}",
            output.size(each["bytes"]),
        )
        for name, each in zip(names, displayed, strict=True)
    ]
    output.table(rows, head=("layer", "nodes", "parameters", "", "weights"), numbers=(1, 2, 3, 4))
    if len(displayed) < len(layers):
        output.line(f"{len(layers) - len(displayed)} more layers inside these: --json has all")


def _show_casts(casts: Sequence[Mapping[str, Any]]) -> None:
    if not casts:
        return
    output.heading("casts")
    counts = Counter((f"{each['from']} -> {each['to']}", each["why"]) for each in casts)
    rows = [(pair, str(count), why) for (pair, why), count in counts.most_common()]
    output.table(rows[:_MAX_CASTS], head=("cast", "count", "why"), numbers=(1,))
    if len(rows) > _MAX_CASTS:
        output.line(f"{len(rows) - _MAX_CASTS} more kinds: --json has all")


def _show_lacking(lacks: Mapping[str, Any]) -> None:
    output.heading(f"what onnxruntime alone refuses or computes differently on {lacks['provider']}")
    if lacks["error"]:
        output.line(lacks["error"])
    elif not lacks["changes"]:
        output.line("nothing")
    else:
        rows = [
            (f"{each['operator']} {each['dtype']}".strip(), str(each["count"]), each["reason"], each["action"])
            for each in lacks["changes"]
        ]
        output.table(rows, head=("operator", "count", "why", "replaced by"), numbers=(1,))


def _show_nodes(nodes: Sequence[Mapping[str, Any]]) -> None:
    output.heading("nodes")
    rows = []
    for node in nodes:
        results = ", ".join(f"{each['name']}: {each['type']}" for each in node["results"])
        operands = ", ".join("-" if name is None else name for name in node["operands"])
        rows.append((node["operator"], operands, results))
    output.table(rows, head=("operator", "operands", "results"))


def _show_weights(weights: Sequence[Mapping[str, Any]]) -> None:
    output.heading("weights")
    rows = [
        (
            each["name"],
            f"{each['dtype']}[{', '.join(map(str, each['shape']))}]",
            output.size(each["bytes"]),
            _number(each["min"]),
            _number(each["max"]),
            _number(each["mean"]),
            str(each["zeros"]),
            str(each["nan"] + each["infinite"]),
        )
        for each in weights
    ]
    head = ("weight", "type", "bytes", "min", "max", "mean", "zeros", "not finite")
    output.table(rows, head=head, numbers=range(2, 8))


def _number(value: int | float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


# `graphcore view`: a page with the drawing of a model.


def view(args: argparse.Namespace) -> int:
    with output.working(f"loading {args.model}"):
        graph = Graph.load(args.model, **links(args))
        against = None if args.against is None else Graph.load(args.against, **links(args))
    profile, placement = _measure(args, graph) if args.profile else (None, None)
    with output.working("drawing"):
        path = graph.view(
            args.output,
            open=args.output is None,
            title=os.path.basename(args.model),
            targets=args.target or None,
            profile=profile,
            placement=placement,
            against=against,
            weight_bytes=args.weight_bytes,
            run=args.wasm or ("inline" if args.run else None),
        )
    if args.json:
        output.document({"model": args.model, "path": path, "bytes": os.path.getsize(path)})
        return 0
    output.line(f"{args.output or path}: {output.size(os.path.getsize(path))}")
    return 0


def _measure(args: argparse.Namespace, graph: Graph) -> tuple[Profile, Placement]:
    """Return the time and the provider of each node."""
    with output.working("measuring"):
        model = runtime.InferenceSession(args.provider).load(graph)
        feeds = feeds_of("view", model.name, model.inputs, args, fills=True)
        return model.profile(feeds), model.placement()
