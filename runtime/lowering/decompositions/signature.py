"""The signature of a decomposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call

Replacement: TypeAlias = "Symbol | tuple[Symbol, ...] | None"
"""The results that replace a call's; None where the kernel may stay after all."""

Decomposition: TypeAlias = "Callable[[Builder, Call], Replacement]"

__all__ = ["Builder", "Call", "Decomposition", "Replacement"]
