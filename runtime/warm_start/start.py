"""Warm starts: loads that neither read a file nor lower a graph, since the first one kept what it found out.

An entry says how the inputs and outputs are called and typed, and which weights go to which names of the optimised
graph. It is found by the cache key of what is loaded, see `graph_key` and `file_key`.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from graphcore._version import FOLDER
from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import Links
from graphcore.errors import GraphcoreError, GraphError
from graphcore.ir.graph import Graph
from graphcore.runtime.model import Model
from graphcore.runtime.ort import sessions
from graphcore.runtime.ort.starter import Starter
from graphcore.runtime.ort.values import to_ort
from graphcore.runtime.warm_start.cache import Cache
from graphcore.runtime.warm_start.graph_key import graph_source
from graphcore.runtime.warm_start.source import Source
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type

_ROOMS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder that has the room `runtime`: the package's own, but for a checkout without symlinks."""

_STEP = 1 << 24
"""Bytes of a weight that are compared at once."""


class WarmStart:
    """One load with a folder of cache entries: finds the Model of an earlier load, or keeps what a later one needs."""

    def __init__(self, folder: str | os.PathLike[str], starter: Starter, lowering: Sequence[object]) -> None:
        """lowering: what decides, beside the target, how graphs are lowered."""
        self._folder = folder
        self._starter = starter
        self._lowering = lowering
        self._source: Source | None = None

    def cache(self, *parts: object) -> Cache | None:
        """Return where optimised graphs are kept: on the CPU, where it was tried. parts: of the cache key.

        Raises `ModelError` for a folder that cannot be written to, and `GraphError` where an option names another one.
        """
        starter = self._starter
        if "optimized_model_filepath" in starter.attributes:
            raise GraphError(
                "load: with cache_dir the optimised graph goes there, and the option optimized_model_filepath says"
                " another place",
                help="leave one of them out",
            )
        options = starter.entries()
        made = Cache(self._folder, (starter.providers, starter.provider_options, *self._lowering, options, *parts))
        return made if starter.providers == ("CPUExecutionProvider",) else None

    def find(self, model: object, prepack: str, load: Callable[[], Model], links: Links | None = None) -> Model | None:
        """Return the Model of an earlier load; None where there was none, or it cannot be told.

        load: loads the model without a cache. links: which links to its data may be followed. Raises what `cache`
        does.
        """
        cache = self.cache(prepack, code())
        if cache is None:
            return None
        if isinstance(model, Graph):
            self._source = graph_source(cache, model, load)
        else:
            # onnx, which takes as long as starting a small Graph from its entry
            from graphcore.runtime.warm_start.file_key import file_source

            self._source = file_source(cache, model, load, links)
        return None if self._source is None else started(self._source, self._starter)

    def keep(self, model: Model, cache: Cache, disabled: Sequence[str], packing: Mapping[str, str]) -> None:
        """Keep what a later load needs, where that is all. model: what was loaded. cache: has its optimised graph."""
        source = self._source
        types = (*model._types[0].values(), *model._types[1].values())
        plain = all(isinstance(t, TensorType) and not t.ambiguous for t in types)
        if source is None or source.key is None or cache.used is None or not source.is_settled or not plain:
            return
        if model._kept or model._restored or source.name != model.name:
            return
        kept: Any = model._keep
        (large, shared), _ = kept
        weights: dict[str, Array] = {name: large[name] for name in shared}
        try:
            own = source.arrays([*weights])
        except (GraphcoreError, KeyError):  # lowering made some of them
            return
        if not all(_is_same(own[name], array) for name, array in weights.items()):
            return
        entry = {
            "name": model.name,
            "inputs": [(name, _written(type_)) for name, type_ in model._types[0].items()],
            "outputs": [(name, _written(type_)) for name, type_ in model._types[1].items()],
            "weights": [*weights],
            "optimised": cache.used,
            "disabled": disabled,
            "packing": packing,
        }
        source.cache.save(source.key, json.dumps(entry).encode(), "start")


@dataclass(frozen=True, slots=True)
class Entry:
    """The parts that a Model is started from. weights: of the source, by their names in the optimised graph."""

    name: str
    inputs: dict[str, Type]
    outputs: dict[str, Type]
    optimised: bytes
    weights: dict[str, Array]
    disabled: tuple[str, ...]
    packing: dict[str, str]


def started(source: Source, starter: Starter) -> Model | None:
    """Return the Model of what was loaded before; None where that is to be done again."""
    try:
        found = _entry(source)
        if found is None:
            return None
        shared = {name: to_ort(array, DType.of(array.dtype)) for name, array in found.weights.items()}

        def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            if more:
                return source.again()._start(more)
            made = sessions.start_optimised(
                found.optimised,
                starter.options(found.packing),
                lambda model, options: starter.create(model, options, found.disabled),
                shared,
            )
            return made, (found.weights, shared)

        return Model(found.name, start, found.inputs, found.outputs, whole=source.again)
    except Exception:  # whatever is wrong with what was kept
        return None


def _entry(source: Source) -> Entry | None:
    """Return what was kept; None where nothing was, or what was is damaged."""
    found = None if source.key is None else source.cache.find(source.key, "start")
    if found is None:
        return None
    entry = json.loads(found)
    optimised = source.cache.find(entry["optimised"])
    if optimised is None:
        return None
    return Entry(
        entry["name"],
        {name: _read(type_) for name, type_ in entry["inputs"]},
        {name: _read(type_) for name, type_ in entry["outputs"]},
        optimised,
        source.arrays(entry["weights"]),
        tuple(entry["disabled"]),
        entry["packing"],
    )


@functools.cache
def code() -> str:
    """Return what tells this version of the library's code from others: when its files were written."""
    found = []
    for root in sorted({FOLDER, _ROOMS}):
        for folder, _, files in os.walk(root, followlinks=True):
            for file in files:
                if file.endswith((".py", ".json")):
                    stat = os.stat(os.path.join(folder, file))
                    found.append((os.path.join(folder, file), stat.st_size, stat.st_mtime_ns))
    return repr(sorted(found))


def _written(type_: Type) -> list[Any]:
    assert isinstance(type_, TensorType)
    dims = [None if d.is_dynamic else str(d) for d in type_.shape] if type_.shape.is_ranked else None
    return [type_.dtype.name, dims]


def _read(written: list[Any]) -> TensorType:
    dtype, dims = written
    if dims is None:
        return TensorType(DType.of(dtype), Shape.unknown())
    return TensorType(DType.of(dtype), [_dim(dim) for dim in dims])


def _dim(text: str | None) -> Dim:
    if text is None:
        return Dim.dynamic()
    return Dim(int(text)) if text.isdecimal() else Dim(text)


def _is_same(own: Array, loaded: Array) -> bool:
    """Return whether two arrays are the same, bit for bit."""
    if own.dtype != loaded.dtype or own.shape != loaded.shape:
        return False
    if own.ctypes.data == loaded.ctypes.data:
        return True
    first, second = (a.reshape(-1).view(np.uint8) for a in (own, loaded))
    return all(np.array_equal(first[i : i + _STEP], second[i : i + _STEP]) for i in range(0, first.size, _STEP))


__all__ = ["Entry", "WarmStart", "code", "started"]
