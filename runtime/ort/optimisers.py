"""Which of onnxruntime's optimisers a session disables because they break a model or match nothing in it.

Files for plain onnxruntime cannot disable optimisers: workarounds keep lowered nodes from matching
(`runtime/lowering/workarounds`), or lowering never writes nodes that match. `tests/lowering/test_optimiser_traps.py`
tests both ways for every row.
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
from graphcore.runtime.lowering.workarounds.arithmetic import Array, constant_place, is_infinite_factor, is_rounded
from graphcore.runtime.lowering.workarounds.dequantized import has_scales, is_requantised
from graphcore.runtime.lowering.workarounds.moves import PRODUCTS, is_cast_transpose, is_of_narrow
from graphcore.runtime.ort.release import measured_release, runtime
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


@dataclass(frozen=True, slots=True)
class RiskyPattern:
    """A property of values that some optimisers break. has: returns True if a value has it.

    names: of the traps, as in `traps.json` after "optimiser "; each begins with the name of the optimiser. operators:
    a value has the property only in graphs with one of these; empty if in any graph.
    """

    has: Callable[[Symbol], bool]
    names: tuple[str, ...]
    operators: frozenset[str] = frozenset()


def _of_constant(has: Callable[[Array], bool]) -> Callable[[Symbol], bool]:
    """Return a property of constants."""
    return lambda symbol: isinstance(symbol.producer, Constant) and has(symbol.producer.array)


def _of_node(has: Callable[[Node], bool]) -> Callable[[Symbol], bool]:
    """Return a property of the results of nodes."""
    return lambda symbol: type(symbol.producer) is Node and has(symbol.producer)


def _is_endless_scale(node: Node) -> bool:
    """Return True if a node multiplies a tensor by a number that is not finite, or divides it by 0."""
    is_scale = node.op_type in ("Mul", "Div") and not node.domain
    return is_scale and constant_place(node, is_infinite_factor) is not None


def _is_dequantised_int8(node: Node) -> bool:
    operand = node.inputs[0] if node.op_type == "DequantizeLinear" else None
    return operand is not None and isinstance(operand.type, TensorType) and operand.type.dtype is DType.int8


_DEQUANTISES = frozenset({"DequantizeLinear"})

RISKY_PATTERNS: Mapping[str, RiskyPattern] = {
    # Their results have float32 kernels only, but they match float64 too; the last one fails on it.
    "float64": RiskyPattern(
        lambda symbol: isinstance(symbol.type, TensorType) and symbol.type.dtype is DType.float64,
        ("QuickGeluFusion", "MatmulTransposeFusion", "MatMulScaleFusion", "FuseReluClip"),
    ),
    # It treats a constant without elements as an added 0, or as a factor 1.
    "empty constants": RiskyPattern(_of_constant(lambda array: not array.size), ("NoopElimination",)),
    # It multiplies after the sum, when infinities have met already; it fails on float64.
    "endless scales": RiskyPattern(
        _of_node(_is_endless_scale), ("MatMulScaleFusion of infinity",), frozenset({"Mul", "Div"})
    ),
    # It compares constants in float32: a float64 close to 0 or 1 is dropped.
    "rounded constants": RiskyPattern(_of_constant(is_rounded), ("NoopElimination float64",)),
    # It converts int8 to uint8 and does not change `output_dtype`, so that the session refuses the node.
    "dequantised int8": RiskyPattern(_of_node(_is_dequantised_int8), ("QDQS8ToU8Transformer",), _DEQUANTISES),
    # It quantises after a move: to int32, which has no kernel, and signed integers without a zero point to uint8.
    "moved integers": RiskyPattern(_of_node(is_requantised), ("QDQPropagationTransformer",), _DEQUANTISES),
    # It multiplies integers with scales that its kernels do not support.
    "scales along axes": RiskyPattern(_of_node(has_scales), ("QDQSelectorActionTransformer",), _DEQUANTISES),
    # It drops a Cast before a Shape, which has no kernel for the dtype before the Cast.
    "shapes of narrow dtypes": RiskyPattern(_of_node(is_of_narrow), ("PreShapeNodeElimination",), frozenset({"Shape"})),
    # It ends the process if a Cast is between a Transpose and a product.
    "cast transposes": RiskyPattern(
        _of_node(lambda node: node.op_type in PRODUCTS and any(map(is_cast_transpose, node.inputs))),
        ("MatmulTransposeFusion of casts",),
        frozenset({"Transpose"}),
    ),
}


def unsafe(graph: Graph, operators: Set[tuple[str, str]]) -> tuple[str, ...]:
    """Return the optimisers that would change the results of a lowered graph, or write nodes without a kernel.

    operators: its operators and their domains, as `walk.operators` returns them.
    """
    # Walk over the values only if a pattern of the installed release needs it: most releases need few.
    symbols: list[Symbol] = []
    op_types = {op_type for op_type, _ in operators}

    def has(sign: str) -> bool:
        row = RISKY_PATTERNS[sign]
        if row.operators and row.operators.isdisjoint(op_types):
            return False
        if not symbols:
            symbols.extend(symbol for part in parts(graph) for symbol in part.symbols)
        return any(map(row.has, symbols))

    return disabled_by(has)


def disabled_by(has: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the optimisers to disable for a model.

    has: returns True if the model has a pattern, by its name in `RISKY_PATTERNS`. Only called for patterns of traps
    that the installed release has.
    """
    disabled: list[str] = []
    for sign, row in RISKY_PATTERNS.items():
        names = [name.partition(" ")[0] for name in row.names if in_force(f"optimiser {name}", runtime())]
        if names and has(sign):
            disabled += names
    return tuple(disabled)


