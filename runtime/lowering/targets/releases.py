"""Releases of onnxruntime that graphs are lowered for, and the measured tables of their kernels.

`<target>.json` has for every operator, in each of its versions, the dtypes that a provider ran in each measured
release; `tools/kernel_probe` writes it. A session lowers for the installed release; if that was not measured, its list
of kernels is read (`graphcore.runtime.ort.release`). A file is lowered for every supported release, or for a named one.
"""

from __future__ import annotations

import functools
import json
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from graphcore.ir.graph import TargetName
from graphcore.onnx.notes import IR_VERSION, OPSET
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.types.dtypes import DType

OLDEST_SUPPORTED = "1.27.0"
"""The oldest release that the package requires; files are lowered for it unless a release is named."""

OLDEST_OPSET = 24
"""From this opset on no operator that graphs are built with changed its meaning; sessions get it."""


Rows: TypeAlias = Mapping[str, Mapping[int, Mapping["ReleaseRange", frozenset[DType]]]]
"""Dtypes by operator, version of it and range of releases."""


class Registry(Protocol):
    """The kernels that the installed build reports."""

    def dtypes(self, provider: str, op_type: str, opset: int) -> frozenset[DType] | None:
        """Return the registered dtypes; None if the list is inconclusive: no kernel, or one for any dtype."""


def on_some_processor() -> bool:
    """Return True: some processor does, and which one runs a file is unknown when it is written."""
    return True


def on_no_wasm() -> bool:
    """Return False: wasm has no instruction whose sums of products of bytes saturate."""
    return False


def on_no_processor() -> None:
    """Return None: which processor runs a file is unknown when it is written."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime that a graph is lowered for: one release, or every supported one if `version` is empty.

    opset, ir: the newest ONNX versions to use. registry: the kernels of the installed build; None if the release is not
    the installed one or its list cannot be read. avoided: operators to avoid though the release has kernels of them.
    is_fixed: use exactly this opset, not an older one that has more kernels. in_file: the release loads a file by
    itself, with all of its optimisers, of which a session disables some. saturates: whether products of unsigned with
    signed bytes saturate on the processor that runs the graph; a function, since only graphs with such products need
    it; True for a file, which may run on any processor. many_rows: the number of rows from which on that processor a
    product with 4-bit weights is faster in bytes; None if unknown or never.
    """

    version: str = ""
    opset: int = OPSET
    ir: int = IR_VERSION
    registry: Registry | None = None
    avoided: frozenset[str] = frozenset()
    is_fixed: bool = False
    in_file: bool = False
    saturates: Callable[[], bool] = on_some_processor
    many_rows: Callable[[], int | None] = on_no_processor


ANY = Runtime()
"""Every supported release, at the opset that graphs are built with."""


@dataclass(frozen=True, slots=True)
class Release:
    """A measured release. opset, ir: the newest that it supports. commit: what it was built from, if reported."""

    version: str
    opset: int
    ir: int
    commit: str = ""


