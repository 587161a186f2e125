"""Constant folding, by `graphcore.arrays.evaluate`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.arrays.evaluate import FOLDED, Dtypes, Fold, folded, folded_shape
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Inputs
from graphcore.passes.sweep import Rule, Sweep
from graphcore.types.dtypes import DType, has_storage_axis
from graphcore.types.tensor_types import TensorType

# Operators that make, gather and scatter constants, computed now: beside those of `graphcore.arrays.evaluate`.
#
# Elements are moved as they are, or are integers. Places out of bounds are left to the runtime, which refuses them.

_MOST = 1 << 24
"""Elements that are made at most, for the limit in bytes counts only what is made."""

Given = Mapping[str, Any]


def _filled(arrays: list[Any], dtypes: Dtypes, attributes: Given, type_: TensorType) -> Array | None:
    shape = tuple(int(size) for size in arrays[0])
    value = attributes.get("value")
    if any(size < 0 for size in shape) or math.prod(shape) > _MOST:
        return None
    element = np.zeros(1, type_.dtype.numpy) if value is None else np.asarray(value).reshape(-1)
    return np.full(shape, element[0], element.dtype) if element.dtype == type_.dtype.numpy else None


def _counted(arrays: list[Any], dtypes: Dtypes, attributes: Given, type_: TensorType) -> Array | None:
    if not type_.dtype.is_integer:
        return None  # kernels add floats up in two ways
    numbers = range(*(int(array) for array in arrays))
    return np.array(numbers, type_.dtype.numpy) if len(numbers) <= _MOST else None


def _tiled(arrays: list[Any], dtypes: Dtypes, attributes: Given, type_: TensorType) -> Array | None:
    x, repeats = arrays
    if len(repeats) != x.ndim or (repeats < 0).any() or x.size * math.prod(int(n) for n in repeats) > _MOST:
        return None
    return np.tile(x, tuple(int(n) for n in repeats))


def _within(places: Array, length: int) -> Array | None:
    """Return places counted from the front; None where one is out of bounds."""
    if places.size and (places.min() < -length or places.max() >= length):
        return None
    return np.where(places < 0, places + length, places)


def _gathered_elements(arrays: list[Any], dtypes: Dtypes, attributes: Given, type_: TensorType) -> Array | None:
    x, places = arrays
    axis = attributes.get("axis", 0) % x.ndim
    found = _within(places, x.shape[axis])
    if found is None or any(a > b for i, (a, b) in enumerate(zip(places.shape, x.shape, strict=True)) if i != axis):
        return None
    cut = tuple(slice(None) if i == axis else slice(size) for i, size in enumerate(places.shape))
    return np.take_along_axis(x[cut], found, axis)


def _gathered_nd(arrays: list[Any], dtypes: Dtypes, attributes: Given, type_: TensorType) -> Array | None:
    x, places = arrays
    if attributes.get("batch_dims", 0):
        return None
    at = [_within(places[..., i], x.shape[i]) for i in range(places.shape[-1])]
    return None if any(each is None for each in at) else np.asarray(x[tuple(at)])


def _scattered_elements(arrays: list[Any], dtypes: Dtypes, attributes: Given, type_: TensorType) -> Array | None:
    x, places, updates = arrays
    axis = attributes.get("axis", 0) % x.ndim
    found = _within(places, x.shape[axis])
    if found is None or not _overwrites(attributes) or places.shape != updates.shape:
        return None
    at = [*np.indices(places.shape, sparse=True)]
    at[axis] = found
    return _with(x, tuple(np.broadcast_arrays(*at)), updates)


def _scattered_nd(arrays: list[Any], dtypes: Dtypes, attributes: Given, type_: TensorType) -> Array | None:
    x, places, updates = arrays
    at = [_within(places[..., i], x.shape[i]) for i in range(places.shape[-1])]
    if any(each is None for each in at) or not _overwrites(attributes):
        return None
    if updates.shape != places.shape[:-1] + x.shape[places.shape[-1] :]:
        return None
    return _with(x, tuple(each for each in at if each is not None), updates)


def _overwrites(attributes: Given) -> bool:
    return attributes.get("reduction", "none") in ("none", b"none")


def _with(x: Array, at: tuple[Array, ...], updates: Array) -> Array | None:
    """Return an array with updates; None where two go to one place, whose order is the kernel's."""
    flat = np.ravel_multi_index(at, x.shape[: len(at)])
    if np.unique(flat).size != flat.size:
        return None
    made = x.copy()
    made[at] = updates
    return made


