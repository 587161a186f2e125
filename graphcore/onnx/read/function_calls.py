"""Functions that a model defines itself: found, counted before they are expanded, and instantiated."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Iterator, Sequence

import onnx

from graphcore.errors import ModelError, ResourceLimitError
from graphcore.onnx.proto.attributes import with_attributes
from graphcore.onnx.read.checks import DEEPEST

_MOST_NODES = 2_000_000

_SHOWN = 20
"""Members of a ring that errors name."""

_Key = tuple[str, str, str]


class Functions:
    """The functions of one model, by domain, name and overload."""

    def __init__(self, protos: Sequence[onnx.FunctionProto]) -> None:
        self._by_key: dict[_Key, onnx.FunctionProto] = {(_domain(p.domain), p.name, p.overload): p for p in protos}

    def get(self, domain: str, op_type: str, overload: str) -> onnx.FunctionProto | None:
        return self._by_key.get((domain, op_type, overload)) if self._by_key else None

    def check(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Raise `ModelError` for functions that call themselves, `ResourceLimitError` for too many nodes in all."""
        sizes: dict[_Key, int] = {}
        depths: dict[_Key, int] = {}
        try:
            calls = {key: {k for k in self._keys(p.node) if k in self._by_key} for key, p in self._by_key.items()}
            for key in graphlib.TopologicalSorter(calls).static_order():
                sizes[key] = min(_MOST_NODES + 1, sum(sizes.get(k, 1) for k in self._keys(self._by_key[key].node)))
                depths[key] = 1 + max((depths[k] for k in calls[key]), default=0)
        except graphlib.CycleError as error:
            names = " -> ".join(key[1] for key in error.args[1][:_SHOWN])
            raise ModelError(f"load: functions call themselves: {names}", help="ONNX has no recursion") from None
        if max(depths.values(), default=0) > DEEPEST:
            raise ResourceLimitError(
                f"load: the model's functions call each other deeper than {DEEPEST}", help="flatten them"
            )
        count = sum(sizes.get(key, 1) for key in self._keys(nodes))
        if count > _MOST_NODES:
            raise ResourceLimitError(
                f"load: the model has more than {_MOST_NODES} nodes once its functions are expanded",
                help="call fewer functions, or smaller ones",
            )

    def _keys(self, nodes: Sequence[onnx.NodeProto]) -> Iterator[_Key]:
        for node in nodes:
            yield _domain(node.domain), node.op_type, node.overload
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from self._keys(attribute.g.node)

    def instance(self, function: onnx.FunctionProto, call: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The nodes of a function with the attributes of a call in place of references to them."""
        given = {a.name: a for a in function.attribute_proto} | {a.name: a for a in call.attribute}
        return [with_attributes(node, given) for node in function.node]


def ordered(nodes: Sequence[onnx.NodeProto], is_known: Callable[[str], bool]) -> Sequence[onnx.NodeProto]:
    """The nodes in an order they can run in: the one they have, unless one uses what a later one makes."""
    made: set[str] = set()
    late = False
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    for node in nodes:
        if any(name in makers and name not in made and not is_known(name) for name in _used(node)):
            late = True
            break
        made.update(node.output)
    if not late:
        return nodes
    sorter = graphlib.TopologicalSorter(
        {i: [makers[n] for n in _used(node) if n in makers] for i, node in enumerate(nodes)}
    )
    try:
        return [nodes[i] for i in sorter.static_order()]
    except graphlib.CycleError as error:
        ring = " -> ".join(nodes[i].op_type for i in error.args[1][:_SHOWN])
        raise ModelError(f"load: nodes need each other: {ring}", help="a graph has no rings") from None


def _used(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node uses, in its bodies too; those that a body makes itself may be among them."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            own = {name for n in attribute.g.node for name in n.output} | {i.name for i in attribute.g.input}
            for inner in attribute.g.node:
                yield from (name for name in _used(inner) if name not in own)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
