"""Casts with the semantics of graphcore, built of onnxruntime's, and operators computed in another dtype.

onnxruntime merges consecutive Casts and so drops the rounding or wrapping of the first one; a BitCast to the same dtype
between them prevents that. Its casts of out-of-range floats to integers give whatever the processor gives, and those
to 16 bits from dtypes wider than float32 round twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.arrays import casting
from graphcore.ir.symbol import Constant, Symbol, present
from graphcore.ir.transform.ranges import range_of
from graphcore.runtime.lowering.build.builder import Builder, OpCall
from graphcore.runtime.lowering.targets.compute_dtypes import KEEPS_FLOATS, KEEPS_VALUES, LOW_BITS
from graphcore.runtime.lowering.targets.legality import kernel_dtype
from graphcore.support.lazy import Lazy
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

if TYPE_CHECKING:
    from graphcore.passes import simplify
else:  # files that run as they are need no passes
    simplify = Lazy("graphcore.passes.simplify")

NARROW = frozenset({DType.float16, DType.bfloat16, DType.float8_e4m3fn, DType.float8_e5m2})
_FLOAT8 = frozenset({DType.float8_e4m3fn, DType.float8_e5m2, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz})
_NO_BITCAST = frozenset(
    {DType.bool, DType.int2, DType.uint2, DType.int4, DType.uint4, DType.float8_e8m0, *_FLOAT8, DType.string}
)

_DIRECT = {(d, DType.float32) for d in NARROW} | {(DType.float32, d) for d in (DType.float16, DType.bfloat16)}
"""Common casts that onnxruntime computes correctly."""


MERGED = "Cast after Cast"
SATURATES = "Cast of floats out of range"
TWICE = "Cast of wide numbers to narrow floats"
OVERFLOWS = "Cast to float8"
FLOAT8_TO_BOOL = "Cast of float8 to bool"
PARTS = "Cast of parts of bytes"
"""The names of the traps."""

_ROUNDED_FREELY = frozenset({DType.float16, DType.bfloat16, DType.float32})
"""Floats between which the runtime merges casts in models whose halves may be rounded at any point."""

NIBBLES = frozenset({DType.int4, DType.uint4})
_PARTS = NIBBLES | {DType.int2, DType.uint2}
"""Integers of which several fit in a byte."""


class Casts:
    """The casts of one lowering."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._done: dict[tuple[int, DType, DType, bool], Symbol] = {}
        """By Symbol id, both dtypes, and whether the cast belongs to an imported model."""
        self._native: dict[tuple[int, DType], Symbol] = {}
        self.loose: dict[tuple[int, DType], Symbol] = {}
        """By Symbol id and wider dtype: the value before it was narrowed. Integers have the same low bits."""
        self._cast_results: set[int] = set()
        self._barriers: dict[int, Symbol] = {}

    def cast(self, symbol: Symbol, source: DType, target: DType) -> Symbol:
        """Cast a stored value of `source` to a stored value of `target`."""
        if source is target:
            return symbol
        is_read = self._b.is_read
        key = (symbol.id, source, target, is_read)
        result = self._done.get(key)
        if result is None:
            producer = symbol.producer
            if (
                type(producer) is Constant
                and DType.string not in (source, target)  # only the kernel reads and writes strings
                and (not producer.is_weight or producer.array.nbytes <= 1024)
            ):
                array = casting.cast_array(producer.array, source, target)
                type_ = tensor_type(target.storage, symbol.shape)
                result = self._b.graph.build.symbol(type_, Constant(array, False, producer.origin))
            else:
                result = self._cast(symbol, source, target)
                if result is not symbol and (source.is_integer or source in NARROW) and simplify.holds(target, source):
                    self._done[result.id, target, source, is_read] = symbol
            self._done[key] = result
        return result

    def know(self, symbol: Symbol, wide: Symbol) -> None:
        """Record that `wide` is the value of `symbol` in a wider dtype."""
        self._native.setdefault((symbol.id, wide.dtype), wide)

    # Rounding that `precision="fast"` omits

    def cast_at_boundary(self, value: Symbol, source: DType, target: DType) -> Symbol:
        """Build a cast at the start or end of an expansion: `fast` omits its rounding."""
        if target is DType.float32:
            wide = source if source is DType.tensor_float32 else target
            loose = self.loose.get((value.id, wide))
            return self.cast(value, source, target) if loose is None else loose
        result = self.cast(value, source, target)
        if source is DType.float32 and result is not value:
            self.loose[result.id, source if target is not DType.tensor_float32 else target] = value
        return result

    def rounded(self, value: Symbol, type_: Type) -> Symbol:
        """Round a result whose type is tensor_float32."""
        if not isinstance(type_, TensorType) or type_.dtype is not DType.tensor_float32:
            return value
        rounded = self.round_tf32(value)
        if self._b.fast:
            self.loose[rounded.id, DType.tensor_float32] = value
        return rounded

    def unrounded(self, value: Symbol | None, old: Symbol | None) -> Symbol | None:
        """Return a tensor_float32 operand as it was before rounding. old: the operand in the source graph."""
        if value is None or old is None or not isinstance(old.type, TensorType):
            return value
        if old.type.dtype is not DType.tensor_float32:
            return value
        return self.loose.get((value.id, DType.tensor_float32), value)

    # How casts are built

    def _cast(self, symbol: Symbol, source: DType, target: DType) -> Symbol:
        if not self._b.rules.decomposes:
            if source.is_float and target.is_integer and target.bits < 8:
                return self._to_integer(symbol, target)
            result = self.native(symbol, target.storage)
            return self.round_tf32(result) if target is DType.tensor_float32 else result
        if (source, target) in _DIRECT:
            return self.native(symbol, target)
        stored = target.storage
        if source.is_float and target.is_integer and self._b.rules.has_trap(SATURATES):
            return self._to_integer(symbol, stored)
        if source.is_float and source.bits == 8 and target is DType.bool and self._b.rules.has_trap(FLOAT8_TO_BOOL):
            symbol = self.native(symbol, DType.float32)  # the kernel casts -0.0 to true, and 2^-127 to false
        if target is DType.tensor_float32:
            wide = self._once(symbol, source, target)
            is_rounded = source in NARROW or source.bits <= 8
            is_rounded |= source.bits > 16 and source is not DType.float32 and not self._b.rules.views_bits
            return wide if is_rounded else self.round_tf32(wide)
        is_rounded_on = stored in NARROW and source not in NARROW and source is not DType.tensor_float32
        if is_rounded_on and self._b.rules.has_trap(TWICE):
            symbol = self._once(symbol, source, target)
        if stored in (DType.float8_e4m3fn, DType.float8_e5m2) and self._b.rules.has_trap(OVERFLOWS):
            return self._to_float8(symbol, stored)
        return self.native(symbol, stored)

    def native(self, symbol: Symbol, target: DType) -> Symbol:
        """Build one Cast that onnxruntime does not merge with the one before it."""
        source = symbol.dtype
        if source is target:
            return symbol
        key = (symbol.id, target)
        if key not in self._native:
            self._native[key] = self._cast_node(symbol, target)
        return self._native[key]

    def _cast_node(self, symbol: Symbol, target: DType) -> Symbol:
        source = symbol.dtype
        if (source in NIBBLES or target in NIBBLES) and self._lacks_nibbles():
            return nibble(self._b, symbol, target)
        if source in _PARTS and target.bits <= 8 and self._b.rules.has_trap(PARTS):
            # Older releases read parts of bytes as bytes, and write the result over input that is yet to be read.
            return self.native(self.native(symbol, DType.int32), target)
        attributes = {"to": target, "saturate": 0} if target in _FLOAT8 else {"to": target}
        result = self._b.emit("Cast", (self.apart(symbol),), self._b.retyped(symbol.type, target), attributes)
        self._cast_results.add(result.id)
        return result

    def _lacks_nibbles(self) -> bool:
        """Return True if Cast has no kernel for 4-bit integers but quantisation has."""
        rules = self._b.rules
        if rules.host is not None:
            return True
        has_quantised = rules.decomposes and rules.allows("DequantizeLinear", DType.int4)
        return has_quantised and not rules.allows("Cast", DType.int4)

    def apart(self, symbol: Symbol) -> Symbol:
        """Return the result of a Cast through a BitCast to its own dtype, which prevents merging; others unchanged."""
        if symbol.id not in self._cast_results or symbol.dtype in _NO_BITCAST or not self._b.rules.decomposes:
            return symbol
        if self._b.keeps_halves and symbol.dtype in _ROUNDED_FREELY:
            return symbol
        if not self._b.rules.has_trap(MERGED):
            return symbol
        result = self._barriers.get(symbol.id)
        if result is None:
            if self._b.rules.views_bits and self._b.rules.runtime.version:  # a file has no version
                result = self._b.emit("BitCast", (symbol,), symbol.type, {"to": symbol.dtype})
            else:
                result = barrier(self._b, symbol)
            self._barriers[symbol.id] = result
        return result

    def _once(self, symbol: Symbol, source: DType, target: DType) -> Symbol:
        """Return float32 values that round to a narrower float as the original values do."""
        b = self._b
        if source.is_float and source is not DType.float64:
            return self.native(symbol, DType.float32)
        if not source.is_float and source.bits <= 16:
            return self.native(symbol, DType.float32)
        exact = symbol if source is DType.float64 else self._exact_double(symbol)
        if not b.rules.views_bits:
            return self.native(rounded(b, exact, target), DType.float32)
        near = self.native(exact, DType.float32)
        back = self.native(near, DType.float64)
        above = b.op("Greater", b.op("Abs", back), b.op("Abs", exact), dtype=DType.bool)
        # Truncate towards zero and set the last bit if anything was cut off: rounding to odd.
        bits = b.native("BitCast", near, dtype=DType.int32, to=DType.int32)
        bits = b.native("Sub", bits, self.native(above, DType.int32))
        cut = b.native("Not", b.native("Equal", back, exact, dtype=DType.bool))
        is_number = b.native("Not", b.native("IsNaN", exact, dtype=DType.bool))
        bits = b.native("BitwiseOr", bits, self.native(b.native("And", cut, is_number), DType.int32))
        return b.native("BitCast", bits, dtype=DType.float32, to=DType.float32)

    def _exact_double(self, symbol: Symbol) -> Symbol:
        """Return float64 values that equal the integers, or that round to few bits as the integers do."""
        b = self._b
        if symbol.dtype.bits <= 32:
            return self.native(symbol, DType.float64)
        low = b.native("BitwiseAnd", symbol, b.scalar(0xFFFFFFFF, symbol.dtype))
        high = self.native(b.native("Sub", symbol, low), DType.float64)
        whole = self.native(symbol, DType.float64)
        # Beyond 2^53 only whether the low half is zero matters: half of its range stands for any nonzero value.
        some = b.native("Not", b.native("Equal", low, b.scalar(0, symbol.dtype), dtype=DType.bool))
        marked = b.native(
            "Add", high, b.native("Mul", self.native(some, DType.float64), b.scalar(2.0**31, DType.float64))
        )
        large = b.native("GreaterOrEqual", b.native("Abs", whole), b.scalar(2.0**53, DType.float64), dtype=DType.bool)
        return b.native("Where", large, marked, whole, dtype=DType.float64)

    def _to_integer(self, symbol: Symbol, target: DType) -> Symbol:
        """Truncate and saturate; NaN becomes 0.

        ONNX does not define the result of an out-of-range number: imported models keep the kernel's result.
        """
        b = self._b
        if b.is_read and symbol.dtype.bits >= 16:
            return self.native(symbol, target)
        bounds = range_of(symbol)
        if bounds is not None and int(target.min) <= bounds.low and bounds.high <= int(target.max):
            return self._to_integer_in_range(symbol, target, has_nan=bounds.may_be_nan)
        wide = symbol if symbol.dtype is DType.float64 else self.native(symbol, DType.float32)
        if target.bits == 32 and wide.dtype is DType.float32:
            wide = self.native(wide, DType.float64)
        dtype = wide.dtype
        zero = b.scalar(0.0, dtype)
        least, greatest = int(target.min), int(target.max)
        if target.bits <= 32:
            clipped = b.native("Clip", wide, b.scalar(float(least), dtype), b.scalar(float(greatest), dtype))
            unknown = b.native("IsNaN", wide, dtype=DType.bool)
            whole = b.native("Where", unknown, zero, clipped, dtype=dtype)
            if target.bits < 32:
                return self._narrowed(whole, target)
            return self.native(self.native(whole, target if target is DType.int32 else DType.int64), target)
        over = b.native("GreaterOrEqual", wide, b.scalar(float(greatest + 1), dtype), dtype=DType.bool)
        below = b.scalar(float(least), dtype) if least else b.scalar(-1.0, dtype)
        fits = b.native("GreaterOrEqual" if least else "Greater", wide, below, dtype=DType.bool)
        fits = b.native("And", fits, b.native("Not", over))
        whole = self.native(b.native("Where", fits, wide, zero, dtype=dtype), target)
        signed = b.native("BitCast", whole, dtype=DType.int64, to=DType.int64) if not least else whole
        top = b.scalar(-1 if not least else greatest, DType.int64)
        capped = b.native("Where", over, top, signed, dtype=DType.int64)
        if not least:
            return b.native("BitCast", capped, dtype=target, to=target)
        under = b.native("Less", wide, below, dtype=DType.bool)
        return b.native("Where", under, b.scalar(least, DType.int64), capped, dtype=DType.int64)

    def _to_integer_in_range(self, symbol: Symbol, target: DType, *, has_nan: bool) -> Symbol:
        """Truncate numbers that are all in the range of the integer; NaN becomes 0."""
        b = self._b
        if has_nan:
            wide = symbol if symbol.dtype in (DType.float32, DType.float64) else self.native(symbol, DType.float32)
            unknown = b.native("IsNaN", wide, dtype=DType.bool)
            symbol = b.native("Where", unknown, b.scalar(0.0, wide.dtype), wide, dtype=wide.dtype)
        return self._narrowed(symbol, target) if target.bits < 32 else self.native(symbol, target)

    def _narrowed(self, whole: Symbol, target: DType) -> Symbol:
        """Truncate numbers in the range of an integer of under 32 bits.

        ONNX wraps when it casts floats to 2 or 4 bits, and runtimes round: files for every target cast by way of
        int32, and keep the runtime from merging the two casts.
        """
        integers = self.native(whole, DType.int32)
        if target.bits < 8 and not self._b.rules.decomposes:
            integers = barrier(self._b, integers)
        return self.native(integers, target)

    def _to_float8(self, symbol: Symbol, target: DType) -> Symbol:
        """Overflow to NaN (e4m3fn) or infinity (e5m2); the kernel does that wrong near the largest values."""
        b = self._b
        wide = self.native(symbol, DType.float32)
        size = b.native("Abs", wide)
        if target is DType.float8_e4m3fn:
            over = b.native("Greater", size, b.scalar(464.0, DType.float32), dtype=DType.bool)
            limit = b.scalar(float("nan"), DType.float32)
        else:
            over = b.native("GreaterOrEqual", size, b.scalar(61440.0, DType.float32), dtype=DType.bool)
            limit = b.native("Mul", wide, b.scalar(float("inf"), DType.float32))
        return self.native(b.native("Where", over, limit, wide, dtype=DType.float32), target)

    def round_tf32(self, symbol: Symbol) -> Symbol:
        """Round float32 to 10 mantissa bits, ties to even; correct for every bit pattern."""
        b = self._b
        array = b.array_of(symbol)
        if array is not None:
            return b.constant(casting.round_tf32(array), DType.float32)
        if not b.rules.views_bits:
            wide = self.native(symbol, DType.float64)
            return with_sign_of_zero(b, self.native(_cut(b, wide, wide, DType.tensor_float32), DType.float32), symbol)
        # float16 has as many bits: scale normal numbers to normal float16 numbers, and subnormals to subnormals.
        type_ = symbol.type
        emit = b.emit
        bits = emit("BitCast", (symbol,), b.retyped(type_, DType.int32), {"to": DType.int32})
        exponent = emit("BitwiseAnd", (bits, b.scalar(0x7F800000, DType.int32)), bits.type)
        power = emit("BitCast", (exponent,), type_, {"to": DType.float32})
        least, greatest = b.scalar(2.0**-112, DType.float32), b.scalar(2.0**127, DType.float32)
        power = emit("Clip", (power, least, greatest), type_)
        scaled = emit("Div", (symbol, power), type_)
        narrow = emit("Cast", (scaled,), b.retyped(type_, DType.float16), {"to": DType.float16})
        narrow = emit("BitCast", (narrow,), narrow.type, {"to": DType.float16})
        rounded = emit("Cast", (narrow,), type_, {"to": DType.float32})
        return emit("Mul", (rounded, power), type_)


