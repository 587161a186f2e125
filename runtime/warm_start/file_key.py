"""Model files as sources of a warm start, and the cache keys of what they hold.

A key follows from the content of the file and, of weights beyond `HASHED` bytes, from which file they lie in and when
that was written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import onnx

from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import Links
from graphcore.errors import ModelError
from graphcore.onnx import notes
from graphcore.onnx.proto.split_weights import split
from graphcore.onnx.proto.tensors import aligned, array_of
from graphcore.onnx.read.reader import _content
from graphcore.runtime.model import Model
from graphcore.runtime.warm_start.cache import Cache
from graphcore.runtime.warm_start.source import DOMAINS, HASHED

_SETTLED = 2.0
"""Seconds after which a file that is written again has another time of writing on every file system."""


class FileSource:
    """A model as its file has it: a `Source`."""

    def __init__(self, cache: Cache, model: object, load: Callable[[], Model], links: Links | None) -> None:
        """load: loads the model without a cache. links: which links to its data may be followed."""
        content, folder, _ = _content(model, links)
        path = os.fsdecode(model) if isinstance(model, (str, os.PathLike)) else None
        self._model: Any = model
        self._load = load
        self._links = links
        slim, self._large = split(content)
        self._proto = onnx.ModelProto.FromString(slim)
        self._folder = folder
        self.cache = cache
        self.name = self._proto.graph.name
        self.is_settled = True
        parts = self._identity(slim, path)
        self.key = None if parts is None else cache.digest(b"file", *parts)

    def again(self) -> Model:
        """Load all of the file. Raises `ModelError` where it is another one by now."""
        now = file_source(self.cache, self._model, self._load, self._links)
        if now is None or now.key != self.key:
            raise ModelError(f"load: the file of {self.name} was changed since it was loaded", help="load it again")
        return self._load()

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Return weights of the file by name, where they lie. Raises `KeyError` and what reading a tensor raises."""
        places = {tensor.name: place for place, tensor in enumerate(self._proto.graph.initializer)}
        found = [places[name] for name in names]
        tensors = self._proto.graph.initializer
        return dict(
            zip(
                names,
                aligned([array_of(tensors[i], self._folder, self._large.initializers.get(i))[0] for i in found]),
                strict=True,
            )
        )

    def _identity(self, slim: bytes, path: str | None) -> list[bytes | memoryview] | None:
        """Return what tells this model from others; None where that cannot be told."""
        locations = []
        for tensor in self._proto.graph.initializer:
            locations += [entry.value for entry in tensor.external_data if entry.key == "location"]
        if slim.count(b"\n\x08location") != len(locations):  # some lie elsewhere: in bodies, or in attributes
            return None
        if any(o.domain not in DOMAINS for o in self._proto.opset_import):  # what a custom operator is Python says
            return None
        files = list(dict.fromkeys(locations))
        contents = [self._folder.content(location.replace(os.sep, "/"), "a tensor") for location in files]
        within, beside = sum(map(len, self._large.contents)), sum(map(len, contents))
        parts: list[bytes | memoryview] = [slim]
        if within <= HASHED:
            parts += self._large.contents
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


def file_source(
    cache: Cache, model: object, load: Callable[[], Model], links: Links | None = None
) -> FileSource | None:
    """Return the source of a warm start; None for what is damaged, which reading it says better, or has buffers."""
    try:
        found = FileSource(cache, model, load, links)
    except Exception:
        return None
    properties = notes.read({p.key: p.value for p in found._proto.metadata_props})
    return None if found.key is None or notes.BUFFERS in properties else found


__all__ = ["FileSource", "file_source"]
