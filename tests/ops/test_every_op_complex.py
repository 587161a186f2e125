"""Every op of the library on complex numbers: it runs and gives what NumPy gives, or is refused when it is called."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.build.declare import REGISTRY
from graphcore.errors import DTypeError, GraphcoreError, PromotionError
from graphcore.ir.symbol import Symbol
from graphcore.promotion.complex_operators import is_complex
from graphcore.runtime.lowering import lower
from tests.support.every_op import FORMULAS, IN_PARTS, PRODUCTS, drawn, wanted
from tests.support.every_op import complex_graph_of as graph_of

FAMILIES = sorted({op.family for op in REGISTRY.values()})


@pytest.mark.parametrize("family", FAMILIES)
def test_op_runs_on_complex_numbers_or_is_refused_when_called(family: str) -> None:
    failed = []
    for name in [name for name, op in REGISTRY.items() if op.family == family]:
        try:
            graph, result, arrays = graph_of(name)
        except (DTypeError, PromotionError) as refusal:
            if not refusal.help or ("complex64" not in str(refusal) and "complex" not in refusal.summary):
                failed.append(f"{name}: refused without help, or without saying what is complex: {refusal}")
            if ".cast(" in refusal.help and "ops.real(z).cast(" not in refusal.help:
                failed.append(f"{name}: a cast to real dtypes is refused too: {refusal.help}")
            continue
        try:
            results = gc.InferenceSession().load(graph)(*arrays)
        except GraphcoreError as error:
            failed.append(f"{name}: {error.summary}")
            continue
        failed += [f"{name}: {why}" for s, r in zip(result, results, strict=True) if (why := wrong(s, r))]
        values = wanted(name, arrays)
        if values is None:
            continue
        for got, want in zip(results, values, strict=True):
            if not np.allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5):
                failed.append(f"{name}: {got}, not {want}")
    assert not failed, "\n".join(failed)


def wrong(symbol: Symbol, result: object) -> str:
    """Return a description of what is wrong with a result of a Symbol's type; "" for nothing."""
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

    assert {*FORMULAS, *IN_PARTS, *PRODUCTS} <= {*filter(runs, REGISTRY)}


@pytest.mark.parametrize("target", ["onnx", "cuda", "openvino"])
@pytest.mark.parametrize("name", ["div", "exp", "atanh", "prod", "matmul", "abs", "scatter_nd_add", "scan", "angle"])
def test_ops_have_no_complex_numbers_left_when_lowered(name: str, target: str) -> None:
    graph, result, _ = graph_of(name)
    lowered = lower(graph, target)  # type: ignore[arg-type]
    assert not any(is_complex(symbol.type) for symbol in lowered.symbols)
    assert len(lowered.outputs) == len(result)


# Ops whose cases have real operands beside complex ones


def ran(function: Callable[..., Any], *arrays: Any) -> Any:
    types = {f"x{i}": TensorType(DType.of(x.dtype), x.shape) for i, x in enumerate(arrays)}
    graph = Graph("g", types, promotion="array_api")
    with graph:
        graph.output(function(*graph.inputs))
    return gc.InferenceSession().load(graph)(*arrays)[0]


