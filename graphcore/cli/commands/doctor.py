"""`graphcore doctor`: the installed onnxruntime, how graphcore adapts to it, and what keeps graphs from running."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Mapping

from graphcore.cli import output
from graphcore.cli.output import aligned
from graphcore.runtime.doctor import report
from graphcore.runtime.doctor.release import (
    Device,
    DoctorReport,
    Finding,
    InstalledRelease,
    Machine,
    Provider,
    TrapStatus,
)

_WIDTH = 110
_MAX_OPERATORS = 4
"""Maximum number of operators that differ in a line; --json has all."""


def doctor(args: argparse.Namespace) -> int:
    result = report()
    if args.json:
        output.document(result.as_json())
    else:
        for each in text(result, args.traps):
            output.line(each)
    return 0 if result.runs else 1


def text(result: DoctorReport, names_traps: bool = False) -> list[str]:
    """Return the report as lines: the verdict, the findings with their fixes, then the facts by subject."""
    versions = result.packages.versions
    installed = versions.get("onnxruntime") or "that cannot be imported"
    verdict = "graphs run" if result.runs else "graphs do not run"
    lines = [f"graphcore {versions.get('graphcore', '')} with onnxruntime {installed}: {verdict}"]
    for finding in result.findings:
        lines += ["", *_finding(finding)]
    lines += _section("versions", [(name, version or "not installed") for name, version in versions.items()])
    distributions = [(one.name, one.version) for one in result.packages.distributions]
    lines += _section("packages with the module onnxruntime", distributions)
    if result.release is not None:
        lines += _section("release", [*_release(result.release), ("traps", _count_traps(result.traps))])
    if names_traps:
        lines += _section("traps", [(trap.name, _trap(trap)) for trap in result.traps])
    lines += _section("providers", [(one.name, _provider(one)) for one in result.providers])
    lines += _section("devices", [(one.provider, _device(one)) for one in result.devices])
    if result.machine is not None:
        lines += _section("machine", _machine(result.machine))
    lines += _section("to install", list(result.installs.items()))
    return lines


def _finding(finding: Finding) -> list[str]:
    head = f"{finding.level}: "
    lines = textwrap.wrap(head + finding.text, _WIDTH, subsequent_indent=" " * len(head), break_on_hyphens=False)
    return [*lines, " " * len(head) + finding.help] if finding.help else lines


def _section(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    listed = [(f"  {name}", value) for name, value in rows if value]
    return ["", title, *aligned(listed)] if listed else []


def _release(release: InstalledRelease) -> list[tuple[str, str]]:
    built = f", build {release.build}" if release.build else ""
    measured = "measured" if release.is_measured else "not measured"
    table = "of this release" if release.is_measured else f"of {release.table}, the nearest measured release"
    registry = {
        "not asked": "not read, since this release was measured",
        "unreadable": "cannot be read; the table is used",
        "unsafe": "not read, since that can crash builds with other providers; the table is used",
        "read": f"read; {_differing(release.lacks, 'fewer')}; {_differing(release.adds, 'more')}, which are not used",
    }
    return [
        ("onnxruntime", f"{release.version}{built}: {measured}"),
        ("supports", f"up to opset {release.takes_opset} and IR {release.takes_ir}"),
        ("uses", f"opset {release.opset} and IR {release.ir}"),
        ("table", table),
        ("list of kernels", registry[release.registry]),
    ]


def _differing(rows: Mapping[str, tuple[str, ...]], what: str) -> str:
    if not rows:
        return f"no {what} kernels than the table"
    named = ", ".join(f"{op} {' '.join(dtypes)}" for op, dtypes in list(rows.items())[:_MAX_OPERATORS])
    rest = f" and {len(rows) - _MAX_OPERATORS} more operators" if len(rows) > _MAX_OPERATORS else ""
    return f"{what} kernels than the table: {named}{rest}"


def _count_traps(traps: tuple[TrapStatus, ...]) -> str:
    if not traps:
        return "all in force: the affected releases were not measured"
    count = sum(trap.in_force for trap in traps)
    return f"{count} of {len(traps)} are in force, measured in this release or a neighbouring one (--traps)"


def _trap(trap: TrapStatus) -> str:
    ends = f"from {trap.first} on" * bool(trap.first), f"up to {trap.last}" * bool(trap.last)
    seen = " ".join(end for end in ends if end) or "in every release"
    return f"{'in force' if trap.in_force else 'not in force'}: seen {seen}"


def _provider(provider: Provider) -> str:
    if provider.has_started is None:
        return f"not tried: {provider.reason}"
    return "starts" if provider.has_started else f"does not start: {provider.reason}"


def _device(device: Device) -> str:
    facts = [f"provider of {device.provider_vendor}", *(f"{name}={value}" for name, value in device.metadata.items())]
    return f"{device.type} of {device.vendor or 'an unknown vendor'}, id {device.id:#x}: {', '.join(facts)}"


def _machine(machine: Machine) -> list[tuple[str, str]]:
    limit = "" if machine.limit is None else f"; the cgroup allows {machine.limit:g}"
    present = [name for name, has in machine.instructions.items() if has]
    lacking = [name for name, has in machine.instructions.items() if has is False]
    sets = "; ".join(filter(None, (" ".join(present), f"not {' '.join(lacking)}" * bool(lacking))))
    saturate = {None: "unknown", True: "saturate: quantised weights are read as unsigned", False: "exact"}
    usual = "used for models whose buffers are written in place, or with huge_pages=True"
    pages = f"{machine.huge_pages}: {usual if machine.gathers else 'sessions do not use them'}"
    return [
        ("system", f"{machine.system} {machine.architecture}"),
        ("processor", machine.processor or "unknown"),
        ("cores", f"{_count(machine.cores)} with {_count(machine.threads)} threads"),
        ("this process", f"can use {_count(machine.usable)} threads{limit}"),
        ("instructions", sets or "unknown"),
        ("products of bytes", saturate[machine.bytes_saturate]),
        ("large pages", pages if machine.huge_pages else "none that sessions can use"),
    ]


def _count(number: int | None) -> str:
    return "unknown" if number is None else str(number)
