"""Dtypes that a target does not store: each pass replaces some by storage dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphcore.errors import DTypeError
from graphcore.ir.symbol import Node, Symbol


def with_longer_operands(
    node: Node, attributes: Mapping[str, Any], is_longer: Callable[[Symbol | None], bool]
) -> Mapping[str, Any]:
    """Return the attributes of a Scan. is_longer: whether an operand gets one more axis, the last."""
    states = len(node.inputs) - int(attributes["num_scan_inputs"])
    result = dict(attributes)
    for key, symbols in (("scan_input_axes", node.inputs[states:]), ("scan_output_axes", node.outputs[states:])):
        if key in result:
            result[key] = [axis - (axis < 0 and is_longer(s)) for axis, s in zip(result[key], symbols, strict=True)]
    return result


def not_computed(node: Node, why: str, help: str) -> DTypeError:
    """Return the error for a node that no rule of a pass computes."""
    operands: dict[str, Any] = {f"input {i}": s for i, s in enumerate(node.inputs) if s is not None}
    if node.line is not None:
        operands["made at"] = str(node.line)
    return DTypeError(f"{node.op_type}: {why}", operands=operands, help=help)
