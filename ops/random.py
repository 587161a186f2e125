"""Random numbers from an explicit seed, the same in every session, run and dtype. See docs/howto/random.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.arrays import casting
from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY, expansion, op
from graphcore.build.operands import cast_operand, dtype_of, graph_of, operand, promote_one
from graphcore.build.shapes import axis_of, check_scalar
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ir.transform.walk import constant_array
from graphcore.ops.gathering import gather
from graphcore.ops.shared import counter
from graphcore.ops.shared.attributes import real
from graphcore.ops.shared.counter import F32, F64, U32, Places
from graphcore.ops.shared.dims import Axis, Size, SizeLike, dims_of, shape_vector
from graphcore.ops.shared.reshape import dim_of, graph_and_sizes
from graphcore.ops.sorting import argsort, cumsum
from graphcore.promotion.rules import holds
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import DimLike, _shape, tensor_type

Seed = int | Symbol
_I64, _U64 = DType.int64, DType.uint64


@op(onnx="BitShift, BitwiseXor, Mul")
def random_uniform(
    shape: SizeLike | Sequence[SizeLike],
    low: float = 0.0,
    high: float = 1.0,
    *,
    seed: Seed,
    dtype: object = DType.float32,
) -> Symbol:
    """Uniformly distributed numbers from `low` to `high`, without `high`, in the current graph or that of the seed.

    Args:
        shape: As for `full`.
        low: Python numbers that the dtype holds.
        high: Python numbers that the dtype holds.
        seed: An int of 64 bits, or an integer scalar Symbol; the same seed returns the same numbers.
        dtype: A float. Each number is a multiple of 2^-24 of the range (2^-53 in float64, 2^-11 in float16).

    Raises:
        DTypeError: For other dtypes and seeds.
        ShapeError: For unknown dims and if low is not below high. Integer operators of ONNX.
    """
    name = "random_uniform"
    wanted = _float_dtype(name, dtype)
    limits = [_round_to(name, role, value, wanted) for role, value in (("low", low), ("high", high))]
    if not limits[0] < limits[1]:
        raise ShapeError(f"{name}: low must be below high in {wanted}, got {low} and {high}", help="give low < high")
    if limits[1] - limits[0] > float(np.finfo(numpy_float(wanted)).max):
        raise ShapeError(f"{name}: the range from {low} to {high} overflows {wanted}", help="give a smaller range")
    graph, sizes = graph_and_sizes(name, shape, seed)
    attributes = {"dtype": wanted, "low": limits[0], "high": limits[1]}
    return _draw(name, UNIFORM, graph, sizes, seed, wanted, attributes)


@op(onnx="BitShift, BitwiseXor, Mul, Log, Sqrt, Cos")
def random_normal(
    shape: SizeLike | Sequence[SizeLike],
    mean: float = 0.0,
    std: float = 1.0,
    *,
    seed: Seed,
    dtype: object = DType.float32,
) -> Symbol:
    """Normally distributed numbers, after Box and Muller (1958).

    Args:
        shape: As for `random_uniform`.
        mean: Python numbers, std not below 0.
        std: Python numbers, std not below 0. All numbers are within 6.8 deviations of the mean (8.7 in float64). Raises
            as `random_uniform` does. Operators of ONNX.
        seed: As for `random_uniform`.
        dtype: As for `random_uniform`.
    """
    name = "random_normal"
    wanted = _float_dtype(name, dtype)
    attributes = {
        "dtype": wanted,
        "mean": _round_to(name, "mean", mean, wanted),
        "std": _round_to(name, "std", real(name, "std", std, least=0.0), wanted),
    }
    graph, sizes = graph_and_sizes(name, shape, seed)
    return _draw(name, NORMAL, graph, sizes, seed, wanted, attributes)


@op(onnx="BitShift, BitwiseXor, Mul, Mod")
def random_int(
    shape: SizeLike | Sequence[SizeLike], low: int, high: int, *, seed: Seed, dtype: object = DType.int64
) -> Symbol:
    """Uniformly distributed integers from `low` to `high`, without `high`.

    Args:
        shape: As for `random_uniform`.
        low: Python ints; the dtype holds low and high - 1.
        high: Python ints; the dtype holds low and high - 1.
        seed: As for `random_uniform`.
        dtype: An integer of up to 64 bits. Each is the remainder of 64 random bits: the frequencies of n integers
            differ by at most n in 2^64.

    Raises:
        DTypeError: For other dtypes, seeds and limits that the dtype does not hold.
        ShapeError: For unknown dims and if low is not below high. Integer operators of ONNX.
    """
    name = "random_int"
    wanted = dtype_of(name, dtype)
    if not wanted.is_integer or wanted.bits > 64:
        raise DTypeError(
            f"{name}: {wanted} is not an integer of up to 64 bits", help="give an integer dtype, or use random_uniform"
        )
    for role, value in (("low", low), ("high", high)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise DTypeError(f"{name}: {role} must be an int, got {value!r:.60}", help="give ints: low=0, high=10")
    if low >= high:
        raise ShapeError(f"{name}: low must be below high, got {low} and {high}", help="give low < high")
    if low < wanted.min or high - 1 > wanted.max:
        raise DTypeError(
            f"{name}: {wanted} does not hold {low} to {high - 1}", help=f"its range is {wanted.min} to {wanted.max}"
        )
    graph, sizes = graph_and_sizes(name, shape, seed)
    drawn = _words(name, graph, sizes, seed)
    if high - low < 1 << 64:
        drawn = e.emit("Mod", drawn, graph.build.scalar(int(high - low), _U64))
    if low:
        drawn = e.emit("Add", drawn, graph.build.scalar(int(low) % (1 << 64), _U64))
    return graph.build.cast(drawn, wanted)


@op(onnx="BitShift, BitwiseXor, Mul, Less", rule="float")
def bernoulli(
    p: TensorLike, shape: SizeLike | Sequence[SizeLike] | None = None, *, seed: Seed, dtype: object = DType.bool
) -> Symbol:
    """True with a probability, else False.

    Args:
        p: Probabilities, of any shape; integers become floats. A probability of 1 or more is always True, one of 0 or
            less and NaN never.
        shape: Of the result, if p is a Python number.
        seed: As for `random_uniform`.
        dtype: Of the result, where True is 1.

    Raises:
        DTypeError: For other seeds.
        ShapeError: For a shape beside a Symbol or array, and for a number without a shape.

    ONNX Less of `random_uniform`.
    """
    name = "bernoulli"
    graph, sizes = graph_and_sizes(name, [] if shape is None else shape, p, seed)
    wanted = dtype_of(name, dtype, graph)
    if wanted is DType.string:
        raise DTypeError(f"{name}: dtype must be bool or a number, got string", help="give a numeric dtype, or bool")
    if isinstance(p, (bool, int, float)):
        if shape is None:
            raise ShapeError(
                f"{name}: a Python number as p needs a shape", help="give the shape: bernoulli(0.5, [3, 4], ...)"
            )
        chance = graph.build.scalar(real(name, "p", p), F64)
        own = F64
    else:
        if shape is not None:
            raise ShapeError(f"{name}: the shape is that of p, got both", help="omit shape")
        symbol, _ = promote_one(name, "float", p, "p")
        own = F64 if symbol.dtype is F64 else F32
        chance, sizes = graph.build.cast(symbol, own), _sizes(symbol)
    drawn = _draw(name, UNIFORM, graph, sizes, seed, own, {"dtype": own, "low": 0.0, "high": 1.0})
    return graph.build.cast(e.emit("Less", drawn, chance, dtype=DType.bool, shape=drawn.shape), wanted)


@op(onnx="Exp, CumSum, LessOrEqual, ReduceSum", rule="float")
def categorical(logits: TensorLike, samples: int | None = None, *, seed: Seed) -> Symbol:
    """Classes drawn from the softmax of their logits along the last axis.

    Args:
        logits: [..., classes], logarithms of weights that need not add up to 1; integers become floats.
        samples: The number of draws for each row, by default one, without an axis for it.
        seed: As for `random_uniform`.

    Returns:
        Int64 of shape [...] or [..., samples]. Classes of weight 0 (-inf) are not drawn; rows of NaN, or of -inf alone,
        give 0.

    Raises:
        ShapeError: For a scalar, no classes and samples below 1.

    ONNX Multinomial, of other shapes too.
    """
    name = "categorical"
    symbol, _ = promote_one(name, "float", logits, "logits")
    if not symbol.rank or symbol.shape[-1] == 0:
        raise ShapeError(
            f"{name}: logits must have one or more classes", operands={"logits": symbol}, help="give [..., classes]"
        )
    if samples is not None and (not isinstance(samples, int) or isinstance(samples, bool) or samples < 1):
        raise ShapeError(f"{name}: samples must be an int >= 1, got {samples!r}", help="give 1 or more")
    graph = graph_of(name, (symbol, seed))
    logs = graph.build.cast(symbol, F64)
    weights = e.emit("Exp", e.emit("Sub", logs, logs.max(axis=-1, keepdims=True), shape=logs.shape))
    sums = cumsum(weights, axis=-1)
    total, sums = sums[..., -1:], sums[..., :-1]
    sizes = [*_sizes(symbol)[:-1], Dim(samples or 1)]
    drawn = _draw(name, UNIFORM, graph, sizes, seed, F64, {"dtype": F64, "low": 0.0, "high": 1.0})
    drawn = e.emit("Mul", drawn, total, shape=drawn.shape)
    shape = _shape([*drawn.shape, sums.shape[-1]])
    drawn = e.unsqueeze(drawn, -1)
    sums = e.unsqueeze(sums, -2)
    passed = e.emit("LessOrEqual", sums, drawn, dtype=DType.bool, shape=shape)
    classes = graph.build.cast(passed, _I64).sum(axis=-1)
    return classes if samples is not None else classes[..., 0]


@op(onnx="BitShift, BitwiseXor, Mul, TopK")
def permutation(n: DimLike, *, seed: Seed) -> Symbol:
    """The numbers from 0 to `n`, without `n`, in random order, in int64.

    Args:
        n: An int, or a name or Dim of a Symbol of the graph.
        seed: As for `random_uniform`. The numbers are sorted by 64 random bits each.

    Raises:
        DTypeError: For other seeds.
        ShapeError: For unknown dims.

    ONNX TopK.
    """
    name = "permutation"
    sizes = dims_of(name, n)
    if len(sizes) != 1:
        raise ShapeError(f"{name}: n must be one dim, got {n!r}", help="give one dim; ops.shuffle reorders a tensor")
    graph = graph_of(name, (seed, n))
    return argsort(graph.build.cast(_words(name, graph, sizes, seed), _I64))


@op(onnx="Gather, TopK")
def shuffle(x: TensorLike, axis: int = 0, *, seed: Seed) -> Symbol:
    """The slices of a tensor along an axis in random order.

    Args:
        x: Any shape of rank 1 or more, any dtype.
        axis: The axis to shuffle; slices move as a whole.
        seed: As for `random_uniform`.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For other seeds.

    ONNX Gather.
    """
    symbol = operand("shuffle", x)
    along = axis_of("shuffle", axis, symbol.rank, {"x": symbol})
    graph = graph_of("shuffle", (symbol, seed))
    order = argsort(graph.build.cast(_words("shuffle", graph, [_size_of(symbol, along)], seed), _I64))
    return gather(symbol, order, along)


@op(onnx="Where", rule="float")
def dropout(x: TensorLike, rate: float, *, seed: Seed) -> Symbol:
    """The tensor with elements set to 0 at random, and the others divided by the probability of being kept.

    Args:
        x: Any shape; integers become floats.
        rate: The probability that an element becomes 0, a Python number from 0 to 1.
        seed: As for `random_uniform`.

    Raises:
        ShapeError: For another rate.
        DTypeError: For other seeds.

    From Srivastava et al., "Dropout" (2014); the draws of ONNX Dropout in training are not defined by its seed.
    """
    name = "dropout"
    symbol, dtype = promote_one(name, "float", x)
    share = 1.0 - real(name, "rate", rate, least=0.0)
    if share < 0:
        raise ShapeError(
            f"{name}: rate must be at most 1, got {rate}", help="give the share of elements to drop, 0 to 1"
        )
    graph = graph_of(name, (symbol, seed))
    drawn = _draw(name, UNIFORM, graph, _sizes(symbol), seed, F64, {"dtype": F64, "low": 0.0, "high": 1.0})
    stays = e.emit("Less", drawn, graph.build.scalar(share, F64), dtype=DType.bool, shape=symbol.shape)
    zero = graph.build.scalar(0.0, dtype)
    scaled = e.emit("Div", symbol, graph.build.scalar(share, dtype)) if _is_representable(share, dtype) else symbol
    return e.where(stays, scaled, zero)


# Arguments


def _float_dtype(name: str, dtype: object) -> DType:
    wanted = dtype_of(name, dtype)
    if wanted not in counter.DIGITS:
        if wanted.is_float:
            raise DTypeError(f"{name}: no numbers are drawn in {wanted}", help="draw float16 numbers and cast them")
        fix = "draw each part: ops.complex(x, y)" if wanted.is_complex else "give a float dtype, or use random_int"
        raise DTypeError(f"{name}: {wanted} is not a float", help=fix)
    return wanted


def _round_to(name: str, role: str, value: float, dtype: DType) -> float:
    """Round a number to the dtype."""
    number = real(name, role, value)
    if not holds(number, dtype):
        raise DTypeError(f"{name}: {role}={value} cannot be held in {dtype}", help="give a smaller number")
    return float(casting.cast_array(np.array(number), F64, dtype))


def _is_representable(share: float, dtype: DType) -> bool:
    return share != 1.0 and float(casting.cast_array(np.array(share), F64, real_of(dtype))) != 0.0


def _seed(name: str, graph: Graph, seed: object) -> Symbol:
    """Return the seed as an int64 scalar."""
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        number = int(seed)
        if not -(1 << 63) <= number < 1 << 64:
            raise DTypeError(f"{name}: the seed {number} has more than 64 bits", help="give a smaller seed")
        return graph.build.scalar((number + (1 << 63)) % (1 << 64) - (1 << 63), _I64)
    if not isinstance(seed, Symbol) or not seed.dtype.is_integer or seed.dtype.bits > 64:
        described = seed if isinstance(seed, Symbol) else repr(seed)
        raise DTypeError(
            f"{name}: the seed must be an integer of up to 64 bits",
            operands={"seed": described},
            help="give an int, or an int64 scalar Symbol",
        )
    check_scalar(name, "seed", seed, help="give one element of it: seed[0]")
    return cast_operand(graph.build.own(seed, name, "seed"), _I64)


def _size_of(symbol: Symbol, axis: int) -> Size:
    dim = symbol.shape[axis]
    return dim if dim.is_static else Axis(symbol, axis)


def _sizes(symbol: Symbol) -> list[Size]:
    return [_size_of(symbol, axis) for axis in range(symbol.rank)]


def _draw(
    name: str,
    op_type: str,
    graph: Graph,
    sizes: Sequence[Size],
    seed: object,
    dtype: DType,
    attributes: dict[str, Any],
) -> Symbol:
    """Emit a node of the generator."""
    shape = _shape(map(dim_of, sizes))
    operands = (shape_vector(graph, sizes, op=name), _seed(name, graph, seed))
    return graph.build.emit(op_type, operands, tensor_type(dtype, shape), attributes, LIBRARY)


def _words(name: str, graph: Graph, sizes: Sequence[Size], seed: object) -> Symbol:
    """Draw 64 random bits for each element, as uint64."""
    return _draw(name, BITS, graph, sizes, seed, _U64, {})


# The expansions

BITS, UNIFORM, NORMAL = "CounterBits", "CounterUniform", "CounterNormal"
"""The library's operators. Inputs: a shape, an int64 vector, and a seed, an int64 scalar."""


