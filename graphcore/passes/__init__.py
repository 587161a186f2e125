"""Optimisation passes: dead code elimination, cast simplification, algebraic simplification, constant folding,
simplification of shapes, padding merged into convolutions, and common subexpression elimination.

Each returns a new graph that computes the same bits with fewer nodes, and can be used alone. `optimize`, which is
`Graph.optimize`, runs them together up to a fixed point. The graph they are given is never changed. Inputs, outputs,
names given by users, layers, lines, metadata and the promotion system stay; weights stay the caller's arrays, but for
initializers of models that were read, which are constants unless they are kept.
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
from graphcore.passes.sweep import LIMIT, Rule, Selection, Sweep
from graphcore.support.gc_pause import uncollected

Pass: TypeAlias = "Callable[[Graph], Graph]"


def dead_code(graph: Graph) -> Graph:
    """Eliminate dead code: return the graph without nodes that lead to no output, and without unused constants.

    A value with a name that a user gave stays, for it can be asked for: `graph["hidden"]`. Names in a model that
    others wrote, which every value there has, do not count. Raises `GraphError` for a graph without outputs.
    """
    return optimize(graph, ["dead_code"])


def common_subexpressions(graph: Graph) -> Graph:
    """Eliminate common subexpressions: return the graph with one node for each operator, operands and attributes.

    Random operators, nodes with bodies and those of domains that the library does not know are never merged, nor two
    values that users gave different names. Raises `GraphError` for a graph without outputs.
    """
    return optimize(graph, ["common_subexpressions"])


def fold_constants(graph: Graph, *, limit: int = LIMIT) -> Graph:
    """Fold constants: return the graph with constants for nodes of constants, where NumPy gives the result bit for bit.

    limit: the bytes of the largest constant made. Weights are not folded: what they hold when the graph is exported
    counts. Raises `GraphError` for a graph without outputs.
    """
    return optimize(graph, ["fold_constants"], limit=limit)


def simplify_casts(graph: Graph) -> Graph:
    """Simplify casts: return the graph without casts that change nothing, and without a lossless one before another.

    Only where that is exact for every value: float16 -> float32 -> float16 is nothing, float32 -> float16 -> float32
    stays. Raises `GraphError` for a graph without outputs.
    """
    return optimize(graph, ["simplify_casts"])


def remove_identities(graph: Graph) -> Graph:
    """Simplify algebraically: return the graph without nodes that give an operand: x * 1, -(-x), a Transpose undone.

    Only where that holds for every value: x + 0.0 stays, for -0.0 + 0.0 is 0.0. Raises `GraphError` for a graph
    without outputs.
    """
    return optimize(graph, ["remove_identities"])


def simplify_shapes(graph: Graph) -> Graph:
    """Simplify shapes: return the graph with sizes computed once, views of views as one, and shapes as numbers.

    Dims of one name are one size: a Reshape copies the axes that stay, what gives the dims that are there already goes.
    Raises `GraphError` for a graph without outputs.
    """
    return optimize(graph, ["simplify_shapes"])


def merge_padding(graph: Graph) -> Graph:
    """Merge padding: return the graph with the zeros of a Pad put there by the Conv that reads it.

    Only constant zeros around the spatial axes of float32, and filters that are finite constants. Raises `GraphError`
    for a graph without outputs.
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
"""All passes by name, in the order in which `optimize` applies them to a node."""

BASIC = ("dead_code", "simplify_casts", "remove_identities", "fold_constants", "common_subexpressions")
"""The passes that leave shapes as they are computed."""

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
        graph.verify()  # which says so
    if graph.scope.outer is not None:
        raise GraphError(f"optimize: graph {graph.name!r} is a body", help="optimise the graph around it")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise GraphError(f"optimize: the limit {limit!r} is no number of bytes", help=f"the default is {LIMIT}")
    initializers = Initializers(graph, keep, limit)
    selection = replace(selected(list(PASSES) if passes is None else passes, limit), initializers=initializers)
    source = graph
    buffers = {name: held.buffer for name, held in graph.buffers.items()}
    graph = reduced(exposed(graph), selection)
    if buffers:
        attach(graph, buffers)
    initializers.finish(source, graph)
    return graph


def reduced(graph: Graph, selection: Selection) -> Graph:
    """Return the graph after walks over it with these rules, until they find nothing more."""
    with uncollected():
        for _ in range(_ROUNDS):
            sweep = Sweep(graph, selection)
            graph = sweep.run()
            if not sweep.changes:
                break
    return graph


def selected(passes: Sequence[str | Pass], limit: int = LIMIT) -> Selection:
    """Return the selection of rules that these passes are. Raises `GraphError` for one that does not exist."""
    given = [passes] if isinstance(passes, str) or not isinstance(passes, Iterable) else passes
    names = {_name(each) for each in given}
    rules: dict[str, tuple[Rule, ...]] = {}
    passes_of: dict[Rule, str] = {}
    for name, own in _RULES.items():
        if name in names:
            passes_of.update((rule, name) for found in own.values() for rule in found)
            for operator, found in own.items():
                rules[operator] = (*rules.get(operator, ()), *found)
    return Selection(
        rules,
        "dead_code" in names,
        "common_subexpressions" in names,
        limit,
        branches="fold_constants" in names,
        simplifies_shapes="simplify_shapes" in names,
        passes=passes_of,
    )


def _name(given: object) -> str:
    for name, function in PASSES.items():
        if given is function or (isinstance(given, str) and given == name):
            return name
    raise GraphError(f"optimize: {given!r} is no pass", help=f"use one of {', '.join(PASSES)}")


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
