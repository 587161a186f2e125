"""Mixed precision: find the weights of a graph with two digits that need only one, by running samples.

Errors of different weights are nearly independent, so they add up. Weights are chosen in the order of the error that
each causes in the outputs for each of its elements, while the sum is within the tolerance. Then the error of all
chosen weights together is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.runtime.quantizer.layers.replacing import Runs, is_float, length, rewritten
from graphcore.runtime.quantizer.plan import Candidate, Selection, planned
from graphcore.runtime.quantizer.weights import SCHEMES, Choices

Key: TypeAlias = "tuple[Any, ...]"
Outputs: TypeAlias = "list[list[Array]]"
"""The outputs of each run."""

ONE_DIGIT = SCHEMES["int8_dynamic16"]
"""The scheme of weights that need no second digit."""

_STEP = 16
"""If chosen weights together have a larger error than the sum of their errors, one of this many is dropped, and the
rest is tried again."""


def single_digits(
    graph: Graph,
    candidates: Sequence[Candidate],
    choices: Choices,
    chosen: Selection,
    samples: object,
    tolerance: object,
) -> dict[Key, Choices]:
    """Return the schemes of weights that need no second digit, by key.

    samples: for each run of the graph the arrays of its inputs, in order or by name. tolerance: the greatest error of
    the outputs, see `off`, that the weights may cause, without that of quantised tables of rows.
    """
    max_error, runs = _tolerated(choices, tolerance), runs_of(samples)
    one = replace(choices, scheme=ONE_DIGIT)
    candidates = [candidate for candidate in candidates if not candidate.is_table]
    plan = planned(graph, candidates, one, chosen, False)
    sizes = {c.matrix.key: c.elements for c in candidates if id(c.node) in plan.chosen and c.matrix is not None}
    if not sizes:
        return {}
    # onnxruntime, which quantising without samples does not need
    from graphcore.runtime.session import InferenceSession

    session = InferenceSession()

    def floats(changed: Graph) -> list[Array]:
        model = session.load(changed)
        return floats_of(graph, [model(*arrays, **named) for arrays, named in runs])

    exact = floats(graph)
    check_exact("quantize", exact, "leave out samples")

    def off(keys: Iterable[Key], part: Sequence[Candidate] = candidates, scheme: Choices = one) -> float:
        """Return half of the square of the relative error of the outputs.

        Of vectors of length 1 that is 1 less the mean cosine.
        """
        plan = planned(graph, part, scheme, chosen, False, dict.fromkeys(keys, one))
        return worst(relative, exact, floats(rewritten(graph, plan))) ** 2 / 2

    alone = {key: off((key,), [c for c in candidates if c.matrix is not None and c.matrix.key == key]) for key in sizes}
    taken: list[Key] = []
    total = 0.0
    for key in sorted(sizes, key=lambda key: alone[key] / sizes[key]):
        if total + alone[key] <= max_error:
            taken.append(key)
            total += alone[key]
    while taken and off(taken, scheme=choices) > max_error:
        del taken[-max(len(taken) // _STEP, 1) :]
    return dict.fromkeys(taken, one)


def _tolerated(choices: Choices, tolerance: object) -> float:
    if choices.scheme.name != "int8_split":
        raise GraphError(
            f"quantize: scheme {choices.scheme.name!r} does not take samples",
            help='leave them out, or use "int8_split" (mixed precision) or "int8_dynamic" (convolutions)',
        )
    if isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool) and 0 <= tolerance < 1:
        return float(tolerance)
    raise GraphError(
        f"quantize: tolerance must be a number from 0 to below 1, got {tolerance!r:.80}", help="try 1e-4, the default"
    )


def runs_of(samples: object, what: str = "quantize") -> Runs:
    """Return the arguments of calls, arrays in order and by name. Raises `GraphError` for other values, as `what`."""
    runs = list(samples) if isinstance(samples, Iterable) and not isinstance(samples, (str, Mapping)) else []
    if not runs or not all(isinstance(run, (Mapping, list, tuple)) for run in runs):
        raise GraphError(
            f"{what}: samples must be a list of the inputs of each run, each a dict, list or tuple, got "
            + (f"{samples!r:.80}" if isinstance(samples, (list, tuple)) else type(samples).__name__),
            help='give the inputs of one run or more: [{"x": array}], or [(array,)]',
        )
    return [((), run) if isinstance(run, Mapping) else (run, {}) for run in runs]


# The error of outputs on samples, which the search for narrow dtypes measures too.


def floats_of(graph: Graph, outputs: Outputs) -> list[Array]:
    """Return the numbers of each output of floats over all runs, as one vector."""
    places = [i for i, symbol in enumerate(graph.outputs) if is_float(symbol)]
    return [np.concatenate([np.asarray(run[i], np.float64).reshape(-1) for run in outputs]) for i in places]


def check_exact(what: str, floats: Sequence[Array], help: str) -> None:
    """Raise `GraphError` if a graph has no outputs of floats to compare, or if some are not finite."""
    if not floats:
        raise GraphError(f"{what}: the graph has no output of floats, by which samples are compared", help=help)
    if not all(np.isfinite(numbers).all() for numbers in floats):
        raise GraphError(
            f"{what}: the outputs of the graph for the samples have NaN or infinity",
            help="give samples of the data that the graph is meant for",
        )


def worst(metric: Callable[[Array, Array], float], exact: Sequence[Array], measured: Sequence[Array]) -> float:
    """Return the error of the output that is most off; infinite if an output has NaN or infinity."""
    if not all(np.isfinite(numbers).all() for numbers in measured):
        return math.inf
    return max(map(metric, exact, measured))


def ratio(part: float, whole: float) -> float:
    """Return the quotient; 0 for a part of 0, even of nothing."""
    return part / whole if whole else math.inf if part else 0.0


def relative(exact: Array, measured: Array) -> float:
    """Return the length of the change over the length of an output."""
    return ratio(length(measured - exact), length(exact))
