"""Operators that make, gather and scatter constants, computed now: beside those of `graphcore.arrays.evaluate`.

Elements are moved as they are, or are integers. Places out of bounds are left to the runtime, which refuses them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.arrays.evaluate import Dtypes, Fold
from graphcore.types.tensor_types import TensorType

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
