"""The widest integers, and what errors and graphs show of numbers with thousands of digits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType
from graphcore.errors import DTypeError, FeedError
from graphcore.support.escaping import text_of
from tests.support.wide import graph_of, run

WIDEST = 1 << 16


def test_integers_have_65536_bits_at_most() -> None:
    assert DType.int(WIDEST).bits == DType.of(f"u{WIDEST}").bits == WIDEST
    for make in (DType.int, DType.uint):
        with pytest.raises(DTypeError, match="integers have 65536 bits at most") as raised:
            make(WIDEST + 1)
        assert raised.value.help
    for name in ("i70000", "uint99999999999999"):
        with pytest.raises(DTypeError, match="integers have 65536 bits at most"):
            DType.of(name)


def test_results_beyond_65536_bits_are_refused_at_their_lines() -> None:
    graph = Graph("wide", {n: TensorType(DType.int(WIDEST), [2]) for n in "ab"}, promotion="allo_hls")
    a, b = graph.inputs
    uses: list[tuple[Callable[[], object], int]] = [
        (lambda: a + b, WIDEST + 1), (lambda: a * b, 2 * WIDEST), (lambda: a @ b, 2 * WIDEST), (lambda: -a, WIDEST + 1),
    ]  # fmt: skip
    for use, bits in uses:
        with pytest.raises(
            DTypeError, match=f"the result would have {bits} bits; integers have 65536 bits at most"
        ) as raised:
            use()
        assert "test_wide_limits.py" in str(raised.value)
    with pytest.raises(DTypeError, match="integers have 65536 bits at most"):
        graph.constant([1 << 69000], DType.int(70000))


@pytest.mark.numbers
def test_integers_of_thousands_of_bits_are_computed() -> None:
    dtype = DType.int(3000)
    x = np.array([1 << 2998, -(1 << 2999), -1, 7], object)
    result = run(lambda a: (a + 1, -a, a >> 2000, a.cast(DType.int(96))), [dtype], x)
    assert result[0].tolist() == [v + 1 for v in x]
    assert result[1].tolist() == [-(1 << 2998), -(1 << 2999), 1, -7]
    assert result[2].tolist() == [v >> 2000 for v in x]
    assert result[3].tolist() == [0, 0, -1, 7]


TEXTS: list[tuple[object, str]] = [
    (5, "5"),
    (-(1 << 4095), str(-(1 << 4095))),
    (1 << 16000, "0x8000000000000000... (16001 bits)"),
    (-(3 << 16000), "-0xc000000000000000... (16002 bits)"),
    ([1, [2, 1 << 5000]], "[1, [2, 0x8000000000000000... (5001 bits)]]"),
    (1.5, "1.5"),
]


@pytest.mark.parametrize("place", range(len(TEXTS)))
def test_text_of_integers_shows_the_first_digits_when_they_are_thousands(place: int) -> None:
    value, text = TEXTS[place]
    assert text_of(value) == text


def test_errors_and_graphs_show_integers_of_thousands_of_digits() -> None:
    graph = Graph("long", {"x": TensorType(DType.int(60000), ["n"]), "y": TensorType(DType.int64, ["n"])})
    uses: list[Callable[[], object]] = [
        lambda: graph["x"] + (1 << 60001), lambda: graph["y"] + (1 << 59000),
        lambda: graph.constant(1 << 59000, DType.int(70)), lambda: graph.full(1 << 59000, [2], DType.int(70)),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(DTypeError, match=r"0x8000000000000000\.\.\. \(\d+ bits\) cannot be held in"):
            use()
    with pytest.raises(DTypeError, match=r"\(50001 bits\)\] has more than 64 bits, and no default dtype"):
        graph.constant([1 << 50000])
    graph.output(graph["x"] + (1 << 59000))
    assert "0x8000000000000000... (59001 bits)" in str(graph)
    assert graph._repr_html_()


def test_feeds_show_integers_of_thousands_of_digits() -> None:
    model = gc.InferenceSession().load(graph_of(lambda a: a + 1, DType.int(96)))
    with pytest.raises(FeedError, match=r"cannot hold 0x8000000000000000\.\.\. \(20001 bits\)"):
        model(np.array([1 << 20000], object))
