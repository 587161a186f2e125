"""Which lowered graphs OpenVINO computes right, and for which bounds of the fed integers.

The provider compiles every operator that it supports, whatever its dtype, and the remaining nodes may not form valid
graphs: so it runs a whole graph or none of it. It stores int64 in 32 bits. Sizes and indices fit. For fed integers,
each sum, product or cast must stay below 2^31, which a session checks in every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from graphcore.build.shapes import SIZE_CHECK
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Input, Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite, with_names
from graphcore.ir.transform.walk import bodies, node_of
from graphcore.passes.merging import prune
from graphcore.runtime.lowering.targets.legality import Legality, legality
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import TensorType

LIMIT = float(2**31 - 1)

Norm: TypeAlias = tuple[str, str]
"""("greatest" or "total", an input): the maximum or the sum of the absolute values of its numbers."""


@dataclass(frozen=True, slots=True)
class IntegerBound:
    """A bound of absolute values: a constant plus multiples of norms of inputs.

    whole: the input whose numbers these are, each once. is_size: whether they count elements.
    """

    constant: float = 0.0
    norms: Mapping[Norm, float] = field(default_factory=dict)
    whole: str = ""
    is_size: bool = False

    def scaled(self, factor: float) -> IntegerBound:
        """Return the bound times a factor."""
        return IntegerBound(self.constant * factor, {norm: f * factor for norm, f in self.norms.items()})

    def __add__(self, other: IntegerBound) -> IntegerBound:
        norms = dict(self.norms)
        for norm, factor in other.norms.items():
            norms[norm] = norms.get(norm, 0.0) + factor
        return IntegerBound(self.constant + other.constant, norms, is_size=self.is_size and other.is_size)


@dataclass(frozen=True, slots=True)
class Findings:
    """unsupported: by operator, why OpenVINO computes it wrong. bounds: values that must be below 2^31 in a call."""

    unsupported: Mapping[str, str]
    bounds: tuple[IntegerBound, ...] = ()


def findings(graph: Graph, rules: Legality, *, halves: bool = False) -> Findings:
    """Check a graph that was lowered for OpenVINO.

    halves: whether casts of float16 are allowed, because the graph computes in float16.
    """
    unsupported: dict[str, str] = {}
    known_bounds: dict[int, IntegerBound] = {}
    for node in graph.nodes:
        why = _why_unsupported(node, rules, halves)
        if not why and _counts(node.outputs[0]):
            bound = _result_bound(node, known_bounds)
            if bound is None:
                why = "OpenVINO computes int64 in 32 bits"
            else:
                known_bounds.update({s.id: bound for s in node.outputs if _counts(s)})
        if why:
            unsupported.setdefault(f"{node.domain}.{node.op_type}" if node.domain else node.op_type, why)
    for symbol in _unread(graph):
        unsupported[f"input {symbol.name}"] = "OpenVINO mixes up inputs if one of them is not read"
    bounds = {(b.constant, *sorted(b.norms.items())): b for b in known_bounds.values() if b.norms}
    fed = [_operand_bound(s, known_bounds) for s in graph.input_symbols if _counts(s)]
    bounds.update({(0.0, *b.norms.items()): b for b in fed if b is not None})
    if any(b.constant > LIMIT for b in known_bounds.values() if not b.is_size):
        unsupported.setdefault("Constant", "an int64 beyond 32 bits")
    return Findings(unsupported, tuple(replace(b, whole="") for b in bounds.values()))


def _unread(graph: Graph) -> list[Symbol]:
    """Return the inputs whose values no output depends on: their sizes may be constants when the graph is compiled."""
    waiting, seen = [*graph.outputs], set[int]()
    while waiting:
        symbol = waiting.pop()
        if symbol.id in seen:
            continue
        seen.add(symbol.id)
        if isinstance(symbol.producer, Node) and symbol.producer.op_type not in ("Shape", "Size"):
            waiting += [s for s in symbol.producer.inputs if s is not None]
    return [s for s in graph.input_symbols if s.id not in seen]


def not_taken(graph: Graph, *, halves: bool = False) -> DType | None:
    """Return a dtype of a graph that OpenVINO does not run; None if there is none. Complex numbers count as parts."""
    dtypes = {real_of(s.type.dtype) for s in graph.symbols if isinstance(s.type, TensorType)}
    taken = TAKEN | {DType.float16} if halves else TAKEN
    return next((dtype for dtype in sorted(dtypes, key=str) if dtype not in taken), None)


def require(graph: Graph, lower: Callable[[], Graph]) -> Graph:
    """Return the graph that `lower` returns, for a file that OpenVINO runs.

    Raises `GraphError` if OpenVINO would compute it wrong.
    """
    dtype = not_taken(graph)
    unsupported = {str(dtype): "OpenVINO does not support the dtype"} if dtype is not None else {}
    lowered = graph if unsupported else lower()
    if not unsupported:
        unsupported = dict(findings(lowered, legality("openvino")).unsupported)
        if any(SIZE_CHECK in (n.outputs[0].given_name or "") for n in lowered.nodes):
            unsupported["rebind"] = "OpenVINO does not check sizes"
    if unsupported:
        reasons = "; ".join(f"{op}: {why}" for op, why in unsupported.items())
        raise GraphError(
            f"openvino: OpenVINO runs whole graphs, and would compute this one wrong: {reasons}",
            help='export for target="cpu", or load the graph in gc.InferenceSession("openvino")',
        )
    return lowered


def _counts(symbol: Symbol) -> bool:
    return isinstance(symbol.type, TensorType) and symbol.type.dtype is DType.int64


def _why_unsupported(node: Node, rules: Legality, halves: bool) -> str:
    """Return the reason why OpenVINO does not compute a node right; "" if it does."""
    if node.domain or bodies(node):
        return "operators of other domains are not supported" if node.domain else "bodies are not supported"
    types = [s.type for s in (*node.inputs, *node.outputs) if s is not None]
    for type_ in types:
        taken = TAKEN | {DType.float16} if halves and node.op_type == "Cast" else TAKEN
        if not isinstance(type_, TensorType) or type_.dtype not in taken:
            return f"no kernel for {type_.dtype if isinstance(type_, TensorType) else type_}"
        if not type_.shape.is_ranked:
            return "no kernel for tensors of unknown rank"
    for dtype in dict.fromkeys(t.dtype for t in types if isinstance(t, TensorType)):
        if node.op_type != "Cast" and dtype not in (DType.int64, DType.bool) and not rules.allows(node.op_type, dtype):
            return f"no correct kernel for {dtype}"
    result_dtype = node.outputs[0].dtype
    if result_dtype in _INTEGERS and (
        node.op_type not in _EXACT or (result_dtype is DType.int32 and node.op_type in _SMALL)
    ):
        return "integers are computed in float32"
    first = next((s for s in node.inputs if s is not None), node.outputs[0])
    decides = first.type.dtype
    if node.op_type != "Cast" and not rules.allows(node.op_type, decides):
        return f"no correct kernel for {decides}"
    if node.attributes.get("reduction", "none") not in ("none", b"none"):
        return "no kernel with a reduction"
    if node.attributes.get("ceil_mode"):
        return "ceil_mode pools other windows at the end"
    return ""


_INTEGERS = frozenset({DType.int32, DType.int64})
_EXACT = frozenset(
    "Abs Add ArgMax ArgMin Cast Concat ConstantOfShape Expand Flatten Gather GatherElements GatherND Identity MatMul "
    "Max Min Mul Neg NonZero Pad Range ReduceMax ReduceMin ReduceSum Reshape ScatterElements ScatterND Shape Size "
    "Slice Split Squeeze Sub Tile TopK Transpose Unsqueeze Where".split()
)
"""Operators that compute integers exactly, and those with known bounds."""

_SMALL = frozenset("MatMul Max Min ReduceMax ReduceMin ReduceSum".split())
"""Those with bounds for int64 only."""

TAKEN = frozenset({DType.bool, DType.int32, DType.int64, DType.float32})
"""The dtypes of graphs that OpenVINO runs. It computes other floats in float32, and other integers saturate."""


def _operand_bound(symbol: Symbol | None, known_bounds: Mapping[int, IntegerBound]) -> IntegerBound | None:
    """Return the bound of an operand; for a constant, its greatest absolute value."""
    if symbol is None:
        return IntegerBound()
    producer = symbol.producer
    if isinstance(producer, Constant):
        array = producer.array
        return IntegerBound(float(np.abs(array.astype(np.float64)).max(initial=0)))
    if isinstance(producer, Input):
        return IntegerBound(0.0, {("greatest", symbol.name): 1.0}, symbol.name)
    return known_bounds.get(symbol.id)


def _result_bound(node: Node, known_bounds: Mapping[int, IntegerBound]) -> IntegerBound | None:
    """Return the bound of the int64 results of a node; None if it is unknown."""
    if node.op_type in _INDICES:
        return IntegerBound(LIMIT, is_size=True)
    operands = [_operand_bound(s, known_bounds) for s in node.inputs if s is not None and _counts(s)]
    bounds = [b for b in operands if b is not None]
    if len(bounds) < len(operands):
        return None
    if node.op_type == "Cast":
        return bounds[0] if bounds else _cast_bound(node)
    rule = _RULES.get(node.op_type)
    if rule is not None:
        return rule(node, bounds)
    # Operations on a count and constants give a count.
    is_count = any(b.is_size for b in bounds) and all(b.is_size or not b.norms for b in bounds)
    return IntegerBound(LIMIT, is_size=True) if is_count and node.op_type in _COUNTED else None


def _cast_bound(node: Node) -> IntegerBound | None:
    """Return the bound of another dtype's values; None for a float."""
    (x,) = node.inputs
    limits = {DType.bool: 1.0, DType.int32: LIMIT}
    return IntegerBound(limits[x.dtype]) if x is not None and x.dtype in limits else None


