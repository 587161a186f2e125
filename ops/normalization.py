"""Normalisations to mean 0 and variance 1, or to length 1, over axes."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY, expansion, op
from graphcore.build.operands import promote, promote_one
from graphcore.build.shapes import axis_of, check_shape, retype
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.attributes import domain_for, real, whole
from graphcore.ops.shared.dims import Axis, Size, shape_vector
from graphcore.ops.shared.reshape import change_layout
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import _shape

# Over the last axis


@op(onnx="LayerNormalization", rule="float")
def layer_norm(x: TensorLike, gamma: TensorLike, beta: TensorLike | None = None, epsilon: float = 1e-5) -> Symbol:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, over the last axis.

    Args:
        x: [..., features].
        gamma: [features]; None for no beta.
        beta: [features]; None for no beta. They are promoted together; integers become floats.
        epsilon: A Python number >= 0.

    Returns:
        The shape of x.

    Raises:
        ShapeError: For other shapes.

    Ba et al. 2016, arXiv:1607.06450; ONNX LayerNormalization.
    """
    small = real("layer_norm", "epsilon", epsilon, least=0)
    roles = {"x": x, "gamma": gamma, "beta": beta}
    present = {role: value for role, value in roles.items() if value is not None}
    (symbol, *rest), dtype = promote("layer_norm", "float", present)
    _check_features("layer_norm", symbol, -1, ("gamma", "beta"), rest)
    attributes = {"axis": -1, "epsilon": small}
    return symbol.graph.build.emit(
        "LayerNormalization", (symbol, *rest), retype(symbol, dtype), attributes, domain_for(dtype, small)
    )


@op(onnx="RMSNormalization", rule="float")
def rms_norm(x: TensorLike, weight: TensorLike, epsilon: float = 1e-6, weight_offset: float = 0.0) -> Symbol:
    """x / sqrt(mean of x * x + epsilon) * (weight + weight_offset), over the last axis.

    Args:
        x: [..., features].
        weight: [features]. They are promoted together; integers become floats.
        epsilon: A Python number >= 0.
        weight_offset: A Python number, 1.0 for weights stored as their difference from 1.

    Returns:
        The shape of x.

    Raises:
        ShapeError: For other shapes.

    Zhang and Sennrich 2019, arXiv:1910.07467; ONNX RMSNormalization.
    """
    small = real("rms_norm", "epsilon", epsilon, least=0)
    offset = real("rms_norm", "weight_offset", weight_offset)
    (symbol, scale), dtype = promote("rms_norm", "float", {"x": x, "weight": weight})
    _check_features("rms_norm", symbol, -1, ("weight",), [scale])
    attributes: dict[str, float] = {"axis": -1, "epsilon": small}
    if offset:
        attributes["weight_offset"] = offset
    domain = LIBRARY if offset else domain_for(dtype, small)
    return symbol.graph.build.emit("RMSNormalization", (symbol, scale), retype(symbol, dtype), attributes, domain)


# Over channels: the second axis


@op(onnx="GroupNormalization", rule="float")
def group_norm(x: TensorLike, gamma: TensorLike, beta: TensorLike, num_groups: int, epsilon: float = 1e-5) -> Symbol:
    """Values normalised within groups of channels, times gamma plus beta.

    Args:
        x: [batch, channels, ...].
        gamma: [channels].
        beta: [channels]. They are promoted together; integers become floats.
        num_groups: The number of groups, which must divide the number of channels.
        epsilon: A Python number >= 0, added to the variance.

    Returns:
        The shape of x.

    Raises:
        ShapeError: For other shapes and for channels that are not divisible.

    Wu and He 2018, arXiv:1803.08494; ONNX GroupNormalization.
    """
    small = real("group_norm", "epsilon", epsilon, least=0)
    groups = whole("group_norm", "num_groups", num_groups, 1)
    (symbol, scale, shift), dtype = promote("group_norm", "float", {"x": x, "gamma": gamma, "beta": beta})
    _check_rank("group_norm", symbol, 2)
    _check_features("group_norm", symbol, 1, ("gamma", "beta"), [scale, shift])
    channels = symbol.shape[1]
    if channels.is_static and int(channels) % groups:
        raise ShapeError(
            f"group_norm: {channels} channels cannot be split into {groups} groups",
            operands={"x": symbol},
            help=f"give a num_groups that divides {channels}",
        )
    attributes = {"num_groups": groups, "epsilon": small}
    return symbol.graph.build.emit(
        "GroupNormalization", (symbol, scale, shift), retype(symbol, dtype), attributes, domain_for(dtype, small)
    )


