"""If, Loop and Scan: values of dtypes that their kernels do not take go through them in others, as in their bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from graphcore.errors import GraphError
from graphcore.ir.rewrite import bodies
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.targets.compute_dtypes import PROMOTIONS
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def carried_by(node: Node, rules: Legality) -> dict[DType, DType]:
    """What stands in for the dtypes of values that an If, Loop or Scan takes or gives and has no kernel for.

    Raises `GraphError` for a Loop that onnxruntime gets wrong.
    """
    around = [s.type for s in (*node.inputs, *node.outputs) if s is not None]
    inside = [s.type for body in bodies(node) for s in (*body.inputs, *body.outputs)]
    dtypes = {t.dtype.storage for t in (*around, *inside) if isinstance(t, TensorType)} if rules.detours else set()
    tables = [rules] if rules.host is None else [rules, rules.host]

    def is_taken(dtype: DType) -> bool:
        return any(table.allows(node.op_type, dtype) for table in tables)

    if rules.target == "cpu" and rules.detours and rules.has_trap("Loop that gathers strings"):
        _require_survived(node)
    carried = {}
    for dtype in dtypes:
        fit = [d for d in PROMOTIONS.get(dtype, ()) if is_taken(d) and d.is_float is dtype.is_float]
        if fit and not is_taken(dtype):
            carried[dtype] = fit[0]
    return carried


def legal(on: Legaliser, node: Node, inputs: Sequence[Symbol | None], types: Sequence[Type]) -> tuple[Symbol, ...]:
    """The node on new operands, with its bodies made legal. types: what is stored of its results."""
    carried = carried_by(node, on.rules)
    attributes = on.rewrite.attributes(node, lambda body: on.body(body, carried))
    given = tuple([None if s is None else held(on, s, carried) for s in inputs])
    through = [
        on.retyped(t, carried[t.dtype]) if isinstance(t, TensorType) and t.dtype in carried else t for t in types
    ]
    made = on.graph._emit_many(node.op_type, given, through, attributes)
    return tuple(
        on.casts.cast(m, m.dtype, t.dtype) if isinstance(t, TensorType) and m.type is not t else m
        for m, t in zip(made, types, strict=True)
    )


def enter(on: Legaliser, inputs: Sequence[Symbol], carried: Mapping[DType, DType]) -> None:
    """The inputs of a body are of the dtypes that they come in, and what reads them has them in their own again."""
    for symbol, made in zip(inputs, on.graph._inputs, strict=True):
        if isinstance(made.type, TensorType) and made.type.dtype in carried:
            own, made.type = made.type.dtype, on.retyped(made.type, carried[made.type.dtype])
            on.rewrite.bind(symbol, on.casts.cast(made, made.type.dtype, own))


def held(on: Legaliser, value: Symbol, carried: Mapping[DType, DType]) -> Symbol:
    """A value in the dtype that it is carried in."""
    if not isinstance(value.type, TensorType) or value.type.dtype not in carried:
        return value
    return on.casts.cast(value, value.type.dtype, carried[value.type.dtype])


def _require_survived(node: Node) -> None:
    """Raises `GraphError` for a Loop that gathers strings: all but the first are lost, or the process ends."""
    gathered = node.outputs[max(len(node.inputs) - 2, 0) :] if node.op_type == "Loop" else ()
    for result in gathered:
        if isinstance(result.type, TensorType) and result.type.dtype is DType.string:
            raise GraphError(
                "Loop: onnxruntime loses the strings that each step but the first adds to a result",
                operands={"result": str(result.type)},
                help="let each step put them into a tensor that goes through the loop",
            )


__all__ = ["carried_by", "enter", "held", "legal"]
