"""Operators that ONNX's compose: the forms of attention that no kernel has, and sums and products of many terms.

The kernel of Attention of onnxruntime 1.31 refuses sequences without elements, a scale below 0, masks that broadcast
over queries or keys, have fewer keys or one axis, and a past without a present. It takes the least float32 in a mask
for -inf, so that a query with that for all keys gets 0 and not their mean; and it shows masked scores (mode 2) as
that number. Windows, operands of several dtypes and a softmax narrower than they are it does not know, and takes no
notice of the last.
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
from graphcore.operators.shapes.call import broadcast_shapes
from graphcore.ops.shared.attention import padded, size
from graphcore.ops.shared.dims import Size, shape_vector
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
LEAST = float(np.finfo(np.float32).min)
ABOVE_LEAST = float(np.nextafter(np.float32(LEAST), np.float32(0)))
NEWER = frozenset({"left_window_size", "right_window_size"})
"""Attributes of ONNX that onnxruntime's operator has not."""

_MASKED_SCORES = 2
_FLOAT, _DOUBLE = 1, 11


def is_native(node: Node) -> bool:
    """Return whether the kernel computes a node as it is."""
    if not _is_known(node) or node.attributes.keys() & NEWER:
        return False
    q, k, _, mask, past, _, _ = _seven(node.inputs)
    if past is not None and len(node.outputs) < 3:
        return False
    return mask is None or (_is_whole(mask, q, k, past) and not _may_hold_least(mask))


def fitted(node: Node, inputs: Inputs) -> tuple[Symbol, ...] | None:
    """The results of the kernel on operands that it takes; None where none would make it right."""
    if not _is_known(node):
        return None
    q, k, v, mask, past_key, past_value, lengths = _seven(inputs)
    if mask is not None:
        mask = _fitted_mask(mask, q, k, past_key)
    operands = [q, k, v, mask, past_key, past_value, lengths]
    while operands[-1] is None:
        operands.pop()
    attributes = {name: value for name, value in node.attributes.items() if name not in NEWER}
    types: list[Any] = [s.type for s in node.outputs]
    if past_key is not None:
        cache = [tensor_type(s.dtype, Shape(["?"] * 4)) for s in (k, v)]
        types += cache[len(types) - 1 :]
    graph: Graph = q.graph
    made = graph.build.emit_many("Attention", tuple(operands), types, attributes)
    return made[: len(node.outputs)]


def _seven(inputs: Inputs) -> tuple[Any, ...]:
    return (*inputs, *[None] * (7 - len(inputs)))


def _is_known(node: Node) -> bool:
    """Return whether the kernel is right about a node, apart from its mask and its results."""
    q, k, v, mask, past_key, past_value, lengths = _seven(node.inputs)
    said = node.attributes
    given = [s for s in (q, k, v, past_key, past_value) if s is not None]
    if len({s.dtype for s in given}) > 1 or any(s.type.shape.is_ranked and _is_empty(s) for s in (q, k, v)):
        return False
    if any(said.get(name, -1) >= 0 for name in NEWER):
        return False
    scale = said.get("scale")
    if scale is not None and not scale > 0:
        return False
    own: int = q.dtype.storage.onnx
    if said.get("softmax_precision", 0) not in (0, _FLOAT, _DOUBLE, own):
        return False
    if said.get("qk_matmul_output_mode", 0) == _MASKED_SCORES and len(node.outputs) > 3:
        return False
    if past_key is not None and (past_value is None or lengths is not None):
        return False
    if past_key is None and past_value is not None:
        return False
    if mask is None:
        return True
    ranks_known = all(s.type.shape.is_ranked for s in (q, k, mask) if s is not None)
    return ranks_known and (past_key is None or past_key.type.shape.is_ranked) and _is_mask(mask, q)


def _is_empty(symbol: Symbol) -> bool:
    return any(d.value == 0 for d in symbol.shape)


def _is_mask(mask: Symbol, q: Symbol) -> bool:
    return mask.rank <= 4 and mask.dtype in (DType.bool, q.dtype)


def _keys(k: Symbol, past: Symbol | None) -> Dim:
    own = k.shape[_axis(k)]
    return own if past is None else past.shape[2] + own


def _is_whole(mask: Symbol, q: Symbol, k: Symbol, past: Symbol | None) -> bool:
    """Return whether the mask certainly has an axis of all queries and one of all keys."""
    if mask.rank < 2:
        return False
    wanted = (q.shape[_axis(q)], _keys(k, past))
    return all(d is w and not d.is_dynamic for d, w in zip(mask.shape[-2:], wanted, strict=True))


