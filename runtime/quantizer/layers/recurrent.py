"""LSTM, GRU and RNN with int8 weights: an LSTM as onnxruntime's DynamicQuantizeLSTM, the others as steps of a Scan."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.build import primitives as e
from graphcore.errors import GraphcoreError
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs
from graphcore.ir.transform.walk import constant_array
from graphcore.operators import Trait, having
from graphcore.quantization import QuantizedTensor
from graphcore.runtime.quantizer.layers.replacing import Building, NodeReplacement, Outcome, is_float32, length
from graphcore.runtime.quantizer.plan import reason_of
from graphcore.runtime.quantizer.weights import Choices, TransformedWeight, weight_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape

OPERATORS = having(Trait.RECURRENT)
WEIGHTS = (1, 2)
"""The operands W, for the input, and R, for the previous state: [directions, gates * hidden, inputs] and [...,
hidden]."""

_KERNEL = "DynamicQuantizeLSTM"


def _misfit(node: Node, choices: Choices) -> str:
    """Return why an LSTM, GRU or RNN cannot be quantised, or ""."""
    scheme, op_type = choices.scheme, node.op_type
    if not scheme.is_dynamic or scheme.encoding != "int8" or scheme.digits != 1:
        return f"{scheme.name} does not quantise {op_type}: int8_dynamic does"
    if not choices.symmetric:
        return f"{op_type} is quantised with the default symmetric=True only"
    if node.attributes.get("layout", 0):
        return f"it has layout=1; {op_type} is quantised with layout=0 only"
    if not is_float32(node.inputs[0]):
        return f"its input is not float32; {op_type} is quantised in float32 only"
    if any(weight_of(node.inputs[position]) is None for position in WEIGHTS):
        return (
            "its weight W or R is computed: call graph.optimize() first, which computes what depends on constants alone"
        )
    if is_small(node):
        return f"int8 would be slower: elements of W and R times rows of the batch are fewer than {LEAST[op_type]}"
    return "" if node.op_type == "LSTM" else steps_misfit(node)


def is_small(node: Node) -> bool:
    """Return True if a layer is faster in floats: the steps of a GRU or RNN multiply so little."""
    x, *weights = node.inputs[:3]
    if node.op_type == "LSTM" or x is None or not x.shape.is_ranked:
        return False
    rows = int(x.shape[1]) if x.shape[1].is_static else 1
    count = sum(math.prod(s.shape.static_dims[1:]) for s in weights if s is not None)
    return count * rows < LEAST[node.op_type]


def replacements(node: Node, choices: Choices) -> Outcome:
    """Return the replacement of a layer by id, the bytes of its weights and their error."""
    if reason := _misfit(node, choices):
        return reason
    weights = [weight for position in WEIGHTS if (weight := weight_of(node.inputs[position])) is not None]
    arrays = [weight.array() for weight in weights]
    try:
        if node.op_type == "LSTM":
            # As the kernel reads them, [directions, inputs, 4 * hidden], with a scale for each output or direction.
            encoded = [[choices.encoded(own) for own in array] for array in arrays]
            form = NodeReplacement(partial(_quantized_layer, node, weights, encoded), WEIGHTS)
        else:
            ways = directions(node, arrays, choices)
            encoded = [[way.weight for way in ways], [part for way in ways for part in way.around]]
            form = NodeReplacement(lambda building, inputs: replace_results(inputs, node, ways), (*WEIGHTS, 3))
    except GraphcoreError as error:
        return reason_of(error)
    decoded = [np.concatenate([tensor.dequantize() for tensor in tensors]) for tensors in encoded]
    off = sum(length(a - np.concatenate(b).astype(np.float32)) ** 2 for a, b in zip(decoded, arrays, strict=True))
    whole = sum(length(array) ** 2 for array in arrays)
    size = sum(tensor.nbytes for tensors in encoded for tensor in tensors)
    return {id(node): form}, size, float(np.sqrt(off / whole)) if whole else 0.0


def _quantized_layer(
    node: Node,
    weights: Sequence[TransformedWeight],
    encoded: Sequence[Sequence[QuantizedTensor]],
    building: Building,
    inputs: Inputs,
) -> Sequence[Symbol]:
    build = building.graph.build
    numbers: list[Symbol] = []
    scales: list[Symbol] = []
    for weight, tensors in zip(weights, encoded, strict=True):
        data = np.stack([np.ascontiguousarray(tensor.data.T) for tensor in tensors])
        scale = np.stack([np.asarray(tensor.scales, np.float32) for tensor in tensors])
        stem = f"{weight.root.name}.int8"
        numbers.append(building.constant(data, stem, weight.root))
        scales.append(building.constant(scale, f"{stem}.scale", weight.root))
        scales.append(building.constant(np.zeros(scale.shape, np.int8), f"{stem}.zero_point", weight.root))
    x, _, _, bias, lengths, first, cell, peepholes = (*inputs, *[None] * 8)[:8]
    assert x is not None
    operands = (x, *numbers, bias, lengths, first, cell, peepholes, *scales)
    attributes = {key: value for key, value in node.attributes.items() if key != "layout"}
    results = build.emit_many(_KERNEL, operands, [s.type for s in node.outputs], attributes, "com.microsoft")
    # NaN for a sequence with NaN or infinity, which quantised x loses.
    zeros = _zeros(x, first)
    return [e.emit("Add", symbol, zeros, shape=symbol.shape) for symbol in results]


def _zeros(x: Symbol, first: Symbol | None) -> Symbol:
    """Return 0 for each sequence of a batch, float32[batch, 1]; NaN for a sequence with NaN or infinity."""
    states = [s for s in (x, first) if s is not None and isinstance(s.type, TensorType)]
    sums = [e.emit("ReduceSum", e.mul(s, 0.0), e.ints(s, [0, 2]), keepdims=0) for s in states]
    return e.emit("Unsqueeze", reduce(partial(e.emit, "Add"), sums), e.ints(x, [1]))


# GRU and RNN with weights of int8: one product for the inputs of all steps, and a Scan over the steps.
#
# onnxruntime has no quantised kernel for them. A step of the Scan is a product of bytes with the previous state and the
# few operators of the cell, each of which costs a microsecond. That is faster where a step multiplies many numbers.

GATES = {"GRU": 3, "RNN": 1}
"""The number of products, each as wide as the state, in a step of each operator. GRU's are z, r and n."""

