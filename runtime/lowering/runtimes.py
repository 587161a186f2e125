"""The releases of onnxruntime that graphs are lowered for, and what is known of each.

A file is written for the release that the tables are made from; a session lowers for the one that is installed, which
may be older (`graphcore.runtime.installed`).
"""

from __future__ import annotations

import functools
import json
import pkgutil
import re
from dataclasses import dataclass
from typing import Any

from graphcore.graph import Target
from graphcore.onnx.writer import IR_VERSION, OPSET


@dataclass(frozen=True, slots=True)
class Runtime:
    """A release. opset, ir: the newest of ONNX that it takes, and no newer than what graphs are written with."""

    version: str
    opset: int = OPSET
    ir: int = IR_VERSION


def ordered(version: str) -> tuple[int, ...]:
    """What versions are compared by: their numbers."""
    return tuple(map(int, re.findall(r"\d+", version.split("+")[0])[:3]))


TABLES: dict[Target, tuple[str, ...]] = {
    "cpu": ("cpu.json", "cpu-1.24.json"),
    "cuda": ("cuda.json",),
    "openvino": ("openvino.json",),
}
"""The tables of a target, that of the newest release first."""


@functools.cache
def table_of(target: Target, runtime: Runtime | None = None) -> dict[str, Any]:
    """The table of what a target has kernels for: `provider`, `onnxruntime`, `opset` and `kernels`.

    Of several it is the newest that is no newer than the runtime, since kernels are added from release to release and
    seldom go; the oldest where all are newer.
    """
    if runtime is None:
        return _read(TABLES[target][0])
    tables = [_read(name) for name in TABLES[target]]
    fit = (t for t in tables if ordered(t["onnxruntime"]) <= ordered(runtime.version))
    return next(fit, tables[-1])


def default(target: Target) -> Runtime | None:
    """The release that files are written for, where it is not the newest of all."""
    if target == "onnx" or target not in _OLD:
        return None
    table = table_of(target)
    return Runtime(table["onnxruntime"], table["opset"], IR_VERSION)


_OLD: frozenset[Target] = frozenset({"openvino"})
"""Targets whose package follows the releases of onnxruntime late."""


@functools.cache
def _read(name: str) -> dict[str, Any]:
    content = pkgutil.get_data("graphcore.runtime.lowering", name)  # importlib.resources takes 9 ms to import
    assert content is not None
    found: dict[str, Any] = json.loads(content)
    return found
