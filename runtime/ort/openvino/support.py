"""Lowered graphs that OpenVINO computes right, and within which bounds of the integers that are fed.

The provider compiles every node that it knows, whatever its dtype, and what is left over may not even fit together: so
a graph is its own as a whole or not at all. It holds int64 in 32 bits. Sizes and places fit; what is fed is bounded by
the graph: each sum, product or cast of it must stay below 2^31, which a session checks in every call.
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
from graphcore.ir.transform.walk import bodies
from graphcore.passes.merging import prune
from graphcore.runtime.lowering.targets.legality import Legality, legality
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import TensorType

LIMIT = float(2**31 - 1)

Norm: TypeAlias = tuple[str, str]
"""("greatest" or "total", an input): the greatest of its numbers, or the sum of them all, without their signs."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of numbers, without their signs: a constant and multiples of norms of what is fed.

    whole: the input that these are the numbers of, each once. is_size: whether they count elements.
    """

    constant: float = 0.0
    norms: Mapping[Norm, float] = field(default_factory=dict)
    whole: str = ""
    is_size: bool = False

    def scaled(self, factor: float) -> Bound:
        """Return the bound times a factor."""
        return Bound(self.constant * factor, {norm: f * factor for norm, f in self.norms.items()})

    def __add__(self, other: Bound) -> Bound:
        norms = dict(self.norms)
        for norm, factor in other.norms.items():
            norms[norm] = norms.get(norm, 0.0) + factor
        return Bound(self.constant + other.constant, norms, is_size=self.is_size and other.is_size)


@dataclass(frozen=True, slots=True)
class Findings:
    """left: by operator, why OpenVINO does not compute it right. bounds: what must be below 2^31 in a call."""

    left: Mapping[str, str]
    bounds: tuple[Bound, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether OpenVINO may have the graph."""
        return not self.left


def findings(graph: Graph, rules: Legality, *, halves: bool = False) -> Findings:
    """Return what there is to say of a graph that was lowered for OpenVINO.

    halves: whether float16 may be cast, where nothing is lost that is computed with.
    """
    left: dict[str, str] = {}
    known: dict[int, Bound] = {}
    for node in graph.nodes:
        why = _lack(node, rules, halves)
        if not why and _counts(node.outputs[0]):
            made = _bound(node, known)
            if made is None:
                why = "int64 is computed in 32 bits"
            else:
                known.update({s.id: made for s in node.outputs if _counts(s)})
        if why:
            left.setdefault(f"{node.domain}.{node.op_type}" if node.domain else node.op_type, why)
    for symbol in _unread(graph):
        left[f"input {symbol.name}"] = "inputs of which one is not read are taken for each other"
    bounds = {(b.constant, *sorted(b.norms.items())): b for b in known.values() if b.norms}
    fed = [_of(s, known) for s in graph.input_symbols if _counts(s)]
    bounds.update({(0.0, *b.norms.items()): b for b in fed if b is not None})
    if any(b.constant > LIMIT for b in known.values() if not b.is_size):
        left.setdefault("Constant", "an int64 beyond 32 bits")
    return Findings(left, tuple(replace(b, whole="") for b in bounds.values()))


def _unread(graph: Graph) -> list[Symbol]:
    """Return the inputs that no output depends on but by their sizes, which may be known by the time it is compiled."""
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
    """Return a dtype in a graph that OpenVINO is given nothing of; None where there is none. Complex: that of parts."""
    dtypes = {real_of(s.type.dtype) for s in graph.symbols if isinstance(s.type, TensorType)}
    taken = TAKEN | {DType.float16} if halves else TAKEN
    return next((dtype for dtype in sorted(dtypes, key=str) if dtype not in taken), None)


def require(graph: Graph, lower: Callable[[], Graph]) -> Graph:
    """Return what `lower` makes of a graph for a file that OpenVINO is to run.

    Raises `GraphError` where it would not.
    """
    foreign = not_taken(graph)
    left = {str(foreign): "numbers of that dtype are not OpenVINO's"} if foreign is not None else {}
    made = graph if left else lower()
    if not left:
        left = dict(findings(made, legality("openvino")).left)
        if any(SIZE_CHECK in (n.outputs[0].given_name or "") for n in made.nodes):
            left["rebind"] = "OpenVINO does not check sizes"
    if left:
        shown = "; ".join(f"{op}: {why}" for op, why in left.items())
        raise GraphError(
            f"openvino: it runs whole graphs, and would not get this one right: {shown}",
            help='export for target="cpu", or load the graph in gc.InferenceSession("openvino")',
        )
    return made


def _counts(symbol: Symbol) -> bool:
    return isinstance(symbol.type, TensorType) and symbol.type.dtype is DType.int64


