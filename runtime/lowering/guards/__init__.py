"""Guards: edits that keep onnxruntime from taking what was lowered for something else."""

from graphcore.runtime.lowering.guards import arithmetic, dequantized, empty, moves, sizes
from graphcore.runtime.lowering.passes import Pass

GUARDS: tuple[Pass, ...] = (
    arithmetic.ADDED_ZERO,
    arithmetic.ROUNDED,
    arithmetic.EMPTY,
    arithmetic.ENDLESS,
    arithmetic.CLIPPED_RELU,
    arithmetic.QUICK_GELU,
    empty.NEGATIVE_AXES,
    empty.NO_AXES,
    dequantized.MATMUL,
    dequantized.ZERO_POINTS,
    dequantized.INT8,
    dequantized.MOVED,
    dequantized.SCALES,
    arithmetic.SIGNED_WEIGHTS,
    moves.GUARD,
    moves.CAST,
    moves.CUBIC,
    empty.ATTENTION,
    empty.KERNELS,
    empty.POOLS,
    empty.LIMITS,
    empty.TERMS,
    sizes.FEW_AXES,
    sizes.OLD,
    sizes.RANKS,
    sizes.SAME_PADS,
)
"""In the order in which they run."""
