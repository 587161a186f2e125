"""Operators of integers: division that never fails, and the order of 64-bit numbers."""

from __future__ import annotations

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dtypes import DType


def divide(b: Builder, call: Call) -> Replacement:
    """Compute integer Div and Mod with a divisor of 1 where the kernel fails (0) or ends the process (MIN / -1).

    Mod with the sign of the dividend goes through float64: it is the remainder of truncated division.
    """
    x, y = call.inputs
    truncates = bool(call.attributes.get("fmod"))
    dtype = x.dtype
    divisors = b.known(y)
    if divisors is not None and y.producer.is_weight and not b.is_read:
        divisors = None  # its owner may still change it
    if divisors is not None and not np.isin(divisors, (0, -1) if dtype.is_signed else (0,)).any():
        if not truncates:
            return None
        return b.native("Sub", x, b.native("Mul", b.native("Div", x, y), y))
    zero, one = b.scalar(0, dtype), b.scalar(1, dtype)
    nothing = b.native("Equal", y, zero, dtype=DType.bool)
    unsafe = nothing
    opposite = None
    if dtype.is_signed:
        opposite = b.native("Equal", y, b.scalar(-1, dtype), dtype=DType.bool)
        unsafe = b.native("Or", nothing, opposite)
    safe = b.op("Where", unsafe, one, y, dtype=dtype)
    if truncates:
        return b.native("Sub", x, b.native("Mul", b.native("Div", x, safe), safe))
    made = b.native(call.op, x, safe, **call.attributes)
    if call.op == "Mod":
        return made  # modulo 1 is 0, which is what both have
    if opposite is not None:
        made = b.op("Where", opposite, b.native("Neg", x), made, dtype=dtype)
    return b.op("Where", nothing, zero, made, dtype=dtype)


def extreme_int64(b: Builder, call: Call) -> Replacement:
    """Compute Max and Min of int64: the kernel compares equal high halves by their low halves taken as signed."""
    made = call.inputs[0]
    for other in call.inputs[1:]:
        smaller = b.native("Less", made, other, dtype=DType.bool)
        pair = (other, made) if call.op == "Max" else (made, other)
        made = b.native("Where", smaller, *pair, dtype=DType.int64)
    return made if len(call.inputs) > 1 else None


def sign_int64(b: Builder, call: Call) -> Replacement:
    """Compute Sign of int64, for which the kernel gives -1 from 2^31 to 2^32 - 1."""
    (x,) = call.inputs
    zero = b.scalar(0, DType.int64)
    above, below = (
        b.native_cast(b.native(test, x, zero, dtype=DType.bool), DType.int64) for test in ("Greater", "Less")
    )
    return b.native("Sub", above, below)


def clip_int64(b: Builder, call: Call) -> Replacement:
    """Compute Clip of int64, which orders numbers as Max and Min do."""
    made, *bounds = call.inputs
    for name, bound in zip(("Max", "Min"), bounds, strict=False):
        if bound is not None:
            made = b.op(name, made, bound)
    return made if any(bound is not None for bound in bounds) else None


def ordered_view(b: Builder, call: Call) -> Replacement:
    """Return uint64 as int64 in the same order: flip the top bit and read it as signed."""
    x = call.inputs[0]
    top = b.scalar(1 << 63, DType.uint64)

    def there(symbol: Symbol) -> Symbol:
        flipped = b.native("BitwiseXor", symbol, top)
        return b.native("BitCast", flipped, dtype=DType.int64, to=DType.int64)

    def back(symbol: Symbol) -> Symbol:
        bits = b.native("BitCast", symbol, dtype=DType.uint64, to=DType.uint64)
        return b.native("BitwiseXor", bits, top)

    retyped = [t.cast(DType.int64) if t.dtype is DType.uint64 else t for t in call.types]
    made = b.legal(call._replace(inputs=[there(x), *call.inputs[1:]], types=retyped))
    return tuple(back(m) if t.dtype is DType.uint64 else m for m, t in zip(made, call.types, strict=True))
