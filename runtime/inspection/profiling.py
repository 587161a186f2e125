"""Profiles of a run: the times that onnxruntime's profiler measured, by kernel, operator and layer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import onnxruntime

from graphcore.support.markup import table

Load: TypeAlias = Callable[[Mapping[str, Any]], tuple[Callable[..., Any], onnxruntime.InferenceSession]]
"""Loads a model with more session options, and returns what calls it, and its session."""

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a session.

    seconds: in a run, on average. calls: in a run; more than 1 in loops. result_bytes: of what it writes in a call;
    weight_bytes: of the constants that it reads; both 0 where onnxruntime does not tell.
    """

    name: str
    operator: str
    provider: str
    seconds: float
    calls: float
    result_bytes: int = 0
    weight_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """The kernels of a model, slowest first. seconds: of a whole run, on average over `runs` runs."""

    kernels: tuple[Kernel, ...]
    seconds: float
    runs: int

    def by_operator(self) -> dict[str, float]:
        """Return seconds in a run by operator, slowest first."""
        return _summed((kernel.operator, kernel.seconds) for kernel in self.kernels)

    def by_layer(self) -> dict[str, float]:
        """Return seconds in a run by the layer that kernels were built in, slowest first; "" outside of any."""
        return _summed((kernel.name.rpartition("/")[0], kernel.seconds) for kernel in self.kernels)

    def __str__(self) -> str:
        lines = [
            f"{time:>10} us {share:>6}  {operator:<24} {name}".rstrip() for time, share, operator, name in self._rows()
        ]
        return "\n".join([self._total(), *lines])

    def _repr_html_(self) -> str:
        return table(("us a run", "share", "operator", "name"), self._rows(), self._total())

    def _total(self) -> str:
        return f"{self.seconds * 1e6:.1f} us a run, {len(self.kernels)} kernels, {self.runs} runs"

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield time, share, operator and name of the slowest kernels, then the sum of the others."""
        total = sum(kernel.seconds for kernel in self.kernels) or 1.0
        for kernel in self.kernels[:_SHOWN]:
            yield f"{kernel.seconds * 1e6:.1f}", f"{kernel.seconds / total:.1%}", kernel.operator, kernel.name
        rest = self.kernels[_SHOWN:]
        if rest:
            seconds = sum(kernel.seconds for kernel in rest)
            yield f"{seconds * 1e6:.1f}", f"{seconds / total:.1%}", f"in {len(rest)} more", ""


def profiled(load: Load, arrays: Sequence[Any], named: Mapping[str, Any], runs: int) -> Profile:
    """Return the profile of `runs` calls after a first one."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="graphcore-") as folder:
        call, session = load({"enable_profiling": True, "profile_file_prefix": os.path.join(folder, "profile")})
        try:
            for _ in range(runs + 1):
                call(*arrays, **named)
        finally:
            file = session.end_profiling()
        with open(file, encoding="utf-8") as stream:
            events = json.load(stream)
    return _read(events, runs)


def _read(events: list[dict[str, Any]], runs: int) -> Profile:
    """Return the profile in a list of trace events, of which the first run's are left out."""
    whole = sorted((e for e in events if e["name"] == "model_run"), key=lambda e: e["ts"])[-runs:]
    begin = min(e["ts"] for e in whole)
    seconds: dict[tuple[str, str, str], list[float]] = {}
    sizes: dict[tuple[str, str, str], tuple[int, int]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and event["ts"] >= begin:
            about = event["args"]
            key = (event["name"].removesuffix("_kernel_time"), about["op_name"], about.get("provider", ""))
            seconds.setdefault(key, []).append(event["dur"] * 1e-6)
            held = sizes.get(key, (0, 0))
            sizes[key] = max(held[0], _size(about, "output_size")), max(held[1], _size(about, "parameter_size"))
    kernels = [Kernel(*key, sum(taken) / runs, len(taken) / runs, *sizes[key]) for key, taken in seconds.items()]
    kernels.sort(key=lambda kernel: -kernel.seconds)
    return Profile(tuple(kernels), sum(e["dur"] for e in whole) * 1e-6 / runs, runs)


def _size(about: Mapping[str, Any], key: str) -> int:
    text = str(about.get(key, ""))
    return int(text) if text.isdecimal() else 0


def _summed(parts: Iterator[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for key, seconds in parts:
        sums[key] = sums.get(key, 0.0) + seconds
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
