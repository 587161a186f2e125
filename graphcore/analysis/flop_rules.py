"""Operations of each operator as a function of its shapes: one row an operator.

A multiplication and an addition are two. What moves data counts none; an element-wise operator one for each element of
its result, whatever it computes. Shapes are those that ONNX and com.microsoft declare.
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


class UnknownShapeError(Exception):
    """A shape that a rule needs is not known."""


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
        return dims

    def operand(self, position: int, rank: int = 0) -> Dims:
        """Return the shape of an operand that has at least so many axes. Raises `UnknownShapeError`."""
        return _ranked(self.of(self.at(position)), rank)

    def result(self, rank: int = 0) -> Dims:
        """Return the shape of the first result. Raises `UnknownShapeError`."""
        return _ranked(self.of(self.node.outputs[0]), rank)

    def at(self, position: int) -> Symbol | None:
        """Return an operand; None where it is left out."""
        return self.node.inputs[position] if position < len(self.node.inputs) else None

    def number(self, name: str, default: int = 0) -> int:
        """Return an attribute that is an int."""
        value = self.node.attributes.get(name, default)
        return int(value) if isinstance(value, (int, float)) else default


def _ranked(dims: Dims, rank: int) -> Dims:
    if len(dims) < rank:
        raise UnknownShapeError(f"an operand has {len(dims)} axes")
    return dims


def product(dims: Dims) -> Size:
    """Return the number of elements of a shape."""
    total: Size = 1
    for dim in dims:
        total = dim * total
    return total


# Products of matrices


def _matmul(left: int = 0, right: int = 1, swap: str = "") -> Rule:
    def rule(has: Shapes) -> Size:
        a = has.operand(left, 1)
        _ranked(has.of(has.at(right)), 1)
        depth = a[-2] if swap and has.number(swap) and len(a) > 1 else a[-1]
        return 2 * product(has.result()) * depth

    return rule


def _gemm(a: int = 0) -> Rule:
    def rule(has: Shapes) -> Size:
        shape = has.operand(a, 2)
        depth = shape[0] if has.number("transA") else shape[1]
        return 2 * product(has.result()) * depth

    return rule


def _of_bits(has: Shapes) -> Size:
    return 2 * product(has.operand(0, 1)) * has.number("N")


def _einsum(has: Shapes) -> Size:
    text = has.node.attributes.get("equation", "")
    terms = str(text).replace(" ", "").partition("->")[0].split(",")
    if len(terms) != len(has.node.inputs):
        raise UnknownShapeError("the equation has other operands")
    sizes: dict[object, Size] = {}
    for position, letters in enumerate(terms):
        dims = has.operand(position)
        named = letters.replace("...", "")
        spread = len(dims) - len(named)
        if spread < 0 or ("..." not in letters and spread):
            raise UnknownShapeError("the equation has other axes")
        at = letters.index("...") if "..." in letters else len(named)
        labels: list[object] = [*named[:at], *range(-spread, 0), *named[at:]]
        for label, dim in zip(labels, dims, strict=True):
            if sizes.get(label, 1) == 1:
                sizes[label] = dim
    return product([*sizes.values()]) * max(len(terms), 1)


# Convolutions


def _conv(weight: int = 1) -> Rule:
    def rule(has: Shapes) -> Size:
        filters = has.operand(weight, 2)
        return 2 * product(has.result(2)) * product(filters[1:])

    return rule


def _transposed_conv(has: Shapes) -> Size:
    filters = has.operand(1, 2)
    return 2 * product(has.operand(0, 2)) * product(filters[1:])


def _pool(has: Shapes) -> Size:
    kernel = has.node.attributes.get("kernel_shape", ())
    return product(has.result()) * math.prod(int(k) for k in kernel)


# Recurrent networks: W is [directions, gates * hidden, input], X [sequence, batch, input]


def _recurrent(gates: int, per_unit: int) -> Rule:
    def rule(has: Shapes) -> Size:
        x, w, r = has.operand(0, 3), has.operand(1, 3), has.operand(2, 3)
        directions, hidden, steps = w[0], r[2], x[0] * x[1]
        products = 2 * gates * hidden * (x[2] + hidden)
        return steps * directions * (products + per_unit * hidden)

    return rule


# Attention


def _attention(has: Shapes) -> Size:
    """Return the operations of ONNX's Attention: operands of rank 4 [batch, heads, sequence, size], or 3 with heads."""
    query, key, value = has.operand(0, 3), has.operand(1, 3), has.operand(2, 3)
    if len(query) == 4:
        batch, heads, length, size = query
        keys, width = key[2], value[3]
    else:
        batch, length = query[0], query[1]
        heads = has.number("q_num_heads", 1)
        kv_heads = max(has.number("kv_num_heads", 1), 1)
        size, keys, width = query[2] // heads, key[1], value[2] // kv_heads
    if has.at(4) is not None:
        keys = keys + has.operand(4, 4)[2]
    return _attended(batch * heads, length, keys, size, width)


