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
from graphcore.runtime.quantizer.layers.replacing import rewritten
from graphcore.runtime.quantizer.plan import Candidate, Selection, planned
from graphcore.runtime.quantizer.weights import SCHEMES, Choices
from graphcore.types.tensor_types import TensorType

Key: TypeAlias = "tuple[Any, ...]"
_Outputs: TypeAlias = "list[list[Array]]"

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
    the outputs, see `_off`, that the weights may cause, without that of quantised tables of rows.
    """
    max_error, runs = _tolerated(choices, tolerance), runs_of(samples)
    one = replace(choices, scheme=ONE_DIGIT)
    candidates = [candidate for candidate in candidates if not candidate.is_table]
    plan = planned(graph, candidates, one, chosen, False)
    sizes = {c.matrix.key: c.elements for c in candidates if id(c.node) in plan.chosen and c.matrix is not None}
    if not sizes:
        return {}
    exact = _outputs(graph, runs)
    if not all(np.isfinite(array).all() for outputs in exact for array in outputs):
        raise GraphError(
            "quantize: the outputs of the graph for the samples have NaN or infinity",
            help="give samples of the data that the graph is meant for",
        )

    def off(keys: Iterable[Key], part: Sequence[Candidate] = candidates, scheme: Choices = one) -> float:
        others = dict.fromkeys(keys, one)
        return _off(_outputs(rewritten(graph, planned(graph, part, scheme, chosen, False, others)), runs), exact)

    alone = {key: off((key,), [c for c in candidates if c.matrix is not None and c.matrix.key == key]) for key in sizes}
    ranked = sorted((key for key in alone if alone[key] < math.inf), key=lambda key: alone[key] / sizes[key])
    return dict.fromkeys(_fitting(ranked, alone, max_error, lambda keys: off(keys, candidates, choices)), one)


def _fitting(
    ranked: Sequence[Key], alone: Mapping[Key, float], max_error: float, off: Callable[[Sequence[Key]], float]
) -> Sequence[Key]:
    """Return as many keys as are within `max_error` together. Keys that are too large alone are skipped."""
    taken: list[Key] = []
    total = 0.0
    for key in ranked:
        if total + alone[key] <= max_error:
            taken.append(key)
            total += alone[key]
    while taken and off(taken) > max_error:
        del taken[-max(len(taken) // _STEP, 1) :]
    return taken


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


def runs_of(samples: object, what: str = "quantize") -> list[tuple[Sequence[Any], Mapping[str, Any]]]:
    """Return the arguments of calls, arrays in order and by name. Raises `GraphError` for other values, as `what`."""
    runs = list(samples) if isinstance(samples, Iterable) and not isinstance(samples, (str, Mapping)) else []
    if not runs or not all(isinstance(run, (Mapping, list, tuple)) for run in runs):
        raise GraphError(
            f"{what}: samples must be a list of the inputs of each run, each a dict, list or tuple, got "
            + (f"{samples!r:.80}" if isinstance(samples, (list, tuple)) else type(samples).__name__),
            help='give the inputs of one run or more: [{"x": array}], or [(array,)]',
        )
    return [((), run) if isinstance(run, Mapping) else (run, {}) for run in runs]


def _outputs(graph: Graph, runs: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> _Outputs:
    """Return the float outputs of each run."""
    # onnxruntime, which quantising without samples does not need
    from graphcore.runtime.session import InferenceSession

    outputs = [symbol.type for _, symbol in graph.named_outputs]
    places = [i for i, type_ in enumerate(outputs) if isinstance(type_, TensorType) and type_.dtype.is_float]
    if not places:
        raise GraphError(
            "quantize: the graph has no output of floats, by which samples are compared", help="leave out samples"
        )
    model = InferenceSession().load(graph)
    every = [model(*arrays, **named) for arrays, named in runs]
    return [[np.asarray(arrays[i], np.float64) for i in places] for arrays in every]


def _off(outputs: _Outputs, exact: _Outputs) -> float:
    """Return half of the squared length of the change over the squared length of all runs, of the output that is most
    off.

    Of vectors of length 1 that is 1 less the mean cosine. Infinite if an output has NaN or infinity.
    """
    worst = 0.0
    for place in range(len(exact[0])):
        pairs = [(a[place], b[place]) for a, b in zip(outputs, exact, strict=True)]
        change = sum(float(np.square(a - b).sum()) for a, b in pairs)
        length = sum(float(np.square(b).sum()) for _, b in pairs)
        if not change <= math.inf:
            return math.inf
        if change:
            worst = max(worst, change / length / 2 if length else math.inf)
    return worst
