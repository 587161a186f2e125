"""Guards: edits that keep onnxruntime from taking what was lowered for something else."""

from graphcore.runtime.lowering.guards import arithmetic, dequantized, empty, few_axes, moves, same_pads, signed_weights
from graphcore.runtime.lowering.guards.guard import Guard

GUARDS: tuple[Guard, ...] = (
    arithmetic.ADDED_ZERO,
    arithmetic.ROUNDED,
    arithmetic.EMPTY,
    arithmetic.ENDLESS,
    arithmetic.CLIPPED_RELU,
    arithmetic.QUICK_GELU,
    empty.NEGATIVE_AXES,
    dequantized.MATMUL,
    dequantized.ZERO_POINTS,
    dequantized.INT8,
    dequantized.MOVED,
    dequantized.SCALES,
    signed_weights.GUARD,
    moves.GUARD,
    moves.CAST,
    moves.CUBIC,
    empty.ATTENTION,
    empty.KERNELS,
    few_axes.GUARD,
    few_axes.OLD,
    same_pads.GUARD,
)
"""In the order in which they run."""

__all__ = ["GUARDS", "Guard"]
