"""A custom promotion system: a lattice in which integers become floats that hold them.

python examples/own_system.py
"""

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, TensorType
from graphcore.errors import PromotionError
from graphcore.promotion import LatticeSystem, explain

exact = LatticeSystem(
    "exact",  # each dtype, and the dtypes directly above it, which hold all of its values
    {
        DType.bool: [DType.int8, DType.uint8],
        DType.int8: [DType.int16],
        DType.uint8: [DType.int16],
        DType.int16: [DType.int32, DType.float32],
        DType.int32: [DType.float64],
        DType.float32: [DType.float64],
    },
)

for lhs, rhs in (("int8", "uint8"), ("uint8", "float32"), ("int32", "float32")):
    explanation = explain(lhs, rhs, exact)
    print(f"{lhs} and {rhs} meet in {explanation.result}: {explanation.reason}")

g = Graph("level", {"count": TensorType("int32", ["n"]), "gain": TensorType("float32", ["n"])}, promotion=exact)
count, gain = g.inputs
g.output(level=count * gain)
print(g)

(level,) = gc.InferenceSession().load(g)(np.array([16777217], np.int32), np.array([2.0], np.float32))
print(level.dtype, level)

try:
    count + g.constant(np.int64(1))
except PromotionError as error:
    print(error.summary)
