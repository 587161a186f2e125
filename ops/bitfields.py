"""Bit fields of integers, read, set and joined: `x.bits`; and bits read as another dtype.

Integers have any width. Bit 0 is the lowest; a field is written as in hardware, high end first, and both ends are part
of it. A field of one bit is a bool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import dtype_of, graph_of, operand
from graphcore.build.shapes import broadcast, check_integers
from graphcore.errors import DTypeError, ShapeError, SymbolError
from graphcore.ir.buffers import BufferValue
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.bits import Offset, as_field, joined, shifted, unsigned, whole
from graphcore.ops.buffers import buffer_store
from graphcore.ops.shared.dims import Axis, shape_vector
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape


@op(onnx="BitShift, Cast", rule="keep")
def bit_extract(x: TensorLike, offset: Offset, width: int) -> Symbol:
    """The bits of an integer from `offset` on, `width` of them, as an unsigned integer of that width.

    Args:
        x: Integers of any width or bools, any shape.
        offset: The position of the lowest bit, from 0: an int, or integers that broadcast with x; bits beyond x are 0.
        width: The number of bits, at least 1.

    Returns:
        `uint<width>`, bool for one bit.

    Raises:
        DTypeError: For floats and strings.
        ShapeError: For a field of ints that is not inside x. `x.bits[high:low]`; SPIR-V's BitFieldUExtract.
    """
    symbol, place = _checked_field("bit_extract", x, offset, width)
    moved = shifted("ShiftRight", unsigned(symbol), place)
    return as_field(moved, width)


@op(onnx="BitShift, BitwiseAnd, BitwiseOr", rule="keep")
def bit_insert(x: TensorLike, value: TensorLike, offset: Offset, width: int) -> Symbol:
    """The integer with the bits from `offset` on, `width` of them, set to those of `value`.

    Args:
        x: Integers of any width or bools, any shape.
        value: Integers or bools that broadcast with x, whose lowest `width` bits are used; a Python number must fit.
        offset: The position of the lowest bit: an int, or integers that broadcast with x; bits beyond x are dropped.

    Returns:
        The dtype of x.

    Raises:
        DTypeError: For floats, strings and a number that does not fit.
        ShapeError: For a field of ints that is not inside x. `x.with_bits(high, low, value)`; SPIR-V's BitFieldInsert.
    """
    symbol, place = _checked_field("bit_insert", x, offset, width)
    bits = unsigned(symbol)
    field = _field(symbol, value, width, bits.dtype)
    ones = (1 << width) - 1
    if isinstance(place, Symbol):
        mask = shifted("ShiftLeft", e.const(bits, ones), place)
        others = e.emit("BitwiseAnd", bits, e.emit("BitwiseNot", mask))
    else:
        others = e.emit("BitwiseAnd", bits, e.const(bits, ((1 << bits.dtype.bits) - 1) ^ (ones << place)))
    combined = e.emit("BitwiseOr", others, shifted("ShiftLeft", field, place))
    return symbol.graph.build.cast(combined, symbol.dtype)


@op(onnx="BitShift, BitwiseOr", rule="keep")
def bit_concat(*values: TensorLike) -> Symbol:
    """The bits of integers concatenated, those of the first the highest, as one unsigned integer.

    Args:
        values: One or more Symbols or arrays of integers of any widths or bools, which broadcast.

    Returns:
        `uint<n>` for n bits in all, bool for one bit.

    Raises:
        DTypeError: For floats, strings and Python numbers, which have no width.
        ShapeError: For no values and for shapes that do not broadcast.

    Verilog's {a, b}; Chisel's Cat.
    """
    if not values:
        raise ShapeError("bit_concat: expected one or more values", help="give one or more: ops.bit_concat(high, low)")
    graph = graph_of("bit_concat", values)
    fields = [
        unsigned(whole("bit_concat", _with_width(graph, value, i), f"value {i}")) for i, value in enumerate(values)
    ]
    broadcast("bit_concat", {f"value {i}": field for i, field in enumerate(fields)})
    combined = joined(fields)
    return as_field(combined, combined.dtype.bits)


def _checked_field(name: str, x: TensorLike, offset: Offset, width: int) -> tuple[Symbol, Offset]:
    """Return the checked operand and offset of a field."""
    symbol = whole(name, operand(name, x), "x")
    roles: dict[str, object] = {"x": symbol, "offset": offset}
    bits = symbol.dtype.bits
    if isinstance(width, bool) or not isinstance(width, (int, np.integer)) or not 1 <= width <= bits:
        raise ShapeError(
            f"{name}: width must be 1 to {bits}, got {width!r}", operands={"x": symbol}, help=f"x has {bits} bits"
        )
    if isinstance(offset, np.ndarray):
        offset = symbol.graph.build.operand(offset, name, "offset")
    if isinstance(offset, Symbol):
        check_integers(name, "offset", offset, roles)
        place = operand(name, offset, "offset")
        broadcast(name, {"x": symbol, "offset": place})
        return symbol, place
    if isinstance(offset, bool) or not isinstance(offset, (int, np.integer)):
        raise DTypeError(f"{name}: offset={offset!r} is not an integer", operands={"x": symbol}, help="give an int")
    if not 0 <= offset <= bits - width:
        raise ShapeError(
            f"{name}: bits {offset + width - 1} to {offset} are not in {symbol.dtype}, which has bits {bits - 1} to 0",
            operands={"x": symbol},
            help="bits count from 0, the lowest",
        )
    return symbol, int(offset)


def _with_width(graph: Graph, value: TensorLike, position: int) -> Symbol:
    if isinstance(value, (bool, int, float)):
        raise DTypeError(
            f"bit_concat: value {position} is the Python number {value!r}, which has no width",
            help="give it a width: graph.constant(value, DType.uint(4))",
        )
    return graph.build.operand(value, "bit_concat", f"value {position}")


def _field(x: Symbol, value: TensorLike, width: int, dtype: DType) -> Symbol:
    """Return the value of a field in the unsigned dtype that it is inserted in, with zeros above its width."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if not -(1 << (width - 1)) <= value < 1 << width:
            raise DTypeError(
                f"bit_insert: {value} does not fit into {width} bits",
                operands={"x": x},
                help=f"give 0 to {(1 << width) - 1}",
            )
        return e.const(x, int(value) % (1 << width), dtype)
    symbol = whole("bit_insert", x.graph.build.operand(value, "bit_insert", "value"), "value")
    broadcast("bit_insert", {"x": x, "value": symbol})
    build = x.graph.build
    return build.cast(build.cast(unsigned(symbol), DType.uint(width)), dtype)


