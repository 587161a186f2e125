"""The report of `graphcore check` as plain values, in this process or in a worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from graphcore import runtime
from graphcore.arrays.external_data import links_of
from graphcore.arrays.resource_limits import Limits
from graphcore.cli.arguments.options import LinkArguments
from graphcore.ir.graph import Graph, TargetName
from graphcore.onnx.notes import IR_VERSION, OPSET
from graphcore.runtime.export import Options, write_graph
from graphcore.runtime.inspection.placement import planned
from graphcore.runtime.lowering.file_versions import choose_versions, web_target
from graphcore.runtime.lowering.report import LoweringReport, listed, report
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.ort import release
from graphcore.runtime.sessions.direct import start
from graphcore.runtime.sessions.direct.scan import CountingScan


def examine(
    path: str,
    links: LinkArguments,
    provider: str,
    limit_values: Mapping[str, float],
    is_strict: bool,
    target: TargetName | None = None,
    runtime_name: str | None = None,
) -> dict[str, Any]:
    """Return the document of `--json`, without the path, and the lines of the text under "lines".

    target, runtime_name: what a file is written for; both None for a session of the provider. Raises the errors of
    reading, lowering and starting the model.
    """
    if target is not None or runtime_name is not None:
        graph = Graph.load(path, limits=Limits.of(dict(limit_values)), **links)
        return _examine_export(graph, target or "cpu", runtime_name, is_strict)
    session = runtime.InferenceSession(provider)
    limits = Limits.of(dict(limit_values))
    opened = start.Opened(path, links_of(links["external_data"], links["external_data_root"]), limits)
    scans: list[CountingScan] = []

    def scan(*args: Any, **options: Any) -> CountingScan:
        scans.append(CountingScan(*args, **options))
        return scans[-1]

    if provider == "cpu":
        plan = start.plan_direct(opened, "auto", make_scan=scan, lowering=(session.precision, session.optimize))
    else:
        plan = f"it is lowered for {provider}"
    needs_graph = plan if isinstance(plan, str) else None
    # Signs disable optimisers of the session, which onnxruntime alone would run.
    is_direct = (
        not isinstance(plan, str)
        and plan.splice is None
        and not scans[0].signs
        and session.load(path, limits=limits, prepared=False, **links)._is_direct
    )
    if is_direct:
        lowering, stamps = LoweringReport(unchanged=scans[0].counts), _stamps([scans[0].opset], opened.proto.ir_version)
    else:
        graph = Graph.load(path, limits=limits, **links)
        session.load(graph)
        lowering = report(graph, session.target, release.runtime(), session.optimize)
        opsets = [o.version for o in opened.proto.opset_import if o.domain in ("", "ai.onnx")]
        stamps = _stamps(opsets, opened.proto.ir_version)
    is_touched = lowering.fused or lowering.faster or lowering.added
    status = 1 if stamps or lowering.changes or (is_strict and is_touched) else 0
    head = {"status": status, "provider": session.providers[0], "stamps": stamps, "needs_graph": needs_graph}
    return head | _as_dict(lowering) | {"lines": [*stamps, *_lines(lowering)]}


def _examine_export(graph: Graph, target: TargetName, runtime_name: str | None, is_strict: bool) -> dict[str, Any]:
    """Return the document for a file, with the nodes that a device leaves to its host."""
    target = web_target(target, runtime_name)
    written = write_graph(graph, Options(target, runtime=runtime_name))
    lowered_for = replace(choose_versions(target, runtime=runtime_name).runtime, opset=written.versions[""])
    lowering = report(graph, target, lowered_for, "all")
    counts = Counter((o.operator, o.reason) for o in planned(written.graph, target, lowered_for).left)
    fallbacks = [{"operator": op, "reason": why, "count": count} for (op, why), count in sorted(counts.items())]
    is_touched = lowering.fused or lowering.faster or lowering.added or fallbacks
    status = 1 if lowering.changes or (is_strict and is_touched) else 0
    head = {"status": status, "provider": TARGETS[target].provider, "stamps": [], "needs_graph": None}
    lines = [f"falls back to the CPU: {f['operator']} x{f['count']}: {f['reason']}" for f in fallbacks]
    return head | _as_dict(lowering) | {"fallbacks": fallbacks, "lines": [*_lines(lowering), *lines]}


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
            change.as_dict() | {"made": dict(change.computed_by), "names": change.names} for change in lowering.changes
        ],
        "faster": {"given_up": dict(lowering.fused), "made": dict(lowering.faster)},
        "added": dict(lowering.added),
        "kept": [{"operator": name, "dtype": dtype, "count": n} for (name, dtype), n in lowering.unchanged.items()],
        "passes": [{"name": step.name, "why": step.why} for step in lowering.passes],
    }


def _stamps(opsets: Iterable[int], ir_version: int) -> list[str]:
    """Return a line for each version of a file that is newer than the versions that graphcore writes."""
    lines = [f"opset {v}: converted to {OPSET}" for v in opsets if v > OPSET]
    if ir_version > IR_VERSION:
        lines.append(f"IR version {ir_version}: written anew as {IR_VERSION}")
    return lines
