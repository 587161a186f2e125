"""Graphs as they are and optimised, side by side, for the tests of passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType
from graphcore.arrays.casting import cast_array

Array = np.ndarray[Any, Any]

FLOATS = (
    DType.float8_e4m3fn, DType.float8_e5m2, DType.float16, DType.bfloat16, DType.tensor_float32, DType.float32,
    DType.float64,
)  # fmt: skip
INTEGERS = (
    DType.int4, DType.uint4, DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16, DType.uint32,
    DType.uint64, DType.index, DType.address,
)  # fmt: skip
DTYPES = (DType.bool, *INTEGERS, *FLOATS)


def graph_of(function: Callable[..., Any], *types: TensorType, output: str | None = None) -> Graph:
    graph = Graph("test", {f"x{i}": type_ for i, type_ in enumerate(types)})
    with graph:
        result = function(*graph.inputs)
    graph.output(**{output: result}) if output else graph.output(result)
    return graph


def vector(dtype: DType = DType.float32, *shape: int | str) -> TensorType:
    return TensorType(dtype, shape or ("n",))


def f32(values: Any) -> Array:
    return np.array(values, np.float32)


def i8(values: Any) -> Array:
    return np.array(values, np.int8)


def unchanged(x: Symbol) -> Symbol:
    opposite = -x
    return -opposite


def operators(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


def extremes(dtype: DType) -> Array:
    """The values of a dtype at which arithmetic is likeliest to go wrong."""
    if dtype is DType.bool:
        return np.array([False, True])
    if dtype.is_integer:
        low, high = int(dtype.min), int(dtype.max)
        wanted = sorted({low, low + 1, -1 if low else 0, 0, 1, 2, 3, high // 2, high - 1, high})
        return np.array(wanted, np.uint64 if high >= 1 << 63 else np.int64).astype(dtype.numpy)
    tiny = {DType.float8_e4m3fn: 2.0**-9, DType.float8_e5m2: 2.0**-16, DType.float16: 2.0**-24}.get(dtype, 2.0**-126)
    plain = np.array([0.0, -0.0, 1.0, -1.0, 1.5, 3.0, tiny, -tiny, np.nan, np.inf, -np.inf, float(dtype.max)])
    return cast_array(plain, DType.float64, dtype)


def bits(array: Array) -> bytes:
    """The bits of an array, all NaN alike."""
    with np.errstate(invalid="ignore"):
        wide = array.astype(np.float64) if array.dtype.kind in "fV" else array
    if wide.dtype.kind == "f" and np.isnan(wide).any():
        array = np.where(np.isnan(wide), array.dtype.type("nan"), array)
    return array.tobytes()


def run(graph: Graph, *arrays: Array) -> list[Array]:
    return list(gc.InferenceSession().load(graph)(*arrays))


def assert_same(graph: Graph, *arrays: Array) -> Graph:
    """Run the graph as it is and optimised, and return the optimised one."""
    optimised = graph.optimize()
    optimised.verify()
    plain, result = run(graph, *arrays), run(optimised, *arrays)
    assert list(graph.output_types.items()) == list(optimised.output_types.items())
    for one, other in zip(plain, result, strict=True):
        assert (one.dtype, one.shape, bits(one)) == (other.dtype, other.shape, bits(other))
    return optimised
