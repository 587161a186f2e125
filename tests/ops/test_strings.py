"""Strings: `ops.string_*` beside Python's own, and the ops on tensors that take strings too."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.arrays.casting import round_tf32
from graphcore.errors import DTypeError, GraphcoreError, ModelError, PromotionError, RunError, ShapeError
from tests.sampling import drawn
from tests.support.every.case import ALL, Array

pytestmark = pytest.mark.releases

D = DType
free: Any = ops
"""The ops without their types, for what they must refuse."""
WORDS = np.array([["ab c", ""], ["Äß É", "1.5"], ["x,y,,z", " ü  v "]], object)
TEXTS = st.lists(st.text("aB é,\tÄ日z", max_size=6), min_size=1, max_size=5)


def texts(values: Any) -> Array:
    return np.array(values, object)


def run(build: Callable[..., Any], *arrays: Array) -> list[Array]:
    """Return the results of a function of Symbols for arrays whose sizes are known at run time only."""
    types = {f"x{i}": TensorType(DType.of(a.dtype), ["?"] * a.ndim) for i, a in enumerate(arrays)}
    graph = Graph("strings", types)
    with graph:
        result = build(*graph.inputs)
    graph.output(*result) if isinstance(result, tuple) else graph.output(result)
    onnx.checker.check_model(graph.to_onnx(target="onnx"), full_check=True)
    return [np.asarray(result) for result in gc.InferenceSession().load(graph)(*arrays)]


def one(build: Callable[..., Any], *arrays: Array) -> Array:
    (result,) = run(build, *arrays)
    return result


def each(function: Callable[[str], Any], x: Array) -> list[Any]:
    return [function(text) for text in x.ravel().tolist()]


# Put together and taken apart


@settings(max_examples=drawn(30), deadline=None)
@given(TEXTS, st.text("aé,", max_size=2))
def test_strings_are_put_together_as_in_python(values: list[str], more: str) -> None:
    x = texts(values)
    joined, both, alone = run(
        lambda x: (ops.string_join(["<", x, x], more), ops.string_concat(x[:, None], x), ops.string_concat(more, x)), x
    )
    assert joined.tolist() == [more.join(["<", v, v]) for v in values]
    assert both.tolist() == [[v + w for w in values] for v in values]
    assert alone.tolist() == [more + v for v in values]


@settings(max_examples=drawn(40), deadline=None)
@given(TEXTS, st.sampled_from([",", "é", "aB", " "]), st.one_of(st.none(), st.integers(0, 3)))
def test_strings_are_cut_at_delimiters_as_in_python(values: list[str], delimiter: str, most: int | None) -> None:
    parts, counts = run(lambda x: ops.string_split(x, delimiter, most), texts(values))
    want = [value.split(delimiter, -1 if most is None else most) for value in values]
    assert counts.tolist() == [len(parts) for parts in want]
    width = max(map(len, want))
    assert parts.tolist() == [[*row, *[""] * (width - len(row))] for row in want]


@settings(max_examples=drawn(40), deadline=None)
@given(TEXTS)
def test_strings_are_cut_at_runs_of_spaces(values: list[str]) -> None:
    parts, counts = run(lambda x: ops.string_split(x), texts(values))
    want = [[part for part in value.split(" ") if part] for value in values]
    assert counts.tolist() == [len(row) for row in want]
    assert [[p for p in row if p] for row in parts.tolist()] == want


def test_strings_of_any_shape_are_cut() -> None:
    for x in (texts("a,b"), WORDS, WORDS[:0], texts(["", ""]), texts([[]])):
        parts, counts = run(lambda x: ops.string_split(x, ","), x)
        want = each(lambda text: text.split(","), x)
        assert parts.shape == (*x.shape, max(map(len, want), default=0))
        assert counts.shape == x.shape
        assert counts.ravel().tolist() == [len(row) for row in want]


def test_models_cut_strings_as_onnx_has_it() -> None:
    node = helper.make_node("StringSplit", ["x"], ["parts", "counts"], delimiter=",")
    infos = [helper.make_tensor_value_info("x", 8, ["n"])]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("parts", "counts")]
    proto = helper.make_model(
        helper.make_graph([node], "cut", infos, outputs), opset_imports=[helper.make_opsetid("", 26)]
    )
    parts, counts = gc.InferenceSession().load(proto)(texts(["", "a,b"]))
    assert parts.tolist() == [["", ""], ["a", "b"]]
    assert counts.tolist() == [1, 2]


# Letters and patterns


@settings(max_examples=drawn(30), deadline=None)
@given(TEXTS)
def test_letters_become_small_and_capital(values: list[str]) -> None:
    small, capital = run(lambda x: (ops.string_lower(x), ops.string_upper(x)), texts(values))
    assert small.tolist() == [value.lower() for value in values]
    assert capital.tolist() == [value.upper() for value in values]


def test_letters_of_any_shape_become_others() -> None:
    for x in (texts("aÜ"), WORDS, WORDS[:0], WORDS[:, :0], texts([[["q"]]])):
        small, capital = run(lambda x: (ops.string_lower(x), ops.string_upper(x)), x)
        assert small.shape == capital.shape == x.shape
        assert small.ravel().tolist() == each(str.lower, x)
        assert capital.ravel().tolist() == each(lambda text: text.replace("ß", "\0").upper().replace("\0", "ß"), x)


def test_words_are_left_out() -> None:
    x = texts(["the", "Cat", "THE", "ÄRA", "dog"])
    some, more, same, none = run(
        lambda x: (
            ops.string_remove(x, ["the", "dog"]),
            ops.string_remove(x, ["tHe", "ära"], case_sensitive=False),
            ops.string_remove(x, []),
            ops.string_remove(x, x_words),
        ),
        x,
    )
    assert some.tolist() == ["Cat", "THE", "ÄRA"]
    assert more.tolist() == ["Cat", "dog"]
    assert same.tolist() == x.tolist()
    assert none.shape == (0,)


x_words = ["the", "Cat", "THE", "ÄRA", "dog"]


@pytest.mark.parametrize("pattern", [r"[a-z ,]*", r"\d+\.\d", "", r"(ab|x).+", r"(?i)äß .", r".{4}", r"\s?ü\s+v\s"])
def test_patterns_match_whole_strings(pattern: str) -> None:
    result = one(lambda x: ops.string_matches(x, pattern), WORDS)
    assert result.ravel().tolist() == each(lambda text: re.fullmatch(pattern, text) is not None, WORDS)
    assert one(lambda x: ops.string_matches(x, pattern), WORDS[:0]).shape == (0, 2)


# Numbers


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_numbers_become_strings_when_of_any_dtype(dtype: DType) -> None:
    if dtype is D.bool:
        assert one(lambda x: ops.string_of(x), np.array([True, False])).tolist() == ["True", "False"]
        return
    if dtype.is_integer:
        values = [int(dtype.min), int(dtype.max), 0, 7]
        x = np.array(values, object).astype(np.int8 if dtype.bits == 4 else dtype.numpy).astype(dtype.numpy)
        want = [str(value) for value in values]
    else:
        x = np.array([0.0, -0.0, 1.0, 0.1, -2.5, 300.0, np.nan]).astype(np.float32).astype(dtype.numpy)
        x = round_tf32(x) if dtype is D.tensor_float32 else x
        want = [f"{float(value):.8g}" for value in x]
        want = ["NaN" if text == "nan" else text for text in want]
    graph = Graph("texts", {"x": TensorType(dtype, ["n"])})
    graph.output(ops.string_of(graph[0]))
    (result,) = gc.InferenceSession().load(graph)(x)
    assert result.tolist() == want


@settings(max_examples=drawn(40), deadline=None)
@given(st.lists(st.floats(width=64), min_size=1, max_size=6))
def test_floats_become_eight_digits(values: list[float]) -> None:
    result = one(lambda x: ops.string_of(x), np.array(values))
    names = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
    assert result.tolist() == [names.get(text, text) for text in (f"{value:.8g}" for value in values)]


@settings(max_examples=drawn(40), deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6))
def test_integers_become_strings_and_come_back(values: list[int]) -> None:
    text, back = run(lambda x: (ops.string_of(x), ops.string_parse(ops.string_of(x), D.int64)), np.array(values))
    assert text.tolist() == [str(value) for value in values]
    assert back.tolist() == values


@pytest.mark.parametrize("dtype", [d for d in ALL if d is not D.bool], ids=str)
def test_strings_are_read_as_numbers_of_any_dtype(dtype: DType) -> None:
    result = one(lambda x: ops.string_parse(x, dtype), texts([" 0", "+3", "7\t"]))
    assert result.dtype == dtype.numpy
    assert result.astype(np.float64).tolist() == [0, 3, 7]
    if dtype.is_integer:
        ends = one(lambda x: ops.string_parse(x, dtype), texts([str(int(dtype.min)), str(int(dtype.max))]))
        assert [int(value) for value in ends] == [int(dtype.min), int(dtype.max)]


@settings(max_examples=drawn(40), deadline=None)
@given(st.lists(st.floats(allow_subnormal=False), min_size=1, max_size=6))
def test_floats_written_in_full_are_read_exactly(values: list[float]) -> None:
    double, single = run(
        lambda x: (ops.string_parse(x, D.float64), ops.string_parse(x, D.float32)), texts([repr(v) for v in values])
    )
    assert np.array_equal(double, np.array(values), equal_nan=True)
    with np.errstate(over="ignore"):
        assert np.array_equal(single, np.array(values).astype(np.float32), equal_nan=True)


def test_floats_are_rounded_and_overflow_to_infinity() -> None:
    x = texts(["1e39", "-.5E1", "1.", "0.1", "InFinity", "-inf", "NaN"])
    result = one(lambda x: ops.string_parse(x, D.bfloat16), x)
    want = np.array([np.inf, -5, 1, 0.1, np.inf, -np.inf, np.nan]).astype(ml_dtypes.bfloat16)
    assert np.array_equal(result.astype(np.float32), want.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("1.5", D.int8), ("128", D.int8), ("-129", D.int8), ("-1", D.uint64), ("-1", D.uint8), ("1e3", D.int32),
        ("18446744073709551616", D.uint64), ("9223372036854775808", D.int64), ("8", D.int4), ("16", D.int(5)),
        ("abc", D.float32), ("", D.int8), ("", D.float64), ("1_0", D.float32), ("1,5", D.float64), ("0x10", D.float32),
        ("1e400", D.float64), ("1 2", D.int64), ("--1", D.int64), ("true", D.int8), (".", D.float32), ("e5", D.float32),
    ],
)  # fmt: skip
def test_what_is_not_a_such_number_is_an_error_of_the_run(text: str, dtype: DType) -> None:
    with pytest.raises(RunError):
        run(lambda x: ops.string_parse(x, dtype), texts(["1", text]))


def test_constants_are_written_and_read_when_the_graph_runs() -> None:
    result, read = run(
        lambda x: (ops.string_concat(ops.string_of(np.array([1, 2])), x), ops.string_parse(texts(["1", "2"]), D.int8)),
        texts(["a"]),
    )
    assert result.tolist() == ["1a", "2a"]
    assert read.tolist() == [1, 2]


def test_models_cast_constant_strings() -> None:
    text = numpy_helper.from_array(np.array(["1.5", "-2"], object), "text")
    node = helper.make_node("Cast", ["text"], ["y"], to=1)
    graph = helper.make_graph([node], "cast", [], [onnx.ValueInfoProto(name="y")], [text])
    (result,) = gc.InferenceSession().load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)]))()
    assert result.tolist() == [1.5, -2]


# The ops on tensors


def test_ops_that_move_elements_take_strings() -> None:
    x, i = WORDS, np.array([2, 0])
    cases: list[tuple[Callable[..., Symbol], Array]] = [
        (lambda x, i: ops.gather(x, i), x[i]),
        (lambda x, i: x[i], x[i]),
        (lambda x, i: ops.concat([x, x], 1), np.concatenate([x, x], 1)),
        (lambda x, i: ops.concat([x.reshape(-1), np.array(["q"], object)]), np.append(x, "q")),
        (lambda x, i: ops.stack([x, x]), np.stack([x, x])),
        (lambda x, i: x.reshape(-1), x.ravel()),
        (lambda x, i: x[::-1, :1], x[::-1, :1]),
        (lambda x, i: x.T, x.T),
        (lambda x, i: ops.tile(x, [2, 1]), np.tile(x, (2, 1))),
        (lambda x, i: free.where(x == "", "nothing", x), np.where(x == "", "nothing", x)),
        (lambda x, i: x[x == "1.5"], x[x == "1.5"]),
        (lambda x, i: x == "1.5", x == "1.5"),
        (lambda x, i: x != x[0, 0], x != x[0, 0]),
        (lambda x, i: ops.repeat_interleave(x, 2, 0), np.repeat(x, 2, 0)),
    ]
    for build, want in cases:
        result = one(build, x, i)
        assert result.shape == want.shape
        assert result.tolist() == want.tolist()


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
@pytest.mark.parametrize("ranked", [True, False])
def test_rows_of_strings_are_gathered_whole(ranked: bool, axis: int) -> None:
    x = np.arange(24).astype(str).astype(object).reshape(2, 3, 4)
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=axis)
    for i in (np.array([[1, 0], [-1, 1]]), np.array(-2), np.zeros((2, 0), np.int64), np.array([1], np.int32)):
        shapes = [[*map(str, "abc")], list(i.shape)] if ranked else [None, None]
        infos = [
            helper.make_tensor_value_info(name, DType.of(v.dtype).onnx, shape)
            for name, v, shape in zip("xi", (x, i), shapes, strict=True)
        ]
        graph = helper.make_graph([node], "gather", infos, [onnx.ValueInfoProto(name="y")])
        (result,) = gc.InferenceSession().load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)]))(
            x, i
        )
        want = np.take(x, i, axis)
        assert result.shape == want.shape
        assert result.tolist() == want.tolist()


def test_loops_and_branches_carry_strings() -> None:
    def build(x: Symbol) -> tuple[Symbol, ...]:
        longer = ops.while_loop(lambda s, n: n < 3, lambda s, n: (ops.string_concat(s, x), n + 1), (x, 0))[0]
        return longer, ops.cond(ops.any(x == "b"), lambda: x, lambda: ops.string_upper(x))

    longer, chosen = run(build, texts(["a", "ü"]))
    assert longer.tolist() == ["aaaa", "üüüü"]
    assert chosen.tolist() == ["A", "Ü"]


# Errors


X = Graph("refused", {"x": TensorType(D.string, ["n"]), "n": TensorType(D.int64, ["n"])})


@pytest.mark.parametrize(
    ("build", "kind", "text"),
    [
        (lambda x, n: ops.string_concat(x, n), DTypeError, "rhs must be strings, got int64[n]"),
        (lambda x, n: ops.string_concat(x, texts([["a", "b"], ["c", "d"]])[:, :0]), ShapeError, "do not broadcast"),
        (lambda x, n: free.string_join("ab", ","), ShapeError, "values must be a list of one or more strings"),
        (lambda x, n: ops.string_join([], ","), ShapeError, "values must be a list of one or more strings"),
        (lambda x, n: ops.string_split(n), DTypeError, "x must be strings, got int64[n]"),
        (lambda x, n: ops.string_split(x, ""), ShapeError, "delimiter must be a str of one or more characters, got ''"),
        (lambda x, n: ops.string_split(x, ",", -1), ShapeError, "maxsplit must be an int >= 0, got -1"),
        (lambda x, n: free.string_lower(3), DTypeError, "x must be strings, got int64[]"),
        (lambda x, n: ops.string_remove(x[None], ["a"]), ShapeError, "x must have rank 1, got 2"),
        (lambda x, n: ops.string_remove(x, "ab"), DTypeError, "words must be a list of strs"),
        (lambda x, n: free.string_matches(x, 3), DTypeError, "pattern must be a str, got 3"),
        (lambda x, n: ops.string_of(n.cast(D.int(100))), DTypeError, "more than 64 bits"),
        (lambda x, n: ops.string_parse(x, D.bool), DTypeError, "bool is neither"),
        (lambda x, n: ops.string_parse(x, D.string), DTypeError, "string is neither"),
        (lambda x, n: x + x, DTypeError, "add has no meaning for string"),
        (lambda x, n: x < x, DTypeError, "less has no meaning for string"),
        (lambda x, n: x == n, PromotionError, "string and int64 have no common dtype"),
        (lambda x, n: x.cast(D.int8), DTypeError, "string cannot be cast to int8"),
        (lambda x, n: n + "a", DTypeError, "rhs has unsupported type str"),
    ],
)
def test_what_is_not_a_string_is_refused(
    build: Callable[[Symbol, Symbol], Any], kind: type[GraphcoreError], text: str
) -> None:
    with X, pytest.raises(kind) as raised:
        build(*X.inputs)
    assert text in raised.value.summary
    assert raised.value.help


def test_errors_say_which_op_is_for_strings() -> None:
    x, n = X.inputs
    with pytest.raises(DTypeError, match=r"ops\.string_concat"):
        x + x
    with pytest.raises(DTypeError, match=r"ops\.string_of .*ops\.string_parse"):
        n.cast(D.string)


def test_patterns_that_are_none_are_an_error_of_loading(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError, match="Invalid regex pattern"):
        run(lambda x: ops.string_matches(x, "(a"), WORDS)
