"""Activations whose kernels are not as near as is promised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.runtime.lowering.decompositions.signature import Inputs, Made

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def sigmoid(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernel gives 0 below -18."""
    (x,) = inputs
    one = on.const(1.0, x.dtype)
    return on.native("Reciprocal", on.native("Add", one, on.native("Exp", on.native("Neg", x))))
