"""Every op of the library in every dtype: it gives what docs/numbers.md promises, or refuses when it is called."""

from __future__ import annotations

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType
from graphcore.build.declare import LIBRARY, REGISTRY
from graphcore.errors import DTypeError, GraphcoreError
from graphcore.ir.graph import TargetName
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering import lower
from tests.ops.test_sweep import assert_near, assert_same
from tests.support.every.case import ALL, SMALL, Array, Case
from tests.support.every_op import CASES, graph_of

pytestmark = pytest.mark.releases

D = DType
FAMILIES = sorted({op.family for op in REGISTRY.values()})


def assert_promised(name: str, case: Case, dtype: DType, symbols: tuple[Symbol, ...], got: list[Array]) -> None:
    """The results are of the dtypes the op said, exact or near."""
    arrays = case.arrays(dtype)
    for symbol, result, want in zip(symbols, got, case.wanted(dtype, arrays), strict=True):
        assert symbol.dtype is case.gives(dtype)
        if dtype in SMALL and symbol.dtype is dtype:  # whose zeros, which stand for NaN too, have either sign
            assert result.dtype == want.dtype
            result, want = (np.where(v == 0, 0, v).astype(v.dtype) for v in (result, want))
        if case.near and symbol.dtype.is_float:
            assert_near(name, result, want, symbol.dtype, 4 if symbol.dtype is D.float32 else 1)
        else:
            assert_same(name, result, want, *arrays)


def test_every_op_has_a_case() -> None:
    assert CASES.keys() == REGISTRY.keys()
    assert len(ALL) == 20


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [*ALL, *SMALL], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_op_gives_what_is_promised_when_of_any_dtype(family: str, dtype: DType) -> None:
    like = D.float8_e4m3fn if dtype in SMALL else dtype
    names = [name for name, op in REGISTRY.items() if op.family == family and like not in CASES[name].refused]
    if dtype in SMALL:  # no other dtype has 6 bits, and no numbers are drawn in them
        names = [name for name in names if name != "bitcast" and not name.startswith("random_")]
    if not names:
        return
    graph, result, arrays = graph_of(names, dtype)
    session = gc.InferenceSession()
    failed = []
    try:
        results = list(session.load(graph)(*arrays))
        for name in names:
            got, results = results[: len(result[name])], results[len(result[name]) :]
            failed += _failures(name, dtype, result[name], got)
    except GraphcoreError:  # of one of them: of which?
        for name in names:
            graph, result, arrays = graph_of([name], dtype)
            try:
                failed += _failures(name, dtype, result[name], list(session.load(graph)(*arrays)))
            except GraphcoreError as error:
                failed.append(f"{name}: {error.summary}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("target", ["onnx", "cuda", "openvino"])
def test_op_is_lowered_when_for_another_target(target: TargetName) -> None:
    for name, case in CASES.items():
        dtype = next((d for d in (D.float32, *ALL) if d not in case.refused), None)
        if dtype is None:  # strings have tests of their own
            continue
        graph, result, _ = graph_of([name], dtype)
        lowered = lower(graph, target)
        assert not {node.domain for node in lowered.nodes} & {LIBRARY}, name
        assert len(lowered.outputs) == len(result[name])


def _failures(name: str, dtype: DType, symbols: tuple[Symbol, ...], got: list[Array]) -> list[str]:
    try:
        assert_promised(name, CASES[name], dtype, symbols, got)
    except (AssertionError, pytest.fail.Exception) as error:
        return [f"{name} of {dtype}: {error}"]
    return []


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, case in CASES.items() for dtype in ALL if dtype in case.refused]
)
def test_op_refuses_when_it_is_called_where_a_dtype_has_no_meaning(name: str, dtype: DType) -> None:
    with pytest.raises(DTypeError) as raised:
        graph_of([name], dtype)
    assert dtype.name in str(raised.value)
    assert raised.value.help


@pytest.mark.numbers
def test_op_gives_what_is_promised_when_operands_are_empty() -> None:
    for dtype in (D.int8, D.uint64, D.bfloat16, D.float32, D.float64):
        names = ["add", "div", "floor_div", "mod", "pow", "cast", "relu", "sum", "prod", "cumsum", "matmul", "stack"]
        graph, result, arrays = graph_of(names, dtype)
        shown = [operand.dims for name in names for operand in CASES[name].operands]
        empty = [a[:0] if dims.startswith("n") else a for a, dims in zip(arrays, shown, strict=True)]
        results = gc.InferenceSession().load(graph)(*empty)
        assert [r.shape[0] for r in results] == [0] * len(results)
        assert [r.dtype for r in results] == [np.dtype(s.dtype.numpy) for name in names for s in result[name]]
