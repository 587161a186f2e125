"""The values of small integer tensors, for rules: weights that their owners may change have none."""

from __future__ import annotations

from graphcore.ir.symbol import Constant, Symbol
from graphcore.ir.transform.shape_values import ShapeValues, Value
from graphcore.passes.initializers import Initializers
from graphcore.types.tensor_types import TensorType


class Sizes(ShapeValues):
    """The values of the integer tensors of the graph that a walk is over.

    initializers: those that count as constants, if any do.
    """

    def __init__(self, initializers: Initializers | None) -> None:
        super().__init__()
        self._initializers = initializers

    def _read(self, symbol: Symbol, type_: TensorType, depth: int) -> Value:
        producer = symbol.producer
        if isinstance(producer, Constant) and (producer.is_weight or symbol.ambiguous):
            initializers = self._initializers
            if symbol.ambiguous or initializers is None or not initializers.is_one(symbol):
                return None
            # What is found is remembered, so that it is not told which rule used it first.
            if symbol.given_name is not None:
                initializers.used.setdefault(symbol.given_name, "simplify_shapes")
        try:
            return super()._read(symbol, type_, depth)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return None  # `Graph.op` takes operands and attributes that ONNX refuses
