"""Convert nodes of older and newer opsets to the opset of Graphs, by operator: changes that need several nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.ir.definitions import new_body, outermost
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Captured, Symbol, present
from graphcore.onnx.proto.type_protos import stack_type
from graphcore.onnx.versions.older import Converted, ReadNode, expand_function, unknown
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type


@dataclass(frozen=True, slots=True)
class _OptimizerStep:
    """One update of one tensor, in its own dtype."""

    node: ReadNode
    type: TensorType
    rate: Symbol
    """The learning rate, a scalar."""
    count: Symbol
    """The number of updates so far, a scalar."""

    def attribute(self, name: str, default: float = 0.0) -> Symbol:
        return self.number(float(np.float32(self.node.attributes.get(name, default))))

    def number(self, value: float) -> Symbol:
        return self.node.scalar(value, self.type.dtype)

    def __call__(self, op_type: str, *operands: Symbol) -> Symbol:
        are_scalars = all(s.type is self.rate.type for s in operands)
        return self.node.emit(op_type, self.rate.type if are_scalars else self.type, *operands)

    def regular(self, x: Symbol, gradient: Symbol) -> Symbol:
        """Add the gradient of the penalty for large weights."""
        return self("Add", self("Mul", self.attribute("norm_coefficient"), x), gradient)

    def started(self, later: Symbol, first: Symbol) -> Symbol:
        """Return the scalar `first` before the first update, else `later`."""
        truth = TensorType(DType.bool, [])
        begun = self.node.emit("Greater", truth, self.count, self.number(0.0))
        return self.node.emit("Where", self.rate.type, begun, later, first)


def _adagrad(step: _OptimizerStep, x: Symbol, gradient: Symbol, squares: Symbol) -> Sequence[Symbol]:
    slower = step("Add", step.number(1.0), step("Mul", step.count, step.attribute("decay_factor")))
    gradient = step.regular(x, gradient)
    squares = step("Add", squares, step("Mul", gradient, gradient))
    size = step("Add", step("Sqrt", squares), step.attribute("epsilon", 1e-6))
    moved = step("Div", step("Mul", step("Div", step.rate, slower), gradient), size)
    return step("Sub", x, moved), squares


def _momentum(step: _OptimizerStep, x: Symbol, gradient: Symbol, velocity: Symbol) -> Sequence[Symbol]:
    alpha = step.attribute("alpha")
    gradient = step.regular(x, gradient)
    beta = step.started(step.attribute("beta"), step.number(1.0))
    velocity = step("Add", step("Mul", alpha, velocity), step("Mul", beta, gradient))
    direction = velocity
    if step.node.attributes.get("mode") == "nesterov":
        direction = step("Add", gradient, step("Mul", alpha, velocity))
    return step("Sub", x, step("Mul", step.rate, direction)), velocity


def _adam(step: _OptimizerStep, x: Symbol, gradient: Symbol, mean: Symbol, squares: Symbol) -> Sequence[Symbol]:
    alpha, beta, one = step.attribute("alpha", 0.9), step.attribute("beta", 0.999), step.number(1.0)
    gradient = step.regular(x, gradient)
    mean = step("Add", step("Mul", alpha, mean), step("Mul", step("Sub", one, alpha), gradient))
    square = step("Mul", gradient, gradient)
    squares = step("Add", step("Mul", beta, squares), step("Mul", step("Sub", one, beta), square))
    size = step("Add", step("Sqrt", squares), step.attribute("epsilon", 1e-6))
    unbiased = step(
        "Div",
        step("Sqrt", step("Sub", one, step("Pow", beta, step.count))),
        step("Sub", one, step("Pow", alpha, step.count)),
    )
    rate = step.started(step("Mul", step.rate, unbiased), step.rate)
    moved = step("Sub", x, step("Div", step("Mul", rate, mean), size))
    shrink = step("Sub", one, step.attribute("norm_coefficient_post"))
    return step("Mul", shrink, moved), mean, squares


_Update = Callable[..., Sequence[Symbol]]
UPDATES: dict[str, tuple[_Update, int]] = {"Adagrad": (_adagrad, 3), "Momentum": (_momentum, 3), "Adam": (_adam, 4)}
"""The update of one tensor, and its number of operands per tensor: the tensor, its gradient and its state."""


def optimizer(node: ReadNode) -> Converted:
    """Update all tensors; results have the order of operands, without the gradients."""
    update, parts = UPDATES[node.op_type]
    tensors = len(node.inputs) - 2
    if tensors % parts or len(node.types) != tensors // parts * (parts - 1):
        raise node.error(f"{tensors} tensors cannot be grouped by {parts}", "export the model again")
    count = tensors // parts
    columns: list[list[Symbol]] = [[] for _ in range(parts - 1)]
    for i in range(count):
        operands = [node.operand(2 + i + count * part) for part in range(parts)]
        type_ = tensor_type(node.tensor(2 + i).dtype.storage, node.tensor(2 + i).shape)
        scalars = (_scalar(node, position, type_.dtype) for position in (0, 1))
        for column, symbol in zip(columns, update(_OptimizerStep(node, type_, *scalars), *operands), strict=True):
            column.append(symbol)
    return tuple(symbol for column in columns for symbol in column)


def _scalar(node: ReadNode, position: int, dtype: DType) -> Symbol:
    symbol = node.graph.build.cast(node.operand(position), dtype)
    type_ = TensorType(dtype, [])
    return symbol if symbol.type is type_ else node.emit("Reshape", type_, symbol, node.graph.build.vector([]))


# Operators of the domain `ai.onnx.ml`, and of ONNX's preview domains.


def classes(node: ReadNode) -> None:
    """LabelEncoder had one list of strings, which it mapped to and from their indices."""
    names = node.attributes.pop("classes_strings", [])
    numbers = list(range(len(names)))
    if node.tensor(0).dtype is DType.string:
        node.attributes |= {"keys_strings": names, "values_int64s": numbers}
    else:
        node.attributes |= {"keys_int64s": numbers, "values_strings": names}


def trees(node: ReadNode) -> None:
    """Version 5 replaces these operators by a common one: the graph is written with version 4, which has them."""
    outermost(node.graph).opsets["ai.onnx.ml"] = 4


# Operators of opsets 27 and 28 by those of opset 26.

_NARROW = frozenset({DType.float16, DType.bfloat16})
_LIBRARY = "graphcore"
"""The domain of operators that lowering expands."""


def range_in(node: ReadNode) -> Converted:
    """Narrow floats are computed in the dtype `stash_type`."""
    stash = DType.of(node.attributes.pop("stash_type", 1))
    type_ = node.result()
    if type_.dtype not in _NARROW:
        return None
    wide = [node.graph.build.cast(node.operand(i), stash) for i in range(3)]
    return (node.graph.build.cast(node.emit("Range", type_.cast(stash), *wide), type_.dtype),)


def remainder(node: ReadNode) -> None:
    """Remainders of floats can have the divisor's sign."""
    if node.tensor(0).dtype.is_float and not node.attributes.get("fmod", 0):
        node.op_type, node.domain = "FloorMod", _LIBRARY
        node.attributes.clear()


