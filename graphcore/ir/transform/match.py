"""Match patterns: find the parts of a graph that a function of Symbols describes.

    ROOT = Pattern(lambda x, epsilon: either(op("Sqrt", x + epsilon), op("Pow", x + epsilon, 0.5)), epsilon=is_constant)
    match = ROOT.match(symbol)
    if match is not None:
        x, epsilon = match

The function is traced once, into a small graph. A Symbol matches if its operators, stated attributes and constants are
those of the pattern. Each parameter is bound to one Symbol:

- Operands of commutative operators may have either order.
- A number matches a constant of that value and kind with one element and at most one axis.
- Attributes that the pattern does not state may have any value. A negative `axis` equals its positive form.
- Types are not compared: conditions do that, which are functions of the Symbol bound to a parameter.
- Values within a match may be used elsewhere. They stay in the graph if the last node is replaced.
- In a body, constants of outer graphs match, but nodes of outer graphs do not.
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
"""Attributes that have the same default in all operators of ONNX."""
_EITHER = "either"
_REST = "..."
"""The attribute of pattern nodes that accept any number of additional operands."""

Bindings: TypeAlias = "list[Symbol | None]"
"""The matched Symbol for each Symbol of a pattern, by number."""
Heads: TypeAlias = "frozenset[str] | None"
"""The operators that may produce a Symbol; None for any producer."""
Next: TypeAlias = Callable[[], bool]
"""Match the remaining pattern; False backtracks."""


def op(op_type: str, *inputs: Symbol | float | EllipsisType, **attributes: Any) -> Symbol:
    """Return a node of an operator, for a pattern.

    Args:
        op_type: An operator of ONNX, or of another domain as "com.microsoft::Gelu".
        inputs: Symbols and numbers; `...` at the end accepts any number of additional operands.
        attributes: The attributes that the node must have; others may have any value.

    Raises:
        GraphError: No operand is a Symbol.
    """
    operands = [value for value in inputs if value is not ...]
    first = next((value for value in operands if isinstance(value, Symbol)), None)
    if first is None:
        raise GraphError(
            f"pattern: {op_type} has no operand that is a Symbol", help="pass it parameters of the pattern function"
        )
    domain, _, op_type = op_type.rpartition("::")
    if len(operands) < len(inputs):
        attributes[_REST] = True
    symbols = [s if isinstance(s, Symbol) else first.graph.build.scalar(s, _dtype_of(s)) for s in operands]
    result = first.graph.build.emit(op_type, tuple(symbols), first.type, attributes, domain)
    if isinstance(first.graph, PatternGraph):
        first.graph.loose.add(result.id)
    return result


def either(*alternatives: Symbol) -> Symbol:
    """Return a pattern that matches the first fitting alternative. Parameters of the others are None in a match."""
    return alternatives[0].graph.build.emit(_EITHER, alternatives, alternatives[0].type, {}, _EITHER)


def _dtype_of(value: float) -> DType:
    return DType.float32 if isinstance(value, float) else DType.int64


class PatternGraph(Graph):
    """The graph that a pattern function is traced into. loose: the numbers of the Symbols that `op` returned."""

    def __init__(self, inputs: dict[str, Type], promotion: str | PromotionSystem = "max") -> None:
        super().__init__("pattern", inputs, promotion=promotion)
        self.loose: set[int] = set()


class Pattern:
    """A function of Symbols that returns the Symbol to match, or a tuple of it and others to return from a match.

    Parameters without a default match values.

    Args:
        conditions: Predicates of Symbols by the names of parameters.
    """

    def __init__(
        self, function: Callable[..., Symbol | tuple[Symbol, ...]], **conditions: Callable[[Symbol], bool]
    ) -> None:
        self._function = function
        self._conditions = conditions
        parameters = inspect.signature(function).parameters.values()
        self._names = tuple([p.name for p in parameters if p.default is p.empty])
        if unknown := conditions.keys() - set(self._names):
            raise TypeError(f"Pattern: the function has no parameter {sorted(unknown)[0]!r}")
        self._traced: tuple[Symbol, ...] = ()
        self._heads: list[Heads] = []
        self._operands: dict[int, tuple[Heads, ...]] = {}
        self._roots: dict[str, list[Symbol]] = {}

    def __call__(self, *symbols: Symbol) -> Symbol | tuple[Symbol, ...]:
        """Call the function, so that a pattern can be part of another one."""
        return self._function(*symbols)

    def match(self, symbol: Symbol | None) -> tuple[Any, ...] | None:
        """Return the Symbols matched by the parameters and by the other returned Symbols; None without a match."""
        result = (self._traced or self._trace())[0]
        bindings: Bindings = [None] * len(self._heads)
        return self._values_of(bindings) if self._fits(result, symbol, bindings, _accept) else None

    def match_node(self, node: Node, inputs: Sequence[Symbol | None]) -> tuple[Any, ...] | None:
        """Match a node like `node` on other operands, which is in no graph yet.

        Returns:
            What `match` does.
        """
        if not self._traced:
            self._trace()
        for result in self._roots.get(node.op_type, ()):
            heads = self._operands[result.id]
            if not _may_be(heads, inputs) and not (node.op_type in COMMUTATIVE and _may_be(heads, inputs[::-1])):
                continue  # the common case
            bindings: Bindings = [None] * len(self._heads)
            if self._fits_node(result, node, inputs, bindings, _accept):
                return self._values_of(bindings)
        return None

    def _trace(self) -> tuple[Symbol, ...]:
        any_tensor = tensor_type(DType.float32, Shape.unknown())
        graph = PatternGraph(dict.fromkeys(self._names, any_tensor))
        traced = self._function(*graph.inputs)
        return self._prepare(graph, traced if isinstance(traced, tuple) else (traced,))

    def _prepare(self, graph: Graph, traced: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
        """Store the traced function and tables that speed up matching."""
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

    def _values_of(self, bindings: Bindings) -> tuple[Any, ...]:
        result, *others = self._traced
        return tuple([bindings[s.id] for s in (*result.graph._inputs, *others)])

    def _fits(self, expected: Symbol, symbol: Symbol | None, bindings: Bindings, then: Next) -> bool:
        producer = expected.producer
        if symbol is None:
            return False
        if isinstance(producer, Constant):
            return self._is_equal(expected, symbol) and then()
        heads = self._heads[expected.id]
        if heads is not None and getattr(symbol.producer, "op_type", None) not in heads:
            return False
        bound = bindings[expected.id]
        if bound is not None:
            return bound is symbol and then()
        bindings[expected.id] = symbol
        if isinstance(producer, Input):
            condition = self._conditions.get(self._names[producer.position])
            fits = (condition is None or condition(symbol)) and then()
        elif isinstance(producer, Node) and producer.op_type == _EITHER:
            fits = any(
                alternative is not None and self._fits(alternative, symbol, bindings, then)
                for alternative in producer.inputs
            )
        else:
            node = symbol.producer
            fits = (
                isinstance(node, Node)
                and isinstance(producer, Node)
                and _position(node, symbol) == _position(producer, expected)
                and self._fits_node(expected, node, node.inputs, bindings, then)
            )
        if not fits:
            bindings[expected.id] = None
        return fits

    def _fits_node(
        self, expected: Symbol, node: Node, inputs: Sequence[Symbol | None], bindings: Bindings, then: Next
    ) -> bool:
        pattern = expected.producer
        if not isinstance(pattern, Node):
            return False
        operands = pattern.inputs
        if node.op_type != pattern.op_type or node.domain != pattern.domain or len(inputs) < len(operands):
            return False
        if pattern.attributes and not self._has_attributes(node, pattern.attributes):
            return False
        if len(inputs) > len(operands) and _REST not in pattern.attributes:
            return False
        heads = self._operands[expected.id]
        if _may_be(heads, inputs) and self._fit(operands, inputs, bindings, then):
            return True
        if node.op_type not in COMMUTATIVE or len(operands) != 2:
            return False
        swapped = inputs[::-1]
        return _may_be(heads, swapped) and self._fit(operands, swapped, bindings, then)

    def _fit(
        self, expected: Sequence[Symbol | None], inputs: Sequence[Symbol | None], bindings: Bindings, then: Next
    ) -> bool:
        if not expected:
            return then()
        first, *rest = expected
        if first is None:
            return inputs[0] is None and self._fit(rest, inputs[1:], bindings, then)
        return self._fits(first, inputs[0], bindings, lambda: self._fit(rest, inputs[1:], bindings, then))

    def _has_attributes(self, node: Node, expected: Mapping[str, Any]) -> bool:
        """Return True if a node has the attributes of a pattern node."""
        return all(name == _REST or _is_attribute(node, name, value) for name, value in expected.items())

    def _is_equal(self, expected: Symbol, symbol: Symbol) -> bool:
        """Return True if a Symbol is a constant of the value and kind of a pattern's constant."""
        value, array = (
            constant_array(expected, weights=True, outer=True),
            constant_array(symbol, weights=True, outer=True),
        )
        if value is None or array is None or array.size != value.size or (value.size == 1 and array.ndim > 1):
            return False
        if value.size != 1:
            is_kind = expected.dtype is symbol.dtype or (expected.dtype.is_float and symbol.dtype.is_float)
            return is_kind and value.shape == array.shape and bool((value == array).all())
        if expected.dtype.is_float and symbol.dtype.is_float:
            return float(array.reshape(-1)[0]) == float(value.reshape(-1)[0])
        return (
            expected.dtype.is_integer
            and symbol.dtype.is_integer
            and int(array.reshape(-1)[0]) == int(value.reshape(-1)[0])
        )


