"""Opens the files of a model, which are untrusted: no file outside of the folder of the model is opened, or outside of
the root of symbolic links, if the user allows them."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphcore.errors import GraphcoreError, GraphError, ModelError, UnsafePathError

ExternalData: TypeAlias = Literal["plain", "links"]
"""The allowed locations of external data: plain files in the model's folder, or also targets of symbolic links."""

_MAX_PATH_CHARS = 256
"""The maximum number of characters of a path in an error, since paths in files may have any length."""

_PLAIN = "save the model with its data in plain files beside it"
_FOLLOW = f'{_PLAIN}, or follow links: external_data="links" (docs/security.md)'


@dataclass(frozen=True, slots=True)
class Links:
    """Permission to follow symbolic links. root: the folder that they may lead to; None for the result of `root_of`."""

    root: str | None


def links_of(external_data: ExternalData, root: str | os.PathLike[str] | None) -> Links | None:
    """Return the permission to follow links, or None. Raises `GraphError` for invalid values."""
    if not isinstance(external_data, str) or external_data not in ("plain", "links"):
        raise GraphError(
            f"load: unknown external_data={external_data!r:.40}",
            help='use "plain", or "links" to follow symbolic links',
        )
    if root is None:
        return Links(None) if external_data == "links" else None
    if external_data != "links":
        raise GraphError(
            'load: external_data_root has no effect without external_data="links"',
            help='pass external_data="links" with it',
        )
    if not isinstance(root, (str, os.PathLike)) or not os.path.isdir(root):
        raise GraphError(
            f"load: external_data_root={str(root)[:_MAX_PATH_CHARS]!r} is not a folder",
            help="pass the path of a folder",
        )
    return Links(os.fsdecode(root))


def model_bytes(path: str) -> memoryview:
    """Return the memory-mapped content of a model file. Raises `ModelError` if the path is not a regular file."""
    try:
        handle = os.open(path, FLAGS)
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        reason = error.strerror if isinstance(error, OSError) else str(error)
        what = "not a file" if isinstance(error, FileNotFoundError) else f"not readable: {reason}"
        raise ModelError(f"load: {path[:_MAX_PATH_CHARS]} is {what}", help="give the path of an .onnx file") from None
    try:
        kind = os.fstat(handle).st_mode
        if not stat.S_ISREG(kind):
            what = "a folder" if stat.S_ISDIR(kind) else "not a file"
            raise ModelError(f"load: {path} is {what}", help="give the path of an .onnx file")
        return _mapped(handle)
    finally:
        os.close(handle)


