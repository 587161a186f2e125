"""Landlock: the files that a process may read, and that it writes none. Linux 5.13 and later.

Source: https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
"""Numbers of the calls, which are those of every architecture."""
_VERSION = 1
_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_FILES = {1: 13, 2: 14, 3: 15, 5: 16}
"""By version of the interface, how many rights there are to files."""
_NETWORK = 0b11  # to bind and to connect TCP, from version 4 on
_SCOPES = 0b11  # abstract sockets and signals, from version 6 on


def version() -> int:
    """Return the version of the kernel's interface; 0 where it has none."""
    if not sys.platform.startswith("linux"):
        return 0
    found = ctypes.CDLL(None, use_errno=True).syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)
    return max(0, int(found))


def restrict(readable: Iterable[str], writable: Iterable[str] = ()) -> list[str]:
    """Take every right to files from this thread and those it will make, but to read below some paths.

    readable: files and folders; those that are not there are left out. writable: files that exist and may be written.
    Returns what the kernel cannot forbid, a phrase each.
    """
    known = version()
    if not known:
        return ["files (no Landlock)"]
    count = max(rights for since, rights in _FILES.items() if since <= known)
    network = _NETWORK if known >= 4 else 0
    scopes = _SCOPES if known >= 6 else 0
    content = struct.pack("=QQQ", (1 << count) - 1, network, scopes)[: 24 if known >= 6 else 16 if known >= 4 else 8]
    libc = ctypes.CDLL(None, use_errno=True)
    rules = libc.syscall(_CREATE, content, ctypes.c_size_t(len(content)), 0)
    if rules < 0:
        return [f"files (Landlock: {os.strerror(ctypes.get_errno())})"]
    try:
        for path in readable:
            _allow(libc, rules, path, _READ_FILE, _READ_FILE | _READ_DIR)
        for path in writable:
            _allow(libc, rules, path, _READ_FILE | _WRITE_FILE, 0)
        if libc.syscall(_RESTRICT, rules, 0):
            return [f"files (Landlock: {os.strerror(ctypes.get_errno())})"]
    finally:
        os.close(rules)
    return []


def _allow(libc: ctypes.CDLL, rules: int, path: str, of_file: int, of_folder: int) -> None:
    """Add a rule for what lies below a path. The rights differ: those to folders are refused for files."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = of_folder if os.path.isdir(path) else of_file
        if rights:
            libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, handle), 0)
    finally:
        os.close(handle)
