"""Simplify the computation of shapes by known dims: numbers, and names that stand for one size.

Dims of one name have one size, in all inputs and in everything computed from them. So `Gather(Shape(x), 0)` is the same
for every tensor with that dim, and a Reshape that keeps an axis can copy it. This does not apply to bodies, where the
sizes of one name can differ from iteration to iteration.
"""

from __future__ import annotations

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Inputs
from graphcore.ir.transform.shape_values import VALUES
from graphcore.ir.transform.walk import node_of
from graphcore.operators import Trait, having
from graphcore.operators.shapes.call import Value
from graphcore.passes.sweep import Rule, Sweep
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, tensor_type

_VIEWS = having(Trait.VIEWS)
_SIZES = frozenset({DType.int64, DType.int32, DType.bool})


def simplify_sizes(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Replace a computation of sizes by a constant, by an earlier value with the same sizes, or by one Shape."""
    result = node.outputs[0]
    type_ = result.type
    if not isinstance(type_, TensorType) or type_.dtype not in _SIZES:
        return None
    if not type_.shape.is_static or len(type_.shape) > 1:
        return None
    value = sweep.sizes.of(result)
    sizes = value if isinstance(value, tuple) else (value,)
    if any(size is None for size in sizes) or (len(type_.shape) == 1) != isinstance(value, tuple):
        return None
    if isinstance(value, tuple) and (len(value),) != tuple(type_.shape.static_dims):
        return None
    if all(isinstance(size, int) for size in sizes):
        return sweep.constant(node, np.array(value, type_.dtype.numpy), type_)
    if not sweep.is_top or type_.dtype is DType.bool:
        return None
    key = id(type_), value
    existing = sweep.by_value.get(key)
    if existing is not None:
        return existing
    if node.op_type == "Shape" or type_.dtype is not DType.int64 or not isinstance(value, tuple):
        return None
    return _shape_of_input(sweep, node, value)


def _shape_of_input(sweep: Sweep, node: Node, value: tuple[object, ...]) -> Symbol | None:
    """Return a Shape of a graph input that has these sizes in order, or None."""
    count = len(value)
    for symbol in sweep.new.input_symbols:
        if not isinstance(symbol.type, TensorType) or not symbol.shape.is_ranked:
            continue
        dims = [*symbol.shape]
        for start in range(len(dims) - count + 1):
            if all(not d.is_dynamic and d == v for d, v in zip(dims[start : start + count], value, strict=True)):
                attributes = {"start": start, "end": start + count}
                if count == len(dims):
                    attributes = {}
                return sweep.add(node, "Shape", (symbol,), node.outputs[0].type, attributes)
    return None


def simplify_view(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove a view that changes no dim, merge two views, or make the shape of a Reshape a constant."""
    x, type_ = inputs[0], node.outputs[0].type
    if x is None or not isinstance(type_, TensorType) or not isinstance(x.type, TensorType):
        return None
    if _may_be_declared(sweep, node):
        return _constant_reshape(sweep, node, x) if node.op_type == "Reshape" else None
    if _is_same(sweep, x.type, type_):
        return x
    merged = _merge_views(sweep, node, inputs)
    return _simplify_reshape(sweep, node, inputs) if merged is None else merged


def remove_expand(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove an Expand or a forward Slice that changes no dim."""
    x, type_ = inputs[0], node.outputs[0].type
    if x is None or not isinstance(type_, TensorType) or not isinstance(x.type, TensorType):
        return None
    if _may_be_declared(sweep, node):
        return None
    if node.op_type == "Slice" and len(inputs) > 4:
        steps = sweep.constant_value(inputs[4])
        if inputs[4] is not None and (steps is None or (steps != 1).any()):
            return None
    return x if _is_same(sweep, x.type, type_) else None


def _may_be_declared(sweep: Sweep, node: Node) -> bool:
    """Return True if the dims of an output may be declared by a file, not inferred from operands.

    Runtimes only warn if declared dims are wrong.
    """
    if node.outputs[0].id not in sweep.ends:
        return False
    return node.op_type in ("Reshape", "Expand") or (node.op_type == "Squeeze" and len(node.inputs) < 2)


def _constant_reshape(sweep: Sweep, node: Node, x: Symbol) -> Symbol | None:
    """Make the shape of a Reshape a constant by its operand alone, keeping -1."""
    sizes, type_ = sweep.sizes.of(node.inputs[1]), node.outputs[0].type
    shape = node.inputs[1]
    if not isinstance(sizes, tuple) or not x.shape.is_ranked or node.attributes.get("allowzero"):
        return None
    if shape is None or sweep.constant_value(sweep.of(shape)) is not None:
        return None
    numbers: list[int] = []
    for axis, size in enumerate(sizes):
        if isinstance(size, int) and (size or axis >= len(x.shape)):
            numbers.append(size)
        elif size == 0 or (sweep.is_top and axis < len(x.shape) and size is not None and x.shape[axis] == size):
            numbers.append(0)
        else:
            return None
    assert isinstance(type_, TensorType)
    return _add_with_numbers(sweep, node, "Reshape", x, numbers, type_)


def _is_same(sweep: Sweep, a: TensorType, b: TensorType) -> bool:
    """Return True if values of both types have the same dims, for any sizes of named dims."""
    if a is not b or not a.shape.is_ranked:
        return False
    return a.shape.is_static or (sweep.is_top and not any(dim.is_dynamic for dim in a.shape))


def _merge_views(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Merge a view of a view into one node."""
    inner, type_ = node_of(inputs[0], *_VIEWS), node.outputs[0].type
    assert isinstance(type_, TensorType)
    source = None if inner is None else inner.inputs[0]
    if inner is None or source is None or not isinstance(source.type, TensorType) or not source.shape.is_ranked:
        return None
    if not (_has_known_axes(sweep, inner, inner.inputs) and _has_known_axes(sweep, node, inputs)):
        return None
    if _is_same(sweep, source.type, type_):
        return source
    if node.op_type == inner.op_type == "Unsqueeze":
        first, then = sweep.constant_value(inner.inputs[1]), sweep.constant_value(inputs[1])
        if first is None or then is None or not type_.shape.is_ranked:
            return None
        rank = len(type_.shape)
        outer = {int(axis) % rank for axis in then}
        remaining = [axis for axis in range(rank) if axis not in outer]
        axes = sorted(outer | {remaining[int(axis) % len(remaining)] for axis in first})
        return _add_with_numbers(sweep, node, "Unsqueeze", source, axes, type_)
    if not type_.shape.is_ranked:
        return None
    shape = _constant_shape(sweep, source.type, type_, None)
    return None if shape is None else _add_with_numbers(sweep, node, "Reshape", source, shape, type_)


def _has_known_axes(sweep: Sweep, node: Node, inputs: Inputs) -> bool:
    """Return True unless a Squeeze or Unsqueeze has axes that are not constant, which depend on a check of a rebind."""
    return (
        node.op_type not in ("Squeeze", "Unsqueeze") or len(inputs) < 2 or sweep.constant_value(inputs[1]) is not None
    )


def _simplify_reshape(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    x, type_ = inputs[0], node.outputs[0].type
    if node.op_type != "Reshape" or x is None or node.attributes.get("allowzero"):
        return None
    if sweep.constant_value(inputs[1]) is not None:
        return None
    assert isinstance(type_, TensorType)
    assert isinstance(x.type, TensorType)
    shape = _constant_shape(sweep, x.type, type_, sweep.sizes.of(node.inputs[1]))
    return None if shape is None else _add_with_numbers(sweep, node, "Reshape", x, shape, type_)


def _constant_shape(sweep: Sweep, source: TensorType, target: TensorType, requested: Value) -> list[int] | None:
    """Return the shape operand of a Reshape as numbers; None if it is not constant.

    0 copies an axis that the source has in the same place. One axis can be -1, whose size the runtime infers: if
    `requested`, the shape that the file computes, has it there, too, or if no other size can be 0.
    """
    if not target.shape.is_ranked or not source.shape.is_ranked:
        return None
    source_dims, dims = [*source.shape], [*target.shape]
    sizes = requested if isinstance(requested, tuple) and len(requested) == len(dims) else (None,) * len(dims)
    numbers: list[int] = []
    for axis, (dim, requested_size) in enumerate(zip(dims, sizes, strict=True)):
        if dim.is_static and not int(dim):
            return None
        is_same = sweep.is_top and axis < len(source_dims) and not dim.is_dynamic and source_dims[axis] == dim
        numbers.append(
            int(dim) if dim.is_static else 0 if is_same or (requested_size == 0 and axis < len(source_dims)) else -1
        )
    if -1 not in numbers:
        return numbers
    if numbers.count(-1) > 1:
        return None
    return numbers if sizes[numbers.index(-1)] == -1 or all(size > 0 for size in numbers if size != -1) else None


def _add_with_numbers(
    sweep: Sweep, node: Node, op_type: str, x: Symbol, numbers: list[int], type_: TensorType
) -> Symbol:
    vector = tensor_type(DType.int64, Shape([len(numbers)]))
    operand = sweep.constant(node, np.array(numbers, np.int64), vector)
    return sweep.add(node, op_type, (x, operand), type_)


def merge_transposes(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Merge two Transposes into one."""
    inner = node_of(inputs[0], "Transpose")
    source = None if inner is None else inner.inputs[0]
    if inner is None or source is None or not isinstance(source.type, TensorType) or not source.shape.is_ranked:
        return None
    rank = len(source.shape)
    then, first = (list(each.attributes.get("perm", range(rank)[::-1])) for each in (node, inner))
    if sorted(then) != [*range(rank)] or sorted(first) != [*range(rank)]:
        return None
    return sweep.add(node, "Transpose", (source,), node.outputs[0].type, {"perm": [first[axis] for axis in then]})


SHAPES: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(VALUES.keys() - {"Identity"}, (simplify_sizes,)),
    "Shape": (simplify_sizes,),
    "Unsqueeze": (simplify_sizes, simplify_view),
    "Squeeze": (simplify_sizes, simplify_view),
    "Reshape": (simplify_sizes, simplify_view),
    "Flatten": (simplify_view,),
    "Expand": (remove_expand,),
    "Slice": (simplify_sizes, remove_expand),
    "Transpose": (merge_transposes,),
}
