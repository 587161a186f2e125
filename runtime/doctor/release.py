"""Facts of the installed release of onnxruntime: its table, differences of its kernels, and the traps in force."""

from __future__ import annotations

import dataclasses
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from graphcore.ir.graph import Graph
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.lowering.targets.releases import Registry, ReleaseRange, Runtime, table_of
from graphcore.runtime.lowering.targets.traps import in_force, trap_ranges
from graphcore.runtime.ort import devices
from graphcore.runtime.ort.release import is_safe
from graphcore.support import telemetry
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

TELEMETRY = ReleaseRange("1.29.0")
"""The releases, of 1.27.0 to 1.32.0 on Linux, that look up a telemetry host within a minute of their first session."""

_MAX_VERSIONS = 40
"""Maximum number of versions that are probed, one after the other, to find the newest that a release supports."""


def describe_release(book: Notebook) -> InstalledRelease:
    """Return the facts of the installed release. Raises `RunError` if it is too old to run graphs."""
    import onnxruntime

    from graphcore.runtime.ort import release  # onnxruntime, which may be missing

    version = onnxruntime.__version__
    runtime = release.runtime()
    is_measured = release.measured_release() is not None
    table = table_of("cpu").nearest(version).version
    registry = runtime.registry
    lacks, adds = ({}, {}) if registry is None else beside_table(registry, runtime)
    if not is_measured:
        is_plain = getattr(onnxruntime, "package_name", "onnxruntime") == "onnxruntime"
        _note_unmeasured(book, version, table, registry is not None, is_plain)
        if lacks:
            book.add("note", "release", "it lacks kernels that the table has: graphs are lowered to other kernels")
    _note_telemetry(book, version)
    return InstalledRelease(
        version=version,
        build=release.build_commit(),
        is_measured=is_measured,
        takes_opset=_newest(runtime.opset, release.takes),
        takes_ir=_newest(runtime.ir, lambda ir: release.takes(17, ir)),
        opset=runtime.opset,
        ir=runtime.ir,
        table=table,
        registry=_registry_state(is_measured, registry is not None),
        lacks=lacks,
        adds=adds,
    )


def list_traps(version: str) -> tuple[TrapStatus, ...]:
    """Return the measured traps by name, and whether each is in force in a release."""
    runtime = Runtime(version)
    ranges = sorted(trap_ranges().ranges.items())
    return tuple(TrapStatus(name, where.first, where.last, in_force(name, runtime)) for name, where in ranges)


def beside_table(registry: Registry, runtime: Runtime) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return by operator the dtypes that a build lacks and adds, compared with the nearest table of the CPU."""
    table = table_of("cpu")
    lacks, adds = {}, {}
    for op_type, row in sorted(table.kernels(runtime).items()):
        listed = registry.dtypes(table.provider, op_type, runtime.opset)
        if listed is None:
            continue
        if row - listed:
            lacks[op_type] = tuple(sorted(map(str, row - listed)))
        if listed - row:
            adds[op_type] = tuple(sorted(map(str, listed - row)))
    return lacks, adds


def _newest(newest: int, takes: Callable[[int], bool]) -> int:
    """Return the newest supported version, starting from a supported one."""
    return next((n for n in range(newest, newest + _MAX_VERSIONS) if not takes(n + 1)), newest + _MAX_VERSIONS)


def _registry_state(is_measured: bool, is_read: bool) -> str:
    if is_measured:
        return "not asked"
    if is_read:
        return "read"
    return "unreadable" if is_safe() else "unsafe"


def _note_unmeasured(book: Notebook, version: str, table: str, is_read: bool, is_plain: bool) -> None:
    """Note an unmeasured release. is_plain: whether the package is onnxruntime's own, with a measured release to
    install."""
    less = " without the kernels that it lacks" if is_read else ""
    newest = table_of("cpu").newest.version
    book.add(
        "note",
        "release",
        f"onnxruntime {version}, or this build of it, was not measured: graphs are lowered by the table of {table}"
        f"{less}, and avoid every trap of that release",
        f"results are correct; to use a measured release: pip install onnxruntime=={newest}" if is_plain else "",
    )


def _note_telemetry(book: Notebook, version: str) -> None:
    if not TELEMETRY.includes(version) or telemetry.is_off():
        return
    text = (
        f"onnxruntime, seen from {TELEMETRY.first} on, keeps events in the user's cache folder, and looks up"
        " mobile.events.data.microsoft.com to send them"
    )
    if telemetry.came_late():
        text += ": it was imported before graphcore, which then could only turn off new events"
        wayout = f"import graphcore first, or set {telemetry.SWITCH}=1 in the environment"
    else:
        wayout = f"as the environment asks: to switch it off, unset {telemetry.WANTED} and set {telemetry.SWITCH}=1"
    book.add("note", "telemetry", text, wayout)


# Installed execution providers, whether each starts, and what to install for others.

CPU = "CPUExecutionProvider"
SECONDS = 5.0
"""Seconds that a provider may take to start."""

INSTALLS = {
    "CUDAExecutionProvider": "pip install 'graphcore-engine[gpu]', then pip uninstall -y onnxruntime, then "
    "pip install --force-reinstall --no-deps onnxruntime-gpu",
    "OpenVINOExecutionProvider": "pip install 'graphcore-engine[openvino]', then pip uninstall -y onnxruntime "
    "onnxruntime-openvino, then pip install onnxruntime-openvino",
}
"""For providers besides the CPU's. The packages contain the same module: only one can be installed."""

