"""Selects how a target computes a call: by its kernel, in another dtype, or decomposed into other operators."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.errors import GraphcoreError, GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Input, Symbol
from graphcore.ir.transform.walk import bodies
from graphcore.onnx.notes import OPSET
from graphcore.runtime.lowering.build.builder import Builder, Call, Decomposition, LegalNode, fold
from graphcore.runtime.lowering.build.casts import NARROW, chosen_dtype, compute_in
from graphcore.runtime.lowering.decompositions.float64_functions import FUNCTIONS
from graphcore.runtime.lowering.decompositions.rows import Replaced, keeps_half, keeps_kernel, replaced, rows_of
from graphcore.runtime.lowering.expansion.row_switch import expand
from graphcore.runtime.lowering.targets.compute_dtypes import KEEPS_VALUES, MOVES, PROMOTIONS, VIEWED, VIEWS
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.runtime.lowering.targets.releases import table_of
from graphcore.support.source_lines import line_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_TENSORS = frozenset({TensorType})

_LESS_ACCURATE = frozenset({("Sigmoid", DType.float32)})
"""Kernels that are right but for accuracy, so that a node which may be less accurate keeps them."""

_DEEPEST = 8
"""The depth to which a replacement may need the kernel that it replaces, on operands of other sizes, say."""


def keeps(rules: Legality, op_type: str, dtype: DType, operand: Type | None = None, result: Type | None = None) -> bool:
    """Return whether an operator chosen by `dtype` stays as it is: on any operands, or on one of the type given."""
    if not rules.allows(op_type, dtype):
        return False
    if not rules.decomposes:
        return True
    table = rows_of(rules)
    if (op_type, dtype) not in table.rows:
        return True
    needed = table.needed.get((op_type, dtype))
    if needed is None or not isinstance(operand, TensorType) or not isinstance(result, TensorType):
        return False
    return not needed(operand, result)


class Selector:
    """The selection of one run over one graph.

    legal_node: makes a node legal, as the nodes of an operator's function body are. keeps_kernels: whether the node
    being looked at is one of float32 in a model that was imported, which was written for its kernels. shortens: whether
    that node may be less accurate.
    """

    def __init__(self, legal_node: LegalNode) -> None:
        self.keeps_kernels = False
        self.shortens = False
        self._legal_node = legal_node
        self._depths: dict[tuple[str, DType], int] = {}
        """The depth to which each missing kernel is being replaced, within replacements of itself."""
        self._rules: Legality | None = None
        self._rows: Replaced | None = None

    def legal(self, b: Builder, call: Call) -> tuple[Symbol, ...]:
        """Build a call on stored dtypes out of what the target computes right."""
        op_type, inputs, types, attributes, domain = call
        rules = b.rules
        dtype = chosen_dtype(call)
        decomposes = rules.decomposes
        special = replaced(b, call) if decomposes else None
        if special is not None:
            return special
        if domain or dtype is None or not _TENSORS.issuperset(map(type, types)):
            return b.emit_many(op_type, tuple(inputs), types, attributes, domain)
        if decomposes:
            folded = fold(b.graph, op_type, inputs, types, attributes)
            if folded is not None:
                return (folded,)
            decomposition = self._replaced(rules).rows.get((op_type, dtype))
            if self.shortens and (op_type, dtype) in _LESS_ACCURATE:
                decomposition = None
            if decomposition is not None and not (self.keeps_kernels and _keeps_kernel(call, dtype)):
                made = decomposition(b, call)
                if made is not None:
                    return made if isinstance(made, tuple) else (made,)
            elif b.keeps_halves and keeps_half(rules, op_type, dtype, _first_type(call), types[0]):
                return b.emit_many(op_type, tuple(inputs), types, attributes)
            if b.fast and dtype in NARROW and op_type in KEEPS_VALUES and _is_wider(b, inputs):
                return compute_in(b, DType.float32, call)
        if rules.allows(op_type, dtype) or op_type == "Cast" or (op_type == "BitCast" and rules.views_bits):
            return b.emit_many(op_type, tuple(inputs), types, attributes)
        return self._without_kernel(b, call, dtype)

    def replacement(self, b: Builder, call: Call) -> tuple[Symbol, ...] | None:
        """Build what replaces a kernel that replacements of others are built of; return None where there is one."""
        dtype = chosen_dtype(call)
        if dtype is None or call.op == "Cast" or not b.rules.lacks(call.op, dtype):
            return None
        return self._without_kernel(b, call, dtype)

    def _replaced(self, rules: Legality) -> Replaced:
        """Return what is replaced on a target, which is the same for nearly all calls."""
        if self._rows is None or self._rules is not rules:
            self._rules, self._rows = rules, rows_of(rules)
        return self._rows

    def _without_kernel(self, b: Builder, call: Call, dtype: DType) -> tuple[Symbol, ...]:
        """Build a call on stored dtypes that the target has no kernel for."""
        op_type, rules = call.op, b.rules
        own = self._replaced(rules).own
        decomposition = own.get((op_type, dtype))
        built = None if decomposition is None else self._by_own_row(b, call, dtype, decomposition)
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
        if view is not None and (op_type, view) in own:
            return compute_in(b, view, call, by_bits=True)
        for wider in promotions:
            if (op_type, wider) in own:
                return compute_in(b, wider, call)
        made = self._by_function(b, call, dtype)
        if made is not None:
            return made
        if rules.host is not None:
            if dtype.bits == 4 and promotions:
                return compute_in(b, promotions[0], call)
            return b.on_host(call)
        f64 = DType.float64
        if dtype is DType.float32 and (rules.allows(op_type, f64) or op_type in FUNCTIONS):
            return compute_in(b, f64, call)
        raise _no_way(b, call, dtype)

    def _by_own_row(
        self, b: Builder, call: Call, dtype: DType, decomposition: Decomposition
    ) -> tuple[Symbol, ...] | None:
        """Build by the row that stands for a kernel; return None where it needs that very kernel."""
        key = call.op, dtype
        depth = self._depths.get(key, 0)
        if depth == _DEEPEST:
            return None
        self._depths[key] = depth + 1
        try:
            built = decomposition(b, call)
        finally:
            self._depths[key] = depth
        return built if built is None or isinstance(built, tuple) else (built,)

    def _by_function(self, b: Builder, call: Call, dtype: DType) -> tuple[Symbol, ...] | None:
        """Build by the function body that ONNX gives the operator; return None where there is none."""
        if dtype is DType.string or (not b.rules.decomposes and b.rules.runtime.opset == OPSET):
            return None
        if dtype.is_float and dtype.bits < 32:
            return compute_in(b, DType.float32, call)

        return by_function(b, call, self._legal_node)


def _keeps_kernel(call: Call, dtype: DType) -> bool:
    return keeps_kernel(call.op, dtype, _first_type(call))


def _first_type(call: Call) -> Type | None:
    first = call.inputs[0] if call.inputs else None
    return None if first is None else first.type


def _is_wider(b: Builder, inputs: Sequence[Symbol | None]) -> bool:
    return any(s is not None and (s.id, DType.float32) in b.casts.loose for s in inputs)


def _no_way(b: Builder, call: Call, dtype: DType) -> GraphError:
    """Return the error of a call that the target has no way to compute."""
    rules = b.rules
    shown = {f"input {i}": str(s.type) for i, s in enumerate(call.inputs) if s is not None}
    help = "cast the operands to float32 first: .cast(DType.float32)"
    view = VIEWS.get(dtype)
    others = (dtype, *PROMOTIONS.get(dtype, ()), *((view,) if view else ()))
    if rules.runtime.registry and any(rules.has_lost(call.op, d) for d in others):
        known = table_of(rules.target.name).newest.version
        help = f"onnxruntime {rules.runtime.version} lists no kernel of it: pip install onnxruntime=={known}"
    if (line := line_of(b.graph.site.origin)) is not None:
        shown["result"] = f"{call.types[0]}   {line}   {line.excerpt}".rstrip()
    return GraphError(
        f"{call.op}: the {rules.target.name} target has no way to compute it in {dtype}", operands=shown, help=help
    )


# Operators without a kernel by the function body that ONNX gives them: the last resort of lowering.


def by_function(b: Builder, call: Call, legal_node: LegalNode) -> tuple[Symbol, ...] | None:
    """Build an operator's function body on its operands; return None where there is none whose types can be told."""
    from graphcore.onnx.read.reader import read_nodes  # onnx, which few graphs need
    from graphcore.onnx.versions import function_body  # which imports onnx too

    op_type, inputs, types, attributes, _ = call
    body = function_body(op_type, "", OPSET, inputs, attributes, len(types))
    if body is None:
        return None
    # The body is read into a graph of its own, so that only what is legal enters the one being made.
    aside = Graph("function", promotion=b.graph.promotion)
    names: dict[str, Symbol | None] = dict.fromkeys(body.inputs)
    operands: dict[int, Symbol] = {}
    for name, symbol in zip(body.inputs, inputs, strict=False):
        if symbol is None:
            continue
        producer = symbol.producer
        own = Constant(producer.array, False, None) if isinstance(producer, Constant) else Input(len(operands), None)
        made = names[name] = aside.build.symbol(symbol.type, own)
        operands[made.id] = symbol
        aside.build.inputs([*aside.input_symbols, made])
    try:
        read_nodes(aside, body.nodes, names, body.version)
    except GraphcoreError:  # types that inference cannot tell without a shape
        return None
    results = [names.get(name) for name in body.outputs[: len(types)]]
    if any(r is None for r in results):
        return None
    aside.build.outputs([(None, r) for r in results if r is not None])
    return _inlined(b, expand(aside, b.rules), list(operands.values()), legal_node)


def _inlined(b: Builder, graph: Graph, operands: list[Symbol], legal_node: LegalNode) -> tuple[Symbol, ...] | None:
    """Make the nodes of a graph legal one by one, on operands in the place of its inputs, and return the results."""
    found = {graph.input_symbols[i].id: symbol for i, symbol in enumerate(operands)}

    def of(symbol: Symbol) -> Symbol:
        if symbol.id not in found:
            assert isinstance(symbol.producer, Constant)
            found[symbol.id] = b.constant(symbol.producer.array, symbol.dtype)
        return found[symbol.id]

    for node in graph.nodes:
        if bodies(node):
            return None
        made = legal_node(node, tuple(None if s is None else of(s) for s in node.inputs))
        found.update({old.id: new for old, new in zip(node.outputs, made, strict=True)})
    return tuple(of(symbol) for symbol in graph.outputs)
