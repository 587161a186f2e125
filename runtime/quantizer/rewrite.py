"""The new graph: products with encoded weights in place of those with floats."""

from __future__ import annotations

from functools import partial

import numpy as np

from graphcore import ops
from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Constant, Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.ir.transform.rewrite import Inputs, Results
from graphcore.ir.transform.walk import walk
from graphcore.quantization import Quantized
from graphcore.quantization.tensors import packed
from graphcore.runtime.quantizer.layers.replacing import Building, Replacement, replaced
from graphcore.runtime.quantizer.plan import Candidate, Encoded, Plan, keeps
from graphcore.runtime.quantizer.weights import Choices
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type


def rewritten(graph: Graph, plan: Plan) -> Graph:
    """Return a graph like `graph` whose chosen nodes read encoded weights."""
    if not plan.chosen:
        return copied(graph)
    found: dict[int, Replacement] = {}
    for node in walk(graph):
        if id(node) in plan.chosen:
            candidate, encoded = plan.chosen[id(node)]
            found[id(node)] = Replacement(partial(_made, candidate, encoded), (candidate.position,))
        elif not keeps(node, plan):
            nothing: Results = [None] * len(node.outputs)
            found[id(node)] = Replacement(lambda *_, nothing=nothing: nothing, tuple(range(len(node.inputs))))
    return replaced(graph, found, {id(encoded.root) for _, encoded in plan.chosen.values()})


def _made(candidate: Candidate, encoded: Encoded, building: Building, inputs: Inputs) -> tuple[Symbol]:
    """Return a product with an encoded weight, or rows of an encoded table."""
    held = building.kept.get(encoded.key)
    if held is None:
        held = building.kept[encoded.key] = _constants(encoded, building)
    form = _looked_up if candidate.is_table else _multiplied
    made = form(building.graph, candidate, inputs, held, encoded.choices)
    return (change(made, type=candidate.node.outputs[0].type),)


def _constants(encoded: Encoded, building: Building) -> Quantized:
    tensor, root = encoded.tensor, encoded.root
    values = building.constant(tensor.data, f"{root.name}.{tensor.encoding.lower()}", root)
    parts = {"scale": tensor.scales, "zero_point": tensor.zero_points}
    scale, zero = [
        None if array is None else building.constant(array, f"{values.name}.{part}", root)
        for part, array in parts.items()
    ]
    return Quantized(tensor.encoding.lower(), values, scale, zero, tensor.axis, tensor.block_size)


def _multiplied(
    graph: Graph, candidate: Candidate, inputs: tuple[Symbol | None, ...], held: Quantized, choices: Choices
) -> Symbol:
    """Return MatMul or Gemm with an encoded weight."""
    node = candidate.node
    x, *_ = inputs
    assert x is not None
    if node.op_type == "Gemm" and node.attributes.get("transA", 0):
        x = graph.build.emit("Transpose", (x,), tensor_type(x.dtype, x.shape[::-1]), {"perm": [1, 0]})
    scheme, level = choices.scheme, choices.accuracy_level
    made = ops.qmatmul(held.encoding, x, held, dynamic=scheme.is_dynamic, digits=scheme.digits, accuracy_level=level)
    bias = inputs[2] if node.op_type == "Gemm" and len(inputs) > 2 else None
    beta = float(node.attributes.get("beta", 1.0))
    if bias is None:
        return made
    if beta != 1:
        bias = graph.build.emit("Mul", (bias, graph.build.scalar(beta, bias.dtype)), bias.type)
    return graph.build.emit("Add", (made, bias), made.type)


def _looked_up(
    graph: Graph, candidate: Candidate, inputs: tuple[Symbol | None, ...], held: Quantized, choices: Choices
) -> Symbol:
    """Return rows of a table as floats."""
    ids = inputs[1]
    result = candidate.node.outputs[0].type
    assert ids is not None
    assert held.scale is not None
    if held.encoding == "int4":
        return graph.build.cast(_looked_up_in_blocks(graph, ids, held, result.shape), result.dtype)
    numbers = graph.build.emit("Gather", (held.values, ids), tensor_type(DType.int8, result.shape), {"axis": 0})
    scale = graph.build.emit("Gather", (held.scale, ids), tensor_type(DType.float32, ids.shape), {"axis": 0})
    column = tensor_type(DType.float32, ids.shape + _shape([Dim(1)]))
    scale = graph.build.emit("Unsqueeze", (scale, graph.build.vector([-1])), column)
    wide = graph.build.cast(numbers, DType.float32)
    made = graph.build.emit("Mul", (wide, scale), tensor_type(DType.float32, result.shape))
    return graph.build.cast(made, result.dtype)


def _looked_up_in_blocks(graph: Graph, ids: Symbol, held: Quantized, shape: Shape) -> Symbol:
    """Return rows of a table of 4 bits."""
    rows = int(held.values.shape[0])
    # The kernel gives zeros for what is no row; a Gather fails, as that of the floats did.
    every = graph.build.constant(np.arange(rows, dtype=np.int32), DType.int32)
    ids = graph.build.emit("Gather", (every, ids), tensor_type(DType.int32, ids.shape), {"axis": 0})
    operands = [held.values, ids, held.scale]
    if held.zero_point is not None:
        assert isinstance(held.zero_point.producer, Constant)
        points = held.zero_point.producer.array
        even = packed(np.pad(points, ((0, 0), (0, points.shape[1] % 2))))
        operands.append(graph.build.constant(even, DType.uint8))
    given = {"bits": 4, "block_size": held.block_size, "gather_axis": 0, "quantize_axis": 1}
    type_ = tensor_type(DType.float32, shape)
    return graph.build.emit("GatherBlockQuantized", tuple(operands), type_, given, "com.microsoft")
