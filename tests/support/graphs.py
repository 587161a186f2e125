"""Pieces of graphs run end to end, for the tests of ops, and comparisons with NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType
from graphcore.ir.graph import TargetName
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.targets.releases import Runtime, table_of
from graphcore.runtime.ort import release
from graphcore.runtime.sessions import plan

Array = np.ndarray[Any, Any]

NEWEST = Runtime(table_of("cpu").newest.version)
"""The newest measured release of onnxruntime, for tests of what sessions on it are given."""


def operators_on_newest(graph: Graph) -> list[str]:
    """Return the operators at the top of a graph as a session on the newest measured release is given it."""
    return [node.op_type for node in lower(graph, "cpu", runtime=NEWEST, optimize="all").nodes]


def pretend_bytes(monkeypatch: pytest.MonkeyPatch, *, saturating: bool, runs: bool = True) -> Runtime:
    """Let sessions lower for a processor whose products of bytes saturate or do not. Return what they lower for.

    A test that runs graphs as one where they do not is skipped where they do.
    """
    if runs and not saturating and release.saturates():
        pytest.skip("products of bytes saturate on this processor")
    runtime = replace(release.runtime(), saturates=lambda: saturating)
    monkeypatch.setattr(plan, "runtime", lambda: runtime)
    return runtime


def graph_of(
    function: Callable[..., Any],
    *arrays: Array,
    dims: Sequence[Sequence[int | str]] | None = None,
    dtypes: Sequence[DType] | None = None,
    promotion: str = "max",
) -> Graph:
    """A Graph of `function`: inputs of the arrays' dtypes, every axis named unless `dims` says otherwise."""
    types = {}
    for i, array in enumerate(arrays):
        shape = dims[i] if dims is not None else [f"d{i}_{j}" for j in range(array.ndim)]
        types[f"x{i}"] = TensorType(dtypes[i] if dtypes else DType.of(array.dtype), shape)
    graph = Graph("test", types, promotion=promotion)
    with graph:
        result = function(*graph.inputs)
    graph.output(*(result if isinstance(result, (tuple, list)) else (result,)))
    return graph


def run(
    function: Callable[..., Any],
    *arrays: Array,
    dims: Sequence[Sequence[int | str]] | None = None,
    dtypes: Sequence[DType] | None = None,
    promotion: str = "max",
    target: TargetName = "cpu",
    check: bool = True,
) -> list[Array]:
    """The arrays that `function` of Symbols computes from `arrays` on onnxruntime.

    Checks the exported model with onnx.checker, and that shapes and dtypes come out as the graph said they would.
    """
    graph = graph_of(function, *arrays, dims=dims, dtypes=dtypes, promotion=promotion)
    if check:
        onnx.checker.check_model(graph.to_onnx(target=target), full_check=True)
    results = gc.InferenceSession().load(graph)(*arrays)
    sizes = {
        name: size
        for symbol, array in zip(graph.inputs, arrays, strict=True)
        for dim, size in zip(symbol.shape, array.shape, strict=True)
        if (name := dim.name)
    }
    for symbol, result in zip(graph.outputs, results, strict=True):
        _check_type(symbol, result, sizes)
    return list(results)


def run_unchecked(
    function: Callable[..., Any],
    *arrays: Array,
    dims: Sequence[Sequence[int | str]] | None = None,
    dtypes: Sequence[DType] | None = None,
) -> list[Any]:
    """The results of `function`, lists and strings among them, without the checks of `run`."""
    return list(gc.InferenceSession().load(graph_of(function, *arrays, dims=dims, dtypes=dtypes))(*arrays))


def run1(function: Callable[..., Any], *arrays: Array, **options: Any) -> Array:
    """`run` for a function of one result."""
    (result,) = run(function, *arrays, **options)
    return result


def _check_type(symbol: Symbol, result: Array, sizes: dict[str, int]) -> None:
    assert result.dtype == symbol.dtype.numpy, f"{symbol} came out as {result.dtype}"
    assert result.ndim == symbol.rank, f"{symbol} came out with shape {result.shape}"
    for dim, size in zip(symbol.shape, result.shape, strict=True):
        if not dim.is_dynamic and dim.parameters <= sizes.keys():
            assert dim.evaluate(sizes) == size, f"{symbol} came out with shape {result.shape} for {sizes}"


# The dtypes of the array API standard, and comparison with NumPy's arrays

Values = np.ndarray[Any, Any]

SIGNED = (DType.int8, DType.int16, DType.int32, DType.int64)
UNSIGNED = (DType.uint8, DType.uint16, DType.uint32, DType.uint64)
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = (DType.float16, DType.float32, DType.float64)
COMPLEX = (DType.complex64, DType.complex128)
NUMBERS = (*INTEGERS, *FLOATS)
ALL = (DType.bool, *NUMBERS)


def assert_same(result: object, wanted: Values, what: str) -> None:
    array = np.asarray(result)
    assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape), what
    if wanted.dtype.kind == "f":
        rtol = {2: 2e-3, 4: 2e-6, 8: 1e-12}[wanted.dtype.itemsize]
        np.testing.assert_allclose(array, wanted, rtol=rtol, atol=rtol, err_msg=what)
    else:
        np.testing.assert_array_equal(array, wanted, err_msg=what)