# x.bits


class Bits:
    """The bits of a Symbol of integers: `x.bits`.

    `x.bits[3]` is a bool, `x.bits[7:4]` the four bits from 7 down to 4 as uint4: the higher end first, both ends
    included. `x.bits[i]` takes an integer Symbol. Bits of a buffer are set by `buffer.bits[7:4] = value`; a Symbol
    is immutable: `x.with_bits(7, 4, value)` returns a new one.
    """

    __slots__ = ("_of",)

    def __init__(self, of: Symbol) -> None:
        self._of = of

    def __getitem__(self, place: Any) -> Symbol:
        return bit_extract(self._of, *_place(self._of, place))

    def __setitem__(self, place: Any, value: TensorLike) -> None:
        if not isinstance(self._of, BufferValue):
            raise SymbolError(
                "bits: a Symbol does not change",
                operands={"value": self._of},
                help="make a new one: x.with_bits(high, low, value)",
            )
        buffer_store(self._of, bit_insert(self._of, value, *_place(self._of, place)))

    def __repr__(self) -> str:
        return f"<bits of {self._of}>"


def _place(x: Symbol, place: Any) -> tuple[Offset, int]:
    """Return the offset and width of an index of bits."""
    if not isinstance(place, slice):
        return place, 1
    bits = whole("bits", x, "x").dtype.bits
    high = bits - 1 if place.start is None else place.start
    low = 0 if place.stop is None else place.stop
    if isinstance(high, Symbol) or isinstance(low, Symbol):
        raise ShapeError(
            "bits: the number of bits between two Symbols is not known while the graph is being built",
            operands={"x": x},
            help="give the width: ops.bit_extract(x, low, width)",
        )
    are_ints = all(isinstance(end, (int, np.integer)) and not isinstance(end, bool) for end in (high, low))
    if place.step is not None or not are_ints or not 0 <= low <= high:
        raise ShapeError(
            f"bits: {place.start}:{place.stop}{'' if place.step is None else f':{place.step}'} is not a range of bits",
            operands={"x": x},
            help="give the higher end first, both included: x.bits[3:0] is the lowest four",
        )
    return int(low), int(high - low) + 1


def with_bits(self: Symbol, high: int, low: int, value: TensorLike) -> Symbol:
    """The integer with the bits from `high` down to `low`, both included, set to those of `value`. See `bit_insert`."""
    return bit_insert(self, value, *_place(self, slice(high, low)))


_BITS: Callable[[Symbol], Bits] = Bits
setattr(Symbol, "bits", property(_BITS, doc=Bits.__doc__))  # noqa: B010 - an assignment would be checked
setattr(Symbol, "with_bits", with_bits)  # noqa: B010


# Bits read as another dtype


