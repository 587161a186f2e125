"""Optimisers of onnxruntime that break a model: which of them a session leaves out.

Files for a plain onnxruntime cannot leave any out: workarounds keep what graphcore lowers from matching
(`runtime/lowering/workarounds`), or it is never lowered to what matches. `tests/lowering/test_optimiser_traps.py` has
both ways for every row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.walk import parts
from graphcore.operators import ONNX, Trait, having
from graphcore.runtime.lowering.targets.traps import in_force
from graphcore.runtime.lowering.workarounds.arithmetic import constant_place, is_infinite_factor, is_rounded
from graphcore.runtime.lowering.workarounds.dequantized import has_scales, is_requantised
from graphcore.runtime.lowering.workarounds.moves import PRODUCTS, is_cast_transpose, is_of_narrow
from graphcore.runtime.ort.release import measured_release, runtime
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


@dataclass(frozen=True, slots=True)
class Sign:
    """A property of values that some optimisers break. has: tells of a value whether it has it.

    names: of the traps, as `traps.json` has them after "optimiser "; each begins with the name of the optimiser.
    operators: without which no value has it; empty where any may.
    """

    has: Callable[[Symbol], bool]
    names: tuple[str, ...]
    operators: frozenset[str] = frozenset()


def _is_float64(symbol: Symbol) -> bool:
    return isinstance(symbol.type, TensorType) and symbol.type.dtype is DType.float64


def _is_empty_constant(symbol: Symbol) -> bool:
    return isinstance(symbol.producer, Constant) and not symbol.producer.array.size


def _is_endless_scale(symbol: Symbol) -> bool:
    """Return whether a value is the product of a tensor and a number that is not finite, or its quotient by 0."""
    node = symbol.producer
    if type(node) is not Node or node.op_type not in ("Mul", "Div") or node.domain:
        return False
    return constant_place(node, is_infinite_factor) is not None


def _is_rounded_constant(symbol: Symbol) -> bool:
    return isinstance(symbol.producer, Constant) and is_rounded(symbol.producer.array)


def _is_dequantised_int8(symbol: Symbol) -> bool:
    node = symbol.producer
    if type(node) is not Node or node.op_type != "DequantizeLinear":
        return False
    operand = node.inputs[0]
    return operand is not None and isinstance(operand.type, TensorType) and operand.type.dtype is DType.int8


def _is_requantised(symbol: Symbol) -> bool:
    node = symbol.producer
    return type(node) is Node and is_requantised(node)


def _has_scales(symbol: Symbol) -> bool:
    node = symbol.producer
    return type(node) is Node and has_scales(node)


def _multiplies_cast_transpose(symbol: Symbol) -> bool:
    node = symbol.producer
    return type(node) is Node and node.op_type in PRODUCTS and any(map(is_cast_transpose, node.inputs))


def _is_shape_of_narrow(symbol: Symbol) -> bool:
    node = symbol.producer
    return type(node) is Node and is_of_narrow(node)


_DEQUANTISES = frozenset({"DequantizeLinear"})

SIGNS: Mapping[str, Sign] = {
    # Their results have kernels in float32 alone, and they take float64 too; the last one fails on it.
    "float64": Sign(_is_float64, ("QuickGeluFusion", "MatmulTransposeFusion", "MatMulScaleFusion", "FuseReluClip")),
    # It takes a constant without elements for a 0 that is added, or a 1 that is multiplied with.
    "empty constants": Sign(_is_empty_constant, ("NoopElimination",)),
    # It multiplies after the sum, where infinities have met already; of float64 it fails.
    "endless scales": Sign(_is_endless_scale, ("MatMulScaleFusion of infinity",), frozenset({"Mul", "Div"})),
    # It compares constants in float32: one of float64 beside 0 or 1 is dropped.
    "rounded constants": Sign(_is_rounded_constant, ("NoopElimination float64",)),
    # It makes int8 uint8 and leaves `output_dtype` as it is, which the session then refuses.
    "dequantised int8": Sign(_is_dequantised_int8, ("QDQS8ToU8Transformer",), _DEQUANTISES),
    # It quantises after a move: to int32, which no kernel does, and signed integers without a zero point to uint8.
    "moved integers": Sign(_is_requantised, ("QDQPropagationTransformer",), _DEQUANTISES),
    # It multiplies integers whose scales its kernels do not take.
    "scales along axes": Sign(_has_scales, ("QDQSelectorActionTransformer",), _DEQUANTISES),
    # It drops a Cast before a Shape, which has no kernel of the dtype before the Cast.
    "shapes of narrow dtypes": Sign(_is_shape_of_narrow, ("PreShapeNodeElimination",), frozenset({"Shape"})),
    # It ends the process where a Cast is between a Transpose and a product.
    "cast transposes": Sign(_multiplies_cast_transpose, ("MatmulTransposeFusion of casts",), frozenset({"Transpose"})),
}


def broken(graph: Graph, there: Set[tuple[str, str]]) -> tuple[str, ...]:
    """Return the optimisers that make something else of a lowered graph, or nodes without a kernel.

    there: its operators and their domains, as `walk.operators` gives them.
    """
    # Only signs that are asked for cost a walk over the values, and most releases ask for few.
    symbols: list[Symbol] = []
    op_types = {op_type for op_type, _ in there}

    def has(sign: str) -> bool:
        row = SIGNS[sign]
        if row.operators and row.operators.isdisjoint(op_types):
            return False
        if not symbols:
            symbols.extend(symbol for part in parts(graph) for symbol in part.symbols)
        return any(map(row.has, symbols))

    return left_out(has)


def left_out(has: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the optimisers to leave out of a model. has: tells of a sign, by its name in `SIGNS`, whether it is there.

    It is asked for the signs of traps that the installed release has.
    """
    found: list[str] = []
    for sign, row in SIGNS.items():
        names = [name.partition(" ")[0] for name in row.names if in_force(f"optimiser {name}", runtime())]
        if names and has(sign):
            found += names
    return tuple(found)


