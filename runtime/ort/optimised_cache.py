"""Optimised graphs in a folder, so that a second start skips this step. See docs/howto/fast_start.md.

An entry is named by a digest of everything that determines the optimised graph: the lowered graph, the bytes of the
weights that optimisers read, options, providers and versions. Optimisers choose layouts for the features of the
processor, so these count too. Weights of a Graph that only kernels read are not in the entry: the session gets them by
reference.
Weights of a file are in a memory-mapped file beside its entry.
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
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, TypeAlias

import onnxruntime

from graphcore._version import __version__
from graphcore.arrays.casting import Array
from graphcore.errors import ModelError
from graphcore.onnx.proto.messages import nested
from graphcore.onnx.proto.value_protos import raw
from graphcore.runtime.lowering.targets.releases import ReleaseRange
from graphcore.runtime.ort.release import runtime
from graphcore.support.atomic_files import replace_files
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.onnx.proto.opened import Opened

EntryKind: TypeAlias = Literal["optimised", "start"]
"""The content of an entry: a graph for onnxruntime, or the data that `start` stores. Also the suffix of the file."""

CachedGraph: TypeAlias = tuple[bytes, str | None]
"""An optimised graph, and the folder of the file of its weights; None if it has no such file."""

_MAGIC = b"graphcore optimised 2\n"
_DIGEST = hashlib.sha256().digest_size

_REPEATS = ReleaseRange(last="1.31.0")
"""The releases that write initializers of bodies twice if weights are in a separate file, and refuse to read the
result: seen in 1.27 to 1.30."""

LOG = logging.getLogger("graphcore")

_TEMPORARY = "making-"
_ABANDONED_AFTER = 24 * 3600.0
"""Seconds after which a temporary folder counts as abandoned."""


class CacheFolder:
    """The entries of a folder for sessions with the same options.

    parts: everything besides the graph that determines the optimised graph. writes: False to only read entries. Creates
    a missing folder. Raises `ModelError` if the folder cannot be created or written to.
    """

    def __init__(self, folder: str | os.PathLike[str], parts: Iterable[object], writes: bool = True) -> None:
        self._folder = _writable_folder(folder) if writes else os.fsdecode(folder)
        self._writes = writes
        identity = (__version__, onnxruntime.__version__, onnxruntime.get_build_info(), _machine(), *parts)
        self.used: str | None = None
        """The entry of the session that was started last."""
        self.temporary: str | None = self._folder
        """The folder of temporary folders, on the file system of the entries; None for that of the system."""
        self.is_whole = False
        """Whether entries have all weights, including those that only kernels read."""
        self.model = b""
        """The optimised graph, if the entry is a `PreparedFile`."""
        self._base = hashlib.sha256(_MAGIC + "\0".join(map(repr, identity)).encode("utf-8", "backslashreplace"))

    def key(self, content: bytes, weights: Mapping[str, Array]) -> str:
        """Return the cache key of a model. content: the bytes for onnxruntime. weights: those that are not in it."""
        return self.digest(content, *(part for name in sorted(weights) for part in _parts(name, weights[name])))

    def digest(self, *parts: bytes | memoryview) -> str:
        """Return a digest of these parts and of the options of the sessions."""
        digest = self._base.copy()
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()

    def find(self, key: str, kind: EntryKind = "optimised") -> bytes | None:
        """Return the content of an entry; None if it is missing, damaged or another user's."""
        head = _MAGIC + bytes.fromhex(key)
        try:
            with open(self._path(key, kind), "rb", opener=_opened) as file:
                if not _is_trusted(os.fstat(file.fileno())) or file.read(len(head)) != head:
                    return None
                digest, content = file.read(_DIGEST), file.read()
        except OSError:
            return None
        return content if hashlib.sha256(content).digest() == digest else None

    def save(self, key: str, content: bytes, kind: EntryKind = "optimised") -> None:
        """Write an entry atomically. Warns if that fails: the model runs anyway."""
        if not self._writes:
            return
        head = _MAGIC + bytes.fromhex(key) + hashlib.sha256(content).digest()
        path = self._path(key, kind)
        with contextlib.suppress(OSError):  # a replaced file would keep its mode
            if not _is_trusted(os.stat(path)):
                os.unlink(path)
        try:
            replace_files([(path, (head, content))])
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        text = f"load: the optimised graph cannot be written to {self._folder}: {error.strerror or error}"
        LOG.warning(text)  # each time: Python shows a warning of one place once
        warnings.warn(text, RuntimeWarning, stacklevel=3)

    def refers(self, array: Array) -> bool:
        """Return True for a weight to which an entry can refer, if only kernels read it."""
        return True

    def weights_file(self, key: str) -> str:
        """Return a new name for the file of an entry's weights, so that no session reads the file of another entry."""
        return f"{key}.{os.urandom(8).hex()}.weights"

    def temporary_folder(self) -> AbstractContextManager[str]:
        """Return a folder in which onnxruntime writes an entry, which is removed afterwards. Raises `OSError`."""
        from tempfile import TemporaryDirectory  # starts from an entry do not need it

        return TemporaryDirectory(prefix=_TEMPORARY, dir=self.temporary, ignore_cleanup_errors=True)

    def warn_if_unwritable(self, size: int) -> None:
        """Warn if a file of that many bytes cannot be written: onnxruntime does not report the reason."""
        try:
            with self.temporary_folder() as folder, open(os.path.join(folder, "probe"), "wb") as file:
                file.write(bytes(size))
        except OSError as error:
            self._warn(error)

    def find_optimised(self, key: str) -> CachedGraph | None:
        """Return the optimised graph of an entry; None if it is missing, or it or its weights are damaged or another
        user's."""
        head, is_whole, model = (self.find(key) or b"").partition(b"\n")
        try:
            if not is_whole or (head and self._stamp(head.split(b" ")[0].decode()) != head):
                return None
        except (OSError, ValueError):
            return None
        return model, self._folder if head else None

    def save_optimised(self, key: str, model: bytes, weights: str | None) -> None:
        """Write an entry of an optimised graph. weights: the path of the file of its weights, which is moved to the
        folder; None if there is none. Warns as `save` does."""
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
        self.save(key, stamp + b"\n" + model)
        self._clear(key, name)

    def _clear(self, key: str, name: str) -> None:
        """Remove weights of entries that this one replaces, and temporary folders of stopped processes."""
        import shutil  # as above

        with os.scandir(self._folder) as scan:
            entries = list(scan)
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.startswith(key) and entry.name.endswith(".weights") and entry.name != name:
                    os.unlink(entry.path)
                elif entry.name.startswith(_TEMPORARY) and time.time() - entry.stat().st_mtime > _ABANDONED_AFTER:
                    shutil.rmtree(entry.path)

    def _stamp(self, name: str) -> bytes:
        """Return the name, size, time and inode of a file of weights. Raises `ValueError` for another user's file."""
        status = os.lstat(os.path.join(self._folder, name))
        if os.path.basename(name) != name or not _is_trusted(status):
            raise ValueError(name)
        return f"{name} {status.st_size} {status.st_mtime_ns} {status.st_ino}".encode()

    def _path(self, key: str, kind: EntryKind) -> str:
        return os.path.join(self._folder, f"{key}.{kind}")