_NOT_TRIED = {"AzureExecutionProvider": "it calls remote services, and runs no graph locally"}
_NOT_ON = {"Darwin": ("CUDAExecutionProvider",)}
_MAX_LENGTH = 300
_LOGGED = re.compile(r"\x1b\[[\d;]*m|^.*\[ONNXRuntimeError\] : \d+ : \w+ : |^.*\[[EW]:onnxruntime:[^\]]*\] ?")
"""Prefixes and colours of lines in onnxruntime's log."""
_FRAMES = re.compile(r"^Traceback .*\n(?:[ \t].*\n)*", re.MULTILINE)
"""A traceback up to the exception. Its source lines look like messages, and Python 3.13 prints those of `-c` too."""

_START = """
import sys, onnxruntime
session = onnxruntime.InferenceSession(sys.stdin.buffer.read(), providers=[sys.argv[1]], enable_fallback=0)
print(*session.get_providers())
"""
"""The program that starts a provider, in a process of its own, so that a crash ends nothing else: it prints those that
started. onnxruntime writes the reason why one did not start to stderr."""


class Starting:
    """Starts all installed providers in parallel."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        tried = [name for name in names if name != CPU and name not in _NOT_TRIED]
        self._children = {name: _child(name) for name in tried}

    def providers(self, book: Notebook) -> tuple[Provider, ...]:
        """Return the providers, which started or not; note those that did not."""
        providers = tuple(map(self._provider, self._names))
        for provider in providers:
            if provider.has_started is False:
                text = f"{provider.name} is installed and does not start: {provider.reason}"
                book.add("note", "providers", text, _help(provider.name))
        return providers

    def _provider(self, name: str) -> Provider:
        if name == CPU:
            return Provider(name, True)
        if name not in self._children:
            return Provider(name, None, _NOT_TRIED[name])
        child = self._children[name]
        try:
            out, err = child.communicate(_model(), timeout=SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return Provider(name, False, f"it had not started after {SECONDS:g} s")
        if name in out.decode(errors="replace").split():
            return Provider(name, True)
        return Provider(name, False, _reason(err.decode(errors="replace"), child.returncode))


def list_devices() -> tuple[Device, ...]:
    """Return the devices that onnxruntime reports, with the metadata of the provider and of the hardware."""
    return tuple(
        Device(d.ep_name, d.ep_vendor, h.type.name, h.vendor, h.device_id, {**d.ep_metadata, **h.metadata})
        for d, h in ((device, device.device) for device in devices.available())
    )


def installs(names: list[str]) -> dict[str, str]:
    """Return the packages to install for providers that are not among these."""
    never = _NOT_ON.get(platform.system(), ())
    return {name: how for name, how in INSTALLS.items() if name not in names and name not in never}


def _child(name: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-P", "-c", _START, name], stdin=pipe, stdout=pipe, stderr=pipe)


def _model() -> bytes:
    graph = Graph("probe", {"x": TensorType(DType.float32, [1])})
    graph.output(y=graph.op("Add", [graph["x"], graph["x"]], {}, [graph["x"].type])[0])
    graph.opsets[""] = 17
    return join(encode(graph, ir=8))


def _reason(output: str, status: int) -> str:
    """Return the most informative line of a process' output, without prefixes of logs."""
    lines = [" ".join(_LOGGED.sub("", line).split()) for line in _FRAMES.sub("", output).splitlines()]
    messages = [line for line in lines if line]
    if not messages:
        return f"its process ended with status {status} and printed nothing"
    missing = next((match for line in messages if (match := re.search(r"with error: (.+)", line))), None)
    if missing is not None:  # of a library that it loads
        return missing[1][:_MAX_LENGTH]
    best = next((line for line in messages if re.search(r"error|fail|cannot|not ", line, re.IGNORECASE)), messages[-1])
    return best[:_MAX_LENGTH]