def shift(node: ReadNode) -> None:
    """Signed integers can be shifted, and every count is defined."""
    direction = node.attributes.pop("direction")
    node.op_type, node.domain = {"LEFT": "ShiftLeft", "RIGHT": "ShiftRight"}[direction], _LIBRARY


def space_to_depth(node: ReadNode) -> Converted:
    """Channels can come before blocks."""
    if node.attributes.get("mode", "DCR") != "DCR":
        return expand_function(node)
    node.attributes.pop("mode", None)
    return None


# Normalisations of older opsets.


def per_feature(node: ReadNode) -> Converted:
    """BatchNormalization could have statistics per feature instead of per channel."""
    if node.attributes.pop("spatial", 1):
        return None
    if len(node.types) > 1:
        raise node.error("training with statistics per feature is not supported", "export the model for inference")
    type_ = node.tensor(0)
    x, scale, bias, mean, variance = (node.operand(i) for i in range(5))
    feature_type = node.tensor(1)
    epsilon = node.scalar(float(node.attributes.get("epsilon", 1e-5)), type_.dtype)
    deviation = node.emit("Sqrt", feature_type, node.emit("Add", feature_type, variance, epsilon))
    centred = node.emit("Sub", type_, x, mean)
    scaled = node.emit("Mul", type_, node.emit("Div", type_, centred, deviation), scale)
    return (node.emit("Add", type_, scaled, bias),)


