"""Why layers cannot compute in a narrow dtype: overflow, underflow or cancellation, by the ranges of their values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from graphcore.arrays.casting import Array, cast_array
from graphcore.ir.symbol import Node
from graphcore.ir.transform.walk import bodies, constant_array, walk
from graphcore.runtime.precision_search.trials import Assignment, Trials
from graphcore.runtime.quantizer.layers.replacing import is_float, is_float32, values_on
from graphcore.runtime.quantizer.mixed_precision import ratio
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
        rounded = cast_array(numbers.astype(np.float32), DType.float32, dtype).astype(np.float64)
        self.count += array.size
        self.low = min(self.low, float(numbers.min(initial=math.inf)))
        self.high = max(self.high, float(numbers.max(initial=0)))
        self.squares += float(np.square(numbers).sum())
        self.zeros += int((rounded == 0).sum())
        self.lost += float(np.square(np.where(np.isfinite(rounded), rounded, 0) - numbers).sum())

    @property
    def mean(self) -> float:
        """The root of the mean square."""
        return math.sqrt(self.squares / self.count)


def reasons(trials: Trials, units: Sequence[int], dtype: DType) -> dict[int, str]:
    """Return by unit why it does not compute in a dtype, with the ranges that its values have on the samples."""
    nodes = [node for u in units for node in trials.units[u].nodes]
    values = {id(s): s for node in nodes for s in (*node.inputs, *node.outputs) if s is not None and is_float32(s)}
    ranges = {number: _Range() for number in values}
    watched = []
    for number, symbol in values.items():
        array = constant_array(symbol, weights=True, outer=True)
        if array is not None:
            ranges[number].add(array, dtype)
        elif symbol.graph is trials.graph:  # no output reaches those in bodies
            watched.append(symbol)
    for symbol, array in values_on(trials.graph, watched, trials.runs, trials.session):
        ranges[id(symbol)].add(array, dtype)
    measured = {number: each for number, each in ranges.items() if each.count}
    return {u: max(_faults(trials.units[u].nodes, measured, dtype), key=lambda fault: fault[0])[1] for u in units}


def _faults(nodes: Sequence[Node], ranges: Mapping[int, _Range], dtype: DType) -> Iterator[tuple[float, str]]:
    """Yield the faults of the values of some nodes in a dtype, each after the relative change that it causes."""
    limits = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    epsilon, greatest, least = map(float, (limits.eps, limits.max, limits.smallest_subnormal))
    yield 4 * epsilon, f"rounding: {dtype} has {limits.nmant + 1} bits"
    if not any(id(symbol) in ranges for node in nodes for symbol in node.outputs):
        yield math.inf, "its values are in a body, and not measured"
    for node in nodes:
        pairs = [(s, ranges[id(s)]) for s in (*node.outputs, *node.inputs) if s is not None and id(s) in ranges]
        for symbol, each in pairs:
            name = f"{node.op_type} {'gives' if symbol.producer is node else 'reads'} {symbol.name}"
            if each.high > greatest:
                yield math.inf, f"overflow: {name} up to {each.high:.3g}, {dtype} ends at {greatest:.5g}"
            share = each.zeros / each.count
            change = math.sqrt(ratio(each.lost, each.squares))
            zeros = f"underflow: {name} down to {each.low:.3g}, {share:.0%} of it becomes 0"
            yield max(change, share if share >= _LOST_SHARE else 0.0), f"{zeros}; {dtype} starts at {least:.2g}"
        if node.op_type in _SUMS and id(node.outputs[0]) in ranges:
            result = ranges[id(node.outputs[0])]
            high, mean = max(((each.high, each.mean) for _, each in pairs[1:]), default=(0.0, 0.0))
            sums = f"cancellation: {node.op_type} of numbers up to {high:.3g} gives {node.outputs[0].name}"
            yield mean / result.mean * epsilon if result.mean else 0.0, f"{sums} up to {result.high:.3g}"


def evidence(trials: Trials, assignment: Assignment) -> list[str]:
    """Return for each unit "proved" if nothing in it can overflow, "measured" if nothing does, "" if it is wide.

    Proofs hold for inputs within the ranges of the samples. They are of bounds with weights of floats: nodes from the
    first quantised weight on have none.
    """
    graph = trials.narrow(assignment)
    inputs: dict[str, tuple[float, float]] = {}
    for name, array in (pair for feed in trials.feeds() for pair in feed.items()):
        numbers = np.asarray(array)
        if numbers.size and numbers.dtype.kind not in "OUSc":
            low, high = inputs.get(name, (math.inf, -math.inf))
            inputs[name] = min(low, float(numbers.min())), max(high, float(numbers.max()))
    bounds = graph.bounds(inputs, dims=trials.dims())
    quantized = {number for number, precision in trials.precisions(assignment).items() if precision.scheme}
    proved: set[int] = set()
    for node in trials.graph.nodes:
        inner = [id(each) for each in (node, *(each for body in bodies(node) for each in walk(body)))]
        if not quantized.isdisjoint(inner):
            break
        proved.update(inner)
    # Conversions of dtypes neither add nor remove other nodes.
    olds, news = ([n for n in walk(g) if n.op_type not in ("Cast", "Identity")] for g in (trials.graph, graph))
    if [node.op_type for node in olds] != [node.op_type for node in news]:
        proved.clear()
    for old, new in zip(olds, news, strict=False):
        floats = [s for s in (*new.inputs, *new.outputs) if s is not None and is_float(s)]
        if not all(bounds.proves(s, s.dtype).no_overflow for s in floats):
            proved.discard(id(old))
    return [
        "" if precision.dtype is None else "proved" if proved.issuperset(map(id, unit.nodes)) else "measured"
        for unit, precision in zip(trials.units, assignment, strict=True)
    ]
