"""Legalisation: every dtype becomes one that ONNX stores, every operator one that the target computes correctly.

Goes through the nodes, their casts and their bodies. `select` decides for each operator and dtype: keep it, compute it
in another dtype and cast back, or decompose it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeGuard

import numpy as np

from graphcore.build.declare import LIBRARY
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.state import settings
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Constant, Input, Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs, Policy, Rewrite, storage_type
from graphcore.ir.transform.walk import bodies
from graphcore.passes.merging import prune
from graphcore.runtime.lowering.build.builder import Builder, OpCall
from graphcore.runtime.lowering.build.casts import Casts
from graphcore.runtime.lowering.decompositions.rows import WIDE_FLOATS, keeps_half, keeps_kernel, may_be_replaced
from graphcore.runtime.lowering.decompositions.shape_arithmetic import transpose
from graphcore.runtime.lowering.dtypes import sequences, small_floats
from graphcore.runtime.lowering.expansion.row_switch import computes
from graphcore.runtime.lowering.passes import Summary, kinds_of
from graphcore.runtime.lowering.select import Selector, keeps
from graphcore.runtime.lowering.targets.compute_dtypes import MOVES, PROMOTIONS
from graphcore.runtime.lowering.targets.legality import BY_RESULT, CONTROL, PRIMARY, Legality, kernel_dtype
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, _shape, tensor_type


class Legaliser(Policy[Rewrite]):
    """Builds a graph equivalent to one, or to a body of one, that uses only what `rules` allow.

    fast: do not round between consecutive operators on floats narrower than float32. keeps_halves: nodes of imported
    models keep the runtime's kernels of float16 and bfloat16, which may round at any point.
    """

    def __init__(
        self,
        graph: Graph,
        rules: Legality,
        outer: Legaliser | None = None,
        *,
        fast: bool = False,
        keeps_halves: bool = False,
        stored: Mapping[DType, DType] = MappingProxyType({}),
    ) -> None:
        """stored: the transport dtypes of values that enter and leave a body, from `stored_as`."""
        self.rewrite: Rewrite = Rewrite(graph, self, outer.rewrite if outer else None)
        self.graph = self.rewrite.new
        self.rules = rules
        self.fast = fast
        self.keeps_halves = keeps_halves
        self._selector = Selector(partial(self.replace_node, self.rewrite))
        self.builder = Builder(self.graph, rules, self._selector, Casts, fast=fast)
        casts = self.builder.casts
        assert isinstance(casts, Casts)
        self.casts = casts
        self._stored = stored
        self._old = graph
        self._around = {number for number, own in graph.memory.loose.items() if fast or own}

    def run(self) -> Graph:
        """Return the new graph. Raises `GraphError` if there is none."""
        for symbol in self._old.input_symbols:
            if isinstance(symbol.type, TensorType) and symbol.type.dtype is DType.tensor_float32:
                # A fed value may have more bits than the dtype.
                self.rewrite.bind(symbol, self.casts.round_tf32(self.rewrite.of(symbol)))
        for symbol, new in zip(self._old.input_symbols, self.graph.input_symbols, strict=True) if self._stored else ():
            if isinstance(new.type, TensorType) and new.type.dtype in self._stored:
                dtype = new.type.dtype
                change(new, type=new.type.cast(self._stored[dtype]))
                self.rewrite.bind(symbol, self.builder.cast(new, dtype))
        return self.rewrite.run()

    def retype(self, type_: Type) -> Type:
        return storage_type(type_)

    def body(self, rewrite: Rewrite, body: Graph, stored: Mapping[DType, DType] = MappingProxyType({})) -> Graph:
        return Legaliser(body, self.rules, self, fast=self.fast, keeps_halves=self.keeps_halves, stored=stored).run()

    def finish(self, rewrite: Rewrite) -> Graph:
        """Set the outputs under their names: an Identity gives a value that has another name already a second one."""
        assert self._old.named_outputs is not None
        outputs: list[tuple[str | None, Symbol]] = []
        for label, symbol in self._old.named_outputs:
            name = label or symbol.name
            value = to_transport(self.builder, self.rewrite.of(symbol), self._stored)
            is_body = self.graph.scope.outer is not None  # whose outputs are known by their positions
            fits = isinstance(value.producer, Node) and (is_body or value.given_name in (None, name))
            fits = fits or (isinstance(value.producer, (Input, Constant)) and value.given_name == name and not is_body)
            if not fits or any(value is other for _, other in outputs):
                value = self._identity(value)
                if not isinstance(value.producer, Node) or any(value is other for _, other in outputs):
                    value = self.builder.native("Identity", value)
            if isinstance(value.type, TensorType) and isinstance(symbol.type, TensorType) and not value.shape.is_ranked:
                change(value, type=tensor_type(value.dtype, symbol.shape))
            keeps_name = self.graph.file_fields is not None and name not in self.graph.names.taken
            if value.given_name is None and (keeps_name or not is_body):
                self.graph.names.rename(value, name)
            outputs.append((name, value))
        self.graph.build.outputs(outputs)
        prune(self.graph)
        return self.graph

    def _identity(self, value: Symbol) -> Symbol:
        """Return the value as the result of a new node."""
        if isinstance(value.type, TensorType):
            return self.builder.op("Identity", value)
        return self.builder.emit("Identity", (value,), value.type)

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> tuple[Symbol, ...]:
        """Build the results of a node on new operands."""
        self.builder.is_read = is_read = rewrite.is_read
        self.builder.keeps_halves = is_read and self.keeps_halves
        is_fast = self.rules.decomposes and settings.is_fast(node.attributes)
        self.builder.fast = self.fast or is_fast
        self._selector.shortens = is_fast
        types = [s.type for s in node.outputs]
        if node.op_type == "Cast" and not node.domain:
            return (self._cast(node, inputs, types[0].dtype),)
        stored_types = [
            t if isinstance(t, TensorType) and t.dtype.storage is t.dtype else storage_type(t) for t in types
        ]
        if node.op_type in CONTROL and not node.domain:
            return self._control_flow(node, inputs, stored_types)
        attributes = rewrite.attributes(node)
        if self.rules.decomposes:
            attributes = settings.without(attributes)
        if self.builder.fast and not node.domain:
            inputs = tuple([self.casts.unrounded(s, old) for s, old in zip(inputs, node.inputs, strict=True)])
        call = OpCall(node.op_type, inputs, stored_types, dict(attributes), node.domain)
        self._selector.keeps_kernels = is_read and kernel_dtype(call.op, inputs, call.types) in WIDE_FLOATS
        results = self._selector.legal(self.builder, call)
        if node.op_type in MOVES and not self.fast:
            return results
        for t in types:
            if isinstance(t, TensorType) and t.dtype is DType.tensor_float32:
                return tuple(self.casts.rounded(m, t) for m, t in zip(results, types, strict=True))
        return results

    def _cast(self, node: Node, inputs: tuple[Symbol | None, ...], target: DType) -> Symbol:
        """Return the result of a Cast between the dtypes of the source graph, not their storage dtypes."""
        (source,) = node.inputs
        (value,) = map(present, inputs)
        assert source is not None
        if "within" in node.attributes:
            return self.casts.native(value, target)
        if node.outputs[0].id in self._around:
            return self.casts.cast_at_boundary(value, source.dtype, target)
        return self.casts.cast(value, source.dtype, target)

    def _control_flow(self, node: Node, inputs: tuple[Symbol | None, ...], types: list[Type]) -> tuple[Symbol, ...]:
        b, stored = self.builder, stored_as(node, self.rules)
        old_attributes = node.attributes.items()
        attributes = {k: self.body(self.rewrite, v, stored) if isinstance(v, Graph) else v for k, v in old_attributes}
        operands = tuple([None if s is None else to_transport(b, s, stored) for s in inputs])
        transported = [t.cast(stored[t.dtype]) if isinstance(t, TensorType) and t.dtype in stored else t for t in types]
        call = OpCall(node.op_type, operands, transported, attributes)
        if needs_rewrite(self.rules, call):
            results = _build_scan(b, call) if call.op == "Scan" else _build_loop(b, call)
        else:
            results = b.emit_many(call.op, operands, transported, attributes)
        return tuple(
            b.cast(m, t.dtype) if isinstance(t, TensorType) and m.type is not t else m
            for m, t in zip(results, types, strict=True)
        )


# Whether a graph is legal already, from its summary: then lowering returns it unchanged.


def is_legal(summary: Summary, rules: Legality, *, keeps_halves: bool = False) -> bool:
    """Return True if the target runs a graph and its bodies unchanged. Raises `GraphError` as `stored_as` does.

    keeps_halves: nodes of imported models keep the runtime's kernels of float16 and bfloat16.
    """
    if summary.list_types and sequences.has_unsupported(summary):
        return False
    if rules.decomposes and summary.is_marked:
        return False
    dtypes = summary.dtypes
    if any(dtype.storage is not dtype or dtype in small_floats.stored(rules) for dtype in dtypes):
        return False
    for node in summary.nodes(CONTROL):
        call = OpCall(node.op_type, node.inputs, [s.type for s in node.outputs], dict(node.attributes))
        if stored_as(node, rules) or needs_rewrite(rules, call):
            return False
    if not all(computes(node, rules) for node in summary.nodes({"Attention"})):
        return False
    if rules.decomposes and any(map(_has_other_scale, summary.nodes({"DequantizeLinear"}))):
        return False
    if not all(_keeps(rules, *operator, dtype) for operator in summary.operators for dtype in dtypes):
        # Some operator is illegal for some dtype of the graph: check the combinations that occur.
        if not all(_is_legal_by_kind(part, rules, keeps_halves=keeps_halves) for part in summary.parts):
            return False
    return all(map(_has_own_outputs, summary.parts))


def _has_other_scale(node: Node) -> bool:
    """Return True if a DequantizeLinear returns another dtype than its scale's, for which there is no kernel."""
    scale = node.inputs[1]
    return scale is not None and scale.type.dtype is not node.outputs[0].type.dtype


