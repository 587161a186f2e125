"""Different dtypes promote to a common one: int8 and bfloat16 to bfloat16, for which onnxruntime has no kernels.

python examples/promotion.py
"""

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops

g = Graph("scale", {"tokens": TensorType(DType.int8, ["batch", 4]), "gain": TensorType(DType.bfloat16, [4])})
tokens, gain = g.inputs
y = ops.softmax(tokens * gain + 1)  # the cast of the tokens is in the graph
g.output(prob=y)
print(g)

# Systems differ, and some refuse.
for lhs, rhs in (("int8", "bfloat16"), ("int8", "uint8"), ("int64", "uint64"), ("float16", "bfloat16")):
    print(f"{lhs} and {rhs} meet in {gc.implicit_cast_type(lhs, rhs)}")

model = gc.InferenceSession().load(g)
(prob,) = model(np.array([[1, 2, 3, 4]], np.int8), np.array([0.5, 1, 0.5, 0.25], DType.bfloat16.numpy))
print(prob.dtype, prob)
