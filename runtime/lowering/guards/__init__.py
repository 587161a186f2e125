"""Guards: edits that keep onnxruntime from taking what was lowered for something else."""

from graphcore.runtime.lowering.guards import (
    added_zero,
    clipped_relu,
    dequantized_matmul,
    empty_attention,
    negative_axes,
    rounded_constants,
)
from graphcore.runtime.lowering.guards.guard import Guard

GUARDS: tuple[Guard, ...] = (
    added_zero.GUARD,
    rounded_constants.GUARD,
    clipped_relu.GUARD,
    negative_axes.GUARD,
    dequantized_matmul.GUARD,
    empty_attention.GUARD,
)
"""In the order in which they run."""

__all__ = ["GUARDS", "Guard"]
