"""A switch by rows: products with 4-bit weights in one form for few rows, and in another for many.

MatMulNBits reads 4 bits per number and takes longer for each row than a product of bytes. The other form converts the
weights to bytes in each call and multiplies those: the conversion does not depend on the rows, so that it pays off from
some number of rows on, `Runtime.many_rows`. All products with the same number of rows, and all nodes between them, are
in both branches of one If: an If for each product would cost more than it saves.

In the branch for many rows a weight is rounded to the nearest of 255 (127 where bytes saturate) steps over the possible
range of its row, and x to the nearest of 255 over the range of its own row. The sums are exact, so that each row of the
result depends only on its own row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import EXPANSIONS, FAST_EXPANSIONS, IN_DOUBLE, LIBRARY, expanded
from graphcore.errors import GraphError
from graphcore.ir.definitions import body
from graphcore.ir.graph import Graph
from graphcore.ir.state import settings
from graphcore.ir.symbol import Constant, Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import bodies, constant_array, operators, reads
from graphcore.ops.shared.quantized_products import flaws, is_flaw
from graphcore.quantization.tensors import Array, nibbles
from graphcore.runtime.lowering.decompositions.float64_functions import FUNCTIONS
from graphcore.runtime.lowering.expansion import composed, packed_weights
from graphcore.runtime.lowering.expansion.composed import MICROSOFT
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.runtime.lowering.targets.releases import Runtime, table_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type

NOTE = "graphcore.many_rows"
"""The metadata key of a graph, or a file, whose products of 4 bits may take either form: "int8"."""

_SWITCHED_OP = ("MatMulNBits", MICROSOFT)
_F32 = DType.float32
_MIN_SHARED_BYTES = 256
"""The size of constants that both branches share; each branch has its own smaller ones, for the optimisers."""
_MIN_STEP = 1e-30
"""The smallest step of a row of x, also for rows of zeros."""


def is_wanted(graph: Graph, operators: Iterable[tuple[str, str]]) -> bool:
    """Return True if the metadata of a graph says that its products of 4 bits may take either form."""
    return graph.metadata.get(NOTE) == "int8" and _SWITCHED_OP in operators and not graph.watched


def rows_of(graph: Graph, runtime: Runtime) -> tuple[Dim, int] | None:
    """Return the rows of the products that a switch has, and the number of them from which on it multiplies bytes; None
    if the lowered graph has no such products."""
    rows = runtime.many_rows()
    chosen = _chosen(graph) if rows is not None and is_wanted(graph, operators(graph)) else {}
    return None if rows is None or not chosen else (_rows(next(iter(chosen.values()))), rows)


def switched(graph: Graph, runtime: Runtime) -> Graph:
    """Return a lowered graph with the switch; the same graph if there is nothing to switch."""
    rows = runtime.many_rows()
    if rows is None or not table_of("cpu").takes("GatherBlockQuantized", 4, ("bits", "block_size"), runtime):
        return graph
    chosen = _chosen(graph)
    region = _region(graph, chosen)
    values = [s for node in region.values() for s in (*node.inputs, *node.outputs) if s is not None]
    if not values or any(map(bodies, region.values())) or not all(isinstance(s.type, TensorType) for s in values):
        return graph
    return _Switch(graph, chosen, region, rows, 63 if runtime.saturates() else 127).run()


# The products to switch


def _chosen(graph: Graph) -> dict[int, Node]:
    """Return the products with the same number of rows, those with most weights if there are several, by `id`."""
    groups: dict[Dim, dict[int, Node]] = {}
    for node in graph.nodes:
        if _is_product(node):
            groups.setdefault(_rows(node), {})[id(node)] = node

    def weights(nodes: dict[int, Node]) -> int:
        return sum(int(node.attributes["K"]) * int(node.attributes["N"]) for node in nodes.values())

    return max(groups.values(), key=weights, default={})


def _is_product(node: Node) -> bool:
    if (node.op_type, node.domain) != _SWITCHED_OP or len(node.inputs) > 6:
        return False
    x, data, scales, zeros, order = [*node.inputs, None, None][:5]
    attributes = node.attributes
    if (
        attributes["bits"] != 4
        or attributes.get("accuracy_level", 0) != 4
        or attributes["K"] % attributes["block_size"]
    ):
        return False
    if x is None or x.dtype is not _F32 or not x.shape.is_ranked or not x.rank or order is not None:
        return False
    if _rows(node).is_static and int(_rows(node)) < 2:
        return False
    bytes_, steps, points = (constant_array(s, weights=True) for s in (data, scales, zeros))
    if bytes_ is None or steps is None or (zeros is not None and (points is None or points.dtype != np.uint8)):
        return False
    return steps.dtype == np.float32 and bool(np.isfinite(steps).all())


def _rows(node: Node) -> Dim:
    x = present(node.inputs[0])
    return math.prod(tuple(x.shape)[:-1], start=Dim(1))


def _region(graph: Graph, chosen: dict[int, Node]) -> dict[int, Node]:
    """Return the chosen nodes and all between them, which depend on one and have another depend on them, by `id`."""
    after: set[int] = set()
    for node in graph.nodes:
        if id(node) in chosen or any(s is not None and id(s.producer) in after for s in node.inputs):
            after.add(id(node))
    before: set[int] = set()
    region: dict[int, Node] = {}
    for node in reversed(graph.nodes):
        if id(node) not in chosen and id(node) not in before:
            continue
        before.update(id(s.producer) for s in node.inputs if s is not None)
        if id(node) in after:
            region[id(node)] = node
    return dict(reversed(region.items()))


# The new graph


class _Switch(Rewrite):
    """Builds the new graph. most: the largest number of a weight in bytes."""

    def __init__(
        self, graph: Graph, chosen: dict[int, Node], region: dict[int, Node], rows: int, max_number: int
    ) -> None:
        super().__init__(graph, Policy())
        self._chosen, self._region, self._least, self._max_number = chosen, region, rows, max_number
        inside = {id(s) for node in region.values() for s in node.outputs}
        read = {id(s) for node in graph.nodes if id(node) not in region for s in reads(node)}
        read |= {id(s) for s in (*graph.outputs, *(buffer.value for buffer in graph.buffers.values()))}
        self._results = [s for node in region.values() for s in node.outputs if id(s) in read & inside]

    def run(self) -> Graph:
        late = {id(node) for node in self._region.values()}
        first: list[Node] = []
        last: list[Node] = []
        for node in self.old.nodes:
            if id(node) in self._region:
                continue
            is_late = any(id(s.producer) in late for s in reads(node))
            late.update([id(node)] if is_late else [])
            (last if is_late else first).append(node)
        for node in first:
            self._copy_node(node)
        self._build_switch()
        for node in last:
            self._copy_node(node)
        self.new.site.layer, self.new.site.origin = "", None
        return self.finish()

    def _copy_node(self, node: Node) -> None:
        self.new.site.layer, self.new.site.origin = node.layer, node.origin
        self.node(node)

    def _build_switch(self) -> None:
        start = next(iter(self._chosen.values()))
        self.new.site.layer, self.new.site.origin = start.layer, start.origin
        assert start.inputs[0] is not None
        x = self.of(start.inputs[0])
        size = self.new.build.emit("Size", (x,), tensor_type(DType.int64, _shape([])))
        min_size = self.new.build.scalar(self._least * int(start.attributes["K"]) - 1, DType.int64)
        is_many = e.greater(size, min_size)
        attributes = {"then_branch": self._branch("many_rows", True), "else_branch": self._branch("few_rows", False)}
        results = self.new.build.emit_many("If", (is_many,), [s.type for s in self._results], attributes)
        for symbol, result in zip(self._results, results, strict=True):
            self.bind(symbol, result)
            if symbol.given_name is not None:
                self.new.names.rename(result, symbol.given_name)

    def _branch(self, name: str, is_many: bool) -> Graph:
        with body(self.new, name) as inner:
            branch = _Branch(self, inner, self._max_number)
            replacements = _without_flaws(self._region.values(), self._chosen) if is_many else {}
            for node in _needed(self._region.values(), self._results, replacements):
                inner.site.layer, inner.site.origin = node.layer, node.origin
                if is_many and id(node) in self._chosen:
                    branch.bind(node.outputs[0], branch.product(node))
                elif id(node) in replacements:
                    branch.bind(node.outputs[0], branch.of(replacements[id(node)]))
                else:
                    branch.node(node)
            inner.build.outputs([(None, branch.of(s)) for s in self._results])
        return inner


def _without_flaws(nodes: Iterable[Node], chosen: dict[int, Node]) -> dict[int, Symbol]:
    """Return additions of 0 or NaN to a product that can be omitted, by `id`, with their replacements: in the other
    form the scales of the rows are NaN."""
    replacements = {}
    for node in nodes:
        if node.op_type != "Add" or node.domain:
            continue
        product, other = node.inputs
        if product is not None and id(product.producer) in chosen and is_flaw(other):
            replacements[id(node)] = product
    return replacements


def _needed(nodes: Iterable[Node], results: Sequence[Symbol], instead: dict[int, Symbol]) -> list[Node]:
    """Return the nodes that results depend on, in order."""
    read = {id(s) for s in results}
    needed_nodes = []
    for node in reversed([*nodes]):
        if not any(id(s) in read for s in node.outputs):
            continue
        needed_nodes.append(node)
        read.update([id(instead[id(node)])] if id(node) in instead else map(id, node.inputs))
    return needed_nodes[::-1]


class _Branch(Rewrite):
    """A branch under construction, whose values have no names."""

    def __init__(self, switch: _Switch, graph: Graph, max_number: int) -> None:
        super().__init__(switch.old, Policy(), switch, new=graph)
        self._switch, self._max_number = switch, max_number
        self._levels: dict[int, tuple[Symbol, Symbol]] = {}
        self._middles: dict[Shape, Symbol] = {}
        self._every: dict[tuple[int, int], Symbol] = {}

    def _leaf(self, symbol: Symbol) -> Symbol:
        array = symbol.producer.array if isinstance(symbol.producer, Constant) else None
        if array is not None and array.nbytes < _MIN_SHARED_BYTES and symbol.given_name is None:
            value = self.new.build.constant(array, symbol.dtype)
        else:
            value = self.captured(self._switch.of(symbol))
        self.bind(symbol, value)
        return value

    def _result_name(self, name: str) -> None:
        return None

    def product(self, node: Node) -> Symbol:
        """Build a product of bytes in place of one of 4 bits."""
        inner, columns = int(node.attributes["K"]), int(node.attributes["N"])
        x, result = present(node.inputs[0]), node.outputs[0]
        numbers, scale = self._rows_in_bytes(self.of(x))
        weight, steps = self._weight_in_bytes(node, columns, inner, self._columns(numbers, columns))
        shape = numbers.shape[:1] + _shape([Dim(columns)])
        one, middle = e.const(scale, 1.0), e.const(scale, 128, DType.uint8)
        operands = (numbers, weight, one, steps, middle)
        total = self.new.build.emit("MatMulIntegerToFloat", operands, tensor_type(_F32, shape), None, MICROSOFT)
        total = e.emit("Mul", total, scale, shape=shape)
        bias = node.inputs[5] if len(node.inputs) > 5 else None
        if bias is not None:
            total = e.emit("Add", total, self.of(bias), shape=shape)
        if x.rank == 2:
            return total
        counts = e.emit("Shape", self.of(x), dtype=DType.int64, shape=Shape([x.rank - 1]), end=-1)
        both = e.emit("Concat", counts, e.ints(total, [columns]), shape=Shape([x.rank]), axis=0)
        return e.emit("Reshape", total, both, shape=result.shape)

    def _rows_in_bytes(self, x: Symbol) -> tuple[Symbol, Symbol]:
        """Return the rows of x in uint8 around 128, and a scale for each, which is NaN if the row has a NaN."""
        if x.id in self._levels:  # queries, keys and values are products of one x
            return self._levels[x.id]
        key, inner = x.id, x.shape[-1]
        if x.rank != 2:
            rows = math.prod(tuple(x.shape)[:-1], start=Dim(1))
            x = e.emit("Reshape", x, e.ints(x, [-1, int(inner)]), shape=_shape([rows, inner]))
        of_rows, column = _shape([x.shape[0]]), _shape([x.shape[0], Dim(1)])
        greatest = e.emit("ReduceMax", e.emit("Abs", x), e.ints(x, [1]), shape=column, keepdims=1)
        step = e.emit("Max", e.emit("Mul", greatest, e.const(x, 1 / 127)), e.const(x, _MIN_STEP), shape=column)
        steps = e.emit("Squeeze", step, e.ints(x, [1]), shape=of_rows)
        middle = self._middles.get(of_rows)
        if middle is None:
            count = e.emit("Shape", steps, dtype=DType.int64, shape=Shape([1]))
            middle = e.emit("Expand", e.const(x, 128, DType.uint8), count, dtype=DType.uint8, shape=of_rows)
            if not x.shape[0].is_dynamic:
                self._middles[of_rows] = middle
        numbers = e.emit("QuantizeLinear", x, steps, middle, dtype=DType.uint8, shape=x.shape, axis=0)
        levels = self._levels[key] = numbers, e.emit("Add", step, flaws(x, inner), shape=column)
        return levels

    def _columns(self, numbers: Symbol, columns: int) -> Symbol:
        """Return the indices of the columns, as a value that depends on x.

        Otherwise onnxruntime would convert all weights to bytes before it runs the first layer, and keep them until
        then.
        """
        indices = self._every.get((numbers.id, columns))
        if indices is not None:  # keys and values have the same width
            return indices
        zero = self._every.get((numbers.id, 0))
        if zero is None:
            count = e.emit("Shape", numbers, dtype=DType.int64, shape=Shape([1]), end=1)
            zero = self._every[numbers.id, 0] = e.emit("Mul", count, e.const(count, 0), shape=Shape([1]))
        every = self.new.build.constant(np.arange(columns), DType.int64)
        dependent = self._every[numbers.id, columns] = e.emit("Add", every, zero, shape=_shape([Dim(columns)]))
        return dependent

    def _weight_in_bytes(self, node: Node, columns: int, inner: int, every: Symbol) -> tuple[Symbol, Symbol]:
        """Return a weight [k, n] in int8 and the scale of each column, converted from 4 bits in each call. every: the
        indices of the columns."""
        build = self.new.build
        data, scales, *others = (None if s is None else constant_array(s, weights=True) for s in node.inputs[1:4])
        assert data is not None
        assert scales is not None
        zeros = others[0] if others else None
        blocks = inner // int(node.attributes["block_size"])
        # The same memory as in the other branch, in another shape.
        arrays = [data.reshape(columns, -1), scales.reshape(columns, blocks)]
        arrays += [] if zeros is None else [zeros.reshape(columns, -1)]
        operands_in_shape = [self._in_shape(s, a) for s, a in zip(node.inputs[1:4], arrays, strict=False)]
        operands = (operands_in_shape[0], every, *operands_in_shape[1:])
        attributes = {"bits": 4, "block_size": node.attributes["block_size"], "gather_axis": 0, "quantize_axis": 1}
        transposed = _shape([Dim(columns), Dim(inner)])
        floats = build.emit("GatherBlockQuantized", operands, tensor_type(_F32, transposed), attributes, MICROSOFT)
        steps = build.constant(_steps(arrays[1], None if zeros is None else arrays[2], self._max_number), _F32)
        zero_points = build.constant(np.zeros(columns, np.int8), DType.int8)
        numbers = e.emit("QuantizeLinear", floats, steps, zero_points, dtype=DType.int8, shape=transposed, axis=0)
        return e.emit("Transpose", numbers, shape=transposed[::-1], perm=[1, 0]), steps

    def _in_shape(self, symbol: Symbol | None, array: Array) -> Symbol:
        """Return a constant of the old graph in another shape, as one of the new graph: the memory is shared."""
        assert symbol is not None
        if array.shape == tuple(symbol.shape.static_dims):
            return self.of(symbol)
        return self.captured(self._switch.new.build.constant(array, symbol.dtype))


def _steps(scales: Array, zeros: Array | None, max_number: int) -> Array:
    """Return the step of each row of a weight, so that its possible values are at most `most` steps."""
    far: Array = np.float32(8) * np.abs(scales)
    if zeros is not None:
        points = nibbles(zeros)[:, : scales.shape[1]].astype(np.float32)
        far = np.maximum(points, 15 - points) * np.abs(scales)
    steps = far.max(1) / np.float32(max_number)
    return np.where(steps > 0, steps, np.float32(1)).astype(np.float32)


# Expand operators of graphcore, and ONNX's without a kernel for their dtype.


def expand(graph: Graph, rules: Legality) -> Graph:
    """Expand the operators in `EXPANSIONS` for which the target has no kernel.

    Expansions compute floats narrower than 32 bits in float32 and round once, and int4 in int8.
    """
    return Rewrite(graph, _ExpandPolicy(rules)).run() if _expands(graph, rules) else graph


def _expands(graph: Graph, rules: Legality) -> bool:
    return any(_has_expansion(n, rules) or any(_expands(b, rules) for b in bodies(n)) for n in graph.nodes)


@dataclass(eq=False)
class _ExpandPolicy(Policy[Rewrite]):
    rules: Legality
    done: packed_weights.Packed = field(default_factory=dict)

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        if not _has_expansion(node, self.rules):
            return None
        boundaries = rewrite.new.memory.loose
        return _by_kernel(node, inputs, self.rules) or _expanded(node, inputs, boundaries, self.rules, self.done)

    def body(self, rewrite: Rewrite, body: Graph) -> Graph:
        return Rewrite(body, _ExpandPolicy(self.rules), rewrite).run()


def _has_expansion(node: Node, rules: Legality) -> bool:
    if node.op_type not in EXPANSIONS:
        if node.domain == LIBRARY:
            raise GraphError(f"{node.op_type}: the operator of the graphcore domain has no expansion")
        return False
    if node.domain:
        return node.domain == LIBRARY
    dtype = next((s.dtype for s in node.inputs if s is not None), None)
    if dtype is DType.float64 and node.op_type in FUNCTIONS and rules.decomposes:
        return settings.is_fast(node.attributes)
    row = rules.dtypes(node.op_type)
    if not row:
        return row is not None
    if dtype is None or not dtype.is_float:
        return False
    return _WIDER.get(dtype, dtype) not in row or not computes(node, rules)


def computes(node: Node, rules: Legality) -> bool:
    """Return True if the existing kernel of one of ONNX's operators computes this node."""
    return not rules.decomposes or node.op_type != "Attention" or composed.is_native(node)