def _attended(rows: Size, length: Size, keys: Size, size: Size, width: Size) -> Size:
    return rows * length * keys * (2 * size + 2 * width + _SOFTMAX)


def _multi_head(has: Shapes) -> Size:
    query, key, value = has.operand(0, 3), has.operand(1), has.operand(2)
    heads = max(has.number("num_heads", 1), 1)
    if len(query) != 3 or len(key) not in (3, 4) or len(value) not in (3, 4):
        raise UnknownShapeError("its operands are packed")
    keys = key[1] if len(key) == 3 else key[2]
    width = value[2] // heads if len(value) == 3 else value[3]
    past = has.at(6)
    if past is not None:
        keys = keys + _ranked(has.of(past), 4)[2]
    return _attended(query[0] * heads, query[1], keys, query[2] // heads, width)


def _packed_attention(has: Shapes) -> Size:
    """Return the operations of com.microsoft's Attention: X [batch, sequence, width], weights of all three in one."""
    x, weights = has.operand(0, 3), has.operand(1, 2)
    heads = max(has.number("num_heads", 1), 1)
    size = weights[1] // (3 * heads)
    keys = x[1] if has.at(4) is None else x[1] + _ranked(has.of(has.at(4)), 5)[3]
    return 2 * x[0] * x[1] * x[2] * weights[1] + _attended(x[0] * heads, x[1], keys, size, size)


# By element


def _each(cost: int = 1) -> Rule:
    return lambda has: product(has.result()) * cost


def _each_operand(cost: int = 1) -> Rule:
    return lambda has: product(has.operand(0)) * cost


def _none(has: Shapes) -> Size:
    return 0


def _terms(has: Shapes) -> Size:
    return product(has.result()) * max(len(has.node.inputs) - 1, 1)


def _scattered(has: Shapes) -> Size:
    """Return the operations of a scatter: one for each update that is combined with what is there."""
    return 0 if has.node.attributes.get("reduction", "none") == "none" else product(has.operand(2))


def _transformed(has: Shapes) -> Size:
    """Return the operations of a STFT: windows [batch, frames, bins, 2] of fast Fourier transforms."""
    batch, frames, *_ = has.result(2)
    window_length = constant_array(has.at(3), weights=True, outer=True)
    length = has.operand(2, 1)[0] if window_length is None else int(window_length.reshape(-1)[0])
    if isinstance(length, Dim):
        raise UnknownShapeError("the length of its window is not known")
    return batch * frames * (_FOURIER * length * math.ceil(math.log2(max(length, 2))) + length)


def _top(has: Shapes) -> Size:
    k = constant_array(has.at(1), weights=True, outer=True)
    count = 1 if k is None else max(int(k.reshape(-1)[0]), 1)
    return product(has.operand(0)) * math.ceil(math.log2(count + 1))


def _ordered(has: Shapes) -> Size:
    length = has.operand(0)[-1]
    if isinstance(length, Dim):
        raise UnknownShapeError("how many elements are put in order is not known")
    return product(has.operand(0)) * math.ceil(math.log2(length + 1))


_SOFTMAX = 5
"""Of each element: the maximum, a difference, the exponential, the sum, the quotient."""

_FOURIER = 5
"""Of each element and halving: one complex product and two sums for each pair."""

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
""".split()
_MOVES = having(Trait.MOVES, Trait.FILLS, Trait.JOINS, Trait.CARRIES).union(
    """BitCast Cast CastLike Col2Im Constant ConstantOfShape NonZero Scatter Shape Size Unique
    GatherBlockQuantized RemovePadding ReorderInput ReorderOutput RestorePadding""".split()
)
_REDUCTIONS = """
    ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ArgMax ArgMin GlobalAveragePool GlobalMaxPool CumSum
    CumProd
""".split()

RULES: dict[tuple[str, str], Rule] = {
    **{("", name): _none for name in _MOVES},
    **{("", name): _each() for name in _ELEMENTWISE},
    **{("", name): _each_operand() for name in _REDUCTIONS},
    **{
        ("", name): _each_operand(2)
        for name in ("ReduceL2", "ReduceSumSquare", "ReduceLogSum", "Variance", "Magnitude")
    },
    **{("", name): _each_operand(3) for name in ("ReduceLogSumExp", "StandardDeviation")},
    **{("", name): _terms for name in ("Sum", "Mean", "Max", "Min", "SumOfTerms", "ProductOfTerms")},
    **{("", name): _scattered for name in ("ScatterElements", "ScatterND")},
    ("", "MatMul"): _matmul(),
    ("", "MatMulInteger"): _matmul(),
    ("", "QLinearMatMul"): _matmul(0, 3),
    ("", "QMatMul"): _matmul(),
    ("", "Gemm"): _gemm(),
    ("", "Einsum"): _einsum,
    ("", "Conv"): _conv(),
    ("", "ConvInteger"): _conv(),
    ("", "QLinearConv"): _conv(3),
    ("", "DeformConv"): _conv(),
    ("", "ConvTranspose"): _transposed_conv,
    ("", "MaxPool"): _pool,
    ("", "AveragePool"): _pool,
    ("", "LpPool"): _pool,
    # Beside the products of gates: activations, products with the cell, sums of both products and the bias.
    ("", "LSTM"): _recurrent(4, 24),
    ("", "GRU"): _recurrent(3, 18),
    ("", "RNN"): _recurrent(1, 5),
    ("", "Attention"): _attention,
    ("", "Softmax"): _each(_SOFTMAX),
    ("", "LogSoftmax"): _each(_SOFTMAX),
    ("", "BatchNormalization"): _each(2),
    ("", "Fma"): _each(2),
    ("", "RMSNormalization"): _each(5),
    ("", "LpNormalization"): _each(3),
    ("", "MulComplex"): _each(3),
    ("", "RotaryEmbedding"): _each(3),
    ("", "TopK"): _top,
    ("", "Quantile"): _ordered,
    ("", "STFT"): _transformed,
    ("", "DynamicQuantizeLinear"): _each(4),
    ("", "LRN"): lambda has: product(has.result()) * (2 * has.number("size", 1) + 3),
    **{
        ("", name): _each(8)
        for name in ("LayerNormalization", "GroupNormalization", "InstanceNormalization", "MeanVarianceNormalization")
    },
    ("com.microsoft", "FusedMatMul"): _matmul(swap="transA"),
    ("com.microsoft", "MatMulIntegerToFloat"): _matmul(),
    ("com.microsoft", "DynamicQuantizeMatMul"): _matmul(),
    ("com.microsoft", "MatMulNBits"): _of_bits,
    ("com.microsoft", "MatMulBnb4"): _of_bits,
    ("com.microsoft", "FusedGemm"): _gemm(),
    ("com.microsoft", "QGemm"): _gemm(),
    ("com.microsoft", "FusedConv"): _conv(),
    ("com.microsoft", "NhwcFusedConv"): _conv(),
    ("com.microsoft", "Attention"): _packed_attention,
    ("com.microsoft", "MultiHeadAttention"): _multi_head,
    ("com.microsoft", "SkipLayerNormalization"): _each(9),
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): _each(6),
    ("com.microsoft", "SimplifiedLayerNormalization"): _each(5),
}
"""By domain and operator. Operators of the library are looked up as ONNX's, which no operator of ONNX contradicts."""
