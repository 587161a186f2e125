"""Bits of integers of every width against Python's integers: fields read and set, joined, turned around, counted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Buffer, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, ShapeError, SymbolError

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

D = DType
WIDTHS = (*range(1, 65), 65, 96, 100, 127, 128, 129, 200, 300)


def dtype_of(bits: int, signed: bool) -> DType:
    return D.int(bits) if signed else D.uint(bits)


def signed(code: int, dtype: DType) -> int:
    """Return the number of a dtype that has these bits."""
    return code - (1 << dtype.bits) if dtype.is_signed and code >> (dtype.bits - 1) else code


def samples(dtype: DType, seed: int) -> list[int]:
    """Return extreme and random bits."""
    draw = random.Random(seed)
    full = (1 << dtype.bits) - 1
    return [0, 1, full, full >> 1, *(draw.getrandbits(dtype.bits) >> draw.randrange(dtype.bits) for _ in range(6))]


def computed(
    function: Callable[..., Sequence[Symbol]], *operands: tuple[DType, Sequence[int]], promotion: str = "max"
) -> list[list[int]]:
    """Return the results of a function of Symbols on vectors, as Python integers."""
    types = {f"x{i}": TensorType(dtype, ["n"]) for i, (dtype, _) in enumerate(operands)}
    graph = Graph("bits", types, promotion=promotion)
    result = function(*graph.inputs)
    graph.output(*result)
    arrays = [np.array(v, object if d.bits > 64 else d.numpy) for d, v in operands]
    results = gc.InferenceSession().load(graph)(*arrays)
    return [_integers(symbol.dtype, array) for symbol, array in zip(result, results, strict=True)]


def _integers(dtype: DType, array: np.ndarray[Any, Any]) -> list[int]:
    if dtype.bits <= 64:
        return [int(v) for v in array]
    codes = [sum(int(digit) << (32 * i) for i, digit in enumerate(digits)) for digits in array]  # digits of 32 bits
    return [signed(code % (1 << dtype.bits), dtype) for code in codes]


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("start", range(0, len(WIDTHS), 12))
def test_bits_are_those_of_python_integers_for_every_width(start: int, is_signed: bool) -> None:
    for bits in WIDTHS[start : start + 12]:
        check(dtype_of(bits, is_signed), seed=bits)


@pytest.mark.parametrize("name", ["uint1", "int7", "uint16", "int33", "int64", "uint64", "int128", "uint129"])
def test_bits_are_those_of_python_integers(name: str) -> None:
    check(dtype_of(int(name.lstrip("uint")), name[0] == "i"), seed=7)


def check(dtype: DType, seed: int) -> None:
    draw, bits = random.Random(seed), dtype.bits
    codes = samples(dtype, seed)
    low = draw.randrange(bits)
    high = draw.randrange(low, bits)
    width = high - low + 1
    ones, field = (1 << width) - 1, draw.getrandbits(width)
    places = [draw.randrange(-3, bits + 3) for _ in codes]

    def everything(x: Symbol, place: Symbol) -> list[Symbol]:
        return [
            x.bits[high:low],
            x.bits[low],
            x.bits[place],
            ops.bit_extract(x, place, width),
            x.with_bits(high, low, field),
            ops.bit_insert(x, field, place, width),
            ops.bit_reverse(x),
            ops.bit_concat(x, x.bits[high:low]),
            ops.popcount(x),
            ops.leading_zeros(x),
            ops.trailing_zeros(x),
        ]

    def placed(code: int, place: int) -> int:
        result = code & ~(ones << place) | field << place if 0 <= place < bits else code
        return signed(result % (1 << bits), dtype)

    inside = [(c, p, 0 <= p < bits) for c, p in zip(codes, places, strict=True)]
    want = [
        [c >> low & ones for c in codes],
        [c >> low & 1 for c in codes],
        [c >> p & 1 if ok else 0 for c, p, ok in inside],
        [c >> p & ones if ok else 0 for c, p, ok in inside],
        [placed(c, low) for c in codes],
        [placed(c, p) for c, p, _ in inside],
        [signed(int(f"{c:0{bits}b}"[::-1], 2), dtype) for c in codes],
        [c << width | c >> low & ones for c in codes],
        [c.bit_count() for c in codes],
        [bits - c.bit_length() for c in codes],
        [(c & -c).bit_length() - 1 if c else bits for c in codes],
    ]
    got = computed(everything, (dtype, [signed(c, dtype) for c in codes]), (D.int64, places))
    for i, (item, expected) in enumerate(zip(got, want, strict=True)):
        assert item == expected, (dtype, i, high, low, field, places)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 150), st.data())
def test_a_field_that_is_set_is_read_again_and_nothing_else_changes(bits: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, bits - 1))
    high = data.draw(st.integers(low, bits - 1))
    width = high - low + 1
    x, value = data.draw(st.integers(0, (1 << bits) - 1)), data.draw(st.integers(0, (1 << width) - 1))

    def laws(s: Symbol, v: Symbol) -> list[Symbol]:
        result = s.with_bits(high, low, v)
        parts = [result.bits[bits - 1 : high + 1]] if high < bits - 1 else []
        parts.append(result.bits[high:low])
        parts += [result.bits[low - 1 : 0]] if low else []
        twice = ops.bit_reverse(ops.bit_reverse(result))
        return [result.bits[high:low], ops.bit_concat(*parts), twice, result]

    read, joined, twice, result = computed(laws, (D.uint(bits), [x]), (D.uint(width), [value]))
    assert read == [value]
    assert joined == twice == result
    assert result == [x & ~(((1 << width) - 1) << low) | value << low]


def test_dtypes_are_those_of_the_widths() -> None:
    graph = Graph(
        "bits", {"x": TensorType(D.int32, ["n", 3]), "b": TensorType(D.bool, []), "i": TensorType(D.index, [])}
    )
    x, b, i = graph.inputs
    assert x.bits[3:0].dtype is D.uint4
    assert x.bits[11:5].dtype is D.uint(7)
    assert x.bits[:].dtype is D.uint32
    assert x.bits[:28].dtype is D.uint4
    assert x.bits[6:].dtype is D.uint(7)
    assert x.bits[31].dtype is D.bool
    assert x.bits[np.int64(6) : np.int8(0)].dtype is D.uint(7)
    assert x.bits[np.uint8(3)].dtype is D.bool
    assert x.with_bits(3, 0, 1).type == x.type
    assert x.bits[b.cast(D.int8)].shape == x.shape
    assert ops.bit_concat(b, x, i).type == TensorType(D.uint(97), ["n", 3])
    assert ops.bit_concat(b).dtype is D.bool
    assert ops.bit_reverse(i).dtype is D.index
    assert ops.popcount(x).dtype is D.uint8
    wide = x.cast(D.int(300))
    assert ops.popcount(wide).dtype is D.uint16
    assert repr(x.bits) == f"<bits of {x}>"


def test_bits_are_the_same_in_every_promotion_system() -> None:
    for promotion in ("max", "kernel_float", "anvil", "array_api", "allo_hls", "allo_cpp"):
        got = computed(
            lambda x: [x.bits[6:2], x.with_bits(1, 0, 3), ops.popcount(x), ops.bit_reverse(x)],
            (D.int8, [0, -1, 100]),
            promotion=promotion,
        )
        assert got == [[0, 31, 25], [3, -1, 103], [0, 8, 3], [0, -1, 38]], promotion


def test_bits_of_a_buffer_are_set_in_place() -> None:
    graph = Graph("state", {"x": TensorType(D.uint8, [2]), "kept": Buffer(D.uint8, [2], initial=6)})
    remaining = graph.buffers["kept"]
    remaining.bits[7:4] = graph["x"]
    remaining.bits[0] = True
    graph.output(remaining * 1, remaining.bits[2:1])
    model = gc.InferenceSession().load(graph)
    assert [r.tolist() for r in model(np.array([3, 15], np.uint8))] == [[0x37, 0xF7], [3, 3]]
    model.buffers["kept"] = np.array([0, 8], np.uint8)
    assert model(np.array([1, 2], np.uint8))[0].tolist() == [0x11, 0x29]


def refusals() -> list[tuple[Callable[[Symbol, Symbol], Any], type[Exception], str]]:
    return [
        (lambda x, f: x.bits[0:3], ShapeError, "0:3 is not a range of bits"),
        (lambda x, f: x.bits[3:0:1], ShapeError, "3:0:1 is not a range of bits"),
        (lambda x, f: x.bits["3":0], ShapeError, "3:0 is not a range of bits"),
        (lambda x, f: x.bits[True:0], ShapeError, "True:0 is not a range of bits"),
        (lambda x, f: x.bits[8], ShapeError, "which has bits 7 to 0"),
        (lambda x, f: x.bits[-1], ShapeError, "which has bits 7 to 0"),
        (lambda x, f: x.bits[9:2], ShapeError, "bits 9 to 2 are not in uint8"),
        (lambda x, f: x.bits[1.5], DTypeError, "offset=1.5 is not an integer"),
        (lambda x, f: x.bits[f], DTypeError, "offset must have an integer dtype, got float32"),
        (lambda x, f: x.bits[x:0], ShapeError, "between two Symbols is not known"),
        (lambda x, f: f.bits[3], DTypeError, "no meaning for float32"),
        (lambda x, f: f.bits[3:0], DTypeError, "no meaning for float32"),
        (lambda x, f: x.with_bits(3, 0, 16), DTypeError, "16 does not fit into 4 bits"),
        (lambda x, f: x.with_bits(3, 0, -9), DTypeError, "-9 does not fit into 4 bits"),
        (lambda x, f: x.with_bits(3, 0, f), DTypeError, "no meaning for float32"),
        (lambda x, f: x.with_bits(3, 0, x[:2]), ShapeError, "do not broadcast"),
        (lambda x, f: x.bits.__setitem__(3, 1), SymbolError, "a Symbol does not change"),
        (lambda x, f: ops.bit_extract(x, 0, 0), ShapeError, "width must be 1 to 8, got 0"),
        (lambda x, f: ops.bit_extract(x, 0, True), ShapeError, "width must be 1 to 8, got True"),
        (lambda x, f: ops.bit_concat(), ShapeError, "expected one or more values"),
        (lambda x, f: ops.bit_concat(x, 3), DTypeError, "the Python number 3, which has no width"),
        (lambda x, f: ops.bit_concat(x, x[:2]), ShapeError, "do not broadcast"),
        (lambda x, f: ops.popcount(f), DTypeError, "no meaning for float32"),
        (lambda x, f: ops.leading_zeros(f), DTypeError, "no meaning for float32"),
        (lambda x, f: ops.bit_reverse(f), DTypeError, "no meaning for float32"),
    ]


@pytest.mark.parametrize("which", range(len(refusals())))
def test_what_are_not_bits_is_refused(which: int) -> None:
    call, error, text = refusals()[which]
    graph = Graph("bits", {"x": TensorType(D.uint8, [4]), "f": TensorType(D.float32, [4])})
    with pytest.raises(error) as raised:
        call(*graph.inputs)
    assert text in str(raised.value)
    assert raised.value.help  # type: ignore[attr-defined]
