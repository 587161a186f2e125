"""The releases of onnxruntime that have each trap: a wrong kernel, or an optimiser that changes numbers.

`traps.json` has the range of measured releases for every trap, as `measure --releases` finds them. The file that names
a trap also avoids it. A release newer than all measured ones has every trap of the newest.
"""

from __future__ import annotations

import functools
import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from graphcore.runtime.lowering.targets.releases import ReleaseRange, Runtime, is_supported, ordered, table_of
from graphcore.types.dtypes import DType

_off: frozenset[str] = frozenset()
"""Traps that a measurement looks for, which are not avoided meanwhile."""

COUNTED_PADDING = "AveragePool that counts padding"
NARROW_SCALES = "DequantizeLinear of narrow scales"
"""A trap that does not show in the types of an operand and a result."""
REVERSED_EMPTY = "ReverseSequence of no elements"
REVERSED_ONE_AXIS = "ReverseSequence of one axis"

_cache_clears: list[Callable[[], None]] = []


@dataclass(frozen=True, slots=True)
class TrapRanges:
    """The content of `traps.json`. releases: the measured ones, oldest first. ranges: those of each trap.

    files: the ranges of traps that affect only files: of releases that no session runs on, or of optimisers that
    sessions disable. They are not measured again.
    """

    releases: tuple[str, ...]
    ranges: Mapping[str, ReleaseRange]
    files: Mapping[str, ReleaseRange] = field(default_factory=dict)


def of_kernel(op_type: str, dtype: DType) -> str:
    """Return the name of the trap for a wrong kernel."""
    return f"{op_type} {dtype}"


def in_force(trap: str, runtime: Runtime) -> bool:
    """Return True if a trap must be avoided in a release: if the release has it, or it was not measured.

    A file for every supported release avoids the traps of all; one for a named release avoids those of the newer ones
    too, which also run it. A release between two measured ones has the traps of both.
    """
    if trap in _off:
        return False
    content = trap_ranges()
    releases = content.ranges.get(trap)
    return releases is None or _includes(releases, runtime.version, content.releases, runtime.in_file)


@functools.cache
def _includes(affected: ReleaseRange, version: str, releases: tuple[str, ...], in_file: bool) -> bool:
    lowered_for = _neighbours(version, releases) if version else filter(is_supported, releases)
    newer = [r for r in releases if version and in_file and ordered(r) > ordered(version)]
    return any(map(affected.includes, (*lowered_for, *newer)))


def _neighbours(version: str, releases: tuple[str, ...]) -> tuple[str, ...]:
    """Return the measured release of a version, or its neighbours."""
    number = ordered(version)
    same = [r for r in releases if ordered(r) == number]
    if same:
        return (same[0],)
    before = [r for r in releases if ordered(r) < number]
    after = [r for r in releases if ordered(r) > number]
    return (*before[-1:], *after[:1])


@functools.cache
def trap_ranges() -> TrapRanges:
    """Return the content of `traps.json`."""
    content = pkgutil.get_data("graphcore.runtime.lowering.targets", "traps.json")
    assert content is not None
    read = json.loads(content)
    ranges, files = ({name: ReleaseRange.parse(text) for name, text in read[key].items()} for key in ("traps", "files"))
    return TrapRanges(tuple(read["releases"]), ranges, files)


def met_by_files(trap: str, runtime: Runtime) -> bool:
    """Return True if a release to lower for has a trap that affects only files, or the trap was not measured."""
    releases = trap_ranges().files.get(trap)
    return releases is None or any(
        releases.includes(release.version) for release in table_of("cpu").considered(runtime)
    )


@contextmanager
def switched_off(*traps: str) -> Iterator[None]:
    """Lower as if no release had these traps, to measure whether it has them."""
    global _off
    before, _off = _off, _off.union(traps)
    _forget()
    try:
        yield
    finally:
        _off = before
        _forget()


def on_switching(forget: Callable[[], None]) -> None:
    """Call `forget` whenever traps are switched off or on, to clear caches that depend on them."""
    _cache_clears.append(forget)


def _forget() -> None:
    for forget in _cache_clears:
        forget()
