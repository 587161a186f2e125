"""If, Loop and Scan: values of dtypes that their kernels do not take go into and out of their bodies as others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphcore.errors import GraphError
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import bodies
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.targets.compute_dtypes import PROMOTIONS
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


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
    types = [
        b.retyped(t, dtypes[t.dtype]) if isinstance(t, TensorType) and t.dtype in dtypes else t for t in call.types
    ]
    made = b.emit_many(call.op, inputs, types, call.attributes)
    return tuple(
        b.cast(m, t.dtype) if isinstance(t, TensorType) and m.type is not t else m
        for m, t in zip(made, call.types, strict=True)
    )


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


__all__ = ["entered", "legal", "stored", "stored_as"]
