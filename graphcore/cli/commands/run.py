"""`graphcore run`: run a model on arrays from files, or on random ones."""

from __future__ import annotations

import argparse

from graphcore import runtime
from graphcore.cli import arrays, output
from graphcore.cli.arguments.options import limits, links, sandbox_limits
from graphcore.cli.distances import feeds_of
from graphcore.errors import GraphError


def run(args: argparse.Namespace) -> int:
    model: runtime.Model | runtime.IsolatedModel
    with output.working(f"loading {args.model}"):
        if args.isolated:
            model = _isolated(args)
        else:
            session = runtime.InferenceSession(args.provider, precision=args.precision)
            model = session.load(args.model, limits=limits(args), **links(args))
    feeds = feeds_of("run", model.name, model.inputs, args, fills=args.random)
    with output.working(f"running {args.model}"):
        results = dict(zip(model.outputs, model(**feeds), strict=True))
    notes = arrays.write(args.output, results) if args.output else []
    if args.json:
        outputs = [{"name": name, **arrays.describe(result)} for name, result in results.items()]
        output.document({"model": args.model, "outputs": outputs, "written": args.output, "notes": notes})
        return 0
    for name, result in results.items():
        output.line(arrays.summary(name, result, model.outputs[name]))
    for text in notes:
        output.line(text)
    return 0


def _isolated(args: argparse.Namespace) -> runtime.IsolatedModel:
    if args.limit:
        raise GraphError(
            "run: --limit and --isolated exclude each other: a sandboxed process has its own limits",
            help="give one of them",
        )
    session = runtime.IsolatedSession(args.provider, precision=args.precision, **sandbox_limits())
    return session.load(args.model, **links(args))