def _lack(node: Node, rules: Legality, halves: bool) -> str:
    """Return why a node is not OpenVINO's, "" where it is."""
    if node.domain or bodies(node):
        return "an operator of another domain" if node.domain else "a body"
    types = [s.type for s in (*node.inputs, *node.outputs) if s is not None]
    for type_ in types:
        taken = TAKEN | {DType.float16} if halves and node.op_type == "Cast" else TAKEN
        if not isinstance(type_, TensorType) or type_.dtype not in taken:
            return f"no kernel for {type_.dtype if isinstance(type_, TensorType) else type_}"
        if not type_.shape.is_ranked:
            return "no kernel for tensors of unknown rank"
    for dtype in dict.fromkeys(t.dtype for t in types if isinstance(t, TensorType)):
        if node.op_type != "Cast" and dtype not in (DType.int64, DType.bool) and not rules.allows(node.op_type, dtype):
            return f"no right kernel for {dtype}"
    made = node.outputs[0].dtype
    if made in _INTEGERS and (node.op_type not in _EXACT or (made is DType.int32 and node.op_type in _SMALL)):
        return "integers are computed in float32"
    first = next((s for s in node.inputs if s is not None), node.outputs[0])
    decides = first.type.dtype
    if node.op_type != "Cast" and not rules.allows(node.op_type, decides):
        return f"no right kernel for {decides}"
    if node.attributes.get("reduction", "none") not in ("none", b"none"):
        return "no kernel that reduces"
    if node.attributes.get("ceil_mode"):
        return "other windows at the end"
    return ""


_INTEGERS = frozenset({DType.int32, DType.int64})
_EXACT = frozenset(
    "Abs Add ArgMax ArgMin Cast Concat ConstantOfShape Expand Flatten Gather GatherElements GatherND Identity MatMul "
    "Max Min Mul Neg NonZero Pad Range ReduceMax ReduceMin ReduceSum Reshape ScatterElements ScatterND Shape Size "
    "Slice Split Squeeze Sub Tile TopK Transpose Unsqueeze Where".split()
)
"""Operators that compute integers as such, and those that bounds are known for."""

_SMALL = frozenset("MatMul Max Min ReduceMax ReduceMin ReduceSum".split())
"""Those that have bounds for int64 alone."""

TAKEN = frozenset({DType.bool, DType.int32, DType.int64, DType.float32})
"""The dtypes of graphs that OpenVINO is given. Other floats are computed in float32, others saturate."""


def _of(symbol: Symbol | None, known: Mapping[int, Bound]) -> Bound | None:
    """Return the bound of an operand; of a constant, its greatest number."""
    if symbol is None:
        return Bound()
    producer = symbol.producer
    if isinstance(producer, Constant):
        array = producer.array
        return Bound(float(np.abs(array.astype(np.float64)).max(initial=0)))
    if isinstance(producer, Input):
        return Bound(0.0, {("greatest", symbol.name): 1.0}, symbol.name)
    return known.get(symbol.id)


def _bound(node: Node, known: Mapping[int, Bound]) -> Bound | None:
    """Return what the int64 results of a node are bounded by; None for what is not known."""
    if node.op_type in _PLACES:
        return Bound(LIMIT, is_size=True)
    operands = [_of(s, known) for s in node.inputs if s is not None and _counts(s)]
    given = [b for b in operands if b is not None]
    if len(given) < len(operands):
        return None
    if node.op_type == "Cast":
        return given[0] if given else _cast(node)
    rule = _RULES.get(node.op_type)
    if rule is not None:
        return rule(node, given)
    # What counts elements stays a count whatever is made of it and of constants.
    is_count = any(b.is_size for b in given) and all(b.is_size or not b.norms for b in given)
    return Bound(LIMIT, is_size=True) if is_count and node.op_type in _COUNTED else None


def _cast(node: Node) -> Bound | None:
    """Return the bound of what another dtype holds: of a float, nothing is known."""
    (x,) = node.inputs
    held = {DType.bool: 1.0, DType.int32: LIMIT}
    return Bound(held[x.dtype]) if x is not None and x.dtype in held else None


def _greatest(node: Node, given: list[Bound]) -> Bound:
    """Return a bound as great as any of them has."""
    if any(b.is_size for b in given) and all(b.is_size or not b.norms for b in given):
        return Bound(LIMIT, is_size=True)
    norms: dict[Norm, float] = {}
    for bound in given:
        for norm, factor in bound.norms.items():
            norms[norm] = max(norms.get(norm, 0.0), factor)
    return Bound(max(b.constant for b in given), norms)


def _floating(node: Node, given: list[Bound]) -> Bound | None:
    """Return the bound of the first operand, in what holds 24 bits."""
    held = given[0]
    return None if held.is_size else held.scaled(_IN_FLOAT)


_IN_FLOAT = 128.0
"""2^31 / 2^24: what is computed in float32 must stay so much smaller to be exact."""


def _same(node: Node, given: list[Bound]) -> Bound:
    """Return the numbers of the first operand, each once."""
    return given[0]


def _added(node: Node, given: list[Bound]) -> Bound | None:
    total = given[0]
    for bound in given[1:]:
        total = total + bound
    if any(b.is_size for b in given):
        return None if total.norms else Bound(LIMIT, is_size=True)
    return total