# Optimisers that can match nothing in a model, which walk over all of its nodes all the same.
#
# Measured: they take a sixth to a fifth of the session of a file of 1,000 to 10,000 nodes, a tenth of one of 20. A
# session without them makes the same nodes.

_BYTES = having(Trait.QUANTIZED) & ONNX
_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv"})
_POOLS = frozenset({"AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool"})
_PRODUCTS = frozenset({"Einsum", "Gemm", "MatMul"})
_NORMS = frozenset({"LayerNormalization", "ReduceMean"})
_GELUS = frozenset({"Erf", "Gelu", "Tanh"})
_MOVES = frozenset({"DepthToSpace", "Einsum", "Gemm", "MatMul", "SpaceToDepth", "Transpose"})

NEEDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "Avx2WeightS8ToU8Transformer",
                "DQMatMulNBitsFusion",
                "DoubleQDQPairsRemover",
                "DynamicQuantizeMatMulFusion",
                "MatMulIntegerToFloatFusion",
                "MatMulNBitsFusion",
                "QDQFinalCleanupTransformer",
                "QDQPropagationTransformer",
                "QDQS8ToU8Transformer",
                "QDQSelectorActionTransformer",
                "WeightBiasQuantization",
            ),
            _BYTES,
        ),
        **dict.fromkeys(("GeluFusion", "GeluFusionL1", "GeluFusionL2"), frozenset({"Erf", "Gelu"})),
        **dict.fromkeys(
            ("LayerNormFusion", "LayerNormFusionL1", "LayerNormFusionL2", "SimplifiedLayerNormFusion"), _NORMS
        ),
        **dict.fromkeys(("BiasSkipLayerNormFusion", "EmbedLayerNormFusion", "SkipLayerNormFusion"), _NORMS),
        **dict.fromkeys(
            ("GemmActivationFusion", "MatMulActivationFusion", "MatMulAddFusion", "MatMulScaleFusion",
             "MatmulTransposeFusion"),
            _PRODUCTS,
        ),
        **dict.fromkeys(("GatherSliceToSplitFusion", "GatherToSplitFusion"), frozenset({"Gather", "Slice"})),
        **dict.fromkeys(("ConvActivationFusion", "ConvAddActivationFusion"), _CONVOLUTIONS),
        **dict.fromkeys(("NchwcTransformer", "NhwcTransformer"), _CONVOLUTIONS | _POOLS | _BYTES),
        "AttentionFusion": _PRODUCTS | _NORMS,
        "BiasDropoutFusion": frozenset({"Dropout"}),
        "BiasGeluFusion": _GELUS,
        "BiasSoftmaxFusion": frozenset({"LogSoftmax", "Softmax"}),
        "FastGeluFusion": _GELUS,
        "GatherToSliceFusion": frozenset({"Gather"}),
        "GroupQueryAttentionFusion": frozenset({"GroupQueryAttention"}),
        "QuickGeluFusion": frozenset({"Sigmoid"}),
        "ReshapeFusion": _MOVES | {"LayerNormalization", "Reshape"},
        "SliceConcatToSpaceToDepthFusion": frozenset({"Concat", "Slice"}),
        "TransposeOptimizer": _MOVES | _BYTES,
    }
)  # fmt: skip
"""By the name of an optimiser the operators one of which every match has, as written or before other optimisers."""

EXPANDED = frozenset(
    "AffineGrid Attention Bernoulli CausalConvWithState CenterCropPad FlexAttention GroupNormalization LinearAttention"
    " MeanVarianceNormalization Mish NegativeLogLikelihoodLoss RMSNormalization RotaryEmbedding SequenceMap"
    " SoftmaxCrossEntropyLoss SwiGLU Swish".split()
)
"""Operators that onnxruntime may replace by their definition, in which others stand."""

_DOMAINS = ("", "ai.onnx.ml")

_MOST = 64
"""Sets of operators whose answer is remembered."""


def idle_among(there: Set[tuple[str, str]]) -> tuple[str, ...]:
    """Return the optimisers that match nothing in a graph of these operators; none where some are of other domains."""
    is_known = all(domain in _DOMAINS for _, domain in there)
    return idle(frozenset(op_type for op_type, _ in there)) if is_known else ()


@functools.lru_cache(_MOST)
def idle(op_types: frozenset[str]) -> tuple[str, ...]:
    """Return the optimisers that match nothing in a model of these operators of ONNX's own domains, bodies included.

    None for a release that was not measured, whose optimisers may be others.
    """
    if measured_release() is None or not EXPANDED.isdisjoint(op_types):
        return ()
    return tuple(name for name, needs in NEEDS.items() if needs.isdisjoint(op_types))
