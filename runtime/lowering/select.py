"""Selection of how a target computes a call: by its kernel, in another dtype, or decomposed into other operators."""

from __future__ import annotations

from graphcore.errors import GraphcoreError, GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Input, Symbol
from graphcore.ir.transform.walk import bodies
from graphcore.onnx.notes import OPSET
from graphcore.runtime.lowering.build.builder import Builder, Decomposition, LegalNode, OpCall, fold
from graphcore.runtime.lowering.build.casts import NARROW, compute_in
from graphcore.runtime.lowering.decompositions.float64_functions import FUNCTIONS, WITH_KERNELS
from graphcore.runtime.lowering.decompositions.rows import TargetRows, keeps_half, keeps_kernel, replace_call, rows_of
from graphcore.runtime.lowering.expansion.row_switch import expand
from graphcore.runtime.lowering.targets.compute_dtypes import KEEPS_VALUES, MOVES, PROMOTIONS, VIEWED, VIEWS
from graphcore.runtime.lowering.targets.legality import Legality, kernel_dtype
from graphcore.runtime.lowering.targets.releases import table_of
from graphcore.support.source_lines import line_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_TENSORS = frozenset({TensorType})

_MAX_DEPTH = 8
"""The maximum depth to which a replacement uses the kernel that it replaces, for example on other sizes."""


def keeps(rules: Legality, op_type: str, dtype: DType, operand: Type | None = None, result: Type | None = None) -> bool:
    """Return True if the kernel of `dtype` is used unchanged: on any operands, or on those of the given types."""
    if not rules.allows(op_type, dtype):
        return False
    if not rules.decomposes:
        return True
    table = rows_of(rules)
    return (op_type, dtype) not in table.rows or table.spares((op_type, dtype), operand, result)


class Selector:
    """The selection of one lowering run over one graph.

    legal_node: legalises a node, for the nodes of an operator's function body. keeps_kernels: True while the current
    node is a float32 or float64 node of an imported model, which was written for these kernels. shortens: True while
    the current node may be less accurate.
    """

    def __init__(self, legal_node: LegalNode) -> None:
        self.keeps_kernels = False
        self.shortens = False
        self._legal_node = legal_node
        self._depths: dict[tuple[str, DType], int] = {}
        """The current depth of nested replacements, for each missing kernel."""
        self._rules: Legality | None = None
        self._rows: TargetRows | None = None

    def legal(self, b: Builder, call: OpCall) -> tuple[Symbol, ...]:
        """Build a call on storage dtypes from operators that the target computes correctly."""
        op_type, inputs, types, attributes, domain = call
        rules = b.rules
        dtype = kernel_dtype(op_type, inputs, types)
        decomposes = rules.decomposes
        special = replace_call(b, call) if decomposes else None
        if special is not None:
            return special
        if domain or dtype is None or not _TENSORS.issuperset(map(type, types)):
            return b.emit_many(op_type, tuple(inputs), types, attributes, domain)
        if decomposes:
            folded = fold(b.graph, op_type, inputs, types, attributes)
            if folded is not None:
                return (folded,)
            decomposition = self._replaced(rules).rows.get((op_type, dtype))
            if self.keeps_kernels or (self.shortens and op_type in WITH_KERNELS):
                if keeps_kernel(rules, op_type, dtype, _first_type(call)):
                    decomposition = None
            if decomposition is not None:
                results = decomposition(b, call)
                if results is not None:
                    return results if isinstance(results, tuple) else (results,)
            elif b.keeps_halves and keeps_half(rules, op_type, dtype, _first_type(call), types[0]):
                return b.emit_many(op_type, tuple(inputs), types, attributes)
            if b.fast and dtype in NARROW and op_type in KEEPS_VALUES:
                if any(s is not None and (s.id, DType.float32) in b.casts.loose for s in inputs):
                    return compute_in(b, DType.float32, call)
        if rules.allows(op_type, dtype) or op_type == "Cast" or (op_type == "BitCast" and rules.views_bits):
            return b.emit_many(op_type, tuple(inputs), types, attributes)
        return self._without_kernel(b, call, dtype)

    def replacement(self, b: Builder, call: OpCall) -> tuple[Symbol, ...] | None:
        """Build the replacement of a missing kernel for another replacement; return None if the kernel exists."""
        dtype = kernel_dtype(call.op, call.inputs, call.types)
        if dtype is None or call.op == "Cast" or not b.rules.lacks(call.op, dtype):
            return None
        return self._without_kernel(b, call, dtype)

    def _replaced(self, rules: Legality) -> TargetRows:
        """Return the replacements of a target, which is the same for nearly all calls."""
        if self._rows is None or self._rules is not rules:
            self._rules, self._rows = rules, rows_of(rules)
        return self._rows

    def _without_kernel(self, b: Builder, call: OpCall, dtype: DType) -> tuple[Symbol, ...]:
        """Build a call on storage dtypes that the target has no kernel for."""
        op_type, rules = call.op, b.rules
        substitutes = self._replaced(rules).own
        decomposition = substitutes.get((op_type, dtype))
        built = None if decomposition is None else self._by_decomposition(b, call, dtype, decomposition)
        if built is not None:
            return built
        view = VIEWS.get(dtype) if op_type in VIEWED else None
        if view is not None and rules.allows(op_type, view):
            return compute_in(b, view, call, by_bits=True)
        promotions = PROMOTIONS.get(dtype, ())
        for wider in promotions:
            exact = op_type in MOVES or not (wider.is_float and not dtype.is_float)
            if exact and rules.allows(op_type, wider):
                return compute_in(b, wider, call)
        if view is not None and (op_type, view) in substitutes:
            return compute_in(b, view, call, by_bits=True)
        for wider in promotions:
            if (op_type, wider) in substitutes:
                return compute_in(b, wider, call)
        results = self._by_function(b, call, dtype)
        if results is not None:
            return results
        if rules.host is not None:
            if dtype.bits == 4 and promotions:
                return compute_in(b, promotions[0], call)
            return b.on_host(call)
        f64 = DType.float64
        if dtype is DType.float32 and (rules.allows(op_type, f64) or op_type in FUNCTIONS):
            return compute_in(b, f64, call)
        raise _unsupported(b, call, dtype)

    def _by_decomposition(
        self, b: Builder, call: OpCall, dtype: DType, decomposition: Decomposition
    ) -> tuple[Symbol, ...] | None:
        """Build the decomposition that stands for a kernel; return None if it needs that very kernel."""
        key = call.op, dtype
        depth = self._depths.get(key, 0)
        if depth == _MAX_DEPTH:
            return None
        self._depths[key] = depth + 1
        try:
            built = decomposition(b, call)
        finally:
            self._depths[key] = depth
        return built if built is None or isinstance(built, tuple) else (built,)

    def _by_function(self, b: Builder, call: OpCall, dtype: DType) -> tuple[Symbol, ...] | None:
        """Build the operator's function body of ONNX; return None if it has none."""
        if dtype is DType.string or (not b.rules.decomposes and b.rules.runtime.opset == OPSET):
            return None
        if dtype.is_float and dtype.bits < 32:
            return compute_in(b, DType.float32, call)

        return by_function(b, call, self._legal_node)


