"""Orders of many wide integers: the greatest and least along axes, their positions, and sorting.

Each digit is read as int32 in the order of the digits, whose kernels are right and fast.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval, constant_axes, of_dtype
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, Limb, Value
from graphcore.runtime.lowering.dtypes.integers.wide.operands import Rule, first, most_limbs, refused
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

_I32, _I64 = DType.int32, DType.int64
_MIDDLE = 1 << (DIGIT - 1)
_INT32 = Interval(-_MIDDLE, _MIDDLE - 1)


def _keys(on: Widths, value: Value, least: int = 1) -> list[tuple[Symbol, Limb]]:
    """Return the digits as int32 in their order, the lowest first, each with its limb."""
    digits = on.limbs.digits(value, least)
    symbols = on.limbs.full(Value(digits, value.interval))
    limbs = [Limb(symbol, digit.window) for symbol, digit in zip(symbols, digits, strict=True)]
    return [(key_of(on, limb), limb) for limb in limbs]


def key_of(on: Widths, digit: Limb) -> Symbol:
    """Return a digit as int32, in the order of those of its window."""
    low = digit if _is_signed(digit) else on.limbs.plus(digit, on.limbs.number(-_MIDDLE))
    return e.cast_within(on.limbs.symbol(low), _I32)


def _is_signed(limb: Limb) -> bool:
    return limb.window.within(_INT32)


def digit_of(on: Widths, key: Symbol, limb: Limb) -> Limb:
    """Return the digit of a key."""
    made = Limb(e.cast_within(key, U64), _INT32)
    if _is_signed(limb):
        return made._replace(window=limb.window)
    return on.limbs.plus(made, on.limbs.number(_MIDDLE), limb.window)


# The greatest and the least


def _extreme(*, greatest: bool) -> Rule:
    def build(on: Widths, node: Node) -> Sequence[Result]:
        x = first(node)
        if len(node.inputs) > 1 and node.inputs[1] is None:
            node_axes: Symbol | None = None
        else:
            node_axes = node.inputs[1] if len(node.inputs) > 1 else None
        if node_axes is None and node.attributes.get("noop_with_empty_axes"):
            return (on.value(x),)
        axes = [] if node_axes is None else [on.exact(node_axes)]
        value, shape = on.exact_value(x), _kept(x, node)
        limits = of_dtype(x.dtype)
        assert limits is not None
        is_whole = _has_elements(x)
        if not is_whole:  # of none it is the end of the dtype's range, whatever the value is known to hold
            value = Value(value.limbs, limits)
        found, _ = _narrowed(on, value, axes, shape, greatest=greatest, least=1 if is_whole else most_limbs(node))
        digits = []
        for place, (key, limb) in enumerate(found):
            if not is_whole:
                key = _clamped(key, limb, limits >> (DIGIT * place), greatest=greatest)
            if not node.attributes.get("keepdims", 1):
                key = e.emit("Squeeze", key, *axes, shape=node.outputs[0].shape)
            digits.append(digit_of(on, key, limb))
        return (Value(tuple(digits), value.interval),)

    return build


def _clamped(key: Symbol, limb: Limb, limits: Interval, *, greatest: bool) -> Symbol:
    """Return the key of the last digit within the dtype: of no elements it is the end of int32's range."""
    end = limits.lo if greatest else limits.hi
    end -= 0 if _is_signed(limb) else _MIDDLE
    if not _INT32.lo < end < _INT32.hi:
        return key
    return e.emit("Max" if greatest else "Min", key, e.const(key, end))


def _narrowed(
    on: Widths, value: Value, axes: Sequence[Symbol], shape: Shape, *, greatest: bool, least: int = 1
) -> tuple[list[tuple[Symbol, Limb]], Symbol]:
    """Return the keys of the greatest or least along axes, which are kept, and where it stands: digit by digit."""
    chosen: Symbol | None = None
    found: list[tuple[Symbol, Limb]] = []
    worst = _INT32.lo if greatest else _INT32.hi
    for key, limb in reversed(_keys(on, value, least)):
        left = key if chosen is None else e.where(chosen, key, e.const(key, worst))
        best = e.emit("ReduceMax" if greatest else "ReduceMin", left, *axes, shape=shape, keepdims=1)
        found.insert(0, (best, limb))
        equal = e.equal(left, best)
        chosen = equal if chosen is None else e.both(chosen, equal)
    assert chosen is not None
    return found, chosen


def _kept(x: Symbol, node: Node) -> Shape:
    """Return the shape of a reduction that keeps its axes."""
    if not x.shape.is_ranked:
        raise refused(node, "the rank of an operand is not known")
    axes = constant_axes(node)
    if axes is None:
        return _shape([Dim.dynamic() for _ in x.shape])
    return _shape([Dim(1) if i in axes else d for i, d in enumerate(x.shape)])


def _has_elements(x: Symbol) -> bool:
    return all((d.lower_bound or 0) > 0 for d in x.shape)


def _position(*, greatest: bool) -> Rule:
    def build(on: Widths, node: Node) -> Sequence[Result]:
        x = first(node)
        if not x.shape.is_ranked:
            raise refused(node, "the rank of an operand is not known")
        axis = int(node.attributes.get("axis", 0)) % max(x.rank, 1)
        shape = _shape([Dim(1) if i == axis else d for i, d in enumerate(x.shape)])
        axes = [x.graph.build.vector([axis])] if x.graph is on.new else [on.new.build.vector([axis])]
        _, chosen = _narrowed(on, on.exact_value(x), axes, shape, greatest=greatest)
        marks = e.cast_within(chosen, _I32)
        return (e.emit("ArgMax", marks, dtype=_I64, shape=node.outputs[0].shape, **node.attributes),)

    return build


# Sorting


def _top_k(on: Widths, node: Node) -> Sequence[Result]:
    """Sort by each digit, from the lowest on: each sort keeps the order of what is equal."""
    x, count = node.inputs
    assert x is not None
    assert count is not None
    if not x.shape.is_ranked:
        raise refused(node, "the rank of an operand is not known")
    values = node.outputs[0]
    axis = int(node.attributes.get("axis", -1)) % x.rank
    value = on.exact_value(x)
    digits = [key for key, _ in _keys(on, value)]
    size = e.emit("Shape", digits[0], dtype=_I64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)
    attributes = {"axis": axis, "largest": int(node.attributes.get("largest", 1)), "sorted": 1}
    order: Symbol | None = None
    for place, key in enumerate(digits):
        is_last = place == len(digits) - 1
        shape = values.shape if is_last else x.shape
        sorted_key = key if order is None else e.emit("GatherElements", key, order, shape=x.shape, axis=axis)
        how_many = on.exact(count) if is_last else size
        types = [tensor_type(_I32, shape), tensor_type(_I64, shape)]
        _, taken = on.new.build.emit_many("TopK", (sorted_key, how_many), types, attributes)
        order = taken if order is None else e.emit("GatherElements", order, taken, shape=shape, axis=axis)
    assert order is not None
    limbs = tuple(
        limb._replace(symbol=e.emit("GatherElements", symbol, order, shape=values.shape, axis=axis))
        for limb, symbol in zip(value.limbs, on.limbs.full(value), strict=True)
    )
    return Value(limbs, value.interval), order


RULES: dict[str, Rule] = {
    "ReduceMax": _extreme(greatest=True),
    "ReduceMin": _extreme(greatest=False),
    "ArgMax": _position(greatest=True),
    "ArgMin": _position(greatest=False),
    "TopK": _top_k,
}
