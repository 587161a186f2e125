"""Shapes that a graph computes, simplified by the dims that are known: numbers, and names that stand for one size.

Dims of one name are one size, in all inputs and in what is computed of them. So `Gather(Shape(x), 0)` is what the same
of any other tensor with that dim is, and a Reshape that keeps an axis copies it. Bodies are left alone in this: there
the sizes of one name may differ from run to run.
"""

from __future__ import annotations

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Inputs
from graphcore.ir.transform.shape_values import VALUES
from graphcore.operators import Trait, having
from graphcore.operators.shapes.call import Value
from graphcore.passes.sweep import Rule, Sweep
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, tensor_type

_VIEWS = having(Trait.VIEWS)
_SIZES = frozenset({DType.int64, DType.int32, DType.bool})


def valued(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Replace what holds sizes by a constant, by an earlier value of the same sizes, or by one Shape."""
    result = node.outputs[0]
    type_ = result.type
    if (
        not isinstance(type_, TensorType)
        or type_.dtype not in _SIZES
        or not type_.shape.is_static
        or len(type_.shape) > 1
    ):
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
    found = sweep.by_value.get(key)
    if found is not None:
        return found
    if node.op_type == "Shape" or type_.dtype is not DType.int64 or not isinstance(value, tuple):
        return None
    return _of_input(sweep, node, value)


def _of_input(sweep: Sweep, node: Node, value: tuple[object, ...]) -> Symbol | None:
    """Return a Shape of an input of the graph that holds these sizes, in order."""
    count = len(value)
    for symbol in sweep.new.input_symbols:
        if not isinstance(symbol.type, TensorType) or not symbol.shape.is_ranked:
            continue
        dims = [*symbol.shape]
        for start in range(len(dims) - count + 1):
            if all(_is_size(d, v) for d, v in zip(dims[start : start + count], value, strict=True)):
                attributes = {"start": start, "end": start + count}
                if count == len(dims):
                    attributes = {}
                return sweep.add(node, "Shape", (symbol,), node.outputs[0].type, attributes)
    return None


def _is_size(dim: Dim, size: object) -> bool:
    return not dim.is_dynamic and dim == size


def viewed(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove a view that changes no dim, and make one of two; write the shape of a Reshape as a constant."""
    x, type_ = inputs[0], node.outputs[0].type
    if x is None or not isinstance(type_, TensorType) or not isinstance(x.type, TensorType):
        return None
    if _may_be_declared(sweep, node):
        return _as_asked(sweep, node, x) if node.op_type == "Reshape" else None
    if _is_same(sweep, x.type, type_):
        return x
    made = _of_inner(sweep, node, inputs)
    return _reshaped(sweep, node, inputs) if made is None else made


def expanded(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Remove an Expand or a Slice, forwards, that changes no dim."""
    x, type_ = inputs[0], node.outputs[0].type
    if x is None or not isinstance(type_, TensorType) or not isinstance(x.type, TensorType):
        return None
    if _may_be_declared(sweep, node):
        return None
    if node.op_type == "Slice" and len(inputs) > 4:
        steps = sweep.known(inputs[4])
        if inputs[4] is not None and (steps is None or (steps != 1).any()):
            return None
    return x if _is_same(sweep, x.type, type_) else None


def _may_be_declared(sweep: Sweep, node: Node) -> bool:
    """Return whether the dims of an output may be what a file says they are, and not what follows from the operands.

    Runtimes only warn where that is not so.
    """
    if node.outputs[0].id not in sweep.ends:
        return False
    return node.op_type in ("Reshape", "Expand") or (node.op_type == "Squeeze" and len(node.inputs) < 2)


def _as_asked(sweep: Sweep, node: Node, x: Symbol) -> Symbol | None:
    """Write the shape of a Reshape as a constant by what its operand holds alone, in which -1 stays."""
    asked, type_ = sweep.sizes.of(node.inputs[1]), node.outputs[0].type
    shape = node.inputs[1]
    if not isinstance(asked, tuple) or not x.shape.is_ranked or node.attributes.get("allowzero"):
        return None
    if shape is None or sweep.known(sweep.of(shape)) is not None:
        return None
    made: list[int] = []
    for axis, size in enumerate(asked):
        if isinstance(size, int) and (size or axis >= len(x.shape)):
            made.append(size)
        elif size == 0 or (sweep.is_top and axis < len(x.shape) and size is not None and x.shape[axis] == size):
            made.append(0)
        else:
            return None
    assert isinstance(type_, TensorType)
    return _like(sweep, node, "Reshape", x, made, type_)


def _is_same(sweep: Sweep, a: TensorType, b: TensorType) -> bool:
    """Return whether values of both types have the same dims, whatever dims with names stand for."""
    if a is not b or not a.shape.is_ranked:
        return False
    return a.shape.is_static or (sweep.is_top and not any(dim.is_dynamic for dim in a.shape))


def _of_inner(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Make one node of a view of a view."""
    x, type_ = inputs[0], node.outputs[0].type
    assert x is not None
    assert isinstance(type_, TensorType)
    inner = x.producer
    if type(inner) is not Node or inner.domain or inner.op_type not in _VIEWS:
        return None
    source = inner.inputs[0]
    if source is None or not isinstance(source.type, TensorType) or not source.shape.is_ranked:
        return None
    if not (_has_known_axes(sweep, inner, inner.inputs) and _has_known_axes(sweep, node, inputs)):
        return None
    if _is_same(sweep, source.type, type_):
        return source
    if node.op_type == inner.op_type == "Unsqueeze":
        first, then = sweep.known(inner.inputs[1]), sweep.known(inputs[1])
        if first is None or then is None or not type_.shape.is_ranked:
            return None
        rank = len(type_.shape)
        outer = {int(axis) % rank for axis in then}
        kept = [axis for axis in range(rank) if axis not in outer]
        axes = sorted(outer | {kept[int(axis) % len(kept)] for axis in first})
        return _like(sweep, node, "Unsqueeze", source, axes, type_)
    if not type_.shape.is_ranked:
        return None
    shape = _constant_shape(sweep, source.type, type_, None)
    return None if shape is None else _like(sweep, node, "Reshape", source, shape, type_)


def _has_known_axes(sweep: Sweep, node: Node, inputs: Inputs) -> bool:
    """Return whether a Squeeze or Unsqueeze has constant axes: a rebind makes others depend on its check."""
    return node.op_type not in ("Squeeze", "Unsqueeze") or len(inputs) < 2 or sweep.known(inputs[1]) is not None


def _reshaped(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    x, type_ = inputs[0], node.outputs[0].type
    if node.op_type != "Reshape" or x is None or sweep.known(inputs[1]) is not None or node.attributes.get("allowzero"):
        return None
    assert isinstance(type_, TensorType)
    assert isinstance(x.type, TensorType)
    shape = _constant_shape(sweep, x.type, type_, sweep.sizes.of(node.inputs[1]))
    return None if shape is None else _like(sweep, node, "Reshape", x, shape, type_)


def _constant_shape(sweep: Sweep, source: TensorType, target: TensorType, asked: Value) -> list[int] | None:
    """Return the operand of a Reshape as numbers; None where it depends on the run.

    An axis that the source has in the same place is copied by 0. One axis may be -1, whose size the runtime works out:
    where `asked`, the shape that the file computes, has it there too, or where no other size can be 0.
    """
    if not target.shape.is_ranked or not source.shape.is_ranked:
        return None
    own, dims = [*source.shape], [*target.shape]
    given = asked if isinstance(asked, tuple) and len(asked) == len(dims) else (None,) * len(dims)
    made: list[int] = []
    for axis, (dim, wanted) in enumerate(zip(dims, given, strict=True)):
        if dim.is_static and not int(dim):
            return None
        is_same = sweep.is_top and axis < len(own) and not dim.is_dynamic and own[axis] == dim
        made.append(int(dim) if dim.is_static else 0 if is_same or (wanted == 0 and axis < len(own)) else -1)
    if -1 not in made:
        return made
    if made.count(-1) > 1:
        return None
    return made if given[made.index(-1)] == -1 or all(size > 0 for size in made if size != -1) else None


def _like(sweep: Sweep, node: Node, op_type: str, x: Symbol, numbers: list[int], type_: TensorType) -> Symbol:
    vector = tensor_type(DType.int64, Shape([len(numbers)]))
    operand = sweep.constant(node, np.array(numbers, np.int64), vector)
    return sweep.add(node, op_type, (x, operand), type_)


def transposed_twice(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Make one Transpose of two."""
    x, type_ = inputs[0], node.outputs[0].type
    inner = None if x is None else x.producer
    if x is None or type(inner) is not Node or inner.domain or inner.op_type != "Transpose":
        return None
    source = inner.inputs[0]
    if source is None or not isinstance(source.type, TensorType) or not source.shape.is_ranked:
        return None
    rank = len(source.shape)
    then, first = (list(each.attributes.get("perm", range(rank)[::-1])) for each in (node, inner))
    if sorted(then) != [*range(rank)] or sorted(first) != [*range(rank)]:
        return None
    return sweep.add(node, "Transpose", (source,), type_, {"perm": [first[axis] for axis in then]})


SHAPES: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(VALUES.keys() - {"Identity"}, (valued,)),
    "Shape": (valued,),
    "Unsqueeze": (valued, viewed),
    "Squeeze": (valued, viewed),
    "Reshape": (valued, viewed),
    "Flatten": (viewed,),
    "Expand": (expanded,),
    "Slice": (valued, expanded),
    "Transpose": (transposed_twice,),
}
