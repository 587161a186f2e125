"""Selection among boxes, against a loop over all pairs."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcore import Dim, DType, Graph, InferenceSession, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from graphcore.runtime import Model
from tests.sampling import drawn

Array = np.ndarray[Any, Any]
D = DType


def corners(box: Array, centered: bool) -> tuple[float, float, float, float]:
    a, b, c, d = (float(v) for v in box)
    if centered:
        return b - d / 2, a - c / 2, b + d / 2, a + c / 2
    return min(a, c), min(b, d), max(a, c), max(b, d)


def overlap(x: Array, y: Array, centered: bool) -> float:
    """The part that the intersection is of the union."""
    p, q = corners(x, centered), corners(y, centered)
    sides = [max(0.0, min(p[i + 2], q[i + 2]) - max(p[i], q[i])) for i in (0, 1)]
    both = sides[0] * sides[1]
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (p, q)]
    return both / (sum(areas) - both) if both else 0.0


def suppress(boxes: Array, scores: Array, most: int, iou: float, least: float | None, centered: bool) -> Array:
    rows = []
    for image, of_image in enumerate(scores):
        for label, rated in enumerate(of_image):
            chosen: list[int] = []
            for i in sorted(range(len(rated)), key=lambda i: (-rated[i], i)):
                if len(chosen) == most or (least is not None and rated[i] <= least):
                    break
                if all(overlap(boxes[image, i], boxes[image, j], centered) <= iou for j in chosen):
                    chosen.append(i)
            rows += [(image, label, i) for i in chosen]
    return np.array(rows, np.int64).reshape(-1, 3)


def model(dtype: DType = D.float32, **options: Any) -> Model:
    graph = Graph("nms", {"b": TensorType(dtype, ["batch", "n", 4]), "s": TensorType(dtype, ["batch", "c", "n"])})
    graph.output(ops.non_maximum_suppression(graph["b"], graph["s"], **options))
    return InferenceSession().load(graph)


OPTIONS = list(itertools.product((0, 1, 3, 100), (0.0, 0.25, 1.0), (None, 0.5), (False, True)))
"""Most boxes, overlap, least score, and whether a box is its centre and size."""


@functools.cache
def model_of(options: tuple[int, float, float | None, bool]) -> Model:
    most, iou, least, centered = options
    return model(max_output_boxes_per_class=most, iou_threshold=iou, score_threshold=least, center_point_box=centered)


@settings(max_examples=drawn(150), deadline=None)
@given(
    options=st.sampled_from(OPTIONS),
    batch=st.integers(1, 2),
    classes=st.integers(1, 3),
    count=st.integers(0, 6),
    seed=st.integers(0, 10**6),
)
def test_boxes_that_are_kept_are_those_of_the_definition(
    options: tuple[int, float, float | None, bool], batch: int, classes: int, count: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    # Whole corners, so that no area rounds.
    boxes = random.integers(0, 8, (batch, count, 4)).astype(np.float32)
    scores = random.permuted(np.arange(batch * classes * count)).reshape(batch, classes, count).astype(np.float32) / 16
    (got,) = model_of(options)(boxes, scores)
    np.testing.assert_array_equal(got, suppress(boxes, scores, *options))


@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16, D.float64, D.int8, D.uint16, D.int64], ids=str)
def test_boxes_of_any_dtype_are_compared_as_floats(dtype: DType) -> None:
    boxes = np.array([[[0, 0, 4, 4], [0, 1, 4, 5], [6, 6, 8, 8]]]).astype(dtype.numpy)
    scores = np.array([[[1, 3, 2]]]).astype(dtype.numpy)
    (got,) = model(dtype, max_output_boxes_per_class=3, iou_threshold=0.5)(boxes, scores)
    np.testing.assert_array_equal(got, [[0, 0, 1], [0, 0, 2]])


def test_number_of_boxes_is_called_as_one_likes() -> None:
    graph = Graph("nms", {"b": TensorType(D.float32, [1, 5, 4]), "s": TensorType(D.float32, [1, 2, 5])})
    b, s = graph.inputs
    assert ops.non_maximum_suppression(b, s, 2).shape == [Dim.dynamic(), 3]
    assert ops.non_maximum_suppression(b, s, 2, out_dim="kept").shape == ["kept", 3]


@pytest.mark.parametrize(
    ("boxes", "scores", "options", "error", "words"),
    [
        ([1, 5], [1, 2, 5], {}, ShapeError, r"boxes must be \[batch, count, 4\]"),
        ([1, 5, 3], [1, 2, 5], {}, ShapeError, r"boxes must be \[batch, count, 4\], got \[1, 5, 3\]"),
        ([1, 5, 4], [2, 5], {}, ShapeError, r"scores must be \[batch, classes, count\]"),
        ([1, 5, 4], [1, 2, 6], {}, ShapeError, "boxes and scores do not match"),
        ([2, 5, 4], [1, 2, 5], {}, ShapeError, "boxes and scores do not match"),
        ([1, 5, 4], [1, 2, 5], {"max_output_boxes_per_class": -1}, DTypeError, "is not a count"),
        ([1, 5, 4], [1, 2, 5], {"max_output_boxes_per_class": 1.5}, DTypeError, "is not a count"),
        ([1, 5, 4], [1, 2, 5], {"iou_threshold": 1.5}, DTypeError, "give 0 to 1"),
        ([1, 5, 4], [1, 2, 5], {"score_threshold": "x"}, DTypeError, "is not a number"),
    ],
)
def test_boxes_are_refused_when_they_make_no_sense(
    boxes: list[int], scores: list[int], options: dict[str, Any], error: type[Exception], words: str
) -> None:
    graph = Graph("nms", {"b": TensorType(D.float32, boxes), "s": TensorType(D.float32, scores)})
    with pytest.raises(error, match=words):
        ops.non_maximum_suppression(graph["b"], graph["s"], **{"max_output_boxes_per_class": 2, **options})


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_limits_are_numbers_or_symbols(options: tuple[int, float, float | None, bool]) -> None:
    most, part, least, centered = options
    types: dict[str, TensorType] = {
        "boxes": TensorType(D.float32, [1, "n", 4]),
        "scores": TensorType(D.float32, [1, 2, "n"]),
        "most": TensorType(D.int32, []),
        "part": TensorType(D.float64, []),
        "least": TensorType(D.float16, []),
    }
    graph = Graph("nms", types)
    y = ops.non_maximum_suppression(
        graph["boxes"],
        graph["scores"],
        graph["most"],
        graph["part"],
        None if least is None else graph["least"],
        center_point_box=centered,
    )
    graph.output(y)
    model = InferenceSession().load(graph)
    random = np.random.default_rng(3)
    boxes = random.integers(0, 8, (1, 9, 4)).astype(np.float32)
    scores = random.permutation(18).reshape(1, 2, 9).astype(np.float32) / 16
    limits = np.array(most, np.int32), np.array(part), np.array(least or 0, np.float16)
    np.testing.assert_array_equal(model(boxes, scores, *limits)[0], suppress(boxes, scores, *options))


def test_limits_that_are_not_scalars_are_refused() -> None:
    graph = Graph("nms", {"b": TensorType(D.float32, [1, 5, 4]), "s": TensorType(D.float32, [1, 2, 5])})
    b, s = graph.inputs
    with pytest.raises(ShapeError, match=r"iou_threshold must be a scalar, got shape \[5\]"):
        ops.non_maximum_suppression(b, s, 2, s[0, 0])
    with pytest.raises(DTypeError, match="max_output_boxes_per_class must be a count, got float32"):
        ops.non_maximum_suppression(b, s, s[0, 0, 0])
    with pytest.raises(DTypeError, match="score_threshold must be a number, got bool"):
        ops.non_maximum_suppression(b, s, 2, 0.5, s[0, 0, 0] > 0)
