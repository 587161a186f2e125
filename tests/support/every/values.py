"""Ops of quantised tensors, those that draw random numbers, and those on lists and strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore import DType, Symbol, ops
from graphcore.quantization import QuantizedTensor, encode
from tests.support import counter, reference
from tests.support.every.case import (
    ALL,
    BOOL,
    FLOATS,
    INTEGERS,
    SIZES,
    Array,
    Case,
    moved,
    number,
    operands,
    own,
    real,
    smallest_float,
    to_bool,
    to_int64,
    truth,
)

D = DType
NOT_BYTES = frozenset(ALL) - {D.uint8}

_WHOLE = np.random.default_rng(5).integers(-4, 5, (3, 16))
WEIGHT = QuantizedTensor("int8", (3, 16), _WHOLE.astype(np.int8), np.array(0.5, np.float32))
"""Halves, whose sums are exact."""


def _scaled(dtype: DType, x: Array) -> Array:
    """Return x after quantisation to 8 bits, by the formulas of int8 in float32."""
    result = reference.cast(reference.cast(x, dtype, smallest_float(dtype)), smallest_float(dtype), D.float32)
    return encode(np.asarray(result, np.float32), "int8").dequantize()


def _blocks(dtype: DType, x: Array) -> Array:
    return QuantizedTensor("Q4_0", (x.shape[0], 32), x).dequantize()


def _to_float32(dtype: DType) -> DType:
    return D.float32


def _product(x: Any) -> Any:
    return x @ (_WHOLE / 2).T.astype(np.longdouble)


CASES: dict[str, Case] = {
    "quantize": Case(operands("n 4: unit"), lambda x: ops.dequantize(ops.quantize(x)), _scaled, _to_float32),
    "dequantize": Case(operands("n 18"), lambda x: ops.dequantize("q4_0", x), _blocks, _to_float32, NOT_BYTES),
    "qmatmul": real(("n 16: whole",), lambda x: ops.qmatmul("int8", x, WEIGHT), _product, near=False),
}


# Random numbers, lists and strings

X = ("n 4: whole",)
SEED = 7
ONLY_STRINGS = frozenset(ALL)


def drawn(call: Any, want: Any, gives: Any = own, refused: frozenset[DType] = frozenset(), near: bool = False) -> Case:
    """An op that draws for the shape and dtype of its operand."""
    return Case(operands(*X), call, want, gives, refused, near)


def chances(dtype: DType, x: Array) -> Array:
    """Return True if each number is above the drawn one."""
    to = smallest_float(dtype)
    unit = counter.uniform(SEED, x.size, D.float64 if to is D.float64 else D.float32).reshape(x.shape)
    return np.asarray(unit < reference.cast(x, dtype, to).astype(np.float64))


def classes(dtype: DType, x: Array) -> Array:
    weights = np.exp(reference.exact(reference.cast(x, dtype, smallest_float(dtype))).astype(np.float64))
    sums = np.cumsum(weights, axis=-1)
    unit = counter.uniform(SEED, len(x), D.float64)[:, None] * sums[:, -1:]
    return np.asarray((sums[:, :-1] <= unit).sum(axis=-1))


def order(count: int) -> Array:
    bits = counter.integers(SEED, count, -(2**63), 2**63)  # shifted by 2^63, as the order of signed numbers is
    words = [(int(n) + 2**63) % 2**64 for n in bits]
    return np.argsort([n - 2**64 if n >= 2**63 else n for n in words], kind="stable")


def stays(x: Array) -> Array:
    return counter.uniform(SEED, x.size, D.float64).reshape(x.shape) < 0.5


RANDOM: dict[str, Case] = {
    "random_uniform": drawn(
        lambda x: ops.random_uniform(x.shape, seed=SEED, dtype=x.dtype),
        lambda dtype, x: counter.uniform(SEED, x.size, dtype).reshape(x.shape).astype(dtype.numpy),
        refused=INTEGERS | BOOL,
    ),
    "random_normal": drawn(
        lambda x: ops.random_normal(x.shape, seed=SEED, dtype=x.dtype),
        lambda dtype, x: reference.rounded(counter.normal(SEED, x.size, dtype).reshape(x.shape), dtype),
        refused=INTEGERS | BOOL,
        near=True,
    ),
    "random_int": drawn(
        lambda x: ops.random_int(x.shape, 1, 7, seed=SEED, dtype=x.dtype),
        lambda dtype, x: counter.integers(SEED, x.size, 1, 7).reshape(x.shape).astype(np.int64).astype(dtype.numpy),
        refused=FLOATS | BOOL,
    ),
    "bernoulli": drawn(lambda x: ops.bernoulli(x, seed=SEED), chances, to_bool),
    "categorical": drawn(lambda x: ops.categorical(x, seed=SEED), classes, to_int64),
    "permutation": drawn(lambda x: ops.permutation(x.shape[0], seed=SEED), lambda dtype, x: order(len(x)), to_int64),
    "shuffle": moved(X, lambda x: ops.shuffle(x, seed=SEED), lambda x: x[order(len(x))]),
    "dropout": real(X, lambda x: ops.dropout(x, 0.5, seed=SEED), lambda x: np.where(stays(x), x * 2, 0), near=False),
}


def rows(x: Symbol) -> Symbol:
    return ops.list_of([x[i] for i in range(SIZES["n"])])


LISTS: dict[str, Case] = {
    "list_of": moved(X, lambda x: ops.list_get(ops.list_of([x[:2], x]), 1), lambda x: x),
    "list_empty": moved(
        X, lambda x: ops.list_concat(ops.list_append(ops.list_empty(x.dtype, x.shape), x)), lambda x: x
    ),
    "list_length": number(X, lambda x: ops.list_length(rows(x)), lambda x: len(x), to_int64),
    "list_get": moved(X, lambda x: ops.list_get(rows(x), -2), lambda x: x[-2]),
    "list_append": moved(X, lambda x: ops.list_stack(ops.list_append(rows(x), x[0])), lambda x: np.vstack([x, x[:1]])),
    "list_insert": moved(
        X, lambda x: ops.list_stack(ops.list_insert(rows(x), 0, x[2])), lambda x: np.vstack([x[2:3], x])
    ),
    "list_erase": moved(X, lambda x: ops.list_stack(ops.list_erase(rows(x), 1)), lambda x: np.delete(x, 1, 0)),
    "list_pop": moved(X, lambda x: ops.list_pop(rows(x))[1], lambda x: x[-1]),
    "list_concat": moved(X, lambda x: ops.list_concat(ops.list_of([x, x[:1]])), lambda x: np.vstack([x, x[:1]])),
    "list_stack": moved(X, lambda x: ops.list_stack(ops.list_of([x, x]), 1), lambda x: np.stack([x, x], 1)),
    "list_split": moved(X, lambda x: ops.list_get(ops.list_split(x, 2), 1), lambda x: x[2:4]),
    "list_unstack": moved(X, lambda x: ops.list_get(ops.list_unstack(x, 1), 3), lambda x: x[:, 3]),
    "list_map": moved(X, lambda x: ops.list_stack(ops.list_map(lambda row: row[::-1], rows(x))), lambda x: x[:, ::-1]),
}


def of_strings(call: Any) -> Case:
    """An op that takes strings alone."""
    return Case(operands(*X), call, lambda dtype, x: x, own, ONLY_STRINGS)


STRINGS: dict[str, Case] = {
    "string_concat": of_strings(lambda x: ops.string_concat(x, "!")),
    "string_join": of_strings(lambda x: ops.string_join([x, x], ",")),
    "string_split": of_strings(lambda x: ops.string_split(x)),
    "string_lower": of_strings(lambda x: ops.string_lower(x)),
    "string_upper": of_strings(lambda x: ops.string_upper(x)),
    "string_remove": of_strings(lambda x: ops.string_remove(x, ["a"])),
    "string_matches": of_strings(lambda x: ops.string_matches(x, "a")),
    "string_of": truth(X, lambda x: ops.string_matches(ops.string_of(x), "1|True"), lambda x: x == 1),
    "string_parse": of_strings(lambda x: ops.string_parse(x, D.float32)),
}

CASES |= {**RANDOM, **LISTS, **STRINGS}
