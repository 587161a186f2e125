"""Operators composed of ONNX's: forms of attention without a kernel, and sums and products of many terms.

onnxruntime 1.31's kernel of Attention refuses sequences without elements, a negative scale, masks that broadcast over
queries or keys, have fewer keys or one axis, and a past without a present. It reads the lowest float32 in a mask as
-inf: a query that has it for all keys gets 0 instead of their mean, and masked scores (mode 2) show it. It does not
support windows, operands of several dtypes or a softmax narrower than the operands, and silently ignores the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.graph import Graph
from graphcore.ir.state.open_expressions import PRODUCT, SUM
from graphcore.ir.symbol import Constant, Node, Symbol, source_of
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import bodies
from graphcore.ops.shared.attention import padded
from graphcore.ops.shared.dims import Size, shape_vector, size_of
from graphcore.ops.shared.quantized_products import (
    MIDDLE,
    digits,
    dynamic_product,
    half_split_product,
    levels,
    split_product,
)
from graphcore.quantization.tensors import BASE, Array
from graphcore.runtime.lowering.passes import Summary
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

ONE = Dim(1)
LOWEST = float(np.finfo(np.float32).min)
ABOVE_LOWEST = float(np.nextafter(np.float32(LOWEST), np.float32(0)))
NEWER = frozenset({"left_window_size", "right_window_size"})
"""Attributes of ONNX that onnxruntime's operator does not have."""

_MASKED_SCORES = 2
_FLOAT, _DOUBLE = 1, 11


def is_native(node: Node) -> bool:
    """Return True if the kernel computes a node unchanged."""
    if not _is_supported(node) or node.attributes.keys() & NEWER:
        return False
    q, k, _, mask, past, _, _ = _pad_to_seven(node.inputs)
    if past is not None and len(node.outputs) < 3:
        return False
    return mask is None or (_is_full(mask, q, k, past) and not _may_hold_lowest(mask))


def build_kernel(node: Node, inputs: Inputs) -> tuple[Symbol, ...] | None:
    """Return the results of the kernel on operands that it supports; None if no operands make it correct."""
    if not _is_supported(node):
        return None
    q, k, v, mask, past_key, past_value, lengths = _pad_to_seven(inputs)
    if mask is not None:
        mask = _fit_mask(mask, q, k, past_key)
    operands = [q, k, v, mask, past_key, past_value, lengths]
    while operands[-1] is None:
        operands.pop()
    attributes = {name: value for name, value in node.attributes.items() if name not in NEWER}
    types: list[Any] = [s.type for s in node.outputs]
    if past_key is not None:
        cache = [tensor_type(s.dtype, Shape(["?"] * 4)) for s in (k, v)]
        types += cache[len(types) - 1 :]
    graph: Graph = q.graph
    results = graph.build.emit_many("Attention", tuple(operands), types, attributes)
    return results[: len(node.outputs)]


def _pad_to_seven(inputs: Inputs) -> tuple[Any, ...]:
    return (*inputs, *[None] * (7 - len(inputs)))


def _is_supported(node: Node) -> bool:
    """Return True if the kernel is correct for a node, apart from its mask and its results."""
    q, k, v, mask, past_key, past_value, lengths = _pad_to_seven(node.inputs)
    attributes = node.attributes
    operands = [s for s in (q, k, v, past_key, past_value) if s is not None]
    if len({s.dtype for s in operands}) > 1 or any(s.type.shape.is_ranked and 0 in s.shape for s in (q, k, v)):
        return False
    if any(attributes.get(name, -1) >= 0 for name in NEWER):
        return False
    scale = attributes.get("scale")
    if scale is not None and not scale > 0:
        return False
    onnx_dtype: int = q.dtype.storage.onnx
    if attributes.get("softmax_precision", 0) not in (0, _FLOAT, _DOUBLE, onnx_dtype):
        return False
    if attributes.get("qk_matmul_output_mode", 0) == _MASKED_SCORES and len(node.outputs) > 3:
        return False
    if (past_key is None) != (past_value is None) or (past_key is not None and lengths is not None):
        return False
    if mask is None:
        return True
    ranks_known = all(s.type.shape.is_ranked for s in (q, k, mask, past_key) if s is not None)
    return ranks_known and mask.rank <= 4 and mask.dtype in (DType.bool, q.dtype)


def _keys(k: Symbol, past: Symbol | None) -> Dim:
    new_keys = k.shape[_axis(k)]
    return new_keys if past is None else past.shape[2] + new_keys


def _is_full(mask: Symbol, q: Symbol, k: Symbol, past: Symbol | None) -> bool:
    """Return True if the mask certainly has an axis of all queries and one of all keys."""
    if mask.rank < 2:
        return False
    full = (q.shape[_axis(q)], _keys(k, past))
    return all(d is w and not d.is_dynamic for d, w in zip(mask.shape[-2:], full, strict=True))