class PreparedFile(CacheFolder):
    """The entry of one model, in one file: it has no weights but those that optimisers read, and refers to the others
    in the files of the model. Nobody is warned if it cannot be written."""

    def __init__(self, path: str | os.PathLike[str], parts: Iterable[object], opened: Opened | None) -> None:
        """path: of the file. opened: the model; None to only find the entry."""
        super().__init__(path, parts, writes=False)  # makes no folder
        self._writes, self.temporary = opened is not None, None
        self._opened = opened

    def refers(self, array: Array) -> bool:
        return self._opened is not None and self._opened.place(array) is not None

    def find(self, key: str, kind: EntryKind = "optimised") -> bytes | None:
        """Return the data of the load, as `CacheFolder.find` does."""
        head, _, self.model = (super().find(key, kind) or b"").partition(b"\n")
        return head or None

    def find_optimised(self, key: str) -> CachedGraph | None:
        """Return the optimised graph that `find` read."""
        return (self.model, None) if self.model else None

    def save_optimised(self, key: str, model: bytes, weights: str | None) -> None:
        """Keep the optimised graph for `CacheFolder.save`."""
        self.model = model

    def _warn(self, error: OSError) -> None:
        LOG.info("load: %s cannot be written: %s", self._folder, error.strerror or error)

    def _path(self, key: str, kind: EntryKind) -> str:
        return self._folder


def _writable_folder(folder: str | os.PathLike[str]) -> str:
    if not isinstance(folder, (str, os.PathLike)):
        raise ModelError(
            f"load: cache_dir must be a path, got {type(folder).__name__}", help="give the path of a folder"
        )
    path = os.path.expanduser(os.fsdecode(folder))
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            is_read_only = hasattr(os, "statvfs") and os.statvfs(path).f_flag & os.ST_RDONLY
            code = errno.EROFS if is_read_only else errno.EACCES
            raise OSError(code, os.strerror(code))
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise ModelError(
            f"load: the folder cache_dir={path!r:.300} cannot be created or written to: {reason}",
            help="give a folder that you can write to, or omit cache_dir",
        ) from None
    return path


def _parts(name: str, array: Array) -> tuple[bytes, bytes, memoryview]:
    dtype = DType.of(array.dtype)
    return name.encode("utf-8", "surrogatepass"), f"{dtype}{list(array.shape)}".encode(), raw(array, dtype)


def _opened(path: str, flags: int) -> int:
    """Open a file for reading, without waiting for a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_trusted(status: os.stat_result) -> bool:
    """Return True for a regular file that only this user and root can write. True if files have no owners."""
    if not stat.S_ISREG(status.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & stat.S_IWOTH


@functools.cache
def _machine() -> str:
    """Return the processor and its features, as far as the system reports them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read().partition("\n\n")[0].split("\n")
    except OSError:
        return "\0".join((platform.system(), platform.machine(), platform.processor()))
    features = [line for line in first if line.lower().startswith(("vendor", "model", "cpu ", "flags", "features"))]
    return "\0".join((sys.platform, os.uname().machine, *(line for line in features if "mhz" not in line.lower())))


# Optimised models of some releases of onnxruntime, which have the initializers of bodies twice.


def without_repeats(model: bytes) -> bytes:
    """Return a model without repeated initializers; the same bytes if it has none.

    Keeps the first initializer of each name. Releases repeat one with the same values, in a file of weights.
    """
    import onnx  # warm starts do not need it

    proto, is_changed = onnx.ModelProto.FromString(model), False
    for graph in nested(proto.graph):
        first: dict[str, int] = {}
        repeated = [place for place, t in enumerate(graph.initializer) if first.setdefault(t.name, place) != place]
        for place in reversed(repeated):
            del graph.initializer[place]
        is_changed |= bool(repeated)
    return proto.SerializeToString() if is_changed else model
