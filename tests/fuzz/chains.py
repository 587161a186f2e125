"""Chains of two or three ops, in a session whose optimisers are on and in one whose are off: what onnxruntime fuses.

A file of the chain runs in a plain session of onnxruntime too, which leaves no optimiser out. The chain lies between
two negations or absolute values, since some optimisers leave the first and the last node alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
import onnxruntime

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphcoreError, ModelError
from tests.support.every.case import Array
from tests.support.every_op import CASES

Step: TypeAlias = Callable[[Symbol], Any]

DTYPES = [
    DType.float64, DType.float32, DType.float16, DType.bfloat16, DType.int8, DType.int32, DType.int64, DType.uint8,
    DType.uint64, DType.bool, DType.int4, DType.uint4, DType.int2, DType.float8_e4m3fn,
]  # fmt: skip
NUMBERS = (0, 1, -1, 2, 3, 0.5, -0.0, 1e-46, 1e-300, 1 + 2.0**-40, 1 - 2.0**-50, 6, 1e30, float("inf"))
"""Numbers that optimisers take for 0 and 1, and others."""
UNITS = 64
"""Units in the last place that fused floats may differ by, beside 2e-6 in all: formulas of GELU are one kernel."""

_WEIGHTS = np.arange(16).reshape(4, 4) % 5 - 2
_PLAIN = (DType.float64, DType.float32, DType.float16, DType.int8, DType.int32, DType.int64, DType.uint8, DType.bool)
"""Dtypes of arrays that a plain session takes."""

LEVELS = ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL")

_CONSTANTS: dict[str, Callable[[Symbol, Any], Any]] = {
    "add": lambda x, c: x + c, "sub": lambda x, c: x - c, "mul": lambda x, c: x * c, "div": lambda x, c: x / c,
    "rsub": lambda x, c: c - x, "rdiv": lambda x, c: c / x, "pow": lambda x, c: x**c, "max": ops.maximum,
    "min": ops.minimum, "clip": lambda x, c: ops.clip(x, 0, c), "clip_up": lambda x, c: ops.clip(x, c),
    "where": lambda x, c: ops.where(x > c, x, c), "less": lambda x, c: x < c, "equal": ops.equal,
}  # fmt: skip
_MOVES: dict[str, Step] = {
    "concat": lambda x: ops.concat([x, x], -1), "gather": lambda x: ops.gather(x, np.array([1, 0]), -1),
    "matmul": lambda x: x @ ops.transpose_matrix(x), "mean": lambda x: ops.mean(x, -1, True),
    "pad": lambda x: ops.pad(x, [0, 0, 1, 1]), "reshape": lambda x: x.reshape([-1, 2]), "slice": lambda x: x[:, 1:],
    "squeeze": lambda x: ops.squeeze(ops.unsqueeze(x, 0), 0), "sum": lambda x: ops.sum(x, -1, True),
    "tile": lambda x: ops.tile(x, [1, 2]), "turned": lambda x: ops.transpose(x, 0, 1), "twice": lambda x: x + x,
    "squared": lambda x: x * x, "gate": lambda x: x * ops.sigmoid(x),
    "steep gate": lambda x: x * ops.sigmoid(x * 1.702),
    "shape": ops.shape_of, "product": lambda x: x @ x.graph.constant(_WEIGHTS.astype(x.dtype.numpy)),
    "scaled": lambda x: ops.onnx.DequantizeLinear(x, np.float32(0.125)),
    "moved": lambda x: ops.onnx.DequantizeLinear(x, np.float32(0.125), x.graph.constant(np.array(1, x.dtype.numpy))),
    "rounded": lambda x: ops.onnx.QuantizeLinear(x, np.float32(0.125), np.int8(3)),
    **{f"cast {d}": partial(ops.cast, dtype=d) for d in DTYPES},
}  # fmt: skip


@cache
def steps() -> dict[str, Step]:
    """Return functions of one tensor by name."""
    results: dict[str, Step] = dict(_MOVES)
    for name, case in CASES.items():
        if len(case.operands) == 1 and len(case.operands[0].dims.split()) == 2 and case.operands[0].dtype is None:
            results[name] = lambda x, case=case: case.results([x])[0]  # type: ignore[misc]
    for name, function in _CONSTANTS.items():
        for number in NUMBERS:
            results[f"{name} {number!r}"] = lambda x, f=function, c=number: f(x, c)  # type: ignore[misc]
    return results


@dataclass(frozen=True, slots=True)
class Chain:
    """Two or three steps on a tensor. rows: of the tensor, None where only the run knows."""

    dtype: DType
    first: str
    second: str
    rows: int | None = None
    third: str = ""


def drawn(number: int) -> Chain:
    """Return a random chain."""
    rng = random.Random(number)
    names = list(steps())
    first, second, third = (rng.choice(names) for _ in range(3))
    return Chain(rng.choice(DTYPES), first, second, rng.choice([None, 4]), rng.choice(["", third]))


def smaller(chain: Chain) -> list[Chain]:
    """Return the chains of two of three steps."""
    a, b, c = chain.first, chain.second, chain.third
    return [Chain(chain.dtype, *pair, chain.rows) for pair in ((a, b), (b, c), (a, c))]


def turned(x: Symbol) -> Symbol:
    """Return a tensor after one node more."""
    if x.dtype is DType.bool:
        return ops.logical_not(x)
    return ops.negate(x) if x.dtype.is_float or x.dtype.is_signed else ops.bitwise_not(x)


def graph_of(chain: Chain) -> Graph | None:
    """Return the graph of a chain; None where an op refuses it."""
    rows: Any = "n" if chain.rows is None else chain.rows
    graph = Graph("chain", {"x": TensorType(chain.dtype, [rows, 4])})
    try:
        with graph:
            result: Any = turned(graph["x"]) if graph["x"].dtype.bits >= 8 else graph["x"]
            for name in filter(None, (chain.first, chain.second, chain.third)):
                result = steps()[name](result)
            graph.output(turned(result) if isinstance(result, Symbol) and result.dtype is not DType.string else result)
    except (GraphcoreError, IndexError, TypeError):  # the last two of what takes no such tensor
        return None
    return graph


def fed(dtype: DType) -> Array:
    """Return numbers of which float16 holds the products, and zeros of both signs."""
    rng = np.random.default_rng(7)
    result = rng.standard_normal((4, 4)) * 2 if dtype.is_float else rng.integers(0, 5, (4, 4))
    if dtype.is_float:
        result[0, :2] = 0.0, -0.0
    return result.astype(dtype.numpy)


def failure(chain: Chain) -> tuple[str | None, int]:
    """Return the difference that optimisers make to a chain, or None, and the number of results compared."""
    graph = graph_of(chain)
    if graph is None:
        return None, 0
    results = [_outcome(graph, level) for level in LEVELS]
    optimised, plain = results
    if isinstance(optimised, ModelError) or (isinstance(optimised, Exception) and not isinstance(plain, Exception)):
        return f"{type(optimised).__name__}: {optimised}", 0
    if isinstance(optimised, Exception) or isinstance(plain, Exception):
        return None, 0
    why = _apart(optimised, plain)
    if why is None and graph["x"].dtype in _PLAIN and optimised.dtype.kind in "biuf":
        content = graph.to_onnx().SerializeToString()
        file, as_written = (_of_file(content, fed(graph["x"].dtype), level) for level in LEVELS)
        message: str | None = None
        if isinstance(file, Exception):
            message = f"{type(file).__name__}: {file}"
        elif not isinstance(as_written, Exception):
            message = _apart(file, as_written)
        why = None if message is None else f"in a plain session: {message}"
    return why, optimised.size


def _of_file(content: bytes, x: Array, level: str) -> Array | Exception:
    """Return the results of a plain session of a file for every release, or its error."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, {"x": x})[0])
    except Exception as error:
        return error


def _outcome(graph: Graph, level: str) -> Array | GraphcoreError:
    options = {"graph_optimization_level": getattr(onnxruntime.GraphOptimizationLevel, level)}
    try:
        model = gc.InferenceSession(intra_op_num_threads=1, **options).load(graph)
        return np.asarray(model(fed(graph["x"].dtype))[0])
    except GraphcoreError as error:
        return error


def _apart(optimised: Array, plain: Array) -> str | None:
    if optimised.shape != plain.shape or optimised.dtype != plain.dtype:
        return f"{optimised.dtype}{optimised.shape} is {plain.dtype}{plain.shape} without optimisers"
    if plain.dtype.kind in "biuOUST":
        return None if (optimised == plain).all() else f"{optimised} is {plain} without optimisers"
    a, b = optimised.astype(np.float64), plain.astype(np.float64)
    unit = 2.0**-52 if plain.dtype == np.float64 else 2.0**-23
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= UNITS * unit * np.abs(b) + (2e-6 if unit > 1e-10 else 1e-15)
    same = near | (a == b) | (np.isnan(a) & np.isnan(b))
    return None if same.all() else f"{optimised[~same]} is {plain[~same]} without optimisers"