def _by_kernel(node: Node, inputs: tuple[Symbol | None, ...], rules: Legality) -> tuple[Symbol, ...] | None:
    """Return the results of the kernel of Attention, which runs some nodes only."""
    if node.op_type != "Attention" or node.domain or not rules.decomposes:
        return None
    row = rules.dtypes(node.op_type)
    dtype = next((s.dtype for s in node.inputs if s is not None), None)
    return composed.build_kernel(node, inputs) if row and dtype and _WIDER.get(dtype, dtype) in row else None


_WIDER = {
    DType.float16: DType.float32,
    DType.bfloat16: DType.float32,
    DType.tensor_float32: DType.float32,
    DType.float8_e4m3fn: DType.float32,
    DType.float8_e5m2: DType.float32,
    DType.float8_e4m3fnuz: DType.float32,
    DType.float8_e5m2fnuz: DType.float32,
    DType.float8_e8m0: DType.float32,
    DType.index: DType.uint64,
    DType.address: DType.uint64,
}
_NIBBLES = {DType.int4: DType.int8, DType.uint4: DType.uint8}
_DOUBLE = {d: DType.float64 for d in (DType.float32, *_WIDER) if d.is_float}
_OWN_WIDTH = frozenset({"ShiftLeft", "ShiftRight", "QMatMul", "Dequantize"})
"""Operators that depend on the number of bits, so that their operands are not cast."""