def training(node: ReadNode) -> Converted:
    """More than one result meant training; the statistics of the batch were results too."""
    if len(node.types) == 1:
        return None
    attributes = {**node.attributes, "training_mode": 1}
    statistics = node.tensor(3)
    kinds = (node.types[0], statistics, node.tensor(4))
    results = node.graph.build.emit_many("BatchNormalization", tuple(node.inputs), kinds, attributes)
    if len(node.types) <= 3:
        return results[: len(node.types)]
    rank = node.rank(0)
    if rank is None:
        raise node.error("the statistics of the batch are used, but the rank is unknown", "declare the operand's shape")
    x, type_ = node.operand(0), node.tensor(0)
    axes = node.graph.build.vector([axis for axis in range(rank) if axis != 1])
    reduced = TensorType(type_.dtype, [1 if axis != 1 else type_.shape[1] for axis in range(rank)])
    mean = node.emit("ReduceMean", reduced, x, axes)
    centred = node.emit("Sub", type_, x, mean)
    squares = node.emit("Mul", type_, centred, centred)
    variance = node.emit("ReduceMean", statistics, squares, axes, keepdims=0)
    return (*results, node.emit("Squeeze", statistics, mean, axes), variance)[: len(node.types)]


def group(node: ReadNode) -> None:
    """GroupNormalization had a scale and a bias per group, and has them per channel."""
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


# Upsample, and Resize before its attributes for coordinates.

_MODES = {"bilinear": "linear", "trilinear": "linear"}


def upsample_scales(node: ReadNode) -> None:
    """The scales were an attribute."""
    scales = np.array(node.attributes.pop("scales"), np.float32)
    node.put(1, node.graph.build.constant(scales, DType.float32))


def upsample(node: ReadNode) -> None:
    shape, rank = node.tensor(1).shape, node.rank(0)
    is_vector = not shape.is_ranked or shape.rank == 1
    if not is_vector or (rank is not None and shape.is_ranked and shape[0].is_static and int(shape[0]) != rank):
        raise node.error(f"its scales have shape {shape}", "give one number for each axis")
    node.op_type = "Resize"


def coordinates(node: ReadNode) -> Converted:
    """Coordinates were divided by the scale; "nearest" rounded down, or up where the result is smaller.

    The specification does not define this. The conversion follows onnxruntime at opset 10.
    """
    mode = node.attributes.get("mode", "nearest")
    mode = _MODES.get(mode, mode)
    x, scales = node.operand(0), node.operand(1)
    node.inputs[:] = [x, None, scales]
    node.attributes.clear()
    node.attributes |= {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if mode != "nearest":
        return None
    values = node.constant(2)
    node.attributes["nearest_mode"] = "floor"
    if values is not None and (values >= 1).all():
        return None
    if values is not None and (values <= 1).all():
        node.attributes["nearest_mode"] = "ceil"
        return None
    # A node rounds in one direction: first shrink, then enlarge.
    type_ = node.tensor(2)
    one = node.scalar(1.0, DType.float32)
    smaller, larger = (node.emit(op, type_, scales, one) for op in ("Min", "Max"))
    small = _resize(node, unknown(node.tensor(0).dtype, node.rank(0)), x, smaller, "ceil")
    return (_resize(node, node.result(), small, larger, "floor"),)


def _resize(node: ReadNode, type_: TensorType, x: Symbol, scales: Symbol, nearest: str) -> Symbol:
    return node.emit(
        "Resize", type_, x, None, scales,
        mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode=nearest,
    )  # fmt: skip


_ROUNDED = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}
"""For each rounding mode the one that rounds alike without adding half a pixel first."""


def half_pixel(node: ReadNode) -> None:
    """Unused operands could not be left out, and TensorFlow's half pixels had their own mode."""
    transformation = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    if transformation != "tf_crop_and_resize":
        node.put(1, None)
    if node.optional(3) is not None:
        node.put(2, None)
    if transformation != "tf_half_pixel_for_nn":
        return
    nearest = node.attributes.get("nearest_mode", "round_prefer_floor")
    if node.attributes.get("mode", "nearest") != "nearest" or nearest not in _ROUNDED:
        raise node.error(
            f"tf_half_pixel_for_nn with {node.attributes.get('mode', 'nearest')} {nearest} has no equivalent",
            "use half_pixel, or nearest_mode='floor'",
        )
    node.attributes["coordinate_transformation_mode"] = "half_pixel"
    node.attributes["nearest_mode"] = _ROUNDED[nearest]


