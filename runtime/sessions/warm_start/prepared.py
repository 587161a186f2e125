"""Folders beside models, and compiled models, from which sessions start: `InferenceSession.prepare`."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable

import onnxruntime

from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.runtime.sessions.plan import Engine
from graphcore.support.atomic_files import replace_files

SUFFIX = ".start"
"""The suffix of the folder's name, after the name of the model."""

SETTLED = 2.0
"""Seconds after which a second write changes the time of a file on every file system."""

_MARGIN = 0.1
"""Additional seconds to wait."""


def folder_of(model: object) -> str | None:
    """Return the folder that was prepared for a model; None if there is none."""
    if not isinstance(model, (str, os.PathLike)):
        return None
    path = os.fsdecode(model) + SUFFIX
    return path if os.path.isdir(path) else None


def prepare(path: object, load: Callable[[str], object], find: Callable[[str], object | None]) -> None:
    """Write the folder of a model's file.

    load: loads the file with a folder as its cache. find: starts it from the folder only, and returns None if that
    fails. Raises as `load`, and `ModelError` for a value that is not a path, or a model that cannot start so.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ModelError(
            f"prepare: path must be a path, got {type(path).__name__}", help="give the path of an .onnx file"
        )
    file = os.fsdecode(path)
    with contextlib.suppress(OSError, ValueError):  # loading the file gives a better error
        status = os.stat(file)
        age = time.time() - max(status.st_mtime, status.st_ctime)
        if 0 <= SETTLED + _MARGIN - age <= SETTLED + _MARGIN:
            time.sleep(SETTLED + _MARGIN - age)
    try:
        load(file + SUFFIX)
        if find(file + SUFFIX) is None:
            raise ModelError(
                f"prepare: the optimised graph of {file} cannot be cached",
                help="load it without `prepared`: it runs on another provider, has custom operators, or changed",
            )
    except BaseException:
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(file + SUFFIX)
        raise


def write_compiled(path: str, graph: Graph, engine: Engine) -> None:
    """Write a graph as a model whose nodes the providers have compiled. Raises `ModelError` if they compile none."""
    release = re.split(r"\.?[^\d.]", onnxruntime.__version__)[0]  # also of a nightly build
    model = graph.to_onnx(target=engine.target, precision=engine.precision, optimize=engine.optimize, runtime=release)
    try:
        compiled = engine.starter.compiled(model.SerializeToString())
    except Exception as error:
        raise ModelError(
            f"prepare: {', '.join(engine.starter.providers)}: {graph.name} is not compiled: {error}",
            help="omit `compiled`, or use a provider that writes EPContext nodes, such as those of NPUs",
        ) from error
    replace_files([(path, [compiled])])
