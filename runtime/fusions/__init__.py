"""Forms: what runs faster on a provider than what was written, found in any graph, one row a form.

Each row was measured; those that onnxruntime finds itself as fast are not here. They hold for float32, whose sums may
come in another order and are otherwise the same; narrower floats round after every op, and no form changes that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from graphcore.ir.definitions import operators
from graphcore.ir.graph import Graph
from graphcore.passes import PASSES, selected
from graphcore.passes.sweep import Rule, Sweep
from graphcore.runtime.fusions.attention import attention, cancelled
from graphcore.runtime.fusions.norms import normalised, scaled, shifted
from graphcore.runtime.fusions.rotary import rotary
from graphcore.runtime.fusions.rotary_interleaved import interleaved
from graphcore.support.gc_pause import uncollected


@dataclass(frozen=True, slots=True)
class Form:
    """A form. operators: of the node at which it is looked for. sign: of a node without which there is none. makes:
    the operators that it needs kernels of. reason: what was measured, as a part of the time of what was written, on
    one thread."""

    name: str
    operators: tuple[str, ...]
    rule: Rule
    sign: str
    makes: tuple[str, ...]
    reason: str


FORMS: tuple[Form, ...] = (
    Form(
        "Attention", ("MatMul",), attention, "Softmax", ("Attention",),
        "MiniLM as PyTorch exports it: 0.94 for one sentence, 0.89 for 32; 0.97 of its best primitives",
    ),
    Form("no Reshape of a Reshape", ("Reshape",), cancelled, "Softmax", (), "what is left between forms of attention"),
    Form(
        "RMSNormalization, LayerNormalization", ("Mul", "Div"), normalised, "ReduceMean",
        ("RMSNormalization", "LayerNormalization"),
        "4,096 x 384: 0.63 of x * reciprocal(sqrt(...)), 0.35 of a layer norm that squares by a product",
    ),
    Form("scale within the norm", ("Mul",), scaled, "ReduceMean", (), "a pass over the tensor less"),
    Form("bias within the norm", ("Add",), shifted, "ReduceMean", (), "a pass over the tensor less"),
    Form(
        "RotaryEmbedding", ("Add",), rotary, "Neg", ("RotaryEmbedding",),
        "4 x 8 x 256 x 32: 0.30 of halves that are cut and joined",
    ),
    Form(
        "RotaryEmbedding of neighbours", ("Add",), interleaved, "Neg", ("RotaryEmbedding",),
        "1 x 128 x 6 x 32: 0.18 of pairs that are cut and joined; 4 x 256 x 8 x 64: 0.22",
    ),
)  # fmt: skip
"""Tried in this order. What onnxruntime finds itself has no row: Gelu and SiLU of their parts, a MatMul and its bias as
Gemm (1.00 apart), batch norms behind convolutions, weights that are transposed when the session starts. Nor has
attention of three axes, heads and rows in one, which the operator computes in the same time (1.00 to 1.05), and one
with a softcap, which it computes slower (Gemma 2: 1.10 of Tanh and its factors)."""


def may_have(there: set[tuple[str, str]]) -> bool:
    """Whether a graph of these operators may have some form."""
    return any((form.sign, "") in there for form in FORMS)


def shaped(graph: Graph, has_kernel: Callable[[str], bool] = bool) -> Graph:
    """The graph, optimised, in forms that run faster; the graph itself where there are none.

    has_kernel: whether the provider has a kernel of an operator of float32.
    """
    there = {op_type for op_type, _ in operators(graph)}
    forms = [form for form in FORMS if form.sign in there and all(map(has_kernel, form.makes))]
    if not forms:
        return graph
    passes = selected(list(PASSES))
    rules = dict(passes.rules)
    for form in forms:
        for operator in form.operators:
            rules[operator] = (*rules.get(operator, ()), form.rule)
    with uncollected():
        sweep = Sweep(graph, replace(passes, rules=rules))
        made = sweep.run()
        return graph if sweep.used.isdisjoint(form.rule for form in forms) else made.optimize()
