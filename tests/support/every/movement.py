"""Ops that move, choose, make or convert elements, and buffers within a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from graphcore import DType, Symbol, ops
from tests.ops.test_gathering import scattered, scattered_nd
from tests.ops.test_linalg import banded
from tests.ops.test_resizing import copied
from tests.support import reference
from tests.support.every.case import (
    BOOL,
    INTEGERS,
    Array,
    Case,
    Operand,
    moved,
    number,
    operands,
    own,
    place,
    real,
    to_int64,
)

D = DType
X = ("n 4",)
MASK = Operand("n 4", dtype=D.bool)
CAST_TO = (D.int16, D.float16, D.bool)


def fixed(dims: str, numbers: Any, dtype: DType = D.int64) -> Operand:
    return Operand(dims, lambda own: np.array(numbers, own.numpy), dtype)


def filled(x: Symbol, value: float) -> Symbol:
    return ops.full((x.shape[0], 2), value, x.dtype)


def ones(dtype: DType, x: Array) -> Array:
    return np.ones((len(x), 2), np.float32).astype(dtype.numpy)


def chosen(x: Array, mask: Array, updates: Array) -> Array:
    result = x.copy()
    result[mask] = updates.ravel()[: mask.sum()]
    return result


def window(name: str) -> Case:
    terms = {"hann_window": (0.5, 0.5, 0.0), "hamming_window": (0.54, 0.46, 0.0), "blackman_window": (0.42, 0.5, 0.08)}
    a, b, c = terms[name]

    def formula(x: Array) -> Array:
        turn = 2 * np.pi * np.arange(len(x)) / len(x)
        return np.asarray(a - b * np.cos(turn) + c * np.cos(2 * turn))

    return real(X, lambda x: getattr(ops, name)(x.shape[0], dtype=x.dtype), formula, refused=INTEGERS | BOOL)


def larger(x: Any, y: Any) -> Any:
    return np.where((x > y) | (x != x), x, y)


def smaller(x: Any, y: Any) -> Any:
    return np.where((x < y) | (x != x), x, y)


def scatter(name: str, formula: Any = None, of_slices: bool = False) -> Case:
    if of_slices:
        at, updates = fixed("b 1", [[3], [1]]), "b 4"
    else:
        at, updates = fixed("n 2", [[0, 3], [2, 1], [0, 3], [1, 0], [3, 2]]), "n 2"

    def formula_of(x: Array, u: Array, i: Array) -> Array:
        places = i.astype(int)
        return scattered_nd(x, u, places, formula) if of_slices else scattered(x, u, places, -1, formula)

    call = getattr(ops, name)
    if formula is None:
        return moved(["n 4", updates, at], call, formula_of)
    kind = "any" if formula in (larger, smaller) else "ring"
    return number([f"n 4: {kind}", f"{updates}: {kind}", at], call, formula_of)


def added_along(x: Array, values: Array, index: Array) -> Array:
    result = x.copy()
    places: Any = np.s_[:, index.astype(int)]
    np.add.at(result, places, values)
    return result


def summed_segments(x: Array, ids: Array) -> Array:
    result = np.zeros_like(x[:3])
    for row, at in zip(x, ids.astype(int), strict=True):
        if 0 <= at < 3:
            result[at] = result[at] + row
    return result


def whole_range(dtype: DType, x: Array) -> Array:
    return np.arange(len(x)).astype(np.float32).astype(dtype.numpy)


def blocks_spread(x: Array) -> Array:
    batch, height, width, channels = x.shape
    blocks = x.reshape(batch, height, width, 2, 2, channels // 4)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(batch, 2 * height, 2 * width, channels // 4)


def blocks_gathered(x: Array, *, channels_first: bool = False) -> Array:
    batch, height, width, channels = x.shape
    blocks = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
    order = (0, 1, 3, 5, 2, 4) if channels_first else (0, 1, 3, 2, 4, 5)
    return blocks.transpose(order).reshape(batch, height // 2, width // 2, 4 * channels)


def distinct(x: Array) -> Array:
    """The different values in order, by Python's comparisons: NaNs all differ."""
    flat = x.ravel()
    numbers = reference.exact(flat)
    order = sorted(
        range(len(flat)), key=lambda i: (numbers[i] != numbers[i], numbers[i] if numbers[i] == numbers[i] else 0)
    )
    results = [
        at
        for before, at in zip([None, *order], order, strict=False)
        if before is None or numbers[before] != numbers[at]
    ]
    return flat[results]


