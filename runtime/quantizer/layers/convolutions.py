"""Convolutions in int8 with ranges from samples: QuantizeLinear and DequantizeLinear around each.

A transposed convolution is first rewritten as a convolution. onnxruntime fuses a Conv between the two into one
QLinearConv. A batch norm that alone reads the convolution is folded into the filters. A Relu needs no node: rounding
to bytes from 0 on clips negative numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.build import primitives as e
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs
from graphcore.ir.transform.walk import constant_array, node_of
from graphcore.passes.merging import readers
from graphcore.quantization import QuantizedTensor, encode
from graphcore.runtime.quantizer.layers.replacing import (
    Building,
    NodeReplacement,
    Outcome,
    Ranges,
    is_float32,
    length,
    scale_of,
)
from graphcore.runtime.quantizer.weights import Choices, weight_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

Step: TypeAlias = "tuple[np.float32, np.uint8]"

OPERATORS = frozenset({"Conv", "ConvTranspose"})
SCHEME = "int8_static"
"""The name in a report: the ranges of activations are known before the graph runs."""


def _misfit(node: Node, choices: Choices, ranges: Ranges | None) -> str:
    """Return why a convolution cannot be quantised, or ""."""
    if choices.scheme.name != "int8_dynamic":
        return f"{choices.scheme.name} does not quantise convolutions: int8_dynamic with samples does"
    if ranges is None:
        return "the ranges of its input and output are unknown: give samples, which measure them"
    if not is_float32(node.inputs[0]):
        return "its input is not float32; only convolutions of float32 are quantised"
    if not choices.symmetric or not choices.per_channel:
        return "convolutions are quantised with the default symmetric=True and per_channel=True only"
    weight = weight_of(node.inputs[1])
    if weight is None or not np.isfinite(weight.array()).all():
        return "its weight has infinities or NaN"
    if len(node.inputs) > 2 and node.inputs[2] is not None and weight_of(node.inputs[2]) is None:
        return "its bias is computed; only a constant bias is quantised"
    x = node.inputs[0]
    if id(x) not in ranges or id(node.outputs[0]) not in ranges:
        return "its range was not measured: no sample reaches it, or it is in the body of an If, Loop or Scan"
    if node.op_type == "Conv":
        return ""
    if is_small(node):
        return f"int8 would be slower: each result is a sum of fewer than {LEAST} products"
    return transposed_misfit(node)


def is_small(node: Node) -> bool:
    """Return True if a convolution is faster in floats: DepthToSpace costs more than bytes save."""
    if node.op_type != "ConvTranspose":
        return False
    weight = present(node.inputs[1])
    return int(weight.shape[0]) * math.prod(_sizes(node)) < LEAST * math.prod(_strides(node))


class Chain:
    """A convolution with a batch norm and a Relu that alone read what comes before, if there are any.

    sum: see `_sum_after`.
    """

    def __init__(self, graph: Graph, node: Node) -> None:
        counts = readers(graph)
        # The one node that reads a Symbol, for those that nothing else reads.
        following = {s.id: n for n in graph.nodes for s in n.inputs if s is not None and counts[s.id] == 1}
        self.nodes = [node]
        for op_type in ("BatchNormalization", "Relu"):
            then = following.get(self.nodes[-1].outputs[0].id)
            if then is not None and then.op_type == op_type and not then.domain:
                if op_type == "Relu" or _is_known(then):
                    self.nodes.append(then)
        self.sum = _sum_after(graph, following, self.result)

    @property
    def norm(self) -> Node | None:
        """The batch norm."""
        return next((node for node in self.nodes if node.op_type == "BatchNormalization"), None)

    @property
    def result(self) -> Symbol:
        """The final result."""
        return self.nodes[-1].outputs[0]

    def folded(self) -> tuple[Array, Array]:
        """Return the filters and the bias of a Conv, with the batch norm in them."""
        node = self.nodes[0]
        weight = present(weight_of(node.inputs[1]))
        filters, each = weight.array().astype(np.float64), 1
        if node.op_type == "ConvTranspose":
            filters, each = as_filters(node, filters), phases(node)
        bias = weight_of(node.inputs[2]) if len(node.inputs) > 2 else None
        added = np.zeros(len(filters)) if bias is None else bias.array().astype(np.float64).repeat(each)
        if self.norm is not None:
            arrays = [present(constant_array(s, weights=True)) for s in self.norm.inputs[1:5]]
            scale, shift, mean, variance = (array.astype(np.float64).repeat(each) for array in arrays)
            factor = scale / np.sqrt(variance + self.norm.attributes.get("epsilon", 1e-5))
            filters = filters * factor.reshape(-1, *[1] * (filters.ndim - 1))
            added = (added - mean) * factor + shift
        return filters.astype(np.float32), added.astype(np.float32)


def _sum_after(graph: Graph, following: dict[int, Node], result: Symbol) -> list[Node]:
    """Return the Add that alone reads a result, and the Relu after it; no nodes if no convolution reads the end."""
    add = following.get(result.id)
    if add is None or add.op_type != "Add" or add.domain:
        return []
    if any(s is None or s.type is not result.type or isinstance(s.producer, Constant) for s in add.inputs):
        return []
    relu = following.get(add.outputs[0].id)
    nodes = [add] if relu is None or relu.op_type != "Relu" or relu.domain else [add, relu]
    end = nodes[-1].outputs[0]
    return nodes if any(n.op_type in OPERATORS and n.inputs[0] is end for n in graph.nodes) else []


def _is_known(node: Node) -> bool:
    is_constant = all(constant_array(s, weights=True) is not None for s in node.inputs[1:5])
    return is_constant and not node.attributes.get("training_mode", 0) and len(node.outputs) == 1


def measured(graph: Graph) -> list[Symbol]:
    """Return the Symbols whose ranges convolutions need."""
    symbols: list[Symbol] = []
    for node in graph.nodes:
        if node.op_type in OPERATORS and not node.domain and node.inputs[0] is not None and is_float32(node.inputs[0]):
            chain = Chain(graph, node)
            symbols += [node.inputs[0], node.outputs[0], chain.result]
            if chain.sum:
                symbols += [*map(present, chain.sum[0].inputs), chain.sum[-1].outputs[0]]
    return symbols


def replacements(graph: Graph, node: Node, choices: Choices, ranges: Ranges | None) -> Outcome:
    """Return the replacements of a chain's nodes by id, the bytes of the filters, and their error."""
    reason = _misfit(node, choices, ranges)
    if reason or ranges is None:
        return reason
    chain = Chain(graph, node)
    filters, bias = chain.folded()
    quantized = encode(filters, "int8", axis=0, reduce_range=choices.reduce_range)
    whole = length(filters)
    error = length(quantized.dequantize() - filters) / whole if whole else 0.0

    def make(building: Building, inputs: Inputs) -> Sequence[Symbol]:
        return [_quantized_convolution(building, inputs, chain, quantized, bias, ranges)]

    def make_sum(building: Building, inputs: Inputs) -> Sequence[Symbol]:
        add, end = chain.sum[0], chain.sum[-1]
        steps = [scale_of(ranges[id(old)]) for old in add.inputs]
        operands = tuple([_rounded(building, present(x), step) for x, step in zip(inputs, steps, strict=True)])
        total = building.graph.build.emit("Add", operands, add.outputs[0].type)
        return [_rounded(building, total, scale_of(ranges[id(end.outputs[0])]))]

    replacements = {id(node): NodeReplacement(make, (1, 2))}
    sums = chain.sum
    if sums and all(id(s) in ranges for s in (*sums[0].inputs, sums[-1].outputs[0])):
        replacements[id(sums[0])] = NodeReplacement(make_sum, ())
    else:
        sums = []
    for other in (*chain.nodes[1:], *sums[1:]):
        skipped = tuple(range(1, len(other.inputs)))
        replacements[id(other)] = NodeReplacement(lambda building, inputs: [present(inputs[0])], skipped)
    return replacements, quantized.nbytes, error


