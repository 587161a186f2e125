"""Sessions of onnxruntime alone: a file as it is, with onnxruntime's own defaults, to compare a Model with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

from graphcore.arrays import casting
from graphcore.errors import ModelError, RunError

_SILENT = 4  # of onnxruntime's levels of logging: what fails is raised


def onnxruntime_alone(
    path: str | os.PathLike[str], providers: Sequence[str], threads: int = 0
) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Return what runs a file as `onnxruntime.InferenceSession(path).run(None, feeds)` does.

    providers: onnxruntime's names. threads: that a kernel may use, 0 for onnxruntime's own choice. Raises `ModelError`
    where onnxruntime refuses the file; what is returned raises `RunError` where it refuses the arrays or fails.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = _SILENT
    try:
        session = onnxruntime.InferenceSession(os.fspath(path), options, providers=[*providers])
    except Exception as error:
        raise ModelError(f"onnxruntime alone: {path} is refused", raw=_short(error)) from None

    def call(feeds: Mapping[str, Any]) -> list[Any]:
        try:
            results: list[Any] = session.run(None, {name: _stored(value) for name, value in feeds.items()})
        except Exception as error:
            raise RunError(f"onnxruntime alone: {path} fails", raw=_short(error)) from None
        return results

    return call


def _stored(value: Any) -> Any:
    """Return what a file takes for an array: complex numbers as pairs of floats."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "c":
        return casting.paired(np.ascontiguousarray(value))
    return value


def _short(error: Exception) -> str:
    """Return the first line of what onnxruntime says."""
    with contextlib.suppress(IndexError):
        return str(error).strip().split("\n")[0][:200]
    return type(error).__name__
