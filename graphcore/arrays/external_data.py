"""Open the files that a model consists of. They are untrusted: nothing outside of the folder of the model is opened."""

from __future__ import annotations

import errno
import mmap
import os
import stat

from graphcore.errors import ModelError, UnsafePathError

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO would wait for a writer
_BINARY = getattr(os, "O_BINARY", 0)

_SHOWN = 256
"""Characters of a path that errors show: a file may say anything of any length."""


def model_bytes(path: str) -> memoryview:
    """The content of the file that the user names, mapped. Raises `ModelError` for what is no regular file."""
    try:
        handle = os.open(path, os.O_RDONLY | _NO_WAIT | _BINARY)
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        reason = error.strerror if isinstance(error, OSError) else str(error)
        what = "no file" if isinstance(error, FileNotFoundError) else f"not readable: {reason}"
        raise ModelError(f"load: {path[:_SHOWN]} is {what}", help="give the path of an .onnx file") from None
    try:
        kind = os.fstat(handle).st_mode
        if not stat.S_ISREG(kind):
            what = "a folder" if stat.S_ISDIR(kind) else "no file"
            raise ModelError(f"load: {path} is {what}", help="give the path of an .onnx file")
        return _mapped(handle)
    finally:
        os.close(handle)


class Folder:
    """The folder of a model, whose files hold external data. None for a model that came from no file."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._files: dict[str, memoryview] = {}

    def content(self, location: str, tensor: str) -> memoryview:
        """The content of a file in the folder, mapped.

        location: relative, with "/". Raises `UnsafePathError` for one that leaves the folder, or that is or goes
        through anything but plain folders and files of its own: symbolic and hard links, devices, FIFOs.
        """
        found = self._files.get(location)
        if found is None:
            found = self._files[location] = self._open(location, tensor)
        return found

    def _open(self, location: str, tensor: str) -> memoryview:
        if self._path is None:
            raise ModelError(
                f"load: {tensor} lies in the file {location[:_SHOWN]!r}, and a model given as bytes has no folder",
                help="give the path of the model",
            )
        parts = location.split("/")
        if (
            not location
            or "\0" in location
            or "\\" in location
            or ":" in parts[0]
            or os.path.isabs(location)
            or any(part in ("", ".", "..") for part in parts)
        ):
            raise self._unsafe(location, tensor, "that is no plain path inside of the model's folder")
        handle = self._walk(parts, location, tensor)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise self._unsafe(location, tensor, "that is no regular file")
            if found.st_nlink > 1:
                raise self._unsafe(location, tensor, "that file has another name elsewhere (a hard link)")
            return _mapped(handle)
        finally:
            os.close(handle)

    def _walk(self, parts: list[str], location: str, tensor: str) -> int:
        """A handle of the file, opened folder by folder, so that no link is followed even if one appears meanwhile."""
        assert self._path is not None
        if os.open not in os.supports_dir_fd:
            return self._opened(os.path.join(self._path, *parts), None, location, tensor)
        folder = os.open(self._path, os.O_RDONLY)
        try:
            for part in parts[:-1]:
                inner = self._opened(part, folder, location, tensor)
                os.close(folder)
                folder = inner
            return self._opened(parts[-1], folder, location, tensor)
        finally:
            os.close(folder)

    def _opened(self, name: str, folder: int | None, location: str, tensor: str) -> int:
        if not _NO_FOLLOW and os.path.realpath(name) != os.path.abspath(name):
            raise self._unsafe(location, tensor, "a symbolic link is on the way")
        try:
            return os.open(name, os.O_RDONLY | _NO_FOLLOW | _NO_WAIT | _BINARY, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):
                raise self._unsafe(location, tensor, "a symbolic link is on the way") from None
            if error.errno == errno.ENXIO:
                raise self._unsafe(location, tensor, "that is no regular file") from None
            raise ModelError(
                f"load: {tensor} lies in the file {location[:_SHOWN]!r}, which cannot be opened: {error.strerror}",
                help="put the file beside the model",
            ) from None

    def _unsafe(self, location: str, tensor: str, why: str) -> UnsafePathError:
        return UnsafePathError(
            f"load: {tensor} lies in {location[:_SHOWN]!r}, and {why}",
            help="save the model with its data in plain files beside it",
        )


def _mapped(handle: int) -> memoryview:
    if not os.fstat(handle).st_size:
        return memoryview(b"")
    return memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ))
