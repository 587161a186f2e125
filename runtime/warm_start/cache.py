"""A folder of graphs as onnxruntime has optimised them, so that a second start skips that. See docs/running.md.

An entry is named after a digest of all that the optimised graph follows from: the lowered graph, the bytes of those of
its weights that optimisers read, options, providers, versions, and the features of the processor, for which optimisers
choose layouts. Weights that only kernels read are in no entry: they are given to the session as they are.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import stat
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import onnxruntime

from graphcore._version import __version__
from graphcore.arrays.casting import Array
from graphcore.errors import ModelError
from graphcore.onnx.proto.model_proto import raw
from graphcore.support.atomic_files import replace_files
from graphcore.types.dtypes import DType

Kind: TypeAlias = Literal["optimised", "start"]
"""The content of an entry: a graph for onnxruntime, or what `start` keeps beside it. The endings of the files."""

_MAGIC = b"graphcore optimised 1\n"
_DIGEST = hashlib.sha256().digest_size


class Cache:
    """The entries of a folder for sessions of one kind.

    parts: what decides, beside the graph, what is optimised how. The folder is made where it is not there. Raises
    `ModelError` where it cannot be made or written to.
    """

    def __init__(self, folder: str | os.PathLike[str], parts: Iterable[object]) -> None:
        self._folder = _usable(folder)
        known = (__version__, onnxruntime.__version__, onnxruntime.get_build_info(), _machine(), *parts)
        self.used: str | None = None
        """The entry that holds the graph of the session which was started last."""
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
        head = _MAGIC + bytes.fromhex(key) + hashlib.sha256(content).digest()
        path = self._path(key, kind)
        with contextlib.suppress(OSError):  # a file that is replaced would keep its mode
            if not _is_own(os.stat(path)):
                os.unlink(path)
        try:
            replace_files([(path, (head, content))])
        except OSError as error:
            warnings.warn(
                f"load: the optimised graph cannot be kept in {self._folder}: {error.strerror or error}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _path(self, key: str, kind: Kind) -> str:
        return os.path.join(self._folder, f"{key}.{kind}")


def _usable(folder: str | os.PathLike[str]) -> str:
    if not isinstance(folder, (str, os.PathLike)):
        raise ModelError(f"load: cache_dir is a {type(folder).__name__}, no path", help="give the path of a folder")
    path = os.path.expanduser(os.fsdecode(folder))
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise ModelError(
            f"load: the folder cache_dir={path!r:.300} cannot be made or written to: {reason}",
            help="give a folder that you may write to, or leave cache_dir out",
        ) from None
    return path


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
    features = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            features = next((line for line in file if line.lower().startswith(("flags", "features"))), "")
    except OSError:
        pass
    return "\0".join((platform.system(), platform.machine(), platform.processor(), features))


__all__ = ["Cache"]
