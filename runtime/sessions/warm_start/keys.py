"""Keys of warm starts: what identifies a file, a graph, and the installation."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import Links
from graphcore.errors import GraphError, ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.state import open_expressions
from graphcore.ir.symbol import Constant, Node
from graphcore.runtime.model import Model
from graphcore.runtime.sessions.warm_start.cache import Cache
from graphcore.runtime.sessions.warm_start.prepared import SETTLED
from graphcore.support.gc_pause import uncollected
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Type

# Sources of warm starts: what is loaded, told from others by a cache key.

HASHED = 64 << 20
"""Bytes of weights up to which they are read to see whether they are the same."""

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Of the operators whose meaning no program changes."""


class Source(Protocol):
    """A graph or a file that is loaded, before it is read and lowered.

    key: of its entry in the cache, None for one that has none. name: for error messages. is_settled: whether what is
    written from now on would have another key.
    """

    cache: Cache
    key: str | None
    name: str
    is_settled: bool

    def entry(self) -> dict[str, Any] | None:
        """Return what an earlier load of it kept; None where nothing was, or it is damaged."""

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Return its weights by name, where they lie. Raises `KeyError` where it has none of that name."""

    def again(self) -> Model:
        """Load all of it, for what needs its graph. Raises an error where it has changed."""


def kept_of(cache: Cache, key: str | None) -> dict[str, Any] | None:
    """Return what was kept under a key; None where nothing was. Raises `ValueError` for what is damaged."""
    found = None if key is None else cache.find(key, "start")
    entry: dict[str, Any] | None = None if found is None else json.loads(found)
    return entry


# Model files that were loaded before, known without being read: by which files they are and when they were written.
#
# A stamp counts where the file was written some time before it was read: whoever writes it again gives it another one.


def stamp_of(path: str) -> tuple[str, bool]:
    """Return what tells a file from others and from itself as it was; and whether it is settled. Raises `OSError`."""
    found = os.stat(path)
    is_settled = time.time() - max(found.st_mtime, found.st_ctime) > SETTLED
    times = found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return repr((os.path.realpath(path), found.st_dev, found.st_ino, *times)), is_settled


class StampedSource:
    """A model file and the files beside it, by their stamps: a `Source`."""

    def __init__(self, cache: Cache, path: str, load: Callable[[], Model], links: Links | None) -> None:
        """load: loads the model without a cache. links: which links to its data may be followed. Raises `OSError`."""
        self._path = path
        self._load = load
        self._stamp, self.is_settled = stamp_of(path)
        self._files: list[tuple[str, str]] = []
        self.cache = cache
        self.name = path
        self.key: str | None = cache.digest(b"stamp", f"{self._stamp} {links}".encode("utf-8", "surrogateescape"))

    def entry(self) -> dict[str, Any] | None:
        """Return what an earlier load kept; None where that was of other files."""
        entry = kept_of(self.cache, self.key)
        if entry is None:
            return None
        self.name = entry["name"]
        self._files = [(location, stamp) for location, stamp in entry["files"]]
        return entry if self._is_unchanged_beside() else None

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Return its weights by name: none, since entries of files have them."""
        if names:
            raise KeyError(names[0])
        return {}

    def again(self) -> Model:
        """Load all of the file. Raises `ModelError` where it is another one by now."""
        if not self.is_unchanged():
            raise ModelError(f"load: the file of {self.name} was changed since it was loaded", help="load it again")
        return self._load()

    def is_unchanged(self) -> bool:
        """Return whether the file, and those beside it, are the ones that were stamped."""
        try:
            return stamp_of(self._path)[0] == self._stamp and self._is_unchanged_beside()
        except OSError:
            return False

    def keep(self, entry: dict[str, Any], locations: Sequence[str]) -> None:
        """Keep an entry for this file. locations: of the files beside it. Where some are not settled, none is kept."""
        if self.key is None or not self.is_settled or entry["weights"]:
            return
        try:
            stamps = [(location, *stamp_of(self._beside(location))) for location in locations]
        except OSError:
            return
        self._files = [(location, stamp) for location, stamp, _ in stamps]
        if all(is_settled for _, _, is_settled in stamps) and self.is_unchanged():
            self.cache.save(self.key, json.dumps(entry | {"files": self._files}).encode(), "start")

    def _is_unchanged_beside(self) -> bool:
        try:
            return all(stamp_of(self._beside(location))[0] == stamp for location, stamp in self._files)
        except OSError:
            return False

    def _beside(self, location: str) -> str:
        return os.path.join(os.path.dirname(os.path.abspath(self._path)), location)


