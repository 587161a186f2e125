"""Patterns for `Graph.find_all` and `Graph.replace_all`: subgraphs that a function of Symbols describes.

    from graphcore import patterns

    ROOT = patterns.Pattern(lambda x, w: patterns.op("Sqrt", x) * w, w=lambda s: s.is_constant)
    graph.replace_all(ROOT, lambda x, w: ...)

A function written with ordinary ops is traced with operands of each dtype in the graph, so that promotion inserts no
casts. Their rank is unknown; if an op needs it, the function is traced for each rank in the graph.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx

from graphcore.build.declare import EXPANSIONS, LIBRARY
from graphcore.errors import GraphcoreError, GraphError, LossyCastWarning
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Constant, Match, Node, Symbol
from graphcore.ir.transform import match
from graphcore.ir.transform.match import Pattern, PatternGraph, either, op
from graphcore.ir.transform.rewrite import Inputs, Results
from graphcore.ir.transform.walk import constant_array, parts
from graphcore.onnx.notes import DOMAINS, OPSET
from graphcore.onnx.proto.opened import domain_of
from graphcore.onnx.schemas.schemas import schema_of
from graphcore.operators import REDUCTIONS
from graphcore.surgery.copying import replica
from graphcore.surgery.replay import Edit, Replay
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type

Finder: TypeAlias = Callable[[Node], "Match | None"]


def finder(what: str, graph: Graph, pattern: str | Callable[..., Any]) -> Finder:
    """Return a function that returns the match ending in a node, or None. Raises `GraphError`."""
    if isinstance(pattern, str):
        domain, _, op_type = pattern.rpartition("::")
        wanted = op_type, domain_of(domain)
        return lambda node: Match(node, {}, (), (node,)) if (node.op_type, node.domain) == wanted else None
    if not isinstance(pattern, Pattern):
        if not callable(pattern):
            raise GraphError(
                f"{what}: a pattern must be an operator's name or a function, got {type(pattern).__name__}",
                help='give "Relu", "com.microsoft::Gelu", or lambda x: x * ops.sigmoid(x)',
            )
        pattern = Pattern(pattern)
    variants = _variants(what, graph, pattern)

    def find(node: Node) -> Match | None:
        for variant in variants:
            if node.op_type in variant.roots:
                result = variant.find(node)
                if result is not None:
                    return result
        return None

    return find


# Variants


class _Variant(Pattern):
    """A pattern traced for operands of one type. ranked: its attributes hold for one rank only."""

    def __init__(self, pattern: Pattern, graph: Graph, results: tuple[Symbol, ...], ranked: bool) -> None:
        super().__init__(pattern._function, **pattern._conditions)
        self._prepare(graph, results)
        self._ranked = {s.id for s in graph.symbols if ranked and _reads_positions(s)}
        axes = {n.inputs[1].id for n in graph.nodes if _has_axes(n) and n.inputs[1] is not None}
        elsewhere = {
            s.id for n in graph.nodes for i, s in enumerate(n.inputs) if s is not None and not (i == 1 and _has_axes(n))
        }
        self._axes = axes - elsewhere
        self.roots = frozenset(self._roots)

    def find(self, node: Node) -> Match | None:
        """Return the match that ends in a node."""
        bindings: match.Bindings = [None] * len(self._heads)
        if not node.outputs or not self._fits(self._traced[0], node.outputs[0], bindings, match._accept):
            return None
        first, *others = self._traced
        nodes: dict[int, Node] = {}
        for expected, symbol in zip(first.graph.symbols, bindings, strict=True):
            if isinstance(expected.producer, Node) and symbol is not None and isinstance(symbol.producer, Node):
                nodes[symbol.id] = symbol.producer
        values = {name: bindings[s.id] for name, s in zip(self._names, first.graph.input_symbols, strict=True)}
        also = [s for s in (bindings[s.id] for s in others) if s is not None]
        return Match(node, values, tuple(also), tuple(nodes[key] for key in sorted(nodes)))

    def _fits_node(
        self, expected: Symbol, node: Node, inputs: Sequence[Symbol | None], bindings: match.Bindings, then: match.Next
    ) -> bool:
        if expected.id in self._ranked and _rank(expected) != _rank(node.outputs[0]):
            return False
        pattern = expected.producer
        if isinstance(pattern, Node) and _has_axes(pattern) and len(inputs) > 1:
            own, axes = pattern.inputs[1], inputs[1]
            is_own = own is not None and own.id in self._axes
            if is_own and (own is None or not _has_same_axes(own, axes, inputs[0])):
                return False
        return super()._fits_node(expected, node, inputs, bindings, then)

    def _is_equal(self, expected: Symbol, symbol: Symbol) -> bool:
        if expected.id in self._axes:
            return True  # compared later, when the rank is known
        own = constant_array(expected, weights=True, outer=True)
        if own is not None and own.size == 1 and expected.dtype is DType.bool:
            array = constant_array(symbol, weights=True, outer=True)
            return array is not None and symbol.dtype is DType.bool and own.shape == array.shape and bool(own == array)
        return super()._is_equal(expected, symbol)

    def _has_attributes(self, node: Node, expected: Mapping[str, Any]) -> bool:
        if _STRICT not in expected:
            return super()._has_attributes(node, expected)
        for name, value in expected.items():
            if name in _MARKS:
                continue
            if isinstance(value, _OrAbsent):
                if name not in node.attributes:
                    continue
                value = value.value
            if name not in node.attributes or not _is_same(node, name, node.attributes[name], value):
                return False
        return all(name in expected or _is_neutral(name, value) for name, value in node.attributes.items())


_STRICT = "*"
"""Marks a node of a pattern that an op built: attributes that it does not state have the operator's default."""
_MARKS = (_STRICT, match._REST)


