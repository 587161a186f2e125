"""Integers of any width: carried in ONNX's up to 64 bits, in limbs beyond.

A pass before the others: what follows sees only dtypes that ONNX has.
"""

from graphcore.runtime.lowering.dtypes.integers.carrying import carried, needed
from graphcore.runtime.lowering.dtypes.integers.wide.operators import SUPPORTED_WIDE

__all__ = ["SUPPORTED_WIDE", "carried", "needed"]
