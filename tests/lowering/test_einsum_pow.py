"""Pow, Mod and Einsum of integers as other tools write them: exact where the kernels compute in doubles."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import Dim, DType, Graph, TensorType
from graphcore.types.tensor_types import DimLike
from tests.support import reference

Array = np.ndarray[Any, Any]
D = DType
INTEGERS = [D.int32, D.int64]


def run(op_type: str, arrays: list[Array], attributes: dict[str, Any], shape: tuple[int, ...]) -> Array:
    types = {f"x{i}": TensorType(D.of(a.dtype), [f"of_{n}" for n in a.shape]) for i, a in enumerate(arrays)}
    graph = Graph("one", types)
    graph.output(*graph.op(op_type, list(graph.inputs), attributes, [TensorType(graph.inputs[0].dtype, shape)]))
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    (result,) = gc.InferenceSession().load(graph)(*arrays)
    return np.asarray(result)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->i", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("ij->j", [(3, 4)]),
        ("ii->", [(4, 4)]),
        ("iij->j", [(4, 4, 3)]),
        ("...ij->...i", [(2, 5, 3, 4)]),
        ("i...j->...", [(3, 2, 5, 4)]),
        ("ii...->...", [(4, 4, 2, 3)]),
        ("ij,jk->k", [(3, 4), (4, 2)]),
        ("ij,k->i", [(3, 4), (2,)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 2)]),
        ("ijk,j", [(3, 4, 2), (4,)]),
        ("ij->ji", [(3, 4)]),
    ],
)
def test_einsum_of_integers_wraps(equation: str, shapes: list[tuple[int, ...]], dtype: DType) -> None:
    arrays = [reference.samples(dtype, int(np.prod(s)), i).reshape(s) for i, s in enumerate(shapes)]
    want = reference.wrapped(np.einsum(equation, *(a.astype(object) for a in arrays)), dtype)
    got = run("Einsum", arrays, {"equation": equation}, want.shape)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("exponent", [D.int8, D.int32, D.int64, D.uint32], ids=str)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_power_of_integers_is_exact_whatever_the_exponent_is(dtype: DType, exponent: DType) -> None:
    x, y = reference.samples(dtype, 200, 1), reference.samples(exponent, 200, 2)
    want = reference.wrapped([reference._power(int(a), int(b)) for a, b in zip(x, y, strict=True)], dtype)
    assert np.array_equal(run("Pow", [x, y], {}, (200,)), want)


@pytest.mark.parametrize("dtype", [D.int8, D.int16, *INTEGERS, D.uint8, D.uint16, D.uint32, D.uint64], ids=str)
def test_remainder_with_the_sign_of_the_dividend_is_exact(dtype: DType) -> None:
    x, y = reference.samples(dtype, 200, 1), reference.samples(dtype, 200, 2)

    def power(a: int, b: int) -> int:
        return 0 if not b else abs(a) % abs(b) * (-1 if a < 0 else 1)

    want = reference.wrapped([power(int(a), int(b)) for a, b in zip(x, y, strict=True)], dtype)
    assert np.array_equal(run("Mod", [x, y], {"fmod": 1}, (200,)), want)
    graph = Graph("known", {"x": TensorType(dtype, ["n"])})
    (result,) = graph.op("Mod", [graph["x"], graph.constant(7, dtype)], {"fmod": 1}, [TensorType(dtype, ["n"])])
    graph.output(result)
    (got,) = gc.InferenceSession().load(graph)(x)
    assert np.array_equal(got, reference.wrapped([power(int(a), 7) for a in x], dtype))


@pytest.mark.parametrize("dtype", [D.float32, D.float64, D.int32, D.int64, D.uint8], ids=str)
@pytest.mark.parametrize(
    "equation",
    [
        "bij,bkj->bik", "ij,jik->k", "ij,kj->ik", "kij,lk->jil", "ij,kj,kl->li", ",d,edab,dafe->", "ij,ij->",
        "ij,jk->ki", "iij,kj->ik", "ijj,kj->ik", "iji,kj->ik", "iji->ji", "ijji,j->i", "ijij,k->kji", "iijk->jk",
    ],
)  # fmt: skip
def test_einsum_is_zero_when_any_axis_is_empty(equation: str, dtype: DType) -> None:
    terms = equation.split("->")[0].split(",")
    labels = sorted({label for term in terms for label in term})
    for empty in labels:
        sizes = {label: 0 if label == empty else 2 for label in labels}
        arrays = [np.ones([sizes[label] for label in term], dtype.numpy) for term in terms]
        shapes: list[dict[str, DimLike]] = [{label: f"of_{label}" for label in labels}, {**sizes}]
        for named in shapes:
            graph = Graph("one", [TensorType(dtype, [named[label] for label in term]) for term in terms])
            graph.output(gc.ops.einsum(equation, *graph.inputs))
            (result,) = gc.InferenceSession().load(graph)(*arrays)
            want = np.einsum(equation, *arrays)
            assert (result.shape, result.dtype) == (want.shape, want.dtype)
            assert np.array_equal(result, want)


@pytest.mark.parametrize("dtype", [D.float32, D.int8, D.int64], ids=str)
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ii...->...", [(4, 4, 0, 2)]),
        ("...ij,...kj->...ik", [(2, 3, 0), (2, 4, 0)]),
        ("j...i,...jk->...ik", [(2, 3, 0), (3, 2, 4)]),
        ("...i,ij->...j", [(2, 0), (0, 3)]),
        ("i...,...i->...", [(0, 2, 1), (3, 0)]),
        ("...ii,ij->j...", [(2, 0, 0), (0, 3)]),
    ],
)
def test_einsum_with_dots_is_zero_when_any_axis_is_empty(
    equation: str, shapes: list[tuple[int, ...]], dtype: DType
) -> None:
    arrays = [np.ones(shape, dtype.numpy) for shape in shapes]
    graph = Graph("dots", [TensorType(dtype, [Dim.dynamic()] * a.ndim) for a in arrays])
    graph.output(gc.ops.einsum(equation, *graph.inputs))
    (result,) = gc.InferenceSession().load(graph)(*arrays)
    np.testing.assert_array_equal(result, np.einsum(equation, *arrays), strict=True)
