"""Constant folding, by `graphcore.arrays.evaluate`."""

from __future__ import annotations

import math

import numpy as np

from graphcore.arrays.evaluate import FOLDED, folded, folded_shape
from graphcore.arrays.evaluate_indexing import INDEXING, made_of
from graphcore.ir.symbol import Node, Symbol
from graphcore.passes.sweep import Inputs, Rule, Sweep
from graphcore.types.dtypes import DType, is_carried
from graphcore.types.tensor_types import TensorType


def _folded(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return the result as a constant; None where operands are no constants, the bits are not certain, or too many."""
    type_ = node.outputs[0].type
    if not isinstance(type_, TensorType) or not type_.shape.is_static or is_carried(type_.dtype):
        return None
    arrays, dtypes = [], []
    for symbol in inputs:
        array = sweep.known(symbol)
        if symbol is not None and (array is None or is_carried(symbol.dtype)):
            return None
        arrays.append(array)
        dtypes.append(None if symbol is None else symbol.dtype)
    made = folded(node.op_type, arrays, dtypes, node.attributes, type_, sweep.room(node, _size(type_)))
    return None if made is None else sweep.constant(node, made, type_)


def _made(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return what makes, gathers or scatters constants as a constant."""
    type_ = node.outputs[0].type
    if not isinstance(type_, TensorType) or type_.dtype is DType.string or type_.dtype.storage is not type_.dtype:
        return None
    arrays = [sweep.known(symbol) for symbol in inputs]
    if any(a is None and s is not None for a, s in zip(arrays, inputs, strict=True)):
        return None
    dtypes = [None if symbol is None else symbol.dtype for symbol in inputs]
    if not type_.shape.is_static:
        return None
    made = made_of(node.op_type, arrays, dtypes, node.attributes, type_, sweep.room(node, _size(type_)))
    return None if made is None else sweep.constant(node, made, type_)


def _size(type_: TensorType) -> int:
    return math.prod(type_.shape.static_dims) * type_.dtype.numpy.itemsize


def _shape(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    (operand,) = inputs
    if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_static:
        return None
    type_ = node.outputs[0].type
    assert isinstance(type_, TensorType)
    return sweep.constant(node, folded_shape(operand.shape, node.attributes), type_)


def _dims(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Fold Gather and Slice of a Shape to static dims, where other dims of it are dynamic."""
    shape = inputs[0]
    producer = None if shape is None else shape.producer
    if not isinstance(producer, Node) or producer.domain or producer.op_type != "Shape":
        return None
    operand, type_ = producer.inputs[0], node.outputs[0].type
    if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_ranked:
        return None
    dims = [*operand.shape][producer.attributes.get("start", 0) : producer.attributes.get("end")]
    chosen = [sweep.known(s) for s in inputs[1:]]
    if any(a is None for a in chosen) or not isinstance(type_, TensorType) or not type_.shape.is_static:
        return None
    # The places of the dims that are taken, found as the operator finds the dims.
    arrays, dtypes = [np.arange(len(dims)), *chosen], [s.dtype for s in inputs if s is not None]
    places = folded(node.op_type, arrays, [*dtypes], node.attributes, type_, sweep.selection.limit)
    if places is None or not all(dims[i].is_static for i in places.flat):
        return None
    return sweep.constant(node, np.array([int(dims[i]) for i in places.flat], np.int64).reshape(places.shape), type_)


FOLDS: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(sorted(FOLDED), (_folded,)),
    **dict.fromkeys(sorted(INDEXING), (_made,)),
    "Shape": (_shape,),
    "Gather": (_folded, _dims),
    "Slice": (_folded, _dims),
}
