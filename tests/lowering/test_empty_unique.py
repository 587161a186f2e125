"""Unique along an axis of operands without elements, on which kernels of onnxruntime end the process."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import graphcore as gc

pytestmark = pytest.mark.releases


def unique(x: np.ndarray[Any, Any], axis: int, form: str) -> onnx.ModelProto:
    """Return a model of an operand that is a constant, or an input of dims that are known or named."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    dims = [f"d{axis}" for axis in range(x.ndim)] if form == "named" else x.shape
    graph = helper.make_graph(
        [helper.make_node("Unique", ["x"], ["y", "first", "places", "counts"], axis=axis)],
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
    count, kept = shape[axis], min(shape[axis], 1)
    model = gc.InferenceSession(intra_op_num_threads=1).load(unique(x, axis, form))
    y, first, places, counts = model(*([] if form == "constant" else [x]))
    assert y.shape == (*shape[:axis], kept, *shape[axis + 1 :])
    assert y.dtype == x.dtype
    assert (first.tolist(), places.tolist(), counts.tolist()) == ([0] * kept, [0] * count, [count] * kept)
