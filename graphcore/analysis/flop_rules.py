"""The floating-point operations of each operator as a function of its shapes, one row per operator.

A multiplication and an addition count as two. Moving data counts as none; an element-wise operator as one for each
element of its result. Shapes are those that ONNX and com.microsoft define.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.operators import Trait, having
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType

Size: TypeAlias = "Dim | int"
Dims: TypeAlias = "Sequence[Size]"
Rule: TypeAlias = "Callable[[Shapes], Size]"


NEGATIVE_DIM = "a dim is negative for these sizes"
"""The reason for a node whose window is larger than its operand."""


class UnknownShapeError(Exception):
    """A shape that a rule needs is unknown."""


class Shapes:
    """The shapes of one node's operands and results, static dims as ints."""

    __slots__ = ("node", "of_dim")

    def __init__(self, node: Node, of_dim: Callable[[Dim], Size]) -> None:
        self.node = node
        self.of_dim = of_dim

    def of(self, symbol: Symbol | None) -> Dims:
        """Return the shape of a value. Raises `UnknownShapeError`."""
        if symbol is None or not isinstance(symbol.type, TensorType) or not symbol.type.shape.is_ranked:
            raise UnknownShapeError("the rank of an operand is not known")
        dims = [self.of_dim(dim) for dim in symbol.type.shape]
        if any(isinstance(dim, Dim) and dim.is_dynamic for dim in dims):
            raise UnknownShapeError("a dim is not known")
        if any(isinstance(dim, int) and dim < 0 for dim in dims):
            raise UnknownShapeError(NEGATIVE_DIM)
        return dims

    def operand(self, position: int, rank: int = 0) -> Dims:
        """Return the shape of an operand with at least `rank` axes. Raises `UnknownShapeError`."""
        return _ranked(self.of(self.at(position)), rank)

    def result(self, rank: int = 0) -> Dims:
        """Return the shape of the first result. Raises `UnknownShapeError`."""
        return _ranked(self.of(self.node.outputs[0]), rank)

    def at(self, position: int) -> Symbol | None:
        """Return an operand, or None if it is left out."""
        return self.node.inputs[position] if position < len(self.node.inputs) else None

    def number(self, name: str, default: int = 0) -> int:
        """Return an attribute as an int."""
        value = self.node.attributes.get(name, default)
        return int(value) if isinstance(value, (int, float)) else default


def _ranked(dims: Dims, rank: int) -> Dims:
    if len(dims) < rank:
        raise UnknownShapeError(f"an operand has only {len(dims)} axes")
    return dims


def product(dims: Dims) -> Size:
    """Return the number of elements of a shape."""
    total: Size = 1
    for dim in dims:
        total = dim * total
    return total


# Products of matrices


def _matmul(left: int = 0, right: int = 1, swap: str = "") -> Rule:
    def rule(shapes: Shapes) -> Size:
        a = shapes.operand(left, 1)
        _ranked(shapes.of(shapes.at(right)), 1)
        depth = a[-2] if swap and shapes.number(swap) and len(a) > 1 else a[-1]
        return 2 * product(shapes.result()) * depth

    return rule


def _gemm(a: int = 0) -> Rule:
    def rule(shapes: Shapes) -> Size:
        shape = shapes.operand(a, 2)
        depth = shape[0] if shapes.number("transA") else shape[1]
        return 2 * product(shapes.result()) * depth

    return rule


def _packed_matmul(shapes: Shapes) -> Size:
    return 2 * product(shapes.operand(0, 1)) * shapes.number("N")


def _einsum(shapes: Shapes) -> Size:
    text = shapes.node.attributes.get("equation", "")
    terms = str(text).replace(" ", "").partition("->")[0].split(",")
    if len(terms) != len(shapes.node.inputs):
        raise UnknownShapeError("the equation does not match the number of operands")
    sizes: dict[object, Size] = {}
    for position, letters in enumerate(terms):
        dims = shapes.operand(position)
        named = letters.replace("...", "")
        spread = len(dims) - len(named)
        if spread < 0 or ("..." not in letters and spread):
            raise UnknownShapeError("the equation does not match the axes of operands")
        at = letters.index("...") if "..." in letters else len(named)
        labels: list[object] = [*named[:at], *range(-spread, 0), *named[at:]]
        for label, dim in zip(labels, dims, strict=True):
            if sizes.get(label, 1) == 1:
                sizes[label] = dim
    return product([*sizes.values()]) * max(len(terms), 1)


# Convolutions


def _conv(weight: int = 1) -> Rule:
    def rule(shapes: Shapes) -> Size:
        filters = shapes.operand(weight, 2)
        return 2 * product(shapes.result(2)) * product(filters[1:])

    return rule


