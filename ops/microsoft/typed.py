"""Operators that are declared without a body: what the runtime's kernels take, and what they give."""

from __future__ import annotations

from graphcore.ops.microsoft._declare import contrib
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType

_ONE = "float32"


@contrib(dtypes={"X": "float16 float32 float64"}, kernels="float16 float32 float64", typed=True, note="typed only")
def Inverse(X: TensorType) -> TensorType:  # noqa: N802
    """The inverse of square matrices. X: [..., size, size]. Returns its type."""
    if X.shape.rank < 2 or (X.shape[-1].is_static and X.shape[-2].is_static and X.shape[-1] != X.shape[-2]):
        raise ValueError(f"{X.shape} is no shape of square matrices")
    return X


@contrib(
    dtypes={"input router_probs fc1_experts_weights fc1_experts_bias fc2_experts_weights fc2_experts_bias": _ONE},
    kernels=_ONE,
    typed=True,
    note="typed only",
)
def MoE(  # noqa: N802
    input: TensorType,
    router_probs: TensorType,
    fc1_experts_weights: TensorType,
    fc1_experts_bias: TensorType | None,
    fc2_experts_weights: TensorType,
    fc2_experts_bias: TensorType | None = None,
    fc3_experts_weights: TensorType | None = None,
    fc3_experts_bias: TensorType | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: bool = False,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: bool = False,
) -> TensorType:
    """A mixture of experts. input: [tokens, size] or [batch, positions, size]; router_probs: [tokens, experts]. Returns
    the type of input."""
    _check_router(input, router_probs)
    return input


@contrib(
    dtypes={"input router_probs": "float16 float32", "fc1_experts_weights fc2_experts_weights": "uint8"},
    kernels="float16 float32",
    typed=True,
    note="typed only",
)
def QMoE(  # noqa: N802
    input: TensorType,
    router_probs: TensorType,
    fc1_experts_weights: TensorType,
    fc1_scales: TensorType | None,
    fc1_experts_bias: TensorType | None,
    fc2_experts_weights: TensorType,
    fc2_scales: TensorType | None = None,
    fc2_experts_bias: TensorType | None = None,
    fc3_experts_weights: TensorType | None = None,
    fc3_scales: TensorType | None = None,
    fc3_experts_bias: TensorType | None = None,
    fc1_zero_points: TensorType | None = None,
    fc2_zero_points: TensorType | None = None,
    fc3_zero_points: TensorType | None = None,
    router_weights: TensorType | None = None,
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
) -> TensorType:
    """A mixture of experts with quantised weights. input: [tokens, size] or [batch, positions, size]; router_probs:
    [tokens, experts]. Returns the type of input."""
    _check_router(input, router_probs)
    return input


def _check_router(x: TensorType, router: TensorType) -> None:
    if x.shape.rank not in (2, 3) or router.shape.rank != 2:
        raise ValueError(f"input and router_probs have shapes {x.shape} and {router.shape}")
    tokens = x.shape[0] if x.shape.rank == 2 else x.shape[0] * x.shape[1]
    rows: Dim = router.shape[0]
    if tokens.is_static and rows.is_static and tokens != rows:
        raise ValueError(f"router_probs has {rows} rows for {tokens} tokens")
