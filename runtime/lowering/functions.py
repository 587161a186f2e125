"""Calls of functions: replaced by the bodies they call, or kept, with the bodies lowered by themselves.

A pass before the others, which meet no calls but those that stay in the model. A body stays a function where its
operands and results are of dtypes that ONNX carries as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from graphcore.custom_ops.custom_op import CustomOp, lookup
from graphcore.errors import GraphcoreError
from graphcore.ir.definitions import FUNCTIONS, Definition, Dims, definition_of, definitions, dims_of, substituted
from graphcore.ir.graph import Graph, TargetName
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import bodies
from graphcore.runtime.lowering.dtypes import complex_numbers, float4, integers, sequences
from graphcore.runtime.lowering.passes import Summary
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.releases import Runtime, default, table_of
from graphcore.runtime.lowering.targets.traps import in_force
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, TensorType, Type, tensor_type


def inlined(graph: Graph) -> Graph:
    """Return the graph with the nodes of functions in place of calls, in the layers of the calls."""
    return _Inlined(graph, _Inlining({})).run() if Summary(graph).has_calls else graph


def kept(graph: Graph, lower: Callable[[Graph], Graph]) -> Graph | None:
    """The graph with calls of lowered bodies, each under a name of its own; None where they cannot be functions."""
    called = definitions(graph)
    for has in map(Summary, (graph, *(definition.body for definition in called))):
        if complex_numbers.needed(has) or integers.needed(has) or float4.needed(has) or sequences.are_held(has):
            return None
    made: dict[Definition, Definition] = {}
    for definition, name in called.items():
        made[definition] = replace(definition, name=name, body=lower(_calling(definition.body, made)))
    return _calling(graph, made)


def _calling(graph: Graph, made: dict[Definition, Definition]) -> Graph:
    return Rewrite(graph, _Calling(made)).run() if Summary(graph).has_calls else graph


@dataclass(eq=False)
class _Calling(Policy[Rewrite]):
    """Calls of other definitions."""

    made: dict[Definition, Definition]
    keeps_types = True

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        definition = definition_of(node)
        if definition is None:
            return None
        lowered, types = self.made[definition], [s.type for s in node.outputs]
        attributes = {**node.attributes, "definition": lowered}
        return rewrite.new.build.emit_many(lowered.name, inputs, types, attributes, node.domain)


@dataclass(eq=False)
class _Inlining(Policy[Rewrite]):
    """Bodies in place of calls. around: what names of dims stand for, where the graph is within a function."""

    around: Dims
    constants: dict[tuple[Definition, int], Symbol] = field(default_factory=dict)
    """Those of functions, in one new graph: all calls of a definition share them."""
    types: dict[Type, Type] = field(default_factory=dict)
    keeps_types = True

    def retype(self, type_: Type) -> Type:
        found = self.types.get(type_)
        if found is None:
            found = self.types[type_] = substituted(type_, self.around)
        return found

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        definition = definition_of(node)
        if definition is None:
            return None
        dims = {name: dim.substitute(self.around) for name, dim in dims_of(node).items()}
        return _Call(rewrite.new, definition, inputs, _Inlining(dims, self.constants)).results()

    def body(self, rewrite: Rewrite, body: Graph) -> Graph:
        return Rewrite(body, _Inlining(self.around), rewrite).run()


class _Inlined(Rewrite):
    def replace(self, node: Node, made: Results) -> None:
        """Call values what the graph with calls calls them, though their numbers are others now."""
        super().replace(node, made)
        names = self.new.names
        for old in node.outputs:
            result = self.of(old)
            if result.given_name is None and isinstance(result.producer, Node) and old.name not in names.taken:
                names.rename(result, old.name)


class _Call(Rewrite):
    """The nodes of one call, made in the graph that calls."""

    policy: _Inlining

    def __init__(self, new: Graph, definition: Definition, inputs: Inputs, policy: _Inlining) -> None:
        super().__init__(definition.body, policy, new=new)
        for symbol, given in zip(self.old.input_symbols, inputs, strict=True):
            self._made[symbol.id] = given
        self._definition = definition
        self._layer = new.site.layer

    def results(self) -> list[Symbol]:
        """Return the results of the call."""
        site = self.new.site
        for node in self.old.nodes:
            site.layer, site.origin = f"{self._layer}{node.layer}", node.origin
            self.node(node)
        for label, symbol in self.old.watched.items():
            self.new.watched[f"{self._layer}{label}"] = self.of(symbol)
        return [self.of(symbol) for symbol in self.old.outputs]

    def _constant(self, symbol: Symbol, producer: Constant) -> Symbol:
        key = self._definition, symbol.id
        found = self.policy.constants.get(key)
        if found is None:
            found = self.policy.constants[key] = self.new.build.symbol(symbol.type, producer)
        return found

    def _called(self, name: str) -> str | None:
        name = f"{self._layer}{name}"
        return None if name in self.new.names.taken else name


# Declared operators (`gc.custom_op`) that are made of ops: calls of their bodies, before calls are looked at.
#
# A node stays where the target has a right kernel for it, and where its declaration has no body. Otherwise it keeps
# its domain, name and attributes, and calls a function of that name in the model.

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
        attributes = op.signature.python_attributes(op.signature.node_attributes(op.label, node.attributes))
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
    return _Resolution(target, runtime).of(graph)


class _Resolution(Policy[Rewrite]):
    """One run over a graph and all that it calls."""

    keeps_types = True

    def __init__(self, target: TargetName, runtime: Runtime) -> None:
        self._target: TargetName = target
        self._runtime = runtime
        self._made: dict[Definition, Definition] = {}
        self._open: dict[tuple[object, ...], Definition] = {}
        """The functions that keep the domain of their operator, with the attributes of its nodes."""

    def of(self, graph: Graph) -> Graph:
        is_needed = needed(Summary(graph), self._target, self._runtime)
        return Rewrite(graph, self).run() if is_needed else graph

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        op = made_of(node, self._target, rewrite.is_read, self._runtime)
        definition = definition_of(node)
        if definition is not None:
            domain, attributes = node.domain, {**node.attributes, "definition": self._again(definition)}
        elif op is None:
            return None
        else:
            wide = self._through_float32(op, node, inputs, rewrite.new)
            if wide is not None:
                return wide
            try:
                domain, attributes = self._call(op, node)
            except GraphcoreError:
                if op.kernel is None:
                    raise
                return None  # a form that is not declared, made by Graph.op
            inputs = trimmed(inputs)
        types = [s.type for s in node.outputs]
        return rewrite.new.build.emit_many(node.op_type, inputs, types, attributes, domain)

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
            body = self.of(definition.body)
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
        held = op.signature.node_attributes(op.label, node.attributes)
        key = definition, *held
        open_one = self._open.get(key)
        if open_one is None:
            open_one = self._open[key] = replace(definition, domain=op.domain, attributes=tuple(held))
        return op.domain, {**held, "definition": open_one, **bound}
