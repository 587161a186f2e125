"""Products of integers of thousands of bits: limbs multiplied one by one take as many nodes as the square of their
number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.dtypes.integers.carrying import Digits, Result, Widths
from graphcore.runtime.lowering.dtypes.integers.limbs import conversions, words
from graphcore.runtime.lowering.dtypes.integers.wide.operands import digits_of, most_limbs
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_MOST_LIMBS = 32
"""Limbs of a product up to which the products of each two of them run faster than a Scan."""


def is_long(node: Node) -> bool:
    """Return whether the operands of a product are to be multiplied word by word."""
    return most_limbs(node) > _MOST_LIMBS and all(s is not None and s.shape.is_ranked for s in node.inputs)


def multiplied(on: Widths, node: Node, *, is_square: bool = False) -> Sequence[Result]:
    """Return the product of the first two operands, or the square of one, and what a third adds to it."""
    dtype, shape = node.outputs[0].dtype, node.outputs[0].shape
    given = _words_of(on, node, dtype)
    x, y, *terms = given * 2 if is_square else given
    whole = _shape([Dim(words.count_of(dtype)), *shape])
    if y.shape != whole:
        x, y = y, x
    if y.shape != whole:
        others = [e.emit("Mul", s, e.const(s, 0)) for s in (words.aligned(s, len(whole)) for s in (x, *terms))]
        y = reduce(lambda a, b: e.emit("Add", a, b, shape=whole), others, words.aligned(y, len(whole)))
    return (Digits(words.to_digits(words.multiplied(x, y, *terms), dtype)),)


def contracted(on: Widths, node: Node) -> Sequence[Result]:
    """Return the matrix product of two operands."""
    dtype, shape = node.outputs[0].dtype, node.outputs[0].shape
    x, y = _words_of(on, node, dtype)
    dims = list(shape)
    lines = []
    if x.rank == 2:  # of a vector: it has a row, which the result does not have
        x = e.emit("Unsqueeze", x, e.ints(x, [1]), shape=_shape([x.shape[0], Dim(1), x.shape[1]]))
        dims.insert(len(dims) - (y.rank > 2), Dim(1))
        lines.append(-1 - (y.rank > 2))
    if y.rank == 2:
        y = e.emit("Unsqueeze", y, e.ints(y, [2]), shape=_shape([*y.shape, Dim(1)]))
        dims.append(Dim(1))
        lines = [-1, *(axis - 1 for axis in lines)]
    whole = _shape([x.shape[0], *dims])
    made = words.contracted(x, words.aligned(y, max(x.rank, y.rank)), whole)
    if lines:
        made = e.emit("Squeeze", made, e.ints(made, lines), shape=_shape([x.shape[0], *shape]))
    return (Digits(words.to_digits(made, dtype)),)


def _words_of(on: Widths, node: Node, dtype: DType) -> list[Symbol]:
    """Return the operands in words of the result's dtype."""
    made = []
    for symbol in node.inputs:
        assert symbol is not None
        if symbol.dtype is dtype:
            digits = digits_of(on, symbol, dtype)
        else:
            digits = conversions.packed(on.limbs, on.exact_value(symbol), dtype, symbol.shape)
        made.append(words.of_digits(digits, dtype))
    return made
