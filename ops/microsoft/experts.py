"""Mixtures of experts: each row of the input goes through the experts that have its highest scores.

Bodies compute every expert for every row, also in forms without a kernel: a third product, gates in halves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphcore.custom_ops.custom_op import Types
from graphcore.ir.symbol import Symbol
from graphcore.ops.activation import clip, gelu, relu, sigmoid, softmax
from graphcore.ops.creation import one_hot
from graphcore.ops.gathering import take_along_axis, where
from graphcore.ops.linalg import matmul
from graphcore.ops.microsoft._declare import SINGLES, contrib, shape_at
from graphcore.ops.microsoft.products import _unpacked
from graphcore.ops.rearranging import permute
from graphcore.ops.sorting import top_k
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType

_ACTIVATIONS: Mapping[str, Callable[[Symbol], Symbol]] = {
    "relu": relu,
    "relu2": lambda x: relu(x) * relu(x),
    "gelu": lambda x: gelu(x, "tanh"),
    "silu": lambda x: x * sigmoid(x),
    "identity": lambda x: x,
}
_OF_KERNELS = ("relu", "gelu", "silu", "identity", "swiglu")


@contrib(
    promote="float",
    dtypes={
        "input router_probs fc1_experts_weights fc1_experts_bias fc2_experts_weights fc2_experts_bias "
        "fc3_experts_weights fc3_experts_bias": SINGLES
    },
    kernels="float32",
    when=lambda types, attributes, results: shape_at(types, 6) is None and _is_of_kernel(attributes),
    note="without fc3; swiglu only with swiglu_fusion=1",
)
def MoE(  # noqa: N802
    input: Symbol,
    router_probs: Symbol,
    fc1_experts_weights: Symbol,
    fc1_experts_bias: Symbol | None,
    fc2_experts_weights: Symbol,
    fc2_experts_bias: Symbol | None = None,
    fc3_experts_weights: Symbol | None = None,
    fc3_experts_bias: Symbol | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: bool = False,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: bool = False,
) -> Symbol:
    """A mixture of experts: the sum of the k experts of each row, by the softmax of router_probs.

    Args:
        input: [tokens, size] or [batch, positions, size].
        router_probs: [tokens, experts], before the softmax.
        fc1_experts_weights: [experts, inner, size], or [experts, 2 * inner, size] for fused gates; biases lack size.
        fc2_experts_weights: [experts, size, inner], with a bias of [experts, size].
        fc3_experts_weights: [experts, inner, size]: multiplies the activation, or is the second part of a gate.
        activation_type: "relu", "relu2", "gelu" (with tanh), "silu", "identity"; or a gate, "swiglu" or "geglu".
        normalize_routing_weights: Divide the weights of the k experts by their sum.
        swiglu_fusion: 1 for the two parts of a gate in alternate rows, 2 for halves, 0 for fc1 and fc3.

    Returns:
        The type of input.
    """
    _check(input, router_probs, use_sparse_mixer)
    _, at = top_k(router_probs, k)
    shares = take_along_axis(softmax(router_probs), at)
    weights = fc1_experts_weights, fc2_experts_weights, fc3_experts_weights
    biases = fc1_experts_bias, fc2_experts_bias, fc3_experts_bias
    activation = _Activation(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
    if normalize_routing_weights:
        shares = shares / shares.sum(axis=-1, keepdims=True)
    return _mixed(input, at, shares, weights, biases, activation)


@contrib(
    promote={
        "input router_probs fc1_scales fc1_experts_bias fc2_scales fc2_experts_bias fc3_scales fc3_experts_bias "
        "router_weights": "float"
    },
    dtypes={
        "input router_probs fc1_scales fc1_experts_bias fc2_scales fc2_experts_bias fc3_scales fc3_experts_bias "
        "router_weights": SINGLES,
        "fc1_experts_weights fc2_experts_weights fc3_experts_weights fc1_zero_points fc2_zero_points "
        "fc3_zero_points": "uint8",
    },
    kernels="float32",
    when=lambda types, attributes, results: _has_kernel(types, attributes),
    note="as MoE, with more than one block; it may round activations to int8 for blocks of 2 and 8 bits",
)
def QMoE(  # noqa: N802
    input: Symbol,
    router_probs: Symbol,
    fc1_experts_weights: Symbol,
    fc1_scales: Symbol | None,
    fc1_experts_bias: Symbol | None,
    fc2_experts_weights: Symbol,
    fc2_scales: Symbol | None = None,
    fc2_experts_bias: Symbol | None = None,
    fc3_experts_weights: Symbol | None = None,
    fc3_scales: Symbol | None = None,
    fc3_experts_bias: Symbol | None = None,
    fc1_zero_points: Symbol | None = None,
    fc2_zero_points: Symbol | None = None,
    fc3_zero_points: Symbol | None = None,
    router_weights: Symbol | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int | None = None,
    expert_weight_bits: int = 4,
    k: int = 1,
    normalize_routing_weights: bool = False,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: bool = False,
    weights_prepacked: int = -1,
) -> Symbol:
    """A mixture of experts with weights of 2, 4 or 8 bits: (weight - zero point) * scale, by rows or their blocks.

    Args:
        input: [tokens, size] or [batch, positions, size]; router_probs: [tokens, experts], before the softmax.
        fc1_experts_weights: [experts, rows, columns * bits / 8], the first in the lowest bits of a byte.
        fc1_scales: [experts, rows], or [experts, rows, blocks].
        fc1_zero_points: Packed as the weights along the last axis of the scales; by default half the range.
        router_weights: [tokens, experts], which mix the experts in place of the softmax of their scores.
        normalize_routing_weights: Divide router_weights of the k experts by their sum; without them it is always done.

    Returns:
        The type of input.
    """
    _check(input, router_probs, use_sparse_mixer)
    if quant_type != "int" or expert_weight_bits not in (2, 4, 8):
        raise ValueError(
            f"weights must be integers of 2, 4 or 8 bits, got {quant_type!r} of {expert_weight_bits} bits: there is no "
            "body for others"
        )
    parts = (
        (fc1_experts_weights, fc1_scales, fc1_zero_points),
        (fc2_experts_weights, fc2_scales, fc2_zero_points),
        (fc3_experts_weights, fc3_scales, fc3_zero_points),
    )
    weights = [None if w is None else _dequantized(w, s, zero, expert_weight_bits) for w, s, zero in parts]
    _, at = top_k(router_probs, k)
    shares = take_along_axis(softmax(router_probs) if router_weights is None else router_weights, at)
    if router_weights is None or normalize_routing_weights:
        shares = shares / shares.sum(axis=-1, keepdims=True)
    biases = fc1_experts_bias, fc2_experts_bias, fc3_experts_bias
    activation = _Activation(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
    return _mixed(input, at, shares, weights, biases, activation)


@dataclass(frozen=True, slots=True)
class _Activation:
    """The activation between the products of an expert, with the attributes of a gate."""

    kind: str
    fusion: int
    alpha: float
    beta: float
    limit: float | None

    def __call__(self, x: Symbol, other: Symbol | None) -> Symbol:
        """Return the activation of the first product; other: the third one."""
        if self.kind in _ACTIVATIONS:
            result = _ACTIVATIONS[self.kind](x)
            return result if other is None else result * other
        if self.kind not in ("swiglu", "geglu"):
            names = ", ".join([*_ACTIVATIONS, "swiglu", "geglu"])
            raise ValueError(f"activation_type must be one of {names}, got {self.kind!r}")
        gate, linear = self._parts(x, other)
        if self.kind == "geglu":
            return gelu(gate, "tanh") * linear
        if self.limit is not None:
            gate, linear = clip(gate, max=self.limit), clip(linear, -self.limit, self.limit)
        return gate * sigmoid(gate * self.alpha) * (linear + self.beta)

    def _parts(self, x: Symbol, other: Symbol | None) -> tuple[Symbol, Symbol]:
        size = x.shape[-1]
        if self.fusion == 0 and other is not None:
            return x, other
        if self.fusion not in (1, 2) or other is not None or not size.is_static or int(size) % 2:
            raise ValueError(
                f"{self.kind} with swiglu_fusion={self.fusion} needs "
                f"{'fc3_experts_weights' if self.fusion == 0 else 'twice the inner size in fc1 and no fc3'}"
            )
        half = int(size) // 2
        return (x[..., ::2], x[..., 1::2]) if self.fusion == 1 else (x[..., :half], x[..., half:])


def _check(x: Symbol, router: Symbol, is_sparse: bool) -> None:
    if x.rank not in (2, 3) or router.rank != 2:
        raise ValueError(f"input must have 2 or 3 axes and router_probs 2, got shapes {x.shape} and {router.shape}")
    tokens = x.shape[0] if x.rank == 2 else x.shape[0] * x.shape[1]
    rows: Dim = router.shape[0]
    if tokens.is_static and rows.is_static and tokens != rows:
        raise ValueError(f"router_probs has {rows} rows for {tokens} tokens")
    if is_sparse:
        raise ValueError("use_sparse_mixer is not supported: only the kernel of CUDA has it, and the CPU's ignores it")


def _mixed(
    x: Symbol,
    at: Symbol,
    shares: Symbol,
    weights: Sequence[Any],
    biases: Sequence[Symbol | None],
    activation: _Activation,
) -> Symbol:
    """Return the experts of each row, which are computed for all rows, by their shares."""
    rows = x if x.rank == 2 else x.reshape(-1, x.shape[-1])
    first, second, third = weights
    inner = activation(_product(rows, first, biases[0]), None if third is None else _product(rows, third, biases[2]))
    results = _product(inner, second, biases[1])
    hot = one_hot(at, first.shape[0], dtype=DType.float32)
    mixing = permute((hot * shares.unsqueeze(-1)).sum(axis=-2), [1, 0]).unsqueeze(-1)
    total = where(mixing != 0, results * mixing, 0.0).sum(axis=0)  # an overflow of another expert does not count
    return total if x.rank == 2 else total.reshape(*x.shape)


def _product(x: Symbol, weight: Symbol, bias: Symbol | None) -> Symbol:
    """Return x @ weight^T + bias of each expert: [experts, tokens, rows]."""
    product = matmul(x, permute(weight, [0, 2, 1]))
    return product if bias is None else product + bias.unsqueeze(1)


def _dequantized(weight: Symbol, scales: Symbol | None, zeros: Symbol | None, bits: int) -> Symbol:
    if scales is None or weight.rank != 3 or not weight.shape.is_static or not scales.shape.is_static:
        raise ValueError("weights of integers need [experts, rows, bytes] and scales of static shapes")
    experts, rows, size = (int(d) for d in weight.shape)
    blocks = int(scales.shape[2]) if scales.rank == 3 else 1
    columns = size * 8 // bits
    numbers = _unpacked(weight, bits).cast(DType.float32).reshape(experts, rows, blocks, columns // blocks)
    zero: Symbol | float = float(1 << (bits - 1))
    if zeros is not None:
        counted = rows if scales.rank == 2 else blocks
        zero = _unpacked(zeros, bits)[..., :counted].cast(DType.float32).reshape(experts, rows, blocks, 1)
    return ((numbers - zero) * scales.reshape(experts, rows, blocks, 1)).reshape(experts, rows, columns)


def _is_of_kernel(attributes: Mapping[str, Any]) -> bool:
    kind = attributes["activation_type"]
    return kind in _OF_KERNELS and (kind != "swiglu" or attributes["swiglu_fusion"] == 1)


def _has_kernel(types: Types, attributes: Mapping[str, Any]) -> bool:
    """Return True if the kernel takes this form: 1.27 wants other shapes for a single block."""
    scales = [shape_at(types, i) for i in (3, 6)]
    is_single = any(s is None or (len(s) == 3 and not (s[2].is_static and int(s[2]) > 1)) for s in scales)
    return shape_at(types, 8) is None and not is_single and _is_of_kernel(attributes)
