"""Search the narrowest precision of each layer of a graph within an error budget, by running samples.

`trials` runs a graph whose layers have chosen precisions, this module searches among them, `ranges` says why layers
stay wide, and `report` describes the result.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.quantization import ENCODINGS
from graphcore.runtime.lowering import functions
from graphcore.runtime.precision_search.ranges import evidence, reasons
from graphcore.runtime.precision_search.report import LayerPrecision, MixedPrecision, pareto
from graphcore.runtime.precision_search.trials import (
    COSTS,
    METRICS,
    WIDE,
    Assignment,
    Metric,
    Precision,
    Trials,
)
from graphcore.runtime.quantizer.layers.replacing import Runs
from graphcore.runtime.quantizer.mixed_precision import runs_of
from graphcore.runtime.quantizer.weights import SCHEMES
from graphcore.runtime.session import InferenceSession
from graphcore.support.escaping import choices
from graphcore.support.progress import ProgressOption, steps
from graphcore.surgery.roles import Keep, warn
from graphcore.types.dtypes import DType

_FLOATS = ("float16", "bfloat16")
_SCHEMES = tuple(name for name, scheme in SCHEMES.items() if name == scheme.encoding and not scheme.is_dynamic)


def mixed_precision(
    graph: Graph,
    samples: Iterable[Mapping[str, Any] | Sequence[Any]],
    *,
    max_error: float,
    dtypes: Sequence[str] = ("float16", "bfloat16", "int8", "int4"),
    metric: Metric = "relative",
    cost: Literal["bytes", "flops", "time"] = "bytes",
    keep_io: bool = True,
    keep: str | Iterable[str] = (),
    progress: ProgressOption = False,
    resume: str | os.PathLike[str] | None = None,
    session: InferenceSession | None = None,
) -> MixedPrecision:
    """Return a graph whose layers are as narrow as an error budget on samples allows, and a report of each layer.

    Layers compute in float16 or bfloat16, and read weights of 8 or 4 bits, where the outputs stay within `max_error`
    of those of `graph`. Errors are measured with the numbers of the dtypes, which a CPU gives exactly. Groups of layers
    are tried together, and halved where they are too far off; a step is accepted if it is within the budget together
    with all earlier ones. That takes at most 5 runs for each layer and dtype. Layers in bodies of If, Loop and Scan are
    included; functions are inlined.

    Args:
        graph: A graph of float32.
        samples: For each run of the graph the arrays of its inputs, in order or by name.
        max_error: The budget, in the metric.
        dtypes: Dtypes that layers may have: "float16" and "bfloat16", of which the first is tried first, and with
            either of them the schemes of `quantize` for weights alone: "int8", "int4", "q4_0", "q4_k", ...
        metric: "relative", the length of the change over the length of the output; "max", the greatest change of a
            number; "cosine", 1 less the cosine. Each is of an output over all samples; the output that is most off
            counts. Or a function of the expected and the measured outputs, a list of arrays for each sample, that
            returns the error.
        cost: What to save: "bytes" of weights, "flops", each by the width of its floats, or "time" on the session.
        keep_io: If True, inputs and outputs keep their dtypes. Otherwise they have the first dtype of floats.
        keep: Patterns of operators, layers, results, inputs and weights that stay, see `Graph.astype`.
        progress: True shows a line on stderr. A function gets the number of decisions, one for each layer and dtype and
            one to measure it alone, and the number of all.
        resume: A file of trials. A search that was interrupted continues; one with another budget reuses them.
        session: What runs the trials; by default the CPU with exact numbers.

    Returns:
        `MixedPrecision` with `graph`, `met`, `error`, `report`, `curve` and `runs`. If not even the wide graph is
        within the budget, as may be with a function as metric, it has the best trial, and `met` is False.

    Raises:
        GraphError: For an unfinished graph, an argument that is not valid, no samples, samples that give NaN or
            infinity, and a graph without float32.
        FeedError: For samples that do not fit the inputs.

    Example:
        result = gc.mixed_precision(graph, [{"x": x}], max_error=1e-3)
    """
    names = _checked(graph, max_error, dtypes, metric, cost, keep_io)
    floats = [DType.of(name) for name in names if name in _FLOATS]
    schemes = sorted((n for n in names if n not in _FLOATS), key=lambda n: -ENCODINGS[SCHEMES[n].encoding].bits)
    # The fewer bits, the more error for each saved byte: the budget goes to the wider ones first.
    moves = [_Move("dtype", None, dtype) for dtype in floats]
    moves += [_Move("scheme", before, after) for before, after in pairwise(("", *schemes))]
    runs = runs_of(samples, "mixed_precision")
    _check_samples(runs)
    source = functions.inlined(graph)
    patterns = Keep(source, keep, frozenset({DType.float32}))
    io_dtype = None if keep_io else floats[0]
    session = session or InferenceSession(precision="exact")
    trials = Trials(source, runs, patterns, schemes, metric, cost, io_dtype, session, resume)
    search = _Search(trials, max_error, trials.wide)
    with steps(progress, (len(moves) + 1) * len(trials.units), "decisions") as step:
        search.run(moves, step)
        return search.result(floats, step)


class _Move(NamedTuple):
    """A change of the precisions that have one value in a field to a narrower one."""

    field: Literal["dtype", "scheme"]
    before: DType | str | None
    after: DType | str


@dataclass
class _Search:
    """The search for an assignment. base: the best one so far."""

    trials: Trials
    max_error: float
    base: Assignment

    def run(self, moves: Sequence[_Move], step: Callable[[], None]) -> None:
        """Decide all layers for one move after the other. step: called for each decision."""
        wide = narrowest = self.base
        for move in moves:
            narrowest = self._moved(narrowest, self._movable(narrowest, move), move)
        can_meet = self._accepts(narrowest) or self.trials.measure(wide).error <= self.max_error
        if not can_meet:
            self.base = min(wide, narrowest, key=lambda assignment: self.trials.measure(assignment).error)
        for move in moves:
            units = self._movable(self.base, move) if can_meet else []
            if units and not self._accepts(self._moved(self.base, units, move)):
                self._take(self._ranked(units, move), move)
            for _ in wide:
                step()

    def _movable(self, base: Assignment, move: _Move) -> list[int]:
        """Return the units that a move narrows."""
        units = [u for u, precision in enumerate(base) if getattr(precision, move.field) == move.before]
        return [u for u in units if self.trials.can_have(u, move.after)]

    def _moved(self, base: Assignment, units: Iterable[int], move: _Move) -> Assignment:
        """Return an assignment with a move of some units."""
        narrow: dict[str, Any] = {move.field: move.after}
        chosen = {*units}
        return tuple(p._replace(**narrow) if u in chosen else p for u, p in enumerate(base))

    def _accepts(self, assignment: Assignment) -> bool:
        """Make an assignment the base if it is within the budget and costs less. Return True if so.

        Layers without weights save no bytes in a narrow dtype, but save casts between their neighbours.
        """
        trial, base = self.trials.measure(assignment), self.trials.measure(self.base)
        saves = trial.cost <= base.cost if self.trials.cost == "bytes" else trial.cost < base.cost
        if saves and trial.error <= self.max_error:
            self.base = assignment
            return True
        return False

    def _ranked(self, units: Sequence[int], move: _Move) -> list[int]:
        """Return the units that are within the budget alone, in the order of their error for each saved cost.

        Units are measured in groups. A group whose error is no more than its share of the budget is not split: errors
        of different layers are nearly independent, so their squares add up.
        """
        wide, ranks = self.trials.measure(self.trials.wide), {}
        waiting = [units]
        while waiting:
            group = waiting.pop()
            alone = tuple(p if u in group else WIDE for u, p in enumerate(self._moved(self.base, group, move)))
            trial = self.trials.measure(alone)
            if len(group) > 1 and not trial.error <= self.max_error * math.sqrt(len(group) / len(units)):
                waiting += [group[len(group) // 2 :], group[: len(group) // 2]]
            elif trial.error <= self.max_error:
                saved = wide.cost - trial.cost
                ranks.update(dict.fromkeys(group, trial.error / saved if saved > 0 else math.inf))
        return sorted(ranks, key=lambda u: (ranks[u], u))

    def _take(self, units: Sequence[int], move: _Move) -> None:
        """Add as many units to the base as are within the budget, the first ones first."""
        if units and not self._accepts(self._moved(self.base, units, move)) and len(units) > 1:
            self._take(units[: len(units) // 2], move)
            self._take(units[len(units) // 2 :], move)

    def result(self, floats: Sequence[DType], step: Callable[[], None]) -> MixedPrecision:
        """Return the result, with the error of each layer alone. step: called for each layer."""
        trials, final = self.trials, self.base
        total = trials.measure(final)
        first = floats[0] if floats else None
        stays = {} if first is None else reasons(trials, [u for u, p in enumerate(final) if p.dtype != first], first)
        ranges, sizes = evidence(trials, final), trials.bytes_of_units(final)
        rows = []
        for u, (unit, precision) in enumerate(zip(trials.units, final, strict=True)):
            tried = Precision(first) if precision == WIDE else precision
            alone = trials.measure((*trials.wide[:u], tried, *trials.wide[u + 1 :]))
            operators = tuple(dict.fromkeys(node.op_type for node in unit.nodes))
            kind, scheme = str(precision.dtype or DType.float32), precision.scheme
            reason = stays.get(u, "")
            rows.append(LayerPrecision(unit.name, operators, kind, scheme, *sizes[u], alone.error, reason, ranges[u]))
            step()
        met, curve = total.error <= self.max_error, pareto(trials.stored.values())
        return MixedPrecision(trials.build(final), met, total.error, self.max_error, tuple(rows), curve, trials.count)


def _checked(
    graph: object, max_error: object, dtypes: object, metric: object, cost: object, keep_io: bool
) -> list[str]:
    """Return the names of the dtypes, each once. Raises `GraphError` for an argument that is not valid."""
    if not isinstance(graph, Graph) or graph.scope.outer is not None:
        raise GraphError(
            f"mixed_precision: graph must be a Graph and not the body of a node, got {type(graph).__name__}",
            help="load a model: Graph.load(path)",
        )
    graph.verify()
    if isinstance(max_error, bool) or not isinstance(max_error, (int, float)) or not max_error >= 0:
        raise GraphError(
            f"mixed_precision: max_error must be a number of at least 0, got {max_error!r:.80}", help="try 1e-3"
        )
    listed = dtypes if isinstance(dtypes, (list, tuple)) and dtypes else [dtypes]
    names = [*dict.fromkeys(str(name) for name in listed)]
    arguments = [("dtype", name, (*_FLOATS, *_SCHEMES)) for name in names] + [("cost", cost, tuple(COSTS))]
    for what, value, allowed in arguments + ([] if callable(metric) else [("metric", metric, tuple(METRICS))]):
        if value not in allowed:
            raise GraphError(f"mixed_precision: there is no {what} {value!r:.80}", help=choices(value, allowed))
    if not keep_io and not {*names} & {*_FLOATS}:
        raise GraphError("mixed_precision: keep_io=False needs a dtype of floats", help='add "float16" to dtypes')
    return names


def _check_samples(runs: Runs) -> None:
    """Warn about samples that say little about the error for others."""
    every = [np.asarray(array) for arrays, named in runs for array in (*arrays, *named.values())]
    floats = [array for array in every if array.dtype.kind not in "iubOUS"] or every
    problem = ""
    if floats and all((array == array.reshape(-1)[:1]).all() for array in floats):
        problem = "the samples are constant: each array repeats one number"
    elif len(runs) == 1 and all(array.ndim == 0 or len(array) == 1 for array in every):
        problem = "there is only one sample"
    if problem:
        help = "give several samples of the data that the graph is meant for"
        warn(f"mixed_precision: {problem}", help, UserWarning)
