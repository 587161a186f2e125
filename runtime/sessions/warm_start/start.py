"""Warm starts: loads that neither read a file nor lower a graph, since the first one kept what it found out.

An entry says how the inputs, outputs and buffers are called and typed, and which weights go to which names of the
optimised graph. It is found by the cache key of what is loaded, see `keys` and `files`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from graphcore._version import FOLDER
from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import Links
from graphcore.errors import GraphcoreError, GraphError
from graphcore.ir.buffers import Buffer
from graphcore.ir.graph import Graph
from graphcore.runtime.buffers.state import Kept
from graphcore.runtime.model import Model
from graphcore.runtime.ort import sessions
from graphcore.runtime.ort.options import Starter
from graphcore.runtime.ort.transport_dtypes import to_ort
from graphcore.runtime.sessions.warm_start.cache import Cache, Optimised
from graphcore.runtime.sessions.warm_start.keys import Source, StampedSource, graph_source, stamped_source
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type

_ROOMS = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
"""The folder that has the room `runtime`: the package's own, but for a checkout without symlinks."""

_STEP = 1 << 24
"""Bytes of a weight that are compared at once."""


class WarmStart:
    """One load with a folder of cache entries: finds the Model of an earlier load, or keeps what a later one needs."""

    def __init__(
        self, folder: str | os.PathLike[str], starter: Starter, lowering: Sequence[object], writes: bool = True
    ) -> None:
        """lowering: what decides, beside the target, how graphs are lowered. writes: False where the folder is looked
        into alone."""
        self._folder = folder
        self._writes = writes
        self._starter = starter
        self._lowering = lowering
        self._source: Source | None = None
        self._stamped: StampedSource | None = None
        self._locations: list[str] = []

    def cache(self, *parts: object) -> Cache | None:
        """Return where optimised graphs are kept: on the CPU, where it was tried. parts: of the cache key.

        Raises `ModelError` for a folder that cannot be written to, and `GraphError` where an option names another one.
        """
        starter = self._starter
        if "optimized_model_filepath" in starter.attributes:
            if not self._writes:
                return None
            raise GraphError(
                "load: with cache_dir the optimised graph goes there, and the option optimized_model_filepath says"
                " another place",
                help="leave one of them out",
            )
        options = starter.entries()
        known = starter.providers, starter.provider_options, *self._lowering, options, *parts
        made = Cache(self._folder, known, self._writes)
        made.is_whole = self._stamped is not None
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
            return None if self._source is None else started(self._source, self._starter)
        self._stamped = stamped_source(cache, model, load, links)
        if self._stamped is not None:
            found = started(self._stamped, self._starter)
            if found is not None:
                return found
        # onnx, which takes as long as starting a small Graph from its entry
        from graphcore.runtime.sessions.warm_start.files import file_source

        self._source = file = file_source(cache, model, load, links)
        if file is None:
            return None
        self._locations = file.locations
        found = started(file, self._starter)
        if found is not None and self._stamped is not None:
            with contextlib.suppress(Exception):  # it was read a moment ago
                self._stamped.keep(file.entry() or {}, file.locations)
        return found

    def keep(self, model: Model, cache: Cache, packing: Mapping[str, str]) -> None:
        """Keep what a later load needs, where that is all. model: what was loaded. cache: has its optimised graph."""
        source = self._source
        types = (*model._types[0].values(), *model._types[1].values())
        plain = all(isinstance(t, TensorType) and not t.ambiguous for t in types)
        if source is None or source.key is None or cache.used is None or not source.is_settled or not plain:
            return
        if model._restored or source.name != model.name or not all(map(_is_small, model._kept)):
            return
        if self._stamped is not None and not self._stamped.is_unchanged():  # the file that was read is another one
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
            "buffers": [_written_buffer(held) for held in model._kept],
            "packing": packing,
            # Weights that are mapped are not gathered: see `huge_pages`.
            "in large pages": any(held.buffer.in_place for held in model._kept) and not cache.is_packed,
        }
        source.cache.save(source.key, json.dumps(entry).encode(), "start")
        if self._stamped is not None:
            self._stamped.keep(entry, self._locations)


@dataclass(frozen=True, slots=True)
class Entry:
    """The parts that a Model is started from. weights: of the source, by their names in the optimised graph."""

    name: str
    inputs: dict[str, Type]
    outputs: dict[str, Type]
    optimised: Optimised
    weights: dict[str, Array]
    buffers: tuple[Kept, ...]
    packing: dict[str, str]
    in_large_pages: bool


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
                # No optimiser is left out, since none is at work.
                lambda model, options: starter.create(model, options, (), runs_often=found.in_large_pages),
                shared,
            )
            return made, (found.weights, shared)

        return Model(found.name, start, found.inputs, found.outputs, kept=found.buffers, whole=source.again)
    except Exception:  # whatever is wrong with what was kept
        return None


def _entry(source: Source) -> Entry | None:
    """Return what was kept; None where nothing was, or what was is damaged."""
    entry = source.entry()
    if entry is None:
        return None
    optimised = source.cache.find_optimised(entry["optimised"])
    if optimised is None:
        return None
    return Entry(
        entry["name"],
        {name: _read(type_) for name, type_ in entry["inputs"]},
        {name: _read(type_) for name, type_ in entry["outputs"]},
        optimised,
        source.arrays(entry["weights"]),
        tuple(_read_buffer(held) for held in entry["buffers"]),
        entry["packing"],
        entry["in large pages"],
    )


@functools.cache
def code() -> str:
    """Return what tells this version of the library's code from others: when its files were written."""
    found = repr(sorted({file for root in {FOLDER, _ROOMS} for file in _files(root)}))
    return hashlib.sha256(found.encode("utf-8", "backslashreplace")).hexdigest()


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield the files of code below a folder, with their sizes and when they were written. Links are followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".json")):
                stat = entry.stat()
                yield entry.path, stat.st_size, stat.st_mtime_ns
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield from _files(entry.path)


def _written(type_: Type) -> list[Any]:
    assert isinstance(type_, TensorType)
    dims = [None if d.is_dynamic else str(d) for d in type_.shape] if type_.shape.is_ranked else None
    return [type_.dtype.name, dims]


def _read(written: list[Any]) -> TensorType:
    dtype, dims = written
    if dims is None:
        return TensorType(DType.of(dtype), Shape.unknown())
    return TensorType(DType.of(dtype), [_dim(dim) for dim in dims])


_MOST_INITIAL = 4096
"""Bytes of the largest initial value of a buffer that an entry has."""


def _is_small(kept: Kept) -> bool:
    initial = kept.buffer.initial
    return initial is None or (initial.nbytes <= _MOST_INITIAL and initial.dtype != object)


def _written_buffer(kept: Kept) -> dict[str, Any]:
    initial = kept.buffer.initial
    return {
        "name": kept.name,
        "type": _written(kept.type),
        "declared in place": kept.buffer.in_place,
        "initial": None if initial is None else [list(initial.shape), initial.tobytes().hex()],
        "output": kept.output,
        "keeps shape": kept.keeps_shape,
        "in place": kept.in_place,
    }


def _read_buffer(written: Mapping[str, Any]) -> Kept:
    type_, initial = _read(written["type"]), written["initial"]
    if initial is not None:
        shape, content = initial
        initial = np.frombuffer(bytes.fromhex(content), type_.dtype.numpy).reshape(shape)
    buffer = Buffer(type_.dtype, type_.shape, initial=initial, in_place=written["declared in place"])
    return Kept(written["name"], buffer, written["output"], written["keeps shape"], written["in place"])


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