def _quantized_convolution(
    building: Building, inputs: Inputs, chain: Chain, quantized: QuantizedTensor, bias: Array, ranges: Ranges
) -> Symbol:
    build, node = building.graph.build, chain.nodes[0]
    x, old = present(inputs[0]), node.inputs[0]
    root = present(weight_of(node.inputs[1])).root
    entering, leaving = scale_of(ranges[id(old)]), scale_of(ranges[id(chain.result)])
    assert quantized.scales is not None
    stem = f"{root.name}.int8"
    scales = building.constant(quantized.scales, f"{stem}.scale", root)
    numbers = building.constant(quantized.data, stem, root)
    filters = build.emit("DequantizeLinear", (numbers, scales), tensor_type(DType.float32, numbers.shape), {"axis": 0})
    steps = (quantized.scales.astype(np.float32) * entering[0]).astype(np.float32)
    whole = np.clip(np.rint(bias.astype(np.float64) / steps), -(2**31), 2**31 - 1).astype(np.int32)
    added = build.emit(
        "DequantizeLinear",
        tuple(building.constant(a, f"{stem}.{name}", root) for a, name in ((whole, "bias"), (steps, "bias.scale"))),
        tensor_type(DType.float32, scales.shape),
        {"axis": 0},
    )
    operands = (_rounded(building, x, entering), filters, added)
    if node.op_type == "Conv":
        return _rounded(building, build.emit("Conv", operands, node.outputs[0].type, node.attributes), leaving)
    attributes = {"pads": pads(node), "kernel_shape": list(quantized.shape[2:])}
    channels = Dim(int(_weight_shape(node)[1]) * phases(node))
    shape = _shape([x.shape[0], channels, *tuple(x.shape)[2:]])
    result = build.emit("Conv", operands, tensor_type(DType.float32, shape), attributes)
    placed = side_by_side(_in_bytes(building, result, leaving), node)
    return build.emit("DequantizeLinear", (placed, *_constants(building, leaving)), node.outputs[0].type)


