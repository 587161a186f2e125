"""Constant folding, by `graphcore.arrays.evaluate`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.arrays.evaluate import FOLDED, Dtypes, Fold, folded, folded_shape
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Inputs
from graphcore.ir.transform.walk import node_of
from graphcore.passes.sweep import Rule, Sweep
from graphcore.types.dtypes import DType, has_storage_axis
from graphcore.types.tensor_types import TensorType

# Operators that create, gather and scatter constants, in addition to those of `graphcore.arrays.evaluate`.
#
# They only move elements, or compute integers. Indices out of bounds are left to the runtime, which reports them.

_MAX_ELEMENTS = 1 << 24
"""The maximum number of elements of a result."""

Attributes = Mapping[str, Any]


def _constant_of_shape(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    shape = tuple(int(size) for size in arrays[0])
    value = attributes.get("value")
    if any(size < 0 for size in shape) or math.prod(shape) > _MAX_ELEMENTS:
        return None
    element = np.zeros(1, type_.dtype.numpy) if value is None else np.asarray(value).reshape(-1)
    return np.full(shape, element[0], element.dtype) if element.dtype == type_.dtype.numpy else None


def _range(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    if not type_.dtype.is_integer:
        return None  # kernels compute floats in two ways
    numbers = range(*(int(array) for array in arrays))
    return np.array(numbers, type_.dtype.numpy) if len(numbers) <= _MAX_ELEMENTS else None


def _tile(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, repeats = arrays
    if len(repeats) != x.ndim or (repeats < 0).any() or x.size * math.prod(int(n) for n in repeats) > _MAX_ELEMENTS:
        return None
    return np.tile(x, tuple(int(n) for n in repeats))


def _wrap_indices(places: Array, length: int) -> Array | None:
    """Return indices counted from the front; None if one is out of bounds."""
    if places.size and (places.min() < -length or places.max() >= length):
        return None
    return np.where(places < 0, places + length, places)


def _gather_elements(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, places = arrays
    axis = attributes.get("axis", 0) % x.ndim
    positive = _wrap_indices(places, x.shape[axis])
    if positive is None or any(a > b for i, (a, b) in enumerate(zip(places.shape, x.shape, strict=True)) if i != axis):
        return None
    cut = tuple(slice(None) if i == axis else slice(size) for i, size in enumerate(places.shape))
    return np.take_along_axis(x[cut], positive, axis)


def _gather_nd(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, places = arrays
    if attributes.get("batch_dims", 0):
        return None
    at = [_wrap_indices(places[..., i], x.shape[i]) for i in range(places.shape[-1])]
    return None if any(each is None for each in at) else np.asarray(x[tuple(at)])


def _scatter_elements(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, places, updates = arrays
    axis = attributes.get("axis", 0) % x.ndim
    positive = _wrap_indices(places, x.shape[axis])
    if positive is None or not _overwrites(attributes) or places.shape != updates.shape:
        return None
    at = [*np.indices(places.shape, sparse=True)]
    at[axis] = positive
    return _update(x, tuple(np.broadcast_arrays(*at)), updates)


def _scatter_nd(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, places, updates = arrays
    at = [_wrap_indices(places[..., i], x.shape[i]) for i in range(places.shape[-1])]
    if any(each is None for each in at) or not _overwrites(attributes):
        return None
    if updates.shape != places.shape[:-1] + x.shape[places.shape[-1] :]:
        return None
    return _update(x, tuple(each for each in at if each is not None), updates)


def _overwrites(attributes: Attributes) -> bool:
    return attributes.get("reduction", "none") in ("none", b"none")


def _update(x: Array, at: tuple[Array, ...], updates: Array) -> Array | None:
    """Return an array with updates; None if two go to one place, since the kernel decides their order."""
    flat = np.ravel_multi_index(at, x.shape[: len(at)])
    if np.unique(flat).size != flat.size:
        return None
    result = x.copy()
    result[at] = updates
    return result


def _trilu(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, shift = (*arrays, None)[:2]
    function = np.triu if attributes.get("upper", 1) else np.tril
    return np.asarray(function(x, 0 if shift is None else int(np.reshape(shift, ()))))


def _reduce(
    function: Any, arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType
) -> Array | None:
    x, axes = (*arrays, None)[:2]
    if not type_.dtype.is_integer or (axes is None and attributes.get("noop_with_empty_axes", 0)) or not x.size:
        return None
    if axes is not None and not axes.size:
        return None
    over = None if axes is None else tuple(int(axis) for axis in axes)
    keeps = bool(attributes.get("keepdims", 1))
    return np.asarray(function(x, axis=over, keepdims=keeps, dtype=x.dtype))


def _cumsum(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, axis = arrays
    if not type_.dtype.is_integer or attributes.get("exclusive", 0) or attributes.get("reverse", 0):
        return None
    return np.asarray(np.cumsum(x, int(np.reshape(axis, ())), dtype=x.dtype))


def _clip(arrays: list[Any], dtypes: Dtypes, attributes: Attributes, type_: TensorType) -> Array | None:
    x, minimum, maximum = (*arrays, None, None)[:3]
    if not type_.dtype.is_integer:
        return None
    result = x if minimum is None else np.maximum(x, minimum)
    return np.asarray(result if maximum is None else np.minimum(result, maximum))


_FOLDS: dict[str, Fold] = {
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Tile": _tile,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Trilu": _trilu,
    "ReduceSum": partial(_reduce, np.sum),
    "ReduceProd": partial(_reduce, np.prod),
    "CumSum": _cumsum,
    "Clip": _clip,
}


def _fold(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return the result as a constant; None if operands are not constant, or the result is uncertain or too large."""
    type_ = node.outputs[0].type
    if not isinstance(type_, TensorType) or not type_.shape.is_static or has_storage_axis(type_.dtype):
        return None
    is_own = node.op_type in _FOLDS
    if is_own and (type_.dtype is DType.string or type_.dtype.storage is not type_.dtype):
        return None
    arrays, dtypes = [], []
    for symbol in inputs:
        array = sweep.constant_value(symbol)
        if symbol is not None and (array is None or has_storage_axis(symbol.dtype)):
            return None
        arrays.append(array)
        dtypes.append(None if symbol is None else symbol.dtype)
    limit = sweep.constant_limit(node, math.prod(type_.shape.static_dims) * type_.dtype.numpy.itemsize)
    more = _FOLDS if is_own else {}
    result = folded(node.op_type, arrays, dtypes, node.attributes, type_, limit, any_nan=is_own, more=more)
    if result is None or (is_own and result.dtype != type_.dtype.numpy):
        return None
    return sweep.constant(node, result, type_)


