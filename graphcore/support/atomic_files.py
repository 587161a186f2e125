"""Writing files whole or not at all: beside their places first, and renamed when all is written.

A file that is being written is locked. What a process left that was killed has no lock, and is cleared by the next one
that writes to the same place.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import TypeAlias

try:
    import fcntl
except ImportError:  # Windows has no locks of this kind, and removes no file that is open
    fcntl = None  # type: ignore[assignment]

Content: TypeAlias = Iterable[bytes | memoryview]

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_PIECE = 1 << 24
_PREFIX = 100  # characters of a name that the temporary one begins with: names may be as long as a file system allows
_PART, _SPARE = "part", "data"


def replace_files(files: Sequence[tuple[str, Content]], *, synced: bool = False) -> None:
    """Write files of one folder, given as (path, chunks), and rename them in this order when all are written.

    They keep the modes of those replaced. The last is the file that leads to the others. synced: each is on the disk
    before it gets its name, and so is the name. Raises `OSError`; no temporary file is left over then.
    """
    with _Writing(files[-1][0], synced) as writing:
        for path, chunks in files:
            writing.write(path, chunks)
        writing.place()


def replace_pair(leader: str, content: Callable[[str], Content], follower: str, chunks: Content) -> None:
    """Write two files of one folder, of which the first names the second, so that what it names is always there.

    content: of the first, for the name of the second. Where both are there already, the new pair first gets its place
    with another name for the second, and then its own: the second is written twice. A process that is killed leaves the
    old pair or the new one. Raises `OSError`; the old pair is as it was then.
    """
    name = os.path.basename(follower)
    if not (os.path.exists(leader) and os.path.exists(follower)):
        replace_files([(follower, chunks), (leader, content(name))])
        return
    spare = _beside(leader, _SPARE)
    with _Writing(leader) as writing:
        written = writing.write(follower, chunks, place=spare)
        writing.write(leader, content(os.path.basename(spare)))
        writing.write(follower, _read(written))  # a link would do, but files of several names are refused in loading
        writing.write(leader, content(name))
        writing.place(dropped=spare)


def _read(path: str) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        while piece := stream.read(_PIECE):
            yield piece


class _Writing:
    """Files that are being written: each locked until the end, and gone if it has no place by then."""

    def __init__(self, leader: str, synced: bool = False) -> None:
        """leader: the file that leads to the others."""
        self._leader = leader
        self._synced = synced
        self._waiting: list[tuple[str, str]] = []
        """The temporary names and the places of what was written."""
        self._locks: list[int] = []

    def __enter__(self) -> _Writing:
        _clear(self._leader, _PART)
        return self

    def write(self, path: str, chunks: Content, place: str | None = None) -> str:
        """Write a file beside its place, and return its name. place: if it is not the path whose mode it gets."""
        if os.path.isdir(path):
            raise IsADirectoryError(21, "it is a folder", path)
        with os.fdopen(self._opened(place or path), "wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
            if self._synced:
                stream.flush()
                os.fsync(stream.fileno())
        temporary = self._waiting[-1][0]
        os.chmod(temporary, _mode(path))
        return temporary

    def place(self, dropped: str | None = None) -> None:
        """Give the files their names, in the order in which they were written. dropped: a name that is not kept."""
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
            _clear(self._leader, _SPARE)  # which the leader that was replaced may have named
        for lock in self._locks:
            os.close(lock)

    def _opened(self, place: str) -> int:
        """Return the descriptor of a new temporary file, which is locked."""
        while True:
            temporary = _beside(self._leader, _PART)
            self._waiting.append((temporary, place))  # before it is there: an interrupt comes at any time
            handle = os.open(temporary, _NEW, 0o600)
            if fcntl is None:
                return handle
            lock = os.dup(handle)
            self._locks.append(lock)
            if _lock(lock) is not False and _is_there(temporary, lock):
                return handle
            os.close(handle)  # who clears the folder took it for what another process left
            self._waiting.pop()


def _beside(path: str, kind: str) -> str:
    """Return a new name in the folder of a path, which tells of which path it is."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{_start(name, kind)}{os.urandom(8).hex()}.{kind}")


def _start(name: str, kind: str) -> str:
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    return f"{'.' if kind == _PART else ''}{name[:_PREFIX]}.{digest}"


def _clear(path: str, kind: str) -> None:
    """Remove what processes that are dead left beside a path."""
    if fcntl is None:
        return
    folder, name = os.path.split(path)
    is_left = re.compile(rf"{re.escape(_start(name, kind))}[0-9a-f]{{16}}\.{kind}").fullmatch
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for left in [entry.path for entry in entries if is_left(entry.name)]:
            with contextlib.suppress(OSError):
                _remove_unlocked(left)


def _remove_unlocked(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if _lock(handle) and _is_there(path, handle):
            os.unlink(path)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool | None:
    """Lock a file without waiting; return whether it could be, and None where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_there(path: str, handle: int) -> bool:
    """Return whether a path is still that of an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Wait until no other process or thread gives pairs of this folder their names, where folders can be locked."""
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
    """Put off Ctrl-C until the end of the block. Python's handlers run in the main thread alone."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if came:
        previous(*came[0])


def _sync_folder(folder: str) -> None:
    with contextlib.suppress(OSError):  # where folders cannot be opened, their names reach the disk in their own time
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _mode(path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
