"""Second starts that neither read a file nor lower a graph: what the first one found out is kept.

An entry says how the inputs and outputs are called and typed, and which weights go to which names of the optimised
graph. It is found by the content of the file or of the graph and, of weights of files beyond `HASHED` bytes, by which
file they lie in and when that was written.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnxruntime

from graphcore.arrays.casting import Array
from graphcore.errors import GraphcoreError, ModelError
from graphcore.ir import buffers
from graphcore.onnx import notes
from graphcore.onnx.proto.split_weights import split
from graphcore.runtime.memory.prepacking import Prepack
from graphcore.runtime.model import Model
from graphcore.runtime.ort import sessions
from graphcore.runtime.ort.values import to_ort
from graphcore.runtime.warm_start.cache import Cache
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type

if TYPE_CHECKING:
    from graphcore.runtime.session import InferenceSession

HASHED = 64 << 20
"""Bytes of weights up to which they are read to see whether they are the same."""

_SETTLED = 2.0
"""Seconds after which a file that is written again has another time of writing on every file system."""

_STEP = 1 << 24
"""Bytes of a weight that are compared at once."""

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Of the operators whose meaning no program changes."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a restarted Model begins with."""

    name: str
    inputs: dict[str, Type]
    outputs: dict[str, Type]
    optimised: bytes
    weights: dict[str, Array]
    disabled: tuple[str, ...]
    packing: dict[str, str]


class Source(Protocol):
    """What is loaded, before it is read and lowered. key: of its entry in the cache, None for one that has none. name:
    what errors call it. is_settled: whether what is written from now on would have another key."""

    cache: Cache
    key: str | None
    name: str
    is_settled: bool

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Its weights by name, where they lie. Raises `KeyError` where it has none of that name."""

    def again(self, session: InferenceSession, prepack: Prepack) -> Model:
        """Loads it with all there is, for what needs its graph. Raises an error where it has changed."""


class File:
    """A model as its file has it: a `Source`."""

    def __init__(self, cache: Cache, model: object) -> None:
        import onnx

        from graphcore.onnx.read.reader import _content

        content, folder, _ = _content(model)
        path = os.fsdecode(model) if isinstance(model, (str, os.PathLike)) else None
        self._model: Any = model
        slim, self._large = split(content)
        self._proto = onnx.ModelProto.FromString(slim)
        self._folder = folder
        self.cache = cache
        self.name = self._proto.graph.name
        self.is_settled = True
        parts = self._identity(slim, path)
        self.key = None if parts is None else cache.digest(b"file", *parts)

    def again(self, session: InferenceSession, prepack: Prepack) -> Model:
        """Loads the file all the same. Raises `ModelError` where it is another one by now."""
        now = file_of(self.cache, self._model)
        if now is None or now.key != self.key:
            raise ModelError(f"load: the file of {self.name} was changed since it was loaded", help="load it again")
        return session.load(self._model, prepack=prepack)

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Weights of the file by name, where they lie. Raises `KeyError` and what reading a tensor raises."""
        from graphcore.onnx.proto.tensors import aligned, array_of

        places = {tensor.name: place for place, tensor in enumerate(self._proto.graph.initializer)}
        found = [places[name] for name in names]
        tensors = self._proto.graph.initializer
        return dict(
            zip(names, aligned([array_of(tensors[i], self._folder, self._large.get(i))[0] for i in found]), strict=True)
        )

    def _identity(self, slim: bytes, path: str | None) -> list[bytes | memoryview] | None:
        """What tells this model from others; None where that cannot be told."""
        locations = []
        for tensor in self._proto.graph.initializer:
            locations += [entry.value for entry in tensor.external_data if entry.key == "location"]
        if slim.count(b"\n\x08location") != len(locations):  # some lie elsewhere: in bodies, or in attributes
            return None
        if any(o.domain not in DOMAINS for o in self._proto.opset_import):  # what a custom operator is Python says
            return None
        files = list(dict.fromkeys(locations))
        contents = [self._folder.content(location.replace(os.sep, "/"), "a tensor") for location in files]
        within, beside = sum(map(len, self._large.values())), sum(map(len, contents))
        parts: list[bytes | memoryview] = [slim]
        if within <= HASHED:
            parts += self._large.values()
        elif path is None:
            return None
        else:
            parts.append(self._stamp(path))
        if beside <= HASHED:
            return parts + contents
        assert path is not None  # there are files beside it
        return parts + [self._stamp(os.path.join(os.path.dirname(os.path.abspath(path)), f)) for f in files]

    def _stamp(self, path: str) -> bytes:
        found = os.stat(path)
        self.is_settled &= time.time() - max(found.st_mtime, found.st_ctime) > _SETTLED
        times = found.st_size, found.st_mtime_ns, found.st_ctime_ns
        return repr((os.path.realpath(path), found.st_dev, found.st_ino, *times)).encode("utf-8", "surrogateescape")