@op(onnx="InstanceNormalization", rule="float")
def instance_norm(x: TensorLike, gamma: TensorLike, beta: TensorLike, epsilon: float = 1e-5) -> Symbol:
    """Values normalised within each channel of each item, times gamma plus beta.

    Args:
        x: [batch, channels, ...] with at least one axis after the channels.
        gamma: [channels].
        beta: [channels]. They are promoted together; integers become floats.
        epsilon: A Python number >= 0, added to the variance.

    Returns:
        The shape of x.

    Raises:
        ShapeError: For other shapes.

    Ulyanov et al. 2016, arXiv:1607.08022; ONNX InstanceNormalization.
    """
    small = real("instance_norm", "epsilon", epsilon, least=0)
    (symbol, scale, shift), dtype = promote("instance_norm", "float", {"x": x, "gamma": gamma, "beta": beta})
    _check_rank("instance_norm", symbol, 3)
    _check_features("instance_norm", symbol, 1, ("gamma", "beta"), [scale, shift])
    return symbol.graph.build.emit(
        "InstanceNormalization",
        (symbol, scale, shift),
        retype(symbol, dtype),
        {"epsilon": small},
        domain_for(dtype, small),
    )


@op(onnx="BatchNormalization", rule="float")
def batch_norm(
    x: TensorLike,
    scale: TensorLike,
    bias: TensorLike,
    mean: TensorLike,
    var: TensorLike,
    epsilon: float = 1e-5,
    axis: int = 1,
) -> Symbol:
    """(x - mean) / sqrt(var + epsilon) * scale + bias, by channel: the normalisation learnt in training.

    Args:
        x: [batch, channels, ...].
        scale: [channels].
        bias: [channels].
        mean: [channels].
        var: [channels]. They are promoted together; integers become floats.
        epsilon: A Python number >= 0.
        axis: That of the channels: -1 for images in NHWC, the layout of `conv2d`.

    Returns:
        The shape of x.

    Raises:
        ShapeError: For other shapes and for an invalid axis.

    Ioffe and Szegedy 2015, arXiv:1502.03167; ONNX BatchNormalization, between transposes for another axis than 1.
    """
    small = real("batch_norm", "epsilon", epsilon, least=0)
    operands = {"x": x, "scale": scale, "bias": bias, "mean": mean, "var": var}
    (symbol, *rest), _ = promote("batch_norm", "float", operands)
    _check_rank("batch_norm", symbol, 2)
    position = 1 if type(axis) is int and axis == 1 else axis_of("batch_norm", axis, symbol.rank, {"x": symbol})
    _check_features("batch_norm", symbol, position, ("scale", "bias", "mean", "var"), rest)
    if position == 1:
        return _batch_normalised(symbol, rest, small)
    letters = _LETTERS[: symbol.rank]
    others = letters.replace(letters[position], "")
    second = others[0] + letters[position] + others[1:]
    return change_layout(_batch_normalised(change_layout(symbol, letters, second), rest, small), second, letters)


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""Names of axes, enough for every rank that ONNX's operators support."""


def _batch_normalised(x: Symbol, vectors: Sequence[Symbol], epsilon: float) -> Symbol:
    return x.graph.build.emit(
        "BatchNormalization", (x, *vectors), retype(x), {"epsilon": epsilon}, domain_for(x.dtype, epsilon)
    )


# Over any axis


@op(onnx="LpNormalization", rule="float")
def lp_normalize(x: TensorLike, p: int = 2, axis: int = -1) -> Symbol:
    """x divided by its norm along an axis, so that vectors have length 1; a vector of zeros stays.

    Args:
        x: At least one axis; integers become floats.
        p: 1 for the sum of magnitudes, 2 for the root of the sum of squares.

    Raises:
        ShapeError: For another p and for an invalid axis of x.

    ONNX LpNormalization.
    """
    symbol, dtype = promote_one("lp_normalize", "float", x)
    position = axis_of("lp_normalize", axis, symbol.rank, {"x": symbol})
    if isinstance(p, bool) or p not in (1, 2):
        raise ShapeError(f"lp_normalize: p must be 1 or 2, got {p!r}", operands={"x": symbol}, help="give 1 or 2")
    return symbol.graph.build.emit("LpNormalization", (symbol,), retype(symbol, dtype), {"p": int(p), "axis": position})


def _check_rank(name: str, x: Symbol, least: int) -> None:
    if x.rank < least:
        trailing = "" if least == 2 else " and at least one axis after them"
        raise ShapeError(
            f"{name}: x has rank {x.rank}, but needs a batch axis, channels{trailing}",
            operands={"x": x},
            help="give x as [batch, channels, ...]; ops.unsqueeze adds an axis",
        )


