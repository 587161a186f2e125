"""The meaning of programs: the graph that the library builds of one, and the reference of each of its steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphcoreError, LossyCastWarning, ShapeError
from tests.fuzz.programs import Input, Place, Program, Step
from tests.ops.test_sweep import assert_near, assert_same
from tests.support import promoted, reference
from tests.support.every.case import SIZES, VALUES, Operand
from tests.support.every_op import CASES
from tests.support.promoted import Refused, Value

Array = np.ndarray[Any, Any]

MOVES: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array], int]] = {
    "flip": (lambda x: x[::-1], lambda x: x[::-1], 1),
    "stride": (lambda x: x[..., ::2], lambda x: x[..., ::2], 1),
    "double": (lambda x: ops.concat([x, x], axis=-1), lambda x: np.concatenate([x, x], axis=-1), 1),
    "unsqueeze": (lambda x: ops.unsqueeze(x, 0), lambda x: x[None], 0),
    "row": (lambda x: x[0], lambda x: x[0], 2),
    "flat": (lambda x: ops.reshape(x, [-1]), lambda x: x.reshape(-1), 0),
    "turned": (lambda x: ops.transpose(x), lambda x: x.T, 2),
}
"""Of a move: what builds it, what it does to an array, and the least rank."""


class Wrong(Exception):
    """What a program gave is not what its reference says."""


@dataclass(slots=True)
class Made:
    """A step that was built. results: its Symbols. value: the expected one, where the promotion rules tell."""

    at: int
    step: Step
    results: tuple[Symbol, ...]
    value: Value | None
    first: int = 0
    """The place of its first result among the outputs."""


@dataclass(slots=True)
class Built:
    graph: Graph
    arrays: list[Array]
    values: dict[int, tuple[Symbol, Value]]
    results: list[Made] = field(default_factory=list)
    refused: int = 0
    near: bool = False
    """A step is right within a tolerance, so that what follows from it is not known to the bit."""


def named(dtype: str) -> DType:
    attribute = getattr(DType, dtype)
    assert isinstance(attribute, DType)
    return attribute


def array_of(value: Input) -> Array:
    kind, _, rest = value.values.partition(" ")
    if kind == "case":
        name, at = rest.split()
        return CASES[name].operands[int(at)].array(value.dtype, value.seed)
    return Operand(value.dims, kind).array(value.dtype, value.seed)


assert {"any", "whole"} <= VALUES.keys()


def built(program: Program) -> Built:
    """Return the graph of a program. Raises `Wrong` where the library refuses what it promises, or takes what not."""
    types = {f"x{i}": TensorType(o.dtype, Operand(o.dims).shape) for i, o in enumerate(program.inputs)}
    graph = Graph("drawn", types, promotion=program.promotion)
    arrays = [array_of(element) for element in program.inputs]
    values = {
        i: (symbol, Value(array, element.dtype))
        for i, (symbol, array, element) in enumerate(zip(graph.inputs, arrays, program.inputs, strict=True))
    }
    result = Built(graph, arrays, values)
    with graph, warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        for i, step in enumerate(program.steps):
            if step is not None:
                _add(result, program, len(program.inputs) + i, step)
    count = 0
    for item in result.results:
        item.first = count
        count += len(item.results)
    if count:
        graph.output(**{f"y{item.at}_{j}": s for item in result.results for j, s in enumerate(item.results)})
    return result


def _add(to: Built, program: Program, at: int, step: Step) -> None:
    if any(isinstance(o, Place) and o.at not in to.values for o in step.operands):
        return  # of a step that was left out or refused
    results = [to.values[o.at] if isinstance(o, Place) else o for o in step.operands]
    symbols: list[Any] = [v[0] if isinstance(v, tuple) else v for v in results]
    items: list[Any] = [v[1] if isinstance(v, tuple) else v for v in results]
    if step.kind == "case":
        _add_case(to, at, step, symbols)
        return
    function: Callable[..., Any]
    want: Value | Refused | None
    if step.kind == "move":
        call, move, rank = MOVES[step.name]
        (value,) = items
        assert isinstance(value, Value)
        if value.array.ndim < rank or value.ambiguous or value.array.size > 512 or value.dtype.is_complex:
            return  # max has no complex numbers to put beside each other
        function, want = call, replace(value, array=move(value.array), unsure=np.zeros((), bool))
    else:
        function = promoted.OPS[step.name]
        if step.name == "cast":
            symbols[1] = items[1] = named(str(items[1]))
        want = _outcome(program.promotion, step.name, items)
        if want is None:
            return
    try:
        symbol = _wrapped(step.wrap, function, symbols)
    except GraphcoreError as error:
        if isinstance(want, Refused) or isinstance(error, ShapeError) or step.wrap:
            to.refused += 1
            return
        raise Wrong(f"{step!r} is refused: {error.summary}") from error
    if isinstance(want, Refused):
        raise Wrong(f"{step!r} is allowed, and should be {want.error.__name__}")
    assert want is not None
    if symbol.dtype is not want.dtype:
        raise Wrong(f"{step!r} is {symbol.type}, not {want.dtype}")
    to.results.append(Made(at, step, (symbol,), want))
    to.values[at] = (symbol, want)


def _outcome(system: str, op: str, expected: Sequence[Any]) -> Value | Refused | None:
    values = [v for v in expected if isinstance(v, Value)]
    if not values or any(v.dtype not in promoted.DTYPES[system] for v in values):
        return None
    if op == "where" and (not isinstance(expected[0], Value) or expected[0].dtype is not DType.bool):
        return None
    try:
        np.broadcast_shapes(*(v.array.shape for v in values))
    except ValueError:
        return None
    with np.errstate(all="ignore"):
        return promoted.outcome(system, op, expected)


def _add_case(to: Built, at: int, step: Step, symbols: Sequence[Any]) -> None:
    case = CASES[step.name]
    try:
        if step.wrap:
            result = _wrapped(step.wrap, case.call, symbols)
        else:
            result = case.call(*symbols)
    except GraphcoreError as error:
        if step.wrap:
            to.refused += 1
            return
        raise Wrong(f"{step!r} is refused: {error.summary}") from error
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    to.near |= case.near
    to.results.append(Made(at, step, results, None))
    dims = results[0].shape
    if all(not d.is_dynamic and d.parameters <= SIZES.keys() for d in dims):
        array = np.zeros([d.evaluate(SIZES) for d in dims], results[0].dtype.numpy)
        to.values[at] = (results[0], Value(array, results[0].dtype))


def _wrapped(wrap: str, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Return the results of a function of operands, in a body."""
    if wrap == "cond":
        chooser = _flag(operands)
        if chooser is None:
            return function(*operands)
        return ops.cond(chooser, lambda: function(*operands), lambda: function(*operands))
    if wrap == "function":
        return gc.function(lambda *symbols: function(*_filled(operands, symbols)))(
            *(o for o in operands if isinstance(o, Symbol))
        )
    if wrap == "loop":
        start = function(*operands)
        return ops.for_loop(2, lambda i, x: function(*operands), start)
    return function(*operands)


