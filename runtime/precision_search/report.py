"""The result of a search for mixed precision: the graph, a row for each layer, and the curve of error against cost."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graphcore.ir.graph import Graph
from graphcore.runtime.precision_search.trials import write_text
from graphcore.support import markup
from graphcore.support.escaping import escaped, size_text


@dataclass(frozen=True, slots=True)
class LayerPrecision:
    """The precision of a layer.

    Attributes:
        layer: Its path, or the name of its first result.
        operators: Its operators of floats, each once.
        dtype: The dtype that it computes in.
        weights: The scheme of its weights, or "".
        before: The bytes of its constants of floats. A shared constant counts in the first layer that reads it.
        after: The bytes in the chosen precision.
        error: The error that it causes alone; of a layer that stays wide, in the first dtype of floats.
        reason: Why it does not compute in the first dtype of floats, or "".
        range: "proved" if no value can overflow for inputs in the range of the samples, "measured" if none did.
    """

    layer: str
    operators: tuple[str, ...]
    dtype: str
    weights: str
    before: int
    after: int
    error: float
    reason: str
    range: str


@dataclass(frozen=True, slots=True)
class MixedPrecision:
    """A graph of mixed precision. Printed, it is a table.

    Attributes:
        graph: The graph.
        met: True if the error is within the budget.
        error: The error of the graph on the samples.
        max_error: The budget.
        report: A row for each layer.
        curve: Pairs of error and cost, from the smallest cost to the largest; no trial has less of both.
        runs: How many graphs were run, those that an earlier search stored excluded.
    """

    graph: Graph
    met: bool
    error: float
    max_error: float
    report: tuple[LayerPrecision, ...]
    curve: tuple[tuple[float, float], ...]
    runs: int

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts of plain values, for `json.dumps` or a data frame."""
        return [{**asdict(row), "operators": list(row.operators)} for row in self.report]

    def __str__(self) -> str:
        rows = [_HEAD, *map(_cells, self.report)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD) - 1)]
        lines = ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip() for row in rows]
        return "\n".join([*lines, self._total()])

    def _repr_html_(self) -> str:
        return markup.table(_HEAD, map(_cells, self.report), self._total())

    def _total(self) -> str:
        narrow = sum(row.dtype != "float32" or bool(row.weights) for row in self.report)
        before, after = (sum(getattr(row, name) for row in self.report) for name in ("before", "after"))
        budget = f"{'within' if self.met else 'NOT within'} {self.max_error:.3g}"
        return (
            f"{narrow} of {len(self.report)} layers narrow, {size_text(before)} to {size_text(after)}, "
            f"error {self.error:.3g}, {budget}; {self.runs} runs"
        )

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Write the curve as SVG. Raises `ExportError` if the file cannot be written."""
        write_text(path, _svg(self.curve, self.max_error))


_HEAD = ("layer", "operators", "dtype", "weights", "before", "after", "error alone", "range", "reason")


def _cells(row: LayerPrecision) -> tuple[str, ...]:
    sizes = [size_text(size) if row.before else "" for size in (row.before, row.after)]
    texts = escaped(row.layer), escaped(", ".join(row.operators)), row.dtype, row.weights
    return (*texts, *sizes, f"{row.error:.2g}", row.range, escaped(row.reason))


def pareto(trials: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the trials, pairs of error and cost, than which none has less of both, by cost."""
    points: list[tuple[float, float]] = []
    for error, cost in sorted(trials, key=lambda t: (t[1], t[0])):
        if math.isfinite(error) and (not points or error < points[-1][0]):
            points.append((error, cost))
    return tuple(points)


_WIDTH, _HEIGHT, _EDGE = 640, 400, 60


def _svg(points: Sequence[tuple[float, float]], max_error: float) -> str:
    """Return the plot of points: the cost to the right, the logarithm of the error upwards, 0 at the bottom."""
    powers = [math.log10(error) for error in (*(error for error, _ in points), max_error) if error > 0]
    low, high = math.floor(min(powers, default=-1)), math.ceil(max(powers, default=0))
    least, greatest = points[0][1], points[-1][1]
    right, bottom = _WIDTH - _EDGE, _HEIGHT - _EDGE

    def x(cost: float) -> float:
        return _EDGE + (cost - least) / ((greatest - least) or 1) * (right - _EDGE)

    def y(error: float) -> float:
        height = (math.log10(error) - low) / ((high - low) or 1) if error > 0 else 0.0
        return bottom - height * (bottom - _EDGE)

    budget = y(max_error)
    line = " ".join(f"{x(cost):.1f},{y(error):.1f}" for error, cost in points)
    shapes = [
        f'<path d="M{_EDGE} {_EDGE}V{bottom}H{right}" fill="none" stroke="#6b7280"/>',
        f'<path d="M{_EDGE} {budget:.1f}H{right}" stroke="#dc2626" stroke-dasharray="4"/>',
        f'<polyline points="{line}" fill="none" stroke="#2563eb"/>',
        f'<text x="{_EDGE}" y="30" font-weight="bold">error against cost; dashed: the budget</text>',
        f'<text x="{_EDGE}" y="{bottom + 18}">{least:.6g}</text>',
        f'<text x="{right}" y="{bottom + 18}" text-anchor="end">{greatest:.6g}</text>',
    ]
    shapes += [f'<text x="6" y="{y(10.0**power) + 4:.1f}">1e{power}</text>' for power in range(low, high + 1)]
    for error, cost in points:
        title = f"<title>error {error:.3g}, cost {cost:.6g}</title>"
        shapes.append(f'<circle cx="{x(cost):.1f}" cy="{y(error):.1f}" r="4" fill="#2563eb">{title}</circle>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="#ffffff"/>{"".join(shapes)}</svg>\n'
    )