@dataclass(frozen=True, slots=True)
class _OrAbsent:
    """An attribute with the default value, which nodes may omit."""

    value: Any


def _variants(what: str, graph: Graph, pattern: Pattern) -> list[_Variant]:
    """Return the distinct variants of a pattern for operands of each dtype in the graph."""
    parameters = [p for p in inspect.signature(pattern._function).parameters.values() if p.default is p.empty]
    if any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) or not parameters:
        raise GraphError(
            f"{what}: a pattern must take one or more positional parameters, one for each value",
            help="write it as lambda x, y: ...",
        )
    dtypes, ranks = _dtypes_and_ranks(graph)
    failed: Exception | None = None
    is_traced = False
    variants: dict[Any, _Variant] = {}
    for number, chosen in enumerate(_operand_dtypes(dtypes, len(pattern._names))):
        for shapes in _shapes(ranks):
            ranked = shapes[0].is_ranked
            try:
                keyed = [
                    _variants_for_types(what, graph, pattern, [tensor_type(d, shape) for d in chosen])
                    for shape in shapes
                ]
            except Exception as refused:  # the function may expect other ranks
                failed = refused if not number else failed
                continue
            is_traced = True
            for key, variant in keyed[0].items():
                if all(key in other for other in keyed):
                    variants.setdefault(key, variant)
            if not ranked:
                break
    if variants:
        return [*variants.values()]
    if is_traced or failed is None:
        raise GraphError(
            f"{what}: the pattern depends on the sizes of its operands",
            help="use constants instead of sizes, or add parameters for them",
        )
    if not isinstance(failed, GraphcoreError):
        raise failed
    raise GraphError(
        f"{what}: the pattern cannot be traced: {failed.summary.removeprefix(f'{what}: ')}",
        help=failed.help or 'use gc.patterns.op("Name", x): it takes operands of any type',
    )


def _operand_dtypes(dtypes: Sequence[DType], count: int) -> Iterator[list[DType]]:
    """Yield dtypes of operands: all the same, or one operand an index or a condition."""
    for dtype in dtypes:
        yield [dtype] * count
    if count > 1:
        for position, other in itertools.product(range(count), (DType.int64, DType.bool)):
            yield [other if i == position else dtypes[0] for i in range(count)]


