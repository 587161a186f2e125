"""Buffers within a graph: values created, stored and loaded stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphcore import Symbol, ops
from tests.support.every.case import Array, Case, moved


def kept(store: Callable[..., None]) -> Callable[..., Symbol]:
    """Return the value of a buffer, initially the first operand, after a store of the others."""

    def call(x: Symbol, *more: Symbol) -> Symbol:
        buffer = ops.buffer_create(x)
        store(buffer, *more)
        return ops.buffer_load(buffer)

    return call


def assigned(index: Any) -> Callable[[Array, Array], Array]:
    def formula(x: Array, value: Array) -> Array:
        made = x.copy()
        made[index] = value
        return made

    return formula


SPAN = np.s_[::2, 1:3]

CASES: dict[str, Case] = {
    "buffer_create": moved(["n 4"], ops.buffer_create, lambda x: x),
    "buffer_load": moved(["n 4"], kept(lambda buffer: None), lambda x: x),
    "buffer_store": moved(["n 4", "n 4"], kept(ops.buffer_store), lambda x, value: value),
    "buffer_store_slice": moved(
        ["5 4", "3 2"], kept(lambda buffer, value: ops.buffer_store_slice(buffer, value, SPAN)), assigned(SPAN)
    ),
}
