"""Arrays that no operator expects: without elements, of other ranks, of extreme numbers. Each is made from its number.

A source is the model of a case of an operator, all of whose operands are fed: no check at load sees them.
"""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from graphcore import DType
from tests.support.operators.cases import DTYPES, Place, every
from tools.kernel_probe.case import Case

Array = np.ndarray[Any, Any]
NUMBERS = (0, 1, -1, 2, -2, 3, 7, 16, 127, 128, -129, 1 << 15, -(1 << 31), 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 3e38, -3e38, 1e300, float("inf"), float("-inf"), float("nan"), 7.0, 1e6)

MAX_TURNS = 1 << 15


@functools.cache
def names() -> list[str]:
    """Return the sources: domain, operator, dtype and number of the case, with a space between them."""
    results = []
    for domain, name in every():
        for dtype in DTYPES:
            place = Place(domain, name, dtype)
            for at, case in enumerate(place.cases):
                if case.only is None or dtype in case.only:
                    results.append(f"{domain or '-'} {name} {dtype.name} {at}")
    return results


def drawn(source: str, number: int) -> tuple[bytes, dict[str, Array]]:
    """Return the model of a source, whose dims have names, and what is fed to it. Number 0 changes nothing."""
    domain, name, dtype, at = source.split()
    place = Place(domain.strip("-"), name, getattr(DType, dtype))
    case: Case = place.cases[int(at)]
    requested = place.question(case)
    rng = random.Random(f"{source} {number}")
    feeds = {key: array for key, (array, _) in requested.feeds.items()}
    model = requested.model
    if number:
        _feed_constants(model, feeds, rng)
        for item in model.graph.input:
            if rng.random() < 0.4:
                item.type.tensor_type.ClearField("shape")
            elif rng.random() < 0.9:
                for i, dim in enumerate(item.type.tensor_type.shape.dim):
                    dim.dim_param = f"{item.name}_{i}"
        changed = rng.sample(sorted(feeds), min(len(feeds), rng.choice((1, 1, 1, 2))))
        for key in changed:
            feeds[key] = _odd(feeds[key], rng)
        if rng.random() < 0.2:  # the same size for all that are empty
            feeds = {key: a[:0] if a.ndim else a for key, a in feeds.items()}
        if name == "Loop":  # whose turns put results together until there is no memory left
            feeds = {key: np.minimum(a, MAX_TURNS) if a.dtype == np.int64 else a for key, a in feeds.items()}
    return bytes(model.SerializeToString()), feeds


def _feed_constants(model: onnx.ModelProto, feeds: dict[str, Array], rng: random.Random) -> None:
    """Make operands of initializers, and keep a few: then checks at load see them."""
    graph = model.graph
    for tensor in list(graph.initializer):
        if rng.random() < 0.8:
            feeds[tensor.name] = numpy_helper.to_array(tensor)
            shape = [f"{tensor.name}_{i}" for i in range(len(tensor.dims))]
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))
            graph.initializer.remove(tensor)


def _odd(array: Array, rng: random.Random) -> Array:
    action = rng.randrange(7)
    if action == 5:  # where the model does not say the rank, another one
        return array.reshape(rng.choice(((1,), (1, 1)))) if array.size == 1 else array.reshape(1, *array.shape)
    if action == 6:
        return array.reshape(-1)[:0].reshape(rng.choice(((0,), (0, 1), (1, 0), (2, 0, 2))))
    if action == 0 and array.ndim:
        return array[tuple(slice(0 if rng.random() < 0.6 else None) for _ in array.shape)]
    if action == 1 and array.ndim:
        axis = rng.randrange(array.ndim)
        return np.take(array, np.zeros(rng.choice((0, 1, 2, 3, 5)), int), axis=axis) if array.shape[axis] else array
    if action == 2 and array.ndim > 1:
        return np.ascontiguousarray(array.transpose(rng.sample(range(array.ndim), array.ndim)))
    flat = array.reshape(-1).copy()
    for _ in range(rng.choice((1, 1, 2, len(flat)))):
        if len(flat):
            flat[rng.randrange(len(flat))] = _number(array.dtype, rng)
    return flat.reshape(array.shape)


def _number(dtype: Any, rng: random.Random) -> Any:
    if dtype.kind == "O":
        return rng.choice(("", "0", "nan", "\U0001f600" * 3, "a" * 300, "a\0b", "-1e999"))
    with np.errstate(all="ignore"):
        if dtype.kind in "iu":
            return np.array(rng.choice(NUMBERS) % (1 << 64), np.uint64).astype(dtype)
        return np.array(rng.choice((*FLOATS, *NUMBERS))).astype(dtype)


__all__ = ["drawn", "names"]