def _axis(x: Symbol) -> int:
    """The axis of the sequence."""
    return 2 if x.rank == 4 else 1


def _may_hold_least(mask: Symbol) -> bool:
    if mask.dtype is not DType.float32:
        return False
    source = source_of(mask)
    if isinstance(source, Node) and source.op_type == "Where" and not source.domain:
        return any(s is None or _may_hold_least(s) for s in source.inputs[1:])
    return not isinstance(source, Constant) or bool((source.array == LEAST).any())


def _fitted_mask(mask: Symbol, q: Symbol, k: Symbol, past: Symbol | None) -> Symbol:
    if _may_hold_least(mask):
        mask = e.where(e.equal(mask, e.const(mask, LEAST)), e.const(mask, ABOVE_LEAST), mask)
    if _is_whole(mask, q, k, past):
        return mask
    keys = _keys(k, past)
    count = size(k, _axis(k))
    if past is not None and not keys.is_static:
        own, before = (shape_vector(k.graph, [s]) for s in (count, size(past, 2)))
        count = e.emit("Add", own, before)
    elif past is not None:
        count = keys
    mask = padded(mask, keys, count)
    if mask.rank >= 2 and mask.shape[-2] is q.shape[_axis(q)] and not mask.shape[-2].is_dynamic:
        return mask
    ones: list[Size] = [ONE] * max(mask.rank - 2, 0)
    target = shape_vector(k.graph, [*ones, size(q, _axis(q)), count])
    return e.emit("Expand", mask, target, shape=_shape([*mask.shape[:-2], q.shape[_axis(q)], keys]))


# Sums and products of many terms, made balanced trees: neighbours pair up level by level, an odd last one moves up.
#
# A pass before the others. What nothing uses is left out first: each longer expression that was built holds all terms
# of the shorter ones that it was built from.

_OPERATORS = {SUM: "Add", PRODUCT: "Mul"}


def needed(has: Summary) -> bool:
    """Return whether there is an expression of many terms in the graph or one of its bodies."""
    return not has.op_types.isdisjoint(_OPERATORS)


def balanced(graph: Graph) -> Graph:
    """The graph with Cast, Neg and Add or Mul in the place of such expressions."""
    return Rewrite(graph, _Balancing(_used(graph))).run()


