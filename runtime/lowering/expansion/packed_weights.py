"""Products with constant weights that stay quantised, by kernels that read packed weights.

onnxruntime's MatMulNBits multiplies x by the dequantised weight in float32 at accuracy level 0, and quantises x to int8
at level 4. With 4 bits level 0 takes about as long as a product of floats. With 8 bits it dequantises the whole weight
in each run, one number after another, which takes up to 70 times as long: there the weight is dequantised while
lowering, and takes the memory of floats. If x is quantised too, `composed` has the products. On CUDA all other weights
are dequantised while lowering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol, present
from graphcore.ir.transform.walk import constant_array, edit
from graphcore.ops.shared.quantized_products import computed, dequantized, flaws, is_flaw, is_summed, product
from graphcore.passes.merging import readers
from graphcore.quantization.tensors import BLOCKS, ENCODINGS, Array, QuantizedTensor, packed, parts_of
from graphcore.runtime.lowering.expansion import composed
from graphcore.runtime.lowering.expansion.composed import MICROSOFT, Key, once
from graphcore.runtime.lowering.passes import Summary
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.support.source_lines import OfFile
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

Packed = composed.Packed
_F32, _BYTE = DType.float32, DType.uint8
_BLOCKS = (128, 64, 32, 16)
"""Block sizes of MatMulNBits, where they can be chosen: larger ones are faster."""


def build_product(node: Node, inputs: Sequence[Symbol | None], rules: Legality, done: Packed) -> Symbol | None:
    """Return a product or a tensor by kernels that are correct; None if the operator's expansion is used."""
    if node.op_type not in ("QMatMul", "Dequantize"):
        return None
    attributes, is_product = node.attributes, node.op_type == "QMatMul"
    x, values, *rest = [None, *inputs][1 if is_product else 0 :]
    parts = [s for s in rest if s is not None]
    assert values is not None
    arrays = [a for s in (values, *parts) if (a := constant_array(s, outer=True)) is not None]
    how = attributes["encoding"], attributes.get("axis", 0), attributes.get("block_size", 0)
    # The arrays are constants of the graph and outlive this run of lowering, so that an id identifies one.
    key = (*map(id, arrays), *how) if len(arrays) == 1 + len(parts) else None
    saturates = rules.runtime.saturates
    if x is not None and attributes.get("dynamic") and 0 not in (values.shape[0], values.shape[1]):
        count = attributes.get("digits", 1)
        if key is None or not rules.target.packs_weights:
            return composed.unsaturated(x, values, parts, saturates, count) if rules.decomposes else None
        return composed.dynamic(x, arrays, key, done, saturates, count)
    if x is not None and how[0] == "int8_split" and is_summed(values):
        if key is not None and rules.target.packs_weights:
            return composed.split(x, arrays, key, done, saturates)
        if key is None or not rules.decomposes:  # on devices constant digits become floats
            return composed.unsaturated(x, values, parts, saturates) if rules.decomposes else None
    if key is not None and rules.decomposes:
        tensor = _tensor(attributes, arrays)
        if x is not None:
            return _product(x, tensor, attributes, rules, key, done)
        return once((*key, "floats"), done, lambda: (values.graph.build.constant(tensor.dequantize(), _F32),))[0]
    if key is None:
        make = computed if rules.decomposes else dequantized
        weight = make(how[0], values, parts, *how[1:])
    else:
        (weight,) = once((*key, "standard"), done, lambda: (dequantized(how[0], values, parts, *how[1:]),))
    return weight if x is None else product(x, weight)


def _product(
    x: Symbol, tensor: QuantizedTensor, attributes: Mapping[str, Any], rules: Legality, key: Key, done: Packed
) -> Symbol:
    if rules.target.packs_weights and x.dtype is _F32 and 0 not in tensor.shape:
        level = attributes.get("accuracy_level", 0)
        if ENCODINGS[attributes["encoding"]].bits == 4:
            return _by_kernel(x, tensor, 4, level, key, done)
        if level:
            return _by_kernel(x, tensor, 8, level, key, done)
    return _by_floats(x, tensor, key, done)


