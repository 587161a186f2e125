"""Symbolic links of untrusted files, followed by hand and only within one folder, the root.

Each part of a path is opened by a handle of the folder before it without following links. Where a part is a link, its
target is walked in the same way, from the folder that the link lies in. `..` goes back to the handle before, so that no
step leaves the root, whatever appears or moves meanwhile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

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