def _is_legal_by_kind(graph: Graph, rules: Legality, *, keeps_halves: bool) -> bool:
    as_read = all(type(node.origin) is Imported for node in graph.nodes)
    halves = as_read and keeps_halves
    return all(_kind_is_legal(rules, as_read, halves, *kind) for kind in kinds_of(graph))


def _has_own_outputs(graph: Graph) -> bool:
    """Return True if every output is a distinct result of a node, under the output's name."""
    outputs = graph.named_outputs or []
    produced = {s.id for _, s in outputs if isinstance(s.producer, Node)}
    return len(produced) == len(outputs) and all(name is None or name == s.given_name for name, s in outputs)


def _kind_is_legal(
    rules: Legality, as_read: bool, halves: bool, op_type: str, domain: str, operand: Type | None, result: Type
) -> bool:
    # For operators that are chosen by another operand than the first, that operand has the result's dtype.
    decides = result if operand is None or op_type in BY_RESULT or op_type in PRIMARY else operand
    dtype = decides.dtype if isinstance(decides, TensorType) else None
    if as_read and not domain and dtype is not None and keeps_kernel(rules, op_type, dtype, operand):
        return rules.allows(op_type, dtype)
    if halves and not domain and dtype is not None and op_type != "Cast":
        if keeps_half(rules, op_type, dtype, operand, result):
            return True
    return _keeps(rules, op_type, domain, dtype, operand, result)


