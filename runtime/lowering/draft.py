"""The graph that a pass of lowering makes: its nodes take the line of the node they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcore.dtypes import DType
from graphcore.graph import Graph
from graphcore.sources import Line, Origin
from graphcore.symbol import Constant, Node, Symbol
from graphcore.types import Shape, Type, tensor_type

_new_node = Node.__new__
_new_symbol = Symbol.__new__


class Draft(Graph):
    """A Graph whose nodes need not look for the user's line, which is most of what making one costs down here."""

    _origin: Origin | Line | None = None
    """The line of the node being looked at."""

    _around: frozenset[int] | set[int] = frozenset()
    """The numbers of what the casts around an expansion give, which `precision="fast"` may leave out."""

    def _emit(
        self,
        op_type: str,
        inputs: tuple[Symbol | None, ...],
        type_: Type,
        attributes: dict[str, Any] | None = None,
        domain: str = "",
    ) -> Symbol:
        node = _new_node(Node)
        node.op_type = op_type
        node.inputs = inputs
        node.attributes = {} if attributes is None else attributes
        node.domain = domain
        node.layer = self._layer
        node.origin = self._origin
        symbols = self._symbols
        made = _new_symbol(Symbol)
        made.graph = self
        made.type = type_
        made.producer = node
        made.id = len(symbols)
        made._name = None
        node.outputs = (made,)
        symbols.append(made)
        self._nodes.append(node)
        return made

    def _emit_many(
        self,
        op_type: str,
        inputs: tuple[Symbol | None, ...],
        types: Sequence[Type],
        attributes: dict[str, Any] | None = None,
        domain: str = "",
    ) -> tuple[Symbol, ...]:
        if len(types) == 1:
            return (self._emit(op_type, inputs, types[0], attributes, domain),)
        node = self._node(op_type, inputs, attributes or {}, domain, self._layer, self._origin)
        node.outputs = tuple(self._symbol(type_, node) for type_ in types)
        self._nodes.append(node)
        return node.outputs

    def _constant(self, array: np.ndarray[Any, Any], dtype: DType, name: str | None = None) -> Symbol:
        claimed = None if name is None else self._names.claim(name, "constant")
        return self._symbol(tensor_type(dtype, Shape(array.shape)), Constant(array, False, self._origin), claimed)


__all__ = ["Draft"]