def stamped_source(cache: Cache, model: object, load: Callable[[], Model], links: Links | None) -> StampedSource | None:
    """Return the source of a file by its stamp; None for what is no path of a file."""
    if not isinstance(model, (str, os.PathLike)):
        return None
    try:
        return StampedSource(cache, os.fsdecode(model), load, links)
    except (OSError, ValueError):  # which reading it says better
        return None


_OWN = DOMAINS | {"graphcore"}
"""Domains of the operators whose meaning no program changes."""

_PLAIN = frozenset({bool, int, float, str, bytes, type(None), DType})


class _Unknown(Exception):
    """Something in a graph that cannot be told from others like it."""


class GraphSource:
    """A graph: a `Source`. Those with bodies, functions, custom operators or buffers have no key."""

    def __init__(self, cache: Cache, graph: Graph, load: Callable[[], Model]) -> None:
        """load: loads the graph without a cache."""
        self.cache = cache
        self.name = graph.name
        self.is_settled = True
        self._load = load
        self._graph = graph
        self._edits = graph.edits
        self.key: str | None = None
        self._constants = {s.name: s.producer.array for s in graph.symbols if isinstance(s.producer, Constant)}
        small = sum(array.nbytes for array in self._constants.values()) <= HASHED
        if small and not graph.buffers:
            with contextlib.suppress(_Unknown):
                self.key = cache.digest(*_parts(graph))

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Return constants by name. Raises `KeyError`."""
        return {name: self._constants[name] for name in names}

    def entry(self) -> dict[str, Any] | None:
        """Return what an earlier load kept; None where nothing was."""
        return kept_of(self.cache, self.key)

    def again(self) -> Model:
        """Load all of the graph. Raises `GraphError` where nodes were inserted since."""
        if self._graph.edits != self._edits:
            raise GraphError(
                f"load: nodes were inserted into the graph since {self.name} was loaded",
                help="load the graph again: this model runs as it was",
            )
        return self._load()


def _parts(graph: Graph) -> Iterator[bytes | memoryview]:
    """Yield everything that what a graph is lowered to follows from."""
    types: dict[Type, str] = {}
    said: list[Any] = [graph.name, graph.promotion.note, graph.strict]
    said += [sorted(graph.metadata.items()), sorted(graph.opsets.items()), open_expressions.state_of(graph)]
    said += [[s.id for s in graph.input_symbols], [(name, s.id) for name, s in graph.named_outputs]]
    said.append(sorted(graph.watched))
    arrays: list[Array] = []
    for symbol in graph.symbols:
        type_ = symbol.type
        text = types.get(type_)
        if text is None:
            text = types[type_] = f"{type_!r} {getattr(type_, 'ambiguous', '')}"
        producer = symbol.producer
        if isinstance(producer, Constant):
            arrays.append(producer.array)
            said.append((text, symbol.given_name, producer.is_weight))
        else:
            said.append((text, symbol.given_name))
    for node in graph.nodes:
        if node.domain not in _OWN:
            raise _Unknown
        said.append(_node(node, arrays))
    yield repr(said).encode("utf-8", "surrogatepass")
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
    raise _Unknown


def graph_source(cache: Cache, graph: Graph, load: Callable[[], Model]) -> GraphSource | None:
    """Return the source of a warm start; None for a graph that loading has to look at, or to refuse."""
    try:
        graph.verify()
        with uncollected():
            found = GraphSource(cache, graph, load)
    except Exception:
        return None
    return None if found.key is None else found
