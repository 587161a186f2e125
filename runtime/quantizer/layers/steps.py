"""GRU and RNN with weights of int8: one product for the inputs of all steps, and a Scan over the steps.

onnxruntime has no quantised kernel of theirs. A step of the Scan is a product of bytes with what went out before, and
the few operators of the cell, each of which costs a microsecond: it pays where a step multiplies much.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Inputs
from graphcore.ir.transform.walk import constant_array
from graphcore.quantization import QuantizedTensor
from graphcore.runtime.quantizer.weights import Choices
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

GATES = {"GRU": 3, "RNN": 1}
"""The operators, and how many products of a width of the state each step has. GRU's are z, r and n."""

LEAST = {"GRU": 500_000, "RNN": 180_000}
"""The numbers of W and R of a direction, times the rows of a batch if those are known, from which on bytes pay."""

ACTIVATIONS = {"GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}


def misfit(node: Node) -> str:
    """Return why a GRU or RNN stays as it is, or ""."""
    op_type, given = node.op_type, node.attributes
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        return f"the form of {op_type} goes through all steps, and lengths of sequences are an operand"
    named = [str(name).lower() for name in given.get("activations", ())]
    if any(name != usual for name, usual in zip(named, itertools.cycle(ACTIVATIONS[op_type]), strict=False)):
        return f"the form of {op_type} has the usual activations, not {', '.join(given['activations'])}"
    if given.get("clip", 0):
        return f"the form of {op_type} clips nothing"
    if len(node.inputs) > 3 and node.inputs[3] is not None and constant_array(node.inputs[3], weights=True) is None:
        return "its bias is not constant"
    if node.inputs[0] is None or not node.inputs[0].shape.is_ranked:
        return "the rank of what comes in is not known"
    return ""


def is_small(node: Node) -> bool:
    """Return whether the steps of a GRU or RNN multiply so little that onnxruntime's kernel of floats is faster."""
    x, *weights = node.inputs[:3]
    if x is None or not x.shape.is_ranked:
        return False
    rows = int(x.shape[1]) if x.shape[1].is_static else 1
    count = sum(math.prod(s.shape.static_dims[1:]) for s in weights if s is not None)
    return count * rows < LEAST[node.op_type]


@dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """One direction of a layer, encoded. around: R, or its gates z and r and its n, which multiply different states.

    bias: what is added to the product with W. state_bias: to that with R, or None.
    """

    weight: QuantizedTensor
    around: tuple[QuantizedTensor, ...]
    bias: Array | None
    state_bias: Array | None


def directions(node: Node, weights: Sequence[Array], choices: Choices) -> list[Direction]:
    """Return the directions of a GRU or RNN with weights W and R. Raises what `encode` does."""
    count, hidden = GATES[node.op_type], int(weights[1].shape[-1])
    given = constant_array(node.inputs[3], weights=True) if len(node.inputs) > 3 else None
    resets_last = bool(node.attributes.get("linear_before_reset", 0))
    made = []
    for number, (weight, around) in enumerate(zip(*weights, strict=True)):
        parts = (around,) if count == 1 or resets_last else (around[: 2 * hidden], around[2 * hidden :])
        bias = state_bias = None
        if given is not None:
            bias, state_bias = given[number].reshape(2, -1).astype(np.float32)
            if count == 1 or not resets_last:
                bias, state_bias = bias + state_bias, None
        held = tuple(choices.encoded(np.ascontiguousarray(part)) for part in parts)
        made.append(Direction(choices.encoded(weight), held, bias, state_bias))
    return made


def made(inputs: Inputs, node: Node, ways: Sequence[Direction]) -> Sequence[Symbol]:
    """Return what stands for Y and Y_h."""
    x, first = inputs[0], inputs[5] if len(inputs) > 5 else None
    assert x is not None
    hidden = ways[0].around[0].shape[-1]
    rows, states = [], []
    for number, way in enumerate(ways):
        mine = _product(x, way.weight, way.bias)
        step = functools.partial(_stepped, node, way, hidden)
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
    batch, build = x.shape[1], x.graph.build
    type_ = tensor_type(DType.float32, _shape([batch, Dim(hidden)]))
    if first is not None:
        return build.emit("Gather", (first, build.scalar(number, DType.int64)), type_, {"axis": 0})
    rows = build.emit("Shape", (x,), tensor_type(DType.int64, _shape([Dim(1)])), {"start": 1, "end": 2})
    both = (rows, build.vector([hidden]))
    size = build.emit("Concat", both, tensor_type(DType.int64, _shape([Dim(2)])), {"axis": 0})
    return build.emit("Expand", (build.scalar(0.0, DType.float32), size), type_)


def _stepped(node: Node, way: Direction, hidden: int, h: Symbol, mine: Symbol) -> tuple[Symbol, Symbol]:
    """Return the state after a step, twice. mine: the product of what comes in with W, and its bias."""
    around, widths = way.around, [2 * hidden, hidden]
    if node.op_type == "RNN":
        after = ops.tanh(mine + _product(h, around[0], None))
        return after, after
    gates, new = ops.split(mine, widths, 1)
    own, kept = _product(h, around[0], way.state_bias), None
    if len(around) == 1:
        own, kept = ops.split(own, widths, 1)
    z, r = ops.split(ops.sigmoid(gates + own), [hidden, hidden], 1)
    fresh = ops.tanh(new + (r * kept if kept is not None else _product(r * h, around[1], None)))
    after = fresh + z * (h - fresh)
    return after, after


def _product(x: Symbol, weight: QuantizedTensor, bias: Array | None) -> Symbol:
    product = ops.qmatmul("int8", x, weight, dynamic=True)
    return product if bias is None else product + bias