class Folder:
    """The folder of a model, whose files have external data.

    path: None for a model that was not loaded from a file. links: the permission to follow symbolic links; None
    rejects them. admit: called with the status of each opened file and the tensor; it raises to reject the file.
    """

    def __init__(
        self,
        path: str | None,
        links: Links | None = None,
        admit: Callable[[os.stat_result, str], None] | None = None,
    ) -> None:
        self._path = path
        self._admit = admit
        self._links = links
        self.files: dict[str, memoryview] = {}

    @property
    def is_used(self) -> bool:
        """True if a file was opened."""
        return bool(self.files)

    def content(self, location: str, tensor: str) -> memoryview:
        """Return the memory-mapped content of a file in the folder.

        location: a relative path with "/". Raises `UnsafePathError` for a path that leaves the folder, and for all but
        plain folders and files: symbolic links that are not allowed or leave their root, hard links, devices, FIFOs.
        """
        content = self.files.get(location)
        if content is None:
            content = self.files[location] = self._open(location, tensor)
        return content

    def _open(self, location: str, tensor: str) -> memoryview:
        if self._path is None:
            raise ModelError(
                f"load: {tensor} is in file {location[:_MAX_PATH_CHARS]!r}, but a model from bytes has no folder",
                help="pass the path of the model",
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
            raise self._unsafe(location, tensor, "that is not a plain path inside of the model's folder")
        walk = self._walk if self._links is None else self._walk_links
        handle = walk(parts, location, tensor)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise self._unsafe(location, tensor, "that is not a regular file")
            if status.st_nlink > 1:
                raise self._unsafe(location, tensor, "that file has another name elsewhere (a hard link)")
            if self._admit is not None:
                self._admit(status, tensor)
            return _mapped(handle)
        finally:
            os.close(handle)

    def _walk(self, parts: list[str], location: str, tensor: str) -> int:
        """Return a handle of the file, opened folder by folder, so that links cannot be swapped in meanwhile."""
        assert self._path is not None
        if os.open not in os.supports_dir_fd:
            return self._open_part(os.path.join(os.path.realpath(self._path), *parts), None, location, tensor)
        folder = os.open(self._path, os.O_RDONLY)
        try:
            for part in parts[:-1]:
                inner = self._open_part(part, folder, location, tensor)
                os.close(folder)
                folder = inner
            return self._open_part(parts[-1], folder, location, tensor)
        finally:
            os.close(folder)

    def _walk_links(self, parts: list[str], location: str, tensor: str) -> int:
        """Return a handle of the file that a path leads to, within the root of links."""
        assert self._path is not None
        assert self._links is not None
        folder = os.path.abspath(self._path)
        spelled = root_of(folder) if self._links.root is None else os.path.abspath(self._links.root)
        root = os.path.realpath(spelled)
        real = os.path.realpath(folder)
        if not os.path.join(real, "").startswith(os.path.join(root, "")):
            raise UnsafePathError(
                f"load: {tensor} lies in {location[:_MAX_PATH_CHARS]!r}, and external_data_root={root!r} "
                f"does not contain {real!r}",
                help="pass an external_data_root that also contains the model",
            )
        try:
            return open_within(root, spelled, real, parts)
        except OutsideError as error:
            raise self._unsafe(location, tensor, str(error), error.help) from None
        except OSError as error:
            raise self._open_error(error, location, tensor) from None

    def _open_part(self, name: str, folder: int | None, location: str, tensor: str) -> int:
        if not NO_FOLLOW and os.path.normcase(os.path.realpath(name)) != os.path.normcase(os.path.abspath(name)):
            raise self._unsafe(location, tensor, "a symbolic link is on the way", _FOLLOW)
        try:
            return os.open(name, FLAGS | NO_FOLLOW, dir_fd=folder)
        except OSError as error:
            raise self._open_error(error, location, tensor) from None

    def _open_error(self, error: OSError, location: str, tensor: str) -> GraphcoreError:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            return self._unsafe(location, tensor, "a symbolic link is on the way", _FOLLOW)
        if error.errno == errno.ENXIO:
            return self._unsafe(location, tensor, "that is not a regular file")
        return ModelError(
            f"load: {tensor} lies in the file {location[:_MAX_PATH_CHARS]!r}, which cannot be opened: {error.strerror}",
            help="put the file beside the model",
        )

    def _unsafe(self, location: str, tensor: str, why: str, help: str = _PLAIN) -> UnsafePathError:
        return UnsafePathError(f"load: {tensor} lies in {location[:_MAX_PATH_CHARS]!r}, and {why}", help=help)


def _mapped(handle: int) -> memoryview:
    if not os.fstat(handle).st_size:
        return memoryview(b"")
    return memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ))