# Recurrent networks: W is [directions, gates * hidden, input], X [sequence, batch, input]


def _recurrent(gates: int, per_unit: int) -> Rule:
    def rule(shapes: Shapes) -> Size:
        x, w, r = shapes.operand(0, 3), shapes.operand(1, 3), shapes.operand(2, 3)
        directions, hidden, steps = w[0], r[2], x[0] * x[1]
        products = 2 * gates * hidden * (x[2] + hidden)
        return steps * directions * (products + per_unit * hidden)

    return rule


# Attention


def _attention(shapes: Shapes) -> Size:
    """Return the operations of ONNX's Attention: operands of rank 4 [batch, heads, sequence, size], or 3 with heads."""
    query, key, value = shapes.operand(0, 3), shapes.operand(1, 3), shapes.operand(2, 3)
    if len(query) == 4:
        batch, heads, length, size = query
        keys, width = key[2], value[3]
    else:
        batch, length = query[0], query[1]
        heads = shapes.number("q_num_heads", 1)
        kv_heads = max(shapes.number("kv_num_heads", 1), 1)
        size, keys, width = query[2] // heads, key[1], value[2] // kv_heads
    if shapes.at(4) is not None:
        keys = keys + shapes.operand(4, 4)[2]
    return _attention_flops(batch * heads, length, keys, size, width)


def _attention_flops(rows: Size, length: Size, keys: Size, size: Size, width: Size) -> Size:
    return rows * length * keys * (2 * size + 2 * width + _SOFTMAX)


