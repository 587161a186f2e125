"""In which releases of onnxruntime each trap was seen: a kernel that is wrong, or an optimiser that changes numbers.

`traps.json` has for every trap the range of measured releases, as `measure --releases` finds them. What is done about a
trap is in the file that names it. A release newer than all measured ones has every trap of the newest.
"""

from __future__ import annotations

import functools
import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from graphcore.runtime.lowering.targets.releases import Range, Runtime, is_supported, ordered, table_of
from graphcore.types.dtypes import DType

_off: frozenset[str] = frozenset()
"""Traps that a measurement looks for, which are not avoided while it does."""

COUNTED_PADDING = "AveragePool that counts padding"
NARROW_SCALES = "DequantizeLinear of narrow scales"
"""A trap that the types of an operand and a result do not tell of."""
REVERSED_EMPTY = "ReverseSequence of no elements"
REVERSED_ONE_AXIS = "ReverseSequence of one axis"

_forgetting: list[Callable[[], None]] = []


@dataclass(frozen=True, slots=True)
class Seen:
    """releases: the measured ones, oldest first. ranges: of each trap.

    files: the ranges of traps that only files meet, of releases that no session runs on or optimisers that sessions
    switch off. They are not measured again.
    """

    releases: tuple[str, ...]
    ranges: Mapping[str, Range]
    files: Mapping[str, Range] = field(default_factory=dict)


def of_kernel(op_type: str, dtype: DType) -> str:
    """Return the name of the trap that a kernel is."""
    return f"{op_type} {dtype}"


def in_force(trap: str, runtime: Runtime) -> bool:
    """Return whether a trap is to be avoided in a release: where it was seen, or was not measured.

    A file for every supported release avoids the traps of all; one for a release that is named avoids those of the
    newer ones too, which run it as well. A release between two measured ones has the traps of both.
    """
    if trap in _off:
        return False
    known = seen()
    found = known.ranges.get(trap)
    return found is None or _includes(found, runtime.version, known.releases, runtime.in_file)


@functools.cache
def _includes(found: Range, version: str, releases: tuple[str, ...], in_file: bool) -> bool:
    meant = _neighbours(version, releases) if version else _supported(releases)
    newer = [r for r in releases if version and in_file and ordered(r) > ordered(version)]
    return any(map(found.includes, (*meant, *newer)))


@functools.cache
def _supported(releases: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(filter(is_supported, releases))


@functools.cache
def _neighbours(version: str, releases: tuple[str, ...]) -> tuple[str, ...]:
    """Return the measured release of a version, or those next to it."""
    number = ordered(version)
    same = [r for r in releases if ordered(r) == number]
    if same:
        return (same[0],)
    before = [r for r in releases if ordered(r) < number]
    after = [r for r in releases if ordered(r) > number]
    return (*before[-1:], *after[:1])


@functools.cache
def seen() -> Seen:
    """Return the content of `traps.json`."""
    content = pkgutil.get_data("graphcore.runtime.lowering.targets", "traps.json")
    assert content is not None
    read = json.loads(content)
    ranges, files = ({name: Range.parse(text) for name, text in read[key].items()} for key in ("traps", "files"))
    return Seen(tuple(read["releases"]), ranges, files)


def met_by_files(trap: str, runtime: Runtime) -> bool:
    """Return whether a trap that only files meet was seen in a release that is lowered for, or was not measured."""
    found = seen().files.get(trap)
    return found is None or any(found.includes(release.version) for release in table_of("cpu").considered(runtime))


@contextmanager
def switched_off(*traps: str) -> Iterator[None]:
    """Lower as if a release did not have these traps: to measure whether it has them."""
    global _off
    before, _off = _off, _off.union(traps)
    _forget()
    try:
        yield
    finally:
        _off = before
        _forget()


def on_switching(forget: Callable[[], None]) -> None:
    """Call `forget` whenever traps are switched off or on: for caches of what depends on them."""
    _forgetting.append(forget)


def _forget() -> None:
    for forget in _forgetting:
        forget()
