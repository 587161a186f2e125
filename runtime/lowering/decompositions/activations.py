"""Activations whose kernels are less exact than docs/numbers.md promises."""

from __future__ import annotations

from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Replacement


def sigmoid(b: Builder, call: Call) -> Replacement:
    """Compute Sigmoid by other operators: the kernel gives 0 below -18."""
    (x,) = call.inputs
    one = b.scalar(1.0, x.dtype)
    return b.native("Reciprocal", b.native("Add", one, b.native("Exp", b.native("Neg", x))))
