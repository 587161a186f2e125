"""Arithmetic that optimisers of onnxruntime simplify wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Constant, Node, Symbol, present
from graphcore.ir.transform import pickling, walk
from graphcore.ir.transform.walk import constant_array, edit, node_of
from graphcore.runtime.lowering.passes import (
    Pass,
    built_here,
    hidden,
    node_workaround,
    of_onnx,
    operand_workaround,
)
from graphcore.runtime.lowering.workarounds.dequantized import NEUTRAL, dequantizing
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_SUMS = ("Add", "Sub")
_PRODUCTS = ("Mul", "Div")
_COMMUTATIVE = ("Add", "Mul")
_EXACT = "biuOSUT"
"""Kinds of NumPy dtypes that are not floats."""

Array = np.ndarray[Any, Any]


def is_rounded(array: Array, neutral: Sequence[float] = (0.0, 1.0)) -> bool:
    """Return True if an array is one float64 that is not one of these numbers but rounds to one in float32."""
    if array.size != 1 or array.dtype != np.float64:
        return False
    number = array.reshape(())
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(number.astype(np.float32))
    return rounded in neutral and rounded != float(number)


def is_infinite_factor(array: Array, op_type: str) -> bool:
    """Return True if an array is one number that is not finite, or a divisor of 0."""
    if array.size != 1 or array.dtype.kind in _EXACT:
        return False
    number = float(array.reshape(()))
    return not np.isfinite(number) or (not number and op_type == "Div")


def constant_place(node: Node, is_meant: Callable[[Array, str], bool]) -> int | None:
    """Return the position of an affected constant in a sum or a product whose other operand is not constant, or None.

    is_meant: tests an array and the operator.
    """
    for place in (1, 0) if node.op_type in _COMMUTATIVE else (1,):
        constant, other = node.inputs[place], node.inputs[1 - place]
        if (
            constant is not None
            and other is not None
            and type(constant.producer) is Constant
            and type(other.producer) is not Constant
            and is_meant(constant.producer.array, node.op_type)
        ):
            return place
    return None


def _constant_workaround(
    trap: str,
    why: str,
    operators: Sequence[str],
    is_meant: Callable[[Array, str], bool],
    write: Callable[[Graph, Node, int], None],
    beside: Sequence[str] = (),
    when: str = "",
) -> Pass:
    """Return a workaround that rewrites nodes of these operators with an affected constant, except imported ones.

    beside: operators without which the optimiser has nothing to do, if they are others.
    """

    def affected(graph: Graph) -> Iterator[Node]:
        return (node for node in built_here(graph, operators) if constant_place(node, is_meant) is not None)

    def write_node(graph: Graph, node: Node) -> None:
        place = present(constant_place(node, is_meant))
        write(graph, node, place)

    return node_workaround(trap, why, beside or operators, affected, write_node, when=when)


def _write_rounded(graph: Graph, node: Node, place: int) -> None:
    """Write a Sum, which computes the same as Add and is not optimised, or a factor that is known at run time only."""
    if node.op_type in _SUMS:
        as_sum(graph, node)
    else:
        _write_factor(graph, node, place)


def _write_infinite_factor(graph: Graph, node: Node, place: int) -> None:
    """Write a factor that is known at run time only; also for a divisor of 0, whose sign a Where may lose."""
    constant = present(node.inputs[place])
    if node.op_type == "Div":
        assert isinstance(constant.producer, Constant)
        with np.errstate(divide="ignore"):
            inverse = np.reciprocal(constant.producer.array)
        if np.isinf(inverse).all():
            constant = graph.build.constant(inverse, constant.dtype)
            change(node, op_type="Mul", inputs=(present(node.inputs[0]), constant))
    _write_factor(graph, node, place)


def _write_factor(graph: Graph, node: Node, place: int) -> None:
    """Put the constant of a node through a Where whose condition is known at run time only."""
    constant, other = present(node.inputs[place]), present(node.inputs[1 - place])
    inputs: list[Symbol | None] = [other, other]
    inputs[place] = e.emit("Where", e.emit("IsNaN", other), constant, constant, shape=node.outputs[0].shape)
    change(node, inputs=tuple(inputs))


def _write_empty(graph: Graph, node: Node, place: int) -> None:
    """Expand the constant to the shape of the result, which has no elements either."""
    constant, other = present(node.inputs[place]), present(node.inputs[1 - place])
    change(node, op_type="Expand", inputs=(constant, e.emit("Shape", other)))


ROUNDED = _constant_workaround(
    "optimiser NoopElimination float64",
    "the optimiser drops x + 1e-300, since the constant is 0 in float32",
    (*_SUMS, *_PRODUCTS),
    lambda array, op_type: is_rounded(array, (NEUTRAL[op_type],)),
    _write_rounded,
)
INFINITE_FACTOR = _constant_workaround(
    "optimiser MatMulScaleFusion of infinity",
    "the optimiser multiplies by infinity after the sum, where infinities meet",
    _PRODUCTS,
    is_infinite_factor,
    _write_infinite_factor,
    beside=("MatMul",),
    when="MatMul, and Mul or Div",
)
EMPTY = _constant_workaround(
    "optimiser NoopElimination",
    "the optimiser reads a constant without elements as 0 or 1",
    (*_SUMS, *_PRODUCTS),
    lambda array, op_type: not array.size,
    _write_empty,
)


# Write a Relu of float64 before a Clip as a Clip: onnxruntime's optimiser fuses the two, and fails on float64.


def _write_clipped(graph: Graph, node: Node) -> None:
    """Turn a Relu into a Clip from 0 up."""
    # Without an upper bound the kernel clips infinity to the largest number.
    bounds = (graph.build.constant(np.array(bound), DType.float64) for bound in (0.0, np.inf))
    change(node, op_type="Clip", inputs=(node.inputs[0], *bounds))


def _clipped(graph: Graph) -> Iterable[Node]:
    """Return the Relus of float64, except imported ones, that a Clip reads."""
    relus: dict[int, Node] = {}
    for node in of_onnx(graph, {"Clip"}):
        relu = node_of(node.inputs[0], "Relu")
        if relu is not None and relu.outputs[0].dtype is DType.float64 and type(relu.origin) is not Imported:
            relus[id(relu)] = relu
    return relus.values()


CLIPPED_RELU = node_workaround(
    "optimiser FuseReluClip",
    "the optimiser fails on a Relu of float64 before a Clip",
    {"Relu"},
    _clipped,
    _write_clipped,
    when="Relu, Clip",
)


# Keep a Sigmoid of float64 apart from a product: some releases fuse the two to a QuickGelu, which has only float32.


QUICK_GELU = operand_workaround(
    "optimiser QuickGeluFusion",
    "the optimiser fuses both to an operator that has no kernel in float64",
    {"Sigmoid"},
    lambda graph: built_here(graph, {"Mul"}),
    lambda node: [i for i, s in enumerate(node.inputs) if node_of(s, "Sigmoid") and present(s).dtype is DType.float64],
    hidden,
    when="Sigmoid, Mul",
)


# Keep x + 0.0: onnxruntime's optimiser removes it, but -0.0 + 0.0 is 0.0.
#
# The optimiser knows Add and Sub; Sum computes the same and is not optimised.

_ZEROS = {"Add": False, "Sub": True}
"""The operators, and whether the zero that changes -0.0 is negative."""


def as_sum(graph: Graph, node: Node) -> None:
    """Turn an Add, or a Sub of a constant, into a Sum."""
    if node.op_type == "Sub":
        lhs, rhs = node.inputs
        assert rhs is not None
        assert isinstance(rhs.producer, Constant)
        change(node, inputs=(lhs, graph.build.constant(-rhs.producer.array, rhs.dtype)))
    change(node, op_type="Sum")


def _sums(graph: Graph) -> Iterator[Node]:
    """Yield the nodes, except imported ones, that add a constant zero to a float."""
    # The slowest step of lowering a graph that is legal: most nodes must be rejected here.
    for node in graph.nodes:
        if node.op_type in _ZEROS and not node.domain and type(node.origin) is not Imported:
            lhs, rhs = node.inputs
            if (type(lhs.producer) is Constant or type(rhs.producer) is Constant) and _adds_zero(node):  # type: ignore[union-attr]
                yield node


def _adds_zero(node: Node) -> bool:
    operands = node.inputs if node.op_type == "Add" else node.inputs[1:]
    return any(_is_zero(symbol, _ZEROS[node.op_type]) for symbol in operands)


def _is_zero(symbol: Symbol | None, negative: bool) -> bool:
    """Return True if a Symbol is a constant zero of that sign."""
    if symbol is None or type(symbol.producer) is not Constant:
        return False
    array = symbol.producer.array
    if array.size != 1 or not symbol.dtype.is_float:
        return False
    number = np.asarray(array, np.float64).reshape(())
    return bool(number == 0) and bool(np.signbit(number)) is negative


ADDED_ZERO = node_workaround(
    "sum with a constant zero",
    "the optimiser drops x + 0.0, which is not x for -0.0",
    _ZEROS,
    _sums,
    as_sum,
)


# Make signed weights of bytes unsigned where products of unsigned with signed bytes saturate.
#
# x86 processors without VNNI add pairs of such products in 16 bits. Kernels, and the optimiser that builds them from
# DequantizeLinear nodes, accept weights and zero points that are both larger by 128, with equal results. ConvInteger
# multiplies filters by x: there unsigned filters beside a signed x become signed.

_MICROSOFT = "com.microsoft"
_WEIGHTS: dict[tuple[str, str], tuple[tuple[int, int, int | None], ...]] = {
    ("ConvInteger", ""): ((1, 3, None),),
    ("MatMulInteger", ""): ((1, 3, None),),
    ("QLinearConv", ""): ((3, 5, None),),
    ("QLinearMatMul", ""): ((3, 5, None),),
    ("DynamicQuantizeLSTM", _MICROSOFT): ((1, 9, 8), (2, 11, 10)),
    ("DynamicQuantizeMatMul", _MICROSOFT): ((1, 3, 2),),
    ("MatMulIntegerToFloat", _MICROSOFT): ((1, 5, 3),),
    ("QGemm", _MICROSOFT): ((3, 5, None),),
}
"""The operands that are weights, their zero points, and scales that give an omitted zero point its shape."""
_MOVES = frozenset({"Flatten", "MaxPool", "Relu", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_MAX_UNSATURATED = 64
"""Two products of 255 with this weight fit in 16 bits."""


def _saturating_weights(graph: Graph) -> Iterator[Node]:
    reported = set()
    for node in graph.nodes:
        if any(_saturates(node, at) for at, _, _ in _places(node)):
            yield node
        elif not node.domain and node.op_type in ("Conv", "Gemm", "MatMul"):
            weight, x = (dequantizing(s, _MOVES) for s in node.inputs[1::-1])
            if weight is None or x is None or id(weight) in reported or not _saturates(weight, 0):
                continue
            if _dtype(x.inputs[0]) is DType.uint8:
                reported.add(id(weight))
                yield weight


def _places(node: Node) -> Sequence[tuple[int, int, int | None]]:
    """Return the positions of weights of a node, if they may saturate beside its other operand."""
    rows = _WEIGHTS.get((node.op_type, node.domain), ())
    is_rounded = node.op_type.startswith("Dynamic")  # from float32 to unsigned bytes
    other = DType.int8 if node.op_type == "ConvInteger" else DType.uint8
    return rows if is_rounded or (rows and _dtype(node.inputs[0]) is other) else ()


def _dtype(symbol: Symbol | None) -> DType | None:
    return symbol.dtype if symbol is not None and isinstance(symbol.type, TensorType) else None


def _saturates(node: Node, at: int) -> bool:
    """Return True if weights have the other sign than the other operand, and may be too large."""
    symbol, is_first = node.inputs[at], node.op_type == "ConvInteger"
    if symbol is None or _dtype(symbol) is not (DType.uint8 if is_first else DType.int8):
        return False
    array = constant_array(symbol, weights=True, outer=True)
    widest = 2 * _MAX_UNSATURATED - 1 if is_first else _MAX_UNSATURATED  # beside 128, and beside 255
    return array is None or bool(array.size and (array.max() > widest or array.min() < -widest))


def _flip_signs(graph: Graph, node: Node, is_flipped: Callable[[Node, int], bool] = _saturates) -> None:
    places = ((0, 2, 1),) if node.op_type == "DequantizeLinear" else _places(node)
    inputs: list[Symbol | None] = [*node.inputs]
    for at, zero_at, scale_at in places:
        weight = inputs[at]
        if weight is None or not is_flipped(node, at):
            continue
        inputs += [None] * (zero_at + 1 - len(inputs))
        zero, scale = inputs[zero_at], None if scale_at is None else inputs[scale_at]
        dims = () if scale is None else tuple(scale.shape.static_dims)
        zero = graph.build.constant(np.zeros(dims, weight.dtype.numpy), weight.dtype) if zero is None else zero
        inputs[zero_at] = _flipped(graph, zero)
        inputs[at] = _flipped(graph, weight)
    change(node, inputs=tuple(inputs))


def _flipped(graph: Graph, x: Symbol) -> Symbol:
    """Return bytes that are 128 more and unsigned, or 128 less and signed; cached for all nodes that read them."""
    cache = graph.memory.values
    if ("turned", x.id) not in cache:
        cache["turned", x.id] = _flip(graph, x)
    return cache["turned", x.id]


def _flip(graph: Graph, x: Symbol) -> Symbol:
    dtype, step = (DType.uint8, 128) if x.dtype is DType.int8 else (DType.int8, -128)
    array = constant_array(x, weights=True, outer=True)
    if array is not None:
        flipped: np.ndarray[Any, Any] = np.ascontiguousarray(array).view(np.uint8) ^ np.uint8(128)
        return graph.build.constant(flipped.view(dtype.numpy).reshape(array.shape), dtype)
    moved = e.add(e.emit("Cast", x, dtype=DType.int32, to=DType.int32), step)
    return e.emit("Cast", moved, dtype=dtype, to=dtype)


SIGNED_WEIGHTS = node_workaround(
    "signed weights of bytes",
    "processors without VNNI saturate products of unsigned with signed bytes",
    {"DequantizeLinear", *(op_type for op_type, _ in _WEIGHTS)},
    _saturating_weights,
    _flip_signs,
    is_of_processors=True,
    in_standard=True,
    when="weights of bytes beside an operand of the other sign",
)


# Make unsigned weights of bytes signed where such products do not saturate: with equal sums, in half the time.

SIGNED_IS_FASTER = frozenset({"DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat"})
"""Operators whose kernels take half the time with signed weights, on AVX512-VNNI."""


def _is_unsigned(node: Node, at: int) -> bool:
    """Return True for constant unsigned weights, with a zero point that is constant too."""
    zeros = [node.inputs[zero] for weight, zero, _ in _places(node) if weight == at and zero < len(node.inputs)]
    operands = (node.inputs[at], *(zero for zero in zeros if zero is not None))
    return all(_dtype(s) is DType.uint8 and constant_array(s, weights=True, outer=True) is not None for s in operands)


def with_signed_weights(graph: Graph) -> Graph:
    """Return a graph whose products of unsigned bytes have signed weights; the same graph if it has none."""
    nodes = [n for part in walk.parts(graph) for n in part.nodes if n.op_type in SIGNED_IS_FASTER]
    if not any(_is_unsigned(node, at) for node in nodes for at, _, _ in _places(node)):
        return graph
    result = pickling.copied(graph)
    for part in walk.parts(result):
        nodes = [n for n in part.nodes if n.op_type in SIGNED_IS_FASTER]
        edit(part, {id(node): partial(_flip_signs, part, node, _is_unsigned) for node in nodes})
    return result
