"""The ranges of numbers that ONNX's operators accept, in attributes and constant operands.

Inference in C++ and kernels trust these numbers. The reader and direct loads share this table, so that both reject the
same models.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from graphcore.operators import REDUCTIONS

MAX_AXES = 64
"""The maximum rank of a tensor."""

MAX_ELEMENTS = 1 << 40
"""The maximum length of an axis, and of anything that an attribute counts."""

_INT = (1 << 31) - 1
_AXIS = (-MAX_AXES, MAX_AXES)
_SIZE = (0, MAX_ELEMENTS)
_MOVED = (-MAX_ELEMENTS, MAX_ELEMENTS)
_NUMBER = (0, _INT)
_FLAG = (0, 1)
_DTYPE = (0, 1000)

ATTRIBUTES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("axis", "axes", "batch_axis", "time_axis", "scan_input_axes", "scan_output_axes"),
            _AXIS,
        ),
        **dict.fromkeys(("perm", "batch_dims"), (0, MAX_AXES - 1)),
        **dict.fromkeys(("dtype", "output_dtype", "output_datatype", "stash_type", "softmax_precision", "to"), _DTYPE),
        "scan_input_directions": _FLAG,
        "scan_output_directions": _FLAG,
        "num_scan_inputs": (1, 1 << 15),
        "shape": (0, (1 << 63) - 1),
        "sample_size": _NUMBER,
        "k": (-_INT, _INT),
        "group": (1, _INT),
        "chunk_size": (1, _INT),
        "max_map": _NUMBER,
        "inputdimensions": _NUMBER,
        "n_targets": (1, 1 << 20),
        "targets": (1, 1 << 20),
        "n_supports": _NUMBER,
        "vectors_per_class": _NUMBER,
        "left_window_size": (-1, (1 << 63) - 1),
        "right_window_size": (-1, (1 << 63) - 1),
    }
)
"""The minimum and maximum of an attribute of any operator, by name; `limits.RANGES` narrows them by operator."""

OPERANDS: Mapping[str, Mapping[int, tuple[int, int]]] = MappingProxyType(
    {
        "ConstantOfShape": {0: _SIZE},
        "Reshape": {1: (-1, MAX_ELEMENTS)},
        "Expand": {1: (-1, MAX_ELEMENTS)},
        "Tile": {1: _SIZE},
        "Pad": {1: _MOVED, 3: _AXIS},
        "Resize": {3: _SIZE},
        "Slice": {3: _AXIS},
        "Squeeze": {1: _AXIS},
        "Unsqueeze": {1: _AXIS},
        "Split": {1: (-1, MAX_ELEMENTS)},  # ONNX's AffineGrid has -1 in an unused branch; kernels reject it
        "SplitToSequence": {1: _SIZE},
        "TopK": {1: _SIZE},
        "CumSum": {1: _AXIS},
        "CumProd": {1: _AXIS},
        "CenterCropPad": {1: _SIZE},
        "Col2Im": {1: _SIZE, 2: (1, _INT)},
        "Trilu": {1: _MOVED},
        "OneHot": {1: _SIZE},
        "AffineGrid": {1: _SIZE},
        "DFT": {1: _SIZE, 2: _AXIS},
        "STFT": {1: (1, MAX_ELEMENTS), 3: _SIZE},
        **{window: {0: _SIZE} for window in ("BlackmanWindow", "HammingWindow", "HannWindow")},
        "MelWeightMatrix": {0: _NUMBER, 1: _NUMBER, 2: _NUMBER},
        "SequenceAt": {1: _MOVED},
        "SequenceErase": {1: _MOVED},
        "SequenceInsert": {2: _MOVED},
        "MaxUnpool": {2: _SIZE},
        "TensorScatter": {2: _SIZE},
        **{reduction: {1: _AXIS} for reduction in REDUCTIONS},
    }
)
"""The minimum and maximum of the elements of a constant operand, by operator and position."""

CHECKED: Mapping[str, frozenset[int]] = MappingProxyType(
    {**{op_type: frozenset(places) for op_type, places in OPERANDS.items()}, "Range": frozenset({2})}
)
"""The operands that are checked if they are constant."""

INDEXED: Mapping[str, int] = MappingProxyType({"Gather": 1, "GatherElements": 1, "ScatterElements": 1})
"""The operand with indices along the attribute `axis` of the first operand."""

POSITIONS: Mapping[str, int] = MappingProxyType({"SequenceAt": 1, "SequenceErase": 1, "SequenceInsert": 2})
"""The operand that is one number: kernels read its first element even if there is none."""

MAX_CHECKED_ELEMENTS = 4096
"""The maximum number of elements of a constant operand that is checked: longer ones do not describe axes."""