def _dtypes_and_ranks(graph: Graph) -> tuple[list[DType], list[int]]:
    """Return the dtypes of tensors in a graph, float32 first, and their ranks."""
    dtypes, ranks = {DType.float32: None}, set()
    for part in parts(graph):
        for type_ in {s.type for s in part.symbols}:
            if isinstance(type_, TensorType):
                dtypes[type_.dtype] = None
                if type_.shape.is_ranked:
                    ranks.add(len(type_.shape))
    return [*dtypes], sorted(ranks)


def _shapes(ranks: Sequence[int]) -> Iterator[list[Shape]]:
    """Yield groups of shapes to trace with: a variant counts only if each shape of its group gives it.

    There are two known sizes, because a constant computed from one size could equal a number in the graph by chance.
    """
    yield [Shape.unknown()]
    for rank in ranks:
        yield [Shape([size] * rank) for size in (19, 23)]
        yield [Shape(["?"] * rank)]


def _variants_for_types(what: str, graph: Graph, pattern: Pattern, types: Sequence[TensorType]) -> dict[Any, _Variant]:
    """Return the variants of a pattern for operands of some types, by key."""
    traced, results = _trace(what, graph, pattern, dict(zip(pattern._names, types, strict=True)))
    ranked = any(type_.shape.is_ranked for type_ in types)
    variants = [_Variant(pattern, form, values, ranked) for form, values in _forms(what, traced, results)]
    return {_key(each): each for each in variants}


def _trace(
    what: str, graph: Graph, pattern: Pattern, types: dict[str, Type]
) -> tuple[PatternGraph, tuple[Symbol, ...]]:
    traced = PatternGraph(types, graph.promotion)
    with warnings.catch_warnings(), traced:
        warnings.simplefilter("ignore", LossyCastWarning)
        returned = pattern._function(*traced.inputs)
    results = returned if isinstance(returned, tuple) else (returned,)
    for result in results:
        if not isinstance(result, Symbol):
            raise GraphError(
                f"{what}: the pattern must return Symbols, got {type(result).__name__}",
                help="return the last Symbol of the pattern",
            )
    roots = match._alternatives(results[0])
    if not all(isinstance(root.producer, Node) for root in roots):
        raise GraphError(f"{what}: the pattern must end in a node", help="use at least one op: lambda x: ops.relu(x)")
    if any(isinstance(root.producer, Node) and root.producer.outputs[0] is not root for root in roots):
        raise GraphError(
            f"{what}: the pattern ends in a second or later result of a node",
            help="return the first result first, then the others: return values, indices",
        )
    _state_defaults(traced, traced.loose)
    return traced, results


def _forms(what: str, graph: PatternGraph, results: tuple[Symbol, ...]) -> Iterator[tuple[Graph, tuple[Symbol, ...]]]:
    """Yield a traced pattern, and the same with operators of graphcore expanded to ONNX, as in files."""
    yield graph, results
    if not any(node.domain == LIBRARY and node.op_type in EXPANSIONS for node in graph.nodes):
        return
    replay = replica(graph, what, policy=_LibraryExpansion())
    try:
        replay.make(results)
    except GraphcoreError:
        return  # an expansion that needs more about the types of its operands
    loose = {replay.of(s).id for s in graph.symbols if s.id in graph.loose and replay.is_bound(s)}
    _state_defaults(replay.new, loose)
    values = tuple(replay.of(s) for s in results)
    if isinstance(values[0].producer, Node):
        yield replay.new, values


class _LibraryExpansion(Edit):
    def replace_node(self, rewrite: Replay, node: Node, inputs: Inputs) -> Results:
        if node.domain != LIBRARY or node.op_type not in EXPANSIONS:
            return rewrite.append(node, inputs, [s.type for s in node.outputs], node.attributes)
        result = EXPANSIONS[node.op_type](*inputs, **node.attributes)
        return result if isinstance(result, tuple) else (result,)