def _flag(operands: Sequence[Any]) -> Symbol | None:
    """Return a truth that only the run knows."""
    first = next((o for o in operands if isinstance(o, Symbol)), None)
    if first is None:
        return None
    return ops.shape_of(ops.reshape(first, [-1]))[0] > 7


def _filled(operands: Sequence[Any], symbols: Sequence[Symbol]) -> list[Any]:
    remaining = iter(symbols)
    return [next(remaining) if isinstance(o, Symbol) else o for o in operands]


def check(program: Program, of: Built, results: Sequence[Array]) -> None:
    """Check each step against its reference, on what the graph itself gave as its operands. Raises `Wrong`."""
    arrays: dict[int, Array] = dict(enumerate(of.arrays))
    for item in of.results:
        got = results[item.first : item.first + len(item.results)]
        try:
            _check_step(program, of, item, got, arrays)
        except BaseException as error:  # pytest's failures are not Exceptions
            if isinstance(error, KeyboardInterrupt):
                raise
            raise Wrong(f"{item.step!r}: {error}") from None
        arrays[item.at] = got[0]


def _check_step(program: Program, of: Built, actual: Made, got: Sequence[Array], arrays: dict[int, Array]) -> None:
    step = actual.step
    if step.kind == "case":
        case = CASES[step.name]
        operands = [arrays[o.at] for o in step.operands if isinstance(o, Place)]
        first = step.operands[0] if step.operands else None
        dtype = _case_dtype(program, step) if isinstance(first, Place) else got[0].dtype
        for symbol, result, want in zip(actual.results, got, case.wanted(dtype, operands), strict=True):
            assert_promised(step.name, symbol.dtype, result, want, operands)
        return
    results: list[Any] = []
    for operand in step.operands:
        if isinstance(operand, Place):
            results.append(replace(of.values[operand.at][1], array=arrays[operand.at], unsure=np.zeros((), bool)))
        else:
            results.append(named(operand) if step.name == "cast" and isinstance(operand, str) else operand)
    with np.errstate(all="ignore"):
        if step.kind == "move":
            value: Value = replace(results[0], array=MOVES[step.name][1](results[0].array))
        else:
            value = promoted.compute(program.promotion, step.name, results)
    assert got[0].shape == value.array.shape, f"shape {got[0].shape}, not {value.array.shape}"
    promoted.assert_value(step.name, actual.results[0], got[0], value)