def _first_type(call: OpCall) -> Type | None:
    first = call.inputs[0] if call.inputs else None
    return None if first is None else first.type


def _unsupported(b: Builder, call: OpCall, dtype: DType) -> GraphError:
    """Return the error for a call that the target cannot compute."""
    rules = b.rules
    operands = {f"input {i}": str(s.type) for i, s in enumerate(call.inputs) if s is not None}
    help = "cast the operands to float32 first: .cast(DType.float32)"
    help += ', or export for target="wasm"' if rules.target.name == "webgpu" else ""
    view = VIEWS.get(dtype)
    others = (dtype, *PROMOTIONS.get(dtype, ()), *((view,) if view else ()))
    if rules.runtime.registry and any(rules.has_lost(call.op, d) for d in others):
        measured = table_of(rules.target.name).newest.version
        help = f"onnxruntime {rules.runtime.version} lists no kernel for it: pip install onnxruntime=={measured}"
    if (line := line_of(b.graph.site.origin)) is not None:
        operands["result"] = f"{call.types[0]}   {line}   {line.excerpt}".rstrip()
    return GraphError(
        f"{call.op}: the {rules.target.name} target cannot compute it in {dtype}", operands=operands, help=help
    )


# Operators without a kernel, built from ONNX's function bodies: the last resort of lowering.


def by_function(b: Builder, call: OpCall, legal_node: LegalNode) -> tuple[Symbol, ...] | None:
    """Build an operator's function body on its operands; return None if it has none whose types can be inferred."""
    from graphcore.onnx.read.reader import read_nodes  # onnx, which few graphs need
    from graphcore.onnx.versions import function_body  # which imports onnx too

    op_type, inputs, types, attributes, _ = call
    body = function_body(op_type, "", OPSET, inputs, attributes, len(types))
    if body is None:
        return None
    # Read the body into a separate graph, so that only legal nodes enter the one being built.
    aside = Graph("function", promotion=b.graph.promotion)
    names: dict[str, Symbol | None] = dict.fromkeys(body.inputs)
    operands: dict[int, Symbol] = {}
    for name, symbol in zip(body.inputs, inputs, strict=False):
        if symbol is None:
            continue
        producer = symbol.producer
        source = Constant(producer.array, False, None) if isinstance(producer, Constant) else Input(len(operands), None)
        input_ = names[name] = aside.build.symbol(symbol.type, source)
        operands[input_.id] = symbol
        aside.build.inputs([*aside.input_symbols, input_])
    try:
        read_nodes(aside, body.nodes, names, body.version)
    except GraphcoreError:  # types that cannot be inferred without a shape
        return None
    results = [names.get(name) for name in body.outputs[: len(types)]]
    if any(r is None for r in results):
        return None
    aside.build.outputs([(None, r) for r in results if r is not None])
    return _inlined(b, expand(aside, b.rules), list(operands.values()), legal_node)


def _inlined(b: Builder, graph: Graph, operands: list[Symbol], legal_node: LegalNode) -> tuple[Symbol, ...] | None:
    """Legalise the nodes of a graph one by one, with operands in place of its inputs, and return the results."""
    values = {graph.input_symbols[i].id: symbol for i, symbol in enumerate(operands)}

    def of(symbol: Symbol) -> Symbol:
        if symbol.id not in values:
            assert isinstance(symbol.producer, Constant)
            values[symbol.id] = b.constant(symbol.producer.array, symbol.dtype)
        return values[symbol.id]

    for node in graph.nodes:
        if bodies(node):
            return None
        results = legal_node(node, tuple(None if s is None else of(s) for s in node.inputs))
        values.update({old.id: new for old, new in zip(node.outputs, results, strict=True)})
    return tuple(of(symbol) for symbol in graph.outputs)
