"""Keys of warm starts, which identify a file or a graph."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import Folder, Links, model_bytes
from graphcore.errors import GraphError, ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.state import open_expressions
from graphcore.ir.symbol import Constant, Node
from graphcore.runtime.ort.optimised_cache import CacheFolder
from graphcore.runtime.sessions.warm_start.prepared import SETTLED
from graphcore.support.gc_pause import uncollected
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Type

S = TypeVar("S", bound="Source")

# Sources of warm starts: loaded graphs and files, identified by a cache key.

HASHED = 64 << 20
"""Weights of up to this many bytes are read and hashed."""

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Domains of operators whose meaning is fixed."""


class Source:
    """A graph or a file to load, before it is read and lowered.

    key: of its entry in the cache, "" if it cannot have one. name: for error messages. is_settled: whether a file that
    is written from now on would have another key. locations: the files of its external data, by their paths in its
    folder.
    """

    key = ""
    is_settled = True
    locations: Sequence[str] = ()

    def __init__(self, cache: CacheFolder, name: str) -> None:
        self.cache = cache
        self.name = name

    def entry(self) -> dict[str, Any] | None:
        """Return the entry that an earlier load stored; None if there is none. Raises `ValueError` if it is damaged."""
        content = self.cache.find(self.key, "start")
        entry: dict[str, Any] | None = None if content is None else json.loads(content)
        return entry

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Return its weights by name, without copies. Raises `KeyError` for an unknown name."""
        raise NotImplementedError

    def is_unchanged(self) -> bool:
        """Return True if it is as it was when this was made."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise an error if it has changed since this was made."""
        if not self.is_unchanged():
            raise ModelError(f"load: the file of {self.name} was changed since it was loaded", help="load it again")


def source_of(kind: Callable[..., S], *arguments: object) -> S | None:
    """Return a source of a kind; None if it has no key, or cannot be made: loading then gives a better error."""
    try:
        source = kind(*arguments)
    except Exception:
        return None
    return source if source.key else None


# Model files that are recognised without reading them: by their paths and times of modification.
#
# A stamp is reliable if the file was written some time before it was read: the next write gives it another stamp.


def stamp_of(path: str) -> tuple[str, bool]:
    """Return a text that identifies a file and its version, and whether it is settled. Raises `OSError`."""
    status = os.stat(path)
    is_settled = time.time() - max(status.st_mtime, status.st_ctime) > SETTLED
    times = status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return repr((os.path.realpath(path), status.st_dev, status.st_ino, *times)), is_settled


class StampedSource(Source):
    """A model file and its external data, identified by their stamps."""

    def __init__(self, cache: CacheFolder, model: object, links: Links | None) -> None:
        """links: links to its data that may be followed. Raises `OSError`, and `TypeError` for a model that is not a
        path."""
        if not isinstance(model, (str, os.PathLike)):
            raise TypeError
        self._path = os.fsdecode(model)
        self._links = links
        super().__init__(cache, self._path)
        self._stamp, self.is_settled = stamp_of(self._path)
        self._files: dict[str, str] = {}
        self.key = cache.digest(b"stamp", f"{self._stamp} {links}".encode("utf-8", "surrogateescape"))

    def entry(self) -> dict[str, Any] | None:
        """Return the entry that an earlier load stored; None if it belongs to other files."""
        entry = super().entry()
        if entry is None:
            return None
        self.name, self._files = entry["name"], entry["files"]
        return entry if self.is_unchanged() else None

    def arrays(self, places: Sequence[Any]) -> dict[str, Array]:
        """Return weights by name, without copies, from their places: the name, the file ("" for the model's own), the
        offset, the dtype and the shape of each. Entries that contain all weights have none. Raises `ModelError`."""
        own = model_bytes(self._path) if places else memoryview(b"")
        folder = Folder(os.path.dirname(os.path.abspath(self._path)), self._links)
        result = {}
        for name, location, offset, dtype, shape in places:
            content = folder.content(location, name) if location else own
            result[name] = np.frombuffer(content, DType.of(dtype).numpy, math.prod(shape), offset).reshape(shape)
        if not self.is_unchanged():  # it was replaced before it was mapped
            raise ModelError(f"load: {self._path} was changed while it was loaded", help="load it again")
        return result

    def is_unchanged(self) -> bool:
        """Return True if the stamps of the file and of its external data have not changed."""
        try:
            stamps = {location: stamp_of(self._beside(location))[0] for location in self._files}
            return stamp_of(self._path)[0] == self._stamp and stamps == self._files
        except OSError:
            return False

    def keep(self, entry: dict[str, Any], locations: Sequence[str], model: bytes = b"") -> None:
        """Store an entry for this file, if all files are settled. locations: of its external data. model: the optimised
        graph, for a `PreparedFile`."""
        if not self.is_settled or (entry["weights"] and not model):
            return
        try:
            stamps = {location: stamp_of(self._beside(location)) for location in locations}
        except OSError:
            return
        self._files = {location: stamp for location, (stamp, _) in stamps.items()}
        if all(is_settled for _, is_settled in stamps.values()) and self.is_unchanged():
            content = json.dumps(entry | {"files": self._files}).encode()
            self.cache.save(self.key, content + b"\n" + model, "start")

    def _beside(self, location: str) -> str:
        return os.path.join(os.path.dirname(os.path.abspath(self._path)), location)