# Scan of opset 8, which iterated over the sequences of a batch.


def scan_over_batch(node: ReadNode) -> Converted:
    """Build a Scan over the batch whose body is a Scan over one sequence. States start anew for every sequence."""
    lengths, operands = node.optional(0), node.inputs[1:]
    body: Graph = node.attributes["body"]
    count = int(node.attributes["num_scan_inputs"])
    states = len(operands) - count
    if states < 0 or len(body.inputs) != len(operands) or any(s is None for s in operands):
        raise node.error(
            f"its body has {len(body.inputs)} inputs, but the node has {len(operands)}", "export the model again"
        )
    present = [s for s in (lengths, *operands) if s is not None]
    outer = new_body(node.graph, "sequence", [_without_batch(symbol) for symbol in present])
    outer.site.layer = ""
    inner = list(outer.inputs)
    length = inner.pop(0) if lengths is not None else None
    padded = inner[states:]
    if length is not None:
        inner[states:] = [_slice_sequence(outer, symbol, length) for symbol in padded]
    results: list[Type] = [symbol.type for symbol in body.outputs[:states]]
    results += [stack_type(symbol.type, 0, Dim.dynamic()) for symbol in body.outputs[states:]]
    _move(body, outer)
    attributes = {"body": body, "num_scan_inputs": count}
    if node.attributes.get("directions"):
        attributes["scan_input_directions"] = node.attributes["directions"]
    symbols = outer.build.emit_many("Scan", tuple(inner), results, attributes)
    if length is not None:
        symbols = (*symbols[:states], *(_pad_sequence(outer, s, padded[0], length) for s in symbols[states:]))
    outer.build.outputs([(None, symbol) for symbol in symbols])
    return node.graph.build.emit_many(
        "Scan", tuple(present), node.types, {"body": outer, "num_scan_inputs": len(present)}
    )


def _move(body: Graph, target: Graph) -> None:
    """Move a body into a nested graph, which captures the outer values for it."""
    scope = body.scope
    captured, scope.captured, scope.outer = scope.captured, {}, target
    for symbol in captured.values():
        assert isinstance(symbol.producer, Captured)
        outer = present(target.build.capture(symbol.producer.symbol))
        change(symbol, producer=Captured(outer))
        scope.captured[outer.id] = symbol


def _without_batch(symbol: Symbol) -> Type:
    type_: Type = symbol.type
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked or not type_.shape:
        return type_
    return tensor_type(type_.dtype, type_.shape[1:])


def _slice_sequence(graph: Graph, symbol: Symbol, length: Symbol) -> Symbol:
    """Return the elements of a sequence up to its own length."""
    end = graph.build.emit("Unsqueeze", (length, graph.build.vector([0])), TensorType(DType.int64, [1]))
    return graph.build.emit(
        "Slice", (symbol, graph.build.vector([0]), end, graph.build.vector([0])), _of_some_length(symbol)
    )


def _pad_sequence(graph: Graph, symbol: Symbol, padded: Symbol, length: Symbol) -> Symbol:
    """Pad the results of a shorter sequence to the longest one, with undefined values."""
    one = TensorType(DType.int64, [1])
    max_length = graph.build.emit("Shape", (padded,), one, {"start": 0, "end": 1})
    own_length = graph.build.emit("Unsqueeze", (length, graph.build.vector([0])), one)
    missing = graph.build.emit("Sub", (max_length, own_length), one)
    pads = graph.build.emit("Concat", (graph.build.vector([0]), missing), TensorType(DType.int64, [2]), {"axis": 0})
    return graph.build.emit("Pad", (symbol, pads, None, graph.build.vector([0])), _of_some_length(symbol))


def _of_some_length(symbol: Symbol) -> TensorType:
    shape = symbol.shape
    return tensor_type(symbol.dtype, Shape(["?", *shape[1:]]) if shape.is_ranked else shape)
