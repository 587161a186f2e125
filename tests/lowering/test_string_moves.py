"""Operators that move strings, where onnxruntime's kernels move numbers only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcore import ops
from graphcore.errors import GraphError
from tests.support.graphs import Array
from tests.support.graphs import run_unchecked as run

on: Any = ops.onnx


def words(*shape: int) -> Array:
    return np.array([f"w{i}" for i in range(int(np.prod(shape)))], object).reshape(shape)


MOVED: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "pad": (
        lambda x: on.Pad(x, [1, 0, 0, 2], "-"),
        lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values="-"),
        (2, 3),
    ),
    "pad with nothing": (
        lambda x: on.Pad(x, [0, 1, 0, 0]),
        lambda x: np.pad(x, ((0, 0), (1, 0)), constant_values=""),
        (2, 3),
    ),
    "pad with the edge": (
        lambda x: on.Pad(x, [1, 1, 1, 1], mode="edge"),
        lambda x: np.pad(x, 1, mode="edge"),
        (2, 3),
    ),
    "trilu": (lambda x: on.Trilu(x), lambda x: np.where(np.tri(3, k=-1, dtype=bool), "", x), (3, 3)),
    "crop": (lambda x: on.CenterCropPad(x, [2, 2]), lambda x: x[1:3, 1:3], (4, 4)),
    "crop and pad": (
        lambda x: on.CenterCropPad(x, [2, 4]),
        lambda x: np.pad(x[1:3], ((0, 0), (1, 1)), constant_values=""),
        (4, 2),
    ),
    "depth to space": (
        lambda x: on.DepthToSpace(x, blocksize=2),
        lambda x: x.reshape(1, 2, 2, 1, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 1, 4, 6),
        (1, 4, 2, 3),
    ),
    "space to depth": (
        lambda x: on.SpaceToDepth(x, blocksize=2),
        lambda x: x.reshape(1, 1, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 4, 2, 3),
        (1, 1, 4, 6),
    ),
    "resize": (
        lambda x: on.Resize(x, None, [1.0, 1.0, 2.0, 3.0], mode="nearest"),
        lambda x: x.repeat(2, 2).repeat(3, 3),
        (1, 1, 2, 2),
    ),
    "upsample": (lambda x: on.Upsample(x, [1.0, 1.0, 2.0, 2.0]), lambda x: x.repeat(2, 2).repeat(2, 3), (1, 1, 2, 2)),
    "nonzero": (lambda x: on.NonZero(x), lambda x: np.array(np.nonzero(x != "w1")), (2, 3)),
}


@pytest.mark.parametrize("name", MOVED)
def test_strings_are_put_where_numbers_would_be(name: str) -> None:
    call, want, shape = MOVED[name]
    x = words(*shape)
    if name == "nonzero":
        expected = want(x)
        x = np.where(x == "w1", "", x)
    else:
        expected = want(x)
    (result,) = run(call, x, dims=[["n", *shape[1:]]])
    assert result.tolist() == expected.tolist()


def test_strings_are_written_into_a_cache_where_its_indices_say() -> None:
    past, new = words(2, 4, 1), np.array(["a", "b"], object).reshape(2, 1, 1)
    where = np.array([3, 0])
    (result,) = run(lambda p, n, w: on.TensorScatter(p, n, w), past, new, where, dims=[[2, 4, 1], [2, 1, 1], [2]])
    expected = past.copy()
    expected[0, 3], expected[1, 0] = "a", "b"
    assert result.tolist() == expected.tolist()


def test_empty_strings_move_where_there_are_none() -> None:
    (result,) = run(lambda x: on.Pad(x, [1, 1], "-"), words(0))
    assert result.tolist() == ["-", "-"]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: on.Resize(x, None, [1.0, 1.0, 2.0, 2.0], mode="linear"),
        lambda x: on.GridSample(x, np.zeros((1, 2, 2, 2), np.float32)),
        lambda x: on.Col2Im(on.Reshape(x, [1, 4, 1]), [2, 2], [2, 2]),
    ],
)
def test_averages_and_sums_of_strings_are_refused_in_words(call: Any) -> None:
    with pytest.raises(GraphError, match="strings have no"):
        run(call, words(1, 1, 2, 2), dims=[[1, 1, 2, 2]])
