"""Maxima and minima of wide integers along axes, their positions, and sorting.

Each digit is read as an int32 of equal order, for which kernels are correct and fast.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.operators import ROWS
from graphcore.promotion.allo import MOVES
from graphcore.runtime.lowering.dtypes.integers import conversions
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval, constant_axes, joined, of_dtype
from graphcore.runtime.lowering.dtypes.integers.kinds import ZEROS, is_wide
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, Limb, WideValue
from graphcore.runtime.lowering.dtypes.integers.wide.operands import MAX_TERMS, Rule, max_limbs, refused, require_ranks
from graphcore.runtime.lowering.dtypes.integers.wide.running import scatter_product
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

_I32, _I64, _F64 = DType.int32, DType.int64, DType.float64
_MIDDLE = 1 << (DIGIT - 1)
_INT32 = Interval(-_MIDDLE, _MIDDLE - 1)


def _keys(on: Widths, value: WideValue, least: int = 1) -> list[tuple[Symbol, Limb]]:
    """Return the digits as int32 of equal order, lowest first, each with its limb."""
    limbs = [Limb(symbol, digit.window) for symbol, digit in on.limbs.whole_digits(value, least)]
    return [(key_of(on, limb), limb) for limb in limbs]


def key_of(on: Widths, digit: Limb) -> Symbol:
    """Return a digit as int32, in the order of its window."""
    low = digit if _is_signed(digit) else on.limbs.plus(digit, on.limbs.number(-_MIDDLE))
    return e.cast_within(on.limbs.symbol(low), _I32)


def _is_signed(limb: Limb) -> bool:
    return limb.window.within(_INT32)


def digit_of(on: Widths, key: Symbol, limb: Limb) -> Limb:
    """Return the digit of a key."""
    digit = Limb(e.cast_within(key, U64), _INT32)
    if _is_signed(limb):
        return digit._replace(window=limb.window)
    return on.limbs.plus(digit, on.limbs.number(_MIDDLE), limb.window)


# Maxima and minima


def _extreme(on: Widths, node: Node) -> Sequence[Result]:
    x, greatest = present(node.inputs[0]), node.op_type == "ReduceMax"
    node_axes = node.inputs[1] if len(node.inputs) > 1 else None
    if node_axes is None and node.attributes.get("noop_with_empty_axes"):
        return (on.value(x),)
    axes = [] if node_axes is None else [on.exact(node_axes)]
    value, shape = on.exact_value(x), _reduced_shape(x, node)
    limits = present(of_dtype(x.dtype))
    is_whole = all((d.lower_bound or 0) > 0 for d in x.shape)
    if not is_whole:  # without elements the result is an end of the dtype's range
        value = WideValue(value.limbs, limits)
    keys, _ = _find_best(on, value, axes, shape, greatest=greatest, least=1 if is_whole else max_limbs(node))
    digits = []
    for place, (key, limb) in enumerate(keys):
        if not is_whole:
            key = _clamped(key, limb, limits >> (DIGIT * place), greatest=greatest)
        if not node.attributes.get("keepdims", 1):
            key = e.emit("Squeeze", key, *axes, shape=node.outputs[0].shape)
        digits.append(digit_of(on, key, limb))
    return (WideValue(tuple(digits), value.interval),)


def _clamped(key: Symbol, limb: Limb, limits: Interval, *, greatest: bool) -> Symbol:
    """Clamp the key of the last digit to the dtype: without elements it is an end of int32's range."""
    end = limits.lo if greatest else limits.hi
    end -= 0 if _is_signed(limb) else _MIDDLE
    if not _INT32.lo < end < _INT32.hi:
        return key
    return e.emit("Max" if greatest else "Min", key, e.const(key, end))


