"""A graph of float16 or bfloat16 in float32, for a runtime that picks the precision of all floats at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Constant, Symbol
from graphcore.ir.transform.rewrite import Rewrite
from graphcore.ir.transform.walk import bodies
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

HALVES = frozenset({DType.float16, DType.bfloat16})


def narrowest(graph: Graph) -> DType | None:
    """Return the narrow float that a graph computes in: float16 where it has both; None where it has neither."""
    found = {s.type.dtype for s in graph.symbols if isinstance(s.type, TensorType)} & HALVES
    return DType.float16 if DType.float16 in found else next(iter(found), None)


def can_widen(graph: Graph) -> bool:
    """Return whether the graph has no bodies, and takes and gives no bfloat16, which NumPy and so most runtimes
    lack."""
    ends = [s.type for s in (*graph.input_symbols, *graph.outputs)]
    return not any(isinstance(t, TensorType) and t.dtype is DType.bfloat16 for t in ends) and not any(
        bodies(node) for node in graph.nodes
    )


def widened(graph: Graph) -> Graph:
    """Return a graph that computes in float32 what this one does in narrower floats, with the same inputs and outputs.

    Weights are widened once, into arrays of their own; casts to narrower floats round nothing.
    """
    rewrite = Rewrite(graph, _wide)
    new = rewrite.new
    new.build.promotion(graph.promotion)
    for symbol, fed in zip(graph.input_symbols, new.input_symbols, strict=True):
        if _is_half(symbol.type):
            change(fed, type=symbol.type)
            rewrite.bind(symbol, new.build.cast(fed, DType.float32))
    for symbol in graph.symbols:
        producer = symbol.producer
        if isinstance(producer, Constant) and symbol.dtype in HALVES:
            array = producer.array.astype(np.float32)
            held = Constant(array, producer.is_weight, producer.origin)
            rewrite.bind(symbol, new.build.symbol(_wide(symbol.type), held, symbol.given_name))
    given = {s.id for s in graph.outputs if _is_half(s.type)}  # whose names the casts after them have
    for node, inputs in rewrite.nodes():
        types = [_wide(s.type) for s in node.outputs]
        (first, *_) = inputs or (None,)
        if node.op_type == "Cast" and not node.domain and first is not None and first.type == types[0]:
            made: tuple[Symbol, ...] = (first,)
        else:
            attributes = {key: _held(value) for key, value in node.attributes.items()}
            made = new.build.emit_many(node.op_type, inputs, types, attributes, node.domain)
        if not any(s.id in given for s in node.outputs):
            rewrite.replace(node, made)
            continue
        for symbol, wide in zip(node.outputs, made, strict=True):
            rewrite.bind(symbol, wide)
    outputs: list[tuple[str | None, Symbol]] = []
    for label, symbol in graph.named_outputs:
        value = rewrite.of(symbol)
        if _is_half(symbol.type):
            value = new.build.cast(value, symbol.dtype)
        outputs.append((label or symbol.name, value))
    new.build.outputs(outputs)
    return new


def _is_half(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.dtype in HALVES


def _wide(type_: Type) -> Type:
    return type_.cast(DType.float32) if isinstance(type_, TensorType) and type_.dtype in HALVES else type_


def _held(value: Any) -> Any:
    if isinstance(value, DType):
        return DType.float32 if value in HALVES else value
    if isinstance(value, np.ndarray) and DType.of(value.dtype) in HALVES:
        return value.astype(np.float32)
    return value
