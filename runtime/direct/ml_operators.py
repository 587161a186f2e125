"""The operators of `ai.onnx.ml` that a direct load takes: their checks, and the dtypes of their results.

The Graph hands them on as they are, in the dtypes that their kernels take. The versions of one operator are one kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import onnx

from graphcore.errors import GraphcoreError
from graphcore.onnx.read.checks import check_node
from graphcore.runtime.direct.operators import Asked, Row
from graphcore.runtime.lowering.decompositions.ml_operators import DOMAIN, replaces
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType

_Given = Sequence[DType | None]
_KINDS = onnx.AttributeProto
_ENCODES = 2
"""The version from which on LabelEncoder has keys and values."""


def _row(results: Callable[[onnx.NodeProto, DType], Sequence[DType] | None], *, gives_map: bool = False) -> Row:
    """Return a row of the nodes that ONNX allows and whose kernels the Graph keeps. results: for the first operand."""

    def checked(scan: Asked, node: onnx.NodeProto, given: _Given) -> Sequence[DType] | None:
        first = given[0]
        if first is None or None in given or not _is_sound(node, scan.versions[DOMAIN]):
            return None
        made = results(node, first)
        if not made:
            return None
        is_replaced = node.op_type not in _TOLD and _replaces(node.op_type, first, made[0])
        return None if is_replaced else made

    return Row(checked, domain=DOMAIN, gives_map=gives_map)


def _is_sound(node: onnx.NodeProto, version: int) -> bool:
    attributes = node.attribute
    if len({a.name for a in attributes}) != len(attributes) or any(a.type == _KINDS.TENSOR for a in attributes):
        return False
    try:
        check_node(node, {DOMAIN: version}, node.op_type)
    except GraphcoreError:
        return False
    return True


@functools.cache
def _replaces(op_type: str, operand: DType, result: DType) -> bool:
    unknown = Shape.unknown()
    return replaces(op_type, TensorType(operand, unknown), TensorType(result, unknown))


def _of(*dtypes: DType) -> Row:
    return _row(lambda node, first: dtypes)


def _classified(node: onnx.NodeProto, first: DType) -> Sequence[DType]:
    return [DType.string if _said(node, "classlabels_strings", "strings_classlabels") else DType.int64, DType.float32]


def _said(node: onnx.NodeProto, *names: str) -> bool:
    """Return whether one of these attributes has strings."""
    return any(a.name in names and a.strings for a in node.attribute)


def _by_trees(node: onnx.NodeProto, first: DType) -> Sequence[DType] | None:
    """Leave two classes with weights for both to the Graph, which computes them as two targets."""
    attributes = {a.name: a for a in node.attribute}
    labels = sum(len(a.ints) + len(a.strings) for n, a in attributes.items() if n.startswith("classlabels_"))
    classes = attributes.get("class_ids")
    if classes is None or (labels == 2 and len({*classes.ints}) == 2):
        return None
    return _classified(node, first) if first in _FLOATS else None


def _vectorized(scan: Asked, node: onnx.NodeProto, given: _Given) -> Sequence[DType] | None:
    """Leave operands that may have no rows to the Graph: the kernel ends the process."""
    if None in given or not given or not _is_sound(node, scan.versions[DOMAIN]):
        return None
    for name in node.input:
        scan.require_elements([name], [0])
    return [DType.float32]


def _encoded(node: onnx.NodeProto, first: DType) -> Sequence[DType] | None:
    values = [_VALUES.get(a.name) for a in node.attribute if a.name.startswith("values_")]
    return values if len(values) == 1 and values[0] is not None else None  # type: ignore[return-value]


_FLOATS = frozenset({DType.float32, DType.float64})
_VALUES = {"values_strings": DType.string, "values_int64s": DType.int64, "values_floats": DType.float32}
_TOLD = frozenset({"TreeEnsembleClassifier"})
"""Operators of which the row says by itself what is replaced."""

ML_ROWS: Mapping[str, Row] = MappingProxyType(
    {
        **dict.fromkeys(("ArrayFeatureExtractor", "Binarizer", "Imputer"), _row(lambda node, first: [first])),
        **dict.fromkeys("Normalizer OneHotEncoder Scaler".split(), _of(DType.float32)),
        "FeatureVectorizer": Row(_vectorized, domain=DOMAIN),
        **dict.fromkeys("LinearRegressor SVMRegressor TreeEnsembleRegressor".split(), _of(DType.float32)),
        **dict.fromkeys(("LinearClassifier", "SVMClassifier"), _row(_classified)),
        "LabelEncoder": _row(_encoded),
        "TreeEnsembleClassifier": _row(_by_trees),
        "ZipMap": _row(lambda node, first: [first], gives_map=True),
    }
)
"""By name, of the domain `ai.onnx.ml`."""

__all__ = ["DOMAIN", "ML_ROWS"]