def _find_best(
    on: Widths, value: WideValue, axes: Sequence[Symbol], shape: Shape, *, greatest: bool, least: int = 1
) -> tuple[list[tuple[Symbol, Limb]], Symbol]:
    """Return the keys of the maxima or minima along axes, which stay, and a mask of their positions: digit by digit."""
    chosen: Symbol | None = None
    keys: list[tuple[Symbol, Limb]] = []
    worst = _INT32.lo if greatest else _INT32.hi
    for key, limb in reversed(_keys(on, value, least)):
        candidates = key if chosen is None else e.where(chosen, key, e.const(key, worst))
        best = e.emit("ReduceMax" if greatest else "ReduceMin", candidates, *axes, shape=shape, keepdims=1)
        keys.insert(0, (best, limb))
        equal = e.equal(candidates, best)
        chosen = equal if chosen is None else e.both(chosen, equal)
    return keys, present(chosen)


def _reduced_shape(x: Symbol, node: Node) -> Shape:
    """Return the shape of a reduction that keeps its axes."""
    require_ranks(node, x)
    axes = constant_axes(node)
    if axes is None:
        return _shape([Dim.dynamic() for _ in x.shape])
    return _shape([Dim(1) if i in axes else d for i, d in enumerate(x.shape)])


def _position(on: Widths, node: Node) -> Sequence[Result]:
    x = present(node.inputs[0])
    require_ranks(node, x)
    axis = int(node.attributes.get("axis", 0)) % max(x.rank, 1)
    shape = _shape([Dim(1) if i == axis else d for i, d in enumerate(x.shape)])
    axes, greatest = [on.new.build.vector([axis])], node.op_type == "ArgMax"
    _, chosen = _find_best(on, on.exact_value(x), axes, shape, greatest=greatest)
    marks = e.cast_within(chosen, _I32)
    return (e.emit("ArgMax", marks, dtype=_I64, shape=node.outputs[0].shape, **node.attributes),)


# Sorting


def _top_k(on: Widths, node: Node) -> Sequence[Result]:
    """Sort by each digit, from the lowest on: each sort is stable."""
    x, count = map(present, node.inputs)
    require_ranks(node, x)
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
    return WideValue(limbs, value.interval), order


def _max_pool(on: Widths, node: Node) -> Sequence[Result]:
    """Pool the places of all elements in their order, in which the first of equal ones is the greatest."""
    x, build, line = present(node.inputs[0]), on.new.build, _shape([Dim.dynamic()])
    value = on.exact_value(x)
    some = on.limbs.full(value)[0]
    sizes = e.emit("Shape", some, dtype=_I64, shape=_shape([Dim(x.rank)]))
    size = e.emit("ReduceProd", sizes, shape=_shape([Dim(1)]), keepdims=1)

    def sort(key: Symbol, largest: int) -> Symbol:
        types = [tensor_type(key.dtype, line), tensor_type(_I64, line)]
        return build.emit_many("TopK", (key, size), types, {"axis": 0, "largest": largest, "sorted": 1})[1]

    def flat(symbol: Symbol) -> Symbol:
        return e.emit("Reshape", symbol, build.vector([-1]), shape=line)

    order: Symbol | None = None
    for key, _ in _keys(on, value):
        row = flat(key)
        taken = sort(row if order is None else e.emit("Gather", row, order, shape=line, axis=0), 1)
        order = taken if order is None else e.emit("Gather", order, taken, shape=line, axis=0)
    assert order is not None
    ranks = e.emit("Reshape", e.emit("Neg", sort(order, 0)), sizes, shape=x.shape)
    types = [tensor_type(dtype, s.shape) for s, dtype in zip(node.outputs, (_F64, _I64), strict=False)]
    best, *places = build.emit_many("MaxPool", (e.cast_within(ranks, _F64),), types, node.attributes)
    # A window of padding alone has the least number, which follows all elements.
    last = e.cast_within(e.emit("Neg", size), _F64)
    best = e.emit("Neg", e.cast_within(e.emit("Max", best, last, shape=best.shape), _I64))
    chosen = e.emit("Gather", e.emit("Concat", order, size, shape=line, axis=0), best, shape=best.shape, axis=0)
    least = conversions.of_number(on.limbs, int(x.dtype.min))
    low, ends = on.limbs.aligned([value, least])
    limbs = []
    for limb, end, symbol in zip(low, ends, on.limbs.full(WideValue(tuple(low), value.interval)), strict=True):
        after = e.emit("Reshape", on.limbs.symbol(end), build.vector([1]), shape=_shape([Dim(1)]))
        longer = e.emit("Concat", flat(symbol), after, shape=line, axis=0)
        window = joined((limb.window, end.window))
        limbs.append(Limb(e.emit("Gather", longer, chosen, shape=best.shape, axis=0), window))
    return WideValue(tuple(limbs), joined((value.interval, least.interval))), *places