# Casts without BitCast, for providers that have no kernel for it.
#
# Adding a large number to a float64 leaves only the wanted bits, and subtracting it again gives the rounded value:
# Dekker's trick, after "A floating-point technique for extending the available precision" (1971). Ties go to even
# because the large number is an even multiple of the unit in the last place of the result.

FORMATS: dict[DType, tuple[int, int]] = {
    DType.tensor_float32: (11, -126),
    DType.float16: (11, -14),
    DType.bfloat16: (8, -126),
    DType.float8_e4m3fn: (4, -6),
    DType.float8_e5m2: (3, -14),
}
"""Bits of the significand, including the implicit one, and the exponent of the smallest normal number."""


def barrier(b: Builder, symbol: Symbol) -> Symbol:
    """Reshape a value to its own shape, so that onnxruntime sees no consecutive Casts."""
    if not symbol.shape.is_ranked:
        shape = b.native("Shape", symbol, dtype=DType.int64, shape=_shape([Dim.dynamic()]))
        return b.native("Reshape", symbol, shape, shape=symbol.shape, allowzero=1)
    return b.emit("Reshape", (symbol, b.vector([0] * symbol.rank)), symbol.type)


def rounded(b: Builder, x: Symbol, dtype: DType) -> Symbol:
    """Round float64 values once to a narrower float, ties to even; values beyond its range stay large.

    A value that rounds to zero keeps its sign.
    """
    # No more than 24 bits, so that adding the large number does not reach the next power of two.
    near = b.native_cast(b.native_cast(x, DType.float32), DType.float64)
    return with_sign_of_zero(b, _cut(b, x, near, dtype), x)