def _keeps(
    rules: Legality,
    op_type: str,
    domain: str,
    dtype: DType | None,
    operand: Type | None = None,
    result: Type | None = None,
) -> bool:
    if domain == LIBRARY or (rules.decomposes and may_be_replaced(op_type, domain, operand, result)):
        return False
    if domain:
        return True
    return op_type in CONTROL or (
        op_type != "Cast" and (dtype is None or keeps(rules, op_type, dtype, operand, result))
    )


# If, Loop and Scan: values of dtypes without a kernel enter and leave their bodies in a transport dtype.


def stored_as(node: Node, rules: Legality) -> dict[DType, DType]:
    """Return the transport dtype of values of an If, Loop or Scan, for each dtype that it has no kernel for.

    Raises `GraphError` for a Loop that onnxruntime computes wrongly.
    """
    outside = [s.type for s in (*node.inputs, *node.outputs) if s is not None]
    inside = [s.type for body in bodies(node) for s in (*body.inputs, *body.outputs)]
    dtypes = {t.dtype.storage for t in (*outside, *inside) if isinstance(t, TensorType)} if rules.decomposes else set()
    tables = [rules] if rules.host is None else [rules, rules.host]

    def is_taken(dtype: DType) -> bool:
        return any(table.allows(node.op_type, dtype) for table in tables)

    if rules.target.is_host and rules.has_trap("Loop that gathers strings"):
        _refuse_gathered_strings(node)
    transport = {}
    for dtype in dtypes:
        fit = [d for d in PROMOTIONS.get(dtype, ()) if is_taken(d) and d.is_float is dtype.is_float]
        if fit and not is_taken(dtype):
            transport[dtype] = fit[0]
    return transport


def needs_rewrite(rules: Legality, call: OpCall) -> bool:
    """Return True if a kernel may crash on the types of a call.

    That of Scan moves axes itself, and divides by the number of elements per slice. That of Loop reads the first trip
    count and the first condition without checking that they have an element.
    """
    if call.op == "Loop" and rules.decomposes and rules.has_trap("Loop without a number of turns"):
        return not all(s is None or _is_one(s.type) for s in call.inputs[:2])
    if call.op != "Scan" or not rules.decomposes or not rules.has_trap("Scan along other axes without elements"):
        return False
    states = len(call.inputs) - int(call.attributes["num_scan_inputs"])
    scanned = [None if s is None else s.type for s in call.inputs[states:]]
    inputs_along = zip(call.attributes.get("scan_input_axes") or (), scanned, strict=False)
    outputs_along = zip(call.attributes.get("scan_output_axes") or (), call.types[states:], strict=False)
    return any(axis and type_ is not None and _may_be_empty(type_) for axis, type_ in (*inputs_along, *outputs_along))


