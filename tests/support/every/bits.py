"""Ops on bits: fields, counts, and values read as other dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphcore import DType, Symbol, ops
from tests.support import reference
from tests.support.every.case import FLOATS, Array, Case, operands, own

D = DType
X = ("n 4",)


def codes(x: Array, bits: int) -> Array:
    """Return integers or bools as Python integers from 0 on."""
    return np.array([int(v) % (1 << bits) for v in x.ravel()], object).reshape(x.shape)


def of_bits(call: Callable[..., Any], formula: Callable[[int, int], int], gives: Callable[[DType], DType]) -> Case:
    """An op on the bits of integers. formula: of the bits, as an integer from 0 on, and their number."""

    def want(dtype: DType, x: Array) -> Array:
        made = [formula(code, dtype.bits) for code in codes(x, dtype.bits).ravel()]
        target = gives(dtype)
        found = np.array(made, bool) if target is D.bool else reference.wrapped(made, target)
        return found.reshape(x.shape)

    return Case(operands(*X), call, want, gives, FLOATS)


def counted(dtype: DType) -> DType:
    return D.uint8


def field(bits: int) -> Callable[[DType], DType]:
    def gives(dtype: DType) -> DType:
        width = min(bits, dtype.bits)
        return D.bool if width == 1 else D.uint(width)

    return gives


def low(x: Symbol) -> Symbol:
    return ops.bit_extract(x, 0, min(3, x.dtype.bits))


def inserted(x: Symbol) -> Symbol:
    return ops.bit_insert(x, x.bits[0], x.dtype.bits - 1, 1)


def reversed_bits(code: int, bits: int) -> int:
    return int(format(code, f"0{bits}b")[::-1], 2)


def in_bytes(dtype: DType, x: Array) -> Array:
    if dtype.bits != 4:
        return x.view(np.uint8)
    halves = codes(x, 4).astype(np.uint8)
    return np.asarray(halves[:, ::2] | (halves[:, 1::2] << 4))


CASES: dict[str, Case] = {
    "popcount": of_bits(ops.popcount, lambda code, bits: code.bit_count(), counted),
    "leading_zeros": of_bits(ops.leading_zeros, lambda code, bits: bits - code.bit_length(), counted),
    "trailing_zeros": of_bits(
        ops.trailing_zeros, lambda code, bits: (code & -code).bit_length() - 1 if code else bits, counted
    ),
    "bit_reverse": of_bits(ops.bit_reverse, reversed_bits, own),
    "bit_extract": of_bits(low, lambda code, bits: code & 7, field(3)),
    "bit_insert": of_bits(inserted, lambda code, bits: code & ~(1 << (bits - 1)) | (code & 1) << (bits - 1), own),
    "bit_concat": of_bits(
        lambda x: ops.bit_concat(x.bits[0], low(x)),
        lambda code, bits: (code & 1) << min(3, bits) | code & 7,
        lambda dtype: D.uint(min(3, dtype.bits) + 1),
    ),
    "bitcast": Case(
        operands("n 4: unit"),  # a NaN of 8 bits loses its payload
        lambda x: ops.bitcast(x, D.uint8),
        in_bytes,
        counted,
    ),
}
