"""Complex numbers put elsewhere: each part is, by the operator itself. Bodies and lists take them as one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY
from graphcore.errors import DTypeError
from graphcore.ir.symbol import Node, Symbol
from graphcore.promotion.complex_operators import CARRIERS, MOVES
from graphcore.runtime.lowering.dtypes.complex_numbers import arithmetic, exponentials, layers, trigonometry
from graphcore.runtime.lowering.dtypes.complex_numbers.parts import Pair, Parts, Result, holds_complex, stored_type
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, tensor_type

SUMS = frozenset("AveragePool Col2Im CumSum GridSample ReduceMean ReduceSum Resize RoiAlign".split())
"""Sums with real weights, which do to a complex number what they do to each of its parts, as moves do."""


def _moved(on: Parts, node: Node) -> Sequence[Result]:
    if not all(isinstance(s.type, TensorType) for s in (*node.inputs, *node.outputs) if s is not None):
        return _carried(on, node)  # Identity of a list
    types = [tensor_type(s.dtype.storage, s.shape) for s in node.outputs]
    pairs = [on.pair(s) if s is not None and holds_complex(s) else None for s in node.inputs]
    made = []
    for place in (0, 1):
        inputs = tuple(
            None if s is None else on.of(s) if pair is None else pair[place]
            for s, pair in zip(node.inputs, pairs, strict=True)
        )
        made.append(on.new.build.emit_many(node.op_type, inputs, types, node.attributes, node.domain))
    return [Pair(*parts) for parts in zip(*made, strict=True)]


def _measured(on: Parts, node: Node) -> Sequence[Result]:
    """Shape and Size, which each part has."""
    (x,) = node.inputs
    assert x is not None
    made = e.emit(node.op_type, on.pair(x).real, dtype=DType.int64, shape=node.outputs[0].shape, **node.attributes)
    return (made,)


def _to_pairs(on: Parts, node: Node) -> Sequence[Result]:
    """Return complex numbers as the tensor that carries them."""
    (x,) = node.inputs
    assert x is not None
    return (on.packed(x),)


def _from_pairs(on: Parts, node: Node) -> Sequence[Result]:
    (x,) = node.inputs
    assert x is not None
    return (on.of(x),)


def _filled(on: Parts, node: Node) -> Sequence[Result]:
    """ConstantOfShape, one for each part."""
    (out,) = node.outputs
    (shape,) = (on.of(s) for s in node.inputs if s is not None)
    value = np.asarray(node.attributes["value"])
    type_ = tensor_type(out.dtype.storage, out.shape)
    parts = (np.ascontiguousarray(part).reshape(value.shape) for part in (value.real, value.imag))
    return (Pair(*(on.new.build.emit("ConstantOfShape", (shape,), type_, {"value": part}) for part in parts)),)


def _carried(on: Parts, node: Node) -> Sequence[Result]:
    inputs = tuple([None if s is None else on.of(s) for s in node.inputs])
    types = [stored_type(s.type) for s in node.outputs]
    attributes = on.rewrite.attributes(node, on.body)
    if node.op_type == "SequenceEmpty":
        attributes = {**attributes, "dtype": _leaf(node.outputs[0]).storage}
    if node.op_type in ("ConcatFromSequence", "SplitToSequence", "Scan"):
        attributes = _from_the_front(node, attributes)
    return on.new.build.emit_many(node.op_type, inputs, types, attributes, node.domain)


def _from_the_front(node: Node, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return attributes whose axes are counted from the front: after the last one there is another now."""
    made = dict(attributes)
    if node.op_type == "Scan":
        scanned = int(attributes["num_scan_inputs"])
        states = len(node.inputs) - scanned
        groups = {"scan_input_axes": node.inputs[states:], "scan_output_axes": node.outputs[states:]}
        for key, symbols in groups.items():
            if key in made:
                pairs = zip(made[key], symbols, strict=True)
                made[key] = [axis + s.rank if axis < 0 and s is not None else axis for axis, s in pairs]
        return made
    axis = int(attributes.get("axis", 0))
    if axis < 0:
        element = _leaf_type(node.inputs[0])
        is_new = node.op_type == "ConcatFromSequence" and attributes.get("new_axis", 0)
        made["axis"] = axis + element.rank + int(bool(is_new))
    return made


def _leaf_type(symbol: Symbol | None) -> TensorType:
    type_ = None if symbol is None else symbol.type
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    assert isinstance(type_, TensorType)
    return type_


def _leaf(symbol: Symbol) -> DType:
    return _leaf_type(symbol).dtype


RULES = {
    **dict.fromkeys(MOVES | SUMS, _moved),
    **dict.fromkeys(CARRIERS, _carried),
    "ConstantOfShape": _filled,
    "FromPairs": _from_pairs,
    "Shape": _measured,
    "Size": _measured,
    "ToPairs": _to_pairs,
}


# Operators on complex numbers. One row an operator; what has none is refused.

_RULES: dict[str, Callable[[Parts, Node], Sequence[Result]]] = {
    **RULES,
    **arithmetic.RULES,
    **exponentials.RULES,
    **trigonometry.RULES,
    **layers.PRODUCT_RULES,
    **layers.RULES,
}

SUPPORTED = frozenset(_RULES)
"""The operators that take complex numbers."""


def computed(on: Parts, node: Node) -> Sequence[Result]:
    """Return the results of a node on complex numbers. Raises `DTypeError` where there is no way to compute it."""
    rule = _RULES.get(node.op_type) if node.domain in ("", LIBRARY) else None
    if rule is None:
        raise _refused(node)
    return rule(on, node)


def _refused(node: Node) -> DTypeError:
    value = next(s for s in (*node.inputs, *node.outputs) if holds_complex(s))
    shown: dict[str, Any] = {f"input {i}": s for i, s in enumerate(node.inputs) if s is not None}
    if node.line is not None:
        shown["made at"] = str(node.line)
    return DTypeError(
        f"{node.op_type}: nothing computes it on {value.type}" if value is not None else node.op_type,
        operands=shown,
        help="compute on the parts: ops.real(z), ops.imag(z), ops.abs(z)",
    )
