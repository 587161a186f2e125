"""ONNX operators fused with an activation, a bias or a sum, in another layout, or with an older name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphcore.custom_ops.custom_op import Types
from graphcore.ir.symbol import Symbol
from graphcore.ops import creation, onnx, reduction
from graphcore.ops.activation import clip, gelu, relu, sigmoid, softmax
from graphcore.ops.elementwise import rsqrt, tanh
from graphcore.ops.gathering import gather
from graphcore.ops.microsoft._declare import BYTES, FLOATS, SINGLES, check_bias, contrib, may_be, shape_at
from graphcore.ops.microsoft.products import FusedMatMul
from graphcore.ops.normalization import layer_norm, rms_norm
from graphcore.ops.rearranging import permute
from graphcore.ops.shape import flatten

# Activations fused with a bias


@contrib(promote="float", dtypes={"X": FLOATS}, kernels="float32")
def Gelu(X: Symbol) -> Symbol:  # noqa: N802 - the operator's name
    """x * Phi(x), by the error function.

    Args:
        X: Floats of any shape.

    Returns:
        Its type.
    """
    return gelu(X)


@contrib(promote="float", dtypes={"A B": FLOATS}, kernels="float32")
def BiasGelu(A: Symbol, B: Symbol) -> Symbol:  # noqa: N802
    """gelu(A + B).

    Args:
        A: [..., size]; B: [size].

    Returns:
        The type of A.
    """
    return gelu(_add_bias(A, B))


@contrib(promote="float", dtypes={"X bias": FLOATS}, kernels="float32")
def FastGelu(X: Symbol, bias: Symbol | None = None) -> Symbol:  # noqa: N802
    """gelu(X + bias) with tanh in place of the error function.

    Args:
        X: [..., size]; bias: [size].

    Returns:
        The type of X.
    """
    return gelu(X if bias is None else _add_bias(X, bias), approximate="tanh")


@contrib(promote="float", dtypes={"X": FLOATS}, note="the kernel's sigmoid is further off than 4 ulp in its tail")
def QuickGelu(X: Symbol, *, alpha: float = 1.702) -> Symbol:  # noqa: N802
    """X * sigmoid(alpha * X).

    Args:
        X: Floats of any shape.

    Returns:
        Its type.
    """
    return X * sigmoid(X * alpha)


@contrib(promote="float", dtypes={"X bias skip": FLOATS}, note="the CPU has no kernel")
def BiasAdd(X: Symbol, bias: Symbol, skip: Symbol) -> Symbol:  # noqa: N802
    """X + bias + skip.

    Args:
        X: [batch, positions, size]; bias: [size].
        skip: [batch, positions, size]; bias: [size].

    Returns:
        The type of X.
    """
    return _add_bias(X, bias) + skip


def _add_bias(x: Symbol, bias: Symbol) -> Symbol:
    if x.rank < 1 or bias.rank != 1:
        raise ValueError(f"a bias must be a vector along the last axis, got shape {bias.shape}")
    result = x + bias
    if result.rank != x.rank or result.shape[-1] != x.shape[-1]:
        raise ValueError(f"a bias of {bias.shape[0]} numbers cannot be added to {x.shape[-1]} features")
    return result


# Operators of ONNX

_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "Relu": lambda x: relu(x),
    "Sigmoid": lambda x: sigmoid(x),
    "Tanh": lambda x: tanh(x),
    "LeakyRelu": lambda x, alpha=0.01: onnx.LeakyRelu(x, alpha=alpha),
    "Clip": lambda x, low=-3.4028235e38, high=3.4028235e38: clip(x, low, high),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: onnx.HardSigmoid(x, alpha=alpha, beta=beta),
}
"""The activations of FusedConv and FusedGemm by name, with their parameters in order."""


_KERNEL_ACTIVATIONS = {"Relu": 0, "Tanh": 0, "LeakyRelu": 1, "HardSigmoid": 2}
"""Activations that the kernels compute right, with their numbers of parameters. Not sigmoid, which is 0 far below 0."""


def _has_kernel(types: Types, attributes: Mapping[str, Any], results: int) -> bool:
    numbers = attributes.get("activation_params") or [attributes.get(f"activation_{end}") for end in ("alpha", "beta")]
    needed = _KERNEL_ACTIVATIONS.get(attributes["activation"])
    return needed is not None and len([n for n in numbers if n is not None]) >= needed


def _activate(x: Symbol, name: str | None, numbers: tuple[float, ...]) -> Symbol:
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}: use one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name](x, *numbers)  # type: ignore[no-any-return]


@contrib(
    promote="float",
    dtypes={"X W B Z": "float16 float32 float64"},
    kernels="float32",
    when=_has_kernel,
    note="with Relu, Tanh, LeakyRelu or HardSigmoid",
)
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
    """activation(Conv(X, W, B) + Z).

    Args:
        X: [batch, channels, ...]; W: [features, channels / group, ...]; B: [features]; Z: of the result's shape.
        activation: Relu, Sigmoid, Tanh, LeakyRelu, Clip or HardSigmoid, with its parameters in activation_params; other
            attributes as for ONNX Conv.

    Returns:
        The type that Conv returns.
    """
    settings = {"dilations": dilations, "kernel_shape": kernel_shape, "pads": pads, "strides": strides}
    present = {name: value for name, value in settings.items() if value}
    result: Any = onnx.Conv(X, W, B, auto_pad=auto_pad, group=group, **present)
    if Z is not None and (Z.rank != result.rank or not all(map(may_be, Z.shape, result.shape))):
        raise ValueError(f"Z has shape {Z.shape}, but the convolution {result.shape}")
    return _activate(result if Z is None else result + Z, activation, tuple(activation_params or ()))


@contrib(
    promote="float",
    dtypes={"A B C": "float16 float32 float64"},
    kernels="float32",
    when=_has_kernel,
    note="with Relu, Tanh, LeakyRelu or HardSigmoid",
)
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
    """activation(alpha * A @ B + beta * C).

    Args:
        A: [m, k] and B: [k, n], or transposed; C: broadcasts to [m, n].
        activation: As in FusedConv, with its parameters in activation_alpha, _beta and _gamma.

    Returns:
        [m, n].
    """
    result: Any = onnx.Gemm(A, B, C, alpha=alpha, beta=beta, transA=int(transA), transB=int(transB))
    numbers = [n for n in (activation_alpha, activation_beta, activation_gamma) if n is not None]
    return _activate(result, activation, tuple(numbers))


@contrib(promote="float", dtypes={"A B": FLOATS}, kernels="float32")
def TransposeMatMul(  # noqa: N802
    A: Symbol, B: Symbol, *, alpha: float = 1.0, transA: bool = False, transB: bool = False
) -> Symbol:
    """alpha * A @ B, with the last two axes swapped first: the older name of FusedMatMul."""
    return FusedMatMul(A, B, alpha=alpha, transA=transA, transB=transB)  # type: ignore[no-any-return]


@contrib(promote="float", dtypes={"data bias": "float16 float32 float64"}, note="the CPU has no kernel")
def BiasSoftmax(data: Symbol, bias: Symbol, *, is_inner_broadcast: bool, axis: int = 1) -> Symbol:  # noqa: N802
    """softmax(data + bias) over all axes from `axis` on.

    Args:
        bias: [1, ..., those axes], or with is_inner_broadcast [outer, 1, ..., those axes].

    Returns:
        The type of data.
    """
    total = data + bias
    if total.shape != data.shape:
        raise ValueError(f"bias has shape {bias.shape}, which does not broadcast to {data.shape}")
    axis = axis + data.rank if axis < 0 else axis
    if not 0 <= axis < data.rank:
        raise ValueError(f"there is no axis {axis} of a tensor of rank {data.rank}")
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
    """The maximum of each window.

    Args:
        x: [batch, ..., channels]; the attributes are ONNX MaxPool's.

    Returns:
        [batch, ..., channels].
    """
    settings = {"dilations": dilations, "pads": pads, "strides": strides}
    present = {name: value for name, value in settings.items() if value}
    first = permute(x, [0, x.rank - 1, *range(1, x.rank - 1)])
    pool: Any = onnx.MaxPool
    result: Symbol = pool(first, kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=int(ceil_mode), **present)
    return permute(result, [0, *range(2, x.rank), 1])


@contrib(
    promote={"word_embedding position_embedding segment_embedding gamma beta": "float"},
    dtypes={
        "word_embedding position_embedding segment_embedding gamma beta": SINGLES,
        "input_ids segment_ids mask position_ids": "int32",
    },
    note="as SkipLayerNormalization",
)
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
    """layer_norm of the sum of the embeddings of tokens, positions and segments.

    Args:
        input_ids: [batch, positions]; position_ids: likewise, or [1, positions].
        segment_ids: As `input_ids`.
        gamma: [size].
        beta: [size].
        mask: [batch, positions]; position_ids: likewise, or [1, positions]. The embeddings: [count, size].

    Returns:
        [batch, positions, size]; with outputs=3 also the sum of each row of the mask (0 without one), and the sum of
        the embeddings.

    Devlin et al. 2018, arXiv:1810.04805.
    """
    if input_ids.rank != 2:
        raise ValueError(f"input_ids must have shape [batch, positions], got {input_ids.shape}")
    length = input_ids.shape[1]
    at = creation.range(0, length, out_dim=length) if position_ids is None else position_ids
    total = gather(word_embedding, input_ids) + gather(position_embedding, at)
    if (segment_ids is None) != (segment_embedding is None):
        raise ValueError("segment_ids and segment_embedding must be given together")
    if segment_ids is not None and segment_embedding is not None:
        total = total + gather(segment_embedding, segment_ids)
    counted = input_ids[:, 0] * 0 if mask is None else reduction.sum(mask, axis=1)
    return layer_norm(total, gamma, beta, epsilon), counted.cast("int32"), total


_ANY = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"


@contrib(dtypes={"X": _ANY, "k": "int64"}, note="ONNX Trilu takes its place", rounded=False)
def Trilu(X: Symbol, k: Symbol | None = None, *, upper: bool = True) -> Symbol:  # noqa: N802
    """The upper or lower triangle of matrices, 0 elsewhere.

    Args:
        X: [..., rows, columns]; k: the diagonal. Returns its type.

    The older name of ONNX Trilu.
    """
    return onnx.Trilu(X, k, upper=int(upper))


# Normalisations of a sum

Results = tuple[Symbol, Symbol, Symbol, Symbol]


@contrib(
    promote="float",
    dtypes={"input skip gamma beta bias": SINGLES},
    note="the kernel is four times as far off as LayerNormalization where the mean is large",
    wide=(1, 2),
)
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

    Args:
        input: [..., size].
        skip: The same shape, or one that broadcasts to it.
        gamma: [size].
        beta: [size].
        bias: [size].

    Returns:
        The type of input; the second and third result are float32 with a last axis of 1.
    """
    total = _sum_of(input, skip, bias)
    mean = reduction.mean(total, axis=-1, keepdims=True)
    centred = total - mean
    inverse = rsqrt(reduction.mean(centred * centred, axis=-1, keepdims=True) + epsilon)
    return layer_norm(total, gamma, beta, epsilon), mean, inverse, total


