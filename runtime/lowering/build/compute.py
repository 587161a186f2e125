"""Computing an operator in another dtype than its operands have."""

from __future__ import annotations

from typing import Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.build.casts import NARROW
from graphcore.runtime.lowering.targets.compute_dtypes import KEEPS_FLOATS, KEEPS_VALUES, LOW_BITS
from graphcore.runtime.lowering.targets.legality import BY_RESULT, PRIMARY
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


def chosen_dtype(call: Call) -> DType | None:
    """Return the dtype that a kernel is chosen by; None where it is chosen by a type without one."""
    op_type, inputs, types, _, _ = call
    position = PRIMARY.get(op_type, 0)
    chosen: Any = types[0] if types else None
    if op_type not in BY_RESULT and position < len(inputs) and (operand := inputs[position]) is not None:
        chosen = operand.type
    return chosen.dtype if isinstance(chosen, TensorType) else None


def compute_in(b: Builder, dtype: DType, call: Call, *, by_bits: bool = False) -> tuple[Symbol, ...]:
    """Build a call in another dtype: operands of the dtype that chooses the kernel go there, and results come back.

    by_bits: their bits are read as the other dtype, in place of a cast.
    """
    op_type, inputs, types, attributes, _ = call
    own = chosen_dtype(call)
    assert own is not None
    casts = b.casts
    integers = own.is_integer and own.bits <= 16 and dtype.is_integer
    narrow = b.fast and own in NARROW
    keeps = KEEPS_FLOATS if own.is_float else KEEPS_VALUES
    wide: list[Symbol | None] = []
    is_exact = True
    for position, symbol in enumerate(inputs):
        if symbol is None or symbol.type.dtype is not own:
            wide.append(symbol)
            continue
        loose = casts.loose.get((symbol.id, dtype))
        if loose is not None and (narrow or (integers and _counts_low_bits(op_type, position, attributes))):
            is_exact = False
            wide.append(loose)
        else:
            wide.append(_moved(b, symbol, dtype, by_bits))
    wide_types = [b.retyped(t, dtype) if isinstance(t, TensorType) and t.dtype is own else t for t in types]
    if "value" in attributes and op_type == "ConstantOfShape":
        attributes = {"value": attributes["value"].astype(dtype.numpy)}
    elif "dtype" in attributes and op_type == "EyeLike":
        attributes = {**attributes, "dtype": dtype}
    made = b.selection.legal(b, Call(op_type, wide, wide_types, attributes))
    results = [
        _moved(b, m, t.dtype, by_bits) if isinstance(t, TensorType) and m.type.dtype is not t.dtype else m
        for m, t in zip(made, types, strict=True)
    ]
    for m, result in zip(made, results, strict=True):
        if m is result or by_bits or m.type.dtype is not dtype:
            continue
        if is_exact and op_type in keeps:
            casts.know(result, m)
        elif narrow or integers:
            casts.loose[result.id, dtype] = m
    return tuple(results)


def _moved(b: Builder, symbol: Symbol, dtype: DType, by_bits: bool) -> Symbol:
    return b.view(symbol, dtype) if by_bits else b.casts.cast(symbol, symbol.dtype, dtype)


def _counts_low_bits(op_type: str, position: int, attributes: dict[str, Any]) -> bool:
    """Return whether the low bits of the results depend on the low bits of an operand alone."""
    if op_type == "BitShift":
        return not position and attributes["direction"] == "LEFT"
    return op_type in LOW_BITS
