"""Guards: edits that keep onnxruntime from taking what was lowered for something else."""

from graphcore.runtime.lowering.guards import (
    added_zero,
    clipped_relu,
    dequantized_matmul,
    dequantized_moves,
    empty_attention,
    empty_kernels,
    hidden_constants,
    negative_axes,
    quick_gelu,
    scales_along_axes,
    shaped_casts,
    zero_points,
)
from graphcore.runtime.lowering.guards.guard import Guard

GUARDS: tuple[Guard, ...] = (
    added_zero.GUARD,
    hidden_constants.ROUNDED,
    hidden_constants.EMPTY,
    hidden_constants.ENDLESS,
    clipped_relu.GUARD,
    quick_gelu.GUARD,
    negative_axes.GUARD,
    dequantized_matmul.GUARD,
    zero_points.GUARD,
    dequantized_moves.INT8,
    dequantized_moves.INT32,
    scales_along_axes.GUARD,
    shaped_casts.GUARD,
    empty_attention.GUARD,
    empty_kernels.GUARD,
)
"""In the order in which they run."""

__all__ = ["GUARDS", "Guard"]