@dataclass(eq=False)
class _Balancing(Policy[Rewrite]):
    used: set[int]

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        if node.op_type not in _OPERATORS:
            return None
        given = [s for s in inputs if s is not None]
        if id(node.outputs[0]) in self.used:
            return (_tree(node, given),)
        rewrite.bind(node.outputs[0], given[0])
        # Whatever reads it is left out as well; so anything may stand for it.
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
    opposite: dict[int, Symbol] = {}  # by number: the same term may be subtracted more than once
    for place, (s, minus) in enumerate(zip(level, negated, strict=True)):
        if minus:
            if s.id not in opposite:
                opposite[s.id] = s.graph.build.emit("Neg", (s,), tensor_type(dtype, s.shape))
            level[place] = opposite[s.id]
    operator = _OPERATORS[node.op_type]
    while len(level) > 1:
        pairs = [_pair(operator, a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def _pair(operator: str, a: Symbol, b: Symbol) -> Symbol:
    shape = broadcast_shapes([a.shape, b.shape])
    return a.graph.build.emit(operator, (a, b), tensor_type(a.dtype, shape))


# Products of quantised x with weights that are known: onnxruntime's MatMulIntegerToFloat.
#
# It sums products of bytes and multiplies each sum with both scales, so that the numbers are those of ONNX's
# MatMulInteger, Cast and Mul bit for bit. DynamicQuantizeMatMul would quantise x once for each product that reads it,
# and takes as long where there is one.

MICROSOFT = "com.microsoft"
_F32, _BYTE = DType.float32, DType.uint8

Key = tuple[Any, ...]
Saturates = Callable[[], bool]
Packed = dict[Key, tuple[Symbol, ...]]
"""The weights that were packed, by the arrays they were made of: a weight that several nodes share is packed once."""


def dynamic(x: Symbol, arrays: Sequence[Array], key: Key, done: Packed, saturates: Saturates) -> Symbol:
    """x as one tensor of uint8, with a weight of int8 or uint8."""
    values, scales, *zeros = arrays
    own, x = x.dtype, e.cast(x, _F32)
    weight = _once((*key, "dynamic"), done, lambda: _turned(x, saturates, values, scales, *zeros))
    a = levels(x)
    return e.cast(_product(a.numbers, a.scale, a.zero, weight), own)


def half_split(x: Symbol, arrays: Sequence[Array], key: Key, done: Packed, saturates: Saturates) -> Symbol:
    """x in two digits, with a weight of int8 or uint8: both products read the same weight."""
    values, scales, *zeros = arrays
    own, x = x.dtype, e.cast(x, _F32)
    weight = _once((*key, "dynamic"), done, lambda: _turned(x, saturates, values, scales, *zeros))
    a = digits(x)
    coarse = _product(a.first, a.scale, a.zero, weight)
    fine = _product(a.second, a.finer, e.const(x, MIDDLE, _BYTE), weight)
    return e.cast(e.emit("Add", coarse, fine, shape=coarse.shape), own)


def split(x: Symbol, arrays: Sequence[Array], key: Key, done: Packed, saturates: Saturates) -> Symbol:
    """x in two digits, with the two of a weight: all but the product of the second ones."""
    values, scales = arrays
    own, x = x.dtype, e.cast(x, _F32)
    most, *zeros = _once((*key, "first"), done, lambda: _turned(x, saturates, values[0], scales * np.float32(BASE)))
    least = _once((*key, "second"), done, lambda: _turned(x, saturates, values[1], scales))
    a = digits(x)
    made = _product(a.first, a.scale, a.zero, (most, *zeros))
    rest = _product(a.first, a.scale, a.zero, least)
    # The second digits of x count 1/254 of the scale, and the first ones of the weight 254 times the scale.
    other = _product(a.second, a.scale, e.const(x, MIDDLE, _BYTE), (most, least[1], *zeros[1:]))
    rest = e.emit("Add", rest, other, shape=made.shape)
    return e.cast(e.emit("Add", made, rest, shape=made.shape), own)


def _once(key: Key, done: Packed, make: Callable[[], tuple[Symbol, ...]]) -> tuple[Symbol, ...]:
    if key not in done:
        done[key] = make()
    return done[key]


def _turned(x: Symbol, saturates: Saturates, values: Array, scales: Array, *zeros: Array) -> tuple[Symbol, ...]:
    """A weight [n, k] as the kernel takes it: [k, n], scales, and zero points if it has them.

    Products with signed bytes take half of the time of those with unsigned ones, and a zero point of each column none.
    """
    graph = x.graph
    if values.dtype == np.int8 and _may_saturate(values, saturates):
        values, zeros = _flipped(values), (np.full((), 128, np.uint8),)
    elif values.dtype == np.uint8 and not _may_saturate(_flipped(values), saturates):
        values, zeros = _flipped(values), tuple(map(_flipped, zeros))
    turned = graph.build.constant(np.ascontiguousarray(values.T), DType.of(values.dtype))
    return turned, graph.build.constant(scales, _F32), *(graph.build.constant(z, DType.of(z.dtype)) for z in zeros)


def _flipped(values: Array) -> Array:
    """Signed bytes for unsigned ones that are 128 more, and the other way round."""
    other = np.uint8 if values.dtype == np.int8 else np.int8
    return np.asarray((values.view(np.uint8) ^ np.uint8(128)).view(other))


def _product(x: Symbol, scale: Symbol, zero: Symbol, weight: tuple[Symbol, ...]) -> Symbol:
    values, scales, *zeros = weight
    type_ = tensor_type(_F32, x.shape[:-1] + values.shape[1:])
    return x.graph.build.emit("MatMulIntegerToFloat", (x, values, scale, scales, zero, *zeros), type_, None, MICROSOFT)


def _may_saturate(values: Array, saturates: Saturates) -> bool:
    """Return whether two products of neighbours with 255 may leave 16 bits, on a processor that adds them there."""
    return bool(values.max() > 64 or values.min() < -64) and saturates()


def unsaturated(
    x: Symbol, values: Symbol, parts: Sequence[Symbol], saturates: Saturates, count: int = 1
) -> Symbol | None:
    """A dynamic product with a weight that comes when the graph runs: unsigned, where signed bytes saturate.

    count: the digits of x.
    """
    if values.dtype is not DType.int8 or not saturates():
        return None
    if values.rank == 3:
        return split_product(x, values, parts[0], is_unsigned=True)
    flipped = e.emit("BitwiseXor", e.bitcast(values, _BYTE), e.const(values, 128, _BYTE), dtype=_BYTE)
    product = half_split_product if count == 2 else dynamic_product
    return product(x, flipped, parts[0], e.const(values, 128, _BYTE))