# Moves of wide integers: each limb is moved by the operator itself.


def moved(on: Widths, node: Node) -> Sequence[Result]:
    """Apply an operator that moves values to each limb."""
    positions = [i for i, s in enumerate(node.inputs) if s is not None and i in ROWS[node.op_type].data]
    if not all(is_wide(node.inputs[i]) for i in positions):
        raise refused(node)
    values = [on.value(s) for i in positions if (s := node.inputs[i]) is not None]
    if node.op_type in ZEROS:
        values.append(conversions.of_number(on.limbs, 0))
    aligned = on.limbs.aligned(values)
    rows = [on.limbs.full(WideValue(tuple(row), values[0].interval)) for row in aligned]
    windows = [joined([limb.window for limb in column]) for column in zip(*aligned, strict=True)]
    interval = joined([value.interval for value in values])
    others = {i: on.exact(s) for i, s in enumerate(node.inputs) if s is not None and i not in positions}
    types = [tensor_type(U64, s.shape) for s in node.outputs]
    result_limbs: list[list[Limb]] = [[] for _ in types]
    for place, window in enumerate(windows):
        inputs = [
            None if s is None else rows[positions.index(i)][place] if i in positions else others[i]
            for i, s in enumerate(node.inputs)
        ]
        results = on.new.build.emit_many(node.op_type, tuple(inputs), types, node.attributes, node.domain)
        for limbs, result in zip(result_limbs, results, strict=True):
            limbs.append(Limb(result, window))
    return [WideValue(tuple(limbs), interval) for limbs in result_limbs]


def _resize(on: Widths, node: Node) -> Sequence[Result]:
    if node.attributes.get("mode", "nearest") not in ("nearest", b"nearest"):
        raise refused(node)
    return moved(on, node)


def _where(on: Widths, node: Node) -> Sequence[Result]:
    condition, x, y = map(present, node.inputs)
    truth = on.exact(condition)
    left, right = on.spread([on.value(x), on.value(y)], node, [truth])
    return (on.limbs.where(truth, left, right),)


def _shape_or_size(on: Widths, node: Node) -> Sequence[Result]:
    """Apply Shape or Size to one limb: all have the same shape."""
    x = on.value(present(node.inputs[0]))
    result = e.emit(node.op_type, on.limbs.full(x)[0], dtype=_I64, shape=node.outputs[0].shape, **node.attributes)
    return (result,)


def _constant_of_shape(on: Widths, node: Node) -> Sequence[Result]:
    """Apply ConstantOfShape for each limb."""
    fill = node.attributes.get("value")
    number = 0 if fill is None else int(fill.reshape(()))
    value = conversions.of_number(on.limbs, number)
    shape = on.exact(present(node.inputs[0]))
    type_ = tensor_type(U64, node.outputs[0].shape)
    limbs = []
    for limb in value.limbs:
        one = np.array([limb.window.lo % (1 << 64)], np.uint64)
        limbs.append(Limb(on.new.build.emit(node.op_type, (shape,), type_, {"value": one}), limb.window))
    return (WideValue(tuple(limbs), value.interval),)


# Scatters that combine wide integers: sums, products, maxima and minima.


