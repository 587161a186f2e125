"""Nodes of older and newer opsets as those of the opset that graphs are written with, by operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.ir.definitions import new_body, outermost
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Captured, Symbol
from graphcore.onnx.versions.older import Made, Read, expand_function, unknown
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type


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
        raise node.refusal(f"{tensors} tensors are no groups of {parts}", "export the model again")
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


# Operators of domain `ai.onnx.ml`, and of those that ONNX tries out.


def classes(node: Read) -> Made:
    """LabelEncoder had one list, of which strings and integers were each other's index."""
    names = node.attributes.pop("classes_strings", [])
    numbers = list(range(len(names)))
    if node.tensor(0).dtype is DType.string:
        node.attributes |= {"keys_strings": names, "values_int64s": numbers}
    else:
        node.attributes |= {"keys_int64s": numbers, "values_strings": names}
    return None


def trees(node: Read) -> Made:
    """Version 5 replaces these by one operator of all trees: the graph is written with version 4, which has them."""
    outermost(node.graph).opsets["ai.onnx.ml"] = 4
    return None


def flexible(node: Read) -> Made:
    """FlexAttention with what it does to scores and probabilities in place."""
    for name, body in node.attributes.items():
        if isinstance(body, Graph) and body.scope.captured:
            raise node.refusal(f"{name} uses values from outside of it", "make them constants of the body")
    return expand_function(node)


def gradient(node: Read) -> Made:
    raise node.refusal("the derivative of a graph is not computed from its operands", "export the gradient's nodes")


# Operators of opset 27 and 28 by what opset 26 has.

_NARROW = frozenset({DType.float16, DType.bfloat16})
_LIBRARY = "graphcore"
"""The domain of operators that lowering expands."""


def range_in(node: Read) -> Made:
    """Narrow floats are counted in a dtype of their own."""
    stash = DType.of(node.attributes.pop("stash_type", 1))
    type_ = node.result()
    if type_.dtype not in _NARROW:
        return None
    wide = [node.graph.build.cast(node.operand(i), stash) for i in range(3)]
    return (node.graph.build.cast(node.emit("Range", type_.cast(stash), *wide), type_.dtype),)


def remainder(node: Read) -> Made:
    """Floats may have the divisor's sign."""
    if node.tensor(0).dtype.is_float and not node.attributes.get("fmod", 0):
        node.op_type, node.domain = "FloorMod", _LIBRARY
        node.attributes.clear()
    return None


def shift(node: Read) -> Made:
    """Signed integers may be shifted, and every count has a meaning."""
    direction = node.attributes.pop("direction")
    node.op_type, node.domain = {"LEFT": "ShiftLeft", "RIGHT": "ShiftRight"}[direction], _LIBRARY
    return None


def space_to_depth(node: Read) -> Made:
    """Channels may come before blocks."""
    if node.attributes.get("mode", "DCR") != "DCR":
        return expand_function(node)
    node.attributes.pop("mode", None)
    return None


# Normalisations of older opsets.


def per_feature(node: Read) -> Made:
    """BatchNormalization could have statistics for every feature instead of every channel."""
    if node.attributes.pop("spatial", 1):
        return None
    if len(node.types) > 1:
        raise node.refusal("its statistics are per feature and it is training", "export the model for inference")
    type_ = node.tensor(0)
    x, scale, bias, mean, variance = (node.operand(i) for i in range(5))
    own = node.tensor(1)
    epsilon = node.scalar(float(node.attributes.get("epsilon", 1e-5)), type_.dtype)
    deviation = node.emit("Sqrt", own, node.emit("Add", own, variance, epsilon))
    centred = node.emit("Sub", type_, x, mean)
    scaled = node.emit("Mul", type_, node.emit("Div", type_, centred, deviation), scale)
    return (node.emit("Add", type_, scaled, bias),)


