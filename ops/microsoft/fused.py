"""Operators of ONNX with an activation, a bias or a sum drawn in, in another layout, or by an older name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcore.custom_ops.custom_op import Types
from graphcore.ir.symbol import Symbol
from graphcore.ops import creation, onnx, reduction
from graphcore.ops.activation import clip, gelu, relu, sigmoid, softmax
from graphcore.ops.elementwise import rsqrt, tanh
from graphcore.ops.gathering import gather
from graphcore.ops.microsoft._declare import BYTES, FLOATS, SINGLES, check_row, contrib, may_be, rounded_once, shape_at
from graphcore.ops.microsoft.products import FusedMatMul
from graphcore.ops.normalization import layer_norm, rms_norm
from graphcore.ops.rearranging import permute
from graphcore.ops.shape import flatten

# Activations with a bias drawn in


@contrib(promote="float", dtypes={"X": FLOATS}, kernels="float32")
@rounded_once()
def Gelu(X: Symbol) -> Symbol:  # noqa: N802 - the operator's name
    """x * Phi(x), by the error function. X: floats of any shape. Returns its type."""
    return gelu(X)


@contrib(promote="float", dtypes={"A B": FLOATS}, kernels="float32")
@rounded_once()
def BiasGelu(A: Symbol, B: Symbol) -> Symbol:  # noqa: N802
    """gelu(A + B). A: [..., size]; B: [size]. Returns the type of A."""
    return gelu(_biased(A, B))


@contrib(promote="float", dtypes={"X bias": FLOATS}, kernels="float32")
@rounded_once()
def FastGelu(X: Symbol, bias: Symbol | None = None) -> Symbol:  # noqa: N802
    """gelu(X + bias) with tanh in place of the error function. X: [..., size]; bias: [size]. Returns the type of X."""
    return gelu(X if bias is None else _biased(X, bias), approximate="tanh")


@contrib(promote="float", dtypes={"X": FLOATS}, note="the kernel's sigmoid is further off than 4 ulp in its tail")
@rounded_once()
def QuickGelu(X: Symbol, *, alpha: float = 1.702) -> Symbol:  # noqa: N802
    """X * sigmoid(alpha * X). X: floats of any shape. Returns its type."""
    return X * sigmoid(X * alpha)


@contrib(promote="float", dtypes={"X bias skip": FLOATS}, note="the CPU has no kernel")
@rounded_once()
def BiasAdd(X: Symbol, bias: Symbol, skip: Symbol) -> Symbol:  # noqa: N802
    """X + bias + skip. X, skip: [batch, positions, size]; bias: [size]. Returns the type of X."""
    return _biased(X, bias) + skip


def _biased(x: Symbol, bias: Symbol) -> Symbol:
    if x.rank < 1 or bias.rank != 1:
        raise ValueError(f"a bias has one axis, the last one of what it is added to, not shape {bias.shape}")
    made = x + bias
    if made.rank != x.rank or made.shape[-1] != x.shape[-1]:
        raise ValueError(f"a bias of {bias.shape[0]} numbers is added to {x.shape[-1]}")
    return made


# Operators of ONNX

_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "Relu": lambda x: relu(x),
    "Sigmoid": lambda x: sigmoid(x),
    "Tanh": lambda x: tanh(x),
    "LeakyRelu": lambda x, alpha=0.01: onnx.LeakyRelu(x, alpha=alpha),
    "Clip": lambda x, least=-3.4028235e38, most=3.4028235e38: clip(x, least, most),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: onnx.HardSigmoid(x, alpha=alpha, beta=beta),
}
"""The activations of FusedConv and FusedGemm by name, with their numbers in order."""


_OF_KERNELS = {"Relu": 0, "Tanh": 0, "LeakyRelu": 1, "HardSigmoid": 2}
"""Those that the kernels compute right, with how many numbers they want: their sigmoid is 0 far below."""


def _is_kernels(activation: str | None, *numbers: float | None) -> bool:
    return activation in _OF_KERNELS and len([n for n in numbers if n is not None]) >= _OF_KERNELS[activation]


def _activated(x: Symbol, name: str | None, numbers: tuple[float, ...]) -> Symbol:
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise ValueError(f"there is no activation {name!r}: {', '.join(_ACTIVATIONS)}")
    made: Symbol = _ACTIVATIONS[name](x, *numbers)
    return made


@contrib(
    promote="float",
    dtypes={"X W B Z": "float16 float32 float64"},
    kernels="float32",
    when=lambda types, attributes, results: _is_kernels(
        attributes["activation"], *attributes["activation_params"] or ()
    ),
    note="with Relu, Tanh, LeakyRelu or HardSigmoid",
)
@rounded_once()
def FusedConv(  # noqa: N802
    X: Symbol,
    W: Symbol,
    B: Symbol | None = None,
    Z: Symbol | None = None,
    *,
    activation: str | None = None,
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Symbol:
    """activation(Conv(X, W, B) + Z). X: [batch, channels, ...]; W: [features, channels / group, ...]; B: [features]; Z:
    of the result's shape. activation: Relu, Sigmoid, Tanh, LeakyRelu, Clip or HardSigmoid, with its numbers in
    activation_params; the rest as for ONNX Conv. Returns what Conv does."""
    settings = {"dilations": dilations, "kernel_shape": kernel_shape, "pads": pads, "strides": strides}
    given = {name: value for name, value in settings.items() if value}
    made: Any = onnx.Conv(X, W, B, auto_pad=auto_pad, group=group, **given)
    if Z is not None and (Z.rank != made.rank or not all(map(may_be, Z.shape, made.shape))):
        raise ValueError(f"Z has shape {Z.shape}, and the convolution {made.shape}")
    return _activated(made if Z is None else made + Z, activation, tuple(activation_params or ()))


@contrib(
    promote="float",
    dtypes={"A B C": "float16 float32 float64"},
    kernels="float32",
    when=lambda types, attributes, results: _is_kernels(
        *(attributes[f"activation{end}"] for end in ("", "_alpha", "_beta"))
    ),
    note="with Relu, Tanh, LeakyRelu or HardSigmoid",
)
@rounded_once()
def FusedGemm(  # noqa: N802
    A: Symbol,
    B: Symbol,
    C: Symbol | None = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: bool = False,
    transB: bool = False,
) -> Symbol:
    """activation(alpha * A @ B + beta * C). A: [m, k] and B: [k, n], or transposed; C: broadcasts to [m, n].
    activation: as in FusedConv, with its numbers in activation_alpha and so on. Returns [m, n]."""
    made: Any = onnx.Gemm(A, B, C, alpha=alpha, beta=beta, transA=int(transA), transB=int(transB))
    numbers = [n for n in (activation_alpha, activation_beta, activation_gamma) if n is not None]
    return _activated(made, activation, tuple(numbers))


@contrib(promote="float", dtypes={"A B": FLOATS}, kernels="float32")
@rounded_once()
def TransposeMatMul(  # noqa: N802
    A: Symbol, B: Symbol, *, alpha: float = 1.0, transA: bool = False, transB: bool = False
) -> Symbol:
    """alpha * A @ B, with the last two axes swapped before: FusedMatMul by its older name."""
    made: Symbol = FusedMatMul(A, B, alpha=alpha, transA=transA, transB=transB)
    return made


@contrib(promote="float", dtypes={"data bias": "float16 float32 float64"}, note="the CPU has no kernel")
@rounded_once()
def BiasSoftmax(data: Symbol, bias: Symbol, *, is_inner_broadcast: bool, axis: int = 1) -> Symbol:  # noqa: N802
    """softmax(data + bias) over all axes from `axis` on.

    bias: [1, ..., those axes], or with is_inner_broadcast [outer, 1, ..., those axes]. Returns the type of data.
    """
    total = data + bias
    if total.shape != data.shape:
        raise ValueError(f"bias has shape {bias.shape}, which does not broadcast to {data.shape}")
    axis = axis + data.rank if axis < 0 else axis
    if not 0 <= axis < data.rank:
        raise ValueError(f"there is no axis {axis} in {data.rank}")
    flat = flatten(total, axis) if axis < data.rank - 1 else total
    return softmax(flat).reshape(*data.shape)


@contrib(dtypes={"x": BYTES}, kernels=BYTES)
def NhwcMaxPool(  # noqa: N802
    x: Symbol,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Symbol:
    """The greatest element of each window. x: [batch, ..., channels]; the attributes are ONNX MaxPool's. Returns
    [batch, ..., channels]."""
    settings = {"dilations": dilations, "pads": pads, "strides": strides}
    given = {name: value for name, value in settings.items() if value}
    first = permute(x, [0, x.rank - 1, *range(1, x.rank - 1)])
    pool: Any = onnx.MaxPool
    made: Symbol = pool(first, kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=int(ceil_mode), **given)
    return permute(made, [0, *range(2, x.rank), 1])


@contrib(
    promote={"word_embedding position_embedding segment_embedding gamma beta": "float"},
    dtypes={
        "word_embedding position_embedding segment_embedding gamma beta": SINGLES,
        "input_ids segment_ids mask position_ids": "int32",
    },
    note="as SkipLayerNormalization",
)
@rounded_once()
def EmbedLayerNormalization(  # noqa: N802
    input_ids: Symbol,
    segment_ids: Symbol | None,
    word_embedding: Symbol,
    position_embedding: Symbol,
    segment_embedding: Symbol | None,
    gamma: Symbol,
    beta: Symbol,
    mask: Symbol | None = None,
    position_ids: Symbol | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Symbol, Symbol, Symbol]:
    """layer_norm of the sum of a token's, its position's and its segment's embedding.

    input_ids, segment_ids, mask: [batch, positions]; position_ids: likewise, or [1, positions]. The embeddings: [count,
    size]. gamma, beta: [size]. Returns [batch, positions, size]; with outputs=3 also how many of each row the mask
    counts (0 without one), and the sum. Devlin et al. 2018, arXiv:1810.04805.
    """
    if input_ids.rank != 2:
        raise ValueError(f"input_ids has shape {input_ids.shape}, and [batch, positions] is wanted")
    length = input_ids.shape[1]
    at = creation.range(0, length, out_dim=length) if position_ids is None else position_ids
    total = gather(word_embedding, input_ids) + gather(position_embedding, at)
    if (segment_ids is None) != (segment_embedding is None):
        raise ValueError("segment_ids and segment_embedding go together")
    if segment_ids is not None and segment_embedding is not None:
        total = total + gather(segment_embedding, segment_ids)
    counted = input_ids[:, 0] * 0 if mask is None else reduction.sum(mask, axis=1)
    return layer_norm(total, gamma, beta, epsilon), counted.cast("int32"), total


_ANY = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"


@contrib(dtypes={"X": _ANY, "k": "int64"}, note="ONNX Trilu takes its place")
def Trilu(X: Symbol, k: Symbol | None = None, *, upper: bool = True) -> Symbol:  # noqa: N802
    """The upper or lower triangle of matrices, 0 elsewhere. X: [..., rows, columns]; k: the diagonal. Returns its type.

    ONNX Trilu by its older name.
    """
    made: Symbol = onnx.Trilu(X, k, upper=int(upper))
    return made


# Normalisations of a sum

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