# Symbolic links of untrusted files, resolved only within one folder, the root.
#
# Each part of a path is opened relative to the handle of its folder, without following links. The target of a link is
# walked in the same way, from the folder of the link. `..` returns to the previous handle. No step can leave the root,
# even if files appear or move meanwhile.

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""The flags for opening untrusted files. O_NONBLOCK: opening a FIFO would wait for a writer."""

_MAX_LINKS = 40
"""The maximum number of links on the way to a file, as in Linux."""


_ROOT = "pass external_data_root=, the folder that links may lead to, if you trust the model with it"
_RING = "save the model with its data in plain files beside it"


class OutsideError(Exception):
    """A link leads outside of the root. help: the fix."""

    def __init__(self, reason: str, help: str = _ROOT) -> None:
        super().__init__(reason)
        self.help = help


def root_of(folder: str) -> str:
    """Return the default root of links: the folder of the model, or the repository in a hub's cache.

    folder: the absolute path of the model's folder. Hugging Face's cache has `snapshots/REVISION/...` beside `blobs`.
    """
    inner = folder
    while (outer := os.path.dirname(inner)) != inner:
        repository, name = os.path.split(outer)
        if name == "snapshots":
            blobs = os.path.join(repository, "blobs")
            return repository if os.path.isdir(blobs) and not os.path.islink(blobs) else folder
        inner = outer
    return folder


def open_within(root: str, spelled: str, folder: str, parts: Sequence[str]) -> int:
    """Return a handle of a file, following links within the root.

    root, folder: real paths, the folder inside the root. spelled: the absolute path of the root as the user wrote it,
    with which absolute links usually begin. parts: the path of the file from the folder. Raises `OutsideError` for a
    link that leads out of the root, and `OSError`.
    """
    start = [] if folder == root else os.path.relpath(folder, root).split(os.sep)
    if os.open not in os.supports_dir_fd or not NO_FOLLOW:
        return _open_by_path(root, os.path.join(folder, *parts))
    return _LinkWalk(root, spelled).to([*start, *parts])


class _LinkWalk:
    """A walk from the root, with the handles of the folders on the way, that of the root first."""

    def __init__(self, root: str, spelled: str) -> None:
        self._root = root
        self._spellings = dict.fromkeys((root, spelled))
        self._handles = [os.open(root, os.O_RDONLY)]
        self._names: list[str] = []
        self._links = 0

    def to(self, parts: Sequence[str]) -> int:
        remaining = list(reversed(parts))
        link = ""
        try:
            while True:
                name = remaining.pop()
                if name == "..":
                    self._up(link)
                elif name not in ("", "."):
                    target = self._target(name)
                    if target is not None:
                        link = f"the link {'/'.join([*self._names, name])[:256]!r} leads to {target[:256]!r}"
                        remaining += reversed(self._parts(target, link))
                    else:
                        self._handles.append(os.open(name, FLAGS | NO_FOLLOW, dir_fd=self._handles[-1]))
                        self._names.append(name)
                if not remaining:
                    return os.dup(self._handles[-1])
        finally:
            for handle in self._handles:
                os.close(handle)

    def _up(self, link: str) -> None:
        if len(self._handles) == 1:
            raise OutsideError(f"{link}, out of {self._root!r}")
        os.close(self._handles.pop())
        self._names.pop()

    def _target(self, name: str) -> str | None:
        """Return the target of a link; None for other files. If the file changes afterwards, it is not followed."""
        status = os.stat(name, dir_fd=self._handles[-1], follow_symlinks=False)
        return os.readlink(name, dir_fd=self._handles[-1]) if stat.S_ISLNK(status.st_mode) else None

    def _parts(self, target: str, link: str) -> list[str]:
        """Return the parts of a link's target, after returning to the root for an absolute one."""
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OutsideError(f"{link}, the last of more than {_MAX_LINKS} links", _RING)
        if not os.path.isabs(target):
            return target.split(os.sep)
        for root in self._spellings:
            if os.path.join(target, "").startswith(os.path.join(root, "")):
                while len(self._handles) > 1:
                    self._up(link)
                return target[len(root) :].split(os.sep)
        raise OutsideError(f"{link}, out of {self._root!r}")


def _open_by_path(root: str, path: str) -> int:
    """Return a handle on systems that cannot open files relative to a folder's handle."""
    real = os.path.realpath(path)
    if not real.startswith(os.path.join(root, "")):
        raise OutsideError(f"a link on the way to {path[-256:]!r} leads to {real[:256]!r}, out of {root!r}")
    return os.open(real, FLAGS | NO_FOLLOW)