def training(node: Read) -> Made:
    """More than one result meant training; the statistics of the batch were results too."""
    if len(node.types) == 1:
        return None
    attributes = {**node.attributes, "training_mode": 1}
    statistics = node.tensor(3)
    kinds = (node.types[0], statistics, node.tensor(4))
    made = node.graph.build.emit_many("BatchNormalization", tuple(node.inputs), kinds, attributes)
    if len(node.types) <= 3:
        return made[: len(node.types)]
    rank = node.rank(0)
    if rank is None:
        raise node.refusal("its batch's statistics are wanted and its rank is not known", "declare the operand's shape")
    x, type_ = node.operand(0), node.tensor(0)
    axes = node.graph.build.vector([axis for axis in range(rank) if axis != 1])
    kept = TensorType(type_.dtype, [1 if axis != 1 else type_.shape[1] for axis in range(rank)])
    mean = node.emit("ReduceMean", kept, x, axes)
    centred = node.emit("Sub", type_, x, mean)
    squares = node.emit("Mul", type_, centred, centred)
    variance = node.emit("ReduceMean", statistics, squares, axes, keepdims=0)
    return (*made, node.emit("Squeeze", statistics, mean, axes), variance)[: len(node.types)]


def group(node: Read) -> Made:
    """GroupNormalization had a scale and a bias for every group, and has them for every channel."""
    groups = int(node.attributes["num_groups"])
    shape = node.tensor(0).shape
    channels: Any = shape[1] if shape.is_ranked else "?"
    x = node.operand(0)
    count = node.emit("Div", TensorType(DType.int64, [1]), node.dims(x, 1, 2), node.graph.build.vector([groups]))
    sizes = node.emit("Concat", TensorType(DType.int64, [2]), node.graph.build.vector([groups]), count, axis=0)
    for position in (1, 2):
        dtype = node.tensor(position).dtype
        column = node.emit(
            "Unsqueeze", TensorType(dtype, [groups, 1]), node.operand(position), node.graph.build.vector([1])
        )
        repeated = node.emit("Expand", unknown(dtype, 2), column, sizes)
        node.put(position, node.emit("Reshape", TensorType(dtype, [channels]), repeated, node.graph.build.vector([-1])))
    return None


# Upsample, and Resize before it said how it maps coordinates.

_MODES = {"bilinear": "linear", "trilinear": "linear"}


def upsample_scales(node: Read) -> Made:
    """The scales were an attribute."""
    scales = np.array(node.attributes.pop("scales"), np.float32)
    node.put(1, node.graph.build.constant(scales, DType.float32))
    return None


def upsample(node: Read) -> Made:
    given, rank = node.tensor(1).shape, node.rank(0)
    is_vector = not given.is_ranked or given.rank == 1
    if not is_vector or (rank is not None and given.is_ranked and given[0].is_static and int(given[0]) != rank):
        raise node.refusal(f"its scales are of shape {given}", "give one number for each axis")
    node.op_type = "Resize"
    return None


def coordinates(node: Read) -> Made:
    """Coordinates were divided by the scale; the nearest was the next below, or above where the result is smaller.

    The specification is silent there. What onnxruntime does with opset 10 is taken.
    """
    mode = node.attributes.get("mode", "nearest")
    mode = _MODES.get(mode, mode)
    x, scales = node.operand(0), node.operand(1)
    node.inputs[:] = [x, None, scales]
    node.attributes.clear()
    node.attributes |= {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if mode != "nearest":
        return None
    known = node.known(2)
    node.attributes["nearest_mode"] = "floor"
    if known is not None and (known >= 1).all():
        return None
    if known is not None and (known <= 1).all():
        node.attributes["nearest_mode"] = "ceil"
        return None
    # One node rounds one way: shrink first, then enlarge.
    type_ = node.tensor(2)
    one = node.scalar(1.0, DType.float32)
    smaller, larger = (node.emit(op, type_, scales, one) for op in ("Min", "Max"))
    small = _resize(node, unknown(node.tensor(0).dtype, node.rank(0)), x, smaller, "ceil")
    return (_resize(node, node.result(), small, larger, "floor"),)


def _resize(node: Read, type_: TensorType, x: Symbol, scales: Symbol, nearest: str) -> Symbol:
    return node.emit(
        "Resize", type_, x, None, scales,
        mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode=nearest,
    )  # fmt: skip


_ROUNDED = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}
"""The mode that rounds a coordinate as the first does after half a pixel was added to it."""


