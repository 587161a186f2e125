"""The data of the page: a graph and what is known of it, as the JSON that `frontend/src/model.ts` declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphcore._version import __version__
from graphcore.analysis.statistics import Statistics, statistics
from graphcore.errors import DTypeError, GraphcoreError, GraphError
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.ir.symbol import Constant
from graphcore.runtime.inspection.placement import Placement
from graphcore.runtime.inspection.profiling import Profile
from graphcore.runtime.lowering.targets import BY_PROVIDER
from graphcore.runtime.quantizer.report import Report
from graphcore.types.tensor_types import TensorType
from graphcore.view.graph_data import GraphData, Json
from graphcore.view.overlays import (
    difference_overlay,
    lowered_data,
    placement_overlays,
    profile_overlays,
    quantization_overlays,
)
from graphcore.view.text import short_name

FORMAT = 1
"""Of the data. A page reads what is written in the format that it knows."""

_MOST_READ = 1 << 27
"""Elements of weights whose statistics are computed; of larger graphs those of the first weights."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Options of the page of a graph.

    targets: those that it is lowered for. None: "cpu" where the graph has outputs and can be lowered. precision,
    optimize: of lowering, as for `InferenceSession`. profile, placement: of a Model of the graph. quantization: the
    report of what `quantize` made. against: another graph, to which the differences are shown. values: arrays of values
    by name, such as `Model.debug` gives. statistics: of the weights.
    """

    title: str = ""
    targets: Sequence[TargetName] | None = None
    precision: Precision | None = None
    optimize: Optimize = "all"
    profile: Profile | None = None
    placement: Placement | None = None
    quantization: Report | None = None
    against: Graph | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    statistics: bool = True


def page_data(graph: Graph, shown: Shown | None = None) -> dict[str, Any]:
    """Return the data of a page as values that `json.dumps` takes. Raises as `save_html`."""
    shown = shown or Shown()
    data = GraphData(graph)
    failures: list[Json] = []
    for target in _targets(graph, shown):
        try:
            lowered_data(data, target, shown.precision, "off" if target == "onnx" else shown.optimize)
        except GraphcoreError as error:
            if shown.targets is not None:
                raise
            failures.append({"target": target, "reason": str(error)})
    _add_statistics(data, shown)
    overlays = [data.dtypes(), *(found.data.dtypes(i) for i, found in enumerate(data.lowered))]
    ran = _target_of(shown)
    index = next((i for i, found in enumerate(data.lowered) if found.json["target"] == ran), None)
    if shown.profile is not None and index is not None:
        overlays += profile_overlays(data, shown.profile, index)
    if shown.placement is not None and index is not None:
        overlays += placement_overlays(data, shown.placement, index)
    if shown.quantization is not None:
        overlays += quantization_overlays(data, shown.quantization)
    if shown.against is not None:
        overlays.append(difference_overlay(data, shown.against))
    return {
        "format": FORMAT,
        "title": short_name(shown.title or graph.name),
        "writer": __version__,
        "promotion": str(graph.promotion),
        "graph": data.as_json(),
        "lowered": [found.json for found in data.lowered],
        "overlays": overlays,
        "failures": failures,
    }


def _targets(graph: Graph, shown: Shown) -> list[TargetName]:
    """Return the targets to lower for, the one that ran among them."""
    if shown.targets is not None:
        wanted = [*shown.targets]
    else:
        wanted = ["cpu"] if graph.named_outputs else []
    ran = _target_of(shown)
    return [*wanted, ran] if ran is not None and ran not in wanted and graph.named_outputs else wanted


def _target_of(shown: Shown) -> TargetName | None:
    """Return the target whose provider ran what was profiled, or placed."""
    providers = Counter(kernel.provider for kernel in shown.profile.kernels) if shown.profile is not None else Counter()
    if shown.placement is not None:
        providers.update(placed.provider for placed in shown.placement.operators)
    if shown.profile is None and shown.placement is None:
        return None
    known = [BY_PROVIDER[name] for name, _ in providers.most_common() if name in BY_PROVIDER]
    # A device leaves some nodes to the CPU, never the other way round.
    row = next((row for row in known if row.host is not None), known[0] if known else None)
    return "cpu" if row is None else row.name


def _add_statistics(data: GraphData, shown: Shown) -> None:
    left = _MOST_READ if shown.statistics else 0
    for symbol, value in zip(data.source_values, data.values, strict=True):
        producer = symbol.producer
        if type(producer) is Constant and isinstance(symbol.type, TensorType) and 1 < producer.array.size <= left:
            left -= producer.array.size
            value["statistics"] = _as_json(statistics(producer.array, symbol.type.dtype))
    for name, array in shown.values.items():
        place = data.place_of(name)
        if place is None:
            raise GraphError(
                f"view: nothing of graph {data.graph.name!r} is called {name!r:.80}",
                help="values={'name': array}: names as str(graph) shows them",
            )
        given = np.asarray(array)
        try:
            data.values[place]["statistics"] = _as_json(statistics(given))
        except DTypeError as error:
            raise DTypeError(f"view: values[{name!r:.80}]: {error.summary}", help=error.help) from None


def _as_json(found: Statistics) -> Json:
    return {
        "min": _number(found.min),
        "max": _number(found.max),
        "mean": _number(found.mean),
        "nan": found.nan,
        "infinite": found.infinite,
        "zeros": found.zeros,
        "elements": found.elements,
        "histogram": list(found.histogram),
    }


def _number(value: float | None) -> float | None:
    """Return a number that JSON has; None for one beyond every float."""
    try:
        made = None if value is None else float(value)
    except OverflowError:
        return None
    return None if made in (float("inf"), float("-inf")) else made