def _scatter(on: Widths, node: Node) -> Sequence[Result]:
    data, indices, updates = map(present, node.inputs)
    how = node.attributes.get("reduction", "none")
    how = how.decode() if isinstance(how, bytes) else how
    if how == "none":
        return moved(on, node)
    if not is_wide(data) or not is_wide(updates):
        raise refused(node)
    places = on.exact(indices)
    if how == "add":
        return (_scatter_add(on, node, on.value(data), on.value(updates), places),)
    if how in ("max", "min"):
        return (_scatter_best(on, node, on.exact_value(data), on.exact_value(updates), places, greatest=how == "max"),)
    return (scatter_product(on, node),)


def _scatter_add(on: Widths, node: Node, data: WideValue, updates: WideValue, places: Symbol) -> WideValue:
    """Add the digits, whose sums stay below 2^64."""
    added = on.limbs.digits(updates)
    base = on.limbs.digits(data, len(added))
    added = on.limbs.digits(updates, len(base))
    terms = Interval(0, MAX_TERMS // 2)
    columns = []
    rows = on.limbs.full(WideValue(base, data.interval)), on.limbs.full(WideValue(added, updates.interval))
    for one, other, x, y in zip(base, added, *rows, strict=True):
        signed = (e.bitcast(x, _I64), places, e.bitcast(y, _I64))
        total = e.emit(node.op_type, *signed, shape=node.outputs[0].shape, **node.attributes)
        columns.append([Limb(e.bitcast(total, U64), one.window + other.window * terms)])
    return on.limbs.summed(columns, max_limbs(node), data.interval + updates.interval * terms)


def _scatter_best(
    on: Widths, node: Node, data: WideValue, updates: WideValue, places: Symbol, *, greatest: bool
) -> WideValue:
    """Choose digit by digit, from the last one on, among those whose digits so far are the best."""
    interval = joined((data.interval, updates.interval))
    first_digits, second_digits = on.limbs.digits(data), on.limbs.digits(updates)
    count = max(len(first_digits), len(second_digits))
    if interval.lo < 0 and interval.hi >> (DIGIT * count - 1):  # one last digit is signed, the other is not
        count += 1
    pairs = [on.limbs.whole_digits(value, count) for value in (data, updates)]
    worst = _INT32.lo if greatest else _INT32.hi
    gather = "GatherElements" if node.op_type == "ScatterElements" else "GatherND"
    attributes = {"axis": node.attributes.get("axis", 0)} if gather == "GatherElements" else {}
    stays: Symbol | None = None
    comes: Symbol | None = None
    chosen: list[Limb] = []
    for (one, limb), (another, other) in reversed(list(zip(*pairs, strict=True))):
        window = joined((limb.window, other.window))
        old, new = (key_of(on, Limb(symbol, window)) for symbol in (one, another))
        candidates = old if stays is None else e.where(stays, old, e.const(old, worst))
        new_candidates = new if comes is None else e.where(comes, new, e.const(new, worst))
        best = e.emit(node.op_type, candidates, places, new_candidates, **node.attributes)
        chosen.insert(0, digit_of(on, best, Limb(one, window)))
        stays_best = e.equal(candidates, best)
        stays = stays_best if stays is None else e.both(stays, stays_best)
        best_there = e.emit(gather, best, places, shape=new.shape, **attributes)
        comes_best = e.equal(new_candidates, best_there)
        comes = comes_best if comes is None else e.both(comes, comes_best)
    return WideValue(tuple(chosen), interval)


RULES: dict[str, Rule] = {
    "ReduceMax": _extreme,
    "ReduceMin": _extreme,
    "ArgMax": _position,
    "ArgMin": _position,
    "TopK": _top_k,
    "MaxPool": _max_pool,
    "Resize": _resize,
    **dict.fromkeys(MOVES, moved),
    "Where": _where,
    "Shape": _shape_or_size,
    "Size": _shape_or_size,
    "ConstantOfShape": _constant_of_shape,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
}
