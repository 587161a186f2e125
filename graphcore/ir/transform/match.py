"""Match patterns: find the parts of a graph that a function of Symbols describes.

    ROOT = Pattern(lambda x, epsilon: either(op("Sqrt", x + epsilon), op("Pow", x + epsilon, 0.5)), epsilon=is_constant)
    found = ROOT.match(symbol)
    if found is not None:
        x, epsilon = found

The function is traced once, into a small graph. A Symbol matches where operators, stated attributes and constants are
those of the pattern, and each parameter stands for one Symbol:

- Operands of commutative operators may come in either order.
- A number matches a constant of that value and kind with one element, of one axis at most.
- Attributes that the pattern does not state may be anything. A negative `axis` equals the one counted from the front.
- Types are not compared: that is for conditions, which are functions of what stands for a parameter.
- Values within a match may be used elsewhere. Replacing the last node leaves them to whatever uses them.
- In a body, constants of outer graphs match, and nodes of outer graphs do not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any, TypeAlias

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Input, Node, Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.operators import Trait, having
from graphcore.promotion import PromotionSystem
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type

COMMUTATIVE = having(Trait.COMMUTATIVE)
_DEFAULTS = {"allowzero": 0, "keepdims": 1, "noop_with_empty_axes": 0}
"""Attributes that have one default in all operators of ONNX."""
_EITHER = "either"
_REST = "..."
"""An attribute of nodes of patterns that take any further operands."""

Found: TypeAlias = "list[Symbol | None]"
"""The Symbol that stands for each one of a pattern, by number."""
Heads: TypeAlias = "frozenset[str] | None"
"""The operators of which one makes a Symbol, None where anything may."""
Next: TypeAlias = Callable[[], bool]
"""Match what is left; False asks for another way to match what came before."""


def op(op_type: str, *inputs: Symbol | float | EllipsisType, **attributes: Any) -> Symbol:
    """Return a node of an operator, for a pattern.

    op_type: of ONNX, or of another domain after that and two colons, "com.microsoft::Gelu". inputs: Symbols, numbers,
    and `...` at the end for any number of further operands. attributes: those that it must have; others may be
    anything. Raises `GraphError` where no operand is a Symbol.
    """
    operands = [value for value in inputs if value is not ...]
    first = next((value for value in operands if isinstance(value, Symbol)), None)
    if first is None:
        raise GraphError(
            f"pattern: {op_type} has no operand that is a Symbol", help="give it parameters of the pattern"
        )
    domain, _, op_type = op_type.rpartition("::")
    if len(operands) < len(inputs):
        attributes[_REST] = True
    made = [s if isinstance(s, Symbol) else first.graph.build.scalar(s, _dtype_of(s)) for s in operands]
    result = first.graph.build.emit(op_type, tuple(made), first.type, attributes, domain)
    if isinstance(first.graph, PatternGraph):
        first.graph.loose.add(result.id)
    return result


def either(*alternatives: Symbol) -> Symbol:
    """Return what matches the first alternative that fits. Parameters of the others alone are None in a match."""
    return alternatives[0].graph.build.emit(_EITHER, alternatives, alternatives[0].type, {}, _EITHER)


def _dtype_of(value: float) -> DType:
    return DType.float32 if isinstance(value, float) else DType.int64


class PatternGraph(Graph):
    """The graph that the function of a pattern is traced into. loose: the numbers of what `op` made."""

    def __init__(self, inputs: dict[str, Type], promotion: str | PromotionSystem = "max") -> None:
        super().__init__("pattern", inputs, promotion=promotion)
        self.loose: set[int] = set()


class Pattern:
    """A function of Symbols that returns what is to be matched, or that and other Symbols to have of a match.

    Its parameters without a default stand for values.
    conditions: by the name of a parameter, whether a Symbol may stand for it.
    """

    def __init__(
        self, function: Callable[..., Symbol | tuple[Symbol, ...]], **conditions: Callable[[Symbol], bool]
    ) -> None:
        self._function = function
        self._conditions = conditions
        parameters = inspect.signature(function).parameters.values()
        self._names = tuple([p.name for p in parameters if p.default is p.empty])
        if unknown := conditions.keys() - set(self._names):
            raise TypeError(f"Pattern: no parameter is called {sorted(unknown)[0]!r}")
        self._traced: tuple[Symbol, ...] = ()
        self._heads: list[Heads] = []
        self._operands: dict[int, tuple[Heads, ...]] = {}
        self._roots: dict[str, list[Symbol]] = {}

    def __call__(self, *symbols: Symbol) -> Symbol | tuple[Symbol, ...]:
        """Return what the function does, so that a pattern may be a part of another one."""
        return self._function(*symbols)

    def match(self, symbol: Symbol | None) -> tuple[Any, ...] | None:
        """Return what stands for the parameters, and for the other Symbols that the function returned."""
        result = (self._traced or self._trace())[0]
        found: Found = [None] * len(self._heads)
        return self._given(found) if self._fits(result, symbol, found, _done) else None

    def match_node(self, node: Node, inputs: Sequence[Symbol | None]) -> tuple[Any, ...] | None:
        """As `match` does, of a node like `node` on other operands, which no graph has yet."""
        if not self._traced:
            self._trace()
        for result in self._roots.get(node.op_type, ()):
            heads = self._operands[result.id]
            if not _may_be(heads, inputs) and not (node.op_type in COMMUTATIVE and _may_be(heads, inputs[::-1])):
                continue  # which is true of most nodes
            found: Found = [None] * len(self._heads)
            if self._fits_node(result, node, inputs, found, _done):
                return self._given(found)
        return None

    def _trace(self) -> tuple[Symbol, ...]:
        any_tensor = tensor_type(DType.float32, Shape.unknown())
        graph = PatternGraph(dict.fromkeys(self._names, any_tensor))
        made = self._function(*graph.inputs)
        return self._prepared(graph, made if isinstance(made, tuple) else (made,))

    def _prepared(self, graph: Graph, traced: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
        """Take what the function was traced to, and what is asked of it often."""
        self._heads = [_heads_of(s) for s in graph._symbols]
        for node in graph._nodes:
            heads = tuple([None if s is None else self._heads[s.id] for s in node.inputs])
            self._operands.update((s.id, heads) for s in node.outputs)
        self._roots = {}
        for root in _alternatives(traced[0]):
            if isinstance(root.producer, Node):
                self._roots.setdefault(root.producer.op_type, []).append(root)
        self._traced = traced
        return traced

    def _given(self, found: Found) -> tuple[Any, ...]:
        result, *others = self._traced
        return tuple([found[s.id] for s in (*result.graph._inputs, *others)])

    def _fits(self, wanted: Symbol, symbol: Symbol | None, found: Found, then: Next) -> bool:
        producer = wanted.producer
        if symbol is None:
            return False
        if isinstance(producer, Constant):
            return self._is_equal(wanted, symbol) and then()
        heads = self._heads[wanted.id]
        if heads is not None and getattr(symbol.producer, "op_type", None) not in heads:
            return False
        held = found[wanted.id]
        if held is not None:
            return held is symbol and then()
        found[wanted.id] = symbol
        if isinstance(producer, Input):
            condition = self._conditions.get(self._names[producer.position])
            fits = (condition is None or condition(symbol)) and then()
        elif isinstance(producer, Node) and producer.op_type == _EITHER:
            fits = any(one is not None and self._fits(one, symbol, found, then) for one in producer.inputs)
        else:
            node = symbol.producer
            fits = (
                isinstance(node, Node)
                and isinstance(producer, Node)
                and _position(node, symbol) == _position(producer, wanted)
                and self._fits_node(wanted, node, node.inputs, found, then)
            )
        if not fits:
            found[wanted.id] = None
        return fits

    def _fits_node(self, wanted: Symbol, node: Node, inputs: Sequence[Symbol | None], found: Found, then: Next) -> bool:
        pattern = wanted.producer
        if not isinstance(pattern, Node):
            return False
        operands = pattern.inputs
        if node.op_type != pattern.op_type or node.domain != pattern.domain or len(inputs) < len(operands):
            return False
        if pattern.attributes and not self._has_attributes(node, pattern.attributes):
            return False
        if len(inputs) > len(operands) and _REST not in pattern.attributes:
            return False
        heads = self._operands[wanted.id]
        if _may_be(heads, inputs) and self._fit(operands, inputs, found, then):
            return True
        if node.op_type not in COMMUTATIVE or len(operands) != 2:
            return False
        turned = inputs[::-1]
        return _may_be(heads, turned) and self._fit(operands, turned, found, then)

    def _fit(self, wanted: Sequence[Symbol | None], given: Sequence[Symbol | None], found: Found, then: Next) -> bool:
        if not wanted:
            return then()
        first, *rest = wanted
        if first is None:
            return given[0] is None and self._fit(rest, given[1:], found, then)
        return self._fits(first, given[0], found, lambda: self._fit(rest, given[1:], found, then))

    def _has_attributes(self, node: Node, wanted: Mapping[str, Any]) -> bool:
        """Return whether a node has the attributes of a pattern's."""
        return all(name == _REST or _is_attribute(node, name, value) for name, value in wanted.items())

    def _is_equal(self, wanted: Symbol, symbol: Symbol) -> bool:
        """Return whether a Symbol is a constant of the value and kind of a pattern's."""
        own, array = constant_array(wanted, weights=True, outer=True), constant_array(symbol, weights=True, outer=True)
        if own is None or array is None or array.size != own.size or (own.size == 1 and array.ndim > 1):
            return False
        if own.size != 1:
            is_kind = wanted.dtype is symbol.dtype or (wanted.dtype.is_float and symbol.dtype.is_float)
            return is_kind and own.shape == array.shape and bool((own == array).all())
        if wanted.dtype.is_float and symbol.dtype.is_float:
            return float(array.reshape(-1)[0]) == float(own.reshape(-1)[0])
        return (
            wanted.dtype.is_integer and symbol.dtype.is_integer and int(array.reshape(-1)[0]) == int(own.reshape(-1)[0])
        )