def _fold_shape(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    (operand,) = inputs
    if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_static:
        return None
    type_ = node.outputs[0].type
    assert isinstance(type_, TensorType)
    return sweep.constant(node, folded_shape(operand.shape, node.attributes), type_)


def _fold_dims(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Fold Gather and Slice of a Shape if the dims that they take are static, even if others are dynamic."""
    producer = node_of(inputs[0], "Shape")
    if producer is None:
        return None
    operand, type_ = producer.inputs[0], node.outputs[0].type
    if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_ranked:
        return None
    dims = [*operand.shape][producer.attributes.get("start", 0) : producer.attributes.get("end")]
    chosen = [sweep.constant_value(s) for s in inputs[1:]]
    if any(a is None for a in chosen) or not isinstance(type_, TensorType) or not type_.shape.is_static:
        return None
    # Apply the operator to the positions of dims, to find which dims it takes.
    arrays, dtypes = [np.arange(len(dims)), *chosen], [s.dtype for s in inputs if s is not None]
    places = folded(node.op_type, arrays, [*dtypes], node.attributes, type_, sweep.policy.limit)
    if places is None or not all(dims[i].is_static for i in places.flat):
        return None
    return sweep.constant(node, np.array([int(dims[i]) for i in places.flat], np.int64).reshape(places.shape), type_)


FOLDS: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(sorted(FOLDED | _FOLDS.keys()), (_fold,)),
    "Shape": (_fold_shape,),
    "Gather": (_fold, _fold_dims),
    "Slice": (_fold, _fold_dims),
}