def _multiplied(node: Node, given: list[Bound]) -> Bound | None:
    lhs, rhs = given
    if lhs.is_size or rhs.is_size:
        return None if lhs.norms or rhs.norms else Bound(LIMIT, is_size=True)
    if lhs.norms and rhs.norms:
        return None
    return lhs.scaled(rhs.constant) if lhs.norms else rhs.scaled(lhs.constant)


def _summed(node: Node, given: list[Bound]) -> Bound | None:
    held = given[0]
    return Bound(0.0, {("total", held.whole): _IN_FLOAT}) if held.whole else None


def _product(node: Node, given: list[Bound]) -> Bound | None:
    """Return the bound of sums of what is fed, each number once, times a constant."""
    for held, other in (given, given[::-1]):
        if held.whole and not other.norms and not other.is_size:
            return Bound(0.0, {("total", held.whole): _IN_FLOAT}).scaled(other.constant)
    return None


_PLACES = frozenset("Shape Size ArgMax ArgMin NonZero TopK".split())
_COUNTED = frozenset("Range Min Max ConstantOfShape Neg Abs Tile Pad".split())
_RULES: dict[str, Callable[[Node, list[Bound]], Bound | None]] = {
    **dict.fromkeys("Identity Reshape Squeeze Unsqueeze Transpose Flatten Slice".split(), _same),
    **dict.fromkeys("Concat Where Max Min Gather GatherElements GatherND Expand Abs Neg".split(), _greatest),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _floating),
    "Add": _added,
    "Sub": _added,
    "Mul": _multiplied,
    "ReduceSum": _summed,
    "MatMul": _product,
}


def without_checks(graph: Graph) -> tuple[Graph, tuple[tuple[str, str], ...]]:
    """Return the graph without the checks of `ops.rebind`, which OpenVINO cannot run, and what they compare.

    Each pair names two more outputs, int64 vectors: where they differ, so do the sizes that it compares.
    """
    checks = [n for n in graph.nodes if n.op_type == "Reshape" and SIZE_CHECK in (n.outputs[0].given_name or "")]
    found = {n.outputs[0].id: pair for n in checks if (pair := _compared(n)) is not None}
    if not found:
        return graph, ()
    rewrite = Rewrite(graph, _RemoveChecks({*found}))
    new = with_names(rewrite.run())
    pairs = []
    for number, pair in enumerate(found.values()):
        names = (f"guard.{number}.actual", f"check.{number}.stated")
        for name, symbol in zip(names, pair, strict=True):
            shown = new.build.emit("Identity", (rewrite.of(symbol),), rewrite.of(symbol).type)
            new.names.rename(shown, name)
            new.build.outputs([*new.named_outputs, (name, shown)])
        pairs.append(names)
    prune(new)
    return new, tuple(pairs)


class _RemoveChecks(Policy[Rewrite]):
    """found: the numbers of what checks give."""

    def __init__(self, found: set[int]) -> None:
        self._found = found
        self._sizes: set[int] = set()
        self._apart: dict[int, Symbol] = {}

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        made = node.outputs[0].id
        old = [s.id for s in node.inputs if s is not None]
        if node.op_type == "Squeeze" and old[0] in self._apart:
            return (self._apart[old[0]],)
        if not inputs or inputs[0] is None:
            return None
        if node.op_type == "Shape" and old[0] in self._found:
            self._sizes.add(made)
        elif node.op_type == "Unsqueeze" and old[1] in self._sizes:
            self._apart[made] = inputs[0]
        elif made not in self._found:
            return None
        rewrite.bind(node.outputs[0], inputs[0])
        return (None,)


def checked_apart(graph: Graph) -> tuple[Graph, Graph | None]:
    """Return the graph without checks, and one of what they compare, as its outputs in pairs; None where that is
    costly.

    Measured: outputs of integers double the time of a call of OpenVINO's.
    """
    made, pairs = without_checks(graph)
    sizes, _ = without_checks(graph)
    count = 2 * len(pairs)
    made.build.outputs(made.named_outputs[:-count])
    sizes.build.outputs(sizes.named_outputs[-count:])
    prune(made)
    prune(sizes)
    return made, None if any(n.op_type in _COSTLY or bodies(n) for n in sizes.nodes) else sizes


_COSTLY = frozenset("Attention Conv ConvTranspose Einsum GRU Gemm LSTM MatMul RNN Resize Softmax".split())


def _compared(check: Node) -> tuple[Symbol, Symbol] | None:
    """Return the sizes that a check compares."""
    where = check.inputs[1].producer if check.inputs[1] is not None else None
    if not isinstance(where, Node) or where.op_type != "Where":
        return None
    (same, *_) = where.inputs
    equal = same.producer if same is not None else None
    if not isinstance(equal, Node) or equal.op_type != "Equal":
        return None
    lhs, rhs = equal.inputs
    return None if lhs is None or rhs is None else (lhs, rhs)
