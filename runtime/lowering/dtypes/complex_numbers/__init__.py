"""Complex numbers as their real and imaginary parts: a pass before the others, which then see only real dtypes."""

from importlib import import_module

from graphcore.ir.graph import Graph
from graphcore.promotion.complex_operators import is_complex
from graphcore.runtime.lowering.passes import Summary
from graphcore.types.tensor_types import complex_in_use


def needed(summary: Summary) -> bool:
    """Return True if the graph or one of its bodies has complex numbers."""
    return bool(complex_in_use) and any(map(is_complex, summary.types))


def store(graph: Graph, *, fast: bool = False, branches: bool = False) -> Graph:
    """Return the graph with real tensors in place of complex ones.

    fast: matrix products may use three real products. branches: common cases have branches of their own.

    Raises `DTypeError` for operators without a rule.
    """
    stored: Graph = import_module(f"{__name__}.layers").stored(graph, fast, branches)  # few graphs need it
    return stored