def _rounded(building: Building, x: Symbol, step: Step) -> Symbol:
    """Quantise x to bytes and dequantise it; return x if it already is, with the same step."""
    build = building.graph.build
    producer = node_of(x, "DequantizeLinear")
    if producer is not None and len(producer.inputs) > 2:
        scale, zero = (constant_array(s) for s in producer.inputs[1:3])
        if scale is not None and zero is not None and scale.ndim == 0:
            if (float(scale), int(zero)) == (float(step[0]), int(step[1])):
                return x
    key = "rounded", id(x), float(step[0]), int(step[1])
    if key not in building.cached:
        numbers = _in_bytes(building, x, step)
        building.cached[key] = build.emit("DequantizeLinear", (numbers, *_constants(building, step)), x.type)
    dequantized: Symbol = building.cached[key]
    return dequantized


def _in_bytes(building: Building, x: Symbol, step: Step) -> Symbol:
    type_ = tensor_type(DType.uint8, x.shape)
    return building.graph.build.emit("QuantizeLinear", (x, *_constants(building, step)), type_)


def _constants(building: Building, step: Step) -> tuple[Symbol, Symbol]:
    build = building.graph.build
    return build.scalar(float(step[0]), DType.float32), build.scalar(int(step[1]), DType.uint8)


# Transposed convolutions as convolutions, for which onnxruntime has a kernel of bytes.
#
# With a stride s each result lies at one of s phases between two numbers of x. The results of a phase are a convolution
# of x with every s-th number of the filters. One convolution computes all phases as channels, and DepthToSpace puts
# them side by side ("sub-pixel convolution", Shi et al. 2016, https://arxiv.org/abs/1609.05158).

_EVERY = slice(None)

LEAST = 64
"""Bytes are faster from this many products a result on: channels of x, times numbers of a filter in a phase."""


