"""Values read as another dtype, for every pair of dtypes, against views of NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import DTypeError, RunError, ShapeError
from tests.support import reference

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

Array = np.ndarray[Any, Any]
D = DType
BYTES = [
    D.bool, D.int8, D.uint8, D.int16, D.uint16, D.int32, D.uint32, D.int64, D.uint64, D.float16, D.bfloat16, D.float32,
    D.float64, D.float8_e4m3fn, D.float8_e5m2, D.float8_e4m3fnuz, D.float8_e5m2fnuz, D.float8_e8m0,
]  # fmt: skip


def sample(dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return random bits of a dtype, of which no NaN, whose payload 8 bits lose."""
    raw = np.random.default_rng(dtype.bits).integers(0, 256, (*shape[:-1], shape[-1] * dtype.numpy.itemsize), np.uint8)
    if dtype is D.bool:
        return raw > 99
    x = raw.view(dtype.numpy)
    if not dtype.is_float:
        return x
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(x.astype(np.float64)), np.ones((), dtype.numpy), x)


def view(x: Array, dtype: DType) -> Array:
    return x.view(np.uint8) != 0 if dtype is D.bool else x.view(dtype.numpy)


def same(got: Array, want: Array) -> bool:
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.dtype.itemsize == 8:
        return np.array_equal(got.view(np.uint64), want.view(np.uint64)) or np.array_equal(got, want, equal_nan=True)
    a, b = reference.exact(got), reference.exact(want)
    return bool((((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))).all())


@pytest.mark.parametrize("source", BYTES, ids=str)
def test_bits_are_read_as_any_other_dtype(source: DType) -> None:
    static, named = sample(source, (3, 16)), sample(source, (16,))
    graph = Graph("views", {"x": TensorType(source, [3, 16]), "y": TensorType(source, ["n"])})
    x, y = graph.inputs
    items = [ops.bitcast(s, target) for s in (x, y, x[:, :]) for target in BYTES if target is not source]
    graph.output(*items)
    with np.errstate(invalid="ignore"):
        results = gc.InferenceSession().load(graph)(static, named)
        wanted = [view(a, target) for a in (static, named, static) for target in BYTES if target is not source]
        wrong = [str(s.dtype) for s, r, w in zip(items, results, wanted, strict=True) if not same(r, w)]
    assert not wrong


def cast(dtype: DType, numbers: Any, *targets: DType) -> list[list[Any]]:
    graph = Graph("views", {"x": TensorType(dtype, ["n"])})
    graph.output(*(ops.bitcast(graph["x"], target) for target in targets))
    (array,) = (np.array(numbers, dtype.numpy),)
    return [r.astype(np.float64).tolist() for r in gc.InferenceSession().load(graph)(array)]


def test_dtypes_below_a_byte_lie_lowest_first() -> None:
    assert cast(D.uint8, [0x12, 0xF7], D.uint4, D.int4, D.uint2, D.float4_e2m1) == [
        [2, 1, 7, 15], [2, 1, 7, -1], [2, 0, 1, 0, 3, 1, 3, 3], [1, 0.5, 6, -6],
    ]  # fmt: skip
    assert cast(D.int4, [2, 1, 7, -1], D.uint8, D.uint16, D.uint4) == [[0x12, 0xF7], [0xF712], [2, 1, 7, 15]]
    assert cast(D.float4_e2m1, [1, 0.5, 6, -6], D.uint8, D.int4) == [[0x12, 0xF7], [2, 1, 7, -1]]


def test_a_bool_is_a_bit_or_a_byte() -> None:
    bools = [True, False, True, True, False, False, False, False]
    assert cast(D.bool, bools, D.uint8, D.uint(1), D.int(1)) == [
        [1, 0, 1, 1, 0, 0, 0, 0], [1, 0, 1, 1, 0, 0, 0, 0], [-1, 0, -1, -1, 0, 0, 0, 0],
    ]  # fmt: skip
    assert cast(D.uint(1), bools, D.bool, D.uint8, D.uint4) == [bools, [13], [13, 0]]


def test_integers_of_any_width_are_read_as_others() -> None:
    assert cast(D.uint(7), [127, 1, 64, 3], D.int(7), D.uint(14)) == [[-1, 1, -64, 3], [0xFF, 0x1C0]]
    graph = Graph("views", {"x": TensorType(D.uint32, [4])})
    wide = ops.bitcast(graph["x"], D.uint(128))
    graph.output(wide.bitcast(D.uint32), wide.bitcast(D.uint64), ops.bitcast(wide, D.int(128)).bitcast(D.uint(32)))
    words = np.array([1, 2, 0x80000003, 0xFFFFFFFF], np.uint32)
    back, pairs, again = gc.InferenceSession().load(graph)(words)
    assert back.tolist() == again.tolist() == words.tolist()
    assert pairs.tolist() == words.view(np.uint64).tolist()


def test_index_and_tensor_float32_have_the_bits_that_they_are_stored_in() -> None:
    assert cast(D.float64, [1.0], D.index, D.address) == [[float(0x3FF << 52)]] * 2
    assert cast(D.index, [0x3FF << 52], D.float64, D.index) == [[1.0], [float(0x3FF << 52)]]
    assert cast(D.tensor_float32, [1.0], D.uint32) == [[float(0x7F << 23)]]
    assert cast(D.uint32, [(0x7F << 23) + 1], D.tensor_float32) == [[1.0]]


@pytest.mark.parametrize(
    ("dtype", "shape", "target", "error", "text"),
    [
        (D.float32, [4], D.uint(7), DTypeError, "float32 has 32 bits and uint7 has 7: neither is a multiple"),
        (D.uint8, [3], D.uint32, ShapeError, "the last axis must be a multiple of 4 for 32 bits, got 3"),
        (D.uint8, [], D.uint16, ShapeError, "a scalar of uint8 (8 bits) cannot be read as uint16"),
        (D.uint16, [], D.uint8, ShapeError, "a scalar of uint16 (16 bits) cannot be read as uint8"),
        (D.string, [2], D.uint8, DTypeError, "strings have no bits"),
        (D.uint8, [2], D.string, DTypeError, "strings have no bits"),
        (D.uint8, [2], "word", DTypeError, "no dtype is called 'word'"),
    ],
)
def test_what_cannot_be_read_so_is_refused(
    dtype: DType, shape: list[int], target: Any, error: type[Exception], text: str
) -> None:
    graph = Graph("views", {"x": TensorType(dtype, shape)})
    with pytest.raises(error, match="bitcast") as raised:
        ops.bitcast(graph["x"], target)
    assert text in str(raised.value)
    assert raised.value.help  # type: ignore[attr-defined]


def test_a_length_that_does_not_divide_ends_the_run() -> None:
    graph = Graph("views", {"x": TensorType(D.uint8, ["n"])})
    graph.output(ops.bitcast(graph["x"], D.uint32))
    model = gc.InferenceSession().load(graph)
    assert model(np.zeros(8, np.uint8))[0].shape == (2,)
    with pytest.raises(RunError, match="bitcast"):
        model(np.zeros(7, np.uint8))
