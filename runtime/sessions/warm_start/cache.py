"""A folder of graphs as onnxruntime has optimised them, for the next start. See docs/howto/fast_start.md.

An entry is named after a digest of all that the optimised graph follows from: the lowered graph, the bytes of those of
its weights that optimisers read, options, providers, versions, and the features of the processor, for which optimisers
choose layouts. The weights of a graph that only kernels read are in no entry: they are given to the session as they
are. Those of a file lie in a file of their own beside its entry, as kernels want them, which is mapped.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import logging
import os
import platform
import stat
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import onnxruntime

from graphcore._version import __version__
from graphcore.arrays.casting import Array
from graphcore.errors import ModelError
from graphcore.onnx.proto.value_protos import raw
from graphcore.runtime.lowering.targets.releases import Range
from graphcore.runtime.ort.release import runtime
from graphcore.support.atomic_files import replace_files
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    import onnx

Kind: TypeAlias = Literal["optimised", "start"]
"""The content of an entry: a graph for onnxruntime, or what `start` keeps beside it. The endings of the files."""

_MAGIC = b"graphcore optimised 2\n"
_DIGEST = hashlib.sha256().digest_size

_REPEATS = Range(last="1.31.0")
"""The releases that write the initializers of bodies twice where weights have a file of their own, which they refuse to
read: seen in 1.27 to 1.30."""

LOG = logging.getLogger("graphcore")

_ROOM = "making-"
_STOPPED = 24 * 3600.0
"""Seconds after which nobody writes to a folder any more."""


@dataclass(frozen=True, slots=True)
class Optimised:
    """A graph that was optimised before. folder: where the file of its weights lies; None where it needs none."""

    model: bytes
    folder: str | None


class Cache:
    """The entries of a folder for sessions of one kind.

    parts: what decides, beside the graph, what is optimised how. The folder is made where it is not there. Raises
    `ModelError` where it cannot be made or written to. writes: False for one that is looked into alone.
    """

    def __init__(self, folder: str | os.PathLike[str], parts: Iterable[object], writes: bool = True) -> None:
        self._folder = _usable(folder) if writes else os.fsdecode(folder)
        self._writes = writes
        known = (__version__, onnxruntime.__version__, onnxruntime.get_build_info(), _machine(), *parts)
        self.used: str | None = None
        """The entry that holds the graph of the session which was started last."""
        self.failure: str | None = None
        """Why the last entry could not be written; None where it was."""
        self.is_whole = False
        """Entries have all weights, those included that only kernels read."""
        self.is_packed = False
        """The entry that was used last has large weights in the order of kernels."""
        self._base = hashlib.sha256(_MAGIC + "\0".join(map(repr, known)).encode("utf-8", "backslashreplace"))

    def key(self, content: bytes, weights: Mapping[str, Array]) -> str:
        """Return the cache key of a model. content: as onnxruntime is given it. weights: those that are not in it."""
        return self.digest(content, *(part for name in sorted(weights) for part in _parts(name, weights[name])))

    def digest(self, *parts: bytes | memoryview) -> str:
        """Return a digest of these parts and of the kind of sessions."""
        made = self._base.copy()
        for part in parts:
            made.update(len(part).to_bytes(8, "little"))
            made.update(part)
        return made.hexdigest()

    def find(self, key: str, kind: Kind = "optimised") -> bytes | None:
        """Return the content of an entry; None where there is none, and where it is damaged or another user's."""
        head = _MAGIC + bytes.fromhex(key)
        try:
            with open(self._path(key, kind), "rb", opener=_opened) as file:
                if not _is_own(os.fstat(file.fileno())) or file.read(len(head)) != head:
                    return None
                digest, content = file.read(_DIGEST), file.read()
        except OSError:
            return None
        return content if hashlib.sha256(content).digest() == digest else None

    def save(self, key: str, content: bytes, kind: Kind = "optimised") -> None:
        """Write an entry, whole or not at all. Warns where it cannot: the model runs all the same."""
        if not self._writes:
            return
        head = _MAGIC + bytes.fromhex(key) + hashlib.sha256(content).digest()
        path = self._path(key, kind)
        with contextlib.suppress(OSError):  # a file that is replaced would keep its mode
            if not _is_own(os.stat(path)):
                os.unlink(path)
        try:
            replace_files([(path, (head, content))])
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        self.failure = f"{self._folder}: {error.strerror or error}"
        said = f"load: the optimised graph cannot be kept in {self.failure}"
        LOG.warning(said)  # each time, where Python shows a warning of one place once
        warnings.warn(said, RuntimeWarning, stacklevel=3)

    def weights_file(self, key: str) -> str:
        """Return a new name for the file of an entry's weights: no session has an entry's and another's file."""
        return f"{key}.{os.urandom(8).hex()}.weights"

    @contextlib.contextmanager
    def room(self) -> Iterator[str]:
        """A new folder in which onnxruntime writes an entry, on the file system of the entries. Raises `OSError`."""
        folder = os.path.join(self._folder, f"{_ROOM}{os.urandom(8).hex()}")
        os.mkdir(folder, 0o700)
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):
                _remove(folder)

    def say_why(self, size: int) -> None:
        """Warn where a file of so many bytes cannot be written: onnxruntime does not say why it could not."""
        try:
            with self.room() as folder, open(os.path.join(folder, "probe"), "wb") as file:
                file.write(bytes(size))
        except OSError as error:
            self._warn(error)

    def find_optimised(self, key: str) -> Optimised | None:
        """Return the optimised graph of an entry; None where there is none, and where it or its weights are damaged or
        another user's."""
        found = self.find(key)
        if found is None:
            return None
        head, _, model = found.partition(b"\n")
        if not head:
            return Optimised(model, None)
        name, stamp = head.decode("utf-8", "replace").split(" ", 1)
        try:
            if self._stamp(name) != stamp:
                return None
        except (OSError, ValueError):
            return None
        return Optimised(model, self._folder)

    def save_optimised(self, key: str, model: bytes, weights: str | None) -> None:
        """Write an entry of an optimised graph. weights: the path of the file of its weights, which is moved, under
        its name; None where there is none. Warns as `save` does."""
        if _REPEATS.includes(runtime().version):
            model = without_repeats(model)
        if weights is None:
            self.save(key, b"\n" + model)
            return
        name = os.path.basename(weights)
        try:
            os.chmod(weights, 0o600)
            os.replace(weights, os.path.join(self._folder, name))
            stamp = self._stamp(name)
        except OSError as error:
            self._warn(error)
            return
        self.save(key, f"{name} {stamp}\n".encode() + model)
        self._clear(key, name)

    def _clear(self, key: str, name: str) -> None:
        """Remove the weights of entries that this one took the place of, and what stopped processes have left."""
        with os.scandir(self._folder) as found:
            entries = list(found)
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.startswith(key) and entry.name.endswith(".weights") and entry.name != name:
                    os.unlink(entry.path)
                elif entry.name.startswith(_ROOM) and time.time() - entry.stat().st_mtime > _STOPPED:
                    _remove(entry.path)

    def _stamp(self, name: str) -> str:
        """Return what tells a file of weights from itself as it was. Raises `ValueError` for one of others."""
        found = os.lstat(os.path.join(self._folder, name))
        if os.path.basename(name) != name or not _is_own(found):
            raise ValueError(name)
        return f"{found.st_size} {found.st_mtime_ns} {found.st_ino}"

    def _path(self, key: str, kind: Kind) -> str:
        return os.path.join(self._folder, f"{key}.{kind}")


