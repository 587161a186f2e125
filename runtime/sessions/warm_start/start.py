"""Warm starts: loads that neither read a file nor lower a graph, because the first load stored an entry.

An entry has the names and types of inputs, outputs and buffers, and the weights of the optimised graph by name. It is
found by the cache key of the source, see `keys` and `files`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import onnxruntime

from graphcore._version import FOLDER, PACKAGES
from graphcore.arrays.casting import Array
from graphcore.errors import GraphcoreError, GraphError
from graphcore.ir.buffers import Buffer
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import present
from graphcore.runtime.buffers.state import Growth, ModelBuffer
from graphcore.runtime.model import Model
from graphcore.runtime.ort import sessions
from graphcore.runtime.ort.memory import released
from graphcore.runtime.ort.optimised_cache import CacheFolder, PreparedFile
from graphcore.runtime.ort.options import SessionStarter, require_started
from graphcore.runtime.ort.transport_dtypes import to_ort
from graphcore.runtime.sessions.plan import Engine, LoadOptions
from graphcore.runtime.sessions.warm_start.keys import GraphSource, Source, StampedSource, source_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type

if TYPE_CHECKING:
    from graphcore.onnx.proto.opened import Opened

_MIN_PREPARED_BYTES = 1 << 20
"""The file beside a model is written for weights of at least this many bytes."""

_MIN_REFERRED = 4
"""It is not written if these are less than this many times as large as the optimised graph with all other weights."""

_COMPARED_BYTES = 1 << 24
"""Weights are compared in pieces of this many bytes."""


class WarmStart:
    """A load with a folder of cache entries: finds the Model of an earlier load, or stores an entry for later loads."""

    def __init__(
        self, folder: str | os.PathLike[str], engine: Engine, options: LoadOptions, is_file: bool = False
    ) -> None:
        """folder: of the entries; only loads with a cache_dir write to it. is_file: whether it is a `PreparedFile`,
        which is found by the stamps of the model's files, and not by a digest of their content, which is known to
        whoever made them."""
        self._folder = folder
        self._engine = engine
        self._options = options
        self._is_file = is_file
        self._opened: Opened | None = None
        self._source: Source | None = None
        self._stamped: StampedSource | None = None

    def cache(self, *parts: object) -> CacheFolder | None:
        """Return the folder of optimised graphs; None for providers other than the CPU's. parts: of the cache key.

        Raises `ModelError` for a folder that cannot be written to, and `GraphError` if an option names another file.
        """
        starter, writes = self._engine.starter, self._options.cache_dir is not None
        if "optimized_model_filepath" in starter.attributes:
            if not writes:
                return None
            raise GraphError(
                "load: cache_dir and the option optimized_model_filepath both say where the optimised graph is written",
                help="omit one of them",
            )
        lowering = self._engine.precision, self._engine.optimize, self._options.has_all_rows
        key_parts = starter.providers, starter.provider_options, *lowering, starter.entries(), *parts
        if self._is_file:
            cache: CacheFolder = PreparedFile(self._folder, key_parts, self._opened)
        else:
            cache = CacheFolder(self._folder, key_parts, writes)
            cache.is_whole = self._stamped is not None
        return cache if self._engine.is_cpu else None

    def find(self, model: object, load: Callable[[], Model], grow: Callable[[], Model]) -> Model | None:
        """Return the Model of an earlier load; None if there was none, or the model cannot be identified.

        load: loads the model without a cache. grow: loads the model with a session for all calls. Raises as `cache`.
        """
        cache = self.cache(self._options.prepack, code())
        if cache is None:
            return None
        starter, links = self._engine.starter, self._options.links
        if isinstance(model, Graph):
            self._source = source_of(GraphSource, cache, model)
            return started(self._source, starter, load, grow)
        self._stamped = source_of(StampedSource, cache, model, links)
        cached = started(self._stamped, starter, load, grow)
        if cached is not None or self._is_file:
            return cached
        # imports onnx, which takes as long as starting a small Graph from its entry
        from graphcore.runtime.sessions.warm_start import files

        self._source = source = source_of(files.FileSource, cache, model, links)
        cached = started(source, starter, load, grow)
        if cached is not None and source is not None and self._stamped is not None:
            with contextlib.suppress(Exception):  # the file may have changed since it was read
                self._stamped.keep(source.entry() or {}, source.locations)
        return cached

    def writing(self, opened: Opened) -> Self | None:
        """Return this to write its `PreparedFile`; None if that is not possible. opened: the model that was read."""
        self._opened = opened
        cache = self.cache(self._options.prepack, code())
        self._source = self._stamped = source_of(StampedSource, cache, opened.path, self._options.links)
        folder = os.path.dirname(os.path.abspath(self._folder))
        return self if cache is not None and self._stamped is not None and os.access(folder, os.W_OK) else None

    def keep(self, model: Model, cache: CacheFolder, packing: Mapping[str, str]) -> None:
        """Store an entry for later loads, if it can describe the model. cache: has the optimised graph of the model."""
        source = self._source
        types = [type_ for ends in model._types for type_ in ends.values()]
        plain = all(isinstance(t, TensorType) and not t.ambiguous for t in types)
        if source is None or cache.used is None or not source.is_settled or not plain:
            return
        if model._uses_transport or not all(map(_is_small, model._model_buffers)):
            return
        if self._stamped is not None and not self._stamped.is_unchanged():  # the file changed after it was read
            return
        references: Any = model._keep
        (large, shared), _ = references
        referred: dict[str, Array] = {name: large[name] for name in shared}
        growth = None if model._program is None else model._program.growth
        weights = (
            _names(referred, source, model.name)
            if self._opened is None
            else _places(referred, self._opened, len(cache.model))
        )
        if weights is None:
            return
        entry = {
            "name": model.name,
            "types": [[(name, _type_to_json(type_)) for name, type_ in types.items()] for types in model._types],
            "weights": weights,
            "defaults": [*model._input_defaults],
            "optimised": cache.used,
            "buffers": [_buffer_to_json(buffer) for buffer in model._model_buffers],
            "packing": packing,
            "many": None if growth is None else [str(growth.rows), growth.least],
        }
        if self._opened is None:
            source.cache.save(source.key, json.dumps(entry).encode(), "start")
        if self._stamped is not None:
            locations = source.locations if self._opened is None else [*self._opened.folder.files]
            self._stamped.keep(entry, locations, cache.model)


def _names(weights: Mapping[str, Array], source: Source, model: str) -> Sequence[object] | None:
    """Return the names of weights for an entry; None if it cannot have them. model: the name of the model."""
    try:
        originals = source.arrays([*weights])
    except (GraphcoreError, KeyError):  # lowering created some of them
        return None
    is_same = source.name == model and all(_is_same(originals[name], array) for name, array in weights.items())
    return [*weights] if is_same else None


def _places(weights: Mapping[str, Array], opened: Opened, size: int) -> Sequence[object] | None:
    """Return the places of weights in files of the model, for a `PreparedFile`; None if it does not pay, or the model
    has changed. size: of the optimised graph."""
    if sum(array.nbytes for array in weights.values()) < max(_MIN_PREPARED_BYTES, _MIN_REFERRED * size):
        return None
    places = [
        (name, *present(opened.place(array)), DType.of(array.dtype).name, array.shape)
        for name, array in weights.items()
    ]
    return places if opened.is_unchanged() else None


def started(
    source: Source | None, starter: SessionStarter, load: Callable[[], Model], grow: Callable[[], Model]
) -> Model | None:
    """Return the Model of a source from its cache entry; None if the source must be loaded again, by `load`.

    grow: loads it with a session for all calls.
    """
    if source is None:
        return None

    def unchanged(load: Callable[[], Model]) -> Model:
        source.check()
        return load()

    try:
        entry = source.entry()
        optimised = None if entry is None else source.cache.find_optimised(entry["optimised"])
        if entry is None or optimised is None:
            return None
        inputs, outputs = ({name: _type_from_json(type_) for name, type_ in types} for types in entry["types"])
        many, buffers = entry["many"], tuple(map(_buffer_from_json, entry["buffers"]))
        has_large_pages = any(buffer.declaration.in_place for buffer in buffers)
        weights = source.arrays(entry["weights"])
        shared = {name: to_ort(array, DType.of(array.dtype)) for name, array in weights.items()}

        def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            if more:
                return unchanged(load)._start(more)
            with released(weights.values()):
                session = sessions.start_optimised(
                    optimised,
                    starter.options(entry["packing"]),
                    # No optimiser runs, so that none is disabled.
                    lambda model, options: starter.create(model, options, (), runs_often=has_large_pages),
                    shared,
                )
            require_started(session, starter.providers, starter.selection)
            return session, (weights, shared)

        return Model(
            entry["name"],
            start,
            inputs,
            outputs,
            buffers=buffers,
            load_full=functools.partial(unchanged, load),
            defaults=dict.fromkeys(entry["defaults"]),
            growth=None if many is None else Growth(Dim(many[0]), many[1], functools.partial(unchanged, grow)),
        )
    except Exception:  # any fault of the entry
        return None


@functools.cache
def code() -> str:
    """Return a digest that identifies this version of the library's code, by the times of its files."""
    roots = (FOLDER, *(folder for folder in PACKAGES.values() if not folder.startswith(FOLDER + os.sep)))
    files = repr(sorted(file for root in roots for file in _files(root)))
    return hashlib.sha256(files.encode("utf-8", "backslashreplace")).hexdigest()


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield the code files below a folder, with their sizes and times of modification. Follows links."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".json")):
                stat = entry.stat()
                yield entry.path, stat.st_size, stat.st_mtime_ns
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield from _files(entry.path)