@functools.cache
def ordered(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparisons."""
    return tuple(map(int, re.findall(r"\d+", version.split("+")[0])[:3]))


def is_supported(version: str) -> bool:
    """Return True if the package supports a release."""
    numbers = ordered(version)
    return numbers >= ordered(OLDEST_SUPPORTED)[: len(numbers)]


@dataclass(frozen=True, slots=True)
class ReleaseRange:
    """The measured releases that show some behaviour. An empty end is open."""

    first: str = ""
    last: str = ""

    @classmethod
    def parse(cls, text: str) -> ReleaseRange:
        """Parse "1.24.4-1.31.1", "1.27.0-" or "-1.31.1"; "-" is every release."""
        first, _, last = text.partition("-")
        return cls(first, last)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def includes(self, version: str) -> bool:
        """Return True if a measured release is in the range."""
        number = ordered(version)
        return (not self.first or ordered(self.first) <= number) and (not self.last or number <= ordered(self.last))


@dataclass(frozen=True, slots=True)
class ContribOperator:
    """An operator of com.microsoft by release. operands: their number. attributes: the releases that have each."""

    operands: Mapping[ReleaseRange, int]
    attributes: Mapping[str, tuple[ReleaseRange, ...]]

    def takes(self, version: str, operands: int, attributes: Iterable[str]) -> bool:
        """Return True if a measured release supports that many operands and these attributes."""
        max_operands = max(
            (count for releases, count in self.operands.items() if releases.includes(version)), default=0
        )
        are_supported = (any(r.includes(version) for r in self.attributes.get(name, ())) for name in attributes)
        return operands <= max_operands and all(are_supported)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The kernels of a provider.

    releases: oldest first. rows: by operator, version of it and range of releases; a release in no range of a version
    does not have that version. base: the target whose table it was derived from. device: the kernels among them that
    run on a device, if it is a table of a device and its host.
    """

    provider: str
    releases: tuple[Release, ...]
    rows: Rows
    contributed: Mapping[str, ContribOperator]
    base: TargetName | None = None
    device: Table | None = None

    def takes(self, op_type: str, operands: int, attributes: Iterable[str], runtime: Runtime) -> bool:
        """Return True if all releases to lower for support an operator of com.microsoft in this form."""
        row = self.contributed.get(op_type)
        if row is None:
            return True
        names = tuple(attributes)
        return all(row.takes(release.version, operands, names) for release in self.considered(runtime))

    @property
    def newest(self) -> Release:
        return self.releases[-1]

    def nearest(self, version: str) -> Release:
        """Return the release that stands for a version: the newest one that is not newer in its first two numbers."""
        fit = [r for r in self.releases if ordered(r.version)[:2] <= ordered(version)[:2]]
        return fit[-1] if fit else self.releases[0]

    def measures(self, version: str) -> bool:
        """Return True if a release was measured."""
        return any(r.version == version for r in self.releases)

    def named(self, version: str) -> Runtime | None:
        """Return the runtime that "1.20" or "1.20.1" names; None for a release older than all measured ones.

        Without a third number it is the newest measured one with these two; a release that was not measured has the
        table of the nearest older one.
        """
        number = ordered(version)
        if number[:2] < ordered(self.releases[0].version)[:2]:
            return None
        alike = [r for r in self.releases if ordered(r.version)[: len(number)] == number]
        release = alike[-1] if alike else self.nearest(version)
        return Runtime(release.version if alike else version, min(release.opset, OPSET), min(release.ir, IR_VERSION))

    def considered(self, runtime: Runtime) -> tuple[Release, ...]:
        """Return the releases whose kernels count: the nearest one, or all supported ones."""
        if runtime.version:
            return (self.nearest(runtime.version),)
        return tuple(r for r in self.releases if is_supported(r.version)) or (self.newest,)

    def since(self, op_type: str, opset: int, version: str) -> int | None:
        """Return the version of an operator at an opset of a measured release; None if the release does not have it."""
        rows = self.rows.get(op_type, {})
        return max((v for v in rows if v <= opset and any(r.includes(version) for r in rows[v])), default=None)

    def kernels(self, runtime: Runtime = ANY) -> dict[str, frozenset[DType]]:
        """Return for each operator the dtypes in which all releases to lower for ran it at the runtime's opset."""
        versions = [release.version for release in self.considered(runtime)]
        return {op: frozenset.intersection(*(self._dtypes(op, runtime.opset, v) for v in versions)) for op in self.rows}

    def _dtypes(self, op_type: str, opset: int, version: str) -> frozenset[DType]:
        since = self.since(op_type, opset, version)
        if since is None:
            return frozenset()
        fit = [dtypes for releases, dtypes in self.rows[op_type][since].items() if releases.includes(version)]
        return fit[0] if len(fit) == 1 else frozenset().union(*fit)


@functools.cache
def table_of(target: TargetName) -> Table:
    """Return the table of kernels of a target."""
    content = pkgutil.get_data(
        "graphcore.runtime.lowering.targets", TARGETS[target].table
    )  # importlib.resources takes 9 ms
    assert content is not None
    read = json.loads(content)
    rows = {
        op: {
            int(since): {ReleaseRange.parse(r): _parse_dtypes(d) for r, d in ranges.items()}
            for since, ranges in versions.items()
        }
        for op, versions in read["kernels"].items()
    }
    if "base" in read:
        return _derived(read, rows)
    releases = [Release(version, *facts) for version, facts in read["releases"].items()]
    contributed = {
        op: ContribOperator(
            {ReleaseRange.parse(text): count for text, count in row["operands"].items()},
            {name: tuple(map(ReleaseRange.parse, text.split())) for name, text in row["attributes"].items()},
        )
        for op, row in read.get("com.microsoft", {}).items()
    }
    return Table(read["provider"], tuple(sorted(releases, key=lambda r: ordered(r.version))), rows, contributed)


def _derived(read: Mapping[str, Any], device: Rows) -> Table:
    """Return a table that is another one's for some releases, less the missing dtypes, with the kernels of a device."""
    base = table_of(read["base"])
    releases = tuple(r for r in base.releases if r.version in read["releases"])
    missing = {op: _parse_dtypes(names) for names, op_types in read["missing"].items() for op in op_types.split()}
    none: frozenset[DType] = frozenset()
    rows, on_device = {}, {}
    for op, versions in base.rows.items():
        added = {since: device.get(op, {}).get(since, {}) for since in versions}
        on_device[op] = {since: {**dict.fromkeys(row, none), **added[since]} for since, row in versions.items()}
        rows[op] = {
            since: {
                r: row.get(r, none) - missing.get(op, none) | added[since].get(r, none) for r in on_device[op][since]
            }
            for since, row in versions.items()
        }
    device_table = Table(read["provider"], releases, on_device, {}) if device else None
    return Table(read["provider"], releases, rows, base.contributed, read["base"], device_table)


@functools.cache
def _parse_dtypes(names: str) -> frozenset[DType]:
    """Return the dtypes of a row; many operators share a row."""
    return frozenset(map(DType.of, names.split()))


def default(target: TargetName) -> Runtime:
    """Return the runtime that files are written for: every release, or the one that the target's package follows."""
    if not TARGETS[target].is_late:
        return ANY
    runtime = table_of(target).named(table_of(target).newest.version)
    assert runtime is not None
    return runtime if TARGETS[target].saturates else replace(runtime, saturates=on_no_wasm)