def _help(name: str) -> str:
    if name == "CUDAExecutionProvider":
        return "it needs NVIDIA's driver, CUDA and cuDNN: https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html"
    return "graphs run on the other providers"


# Findings about an installation: facts by subject, and how to fix problems.

Level = Literal["note", "problem"]

_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact or a problem. level: "problem" keeps graphs from running. help: how to fix it."""

    level: Level
    subject: str
    text: str
    help: str = ""


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed distribution with the module onnxruntime."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Packages:
    """versions: of the relevant packages, "" if not installed. imported: the distribution that the module reports."""

    versions: Mapping[str, str] = field(default_factory=dict)
    distributions: tuple[Distribution, ...] = ()
    imported: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    """has_started: None if it was not tried. reason: why it was not tried, or did not start."""

    name: str
    has_started: bool | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a provider can use, as onnxruntime reports it. type: "CPU", "GPU" or "NPU". id: of its model."""

    provider: str
    provider_vendor: str
    type: str
    vendor: str
    id: int
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class InstalledRelease:
    """The installed release of onnxruntime, and the versions that graphs are lowered for.

    takes_opset, takes_ir: the newest that it supports. opset, ir: those of lowered graphs. table: the measured
    release whose table is used. registry: the list of the build's kernels was "not asked" for, "read", "unreadable", or
    is "unsafe" to read. lacks, adds: by operator, the dtypes that only the table has, and those that only it has.
    """

    version: str
    build: str
    is_measured: bool
    takes_opset: int
    takes_ir: int
    opset: int
    ir: int
    table: str
    registry: str
    lacks: Mapping[str, tuple[str, ...]]
    adds: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TrapStatus:
    """A wrong kernel, or an optimiser that changes numbers. first, last: releases with it; "" if the range is open."""

    name: str
    first: str
    last: str
    in_force: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts of a machine; None if unknown.

    cores, threads: of the processor, as the system counts them. usable: threads that this process may run on. limit:
    the number of cores that the cgroup allows. instructions: whether the processor has each set that kernels use.
    bytes_saturate: whether sums of products of unsigned with signed bytes saturate. huge_pages: the system's mode, ""
    if it has none. gathers: whether sessions can move their memory to huge pages.
    """

    system: str
    architecture: str
    processor: str
    cores: int | None
    threads: int | None
    usable: int | None
    limit: float | None
    instructions: Mapping[str, bool | None]
    bytes_saturate: bool | None
    huge_pages: str
    gathers: bool


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The report. release, machine: None if the check failed; a finding has the error."""

    packages: Packages
    release: InstalledRelease | None
    traps: tuple[TrapStatus, ...]
    providers: tuple[Provider, ...]
    devices: tuple[Device, ...]
    machine: Machine | None
    installs: Mapping[str, str]
    """The packages to install for missing providers."""
    findings: tuple[Finding, ...]

    @property
    def runs(self) -> bool:
        """Whether graphs run."""
        return all(finding.level != "problem" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        return {"runs": self.runs, **dataclasses.asdict(self)}


class Notebook:
    """Collects findings, including those of failed checks."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def add(self, level: Level, subject: str, text: str, help: str = "") -> None:
        self.findings.append(Finding(level, subject, text, help))

    def look(self, subject: str, function: Callable[[Notebook], _Part], otherwise: _Part, level: Level) -> _Part:
        """Return the result of a function; if it raises, return `otherwise` and note a finding of this level."""
        try:
            return function(self)
        except Exception as error:
            summary = getattr(error, "summary", "") or f"{type(error).__name__}: {error}"
            help = getattr(error, "help", None) or ""
            self.add(level, subject, " ".join(f"{subject} could not be checked: {summary}".split()), help)
            return otherwise
