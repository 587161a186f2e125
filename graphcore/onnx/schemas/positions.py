"""The positions of operators on sequences, of which kernels read the first element also where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.onnx.proto.ranges import POSITIONS
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape, tensor_type


def with_one_position(
    graph: Graph, op_type: str, inputs: Sequence[Symbol | None], place: object
) -> list[Symbol | None]:
    """Return operands of which the position has one element, which it is reshaped for where its type does not tell.

    Raises `ModelError` where the type tells that it has none or several.
    """
    made = list(inputs)
    position = POSITIONS[op_type]
    symbol = made[position] if position < len(made) else None
    if symbol is None or not isinstance(symbol.type, TensorType):
        return made
    shape = symbol.type.shape
    if shape.is_ranked and all(dim.is_static for dim in shape):
        if math.prod(int(dim) for dim in shape) == 1:
            return made
        raise ModelError(
            f"load: {place}: the position is one number", operands={"position": symbol}, help="give a scalar"
        )
    scalar = graph.build.constant(np.zeros(0, np.int64), DType.int64)
    made[position] = graph.build.emit_many("Reshape", (symbol, scalar), [tensor_type(symbol.dtype, _shape([]))], {})[0]
    return made