def _remove(folder: str) -> None:
    """Remove a folder of files. Raises `OSError`."""
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)


def _usable(folder: str | os.PathLike[str]) -> str:
    if not isinstance(folder, (str, os.PathLike)):
        raise ModelError(f"load: cache_dir is a {type(folder).__name__}, no path", help="give the path of a folder")
    path = os.path.expanduser(os.fsdecode(folder))
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            code = errno.EROFS if _is_read_only(path) else errno.EACCES
            raise OSError(code, os.strerror(code))
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise ModelError(
            f"load: the folder cache_dir={path!r:.300} cannot be made or written to: {reason}",
            help="give a folder that you may write to, or leave cache_dir out",
        ) from None
    return path


def _is_read_only(path: str) -> bool:
    """Return whether a folder lies in a file system that is mounted read-only."""
    return hasattr(os, "statvfs") and bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _parts(name: str, array: Array) -> tuple[bytes, bytes, memoryview]:
    dtype = DType.of(array.dtype)
    return name.encode("utf-8", "surrogatepass"), f"{dtype}{list(array.shape)}".encode(), raw(array, dtype)


def _opened(path: str, flags: int) -> int:
    """Open a file for reading. One that is no file, but a pipe, is not waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_own(found: os.stat_result) -> bool:
    """Return whether it is a file that this user and root alone could have written. Where files have no owners all are
    own."""
    if not stat.S_ISREG(found.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & stat.S_IWOTH


@functools.cache
def _machine() -> str:
    """Return the processor and its features, as far as the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read().partition("\n\n")[0].split("\n")
    except OSError:
        return "\0".join((platform.system(), platform.machine(), platform.processor()))
    told = [line for line in first if line.lower().startswith(("vendor", "model", "cpu ", "flags", "features"))]
    return "\0".join((sys.platform, os.uname().machine, *(line for line in told if "mhz" not in line.lower())))


# Optimised models as some releases of onnxruntime write them, with the initializers of bodies twice.


def without_repeats(model: bytes) -> bytes:
    """Return a model of which each graph has an initializer once; the given bytes where that is so.

    The first of those that share a name is kept. A release repeats one with the same values, in a file of weights.
    """
    import onnx  # which a warm start does without

    proto = onnx.ModelProto.FromString(model)
    changed = [_deduplicate(graph) for graph in _graphs(proto.graph)]
    return proto.SerializeToString() if any(changed) else model


def _deduplicate(graph: onnx.GraphProto) -> bool:
    """Remove the repeated initializers of a graph; return whether there were any."""
    seen: set[str] = set()
    repeated = []
    for place, tensor in enumerate(graph.initializer):
        if tensor.name in seen:
            repeated.append(place)
        seen.add(tensor.name)
    for place in reversed(repeated):
        del graph.initializer[place]
    return bool(repeated)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the bodies within it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
