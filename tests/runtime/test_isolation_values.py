"""Values on their way to a worker and back: they come as they went, and bytes that mean nothing are refused."""

from __future__ import annotations

import contextlib
import itertools
import math
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from graphcore import DType, OptionalType, SequenceType, TensorType
from graphcore.errors import ModelError, ResourceLimitError, RunError
from graphcore.runtime.isolation.codec import (
    ValueReader,
    ValueWriter,
    types_from_json,
    types_to_json,
)
from graphcore.runtime.isolation.failures import WorkerLimits, describe_error, died, error_of
from graphcore.runtime.isolation.framing import Malformed, from_json, to_json
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import OpaqueType, Shape, Type

PLAIN = [np.dtype(kind) for kind in ("?", "i1", "i8", "u2", "f2", "f4", "f8", "c8")]
NARROW = [np.dtype(kind) for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint2)]
LIMITS = WorkerLimits(1 << 30, 5.0, 5.0)


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    if draw(st.booleans()):
        return draw(arrays.arrays(draw(st.sampled_from(PLAIN)), shape))
    if draw(st.booleans()):
        return draw(arrays.arrays(np.dtype("u1"), shape)).astype(draw(st.sampled_from(NARROW)))
    array = np.empty(shape, object)
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    array.reshape(-1)[:] = draw(st.lists(text, min_size=math.prod(shape), max_size=math.prod(shape)))
    return array


VALUES = st.recursive(
    tensors() | st.none() | st.dictionaries(st.text("ab", max_size=3), st.floats(allow_nan=False), max_size=3),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        is_alike = isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape
        return is_alike and (a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes())
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@given(st.lists(VALUES, max_size=4), st.booleans())
def test_values_come_as_they_went(values: list[Any], is_copied: bool) -> None:
    layout = ValueWriter(values)
    block = np.zeros(layout.size + 64, np.uint8)
    layout.write(block)
    assert same(values, ValueReader(layout.head, block, is_copied).values(len(values)))


@pytest.mark.parametrize("is_copied", [False, True])
def test_bools_have_the_bytes_0_and_1(is_copied: bool) -> None:
    head = ValueWriter([np.zeros(256, bool)]).head
    (array,) = ValueReader(head, np.arange(256, dtype=np.uint8), is_copied).values(1)
    assert array.dtype == bool
    assert array.view(np.uint8).tolist() == [0] + [1] * 255


@given(st.binary(max_size=60), st.integers(0, 3))
def test_bytes_that_mean_nothing_are_refused(head: bytes, count: int) -> None:
    with contextlib.suppress(Malformed):
        ValueReader(head, np.zeros(256, np.uint8), False).values(count)


MANY = 50_000
EMPTY = np.full(MANY, "", object)
ASKING: dict[str, tuple[list[Any], int]] = {
    "strings": ([EMPTY], MANY * 8),
    "long strings": ([np.full(MANY, "größer", object)], MANY * 80),
    "a longer string": ([np.full((), (1 << 20) * "größer", object)], 16 << 20),
    "a map": ([dict(enumerate(range(MANY)))], MANY * 100),
    "a list": ([[None] * MANY], MANY * 100),
    "bools": ([[np.ones(1 << 20, bool)] * 4], 3 << 20),
}
"""Values, and fewer bytes than they take."""


@pytest.mark.parametrize(("values", "memory"), ASKING.values(), ids=ASKING)
def test_values_that_take_more_memory_than_allowed_are_refused_before(values: list[Any], memory: int) -> None:
    layout = ValueWriter(values)
    block = np.zeros(layout.size, np.uint8)
    layout.write(block)
    with pytest.raises(Malformed, match="more memory"):
        ValueReader(layout.head, block, False, memory).values(1)
    (read_,) = ValueReader(layout.head, block, False, 40 * memory).values(1)
    assert same(read_, values[0])
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            ValueReader(layout.head, block, False, memory).values(1)
        assert tracemalloc.get_traced_memory()[1] < 2 * memory
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("values", [values for values, _ in ASKING.values()], ids=ASKING)
@pytest.mark.parametrize("looks", [1, 2, 4])
def test_reading_of_values_ends_with_its_time(values: list[Any], looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = ValueWriter(values)
    block = np.zeros(layout.size, np.uint8)
    layout.write(block)
    monkeypatch.setattr("time.monotonic", itertools.count().__next__)
    with pytest.raises(TimeoutError):
        ValueReader(layout.head, block, False, deadline=looks).values(1)


def test_strings_in_place_of_the_bytes_of_strings_are_refused() -> None:
    with pytest.raises(Malformed, match="without bytes"):
        ValueReader(
            b"\x01\x07\x00" + bytes(8) + 5000 * (b"\x01\x07\x00" + bytes(8)), np.zeros(64, np.uint8), False
        ).values(1)


@given(st.lists(VALUES, min_size=1, max_size=3), st.data())
def test_values_with_a_byte_changed_are_refused_or_read(values: list[Any], data: st.DataObject) -> None:
    layout = ValueWriter(values)
    block = np.zeros(layout.size, np.uint8)
    layout.write(block)
    head = bytearray(layout.head)
    head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Malformed):
        ValueReader(bytes(head), block, False).values(len(values))


TYPES: dict[str, Type] = {
    "static": TensorType(DType.float32, [2, 3]),
    "named": TensorType(DType.bfloat16, ["batch", Dim("n") * 2 + 1, Dim.dynamic()]),
    "bounded": TensorType(DType.int4, [Dim("batch", min=1)]),
    "unranked": TensorType(DType.string, Shape.unknown()),
    "wide": TensorType(DType.int(100), []),
    "list": SequenceType(TensorType(DType.float32, ["k"])),
    "optional": OptionalType(SequenceType(TensorType(DType.int8, Shape.unknown()))),
    "opaque": OpaqueType("map(string, float)", b"\x01\x02"),
}


def test_types_come_as_they_went() -> None:
    assert types_from_json(from_json(to_json(types_to_json(TYPES)))) == TYPES


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        [["x"]],
        [["x", ["tensor", "float33", [], False]]],
        [["x", ["tensor", "int99999999999999", [], False]]],
        [["x", ["tensor", "float32", [-1], False]]],
        [["x", ["tensor", "float32", ["a" * 2000], False]]],
        [["x" * 2000, ["tensor", "float32", [], False]]],
        [["x", ["tensor", "float32", [1] * 65, False]]],
        [["x", ["tensor", "float32", ["2 * (a + b)"], False]]],
        [["x", ["tensor", "float32", [" % ".join(f"(a{i} + b{i})" for i in range(16))], False]]],
        [["x", ["opaque", "map", "zz"]]],
        [["x", ["sequence"]]],
    ],
)
def test_types_that_make_no_sense_are_refused(value: Any) -> None:
    with pytest.raises(Malformed):
        types_from_json(value)


