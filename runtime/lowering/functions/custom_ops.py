"""Declared operators (`gc.custom_op`) that are made of ops: calls of their bodies, before calls are looked at.

A node stays where the target has a right kernel for it, and where its declaration has no body. Otherwise it keeps its
domain, name and attributes, and calls a function of that name in the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphcore.custom_ops.custom_op import CustomOp, lookup
from graphcore.errors import GraphcoreError
from graphcore.ir.definitions import FUNCTIONS, Definition, definition_of
from graphcore.ir.graph import Graph, TargetName
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Rewrite
from graphcore.ir.transform.walk import bodies
from graphcore.runtime.lowering.summary import Summary
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.releases import Runtime, default, table_of
from graphcore.runtime.lowering.targets.traps import in_force
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, TensorType, Type, tensor_type

_NARROW = (DType.float16, DType.bfloat16)


def made_of(node: Node, target: TargetName, is_read: bool, runtime: Runtime) -> CustomOp | None:
    """The declaration of a node that its body is to stand for; None where the node stays.

    is_read: it is one of a model that others wrote, where unverified kernels of CUDA are kept.
    """
    if not node.domain or node.domain == FUNCTIONS or definition_of(node) is not None:
        return None
    op = lookup(node.domain, node.op_type)
    if op is None or not op.has_body:
        return None
    types = [None if s is None else s.type for s in node.inputs]
    if any(isinstance(t, ForeignType) for t in (*types, *(s.type for s in node.outputs))):
        return None  # one that was read and did not fit the declaration: the runtime's own, if any's
    if op.kernel is None:
        return op
    first = types[0]
    if is_read and isinstance(first, TensorType) and first.dtype in TARGETS[target].unverified:
        return None
    return None if _has_kernel(op, node, target, types, runtime) else op


def _has_kernel(op: CustomOp, node: Node, target: TargetName, types: Sequence[Type | None], runtime: Runtime) -> bool:
    """Return whether the target's kernel is right for operands of these types, or is all that there is."""
    assert op.kernel is not None
    try:
        attributes = op.signature.given(op.signature.held(op.label, node.attributes))
    except GraphcoreError:  # a form that is not declared
        return True
    if TARGETS[target].by_release and not _is_known(node, runtime):
        return False
    return op.kernel(target, types, attributes, len(node.outputs))


def _is_known(node: Node, runtime: Runtime) -> bool:
    """Return whether the releases that are lowered for know an operator of com.microsoft in the form of a node."""
    if node.domain != "com.microsoft":
        return True
    if node.op_type in _WITH_STATISTICS and in_force(STATISTICS, runtime) and any(map(_is_used, node.outputs[1:3])):
        return False
    return table_of("cpu").takes(node.op_type, len(node.inputs), node.attributes, runtime)


STATISTICS = "mean and deviation of Skip*LayerNormalization"
"""A trap: kernels that leave these results out, without a word."""

_WITH_STATISTICS = frozenset({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})


def _is_used(symbol: Symbol) -> bool:
    """Return whether a Symbol is an output of its graph, or something in it or its bodies reads it."""
    graph = symbol.graph
    if any(symbol is output for output in graph.outputs) or any(
        symbol is s for node in graph.nodes for s in node.inputs
    ):
        return True
    return any(symbol.id in body.scope.captured for node in graph.nodes if node.attributes for body in bodies(node))


def _wide(type_: Type | None) -> Type | None:
    is_narrow = isinstance(type_, TensorType) and type_.dtype in _NARROW
    return tensor_type(DType.float32, type_.shape) if is_narrow and isinstance(type_, TensorType) else type_


def trimmed(inputs: tuple[Symbol | None, ...]) -> tuple[Symbol | None, ...]:
    """The operands up to the last one that there is."""
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    return inputs


def needed(has: Summary, target: TargetName, runtime: Runtime) -> bool:
    """Return whether there is such a node in the graph, a body or a function that it calls."""
    return bool(has.domains) and any(
        node.domain and made_of(node, target, type(node.origin) is Imported, runtime) is not None
        for part in (*has.parts, *has.called)
        for node in part.nodes
    )


