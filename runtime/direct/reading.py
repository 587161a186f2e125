"""The options of reading a file."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from graphcore.arrays.external_data import Links
from graphcore.arrays.resource_limits import USUAL, Limits


@dataclass(frozen=True, slots=True)
class Reading:
    """Options of reading a file. links: that are followed to its data. custom_ops: labels of those that it may call."""

    links: Links | None = None
    limits: Limits = USUAL
    custom_ops: Set[str] = frozenset()
