"""Selection among the boxes of a detector."""

from __future__ import annotations

import numpy as np

from graphcore.build.declare import op
from graphcore.build.operands import as_index, cast_operand, promote
from graphcore.build.shapes import same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, _dim, _shape, tensor_type


@op(onnx="NonMaxSuppression", rule="float")
def non_maximum_suppression(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_boxes_per_class: int,
    iou_threshold: float = 0.0,
    score_threshold: float | None = None,
    *,
    center_point_box: bool = False,
    out_dim: DimLike | None = None,
) -> Symbol:
    """The boxes that remain when, class by class, only the one with the highest score is kept of boxes that overlap.

    boxes: [batch, count, 4], rows of (y1, x1, y2, x2), any two opposite corners; or (x, y, width, height) of its middle
    and its size if center_point_box. scores: [batch, classes, count]. Both are floats, or integers that become floats;
    they are compared in float32. max_output_boxes_per_class: the most that are kept of a class in an image.
    iou_threshold: from 0 to 1; boxes overlap if their intersection over union is greater. score_threshold: boxes with
    no higher score are dropped; None drops none. out_dim: a name for the number of boxes kept, unknown otherwise.
    Returns int64 [out_dim, 3], rows of (image, class, box) by image, class and falling score. Raises `ShapeError` for
    wrong ranks and sizes, `DTypeError` for thresholds that are no numbers or out of range. ONNX NonMaxSuppression.
    """
    name = "non_maximum_suppression"
    (found, rated), _ = promote(name, "float", {"boxes": boxes, "scores": scores})
    roles = {"boxes": found, "scores": rated}
    if found.rank != 3 or not same_dim(found.shape[2], 4):
        raise ShapeError(f"{name}: boxes has shape {found.shape}", operands=roles, help="give [batch, count, 4]")
    if rated.rank != 3:
        raise ShapeError(f"{name}: scores has shape {rated.shape}", operands=roles, help="give [batch, classes, count]")
    if not same_dim(found.shape[0], rated.shape[0]) or not same_dim(found.shape[1], rated.shape[2]):
        raise ShapeError(
            f"{name}: the scores are not of the boxes: {found.shape} and {rated.shape}",
            operands=roles,
            help="boxes are [batch, count, 4] and scores [batch, classes, count]",
        )
    most = max_output_boxes_per_class
    if not isinstance(most, (int, np.integer)) or isinstance(most, bool) or most < 0:
        raise DTypeError(
            f"{name}: max_output_boxes_per_class={most!r} is no count", operands=roles, help="give 0 or more"
        )
    if not isinstance(iou_threshold, (int, float)) or not 0 <= iou_threshold <= 1:
        raise DTypeError(f"{name}: iou_threshold={iou_threshold!r} is no part", operands=roles, help="give 0 to 1")
    if score_threshold is not None and not isinstance(score_threshold, (int, float)):
        raise DTypeError(
            f"{name}: score_threshold={score_threshold!r} is no number", operands=roles, help="give a float"
        )
    graph = found.graph
    given = [cast_operand(s, DType.float32) for s in (found, rated)]
    limits: list[Symbol | None] = [
        graph.build.vector([int(most)]),
        graph.constant([float(iou_threshold)], DType.float32),
    ]
    if score_threshold is not None:
        limits.append(graph.constant([float(score_threshold)], DType.float32))
    count = Dim.dynamic() if out_dim is None else _dim(out_dim)
    type_ = tensor_type(DType.int64, _shape([count, Dim(3)]))
    attributes = {"center_point_box": int(bool(center_point_box))}
    return as_index(graph.build.emit("NonMaxSuppression", (*given, *limits), type_, attributes))
