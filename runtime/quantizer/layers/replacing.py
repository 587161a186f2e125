"""Replace nodes of a graph by what reads encoded weights, and leave out weights that nothing else reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import GraphError
from graphcore.ir.definitions import unlike
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import nested
from graphcore.passes.merging import readers
from graphcore.passes.sweep import Selection, Sweep
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

Make: TypeAlias = "Callable[[Building, Inputs], Results]"


@dataclass(frozen=True, slots=True, eq=False)
class Replacement:
    """The replacement of a node. make: adds nodes to the new graph, and returns a Symbol for each of its results;
    None for one that nothing reads.

    weights: the positions of operands that it reads no more.
    """

    make: Make
    weights: tuple[int, ...]


class Building:
    """The new graph, and names for weights in it."""

    def __init__(self, graph: Graph, taken: set[str]) -> None:
        self.graph = graph
        self.kept: dict[object, Any] = {}
        """What was made for one node and serve others too, by a key."""
        self._taken = taken

    def constant(self, array: Array, name: str, like: Symbol) -> Symbol:
        """Return a constant that is called after a weight, of its origin."""
        held = np.require(array, requirements="C")
        type_ = tensor_type(DType.of(held.dtype), _shape([Dim(d) for d in held.shape]))
        own = unlike(name, self._taken)
        return self.graph.build.symbol(type_, Constant(held, False, like.producer.origin), own)


def replaced(graph: Graph, found: Mapping[int, Replacement], dropped: Set[int] | None = None) -> Graph:
    """Return a graph with other nodes for some. found: by the ids of nodes, those in bodies included.

    dropped: the ids of the weights that nothing reads any more; by default those that only replaced nodes read.
    """
    if dropped is None:
        dropped = {number for part in nested(graph) for number in _dropped(part, found)}
    made = _Replacing(graph, found, dropped).rewrite.run()
    return Sweep(made, Selection()).run()  # a Graph to build on: the rewrite's own does not look for the user's lines


class _Replacing(Policy[Rewrite]):
    """The policy of one graph, or of a body in it.

    Encoded weights are constants of the graph that reads them: onnxruntime refuses scales from outside of a body.
    """

    def __init__(
        self, graph: Graph, found: Mapping[int, Replacement], dropped: Set[int], outer: Rewrite | None = None
    ) -> None:
        self.rewrite = Rewrite(graph, self, outer)
        self._found = found
        self._dropped = dropped
        self._building = Building(self.rewrite.new, {*graph.names.taken})

    def retype(self, type_: Type) -> Type:
        return type_

    def body(self, rewrite: Rewrite, body: Graph) -> Graph:
        return _Replacing(body, self._found, self._dropped, rewrite).rewrite.run()

    def operands(self, rewrite: Rewrite, node: Node) -> Inputs:
        made = self._found.get(id(node))
        skipped = () if made is None else made.weights
        return tuple([None if s is None or i in skipped else rewrite.of(s) for i, s in enumerate(node.inputs)])

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        made = self._found.get(id(node))
        return None if made is None else made.make(self._building, inputs)

    def finish(self, rewrite: Rewrite) -> Graph:
        old, new = rewrite.old, rewrite.new
        for symbol in old.symbols:
            if isinstance(symbol.producer, Constant) and symbol.given_name and id(symbol) not in self._dropped:
                rewrite.of(symbol)
        new.build.promotion(old.promotion)
        new.strict, new.site.layers = old.strict, dict(old.site.layers)
        new.scope.is_finished = old.scope.is_finished
        return rewrite.finish()


def _dropped(graph: Graph, found: Mapping[int, Replacement]) -> set[int]:
    """Return the ids of the Symbols that replaced nodes alone read, as weights."""
    counts = readers(graph)
    given: dict[int, int] = {}
    for node in graph.nodes:
        made = found.get(id(node))
        for position in () if made is None else made.weights:
            symbol = node.inputs[position] if position < len(node.inputs) else None
            if symbol is not None:
                given[symbol.id] = given.get(symbol.id, 0) + 1
    return {id(graph.symbols[number]) for number, count in given.items() if count == counts[number]}


def length(array: Array) -> float:
    """Return the length of an array as one vector."""
    return float(np.linalg.norm(array.astype(np.float64).reshape(-1)))


# The ranges of activations on samples: what calibration of static quantisation finds.

Runs = Sequence[tuple[Sequence[Any], Mapping[str, Any]]]


class Ranges:
    """The least and the greatest number of Symbols of a graph over all samples, 0 included."""

    def __init__(self, graph: Graph, symbols: Iterable[Symbol], runs: Runs) -> None:
        self._found = _measured(graph, {s.id: s for s in symbols}, runs)

    def of(self, symbol: Symbol) -> tuple[float, float] | None:
        """Return the range; None for a Symbol that was not asked for, or of another graph."""
        return self._found.get(id(symbol))

    def scale(self, symbol: Symbol) -> tuple[np.float32, np.uint8] | None:
        """Return the scale and zero point in which the range takes all of uint8, as DynamicQuantizeLinear has them."""
        found = self.of(symbol)
        if found is None:
            return None
        least, most = np.float32(found[0]), np.float32(found[1])
        scale = (most - least) / np.float32(255)
        if not scale > 0:
            return np.float32(1), np.uint8(0)
        return scale, np.uint8(np.clip(np.rint(-least / scale), 0, 255))


def _measured(graph: Graph, symbols: Mapping[int, Symbol], runs: Runs) -> dict[int, tuple[float, float]]:
    # onnxruntime, which quantising without samples does not need
    from graphcore.runtime.session import InferenceSession

    if not symbols:
        return {}
    shown = copied(graph)
    shown.build.outputs([(f"range.{number}", shown.symbols[number]) for number in symbols])
    model = InferenceSession(optimize="off").load(shown)
    found: dict[int, tuple[float, float]] = {}
    for arrays, named in runs:
        for symbol, array in zip(symbols.values(), model(*arrays, **named), strict=True):
            numbers = np.asarray(array)
            if not numbers.size:
                continue
            least, most = float(numbers.min()), float(numbers.max())
            if not np.isfinite([least, most]).all():
                raise GraphError(
                    "quantize: samples lead to NaN or infinity",
                    operands={"value": symbol},
                    help="give samples that the graph is made for",
                )
            before = found.get(id(symbol), (0.0, 0.0))
            found[id(symbol)] = min(before[0], least), max(before[1], most)
    return found


def is_float32(symbol: Symbol | None) -> bool:
    """Return whether a Symbol is a tensor of float32."""
    return symbol is not None and isinstance(symbol.type, TensorType) and symbol.dtype is DType.float32
