"""Replace nodes of a graph by nodes that read encoded weights, and drop weights that nothing else reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.build import primitives as e
from graphcore.errors import GraphError
from graphcore.ir.definitions import unlike
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import nested, walk
from graphcore.passes.merging import readers
from graphcore.passes.sweep import Sweep, SweepPolicy
from graphcore.quantization import Quantized
from graphcore.quantization.tensors import packed
from graphcore.runtime.quantizer.plan import Candidate, Encoded, QuantizationPlan, keeps
from graphcore.runtime.quantizer.weights import Choices
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type

if TYPE_CHECKING:
    from graphcore.runtime.session import InferenceSession

Make: TypeAlias = "Callable[[Building, Inputs], Results]"


@dataclass(frozen=True, slots=True, eq=False)
class NodeReplacement:
    """The replacement of a node.

    make: adds nodes to the new graph, and returns a Symbol for each result, or None for a result that nothing reads.
    weights: the positions of the operands that the replacement does not read.
    """

    make: Make
    weights: tuple[int, ...]


Outcome: TypeAlias = tuple[Mapping[int, NodeReplacement], int, float] | str
"""The replacements of a layer's nodes by id, the bytes of its weights, and their error, relative to their length; or
the reason why there are none."""


class Building:
    """The new graph, and names for weights in it."""

    def __init__(self, graph: Graph, taken: set[str]) -> None:
        self.graph = graph
        self.cached: dict[object, Any] = {}
        """Symbols that several nodes share, by key."""
        self._taken = taken

    def constant(self, array: Array, name: str, like: Symbol) -> Symbol:
        """Return a constant with the name and origin of a weight."""
        contiguous = np.require(array, requirements="C")
        type_ = tensor_type(DType.of(contiguous.dtype), _shape([Dim(d) for d in contiguous.shape]))
        own = unlike(name, self._taken)
        return self.graph.build.symbol(type_, Constant(contiguous, False, like.producer.origin), own)


def replaced(graph: Graph, replacements: Mapping[int, NodeReplacement], dropped: Set[int] | None = None) -> Graph:
    """Return a graph with some nodes replaced. replacements: by node id, including nodes in bodies.

    dropped: the ids of the weights that nothing reads any more; by default those that only replaced nodes read.
    """
    if dropped is None:
        dropped = {number for part in nested(graph) for number in _dropped(part, replacements)}
    new = _Replacing(graph, replacements, dropped).rewrite.run()
    return Sweep(new, SweepPolicy()).run()  # a Graph to build on: the rewrite's own does not look for the user's lines


class _Replacing(Policy[Rewrite]):
    """The policy of one graph, or of a body in it.

    Encoded weights are constants of the graph that reads them: onnxruntime refuses scales from outside of a body.
    """

    keeps_types = True

    def __init__(
        self, graph: Graph, replacements: Mapping[int, NodeReplacement], dropped: Set[int], outer: Rewrite | None = None
    ) -> None:
        self.rewrite = Rewrite(graph, self, outer)
        self._replacements = replacements
        self._dropped = dropped
        self._building = Building(self.rewrite.new, {*graph.names.taken})

    def body(self, rewrite: Rewrite, body: Graph) -> Graph:
        return _Replacing(body, self._replacements, self._dropped, rewrite).rewrite.run()

    def operands(self, rewrite: Rewrite, node: Node) -> Inputs:
        replacement = self._replacements.get(id(node))
        skipped = () if replacement is None else replacement.weights
        return tuple([None if s is None or i in skipped else rewrite.of(s) for i, s in enumerate(node.inputs)])

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        replacement = self._replacements.get(id(node))
        return None if replacement is None else replacement.make(self._building, inputs)

    def finish(self, rewrite: Rewrite) -> Graph:
        old, new = rewrite.old, rewrite.new
        for symbol in old.symbols:
            if isinstance(symbol.producer, Constant) and symbol.given_name and id(symbol) not in self._dropped:
                rewrite.of(symbol)
        new.strict, new.site.layers = old.strict, dict(old.site.layers)
        new.scope.is_finished = old.scope.is_finished
        return rewrite.finish()


def _dropped(graph: Graph, replacements: Mapping[int, NodeReplacement]) -> set[int]:
    """Return the ids of the Symbols that replaced nodes alone read, as weights."""
    counts = readers(graph)
    inputs_of: dict[int, int] = {}
    for node in graph.nodes:
        replacement = replacements.get(id(node))
        for position in () if replacement is None else replacement.weights:
            symbol = node.inputs[position] if position < len(node.inputs) else None
            if symbol is not None:
                inputs_of[symbol.id] = inputs_of.get(symbol.id, 0) + 1
    return {id(graph.symbols[number]) for number, count in inputs_of.items() if count == counts[number]}


def length(array: Array) -> float:
    """Return the length of an array as one vector."""
    return float(np.linalg.norm(array.astype(np.float64).reshape(-1)))


# The ranges of activations on samples, as calibration of static quantisation measures them.

Runs = Sequence[tuple[Sequence[Any], Mapping[str, Any]]]


Ranges: TypeAlias = "dict[int, tuple[float, float]]"
"""The least and the greatest number of Symbols over all samples, 0 included, by `id`."""


def scale_of(bounds: tuple[float, float]) -> tuple[np.float32, np.uint8]:
    """Return the scale and zero point that map a range to all of uint8, as DynamicQuantizeLinear does."""
    lowest, highest = map(np.float32, bounds)
    scale = (highest - lowest) / np.float32(255)
    if not scale > 0:
        return np.float32(1), np.uint8(0)
    return scale, np.uint8(np.clip(np.rint(-lowest / scale), 0, 255))


def measured_ranges(graph: Graph, measured: Iterable[Symbol], runs: Runs) -> Ranges:
    """Return the ranges of Symbols of a graph."""
    # onnxruntime, which quantising without samples does not need
    from graphcore.runtime.session import InferenceSession

    symbols = [*{s.id: s for s in measured}.values()]
    ranges: Ranges = {}
    for symbol, numbers in values_on(graph, symbols, runs, InferenceSession(optimize="off")):
        if not numbers.size:
            continue
        lowest, highest = float(numbers.min()), float(numbers.max())
        if not np.isfinite([lowest, highest]).all():
            raise GraphError(
                "quantize: a sample makes a value NaN or infinite, which has no range",
                operands={"value": symbol},
                help="give samples of the data that the graph is meant for",
            )
        before = ranges.get(id(symbol), (0.0, 0.0))
        ranges[id(symbol)] = min(before[0], lowest), max(before[1], highest)
    return ranges


def values_on(
    graph: Graph, symbols: Sequence[Symbol], runs: Runs, session: InferenceSession
) -> Iterator[tuple[Symbol, Array]]:
    """Yield each of some Symbols of a graph with its array, run by run."""
    if not symbols:
        return
    with_outputs = copied(graph)
    with_outputs.build.outputs([(f"range.{s.id}", with_outputs.symbols[s.id]) for s in symbols])
    model = session.load(with_outputs)
    for arrays, named in runs:
        yield from zip(symbols, map(np.asarray, model(*arrays, **named)), strict=True)


def is_float(symbol: Symbol | None) -> bool:
    """Return True if a Symbol is a tensor of floats."""
    return symbol is not None and isinstance(symbol.type, TensorType) and symbol.dtype.is_float


def is_float32(symbol: Symbol | None) -> bool:
    """Return True if a Symbol is a tensor of float32."""
    return symbol is not None and isinstance(symbol.type, TensorType) and symbol.dtype is DType.float32


# The new graph: products with encoded weights in place of those with floats.


def rewritten(graph: Graph, plan: QuantizationPlan) -> Graph:
    """Return a graph like `graph` whose chosen nodes read encoded weights."""
    if not plan.chosen:
        return copied(graph)
    replacements: dict[int, NodeReplacement] = {}
    for node in walk(graph):
        if id(node) in plan.chosen:
            candidate, encoded = plan.chosen[id(node)]
            replacements[id(node)] = NodeReplacement(
                partial(_quantized_product, candidate, encoded), (candidate.position,)
            )
        elif not keeps(node, plan):
            nothing: Results = [None] * len(node.outputs)
            replacements[id(node)] = NodeReplacement(
                lambda *_, nothing=nothing: nothing, tuple(range(len(node.inputs)))
            )
    return replaced(graph, replacements, {id(encoded.root) for _, encoded in plan.chosen.values()})


def _quantized_product(candidate: Candidate, encoded: Encoded, building: Building, inputs: Inputs) -> tuple[Symbol]:
    """Return a product with an encoded weight, or rows of an encoded table."""
    if encoded.key not in building.cached:
        building.cached[encoded.key] = _constants(encoded, building)
    form = _looked_up if candidate.is_table else _multiplied
    result = form(candidate, inputs, building.cached[encoded.key], encoded.choices)
    return (change(result, type=candidate.node.outputs[0].type),)


def _constants(encoded: Encoded, building: Building) -> Quantized:
    tensor, root = encoded.tensor, encoded.root
    values = building.constant(tensor.data, f"{root.name}.{tensor.encoding.lower()}", root)
    parts = {"scale": tensor.scales, "zero_point": tensor.zero_points}
    scale, zero = [
        None if array is None else building.constant(array, f"{values.name}.{part}", root)
        for part, array in parts.items()
    ]
    return Quantized(tensor.encoding.lower(), values, scale, zero, tensor.axis, tensor.block_size)


def _multiplied(candidate: Candidate, inputs: Inputs, weight: Quantized, choices: Choices) -> Symbol:
    """Return MatMul or Gemm with an encoded weight."""
    node = candidate.node
    x, *_ = inputs
    assert x is not None
    if node.op_type == "Gemm" and node.attributes.get("transA", 0):
        x = e.transpose(x, [1, 0])
    scheme, level = choices.scheme, choices.accuracy_level
    product = ops.qmatmul(
        weight.encoding, x, weight, dynamic=scheme.is_dynamic, digits=scheme.digits, accuracy_level=level
    )
    bias = inputs[2] if node.op_type == "Gemm" and len(inputs) > 2 else None
    beta = float(node.attributes.get("beta", 1.0))
    if bias is None:
        return product
    return e.emit("Add", product, bias if beta == 1 else e.mul(bias, beta), shape=product.shape)


def _looked_up(candidate: Candidate, inputs: Inputs, weight: Quantized, choices: Choices) -> Symbol:
    """Return rows of a table as floats."""
    ids = inputs[1]
    result = candidate.node.outputs[0].type
    assert ids is not None
    assert weight.scale is not None
    if weight.encoding == "int4":
        return e.cast(_looked_up_in_blocks(ids, weight, result.shape), result.dtype)
    numbers = e.emit("Gather", weight.values, ids, shape=result.shape, axis=0)
    scale = e.emit("Unsqueeze", e.emit("Gather", weight.scale, ids, axis=0), e.ints(ids, [-1]))
    product = e.emit("Mul", e.cast(numbers, DType.float32), scale, shape=result.shape)
    return e.cast(product, result.dtype)


def _looked_up_in_blocks(ids: Symbol, weight: Quantized, shape: Shape) -> Symbol:
    """Return rows of a table of 4 bits."""
    graph = ids.graph
    # The kernel gives zeros for rows that do not exist; a Gather fails, as that of the floats did.
    every = graph.build.constant(np.arange(int(weight.values.shape[0]), dtype=np.int32), DType.int32)
    ids = e.emit("Gather", every, ids, axis=0)
    operands = [weight.values, ids, weight.scale]
    if weight.zero_point is not None:
        assert isinstance(weight.zero_point.producer, Constant)
        points = weight.zero_point.producer.array
        even = packed(np.pad(points, ((0, 0), (0, points.shape[1] % 2))))
        operands.append(graph.build.constant(even, DType.uint8))
    attributes = {"bits": 4, "block_size": weight.block_size, "gather_axis": 0, "quantize_axis": 1}
    type_ = tensor_type(DType.float32, shape)
    return graph.build.emit("GatherBlockQuantized", tuple(operands), type_, attributes, "com.microsoft")