LEAST = {"GRU": 500_000, "RNN": 180_000}
"""From this many numbers of W and R of a direction on, times the rows of a batch if known, bytes are faster."""

ACTIVATIONS = {"GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}


def steps_misfit(node: Node) -> str:
    """Return why a GRU or RNN is not quantised, or ""."""
    op_type, attributes = node.op_type, node.attributes
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        return f"it has the input sequence_lens; {op_type} is quantised without it only"
    named = [str(name).lower() for name in attributes.get("activations", ())]
    if any(name != usual for name, usual in zip(named, itertools.cycle(ACTIVATIONS[op_type]), strict=False)):
        activations = ", ".join(attributes["activations"])
        return f"it has activations {activations}; {op_type} is quantised with the default ones only"
    if attributes.get("clip", 0):
        return f"it has clip={attributes['clip']:g}; {op_type} is quantised without clip only"
    if len(node.inputs) > 3 and node.inputs[3] is not None and constant_array(node.inputs[3], weights=True) is None:
        return "its bias is computed; only a constant bias is quantised"
    if node.inputs[0] is None or not node.inputs[0].shape.is_ranked:
        return "the number of dims of its input is unknown"
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """One direction of a layer, encoded. around: R, or its parts for z and r, and for n.

    bias: added to the product with W. state_bias: added to the product with R, or None.
    """

    weight: QuantizedTensor
    around: tuple[QuantizedTensor, ...]
    bias: Array | None
    state_bias: Array | None


def directions(node: Node, weights: Sequence[Array], choices: Choices) -> list[Direction]:
    """Return the directions of a GRU or RNN with weights W and R. Raises what `encode` does."""
    count, hidden = GATES[node.op_type], int(weights[1].shape[-1])
    original_bias = constant_array(node.inputs[3], weights=True) if len(node.inputs) > 3 else None
    resets_last = bool(node.attributes.get("linear_before_reset", 0))
    directions = []
    for number, (weight, around) in enumerate(zip(*weights, strict=True)):
        parts = (around,) if count == 1 or resets_last else (around[: 2 * hidden], around[2 * hidden :])
        bias = state_bias = None
        if original_bias is not None:
            bias, state_bias = original_bias[number].reshape(2, -1).astype(np.float32)
            if count == 1 or not resets_last:
                bias, state_bias = bias + state_bias, None
        encoded = tuple(choices.encoded(np.ascontiguousarray(part)) for part in parts)
        directions.append(Direction(choices.encoded(weight), encoded, bias, state_bias))
    return directions


def replace_results(inputs: Inputs, node: Node, ways: Sequence[Direction]) -> Sequence[Symbol]:
    """Return the replacements of Y and Y_h."""
    x, first = present(inputs[0]), inputs[5] if len(inputs) > 5 else None
    hidden = ways[0].around[0].shape[-1]
    rows, states = [], []
    for number, way in enumerate(ways):
        mine = _product(x, way.weight, way.bias)
        step = partial(_stepped, node, way, hidden)
        backward = number == 1 or node.attributes.get("direction", "forward") == "reverse"
        last, every = ops.scan(step, _start(x, first, number, hidden), mine, reverse=backward)
        rows.append(every)
        states.append(last)
    results = (ops.stack(rows, 1), ops.stack(states, 0))
    for symbol, result in zip(node.outputs, results, strict=False):
        change(result, type=symbol.type)
    return results[: len(node.outputs)]


def _start(x: Symbol, first: Symbol | None, number: int, hidden: int) -> Symbol:
    """Return the first state of a direction, float32[batch, hidden]."""
    shape = _shape([x.shape[1], Dim(hidden)])
    if first is not None:
        return e.emit("Gather", first, e.const(first, number, DType.int64), shape=shape, axis=0)
    size = e.emit("Concat", e.emit("Shape", x, start=1, end=2), e.ints(x, [hidden]), axis=0)
    return e.emit("Expand", e.const(x, 0.0), size, shape=shape)


def _stepped(node: Node, way: Direction, hidden: int, h: Symbol, mine: Symbol) -> tuple[Symbol, Symbol]:
    """Return the state after a step, twice. mine: the product of the step's input with W, plus the bias."""
    around, widths = way.around, [2 * hidden, hidden]
    if node.op_type == "RNN":
        after = ops.tanh(mine + _product(h, around[0], None))
        return after, after
    gates, new = ops.split(mine, widths, 1)
    own, rest = _product(h, around[0], way.state_bias), None
    if len(around) == 1:
        own, rest = ops.split(own, widths, 1)
    z, r = ops.split(ops.sigmoid(gates + own), [hidden, hidden], 1)
    fresh = ops.tanh(new + (r * rest if rest is not None else _product(r * h, around[1], None)))
    after = fresh + z * (h - fresh)
    return after, after


def _product(x: Symbol, weight: QuantizedTensor, bias: Array | None) -> Symbol:
    product = ops.qmatmul("int8", x, weight, dynamic=True)
    return product if bias is None else product + bias
