"""Findings of a look at an installation: facts by subject, and what is to be done about some of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Level = Literal["note", "problem"]

_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to know or to mend. level: "problem" keeps graphs from running. help: how to mend it."""

    level: Level
    subject: str
    text: str
    help: str = ""


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed distribution that brings the module onnxruntime."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Packages:
    """versions: of what counts, "" for what is not installed. imported: the distribution that the module says it is."""

    versions: Mapping[str, str] = field(default_factory=dict)
    distributions: tuple[Distribution, ...] = ()
    imported: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    """has_started: None where it was not tried. reason: why it was not, or did not."""

    name: str
    has_started: bool | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """The installed release of onnxruntime, and what graphs are lowered for.

    takes_opset, takes_ir: the newest that it takes. opset, ir: what graphs are given to it in. table: the measured
    release whose table counts. registry: the list of the build's kernels was "not asked" for, "read", "unreadable", or
    is "unsafe" to ask for. lacks, adds: by operator, the dtypes that it has less or more than the table.
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
class Trap:
    """A kernel that is wrong or an optimiser that changes numbers. first, last: where it was seen, "" if it is open."""

    name: str
    first: str
    last: str
    in_force: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """None stands for what could not be told.

    cores, threads: of the processor, as the system counts them. usable: threads that this process may run on. limit:
    how many the cgroup pays for. instructions: whether the processor has each set that kernels look for.
    bytes_saturate: whether products of unsigned with signed bytes do. huge_pages: the system's mode, "" where it has
    none; gathers: whether sessions can gather their memory in large pages.
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
class Report:
    """All that was found. release, machine: None where the look itself failed, which a finding says."""

    packages: Packages
    release: Release | None
    traps: tuple[Trap, ...]
    providers: tuple[Provider, ...]
    machine: Machine | None
    installs: Mapping[str, str]
    """The packages to install for providers that are missing."""
    findings: tuple[Finding, ...]

    @property
    def runs(self) -> bool:
        """Return whether graphs run."""
        return all(finding.level != "problem" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return it as what json writes."""
        return {"runs": self.runs, **dataclasses.asdict(self)}


class Notebook:
    """Collects findings, those of looks that fail too."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def add(self, level: Level, subject: str, text: str, help: str = "") -> None:
        self.findings.append(Finding(level, subject, text, help))

    def look(self, subject: str, function: Callable[[Notebook], _Part], otherwise: _Part, level: Level) -> _Part:
        """Return what a function finds; where it raises, what is given instead, and a finding of a level says so."""
        try:
            return function(self)
        except Exception as error:
            summary = getattr(error, "summary", "") or f"{type(error).__name__}: {error}"
            help = getattr(error, "help", None) or ""
            self.add(level, subject, " ".join(f"{subject} could not be looked at: {summary}".split()), help)
            return otherwise
