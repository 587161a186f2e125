"""Folders beside models, with what sessions start from: `InferenceSession.prepare`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from graphcore.errors import ModelError

ENDING = ".start"
"""The part of a folder's name after the model's."""

SETTLED = 2.0
"""Seconds after which a file that is written again has another time of writing on every file system."""

_MORE = 0.1
"""Seconds after which a file is settled with certainty."""


def folder_of(model: object) -> str | None:
    """Return the folder that was prepared for a model; None where there is none."""
    if not isinstance(model, (str, os.PathLike)):
        return None
    path = os.fsdecode(model) + ENDING
    return path if os.path.isdir(path) else None


def prepare(path: object, load: Callable[[str], object], find: Callable[[str], object | None]) -> None:
    """Write the folder of a model's file. load: loads it with a folder as its cache. find: starts it from the folder
    alone, and returns None where it cannot.

    Raises what `load` does, and `ModelError` for what is no path or cannot be started so.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ModelError(f"prepare: a {type(path).__name__} is no path", help="give the path of an .onnx file")
    file = os.fsdecode(path)
    with contextlib.suppress(OSError, ValueError):  # which loading it says better
        found = os.stat(file)
        age = time.time() - max(found.st_mtime, found.st_ctime)
        if 0 <= SETTLED + _MORE - age <= SETTLED + _MORE:
            time.sleep(SETTLED + _MORE - age)
    try:
        load(file + ENDING)
        if find(file + ENDING) is None:
            raise ModelError(
                f"prepare: what {file} starts from cannot be kept",
                help="load it as it is: it runs on another provider, has operators of others, or changes meanwhile",
            )
    except BaseException:
        with contextlib.suppress(OSError):  # which is not empty
            os.rmdir(file + ENDING)
        raise