def file_of(cache: Cache, model: object) -> File | None:
    """A model that can be restarted; None for what is damaged, which reading it says better, or has buffers."""
    try:
        found = File(cache, model)
    except Exception:
        return None
    properties = notes.read({p.key: p.value for p in found._proto.metadata_props})
    return None if found.key is None or buffers.NOTE in properties else found


def restarted(source: Source, session: InferenceSession, prepack: Prepack) -> Model | None:
    """The Model of what was loaded before; None where that is to be done again."""
    try:
        found = _found(source)
        if found is None:
            return None
        shared = {name: to_ort(array, DType.of(array.dtype)) for name, array in found.weights.items()}

        def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            if more:
                return source.again(session, prepack)._start(more)
            options = session._session_options(found.packing)
            made = sessions.restarted(
                found.optimised, options, lambda model, options: session._create(model, options, found.disabled), shared
            )
            return made, (found.weights, shared)

        whole = functools.partial(source.again, session, prepack)
        return Model(found.name, start, found.inputs, found.outputs, whole=whole)
    except Exception:  # whatever is wrong with what was kept
        return None


def _found(source: Source) -> Start | None:
    """What was kept; None where nothing was, or what was is damaged."""
    found = None if source.key is None else source.cache.find(source.key, "start")
    if found is None:
        return None
    said = json.loads(found)
    optimised = source.cache.find(said["optimised"])
    if optimised is None:
        return None
    return Start(
        said["name"],
        {name: _read(type_) for name, type_ in said["inputs"]},
        {name: _read(type_) for name, type_ in said["outputs"]},
        optimised,
        source.arrays(said["weights"]),
        tuple(said["disabled"]),
        said["packing"],
    )


def keep(source: Source, model: Model, cache: Cache, disabled: Sequence[str], packing: Mapping[str, str]) -> None:
    """Keeps what a restart needs, where that is all. model: what was loaded. cache: what has its optimised graph."""
    types = (*model._types[0].values(), *model._types[1].values())
    plain = all(isinstance(t, TensorType) and not t.ambiguous for t in types)
    if source.key is None or not source.is_settled or not plain or model._kept or model._restored:
        return
    if source.name != model.name:
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
    said = {
        "name": model.name,
        "inputs": [(name, _written(type_)) for name, type_ in model._types[0].items()],
        "outputs": [(name, _written(type_)) for name, type_ in model._types[1].items()],
        "weights": [*weights],
        "optimised": cache.used,
        "disabled": disabled,
        "packing": packing,
    }
    source.cache.save(source.key, json.dumps(said).encode(), "start")


@functools.cache
def code() -> str:
    """What tells this version of the library's code from others: when its files were written."""
    import graphcore

    found = []
    for root in graphcore.__path__:
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


def _read(said: list[Any]) -> TensorType:
    dtype, dims = said
    if dims is None:
        return TensorType(DType.of(dtype), Shape.unknown())
    return TensorType(DType.of(dtype), [_dim(dim) for dim in dims])


def _dim(text: str | None) -> Dim:
    if text is None:
        return Dim.dynamic()
    return Dim(int(text)) if text.isdecimal() else Dim(text)


def _is_same(own: Array, loaded: Array) -> bool:
    """Whether two arrays are the same, bit for bit."""
    if own.dtype != loaded.dtype or own.shape != loaded.shape:
        return False
    if own.ctypes.data == loaded.ctypes.data:
        return True
    first, second = (a.reshape(-1).view(np.uint8) for a in (own, loaded))
    return all(np.array_equal(first[i : i + _STEP], second[i : i + _STEP]) for i in range(0, first.size, _STEP))


__all__ = ["DOMAINS", "HASHED", "File", "Source", "Start", "code", "file_of", "keep", "restarted"]
