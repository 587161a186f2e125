"""What a detour is called with and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from graphcore.ir.symbol import Symbol
from graphcore.types.tensor_types import Type

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

Made: TypeAlias = "Symbol | tuple[Symbol, ...] | None"
Inputs: TypeAlias = "Sequence[Any]"
Detour: TypeAlias = "Callable[[Legaliser, str, Sequence[Symbol | None], Sequence[Type], dict[str, Any]], Made]"
"""(legaliser, op_type, inputs, output types, attributes) -> the replacement; None where the operator may stay."""
