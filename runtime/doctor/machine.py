"""The properties of this machine's processor and memory that decide how fast graphs run."""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from graphcore._version import __version__
from graphcore.runtime.doctor.release import Distribution, Machine, Notebook, Packages
from graphcore.runtime.lowering.targets.releases import OLDEST_SUPPORTED, is_supported
from graphcore.runtime.ort.release import saturates
from graphcore.support import installation

INSTRUCTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86": {
        "AVX2": ("avx2",),
        "AVX-512": ("avx512f",),
        "AVX-VNNI": ("avx_vnni", "avxvnni"),
        "AVX512-VNNI": ("avx512_vnni", "avx512vnni"),
        "AVX512-BF16": ("avx512_bf16",),
        "AMX": ("amx_tile",),
    },
    "arm": {
        "dotprod": ("asimddp", "hw.optional.arm.feat_dotprod"),
        "i8mm": ("i8mm", "hw.optional.arm.feat_i8mm"),
        "sve": ("sve",),
    },
}
"""Instruction sets that kernels of onnxruntime and OpenVINO use, by their names on Linux and macOS."""

_CPUINFO, _AFFINITY = "/proc/cpuinfo", "sched_getaffinity"
_SETTINGS = "/sys/kernel/mm/transparent_hugepage/enabled"
_GATHERS_FROM = (6, 1)
"""The first release of Linux in which a process can collapse its memory into huge pages."""


class Processor(NamedTuple):
    """A processor as the system reports it. flags: None if it reports none."""

    name: str = ""
    cores: int | None = None
    flags: frozenset[str] | None = None


def describe_machine(book: Notebook) -> Machine:
    """Return the facts of this machine; notes a limit of processor time that onnxruntime ignores."""
    system, architecture = platform.system(), platform.machine()
    processor_facts = book.look("processor", lambda _: processor(system), Processor(), "note")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, _AFFINITY) else None
    limit = book.look("cgroup", lambda _: cpu_limit(), None, "note")
    if limit is not None and limit < (usable or math.inf):
        book.add(
            "note",
            "cores",
            f"the cgroup allows {limit:g} cores, and onnxruntime starts a thread for each of {usable or 'all'}",
            f"gc.InferenceSession(intra_op_num_threads={max(1, math.floor(limit))})",
        )
    sets = instructions(architecture, processor_facts.flags)
    if sets.get("AVX512-BF16"):
        book.add(
            "note",
            "bfloat16",
            "this processor multiplies bfloat16: on OpenVINO models of large products take 0.3 to 0.6 of the time",
            'gc.InferenceSession("openvino", precision="fast"); its error is in docs/howto/openvino.md',
        )
    mode = _huge_pages()
    return Machine(
        system=f"{system} {platform.release()}".strip(),
        architecture=architecture,
        processor=processor_facts.name or platform.processor(),
        cores=processor_facts.cores,
        threads=os.cpu_count(),
        usable=usable,
        limit=limit,
        instructions=sets,
        bytes_saturate=book.look("products of bytes", lambda _: _saturates(), None, "note"),
        huge_pages=mode,
        gathers=mode not in ("", "never") and _release() >= _GATHERS_FROM,
    )


def instructions(architecture: str, flags: frozenset[str] | None) -> dict[str, bool | None]:
    """Return the instruction sets with True if the processor has them; None for all if that is unknown."""
    kind = "x86" if re.fullmatch(r"x86.*|amd64|i\d86", architecture.lower()) else ""
    kind = "arm" if architecture.lower().startswith(("arm", "aarch")) else kind
    sets: Mapping[str, tuple[str, ...]] = INSTRUCTIONS.get(kind, {})
    return {name: None if flags is None else not flags.isdisjoint(marks) for name, marks in sets.items()}


def processor(system: str) -> Processor:
    """Return the processor that the system reports."""
    if system == "Darwin":
        return by_sysctl(_output(["sysctl", "hw", "machdep.cpu"]))
    content = _read(_CPUINFO)
    return Processor() if content is None else by_cpuinfo(content)


def by_cpuinfo(content: str) -> Processor:
    """Parse Linux' /proc/cpuinfo."""
    blocks = [_fields(block, ":") for block in content.split("\n\n") if block.strip()]
    cores = {(b.get("physical id"), b.get("core id")) for b in blocks if "core id" in b}
    first = blocks[0] if blocks else {}
    named = next((first[key] for key in ("model name", "Processor", "cpu model") if key in first), "")
    flags = next((b[key] for b in blocks for key in ("flags", "Features") if key in b), None)
    return Processor(named, len(cores) or None, None if flags is None else frozenset(flags.lower().split()))


def by_sysctl(content: str) -> Processor:
    """Parse the output of macOS' sysctl: lists of Intel's instruction sets, and ARM's each with 0 or 1."""
    fields = _fields(content, ":")
    listed = [fields[key] for key in ("machdep.cpu.features", "machdep.cpu.leaf7_features") if key in fields]
    flags = {flag for value in listed for flag in value.lower().replace(".", "_").split()}
    flags.update(key.lower() for key, value in fields.items() if key.startswith("hw.optional.") and value == "1")
    flags.update(flag.removeprefix("hw.optional.").removesuffix("_0") for flag in tuple(flags))
    cores = fields.get("hw.physicalcpu", "")
    name = fields.get("machdep.cpu.brand_string", "")
    return Processor(name, int(cores) if cores.isdecimal() else None, frozenset(flags) if fields else None)