def _max_bound(node: Node, bounds: list[IntegerBound]) -> IntegerBound:
    """Return the maximum of bounds."""
    if any(b.is_size for b in bounds) and all(b.is_size or not b.norms for b in bounds):
        return IntegerBound(LIMIT, is_size=True)
    norms: dict[Norm, float] = {}
    for bound in bounds:
        for norm, factor in bound.norms.items():
            norms[norm] = max(norms.get(norm, 0.0), factor)
    return IntegerBound(max(b.constant for b in bounds), norms)


def _float_bound(node: Node, bounds: list[IntegerBound]) -> IntegerBound | None:
    """Return the bound of the first operand, computed in a float of 24 bits."""
    operand = bounds[0]
    return None if operand.is_size else operand.scaled(_IN_FLOAT)


_IN_FLOAT = 128.0
"""2^31 / 2^24: float32 computes integers exactly if they are smaller by this factor."""


def _sum_bound(node: Node, bounds: list[IntegerBound]) -> IntegerBound | None:
    total = bounds[0]
    for bound in bounds[1:]:
        total = total + bound
    if any(b.is_size for b in bounds):
        return None if total.norms else IntegerBound(LIMIT, is_size=True)
    return total


def _multiple_bound(node: Node, bounds: list[IntegerBound]) -> IntegerBound | None:
    lhs, rhs = bounds
    if lhs.is_size or rhs.is_size:
        return None if lhs.norms or rhs.norms else IntegerBound(LIMIT, is_size=True)
    if lhs.norms and rhs.norms:
        return None
    return lhs.scaled(rhs.constant) if lhs.norms else rhs.scaled(lhs.constant)