CASES: dict[str, Case] = {
    "squeeze": moved(["n 1 4"], lambda x: ops.squeeze(x, 1), lambda x: x[:, 0]),
    "unsqueeze": moved(X, lambda x: ops.unsqueeze(x, 0), lambda x: x[None]),
    "transpose": moved(["n 4 k"], lambda x: ops.transpose(x, 2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    "transpose_matrix": moved(["n 4 k"], ops.transpose_matrix, lambda x: x.swapaxes(1, 2)),
    "permute": moved(["n 4 k"], lambda x: ops.permute(x, (1, 0, 2)), lambda x: x.transpose(1, 0, 2)),
    "swapaxes": moved(X, lambda x: ops.swapaxes(x, 0, 1), lambda x: x.T),
    "tril": moved(X, ops.tril, lambda x: banded(x, -1, 0, False)),
    "triu": moved(X, ops.triu, lambda x: banded(x, 0, -1, False)),
    "band_part": moved(X, lambda x: ops.band_part(x, 1, 1), lambda x: banded(x, 1, 1, False)),
    "as_complex": moved(["n 4", "n 4"], ops.as_complex, lambda x, y: np.stack([x, y], -1)),
    "as_interleaved_complex": moved(X, ops.as_interleaved_complex, lambda x: x.reshape(-1, 2, 2)),
    "as_real": moved(["n 2"], ops.as_real, lambda x: (x[:, 0], x[:, 1])),
    "constant": Case(
        operands(*X),
        lambda x: ops.stack([x[0], ops.constant(np.ones(4, np.int8).astype(x.dtype.numpy), x.dtype)]),
        lambda dtype, x: np.stack([x[0], np.ones(4, np.float32).astype(x.dtype)]),
        own,
    ),
    "full": Case(operands(*X), lambda x: filled(x, 1), ones, own),
    "zeros": Case(
        operands(*X), lambda x: ops.zeros((x.shape[0], 2), x.dtype), lambda dtype, x: np.zeros_like(x[:, :2]), own
    ),
    "ones": Case(operands(*X), lambda x: ops.ones((x.shape[0], 2), x.dtype), ones, own),
    "range": Case(operands(*X), lambda x: ops.range(0, x.shape[0], dtype=x.dtype), whole_range, own, BOOL),
    "hann_window": window("hann_window"),
    "hamming_window": window("hamming_window"),
    "blackman_window": window("blackman_window"),
    "gather": moved(["n 4", fixed("k", [1, -1])], lambda x, i: ops.gather(x, i), lambda x, i: x[i]),
    "embedding": moved(["n 4", fixed("k 2", [[1, 4], [0, 1]])], ops.embedding, lambda x, i: x[i]),
    "gather_nd": moved(["n 4", fixed("k 2", [[1, 2], [0, 3]])], ops.gather_nd, lambda x, i: x[i[:, 0], i[:, 1]]),
    "take_along_axis": moved(
        ["n 4", fixed("n 1", [[0], [3], [1], [2], [-1]])], ops.take_along_axis, lambda x, i: np.take_along_axis(x, i, 1)
    ),
    "nonzero": place(X, ops.nonzero, lambda x: np.argwhere(x != 0)),
    "where": moved([MASK, "n 4", "n 4"], ops.where, np.where),
    "select": moved([MASK, "n 4", "n 4"], ops.select, np.where),
    "getitem": moved(X, lambda x: x[1:, ::-2], lambda x: x[1:, ::-2]),
    "slice_tensor": moved(X, lambda x: ops.slice_tensor(x, [slice(1, None), 2]), lambda x: x[1:, 2]),
    "slice": moved(X, lambda x: ops.slice(x, slice(1, 3)), lambda x: x[1:3]),
    "cast": Case(
        operands(*X),
        lambda x: [ops.cast(x, target).cast(D.int64) for target in CAST_TO],
        lambda dtype, x: [reference.cast(reference.cast(x, dtype, t), t, D.int64) for t in CAST_TO],
        to_int64,
    ),
    "shape_of": place(X, ops.shape_of, lambda x: np.array(x.shape)),
    "shape_to_tensor": place(X, lambda x: ops.shape_to_tensor([*x.shape, 7]), lambda x: np.array([*x.shape, 7])),
    "reshape": moved(X, lambda x: ops.reshape(x, (-1, 2)), lambda x: x.reshape(-1, 2)),
    "reshape_like": moved(["n 4", "n 2 2"], ops.reshape_like, lambda x, y: x.reshape(y.shape)),
    "flatten": moved(["n 4 k"], ops.flatten, lambda x: x.reshape(-1)),
    "broadcast_to": moved(X, lambda x: ops.broadcast_to(x, (2, *x.shape)), lambda x: np.stack([x, x])),
    "print": moved(X, lambda x: ops.print(x, "x"), lambda x: x),
    "rebind": moved(X, lambda x: ops.rebind(x, ("n", "j")), lambda x: x),
    "vec": moved(["n", "m"], ops.vec, lambda x, y: np.concatenate([x, y])),
    "into_vec": moved(["n"], lambda x: [ops.into_vec(x), ops.into_vec(x[0])], lambda x: [x, x[:1]]),
    "cond": moved(X, lambda x: ops.cond(ops.shape_of(x)[0] > 3, lambda: x[::-1], lambda: x), lambda x: x[::-1]),
    "while_loop": moved(
        X,
        lambda x: ops.while_loop(lambda a, i: i < 2, lambda a, i: (ops.concat([a[1:], a[:1]]), i + 1), (x, 0))[0],
        lambda x: np.roll(x, -2, 0),
    ),
    "for_loop": moved(
        X,
        lambda x: ops.for_loop(2, lambda i, a: (a[::-1], a), x, collect=True),
        lambda x: (x, np.stack([x, x[::-1]])),
    ),
    "scan": moved(
        X,
        lambda x: ops.scan(lambda before, v: (v, before), x[0], x),
        lambda x: (x[-1], np.concatenate([x[:1], x[:-1]])),
    ),
    "concat": moved(["n 4", "m 4"], lambda x, y: ops.concat([x, y]), lambda x, y: np.concatenate([x, y])),
    "stack": moved(["n 4", "n 4"], lambda x, y: ops.stack([x, y], 1), lambda x, y: np.stack([x, y], 1)),
    "split": moved(X, lambda x: ops.split(x, [1, 3], 1), lambda x: (x[:, :1], x[:, 1:])),
    "chunk": moved(X, lambda x: ops.chunk(x, 2, 1), lambda x: (x[:, :2], x[:, 2:])),
    "flip": moved(X, lambda x: ops.flip(x, 0), lambda x: x[::-1]),
    "roll": moved(
        X, lambda x: [ops.roll(x, 3, 0), ops.roll(x, -1, 1)], lambda x: [np.roll(x, 3, 0), np.roll(x, -1, 1)]
    ),
    "depth_to_space": moved(["b h w 4"], lambda x: ops.depth_to_space(x, 2), blocks_spread),
    "space_to_depth": moved(
        ["b 4 6 2"],
        lambda x: [ops.space_to_depth(x, 2), ops.space_to_depth(x, 2, "CRD")],
        lambda x: [blocks_gathered(x), blocks_gathered(x, channels_first=True)],
    ),
    "one_hot": moved(
        ["2", fixed("k", [1, -1])],
        lambda x, i: ops.one_hot(i, 3, on_value=x[0], off_value=x[1]),
        lambda x, i: np.where(np.arange(3) == (i % 3)[:, None], x[0], x[1]),
    ),
    "unique": moved(X, lambda x: ops.unique(x).values, distinct),
    "tile": moved(X, lambda x: ops.tile(x, (2, 1)), lambda x: np.tile(x, (2, 1))),
    "repeat_interleave": moved(X, lambda x: ops.repeat_interleave(x, 2, 0), lambda x: np.repeat(x, 2, 0)),
    "pad": Case(
        operands(*X),
        lambda x: [ops.pad(x, [1, 1, 0, 2], mode) for mode in ("constant", "edge", "reflect")],
        lambda dtype, x: [np.pad(x, ((1, 1), (0, 2)), mode) for mode in ("constant", "edge", "reflect")],
        own,
    ),
    "resize_nearest": moved(
        ["n 4"],
        lambda x: ops.resize_nearest(x, (x.shape[0], 7)),
        lambda x: copied(x, (len(x), 7), "half_pixel", "half_down"),
    ),
    "scatter": scatter("scatter"),
    "scatter_add": scatter("scatter_add", operator.add),
    "scatter_max": scatter("scatter_max", larger),
    "scatter_min": scatter("scatter_min", smaller),
    "scatter_mul": scatter("scatter_mul", operator.mul),
    "scatter_nd": scatter("scatter_nd", None, True),
    "scatter_nd_add": scatter("scatter_nd_add", operator.add, True),
    "scatter_nd_max": scatter("scatter_nd_max", larger, True),
    "scatter_nd_min": scatter("scatter_nd_min", smaller, True),
    "scatter_nd_mul": scatter("scatter_nd_mul", operator.mul, True),
    "index_add": number(
        ["n 4: ring", "n 3: ring", fixed("3", [3, 0, -4])], lambda x, v, i: ops.index_add(x, 1, i, v), added_along
    ),
    "segment_sum": number(
        ["n 4: ring", fixed("n", [1, 0, 3, 1, -1])], lambda x, i: ops.segment_sum(x, i, 3), summed_segments
    ),
    "masked_scatter": moved(["n 4", MASK, "n 4"], ops.masked_scatter, chosen),
}


# Buffers: values created, stored and loaded stay as they are


def store_output(store: Callable[..., None]) -> Callable[..., Symbol]:
    """Return the value of a buffer, initially the first operand, after a store of the others."""

    def call(x: Symbol, *more: Symbol) -> Symbol:
        buffer = ops.buffer_create(x)
        store(buffer, *more)
        return ops.buffer_load(buffer)

    return call


def assigned(index: Any) -> Callable[[Array, Array], Array]:
    def formula(x: Array, value: Array) -> Array:
        result = x.copy()
        result[index] = value
        return result

    return formula


SPAN = np.s_[::2, 1:3]

CASES |= {
    "buffer_create": moved(["n 4"], ops.buffer_create, lambda x: x),
    "buffer_load": moved(["n 4"], store_output(lambda buffer: None), lambda x: x),
    "buffer_store": moved(["n 4", "n 4"], store_output(ops.buffer_store), lambda x, value: value),
    "buffer_store_slice": moved(
        ["5 4", "3 2"], store_output(lambda buffer, value: ops.buffer_store_slice(buffer, value, SPAN)), assigned(SPAN)
    ),
}