def _cut(b: Builder, x: Symbol, near: Symbol, dtype: DType) -> Symbol:
    digits, least = FORMATS[dtype]
    shift = 53 - digits
    large = b.native("Mul", b.native("Abs", near), b.scalar(2.0**shift, DType.float64))
    bounds = b.scalar(1.5 * 2.0 ** (least + shift), DType.float64), b.scalar(2.0 ** (129 + shift), DType.float64)
    large = b.native("Clip", large, *bounds)
    return b.native("Sub", b.native("Add", x, large), large)


def with_sign_of_zero(b: Builder, result: Symbol, x: Symbol) -> Symbol:
    """Give the zeros of `result` the signs of `x`, which is finite there."""
    zero = b.scalar(0.0, result.dtype)
    is_zero = b.native("Equal", result, zero, dtype=DType.bool)
    return b.op("Where", is_zero, b.native("Mul", x, zero), result, dtype=result.dtype, shape=result.shape)


def nibble(b: Builder, symbol: Symbol, target: DType) -> Symbol:
    """Cast from or to int4 or uint4 by way of float32: quantisation has kernels for them where Cast has none."""
    one = b.scalar(1.0, DType.float32)
    if symbol.dtype in NIBBLES:
        wide = b.native("DequantizeLinear", symbol, one, dtype=DType.float32, shape=symbol.shape)
        return b.native_cast(wide, target)
    whole = b.native_cast(symbol, DType.int32)
    sixteen, half = b.scalar(16, DType.int32), b.scalar(8, DType.int32)
    if target is DType.int4:
        whole = b.native("Sub", b.native("Mod", b.native("Add", whole, half), sixteen), half)
    else:
        whole = b.native("Mod", whole, sixteen)
    exact = b.native_cast(whole, DType.float32)
    return b.native("QuantizeLinear", exact, one, b.scalar(0, target), dtype=target, shape=symbol.shape)