def cpu_limit() -> float | None:
    """Return the number of cores that this process' cgroups allow; None if there is no limit or no cgroup."""
    quotas = []
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            quotas += [_quota(_read(f"/sys/fs/cgroup{up}/cpu.max")) for up in _upwards(path)]
        elif "cpu" in controllers.split(","):
            for up in _upwards(path):
                folder = f"/sys/fs/cgroup/cpu{up}"
                parts = _read(f"{folder}/cpu.cfs_quota_us"), _read(f"{folder}/cpu.cfs_period_us")
                quotas.append(_quota(" ".join(part or "" for part in parts)))
    return min((limit for limit in quotas if limit is not None), default=None)


def _upwards(path: str) -> list[str]:
    """Return a path and those above it: "/a/b", "/a" and ""."""
    parts = [part for part in path.split("/") if part]
    return ["".join(f"/{part}" for part in parts[:n]) for n in range(len(parts), -1, -1)]


def _quota(text: str | None) -> float | None:
    """Return the cores of "quota period" in microseconds; None for "max" and for text that is not a limit."""
    parts = (text or "").split()
    if len(parts) != 2 or not all(part.isdecimal() for part in parts) or not int(parts[1]):
        return None
    return int(parts[0]) / int(parts[1])


def _huge_pages() -> str:
    """Return the mode of transparent huge pages; "" if the system has none."""
    chosen = re.search(r"\[(\w+)\]", _read(_SETTINGS) or "")
    return chosen[1] if chosen else ""


def _release() -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", platform.release())[:2]))


def _saturates() -> bool | None:
    """Return True if products of bytes saturate in a test run; None without onnxruntime."""
    try:
        import onnxruntime

        _ = onnxruntime.InferenceSession
    except (ImportError, AttributeError):
        return None
    return saturates()


def _fields(text: str, mark: str) -> dict[str, str]:
    pairs = (line.partition(mark) for line in text.splitlines())
    return {name.strip(): value.strip() for name, is_key, value in pairs if is_key}


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=1, check=False).stdout


# Installed packages, and which of them brings the module onnxruntime.

_BESIDE = ("numpy", "ml_dtypes", "onnx")
_MODULE = "onnxruntime/__init__.py"
_LATE = ("onnxruntime-openvino",)
"""Distributions that are released later than onnxruntime, so that older releases of them are supported."""


def versions() -> dict[str, str]:
    """Return the versions of installed packages besides onnxruntime."""
    pools = {
        "graphcore": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    return {**pools, **{name: _version(name) for name in _BESIDE}}


def distributions() -> tuple[Distribution, ...]:
    """Return the installed distributions that contain the module onnxruntime, by name."""
    counts = {}
    for one in metadata.distributions():
        name = (one.metadata["Name"] or "").lower().replace("_", "-")
        if name.startswith(("onnxruntime", "ort-")) and name not in counts and _brings_module(one):
            counts[name] = Distribution(name, one.version)
    return tuple(counts[name] for name in sorted(counts))


def find_packages(book: Notebook) -> Packages:
    """Return the installed packages; notes those that overwrite each other, and modules that cannot be imported."""
    conflict = book.look("files", lambda _: installation.conflict(), None, "note")
    if conflict is not None:
        book.add("note", "files", *conflict)
    nothing: tuple[Distribution, ...] = ()
    there = book.look("distributions", lambda _: distributions(), nothing, "note")
    names = [one.name for one in there]
    imported, version = "", ""
    try:
        import onnxruntime

        version = onnxruntime.__version__
        imported = getattr(onnxruntime, "package_name", "")
        _ = onnxruntime.InferenceSession, onnxruntime.get_available_providers()
    except Exception as error:  # uninstalling one of two packages may have removed files of the other
        book.add("problem", "onnxruntime", f"onnxruntime cannot be imported: {error}", _how_to_fix(names))
        return Packages({**versions(), "onnxruntime": ""}, there, "")
    if len(there) > 1:
        listed = ", ".join(f"{one.name} {one.version}" for one in there)
        used = f"{imported} {version} is imported" if imported else "which one is imported is unknown"
        book.add(
            "note", "onnxruntime", f"several packages have the module onnxruntime: {listed}; {used}", _how_to_fix(names)
        )
    if not is_supported(version) and imported not in _LATE:
        text = f"onnxruntime {version} is older than {OLDEST_SUPPORTED}, the oldest supported release"
        book.add("note", "onnxruntime", text, "pip install -U onnxruntime")
    return Packages({**versions(), "onnxruntime": version}, there, imported)


def _how_to_fix(names: list[str]) -> str:
    """Return the commands that leave only one of these distributions installed."""
    if not names:
        return "pip install onnxruntime"
    preferred = next((name for name in names if name != "onnxruntime"), names[0])
    if len(names) == 1:
        return f"pip install --force-reinstall --no-deps {preferred}"
    return (
        f"keep one: pip uninstall -y {' '.join(names)}, then pip install {preferred}, or onnxruntime for the CPU alone"
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _brings_module(one: metadata.Distribution) -> bool:
    top = (one.read_text("top_level.txt") or "").split()
    return "onnxruntime" in top or any(str(file) == _MODULE for file in one.files or ())