# Optimisers that match nothing in a model, but walk over all of its nodes.
#
# Measured: they take a sixth to a fifth of the start of a session with 1,000 to 10,000 nodes, a tenth with 20 nodes. A
# session without them has the same nodes.

_QUANTIZED = having(Trait.QUANTIZED) & ONNX
_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv"})
_POOLS = frozenset({"AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool"})
_PRODUCTS = frozenset({"Einsum", "Gemm", "MatMul"})
_NORMS = frozenset({"LayerNormalization", "ReduceMean"})
_GELUS = frozenset({"Erf", "Gelu", "Tanh"})
_MOVES = frozenset({"DepthToSpace", "Einsum", "Gemm", "MatMul", "SpaceToDepth", "Transpose"})

_MATCHED: tuple[tuple[frozenset[str], str], ...] = (
    (_QUANTIZED, "Avx2WeightS8ToU8Transformer DQMatMulNBitsFusion DoubleQDQPairsRemover DynamicQuantizeMatMulFusion"
     " MatMulIntegerToFloatFusion MatMulNBitsFusion QDQFinalCleanupTransformer QDQPropagationTransformer"
     " QDQS8ToU8Transformer QDQSelectorActionTransformer WeightBiasQuantization"),
    (frozenset({"Erf", "Gelu"}), "GeluFusion GeluFusionL1 GeluFusionL2"),
    (_NORMS, "LayerNormFusion LayerNormFusionL1 LayerNormFusionL2 SimplifiedLayerNormFusion BiasSkipLayerNormFusion"
     " EmbedLayerNormFusion SkipLayerNormFusion"),
    (_PRODUCTS, "GemmActivationFusion MatMulActivationFusion MatMulAddFusion MatMulScaleFusion MatmulTransposeFusion"),
    (frozenset({"Gather", "Slice"}), "GatherSliceToSplitFusion GatherToSplitFusion"),
    (_CONVOLUTIONS, "ConvActivationFusion ConvAddActivationFusion"),
    (_CONVOLUTIONS | _POOLS | _QUANTIZED, "NchwcTransformer NhwcTransformer"),
    (_PRODUCTS | _NORMS, "AttentionFusion"),
    (frozenset({"Dropout"}), "BiasDropoutFusion"),
    (_GELUS, "BiasGeluFusion FastGeluFusion"),
    (frozenset({"LogSoftmax", "Softmax"}), "BiasSoftmaxFusion"),
    (frozenset({"Gather"}), "GatherToSliceFusion"),
    (frozenset({"GroupQueryAttention"}), "GroupQueryAttentionFusion"),
    (frozenset({"Sigmoid"}), "QuickGeluFusion"),
    (_MOVES | {"LayerNormalization", "Reshape"}, "ReshapeFusion"),
    (frozenset({"Concat", "Slice"}), "SliceConcatToSpaceToDepthFusion"),
    (_MOVES | _QUANTIZED, "TransposeOptimizer"),
)  # fmt: skip
"""Operators, one of which every match of these optimisers has, as written or before other optimisers."""

NEEDS: Mapping[str, frozenset[str]] = MappingProxyType({n: ops for ops, names in _MATCHED for n in names.split()})
"""The same by the name of an optimiser."""

EXPANDED = frozenset(
    "AffineGrid Attention Bernoulli CausalConvWithState CenterCropPad FlexAttention GroupNormalization LinearAttention"
    " MeanVarianceNormalization Mish NegativeLogLikelihoodLoss RMSNormalization RotaryEmbedding SequenceMap"
    " SoftmaxCrossEntropyLoss SwiGLU Swish".split()
)
"""Operators that onnxruntime may replace by their definition, which has other operators."""

_DOMAINS = ("", "ai.onnx.ml")

_MAX_REMEMBERED = 64
"""Size of the cache of results by set of operators."""


def idle_among(operators: Set[tuple[str, str]]) -> tuple[str, ...]:
    """Return the optimisers that match nothing in a graph of these operators; () if some are of other domains."""
    is_known = all(domain in _DOMAINS for _, domain in operators)
    return idle(frozenset(op_type for op_type, _ in operators)) if is_known else ()


@functools.lru_cache(_MAX_REMEMBERED)
def idle(op_types: frozenset[str]) -> tuple[str, ...]:
    """Return the optimisers that match nothing in a model of these operators of ONNX's own domains, bodies included.

    Returns () for a release that was not measured, which may have other optimisers.
    """
    if measured_release() is None or not EXPANDED.isdisjoint(op_types):
        return ()
    return tuple(name for name, needs in NEEDS.items() if needs.isdisjoint(op_types))
