"""Products of complex matrices and products along axes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from graphcore.build import primitives as e
from graphcore.ir.constants import constant_array, constant_scalar
from graphcore.ir.symbol import Node, Symbol
from graphcore.ops.control import scan
from graphcore.runtime.lowering.dtypes.complex_numbers import real as r
from graphcore.runtime.lowering.dtypes.complex_numbers.arithmetic import operands, product
from graphcore.runtime.lowering.dtypes.complex_numbers.parts import Pair, Parts, Result
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import _shape, tensor_type


def _matmul(on: Parts, node: Node) -> Sequence[Result]:
    """Four real products, or three (Gauss) where products may round otherwise."""
    x, y = operands(on, node)
    type_ = tensor_type(x.real.dtype, node.outputs[0].shape)

    def times(a: Symbol, b: Symbol) -> Symbol:
        return on.new.build.emit("MatMul", (a, b), type_)

    if not on.fast:
        real = r.sub(times(x.real, y.real), times(x.imag, y.imag))
        return (Pair(real, r.add(times(x.real, y.imag), times(x.imag, y.real))),)
    first = times(r.add(x.real, x.imag), y.real)
    second = times(x.real, r.sub(y.imag, y.real))
    third = times(x.imag, r.add(y.real, y.imag))
    return (Pair(r.sub(first, third), r.add(first, second)),)


def _einsum(on: Parts, node: Node) -> Sequence[Result]:
    """The sum of the real equations of every choice of parts: i to the power of the imaginary ones among them."""
    given = operands(on, node)
    type_ = tensor_type(given[0].real.dtype, node.outputs[0].shape)
    made: list[Symbol | None] = [None, None]
    for places in itertools.product((0, 1), repeat=len(given)):
        turns = sum(places)
        parts = tuple(pair[place] for pair, place in zip(given, places, strict=True))
        term = on.new.build.emit("Einsum", parts, type_, node.attributes, node.domain)
        is_minus = turns % 4 >= 2
        held = made[turns % 2]
        if held is None:
            made[turns % 2] = r.neg(term) if is_minus else term
        else:
            made[turns % 2] = r.sub(held, term) if is_minus else r.add(held, term)
    real, imag = made
    assert real is not None
    assert imag is not None
    return (Pair(real, imag),)


def _reduce_prod(on: Parts, node: Node) -> Sequence[Result]:
    """Multiply one element after the other, along one axis after the other."""
    source, axes = node.inputs[0], constant_array(node.inputs[1]) if len(node.inputs) > 1 else None
    assert source is not None
    made = on.pair(source)
    keeps = node.attributes.get("keepdims", 1)
    along = range(source.rank) if axes is None else sorted(int(axis) % source.rank for axis in axes)
    for axis in reversed(along):
        made, _ = _multiplied(made, axis)
        if keeps:
            shape = made.real.shape
            at = e.ints(made.real, [axis])
            made = Pair(
                *(e.emit("Unsqueeze", part, at, shape=_shape([*shape[:axis], Dim(1), *shape[axis:]])) for part in made)
            )
    return (made,)


def _cum_prod(on: Parts, node: Node) -> Sequence[Result]:
    source, at = node.inputs
    assert source is not None
    axis = constant_scalar(at)
    assert axis is not None
    is_exclusive, is_reverse = (bool(node.attributes.get(key, 0)) for key in ("exclusive", "reverse"))
    _, made = _multiplied(on.pair(source), axis % source.rank, is_exclusive=is_exclusive, is_reverse=is_reverse)
    return (made,)


def _multiplied(x: Pair, axis: int, *, is_exclusive: bool = False, is_reverse: bool = False) -> tuple[Pair, Pair]:
    """Return the product along an axis, and the running products there."""
    shape = x.real.shape
    left = _shape([*shape[:axis], *shape[axis + 1 :]])
    kept = e.ints(x.real, [i for i in range(len(shape)) if i != axis])
    sizes = e.emit("Gather", r.shape_of(x.real), kept, shape=_shape([Dim(len(left))]), axis=0)
    start = [e.emit("Expand", r.number(x.real, value), sizes, shape=left) for value in (1.0, 0.0)]

    def step(held: tuple[Symbol, Symbol], row: tuple[Symbol, Symbol]) -> tuple[object, object]:
        after = tuple(product(Pair(*held), Pair(*row)))
        return after, held if is_exclusive else after

    last, running = scan(step, tuple(start), tuple(x), axis=axis, reverse=is_reverse, out_axis=axis)
    return Pair(*last), Pair(*running)


RULES = {"CumProd": _cum_prod, "Einsum": _einsum, "MatMul": _matmul, "ReduceProd": _reduce_prod}
