"""Sums of products of integers of more than 64 bits, against Python's."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from tests.support.wide import WIDTHS, Function, check, drawn, dtypes, graph_of

NARROW = [DType.int32, DType.uint32, DType.int64, DType.uint64, DType.int(40), DType.uint(63)]

# The dims of both operands as they are declared, and as they are fed.
SHAPES: list[tuple[list[Any], list[Any], list[int], list[int]]] = [
    ([3, 4], [4, 2], [3, 4], [4, 2]),
    (["m", "k"], ["k", "n"], [3, 5], [5, 2]),
    ([4], [4], [4], [4]),
    (["k"], ["k"], [6], [6]),
    (["b", 2, 3], [3], [2, 2, 3], [3]),
    ([3], ["b", 3, 2], [3], [4, 3, 2]),
    ([2, 1, 3, 4], [5, 4, 2], [2, 1, 3, 4], [5, 4, 2]),
    (["m", "k"], ["k", "n"], [3, 0], [0, 2]),
    (["m", "k"], ["k", "n"], [0, 3], [3, 2]),
]


def product(x: Symbol, y: Symbol) -> Symbol:
    return x @ y


@pytest.mark.numbers
@pytest.mark.parametrize(
    ("dtype", "shapes"),
    [(DType.int64, SHAPES), (DType.uint(70), SHAPES), *[(dtype, SHAPES[:1]) for dtype in [*NARROW, *WIDTHS]]],
    ids=lambda value: str(value) if isinstance(value, DType) else str(len(value)),
)
def test_matrix_products_are_exact_under_hls(dtype: DType, shapes: Any, tmp_path: Path) -> None:
    for left, right, fed, other in shapes:
        x, y = drawn(dtype, fed, 1), drawn(dtype, other, 2)
        wanted = x @ y if fed[-1] else np.zeros((fed[0], other[-1]), object)
        types = [TensorType(dtype, left), TensorType(dtype, right)]
        check(product, types, [x, y], [wanted], promotion="allo_hls", folder=tmp_path if shapes is SHAPES else None)


@pytest.mark.numbers
@pytest.mark.parametrize("bits", [66, 73, 89, 96, 97, 98, 121, 129, 161, 193])
@pytest.mark.parametrize("size", ["k", 3])
def test_last_word_has_the_sign_when_words_end_where_digits_do(bits: int, size: Any) -> None:
    x = drawn(DType.int(bits - 1), [3], bits)
    x[0] = -(1 << (bits - 2))

    def squared(x: Symbol) -> tuple[Symbol, ...]:
        wide = x.cast(DType.int(bits + 40)) - 1
        return wide @ wide, ops.einsum("i,i->", wide, wide)

    exact = ((x - 1) * (x - 1)).sum()
    check(squared, [TensorType(DType.int(bits - 1), [size])], [x], [exact, exact])


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_matrix_products_wrap_in_systems_that_keep_the_width(dtype: DType) -> None:
    x, y = drawn(dtype, [3, 5], 3), drawn(dtype, [5, 4], 4)
    check(product, [TensorType(dtype, [3, 5]), TensorType(dtype, [5, 4])], [x, y], [x @ y])


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [DType.int64, DType.uint64, DType.int(96)], ids=str)
@pytest.mark.parametrize("number", ["least", "greatest"])
def test_long_sums_of_the_greatest_products_are_exact(dtype: DType, number: str) -> None:
    value = int(dtype.min) if number == "least" and dtype.is_signed else int(dtype.max)
    for length in (1, 256, 257, 3000):
        x, y = np.full((2, length), value, object), np.full((length, 1), value, object)
        types = [TensorType(dtype, [2, length]), TensorType(dtype, [length, 1])]
        check(product, types, [x, y], [[[value * value * length]] * 2], promotion="allo_hls")


@pytest.mark.numbers
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_matrix_products_of_any_two_widths_are_pythons(data: st.DataObject) -> None:
    left, right = data.draw(dtypes(33, 150)), data.draw(dtypes(33, 150))
    m, k, n = (data.draw(st.integers(1, 5)) for _ in "mkn")
    seed = data.draw(st.integers(0, 1000))
    x, y = drawn(left, [m, k], seed), drawn(right, [k, n], seed + 1)
    check(product, [TensorType(left, [m, k]), TensorType(right, [k, n])], [x, y], [x @ y], promotion="allo_hls")


FUNCTIONS: list[tuple[Function, Any, list[list[Any]], list[list[int]]]] = [
    (lambda a, b: ops.vecdot(a, b), lambda a, b: (a * b).sum(-1), [[3, 4], [4]], [[3, 4], [4]]),
    (lambda a, b: ops.vecdot(a, b, axis=-2), lambda a, b: (a * b).sum(0), [["n", 2], ["n", 2]], [[3, 2], [3, 2]]),
    (lambda a, b: ops.einsum("ij,kj->ik", a, b), lambda a, b: a @ b.T, [[3, "n"], [2, "n"]], [[3, 4], [2, 4]]),
    (lambda a, b: ops.einsum("iij,kj->k", a, b), lambda a, b: np.einsum("iij,kj->k", a, b), [[3, 3, "n"], [2, "n"]],
     [[3, 3, 4], [2, 4]]),
    (lambda a, b: ops.einsum("...ij,...jk->...ik", a, b), np.matmul, [[2, 3, 4], [4, 2]], [[2, 3, 4], [4, 2]]),
    (lambda a, b: ops.einsum("i,j->ij", a, b), np.multiply.outer, [[3], [4]], [[3], [4]]),
    (lambda a, b: ops.tensordot(a, b, 1), lambda a, b: np.tensordot(a, b, 1), [[2, 3], [3, 2]], [[2, 3], [3, 2]]),
    (lambda a, b, c: ops.einsum("ij,jk,ki->", a, b, c), lambda a, b, c: np.trace(a @ b @ c),
     [[3, "n"], ["n", 2], [2, 3]], [[3, 4], [4, 2], [2, 3]]),
    (lambda a, b, c: ops.einsum("ij,jk,kl->il", a, b, c), lambda a, b, c: a @ b @ c,
     [[3, "n"], ["n", 2], [2, 3]], [[3, 4], [4, 2], [2, 3]]),
    (lambda a, b, c: ops.linear(a, b, c), lambda a, b, c: a @ b.T + c, [[3, 2], [4, 2], [4]], [[3, 2], [4, 2], [4]]),
    (lambda a, b: ops.outer(a, b), np.multiply.outer, [["n"], [4]], [[3], [4]]),
    (lambda a, b, c: ops.fma(a, b, c), lambda a, b, c: a * b + c, [[3, 1], [4], []], [[3, 1], [4], []]),
    (lambda a: ops.einsum("ii->i", a * a), lambda a: np.diagonal(a * a), [[3, 3]], [[3, 3]]),
    (lambda a: ops.einsum("iij->j", a * a), lambda a: np.einsum("iij->j", a * a), [[3, 3, 2]], [[3, 3, 2]]),
    (lambda a: ops.einsum("ij->ji", a * a), lambda a: (a * a).T, [[3, 2]], [[3, 2]]),
]  # fmt: skip


@pytest.mark.numbers
@pytest.mark.parametrize("place", range(len(FUNCTIONS)))
@pytest.mark.parametrize("dtype", [DType.int64, DType.uint(70)], ids=str)
def test_sums_of_products_are_pythons(dtype: DType, place: int) -> None:
    function, reference, dims, fed = FUNCTIONS[place]
    arrays = [drawn(dtype, shape, i) for i, shape in enumerate(fed)]
    types = [TensorType(dtype, shape) for shape in dims]
    check(function, types, arrays, [reference(*arrays)], promotion="allo_hls")


@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
def test_vecdot_has_the_type_of_the_matrix_product_under_every_system() -> None:
    names = ["int8", "uint8", "int16", "int32", "uint32", "int64", "int33", "uint70", "float16", "float64"]
    for system in ("allo_hls", "allo_cpp", "max"):
        graph = Graph("all", {n: TensorType(DType.of(n), [4]) for n in names}, promotion=system)
        for lhs, rhs in itertools.product(graph.inputs, repeat=2):
            try:
                result = lhs @ rhs
            except gc.errors.GraphcoreError as refusal:
                with pytest.raises(type(refusal)):
                    ops.vecdot(lhs, rhs)
                continue
            assert ops.vecdot(lhs, rhs).type is result.type


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [DType.int8, DType.int32, DType.uint32], ids=str)
def test_vecdot_of_narrow_integers_is_exact_under_hls(dtype: DType) -> None:
    x, y = drawn(dtype, [3, 2], 5), drawn(dtype, [3, 2], 6)
    types = [TensorType(dtype, [3, 2])] * 2
    graph = check(ops.vecdot, types, [x, y], [(x * y).sum(-1)], promotion="allo_hls")
    assert graph.outputs[0].dtype is (DType.uint if dtype.is_unsigned else DType.int)(2 * dtype.bits)


def test_products_of_low_bits_stay_in_64_bits() -> None:
    graph = graph_of(lambda a, b: (a @ b).cast(DType.int32), DType.int64, DType.int64, promotion="allo_hls")
    operators = [node.op_type for node in gc.runtime.lowering.lower(graph, "cpu").nodes]
    assert operators.count("MatMul") == 1
    assert len(operators) < 5


@pytest.mark.numbers
@pytest.mark.parametrize("bits", [33, 46, 63, 64, 65, 80])
@pytest.mark.parametrize("less", [0, 1, 2, 3, 1 << 31, (1 << 32) - 1])
@pytest.mark.parametrize("taken", [30, 31, 32, 33])
def test_products_end_when_one_limb_is_a_little_smaller_than_a_digit(bits: int, less: int, taken: int) -> None:
    wide = DType.int(128)

    def difference(a: Symbol, b: Symbol, c: Symbol) -> Symbol:
        return a.cast(wide) * (b.cast(wide) - c.cast(wide) - a.graph.constant(np.array(less)).cast(wide))

    kinds = [DType.uint(bits), DType.uint32, DType.uint(taken)]
    arrays = [drawn(kind, [4], seed) for seed, kind in enumerate(kinds)]
    for array, kind in zip(arrays, kinds, strict=True):
        array[0], array[1] = int(kind.max), 0
    a, b, c = (array.astype(object) for array in arrays)
    check(difference, [TensorType(kind, ["n"]) for kind in kinds], arrays, [a * (b - c - less)], promotion="max")