@pytest.mark.parametrize("dtype", [DType.complex64, DType.complex128])
def test_images_are_sampled_at_real_places(dtype: DType) -> None:
    x, places = drawn([2, 4, 5, 3], dtype, 0), np.random.default_rng(0).uniform(-1, 1, (2, 3, 2, 2)).astype(np.float32)
    boxes = np.array([[0, 0, 0, 3, 3], [1, 1, 1, 4, 2]], np.float32)
    calls: list[tuple[Any, Any]] = [(ops.grid_sample, places), (lambda x, b: ops.roi_align(x, b, 2, 2), boxes)]
    for call, item in calls:
        real, imag = (ran(call, part, item.astype(part.dtype)) for part in (x.real.copy(), x.imag.copy()))
        np.testing.assert_allclose(ran(call, x, item), real + 1j * imag, rtol=1e-5, atol=1e-6)
    with pytest.raises(DTypeError, match="complex numbers have no order"):
        ran(lambda x, b: ops.roi_align(x, b, 2, 2, mode="MAX"), x, boxes)
    with pytest.raises(DTypeError, match="must be real numbers, got complex"):
        ran(ops.grid_sample, x.real.copy(), places.astype(np.complex64))
    with pytest.raises(DTypeError, match="must be real numbers, got complex"):
        ran(
            lambda x, b: ops.roi_align(x, b, 2, 2, batch_indices=np.array([0, 1])), x, boxes[:, 1:].astype(np.complex64)
        )


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_convolutions_have_complex_biases_strides_and_groups(precision: Any) -> None:
    x, filters, bias = (
        drawn([1, 4, 9], DType.complex64, 0),
        drawn([6, 2, 3], DType.complex64, 1),
        drawn([6], DType.complex64, 2),
    )
    graph = Graph("g", {"x": TensorType("complex64", x.shape)}, promotion="array_api")
    y = ops.conv1d(graph["x"], filters, 2, 2, (1, 2), 2, bias, input_layout="NCW", filter_layout="FCS")
    graph.output(y)
    padded = np.pad(x[0], [(0, 0), (1, 2)])
    want = np.tile(bias[:, None], (1, 4))
    for feature, channel, t in itertools.product(range(6), range(2), range(4)):
        window = padded[feature // 3 * 2 + channel, 2 * t : 2 * t + 5 : 2]
        want[feature, t] += (window * filters[feature, channel]).sum()
    (got,) = gc.InferenceSession(precision=precision).load(graph)(x)
    np.testing.assert_allclose(got[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [DType.complex64, DType.complex128])
def test_complex_signals_have_short_time_spectra(dtype: DType) -> None:
    x, window = drawn([2, 20], dtype, 0), np.hanning(8).astype(dtype.storage.numpy)
    frames = np.stack([x[:, t : t + 8] * window for t in range(0, 13, 4)], 1)
    got = ran(lambda x, w: ops.stft(x, 8, 4, w, onesided=False), x, window)
    np.testing.assert_allclose(got, np.fft.fft(frames), rtol=1e-4, atol=1e-5)
    with pytest.raises(DTypeError, match="onesided=False"):
        ran(lambda x: ops.stft(x, 8, 4), x)
    with pytest.raises(DTypeError, match="window must be real"):
        ran(lambda x, w: ops.stft(x, 8, 4, w, onesided=False), x, window.astype(dtype.numpy))


def test_gates_neither_overflow_nor_lose_small_results() -> None:
    z = np.array([-800 + 1j, 800 - 3j, -30 + 2j, 0, -np.inf, np.inf, 700j], np.complex128)
    want = np.array([0, 1, np.exp(-30 + 2j), 0.5, 0, 1, 1 / (1 + np.exp(-700j))])
    np.testing.assert_allclose(ran(ops.sigmoid, z), want, rtol=1e-12, atol=1e-300)
    big = np.array([[1000 + 1j, 1001 - 2j], [-1000, -1000 + 3j]])
    want = big.real.max(1) + np.log(np.exp(big - big.real.max(1, keepdims=True)).sum(1))
    np.testing.assert_allclose(ran(lambda z: ops.logsumexp(z, axis=1), big), want, rtol=1e-13)


def test_magnitudes_of_vectors_do_not_overflow() -> None:
    z = np.array([[3e200 + 4e200j, 0], [3e-200, 4e-200j]])
    np.testing.assert_allclose(ran(lambda z: ops.mag(z, axis=1), z), [5e200, 5e-200], rtol=1e-15)
    np.testing.assert_allclose(ran(ops.lp_normalize, z), z / [[5e200], [5e-200]], rtol=1e-14)
    np.testing.assert_array_equal(ran(ops.lp_normalize, z * 0), z * 0)
    one = drawn([3, 4], DType.complex128, 0)
    np.testing.assert_allclose(
        ran(lambda z: ops.lp_normalize(z, 1), one), one / abs(one).sum(1, keepdims=True), rtol=1e-14
    )