# Computing an operator in another dtype than that of its operands.


def compute_in(b: Builder, dtype: DType, call: OpCall, *, by_bits: bool = False) -> tuple[Symbol, ...]:
    """Build a call in another dtype: cast the operands whose dtype selects the kernel, and cast the results back.

    by_bits: reinterpret their bits as the other dtype instead of casting.
    """
    op_type, inputs, types, attributes, _ = call
    operand_dtype = present(kernel_dtype(op_type, inputs, types))
    casts = b.casts
    integers = operand_dtype.is_integer and operand_dtype.bits <= 16 and dtype.is_integer
    narrow = b.fast and operand_dtype in NARROW
    keeps = KEEPS_FLOATS if operand_dtype.is_float else KEEPS_VALUES
    wide: list[Symbol | None] = []
    is_exact = True
    for position, symbol in enumerate(inputs):
        loose = None
        if symbol is not None and symbol.type.dtype is operand_dtype:
            if narrow or (integers and _counts_low_bits(op_type, position, attributes)):
                loose = casts.loose.get((symbol.id, dtype))
            is_exact &= loose is None
            symbol = _moved(b, symbol, dtype, by_bits) if loose is None else loose
        wide.append(symbol)
    wide_types = [b.retyped(t, dtype) if isinstance(t, TensorType) and t.dtype is operand_dtype else t for t in types]
    if "value" in attributes and op_type == "ConstantOfShape":
        attributes = {"value": attributes["value"].astype(dtype.numpy)}
    elif "dtype" in attributes and op_type == "EyeLike":
        attributes = {**attributes, "dtype": dtype}
    wide_results = b.selection.legal(b, OpCall(op_type, wide, wide_types, attributes))
    results = [
        _moved(b, m, t.dtype, by_bits) if isinstance(t, TensorType) and m.type.dtype is not t.dtype else m
        for m, t in zip(wide_results, types, strict=True)
    ]
    for m, result in zip(wide_results, results, strict=True):
        if m is result or by_bits or m.type.dtype is not dtype:
            continue
        if is_exact and op_type in keeps:
            casts.know(result, m)
        elif narrow or integers:
            casts.loose[result.id, dtype] = m
    return tuple(results)


def in_dtype(dtype: DType, b: Builder, call: OpCall) -> tuple[Symbol, ...]:
    """The decomposition of an operator that is computed in another dtype."""
    return compute_in(b, dtype, call)


def _moved(b: Builder, symbol: Symbol, dtype: DType, by_bits: bool) -> Symbol:
    return b.view(symbol, dtype) if by_bits else b.casts.cast(symbol, symbol.dtype, dtype)


def _counts_low_bits(op_type: str, position: int, attributes: dict[str, Any]) -> bool:
    """Return True if the low bits of the results depend only on the low bits of this operand."""
    if op_type == "BitShift":
        return not position and attributes["direction"] == "LEFT"
    return op_type in LOW_BITS