def _check_features(name: str, x: Symbol, axis: int, roles: Sequence[str], vectors: Sequence[Symbol]) -> None:
    """Raise `ShapeError` unless each vector has one element for each position along an axis of x."""
    what = "features" if axis == -1 else "channels"
    if not x.rank:
        raise ShapeError(
            f"{name}: x must have an axis of {what}, got a scalar", operands={"x": x}, help="add an axis first"
        )
    size = x.shape[axis]
    for role, vector in zip(roles, vectors, strict=False):
        check_shape(
            name, role, {"x": x, role: vector}, [size], f"x has {size} {what} (axis {axis}): give one number for each"
        )


# Expansions, for dtypes without an accurate kernel


def _mean(x: Symbol, axes: Sequence[int]) -> Symbol:
    shape = _shape([Dim(1) if i in axes else d for i, d in enumerate(x.shape)])
    return e.emit("ReduceMean", x, e.ints(x, axes), dtype=x.dtype, shape=shape, keepdims=1)


def _scaled(x: Symbol, axes: Sequence[int], epsilon: float) -> Symbol:
    """Divide x by the root of its mean square."""
    variance = e.emit("Add", _mean(e.emit("Mul", x, x), axes), e.const(x, epsilon))
    return e.emit("Div", x, e.emit("Sqrt", variance))


def _standardised(x: Symbol, axes: Sequence[int], epsilon: float) -> Symbol:
    """Subtract the mean first: the difference of two large squares would lose a small variance."""
    return _scaled(e.emit("Sub", x, _mean(x, axes)), axes, epsilon)


def _by_channel(x: Symbol, vector: Symbol) -> Symbol:
    """Reshape a vector of channels to broadcast along the second axis of x."""
    return e.unsqueeze(vector, *range(1, x.rank - 1)) if x.rank > 2 else vector


def _affine(x: Symbol, scale: Symbol, shift: Symbol) -> Symbol:
    return e.emit("Add", e.emit("Mul", x, _by_channel(x, scale)), _by_channel(x, shift))


@expansion("LayerNormalization")
def _layer_normalization(
    x: Symbol, scale: Symbol, bias: Symbol | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Symbol:
    result = e.emit("Mul", _standardised(x, range(axis % x.rank, x.rank), epsilon), scale)
    return result if bias is None else e.emit("Add", result, bias)


@expansion("RMSNormalization")
def _rms_normalization(
    x: Symbol,
    weight: Symbol,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    weight_offset: float = 0.0,
    stash_type: int = 1,
) -> Symbol:
    if weight_offset:
        weight = e.emit("Add", weight, e.const(weight, weight_offset))
    return e.emit("Mul", _scaled(x, range(axis % x.rank, x.rank), epsilon), weight)


@expansion("GroupNormalization")
def _group_normalization(
    x: Symbol, scale: Symbol, bias: Symbol, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Symbol:
    sizes = [d if d.is_static else Axis(x, i) for i, d in enumerate(x.shape)]
    per_group: Size = x.shape[1] // num_groups
    if not x.shape[1].is_static:
        per_group = e.emit("Div", shape_vector(x.graph, sizes[1:2]), x.graph.build.vector([num_groups]))
    grouped_shape = _shape([x.shape[0], Dim(num_groups), x.shape[1] // num_groups, *x.shape[2:]])
    split = shape_vector(x.graph, [sizes[0], Dim(num_groups), per_group, *sizes[2:]])
    grouped = e.emit("Reshape", x, split, dtype=x.dtype, shape=grouped_shape, allowzero=1)
    even = _standardised(grouped, range(2, grouped.rank), epsilon)
    joined = e.emit("Reshape", even, shape_vector(x.graph, sizes), dtype=x.dtype, shape=x.shape, allowzero=1)
    return _affine(joined, scale, bias)


@expansion("InstanceNormalization")
def _instance_normalization(x: Symbol, scale: Symbol, bias: Symbol, *, epsilon: float = 1e-5) -> Symbol:
    return _affine(_standardised(x, range(2, x.rank), epsilon), scale, bias)


@expansion("BatchNormalization")
def _batch_normalization(
    x: Symbol, scale: Symbol, bias: Symbol, mean: Symbol, var: Symbol, *, epsilon: float = 1e-5
) -> Symbol:
    root = e.emit("Sqrt", e.emit("Add", var, e.const(var, epsilon)))
    centred = e.emit("Sub", x, _by_channel(x, mean))
    return _affine(e.emit("Div", centred, _by_channel(x, root)), scale, bias)
