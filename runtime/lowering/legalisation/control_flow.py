"""If, Loop and Scan: values of dtypes that their kernels do not take go into and out of their bodies as others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import bodies
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.targets.compute_dtypes import PROMOTIONS
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, _shape, tensor_type


def stored_as(node: Node, rules: Legality) -> dict[DType, DType]:
    """Return what stores the values that an If, Loop or Scan takes or gives, by each dtype that it has no kernel for.

    Raises `GraphError` for a Loop that onnxruntime gets wrong.
    """
    outside = [s.type for s in (*node.inputs, *node.outputs) if s is not None]
    inside = [s.type for body in bodies(node) for s in (*body.inputs, *body.outputs)]
    dtypes = {t.dtype.storage for t in (*outside, *inside) if isinstance(t, TensorType)} if rules.decomposes else set()
    tables = [rules] if rules.host is None else [rules, rules.host]

    def is_taken(dtype: DType) -> bool:
        return any(table.allows(node.op_type, dtype) for table in tables)

    if rules.target.is_host and rules.has_trap("Loop that gathers strings"):
        _require_survived(node)
    found = {}
    for dtype in dtypes:
        fit = [d for d in PROMOTIONS.get(dtype, ()) if is_taken(d) and d.is_float is dtype.is_float]
        if fit and not is_taken(dtype):
            found[dtype] = fit[0]
    return found


def legal(b: Builder, call: Call, dtypes: Mapping[DType, DType]) -> tuple[Symbol, ...]:
    """Build a call whose bodies are legal already. dtypes: what stores its values, from `stored_as`."""
    inputs = tuple([None if s is None else stored(b, s, dtypes) for s in call.inputs])
    wanted = call.types
    types = [
        b.retyped(t, dtypes[t.dtype]) if isinstance(t, TensorType) and t.dtype in dtypes else t for t in call.types
    ]
    call = Call(call.op, inputs, types, call.attributes)
    if has_detour(b.rules, call.op, call.attributes, [None if s is None else s.type for s in inputs], types):
        made = _scanned(b, call) if call.op == "Scan" else _counted(b, call)
    else:
        made = b.emit_many(call.op, inputs, types, call.attributes)
    return tuple(
        b.cast(m, t.dtype) if isinstance(t, TensorType) and m.type is not t else m
        for m, t in zip(made, wanted, strict=True)
    )


def has_detour(
    rules: Legality, op_type: str, attributes: Mapping[str, Any], inputs: Sequence[Type | None], outputs: Sequence[Type]
) -> bool:
    """Return whether a kernel may not survive what a node is given.

    That of Scan moves axes itself, and divides by the number of elements that stand together. That of Loop reads the
    first number of turns, and whether there is a first turn, also where there is none.
    """
    if op_type == "Loop" and rules.decomposes and rules.has_trap("Loop without a number of turns"):
        return not all(t is None or _is_one(t) for t in inputs[:2])
    if op_type != "Scan" or not rules.decomposes or not rules.has_trap("Scan along other axes without elements"):
        return False
    states = len(inputs) - int(attributes["num_scan_inputs"])
    moved = zip(attributes.get("scan_input_axes") or (), inputs[states:], strict=False)
    made = zip(attributes.get("scan_output_axes") or (), outputs[states:], strict=False)
    return any(axis and type_ is not None and _may_be_empty(type_) for axis, type_ in (*moved, *made))


def entered(b: Builder, inputs: Sequence[Symbol], dtypes: Mapping[DType, DType]) -> Iterator[tuple[Symbol, Symbol]]:
    """Retype the inputs of a body to what stores them; yield each old one with its value in its own dtype again."""
    for symbol, made in zip(inputs, b.graph.input_symbols, strict=True):
        if isinstance(made.type, TensorType) and made.type.dtype in dtypes:
            own = made.type.dtype
            change(made, type=b.retyped(made.type, dtypes[own]))
            yield symbol, b.cast(made, own)


def stored(b: Builder, value: Symbol, dtypes: Mapping[DType, DType]) -> Symbol:
    """Return a value in the dtype that stores it."""
    if not isinstance(value.type, TensorType) or value.type.dtype not in dtypes:
        return value
    return b.cast(value, dtypes[value.type.dtype])


def _scanned(b: Builder, call: Call) -> tuple[Symbol, ...]:
    """Build a Scan that goes along the first axis of what may be empty: Transposes move the others there and back."""
    scanned = int(call.attributes["num_scan_inputs"])
    states = len(call.inputs) - scanned
    inputs, types, attributes = list(call.inputs), list(call.types), dict(call.attributes)
    axes = list(attributes.get("scan_input_axes") or [0] * scanned)
    ends = list(attributes.get("scan_output_axes") or [0] * (len(types) - states))
    back = [0] * len(ends)
    for i, axis in enumerate(axes):
        x = inputs[states + i]
        assert x is not None
        if axis and _may_be_empty(x.type):
            inputs[states + i], axes[i] = _moved(b, x, axis % len(_shape_of(x.type)), 0), 0
    for i, axis in enumerate(ends):
        type_ = types[states + i]
        if axis and _may_be_empty(type_):
            dims = list(_shape_of(type_))
            back[i], ends[i] = axis % len(dims), 0
            types[states + i] = tensor_type(type_.dtype, _shape([dims.pop(back[i]), *dims]))
    if "scan_input_axes" in attributes:
        attributes["scan_input_axes"] = axes
    if "scan_output_axes" in attributes:
        attributes["scan_output_axes"] = ends
    made = list(b.emit_many("Scan", tuple(inputs), types, attributes))
    for i, axis in enumerate(back):
        made[states + i] = _moved(b, made[states + i], 0, axis)
    return tuple(made)


def _counted(b: Builder, call: Call) -> tuple[Symbol, ...]:
    """Build a Loop whose number of turns and first condition are one number, or fail in a Reshape.

    Raises `GraphError` where they are known to be none or several.
    """
    inputs = list(call.inputs)
    for i, symbol in enumerate(inputs[:2]):
        if symbol is None or _is_one(symbol.type) or not isinstance(symbol.type, TensorType):
            continue
        shape = symbol.type.shape
        if shape.is_ranked and all(dim.is_static for dim in shape):
            what = "condition" if i else "number of turns"
            raise GraphError(f"Loop: the {what} is one number", operands={what: symbol}, help="give a scalar")
        inputs[i] = b.op("Reshape", symbol, b.constant(np.zeros(0, np.int64), DType.int64), shape=_shape([]))
    return b.emit_many("Loop", tuple(inputs), call.types, call.attributes)


def _is_one(type_: Type) -> bool:
    """Return whether a tensor is known to have one element."""
    return (
        isinstance(type_, TensorType)
        and type_.shape.is_ranked
        and all(d.is_static and int(d) == 1 for d in type_.shape)
    )


def _may_be_empty(type_: Type) -> TypeGuard[TensorType]:
    if not isinstance(type_, TensorType):
        return False
    return not type_.shape.is_ranked or not all(d.is_static and int(d) for d in type_.shape)


def _shape_of(type_: TensorType) -> Shape:
    if not type_.shape.is_ranked:
        raise GraphError(
            "Scan: along another axis than the first, of a tensor whose rank is not known",
            operands={"the tensor": str(type_)},
            help="say the ranks of the operands and results of the Scan's body",
        )
    return type_.shape


def _moved(b: Builder, x: Symbol, axis: int, to: int) -> Symbol:
    """Return a tensor with an axis at another place."""
    if axis == to:
        return x
    assert isinstance(x.type, TensorType)
    order = [i for i in range(len(x.type.shape)) if i != axis]
    order.insert(to, axis)
    return b.op("Transpose", x, shape=_shape([x.type.shape[i] for i in order]), perm=order)


def _require_survived(node: Node) -> None:
    """Raise `GraphError` for a Loop that gathers strings: all but the first are lost, or the process ends."""
    gathered = node.outputs[max(len(node.inputs) - 2, 0) :] if node.op_type == "Loop" else ()
    for result in gathered:
        if isinstance(result.type, TensorType) and result.type.dtype is DType.string:
            raise GraphError(
                "Loop: onnxruntime loses the strings that each step but the first adds to a result",
                operands={"result": str(result.type)},
                help="let each step put them into a tensor that goes through the loop",
            )