def _triangle(arrays: list[Any], dtypes: Dtypes, attributes: Given, type_: TensorType) -> Array | None:
    x, shift = (*arrays, None)[:2]
    function = np.triu if attributes.get("upper", 1) else np.tril
    return np.asarray(function(x, 0 if shift is None else int(np.reshape(shift, ()))))


def _reduced(function: Any) -> Fold:
    def apply(arrays: list[Any], dtypes: Dtypes, attributes: Given, type_: TensorType) -> Array | None:
        x, axes = (*arrays, None)[:2]
        if not type_.dtype.is_integer or (axes is None and attributes.get("noop_with_empty_axes", 0)) or not x.size:
            return None
        if axes is not None and not axes.size:
            return None
        over = None if axes is None else tuple(int(axis) for axis in axes)
        keeps = bool(attributes.get("keepdims", 1))
        return np.asarray(function(x, axis=over, keepdims=keeps, dtype=x.dtype))

    return apply


def _summed_up(arrays: list[Any], dtypes: Dtypes, attributes: Given, type_: TensorType) -> Array | None:
    x, axis = arrays
    if not type_.dtype.is_integer or attributes.get("exclusive", 0) or attributes.get("reverse", 0):
        return None
    return np.asarray(np.cumsum(x, int(np.reshape(axis, ())), dtype=x.dtype))


def _limited(arrays: list[Any], dtypes: Dtypes, attributes: Given, type_: TensorType) -> Array | None:
    x, least, most = (*arrays, None, None)[:3]
    if not type_.dtype.is_integer:
        return None
    made = x if least is None else np.maximum(x, least)
    return np.asarray(made if most is None else np.minimum(made, most))


_FOLDS: dict[str, Fold] = {
    "ConstantOfShape": _filled,
    "Range": _counted,
    "Tile": _tiled,
    "GatherElements": _gathered_elements,
    "GatherND": _gathered_nd,
    "ScatterElements": _scattered_elements,
    "ScatterND": _scattered_nd,
    "Trilu": _triangle,
    "ReduceSum": _reduced(np.sum),
    "ReduceProd": _reduced(np.prod),
    "CumSum": _summed_up,
    "Clip": _limited,
}


def made_of(
    op_type: str, arrays: list[Array | None], dtypes: Dtypes, attributes: Given, type_: TensorType, limit: int
) -> Array | None:
    """Compute an operator of `INDEXING` for these arrays; return None where the result is not certain, or too large.

    Operands and results are as of `graphcore.arrays.evaluate.folded`.
    """
    if type_.shape.is_static and math.prod(type_.shape.static_dims) * type_.dtype.numpy.itemsize > limit:
        return None
    try:
        made = _FOLDS[op_type](arrays, dtypes, attributes, type_)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # `Graph.op` takes operands and attributes that ONNX refuses, which is not told here
    if made is None or made.nbytes > limit or made.dtype != type_.dtype.numpy:
        return None
    if type_.shape.is_static and made.shape != tuple(type_.shape.static_dims):
        return None
    return np.require(made, requirements="C")


INDEXING = frozenset(_FOLDS)
"""The operators that `made_of` knows."""


def _folded(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return the result as a constant; None where operands are no constants, the bits are not certain, or too many."""
    type_ = node.outputs[0].type
    if not isinstance(type_, TensorType) or not type_.shape.is_static or has_storage_axis(type_.dtype):
        return None
    arrays, dtypes = [], []
    for symbol in inputs:
        array = sweep.known(symbol)
        if symbol is not None and (array is None or has_storage_axis(symbol.dtype)):
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
    places = folded(node.op_type, arrays, [*dtypes], node.attributes, type_, sweep.policy.limit)
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
