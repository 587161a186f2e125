"""`graphcore check`: what is done to a model so that onnxruntime runs it with the promised numbers."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from typing import Any

import onnx

from graphcore import runtime
from graphcore.arrays.external_data import links_of, model_bytes
from graphcore.cli import output
from graphcore.cli.arguments.options import limits, links, sandbox_limits
from graphcore.ir.graph import Graph
from graphcore.onnx.notes import IR_VERSION, OPSET
from graphcore.onnx.proto.value_protos import split
from graphcore.runtime.lowering.report import Report, listed, report
from graphcore.runtime.ort import release
from graphcore.runtime.sessions.direct import start


def check(args: argparse.Namespace) -> int:
    """Print what is done to a model. Returns 0 where onnxruntime alone gives the same numbers, else 1.

    With --strict it returns 0 where the nodes run as they stand, and no other.
    """
    session = runtime.InferenceSession(args.provider)
    is_isolated = args.provider == "cpu" and os.name == "posix" if args.isolated is None else args.isolated
    with output.working(f"reading {args.model}"):
        if is_isolated:  # before the file is read here: what ends a process or never ends is an error then
            runtime.IsolatedSession(args.provider, **sandbox_limits()).load(args.model, **links(args)).close()
        graph = Graph.load(args.model, limits=limits(args), **links(args))
        if not is_isolated:
            session.load(graph)
        made = report(graph, session.target, release.runtime(), session.optimize)
    stamps = _stamps(args.model)
    needs_graph = _needs_graph(args)
    is_touched = made.fused or made.faster or made.added
    status = 1 if stamps or made.changes or (args.strict and is_touched) else 0
    if args.json:
        head = {"model": args.model, "status": status, "provider": session.providers[0], "stamps": stamps}
        output.document(head | {"needs_graph": needs_graph} | _as_dict(made))
        return status
    for line in (*stamps, *_lines(made)):
        output.line(line)
    output.line("loads as it is" if needs_graph is None else f"loads through a Graph: {needs_graph}")
    output.line(
        f"{args.model}: runs on {session.providers[0]}; {made.changed} of {made.count} nodes are computed otherwise"
    )
    return status


def _needs_graph(args: argparse.Namespace) -> str | None:
    """Return why loading the file makes a Graph of it; None where its bytes go to onnxruntime as they are."""
    if args.provider not in (None, "cpu"):
        return f"it is lowered for {args.provider}"
    given = links(args)
    opened = start.Opened(args.model, links_of(given["external_data"], given["external_data_root"]), limits(args))
    found = start.plan_direct(opened, "auto")
    return found if isinstance(found, str) else None


def _lines(made: Report) -> list[str]:
    lines = [str(change) for change in made.changes]
    if made.fused:
        lines.append(f"fused, folded or left out: {listed(made.fused)}; now {listed(made.faster) or 'nothing'}")
    if made.added:
        lines.append(f"added: {listed(made.added)}")
    if made.kept:
        lines.append(f"kept: {listed(_by_operator(made))}")
    if made.passes:
        lines.append("passes:")
    return lines + [f"  {step.name}: {step.why}" for step in made.passes]


def _by_operator(made: Report) -> Counter[str]:
    return Counter({f"{op_type} {dtype}".strip(): count for (op_type, dtype), count in made.kept.items()})


def _as_dict(made: Report) -> dict[str, Any]:
    return {
        "nodes": made.count,
        "changed": made.changed,
        "changes": [
            {
                "operator": change.op_type,
                "dtype": change.dtype,
                "count": len(change.names),
                "reason": change.reason,
                "action": change.action,
                "made": dict(change.made),
                "names": change.names,
            }
            for change in made.changes
        ],
        "faster": {"given_up": dict(made.fused), "made": dict(made.faster)},
        "added": dict(made.added),
        "kept": [{"operator": name, "dtype": dtype, "count": n} for (name, dtype), n in made.kept.items()],
        "passes": [{"name": step.name, "why": step.why} for step in made.passes],
    }


def _stamps(path: str) -> list[str]:
    """Return a line for each version that a file is stamped with and that is newer than what is written."""
    head, _ = split(model_bytes(path))
    model = onnx.ModelProto.FromString(head)
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    found = [f"opset {v}: converted to {OPSET}" for v in versions if v > OPSET]
    if model.ir_version > IR_VERSION:
        found.append(f"IR version {model.ir_version}: written anew as {IR_VERSION}")
    return found
