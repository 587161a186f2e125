"""Guards: edits that keep onnxruntime from taking what was lowered for something else."""

from graphcore.runtime.lowering.guards import (
    added_zero,
    clipped_relu,
    empty_attention,
    empty_kernels,
    hidden_constants,
    negative_axes,
    quick_gelu,
    same_pads,
    shaped_casts,
    transposes,
)
from graphcore.runtime.lowering.guards.guard import Guard
from graphcore.runtime.lowering.guards.quantized import matmul, moves, scales, signed_weights, zero_points

GUARDS: tuple[Guard, ...] = (
    added_zero.GUARD,
    hidden_constants.ROUNDED,
    hidden_constants.EMPTY,
    hidden_constants.ENDLESS,
    clipped_relu.GUARD,
    quick_gelu.GUARD,
    negative_axes.GUARD,
    matmul.GUARD,
    zero_points.GUARD,
    moves.INT8,
    moves.INT32,
    scales.GUARD,
    signed_weights.GUARD,
    shaped_casts.GUARD,
    transposes.CAST,
    transposes.CUBIC,
    empty_attention.GUARD,
    empty_kernels.GUARD,
    same_pads.GUARD,
)
"""In the order in which they run."""

__all__ = ["GUARDS", "Guard"]
