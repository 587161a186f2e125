"""A user's script: what type checkers make of it. Never run. `make lint` checks it too.

Each `type: ignore` is a mistake that a checker must find: one that finds none says that the comment is not needed.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true, reportUnusedExpression=false

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore import array_api as xp

Floats = npt.NDArray[np.float32]


def graphs() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["batch", 4])})
    (x,) = graph.inputs
    assert_type(x, Symbol)
    assert_type(graph.inputs["x"], Symbol)
    assert_type(graph.outputs[:1], tuple[Symbol, ...])
    assert_type(x.type, TensorType | Any)
    assert_type(x.type.shape[0], gc.Dim | Any)
    x.type.shaep  # type: ignore[union-attr]  # noqa: B018
    if isinstance(x.type, gc.SequenceType):
        assert_type(x.type, gc.SequenceType)
    assert_type(x.dtype, DType)
    gc.Grpah("g")  # type: ignore[attr-defined]


def operators(x: Symbol, array: Floats, whole: npt.NDArray[np.int64], number: np.float32) -> None:
    assert_type(x * 2, Symbol)
    assert_type(2 * x, Symbol)
    assert_type(x * array, Symbol)
    assert_type(array * x, Symbol)
    assert_type(whole - x, Symbol)
    assert_type(array @ x, Symbol)
    assert_type(whole // x, Symbol)
    assert_type(array < x, Symbol)
    assert_type(number * x, Symbol)
    x + "text"  # type: ignore[operator]


def operations(x: Symbol) -> None:
    assert_type(ops.softmax(x, axis=-1), Symbol)
    assert_type(ops.top_k(x, 2), tuple[Symbol, Symbol])
    assert_type(ops.onnx.Relu(x), Symbol)
    ops.sotfmax(x)  # type: ignore[attr-defined]
    ops.softmax(x, axes=-1)  # type: ignore[call-arg]
    ops.softmax("x")  # type: ignore[arg-type]
    ops.Any  # type: ignore[attr-defined]  # noqa: B018


def bits(x: Symbol) -> None:
    assert_type(x.bits[7:4], Symbol)
    assert_type(x.with_bits(7, 4, 1), Symbol)


def tensors(x: gc.Tensor, array: Floats) -> None:
    assert_type(x + 1, gc.Tensor)
    assert_type(1j * x, gc.Tensor)
    assert_type(x == 1, gc.Tensor)
    assert_type(x[0].sum(axis=0), gc.Tensor)
    assert_type(x.bits[7:4].cast("int32").real, gc.Tensor)
    assert_type(xp.exp(x), gc.Tensor)
    assert_type(xp.add(x, array), gc.Tensor)
    assert_type(xp.linalg.solve(x, x), gc.Tensor)
    assert_type(xp.linalg.qr(x).Q, gc.Tensor)
    x.nothing  # type: ignore[attr-defined]  # noqa: B018


def loops(x: Symbol, pairs: list[Symbol], named: dict[str, Symbol]) -> None:
    def halved(i: Symbol, y: Symbol) -> tuple[Symbol, Symbol]:
        return i + 1, y / 2

    def below(i: Symbol, y: Symbol) -> Symbol:
        return i < 3

    def added(state: Symbol, y: Symbol) -> tuple[Symbol, Symbol]:
        return state + y, state

    assert_type(ops.while_loop(below, halved, (0, x)), tuple[Symbol, Symbol])
    assert_type(ops.while_loop(below, halved, pairs), list[Symbol])
    assert_type(ops.while_loop(below, halved, named), dict[str, Symbol])
    assert_type(ops.for_loop(3, lambda i, y: y * i, x), Symbol)
    assert_type(ops.while_loop(lambda y: y < 3, lambda y: y + 1, 0), Symbol)
    assert_type(ops.for_loop(3, added, x, collect=True), tuple[Symbol, Symbol])
    assert_type(ops.scan(added, 0.0, x), tuple[Symbol, Symbol])
    assert_type(ops.cond(x > 0, lambda: x, lambda: -x), Symbol)
    assert_type(ops.cond(x > 0, added, added, x, x), tuple[Symbol, Symbol])
    assert_type(ops.split(x, 2), tuple[Symbol, ...])


@gc.jit
def scaled(x: Symbol, times: int = 2) -> Symbol:
    return x * times


@gc.jit(promotion="anvil")
def both(x: Symbol) -> tuple[Symbol, Symbol]:
    return x, -x


def compiled(array: Floats, x: Symbol) -> None:
    assert_type(scaled(array), np.ndarray[Any, Any])
    assert_type(scaled(array, times=3), np.ndarray[Any, Any])
    assert_type(scaled(x), Symbol)
    assert_type(scaled.function(x, times=3), Symbol)
    assert_type(both(array), tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]])


@gc.function
def gated(x: Symbol, w: Symbol, *, times: float = 1.0) -> Symbol:
    return ops.silu(x @ w) * x * times


@gc.custom_op("user.domain::Clamp", promote="arithmetic")
def clamp(x: TensorType, *, most: float = 1.0) -> TensorType:
    return TensorType(x.dtype, x.shape)


@clamp.python
def clamped(x: Floats, *, most: float) -> Floats:
    return np.minimum(x, np.float32(most))


def decorated(x: Symbol, array: Floats, plain: gc.Function, declared: gc.CustomOp) -> None:
    assert_type(gated(x, x, times=2.0), Symbol)
    gated(x)  # type: ignore[call-arg]
    gated(x, x, tmies=2.0)  # type: ignore[call-arg]
    assert_type(clamp(x, most=2.0), Symbol)
    assert_type(clamped(array, most=1.0), Floats)
    plain(x)
    declared(x)


def standard(x: Symbol, values: xp.Array) -> None:
    assert_type(xp.exp(x), Symbol)
    assert_type(xp.exp(values), xp.Array)
    assert_type(xp.add(values, 1), xp.Array)
    assert_type(xp.add(values, 1j), xp.Array)
    assert_type(xp.add(values, x), Symbol)
    assert_type(values + 1, xp.Array)
    assert_type(values + x, Symbol)
    assert_type(xp.concat([x, x]), Symbol)
    assert_type(xp.zeros((2, 3)), xp.Array)
    assert_type(xp.asarray([1.0]), xp.Array)
    assert_type(xp.linalg.qr(values).Q, xp.Array)
    assert_type(xp.unique_all(values).counts, xp.Array)
    xp.epx(x)  # type: ignore[attr-defined]
