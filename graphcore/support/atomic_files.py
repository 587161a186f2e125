"""Replaces files atomically: writes temporary files in the same folder, then renames them.

Temporary files are locked while they are written. Files left behind by killed processes have no lock; the next process
that writes to the same path removes them.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import TypeAlias

try:
    import fcntl
except ImportError:  # Windows has no such locks, and cannot remove open files
    fcntl = None  # type: ignore[assignment]

Content: TypeAlias = Iterable[bytes | memoryview]

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_PIECE = 1 << 24
_PREFIX = 100  # characters of the name at the start of a temporary name, since file systems limit the length
_PART, _SPARE = "part", "data"


def replace_files(files: Sequence[tuple[str, Content]], *, synced: bool = False) -> None:
    """Write files of one folder, pairs of (path, chunks), and rename them in this order when all are written.

    They keep the modes of the files that they replace. The last file refers to the others. synced: flush each file to
    disk before it is renamed, and the folder afterwards. Raises `OSError`, after removing temporary files.
    """
    with _FileReplacement(files[-1][0], synced) as writing:
        for path, chunks in files:
            writing.write(path, chunks)
        writing.place()


def replace_pair(leader: str, content: Callable[[str], Content], follower: str, chunks: Content) -> None:
    """Write two files of one folder, the first of which refers to the second, so that the reference is always valid.

    content: the content of the first file for a name of the second. If both exist already, the second is written twice:
    the new pair is complete under a temporary name of the second before it gets the final one. A killed process leaves
    the old pair or the new one. Raises `OSError`, and keeps the old pair.
    """
    name = os.path.basename(follower)
    if not (os.path.exists(leader) and os.path.exists(follower)):
        replace_files([(follower, chunks), (leader, content(name))])
        return
    spare = _beside(leader, _SPARE)
    with _FileReplacement(leader) as writing:
        temporary = writing.write(follower, chunks, place=spare)
        writing.write(leader, content(os.path.basename(spare)))
        writing.write(follower, _read(temporary))  # not a hard link, which loading rejects
        writing.write(leader, content(name))
        writing.place(dropped=spare)


def _read(path: str) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        while piece := stream.read(_PIECE):
            yield piece


class _FileReplacement:
    """Files that are being written. Each is locked until the end, and removed if it was not renamed by then."""

    def __init__(self, leader: str, synced: bool = False) -> None:
        """leader: the file that refers to the others."""
        self._leader = leader
        self._synced = synced
        self._waiting: list[tuple[str, str]] = []
        """The temporary and final paths of the written files."""
        self._locks: list[int] = []

    def __enter__(self) -> _FileReplacement:
        _clear(self._leader, _PART)
        return self

    def write(self, path: str, chunks: Content, place: str | None = None) -> str:
        """Write a temporary file and return its path. place: the final path, by default `path`, whose mode it gets."""
        if os.path.isdir(path):
            raise IsADirectoryError(21, "it is a folder", path)
        with os.fdopen(self._open_temporary(place or path), "wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
            if self._synced:
                stream.flush()
                os.fsync(stream.fileno())
        temporary = self._waiting[-1][0]
        os.chmod(temporary, _mode(path))
        return temporary

    def place(self, dropped: str | None = None) -> None:
        """Rename the files in the order in which they were written. dropped: a path to remove afterwards."""
        folder = os.path.dirname(self._leader)
        with _locked(folder), _uninterrupted():
            while self._waiting:
                os.replace(*self._waiting[0])
                self._waiting.pop(0)
            if dropped is not None:
                os.unlink(dropped)
        if self._synced:
            _sync_folder(folder)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for temporary, _place in self._waiting:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if kind is None:
            _clear(self._leader, _SPARE)  # the replaced leader may have referred to it
        for lock in self._locks:
            os.close(lock)

    def _open_temporary(self, place: str) -> int:
        """Return the descriptor of a new, locked temporary file."""
        while True:
            temporary = _beside(self._leader, _PART)
            self._waiting.append((temporary, place))  # before it exists: an interrupt may come at any time
            handle = os.open(temporary, _NEW, 0o600)
            if fcntl is None:
                return handle
            lock = os.dup(handle)
            self._locks.append(lock)
            if _lock(lock) is not False and _is_there(temporary, lock):
                return handle
            os.close(handle)  # a cleanup took it for a leftover of another process
            self._waiting.pop()


def _beside(path: str, kind: str) -> str:
    """Return a new path in the same folder, whose name identifies the original path."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{_prefix_of(name, kind)}{os.urandom(8).hex()}.{kind}")


def _prefix_of(name: str, kind: str) -> str:
    digest = f"{zlib.crc32(os.fsencode(name)):08x}"  # hashlib would load OpenSSL when a session starts
    return f"{'.' if kind == _PART else ''}{name[:_PREFIX]}.{digest}"


def _clear(path: str, kind: str) -> None:
    """Remove temporary files of dead processes for a path."""
    if fcntl is None:
        return
    folder, name = os.path.split(path)
    is_leftover = re.compile(rf"{re.escape(_prefix_of(name, kind))}[0-9a-f]{{16}}\.{kind}").fullmatch
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for leftover in [entry.path for entry in entries if is_leftover(entry.name)]:
            with contextlib.suppress(OSError):
                _remove_unlocked(leftover)


def _remove_unlocked(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if _lock(handle) and _is_there(path, handle):
            os.unlink(path)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool | None:
    """Lock a file without waiting. Return True on success, None if the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_there(path: str, handle: int) -> bool:
    """Return True if a path still refers to an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Exclude other processes and threads that rename files of a folder, if folders can be locked."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder or ".", os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C until the end of the block. Python's handlers run only in the main thread."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    interrupts: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: interrupts.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if interrupts:
        previous(*interrupts[0])


def _sync_folder(folder: str) -> None:
    with contextlib.suppress(OSError):  # if folders cannot be opened, the system flushes them later
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _mode(path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
