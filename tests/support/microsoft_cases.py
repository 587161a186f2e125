"""Calls of onnxruntime's own operators, by which tests compare bodies and kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import graphcore as gc
from graphcore.ops.microsoft._declare import ROWS
from tests.support.graphs import Array

random = np.random.default_rng(3)
EXTREME = np.array([[0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, -20, 20, -9, 1e-30, 88]], np.float32)


def real(*shape: int, factor: float = 1.0) -> Array:
    return (random.standard_normal(shape) * factor).astype(np.float32)


def whole(dtype: Any, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return random.integers(info.min, int(info.max) + 1, shape).astype(dtype)


def int32(*values: Any) -> Array:
    return np.array(values[0] if len(values) == 1 else values, np.int32)


@dataclass(frozen=True)
class Case:
    """One call. same: the largest difference between kernel and body, in units of the result's largest number."""

    name: str
    operands: list[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    same: float = 4e-7
    has_kernel: bool = True
    """True where lowering for the CPU keeps the node."""
    runs_alone: bool = True
    """True where the runtime has a kernel that takes it at all."""
    valid: Callable[[int, Array], Array] | None = None
    """The part of a result that has a meaning."""

    @property
    def op(self) -> gc.CustomOp:
        return ROWS[self.name].op


ROW, SQUARE = real(12), real(2, 5, 5)
HIDDEN = real(2, 3, 16)
Q, K, V = real(2, 5, 24), real(2, 7, 24), real(2, 7, 12)
COS, SIN = real(20, 4), real(20, 4)
AT = random.integers(0, 20, (2, 5))
MASK = int32([[1, 1, 0, 1, 0, 1, 1], [0] * 7])
PAST = real(2, 3, 4, 8)


def packed(bits: int, zero: str, k: int = 40, size: int = 16, **more: Any) -> Case:
    blocks = -(-k // size)
    zeros = {
        "": None,
        "packed": whole(np.uint8, 5, -(-blocks * bits // 8)),
        "real": real(5, blocks),
    }[zero]
    operands = [real(3, k), whole(np.uint8, 5, blocks, size * bits // 8), real(5, blocks), zeros, None, real(5)]
    attributes = {"K": k, "N": 5, "block_size": size, "bits": bits}
    return Case(
        "MatMulNBits", operands, attributes, has_kernel=zero != "real", runs_alone=(bits, zero) != (8, "real"), **more
    )


def grouped(
    operands: list[Array | None],
    rows: list[int] | None = None,
    keys: list[int] | None = None,
    has_kernel: bool = True,
    **message: Any,
) -> Case:
    """Of GroupQueryAttention; rows and keys: how many of them in each of the batch have a meaning."""

    def valid(result: int, array: Array) -> Array:
        counts, axis = (rows, 0) if result == 0 else (keys, 1)
        if counts is None:
            return array
        return np.concatenate([np.take(a, range(n), axis).ravel() for a, n in zip(array, counts, strict=True)])

    return Case(
        "GroupQueryAttention",
        operands,
        {"num_heads": 4, "kv_num_heads": 2, **message},
        outputs=3,
        valid=valid,
        has_kernel=has_kernel,
    )


GQ, GK, GV = real(2, 5, 64), real(2, 5, 32), real(2, 5, 32)
GQ1, GK1, GV1 = GQ[:, :1], GK[:, :1], GV[:, :1]
CACHE = [real(2, 2, 6, 16), real(2, 2, 6, 16)]
LONG = [real(2, 2, 16, 16), real(2, 2, 16, 16)]
COS8, SIN8 = real(32, 8), real(32, 8)
PROMPT = [GQ, GK, GV, None, None, int32([4, 4]), int32(5)]


def mixture(rows: int, *, kinds: str = "", **attributes: Any) -> Case:
    """Of MoE. rows: of fc1. kinds: "b" with biases, "3" with a third product."""
    biases = [real(4, rows), real(4, 8), real(4, 6)] if "b" in kinds else [None] * 3
    third = [real(4, 6, 8), biases[2]] if "3" in kinds else []
    operands = [real(2, 3, 8), real(6, 4), real(4, rows, 8), biases[0], real(4, 8, 6), biases[1], *third]
    is_gate = attributes.get("activation_type") in ("swiglu", "geglu")
    has_kernel = not third and (not is_gate or attributes.get("swiglu_fusion") == 1)
    return Case("MoE", operands, attributes, has_kernel=has_kernel, runs_alone=has_kernel)


def packed_mixture(bits: int, blocks: int = 1, kinds: str = "", **attributes: Any) -> Case:
    """Of QMoE. kinds: "z" with zero points, "w" with weights of the experts."""
    is_gate = attributes.get("activation_type") == "swiglu"
    operands: list[Array | None] = [real(5, 32), real(5, 4)]
    zeros: list[Array | None] = []
    for rows, columns in ((64 * (1 + is_gate), 32), (32, 64)):
        axis = [4, rows] if blocks == 1 else [4, rows, columns // 32 * blocks]
        operands += [whole(np.uint8, 4, rows, columns * bits // 8), abs(real(*axis, factor=0.05)), real(4, rows)]
        zeros.append(whole(np.uint8, *axis[:-1], -(-axis[-1] * bits // 8)) if "z" in kinds else None)
    if blocks > 1:
        attributes["block_size"] = 32 // blocks
    weights = abs(real(5, 4)) if "w" in kinds else None
    operands += [None] * 3 + [*zeros, None, weights]
    while operands[-1] is None:
        operands.pop()
    return Case("QMoE", operands, {"k": 2, "expert_weight_bits": bits, **attributes}, same=2e-6)


def one(value: float) -> Array:
    return np.array(value, np.float32)


CASES: dict[str, Case] = {
    **{name: Case(name, [real(4, 12, factor=4)]) for name in ("Gelu", "FastGelu")},
    **{f"{name} extreme": Case(name, [EXTREME]) for name in ("Gelu", "FastGelu")},
    "QuickGelu": Case("QuickGelu", [real(4, 12, factor=4)], has_kernel=False),
    "QuickGelu extreme": Case("QuickGelu", [EXTREME], {"alpha": 1.0}, has_kernel=False),
    "FastGelu bias": Case("FastGelu", [real(4, 12), ROW]),
    "BiasGelu": Case("BiasGelu", [real(4, 12, factor=4), ROW]),
    "BiasGelu extreme": Case("BiasGelu", [EXTREME, 0 * ROW]),
    "BiasAdd": Case("BiasAdd", [HIDDEN, real(16), HIDDEN], has_kernel=False, runs_alone=False),
    "SparseToDenseMatMul": Case(
        "SparseToDenseMatMul",
        [real(3, 5), real(3, 4)],
        {"alpha": 0.5, "transA": True},
        has_kernel=False,
        runs_alone=False,
    ),
    "SparseToDenseMatMul int32": Case(
        "SparseToDenseMatMul", [whole(np.int32, 3, 5), whole(np.int32, 5, 4)], has_kernel=False, runs_alone=False
    ),
    "FusedMatMul": Case("FusedMatMul", [SQUARE, SQUARE], {"alpha": 0.5, "transB": True}),
    "FusedMatMul float64": Case(
        "FusedMatMul", [SQUARE.astype(float), SQUARE.astype(float)], {"transA": True}, same=1e-15
    ),
    "FusedMatMul batch": Case(
        "FusedMatMul", [real(4, 3, 5), real(6, 3, 5)], {"transBatchA": 1, "transBatchB": 1, "transB": 1}
    ),
    "FusedMatMul rank 1": Case("FusedMatMul", [real(5), real(5, 3)], {"transA": True}),
    "FusedMatMul extreme": Case("FusedMatMul", [EXTREME, np.ones((12, 2), np.float32)]),
    "FusedMatMul without elements": Case("FusedMatMul", [real(2, 0), real(0, 3)], {"alpha": 2.0}),
    "TransposeMatMul": Case("TransposeMatMul", [real(2, 4, 3), real(2, 4, 5)], {"transA": True, "alpha": 0.5}),
    **{f"MatMulNBits {b} {z}": packed(b, z) for b in (2, 4, 8) for z in ("", "packed", "real")},
    "MatMulNBits whole blocks": packed(4, "packed", k=64, size=32),
    "DynamicQuantizeMatMul": Case(
        "DynamicQuantizeMatMul", [real(2, 3, 8), whole(np.int8, 8, 4), real(4), whole(np.int8, 4), real(4)]
    ),
    "DynamicQuantizeMatMul scalar": Case("DynamicQuantizeMatMul", [real(3, 8), whole(np.uint8, 8, 4), real(1)]),
    "DynamicQuantizeMatMul of zeros": Case("DynamicQuantizeMatMul", [0 * real(2, 8), whole(np.uint8, 8, 4), real(1)]),
    **{
        f"MatMulIntegerToFloat {a} {b}": Case(
            "MatMulIntegerToFloat",
            [whole(a, 3, 8), whole(b, 8, 4), real(1), real(4), whole(a, 1), whole(b, 4), real(4)],
            has_kernel=(a, b) != ("int8", "uint8"),
            runs_alone=(a, b) != ("int8", "uint8"),
        )
        for a in ("int8", "uint8")
        for b in ("int8", "uint8")
    },
    "SkipLayerNormalization": Case(
        "SkipLayerNormalization", [HIDDEN, HIDDEN[:1], real(16), real(16), real(16)], outputs=4, has_kernel=False
    ),
    "SkipLayerNormalization plain": Case("SkipLayerNormalization", [HIDDEN, HIDDEN, real(16)], has_kernel=False),
    "SkipSimplifiedLayerNormalization": Case(
        "SkipSimplifiedLayerNormalization", [HIDDEN + 1000, HIDDEN, real(16), real(16)], outputs=4
    ),
    "SkipSimplifiedLayerNormalization extreme": Case(
        "SkipSimplifiedLayerNormalization", [real(2, 3, 12, factor=1e15), np.zeros((1, 3, 12), np.float32), ROW]
    ),
    "EmbedLayerNormalization": Case(
        "EmbedLayerNormalization",
        [
            whole(np.int8, 2, 5).astype(np.int32) % 10,
            int32([[0, 1, 0, 1, 1]] * 2),
            real(10, 8),
            real(6, 8),
            real(2, 8),
            real(8),
            real(8),
            int32([[1, 0, 1, 0, 0], [1] * 5]),
        ],
        outputs=3,
        has_kernel=False,
        same=1e-6,
    ),
    **{f"RotaryEmbedding {i}": Case("RotaryEmbedding", [Q, AT, COS, SIN], {"interleaved": i}) for i in (0, 1)},
    "RotaryEmbedding heads": Case("RotaryEmbedding", [real(2, 3, 5, 8), np.array([3]), COS, SIN]),
    "RotaryEmbedding of all positions": Case("RotaryEmbedding", [Q, AT % 5, COS[:5], SIN[:5]]),
    "RotaryEmbedding partial": Case(
        "RotaryEmbedding", [real(2, 5, 30), AT, COS, SIN], {"num_heads": 3, "rotary_embedding_dim": 8}
    ),
    "MultiHeadAttention": Case("MultiHeadAttention", [Q, K, V, real(60)], {"num_heads": 3}, outputs=3),
    "MultiHeadAttention scores": Case("MultiHeadAttention", [Q, K, V], {"num_heads": 3}, outputs=4, has_kernel=False),
    "MultiHeadAttention lengths": Case("MultiHeadAttention", [Q, K, V, None, int32([0, 7])], {"num_heads": 3}),
    "MultiHeadAttention mask": Case(
        "MultiHeadAttention", [Q, K, V, None, MASK], {"num_heads": 3, "mask_filter_value": -3.0}
    ),
    "MultiHeadAttention mask of queries": Case(
        "MultiHeadAttention",
        [Q, K, V, None, random.integers(0, 2, (2, 5, 7)).astype(np.int32), real(1, 1, 5, 7)],
        {"num_heads": 3, "scale": 0.7},
    ),
    "MultiHeadAttention causal": Case("MultiHeadAttention", [Q, Q, Q], {"num_heads": 3, "unidirectional": True}),
    "MultiHeadAttention causal across": Case(
        "MultiHeadAttention", [Q, K, V], {"num_heads": 3, "unidirectional": True}, has_kernel=False, same=np.inf
    ),
    "MultiHeadAttention past": Case(
        "MultiHeadAttention", [Q, Q, Q, None, None, None, PAST, PAST], {"num_heads": 3, "unidirectional": 1}, outputs=3
    ),
    "MultiHeadAttention heads": Case("MultiHeadAttention", [Q, real(2, 3, 7, 8), real(2, 3, 7, 8)], {"num_heads": 3}),
    "MultiHeadAttention packed": Case(
        "MultiHeadAttention", [real(2, 5, 3, 3, 8)], {"num_heads": 3}, has_kernel=False, runs_alone=False
    ),
    "MultiHeadAttention packed keys": Case(
        "MultiHeadAttention", [Q, real(2, 7, 3, 2, 8)], {"num_heads": 3}, has_kernel=False, runs_alone=False
    ),
    "MultiHeadAttention large": Case("MultiHeadAttention", [Q * 100, K * 100, V], {"num_heads": 3}),
    "Attention": Case(
        "Attention", [real(2, 5, 10), real(10, 72), real(72), int32([3, 5])], {"num_heads": 3}, same=2e-6
    ),
    "Attention causal": Case(
        "Attention",
        [real(2, 5, 10), real(10, 72), real(72), MASK[:, :5]],
        {"num_heads": 3, "unidirectional": 1},
        same=2e-6,
    ),
    "Attention past": Case(
        "Attention", [real(2, 5, 10), real(10, 72), real(72), None, real(2, 2, 3, 4, 8)], {"num_heads": 3}, 2, same=2e-6
    ),
    "Attention sizes": Case(
        "Attention",
        [real(2, 5, 10), real(10, 60), real(60)],
        {"num_heads": 3, "qkv_hidden_sizes": [24, 24, 12]},
        same=2e-6,
    ),
    # Without a bias the kernel reads where nothing is, and ends the process.
    "Attention plain": Case(
        "Attention", [real(2, 5, 10), real(10, 72)], {"num_heads": 3}, has_kernel=False, runs_alone=False
    ),
    "GroupQueryAttention": grouped(PROMPT),
    "GroupQueryAttention padded": grouped([GQ, GK, GV, None, None, int32([2, 4]), int32(5)], rows=[3, 5]),
    "GroupQueryAttention rotary": grouped([*PROMPT, COS8, SIN8], do_rotary=True),
    "GroupQueryAttention interleaved": grouped([*PROMPT, COS8, SIN8], do_rotary=True, rotary_interleaved=True),
    "GroupQueryAttention softcap": grouped([*PROMPT, None, None, None, real(1, 1, 5, 5)], softcap=1.5, scale=0.7),
    "GroupQueryAttention window": grouped(PROMPT, local_window_size=2),
    "GroupQueryAttention smooth": grouped(PROMPT, smooth_softmax=1),
    "GroupQueryAttention sink": grouped([*PROMPT, None, None, None, None, real(4)]),
    "GroupQueryAttention token": grouped([GQ1, GK1, GV1, *CACHE, int32([6, 6]), int32(7)]),
    "GroupQueryAttention ragged": grouped(
        [GQ1, GK1, GV1, *CACHE, int32([3, 6]), int32(7), COS8, SIN8], keys=[4, 7], do_rotary=True
    ),
    "GroupQueryAttention buffer": grouped(
        [GQ1, GK1, GV1, *LONG, int32([3, 6]), int32(7), COS8, SIN8], keys=[4, 7], do_rotary=True, local_window_size=3
    ),
    "GroupQueryAttention prompt into a buffer": grouped(
        [GQ, GK, GV, *LONG, int32([2, 4]), int32(5)], rows=[3, 5], keys=[3, 5], has_kernel=False
    ),
    "GroupQueryAttention packed": grouped(
        [real(2, 5, 128), None, None, None, None, int32([4, 4]), int32(5), COS8, SIN8], do_rotary=True
    ),
    **{
        f"FusedConv {name}": Case(
            "FusedConv",
            [real(2, 4, 9, 9), real(6, 4, 3, 3), real(6), real(2, 6, 5, 9)],
            {"activation": name, "activation_params": numbers, "pads": [1, 1, 1, 1], "strides": [2, 1]},
            has_kernel=name not in ("Sigmoid", "Clip"),
            same=2e-6,
        )
        for name, numbers in {
            "Relu": None,
            "Sigmoid": None,
            "Tanh": None,
            "LeakyRelu": [0.1],
            "Clip": [-1.0, 1.0],
            "HardSigmoid": [0.3, 0.4],
        }.items()
    },
    **{
        f"FusedGemm {name}": Case(
            "FusedGemm",
            [real(4, 3), real(5, 4), real(5)],
            {"activation": name, "activation_alpha": alpha, "alpha": 0.5, "beta": 2.0, "transA": True, "transB": True},
            has_kernel=name != "Sigmoid",
        )
        for name, alpha in {"Relu": None, "Sigmoid": None, "Tanh": None, "LeakyRelu": 0.1}.items()
    },
    "FusedGemm plain": Case("FusedGemm", [real(3, 4), real(4, 5)], has_kernel=False, runs_alone=False),
    "BiasSoftmax": Case(
        "BiasSoftmax",
        [real(2, 3, 5, 7), real(2, 1, 1, 7)],
        {"axis": 3, "is_inner_broadcast": True},
        has_kernel=False,
        runs_alone=False,
    ),
    **{
        f"NhwcMaxPool {d}": Case(
            "NhwcMaxPool", [whole(d, 2, 8, 9, 5)], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
        )
        for d in ("int8", "uint8")
    },
    **{
        f"{name} {d}": Case(
            name,
            [
                whole(d, 40, 50),
                one(0.1),
                np.array(3, d),
                whole(d, 50),
                one(0.03),
                np.array(5, d),
                one(0.2),
                np.array(7, d),
            ],
            same=1,
        )
        for name in ("QLinearAdd", "QLinearMul")
        for d in ("int8", "uint8")
    },
    **{
        f"{name} {d}": Case(
            name,
            [np.arange(256, dtype=np.uint8).view(d), one(0.05), np.array(3, d), one(1 / 200), np.array(2, d)],
            same=1,
        )
        for name in ("QLinearSigmoid", "QLinearLeakyRelu")
        for d in ("int8", "uint8")
    },
    **{
        f"DequantizeLinear {d}": Case("DequantizeLinear", [whole(d, 3, 4), one(0.1), np.array(3, d)])
        for d in ("int8", "uint8", "int16", "uint16")
    },
    "DequantizeLinear rows": Case("DequantizeLinear", [whole("int8", 3, 4), real(3)], {"axis": 0}, has_kernel=False),
    **{
        f"QuantizeLinear {d}": Case("QuantizeLinear", [real(3, 400, factor=50), one(0.1), np.array(3, d)])
        for d in ("int8", "uint8", "int16", "uint16")
    },
    "QuantizeLinear extreme": Case("QuantizeLinear", [EXTREME[EXTREME == EXTREME], one(1.0)]),
    "QuantizeLinear columns": Case(
        "QuantizeLinear", [real(3, 4), np.abs(real(4)), whole("int8", 4)], {"axis": 1}, has_kernel=False
    ),
    **{
        f"GatherBlockQuantized {bits} {kind}": Case(
            "GatherBlockQuantized",
            [
                whole("uint8", 7, 40 * bits // 8),
                np.array([[0, 6, -1], [2, 5, -7]]),
                real(7, 3),
                whole("uint8", 7, -(-3 * bits // 8)) if kind else None,
            ],
            {"bits": bits, "block_size": 16},
        )
        for bits in (2, 4, 8)
        for kind in ("", "zero points")
    },
    **{
        f"Trilu {d}": Case("Trilu", [(real(2, 4, 5) * 9).astype(d), np.array(1)], {"upper": False}, has_kernel=False)
        for d in ("float32", "float64", "int64")
    },
}

GATE = {"activation_type": "swiglu", "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7}
CASES |= {
    "Inverse": Case("Inverse", [real(2, 4, 4)], same=2e-6),
    "Inverse float64": Case("Inverse", [real(3, 3).astype(np.float64)], same=1e-14),
    "MoE": mixture(6),
    "MoE two": mixture(6, kinds="b", k=2, activation_type="silu"),
    "MoE normalized": mixture(6, kinds="b", k=3, activation_type="gelu", normalize_routing_weights=True),
    "MoE identity": mixture(6, k=4, activation_type="identity"),
    "MoE swiglu": mixture(12, kinds="b", k=2, swiglu_fusion=1, **GATE),
    "MoE swiglu in halves": mixture(12, kinds="b", k=2, swiglu_fusion=2, **GATE),
    "MoE swiglu of two": mixture(6, kinds="b3", k=2, **GATE),
    "MoE silu of two": mixture(6, kinds="b3", k=2, activation_type="silu"),
    **{
        f"QMoE {bits} {kinds}": packed_mixture(bits, kinds=kinds, activation_type="relu")
        for bits in (2, 4, 8)
        for kinds in ("", "z", "w")
    },
    "QMoE blocks": packed_mixture(4, 2, "z", activation_type="silu"),
    "QMoE blocks of 8 bits": packed_mixture(8, 2, activation_type="silu"),
    "QMoE swiglu": packed_mixture(4, 1, "zw", swiglu_fusion=1, normalize_routing_weights=True, **GATE),
}
