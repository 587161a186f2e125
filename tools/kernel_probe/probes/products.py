"""Probes of products, with empty operands or constant factors, and of attention, with lengths or masks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType
from tools.kernel_probe.probes.probe import LONG, WIDE, D, Family, Probe, operator

MULTIPLIED = (*LONG, *WIDE)
UNSIGNED = (D.uint32, D.uint64)

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "rows by a vector": ((0, 3), (3,)),
    "stack of rows by a vector": ((2, 0, 3), (3,)),
    "stacks by a vector": ((0, 2, 3), (3,)),
    "matrix by a vector, nothing to add": ((2, 0), (0,)),
    "large matrix by a vector, nothing to add": ((64, 0), (0,)),
    "stack by a vector, nothing to add": ((3, 2, 0), (0,)),
    "vectors, nothing to add": ((0,), (0,)),
    "vector by a matrix, nothing to add": ((0,), (0, 3)),
    "vector by a stack, nothing to add": ((0,), (2, 0, 3)),
    "vector by a stack of stacks": ((0,), (2, 2, 0, 3)),
    "matrices, nothing to add": ((2, 0), (0, 1)),
    "more matrices, nothing to add": ((20, 0), (0, 30)),
    "matrix by a stack, nothing to add": ((2, 0), (4, 0, 3)),
    "stack by a matrix, nothing to add": ((4, 2, 0), (0, 3)),
    "stacks of one": ((1, 2, 0), (4, 0, 3)),
    "stacks that repeat both ways": ((4, 1, 2, 0), (1, 3, 0, 5)),
    "stacks, nothing to add": ((4, 2, 0), (4, 0, 3)),
    "no stacks": ((0, 2, 3), (0, 3, 2)),
    "no rows": ((0, 3), (3, 2)),
    "no columns": ((2, 3), (3, 0)),
}
"""Of operands, by what they are."""


def families() -> list[Family]:
    """Return the faults of onnxruntime in products and attention."""
    return [
        Family("Products of empty operands fail, or leave their results unwritten.", [*_empty()]),
        Family("A constant factor before or after a product of float64 goes into it as a float32.", [*_scaled()]),
        Family("Einsum divides by zero as it turns an operand without elements.", [*_turned()]),
        Family("Einsum does not survive operands without elements, or gives other shapes.", [*_summed()]),
        Family("Attention ignores nonpad_kv_seqlen, or masks beside is_causal.", [*_lengths(), *_masks()]),
    ]


def _empty() -> Iterator[Probe]:
    for dtype in (*MULTIPLIED, *UNSIGNED):
        for left, right in SHAPES.values():
            x, y = np.ones(left), np.ones(right)
            want = x @ y
            yield Probe(dtype, ("MatMul",), (x, y), operator("MatMul"), (want,))
            yield Probe(dtype, ("MatMul",), (x, y), operator("MatMul"), (want,), is_known=True)
            for place in (0, 1):  # a constant, which the kernel may put in another order
                value, argument = (x, y)[place].astype(dtype.numpy), (x, y)[1 - place]
                build = functools.partial(_multiplied, value, place)
                yield Probe(dtype, ("MatMul",), (argument,), build, (want,))
            # The same with numbers first, whose products are what is left.
            before = tuple(np.full([n or 3 for n in shape], 7) for shape in (left, right))
            yield Probe(dtype, ("MatMul",), (x, y), operator("MatMul"), (want,), before=before)


def _multiplied(value: Array, place: int, graph: Graph, x: Symbol) -> Any:
    results = [x]
    results.insert(place, graph.constant(value))
    return graph.op("MatMul", results)


def _scaled() -> Iterator[Probe]:
    builds: list[Callable[..., Symbol]] = [
        lambda graph, x, y: (x * 0.3) @ y,
        lambda graph, x, y: x @ (y * 0.3),
        lambda graph, x, y: (x @ y) * 0.3,
        lambda graph, x, y: (x / 0.3) @ y,
        lambda graph, x, y: x @ (y / 0.3),
        lambda graph, x, y: (x @ y) / 0.3,
        lambda graph, x, y: ((x * 0.3) @ (y * 0.1)) * 0.7,
        lambda graph, x, y: 0.3 * x @ y,
        lambda graph, x, y: (0.3 * (x @ y)) @ y,
        lambda graph, x, y: (x.T @ y) * 0.3,
        lambda graph, x, y: (x @ y.T) * 0.3,
    ]
    x, y = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[1.0, 4.0], [7.0, 3.0]])
    for build in builds:
        want = build(None, x, y)
        yield Probe(D.float64, ("MatMul",), (x, y), build, (want,))
        yield Probe(D.float64, ("MatMul",), (x, y), build, (want,), is_known=True)
        one = np.ones((1, 1))
        yield Probe(D.float64, ("MatMul",), (one, one), build, (build(None, one, one),))
        stack = np.stack([x, y, x])
        if "T" not in build.__code__.co_names:
            yield Probe(D.float64, ("MatMul",), (stack, stack), build, (build(None, stack, stack),))
            yield Probe(D.float64, ("MatMul",), (stack, y), build, (build(None, stack, y),))


EQUATIONS = ("ij,kj->ik", "ij,jk->ik", "ij,kj->i", "ij,jk->", "ij,jk->kji", "...j,jk->...k", "ji,kj->ik")


def _turned() -> Iterator[Probe]:
    for dtype in MULTIPLIED:
        older = (f"Einsum {dtype} without elements",)
        for equation in EQUATIONS:
            for empty in ("i", "j", "k", "ij", "ijk"):
                value, want = _einsum(equation, empty)
                build = operator("Einsum", equation=equation)
                yield Probe(dtype, ("Einsum",), value, build, (want,), beside=older, dies=True)


def _summed() -> Iterator[Probe]:
    for dtype in MULTIPLIED:
        names = (f"Einsum {dtype} without elements",)
        for equation in (*EQUATIONS, "ij->i", "ij->ji", "ij->", "ii->i"):
            for empty in ("i", "j", "k", "ij", "ijk"):
                value, want = _einsum(equation, empty)
                build = operator("Einsum", equation=equation)
                yield Probe(dtype, (), value, build, (want,), names=names, dies=True)
        value, want = (np.zeros((0,)), np.array([1, 2, 3])), np.zeros(3)
        yield Probe(dtype, (), value, operator("Einsum", equation="i,k->k"), (want,), names=names, dies=True)


def _einsum(equation: str, empty: str) -> tuple[tuple[Array, ...], Any]:
    """Operands whose axes of some letters are empty, and what is right."""
    sizes = {letter: 0 if letter in empty else size for letter, size in zip("ijk", (2, 3, 4), strict=True)}
    terms = equation.replace("...", "i").split("->")[0].split(",")
    arrays = tuple(np.full([sizes[letter] for letter in term], 3.0) for term in terms)
    return arrays, np.einsum(equation, *arrays)


def _lengths() -> Iterator[Probe]:
    q, k, v = _attention_operands()
    counts = np.array([2, 4])
    seen = np.arange(5) < counts[:, None, None, None]
    # The last query is that of the last key.
    causal = np.arange(5) <= np.arange(3)[:, None] + (counts - 3)[:, None, None, None]
    types = (D.float32, D.float32, D.float32, D.int64)
    for is_causal in (0, 1):

        def build(graph: Graph, *operands: Symbol, is_causal: int = is_causal) -> Any:
            results = [*operands[:3], None, None, None, operands[3]]
            return graph.op("Attention", results, {"is_causal": is_causal}, [operands[0].type])

        yield _attention((q, k, v, counts), build, attended(q, k, v, seen & causal if is_causal else seen), types)


def _masks() -> Iterator[Probe]:
    q, k, v = _attention_operands()
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
        yield _attention((q, k, v, mask), build, want, (D.float32, D.float32, D.float32, D.bool))
        yield _attention((q, k, v, np.where(mask, 0.0, -np.inf)), build, want, (D.float32,) * 4)


def _attention_operands() -> tuple[Array, Array, Array]:
    draw = np.random.default_rng(0)
    q, k, v = (draw.standard_normal((2, 2, n, 8)) for n in (3, 5, 5))
    return q, k, v


def _attention(value: tuple[Array, ...], build: Any, want: Array, types: tuple[DType, ...]) -> Probe:
    return Probe(
        D.float32, (), value, build, (want,), types, names=("Attention float32",), needs="Attention", is_known=True,
        near=1e-6,
    )  # fmt: skip


def attended(q: Array, k: Array, v: Array, seen: Array) -> Array:
    """Attention over the keys that are seen; 0 where there are none."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    parts = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    result: Array = parts @ v / np.maximum(parts.sum(-1, keepdims=True), 1e-30)
    return result