@op(onnx="BitCast", rule="keep", method=True)
def bitcast(x: TensorLike, dtype: object) -> Symbol:
    """The same bits read as another dtype.

    Args:
        x: Any shape, any dtype but string.
        dtype: Of the same width, or of another: the last axis then has more or fewer elements, the lowest bits first,
            as in NumPy's view of a little-endian array; its length must be a multiple. A bool is one bit beside a dtype
            of one bit, else a byte, in which any value but 0 is true. tensor_float32 has 32 bits, and results are
            rounded to it.

    Returns:
        A Symbol of that dtype.

    Raises:
        DTypeError: For strings, an invalid dtype and widths of which neither is a multiple of the other.
        ShapeError: For a scalar or a last axis that is not divisible.

    ONNX BitCast.
    """
    symbol = operand("bitcast", x)
    target = dtype_of("bitcast", dtype, symbol.graph)
    source = symbol.dtype
    roles: dict[str, object] = {"x": symbol}
    if DType.string in (source, target):
        raise DTypeError("bitcast: strings have no bits", operands=roles, help="use numbers or bools")
    if source is target:
        return symbol
    before, after = _width(source, target), _width(target, source)
    if before == after:
        return _read(symbol, target)
    if max(before, after) % min(before, after):
        raise DTypeError(
            f"bitcast: {source} has {before} bits and {target} has {after}: neither is a multiple of the other",
            operands=roles,
            help="take fields of bits instead: x.bits[high:low], or cast to keep the numbers",
        )
    if not symbol.rank:
        raise ShapeError(
            f"bitcast: a scalar of {source} ({before} bits) cannot be read as {target} ({after} bits)",
            operands=roles,
            help=f"add an axis first: ops.unsqueeze(x, 0), or use a dtype of {before} bits",
        )
    words = _read(symbol, DType.uint(before))
    return _read(_split_words(words, after) if before > after else _merged_words(words, after, roles), target)


def _width(dtype: DType, other: DType) -> int:
    if dtype is DType.bool:
        return 1 if other.bits == 1 else 8
    return 32 if dtype is DType.tensor_float32 else dtype.bits


def _read(x: Symbol, target: DType) -> Symbol:
    """Read the bits as a dtype of the same width."""
    build, source = x.graph.build, x.dtype
    if source is target:
        return x
    if all(d.is_integer or d is DType.bool for d in (source, target)):
        return build.cast(x, target)  # a cast of integers wraps; a bool is 0 or 1
    if source is DType.tensor_float32:
        return _read(build.cast(x, DType.float32), target)
    if target is DType.tensor_float32:
        return build.cast(_read(x, DType.float32), target)
    if source.storage is not source:  # index and address
        return _read(build.cast(x, source.storage), target)
    if target.storage is not target:
        return build.cast(_read(x, target.storage), target)
    return e.bitcast(x, target)


def _split_words(x: Symbol, bits: int) -> Symbol:
    """Split unsigned integers into words of `bits` along the last axis, the lowest first."""
    build, count = x.graph.build, x.dtype.bits // bits
    parts = [build.cast(shifted("ShiftRight", x, i * bits), DType.uint(bits)) for i in range(count)]
    columns = [e.unsqueeze(part, -1) for part in parts]
    apart = e.emit("Concat", *columns, shape=_shape([*x.shape, Dim(count)]), axis=x.rank)
    length = x.shape[-1]
    return _merge_last_axes(x, apart, length * count)


def _merged_words(x: Symbol, bits: int, roles: dict[str, object]) -> Symbol:
    """Join unsigned integers along the last axis into words of `bits`, the lowest first."""
    count, length = bits // x.dtype.bits, x.shape[-1]
    if (length % count).is_static and length % count != 0:
        raise ShapeError(
            f"bitcast: the last axis must be a multiple of {count} for {bits} bits, got {length}",
            operands=roles,
            help="pad or slice the last axis first",
        )
    pairs = Dim.dynamic() if length.is_dynamic else length // count
    shape = _shape([*x.shape[:-1], pairs, Dim(count)])
    sizes = _sizes(x, e.ints(x, [int(pairs) if pairs.is_static else -1, count]))
    apart = e.emit("Reshape", x, sizes, shape=shape, allowzero=int(0 in shape))
    places = (x.graph.build.scalar(i, DType.int64) for i in range(count))
    parts = [e.emit("Gather", apart, place, shape=shape[:-1], axis=x.rank) for place in places]
    return joined(parts[::-1])


def _merge_last_axes(x: Symbol, apart: Symbol, length: Dim) -> Symbol:
    shape = _shape([*x.shape[:-1], length])
    if length.is_static:
        tail = e.ints(x, [int(length)])
    else:
        length_at_runtime = shape_vector(x.graph, [Axis(x, x.rank - 1)], (x,), op="bitcast")
        tail = e.emit("Mul", length_at_runtime, e.ints(x, [int(apart.shape[-1])]))
    return e.emit("Reshape", apart, _sizes(x, tail), shape=shape, allowzero=1)


def _sizes(x: Symbol, tail: Symbol) -> Symbol:
    """Return the sizes of all axes but the last, followed by `tail`."""
    if x.rank == 1:
        return tail
    head = shape_vector(x.graph, [Axis(x, i) for i in range(x.rank - 1)], (x,), op="bitcast")
    return e.emit("Concat", head, tail, shape=_shape([head.shape[0] + tail.shape[0]]), axis=0)
