"""The optimizers of domain `ai.onnx.preview.training`, by the arithmetic of their specification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphcore.ir.symbol import Symbol
from graphcore.onnx.versions.node import Made, Read
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


@dataclass(frozen=True, slots=True)
class _Step:
    """One update of one tensor, in its own dtype."""

    node: Read
    type: TensorType
    rate: Symbol
    """The learning rate, a scalar."""
    count: Symbol
    """The number of updates so far, a scalar."""

    def attribute(self, name: str, default: float = 0.0) -> Symbol:
        return self.number(float(self.node.attributes.get(name, default)))

    def number(self, value: float) -> Symbol:
        return self.node.scalar(value, self.type.dtype)

    def __call__(self, op_type: str, *operands: Symbol) -> Symbol:
        are_scalars = all(s.type is self.rate.type for s in operands)
        return self.node.emit(op_type, self.rate.type if are_scalars else self.type, *operands)

    def regular(self, x: Symbol, gradient: Symbol) -> Symbol:
        """The gradient with that of the penalty for large weights."""
        return self("Add", self("Mul", self.attribute("norm_coefficient"), x), gradient)

    def started(self, later: Symbol, first: Symbol) -> Symbol:
        """A scalar that is another one before the first update."""
        truth = TensorType(DType.bool, [])
        begun = self.node.emit("Greater", truth, self.count, self.number(0.0))
        return self.node.emit("Where", self.rate.type, begun, later, first)


def _adagrad(step: _Step, x: Symbol, gradient: Symbol, squares: Symbol) -> Sequence[Symbol]:
    slower = step("Add", step.number(1.0), step("Mul", step.count, step.attribute("decay_factor")))
    gradient = step.regular(x, gradient)
    squares = step("Add", squares, step("Mul", gradient, gradient))
    size = step("Add", step("Sqrt", squares), step.attribute("epsilon"))
    moved = step("Div", step("Mul", step("Div", step.rate, slower), gradient), size)
    return step("Sub", x, moved), squares


def _momentum(step: _Step, x: Symbol, gradient: Symbol, velocity: Symbol) -> Sequence[Symbol]:
    alpha = step.attribute("alpha")
    gradient = step.regular(x, gradient)
    beta = step.started(step.attribute("beta"), step.number(1.0))
    velocity = step("Add", step("Mul", alpha, velocity), step("Mul", beta, gradient))
    direction = velocity
    if step.node.attributes.get("mode") == "nesterov":
        direction = step("Add", gradient, step("Mul", alpha, velocity))
    return step("Sub", x, step("Mul", step.rate, direction)), velocity


def _adam(step: _Step, x: Symbol, gradient: Symbol, mean: Symbol, squares: Symbol) -> Sequence[Symbol]:
    alpha, beta, one = step.attribute("alpha", 0.9), step.attribute("beta", 0.999), step.number(1.0)
    gradient = step.regular(x, gradient)
    mean = step("Add", step("Mul", alpha, mean), step("Mul", step("Sub", one, alpha), gradient))
    square = step("Mul", gradient, gradient)
    squares = step("Add", step("Mul", beta, squares), step("Mul", step("Sub", one, beta), square))
    size = step("Add", step("Sqrt", squares), step.attribute("epsilon"))
    unbiased = step(
        "Div",
        step("Sqrt", step("Sub", one, step("Pow", beta, step.count))),
        step("Sub", one, step("Pow", alpha, step.count)),
    )
    rate = step.started(step("Mul", step.rate, unbiased), step.rate)
    moved = step("Sub", x, step("Div", step("Mul", rate, mean), size))
    left = step("Sub", one, step.attribute("norm_coefficient_post"))
    return step("Mul", left, moved), mean, squares


_Update = Callable[..., Sequence[Symbol]]
_UPDATES: dict[str, tuple[_Update, int]] = {"Adagrad": (_adagrad, 3), "Momentum": (_momentum, 3), "Adam": (_adam, 4)}
"""The update of one tensor, and its number of operands of that shape: the tensor, its gradient and its state."""


def optimizer(node: Read) -> Made:
    """All tensors updated; results are ordered as operands are, the gradients left out."""
    update, parts = _UPDATES[node.op_type]
    tensors = len(node.inputs) - 2
    if tensors % parts or len(node.types) != tensors // parts * (parts - 1):
        raise node.refusal(f"{tensors} tensors are no groups of {parts}", "write the model again")
    each = tensors // parts
    made: list[list[Symbol]] = [[] for _ in range(parts - 1)]
    for i in range(each):
        own = [node.operand(2 + i + each * part) for part in range(parts)]
        type_ = node.tensor(2 + i)
        scalars = (_scalar(node, position, type_.dtype) for position in (0, 1))
        for column, symbol in zip(made, update(_Step(node, type_, *scalars), *own), strict=True):
            column.append(symbol)
    return tuple(symbol for column in made for symbol in column)


def _scalar(node: Read, position: int, dtype: DType) -> Symbol:
    symbol = node.graph.build.cast(node.operand(position), dtype)
    type_ = TensorType(dtype, [])
    return symbol if symbol.type is type_ else node.emit("Reshape", type_, symbol, node.graph.build.vector([]))
