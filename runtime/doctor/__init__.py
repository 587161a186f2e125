"""Report on an installation: packages, whether graphs run, and workarounds in force. `graphcore doctor` prints it.

Nothing here raises: a failed check is a finding.
"""

from __future__ import annotations

import numpy as np

from graphcore import runtime
from graphcore.ir.graph import Graph
from graphcore.runtime.doctor.machine import describe_machine, find_packages
from graphcore.runtime.doctor.release import (
    Device,
    DoctorReport,
    Notebook,
    Packages,
    Provider,
    Starting,
    TrapStatus,
    describe_release,
    installs,
    list_devices,
    list_traps,
)
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


def report() -> DoctorReport:
    """Return the report, which takes a second or two: each provider other than the CPU's starts once in a
    subprocess."""
    book = Notebook()
    there = book.look("packages", find_packages, Packages(), "problem")
    version = there.versions.get("onnxruntime", "")
    none: list[str] = []
    names = book.look("providers", lambda _: _installed(), none, "problem") if version else none
    starting = book.look("providers", lambda _: Starting(names), None, "note")
    release = None
    if version:
        book.look("graphs", _run, None, "problem")
        release = book.look("release", describe_release, None, "problem")
    here = book.look("machine", describe_machine, None, "note")
    untried = tuple(Provider(name, None, "it was not tried") for name in names)
    providers = untried if starting is None else book.look("providers", starting.providers, untried, "note")
    no_devices: tuple[Device, ...] = ()
    no_traps: tuple[TrapStatus, ...] = ()
    return DoctorReport(
        packages=there,
        release=release,
        traps=book.look("traps", lambda _: list_traps(version), no_traps, "note") if version else no_traps,
        providers=providers,
        devices=book.look("devices", lambda _: list_devices(), no_devices, "note") if version else no_devices,
        machine=here,
        installs=installs(names) if version else {},
        findings=tuple(sorted(book.findings, key=lambda finding: finding.level != "problem")),
    )


def _installed() -> list[str]:
    import onnxruntime

    return list(onnxruntime.get_available_providers())


def _run(book: Notebook) -> None:
    """Run a graph, and note a problem if its numbers are wrong."""
    graph = Graph("trial", {"x": TensorType(DType.int8, ["n"]), "y": TensorType(DType.float32, ["n"])})
    graph.output(z=(graph["x"] // 2) + graph["y"])
    (result,) = runtime.InferenceSession().load(graph)(np.array([-7, 7], np.int8), np.array([0.5, 0.25], np.float32))
    if result.tolist() != [-3.5, 3.25]:
        book.add("problem", "graphs", f"[-7, 7] // 2 + [0.5, 0.25] gives {result.tolist()} instead of [-3.5, 3.25]")
