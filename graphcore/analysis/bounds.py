"""Bounds of every value of a graph, by interval arithmetic: see `Graph.bounds`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count, repeat
from typing import NamedTuple

import numpy as np

from graphcore.arrays.casting import cast_array
from graphcore.arrays.evaluate import FOLDED, folded
from graphcore.build.declare import LIBRARY
from graphcore.errors import DTypeError, GraphError
from graphcore.ir.definitions import definition_of, dims_of
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Constant, Node, Symbol, root_of
from graphcore.ir.transform.intervals import Format, Interval, format_of, interval_of
from graphcore.ir.transform.ranges import Array, Call, numbers_of, results_of
from graphcore.ir.transform.walk import bodies, constant_array
from graphcore.operators import Trait, having
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_MAX_BYTES = 1 << 28
_MOVES = having(Trait.MOVES, Trait.JOINS)


class Proof(NamedTuple):
    """Properties of a value in a dtype that bounds prove. False: not proved.

    Attributes:
        no_overflow: No element is infinite, NaN, or beyond the largest number.
        no_underflow: No element that is not 0 becomes 0 or a subnormal number.
    """

    no_overflow: bool
    no_underflow: bool


class Bounds(Mapping["Symbol | str", Interval]):
    """The intervals of the values of a graph, its bodies and its functions, by Symbol or by name.

    Values of a body that runs several times, and of a function, have one interval for all runs and calls. Strings,
    sequences and complex numbers have none.
    """

    def __init__(self, graph: Graph, intervals: Mapping[Symbol, Interval]) -> None:
        self._graph, self._intervals = graph, intervals
        self._names = {name: symbol for name, symbol in graph.named_outputs if name}
        # Bodies may have names of the graph.
        for symbol in sorted(intervals, key=lambda symbol: symbol.graph is not graph):
            self._names.setdefault(symbol.name, symbol)

    def _symbol(self, key: Symbol | str) -> Symbol:
        if isinstance(key, str):
            key = self._names[key] if key in self._names else self._graph[key]
        return root_of(key)

    def __getitem__(self, key: Symbol | str) -> Interval:
        symbol = self._symbol(key)
        if symbol not in self._intervals:
            raise GraphError(
                f"bounds: {key if isinstance(key, str) else key.name!r} has no bounds: {symbol.type}",
                help="use a tensor of numbers of this graph",
            )
        return self._intervals[symbol]

    def __contains__(self, key: object) -> bool:
        return key in self._names or (isinstance(key, Symbol) and root_of(key) in self._intervals)

    def __iter__(self) -> Iterator[Symbol]:
        return iter(self._intervals)

    def __len__(self) -> int:
        return len(self._intervals)

    def __repr__(self) -> str:
        unknown = sum(interval.magnitude == math.inf for interval in self.values())
        return f"<Bounds of {len(self)} values, {unknown} of them unbounded>"

    def proves(self, value: Symbol | str, dtype: object) -> Proof:
        """Return the faults of rounding a value to a float dtype that are proved absent.

        Args:
            value: A Symbol or a name.
            dtype: Anything that `DType.of` accepts.

        Raises:
            GraphError: The value has no bounds.
            DTypeError: The dtype is not a float dtype.
        """
        numbers = _float_format(dtype)
        interval, producer = self[value], self._symbol(value).producer
        if isinstance(producer, Constant):  # whose elements tell more than their ends
            sizes = np.abs(producer.array.astype(np.float64))
            return Proof(bool((sizes <= numbers.largest).all()), bool(((sizes == 0) | (sizes >= numbers.tiny)).all()))
        is_inside = numbers.least <= interval.low and interval.high <= numbers.largest
        is_apart = interval.low >= numbers.tiny or interval.high <= -numbers.tiny or interval.magnitude == 0
        return Proof(is_inside and not interval.may_be_nan, is_apart and not interval.may_be_nan)


@method(Graph)
def bounds(
    self: Graph,
    inputs: Mapping[str, tuple[float, float]] | None = None,
    dtype: object = None,
    *,
    dims: Mapping[str, int] | None = None,
) -> Bounds:
    """Return bounds of every value of the graph, for all inputs within ranges.

    The bounds hold with the rounding of each result, sums in any order, and the error of kernels in docs/numbers.md.
    They are loose in deep networks. Operators without a rule have unknown results. Norms, attention
    and recurrent layers keep their inner values in float32 at least, and norms subtract the mean before they square.
    Every axis is assumed to have elements.

    Args:
        inputs: `(low, high)` by name of the input. Other inputs may be any number of their dtype, infinite or NaN.
        dtype: A float dtype. The bounds are those of the graph with all floats computed in it: weights are rounded, to
            its largest number where they are beyond it. By default each value is computed in its own dtype.
        dims: The largest sizes of named dims. A sum over an axis of unknown size is unbounded.

    Raises:
        GraphError: A range belongs to no input, or is not two numbers in ascending order.
        DTypeError: The dtype is not a float dtype.

    Example:
        bounds = graph.bounds({"x": (-1, 1)}, "float16")
        low, high = bounds["y"]
        bounds.proves("y", "float16").no_overflow
    """
    numbers = None if dtype is None else _float_format(dtype)
    ranges = {}
    for name, ends in (inputs or {}).items():
        symbol = next((s for s in self.input_symbols if s.given_name == name), None)
        try:
            low, high = map(float, ends)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        if symbol is None or not low <= high:
            what = "the graph has no such input" if symbol is None else f"{ends!r:.80} is not an interval"
            raise GraphError(
                f"bounds: inputs[{name!r}]: {what}",
                help="give (low, high) with low <= high for inputs of the graph: "
                + ", ".join(s.name for s in self.input_symbols),
            )
        ranges[symbol] = Interval(low, high)
    analysis = _Analysis(numbers, {name: float(size) for name, size in (dims or {}).items()})
    analysis.run(self, [ranges.get(symbol) for symbol in self.input_symbols])
    return Bounds(self, analysis.intervals)


def _float_format(dtype: object) -> Format:
    """Return the numbers of a float dtype. Raises `DTypeError`."""
    numbers = format_of(DType.of(dtype))
    if numbers is None or not numbers.precision:
        raise DTypeError(f"bounds: {DType.of(dtype)} is not a float dtype", help='use for example "float16"')
    return numbers


class _Analysis:
    """The bounds of one graph.

    numbers: those of all floats, if they have one dtype. dims: the sizes of named dims, or as floats their largest
    ones. intervals: over all runs of a body. now: of the last run. arrays: constants that nodes and calls pass on.
    """

    def __init__(self, numbers: Format | None, dims: Mapping[str, float]) -> None:
        self.numbers, self.dims = numbers, dims
        self.intervals: dict[Symbol, Interval] = {}
        self.now: dict[Symbol, Interval] = {}
        self.arrays: dict[Symbol, Array | None] = {}

    def run(self, graph: Graph, inputs: Sequence[Interval | None]) -> list[Interval | None]:
        """Bound the values of a graph, and return the intervals of its outputs. Inputs that are None are unknown."""
        for symbol, interval in zip(graph.input_symbols, inputs, strict=True):
            self._put(symbol, interval)
        for node in graph.nodes:
            for symbol, interval in zip(node.outputs, chain(self._results(node), repeat(None)), strict=False):
                self._put(symbol, interval)
        return [self._of(symbol) for symbol in graph.outputs]

    def _format(self, symbol: Symbol) -> Format | None:
        numbers = numbers_of(symbol)
        return self.numbers if self.numbers and numbers and numbers.dtype.is_float else numbers

    def _put(self, symbol: Symbol, interval: Interval | None) -> None:
        numbers = self._format(symbol)
        if numbers is not None:
            interval = numbers.whole if interval is None else numbers.enclose(interval)
            self.now[symbol] = interval
            self.intervals[symbol] = self.intervals.get(symbol, interval) | interval

    def _of(self, symbol: Symbol | None) -> Interval | None:
        if symbol is None:
            return None
        symbol = root_of(symbol)
        array, numbers = constant_array(symbol, weights=True), self._format(symbol)
        if array is not None and numbers is not None and symbol not in self.now:
            interval = interval_of(array)
            if interval is not None and not interval.is_infinite:
                interval = Interval(*np.clip([*interval], numbers.least, numbers.largest))
            self._put(symbol, interval)
        return self.now.get(symbol)

    def _elements(self, symbol: Symbol | None) -> Array | None:
        """Return the elements of a constant in its own dtype; None for other values."""
        array = constant_array(symbol, weights=True, outer=True)
        return self.arrays.get(root_of(symbol)) if array is None and symbol is not None else array

    def _array(self, symbol: Symbol | None) -> Array | None:
        """Return the elements of a constant after rounding to the dtype of floats; None for other values."""
        array = self._elements(symbol)
        if symbol is None or array is None or array.dtype == object or self._format(symbol) is None:
            return None
        if self.numbers is not None and symbol.dtype.is_float:
            rounded = cast_array(array, symbol.dtype, self.numbers.dtype)
            limit = np.asarray(self.numbers.largest, rounded.dtype)
            exceeds = np.isinf(rounded) & np.isfinite(array)
            array = np.where(exceeds, np.copysign(limit, rounded), rounded) if exceeds.any() else rounded
        is_single = symbol.dtype.is_float and symbol.dtype.bits < 64 and array.ndim > 1
        return array.astype(np.float32 if is_single else np.float64)

    def _size(self, dim: Dim) -> float:
        return int(dim) if dim.is_static else self.dims.get(dim.name or "", math.inf)

    def _results(self, node: Node) -> Sequence[Interval | None]:
        operands = [self._of(symbol) for symbol in node.inputs]
        definition = definition_of(node)
        if definition is not None:
            return self._called(node, definition.body, operands)
        if node.op_type == "If" and not node.domain:
            return _joined(*(self.run(body, ()) for body in bodies(node)))
        if node.op_type in ("Loop", "Scan") and not node.domain:
            return self._repeated(node, operands)
        self.arrays[node.outputs[0]] = self._folded(node)
        numbers = self._format(node.outputs[0])
        if numbers is None or node.domain not in ("", LIBRARY):
            return ()
        arrays = dict(enumerate(node.inputs))
        return results_of(Call(node, operands, numbers, lambda i: self._array(arrays.get(i)), self._size))

    def _folded(self, node: Node) -> Array | None:
        """Return the elements of a result that has those of constants, or of integers that are computed from them."""
        arrays, type_ = [self._elements(operand) for operand in node.inputs], node.outputs[0].type
        is_known = all(a is not None or s is None for a, s in zip(arrays, node.inputs, strict=True))
        if not is_known or node.op_type not in FOLDED or not isinstance(type_, TensorType):
            return None
        if type_.dtype.is_float and node.op_type not in _MOVES:
            return None
        dtypes = [None if operand is None else operand.dtype for operand in node.inputs]
        return folded(node.op_type, arrays, dtypes, node.attributes, type_, _MAX_BYTES, any_nan=True)

    def _called(self, node: Node, body: Graph, operands: Sequence[Interval | None]) -> Sequence[Interval | None]:
        self.arrays.update(zip(body.input_symbols, map(self._elements, node.inputs), strict=True))
        outer, self.dims = self.dims, {name: self._size(dim) for name, dim in dims_of(node).items()}
        results = self.run(body, operands)
        self.dims = outer
        return results

    def _repeated(self, node: Node, operands: Sequence[Interval | None]) -> Sequence[Interval | None]:
        """Bound a Loop or Scan: states that grow twice are tried with a wide interval, then are unknown."""
        (body,) = bodies(node)
        is_loop = node.op_type == "Loop"
        end = len(operands) if is_loop else len(operands) - int(node.attributes["num_scan_inputs"])
        before: list[Interval | None] = [Interval(0.0, 2.0**62), None] if is_loop else []
        states, after = [*operands[2 * is_loop : end]], operands[end:]
        for attempt in count():
            results = self.run(body, [*before, *states, *after])[is_loop:]
            steps = _joined(states, results)
            if steps == states:
                break
            states = [new if new == old else _widened(new, attempt) for new, old in zip(steps, states, strict=True)]
        return [*states, *results[len(states) :]]


def _joined(*runs: Sequence[Interval | None]) -> list[Interval | None]:
    return [None if a is None or b is None else a | b for a, b in zip(*runs, strict=False)]


def _widened(state: Interval | None, attempt: int) -> Interval | None:
    """Return a state to try after one that grows: itself, then a wide one, then an unknown one."""
    if state is None or attempt > 1:
        return None
    wide = 2 * max(state.magnitude, 1.0)
    return Interval(-wide, wide, state.may_be_nan) if attempt else state