def _type_to_json(type_: Type) -> list[Any]:
    assert isinstance(type_, TensorType)
    dims = [int(d) if d.is_static else str(d) for d in type_.shape] if type_.shape.is_ranked else None
    return [type_.dtype.name, dims]


def _type_from_json(written: list[Any]) -> TensorType:
    dtype, dims = written
    return TensorType(DType.of(dtype), Shape.unknown() if dims is None else dims)


_MAX_INITIAL_BYTES = 4096
"""Entries contain initial values of buffers of up to this many bytes."""


def _is_small(buffer: ModelBuffer) -> bool:
    initial = buffer.declaration.initial
    return initial is None or (initial.nbytes <= _MAX_INITIAL_BYTES and initial.dtype != object)


def _buffer_to_json(buffer: ModelBuffer) -> dict[str, Any]:
    declared, initial = buffer.declaration, buffer.declaration.initial
    content = None if initial is None else (initial.shape, initial.tobytes().hex())
    place = buffer.output, buffer.keeps_shape, buffer.in_place
    return {"name": buffer.name, "declared": (_type_to_json(buffer.type), content, declared.in_place), "place": place}


def _buffer_from_json(written: Mapping[str, Any]) -> ModelBuffer:
    written_type, initial, in_place = written["declared"]
    type_ = _type_from_json(written_type)
    if initial is not None:
        shape, content = initial
        initial = np.frombuffer(bytes.fromhex(content), type_.dtype.numpy).reshape(shape)
    buffer = Buffer(type_.dtype, type_.shape, initial=initial, in_place=in_place)
    return ModelBuffer(written["name"], buffer, *written["place"])


def _is_same(original: Array, loaded: Array) -> bool:
    """Return True if two arrays are the same, bit for bit."""
    if original.dtype != loaded.dtype or original.shape != loaded.shape:
        return False
    if original.ctypes.data == loaded.ctypes.data:
        return True
    first, second = (a.reshape(-1).view(np.uint8) for a in (original, loaded))
    return all(
        np.array_equal(first[i : i + _COMPARED_BYTES], second[i : i + _COMPARED_BYTES])
        for i in range(0, first.size, _COMPARED_BYTES)
    )