def numpy_float(dtype: DType) -> Any:
    """Return NumPy's type of the dtype that a float is computed in."""
    return np.float64 if dtype is F64 else np.float32


@dataclass(frozen=True, slots=True)
class _GraphEmitter:
    """Emits the operators of the generator into a graph that is not lowered yet."""

    graph: Graph

    def op(self, op_type: str, *inputs: Symbol | None, **more: Any) -> Symbol:
        return e.emit(op_type, *inputs, **more)

    def scalar(self, value: bool | int | float, dtype: DType) -> Symbol:
        return self.graph.build.scalar(value, dtype)

    def native_cast(self, x: Symbol, dtype: DType) -> Symbol:
        return e.cast_within(x, dtype)


@expansion(UNIFORM)
def _uniform(shape: Symbol, seed: Symbol, *, dtype: DType, low: float, high: float) -> Symbol:
    on = _GraphEmitter(shape.graph)
    drawn = counter.unit(on, _places(on, shape, seed), dtype)
    if (low, high) == (0.0, 1.0):
        return _reshape_to(drawn, shape)
    compute_dtype = drawn.dtype
    drawn = e.emit("Mul", drawn, on.scalar(float(numpy_float(dtype)(high) - numpy_float(dtype)(low)), compute_dtype))
    drawn = on.graph.build.cast(e.emit("Add", drawn, on.scalar(low, compute_dtype)), dtype)
    # The sum may round up to the limit, which must not be drawn.
    return _reshape_to(e.emit("Min", drawn, on.scalar(_below(high, dtype), dtype)), shape)