def assert_promised(name: str, dtype: DType, got: Array, want: Array, operands: Sequence[Array]) -> None:
    """Check a result of a case by docs/numbers.md: exact, or near.

    Zeros are equal whatever their signs where the larger or the smaller of two is asked for. A near number below the
    normal ones may be the next one, and norms with a shift and recurrent layers are near by the terms that they add.
    """
    if not (CASES[name].near and dtype.is_float):
        extreme = "max" in name or "min" in name or name in ("clip", "top_k", "bottom_k")
        assert_same("max" if extreme else name, got, want, *operands)
        return
    if dtype in reference.FORMATS:
        mantissa, least, _ = reference.FORMATS[dtype]
        a, b = reference.exact(got), reference.exact(want)
        with np.errstate(invalid="ignore"):
            next_one = np.abs(a - b) <= np.ldexp(np.longdouble(1), least - mantissa)
        got = np.where(next_one, want, got)
    if name in _NORMS or name in _RECURRENT:
        with np.errstate(invalid="ignore"):
            close = np.abs(reference.exact(got) - reference.exact(want)) <= _greatest_term(name, operands) * 2.0**-22
        got = np.where(close, want, got)
    assert_near(name, got, want, dtype, 4 if dtype is DType.float32 else 1)


_NORMS = ("instance_norm", "group_norm", "batch_norm", "layer_norm")
"""Norms that kernels compute as x times a factor, plus a shift, or with a mean rounded to float32."""
_RECURRENT = ("rnn", "gru", "lstm")


def _greatest_term(name: str, operands: Sequence[Array]) -> float:
    """Return the greatest of the terms that such an op adds; of the steps of a layer together."""
    if name in _RECURRENT:
        x, w, r, *shifts = (np.abs(np.asarray(array, np.float64)) for array in operands)
        gates = x @ w.T + r.sum(-1) + sum(shifts)  # a state is at most 1
        return float(len(x) * gates.max(initial=0))
    x, scale, shift, *moments = (np.asarray(array, np.float64) for array in operands)
    if name == "batch_norm":
        mean, variance = moments
        deviation = np.sqrt(variance + 1e-5)
    else:
        groups = 2 if name == "group_norm" else x.shape[1]
        rows = x if name == "layer_norm" else x.reshape(len(x), groups, -1)
        mean, deviation = rows.mean(-1), np.sqrt(rows.var(-1) + 1e-5)
    steepest = np.abs(scale).max(initial=0) / deviation.min(initial=np.inf)
    return float(np.abs(shift).max(initial=0) + steepest * (np.abs(x).max(initial=0) + np.abs(mean).max(initial=0)))


def _case_dtype(program: Program, step: Step) -> DType:
    """Return the dtype of a case: of the first of its operands that has none of its own."""
    case = CASES[step.name]
    for operand, place in zip(case.operands, step.operands, strict=True):
        if operand.dtype is None and isinstance(place, Place):
            return program.inputs[place.at].dtype
    return DType.float32


__all__ = ["Built", "Wrong", "assert_promised", "built", "check"]