def _expanded(
    node: Node,
    inputs: tuple[Symbol | None, ...],
    boundaries: dict[int, bool],
    rules: Legality,
    done: packed_weights.Packed,
) -> tuple[Symbol, ...]:
    is_fast = settings.is_fast(node.attributes)
    in_double = node.op_type in IN_DOUBLE and not (is_fast and node.op_type in FAST_EXPANSIONS)
    table = _WIDER if node.op_type in _OWN_WIDTH else _DOUBLE if in_double else {**_WIDER, **_NIBBLES}
    wide = [s if s is None else s.graph.build.cast(s, table.get(s.dtype, s.dtype)) for s in inputs]
    result = packed_weights.build_product(node, wide, rules, done)
    if result is None:
        # The short form in float64 is enough for narrower floats.
        is_narrow = in_double and node.inputs[0] is not None and node.inputs[0].dtype is not DType.float64
        short = {settings.KEY: settings.FAST} if is_narrow else {}
        result = expanded(node.op_type, wide, {**node.attributes, **short})
    results = result[: len(node.outputs)] if isinstance(result, tuple) else (result,)
    narrow = [r.graph.build.cast(r, old.type.dtype) for r, old in zip(results, node.outputs, strict=True)]
    for symbol in (*wide, *narrow):
        if symbol is not None and symbol.dtype.is_float:
            boundaries[symbol.id] = boundaries.get(symbol.id, True) and is_fast
    return tuple(narrow)
