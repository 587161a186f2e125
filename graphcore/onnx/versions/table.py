"""The operators that changed their meaning, in which version, and what undoes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from graphcore.onnx.opset import DOMAINS, OPSET
from graphcore.onnx.versions import adapters, older
from graphcore.onnx.versions.functions import expand_function
from graphcore.onnx.versions.node import Made, Read

Change: TypeAlias = Callable[[Read], Made]

_REDUCTIONS = sorted(name for name in older.MOVED if name.startswith("Reduce") and name != "ReduceSum")

# Operator: {version that changed it: what brings a node across that change}. A node older than the version that graphs
# are written with goes through all changes after its own; a newer one, from its own down, through all newer ones.
CHANGES: Mapping[str, Mapping[str, Mapping[int, Change]]] = {
    "": {
        "BatchNormalization": {9: adapters.per_feature, 14: adapters.training},
        "BitShift": {28: adapters.shift},
        "CausalConvWithState": {27: expand_function},
        "Clip": {11: older.clip},
        "DFT": {20: older.fourier},
        "Dropout": {10: older.dropout, 12: older.dropout},
        "Erf": {13: older.erf},
        "GridSample": {20: older.grid_sample},
        "GroupNormalization": {21: adapters.group},
        "Hardmax": {13: older.flattening},
        "LinearAttention": {27: expand_function},
        "LogSoftmax": {13: older.flattening},
        "Mod": {28: adapters.remainder},
        "OneHot": {11: older.one_hot},
        "Pad": {11: older.pad},
        "Range": {27: adapters.range_in},
        "ReduceSum": {13: older.moved},
        **{name: {18: older.moved} for name in _REDUCTIONS},
        "Resize": {11: adapters.coordinates, 13: adapters.half_pixel},
        "RoiAlign": {16: older.roi_align},
        "Scan": {9: adapters.batched},
        "Scatter": {11: older.scatter},
        "Slice": {10: older.moved},
        "Softmax": {13: older.flattening},
        "SpaceToDepth": {28: adapters.space_to_depth},
        "Split": {13: older.moved, 18: older.split},
        "Squeeze": {13: older.moved},
        "SwiGLU": {28: expand_function},
        "TopK": {10: older.moved},
        "Unsqueeze": {13: older.moved},
        "Upsample": {9: adapters.upsample_scales, 10: adapters.upsample},
    },
    "ai.onnx.ml": {
        "LabelEncoder": {2: adapters.classes},
        "TreeEnsembleClassifier": {5: adapters.trees},
        "TreeEnsembleRegressor": {5: adapters.trees},
    },
    "ai.onnx.preview": {
        "FlexAttention": {1: adapters.flexible},
    },
    "ai.onnx.preview.training": {
        "Adagrad": {1: adapters.optimizer},
        "Adam": {1: adapters.optimizer},
        "Gradient": {1: adapters.gradient},
        "Momentum": {1: adapters.optimizer},
    },
}


def target(domain: str) -> int:
    """The version of a domain that graphs are written with; none of what ONNX tries out, which onnxruntime has not."""
    return OPSET if not domain else DOMAINS.get(domain, 0)


def next_change(domain: str, op_type: str, version: int) -> tuple[int, Change] | None:
    """The change next to a version on the way to the one that graphs have, and the version after it."""
    changes = CHANGES.get(domain, {}).get(op_type, {})
    wanted = target(domain)
    if version < wanted:
        ahead = min((v for v in changes if version < v <= wanted), default=None)
        return None if ahead is None else (ahead, changes[ahead])
    back = max((v for v in changes if wanted < v <= version), default=None)
    return None if back is None else (back - 1, changes[back])
