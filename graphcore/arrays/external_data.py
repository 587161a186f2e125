"""Open the files that a model consists of. They are untrusted: nothing outside of the folder of the model is opened,
or, where the user lets links be followed, of the folder that they may lead to."""

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
"""The places of external data: plain files of the model's folder, or also the targets of its links."""

_SHOWN = 256
"""Characters of a path that errors show: a file may say anything of any length."""

_PLAIN = "save the model with its data in plain files beside it"
_FOLLOW = f'{_PLAIN}, or follow links: external_data="links" (docs/security.md)'


@dataclass(frozen=True, slots=True)
class Links:
    """Leave to follow symbolic links. root: the folder that they may lead to; None for the default of `root_of`."""

    root: str | None


def links_of(external_data: ExternalData, root: str | os.PathLike[str] | None) -> Links | None:
    """Return which links may be followed; None for none. Raises `GraphError` for values that there are not."""
    if not isinstance(external_data, str) or external_data not in ("plain", "links"):
        raise GraphError(
            f"load: there is no external_data={external_data!r:.40}",
            help='give "plain", or "links" to follow symbolic links',
        )
    if root is None:
        return Links(None) if external_data == "links" else None
    if external_data != "links":
        raise GraphError(
            "load: external_data_root says where links may lead, and none are followed",
            help='give external_data="links" with it',
        )
    if not isinstance(root, (str, os.PathLike)) or not os.path.isdir(root):
        raise GraphError(f"load: external_data_root={str(root)[:_SHOWN]!r} is no folder", help="give a folder's path")
    return Links(os.fsdecode(root))


def model_bytes(path: str) -> memoryview:
    """The content of the file that the user names, mapped. Raises `ModelError` for what is no regular file."""
    try:
        handle = os.open(path, FLAGS)
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
    """The folder of a model, whose files hold external data. None for a model that came from no file.

    links: whether symbolic links are followed, and where they may lead; None refuses them. admit: is told of each file
    that is opened what it is and of which tensor, and raises for one that may not be read.
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
        self._files: dict[str, memoryview] = {}

    def content(self, location: str, tensor: str) -> memoryview:
        """The content of a file in the folder, mapped.

        location: relative, with "/". Raises `UnsafePathError` for one that leaves the folder, or that is or goes
        through anything but plain folders and files of its own: symbolic links that are not to be followed or leave
        their root, hard links, devices, FIFOs.
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
        walk = self._walk if self._links is None else self._walk_links
        handle = walk(parts, location, tensor)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise self._unsafe(location, tensor, "that is no regular file")
            if found.st_nlink > 1:
                raise self._unsafe(location, tensor, "that file has another name elsewhere (a hard link)")
            if self._admit is not None:
                self._admit(found, tensor)
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

    def _walk_links(self, parts: list[str], location: str, tensor: str) -> int:
        """A handle of the file that a path leads to, within the root of links."""
        assert self._path is not None
        assert self._links is not None
        folder = os.path.abspath(self._path)
        spelled = root_of(folder) if self._links.root is None else os.path.abspath(self._links.root)
        root = os.path.realpath(spelled)
        real = os.path.realpath(folder)
        if not os.path.join(real, "").startswith(os.path.join(root, "")):
            raise UnsafePathError(
                f"load: {tensor} lies in {location[:_SHOWN]!r}, and external_data_root={root!r} does not hold {real!r}",
                help="give external_data_root= a folder that holds the model too",
            )
        try:
            return opened(root, spelled, real, parts)
        except OutsideError as error:
            raise self._unsafe(location, tensor, str(error), error.help) from None
        except OSError as error:
            raise self._refused(error, location, tensor) from None

    def _opened(self, name: str, folder: int | None, location: str, tensor: str) -> int:
        if not NO_FOLLOW and os.path.realpath(name) != os.path.abspath(name):
            raise self._unsafe(location, tensor, "a symbolic link is on the way", _FOLLOW)
        try:
            return os.open(name, FLAGS | NO_FOLLOW, dir_fd=folder)
        except OSError as error:
            raise self._refused(error, location, tensor) from None

    def _refused(self, error: OSError, location: str, tensor: str) -> GraphcoreError:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            return self._unsafe(location, tensor, "a symbolic link is on the way", _FOLLOW)
        if error.errno == errno.ENXIO:
            return self._unsafe(location, tensor, "that is no regular file")
        return ModelError(
            f"load: {tensor} lies in the file {location[:_SHOWN]!r}, which cannot be opened: {error.strerror}",
            help="put the file beside the model",
        )

    def _unsafe(self, location: str, tensor: str, why: str, help: str = _PLAIN) -> UnsafePathError:
        return UnsafePathError(f"load: {tensor} lies in {location[:_SHOWN]!r}, and {why}", help=help)


