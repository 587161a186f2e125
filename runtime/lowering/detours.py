"""What is computed in another way, because onnxruntime has no kernel for it or one that gives other numbers.

One row an (operator, dtype): the function that builds the replacement. A detour returns None where the operator may
stay after all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore.dims import Dim
from graphcore.dtypes import DType
from graphcore.errors import GraphError
from graphcore.runtime.lowering import double, scatter
from graphcore.symbol import Node, Symbol
from graphcore.types import TensorType, Type, _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalise import Legaliser

Made: TypeAlias = "Symbol | tuple[Symbol, ...] | None"
Detour: TypeAlias = "Callable[[Legaliser, str, Sequence[Symbol | None], Sequence[Type], dict[str, Any]], Made]"
Inputs: TypeAlias = "Sequence[Any]"

SIGNED = (DType.int8, DType.int16, DType.int32, DType.int64)
UNSIGNED = (DType.uint8, DType.uint16, DType.uint32, DType.uint64)
INTEGERS = (*SIGNED, *UNSIGNED)
WIDE_FLOATS = (DType.float32, DType.float64)


def _divide(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Integer Div and Mod kill the process on MIN / -1 and fail on 0: divide by 1 there, and mend the quotient."""
    x, y = inputs
    dtype = x.dtype
    divisors = on.known(y)
    if divisors is not None and not np.isin(divisors, (0, -1) if dtype.is_signed else (0,)).any():
        return None
    zero, one = on.const(0, dtype), on.const(1, dtype)
    nothing = on.native("Equal", y, zero, dtype=DType.bool)
    unsafe = nothing
    opposite = None
    if dtype.is_signed:
        opposite = on.native("Equal", y, on.const(-1, dtype), dtype=DType.bool)
        unsafe = on.native("Or", nothing, opposite)
    safe = on.op("Where", unsafe, one, y, dtype=dtype)
    made = on.native(op, x, safe, **attributes)
    if op == "Mod":
        return made  # modulo 1 is 0, which is what both have
    if opposite is not None:
        made = on.op("Where", opposite, on.native("Neg", x), made, dtype=dtype)
    return on.op("Where", nothing, zero, made, dtype=dtype)


