"""Writing files whole or not at all: beside their places first, and renamed when all is written."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
from collections.abc import Iterable, Iterator
from types import FrameType

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_PREFIX = 100  # characters of a name that the temporary one begins with: names may be as long as a file system allows


def replace_files(files: Iterable[tuple[str, Iterable[bytes | memoryview]]], *, synced: bool = False) -> None:
    """Write files, given as (path, chunks), and rename them at the end, keeping the mode of those replaced.

    The last one is the file that leads to the others. synced: each is on the disk before it gets its name, and so is
    the name. Raises `OSError`; no temporary file is left over then.
    """
    waiting: list[tuple[str, str]] = []
    folders = set()
    try:
        for path, chunks in files:
            if os.path.isdir(path):
                raise IsADirectoryError(21, "it is a folder", path)
            folder, name = os.path.split(path)
            folders.add(folder)
            temporary = os.path.join(folder, f".{name[:_PREFIX]}.{os.urandom(8).hex()}")
            waiting.append((temporary, path))  # before it is there: an interrupt comes at any time
            with os.fdopen(os.open(temporary, _NEW, 0o600), "wb") as stream:
                for chunk in chunks:
                    stream.write(chunk)
                if synced:
                    stream.flush()
                    os.fsync(stream.fileno())
            os.chmod(temporary, _mode(path))
        with _uninterrupted():
            if len(waiting) > 1:
                # An old leader must not be found beside new followers, not even by who looks between the two renames.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(waiting[-1][1])
            while waiting:
                os.replace(*waiting[0])
                waiting.pop(0)
    finally:
        for temporary, _ in waiting:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    for folder in folders if synced else ():
        _sync_folder(folder)


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
