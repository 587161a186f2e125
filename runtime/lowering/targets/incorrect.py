"""Kernels that a target has and whose values are not what docs/numbers.md promises: they are not legal.

`<target>.json` is measured and says what there is; this says, by hand and with the reason, what is not used of it, and
`traps.json` in which releases.
Wrong only for some operands (NaN in a maximum, MIN / -1) is not listed here: those have a row in `detours`.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TypeAlias

from graphcore.ir.graph import Target
from graphcore.runtime.lowering.targets.releases import ANY, Runtime
from graphcore.runtime.lowering.targets.traps import in_force, of_kernel
from graphcore.types.dtypes import DType

_HALVES = frozenset({DType.float16, DType.bfloat16})
ROUNDED: dict[Target, frozenset[DType]] = {"cpu": _HALVES, "cuda": _HALVES}
"""Dtypes that are legal on a target only for the operators of `UNROUNDED` and of its `ONCE`. The CPU provider's float16
and bfloat16 kernels round between their steps or after none, and it drops the rounding between two that it computes in
float32; the CUDA provider's activations, normalisations and running sums round between their steps."""

ONCE: dict[Target, frozenset[str]] = {
    "cuda": frozenset(
        "Abs Add ArgMax ArgMin Ceil Conv DepthToSpace Div Equal Erf Exp Floor Gemm Greater GreaterOrEqual Less "
        "LessOrEqual Log LogSoftmax MatMul Mul Neg NonZero OneHot Pad Pow Reciprocal ReduceMax ReduceMean ReduceMin "
        "ReduceSum Relu Softmax SpaceToDepth Sqrt Sub Tanh Tile TopK Trilu Where".split()
    )
}
"""Operators whose narrow kernels on a target compute in float32, or correctly, and round at the end."""

UNROUNDED = frozenset(
    "BitCast Cast CastLike Clip Compress Concat ConcatFromSequence Constant ConstantOfShape Expand Flatten Gather "
    "GatherElements GatherND Identity If IsInf IsNaN Loop Max Min Optional OptionalGetElement OptionalHasElement "
    "Reshape ReverseSequence Round Scan ScatterElements ScatterND SequenceAt SequenceConstruct SequenceEmpty "
    "SequenceErase SequenceInsert SequenceLength SequenceMap Shape Size Slice Split SplitToSequence Squeeze "
    "TensorScatter Transpose Unsqueeze".split()
)
"""Operators that give values as they are, whole numbers or bools: in them there is nothing to round."""

Wrong: TypeAlias = tuple[str, str]
"""The dtypes, and what is wrong with the values."""

WRONG: dict[Target, dict[str, Wrong]] = {
    "cpu": {
        "Attention": (
            "float32",
            "ignores nonpad_kv_seqlen, and computes masks beside is_causal not as opset 24 says",
        ),
        "GroupNormalization": (
            "float32 float64",
            "a function body in float32 with the variance as mean(x^2) - mean(x)^2, which cancels: 1e-3 off around 100",
        ),
        "Sign": ("float16 bfloat16", "0 for NaN"),
    },
    "cuda": {
        "Attention": ("float64", "a function body that scales in float32"),
        "GroupNormalization": ("float32 float64", "a function body in float32 whose variance cancels"),
        "LayerNormalization": ("float64", "statistics in float32"),
        "RMSNormalization": ("float64", "statistics in float32"),
        "Pow": ("int32 int64", "through float64, which holds 53 bits"),
        **{
            f"Reduce{name}": ("int32 int64", "through float32, which holds 24 bits")
            for name in ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum")
        },
    },
    "openvino": {
        "Clip": ("float32", "a bound for NaN"),
        "GroupNormalization": ("float32", "a variance that cancels"),
        "Mod": ("float32", "NaN for an infinite divisor"),
    },
}


def wrong(target: Target, op_type: str, runtime: Runtime = ANY) -> Set[DType]:
    """The dtypes in which the target's kernels of an operator are not to be used, in the releases lowered for."""
    listed, _ = WRONG.get(target, {}).get(op_type, ("", ""))
    named = map(DType.of, listed.split())
    here = [d for d in named if target != "cpu" or in_force(of_kernel(op_type, d), runtime)]
    once = op_type in UNROUNDED or op_type in ONCE.get(target, ())
    rounded = () if once else ROUNDED.get(target, ())
    return frozenset(here).union(d for d in rounded if target != "cpu" or in_force(f"{d} kernels", runtime))