def to_transport(b: Builder, value: Symbol, dtypes: Mapping[DType, DType]) -> Symbol:
    """Cast a value to its transport dtype."""
    if not isinstance(value.type, TensorType) or value.type.dtype not in dtypes:
        return value
    return b.cast(value, dtypes[value.type.dtype])


def _build_scan(b: Builder, call: OpCall) -> tuple[Symbol, ...]:
    """Build a Scan that scans possibly empty values along the first axis: Transposes move the other axes and back."""
    scanned = int(call.attributes["num_scan_inputs"])
    states = len(call.inputs) - scanned
    inputs, types, attributes = list(call.inputs), list(call.types), dict(call.attributes)
    axes = list(attributes.get("scan_input_axes") or [0] * scanned)
    ends = list(attributes.get("scan_output_axes") or [0] * (len(types) - states))
    back = [0] * len(ends)
    for i, axis in enumerate(axes):
        x = present(inputs[states + i])
        if axis and _may_be_empty(x.type):
            inputs[states + i], axes[i] = _move_axis(b, x, axis % len(_shape_of(x.type)), 0), 0
    for i, axis in enumerate(ends):
        type_ = types[states + i]
        if axis and _may_be_empty(type_):
            dims = list(_shape_of(type_))
            back[i], ends[i] = axis % len(dims), 0
            types[states + i] = tensor_type(type_.dtype, _shape([dims.pop(back[i]), *dims]))
    if "scan_input_axes" in attributes:
        attributes["scan_input_axes"] = axes
    if "scan_output_axes" in attributes:
        attributes["scan_output_axes"] = ends
    results = list(b.emit_many("Scan", tuple(inputs), types, attributes))
    for i, axis in enumerate(back):
        results[states + i] = _move_axis(b, results[states + i], 0, axis)
    return tuple(results)


def _build_loop(b: Builder, call: OpCall) -> tuple[Symbol, ...]:
    """Build a Loop whose trip count and first condition are scalars; other sizes fail in a Reshape.

    Raises `GraphError` if they are known to have no or several elements.
    """
    inputs = list(call.inputs)
    for i, symbol in enumerate(inputs[:2]):
        if symbol is None or _is_one(symbol.type) or not isinstance(symbol.type, TensorType):
            continue
        shape = symbol.type.shape
        if shape.is_ranked and all(dim.is_static for dim in shape):
            what = "condition" if i else "trip count"
            raise GraphError(f"Loop: the {what} must have one element", operands={what: symbol}, help="pass a scalar")
        inputs[i] = b.op("Reshape", symbol, b.constant(np.zeros(0, np.int64), DType.int64), shape=_shape([]))
    return b.emit_many("Loop", tuple(inputs), call.types, call.attributes)


def _is_one(type_: Type) -> bool:
    """Return True if a tensor is known to have one element."""
    return (
        isinstance(type_, TensorType)
        and type_.shape.is_ranked
        and all(d.is_static and int(d) == 1 for d in type_.shape)
    )


def _may_be_empty(type_: Type) -> TypeGuard[TensorType]:
    if not isinstance(type_, TensorType):
        return False
    return not type_.shape.is_ranked or not all(d.is_static and int(d) for d in type_.shape)


def _shape_of(type_: TensorType) -> Shape:
    if not type_.shape.is_ranked:
        raise GraphError(
            "Scan: the rank of a tensor that is scanned along another axis than the first is not known",
            operands={"tensor": str(type_)},
            help="declare the shapes of the operands and results of the Scan's body",
        )
    return type_.shape


def _move_axis(b: Builder, x: Symbol, axis: int, to: int) -> Symbol:
    """Move an axis of a tensor."""
    if axis == to:  # also of a list, or of a tensor of unknown rank
        return x
    order = [i for i in range(x.rank) if i != axis]
    order.insert(to, axis)
    return transpose(b, x, order)


def _refuse_gathered_strings(node: Node) -> None:
    """Raise `GraphError` for a Loop that gathers strings: all but the first are lost, or the process crashes."""
    gathered = node.outputs[max(len(node.inputs) - 2, 0) :] if node.op_type == "Loop" else ()
    for result in gathered:
        if isinstance(result.type, TensorType) and result.type.dtype is DType.string:
            raise GraphError(
                "Loop: onnxruntime loses the strings that each step but the first adds to a result",
                operands={"result": str(result.type)},
                help="write the strings into a tensor that the loop carries from step to step",
            )