@pytest.mark.parametrize("looks", [1, 2, 5, 30])
def test_reading_of_types_ends_with_its_time(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", itertools.count().__next__)
    with pytest.raises(TimeoutError):
        types_from_json([["x", ["optional", ["tensor", "float32", [f"n{i}" for i in range(64)], False]]]], looks)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 10_000])
def test_json_that_makes_no_sense_is_refused(content: bytes) -> None:
    with pytest.raises(Malformed):
        from_json(content)


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        {},
        {"kind": "SystemExit", "summary": "", "help": "", "text": ""},
        {"kind": "RunError", "summary": 3, "help": "", "text": ""},
        {"kind": "RunError", "summary": "", "help": "", "text": "x" * 100_000},
    ],
)
def test_errors_that_make_no_sense_are_refused(message: Any) -> None:
    with pytest.raises(Malformed):
        error_of(message, "m", "run", LIMITS)


def test_error_says_what_it_said_in_the_worker_with_the_line_of_the_call() -> None:
    error = ModelError("load: \x1b[31mno", operands={"x": "float32[2]"}, help="do this")
    result = error_of(describe_error(error, "load", "here.py:3"), "m", "load", LIMITS)
    assert type(result) is ModelError
    assert result.help == "do this"
    assert str(result).split("\n")[:3] == ["load: \\x1b[31mno", "    x  float32[2]", "  help: do this"]
    assert "test_isolation_values.py" in str(result)


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (-11, "", RunError),
        (-6, "terminate called after throwing an instance of 'std::bad_alloc'", ResourceLimitError),
        (-24, "", ResourceLimitError),  # SIGXCPU
        (1, "Traceback", RunError),
    ],
)
def test_death_is_an_error_of_its_kind(status: int, words: str, kind: type[Exception]) -> None:
    assert type(died(status, words, "m", "run", LIMITS)) is kind