def _axis(x: Symbol) -> int:
    """Return the axis of the sequence."""
    return 2 if x.rank == 4 else 1


def _may_hold_lowest(mask: Symbol) -> bool:
    if mask.dtype is not DType.float32:
        return False
    source = source_of(mask)
    if isinstance(source, Node) and source.op_type == "Where" and not source.domain:
        return any(s is None or _may_hold_lowest(s) for s in source.inputs[1:])
    return not isinstance(source, Constant) or bool((source.array == LOWEST).any())


def _fit_mask(mask: Symbol, q: Symbol, k: Symbol, past: Symbol | None) -> Symbol:
    if _may_hold_lowest(mask):
        mask = e.where(e.equal(mask, e.const(mask, LOWEST)), e.const(mask, ABOVE_LOWEST), mask)
    if _is_full(mask, q, k, past):
        return mask
    keys = _keys(k, past)
    count = size_of(k, _axis(k))
    if past is not None and not keys.is_static:
        new_count, before = (shape_vector(k.graph, [s]) for s in (count, size_of(past, 2)))
        count = e.emit("Add", new_count, before)
    elif past is not None:
        count = keys
    mask = padded(mask, keys, count)
    if mask.rank >= 2 and mask.shape[-2] is q.shape[_axis(q)] and not mask.shape[-2].is_dynamic:
        return mask
    ones: list[Size] = [ONE] * max(mask.rank - 2, 0)
    target = shape_vector(k.graph, [*ones, size_of(q, _axis(q)), count])
    return e.emit("Expand", mask, target, shape=_shape([*mask.shape[:-2], q.shape[_axis(q)], keys]))


# Sums and products of many terms as balanced trees: neighbours pair up level by level, an odd last one moves up.
#
# A pass before the others. It first omits unused expressions: each longer expression has all terms of the shorter ones
# that it was built from.

_OPERATORS = {SUM: "Add", PRODUCT: "Mul"}


def needed(summary: Summary) -> bool:
    """Return True if the graph or one of its bodies has an expression of many terms."""
    return not summary.op_types.isdisjoint(_OPERATORS)


def balanced(graph: Graph) -> Graph:
    """Return the graph with such expressions replaced by Cast, Neg and Add or Mul."""
    return Rewrite(graph, _BalancePolicy(_used(graph))).run()


@dataclass(eq=False)
class _BalancePolicy(Policy[Rewrite]):
    used: set[int]

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        if node.op_type not in _OPERATORS:
            return None
        terms = [s for s in inputs if s is not None]
        if id(node.outputs[0]) in self.used:
            return (_tree(node, terms),)
        rewrite.bind(node.outputs[0], terms[0])
        # Its readers are omitted too, so any value can stand for it.
        return (None,)


def _used(graph: Graph) -> set[int]:
    """Return the ids of the values that are used in a graph, and in its bodies."""
    used = {id(symbol) for symbol in graph.outputs}
    for node in reversed(graph.nodes):
        if node.op_type not in _OPERATORS or id(node.outputs[0]) in used:
            used.update(map(id, node.inputs))
            for body in bodies(node):
                used.update(id(graph.symbols[number]) for number in body.scope.captured)
                used |= _used(body)
    return used


