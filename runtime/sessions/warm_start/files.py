"""Model files as sources of a warm start, and the cache keys of what they hold.

A key follows from the content of the file and, of weights beyond `HASHED` bytes, from which file they lie in and
when that was written. Apart from `keys`, since this imports onnx, which takes as long as starting a small graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import onnx

from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import Links
from graphcore.errors import ModelError
from graphcore.onnx.proto.tensors import align, array_of
from graphcore.onnx.proto.value_protos import split
from graphcore.onnx.read.reader import _content
from graphcore.runtime.model import Model
from graphcore.runtime.sessions.warm_start.cache import Cache
from graphcore.runtime.sessions.warm_start.keys import DOMAINS, HASHED, kept_of, stamp_of


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
        self.locations: list[str] = []
        """The files beside it, by their paths in its folder."""
        parts = self._identity(slim, path)
        self.key = None if parts is None else cache.digest(b"file", *parts)

    def entry(self) -> dict[str, Any] | None:
        """Return what an earlier load kept; None where nothing was."""
        return kept_of(self.cache, self.key)

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
                align([array_of(tensors[i], self._folder, self._large.initializers.get(i))[0] for i in found]),
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
        # What a custom operator is Python says. Files name domains that no node is of.
        imported = {o.domain for o in self._proto.opset_import} - DOMAINS
        if imported and not imported.isdisjoint(_domains(self._proto.graph.node)):
            return None
        files = self.locations = list(dict.fromkeys(locations))
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
        stamp, is_settled = stamp_of(path)
        self.is_settled &= is_settled
        return stamp.encode("utf-8", "surrogateescape")


def _domains(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the domains of nodes and of those in their bodies."""
    for node in nodes:
        yield node.domain
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _domains(body.node)


def file_source(
    cache: Cache, model: object, load: Callable[[], Model], links: Links | None = None
) -> FileSource | None:
    """Return the source of a warm start; None for what is damaged, which reading it says better."""
    try:
        found = FileSource(cache, model, load, links)
    except Exception:
        return None
    return None if found.key is None else found
