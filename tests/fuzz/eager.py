"""Eager Tensors against graphs: each step of a program once more, on what the graph gave as its operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, TensorType
from graphcore.errors import GraphcoreError
from tests.fuzz.meaning import MOVES, Array, Built, Made, Wrong, named
from tests.fuzz.programs import UNWRAPPED, Place, Program
from tests.support import promoted, reference
from tests.support.every_op import CASES

LIMIT = 512
"""Elements of an operand: gc.tensor of a larger one takes as long, and tells no more."""


def compared(program: Program, of: Built, results: Sequence[Array]) -> int:
    """Return the number of results that Tensors gave too. Raises `Wrong` for another dtype, ambiguity, shape or
    number."""
    count = 0
    values: dict[int, tuple[Array, DType, bool]] = {
        i: (array, element.dtype, False)
        for i, (array, element) in enumerate(zip(of.arrays, program.inputs, strict=True))
    }
    for item in of.results:
        got = results[item.first : item.first + len(item.results)]
        tensors = _computed(program, item, values)
        symbol = item.results[0]
        if isinstance(symbol.type, TensorType) and isinstance(got[0], np.ndarray):
            values[item.at] = got[0], symbol.dtype, symbol.ambiguous
        for tensor, result, its in zip(tensors or (), got, item.results, strict=False):
            if not isinstance(tensor, gc.Tensor) or not isinstance(result, np.ndarray):
                continue
            if (tensor.dtype, tensor.ambiguous) != (its.dtype, its.ambiguous):
                raise Wrong(f"eager: {item.step!r} is {tensor.type}, and {its.type} in a graph")
            _assert_same(item, np.asarray(tensor.numpy()), result)
            count += 1
    return count


def _computed(program: Program, value: Made, values: dict[int, tuple[Array, DType, bool]]) -> list[Any] | None:
    """Return the results of Tensors; None if they do not have the step."""
    step = value.step
    if step.kind == "case" and step.name in UNWRAPPED:
        return None
    operands: list[Any] = []
    for operand in step.operands:
        if not isinstance(operand, Place):
            operands.append(named(operand) if isinstance(operand, str) else operand)
            continue
        if operand.at not in values or values[operand.at][0].size > LIMIT:
            return None
        array, dtype, ambiguous = values[operand.at]
        operands.append(gc.tensor(array, dtype, promotion=program.promotion, ambiguous=ambiguous))
    if not any(isinstance(o, gc.Tensor) for o in operands):
        return None
    try:
        if step.kind == "case":
            result = CASES[step.name].call(*operands)
        elif step.kind == "move":
            result = MOVES[step.name][0](*operands)
        else:
            result = promoted.OPS[step.name](*operands)
    except (GraphcoreError, AttributeError) as error:
        if step.kind == "case":
            return None  # of Symbols alone: their graph is asked for, or its dims
        raise Wrong(f"eager: {step!r} is refused: {error}") from error
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _assert_same(result: Made, got: Array, want: Array) -> None:
    if got.dtype != want.dtype or got.shape != want.shape:
        raise Wrong(f"eager: {result.step!r} is {got.dtype}{got.shape}, and {want.dtype}{want.shape} in a graph")
    if want.dtype.kind in "OUSc":
        return
    a, b = reference.exact(got), reference.exact(want)
    with np.errstate(invalid="ignore", over="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if result.step.kind == "case" and DType.of(want.dtype).is_float:
            same |= np.abs(a - b) <= 1e-2 * np.abs(b) if want.dtype.itemsize < 4 else np.abs(a - b) <= 1e-5 * np.abs(b)
    if not same.all():
        raise Wrong(f"eager: {result.step!r} is {a[~same][0]}, and {b[~same][0]} in a graph")


__all__ = ["compared"]
