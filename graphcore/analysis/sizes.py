"""Parameters and bytes of a graph: weight by weight, and layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphcore.analysis.layers import layers
from graphcore.arrays.big_integers import storage_axis
from graphcore.ir.definitions import definitions
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Symbol
from graphcore.types.tensor_types import TensorType, Type

Chain: TypeAlias = "tuple[str, ...]"
"""The paths of the enclosing layers, outermost first."""
_Key: TypeAlias = "tuple[int, int]"


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight or a constant.

    Attributes:
        name: The name; "" for an unnamed constant.
        layer: The path of the layer of its first reader.
        dtype: The name of its dtype.
        shape: The shape.
        elements: The number of elements.
        bytes: The size in a file.
        is_weight: True for a weight.
        readers: The number of nodes that read it.
        parameters: The number of elements of a weight, or of a float constant with at least one axis; else 0.
    """

    name: str
    layer: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    bytes: int
    is_weight: bool
    readers: int
    parameters: int


@dataclass(frozen=True, slots=True)
class LayerSize:
    """A layer, the body of a node, or a function, with totals that include inner ones.

    Attributes:
        depth: The number of enclosing layers.
        parameters: See `Weight`.
        bytes: Of weights and constants. A weight counts in the layer that reads it first.
    """

    path: str
    depth: int
    nodes: int
    parameters: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The weights and constants of a graph, in order, and its layers, each after its enclosing layer."""

    weights: tuple[Weight, ...]
    layers: tuple[LayerSize, ...]

    @property
    def parameters(self) -> int:
        """The number of parameters of the graph."""
        return sum(weight.parameters for weight in self.weights)

    @property
    def bytes(self) -> int:
        """The bytes of all weights and constants."""
        return sum(weight.bytes for weight in self.weights)


def sizes(graph: Graph) -> Sizes:
    """Return the parameters and bytes of a graph by weight and by layer, including bodies and functions, each once."""
    readers: dict[_Key, int] = {}
    symbols: dict[_Key, tuple[Symbol, Chain]] = {}
    nodes: dict[Chain, int] = {}
    functions = [(definition.body, (name,)) for definition, name in definitions(graph).items()]
    for root, outer in [(graph, ()), *functions]:
        for chain, constants in _readings(root, outer):
            nodes[chain] = nodes.get(chain, 0) + 1
            for symbol in constants:
                key = id(symbol.graph), symbol.id
                readers[key] = readers.get(key, 0) + 1
                symbols.setdefault(key, (symbol, chain))
        for symbol in root.weights.values():
            symbols.setdefault((id(root), symbol.id), (symbol, ()))
    weights = {
        key: _weight(symbol, chain[-1] if chain else "", readers.get(key, 0))
        for key, (symbol, chain) in symbols.items()
    }
    return Sizes(tuple(weights.values()), tuple(_by_layer(nodes, [(w, symbols[key][1]) for key, w in weights.items()])))


def _readings(graph: Graph, outer: Chain) -> Iterator[tuple[Chain, list[Symbol]]]:
    """Yield for each node the paths of its enclosing layers, outermost first, and the constants that it reads.

    outer: the enclosing layers of the graph. A body is a layer, named after the result of its node and its attribute.
    """
    graph_layers = layers(graph)
    for position, node in enumerate(graph.nodes):
        paths = graph_layers.around(position)
        chain = (*outer, *(f"{outer[-1]}/{path}" for path in paths)) if outer else paths
        sources = [_outermost(operand) for operand in node.inputs if operand is not None]
        yield chain, [symbol for symbol in sources if type(symbol.producer) is Constant]
        for key, body in node.attributes.items() if node.attributes else ():
            if isinstance(body, Graph):
                name = f"{node.outputs[0].name.removeprefix(node.layer)}.{key}"
                yield from _readings(body, (*chain, f"{chain[-1]}/{name}" if chain else name))


def _outermost(symbol: Symbol) -> Symbol:
    """Return the Symbol that is captured, through all graphs."""
    while type(symbol.producer) is Captured:
        symbol = symbol.producer.symbol
    return symbol


def _weight(symbol: Symbol, path: str, readers: int) -> Weight:
    producer, type_ = symbol.producer, symbol.type
    assert isinstance(producer, Constant)
    array = producer.array
    is_float = isinstance(type_, TensorType) and type_.dtype.is_float
    return Weight(
        name=symbol.given_name or "",
        layer=path,
        dtype=type_.dtype.name if isinstance(type_, TensorType) else str(type_),
        shape=array.shape,
        elements=array.size,
        bytes=bytes_of(symbol),
        is_weight=producer.is_weight,
        readers=readers,
        parameters=array.size if producer.is_weight or (is_float and array.ndim) else 0,
    )


def bytes_of(symbol: Symbol) -> int:
    """Return the bytes of a constant or weight in a file: dtypes below a byte are packed, text is UTF-8."""
    producer = symbol.producer
    assert isinstance(producer, Constant)
    array, bits = producer.array, _bits(symbol.type)
    if bits:
        return -(-array.size * bits // 8)
    return sum(map(_length, array.reshape(-1).tolist()))


def _length(text: object) -> int:
    return len(text) if isinstance(text, bytes) else len(str(text).encode(errors="surrogatepass"))


def _bits(type_: Type) -> int:
    """Return the bits of an element in a file; 0 for text."""
    if not isinstance(type_, TensorType):
        return 0
    dtype = type_.dtype
    if dtype.storage is dtype:
        return 8 if dtype.bits == 1 else dtype.bits
    return dtype.storage.bits * math.prod(storage_axis(dtype))


def _by_layer(nodes: Mapping[Chain, int], weights: Iterable[tuple[Weight, Chain]]) -> Iterator[LayerSize]:
    sums: dict[str, list[int]] = {}
    inner: dict[str, list[str]] = {"": []}
    depths: dict[str, int] = {}

    def add(chain: Chain, amounts: Sequence[int]) -> None:
        for depth, path in enumerate(chain):
            if path not in sums:
                sums[path], inner[path], depths[path] = [0, 0, 0], [], depth
                inner[chain[depth - 1] if depth else ""].append(path)
            sums[path] = [total + amount for total, amount in zip(sums[path], amounts, strict=True)]

    for chain, count in nodes.items():
        add(chain, (count, 0, 0))
    for weight, chain in weights:
        add(chain, (0, weight.parameters, weight.bytes))
    waiting = inner[""][::-1]
    while waiting:
        path = waiting.pop()
        yield LayerSize(path, depths[path], *sums[path])
        waiting += inner[path][::-1]
