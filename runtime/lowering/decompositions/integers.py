"""Integers: division that never fails, and the order of 64-bit numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def divide(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Integer Div and Mod kill the process on MIN / -1 and fail on 0: divide by 1 there, and mend the quotient.

    Mod with the sign of the dividend goes through double: it is what truncated division leaves.
    """
    x, y = inputs
    truncates = bool(attributes.get("fmod"))
    dtype = x.dtype
    divisors = on.known(y)
    if divisors is not None and y.producer.is_weight:
        divisors = None  # its owner may still change it
    if divisors is not None and not np.isin(divisors, (0, -1) if dtype.is_signed else (0,)).any():
        if not truncates:
            return None
        return on.native("Sub", x, on.native("Mul", on.native("Div", x, y), y))
    zero, one = on.const(0, dtype), on.const(1, dtype)
    nothing = on.native("Equal", y, zero, dtype=DType.bool)
    unsafe = nothing
    opposite = None
    if dtype.is_signed:
        opposite = on.native("Equal", y, on.const(-1, dtype), dtype=DType.bool)
        unsafe = on.native("Or", nothing, opposite)
    safe = on.op("Where", unsafe, one, y, dtype=dtype)
    if truncates:
        return on.native("Sub", x, on.native("Mul", on.native("Div", x, safe), safe))
    made = on.native(op, x, safe, **attributes)
    if op == "Mod":
        return made  # modulo 1 is 0, which is what both have
    if opposite is not None:
        made = on.op("Where", opposite, on.native("Neg", x), made, dtype=dtype)
    return on.op("Where", nothing, zero, made, dtype=dtype)


def extreme_int64(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Max and Min of int64 order numbers with equal high halves by their low halves taken as signed."""
    made = inputs[0]
    for other in inputs[1:]:
        smaller = on.native("Less", made, other, dtype=DType.bool)
        pair = (other, made) if op == "Max" else (made, other)
        made = on.native("Where", smaller, *pair, dtype=DType.int64)
    return made if len(inputs) > 1 else None


def sign_int64(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Sign of int64 gives -1 from 2^31 to 2^32 - 1."""
    (x,) = inputs
    zero = on.const(0, DType.int64)
    above, below = (
        on.casts.plain(on.native(test, x, zero, dtype=DType.bool), DType.int64) for test in ("Greater", "Less")
    )
    return on.native("Sub", above, below)


def clip_int64(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Clip of int64 has the order of Max and Min."""
    made, *bounds = inputs
    for name, bound in zip(("Max", "Min"), bounds, strict=False):
        if bound is not None:
            made = on.op(name, made, bound)
    return made if any(b is not None for b in bounds) else None


def ordered_view(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """uint64 in the order of int64: flip the top bit and read it as signed."""
    x = inputs[0]
    top = on.const(1 << 63, DType.uint64)

    def there(symbol: Symbol) -> Symbol:
        flipped = on.native("BitwiseXor", symbol, top)
        return on.native("BitCast", flipped, dtype=DType.int64, to=DType.int64)

    def back(symbol: Symbol) -> Symbol:
        bits = on.native("BitCast", symbol, dtype=DType.uint64, to=DType.uint64)
        return on.native("BitwiseXor", bits, top)

    retyped = [t.cast(DType.int64) if t.dtype is DType.uint64 else t for t in types]
    made = on.legal(op, [there(x), *inputs[1:]], retyped, attributes, "")
    return tuple(back(m) if t.dtype is DType.uint64 else m for m, t in zip(made, types, strict=True))
