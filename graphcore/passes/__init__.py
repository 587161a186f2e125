"""Optimisation passes: dead code elimination, cast simplification, algebraic simplification, constant folding,
simplification of shapes, padding merged into convolutions, and common subexpression elimination.

Each pass returns a new graph that computes the same bits with fewer nodes, and can be used alone. `optimize`, which is
`Graph.optimize`, runs them together until nothing changes. The original graph is never changed. Inputs, outputs, users'
names, layers, lines, metadata and the promotion system are preserved. Weights remain the caller's arrays, except for
initializers of loaded models, which count as constants unless `keep` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.transform.rewrite import attach, exposed
from graphcore.passes.folding import FOLDS
from graphcore.passes.merging import Initializers
from graphcore.passes.shapes import SHAPES
from graphcore.passes.simplify import CASTS, IDENTITIES, PADDING
from graphcore.passes.sweep import LIMIT, Rule, Sweep, SweepPolicy
from graphcore.support.gc_pause import uncollected

Pass: TypeAlias = "Callable[[Graph], Graph]"


def dead_code(graph: Graph) -> Graph:
    """Eliminate dead code: return the graph without nodes that no output needs, and without unused constants.

    Values named by users are kept, since `graph["hidden"]` can access them. Names in imported models do not count:
    there every value has one.

    Raises:
        GraphError: The graph has no outputs.
    """
    return optimize(graph, ["dead_code"])


def common_subexpressions(graph: Graph) -> Graph:
    """Eliminate common subexpressions: return the graph with one node for each operator, operands and attributes.

    Random operators, nodes with bodies, operators of other domains, and values with different users' names are never
    merged.

    Raises:
        GraphError: The graph has no outputs.
    """
    return optimize(graph, ["common_subexpressions"])


def fold_constants(graph: Graph, *, limit: int = LIMIT) -> Graph:
    """Fold constants: return the graph with nodes of constants computed, where NumPy's result is exact bit for bit.

    Weights are not folded, since their values can change until the graph is exported.

    Args:
        limit: The maximum size of a new constant, in bytes.

    Raises:
        GraphError: The graph has no outputs.
    """
    return optimize(graph, ["fold_constants"], limit=limit)


def simplify_casts(graph: Graph) -> Graph:
    """Simplify casts: return the graph without casts that change nothing, and without lossless casts before others.

    This is exact for every value: float16 -> float32 -> float16 is removed, float32 -> float16 -> float32 is kept.

    Raises:
        GraphError: The graph has no outputs.
    """
    return optimize(graph, ["simplify_casts"])


def remove_identities(graph: Graph) -> Graph:
    """Simplify algebraically: return the graph without nodes that return an operand: x * 1, -(-x), inverse Transposes.

    This is exact for every value: x + 0.0 is kept, since -0.0 + 0.0 is 0.0.

    Raises:
        GraphError: The graph has no outputs.
    """
    return optimize(graph, ["remove_identities"])


def simplify_shapes(graph: Graph) -> Graph:
    """Simplify shapes: return the graph with sizes computed once, views of views merged, and constant shapes.

    Dims of one name have one size: a Reshape copies axes that it keeps, and nodes that change no dim are removed.

    Raises:
        GraphError: The graph has no outputs.
    """
    return optimize(graph, ["simplify_shapes"])


def merge_padding(graph: Graph) -> Graph:
    """Merge padding: return the graph with the zeros of a Pad added by the Conv that reads it.

    This applies to constant zeros along the spatial axes of float32, and to filters that are finite constants.

    Raises:
        GraphError: The graph has no outputs.
    """
    return optimize(graph, ["merge_padding"])


PASSES: dict[str, Pass] = {
    function.__name__: function
    for function in (
        dead_code,
        simplify_casts,
        remove_identities,
        fold_constants,
        simplify_shapes,
        merge_padding,
        common_subexpressions,
    )
}
"""All passes by name, in the order that `optimize` applies them to a node."""

BASIC = ("dead_code", "simplify_casts", "remove_identities", "fold_constants", "common_subexpressions")
"""The passes that do not change computations of shapes."""

_RULES = {
    "simplify_casts": CASTS,
    "remove_identities": IDENTITIES,
    "fold_constants": FOLDS,
    "simplify_shapes": SHAPES,
    "merge_padding": PADDING,
}
_ROUNDS = 16


def optimize(
    graph: Graph,
    passes: Sequence[str | Pass] | None = None,
    *,
    limit: int = LIMIT,
    keep: str | Iterable[str] = (),
) -> Graph:
    """Return the graph after these passes; see `Graph.optimize`."""
    if not graph.outputs:
        graph.verify()  # raises the error
    if graph.scope.outer is not None:
        raise GraphError(f"optimize: graph {graph.name!r} is a body", help="optimise the outer graph")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise GraphError(f"optimize: limit must be a number of bytes, got {limit!r}", help=f"the default is {LIMIT}")
    initializers = Initializers(graph, keep, limit)
    selection = replace(selected(list(PASSES) if passes is None else passes, limit), initializers=initializers)
    source = graph
    buffers = {name: state.buffer for name, state in graph.buffers.items()}
    graph = reduced(exposed(graph), selection)
    if buffers:
        attach(graph, buffers)
    initializers.finish(source, graph)
    return graph


def reduced(graph: Graph, selection: SweepPolicy) -> Graph:
    """Return the graph after applying these rules until nothing changes."""
    with uncollected():
        for _ in range(_ROUNDS):
            sweep = Sweep(graph, selection)
            graph = sweep.run()
            if not sweep.changes:
                break
    return graph


def selected(passes: Sequence[str | Pass], limit: int = LIMIT) -> SweepPolicy:
    """Return the policy with the rules of these passes. Raises `GraphError` for an unknown pass."""
    selection = [passes] if isinstance(passes, str) or not isinstance(passes, Iterable) else passes
    names = {_name(each) for each in selection}
    rules: dict[str, tuple[Rule, ...]] = {}
    passes_of: dict[Rule, str] = {}
    for name, by_operator in _RULES.items():
        if name in names:
            passes_of.update((rule, name) for operator_rules in by_operator.values() for rule in operator_rules)
            for operator, operator_rules in by_operator.items():
                rules[operator] = (*rules.get(operator, ()), *operator_rules)
    return SweepPolicy(
        rules,
        "dead_code" in names,
        "common_subexpressions" in names,
        limit,
        branches="fold_constants" in names,
        simplifies_shapes="simplify_shapes" in names,
        passes=passes_of,
    )


def _name(requested: object) -> str:
    for name, function in PASSES.items():
        if requested is function or (isinstance(requested, str) and requested == name):
            return name
    raise GraphError(f"optimize: {requested!r} is not a pass", help=f"use one of {', '.join(PASSES)}")


__all__ = [
    "BASIC",
    "LIMIT",
    "PASSES",
    "Pass",
    "common_subexpressions",
    "dead_code",
    "fold_constants",
    "merge_padding",
    "optimize",
    "reduced",
    "remove_identities",
    "simplify_casts",
    "simplify_shapes",
]
