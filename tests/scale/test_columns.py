"""Columns of Arrow for every dtype, and the check of a table's columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: the extra ray")

from graphcore import DType, TensorType  # noqa: E402  after the skip
from graphcore.errors import FeedError  # noqa: E402
from graphcore.scale.batch.arrow_types import DTYPE_KEY, check, field  # noqa: E402
from graphcore.scale.batch.worker import arrays_of, column  # noqa: E402
from graphcore.scale.storage import from_storage, storage_dtype  # noqa: E402

DTYPES = [
    "bool", "int2", "uint2", "int4", "uint4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0", "float4_e2m1", "float6_e2m3fn", "float6_e3m2fn", "string",
]  # fmt: skip

SHAPES: dict[str, list[Any]] = {
    "scalar": [],
    "vector": [3],
    "matrix": [2, 3],
    "ragged": ["n"],
    "ragged matrix": ["n", 2],
}


def _rows(dtype: DType, kind: str) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    results = []
    for count in (2, 0, 3):
        shape = [count if dim == "n" else dim for dim in SHAPES[kind]]
        if dtype is DType.string:
            row = np.array([f"t{i} ü" for i in range(int(np.prod(shape)))], object).reshape(shape)
        elif dtype.kind == "bool":
            row = rng.integers(0, 2, shape).astype(bool)
        elif dtype.is_integer:
            row = np.asarray(rng.integers(int(dtype.min), min(int(dtype.max), 2**62), shape)).astype(dtype.numpy)
        else:
            row = np.asarray(2.0 ** rng.integers(0, 2, shape)).astype(dtype.numpy)
        results.append(np.asarray(row))
    return results


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", DTYPES)
def test_rows_come_back_from_a_column_as_they_were(name: str, kind: str) -> None:
    dtype = DType.of(name)
    type_ = TensorType(dtype, SHAPES[kind])
    rows = _rows(dtype, kind)
    result = field("c", type_)
    values = column(rows, type_, result)
    assert values.type == result.type
    check("m", {"c": result.type}, {"x": "c"}, {"x": type_})
    for row, back in zip(rows, arrays_of(pa.chunked_array([values]), type_, "c"), strict=True):
        assert not isinstance(back, FeedError)
        assert (back.dtype, back.shape) == (row.dtype, row.shape)
        np.testing.assert_array_equal(back, row)
    assert (result.metadata or {}).get(DTYPE_KEY) == (None if storage_dtype(dtype) is dtype else name.encode())


@pytest.mark.parametrize("kind", SHAPES)
def test_row_of_none_is_null_and_comes_back_as_an_error(kind: str) -> None:
    type_ = TensorType("float32", SHAPES[kind])
    rows = [None, *_rows(DType.float32, kind), None]
    values = column(rows, type_, field("c", type_))
    assert [value is None for value in values.to_pylist()] == [row is None for row in rows]
    back = arrays_of(pa.chunked_array([values]), type_, "c")
    assert [isinstance(row, FeedError) for row in back] == [row is None for row in rows]


@pytest.mark.parametrize(("name", "value"), [("bfloat16", 0.1), ("int4", 8), ("uint2", 4), ("float8_e4m3fn", 1000.0)])
def test_value_that_a_dtype_has_not_is_an_error_and_not_rounded(name: str, value: float) -> None:
    dtype = DType.of(name)
    with pytest.raises(FeedError, match=f"column 'c': .* is not a value of {name}"):
        from_storage(np.array([value], storage_dtype(dtype).numpy), dtype, "column 'c'")


def test_nan_stays_nan_in_storage() -> None:
    assert np.isnan(from_storage(np.array([np.nan], np.float32), DType.bfloat16, "c").astype(np.float32)).all()


@pytest.mark.parametrize(
    ("arrow", "type_", "text"),
    [
        (pa.float64(), TensorType("float32", []), "column 'c' is float64[], but a row of input 'x' must be float32[]"),
        (
            pa.list_(pa.int32()),
            TensorType("int64", ["n"]),
            "column 'c' is int32[?], but a row of input 'x' must be int64[n]",
        ),
        (pa.int64(), TensorType("int64", ["n"]), "column 'c' is int64[], but"),
        (pa.list_(pa.float32(), 4), TensorType("float32", [3]), "column 'c' is float32[4], but"),
        (pa.float32(), TensorType("int4", []), "be int4[], stored as int8"),
        (pa.string(), TensorType("float32", []), "column 'c' is string[]"),
        (pa.struct([("a", pa.int8())]), TensorType("int8", []), "column 'c' is struct<a: int8>[]"),
        (np.dtype("float32"), TensorType("float32", []), "column 'c' is float32[]"),
    ],
)
def test_check_names_column_dtype_and_shape_when_they_differ(arrow: Any, type_: TensorType, text: str) -> None:
    with pytest.raises(FeedError) as caught:
        check("m", {"c": arrow}, {"x": "c"}, {"x": type_})
    assert text in caught.value.summary


def test_check_says_all_that_differs_of_a_column() -> None:
    images = pa.fixed_shape_tensor(pa.uint8(), [320, 200, 3])
    with pytest.raises(FeedError, match=r"column 'c' is uint8\[320, 200, 3\], but a row of input 'x'") as caught:
        check("m", {"c": images}, {"x": "c"}, {"x": TensorType("float32", [3, "h", "w"])})
    assert caught.value.help == ("cast it to float32 and reshape its rows, or give another column: inputs={'x': ...}")


def test_check_names_the_columns_when_there_is_none_of_a_name() -> None:
    with pytest.raises(FeedError, match="there is no column 'idss' for input 'x'") as caught:
        check("m", {"ids": pa.int64()}, {"x": "idss"}, {"x": TensorType("int64", [])})
    assert "did you mean ids" in caught.value.help


def test_rows_with_nulls_inside_are_errors_and_the_others_are_not() -> None:
    values = pa.array([[1, 2], None, [3, None], []], pa.list_(pa.int64()))
    back = arrays_of(pa.chunked_array([values]), TensorType("int64", ["n"]), "c")
    assert [isinstance(row, FeedError) for row in back] == [False, True, True, False]
    even = pa.array([[1, 2], [3, None]], pa.list_(pa.float32(), 2))
    back = arrays_of(pa.chunked_array([even]), TensorType("float32", [2]), "c")
    assert [isinstance(row, FeedError) for row in back] == [False, True]


def test_slices_of_a_column_have_their_own_rows() -> None:
    values = pa.array([[i] * i for i in range(6)], pa.list_(pa.int64())).slice(2, 3)
    back = arrays_of(pa.chunked_array([values]), TensorType("int64", ["n"]), "c")
    assert [row.tolist() for row in back if not isinstance(row, FeedError)] == [[2, 2], [3, 3, 3], [4, 4, 4, 4]]
    even = pa.array([[i, i] for i in range(6)], pa.list_(pa.int64(), 2)).slice(4)
    back = arrays_of(pa.chunked_array([even]), TensorType("int64", [2]), "c")
    assert [row.tolist() for row in back if not isinstance(row, FeedError)] == [[4, 4], [5, 5]]
