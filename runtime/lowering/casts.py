"""Casts with the library's semantics out of onnxruntime's.

onnxruntime merges Cast after Cast and so drops what the first one rounded or wrapped away; BitCast to the same dtype
between them keeps them apart. Its casts of floats out of an integer's range give what the processor gives, and those
to 16 bits from wider than float32 round twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore import numerics
from graphcore.dtypes import DType
from graphcore.symbol import Constant, Symbol
from graphcore.types import tensor_type

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalise import Legaliser

_NARROW = frozenset({DType.float16, DType.bfloat16, DType.float8_e4m3fn, DType.float8_e5m2})
_NO_BITCAST = frozenset({DType.bool, DType.int4, DType.uint4, DType.float8_e4m3fn, DType.float8_e5m2, DType.string})
_CARRIER = {8: DType.uint8, 16: DType.uint16, 32: DType.uint32, 64: DType.uint64}


class Casts:
    """The casts of one lowering."""

    def __init__(self, legaliser: Legaliser) -> None:
        self._on = legaliser
        self._done: dict[tuple[int, DType, DType], Symbol] = {}
        self._made_by_cast: set[int] = set()
        self._barriers: dict[int, Symbol] = {}

    def cast(self, symbol: Symbol, source: DType, target: DType) -> Symbol:
        """A stored value of `source` as a stored value of `target`."""
        if source is target:
            return symbol
        key = (symbol.id, source, target)
        found = self._done.get(key)
        if found is None:
            producer = symbol.producer
            if isinstance(producer, Constant) and (not producer.is_weight or producer.array.nbytes <= 1024):
                array = numerics.cast_array(producer.array, source, target)
                type_ = tensor_type(target.storage, symbol.shape)
                found = self._on.graph._symbol(type_, Constant(array, False, producer.origin))
            else:
                found = self._cast(symbol, source, target)
            self._done[key] = found
        return found

    def _cast(self, symbol: Symbol, source: DType, target: DType) -> Symbol:
        if not self._on.rules.detours:
            made = self.plain(symbol, target.storage)
            return self.round_tf32(made) if target is DType.tensor_float32 else made
        stored = target.storage
        if source.is_float and target.is_integer:
            return self._to_integer(symbol, stored)
        if source in (DType.float8_e4m3fn, DType.float8_e5m2) and target is DType.bool:
            symbol = self.plain(symbol, DType.float32)  # the kernel takes -0.0 for true
        if target is DType.tensor_float32:
            wide = self._once(symbol, source)
            return wide if source in _NARROW or source.bits <= 8 else self.round_tf32(wide)
        if stored in _NARROW and source not in _NARROW and source is not DType.tensor_float32:
            symbol = self._once(symbol, source)
        if stored in (DType.float8_e4m3fn, DType.float8_e5m2):
            return self._to_float8(symbol, stored)
        return self.plain(symbol, stored)

    def plain(self, symbol: Symbol, target: DType) -> Symbol:
        """One Cast, kept apart from the one before it."""
        if symbol.dtype is target:
            return symbol
        attributes: dict[str, Any] = {"saturate": 0} if target in (DType.float8_e4m3fn, DType.float8_e5m2) else {}
        made = self._on.native("Cast", self.apart(symbol), dtype=target, to=target, **attributes)
        self._made_by_cast.add(made.id)
        return made

    def apart(self, symbol: Symbol) -> Symbol:
        """The Symbol behind a BitCast to its own dtype, if a Cast made it."""
        if symbol.id not in self._made_by_cast or symbol.dtype in _NO_BITCAST or not self._on.rules.detours:
            return symbol
        found = self._barriers.get(symbol.id)
        if found is None:
            found = self._barriers[symbol.id] = self._on.native("BitCast", symbol, to=symbol.dtype)
        return found

    def _once(self, symbol: Symbol, source: DType) -> Symbol:
        """float32 values that round on to any narrower float as the originals would."""
        on = self._on
        if source.is_float and source is not DType.float64:
            return self.plain(symbol, DType.float32)
        if not source.is_float and source.bits <= 16:
            return self.plain(symbol, DType.float32)
        exact = symbol if source is DType.float64 else self._exact_double(symbol)
        near = self.plain(exact, DType.float32)
        back = self.plain(near, DType.float64)
        above = on.op("Greater", on.op("Abs", back), on.op("Abs", exact), dtype=DType.bool)
        # Truncate towards zero, and mark what was cut off in the last bit: rounding to odd.
        bits = on.native("BitCast", near, dtype=DType.int32, to=DType.int32)
        bits = on.native("Sub", bits, self.plain(above, DType.int32))
        cut = on.native("Not", on.native("Equal", back, exact, dtype=DType.bool))
        known = on.native("Not", on.native("IsNaN", exact, dtype=DType.bool))
        bits = on.native("BitwiseOr", bits, self.plain(on.native("And", cut, known), DType.int32))
        return on.native("BitCast", bits, dtype=DType.float32, to=DType.float32)

    def _exact_double(self, symbol: Symbol) -> Symbol:
        """float64 values that hold an integer exactly, or what rounding to few bits needs of it."""
        on = self._on
        if symbol.dtype.bits <= 32:
            return self.plain(symbol, DType.float64)
        low = on.native("BitwiseAnd", symbol, on.const(0xFFFFFFFF, symbol.dtype))
        high = self.plain(on.native("Sub", symbol, low), DType.float64)
        whole = self.plain(symbol, DType.float64)
        # Beyond 2^53 only whether the low half is nothing can matter: half of its range stands for something.
        some = on.native("Not", on.native("Equal", low, on.const(0, symbol.dtype), dtype=DType.bool))
        marked = on.native(
            "Add", high, on.native("Mul", self.plain(some, DType.float64), on.const(2.0**31, DType.float64))
        )
        large = on.native("GreaterOrEqual", on.native("Abs", whole), on.const(2.0**53, DType.float64), dtype=DType.bool)
        return on.native("Where", large, marked, whole, dtype=DType.float64)

    def _to_integer(self, symbol: Symbol, target: DType) -> Symbol:
        """Truncated and saturated, NaN as 0."""
        on = self._on
        wide = symbol if symbol.dtype is DType.float64 else self.plain(symbol, DType.float32)
        if target.bits == 32 and wide.dtype is DType.float32:
            wide = self.plain(wide, DType.float64)
        own = wide.dtype
        zero = on.const(0.0, own)
        least, greatest = int(target.min), int(target.max)
        if target.bits <= 32:
            clipped = on.native("Clip", wide, on.const(float(least), own), on.const(float(greatest), own))
            unknown = on.native("IsNaN", wide, dtype=DType.bool)
            whole = on.native("Where", unknown, zero, clipped, dtype=own)
            carrier = DType.int32 if target.bits < 32 or target is DType.int32 else DType.int64
            return self.plain(self.plain(whole, carrier), target)
        over = on.native("GreaterOrEqual", wide, on.const(float(greatest + 1), own), dtype=DType.bool)
        below = on.const(float(least), own) if least else on.const(-1.0, own)
        fits = on.native("GreaterOrEqual" if least else "Greater", wide, below, dtype=DType.bool)
        fits = on.native("And", fits, on.native("Not", over))
        whole = self.plain(on.native("Where", fits, wide, zero, dtype=own), target)
        signed = on.native("BitCast", whole, dtype=DType.int64, to=DType.int64) if not least else whole
        top = on.const(-1 if not least else greatest, DType.int64)
        made = on.native("Where", over, top, signed, dtype=DType.int64)
        if not least:
            return on.native("BitCast", made, dtype=target, to=target)
        under = on.native("Less", wide, below, dtype=DType.bool)
        return on.native("Where", under, on.const(least, DType.int64), made, dtype=DType.int64)

    def _to_float8(self, symbol: Symbol, target: DType) -> Symbol:
        """Overflow to NaN (e4m3fn) or infinity (e5m2), which the kernel gets wrong near the top."""
        on = self._on
        wide = self.plain(symbol, DType.float32)
        size = on.native("Abs", wide)
        if target is DType.float8_e4m3fn:
            over = on.native("Greater", size, on.const(464.0, DType.float32), dtype=DType.bool)
            limit = on.const(float("nan"), DType.float32)
        else:
            over = on.native("GreaterOrEqual", size, on.const(61440.0, DType.float32), dtype=DType.bool)
            limit = on.native("Mul", wide, on.const(float("inf"), DType.float32))
        return self.plain(on.native("Where", over, limit, wide, dtype=DType.float32), target)

    def round_tf32(self, symbol: Symbol) -> Symbol:
        """float32 rounded to 10 mantissa bits, ties to even; right for every bit pattern."""
        on = self._on
        array = on.known(symbol)
        if array is not None:
            return on.graph._constant(numerics.round_tf32(array), DType.float32)
        u32 = DType.uint32
        bits = on.native("BitCast", symbol, dtype=u32, to=u32)
        last = on.native(
            "BitwiseAnd", on.native("BitShift", bits, on.const(13, u32), direction="RIGHT"), on.const(1, u32)
        )
        up = on.native("Add", on.native("Add", bits, last), on.const(0xFFF, u32))
        cut = on.native("BitwiseAnd", up, on.const(0xFFFFE000, u32))
        made = on.native("BitCast", cut, dtype=DType.float32, to=DType.float32)
        # A NaN's bits may carry over into those of another number: Clip between equal bounds is NaN for NaN alone.
        nothing = on.native("Clip", symbol, on.const(-0.0, DType.float32), on.const(-0.0, DType.float32))
        return on.native("Add", made, nothing)
