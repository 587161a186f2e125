"""Selection among the boxes of a detector."""

from __future__ import annotations

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import as_index, cast_operand, promote
from graphcore.build.shapes import same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, _dim, _shape, tensor_type


@op(onnx="NonMaxSuppression", rule="float")
def non_maximum_suppression(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_boxes_per_class: int | Symbol,
    iou_threshold: float | Symbol = 0.0,
    score_threshold: float | Symbol | None = None,
    *,
    center_point_box: bool = False,
    out_dim: DimLike | None = None,
) -> Symbol:
    """The boxes that remain when, class by class, only the one with the highest score is kept of boxes that overlap.

    boxes: [batch, count, 4], rows of (y1, x1, y2, x2), any two opposite corners; or (x, y, width, height) of its middle
    and its size if center_point_box. scores: [batch, classes, count]. Both are floats, or integers that become floats;
    they are compared in float32. max_output_boxes_per_class: the most that are kept of a class in an image.
    iou_threshold: from 0 to 1; boxes overlap if their intersection over union is greater. score_threshold: boxes with
    no higher score are dropped; None drops none. Each of the three is a number or a scalar Symbol, whose range the run
    checks. out_dim: a name for the number of boxes kept, unknown otherwise.
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
    graph = found.graph
    given = [cast_operand(s, DType.float32) for s in (found, rated)]
    most = _limit(graph, "max_output_boxes_per_class", max_output_boxes_per_class, DType.int64, roles)
    overlap = _limit(graph, "iou_threshold", iou_threshold, DType.float32, roles)
    limits = [most, overlap]
    if score_threshold is not None:
        limits.append(_limit(graph, "score_threshold", score_threshold, DType.float32, roles))
    count = Dim.dynamic() if out_dim is None else _dim(out_dim)
    type_ = tensor_type(DType.int64, _shape([count, Dim(3)]))
    attributes = {"center_point_box": int(bool(center_point_box))}
    return as_index(graph.build.emit("NonMaxSuppression", (*given, *limits), type_, attributes))


def _limit(graph: Graph, role: str, value: object, dtype: DType, roles: dict[str, Symbol]) -> Symbol:
    """Return a limit as a Symbol of shape [1]. Raises `DTypeError` and `ShapeError` for what is none."""
    name = "non_maximum_suppression"
    if isinstance(value, Symbol):
        found = graph.build.own(value, name, role)
        shown = {**roles, role: found}
        if not (found.dtype.is_integer or (found.dtype.is_float and dtype is DType.float32)):
            what = "a count" if dtype is DType.int64 else "a number"
            raise DTypeError(f"{name}: {role} is {found.dtype}, not {what}", operands=shown, help="cast it")
        if found.rank:
            raise ShapeError(f"{name}: {role} has shape {found.shape}", operands=shown, help="give a scalar")
        return e.emit(
            "Unsqueeze", graph.build.cast(found, dtype), graph.build.vector([0]), dtype=dtype, shape=_shape([Dim(1)])
        )
    is_number = not isinstance(value, (bool, np.bool_))
    if role == "max_output_boxes_per_class":
        if not is_number or not isinstance(value, (int, np.integer)) or value < 0:
            raise DTypeError(f"{name}: {role}={value!r} is no count", operands=roles, help="give 0 or more")
        return graph.build.vector([int(value)])
    if not is_number or not isinstance(value, (int, float, np.integer, np.floating)):
        raise DTypeError(f"{name}: {role}={value!r} is no number", operands=roles, help="give a float or a Symbol")
    if role == "iou_threshold" and not 0 <= value <= 1:
        raise DTypeError(f"{name}: {role}={value!r} is no part", operands=roles, help="give 0 to 1")
    return graph.constant([float(value)], dtype)
