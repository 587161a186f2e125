"""The fusions: replace several nodes by one operator that the provider runs faster. One row for each fusion.

Each row was measured; fusions of onnxruntime that are as fast are not here. Fusions apply to float32: they may add in
another order. Narrower floats round after every op, and no fusion changes that. A quantiser can turn a difference in
the last bit into a whole step, so nodes before a quantiser are not fused, except to what a Graph had in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from graphcore.ir.definitions import Definition
from graphcore.ir.graph import Graph
from graphcore.ir.transform.walk import bodies, operators, parts
from graphcore.support.lazy import Lazy
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore import passes as optimisation
    from graphcore.passes import sweep as sweeps
    from graphcore.passes.sweep import Rule
else:  # few graphs may have a match
    optimisation, sweeps = Lazy("graphcore.passes"), Lazy("graphcore.passes.sweep")


@dataclass(frozen=True, slots=True)
class Fusion:
    """A row of the table.

    operators: of the replaced node. rule: the module and function that returns the replacement, or None. sign: an
    operator in every match, which is checked before the graph is walked. makes: those of the replacement, which need a
    kernel. reason: the measured time on one thread, as a fraction of that of the primitives. more: groups of operators,
    of each of which every match has one. on_host: only for the CPU provider, on which it was measured. is_exact: it
    only moves elements, or gives the numbers of the Graph that a file is of.
    """

    name: str
    operators: tuple[str, ...]
    rule: str
    sign: str
    makes: tuple[str, ...]
    reason: str
    more: tuple[frozenset[str], ...] = ()
    on_host: bool = False
    is_exact: bool = False

    def may_match(self, op_types: Set[str]) -> bool:
        """Return True if a graph of these operators of ONNX may have a match."""
        return self.sign in op_types and not any(op_types.isdisjoint(group) for group in self.more)


_ROOTS = frozenset({"Sqrt"})
_NORMS = _ROOTS | {"LayerNormalization", "RMSNormalization"}
_CUTS = (frozenset({"Concat"}), frozenset({"Slice"}))
_QUANTISERS = frozenset({"DynamicQuantizeLinear", "QuantizeLinear"})

FUSIONS: tuple[Fusion, ...] = (
    Fusion(
        "Attention", ("MatMul",), "attention.attention", "Softmax", ("Attention",),
        "MiniLM as PyTorch exports it: 0.94 for one sentence, 0.89 for 32; 0.97 of its best primitives",
        (frozenset({"MatMul"}),),
    ),
    Fusion(
        "no Reshape of a Reshape", ("Reshape",), "attention.cancelled", "Softmax", (),
        "what attention leaves between layers", is_exact=True,
    ),
    Fusion(
        "Attention of a Graph", ("MatMul",), "attention.restored", "Exp", ("Attention",),
        "MiniLM from its file: 0.87, in int8_dynamic 0.69",
        (frozenset({"IsNaN"}), frozenset({"MatMul"})), is_exact=True,
    ),
    Fusion(
        "parts before a Transpose", ("Squeeze",), "layers.part", "Split", ("Gather",),
        "196 x 3 x 128 to channels first: 0.12; XCiT as PyTorch exports it 0.87",
        (frozenset({"Transpose"}), frozenset({"Squeeze"})), on_host=True, is_exact=True,
    ),
    Fusion(
        "RMSNormalization, LayerNormalization", ("Mul", "Div"), "layers.norm", "ReduceMean",
        ("RMSNormalization", "LayerNormalization"),
        "4,096 x 384: 0.63 of x * reciprocal(sqrt(...)), 0.35 of a layer norm that squares by a product", (_ROOTS,),
    ),
    Fusion(
        "scale within the norm", ("Mul",), "layers.scaled_norm", "ReduceMean", (), "a pass over the tensor less",
        (_NORMS,),
    ),
    Fusion(
        "bias within the norm", ("Add",), "layers.biased_norm", "ReduceMean", (), "a pass over the tensor less",
        (_NORMS,),
    ),
    Fusion(
        "sum of squares of a length", ("ReduceL2",), "layers.length", "ReduceL2", ("Mul", "ReduceSum", "Sqrt"),
        "the last axes: 4 x 32 x 196 0.55, 128 x 384 0.43, pixels of 40 channels 0.42; other axes 1.2", on_host=True,
    ),
    Fusion(
        "AveragePool as a convolution", ("AveragePool",), "layers.pool", "AveragePool", ("Conv", "Div"),
        "24 to 136 channels: 0.12 to 0.5; in blocks of channels 1.0 to 1.4", on_host=True,
    ),
    Fusion(
        "RotaryEmbedding", ("Add",), "rotary.rotary", "Neg", ("RotaryEmbedding",),
        "4 x 8 x 256 x 32: 0.30 of halves that are cut and joined", _CUTS,
    ),
    Fusion(
        "RotaryEmbedding of neighbours", ("Add",), "rotary.interleaved", "Neg", ("RotaryEmbedding",),
        "1 x 128 x 6 x 32: 0.18 of pairs that are cut and joined; 4 x 256 x 8 x 64: 0.22", _CUTS,
    ),
    Fusion(
        "HardSigmoid of a Clip", ("Div", "Mul"), "layers.hard_sigmoid", "Clip", ("HardSigmoid",),
        "hard swish written in parts: PicoDet layout 0.65, a classifier of lines 0.73, PP-OCRv4 0.93 and 0.95",
        (frozenset({"Add"}), frozenset({"Div", "Mul"})),
    ),
    Fusion(
        "factor and bias within the convolution", ("Mul", "Add"), "layers.scaled_convolution", "Conv", (),
        "numbers that are learned for each layer: PP-OCRv4 0.90 and 0.92", (frozenset({"Add", "Mul"}),),
    ),
    Fusion(
        "factor and bias as a convolution", ("Add",), "layers.scaled_swish", "Conv", ("HardSigmoid",),
        "after a hard swish, within the blocks of channels: PP-OCRv4 0.95 and 0.91",
        (frozenset({"Clip", "HardSigmoid"}), frozenset({"Mul"}), frozenset({"Add"})), on_host=True,
    ),
)  # fmt: skip
"""Tried in this order. onnxruntime itself fuses Gelu and SiLU written in parts, a MatMul and its bias as Gemm (1.00),
batch norms after convolutions, and weights that are transposed when the session starts. Two forms of attention have no
row. With heads and rows in one axis the operator takes the same time (1.00 to 1.05). With a softcap it is slower (Gemma
2: 1.10 of Tanh and its factors)."""


def may_fuse(there: set[tuple[str, str]], dtypes: Set[DType]) -> bool:
    """Return True if any fusion may match in a graph of these operators and dtypes."""
    op_types = {op_type for op_type, domain in there if not domain}
    is_single = DType.float32 in dtypes  # the length of a vector takes float16 too
    return any(f.may_match(op_types) for f in FUSIONS if is_single or f.rule == "layers.length")


def fuse(
    graph: Graph, has_kernel: Callable[[str], bool] = bool, on_host: bool = True, spares_quantised: bool = True
) -> Graph:
    """Return the graph with all fusions applied, optimised; the graph itself if none matches.

    has_kernel: whether the provider has a float32 kernel of an operator. on_host: whether it is the CPU provider.
    spares_quantised: whether numbers that lead to a quantiser keep every bit.
    """
    there = {op_type for op_type, _ in operators(graph)}
    fusions = [
        fusion
        for fusion in FUSIONS
        if fusion.may_match(there) and fusion.on_host <= on_host and all(map(has_kernel, fusion.makes))
    ]
    if not fusions:
        return graph
    passes = replace(optimisation.selected(optimisation.BASIC), branches=False)
    spared = _quantised(graph) if spares_quantised and not there.isdisjoint(_QUANTISERS) else set()
    rules, made_by = dict(passes.rules), set()
    for fusion in fusions:
        module, _, name = fusion.rule.partition(".")
        rule: Rule = getattr(import_module(f"{__name__}.{module}"), name)
        rule = _sparing(rule, spared) if spared and not fusion.is_exact else rule
        made_by.add(rule)
        for operator in fusion.operators:
            rules[operator] = (*rules.get(operator, ()), rule)
    sweep = sweeps.Sweep(graph, replace(passes, rules=rules))
    fused = sweep.run()
    return graph if sweep.used.isdisjoint(made_by) else optimisation.reduced(fused, passes)


def _quantised(graph: Graph) -> set[int]:
    """Return the ids of the nodes that lead to a quantiser, with those in their bodies and in functions they call."""
    ids: set[int] = set()
    symbols: set[int] = set()
    for node in reversed(graph.nodes):
        graphs = (*bodies(node), *(v.body for v in node.attributes.values() if isinstance(v, Definition)))
        inside = [inner for body in graphs for part in parts(body) for inner in part.nodes]
        if not any(s.id in symbols for s in node.outputs) and _QUANTISERS.isdisjoint(
            n.op_type for n in (node, *inside)
        ):
            continue
        ids.update(map(id, (node, *inside)))
        if node.op_type not in ("Shape", "Size"):
            symbols.update(s.id for s in node.inputs if s is not None)
        for body in bodies(node):
            symbols.update(body.scope.captured)
    return ids


def _sparing(rule: Rule, spared: set[int]) -> Rule:
    """Return the rule for all other nodes."""
    return lambda sweep, node, inputs: None if id(node) in spared else rule(sweep, node, inputs)
