"""Distribute model files to the nodes of a Ray cluster: sent once through the object store, and named by their hash.

Each large weight is a separate file, `weights/HASH`, which all models of a node share; `HASH.onnx` lies beside that
folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import ray
import ray.exceptions

from graphcore.errors import ModelError, UnsafePathError
from graphcore.ir.graph import Graph
from graphcore.onnx.proto.value_protos import raw
from graphcore.runtime.export import Options, write_graph
from graphcore.types.dtypes import DType

try:
    import fcntl
except ImportError:  # Windows: two workers may write the same file, and the last rename wins
    fcntl = None  # type: ignore[assignment]

_WEIGHTS = "weights"
_MIN_WEIGHT_BYTES = 1 << 12
"""Minimum size of a weight with its own file: a page, the unit of memory mapping."""

_PIECE_BYTES = 16 << 20
"""Bytes of one Ray object, the most that a node has in memory while it writes a file."""

_MAX_AGE = 7 * 24 * 3600
"""Seconds after which a model that no worker loads is removed from a node."""

TIMEOUT = 300.0
"""Seconds that a node waits for a piece of a file."""


@dataclass(frozen=True, slots=True)
class PlacedModel:
    """A model in Ray's object store. digest: the hash of its file. model: the pieces of the file. weights: the pieces
    of each weight, by its hash."""

    name: str
    digest: str
    model: tuple[Any, ...]
    weights: Mapping[str, tuple[Any, ...]]

    def path(self, timeout: float = TIMEOUT) -> str:
        """Return the path of the model on this node. Fetches missing files.

        All workers of a node map the same files, and models with equal weights the same weights. Raises `ModelError` if
        they do not arrive or are corrupted, and `UnsafePathError` if other users can write to the folder.
        """
        try:
            folder = _folder()
            place = folder / f"{self.digest}.onnx"
            with _lock(folder / f"{self.digest}.lock"):
                _clear(folder)
                self._fetch(folder, place, timeout)
            return os.fspath(place)
        except (ray.exceptions.RayError, OSError) as error:
            if isinstance(error, UnsafePathError):
                raise
            node = ray.get_runtime_context().get_node_id()
            raise ModelError(
                f"node {node} did not get the file of {self.name}: {type(error).__name__}: {error}",
                help="check its disk, TMPDIR and network; the driver must not exit before the work is done",
            ) from None

    def _fetch(self, folder: Path, place: Path, timeout: float) -> None:
        """Fetch missing files, and update the time of last use of all."""
        files = {folder / _WEIGHTS / digest: (digest, pieces) for digest, pieces in self.weights.items()}
        files[place] = self.digest, self.model
        for path, (digest, pieces) in files.items():
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)
                continue
            handle, part = tempfile.mkstemp(dir=folder, prefix="part-")
            try:
                with open(handle, "wb") as file:
                    self._receive(file, pieces, digest, timeout)
                os.replace(part, path)
            except BaseException:
                os.unlink(part)
                raise

    def _receive(self, file: BinaryIO, pieces: Iterable[Any], digest: str, timeout: float) -> None:
        hashed = hashlib.sha256()
        for piece in pieces:
            content = memoryview(ray.get(piece, timeout=timeout))
            hashed.update(content)
            file.write(content)
        if hashed.hexdigest() != digest:
            node = ray.get_runtime_context().get_node_id()
            raise ModelError(f"the file of {self.name} was corrupted on the way to node {node}", help="run it again")


def place_models(*graphs: Graph) -> list[PlacedModel]:
    """Put the files of graphs into Ray's object store, each distinct weight once."""
    weights: dict[str, tuple[Any, ...]] = {}
    return [_place_model(graph, weights) for graph in graphs]


def _place_model(graph: Graph, weights: dict[str, tuple[Any, ...]]) -> PlacedModel:
    """Put a graph into the store. weights: those in the store already, to which this adds."""
    graph_weights: dict[str, tuple[Any, ...]] = {}

    def place(_: str, array: np.ndarray[Any, Any]) -> tuple[str, int] | None:
        if array.nbytes < _MIN_WEIGHT_BYTES or array.dtype == object:
            return None
        content = raw(array, DType.of(array.dtype))
        digest = hashlib.sha256(content).hexdigest()
        if digest not in weights:
            weights[digest] = _put([content])
        graph_weights[digest] = weights[digest]
        return f"{_WEIGHTS}/{digest}", 0

    chunks = write_graph(graph, Options()).encoded(place)
    hashed = hashlib.sha256()
    for chunk in chunks:
        hashed.update(chunk)
    return PlacedModel(graph.name, hashed.hexdigest(), _put(chunks), graph_weights)


def _put(chunks: Sequence[Any]) -> tuple[Any, ...]:
    """Return Ray objects with these bytes."""
    refs: list[Any] = []
    waiting = bytearray()
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        for start in range(0, len(view), _PIECE_BYTES):
            piece = view[start : start + _PIECE_BYTES]
            if len(waiting) + len(piece) > _PIECE_BYTES:
                refs.append(ray.put(bytes(waiting)))
                waiting.clear()
            waiting += piece
    if waiting:
        refs.append(ray.put(bytes(waiting)))
    return tuple(refs)


def _folder() -> Path:
    """Return the folder of models on this node. Raises `UnsafePathError` if other users can write to it."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"graphcore-models-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or (hasattr(os, "getuid") and (status.st_uid != user or status.st_mode & 0o022)):
        raise UnsafePathError(f"{folder} can be written by other users", help="remove it, or set TMPDIR")
    (folder / _WEIGHTS).mkdir(exist_ok=True)
    return folder


def _clear(folder: Path) -> None:
    """Remove models and weights that no worker has used for a long time."""
    for entry in (*folder.iterdir(), *(folder / _WEIGHTS).iterdir()):
        with contextlib.suppress(OSError):
            if entry.is_file() and time.time() - entry.stat().st_mtime > _MAX_AGE:
                entry.unlink()


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock that all workers of a node share; the system releases it when a process dies."""
    with open(path, "w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