def _alternatives(symbol: Symbol) -> list[Symbol]:
    """Return the alternatives of a Symbol of a pattern, in order."""
    producer = symbol.producer
    if not isinstance(producer, Node) or producer.op_type != _EITHER:
        return [symbol]
    return [alternative for s in producer.inputs if s is not None for alternative in _alternatives(s)]


def _position(node: Node, symbol: Symbol) -> int:
    """Return the index of a Symbol among the outputs of its node."""
    return 0 if node.outputs[0] is symbol else next(i for i, s in enumerate(node.outputs) if s is symbol)


def _heads_of(symbol: Symbol) -> Heads:
    producers = [s.producer for s in _alternatives(symbol)]
    nodes = [producer for producer in producers if isinstance(producer, Node)]
    return frozenset(node.op_type for node in nodes) if len(nodes) == len(producers) else None


def _may_be(heads: Sequence[Heads], symbols: Sequence[Symbol | None]) -> bool:
    """Return True if the producers of operands are operators that the pattern accepts."""
    for head, symbol in zip(heads, symbols, strict=False):
        if head is not None and (symbol is None or getattr(symbol.producer, "op_type", None) not in head):
            return False
    return True


def _accept() -> bool:
    return True


def _is_attribute(node: Node, name: str, value: Any) -> bool:
    actual = node.attributes.get(name, _DEFAULTS.get(name))
    if type(actual) is not type(value):
        return False
    if actual == value or name != "axis" or actual is None:
        return bool(actual == value)
    type_ = node.outputs[0].type
    return isinstance(type_, TensorType) and type_.shape.is_ranked and abs(actual - value) == len(type_.shape)
