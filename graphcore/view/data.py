"""The data of the page: a graph with overlays, as the JSON that `frontend/src/model.ts` declares."""

from __future__ import annotations

import base64
import dataclasses
import io
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
from graphcore.view.running import Wasm, run_data
from graphcore.view.text import short_name

FORMAT = 1
"""The version of the data format. A page reads only its own version."""

_MAX_ELEMENTS = 1 << 27
"""Weights whose statistics are computed have at most this many elements in total; the first weights count first."""

_NPY_HEADER = 128
"""Bytes before the elements in a .npy file."""


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Options of the page of a graph.

    targets: to lower the graph for. None: "cpu" if the graph has outputs and can be lowered. precision, optimize: of
    lowering, as for `InferenceSession`. profile, placement: of a Model of the graph. quantization: the report of
    `quantize`. against: another graph to compare with. values: arrays of values by name, for example from
    `Model.debug`. statistics: of the weights. weight_bytes: the maximum bytes of .npy files of weights in the page, the
    smallest first. run: where the WebAssembly is with which the page runs the graph.
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
    weight_bytes: int = 1 << 20
    run: Wasm | None = None


def page_data(graph: Graph, options: PageOptions | None = None) -> dict[str, Any]:
    """Return the data of a page as values for `json.dumps`. Raises as `save_html`."""
    options = options or PageOptions()
    data = GraphData(graph)
    failures: list[Json] = []
    for target in _targets(graph, options):
        try:
            lowered_data(data, target, options.precision, "off" if target == "onnx" else options.optimize)
        except GraphcoreError as error:
            if options.targets is not None:
                raise
            failures.append({"target": target, "reason": str(error)})
    _add_statistics(data, options)
    _add_files(data, options.weight_bytes)
    overlays = [data.dtypes(), *(lowered.data.dtypes(i) for i, lowered in enumerate(data.lowered))]
    ran = _target_of(options)
    index = next((i for i, lowered in enumerate(data.lowered) if lowered.json["target"] == ran), None)
    if options.profile is not None and index is not None:
        overlays += profile_overlays(data, options.profile, index)
    if options.placement is not None and index is not None:
        overlays += placement_overlays(data, options.placement, index)
    if options.quantization is not None:
        overlays += quantization_overlays(data, options.quantization)
    if options.against is not None:
        overlays.append(difference_overlay(data, options.against))
    result = {
        "format": FORMAT,
        "title": short_name(options.title or graph.name),
        "writer": __version__,
        "promotion": str(graph.promotion),
        "graph": data.as_json(),
        "lowered": [lowered.json for lowered in data.lowered],
        "overlays": overlays,
        "failures": failures,
    }
    return result if options.run is None else result | {"run": run_data(data, options.run)}


def _targets(graph: Graph, options: PageOptions) -> list[TargetName]:
    """Return the targets to lower for, including the one that ran."""
    if options.targets is not None:
        wanted = [*options.targets]
    else:
        wanted = ["cpu"] if graph.named_outputs else []
    ran = _target_of(options)
    return [*wanted, ran] if ran is not None and ran not in wanted and graph.named_outputs else wanted


def _target_of(options: PageOptions) -> TargetName | None:
    """Return the target of the provider in the profile or placement, None without both."""
    providers = (
        Counter(kernel.provider for kernel in options.profile.kernels) if options.profile is not None else Counter()
    )
    if options.placement is not None:
        providers.update(placed.provider for placed in options.placement.operators)
    if options.profile is None and options.placement is None:
        return None
    rows = [BY_PROVIDER[name] for name, _ in providers.most_common() if name in BY_PROVIDER]
    # A device leaves some nodes to the CPU, but the CPU none to a device.
    row = next((row for row in rows if row.host is not None), rows[0] if rows else None)
    return "cpu" if row is None else row.name


def _add_statistics(data: GraphData, options: PageOptions) -> None:
    remaining = _MAX_ELEMENTS if options.statistics else 0
    for symbol, value in zip(data.source_values, data.values, strict=True):
        producer = symbol.producer
        if type(producer) is Constant and isinstance(symbol.type, TensorType) and 1 < producer.array.size <= remaining:
            remaining -= producer.array.size
            value["statistics"] = _as_json(statistics(producer.array, symbol.type.dtype))
    for name, array in options.values.items():
        place = data.place_of(name)
        if place is None:
            raise GraphError(
                f"view: no value of graph {data.graph.name!r} is called {name!r:.80}",
                help="pass values={'name': array} with names as print(graph) shows them",
            )
        converted = np.asarray(array)
        try:
            data.values[place]["statistics"] = _as_json(statistics(converted))
        except DTypeError as error:
            raise DTypeError(f"view: values[{name!r:.80}]: {error.summary}", help=error.help) from None


def _add_files(data: GraphData, remaining: int) -> None:
    """Add the .npy files of weights and long constants, "" for those whose dtype such a file cannot have."""
    arrays = [
        (symbol.producer.array, value)
        for symbol, value in zip(data.source_values, data.values, strict=True)
        if type(symbol.producer) is Constant and (symbol.producer.is_weight or "first" in value)
    ]
    for array, value in sorted(arrays, key=lambda each: each[0].nbytes):
        if array.dtype == object:
            value["npy"] = ""
        elif (remaining := remaining - array.nbytes - _NPY_HEADER) >= 0:
            file = io.BytesIO()
            np.lib.format.write_array(file, array, allow_pickle=False)
            value["npy"] = base64.b64encode(file.getvalue()).decode()


def _as_json(result: Statistics) -> Json:
    numbers = {name: _number(getattr(result, name)) for name in ("min", "max", "mean")}
    return dataclasses.asdict(result) | numbers | {"histogram": list(result.histogram)}


def _number(value: float | None) -> float | None:
    """Return a number for JSON, None for one that overflows float."""
    try:
        number = None if value is None else float(value)
    except OverflowError:
        return None
    return None if number in (float("inf"), float("-inf")) else number
