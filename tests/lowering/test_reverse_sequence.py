"""ReverseSequence of operands whose rank only the run knows: the kernel does not survive one axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from tests.support.onnx_models import model, value

pytestmark = pytest.mark.releases

KINDS = ["float32", "float16", "int8", "int64", "bool"]


def loaded(kind: str, **attributes: int) -> gc.runtime.Model:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"], None, None, None, None, **attributes)
    results = [value("x", number, None), value("n", TensorProto.INT64, ["k"])]
    proto: onnx.ModelProto | bytes = model([node], results, [value("y", number, None)], [], opset=17)
    return gc.InferenceSession().load(proto)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attributes", [{}, {"time_axis": 1, "batch_axis": 0}])
def test_sequence_fails_in_words_when_there_is_one_axis(kind: str, attributes: dict[str, int]) -> None:
    reverse = loaded(kind, **attributes)
    for shape in ((0,), (2,), ()):
        with pytest.raises(gc.GraphcoreError):
            reverse(np.ones(shape, kind), np.array([2, 3]))
    x = np.arange(6).reshape(3, 2).astype(kind)
    lengths = [2, 3] if not attributes else [2, 1, 2]
    np.testing.assert_array_equal(reverse(x, np.array(lengths))[0], turned(x, lengths, attributes.get("time_axis", 0)))


def turned(x: Any, lengths: list[int], time: int) -> Any:
    rows = np.swapaxes(x, 0, 1) if time == 0 else x
    array = np.stack([np.concatenate([row[:n][::-1], row[n:]]) for row, n in zip(rows, lengths, strict=True)])
    return np.swapaxes(array, 0, 1) if time == 0 else array


def test_sequence_is_turned_along_other_axes_when_there_are_more() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    got = loaded("float32", time_axis=1, batch_axis=0)(x, np.array([3, 1]))[0]
    np.testing.assert_array_equal(got, np.stack([x[0, ::-1], x[1]]))
