"""Model files as sources of a warm start, and cache keys of their content.

A key is a digest of the content of the file; for weights of more than `HASHED` bytes, of the path and the time of their
file. Separate from `keys`, because this module imports onnx, which takes as long as starting a small graph.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import onnx

from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import Links
from graphcore.onnx.proto.messages import nested
from graphcore.onnx.proto.opened import content_of
from graphcore.onnx.proto.tensors import align, array_of
from graphcore.onnx.proto.value_protos import split
from graphcore.runtime.ort.optimised_cache import CacheFolder
from graphcore.runtime.sessions.warm_start.keys import DOMAINS, HASHED, Source, source_of, stamp_of


class FileSource(Source):
    """A model file, identified by its content."""

    def __init__(self, cache: CacheFolder, model: object, links: Links | None) -> None:
        """links: links to its data that may be followed."""
        content, folder, _ = content_of(model, links)
        path = os.fsdecode(model) if isinstance(model, (str, os.PathLike)) else None
        self._arguments = cache, model, links
        slim, self._large = split(content)
        self._proto = onnx.ModelProto.FromString(slim)
        self._folder = folder
        super().__init__(cache, self._proto.graph.name)
        parts = self._identity(slim, path)
        self.key = cache.digest(b"file", *parts) if parts else ""

    def is_unchanged(self) -> bool:
        """Return True if the file has the same content."""
        now = source_of(FileSource, *self._arguments)
        return now is not None and now.key == self.key

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Return weights of the file by name, without copies. Raises `KeyError`, and errors of reading a tensor."""
        tensors = {tensor.name: (i, tensor) for i, tensor in enumerate(self._proto.graph.initializer)}
        contents = self._large.initializers
        arrays = [array_of(t, self._folder, contents.get(i))[0] for i, t in map(tensors.__getitem__, names)]
        return dict(zip(names, align(arrays), strict=True))

    def _identity(self, slim: bytes, path: str | None) -> list[bytes | memoryview]:
        """Return the bytes that identify this model; none if it cannot be identified."""
        data = [entry for tensor in self._proto.graph.initializer for entry in tensor.external_data]
        locations = [entry.value for entry in data if entry.key == "location"]
        if slim.count(b"\n\x08location") != len(locations):  # bodies or attributes have external data too
            return []
        # Python defines custom operators. Files may import domains that no node uses.
        imported = {o.domain for o in self._proto.opset_import} - DOMAINS
        if imported and any(node.domain in imported for graph in nested(self._proto.graph) for node in graph.node):
            return []
        self.locations = list(dict.fromkeys(locations))
        contents = [self._folder.content(location.replace(os.sep, "/"), "a tensor") for location in self.locations]
        within, beside = sum(map(len, self._large.contents)), sum(map(len, contents))
        parts: list[bytes | memoryview] = [slim]
        if within <= HASHED:
            parts += self._large.contents
        elif path is None:
            return []
        else:
            parts.append(self._stamp(path))
        if beside <= HASHED:
            return parts + contents
        assert path is not None  # it has external data
        return parts + [self._stamp(os.path.join(os.path.dirname(os.path.abspath(path)), f)) for f in self.locations]

    def _stamp(self, path: str) -> bytes:
        stamp, is_settled = stamp_of(path)
        self.is_settled &= is_settled
        return stamp.encode("utf-8", "surrogateescape")