@expansion(NORMAL)
def _normal(shape: Symbol, seed: Symbol, *, dtype: DType, mean: float, std: float) -> Symbol:
    on = _GraphEmitter(shape.graph)
    compute_dtype = F64 if dtype is F64 else F32
    drawn = counter.normal(on, _places(on, shape, seed), compute_dtype)
    if std != 1.0:
        drawn = e.emit("Mul", drawn, on.scalar(std, compute_dtype))
    if mean != 0.0:
        drawn = e.emit("Add", drawn, on.scalar(mean, compute_dtype))
    return _reshape_to(drawn, shape)


@expansion(BITS)
def _bits(shape: Symbol, seed: Symbol) -> Symbol:
    on = _GraphEmitter(shape.graph)
    places = _places(on, shape, seed)
    low, high = (on.native_cast(counter.bits(on, places, stream), _U64) for stream in (0, 1))
    high = e.emit("BitShift", high, on.scalar(32, _U64), direction="LEFT")
    return _reshape_to(e.emit("BitwiseOr", high, low), shape)


def _places(on: _GraphEmitter, shape: Symbol, seed: Symbol) -> Places:
    sizes = constant_array(shape, weights=True)
    length = Dim.dynamic() if sizes is None else Dim(math.prod(sizes.tolist()))
    scalar = _shape(())
    if sizes is None:
        count = e.emit("ReduceProd", shape, shape=scalar, keepdims=0)
    else:
        count = on.scalar(int(length), _I64)
    numbers = e.emit("Range", on.scalar(0, _I64), count, on.scalar(1, _I64), shape=_shape([length]))
    return Places(e.cast_within(numbers, U32), _keys(on, seed))