@contrib(
    promote="float",
    dtypes={"input skip gamma bias": SINGLES},
    kernels="float32",
    when=lambda types, attributes, results: _has_skip_kernel(types),
    note="where skip lacks the batch at most",
    wide=(1, 2),
)
def SkipSimplifiedLayerNormalization(  # noqa: N802
    input: Symbol, skip: Symbol, gamma: Symbol, bias: Symbol | None = None, *, epsilon: float = 1e-12
) -> Results:
    """rms_norm(input + skip + bias) * gamma, with outputs=4 also the mean (0), 1 / root mean square and the sum.

    Args:
        input: [..., size].
        skip: The same shape, or one that broadcasts to it.
        gamma: [size].
        bias: [size].

    Returns:
        The type of input; the second and third result are float32 with a last axis of 1.
    """
    total = _sum_of(input, skip, bias)
    square = reduction.mean(total * total, axis=-1, keepdims=True)
    inverse = rsqrt(square + epsilon)
    return rms_norm(total, gamma, epsilon), (square > square).cast(square.dtype), inverse, total


def _has_skip_kernel(types: Types) -> bool:
    """Return True if the kernel supports the shapes: skip may lack the batch, and nothing else."""
    x, skip = shape_at(types, 0), shape_at(types, 1)
    if x is None or skip is None or len(x) not in (2, 3) or len(skip) not in (2, 3):
        return False
    return x[-2:] == skip[-2:] and (len(skip) == 2 or skip[0] in (1, x[0]))


def _sum_of(x: Symbol, skip: Symbol, bias: Symbol | None) -> Symbol:
    check_bias(bias, x.shape[-1])
    total = x + skip
    if total.shape != x.shape:
        raise ValueError(f"skip has shape {skip.shape}, which does not broadcast to {x.shape}")
    return total if bias is None else total + bias