_STABLE_DOMAINS = DOMAINS | {"graphcore"}
"""Domains of operators whose meaning is fixed, graphcore's included."""

_PLAIN = frozenset({bool, int, float, str, bytes, type(None), DType})


class _Unidentifiable(Exception):
    """A graph contains a value that has no unique text."""


class GraphSource(Source):
    """A graph. Those with bodies, functions, custom operators or buffers have no key."""

    def __init__(self, cache: CacheFolder, graph: Graph) -> None:
        """Raise `GraphError` for an invalid graph."""
        super().__init__(cache, graph.name)
        graph.verify()
        self._graph = graph
        self._edits = graph.edits
        self._constants = {s.name: s.producer.array for s in graph.symbols if isinstance(s.producer, Constant)}
        small = sum(array.nbytes for array in self._constants.values()) <= HASHED
        if small and not graph.buffers:
            with uncollected(), contextlib.suppress(_Unidentifiable):
                self.key = cache.digest(*_parts(graph))

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Return constants by name. Raises `KeyError` for an unknown name."""
        return {name: self._constants[name] for name in names}

    def check(self) -> None:
        """Raise `GraphError` if nodes were inserted into the graph since this was made."""
        if self._graph.edits != self._edits:
            raise GraphError(
                f"load: nodes were inserted into the graph since {self.name} was loaded",
                help="load the graph again: this Model runs the graph as it was before",
            )


def _parts(graph: Graph) -> Iterator[bytes | memoryview]:
    """Yield everything that determines the lowered graph."""
    types: dict[Type, str] = {}
    description: list[Any] = [graph.name, graph.promotion.note, graph.strict]
    description += [sorted(graph.metadata.items()), sorted(graph.opsets.items()), open_expressions.state_of(graph)]
    description += [[s.id for s in graph.input_symbols], [(name, s.id) for name, s in graph.named_outputs]]
    description += [sorted(graph.watched), [*graph.defaults]]
    arrays: list[Array] = [*graph.defaults.values()]
    for symbol in graph.symbols:
        type_ = symbol.type
        text = types.get(type_)
        if text is None:
            text = types[type_] = f"{type_!r} {getattr(type_, 'ambiguous', '')}"
        producer = symbol.producer
        if isinstance(producer, Constant):
            arrays.append(producer.array)
            description.append((text, symbol.given_name, producer.is_weight))
        else:
            description.append((text, symbol.given_name))
    for node in graph.nodes:
        if node.domain not in _STABLE_DOMAINS:
            raise _Unidentifiable
        description.append(_node(node, arrays))
    yield repr(description).encode("utf-8", "surrogatepass")
    for array in arrays:
        if array.dtype == object:
            yield repr(array.tolist()).encode("utf-8", "surrogatepass")
            continue
        yield f"{array.dtype.name}{array.shape}".encode()
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _node(node: Node, arrays: list[Array]) -> tuple[Any, ...]:
    inputs = [None if s is None else s.id for s in node.inputs]
    attributes = [(key, _value(value, arrays)) for key, value in node.attributes.items()] if node.attributes else ()
    is_imported = type(node.origin) is Imported
    return node.op_type, node.domain, node.layer, is_imported, inputs, [s.id for s in node.outputs], attributes


def _value(value: Any, arrays: list[Array]) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (list, tuple)):
        return [_value(item, arrays) for item in value]
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return "array"
    raise _Unidentifiable
