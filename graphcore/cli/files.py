"""Files that commands write: whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence

from graphcore.errors import ExportError
from graphcore.support.atomic_files import replace_files


def write(what: str, path: str, chunks: Sequence[bytes | memoryview]) -> None:
    """Write a file. what: the command, for errors. Raises `ExportError` where it cannot be written."""
    try:
        replace_files([(os.path.realpath(path), chunks)])
    except OSError as error:
        raise ExportError(
            f"{what}: {path} cannot be written: {error.strerror or error}",
            help="choose a folder that exists and can be written to",
        ) from None


def write_text(what: str, path: str, text: str) -> None:
    """Write a file of text. Raises as `write` does."""
    write(what, path, [text.encode("utf-8", "backslashreplace")])


def require_other(what: str, source: str, path: str) -> None:
    """Raise `ExportError` where the file that is to be written is the one that is read."""
    if os.path.exists(path) and os.path.exists(source) and os.path.samefile(source, path):
        raise ExportError(f"{what}: {path} is the file that is read", help="choose another name for what is written")