def _key(variant: _Variant) -> tuple[Any, ...]:
    """Return a key that is equal for variants that match the same nodes."""
    results = variant._traced
    graph = results[0].graph

    def describe(symbol: Symbol | None) -> Any:
        if symbol is None or not isinstance(symbol.producer, Constant):
            return None if symbol is None else symbol.id
        array = symbol.producer.array
        return (symbol.dtype.is_float, symbol.dtype.is_integer, array.shape, repr(array.tolist()))

    nodes = tuple(
        (n.op_type, n.domain, repr(n.attributes), tuple(map(describe, n.inputs)), tuple(s.id for s in n.outputs))
        for n in graph.nodes
    )
    ranks = tuple((key, _rank(graph.symbols[key])) for key in sorted(variant._ranked))
    return nodes, ranks, tuple(s.id for s in results)


# Attributes


def _state_defaults(graph: Graph, loose: set[int]) -> None:
    """State all attributes of nodes that ops built; those of the default value may be omitted in a match.

    loose: the ids of results of `op`, whose nodes may have any other attributes.
    """
    for node in graph.nodes:
        if node.domain in ("either", LIBRARY) or node.outputs[0].id in loose or _STRICT in node.attributes:
            continue
        stated = dict(node.attributes)
        for name, value in defaults(node).items():
            if name not in stated or _is_same(node, name, stated[name], value):
                stated[name] = _OrAbsent(value)
        change(node, attributes={**stated, _STRICT: True})


def defaults(node: Node) -> Mapping[str, Any]:
    """Return the default attributes of a node's ONNX operator."""
    return _defaults(node.op_type, node.domain)


@functools.cache
def _defaults(op_type: str, domain: str) -> Mapping[str, Any]:
    schema = schema_of(op_type, domain, DOMAINS.get(domain, OPSET))
    if schema is None:
        return {}
    values = {}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            values[name] = value.decode() if isinstance(value, bytes) else value
    return values


def _is_same(node: Node, name: str, own: Any, value: Any) -> bool:
    a, b = comparable(own), comparable(value)
    if a == b and type(a) is type(b):
        return True
    first = node.outputs[0] if node.op_type == "OneHot" or not node.inputs else node.inputs[0]
    rank = None if first is None else _rank(first)
    return name == "axis" and rank is not None and type(a) is type(b) is int and abs(a - b) == rank


def comparable(value: Any) -> Any:
    """Return an attribute as files store it: floats are float32."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return float(np.float32(value))
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, (list, tuple)):
        return tuple(map(comparable, value))
    return value


def _is_neutral(name: str, value: Any) -> bool:
    """Return True if an attribute without a default in the schema has no effect."""
    if name == "kernel_shape":
        return True
    if name in ("pads", "output_padding"):
        return not any(value)
    return name in ("strides", "dilations") and all(one == 1 for one in value)


# Ranks and axes

_AXES = REDUCTIONS | {"Squeeze"}


def _has_axes(node: Node) -> bool:
    return node.op_type in _AXES and not node.domain and len(node.inputs) == 2


def _has_same_axes(wanted: Symbol, symbol: Symbol | None, operand: Symbol | None) -> bool:
    own, array = constant_array(wanted, outer=True), constant_array(symbol, weights=True, outer=True)
    if own is None or array is None:
        return False
    a, b = sorted(map(int, own.reshape(-1))), sorted(map(int, array.reshape(-1)))
    rank = None if operand is None else _rank(operand)
    return a == b if rank is None else sorted(x % rank for x in a) == sorted(x % rank for x in b) if rank else not b


def _reads_positions(symbol: Symbol) -> bool:
    """Return True if a node has attributes or integer constants that may be axes."""
    node = symbol.producer
    if not isinstance(node, Node):
        return False
    named = any(name in node.attributes for name in ("axis", "axes", "perm", "batch_dims", "start"))
    return named or any(s is not None and s.is_constant and s.dtype.is_integer for s in node.inputs)


def _rank(symbol: Symbol) -> int | None:
    type_ = symbol.type
    return len(type_.shape) if isinstance(type_, TensorType) and type_.shape.is_ranked else None


__all__ = ["Match", "Pattern", "defaults", "either", "finder", "op"]