def _tensor(attributes: Mapping[str, Any], arrays: Sequence[Any]) -> QuantizedTensor:
    """Return the quantised tensor of a node's arrays."""
    data, scales, zeros = (*arrays, None, None)[:3]
    encoding = ENCODINGS[attributes["encoding"]]
    if encoding.block is not None and encoding.block_bytes is not None:
        shape = (*data.shape[:-1], data.shape[-1] // encoding.block_bytes * encoding.block)
        return QuantizedTensor(encoding.gguf, shape, data)
    if encoding.name in ("int8", "int8_split"):
        axis = attributes.get("axis", 0) if scales.ndim else None
        shape = data.shape if encoding.name == "int8" else data.shape[1:]
        return QuantizedTensor(encoding.name, shape, data, scales, zeros, axis)
    block = attributes["block_size"]
    *leading, blocks = scales.shape
    data = data if data.dtype == np.uint8 else packed(data.astype(np.uint8))
    zeros = None if zeros is None else zeros.astype(np.uint8)
    return QuantizedTensor("int4", (*leading, blocks * block), data, scales, zeros, None, block)


def _by_floats(x: Symbol, tensor: QuantizedTensor, key: Key, done: Packed) -> Symbol:
    """Build a product with the weight dequantised while lowering."""

    def transposed() -> tuple[Symbol]:
        return (x.graph.build.constant(np.ascontiguousarray(tensor.dequantize().T, x.dtype.numpy), x.dtype),)

    (weight,) = once((*key, x.dtype), done, transposed)
    return e.emit("MatMul", x, weight, shape=x.shape[:-1] + weight.shape[1:])


def _by_kernel(x: Symbol, tensor: QuantizedTensor, bits: int, level: int, key: Key, done: Packed) -> Symbol:
    rows, inner = tensor.shape
    key = (*key, bits)
    if key not in done:
        weight = _four_bits(tensor) if bits == 4 else _eight_bits(tensor)
        if weight is None or not np.isfinite(weight.scales).all():
            return _by_floats(x, tensor, key[:-1], done)
        arrays = [a for a in (weight.data, weight.scales, weight.zeros, weight.rest) if a is not None]
        if weight.rest is not None and not np.isfinite(weight.rest).all():
            return _by_floats(x, tensor, key[:-1], done)
        done[key] = tuple(x.graph.build.constant(a, DType.of(a.dtype)) for a in arrays)
    data, scales, *others = done[key]
    zeros = [s for s in others if s.dtype is _BYTE]
    shape = x.shape[:-1] + _shape([Dim(rows)])
    block = inner // int(scales.shape[1])
    attributes = {"K": inner, "N": rows, "bits": bits, "block_size": block, "accuracy_level": level}
    result = x.graph.build.emit(
        "MatMulNBits", (x, data, scales, *zeros), tensor_type(_F32, shape), attributes, MICROSOFT
    )
    for rest in others[len(zeros) :]:
        each = e.emit("MatMul", _sums(x, inner, block), rest, shape=shape)
        result = e.emit("Add", result, each, shape=shape)
    return e.emit("Add", result, flaws(x, Dim(inner), has_few_rows=True), shape=shape) if level else result


def _sums(x: Symbol, inner: int, block: int) -> Symbol:
    """Return the sums of the blocks of x."""
    leading, count = x.shape[:-1], inner // block
    split = leading + _shape([Dim(count), Dim(block)])
    blocks = e.emit("Reshape", x, e.ints(x, [*[0] * len(leading), count, block]), shape=split)
    # For empty operands the kernel drops the wrong axis if it is negative.
    return e.emit("ReduceSum", blocks, e.ints(x, [x.rank]), shape=split[:-1], keepdims=0)


@dataclass(frozen=True, slots=True, eq=False)
class _KernelWeight:
    """The operands of MatMulNBits after x, and what they lack of the weight: float32[blocks, n], by block.

    zeros: None if they are 8 for 4 bits or 128 for 8.
    """

    data: Array
    scales: Array
    zeros: Array | None = None
    rest: Array | None = None


def _four_bits(tensor: QuantizedTensor) -> _KernelWeight:
    if tensor.encoding != "int4":
        return _of_blocks(tensor, 4)
    assert tensor.scales is not None
    # int4 has the same bytes.
    data = tensor.data.reshape(*tensor.scales.shape, present(tensor.block_size) // 2)
    zeros = tensor.zero_points
    return _KernelWeight(data, tensor.scales, None if zeros is None else _pack_zero_points(zeros))


def _pack_zero_points(zeros: Array) -> Array:
    """Return zero points of 4 bits, two in a byte."""
    return packed(np.pad(zeros, ((0, 0), (0, zeros.shape[1] % 2))))


def _eight_bits(tensor: QuantizedTensor) -> _KernelWeight | None:
    """Return int8 in blocks; None if no block size divides a row."""
    if tensor.encoding != "int8":
        return _of_blocks(tensor, 8)
    rows, inner = tensor.shape
    block = next((b for b in _BLOCKS if not inner % b), None)
    if block is None or tensor.scales is None:
        return None
    shape = (rows, inner // block)
    scales = np.ascontiguousarray(np.broadcast_to(tensor.scales.reshape(-1, 1), shape))
    zeros = tensor.zero_points
    if zeros is None:
        return _KernelWeight((tensor.data.view(np.uint8) ^ np.uint8(128)).reshape(*shape, block), scales)
    points = np.ascontiguousarray(np.broadcast_to(zeros.reshape(-1, 1), shape))
    return _KernelWeight(tensor.data.reshape(*shape, block), scales, points)


def _of_blocks(tensor: QuantizedTensor, bits: int) -> _KernelWeight:
    """Return GGUF's blocks. The kernel has only integer zero points: the remainder of the minima is `rest`."""
    rows, inner = tensor.shape
    parts = parts_of(tensor.data, tensor.encoding)
    scales = parts.steps.reshape(rows, -1)
    numbers = parts.numbers.reshape(rows, inner)
    data = (packed(numbers) if bits == 4 else numbers).reshape(*scales.shape, -1)
    zero = BLOCKS[tensor.encoding].zero
    if parts.minima is None:
        if zero == 1 << bits - 1:
            return _KernelWeight(data, scales)
        return _KernelWeight(data, scales, np.full(scales.shape, zero, np.uint8))
    minima = parts.minima.reshape(scales.shape).astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.clip(np.nan_to_num(np.rint(minima / scales)), 0, (1 << bits) - 1)
        rest = np.ascontiguousarray((scales * near - minima).T, np.float32)
    zeros = near.astype(np.uint8)
    return _KernelWeight(data, scales, _pack_zero_points(zeros) if bits == 4 else zeros, rest)


# Add biases inside the kernels of quantised products, which then write their result once.
#
# onnxruntime has such a fusion for products of floats, but for quantised ones only if it quantised them itself.

_POSITIONS = {"MatMulIntegerToFloat": 6, "MatMulNBits": 5}
"""The position of the bias. Operands before it may be omitted."""


def may_fuse(summary: Summary) -> bool:
    """Return True if a graph or one of its bodies has such products."""
    return any((op_type, MICROSOFT) in summary.operators for op_type in _POSITIONS)


def fuse(parts: Sequence[Graph]) -> bool:
    """Fuse vectors that are added to the results of such products, in a new graph and its bodies.

    Return True if there are any.
    """
    changed = [_fuse(part) for part in reversed(parts)]
    return any(changed)


def _fuse(graph: Graph) -> bool:
    if not any(node.op_type in _POSITIONS and node.domain == MICROSOFT for node in graph.nodes):
        return False
    uses = readers(graph)
    gone = {id(node) for node in graph.nodes if node.op_type == "Add" and not node.domain and _fuse_bias(node, uses)}
    if gone:
        edit(graph, dropped=gone)
    return bool(gone)


def _fuse_bias(node: Node, uses: Mapping[int, int]) -> bool:
    """Replace an Add of a product and a vector by the product with a bias. Return True if that is possible."""
    for sum_, bias in (node.inputs, node.inputs[::-1]):
        assert sum_ is not None
        assert bias is not None
        last = sum_.producer
        if not isinstance(last, Node) or not _is_vector(bias) or uses[sum_.id] > 1:
            continue
        product = last
        if last.op_type == "Add" and not last.domain:
            inner, other = last.inputs
            assert inner is not None
            if not isinstance(inner.producer, Node) or uses[inner.id] > 1:
                continue
            if not is_flaw(other) and not _is_second_digits(other, inner.producer):
                continue
            product = inner.producer
        if not _accepts_bias(product, bias) or sum_.type is not node.outputs[0].type:
            continue
        position = _POSITIONS[product.op_type]
        change(product, inputs=(*product.inputs, *(None,) * (position - len(product.inputs)), bias))
        change(last, outputs=node.outputs)
        for part in {id(last): last, id(product): product}.values():
            if isinstance(part.origin, OfFile):
                change(part, origin=part.origin.with_sources([part.origin, node.origin]))
        change(node.outputs[0], producer=last)
        return True
    return False


def _accepts_bias(node: Node, bias: Symbol) -> bool:
    position = _POSITIONS.get(node.op_type)
    if position is None or node.domain != MICROSOFT or len(node.inputs) > position:
        return False
    result = node.outputs[0]
    return result.dtype is bias.dtype and bool(result.rank) and result.shape[-1] == bias.shape[0]


def _is_second_digits(symbol: Symbol | None, product: Node) -> bool:
    """Return True if a value is the product, or sum of two, of second digits whose first digits `product` has."""
    sum_ = symbol.producer if symbol is not None else None
    if not isinstance(sum_, Node):
        return False
    if sum_.op_type == product.op_type == "MatMulIntegerToFloat":
        return sum_.inputs[1] is product.inputs[1] and sum_.inputs[0] is not product.inputs[0]
    if sum_.op_type != "Add" or sum_.domain:
        return False
    rest, other = (s.producer if s is not None else None for s in sum_.inputs)
    if not isinstance(rest, Node) or not isinstance(other, Node):
        return False
    if {n.op_type for n in (product, rest, other)} != {"MatMulIntegerToFloat"}:
        return False
    return rest.inputs[0] is product.inputs[0] and other.inputs[1] is product.inputs[1]


def _is_vector(symbol: Symbol) -> bool:
    """Return True if a value is a vector that exists before any product."""
    if not isinstance(symbol.producer, (Captured, Constant, Input)):
        return False
    return hasattr(symbol.type, "shape") and symbol.shape.is_ranked and symbol.rank == 1 and symbol.shape.is_static