def _total_bound(node: Node, bounds: list[IntegerBound]) -> IntegerBound | None:
    operand = bounds[0]
    return IntegerBound(0.0, {("total", operand.whole): _IN_FLOAT}) if operand.whole else None


def _product_bound(node: Node, bounds: list[IntegerBound]) -> IntegerBound | None:
    """Return the bound of sums of an input's numbers, each once, times a constant."""
    for operand, other in (bounds, bounds[::-1]):
        if operand.whole and not other.norms and not other.is_size:
            return IntegerBound(0.0, {("total", operand.whole): _IN_FLOAT}).scaled(other.constant)
    return None


_INDICES = frozenset("Shape Size ArgMax ArgMin NonZero TopK".split())
_COUNTED = frozenset("Range Min Max Neg Abs Tile Pad".split())
_RULES: dict[str, Callable[[Node, list[IntegerBound]], IntegerBound | None]] = {
    **dict.fromkeys(
        "Identity Reshape Squeeze Unsqueeze Transpose Flatten Slice".split(), lambda node, bounds: bounds[0]
    ),
    **dict.fromkeys("Concat Where Max Min Gather GatherElements GatherND Expand Abs Neg".split(), _max_bound),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _float_bound),
    "Add": _sum_bound,
    "Sub": _sum_bound,
    "Mul": _multiple_bound,
    "ReduceSum": _total_bound,
    "MatMul": _product_bound,
    "ConstantOfShape": lambda node, bounds: IntegerBound(float(np.abs(node.attributes["value"]).max())),
}


