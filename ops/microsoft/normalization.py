"""Normalisations of a sum."""

from __future__ import annotations

from graphcore.custom_ops.custom_op import Types
from graphcore.ir.symbol import Symbol
from graphcore.ops import reduction
from graphcore.ops.mathematics import rsqrt
from graphcore.ops.microsoft._declare import SINGLES, check_row, contrib, rounded_once, shape_at
from graphcore.ops.normalization import layer_norm, rms_norm

Results = tuple[Symbol, Symbol, Symbol, Symbol]


@contrib(
    promote="float",
    dtypes={"input skip gamma beta bias": SINGLES},
    note="the kernel is four times as far off as LayerNormalization where the mean is large",
)
@rounded_once(but=(1, 2))
def SkipLayerNormalization(  # noqa: N802
    input: Symbol,
    skip: Symbol,
    gamma: Symbol,
    beta: Symbol | None = None,
    bias: Symbol | None = None,
    *,
    epsilon: float = 1e-12,
) -> Results:
    """layer_norm(input + skip + bias) * gamma + beta, with outputs=4 also the mean, 1 / deviation and the sum.

    input: [..., size]. skip: the same shape, or one that broadcasts to it. gamma, beta, bias: [size]. Returns the type
    of input; the second and third result are float32 with a last axis of 1.
    """
    total = _total(input, skip, bias)
    mean = reduction.mean(total, axis=-1, keepdims=True)
    apart = total - mean
    inverse = rsqrt(reduction.mean(apart * apart, axis=-1, keepdims=True) + epsilon)
    return layer_norm(total, gamma, beta, epsilon), mean, inverse, total


@contrib(
    promote="float",
    dtypes={"input skip gamma bias": SINGLES},
    kernels="float32",
    when=lambda types, attributes, results: _is_whole(types),
    note="where skip lacks the batch at most",
)
@rounded_once(but=(1, 2))
def SkipSimplifiedLayerNormalization(  # noqa: N802
    input: Symbol, skip: Symbol, gamma: Symbol, bias: Symbol | None = None, *, epsilon: float = 1e-12
) -> Results:
    """rms_norm(input + skip + bias) * gamma, with outputs=4 also the mean (0), 1 / root mean square and the sum.

    input: [..., size]. skip: the same shape, or one that broadcasts to it. gamma, bias: [size]. Returns the type of
    input; the second and third result are float32 with a last axis of 1.
    """
    total = _total(input, skip, bias)
    square = reduction.mean(total * total, axis=-1, keepdims=True)
    inverse = rsqrt(square + epsilon)
    return rms_norm(total, gamma, epsilon), (square > square).cast(square.dtype), inverse, total


def _is_whole(types: Types) -> bool:
    """Return whether the kernel takes the shapes: skip may lack the batch, and nothing else."""
    x, skip = shape_at(types, 0), shape_at(types, 1)
    if x is None or skip is None or len(x) not in (2, 3) or len(skip) not in (2, 3):
        return False
    return x[-2:] == skip[-2:] and (len(skip) == 2 or skip[0] in (1, x[0]))


def _total(x: Symbol, skip: Symbol, bias: Symbol | None) -> Symbol:
    check_row("bias", bias, x.shape[-1])
    total = x + skip
    if total.shape != x.shape:
        raise ValueError(f"skip has shape {skip.shape}, which does not broadcast to {x.shape}")
    return total if bias is None else total + bias
