"""The one table of what numbers ONNX's operators may be given, of attributes and of constant operands.

Inference in C++ and kernels trust these numbers. Readers of models and direct loads look here, so that both refuse the
same.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from graphcore.operators import REDUCTIONS

MOST_AXES = 64
"""Axes that a tensor has at most."""

MOST_ELEMENTS = 1 << 40
"""Elements that an axis, or what an attribute counts, has at most."""

_INT = (1 << 31) - 1
_AXIS = (-MOST_AXES, MOST_AXES)
_SIZE = (0, MOST_ELEMENTS)
_MOVED = (-MOST_ELEMENTS, MOST_ELEMENTS)
_NUMBER = (0, _INT)
_FLAG = (0, 1)
_DTYPE = (0, 1000)

ATTRIBUTES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("axis", "axes", "batch_axis", "time_axis", "scan_input_axes", "scan_output_axes"),
            _AXIS,
        ),
        **dict.fromkeys(("perm", "batch_dims"), (0, MOST_AXES - 1)),
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
"""The least and the greatest number of an attribute of any of ONNX's operators, by its name; tables of operators say
less where that is needed."""

OPERANDS: Mapping[str, Mapping[int, tuple[int, int]]] = MappingProxyType(
    {
        "ConstantOfShape": {0: _SIZE},
        "Reshape": {1: (-1, MOST_ELEMENTS)},
        "Expand": {1: (-1, MOST_ELEMENTS)},
        "Tile": {1: _SIZE},
        "Pad": {1: _MOVED, 3: _AXIS},
        "Resize": {3: _SIZE},
        "Slice": {3: _AXIS},
        "Squeeze": {1: _AXIS},
        "Unsqueeze": {1: _AXIS},
        "Split": {1: (-1, MOST_ELEMENTS)},  # ONNX's AffineGrid has -1 in a branch that is not taken; kernels refuse it
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
        "STFT": {1: (1, MOST_ELEMENTS), 3: _SIZE},
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
"""The least and the greatest element of a constant operand, by operator and position."""

CHECKED: Mapping[str, frozenset[int]] = MappingProxyType(
    {**{op_type: frozenset(places) for op_type, places in OPERANDS.items()}, "Range": frozenset({2})}
)
"""The operands that are looked at where they are constants."""

INDEXED: Mapping[str, int] = MappingProxyType({"Gather": 1, "GatherElements": 1, "ScatterElements": 1})
"""The operand that has indices along the attribute `axis` of the first one, whose length may be known."""

POSITIONS: Mapping[str, int] = MappingProxyType({"SequenceAt": 1, "SequenceErase": 1, "SequenceInsert": 2})
"""The operand that is one number, of which kernels read the first element also where there is none."""

LONGEST = 4096
"""Elements of the longest constant operand that is looked at: longer ones say nothing of axes."""
