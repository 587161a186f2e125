"""The bits of values read as another dtype."""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import dtype_of, operand
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.bitfields import joined, shifted
from graphcore.ops.shared.dims import Axis, shape_vector
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape


@op(onnx="BitCast", rule="keep", method=True)
def bitcast(x: TensorLike, dtype: object) -> Symbol:
    """The same bits read as another dtype.

    x: any shape, any dtype but string. dtype: of the same width, or of another: the last axis then holds as many more,
    or fewer, elements, the lowest bits first, as in NumPy's view of a little-endian array; its length must be a
    multiple. A bool is one bit beside a dtype of one bit, and a byte beside any other, in which all but 0 is true.
    tensor_float32 has 32 bits and is rounded where it is made. Returns a Symbol of that dtype. Raises `DTypeError` for
    strings, what is no dtype and widths that are no multiple of each other, `ShapeError` for a scalar or a last axis
    that does not divide. ONNX BitCast.
    """
    symbol = operand("bitcast", x)
    target = dtype_of("bitcast", dtype)
    own = symbol.dtype
    roles: dict[str, object] = {"x": symbol}
    if DType.string in (own, target):
        raise DTypeError("bitcast: strings have no bits", operands=roles, help="use numbers or bools")
    if own is target:
        return symbol
    before, after = _width(own, target), _width(target, own)
    if before == after:
        return _read(symbol, target)
    if max(before, after) % min(before, after):
        raise DTypeError(
            f"bitcast: {own} has {before} bits and {target} has {after}: neither is a multiple of the other",
            operands=roles,
            help="take fields of bits instead: x.bits[high:low], or cast to keep the numbers",
        )
    if not symbol.rank:
        raise ShapeError(
            f"bitcast: {own} of {before} bits has no last axis that {target} of {after} bits could lie on",
            operands=roles,
            help=f"give it one: ops.unsqueeze(x, 0), or use a dtype of {before} bits",
        )
    words = _read(symbol, DType.uint(before))
    return _read(_split(words, after) if before > after else _merged(words, after, roles), target)


def _width(dtype: DType, other: DType) -> int:
    if dtype is DType.bool:
        return 1 if other.bits == 1 else 8
    return 32 if dtype is DType.tensor_float32 else dtype.bits


def _read(x: Symbol, target: DType) -> Symbol:
    """Return the bits of a dtype of the same width."""
    build, own = x.graph.build, x.dtype
    if own is target:
        return x
    if all(d.is_integer or d is DType.bool for d in (own, target)):
        return build.cast(x, target)  # which wraps, and is no number other than 0 or 1 of a bool
    if own is DType.tensor_float32:
        return _read(build.cast(x, DType.float32), target)
    if target is DType.tensor_float32:
        return build.cast(_read(x, DType.float32), target)
    if own.storage is not own:  # index and address
        return _read(build.cast(x, own.storage), target)
    if target.storage is not target:
        return build.cast(_read(x, target.storage), target)
    return e.bitcast(x, target)


def _split(x: Symbol, bits: int) -> Symbol:
    """Return the parts of unsigned integers along the last axis, the lowest first."""
    build, count = x.graph.build, x.dtype.bits // bits
    column = _shape([*x.shape, Dim(1)])
    last = e.ints(x, [-1])
    parts = [build.cast(shifted("ShiftRight", x, i * bits), DType.uint(bits)) for i in range(count)]
    columns = [e.emit("Unsqueeze", part, last, shape=column) for part in parts]
    apart = e.emit("Concat", *columns, shape=_shape([*x.shape, Dim(count)]), axis=x.rank)
    length = x.shape[-1]
    return _lengthened(x, apart, length * count)


def _merged(x: Symbol, bits: int, roles: dict[str, object]) -> Symbol:
    """Return unsigned integers made of those along the last axis, the lowest first."""
    count, length = bits // x.dtype.bits, x.shape[-1]
    if (length % count).is_static and length % count != 0:
        raise ShapeError(
            f"bitcast: {length} elements on the last axis are no multiple of the {count} that {bits} bits take",
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


def _lengthened(x: Symbol, apart: Symbol, length: Dim) -> Symbol:
    shape = _shape([*x.shape[:-1], length])
    if length.is_static:
        tail = e.ints(x, [int(length)])
    else:
        own = shape_vector(x.graph, [Axis(x, x.rank - 1)], (x,), op="bitcast")
        tail = e.emit("Mul", own, e.ints(x, [int(apart.shape[-1])]))
    return e.emit("Reshape", apart, _sizes(x, tail), shape=shape, allowzero=1)


def _sizes(x: Symbol, tail: Symbol) -> Symbol:
    """Return the sizes of all axes but the last, and those of `tail` in its place."""
    if x.rank == 1:
        return tail
    head = shape_vector(x.graph, [Axis(x, i) for i in range(x.rank - 1)], (x,), op="bitcast")
    return e.emit("Concat", head, tail, shape=_shape([head.shape[0] + tail.shape[0]]), axis=0)
