"""Facts of the installed release of onnxruntime: its table, its kernels beside it, the traps in force."""

from __future__ import annotations

from collections.abc import Callable

from graphcore.runtime.doctor.findings import Notebook, Release, Trap
from graphcore.runtime.lowering.targets.releases import Range, Registry, Runtime, table_of
from graphcore.runtime.lowering.targets.traps import in_force, seen
from graphcore.runtime.ort.kernel_registry import is_safe
from graphcore.support import telemetry

TELEMETRY = Range("1.29.0")
"""The releases, of 1.27.0 to 1.32.0 on Linux, that look up a host for events within a minute of their first session."""

_MOST = 40
"""The number of versions that are asked for, one after the other, to find the newest that a release takes."""


def describe_release(book: Notebook) -> Release:
    """Return what is known of the installed release. Raises `RunError` where it is too old to run graphs."""
    import onnxruntime

    from graphcore.runtime.ort import release  # onnxruntime, which may be missing

    version = onnxruntime.__version__
    runtime = release.runtime()
    is_measured = release.measured_release() is not None
    table = table_of("cpu").nearest(version).version
    asked = runtime.registry
    lacks, adds = ({}, {}) if asked is None else beside_table(asked, runtime)
    if not is_measured:
        is_plain = getattr(onnxruntime, "package_name", "onnxruntime") == "onnxruntime"
        _note_unmeasured(book, version, table, asked is not None, is_plain)
        if lacks:
            book.add("note", "release", "it lacks kernels that the table has: what needs them is computed by others")
    _note_telemetry(book, version)
    return Release(
        version=version,
        build=release.build_commit(),
        is_measured=is_measured,
        takes_opset=_newest(runtime.opset, release.takes),
        takes_ir=_newest(runtime.ir, lambda ir: release.takes(17, ir)),
        opset=runtime.opset,
        ir=runtime.ir,
        table=table,
        registry=_asked(is_measured, asked is not None),
        lacks=lacks,
        adds=adds,
    )


def list_traps(version: str) -> tuple[Trap, ...]:
    """Return the traps that were measured, by name, and whether each is in force in a release."""
    runtime = Runtime(version)
    found = sorted(seen().ranges.items())
    return tuple(Trap(name, where.first, where.last, in_force(name, runtime)) for name, where in found)


def beside_table(registry: Registry, runtime: Runtime) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return by operator the dtypes that a build lists less and more than the nearest table of the CPU has."""
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


def _newest(known: int, takes: Callable[[int], bool]) -> int:
    """Return the newest version that is taken, from one on that is."""
    return next((n for n in range(known, known + _MOST) if not takes(n + 1)), known + _MOST)


def _asked(is_measured: bool, is_read: bool) -> str:
    if is_measured:
        return "not asked"
    if is_read:
        return "read"
    return "unreadable" if is_safe() else "unsafe"


def _note_unmeasured(book: Notebook, version: str, table: str, is_read: bool, is_plain: bool) -> None:
    """is_plain: whether the package is onnxruntime's own, whose newest measured release could be installed."""
    less = ", less what its list of kernels lacks" if is_read else ""
    newest = table_of("cpu").newest.version
    book.add(
        "note",
        "release",
        f"onnxruntime {version}, or this build of it, was not measured: graphs are lowered by the table of {table}"
        f"{less}, and avoid every trap that was seen there",
        f"as it is, numbers are right; for one that was measured: pip install onnxruntime=={newest}"
        if is_plain
        else "",
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
