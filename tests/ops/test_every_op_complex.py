"""Every op of the library on complex numbers: it runs and gives what NumPy gives, or is refused when it is called."""

from __future__ import annotations

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType
from graphcore.build.declare import REGISTRY
from graphcore.errors import DTypeError, GraphcoreError, PromotionError
from graphcore.ir.symbol import Symbol
from graphcore.promotion.complex_operators import is_complex
from graphcore.runtime.lowering import lower
from tests.support.every.complex_numbers import graph_of
from tests.support.every_op import CASES

FAMILIES = sorted({op.family for op in REGISTRY.values()})
MOVED = (
    "band_part broadcast_to chunk concat depth_to_space flatten flip gather gather_nd getitem into_vec masked_scatter "
    "pad permute repeat_interleave reshape reshape_like roll scatter scatter_nd select slice "
    "slice_tensor space_to_depth split squeeze stack swapaxes take_along_axis tile transpose transpose_matrix tril "
    "triu unsqueeze vec where"
).split()
"""Ops that put elements elsewhere, whose cases have formulas of any arrays."""


@pytest.mark.parametrize("family", FAMILIES)
def test_op_runs_on_complex_numbers_or_is_refused_when_called(family: str) -> None:
    failed = []
    for name in [name for name, op in REGISTRY.items() if op.family == family]:
        try:
            graph, made, arrays = graph_of(name)
        except (DTypeError, PromotionError) as refusal:
            if not refusal.help:
                failed.append(f"{name}: refused without help: {refusal.summary}")
            continue
        try:
            results = gc.InferenceSession().load(graph)(*arrays)
        except GraphcoreError as error:
            failed.append(f"{name}: {error.summary}")
            continue
        failed += [f"{name}: {why}" for s, r in zip(made, results, strict=True) if (why := wrong(s, r))]
        if name in MOVED:
            wanted = CASES[name].wanted(DType.complex64, arrays)
            pairs = zip(results, wanted, strict=True)
            failed += [f"{name}: other values" for got, want in pairs if not np.allclose(got, want, rtol=1e-6)]
    assert not failed, "\n".join(failed)


def wrong(symbol: Symbol, result: object) -> str:
    """Return what is wrong with a result of a Symbol's type; "" for nothing."""
    if not isinstance(result, np.ndarray) or not hasattr(symbol.type, "dtype"):
        return ""
    if result.dtype != symbol.dtype.numpy:
        return f"{result.dtype}, not {symbol.dtype}"
    return "" if result.ndim == symbol.rank else f"rank {result.ndim}, not {symbol.rank}"


def test_many_ops_run_on_complex_numbers() -> None:
    def runs(name: str) -> bool:
        try:
            graph, _, _ = graph_of(name)
        except (DTypeError, PromotionError):
            return False
        return any(is_complex(symbol.type) for symbol in graph.symbols)

    assert {*MOVED, "add", "div", "exp", "matmul", "einsum", "sum", "prod", "var", "fft"} <= {*filter(runs, REGISTRY)}


@pytest.mark.parametrize("target", ["onnx", "cuda", "openvino"])
@pytest.mark.parametrize("name", ["div", "exp", "atanh", "prod", "matmul", "abs", "scatter_nd_add", "scan", "angle"])
def test_ops_have_no_complex_numbers_left_when_lowered(name: str, target: str) -> None:
    graph, made, _ = graph_of(name)
    lowered = lower(graph, target)  # type: ignore[arg-type]
    assert not any(is_complex(symbol.type) for symbol in lowered.symbols)
    assert len(lowered.outputs) == len(made)