def _where_bool(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    condition, x, y = inputs
    return on.native(
        "Or", on.native("And", condition, x), on.native("And", on.native("Not", condition), y), shape=types[0].shape
    )


def _where_bits(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The float kernel takes -0.0 for nothing chosen and gives 0.0; that of integers, on the same bits, cannot err."""
    condition, x, y = inputs
    own = x.dtype
    if any((array := on.known(s)) is not None and array.size and not (array == 0).any() for s in (x, y)):
        return None
    bits = DType.int32 if own is DType.float32 else DType.int64
    made = on.native(op, condition, on.viewed(x, bits), on.viewed(y, bits), dtype=bits, shape=types[0].shape)
    return on.native("BitCast", made, dtype=own, to=own)


def _extreme_int64(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Max and Min of int64 order numbers with equal high halves by their low halves taken as signed."""
    made = inputs[0]
    for other in inputs[1:]:
        smaller = on.native("Less", made, other, dtype=DType.bool)
        pair = (other, made) if op == "Max" else (made, other)
        made = on.native("Where", smaller, *pair, dtype=DType.int64)
    return made if len(inputs) > 1 else None


def _clip_int64(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Clip of int64 has the order of Max and Min."""
    made, *bounds = inputs
    for name, bound in zip(("Max", "Min"), bounds, strict=False):
        if bound is not None:
            made = on.op(name, made, bound)
    return made if any(b is not None for b in bounds) else None


def _matmul_bool(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """*or* of *and*s: whether any product is true."""
    x, y = (on.casts.cast(s, DType.bool, DType.int32) for s in inputs)
    count = on.native("MatMul", x, y, shape=types[0].shape)
    return on.casts.cast(count, DType.int32, DType.bool)


def _is_by_vector(x: TensorType, result: TensorType) -> bool:
    """Whether a product of rows, of which there may be none, with a vector."""
    return 1 < x.rank > result.rank and not result.is_static


def _matmul(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernels refuse a vector on the right where the rows on the left turn out to be none; a column will do."""
    x, y = inputs
    shape = types[0].shape
    if not _is_by_vector(x.type, types[0]):
        return None
    column = on.native("Unsqueeze", y, on.ints([1]), shape=_shape([*y.shape, Dim(1)]))
    product = on.op(op, x, column, shape=_shape([*shape, Dim(1)]))
    return on.native("Squeeze", product, on.ints([-1]), shape=shape)


def _matmul_double(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """onnxruntime draws a constant factor before or behind a product into it, as a float32: keep them apart."""
    by_vector = _matmul(on, op, inputs, types, attributes)
    if by_vector is not None:
        return by_vector
    x, y = (on.native("BitCast", s, to=s.dtype) if isinstance(s.producer, Node) else s for s in inputs)
    made = on.native(op, x, y, shape=types[0].shape)
    return on.native("BitCast", made, to=made.dtype)


def _matmul_unsigned(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernels of unsigned integers fail where there is nothing to add up; those of signed ones wrap alike."""
    view = DType.int32 if inputs[0].dtype is DType.uint32 else DType.int64
    return on.through(view, op, inputs, types, attributes, by_bits=True)


def _sum_integers(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Integer sums go through float64 and saturate; a product with ones wraps, and is faster."""
    x = inputs[0]
    if x.dtype.bits < 32:
        return on.through(DType.int32, op, inputs, types, attributes)
    flat, finish = _reduced_last(on, inputs, types, attributes)
    if finish is None:
        return on.op("Identity", x)
    # A column rather than a vector of ones: the kernel refuses a vector where the batch turns out empty.
    last = flat.shape[-1]
    if last.is_static:
        ones = on.graph._constant(np.ones((int(last), 1), x.dtype.numpy), x.dtype)
    else:
        count = on.native("Shape", flat, dtype=DType.int64, shape=_shape([Dim(1)]), start=-1)
        column = on.native("Concat", count, on.ints([1]), shape=_shape([Dim(2)]), axis=0)
        filled = np.ones(1, x.dtype.numpy)
        ones = on.native("ConstantOfShape", column, dtype=x.dtype, shape=_shape([last, Dim(1)]), value=filled)
    total = on.op("MatMul", flat, ones, shape=_shape([*flat.shape[:-1], Dim(1)]))
    return finish(on.native("Squeeze", total, on.ints([-1]), shape=flat.shape[:-1]))


def _product_integers(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Integer products go through float64 and saturate; the last of the running products is exact and wraps."""
    x = inputs[0]
    if x.dtype.bits < 32:
        return on.through(DType.int32, op, inputs, types, attributes)
    flat, finish = _reduced_last(on, inputs, types, attributes)
    if finish is None:
        return on.op("Identity", x)
    # A 1 in front, so that there is a last one even of none.
    pads = on.ints([0] * (flat.rank - 1) + [1] + [0] * flat.rank)
    longer = _shape([*flat.shape[:-1], flat.shape[-1] + 1])
    padded = on.native("Pad", flat, pads, on.const(1, x.dtype), shape=longer, mode="constant")
    running = on.native("CumProd", padded, on.const(-1, DType.int64), shape=longer)
    return finish(on.native("Gather", running, on.const(-1, DType.int64), shape=flat.shape[:-1], axis=-1))


def _reduced_last(
    on: Legaliser, inputs: Inputs, types: Any, attributes: dict[str, Any]
) -> tuple[Symbol, Callable[[Symbol], Symbol] | None]:
    """The operand with the axes to reduce brought together as the last one, and what gives the result its shape."""
    x = inputs[0]
    axes = _axes(on, inputs, x.rank)
    if not axes:
        if attributes.get("noop_with_empty_axes") or not x.rank:
            return x, None
        axes = list(range(x.rank))
    kept = [a for a in range(x.rank) if a not in axes]
    order = [*kept, *axes]
    if order != list(range(x.rank)):
        x = on.native("Transpose", x, shape=_shape([x.shape[a] for a in order]), perm=order)
    if len(axes) > 1:
        kept_shape = x.shape[: len(kept)]
        together = x.shape[len(kept) :].size
        lengths = on.native("Shape", x, dtype=DType.int64, shape=_shape([Dim(len(kept))]), start=0, end=len(kept))
        rest = on.native("Shape", x, dtype=DType.int64, shape=_shape([Dim(len(axes))]), start=len(kept))
        one = on.native("ReduceProd", rest, dtype=DType.int64, shape=_shape([Dim(1)]), keepdims=1)
        target = on.native("Concat", lengths, one, shape=_shape([Dim(len(kept) + 1)]), axis=0)
        if all(d.is_static for d in (*kept_shape, together)):
            target = on.ints([int(d) for d in (*kept_shape, together)])
        x = on.native("Reshape", x, target, shape=_shape([*kept_shape, together]), allowzero=1)

    def finish(made: Symbol) -> Symbol:
        if not attributes.get("keepdims", 1):
            return made
        return on.native("Unsqueeze", made, on.ints(sorted(axes)), shape=types[0].shape)

    return x, finish


def _axes(on: Legaliser, inputs: Inputs, rank: int) -> list[int]:
    if len(inputs) < 2 or inputs[1] is None:
        return []
    given = on.known(inputs[1])
    if given is None:
        raise GraphError(
            "a reduction of integers needs axes that are known when the graph is lowered",
            operands={"x": str(inputs[0].type), "axes": str(inputs[1].type)},
            help="give the axes as a constant, or cast x to a float first",
        )
    return [int(a) % rank for a in given]


def _extreme_floats(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """ReduceMax and ReduceMin see a NaN only when it comes first."""
    x = inputs[0]
    made = on.native(op, *inputs, shape=types[0].shape, **attributes)
    unknown = on.native("IsNaN", x, dtype=DType.bool)
    any_unknown = on.native("ReduceMax", unknown, *inputs[1:], dtype=DType.bool, shape=types[0].shape, **attributes)
    return on.native("Where", any_unknown, on.const(float("nan"), x.dtype), made, dtype=x.dtype, shape=types[0].shape)


def _extreme_int64_along(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """ReduceMax and ReduceMin of int64 have the order of Max and Min; ArgMax and ArgMin have the right one."""
    flat, finish = _reduced_last(on, inputs, types, attributes)
    if finish is None:
        return on.op("Identity", inputs[0])
    one = _shape([*flat.shape[:-1], Dim(1)])
    place = on.native(op.replace("Reduce", "Arg"), flat, dtype=DType.int64, shape=one, axis=-1, keepdims=1)
    chosen = on.native("GatherElements", flat, place, shape=one, axis=-1)
    return finish(on.native("Squeeze", chosen, on.ints([-1]), shape=flat.shape[:-1]))


def _argument_floats(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """ArgMax and ArgMin misplace NaN: the first one is what is asked for."""
    (x,) = inputs
    made = on.native(op, x, dtype=DType.int64, shape=types[0].shape, **attributes)
    unknown = on.casts.plain(on.native("IsNaN", x, dtype=DType.bool), DType.int32)
    first = on.native("ArgMax", unknown, dtype=DType.int64, shape=types[0].shape, **attributes)
    axis = attributes.get("axis", 0)
    any_unknown = on.native(
        "ReduceMax", unknown, on.ints([axis]), shape=types[0].shape, keepdims=attributes.get("keepdims", 1)
    )
    condition = on.casts.plain(any_unknown, DType.bool)
    return on.native("Where", condition, first, made, dtype=DType.int64, shape=types[0].shape)


def _top_k_floats(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """TopK misplaces NaN: look for integers in the order of the floats, NaN the greatest, and take what is there."""
    x, k = inputs
    whole = DType.int32 if x.dtype is DType.float32 else DType.int64
    least = -(1 << (whole.bits - 1))
    bits = on.viewed(x, whole)
    below = on.native("Less", bits, on.const(0, whole), dtype=DType.bool)
    keys = on.native("Where", below, on.native("Sub", on.const(least, whole), bits), bits, dtype=whole)
    unknown = on.native("IsNaN", x, dtype=DType.bool)
    keys = on.native("Where", unknown, on.const(-least - 1, whole), keys, dtype=whole)
    _, positions = on.legal(op, [keys, k], [t.cast(whole) if t.dtype is x.dtype else t for t in types], attributes, "")
    axis = attributes.get("axis", -1)
    return on.native("GatherElements", x, positions, shape=types[0].shape, axis=axis), positions


def _ordered_view(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
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


def _sigmoid(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernel gives 0 below -18."""
    (x,) = inputs
    one = on.const(1.0, x.dtype)
    return on.native("Reciprocal", on.native("Add", one, on.native("Exp", on.native("Neg", x))))


def _table() -> dict[tuple[str, DType], Detour]:
    rows: list[tuple[Sequence[str], Sequence[DType], Detour]] = [
        (("Div", "Mod"), INTEGERS, _divide),
        (("Where",), (DType.bool,), _where_bool),
        (("Where",), WIDE_FLOATS, _where_bits),
        (("Max", "Min"), (DType.int64,), _extreme_int64),
        (("Clip",), (DType.int64,), _clip_int64),
        (("MatMul",), (DType.bool,), _matmul_bool),
        (("MatMul",), (DType.float32, DType.int32, DType.int64), _matmul),
        (("MatMul",), (DType.float64,), _matmul_double),
        (("MatMul",), (DType.uint32, DType.uint64), _matmul_unsigned),
        (("ReduceSum",), INTEGERS, _sum_integers),
        (("ReduceProd",), INTEGERS, _product_integers),
        (("ReduceMax", "ReduceMin"), WIDE_FLOATS, _extreme_floats),
        (("ReduceMax", "ReduceMin"), (DType.int64,), _extreme_int64_along),
        (("ArgMax", "ArgMin"), WIDE_FLOATS, _argument_floats),
        (("TopK",), WIDE_FLOATS, _top_k_floats),
        (("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"), (DType.uint64,), _ordered_view),
        (("Sigmoid",), (DType.float32,), _sigmoid),
        (("ScatterElements", "ScatterND"), (DType.float16, DType.bfloat16), scatter.narrow),
        (("ScatterElements", "ScatterND"), WIDE_FLOATS, scatter.wide),
    ]
    table = {(op, dtype): detour for ops, dtypes, detour in rows for op in ops for dtype in dtypes}
    table.update({(op, DType.float64): _double(function) for op, function in double.FUNCTIONS.items()})
    return table


def _double(function: Callable[..., Symbol]) -> Detour:
    def detour(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
        return function(on, *inputs)

    return detour


DETOURS: dict[tuple[str, DType], Detour] = _table()

NEEDED: dict[tuple[str, DType], Callable[[TensorType, TensorType], bool]] = {
    ("MatMul", dtype): _is_by_vector for dtype in (DType.float32, DType.int32, DType.int64)
}
"""When a detour is taken, by the types of the first operand and the result, where that can be told without building it:
so that a graph which needs none is seen to be legal."""