def _alternatives(symbol: Symbol) -> list[Symbol]:
    """Return the Symbols of a pattern of which one is to match, in order."""
    producer = symbol.producer
    if not isinstance(producer, Node) or producer.op_type != _EITHER:
        return [symbol]
    return [found for s in producer.inputs if s is not None for found in _alternatives(s)]


def _position(node: Node, symbol: Symbol) -> int:
    """Return which result of its node a Symbol is."""
    return 0 if node.outputs[0] is symbol else next(i for i, s in enumerate(node.outputs) if s is symbol)


def _heads_of(symbol: Symbol) -> Heads:
    producers = [s.producer for s in _alternatives(symbol)]
    nodes = [producer for producer in producers if isinstance(producer, Node)]
    return frozenset(node.op_type for node in nodes) if len(nodes) == len(producers) else None


def _may_be(heads: Sequence[Heads], symbols: Sequence[Symbol | None]) -> bool:
    """Return whether operators that fit make the operands of a node."""
    for wanted, symbol in zip(heads, symbols, strict=False):
        if wanted is not None and (symbol is None or getattr(symbol.producer, "op_type", None) not in wanted):
            return False
    return True


def _done() -> bool:
    return True


def _is_attribute(node: Node, name: str, value: Any) -> bool:
    own = node.attributes.get(name, _DEFAULTS.get(name))
    if type(own) is not type(value):
        return False
    if own == value or name != "axis" or own is None:
        return bool(own == value)
    type_ = node.outputs[0].type
    return isinstance(type_, TensorType) and type_.shape.is_ranked and abs(own - value) == len(type_.shape)