def _multi_head(shapes: Shapes) -> Size:
    query, key, value = shapes.operand(0, 3), shapes.operand(1), shapes.operand(2)
    heads = max(shapes.number("num_heads", 1), 1)
    if len(query) != 3 or len(key) not in (3, 4) or len(value) not in (3, 4):
        raise UnknownShapeError("packed operands are not supported")
    keys = key[1] if len(key) == 3 else key[2]
    width = value[2] // heads if len(value) == 3 else value[3]
    past = shapes.at(6)
    if past is not None:
        keys = keys + _ranked(shapes.of(past), 4)[2]
    return _attention_flops(query[0] * heads, query[1], keys, query[2] // heads, width)


def _packed_attention(shapes: Shapes) -> Size:
    """Return the operations of com.microsoft's Attention: X [batch, sequence, width], one matrix of all weights."""
    x, weights = shapes.operand(0, 3), shapes.operand(1, 2)
    heads = max(shapes.number("num_heads", 1), 1)
    size = weights[1] // (3 * heads)
    keys = x[1] if shapes.at(4) is None else x[1] + _ranked(shapes.of(shapes.at(4)), 5)[3]
    return 2 * x[0] * x[1] * x[2] * weights[1] + _attention_flops(x[0] * heads, x[1], keys, size, size)


# By element


def _per_result(cost: int = 1) -> Rule:
    return lambda shapes: product(shapes.result()) * cost


def _per_operand(cost: int = 1) -> Rule:
    return lambda shapes: product(shapes.operand(0)) * cost


def _scatter(shapes: Shapes) -> Size:
    """Return the operations of a scatter: one for each update that is combined with an old element."""
    return 0 if shapes.node.attributes.get("reduction", "none") == "none" else product(shapes.operand(2))


def _stft(shapes: Shapes) -> Size:
    """Return the operations of an STFT: windows [batch, frames, bins, 2] of fast Fourier transforms."""
    batch, frames, *_ = shapes.result(2)
    window_length = constant_array(shapes.at(3), weights=True, outer=True)
    length = shapes.operand(2, 1)[0] if window_length is None else int(window_length.reshape(-1)[0])
    if isinstance(length, Dim):
        raise UnknownShapeError("the length of its window is not known")
    return batch * frames * (_FOURIER * length * math.ceil(math.log2(max(length, 2))) + length)


def _top_k(shapes: Shapes) -> Size:
    k = constant_array(shapes.at(1), weights=True, outer=True)
    count = 1 if k is None else max(int(k.reshape(-1)[0]), 1)
    return product(shapes.operand(0)) * math.ceil(math.log2(count + 1))


def _sort(shapes: Shapes) -> Size:
    length = shapes.operand(0)[-1]
    if isinstance(length, Dim):
        raise UnknownShapeError("the number of elements to sort is not known")
    return product(shapes.operand(0)) * math.ceil(math.log2(length + 1))


_SOFTMAX = 5
"""Operations per element: the maximum, a difference, the exponential, the sum, the quotient."""

_FOURIER = 5
"""Operations per element and halving: one complex product and two sums for each pair."""

_ELEMENTWISE = """
    Abs Acos Acosh Add And Asin Asinh Atan Atan2 Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BoolGreater
    BoolGreaterEqual BoolLess BoolLessEqual BoolMod BoolPow Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Exp2 Expm1
    Floor FloorDiv FloorMod Greater GreaterOrEqual HardSigmoid HardSwish Hardmax IntegerPow IsFinite IsInf IsNaN
    LeakyRelu Less LessOrEqual Log Log10 Log1p Log2 Mish Mod Mul Neg Not NotEqual Or PRelu Pow QuickGelu Reciprocal
    Relu Round Rsqrt Selu ShiftLeft ShiftRight Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square Sub Swish Tan
    Tanh ThresholdedRelu Trunc Where Xor Gelu FastGelu BiasGelu Dropout Resize Upsample Det Bernoulli RandomNormalLike
    RandomUniformLike RandomNormal RandomUniform Multinomial CounterNormal CounterUniform CounterBits DequantizeLinear
    QuantizeLinear Dequantize Quantize QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu GridSample CosineWindow
    BlackmanWindow HannWindow HammingWindow SwiGlu Glu Range EyeLike Modf Cbrt ReciprocalCbrt Exp10 Erfc Erfinv Lgamma
    Tgamma Digamma PopCount LeadingZeros TrailingZeros BitReverse
"""
_MOVES = having(Trait.MOVES, Trait.FILLS, Trait.JOINS, Trait.CARRIES).union(
    """BitCast Cast CastLike Col2Im Constant ConstantOfShape NonZero Scatter Shape Size Unique
    GatherBlockQuantized RemovePadding ReorderInput ReorderOutput RestorePadding""".split()
)
_REDUCTIONS = """
    ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ArgMax ArgMin GlobalAveragePool GlobalMaxPool CumSum
    CumProd
"""

_BY_DOMAIN: dict[str, dict[str, Rule]] = {
    "": {
        " ".join(_MOVES): lambda shapes: 0,
        _ELEMENTWISE: _per_result(),
        _REDUCTIONS: _per_operand(),
        "ReduceL2 ReduceSumSquare ReduceLogSum Variance Magnitude": _per_operand(2),
        "ReduceLogSumExp StandardDeviation": _per_operand(3),
        "Sum Mean Max Min SumOfTerms ProductOfTerms": lambda shapes: (
            product(shapes.result()) * max(len(shapes.node.inputs) - 1, 1)
        ),
        "ScatterElements ScatterND": _scatter,
        "MatMul MatMulInteger QMatMul": _matmul(),
        "QLinearMatMul": _matmul(0, 3),
        "Gemm": _gemm(),
        "Einsum": _einsum,
        "Conv ConvInteger DeformConv": _conv(),
        "QLinearConv": _conv(3),
        "ConvTranspose": lambda shapes: 2 * product(shapes.operand(1, 2)[1:]) * product(shapes.operand(0, 2)),
        "MaxPool AveragePool LpPool": lambda shapes: (
            product(shapes.result()) * math.prod(shapes.node.attributes.get("kernel_shape", ()))
        ),
        # In addition to the products of gates: activations, products with the cell, sums of both products and the bias.
        "LSTM": _recurrent(4, 24),
        "GRU": _recurrent(3, 18),
        "RNN": _recurrent(1, 5),
        "Attention": _attention,
        "Softmax LogSoftmax": _per_result(_SOFTMAX),
        "BatchNormalization Fma": _per_result(2),
        "LpNormalization MulComplex RotaryEmbedding": _per_result(3),
        "RMSNormalization": _per_result(5),
        "TopK": _top_k,
        "Quantile": _sort,
        "STFT": _stft,
        "DynamicQuantizeLinear": _per_result(4),
        "LRN": lambda shapes: product(shapes.result()) * (2 * shapes.number("size", 1) + 3),
        "LayerNormalization GroupNormalization InstanceNormalization MeanVarianceNormalization": _per_result(8),
    },
    "com.microsoft": {
        "FusedMatMul": _matmul(swap="transA"),
        "MatMulIntegerToFloat DynamicQuantizeMatMul": _matmul(),
        "MatMulNBits MatMulBnb4": _packed_matmul,
        "FusedGemm QGemm": _gemm(),
        "FusedConv NhwcFusedConv": _conv(),
        "Attention": _packed_attention,
        "MultiHeadAttention": _multi_head,
        "SkipLayerNormalization": _per_result(9),
        "SkipSimplifiedLayerNormalization": _per_result(6),
        "SimplifiedLayerNormalization": _per_result(5),
    },
}
RULES = {
    (domain, name): rule
    for domain, rules in _BY_DOMAIN.items()
    for names, rule in rules.items()
    for name in names.split()
}
"""The rules by domain and operator. Operators of the library are under ONNX's domain; their names do not clash."""