def resolved(graph: Graph, target: TargetName, runtime: Runtime | None = None) -> Graph:
    """The graph with calls of bodies in place of such nodes; itself where there are none.

    runtime: what is lowered for, where it is not what files are written for.
    """
    runtime = default(target) if runtime is None else runtime
    return _Resolution(target, runtime).of(graph, None)


class _Resolution:
    """One run over a graph and all that it calls."""

    def __init__(self, target: TargetName, runtime: Runtime) -> None:
        self._target: TargetName = target
        self._runtime = runtime
        self._made: dict[Definition, Definition] = {}
        self._open: dict[tuple[object, ...], Definition] = {}
        """The functions that keep the domain of their operator, with the attributes of its nodes."""

    def of(self, graph: Graph, outer: Rewrite | None) -> Graph:
        if outer is None and not needed(Summary(graph), self._target, self._runtime):
            return graph
        rewrite = Rewrite(graph, _same, outer)
        rewrite.new.build.promotion(graph.promotion)  # later passes look at it
        for node, inputs in rewrite.nodes():
            op = made_of(node, self._target, rewrite.is_read, self._runtime)
            definition = definition_of(node)
            if op is None and definition is None:
                rewrite.keep(node, inputs, lambda body: self.of(body, rewrite))
                continue
            if definition is not None:
                domain, attributes = node.domain, {**node.attributes, "definition": self._again(definition)}
            else:
                assert op is not None
                wide = self._through_float32(op, node, inputs, rewrite.new)
                if wide is not None:
                    rewrite.replace(node, wide)
                    continue
                try:
                    domain, attributes = self._call(op, node)
                except GraphcoreError:
                    if op.kernel is None:
                        raise
                    rewrite.keep(node, inputs, _same_body)  # a form that is not declared, made by Graph.op
                    continue
                inputs = trimmed(inputs)
            types = [s.type for s in node.outputs]
            rewrite.replace(node, rewrite.new.build.emit_many(node.op_type, inputs, types, attributes, domain))
        return rewrite.finish()

    def _through_float32(
        self, op: CustomOp, node: Node, inputs: tuple[Symbol | None, ...], graph: Graph
    ) -> list[Symbol] | None:
        """A node on narrow floats by the kernel for float32, rounded once; None where that is not right either."""
        types = [_wide(None if s is None else s.type) for s in inputs]
        narrow = any(s is not None and s.type is not t for s, t in zip(inputs, types, strict=True))
        if op.kernel is None or not narrow or not _has_kernel(op, node, self._target, types, self._runtime):
            return None
        given = tuple(
            [
                None if s is None else graph.build.cast(s, DType.float32) if s.type is not t else s
                for s, t in zip(inputs, types, strict=True)
            ]
        )
        results = [t for s in node.outputs if (t := _wide(s.type)) is not None]
        made = graph.build.emit_many(node.op_type, given, results, node.attributes, node.domain)
        return [
            graph.build.cast(m, s.dtype) if m.type is not s.type else m for m, s in zip(made, node.outputs, strict=True)
        ]

    def _again(self, definition: Definition) -> Definition:
        """A function whose body has calls of bodies too."""
        found = self._made.get(definition)
        if found is None:
            body = self.of(definition.body, None)
            found = definition if body is definition.body else replace(definition, body=body)
            self._made[definition] = found
        return found

    def _call(self, op: CustomOp, node: Node) -> tuple[str, dict[str, Any]]:
        """The domain and the attributes of a node that calls the body."""
        types = [None if s is None else s.type for s in node.inputs]
        layer = f"{node.layer}{node.outputs[0].name}_"
        found, dims = op.definition(types, node.attributes, [s.type for s in node.outputs], layer=layer)
        definition = self._again(found)
        bound = {"dims": tuple(dims.items())}
        if op.kernel is not None and TARGETS[self._target].table:  # standard ONNX has its own operators of that domain
            return FUNCTIONS, {"definition": definition, **bound}
        held = op.signature.held(op.label, node.attributes)
        key = definition, *held
        open_one = self._open.get(key)
        if open_one is None:
            open_one = self._open[key] = replace(definition, domain=op.domain, attributes=tuple(held))
        return op.domain, {**held, "definition": open_one, **bound}


def _same(type_: Type) -> Type:
    return type_


def _same_body(body: Graph) -> Graph:
    return body
