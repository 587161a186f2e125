"""Integers of any width: stored in ONNX's up to 64 bits, in limbs beyond.

A pass before the others, which then see only dtypes that ONNX has.
"""

from importlib import import_module

from graphcore.ir.graph import Graph
from graphcore.runtime.lowering.passes import Summary
from graphcore.types.dtypes import DType, is_wide
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type


def needed(summary: Summary) -> bool:
    """Return True if the graph or one of its bodies has integers of widths that ONNX does not have."""
    return any(map(concerns, summary.types))


def store(graph: Graph) -> Graph:
    """Return the graph with integers of ONNX's widths. Raises `DTypeError` for operators without a rule."""
    stored: Graph = import_module(f"{__name__}.wide.operators").stored(graph)  # few graphs have such integers
    return stored


def is_odd(dtype: DType) -> bool:
    """Return True if a dtype is an integer of at most 64 bits that ONNX does not have."""
    return dtype.is_integer and dtype.storage is not dtype and dtype.bits <= 64 and dtype.storage.bits > dtype.bits


def concerns(type_: Type) -> bool:
    """Return True if a type is an integer of a width that ONNX does not have, or a list or optional of such."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return concerns(type_.element)
    return isinstance(type_, TensorType) and (is_odd(type_.dtype) or is_wide(type_.dtype))