def half_pixel(node: Read) -> Made:
    """Operands that say nothing could not be left out, and TensorFlow's half pixels had a name."""
    transformation = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    if transformation != "tf_crop_and_resize":
        node.put(1, None)
    if node.given(3) is not None:
        node.put(2, None)
    if transformation != "tf_half_pixel_for_nn":
        return None
    nearest = node.attributes.get("nearest_mode", "round_prefer_floor")
    if node.attributes.get("mode", "nearest") != "nearest" or nearest not in _ROUNDED:
        raise node.refusal(
            f"tf_half_pixel_for_nn with {node.attributes.get('mode', 'nearest')} {nearest} has no equivalent",
            "use half_pixel, or nearest_mode='floor'",
        )
    node.attributes["coordinate_transformation_mode"] = "half_pixel"
    node.attributes["nearest_mode"] = _ROUNDED[nearest]
    return None


# Scan of opset 8, which went through the sequences of a batch.


def batched(node: Read) -> Made:
    """A Scan over the batch, with a Scan over one sequence as its body. States begin anew with every sequence."""
    lengths, operands = node.given(0), node.inputs[1:]
    body: Graph = node.attributes["body"]
    count = int(node.attributes["num_scan_inputs"])
    states = len(operands) - count
    if states < 0 or len(body.inputs) != len(operands) or any(s is None for s in operands):
        raise node.refusal(
            f"its body has {len(body.inputs)} inputs where {len(operands)} are given", "export the model again"
        )
    given = [s for s in (lengths, *operands) if s is not None]
    around = new_body(node.graph, "sequence", [_without_batch(symbol) for symbol in given])
    around.site.layer = ""
    inner = list(around.inputs)
    length = inner.pop(0) if lengths is not None else None
    whole = inner[states:]
    if length is not None:
        inner[states:] = [_first(around, symbol, length) for symbol in whole]
    results: list[Type] = [symbol.type for symbol in body.outputs[:states]]
    results += [_stacked(symbol.type) for symbol in body.outputs[states:]]
    _move(body, around)
    attributes = {"body": body, "num_scan_inputs": count}
    if node.attributes.get("directions"):
        attributes["scan_input_directions"] = node.attributes["directions"]
    made = around.build.emit_many("Scan", tuple(inner), results, attributes)
    if length is not None:
        made = (*made[:states], *(_padded(around, s, whole[0], length) for s in made[states:]))
    around.build.outputs([(None, symbol) for symbol in made])
    return node.graph.build.emit_many("Scan", tuple(given), node.types, {"body": around, "num_scan_inputs": len(given)})


def _move(body: Graph, around: Graph) -> None:
    """Put a body into another graph, inside of the one it was in: what it captures is captured on the way."""
    scope = body.scope
    captured, scope.captured, scope.outer = scope.captured, {}, around
    for symbol in captured.values():
        assert isinstance(symbol.producer, Captured)
        outer = around.build.capture(symbol.producer.symbol)
        assert outer is not None
        change(symbol, producer=Captured(outer))
        scope.captured[outer.id] = symbol


def _without_batch(symbol: Symbol) -> Type:
    type_: Type = symbol.type
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked or not type_.shape:
        return type_
    return tensor_type(type_.dtype, type_.shape[1:])


def _stacked(type_: Type) -> Type:
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    return TensorType(type_.dtype, ["?", *type_.shape])


def _first(graph: Graph, symbol: Symbol, length: Symbol) -> Symbol:
    """The elements of a sequence up to its own length."""
    end = graph.build.emit("Unsqueeze", (length, graph.build.vector([0])), TensorType(DType.int64, [1]))
    return graph.build.emit(
        "Slice", (symbol, graph.build.vector([0]), end, graph.build.vector([0])), _of_some_length(symbol)
    )


def _padded(graph: Graph, symbol: Symbol, whole: Symbol, length: Symbol) -> Symbol:
    """Results of a shorter sequence, filled up to the longest; what with is not defined."""
    one = TensorType(DType.int64, [1])
    longest = graph.build.emit("Shape", (whole,), one, {"start": 0, "end": 1})
    own = graph.build.emit("Unsqueeze", (length, graph.build.vector([0])), one)
    missing = graph.build.emit("Sub", (longest, own), one)
    pads = graph.build.emit("Concat", (graph.build.vector([0]), missing), TensorType(DType.int64, [2]), {"axis": 0})
    return graph.build.emit("Pad", (symbol, pads, None, graph.build.vector([0])), _of_some_length(symbol))


def _of_some_length(symbol: Symbol) -> TensorType:
    shape = symbol.shape
    return tensor_type(symbol.dtype, Shape(["?", *shape[1:]]) if shape.is_ranked else shape)
