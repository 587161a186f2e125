"""Function calls: inlined, or kept with bodies that are lowered separately.

A pass before the others, so that they see no calls except those that stay in the model. A body stays a function if
ONNX stores the dtypes of its operands and results.
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
from graphcore.passes.merging import readers
from graphcore.runtime.lowering.dtypes import complex_numbers, integers, sequences, small_floats
from graphcore.runtime.lowering.passes import Summary
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.releases import Runtime, default, table_of
from graphcore.runtime.lowering.targets.traps import in_force
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, TensorType, Type


def inlined(graph: Graph) -> Graph:
    """Return the graph with calls inlined; the nodes get the layers of their calls."""
    return _InlineRewrite(graph, _InlinePolicy({})).run() if Summary(graph).has_calls else graph


def lower_bodies(graph: Graph, lower: Callable[[Graph], Graph]) -> Graph | None:
    """Return the graph with calls of lowered bodies under unique names; None if they cannot stay functions."""
    called = definitions(graph)
    tests = (complex_numbers.needed, integers.needed, small_floats.needed, sequences.has_unsupported)
    for summary in map(Summary, (graph, *(definition.body for definition in called))):
        if any(test(summary) for test in tests):
            return None
    lowered: dict[Definition, Definition] = {}
    for definition, name in called.items():
        lowered[definition] = replace(definition, name=name, body=lower(_call_definitions(definition.body, lowered)))
    return _call_definitions(graph, lowered)


def _call_definitions(graph: Graph, definitions_of: dict[Definition, Definition]) -> Graph:
    return Rewrite(graph, _CallDefinitions(definitions_of)).run() if Summary(graph).has_calls else graph


@dataclass(eq=False)
class _CallDefinitions(Policy[Rewrite]):
    """Calls the lowered definitions in place of the original ones."""

    lowered: dict[Definition, Definition]
    keeps_types = True

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        definition = definition_of(node)
        if definition is None:
            return None
        lowered, types = self.lowered[definition], [s.type for s in node.outputs]
        attributes = {**node.attributes, "definition": lowered}
        return rewrite.new.build.emit_many(lowered.name, inputs, types, attributes, node.domain)


@dataclass(eq=False)
class _InlinePolicy(Policy[Rewrite]):
    """Puts bodies in place of calls. around: the dims that names stand for where the graph is within a function."""

    around: Dims
    constants: dict[tuple[Definition, int], Symbol] = field(default_factory=dict)
    """Constants of functions in the new graph, shared by all calls of a definition."""
    types: dict[Type, Type] = field(default_factory=dict)
    keeps_types = True

    def retype(self, type_: Type) -> Type:
        result = self.types.get(type_)
        if result is None:
            result = self.types[type_] = substituted(type_, self.around)
        return result

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        definition = definition_of(node)
        if definition is None:
            return None
        dims = {name: dim.substitute(self.around) for name, dim in dims_of(node).items()}
        return _InlinedCall(rewrite.new, definition, inputs, _InlinePolicy(dims, self.constants)).results()

    def body(self, rewrite: Rewrite, body: Graph) -> Graph:
        return Rewrite(body, _InlinePolicy(self.around), rewrite).run()


class _InlineRewrite(Rewrite):
    def replace(self, node: Node, results: Results) -> None:
        """Give values the names that they have in the graph with calls."""
        super().replace(node, results)
        names = self.new.names
        for old in node.outputs:
            result = self.of(old)
            if result.given_name is None and isinstance(result.producer, Node) and old.name not in names.taken:
                names.rename(result, old.name)


class _InlinedCall(Rewrite):
    """The nodes of one call, built in the calling graph."""

    policy: _InlinePolicy

    def __init__(self, new: Graph, definition: Definition, inputs: Inputs, policy: _InlinePolicy) -> None:
        super().__init__(definition.body, policy, new=new)
        for symbol, operand in zip(self.old.input_symbols, inputs, strict=True):
            self._mapped[symbol.id] = operand
        self._definition = definition
        self._layer = new.site.layer

    def results(self) -> list[Symbol]:
        """Build the nodes of the call and return its results."""
        site = self.new.site
        for node in self.old.nodes:
            site.layer, site.origin = f"{self._layer}{node.layer}", node.origin
            self.node(node)
        for label, symbol in self.old.watched.items():
            self.new.watched[f"{self._layer}{label}"] = self.of(symbol)
        return [self.of(symbol) for symbol in self.old.outputs]

    def _constant(self, symbol: Symbol, producer: Constant) -> Symbol:
        key = self._definition, symbol.id
        result = self.policy.constants.get(key)
        if result is None:
            result = self.policy.constants[key] = self.new.build.symbol(symbol.type, producer)
        return result

    def _result_name(self, name: str) -> str | None:
        name = f"{self._layer}{name}"
        return None if name in self.new.names.taken else name


# Custom ops (`gc.custom_op`) with a body: replaced by calls of their bodies, before calls are processed.
#
# A node stays if the target has a correct kernel for it or its declaration has no body. Otherwise it keeps its domain,
# name and attributes, and calls a function of that name in the model.

_NARROW = (DType.float16, DType.bfloat16)


def op_to_expand(node: Node, target: TargetName, is_read: bool, runtime: Runtime) -> CustomOp | None:
    """Return the declaration whose body replaces a node; None if the node stays.

    is_read: the node is of an imported model, which keeps unverified kernels of CUDA.
    """
    if not node.domain or node.domain == FUNCTIONS or definition_of(node) is not None:
        return None
    op = lookup(node.domain, node.op_type)
    if op is None or not op.has_body:
        return None
    types = [None if s is None else s.type for s in node.inputs]
    if any(isinstance(t, OpaqueType) for t in (*types, *(s.type for s in node.outputs))):
        return None  # an imported node that does not fit the declaration: left to the runtime
    if op.kernel is None:
        return op
    first = types[0]
    if is_read and isinstance(first, TensorType) and first.dtype in TARGETS[target].unverified:
        return None
    return None if _has_kernel(op, node, target, types, runtime) else op


def _has_kernel(op: CustomOp, node: Node, target: TargetName, types: Sequence[Type | None], runtime: Runtime) -> bool:
    """Return True if the target's kernel is correct for operands of these types, or there is no other way."""
    assert op.kernel is not None
    try:
        attributes = op.signature.python_attributes(op.signature.node_attributes(op.label, node.attributes))
    except GraphcoreError:  # attributes that the declaration does not have
        return True
    if TARGETS[target].by_release and not _is_in_releases(node, runtime):
        return False
    return op.kernel(target, types, attributes, len(node.outputs))


