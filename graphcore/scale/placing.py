"""A model's file on each node of a Ray cluster: sent once through the object store, and kept by what is in it.

Each weight is a file of its own, `weights/HASH`, which all models of a node that have it share: `HASH.onnx` beside that
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
except ImportError:  # Windows, where two workers may write the same folder, and one rename wins
    fcntl = None  # type: ignore[assignment]

_WEIGHTS = "weights"
_SMALLEST = 1 << 12
"""Bytes from which a weight is a file of its own: a page, which is what is mapped."""

_PIECE = 16 << 20
"""Bytes of one object of Ray: a node holds no more of the file at once beside the file itself."""

_OLDEST = 7 * 24 * 3600
"""Seconds after which a model that no worker has loaded is removed from a node."""

PATIENCE = 300.0
"""Seconds that a node waits for a piece of a file."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A model that is in Ray's object store. digest: of its file. model: the pieces of that. weights: those of each
    weight, by its own digest."""

    name: str
    digest: str
    model: tuple[Any, ...]
    weights: Mapping[str, tuple[Any, ...]]

    def path(self, patience: float = PATIENCE) -> str:
        """Return the path of the model on this node, which gets its files first where it has none.

        All workers of a node map the same files, and models with equal weights the same weights. Raises `ModelError`
        where they do not arrive, or have changed on the way, and `UnsafePathError` where others may write there.
        """
        try:
            folder = _folder()
            place = folder / f"{self.digest}.onnx"
            with _locked(folder / f"{self.digest}.lock"):
                _clear(folder)
                self._fetch(folder, place, patience)
            return os.fspath(place)
        except (ray.exceptions.RayError, OSError) as error:
            if isinstance(error, UnsafePathError):
                raise
            node = ray.get_runtime_context().get_node_id()
            raise ModelError(
                f"node {node} did not get the file of {self.name}: {type(error).__name__}: {error}",
                help="look after its disk, its TMPDIR and its network; the driver must live as long as the work",
            ) from None

    def _fetch(self, folder: Path, place: Path, patience: float) -> None:
        """Get what is not there yet, and note that all of it was needed now."""
        wanted = {folder / _WEIGHTS / digest: (digest, pieces) for digest, pieces in self.weights.items()}
        wanted[place] = self.digest, self.model
        for path, (digest, pieces) in wanted.items():
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)
                continue
            handle, part = tempfile.mkstemp(dir=folder, prefix="part-")
            try:
                with open(handle, "wb") as file:
                    self._receive(file, pieces, digest, patience)
                os.replace(part, path)
            except BaseException:
                os.unlink(part)
                raise

    def _receive(self, file: BinaryIO, pieces: Iterable[Any], digest: str, patience: float) -> None:
        hashed = hashlib.sha256()
        for piece in pieces:
            content = memoryview(ray.get(piece, timeout=patience))
            hashed.update(content)
            file.write(content)
        if hashed.hexdigest() != digest:
            node = ray.get_runtime_context().get_node_id()
            raise ModelError(f"the file of {self.name} arrived changed on node {node}", help="run it again")


def placed(*graphs: Graph) -> list[Placed]:
    """Put the files of graphs into Ray's object store, each weight of them once, and return where they are."""
    weights: dict[str, tuple[Any, ...]] = {}
    return [_placed(graph, weights) for graph in graphs]


def _placed(graph: Graph, weights: dict[str, tuple[Any, ...]]) -> Placed:
    """weights: that lie in the store already; those of the graph are put there too."""
    own: dict[str, tuple[Any, ...]] = {}

    def place(_: str, array: np.ndarray[Any, Any]) -> tuple[str, int] | None:
        if array.nbytes < _SMALLEST or array.dtype == object:
            return None
        content = raw(array, DType.of(array.dtype))
        digest = hashlib.sha256(content).hexdigest()
        if digest not in weights:
            weights[digest] = _put([content])
        own[digest] = weights[digest]
        return f"{_WEIGHTS}/{digest}", 0

    chunks = write_graph(graph, Options()).encoded(place)
    hashed = hashlib.sha256()
    for chunk in chunks:
        hashed.update(chunk)
    return Placed(graph.name, hashed.hexdigest(), _put(chunks), own)


def _put(chunks: Sequence[Any]) -> tuple[Any, ...]:
    """Return the objects of Ray that hold these bytes."""
    refs: list[Any] = []
    waiting = bytearray()
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        for start in range(0, len(view), _PIECE):
            piece = view[start : start + _PIECE]
            if len(waiting) + len(piece) > _PIECE:
                refs.append(ray.put(bytes(waiting)))
                waiting.clear()
            waiting += piece
    if waiting:
        refs.append(ray.put(bytes(waiting)))
    return tuple(refs)


def _folder() -> Path:
    """Return the folder of this node's models, which is its user's alone. Raises `UnsafePathError` where it is not."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    made = Path(tempfile.gettempdir(), f"graphcore-models-{user}")
    made.mkdir(mode=0o700, exist_ok=True)
    found = made.lstat()
    if made.is_symlink() or (hasattr(os, "getuid") and (found.st_uid != user or found.st_mode & 0o022)):
        raise UnsafePathError(f"{made} is not this user's alone", help="remove it, or set TMPDIR")
    (made / _WEIGHTS).mkdir(exist_ok=True)
    return made


def _clear(folder: Path) -> None:
    """Remove models and weights that no worker has loaded for long."""
    for entry in (*folder.iterdir(), *(folder / _WEIGHTS).iterdir()):
        with contextlib.suppress(OSError):
            if entry.is_file() and time.time() - entry.stat().st_mtime > _OLDEST:
                entry.unlink()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that all workers of a node share; a process that dies lets it go."""
    with open(path, "w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
