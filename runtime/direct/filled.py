"""Values of a model that surely have elements, where all arrays that it is fed have some."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import onnx

_MOVE = frozenset("Cast Flatten Identity Reshape Squeeze Transpose Unsqueeze".split())
_KEEP = _MOVE | frozenset(
    "Clip Dropout Softmax LogSoftmax"
    " Abs Ceil Elu Erf Exp Floor HardSigmoid LeakyRelu Log Neg Not Reciprocal Relu Sigmoid Sign Sqrt Tanh".split()
)
"""Operators whose result has elements where their first operand does; those of `_MOVE` have the same numbers."""

_JOIN = frozenset("Add And Concat Div Gather GatherElements Gemm MatMul Max Min Mul Or Pow Sub Sum Where".split())
"""Operators whose result has elements where all operands do."""

_HOLD_SIZES = frozenset(
    {onnx.TensorProto.BOOL, onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE}
)
_GRAPH = onnx.AttributeProto.GRAPH
STATES = 5
"""The operand of recurrent operators with a state for each sequence, whose number onnxruntime checks against those of
the first operand before it computes."""


def filled(graph: onnx.GraphProto) -> Collection[str]:
    """Return the names of values that surely have elements, in each of the bodies that have a value of the name.

    Values of bodies that never run, as the size of something that has elements says, are among them.
    """
    found = _Found()
    _Walk({value.name for value in graph.input}, set(), found).follow(graph)
    return found.sure - found.unsure


@dataclass(slots=True)
class _Found:
    """Names of values that somewhere have elements for sure, and of those that somewhere may not."""

    sure: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Walk:
    """The walk over a graph. filled: names of what has elements there. sizes: of what holds numbers above 0 alone."""

    filled: set[str]
    sizes: set[str]
    found: _Found

    def follow(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._note([tensor.name], 0 not in tensor.dims)
        filled, sizes, made = self.filled, self.sizes, []
        for node in graph.node:
            op_type, outputs = node.op_type, [*node.output]
            made += outputs
            if op_type == "If":
                self._choose(node)
                continue
            names = [*node.input]
            first = names[0] if names else ""
            if op_type in ("LSTM", "GRU"):
                has_states = len(names) > STATES and names[STATES] in filled
                self._note(outputs[:1], first in filled)
                self._note(outputs[1:], first in filled or has_states)
                continue
            self._note(outputs, self._has_elements(node, op_type, names))
            sized = (first in filled) if op_type == "Shape" else first in sizes and _moves(node)
            (sizes.update if sized else sizes.difference_update)(outputs)
        self.found.sure |= filled
        self.found.unsure.update(name for name in made if name not in filled)

    def _note(self, names: Iterable[str], has_elements: bool) -> None:
        """Note of new values whether they have elements: one of a body may have the name of one in another body."""
        (self.filled.update if has_elements else self.filled.difference_update)(names)

    def _has_elements(self, node: onnx.NodeProto, op_type: str, names: Sequence[str]) -> bool:
        if op_type == "Constant":
            return all(map(_holds_some, node.attribute))
        if op_type in _KEEP:
            return bool(names) and names[0] in self.filled
        return op_type in _JOIN and all(name in self.filled for name in names if name)

    def _choose(self, node: onnx.NodeProto) -> None:
        """Follow the bodies of an If that may run, whose results have elements where each gives some."""
        always = node.input[0] in self.sizes
        self.sizes.difference_update(node.output)
        given: list[list[bool]] = []
        for attribute in node.attribute:
            if always and attribute.name == "else_branch":
                self.found.sure.update(_names(attribute.g))
                continue
            inner = _Walk({*self.filled}, {*self.sizes}, self.found)
            inner.follow(attribute.g)
            given.append([value.name in inner.filled for value in attribute.g.output])
        for name, *each in zip(node.output, *given, strict=False):
            self._note([name], bool(each) and all(each))


def _moves(node: onnx.NodeProto) -> bool:
    """Return whether numbers above 0 stay that: what is cast to narrow integers may wrap around to 0."""
    if node.op_type == "Cast":
        return any(a.name == "to" and a.i in _HOLD_SIZES for a in node.attribute)
    return node.op_type in _MOVE or node.op_type == "Gather"


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of the results in a graph and in its bodies."""
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            if attribute.type == _GRAPH:
                yield from _names(attribute.g)


def _holds_some(attribute: onnx.AttributeProto) -> bool:
    if attribute.type == onnx.AttributeProto.TENSOR:
        return 0 not in attribute.t.dims
    return attribute.name in ("value_float", "value_int") or bool(attribute.floats or attribute.ints)