def _is_in_releases(node: Node, runtime: Runtime) -> bool:
    """Return True if the releases that the graph is lowered for have an operator of com.microsoft in this form."""
    if node.domain != "com.microsoft":
        return True
    if node.op_type in _WITH_STATISTICS and in_force(STATISTICS, runtime):
        uses = readers(node.outputs[0].graph)
        if any(s.id in uses for s in node.outputs[1:3]):
            return False
    return table_of("cpu").takes(node.op_type, len(node.inputs), node.attributes, runtime)


STATISTICS = "mean and deviation of Skip*LayerNormalization"
"""A trap: kernels that silently omit these results."""

_WITH_STATISTICS = frozenset({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})


def _wide(type_: Type | None) -> Type | None:
    return type_.cast(DType.float32) if isinstance(type_, TensorType) and type_.dtype in _NARROW else type_


def needed(summary: Summary, target: TargetName, runtime: Runtime) -> bool:
    """Return True if the graph, a body or a called function has a node that must be expanded."""
    return bool(summary.domains) and any(
        node.domain and op_to_expand(node, target, type(node.origin) is Imported, runtime) is not None
        for part in (*summary.parts, *summary.called)
        for node in part.nodes
    )


def resolved(graph: Graph, target: TargetName, runtime: Runtime | None = None) -> Graph:
    """Return the graph with such nodes replaced by calls of bodies; the same graph if it has none.

    runtime: the release to lower for; by default the one that files are written for.
    """
    runtime = default(target) if runtime is None else runtime
    return _CustomOpPolicy(target, runtime).of(graph)


class _CustomOpPolicy(Policy[Rewrite]):
    """Replaces custom ops by calls in a graph and all that it calls."""

    keeps_types = True

    def __init__(self, target: TargetName, runtime: Runtime) -> None:
        self._target: TargetName = target
        self._runtime = runtime
        self._lowered: dict[Definition, Definition] = {}
        self._open: dict[tuple[object, ...], Definition] = {}
        """Functions that keep the domain of their operator, by definition and attributes."""

    def of(self, graph: Graph) -> Graph:
        is_needed = needed(Summary(graph), self._target, self._runtime)
        return Rewrite(graph, self).run() if is_needed else graph

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        op = op_to_expand(node, self._target, rewrite.is_read, self._runtime)
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
                return None  # attributes that the declaration does not have, from Graph.op
            while inputs and inputs[-1] is None:  # omitted
                inputs = inputs[:-1]
        types = [s.type for s in node.outputs]
        return rewrite.new.build.emit_many(node.op_type, inputs, types, attributes, domain)

    def _through_float32(
        self, op: CustomOp, node: Node, inputs: tuple[Symbol | None, ...], graph: Graph
    ) -> list[Symbol] | None:
        """Compute a node on narrow floats by the float32 kernel and round once; None if that is not correct either."""
        types = [_wide(None if s is None else s.type) for s in inputs]
        pairs = list(zip(inputs, types, strict=True))
        narrow = any(s is not None and s.type is not t for s, t in pairs)
        if op.kernel is None or not narrow or not _has_kernel(op, node, self._target, types, self._runtime):
            return None
        operands = tuple([s if s is None or s.type is t else graph.build.cast(s, DType.float32) for s, t in pairs])
        results = [t for s in node.outputs if (t := _wide(s.type)) is not None]
        wide_results = graph.build.emit_many(node.op_type, operands, results, node.attributes, node.domain)
        return [
            graph.build.cast(m, s.dtype) if m.type is not s.type else m
            for m, s in zip(wide_results, node.outputs, strict=True)
        ]

    def _again(self, definition: Definition) -> Definition:
        """Return a function in whose body the custom ops are replaced too."""
        result = self._lowered.get(definition)
        if result is None:
            body = self.of(definition.body)
            result = definition if body is definition.body else replace(definition, body=body)
            self._lowered[definition] = result
        return result

    def _call(self, op: CustomOp, node: Node) -> tuple[str, dict[str, Any]]:
        """Return the domain and the attributes of a node that calls the body."""
        types = [None if s is None else s.type for s in node.inputs]
        layer = f"{node.layer}{node.outputs[0].name}_"
        body_definition, dims = op.definition(types, node.attributes, [s.type for s in node.outputs], layer=layer)
        definition = self._again(body_definition)
        bound = {"dims": tuple(dims.items())}
        if (
            op.kernel is not None and TARGETS[self._target].table
        ):  # in standard ONNX the domain has operators of its own
            return FUNCTIONS, {"definition": definition, **bound}
        attributes = op.signature.node_attributes(op.label, node.attributes)
        key = definition, *attributes
        with_domain = self._open.get(key)
        if with_domain is None:
            with_domain = self._open[key] = replace(definition, domain=op.domain, attributes=tuple(attributes))
        return op.domain, {**attributes, "definition": with_domain, **bound}
