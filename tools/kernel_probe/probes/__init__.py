"""Every trap of onnxruntime by its name: what is wrong, and the probes that show whether the installed release has it.

`found` runs one probe as things are; `traps.switched_off` makes lowering do nothing about a trap.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from tools.kernel_probe.probes import (
    attention,
    casts,
    empties,
    floats,
    graphs,
    integers,
    models,
    networks,
    products,
)
from tools.kernel_probe.probes.probe import AnyProbe, Check, Family, Probe, found, is_wrong, operator


@dataclass(frozen=True, slots=True)
class Trap:
    """what: the sentences that say what is wrong."""

    name: str
    what: tuple[str, ...]
    probes: tuple[AnyProbe, ...]


@functools.cache
def families() -> tuple[Family, ...]:
    """Return every family of traps."""
    rooms = (integers, floats, products, empties, networks, models, attention, casts, graphs)
    return tuple(family for room in rooms for family in room.families())


@functools.cache
def traps() -> Mapping[str, Trap]:
    """Return every trap by its name."""
    made: dict[str, tuple[dict[str, None], list[AnyProbe]]] = {}
    for family in families():
        for probe in family.probes:
            for name in probe.traps:
                what, probes = made.setdefault(name, ({}, []))
                what[family.what] = None
                probes.append(probe)
    return {name: Trap(name, tuple(what), tuple(probes)) for name, (what, probes) in sorted(made.items())}


def probes() -> tuple[AnyProbe, ...]:
    """Return every probe."""
    return tuple(probe for family in families() for probe in family.probes)


__all__ = ["Check", "Family", "Probe", "Trap", "families", "found", "is_wrong", "operator", "probes", "traps"]
