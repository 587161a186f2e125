"""A model's file on each node of a Ray cluster: sent once through the object store, and kept by what is in it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray.exceptions

from graphcore.errors import ModelError, UnsafePathError
from graphcore.ir.graph import Graph
from graphcore.runtime.export import Options, export

try:
    import fcntl
except ImportError:  # Windows, where two workers may write the same folder, and one rename wins
    fcntl = None  # type: ignore[assignment]

_MODEL = "model.onnx"
_PIECE = 16 << 20
"""Bytes of one object of Ray: a node holds no more of the file at once beside the file itself."""

_OLDEST = 7 * 24 * 3600
"""Seconds after which a model that no worker has loaded is removed from a node."""

PATIENCE = 300.0
"""Seconds that a node waits for a piece of a file."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A model that is in Ray's object store. digest: of its files. files: the pieces of each, by name."""

    name: str
    digest: str
    files: Mapping[str, tuple[Any, ...]]

    def path(self, patience: float = PATIENCE) -> str:
        """Return the path of the model on this node, which gets its files first where it has none.

        Weights lie in a file beside it, each at a page of its own, so that all workers of a node map the same memory.
        Raises `ModelError` where they do not arrive, or have changed on the way.
        """
        folder = _folder()
        place = folder / self.digest
        with _locked(folder / f"{self.digest}.lock"):
            if not place.is_dir():
                _clear(folder)
                self._fetch(folder, place, patience)
            os.utime(place)
        return os.fspath(place / _MODEL)

    def _fetch(self, folder: Path, place: Path, patience: float) -> None:
        made = Path(tempfile.mkdtemp(dir=folder, prefix="part-"))
        node = ray.get_runtime_context().get_node_id()
        hashed = hashlib.sha256()
        try:
            for name, pieces in self.files.items():
                with open(made / name, "wb") as file:
                    for piece in pieces:
                        content = memoryview(ray.get(piece, timeout=patience))
                        hashed.update(content)
                        file.write(content)
            if hashed.hexdigest() != self.digest:
                raise ModelError(
                    f"map_batches: the file of {self.name} arrived changed on node {node}", help="run it again"
                )
            os.rename(made, place)
        except (ray.exceptions.RayError, OSError) as error:
            raise ModelError(
                f"map_batches: node {node} did not get the file of {self.name}: {type(error).__name__}: {error}",
                help="look after its disk and its network; the driver must live as long as the work",
            ) from None
        finally:
            shutil.rmtree(made, ignore_errors=True)


def placed(graph: Graph) -> Placed:
    """Write a graph as a file, put it into Ray's object store, and return where it is."""
    with tempfile.TemporaryDirectory(prefix="graphcore-") as folder:
        export(graph, os.path.join(folder, _MODEL), True, Options())
        names = sorted(os.listdir(folder))
        hashed = hashlib.sha256()
        files: dict[str, tuple[Any, ...]] = {}
        for name in names:
            refs = []
            with open(os.path.join(folder, name), "rb") as file:
                while content := file.read(_PIECE):
                    hashed.update(content)
                    refs.append(ray.put(content))
            files[name] = tuple(refs)
    return Placed(graph.name, hashed.hexdigest(), files)


def _folder() -> Path:
    """Return the folder of this node's models, which is its user's alone. Raises `UnsafePathError` where it is not."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    made = Path(tempfile.gettempdir(), f"graphcore-models-{user}")
    made.mkdir(mode=0o700, exist_ok=True)
    found = made.lstat()
    if made.is_symlink() or (hasattr(os, "getuid") and (found.st_uid != user or found.st_mode & 0o022)):
        raise UnsafePathError(f"{made} is not this user's alone", help="remove it, or set TMPDIR")
    return made


def _clear(folder: Path) -> None:
    """Remove the models that no worker has loaded for long."""
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):
            if entry.is_dir() and time.time() - entry.stat().st_mtime > _OLDEST:
                shutil.rmtree(entry, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that all workers of a node share; a process that dies lets it go."""
    with open(path, "w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


__all__ = ["PATIENCE", "Placed", "placed"]