def _tree(node: Node, terms: Sequence[Symbol]) -> Symbol:
    dtype = node.outputs[0].dtype
    negated = node.attributes.get("negated", [0] * len(terms))
    level = [s.graph.build.cast(s, dtype) for s in terms]
    opposite: dict[int, Symbol] = {}  # by Symbol id: a term may be subtracted more than once
    for place, (s, minus) in enumerate(zip(level, negated, strict=True)):
        if minus:
            if s.id not in opposite:
                opposite[s.id] = e.emit("Neg", s)
            level[place] = opposite[s.id]
    operator = _OPERATORS[node.op_type]
    while len(level) > 1:
        pairs = [e.emit(operator, a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


# Products of quantised x with constant weights: onnxruntime's MatMulIntegerToFloat.
#
# It sums products of bytes and multiplies each sum by both scales: bit for bit the results of ONNX's MatMulInteger,
# Cast and Mul. DynamicQuantizeMatMul would quantise x again for each product that reads it, and is not faster for one.

MICROSOFT = "com.microsoft"
_F32, _BYTE = DType.float32, DType.uint8

Key = tuple[Any, ...]
Saturates = Callable[[], bool]
Packed = dict[Key, tuple[Symbol, ...]]
"""Packed weights by the arrays they are made from: a weight that several nodes share is packed once."""


def dynamic(x: Symbol, arrays: Sequence[Array], key: Key, done: Packed, saturates: Saturates, count: int) -> Symbol:
    """Multiply x by a weight of int8 or uint8. count: of digits of uint8 for x, whose products read the same weight."""
    values, scales, *zeros = arrays
    dtype, x = x.dtype, e.cast(x, _F32)
    weight = once((*key, "dynamic"), done, lambda: _packed_weight(x, saturates, values, scales, *zeros))
    if count == 1:
        whole = levels(x)
        return e.cast(_product(whole.numbers, whole.scale, whole.zero, weight), dtype)
    a = digits(x)
    coarse = _product(a.first, a.scale, a.zero, weight)
    fine = _product(a.second, a.finer, e.const(x, MIDDLE, _BYTE), weight)
    return e.cast(e.emit("Add", coarse, fine, shape=coarse.shape), dtype)


def split(x: Symbol, arrays: Sequence[Array], key: Key, done: Packed, saturates: Saturates) -> Symbol:
    """Multiply x in two digits by a weight in two digits, without the product of the second digits."""
    values, scales = arrays
    dtype, x = x.dtype, e.cast(x, _F32)
    coarse, *zeros = once(
        (*key, "first"), done, lambda: _packed_weight(x, saturates, values[0], scales * np.float32(BASE))
    )
    fine = once((*key, "second"), done, lambda: _packed_weight(x, saturates, values[1], scales))
    a = digits(x)
    result = _product(a.first, a.scale, a.zero, (coarse, *zeros))
    rest = _product(a.first, a.scale, a.zero, fine)
    # A second digit of x counts 1/254 of the scale, and a first digit of the weight 254 times the scale.
    other = _product(a.second, a.scale, e.const(x, MIDDLE, _BYTE), (coarse, fine[1], *zeros[1:]))
    rest = e.emit("Add", rest, other, shape=result.shape)
    return e.cast(e.emit("Add", result, rest, shape=result.shape), dtype)


def once(key: Key, done: Packed, make: Callable[[], tuple[Symbol, ...]]) -> tuple[Symbol, ...]:
    """Return the values of a key, which are made on first use."""
    if key not in done:
        done[key] = make()
    return done[key]


def _packed_weight(x: Symbol, saturates: Saturates, values: Array, scales: Array, *zeros: Array) -> tuple[Symbol, ...]:
    """Return a weight [n, k] as the kernel reads it: [k, n], scales, and zero points if it has them.

    Products with signed bytes take half the time of those with unsigned ones; a zero point for each column costs
    nothing.
    """
    graph = x.graph
    if values.dtype == np.int8 and _may_saturate(values, saturates):
        values, zeros = _flipped(values), (np.full((), 128, np.uint8),)
    elif values.dtype == np.uint8 and not _may_saturate(_flipped(values), saturates):
        values, zeros = _flipped(values), tuple(map(_flipped, zeros))
    transposed = graph.build.constant(np.ascontiguousarray(values.T), DType.of(values.dtype))
    return transposed, graph.build.constant(scales, _F32), *(graph.build.constant(z, DType.of(z.dtype)) for z in zeros)


def _flipped(values: Array) -> Array:
    """Return signed bytes for unsigned ones that are 128 more, and vice versa."""
    other = np.uint8 if values.dtype == np.int8 else np.int8
    return np.asarray((values.view(np.uint8) ^ np.uint8(128)).view(other))


def _product(x: Symbol, scale: Symbol, zero: Symbol, weight: tuple[Symbol, ...]) -> Symbol:
    values, scales, *zeros = weight
    type_ = tensor_type(_F32, x.shape[:-1] + values.shape[1:])
    return x.graph.build.emit("MatMulIntegerToFloat", (x, values, scale, scales, zero, *zeros), type_, None, MICROSOFT)


def _may_saturate(values: Array, saturates: Saturates) -> bool:
    """Return True if the sum of two products of neighbours with 255 may saturate in 16 bits on this processor."""
    return bool(values.max() > 64 or values.min() < -64) and saturates()


def unsaturated(
    x: Symbol, values: Symbol, parts: Sequence[Symbol], saturates: Saturates, count: int = 1
) -> Symbol | None:
    """Build a dynamic product with a weight that is known at run time only: unsigned if signed bytes saturate.

    count: the number of digits of x.
    """
    if values.dtype is not DType.int8 or not saturates():
        return None
    if values.rank == 3:
        return split_product(x, values, parts[0], is_unsigned=True)
    flipped = e.emit("BitwiseXor", e.bitcast(values, _BYTE), e.const(values, 128, _BYTE), dtype=_BYTE)
    product = half_split_product if count == 2 else dynamic_product
    return product(x, flipped, parts[0], e.const(values, 128, _BYTE))
