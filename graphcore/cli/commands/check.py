"""`graphcore check`: the changes that a model needs so that onnxruntime runs it with exact numbers."""

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
from graphcore.runtime.lowering.report import LoweringReport, listed, report
from graphcore.runtime.ort import release
from graphcore.runtime.sessions.direct import start


def check(args: argparse.Namespace) -> int:
    """Print the changes to a model. Returns 0 if onnxruntime alone gives the same numbers, else 1.

    With --strict it returns 0 only if no node is changed, replaced or added.
    """
    session = runtime.InferenceSession(args.provider)
    is_isolated = args.provider == "cpu" and os.name == "posix" if args.isolated is None else args.isolated
    with output.working(f"reading {args.model}"):
        if is_isolated:  # before this process reads the file: a crash or an endless loop becomes an error
            runtime.IsolatedSession(args.provider, **sandbox_limits()).load(args.model, **links(args)).close()
        graph = Graph.load(args.model, limits=limits(args), **links(args))
        if not is_isolated:
            session.load(graph)
        lowering = report(graph, session.target, release.runtime(), session.optimize)
    stamps = _stamps(args.model)
    needs_graph = _needs_graph(args)
    is_touched = lowering.fused or lowering.faster or lowering.added
    status = 1 if stamps or lowering.changes or (args.strict and is_touched) else 0
    if args.json:
        head = {"model": args.model, "status": status, "provider": session.providers[0], "stamps": stamps}
        output.document(head | {"needs_graph": needs_graph} | _as_dict(lowering))
        return status
    for line in (*stamps, *_lines(lowering)):
        output.line(line)
    output.line("loads as it is" if needs_graph is None else f"loads through a Graph: {needs_graph}")
    output.line(
        f"{args.model}: runs on {session.providers[0]}; "
        f"{lowering.changed} of {lowering.count} nodes are computed otherwise"
    )
    return status


def _needs_graph(args: argparse.Namespace) -> str | None:
    """Return why loading the file makes a Graph of it; None if its bytes go to onnxruntime unchanged."""
    if args.provider not in (None, "cpu"):
        return f"it is lowered for {args.provider}"
    link_args = links(args)
    opened = start.Opened(
        args.model, links_of(link_args["external_data"], link_args["external_data_root"]), limits(args)
    )
    start_result = start.plan_direct(opened, "auto")
    return start_result if isinstance(start_result, str) else None


def _lines(lowering: LoweringReport) -> list[str]:
    lines = [str(change) for change in lowering.changes]
    if lowering.fused:
        lines.append(f"fused, folded or left out: {listed(lowering.fused)}; now {listed(lowering.faster) or 'nothing'}")
    if lowering.added:
        lines.append(f"added: {listed(lowering.added)}")
    if lowering.unchanged:
        unchanged = {f"{op_type} {dtype}".strip(): n for (op_type, dtype), n in lowering.unchanged.items()}
        lines.append(f"kept: {listed(Counter(unchanged))}")
    if lowering.passes:
        lines.append("passes:")
    return lines + [f"  {step.name}: {step.why}" for step in lowering.passes]


def _as_dict(lowering: LoweringReport) -> dict[str, Any]:
    return {
        "nodes": lowering.count,
        "changed": lowering.changed,
        "changes": [
            {
                "operator": change.op_type,
                "dtype": change.dtype,
                "count": len(change.names),
                "reason": change.reason,
                "action": change.action,
                "made": dict(change.computed_by),
                "names": change.names,
            }
            for change in lowering.changes
        ],
        "faster": {"given_up": dict(lowering.fused), "made": dict(lowering.faster)},
        "added": dict(lowering.added),
        "kept": [{"operator": name, "dtype": dtype, "count": n} for (name, dtype), n in lowering.unchanged.items()],
        "passes": [{"name": step.name, "why": step.why} for step in lowering.passes],
    }


def _stamps(path: str) -> list[str]:
    """Return a line for each version of a file that is newer than the versions that graphcore writes."""
    head, _ = split(model_bytes(path))
    model = onnx.ModelProto.FromString(head)
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    lines = [f"opset {v}: converted to {OPSET}" for v in versions if v > OPSET]
    if model.ir_version > IR_VERSION:
        lines.append(f"IR version {model.ir_version}: written anew as {IR_VERSION}")
    return lines