def without_checks(graph: Graph) -> tuple[Graph, tuple[tuple[str, str], ...]]:
    """Return the graph without the checks of `ops.rebind`, which OpenVINO cannot run, and the pairs that they compare.

    Each pair names two additional outputs, int64 vectors, which are equal if the compared sizes are.
    """
    compared = {node.outputs[0].id: pair for node in graph.nodes if (pair := _compared(node)) is not None}
    if not compared:
        return graph, ()
    rewrite = Rewrite(graph, _RemoveChecks({*compared}))
    new = with_names(rewrite.run())
    pairs = []
    for number, pair in enumerate(compared.values()):
        names = (f"check.{number}.actual", f"check.{number}.stated")
        for name, symbol in zip(names, pair, strict=True):
            output = new.build.emit("Identity", (rewrite.of(symbol),), rewrite.of(symbol).type)
            new.names.rename(output, name)
            new.build.outputs([*new.named_outputs, (name, output)])
        pairs.append(names)
    prune(new)
    return new, tuple(pairs)


@dataclass(eq=False)
class _RemoveChecks(Policy[Rewrite]):
    """Remove checks of sizes. axes: the ids of the axes that depend on them, each the element of a constant."""

    axes: set[int]

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        return inputs[:1] if node.outputs[0].id in self.axes else None


def checked_apart(graph: Graph) -> tuple[Graph, tuple[tuple[str, str], ...], Graph | None]:
    """Return the graph without checks, the compared pairs, and a graph whose outputs they are.

    The pairs are outputs of the first graph if another one is costly, and the last is None then, or without checks.
    Measured: outputs of integers double the time of a call of OpenVINO.
    """
    whole, pairs = without_checks(graph)
    if not pairs:
        return graph, (), None
    plain, sizes = (without_checks(graph)[0] for _ in range(2))
    count = 2 * len(pairs)
    plain.build.outputs(plain.named_outputs[:-count])
    sizes.build.outputs(sizes.named_outputs[-count:])
    prune(plain)
    prune(sizes)
    is_costly = any(n.op_type in _COSTLY or bodies(n) for n in sizes.nodes)
    return (whole, pairs, None) if is_costly else (plain, pairs, sizes)


_COSTLY = frozenset("Attention Conv ConvTranspose Einsum GRU Gemm LSTM MatMul RNN Resize Softmax".split())


def _compared(axis: Node) -> tuple[Symbol, Symbol] | None:
    """Return the sizes that a check compares, for the Gather after it."""
    sizes = node_of(axis.inputs[1], "Shape") if axis.op_type == "Gather" else None
    check = None if sizes is None else node_of(sizes.inputs[0], "Reshape")
    if check is None or SIZE_CHECK not in (check.outputs[0].given_name or ""):
        return None
    where = node_of(check.inputs[1], "Where")
    equal = None if where is None else node_of(where.inputs[0], "Equal")
    lhs, rhs = (None, None) if equal is None else equal.inputs
    return None if lhs is None or rhs is None else (lhs, rhs)
