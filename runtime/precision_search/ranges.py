"""Why layers cannot compute in a narrow dtype: overflow, underflow or cancellation, by the ranges of their values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from graphcore.arrays.casting import Array, cast_array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.ir.transform.walk import bodies, constant_array, walk
from graphcore.runtime.precision_search.trials import Assignment, Trials
from graphcore.runtime.quantizer.layers.replacing import is_float, is_float32
from graphcore.types.dtypes import DType

_SUMS = frozenset({"Add", "Mean", "ReduceMean", "ReduceSum", "Sub", "Sum", "SumOfTerms"})
"""Operators of which small results of large operands have lost digits."""

_LOST_SHARE = 0.01
"""The share of numbers that become 0 from which a value is called underflown, though its length may not show it."""


@dataclass(slots=True)
class _Range:
    """The range of a value over all samples. low: the least number other than 0, and high the greatest, without signs.

    zeros: how many of `count` numbers become 0 in the narrow dtype. lost: the square of the change by rounding.
    """

    low: float = math.inf
    high: float = 0.0
    squares: float = 0.0
    lost: float = 0.0
    zeros: int = 0
    count: int = 0

    def add(self, array: Array, dtype: DType) -> None:
        """Add the numbers of a float32 array."""
        numbers = np.abs(array[array != 0]).astype(np.float64)
        self.count += array.size
        if not numbers.size:
            return
        rounded = cast_array(numbers.astype(np.float32), DType.float32, dtype).astype(np.float64)
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        self.squares += float(np.square(numbers).sum())
        self.zeros += int((rounded == 0).sum())
        self.lost += float(np.square(np.where(np.isfinite(rounded), rounded, 0) - numbers).sum())

    @property
    def mean(self) -> float:
        """The root of the mean square."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0


def reasons(trials: Trials, units: Sequence[int], dtype: DType) -> dict[int, str]:
    """Return by unit why it does not compute in a dtype, with the ranges that its values have on the samples."""
    nodes = [node for u in units for node in trials.units[u].nodes]
    values = {id(s): s for node in nodes for s in (*node.inputs, *node.outputs) if s is not None and is_float32(s)}
    ranges = _measured(trials, values, dtype)
    return {u: _reason(trials.units[u].nodes, ranges, dtype) for u in units}


def _measured(trials: Trials, values: Mapping[int, Symbol], dtype: DType) -> dict[int, _Range]:
    """Return the ranges of values by `id`. Those in bodies, which no output reaches, have none."""
    ranges = {number: _Range() for number in values}
    for number, symbol in values.items():
        array = constant_array(symbol, weights=True, outer=True)
        if array is not None:
            ranges[number].add(array, dtype)
    watched = [s for number, s in values.items() if s.graph is trials.graph and not ranges[number].count]
    if watched:
        graph = copied(trials.graph)
        graph.build.outputs([(f"range.{s.id}", graph.symbols[s.id]) for s in watched])
        model = trials.session.load(graph)
        for arrays, named in trials.runs:
            for symbol, array in zip(watched, model(*arrays, **named), strict=True):
                ranges[id(symbol)].add(np.asarray(array), dtype)
    return {number: each for number, each in ranges.items() if each.count}


def _reason(nodes: Sequence[Node], ranges: Mapping[int, _Range], dtype: DType) -> str:
    """Return the worst that happens to the values of some nodes in a dtype."""
    limits = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    worst, text = 4 * float(limits.eps), f"rounding: {dtype} has {limits.nmant + 1} bits"
    if not any(id(symbol) in ranges for node in nodes for symbol in node.outputs):
        return "its values are in a body, and not measured"
    for node in nodes:
        pairs = [(s, ranges[id(s)]) for s in (*node.outputs, *node.inputs) if s is not None and id(s) in ranges]
        for symbol, each in pairs:
            name = f"{'gives' if symbol.producer is node else 'reads'} {symbol.name}"
            if each.high > float(limits.max):
                return f"overflow: {node.op_type} {name} up to {each.high:.3g}, {dtype} ends at {float(limits.max):.5g}"
            share = each.zeros / each.count
            lost = math.sqrt(each.lost / each.squares) if each.squares else 0.0
            lost = max(lost, share if share >= _LOST_SHARE else 0.0)
            if lost > worst:
                worst, least = lost, float(limits.smallest_subnormal)
                text = f"underflow: {node.op_type} {name} down to {each.low:.3g}, {share:.0%} of it becomes 0; "
                text += f"{dtype} starts at {least:.2g}"
        if node.op_type in _SUMS and id(node.outputs[0]) in ranges:
            result = ranges[id(node.outputs[0])]
            high, mean = max(((r.high, r.mean) for _, r in pairs[1:]), default=(0.0, 0.0))
            lost = mean / result.mean * float(limits.eps) if result.mean else 0.0
            if lost > worst:
                worst, sums = lost, f"{node.op_type} of numbers up to {high:.3g}"
                text = f"cancellation: {sums} gives {node.outputs[0].name} up to {result.high:.3g}"
    return text


def evidence(trials: Trials, assignment: Assignment) -> list[str]:
    """Return for each unit "proved" if nothing in it can overflow, "measured" if nothing does, "" if it is wide."""
    proved = _proved(trials, assignment)
    return [
        "" if precision.dtype is None else "proved" if proved.issuperset(map(id, unit.nodes)) else "measured"
        for unit, precision in zip(trials.units, assignment, strict=True)
    ]


def _proved(trials: Trials, assignment: Assignment) -> set[int]:
    """Return the ids of the nodes of which no value can overflow, for inputs within the ranges of the samples.

    Bounds are those of weights of floats: nodes from the first quantised weight on have no proof.
    """
    graph = trials.narrow(assignment)
    olds, news = _computing(trials.graph), _computing(graph)
    if [node.op_type for node in olds] != [node.op_type for node in news]:
        return set()
    inputs: dict[str, tuple[float, float]] = {}
    for name, array in (pair for feeds in trials.feeds() for pair in feeds.items()):
        numbers = np.asarray(array)
        if numbers.size and numbers.dtype.kind not in "OUSc":
            low, high = inputs.get(name, (math.inf, -math.inf))
            inputs[name] = min(low, float(numbers.min())), max(high, float(numbers.max()))
    bounds = graph.bounds(inputs, dims=trials.dims())
    quantized = {number for number, precision in trials.precisions(assignment).items() if precision.scheme}
    reached: set[int] = set()
    for node in trials.graph.nodes:
        inner = [id(each) for each in (node, *(each for body in bodies(node) for each in walk(body)))]
        if not quantized.isdisjoint(inner):
            break
        reached.update(inner)
    for old, new in zip(olds, news, strict=True):
        floats = [s for s in (*new.inputs, *new.outputs) if s is not None and is_float(s)]
        if not all(bounds.proves(s, s.dtype).no_overflow for s in floats):
            reached.discard(id(old))
    return reached


def _computing(graph: Graph) -> list[Node]:
    """Return the nodes of a graph that conversions of dtypes neither add nor remove, in order."""
    return [node for node in walk(graph) if node.op_type not in ("Cast", "Identity")]
