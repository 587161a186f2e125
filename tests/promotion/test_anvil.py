"""anvil: its tables, the propagation of ambiguity through every kind of op, and the cost of ambiguous values."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, implicit_cast_type, ops
from graphcore.errors import DTypeError, GraphError, LossyCastWarning, PromotionError
from graphcore.promotion import Key, Operand, common_dtype, system
from tests.sampling import drawn
from tests.support import promoted, reference
from tests.support.promoted import DTYPES, Value

Array = np.ndarray[Any, Any]
D = DType
op = ops.onnx
ALL = DTYPES["anvil"]
LABELS = dict(zip("i1 i8 i16 i32 i64 ui8 ui16 ui32 ui64 f32 f64".split(), ALL, strict=True))

KNOWN = """
     i1   i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
i1   i1   i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
i8   i8   i8   i16  i32  i64  i16  i32  i64  i64  f32  f64
i16  i16  i16  i16  i32  i64  i16  i32  i64  i64  f32  f64
i32  i32  i32  i32  i32  i64  i32  i32  i64  i64  f32  f64
i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  f32  f64
ui8  ui8  i16  i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
ui16 ui16 i32  i32  i32  i64  ui16 ui16 ui32 ui64 f32  f64
ui32 ui32 i64  i64  i64  i64  ui32 ui32 ui32 ui64 f32  f64
ui64 ui64 i64  i64  i64  i64  ui64 ui64 ui64 ui64 f32  f64
f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64
f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64
"""

# Rows are ambiguous, columns known.
AMBIGUOUS = """
     i1   i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
i1   i1   i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
i8   i8   i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
i16  i16  i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
i32  i32  i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
i64  i64  i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
ui8  ui8  i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
ui16 ui16 i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
ui32 ui32 i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
ui64 ui64 i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64
f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f32  f64
"""

# Whether what they meet in stays ambiguous.
FLAGS = """
     i1   i8   i16  i32  i64  ui8  ui16 ui32 ui64 f32  f64
