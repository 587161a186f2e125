"""LSTM, GRU and RNN with weights of int8: LSTM by onnxruntime's kernel DynamicQuantizeLSTM, the others by `steps`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import GraphcoreError
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Inputs
from graphcore.operators import Trait, having
from graphcore.quantization import QuantizedTensor
from graphcore.runtime.quantizer.layers import steps
from graphcore.runtime.quantizer.layers.replacing import Building, Replacement, length
from graphcore.runtime.quantizer.weights import Choices, Weight, weight_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape, tensor_type

OPERATORS = having(Trait.RECURRENT)
WEIGHTS = (1, 2)
"""The operands W, of what comes in, and R, of what went out: [directions, gates * hidden, inputs] and [..., hidden]."""

_KERNEL = "DynamicQuantizeLSTM"


def misfit(node: Node, choices: Choices) -> str:
    """Return why an LSTM, GRU or RNN cannot be quantised, or ""."""
    scheme, kernel = choices.scheme, f"the {'kernel' if node.op_type == 'LSTM' else 'form'} of {node.op_type}"
    if not scheme.is_dynamic or scheme.encoding != "int8" or scheme.digits != 1:
        return f"{kernel} is that of int8_dynamic, not of {scheme.name}"
    if not choices.symmetric:
        return f"{kernel} has weights without zero points here: leave out symmetric"
    if node.attributes.get("layout", 0):
        return f"{kernel} takes sequences first: layout=1"
    x = node.inputs[0]
    if x is None or not isinstance(x.type, TensorType) or x.dtype is not DType.float32:
        return f"{kernel} is one of float32"
    if any(weight_of(node.inputs[position]) is None for position in WEIGHTS):
        return "W or R is not constant: graph.optimize() first makes constants of what is computed from constants"
    if is_small(node):
        return f"a step of bytes pays from {steps.LEAST[node.op_type]} numbers of W and R on, times the rows of a batch"
    return "" if node.op_type == "LSTM" else steps.misfit(node)


def is_small(node: Node) -> bool:
    """Return whether a layer is faster in floats."""
    return node.op_type != "LSTM" and steps.is_small(node)


def replacement(node: Node, choices: Choices) -> tuple[Replacement, int, float]:
    """Return what stands for a layer, the bytes of its weights and how far they are off, relative to their length.

    Raises what `encode` does for weights that it does not take.
    """
    weights = [weight for position in WEIGHTS if (weight := weight_of(node.inputs[position])) is not None]
    arrays = [weight.array() for weight in weights]
    if node.op_type != "LSTM":
        return _by_steps(node, arrays, choices)
    # As the kernel reads them, [directions, inputs, 4 * hidden], with a scale for each output or each direction.
    encoded = [[choices.encoded(own) for own in array] for array in arrays]
    off = sum(
        length(tensor.dequantize() - own.astype(np.float32)) ** 2
        for array, tensors in zip(arrays, encoded, strict=True)
        for own, tensor in zip(array, tensors, strict=True)
    )
    whole = sum(length(array) ** 2 for array in arrays)
    size = sum(tensor.nbytes for tensors in encoded for tensor in tensors)

    def make(building: Building, inputs: Inputs) -> Sequence[Symbol]:
        return _made(building, inputs, node, weights, encoded)

    return Replacement(make, WEIGHTS), size, float(np.sqrt(off / whole)) if whole else 0.0


def _by_steps(node: Node, arrays: Sequence[Array], choices: Choices) -> tuple[Replacement, int, float]:
    ways = steps.directions(node, arrays, choices)
    held = [[way.weight for way in ways], [part for way in ways for part in way.around]]
    off = sum(
        length(np.concatenate([tensor.dequantize() for tensor in tensors]) - np.concatenate(array)) ** 2
        for array, tensors in zip(arrays, held, strict=True)
    )
    whole = sum(length(array) ** 2 for array in arrays)
    size = sum(tensor.nbytes for tensors in held for tensor in tensors)
    skipped = (*WEIGHTS, 3)
    form = Replacement(lambda building, inputs: steps.made(inputs, node, ways), skipped)
    return form, size, float(np.sqrt(off / whole)) if whole else 0.0


def _made(
    building: Building,
    inputs: Inputs,
    node: Node,
    weights: Sequence[Weight],
    encoded: Sequence[Sequence[QuantizedTensor]],
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
    made = build.emit_many(_KERNEL, operands, [s.type for s in node.outputs], attributes, "com.microsoft")
    return _guarded(building, x, first, made)


def _guarded(building: Building, x: Symbol, first: Symbol | None, made: Sequence[Symbol]) -> Sequence[Symbol]:
    """Add NaN to the results of a sequence that has NaN or infinity in it, of which quantised x knows nothing."""
    build = building.graph.build
    guard = _zeros(building, x, first)
    return [build.emit("Add", (symbol, guard), symbol.type) for symbol in made]


def _zeros(building: Building, x: Symbol, first: Symbol | None) -> Symbol:
    """Return 0 for each sequence of a batch, float32[batch, 1]; NaN where it has one, or infinity."""
    build = building.graph.build
    total: Symbol | None = None
    for symbol in (x, first):
        if symbol is None or not isinstance(symbol.type, TensorType):
            continue
        zero = build.emit("Mul", (symbol, build.scalar(0.0, DType.float32)), symbol.type)
        batch = tensor_type(DType.float32, _shape([symbol.shape[1] if symbol.shape.is_ranked else Dim.dynamic()]))
        summed = build.emit("ReduceSum", (zero, build.vector([0, 2])), batch, {"keepdims": 0})
        total = summed if total is None else build.emit("Add", (total, summed), batch)
    assert total is not None
    column = tensor_type(DType.float32, total.shape + _shape([Dim(1)]))
    return build.emit("Unsqueeze", (total, build.vector([1])), column)


def tried(node: Node, choices: Choices) -> tuple[Replacement, int, float] | str:
    """Return what stands for a layer, with its bytes and its error; a reason where there is nothing."""
    try:
        return replacement(node, choices)
    except GraphcoreError as error:
        return error.summary.partition(": ")[2] or error.summary
