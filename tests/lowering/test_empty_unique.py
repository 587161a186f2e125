"""Unique along an axis of operands without elements, on which kernels of onnxruntime end the process, and of NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy import inf, nan
from onnx import helper, numpy_helper

import graphcore as gc

pytestmark = pytest.mark.releases


def unique(x: np.ndarray[Any, Any], axis: int | None, form: str, **attributes: Any) -> onnx.ModelProto:
    """Return a model of an operand that is a constant, or an input of dims that are known or named."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    dims = [f"d{axis}" for axis in range(x.ndim)] if form == "named" else x.shape
    attributes.update({} if axis is None else {"axis": axis})
    graph = helper.make_graph(
        [helper.make_node("Unique", ["x"], ["y", "first", "places", "counts"], **attributes)],
        "unique",
        [] if form == "constant" else [helper.make_tensor_value_info("x", kind, dims)],
        [helper.make_tensor_value_info("y", kind, None)]
        + [helper.make_tensor_value_info(name, 7, None) for name in ("first", "places", "counts")],
        [numpy_helper.from_array(x, "x")] if form == "constant" else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("dtype", "float32 float64 int8 int64 int32 uint64 bool float16 object".split())
@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 0), 0), ((0, 3), 0), ((0, 3), 1), ((2, 0), 1), ((0, 0), 0), ((2, 0, 3), 2), ((3, 2), 0)]
)
@pytest.mark.parametrize("form", ["constant", "known", "named"])
def test_rows_without_elements_are_one_row(form: str, shape: tuple[int, ...], axis: int, dtype: str) -> None:
    x = np.full(shape, "" if dtype == "object" else 0, dtype)
    count, remaining = shape[axis], min(shape[axis], 1)
    model = gc.InferenceSession(intra_op_num_threads=1).load(unique(x, axis, form))
    y, first, places, counts = model(*([] if form == "constant" else [x]))
    assert y.shape == (*shape[:axis], remaining, *shape[axis + 1 :])
    assert y.dtype == x.dtype
    assert (first.tolist(), places.tolist(), counts.tolist()) == ([0] * remaining, [0] * count, [count] * remaining)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("form", ["constant", "known", "named"])
@pytest.mark.parametrize(
    ("x", "axis", "is_sorted", "wanted"),
    [
        ([3, nan, 5, -inf], None, 1, ([3, 0, 2, 1], [1, 3, 2, 0], [1, 1, 1, 1])),
        ([[5, nan], [-nan, 3], [-0.0, 0]], None, 0, ([0, 1, 3, 4], [0, 1, 1, 2, 3, 3], [1, 2, 1, 2])),
        ([nan, 2, inf, 2, nan], 0, 1, ([1, 2, 0], [2, 0, 1, 0, 2], [2, 1, 2])),
        ([[1, nan, 1], [nan, 2, nan]], 1, 1, ([0, 1], [0, 1, 0], [2, 1])),
        ([[1, nan], [0, 7], [1, nan], [1, -7]], 0, 1, ([1, 3, 0], [2, 0, 2, 1], [1, 1, 2])),
    ],
)
def test_nan_is_one_value_behind_all_numbers(
    x: Any, axis: int | None, is_sorted: int, wanted: tuple[list[int], ...], form: str, dtype: str
) -> None:
    x = np.array(x, dtype)
    model = gc.InferenceSession(intra_op_num_threads=1).load(unique(x, axis, form, sorted=is_sorted))
    y, *others = model(*([] if form == "constant" else [x]))
    assert tuple(each.tolist() for each in others) == wanted
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x.ravel()[wanted[0]] if axis is None else x.take(wanted[0], axis))
