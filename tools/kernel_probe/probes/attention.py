"""Probes of the kernel of Attention: what it ignores of the operator, or refuses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType
from tools.kernel_probe.probes.probe import D, Family, Probe


def families() -> list[Family]:
    """Return what the kernel gets wrong."""
    return [Family("Attention ignores nonpad_kv_seqlen, or masks beside is_causal.", [*_lengths(), *_masks()])]


def _lengths() -> Iterator[Probe]:
    q, k, v = _operands()
    counts = np.array([2, 4])
    seen = np.arange(5) < counts[:, None, None, None]
    # The last query is that of the last key.
    causal = np.arange(5) <= np.arange(3)[:, None] + (counts - 3)[:, None, None, None]
    types = (D.float32, D.float32, D.float32, D.int64)
    for is_causal in (0, 1):

        def build(graph: Graph, *operands: Symbol, is_causal: int = is_causal) -> Any:
            given = [*operands[:3], None, None, None, operands[3]]
            return graph.op("Attention", given, {"is_causal": is_causal}, [operands[0].type])

        yield _probe((q, k, v, counts), build, attended(q, k, v, seen & causal if is_causal else seen), types)


def _masks() -> Iterator[Probe]:
    q, k, v = _operands()
    causal = np.arange(5) <= np.arange(3)[:, None]
    draw = np.random.default_rng(1)
    for shape, is_dead in itertools.product(((3, 5), (2, 2, 3, 5), (2, 1, 3, 5), (1, 2, 3, 5)), (False, True)):
        mask = draw.random(shape) < 0.6
        mask[..., 0] = True
        if is_dead:
            mask[..., 1, :] = False  # a query that sees no key gives 0

        def build(graph: Graph, *operands: Symbol) -> Any:
            return graph.op("Attention", list(operands), {"is_causal": 1}, [operands[0].type])

        want = attended(q, k, v, mask & causal)
        yield _probe((q, k, v, mask), build, want, (D.float32, D.float32, D.float32, D.bool))
        yield _probe((q, k, v, np.where(mask, 0.0, -np.inf)), build, want, (D.float32,) * 4)


def _operands() -> tuple[Array, Array, Array]:
    draw = np.random.default_rng(0)
    q, k, v = (draw.standard_normal((2, 2, n, 8)) for n in (3, 5, 5))
    return q, k, v


def _probe(given: tuple[Array, ...], build: Any, want: Array, types: tuple[DType, ...]) -> Probe:
    return Probe(
        D.float32, (), given, build, (want,), types, names=("Attention float32",), needs="Attention", is_known=True,
        near=1e-6,
    )  # fmt: skip


def attended(q: Array, k: Array, v: Array, seen: Array) -> Array:
    """Attention over the keys that are seen; 0 where there are none."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    parts = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    made: Array = parts @ v / np.maximum(parts.sum(-1, keepdims=True), 1e-30)
    return made