def _keys(on: _GraphEmitter, seed: Symbol) -> tuple[Symbol, Symbol]:
    array = constant_array(seed, weights=True)
    if array is not None:
        words = int(array) % (1 << 64)
        first, second = counter.keys_of(words & 0xFFFFFFFF, words >> 32)
        return on.scalar(first, U32), on.scalar(second, U32)
    bits = e.cast_within(seed, _U64)
    high = e.cast_within(e.emit("BitShift", bits, on.scalar(32, _U64), direction="RIGHT"), U32)
    low = e.cast_within(e.emit("BitwiseAnd", bits, on.scalar(0xFFFFFFFF, _U64)), U32)
    return counter.built_keys(on, low, high)


def _reshape_to(drawn: Symbol, shape: Symbol) -> Symbol:
    sizes = constant_array(shape, weights=True)
    rank = shape.shape[0]
    dims = [Dim.dynamic()] * int(rank) if sizes is None else [Dim(n) for n in sizes.tolist()]
    return e.emit("Reshape", drawn, shape, shape=_shape(dims), allowzero=1)


def _below(high: float, dtype: DType) -> float:
    """Return the largest number of the dtype below `high`."""
    if dtype is not DType.tensor_float32:
        return float(np.nextafter(np.asarray(high, dtype.numpy), np.asarray(dtype.min, dtype.numpy)))
    bits = int(np.float32(high).view(np.int32))
    next_bits = bits - 0x2000 if high > 0 else bits + 0x2000 if high < 0 else np.float32(-(2.0**-136)).view(np.int32)
    return float(np.int32(next_bits).view(np.float32))