def _mapped(handle: int) -> memoryview:
    if not os.fstat(handle).st_size:
        return memoryview(b"")
    return memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ))


# Symbolic links of untrusted files, followed by hand and only within one folder, the root.
#
# Each part of a path is opened by a handle of the folder before it without following links. Where a part is a link,
# its target is walked in the same way, from the folder that the link lies in. `..` goes back to the handle before, so
# that no step leaves the root, whatever appears or moves meanwhile.

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""The flags that untrusted files are opened with. O_NONBLOCK: opening a FIFO would wait for a writer."""

_MOST_LINKS = 40
"""Links on the way to one file, as Linux has it."""


_ROOT = "give external_data_root= the folder that links may lead to, if you trust the model with it"
_RING = "save the model with its data in plain files beside it"


class OutsideError(Exception):
    """Says which link leads where it may not. help: what to do."""

    def __init__(self, reason: str, help: str = _ROOT) -> None:
        super().__init__(reason)
        self.help = help


def root_of(folder: str) -> str:
    """Return where the links of a model may lead by default: its folder, or the repository of a hub's cache.

    folder: of the model, absolute. Hugging Face's cache has `snapshots/REVISION/...` beside `blobs`.
    """
    inner = folder
    while (outer := os.path.dirname(inner)) != inner:
        repository, name = os.path.split(outer)
        if name == "snapshots":
            blobs = os.path.join(repository, "blobs")
            return repository if os.path.isdir(blobs) and not os.path.islink(blobs) else folder
        inner = outer
    return folder


def opened(root: str, spelled: str, folder: str, parts: Sequence[str]) -> int:
    """Return a handle of a file, links followed within the root.

    root, folder: real paths, the folder in the root. spelled: the root as the user has it, absolute: absolute links
    begin with that as a rule. parts: of the file's path from the folder. Raises `OutsideError` for a link that leads
    out, and `OSError`.
    """
    start = [] if folder == root else os.path.relpath(folder, root).split(os.sep)
    if os.open not in os.supports_dir_fd or not NO_FOLLOW:
        return _opened_by_path(root, os.path.join(folder, *parts))
    return _Walk(root, spelled).to([*start, *parts])


class _Walk:
    """A walk from the root: the handles of the folders on the way, the root's first."""

    def __init__(self, root: str, spelled: str) -> None:
        self._root = root
        self._spellings = dict.fromkeys((root, spelled))
        self._handles = [os.open(root, os.O_RDONLY)]
        self._names: list[str] = []
        self._links = 0

    def to(self, parts: Sequence[str]) -> int:
        ahead = list(reversed(parts))
        link = ""
        try:
            while True:
                name = ahead.pop()
                if name == "..":
                    self._up(link)
                elif name not in ("", "."):
                    target = self._target(name)
                    if target is not None:
                        link = self._shown(name, target)
                        ahead += reversed(self._parts(target, link))
                    else:
                        self._handles.append(os.open(name, FLAGS | NO_FOLLOW, dir_fd=self._handles[-1]))
                        self._names.append(name)
                if not ahead:
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
        """Return where a link leads; None for what is none. What it becomes a moment later is not followed."""
        found = os.stat(name, dir_fd=self._handles[-1], follow_symlinks=False)
        return os.readlink(name, dir_fd=self._handles[-1]) if stat.S_ISLNK(found.st_mode) else None

    def _parts(self, target: str, link: str) -> list[str]:
        """Return the parts of a link's target, after going back to the root for one that is absolute."""
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OutsideError(f"{link}, the last of more than {_MOST_LINKS} links", _RING)
        if not os.path.isabs(target):
            return target.split(os.sep)
        for root in self._spellings:
            if os.path.join(target, "").startswith(os.path.join(root, "")):
                while len(self._handles) > 1:
                    self._up(link)
                return target[len(root) :].split(os.sep)
        raise OutsideError(f"{link}, out of {self._root!r}")

    def _shown(self, name: str, target: str) -> str:
        return f"the link {'/'.join([*self._names, name])[:256]!r} leads to {target[:256]!r}"


def _opened_by_path(root: str, path: str) -> int:
    """Return a handle where the system opens no file by the handle of its folder."""
    real = os.path.realpath(path)
    if not real.startswith(os.path.join(root, "")):
        raise OutsideError(f"a link on the way to {path[-256:]!r} leads to {real[:256]!r}, out of {root!r}")
    return os.open(real, FLAGS | NO_FOLLOW)