def transposed_misfit(node: Node) -> str:
    """Return why a ConvTranspose is not a convolution with phases as channels, or ""."""
    attributes, sizes, x = node.attributes, _sizes(node), node.inputs[0]
    if x is None or not x.shape.is_ranked:
        return "the number of dims of its input is unknown"
    if len(sizes) > 2:
        return f"it has {len(sizes)} spatial axes; transposed convolutions with 1 or 2 are quantised"
    if attributes.get("group", 1) != 1:
        return f"it has group={attributes['group']}; transposed convolutions without groups are quantised"
    if attributes.get("auto_pad", "NOTSET") != "NOTSET" or attributes.get("output_shape"):
        return "it has auto_pad or output_shape; transposed convolutions with pads are quantised"
    if len({*_strides(node)}) > 1 or any(step != 1 for step in attributes.get("dilations", ())):
        return "it has dilations, or strides that differ; transposed convolutions without them are quantised"
    ends = _pads(node)[len(sizes) :]
    more = attributes.get("output_padding", [0] * len(sizes))
    for size, stride, begin, end, rest in zip(sizes, _strides(node), _pads(node), ends, more, strict=False):
        if size - begin - end + rest != stride:
            return f"its output is not {stride} times as long as its input, as the stride is: its pads do not fit"
    return ""


def phases(node: Node) -> int:
    """Return the number of the convolution's channels for each channel of the result."""
    return math.prod(_strides(node))


def as_filters(node: Node, filters: Array) -> Array:
    """Return the filters of the convolution, [channels * phases, of x, ...], of those of a ConvTranspose."""
    spans, stride = _spans(node), _strides(node)[0]
    lengths = [last - first + 1 for first, last in spans]
    rank = len(spans)
    spread = np.zeros((filters.shape[1], *[stride] * rank, filters.shape[0], *lengths), filters.dtype)
    for phase in itertools.product(range(stride), repeat=rank):
        for place in itertools.product(*map(range, lengths)):
            # x[q + j] meets the filter at phase + pad - j * stride in the result at q * stride + phase.
            at = [
                own + pad - (where + first) * stride
                for own, pad, where, (first, _) in zip(phase, _pads(node), place, spans, strict=False)
            ]
            if all(0 <= k < size for k, size in zip(at, _sizes(node), strict=True)):
                target: Any = (_EVERY, *phase, _EVERY, *place)
                source: Any = (_EVERY, _EVERY, *at)
                spread[target] = filters[source].T
    return spread.reshape(-1, filters.shape[0], *lengths)


def pads(node: Node) -> list[int]:
    """Return the padding of the convolution."""
    spans = _spans(node)
    return [-first for first, _ in spans] + [last for _, last in spans]


def side_by_side(numbers: Symbol, node: Node) -> Symbol:
    """Return bytes of all phases in the places of the result."""
    stride, channels, shape = _strides(node)[0], int(_weight_shape(node)[1]), node.outputs[0].shape
    if stride == 1:
        return numbers
    if len(_sizes(node)) == 2:
        return e.emit("DepthToSpace", numbers, shape=shape, blocksize=stride, mode="CRD")
    first, _, length = numbers.shape
    count = e.emit("Shape", numbers, start=2, end=3)
    apart = e.emit("Concat", e.ints(numbers, [0, channels, stride]), count, axis=0)
    together = e.emit("Concat", e.ints(numbers, [0, channels]), e.mul(count, stride), axis=0)
    result = e.emit("Reshape", numbers, apart, shape=_shape([first, Dim(channels), Dim(stride), length]))
    return e.emit("Reshape", e.transpose(result, [0, 1, 3, 2]), together, shape=shape)


def _weight_shape(node: Node) -> tuple[int, ...]:
    weight = present(node.inputs[1])
    return tuple(weight.shape.static_dims)


def _sizes(node: Node) -> tuple[int, ...]:
    return _weight_shape(node)[2:]


def _strides(node: Node) -> list[int]:
    return list(node.attributes.get("strides", [1] * len(_sizes(node))))


def _pads(node: Node) -> list[int]:
    return list(node.attributes.get("pads", [0] * 2 * len(_sizes(node))))


def _spans(node: Node) -> list[tuple[int, int]]:
    """Return the first and the last place of x, beside its own, that a result depends on, for each axis."""
    spans = zip(_sizes(node), _pads(node), _strides(node), strict=False)
    return [(-((size - 1 - pad) // stride), (stride - 1 + pad) // stride) for size, pad, stride in spans]
