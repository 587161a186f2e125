"""The operators of `ai.onnx.ml` that a direct load supports: their checks, and the dtypes of their results.

A Graph does not change them, in the dtypes that their kernels support. All versions of an operator share a kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from graphcore.errors import GraphcoreError
from graphcore.onnx.proto.messages import TENSOR
from graphcore.onnx.read.checks import check_node
from graphcore.runtime.lowering.decompositions.ml_operators import DOMAIN, needs_replacement
from graphcore.runtime.sessions.direct.operators import DirectRow
from graphcore.runtime.sessions.direct.scanned_values import ScannedValues
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType

if TYPE_CHECKING:
    import onnx


def _row(
    results: Callable[[ScannedValues, onnx.NodeProto, DType], Sequence[DType] | None], *, gives_map: bool = False
) -> DirectRow:
    """Return a row for valid nodes that a Graph does not replace. results: the dtypes for the first operand."""

    def check(scan: ScannedValues, node: onnx.NodeProto, dtypes: Sequence[DType | None]) -> Sequence[DType] | None:
        attributes, first = node.attribute, dtypes[0] if dtypes else None
        if first is None or None in dtypes or any(a.type == TENSOR for a in attributes):
            return None
        if len({a.name for a in attributes}) != len(attributes):
            return None
        try:
            check_node(node, {DOMAIN: scan.versions[DOMAIN]}, node.op_type)
        except GraphcoreError:
            return None
        result_dtypes = results(scan, node, first)
        if not result_dtypes:
            return None
        is_replaced = node.op_type not in _OWN_CHECKS and _replaces(node.op_type, first, result_dtypes[0])
        return None if is_replaced else result_dtypes

    return DirectRow(check, domain=DOMAIN, gives_map=gives_map)


@functools.cache
def _replaces(op_type: str, operand: DType, result: DType) -> bool:
    unknown = Shape.unknown()
    return needs_replacement(op_type, TensorType(operand, unknown), TensorType(result, unknown))


def _classified(scan: ScannedValues, node: onnx.NodeProto, first: DType) -> Sequence[DType]:
    has_text = any(a.name in ("classlabels_strings", "strings_classlabels") and a.strings for a in node.attribute)
    return [DType.string if has_text else DType.int64, DType.float32]


def _by_trees(scan: ScannedValues, node: onnx.NodeProto, first: DType) -> Sequence[DType] | None:
    """Leave two classes with weights for both to a Graph, which computes them as two targets."""
    attributes = {a.name: a for a in node.attribute}
    labels = sum(len(a.ints) + len(a.strings) for n, a in attributes.items() if n.startswith("classlabels_"))
    classes = attributes.get("class_ids")
    if classes is None or (labels == 2 and len({*classes.ints}) == 2):
        return None
    return _classified(scan, node, first) if first in _FLOATS else None


def _vectorized(scan: ScannedValues, node: onnx.NodeProto, first: DType) -> Sequence[DType]:
    """Leave operands that may have no rows to a Graph: the kernel ends the process."""
    for name in node.input:
        scan.require_elements(node, name, [0])
    return [DType.float32]


def _encoded(scan: ScannedValues, node: onnx.NodeProto, first: DType) -> Sequence[DType] | None:
    values = [_VALUES.get(a.name) for a in node.attribute if a.name.startswith("values_")]
    return values if len(values) == 1 and values[0] is not None else None  # type: ignore[return-value]


_FLOATS = frozenset({DType.float32, DType.float64})
_VALUES = {"values_strings": DType.string, "values_int64s": DType.int64, "values_floats": DType.float32}
_OWN_CHECKS = frozenset({"FeatureVectorizer", "TreeEnsembleClassifier"})
"""Operators whose row decides which nodes a Graph replaces."""

ROWS: Mapping[str, DirectRow] = MappingProxyType(
    {
        **dict.fromkeys(("ArrayFeatureExtractor", "Binarizer", "Imputer"), _row(lambda scan, node, first: [first])),
        "FeatureVectorizer": _row(_vectorized),
        **dict.fromkeys(
            "LinearRegressor Normalizer OneHotEncoder SVMRegressor Scaler TreeEnsembleRegressor".split(),
            _row(lambda scan, node, first: [DType.float32]),
        ),
        **dict.fromkeys(("LinearClassifier", "SVMClassifier"), _row(_classified)),
        "LabelEncoder": _row(_encoded),
        "TreeEnsembleClassifier": _row(_by_trees),
        "ZipMap": _row(lambda scan, node, first: [first], gives_map=True),
    }
)
"""Rows of operators of the domain `ai.onnx.ml`, by name."""
