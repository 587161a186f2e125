"""Expressions of up to 12 operators over any dtypes, under four promotion systems: every Symbol's dtype and values."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType
from graphcore.errors import DTypeError, LossyCastWarning, PromotionError
from tests.sampling import drawn
from tests.support import promoted, reference
from tests.support.promoted import BINARY, DTYPES, OPS, UNARY, Refused, Value

D = DType
COUNT = 6
LITERALS: tuple[bool | int | float, ...] = (True, False, 0, 1, 2, -1, 0.5, 2.0, -1.5)


@st.composite
def steps(draw: Any) -> list[tuple[str, int, int, int, Any]]:
    """An op, which operands of the pool, counted from its end, and a literal or None; up to 12 times."""
    chosen = st.sampled_from([*BINARY, *BINARY, *UNARY, "where", "cast", "sum"])
    at = st.integers(0, 9)
    literal = st.one_of(st.none(), st.none(), st.sampled_from(LITERALS))
    return draw(st.lists(st.tuples(chosen, at, at, at, literal), min_size=1, max_size=12))  # type: ignore[no-any-return]


def check(
    system: str, dtypes: list[DType], flags: list[bool], program: list[tuple[str, int, int, int, Any]], count: int = 12
) -> None:
    """Build and run a program; check that the library refuses with the right error what a rule refuses.

    count: how many of the last values are outputs.
    """
    guesses = system == "anvil"
    types = {
        f"x{i}": TensorType(d, ["n"], ambiguous=flag and guesses)
        for i, (d, flag) in enumerate(zip(dtypes, flags, strict=True))
    }
    graph = Graph("drawn", types, promotion=system)
    arrays = [reference.samples(d, COUNT, 7 * i + d.bits) for i, d in enumerate(dtypes)]
    pool = [(s, Value(a, s.dtype, s.ambiguous)) for s, a in zip(graph.inputs, arrays, strict=True)]
    if system == "kernel_float" and flags[0]:
        constant = arrays[0][:1].reshape(())
        pool.append((graph.constant(constant, dtypes[0], ambiguous=True), Value(constant, dtypes[0], True)))
    items: list[tuple[str, Symbol, Value]] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", LossyCastWarning)
        for op, a, b, c, literal in program:
            picks = [pool[-1 - i % len(pool)] for i in (a, b, c)]
            operands = _operands(system, op, picks, literal, a % 2 == 0)
            if operands is None:
                continue
            symbols = [v[0] if isinstance(v, tuple) else v for v in operands]
            values = [v[1] if isinstance(v, tuple) else v for v in operands]
            want = promoted.outcome(system, op, values)
            if isinstance(want, Refused):
                with pytest.raises((PromotionError, DTypeError)) as raised:
                    OPS[op](*symbols)
                assert raised.type is want.error, f"{op}: {raised.value}"
                assert raised.value.help
                continue
            symbol = OPS[op](*symbols)
            what = f"{op} of {', '.join(str(s.type) if isinstance(s, Symbol) else repr(s) for s in symbols)}"
            assert (symbol.dtype, symbol.ambiguous) == (want.dtype, want.ambiguous), f"{what} is {symbol.type}"
            pool.append((symbol, want))
            items.append((what, symbol, want))
    items = items[-count:]
    if not items:
        return
    graph.output(**{f"out{i}": symbol for i, (_, symbol, _) in enumerate(items)})
    model = graph.to_onnx()
    onnx.checker.check_model(model, full_check=True)
    results = gc.InferenceSession().load(graph)(*arrays)
    for (what, symbol, want), got in zip(items, results, strict=True):
        promoted.assert_value(what, symbol, got, want)


def _operands(system: str, op: str, picks: list[Any], literal: Any, first: bool) -> list[Any] | None:
    if op == "cast":
        targets = DTYPES[system]
        return [picks[0], targets[len(str(picks[1][1].dtype)) % len(targets)]]
    if op == "sum":
        # Floats are summed in an order of the kernel's.
        return [picks[0]] if not picks[0][1].dtype.is_float and picks[0][0].rank else None
    if op == "where":
        if system == "array_api" and picks[0][1].dtype is not D.bool:
            return None
        return picks if literal is None else [picks[0], picks[1], literal]
    if op in UNARY:
        return picks[:1]
    if literal is None:
        return picks[:2]
    return [literal, picks[0]] if first else [picks[0], literal]


@st.composite
def programs(draw: Any, system: str) -> tuple[list[DType], list[bool], list[tuple[str, int, int, int, Any]], int]:
    """The arguments of `check`."""
    dtypes = draw(st.lists(st.sampled_from(DTYPES[system]), min_size=2, max_size=4))
    flags = draw(st.lists(st.booleans(), min_size=len(dtypes), max_size=len(dtypes)))
    return dtypes, flags, draw(steps()), draw(st.sampled_from([12, 12, 1, 2]))


@pytest.mark.parametrize("system", DTYPES)
@settings(max_examples=25)
@given(data=st.data())
def test_expressions_have_the_dtypes_and_values_of_the_rules_when_drawn(system: str, data: Any) -> None:
    check(system, *data.draw(programs(system)))


@pytest.mark.full
@pytest.mark.parametrize("system", DTYPES)
@settings(max_examples=drawn(400))
@given(data=st.data())
def test_many_expressions_have_the_dtypes_and_values_of_the_rules_when_drawn(system: str, data: Any) -> None:
    check(system, *data.draw(programs(system)))