i1   -    -    -    -    -    -    -    -    -    -    -
i8   ?    -    -    -    -    -    -    -    -    -    -
i16  ?    -    -    -    -    -    -    -    -    -    -
i32  ?    -    -    -    -    -    -    -    -    -    -
i64  ?    -    -    -    -    -    -    -    -    -    -
ui8  ?    -    -    -    -    -    -    -    -    -    -
ui16 ?    -    -    -    -    -    -    -    -    -    -
ui32 ?    -    -    -    -    -    -    -    -    -    -
ui64 ?    -    -    -    -    -    -    -    -    -    -
f32  ?    ?    ?    ?    ?    ?    ?    ?    ?    -    -
f64  ?    ?    ?    ?    ?    ?    ?    ?    ?    -    -
"""


FLAGGED = [(False, False), (False, True), (True, False), (True, True)]


def cells(table: str) -> dict[tuple[DType, DType], str]:
    head, *rows = table.strip("\n").split("\n")
    results = {}
    for row in rows:
        left, *answers = row.split()
        for right, answer in zip(head.split(), answers, strict=True):
            results[LABELS[left], LABELS[right]] = answer
    return results


KNOWN_CELLS, AMBIGUOUS_CELLS, FLAG_CELLS = map(cells, (KNOWN, AMBIGUOUS, FLAGS))


def expected(lhs: DType, rhs: DType, left: bool, right: bool) -> tuple[DType, bool]:
    """The cell of the tables for two dtypes and their flags."""
    if left == right:
        return LABELS[KNOWN_CELLS[lhs, rhs]], left
    pair = (lhs, rhs) if left else (rhs, lhs)
    return LABELS[AMBIGUOUS_CELLS[pair]], FLAG_CELLS[pair] == "?"


def graph_of(**types: str) -> Graph:
    """A graph of inputs such as `x="int32?"`, vectors of length n; `x="int32? scalar"` has no axes."""
    results = {}
    for name, text in types.items():
        dtype, _, shape = text.partition(" ")
        dims: list[Any] = [] if shape == "scalar" else ["n"]
        results[name] = TensorType(dtype.rstrip("?"), dims, ambiguous=dtype.endswith("?"))
    return Graph("anvil", results, promotion="anvil")


def symbols(*types: str) -> tuple[Symbol, ...]:
    return graph_of(**{f"x{i}": t for i, t in enumerate(types)}).inputs


def shown(symbol: Symbol) -> str:
    return str(symbol.type).partition("[")[0]


# The tables


@pytest.mark.parametrize("flags", FLAGGED, ids=str)
def test_common_dtype_is_that_of_the_tables_for_all_pairs(flags: tuple[bool, bool]) -> None:
    assert len(KNOWN_CELLS) == len(AMBIGUOUS_CELLS) == len(FLAG_CELLS) == 121
    for lhs, rhs in itertools.product(ALL, ALL):
        assert tuple(common_dtype(lhs, rhs, *flags)) == expected(lhs, rhs, *flags), (lhs, rhs)


@pytest.mark.parametrize("flags", FLAGGED, ids=str)
def test_symbols_meet_as_the_tables_say_when_added(flags: tuple[bool, bool]) -> None:
    left, right = ("?" if flag else "" for flag in flags)
    graph = graph_of(**{f"l_{d.name}": d.name + left for d in ALL}, **{f"r_{d.name}": d.name + right for d in ALL})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        for lhs, rhs in itertools.product(ALL, ALL):
            result = graph[f"l_{lhs.name}"] + graph[f"r_{rhs.name}"]
            assert (result.dtype, result.ambiguous) == expected(lhs, rhs, *flags), (lhs, rhs)


def test_rules_in_words_give_the_tables_for_all_pairs() -> None:
    for lhs, rhs, left, right in itertools.product(ALL, ALL, (False, True), (False, True)):
        values = [Value(np.zeros((), d.numpy), d, f) for d, f in ((lhs, left), (rhs, right))]
        assert promoted.joined("anvil", values) == expected(lhs, rhs, left, right)


def test_implicit_cast_type_gives_the_table_of_known_dtypes() -> None:
    assert all(implicit_cast_type(*pair, "anvil") is LABELS[cell] for pair, cell in KNOWN_CELLS.items())


def test_common_dtype_gives_the_examples_of_the_publication() -> None:
    assert common_dtype("float64", "float32").dtype is D.float64
    assert common_dtype("int64", "float32").dtype is D.float32
    assert common_dtype("float32", "float64", False, True) == (D.float32, False)
    assert common_dtype("float32", "float64", True, True) == (D.float64, True)
    assert common_dtype("float32", "float64", False, False) == (D.float64, False)


@pytest.mark.parametrize("outside", [D.tensor_float32, D.float16, D.bfloat16, D.int4, D.float8_e5m2, D.index], ids=str)
def test_dtypes_that_it_has_not_are_refused(outside: DType) -> None:
    with pytest.raises(PromotionError, match=f"common_dtype: anvil has no {outside}") as raised:
        common_dtype(D.float32, outside)
    assert "float32, float64" in raised.value.help
    (x, y) = Graph("g", [TensorType(outside, ["n"]), TensorType(D.float32, ["n"])], promotion="anvil").inputs
    for other in (y, 1, x):
        with pytest.raises(PromotionError, match=f"anvil has no {outside}"):
            x + other
    assert shown(x.cast(D.float32) + y) == "float32"


def test_many_operands_are_folded_from_the_left() -> None:
    graph = graph_of(a="int8?", b="float32?", c="uint8", d="bool")
    a, b, c, d = graph.inputs
    assert shown(ops.concat([a, b, c])) == "float32?"
    assert shown(ops.concat([a, c, b])) == "float32?"
    assert shown(ops.concat([a, c])) == "uint8"
    assert shown(ops.concat([d, a, d])) == "int8?"
    path = system("anvil").resolve(Key("fma", "arithmetic"), [Operand(D.bool), Operand(D.int32, ambiguous=True)] * 2)
    assert (path.result, path.ambiguous) == (D.int32, True)


# Literals


def test_literals_are_ambiguous_but_for_bools() -> None:
    b, u, f, i, g = symbols("bool", "uint8", "float64", "int16", "float32?")
    table = {
        "int32?": [b + 1, 1 + b, ops.maximum(b, 3), ops.where(b, 1, 2), ops.concat([b, b]) * 2],
        "float32?": [b + 1.0, u * 2.0, i / 2.5, g + 1, g * 2.0, ops.where(b, 1.0, 2), ops.where(b, 1, 0.5)],
        "bool": [b | True, ops.where(b, True, False)],
        "uint8": [u + 1, u * True, 200 - u, u & 1],
        "float64": [f + 1, f * 2.5, f + True],
        "int16": [i + 1, i | True, ops.where(b, i, 7)],
        "float32": [ops.where(b, symbols_of(b, "float32"), 1)],
    }
    for want, item in table.items():
        assert [shown(s) for s in item] == [want] * len(item)


def symbols_of(like: Symbol, dtype: str) -> Symbol:
    """A known Symbol of another dtype in the same graph."""
    return like.cast(dtype)


def test_literal_is_refused_when_the_known_dtype_cannot_hold_it() -> None:
    i, u = symbols("int8", "uint8")
    with pytest.raises(DTypeError, match="300 cannot be held in int8"):
        i + 300
    with pytest.raises(DTypeError, match="-1 cannot be held in uint8"):
        u * -1
    with pytest.raises(DTypeError, match="cannot be held in int32"):
        symbols("bool")[0] + 2**40


def test_constants_are_known_unless_said_to_be_ambiguous() -> None:
    graph = graph_of(x="int16")
    results = {
        "int16": [graph.scalar(2, DType.int16), graph.constant([1, 2], D.int16)],
        "int32": [graph.constant(2), graph.constant([1, 2]), graph.scalar(7)],
        "float32": [graph.constant(2.5), graph.full(2.5, ["n"]), graph.constant([1.0])],
        "int32?": [graph.scalar(2, ambiguous=True), graph.constant([1, 2], ambiguous=True)],
        "int8?": [graph.constant(2, D.int8, ambiguous=True)],
        "bool?": [graph.constant(True, ambiguous=True)],
    }
    for want, values in results.items():
        assert [shown(s) for s in values] == [want] * len(values)
    assert shown(graph["x"] + graph.scalar(2, D.int32)) == "int32"
    assert shown(graph["x"] + graph.scalar(2, ambiguous=True)) == "int16"


# How ambiguity travels. What is computed of x: int32? and f: float32? (both guesses), k: int16 and b: bool (known),
# t: bool?, and what it is.

TRAVELS: dict[str, list[tuple[str, Callable[..., Any]]]] = {
    "binary": [
        ("int32?", lambda x, f, k, b, t: x + x), ("int16", lambda x, f, k, b, t: x + k),
        ("int32?", lambda x, f, k, b, t: x * b), ("float32?", lambda x, f, k, b, t: f - k),
        ("float32?", lambda x, f, k, b, t: x - f), ("int32?", lambda x, f, k, b, t: x / x),
        ("int16", lambda x, f, k, b, t: k // x), ("float32?", lambda x, f, k, b, t: f**x),
        ("int16", lambda x, f, k, b, t: ops.maximum(k, x)), ("int32?", lambda x, f, k, b, t: ops.minimum(b, x)),
        ("float32?", lambda x, f, k, b, t: ops.atan2(f, x)), ("bool?", lambda x, f, k, b, t: t + t),
        ("bool", lambda x, f, k, b, t: t * b),
    ],
    "unary": [
        ("int32?", lambda x, f, k, b, t: -x), ("float32?", lambda x, f, k, b, t: ops.exp(f)),
        ("float32?", lambda x, f, k, b, t: ops.sqrt(x)), ("float32?", lambda x, f, k, b, t: ops.sqrt(k)),
        ("int32?", lambda x, f, k, b, t: abs(x)), ("int16", lambda x, f, k, b, t: -k),
        ("float32?", lambda x, f, k, b, t: ops.round(f)), ("int32?", lambda x, f, k, b, t: ops.square(x)),
    ],
    "comparison": [
        ("bool?", lambda x, f, k, b, t: x < x), ("bool?", lambda x, f, k, b, t: x == f),
        ("bool", lambda x, f, k, b, t: x >= k), ("bool", lambda x, f, k, b, t: k != k),
        ("bool?", lambda x, f, k, b, t: x > 1), ("bool", lambda x, f, k, b, t: k > 1),
    ],
    "logical_and_or_xor": [
        ("bool?", lambda x, f, k, b, t: ops.logical_and(x, f)), ("bool", lambda x, f, k, b, t: ops.logical_or(k, x)),
        ("bool?", lambda x, f, k, b, t: t & t), ("bool", lambda x, f, k, b, t: t | b),
        ("int32?", lambda x, f, k, b, t: x ^ x), ("int16", lambda x, f, k, b, t: x & k),
        ("bool", lambda x, f, k, b, t: t & True), ("int32?", lambda x, f, k, b, t: t & 1),
    ],
    "shift": [
        ("int32?", lambda x, f, k, b, t: x << x), ("int16", lambda x, f, k, b, t: x << k),
        ("int16", lambda x, f, k, b, t: k >> x), ("int32?", lambda x, f, k, b, t: x >> 1),
        ("int16", lambda x, f, k, b, t: k >> 1),
    ],
    "not": [
        ("bool?", lambda x, f, k, b, t: ~t), ("int32?", lambda x, f, k, b, t: ~x),
        ("bool?", lambda x, f, k, b, t: ops.logical_not(x)), ("bool", lambda x, f, k, b, t: ~b),
    ],
    "reduce_sum_prod_max_min": [
        ("int32?", lambda x, f, k, b, t: ops.sum(x)), ("float32?", lambda x, f, k, b, t: ops.prod(f)),
        ("int32?", lambda x, f, k, b, t: ops.max(x[:2])), ("int16", lambda x, f, k, b, t: ops.sum(k)),
        ("float32?", lambda x, f, k, b, t: ops.min(f[:3], axis=0, keepdims=True)),
        ("bool?", lambda x, f, k, b, t: ops.sum(t)), ("bool", lambda x, f, k, b, t: ops.prod(b)),
        ("bool?", lambda x, f, k, b, t: ops.max(t[:2])), ("bool?", lambda x, f, k, b, t: ops.prod(t[:2])),
    ],
    "reduce_any_all": [
        ("bool", lambda x, f, k, b, t: ops.any(t)), ("bool", lambda x, f, k, b, t: ops.all(t[:2])),
        ("bool", lambda x, f, k, b, t: ops.any(x)), ("bool", lambda x, f, k, b, t: ops.all(b)),
    ],
    "argmax_argmin": [
        ("int32", lambda x, f, k, b, t: ops.argmax(x[:3])), ("int32", lambda x, f, k, b, t: ops.argmin(f[:3])),
        ("int32", lambda x, f, k, b, t: ops.argmax(k[:3], axis=0, keepdims=True)),
        ("int32", lambda x, f, k, b, t: ops.count_nonzero(x)),
    ],
    "is_finite": [
        ("bool", lambda x, f, k, b, t: ops.is_finite(f)), ("bool", lambda x, f, k, b, t: ops.is_nan(x)),
        ("bool", lambda x, f, k, b, t: ops.is_inf(f)),
    ],
    "cumsum_cumprod": [
        ("int32?", lambda x, f, k, b, t: ops.cumsum(x)), ("float32?", lambda x, f, k, b, t: ops.cumprod(f)),
        ("int16", lambda x, f, k, b, t: ops.cumsum(k)),
    ],
    "top_k_sort": [
        ("int32?", lambda x, f, k, b, t: ops.top_k(x, 2)[0]), ("int32", lambda x, f, k, b, t: ops.top_k(x, 2)[1]),
        ("float32?", lambda x, f, k, b, t: ops.sort(f)), ("int32", lambda x, f, k, b, t: ops.argsort(f)),
        ("int16", lambda x, f, k, b, t: ops.sort(k)), ("bool?", lambda x, f, k, b, t: ops.sort(t)),
    ],
    "convert": [
        ("int8", lambda x, f, k, b, t: x.cast(D.int8)), ("int32?", lambda x, f, k, b, t: x.cast(D.int32)),
        ("float32?", lambda x, f, k, b, t: ops.cast(f, D.float32)), ("int32", lambda x, f, k, b, t: k.cast(D.int32)),
        ("float64", lambda x, f, k, b, t: ops.cast(f, "float64")),
    ],
    "ifelse_select": [
        ("int32?", lambda x, f, k, b, t: ops.where(b, x, x)), ("int16", lambda x, f, k, b, t: ops.where(t, x, k)),
        ("float32?", lambda x, f, k, b, t: ops.select(b, f, k)), ("float32?", lambda x, f, k, b, t: ops.where(b, 1, f)),
        ("bool", lambda x, f, k, b, t: ops.where(b, True, t)), ("bool?", lambda x, f, k, b, t: ops.where(b, t, t)),
    ],
    "concatenate": [
        ("float32?", lambda x, f, k, b, t: ops.concat([x, f])), ("int16", lambda x, f, k, b, t: ops.concat([x, k])),
        ("int32?", lambda x, f, k, b, t: ops.stack([x, x])), ("int16", lambda x, f, k, b, t: ops.stack([k, x])),
        ("int32?", lambda x, f, k, b, t: ops.vec(x, x)),
    ],
    "clamp": [
        ("int32?", lambda x, f, k, b, t: ops.clip(x, 0, 5)), ("int16", lambda x, f, k, b, t: ops.clip(k, 0, 5)),
        ("int32?", lambda x, f, k, b, t: ops.clip(x, k, k)), ("int16", lambda x, f, k, b, t: ops.clip(k, x[0], None)),
        ("float32?", lambda x, f, k, b, t: ops.clip(f, 0, 1.5)), ("int16", lambda x, f, k, b, t: ops.clip(k, 0.5)),
        ("float32?", lambda x, f, k, b, t: ops.clip(f, k[0], x[0])),
    ],
    "shape_ops": [
        ("int32?", lambda x, f, k, b, t: x.reshape(-1, 1)), ("float32?", lambda x, f, k, b, t: f[None].T),
        ("int32?", lambda x, f, k, b, t: x[1:]), ("int32?", lambda x, f, k, b, t: x[k.cast(D.int64)]),
        ("int32?", lambda x, f, k, b, t: ops.pad(x, [1, 1])), ("bool?", lambda x, f, k, b, t: t[::-1]),
        ("int32?", lambda x, f, k, b, t: ops.broadcast_to(x, (2, *x.shape))),
        ("float32?", lambda x, f, k, b, t: ops.tile(f, (2,))), ("int32?", lambda x, f, k, b, t: ops.split(x, 2)[0]),
        ("int32?", lambda x, f, k, b, t: ops.gather(x, np.array([0, 1]))), ("int32?", lambda x, f, k, b, t: x[b]),
        ("int32?", lambda x, f, k, b, t: ops.squeeze(ops.unsqueeze(x, 0), 0)),
        ("int32?", lambda x, f, k, b, t: ops.into_vec(x[0])), ("int16", lambda x, f, k, b, t: k[1:]),
        ("float32?", lambda x, f, k, b, t: ops.repeat_interleave(f, 2)),
        ("int32?", lambda x, f, k, b, t: ops.scatter(x[None], x[0][None, None], np.array([[0]]))),
    ],
    "fill_iota": [
        ("int32", lambda x, f, k, b, t: ops.full(x.shape, 3)), ("float32", lambda x, f, k, b, t: ops.full(3, 0.5)),
        ("float64", lambda x, f, k, b, t: ops.full(3, 1, D.float64)), ("float32", lambda x, f, k, b, t: ops.zeros(3)),
        ("int64", lambda x, f, k, b, t: ops.range(0, 5)), ("int16", lambda x, f, k, b, t: ops.range(5, dtype=D.int16)),
    ],
    "mean": [
        ("float32?", lambda x, f, k, b, t: ops.mean(k)), ("float32?", lambda x, f, k, b, t: ops.mean(x)),
        ("float32?", lambda x, f, k, b, t: ops.mean(f)), ("float64", lambda x, f, k, b, t: ops.mean(f.cast(D.float64))),
        ("float32?", lambda x, f, k, b, t: ops.mean(b[:2])), ("float32?", lambda x, f, k, b, t: ops.var(k)),
    ],
    "products": [
        ("int32?", lambda x, f, k, b, t: ops.matmul(x[None], x[:, None])),
        ("int16", lambda x, f, k, b, t: ops.matmul(k[None], x[:, None])),
        ("float32?", lambda x, f, k, b, t: ops.vecdot(f, k)), ("int32?", lambda x, f, k, b, t: ops.outer(x, x)),
        ("float32?", lambda x, f, k, b, t: ops.fma(x, f, k)), ("int16", lambda x, f, k, b, t: ops.fma(x, x, k)),
        ("int32?", lambda x, f, k, b, t: ops.einsum("i,i->", x, x)),
    ],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
@pytest.mark.parametrize("row", TRAVELS)
def test_ambiguity_travels_as_the_table_says(row: str) -> None:
    graph = graph_of(x="int32?", f="float32?", k="int16", b="bool", t="bool?")
    with graph:
        items = [(want, function(*graph.inputs)) for want, function in TRAVELS[row]]
    assert [shown(s) for _, s in items] == [want for want, _ in items]
    graph.output(**{f"out{i}": s for i, (_, s) in enumerate(items)})
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    arrays = [
        np.array([3, -1, 5, 2], np.int32), np.array([0.5, 2, 1, 4], np.float32), np.array([1, 2, 0, 3], np.int16),
        np.array([True, False, True, True]), np.array([False, True, True, False]),
    ]  # fmt: skip
    results = gc.InferenceSession().load(graph)(*arrays)
    assert [r.dtype for r in results] == [np.dtype(s.dtype.numpy) for _, s in items]


def test_places_of_ambiguous_integers_are_known() -> None:
    graph = graph_of(k="int8")
    with graph:
        x = graph.constant(np.arange(300), ambiguous=True)
        values, top = op.TopK(x, np.array([1]))
        results = [values, top, *op.Unique(x, outputs=4)]
        largest = top + graph["k"] * 0
    assert [shown(s) for s in results] == ["int64?", "int64", "int64?", "int64", "int64", "int64"]
    graph.output(largest)
    pooled, where = op.MaxPool(graph_of(f="float32?")["f"][None, None], kernel_shape=[3], outputs=2)
    assert [shown(pooled), shown(where)] == ["float32?", "int64"]
    assert gc.InferenceSession().load(graph)(np.zeros(1, np.int8))[0].tolist() == [299]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: op.OneHot(i, np.array(3), x[:2]),
        lambda x, i: ops.one_hot(i, 3, on_value=x[0], off_value=x[1]),
        lambda x, i: op.TensorScatter(x[None, None], x[None, None], i[:1]),
        lambda x, i: op.ReduceL1(x, i[:1]),
        lambda x, i: op.ReduceSumSquare(x, i[:1]),
        lambda x, i: op.SequenceAt(op.SequenceConstruct(x, x), i[0]),
        lambda x, i: ops.list_get(ops.list_append(ops.list_of([x]), x), i[0]),
        lambda x, i: op.ConcatFromSequence(op.SequenceErase(op.SplitToSequence(x, np.array(1)), i[0]), axis=0),
        lambda x, i: op.OptionalGetElement(op.Optional(x)),
    ],
)
def test_places_and_sizes_do_not_settle_what_is_ambiguous(function: Callable[..., Any]) -> None:
    graph = graph_of(x="int32?", k="int64", i="int64")
    x, k, i = graph.inputs
    assert shown(function(x, i)) == "int32?"
    assert shown(function(k, i)) == "int64"


def test_a_list_with_a_known_tensor_is_known() -> None:
    graph = graph_of(x="int32?", k="int32", i="int64")
    x, k, i = graph.inputs
    for listed in (op.SequenceConstruct(x, k), op.SequenceInsert(op.SequenceConstruct(x, x), k)):
        assert shown(op.SequenceAt(listed, i[0])) == "int32"


def test_bits_read_as_another_dtype_are_known() -> None:
    graph = graph_of(x="int32?")
    (result,) = graph.op("BitCast", [graph["x"]], {"to": D.float32}, [TensorType(D.float32, ["n"])])
    assert shown(result) == "float32"


def test_branches_are_known_unless_said_otherwise() -> None:
    graph = graph_of(t="bool? scalar", x="int32?")
    t, x = graph.inputs
    branches = []
    for value in (x + 1, x * 2):
        body = Graph("branch", promotion="anvil")
        body.scope.outer = graph
        body.output(body.build.capture(value))  # type: ignore[arg-type]
        branches.append(body)
    attributes = {"then_branch": branches[0], "else_branch": branches[1]}
    (result,) = graph.op("If", [t], attributes, [TensorType(D.int32, ["n"])])
    assert shown(result) == "int32"
    (guess,) = graph.op("If", [t], attributes, [TensorType(D.int32, ["n"], ambiguous=True)])
    assert shown(guess) == "int32?"


# From end to end


def test_jit_computes_the_example_of_the_publication() -> None:
    seen: list[Symbol] = []

    @gc.jit(promotion="anvil")
    def f(x: Symbol, y: Symbol) -> Symbol:
        z = x + 1
        seen.append(z)
        return z * y

    got = f(np.array(True), np.array(2, np.int16))
    assert got.dtype == np.int16
    assert got.item() == 4
    assert shown(seen[0]) == "int32?"


def test_jit_traces_python_numbers_as_ambiguous() -> None:
    seen: list[list[str]] = []

    @gc.jit(promotion="anvil")
    def f(x: Symbol, *rest: Symbol) -> list[Symbol]:
        seen.append([shown(s) for s in rest])
        return [x + value for value in rest]

    got = f(np.array([1, 2], np.int8), 3, 2.5, True)
    assert [g.tolist() for g in got] == [[4, 5], [3.5, 4.5], [2, 3]]
    assert [g.dtype.name for g in got] == ["int8", "float32", "int8"]
    again = f(np.array([1, 2], np.int8), 5, -1.0, False)
    assert [g.tolist() for g in again] == [[6, 7], [0, 1], [1, 2]]
    assert seen == [["int32?", "float32?", "bool?"]], "traced once"


def test_jit_refuses_a_python_number_that_its_guess_cannot_hold() -> None:
    double = gc.jit(lambda x: x + x, promotion="anvil")
    assert double(3).tolist() == 6
    for value in (2**40, -(2**31) - 1, 1e39):
        with pytest.raises(
            DTypeError, match=r"jit: .* cannot be held in (int32|float32), the dtype of such a Python"
        ) as e:
            double(value)
        assert "NumPy array" in e.value.help


def test_ambiguous_outputs_are_of_their_default_dtype() -> None:
    graph = graph_of(x="bool", y="int32?")
    x, y = graph.inputs
    graph.output(z=x + 1, w=y, m=ops.mean(y))
    assert {name: str(t) for name, t in graph.output_types.items()} == {
        "z": "int32[n]", "w": "int32[n]", "m": "float32[]",
    }  # fmt: skip
    model = gc.InferenceSession().load(graph)
    assert "?" not in str(model.outputs) + str(model.inputs)
    z, _, m = model(np.array([True, False]), np.array([5, 6], np.int32))
    assert (z.dtype, z.tolist(), m.item()) == (np.int32, [2, 1], 5.5)


def test_text_and_errors_show_the_question_mark() -> None:
    x, f = symbols("int32?", "float32?")
    assert str(x.type) == "int32?[n]"
    assert "int32?[n]" in str((x + x).graph)
    with pytest.raises(DTypeError) as raised:
        f & x
    assert "lhs  x1   float32?[n]" in str(raised.value)
    assert "rhs  x0   int32?[n]" in str(raised.value)


def test_system_survives_the_exported_file_and_a_copy(tmp_path: Any) -> None:
    graph = graph_of(x="bool", y="int16")
    x, y = graph.inputs
    graph.output(z=(x + 1) * y)
    graph.export(tmp_path / "z.onnx")
    again = Graph.load(tmp_path / "z.onnx")
    assert again.promotion is system("anvil")
    assert shown(again["x"] + 1) == "int32?"
    copy = graph.copy()
    assert copy.promotion is system("anvil")
    assert shown(copy["x"] + 1) == "int32?"


def test_symbols_of_two_systems_never_mix() -> None:
    (x,) = symbols("int32?")
    other = Graph("plain", [TensorType(D.int32, ["n"])])[0]
    calls: list[Callable[[], Symbol]] = [
        lambda: x + other, lambda: ops.where(other, x, x), lambda: ops.concat([other, x])
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(GraphError, match="Symbols of two graphs never mix"):
            call()


def test_ambiguous_constant_in_a_graph_of_another_system_is_refused() -> None:
    with pytest.raises(GraphError, match="promotion system array_api has no ambiguous dtypes"):
        Graph("g", promotion="array_api").scalar(1, ambiguous=True)


# What a deferred dtype costs


def casts(graph: Graph, target: Any = "onnx") -> list[str]:
    """The dtypes that an exported model casts to."""
    nodes = graph.to_onnx(target=target).graph.node
    return [DType.of(node.attribute[0].i).name for node in nodes if node.op_type == "Cast"]


@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_guess_that_ends_narrower_is_one_cast(target: str) -> None:
    graph = graph_of(x="bool", y="int16")
    x, y = graph.inputs
    graph.output((x + 1) * y)
    assert casts(graph, target) == ["int16"]


def test_casts_are_no_more_than_values_that_have_to_be_cast() -> None:
    chains: list[tuple[Callable[..., Symbol], list[str]]] = [
        (lambda x, y, g: ((x + 1) * 3 - x) * y, ["int16"]),
        (lambda x, y, g: (-(x + 1) ^ 5) + y, ["int16"]),
        (lambda x, y, g: ~((x * 7) & (x + 1)) | y, ["int16"]),
        (lambda x, y, g: (g + 1) * y, ["int16"]),
        (lambda x, y, g: (g + 1) * g * y, ["int16"]),
        (lambda x, y, g: ((x + 1) * g) * y, ["int32", "int16"]),
        (lambda x, y, g: (x + 1).cast(D.int32) * y, ["int16"]),
        (lambda x, y, g: (x + 1).cast(D.int64) * y, ["int32", "int64", "int64"]),
        (lambda x, y, g: ops.maximum(x + 1, 3) * y, ["int32", "int16"]),
        (lambda x, y, g: (x + 1) * y.cast(D.float64), ["int32", "float64", "float64"]),
    ]  # fmt: skip
    for number, (function, want) in enumerate(chains):
        graph = graph_of(x="bool", y="int16", g="int32?")
        graph.output(function(*graph.inputs))
        assert sorted(casts(graph)) == sorted(want), number


def test_value_that_others_use_too_is_computed_as_it_is() -> None:
    graph = graph_of(x="bool", y="int16", w="int8")
    x, y, w = graph.inputs
    z = x + 1
    graph.output(z * y, z * w, z)
    assert casts(graph) == ["int32", "int16", "int8"]
    arrays = np.array([True, False]), np.array([300, 2], np.int16), np.array([100, 3], np.int8)
    got = gc.InferenceSession().load(graph)(*arrays)
    assert [g.tolist() for g in got] == [[600, 2], [-56, 3], [2, 1]]


OPERATORS: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "&": lambda a, b: a & b,
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "neg": lambda a, b: -a, "~": lambda a, b: ~a,
    "max": lambda a, b: ops.maximum(a, b) if isinstance(a, Symbol) or isinstance(b, Symbol) else max(a, b),
}  # fmt: skip


@settings(max_examples=drawn(40))
@given(
    source=st.sampled_from(["bool", "int32?", "int64?", "uint32?"]),
    expected=st.sampled_from(["int8", "uint8", "int16", "uint16", "int32"]),
    steps=st.lists(st.tuples(st.sampled_from(list(OPERATORS)), st.integers(0, 5), st.integers(-9, 99)), max_size=12),
)
def test_narrowed_values_are_those_of_the_wide_computation(
    source: str, expected: str, steps: list[tuple[str, int, int]]
) -> None:
    graph = graph_of(x=source, y=expected)
    x, y = graph.inputs
    array = reference.samples(x.dtype, 8, 3)
    pool: list[Symbol] = [x + 1]
    wide = pool[0].dtype
    numbers = [reference.wrapped(array.astype(object) + 1, wide).astype(object)]
    for name, at, literal in steps:
        at %= len(pool)
        other, value = (literal, literal) if literal % 2 else (pool[-1], numbers[-1])
        pool.append(OPERATORS[name](pool[at], other))
        left, right = numbers[at], value
        result = np.maximum(left, right) if name == "max" else OPERATORS[name](left, right)
        numbers.append(reference.wrapped(result, wide).astype(object))
    end = pool[-1]
    assert end.ambiguous
    assert end.dtype is wide
    graph.output(end + y)
    assert shown(graph.outputs[0]) == expected
    other_array = reference.samples(y.dtype, 8, 4)
    (got,) = gc.InferenceSession().load(graph)(array, other_array)
    want = reference.wrapped(numbers[-1] + other_array.astype(object), y.dtype)
    assert np.array_equal(got, want)


def test_truth_of_an_ambiguous_scalar_is_known() -> None:
    graph = Graph("g", {"x": TensorType(D.bool, [], ambiguous=True)}, promotion="anvil")
    (x,) = graph.inputs
    results = [ops.any(x), ops.all(x), ops.any(ops.unsqueeze(x, 0))]
    assert x.ambiguous
    assert not any(m.ambiguous for m in results)
    graph.output(*results)
    assert [bool(v) for v in gc.InferenceSession().load(graph)(np.array(True))] == [True] * 3


def test_branches_are_ambiguous_only_where_both_are() -> None:
    graph = Graph(
        "g",
        {
            "c": TensorType(D.bool, []),
            "a": TensorType(D.int32, ["n"], ambiguous=True),
            "b": TensorType(D.int32, ["n"], ambiguous=True),
            "k": TensorType(D.int16, ["n"]),
        },
        promotion="anvil",
    )
    c, a, b, k = graph.inputs
    both = ops.cond(c, lambda: a + 1, lambda: b)
    one = ops.cond(c, lambda: a + 1, lambda: k)
    assert (both.dtype, both.ambiguous) == (D.int32, True)
    assert (one.dtype, one.ambiguous) == (D.int16, False)
    graph.output(both, one, both * k)
    assert graph["c"].graph.output_types[one.name].dtype is D.int16  # type: ignore[union-attr]
    values = [np.array([3, -4], np.int32), np.array([5, 6], np.int32), np.array([7, 8], np.int16)]
    results = gc.InferenceSession().load(graph)(np.array(True), *values)
    assert [m.tolist() for m in results] == [[4, -3], [4, -3], [28, -24]]
    assert [m.dtype for m in results] == [np.int32, np.int16, np.int16]


def test_state_of_a_loop_is_as_ambiguous_as_its_body_leaves_it() -> None:
    graph = Graph("g", {"n": TensorType(D.int32, []), "x": TensorType(D.int32, [], ambiguous=True)}, promotion="anvil")
    n, x = graph.inputs
    guessed = ops.while_loop(lambda i: i < 5, lambda i: i + 2, x)
    result = ops.while_loop(lambda i: i < 5, lambda i: i + n, x)
    last, sums = ops.scan(lambda total, y: (total + y, total + y), x, ops.stack([x, x]))
    assert guessed.ambiguous
    assert not result.ambiguous
    assert last.ambiguous
    assert sums.ambiguous
    graph.output(guessed, result, last, sums)
    results = gc.InferenceSession().load(graph)(np.array(3, np.int32), np.array(0, np.int32))
    assert [m.tolist() for m in results] == [6, 6, 0, [0, 0]]
