"""Operands and results of If, Loop and Scan: wide integers go into bodies and out of them as digits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcore.ir.symbol import Node
from graphcore.runtime.lowering.dtypes.integers.kinds import is_wide

WHOLE_BODIES = frozenset({"If", "Loop", "Scan"})
"""Operators whose results are those of bodies, which take and give them within their widths, wide ones as digits."""


def is_count(node: Node, position: int) -> bool:
    """Return whether an operand of If, Loop or Scan is a condition or a number of iterations."""
    return position < {"If": 1, "Loop": 2}.get(node.op_type, 0)


def with_axes_of_digits(node: Node, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of a Scan whose wide operands have one more axis, the last: axes are counted before it."""
    made = dict(attributes)
    scanned = node.inputs[len(node.inputs) - int(made["num_scan_inputs"]) :]
    stacked = node.outputs[len(node.inputs) - int(made["num_scan_inputs"]) :]
    for key, symbols in (("scan_input_axes", scanned), ("scan_output_axes", stacked)):
        if key in made:
            made[key] = [axis - (axis < 0 and is_wide(s)) for axis, s in zip(made[key], symbols, strict=True)]
    return made
